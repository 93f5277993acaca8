//! What of a conversation goes into each request: all of it as far as there is room, whatever hooks made of the last.

use serde_json::{Value as Json, json};

use crate::agent_services::{ASKED, project, results, run};
use crate::agent_turns::{agent, spied, told};
use crate::project::{Project, Ran};
use crate::pty::Person;
use crate::services::{Answer, KEY, Service, WIRES, Wire};

/// Counts its calls.
const COUNT: &str = "def run(args):\n    return 'counted ' + str(args['n'])\n";

fn counting(policy: &str, rounds: usize) -> Project {
    let calls: String =
        (1..=rounds).map(|n| format!("- tool_calls: [{{ name: count, args: {{ n: {n} }} }}]\n")).collect();
    agent(policy, &format!("{calls}- text: Done.\n")).tool("count", "", COUNT)
}

/// The roles of a request without those of the operator, and the results in it.
fn seen(request: &Json) -> (Vec<String>, Vec<String>) {
    let messages: Vec<&Json> =
        request["messages"].as_array().unwrap().iter().filter(|message| message["role"] != "system").collect();
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let roles = messages.iter().map(|message| text(&message["role"])).collect();
    let results = messages.iter().filter(|message| message["role"] == "tool").map(|message| text(&message["content"]));
    (roles, results.collect())
}

fn requests(ran: &Ran) -> Vec<Json> {
    assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{ran}");
    told(ran, "completion.pre")
}

/// What a round gave is in the request after it, and in each that follows, word for word.
#[test]
fn results_stay() {
    let asked = requests(&spied(counting("", 4), &["completion.pre"]).run(&["run", "Count."]));
    for (at, request) in asked.iter().enumerate() {
        let (roles, results) = seen(request);
        assert_eq!(results, (1..=at).map(|n| format!("counted {n}")).collect::<Vec<_>>());
        let rounds = ["assistant", "tool"].repeat(at);
        assert_eq!(roles, [&["user"][..], &rounds].concat());
    }
}

/// A hook that leaves messages out of a request leaves them out of that one.
#[test]
fn what_a_hook_leaves_out_is_left_out_once() {
    let body = "return modify({'messages': [m for m in payload['messages'] if m['role'] == 'user']})";
    let front = "when: len(payload['messages']) == 5\npriority: 1\n";
    let project = counting("", 3).with_handle("forgets", "completion.pre", front, body);
    let asked = requests(&spied(project, &["completion.pre"]).run(&["run", "Count."]));
    let roles: Vec<usize> = asked.iter().map(|request| seen(request).0.len()).collect();
    assert_eq!(roles, [1, 1, 5, 7]);
    assert_eq!(seen(&asked[3]).1, ["counted 1", "counted 2", "counted 3"]);
}

/// Nor does one leave a result without its call, or a call without its result.
#[test]
fn no_hook_leaves_half_of_a_call() {
    for kept in ["m['role'] != 'tool'", "'tool_calls' not in m"] {
        let body = format!("return modify({{'messages': [m for m in payload['messages'] if {kept}]}})");
        let project = counting("", 2).with_handle("halves", "completion.pre", "priority: 95\n", &body);
        let record = |project: &Project| {
            let ran = project.run(&["run", "Count."]);
            assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{kept}: {ran}");
            crate::sessions::last(project)
        };
        // What is recorded is how many messages were sent: two of the operator's and the task.
        let sent: Vec<Json> =
            crate::sessions::lines(&record(&project), "asked").iter().map(|line| line["messages"].clone()).collect();
        assert_eq!(sent, [json!(3), json!(3), json!(3)], "{kept}");
    }
}

/// What there is no room for goes from the oldest on, calls with their results; the task stays.
#[test]
fn what_there_is_no_room_for() {
    for (policy, most) in [("context: { max_history: 5 }\n", 5), ("context: { max_history: 2 }\n", 3)] {
        let asked = requests(&spied(counting(policy, 5), &["completion.pre"]).run(&["run", "Count."]));
        for (at, request) in asked.iter().enumerate() {
            let (roles, results) = seen(request);
            let rounds = at.min((most - 1) / 2);
            assert_eq!(roles, [&["user"][..], &["assistant", "tool"].repeat(rounds)].concat(), "{policy} {at}");
            let newest: Vec<String> = (at + 1 - rounds..=at).map(|n| format!("counted {n}")).collect();
            assert_eq!(results, newest, "{policy} {at}");
        }
    }
    // In tokens.
    let long = "x".repeat(2000);
    let script = format!("def run(args):\n    return '{long}' + str(args['n'])\n");
    let project = counting("context: { max_tokens: 1500 }\n", 5).tool("count", "", &script);
    let asked = requests(&spied(project, &["completion.pre"]).run(&["run", "Count."]));
    let results: Vec<usize> = asked.iter().map(|request| seen(request).1.len()).collect();
    assert!(results[5] >= 1 && results[5] < 5, "{results:?}");
    let last = seen(&asked[5]).1.last().unwrap().clone();
    assert!(last.ends_with('5'), "the newest is there");
}

/// An answer that says that a file cannot be read is an answer: nobody is asked again behind the person's back, and nothing is
/// taken out of the conversation for it.
#[test]
fn an_answer_that_says_no_is_an_answer() {
    let no = "I'm sorry, I cannot access or read the file a.txt.";
    let replies = format!("- tool_calls: [{{ name: count, args: {{ n: 1 }} }}]\n- text: \"{no}\"\n");
    let project = agent("", &replies).tool("count", "", COUNT).file("a.txt", "what it holds");
    project.run(&["run", "What is in a.txt?"]).gives(no);
    project.write("replies.yaml", "- text: Done.\n");
    let asked = requests(&spied(project, &["completion.pre"]).run(&["run", "--resume", "latest", "And?"]));
    let (roles, results) = seen(&asked[0]);
    assert_eq!(
        (roles.join(" "), results),
        ("user assistant tool assistant user".to_owned(), vec!["counted 1".to_owned()])
    );
    assert!(!asked[0].to_string().contains("what it holds"), "the file was put into the conversation");
}

/// A turn that ended with an error is part of the conversation when it continues.
#[test]
fn a_turn_that_failed_is_remembered() {
    let replies = "- tool_calls: [{ name: count, args: { n: 1 } }]\n- error: down\n";
    let project = agent("", replies).tool("count", "", COUNT);
    project.run(&["run", "Count."]).says(5, "down");
    project.write("replies.yaml", "- text: Done.\n");
    let asked = requests(&spied(project, &["completion.pre"]).run(&["run", "--resume", "latest", "And?"]));
    assert_eq!(
        seen(&asked[0]),
        (["user", "assistant", "tool", "assistant", "user"].map(str::to_owned).to_vec(), vec!["counted 1".to_owned()])
    );
}

/// One of a reply's calls fails: those after it are made all the same, each with its own result, in their order.
#[test]
fn calls_of_one_reply_are_made_in_order() {
    let replies = "- tool_calls: [{ name: count, args: { n: 1 } }, { name: count }, { name: none_such }, { name: count, args: { n: 2 } }]\n- text: Done.\n";
    let asked = requests(&spied(agent("", replies).tool("count", "", COUNT), &["completion.pre"]).run(&["run", "Go"]));
    let (roles, results) = seen(&asked[1]);
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "tool", "tool"]);
    let wanted = ["counted 1", "tool error: ", "error: there is no tool `none_such`", "counted 2"];
    for (result, wanted) in results.iter().zip(wanted) {
        assert!(result.starts_with(wanted), "{results:?}");
    }
}

/// A long result is cut on its way to the model, errors too, between characters and with a notice within the cap.
#[test]
fn long_results_are_cut() {
    let replies = "- tool_calls: [{ name: long }, { name: fails }, { name: kept }]\n- text: Done.\n";
    let project = agent("sandbox: { limits: { output_bytes: 1024 } }\n", replies)
        .tool("kept", "", "def run(args):\n    return 1\n")
        .with_handle("keeps", "tool.pre", "when: payload[\"name\"] == \"kept\"\n", "return block('é' * 5000)")
        .tool("long", "", "def run(args):\n    return 'é' * 5000\n")
        .tool("fails", "", "def run(args):\n    fail('é' * 5000)\n");
    let asked = requests(&spied(project, &["completion.pre"]).run(&["run", "Go"]));
    let results = seen(&asked[1]).1;
    for result in &results {
        assert!(result.len() <= 1024 && result.len() > 900, "{}", result.len());
    }
    assert!(results[0].starts_with("éé") && results[0].ends_with("[output truncated at 1024 bytes]"), "{}", results[0]);
    assert!(results[1].starts_with("tool error: éé"), "{}", results[1]);
    assert!(results[2].starts_with("tool blocked: blocked by hook \"keeps\": éé"), "{}", results[2]);
    assert_eq!(results.len(), 3);
    // Where no file says how much, too.
    let ran = Project::with_script("def run(args):\n    return 'é' * 50000\n").run(&["call", "it"]);
    let result = ran.out.trim_end();
    assert!(result.len() > 65_530 && result.len() <= 65_536, "{}", result.len());
    assert!(result.starts_with("éé") && result.ends_with("é\n[output truncated at 65536 bytes]"), "{}", result.len());
}

/// How much is left out goes by what the service counts: where its tokens are more than was estimated, more of them.
#[test]
fn room_goes_by_what_the_service_counts() {
    let kept = |counted: u64| {
        let call = Wire::Chat.reply(true, "", &[("read_file", json!({"path": "long.txt"}))]);
        let text = String::from_utf8(call.pieces.concat()).unwrap();
        let text = text.replace("\"prompt_tokens\":11", &format!("\"prompt_tokens\":{counted}"));
        let call = Answer::new("200 OK", "text/event-stream", &text);
        let answers = [vec![call; 4], vec![Wire::Chat.reply(true, "Done.", &[])]].concat();
        let service = Service::new(answers);
        let project = project("openai", &service, "")
            .file("long.txt", &"x".repeat(4000))
            .policy_of(|text| text.replacen("---\n", "---\ncontext: { max_tokens: 6000 }\n", 1));
        assert_eq!(run(&project, &["run", ASKED]).code, 0);
        results(&service.chats()[4].json()).len()
    };
    // Four results are about four thousand tokens as they are estimated.
    assert_eq!(kept(1), 4);
    assert_eq!(kept(1_000_000), 1);
}

/// What it counted in one turn holds in the next, though nothing was called.
#[test]
fn room_goes_by_what_the_service_counted_before() {
    let sent = |counted: u64| {
        let said = |text: &str| {
            let reply = String::from_utf8(Wire::Chat.reply(true, text, &[]).pieces.concat()).unwrap();
            let reply = reply.replace("\"prompt_tokens\":11", &format!("\"prompt_tokens\":{counted}"));
            Answer::new("200 OK", "text/event-stream", &reply)
        };
        // A thousand tokens each, as they are estimated.
        let long = "word ".repeat(800);
        let service = Service::new(vec![said(&format!("{long}one.")), said(&format!("{long}two.")), said("three.")]);
        let project = project("openai", &service, "")
            .policy_of(|text| text.replacen("---\n", "---\ncontext: { max_tokens: 6000 }\n", 1));
        let mut person = Person::with(&project, &["run"], &[("HARNESS_TEST_KEY", KEY)]);
        for (asked, answered) in [("First.\r", "one."), ("Second.\r", "two."), ("Third.\r", "three.")] {
            person.sees("> ");
            person.types(asked);
            person.sees(answered);
        }
        person.types("/quit\r");
        assert_eq!(person.leaves(), 0, "{}", person.seen);
        seen(&service.chats()[2].json()).0
    };
    assert_eq!(sent(1), ["user", "assistant", "user", "assistant", "user"]);
    assert_eq!(sent(1_000_000), ["user", "assistant", "user"]);
}

/// What a turn that failed was asked is still there, with a mark as its answer: many services refuse two messages of a person
/// in a row.
#[test]
fn what_was_not_answered_is_there_with_a_mark() {
    for (wire, name) in WIRES {
        let service = Service::new(vec![Answer::new("401 Oops", "text/plain", "no"), wire.reply(true, "Both.", &[])]);
        let project = crate::agent_services::project(name, &service, "");
        assert_eq!(run(&project, &["run", "One?"]).code, 5, "{name}");
        let ran = run(&project, &["run", "--resume", "latest", "Two?"]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "Both.\n"), "{name}: {ran}");
        let asked = service.chats()[1].json();
        let messages = asked["messages"].as_array().unwrap();
        let content = |text: &str| match wire {
            Wire::Anthropic => json!([{"type": "text", "text": text}]),
            _ => json!(text),
        };
        let wanted =
            [("user", "One?"), ("assistant", "[the turn failed before the answer was complete]"), ("user", "Two?")];
        let wanted = wanted.map(|(role, text)| json!({"role": role, "content": content(text)}));
        assert_eq!(messages[messages.len() - 3..], wanted, "{name}");
    }
}

/// What a hook refused to begin with was never said.
#[test]
fn a_turn_that_did_not_begin_is_not_remembered() {
    let project = agent("", "- text: Done.\n").with_handle(
        "guard",
        "turn.start",
        "when: \"'bad' in payload\"\n",
        "return block('not that')",
    );
    project.run(&["run", "A bad word."]).says(3, "error: turn blocked: blocked by hook \"guard\": not that");
    let asked = requests(&spied(project, &["completion.pre"]).run(&["run", "--resume", "latest", "A good word."]));
    assert_eq!(seen(&asked[0]).0, ["user"]);
    assert!(!asked[0].to_string().contains("bad"), "{}", asked[0]);
}

/// Whether a call failed is what the host knows of it, not how its text begins.
#[test]
fn text_that_looks_like_an_error() {
    let replies = "- tool_calls: [{ name: says }, { name: fails }]\n- text: Done.\n";
    let project = agent("", replies)
        .tool("says", "", "def run(args):\n    return 'error: tool blocked: not really'\n")
        .tool("fails", "", "def run(args):\n    fail('really')\n");
    let project = spied(project, &["tool.post"]);
    let ran = project.run(&["run", "Go"]);
    let errors: Vec<Json> = told(&ran, "tool.post").iter().map(|post| post["is_error"].clone()).collect();
    assert_eq!(errors, [json!(false), json!(true)]);
    let recorded = crate::sessions::lines(&crate::sessions::last(&project), "called");
    let outcomes: Vec<&str> = recorded.iter().map(|line| line["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["completed", "failed"]);
}

/// A call that a hook puts into a reply has an identifier of its own, whatever the hook says.
#[test]
fn a_call_that_a_hook_adds() {
    let replies = "- tool_calls: [{ name: count, args: { n: 1 } }]\n- text: Enough.\n- text: Done.\n";
    let call = "{'id': 'call_1', 'type': 'function', 'function': {'name': 'count', 'arguments': {'n': 7}}}";
    let message = format!("{{'role': 'assistant', 'content': 'More.', 'tool_calls': [{call}]}}");
    let body = format!("return modify({{'choices': [{{'message': {message}, 'finish_reason': 'tool_calls'}}]}})");
    let front = "when: payload['choices'][0]['message']['content'] == 'Enough.'\n";
    let project = agent("", replies).tool("count", "", COUNT).with_handle("more", "completion.post", front, &body);
    let asked = requests(&spied(project, &["completion.pre"]).run(&["run", "Count."]));
    assert_eq!(seen(&asked[2]).1, ["counted 1", "counted 7"]);
    let messages = asked[2]["messages"].as_array().unwrap();
    let called: Vec<&Json> =
        messages.iter().filter_map(|message| message["tool_calls"].get(0)).map(|call| &call["id"]).collect();
    let answered: Vec<&Json> =
        messages.iter().filter(|message| message["role"] == "tool").map(|message| &message["tool_call_id"]).collect();
    assert_eq!(called, answered);
    assert!(called.len() == 2 && called[0] != called[1], "{called:?}");
}

/// What hooks made of an answer is what was said, when the conversation continues.
#[test]
fn an_answer_that_hooks_changed() {
    for (event, change) in [
        ("turn.end", "{'text': 'It is 43.'}"),
        ("agent.stop", "{'text': 'It is 43.'}"),
        (
            "completion.post",
            "{'choices': [{'message': {'role': 'assistant', 'content': 'It is 43.'}, 'finish_reason': 'stop'}]}",
        ),
    ] {
        let project =
            agent("", "- text: It is 42.\n").with_handle("hook", event, "", &format!("return modify({change})"));
        assert_eq!(project.run(&["run", "What is it?"]).out, "It is 43.\n", "{event}");
        std::fs::remove_file(project.path(".harness/hooks/hook.md")).unwrap();
        project.write("replies.yaml", "- text: Done.\n");
        let asked = requests(&spied(project, &["completion.pre"]).run(&["run", "--resume", "latest", "Sure?"]));
        let messages = asked[0]["messages"].as_array().unwrap();
        let said = messages.iter().find(|message| message["role"] == "assistant").unwrap();
        assert_eq!(said["content"], "It is 43.", "{event}");
        assert!(!asked[0].to_string().contains("42"), "{event}: {}", asked[0]);
    }
}

/// A service that counts is asked to: what would be sent, as it would be, without how it is to be answered.
#[test]
fn counted_by_the_service() {
    let seen = |answer: Answer| {
        let service = Service::new(vec![answer]);
        let project = project("anthropic", &service, ", max_tokens: 9, temperature: 0.5");
        let run = |arguments: &[&str]| {
            let output = project.command(arguments).env("HARNESS_TEST_KEY", KEY).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let told: Json = serde_json::from_str(&run(&["context", "What port?", "--json"])).unwrap();
        (told, run(&["context", "What port?"]), service.chats())
    };
    let (told, shown, asked) = seen(Answer::new("200 OK", "application/json", "{\"input_tokens\": 321}"));
    assert_eq!(told["counted_tokens"], 321);
    assert!(shown.contains("    321  counted by the model's service; the parts are estimates"), "{shown}");
    assert!(asked[0].head.starts_with("POST /v1/messages/count_tokens HTTP/1.1"), "{}", asked[0].head);
    assert!(asked[0].head.to_ascii_lowercase().contains(&format!("x-api-key: {}", KEY.to_ascii_lowercase())));
    let body = asked[0].json();
    let mut keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(keys, ["messages", "model", "system", "tools"]);
    assert_eq!(body["messages"], json!([{"role": "user", "content": [{"type": "text", "text": "What port?"}]}]));
    assert_eq!((&body["model"], &body["tools"][0]["name"]), (&json!("m-1"), &json!("read_file")));
    // One that does not tell leaves the estimate.
    for answer in [
        Answer::new("404 Not Found", "application/json", "{}"),
        Answer::new("200 OK", "application/json", "{\"input_tokens\": \"many\"}"),
        Answer::new("200 OK", "text/html", "<html>"),
    ] {
        let (told, shown, _) = seen(answer);
        assert_eq!(told["counted_tokens"], json!(null));
        assert!(shown.contains("estimated: a token for four bytes"), "{shown}");
    }
}
