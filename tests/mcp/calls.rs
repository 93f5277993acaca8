//! Results of calls, and what governs them.

use serde_json::json;

use crate::client::{Client, audited};
use crate::project::{FINE, Project};

#[test]
fn a_result_is_text_and_structured_where_the_tool_says_what_it_returns() {
    let script = "def run(args):\n    return {'n': args['n']}\n";
    let parameters = "parameters:\n  n: { type: integer }\n";
    let project = Project::new().tool("plain", parameters, script).tool(
        "typed",
        &format!("{parameters}returns: {{ type: object, properties: {{ n: {{ type: integer }} }} }}\n"),
        script,
    );
    let mut client = Client::start(&project, &[]);
    let text = json!([{"type": "text", "text": "{\"n\":3}"}]);
    assert_eq!(
        client.call("plain", json!({"n": 3})),
        json!({"resultType": "complete", "content": text, "isError": false})
    );
    let typed = client.call("typed", json!({"n": 3}));
    assert_eq!(
        typed,
        json!({"resultType": "complete", "content": text, "structuredContent": {"n": 3}, "isError": false})
    );
    // A number of any size arrives as it was sent.
    let large = client.text("plain", serde_json::from_str("{\"n\": 123456789012345678901234567890}").unwrap());
    assert_eq!(large, ("{\"n\":123456789012345678901234567890}".to_owned(), false));
}

#[test]
fn a_structured_result_that_is_too_large_is_an_error() {
    let script = "def run(args):\n    return {'text': 'x' * args['n']}\n";
    let project = Project::new().policy("sandbox:\n  limits: { output_bytes: 256 }\n").tool(
        "typed",
        "parameters:\n  n: { type: integer }\nreturns: { type: object }\n",
        script,
    );
    let mut client = Client::start(&project, &[]);
    assert!(!client.text("typed", json!({"n": 50})).1);
    let (text, is_error) = client.text("typed", json!({"n": 300}));
    assert!(is_error && text.contains("`limits.output_bytes`"), "{text}");
}

/// What the program offers to models and scripts is not offered to clients: it would use the operator's models.
#[test]
fn a_client_delegates_to_no_agent_but_through_a_tool() {
    let script = "def run(args):\n    return delegate('helper', 'Help.')['content']\n";
    let project = Project::new()
        .file(".harness/agents/helper.md", "---\ndescription: Helps.\n---\nYou help.\n")
        .tool("asks", "", script);
    let mut client = Client::start(&project, &[]);
    let task = json!({"agent": "helper", "task": "Help."});
    for name in ["delegate", "delegate_async", "delegate_status", "delegate_await"] {
        let answer = client.modern("tools/call", json!({"name": name, "arguments": task}));
        assert_eq!(answer["error"], json!({"code": -32602, "message": format!("there is no tool `{name}`")}));
    }
    let outcomes: Vec<_> = audited(&project).iter().map(|entry| entry["outcome"].clone()).collect();
    assert_eq!(outcomes, ["rejected"; 4]);
    // The control: a tool's script asks the agent, for which this project has no model.
    let (text, is_error) = client.text("asks", json!({}));
    assert!(is_error && text.contains("names no model"), "{text}");
}

#[test]
fn an_unknown_tool_is_an_error_of_the_protocol_and_bad_arguments_are_for_the_model() {
    let project = Project::new().tool("greet", "parameters:\n  name: { type: string, required: true }\n", FINE);
    let mut client = Client::start(&project, &[]);
    let unknown = client.modern("tools/call", json!({"name": "grett"}));
    assert_eq!(unknown["error"], json!({"code": -32602, "message": "there is no tool `grett`; did you mean `greet`?"}));
    let (text, is_error) = client.text("greet", json!({"name": 1}));
    let want = "tool error: the arguments of `greet` do not fit its parameters\n- the argument `name` must be of type \
                string, found number";
    assert_eq!((text.as_str(), is_error), (want, true));
    assert_eq!(client.text("greet", json!({"name": "x"})), ("fine".to_owned(), false));
    assert_eq!(client.modern("tools/call", json!({"arguments": {}}))["error"]["code"], -32602);
    assert_eq!(client.modern("tools/call", json!({"name": "greet", "arguments": []}))["error"]["code"], -32602);
    let outcomes: Vec<_> = audited(&project).iter().map(|entry| entry["outcome"].clone()).collect();
    assert_eq!(outcomes, ["rejected", "rejected", "completed"]);
}

#[test]
fn a_denial_has_its_hint() {
    let script = "def run(args):\n    return fs.read(args['path'])\n";
    let project = Project::new()
        .policy("sandbox:\n  fs: { read: [docs] }\n")
        .tool("it", "", script)
        .file("docs/a", "open")
        .file("b", "closed");
    let mut client = Client::start(&project, &[]);
    let (text, is_error) = client.text("it", json!({"path": "b"}));
    assert!(is_error && text.starts_with("tool denied: ") && text.contains("reading `b` is not granted"), "{text}");
    assert!(text.ends_with("hint: add `b` to `sandbox.fs.read` in `.harness/harness.md:3:15`"), "{text}");
    assert_eq!(client.text("it", json!({"path": "docs/a"})), ("open".to_owned(), false));
}

#[test]
fn hooks_see_each_call() {
    let hook = "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      if payload['args'].get('x') == 'bad':\n          \
                return block('not that')\n      return allow()\n---\n";
    let project = Project::with_script(FINE).file(".harness/hooks/guard.md", hook);
    let mut client = Client::start(&project, &[]);
    let (text, is_error) = client.text("it", json!({"x": "bad"}));
    assert!(is_error && text.contains("not that"), "{text}");
    assert_eq!(client.text("it", json!({"x": "good"})), ("fine".to_owned(), false));
}

#[test]
fn a_call_that_needs_confirmation_is_denied_with_the_way_to_confirm_it() {
    let project = Project::new().tool("it", "confirm: true\n", FINE);
    let (text, is_error) = Client::start(&project, &[]).text("it", json!({}));
    assert!(is_error && text.contains("each call of `it` needs confirmation"), "{text}");
    assert!(text.ends_with("confirm it in advance with `--confirm it`"), "{text}");
    assert_eq!(Client::start(&project, &["--confirm", "it"]).text("it", json!({})), ("fine".to_owned(), false));
    assert!(Client::start(&project, &["--confirm", "other"]).text("it", json!({})).1);
}

#[test]
fn a_secret_is_in_no_answer() {
    let script = "def run(args):\n    if args.get('fail'):\n        fail('it is ' + args['x'])\n    return args['x']\n";
    let project = Project::with_script(script)
        .policy("sandbox:\n  secrets:\n    TOKEN: { env: HARNESS_TEST_SECRET, hosts: [example.com] }\n");
    let value = "a-long-secret-value-of-a-test";
    let mut client = Client::start_with(&project, &[], &[("HARNESS_TEST_SECRET", value)]);
    for arguments in [json!({"x": value}), json!({"x": value, "fail": true})] {
        let result = client.call("it", arguments).to_string();
        assert!(!result.contains(value), "{result}");
    }
    let unknown = client.modern("tools/call", json!({"name": value})).to_string();
    assert!(unknown.contains("there is no tool") && !unknown.contains(value), "{unknown}");
    assert_eq!(client.text("it", json!({"x": "no secret"})), ("no secret".to_owned(), false));
}

#[test]
fn the_audit_log_names_client_protocol_and_request() {
    let project = Project::with_script(FINE);
    let mut client = Client::start(&project, &[]);
    client.text("it", json!({}));
    let (rest, code, _) = client.end();
    assert_eq!((rest, code), (vec![], 0));
    let entries = audited(&project);
    assert_eq!(entries.len(), 1);
    for (key, want) in [("client", "tester"), ("protocol", "mcp/2026-07-28"), ("request", "1"), ("tool", "it")] {
        assert_eq!(entries[0][key], want);
    }
    assert!(project.run(&["audit", "verify"]).out.starts_with("audit log intact: 1 entry, "));
    // A call of the command line answers no client.
    project.run(&["call", "it"]);
    assert!(audited(&project)[1].get("client").is_none());
}
