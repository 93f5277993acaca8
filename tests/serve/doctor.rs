//! `harness serve doctor`: what is ready for a server, and what is not, with what to do.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::Value as Json;

use crate::project::HARNESS;
use crate::site::Site;

/// What depends on the machine that the tests run on.
const OF_MACHINE: [&str; 8] =
    ["namespaces", "landlock", "filters", "second wall", "control groups", "open files", "confinement", "disk"];

/// What is found in a folder, by the words after `--data data`: the exit code, and all findings.
fn findings(site: &Site, words: &[&str]) -> (i32, Json) {
    let words = [&["serve", "doctor", "--json"], words].concat();
    let (code, out, err) = site.harness(&words, "");
    assert_eq!(err, "", "{out}");
    (code, serde_json::from_str(&out).unwrap())
}

/// The findings that do not depend on the machine: state, name and text.
fn shown(found: &Json) -> Vec<String> {
    let rows = found["findings"].as_array().unwrap().iter();
    let text = |row: &Json, name: &str| row[name].as_str().unwrap().to_owned();
    rows.filter(|row| !OF_MACHINE.contains(&row["name"].as_str().unwrap()))
        .map(|row| format!("{} {}: {}", text(row, "state"), text(row, "name"), text(row, "what")))
        .collect()
}

/// The one finding of a name, with its hint.
fn one(found: &Json, name: &str) -> (String, String, Option<String>) {
    let rows = found["findings"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{found}"));
    let text = |name: &str| row[name].as_str().map(str::to_owned);
    (text("state").unwrap(), text("what").unwrap(), text("hint"))
}

const WORDS: [&str; 6] = ["--data", "data", "--config", "serve.yaml", "--listen", "127.0.0.1:0"];

#[test]
fn a_server_that_runs_has_nothing_bad() {
    let mut site = Site::with_config("instances: 100\nclasses: { default: {}, large: { weight: 400 } }\n");
    let (code, found) = findings(&site, &WORDS);
    let process = std::fs::read_to_string(site.data().join("store.lock")).unwrap();
    let good = |server: String| {
        vec![
            "ok mappings: # for each process, # instances need up to #".to_owned(),
            "ok configuration: 2 classes, 100 instances".to_owned(),
            "ok address: 127.0.0.1:0, of the loopback interface".to_owned(),
            "ok data folder: `data`, for its owner alone".to_owned(),
            "ok store: version 1".to_owned(),
            "ok sealing key: `data/sealing.key`, for its owner alone".to_owned(),
            "ok operator's key: `data/admin.key`, for its owner alone".to_owned(),
            "ok clock: not behind what is stored".to_owned(),
            format!("ok server: {server}"),
        ]
    };
    let mapped = |found: &Json| {
        let mut all = shown(found);
        let numbers =
            |word: &str| if word.bytes().all(|byte| byte.is_ascii_digit()) { "#".to_owned() } else { word.to_owned() };
        all[0] = all[0].split(' ').map(numbers).collect::<Vec<_>>().join(" ");
        all
    };
    assert_eq!((code, &found["ready"]), (0, &Json::Bool(true)), "{found}");
    assert_eq!(mapped(&found), good(format!("process {} runs with this folder", process.trim_end())));
    // Its own address is no obstacle.
    let own = site.address().to_owned();
    let (code, found) = findings(&site, &["--data", "data", "--listen", &own]);
    let what = format!("{own}, of the loopback interface: in use, perhaps by the running server");
    assert_eq!((code, one(&found, "address").1), (0, what));
    site.kill();
    let (code, found) = findings(&site, &WORDS);
    assert_eq!((code, mapped(&found)), (0, good("none runs with this folder".to_owned())));
    // What the machine offers is what `harness doctor` says of it.
    let (_, out, _) = site.harness(&["doctor", "--json"], "");
    let machine: Json = serde_json::from_str(&out).unwrap();
    for name in ["namespaces", "landlock", "filters", "second wall"] {
        let rows = machine["findings"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        let (state, what, hint) = one(&found, name);
        let good = row["ok"].as_bool().unwrap();
        assert_eq!((state.as_str(), what.as_str()), (if good { "ok" } else { "note" }, row["what"].as_str().unwrap()));
        assert_eq!(hint.is_none(), good);
    }
    // The same for people, a line for each.
    let words = [&["serve", "doctor"][..], &WORDS].concat();
    let (code, out, err) = site.harness(&words, "");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("\nok    data folder     `data`, for its owner alone\n"), "{out}");
}

#[test]
fn a_first_start_needs_no_folder_and_no_configuration() {
    let site = Site::open();
    let (code, found) = findings(&site, &["--data", "new", "--listen", "127.0.0.1:0"]);
    let expected = ["ok data folder: not there yet: the first start creates it", "ok clock: not behind what is stored"];
    assert_eq!((code, &shown(&found)[3..]), (0, &expected.map(str::to_owned)[..]), "{found}");
    assert!(!site.folder().join("new").exists());
    let (code, found) = findings(&site, &["--listen", "127.0.0.1:0"]);
    let none = "ok configuration: none: every tenant is of the class `default`";
    assert_eq!((code, shown(&found)[1].as_str(), shown(&found).len()), (0, none, 4), "{found}");
}

#[test]
fn what_is_wrong_with_the_data_folder_is_found_with_what_to_do() {
    let mut site = Site::open();
    site.kill();
    let wrong = |name: &str, what: &str, hint: &str| {
        let (code, found) = findings(&site, &WORDS);
        let bad = ("bad".to_owned(), what.to_owned(), Some(hint.to_owned()));
        assert_eq!((code, &found["ready"], one(&found, name)), (1, &Json::Bool(false), bad));
        let others = shown(&found).iter().filter(|line| line.starts_with("bad")).count();
        assert_eq!(others, 1, "{found}");
    };
    let at = |path: &str| site.data().join(path);
    let mode = |path: &str, mode: u32| {
        std::fs::set_permissions(at(path), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("", 0o755);
    wrong("data folder", "`data` has the mode 0755: others may read or change it", "close it to others: `chmod 700`");
    mode("", 0o700);
    for (name, file) in [("sealing key", "sealing.key"), ("operator's key", "admin.key")] {
        mode(file, 0o640);
        let what = format!("`data/{file}` has the mode 0640: others may read or change it");
        wrong(name, &what, "close it to others: `chmod 600`");
        mode(file, 0o600);
    }
    let key = std::fs::read_to_string(at("sealing.key")).unwrap();
    std::fs::write(at("sealing.key"), "nonsense").unwrap();
    let back = "put the server's `sealing.key` back";
    wrong("sealing key", "`data/sealing.key`: a sealing key is 64 hexadecimal digits", back);
    std::fs::remove_file(at("sealing.key")).unwrap();
    wrong("sealing key", "it is missing: no secret of a tenant opens", back);
    std::fs::write(at("sealing.key"), key).unwrap();
    mode("sealing.key", 0o600);
    std::fs::write(at("restoring"), "").unwrap();
    let hint = "empty the folder, and restore the backup again: `harness admin restore`";
    wrong("restore", "a restore to this folder was cut short", hint);
    std::fs::remove_file(at("restoring")).unwrap();
    let store = std::fs::read(at("store.db")).unwrap();
    let real = site.data().canonicalize().unwrap();
    let other = "use the program that wrote it, or restore a backup";
    for file in ["store.db-wal", "store.db-shm"] {
        let _ = std::fs::remove_file(at(file));
    }
    let newer = [&store[..60], &[0, 0, 0, 7], &store[64..]].concat();
    let is_current = store[60..64] == [0, 0, 0, 1];
    if is_current {
        std::fs::write(at("store.db"), newer).unwrap();
        let what =
            format!("the store in `{}` has version 7, and this program supports versions up to 1", real.display());
        wrong("store", &what, other);
    }
    std::fs::write(at("store.db"), "x".repeat(4096)).unwrap();
    wrong("store", &format!("`{}` is not a store of Harness", real.join("store.db").display()), other);
    std::fs::write(at("store.db"), store).unwrap();
    let _ = std::fs::remove_file(at("store.db-wal"));
    // The store was changed tomorrow.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(86_400);
    std::fs::File::options().write(true).open(at("store.db")).unwrap().set_modified(later).unwrap();
    let (code, found) = findings(&site, &WORDS);
    let (state, what, _) = one(&found, "clock");
    assert_eq!((code, state.as_str()), (1, "bad"), "{what}");
    assert!(what.starts_with("it is 86") && what.ends_with(" s behind the last change of the store"), "{what}");
}

#[test]
fn what_is_wrong_with_the_configuration_and_the_address_is_found() {
    let site = Site::open();
    let folder = site.folder();
    let wrong = |name: &str, words: &[&str], what: &str| {
        let (code, found) = findings(&site, words);
        let (state, said, hint) = one(&found, name);
        assert_eq!((code, state.as_str(), hint.is_some()), (1, "bad", true), "{found}");
        assert!(said.starts_with(what), "{said}");
        hint.unwrap()
    };
    std::fs::write(folder.join("odd.yaml"), "instances: 10\nsizes: {}\n").unwrap();
    wrong("configuration", &["--config", "odd.yaml", "--listen", "127.0.0.1:0"], "odd.yaml:2: unknown key `sizes`");
    wrong("configuration", &["--config", "none.yaml", "--listen", "127.0.0.1:0"], "`none.yaml` cannot be read: ");
    std::fs::write(folder.join("policy.yaml"), "classes: { default: { policy: missing.yaml } }\n").unwrap();
    wrong(
        "confinement",
        &["--config", "policy.yaml", "--listen", "127.0.0.1:0"],
        "the policy `missing.yaml` of a class: ",
    );
    let what = "cannot listen at `0.0.0.0:0`: it is not a loopback address";
    let hint = wrong("address", &["--listen", "0.0.0.0:0"], what);
    assert_eq!(hint, "an address that others reach needs `--tls-cert FILE --tls-key FILE`, or `--behind-proxy`");
    wrong("address", &["--listen", site.address()], &format!("cannot listen at `{}`: ", site.address()));
    let (code, found) = findings(&site, &["--listen", "0.0.0.0:0", "--behind-proxy"]);
    assert_eq!((code, one(&found, "address").1.as_str()), (0, "0.0.0.0:0, without TLS, behind a proxy"));
    std::fs::write(folder.join("not.pem"), "").unwrap();
    let tls = ["--listen", "0.0.0.0:0", "--tls-cert", "not.pem", "--tls-key", "not.pem"];
    wrong("address", &tls, "");
}

#[test]
fn too_few_descriptors_are_noted() {
    let site = Site::open();
    let line = format!("ulimit -n 512 && exec {HARNESS} serve doctor --json --listen 127.0.0.1:0");
    let ran = Command::new("sh").args(["-c", &line]).current_dir(site.folder()).output().unwrap();
    let found: Json = serde_json::from_slice(&ran.stdout).unwrap();
    let (state, what, hint) = one(&found, "open files");
    assert_eq!((ran.status.code(), state.as_str()), (Some(0), "note"), "{found}");
    assert_eq!(what, "512 at one time, and 10000 connections need 14096");
    assert_eq!(hint.as_deref(), Some("raise the limit: `LimitNOFILE=65536` in the unit, or `ulimit -n 65536`"));
}

#[test]
fn a_server_needs_a_folder_and_doctor_takes_none_of_its_other_words() {
    let site = Site::open();
    let (code, _, err) = site.harness(&["serve"], "");
    assert_eq!(code, 2);
    assert!(err.contains("--data <DIR>"), "{err}");
    assert_eq!(site.harness(&["serve", "--data", "data", "doctor"], "").0, 2);
    assert_eq!(site.harness(&["serve", "doctor", "--demo"], "").0, 2);
}
