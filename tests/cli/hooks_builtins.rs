//! `builtin.pre` and `builtin.post`: what hooks hear of the built-ins that a tool's script calls, and what they can do.

use serde_json::{Value as Json, json};

use crate::project::{Project, Ran};

/// Reports all that it hears.
const SPY: &str = "log.info(event + ' ' + json.encode(payload))\nreturn allow()";

fn spied(project: Project) -> Project {
    project.with_handle("spy", "builtin.pre", "priority: 90\n", SPY).with_handle("spy_post", "builtin.post", "", SPY)
}

/// What the spies told, in order: the event and its payload.
fn told(ran: &Ran) -> Vec<(String, Json)> {
    let line = |line: &str| {
        let rest = line.strip_prefix("[info] spy")?;
        let (event, payload) = rest.split_once(": ")?.1.split_once(' ')?;
        Some((event.to_owned(), serde_json::from_str(payload).unwrap()))
    };
    ran.err.lines().filter_map(line).collect()
}

const READ: &str = "def run(args):\n    return fs.read('a')\n";

#[test]
fn hooks_hear_of_each_built_in_before_and_after() {
    let script = "def run(args):\n    fs.write('b', 'text')\n    cache.set('k', 1)\n    return fs.read('a')\n";
    let project = spied(Project::with_script(script)).file("a", "text");
    let ran = project.run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "text\n"), "{ran}");
    let of = |event: &str, mut payload: Json| {
        payload["tool"] = json!("it");
        payload["agent"] = json!({"name": "", "depth": 0, "path": []});
        (event.to_owned(), payload)
    };
    let mut heard = told(&ran);
    heard.sort_by_key(|(event, payload)| (payload["function"].to_string(), event.clone()));
    heard.iter_mut().for_each(|(_, payload)| payload.sort_all_objects());
    let mut expected = [
        of(
            "builtin.post",
            json!({"function": "cache.set", "arguments": {"key": "k", "value": "1"}, "result": null, "error": null}),
        ),
        of("builtin.pre", json!({"function": "cache.set", "arguments": {"key": "k", "value": "1"}})),
        of("builtin.post", json!({"function": "fs.read", "arguments": {"path": "a"}, "result": "text", "error": null})),
        of("builtin.pre", json!({"function": "fs.read", "arguments": {"path": "a"}})),
        of(
            "builtin.post",
            json!({"function": "fs.write", "arguments": {"path": "b", "content": "text"}, "result": "[project]/b", "error": null}),
        ),
        of("builtin.pre", json!({"function": "fs.write", "arguments": {"path": "b", "content": "text"}})),
    ];
    expected.iter_mut().for_each(|(_, payload)| payload.sort_all_objects());
    assert_eq!(heard, expected);
    // What the spies log themselves is fired for nobody.
    assert_eq!(ran.err.lines().count(), 6, "{ran}");
    let ran = project.run(&["call", "it", "--explain"]);
    assert_eq!(ran.err.matches("hooks on builtin.pre:").count(), 3, "{ran}");
}

/// Blocks and changes, before and after: by what the host called, and not by what the script says.
#[test]
fn hooks_block_and_change_what_is_called_and_what_it_gave() {
    let project = |event: &str, when: &str, body: &str| {
        Project::with_script(READ)
            .with_handle("guard", event, &format!("when: payload['function'] == '{when}'\n"), body)
            .file("a", "text")
            .file("b", "other")
    };
    for (event, body, code, out, err) in [
        ("builtin.pre", "return block('not that')", 3, "", "fs.read: blocked by hook \"guard\": not that"),
        ("builtin.pre", "return modify({'arguments': {'path': 'b'}})", 0, "other\n", ""),
        // Within the grant, whatever a hook says.
        ("builtin.pre", "return modify({'arguments': {'path': '../b'}})", 3, "", "`../b` is outside the workspace"),
        ("builtin.pre", "return modify({'arguments': {'file': 'b'}})", 3, "", "are not those of `fs.read`"),
        ("builtin.pre", "return modify({'function': 'fs.write'})", 0, "text\n", "cannot be changed"),
        ("builtin.pre", "fail('broken')", 3, "", "the hook failed: broken (.harness/hooks/guard.md:6:7)"),
        ("builtin.post", "return modify({'result': payload['result'].upper()})", 0, "TEXT\n", ""),
        ("builtin.post", "return modify({'result': 7})", 3, "", "is not one of `fs.read`"),
        ("builtin.post", "return block('kept back')", 3, "", "fs.read: blocked by hook \"guard\": kept back"),
    ] {
        let ran = project(event, "fs.read", body).run(&["call", "it"]);
        assert!(ran.code == code && ran.out == out && ran.err.contains(err), "{event} {body}: {ran}");
    }
    // What a hook gives is within the cap of the function: the limit of a file, and 8 KiB for a path.
    let cap = "sandbox: { limits: { file_bytes: 10 } }\n";
    for (length, code, err) in [(8000, 0, ""), (8203, 3, "is not one of `fs.read`")] {
        let body = format!("return modify({{'result': 'x' * {length}}})");
        let ran = project("builtin.post", "fs.read", &body).policy(cap).run(&["call", "it"]);
        let out = if code == 0 { "x".repeat(length) + "\n" } else { String::new() };
        assert!(ran.code == code && ran.out == out && ran.err.contains(err), "{length}: {ran}");
    }
    // A guard of another function hears nothing of this one.
    let ran = project("builtin.pre", "fs.write", "return block('no')").run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "text\n"), "{ran}");
    // A line that is blocked is not logged.
    let logging = Project::with_script("def run(args):\n    log('secret words')\n    return 1\n");
    let ran = logging.with_handle("quiet", "builtin.pre", "", "return block('no')").run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "1\n", ""), "{ran}");
    // A decision is in the audit log; that all allow it is not.
    let project = project("builtin.pre", "fs.read", "return block('not that')");
    assert_eq!(project.run(&["call", "it"]).code, 3);
    let lines = project.run(&["audit", "show", "--json"]).out;
    let kinds: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<Json> =
        kinds.iter().map(|line| json!([line["kind"], line["event"], line["outcome"], line["caller"]])).collect();
    assert_eq!(
        kinds,
        [json!(["event", "builtin.pre", "denied", "tool it"]), json!(["call", null, "denied", "program"])]
    );
}

/// What watches built-ins cannot call any, but its own, which nobody hears of.
#[test]
fn a_hook_on_built_ins_starts_nothing() {
    let other = "def run(args):\n    return fs.read('a')\n";
    for body in ["events.emit('custom.it', {})", "meta.call_tool('other', {})", "meta.list_tools()"] {
        let project = Project::with_script(READ)
            .file(".harness/harness.md", "---\nmeta: { enabled: true }\n---\n")
            .tool("other", "", other)
            .with_handle("loops", "builtin.pre", "", &format!("{body}\nreturn allow()"))
            .file("a", "text");
        let ran = project.run(&["call", "it"]);
        assert!(ran.code == 3 && ran.err.contains("nothing in this run "), "{body}: {ran}");
    }
    let reads = Project::with_script(READ).with_handle("reads", "builtin.pre", "", "fs.read('a')\nreturn allow()");
    let ran = reads.file("a", "text").run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "text\n"), "{ran}");
    // Nor can a script add one that hears them.
    let adds = "def run(args):\n    meta.register_hook('h', 'builtin.pre', 'def handle(event, payload):\\n    return allow()\\n')\n";
    let project = Project::with_script(adds).file(".harness/harness.md", "---\nmeta: { enabled: true }\n---\n");
    project.run(&["call", "it"]).says(1, "a hook that a script adds cannot listen to `builtin.pre`");
}

/// A plugin hears what its own tools call, and the project what all call; secrets are not in what they hear.
#[test]
fn a_plugin_hears_its_own_tools_only() {
    let policy = "---\nsandbox:\n  secrets: { KEY: { file: keys/k, hosts: [example.com] } }\n  \
                  sources: { plugins/acme: { fs: { read: [\".\"] } } }\n---\n";
    let hook = "---\nevent: builtin.pre\nscript: |\n  def handle(event, payload):\n      log('acme hears ' + payload['tool'] + ' ' + payload['function'])\n      return allow()\n---\n";
    let tool = "---\nscript: |\n  def run(args):\n      return fs.read('a')\n---\nReads.\n";
    let project = Project::with_script(READ)
        .file(".harness/harness.md", policy)
        .file("keys/k", "sesame-of-the-test\n")
        .file(".harness/plugins/acme/hooks/ear.md", hook)
        .file(".harness/plugins/acme/tools/own.md", tool)
        .file("a", "sesame-of-the-test here");
    let ran = project.run(&["call", "it"]);
    assert!(ran.code == 0 && !ran.err.contains("acme hears"), "{ran}");
    let ran = project.run(&["call", "own"]);
    assert!(ran.code == 0 && ran.err.contains("acme hears own fs.read"), "{ran}");
    let project = spied(project);
    let ran = project.run(&["call", "own"]);
    assert_eq!(told(&ran).len(), 2, "{ran}");
    assert!(!ran.err.contains("sesame-of-the-test") && ran.err.contains("[redacted:KEY]"), "{ran}");
}

/// The fuel and the time of the hooks are the call's.
#[test]
fn hooks_on_built_ins_are_paid_by_the_call() {
    let used = |project: &Project| {
        let ran = project.run(&["call", "it", "--json"]);
        assert_eq!(ran.code, 0, "{ran}");
        ran.json()["usage"]["fuel"].as_u64().unwrap()
    };
    let plain = Project::with_script(READ).file("a", "text");
    let without = used(&plain);
    // One that does not listen to this costs nothing.
    let other = Project::with_script(READ).file("a", "text").with_handle("h", "custom.it", "", "return allow()");
    assert_eq!(used(&other), without);
    let heard = spied(Project::with_script(READ).file("a", "text"));
    let told = heard.run(&["call", "it", "--explain"]).err;
    let fuel = |line: &str| line.split_once(": allow (fuel ")?.1.split_once(',')?.0.parse::<u64>().ok();
    let hooks: Vec<u64> = told.lines().filter_map(fuel).collect();
    assert!(hooks.len() == 2 && hooks.iter().all(|fuel| *fuel > 0), "{told}");
    // That someone listens is said once, which takes some instructions.
    let (used_by_all, most) = (used(&heard), without + hooks.iter().sum::<u64>());
    assert!((most..most + 1_000).contains(&used_by_all), "{used_by_all} {most} {told}");
    let slow = "for i in range(1 << 30):\n    for j in range(1 << 30):\n        pass\nreturn allow()";
    let project = Project::with_script(READ)
        .file(".harness/harness.md", "---\nsandbox: { limits: { fuel: 50000000 } }\n---\n")
        .file("a", "text")
        .with_handle("slow", "builtin.pre", "", slow);
    let ran = project.run(&["call", "it"]);
    assert!(ran.code == 4 || ran.code == 3, "{ran}");
    assert!(ran.err.contains("over the limit `fuel`"), "{ran}");
}

/// By hand, too, and with the same keys.
#[test]
fn an_event_of_a_built_in_is_fired_by_hand() {
    let project = Project::with_script(READ).with_handle("h", "builtin.pre", "", "return block(payload['function'])");
    let ran = project.run(&[
        "fire",
        "builtin.pre",
        "--payload",
        r#"{"tool": "it", "function": "exec.run", "arguments": {}}"#,
    ]);
    assert_eq!((ran.code, &ran.json()["reason"]), (3, &json!("exec.run")), "{ran}");
    let project = Project::with_script(READ).with_handle("h", "builtin.post", "", "return modify({'arguments': {}})");
    project.run(&["validate", "--strict"]).says(2, "`arguments` of `builtin.post`");
}
