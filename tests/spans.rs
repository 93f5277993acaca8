//! The spans that operators see: all of them, with all of their fields, and nothing in them of what calls are about.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test ends where something is not as expected"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use harness::{
    Abilities, Delta, Finish, Machine, Message, Model, Models, OpenError, Options, Pending, Project, Provider,
    ProviderError, Reply, Request, Run, Session, Silent, TokenUsage, ToolCall,
};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_core::span::Current;

/// In everything that a span must not show.
const MARK: &str = "m4rker-of-a-secret";

/// A span as text: its names from the outermost, and its fields.
#[derive(Debug, Clone, Default)]
struct Span {
    path: String,
    fields: BTreeMap<&'static str, String>,
    metadata: Option<&'static Metadata<'static>>,
}

/// Keeps all spans of the host.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<Span>>);

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl Visit for Span {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Kept {
    fn change(&self, id: &Id, change: impl FnOnce(&mut Span)) {
        let index = usize::try_from(id.into_u64()).unwrap() - 1;
        change(&mut self.0.lock().unwrap()[index]);
    }
}

struct Collector(Arc<Kept>);

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "harness"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let parent = ENTERED.with_borrow(|entered| entered.last().copied());
        let mut spans = self.0.0.lock().unwrap();
        let parent = parent.map(|parent| format!("{}/", spans[usize::try_from(parent).unwrap() - 1].path));
        let metadata = attributes.metadata();
        let path = parent.unwrap_or_default() + metadata.name();
        let mut span = Span { path, metadata: Some(metadata), ..Span::default() };
        attributes.record(&mut span);
        spans.push(span);
        Id::from_u64(u64::try_from(spans.len()).unwrap())
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.0.change(id, |span| values.record(span));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(id.into_u64()));
    }

    fn current_span(&self) -> Current {
        let Some(id) = ENTERED.with_borrow(|entered| entered.last().copied()) else { return Current::none() };
        let mut metadata = None;
        self.0.change(&Id::from_u64(id), |span| metadata = span.metadata);
        Current::new(Id::from_u64(id), metadata.unwrap())
    }

    fn exit(&self, _: &Id) {
        ENTERED.with_borrow_mut(Vec::pop);
    }
}

/// The spans since the last time, each a line. Numbers that differ from run to run are shown as `_`; those that may not be
/// zero were checked.
fn spans(kept: &Kept) -> Vec<String> {
    let lines = std::mem::take(&mut *kept.0.lock().unwrap());
    let line = |span: Span| {
        let field = |(name, value): (&str, String)| {
            let varies = ["fuel", "wall_us", "bytes"].contains(&name);
            // What hooks keep from running has no time of its own.
            let least = u64::from(name != "wall_us");
            assert!(!varies || value.parse::<u64>().unwrap() >= least, "{name} of {}", span.path);
            format!(" {name}={}", if varies { "_" } else { &value })
        };
        span.path.clone() + &span.fields.clone().into_iter().map(field).collect::<String>()
    };
    lines.into_iter().map(line).collect()
}

/// One subscriber for the process: work of a call may be on any thread. Tests take turns.
fn collected() -> (Arc<Kept>, std::sync::MutexGuard<'static, ()>) {
    static KEPT: OnceLock<Arc<Kept>> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let kept = KEPT.get_or_init(|| {
        let kept = Arc::new(Kept::default());
        tracing::subscriber::set_global_default(Collector(kept.clone())).unwrap();
        kept
    });
    kept.0.lock().unwrap().clear();
    (kept.clone(), turn)
}

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(".harness").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn open(root: &Path) -> Project {
    let options = Options { machine: Machine::None, audit: false, ..Options::default() };
    Project::open(root, options).unwrap_or_else(|error| match error {
        OpenError::Artifacts(registry) => panic!("{:#?}", registry.diagnostics()),
        other => panic!("{other}"),
    })
}

/// A server that answers one request after another, with the mark.
fn server() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let head = format!("HTTP/1.1 201 Created\r\nx-mark: {MARK}\r\nconnection: close\r\n");
            stream.write_all(format!("{head}content-length: {}\r\n\r\n{MARK}", MARK.len()).as_bytes()).unwrap();
        }
    });
    port
}

/// A project whose tool does all that there is a span for, with the mark wherever it can be.
fn project(root: &Path, port: u16) {
    let policy = format!(
        "---\nnetwork: {{ allowed_domains: [\"127.0.0.1:{port}\"] }}\nsandbox:\n  fs: {{ read: ['.'], write: ['.'] }}\n  \
         exec: {{ allow: ['true *'], env: [MARK], unconfined: true }}\n---\n"
    );
    write(root, "harness.md", &policy);
    let script = format!(
        "---\nparameters: {{ text: {{ type: string }} }}\nscript: |\n  def run(args):\n      http.get('http://127.0.0.1:{port}/' \
         + args['text'] + '?q=' + args['text'], {{'x-mark': args['text']}})\n      exec.run('true', [args['text']], \
         env={{'MARK': args['text']}})\n      fs.write(args['text'], args['text'])\n      log.info(args['text'])\n      \
         return args['text']\n---\n"
    );
    write(root, "tools/all.md", &script);
    let hook = format!(
        "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      if payload['args'].get('text') == 'no':\n          \
         return block('{MARK}')\n      return allow()\n---\n"
    );
    write(root, "hooks/guard.md", &hook);
    write(root, "tools/fails.md", &format!("---\nscript: |\n  def run(args):\n      fail('{MARK}')\n---\n"));
}

#[test]
fn a_call_with_all_that_it_does() {
    let (kept, _turn) = collected();
    let root = tempfile::tempdir().unwrap();
    project(root.path(), server());
    let project = open(root.path());
    assert_eq!(spans(&kept), ["load audit=false hooks=1 outcome=in force tools=2 what=open"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = Run::new();
    let call = |name: &str, text: &str| {
        let report = runtime.block_on(project.call(name, json!({"text": text}), &run));
        (report.map(|report| report.content).unwrap_or_else(|error| error.to_string()), spans(&kept))
    };
    let (content, seen) = call("all", MARK);
    assert_eq!(content, MARK);
    assert_eq!(
        seen,
        [
            "call fuel=_ outcome=completed source=tools/all tool=all wall_us=_",
            "call/image bytes=_ outcome=loaded source=tools/all",
            "call/hooks decision=allow event=tool.pre hooks=1",
            "call/hooks/image bytes=_ outcome=loaded source=hooks/guard",
            "call/hooks/admission",
            "call/admission",
            "call/http host=127.0.0.1 method=GET status=201",
            "call/command exit_code=0 program=true",
        ]
    );
    // Again, with images that are there. What is blocked, fails, or does not exist has no more to show.
    let (content, seen) = call("all", "no");
    assert!(content.contains(MARK), "{content}");
    assert_eq!(
        seen,
        [
            "call fuel=_ outcome=denied source=tools/all tool=all wall_us=_",
            "call/hooks decision=block event=tool.pre hooks=1",
            "call/hooks/admission",
        ]
    );
    let (content, seen) = call(MARK, MARK);
    assert!(content.contains(MARK), "{content}");
    assert_eq!(seen, ["call outcome=rejected"]);
    let (content, seen) = call("fails", MARK);
    assert!(content.contains(MARK), "{content}");
    assert!(!seen.concat().contains(MARK), "{seen:#?}");

    // A version that is refused.
    write(root.path(), "tools/all.md", &format!("---\n{MARK}: 1\ntimeout_ms: -1\n---\n"));
    project.reload().unwrap_err();
    assert_eq!(spans(&kept), ["load audit=false errors=1 outcome=refused what=reload"]);
}

/// What is not granted is not shown. A command is decided on before there is a span.
#[test]
fn hosts_and_programs_that_are_denied() {
    let (kept, _turn) = collected();
    let root = tempfile::tempdir().unwrap();
    project(root.path(), 1);
    let denied = |call: &str| format!("---\nscript: |\n  def run(args):\n      {call}\n---\n");
    write(root.path(), "tools/asks.md", &denied(&format!("http.get('http://{MARK}.example/')")));
    write(root.path(), "tools/runs.md", &denied(&format!("exec.run('{MARK}', [])")));
    let project = open(root.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (name, span) in [("asks", "call/http"), ("runs", "call/admission")] {
        let report = runtime.block_on(project.call(name, json!({}), &Run::new())).unwrap();
        assert!(report.outcome.name() == "denied" && report.content.contains(MARK), "{}", report.content);
        let seen = spans(&kept);
        assert!(!seen.concat().contains(MARK), "{seen:#?}");
        assert_eq!(seen.last().unwrap(), span);
    }
}

/// A model that calls `fails` once, and then says something.
#[derive(Debug)]
struct Speaker;

impl Provider for Speaker {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        _: &'a mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Pending<'a, Result<Reply, ProviderError>> {
        let call = ToolCall { id: "1".to_owned(), name: "fails".to_owned(), arguments: json!({}).to_string() };
        let (calls, finish) = match request.messages.last() {
            Some(Message::Tool { .. }) => (vec![], Finish::Stop),
            _ => (vec![call], Finish::ToolCalls),
        };
        let usage = Some(TokenUsage { input_tokens: 10, output_tokens: 3 });
        let (id, model, text) = (String::new(), request.model.clone(), MARK.to_owned());
        Box::pin(std::future::ready(Ok(Reply { id, model, text, calls, usage, finish })))
    }

    fn abilities<'a>(&'a self, _: &'a str) -> Pending<'a, Abilities> {
        Box::pin(std::future::ready(Abilities { tools: Some(true), context_tokens: None }))
    }
}

#[derive(Debug)]
struct One;

impl Models for One {
    fn main(&self) -> Result<Model, String> {
        let (name, provider) = ("speaker".to_owned(), Arc::new(Speaker));
        Ok(Model { name, provider, max_tokens: None, temperature: None, context_tokens: None })
    }

    fn profile(&self, _: &str) -> Option<Result<Model, String>> {
        None
    }
}

#[test]
fn a_turn_with_its_requests_and_calls() {
    let (kept, _turn) = collected();
    let root = tempfile::tempdir().unwrap();
    project(root.path(), 1);
    let project = open(root.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = Run::new();
    let session = async {
        let mut session = Session::start(&project, &run, Arc::new(One), Arc::new(Silent)).await.unwrap();
        spans(&kept);
        assert_eq!(session.turn(MARK).await.unwrap().text, MARK);
        session.end().await;
    };
    // Half of the stack that a thread has: a turn's futures are in boxes, or each frame above them would have room for all.
    std::thread::scope(|scope| {
        let small = std::thread::Builder::new().stack_size(1 << 20);
        small.spawn_scoped(scope, || runtime.block_on(session)).unwrap().join().unwrap();
    });
    assert_eq!(
        spans(&kept),
        [
            "turn agent= depth=0 input_tokens=20 outcome=completed output_tokens=6 rounds=1",
            "turn/model input_tokens=10 model=speaker outcome=answered output_tokens=3",
            "turn/call fuel=_ outcome=failed source=tools/fails tool=fails wall_us=_",
            "turn/call/image bytes=_ outcome=loaded source=tools/fails",
            "turn/call/hooks decision=allow event=tool.pre hooks=1",
            "turn/call/hooks/image bytes=_ outcome=loaded source=hooks/guard",
            "turn/call/hooks/admission",
            "turn/call/admission",
            "turn/model input_tokens=10 model=speaker outcome=answered output_tokens=3",
        ]
    );
}
