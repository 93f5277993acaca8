//! What a workspace may hold, and what fills it: scripts, commands, clients, one after another and all at once.

use std::path::Path;
use std::sync::Arc;

use harness_testing::skip::{Need, skipped};
use harness_wall::Offers;
use serde_json::{Value as Json, json};

use crate::project::Project;
use crate::site::{Site, Tenant, problem};

/// A tool that does one thing after another with files, and answers how often it did not fail: a failure ends it.
const STEPS: &str = "def run(args):\n    for step in args['steps']:\n        op, path, more = step[0], step[1], step[2]\n        \
                     if op == 'write':\n            fs.write(path, 'x' * more)\n        \
                     elif op == 'append':\n            fs.append(path, 'x' * more)\n        \
                     elif op == 'remove':\n            fs.remove(path)\n        \
                     elif op == 'mkdir':\n            fs.mkdir(path)\n        \
                     elif op == 'copy':\n            fs.copy(path, more)\n        \
                     elif op == 'move':\n            fs.move(path, more)\n        \
                     else:\n            fail(op)\n    return 'done'\n";
const PARAMETERS: &str = "parameters: { steps: { type: array } }\n";

fn site(quota: &str) -> Site {
    Site::with_config(&format!("classes: {{ default: {{ {quota}, concurrent_calls: 200 }} }}\n"))
}

fn project() -> Project {
    Project::new().tool("it", PARAMETERS, STEPS)
}

/// Files, folders and links, and bytes of files, as the disk has them.
fn on_disk(folder: &Path) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        files += 1;
        if metadata.is_dir() {
            let (inner, more) = on_disk(&entry.path());
            (files, bytes) = (files + inner, bytes + more);
        } else if metadata.is_file() {
            bytes += metadata.len();
        }
    }
    (files, bytes)
}

/// The same as `/v1/usage` says.
fn used(site: &Site, tenant: &Tenant) -> (u64, u64) {
    let usage = site.get(&tenant.key, "/v1/usage").json();
    let of = |what: &str| usage["workspaces"][0][what]["used"].as_u64().unwrap();
    (of("files"), of("bytes"))
}

/// That a call ended so, and that what is counted is what is there.
#[track_caller]
fn ends(site: &Site, tenant: &Tenant, steps: &Json, outcome: &str, holds: (u64, u64)) -> Json {
    let answered = site.call(&tenant.key, "it", json!({"steps": steps})).json();
    assert_eq!(answered["outcome"], outcome, "{steps}: {answered}");
    let folder = site.data().join("tenants").join(&tenant.id).join("workspace");
    assert_eq!((used(site, tenant), on_disk(&folder)), (holds, holds), "{steps}: {answered}");
    answered
}

const BYTES: &str = "set by the class `default` of the tenant";

#[test]
fn a_script_fills_it_to_the_last_byte_and_file_and_no_further() {
    let site = site("workspace_bytes: 100, workspace_files: 6");
    let acme = site.tenant("acme", &project());
    let done = |steps: Json, holds| ends(&site, &acme, &steps, "completed", holds);
    let denied = |steps: Json, holds| ends(&site, &acme, &steps, "denied", holds);
    done(json!([["write", "a", 60], ["write", "b", 40]]), (2, 100));
    let refused = denied(json!([["write", "c", 1]]), (2, 100));
    let error = &refused["error"];
    assert!(
        error["message"].as_str().unwrap().contains(&format!(
            "the workspace is full: it would have 101 of 100 bytes, the limit `workspace_bytes`, {BYTES}"
        )),
        "{error}"
    );
    assert_eq!(error["hint"], "remove files of the workspace, or ask the operator for a larger `workspace_bytes`");
    // Nothing of a refused write is left, also not the folders on its way; what was there stays.
    denied(json!([["write", "d/e/f", 1]]), (2, 100));
    denied(json!([["append", "a", 1]]), (2, 100));
    denied(json!([["write", "a", 61]]), (2, 100));
    assert_eq!(site.get(&acme.key, "/v1/files/a").body, "x".repeat(60));
    // A file that is replaced counts by its difference, a removal gives back, and an empty file takes no byte.
    done(json!([["write", "a", 60], ["write", "a", 10]]), (2, 50));
    done(json!([["append", "a", 50], ["write", "empty", 0]]), (3, 100));
    denied(json!([["copy", "b", "copied"]]), (3, 100));
    done(json!([["remove", "a", 0], ["copy", "b", "copied"]]), (3, 80));
    // Moved, it is what it was; folders count as files.
    done(json!([["move", "copied", "moved"], ["mkdir", "x/y", 0]]), (5, 80));
    done(json!([["append", "x/y/new", 20]]), (6, 100));
    for steps in [
        json!([["write", "one", 0]]),
        json!([["append", "one", 0]]),
        json!([["mkdir", "one", 0]]),
        json!([["copy", "empty", "one"]]),
        json!([["move", "empty", "z/one"]]),
    ] {
        let refused = denied(steps, (6, 100));
        let message = refused["error"]["message"].as_str().unwrap().to_owned();
        assert!(
            message.contains("it would have 7 of 6 files, folders and links, the limit `workspace_files`"),
            "{message}"
        );
    }
    done(json!([["move", "empty", "x/one"]]), (6, 100));
    // A folder is copied whole or not at all.
    denied(json!([["copy", "x", "z"]]), (6, 100));
    done(json!([["remove", "b", 0], ["remove", "moved", 0], ["remove", "x/one", 0]]), (3, 20));
    done(json!([["copy", "x", "z"]]), (6, 40));
    denied(
        json!([
            ["remove", "x/y/new", 0],
            ["remove", "x/y", 0],
            ["mkdir", "1", 0],
            ["mkdir", "2", 0],
            ["mkdir", "3", 0]
        ]),
        (6, 20),
    );
}

#[test]
fn clients_and_scripts_have_one_quota_and_other_tenants_their_own() {
    let site = site("workspace_bytes: 100, workspace_files: 3");
    let (acme, other) = (site.tenant("acme", &project()), site.tenant("other", &project()));
    let put = |path: &str, length: usize| {
        site.ask(&acme.key, &format!("PUT /v1/files/{path}"), &json!("x".repeat(length - 2)))
    };
    ends(&site, &acme, &json!([["write", "a", 60]]), "completed", (1, 60));
    let refused = put("b", 41);
    assert_eq!(problem(&refused), (507, "quota".to_owned()));
    let json = refused.json();
    assert_eq!(json["limit"], "workspace_bytes");
    assert_eq!(json["set_by"], "the class `default` of the tenant");
    assert_eq!(
        json["detail"],
        format!("the workspace is full: it would have 101 of 100 bytes, the limit `workspace_bytes`, {BYTES}")
    );
    assert_eq!(put("b", 40).status, 200);
    ends(&site, &acme, &json!([["append", "b", 1]]), "denied", (2, 100));
    assert_eq!(site.ask(&acme.key, "DELETE /v1/files/a", &Json::Null).status, 200);
    ends(&site, &acme, &json!([["write", "c", 0], ["write", "d", 60]]), "completed", (3, 100));
    assert_eq!(put("e", 2).json()["limit"], "workspace_bytes");
    ends(&site, &other, &json!([["write", "a", 100]]), "completed", (1, 100));
    // What the operator put there counts from the next start on.
    std::fs::remove_file(site.data().join("tenants/acme/workspace/d")).unwrap();
    std::fs::write(site.data().join("tenants/acme/workspace/c"), "x".repeat(59)).unwrap();
    site.signal(rustix::process::Signal::TERM);
    let site = site.again();
    assert_eq!(used(&site, &acme), (2, 99));
    ends(&site, &acme, &json!([["write", "d", 2]]), "denied", (2, 99));
    ends(&site, &acme, &json!([["write", "d", 1]]), "completed", (3, 100));
}

/// As many as there is room for, in any order; and what is counted is exactly what is there, whatever replaces, moves
/// and removes what others write.
#[test]
fn many_at_once_take_no_more_than_there_is() {
    let site = Arc::new(site("workspace_bytes: 1000, workspace_files: 20"));
    let acme = Arc::new(site.tenant("acme", &project()));
    let call = |steps: Json| {
        let (site, acme) = (site.clone(), acme.clone());
        std::thread::spawn(move || {
            site.call(&acme.key, "it", json!({"steps": steps})).json()["outcome"].as_str().unwrap().to_owned()
        })
    };
    let all = |calls: Vec<std::thread::JoinHandle<String>>| -> Vec<String> {
        calls.into_iter().map(|one| one.join().unwrap()).collect()
    };
    let workspace = site.data().join("tenants/acme/workspace");
    let made = all((0..40).map(|n| call(json!([["write", format!("f{n}"), 100]]))).collect());
    assert_eq!(made.iter().filter(|outcome| *outcome == "completed").count(), 10, "{made:?}");
    assert_eq!((used(&site, &acme), on_disk(&workspace)), ((10, 1000), (10, 1000)));
    for entry in std::fs::read_dir(&workspace).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert_eq!(site.ask(&acme.key, &format!("DELETE /v1/files/{name}"), &Json::Null).status, 200);
    }
    for round in 0..4 {
        let steps = (0..40).map(|n| match n % 8 {
            0 => json!([["write", "shared", 300 + n], ["write", "shared", n]]),
            1 => json!([["append", "shared", 30 + n]]),
            2 => json!([["remove", "shared", 0]]),
            3 => json!([["move", "shared", format!("m{n}")], ["remove", format!("m{n}"), 0]]),
            4 => json!([["copy", "shared", format!("c{round}-{n}")]]),
            5 => json!([["write", format!("d{n}/e"), n], ["copy", format!("d{n}"), format!("g{n}")]]),
            6 => json!([["mkdir", format!("d{}", n - 1), 0], ["move", format!("d{}", n - 1), "moved"]]),
            _ => json!([["write", format!("c{round}-{}", n - 3), 7 * n]]),
        });
        all(steps.map(call).collect());
        let there = on_disk(&workspace);
        assert!(there.0 <= 20 && there.1 <= 1000, "{there:?}");
        assert_eq!(used(&site, &acme), there, "round {round}");
    }
}

/// A class whose tenants may run a shell.
fn with_commands(quota: &str) -> Site {
    let class = "network: { allowed_domains: [] }\nsandbox: { exec: { allow: [sh] }, env: [] }\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("class.yaml"), class).unwrap();
    let config = format!("classes: {{ default: {{ policy: class.yaml, {quota} }} }}\n");
    std::fs::write(folder.path().join("serve.yaml"), config).unwrap();
    Site::start(Arc::new(folder), &[])
}

fn with_shell() -> Project {
    let shell = "def run(args):\n    return exec.run('sh', ['-c', args['line']], timeout_ms=60000)\n";
    let line = "timeout_ms: 60000\nparameters: { line: { type: string } }\n";
    let reads = format!("{line}capabilities: {{ fs: {{ read: ['.'], write: [] }}, exec: {{ allow: [sh] }} }}\n");
    let policy = "sandbox: { exec: { allow: [sh] } }\n";
    project().policy(policy).tool("sh", line, shell).tool("look", &reads, shell)
}

#[test]
fn what_a_command_writes_is_counted_and_refuses_what_comes_after() {
    if skipped(Need::Namespaces, Offers::get().namespaces.is_ok()) {
        return;
    }
    let site = with_commands("workspace_bytes: 1000, workspace_files: 8");
    let acme = site.tenant("acme", &with_shell());
    let run = |tool: &str, line: &str| site.call(&acme.key, tool, json!({"line": line})).json();
    let ran = |line: &str| {
        let ran = run("sh", line);
        assert_eq!((&ran["outcome"], &ran["result"]["exit_code"]), (&json!("completed"), &json!(0)), "{line}: {ran}");
    };
    let full = |answer: &Json, limit: &str| {
        assert_eq!(answer["outcome"], "denied", "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("the workspace is full: it has more than") && message.contains(limit), "{message}");
    };
    let steps = |steps: Json| site.call(&acme.key, "it", json!({"steps": steps})).json();
    let disk = || on_disk(&site.data().join("tenants/acme/workspace"));
    // What it writes within the quota is counted.
    ran("head -c 900 /dev/zero > a");
    assert_eq!((used(&site, &acme), disk()), ((1, 900), (1, 900)));
    assert_eq!(steps(json!([["write", "b", 101]]))["outcome"], "denied");
    assert_eq!(steps(json!([["write", "b", 100]]))["outcome"], "completed");
    // Over it, nothing is written until something is removed or made smaller; what only reads runs.
    let (bytes, files) = ("`workspace_bytes`", "`workspace_files`");
    for (fill, limit, helps) in [
        ("head -c 1500 /dev/zero > a", bytes, json!([["write", "a", 900]])),
        ("rm a; truncate -s 5M a", bytes, json!([["remove", "a", 0]])),
        ("rm a; head -c 400 /dev/zero > a; ln a a2; ln a a3", bytes, json!([["remove", "a", 0]])),
        ("for n in 1 2 3 4 5 6 7 8; do mkdir a$n; done", files, json!([["remove", "a1", 0], ["remove", "a2", 0]])),
        ("mkdir -p d/e; head -c 901 /dev/zero > d/e/a; ln -s d/e/a al", bytes, json!([["remove", "d/e/a", 0]])),
        ("mkdir d; head -c 2000 /dev/zero > d/a; chmod 0 d", bytes, json!([["remove", "d/a", 0]])),
    ] {
        let filled = run("sh", fill);
        // On a slow machine it is seen before the command's own end.
        if filled["outcome"] != "completed" {
            full(&filled, limit);
        }
        full(&run("sh", "true"), limit);
        full(&steps(json!([["write", "c", 0]])), limit);
        full(&steps(json!([["mkdir", "c", 0]])), limit);
        full(&steps(json!([["append", "b", 1]])), limit);
        assert_eq!(problem(&site.ask(&acme.key, "PUT /v1/files/c", &json!(""))), (507, "quota".to_owned()));
        assert_eq!(run("look", "true")["outcome"], "completed", "{fill}");
        assert_eq!(steps(helps)["outcome"], "completed", "{fill}");
        ran("rm -rf a* d; head -c 100 /dev/zero > a");
        assert_eq!((used(&site, &acme), disk()), ((2, 200), (2, 200)), "{fill}");
    }
}

/// A command that fills the workspace is ended before its own end.
#[test]
fn a_command_that_writes_too_much_is_ended() {
    if skipped(Need::Namespaces, Offers::get().namespaces.is_ok()) {
        return;
    }
    let site = with_commands("workspace_bytes: 1000");
    let acme = site.tenant("acme", &with_shell());
    let endless = "head -c 2000 /dev/zero > a; while true; do sleep 1; done";
    let answer = site.call(&acme.key, "sh", json!({"line": endless})).json();
    assert_eq!(answer["outcome"], "denied", "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("it has more than 1000 bytes"), "{answer}");
    assert_eq!(site.ask(&acme.key, "DELETE /v1/files/a", &Json::Null).status, 200);
    assert_eq!(site.call(&acme.key, "sh", json!({"line": "true"})).json()["outcome"], "completed");
}
