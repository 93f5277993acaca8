//! Many that append to one log or to many, and what an idle log costs.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use rustix::fs::{FlockOperation, flock};
use serde_json::Value as Json;

use super::tests::{append, entry, log_of, ready};
use super::*;

/// What a process of its own is to do: folder, name, threads, entries of each, bytes of a file.
const TASK: &str = "HARNESS_TEST_AUDIT_TASK";

/// Threads that append to one log, each for itself, and note what was accepted in a file of their own.
fn work(outer: &Path, name: &str, threads: usize, entries: usize, rotate: u64) {
    let log = log_of(&outer.join("audit"), rotate);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (log, caller) = (log.clone(), format!("{name}-{thread}"));
            let mut accepted = File::create(outer.join(format!("{caller}.accepted"))).unwrap();
            scope.spawn(move || {
                for n in 0..entries {
                    log.ready().block().unwrap();
                    let mut entry = log.entry().unwrap();
                    entry.put("caller", &caller);
                    entry.put("n", &n);
                    log.append(entry).block().unwrap();
                    writeln!(accepted, "{n}").unwrap();
                }
            });
        }
    });
}

/// Not a test of its own: what a process does that another test starts.
#[test]
fn in_a_process() {
    let Ok(task) = std::env::var(TASK) else { return };
    let task: Vec<&str> = task.split('|').collect();
    let number = |at: usize| task[at].parse().unwrap();
    work(Path::new(task[0]), task[1], number(2), number(3), number(4) as u64);
}

fn process(outer: &Path, name: &str, (threads, entries, rotate): (usize, usize, u64)) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["writer_tests::in_a_process", "--exact"]).stdout(std::process::Stdio::null());
    child.env(TASK, format!("{}|{name}|{threads}|{entries}|{rotate}", outer.display())).spawn().unwrap()
}

/// What the log has of each caller, in its order.
fn logged(audit: &Path) -> HashMap<String, Vec<u64>> {
    let mut all: HashMap<String, Vec<u64>> = HashMap::new();
    for line in lines(audit).unwrap() {
        let line: Json = serde_json::from_str(&line).unwrap();
        all.entry(line["caller"].as_str().unwrap().to_owned()).or_default().push(line["n"].as_u64().unwrap());
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Threads and processes append while others read and some processes are killed: the chain is intact at each moment,
    /// and at the end each accepted entry is there once, those of one caller in their order.
    #[test]
    fn appends_by_threads_and_processes(
        processes in prop::collection::vec((1..4_usize, 1..80_usize, any::<bool>()), 1..4),
        own in (0..4_usize, 1..200_usize),
        rotate in prop_oneof![Just(700_u64), Just(20_000), Just(16 << 20)],
        readers in 1..3_usize,
        kill_after in 0..30_u64,
    ) {
        let outer = tempfile::tempdir().unwrap();
        let audit = outer.path().join("audit");
        let over = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..readers).map(|_| scope.spawn(|| {
                let mut last = 0;
                while !over.load(Ordering::Relaxed) {
                    let summary = verify(&audit)?;
                    assert!(summary.lines >= last, "{} after {last}", summary.lines);
                    last = summary.lines;
                }
                Ok::<u64, Broken>(last)
            })).collect();
            let mut children: Vec<(Child, bool)> = processes.iter().enumerate().map(|(at, (threads, entries, killed))| {
                (process(outer.path(), &format!("p{at}"), (*threads, *entries, rotate)), *killed)
            }).collect();
            let working = scope.spawn(|| work(outer.path(), "own", own.0, own.1, rotate));
            std::thread::sleep(Duration::from_millis(kill_after));
            children.iter_mut().filter(|(_, killed)| *killed).for_each(|(child, _)| child.kill().unwrap());
            for (child, killed) in &mut children {
                assert!(child.wait().unwrap().success() || *killed);
            }
            working.join().unwrap();
            over.store(true, Ordering::Relaxed);
            readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Result<Vec<_>, _>>()
        });
        seen.unwrap();
        ready(&log_of(&audit, rotate)).unwrap();
        verify(&audit).unwrap();
        let logged = logged(&audit);
        for file in std::fs::read_dir(outer.path()).unwrap().map(|file| file.unwrap().path()) {
            if file.extension().is_none_or(|extension| extension != "accepted") {
                continue;
            }
            let caller = file.file_stem().unwrap().to_str().unwrap();
            let accepted: Vec<u64> = std::fs::read_to_string(&file).unwrap().lines().map(|n| n.parse().unwrap()).collect();
            let empty = Vec::new();
            let there = logged.get(caller).unwrap_or(&empty);
            // One that was killed may have written an entry and not noted it any more.
            prop_assert!(there.len() <= accepted.len() + 1, "{}: {:?} {:?}", caller, there, accepted);
            prop_assert!(there.iter().copied().eq(0..there.len() as u64), "{}: {:?}", caller, there);
            prop_assert!(there.starts_with(&accepted), "{}: {:?} {:?}", caller, there, accepted);
        }
    }
}

/// Entries that come while the lock is held share one write. It is seen by `head`, which is written once for a group.
#[test]
fn what_waits_is_written_in_groups() {
    let outer = tempfile::tempdir().unwrap();
    let audit = outer.path().join("audit");
    let log = log_of(&audit, 16 << 20);
    append(&log, 0).unwrap();
    let lock = File::open(audit.join("head")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let waits: Vec<Wait> = (1..=200).map(|n| log.append(entry(n))).collect();
    // A call that begins waits until they are written.
    let begins = log.ready();
    drop(lock);
    waits.into_iter().for_each(|wait| wait.block().unwrap());
    begins.block().unwrap();
    let calls: Vec<Json> = lines(&audit).unwrap().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = calls.iter().map(|line| line["call"].as_str().unwrap()).collect();
    assert_eq!(names, (0..=200).map(|n| format!("tool {n}")).collect::<Vec<_>>());
    assert_eq!(verify(&audit).map(|summary| summary.lines), Ok(201));
}

/// A process that is killed between the lines of its group and `head`: the whole lines count, half a one does not.
#[test]
fn half_a_group_is_recovered() {
    let outer = tempfile::tempdir().unwrap();
    let audit = outer.path().join("audit");
    let log = log_of(&audit, 16 << 20);
    append(&log, 0).unwrap();
    let head = std::fs::read(audit.join("head")).unwrap();
    (1..10).for_each(|n| append(&log, n).unwrap());
    let whole = std::fs::read(audit.join("000001.jsonl")).unwrap();
    for cut in [0, 1, 100, 900] {
        std::fs::write(audit.join("head"), &head).unwrap();
        std::fs::write(audit.join("000001.jsonl"), &whole[..whole.len() - cut]).unwrap();
        let left = whole[..whole.len() - cut].iter().filter(|byte| **byte == b'\n').count() as u64;
        let summary = verify(&audit).unwrap();
        assert_eq!((summary.lines, summary.half_a_line), (left, cut > 0));
        append(&log_of(&audit, 16 << 20), 10).unwrap();
        assert_eq!(verify(&audit).map(|summary| (summary.lines, summary.half_a_line)), Ok((left + 1, false)));
    }
}

/// The flood of one log does not hold up another: the writer gives each its turn.
#[test]
fn logs_take_turns() {
    let outer = tempfile::tempdir().unwrap();
    let writer = AuditWriter::without_thread();
    let [flooded, other] = ["flooded", "other"].map(|name| writer.log(&outer.path().join(name)));
    let locks = [&flooded, &other].map(|log| {
        append(log, 0).unwrap();
        let lock = File::open(log.folder().join("head")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        lock
    });
    (0..1_300).for_each(|n| flooded.leave(entry(n)));
    let wait = other.append(entry(1));
    let begins = other.ready();
    drop(locks);
    // Both locks are tried again.
    std::thread::sleep(Duration::from_millis(20));
    writer.step();
    assert_eq!(flooded.backlog().entries, 1_300 - 64);
    writer.step();
    assert!(wait.done().is_ok_and(|done| done.is_ok()) && begins.done().is_ok_and(|done| done.is_ok()));
    // A call that begins in the flooded project waits until all of that is written; one in the other does not.
    let begins = flooded.ready();
    assert!(other.ready().done().is_ok_and(|done| done.is_ok()));
    let mut begins = Some(begins);
    let mut turns = 0;
    while let Some(Err(wait)) = begins.take().map(Wait::done) {
        writer.step();
        turns += 1;
        begins = Some(wait);
    }
    assert_eq!((turns, flooded.backlog().entries), (1_236_usize.div_ceil(64), 0));
    // Below the bound nothing waits.
    assert!(flooded.ready().done().is_ok_and(|done| done.is_ok()));
    assert_eq!(verify(flooded.folder()).map(|summary| summary.lines), Ok(1_301));
}

fn descriptors_of(outer: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(outer))).count()
}

/// A thousand logs that have been used and are idle hold a bounded number of descriptors, and there is no thread.
#[test]
fn a_thousand_idle_logs() {
    let outer = tempfile::tempdir().unwrap();
    let writer = AuditWriter::new();
    let logs: Vec<Log> = (0..1_000).map(|n| writer.log(&outer.path().join(n.to_string()))).collect();
    assert_eq!(descriptors_of(outer.path()), 0);
    // A call that continues keeps its files open, whatever happens.
    ready(&logs[0]).unwrap();
    let entry = logs[0].entry().unwrap();
    let moved: PathBuf = outer.path().join("moved");
    for _ in 0..2 {
        logs.iter().enumerate().skip(1).for_each(|(n, log)| {
            ready(log).unwrap();
            append(log, n).unwrap();
        });
    }
    let open = descriptors_of(outer.path());
    assert!(open <= 3 * 256, "{open} descriptors");
    assert!(!writer.has_thread());
    std::fs::rename(logs[0].folder(), &moved).unwrap();
    logs[0].append(entry).block().unwrap();
    assert_eq!(verify(&moved).map(|summary| summary.lines), Ok(1));
    assert!(logs.iter().skip(1).all(|log| verify(log.folder()).is_ok_and(|summary| summary.lines == 2)));
    drop((logs, writer));
    assert_eq!(descriptors_of(outer.path()), 0);
}

/// A process that must have no other threads can have that.
#[test]
fn a_writer_at_rest_has_no_thread() {
    let outer = tempfile::tempdir().unwrap();
    let writer = AuditWriter::new();
    let log = writer.log(&outer.path().join("audit"));
    append(&log, 0).unwrap();
    for n in 1..3 {
        let lock = File::open(log.folder().join("head")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let wait = log.append(entry(n));
        assert!(writer.has_thread());
        drop(lock);
        writer.rest();
        assert!(!writer.has_thread());
        wait.block().unwrap();
    }
    assert_eq!(verify(log.folder()).map(|summary| summary.lines), Ok(3));
}
