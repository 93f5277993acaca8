//! How a session ends for anyone who ran it: one JSON object whatever happened, signals, exit codes.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};

use crate::agent_turns::{agent, spied, told};
use crate::project::{HARNESS, Project, Ran};
use crate::pty::Person;

const SIGNALS: [(Signal, &str, i32); 3] =
    [(Signal::INT, "SIGINT", 130), (Signal::TERM, "SIGTERM", 143), (Signal::HUP, "SIGHUP", 129)];

/// The object without its usage.
fn object(ran: &Ran) -> Json {
    let mut object = ran.json();
    assert!(object["usage"].take()["input_tokens"].is_u64(), "{ran}");
    object
}

/// A project whose agent notes something, and then waits for an answer that never comes.
fn waiting(server: &TcpListener) -> Project {
    let address = server.local_addr().unwrap();
    let policy = format!("network: {{ allowed_domains: [\"{address}\"] }}\n");
    agent(&policy, "- tool_calls: [{ name: note, args: { text: one } }]\n- tool_calls: [{ name: wait }]\n")
        .tool(
            "note",
            "parameters:\n  text: { type: string }\n",
            "def run(args):\n    log.info('noted ' + args['text'])\n",
        )
        .tool("wait", "", &format!("def run(args):\n    return http.get('http://{address}/')['body']\n"))
}

fn starts(project: &Project, arguments: &[&str]) -> Child {
    project.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Whether the last record of the project is that of a session that ended.
fn is_recorded_as_ended(project: &Project) -> bool {
    project.run(&["sessions", "show", "--json"]).json()["ended"] == true
}

/// Each ends the session in order: its hooks are told, its record has an end, and a program learns what was done.
#[test]
fn a_session_is_ended_by_a_signal() {
    for (number, name, code) in SIGNALS {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let project = spied(waiting(&server), &["session.end"]);
        let child = starts(&project, &["run", "--json", "Note it."]);
        let _connection = server.accept().unwrap();
        signal(&child, number);
        let ran = project.ran(&child.wait_with_output().unwrap());
        assert_eq!(ran.code, code, "{ran}");
        assert_eq!(told(&ran, "session.end"), [Json::Null], "{ran}");
        assert!(ran.err.ends_with(&format!("error: interrupted by {name}\n")), "{ran}");
        let wanted = json!({
            "outcome": "interrupted",
            "error": {"kind": "interrupted", "message": format!("interrupted by {name}")},
            "rounds": 2,
            "calls": [{"name": "note", "args": {"text": "one"}}, {"name": "wait", "args": {}}],
            "usage": null,
            "log": [{"source": "note", "level": "info", "message": "noted one"}],
        });
        assert_eq!(object(&ran), wanted);
        assert!(is_recorded_as_ended(&project), "{name}");
    }
}

/// Also while a hook still decides whether it may begin.
#[test]
fn a_session_is_ended_before_it_has_begun() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let body = format!("http.get('http://{}/')\nreturn allow()", server.local_addr().unwrap());
    let project = waiting(&server).with_handle("slow", "session.start", "", &body);
    for (number, name, code) in SIGNALS {
        let child = starts(&project, &["run", "--json", "Note it."]);
        let _hook = server.accept().unwrap();
        signal(&child, number);
        let ran = project.ran(&child.wait_with_output().unwrap());
        let message = format!("interrupted by {name}");
        let wanted = json!({
            "outcome": "interrupted",
            "error": {"kind": "interrupted", "message": message},
            "rounds": 0,
            "calls": [],
            "usage": null,
            "log": [],
        });
        assert_eq!(
            (ran.code, object(&ran), ran.err.as_str()),
            (code, wanted, &*format!("error: {message}\n")),
            "{ran}"
        );
    }
}

/// Who asks again while the session ends does not want to wait for what its hooks do.
#[test]
fn a_second_signal_ends_the_process_at_once() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let body = format!("http.get('http://{}/')\nreturn allow()", server.local_addr().unwrap());
    let project = waiting(&server).with_handle("slow", "session.end", "", &body);
    for (number, _, code) in SIGNALS {
        let mut child = starts(&project, &["run", "Note it."]);
        let _turn = server.accept().unwrap();
        signal(&child, Signal::TERM);
        let _hook = server.accept().unwrap();
        signal(&child, number);
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
}

/// In a conversation Ctrl-C is for the turn, and the others for the session, also while a person types.
#[test]
fn a_conversation_is_ended_by_a_signal() {
    for (number, _, code) in &SIGNALS[1..] {
        let project = agent("", "- text: Yes.\n");
        let mut person = Person::starts(&project, &["run"]);
        person.sees("> ");
        person.types("Well?\r");
        person.sees("Yes.");
        person.sees("> ");
        person.types("half a l");
        person.sees("half a l");
        person.signals(*number);
        assert_eq!(person.leaves(), *code, "{}", person.seen);
        assert!(person.seen.contains("resumes this conversation"), "{}", person.seen);
        assert!(person.is_shown_what_it_types(), "the terminal is as it was");
        assert!(is_recorded_as_ended(&project));

        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let project = waiting(&server);
        let mut person = Person::starts(&project, &["run"]);
        person.sees("> ");
        person.types("Note it.\r");
        let _connection = server.accept().unwrap();
        person.signals(*number);
        assert_eq!(person.leaves(), *code, "{}", person.seen);
        assert!(is_recorded_as_ended(&project));
    }
}

/// Started to outlive its terminal, it does.
#[test]
fn who_does_not_hear_that_the_terminal_is_gone() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let project = waiting(&server);
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$HARNESS\" run 'Note it.'"]).env("HARNESS", HARNESS);
    shell.current_dir(project.root()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = shell.spawn().unwrap();
    let _connection = server.accept().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    assert_eq!(u64::from_str_radix(ignored.trim(), 16).unwrap() & 1, 1, "{status}");
    signal(&child, Signal::HUP);
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

/// A turn without an answer shows what was done in it.
#[test]
fn a_turn_that_failed_tells_what_was_done() {
    let replies = "- tool_calls: [{ name: note, args: { text: one } }]\n- error: down\n";
    let script = "def run(args):\n    log.info('noted')\n";
    let project = agent("", replies).tool("note", "parameters:\n  text: { type: string }\n", script);
    for arguments in [&["run", "--json", "Go"][..], &["deploy", "--json", "--input", "Go"]] {
        let ran = project.run(arguments);
        let message = ran.err.lines().last().unwrap().strip_prefix("error: ").unwrap();
        let wanted = json!({
            "outcome": "fault",
            "error": {"kind": "completion", "message": message},
            "rounds": 1,
            "calls": [{"name": "note", "args": {"text": "one"}}],
            "usage": null,
            "log": [{"source": "note", "level": "info", "message": "noted"}],
        });
        assert_eq!((ran.code, object(&ran)), (5, wanted), "{ran}");
    }
}

/// Where the agent could not even be asked, a program gets its object too.
#[test]
fn what_was_not_asked_is_told_to_a_program() {
    let broken = Project::new().policy("network: 7\n");
    let fine = agent("", "- text: Yes.\n");
    let wrong =
        (".harness/harness.md:2:10: parse harness.md: yaml: line 2: `network` must be a mapping, found an integer", "");
    let nothing = ("the prompt is empty", "give a prompt: `harness run \"...\"`");
    let missing = (
        "cannot read `missing`: No such file or directory (os error 2)",
        "give the text itself, `@FILE`, or `-` for standard input",
    );
    let unknown = ("there is no session `missing`", "`harness sessions list` lists them");
    let nowhere = ("`none` does not exist", "`-C` names the folder that holds `.harness`");
    for (project, arguments, (message, hint)) in [
        (&broken, &["run", "--json", "Go"][..], wrong),
        (&broken, &["deploy", "--json", "--input", "Go"], wrong),
        (&fine, &["run", "--json", " "], nothing),
        (&fine, &["run", "--json"], nothing),
        (&fine, &["deploy", "--json", "--input", ""], nothing),
        (&fine, &["deploy", "--json", "--input", "@missing"], missing),
        (&fine, &["run", "--json", "--resume", "missing", "Go"], unknown),
        (&fine, &["-C", "none", "run", "--json", "Go"], nowhere),
    ] {
        let ran = project.run(arguments);
        let wanted = json!({
            "outcome": "rejected",
            "error": {"kind": "usage", "message": message, "hint": hint},
            "rounds": 0,
            "calls": [],
            "usage": null,
            "log": [],
        });
        assert_eq!((ran.code, object(&ran)), (2, wanted), "{arguments:?}: {ran}");
        assert!(ran.err.contains("error: "), "{ran}");
    }
    // At a terminal there is no prompt either, and a conversation is not what a program asks for.
    let mut person = Person::starts(&fine, &["run", "--json"]);
    assert_eq!(person.leaves(), 2, "{}", person.seen);
    assert!(person.seen.contains("error: `--json` and `--output` are for one prompt\r\n"), "{}", person.seen);
}

/// `--explain` holds for a conversation as for one prompt, wherever standard error goes.
#[test]
fn a_conversation_is_explained() {
    let replies = "- tool_calls: [{ name: look }]\n- text: It is there.\n";
    let project = agent("", replies).tool("look", "", "def run(args):\n    return 1\n");
    let mut person = Person::tells(&project, &["run", "--explain"], &project.path("told"));
    person.sees("> ");
    person.types("Look.\r");
    person.sees("It is there.");
    person.sees("> ");
    person.types("/quit\r");
    assert_eq!(person.leaves(), 0, "{}", person.seen);
    let told = std::fs::read_to_string(project.path("told")).unwrap();
    assert!(told.contains("calls look {}\n") && told.contains("look completed ("), "{told}");
}

/// What a model says is data in these lines: nothing in it acts on a terminal or is hidden from who looks.
#[test]
fn events_act_on_no_terminal() {
    let said = "a\u{9b}31mred\u{202e}\u{7f}b";
    let project = agent("", "- text: \"a\\u009b31mred\\u202e\\u007fb\"\n");
    let ran = project.run(&["run", "--output", "stream-json", "Go."]);
    let lines: Vec<Json> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text = lines.iter().filter(|line| line["type"] == "text").map(|line| line["text"].as_str().unwrap());
    assert_eq!(text.collect::<String>(), said, "{ran}");
    assert_eq!(lines.last().unwrap()["answer"], said, "{ran}");
    assert!(ran.out.contains("a\\u009b31mred\\u202e\\u007fb"), "{ran}");
    assert!(!ran.out.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')), "{ran}");
}

/// `--output stream-json` prints events as lines while they happen, and the outcome last.
#[test]
fn events_are_printed_as_they_happen() {
    let replies = "- { text: I look., tool_calls: [{ name: look, args: { at: here } }] }\n- text: It is there.\n";
    let project = agent("", replies).tool("look", "", "def run(args):\n    return 'there'\n");
    let ran = project.run(&["run", "--output", "stream-json", "Look."]);
    let lines: Vec<Json> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    kinds.dedup();
    let expected = ["turn", "asked", "text", "call", "called", "asked", "text", "end"];
    assert_eq!((ran.code, ran.err.as_str(), kinds.as_slice()), (0, "", &expected[..]), "{ran}");
    let of = |kind: &str| lines.iter().find(|line| line["type"] == kind).unwrap().clone();
    let call = json!({
        "type": "called", "agent": "", "id": of("call")["id"], "tool": "look", "outcome": "completed", "is_error": false,
        "content": "there",
    });
    assert_eq!(of("called"), call);
    let said = lines.iter().filter(|line| line["type"] == "text").map(|line| line["text"].as_str().unwrap());
    assert_eq!(said.collect::<String>(), "I look.It is there.");
    let end = of("end");
    assert_eq!((&end["outcome"], &end["answer"]), (&json!("completed"), &json!("It is there.")));
    // The other forms, and what they have in common.
    assert_eq!(agent("", replies).run(&["run", "--json", "--output", "json", "Look."]).code, 2);
    let project = agent("", "- error: down\n");
    for (form, length) in [("json", None), ("stream-json", Some(3))] {
        let ran = project.run(&["run", "--output", form, "Look."]);
        if let Some(length) = length {
            assert_eq!(ran.out.lines().count(), length, "{ran}");
        }
        assert!(ran.code == 5 && ran.out.contains("down"), "{ran}");
    }
}

/// Who reads a pipe learns of a call that was denied.
#[test]
fn a_denied_call_is_a_line_in_a_pipe() {
    let replies = "- tool_calls: [{ name: takes }, { name: hidden }]\n- text: I cannot.\n";
    let policy = "tools_policy: { deny: [hidden] }\nsandbox: { fs: { write: [] } }\n";
    let project = agent(policy, replies)
        .tool("takes", "", "def run(args):\n    return fs.write('taken.txt', '')\n")
        .tool("hidden", "", "def run(args):\n    return 1\n");
    let ran = project.run(&["run", "Take."]);
    let lines: Vec<&str> = ran.err.lines().collect();
    assert!(ran.code == 0 && ran.out == "I cannot.\n" && lines.len() == 2, "{ran}");
    assert!(lines[0].starts_with("denied: takes: ") && lines[1].starts_with("denied: hidden: "), "{ran}");
}
