//! `harness policy`: what is granted, told; what a new policy allows; what a call needs.

use insta::assert_snapshot;
use serde_json::json;

use crate::grants::server;
use crate::project::{FINE, Project};

#[test]
fn a_grant_is_shown_with_what_set_each_limit() {
    let project = Project::new()
        .tool("it", "timeout_ms: 9000\ncapabilities: { fs: { read: [src, notes] }, limits: { files: 5 } }\n", FINE)
        .file("machine.yaml", "sandbox: { env: [CI], limits: { memory_mb: 32 } }\n")
        .policy("network: { allowed_domains: [a.example] }\nsandbox: { fs: { read: ['src/**', docs], write: ['a*'], protect: [src/keys] }, exec: { allow: [git] }, env: [CI, HOME], sources: { tools: { fs: { read: ['.'], write: ['*b'] }, limits: { fuel: 5 } } } }\n");
    let arguments = ["--policy", "machine.yaml", "policy", "show", "it", "--within", "services: [cache, clock]"];
    assert_snapshot!(project.run(&arguments), @"");
    let shown = project.run(&[&arguments[..], &["--json"]].concat()).json();
    assert_eq!(shown["grant"]["fs.read"], json!({"rules": ["src/**"], "whole": true}));
    assert_eq!(shown["grant"]["fs.write"], json!({"rules": [], "whole": true}));
    let set = json!({"value": 32, "unit": "MiB", "set_by": "`sandbox.limits.memory_mb` in `machine.yaml`"});
    assert_eq!(shown["limits"]["memory_mb"], set);
    assert_eq!(shown["limits"]["log_lines"]["set_by"], json!(null));
    assert_eq!(shown["layers"].as_array().unwrap().len(), 5);
    project.run(&["policy", "show", "itt"]).says(2, "did you mean `it`?");
}

#[test]
fn rules_that_overlap_in_part_are_said_to() {
    let project = Project::new()
        .tool("it", "capabilities: { fs: { read: ['*b'] } }\n", FINE)
        .policy("sandbox: { fs: { read: ['a*'] }, sources: { tools/it: { fs: { read: ['**/a?b', '*'] } } } }\n");
    project.run(&["policy", "show", "it"]).says(0, "  fs.read: what all layers cover\n");
}

#[test]
fn what_a_new_policy_allows() {
    let project = Project::with_script(FINE)
        .file("old.md", "---\nnetwork: { allowed_domains: ['*.example'] }\nsandbox: { fs: { read: [src] }, limits: { fuel: 10 }, sources: { plugins/p: { env: [] } } }\ntools_policy: { deny: [deploy_*] }\n---\n")
        .file("same.md", "---\nnetwork: { allowed_domains: [a.example] }\nsandbox: { fs: { read: ['src/**', 'src/a?'] }, limits: { fuel: 9 } }\ntools_policy: { allow: [read_*] }\n---\n")
        .file("new.md", "---\nnetwork: { allowed_domains: [example] }\nsandbox: { fs: { read: ['src*'] }, env: [CI], hooks: { on_error: allow }, audit: false }\nmeta: { enabled: true }\ntools_policy: { deny: [deploy_a*] }\n---\n");
    assert_snapshot!(project.run(&["policy", "diff", "old.md", "same.md"]), @"");
    assert_snapshot!(project.run(&["policy", "diff", "old.md", "new.md"]), @"");
    let found = project.run(&["policy", "diff", "old.md", "new.md", "--json"]).json();
    assert_eq!(found["wider"], json!(true));
    assert!(found["news"].as_array().unwrap().iter().all(|one| one["certain"] == true), "{found}");
    project.run(&["policy", "diff", "old.md", "none.md"]).says(2, "cannot read `none.md`");
}

#[test]
fn two_folders_are_compared_by_their_tools() {
    let write = |project: &Project, folder: &str, policy: &str, tool: &str, read: &str| {
        project.write(&format!("{folder}/.harness/harness.md"), &format!("---\n{policy}---\n"));
        let front = format!(
            "---\ncapabilities: {{ fs: {{ read: [{read}] }} }}\nscript: |\n  {}---\n",
            FINE.replace('\n', "\n  ")
        );
        project.write(&format!("{folder}/.harness/tools/{tool}.md"), front.trim_end_matches(' '));
    };
    let project = Project::new();
    write(&project, "old", "", "it", "a");
    write(&project, "same", "tools_policy: { allow: [it] }\n", "it", "a/b");
    write(&project, "new", "", "it", "a, b");
    write(&project, "new", "", "more", "a");
    assert_eq!(project.run(&["policy", "diff", "old", "same"]).code, 0);
    assert_snapshot!(project.run(&["policy", "diff", "old", "new"]), @"");
    // Of machines: by what is left to this project.
    let own =
        Project::new().tool("it", "", FINE).file("a.yaml", "sandbox: { fs: { read: [src] } }\n").file("b.yaml", "{}\n");
    assert_snapshot!(own.run(&["policy", "diff", "a.yaml", "b.yaml"]), @"");
    assert_eq!(own.run(&["policy", "diff", "b.yaml", "a.yaml"]).code, 0);
}

/// The policy that is printed lets the same call go the same way, and without any one line it does not: a line that
/// closes what is open by default is the exception, and there are none of those here.
#[test]
fn the_least_policy_of_a_call() {
    let (address, _) = server();
    let script = format!(
        "def run(args):\n    if env('HARNESS_TEST_VARIABLE') != 'a value': fail('env')\n    fs.write('out/b.txt', fs.read('notes/a b.txt'))\n    fs.append('out/b.txt', fs.read('notes/c.txt'))\n    cache.set('k', exec.run('echo', ['a', 'b *'])['stdout'])\n    return http.get('http://{address}/')['body'] + cache.get('k')\n"
    );
    let wide = format!(
        "network: {{ allowed_domains: ['*', '{address}'] }}\nsandbox: {{ exec: {{ allow: [echo] }}, env: [HARNESS_TEST_VARIABLE, HOME] }}\n"
    );
    let project = Project::with_script(&script).file("notes/a b.txt", "A").file("notes/c.txt", "C").policy(&wide);
    let learned = project.run(&["policy", "learn", "--", "call", "it"]);
    assert_eq!(learned.code, 0, "{learned}");
    let port = address.split(':').nth(1).unwrap();
    assert_snapshot!(learned.out.replace(port, "[port]"), @"");
    let under = |policy: &str| {
        project.write(".harness/harness.md", &format!("---\n{policy}---\n"));
        project.run(&["call", "it"])
    };
    under(&learned.out).gives("ponga b *");
    let lines: Vec<&str> = learned.out.lines().collect();
    for number in 0..lines.len() {
        let less: String =
            lines.iter().enumerate().filter(|(n, _)| *n != number).map(|(_, line)| format!("{line}\n")).collect();
        let ran = under(&less);
        assert!(ran.code != 0, "without `{}`: {ran}", lines[number]);
    }
    // And it allows nothing that the first one did not.
    project.write("wide.md", &format!("---\n{wide}---\n"));
    project.write("least.md", &format!("---\n{}---\n", learned.out));
    assert_eq!(project.run(&["policy", "diff", "wide.md", "least.md"]).code, 0);
    assert_eq!(project.run(&["policy", "diff", "least.md", "wide.md"]).code, 1);
}

/// A plugin is looked at without being granted anything in the policy.
#[test]
fn what_somebody_else_s_tool_would_need() {
    let script = "---\nscript: |\n  def run(args):\n      fs.exists('.env')\n      return fs.read('a.txt') + str(time.now())[:2]\n---\n";
    let project = Project::new().file(".harness/plugins/p/tools/it.md", script).file("a.txt", "a");
    let denied = project.run(&["policy", "learn", "--", "call", "it"]);
    denied.says(3, "refused: reading `a.txt` is not granted");
    denied.says(3, "the call ended early");
    let rules = "{ fs: { read: ['.'], write: ['.'] }, services: [clock] }";
    let learned = project.run(&["policy", "learn", "--granting", rules, "--", "call", "it"]);
    assert_snapshot!(learned.out, @"");
    assert_eq!(project.run(&["call", "it"]).code, 3);
    project.write(".harness/harness.md", &format!("---\n{}---\n", learned.out));
    project.run(&["call", "it"]).gives("a20");
    // What stands in for the policy gives nothing that nothing gives, and the machine still has its say.
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
    within(&["--policy", "m.yaml"]).says(3, "in `m.yaml` covers it");
    reads.run(&["policy", "learn", "--", "tools"]).says(2, "only a call can be looked at");
}
