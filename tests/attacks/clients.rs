//! Clients of the Model Context Protocol that are after the project behind `harness mcp serve`: its files, its secrets,
//! tools that they may not call, calls without the confirmation of a person, and the server itself.
//!
//! Each case starts the binary, as a client does. The control is the same with what is allowed.
//!
//! - `lines`: messages over standard input, their identifiers, and numbers of them
//! - `names`: names of tools, and what is printed of names that clients choose
//! - `reads`: resources, prompts, cursors and completion
//! - `sealed`: what the server gives a client to send back, and answers of people
//! - `web`: requests over HTTP

use std::fmt::Debug;

use serde_json::{Value as Json, json};

use crate::client::{Client, audited, meta};
use crate::corpus::Coded;
use crate::process::CANARY;
use crate::project::Project;

#[path = "clients/lines.rs"]
mod lines;
#[path = "clients/names.rs"]
mod names;
#[path = "clients/reads.rs"]
mod reads;
#[path = "clients/sealed.rs"]
mod sealed;
#[path = "clients/web.rs"]
mod web;

pub(crate) const CASES: &[&[Coded]] = &[lines::CASES, names::CASES, reads::CASES, sealed::CASES, web::CASES];

/// How a case ends: in a few words, or what was wrong.
type Ended = Result<String, String>;

/// Cases by their numbers: what is tried, the attempt, and the control.
macro_rules! cases {
    ($($id:literal $tried:literal: $run:expr, $control:expr;)*) => {
        &[$(Coded { id: concat!("clients-", $id), tried: $tried, run: |_, _| $run, control: |_, _| $control }),*]
    };
}
use cases;

/// What a message of the newest revision ends with.
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

const POLICY: &str = "\
sandbox:
  services: [cache, clock, prompt, ask_user]
  secrets: { TOKEN: { env: HARNESS_TEST_SECRET, hosts: [example.com] } }
tools_policy: { deny: [hidden], confirm: [risky] }
mcp:
  resources: [\"docs/**\", \".env\"]
  templates: [\"notes/{name}.md\"]
";

/// A project whose files hold what no client may see.
fn project() -> Project {
    let echo = "def run(args):\n    return args['text']\n";
    let form = "def run(args):\n    schema = {'type': 'object', 'properties': {'n': {'type': 'integer'}}, 'required': ['n']}\n    return ask.user('How many?', schema, key='n')\n";
    let skill = "---\nname: write\ndescription: Writes.\narguments:\n  about: { required: true }\n---\n![]({{about}})\n\nAbout {{about}}.\n";
    Project::new()
        .policy(POLICY)
        .tool("echo", "parameters:\n  text: { type: string, required: true, x-mcp-header: Text }\n", echo)
        .tool("wait", "", "def run(args):\n    fs.write('begun', 'x')\n    sleep(600000)\n")
        .tool("form", "", form)
        .tool("steps", "", "def run(args):\n    progress(1)\n    return 1\n")
        .tool("hidden", "", "def run(args):\n    return 'hidden'\n")
        .tool("risky", "parameters:\n  text: { type: string }\n", "def run(args):\n    return 'risky'\n")
        .file(".harness/skills/write/SKILL.md", skill)
        .file("docs/guide.md", "guide")
        .file("notes/a.md", "note")
        .file("plain.txt", "plain")
        .file(".env", CANARY)
        .file("agents/team.md", CANARY)
}

/// A message of the newest revision, of JSON text so that it can be wrong in any way.
fn message(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{META}}}}}"#)
}

/// A call of `echo`.
fn echo(id: &str) -> String {
    message(id, "tools/call", r#""name":"echo","arguments":{"text":"a"},"#)
}

/// Sends a line, and returns what comes before the answer to a line after it.
fn say(client: &mut Client, line: &[u8]) -> Vec<Json> {
    client.bytes(&[line, b"\n"].concat());
    until_answered(client)
}

fn until_answered(client: &mut Client) -> Vec<Json> {
    client.line(r#"{"jsonrpc":"2.0","id":"after","method":"ping"}"#);
    std::iter::from_fn(|| Some(client.receive()).filter(|message| message["id"] != "after")).collect()
}

/// The answer to a request.
fn answer(client: &mut Client, line: &str) -> Json {
    client.line(line);
    client.receive()
}

/// A request of a client with these capabilities.
fn ask(client: &mut Client, method: &str, params: Json, capabilities: &Json) -> Json {
    let mut params = params;
    params["_meta"] = meta();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
    client.request(method, params)
}

fn held(is_held: bool, what: impl Debug) -> Ended {
    if is_held { Ok("held".to_owned()) } else { Err(format!("ESCAPE: {what:?}")) }
}

fn works(is_fine: bool, what: impl Debug) -> Ended {
    if is_fine { Ok("works".to_owned()) } else { Err(format!("it does not work: {what:?}")) }
}

/// Calls that a tool has completed.
fn completed(project: &Project) -> usize {
    audited(project).iter().filter(|entry| entry["outcome"] == "completed").count()
}

fn codes(messages: &[Json]) -> Vec<Option<i64>> {
    messages.iter().map(|message| message["error"]["code"].as_i64()).collect()
}

/// A line that is refused with this code, or gets no answer. Nothing is called, and the next line is answered.
fn refused(line: &[u8], code: Option<i64>) -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    client.bytes(&[line, b"\n"].concat());
    let mut messages: Vec<Json> = code.iter().map(|_| client.receive()).collect();
    messages.extend(until_answered(&mut client));
    let (rest, exit, _) = client.end();
    messages.extend(rest);
    let wanted: Vec<Option<i64>> = code.into_iter().map(Some).collect();
    held(codes(&messages) == wanted && exit == 0 && completed(&project) == 0, (messages, completed(&project)))
}

/// A line that is a request, and gets a result.
fn answered(line: &str) -> Ended {
    let project = project();
    let result = answer(&mut Client::start(&project, &[]), line);
    works(result["result"].is_object() && result["result"]["isError"] != true, result)
}

/// The same over all of these lines.
fn all_refused(lines: &[String], code: Option<i64>) -> Ended {
    lines.iter().try_fold(String::new(), |_, line| {
        refused(line.as_bytes(), code).map_err(|wrong| format!("{}: {wrong}", line.get(..200).unwrap_or(line)))
    })
}

/// The code of what a request of the newest revision gets, and whether the canary is in it.
fn code(client: &mut Client, method: &str, params: Json) -> (Option<i64>, bool) {
    let answer = ask(client, method, params, &json!({}));
    (answer["error"]["code"].as_i64(), answer.to_string().contains(CANARY))
}
