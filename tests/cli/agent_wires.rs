//! What a person sees of a turn, whole, in each wire format: replies as they should be, and everything that a service can do
//! wrong.

use serde_json::json;

use crate::agent_services::{project, run};
use crate::services::{Answer, Service, WIRES, Wire};

/// A refusal of a service.
fn refusal(status: &'static str, message: &str) -> Answer {
    Answer::new(status, "application/json", &json!({"error": {"message": message}}).to_string())
}

/// What a turn comes to: the answers of the service; exit code, standard output, standard error with `SERVICE` for its
/// address.
struct Case {
    name: &'static str,
    answers: Vec<Answer>,
    seen: (i32, &'static str, &'static str),
}

fn case(name: &'static str, answers: Vec<Answer>, seen: (i32, &'static str, &'static str)) -> Case {
    Case { name, answers, seen }
}

fn cases(wire: Wire) -> Vec<Case> {
    let reply = |text: &str, calls: &[(&str, serde_json::Value)]| wire.reply(true, text, calls);
    let port = ("read_file", json!({"path": "config.yaml"}));
    let other = ("read_file", json!({"path": "other.yaml"}));
    let done = reply("Done.", &[]);
    let cut = {
        let whole = reply("It may use some port or other.", &[]);
        let bytes = whole.pieces.concat();
        let at = bytes.windows(3).position(|part| part == b"It ").unwrap();
        let end = at + bytes[at..].iter().position(|byte| *byte == b'\n').unwrap();
        // The end of a line, or of an event.
        whole.cut(end + if wire == Wire::Ollama { 1 } else { 2 })
    };
    let mut later = refusal("429 Too Many Requests", "slow");
    later.headers.push_str("retry-after: 7\r\n");
    vec![
        case("text", vec![done.clone()], (0, "Done.\n", "")),
        case("a tool, then text", vec![reply("", std::slice::from_ref(&port)), done.clone()], (0, "Done.\n", "")),
        case("two tools", vec![reply("I look.", &[port, other]), done.clone()], (0, "Done.\n", "")),
        case("an unknown tool", vec![reply("", &[("raed_file", json!({}))]), done.clone()], (0, "Done.\n", "")),
        case("bad arguments", vec![reply("", &[("read_file", json!({"path": 7}))]), done], (0, "Done.\n", "")),
        case(
            "cut",
            vec![cut],
            (
                5,
                "",
                "the reply until then:\nIt may use some\nerror: the reply of SERVICE was cut: it ended without saying why\n",
            ),
        ),
        case(
            "401",
            vec![refusal("401 Unauthorized", "who?")],
            (5, "", "error: SERVICE answers 401: who?; the key is that of the variable `HARNESS_TEST_KEY`\n"),
        ),
        case("429", vec![later], (5, "", "error: SERVICE answers 429: slow; it wants to be asked again in 7 s\n")),
        case("500", vec![refusal("500 Internal Server Error", "oops")], (5, "", "error: SERVICE answers 500: oops\n")),
        case(
            "too long",
            vec![refusal("400 Bad Request", "the context is full")],
            (5, "", "error: SERVICE answers 400: the context is full\n"),
        ),
        case(
            "no reply",
            vec![Answer::new("200 OK", "application/json", "<html>")],
            (
                5,
                "",
                "error: the reply of SERVICE cannot be read: it is a web page and not a reply: is `base_url` right?\n",
            ),
        ),
    ]
}

#[test]
fn what_a_person_sees() {
    for (wire, name) in WIRES {
        for Case { name: case, answers, seen: (code, out, err) } in cases(wire) {
            let service = Service::new(answers);
            let ran = run(&project(name, &service, ""), &["run", "What port?"]);
            let told = ran.err.replace(&format!("http://{}", service.address), "SERVICE");
            assert_eq!((ran.code, ran.out.as_str(), told.as_str()), (code, out, err), "{name}, {case}");
        }
    }
}

/// A request that is made again says which attempt comes next and when.
#[test]
fn a_retry_says_which_attempt_comes_next() {
    for (wire, name) in WIRES {
        let service = Service::new(vec![refusal("503 Service Unavailable", "down"), wire.reply(true, "Done.", &[])]);
        let project = project(name, &service, "").policy_of(|text| {
            text.replace("max_retries: 0", "max_retries: 3, initial_backoff_ms: 1, max_backoff_ms: 1")
        });
        let ran = run(&project, &["run", "What port?"]);
        let told = ran.err.replace(&format!("http://{}", service.address), "SERVICE");
        let told = told.replace("in 0 ms", "in 1 ms");
        let expected = "SERVICE answers 503: down; attempt 2 of 4, in 1 ms\n";
        assert_eq!((ran.code, ran.out.as_str(), told.as_str()), (0, "Done.\n", expected), "{name}");
    }
}

/// Without a key a service that wants one says so, and the message says how to give it.
#[test]
fn a_key_that_was_not_sent_is_named() {
    let service = Service::new(vec![refusal("401 Unauthorized", "who?")]);
    let project = project("openai", &service, "").policy_of(|text| text.replace(" api_key_env: HARNESS_TEST_KEY,", ""));
    let ran = run(&project, &["run", "What port?"]);
    let no_key = "answers 401: who?; no key was sent: `api_key_env` of the model names the variable that has one\n";
    ran.says(5, no_key);
}

/// Some services of the chat format end a reply with its last piece and `[DONE]`, and give no reason.
#[test]
fn a_reply_may_end_without_a_reason() {
    let piece =
        |content: &str| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": content}}]}));
    let whole = format!("{}{}data: [DONE]\n\n", piece("Port "), piece("8080."));
    let service = Service::new(vec![Answer::new("200 OK", "text/event-stream", &whole)]);
    run(&project("openai", &service, ""), &["run", "What port?"]).gives("Port 8080.");
    let service = Service::new(vec![Answer::new("200 OK", "text/event-stream", "data: [DONE]\n\n")]);
    run(&project("openai", &service, ""), &["run", "What port?"]).says(5, "was cut: it ended without saying why");
    // Without its end it is one that was cut.
    let service = Service::new(vec![Answer::new("200 OK", "text/event-stream", &piece("Port "))]);
    run(&project("openai", &service, ""), &["run", "What port?"]).says(5, "was cut: it ended without saying why");
}

/// A turn that failed stays in the conversation, with what was said in it and a mark; so it does where it is resumed.
#[test]
fn a_failed_turn_stays_in_the_conversation() {
    for (wire, name) in WIRES {
        let mut answers = cases(wire).into_iter().find(|case| case.name == "cut").unwrap().answers;
        answers.push(wire.reply(true, "Port 8080.", &[]));
        let service = Service::new(answers);
        let project = project(name, &service, "");
        assert_eq!(run(&project, &["run", "What port?"]).code, 5, "{name}");
        let ran = run(&project, &["run", "--resume", "latest", "And now?"]);
        assert_eq!(ran.code, 0, "{name}: {ran}");
        let request = service.chats().remove(1).json();
        let parts = |content: &serde_json::Value| match content.as_str() {
            Some(text) => text.to_owned(),
            None => content[0]["text"].as_str().unwrap().to_owned(),
        };
        let said: Vec<(String, String)> = request["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|message| message["role"] != "system")
            .map(|message| (message["role"].as_str().unwrap().to_owned(), parts(&message["content"])))
            .collect();
        let failed = "It may use some\n[the turn failed before the answer was complete]";
        let expected = [("user", "What port?"), ("assistant", failed), ("user", "And now?")];
        assert_eq!(said, expected.map(|(role, text)| (role.to_owned(), text.to_owned())), "{name}");
        let replayed = project.run(&["sessions", "replay", "latest"]);
        assert_eq!(replayed.code, 0, "{name}: {replayed}");
    }
}

/// What was left out of a request stays out of the one that continues its reply, whatever the service counted.
#[test]
fn trimmed_history_stays_trimmed_when_a_reply_is_continued() {
    let half = {
        let whole = String::from_utf8(Wire::Chat.reply(true, "Half of it. ", &[]).pieces.concat()).unwrap();
        Answer::new(
            "200 OK",
            "text/event-stream",
            &whole.replace("\"finish_reason\":\"stop\"", "\"finish_reason\":\"length\""),
        )
    };
    let done = Wire::Chat.reply(true, "And the rest.", &[]);
    let service = Service::new(vec![done.clone(), half, done]);
    let project = project("openai", &service, ", max_tokens: 10")
        .policy_of(|text| text.replace("---\nYou help.", "context: { max_tokens: 400 }\n---\nYou help."));
    let long = "word ".repeat(300);
    assert_eq!(run(&project, &["run", &long]).code, 0);
    let ran = run(&project, &["run", "--resume", "latest", "And now?"]);
    ran.gives("Half of it. And the rest.");
    let chats: Vec<serde_json::Value> = service.chats().iter().map(|asked| asked.json()).collect();
    let messages = |at: usize| chats[at]["messages"].as_array().unwrap().clone();
    assert_eq!(messages(1).len(), 2, "the long turn has no room: {}", chats[1]);
    assert_eq!(messages(2)[..2], messages(1)[..], "{}", chats[2]);
    assert_eq!(messages(2).len(), 4, "{}", chats[2]);
}
