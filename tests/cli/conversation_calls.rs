//! What a person at a terminal sees of calls: the sign of a long one, questions, what was counted; and how they stop them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::agent_streams::pairs;
use crate::agent_turns::agent;
use crate::project::Project;
use crate::pty::Person;
use crate::services::{Answer, KEY, Service, WIRES};

/// How long something that will come may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What stands on a terminal after this was written to it.
fn screen(written: &str) -> Vec<String> {
    let (mut lines, mut row, mut column) = (vec![Vec::<char>::new()], 0_usize, 0_usize);
    let mut rest = written.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\u{8}' => column = column.saturating_sub(1),
            '\u{1b}' => {
                if rest.next_if_eq(&'[').is_none() {
                    continue;
                }
                let mut number = String::new();
                while let Some(c) = rest.next_if(|c| !c.is_ascii_alphabetic()) {
                    number.push(c);
                }
                let count = number.parse().unwrap_or(1_usize);
                match rest.next() {
                    Some('A') => row = row.saturating_sub(count),
                    Some('B') => row += count,
                    Some('C') => column += count,
                    Some('D') => column = column.saturating_sub(count),
                    Some('G') => column = count.saturating_sub(1),
                    Some('K') if number == "2" => lines[row].clear(),
                    Some('K') => lines[row].truncate(column),
                    Some('J') => {
                        lines[row].truncate(column);
                        lines.truncate(row + 1);
                    }
                    _ => {}
                }
            }
            c if c.is_control() => {}
            c => {
                let line = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
        let rows = lines.len().max(row + 1);
        lines.resize(rows, Vec::new());
    }
    lines.into_iter().map(String::from_iter).collect()
}

#[test]
fn a_screen_is_what_is_left_of_what_was_written() {
    assert_eq!(screen("ab\r\nc\rd\u{1b}[K"), ["ab", "d"]);
    assert_eq!(screen("abc\r\u{1b}[2Kx\n\u{1b}[1Ay"), ["xy", ""]);
    assert_eq!(screen("one\r\ntwo\u{1b}[1A\r\u{1b}[J!"), ["!"]);
}

/// A tool that takes longer than a second is told as running until it has ended, and then no more.
#[test]
fn a_long_call_has_a_sign() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let policy = format!("network: {{ allowed_domains: [\"{address}\"] }}\n");
    let script = format!("def run(args):\n    return http.get('http://{address}/')['body']\n");
    let replies = "- tool_calls: [{ name: fetch }]\n- { expect: fetched, text: It is there. }\n";
    let project = agent(&policy, replies).tool("fetch", "", &script);
    let mut person = Person::starts(&project, &["run"]);
    person.sees("> ");
    person.types("Fetch it.\r");
    person.sees("calls fetch {}");
    // Nothing is answered before the sign was seen twice: it moves.
    person.sees("running fetch");
    person.sees("running fetch");
    assert!(screen(&person.seen).last().unwrap().contains("running fetch"), "{:?}", screen(&person.seen));
    let mut stream = server.accept().unwrap().0;
    let mut head = [0; 4096];
    assert!(stream.read(&mut head).unwrap() > 0);
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\nfetched").unwrap();
    person.sees("fetch completed (");
    person.sees("It is there.");
    person.sees("> ");
    let ended = person.seen.find("fetch completed (").unwrap();
    assert!(!person.seen.get(ended..).unwrap().contains("running fetch"), "{:?}", person.seen);
    assert!(!screen(&person.seen).concat().contains("running"), "{:?}", screen(&person.seen));
    person.types("/quit\r");
    assert_eq!(person.leaves(), 0, "{}", person.seen);
}

/// Asked within a conversation: a yes is one, a no is a no, the end of input is a no and not the end of the session.
#[test]
fn a_question_within_a_conversation() {
    let parameters = "parameters:\n  path: { type: string, required: true }\nconfirm: true\n";
    let script = "def run(args):\n    fs.write(args['path'], '')\n    return 'dropped ' + args['path']\n";
    let turn = |path: &str, said: &str| {
        format!(
            "- tool_calls: [{{ name: drop, args: {{ path: {path} }} }}]\n- {{ expect: {said}, text: Turn {path} is over. }}\n"
        )
    };
    let refused = "was not confirmed";
    let replies = [turn("a", "dropped a"), turn("b", refused), turn("c", refused), turn("d", "dropped d")].concat();
    let project = agent("", &replies).tool("drop", parameters, script);
    let mut person = Person::starts(&project, &["run"]);
    for (path, answer) in [("a", "y\n"), ("b", "n\n"), ("c", "\u{4}"), ("d", "yes\n")] {
        person.sees("> ");
        person.types("Drop it.\r");
        person.sees("the agent calls `drop`");
        person.sees("[N]o: ");
        assert!(!project.path(path).exists(), "{path}");
        person.types(answer);
        person.sees(&format!("Turn {path} is over."));
    }
    person.sees("> ");
    person.types("\u{4}");
    assert_eq!(person.leaves(), 0, "{}", person.seen);
    assert_eq!(["a", "b", "c", "d"].map(|path| project.path(path).exists()), [true, false, false, true]);
}

/// How often the thread that draws the sign of a long call has gone to sleep. None: there is no such thread.
fn frames(process: &Path) -> Option<u64> {
    let mut threads = std::fs::read_dir(process.join("task")).unwrap().map(|entry| entry.unwrap().path());
    let sign = threads.find(|path| std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name == "sign\n"))?;
    let status = std::fs::read_to_string(sign.join("status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
}

/// Waits until that thread has had the time to draw some frames.
#[track_caller]
fn until_drawn(process: &Path) {
    let end = Instant::now() + PATIENCE;
    let mut enough = None;
    loop {
        // A thread has its name only when it has begun to run, which takes its time on a busy machine.
        match (frames(process), enough) {
            (Some(drawn), None) => enough = Some(drawn + 10),
            (Some(drawn), Some(enough)) if drawn >= enough => return,
            _ => {}
        }
        assert!(Instant::now() < end, "no frames are drawn");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// However long a person thinks, nothing is drawn onto the question.
#[test]
fn a_question_stays_as_it_is() {
    let replies = "- tool_calls: [{ name: drop }]\n- text: It is over.\n";
    let script = "def run(args):\n    return 'dropped'\n";
    for arguments in [&["run", "Drop it."][..], &["call", "drop"]] {
        let project = agent("", replies).tool("drop", "confirm: true\n", script);
        let mut person = Person::starts(&project, arguments);
        person.sees("[N]o: ");
        until_drawn(&person.process());
        person.types("y\n");
        person.sees("y\r\n");
        let shown = screen(&person.seen);
        assert!(shown.iter().any(|line| line.starts_with("Call it? [y]es") && line.ends_with("[N]o: y")), "{shown:?}");
        assert!(!shown.concat().contains("running"), "{shown:?}");
        assert_eq!(person.leaves(), 0, "{}", person.seen);
    }
}

/// Ctrl-C at a question ends it before anything else is on the terminal: the next line is typed at a whole prompt.
#[test]
fn a_turn_is_stopped_at_a_question() {
    let replies = "- tool_calls: [{ name: drop }]\n- { expect: Go on., text: Here I am. }\n";
    let script = "def run(args):\n    fs.write('dropped', '')\n";
    let project = agent("", replies).tool("drop", "confirm: true\n", script);
    let mut person = Person::starts(&project, &["run"]);
    person.sees("> ");
    person.types("Drop it.\r");
    person.sees("[N]o: ");
    person.interrupts();
    person.sees("> ");
    person.types("Go on.\r");
    person.sees("Here I am.");
    person.sees("> ");
    person.types("/quit\r");
    assert_eq!(person.leaves(), 0, "{}", person.seen);
    let shown = screen(&person.seen);
    let asked = shown.iter().position(|line| line.starts_with("Call it?")).unwrap();
    assert_eq!(shown[asked..asked + 4], [shown[asked].as_str(), "stopped", "> Go on.", "Here I am."], "{shown:?}");
    assert!(!project.path("dropped").exists());
}

/// Who talks is told when what continued by itself has ended, and how: an agent, a tool, one that failed.
#[test]
fn what_went_on_by_itself_is_told_when_it_ends() {
    let replies = "- tool_calls: [{ name: delegate_async, args: { agent: worker, task: Work. } }, { name: slow }, { name: fails }]\n\
                   - tool_calls: [{ name: delegate_await }, { name: task_await }]\n- text: It is done.\n- { agent: worker, text: Worked. }\n";
    let script = "def run(args):\n    return 1\n";
    let reason = "the disk is full and nothing of what was to be kept could be written to any of the places that there are for it";
    let project = agent("sandbox: { async_tools: true }\n", replies)
        .tool("slow", "async: true\n", script)
        .tool("fails", "async: true\n", &format!("def run(args):\n    fail('{reason}')\n"))
        .file(".harness/agents/worker.md", "---\ndescription: Works.\n---\nYou work.\n");
    let ran = project.run(&["run", "--explain", "Work."]);
    let ended = ran.err.lines().filter_map(|line| line.strip_prefix("task of ")?.split_once(" (task_"));
    let mut told: Vec<&str> = ended.map(|(told, _)| told).collect();
    told.sort_unstable();
    let failed = format!("fails failed: tool error: {reason} (.harness/tools/fails.md:5:7)");
    assert_eq!(told, [failed.as_str(), "slow completed", "worker completed"], "{ran}");
}

/// What begins with a slash is a command where it is one word, and else is said to the agent.
#[test]
fn what_begins_with_a_slash_may_be_said() {
    let replies = "- { expect: '/etc/hosts: what is in it?', text: Names. }\n";
    let project = agent("", replies);
    let mut person = Person::starts(&project, &["run"]);
    person.sees("> ");
    person.types("/etc/hosts: what is in it?\r");
    person.sees("Names.");
    person.sees("> ");
    person.types("/nonsense\r");
    person.sees("there is no command /nonsense");
    person.sees("> ");
    person.types("/quit\r");
    assert_eq!(person.leaves(), 0, "{}", person.seen);
}

/// Long arguments are cut where it is seen that they are; why something failed is told whole.
#[test]
fn lines_that_are_long() {
    let text = "x".repeat(200);
    let reason =
        "the reason why it failed is told from its first to its last word, even where that takes more than a hundred";
    let replies = format!("- tool_calls: [{{ name: fails, args: {{ text: {text} }} }}]\n- text: So.\n");
    let project = agent("", &replies).tool(
        "fails",
        "parameters:\n  text: { type: string }\n",
        &format!("def run(args):\n    fail('{reason}')\n"),
    );
    let ran = project.run(&["run", "--explain", "Try."]);
    let lines: Vec<&str> = ran.err.lines().collect();
    let arguments: String = format!("{{\"text\":\"{text}").chars().take(100).collect();
    assert_eq!(lines[0], format!("calls fails {arguments}…"), "{ran}");
    let failed = format!("fails failed: tool error: {reason} (.harness/tools/fails.md:6:7) (");
    assert!(lines[1].starts_with(&failed), "{ran}");
}

/// What the service counted in all turns so far, and not what was estimated.
#[test]
fn what_was_counted() {
    for (wire, name) in WIRES {
        let call = [("read_file", json!({"path": "config.yaml"}))];
        let service = Service::new(vec![
            wire.reply(true, "", &call),
            wire.reply(true, "First.", &[]),
            wire.reply(true, "Second.", &[]),
        ]);
        let project = crate::agent_services::project(name, &service, "");
        let mut person = Person::with(&project, &["run"], &[("HARNESS_TEST_KEY", KEY)]);
        let mut says = |line: &str, answer: &str| {
            person.sees("> ");
            person.types(&format!("{line}\r"));
            person.sees(answer);
        };
        says("/usage", "0 input tokens, 0 output tokens");
        says("One", "First.");
        says("/usage", "22 input tokens, 14 output tokens");
        says("Two", "Second.");
        says("/usage", "33 input tokens, 21 output tokens");
        says("/quit", "");
        assert_eq!(person.leaves(), 0, "{name}: {}", person.seen);
    }
}

/// It is of every request that was answered: those of a sub-agent, of a turn that failed and of one that was stopped too.
#[test]
fn what_was_counted_of_all_agents_and_turns() {
    let (wire, name) = WIRES[0];
    let asks = wire.reply(true, "", &[("delegate", json!({"agent": "helper", "task": "Help."}))]);
    let says = |text: &str| wire.reply(true, text, &[]);
    let service = Service::new(vec![
        asks.clone(),
        says("Helped."),
        Answer::new("500 Oops", "text/plain", "no"),
        asks,
        says("Helped."),
        says("half").cut(0).hanging(),
        says("At last."),
    ]);
    let project = crate::agent_services::project(name, &service, "")
        .file(".harness/agents/helper.md", "---\ndescription: Helps.\n---\nYou help.\n");
    let mut person = Person::with(&project, &["run"], &[("HARNESS_TEST_KEY", KEY)]);
    let type_at_prompt = |person: &mut Person, line: &str| {
        person.sees("> ");
        person.types(&format!("{line}\r"));
    };
    type_at_prompt(&mut person, "One");
    person.sees("error: ");
    type_at_prompt(&mut person, "/usage");
    person.sees("22 input tokens, 14 output tokens");
    type_at_prompt(&mut person, "Two");
    let end = Instant::now() + PATIENCE;
    while service.chats().len() < 6 {
        assert!(Instant::now() < end, "{}", person.seen);
        std::thread::sleep(Duration::from_millis(10));
    }
    person.interrupts();
    person.sees("stopped");
    type_at_prompt(&mut person, "/usage");
    person.sees("44 input tokens, 28 output tokens");
    type_at_prompt(&mut person, "Three");
    person.sees("At last.");
    type_at_prompt(&mut person, "/usage");
    person.sees("55 input tokens, 35 output tokens");
    type_at_prompt(&mut person, "/quit");
    assert_eq!(person.leaves(), 0, "{}", person.seen);
}

/// Whether a process has a mark among its arguments.
fn is_running(mark: &str) -> bool {
    let marked = |text: Vec<u8>| String::from_utf8_lossy(&text).contains(mark);
    let mut processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("cmdline"));
    processes.any(|path| std::fs::read(path).is_ok_and(marked))
}

#[track_caller]
fn until(mark: &str, running: bool) {
    let end = Instant::now() + PATIENCE;
    while is_running(mark) != running {
        assert!(Instant::now() < end, "it is {running} that {mark} runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A project whose tool `wait` starts a command with children that ends long after any test.
fn waiting(mark: &str, replies: &str) -> Project {
    let script = format!(
        "def run(args):\n    exec.run('sh', ['-c', 'sleep {mark} & sleep {mark} & wait'], timeout_ms = 600000)\n    fs.write('late', '')\n"
    );
    let policy = "sandbox: { exec: { allow: [sh] }, limits: { timeout_ms: 600000 } }\n";
    agent(policy, replies)
        .tool("wait", "timeout_ms: 600000\n", &script)
        .tool("mark", "", "def run(args):\n    fs.write('marked', '')\n    return 'marked'\n")
        .file(".harness/agents/worker.md", "---\ndescription: Works.\n---\nYou work.\n")
}

/// Ctrl-C while a tool runs, by the agent itself, by one that it started, and by one that it does not wait for: nothing
/// of the turn continues, no call after it is made, and the conversation continues.
#[test]
fn a_turn_is_stopped_while_a_tool_runs() {
    let own = "- tool_calls: [{ name: wait }, { name: mark }]\n";
    let other = "- tool_calls: [{ name: delegate, args: { agent: worker, task: Wait. } }, { name: mark }]\n\
                 - { agent: worker, tool_calls: [{ name: wait }, { name: mark }] }\n";
    let apart = "- tool_calls: [{ name: delegate_async, args: { agent: worker, task: Wait. } }]\n- tool_calls: [{ name: delegate_await }, { name: mark }]\n\
                 - { agent: worker, tool_calls: [{ name: wait }, { name: mark }] }\n";
    for (number, first) in [own, other, apart].into_iter().enumerate() {
        let mark = format!("{}.{}", 7000 + number, std::process::id());
        let project = waiting(&mark, &format!("{first}- {{ expect: Go on., text: Here I am. }}\n"));
        let mut person = Person::starts(&project, &["run"]);
        person.sees("> ");
        person.types("Wait.\r");
        until(&mark, true);
        person.interrupts();
        person.sees("stopped");
        until(&mark, false);
        person.sees("> ");
        person.types("Go on.\r");
        person.sees("Here I am.");
        person.sees("> ");
        person.types("/quit\r");
        assert_eq!(person.leaves(), 0, "{first}: {}", person.seen);
        assert!(!project.path("late").exists() && !project.path("marked").exists(), "{first}");
    }
}

/// What the model learns of such a turn when the conversation continues: what was done, what nobody knows, and what was
/// not begun; no call is without its result.
#[test]
fn what_is_told_of_a_turn_that_was_stopped() {
    for (number, (wire, name)) in WIRES.into_iter().enumerate() {
        let calls =
            [("mark", json!({"path": "one"})), ("wait", json!({"path": "two"})), ("mark", json!({"path": "three"}))];
        let service = Service::new(vec![wire.reply(true, "First.", &calls), wire.reply(true, "Here I am.", &[])]);
        let mark = format!("{}.{}", 7100 + number, std::process::id());
        let model = format!(
            "model: {{ name: m-1, provider: {name}, base_url: 'http://{}', api_key_env: HARNESS_TEST_KEY, tools: structured }}\n",
            service.address
        );
        let project = waiting(&mark, "[]\n").policy_of(|text| text.replace(crate::agent_turns::SCRIPTED, &model));
        let mut person = Person::with(&project, &["run"], &[("HARNESS_TEST_KEY", KEY)]);
        person.sees("> ");
        person.types("Wait.\r");
        until(&mark, true);
        person.interrupts();
        person.sees("stopped");
        person.sees("> ");
        person.types("Go on.\r");
        person.sees("Here I am.");
        person.sees("> ");
        person.types("/quit\r");
        assert_eq!(person.leaves(), 0, "{name}: {}", person.seen);
        let pairs = pairs(wire, &service.chats()[1].json());
        let told: Vec<(&str, &str)> = pairs.iter().map(|(_, path, result)| (&**path, &**result)).collect();
        let ended = "error: the turn was ended before this call had a result; whether it took effect is not known";
        let wanted =
            [("one", "marked"), ("two", ended), ("three", "error: the turn was ended before this call was made")];
        assert_eq!(told, wanted, "{name}");
        // Gone on with in another session, it is the same conversation.
        let ran =
            project.command(&["run", "--resume", "latest", "And?"]).env("HARNESS_TEST_KEY", KEY).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        assert_eq!(crate::agent_streams::pairs(wire, &service.chats()[2].json()), pairs, "{name}");
    }
}

/// Who does not stop it sees all of it made: the control of the test before.
#[test]
fn a_turn_that_is_not_stopped() {
    let replies = "- tool_calls: [{ name: delegate, args: { agent: worker, task: Wait. } }]\n- text: Here I am.\n\
                   - { agent: worker, tool_calls: [{ name: wait }, { name: mark }] }\n- { agent: worker, text: Waited. }\n";
    let project = waiting("0", replies);
    project.run(&["run", "Wait."]).gives("Here I am.");
    assert!(project.path("late").exists() && project.path("marked").exists());
}

/// An agent that runs in the background works on after the turn that began it, until another turn asks for its result.
#[test]
fn an_agent_works_on_between_turns() {
    let hold = "def run(args):\n    for i in range(4000):\n        if fs.exists('go'):\n            return 'gone'\n        sleep(5)\n";
    let replies = "- tool_calls: [{ name: delegate_async, args: { agent: worker, task: Hold. } }]\n- text: It works.\n\
                   - tool_calls: [{ name: delegate_await }]\n- { expect: I held., text: It is done. }\n\
                   - { agent: worker, tool_calls: [{ name: hold }] }\n- { agent: worker, expect: gone, tool_calls: [{ name: drop }] }\n\
                   - { agent: worker, expect: dropped, text: I held. }\n";
    let drop = "def run(args):\n    return 'dropped'\n";
    let project = waiting("0", replies).tool("hold", "", hold).tool("drop", "confirm: true\n", drop);
    let mut person = Person::starts(&project, &["run"]);
    person.sees("> ");
    person.types("Begin.\r");
    person.sees("It works.");
    person.sees("> ");
    person.types("An");
    person.sees("An");
    project.write("go", "");
    let end = Instant::now() + PATIENCE;
    while !crate::sessions::lines(&crate::sessions::last(&project), "calling").iter().any(|line| line["tool"] == "drop")
    {
        assert!(Instant::now() < end, "it does not go on: {}", person.seen);
        std::thread::sleep(Duration::from_millis(5));
    }
    // The report and the question wait for the line that is being typed; then either may come first.
    person.types("d?\r");
    person.sees("[N]o: ");
    person.types("y\n");
    person.sees("It is done.");
    assert!(person.seen.contains("hold completed"), "{}", person.seen);
    assert!(screen(&person.seen).contains(&"> And?".to_owned()), "{:?}", screen(&person.seen));
    person.sees("> ");
    person.types("/quit\r");
    assert_eq!(person.leaves(), 0, "{}", person.seen);
}
