//! Kinds of streams, lines, identifiers, cancellation and the end of a stream.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use serde_json::{Value as Json, json};

use crate::client::{Client, audited, meta};
use crate::project::{FINE, Project};

/// A tool that computes until it is stopped.
pub(crate) const ENDLESS: &str = "def run(args):\n    fs.write('began', '')\n    for i in range(1000000000):\n        for j in range(1000000000):\n            pass\n";

pub(crate) fn endless() -> Project {
    let policy = "sandbox:\n  fs: { write: [began] }\n  limits: { timeout_ms: 600000, fuel: 1000000000000 }\n";
    Project::new().policy(policy).tool("endless", "timeout_ms: 600000\n", ENDLESS).tool("it", "", FINE)
}

/// Waits until the script of an `endless` call runs, and forgets it, for the next one.
pub(crate) fn wait_until_begun(project: &Project) {
    while std::fs::remove_file(project.path("began")).is_err() {
        std::thread::yield_now();
    }
}

fn call(id: &Json, tool: &str) -> Json {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"_meta": meta(), "name": tool}})
}

fn cancel(id: &Json) -> Json {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

/// Asks at one end of a stream a server that has the other for both of its own: what it answers, with its exit code.
fn asked(project: &Project, ours: impl Into<OwnedFd>, theirs: impl Into<OwnedFd>) -> (Json, Option<i32>) {
    let (mut ours, theirs) = (File::from(ours.into()), theirs.into());
    let mut command = project.command(&["mcp", "serve"]);
    let mut child = command.stdin(theirs.try_clone().unwrap()).stdout(Stdio::from(theirs)).spawn().unwrap();
    // What the command holds of the stream would keep it open.
    drop(command);
    writeln!(ours, "{}", call(&json!(1), "it")).unwrap();
    let mut answer = String::new();
    BufReader::new(&ours).read_line(&mut answer).unwrap();
    drop(ours);
    (serde_json::from_str(&answer).unwrap(), child.wait().unwrap().code())
}

/// Pipes are what all other tests have.
#[test]
fn a_socket_a_terminal_and_files_are_served_as_pipes_are() {
    let project = Project::with_script(FINE);
    let mut client = Client::start(&project, &[]);
    client.send(&call(&json!(1), "it"));
    let want = client.receive();
    assert_eq!(want["result"]["content"], json!([{"type": "text", "text": "fine"}]));

    let (ours, theirs) = UnixStream::pair().unwrap();
    assert_eq!(asked(&project, ours, theirs), (want.clone(), Some(0)));

    // As it is where a program types there.
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let inside = ioctl_tiocgptpeer(&terminal, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    let mut modes = tcgetattr(&inside).unwrap();
    modes.make_raw();
    tcsetattr(&inside, OptionalActions::Now, &modes).unwrap();
    assert_eq!(asked(&project, terminal, inside), (want.clone(), Some(0)));

    let (questions, answers) = (project.path("questions"), project.path("answers"));
    std::fs::write(&questions, format!("{}\n", json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))).unwrap();
    let mut command = project.command(&["mcp", "serve"]);
    command.stdin(File::open(&questions).unwrap()).stdout(File::create(&answers).unwrap());
    assert_eq!(command.status().unwrap().code(), Some(0));
    assert_eq!(std::fs::read_to_string(&answers).unwrap(), "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n");
}

/// More than a pipe holds: what waits is overtaken by nothing, and each line is whole.
#[test]
fn a_client_that_reads_late_gets_every_answer() {
    const REQUESTS: usize = 40;
    let mut client = Client::of(Project::with_script("def run(args):\n    return args['x'] * 2000\n"));
    for id in 0..REQUESTS {
        let mut message = call(&json!(id), "it");
        message["params"]["arguments"] = json!({"x": format!("<{id:08}>")});
        client.send(&message);
    }
    let mut seen = [false; REQUESTS];
    for _ in 0..REQUESTS {
        let answer = client.receive();
        let id = usize::try_from(answer["id"].as_u64().unwrap()).unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], format!("<{id:08}>").repeat(2_000), "{id}");
        assert!(!std::mem::replace(&mut seen[id], true), "{id} was answered twice");
    }
    client.send(&call(&json!("after"), "it"));
    assert_eq!(client.receive()["id"], "after");
}

#[test]
fn a_line_that_is_no_message_has_an_answer() {
    let mut client = Client::of(Project::with_script(FINE));
    for (line, id, code) in [
        ("nonsense", Json::Null, -32700),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,", Json::Null, -32700),
        ("[]", Json::Null, -32600),
        ("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", Json::Null, -32600),
        ("{\"id\":4}", json!(4), -32600),
        ("{\"jsonrpc\":\"1.0\",\"id\":\"a\",\"method\":\"ping\"}", json!("a"), -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", Json::Null, -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"nothing\"}", json!(5), -32601),
    ] {
        client.line(line);
        let answer = client.receive();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{line}: {answer}");
    }
    client.line(&"[".repeat(100_000));
    assert_eq!(client.receive()["error"]["code"], -32700);
    // Blank lines are none, and the next request is answered.
    client.line("\n  \n");
    assert_eq!(client.text("it", json!({})), ("fine".to_owned(), false));
}

#[test]
fn a_line_that_is_too_long_is_answered_and_the_longest_one_is_read() {
    let mut client = Client::of(Project::with_script("def run(args):\n    return len(args['x'])\n"));
    let most = 4 << 20;
    let mut message = call(&json!(1), "it");
    message["params"]["arguments"] = json!({"x": ""});
    let room = most - message.to_string().len();
    message["params"]["arguments"]["x"] = json!("y".repeat(room));
    assert_eq!(message.to_string().len(), most);
    client.send(&message);
    let answer = client.receive();
    assert_eq!(answer["id"], 1);
    assert!(answer["error"].is_null(), "{answer}");
    message["params"]["arguments"]["x"] = json!("y".repeat(room + 1));
    client.send(&message);
    let answer = client.receive();
    let want = json!({"code": -32600, "message": "a message has 4194304 bytes at most"});
    assert_eq!((&answer["id"], &answer["error"]), (&json!(1), &want));
    assert_eq!(client.text("it", json!({"x": "abc"})), ("3".to_owned(), false));
}

#[test]
fn an_identifier_in_use_is_refused_until_its_request_is_answered() {
    let mut client = Client::of(endless());
    let id = json!("one");
    client.send(&call(&id, "endless"));
    client.send(&call(&id, "it"));
    let answer = client.receive();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-32600)), "{answer}");
    // Of a canceled request it stays in use: its answer may be on its way.
    client.send(&cancel(&id));
    client.send(&call(&id, "it"));
    assert_eq!(client.receive()["error"]["code"], -32600);
    // Of an answered one it is free.
    for _ in 0..3 {
        client.send(&call(&json!("two"), "it"));
        assert_eq!(client.receive()["result"]["isError"], false);
    }
}

#[test]
fn a_request_beyond_the_most_at_one_time_is_refused() {
    let mut client = Client::of(endless());
    for id in 0..64 {
        client.send(&call(&json!(id), "endless"));
    }
    client.send(&call(&json!(64), "it"));
    let answer = client.receive();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(64), &json!(-32000)), "{answer}");
    // With one less there is room.
    client.send(&cancel(&json!(0)));
    client.send(&json!({"jsonrpc": "2.0", "id": 65, "method": "ping"}));
    assert_eq!(client.receive()["id"], 65);
    for id in 1..64 {
        client.send(&cancel(&json!(id)));
    }
    client.send(&call(&json!(66), "it"));
    let answer = client.receive();
    assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!(66), &json!(false)), "{answer}");
}

#[test]
fn a_canceled_call_ends_and_has_no_answer() {
    let project = endless();
    let mut client = Client::start(&project, &[]);
    client.send(&call(&json!(1), "endless"));
    wait_until_begun(&project);
    client.send(&cancel(&json!(1)));
    client.send(&call(&json!(2), "it"));
    assert_eq!(client.receive()["id"], 2);
    // An end of input would end the call as well: the entry is there before.
    let is_abandoned = |entry: &Json| entry["tool"] == "endless" && entry["outcome"] == "abandoned";
    while !audited(&project).iter().any(is_abandoned) {}
    let (rest, code, err) = client.end();
    assert_eq!((rest, code, err), (vec![], 0, String::new()));
}

#[test]
fn the_end_of_input_ends_calls_and_answers_other_requests() {
    let project = endless();
    let mut client = Client::start(&project, &[]);
    client.send(&call(&json!(1), "it"));
    assert_eq!(client.receive()["id"], 1);
    client.send(&call(&json!(2), "endless"));
    wait_until_begun(&project);
    client.send(&json!({"jsonrpc": "2.0", "id": 3, "method": "ping"}));
    let (mut rest, code, err) = client.end();
    rest.sort_by_key(|answer| answer["id"].as_i64());
    assert_eq!((code, err), (0, String::new()));
    assert_eq!(rest.len(), 2, "{rest:?}");
    assert_eq!((&rest[0]["id"], &rest[0]["error"]["code"]), (&json!(2), &json!(-32603)));
    assert_eq!((&rest[1]["id"], &rest[1]["result"]), (&json!(3), &json!({})));
    let outcomes: Vec<Json> = audited(&project).iter().map(|entry| entry["outcome"].clone()).collect();
    assert_eq!(outcomes, ["completed", "abandoned"]);
}

/// A command and what it has started hold a pipe. It is at its end when all of them are gone.
fn commands_end_with_their_call(end: impl FnOnce(&mut Client)) {
    let script = "def run(args):\n    exec.run('sh', ['-c', 'exec 3>pipe; echo begun >&3; sleep 1000 & sleep 1000'])\n";
    let project =
        Project::with_script(script).policy("sandbox:\n  fs: { read: [.], write: [pipe] }\n  exec: { allow: [sh] }\n");
    let pipe = project.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut client = Client::start(&project, &[]);
    client.send(&call(&json!(1), "it"));
    let mut pipe = std::io::BufReader::new(std::fs::File::open(&pipe).unwrap());
    let mut line = String::new();
    pipe.read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    end(&mut client);
    assert_eq!(pipe.read_line(&mut line).unwrap(), 0);
}

#[test]
fn commands_end_with_a_canceled_call() {
    commands_end_with_their_call(|client| client.send(&cancel(&json!(1))));
}

#[test]
fn commands_end_with_the_input() {
    commands_end_with_their_call(Client::close_input);
}

#[test]
fn a_project_that_cannot_be_opened_is_not_served() {
    let project = Project::new().file(".harness/tools/bad.md", "---\nscript: [\n---\n");
    let ran = project.run_with_input(&["mcp", "serve"], "");
    assert!(ran.code == 2 && ran.out.is_empty() && ran.err.contains("bad.md"), "{ran}");
    Project::with_script(FINE).run_with_input(&["mcp", "serve"], "").gives_nothing();
}
