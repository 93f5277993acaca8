//! Instances, memory and the processor: what one project takes of the host, and that the other's calls complete.

use std::sync::Arc;

use harness_dispatch::{HostOptions, Options};
use harness_sandbox::scheduling::quota::Quota;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::house::{ATTACKER, House, Seen, Tenant, VICTIM, names_nothing, same, wait_until};
use crate::corpus::Coded;
use crate::process::CANARY;

pub(super) const CASES: &[Coded] = &[
    Coded {
        id: "tenants-701",
        tried: "computes without end in as many calls as it may make",
        run: |runtime, _| taken(runtime, ENDLESS, true),
        control: |runtime, _| taken(runtime, ENDLESS, false),
    },
    Coded {
        id: "tenants-702",
        tried: "sleeps in as many calls as it may make",
        run: |runtime, _| taken(runtime, ASLEEP, true),
        control: |runtime, _| taken(runtime, ASLEEP, false),
    },
    Coded {
        id: "tenants-703",
        tried: "nests calls as deep as they go, and sleeps or computes in the last",
        run: |runtime, _| nested(runtime, true),
        control: |runtime, _| nested(runtime, false),
    },
    Coded {
        id: "tenants-704",
        tried: "queues more calls than may wait, to learn how many others wait or to have those refused",
        run: |runtime, _| queued(runtime, true),
        control: |runtime, _| queued(runtime, false),
    },
    Coded {
        id: "tenants-706",
        tried: "is closed in the middle of its calls, so that what they had is never given back",
        run: |runtime, _| closed(runtime, true),
        control: |runtime, _| closed(runtime, false),
    },
    Coded {
        id: "tenants-707",
        tried: "gives up hundreds of calls while they wait, begin, compute and sleep",
        run: |runtime, _| canceled(runtime, true),
        control: |runtime, _| canceled(runtime, false),
    },
    Coded {
        id: "tenants-708",
        tried: "computes with a hundred times the share of the other",
        run: |runtime, _| shares(runtime, true),
        control: |runtime, _| shares(runtime, false),
    },
    Coded {
        id: "tenants-709",
        tried: "computes in very many runs, as if each were a tenant",
        run: |runtime, _| runs(runtime, true),
        control: |runtime, _| runs(runtime, false),
    },
    Coded {
        id: "tenants-711",
        tried: "uses up the quota of a folder that is open twice",
        run: |runtime, _| twice(runtime, true),
        control: |runtime, _| twice(runtime, false),
    },
];

/// What a call is that never ends by itself, once it has said that it is there.
const ENDLESS: &str = "metrics.incr('in')\nfor m in range(1 << 30):\n    for n in range(1 << 30):\n        pass";
const ASLEEP: &str = "metrics.incr('in')\nsleep(600000)";
/// With as much of everything as a call can have.
const LONG: &str =
    "meta: { enabled: true }\nsandbox: { async_tools: true, limits: { fuel: 100000000000000, timeout_ms: 600000 } }";

fn quota(of: Quota) -> impl FnOnce(Options) -> Options {
    move |options| Options { quota: of, ..options }
}

fn small() -> Quota {
    Quota::default().concurrent_calls(2).queued_calls(3)
}

/// The victim's project, whose calls may wait for a minute.
fn victim(house: &House) -> Tenant {
    victim_of(house, Quota::default())
}

fn victim_of(house: &House, of: Quota) -> Tenant {
    let policy = "sandbox: { limits: { timeout_ms: 60000 } }";
    let laid = house.lay(VICTIM, policy).file("secret.txt", CANARY);
    let laid = laid
        .tool("read_secret", "return fs.read('secret.txt')")
        .tool("computes", "x = 0\nfor n in range(100000):\n    x += n\nreturn x");
    // Each is there until so many are: they must all have an instance at one time.
    let meets = "metrics.incr('met')\nfor n in range(30000):\n    if metrics.get('met') >= int(args['all']):\n        return 'met'\n    sleep(2)\nfail('the others never came')";
    laid.tool("meets", meets).open_as(quota(of))
}

/// Calls that end by themselves.
fn completes(runtime: &Runtime, victim: &Tenant, calls: usize) -> Result<(), String> {
    for n in 0..calls {
        let victim = if n % 2 == 0 { victim.anew() } else { victim.in_run(victim.run.clone()) };
        same(victim.call(runtime, "read_secret").gave()?, CANARY)?;
        same(victim.call(runtime, "computes").gave()?, "4999950000")?;
    }
    Ok(())
}

/// Whether so many instances can be had at one time, which is all that there are.
fn all_free(runtime: &Runtime, victim: &Tenant, instances: usize) -> Result<(), String> {
    let victim = victim.anew();
    let calls: Vec<_> =
        (0..instances).map(|_| victim.begin_with(runtime, "meets", json!({ "all": instances }))).collect();
    calls.into_iter().try_for_each(|call| same(runtime.block_on(call).unwrap().gave()?, "met"))
}

fn abort(runtime: &Runtime, calls: Vec<JoinHandle<Seen>>) {
    calls.iter().for_each(JoinHandle::abort);
    calls.into_iter().for_each(|call| drop(runtime.block_on(call)));
}

/// How many calls of a run have said that they are there.
fn there(tenant: &Tenant) -> f64 {
    tenant.run.session().metrics.get("in")
}

fn taken(runtime: &Runtime, body: &str, attack: bool) -> Result<String, String> {
    let house = House::with(HostOptions::default().instances(4));
    let attacker = house.lay(ATTACKER, LONG).tool("it", body).tool("own", "return 'own'").open_as(quota(small()));
    let victim = victim(&house);
    let calls: Vec<_> = (0..if attack { 6 } else { 0 }).map(|_| attacker.begin(runtime, "it")).collect();
    let ended = || calls.iter().filter(|call| call.is_finished()).count();
    if attack {
        wait_until("two of them run", || there(&attacker) >= 2.0)?;
        // Two run and three wait: there is no room for the sixth, nor for one more of its own.
        wait_until("one of them is refused", || ended() == 1)?;
        same(attacker.call(runtime, "own").word, "busy")?;
    } else {
        same(attacker.call(runtime, "own").gave()?, "own")?;
    }
    completes(runtime, &victim, 20)?;
    same((there(&attacker), ended()), if attack { (2.0, 1) } else { (0.0, 0) })?;
    abort(runtime, calls);
    all_free(runtime, &victim, 4)?;
    same(attacker.call(runtime, "own").gave()?, "own")?;
    Ok("completed".to_owned())
}

fn nested(runtime: &Runtime, attack: bool) -> Result<String, String> {
    // Two calls with all that they nest, and one more.
    let house = House::with(HostOptions::default().instances(13));
    let deeper = "if args['n'] > 0:\n    return meta.call_tool('it', {'n': args['n'] - 1, 'end': args['end']})\nif args['end'] == 'own':\n    return 'own'\nmetrics.incr('in')\nif args['end'] == 'sleep':\n    sleep(600000)\nfor m in range(1 << 30):\n    for n in range(1 << 30):\n        pass";
    let attacker = house.lay(ATTACKER, LONG).tool("it", deeper).open_as(quota(small()));
    let victim = victim(&house);
    let own = attacker.call_with(runtime, "it", json!({"n": 5, "end": "own"}));
    if own.gave()? != "own" {
        // How deep calls of tools go is the policy's.
        return Err(own.says);
    }
    let ends = ["sleep", "loop", "loop", "sleep", "loop"];
    let ends = if attack { &ends[..] } else { &[] };
    let calls: Vec<_> =
        ends.iter().map(|end| attacker.begin_with(runtime, "it", json!({"n": 5, "end": end}))).collect();
    if attack {
        wait_until("two of them are deep", || there(&attacker) >= 2.0)?;
    }
    completes(runtime, &victim, 10)?;
    same(there(&attacker), if attack { 2.0 } else { 0.0 })?;
    abort(runtime, calls);
    all_free(runtime, &victim, 13)?;
    Ok("completed".to_owned())
}

fn queued(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::with(HostOptions::default().instances(4));
    let attacker = house.lay(ATTACKER, LONG).tool("it", ASLEEP).open_as(quota(small()));
    let victim = victim(&house);
    // The victim has calls that wait as well.
    let meets: Vec<_> = (0..3).map(|_| victim.begin_with(runtime, "meets", json!({"all": 4}))).collect();
    wait_until("the victim's calls are there", || victim.run.session().metrics.get("met") >= 2.0)?;
    let calls: Vec<_> = (0..if attack { 40 } else { 4 }).map(|_| attacker.begin(runtime, "it")).collect();
    wait_until("one of them runs", || there(&attacker) >= 1.0)?;
    let refused = || calls.iter().filter(|call| call.is_finished()).count();
    if attack {
        // One or two run, as the victim leaves room, and three wait.
        wait_until("the others were refused", || refused() >= 35)?;
    }
    let mut waiting = Vec::new();
    let mut busy = Vec::new();
    for call in calls {
        if call.is_finished() { busy.push(runtime.block_on(call).unwrap()) } else { waiting.push(call) }
    }
    for seen in &busy {
        let text = seen.says.split("; retry in ").next().unwrap_or_default();
        let wanted =
            "tool error: busy: 3 calls of the project are waiting already (`queued_calls`, set by the project's quota)";
        same((seen.word, text), ("busy", wanted))?;
    }
    names_nothing(&busy.iter().map(|seen| seen.shown.clone()).collect::<Vec<_>>())?;
    same(busy.is_empty(), !attack)?;
    // The victim's own are still to come, and do.
    let fourth = victim.begin_with(runtime, "meets", json!({"all": 4}));
    abort(runtime, waiting);
    for call in meets.into_iter().chain([fourth]) {
        same(runtime.block_on(call).unwrap().gave()?, "met")?;
    }
    completes(runtime, &victim, 3)?;
    Ok("busy".to_owned())
}

fn closed(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::with(HostOptions::default().instances(4));
    let victim = victim(&house);
    for (n, body) in [ENDLESS, ASLEEP, ENDLESS, ASLEEP].into_iter().enumerate() {
        let of = Quota::default().concurrent_calls(3).queued_calls(5);
        let attacker =
            house.lay(&format!("{ATTACKER}{n}"), LONG).tool("it", body).tool("own", "return 'own'").open_as(quota(of));
        let calls: Vec<_> = (0..if attack { 8 } else { 0 }).map(|_| attacker.begin(runtime, "it")).collect();
        if attack {
            wait_until("three of them run", || there(&attacker) >= 3.0)?;
        } else {
            same(attacker.call(runtime, "own").gave()?, "own")?;
        }
        calls.iter().for_each(JoinHandle::abort);
        let left = Arc::downgrade(&attacker.project);
        drop(attacker);
        // While what was begun is still being dropped.
        completes(runtime, &victim, 3)?;
        calls.into_iter().for_each(|call| drop(runtime.block_on(call)));
        wait_until("the project is gone", || left.strong_count() == 0)?;
        all_free(runtime, &victim, 4)?;
    }
    Ok("given back".to_owned())
}

fn canceled(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::with(HostOptions::default().instances(4));
    let attacker = house.lay(ATTACKER, LONG).tool("loops", ENDLESS).tool("sleeps", ASLEEP).tool("own", "return 'own'");
    let attacker = attacker.tool("nests", "return meta.call_tool('loops')").open();
    let victim = victim(&house);
    for round in 0..if attack { 40 } else { 4 } {
        let calls: Vec<_> = (0..12)
            .filter(|_| attack)
            .map(|n| attacker.begin(runtime, ["loops", "sleeps", "nests", "own"][(n + round) % 4]))
            .collect();
        // At another stage each time.
        runtime.block_on(async {
            for _ in 0..round % 7 {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(round as u64 % 5)).await;
        });
        calls.iter().for_each(JoinHandle::abort);
        completes(runtime, &victim, 1).map_err(|why| format!("round {round}: {why}"))?;
        calls.into_iter().for_each(|call| drop(runtime.block_on(call)));
    }
    wait_until("all memory is given back", || attacker.project.share().memory() == 0)?;
    all_free(runtime, &victim, 4)?;
    same(attacker.call(runtime, "own").gave()?, "own")?;
    Ok("completed".to_owned())
}

fn shares(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::with(HostOptions::default().instances(20));
    let attacker = house.lay(ATTACKER, LONG).tool("it", ENDLESS);
    let attacker = attacker.open_as(quota(Quota::default().weight(100).concurrent_calls(12)));
    let victim = victim_of(&house, Quota::default().weight(1));
    let calls: Vec<_> = (0..if attack { 12 } else { 0 }).map(|_| attacker.begin(runtime, "it")).collect();
    wait_until("they compute", || there(&attacker) >= calls.len() as f64)?;
    // A call that takes some milliseconds of the processor.
    same(victim.call(runtime, "computes").gave()?, "4999950000")?;
    same(victim.call(runtime, "read_secret").gave()?, CANARY)?;
    same(calls.iter().any(JoinHandle::is_finished), false)?;
    abort(runtime, calls);
    Ok("completed".to_owned())
}

fn runs(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::with(HostOptions::default().instances(60));
    let attacker = house.lay(ATTACKER, LONG).tool("it", ENDLESS).open_as(quota(Quota::default().concurrent_calls(50)));
    let victim = victim(&house);
    let runs: Vec<Tenant> = (0..if attack { 50 } else { 0 }).map(|_| attacker.anew()).collect();
    let calls: Vec<_> = runs.iter().map(|run| run.begin(runtime, "it")).collect();
    wait_until("they compute", || runs.iter().all(|run| there(run) >= 1.0))?;
    completes(runtime, &victim, 5)?;
    same(calls.iter().any(JoinHandle::is_finished), false)?;
    abort(runtime, calls);
    all_free(runtime, &victim, 60)?;
    Ok("completed".to_owned())
}

fn twice(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::with(HostOptions::default().instances(4));
    let lay = || {
        house
            .lay(VICTIM, LONG)
            .file("secret.txt", CANARY)
            .tool("it", ASLEEP)
            .tool("read_secret", "return fs.read('secret.txt')")
    };
    let of = Quota::default().concurrent_calls(1).queued_calls(0);
    let one = lay().open_as(quota(of));
    let other = if attack { lay().open_as(quota(of)) } else { one.anew() };
    let call = one.begin(runtime, "it");
    wait_until("it runs", || there(&one) >= 1.0)?;
    same(one.call(runtime, "read_secret").word, "busy")?;
    for _ in 0..5 {
        let seen = other.call(runtime, "read_secret");
        match attack {
            true => same(seen.gave()?, CANARY)?,
            false => same(seen.word, "busy")?,
        }
    }
    abort(runtime, vec![call]);
    same(one.call(runtime, "read_secret").gave()?, CANARY)?;
    Ok("completed".to_owned())
}
