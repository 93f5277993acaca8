//! Policies: which are in force, after which reload, and the host policy above both.

use std::sync::Arc;

use harness_artifact::policy::layer;
use harness_dispatch::confirm::Granted;
use harness_dispatch::{Options, Run};
use harness_registry::Machine;
use serde_json::json;
use tokio::runtime::Runtime;

use super::house::{ATTACKER, House, Tenant, VICTIM, WIDE, artifact, put, same, stopped, through, wait_until, why};
use crate::corpus::Coded;
use crate::process::CANARY;

pub(super) const CASES: &[Coded] = &[
    Coded {
        id: "tenants-801",
        tried: "is read again and again while the other's calls run",
        run: |runtime, _| reloaded(runtime, true),
        control: |runtime, _| reloaded(runtime, false),
    },
    Coded {
        id: "tenants-803",
        tried: "is read again, to have what was changed in the other's folder come in force unasked",
        run: |runtime, _| unasked(runtime, true),
        control: |runtime, _| unasked(runtime, false),
    },
    Coded {
        id: "tenants-804",
        tried: "widens its policy past the host policy, by reading it again and by opening it again",
        run: |runtime, _| above(runtime, true),
        control: |runtime, _| above(runtime, false),
    },
    Coded {
        id: "tenants-806",
        tried: "says yes to its own calls that a person confirms, to have those of the other confirmed",
        run: |runtime, _| confirmed(runtime, true),
        control: |runtime, _| confirmed(runtime, false),
    },
    Coded {
        id: "tenants-808",
        tried: "calls without bounds of its own beside a run of the other that is narrowed, and the other way round",
        run: |runtime, _| narrowed(runtime, true),
        control: |runtime, _| narrowed(runtime, false),
    },
    Coded {
        id: "tenants-809",
        tried: "has hooks on all events of tools, to govern the calls of the other",
        run: |runtime, _| governed(runtime, true),
        control: |runtime, _| governed(runtime, false),
    },
];

const WAITS: &str = "cache.set('in', 1)\nfor n in range(20000):\n    if cache.has('go'):\n        return fs.read('secret.txt')\n    sleep(2)\nfail('nobody said so')";

fn reads(runtime: &Runtime, victim: &Tenant) -> Result<(), String> {
    same(victim.call(runtime, "read_secret").gave()?, CANARY)
}

fn reloaded(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let attacker = house.attacker().tool("it", "return 0").open();
    let victim = house.victim().fronted("waits", "timeout_ms: 60000", WAITS).open();
    let under_way = victim.begin(runtime, "waits");
    wait_until("the call began", || victim.run.session().cache.has("in"))?;
    let before = victim.project.loaded();
    for n in 1..=40 {
        if attack {
            put(&attacker.root.join(".harness/tools/it.md"), &artifact("", "run(args)", &format!("return {n}")));
            attacker.project.reload().map_err(|error| why(&error))?;
            same(attacker.call(runtime, "it").gave()?, &n.to_string())?;
        } else if n == 20 {
            victim.project.reload().map_err(|error| why(&error))?;
        }
        reads(runtime, &victim)?;
    }
    same(Arc::ptr_eq(&before, &victim.project.loaded()), attack)?;
    victim.run.session().cache.set("go".to_owned(), "1".to_owned()).unwrap();
    same(runtime.block_on(under_way).unwrap().ended(), ("completed", CANARY))?;
    Ok("in force".to_owned())
}

fn unasked(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let attacker = house.attacker().tool("it", "return 'own'").open();
    let victim = house.victim().tool("it", "return 'old'").open();
    same(victim.call(runtime, "it").gave()?, "old")?;
    put(&victim.root.join(".harness/tools/it.md"), &artifact("", "run(args)", "return 'new'"));
    put(&victim.root.join(".harness/harness.md"), "---\nsandbox: { fs: { read: [docs] } }\n---\n");
    let reload = if attack { &attacker } else { &victim };
    for _ in 0..5 {
        reload.project.reload().map_err(|error| why(&error))?;
        same(attacker.call(runtime, "it").gave()?, "own")?;
        same(victim.call(runtime, "it").gave()?, if attack { "old" } else { "new" })?;
        same(victim.call(runtime, "read_secret").word, if attack { "completed" } else { "denied" })?;
    }
    Ok("as it was".to_owned())
}

fn above(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let strict = "sandbox: { fs: { read: [docs], write: [out] }, exec: { allow: [] }, env: [], limits: { fuel: 50000000 } }\nmeta: { enabled: false }\n";
    put(&house.at("machine.yaml"), if attack { strict } else { "{}\n" });
    let machine = || Machine::File(house.at("machine.yaml"));
    let expressions: Vec<String> = [
        "fs.read('secret.txt')",
        "fs.write('made.txt', 'x')",
        "exec.run('echo', ['x'])['stdout']",
        "env('PATH')",
        "len(meta.list_tools())",
        "len([n for n in range(2000000)])",
    ]
    .map(str::to_owned)
    .to_vec();
    let wide = WIDE.replace("sandbox: {", "sandbox: { env: [PATH], limits: { fuel: 100000000000 }, ");
    let lay = |name: &str, policy: &str| house.lay(name, policy).file("secret.txt", CANARY).each(&expressions);
    let open = |laid: super::house::Laid<'_>| laid.open_as(|options| Options { machine: machine(), ..options });
    let victim =
        open(lay(VICTIM, &wide).file("docs/plain.txt", "plain").tool("plain", "return fs.read('docs/plain.txt')"));
    let attacker = open(lay(ATTACKER, "sandbox: {}"));
    put(&attacker.root.join(".harness/harness.md"), &format!("---\n{wide}\n---\n"));
    attacker.project.reload().map_err(|error| why(&error))?;
    let again = open(lay(ATTACKER, &wide));
    for tenant in [&attacker, &again, &victim] {
        let seen = tenant.all(runtime, expressions.len());
        if attack {
            stopped(&seen, &expressions)?
        } else {
            through(&seen, &expressions).map(drop)?
        }
        same(seen.iter().any(|seen| seen.shown.contains(CANARY)), !attack)?;
    }
    same(victim.call(runtime, "plain").gave()?, "plain")?;
    Ok("denied".to_owned())
}

fn confirmed(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let asks = |laid: super::house::Laid<'_>| laid.fronted("risky", "confirm: true", "return 'done'").open();
    let (attacker, victim) = (asks(house.attacker()), asks(house.victim()));
    attacker.run.set_confirmer(Arc::new(Granted));
    if !attack {
        victim.run.set_confirmer(Arc::new(Granted));
    }
    for _ in 0..3 {
        same(attacker.call(runtime, "risky").gave()?, "done")?;
        let seen = victim.call(runtime, "risky");
        same(seen.word, if attack { "denied" } else { "completed" })?;
        same(attacker.anew().call(runtime, "risky").word, "denied")?;
    }
    Ok("denied".to_owned())
}

fn narrowed(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let lay = |laid: super::house::Laid<'_>| {
        laid.file("secret.txt", CANARY).tool("it", "return fs.read('secret.txt')").open()
    };
    let (attacker, victim) = (lay(house.attacker()), lay(house.victim()));
    let narrow = || {
        let (layer, _) = layer::parse("caller", "fs: { read: [docs] }");
        Run::narrowed(layer.into_iter().collect())
    };
    let victims = victim.in_run(narrow());
    for _ in 0..3 {
        // Its own calls, unnarrowed, and those of the victim's other runs.
        same(attacker.call(runtime, "it").gave()?, CANARY)?;
        same(victim.call(runtime, "it").gave()?, CANARY)?;
        let seen = if attack { victims.call(runtime, "it") } else { victim.anew().call(runtime, "it") };
        same(seen.word, if attack { "denied" } else { "completed" })?;
        same(attacker.in_run(narrow()).call(runtime, "it").word, "denied")?;
        same(victim.call_with(runtime, "it", json!({})).gave()?, CANARY)?;
    }
    Ok("denied".to_owned())
}

fn governed(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let laid = ["tool.pre", "builtin.pre", "meta.call_tool", "custom.any"].iter().enumerate().fold(
        house.attacker().tool("read_secret", "return fs.read('own.txt')"),
        |laid, (n, event)| {
            laid.hook(&format!("h{n}"), &format!("event: {event}\npriority: 1"), "return block('by the attacker')")
        },
    );
    let laid = laid.hook(
        "post",
        "event: tool.post\npriority: 1",
        "return modify({'content': 'changed', 'result': 'changed'})",
    );
    let attacker = laid.open();
    let victim = house.victim().open();
    for _ in 0..5 {
        let own = attacker.call(runtime, "read_secret");
        same(own.ended(), ("denied", "tool blocked: blocked by hook \"h0\": by the attacker"))?;
        if attack {
            reads(runtime, &victim)?;
            reads(runtime, &victim.anew())?;
        }
    }
    Ok("apart".to_owned())
}
