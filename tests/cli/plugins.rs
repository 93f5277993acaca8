//! Plugins: what they ask for, and what they get.

use crate::project::{FINE, Project};

const PLUGIN: &str = "---\nname: acme\nversion: 1.2.0\ndescription: Reads the environment.\nasks:\n  - reason: Reads a variable.\n    env: [HARNESS_TEST_VARIABLE]\n---\n\n# Acme\n";

/// A project with a plugin in its folder, whose tool reads a variable.
fn project(asks: &str, consented: &str) -> Project {
    let tool = "---\nscript: |\n  def run(args):\n      return env('HARNESS_TEST_VARIABLE')\n---\nReads it.\n";
    let text = PLUGIN.replace("    env: [HARNESS_TEST_VARIABLE]\n", asks);
    Project::new()
        .tool("it", "", FINE)
        .policy(&format!("sandbox:\n  env: [HARNESS_TEST_VARIABLE]\n  sources:\n    plugins/acme: {consented}\n"))
        .file(".harness/plugins/acme/plugin.md", &text)
        .file(".harness/plugins/acme/tools/theirs.md", tool)
}

const ASKS: &str = "    env: [HARNESS_TEST_VARIABLE]\n";
const GRANTS: &str = "{ env: [HARNESS_TEST_VARIABLE] }";

#[test]
fn a_plugin_gets_what_it_asks_for_and_is_granted() {
    project(ASKS, GRANTS).run(&["call", "theirs"]).gives("a value");
    project("    env: [OTHER]\n", GRANTS)
        .run(&["call", "theirs"])
        .says(3, "add `HARNESS_TEST_VARIABLE` to `asks.env` in `.harness/plugins/acme/plugin.md`");
    project(ASKS, "{}")
        .run(&["call", "theirs"])
        .says(3, "add `HARNESS_TEST_VARIABLE` to `sandbox.sources.plugins/acme.env` in `.harness/harness.md");
    // The control: a bundle without `plugin.md` is bound by the policy alone.
    let project = project("    env: [OTHER]\n", GRANTS);
    std::fs::remove_file(project.path(".harness/plugins/acme/plugin.md")).unwrap();
    project.run(&["call", "theirs"]).gives("a value");
}

#[test]
fn a_hook_receives_what_was_asked_for_and_consented_to() {
    let hook = "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      return block('heard')\n---\n";
    let with = |asks: &str, consented: &str| {
        project(&format!("{ASKS}{asks}"), consented).file(".harness/plugins/acme/hooks/guard.md", hook)
    };
    let asks = "    events: [tool.pre]\n";
    with(asks, "{ events: [tool.pre] }").run(&["call", "it"]).says(3, "heard");
    insta::assert_snapshot!(with(asks, "{ events: [tool.post] }").run(&["call", "it"]), @r#"
    exit 2
    --- stdout
    --- stderr
    error: the hook "guard" of `plugins/acme` is for `tool.pre`, which no entry of `sandbox.sources` lets it receive
     --> .harness/plugins/acme/hooks/guard.md:2:8
      |
    2 | event: tool.pre
      |        ^^^^^^^^
      |
      = hint: add `tool.pre` to `sandbox.sources.plugins/acme.events` in `.harness/harness.md`

    sandbox:
      sources:
        plugins/acme:
          events:
            - tool.pre
    "#);
    // What is not asked for is of the plugin's own tools alone.
    with("", "{ events: [tool.pre] }").run(&["call", "it"]).gives("fine");
    with("", "{ events: [tool.pre] }").run(&["call", "theirs"]).says(3, "heard");
    let session = with("", "{ events: [session.start] }");
    session.write(".harness/plugins/acme/hooks/guard.md", &hook.replace("tool.pre", "session.start"));
    insta::assert_snapshot!(session.run(&["call", "it"]), @r#"
    exit 2
    --- stdout
    --- stderr
    error: the hook "guard" of `plugins/acme` is for `session.start`, which the plugin does not ask for
     --> .harness/plugins/acme/hooks/guard.md:2:8
      |
    2 | event: session.start
      |        ^^^^^^^^^^^^^
      |
      = hint: its author adds `session.start` to `events` of an ask in `plugin.md`
    "#);
    with(asks, "{}").run(&["call", "it"]).says(2, "which no entry of `sandbox.sources` lets it receive");
    // One without `plugin.md` is silent nowhere either.
    let project = with("", "{ events: [tool.pre] }");
    std::fs::remove_file(project.path(".harness/plugins/acme/plugin.md")).unwrap();
    project.run(&["call", "it"]).says(3, "heard");
    let project = project.policy("sandbox: { sources: { plugins/acme: {} } }\n");
    project
        .run(&["call", "it"])
        .says(2, "add `tool.pre` to `sandbox.sources.plugins/acme.events` in `.harness/harness.md`");
    let project = project.policy("sandbox: { sources: { plugins/acme: { events: [tool.post] } } }\n");
    project
        .run(&["call", "it"])
        .says(2, "add `tool.pre` to `sandbox.sources.plugins/acme.events` in `.harness/harness.md`");
}

#[test]
fn what_is_wrong_with_a_plugin_stops_the_project() {
    for (from, to, why) in [
        ("version: 1.2.0\n", "", "a plugin needs `version`"),
        ("name: acme", "name: other", "`name` is `other`, and the folder is `acme`"),
        ("asks:", "asks: []\ntools:", "unknown key `tools`"),
        ("asks:", "requires: { harness: '>=99' }\nasks:", "`plugins/acme` needs Harness >=99, and this is "),
        ("asks:", "requires: { plugins: { units: ^2 } }\nasks:", "needs the plugin `units` ^2, which is not there"),
    ] {
        let project = project(ASKS, GRANTS);
        project.write(".harness/plugins/acme/plugin.md", &PLUGIN.replace(from, to));
        project.run(&["call", "it"]).says(2, why);
        project.run(&["validate"]).says(2, why);
    }
    let units = |version: &str| {
        let text = format!("---\nname: units\nversion: {version}\ndescription: Converts.\n---\n");
        let needs = PLUGIN.replace("asks:", "requires: { harness: '>=0.1', plugins: { units: ^2 } }\nasks:");
        project(ASKS, GRANTS)
            .file(".harness/plugins/acme/plugin.md", &needs)
            .file(".harness/plugins/units/plugin.md", &text)
            .file(".harness/plugins/units/bundle.md", "---\n---\n")
    };
    units("2.3.0").run(&["call", "it"]).gives("fine");
    units("1.9.0").run(&["call", "it"]).says(2, "needs the plugin `units` ^2, and this one is 1.9.0");
}

#[test]
fn inspect_shows_the_version_and_policy_the_asks() {
    let project = project(ASKS, GRANTS);
    let shown = project.run(&["inspect"]);
    assert!(shown.out.ends_with("bundle plugins/acme\n  version 1.2.0: Reads the environment.\n"), "{shown}");
    let shown = project.run(&["inspect", "--json"]).json();
    assert_eq!(
        shown["plugins"],
        serde_json::json!([{"source": "plugins/acme", "version": "1.2.0", "description": "Reads the environment."}])
    );
    let layers = project.run(&["policy", "show", "theirs"]);
    assert!(layers.out.contains("  .harness/plugins/acme/plugin.md, what the plugin asks for:\n"), "{layers}");
    // A lock of all artifacts holds what is asked for too.
    assert_eq!(project.run(&["lock"]).code, 0);
    project.write(".harness/plugins/acme/plugin.md", &PLUGIN.replace("[HARNESS", "[OTHER, HARNESS"));
    project.run(&["call", "it"]).says(2, "the bundle \"plugins/acme\" differs from `harness.lock`");
}
