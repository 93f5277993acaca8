//! Servers of other programs that are after the project whose gateway has started them: its files and secrets, other
//! servers, the host's process, what a person reads, and what a model is told of a tool.
//!
//! A server is a shell script in the workspace. It is locked as it should be, or tried to be, and then does something
//! else, by functions that a file beside it overrides. Each case runs the binary. The control is the same server, or
//! what it should have done.
//!
//! - `answers`: lines that break the protocol, floods, answers that nobody asked for
//! - `drift`: definitions that are no longer what was locked
//! - `listings`: definitions that must not be locked
//! - `processes`: what a server's process tries on the machine
//! - `texts`: names, characters and secrets in what a server says

use std::fmt::Debug;

use serde_json::{Value as Json, json};

use crate::client::{Client, audited};
use crate::corpus::Coded;
use crate::process::lingering;
use crate::project::{Project, Ran};

#[path = "servers/answers.rs"]
mod answers;
#[path = "servers/drift.rs"]
mod drift;
#[path = "servers/listings.rs"]
mod listings;
#[path = "servers/processes.rs"]
mod processes;
#[path = "servers/texts.rs"]
mod texts;

pub(crate) const CASES: &[&[Coded]] = &[drift::CASES, listings::CASES, answers::CASES, processes::CASES, texts::CASES];

/// How a case ends: in a few words, or what was wrong.
type Ended = Result<String, String>;

/// Cases by their numbers: what is tried, the attempt, and the control.
macro_rules! cases {
    ($($id:literal $tried:literal: $run:expr, $control:expr;)*) => {
        &[$(Coded { id: concat!("servers-", $id), tried: $tried, run: |_, _| $run, control: |_, _| $control }),*]
    };
}
use cases;

/// A server of the newest revision. The file `evil` beside it overrides what it does.
const SCRIPT: &str = r#"cd "$HARNESS_WORKSPACE"
d=$HARNESS_WORKSPACE/docs
say() { printf '%s\n' "$1"; }
put() { printf '{"jsonrpc":"2.0","id":%s,"result":' "$1"; cat "$d/$2"; printf '}\n'; }
refuse() { printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$1"; }
text() { printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}\n' "$1" "$2"; }
plain() { tr -c 'A-Za-z0-9 ._/:=,-' ' '; }
note() { printf '{"jsonrpc":"2.0","method":"%s","params":{}}\n' "$1"; }
discover() { put "$id" discover; }
begin() { put "$id" begin; }
list() { put "$id" list; }
call() { put "$id" result; }
if [ -e "$d/evil" ]; then . "$d/evil"; fi
while IFS= read -r line; do
  id=${line#*'"id":'}
  id=${id%%,*}
  case $line in
    *'"method":"server/discover"'*) discover ;;
    *'"method":"initialize"'*) begin ;;
    *'"method":"tools/list"'*) list ;;
    *'"method":"tools/call"'*) call ;;
  esac
done
"#;

/// The older era: the newest revision is not known to it.
const LEGACY: &str = "discover() { refuse \"$id\"; }\n";

/// A project with the server `s`.
struct Evil(Project);

/// The definition of the tool that is called.
fn echo() -> Json {
    json!({
        "name": "echo", "title": "Echo", "description": "Says it again.",
        "inputSchema": {
            "type": "object", "required": ["text"],
            "properties": {"text": {"type": "string", "maxLength": 10_000_000}, "more": {"type": "integer"}},
        },
        "annotations": {"readOnlyHint": true, "destructiveHint": false},
        "icons": [{"src": "https://a.example/icon.png"}], "_meta": {"com.example/a": [1, {"b": null}]},
    })
}

/// Another one, of which more is promised, and which may destroy.
fn sum() -> Json {
    json!({
        "name": "sum", "description": "Adds.", "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        "annotations": {"destructiveHint": true},
    })
}

fn plain(name: &str) -> Json {
    json!({"name": name, "description": "Plain.", "inputSchema": {"type": "object"}})
}

fn result() -> Json {
    json!({"content": [{"type": "text", "text": "hello"}]})
}

impl Evil {
    fn new() -> Self {
        Self::with("", "")
    }

    /// With further keys of the server, and lines of the policy before it.
    fn with(keys: &str, policy: &str) -> Self {
        let project = Project::new();
        let root = project.root().canonicalize().unwrap();
        let command = json!(["sh", root.join("docs/server.sh")]);
        let server = format!("    s: {{ command: {command}, fs: {{ read: [docs] }}{keys} }}\n");
        let project = project.policy(&format!("{policy}mcp:\n  servers:\n{server}"));
        let new = Self(project.file("docs/server.sh", SCRIPT).file("src/secret.txt", crate::process::CANARY));
        new.set("discover", &json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}));
        new.set("begin", &json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}));
        new.set("list", &json!({"tools": [echo(), sum()]}));
        new.set("result", &result());
        new
    }

    /// With variables of a key, and limits that end a call soon.
    fn brief() -> Self {
        Self::with(", limits: { timeout_ms: 1500 }", "")
    }

    fn set(&self, file: &str, value: &Json) {
        self.0.write(&format!("docs/{file}"), &value.to_string());
    }

    /// What it does otherwise, as functions of its script.
    fn does(self, script: &str) -> Self {
        self.0.write("docs/evil", script);
        self
    }

    fn lists(self, tools: &[Json]) -> Self {
        self.set("list", &json!({"tools": tools}));
        self
    }

    /// Locks it as it is now.
    fn locked(self) -> Self {
        let ran = self.0.run(&["lock"]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran}");
        self
    }

    fn call(&self) -> Ran {
        self.call_of("s_echo", &json!({"text": "x"}))
    }

    fn call_of(&self, tool: &str, arguments: &Json) -> Ran {
        self.0.run_loaded(&["call", tool, "--args", &arguments.to_string()])
    }

    /// The outcomes in the audit log.
    fn outcomes(&self) -> Vec<String> {
        audited(&self.0).iter().map(|entry| entry["outcome"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

fn held(is_held: bool, what: impl Debug) -> Ended {
    if is_held { Ok("held".to_owned()) } else { Err(format!("ESCAPE: {what:?}")) }
}

fn works(is_fine: bool, what: impl Debug) -> Ended {
    if is_fine { Ok("works".to_owned()) } else { Err(format!("it does not work: {what:?}")) }
}

/// A server that is locked, and then does this when it is called: the call fails so, and nothing of it is left.
fn fails(evil: Evil, script: &str, code: i32, why: &str) -> Ended {
    let evil = evil.locked().does(script);
    let ran = evil.call();
    let is_refused = ran.code == code && ran.err.contains(why) && ran.out.is_empty();
    let left = lingering();
    let outcomes = evil.outcomes();
    let is_completed = outcomes.iter().any(|outcome| outcome == "completed");
    held(is_refused && left.is_empty() && !is_completed, (ran, left, outcomes))
}

/// The same server gives this.
fn gives(evil: Evil, script: &str, out: &str) -> Ended {
    let ran = evil.locked().does(script).call();
    works(ran.code == 0 && ran.out == format!("{out}\n"), ran)
}

/// What it does changes nothing for its caller.
fn ignored(evil: Evil, script: &str) -> Ended {
    let evil = evil.locked().does(script);
    let ran = evil.call();
    let left = lingering();
    held(ran.code == 0 && ran.out == "hello\n" && ran.err.is_empty() && left.is_empty(), (ran, left))
}

/// The server without anything evil.
fn fine() -> Ended {
    gives(Evil::new(), "", "hello")
}

/// The most memory that a process has had, in KiB.
fn peak(client: &Client) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", client.process())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn hides(text: &str) -> bool {
    text.chars().any(|c| c != '\n' && harness_policy::text::is_hidden(c))
}
