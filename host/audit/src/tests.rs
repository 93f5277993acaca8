use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

use super::*;

/// A log of a writer of its own, as another process has it, in files of so many bytes.
pub(super) fn log_of(audit: &std::path::Path, rotate: u64) -> Log {
    AuditWriter::new().log_with_files_of(audit, rotate)
}

pub(super) fn ready(log: &Log) -> std::io::Result<()> {
    log.ready().block()
}

pub(super) fn append(log: &Log, n: usize) -> std::io::Result<()> {
    log.append(entry(n)).block()
}

fn key() -> Key {
    static KEY: std::sync::OnceLock<Key> = std::sync::OnceLock::new();
    let made = || {
        let folder = tempfile::tempdir().unwrap();
        AuditWriter::new().log(&folder.path().join("audit")).entry().unwrap().key().clone()
    };
    KEY.get_or_init(made).clone()
}

pub(super) fn entry(n: usize) -> Entry {
    let mut entry = Entry::new(key());
    entry.put("call", &format!("tool {n}"));
    entry.put("text", "a \"line\"\n");
    entry
}

/// A record of so many lines, in files of some three.
pub(super) fn record(lines: usize) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit");
    let log = log_of(&audit, 600);
    (0..lines).for_each(|n| append(&log, n).unwrap());
    (folder, audit)
}

pub(super) fn files(audit: &std::path::Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(audit).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.retain(|file| file.extension().is_some());
    files
}

#[test]
fn what_is_appended_is_read_back() {
    let (_folder, audit) = record(10);
    let summary = verify(&audit).unwrap();
    assert_eq!(summary.lines, 10);
    assert_eq!(summary.files as usize, files(&audit).len());
    assert!(summary.files > 1);
    let lines = lines(&audit).unwrap();
    assert_eq!(lines.len(), 10);
    let last: serde_json::Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    assert_eq!((&last["seq"], &last["call"], &last["hash"]), (&json!(10), &json!("tool 9"), &json!(summary.hash)));
    assert_eq!(verify(&audit.join("none")).map(|summary| summary.lines), Ok(0));
}

#[test]
fn it_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_folder, audit) = record(1);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&audit), mode(&audit.join("head")), mode(&audit.join("000001.jsonl"))), (0o700, 0o600, 0o600));
    assert_eq!(mode(&audit.join("key")), 0o600);
}

#[test]
fn links_are_not_followed() {
    let (folder, audit) = record(1);
    let elsewhere = folder.path().join("elsewhere");
    std::fs::write(&elsewhere, "").unwrap();
    let file = audit.join("000001.jsonl");
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    assert!(append(&log_of(&audit, 16 << 20), 1).is_err());
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "");
    let linked = folder.path().join("linked");
    std::os::unix::fs::symlink(&audit, &linked).unwrap();
    assert!(ready(&log_of(&linked, 16 << 20)).is_err());
}

#[test]
fn many_append_at_one_time() {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            // As processes do: each has the record open for itself.
            let log = Arc::new(log_of(&audit, 5000));
            for _ in 0..2 {
                let log = log.clone();
                scope.spawn(move || (0..50).for_each(|n| append(&log, n).unwrap()));
            }
        }
    });
    assert_eq!(verify(&audit).map(|summary| summary.lines), Ok(400));
}

#[test]
fn a_process_that_was_ended_half_way_leaves_a_record_that_goes_on() {
    let (_folder, audit) = record(2);
    let head = std::fs::read(audit.join("head")).unwrap();
    let log = log_of(&audit, 60_000);
    // The line is there and `head` is not yet.
    append(&log, 2).unwrap();
    std::fs::write(audit.join("head"), head).unwrap();
    assert_eq!(verify(&audit).map(|summary| summary.lines), Ok(3));
    append(&log, 3).unwrap();
    // Half a line.
    let file = audit.join("000001.jsonl");
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{whole}{{\"seq\":5,")).unwrap();
    let summary = verify(&audit).unwrap();
    assert_eq!((summary.lines, summary.half_a_line), (4, true));
    append(&log, 4).unwrap();
    assert_eq!(verify(&audit).map(|summary| summary.lines), Ok(5));
    // Half a line that ends within a character.
    let mut whole = std::fs::read(&file).unwrap();
    whole.extend_from_slice(b"{\"seq\":6,\"tool\":\"\xc3");
    std::fs::write(&file, whole).unwrap();
    ready(&log).unwrap();
    assert_eq!(verify(&audit).map(|summary| summary.lines), Ok(5));
    // A line that nobody appended.
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{whole}{{}}\n")).unwrap();
    let error = append(&log, 5).unwrap_err();
    assert_eq!(error.to_string(), "`000001.jsonl` is not as long as it was");
    assert!(ready(&log).is_err() && verify(&audit).is_err());
}

/// One group of lines may come after the end that `head` names, and no more: that would be an end from before.
#[test]
fn an_end_from_before_is_found() {
    let (_folder, audit) = record(2);
    let head = std::fs::read(audit.join("head")).unwrap();
    let log = log_of(&audit, 6_000_000);
    (2..66).for_each(|n| append(&log, n).unwrap());
    std::fs::write(audit.join("head"), &head).unwrap();
    assert_eq!(verify(&audit).map(|summary| summary.lines), Ok(66));
    ready(&log_of(&audit, 6_000_000)).unwrap();
    append(&log_of(&audit, 6_000_000), 66).unwrap();
    std::fs::write(audit.join("head"), &head).unwrap();
    assert_eq!(verify(&audit).unwrap_err().why, "`head` ends the log at line 2, but there are more");
    let error = append(&log_of(&audit, 6_000_000), 67).unwrap_err();
    assert_eq!(error.to_string(), "`000001.jsonl` is not as long as it was");
    // Who has seen a later end says so.
    let error = ready(&log).unwrap_err();
    assert_eq!(error.to_string(), "`head` ends the audit log at line 2, and line 66 was there");
}

/// A `head` without text is of a log that has only begun.
#[test]
fn a_head_that_was_emptied_is_found() {
    let (_folder, audit) = record(1);
    std::fs::write(audit.join("head"), "").unwrap();
    assert_eq!(verify(&audit).map(|summary| summary.lines), Ok(1));
    let (_folder, audit) = record(2);
    std::fs::write(audit.join("head"), "").unwrap();
    assert_eq!(verify(&audit).unwrap_err().why, "`head` ends the log at line 0, but there are more");
    let error = ready(&log_of(&audit, 6_000)).unwrap_err();
    assert_eq!(error.to_string(), "`000001.jsonl` is not as long as it was");
}

#[test]
fn a_record_that_was_moved_away_is_begun_anew() {
    let (folder, audit) = record(3);
    let log = log_of(&audit, 16 << 20);
    std::fs::rename(&audit, folder.path().join("old")).unwrap();
    ready(&log).unwrap();
    append(&log, 0).unwrap();
    assert_eq!(verify(&audit).map(|summary| summary.lines), Ok(1));
    assert_eq!(verify(&folder.path().join("old")).map(|summary| summary.lines), Ok(3));
}

/// What was begun before goes with it, and what is begun after does not.
#[test]
fn a_record_that_is_moved_away_between_check_and_entry() {
    let (folder, audit) = record(3);
    let log = log_of(&audit, 16 << 20);
    ready(&log).unwrap();
    std::fs::rename(&audit, folder.path().join("old")).unwrap();
    append(&log, 0).unwrap();
    ready(&log).unwrap();
    append(&log, 1).unwrap();
    assert_eq!(verify(&audit).map(|summary| summary.lines), Ok(1));
    assert_eq!(verify(&folder.path().join("old")).map(|summary| summary.lines), Ok(4));
    // The same for a folder that has long been as it is.
    std::thread::sleep(std::time::Duration::from_millis(50));
    ready(&log).unwrap();
    std::fs::rename(&audit, folder.path().join("older")).unwrap();
    ready(&log).unwrap();
    append(&log, 2).unwrap();
    assert_eq!(verify(&audit).map(|summary| summary.lines), Ok(1));
}

/// Of two that append, each sees what the other did, new files included.
#[test]
fn what_was_checked_follows_what_others_append() {
    let (_folder, audit) = record(1);
    let logs = [(); 2].map(|()| log_of(&audit, 1_000));
    for n in 0..60 {
        // Once and twice in a row.
        let log = &logs[usize::from(n % 3 == 0)];
        ready(&log).unwrap();
        append(&log, n).unwrap();
    }
    let whole = verify(&audit).unwrap();
    assert!(whole.lines == 61 && whole.files > 5, "{whole:?}");
}

#[test]
fn a_record_that_was_removed_is_begun_anew_and_one_that_was_cut_is_not_gone_on_with() {
    let (_folder, audit) = record(3);
    let log = log_of(&audit, 16 << 20);
    // Longer than a change of the folder is held to be new.
    std::thread::sleep(std::time::Duration::from_millis(50));
    for n in 0..3 {
        ready(&log).unwrap();
        append(&log, n).unwrap();
    }
    std::fs::remove_dir_all(&audit).unwrap();
    ready(&log).unwrap();
    append(&log, 0).unwrap();
    assert_eq!(verify(&audit).map(|summary| summary.lines), Ok(1));
    ready(&log).unwrap();
    append(&log, 1).unwrap();
    std::fs::File::options().write(true).open(&files(&audit)[0]).unwrap().set_len(10).unwrap();
    assert!(ready(&log).is_err() && append(&log, 2).is_err());
}

#[test]
fn an_entry_that_is_too_long_is_refused_and_the_next_is_not() {
    let (_folder, audit) = record(1);
    let log = log_of(&audit, 16 << 20);
    let mut long = Entry::new(key());
    long.put("text", &"x".repeat(2 << 20));
    assert_eq!(log.append(long).block().unwrap_err().to_string(), "an entry is over 1 MiB");
    append(&log, 1).unwrap();
    assert_eq!(verify(&audit).map(|summary| summary.lines), Ok(2));
}

proptest! {
    /// Whatever is done to it but adding nothing: a byte changed, lines cut out, swapped or given twice, a file gone.
    #[test]
    fn what_was_changed_is_found(lines in 2..12_usize, what in 0..7_usize, a in any::<usize>(), b in any::<usize>()) {
        let (_folder, audit) = record(lines);
        let files = files(&audit);
        let file = &files[a % files.len()];
        let text = std::fs::read_to_string(file).unwrap();
        let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
        let (from, to) = (b % rows.len(), a % rows.len());
        match what {
            0 => {
                let at = b % text.len();
                let mut bytes = text.clone().into_bytes();
                bytes[at] = if bytes[at] == b'x' { b'y' } else { b'x' };
                std::fs::write(file, bytes).unwrap();
            }
            1 => {
                rows.remove(from);
                std::fs::write(file, rows.iter().map(|row| format!("{row}\n")).collect::<String>()).unwrap();
            }
            2 if from != to => {
                rows.swap(from, to);
                std::fs::write(file, rows.iter().map(|row| format!("{row}\n")).collect::<String>()).unwrap();
            }
            3 => {
                rows.insert(to, rows[from].clone());
                std::fs::write(file, rows.iter().map(|row| format!("{row}\n")).collect::<String>()).unwrap();
            }
            4 => std::fs::remove_file(file).unwrap(),
            5 => std::fs::remove_file(audit.join("head")).unwrap(),
            _ => std::fs::write(audit.join("head"), "").unwrap(),
        }
        if what != 2 || from != to {
            prop_assert!(verify(&audit).is_err());
        }
    }
}

/// A pipe takes the words of anyone who opens it, and a device may do more.
#[test]
fn what_is_no_file_is_not_opened() {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("head");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let opened = init(CreateFlags::NONBLOCK).unwrap();
    add_watch(&opened, &pipe, WatchFlags::OPEN).unwrap();
    assert_eq!(verify(folder.path()).unwrap_err().to_string(), "head: not a regular file");
    assert_eq!(rustix::io::read(&opened, &mut [0; 256]), Err(rustix::io::Errno::AGAIN));
    // The control: who opens it is seen.
    std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    assert!(rustix::io::read(&opened, &mut [0; 256]).is_ok());
}
