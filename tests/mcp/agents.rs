//! Agents as tools.

use std::io::Read as _;

use serde_json::{Value as Json, json};

use crate::client::{Client, LEGACY, audited, meta};
use crate::project::{FINE, Project};
use crate::streams::wait_until_begun;
use crate::web::{Web, modern, request};

const HELPER: &str = "---\ndescription: Helps with files.\n---\nYou help.\n";
/// The helper calls a tool and answers.
const HELPED: &str = "- { agent: helper, tool_calls: [{ name: it, args: { x: 1 } }] }\n\
                      - { agent: helper, expect: fine, text: It is done. }\n";
const OFFERED: &str = "mcp: { agents: [helper] }\n";

/// A project whose model has these replies, with the agent `helper` and the tool `it`.
fn helped(policy: &str, replies: &str) -> Project {
    Project::new()
        .policy(&format!("model: {{ provider: script, script: replies.yaml }}\n{policy}"))
        .file("replies.yaml", replies)
        .file(".harness/agents/helper.md", HELPER)
        .tool("it", "", FINE)
}

fn names(client: &mut Client) -> Vec<String> {
    client.tools().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn definition(client: &mut Client, name: &str) -> Json {
    let tools = client.tools();
    tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{tools:?}")).clone()
}

fn answer(text: &str) -> Json {
    json!({"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": false})
}

/// Of each entry of the audit log these keys.
fn logged(project: &Project, keys: &[&str]) -> Vec<Json> {
    audited(project).iter().map(|entry| keys.iter().map(|key| entry[*key].clone()).collect()).collect()
}

#[test]
fn no_agent_is_a_tool_unless_the_policy_says_so() {
    let project = helped("", HELPED);
    let mut client = Client::start(&project, &[]);
    assert_eq!(names(&mut client), ["it"]);
    for (name, arguments) in [("helper", json!({"task": "x"})), ("run_agent", json!({"agent": "helper", "task": "x"}))]
    {
        let refused = client.modern("tools/call", json!({"name": name, "arguments": arguments}));
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    assert_eq!(
        logged(&project, &["tool", "outcome"]),
        [json!(["helper", "rejected"]), json!(["run_agent", "rejected"])]
    );
    // A policy that lets nobody delegate offers nothing either.
    let project = helped(&format!("{OFFERED}tools_policy: {{ deny: [delegate] }}\n"), HELPED);
    let mut client = Client::start(&project, &[]);
    assert_eq!(names(&mut client), ["it"]);
    assert_eq!(client.modern("tools/call", json!({"name": "helper"}))["error"]["code"], -32602);
    // The control.
    assert_eq!(names(&mut Client::start(&helped(OFFERED, HELPED), &[])), ["helper", "it"]);
}

#[test]
fn an_agent_is_a_tool_of_its_own_name_that_takes_a_task() {
    let project = helped(OFFERED, HELPED);
    let mut client = Client::start(&project, &[]);
    let sees = "The agent does not see this conversation: the task must contain everything that it needs.";
    assert_eq!(
        definition(&mut client, "helper"),
        json!({
            "name": "helper",
            "description": format!("Helps with files.\n\n{sees}"),
            "inputSchema": {
                "type": "object",
                "properties": {"task": {"type": "string", "description": "The task."}},
                "required": ["task"],
            },
            "annotations": {"readOnlyHint": false, "destructiveHint": true, "openWorldHint": true},
        })
    );
    assert_eq!(client.call("helper", json!({"task": "Do it."})), answer("It is done."));
    // Every call that it makes is logged as one of the client's request.
    let of = |tool: &str| json!([tool, "completed", "tester", "mcp/2026-07-28", "2"]);
    let keys = ["tool", "outcome", "client", "protocol", "request"];
    assert_eq!(logged(&project, &keys), [of("it"), of("delegate")]);
    let (text, is_error) = client.text("helper", json!({}));
    assert!(
        is_error
            && text.contains(
                "the arguments of `helper` do not fit its parameters\n- the argument `task` (string) is missing"
            ),
        "{text}"
    );
    // Which agent it is was not for the client to say.
    let (text, is_error) = client.text("helper", json!({"agent": "other", "task": "x"}));
    assert!(is_error && text.contains("helper") && !text.contains("other"), "{text}");
}

#[test]
fn all_agents_are_one_tool_if_the_policy_says_so() {
    let policy = "mcp: { agents: [helper, review_*], agents_as: run_agent }\n";
    let project = helped(policy, HELPED)
        .file(".harness/agents/review_code.md", "---\n---\nYou review.\n")
        .file(".harness/agents/hidden.md", "---\ndescription: Hides.\n---\nYou hide.\n");
    let mut client = Client::start(&project, &[]);
    assert_eq!(names(&mut client), ["it", "run_agent"]);
    let about = "Sets an agent a task and returns its answer. The agent does not see this conversation: the task must \
                 contain everything that it needs.\n\nAgents:\n- helper: Helps with files.\n- review_code";
    assert_eq!(
        definition(&mut client, "run_agent"),
        json!({
            "name": "run_agent",
            "description": about,
            "inputSchema": {
                "type": "object",
                "properties": {
                    "agent": {"type": "string", "enum": ["helper", "review_code"], "description": "Name of the agent."},
                    "task": {"type": "string", "description": "The task."},
                },
                "required": ["agent", "task"],
            },
            "annotations": {"readOnlyHint": false, "destructiveHint": true, "openWorldHint": true},
        })
    );
    let (text, is_error) = client.text("run_agent", json!({"agent": "hidden", "task": "x"}));
    let want =
        "tool denied: the agent `hidden` is not offered to clients\nhint: add `hidden` to `mcp.agents` in the policy";
    assert_eq!((text.as_str(), is_error), (want, true));
    let (text, is_error) = client.text("run_agent", json!({"agent": 1, "task": "x"}));
    assert!(is_error && text.contains("the argument `agent` must be of type string"), "{text}");
    assert_eq!(client.call("run_agent", json!({"agent": "helper", "task": "x"})), answer("It is done."));
    let outcomes = logged(&project, &["tool", "outcome"]);
    let of = |tool: &str, outcome: &str| json!([tool, outcome]);
    assert_eq!(
        outcomes,
        [of("delegate", "denied"), of("delegate", "rejected"), of("it", "completed"), of("delegate", "completed")]
    );
}

#[test]
fn a_name_that_is_taken_stays_what_it_was() {
    let project = helped("mcp: { agents: ['*'] }\n", HELPED)
        .file(".harness/agents/it.md", "---\n---\nYou are it.\n")
        .file(".harness/agents/delegate.md", "---\n---\nYou delegate.\n");
    let mut client = Client::start(&project, &[]);
    let listed = names(&mut client);
    assert_eq!(listed.len(), 4, "{listed:?}");
    assert!(listed[0].starts_with("agent_delegate_") && listed[1].starts_with("agent_it_"), "{listed:?}");
    assert_eq!(listed[2..], ["helper", "it"]);
    assert_eq!(client.call("it", json!({})), answer("fine"));
    let refused =
        client.modern("tools/call", json!({"name": "delegate", "arguments": {"agent": "helper", "task": "x"}}));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(client.call("helper", json!({"task": "x"})), answer("It is done."));
}

#[test]
fn hooks_and_budgets_of_delegation_hold() {
    let guard = "---\nevent: tool.pre\nwhen: payload['name'] == 'delegate'\nscript: |\n  def handle(event, payload):\n      \
                 if payload['args'] == {'agent': 'helper', 'task': 'bad'}:\n          return block('not that')\n      \
                 return allow()\n---\n";
    let project = helped(OFFERED, HELPED).file(".harness/hooks/guard.md", guard);
    let mut client = Client::start(&project, &[]);
    let (text, is_error) = client.text("helper", json!({"task": "bad"}));
    assert!(is_error && text.contains("not that"), "{text}");
    assert_eq!(client.call("helper", json!({"task": "good"})), answer("It is done."));

    let change = "---\nevent: tool.post\nwhen: payload['name'] == 'delegate'\nscript: |\n  def handle(event, payload):\n      \
                  return modify({'content': 'changed'})\n---\n";
    let project = helped(OFFERED, HELPED).file(".harness/hooks/change.md", change);
    assert_eq!(Client::start(&project, &[]).call("helper", json!({"task": "x"})), answer("changed"));

    let twice = "- { agent: helper, tool_calls: [{ name: it }, { name: it }] }\n";
    let again = format!("{HELPED}{twice}");
    let project = helped(&format!("{OFFERED}delegation: {{ tree_budget: {{ calls: 1 }} }}\n"), &again);
    let mut client = Client::start(&project, &[]);
    assert_eq!(client.call("helper", json!({"task": "x"})), answer("It is done."));
    let (text, is_error) = client.text("helper", json!({"task": "x"}));
    assert!(is_error && text.contains("delegation.tree_budget"), "{text}");
}

#[test]
fn a_secret_is_in_no_answer_of_an_agent() {
    let value = "a-long-secret-value-of-a-test";
    let policy =
        format!("{OFFERED}sandbox:\n  secrets:\n    TOKEN: {{ env: HARNESS_TEST_SECRET, hosts: [example.com] }}\n");
    let replies = format!(
        "- {{ agent: helper, tool_calls: [{{ name: {value} }}] }}\n- {{ agent: helper, text: It is {value}. }}\n"
    );
    let project = helped(&policy, &replies);
    let mut client = Client::start_with(&project, &[], &[("HARNESS_TEST_SECRET", value)]);
    let (steps, result) = watched(&mut client, json!("p"), "x");
    let all = format!("{steps:?} {result}");
    assert!(!all.contains(value) && result["result"]["isError"] == false, "{all}");
    assert!(all.contains("It is "), "{all}");
}

/// The steps of a call of the helper, and its answer.
fn watched(client: &mut Client, token: Json, task: &str) -> (Vec<Json>, Json) {
    let mut meta = meta();
    meta["progressToken"] = token;
    let id = client.begin("tools/call", json!({"name": "helper", "arguments": {"task": task}, "_meta": meta}));
    let mut steps = Vec::new();
    loop {
        let message = client.receive();
        if message["id"] == id {
            return (steps, message);
        }
        steps.push(message);
    }
}

/// The steps of the helper as it is told to work above.
fn steps(token: &Json) -> Vec<Json> {
    let said = [
        "helper begins",
        "helper asks its model (1)",
        "helper calls it",
        "helper: it completed",
        "helper asks its model (2)",
    ];
    let step = |(number, message): (usize, &&str)| {
        let params = json!({"progressToken": token, "progress": number, "message": message});
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    };
    (1..).zip(&said).map(step).collect()
}

#[test]
fn a_client_that_wants_to_know_gets_the_steps_before_the_answer() {
    let project = helped(OFFERED, &HELPED.repeat(3));
    let mut client = Client::start(&project, &[]);
    for token in [json!("p"), json!(7)] {
        let (got, result) = watched(&mut client, token.clone(), "x");
        assert_eq!((got, &result["result"]), (steps(&token), &answer("It is done.")));
    }
    // Without a token the next message is the answer.
    assert_eq!(client.call("helper", json!({"task": "x"})), answer("It is done."));
    let (rest, code, _) = client.end();
    assert_eq!((rest, code), (vec![], 0));
}

#[test]
fn an_older_client_gets_the_steps_too() {
    let project = helped(OFFERED, HELPED);
    let mut client = Client::legacy(&project, &[]);
    let params = json!({"name": "helper", "arguments": {"task": "x"}, "_meta": {"progressToken": "p"}});
    client.begin("tools/call", params);
    let got: Vec<Json> = (0..5).map(|_| client.receive()).collect();
    assert_eq!(got, steps(&json!("p")));
    assert_eq!(client.receive()["result"]["content"][0]["text"], "It is done.");
}

/// The messages in a stream of events, to its end.
fn events(web: &Web, body: &Json, headers: &[(&str, &str)]) -> (String, Vec<Json>) {
    let mut all = headers.to_vec();
    all.push(("Host", web.address()));
    let mut stream = web.connect();
    std::io::Write::write_all(&mut stream, &request("POST /mcp", &all, &body.to_string())).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let data = body.lines().filter_map(|line| line.strip_prefix("data: {"));
    (head.to_ascii_lowercase(), data.map(|rest| serde_json::from_str(&format!("{{{rest}")).unwrap()).collect())
}

#[test]
fn over_http_the_steps_are_events_before_the_answer() {
    let project = helped(OFFERED, &HELPED.repeat(2));
    let web = Web::open(&project);
    let (mut body, headers) = modern("tools/call", json!({"name": "helper", "arguments": {"task": "x"}}));
    body["params"]["_meta"]["progressToken"] = json!("p");
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (head, mut got) = events(&web, &body, &headers);
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert_eq!(got.pop().unwrap()["result"], answer("It is done."));
    assert_eq!(got, steps(&json!("p")));
    let older = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "helper", "arguments": {"task": "x"}, "_meta": {"progressToken": "p"},
    }});
    let (_, mut got) = events(&web, &older, &[("MCP-Protocol-Version", LEGACY)]);
    assert_eq!(got.pop().unwrap()["result"]["content"][0]["text"], "It is done.");
    assert_eq!(got, steps(&json!("p")));
}

/// An agent whose tool runs until it is ended.
fn endless(policy: &str) -> Project {
    let script = "def run(args):\n    fs.write('began', '')\n    for i in range(1000000000):\n        for j in range(1000000000):\n            pass\n";
    let policy = format!("{OFFERED}{policy}sandbox:\n  limits: {{ timeout_ms: 600000, fuel: 1000000000000 }}\n");
    let replies = "- { agent: helper, tool_calls: [{ name: endless }] }\n- { agent: helper, text: Again. }\n";
    helped(&policy, replies).tool("endless", "timeout_ms: 600000\n", script)
}

#[test]
fn a_canceled_task_ends_with_all_that_the_agent_has_begun() {
    let project = endless("");
    let mut client = Client::start(&project, &[]);
    let params = json!({"name": "helper", "arguments": {"task": "x"}, "_meta": meta()});
    let id = client.begin("tools/call", params);
    wait_until_begun(&project);
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    let ended = |tool: &str| logged(&project, &["tool", "outcome"]).contains(&json!([tool, "abandoned"]));
    while !(ended("endless") && ended("delegate")) {}
    assert_eq!(client.call("it", json!({})), answer("fine"));
}

#[test]
fn as_many_agents_work_for_clients_as_may_at_one_time() {
    let project = endless("delegation: { max_concurrent: 1 }\n");
    let mut client = Client::start(&project, &[]);
    let id = client.begin("tools/call", json!({"name": "helper", "arguments": {"task": "x"}, "_meta": meta()}));
    wait_until_begun(&project);
    let (text, is_error) = client.text("helper", json!({"task": "x"}));
    let want = "tool denied: no more than 1 agents may work for clients at one time\nhint: call again later; `delegation.max_concurrent` in the policy raises this";
    assert_eq!((text.as_str(), is_error), (want, true));
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    while !logged(&project, &["tool", "outcome"]).contains(&json!(["delegate", "abandoned"])) {}
    // There is room again once the other has ended.
    let again = std::iter::repeat_with(|| client.call("helper", json!({"task": "x"})));
    assert_eq!(again.into_iter().find(|result| result["isError"] == false), Some(answer("Again.")));
}

#[test]
fn what_the_policy_says_of_agents_is_checked() {
    let ran = helped("mcp: { agents: [helpr] }\n", HELPED).run(&["validate"]);
    assert!(ran.err.contains("`mcp.agents`: no agent is named like `helpr`"), "{ran}");
    assert!(ran.err.contains("did you mean `helper`?"), "{ran}");
    for (wrong, why) in [
        ("mcp: { agents: helper }\n", "mcp.agents"),
        ("mcp: { agents: ['[a]'] }\n", "mcp.agents"),
        ("mcp: { agents_as: each }\n", "mcp.agents_as \"each\" must be tools|run_agent"),
        ("mcp: { schemas: raw }\n", "mcp.schemas \"raw\" must be plain|whole"),
        ("mcp: { agent: [helper] }\n", "mcp.agent"),
    ] {
        let ran = helped(wrong, HELPED).run(&["mcp", "serve"]);
        assert!(ran.code != 0 && ran.err.contains(why), "{wrong}: {ran}");
    }
    helped(OFFERED, HELPED).run(&["mcp", "serve"]).gives_nothing();
}

#[test]
fn more_agents_for_clients_are_more_that_a_policy_allows() {
    let project = helped("", HELPED)
        .file("none.md", "---\n{}\n---\n")
        .file("one.md", "---\nmcp: { agents: [helper] }\n---\n")
        .file("all.md", "---\nmcp: { agents: ['*'] }\n---\n");
    let ran = project.run(&["policy", "diff", "none.md", "one.md"]);
    let want = "the new policy allows more than the old one:\n  mcp.agents: clients may set tasks to the agent `helper`\n      \
                before: they may not\n";
    assert_eq!((ran.code, ran.out.as_str()), (1, want), "{ran}");
    assert_eq!(project.run(&["policy", "diff", "one.md", "all.md"]).code, 1);
    project.run(&["policy", "diff", "all.md", "one.md"]).gives("the new policy allows nothing more than the old one");
}
