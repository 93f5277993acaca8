//! Code mode: scripts of models and clients that call tools.

use serde_json::{Value as Json, json};

use crate::agent_turns::{agent, spied, told};
use crate::artifacts::gives;
use crate::project::{Project, Ran};

const ON: &str = "mcp: { expose: code }\n";

/// Gives what it is called with.
const ECHO: &str = "def run(args):\n    return args\n";
/// Counts its calls in a file.
const COUNTS: &str = "def run(args):\n    fs.append('calls.txt', 'x')\n    return args['n'] * 2\n";

fn project() -> Project {
    let number = "parameters:\n  n: { type: number, required: true }\n";
    Project::new()
        .policy(&format!("{ON}sandbox: {{ fs: {{ write: [calls.txt], read: [calls.txt] }} }}\n"))
        .tool("echo", "", ECHO)
        .tool("counts", number, COUNTS)
        .tool("doubles", number, &gives("args['n'] * 2"))
        .tool("fails", "", "def run(args):\n    fail('no luck')\n")
        .tool("my-tool", "", &gives("'mine'"))
}

fn script(project: &Project, text: &str) -> Ran {
    project.run(&["call", "run_script", "--args", &json!({ "script": text }).to_string()])
}

#[track_caller]
fn gives_json(project: &Project, text: &str, want: &Json) {
    let ran = script(project, text);
    assert_eq!((ran.code, serde_json::from_str::<Json>(&ran.out).ok().as_ref()), (0, Some(want)), "{ran}");
}

#[test]
fn tools_are_functions_that_give_values() {
    let project = project();
    let text = "def run():\n    one = echo(a=1, b=['x', None], **{'c': {'d': 1.5}})\n    \
                return [one, one['b'][0], counts(n=len(one)), my_tool(), meta.call('my-tool')]\n";
    gives_json(&project, text, &json!([{"a": 1, "b": ["x", null], "c": {"d": 1.5}}, "x", 6, "mine", "mine"]));
    // The form of a tool's script is a script too, and so is one with a function of its own of the name of a tool.
    gives_json(&project, "def run(args):\n    return [args, echo(x=1)]\n", &json!([{}, {"x": 1}]));
    gives_json(&project, "def echo(x):\n    return x + counts(n=1)\n\ndef run():\n    return echo(1)\n", &json!(3));
    gives_json(
        &project,
        "tools = [echo, counts]\n\ndef run():\n    return [f(n=2) for f in tools]\n",
        &json!([{"n": 2}, 4]),
    );
}

#[test]
fn a_call_that_fails_ends_the_script_at_its_line() {
    let ran = script(&project(), "def run():\n    x = 1\n    return fails()\n");
    ran.says(
        1,
        "error: tool `run_script` failed: fails: tool error: no luck (.harness/tools/fails.md:4:7)\n--> script:3:12\n\n\
         calls, outermost first:\n  script:3:12 in run\n  script:3:12 in <tool fails>\n",
    );
}

#[test]
fn errors_are_values_where_the_script_wants_them() {
    let project = project();
    let text = "def run():\n    calls = [('doubles', {'n': n}) for n in range(20)]\n    \
                all = meta.parallel(calls + [('fails', {}), ('nobody',), ('doubles', {'n': 'x'})], limit=16)\n    \
                return [one.value for one in all if one.ok] + [one.error for one in all if not one.ok] + [all[20].value]\n";
    let numbers: Vec<Json> = (0..20).map(|n| json!(n * 2)).collect();
    let errors = json!([
        "tool error: no luck (.harness/tools/fails.md:4:7)",
        "there is no tool `nobody`",
        "the arguments of `doubles` do not fit its parameters: the argument `n` must be of type number, found string",
        null,
    ]);
    gives_json(&project, text, &Json::Array([numbers, errors.as_array().unwrap().clone()].concat()));
    let text = "def run():\n    one = meta.try_call('fails')\n    two = meta.try_call('echo', {'a': 1})\n    \
                return [one.ok, one.value, one.error, two.ok, two.value, two.error]\n";
    gives_json(
        &project,
        text,
        &json!([false, null, "tool error: no luck (.harness/tools/fails.md:4:7)", true, {"a": 1}, null]),
    );
}

#[test]
fn what_is_wrong_is_said_before_the_first_call() {
    let project = project();
    let ran = script(&project, "def run():\n    counts(n=1)\n    counts(m=1)\n    return ecko()\n");
    ran.says(
        1,
        "error: tool `run_script` failed: nothing was called, and 3 things are wrong: \
         3:5: counts: there is no parameter `m`: it has `n`; 3:5: counts: missing: `n`; \
         4:12: there is no tool or function `ecko`: did you mean `echo`?\n--> script:3:5\n",
    );
    assert!(!project.path("calls.txt").exists());
    script(&project, "def run():\n    return counts(n=1)\n").gives("2");
    assert_eq!(std::fs::read_to_string(project.path("calls.txt")).unwrap(), "x");
    // A syntax error, and what is no script.
    script(&project, "def run(:\n").says(1, "error: tool `run_script` failed: ");
    script(&project, "x = 1\n").says(1, "error: tool `run_script` failed: ");
}

#[test]
fn a_script_may_call_tools_and_nothing_else() {
    let project = project().file("calls.txt", "x").policy(&format!(
        "{ON}meta: {{ enabled: true }}\nsandbox: {{ fs: {{ read: [calls.txt] }}, env: [HOME], secrets: {{ K: {{ env: K, hosts: [api.example.com] }} }} }}\n"
    ));
    let reads = project.tool("reads", "", "def run(args):\n    return fs.read('calls.txt')\n");
    for (call, why) in [
        ("fs.read('calls.txt')", "fs.read: reading `calls.txt` is not granted"),
        ("env('HOME')", "env: "),
        ("secret('K')", "secret: "),
        ("cache.set('a', 1)", "cache.set: "),
        ("emit('custom.it', {})", "emit: "),
        ("delegate('a', 'b')", "delegate: "),
    ] {
        let ran = script(&reads, &format!("def run():\n    return {call}\n"));
        assert!(
            ran.code == 3 && ran.err.contains(&format!("error: tool `run_script` was denied: {why}")),
            "{call}: {ran}"
        );
    }
    for (call, why) in [
        ("meta.register_tool('t', 'd', script='def run(args):\\n    return 1\\n')", "cannot register tools"),
        ("meta.register_hook('t', 'error', 'def handle(e, p):\\n    return allow()\\n')", "cannot register hooks"),
        ("meta.call('run_' + 'script', {'script': ''})", "`run_script` is called by a model or a client"),
        ("meta.call('search_' + 'tools', {'query': ''})", "`search_tools` is called by a model or a client"),
    ] {
        let ran = script(&reads, &format!("def run():\n    return {call}\n"));
        assert!(ran.code == 1 && ran.err.contains(why), "{call}: {ran}");
    }
    script(&reads, "def run():\n    return reads()\n").gives("x");
}

#[test]
fn each_call_is_governed_with_its_own_arguments() {
    let project = project()
        .with_handle(
            "no_threes",
            "tool.pre",
            "",
            "if payload['name'] == 'counts' and payload['args']['n'] == 3:\n    return block('three')\nreturn allow()",
        )
        .tool("asked", "confirm: true\n", ECHO)
        .tool("closed", "", ECHO)
        .policy(&format!("{ON}tools_policy: {{ deny: [closed] }}\nsandbox: {{ fs: {{ write: [calls.txt] }} }}\n"));
    script(&project, "def run():\n    return counts(n=2)\n").gives("4");
    script(&project, "def run():\n    return counts(n=3)\n")
        .says(1, "error: tool `run_script` failed: counts: tool blocked: blocked by hook \"no_threes\": three\n");
    let ran = script(&project, "def run():\n    return asked()\n");
    assert!(ran.code == 1 && ran.err.contains("asked: tool denied: each call of `asked` needs confirmation"), "{ran}");
    let ran = script(&project, "def run():\n    return meta.try_call('clo' + 'sed').error\n");
    assert!(ran.code == 0 && ran.out.contains("`closed` is denied"), "{ran}");
    // It is no function either.
    script(&project, "def run():\n    return closed()\n")
        .says(1, "error: tool `run_script` failed: nothing was called: there is no tool");
}

#[test]
fn the_audit_log_links_calls_to_their_script() {
    let project = project();
    let text = "def run():\n    return [echo(), meta.parallel([('echo',), ('echo',)])[1].ok]\n";
    script(&project, text).says(0, "");
    let shown = project.run(&["audit", "show", "--json"]);
    let lines: Vec<Json> = shown.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let digest = lines[3]["digest"].as_str().unwrap();
    let seen: Vec<Json> = lines.iter().map(|line| json!([line["tool"], line["caller"], line["outcome"]])).collect();
    let inner = json!(["echo", format!("script {digest}"), "completed"]);
    assert_eq!(seen, [inner.clone(), inner.clone(), inner, json!(["run_script", "program", "completed"])]);
    assert!(digest.starts_with("sha256:") && digest.len() == 71, "{digest}");
}

#[test]
fn fuel_and_time_are_those_of_one_call() {
    let burns = "def run(args):\n    n = 0\n    for i in range(args['n']):\n        n = i\n    return n\n";
    let project = Project::new().policy(&format!("{ON}sandbox: {{ limits: {{ fuel: 60000000 }} }}\n")).tool(
        "burns",
        "parameters:\n  n: { type: number }\n",
        burns,
    );
    let calls = |count: usize, n: usize| {
        let text = format!(
            "def run():\n    all = meta.parallel([('burns', {{'n': {n}}})] * {count}, limit=4)\n    return len([1 for one in all if one.ok])\n"
        );
        project.run(&["call", "run_script", "--json", "--args", &json!({ "script": text }).to_string()])
    };
    let few = calls(4, 10);
    assert_eq!((few.code, &few.json()["result"]), (0, &json!(4)), "{few}");
    // One of these alone would be let run for longer than all have together.
    let alone = project.run(&["call", "burns", "n=100000", "--json"]);
    let fuel = |ran: &Ran| ran.json()["usage"]["fuel"].as_u64().unwrap();
    assert!(alone.code == 0 && fuel(&alone) > 15_000_000, "{alone}");
    // They have a quarter of it each, and then nothing is left to the script.
    let many = calls(4, 100_000);
    assert_eq!((many.code, fuel(&many), &many.json()["error"]["kind"]), (4, 60_000_000, &json!("fuel")), "{many}");
}

/// A script has no more host calls and no more memory by calling tools than it has itself.
#[test]
fn host_calls_and_memory_are_those_of_one_call() {
    let asks = "def run(args):\n    for i in range(10):\n        metrics.incr('n')\n    return 1\n";
    let nests = "def run(args):\n    return [meta.call('asks') for i in range(args['n'])]\n";
    let holds = "def run(args):\n    return len('x' * (6 << 20))\n";
    let project = Project::new()
        .policy(&format!("{ON}meta: {{ enabled: true }}\nsandbox: {{ limits: {{ host_calls: 50, memory_mb: 36 }} }}\n"))
        .tool("asks", "", asks)
        .tool("nests", "parameters:\n  n: { type: integer }\n", nests)
        .tool("holds", "", holds);
    let calls = |body: &str| script(&project, &format!("def run():\n    return {body}\n"));
    let over = "`run_script` was ended: over the limit `host calls` of 50 calls";
    calls("[asks() for i in range(4)]").gives("[1,1,1,1]");
    calls("[asks() for i in range(5)]").says(4, over);
    // What is called calls others, and some of them at one time.
    calls("nests(n=4)").gives("[1,1,1,1]");
    calls("nests(n=5)").says(4, over);
    let parallel = |count: usize| {
        let text = format!("[one.value for one in meta.parallel([('asks', {{}})] * {count}, limit={count})]");
        calls(&text)
    };
    parallel(4).gives("[1,1,1,1]");
    // Each has a fifth of what is left.
    parallel(5).says(4, over);
    // A tool that no script of code mode has called has its own, and so has each tool that it calls.
    project.run(&["call", "nests", "n=40"]).gives(&format!("[{}]", ["1"; 40].join(",")));
    let text = |held: u32| format!("def run():\n    x = 'x' * ({held} << 20)\n    return [holds(), len(x)]\n");
    let ran = script(&project, &text(1));
    assert_eq!((ran.code, ran.out.trim()), (0, "[6291456,1048576]"), "{ran}");
    script(&project, &text(8)).says(1, "holds: tool error: over the limit `memory`");
}

#[test]
fn tools_are_found_and_described() {
    let front = "parameters:\n  state: { type: string, enum: [open, closed], default: open }\n  project: { type: string, required: true }\n\
                 returns: { type: array, items: { type: object } }\n";
    let project = project()
        .tool("tracker-list", front, ECHO)
        .tool("fs", "", ECHO)
        .tool("other", "", ECHO)
        .tool("another", "", ECHO);
    let found = project.run(&["call", "search_tools", "query=tracker"]);
    assert_eq!(
        found.out,
        "1 of 9 tools:\ntracker_list(project: str, state: \"open\" | \"closed\" = \"open\") -> list[dict]  # A tool.\n",
        "{found}"
    );
    let found = project.run(&["call", "search_tools", "query=fs"]);
    assert_eq!(found.out, "1 of 9 tools:\nmeta.call(\"fs\", {})  # A tool.\n", "{found}");
    assert_eq!(
        project.run(&["call", "search_tools", "query=zebra"]).out,
        "None of 9 tools: use other words, of what the tool does.\n"
    );
    let described = project.run(&["call", "describe_tool", "name=tracker_list"]);
    assert_eq!(
        described.out,
        "tracker_list(project: str, state: \"open\" | \"closed\" = \"open\") -> list[dict]\n\n# tracker-list\n\nA tool.\n\n\
         Parameters, as JSON Schema:\n- \"state\": {\"type\":\"string\",\"default\":\"open\",\"enum\":[\"open\",\"closed\"]}\n\
         - \"project\" (required): {\"type\":\"string\"}\n\n\
         Returns, as JSON Schema: {\"type\":\"array\",\"items\":{\"type\":\"object\"}}\n",
        "{described}"
    );
    project
        .run(&["call", "describe_tool", "name=trackerlist"])
        .says(1, "error: tool `describe_tool` failed: there is no tool `trackerlist`: did you mean `tracker-list`?");
}

/// No third party comes to a function of the project's tools, or to the host's own names.
#[test]
fn names_are_the_projects_before_others() {
    let theirs = "---\nscript: |\n  def run(args):\n      return 'theirs'\n---\nTheirs.\n";
    let with = |name: &str| project().file(&format!(".harness/plugins/acme/tools/{name}.md"), theirs);
    let mine = "def run():\n    return my_tool()\n";
    script(&project(), mine).gives("mine");
    script(&with("my_tool"), mine).gives("mine");
    script(&with("my_tool"), "def run():\n    return meta.call('my_tool')\n").gives("theirs");
    for name in ["run_script", "search_tools", "describe_tool"] {
        let project = with(name);
        let why = format!("tool \"{name}\" has the name of a built-in tool");
        let ran = project.run(&["validate"]);
        assert!(ran.code == 2 && ran.err.contains(&why), "{ran}");
        assert_eq!(project.policy("").run(&["validate"]).code, 0);
    }
    // Nor does a script of a tool, for the rest of the run.
    let adds =
        "def run(args):\n    return meta.register_tool('run_script', 'd', script='def run(args):\\n    return 1\\n')\n";
    let meta = "meta: { enabled: true }\n";
    let project = |policy: &str| Project::new().policy(policy).tool("adds", "", adds);
    let refused = "meta.register_tool: tool \"run_script\" already registered";
    project(&format!("{ON}{meta}")).run(&["call", "adds"]).says(1, &format!("error: tool `adds` failed: {refused}\n"));
    project(meta).run(&["call", "adds"]).gives("true");
}

/// Rules for names know the three, and decide on them.
#[test]
fn the_policy_decides_on_the_tools_of_code_mode() {
    let allows =
        |names: &str| project().policy(&format!("{ON}tools_policy: {{ mode: allowlist, allow: [{names}] }}\n"));
    let text = "def run():\n    return 1\n";
    let valid = allows("run_script, echo").run(&["validate"]);
    assert!(valid.code == 0 && !valid.out.contains("no tool is named"), "{valid}");
    script(&allows("run_script, echo"), text).gives("1");
    let ran = script(&allows("echo"), text);
    ran.says(3, "error: the tool `run_script` is not allowed\n");
}

/// Tools that are hidden from direct use, by their author or by the policy.
#[test]
fn a_tool_for_scripts_alone_is_not_called_by_a_model() {
    let script = "def run():\n    return [hidden(n=1), other(n=2)]\n";
    let replies = json!([
        {"tool_calls": [{"name": "hidden", "args": {"n": 1}}, {"name": "other", "args": {"n": 1}}]},
        {"expect": "error: the tool `other` is only called by scripts", "tool_calls": [{"name": "echo", "args": {"n": 3}}]},
        {"expect": "{\"n\":3}", "tool_calls": [{"name": "run_script", "args": {"script": script}}]},
        {"expect": "[{\"n\":1},{\"n\":2}]", "text": "Done."},
    ]);
    let policy = "mcp: { expose: both, only_in_scripts: [oth*] }\n";
    let made = |policy: &str| {
        let project = agent(policy, &replies.to_string()).tool("echo", "", ECHO).tool("other", "", ECHO);
        project.tool("hidden", "expose: script\n", ECHO)
    };
    let project = spied(made(policy), &["completion.pre"]);
    let ran = project.run(&["run", "Go."]);
    ran.says(0, "");
    let tools = &told(&ran, "completion.pre")[0]["tools"];
    let names: Vec<&Json> = tools.as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["echo", "search_tools", "describe_tool", "run_script"]);
    // A person may, and so may a tool.
    project.run(&["call", "hidden", "n=1"]).gives("{\"n\":\"1\"}");
    project.run(&["call", "other", "n=1"]).gives("{\"n\":\"1\"}");
    let ran = project.run(&["inspect"]);
    assert_eq!(ran.out.matches("  only scripts call it, no model and no client\n").count(), 2, "{ran}");
    let ran = made("mcp: { only_in_scripts: [nowhere] }\n").run(&["validate"]);
    assert!(ran.err.contains("`mcp.only_in_scripts`: no tool is named like `nowhere`"), "{ran}");
    let wrong = Project::new().tool("x", "expose: tools\n", ECHO).run(&["validate"]);
    assert!(wrong.code == 2 && wrong.err.contains("expose \"tools\" must be both|script"), "{wrong}");
}

#[test]
fn without_the_key_there_is_no_code_mode() {
    for policy in ["", "mcp: { expose: tools }\n"] {
        let project = project().policy(policy);
        script(&project, "def run():\n    return 1\n").says(2, "error: there is no tool `run_script`");
    }
    let both = project().policy("mcp: { expose: both }\n");
    script(&both, "def run():\n    return 1\n").gives("1");
    script(&project().policy("mcp: { expose: all }\n"), "").says(2, "");
}

#[test]
fn an_agent_calls_tools_by_scripts() {
    let script = "def run():\n    calls = [('echo', {'n': n}) for n in range(3)]\n    return [one.value for one in meta.parallel(calls)]\n";
    let replies = json!([
        {"tool_calls": [{"name": "run_script", "args": {"script": script}}]},
        {"expect": "[{\"n\":0},{\"n\":1},{\"n\":2}]", "text": "Done."},
    ]);
    let project = spied(agent(ON, &replies.to_string()).tool("echo", "", ECHO), &["completion.pre"]);
    let ran = project.run(&["run", "Go."]);
    ran.says(0, "");
    let tools = &told(&ran, "completion.pre")[0]["tools"];
    let names: Vec<&Json> = tools.as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["search_tools", "describe_tool", "run_script"]);
    let ran = project.run(&["sessions", "replay"]);
    assert!(ran.code == 0 && ran.out.contains(": replay matches: "), "{ran}");
}
