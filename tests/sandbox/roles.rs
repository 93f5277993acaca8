//! What a tool, a hook and a `when` may do.

use harness_policy::limits::Limits;
use harness_sandbox::engine::Image;
use harness_sandbox::outcome::{Entry, FailureKind, Outcome};
use serde_json::{Value as Json, json};

use crate::kit::{EVERYTHING, Kit, failure};

const PAYLOAD: &str = r#"{"name": "run_command", "args": {"n": 3, "tags": []}, "ok": false}"#;

impl Kit {
    async fn handle(&self, image: &Image, payload: &str) -> harness_sandbox::outcome::Report<String> {
        let context = self.context(EVERYTHING);
        self.sandbox.handle(image, context, Limits::default(), "tool.pre", payload).await
    }

    /// The decision of a hook whose function has this body.
    async fn decision(&self, body: &str) -> Json {
        let image = self.hook(&format!("def handle(event, payload):\n    {body}\n"));
        match self.handle(&image, PAYLOAD).await.outcome {
            Outcome::Completed(decision) => serde_json::from_str(&decision).unwrap(),
            other => panic!("{body}: {other:?}"),
        }
    }

    /// What a `when` comes to.
    async fn matches(&self, when: &str) -> Outcome<bool> {
        let image = self.load("", Entry::Hook, Some(when)).unwrap_or_else(|failure| panic!("{when}: {failure:?}"));
        let context = self.context(EVERYTHING);
        self.sandbox.matches(&image, context, Limits::default(), "tool.pre", PAYLOAD).await.outcome
    }
}

#[tokio::test]
async fn a_hook_decides() {
    let kit = Kit::new();
    for (body, decision) in [
        ("return allow()", json!({"action": "allow"})),
        ("return block(event + ': ' + payload['name'])", json!({"action": "block", "reason": "tool.pre: run_command"})),
        (
            "return modify({'args': payload['args']})",
            json!({"action": "modify", "payload": {"args": {"n": 3, "tags": []}}}),
        ),
        ("return {'action': 'block', 'reason': 'by hand'}", json!({"action": "block", "reason": "by hand"})),
    ] {
        assert_eq!(kit.decision(body).await, decision, "{body}");
    }
}

/// What is no decision lets pass, and says so.
#[tokio::test]
async fn a_hook_that_returns_something_else() {
    let kit = Kit::new();
    for (body, found) in [
        ("pass", "NoneType"),
        ("return True", "bool"),
        ("return 'block'", "string"),
        ("return {'action': 'deny'}", "dict"),
        ("return {'action': None}", "dict"),
        ("return {}", "dict"),
    ] {
        let warning = format!("`handle` returned a value of type `{found}` that is not a decision: taken as allow");
        assert_eq!(kit.decision(body).await, json!({"action": "allow", "warning": warning}), "{body}");
    }
}

#[tokio::test]
async fn a_hook_inspects_but_runs_and_changes_nothing() {
    let kit = Kit::new();
    std::fs::write(kit.root().join("a.txt"), "text").unwrap();
    assert_eq!(kit.decision("return block(fs.read('a.txt'))").await, json!({"action": "block", "reason": "text"}));
    for (name, call) in [
        ("exec.run", "exec.run('echo', ['x'])"),
        ("fs.write", "fs.write('b.txt', 'x')"),
        ("fs.append", "fs.append('a.txt', 'x')"),
        ("fs.remove", "fs.remove('a.txt')"),
        ("fs.mkdir", "fs.mkdir('d')"),
        ("fs.copy", "fs.copy('a.txt', 'c.txt')"),
        ("fs.move", "fs.move('a.txt', 'm.txt')"),
    ] {
        let image = kit.hook(&format!("def handle(event, payload):\n    {call}\n    return allow()\n"));
        let report = kit.handle(&image, PAYLOAD).await;
        // Nothing of it reached the host.
        assert_eq!((report.usage.host_calls, report.calls.len()), (0, 0), "{call}");
        let wanted = format!("`{name}` is not there in a hook: hooks inspect and decide, they run and change nothing");
        assert_eq!(failure(report), wanted);
    }
    let names: Vec<_> = std::fs::read_dir(kit.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a.txt"]);
    assert_eq!(std::fs::read_to_string(kit.root().join("a.txt")).unwrap(), "text");
    // The same grant lets a tool do it.
    let tool = kit.tool("def run(args):\n    fs.write('b.txt', 'x')\n    return exec.run('echo', ['x'])['stdout']\n");
    assert_eq!(kit.completes(&tool, "{}").await, "\"x\\n\"");
}

#[tokio::test]
async fn a_hook_without_its_function() {
    let kit = Kit::new();
    let image = kit.hook("def other(event, payload):\n    return block('x')\n");
    let report = kit.handle(&image, PAYLOAD).await;
    let Outcome::Failed(failure) = report.outcome else { panic!("{report:?}") };
    let wanted = (FailureKind::EntryPoint, "the script must define a function `handle(event, payload)`");
    assert_eq!((failure.kind, failure.message.as_str()), wanted);
    // A tool is found out when it is loaded.
    let failure = kit.load("def handle(event, payload):\n    pass\n", Entry::Tool, None).unwrap_err();
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (FailureKind::EntryPoint, "the script must define a function `run(args)`")
    );
}

#[tokio::test]
async fn a_script_is_called_in_its_own_role_only() {
    let kit = Kit::new();
    let tool = kit.tool("def run(args):\n    return 1\n\ndef handle(event, payload):\n    return allow()\n");
    let report = kit.handle(&tool, PAYLOAD).await;
    assert!(matches!(report.outcome, Outcome::Fault(_)), "{report:?}");
    let hook = kit.hook("def run(args):\n    return 1\n\ndef handle(event, payload):\n    return allow()\n");
    let report = kit.run(&hook, Limits::default(), "{}").await;
    assert!(matches!(report.outcome, Outcome::Fault(_)), "{report:?}");
}

#[tokio::test]
async fn when() {
    let kit = Kit::new();
    for (when, matches) in [
        ("True", true),
        ("False", false),
        ("payload[\"name\"] == \"run_command\"", true),
        ("payload[\"name\"] == \"other\"", false),
        ("event == \"tool.pre\" and payload[\"args\"][\"n\"] > 2", true),
        ("payload[\"args\"][\"n\"] in [1, 2]", false),
        ("payload[\"ok\"] or payload[\"name\"].startswith(\"run_\")", true),
        ("any([x == 3 for x in payload[\"args\"].values()])", true),
        ("payload.get(\"nothing\")", false),
        // Any value is true or false, as in an `if`.
        ("payload", true),
        ("payload[\"args\"][\"tags\"]", false),
        ("0", false),
        ("\"\"", false),
        ("\"x\"", true),
        ("None", false),
        ("payload[\"name\"] \\\n  == \"run_command\"", true),
    ] {
        assert_eq!(kit.matches(when).await, Outcome::Completed(matches), "{when}");
    }
    // A hook that says nothing is called for everything.
    let image = kit.hook("def handle(event, payload):\n    return allow()\n");
    let context = kit.context(EVERYTHING);
    let report = kit.sandbox.matches(&image, context, Limits::default(), "tool.pre", PAYLOAD).await;
    assert_eq!(report.outcome, Outcome::Completed(true));
}

#[tokio::test]
async fn a_when_that_fails_has_its_place() {
    let kit = Kit::new();
    let Outcome::Failed(failure) = kit.matches("payload[\"nothing\"] == 1").await else { panic!() };
    assert_eq!(
        (failure.kind, failure.line, failure.column, failure.file.as_str()),
        (FailureKind::Script, 2, 7, "it.md")
    );
    let Outcome::Failed(failure) = kit.matches("event == 1 or\\\n fail('x')").await else { panic!() };
    assert_eq!((failure.message.as_str(), failure.line), ("x", 3));
}

/// A `when` has the language's own built-ins and nothing else, so that it cannot even name a capability.
#[tokio::test]
async fn a_when_has_no_capability() {
    let kit = Kit::new();
    for name in [
        "fs.read('a')",
        "exec.run('echo')",
        "cache.get('k')",
        "log('x')",
        "env('HOME')",
        "time.now()",
        "http.get('http://a')",
        "random(1, 2)",
        "print('x')",
    ] {
        let failure = kit.load("", Entry::Hook, Some(name)).unwrap_err();
        let word = name.split(['.', '(']).next().unwrap();
        assert_eq!((failure.kind, failure.line, failure.column), (FailureKind::Syntax, 2, 7), "{failure:?}");
        assert!(failure.message.contains(&format!("`{word}`")), "{failure:?}");
    }
    // Nor more than an expression.
    for text in ["x = 1", "1\n2", "1)\nfs.read('a')\n(2", "def f():\n  pass", "", "return True"] {
        let failure = kit.load("", Entry::Hook, Some(text)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Syntax, "{text}: {failure:?}");
    }
}

/// The top level of a script runs when it is loaded, where nothing can be called.
#[tokio::test]
async fn nothing_is_called_while_a_script_is_loaded() {
    let kit = Kit::new();
    for call in
        ["fs.write('a', 'b')", "log('x')", "print('x')", "exec.run('echo')", "cache.clear()", "time.now()", "uuid.v4()"]
    {
        let failure =
            kit.load(&format!("x = {call}\n\ndef run(args):\n    return 1\n"), Entry::Tool, None).unwrap_err();
        assert_eq!((failure.kind, failure.line, failure.column), (FailureKind::Script, 3, 7), "{failure:?}");
        assert!(failure.message.contains("cannot be called while the script is loaded"), "{failure:?}");
    }
    assert_eq!(std::fs::read_dir(kit.root()).unwrap().count(), 0);
}
