//! Turns that end in the middle, whole, in each wire format: of a stream, by the service and by a person, and of a tool.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::agent_services::project;
use crate::project::{Project, Ran};
use crate::services::{Answer, KEY, Service, WIRES, Wire};

/// The beginning of a streamed reply: its first piece of text, and nothing after it.
fn begun(wire: Wire) -> Answer {
    let whole = wire.reply(true, "It may use some port or other.", &[]);
    let bytes = whole.pieces.concat();
    let at = bytes.windows(3).position(|part| part == b"It ").unwrap();
    let end = at + bytes[at..].iter().position(|byte| *byte == b'\n').unwrap();
    whole.cut(end + if wire == Wire::Ollama { 1 } else { 2 })
}

/// A line of a stream.
fn line(wire: Wire, json: &str) -> Vec<u8> {
    match wire {
        Wire::Ollama => format!("{json}\n").into_bytes(),
        Wire::Chat | Wire::Anthropic => format!("data: {json}\n\n").into_bytes(),
    }
}

/// Runs a turn, and does something once its first text is printed.
fn runs(project: &Project, address: &str, then: impl FnOnce(Pid)) -> Ran {
    let mut command = project.command(&["run", "--output", "stream-json", "What port?"]);
    let child = command.env("HARNESS_TEST_KEY", KEY).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap());
    let mut out = String::new();
    while !out.contains("\"text\",") && printed.read_line(&mut out).unwrap() > 0 {}
    then(Pid::from_child(&child));
    printed.read_to_string(&mut out).unwrap();
    let ended = child.wait_with_output().unwrap();
    let told = |text: &str| text.replace(&format!("http://{address}"), "SERVICE");
    let err = told(&String::from_utf8(ended.stderr).unwrap());
    Ran { code: ended.status.code().unwrap(), out: told(&out), err }
}

/// What a program gets of a turn that had begun to answer.
fn seen(code: i32, outcome: &str, kind: &str, message: &str, said: &str) -> (i32, String, String) {
    let out = format!(
        "{{\"type\":\"turn\",\"agent\":\"\",\"text\":\"What port?\"}}\n\
         {{\"type\":\"asked\",\"agent\":\"\",\"round\":1,\"model\":\"m-1\"}}\n\
         {{\"type\":\"text\",\"agent\":\"\",\"text\":\"It may use some\"}}\n\
         {{\"outcome\":\"{outcome}\",\"error\":{{\"kind\":\"{kind}\",\"message\":\"{message}\"}},{said}\"rounds\":0,\
         \"calls\":[],\"usage\":{{\"input_tokens\":0,\"output_tokens\":0}},\"log\":[],\"type\":\"end\"}}\n"
    );
    (code, out, format!("error: {message}\n"))
}

fn fault(message: &str) -> (i32, String, String) {
    seen(5, "fault", "completion", message, "\"said\":\"It may use some\",")
}

#[test]
fn a_service_breaks_off_in_the_middle_of_a_stream() {
    let reset = "the reply of SERVICE was cut: Connection reset by peer (os error 104)";
    let malformed = "the reply of SERVICE was cut: it ended in the middle of a value";
    let overflow = "the reply of SERVICE cannot be read: a line is longer than 4194304 bytes";
    for (wire, name) in WIRES {
        let (answer, reset_now) = begun(wire).resetting();
        let service = Service::new(vec![answer]);
        let ran = runs(&project(name, &service, ""), &service.address, |_| reset_now());
        assert_eq!((ran.code, ran.out, ran.err), fault(reset), "{name}, reset");

        for (piece, wanted) in
            [("{\"choices\": [".to_owned(), malformed), (format!("{{\"x\":\"{}\"}}", "x".repeat(5 << 20)), overflow)]
        {
            let mut answer = begun(wire);
            answer.pieces.push(line(wire, &piece));
            let service = Service::new(vec![answer]);
            let ran = runs(&project(name, &service, ""), &service.address, |_| ());
            assert_eq!((ran.code, ran.out, ran.err), fault(wanted), "{name}, {wanted}");
        }
    }
}

/// Ctrl-C during a stream that would never end.
#[test]
fn a_person_breaks_off_in_the_middle_of_a_stream() {
    for (wire, name) in WIRES {
        let service = Service::new(vec![begun(wire).hanging()]);
        let project = project(name, &service, "");
        let ran = runs(&project, &service.address, |pid| kill_process(pid, Signal::INT).unwrap());
        let wanted = seen(130, "interrupted", "interrupted", "interrupted by SIGINT", "");
        assert_eq!((ran.code, ran.out, ran.err), wanted, "{name}");
        let shown = project.run(&["sessions", "show", "--json"]).json();
        assert_eq!(
            (&shown["ended"], shown["timeline"][0]["inside"][0]["status"].as_str()),
            (&json!(true), Some("open"))
        );
    }
}

/// Ctrl-C during a tool that would never end: the call ends with its turn.
#[test]
fn a_person_breaks_off_in_the_middle_of_a_tool() {
    for (wire, name) in WIRES {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let service = Service::new(vec![wire.reply(true, "", &[("wait", json!({}))]), wire.reply(true, "Done.", &[])]);
        let project = project(name, &service, "")
            .policy_of(|text| {
                text.replace("model:", &format!("network: {{ allowed_domains: [\"{address}\"] }}\nmodel:"))
            })
            .tool("wait", "", &format!("def run(args):\n    return http.get('http://{address}/')['body']\n"));
        let mut command = project.command(&["run", "--json", "What port?"]);
        let child = command.env("HARNESS_TEST_KEY", KEY).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let _connection = server.accept().unwrap();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let ran = project.ran(&child.wait_with_output().unwrap());
        let mut object = ran.json();
        assert!(object["usage"].take()["input_tokens"].is_u64(), "{ran}");
        let wanted = json!({
            "outcome": "interrupted",
            "error": {"kind": "interrupted", "message": "interrupted by SIGINT"},
            "rounds": 1,
            "calls": [{"name": "wait", "args": {}}],
            "usage": null,
            "log": [],
        });
        assert_eq!((ran.code, object, ran.err.as_str()), (130, wanted, "error: interrupted by SIGINT\n"), "{name}");
        assert_eq!(service.chats().len(), 1, "{name}");
        assert_eq!(project.run(&["sessions", "show", "--json"]).json()["ended"], true, "{name}");
    }
}
