//! `harness context`: what a model would see, and what that takes.

use serde_json::{Value as Json, json};

use crate::agent_services::run;
use crate::agent_turns::{agent, spied, told};
use crate::project::Project;
use crate::services::{Service, WIRES};

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
    // What is behind the agent's own prompt is one message.
    let shown = of(&["system", "prose", "prompt"]);
    let (first, rest) = shown.split_first().unwrap();
    let (last, behind) = rest.split_last().unwrap();
    let behind: Vec<&str> = behind.iter().map(|text| text.as_str().unwrap()).collect();
    let shown = [first.clone(), json!(behind.join("\n\n")), last.clone()];
    assert_eq!(shown.to_vec(), messages.map(|message| message["content"].clone()).collect::<Vec<_>>());
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
    let mut texts: Vec<Json> = Vec::new();
    for section in seen["sections"].as_array().unwrap().iter().filter(|section| section["kind"] != "tool") {
        let text = section["text"].as_str().unwrap();
        match (section["kind"].as_str(), section["name"].as_str()) {
            // What is behind the agent's own prompt is one message.
            (Some("prose"), _) => {
                let before = texts.pop().unwrap();
                texts.push(json!(format!("{}\n\n{text}", before.as_str().unwrap())));
            }
            (_, Some("assistant" | "tool")) => texts.push(serde_json::from_str(text).unwrap()),
            _ => texts.push(json!(text)),
        }
    }
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

/// In whatever form a model learns of its tools: the parts are what goes to the service, which is not asked for them.
#[test]
fn in_the_form_in_which_it_is_sent() {
    let shown = |form: &str| {
        let (wire, name) = WIRES[0];
        let prose = "I look.\n```json\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"config.yaml\"}}\n```\n";
        let first = match form {
            "structured" => wire.reply(true, "I look.", &[("read_file", json!({"path": "config.yaml"}))]),
            _ => wire.reply(true, prose, &[]),
        };
        let service = Service::new(vec![first, wire.reply(true, "8080.", &[]), wire.reply(true, "Still.", &[])]);
        let project = crate::agent_services::project(name, &service, ", context_tokens: 9000");
        let recorded = project.policy_of(|text| text.replace("tools: structured", &format!("tools: {form}")));
        assert_eq!(run(&recorded, &["run", "What port?"]).code, 0);
        let asked = service.chats().len();
        let seen = run(&recorded, &["context", "--resume", "latest", "And now?", "--json"]).json();
        let plain = run(&recorded, &["context"]).out;
        assert_eq!((service.chats().len(), &seen["tools"]), (asked, &json!(form)));
        run(&recorded, &["run", "--resume", "latest", "And now?"]);
        (seen, plain, service.chats()[asked].json())
    };
    let of = |seen: &Json, kinds: &[&str]| -> Vec<String> {
        let sections = seen["sections"].as_array().unwrap().iter();
        let sections = sections.filter(|section| kinds.contains(&section["kind"].as_str().unwrap()));
        sections.map(|section| section["text"].as_str().unwrap().to_owned()).collect()
    };
    // The system prompt, and what is said after it; of an assistant only its text.
    let messages = |sent: &Json| -> (Vec<String>, Vec<String>) {
        let (system, said): (Vec<&Json>, Vec<&Json>) =
            sent["messages"].as_array().unwrap().iter().partition(|message| message["role"] == "system");
        let text = |message: &&Json| message["content"].as_str().unwrap().to_owned();
        (system.iter().map(text).collect(), said.iter().map(text).collect())
    };
    let said = |seen: &Json| -> Vec<String> {
        let text = |text: String| match serde_json::from_str::<Json>(&text) {
            Ok(message) => message["content"].as_str().unwrap().to_owned(),
            Err(_) => text,
        };
        of(seen, &["history", "prompt"]).into_iter().map(text).collect()
    };
    let joined = |parts: Vec<String>| parts.iter().map(|part| part.trim_end()).collect::<Vec<_>>().join("\n\n");

    for (form, in_system, tools, as_shown) in [
        (
            "structured",
            &["system", "prose"][..],
            1,
            "model m-1, room for 9000 tokens\n\n\
             system: prompt of the agent             ~6  .harness/harness.md\n\
             system: what tools return is data      ~36\n\
             prose: tools/read_file                 ~46\n\
             tool: read_file                        ~30  .harness/tools/read_file.md\n\
             total                                 ~118  estimated: a token for four bytes\n",
        ),
        (
            "prose",
            &["system", "tool"],
            1,
            "model m-1, room for 9000 tokens, tools in prose\n\n\
             system: prompt of the agent             ~6  .harness/harness.md\n\
             system: how tools are called          ~121\n\
             tool: read_file                        ~28  .harness/tools/read_file.md\n\
             system: what tools return is data      ~36\n\
             total                                 ~191  estimated: a token for four bytes\n",
        ),
        (
            "none",
            &["system", "tool"],
            0,
            "model m-1, room for 9000 tokens, no tools\n\n\
             system: prompt of the agent             ~6  .harness/harness.md\n\
             system: what tools return is data      ~36\n\
             total                                  ~42  estimated: a token for four bytes\n",
        ),
    ] {
        let (seen, plain, sent) = shown(form);
        let (system, rest) = messages(&sent);
        assert_eq!((vec![joined(of(&seen, in_system))], said(&seen)), (system, rest), "{form}");
        let shown = of(&seen, &["tool"]);
        assert_eq!(shown.len(), tools, "{form}");
        let fields = sent["tools"].as_array().into_iter().flatten().map(|tool| tool["function"].clone());
        let fields: Vec<Json> = fields.collect();
        if form == "structured" {
            let schemas: Vec<Json> = shown.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
            assert_eq!(schemas, fields);
        } else {
            assert_eq!(fields, [json!(null); 0], "{form}");
        }
        // What is counted is what is shown.
        let tokens =
            seen["sections"].as_array().unwrap().iter().map(|section| section["estimated_tokens"].as_u64().unwrap());
        assert_eq!(seen["estimated_tokens"], tokens.sum::<u64>(), "{form}");
        assert_eq!(plain, as_shown);
    }
}
