//! Very many turns of one conversation that is recorded, with calls, sub-agents, tasks that nobody waits for, and turns
//! that are given up wherever they are, in a command too: the host stays as large as it was, and nothing continues.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use harness_agent::{Model, Models, Session, Silent};
use harness_dispatch::{Options, Project, Run};
use harness_provider::{Abilities, Delta, Finish, Message, Pending, Provider, ProviderError, Reply, Request, ToolCall};
use harness_session as session;
use harness_session::writer::MAX_BYTES;
use harness_wall::Offers;
use serde_json::json;
use tokio::sync::Notify;

use crate::crowd::{ALONE, is_running};

/// Turns where `HARNESS_TURNS` does not say, which is a multiple of 100.
const TURNS: u64 = 5_000;
/// By how much resident memory may grow after the first fifth, in KiB: pools fill up, and allocators keep what they had.
const MAY_GROW: u64 = 4 << 10;

/// A model that does what the last message says, and waits for ever where that says so.
#[derive(Debug, Default)]
struct Parrot {
    waits: Notify,
}

impl Parrot {
    async fn reply(&self, request: &Request) -> Reply {
        let (text, calls) = match (request.messages.last(), request.agent.as_str()) {
            (Some(Message::User(text)), _) if text.ends_with("hang") => {
                self.waits.notify_one();
                std::future::pending().await
            }
            (Some(Message::User(text)), "") if text.contains(": sleep ") => {
                let seconds = text.rsplit(' ').next();
                ("", vec![("sleep", json!({"seconds": seconds}))])
            }
            (Some(Message::User(text)), "") => {
                let task = if text.ends_with("hang below") { "hang" } else { "look" };
                let delegate = json!({"agent": "helper", "task": task});
                let calls = vec![
                    ("echo", json!({"text": text})),
                    ("delegate_async", json!({"agent": "helper", "task": "look"})),
                    ("slow", json!({"text": text})),
                    ("delegate", delegate),
                ];
                ("", calls)
            }
            (Some(Message::User(_)), _) => ("", vec![("echo", json!({"text": "below"}))]),
            _ => ("done", Vec::new()),
        };
        let call = |(index, (name, arguments)): (usize, (&str, serde_json::Value))| ToolCall {
            id: format!("{}-{index}", request.messages.len()),
            name: name.to_owned(),
            arguments: arguments.to_string(),
        };
        let calls: Vec<ToolCall> = calls.into_iter().enumerate().map(call).collect();
        let finish = if calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
        Reply { id: String::new(), model: String::new(), text: text.to_owned(), calls, usage: None, finish }
    }
}

impl Provider for Parrot {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        _: &'a mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Pending<'a, Result<Reply, ProviderError>> {
        Box::pin(async { Ok(self.reply(request).await) })
    }

    fn abilities<'a>(&'a self, _: &'a str) -> Pending<'a, Abilities> {
        Box::pin(std::future::ready(Abilities::default()))
    }
}

#[derive(Debug)]
struct Only(Arc<Parrot>);

impl Models for Only {
    fn main(&self) -> Result<Model, String> {
        let (name, provider) = ("parrot".to_owned(), self.0.clone());
        Ok(Model { name, provider, max_tokens: None, temperature: None, context_tokens: None })
    }

    fn profile(&self, _: &str) -> Option<Result<Model, String>> {
        None
    }
}

/// Resident memory in KiB, descriptors, threads, children.
fn held() -> (u64, usize, usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let memory = line.trim().trim_end_matches(" kB").parse().unwrap();
    let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().join("children"));
    let children = tasks.map(|file| std::fs::read_to_string(file).unwrap_or_default().split_whitespace().count()).sum();
    (memory, count("/proc/self/fd"), count("/proc/self/task"), children)
}

/// Until a process with this mark among its arguments is there, and a child is counted: one whose thread ends meanwhile is not.
async fn running(mark: &str) {
    while !is_running(mark) || held().3 == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// In a process of its own, because other tests take memory and start processes at the same time.
#[test]
fn a_long_conversation_leaves_nothing_behind() {
    if std::env::var_os(ALONE).is_some() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(a_long_conversation());
        return;
    }
    let name = "turns::a_long_conversation_leaves_nothing_behind";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--test-threads=1", "--nocapture"])
        .env(ALONE, "1")
        // What threads have that make calls: those of tests have a quarter of it, which is not enough without optimization.
        .env("RUST_MIN_STACK", (8 << 20).to_string())
        .output()
        .unwrap();
    let said = [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat();
    println!("{said}");
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

async fn a_long_conversation() {
    let turns = std::env::var("HARNESS_TURNS").ok().and_then(|text| text.parse().ok()).unwrap_or(TURNS);
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [
        (
            "harness.md",
            "---\nsandbox: { audit: false, async_tools: true, exec: { allow: [sleep] } }\ncontext: { max_history: 20 }\n---\nYou help.\n",
        ),
        (
            "tools/echo.md",
            "---\nparameters: { text: { type: string } }\nscript: |\n  def run(args):\n      return args['text']\n---\n",
        ),
        (
            "tools/slow.md",
            "---\nparameters: { text: { type: string } }\nasync: true\nscript: |\n  def run(args):\n      sleep(60000)\n---\n",
        ),
        (
            "tools/sleep.md",
            "---\nparameters: { seconds: { type: string } }\nscript: |\n  def run(args):\n      exec.run('sleep', [args['seconds']])\n---\n",
        ),
        (
            "tools/computes.md",
            "---\nscript: |\n  def run(args):\n      return len([x for x in range(1000000) if x % 7 == 0])\n---\n",
        ),
        (
            "hooks/sees.md",
            "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      return allow()\n---\n",
        ),
        ("agents/helper.md", "---\ndescription: Helps.\n---\nYou help too.\n"),
    ] {
        let path = folder.path().join(".harness").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let project = Project::open(folder.path(), Options::default()).unwrap();
    // The threads of calls that compute for long begin with the first of them, whenever that is, and have descriptors.
    let computed = project.call("computes", json!({}), &Run::new()).await.unwrap();
    assert_eq!(computed.content, "142858");
    let parrot = Arc::new(Parrot::default());
    let walled = Offers::get().wall();
    if let Err(missing) = &walled {
        println!("no turn is given up in a command: nothing here can hold one, without {}", missing.join(", "));
    }
    let writer = session::create(folder.path()).unwrap();
    let record = folder.path().join(format!("{}/{}.jsonl", session::FOLDER, writer.id()));
    let recorder = session::begin(writer, &project, "run", None, Arc::new(Silent));
    let models = Arc::new(Only(parrot.clone()));
    let mut session = Session::start(&project, &recorder.run(), models, recorder.clone()).await.unwrap();
    // A command is known by its arguments.
    let mark = format!("600{:07}.", std::process::id());
    let mut before = None;
    let mut given_up = 0;
    for turn in 0..turns {
        let mark = format!("{mark}{turn}");
        let kind = match turn % 100 {
            50 if walled.is_ok() => format!("sleep {mark}"),
            of_hundred => match of_hundred % 10 {
                3 => "hang".to_owned(),
                7 => "hang below".to_owned(),
                _ => "go on".to_owned(),
            },
        };
        let text = format!("turn {turn}: {kind}");
        if kind == "go on" {
            let answer = session.turn(&text).await.unwrap();
            assert_eq!((answer.text.as_str(), answer.rounds), ("done", 1));
        } else {
            tokio::select! {
                ended = session.turn(&text) => panic!("{ended:?}"),
                () = parrot.waits.notified() => {}
                () = running(&mark), if kind.starts_with("sleep") => {}
                () = tokio::time::sleep(Duration::from_secs(120)) => panic!("{text}: {:?}", held()),
            }
            given_up += 1;
        }
        if turn == turns / 5 {
            before = Some(held());
        }
    }
    assert_eq!(given_up, turns / 10 * 2 + if walled.is_ok() { turns / 100 } else { 0 });
    let (memory, descriptors, ..) = before.unwrap();
    // Of the conversation there is as much as goes into a request, and the last turn.
    assert!(session.history().len() <= 20 + 7, "{}", session.history().len());
    session.end().await;
    recorder.end();
    let recorded = std::fs::metadata(record).unwrap().len();
    // Of many more turns than are asked for by default the record is full.
    if let Some(trouble) = recorder.trouble() {
        assert!(recorded > MAX_BYTES / 10 * 9, "{recorded} bytes: {trouble}");
    }
    // What the session's end has given up is gone when the tasks' threads have seen it.
    let patience = std::time::Instant::now() + Duration::from_secs(120);
    let after = loop {
        let after = held();
        let gone = after.3 == 0 && !is_running(&mark);
        if (after.1 <= descriptors && gone) || std::time::Instant::now() > patience {
            break after;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    println!("{turns} turns: {memory} KiB, then {} KiB; {after:?}; {} MiB recorded", after.0, recorded >> 20);
    assert!(after.1 <= descriptors && after.3 == 0 && !is_running(&mark), "{descriptors} descriptors, then {after:?}");
    assert!(after.0 <= memory + MAY_GROW, "{memory} KiB, then {after:?}");
}
