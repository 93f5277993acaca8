//! Definitions of tools as clients get them.

use serde_json::{Value as Json, json};

use crate::client::Client;
use crate::project::{FINE, Project};

fn definition<'a>(tools: &'a [Json], name: &str) -> &'a Json {
    tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no {name} in {tools:?}"))
}

#[test]
fn a_definition_has_what_the_artifact_says() {
    let front = "parameters:\n  name: { type: string, required: true, description: Who. }\n  loud: { type: boolean }\n\
                 returns: { type: object, properties: { text: { type: string } } }\n";
    let project = Project::new().policy("sandbox:\n  fs: {}\n  services: []\n").tool("greet", front, FINE);
    let tools = Client::start(&project, &[]).tools();
    let want = json!([{
        "name": "greet",
        "description": "A tool.",
        "inputSchema": {
            "type": "object",
            "properties": {"name": {"type": "string", "description": "Who."}, "loud": {"type": "boolean"}},
            "required": ["name"],
        },
        "outputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
    }]);
    assert_eq!(Json::Array(tools), want);
}

#[test]
fn the_order_is_that_of_the_names_and_the_policy_decides_which_there_are() {
    let project = Project::new()
        .policy("tools_policy:\n  deny: [hidden]\n")
        .tool("b", "", FINE)
        .tool("a", "", FINE)
        .tool("hidden", "", FINE)
        .tool("C.d", "", FINE);
    let mut client = Client::start(&project, &[]);
    let listed = client.modern("tools/list", json!({}));
    let names: Vec<&str> =
        listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names[..2], ["a", "b"]);
    assert!(names.len() == 3 && names[2].starts_with("c_d_") && names[2].len() == 12, "{names:?}");
    assert!(listed["result"]["ttlMs"].is_u64() && listed["result"]["cacheScope"] == "private", "{listed}");
    assert_eq!(client.modern("tools/list", json!({})), listed);
    assert_eq!(Client::start(&project, &[]).modern("tools/list", json!({})), listed);
    // The name that a client uses leads to the tool.
    assert_eq!(client.text(names[2], json!({})), ("fine".to_owned(), false));
    let error = client.modern("tools/call", json!({"name": "hidden"}));
    assert_eq!(error["error"]["code"], -32602, "{error}");
}

#[test]
fn hints_follow_from_the_grant() {
    let cases = [
        ("fs: { read: [docs] }", true, false),
        ("fs: { write: [docs] }", false, false),
        ("exec: { allow: [ls] }", false, false),
        ("exec: { allow: [ls], network: true }", false, true),
        ("network: [{ host: example.com, methods: [GET] }]", true, true),
        ("network: [example.com]", false, true),
    ];
    for (rules, reads_only, open) in cases {
        let key = rules.split(':').next().unwrap();
        let nothing = ["fs: {}", "exec: {}", "network: []"].into_iter().filter(|other| !other.starts_with(key));
        let rules_of_all: Vec<&str> = nothing.chain([rules]).collect();
        let policy = "network: { allowed_domains: [example.com] }\n\
                      sandbox:\n  fs: { read: [.], write: [.] }\n  exec: { allow: [ls], network: true }\n";
        let front = format!("capabilities:\n  {}\n", rules_of_all.join("\n  "));
        let project = Project::new().policy(policy).tool("it", &front, FINE);
        let tools = Client::start(&project, &[]).tools();
        let hints = &definition(&tools, "it")["annotations"];
        let mut want = json!({"readOnlyHint": reads_only, "openWorldHint": open});
        if !reads_only {
            want["destructiveHint"] = json!(true);
        }
        assert_eq!(*hints, want, "{rules}");
    }
}

/// A project with tools `t00` to so many.
fn many(count: usize, policy: &str) -> Project {
    let project = Project::new().policy(policy);
    (0..count).fold(project, |project, n| {
        let text = format!(
            "---\nscript: |\n  def run(args):\n      return {n}\n---\nCounts {}.\n",
            if n % 2 == 0 { "even" } else { "odd" }
        );
        project.file(&format!(".harness/tools/t{n:02}.md"), &text)
    })
}

fn names(tools: &[Json]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn many_tools_are_searched() {
    let project = many(41, "mcp: {}\n");
    let mut client = Client::start(&project, &[]);
    let tools = client.tools();
    let first: Vec<String> = (0..39).map(|n| format!("t{n:02}")).collect();
    assert_eq!(names(&tools), [&["search_tools"], &first.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
    assert_eq!(tools[0]["inputSchema"]["required"], json!(["query"]));
    let mut found = |query: &str| -> Json {
        let (text, is_error) = client.text("search_tools", json!({"query": query}));
        assert!(!is_error, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    let tool = json!({"name": "t40", "description": "Counts even.", "inputSchema": {"type": "object", "properties": {}, "required": []}});
    assert_eq!(found("T40"), json!({"tools": [tool], "total": 1}));
    // More words first, names before descriptions, then the order of the names; 20 at most.
    let some = found("even t39");
    assert_eq!(
        (&some["tools"][0]["name"], &some["tools"][1]["name"], &some["total"]),
        (&json!("t39"), &json!("t00"), &json!(22))
    );
    assert_eq!(some["tools"].as_array().unwrap().len(), 20);
    assert_eq!(found("nothing"), json!({"tools": [], "total": 0}));
    assert_eq!(client.text("t40", json!({})), ("40".to_owned(), false));
    let (text, is_error) = client.text("search_tools", json!({}));
    assert!(is_error && text.contains("do not fit its parameters"), "{text}");
    let entries = crate::client::audited(&project);
    assert_eq!(
        (&entries[0]["tool"], &entries[0]["client"], &entries[0]["outcome"]),
        (&json!("search_tools"), &json!("tester"), &json!("completed"))
    );
}

#[test]
fn the_policy_decides_how_many_tools_are_listed() {
    for (count, policy, listed, searches) in [
        (40, "mcp: {}\n", 40, false),
        (3, "mcp: { search_above: 2 }\n", 2, true),
        (2, "mcp: { search_above: 2 }\n", 2, false),
        (41, "mcp: { search_above: off }\n", 41, false),
        (41, "tools_policy: { deny: [search_tools] }\n", 41, false),
    ] {
        let mut client = Client::of(many(count, policy));
        let tools = client.tools();
        assert_eq!((tools.len(), names(&tools).contains(&"search_tools")), (listed, searches), "{policy}");
        let answer = client.modern("tools/call", json!({"name": "search_tools", "arguments": {"query": "t00"}}));
        assert_eq!(answer["result"].is_object(), searches, "{answer}");
    }
    // A tool of the project has its own name.
    let mut client = Client::of(many(3, "mcp: { search_above: 2 }\n").tool("search_tools", "", FINE));
    assert_eq!(client.tools().len(), 4);
    assert_eq!(client.text("search_tools", json!({})), ("fine".to_owned(), false));
}

#[test]
fn all_tools_are_listed_in_pages() {
    let mut client = Client::of(many(101, "mcp: { search_above: off }\n"));
    let first = client.modern("tools/list", json!({}))["result"].take();
    assert_eq!(first["tools"].as_array().unwrap().len(), 100);
    let rest = client.modern("tools/list", json!({"cursor": first["nextCursor"]}))["result"].take();
    assert_eq!(names(rest["tools"].as_array().unwrap()), ["t99"]);
    assert!(rest.get("nextCursor").is_none(), "{rest}");
}

#[test]
fn a_cursor_that_was_never_returned_is_refused() {
    let mut client = Client::of(Project::with_script(FINE));
    assert_eq!(client.modern("tools/list", json!({"cursor": "2"}))["error"]["code"], -32602);
    assert_eq!(client.tools().len(), 1);
}

#[test]
fn a_schema_is_whole_if_the_policy_says_so() {
    let parameters = "parameters:\n  type: object\n  properties: { a: { type: string }, b: { type: string } }\n  \
                      anyOf: [{ required: [a] }, { required: [b] }]\n  if: { required: [a] }\n  then: { required: [b] }\n";
    let listed = |policy: &str| {
        let project = Project::new().policy(policy).tool("it", parameters, FINE);
        Client::start(&project, &[]).tools()[0]["inputSchema"].clone()
    };
    let plain = json!({
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "required": [],
    });
    let mut whole = plain.clone();
    whole["anyOf"] = json!([{"required": ["a"]}, {"required": ["b"]}]);
    whole["if"] = json!({"required": ["a"]});
    whole["then"] = json!({"required": ["b"]});
    for (policy, want) in
        [("mcp: {}\n", &plain), ("mcp: { schemas: plain }\n", &plain), ("mcp: { schemas: whole }\n", &whole)]
    {
        assert_eq!(&listed(policy), want, "{policy}");
    }
}
