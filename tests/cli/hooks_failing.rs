//! Hooks that fail: what they stop, and what they only warn of.

use serde_json::json;

use crate::agent_turns::agent;
use crate::hooks::{decisions, reason};
use crate::project::{FINE, Project, Ran};

/// Every event there is, with an example of each open kind. The last two report what has ended, which nothing can
/// block.
const EVENTS: [&str; 18] = [
    "session.start",
    "turn.start",
    "turn.end",
    "tool.pre",
    "tool.post",
    "completion.pre",
    "completion.post",
    "delegation.pre",
    "delegation.post",
    "delegation.post_verify",
    "agent.stop",
    "meta.tool_register",
    "meta.anything",
    "builtin.pre",
    "builtin.post",
    "custom.x",
    "session.end",
    "error",
];
const ENDED: [&str; 2] = ["session.end", "error"];

/// What can be wrong with a hook: a name, its front matter, the body of its `handle`, the report of it, the decision
/// that it passes with, and whether that is a failure without `strict` too.
const WRONG: [(&str, &str, &str, &str, &str, bool); 3] = [
    ("fails", "", "fail('broken')", "broken (.harness/hooks/fails.md:6:7)", "error", true),
    (
        "when_fails",
        "when: event[99]\n",
        "return allow()",
        "its `when` failed: Index `99` is out of bound (.harness/hooks/when_fails.md:3:7)",
        "skip",
        false,
    ),
    (
        "no_decision",
        "",
        "return 'block'",
        "`handle` returned a value of type `string` that is not a decision: taken as allow",
        "allow",
        false,
    ),
];

/// One rule for every event and every setting: a hook that fails blocks wherever it could have blocked; a `when` that
/// fails and what is no decision pass with a warning, and are failures with `strict`; `on_error: allow` allows
/// failures.
#[test]
fn a_hook_that_fails_blocks_whatever_can_be_blocked() {
    for (name, front, body, why, passes, fails) in WRONG {
        for (strict, allow) in [(false, false), (true, false), (false, true), (true, true)] {
            let on_error = if allow { "allow" } else { "block" };
            let policy = format!("sandbox: {{ hooks: {{ strict: {strict}, on_error: {on_error} }} }}\n");
            for event in EVENTS {
                let project = Project::new()
                    .policy(&policy)
                    .with_handle(name, event, &format!("{front}priority: 1\n"), body)
                    .with_handle("later", event, "priority: 2\n", "return allow()");
                let ran = project.run(&["fire", event]);
                let what = format!("{name} on {event}, strict: {strict}, on_error: {on_error}: {ran}");
                let failed = format!("the hook failed: {why}");
                let is_failure = fails || strict;
                if is_failure && !allow && !ENDED.contains(&event) {
                    assert_eq!(reason(&ran), failed, "{what}");
                    assert_eq!((ran.json()["hook"].as_str(), ran.err.as_str()), (Some(name), ""), "{what}");
                    assert_eq!(decisions(&ran), [format!("{name} error"), "later not reached".to_owned()], "{what}");
                } else {
                    let (told, decision) = if is_failure { (failed.as_str(), "error") } else { (why, passes) };
                    assert_eq!(
                        (ran.code, ran.err.as_str()),
                        (0, format!("warning: hook `{name}`: {told}\n").as_str()),
                        "{what}"
                    );
                    assert_eq!(decisions(&ran), [format!("{name} {decision}"), "later allow".to_owned()], "{what}");
                    let hook = &ran.json()["hooks"][0];
                    assert_eq!((&hook["reason"], &hook["warnings"]), (&json!(null), &json!([told])), "{what}");
                }
            }
        }
    }
}

/// What a model would be asked again for is not asked for again: that mends no hook.
#[test]
fn a_failing_judge_ends_the_turn_or_the_delegation() {
    let failing = |event: &str, policy: &str, replies: &str| {
        agent(policy, replies).file(".harness/agents/worker.md", "---\n---\nYou work.\n").with_handle(
            "judge",
            event,
            "",
            "fail('broken')",
        )
    };
    let failed = "blocked by hook \"judge\": the hook failed: broken (.harness/hooks/judge.md:5:7)";
    let project = failing("agent.stop", "", "- text: Done.\n- text: Never asked.\n");
    let ran = project.run(&["run", "Go."]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{ran}");
    assert!(ran.err.contains(&format!("error: turn blocked: {failed}\n")), "{ran}");
    // The one that delegates learns it as a result, after one attempt.
    let verify = "delegation:\n  verify: |\n    def run(result):\n        return True\n";
    let replies = format!(
        "- tool_calls: [{{ name: delegate, args: {{ agent: worker, task: Go. }} }}]\n\
         - {{ agent: worker, text: Done. }}\n\
         - {{ expect: '{}', text: It failed. }}\n",
        "delegation blocked: blocked by hook \"judge\": the hook failed: broken"
    );
    let ran = failing("delegation.post_verify", verify, &replies).run(&["run", "Go."]);
    let denied = "denied: delegate: tool denied: delegation blocked: blocked by hook \"judge\": the hook failed: broken (.harness/hooks/judge.md:5:7)\n";
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "It failed.\n", denied), "{ran}");
    // A policy that allows failures allows these.
    let allow = "sandbox: { hooks: { on_error: allow } }\n";
    failing("agent.stop", allow, "- text: Done.\n").run(&["run", "Go."]).says(0, "the hook failed: broken");
    let replies = "- tool_calls: [{ name: delegate, args: { agent: worker, task: Go. } }]\n\
                   - { agent: worker, text: Done. }\n- { expect: '\"attempts\":1', text: Fine. }\n";
    let ran = failing("delegation.post_verify", &format!("{allow}{verify}"), replies).run(&["run", "Go."]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Fine.\n"), "{ran}");
}

/// Each way to fail: name, front matter, script, and the report of it.
const FAILURES: [(&str, &str, &str, &str); 12] = [
    ("fails", "", "def handle(event, payload):\n    fail('broken', 5)\n", "broken 5 (.harness/hooks/fails.md:6:7)"),
    (
        "loops",
        "capabilities: { limits: { fuel: 50000000 } }\n",
        "def handle(event, payload):\n    for i in range(1 << 30):\n        pass\n    return allow()\n",
        "over the limit `fuel` of 50000000 units",
    ),
    (
        "sleeps",
        "capabilities: { limits: { timeout_ms: 1000 } }\n",
        "def handle(event, payload):\n    sleep(60000)\n    return allow()\n",
        "over the limit `timeout_ms` of 1000 ms",
    ),
    (
        "grows",
        "",
        "def handle(event, payload):\n    x = 'x' * (1 << 20)\n    return block(x * 200)\n",
        "over the limit `memory` of 67108864 bytes",
    ),
    (
        "other_name",
        "",
        "def run(args):\n    return allow()\n",
        "the script must define a function `handle(event, payload)`",
    ),
    ("no_syntax", "", "def handle(event, payload):\n    return 1 +\n", "Parse error"),
    (
        "unknown_name",
        "",
        "def handle(event, payload):\n    return alow()\n",
        "Variable `alow` not found, did you mean `allow`? (.harness/hooks/unknown_name.md:6:14)",
    ),
    (
        "top_level",
        "",
        "SEEN = cache.get('seen')\n\ndef handle(event, payload):\n    return allow()\n",
        "`cache.get` cannot be called while the script is loaded: call it in `run` or `handle` (.harness/hooks/top_level.md:5:10)",
    ),
    (
        "denied",
        "",
        "def handle(event, payload):\n    env('HOME')\n    return allow()\n",
        "env: the variable `HOME` is not granted (.harness/hooks/denied.md:6:7)",
    ),
    (
        "runs",
        "",
        "def handle(event, payload):\n    exec.run('true')\n    return allow()\n",
        "`exec.run` is not there in a hook: hooks inspect and decide, they run and change nothing (.harness/hooks/runs.md:6:7)",
    ),
    (
        "no_dict",
        "",
        "def handle(event, payload):\n    return modify('x')\n",
        "`modify` of `tool.pre` takes a dict, not a string",
    ),
    (
        "no_json",
        "",
        "def handle(event, payload):\n    return modify({'args': {'f': len}})\n",
        "a value of type `function` cannot be told as JSON",
    ),
];

/// A project with a tool for each way to fail and a hook for that tool only.
fn failing() -> Project {
    FAILURES.iter().fold(Project::new().tool("other", "", FINE), |project, (name, front, script, _)| {
        let front = format!("when: payload[\"name\"] == \"{name}\"\n{front}");
        project
            .tool(name, "", "def run(args):\n    log('ran')\n    return 'fine'\n")
            .with_hook(name, "tool.pre", &front, script)
    })
}

/// The lines of front matter before the script: the places in [`FAILURES`] count one.
#[test]
fn whatever_way_a_guard_fails_the_tool_does_not_run() {
    let project = failing();
    for (name, _, _, why) in FAILURES {
        let ran = project.run(&["call", name]);
        let start = format!("error: tool `{name}` was denied: blocked by hook \"{name}\": the hook failed: ");
        assert!(ran.err.starts_with(&start), "{ran}");
        ran.says(3, why);
        assert_eq!((ran.out.as_str(), ran.err.contains("[info] ran")), ("", false), "{ran}");
    }
    project.run(&["call", "other"]).gives("fine");
}

#[test]
fn a_policy_may_let_failing_hooks_pass() {
    let passed = |ran: &Ran, name: &str, why: &str| {
        let mut lines = ran.err.lines();
        let warning = lines.next().unwrap();
        assert!(warning.starts_with(&format!("warning: hook `{name}`: the hook failed: ")), "{ran}");
        assert!(warning.contains(why), "{ran}");
        let rest: Vec<&str> = lines.filter(|line| line.starts_with('[')).collect();
        assert_eq!((ran.code, ran.out.as_str(), rest.as_slice()), (0, "fine\n", ["[info] ran"].as_slice()), "{ran}");
    };
    let project = failing().policy("sandbox: { hooks: { on_error: allow } }\n");
    for (name, _, _, why) in FAILURES {
        passed(&project.run(&["call", name]), name, why);
    }
    // One by name, and all but one.
    let project = project.policy("sandbox: { hooks: { named: { fails: allow } } }\n");
    passed(&project.run(&["call", "fails"]), "fails", "broken 5");
    project.run(&["call", "denied"]).says(3, "blocked by hook \"denied\": the hook failed: env: ");
    let project = project.policy("sandbox: { hooks: { on_error: allow, named: { fails: block } } }\n");
    project.run(&["call", "fails"]).says(3, "blocked by hook \"fails\": the hook failed: broken 5");
    passed(&project.run(&["call", "denied"]), "denied", "env: ");
    // A block is no failure.
    let project = project.with_handle("stops", "tool.pre", "", "return block('no')");
    project.run(&["call", "other"]).says(3, "blocked by hook \"stops\": no");
}

#[test]
fn a_result_is_kept_back_where_its_hook_fails() {
    let project = Project::with_script("def run(args):\n    return 'a secret'\n").with_handle(
        "redacts",
        "tool.post",
        "",
        "fail('broken')",
    );
    let ran = project.run(&["call", "it"]);
    ran.says(3, "blocked by hook \"redacts\": the hook failed: broken (.harness/hooks/redacts.md:5:7)");
    assert!(!format!("{ran}").contains("a secret"), "{ran}");
    let project = project.policy("sandbox: { hooks: { on_error: allow } }\n");
    let ran = project.run(&["call", "it"]);
    let warning = "warning: hook `redacts`: the hook failed: broken (.harness/hooks/redacts.md:5:7)\n";
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "a secret\n", warning));
}

/// The strict setting makes failures of what else is only told.
#[test]
fn strict() {
    let cases = [
        ("none", "", "pass", "`handle` returned a value of type `NoneType` that is not a decision: taken as allow"),
        (
            "text",
            "",
            "return 'block'",
            "`handle` returned a value of type `string` that is not a decision: taken as allow",
        ),
        ("no_payload", "", "return {'action': 'modify'}", "`handle` returned a `modify` without a `payload`"),
        (
            "when",
            " and payload[\"nothing\"] == 1",
            "return allow()",
            "its `when` failed: Key `\"nothing\"` was not found (.harness/hooks/when.md:3:37)",
        ),
    ];
    let mut project = Project::new().tool("other", "", FINE);
    for (name, more, body, _) in cases {
        let front = format!("when: payload[\"name\"] == \"{name}\"{more}\n");
        project = project.tool(name, "", FINE).with_handle(name, "tool.pre", &front, body);
    }
    for (name, _, _, why) in cases {
        let ran = project.run(&["call", name]);
        let warning = format!("warning: hook `{name}`: {why}\n");
        assert_eq!((ran.code, ran.out.as_str(), ran.err), (0, "fine\n", warning));
    }
    let project = project.policy("sandbox: { hooks: { strict: true } }\n");
    for (name, _, _, why) in cases {
        let ran = project.run(&["call", name]);
        ran.says(3, &format!("error: tool `{name}` was denied: blocked by hook \"{name}\": the hook failed: {why}"));
    }
    project.run(&["call", "other"]).gives("fine");
    // Where nothing can be stopped, and where the policy allows failures, it is still a warning.
    let project = project.policy("sandbox: { hooks: { strict: true, on_error: allow } }\n");
    for (name, _, _, why) in cases {
        let ran = project.run(&["call", name]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "fine\n"), "{ran}");
        assert!(ran.err.contains(&format!("warning: hook `{name}`: the hook failed: {why}\n")), "{ran}");
    }
    let project =
        Project::new().policy("sandbox: { hooks: { strict: true } }\n").with_handle("none", "error", "", "pass");
    let ran = project.fire("error", &json!({}));
    assert_eq!((ran.code, decisions(&ran)), (0, vec!["none error".to_owned()]), "{ran}");
}

/// A hook that cannot be read may be the one that guards: nothing runs.
#[test]
fn a_hook_that_cannot_be_read_stops_everything() {
    let cases = [
        ("# prose\n", "parse hook it.md: the first line is not"),
        ("---\nevent: tool.pre\n", "parse hook it.md: "),
        ("---\npriority: 1\n---\n", "hook \"it\": event field is required in frontmatter"),
        ("---\nevent: ''\n---\n", "hook \"it\": event field is required in frontmatter"),
        ("---\nevent: tool.per\n---\n", "hooks[0].event \"tool.per\" is invalid"),
        ("---\nevent: custom.A\n---\n", "hooks[0].event \"custom.A\" is invalid"),
        ("---\nevent: tool.pre\nwhen: [\n---\n", "parse hook it.md: yaml: line "),
        (
            "---\nevent: tool.pre\nscript: true\n---\n",
            "parse hook it.md: yaml: line 3: `script` must be a string, found a boolean",
        ),
        (
            "---\nevent: tool.pre\npriority: high\n---\n",
            "parse hook it.md: yaml: line 3: `priority` must be an integer, found a string",
        ),
    ];
    let project = Project::with_script(FINE);
    for (text, why) in cases {
        project.write(".harness/hooks/it.md", text);
        for command in [["validate", "--color=never"], ["call", "it"], ["fire", "custom.x"]] {
            let ran = project.run(&command);
            ran.says(2, &format!("error: {why}"));
            assert!(ran.err.contains("--> .harness/hooks/it.md:"), "{ran}");
        }
    }
    // Keys that a hook does not have are reported, and no more: `handler` and `name` name nothing in a file.
    project.write(".harness/hooks/it.md", "---\nevent: tool.pre\nhandler: x\nname: y\nprioritty: 1\n---\n");
    let ran = project.run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "fine\n"));
    for key in ["handler", "name", "prioritty"] {
        assert!(ran.err.contains(&format!("warning: unknown key `{key}`, it is ignored")), "{ran}");
    }
    assert_eq!(decisions(&project.call_with("it", &json!({}))), ["it allow"]);
    assert_eq!((project.run(&["validate"]).code, project.run(&["validate", "--strict"]).code), (0, 2));
}
