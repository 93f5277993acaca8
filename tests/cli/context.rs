//! `harness context`: what a model would see, and what that takes.

use serde_json::{Value as Json, json};

use crate::agent_turns::{agent, spied, told};
use crate::project::Project;

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

/// After a recorded conversation it is what that conversation's next request has, cut as that would be.
#[test]
fn after_a_recorded_session() {
    let replies = "- tool_calls: [{ name: shown, args: { path: a } }]\n- text: It is one.\n- text: It still is.\n";
    let project = |policy: &str| {
        let policy = format!("context: {{ max_tokens: 100000 }}\n{policy}");
        let project = agent(&policy, replies);
        project.tool(
            "shown",
            "parameters:\n  path: { type: string, required: true }\n",
            "def run(args):\n    return 1\n",
        )
    };
    let recorded = spied(project(""), &["completion.pre"]);
    recorded.run(&["context", "--resume", "latest"]).says(2, "no session is recorded here");
    recorded.run(&["run", "What is it?"]).says(0, "");
    let seen = recorded.run(&["context", "--resume", "latest", "And now?", "--json"]).json();
    let plain = recorded.run(&["context", "--resume", "latest"]).out;
    let of_history = |seen: &Json| -> Vec<String> {
        let sections = seen["sections"].as_array().unwrap().iter().filter(|section| section["kind"] == "history");
        sections.map(|section| section["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(of_history(&seen), ["user", "assistant", "tool", "assistant"]);
    assert_eq!(seen["left_out_messages"], 0);
    let lines: Vec<&str> = plain.lines().filter(|line| line.starts_with("history: ")).collect();
    assert_eq!(lines.len(), 4, "{plain}");
    assert!(lines.iter().all(|line| line.contains('~')), "{plain}");
    // It is what the model then gets.
    recorded.write("replies.yaml", "- text: It still is.\n");
    let ran = recorded.run(&["run", "--resume", "latest", "And now?"]);
    let request = told(&ran, "completion.pre")[0].clone();
    let texts: Vec<Json> = seen["sections"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|section| section["kind"] != "tool")
        .map(|section| match section["name"].as_str() {
            Some("assistant" | "tool") => serde_json::from_str(section["text"].as_str().unwrap()).unwrap(),
            _ => section["text"].clone(),
        })
        .collect();
    let sent = request["messages"].as_array().unwrap().iter();
    let sent = sent.map(|message| match message["role"].as_str() {
        Some("assistant" | "tool") => message.clone(),
        _ => message["content"].clone(),
    });
    assert_eq!(texts, sent.collect::<Vec<_>>());
    // What has no room is left out in whole turns, and that is said.
    let short =
        project("").policy_of(|policy| policy.replace("max_tokens: 100000", "max_tokens: 100000, max_history: 3"));
    short.run(&["run", "What is it?"]).says(0, "");
    let seen = short.run(&["context", "--resume", "latest", "And now?", "--json"]).json();
    assert_eq!((of_history(&seen), &seen["left_out_messages"]), (Vec::new(), &json!(4)));
    let told = short.run(&["context", "--resume", "latest"]).out;
    assert!(told.contains("the oldest 4 messages of the conversation would be left out\n"), "{told}");
    // A sub-agent sees nothing of it.
    assert_eq!(short.run(&["context", "--resume", "latest", "--agent", "x"]).code, 2);
}
