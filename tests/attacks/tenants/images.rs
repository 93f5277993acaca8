//! Images of scripts, which projects share by their content, and what must not come along with them.

use std::fmt::Write as _;

use harness_dispatch::{HostOptions, Options};
use serde_json::json;
use tokio::runtime::Runtime;

use super::house::{ATTACKER, House, Laid, Seen, Tenant, VICTIM, WIDE, names_nothing, same, unseen, wait_until};
use crate::corpus::Coded;
use crate::process::CANARY;

pub(super) const CASES: &[Coded] = &[
    Coded {
        id: "tenants-201",
        tried: "has the script of the other's tool, for what that one is granted",
        run: |runtime, _| grants(runtime, true),
        control: |runtime, _| grants(runtime, false),
    },
    Coded {
        id: "tenants-202",
        tried: "has the script of the other's tool, for that one's fuel, time, memory and output",
        run: |runtime, _| limits(runtime, true),
        control: |runtime, _| limits(runtime, false),
    },
    Coded {
        id: "tenants-203",
        tried: "calls a script that takes more fuel to load than it has, once the other has loaded it",
        run: |runtime, _| costly(runtime, true, HEAVY, "fuel: 120000000", "over the limit `fuel`"),
        control: |runtime, _| costly(runtime, false, HEAVY, "fuel: 120000000", ""),
    },
    Coded {
        id: "tenants-204",
        tried: "calls a script that takes more memory to load than it has, once the other has loaded it",
        run: |runtime, _| costly(runtime, true, LARGE, "memory_mb: 16", "over the limit `memory`"),
        control: |runtime, _| costly(runtime, false, LARGE, "memory_mb: 16", ""),
    },
    Coded {
        id: "tenants-205",
        tried: "has the script of the other's tool fail, to be shown that one's files",
        run: |runtime, _| failures(runtime, true),
        control: |runtime, _| failures(runtime, false),
    },
    Coded {
        id: "tenants-206",
        tried: "writes and starts things by a script of the other's, to have that done in the other's folder",
        run: |runtime, _| places(runtime, true),
        control: |runtime, _| places(runtime, false),
    },
    Coded {
        id: "tenants-207",
        tried: "has its lines counted, to learn which of a script's lines the other reaches and to slow that down",
        run: |runtime, _| coverage(runtime, true),
        control: |runtime, _| coverage(runtime, false),
    },
    Coded {
        id: "tenants-208",
        tried: "has the other's guard with a `when` that never holds, to have that one's never hold either",
        run: |runtime, _| guards(runtime, true),
        control: |runtime, _| guards(runtime, false),
    },
    Coded {
        id: "tenants-209",
        tried: "adds as a hook what the other has added as a tool of the same name, to write as only tools may",
        run: |runtime, _| roles(runtime, true),
        control: |runtime, _| roles(runtime, false),
    },
    Coded {
        id: "tenants-210",
        tried: "learns from what loading takes whether the other has the same script",
        run: |runtime, _| guessed(runtime, true),
        control: |runtime, _| guessed(runtime, false),
    },
    Coded {
        id: "tenants-211",
        tried: "has the other's image given up while that one's call runs",
        run: |runtime, _| given_up(runtime, true),
        control: |runtime, _| given_up(runtime, false),
    },
    Coded {
        id: "tenants-212",
        tried: "calls hundreds of scripts, to push out what the other calls again and again",
        run: |runtime, _| pushed_out(runtime, true),
        control: |runtime, _| pushed_out(runtime, false),
    },
    Coded {
        id: "tenants-213",
        tried: "loads scripts without end, so that none of the other's is loaded",
        run: |runtime, _| loads(runtime, true),
        control: |runtime, _| loads(runtime, false),
    },
    Coded {
        id: "tenants-214",
        tried: "gives up the load of a script that the other waits for too",
        run: |runtime, _| load_given_up(runtime, true),
        control: |runtime, _| load_given_up(runtime, false),
    },
];

/// The same tools in two projects with policies of their own.
fn pair(house: &House, policies: [&str; 2], lay: impl Fn(Laid<'_>) -> Laid<'_>) -> (Tenant, Tenant) {
    let lay = |name, policy, secret| lay(house.lay(name, policy).file("secret.txt", secret)).open();
    (lay(ATTACKER, policies[0], "own"), lay(VICTIM, policies[1], CANARY))
}

/// Whether both projects had one image, as the attack needs.
fn one_image(house: &House) -> Result<(), String> {
    same(house.host.images().0, 1)
}

fn grants(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let grants = [
        ("return fs.read('secret.txt')", "sandbox: { fs: { read: [docs] } }"),
        ("return fs.write('out.txt', 'x')", "sandbox: { fs: { read: [docs] } }"),
        ("return exec.run('echo', ['x'])['stdout']", "sandbox: {}"),
        ("return cache.get('k', 'none')", "sandbox: { services: [] }"),
        ("return random(1, 2)", "sandbox: { services: [cache] }"),
        ("return env('PATH')", "sandbox: {}"),
        ("return len(meta.list_tools())", "sandbox: {}"),
    ];
    let wide = "meta: { enabled: true }\nsandbox: { fs: { read: [.], write: [.] }, exec: { allow: [sh, cat, ls, echo] }, env: [PATH] }";
    for (body, narrow) in grants {
        for victim_first in [true, false] {
            let house = House::new();
            let policy = if attack { narrow } else { wide };
            let (attacker, victim) = pair(&house, [policy, wide], |laid| laid.tool("it", body));
            if victim_first {
                victim.call(runtime, "it").gave()?;
            }
            let seen = attacker.call(runtime, "it");
            unseen(&attacker, std::slice::from_ref(&seen))?;
            match (attack, seen.word) {
                (true, "denied") => {}
                (false, "completed") => {}
                _ => return Err(format!("{body}: {}: {}", seen.word, seen.says)),
            }
            victim.call(runtime, "it").gave().map_err(|why| format!("{body}: {why}"))?;
            one_image(&house)?;
        }
    }
    Ok("denied".to_owned())
}

/// How often a call is made at most that ends while its script is loaded.
const LOADS: usize = 100;

fn limits(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let limits = [
        ("for n in range(200000):\n    pass\nreturn 1", "fuel: 1000000", "fuel"),
        ("sleep(40)\nreturn 1", "timeout_ms: 5", "timeout_ms"),
        ("return len('x' * 18000000)", "memory_mb: 16", "memory"),
        ("return 'x' * 5000", "result_bytes: 256", "output"),
        ("return [cache.get('k') for n in range(50)][0]", "host_calls: 10", "host calls"),
    ];
    for (body, limit, name) in limits {
        let house = House::new();
        let policy = if attack { format!("sandbox: {{ limits: {{ {limit} }} }}") } else { WIDE.to_owned() };
        let (attacker, victim) = pair(&house, [&policy, WIDE], |laid| laid.tool("it", body));
        victim.call(runtime, "it").gave().map_err(|why| format!("{name}: {why}"))?;
        let mut seen = attacker.call(runtime, "it");
        // Whether its script is there in time is a matter of how busy the machine is.
        for _ in 0..LOADS {
            if !seen.says.contains("was ended while its script was loaded") {
                break;
            }
            seen = attacker.call(runtime, "it");
        }
        let wanted = if attack { "limited" } else { "completed" };
        let named = !attack || seen.says.contains(&format!("`{name}`"));
        if seen.word != wanted || !named {
            return Err(format!("{name}: {}: {}", seen.word, seen.says));
        }
        victim.call(runtime, "it").gave().map_err(|why| format!("{name}: {why}"))?;
        // With less memory than another had for it, a script is loaded anew.
        same(house.host.images().0, if attack && name == "memory" { 2 } else { 1 })?;
    }
    Ok("limited".to_owned())
}

/// Scripts whose top level takes much.
const HEAVY: &str = "def work():\n    for n in range(12000000):\n        pass\n\nwork()\n";
const LARGE: &str = "KEPT = 'x' * 7000000\n";

fn costly(runtime: &Runtime, attack: bool, top: &str, limit: &str, says: &str) -> Result<String, String> {
    let house = House::new();
    let script = format!("{top}\ndef run(args):\n    return 1\n").replace('\n', "\n  ");
    let text = format!("---\nscript: |\n  {}\n---\n# it\n", script.trim_end());
    let narrow = format!("sandbox: {{ limits: {{ {limit} }} }}");
    let policy = if attack { narrow.as_str() } else { "sandbox: {}" };
    let (attacker, victim) = pair(&house, [policy, "sandbox: {}"], |laid| laid.file(".harness/tools/it.md", &text));
    same(victim.call(runtime, "it").gave()?, "1")?;
    let seen = attacker.call(runtime, "it");
    if !attack {
        return same(seen.gave()?, "1").map(|()| "loaded".to_owned());
    }
    if seen.word != "rejected" || !seen.says.contains(says) {
        return Err(format!("{}: {}", seen.word, seen.says));
    }
    names_nothing(&[seen.shown])?;
    same(victim.call(runtime, "it").gave()?, "1")?;
    Ok("over".to_owned())
}

fn failures(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let bodies = [
        "fail('no')",
        "return {}['none']",
        "return fs.read('none.txt')",
        "return fs.read('/etc/passwd')",
        "return undefined",
        "return (",
        "return [f for f in [run]][0]",
        "def f(n):\n    return f(n + 1)\nreturn f(0)",
    ];
    for body in bodies {
        let house = House::new();
        let victims = if attack { "victims_tool" } else { "it" };
        let victim = house.lay(VICTIM, "# the victim's policy\n\nsandbox: {}").tool(victims, body).open();
        let attacker = house.attacker().tool("it", body).open();
        let before = victim.call(runtime, victims);
        let seen = attacker.call(runtime, "it");
        if seen.word == "completed" || before.word != seen.word {
            return Err(format!("{body}: {}: {}", seen.word, seen.says));
        }
        names_nothing(&[seen.shown.clone(), seen.says.clone()])?;
        let named = [&seen, &before].map(|seen| seen.shown.contains("tools/it.md"));
        same((body, named), (body, [true, !attack]))?;
        if seen.shown.contains("victims_tool") || before.shown.contains("tools/it.md") && attack {
            return Err(format!("ESCAPE: {}", seen.shown));
        }
    }
    Ok("its own".to_owned())
}

fn places(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let body = "out = exec.run('sh', ['-c', 'pwd; echo x > by-command'])['stdout']\nreturn fs.write('made.txt', args['x']) + ' ' + out";
    let house = House::new();
    let (attacker, victim) = pair(&house, [WIDE, WIDE], |laid| laid.tool("it", body));
    let calls = if attack { [&victim, &attacker, &victim, &attacker] } else { [&victim; 4] };
    for tenant in calls {
        for made in ["made.txt", "by-command"] {
            let _ = std::fs::remove_file(tenant.root.join(made));
        }
        let root = tenant.root.to_str().unwrap();
        let seen = tenant.call_with(runtime, "it", json!({ "x": root }));
        same(seen.gave()?, &format!("written: {root}/made.txt {root}\n"))?;
        same(std::fs::read_to_string(tenant.root.join("made.txt")).unwrap().as_str(), root)?;
        same(tenant.root.join("by-command").exists(), true)?;
    }
    one_image(&house)?;
    same(attacker.root.join("made.txt").exists(), attack)?;
    Ok("its own".to_owned())
}

fn coverage(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let body = "if args['secret']:\n    return 1\nreturn 2";
    let lonely = House::new();
    let alone = lonely.victim().tool("it", body).open();
    let house = House::new();
    let lay = |laid: Laid<'_>, coverage| laid.tool("it", body).open_as(|options| Options { coverage, ..options });
    let victim = lay(house.victim(), !attack);
    let attacker = lay(house.attacker(), true);
    let call = |tenant: &Tenant, secret| tenant.call_with(runtime, "it", json!({ "secret": secret }));
    call(&alone, true).gave()?;
    let covered = |seen: &Seen| format!("{:?}", seen.report.as_ref().unwrap().coverage);
    let first = covered(&call(&attacker, false));
    for _ in 0..3 {
        let seen = call(&victim, true);
        same(seen.gave()?, "1")?;
        same(covered(&seen) == "None", attack)?;
        // Not one unit more than in a host of its own.
        same(seen.fuel() == call(&alone, true).fuel(), attack)?;
        same(covered(&call(&attacker, false)), first.clone())?;
    }
    same(first.starts_with("Some"), true)?;
    Ok("apart".to_owned())
}

fn guards(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let guard = |laid: Laid<'_>, when: &str| {
        laid.tool("it", "return 'ran'")
            .hook("guard", &format!("event: tool.pre\nwhen: {when}"), "return block('no')")
            .open()
    };
    // One that the host decides itself, and one that runs.
    for (holds, never) in [
        ("payload['name'] == 'it'", "payload['name'] == 'other'"),
        ("len(payload['name']) == 2", "len(payload['name']) == 3"),
    ] {
        let attacker = guard(house.attacker(), never);
        let victim = guard(house.victim(), if attack { holds } else { never });
        for _ in 0..3 {
            same(attacker.call(runtime, "it").ended(), ("completed", "ran"))?;
            let seen = victim.call(runtime, "it");
            if attack {
                same(seen.ended(), ("denied", "tool blocked: blocked by hook \"guard\": no"))?;
            } else {
                same(seen.ended(), ("completed", "ran"))?;
            }
        }
    }
    Ok("blocked".to_owned())
}

/// What is added has no file but its name, which a tool and a hook may share.
const DOUBLE: &str = "def write():\\n    return fs.write(\\\"made.txt\\\", \\\"x\\\")\\n\\ndef run(args):\\n    return write()\\n\\ndef handle(event, payload):\\n    write()\\n    return allow()\\n";

fn roles(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let tool = format!("meta.register_tool('double', 'x', script = \"{DOUBLE}\")\nreturn meta.call_tool('double')[:8]");
    let hook = format!("meta.register_hook('double', 'custom.x', \"{DOUBLE}\")\nreturn events.emit('custom.x', {{}})");
    let victim = house.victim().tool("add", &tool).open();
    let attacker = house.attacker().tool("add", if attack { &hook } else { &tool }).open();
    same(victim.call(runtime, "add").gave()?, "written:")?;
    let seen = attacker.call(runtime, "add");
    same(victim.anew().call(runtime, "add").gave()?, "written:")?;
    let made = attacker.root.join("made.txt").exists();
    match (attack, seen.word, made) {
        (true, "denied" | "failed", false) | (false, "completed", true) => Ok("denied".to_owned()),
        _ => Err(format!("{}: {} ({made})", seen.word, seen.says)),
    }
}

/// The fuel of a call that adds a tool, which is what loading takes, and its peak of memory.
fn guessed(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let script = |times: u32| format!("X = [n for n in range({times})]\\n\\ndef run(args):\\n    return len(X)\\n");
    let add =
        |times| format!("meta.register_tool('same', 'x', script = '{}')\nreturn meta.call_tool('same')", script(times));
    let took = |theirs: Option<u32>| -> Result<(u64, u64, u64), String> {
        let house = House::new();
        if let Some(times) = theirs {
            house.victim().tool("add", &add(times)).open().call(runtime, "add").gave()?;
        }
        let victim = theirs.map(|times| house.victim().tool("add", &add(times)).open());
        victim.iter().try_for_each(|victim| victim.call(runtime, "add").gave().map(drop))?;
        let times = if attack || theirs.is_none() { 20_000 } else { 20_001 };
        let seen = house.attacker().tool("add", &add(times)).open().call(runtime, "add");
        seen.gave()?;
        let report = seen.report.unwrap();
        Ok((report.usage.fuel, report.total().fuel, report.usage.peak_memory))
    };
    let (alone, beside) = (took(None)?, took(Some(20_000))?);
    // That of another script is another.
    same(alone == beside, attack)?;
    Ok("the same".to_owned())
}

/// Scripts that each leave some of their memory.
fn many(laid: Laid<'_>, count: usize) -> Laid<'_> {
    (0..count).fold(laid, |laid, n| {
        let name = format!(".harness/tools/m{n:03}.md");
        laid.file(
            &name,
            &format!("---\nscript: |\n  KEPT = '{n}' * 30000\n  def run(args):\n      return {n}\n---\n# m\n"),
        )
    })
}

fn calls_many(runtime: &Runtime, attacker: &Tenant, count: usize) -> Result<(), String> {
    (0..count).try_for_each(|n| same(attacker.call(runtime, &format!("m{n:03}")).gave()?, &n.to_string()))
}

/// With room for the images of few scripts.
fn tight() -> House {
    House::with(HostOptions::default().instances(4).image_bytes(12 << 20))
}

fn given_up(runtime: &Runtime, attack: bool) -> Result<String, String> {
    const COUNT: usize = 40;
    let house = tight();
    let waits = "cache.set('in', 1)\nfor n in range(20000):\n    if cache.has('go'):\n        return fs.read('secret.txt')\n    sleep(2)\nfail('nobody said so')";
    let victim = house.victim().fronted("waits", "timeout_ms: 60000", waits).open();
    let attacker = many(house.attacker(), COUNT).open();
    let under_way = victim.begin(runtime, "waits");
    wait_until("the call began", || victim.run.session().cache.has("in"))?;
    let ready = house.host.images().0;
    if attack {
        calls_many(runtime, &attacker, COUNT)?;
        let kept = house.host.images().0;
        if kept > COUNT / 2 {
            return Err(format!("{kept} images are kept: nothing was given up"));
        }
    }
    victim.run.session().cache.set("go".to_owned(), "1".to_owned()).unwrap();
    same(runtime.block_on(under_way).unwrap().ended(), ("completed", CANARY))?;
    // And once more, with an image that is made ready again.
    same(victim.call(runtime, "waits").ended(), ("completed", CANARY))?;
    same(ready, 1)?;
    Ok("completed".to_owned())
}

fn pushed_out(runtime: &Runtime, attack: bool) -> Result<String, String> {
    const COUNT: usize = 250;
    let house = tight();
    let victim = house.victim().open();
    let attacker = many(house.attacker(), if attack { COUNT } else { 1 }).open();
    let first = victim.call(runtime, "read_secret");
    let usage = |seen: &Seen| {
        let usage = &seen.report.as_ref().unwrap().usage;
        (usage.fuel, usage.peak_memory)
    };
    for n in 0..if attack { COUNT } else { 20 } {
        same(attacker.call(runtime, &format!("m{:03}", if attack { n } else { 0 })).word, "completed")?;
        if n % 10 == 0 {
            let seen = victim.call(runtime, "read_secret");
            same(seen.gave()?, CANARY)?;
            same(usage(&seen), usage(&first))?;
        }
    }
    let (kept, bytes) = house.host.images();
    if attack && kept >= COUNT || !attack && kept != 2 || bytes > 12 << 20 {
        return Err(format!("{kept} images of {bytes} bytes are kept"));
    }
    Ok("completed".to_owned())
}

fn loads(runtime: &Runtime, attack: bool) -> Result<String, String> {
    const CALLS: usize = 24;
    let house = House::with(HostOptions::default().instances(32));
    // Another text each time, so that each is loaded.
    let body = "n = int(args['n'])\nfor again in range(100000):\n    text = 'X = [n for n in range(%d)]\\n\\ndef run(args):\\n    return 1\\n' % (200000 + 1000 * again + n)\n    meta.register_tool('again', 'x', script = text, replace = True)\n    metrics.incr('loads')\nreturn 1";
    let attacker = house.attacker().fronted("loads", "timeout_ms: 600000", body).open();
    let loading: Vec<_> =
        (0..if attack { CALLS } else { 0 }).map(|n| attacker.begin_with(runtime, "loads", json!({ "n": n }))).collect();
    if attack {
        let loads =
            || attacker.run.session().metrics.snapshot().iter().any(|(name, count)| name == "loads" && *count >= 30.0);
        wait_until("the attacker loads", loads)?;
    }
    let mut policy = String::new();
    let _ = write!(policy, "sandbox: {{ limits: {{ timeout_ms: 60000 }} }}");
    let laid = house.lay(VICTIM, &policy).file("secret.txt", CANARY);
    let victim =
        (0..8).fold(laid, |laid, n| laid.tool(&format!("new{n}"), &format!("return '{n}' + fs.read('secret.txt')")));
    let victim = victim.open();
    for n in 0..8 {
        same(victim.call(runtime, &format!("new{n}")).gave()?, &format!("{n}{CANARY}"))?;
    }
    let over = loading.iter().filter(|call| call.is_finished()).count();
    loading.iter().for_each(tokio::task::JoinHandle::abort);
    loading.into_iter().for_each(|call| drop(runtime.block_on(call)));
    same(over, 0)?;
    Ok("loaded".to_owned())
}

/// One load is shared by all calls of a project that wait for it; that of another project is another.
fn load_given_up(runtime: &Runtime, attack: bool) -> Result<String, String> {
    for n in 0..10 {
        let house = House::new();
        let top = format!("def work():\n    for n in range({}):\n        pass\n\nwork()\n", 400_000 + n);
        let script = format!("{top}\ndef run(args):\n    return fs.read('secret.txt')\n").replace('\n', "\n  ");
        let text = format!("---\nscript: |\n  {}\n---\n# it\n", script.trim_end());
        let lay = |laid: Laid<'_>| laid.file("secret.txt", CANARY).file(".harness/tools/it.md", &text).open();
        let (victim, attacker) = (lay(house.victim()), lay(house.attacker()));
        let theirs: Vec<_> = (0..if attack { 4 } else { 0 }).map(|_| attacker.begin(runtime, "it")).collect();
        let own = victim.begin(runtime, "it");
        for call in &theirs {
            call.abort();
        }
        theirs.into_iter().for_each(|call| drop(runtime.block_on(call)));
        drop(attacker);
        same(runtime.block_on(own).unwrap().ended(), ("completed", CANARY))?;
    }
    Ok("loaded".to_owned())
}
