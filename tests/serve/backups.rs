//! Backups, and what is restored of one.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::runs::agent;
use crate::site::{Site, Tenant, problem};

/// A server with two tenants that have all that can be kept, its backup `b`, and a run of the first one.
fn backed_up() -> (Site, [Tenant; 2], String) {
    let site = Site::open();
    let tenants = ["acme", "other"].map(|id| site.tenant(id, &agent("")));
    for tenant in &tenants {
        assert_eq!(site.ask(&tenant.key, "PUT /v1/files/notes/a.md", &json!(tenant.id)).status, 200);
        assert_eq!(site.ask(&tenant.key, "PUT /v1/secrets/TOKEN", &json!({"value": "mark-secret"})).status, 200);
        assert_eq!(site.result(&tenant.key, "it", json!({})), "fine");
    }
    let run = site.begin(&tenants[0].key, "do it");
    site.ended(&tenants[0].key, &run);
    symlink("notes/a.md", site.data().join("tenants/acme/workspace/link")).unwrap();
    let pipe = site.data().join("tenants/acme/workspace/pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (code, out, err) = site.harness(&["admin", "backup", "b", "--data", "data", "--verify"], "");
    assert_eq!(code, 0, "{out}{err}");
    let answers: Vec<Json> = serde_json::Deserializer::from_str(&out).into_iter().map(Result::unwrap).collect();
    assert_eq!((&answers[0]["tenants"], &answers[0]["left_out"]), (&json!(2), &json!(1)), "{out}");
    let why = "it is neither a file nor a folder";
    assert_eq!(answers[0]["such_as"], json!([{"path": "tenants/acme/workspace/pipe", "why": why}]));
    assert_eq!((&answers[1]["whole"], &answers[1]["faults"]), (&json!(true), &json!([])), "{out}");
    (site, tenants, run)
}

/// `harness admin restore` in the folder of a site: its code, what it prints as JSON, and its errors.
fn restore(site: &Site, words: &[&str]) -> (i32, Json, String) {
    let (code, out, err) = site.harness(&[&["admin", "restore"], words].concat(), "");
    (code, if out.is_empty() { Json::Null } else { serde_json::from_str(&out).unwrap() }, err)
}

/// All below a folder: a file with its bytes, a link with what it leads to, a folder with neither.
fn tree(folder: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(at) = waiting.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let content = if kind.is_symlink() {
                Some(std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes())
            } else if kind.is_file() {
                Some(std::fs::read(&path).unwrap())
            } else {
                None
            };
            if kind.is_dir() {
                waiting.push(path.clone());
            }
            found.push((path.strip_prefix(folder).unwrap().to_owned(), content));
        }
    }
    found.sort();
    found
}

#[test]
fn what_is_restored_is_what_was_backed_up() {
    let (mut site, [acme, other], run) = backed_up();
    let (record, events) = (site.get(&acme.key, &format!("/v1/runs/{run}")).json(), site.events(&acme.key, &run, ""));
    let (audit, session) = (site.get(&acme.key, "/v1/audit").body, record["session"].as_str().unwrap().to_owned());
    // What comes after the backup is not in it.
    assert_eq!(site.ask(&acme.key, "PUT /v1/files/notes/a.md", &json!("later")).status, 200);
    let operator = site.operator();
    site.kill();
    let new = Arc::new(tempfile::tempdir().unwrap());
    std::fs::write(new.path().join("serve.yaml"), "").unwrap();
    let data = new.path().join("data");
    let to = ["--data", data.to_str().unwrap(), "--sealing-key", "data/sealing.key"];
    let (code, report, err) = restore(&site, &[&["data/backups/b"][..], &to].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{report}");
    let parts: Vec<&str> = report["checked"].as_array().unwrap().iter().map(|c| c["part"].as_str().unwrap()).collect();
    assert_eq!(parts, ["files", "store", "tenants", "audit", "secrets"], "{report}");
    let what =
        |part: &str| report["checked"].as_array().unwrap().iter().find(|c| c["part"] == part).unwrap()["what"].clone();
    assert_eq!(what("tenants"), "2 tenants and 3 keys");
    assert_eq!(what("secrets"), "2 opened with the sealing key");
    assert!(what("audit").as_str().unwrap().starts_with("3 unbroken logs with "), "{report}");
    assert!(what("files").as_str().unwrap().ends_with("; 1 were left out of it"), "{report}");
    for (path, mode) in [("", 0o700), ("store.db", 0o600), ("sealing.key", 0o600), ("tenants", 0o700)] {
        let there = std::fs::metadata(data.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(there, mode, "{path}");
    }
    assert_eq!(std::fs::read_link(data.join("tenants/acme/workspace/link")).unwrap(), Path::new("notes/a.md"));
    std::fs::write(data.join("admin.key"), &operator).unwrap();
    let site = Site::start(new, &[]);
    assert_eq!(site.get(&acme.key, &format!("/v1/runs/{run}")).json(), record);
    assert_eq!(site.events(&acme.key, &run, ""), events);
    assert_eq!(site.get(&acme.key, "/v1/audit").body, audit);
    for tenant in [&acme, &other] {
        assert_eq!(site.get(&tenant.key, "/v1/files/notes/a.md").body, format!("\"{}\"", tenant.id));
        assert_eq!(site.get(&tenant.key, "/v1/secrets").json(), json!({"secrets": ["TOKEN"]}));
        // A project opens only with all of its secrets.
        assert_eq!(site.result(&tenant.key, "it", json!({})), "fine");
    }
    let next = site.ask(&acme.key, "POST /v1/runs", &json!({"input": "again", "session": session})).json();
    let next = site.ended(&acme.key, next["id"].as_str().unwrap());
    assert_eq!(next["state"], "completed", "{next}");
    // Its logs continue, and it can be backed up again.
    assert_eq!(site.harness(&["admin", "audit", "--data", "data"], "").0, 0);
    let (code, out, err) = site.harness(&["admin", "backup", "again", "--data", "data", "--verify"], "");
    assert_eq!(code, 0, "{out}{err}");
    assert!(tree(&site.data().join("backups")).iter().all(|(path, _)| path.starts_with("again")));
}

#[test]
fn a_byte_that_turned_in_any_part_is_found_and_nothing_is_restored() {
    let (mut site, ..) = backed_up();
    site.kill();
    let backup = site.data().join("backups/b");
    let verify = || restore(&site, &["data/backups/b", "--verify", "--sealing-key", "data/sealing.key"]);
    let whole = |(code, report, err): (i32, Json, String)| assert_eq!((code, err.as_str()), (0, ""), "{report}");
    whole(verify());
    let faults = |report: &Json| -> Vec<String> {
        let all = report["faults"].as_array().unwrap();
        all.iter().map(|fault| fault["part"].as_str().unwrap().to_owned()).collect()
    };
    let before = tree(&backup);
    let files: Vec<&PathBuf> = before.iter().filter_map(|(path, bytes)| bytes.as_ref().map(|_| path)).collect();
    assert!(files.len() > 12, "{files:?}");
    for path in files {
        let file = backup.join(path);
        let bytes = std::fs::read(&file).unwrap();
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            let mut turned = bytes.clone();
            turned[at] ^= 1;
            std::fs::write(&file, &turned).unwrap();
            let (code, report, err) = verify();
            assert_eq!((code, &report["whole"]), (1, &json!(false)), "{path:?} at {at}: {report}");
            assert!(faults(&report).contains(&path.to_str().unwrap().to_owned()), "{path:?} at {at}: {report}");
            assert!(err.starts_with("error: the backup `data/backups/b` is not whole\n"), "{err}");
            let to = ["data/backups/b", "--data", "new", "--sealing-key", "data/sealing.key"];
            assert_eq!(restore(&site, &to).0, 1);
            assert!(!site.folder().join("new").exists());
        }
        std::fs::remove_file(&file).unwrap();
        let (code, report, _) = verify();
        assert_eq!((code, faults(&report).contains(&path.to_str().unwrap().to_owned())), (1, true), "without {path:?}");
        std::fs::write(&file, &bytes).unwrap();
    }
    // What came to it later, and what is something else.
    let more = backup.join("tenants/acme/workspace/more");
    std::fs::write(&more, "").unwrap();
    let why = "it is no part of the backup";
    assert_eq!(verify().1["faults"], json!([{"part": "tenants/acme/workspace/more", "why": why}]));
    std::fs::remove_file(&more).unwrap();
    symlink("/etc/passwd", &more).unwrap();
    assert_eq!(verify().1["faults"], json!([{"part": "tenants/acme/workspace/more", "why": why}]));
    std::fs::remove_file(&more).unwrap();
    whole(verify());
    assert_eq!(tree(&backup), before);
}

/// Parts are checked by themselves too, and not only against the list.
#[test]
fn what_was_wrong_before_the_backup_is_found() {
    let (site, [acme, _], _) = backed_up();
    // A log that someone has cut, in the folder of a server that runs.
    let log = site.data().join("tenants/other/project/.harness/audit/000001.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, text.replace("\"it\"", "\"at\"")).unwrap();
    let (code, _, err) = site.harness(&["admin", "backup", "broken", "--data", "data", "--verify"], "");
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("tenants/other/project/.harness/audit: 000001.jsonl:1: "), "{err}");
    assert!(!err.contains("acme"), "{err}");
    std::fs::write(&log, text).unwrap();
    // Another key opens no secret, and what is no key is none.
    let other = site.folder().join("other.key");
    std::fs::write(&other, "0".repeat(64)).unwrap();
    let (code, report, _) = restore(&site, &["data/backups/b", "--verify", "--sealing-key", "other.key"]);
    let faults: Vec<&str> = report["faults"].as_array().unwrap().iter().map(|f| f["part"].as_str().unwrap()).collect();
    assert_eq!((code, faults), (1, vec!["secret `acme/TOKEN`", "secret `other/TOKEN`"]));
    std::fs::write(&other, "nonsense").unwrap();
    let (code, _, err) = restore(&site, &["data/backups/b", "--verify", "--sealing-key", "other.key"]);
    assert_eq!((code, err.as_str()), (2, "error: a sealing key is 64 hexadecimal digits\n"));
    assert_eq!(site.result(&acme.key, "it", json!({})), "fine");
}

#[test]
fn a_restore_replaces_nothing_and_needs_the_key() {
    let (site, ..) = backed_up();
    let before = tree(&site.data().join("tenants/acme/workspace/notes"));
    let (code, _, err) = restore(&site, &["data/backups/b", "--data", "data", "--sealing-key", "data/sealing.key"]);
    let why =
        "error: `data` is not empty: nothing was restored\n\nhint: name a new folder; a restore replaces nothing\n";
    assert_eq!((code, err.as_str()), (2, why));
    assert_eq!(tree(&site.data().join("tenants/acme/workspace/notes")), before);
    let (code, _, err) = restore(&site, &["data/backups/b", "--data", "new"]);
    let why = "error: the backup has 2 sealed secrets, and there is no key that opens them\n\n\
               hint: add `--sealing-key FILE` with the `sealing.key` of the server that the backup is of\n";
    assert_eq!((code, err.as_str()), (2, why));
    assert!(!site.folder().join("new").exists());
    let (code, _, err) = restore(&site, &["data/backups/none", "--verify"]);
    assert_eq!((code, err.as_str()), (2, "error: `data/backups/none` is no folder of a backup\n"));
    // The control: an empty folder that is there.
    std::fs::create_dir(site.folder().join("new")).unwrap();
    let (code, report, err) = restore(&site, &["data/backups/b", "--data", "new", "--sealing-key", "data/sealing.key"]);
    assert_eq!((code, err.as_str()), (0, ""), "{report}");
    // Where a restore was cut short no server starts.
    std::fs::write(site.folder().join("new/restoring"), "").unwrap();
    // At an address that ends a server which starts nevertheless.
    let (code, _, err) = site.harness(&["serve", "--data", "new", "--listen", "0.0.0.0:0"], "");
    let why = "error: the restore to `new` was cut short: empty the folder, and restore it again\n";
    assert_eq!((code, err.as_str()), (2, why));
}

#[test]
fn a_backup_of_a_newer_version_is_refused() {
    let (site, ..) = backed_up();
    let file = site.data().join("backups/b/store.db");
    let mut bytes = std::fs::read(&file).unwrap();
    // The version of the schema in the header of a database.
    assert_eq!(bytes[60..64], [0, 0, 0, 1]);
    bytes[63] = 2;
    std::fs::write(&file, &bytes).unwrap();
    let words = ["data/backups/b", "--data", "new", "--sealing-key", "data/sealing.key"];
    let (code, report, err) = restore(&site, &words);
    let why = "has version 2, and this program supports versions up to 1";
    assert_eq!((code, err.contains(why)), (1, true), "{report}{err}");
    assert!(!site.folder().join("new").exists());
}

#[test]
fn names_of_backups_and_what_a_kill_leaves() {
    let mut site = Site::open();
    let ask = |site: &Site, name: &str| site.admin("POST /admin/v1/backup", &json!({"name": name}));
    for name in ["", "a/b", "..", "a.b", &"a".repeat(101)] {
        assert_eq!(problem(&ask(&site, name)), (400, "invalid".to_owned()), "{name}");
    }
    assert_eq!(ask(&site, "one").status, 201);
    assert_eq!(problem(&ask(&site, "one")), (409, "exists".to_owned()));
    let left = site.data().join("backups/incoming.0123456789abcdef");
    std::fs::create_dir(&left).unwrap();
    site.kill();
    let site = site.again();
    assert!(!left.exists() && site.data().join("backups/one/manifest.jsonl").is_file());
}
