//! Calls that end with their request, and with them every process that they have started.
//!
//! The command and what it started hold one end of a pipe. The other end says when the last of them is gone.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::process::Signal;
use serde_json::json;

use crate::client::{Client, audited, meta};
use crate::project::{FINE, Project};
use crate::web::Web;

/// A command with a child, a grandchild in a session of its own, and one that ignores what would end it.
const STARTS: &str = "\
exec > pipe
sleep 600 &
setsid sh -c \"trap '' TERM HUP INT; (sleep 600 & wait) & wait\" &
(trap '' TERM HUP INT; setsid setsid sleep 600 &)
echo begun
wait
";

/// A project with a command that starts others, and its pipe.
fn project() -> (Project, File) {
    let script = "def run(args):\n    exec.run('sh', ['-c', args['script']])\n";
    let policy =
        "sandbox:\n  fs: { read: [.], write: [.] }\n  exec: { allow: [sh] }\n  limits: { timeout_ms: 600000 }\n";
    let front = "parameters:\n  script: { type: string, required: true }\ntimeout_ms: 600000\n";
    let project = Project::new().policy(policy).tool("it", front, script).tool("fine", "", FINE);
    mknodat(CWD, project.path("pipe"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    let flags = OFlags::NONBLOCK.bits().try_into().unwrap();
    let pipe = File::options().read(true).custom_flags(flags).open(project.path("pipe")).unwrap();
    (project, pipe)
}

fn read(pipe: &mut File) -> Option<String> {
    let mut bytes = [0; 64];
    match pipe.read(&mut bytes) {
        Ok(count) => Some(String::from_utf8(bytes[..count].to_vec()).unwrap()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

/// Waits until the command has started all of its processes. Before it has opened the pipe, there is nothing to read.
fn wait_until_begun(pipe: &mut File) {
    while read(pipe).is_none_or(|text| text.is_empty()) {
        std::thread::yield_now();
    }
    // The control: they are there.
    assert_eq!(read(pipe), None);
}

/// Waits until the pipe has ended: nobody holds its other end any more.
fn wait_until_gone(pipe: &mut File) {
    while read(pipe).is_none() {
        std::thread::yield_now();
    }
}

fn call() -> serde_json::Value {
    let params = json!({"name": "it", "arguments": {"script": STARTS}, "_meta": meta()});
    json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
}

fn abandoned(project: &Project) {
    let outcomes: Vec<_> = audited(project).iter().map(|entry| entry["outcome"].clone()).collect();
    assert_eq!(outcomes, ["abandoned"]);
}

#[test]
fn a_canceled_call_leaves_no_process() {
    let (project, mut pipe) = project();
    let mut client = Client::start(&project, &[]);
    client.send(&call());
    wait_until_begun(&mut pipe);
    // Another request changes nothing of it.
    assert!(client.modern("tools/list", json!({}))["result"]["tools"].is_array());
    assert_eq!(read(&mut pipe), None);
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}));
    wait_until_gone(&mut pipe);
    assert_eq!(client.text("fine", json!({})), ("fine".to_owned(), false));
}

#[test]
fn the_end_of_standard_input_leaves_no_process() {
    let (project, mut pipe) = project();
    let mut client = Client::start(&project, &[]);
    client.send(&call());
    wait_until_begun(&mut pipe);
    let (rest, code, err) = client.end();
    wait_until_gone(&mut pipe);
    assert_eq!((code, err.as_str()), (0, ""), "{rest:?}");
    abandoned(&project);
}

#[test]
fn a_closed_connection_leaves_no_process() {
    let (project, mut pipe) = project();
    let web = Web::open(&project);
    let stream = web.begin_with("it", json!({"script": STARTS}));
    wait_until_begun(&mut pipe);
    assert!(web.lists(&[]));
    assert_eq!(read(&mut pipe), None);
    drop(stream);
    wait_until_gone(&mut pipe);
    assert!(web.lists(&[]));
}

#[test]
fn a_signal_to_the_server_leaves_no_process() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let (project, mut pipe) = project();
        let web = Web::open(&project);
        let _stream = web.begin_with("it", json!({"script": STARTS}));
        wait_until_begun(&mut pipe);
        web.signal(signal);
        wait_until_gone(&mut pipe);
    }
}
