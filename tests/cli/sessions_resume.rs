//! Recorded conversations that are resumed.

use serde_json::{Value as Json, json};

use crate::agent_turns::agent;
use crate::project::Project;
use crate::sessions::{PATH, READ, files, last, lines, reads};

/// What the model of the last session was told, as hooks on `completion.pre` saw it.
fn told(project: &Project) -> Vec<(String, String)> {
    let text = last(project);
    let said: Vec<Json> = lines(&text, "said");
    let message = |line: &Json| {
        let message = &line["message"];
        let text = |key: &str| message[key].as_str().unwrap_or("-").to_owned();
        (text("role"), text("content"))
    };
    said.iter().map(message).collect()
}

#[test]
fn a_session_that_ended_goes_on() {
    let project = reads();
    project.run(&["run", "What port?"]).says(0, "");
    let first = files(&project)[0].file_stem().unwrap().to_str().unwrap().to_owned();
    project.write("replies.yaml", "- expect: thank you\n  text: You are welcome.\n");
    let ran = project.run(&["run", "--resume", "latest", "Many thanks."]);
    assert_eq!((ran.code, ran.out.as_str()), (5, ""), "the reply expects another word: {ran}");
    let ran = project.run(&["sessions", "resume", &first, "I thank you."]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "You are welcome.\n"), "{ran}");
    assert_eq!(files(&project).len(), 3);
    let text = last(&project);
    assert_eq!(lines(&text, "session")[0]["resumes"], json!(first));
    // The model got all of it: two messages of the system's, six of the first session, and the new one.
    assert_eq!(lines(&text, "asked")[0]["messages"], json!(2 + 6 + 1));
    assert_eq!(told(&project)[0], ("user".to_owned(), "What port?".to_owned()));
    let shown = project.run(&["sessions", "show", "latest"]).out;
    assert!(shown.contains(&format!("resumes {first}")), "{shown}");
    project.run(&["run", "--resume", "2001", "x"]).says(2, "there is no session `2001`");
}

/// What is not carried over is said, where there was some of it, and only then.
#[test]
fn what_begins_anew_is_said() {
    let resumed = |policy: &str, script: &str| {
        let project = agent(policy, "- tool_calls: [{ name: it }]\n- text: Done.\n").tool("it", "", script);
        project.run(&["run", "Go."]).says(0, "");
        project.write("replies.yaml", "- tool_calls: [{ name: it }]\n- text: Again.\n");
        let ran = project.run(&["run", "--resume", "latest", "Go on."]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "Again.\n"), "{ran}");
        (ran.err, last(&project))
    };
    let (err, text) =
        resumed("", "def run(args):\n    cache.set('n', cache.get('n', 0) + 1)\n    return cache.get('n')\n");
    assert!(err.starts_with("note: 20") && err.ends_with("; these start anew: the cache\n"), "{err}");
    // And so it does.
    assert_eq!(told_by_tool(&text), "1");
    let (err, text) = resumed("", "def run(args):\n    return metrics.incr('n')\n");
    assert!(err.ends_with("these start anew: the metrics\n"), "{err}");
    assert_eq!(told_by_tool(&text), "1");
    let added = "def run(args):\n    meta.register_tool('more', 'More.', {}, 'def run(args):\\n    return 1\\n')\n    return 1\n";
    let (err, _) = resumed("meta: { enabled: true }\n", added);
    assert!(err.ends_with("these start anew: the tools and hooks that its scripts added\n"), "{err}");
    let (err, _) = resumed("", "def run(args):\n    return 1\n");
    assert_eq!(err, "");
}

/// The last result that a model got.
fn told_by_tool(text: &str) -> String {
    let said = lines(text, "said");
    let tool = said.iter().rfind(|line| line["message"]["role"] == "tool").unwrap();
    tool["message"]["content"].as_str().unwrap().to_owned()
}

/// A process that is ended in the middle of a call leaves one that nobody answered.
#[test]
fn a_session_that_was_cut_goes_on() {
    let project = reads();
    project.run(&["run", "What port?"]).says(0, "");
    let file = files(&project).remove(0);
    let text = std::fs::read_to_string(&file).unwrap();
    // Ended while it wrote that the first call has a result.
    let (before, _) = text.split_once("\"kind\":\"called\"").unwrap();
    std::fs::write(&file, before).unwrap();
    let shown = project.run(&["sessions", "show"]);
    assert!(shown.out.contains("or it ended without a final entry, and the last line is cut"), "{shown}");
    assert!(shown.out.contains("not ended"), "{shown}");
    project.write("replies.yaml", "- text: Once more.\n");
    let ran = project.run(&["run", "--resume", "latest", "Go on."]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Once more.\n"), "{ran}");
    let unanswered = "error: the session was ended before this call had a result; whether it took effect is not known";
    assert_eq!(
        told(&project),
        [("user", "What port?"), ("assistant", "Let me see."), ("tool", unanswered), ("user", "Go on."), ("-", "-")]
            .map(|(role, text)| (role.to_owned(), text.to_owned()))
    );
    // And that one can be run again.
    project.run(&["sessions", "replay"]).says(0, "");
}

#[test]
fn a_record_that_was_changed_is_told_with_its_line() {
    let project = reads();
    project.run(&["run", "What port?"]).says(0, "");
    let file = files(&project).remove(0);
    let text = std::fs::read_to_string(&file).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    for (from, to, line, why) in [
        ("\"kind\":\"turn\"", "\"kind\":\"party\"", 2, "it is not a line of the kind \"party\""),
        ("\"version\":1", "\"version\":2", 1, "it has the version 2, and this program reads 1"),
        ("\"at\":0", "\"at\":no", 1, "it is not JSON"),
    ] {
        std::fs::write(&file, text.replacen(from, to, 1)).unwrap();
        for command in [&["sessions", "show"][..], &["sessions", "replay"], &["run", "--resume", "latest", "x"]] {
            let ran = project.run(command);
            ran.says(2, &format!("error: .harness/sessions/{name}:{line}: {why}"));
            assert_eq!(ran.out, "");
        }
    }
    std::fs::write(&file, "not a record\n").unwrap();
    project.run(&["sessions", "show"]).says(2, ".jsonl:1: it is not JSON");
    // Lines that are each fine and do not go together.
    let said = text.replacen("\"place\":1", "\"place\":7", 1);
    std::fs::write(&file, said).unwrap();
    project.run(&["run", "--resume", "latest", "x"]).says(2, "message 7 of a conversation that has 1 is said");
}

/// Ctrl-C ends the turn, and what was said until then is kept.
#[test]
fn a_turn_that_was_stopped_is_recorded_so() {
    let replies = "- tool_calls: [{ name: wait }]\n- text: Done.\n";
    let script = "def run(args):\n    fs.write('began', 'x')\n    sleep(20000)\n    return 'waited'\n";
    let project = agent("", replies).tool("wait", "", script).tool("read_file", PATH, READ);
    let line = "\"$HARNESS\" run Wait. & pid=$!; for i in $(seq 200); do [ -e began ] && break; sleep 0.05; done; \
                kill -INT $pid; wait $pid; echo $?";
    // A shell without job control has its children ignore the signal; they are told not to.
    let ran = project.shell(&format!("set -m; {line}"));
    assert!(ran.out.contains('1') && ran.err.contains("interrupted"), "{ran}");
    let text = last(&project);
    assert_eq!(lines(&text, "stopped").len(), 1, "{text}");
    assert_eq!(lines(&text, "script")[0]["outcome"], "abandoned");
    assert_eq!(lines(&text, "ended").len(), 1);
    let shown = project.run(&["sessions", "show"]).out;
    assert!(shown.contains("stopped"), "{shown}");
    // It is compared as far as it goes.
    let ran = project.run(&["sessions", "replay"]);
    ran.says(0, "1 turn did not end in the recording");
    project.write("replies.yaml", "- text: Then not.\n");
    assert_eq!(project.run(&["run", "--resume", "latest", "Do not wait."]).out, "Then not.\n");
}
