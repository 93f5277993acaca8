//! What a plugin learns of others: events of other tools and agents, whole or narrowed, and names that it shares.

use serde_json::json;

use crate::project::{FINE, Project};

/// Logs what it receives.
const EAR: &str = "log('heard ' + json.encode(payload))\nreturn allow()";
/// Emits and keeps something, and shows what there is.
const KEEPS: &str = "def run(args):\n    events.emit('custom.done', {'by': args['by']})\n    before = [cache.get('k'), ctx.get('k'), metrics.get('k')]\n    cache.set('k', args['by'])\n    ctx.set('k', args['by'])\n    metrics.incr('k')\n    return before\n";
const BY: &str = "parameters: { by: { type: string, default: x } }\n";
const SERVICES: &str = "services: [cache, metrics, events]";

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// The plugin `acme` with a tool of its own and a hook, and the project with a tool; `asks` is none without `plugin.md`.
fn project(asks: Option<&str>, entry: &str, event: &str, body: &str) -> Project {
    let theirs = format!("---\n{BY}script: |\n{}---\nTheirs.\n", indented(KEEPS));
    let project = Project::new()
        .tool("it", BY, KEEPS)
        .tool("fine", "", FINE)
        .policy(&format!("sandbox: {{ sources: {{ plugins/acme: {{ {SERVICES}{entry} }} }} }}\n"))
        .file(".harness/plugins/acme/tools/theirs.md", &theirs)
        .with_plugin_handle("ear", event, body);
    let Some(asks) = asks else { return project };
    let asks = format!("asks:\n  - reason: Works.\n    {SERVICES}\n{asks}");
    let asks = asks.replace(SERVICES, "services: [cache, metrics, events]");
    let text = format!("---\nname: acme\nversion: 1.0.0\ndescription: Listens.\n{asks}---\n");
    project.file(".harness/plugins/acme/plugin.md", &text)
}

/// Without asking, a hook of a plugin receives the events of the plugin's own tools alone.
#[test]
fn a_plugin_hears_its_own_tools_alone() {
    let own = project(Some(""), "", "tool.pre", EAR);
    let ran = own.run(&["call", "it"]);
    assert!(ran.code == 0 && !ran.err.contains("heard"), "{ran}");
    let ran = own.run(&["call", "theirs"]);
    assert!(ran.code == 0 && ran.err.contains("heard {") && ran.err.contains("\"name\":\"theirs\""), "{ran}");
    // What the operator consents to and the plugin does not ask for changes nothing.
    let ran = project(Some(""), ", events: [tool.pre]", "tool.pre", EAR).run(&["call", "it"]);
    assert!(ran.code == 0 && !ran.err.contains("heard"), "{ran}");
    // The control: asked for and consented to.
    let asks = "    events: [tool.pre]\n";
    let all = project(Some(asks), ", events: [tool.pre]", "tool.pre", EAR);
    let ran = all.run(&["call", "it", "by=secret"]);
    assert!(ran.code == 0 && ran.err.contains("\"by\":\"secret\""), "{ran}");
    for (project, word, words) in [(&own, "own", "of its own tools and agents"), (&all, "all", "of the whole project")]
    {
        assert_eq!(project.run(&["hooks", "--json"]).json()[0]["receives"], word);
        assert_eq!(project.run(&["policy", "show", "ear", "--json"]).json()["receives"], word);
        project.run(&["policy", "show", "ear"]).says(0, "");
        let shown = project.run(&["policy", "show", "ear"]).out;
        assert!(shown.contains(&format!("receives `tool.pre` {words}\n")), "{shown}");
        let shown = project.run(&["inspect", "ear"]).out;
        assert!(shown.contains(&format!("receives the event {words}\n")), "{shown}");
    }
    assert!(own.run(&["hooks"]).out.contains("(receives those of its own tools and agents)"));
    assert!(!all.run(&["hooks"]).out.contains("receives"));
}

/// No guard falls silent: one that hears nothing, and one that was copied, stop the project with the line to add.
#[test]
fn a_hook_without_consent_stops_the_project() {
    let line = "add `tool.pre` to `sandbox.sources.plugins/acme.events` in `.harness/harness.md`";
    project(None, "", "tool.pre", EAR).run(&["call", "it"]).says(2, line);
    project(Some("    events: [tool.pre]\n"), "", "tool.pre", EAR).run(&["call", "it"]).says(2, line);
    project(None, ", events: [tool.post]", "tool.pre", EAR).run(&["call", "it"]).says(2, line);
    // A session is nobody's own, and neither is a turn where the plugin has no agent.
    for event in ["session.start", "turn.start", "completion.pre", "error"] {
        let line = format!("its author adds `{event}` to `events` of an ask in `plugin.md`");
        project(Some(""), "", event, EAR).run(&["call", "it"]).says(2, &line);
    }
    let agent =
        project(Some(""), "", "turn.start", EAR).file(".harness/plugins/acme/agents/helper.md", "---\n---\nHelp.");
    agent.run(&["call", "it"]).says(0, "");
    // The controls. A bundle's hooks on its own artifacts need nobody's consent.
    for entry in [", events: [tool.pre]", ", events: [{ event: tool.pre, shows: own }]"] {
        project(None, entry, "tool.pre", EAR).run(&["call", "it"]).says(0, "");
    }
    project(None, "", "builtin.pre", "return allow()").run(&["call", "it"]).says(0, "");
}

/// Of two that narrow what is shown, the plugin and the operator, the lesser one holds. The audit log has it.
#[test]
fn what_is_shown_of_others_is_narrowed() {
    let seen = |asked: &str, consented: &str, tool: &str| {
        let asks = format!("    events: [{{ event: tool.pre, shows: {asked} }}]\n");
        let entry = format!(", events: [{{ event: tool.pre, shows: {consented} }}]");
        let project = project(Some(&asks), &entry, "tool.pre", EAR);
        let ran = project.run(&["call", tool, "by=secret"]);
        assert_eq!(ran.code, 0, "{ran}");
        let heard = ran.err.lines().find_map(|line| line.split_once("heard ").map(|(_, json)| json.to_owned()));
        let log = project.run(&["audit", "show", "--json"]).out;
        (heard.map(|json| serde_json::from_str::<serde_json::Value>(&json).unwrap()), log)
    };
    for (asked, consented) in [("names", "all"), ("all", "names"), ("digests", "names")] {
        let (heard, log) = seen(asked, consented, "it");
        let heard = heard.unwrap();
        let shown = (&heard["name"], &heard["source"], &heard["args"], &heard["arguments"]);
        assert_eq!(shown, (&json!("it"), &json!("tools/it"), &json!(null), &json!(null)));
        assert!(log.contains("\"shows\":\"names\""), "{log}");
    }
    let (heard, log) = seen("digests", "all", "it");
    let heard = heard.unwrap();
    let digest = heard["args"].as_str().unwrap();
    assert!(digest.starts_with("hmac-sha256:") && !heard.to_string().contains("secret"), "{heard}");
    assert!(log.contains("\"shows\":\"digests\""), "{log}");
    // Under a key of the run: what a value may be is not found by trying.
    assert_ne!(seen("digests", "all", "it").0.unwrap()["args"], digest);
    assert_eq!(seen("own", "all", "it").0, None);
    // The controls: all of it, and of its own tools too.
    let (heard, log) = seen("all", "all", "it");
    assert_eq!(heard.unwrap()["args"]["by"], "secret");
    assert!(!log.contains("\"shows\""), "{log}");
    assert_eq!(seen("names", "names", "theirs").0.unwrap()["args"]["by"], "secret");
}

/// A hook blocks what it sees by name, cannot change it, and decides by its `when` on what it sees.
#[test]
fn a_hook_that_sees_names_blocks_and_changes_nothing() {
    let entry = ", events: [{ event: tool.pre, shows: names }]";
    let guard = |body: &str| project(None, entry, "tool.pre", body);
    guard("return block('no ' + payload['name']) if payload['name'] == 'fine' else allow()")
        .run(&["call", "fine"])
        .says(3, "no fine");
    let changes = guard("return modify({'args': {'by': 'me'}})");
    changes.run(&["call", "it"]).says(3, "it may not modify `tool.pre`: it sees only a part of the payload");
    let when = guard(EAR).file(
        ".harness/plugins/acme/hooks/ear.md",
        "---\nevent: tool.pre\nwhen: payload['args'] != None\nscript: |\n  def handle(event, payload):\n      return block('seen')\n---\n",
    );
    when.run(&["call", "it"]).says(0, "");
    when.run(&["call", "theirs"]).says(3, "seen");
}

/// What a script of a plugin emits is heard by the plugin, and by others where it shares the name; and the other way round.
#[test]
fn custom_events_are_a_plugins_own() {
    let heard = |asks: Option<&str>, entry: &str, tool: &str| {
        let project = project(asks, entry, "custom.done", "log('acme heard')\nreturn allow()").with_handle(
            "mine",
            "custom.done",
            "",
            "log('project heard')\nreturn allow()",
        );
        let ran = project.run(&["call", tool]);
        assert_eq!(ran.code, 0, "{ran}");
        (ran.err.contains("acme heard"), ran.err.contains("project heard"))
    };
    assert_eq!(heard(Some(""), "", "theirs"), (true, false));
    assert_eq!(heard(Some(""), "", "it"), (false, true));
    // Shared on purpose: by both.
    let shared = "    shared: [custom.done]\n";
    assert_eq!(heard(Some(shared), ", shared: [custom.done]", "theirs"), (true, true));
    assert_eq!(heard(Some(shared), "", "theirs"), (true, false));
    assert_eq!(heard(Some(""), ", shared: [custom.done]", "theirs"), (true, false));
    let asks = "    events: [custom.done]\n";
    assert_eq!(heard(Some(asks), ", events: [custom.done]", "it"), (true, true));
    // One that was copied says nothing of what it hears.
    assert_eq!(heard(None, ", events: [custom.done], shared: [\"custom.*\"]", "theirs"), (true, true));
    let line = "add `custom.done` to `sandbox.sources.plugins/acme.events`";
    project(None, "", "custom.done", EAR).run(&["call", "it"]).says(2, line);
}

/// Keys of the cache, values of a turn and metrics are the plugin's own, unless it shares their names.
#[test]
fn what_a_plugin_keeps_is_its_own() {
    let calls = "def run(args):\n    return [json.decode(meta.call_tool(name, {'by': name})) for name in ['it', 'theirs', 'it', 'theirs']]\n";
    let kept = |asks: &str, entry: &str| {
        let project = project(Some(asks), entry, "builtin.post", "return allow()").tool("calls", "", calls);
        let policy =
            format!("meta: {{ enabled: true }}\nsandbox: {{ sources: {{ plugins/acme: {{ {SERVICES}{entry} }} }} }}\n");
        project.policy(&policy).run(&["call", "calls"]).json()
    };
    let (none, it, theirs) = (json!([null, null, 0]), json!(["it", "it", 1]), json!(["theirs", "theirs", 1]));
    let own = kept("", "");
    assert_eq!(own, json!([none, none, it, theirs]));
    let names = "[cache.k, \"ctx.*\", metrics.k]";
    let shared = kept(&format!("    shared: {names}\n"), &format!(", shared: {names}"));
    assert_eq!(shared, json!([none, it, ["theirs", "theirs", 2], ["it", "it", 3]]));
    // One of the two alone shares nothing.
    assert_eq!(kept(&format!("    shared: {names}\n"), ""), own);
    assert_eq!(kept("", &format!(", shared: {names}")), own);
}

/// A policy that lets a plugin learn more of others allows more.
#[test]
fn policy_diff_tells_what_a_plugin_learns() {
    let policy = |entry: &str| format!("---\nsandbox: {{ sources: {{ plugins/acme: {{ {entry} }} }} }}\n---\n");
    let project = project(Some(""), "", "tool.pre", EAR)
        .file("none.md", &policy(""))
        .file("names.md", &policy("events: [{ event: tool.pre, shows: names }]"))
        .file("all.md", &policy("events: [tool.pre], shared: [custom.done]"));
    let diff = |old: &str, new: &str| project.run(&["policy", "diff", old, new]);
    diff("none.md", "names.md").says(1, "");
    let told = diff("names.md", "all.md").out;
    let events = "hooks of `plugins/acme` receive `tool.pre` of the whole project";
    assert!(told.contains(events) && told.contains("`plugins/acme` shares `custom.done` with the project"), "{told}");
    diff("all.md", "names.md").says(0, "");
    diff("names.md", "none.md").says(0, "");
}
