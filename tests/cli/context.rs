//! `harness context`: what a model would see, and what that takes.

use serde_json::{Value as Json, json};

use crate::agent_turns::{agent, spied, told};
use crate::project::Project;
use crate::services::{Answer, KEY, Service};

const RESEARCHER: &str = "---\ndescription: Finds things.\ntools:\n  - name: own\n    script: |\n      def run(args):\n          return 1\n---\nYou research.\n";

fn project() -> Project {
    agent(
        "context: { max_tokens: 1000 }\ntools_policy: { deny: [hidden] }\n",
        "- text: Hello.\n- { agent: researcher, text: Hi. }\n",
    )
    .tool("shown", "parameters:\n  path: { type: string, required: true }\n", "def run(args):\n    return 1\n")
    .tool("hidden", "", "def run(args):\n    return 1\n")
    .file(".harness/agents/researcher.md", RESEARCHER)
}

/// What is shown is what is sent: the parts are those of the request that hooks see.
#[test]
fn what_is_told_is_what_a_model_gets() {
    let ran = spied(project(), &["completion.pre"]).run(&["run", "What is it?"]);
    let request = &told(&ran, "completion.pre")[0];
    let seen = project().run(&["context", "What is it?", "--json"]).json();
    let of = |kinds: &[&str]| -> Vec<Json> {
        let sections = seen["sections"].as_array().unwrap().iter();
        sections
            .filter(|section| kinds.contains(&section["kind"].as_str().unwrap()))
            .map(|section| section["text"].clone())
            .collect()
    };
    let messages = request["messages"].as_array().unwrap().iter();
    assert_eq!(of(&["system", "prompt"]), messages.map(|message| message["content"].clone()).collect::<Vec<_>>());
    let tools: Vec<Json> =
        of(&["tool"]).iter().map(|text| serde_json::from_str(text.as_str().unwrap()).unwrap()).collect();
    let sent: Vec<Json> = request["tools"].as_array().unwrap().iter().map(|tool| tool["function"].clone()).collect();
    assert_eq!(tools, sent);
    assert_eq!(seen["room_tokens"], 1000);
    assert_eq!(seen["counted_tokens"], json!(null));
    let tokens = |section: &Json| section["estimated_tokens"].as_u64().unwrap();
    let sum: u64 = seen["sections"].as_array().unwrap().iter().map(tokens).sum();
    assert_eq!(seen["estimated_tokens"], sum);
    assert_eq!(seen["sections"][0]["file"], ".harness/harness.md");
    // A longer prompt takes more, and nothing else does.
    let longer = project().run(&["context", &"What is it? ".repeat(40), "--json"]).json();
    assert!(longer["estimated_tokens"].as_u64().unwrap() > sum + 100);
    assert_eq!(longer["sections"][2], seen["sections"][2]);
}

#[test]
fn as_a_person_reads_it() {
    let ran = project().run(&["context"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], "model script, room for 1000 tokens");
    assert!(lines[2].starts_with("system: prompt of the agent") && lines[2].ends_with(".harness/harness.md"), "{ran}");
    assert!(
        lines.iter().any(|line| line.starts_with("tool: shown ") && line.ends_with(".harness/tools/shown.md")),
        "{ran}"
    );
    assert!(!ran.out.contains("hidden"), "{ran}");
    assert!(lines.last().unwrap().ends_with("estimated: a token for four bytes"), "{ran}");
    let full = project().run(&["context", "--full"]).out;
    assert!(full.contains("    You help.\n") && full.contains("- researcher: Finds things."), "{full}");
}

#[test]
fn of_a_sub_agent() {
    let ran = project().run(&["context", "--agent", "researcher", "--json"]);
    let seen = ran.json();
    let names: Vec<&Json> = seen["sections"].as_array().unwrap().iter().map(|section| &section["name"]).collect();
    assert!(names.contains(&&json!("own")) && names.contains(&&json!("shown")), "{names:?}");
    assert_eq!((&seen["agent"], &seen["sections"][0]["text"]), (&json!("researcher"), &json!("You research.\n")));
    assert_eq!(seen["sections"][0]["file"], ".harness/agents/researcher.md");
    project().run(&["context", "--agent", "nobody"]).says(2, "there is no agent `nobody`");
    Project::new().run(&["context"]).says(2, "names no model");
}

/// A service that counts is asked to: what would be sent, as it would be, without how it is to be answered.
#[test]
fn counted_by_the_service() {
    let seen = |answer: Answer| {
        let service = Service::new(vec![answer]);
        let project = crate::agent_services::project("anthropic", &service, ", max_tokens: 9, temperature: 0.5");
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
