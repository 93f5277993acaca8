//! `harness test`: the cases that artifacts carry, the fakes that they give, and how it is told what came out.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::project::{FINE, Project, Ran};

/// What was printed, with the time of its last line replaced.
#[track_caller]
fn told(ran: &Ran) -> String {
    let (rest, seconds) = ran.out.trim_end().rsplit_once(", ").unwrap_or_else(|| panic!("no summary: {ran}"));
    assert!(seconds.strip_suffix(" s").is_some_and(|time| time.parse::<f64>().is_ok()), "{ran}");
    format!("{rest}, TIME\n")
}

/// That all cases pass.
#[track_caller]
fn passes(project: &Project, cases: usize) {
    let ran = project.run(&["test"]);
    let summary = format!("\n{cases} case{0}, {cases} passed, 0 failed, TIME\n", if cases == 1 { "" } else { "s" });
    assert!(ran.code == 0 && ran.err.is_empty() && told(&ran).ends_with(&summary), "wanted {cases} cases: {ran}");
}

/// A tool with cases, which are lines of YAML. Without cases it begins as `Project::tool` has it.
fn tool(project: Project, name: &str, script: &str, cases: &str) -> Project {
    let script: String = script.lines().map(|line| format!("  {line}\n")).collect();
    let text = format!("---\nscript: |\n{script}tests:\n{cases}---\n# {name}\n");
    project.file(&format!(".harness/tools/{name}.md"), &text)
}

const GREET: &str = r#"---
parameters:
  name: { type: string, required: true }
script: |
  def run(args):
      if args["name"] == "":
          log.warn("nobody")
          return {"error": "a name is needed"}
      return {"text": "hello " + args["name"]}
tests:
  - name: greets by name
    args: { name: ann }
    expect:
      outcome: completed
      result: { text: hello ann }
      content: '{"text":"hello ann"}'
      is_error: false
      error: null
      log: []
      files: {}
  - name: does not greet nobody
    args: { name: "" }
    expect: { result: { error: a name is needed }, log: ["warn: nobody"] }
  - name: wants a name
    expect: { outcome: rejected, is_error: true, result: null }
    contains: { error: name }
---
# greet
"#;

const GUARD: &str = r#"---
event: tool.pre
when: payload["name"] == "greet"
script: |
  def handle(event, payload):
      name = payload["args"]["name"]
      if name == "eve":
          return block("not eve")
      if name == "bob":
          return modify({"args": {"name": "robert"}})
      if name == "dan":
          return block(1 + name)
      return allow()
tests:
  - name: lets others pass
    payload: { name: greet, args: { name: ann } }
    expect: { decision: allow, reason: null, hooks: [guard] }
  - name: blocks eve
    payload: { name: greet, args: { name: eve } }
    expect: { decision: block, reason: not eve }
  - name: uses the long form
    payload: { name: greet, args: { name: bob } }
    expect:
      decision: modify
      payload: { id: call_test, name: greet, arguments: '{"name":"robert"}', args: { name: robert } }
  - name: fails on dan
    payload: { name: greet, args: { name: dan } }
    expect: { decision: error }
    contains: { reason: "`+` not supported for types `int` and `string`" }
  - name: is for one tool
    payload: { name: other, args: { name: eve } }
    expect: { decision: skip, reason: null, hooks: [] }
  - name: and for one event
    event: tool.post
    payload: { name: greet, result: { text: hi } }
    expect:
      decision: skip
      payload: { call_id: call_test, name: greet, content: '{"text":"hi"}', is_error: false, result: { text: hi } }
---
# guard
"#;

fn greeting() -> Project {
    Project::new().file(".harness/tools/greet.md", GREET).file(".harness/hooks/guard.md", GUARD)
}

#[test]
fn cases_that_pass_are_named() {
    let ran = greeting().run(&["test"]);
    let wanted = "\
ok   tool greet: greets by name
ok   tool greet: does not greet nobody
ok   tool greet: wants a name
ok   hook guard: lets others pass
ok   hook guard: blocks eve
ok   hook guard: uses the long form
ok   hook guard: fails on dan
ok   hook guard: is for one tool
ok   hook guard: and for one event
     tool greet: 5 of 5 lines reached
     hook guard: 9 of 9 lines reached
9 cases, 9 passed, 0 failed, TIME
";
    assert_eq!((ran.code, told(&ran).as_str(), ran.err.as_str()), (0, wanted, ""));
}

#[test]
fn a_project_without_cases_passes() {
    let ran = Project::with_script(FINE).run(&["test"]);
    assert_eq!((ran.code, told(&ran).as_str(), ran.err.as_str()), (0, "0 cases, 0 passed, 0 failed, TIME\n", ""));
}

const LIST: &str =
    "def run(args):\n    log('one')\n    log.warn('two')\n    return {'n': 1, 'text': 'abc', 'list': [1, 2, 3]}\n";

#[test]
fn a_case_that_fails_says_what_was_expected_and_where() {
    let cases = "  - name: passes\n    expect: { outcome: completed }\n  - name: \"wrong \\e[31m\\nname\"\n    expect:\n      result: { n: 2, text: abc }\n      log: [\"info: one\", \"warn: two\"]\n    contains: { content: xyz }\n";
    let ran = tool(Project::new(), "it", LIST, cases).run(&["test"]);
    let wanted = r#"ok   tool it: passes
FAIL tool it: wrong \u{1b}[31m\nname
     at .harness/tools/it.md:10:11
     `result` is not as expected on line 12:
       {
     -   "n": 2,
     -   "text": "abc"
     +   "n": 1,
     +   "text": "abc",
     +   "list": [
     +     1,
     +     2,
     +     3
     +   ]
       }
     `content` does not hold what is expected on line 14:
     - xyz
     + {"n":1,"text":"abc","list":[1,2,3]}
     tool it: 4 of 4 lines reached
2 cases, 1 passed, 1 failed, TIME
"#;
    assert_eq!((ran.code, told(&ran).as_str(), ran.err.as_str()), (1, wanted, ""));
}

#[test]
fn contains_wants_a_part_and_expect_the_whole() {
    let each = [
        ("expect", "result: { list: [1, 2, 3], text: abc, n: 1.0 }", true),
        ("expect", "result: { n: 1 }", false),
        ("expect", "result: { n: '1', text: abc, list: [1, 2, 3] }", false),
        ("expect", "log: ['info: one']", false),
        ("contains", "result: { text: b }", true),
        ("contains", "result: { list: [1, 3] }", true),
        ("contains", "log: [one, two]", true),
        ("contains", "content: '\"n\":1'", true),
        ("contains", "result: { list: [3, 1] }", false),
        ("contains", "result: { text: d }", false),
        ("contains", "result: { none: null }", false),
        ("contains", "log: [one, one]", false),
    ];
    let cases: String = each
        .iter()
        .enumerate()
        .map(|(n, (how, what, _))| format!("  - name: c{n}\n    {how}: {{ {what} }}\n"))
        .collect();
    let ran = tool(Project::new(), "it", LIST, &cases).run(&["test", "--json"]);
    assert_eq!(ran.code, 1, "{ran}");
    for ((how, what, passes), case) in each.iter().zip(ran.json()["cases"].as_array().unwrap()) {
        assert_eq!(case["passed"], json!(passes), "{how}: {what}");
    }
}

#[test]
fn files_are_given_and_looked_at() {
    let script =
        "def run(args):\n    fs.write('out/b.txt', fs.read('in/a.txt').upper())\n    return fs.exists('real.txt')\n";
    let project = tool(
        Project::new().file("real.txt", "real"),
        "it",
        script,
        "  - name: writes\n    given: { files: { in/a.txt: a text } }\n    expect: { result: false, files: { in/a.txt: a text, out/b.txt: A TEXT } }\n  - name: the next begins anew\n    expect: { outcome: failed, files: {} }\n    contains: { error: in/a.txt }\n",
    );
    passes(&project, 2);
    assert!(!project.path("out").exists());
}

#[test]
fn files_of_a_case_stay_in_its_folder() {
    let case = |name: &str, path: &str| {
        format!("  - name: {name}\n    given: {{ files: {{ {path}: x }} }}\n    expect: {{ outcome: completed }}\n")
    };
    let project = Project::new();
    let absolute = project.path("absolute");
    let cases = case("above", "../escape") + &case("absolute", absolute.to_str().unwrap()) + &case("inside", "a/../b");
    let temporary = project.path("temporary/deep");
    std::fs::create_dir_all(&temporary).unwrap();
    let project = tool(project, "it", FINE, &cases);
    let output = project.command(&["test"]).env("TMPDIR", &temporary).output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let why = "     cannot make the files of the case: a path led outside of the filesystem\n";
    assert_eq!((output.status.code(), out.matches(why).count()), (Some(1), 2), "{out}");
    assert!(out.contains("ok   tool it: inside\n"), "{out}");
    // Nothing was made beside the folders of the cases, and those are gone.
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
    assert!(!project.path("temporary/escape").exists() && !project.path("escape").exists() && !absolute.exists());
}

#[test]
fn servers_answer_what_a_case_gives_where_the_policy_allows_it() {
    let cases = r#"  - name: an answer
    args: { url: "https://example.com/a" }
    given: { http: [ { url: "https://example.com/a", status: 404, headers: { X-Y: z }, body: none } ] }
    expect: { result: [404, { x-y: z }, none, "https://example.com/a"] }
  - name: by method
    args: { url: "https://example.com/a", method: post }
    given: { http: [ { url: "https://example.com/a" }, { method: post, url: "https://example.com/a", body: posted } ] }
    expect: { result: [200, {}, posted, "https://example.com/a"] }
  - name: no answer
    args: { url: "https://example.com/b" }
    given: { http: [ { url: "https://example.com/a" } ] }
    expect: { outcome: failed, error: "http.request: no answer is given for GET https://example.com/b" }
  - name: not granted
    args: { url: "https://example.org/a" }
    given: { http: [ { url: "https://example.org/a" } ] }
    expect: { outcome: denied, error: "http.request: the host `example.org` is not allowed", is_error: true }
"#;
    let script = "def run(args):\n    a = http.request(args.get('method', 'GET'), args['url'])\n    return [a['status'], a['headers'], a['body'], a['url']]\n";
    passes(&tool(Project::new().policy("network: { allowed_domains: [example.com] }\n"), "it", script, cases), 4);
}

#[test]
fn commands_give_what_a_case_says_where_the_policy_allows_it() {
    let cases = r#"  - name: by arguments
    args: { cmd: git, args: [status] }
    given: { commands: [ { cmd: git, args: [log], stdout: no }, { cmd: git, args: [status], stdout: s, stderr: e, exit_code: 3 } ] }
    contains: { result: { ok: false, stdout: s, stderr: e, exit_code: 3, timed_out: false, cmd: git, args: [status] } }
  - name: whatever the arguments
    args: { cmd: git, args: [push] }
    given: { commands: [ { cmd: git } ] }
    contains: { result: { ok: true, stdout: "", exit_code: 0 } }
  - name: takes too long
    args: { cmd: git, args: [] }
    given: { commands: [ { cmd: git, timed_out: true } ] }
    contains: { result: { ok: false, exit_code: -1, timed_out: true } }
  - name: not given
    args: { cmd: git, args: [--version] }
    expect: { outcome: failed, error: "exec.run: cannot start the command: no result is given for `git --version`" }
  - name: not granted
    args: { cmd: touch, args: [made] }
    given: { commands: [ { cmd: touch } ] }
    expect: { outcome: denied, error: "exec.run: the command `touch made` is not allowed" }
"#;
    let script = "def run(args):\n    return exec.run(args['cmd'], args['args'])\n";
    passes(&tool(Project::new().policy("sandbox: { exec: { allow: [git] } }\n"), "it", script, cases), 5);
}

#[test]
fn the_clock_stands_and_random_numbers_have_a_seed() {
    let script = "def run(args):\n    before = time.now()\n    sleep(3600000)\n    return [before, time.now(), random(0, 1000000), uuid.v4()]\n";
    let seeded = |case: &str, seed: u64| {
        let cases =
            format!("  - name: it\n    given: {{ now: {case}, random: {seed} }}\n    expect: {{ result: null }}\n");
        let ran = tool(Project::new(), "it", script, &cases).run(&["test", "--json"]);
        let found = ran.json()["cases"][0]["differences"][0]["found"].clone();
        assert!(found.as_array().is_some_and(|found| found.len() == 4), "{ran}");
        found
    };
    let (a, again, other) = (seeded("2026-01-02T03:04:05Z", 7), seeded("100", 7), seeded("100", 8));
    assert_eq!((&a[0], &a[1]), (&json!("2026-01-02T03:04:05Z"), &json!("2026-01-02T03:04:05Z")));
    assert_eq!((&again[0], &again[1]), (&json!("1970-01-01T00:01:40Z"), &json!("1970-01-01T00:01:40Z")));
    assert_eq!((&a[2], &a[3]), (&again[2], &again[3]));
    assert_ne!((&a[2], &a[3]), (&other[2], &other[3]));
}

#[test]
fn variables_are_those_of_the_case() {
    let cases = "  - name: given\n    args: { name: HARNESS_TEST_VARIABLE }\n    given: { env: { HARNESS_TEST_VARIABLE: given } }\n    expect: { result: given }\n  - name: not that of the machine\n    args: { name: HARNESS_TEST_VARIABLE }\n    expect: { result: '' }\n  - name: not granted\n    args: { name: OTHER }\n    given: { env: { OTHER: given } }\n    expect: { outcome: denied, error: 'env: the variable `OTHER` is not granted' }\n";
    let project = Project::new().policy("sandbox: { env: [HARNESS_TEST_VARIABLE] }\n");
    passes(&tool(project, "it", "def run(args):\n    return env(args['name'])\n", cases), 3);
}

/// Of a hook as well, and of each case alone.
#[test]
fn cache_and_metrics_are_given_and_looked_at() {
    let body = "cache.set('seen', cache.get('seen', []) + [1])\nmetrics.incr('calls')\n";
    let cases = "  - name: given\n    given: { cache: { seen: [{ a: b }], k: 5 }, metrics: { calls: 2, gauge: 0.5 } }\n    expect: { cache: { seen: [{ a: b }, 1], k: 5 }, metrics: { calls: 3, gauge: 0.5 } }\n  - name: not given\n    expect: { cache: { seen: [1] }, metrics: { calls: 1 } }\n";
    let lines: String = body.lines().map(|line| format!("    {line}\n")).collect();
    let project = tool(Project::new(), "it", &format!("def run(args):\n{lines}    return 1\n"), cases);
    let payloads = cases.replace("    given:", "    payload: { n: 1 }\n    given:");
    passes(&project.with_handle("h", "custom.x", &format!("tests:\n{payloads}"), &format!("{body}return allow()")), 4);
}

#[test]
fn the_other_hooks_run_where_a_case_says_so() {
    let case = |name: &str, hooks: bool, rest: &str| {
        format!("  - name: {name}\n    given: {{ hooks: {hooks} }}\n    {rest}\n")
    };
    let of_tool = case("alone", false, "expect: { result: ran, hooks: [], log: ['info: run'] }")
        + &case(
            "with hooks",
            true,
            "expect: { result: changed, hooks: [first, second, after], log: ['info: first', 'info: second', 'info: run'] }",
        )
        + &case(
            "blocked",
            true,
            "args: { stop: 1 }\n    expect: { outcome: denied, reason: stopped, hooks: [first, second], error: 'blocked by hook \"second\": stopped', is_error: true }",
        );
    let of_last =
        case("alone", false, "payload: { args: { stop: 1 } }\n    expect: { decision: allow, hooks: [third] }")
            + &case(
                "with hooks",
                true,
                "payload: { args: { stop: 1 } }\n    expect: { decision: not reached, hooks: [first, second] }",
            )
            + &case("sees what they changed", true, "payload: {}\n    contains: { payload: { args: { first: 1 } } }");
    let project = tool(Project::new(), "it", "def run(args):\n    log('run')\n    return 'ran'\n", &of_tool)
        .with_handle(
            "second",
            "tool.pre",
            "priority: 2\n",
            "log('second')\nreturn block('stopped') if 'stop' in payload['args'] else allow()",
        )
        .with_handle(
            "first",
            "tool.pre",
            "priority: 1\n",
            "log('first')\nreturn modify({'args': payload['args'] | {'first': 1}})",
        )
        .with_handle(
            "third",
            "tool.pre",
            &format!("priority: 3\nwhen: payload['args'].get('stop')\ntests:\n{of_last}"),
            "return allow()",
        )
        .with_handle("after", "tool.post", "", "return modify({'result': 'changed'})");
    passes(&project, 6);
}

#[test]
fn a_case_can_expect_a_limit() {
    let project = Project::new().policy("sandbox: { limits: { fuel: 20000000 } }\n");
    let script = "def run(args):\n    for n in range(1000000000):\n        pass\n";
    let cases = "  - name: ends\n    expect: { outcome: limited, is_error: true }\n    contains: { error: over the limit `fuel` }\n";
    passes(&tool(project, "it", script, cases), 1);
}

#[test]
fn cases_are_run_by_the_names_of_their_artifacts() {
    let project = greeting();
    let only = |names: &[&str]| {
        let ran = project.run(&[&["test", "--json"], names].concat());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran}");
        let report = ran.json();
        let of: Vec<&str> =
            report["cases"].as_array().unwrap().iter().map(|c| c["artifact"].as_str().unwrap()).collect();
        (of.iter().filter(|name| **name == "greet").count(), of.iter().filter(|name| **name == "guard").count())
    };
    assert_eq!((only(&[]), only(&["greet"]), only(&["guard"])), ((3, 6), (3, 0), (0, 6)));
    assert_eq!(only(&["guard", "greet", "greet"]), (3, 6));
    let unknown = |name: &str, hint: &str| {
        let ran = project.run(&["test", "greet", name]);
        let wanted = format!("error: there is no tool or hook `{name}`\n\nhint: {hint}\n");
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (2, "", wanted.as_str()));
    };
    unknown("gard", "did you mean `guard`?");
    unknown("something_else", "`harness inspect` lists all");
}

/// Three cases of one tool, of which one passes, one fails and one cannot be run, and one of a hook.
fn mixed() -> Project {
    let cases = "  - name: good\n    expect: { result: '<a> & \"b\"' }\n  - name: 'bad <&\">'\n    expect: { result: \"<&>\\e]]>\" }\n  - name: unmade\n    given: { files: { ../x: '' } }\n    expect: { result: 1 }\n";
    tool(Project::new(), "it", "def run(args):\n    return '<a> & \"b\"'\n", cases).with_handle(
        "h",
        "custom.x",
        "tests:\n  - { name: lets pass, payload: {}, expect: { decision: allow } }\n",
        "return allow()",
    )
}

#[test]
fn a_program_is_told_the_same() {
    let ran = mixed().run(&["test", "--json"]);
    let mut report = ran.json();
    for case in report["cases"].as_array_mut().unwrap() {
        assert!(case.as_object_mut().unwrap().remove("wall_us").unwrap().is_u64(), "{ran}");
    }
    let case = |kind: &str, artifact: &str, case: &str, file: &str, line: u32, differences: Json, error: Json| {
        let passed = differences == json!([]) && error.is_null();
        json!({"kind": kind, "artifact": artifact, "case": case, "file": file, "line": line, "passed": passed, "differences": differences, "error": error})
    };
    let different =
        json!([{"aspect": "result", "whole": true, "expected": "<&>\u{1b}]]>", "found": "<a> & \"b\"", "line": 9}]);
    let (it, h) = (".harness/tools/it.md", ".harness/hooks/h.md");
    let unmade = json!("cannot make the files of the case: a path led outside of the filesystem");
    let wanted = json!({
        "passed": false,
        "cases": [
            case("tool", "it", "good", it, 6, json!([]), Json::Null),
            case("tool", "it", "bad <&\">", it, 8, different, Json::Null),
            case("tool", "it", "unmade", it, 10, json!([]), unmade),
            case("hook", "h", "lets pass", h, 4, json!([]), Json::Null),
        ],
        "coverage": [
            {"kind": "hook", "artifact": "h", "lines": 2, "reached": 2, "missed": []},
            {"kind": "tool", "artifact": "it", "lines": 2, "reached": 2, "missed": []},
        ],
    });
    assert_eq!((ran.code, report, ran.err.as_str()), (1, wanted, ""));
}

#[test]
fn results_are_written_as_junit_xml() {
    let project = mixed();
    let ran = project.run(&["test", "--junit", "report.xml"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{ran}");
    let mut xml = std::fs::read_to_string(project.path("report.xml")).unwrap();
    // Times differ from run to run.
    for piece in xml.clone().split(" time=\"").skip(1) {
        let time = piece.split('"').next().unwrap();
        assert!(time.parse::<f64>().is_ok(), "{xml}");
        xml = xml.replacen(&format!(" time=\"{time}\""), "", 1);
    }
    let wanted = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="harness test" tests="4" failures="1" errors="1">
    <testsuite name="tool it" tests="3" disabled="0" errors="1" failures="1">
        <testcase name="good" classname="tool it">
        </testcase>
        <testcase name="bad &lt;&amp;&quot;&gt;" classname="tool it">
            <failure message="at .harness/tools/it.md:8:11">     `result` is not as expected on line 9:
     - &lt;&amp;&gt;\u{1b}]]&gt;
     + &lt;a&gt; &amp; &quot;b&quot;
</failure>
        </testcase>
        <testcase name="unmade" classname="tool it">
            <error message="cannot make the files of the case: a path led outside of the filesystem"/>
        </testcase>
    </testsuite>
    <testsuite name="hook h" tests="1" disabled="0" errors="0" failures="0">
        <testcase name="lets pass" classname="hook h">
        </testcase>
    </testsuite>
</testsuites>
"#;
    assert_eq!(xml, wanted);
    // Where it cannot be written, that is an error, and not a failed case.
    let ran = project.run(&["test", "--junit", "no/folder/report.xml"]);
    ran.says(2, "error: cannot write `no/folder/report.xml`: No such file or directory");
}

#[test]
fn lines_that_no_case_reaches_are_named() {
    let script = "def helper(x):\n    return x\n\ndef never():\n    log('a')\n    return 1\n\ndef run(args):\n    if args.get('x'):\n        return helper(1)\n    if args.get('y'):\n        return 2\n    return [\n        1,\n        2,\n    ]\n";
    let case =
        |n: u32, args: &str| format!("  - name: c{n}\n    args: {{ {args} }}\n    expect: {{ outcome: completed }}\n");
    let project = tool(Project::new(), "it", script, &case(1, "x: 1")).tool("without", "", FINE);
    let line = |ran: &Ran| ran.out.lines().find(|line| line.contains("reached")).map(str::to_owned);
    let ran = project.run(&["test"]);
    assert_eq!(line(&ran).as_deref(), Some("     tool it: 6 of 11 lines reached, not 7-8, 13-15"), "{ran}");
    // Each case adds to what the others reached; a tool without cases is not told of.
    let project = tool(project, "it", script, &(case(1, "x: 1") + &case(2, "")));
    let ran = project.run(&["test"]);
    assert_eq!(line(&ran).as_deref(), Some("     tool it: 8 of 11 lines reached, not 7-8, 14"), "{ran}");
    assert!(!ran.out.contains("without"), "{ran}");
}

/// The binary with `--watch`, until it is dropped.
struct Watching {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
}

impl Watching {
    fn of(project: &Project) -> Self {
        let mut command = project.command(&["test", "--watch"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
        Self { child, out, err }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(stream).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
    });
    lines
}

/// What comes up to a line that begins so. A file that is read half written may come before it.
#[track_caller]
fn until(lines: &Receiver<String>, begins: &str) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.last().is_none_or(|line: &String| !line.starts_with(begins)) {
        match lines.recv_timeout(Duration::from_secs(60)) {
            Ok(line) => seen.push(line),
            Err(error) => panic!("{error}: no line begins with `{begins}`: {seen:#?}"),
        }
    }
    seen
}

#[test]
fn what_is_watched_is_run_again_when_it_changes() {
    let project = greeting();
    let watching = Watching::of(&project);
    until(&watching.out, "9 cases, 9 passed, 0 failed, ");
    until(&watching.err, "watching for changes");

    project.write(".harness/tools/greet.md", &GREET.replace("\"hello \"", "\"hullo \""));
    // Only the cases that the change can touch.
    let seen = until(&watching.out, "3 cases, 2 passed, 1 failed, ");
    assert!(seen.iter().any(|line| line == "     +   \"text\": \"hullo ann\""), "{seen:#?}");

    // What cannot be read is told, and nothing is run.
    project.write(".harness/tools/greet.md", &GREET.replace("parameters:", "parameters: ["));
    until(&watching.err, "error: parse tool greet.md: ");

    project.write(".harness/tools/greet.md", GREET);
    let seen = until(&watching.out, "3 cases, ");
    assert!(seen.last().unwrap().starts_with("3 cases, 3 passed, 0 failed, "), "{seen:#?}");

    // The policy touches all.
    project.write(".harness/harness.md", "---\nsandbox: { services: [cache, modify] }\n---\n");
    until(&watching.out, "9 cases, 9 passed, 0 failed, ");
}

/// A policy beside the folder of artifacts touches all cases too.
#[test]
fn a_policy_beside_the_artifacts_is_watched() {
    let project = greeting().file("harness.md", "---\n---\n");
    let watching = Watching::of(&project);
    until(&watching.out, "9 cases, 9 passed, 0 failed, ");
    until(&watching.err, "watching for changes");
    project.write("harness.md", "---\nsandbox: { services: [cache, modify] }\n---\n");
    until(&watching.out, "9 cases, 9 passed, 0 failed, ");
}

/// What a case is granted instead of what the policy grants: for the case alone, and not beyond the tool's own word.
#[test]
fn a_case_may_be_granted_what_the_policy_does_not() {
    let script = "def run(args):\n    return exec.run('ls')['stdout'] + http.get('https://a.example/')['body']\n";
    let world = "commands: [ { cmd: ls, stdout: a } ], http: [ { url: 'https://a.example/', body: b } ]";
    let granted = "granted: { exec: { allow: [ls] }, network: [a.example] }, ";
    let case = |granted: &str, expect: &str| {
        format!("  - name: case\n    given: {{ {granted}{world} }}\n    expect: {{ {expect} }}\n")
    };
    passes(&tool(Project::new(), "it", script, &case(granted, "result: ab")), 1);
    passes(&tool(Project::new(), "it", script, &case("", "outcome: denied")), 1);
    let only = "granted: { exec: { allow: [ls] } }, ";
    passes(&tool(Project::new(), "it", script, &case(only, "outcome: denied")), 1);
    let project = tool(Project::new(), "it", script, &case(granted, "result: ab"));
    project.run(&["call", "it"]).says(3, "denied");
    let narrowed = tool(Project::new(), "it", script, &case(granted, "outcome: denied"));
    let text = std::fs::read_to_string(narrowed.path(".harness/tools/it.md")).unwrap();
    narrowed.write(".harness/tools/it.md", &text.replace("script:", "capabilities: { exec: {} }\nscript:"));
    passes(&narrowed, 1);
    let limits = case("granted: { limits: { fuel: 5 } }, ", "result: ab");
    tool(Project::new(), "it", script, &limits).run(&["test"]).says(2, "`tests[0].given.granted` has limits");
}

#[test]
fn what_cannot_be_read_at_first_is_watched_until_it_is_mended() {
    let project = greeting().file(".harness/hooks/guard.md", "no front matter\n");
    let watching = Watching::of(&project);
    until(&watching.err, "error: parse hook guard.md: ");
    until(&watching.err, "watching for changes");
    project.write(".harness/hooks/guard.md", GUARD);
    until(&watching.out, "9 cases, 9 passed, 0 failed, ");
    until(&watching.err, "watching for changes");
    project.write(".harness/hooks/guard.md", &GUARD.replace("reason: not eve", "reason: not her"));
    until(&watching.out, "6 cases, 5 passed, 1 failed, ");
    // And one result is for a person.
    project.run(&["test", "--watch", "--json"]).says(2, "cannot be used with");
}

/// What is written out in an agent's file has cases as any other, and sees the project with itself in it.
#[test]
fn an_agents_own_tools_and_hooks_have_cases_too() {
    let own = "---\ntools:\n  - name: double\n    parameters: { n: { type: number, required: true } }\n    script: |\n      def run(args):\n          return args[\"n\"] * 2\n    tests:\n      - { name: doubles, args: { n: 2 }, expect: { result: 4 } }\n      - { name: is wrong, args: { n: 2 }, expect: { result: 5 } }\nhooks:\n  - handler: stops\n    event: tool.pre\n    script: |\n      def handle(event, payload):\n          return block(\"no\")\n    tests:\n      - { name: blocks, payload: {}, expect: { decision: block, reason: \"no\" } }\n---\nYou count.\n";
    let project = Project::with_script(FINE).file(".harness/agents/counter.md", own);
    let ran = project.run(&["test"]);
    assert_eq!(ran.code, 1, "{ran}");
    insta::assert_snapshot!(told(&ran), @"
    ok   tool counter/double: doubles
    FAIL tool counter/double: is wrong
         at .harness/agents/counter.md:10:17
         `result` is not as expected on line 10:
         - 5
         + 4
    ok   hook counter/stops: blocks
         tool counter/double: 2 of 2 lines reached
         hook counter/stops: 2 of 2 lines reached
    3 cases, 2 passed, 1 failed, TIME
    ");
    // Nothing else gets them.
    project.run(&["call", "double", "n=2"]).says(2, "there is no tool `double`");
    let ran = project.run(&["test", "counter/stops"]);
    assert!(ran.code == 0 && ran.out.contains("\n1 case, 1 passed, 0 failed, "), "{ran}");
}

#[test]
fn a_script_that_cannot_be_loaded_fails_without_a_case() {
    let project = Project::new()
        .with_handle("guard", "tool.pre", "", "return allow(")
        .file(".harness/tools/it.md", "---\nscript: |\n  def walk(args):\n      return 1\n---\nIt.\n");
    let ran = project.run(&["test"]);
    assert_eq!(ran.code, 1, "{ran}");
    insta::assert_snapshot!(told(&ran), @"
    FAIL tool it: its script is loaded
         at .harness/tools/it.md:1:1
         its script cannot be loaded: the script must define a function `run(args)` (.harness/tools/it.md:3:3)
    FAIL hook guard: its script is loaded
         at .harness/hooks/guard.md:1:1
         its script cannot be loaded: Parse error: unexpected new line, expected expression (.harness/hooks/guard.md:5:3)
    2 cases, 0 passed, 2 failed, TIME
    ");
    let ran = project.run(&["test", "--json"]);
    assert_eq!((ran.code, &ran.json()["passed"]), (1, &json!(false)));
}

#[test]
fn a_guard_without_cases_is_warned_of() {
    let case =
        |decision: &str| format!("  - {{ name: {decision}, payload: {{}}, expect: {{ decision: {decision} }} }}\n");
    let guard = |tests: &str, body: &str| {
        let project = Project::new().with_handle("guard", "tool.pre", tests, body);
        assert_eq!(project.run(&["validate"]).code, 0);
        let ran = project.run(&["validate", "--strict"]);
        assert_eq!(ran.code == 0, ran.err.is_empty(), "{ran}");
        ran.err.lines().next().unwrap_or_default().to_owned()
    };
    let blocks = "return block('no') if payload['name'] == 'x' else allow()";
    let warned = |what: &str| format!("warning: hook \"guard\" has {what}");
    assert_eq!(guard("", blocks), warned("neither a case that it blocks nor one that it allows"));
    assert_eq!(guard(&format!("tests:\n{}", case("block")), blocks), warned("no case that it allows"));
    assert_eq!(guard(&format!("tests:\n{}", case("allow")), blocks), warned("no case that it blocks"));
    assert_eq!(guard(&format!("tests:\n{}{}", case("allow"), case("block")), blocks), "");
    // One that is written out in an agent's file as well.
    let own = "---\nhooks:\n  - handler: stops\n    event: tool.pre\n    script: |\n      def handle(event, payload):\n          return block('no')\n---\nYou.\n";
    Project::new()
        .file(".harness/agents/a.md", own)
        .run(&["validate", "--strict"])
        .says(2, "warning: hook \"stops\" has neither a case that it blocks nor one that it allows");
    // One that only looks on need not.
    assert_eq!(guard("", "log(event)\nreturn allow()"), "");
}

/// Names and cases may be patterns; `-q` leaves out what passed.
#[test]
fn names_and_cases_are_chosen_by_patterns() {
    let cases = "  - { name: gives one, expect: { result: 1 } }\n  - { name: gives two, expect: { result: 2 } }\n";
    let project = tool(Project::new().policy(""), "read_a", "def run(args):\n    return 1", cases);
    let project = tool(project, "read_b", "def run(args):\n    return 2", cases);
    let project = tool(project, "write_c", "def run(args):\n    return 1", cases);
    let names = |arguments: &[&str]| -> Vec<String> {
        let ran = project.run(&[&["test", "--json"], arguments].concat());
        let json = ran.json();
        let cases = json["cases"].as_array().unwrap().iter();
        cases
            .map(|case| format!("{}: {}", case["artifact"].as_str().unwrap(), case["case"].as_str().unwrap()))
            .collect()
    };
    assert_eq!(names(&[]).len(), 6);
    assert_eq!(names(&["read_*", "--case", "* two"]), ["read_a: gives two", "read_b: gives two"]);
    assert_eq!(names(&["write_c", "--case", "gives one", "--case", "*two"]).len(), 2);
    project.run(&["test", "reed_*"]).says(2, "there is no tool or hook `reed_*`");
    project.run(&["test", "--case", "nothing"]).says(2, "no case has a name that matches `nothing`");
    let quiet = project.run(&["test", "-q", "read_a"]);
    let printed = told(&quiet);
    let begins = "FAIL tool read_a: gives two\n     at .harness/tools/read_a.md:7:";
    let ends = "\n     - 2\n     + 1\n2 cases, 1 passed, 1 failed, TIME\n";
    assert!(quiet.code == 1 && printed.starts_with(begins) && printed.ends_with(ends), "{quiet}");
    assert!(!printed.contains("ok  ") && !printed.contains("lines reached"), "{quiet}");
}

#[test]
fn why_a_hook_failed_is_shown_and_a_result_has_its_blocks() {
    let hook = |line: &str, decision: &str| {
        format!(
            "---\nevent: tool.post\nscript: |\n  def handle(event, payload):\n      {line}\ntests:\n  - name: passes\n    payload: {{ content: x }}\n    expect: {{ decision: {decision}, payload: {{ call_id: call_test, name: test, content: x, is_error: false, result: x }} }}\n---\n"
        )
    };
    // As in a real call: the key is there, and None where the result is no content.
    let line = "return block('no') if payload['blocks'] != None else allow()";
    let project = Project::new().file(".harness/hooks/h.md", &hook(line, "allow"));
    passes(&project, 1);
    project.write(".harness/hooks/h.md", &hook("return payload['nothing']", "allow"));
    let ran = project.run(&["test"]);
    assert!(ran.code == 1 && ran.out.contains("     - allow\n     + error\n"), "{ran}");
    assert!(ran.out.contains("     it failed: ") && ran.out.contains("nothing"), "{ran}");
    let json = project.run(&["test", "--json"]).json();
    assert!(json["cases"][0]["error"].as_str().is_some_and(|why| why.contains("nothing")), "{json}");
    assert!(project.run(&["test", "--junit", "-"]).out.contains("it failed: "));
}
