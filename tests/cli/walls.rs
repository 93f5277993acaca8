//! The report of the walls around commands and around the host. What the walls hold is in the tests of `exec`.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use serde_json::{Value as Json, json};

use crate::project::{FINE, Project, Ran};

const RUNS: &str = "def run(args):\n    return exec.run('sh', ['-c', args['script']])['stdout']\n";
const SCRIPT: &str = "parameters:\n  script: { type: string, required: true }\n";

fn project(policy: &str) -> Project {
    let policy = format!("sandbox:\n  fs: {{ read: [.], write: [.] }}\n  exec: {policy}\n");
    Project::new().policy(&policy).tool("it", SCRIPT, RUNS).tool("fine", "", FINE)
}

/// The word for the wall that this machine has, from what `doctor` says of it.
fn standing(project: &Project) -> String {
    let found = project.run(&["doctor", "--json"]).json();
    let finding = |name: &str| {
        found["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == name).unwrap().clone()
    };
    let (wall, rest) = (finding("second wall"), [finding("namespaces"), finding("landlock"), finding("filters")]);
    assert_eq!(wall["ok"], json!(true), "commands cannot be held here: {wall} {rest:?}");
    let words = wall["what"].as_str().unwrap().strip_prefix("commands run behind ").unwrap();
    let tier = words.split(';').next().unwrap().to_owned();
    let has = [rest[0]["ok"] == json!(true), rest[1]["ok"] == json!(true)];
    assert_eq!(
        tier.split('+').collect::<Vec<_>>(),
        ["view", "landlock"].into_iter().zip(has).filter(|(_, has)| *has).map(|(name, _)| name).collect::<Vec<_>>()
    );
    tier
}

#[test]
fn each_result_says_what_it_ran_behind() {
    let confined = project("{ allow: [sh] }");
    let unconfined = project("{ allow: [sh], unconfined: true }");
    let tier = |project: &Project, tool: &str| {
        let ran = project.run(&["call", tool, "--args", "{\"script\": \"echo hi\"}", "--json"]);
        let record: Json = serde_json::from_str(&project.run(&["audit", "show", "--last", "1", "--json"]).out).unwrap();
        let told = ran.json()["usage"]["tier"].clone();
        assert_eq!(record["usage"]["tier"], told, "{ran}");
        told
    };
    let standing = standing(&confined);
    assert_eq!(tier(&confined, "it"), json!(standing));
    assert_eq!(tier(&unconfined, "it"), json!("unconfined"));
    assert_eq!(tier(&unconfined, "fine"), json!("instance"));
    assert_eq!(tier(&project("{ allow: [other] }"), "it"), json!("instance"));
}

/// Through a host that has given up what it does not need.
#[test]
fn a_command_connects_to_the_hosts_that_are_named_and_to_no_others() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"hello");
        }
    });
    let asks = |network: &str| {
        let policy = format!("{{ allow: [bash], network: {network} }}");
        let tool = "def run(args):\n    return exec.run('bash', ['-c', args['script']])['stdout']\n";
        let project = project(&policy).tool("it", SCRIPT, tool);
        let script = json!({"script": format!("exec 3<>/dev/tcp/localhost/{port} && cat <&3")});
        project.run(&["call", "it", "--args", &script.to_string(), "--self-confine"])
    };
    let named = asks(&format!("[{{ host: \"localhost:{port}\", private: true }}]"));
    // Without a view there is nothing to hold it with, and that is said.
    if !standing(&project("{ allow: [bash] }")).contains("view") {
        assert!(named.code != 0 && named.err.contains("gives commands no network of their own"), "{named}");
        return;
    }
    assert_eq!((named.code, named.out.as_str()), (0, "hello\n"), "{named}");
    for other in ["[example.com]", "[]", "false"] {
        let ran = asks(other);
        assert_eq!((ran.code, ran.out.as_str()), (0, "\n"), "{other}: {ran}");
    }
    let ran = asks("[{ host: example.com, methods: [GET] }]");
    assert!(ran.code != 0 && ran.err.contains("cannot be enforced: commands encrypt what they send"), "{ran}");
}

#[test]
fn unconfined_commands_are_told_everywhere() {
    let loud = project("{ allow: [sh, \"git *\"], unconfined: true }");
    let quiet = project("{ allow: [sh] }");
    let warning = "warning: `sandbox.exec.unconfined` in `.harness/harness.md`: no kernel wall surrounds sh, git *";
    let ran = loud.run(&["validate"]);
    assert!(ran.code == 0 && ran.err.contains(warning), "{ran}");
    assert_eq!(loud.run(&["validate", "--strict"]).code, 2);
    assert_eq!(loud.run(&["validate", "--json"]).json()["problems"][0]["severity"], json!("warning"));
    assert_eq!(quiet.run(&["validate", "--strict"]).err, "");

    let ran = loud.run(&["call", "it", "script=echo hi", "--explain"]);
    for line in ["\ncommands run unconfined: no kernel wall surrounds them\n", ", commands unconfined\n"] {
        assert!(ran.out == "hi\n" && ran.err.contains(line), "{ran}");
    }
    let ran = quiet.run(&["call", "it", "script=echo hi", "--explain"]);
    let behind = format!(", commands behind {}\n", standing(&quiet));
    assert!(ran.err.contains(&behind) && !ran.err.contains("unconfined"), "{ran}");

    let commands = |project: &Project| {
        let found = project.run(&["doctor", "--json"]).json();
        found["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == "commands").unwrap().clone()
    };
    let what = "granted to the project's own tools, unconfined: without a wall";
    assert_eq!(commands(&loud), json!({"name": "commands", "ok": false, "what": what}));
    assert_eq!(commands(&quiet)["ok"], json!(true));
}

/// A command that is not where commands see it is told with the key that opens its folder.
#[test]
fn a_program_out_of_sight_is_told_with_what_opens_its_folder() {
    let tools = tempfile::tempdir().unwrap();
    let folder = tools.path().canonicalize().unwrap();
    let tool = folder.join("mytool");
    std::fs::write(&tool, "#!/bin/sh\necho works\n").unwrap();
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let run = |folders: &str| {
        let policy = format!("sandbox:\n  exec: {{ allow: [mytool], env: [PATH], folders: [{folders}] }}\n");
        let project =
            Project::with_script("def run(args):\n    return exec.run('mytool', [])['stdout']\n").policy(&policy);
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let output = project.command(&["call", "it"]).env("PATH", path).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (_, err) = run("");
    let hint = "`mytool` is in none of the folders that commands see; add the folder that it is installed in to \
                `sandbox.exec.folders` in `.harness/harness.md`";
    assert!(err.contains(hint), "{err}");
    let (out, err) = run(folder.to_str().unwrap());
    assert_eq!(out, "works\n", "{err}");
}

/// What a process says of its filters, from when it has one, or this file is there, or it ends; then it is ended.
fn filters(mut host: Child, until: Option<PathBuf>) -> Vec<String> {
    let mut status = String::new();
    for _ in 0..2_000 {
        std::thread::sleep(Duration::from_millis(5));
        status = std::fs::read_to_string(format!("/proc/{}/status", host.id())).unwrap();
        let there = until.as_ref().is_some_and(|file| file.exists());
        if status.contains("Seccomp:\t2") || there || status.contains("State:\tZ") {
            break;
        }
    }
    host.kill().unwrap();
    host.wait().unwrap();
    let lines = status.lines().filter(|line| line.starts_with("Seccomp:") || line.starts_with("NoNewPrivs:"));
    lines.map(|line| line.replace('\t', " ")).collect()
}

fn started(project: &Project, arguments: &[&str]) -> Child {
    project.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// While a call runs, its process holds filters, unless it was asked not to.
#[test]
fn the_host_confines_itself() {
    let script = "def run(args):\n    log.info('waiting')\n    sleep(60000)\n";
    for policy in ["sandbox: { services: [clock] }\n", "sandbox: { exec: { allow: [sh] }, services: [clock] }\n"] {
        let project = Project::with_script(script).policy(policy);
        for call in [&["call", "it"][..], &["call", "it", "--self-confine"], &["policy", "learn", "--", "call", "it"]] {
            assert_eq!(filters(started(&project, call), None), ["NoNewPrivs: 1", "Seccomp: 2"], "{policy} {call:?}");
        }
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        let filtered = if own.contains("Seccomp:\t2") { "Seccomp: 2" } else { "Seccomp: 0" };
        // The last that is done before the script runs, where nothing is given up.
        let project = Project::with_script(script).policy(policy);
        let audit = project.path(".harness/audit");
        let call = ["call", "it", "--no-self-confine"];
        assert_eq!(filters(started(&project, &call), Some(audit))[1], filtered, "{policy}");
    }
}

/// What the kernel says of each thread of a process, when its call runs; then it is ended.
fn threads(mut host: Child) -> Vec<(String, Vec<String>)> {
    let field = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.unwrap_or_default().to_owned()
    };
    let mut found = Vec::new();
    for _ in 0..2_000 {
        std::thread::sleep(Duration::from_millis(5));
        let tasks = std::fs::read_dir(format!("/proc/{}/task", host.id())).unwrap();
        let told = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok());
        let held = ["NoNewPrivs", "Seccomp", "CapPrm", "CapEff", "CapBnd"];
        found = told.map(|told| (field(&told, "Name"), held.map(|name| field(&told, name)).to_vec())).collect();
        if found.iter().any(|(name, _)| name == "harness-ticker") {
            break;
        }
    }
    host.kill().unwrap();
    host.wait().unwrap();
    found
}

/// Of a host that runs as root and starts no program, every thread has the same few privileges: to read and change files
/// of others.
#[test]
fn every_thread_is_held() {
    let script = "def run(args):\n    sleep(60000)\n";
    let project = Project::with_script(script).policy("sandbox: { services: [clock] }\n");
    let few = |name: &str| {
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t")).unwrap().to_owned();
        format!("{:016x}", u64::from_str_radix(&own, 16).unwrap() & 0b1010)
    };
    let root = rustix::process::getuid().is_root();
    let found = threads(started(&project, &["call", "it", "--self-confine"]));
    assert!(found.len() > 1, "{found:?}");
    for (name, held) in &found {
        let [privileges, filters, permitted, effective, bound] = held.as_slice() else { panic!("{held:?}") };
        assert_eq!((privileges.as_str(), filters.as_str()), ("1", "2"), "{name}");
        assert_eq!((permitted, effective), (&few("CapPrm"), &few("CapEff")), "{name}");
        assert!(!root || *bound == few("CapBnd"), "{name}: {bound}");
    }
    let free = threads(started(&project, &["call", "it", "--no-self-confine"]));
    assert!(free.iter().all(|(_, held)| held[0] == "0" && held[2] >= few("CapPrm")), "{free:?}");
}

/// Sockets are for who has a use for them.
#[test]
fn what_is_given_up_is_told() {
    let told = |policy: &str| {
        let found = Project::new().policy(policy).run(&["doctor", "--json"]).json();
        let host = found["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == "host").unwrap();
        let told = host["what"].as_str().unwrap().strip_prefix("drops before it runs scripts: ").unwrap();
        told.split(", ").map(str::to_owned).collect::<Vec<_>>()
    };
    for (policy, sockets) in [
        ("sandbox: {}\n", "sockets"),
        ("model: { provider: script, script: r.yaml }\n", "sockets"),
        ("model: { provider: openai, name: m }\n", "sockets except internet sockets"),
        ("network: { allowed_domains: [example.com] }\n", "sockets except internet sockets"),
        ("network: { allowed_domains: [] }\nsandbox: { exec: { network: true } }\n", "sockets"),
    ] {
        let kept =
            ["system calls into the kernel and other processes", "starting programs", "signals to other processes"];
        let told = told(policy);
        assert_eq!(told[..3], kept, "{policy}");
        assert_eq!(told[3..5], ["privileges except those over files", sockets], "{policy}");
    }
    let commands = told("sandbox: { exec: { allow: [sh], network: true } }\n");
    assert!(commands[1].starts_with("raw sockets; files stay accessible"), "{commands:?}");
    let commands = told("sandbox: { exec: { allow: [sh] } }\n");
    assert!(commands[1].starts_with("sockets; files stay accessible"), "{commands:?}");
}

/// So does every other process that runs scripts, or loads them; these start no programs, whatever is granted.
#[test]
fn so_does_what_checks_tests_and_replays() {
    const LONG: &str = "sandbox: { exec: { allow: [sh] }, limits: { timeout_ms: 1500, fuel: 1000000000000 } }\n";
    const LOOPS: &str = "def run(args):\n    for i in range(1 << 40):\n        pass\n";
    let case = "tests:\n  - name: it ends\n    args: {}\n    expect: { result: null }\n";
    let replies = "- { tool_calls: [{ name: it, args: {} }] }\n- text: done\n";
    let project = Project::new()
        .policy(&format!("model: {{ provider: script, script: replies.yaml }}\n{LONG}"))
        .file("replies.yaml", replies)
        .tool("it", case, LOOPS)
        .tool("slow", "", "x = [i for i in range(1 << 40)]\ndef run(args):\n    return 1\n");
    let ran = project.run(&["run", "go"]);
    assert_eq!(ran.code, 0, "{ran}");
    for arguments in [&["test", "it"][..], &["test", "it", "--watch"], &["validate"], &["sessions", "replay"]] {
        let told = filters(started(&project, arguments), None);
        assert_eq!(told, ["NoNewPrivs: 1", "Seccomp: 2"], "{arguments:?}");
        let told = filters(started(&project, &[arguments, &["--no-self-confine"]].concat()), None);
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(told[1] == "Seccomp: 2", own.contains("Seccomp:\t2"), "{arguments:?}");
    }
    // What it does in the end it still can: the file of results is written where it was asked for.
    let junit = project.run(&["test", "it", "--junit", "it.xml"]);
    assert_eq!((junit.code, project.path("it.xml").exists()), (1, true), "{junit}");
    let replayed = project.run(&["sessions", "replay"]);
    assert_eq!(replayed.code, 0, "{replayed}");
}

/// The binary on a machine whose kernel does not have this system call.
#[expect(unsafe_code, reason = "a filter that only the binary is to have")]
fn without(call: i64, project: &Project, arguments: &[&str]) -> Ran {
    let rules = BTreeMap::from([(call, Vec::new())]);
    let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let machine = std::env::consts::ARCH.try_into().unwrap();
    let filter: BpfProgram =
        SeccompFilter::new(rules, SeccompAction::Allow, missing, machine).unwrap().try_into().unwrap();
    let mut command = project.command(arguments);
    // SAFETY: two system calls, and nothing that allocates or takes a lock where it goes well.
    unsafe { command.pre_exec(move || seccompiler::apply_filter(&filter).map_err(|_| io::ErrorKind::Other.into())) };
    project.ran(&command.output().unwrap())
}

/// What `doctor` says of these there.
fn found(call: i64, project: &Project, names: &[&str]) -> Json {
    let ran = without(call, project, &["doctor", "--json"]);
    let findings = ran.json()["findings"].as_array().unwrap().clone();
    findings.into_iter().filter(|finding| names.contains(&finding["name"].as_str().unwrap())).collect()
}

/// Where the kernel cannot take files from the host, who insists on it gets no call; others are told by `doctor`.
#[test]
fn without_landlock_the_host_keeps_its_files_and_says_so() {
    let project = Project::new().tool("it", "", FINE).policy("");
    let call = libc::SYS_landlock_create_ruleset;
    insta::assert_snapshot!(without(call, &project, &["call", "it", "--self-confine"]), @r"
    exit 5
    --- stdout
    --- stderr
    error: this process cannot drop its privileges: files stay accessible, because there is no Landlock

    hint: without `--self-confine`, the process drops the privileges that the machine lets it drop
    ");
    without(call, &project, &["call", "it"]).gives("fine");
    assert_eq!(
        found(call, &project, &["landlock", "host"]),
        json!([
            { "name": "landlock", "ok": false, "what": "not available: only namespaces confine files" },
            { "name": "host", "ok": false, "what": "drops before it runs scripts: system calls into the kernel and other processes, starting programs, signals to other processes, privileges except those over files, sockets; files stay accessible, because there is no Landlock" },
        ])
    );
    // Where it is there, nobody is refused for another call that the kernel lacks.
    if harness_sys::landlock_version().is_some() {
        without(libc::SYS_acct, &project, &["call", "it", "--self-confine"]).gives("fine");
    }
}

/// Where the kernel takes no filters, the host keeps its system calls, and no command runs.
#[test]
fn without_filters_the_host_keeps_its_calls_and_commands_do_not_run() {
    let project = project("{ allow: [sh] }");
    // The same call, with filters and a wall.
    let _ = standing(&project);
    project.run(&["call", "it", "script=echo hi", "--self-confine"]).gives("hi");
    let call = libc::SYS_seccomp;
    insta::assert_snapshot!(without(call, &project, &["call", "fine", "--self-confine"]), @r"
    exit 5
    --- stdout
    --- stderr
    error: this process cannot drop its privileges: filters of system calls: Error calling `seccomp`: Function not implemented (os error 38)

    hint: without `--self-confine`, the process drops the privileges that the machine lets it drop
    ");
    insta::assert_snapshot!(without(call, &project, &["call", "fine"]), @r"
    exit 0
    --- stdout
    fine
    --- stderr
    note: this process keeps privileges that it does not need: filters of system calls: Error calling `seccomp`: Function not implemented (os error 38)
    ");
    let lacks =
        "the kernel lacks filters of system calls (the kernel takes none: Function not implemented (os error 38))";
    let refused = format!("exec.run: cannot start the command: it cannot be confined: {lacks}");
    without(call, &project, &["call", "it", "script=echo hi"]).says(1, &refused);
    assert_eq!(
        found(call, &project, &["filters", "second wall", "host"]),
        json!([
            { "name": "filters", "ok": false, "what": "no filters of system calls: the kernel takes none: Function not implemented (os error 38)" },
            { "name": "second wall", "ok": false, "what": format!("no command runs, unless `exec.unconfined` is true: {lacks}") },
            { "name": "host", "ok": false, "what": "keeps its system calls: the kernel takes none: Function not implemented (os error 38)" },
        ])
    );
}
