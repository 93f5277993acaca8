//! A process that writes to a store is killed at random moments: what it has acknowledged is there, and nothing is half.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use harness_store::{Expected, Sqlite, Store};
use tokio::runtime::Runtime;

/// The folder of the store, for the process that is killed.
const FOLDER: &str = "HARNESS_STORE_CRASH_FOLDER";
/// How often it is killed, instead of 50 times.
const KILLS: &str = "HARNESS_STORE_KILLS";
/// Those who write at the same time, each to names of its own.
const WRITERS: u64 = 6;
/// Lines of an append.
const LINES: u64 = 3;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// What a writer writes: known from its number and how many there were before, and of different lengths.
fn content(writer: u64, n: u64) -> Vec<u8> {
    let length = usize::try_from((writer * 7_919 + n * 104_729) % 9_000).unwrap();
    let mut bytes = format!("{writer} {n} ").into_bytes();
    bytes.resize(bytes.len() + length, b'.');
    bytes
}

/// Not much of a generator, but which moments it chooses is printed.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// The process that is killed. It prints a line for everything that the store has acknowledged.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(folder).unwrap());
    runtime().block_on(async {
        let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer))).collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

/// One whole line: the pipe takes it at once or, after the kill, not at all.
fn acknowledge(line: &str) {
    std::io::stdout().write_all(format!("\nack {line}\n").as_bytes()).unwrap();
}

async fn write(store: Arc<dyn Store>, writer: u64) {
    let log = format!("log {writer}");
    let mut length = 0;
    while let Some(line) = store.lines(&log, length, 1_000).await.unwrap().last() {
        length = line.position;
    }
    let kept = store.get("values", &log).await.unwrap();
    let (mut n, mut version) = kept.map_or((0, 0), |kept| (number(&kept.value), kept.version));
    // The value may have been deleted, after its timer.
    let timers = store.due(u64::MAX, 100).await.unwrap();
    n = timers.iter().find(|timer| timer.name == log).map_or(n, |timer| n.max(timer.due));
    loop {
        let lines = (1..=LINES).map(|line| content(writer, length + line)).collect();
        length = store.append(&log, length, lines).await.unwrap();
        acknowledge(&format!("log {writer} {length}"));
        n += 1;
        version = store.put("values", &log, Expected::Version(version), content(writer, n)).await.unwrap();
        acknowledge(&format!("value {writer} {n}"));
        let digest = store.put_blob(content(writer, n)).await.unwrap();
        acknowledge(&format!("blob {writer} {n} {digest}"));
        store.set_timer(&log, n, content(writer, n)).await.unwrap();
        acknowledge(&format!("timer {writer} {n}"));
        if n.is_multiple_of(5) {
            // Versions continue after it, and so do the numbers.
            store.delete("values", &log, Expected::Version(version)).await.unwrap();
            version = store.put("values", &log, Expected::Absent, content(writer, n)).await.unwrap();
        }
    }
}

/// The number in a content, which must be whole.
fn number(bytes: &[u8]) -> u64 {
    let text = std::str::from_utf8(bytes).unwrap();
    let mut words = text.split(' ');
    let [writer, n] = [(); 2].map(|()| words.next().unwrap().parse::<u64>().unwrap());
    assert!(bytes == content(writer, n), "a half value of writer {writer}: {n}");
    n
}

/// What was acknowledged last, by kind and writer, and all blobs.
#[derive(Default)]
struct Acknowledged {
    last: BTreeMap<(String, u64), u64>,
    blobs: Vec<(u64, u64, String)>,
}

impl Acknowledged {
    fn add(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let (writer, n) = (words[1].parse().unwrap(), words[2].parse().unwrap());
        if words[0] == "blob" {
            self.blobs.push((writer, n, words[3].to_owned()));
        } else {
            self.last.insert((words[0].to_owned(), writer), n);
        }
    }

    fn last(&self, kind: &str, writer: u64) -> u64 {
        self.last.get(&(kind.to_owned(), writer)).copied().unwrap_or(0)
    }
}

/// Starts the process, and kills it after so many acknowledgements.
fn kill_after(folder: &Path, count: u64, acknowledged: &mut Acknowledged) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut left = count;
    if left == 0 {
        child.kill().unwrap();
    }
    // What it has printed before it died counts too.
    for line in BufReader::new(child.stdout.take().unwrap()).split(b'\n') {
        let line = String::from_utf8(line.unwrap()).unwrap();
        if let Some(line) = line.strip_prefix("ack ") {
            acknowledged.add(line);
            left = left.saturating_sub(1);
            if left == 0 {
                child.kill().unwrap();
            }
        }
    }
    use std::os::unix::process::ExitStatusExt as _;
    assert_eq!(child.wait().unwrap().signal(), Some(9), "the child did not end by the kill");
}

/// Compares what there is with what was acknowledged.
async fn check(store: &dyn Store, acknowledged: &mut Acknowledged, first: usize) {
    let timers = store.due(u64::MAX, 100).await.unwrap();
    for writer in 0..WRITERS {
        let log = format!("log {writer}");
        let mut length = 0;
        loop {
            let lines = store.lines(&log, length, 1_000).await.unwrap();
            let Some(last) = lines.last() else { break };
            for (position, line) in (length + 1..).zip(&lines) {
                assert_eq!((line.position, number(&line.bytes)), (position, position));
            }
            length = last.position;
        }
        assert!(length.is_multiple_of(LINES), "half an append: {length}");
        assert!(length >= acknowledged.last("log", writer), "{length} lines of {:?}", acknowledged.last);
        let value = store.get("values", &log).await.unwrap();
        // After a fifth it is deleted for a moment.
        let least = acknowledged.last("value", writer);
        let is_kept = value.map_or(least.is_multiple_of(5), |value| number(&value.value) >= least);
        assert!(is_kept, "writer {writer}, value {least}");
        let timer = timers.iter().find(|timer| timer.name == log);
        let due = timer.map_or(0, |timer| timer.due);
        assert!(timer.is_none_or(|timer| number(&timer.payload) == timer.due));
        assert!(due >= acknowledged.last("timer", writer));
        // From where the next process begins.
        acknowledged.last.insert(("log".to_owned(), writer), length);
    }
    for (writer, n, digest) in &acknowledged.blobs[first..] {
        assert_eq!(store.blob(digest).await, Ok(Some(content(*writer, *n))));
    }
}

#[test]
fn a_killed_process_loses_nothing_and_leaves_nothing_half() {
    if std::env::var_os(FOLDER).is_some() {
        return;
    }
    let kills: u64 = std::env::var(KILLS).ok().map_or(50, |kills| kills.parse().unwrap());
    let mut seed = u64::from(std::process::id());
    println!("{kills} kills, seed {seed}");
    let (mut total, mut slowest) = (0, std::time::Duration::ZERO);
    let mut left = kills;
    while left > 0 {
        // All of a store is read after each kill: it begins anew before that takes long.
        let these = left.min(50);
        left -= these;
        total += kill_often(these, &mut seed, &mut slowest);
    }
    println!("{kills} kills, {total} blobs and as many values acknowledged, slowest opening {slowest:?}");
    assert!(kills < 50 || total > 200, "only {total} blobs were written before the kills");
}

/// Kills those who write to one store. Returns how many blobs were acknowledged.
fn kill_often(kills: u64, seed: &mut u64, slowest: &mut std::time::Duration) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Acknowledged::default();
    for _ in 0..kills {
        let first = acknowledged.blobs.len();
        let count = match next(seed) % 8 {
            0 => 0,
            1 => 1,
            _ => next(seed) % 200,
        };
        kill_after(folder.path(), count, &mut acknowledged);
        let began = std::time::Instant::now();
        let store = Sqlite::open(folder.path()).unwrap();
        *slowest = began.elapsed().max(*slowest);
        runtime().block_on(async {
            check(&store, &mut acknowledged, first).await;
            assert_eq!(store.is_writable().await, Ok(()));
        });
    }
    // All of them, after all kills.
    let store = Sqlite::open(folder.path()).unwrap();
    runtime().block_on(check(&store, &mut acknowledged, 0));
    acknowledged.blobs.len()
}
