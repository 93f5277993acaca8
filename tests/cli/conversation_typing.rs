//! What a person types in a conversation: several lines, history, text that is typed while the agent works, commands.

use serde_json::Value as Json;

use crate::agent_turns::agent;
use crate::project::Project;
use crate::pty::Person;
use crate::services::{KEY, Service, Wire};

/// A person at a conversation that has begun.
#[track_caller]
fn talks(project: &Project, arguments: &[&str]) -> Person {
    let mut person = Person::with(project, arguments, &[("HARNESS_TEST_KEY", KEY)]);
    person.sees("/help lists the commands.");
    person.sees("> ");
    person
}

/// A project whose agent asks a service.
fn asks(service: &Service) -> Project {
    let policy = format!(
        "---\nmodel: {{ name: m-1, provider: openai, base_url: 'http://{}', api_key_env: HARNESS_TEST_KEY }}\n---\n",
        service.address
    );
    Project::new().file(".harness/harness.md", &policy)
}

/// The texts of the user in the last request.
fn said(service: &Service) -> Vec<String> {
    let last = service.chats().pop().unwrap().json();
    let users = last["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "user");
    users.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

/// Alt-Enter, Ctrl-J and a backslash break a line; pasted text of several lines is one message.
#[test]
fn a_message_may_have_several_lines() {
    let replies = "- { expect: \"one\\ntwo\", text: First. }\n- { expect: \"three\\nfour\", text: Second. }\n\
                   - { expect: \"five\\nsix\", text: Third. }\n- { expect: \"seven\\neight\", text: Fourth. }\n";
    let project = agent("", replies);
    let mut person = talks(&project, &["run"]);
    for (typed, answer) in [
        ("one\\\rtwo\r", "First."),
        ("three\x1b\rfour\r", "Second."),
        ("five\nsix\r", "Third."),
        ("\x1b[200~seven\reight\x1b[201~\r", "Fourth."),
    ] {
        person.types(typed);
        person.sees(answer);
        person.sees("> ");
    }
    person.types("/quit\r");
    assert_eq!(person.leaves(), 0, "{}", person.seen);
}

/// What is typed during a turn is not shown within what the agent says, and is the next message; so is text of several
/// lines that is pasted then.
#[test]
fn what_is_typed_during_a_turn_is_read_after_it() {
    let half = Wire::Chat.reply(true, "It may use some port or other.", &[]);
    let bytes = half.pieces.concat();
    let at = bytes.windows(3).position(|part| part == b"It ").unwrap();
    let end = at + bytes[at..].iter().position(|byte| *byte == b'\n').unwrap() + 2;
    let next = Wire::Chat.reply(true, "Second answer.", &[]);
    for (typed, expected) in [("And the host?\r", "And the host?"), ("\x1b[200~a\rb\x1b[201~\r", "a\nb")] {
        let service = Service::new(vec![half.clone().cut(end).hanging(), next.clone()]);
        let project = asks(&service);
        let mut person = talks(&project, &["run"]);
        person.types("What port?\r");
        person.sees("It may use some");
        person.types(typed);
        person.interrupts();
        person.sees("stopped");
        let shown = person.seen.split("It may use some").nth(1).unwrap().to_owned();
        assert!(!shown.split("stopped").next().unwrap().contains(typed.trim()), "{shown:?}");
        person.sees("Second ");
        person.sees("> ");
        person.types("\x04");
        assert_eq!(person.leaves(), 0);
        assert_eq!(said(&service), ["What port?", expected]);
    }
}

/// What was typed in one conversation can be had in the next; a session that is not recorded leaves nothing.
#[test]
fn history_lasts() {
    use std::os::unix::fs::PermissionsExt as _;
    let project = agent("", "- { expect: Remember me., text: 'Yes, I do.' }\n");
    let history = project.path(".harness/sessions/history");
    let mut person = talks(&project, &["run", "--no-record"]);
    person.types("/nothing of this\r");
    person.sees("there is no command `/nothing of this`");
    person.sees("> ");
    person.types("\x04");
    assert_eq!(person.leaves(), 0);
    assert!(!history.exists());
    for keys in ["Remember me.\r", "\x1b[A\x1b[A\r"] {
        let mut person = talks(&project, &["run"]);
        person.types(keys);
        person.sees("Yes, I do.");
        person.sees("> ");
        person.types("/quit\r");
        assert_eq!(person.leaves(), 0);
    }
    assert_eq!(
        std::fs::read_to_string(&history).unwrap(),
        "\"Remember me.\"\n\"/quit\"\n\"Remember me.\"\n\"/quit\"\n"
    );
    assert_eq!(std::fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Ctrl-C drops what is typed, and ends the session where it comes again at once.
#[test]
fn ctrl_c_twice_ends_the_session() {
    let project = agent("", "- text: Here.\n");
    let mut person = talks(&project, &["run"]);
    person.types("nothing of this\x03");
    person.sees("Ctrl-C again, Ctrl-D or /quit ends the session");
    person.sees("> ");
    person.types("Are you there?\r");
    person.sees("Here.");
    person.sees("> ");
    person.types("\x03");
    person.sees("Ctrl-C again");
    person.sees("> ");
    person.types("\x03");
    assert_eq!(person.leaves(), 0, "{}", person.seen);
    assert!(person.is_shown_what_it_types(), "the terminal is as it was");
}

/// A window that changes its size changes nothing else.
#[test]
fn a_window_may_be_resized() {
    let project = agent("", "- { expect: a long line, text: Read. }\n");
    let mut person = talks(&project, &["run"]);
    person.types("a long ");
    person.sees("a long ");
    person.resizes(20);
    person.types("line, as long as this one is\r");
    person.sees("Read.");
    person.sees("> ");
    person.types("\x04");
    assert_eq!(person.leaves(), 0);
}

/// The commands that change a conversation do so, and what they did is recorded: it is replayed and resumed.
#[test]
fn commands_change_the_conversation() {
    let policy = "models:\n  - { name: other, provider: script, script: other.yaml }\n";
    let others = "- text: Other here.\n- { expect: Summarize, text: We greeted. }\n- text: Anew.\n";
    let project = agent(policy, "- text: Hi.\n").file("other.yaml", others);
    let mut person = talks(&project, &["run"]);
    let turns = [
        ("Hello.\r", "Hi."),
        ("/model none\r", "no model of the project has the name `none`"),
        ("/model other\r", "model other from now on"),
        ("/model\r", "* other"),
        ("And you?\r", "Other here."),
        ("/context\r", "model other, room for"),
        ("/compact\r", "the summary replaces the conversation"),
        ("/save talk.md\r", "wrote `talk.md`"),
        ("/clear\r", "the conversation is forgotten"),
        ("Again.\r", "Anew."),
        ("/quit now\r", "there is no command `/quit now`; /help lists them"),
    ];
    for (typed, answer) in turns {
        person.types(typed);
        person.sees(answer);
        person.sees("> ");
    }
    person.types("/quit\r");
    person.sees("resumes this conversation");
    assert_eq!(person.leaves(), 0);
    let saved = std::fs::read_to_string(project.path("talk.md")).unwrap();
    let (question, rest) = saved.split_once("\n\n## Agent\n\n").unwrap();
    assert!(question.starts_with("## User\n\nSummarize our conversation so far"), "{saved}");
    assert_eq!(rest, "We greeted.\n\n");
    let replayed = project.run(&["sessions", "replay"]);
    assert_eq!((replayed.code, replayed.err.as_str()), (0, ""), "{replayed}");
    let context: Json = project.run(&["context", "--resume", "latest", "--json"]).json();
    let kept = context["sections"].as_array().unwrap().iter().filter(|section| section["kind"] == "history");
    let kept: Vec<&str> = kept.map(|section| section["text"].as_str().unwrap()).collect();
    assert_eq!(kept, ["Again.", "{\"role\":\"assistant\",\"content\":\"Anew.\"}"], "{context:#}");
}

/// Where a session begins, it says what is talked to.
#[test]
fn a_banner_names_model_project_and_session() {
    let project = agent("", "- text: Hi.\n");
    let mut person = talks(&project, &["run"]);
    person.types("Hello.\r");
    person.sees("Hi.");
    person.sees("> ");
    person.types("/quit\r");
    assert_eq!(person.leaves(), 0);
    let list = project.run(&["sessions", "list", "--json"]).json();
    let name = list[0]["session"].as_str().or_else(|| list[0]["id"].as_str()).unwrap_or_else(|| panic!("{list}"));
    let root = project.root().canonicalize().unwrap();
    let banner = format!(
        "model    script\r\nproject  {}\r\nsession  {name}\r\nType a task; /help lists the commands.\r\n",
        root.display()
    );
    assert!(person.seen.starts_with(&banner), "{banner:?} {:?}", person.seen);
    let mut person = talks(&project, &["run", "--no-record", "--resume", "latest"]);
    assert!(person.seen.contains("session  not recorded\r\n"), "{:?}", person.seen);
    person.types("/quit\r");
    assert_eq!(person.leaves(), 0);
}
