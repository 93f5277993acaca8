//! Every function of the contract, called by a guest that imports all of them: with texts and lists of many megabytes, with
//! addresses and lengths that lie outside of its memory, with bytes that are no text, with numbers that mean nothing, and
//! with an allocator that lies about where the answer may be put.
//!
//! What is tried of a function follows from its type in `wit/`. What is said here of each is how it is called properly:
//! that is the control, and what all else is a change of.

use std::time::Duration;

use harness_sandbox::price::Import;
use tokio::runtime::Runtime;

use crate::case::{Guest, Setting};
use crate::corpus::{self, Row};
use crate::forged::{Attempts, Given};
use crate::process::Held;
use crate::world::{Servers, Stage};

/// A function of the contract.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    import: Import,
    pub(crate) id: String,
    pub(crate) tried: String,
}

/// All, in the order of the price table, where what is new goes last.
pub(crate) fn all() -> Vec<Case> {
    let case = |(n, import): (usize, &Import)| Case {
        import: *import,
        id: format!("guests-{}", 401 + n),
        tried: format!("gives `{}` too much, the impossible and the untrue, and lies where it answers", name(*import)),
    };
    Import::ALL.iter().enumerate().map(case).collect()
}

pub(crate) fn name(import: Import) -> String {
    let (interface, function) = import.path();
    format!("{interface}.{function}")
}

use Given::{Float, Number, Numbers, Task, Tasks, Text, Texts, Wide};

/// How a function is called properly, with every option given.
pub(crate) fn proper(import: Import) -> Vec<Given> {
    let script = "def run(args):\n    return 1\n";
    match import {
        Import::MonotonicNow
        | Import::InsecureSeed
        | Import::LimitsRegexBytes
        | Import::CacheClear
        | Import::MetricsSnapshot
        | Import::TurnClear
        | Import::TurnSnapshot
        | Import::AskCan
        | Import::ClockNow => Vec::new(),
        Import::LastWordsWrite => vec![Text("words")],
        Import::LogWrite => vec![Number(1), Text("line")],
        Import::FsRead | Import::FsReadBase64 | Import::FsExists | Import::FsStat | Import::FsRemove => {
            vec![Text("inside.txt")]
        }
        Import::FsWrite => vec![Text("new.txt"), Text("text")],
        Import::FsAppend => vec![Text("inside.txt"), Text("text")],
        Import::FsList => vec![Text("src")],
        Import::FsGlob => vec![Text("src/*")],
        Import::FsMkdir => vec![Text("made")],
        Import::FsCopy | Import::FsMove => vec![Text("inside.txt"), Text("other.txt")],
        Import::HttpSend => vec![
            Text("POST"),
            Text("http://{server}/echo"),
            Texts(&["x-name", "value"]),
            Number(1),
            Text("body"),
            Number(30_000),
        ],
        Import::ExecRun => vec![
            Text("cat"),
            Texts(&["inside.txt"]),
            Text("."),
            Texts(&["LANG", "C"]),
            Number(1),
            Text("input"),
            Number(30_000),
        ],
        Import::CacheGet
        | Import::CacheHas
        | Import::CacheDelete
        | Import::TurnGet
        | Import::TurnHas
        | Import::TurnDelete => vec![Text("key")],
        Import::CacheSet | Import::TurnSet => vec![Text("key"), Text("[1, 2, 3]")],
        Import::MetricsIncr | Import::MetricsSet => vec![Text("name"), Float(1.5)],
        Import::MetricsGet => vec![Text("name")],
        Import::MetricsReset => vec![Number(1), Text("name")],
        Import::ClockSleep => vec![Number(1)],
        Import::RandomBytes => vec![Number(16)],
        Import::EventsEmit => vec![Text("custom.it"), Text("{\"a\": 1}")],
        Import::MetaRegisterTool => vec![Text("added"), Text("Adds."), Text("{}"), Text(script), Number(0)],
        Import::MetaRegisterHook => vec![
            Text("added"),
            Text("custom.it"),
            Text("def handle(event, payload):\n    return allow()\n"),
            Number(1),
            Text("True"),
            Number(1),
            Number(100),
        ],
        Import::MetaCallTool => vec![Text("other"), Text("{\"bytes\": 4}")],
        Import::MetaCallAll => {
            vec![Text("{\"calls\": [{\"name\": \"other\", \"arguments\": {\"bytes\": 4}}], \"limit\": 1}")]
        }
        Import::MetaListTools => vec![Number(1), Text("*")],
        Import::AgentsDelegate | Import::AgentsDelegateAsync => vec![Text("worker"), Text("Work.")],
        Import::TasksPoll => vec![Task],
        Import::TasksWait => vec![Tasks, Number(1), Number(2_000)],
        Import::CoverageRecord => vec![Numbers(&[1, 2]), Numbers(&[1])],
        Import::EnvGet => vec![Text("HTTP_PROXY")],
        Import::SecretsHandle => vec![Text("TOKEN")],
        Import::ProgressReport => vec![Float(1.0), Number(1), Float(2.0), Number(1), Text("half")],
        Import::AskAsk => vec![Text("[{\"roots\": true}]")],
        Import::ObserveBefore => vec![Text("json.encode"), Text("{\"val\": 1}")],
        Import::ObserveAfter => {
            vec![Text("json.encode"), Text("{\"arguments\": {}, \"result\": \"1\", \"error\": null}")]
        }
    }
}

/// How it is called properly for a large answer, where there is one.
pub(crate) fn large(import: Import) -> Option<Vec<Given>> {
    Some(match import {
        Import::FsRead | Import::FsReadBase64 => vec![Text("large.txt")],
        Import::FsList => vec![Text("many")],
        Import::FsGlob => vec![Text("many/*")],
        Import::HttpSend => {
            vec![Text("GET"), Text("http://{server}/body/8388608"), Texts(&[]), Number(0), Text(""), Number(30_000)]
        }
        Import::ExecRun => {
            vec![Text("cat"), Texts(&["large.txt"]), Text("."), Texts(&[]), Number(0), Text(""), Number(30_000)]
        }
        Import::CacheGet | Import::TurnGet => vec![Text("large")],
        Import::TurnSnapshot => Vec::new(),
        Import::RandomBytes => vec![Number(u32::MAX)],
        Import::EventsEmit => vec![Text("custom.it"), Wide(1 << 20)],
        Import::MetaCallTool => vec![Text("other"), Text("{\"bytes\": 3000000}")],
        Import::MetaCallAll => {
            vec![Text("{\"calls\": [{\"name\": \"other\", \"arguments\": {\"bytes\": 3000000}}], \"limit\": 1}")]
        }
        _ => return None,
    })
}

/// What is called before, for there to be something to ask for.
pub(crate) fn before(import: Import, large: bool) -> Option<(Import, Vec<Given>)> {
    Some(match import {
        Import::CacheGet if large => (Import::CacheSet, vec![Text("large"), Wide(1 << 20)]),
        Import::CacheGet | Import::CacheHas | Import::CacheDelete => (Import::CacheSet, proper(Import::CacheSet)),
        Import::TurnGet | Import::TurnSnapshot if large => (Import::TurnSet, vec![Text("large"), Wide(1 << 20)]),
        Import::TurnGet | Import::TurnHas | Import::TurnDelete => (Import::TurnSet, proper(Import::TurnSet)),
        Import::MetricsSnapshot | Import::MetricsGet => (Import::MetricsSet, proper(Import::MetricsSet)),
        Import::TasksPoll | Import::TasksWait => (Import::AgentsDelegateAsync, proper(Import::AgentsDelegateAsync)),
        _ => return None,
    })
}

const POLICY: &str = "model: { provider: script, script: r.yaml }
delegation: { max_concurrent: 1 }
network: { allowed_domains: [\"{server}\"] }
sandbox:
  exec: { allow: [\"cat *\"], env: [LANG] }
  env: [HTTP_PROXY]
  secrets: { TOKEN: { file: keys/token, hosts: [\"{server}\"] } }
  limits: { timeout_ms: 3000, memory_mb: 64, fuel: 400000000 }
  services: [cache, metrics, clock, random, events, meta, delegate, modify, prompt, ask_roots]
meta: { enabled: true }";

/// How long what never ends is let run.
const DEADLINE: &str = "timeout_ms: 3000";

/// Hooks that give these functions an answer.
fn heard(import: Import) -> Option<(String, String)> {
    let (event, changed) = match import {
        Import::ObserveBefore => ("builtin.pre", "'arguments': {'val': 2}"),
        Import::ObserveAfter => ("builtin.post", "'result': 'changed'"),
        _ => return None,
    };
    let hook = format!(
        "---\nevent: {event}\nscript: |\n  def handle(event, payload):\n      return modify({{{changed}}})\n---\n"
    );
    Some(("hooks/heard.md".to_owned(), hook))
}

/// Memory that the process may hold at most beyond what it held, in KiB: that of the guest, what is on its way through a
/// call, and copies of that.
const MOST: u64 = 96 << 10;

pub(crate) fn row(runtime: &Runtime, servers: &Servers, case: &Case) -> Row {
    // With pools of its own: each of its guests leaves a slot with as much as a slot may keep.
    let stage = Stage::new();
    let (all, wat) = Attempts::of(case.import, &servers.server.address.to_string());
    let guest = Guest {
        front: "parameters:\n  n: { type: string }".to_owned(),
        imports: Import::ALL.iter().map(|import| name(*import)).collect(),
        wat,
    };
    let other = "---\nparameters:\n  bytes: { type: number }\nscript: |\n  def run(args):\n      return 'x' * args['bytes']\n---\n";
    let mut row = Row { verdict: "stopped".to_owned(), control: true, took: Duration::ZERO, wrong: Vec::new() };
    for (n, attempt) in all.into_iter().enumerate() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let mut world = vec![
            words(&["padded", "r.yaml", "- { agent: worker, text: … }", "100000"]),
            words(&["file", "keys/token", "token-of-the-corpus"]),
        ];
        if attempt.large {
            world.push(words(&["filled", "large.txt", "8388608"]));
            world.push(words(&["many", "many", "3000"]));
        }
        let setting = Setting {
            world,
            // What has to pass does so on a busy machine too.
            policy: Some(if attempt.control {
                POLICY.replace(DEADLINE, "timeout_ms: 60000")
            } else {
                POLICY.to_owned()
            }),
            artifacts: [
                ("tools/other.md".to_owned(), other.to_owned()),
                ("agents/worker.md".to_owned(), "---\ndescription: Works.\n---\n# Worker\n\nYou work.\n".to_owned()),
            ]
            .into_iter()
            .chain(heard(case.import))
            .collect(),
            guests: [("it".to_owned(), guest.clone())].into(),
            args: Some(format!("{{\"n\": \"{n:03}\"}}")),
            caller: attempt.caller.map(str::to_owned),
            ends: attempt.ends,
            ..Setting::default()
        };
        let before = Held::from_here();
        let (seen, wrong) = corpus::once(runtime, servers, &stage, (&setting, ""), !attempt.control);
        let more = Held::peak().saturating_sub(before);
        row.took = row.took.max(seen.took);
        row.control &= !attempt.control || wrong.is_empty();
        row.wrong.extend(wrong.into_iter().map(|wrong| format!("{}: {wrong}", attempt.what)));
        if more > MOST {
            row.wrong.push(format!("{}: the host held {} MiB more", attempt.what, more >> 10));
        }
    }
    row
}
