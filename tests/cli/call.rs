//! `harness call`: how it ends, what it prints, what it explains.

use insta::assert_snapshot;
use serde_json::json;

use crate::project::{FINE, Project};

/// Fails three calls deep: in the file, `inner` fails at 5:14, called by `outer` at 9:11, called by `run` at 13:11.
const NESTED: &str = "\
def inner(x):
    y = [x]
    return 1 + y

def outer(x):
    y = [x]
    z = inner(y)
    return z

def run(args):
    z = outer('a')
    return z
";

#[test]
fn a_result_is_data_and_what_is_said_is_talk() {
    let project =
        Project::with_script("def run(args):\n    log.warn('careful')\n    print('by the way')\n    return 'hello'\n");
    assert_snapshot!(project.run(&["call", "it"]), @"
    exit 0
    --- stdout
    hello
    --- stderr
    [warn] careful
    [info] by the way
    ");
    // A value that is no string is JSON.
    let value =
        Project::with_script("def run(args):\n    return {'z': [1, 2.5, None, True], 'a': 12345678901234567890123}\n");
    value.run(&["call", "it"]).gives(r#"{"z":[1,2.5,null,true],"a":12345678901234567890123}"#);
    Project::with_script("def run(args):\n    return 'one\\ntwo\\n'\n").run(&["call", "it"]).gives("one\ntwo");
    Project::with_script("def run(args):\n    pass\n").run(&["call", "it"]).gives("null");
}

#[test]
fn a_script_that_fails_is_1_with_its_own_line_and_column() {
    let fails = Project::with_script("def run(args):\n    if True:\n        fail('no', 5)\n");
    assert_snapshot!(fails.run(&["call", "it"]), @"
    exit 1
    --- stdout
    --- stderr
    error: tool `it` failed: no 5
     --> .harness/tools/it.md:5:11
      |
    5 |           fail('no', 5)
      |           ^

    calls, outermost first:
      .harness/tools/it.md:5:11 in run
      .harness/tools/it.md:5:11 in fail
    ");
    // The place is where it failed, and each line of the stack where its function was at that time.
    let nested = Project::with_script(NESTED);
    assert_snapshot!(nested.run(&["call", "it"]), @"
    exit 1
    --- stdout
    --- stderr
    error: tool `it` failed: Operation `+` not supported for types `int` and `list`
     --> .harness/tools/it.md:5:14
      |
    5 |       return 1 + y
      |              ^

    calls, outermost first:
      .harness/tools/it.md:13:11 in run
      .harness/tools/it.md:9:11 in outer
      .harness/tools/it.md:5:14 in inner
    ");
    // The interpreter puts a function of one expression instead of its call, and reports that place.
    let short = Project::with_script("def inner(x):\n    return 1 + x\n\ndef run(args):\n    return [inner('a')]\n");
    short.run(&["call", "it"]).says(1, "--> .harness/tools/it.md:7:15\n");
    // With more front matter before the script, the lines are still those of the file.
    let later =
        Project::new().tool("it", "timeout_ms: 5000\nparameters: {}\n", "def run(args):\n    return args['x']\n");
    assert_snapshot!(later.run(&["call", "it"]), @r#"
    exit 1
    --- stdout
    --- stderr
    error: tool `it` failed: Key `"x"` was not found
     --> .harness/tools/it.md:6:14
      |
    6 |       return args['x']
      |              ^
    "#);
}

#[test]
fn a_result_that_is_no_json_fails() {
    assert_snapshot!(Project::with_script("def run(args):\n    return [len]\n").run(&["call", "it"]), @"
    exit 1
    --- stdout
    --- stderr
    error: tool `it` failed: a value of type `function` cannot be told as JSON
     --> .harness/tools/it.md:3:3
      |
    3 |   def run(args):
      |   ^
    ");
}

#[test]
fn a_denial_is_3() {
    let project = Project::with_script("def run(args):\n    return exec.run('cat', ['a'])\n");
    assert_snapshot!(project.run(&["call", "it"]), @"
    exit 3
    --- stdout
    --- stderr
    error: tool `it` was denied: exec.run: the command `cat a` is not allowed
     --> .harness/tools/it.md:4:14
      |
    4 |       return exec.run('cat', ['a'])
      |              ^
      |
      = hint: add `cat a` to `sandbox.exec.allow` in `.harness/harness.md`

    sandbox:
      exec:
        allow:
          - cat a

    calls, outermost first:
      .harness/tools/it.md:4:14 in run
      .harness/tools/it.md:4:14 in exec.run
    ");
    // A tool that the policy does not let be called at all.
    let project = Project::with_script(FINE).policy("tools_policy: { deny: [\"i*\"] }\n");
    assert_snapshot!(project.run(&["call", "it"]), @"
    exit 3
    --- stdout
    --- stderr
    error: the tool `it` is denied by `i*`

    hint: remove `i*` from `tools_policy.deny` in `.harness/harness.md:2:24`
    ");
}

#[test]
fn a_limit_is_4() {
    let project = Project::with_script("def run(args):\n    for i in range(1 << 30):\n        pass\n")
        .policy("sandbox: { limits: { fuel: 50000000 } }\n");
    assert_snapshot!(project.run(&["call", "it"]), @"
    exit 4
    --- stdout
    --- stderr
    error: tool `it` was ended: over the limit `fuel` of 50000000 units

    hint: `sandbox.limits.fuel` in `.harness/harness.md:2:28` raises it
    ");
}

/// No room for the memory of an instance: the machine's doing.
#[test]
fn a_fault_of_the_host_is_5() {
    let project = Project::with_script(FINE);
    let ran = project.shell("ulimit -v 1000000; exec \"$HARNESS\" call it");
    assert_eq!((ran.code, ran.out.as_str()), (5, ""), "{ran}");
    assert!(ran.err.starts_with("error: "), "{ran}");
    // The same without the limit, for comparison.
    project.shell("exec \"$HARNESS\" call it").gives("fine");
}

#[test]
fn json_of_each_ending() {
    let completed = Project::with_script("def run(args):\n    log.debug('d')\n    return {'a': 1}\n")
        .run(&["call", "it", "--json"]);
    assert_eq!(completed.code, 0);
    assert_snapshot!(format!("{:#}", completed.report()), @r#"
    {
      "outcome": "completed",
      "result": {
        "a": 1
      },
      "content": "{\"a\":1}",
      "truncated": false,
      "is_error": false,
      "usage": "looked at",
      "log": [
        {
          "level": "debug",
          "message": "d"
        }
      ]
    }
    "#);

    let failed = Project::with_script(NESTED).run(&["call", "it", "--json"]);
    assert_eq!(failed.code, 1);
    assert_snapshot!(format!("{:#}", failed.report()), @r#"
    {
      "outcome": "failed",
      "result": null,
      "content": null,
      "truncated": false,
      "is_error": true,
      "usage": "looked at",
      "log": [],
      "error": {
        "kind": "script",
        "message": "Operation `+` not supported for types `int` and `list`",
        "file": ".harness/tools/it.md",
        "line": 5,
        "column": 14,
        "stack": [
          {
            "name": "run",
            "file": ".harness/tools/it.md",
            "line": 13,
            "column": 11
          },
          {
            "name": "outer",
            "file": ".harness/tools/it.md",
            "line": 9,
            "column": 11
          },
          {
            "name": "inner",
            "file": ".harness/tools/it.md",
            "line": 5,
            "column": 14
          }
        ],
        "hint": ""
      }
    }
    "#);

    let denied = Project::with_script("def run(args):\n    env('SHELL')\n").run(&["call", "it", "--json"]);
    assert_eq!(denied.code, 3);
    assert_snapshot!(format!("{:#}", denied.report()), @r#"
    {
      "outcome": "denied",
      "result": null,
      "content": null,
      "truncated": false,
      "is_error": true,
      "usage": "looked at",
      "log": [],
      "error": {
        "kind": "denied",
        "message": "env: the variable `SHELL` is not granted",
        "file": ".harness/tools/it.md",
        "line": 4,
        "column": 7,
        "stack": [
          {
            "name": "run",
            "file": ".harness/tools/it.md",
            "line": 4,
            "column": 7
          },
          {
            "name": "env",
            "file": ".harness/tools/it.md",
            "line": 4,
            "column": 7
          }
        ],
        "hint": "add `SHELL` to `sandbox.env` in `.harness/harness.md`"
      }
    }
    "#);

    let limited = Project::with_script("def run(args):\n    sleep(60000)\n")
        .policy("sandbox: { limits: { timeout_ms: 1000 } }\n")
        .run_loaded(&["call", "it", "--json"]);
    assert_eq!(limited.code, 4);
    assert_snapshot!(format!("{:#}", limited.report()), @r#"
    {
      "outcome": "limited",
      "result": null,
      "content": null,
      "truncated": false,
      "is_error": true,
      "usage": "looked at",
      "log": [],
      "error": {
        "kind": "timeout_ms",
        "message": "over the limit `timeout_ms` of 1000 ms",
        "file": null,
        "line": null,
        "column": null,
        "stack": [],
        "hint": "`sandbox.limits.timeout_ms` in `.harness/harness.md:2:34` raises it"
      }
    }
    "#);
}

#[test]
fn json_of_a_result_that_was_cut_is_whole() {
    let project = Project::with_script("def run(args):\n    return 'x' * 300\n")
        .policy("sandbox: { limits: { output_bytes: 256 } }\n");
    let report = project.run(&["call", "it", "--json"]).report();
    let cut = format!("{}\n[output truncated at 256 bytes]", "x".repeat(256 - 32));
    assert_eq!((&report["truncated"], &report["content"]), (&json!(true), &json!(cut)));
    assert_eq!(report["result"], json!("x".repeat(300)));
    project.run(&["call", "it"]).gives(&cut);
}

#[test]
fn explain_tells_grant_limits_and_what_each_host_call_cost() {
    let script = "def run(args):\n    fs.read('a.txt')\n    cache.set('k', 'v')\n    fs.write('a.txt', 'x')\n";
    let project = Project::new()
        .tool("it", "timeout_ms: 9000\ncapabilities: { fs: { read: [a.txt] } }\n", script)
        .policy("network: { allowed_domains: [example.com] }\nsandbox: { fs: { read: [\".\"] }, exec: { allow: [\"cat *\"], env: [LANG] }, env: [HOME] }\n")
        .file("a.txt", "twelve bytes");
    let ran = project.run(&["call", "it", "--explain"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""));
    let used = ran.err.lines().find(|line| line.starts_with("used: fuel ")).unwrap();
    assert!(used.contains(" MiB at most, 3 host calls, "), "{used}");
    let rest: Vec<String> = ran.err.lines().filter(|line| *line != used).map(without_times).collect();
    assert_snapshot!(rest.join("\n"), @"
    granted if all of these layers allow it:
      .harness/harness.md:
        read: . (.harness/harness.md:3:24)
        write: nothing (.harness/harness.md:3:16)
        hosts: example.com (.harness/harness.md:2:29)
        commands: cat * (.harness/harness.md:3:48)
        their variables: LANG (.harness/harness.md:3:64)
        variables: HOME (.harness/harness.md:3:79)
        services: cache, metrics, clock, random, events, meta, delegate, modify, prompt
      .harness/tools/it.md:3:1, its capabilities:
        read: a.txt (.harness/tools/it.md:3:29)
        write: nothing (.harness/tools/it.md:3:21)
    limits: fuel 10000000000, timeout_ms 9000, memory_mb 64, output_bytes 65536, result_bytes 4194304, host_memory_mb 64, host_calls 100000, io_bytes 268435456, files 10000, file_bytes 16777216, body_bytes 10485760, regex_bytes 1048576, log_lines 1000, processes 64, command_memory_mb 4096
      fs.read a.txt: fuel 100034, _ ms, 5 bytes in, 12 bytes out
      cache.set k: fuel 5016, _ ms, 4 bytes in, 0 bytes out
      fs.write a.txt: fuel 1000024, _ ms, 6 bytes in, 0 bytes out denied: writing `a.txt` is not granted: nothing in `sandbox.fs.write` in `.harness/harness.md:3:16` covers it
    error: tool `it` was denied: fs.write: writing `a.txt` is not granted: nothing in `sandbox.fs.write` in `.harness/harness.md:3:16` covers it
     --> .harness/tools/it.md:8:7
      |
    8 |       fs.write('a.txt', 'x')
      |       ^
      |
      = hint: add `a.txt` to `sandbox.fs.write` in `.harness/harness.md:3:16`

    calls, outermost first:
      .harness/tools/it.md:8:7 in run
      .harness/tools/it.md:8:7 in fs.write
    ");
    // Talk only: the result is the same as without.
    let fine = Project::with_script(FINE).run(&["call", "it", "--explain"]);
    assert_eq!((fine.code, fine.out.as_str()), (0, "fine\n"));
}

/// The line with `_` for each number of milliseconds that was measured.
fn without_times(line: &str) -> String {
    let words = line.split(' ').collect::<Vec<_>>();
    let measured = |n: usize| words.get(n + 1).is_some_and(|next| next.starts_with("ms")) && words[n].contains('.');
    (0..words.len()).map(|n| if measured(n) { "_" } else { words[n] }).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_same_call_costs_the_same_fuel() {
    let script = "\
def run(args):
    words = {}
    for word in fs.read('a.txt').split():
        words[word] = words.get(word, 0) + 1
    cache.set('words', words)
    random(1, 6)
    log(json.encode(cache.get('words')))
    return sorted(words.items())
";
    let project = Project::with_script(script).file("a.txt", "one two three two one two");
    let fuel = || {
        let ran = project.run(&["call", "it", "--json"]);
        assert_eq!(ran.code, 0, "{ran}");
        ran.json()["usage"]["fuel"].as_u64().unwrap()
    };
    let first = fuel();
    assert!(first > 100_000);
    assert_eq!([fuel(), fuel()], [first, first]);
    project.write("a.txt", "one two three two one two four");
    assert_ne!(fuel(), first);
}
