//! What errors, hints and debug texts say: nothing of the other project.

use std::fs::File;

use harness_audit::FOLDER;
use harness_capability::system::System;
use harness_dispatch::Options;
use harness_registry::Machine;
use rustix::fs::{FlockOperation, flock};
use serde_json::json;
use tokio::runtime::Runtime;

use super::house::{ATTACKER, House, Laid, Seen, VICTIM, names_nothing, put, same, unseen, wait_until, why};
use crate::corpus::Coded;
use crate::process::CANARY;

pub(super) const CASES: &[Coded] = &[
    Coded {
        id: "tenants-601",
        tried: "misspells names of the other's tools, agents, skills and secrets, to be shown the right ones",
        run: |runtime, _| misspelled(runtime, true),
        control: |runtime, _| misspelled(runtime, false),
    },
    Coded {
        id: "tenants-603",
        tried: "goes over its limits by a script of the other's, to be shown that one's limits",
        run: |runtime, _| limits(runtime, true),
        control: |runtime, _| limits(runtime, false),
    },
    Coded {
        id: "tenants-604",
        tried: "has broken artifacts of the names that the other's have, to be shown those in the diagnostics",
        run: |runtime, _| broken(runtime, true),
        control: |runtime, _| broken(runtime, false),
    },
    Coded {
        id: "tenants-605",
        tried: "prints its project and its reports for debugging while the other's log waits to be written",
        run: |runtime, _| printed(runtime, true),
        control: |runtime, _| printed(runtime, false),
    },
    Coded {
        id: "tenants-606",
        tried: "has the host fail in its call, to be shown what else is in the host",
        run: |runtime, _| faults(runtime, true),
        control: |runtime, _| faults(runtime, false),
    },
];

/// A project with something of each kind, all with names that are alike.
fn owner(laid: Laid<'_>) -> Laid<'_> {
    let policy = "meta: { enabled: true }\nsandbox: { secrets: { TRANSFER_KEY: { file: own.key, exec: [sh] } } }";
    laid.file(".harness/harness.md", &format!("---\n{policy}\n---\n"))
        .file("own.key", "a-value-of-it")
        .tool("transfer_funds", "return 1")
        .file(".harness/agents/transfer_agent.md", "---\ndescription: Works.\n---\n# A\n")
        .file(".harness/skills/transfer-skill/SKILL.md", "---\nname: transfer-skill\ndescription: A skill.\n---\n# S\n")
}

fn misspelled(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let expressions: Vec<String> = [
        "meta.call_tool('transfer_fundz')",
        "meta.call_tool('TRANSFER_FUNDS')",
        "[t['name'] for t in meta.list_tools('*transfer*')]",
        "parallel.launch('transfer_fund')['result']",
        "secret('TRANSFER_KEYS')",
        "delegate('transfer_agents', 'x')",
        "task.poll('task_transfer')",
        "read_skill('transfer_skills')",
    ]
    .map(str::to_owned)
    .to_vec();
    let holder = if attack { VICTIM } else { ATTACKER };
    let attacker = house.attacker().each(&expressions);
    let (attacker, _victim) = if holder == ATTACKER {
        (owner(attacker).open(), house.victim().open())
    } else {
        (attacker.open(), owner(house.victim()).open())
    };
    let mut seen = attacker.all(runtime, expressions.len());
    seen.push(attacker.call(runtime, "transfer_fundz"));
    // What was asked for is in the texts itself.
    let asked = [
        "transfer_fundz",
        "TRANSFER_FUNDS",
        "*transfer*",
        "'transfer_fund'",
        "`transfer_fund`",
        "transfer_fund\"",
        "TRANSFER_KEYS",
        "transfer_agents",
        "task_transfer",
        "transfer_skills",
    ];
    let shown = |seen: &Seen| {
        let hint = seen.report.is_none().then(|| seen.shown.clone()).unwrap_or_default();
        asked.iter().fold(format!("{} {hint}", seen.says), |text, asked| text.replace(asked, ""))
    };
    let named: Vec<String> = seen.iter().map(shown).filter(|text| text.to_lowercase().contains("transfer")).collect();
    unseen(&attacker, &seen)?;
    match (attack, named.is_empty()) {
        (true, true) => Ok("unknown".to_owned()),
        (false, false) => Ok("suggested".to_owned()),
        _ => Err(format!("{named:?} of {:?}", seen.iter().map(|seen| &seen.says).collect::<Vec<_>>())),
    }
}

/// Policies of the two in which the same line says something else.
const THEIRS: &str = "# 1\n# 2\n# 3\nsandbox:\n  fs:\n    read: [docs, victims-own-folder]\n  exec: { allow: [victims-own-command] }\n  limits: { fuel: 82345678, timeout_ms: 6789 }";
const OWN: &str =
    "sandbox:\n  fs:\n    read: [docs]\n  exec: { allow: [] }\n  limits: { fuel: 91234567, timeout_ms: 2345 }";

fn limits(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let body = "for n in range(1 << 30):\n    pass\nreturn 1";
    let house = House::new();
    let victim = house.lay(VICTIM, THEIRS).tool("it", body).open();
    let attacker = house.lay(ATTACKER, OWN).tool("it", body).open();
    let order = if attack { [&victim, &attacker, &victim] } else { [&attacker, &victim, &attacker] };
    let seen = order.map(|tenant| tenant.call(runtime, "it"));
    same(seen.each_ref().map(|seen| seen.word), ["limited"; 3])?;
    let own = if attack { "91234567" } else { "82345678" };
    same(seen[1].shown.contains(own), true)?;
    same(seen[0].shown.contains(own) || seen[2].shown.contains(own), false)?;
    same(&seen[0].says, &seen[2].says)?;
    names_nothing(&[seen[usize::from(attack)].shown.clone()])?;
    Ok("its own".to_owned())
}

fn broken(_: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let victim =
        house.victim().tool("it", &format!("return '{CANARY}'")).hook("guard", "event: tool.pre", "return allow()");
    let victim = victim.open();
    let bad = [
        (".harness/tools/it.md", "---\ntimeout_ms: -1\nscript: |\n  def run(args):\n      return 1\n---\n"),
        (".harness/tools/it.md", "---\nscript: [\n---\n"),
        (".harness/hooks/guard.md", "---\nevent: no.event\nscript: |\n  x\n---\n"),
        (".harness/harness.md", "---\nsandbox: { nothing: 1 }\n---\n"),
    ];
    for (path, text) in bad {
        let attacker = house.attacker().file(path, text);
        let root = attacker.root.clone();
        let options =
            Options { machine: Machine::None, system: System::default().with_environment(), ..Options::default() };
        let Err(error) = house.host.open(&root, options) else { return Err(format!("{path} was taken")) };
        names_nothing(&[why(&error), format!("{error:?}"), format!("{error}")])?;
        same(why(&error).is_empty(), false)?;
        std::fs::remove_dir_all(&root).unwrap();
        // The victim's are as they were, and what is broken there is named.
        victim.project.reload().map_err(|error| why(&error))?;
        if !attack {
            let kept = std::fs::read_to_string(victim.root.join(path)).unwrap();
            put(&victim.root.join(path), text);
            let Err(error) = victim.project.reload() else { return Err(format!("{path} was taken")) };
            let all = format!("{error:?}");
            same(all.contains(CANARY) || all.contains("read_secret"), true)?;
            put(&victim.root.join(path), &kept);
        }
    }
    Ok("its own".to_owned())
}

fn printed(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let waits = "sandbox: { limits: { timeout_ms: 150 } }";
    let victim = house.lay(VICTIM, waits).tool("its_own_tool", "return 1").open();
    let attacker = house.attacker().tool("it", "return 1").open();
    same(victim.call(runtime, "its_own_tool").gave()?, "1")?;
    same(attacker.call(runtime, "it").gave()?, "1")?;
    let lock = File::open(victim.root.join(FOLDER).join("head")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    // Entries that wait, of calls that nobody waits for.
    let calls: Vec<_> = (0..3).map(|_| victim.begin_with(runtime, "its_own_tool", json!({"x": CANARY}))).collect();
    calls.into_iter().for_each(|call| drop(runtime.block_on(call)));
    let printed = |attacks: bool| {
        let project = if attacks { &attacker.project } else { &victim.project };
        vec![format!("{project:?}"), format!("{:?}", project.loaded()), format!("{:?}", project.share())]
    };
    let texts = printed(attack);
    let seen = attacker.call(runtime, "it");
    drop(lock);
    wait_until("the victim's log is written", || victim.project.audited().is_ok())?;
    let named = |texts: &[String]| texts.iter().any(|text| text.contains(VICTIM) || text.contains("its_own_tool"));
    same(named(&texts), !attack).map_err(|_| {
        let at = texts.iter().find_map(|text| text.find(VICTIM).or(text.find("its_own_tool")).map(|at| (text, at)));
        at.map_or_else(String::new, |(text, at)| {
            format!("ESCAPE: …{}…", &text[at.saturating_sub(200)..(at + 200).min(text.len())])
        })
    })?;
    names_nothing(std::slice::from_ref(&seen.shown))?;
    same(seen.gave()?, "1")?;
    Ok("its own".to_owned())
}

fn faults(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let victim = house.victim().open();
    let attacker = house.attacker().tool("it", "return 1").open();
    let guests = [
        "(func (export \"run\") (param i32 i32) (result i32) unreachable)",
        "(func (export \"run\") (param i32 i32) (result i32) (i32.load (i32.const 2147483647)))",
        "(func (export \"run\") (param i32 i32) (result i32) (i32.const -4))",
    ];
    for wat in guests {
        let own = house.attacker().tool("it", "return 2").tool("other", &format!("return '{}'", wat.len())).open();
        if attack {
            own.project.loaded().stand_in("it", || crate::compose::component(&[], wat)).unwrap();
        }
        let seen = own.call(runtime, "it");
        same(seen.word == "completed", !attack).map_err(|_| seen.shown.clone())?;
        names_nothing(&[seen.shown.clone(), seen.says.clone()])?;
        unseen(&attacker, &[seen])?;
        same(victim.call(runtime, "read_secret").gave()?, CANARY)?;
    }
    Ok("its own".to_owned())
}
