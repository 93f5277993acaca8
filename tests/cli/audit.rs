//! The record of what was called and decided, through the binary.

use std::os::unix::fs::PermissionsExt as _;

use insta::assert_snapshot;
use serde_json::{Value as Json, json};

use crate::project::{FINE, Project};

const READ: &str = "def run(args):\n    return fs.read(args['path'])\n";

/// The lines of the record.
fn record(project: &Project) -> Vec<Json> {
    let ran = project.run(&["audit", "show", "--json"]);
    assert_eq!(ran.code, 0, "{ran}");
    ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn reading() -> Project {
    Project::new()
        .tool("read", "parameters:\n  path: { type: string, required: true }\n", READ)
        .with_handle(
            "guard",
            "tool.pre",
            "when: payload['name'] == 'read'\n",
            "return block('no') if payload['args']['path'] == 'b' else allow()",
        )
        .file("a", "text")
}

#[test]
fn each_call_is_a_line() {
    let project = reading();
    for (path, code) in [("a", 0), ("b", 3), ("/etc/passwd", 3), ("none", 1)] {
        let ran = project.run(&["call", "read", &format!("path={path}")]);
        assert_eq!(ran.code, code, "{ran}");
    }
    let lines = record(&project);
    let told: Vec<Json> = lines
        .iter()
        .map(|line| {
            json!([
                line["seq"],
                line["kind"],
                line["tool"],
                line["outcome"],
                line["why"],
                line["hooks"][0]["verdict"],
                line["refusals"]
            ])
        })
        .collect();
    let refused =
        json!([{"call": "fs.read", "subject": "/etc/passwd", "why": "`/etc/passwd` is outside the workspace"}]);
    let blocked = "blocked by hook \"guard\": no";
    assert_eq!(
        told,
        [
            json!([1, "call", "read", "completed", null, "allow", null]),
            json!([2, "call", "read", "denied", blocked, "block", null]),
            json!([3, "call", "read", "denied", "`/etc/passwd` is outside the workspace", "allow", refused]),
            json!([4, "call", "read", "failed", null, "allow", null]),
        ]
    );
    // Of arguments only the digest: the same for the same.
    project.run(&["call", "read", "path=a"]);
    let again = record(&project);
    assert_eq!(again[4]["arguments"], lines[0]["arguments"]);
    assert_ne!(again[4]["arguments"], lines[1]["arguments"]);
    assert_eq!((&again[4]["digest"], &again[4]["grant"]), (&lines[0]["digest"], &lines[0]["grant"]));
    assert!(!lines[3].to_string().contains("none"), "{}", lines[3]);
    let usage = &lines[0]["usage"];
    assert!(usage["fuel"].as_u64().unwrap() > 0 && usage["host_calls"] == 1 && usage["bytes_out"] == 4, "{usage}");
}

/// Anyone who asks: what is not called is distinguished from what nobody has asked for.
#[test]
fn a_call_that_is_not_made_is_a_line_too() {
    let project = reading()
        .file(".harness/harness.md", "---\ntools_policy: { deny: [shut], confirm: [asked] }\n---\n")
        .tool("shut", "", "def run(args):\n    return 1\n")
        .tool("asked", "", "def run(args):\n    return 1\n")
        .file(".harness/tools/bare.md", "---\n{}\n---\nHas no script.\n");
    for (arguments, code) in [
        (&["call", "shut", "path=x"][..], 3),
        (&["call", "shut", "--args", "{}"], 3),
        (&["call", "none"], 2),
        (&["call", "none", "--args", "{}"], 2),
        (&["call", "read", "nothing=1"], 2),
        (&["call", "read", "--args", "{}"], 2),
        (&["call", "asked"], 3),
        (&["call", "bare"], 2),
        (&["policy", "learn", "--", "call", "shut"], 3),
    ] {
        let ran = project.run(arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {ran}");
    }
    // What cannot be read is no call.
    project.run(&["call", "read", "--args", "{"]).says(2, "error: the arguments are not JSON");
    let told: Vec<Json> = record(&project)
        .iter()
        .map(|line| json!([line["kind"], line["tool"], line["outcome"], line["confirmed"], line["why"]]))
        .collect();
    let shut = "the tool `shut` is denied by `shut`";
    let asked = "each call of `asked` needs confirmation (`asked` of `tools_policy.confirm` in `.harness/harness.md:2:41`), and no confirmer is available";
    assert_eq!(
        told,
        [
            json!(["call", "shut", "denied", null, shut]),
            json!(["call", "shut", "denied", null, shut]),
            json!(["call", "none", "rejected", null, "there is no tool `none`"]),
            json!(["call", "none", "rejected", null, "there is no tool `none`"]),
            // What is wrong with arguments may say what is in them.
            json!(["call", "read", "rejected", null, null]),
            json!(["call", "read", "rejected", null, null]),
            json!(["call", "asked", "denied", "nobody", asked]),
            json!(["call", "bare", "rejected", null, "tool `bare` has no implementation: its file has no `script`"]),
            json!(["call", "shut", "denied", null, shut]),
        ]
    );
}

#[test]
fn what_a_script_starts_is_recorded_with_who_started_it() {
    let project = Project::new()
        .file(".harness/harness.md", "---\nmeta: { enabled: true }\n---\n")
        .tool("inner", "", "def run(args):\n    emit('custom.done', {})\n    return 1\n")
        .tool("outer", "", "def run(args):\n    return meta.call_tool('inner', {})\n")
        .with_handle("sees", "custom.done", "", "return allow()");
    let ran = project.run(&["call", "outer"]);
    assert_eq!(ran.code, 0, "{ran}");
    let told: Vec<Json> = record(&project)
        .iter()
        .map(|line| json!([line["kind"], line["caller"], line["tool"], line["event"], line["outcome"]]))
        .collect();
    assert_eq!(
        told,
        [
            json!(["event", "tool inner", null, "custom.done", "completed"]),
            json!(["call", "tool outer", "inner", null, "completed"]),
            json!(["call", "program", "outer", null, "completed"]),
        ]
    );
}

#[test]
fn a_person_reads_it_and_checks_it() {
    let project = reading();
    project.run(&["call", "read", "path=b"]);
    let ran = project.run(&["fire", "tool.pre", "--payload", r#"{"name": "read", "args": {"path": "a"}}"#]);
    assert_eq!(ran.code, 0, "{ran}");
    let ran = project.run(&["audit", "show"]);
    let shown: Vec<String> =
        ran.out.lines().map(|line| line.split_once("Z  ").map_or(line, |(_, rest)| rest).to_owned()).collect();
    let shown: Vec<&str> = shown.iter().map(|line| line.split(", fuel").next().unwrap()).collect();
    assert_eq!(
        shown,
        [
            "call read: denied, blocked by hook \"guard\": no",
            "    tool.pre hook guard: block, no",
            "event tool.pre: completed",
            "    tool.pre hook guard: allow",
        ]
    );
    let ran = project.run(&["audit", "show", "--last", "1"]);
    assert_eq!(ran.out.lines().count(), 2, "{ran}");
    let ran = project.run(&["audit", "verify"]);
    assert!(ran.code == 0 && ran.out.starts_with("audit log intact: 2 entries, last hash "), "{ran}");

    let file = project.root().join(".harness/audit/000001.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("\"denied\"", "\"completed\"", 1)).unwrap();
    let ran = project.run(&["audit", "verify"]);
    assert_snapshot!(ran.to_string(), @"
    exit 1
    --- stdout
    --- stderr
    error: the audit log is damaged: .harness/audit/000001.jsonl:1: its text is not what its hash was made of
    ");
    let ran = project.run(&["audit", "verify", "--json"]);
    assert_eq!((ran.code, &ran.json()["whole"], &ran.json()["line"]), (1, &json!(false), &json!(1)));
    // The last line cut off.
    std::fs::write(&file, text.lines().take(1).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    project.run(&["audit", "verify"]).says(1, "it ends at line 1 of the log, but there were 2");
}

#[test]
fn no_script_reads_or_writes_it() {
    let project = reading();
    project.run(&["call", "read", "path=a"]).says(0, "");
    for path in [".harness/audit/head", ".harness/audit/000001.jsonl", ".HARNESS/Audit/head"] {
        project.run(&["call", "read", &format!("path={path}")]).says(3, "the folder `.harness/audit/` is protected");
    }
    // What is beside it can be read.
    project.run(&["call", "read", "path=.harness/tools/read.md"]).says(0, "");
}

#[test]
fn what_cannot_be_recorded_does_not_happen() {
    let project = Project::with_script("def run(args):\n    fs.write('done', 'x')\n    return 1\n");
    // In its place is something else.
    let project = project.file(".harness/audit", "");
    let ran = project.run(&["call", "it"]);
    ran.says(5, "nothing can be recorded in `.harness/audit`");
    ran.says(5, "write `sandbox: { audit: false }` in `.harness/harness.md`");
    assert!(!project.root().join("done").exists());
    let project = project.file(".harness/harness.md", "---\nsandbox: { audit: false }\n---\n");
    let ran = project.run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "1\n"), "{ran}");
}

/// Nor where it can be opened, and is not what was written.
#[test]
fn nothing_is_done_on_a_record_that_was_cut() {
    let project = Project::with_script("def run(args):\n    fs.append('done', 'x')\n    return 1\n");
    for _ in 0..2 {
        assert_eq!(project.run(&["call", "it"]).code, 0);
    }
    let file = project.root().join(".harness/audit/000001.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.lines().take(1).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    project.run(&["call", "it"]).says(5, "`000001.jsonl` is not as long as it was");
    assert_eq!(std::fs::read_to_string(project.root().join("done")).unwrap(), "xx");
    // Moved away, it is begun again.
    std::fs::rename(project.root().join(".harness/audit"), project.root().join("old")).unwrap();
    assert_eq!(project.run(&["call", "it"]).code, 0);
    assert_eq!(record(&project).len(), 1);
}

#[test]
fn what_hooks_are_refused_is_recorded_with_the_call() {
    let project = Project::with_script(FINE)
        .file(".env", "SECRET=1")
        .file(".harness/harness.md", "---\nsandbox: { hooks: { on_error: allow } }\n---\n")
        .with_handle("curious", "tool.pre", "", "fs.read('.env')");
    assert_eq!(project.run(&["call", "it"]).code, 0);
    let refusals = record(&project)[0]["refusals"].clone();
    assert_eq!((&refusals[0]["call"], &refusals[0]["subject"]), (&json!("fs.read"), &json!(".env")));
}

/// The folder of artifacts may be a link: where it leads is closed to scripts as well, under its own name.
#[test]
fn a_linked_folder_of_artifacts_is_closed_too() {
    let project = Project::new()
        .tool("read", "parameters:\n  path: { type: string, required: true }\n", READ)
        .tool(
            "write",
            "parameters:\n  path: { type: string, required: true }\n",
            "def run(args):\n    fs.write(args['path'], 'x')\n",
        )
        .file("config/a", "text");
    std::fs::rename(project.root().join(".harness"), project.root().join("config/harness")).unwrap();
    std::os::unix::fs::symlink("config/harness", project.root().join(".harness")).unwrap();
    project.run(&["call", "read", "path=config/a"]).says(0, "");
    for (tool, path) in [
        ("read", "config/harness/audit/head"),
        ("write", "config/harness/harness.md"),
        ("write", ".harness/harness.md"),
    ] {
        let ran = project.run(&["call", tool, &format!("path={path}")]);
        assert_eq!(ran.code, 3, "{tool} {path}: {ran}");
    }
    assert_eq!(project.run(&["call", "write", "path=config/b"]).code, 0);
}

#[test]
fn it_is_off_where_the_policy_says_so_and_for_cases() {
    let project = Project::with_script(FINE).file(".harness/harness.md", "---\nsandbox: { audit: false }\n---\n");
    assert_eq!(project.run(&["call", "it"]).code, 0);
    assert!(!project.root().join(".harness/audit").exists());
    let project = Project::with_script(FINE);
    for command in ["test", "validate", "tools", "inspect"] {
        assert_eq!(project.run(&[command]).code, 0);
    }
    assert!(!project.root().join(".harness/audit").exists());
    assert_eq!(project.run(&["call", "it"]).code, 0);
    let mode = std::fs::metadata(project.root().join(".harness/audit")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

/// Of arguments there is a digest that only who has the key can make: two projects have different ones of the same.
#[test]
fn arguments_cannot_be_tried_out_without_the_key() {
    let digest = |project: &Project, arguments: &str| {
        let ran = project.run(&["audit", "digest", arguments]);
        assert_eq!(ran.code, 0, "{ran}");
        ran.out.trim_end().to_owned()
    };
    let called = || {
        let project = Project::with_script(FINE);
        assert_eq!(project.run(&["call", "it", "pin=1234"]).code, 0);
        project
    };
    let (one, other) = (called(), called());
    let recorded = record(&one)[0]["arguments"].as_str().unwrap().to_owned();
    assert!(recorded.starts_with("hmac-sha256:") && recorded.len() == "hmac-sha256:".len() + 64, "{recorded}");
    assert_eq!(digest(&one, "{\"pin\": \"1234\"}"), recorded);
    assert_ne!(digest(&one, "{\"pin\": \"1235\"}"), recorded);
    assert_ne!(digest(&other, "{\"pin\": \"1234\"}"), recorded);
    // Later calls have the same key; and it is closed to scripts, as the rest of the folder is.
    assert_eq!(one.run(&["call", "it", "pin=1234"]).code, 0);
    assert_eq!(record(&one)[1]["arguments"].as_str(), Some(recorded.as_str()));
    let reading = reading();
    assert_eq!(reading.run(&["call", "read", "path=a"]).code, 0);
    reading.run(&["call", "read", "path=.harness/audit/key"]).says(3, "the folder `.harness/audit/` is protected");
    // A key that someone changed is no key.
    one.write(".harness/audit/key", "short");
    one.run(&["call", "it"]).says(5, "`key` is not what was written");
}

/// What a process that was ended has left is no damage, and is said to be what it is.
#[test]
fn half_a_line_is_told() {
    let project = Project::with_script(FINE);
    assert_eq!(project.run(&["call", "it"]).code, 0);
    let file = project.root().join(".harness/audit/000001.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}{{\"seq\":2,\"prev\"")).unwrap();
    let ran = project.run(&["audit", "verify"]);
    assert!(ran.out.starts_with("audit log intact: 1 entry, "), "{ran}");
    ran.says(0, "an incomplete line follows: a process ended while it wrote; the next entry replaces it");
    assert_eq!(project.run(&["call", "it"]).code, 0);
    let ran = project.run(&["audit", "verify"]);
    assert!(ran.out.starts_with("audit log intact: 2 entries, ") && ran.err.is_empty(), "{ran}");
    // The same of a line that was there is damage.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.split_at(text.len() - 10).0).unwrap();
    project.run(&["audit", "verify"]).says(1, "it ends at line 1 of the log, and half a one, but there were 2");
}

/// A project may come with anything in the folder: no command waits for it.
#[test]
fn a_pipe_in_its_place_is_told() {
    for file in ["head", "000001.jsonl", "key"] {
        let project = Project::with_script(FINE);
        let made = project.shell(&format!("mkdir .harness/audit && mkfifo .harness/audit/{file}"));
        assert_eq!(made.code, 0, "{made}");
        for (command, code) in [("audit verify", 1), ("audit show", 1), ("audit digest '{}'", 2), ("call it", 5)] {
            let ran = project.shell(&format!("timeout 20 \"$HARNESS\" {command}"));
            let sees = match command {
                "audit show" => file == "000001.jsonl",
                "audit verify" => file != "key",
                "audit digest '{}'" => file == "key",
                _ => true,
            };
            assert!(if sees { ran.code == code } else { ran.code < 3 }, "{file}, {command}: {ran}");
        }
    }
}

/// However long a hook's reason is: the call is in the log, and what was cut is reported with its length and digest.
#[test]
fn a_reason_of_a_million_bytes_is_recorded_in_part() {
    let project = Project::with_script(FINE).with_handle("long", "tool.post", "", "return block('y' * 1200000)");
    let ran = project.run(&["call", "it", "--json"]);
    assert_eq!((ran.code, &ran.json()["outcome"]), (3, &json!("denied")), "{}", ran.err);
    let lines = record(&project);
    let whole = "y".repeat(1_200_000);
    let hook = &lines[0]["hooks"][0];
    assert_eq!((lines.len(), &lines[0]["outcome"]), (1, &json!("denied")));
    assert_eq!((hook["verdict"].as_str(), hook["reason"].as_str()), (Some("block"), whole.get(..1000)));
    let cut = |field: &str, cut: &Json| {
        assert_eq!((&cut[0]["field"], cut[0]["rows"].as_u64()), (&json!(field), None), "{cut}");
        assert!(cut[0]["digest"].as_str().unwrap().starts_with("hmac-sha256:"), "{cut}");
        cut[0]["bytes"].as_u64().unwrap()
    };
    assert_eq!(cut("reason", &hook["cut"]), 1_200_000);
    // With the words around it.
    assert_eq!(cut("why", &lines[0]["cut"]), 1_200_000 + "blocked by hook \"long\": ".len() as u64);
    project.run(&["audit", "show"]).says(0, "");
    let shown = project.run(&["audit", "show"]).out;
    assert!(shown.contains("`reason` cut: 1200000 bytes, hmac-sha256:"), "{shown}");
    let ran = project.run(&["audit", "verify"]);
    assert!(ran.code == 0 && ran.out.starts_with("audit log intact: 1 entry, "), "{ran}");
}

/// A tool whose command shortens the log behind the host's back, so that no entry can follow.
fn breaking() -> Project {
    let policy = "---\nmodel: { provider: script, script: replies.yaml }\nmeta: { enabled: true }\n\
                  sandbox: { exec: { allow: [truncate], unconfined: true } }\n---\nYou help.\n";
    Project::new()
        .file(".harness/harness.md", policy)
        .file("replies.yaml", "- tool_calls: [{ name: break, args: {} }]\n- text: Done.\n")
        .tool("fine", "", FINE)
        .tool(
            "break",
            "",
            "def run(args):\n    return exec.run('truncate', ['-s', '0', '.harness/audit/000001.jsonl'])['exit_code']\n",
        )
        .tool("outer", "", "def run(args):\n    return meta.call_tool('break', {})\n")
}

/// A call that ran and is not in the log is never passed over, whoever made it.
#[test]
fn an_entry_that_cannot_be_written_ends_the_command() {
    for command in
        [&["call", "break"][..], &["call", "outer"], &["run", "--no-record", "Go."], &["run", "--json", "Go."]]
    {
        let project = breaking();
        assert_eq!(project.run(&["call", "fine"]).code, 0);
        let ran = project.run(command);
        assert_eq!(ran.code, 5, "{command:?}: {ran}");
        assert!(ran.err.contains("the audit log is incomplete: what ran is not in it: "), "{command:?}: {ran}");
        assert!(!ran.out.contains("Done."), "{command:?}: {ran}");
        project.run(&["audit", "verify"]).says(1, "it ends at line 0 of the log, but there were 1");
    }
}

/// A call waits for a lock that another process holds, within its time; then it says so. Reading says so too.
#[test]
fn a_lock_of_the_log_is_named() {
    let project = Project::with_script("def run(args):\n    fs.append('done', 'x')\n    return 1\n")
        .file(".harness/harness.md", "---\nsandbox: { limits: { timeout_ms: 300 } }\n---\n");
    project.run(&["call", "it"]).gives("1");
    let lock = std::fs::File::open(project.path(".harness/audit/head")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_snapshot!(project.run(&["call", "it"]).to_string(), @"
    exit 5
    --- stdout
    --- stderr
    error: nothing could be recorded in `.harness/audit` for 300 ms: another process holds the lock of `.harness/audit/head`; end that process (`fuser .harness/audit/head` finds it)
    ");
    assert_snapshot!(project.run(&["audit", "verify"]).to_string(), @"
    exit 5
    --- stdout
    --- stderr
    error: the audit log cannot be read: .harness/audit/head: another process has held its lock for 5 s

    hint: `fuser .harness/audit/head` finds that process
    ");
    assert_eq!(std::fs::read_to_string(project.path("done")).unwrap(), "x");
    drop(lock);
    project.run(&["call", "it"]).gives("1");
    assert_eq!(record(&project).len(), 2);
}
