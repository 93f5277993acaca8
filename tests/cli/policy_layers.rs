//! The layers above and below the project's own: the host policy and what a call is narrowed by. Each takes away, names
//! itself where it does, and never gives.

use insta::assert_snapshot;
use serde_json::json;

use crate::project::{FINE, Project, Ran};

const READ: &str = "def run(args):\n    return fs.read('notes/a.txt')\n";

fn reading() -> Project {
    Project::with_script(READ).file("notes/a.txt", "a note")
}

/// The tool under a host policy, which is written beside the project's folder.
fn within(project: &Project, machine: &str, arguments: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.yaml");
    std::fs::write(&file, machine).unwrap();
    let mut ran = project.run(&[&["--policy", file.to_str().unwrap()], arguments].concat());
    ran.err = ran.err.replace(file.to_str().unwrap(), "[machine]");
    ran.out = ran.out.replace(file.to_str().unwrap(), "[machine]");
    ran
}

#[test]
fn the_machine_takes_away_and_says_so() {
    let project = reading();
    within(&project, "sandbox: { fs: { read: [notes] } }\n", &["call", "it"]).gives("a note");
    assert_snapshot!(within(&project, "sandbox: { fs: { read: [docs] } }\n", &["call", "it"]), @"
    exit 3
    --- stdout
    --- stderr
    error: tool `it` was denied: fs.read: reading `notes/a.txt` is not granted: nothing in `sandbox.fs.read` in `[machine]:1:24` covers it
     --> .harness/tools/it.md:4:14
      |
    4 |       return fs.read('notes/a.txt')
      |              ^
      |
      = hint: add `notes/a.txt` to `sandbox.fs.read` in `[machine]:1:24`

    calls, outermost first:
      .harness/tools/it.md:4:14 in run
      .harness/tools/it.md:4:14 in fs.read
    ");
    // What it does not speak of is the project's to say.
    within(&project, "sandbox: { env: [] }\n", &["call", "it"]).gives("a note");
    within(&project, "{}\n", &["call", "it"]).gives("a note");
}

#[test]
fn the_machine_gives_nothing() {
    let project = reading().policy("sandbox: { fs: { read: [docs] }, limits: { output_bytes: 256 } }\n");
    let wide =
        "sandbox: { fs: { read: ['.'], write: ['.'] }, limits: { output_bytes: 1000 } }\nmeta: { enabled: true }\n";
    within(&project, wide, &["call", "it"])
        .says(3, "nothing in `sandbox.fs.read` in `.harness/harness.md:2:24` covers it");
    let long = Project::with_script("def run(args):\n    return 'x' * 2000\n")
        .policy("sandbox: { limits: { output_bytes: 256 } }\n");
    assert_eq!(within(&long, wide, &["call", "it"]).out.trim_end().len(), 256);
    // Nor to what is a third party's.
    let plugin = Project::new()
        .file(".harness/plugins/p/tools/it.md", &format!("---\nscript: |\n{}---\n", indented(READ)))
        .file("notes/a.txt", "a note");
    let sources = "sandbox: { sources: { plugins/p: { fs: { read: ['.'] } } } }\n";
    within(&plugin, sources, &["call", "it"]).says(3, "nothing in `sandbox.sources.plugins/p.fs.read`");
    plugin.write(".harness/harness.md", &format!("---\n{sources}---\n"));
    within(&plugin, sources, &["call", "it"]).gives("a note");
    within(&plugin, "sandbox: { sources: { plugins: { fs: {} } } }\n", &["call", "it"])
        .says(3, "nothing in `sandbox.sources.plugins.fs.read` in `[machine]:1:38` covers it");
}

fn indented(script: &str) -> String {
    script.lines().map(|line| format!("  {line}\n")).collect()
}

#[test]
fn names_of_tools_need_both() {
    let project = Project::new().tool("it", "", FINE).tool("other", "", FINE);
    let only = "tools_policy: { allow: [it] }\n";
    within(&project, only, &["call", "it"]).gives("fine");
    assert_snapshot!(within(&project, only, &["call", "other"]), @"
    exit 3
    --- stdout
    --- stderr
    error: the tool `other` is not allowed

    hint: add `other` to `tools_policy.allow` in `[machine]:1:24`
    ");
    project.write(".harness/harness.md", "---\ntools_policy: { deny: [it] }\n---\n");
    within(&project, only, &["call", "it"]).says(3, "the tool `it` is denied by `it`");
    // A pattern for another project's tools is no mistake here.
    let ran = within(&project, "tools_policy: { deny: [deploy_*] }\n", &["call", "other"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran}");
}

#[test]
fn the_stricter_answer_to_a_failing_hook_counts() {
    let failing = "sandbox: { hooks: { on_error: allow } }\n";
    let project = Project::new()
        .tool("it", "", FINE)
        .with_handle("guard", "tool.pre", "", "return fail('broken')")
        .policy(failing);
    assert_eq!(within(&project, "{}\n", &["call", "it"]).code, 0);
    within(&project, "sandbox: { hooks: { strict: true } }\n", &["call", "it"]).says(3, "blocked by hook \"guard\"");
    within(&project, "sandbox: { hooks: { named: { other: block }, on_error: allow } }\n", &["call", "it"])
        .says(0, "the hook failed");
    within(&project, "sandbox: { hooks: { named: { guard: block }, on_error: allow } }\n", &["call", "it"])
        .says(3, "blocked by hook \"guard\"");
    // A machine that is content with less changes nothing.
    project.write(".harness/harness.md", "---\n---\n");
    within(&project, failing, &["call", "it"]).says(3, "blocked by hook \"guard\"");
}

#[test]
fn what_a_run_may_add_is_the_least_of_both() {
    let script = "def run(args):\n    meta.register_tool('a', 'A.', {}, 'def run(args):\\n    return 1\\n')\n    meta.register_tool('b', 'B.', {}, 'def run(args):\\n    return 1\\n')\n    return 'added'\n";
    let project = Project::with_script(script).policy("meta: { enabled: true }\n");
    within(&project, "meta: { enabled: true, max_tools: 2 }\n", &["call", "it"]).gives("added");
    let ran = within(&project, "meta: { enabled: true, max_tools: 1 }\n", &["call", "it"]);
    assert!(ran.code == 1 && ran.err.contains('1'), "{ran}");
    // Left out, `enabled` is false, as it is in a project.
    within(&project, "meta: { max_tools: 2 }\n", &["call", "it"]).says(3, "`meta` is not enabled");
    project.write(".harness/harness.md", "---\n---\n");
    within(&project, "meta: { enabled: true }\n", &["call", "it"]).says(3, "`meta` is not enabled");
}

#[test]
fn a_record_that_the_machine_wants_is_kept() {
    let project = reading().policy("sandbox: { audit: false }\n");
    within(&project, "{}\n", &["call", "it"]).gives("a note");
    assert!(!project.path(".harness/audit").exists());
    within(&project, "sandbox: { audit: true }\n", &["call", "it"]).gives("a note");
    let shown = project.run(&["audit", "show", "--json"]).json();
    let layers = shown["grant"]["layers"].as_array().unwrap();
    assert!(layers[0].as_str().unwrap().starts_with("sandbox in /") && layers[1] == "sandbox", "{shown}");
    assert!(shown["grant"]["machine"].is_string(), "{shown}");
    within(&project, "sandbox: { audit: false }\n", &["validate"]).says(0, "a host policy can only narrow");
}

#[test]
fn a_policy_that_cannot_be_used_stops_everything() {
    let project = reading();
    for (machine, says) in [
        ("sandbox: { fs: { raed: [docs] } }\n", "unknown key `sandbox.fs.raed`"),
        ("sandbox:\n  fs: { read: ['../x'] }\n", "--> [machine]:2:16"),
        ("sandbox: [\n", "--> [machine]:"),
        ("a: &x 1\n", "--> [machine]:"),
        ("", "error: `[machine]` is empty"),
        ("- a\n", "error: "),
        ("delegation: { max_depth: 1 }\n", "unknown key `delegation`"),
        ("sandbox: { secrets: {} }\n", "unknown key `sandbox.secrets`"),
        ("tools: []\n", "unknown key `tools`"),
    ] {
        for command in [&["call", "it"][..], &["inspect"], &["validate"], &["fire", "session.start"], &["tools"]] {
            let ran = within(&project, machine, command);
            ran.says(2, says);
            assert!(!ran.out.contains("a note"), "{ran}");
        }
    }
    assert_snapshot!(project.run(&["--policy", "none.yaml", "call", "it"]), @"
    exit 2
    --- stdout
    --- stderr
    error: cannot read the host policy `none.yaml`: No such file or directory (os error 2)
    ");
    assert_snapshot!(project.run(&["--policy", "notes", "call", "it"]), @"
    exit 2
    --- stdout
    --- stderr
    error: cannot read the host policy `notes`: not a regular file
    ");
    project.run(&["call", "it"]).gives("a note");
}

/// Where a project keeps the file in its own folder, no script reads or writes it, by whichever name.
#[test]
fn no_script_touches_the_policy_that_it_is_within() {
    let script =
        "def run(args):\n    return fs.write(args['path'], '{}') if args.get('write') else fs.read(args['path'])\n";
    let project = Project::with_script(script).file("ops/real.yaml", "{}\n").file("ops/other.yaml", "{}\n");
    std::os::unix::fs::symlink("ops/real.yaml", project.path("policy.yaml")).unwrap();
    std::os::unix::fs::symlink("ops", project.path("linked")).unwrap();
    for path in ["policy.yaml", "ops/real.yaml", "linked/real.yaml", "./ops//real.yaml"] {
        for write in [true, false] {
            let arguments = json!({"path": path, "write": write}).to_string();
            let call = |policy: &[&str]| project.run(&[policy, &["call", "it", "--args", &arguments]].concat());
            call(&["--policy", "policy.yaml"]).says(3, "is not allowed: `");
            if !write {
                call(&[]).gives("{}");
            }
        }
    }
    let removes = Project::with_script("def run(args):\n    fs.remove('policy.yaml')\n").file("policy.yaml", "{}\n");
    removes.run(&["--policy", "policy.yaml", "call", "it"]).says(3, "writing `policy.yaml` is not allowed");
    removes.run(&["call", "it"]).gives("null");
}

#[test]
fn a_call_is_narrowed_by_its_caller() {
    let project = reading();
    project.run(&["call", "it", "--within", "fs: { read: [notes] }"]).gives("a note");
    assert_snapshot!(project.run(&["call", "it", "--within", "fs: { read: [docs] }"]), @"
    exit 3
    --- stdout
    --- stderr
    error: tool `it` was denied: fs.read: reading `notes/a.txt` is not granted: nothing in `fs.read` in `--within:1:13` covers it
     --> .harness/tools/it.md:4:14
      |
    4 |       return fs.read('notes/a.txt')
      |              ^
      |
      = hint: add `notes/a.txt` to `fs.read` in `--within:1:13`

    calls, outermost first:
      .harness/tools/it.md:4:14 in run
      .harness/tools/it.md:4:14 in fs.read
    ");
    project.run(&["call", "it", "--within", "limits: { host_calls: 1 }"]).gives("a note");
    // From a file, and never more than the policy.
    project.write("rules.yaml", "fs: { read: ['.'] }\nenv: [HARNESS_TEST_VARIABLE]\n");
    project.run(&["call", "it", "--within", "@rules.yaml"]).gives("a note");
    let variable = Project::with_script("def run(args):\n    return env('HARNESS_TEST_VARIABLE')\n");
    variable.run(&["call", "it", "--within", "env: [HARNESS_TEST_VARIABLE]"]).says(3, "is not granted");
    assert_snapshot!(project.run(&["call", "it", "--within", "fs: { raed: [docs] }"]), @"
    exit 2
    --- stdout
    --- stderr
    error: unknown key `fs.raed`
     --> --within:1:7
      |
    1 | fs: { raed: [docs] }
      |       ^^^^
      |
      = hint: did you mean `read`?
    ");
    project.run(&["call", "it", "--within", "@none.yaml"]).says(2, "cannot read `none.yaml`");
}

/// What a tool asks for is what it gets, up to what a line of the policy says; who cuts it is told before any call.
#[test]
fn the_time_that_a_tool_asks_for() {
    let limit = |policy: &str, own: &str, path: &str| {
        let project = Project::new()
            .policy(policy)
            .file(path, &format!("---\n{own}script: |\n  def run(args):\n      return 1\n---\nWaits.\n"));
        let shown = project.run(&["policy", "show", "it"]);
        let line = shown.out.lines().find(|line| line.contains("timeout_ms:")).unwrap_or_default().trim().to_owned();
        let told = project.run(&["validate"]);
        let warned: Vec<String> = told
            .err
            .lines()
            .filter(|line| line.contains("asks for") || line.contains("ask for"))
            .map(|line| line.trim().to_owned())
            .collect();
        assert_eq!(told.code, 0, "{told}");
        (line, warned.join("\n"))
    };
    let (mine, plugin) = (".harness/tools/it.md", ".harness/plugins/acme/tools/it.md");
    let silent = "sandbox: { audit: false }\n";
    let fits = |line: &str| (line.to_owned(), String::new());
    assert_eq!(limit(silent, "", mine), fits("timeout_ms: 30000 ms, the default"));
    assert_eq!(limit(silent, "timeout_ms: 0\n", mine), fits("timeout_ms: 30000 ms, the default"));
    assert_eq!(
        limit(silent, "timeout_ms: 120000\n", mine),
        fits("timeout_ms: 120000 ms, `timeout_ms` in `.harness/tools/it.md:2:13`")
    );
    let (line, warned) = limit(silent, "timeout_ms: 7200000\n", mine);
    assert_eq!(
        line,
        "timeout_ms: 600000 ms, the default; not the 7200000 of `timeout_ms` in `.harness/tools/it.md:2:13`"
    );
    assert!(
        warned.contains("tool \"it\" asks for 7200000 ms and gets 600000 ms: this is the default limit"),
        "{warned}"
    );
    let (line, warned) = limit(silent, "timeout_ms: 120000\n", plugin);
    assert_eq!(
        line,
        "timeout_ms: 30000 ms, the default; not the 120000 of `timeout_ms` in `.harness/plugins/acme/tools/it.md:2:13`"
    );
    assert!(warned.contains("gets 30000 ms: this is the limit for `plugins/`"), "{warned}");
    let set = "sandbox: { limits: { timeout_ms: 50000 } }\n";
    let (line, warned) = limit(set, "timeout_ms: 120000\n", mine);
    assert_eq!(
        line,
        "timeout_ms: 50000 ms, `sandbox.limits.timeout_ms` in `.harness/harness.md:2:34`; not the 120000 of `timeout_ms` in `.harness/tools/it.md:2:13`"
    );
    assert!(
        warned.contains("gets 50000 ms: `sandbox.limits.timeout_ms` in `.harness/harness.md:2:34` wins"),
        "{warned}"
    );
    assert_eq!(
        limit(set, "timeout_ms: 50000\n", plugin).0,
        "timeout_ms: 50000 ms, `timeout_ms` in `.harness/plugins/acme/tools/it.md:2:13`"
    );
}
