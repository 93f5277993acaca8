//! A conversation at a terminal: what is typed, what is shown while it comes, Ctrl-C, the commands, the end.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::agent_turns::agent;
use crate::project::{HARNESS, Project};
use crate::services::{KEY, Service, WIRES};

/// How long something that will come may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A person at a terminal. `script` is the terminal: it gives what is typed to the program through one of the kernel's.
struct Person {
    child: Child,
    keys: ChildStdin,
    shown: Receiver<Vec<u8>>,
    /// All that was shown and not yet waited for.
    screen: String,
}

impl Person {
    fn at(project: &Project, line: &str) -> Self {
        let mut command = Command::new("script");
        // The program takes the shell's place, so that Ctrl-C is told to it alone.
        let line = &format!("exec {line}");
        command.args(["--quiet", "--return", "--flush", "--command", line, "/dev/null"]);
        command
            .current_dir(project.root())
            .env("HARNESS", HARNESS)
            .env("HARNESS_TEST_KEY", KEY)
            .env("NO_COLOR", "1")
            .env("SHELL", "/bin/sh");
        command.env("TERM", "xterm-256color").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (keys, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (send, shown) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read) = output.read(&mut buffer) {
                if read == 0 || send.send(buffer[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, shown, screen: String::new() }
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until something is shown. Gives what was shown up to its end.
    #[track_caller]
    fn sees(&mut self, wanted: &str) -> String {
        loop {
            if let Some(at) = self.screen.find(wanted) {
                let rest = self.screen.split_off(at + wanted.len());
                return std::mem::replace(&mut self.screen, rest);
            }
            match self.shown.recv_timeout(PATIENCE) {
                Ok(bytes) => self.screen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("wanted `{wanted}`, saw: {:?}", self.screen),
            }
        }
    }

    /// Types a line at the next prompt.
    #[track_caller]
    fn says(&mut self, line: &str) {
        self.sees("> ");
        self.types(&format!("{line}\r"));
    }

    /// Waits for the end. Gives the exit code and what else was shown.
    fn leaves(mut self) -> (i32, String) {
        let code = self.child.wait().unwrap().code().unwrap();
        while let Ok(bytes) = self.shown.recv_timeout(PATIENCE) {
            self.screen.push_str(&String::from_utf8_lossy(&bytes));
        }
        (code, self.screen)
    }
}

const READ: &str = "def run(args):\n    return fs.read(args['path'])\n";

#[test]
fn a_conversation_with_commands_editing_and_history() {
    let replies = "- tool_calls: [{ name: read_file, args: { path: config.yaml } }]\n\
                   - expect: 'port: 8080'\n  text: It uses port 8080.\n\
                   - { expect: What port?, text: Still 8080. }\n";
    let project = agent("", replies)
        .tool("read_file", "parameters:\n  path: { type: string, required: true }\n", READ)
        .with_handle("quiet", "turn.start", "", "return allow()")
        .file(".harness/agents/helper.md", "---\ndescription: Helps.\n---\nYou help.\n")
        .file("config.yaml", "port: 8080\n");
    let mut person = Person::at(&project, "\"$HARNESS\" run");
    person.sees("/help lists the commands");
    for (command, answer) in [
        ("/help", "Ctrl-C stops a turn"),
        ("/tools", "read_file"),
        ("/hooks", "quiet"),
        ("/agents", "helper"),
        ("/usage", "tokens"),
        ("/nonsense", "there is no command /nonsense"),
    ] {
        person.says(command);
        person.sees(answer);
    }
    // One letter wrong, taken back.
    person.says("What porx\u{7f}t?");
    person.sees("calls read_file {\"path\":\"config.yaml\"}");
    person.sees("It uses port 8080.");
    // Ctrl-C at the prompt drops the line; the line before is had again with a key.
    person.sees("> ");
    person.types("nothing of this\u{3}");
    person.says("\u{1b}[A");
    person.sees("Still 8080.");
    // There are no more replies: the turn fails, and the conversation continues.
    person.says("And now?");
    person.sees("error: ");
    person.says("/quit");
    assert_eq!(person.leaves().0, 0);
}

/// What is listed is what the model is offered: nothing that the policy denies, what the run has added, the host's own. So
/// it is with hooks.
#[test]
fn the_tools_of_a_conversation_are_those_that_the_agent_may_call() {
    let added = "def run(args):\n    meta.register_tool('added', 'Added.', {}, 'def run(args):\\n    return 1\\n')\n    \
                 meta.register_hook('looks', 'tool.pre', 'def handle(event, payload):\\n    return allow()\\n')\n    return 1\n";
    let policy = "meta: { enabled: true }\ntools_policy: { deny: [hidden, delegate_async] }\n";
    let project = agent(policy, "- tool_calls: [{ name: adds }]\n- text: It is added.\n")
        .tool("adds", "", added)
        .tool("hidden", "", "def run(args):\n    return 1\n")
        .with_handle("guard", "turn.start", "", "return allow()")
        .file(".harness/agents/helper.md", "---\ndescription: Helps.\n---\nYou help.\n");
    let mut person = Person::at(&project, "\"$HARNESS\" run");
    let tools = |person: &mut Person| -> Vec<String> {
        person.types("/tools\r");
        let shown = person.sees("delegate_await") + &person.sees("> ");
        let name = |line: &&str| !line.is_empty() && line.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        shown.lines().map(str::trim).filter(name).map(str::to_owned).collect()
    };
    let own = ["delegate", "delegate_status", "delegate_await"];
    person.sees("> ");
    assert_eq!(tools(&mut person), [&["adds"], &own[..]].concat());
    person.types("Add one.\r");
    person.sees("It is added.");
    person.sees("> ");
    assert_eq!(tools(&mut person), [&["adds", "added"], &own[..]].concat());
    person.types("/hooks\r");
    person.sees("guard\r\nlooks\r\n");
    person.sees("> ");
    person.types("/quit\r");
    assert_eq!(person.leaves().0, 0);
}

/// Text is shown as it comes; Ctrl-C stops the turn, and what is said next goes to the model in a conversation that it
/// takes.
#[test]
fn a_turn_is_stopped_and_the_conversation_goes_on() {
    for (wire, name) in WIRES {
        let half = wire.reply(true, "It may use some port or other.", &[]);
        let bytes = half.pieces.concat();
        let end = bytes.windows(3).position(|part| part == b"It ").unwrap();
        let end = end + bytes[end..].iter().position(|byte| *byte == b'\n').unwrap() + 2;
        let calls = [("read_file", json!({"path": "config.yaml"}))];
        let answers =
            vec![half.cut(end).hanging(), wire.reply(true, "", &calls), wire.reply(true, "Port 8080 it is.", &[])];
        let service = Service::new(answers);
        let policy = format!(
            "---\nmodel: {{ name: m-1, provider: {name}, base_url: 'http://{}', api_key_env: HARNESS_TEST_KEY, tools: structured }}\n---\n",
            service.address
        );
        let project = Project::new()
            .file(".harness/harness.md", &policy)
            .tool("read_file", "parameters:\n  path: { type: string, required: true }\n", READ)
            .file("config.yaml", "port: 8080\n");
        let mut person = Person::at(&project, "\"$HARNESS\" run");
        person.says("What port?");
        person.sees("It may use some");
        person.types("\u{3}");
        person.sees("stopped");
        person.says("Please look.");
        person.sees("Port 8080 it is.");
        person.sees("> ");
        // The end of input ends the session too.
        person.types("\u{4}");
        let (code, rest) = person.leaves();
        assert_eq!(code, 0, "{name}: {rest}");
        let sent = service.chats();
        assert_eq!(sent.len(), 3, "{name}");
        let said: Vec<String> = sent[1].json()["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|message| message["role"] == "user")
            .map(|message| text_of(&message["content"]))
            .collect();
        assert_eq!(said, ["What port?", "Please look."], "{name}");
        let answers: Vec<String> = sent[1].json()["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|message| message["role"] == "assistant")
            .map(|message| text_of(&message["content"]))
            .collect();
        let stopped = "It may use some\n[stopped by the user before the answer was complete]";
        assert_eq!(answers, [stopped], "{name}");
        // What is recorded of it is enough to do it again, and to resume it.
        let replayed = project.run(&["sessions", "replay"]);
        assert_eq!(replayed.code, 0, "{name}: {replayed}");
    }
}

/// A message's text, in any of the formats.
fn text_of(content: &Json) -> String {
    let blocks = content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    content.as_str().map_or_else(|| blocks.collect(), str::to_owned)
}

/// What a model says cannot act on the terminal.
#[test]
fn what_a_model_says_is_escaped() {
    let project = agent("", "- text: \"a\\e[2Jb\\u202Ec\"\n");
    let mut person = Person::at(&project, "\"$HARNESS\" run 'Say it.'");
    person.sees("a\\u{1b}[2Jb\\u{202e}c");
    let (code, rest) = person.leaves();
    assert!(code == 0 && !rest.contains("[2J"), "{rest:?}");
}
