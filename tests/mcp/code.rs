//! Code mode for clients: three tools instead of all.

use serde_json::{Value as Json, json};

use crate::client::{Client, audited, meta};
use crate::project::{FINE, Project};

const ON: &str = "mcp: { expose: code }\n";

fn names(tools: &[Json]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

fn project(policy: &str) -> Project {
    (0..60).fold(Project::new().policy(policy), |project, n| project.tool(&format!("t{n:02}"), "", FINE))
}

#[test]
fn a_client_gets_three_tools_and_calls_all_by_scripts() {
    let project = project(ON);
    let mut client = Client::start(&project, &[]);
    let tools = client.tools();
    assert_eq!(names(&tools), ["describe_tool", "run_script", "search_tools"]);
    assert_eq!(tools[1]["annotations"], json!({"readOnlyHint": false, "destructiveHint": true, "openWorldHint": true}));
    let whole = Client::of(self::project("mcp: { search_above: off }\n")).tools();
    let bytes = |tools: &[Json]| Json::from(tools.to_vec()).to_string().len();
    assert!(bytes(&tools) * 3 < bytes(&whole), "{} {}", bytes(&tools), bytes(&whole));
    let (found, is_error) = client.text("search_tools", json!({"query": "t07"}));
    assert_eq!((found.as_str(), is_error), ("1 of 60 tools:\nt07()  # A tool.", false));
    let script =
        "def run():\n    return [t01(), len(meta.parallel([('t%d%d' % (n // 10, n % 10),) for n in range(20)]))]\n";
    assert_eq!(client.text("run_script", json!({"script": script})), ("[\"fine\",20]".to_owned(), false));
    // What is not listed is called all the same.
    assert_eq!(client.text("t01", json!({})), ("fine".to_owned(), false));
}

#[test]
fn a_script_of_a_client_does_not_set_agents_to_work() {
    let delegates = "def run(args):\n    return delegate('helper', 'Go.')\n";
    let policy = format!("{ON}model: {{ provider: script, script: replies.yaml }}\n");
    let project = Project::new()
        .policy(&policy)
        .file(".harness/agents/helper.md", "---\n---\nYou help.\n")
        .file("replies.yaml", "- { agent: helper, text: Helped. }\n")
        .tool("sets", "", delegates);
    let mut client = Client::start(&project, &[]);
    let script = |call: &str| json!({"script": format!("def run():\n    return {call}\n")});
    let (text, is_error) =
        client.text("run_script", script("meta.call('dele' + 'gate', {'agent': 'helper', 'task': 'Go.'})"));
    assert!(is_error && text.contains("`delegate` is called by a model or a client, and not by a script"), "{text}");
    // A tool of the project may, as ever.
    let (text, is_error) = client.text("run_script", script("sets()"));
    assert!(!is_error && text.contains("Helped."), "{text}");
    let called: Vec<(Json, Json)> =
        audited(&project).iter().map(|line| (line["tool"].clone(), line["client"].clone())).collect();
    let want = ["run_script", "delegate", "sets", "run_script"].map(|tool| (json!(tool), json!("tester")));
    assert_eq!(called, want);
}

/// What the policy lets clients call as a task alone is not called by a script.
#[test]
fn only_as_tasks_holds_for_scripts_too() {
    let script = json!({"script": "def run():\n    return [meta.try_call(name).error for name in ['slow', 'fast']]\n"});
    let project = Project::new()
        .policy("mcp: { expose: code, only_as_tasks: [slow] }\n")
        .tool("slow", "", FINE)
        .tool("fast", "", FINE);
    let ran = project.run(&["call", "run_script", "--args", &script.to_string()]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "[null,null]\n"), "{ran}");
    let mut client = Client::of(project);
    let refused = "[\"`slow` is only called as a task, and not by a script of a client\",null]";
    assert_eq!(client.text("run_script", script), (refused.to_owned(), false));
}

/// A client that writes a tool's own name, which is not listed, gets no further than by the listed one.
#[test]
fn a_tool_has_one_policy_by_each_of_its_names() {
    let policy = "mcp: { only_as_tasks: [my-*, none*], only_in_scripts: [her-*] }\n";
    let project =
        Project::new().policy(policy).tool("my-tool", "", FINE).tool("her-tool", "", FINE).tool("its-tool", "", FINE);
    let mut client = Client::of(project);
    let listed = client.tools();
    let [its, my] = names(&listed)[..] else { panic!("{listed:?}") };
    assert!(its.starts_with("its_tool") && my.starts_with("my_tool"), "{its} {my}");
    let mut called = |name: &str| {
        let answer = client.request("tools/call", json!({"name": name, "arguments": {}, "_meta": meta()}));
        answer["error"]["code"].as_i64().ok_or_else(|| answer["result"]["content"][0]["text"].clone())
    };
    for name in [my, "my-tool"] {
        assert_eq!(called(name), Ok(-32021), "{name}");
    }
    assert_eq!(called("her-tool"), Ok(-32602));
    // What is not there is not there, whatever the policy says of its name.
    assert_eq!(called("none-tool"), Ok(-32602));
    for name in [its, "its-tool"] {
        assert_eq!(called(name), Err(json!("fine")), "{name}");
    }
}

/// A tool for scripts alone is found and called by scripts, and is no tool of a client.
#[test]
fn a_tool_for_scripts_alone_is_not_listed() {
    let project = Project::new()
        .policy("mcp: { expose: both, only_in_scripts: [m_*] }\n")
        .tool("shown", "", FINE)
        .tool("m_one", "", FINE)
        .tool("hidden", "expose: script\n", FINE);
    let mut client = Client::of(project);
    let listed = client.tools();
    assert_eq!(names(&listed), ["describe_tool", "run_script", "search_tools", "shown"]);
    for name in ["hidden", "m_one"] {
        let answer = client.request("tools/call", json!({"name": name, "arguments": {}, "_meta": meta()}));
        let message = format!("the tool `{name}` is only called by scripts");
        assert_eq!(answer["error"], json!({"code": -32602, "message": message}), "{answer}");
    }
    let script = json!({"script": "def run():\n    return [hidden(), m_one(), shown()]\n"});
    assert_eq!(client.text("run_script", script), ("[\"fine\",\"fine\",\"fine\"]".to_owned(), false));
    let (found, _) = client.text("search_tools", json!({"query": "hidden"}));
    assert!(found.contains("\nhidden()"), "{found}");
}

#[test]
fn both_are_offered_where_the_policy_says_both() {
    let mut client = Client::of(project("mcp: { expose: both, search_above: 5 }\n"));
    let listed = client.tools();
    assert_eq!(names(&listed), ["describe_tool", "run_script", "search_tools", "t00", "t01", "t02", "t03"]);
    let (found, _) = client.text("search_tools", json!({"query": "t59"}));
    assert_eq!(found, "1 of 60 tools:\nt59()  # A tool.");
}

/// A project as large as those of several servers: 100 tools with five described parameters each.
fn hundred(policy: &str) -> Project {
    let verbs = ["list", "get", "create", "update", "delete"];
    let things = ["issue", "label", "branch", "release", "comment", "project", "member", "review", "commit", "file"];
    let mut project = Project::new().policy(policy);
    for service in ["tracker", "forge"] {
        for (verb, thing) in verbs.iter().flat_map(|verb| things.iter().map(move |thing| (verb, thing))) {
            let front = format!(
                "parameters:\n  project: {{ type: string, required: true, description: 'Name of the project that has the {thing}.' }}\n  \
                 id: {{ type: number, description: 'Number of the {thing}; without one, the newest.' }}\n  \
                 state: {{ type: string, enum: [open, closed, all], default: open, description: 'State of the {thing}.' }}\n  \
                 since: {{ type: string, format: date-time, description: 'Only what changed since then.' }}\n  \
                 fields: {{ type: array, items: {{ type: string }}, description: 'Fields that the answer has.' }}\n"
            );
            let text = format!(
                "---\n{front}script: |\n  def run(args):\n      return {{'id': args.get('id', 0), 'title': 'x' * 200, 'votes': args.get('id', 0) % 7}}\n---\n\
                 Does {verb} for one {thing} of a project in the {service}. Returns the {thing} with its title and votes, \
                 after the change if there was one.\n"
            );
            project = project.file(&format!(".harness/tools/{service}_{verb}_{thing}.md"), &text);
        }
    }
    project
}

/// What the page compares is what is measured: bytes of definitions, messages, and bytes of results.
#[test]
fn the_page_compares_what_is_measured() {
    let bytes = |value: &Json| value.to_string().len();
    let measured = |policy: &str, calls: &dyn Fn(&mut Client) -> (usize, usize)| {
        let mut client = Client::of(hundred(policy));
        let definitions = bytes(&Json::from(client.tools()));
        let (messages, results) = calls(&mut client);
        (definitions, messages, results)
    };
    let one_by_one = measured("mcp: { search_above: off }\n", &|client| {
        let called: Vec<String> =
            (0..20).map(|id| client.text("tracker_get_issue", json!({"project": "p", "id": id})).0).collect();
        (called.len(), called.iter().map(String::len).sum())
    });
    let by_script = measured(ON, &|client| {
        let script = "def run():\n    calls = [(\"tracker_get_issue\", {\"project\": \"p\", \"id\": n}) for n in range(20)]\n    \
                      return [one.value[\"id\"] for one in meta.parallel(calls) if one.value[\"votes\"] > 4]\n";
        let (text, is_error) = client.text("run_script", json!({"script": script}));
        assert_eq!((text.as_str(), is_error), ("[5,6,12,13,19]", false));
        (1, text.len())
    });
    assert!(by_script.0 * 20 <= one_by_one.0, "{one_by_one:?} {by_script:?}");
    let row = |what: &str, (definitions, messages, results): (usize, usize, usize)| {
        format!("| {what} | {definitions} | {messages} | {results} |")
    };
    let page = include_str!("../../docs/mcp.md");
    let rows = format!("{}\n{}\n", row("`expose: tools`", one_by_one), row("`expose: code`", by_script));
    assert!(page.contains(&rows), "{rows}");
}
