//! The audit logs of two projects, which one writer writes.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use harness_audit::FOLDER;
use harness_dispatch::Run;
use harness_sandbox::scheduling::quota::Quota;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

use super::house::{
    ATTACKER, House, Seen, Tenant, VICTIM, entries, names_nothing, same, tree, unseen, wait_until, why,
};
use crate::corpus::Coded;
use crate::process::CANARY;

pub(super) const CASES: &[Coded] = &[
    Coded {
        id: "tenants-301",
        tried: "has the lock of its audit log held, to stop the other's calls too",
        run: |runtime, _| locked(runtime, true),
        control: |runtime, _| locked(runtime, false),
    },
    Coded {
        id: "tenants-302",
        tried: "removes, replaces and empties its audit log while calls are made",
        run: |runtime, _| replaced(runtime, true),
        control: |runtime, _| replaced(runtime, false),
    },
    Coded {
        id: "tenants-303",
        tried: "has links to the other's audit log in the place of its own",
        run: |runtime, _| linked(runtime, true),
        control: |runtime, _| linked(runtime, false),
    },
    Coded {
        id: "tenants-304",
        tried: "floods its log with long entries of denied, failing and unknown calls, all at once",
        run: |runtime, _| flooded(runtime, true),
        control: |runtime, _| flooded(runtime, false),
    },
    Coded {
        id: "tenants-305",
        tried: "calls what is named like lines of the other's log",
        run: |runtime, _| forged(runtime, true),
        control: |runtime, _| forged(runtime, false),
    },
    Coded {
        id: "tenants-306",
        tried: "writes to the log of a folder that is open twice, from both at once",
        run: |runtime, _| twice(runtime, true),
        control: |runtime, _| twice(runtime, false),
    },
    Coded {
        id: "tenants-307",
        tried: "has no log itself, so that the other's calls are not in one either",
        run: |runtime, _| off(runtime, true),
        control: |runtime, _| off(runtime, false),
    },
    Coded {
        id: "tenants-308",
        tried: "compares the digests of its arguments with those in the other's log, to guess that one's arguments",
        run: |runtime, _| digests(runtime, true),
        control: |runtime, _| digests(runtime, false),
    },
    Coded {
        id: "tenants-309",
        tried: "gives up hundreds of calls, so that the writer is busy with what nobody waits for",
        run: |runtime, _| abandoned(runtime, true),
        control: |runtime, _| abandoned(runtime, false),
    },
];

/// The victim reads so often, and its log has so many lines more.
fn goes_on(runtime: &Runtime, victim: &Tenant, calls: usize) -> Result<(), String> {
    (0..calls).try_for_each(|_| same(victim.call(runtime, "read_secret").gave()?, CANARY))
}

/// The victim's log is whole, and has these calls of its own and nothing else.
fn whole(victim: &Tenant, calls: usize) -> Result<(), String> {
    same(victim.logged()?, vec!["read_secret".to_owned(); calls])?;
    let entries = victim.entries()?;
    let text = Json::Array(entries.clone()).to_string();
    if text.contains(ATTACKER) || text.contains("attack") {
        return Err(format!("ESCAPE: {text}"));
    }
    same(entries.iter().all(|entry| entry["outcome"] == "completed"), true)
}

const QUICK: &str = "sandbox: { limits: { timeout_ms: 200 } }";

fn locked(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let attacker = house.lay(ATTACKER, QUICK).tool("it", "return 1").open();
    let victim = house.victim().open();
    same(attacker.call(runtime, "it").gave()?, "1")?;
    let lock = File::open(attacker.root.join(FOLDER).join("head")).unwrap();
    if attack {
        flock(&lock, FlockOperation::LockExclusive).unwrap();
    }
    let waiting: Vec<_> = (0..20).map(|_| attacker.begin(runtime, "it")).collect();
    goes_on(runtime, &victim, 30)?;
    let seen: Vec<Seen> = waiting.into_iter().map(|call| runtime.block_on(call).unwrap()).collect();
    let made = seen.iter().filter(|seen| seen.word == "completed").count();
    same(made, if attack { 0 } else { 20 })?;
    names_nothing(&seen.iter().map(|seen| seen.shown.clone()).collect::<Vec<_>>())?;
    if attack && !seen.iter().all(|seen| seen.says.contains("another process holds the lock of `.harness/audit/head`"))
    {
        return Err(format!("{seen:?}"));
    }
    drop(lock);
    whole(&victim, 30)?;
    Ok("continued".to_owned())
}

fn replaced(runtime: &Runtime, attack: bool) -> Result<String, String> {
    type Replace = fn(&std::path::Path);
    let ways: [(&str, Replace); 5] = [
        ("no head", |log| fs::remove_file(log.join("head")).unwrap()),
        ("no lines", |log| fs::write(log.join("000001.jsonl"), "").unwrap()),
        ("no log", |log| fs::remove_dir_all(log).unwrap()),
        ("a file", |log| {
            fs::remove_dir_all(log).unwrap();
            fs::write(log, "x").unwrap();
        }),
        ("another key", |log| fs::write(log.join("key"), "x").unwrap()),
    ];
    for (way, replace) in ways {
        let house = House::new();
        let attacker = house.attacker().tool("it", "return 1").open();
        let victim = house.victim().open();
        // More than one line, which a `head` that is missing could be made anew from.
        for _ in 0..3 {
            same(attacker.call(runtime, "it").gave()?, "1")?;
        }
        goes_on(runtime, &victim, 2)?;
        if attack {
            replace(&attacker.root.join(FOLDER));
        }
        let seen: Vec<Seen> = (0..4)
            .map(|_| {
                let seen = attacker.call(runtime, "it");
                goes_on(runtime, &victim, 1).map(|()| seen)
            })
            .collect::<Result<_, _>>()?;
        names_nothing(&seen.iter().map(|seen| seen.shown.clone()).collect::<Vec<_>>())?;
        // A log that was taken away as a whole is begun anew, and a key is read once.
        let stops = attack && !["no log", "another key"].contains(&way);
        let made = seen.iter().filter(|seen| seen.word == "completed").count();
        if (made == 0) != stops {
            return Err(format!("{way}: {made} calls were made: {}", seen[0].says));
        }
        whole(&victim, 6).map_err(|why| format!("{way}: {why}"))?;
    }
    Ok("continued".to_owned())
}

fn linked(runtime: &Runtime, attack: bool) -> Result<String, String> {
    for part in ["", "head", "000001.jsonl", "key"] {
        let house = House::new();
        let victim = house.victim().open();
        goes_on(runtime, &victim, 1)?;
        let attacker = house.attacker().tool("it", "return 1").open();
        let (own, theirs) = (attacker.root.join(FOLDER).join(part), victim.root.join(FOLDER).join(part));
        if attack {
            fs::create_dir_all(own.parent().unwrap()).unwrap();
            let own = own.to_str().unwrap().trim_end_matches('/');
            symlink(theirs, own).unwrap();
        }
        let before = tree(&victim.root.join(FOLDER));
        let seen = attacker.call(runtime, "it");
        same(tree(&victim.root.join(FOLDER)), before)?;
        if (seen.word == "completed") == attack {
            return Err(format!("{part:?}: {}: {}", seen.word, seen.says));
        }
        names_nothing(&[seen.shown])?;
        goes_on(runtime, &victim, 1)?;
        whole(&victim, 2)?;
    }
    Ok("refused".to_owned())
}

fn flooded(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let denied = "return fs.read(args['x'])";
    let attacker = house.attacker().tool("fails", "fail(args['x'])").tool("denied", denied).open();
    let victim = house.victim().open();
    let long = format!("/attack/{}", "y/".repeat(300));
    let calls = if attack { 150 } else { 1 };
    let flood: Vec<_> = (0..calls)
        .flat_map(|_| ["fails", "denied", &long].map(|tool| attacker.begin_with(runtime, tool, json!({ "x": long }))))
        .collect();
    goes_on(runtime, &victim, 40)?;
    let seen: Vec<Seen> = flood.into_iter().map(|call| runtime.block_on(call).unwrap()).collect();
    unseen(&attacker, &seen)?;
    whole(&victim, 40)?;
    // The flood is there too, each of it.
    attacker.project.audited()?;
    let own = attacker.entries()?;
    same(own.len(), 3 * calls)?;
    same(own.iter().filter(|entry| entry["outcome"] == "denied").count(), calls)?;
    Ok(format!("40 beside {}", 3 * calls))
}

fn forged(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let (attacker, victim) = (house.attacker().tool("it", "return 1").open(), house.victim().open());
    goes_on(runtime, &victim, 2)?;
    let line = fs::read_to_string(victim.root.join(FOLDER).join("000001.jsonl")).unwrap();
    let last = line.lines().last().unwrap().replace(VICTIM, "").replace("read_secret", "attack");
    let names = if attack {
        vec![format!("\n{last}\n"), format!("it\",\"seq\":3,\"hash\":\"x\"}}\n{last}"), format!("\r\n\0{last}"), last]
    } else {
        vec!["it".to_owned(); 4]
    };
    let seen: Vec<Seen> = names.iter().map(|name| attacker.call(runtime, name)).collect();
    same(seen.iter().filter(|seen| seen.word == "completed").count(), if attack { 0 } else { 4 })?;
    goes_on(runtime, &victim, 2)?;
    whole(&victim, 4)?;
    attacker.project.audited()?;
    let own = attacker.entries()?;
    same(own.len(), 4)?;
    same(own.iter().filter(|entry| entry["outcome"] == if attack { "rejected" } else { "completed" }).count(), 4)?;
    Ok("one line each".to_owned())
}

fn twice(runtime: &Runtime, attack: bool) -> Result<String, String> {
    const CALLS: usize = 60;
    let house = House::new();
    let one = house.victim().open();
    let other = if attack { house.victim().open() } else { one.anew() };
    let tenants = [&one, &other];
    let calls: Vec<_> = (0..CALLS).map(|n| tenants[n % 2].begin(runtime, "read_secret")).collect();
    for call in calls {
        same(runtime.block_on(call).unwrap().gave()?, CANARY)?;
    }
    other.project.audited()?;
    whole(&one, CALLS)?;
    // That it is one chain is looked at: without one of its lines it is none.
    let path = one.root.join(FOLDER).join("000001.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let without: String =
        text.lines().enumerate().filter(|(n, _)| *n != 7).map(|(_, line)| format!("{line}\n")).collect();
    fs::write(&path, without).unwrap();
    match entries(&one.root) {
        Err(_) => Ok("one chain".to_owned()),
        Ok(entries) => Err(format!("{} lines after one was cut out", entries.len())),
    }
}

fn off(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let attacker = house.lay(ATTACKER, "sandbox: { audit: false }").tool("it", "return 1").open();
    let victim = if attack {
        house.victim().open()
    } else {
        house.victim().open_as(|options| harness_dispatch::Options { audit: false, ..options })
    };
    for _ in 0..3 {
        same(attacker.call(runtime, "it").gave()?, "1")?;
        attacker.project.reload().map_err(|error| why(&error))?;
        goes_on(runtime, &victim, 1)?;
    }
    same(attacker.root.join(FOLDER).exists(), false)?;
    if attack {
        whole(&victim, 3)?
    } else {
        same(victim.root.join(FOLDER).exists(), false)?
    }
    Ok("kept".to_owned())
}

fn digests(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let (attacker, victim) =
        (house.attacker().tool("it", "return 1").open(), house.victim().tool("it", "return 1").open());
    let guess = json!({"x": CANARY});
    let digest = |tenant: &Tenant| -> Result<Json, String> {
        tenant.call_with(runtime, "it", guess.clone()).gave()?;
        tenant.project.audited()?;
        Ok(tenant.entries()?.last().unwrap()["arguments"].clone())
    };
    let (theirs, own) = (digest(&victim)?, digest(if attack { &attacker } else { &victim })?);
    same(theirs.is_string(), true)?;
    same(theirs == own, !attack)?;
    Ok("others".to_owned())
}

fn abandoned(runtime: &Runtime, attack: bool) -> Result<String, String> {
    const CALLS: usize = 200;
    let house = House::new();
    let waits = "metrics.incr('in')\nsleep(60000)\nreturn 1";
    let quota = Quota::default().concurrent_calls(5);
    let attacker = house.attacker().tool("waits", waits);
    let attacker = attacker.open_as(|options| harness_dispatch::Options { quota, ..options });
    let victim = house.victim().open();
    let mut begun = 0;
    for round in 0..20 {
        let run = Run::new();
        let attackers = attacker.in_run(run.clone());
        let calls: Vec<_> =
            (0..if attack { CALLS / 20 } else { 0 }).map(|_| attackers.begin(runtime, "waits")).collect();
        if attack {
            wait_until("the calls began", || run.session().metrics.get("in") >= 4.0)?;
        }
        goes_on(runtime, &victim, 1)?;
        begun += calls.len();
        calls.iter().for_each(tokio::task::JoinHandle::abort);
        calls.into_iter().for_each(|call| drop(runtime.block_on(call)));
        goes_on(runtime, &victim, 1).map_err(|why| format!("round {round}: {why}"))?;
    }
    whole(&victim, 40)?;
    attacker.project.audited()?;
    if attack {
        let own = attacker.entries()?;
        let abandoned = own.iter().filter(|entry| entry["outcome"] == "abandoned").count();
        // Those that nobody was to see the beginning of need no line.
        if abandoned < begun / 4 || abandoned > begun {
            return Err(format!("{abandoned} of {begun} are in the log"));
        }
    }
    Ok("continued".to_owned())
}
