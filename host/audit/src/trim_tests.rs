//! What is removed from a log, what stays, and what is found of those who remove something themselves.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::json;
use tempfile::TempDir;

use super::chain::Head;
use super::tests::{append, files, log_of, ready};
use super::*;

/// The moment of a line in seconds, as the tests write it.
fn time_of(line: &str) -> Option<Duration> {
    let json: serde_json::Value = serde_json::from_str(line).unwrap();
    json["time"].as_str()?.parse().ok().map(Duration::from_secs)
}

fn trimmed(audit: &Path, before: u64, due: u64) -> Result<Trimmed, Broken> {
    let now = (before.max(due) + 100).to_string();
    let (before, due) = (Duration::from_secs(before), Duration::from_secs(due));
    trim(audit, &Retention { time_of: &time_of, before, due, now: &now })
}

/// A line of that moment. What the file was changed at is no later.
fn line(log: &Log, audit: &Path, second: u64) {
    let mut entry = log.entry().unwrap();
    entry.put("time", &second.to_string());
    entry.put("kind", "call");
    log.append(entry).block().unwrap();
    let last = files(audit).last().unwrap().clone();
    let file = std::fs::File::options().append(true).open(last).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(second)).unwrap();
}

/// A log with a closed file of the lines 1 to 4 (the last one closes it) of the seconds 10, 20, 30 and 120, and one of line 5.
fn log() -> (TempDir, std::path::PathBuf, Log) {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit");
    let log = log_of(&audit, files::ROTATE);
    for second in [10, 20, 30] {
        line(&log, &audit, second);
    }
    assert_eq!(trimmed(&audit, 5, 9), Ok(Trimmed::default()), "nothing is old enough");
    assert_eq!(trimmed(&audit, 5, 20), Ok(Trimmed { closed: true, ..Trimmed::default() }));
    age(&audit.join("000001.jsonl"), 120);
    // The log was open, and sees where it goes on.
    line(&log, &audit, 130);
    (folder, audit, log)
}

fn age(file: &Path, second: u64) {
    let file = std::fs::File::options().append(true).open(file).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(second)).unwrap();
}

fn kinds(audit: &Path) -> Vec<(u64, String)> {
    let lines = lines(audit).unwrap();
    let json = lines.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    json.map(|line| (line["seq"].as_u64().unwrap(), line["event"].as_str().unwrap_or("call").to_owned())).collect()
}

fn names(audit: &Path) -> Vec<String> {
    files(audit).iter().map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

fn said(audit: &Path) -> String {
    verify(audit).unwrap_err().to_string()
}

#[test]
fn old_files_go_and_what_is_left_verifies_and_continues() {
    let (_folder, audit, log) = log();
    assert_eq!(verify(&audit).map(|summary| (summary.lines, summary.removed, summary.files)), Ok((5, 0, 2)));
    let all = kept_lines(&audit).unwrap();
    // Its last line is of second 120.
    assert_eq!(trimmed(&audit, 119, 20), Ok(Trimmed::default()));
    assert_eq!(names(&audit), ["000001.jsonl", "000002.jsonl"]);
    assert_eq!(trimmed(&audit, 120, 20), Ok(Trimmed { files: 1, lines: 4, closed: false }));
    assert_eq!(names(&audit), ["000002.jsonl"]);
    let hash =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["hash"].as_str().unwrap().to_owned();
    let kept = kept_lines(&audit).unwrap();
    assert_eq!((kept.removed, &kept.start, &kept.lines[0]), (4, &hash(&all.lines[3]), &all.lines[4]));
    let record: serde_json::Value = serde_json::from_str(&kept.lines[1]).unwrap();
    let named = json!([record["kind"], record["event"], record["through"], record["removed"], record["files"]]);
    assert_eq!(named, json!(["retention", "audit.removed", 4, kept.start, 1]));
    append(&log, 7).unwrap();
    ready(&log_of(&audit, files::ROTATE)).unwrap();
    let summary = verify(&audit).unwrap();
    assert_eq!((summary.lines, summary.removed, summary.files), (3, 4, 1));
    assert_eq!((summary.start, kinds(&audit)[0].0), (kept.start, 5));
    // A copy is as whole as the log is.
    let to = audit.parent().unwrap().join("copy");
    std::fs::create_dir(&to).unwrap();
    assert_eq!(copy(&audit, &to), Ok(true));
    assert_eq!(verify(&to), verify(&audit));
    // A log that nobody uses stays as it is: what is left has no other file after it.
    assert_eq!(trimmed(&audit, 10_000, 130), Ok(Trimmed { closed: true, ..Trimmed::default() }));
    age(&audit.join("000002.jsonl"), 10_100);
    assert_eq!(trimmed(&audit, 20_000, 20_000).map(|done| done.files), Ok(0), "one line has no time");
}

#[test]
fn a_log_that_nobody_uses_does_not_grow() {
    let (_folder, audit, _log) = log();
    assert_eq!(trimmed(&audit, 120, 130), Ok(Trimmed { files: 1, lines: 4, closed: true }));
    age(&audit.join("000002.jsonl"), 230);
    assert_eq!(trimmed(&audit, 230, 230), Ok(Trimmed { files: 1, lines: 2, closed: false }));
    assert_eq!(kinds(&audit), [(7, "audit.removed".to_owned())]);
    for moment in [1_000, 10_000, 100_000] {
        age(&audit.join("000003.jsonl"), 330);
        assert_eq!(trimmed(&audit, moment, moment), Ok(Trimmed::default()));
    }
    assert_eq!(verify(&audit).map(|summary| (summary.lines, summary.removed)), Ok((1, 6)));
}

#[test]
fn what_a_removal_has_left_half_done_is_done_by_the_next() {
    let (_folder, audit, _log) = log();
    let first = std::fs::read(audit.join("000001.jsonl")).unwrap();
    let head = std::fs::read(audit.join("head")).unwrap();
    let second = std::fs::read(audit.join("000002.jsonl")).unwrap();
    trimmed(&audit, 120, 20).unwrap();
    // Before the file went: the log begins after it all the same.
    std::fs::write(audit.join("000001.jsonl"), &first).unwrap();
    assert_eq!(verify(&audit).map(|summary| (summary.lines, summary.removed)), Ok((2, 4)));
    // Before `start` was written: there is one line more.
    let start = std::fs::read(audit.join("start")).unwrap();
    std::fs::remove_file(audit.join("start")).unwrap();
    assert_eq!(verify(&audit).map(|summary| (summary.lines, summary.removed)), Ok((6, 0)));
    // Before `head` was, too.
    std::fs::write(audit.join("head"), &head).unwrap();
    assert_eq!(verify(&audit).map(|summary| (summary.lines, summary.removed)), Ok((6, 0)));
    // Before the line was.
    std::fs::write(audit.join("000002.jsonl"), &second).unwrap();
    age(&audit.join("000001.jsonl"), 120);
    assert_eq!(trimmed(&audit, 120, 20), Ok(Trimmed { files: 1, lines: 4, closed: false }));
    assert_eq!((names(&audit), std::fs::read(audit.join("start")).unwrap()), (vec!["000002.jsonl".to_owned()], start));
    assert_eq!(verify(&audit).map(|summary| (summary.lines, summary.removed)), Ok((2, 4)));
}

#[test]
fn a_beginning_that_somebody_else_has_removed_is_found() {
    let (_folder, audit, _log) = log();
    let first = audit.join("000001.jsonl");
    let whole = std::fs::read(&first).unwrap();
    std::fs::remove_file(&first).unwrap();
    assert_eq!(said(&audit), "000001.jsonl: it ends at line 0 of the log, but there were 5");
    // With a `start` that fits, which no line of the log names.
    let last = String::from_utf8(whole.clone()).unwrap().lines().last().unwrap().to_owned();
    let hash = serde_json::from_str::<serde_json::Value>(&last).unwrap()["hash"].as_str().unwrap().to_owned();
    let link = chain::Link { number: 4, hash };
    let start = Head { link, file: 2, length: 0 }.to_string();
    std::fs::write(audit.join("start"), &start).unwrap();
    let why = "start: it begins the log after line 4, and no line records that what was before was removed";
    assert_eq!(said(&audit), why);
    std::fs::write(audit.join("start"), "4").unwrap();
    assert_eq!(said(&audit), "start: it is not what was written");
    // What is broken is not removed.
    std::fs::remove_file(audit.join("start")).unwrap();
    let other = String::from_utf8(whole.clone()).unwrap().replace("\"20\"", "\"21\"");
    std::fs::write(&first, other).unwrap();
    age(&first, 120);
    let why = "000001.jsonl:2: its text is not what its hash was made of";
    assert_eq!(trimmed(&audit, 120, 20).unwrap_err().to_string(), why);
    assert_eq!(names(&audit), ["000001.jsonl", "000002.jsonl"]);
    std::fs::write(&first, whole).unwrap();
    age(&first, 120);
    assert_eq!(trimmed(&audit, 120, 20), Ok(Trimmed { files: 1, lines: 4, closed: false }));
}

#[test]
fn nothing_is_removed_while_the_log_is_read_and_calls_continue() {
    let (_folder, audit, log) = log();
    let reading = snapshot::Snapshot::of(&audit).unwrap();
    assert_eq!(trimmed(&audit, 120, 20), Ok(Trimmed::default()));
    append(&log, 6).unwrap();
    drop(reading);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let log = log_of(&audit, files::ROTATE);
            scope.spawn(move || (0..50).for_each(|n| append(&log, n).unwrap()));
        }
        while trimmed(&audit, 120, 130).unwrap().files == 0 {
            std::thread::yield_now();
        }
    });
    assert_eq!(verify(&audit).map(|summary| (summary.removed, summary.lines + summary.removed)), Ok((4, 207)));
    assert_eq!(names(&audit), ["000002.jsonl", "000003.jsonl"]);
}
