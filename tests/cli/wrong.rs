//! Input that cannot be used: each time exit code 2, the place, and nothing done.

use insta::assert_snapshot;

use crate::agent_turns::agent;
use crate::project::{FINE, Project, Ran};

/// Leaves a file behind where it runs.
const MARK: &str = "def run(args):\n    fs.write('mark', '')\n";

/// Calls a tool that would leave a mark, in a project with something wrong: it must not run.
#[track_caller]
fn refused(project: &Project, arguments: &[&str]) -> Ran {
    let before = std::fs::read_dir(project.root()).unwrap().count();
    let ran = project.run(arguments);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran}");
    assert_eq!(std::fs::read_dir(project.root()).unwrap().count(), before, "something was done");
    ran
}

/// A project with a tool that leaves a mark, and a file with something wrong.
fn beside(path: &str, text: &str) -> Project {
    Project::new().tool("mark", "", MARK).file(path, text)
}

#[test]
fn the_mark_is_left_where_nothing_is_wrong() {
    let project = beside(".harness/tools/fine.md", "---\n---\n");
    assert_eq!(project.run(&["call", "mark"]).code, 0);
    assert!(project.path("mark").exists());
}

#[test]
fn a_file_without_its_delimiters() {
    assert_snapshot!(refused(&beside(".harness/tools/a.md", "script: |\n  x\n"), &["call", "mark"]), @"
    exit 2
    --- stdout
    --- stderr
    error: parse tool a.md: the first line is not `---`
     --> .harness/tools/a.md:1:1
      |
    1 | script: |
      | ^^^^^^^^^
      |
      = hint: begin the file with a line `---`, then the YAML, then a second line `---`
    ");
    assert_snapshot!(refused(&beside(".harness/tools/a.md", "---\nscript: x\n"), &["call", "mark"]), @"
    exit 2
    --- stdout
    --- stderr
    error: parse tool a.md: the front matter is not closed: no second line is exactly `---`
     --> .harness/tools/a.md:1:1
      |
    1 | ---
      | ^^^
      |
      = hint: add a line `---` between the YAML and the prose
    ");
}

#[test]
fn yaml_that_is_none() {
    assert_snapshot!(refused(&beside(".harness/tools/a.md", "---\nparameters: { a: [ }\n---\n"), &["call", "mark"]), @"
    exit 2
    --- stdout
    --- stderr
    error: parse tool a.md: yaml: line 2: while parsing a node, did not find expected node content
     --> .harness/tools/a.md:2:20
      |
    2 | parameters: { a: [ }
      |                    ^
    ");
}

#[test]
fn values_of_the_wrong_type_all_of_them() {
    let text = "---\nparameters:\n  a: { type: text, required: 1 }\n  b: {}\ntimeout_ms: soon\nscript: [1]\n---\n";
    assert_snapshot!(refused(&beside(".harness/tools/a.md", text), &["call", "mark"]), @r#"
    exit 2
    --- stdout
    --- stderr
    error: tool "a" parameter `a` has the type `text`, must be one of string, number, boolean, object, array
     --> .harness/tools/a.md:3:14
      |
    3 |   a: { type: text, required: 1 }
      |              ^^^^
      |
      = hint: did you mean `string`?
    error: parse tool a.md: yaml: line 3: `parameters.a.required` must be true or false, found an integer
     --> .harness/tools/a.md:3:30
      |
    3 |   a: { type: text, required: 1 }
      |                              ^
    error: tool "a" parameter `b` has no type
     --> .harness/tools/a.md:4:6
      |
    4 |   b: {}
      |      ^^
      |
      = hint: add `type:` with one of string, number, boolean, object, array
    error: parse tool a.md: yaml: line 5: `timeout_ms` must be an integer, found a string
     --> .harness/tools/a.md:5:13
      |
    5 | timeout_ms: soon
      |             ^^^^
    error: parse tool a.md: yaml: line 6: `script` must be a string, found a list
     --> .harness/tools/a.md:6:9
      |
    6 | script: [1]
      |         ^^^
    "#);
}

#[test]
fn several_files_each_with_its_error() {
    let project = beside(".harness/tools/a.md", "none")
        .file(".harness/tools/b.md", "---\ntimeout_ms: -1\n---\n")
        .file(".harness/hooks/c.md", "---\nevent: tool\n---\n");
    let said = refused(&project, &["call", "mark"]).err;
    let places: Vec<&str> = said.lines().filter_map(|line| line.trim_start().strip_prefix("--> ")).collect();
    assert_eq!(places, [".harness/tools/a.md:1:1", ".harness/tools/b.md:2:13", ".harness/hooks/c.md:2:8"]);
}

#[test]
fn a_policy_with_an_unknown_key() {
    assert_snapshot!(refused(&beside(".harness/harness.md", "---\nsandbox:\n  fs: { raed: [\".\"] }\nsandbx: {}\n---\n"), &["call", "mark"]), @r#"
    exit 2
    --- stdout
    --- stderr
    error: unknown key `sandbox.fs.raed`
     --> .harness/harness.md:3:9
      |
    3 |   fs: { raed: ["."] }
      |         ^^^^
      |
      = hint: did you mean `read`?
    error: unknown key `sandbx`
     --> .harness/harness.md:4:1
      |
    4 | sandbx: {}
      | ^^^^^^
      |
      = hint: did you mean `sandbox`?
    "#);
}

#[test]
fn a_policy_that_does_not_parse() {
    assert_snapshot!(refused(&beside(".harness/harness.md", "---\nsandbox: [\n---\n"), &["call", "mark"]), @"
    exit 2
    --- stdout
    --- stderr
    error: parse harness.md: yaml: line 3: while parsing a node, did not find expected node content
     --> .harness/harness.md:3:1
      |
    3 | ---
      | ^
    ");
    assert_snapshot!(refused(&beside(".harness/harness.md", "no front matter\n"), &["call", "mark"]), @"
    exit 2
    --- stdout
    --- stderr
    error: parse harness.md: the first line is not `---`
     --> .harness/harness.md:1:1
      |
    1 | no front matter
      | ^^^^^^^^^^^^^^^
      |
      = hint: begin the file with a line `---`, then the YAML, then a second line `---`
    ");
}

/// What is wrong with a script is told when it is called and when it is validated, in the same words.
#[track_caller]
fn bad_script(script: &str) -> String {
    let project = Project::with_script(script);
    let ran = refused(&project, &["call", "it"]);
    let validated = project.run(&["validate"]);
    assert_eq!((validated.code, &validated.err), (2, &ran.err));
    assert_eq!(validated.out, "tools: it\ninvalid: 1 tool, 0 hooks, 0 agents; 1 error, 0 warnings\n");
    ran.err
}

#[test]
fn a_script_that_does_not_parse() {
    assert_snapshot!(bad_script("def run(args):\n    return 1 +\n"), @"
    error: the script cannot be loaded: Parse error: unexpected new line, expected expression
     --> .harness/tools/it.md:4:17
      |
    4 |       return 1 +
      |                 ^
    ");
    assert_snapshot!(bad_script("x = 1\n\ndef run(args):\n    return unknown_name\n"), @"
    error: the script cannot be loaded: Variable `unknown_name` not found
     --> .harness/tools/it.md:6:14
      |
    6 |       return unknown_name
      |              ^
    ");
}

/// What is missing is missing at the script's own end, not in the lines of the file behind it.
#[test]
fn a_script_that_ends_too_early() {
    let said = bad_script("def run(args):\n    return (\n");
    assert!(said.contains("--> .harness/tools/it.md:4:"), "{said}");
}

/// What a script takes when it is loaded is limited too, and told in words that are about the script.
#[test]
fn a_script_that_takes_too_much_when_it_is_loaded() {
    for script in [
        // A list that grows at the top level.
        "def f():\n    x = [0] * 1000\n    for i in range(100):\n        x = x + x\n    return x\n\ny = f()\n\ndef run(args):\n    return 1\n",
        // A constant at the top level.
        "x = len('x' * (64 << 20))\n\ndef run(args):\n    return 1\n",
        // A function that the interpreter puts into itself.
        "def f(g):\n    return g(g)\n\ndef run(args):\n    return f(f)\n",
    ] {
        let said = bad_script(script);
        assert!(said.contains(".harness/tools/it.md"), "{said}");
        assert!(!said.contains("RUST_BACKTRACE") && !said.contains("wasm"), "{said}");
    }
}

/// What a constant in a function takes is taken when the line is reached, not when the script is loaded.
#[test]
fn a_constant_that_takes_too_much_is_an_error_where_it_is() {
    let project = Project::with_script("def run(args):\n    return len('x' * (64 << 20))\n");
    let validated = project.run(&["validate"]);
    assert_eq!((validated.code, validated.err.as_str()), (0, ""), "{validated}");
    assert_snapshot!(project.run(&["call", "it"]), @"
    exit 4
    --- stdout
    --- stderr
    error: tool `it` was ended: over the limit `memory` of 67108864 bytes at .harness/tools/it.md:4:18, where 67108864 bytes were requested at once

    hint: `sandbox.limits.memory_mb` in `.harness/harness.md` raises it
    ");
}

/// A program finds the place too, and whose script it was.
#[test]
fn what_is_over_a_limit_names_its_script() {
    let script = "def run(args):\n    return len('x' * (64 << 20))\n";
    let caller = "def run(args):\n    return meta.call_tool('it')\n";
    let project = Project::with_script(script).policy("meta: { enabled: true }\n").tool("caller", "", caller);
    let said = project.run(&["call", "it", "--json"]);
    let error = &said.json()["error"];
    assert_eq!(
        [&error["file"], &error["line"], &error["column"]],
        [&serde_json::json!(".harness/tools/it.md"), &serde_json::json!(4), &serde_json::json!(18)],
        "{said}"
    );
    // Also where another script called it.
    let called = project.run(&["call", "caller"]);
    assert!(called.out.contains("over the limit `memory` of 67108864 bytes at .harness/tools/it.md:4:18"), "{called}");
}

/// The error of a function names that function.
#[test]
fn the_smallest_and_the_largest_of_nothing() {
    for name in ["min", "max"] {
        let project = Project::with_script(&format!("def run(args):\n    return {name}([])\n"));
        let told = format!("Argument is an empty iterable, {name}() expects a non-empty iterable");
        project.run(&["call", "it"]).says(1, &told);
    }
}

#[test]
fn a_script_without_its_function() {
    for script in ["def go(args):\n    return 1\n", "run = 5\n"] {
        let said = bad_script(script);
        assert!(
            said.starts_with("error: the script cannot be loaded: the script must define a function `run(args)`\n"),
            "{said}"
        );
        // In a project of many tools, someone has to find it.
        assert!(said.contains("--> .harness/tools/it.md:"), "{said}");
    }
}

#[test]
fn recursion() {
    assert_snapshot!(bad_script("def run(args):\n    return run(args)\n"), @"
    error: the script cannot be loaded: function `run` is recursive (`run` calls `run`): this Starlark has no recursion, write a loop
     --> .harness/tools/it.md:4:14
      |
    4 |       return run(args)
      |              ^
    ");
    assert_snapshot!(bad_script("def a(x):\n    return b(x)\n\ndef b(x):\n    return a(x)\n\ndef run(args):\n    return a(1)\n"), @"
    error: the script cannot be loaded: function `a` is recursive (`a` calls `b` calls `a`): this Starlark has no recursion, write a loop
     --> .harness/tools/it.md:4:14
      |
    4 |       return b(x)
      |              ^
    ");
}

#[test]
fn statements_that_this_starlark_has_not() {
    assert_snapshot!(bad_script("load('other.star', 'x')\n\ndef run(args):\n    return 1\n"), @"
    error: the script cannot be loaded: `load` is not allowed in this dialect
     --> .harness/tools/it.md:3:3
      |
    3 |   load('other.star', 'x')
      |   ^
    ");
    assert_snapshot!(bad_script("for x in [1]:\n    pass\n\ndef run(args):\n    return 1\n"), @"
    error: the script cannot be loaded: `for` cannot be used outside `def` in this dialect
     --> .harness/tools/it.md:3:3
      |
    3 |   for x in [1]:
      |   ^
    ");
}

#[test]
fn a_capability_at_the_top_level() {
    assert_snapshot!(bad_script("text = fs.read('a.txt')\n\ndef run(args):\n    return text\n"), @"
    error: the script cannot be loaded: `fs.read` cannot be called while the script is loaded: call it in `run` or `handle`
     --> .harness/tools/it.md:3:10
      |
    3 |   text = fs.read('a.txt')
      |          ^
    ");
    assert_snapshot!(bad_script("def now():\n    return time.now()\n\nstart = now()\n\ndef run(args):\n    return start\n"), @"
    error: the script cannot be loaded: `time.now` cannot be called while the script is loaded: call it in `run` or `handle`
     --> .harness/tools/it.md:4:14
      |
    4 |       return time.now()
      |              ^
    ");
}

#[test]
fn a_tool_that_is_not_there() {
    let project = Project::new().tool("read_file", "", FINE).tool("read_files", "", FINE);
    assert_snapshot!(refused(&project, &["call", "raed_file"]), @"
    exit 2
    --- stdout
    --- stderr
    error: there is no tool `raed_file`

    hint: did you mean `read_file` or `read_files`?
    ");
    assert_snapshot!(refused(&project, &["call", "zzz"]), @"
    exit 2
    --- stdout
    --- stderr
    error: there is no tool `zzz`

    hint: `harness tools` lists the tools
    ");
}

#[test]
fn a_tool_without_a_script() {
    assert_snapshot!(refused(&Project::new().file(".harness/tools/it.md", "---\n---\n"), &["call", "it"]), @"
    exit 2
    --- stdout
    --- stderr
    error: tool `it` has no implementation: its file has no `script`

    hint: give its file a `script:` that defines `run(args)`
    ");
}

#[test]
fn arguments_that_are_missing_and_of_the_wrong_type() {
    let project = Project::new().tool(
        "it",
        "parameters: { s: { type: string, required: true }, n: { type: number, required: true }, b: { type: boolean } }\n",
        MARK,
    );
    assert_snapshot!(refused(&project, &["call", "it", "--args", r#"{"n": "5"}"#]), @"
    exit 2
    --- stdout
    --- stderr
    error: the arguments of `it` do not fit its parameters
      the argument `s` (string) is missing
      the argument `n` must be of type number, found string

    hint: harness call it s=STRING n=NUMBER [b=BOOLEAN]
    ");
    assert_snapshot!(refused(&project, &["call", "it"]), @"
    exit 2
    --- stdout
    --- stderr
    error: the arguments of `it` do not fit its parameters
      the argument `s` (string) is missing
      the argument `n` (number) is missing

    hint: harness call it s=STRING n=NUMBER [b=BOOLEAN]
    ");
    assert_snapshot!(refused(&project, &["call", "it", "--args", "[1]"]), @"
    exit 2
    --- stdout
    --- stderr
    error: the arguments of `it` do not fit its parameters
      the arguments must be an object, found array

    hint: harness call it s=STRING n=NUMBER [b=BOOLEAN]
    ");
    assert_snapshot!(refused(&project, &["call", "it", "--args", "{\"s\": "]), @"
    exit 2
    --- stdout
    --- stderr
    error: the arguments are not JSON: EOF while parsing a value at line 1 column 6

    hint: give the arguments as a JSON object, or as `key=value`
    ");
}

#[test]
fn a_workspace_that_is_no_folder() {
    let project = Project::new().tool("mark", "", MARK).file("plain", "");
    assert_snapshot!(refused(&project, &["call", "mark", "--workspace", "plain"]), @"
    exit 2
    --- stdout
    --- stderr
    error: cannot open the workspace `plain`: Not a directory (os error 20)

    hint: name a folder with `--workspace`
    ");
    refused(&project, &["call", "mark", "--workspace", "/"])
        .says(2, "the root of the file system cannot be a workspace");
}

/// What is wrong is in the text's own place also where a message holds what the file holds.
#[test]
fn an_error_shows_hostile_text_harmlessly() {
    let ran = refused(&beside(".harness/tools/a.md", "---\ntimeout_ms: \"\u{202e}\x1b[2J\"\n---\n"), &["call", "mark"]);
    assert!(!ran.err.contains(['\x1b', '\u{202e}']), "{ran:?}");
}

/// What a policy names for its agents is checked before one works.
#[test]
fn replies_and_the_script_that_judges() {
    let project = agent("", "- txt: x\n");
    assert_snapshot!(project.run(&["validate"]), @"
    exit 2
    --- stdout
    invalid: 0 tools, 0 hooks, 0 agents; 2 errors, 0 warnings
    --- stderr
    error: unknown key `replies[0].txt`
     --> replies.yaml:1:3
      |
    1 | - txt: x
      |   ^^^
      |
      = hint: did you mean `text`?
    error: a reply has neither `text`, `tool_calls` nor `error`
     --> replies.yaml:1:3
      |
    1 | - txt: x
      |   ^
      |
      = hint: write `text: ...`, `tool_calls: [{ name: ..., args: { ... } }]` or `error: ...`
    ");
    project.write("replies.yaml", "- text: x\n- agent: finder\n  text: x\n");
    assert_snapshot!(project.run(&["validate"]), @"
    exit 0
    --- stdout
    valid: 0 tools, 0 hooks, 0 agents; 0 errors, 1 warning
    --- stderr
    warning: there is no agent `finder`
     --> replies.yaml:2:3
      |
    2 | - agent: finder
      |   ^
      |
      = hint: no agent gets this reply
    ");
    std::fs::remove_file(project.path("replies.yaml")).unwrap();
    assert_snapshot!(project.run(&["validate"]), @"
    exit 2
    --- stdout
    invalid: 0 tools, 0 hooks, 0 agents; 1 error, 0 warnings
    --- stderr
    error: cannot read `replies.yaml`: No such file or directory (os error 2)
     --> .harness/harness.md:2:36
      |
    2 | model: { provider: script, script: replies.yaml }
      |                                    ^^^^^^^^^^^^
      |
      = hint: `script` names a file of replies, from the folder of the project
    ");
    project.run(&["run", "hi"]).says(
        2,
        "error: .harness/harness.md:2:36: cannot read `replies.yaml`: No such file or directory (os error 2)\n",
    );
    let judged = |line: &str| {
        let policy = format!("delegation:\n  verify: |\n    def run(result):\n        {line}\n");
        agent(&policy, "- text: x\n").run(&["validate", "--strict"])
    };
    assert_snapshot!(judged("return nothing"), @"
    exit 2
    --- stdout
    invalid: 0 tools, 0 hooks, 0 agents; 1 error, 0 warnings
    --- stderr
    error: the script cannot be loaded: Variable `nothing` not found
     --> .harness/harness.md:6:16
      |
    6 |         return nothing
      |                ^
    ");
    assert_eq!(judged("return True").code, 0);
}
