//! `harness policy`: what is granted, told; what a new policy allows; what a call needs.

use std::fs;

use insta::assert_snapshot;
use serde_json::json;

use crate::grants::server;
use crate::project::{FINE, Project, Ran};

#[test]
fn a_grant_is_shown_with_what_set_each_limit() {
    let project = Project::new()
        .tool("it", "timeout_ms: 9000\ncapabilities: { fs: { read: [src, notes] }, limits: { files: 5 } }\n", FINE)
        .file("machine.yaml", "sandbox: { env: [CI], limits: { memory_mb: 32 } }\n")
        .policy("network: { allowed_domains: [a.example] }\nsandbox: { fs: { read: ['src/**', docs], write: ['a*'], protect: [src/keys] }, exec: { allow: [git] }, env: [CI, HOME], sources: { tools: { fs: { read: ['.'], write: ['*b'] }, limits: { fuel: 5 } } } }\n");
    let arguments = ["--policy", "machine.yaml", "policy", "show", "it", "--within", "services: [cache, clock]"];
    assert_snapshot!(project.run(&arguments), @"
    exit 0
    --- stdout
    tool it, source `tools/it`
    allowed by all its layers:
      fs.read: src/**
      fs.write: nothing
      fs.protect: src/keys
      network: a.example
      exec.allow: git
      exec.env: nothing
      exec.folders: nothing
      exec.network: false
      exec.unconfined: false
      env: CI
      secrets: nothing
      services: cache, clock
    limits, each with its origin:
      fuel: 5 units, `sandbox.sources.tools.limits.fuel` in `.harness/harness.md:3:193`
      timeout_ms: 9000 ms, `timeout_ms` in `.harness/tools/it.md:2:13`
      memory_mb: 32 MiB, `sandbox.limits.memory_mb` in `machine.yaml:1:44`
      output_bytes: 65536 bytes, the default
      result_bytes: 4194304 bytes, the default
      host_memory_mb: 64 MiB, the default
      host_calls: 100000 calls, the default
      io_bytes: 268435456 bytes, the default
      files: 5 files, `capabilities.limits.files` in `.harness/tools/it.md:3:62`
      file_bytes: 16777216 bytes, the default
      body_bytes: 10485760 bytes, the default
      regex_bytes: 1048576 bytes, the default
      log_lines: 1000 lines, the default
      processes: 64 processes, the default
      command_memory_mb: 4096 MiB, the default
    layers, the outermost first:
      machine.yaml:
        variables: CI (machine.yaml:1:17)
      .harness/harness.md:
        read: src/**, docs (.harness/harness.md:3:24)
        write: a* (.harness/harness.md:3:49)
        protect: src/keys (.harness/harness.md:3:66)
        hosts: a.example (.harness/harness.md:2:29)
        commands: git (.harness/harness.md:3:95)
        their variables: nothing (.harness/harness.md:3:86)
        variables: CI, HOME (.harness/harness.md:3:109)
        services: cache, metrics, clock, random, events, meta, delegate, modify, prompt
      .harness/harness.md:3:132, source `tools`:
        read: . (.harness/harness.md:3:153)
        write: *b (.harness/harness.md:3:167)
      .harness/tools/it.md:3:1, its capabilities:
        read: src, notes (.harness/tools/it.md:3:29)
        write: nothing (.harness/tools/it.md:3:21)
      this call, by --within:
        services: cache, clock (--within:1:11)
    --- stderr
    ");
    let shown = project.run(&[&arguments[..], &["--json"]].concat()).json();
    assert_eq!(shown["grant"]["fs.read"], json!({"rules": ["src/**"], "whole": true}));
    assert_eq!(shown["grant"]["fs.write"], json!({"rules": [], "whole": true}));
    let set = json!({"value": 32, "unit": "MiB", "set_by": "`sandbox.limits.memory_mb` in `machine.yaml:1:44`"});
    assert_eq!(shown["limits"]["memory_mb"], set);
    assert_eq!(shown["limits"]["log_lines"]["set_by"], json!(null));
    assert_eq!(shown["layers"].as_array().unwrap().len(), 5);
    project.run(&["policy", "show", "itt"]).says(2, "did you mean `it`?");
    // What an agent has for itself is shown too.
    let agent = "---\ndescription: Finds.\ntools:\n  - name: find\n    script: |\n      def run(args):\n          return 1\n    capabilities: { env: [HOME] }\n---\n# Finder\n";
    let project = project.file(".harness/agents/finder.md", agent);
    let shown = project.run(&["policy", "show", "finder/find", "--json"]).json();
    assert_eq!(
        (&shown["source"], &shown["grant"]["env"]["rules"]),
        (&json!("agents/finder/tools/find"), &json!(["HOME"]))
    );
    project.run(&["policy", "show", "finder/none"]).says(2, "there is no tool, hook or MCP server `finder/none`");
    let own = "  has `find`: `harness policy show finder/find`\n";
    assert!(project.run(&["inspect", "finder"]).out.ends_with(own));
}

#[test]
fn rules_that_overlap_in_part_are_said_to() {
    let project = Project::new()
        .tool("it", "capabilities: { fs: { read: ['*b'] } }\n", FINE)
        .policy("sandbox: { fs: { read: ['a*'] }, sources: { tools/it: { fs: { read: ['**/a?b', '*'] } } } }\n");
    let shown = project.run(&["policy", "show", "it"]);
    assert!(shown.out.contains("  fs.read: what all layers cover\n"), "{shown}");
}

#[test]
fn what_a_new_policy_allows() {
    let project = Project::with_script(FINE)
        .file("old.md", "---\nnetwork: { allowed_domains: ['*.example'] }\nsandbox: { fs: { read: [src] }, limits: { fuel: 10 }, sources: { plugins/p: { env: [] } } }\ntools_policy: { deny: [deploy_*] }\n---\n")
        .file("same.md", "---\nnetwork: { allowed_domains: [a.example] }\nsandbox: { fs: { read: ['src/**', 'src/a?'] }, limits: { fuel: 9 } }\ntools_policy: { allow: [read_*] }\n---\n")
        .file("new.md", "---\nnetwork: { allowed_domains: [example] }\nsandbox: { fs: { read: ['src*'] }, env: [CI], hooks: { on_error: allow }, audit: false }\nmeta: { enabled: true }\ntools_policy: { deny: [deploy_a*] }\n---\n");
    assert_snapshot!(project.run(&["policy", "diff", "old.md", "same.md"]), @"
    exit 0
    --- stdout
    the new policy allows nothing more than the old one
    --- stderr
    ");
    assert_snapshot!(project.run(&["policy", "diff", "old.md", "new.md"]), @"
    exit 1
    --- stdout
    the new policy allows more than the old one:
      env for source `tools/…`: the variable `CI`
          before: the variable `CI` is not granted
      fs.read for source `tools/…`: reading `srcc`
          before: reading `srcc` is not granted: nothing in `sandbox.fs.read` in `old.md:3:24` covers it
      limits.fuel for source `plugins/p`, source `plugins/…`, source `tools/…`: 10000000000 units
          before: the limit is 10 units
      meta: a run may add tools and hooks
          before: it may not
      network for source `tools/…`: the host `example`
          before: the host `example` is not allowed
      sandbox.audit: calls are not logged
          before: they are
      sandbox.hooks: a failing hook allows
          before: it blocks
      tools_policy: calling `deploy_`
          before: the tool `deploy_` is denied by `deploy_*`
    --- stderr
    ");
    let found = project.run(&["policy", "diff", "old.md", "new.md", "--json"]).json();
    assert_eq!(found["wider"], json!(true));
    assert!(found["news"].as_array().unwrap().iter().all(|one| one["certain"] == true), "{found}");
    project.run(&["policy", "diff", "old.md", "none.md"]).says(2, "there is no `none.md`");
    // What is no grant: secrets, tasks, what agents may use.
    let agents = "async_tools: false, secrets: { KEY: { env: KEY, hosts: ['*.a.example'], exec: [sh] }, OLD: { env: A } } }\n\
                  delegation: { budget: { tokens: 5 }, tree_budget: { calls: 7 }, timeout_ms: 9, max_tool_failures: 2, verify: 'def verify(p): return True' }\n";
    let others = "async_tools: true, secrets: { KEY: { env: KEY, hosts: [a.example], exec: [sh, env] }, OLD: { file: b }, NEW: { env: C } } }\n\
                  delegation: { allow_recursive: true, max_depth: 4, budget: { tokens: 6 }, iterations_per_depth: [10, 10, 6] }\n";
    project.write("agents.md", &format!("---\nsandbox: {{ {agents}---\n"));
    project.write("others.md", &format!("---\nsandbox: {{ {others}---\n"));
    assert_snapshot!(project.run(&["policy", "diff", "agents.md", "others.md"]).out, @"
    the new policy allows more than the old one:
      delegation.allow_recursive: an agent may call itself
          before: it may not
      delegation.budget.tokens: 6
          before: at most 5
      delegation.iterations_per_depth[2]: 6
          before: at most 5
      delegation.iterations_per_depth[3]: 6
          before: at most 3
      delegation.max_depth: 4
          before: at most 3
      delegation.max_tool_failures: 5
          before: at most 2
      delegation.timeout_ms: 600000
          before: at most 9
      delegation.tree_budget.calls: without bound
          before: at most 7
      delegation.verify: a result that `verify` rejects
          before: each result is verified
      sandbox.async_tools: tools run in the background
          before: they do not
      sandbox.secrets.KEY.exec: giving it to the command `env`
          before: the secret `KEY` is not for it
      sandbox.secrets.KEY.hosts: giving it to the host `a.example`
          before: the secret `KEY` is not for it
      sandbox.secrets.OLD: using what the file `b` holds
          before: it is what the variable `A` holds
      secrets for source `tools/…`: the secret `NEW`
          before: there is no secret `NEW`
    ");
    assert_eq!(project.run(&["policy", "diff", "agents.md", "agents.md"]).code, 0);
    // Calls of which nobody is asked any more, unless they are denied.
    for (name, tools) in
        [("a", "confirm: ['rm_*', x]"), ("b", "confirm: ['rm_a*', x]"), ("c", "deny: ['rm_*'], confirm: ['?']")]
    {
        project.write(&format!("{name}.md"), &format!("---\ntools_policy: {{ {tools} }}\n---\n"));
    }
    let diff = project.run(&["policy", "diff", "a.md", "b.md"]);
    let told =
        "  tools_policy.confirm: calling `rm_` without confirmation\n      before: a person confirms each call\n";
    assert!(diff.code == 1 && diff.out.ends_with(told) && diff.out.lines().count() == 3, "{diff}");
    for fewer in [["b.md", "a.md"], ["a.md", "c.md"]] {
        assert_eq!(project.run(&[&["policy", "diff"], &fewer[..]].concat()).code, 0);
    }
}

#[test]
fn two_folders_are_compared_by_their_tools() {
    let write = |project: &Project, folder: &str, policy: &str, tool: &str, read: &str| {
        project.write(&format!("{folder}/.harness/harness.md"), &format!("---\n{policy}---\n"));
        let script = FINE.trim_end().replace('\n', "\n  ");
        let front = format!("---\ncapabilities: {{ fs: {{ read: [{read}] }} }}\nscript: |\n  {script}\n---\n");
        project.write(&format!("{folder}/.harness/tools/{tool}.md"), &front);
    };
    let project = Project::new();
    write(&project, "old", "", "it", "a");
    write(&project, "same", "tools_policy: { allow: [it] }\n", "it", "a/b");
    write(&project, "new", "", "it", "a, b");
    write(&project, "new", "", "more", "a");
    assert_eq!(project.run(&["policy", "diff", "old", "same"]).code, 0);
    assert_snapshot!(project.run(&["policy", "diff", "old", "new"]), @"
    exit 1
    --- stdout
    the new policy allows more than the old one:
      fs.read for tool `more`: reading `a`
          before: reading `a` is not granted: nothing in `sandbox.fs.read` in `.harness/harness.md` covers it
      fs.read for tool `it`: reading `b`
          before: reading `b` is not granted: nothing in `capabilities.fs.read` in `.harness/tools/it.md:2:29` covers it
      services for tool `more`: `cache`
          before: `cache` is not granted
      tools_policy: calling `more`
          before: there is no such tool
    --- stderr
    ");
    // Of what a person had to confirm, by the tool's own word or the policy's.
    write(&project, "asks", "tools_policy: { confirm: ['i*'] }\n", "it", "a");
    assert_eq!(project.run(&["policy", "diff", "old", "asks"]).code, 0);
    let asks_no_more = "the new policy allows more than the old one:\n  tools_policy.confirm: calling `it` without confirmation\n      before: a person confirms each call\n";
    let diff = project.run(&["policy", "diff", "asks", "old"]);
    assert_eq!((diff.code, diff.out.as_str()), (1, asks_no_more), "{diff}");
    let own = fs::read_to_string(project.path("asks/.harness/tools/it.md")).unwrap();
    let own = own.replace("---\ncap", "---\nconfirm: true\ncap");
    project.write("own/.harness/tools/it.md", &own);
    let diff = project.run(&["policy", "diff", "own", "old"]);
    assert_eq!((diff.code, diff.out.as_str()), (1, asks_no_more), "{diff}");
    assert_eq!(project.run(&["policy", "diff", "own", "asks"]).code, 0);
    // Of an agent: its own tool, its budget; and a hook that is no more.
    let agent = |folder: &str, read: &str, calls: u32| {
        let front = format!(
            "tools: [{{ name: own, capabilities: {{ fs: {{ read: [{read}] }} }}, script: 'def run(args): return 1' }}]\nbudget: {{ calls: {calls} }}\n"
        );
        project.write(&format!("{folder}/.harness/agents/helper.md"), &format!("---\n{front}---\nYou help.\n"));
        project.write(&format!("{folder}/.harness/harness.md"), "---\n---\n");
    };
    agent("one", "a", 5);
    project.write("one/.harness/hooks/guard.md", "---\nevent: tool.pre\n---\n");
    agent("two", "a, b", 6);
    assert_snapshot!(project.run(&["policy", "diff", "one", "two"]), @"
    exit 1
    --- stdout
    the new policy allows more than the old one:
      budget.calls for agent `helper`: 6
          before: at most 5
      fs.read for tool `helper/own`: reading `b`
          before: reading `b` is not granted: nothing in `capabilities.fs.read` in `.harness/agents/helper.md:2:50` covers it
      hooks: `tool.pre` that the hook `guard` blocks
          before: the hook is asked
    --- stderr
    ");
    // What is broken is not compared.
    project.write("new/.harness/tools/more.md", "---\n");
    project.run(&["policy", "diff", "old", "new"]).says(2, "the front matter is not closed");
    // Of machines: by what is left to this project.
    let own =
        Project::new().tool("it", "", FINE).file("a.yaml", "sandbox: { fs: { read: [src] } }\n").file("b.yaml", "{}\n");
    assert_snapshot!(own.run(&["policy", "diff", "a.yaml", "b.yaml"]), @"
    exit 1
    --- stdout
    the new policy allows more than the old one:
      fs.read for tool `it`: reading `.`
          before: reading `.` is not granted: nothing in `sandbox.fs.read` in `a.yaml:1:24` covers it
      fs.write for tool `it`: writing `.`
          before: writing `.` is not granted: nothing in `sandbox.fs.write` in `a.yaml:1:16` covers it
    --- stderr
    ");
    assert_eq!(own.run(&["policy", "diff", "b.yaml", "a.yaml"]).code, 0);
}

/// The policy that is printed lets the same call go the same way, and without any one line it does not, or the line
/// had closed what is open by default.
#[test]
fn the_least_policy_of_a_call() {
    let (address, _) = server();
    let script = format!(
        "def run(args):\n    if env('HARNESS_TEST_VARIABLE') != 'a value': fail('env')\n    fs.write('out/b.txt', fs.read('notes/a b.txt'))\n    fs.append('out/b.txt', fs.read('notes/c.txt'))\n    cache.set('k', 'c')\n    return http.get('http://{address}/')['body'] + cache.get('k')\n"
    );
    let wide = format!(
        "network: {{ allowed_domains: ['*', '{address}'] }}\nsandbox: {{ env: [HARNESS_TEST_VARIABLE, HOME] }}\n"
    );
    let project = Project::with_script(&script).file("notes/a b.txt", "A").file("notes/c.txt", "C").policy(&wide);
    let learned = project.run(&["policy", "learn", "--", "call", "it"]);
    assert_eq!(learned.code, 0, "{learned}");
    let port = address.split(':').nth(1).unwrap();
    assert_snapshot!(learned.out.replace(port, "[port]"), @r#"
    network:
      allowed_domains:
        - { host: "127.0.0.1:[port]", methods: [GET], scheme: http }
    sandbox:
      fs:
        read:
          - "notes/a b.txt"
          - notes/c.txt
        write:
          - out/b.txt
      env:
        - HARNESS_TEST_VARIABLE
      services:
        - cache
    "#);
    every_line_is_needed(&project, &learned.out, "pongc");
    // And it allows nothing that the first one did not.
    project.write("wide.md", &format!("---\n{wide}---\n"));
    assert_eq!(project.run(&["policy", "diff", "wide.md", "least.md"]).code, 0);
    assert_eq!(project.run(&["policy", "diff", "least.md", "wide.md"]).code, 1);
}

/// Under a policy the call gives the result, and without any one of its lines it does not, or the line closes what is
/// open by default.
#[track_caller]
fn every_line_is_needed(project: &Project, policy: &str, result: &str) {
    let under = |policy: &str| {
        project.write(".harness/harness.md", &format!("---\n{policy}---\n"));
        let ran = project.run(&["call", "it"]);
        (ran.code == 0 && ran.out.trim_end() == result, ran)
    };
    let (same, ran) = under(policy);
    assert!(same, "{ran}");
    project.write("least.md", &format!("---\n{policy}---\n"));
    let lines: Vec<&str> = policy.lines().collect();
    for number in 0..lines.len() {
        let less: String =
            lines.iter().enumerate().filter(|(n, _)| *n != number).map(|(_, line)| format!("{line}\n")).collect();
        let (same, ran) = under(&less);
        project.write("less.md", &format!("---\n{less}---\n"));
        let opens = || project.run(&["policy", "diff", "least.md", "less.md"]).code == 1;
        assert!(!same || opens(), "without `{}`: {ran}", lines[number]);
    }
}

/// What a command needs of what it gets nobody sees. It is found out by calls that can change nothing, unless there is to
/// be one call.
#[test]
fn what_commands_had_is_tried_where_nothing_can_change() {
    let script = "def run(args):\n    fs.read('docs/a')\n    return exec.run('echo', ['a', 'b *'])['stdout']\n";
    let policy = "sandbox: { fs: { read: ['.'], write: [notes] }, exec: { allow: [echo], env: [PATH, HARNESS_NONE], network: true, folders: [/usr/share] }, limits: { timeout_ms: 50000, processes: 70 } }\n";
    let project = Project::with_script(script).file("notes/a", "").file("docs/a", "").policy(policy);
    let once = project.run(&["policy", "learn", "--once", "--", "call", "it"]);
    assert_snapshot!(told(&once), @r#"
    exit 0
    --- stdout
    sandbox:
      services: []
      fs:
        read:
          - "."
        write:
          - notes
      exec:
        allow:
          - "echo a \"b *\""
        env:
          - PATH
        folders:
          - "/usr/share"
        network: true
      limits:
        processes: 70
    --- stderr
    it is not known whether the call needs these, because the call was made once:
      limits.processes: 70
      exec.network: true
      exec.folders: "/usr/share"
      exec.env: PATH
      fs.write: notes
    "#);
    let learned = project.run(&["policy", "learn", "--", "call", "it"]);
    assert_snapshot!(told(&learned), @r#"
    exit 0
    --- stdout
    sandbox:
      services: []
      fs:
        read:
          - "."
      exec:
        allow:
          - "echo a \"b *\""
    --- stderr
    4 further calls showed which of the other lines are needed
    "#);
    every_line_is_needed(&project, &learned.out, "a b *");
}

/// What was printed, without how much the call used.
fn told(ran: &Ran) -> String {
    let text = ran.to_string();
    let lines = text.lines().filter(|line| !line.contains("with its hooks it used"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// A call that changes something is not made again without being told to.
#[test]
fn what_changes_something_is_done_once() {
    let policy = "sandbox: { fs: { read: [.], write: [out] }, exec: { allow: [sh], env: [HARNESS_TEST_VARIABLE] } }\n";
    let lines = |script: &str, how: &[&str]| {
        let project = Project::with_script(script).policy(policy).file("out/log", "");
        let ran = project.run(&[&["policy", "learn"], how, &["--", "call", "it"]].concat());
        assert_eq!(ran.code, 0, "{ran}");
        let untried: Vec<String> = ran.err.lines().skip(1).map(str::to_owned).collect();
        (std::fs::read_to_string(project.path("out/log")).unwrap().lines().count(), untried)
    };
    let because = |why: &str| {
        vec![
            format!("it is not known whether the call needs these, because {why}:"),
            "  exec.env: HARNESS_TEST_VARIABLE".to_owned(),
        ]
    };
    let wrote = because("the call writes or uses a network");
    let script =
        "def run(args):\n    fs.append('out/log', 'x\\n')\n    return exec.run('sh', ['-c', 'true'])['stdout']\n";
    assert_eq!(lines(script, &[]), (1, wrote.clone()));
    assert_eq!(lines(script, &["--once"]), (1, because("the call was made once")));
    // What its command wrote is seen, whatever the script makes of it.
    let command = "def run(args):\n    exec.run('sh', ['-c', 'echo x >> out/log'])\n    return 1\n";
    assert_eq!(lines(command, &[]), (1, wrote));
    let (times, told) = lines(command, &["--again"]);
    assert!(
        times > 1 && told.len() == 1 && told[0].contains("further calls showed which of the other lines"),
        "{times} {told:?}"
    );
    // What it would have liked to write, but may not, is not there to be seen; it says the same again.
    let refused = "def run(args):\n    return exec.run('sh', ['-c', 'echo x >> log'])['stderr'] != ''\n";
    assert_eq!(lines(refused, &[]).0, 0);
}

/// Nor is one that a person has to confirm.
#[test]
fn what_a_person_confirms_is_done_once() {
    let policy = "sandbox: { fs: { read: [.] }, exec: { allow: [sh], env: [HARNESS_TEST_VARIABLE] } }\n";
    let script = "def run(args):\n    return exec.run('sh', ['-c', 'echo x'])['stdout']\n";
    let project = Project::new().tool("it", "confirm: true\n", script).policy(policy);
    let ran = project.run(&["policy", "learn", "--", "call", "it", "--yes"]);
    ran.says(0, "because the call needs confirmation each time:\n  exec.env: HARNESS_TEST_VARIABLE\n");
}

/// A secret that was used is defined, for what it was used with.
#[test]
fn a_secret_is_defined_for_where_it_went() {
    let (address, _) = server();
    let script = format!(
        "def run(args):\n    sent = http.get('http://{address}/', headers={{'x-token': secret('KEY')}})\n    return sent['body'] + exec.run('sh', ['-c', 'test -n \"$TOKEN\" && echo there'], env={{'TOKEN': secret('FILE')}})['stdout']\n"
    );
    let policy = format!(
        "network: {{ allowed_domains: ['*', '{address}'] }}\nsandbox:\n  fs: {{ read: [.] }}\n  exec: {{ allow: [sh], env: [TOKEN] }}\n  secrets:\n    KEY: {{ file: keys/three, hosts: ['*', '{address}'], exec: [git] }}\n    FILE: {{ file: keys/one, exec: [sh, git] }}\n    OTHER: {{ file: keys/two, exec: [sh] }}\n"
    );
    let project = Project::with_script(&script).policy(&policy);
    let project = project.file("keys/one", "12345678").file("keys/three", "87654321");
    let learned = project.run(&["policy", "learn", "--again", "--", "call", "it"]);
    assert_eq!(learned.code, 0, "{learned}");
    assert_snapshot!(learned.out.replace(&address, "[server]"), @r#"
    network:
      allowed_domains:
        - { host: "[server]", methods: [GET], scheme: http }
    sandbox:
      services: []
      fs:
        read:
          - "."
      exec:
        allow:
          - { argv: [sh, "-c", "test -n \"$TOKEN\" && echo there"] }
        env:
          - TOKEN
      secrets:
        KEY: { file: keys/three, hosts: [{ host: "[server]", methods: [GET], scheme: http }] }
        FILE: { file: keys/one, exec: [{ argv: [sh, "-c", "test -n \"$TOKEN\" && echo there"] }] }
    "#);
    every_line_is_needed(&project, &learned.out, "pongthere");
}

/// What a command needs of what it gets is found out by further calls: the policy that is left lets the same call go the
/// same way, and without any one line it does not, or the line had closed what is open by default.
#[test]
fn what_a_command_needs_of_what_it_had() {
    let script = "def run(args):\n    fs.read('docs/a')\n    done = exec.run('sh', ['-c', 'cat notes/b && echo $HARNESS_TEST_VARIABLE && echo c > out/c && cat out/c'])\n    return done['stdout'] + done['stderr']\n";
    let policy = "sandbox: { fs: { read: ['.'], write: [out, more] }, limits: { timeout_ms: 40000 }, exec: { allow: [sh], env: [HARNESS_TEST_VARIABLE, HOME], network: true, folders: [/usr/share, /usr/include] } }\n";
    let project = Project::with_script(script).policy(policy);
    let project =
        ["docs/a", "notes/b", "other/x", "out/x", "more/x"].iter().fold(project, |p, path| p.file(path, "x\n"));
    let learned = project.run(&["policy", "learn", "--again", "--", "call", "it"]);
    assert_eq!(learned.code, 0, "{learned}");
    assert_snapshot!(learned.out, @r#"
    sandbox:
      services: []
      fs:
        read:
          - "."
        write:
          - out
      exec:
        allow:
          - "sh -c \"cat notes/b && echo $HARNESS_TEST_VARIABLE && echo c > out/c && cat out/c\""
        env:
          - HARNESS_TEST_VARIABLE
    "#);
    every_line_is_needed(&project, &learned.out, "x\na value\nc");
    // Where no two calls give the same, nothing is known of the lines.
    let random = Project::with_script("def run(args):\n    exec.run('true', [])\n    return uuid.v4()\n")
        .policy("sandbox: { exec: { allow: ['true'], network: true } }\n");
    let learned = random.run(&["policy", "learn", "--again", "--", "call", "it"]);
    learned.says(0, "the same call did not give the same result again");
    assert!(learned.out.contains("    network: true\n"), "{learned}");
}

/// A plugin is checked without being granted anything in the policy.
#[test]
fn what_somebody_else_s_tool_would_need() {
    let script = "---\nscript: |\n  def run(args):\n      fs.exists('.env')\n      return fs.read('a.txt') + str(time.now())[:2]\n---\n";
    let project = Project::new().file(".harness/plugins/p/tools/it.md", script).file("a.txt", "a");
    let denied = project.run(&["policy", "learn", "--", "call", "it"]);
    denied.says(3, "denied: reading `a.txt` is not granted");
    denied.says(3, "the call ended early");
    let rules = "{ fs: { read: ['.'], write: ['.'] }, services: [clock] }";
    let learned = project.run(&["policy", "learn", "--granting", rules, "--", "call", "it"]);
    assert_snapshot!(learned.out, @"
    sandbox:
      fs:
        read:
          - a.txt
      services:
        - clock
      sources:
        plugins/p:
          fs:
            read:
              - a.txt
          services:
            - clock
    ");
    assert_eq!(project.run(&["call", "it"]).code, 3);
    project.write(".harness/harness.md", &format!("---\n{}---\n", learned.out));
    project.run(&["call", "it"]).gives("a20");
    // What is in for the policy gives nothing that nothing gives, and the machine still has its say.
    let closed = Project::with_script("def run(args):\n    return fs.write('.harness/x', '')\n")
        .file("m.yaml", "sandbox: { fs: {} }\n");
    closed
        .run(&["policy", "learn", "--granting", rules, "--", "call", "it"])
        .says(3, "the folder `.harness/` is protected");
    let reads = Project::with_script("def run(args):\n    return fs.read('a')\n")
        .file("a", "x")
        .file("m.yaml", "sandbox: { fs: {} }\n");
    let within =
        |policy: &[&str]| reads.run(&[policy, &["policy", "learn", "--granting", rules, "--", "call", "it"]].concat());
    assert_eq!(within(&[]).code, 0);
    within(&["--policy", "m.yaml"]).says(3, "in `m.yaml:1:16` covers it");
    reads.run(&["policy", "learn", "--", "tools"]).says(2, "only a call can be observed");
}

/// Where files of one folder and one ending were read, `learn` offers a pattern for their siblings.
#[test]
fn learn_offers_a_pattern_for_siblings() {
    let script = "def run(args):\n    for name in args['names']:\n        fs.read(name)\n    return 1\n";
    let mut project = Project::new().tool("it", "", script);
    for name in ["issues/a.md", "issues/b.md", "issues/c.md", "other.md"] {
        project = project.file(name, "x");
    }
    let learn = |names: &str| {
        let arguments = format!("{{\"names\": {names}}}");
        project.run(&["policy", "learn", "--", "call", "it", "--args", &arguments])
    };
    let offer =
        "3 items of `fs.read` fit `issues/*.md`: write that instead, if files like them are to be allowed too\n";
    let all = learn(r#"["issues/a.md", "issues/b.md", "issues/c.md", "other.md"]"#);
    assert!(all.code == 0 && all.err.contains(offer) && all.out.contains("issues/b.md"), "{all}");
    let two = learn(r#"["issues/a.md", "issues/b.md", "other.md"]"#);
    assert!(two.code == 0 && !two.err.contains("write that instead"), "{two}");
}
