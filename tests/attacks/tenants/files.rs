//! Workspaces beside each other, within each other, and in each other's place.

use std::fs;
use std::os::unix::fs::symlink;

use harness_capability::system::System;
use harness_registry::Machine;
use serde_json::json;
use tokio::runtime::Runtime;

use super::house::{ATTACKER, House, Tenant, VICTIM, WIDE, put, same, stopped, through, tree, unchanged, unseen, why};
use crate::corpus::Coded;
use crate::process::CANARY;
use crate::races::tried;

pub(super) const CASES: &[Coded] = &[
    Coded {
        id: "tenants-001",
        tried: "reads, lists, finds and copies the files of a project beside it",
        run: |runtime, _| reads(runtime, true),
        control: |runtime, _| reads(runtime, false),
    },
    Coded {
        id: "tenants-002",
        tried: "writes, moves and removes files of a project beside it",
        run: |runtime, _| writes(runtime, true),
        control: |runtime, _| writes(runtime, false),
    },
    Coded {
        id: "tenants-003",
        tried: "goes by links in its workspace into that of a project beside it",
        run: |runtime, _| links(runtime, true),
        control: |runtime, _| links(runtime, false),
    },
    Coded {
        id: "tenants-004",
        tried: "finds out by the error whether a project of some name lies beside it",
        run: |runtime, _| guessed(runtime, true),
        control: |runtime, _| guessed(runtime, false),
    },
    Coded {
        id: "tenants-005",
        tried: "changes the artifacts of a project that lies in its workspace, and reads what that one closes",
        run: |runtime, _| within(runtime, true),
        control: |runtime, _| within(runtime, false),
    },
    Coded {
        id: "tenants-006",
        tried: "moves, copies and removes a project that lies in its workspace, to put its own in the place",
        run: |runtime, _| moved_within(runtime, true),
        control: |runtime, _| moved_within(runtime, false),
    },
    Coded {
        id: "tenants-007",
        tried: "reads and writes in the project around its own, of which it is a folder",
        run: |runtime, _| around(runtime, true),
        control: |runtime, _| around(runtime, false),
    },
    Coded {
        id: "tenants-008",
        tried: "uses what another policy grants for the same folder, which is open twice",
        run: |runtime, _| twice(runtime, true),
        control: |runtime, _| twice(runtime, false),
    },
    Coded {
        id: "tenants-010",
        tried: "writes artifacts into the project whose folder it has as its workspace",
        run: |runtime, _| elsewhere(runtime, true),
        control: |runtime, _| elsewhere(runtime, false),
    },
    Coded {
        id: "tenants-011",
        tried: "swaps a folder for a link into the other's workspace while it reads and writes there",
        run: |runtime, _| swapped(runtime, true),
        control: |runtime, _| swapped(runtime, false),
    },
    Coded {
        id: "tenants-012",
        tried: "names the other's workspace in its own policy, as if it were part of its own",
        run: |runtime, _| granted(runtime, true),
        control: |runtime, _| granted(runtime, false),
    },
];

/// Ways to the victim's folder, and the same number to the attacker's own for a control.
fn ways(house: &House, attack: bool) -> Vec<String> {
    if !attack {
        let own = house.at(ATTACKER).to_str().unwrap().to_owned();
        return vec![".".to_owned(), "./sub/..".to_owned(), own];
    }
    let absolute = house.at(VICTIM).to_str().unwrap().to_owned();
    vec![
        format!("../{VICTIM}"),
        format!("./sub/../../{VICTIM}"),
        format!("sub/../../{VICTIM}/."),
        format!("../{ATTACKER}/../{VICTIM}"),
        format!("//{absolute}"),
        format!("/proc/self/root{absolute}"),
        format!("/proc/{}/root{absolute}", std::process::id()),
        absolute,
    ]
}

fn two(house: &House, expressions: &[String]) -> (Tenant, Tenant) {
    let attacker = house.attacker().file("sub/a", "a").file("secret.txt", "own").file("docs/plain.txt", "own");
    (attacker.each(expressions).open(), house.victim().open())
}

fn reads(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let of = |way: String| {
        [
            format!("fs.read('{way}/secret.txt')"),
            format!("fs.list('{way}/docs')"),
            format!("fs.stat('{way}/secret.txt')"),
            format!("fs.exists('{way}/secret.txt')"),
            format!("fs.find('{way}/secret.txt', '')"),
            format!("fs.read_lines('{way}/secret.txt', 1)"),
            format!("fs.line_count('{way}/secret.txt')"),
            format!("fs.copy('{way}/docs', '{{to}}')"),
            format!("fs.glob('{way}/*.txt')"),
            format!("fs.list('{way}')"),
        ]
    };
    let expressions: Vec<String> = ways(&house, attack).into_iter().flat_map(of).collect();
    let numbered = |(n, text): (usize, String)| text.replace("{to}", &format!("copied{n}"));
    // A pattern holds no `..`, wherever that leads.
    let fits = |text: &String| attack || !(text.contains("glob") && (text.contains("..") || text.contains("'/")));
    let expressions: Vec<String> = expressions.into_iter().filter(fits).enumerate().map(numbered).collect();
    let (attacker, victim) = two(&house, &expressions);
    let seen = attacker.all(runtime, expressions.len());
    unseen(&attacker, &seen)?;
    if !attack {
        return through(&seen, &expressions);
    }
    stopped(&seen, &expressions)?;
    same(victim.call(runtime, "read_secret").gave()?, CANARY)?;
    Ok("denied".to_owned())
}

fn writes(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let of = |way: String| {
        [
            format!("fs.write('{way}/new.txt', 'x')"),
            format!("fs.append('{way}/docs/plain.txt', 'x')"),
            format!("fs.mkdir('{way}/made')"),
            format!("fs.copy('sub', '{way}/docs/{{to}}')"),
            format!("fs.write('{way}/{{to}}', fs.read('own.txt'))"),
            format!("fs.move('{way}/{{to}}', '{way}/docs/{{to}}.txt')"),
            format!("fs.replace_all('{way}/docs/plain.txt', 'x', 'y')"),
            format!("fs.remove('{way}/new.txt')"),
        ]
    };
    let numbered = |(n, way): (usize, String)| of(way).map(|text| text.replace("{to}", &format!("to{n}")));
    let expressions: Vec<String> = ways(&house, attack).into_iter().enumerate().flat_map(numbered).collect();
    let (attacker, victim) = two(&house, &expressions);
    let before = tree(&victim.root);
    let seen = attacker.all(runtime, expressions.len());
    unchanged(&victim.root, &before)?;
    if !attack {
        return through(&seen, &expressions);
    }
    stopped(&seen, &expressions)?;
    unseen(&attacker, &seen)?;
    same(victim.call(runtime, "read_secret").gave()?, CANARY)?;
    Ok("denied".to_owned())
}

fn links(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let expressions: Vec<String> = [
        "fs.read('file')",
        "fs.read('way/secret.txt')",
        "fs.read('chain/secret.txt')",
        "fs.list('way')",
        "fs.find('file', '')",
        "fs.write('way/docs/plain.txt', 'x')",
        "fs.append('way/docs/plain.txt', 'x')",
        "fs.mkdir('way/made')",
        "fs.copy('sub', 'way/copied')",
        "fs.move('way/made', 'way/moved')",
        "fs.remove('way/moved')",
    ]
    .map(str::to_owned)
    .to_vec();
    let (attacker, victim) = two(&house, &expressions);
    let to = if attack { &victim.root } else { &attacker.root };
    for (name, target) in [("file", to.join("secret.txt")), ("way", to.clone()), ("chain", "way".into())] {
        symlink(target, attacker.root.join(name)).unwrap();
    }
    symlink(to, attacker.root.join("sub/below")).unwrap();
    let before = tree(&victim.root);
    let seen = attacker.all(runtime, expressions.len());
    unchanged(&victim.root, &before)?;
    unseen(&attacker, &seen)?;
    if !attack {
        return links_within(&seen, &expressions);
    }
    stopped(&seen, &expressions)?;
    Ok("denied".to_owned())
}

/// A link that stays within the workspace is followed; a folder that is copied may hold none that leads above it.
fn links_within(seen: &[super::house::Seen], expressions: &[String]) -> Result<String, String> {
    let all: Vec<_> = seen.iter().zip(expressions).filter(|(_, text)| !text.contains("copy")).collect();
    let (seen, expressions): (Vec<_>, Vec<_>) = all.into_iter().map(|(a, b)| (a.clone(), b.clone())).unzip();
    through(&seen, &expressions)
}

/// The same is said of a folder that is there and of one that is not, by paths and by links; of its own it is not.
fn guessed(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let (there, absent) = if attack { (VICTIM, "nobody-4f1d") } else { ("docs", "nobody") };
    let of = |name: &str| {
        let absolute = house.at(name).to_str().unwrap().to_owned();
        let ways =
            if attack { vec![absolute, format!("../{name}"), format!("to-{name}")] } else { vec![name.to_owned()] };
        let each = |way: String| {
            ["read", "exists", "stat", "list", "mkdir", "remove"].map(|call| format!("fs.{call}('{way}/plain.txt')"))
        };
        ways.into_iter().flat_map(each).collect::<Vec<_>>()
    };
    let (those, others) = (of(there), of(absent));
    let attacker = house.attacker().file("docs/plain.txt", "own").each(&[those.clone(), others].concat()).open();
    let victim = house.victim().file("plain.txt", "plain").open();
    for name in [there, absent] {
        symlink(house.at(name), attacker.root.join(format!("to-{name}"))).unwrap();
    }
    let says = |from: usize, name: &str| -> Vec<String> {
        let one = |n: usize| {
            let seen = attacker.call(runtime, &format!("t{}", from + n));
            let says = seen.says.replace(name, "NAME");
            format!("{} {}", seen.word, says.split(" (.harness/tools/").next().unwrap())
        };
        (0..those.len()).map(one).collect()
    };
    let (those, others) = (says(0, there), says(those.len(), absent));
    same(victim.root.join("plain.txt").exists(), true)?;
    match (attack, those == others) {
        (true, true) | (false, false) => Ok("denied".to_owned()),
        _ => Err(format!("{those:#?} and {others:#?}")),
    }
}

/// The victim's project as a folder of the attacker's workspace.
fn nested(house: &House, expressions: &[String]) -> (Tenant, Tenant) {
    let inner = format!("{ATTACKER}/{VICTIM}");
    let victim = house.lay(&inner, WIDE).file("secret.pem", CANARY).file("plain.txt", "plain").file("empty/a", "a");
    let victim = victim.file("harness.lock", "").file(".harness/sessions/one.jsonl", CANARY);
    fs::remove_file(victim.root.join("harness.lock")).unwrap();
    let victim = victim.tool("read_plain", "return fs.read('plain.txt')").open();
    (house.attacker().each(expressions).open(), victim)
}

fn within(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let of = |way: &str| {
        if attack {
            vec![
                format!("fs.write('{way}/.harness/tools/evil.md', 'x')"),
                format!("fs.write('{way}/.harness/harness.md', 'x')"),
                format!("fs.append('{way}/.harness/tools/read_plain.md', 'x')"),
                format!("fs.write('{way}/harness.md', 'x')"),
                format!("fs.write('{way}/harness.yaml', 'x')"),
                format!("fs.write('{way}/harness.lock', 'x')"),
                format!("fs.write('{way}/.harness/audit/head', 'x')"),
                format!("fs.read('{way}/.harness/audit/head')"),
                format!("fs.read('{way}/.harness/audit/key')"),
                format!("fs.read('{way}/.harness/audit/000001.jsonl')"),
                format!("fs.read('{way}/.harness/sessions/one.jsonl')"),
                format!("fs.read('{way}/secret.pem')"),
                format!("fs.copy('{way}/.harness', 'taken{}')", way.len()),
                format!("fs.copy('{way}/secret.pem', 'taken{}.txt')", way.len()),
            ]
        } else {
            vec![format!("fs.read('{way}/plain.txt')"), format!("fs.write('{way}/plain.txt', 'plain')")]
        }
    };
    let ways = [VICTIM.to_owned(), format!("./{VICTIM}/../{VICTIM}"), format!("{VICTIM}/empty/..")];
    let expressions: Vec<String> = ways.iter().flat_map(|way| of(way)).collect();
    let (attacker, victim) = nested(&house, &expressions);
    same(victim.call(runtime, "read_plain").gave()?, "plain")?;
    let before = tree(&victim.root);
    let seen = attacker.all(runtime, expressions.len());
    unchanged(&victim.root, &before)?;
    if !attack {
        return through(&seen, &expressions);
    }
    stopped(&seen, &expressions)?;
    unseen(&attacker, &seen)?;
    victim.project.reload().map_err(|error| why(&error))?;
    same(victim.call(runtime, "read_plain").gave()?, "plain")?;
    same(victim.logged()?, vec!["read_plain".to_owned(); 2])?;
    Ok("denied".to_owned())
}

fn moved_within(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let name = if attack { VICTIM } else { "sub" };
    let expressions: Vec<String> = [
        format!("fs.copy('{name}', 'elsewhere')"),
        format!("fs.move('{name}', 'moved')"),
        format!("fs.move('{name}/.harness', 'taken')"),
        format!("fs.remove('{name}/.harness/tools/read_plain.md')"),
        format!("fs.move('fake', '{name}/.harness')"),
    ]
    .to_vec();
    let expressions = if attack { expressions } else { expressions[..2].to_vec() };
    let (attacker, victim) = nested(&house, &expressions);
    put(&attacker.root.join("fake/harness.md"), "---\n---\n");
    put(&attacker.root.join("sub/a"), "a");
    let before = tree(&victim.root);
    let seen = attacker.all(runtime, expressions.len());
    unchanged(&victim.root, &before)?;
    if !attack {
        return through(&seen, &expressions);
    }
    stopped(&seen, &expressions)?;
    unseen(&attacker, &seen)?;
    same(victim.call(runtime, "read_plain").gave()?, "plain")?;
    Ok("denied".to_owned())
}

fn around(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let way = if attack { ".." } else { "." };
    let expressions: Vec<String> = [
        format!("fs.read('{way}/secret.txt')"),
        format!("fs.list('{way}')"),
        format!("fs.write('{way}/made.txt', 'x')"),
        format!("fs.write('{way}/docs/plain.txt', 'x')"),
        format!("exec.run('cat', ['{way}/secret.txt'])['stdout'] or fail('nothing')"),
        // What it writes above its workspace is in the view alone.
        format!(
            "exec.run('sh', ['-c', 'echo x > {way}/by-command; cat {way}/secret.txt'])['stdout'] or fail('nothing')"
        ),
        format!("exec.run('ls', [], dir = '{way}')['stdout'] or fail('nothing')"),
    ]
    .to_vec();
    let victim = house.victim().open();
    let inner = house.lay(&format!("{VICTIM}/tenant"), WIDE).file("secret.txt", "own").file("docs/plain.txt", "own");
    let attacker = inner.each(&expressions).open();
    let outer = |path: &String| !path.starts_with("tenant");
    let kept = |tree: std::collections::BTreeMap<String, String>| -> Vec<_> {
        tree.into_iter().filter(|(path, _)| outer(path) && !path.starts_with(".harness/audit")).collect()
    };
    let before = kept(tree(&victim.root));
    let seen = attacker.all(runtime, expressions.len());
    same(kept(tree(&victim.root)), before)?;
    if !attack {
        return through(&seen, &expressions);
    }
    stopped(&seen, &expressions)?;
    if let Some(seen) = seen.iter().find(|seen| seen.shown.contains(CANARY)) {
        return Err(format!("ESCAPE: {}", seen.shown));
    }
    same(victim.call(runtime, "read_secret").gave()?, CANARY)?;
    Ok("denied".to_owned())
}

/// The same folder under two host policies: one closes what the other leaves open.
fn twice(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    put(&house.at("narrow.yaml"), "sandbox: { fs: { read: [docs] }, exec: { allow: [] } }\n");
    put(&house.at("open.yaml"), "{}\n");
    let expressions: Vec<String> =
        ["fs.read('secret.txt')", "fs.write('docs/made.txt', 'x')", "exec.run('cat', ['secret.txt'])['stdout']"]
            .map(str::to_owned)
            .to_vec();
    let within = |file: &str| {
        let machine = Machine::File(house.at(file));
        house.victim().each(&expressions).open_as(|options| harness_dispatch::Options { machine, ..options })
    };
    let (wide, narrow) = (within("open.yaml"), within(if attack { "narrow.yaml" } else { "open.yaml" }));
    // Both ways around, so that each is the first that has loaded something.
    let mut seen = Vec::new();
    for n in 0..expressions.len() {
        let tool = format!("t{n}");
        let first = if n % 2 == 0 { &wide } else { &narrow };
        first.call(runtime, &tool);
        wide.call(runtime, &tool).gave()?;
        seen.push(narrow.call(runtime, &tool));
        wide.call(runtime, &tool).gave()?;
    }
    if !attack {
        return through(&seen, &expressions);
    }
    stopped(&seen, &expressions)?;
    if let Some(seen) = seen.iter().find(|seen| seen.shown.contains(CANARY)) {
        return Err(format!("ESCAPE: {}", seen.shown));
    }
    Ok("denied".to_owned())
}

fn elsewhere(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let expressions: Vec<String> = if attack {
        [
            "fs.write('.harness/tools/evil.md', 'x')",
            "fs.write('.harness/hooks/evil.md', 'x')",
            "fs.write('harness.md', 'x')",
            "fs.write('harness.lock', 'x')",
            "fs.remove('.harness/tools/read_secret.md')",
            "fs.read('.harness/audit/head')",
            "fs.read('.harness/audit/000001.jsonl')",
            "exec.run('sh', ['-c', 'echo x > .harness/tools/evil.md'])['exit_code'] and fail('no')",
            "exec.run('sh', ['-c', 'echo x > harness.md'])['exit_code'] and fail('no')",
            "exec.run('cat', ['.harness/audit/head'])['exit_code'] and fail('no')",
        ]
        .map(str::to_owned)
        .to_vec()
    } else {
        ["fs.write('made.txt', 'x')", "exec.run('sh', ['-c', 'echo x > by-command'])['exit_code'] and fail('no')"]
            .map(str::to_owned)
            .to_vec()
    };
    let victim = house.victim().open();
    same(victim.call(runtime, "read_secret").gave()?, CANARY)?;
    let workspace = Some(victim.root.clone());
    let attacker = house.attacker().each(&expressions);
    let attacker = attacker.open_as(|options| harness_dispatch::Options { workspace, ..options });
    let before = tree(&victim.root);
    let seen = attacker.all(runtime, expressions.len());
    if !attack {
        return through(&seen, &expressions);
    }
    stopped(&seen, &expressions)?;
    unchanged(&victim.root, &before)?;
    victim.project.reload().map_err(|error| why(&error))?;
    same(victim.project.loaded().registry().tools().len(), 1)?;
    same(victim.call(runtime, "read_secret").gave()?, CANARY)?;
    same(victim.logged()?.len(), 2)?;
    Ok("denied".to_owned())
}

fn swapped(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let attacker = house.attacker().file("dir/secret.txt", "own").file("dir/docs/plain.txt", "own");
    let attacker = attacker.tool("it", "fs.append('dir/docs/plain.txt', 'x')\nreturn fs.read('dir/secret.txt')");
    let (attacker, victim) = (attacker.open(), house.victim().open());
    symlink(&victim.root, attacker.root.join("bait")).unwrap();
    let before = tree(&victim.root);
    let swaps = (attacker.root.join("dir"), attacker.root.join("bait"));
    let (mut passed, mut refused, mut leaked) = (0, 0, None);
    tried(attack, swaps, if attack { 300 } else { 8 }, |_| {
        let seen = attacker.call_with(runtime, "it", json!({}));
        match seen.word {
            "completed" => passed += 1,
            _ => refused += 1,
        }
        if seen.shown.contains(CANARY) {
            leaked = Some(seen.shown);
        }
        leaked.is_some()
    });
    if let Some(shown) = leaked {
        return Err(format!("ESCAPE: {shown}"));
    }
    unchanged(&victim.root, &before)?;
    if passed == 0 || (refused == 0) == attack {
        return Err(format!("{passed} came through and {refused} were stopped"));
    }
    Ok("stopped".to_owned())
}

fn granted(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let victim = house.victim().open();
    let absolute = victim.root.to_str().unwrap().to_owned();
    let paths = if attack { vec![format!("../{VICTIM}"), absolute] } else { vec!["docs".to_owned()] };
    for path in paths {
        let policy =
            format!("sandbox: {{ fs: {{ read: [\"{path}\", \"{path}/**\", own.txt], write: [\"{path}/**\"] }} }}");
        let name = format!("{ATTACKER}-{}", path.len());
        let laid = house.lay(&name, &policy).file("own.txt", "own").file("docs/secret.txt", "own");
        let laid = laid.tool("own", "return fs.read('own.txt')");
        let laid = laid.tool("it", &format!("return fs.read('{path}/secret.txt')"));
        let options = harness_dispatch::Options {
            machine: Machine::None,
            system: System::default().with_environment(),
            ..Default::default()
        };
        let opened = house.host.open(&laid.root, options);
        match (attack, opened) {
            // A policy that says something impossible stops its project.
            (true, Err(harness_dispatch::OpenError::Artifacts(_))) => {}
            (true, Ok(_)) => {
                let attacker = laid.open();
                let seen = attacker.call(runtime, "it");
                stopped(std::slice::from_ref(&seen), &[path])?;
                unseen(&attacker, &[seen])?;
            }
            (false, Ok(_)) => same(laid.open().call(runtime, "it").gave()?, "own")?,
            (_, Err(error)) => return Err(why(&error)),
        }
    }
    same(victim.call(runtime, "read_secret").gave()?, CANARY)?;
    Ok("denied".to_owned())
}
