//! Very many turns of one conversation, with calls, sub-agents, tasks that nobody waits for, and turns that are given up
//! wherever they are: the host stays as large as it was, and nothing goes on.

use std::sync::Arc;
use std::time::Duration;

use harness::agent::{Model, Models, Session, Silent};
use harness::dispatch::{Options, Project, Run};
use harness::provider::{
    Abilities, Delta, Finish, Message, Pending, Provider, ProviderError, Reply, Request, ToolCall,
};
use serde_json::json;
use tokio::sync::Notify;

/// Turns where `HARNESS_TURNS` does not say: some seconds of them.
const TURNS: u64 = 300;
/// By how much resident memory may grow after the first fifth, in KiB: pools fill up, and allocators keep what they had.
const MAY_GROW: u64 = 16 << 10;

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

#[tokio::test]
async fn a_long_conversation_leaves_nothing_behind() {
    let turns = std::env::var("HARNESS_TURNS").ok().and_then(|text| text.parse().ok()).unwrap_or(TURNS);
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [
        (
            "harness.md",
            "---\nsandbox: { audit: false, async_tools: true }\ncontext: { max_history: 20 }\n---\nYou help.\n",
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
            "hooks/sees.md",
            "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      return allow()\n---\n",
        ),
        ("agents/helper.md", "---\ndescription: Helps.\n---\nYou help too.\n"),
    ] {
        let path = folder.path().join(".harness").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let project = Project::open(folder.path(), Options { concurrency: 32, ..Options::default() }).unwrap();
    let parrot = Arc::new(Parrot::default());
    let run = Run::new();
    let start = || Session::start(&project, &run, Arc::new(Only(parrot.clone())), Arc::new(Silent));
    let mut session = start().await.unwrap();
    let mut before = None;
    let mut given_up = 0;
    for turn in 0..turns {
        let kind = match turn % 10 {
            3 => "hang",
            7 => "hang below",
            _ => "go on",
        };
        let text = format!("turn {turn}: {kind}");
        if kind == "go on" {
            let answer = session.turn(&text).await.unwrap();
            assert_eq!((answer.text.as_str(), answer.rounds), ("done", 1));
        } else {
            tokio::select! {
                ended = session.turn(&text) => panic!("{ended:?}"),
                () = parrot.waits.notified() => given_up += 1,
            }
        }
        if turn == turns / 5 {
            before = Some(held());
        }
    }
    assert_eq!(given_up, turns / 10 * 2);
    let (memory, descriptors, ..) = before.unwrap();
    // Of the conversation there is as much as goes into a request, and the last turn.
    assert!(session.history().len() <= 20 + 7, "{}", session.history().len());
    session.end().await;
    // What the session's end has given up is gone when the tasks' threads have seen it.
    let patience = std::time::Instant::now() + Duration::from_secs(20);
    let after = loop {
        let after = held();
        if (after.1 <= descriptors && after.3 == 0) || std::time::Instant::now() > patience {
            break after;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    println!("{turns} turns: {memory} KiB, then {} KiB; {after:?}", after.0);
    assert!(after.1 <= descriptors && after.3 == 0, "{descriptors} descriptors, then {after:?}");
    assert!(after.0 <= memory + MAY_GROW, "{memory} KiB, then {after:?}");
}
