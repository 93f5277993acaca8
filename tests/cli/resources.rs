//! `mcp` of the policy: what is reported of it before a client reads anything.

use insta::assert_snapshot;
use serde_json::json;

use crate::project::Project;

const POLICY: &str = "sandbox: { fs: { read: [docs] } }\nmcp:\n  resources:\n  - docs/**\n  - { uri: 'a://guide', file: guide.md }\n  \
                      templates: ['docs/{name}.md']\n";

#[test]
fn a_resource_that_nothing_grants_is_a_warning() {
    let ran = Project::new().policy(POLICY).run(&["validate"]);
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("no client can read `a://guide`: reading `guide.md` is not granted"), "{ran}");
    assert!(ran.err.contains("hint: add `guide.md` to `sandbox.fs.read` in `.harness/harness.md:2:24`"), "{ran}");
    // The control.
    let granted = POLICY.replace("read: [docs]", "read: [docs, guide.md]");
    assert_eq!(Project::new().policy(&granted).run(&["validate", "--strict"]).code, 0);
    Project::new().policy("mcp: { resource: [docs] }\n").run(&["validate"]).says(2, "unknown key `mcp.resource`");
}

#[test]
fn what_clients_read_is_shown() {
    let project = Project::new().policy(&format!("{POLICY}tools_policy: {{ deny: ['prompts/*'] }}\n"));
    let shown = project.run(&["policy", "show", "resources/read"]).out;
    let first: Vec<&str> = shown.lines().take(4).collect();
    assert_snapshot!(first.join("\n"), @"
    act resources/read of MCP clients
    files that `mcp` offers: docs/**, a://guide (guide.md), file:///docs/{name}.md (docs/{name}.md)
    allowed by all its layers:
      fs.read: docs
    ");
    let found = project.run(&["policy", "show", "resources/read", "--json"]).json();
    let offered = json!(["docs/**", "a://guide (guide.md)", "file:///docs/{name}.md (docs/{name}.md)"]);
    assert_eq!((&found["kind"], &found["refused"], &found["offered"]), (&json!("act"), &json!(null), &offered));
    let refused = project.run(&["policy", "show", "prompts/get"]).out;
    assert!(refused.contains("not callable: the tool `prompts/get` is denied by `prompts/*`"), "{refused}");
    project.run(&["policy", "show", "tools/list"]).says(2, "there is no tool, hook or MCP server `tools/list`");
}

#[test]
fn a_new_resource_is_reported() {
    let project = Project::new();
    project.write("old.md", "---\nmcp: { resources: [docs/*] }\n---\n");
    project.write("new.md", &format!("---\n{POLICY}---\n"));
    assert_snapshot!(project.run(&["policy", "diff", "old.md", "new.md"]).out, @"
    the new policy allows more than the old one:
      mcp.resources: clients may read a://guide (guide.md)
          before: no entry says so
      mcp.resources: clients may read docs/**
          before: no entry says so
      mcp.templates: clients may read file:///docs/{name}.md (docs/{name}.md)
          before: no entry says so
    ");
    assert_eq!(project.run(&["policy", "diff", "new.md", "new.md"]).code, 0);
}
