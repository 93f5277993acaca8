//! What a run adds to itself, and tools that call tools: off until the policy turns it on, governed by hooks, counted,
//! with the grant of who does it, and gone with the run.

use std::sync::Arc;

use harness_dispatch::{Options, Run};
use serde_json::{Value as Json, json};

use crate::artifacts::{BLOCKS, artifact, gives};
use crate::project::{FINE, Project, Ran};

const ON: &str = "meta: { enabled: true }\n";

/// A script that does what its lines say, and returns the last.
fn does(lines: &[&str]) -> String {
    let (last, before) = lines.split_last().unwrap();
    let before: String = before.iter().map(|line| format!("    {line}\n")).collect();
    format!("def run(args):\n{before}    return {last}\n")
}

/// A line that adds a tool which gives a value.
fn adds(name: &str, value: &str) -> String {
    registers(name, &gives(value), "")
}

fn registers(name: &str, script: &str, more: &str) -> String {
    format!("meta.register_tool({name:?}, 'Added.', {{}}, {script:?}{more})")
}

fn hooks(name: &str, event: &str, body: &str, more: &str) -> String {
    let script = format!("def handle(event, payload):\n    {body}\n");
    format!("meta.register_hook({name:?}, {event:?}, {script:?}{more})")
}

/// A project in which `it` does these lines, with the rest of the policy's `meta`.
fn doing(lines: &[&str]) -> Project {
    Project::with_script(&does(lines)).policy(ON)
}

fn run(lines: &[&str]) -> Ran {
    doing(lines).run(&["call", "it"])
}

#[track_caller]
fn fails(lines: &[&str], message: &str) {
    let ran = run(lines);
    assert!(ran.code == 1 && ran.err.starts_with(&format!("error: tool `it` failed: {message}\n")), "{message}: {ran}");
}

/// Several calls in one run, through the library: the content of each, or why it was not made.
fn in_one_run(project: &Project, calls: &[(&str, Json)]) -> Vec<String> {
    let opened = harness_dispatch::Project::open(project.root(), Options::default()).unwrap();
    in_run(&opened, &Run::new(), calls)
}

fn in_run(project: &harness_dispatch::Project, run: &Arc<Run>, calls: &[(&str, Json)]) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let call = |(name, arguments): &(&str, Json)| match runtime.block_on(project.call(name, arguments.clone(), run)) {
        Ok(report) => report.content,
        Err(error) => format!("not called: {error}"),
    };
    calls.iter().map(call).collect()
}

#[test]
fn nothing_of_it_until_the_policy_says_so() {
    let adding = adds("new", "1");
    let hooking = hooks("new", "tool.pre", "return allow()", "");
    for (line, builtin) in [
        (adding.as_str(), "meta.register_tool"),
        (&adding.replace("register_tool", "tool_register"), "meta.tool_register"),
        (&hooking, "meta.register_hook"),
        (&hooking.replace("register_hook", "hook_register"), "meta.hook_register"),
        ("meta.call_tool('fine')", "meta.call_tool"),
        ("meta.list_tools()", "meta.list_tools"),
    ] {
        for policy in ["", "meta: {}\n", "meta: { enabled: false, max_tools: 9 }\n"] {
            let project = Project::with_script(&does(&[line])).tool("fine", "", FINE).policy(policy);
            let ran = project.run(&["call", "it"]);
            ran.says(3, &format!("error: tool `it` was denied: {builtin}: `meta` is not enabled"));
            ran.says(3, "hint: write `meta: { enabled: true }` in `.harness/harness.md`");
        }
        let project = doing(&[line]).tool("fine", "", FINE);
        assert_eq!(project.run(&["call", "it"]).code, 0, "{line}");
    }
    // Without a policy at all.
    let project = Project::with_script(&does(&[&adding]));
    project.run(&["call", "it"]).says(3, "`meta` is not enabled");
}

#[test]
fn a_tool_that_was_added_is_called_in_the_same_run_and_gone_in_the_next() {
    let script = gives("{'got': args, 'file': fs.read('a.txt')}");
    let line = format!(
        "meta.register_tool('echo', 'Says it again.', {{'s': {{'type': 'string', 'required': True}}}}, {script:?})"
    );
    let project = doing(&[
        &line,
        "[meta.call_tool('echo', {'s': 'here'}), meta.call_tool('echo', {'s': 1}), meta.call_tool('echo')]",
    ])
    .tool("after", "", &does(&["meta.call_tool('echo', {'s': 'x'})"]))
    .file("a.txt", "text");
    let answers = json!([
        "{\"got\":{\"s\":\"here\"},\"file\":\"text\"}",
        "error: the arguments of `echo` do not fit its parameters: the argument `s` must be of type string, found number",
        "error: the arguments of `echo` do not fit its parameters: the argument `s` (string) is missing",
    ]);
    project.run(&["call", "it"]).gives(&answers.to_string());
    for arguments in [&["call", "echo", "s=x"][..], &["inspect", "echo"]] {
        assert_eq!(project.run(arguments).code, 2);
    }
    project.run(&["call", "after"]).gives("error: there is no tool `echo`");
    assert_eq!(project.run(&["tools", "--json"]).json().as_array().unwrap().len(), 2);
    // A later call of the same run has it, one of another run has not.
    let calls = [("it", json!({})), ("echo", json!({"s": "later"})), ("after", json!({}))];
    let told = in_one_run(&project, &calls);
    assert_eq!(
        told[1..],
        ["{\"got\":{\"s\":\"later\"},\"file\":\"text\"}", "{\"got\":{\"s\":\"x\"},\"file\":\"text\"}"]
    );
    let opened = harness_dispatch::Project::open(project.root(), Options::default()).unwrap();
    in_run(&opened, &Run::new(), &calls[..1]);
    assert_eq!(
        in_run(&opened, &Run::new(), &calls[1..]),
        ["not called: there is no tool `echo`", "error: there is no tool `echo`"]
    );
}

#[test]
fn both_names_of_the_built_ins() {
    let tool = adds("new", "1").replace("register_tool", "tool_register");
    let hook = hooks("h", "tool.pre", "return block(payload['name'])", "").replace("register_hook", "hook_register");
    run(&[&format!("x = {tool}"), "[x, meta.call_tool('new')]"]).gives("[true,\"1\"]");
    run(&[&tool, &format!("x = {hook}"), "[x, meta.call_tool('new')]"])
        .gives("[true,\"error: tool blocked: blocked by hook \\\"h\\\": new\"]");
}

#[test]
fn tools_are_listed_with_those_that_were_added_last() {
    let project = doing(&[
        "meta.register_tool('read_new', ' Added. ', {'a': {'type': 'string'}, 'b': {'type': 'array'}}, 'def run(args):\\n    pass\\n')",
        "[meta.list_tools(), [t['name'] for t in meta.list_tools('read_*')], meta.list_tools('?'), meta.list_tools(pattern = 'it')[0]['name']]",
    ])
    .tool("read_it", "parameters: { p: { type: string } }\n", FINE)
    .tool("denied", "", FINE)
    .policy("meta: { enabled: true }\ntools_policy: { deny: [denied] }\n");
    let listed = project.run(&["call", "it", "--json"]).json()["result"].clone();
    let of = |name: &str, description: &str, count: u32| json!({"name": name, "description": description, "parameter_count": count});
    assert_eq!(
        listed,
        json!([
            [of("it", "# it\n\nA tool.", 0), of("read_it", "# read_it\n\nA tool.", 1), of("read_new", "Added.", 2)],
            ["read_it", "read_new"],
            [],
            "it",
        ])
    );
    fails(
        &["meta.list_tools('[a]')"],
        "meta.list_tools: `[` means nothing in a pattern, `?` stands for any one character",
    );
}

#[test]
fn names_that_can_be_given_and_others() {
    let long = "a".repeat(64);
    for good in ["a", "a-b_9", &long] {
        run(&[&adds(good, "1"), &format!("meta.call_tool({good:?})")]).gives("1");
    }
    let longer = "a".repeat(65);
    for bad in ["", "A", "9a", "_a", "a.b", "a b", "é", "a/b", "../x", &longer] {
        let shown = if bad == longer { format!("{}...", "a".repeat(60)) } else { bad.to_owned() };
        let rule = format!(
            "`{shown}` is not a valid name: a lower-case letter, then at most 63 lower-case letters, digits, `_` and `-`"
        );
        fails(&[&adds(bad, "1")], &format!("meta.register_tool: {rule}"));
        fails(&[&hooks(bad, "tool.pre", "return allow()", "")], &format!("meta.register_hook: {rule}"));
    }
}

#[test]
fn what_cannot_be_added() {
    for (line, message) in [
        (
            "meta.register_tool('t', 'd', {'p': {'type': 'text'}}, 'x')",
            "parameter `p` has the type `text`, must be one of string, number, boolean, object, array",
        ),
        (
            "meta.register_tool('t', 'd', {'p': {'type': 'string', 'required': 1}}, 'x')",
            "`parameters.p.required` must be true or false, found an integer",
        ),
        ("meta.register_tool('t', 'd', {}, '  ')", "there is no script"),
        (
            "meta.register_tool('t', 'd', {}, 'def go(args):\\n    pass\\n')",
            "the script must define a function `run(args)` (added:t:1:1)",
        ),
        (
            "meta.register_tool('t', 'd', {}, 'def run(args):\\n    return 1 +\\n')",
            "Parse error: unexpected new line, expected expression (added:t:2:15)",
        ),
        ("meta.register_hook('h', 'tool.per', 'x')", "`tool.per` is not an event"),
        ("meta.register_hook('h', 'meta.call_tool', 'x')", "a hook on `meta.call_tool` cannot be registered"),
        ("meta.register_hook('h', 'tool.pre', '')", "there is no script"),
        (
            "meta.register_hook('h', 'tool.pre', 'def handle(event, payload):\\n    return nothing\\n')",
            "Variable `nothing` not found (added:h:2:12)",
        ),
    ] {
        let builtin = line.split('(').next().unwrap();
        fails(&[line], &format!("{builtin}: {message}"));
    }
    // A script that was refused is not there.
    let project = doing(&["meta.register_tool('t', 'd', {}, 'def go(args):\\n    pass\\n')"]).tool(
        "calls",
        "",
        &does(&["meta.call_tool('t')"]),
    );
    assert_eq!(in_one_run(&project, &[("it", json!({})), ("calls", json!({}))])[1], "error: there is no tool `t`");
}

#[test]
fn nothing_on_disk_is_replaced_and_only_on_purpose_what_was_added() {
    let replace = |name: &str, value: &str| registers(name, &gives(value), ", replace = True");
    for line in [adds("fine", "2"), replace("fine", "2"), adds("it", "2"), replace("listed", "2"), replace("own", "2")]
    {
        let name = line.split('"').nth(1).unwrap();
        let project = doing(&[&line])
            .tool("fine", "", FINE)
            .file(".harness/plugins/p/tools/own.md", &artifact("", FINE))
            .policy("meta: { enabled: true }\ntools:\n  - name: listed\n");
        project.run(&["call", "it"]).says(1, &format!("meta.register_tool: tool {name:?} already registered"));
        project.run(&["call", "fine"]).gives("fine");
    }
    fails(&[&adds("new", "1"), &adds("new", "2")], "meta.register_tool: tool \"new\" already registered");
    run(&[&adds("new", "1"), &replace("new", "2"), "meta.call_tool('new')"]).gives("2");
    run(&[&replace("new", "1"), "meta.call_tool('new')"]).gives("1");
    let hook = hooks("guard", "tool.pre", "return allow()", "");
    fails(&[&hook, &hook], "meta.register_hook: hook \"guard\" already registered");
    let project = doing(&[&hook]).file(".harness/hooks/guard.md", "---\nevent: error\n---\n");
    project.run(&["call", "it"]).says(1, "meta.register_hook: hook \"guard\" already registered");
}

#[test]
fn what_is_added_is_counted() {
    let limited = |lines: &[&str], limits: &str| {
        doing(lines).policy(&format!("meta: {{ enabled: true, {limits} }}\n")).run(&["call", "it"])
    };
    let (a, b) = (adds("a", "1"), adds("b", "1"));
    assert_eq!(limited(&[&a, &b], "max_tools: 2").code, 0);
    limited(&[&a, &b], "max_tools: 1").says(1, "meta.register_tool: registration limit reached (1)");
    limited(&[&a], "max_tools: 0").says(1, "meta.register_tool: registration limit reached (0)");
    // Instead of another one there is always room.
    let again = registers("a", &gives("2"), ", replace = True");
    limited(&[&a, &again, "meta.call_tool('a')"], "max_tools: 1").gives("2");
    let (g, h) = (hooks("g", "error", "return allow()", ""), hooks("h", "error", "return allow()", ""));
    assert_eq!(limited(&[&g, &h], "max_hooks: 2").code, 0);
    limited(&[&g, &h], "max_hooks: 1").says(1, "meta.register_hook: registration limit reached (1)");
    // By default: 50 tools and 30 hooks.
    let many = |count: u32, line: &str| run(&[&format!("_ = [{line} for i in range({count})]"), "'all'"]);
    let tool = adds("NAME", "1").replace("\"NAME\"", "'t%d' % i");
    let hook = hooks("NAME", "error", "return allow()", "").replace("\"NAME\"", "'h%d' % i");
    many(50, &tool).gives("all");
    many(51, &tool).says(1, "registration limit reached (50)");
    many(30, &hook).gives("all");
    many(31, &hook).says(1, "registration limit reached (30)");
}

/// A hook of the project that blocks an event with what its payload holds.
fn governed(event: &str, reason: &str, lines: &[&str]) -> Ran {
    let guard =
        artifact(&format!("event: {event}\n"), &format!("def handle(event, payload):\n    return block({reason})\n"));
    doing(lines).tool("fine", "", FINE).file(".harness/hooks/guard.md", &guard).run(&["call", "it"])
}

#[test]
fn hooks_govern_what_is_added_and_called() {
    let tool = "meta.register_tool('new', 'Does.', {'p': {'type': 'string'}}, 'def run(args):\\n    pass\\n')";
    let hook = "meta.register_hook('new', 'tool.pre', 'def handle(event, payload):\\n    pass\\n', when = 'True', priority = 1)";
    let blocked = "blocked by hook \"guard\": ";
    governed("meta.tool_register", "json.encode({k: v for k, v in payload.items() if k != 'agent'})", &[tool]).says(
        3,
        &format!("error: tool `it` was denied: meta.register_tool: {blocked}{{\"name\":\"new\",\"description\":\"Does.\",\"parameters\":{{\"p\":{{\"type\":\"string\"}}}},\"script\":\"def run(args):\\n    pass\\n\",\"replace\":false}}"),
    );
    governed("meta.hook_register", "json.encode({k: v for k, v in payload.items() if k != 'agent'})", &[hook]).says(
        3,
        &format!("error: tool `it` was denied: meta.register_hook: {blocked}{{\"name\":\"new\",\"event\":\"tool.pre\",\"script\":\"def handle(event, payload):\\n    pass\\n\",\"when\":\"True\",\"priority\":50}}"),
    );
    // A call that is kept back is an answer, as one that failed is.
    governed(
        "meta.call_tool",
        "json.encode([payload['name'], payload['args'], payload['arguments']])",
        &["meta.call_tool('fine', {'a': 1})"],
    )
    .gives(&format!("error: {blocked}[\"fine\",{{\"a\":1}},\"{{\\\"a\\\":1}}\"]"));
    // Each is about its own event only.
    for (event, line) in [
        ("meta.hook_register", tool),
        ("meta.call_tool", tool),
        ("meta.tool_register", hook),
        ("meta.tool_register", "meta.call_tool('fine')"),
    ] {
        assert_eq!(governed(event, "'no'", &[line]).code, 0, "{event} {line}");
    }
    // A guard that reads the script.
    let reads = artifact("event: meta.tool_register\nwhen: \"\\\"exec.run\\\" in payload[\\\"script\\\"]\"\n", BLOCKS);
    for (script, code) in [("'fine'", 0), ("exec.run('ls')", 3)] {
        let project = doing(&[&adds("new", script)]).file(".harness/hooks/lint.md", &reads);
        assert_eq!(project.run(&["call", "it"]).code, code, "{script}");
        // What was refused is not there.
        let calls = [("it", json!({})), ("new", json!({}))];
        assert_eq!(
            in_one_run(&project, &calls)[1],
            if code == 0 { "fine" } else { "not called: there is no tool `new`" }
        );
    }
    // A guard that fails guards.
    let fails = artifact("event: meta.tool_register\n", "def handle(event, payload):\n    fail('broken')\n");
    doing(&[tool]).file(".harness/hooks/guard.md", &fails).run(&["call", "it"]).says(3, "the hook failed: ");
}

/// What adds a tool with a narrow grant, and one with a wide grant that calls it.
fn maker(front: &str, policy: &str, place: &str) -> Project {
    let script = does(&[&adds("reader", "fs.read(args['path'])"), "meta.call_tool('reader', {'path': args['path']})"]);
    Project::new()
        .file(place, &artifact(front, &script))
        .tool("wide", "", &gives("[meta.call_tool('reader', {'path': 'a.txt'}), fs.read('a.txt')]"))
        .file("a.txt", "secret")
        .file("docs/b.txt", "open")
        .policy(&format!("meta: {{ enabled: true }}\n{policy}"))
}

#[test]
fn what_is_added_has_the_grant_of_who_added_it() {
    let (plugin, own) = (".harness/plugins/acme/tools/makes.md", ".harness/tools/makes.md");
    let docs = "capabilities: { fs: { read: [docs] } }\n";
    let granted = |fs: &str| format!("sandbox: {{ sources: {{ plugins/acme: {{ services: [meta]{fs} }} }} }}\n");
    let denied = "tool denied: fs.read: reading `a.txt` is not granted";
    for (front, policy, place, open) in [
        ("", granted(""), plugin, false),
        ("", granted(", fs: { read: [docs] }"), plugin, true),
        (docs, String::new(), own, true),
        ("", "sandbox: { fs: { read: [docs] } }\n".to_owned(), own, true),
    ] {
        let project = maker(front, &policy, place);
        let told = project.run(&["call", "makes", "path=a.txt"]).out;
        assert!(told.starts_with(&format!("error: {denied}")), "{front}{policy}: {told}");
        let told = project.run(&["call", "makes", "path=docs/b.txt"]).out;
        assert_eq!(told == "open\n", open, "{front}{policy}: {told}");
        // Nor has it more when one calls it that may.
        let path = json!({"path": "a.txt"});
        let told = in_one_run(&project, &[("makes", path.clone()), ("wide", json!({})), ("reader", path)]);
        assert!(told[1].contains(denied) && told[2].starts_with(denied), "{told:?}");
    }
    // The same, where it may; and a plugin that may not even add.
    maker("", "", own).run(&["call", "makes", "path=a.txt"]).gives("secret");
    let told = in_one_run(&maker("", "", own), &[("makes", json!({"path": "a.txt"})), ("wide", json!({}))]);
    assert_eq!(told[1], "[\"secret\",\"secret\"]");
    maker("", &granted(", fs: { read: [a.txt] }"), plugin).run(&["call", "makes", "path=a.txt"]).gives("secret");
    let none = maker("", "", plugin).run(&["call", "makes", "path=docs/b.txt"]);
    none.says(3, "meta.register_tool: `meta` is not granted");
    none.says(3, "hint: add `meta` to `sandbox.sources.plugins/acme.services` in `.harness/harness.md`");
    // A hook as well: it cannot read what its maker may not.
    let script = does(&[&hooks("h", "tool.pre", "return block(fs.read('a.txt'))", "")]);
    for (front, said) in [(docs, "the hook failed: fs.read: reading `a.txt` is not granted"), ("", "\"h\": secret")] {
        let project = Project::new().tool("makes", front, &script).tool("fine", "", FINE).file("a.txt", "secret");
        let told = in_one_run(&project.policy(ON), &[("makes", json!({})), ("fine", json!({}))]);
        assert!(told[1].contains(said), "{told:?}");
    }
}

#[test]
fn a_tool_that_calls_another_gives_it_no_more_than_its_own() {
    let calls = does(&["meta.call_tool('reads', {'path': args['path']})"]);
    let project = Project::new()
        .tool("narrow", "capabilities: { fs: { read: [docs] } }\n", &calls)
        .tool("wide", "", &calls)
        .tool("reads", "", &gives("fs.read(args['path'])"))
        .tool("writes", "", "def run(args):\n    fs.write('mark', '')\n    return 'wrote'\n")
        .tool(
            "through",
            "capabilities: { fs: { read: [docs] } }\n",
            &does(&["meta.call_tool('wide', {'path': 'a.txt'})"]),
        )
        .tool("marks", "capabilities: { fs: { read: [docs] } }\n", &does(&["meta.call_tool('writes')"]))
        .file("a.txt", "secret")
        .file("docs/b.txt", "open")
        .policy(ON);
    project.run(&["call", "wide", "path=a.txt"]).gives("secret");
    project.run(&["call", "narrow", "path=docs/b.txt"]).gives("open");
    for (tool, path) in [("narrow", "path=a.txt"), ("through", "x=y")] {
        let ran = project.run(&["call", tool, path]);
        assert!(
            ran.code == 0 && ran.out.starts_with("error: ") && ran.out.contains("reading `a.txt` is not granted"),
            "{tool}: {ran}"
        );
    }
    assert!(project.run(&["call", "marks"]).out.starts_with("error: tool denied: fs.write: "));
    assert!(!project.path("mark").exists());
    project.run(&["call", "writes"]).gives("wrote");
}

#[test]
fn hooks_that_were_added_come_after_the_guards_and_change_nothing() {
    let logs = "log('added %s' % payload['name'])\n    return allow()";
    let own = |name: &str, priority: i32| {
        (
            format!(".harness/hooks/{name}.md"),
            artifact(
                &format!("event: tool.pre\nwhen: payload[\"name\"] == \"fine\"\npriority: {priority}\n"),
                "def handle(event, payload):\n    log('own')\n    return allow()\n",
            ),
        )
    };
    let (early, late) = (own("early", 49), own("late", 51));
    let lines = [
        hooks("asks_first", "tool.pre", logs, ", priority = -1000"),
        hooks("asks_none", "tool.pre", logs, ""),
        hooks("asks_last", "tool.pre", logs, ", priority = 700, when = 'payload[\"name\"] == \"fine\"'"),
        hooks("elsewhere", "tool.pre", logs, ", when = 'payload[\"name\"] == \"x\"'"),
        "meta.call_tool('fine')".to_owned(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let ran = doing(&lines).tool("fine", "", FINE).file(&early.0, &early.1).file(&late.0, &late.1).run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "fine\n"), "{ran}");
    assert_eq!(
        ran.err,
        "[info] early: own\n[info] asks_first: added fine\n[info] late: own\n[info] asks_none: added fine\n[info] asks_last: added fine\n"
    );
    // They look and block; they change neither arguments nor results.
    for (event, change) in [("tool.pre", "{'args': {'s': 'mine'}}"), ("tool.post", "{'content': 'mine'}")] {
        let modifies = hooks("changes", event, &format!("return modify({change})"), "");
        let ran = doing(&[&modifies, "meta.call_tool('says', {'s': 'theirs'})"])
            .tool("says", "", &gives("args['s']"))
            .run(&["call", "it"]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "theirs\n"), "{ran}");
        let warning = format!("warning: hook `changes`: a hook that the run has added cannot modify `{event}`\n");
        assert!(ran.err.contains(&warning), "{ran}");
        // One of the project does.
        let own = artifact(
            &format!("event: {event}\nwhen: payload[\"name\"] == \"says\"\n"),
            &format!("def handle(event, payload):\n    return modify({change})\n"),
        );
        doing(&["meta.call_tool('says', {'s': 'theirs'})"])
            .tool("says", "", &gives("args['s']"))
            .file(".harness/hooks/own.md", &own)
            .run(&["call", "it"])
            .gives("mine");
    }
    // Of the run's own events they do.
    let custom = hooks("changes", "custom.mine", "return modify({'a': 2})", "");
    run(&[&custom, "events.emit('custom.mine', {'a': 1})"]).gives("{\"a\":2}");
}

#[test]
fn a_hook_that_was_added_blocks_later_calls_of_its_run() {
    let project = doing(&[&hooks("stops", "tool.pre", "return block('no more')", "")]).tool("fine", "", FINE);
    project.run(&["call", "it"]).gives("true");
    project.run(&["call", "fine"]).gives("fine");
    let told = in_one_run(&project, &[("fine", json!({})), ("it", json!({})), ("fine", json!({}))]);
    assert_eq!(told, ["fine", "true", "tool blocked: blocked by hook \"stops\": no more"]);
}

#[test]
fn a_tool_that_was_called_adds_nothing() {
    let project = doing(&["[meta.call_tool('adds'), meta.call_tool('hooks')]"])
        .tool("adds", "", &does(&[&adds("new", "1")]))
        .tool("hooks", "", &does(&[&hooks("new", "error", "return allow()", "")]));
    let out = project.run(&["call", "it", "--json"]).json()["result"].clone();
    for (n, kind) in [(0, "tool"), (1, "hook")] {
        let wanted = format!(
            "error: tool error: meta.register_{kind}: cannot register {kind}s from within meta.call_tool (.harness/tools/{kind}"
        );
        let wanted = wanted.replace("tools/tool", "tools/adds").replace("tools/hook", "tools/hooks");
        assert!(out[n].as_str().unwrap().starts_with(&wanted), "{out}");
    }
    // Called by itself, it does.
    project.run(&["call", "adds"]).gives("true");
    project.run(&["call", "hooks"]).gives("true");
}

/// Two tools that call each other: as deep as the policy says, and never without an end.
#[test]
fn calls_within_calls_are_bounded() {
    let calls = |other: &str| does(&["metrics.incr('calls')", &format!("meta.call_tool('{other}')")]);
    let counts = does(&[
        "answer = meta.call_tool('a')",
        "[metrics.get('calls'), 'maximum call depth exceeded' in answer, answer.startswith('error: ')]",
    ]);
    let project = |policy: &str| {
        Project::with_script(&counts).tool("a", "", &calls("b")).tool("b", "", &calls("a")).policy(policy)
    };
    for (policy, depth) in [
        (ON, 5),
        ("meta: { enabled: true, max_call_depth: 1 }\n", 1),
        ("meta: { enabled: true, max_call_depth: 3 }\n", 3),
    ] {
        project(policy).run(&["call", "it"]).gives(&format!("[{depth},true,true]"));
    }
    let none = project("meta: { enabled: true, max_call_depth: 0 }\n").run(&["call", "it"]);
    none.says(1, "meta.call_tool: maximum call depth exceeded (0)");
    // However deep the policy lets it, the host has its own end.
    let ran = project("meta: { enabled: true, max_call_depth: 1000 }\n").run(&["call", "it"]);
    assert!(ran.code == 0 && ran.out.ends_with(",true,true]\n"), "{ran}");
    let deepest: u32 = ran.out.trim_start_matches('[').split(',').next().unwrap().parse().unwrap();
    assert!((5..100).contains(&deepest), "{ran}");
    // One that calls itself, twice each time: what it takes is taken from the first.
    let twice = does(&["metrics.incr('calls')", "[meta.call_tool('it'), meta.call_tool('it')][0]"]);
    let ran = Project::with_script(&twice)
        .policy("meta: { enabled: true }\nsandbox: { limits: { fuel: 300000000 } }\n")
        .run(&["call", "it"]);
    assert!(matches!(ran.code, 0 | 1 | 4), "{ran}");
}

/// Once, however many are in between.
#[test]
fn who_calls_a_tool_pays_for_it_once() {
    let project = Project::new()
        .tool("works", "", "def run(args):\n    return len([n for n in range(100000)])\n")
        .tool("one", "", &gives("meta.call_tool('works')"))
        .tool("two", "", &gives("meta.call_tool('one')"))
        .tool("three", "", &gives("meta.call_tool('two')"))
        .policy(ON);
    let fuel = |tool: &str| project.run(&["call", tool, "--json"]).json()["usage"]["fuel"].as_u64().unwrap();
    let (works, three) = (fuel("works"), fuel("three"));
    assert!(works < three && three < works + works / 10, "{works} {three}");
    // So does the sum of all that were at work.
    let together = format!("with its hooks it used fuel {three}, ");
    project.run(&["policy", "learn", "--", "call", "three"]).says(0, &together);
}

#[test]
fn a_hook_calls_tools_and_adds_nothing() {
    let hook = |line: &str| {
        artifact(
            "event: tool.pre\nwhen: payload[\"name\"] == \"it\"\n",
            &format!("def handle(event, payload):\n    return block({line})\n"),
        )
    };
    let project = |line: &str| {
        Project::with_script(FINE)
            .tool("says", "", &gives("args['s']"))
            .file(".harness/hooks/h.md", &hook(line))
            .policy(ON)
    };
    project("meta.call_tool('says', {'s': 'asked'})").run(&["call", "it"]).says(3, "blocked by hook \"h\": asked");
    project("meta.list_tools('s*')[0]['name']").run(&["call", "it"]).says(3, "blocked by hook \"h\": says");
    for line in [adds("new", "1"), hooks("new", "error", "return allow()", "")] {
        let builtin = line.split('(').next().unwrap().to_owned();
        let ran = project(&line).run(&["call", "it"]);
        ran.says(3, &format!("the hook failed: `{builtin}` is not there in a hook"));
    }
    // One whose call it is itself called for.
    let loops = artifact(
        "event: tool.pre\n",
        "def handle(event, payload):\n    meta.call_tool('says', {'s': 'x'})\n    return allow()\n",
    );
    let ran = Project::with_script(FINE)
        .tool("says", "", &gives("args['s']"))
        .file(".harness/hooks/h.md", &loops)
        .policy(ON)
        .run(&["call", "it"]);
    ran.says(0, "");
    assert_eq!(ran.out, "fine\n");
}

/// Every guard sees a call that a tool makes, as it sees one from outside.
#[test]
fn a_call_by_a_tool_goes_through_the_hooks() {
    let guard = artifact("event: tool.pre\nwhen: payload[\"name\"] == \"fine\"\n", BLOCKS);
    let caller = does(&["meta.call_tool('fine', {'a': 1})"]);
    let project =
        Project::with_script(&caller).tool("fine", "", FINE).file(".harness/hooks/guard.md", &guard).policy(ON);
    project.run(&["call", "fine"]).says(3, "blocked by hook \"guard\": no");
    project.run(&["call", "it"]).gives("error: tool blocked: blocked by hook \"guard\": no");
    let traced = |event: &str, what: &str| {
        artifact(
            &format!("event: {event}\n"),
            &format!(
                "def handle(event, payload):\n    log(json.encode([event, payload['name'], payload['{what}']]))\n    return allow()\n"
            ),
        )
    };
    let project = Project::with_script(&caller)
        .tool("fine", "", FINE)
        .file(".harness/hooks/pre.md", &traced("tool.pre", "args"))
        .file(".harness/hooks/post.md", &traced("tool.post", "result"))
        .policy(ON);
    let ran = project.run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "fine\n"));
    let wanted = [
        "pre: [\"tool.pre\",\"it\",{}]",
        "pre: [\"tool.pre\",\"fine\",{\"a\":1}]",
        "post: [\"tool.post\",\"fine\",\"fine\"]",
        "post: [\"tool.post\",\"it\",\"fine\"]",
    ];
    assert_eq!(ran.err, wanted.map(|line| format!("[info] {line}\n")).concat());
    // And through the policy for names, and through that for what is not there.
    let denied = Project::with_script(&caller)
        .tool("fine", "", FINE)
        .policy("meta: { enabled: true }\ntools_policy: { deny: [fine] }\n");
    denied.run(&["call", "it"]).gives("error: the tool `fine` is denied by `fine`");
    Project::with_script(&caller).policy(ON).run(&["call", "it"]).gives("error: there is no tool `fine`");
    Project::with_script(&caller)
        .tool("fine", "", "def run(args):\n    fail('broken')\n")
        .policy(ON)
        .run(&["call", "it"])
        .gives("error: tool error: broken (.harness/tools/fine.md:4:7)");
}
