//! Logs that cannot be written, or that someone changes while they are in use.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::tests::{append, entry, files, log_of, ready, record};
use super::*;

const SIZE: u64 = 16 << 20;
/// The folder that a test uses in a process of its own.
const FOLDER: &str = "HARNESS_TEST_AUDIT";

/// Runs a test of this module once more, in a process of its own that `sh` prepares.
fn again(name: &str, folder: &Path, prepare: &str) {
    let mut child = Command::new("sh");
    child.args(["-c", &format!("{prepare} \"$0\" \"$@\"")]).arg(std::env::current_exe().unwrap());
    child.args([&format!("failure_tests::{name}"), "--exact", "--nocapture"]).env(FOLDER, folder);
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn texts(results: impl IntoIterator<Item = std::io::Result<()>>) -> Vec<String> {
    results.into_iter().map(|result| result.map_or_else(|error| error.to_string(), |()| "written".to_owned())).collect()
}

/// A disk that is full, which for a process is one where no file of its may get larger. Of a group, the entries that have
/// room are in the log.
#[test]
fn a_full_disk() {
    let Ok(folder) = std::env::var(FOLDER) else {
        let folder = tempfile::tempdir().unwrap();
        return again("a_full_disk", folder.path(), "trap '' XFSZ; ulimit -f 32; exec");
    };
    let audit = Path::new(&folder).join("audit");
    let log = log_of(&audit, SIZE);
    let long = |bytes: usize| {
        let mut long = log.entry().unwrap();
        long.put("text", &"x".repeat(bytes));
        long
    };
    append(&log, 0).unwrap();
    ready(&log).unwrap();
    assert_eq!(log.append(long(64 << 10)).block().unwrap_err().to_string(), "File too large (os error 27)");
    assert_eq!(log.lost(), Some("File too large (os error 27)"));
    // As one group: while the lock is held, they wait.
    let lock = std::fs::File::open(audit.join("head")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let waits = [entry(1), long(64 << 10), entry(2)].map(|entry| log.append(entry));
    assert_eq!(log.backlog().entries, 3);
    drop(lock);
    assert_eq!(texts(waits.map(Wait::block)), ["written", "File too large (os error 27)", "written"]);
    let summary = verify(&audit).unwrap();
    assert_eq!((summary.lines, summary.half_a_line), (3, false));
}

#[test]
fn a_file_that_cannot_be_written() {
    let Ok(folder) = std::env::var(FOLDER) else {
        // The root user may write all files; without capabilities it may not.
        let root = "setpriv --bounding-set=-all --inh-caps=-all --";
        let prepare = if rustix::process::getuid().is_root() { format!("exec {root}") } else { "exec".to_owned() };
        let (folder, _audit) = record(2);
        return again("a_file_that_cannot_be_written", folder.path(), &prepare);
    };
    let audit = Path::new(&folder).join("audit");
    for file in ["head", "key", "000001.jsonl"] {
        let mode = |mode| std::fs::set_permissions(audit.join(file), PermissionsExt::from_mode(mode)).unwrap();
        mode(0o400);
        let log = log_of(&audit, SIZE);
        assert_eq!(texts([ready(&log)]), ["Permission denied (os error 13)"], "{file}");
        assert_eq!(texts([append(&log, 1)]), ["Permission denied (os error 13)"], "{file}");
        mode(0o600);
        assert_eq!(texts([ready(&log)]), ["written"], "{file}");
    }
    assert_eq!(verify(&audit).map(|summary| summary.lines), Ok(2));
}

/// What is at a file's name while the log is in use: nothing is written there, or to the file that was.
#[test]
fn a_file_that_is_replaced_while_it_is_in_use() {
    type Replace = fn(&Path);
    let link: Replace = |path| std::os::unix::fs::symlink("key", path).unwrap();
    let fifo: Replace = |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let other: Replace = |path| std::fs::write(path, "other").unwrap();
    let folder: Replace = |path| std::fs::create_dir(path).unwrap();
    let nothing: Replace = |_| {};
    let short = "`000001.jsonl` is not as long as it was";
    for (file, replace, told) in [
        ("head", link, "`head` is not a regular file"),
        ("head", fifo, "`head` is not a regular file"),
        ("head", folder, "`head` is not a regular file"),
        ("head", other, "`head` is not what was written"),
        ("head", nothing, short),
        ("000001.jsonl", link, "`000001.jsonl` is not a regular file"),
        ("000001.jsonl", fifo, "`000001.jsonl` is not a regular file"),
        ("000001.jsonl", folder, "`000001.jsonl` is not a regular file"),
        ("000001.jsonl", other, short),
        ("000001.jsonl", nothing, short),
    ] {
        let outer = tempfile::tempdir().unwrap();
        let audit = outer.path().join("audit");
        let log = log_of(&audit, SIZE);
        for n in 0..3 {
            ready(&log).unwrap();
            append(&log, n).unwrap();
        }
        let before = std::fs::read(audit.join("000001.jsonl")).unwrap();
        std::fs::rename(audit.join(file), outer.path().join("moved")).unwrap();
        replace(&audit.join(file));
        assert_eq!(texts([ready(&log)]), [told], "{file}");
        assert_eq!(texts([ready(&log)]), [told], "{file}");
        verify(&audit).unwrap_err();
        // The control: as it was before, it continues.
        let _ = std::fs::remove_dir(audit.join(file));
        std::fs::rename(outer.path().join("moved"), audit.join(file)).unwrap();
        assert_eq!(std::fs::read(audit.join("000001.jsonl")).unwrap(), before, "{file}");
        assert_eq!(texts([ready(&log), append(&log, 3)]), ["written", "written"], "{file}");
        assert_eq!(verify(&audit).map(|summary| summary.lines), Ok(4), "{file}");
    }
}

/// Also where the files were closed in between: a log never goes back behind what this process has written.
#[test]
fn a_log_that_goes_back_is_found() {
    let (_folder, audit) = record(0);
    let log = log_of(&audit, SIZE);
    append(&log, 0).unwrap();
    let [head, lines] = ["head", "000001.jsonl"].map(|file| std::fs::read(audit.join(file)).unwrap());
    append(&log, 1).unwrap();
    let (head_after, lines_after) =
        (std::fs::read(audit.join("head")).unwrap(), std::fs::read(audit.join("000001.jsonl")).unwrap());
    let put = |head: &[u8], lines: &[u8]| {
        std::fs::write(audit.join("head"), head).unwrap();
        std::fs::write(audit.join("000001.jsonl"), lines).unwrap();
    };
    put(&head, &lines);
    let told = "`head` ends the audit log at line 1, and line 2 was there";
    assert_eq!(texts([ready(&log)]), [told]);
    put(&head_after, &lines_after);
    assert_eq!(texts([ready(&log)]), ["written"]);
    assert!(log.close_if_idle());
    put(&head, &lines);
    assert_eq!(texts([ready(&log), append(&log, 2)]), [told, told]);
    put(&head_after, &lines_after);
    assert_eq!(texts([ready(&log), append(&log, 2)]), ["written", "written"]);
    // The control: a process that has seen nothing of it.
    put(&head, &lines);
    assert_eq!(texts([ready(&log_of(&audit, SIZE))]), ["written"]);
}

/// A lock that someone holds who may only read: nobody waits for longer than they want to, the lock of one log holds up
/// no other, and what was accepted is written when it is free.
#[test]
fn a_lock_that_is_held() {
    let outer = tempfile::tempdir().unwrap();
    let writer = AuditWriter::new();
    let [one, other] = ["one", "other"].map(|name| writer.log(&outer.path().join(name)));
    append(&one, 0).unwrap();
    let lock = std::fs::File::open(one.folder().join("head")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let soon = || Some(Instant::now() + Duration::from_millis(20));
    let (waits, later) = (one.append(entry(1)), one.append(entry(2)));
    assert!(waits.block_until(soon()).is_none());
    // Calls that begin wait too, and leave nothing behind when they give up.
    for _ in 0..3 {
        assert!(one.ready().block_until(soon()).is_none());
    }
    let Backlog { entries, held } = one.backlog();
    assert!(entries == 2 && held.is_some(), "{entries} {held:?}");
    let settled = one.settle(Instant::now() + Duration::from_millis(20));
    assert!(settled.entries == 2 && settled.held.is_some(), "{settled:?}");
    ready(&other).unwrap();
    append(&other, 0).unwrap();
    // A reader says so, and does not wait for ever.
    assert_eq!(verify(one.folder()).unwrap_err().to_string(), "head: another process has held its lock for 5 s");
    drop(lock);
    later.block().unwrap();
    assert_eq!(one.settle(Instant::now() + Duration::from_secs(60)), Backlog { entries: 0, held: None });
    ready(&one).unwrap();
    assert_eq!(one.lost(), None);
    assert_eq!(verify(one.folder()).map(|summary| summary.lines), Ok(3));
    // The key is needed once only.
    let lock = std::fs::File::open(one.folder().join("key")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    append(&log_of(one.folder(), SIZE), 3).unwrap();
    assert_eq!(files(one.folder()).len(), 1);
}

/// What was accepted is written when the last log and the writer are dropped; that ends too if the lock stays held.
#[test]
fn the_end_of_a_writer() {
    for freed in [true, false] {
        let outer = tempfile::tempdir().unwrap();
        let audit = outer.path().join("audit");
        let writer = AuditWriter::new();
        let log = writer.log(&audit);
        append(&log, 0).unwrap();
        let lock = std::fs::File::open(audit.join("head")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        (1..=200).for_each(|n| log.leave(entry(n)));
        let (frees, kept) = if freed { (Some(lock), None) } else { (None, Some(lock)) };
        let frees = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(frees);
        });
        drop(writer);
        drop(log);
        drop(kept);
        frees.join().unwrap();
        let lines = std::fs::read_to_string(audit.join("000001.jsonl")).unwrap().lines().count();
        assert_eq!(lines, if freed { 201 } else { 1 });
    }
}

/// A folder that was deleted takes the entry of a call in progress with it, also where there is another one by then, and
/// what begins then begins a new log. Lines that are missing in a folder that is there stay lost.
#[test]
fn a_folder_that_was_deleted_takes_its_entries_with_it() {
    type Delete = fn(&Path);
    let all: Delete = |audit| std::fs::remove_dir_all(audit.parent().unwrap()).unwrap();
    let replaced: Delete = |audit| {
        std::fs::remove_dir_all(audit).unwrap();
        append(&log_of(audit, SIZE), 0).unwrap();
    };
    let lines: Delete = |audit| std::fs::remove_file(audit.join("000001.jsonl")).unwrap();
    for (delete, stays) in [(all, false), (replaced, false), (lines, true)] {
        let outer = tempfile::tempdir().unwrap();
        let audit = outer.path().join("home/audit");
        std::fs::create_dir(outer.path().join("home")).unwrap();
        let log = log_of(&audit, SIZE);
        append(&log, 0).unwrap();
        let in_progress = log.entry().unwrap();
        delete(&audit);
        assert!(log.append(in_progress).block().is_err());
        assert_eq!(log.lost().is_some(), stays);
        let _ = std::fs::create_dir(outer.path().join("home"));
        assert_eq!(ready(&log).is_err(), stays);
    }
}
