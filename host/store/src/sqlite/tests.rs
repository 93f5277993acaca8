use std::sync::mpsc::channel as std_channel;

use super::*;
use crate::tests::runtime;
use crate::{MAX_LINE_BYTES, Memory};

fn store() -> (tempfile::TempDir, Sqlite) {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(folder.path()).unwrap();
    (folder, store)
}

impl Sqlite {
    /// Does something with the connection of the writer.
    async fn with_writer<T: Send + 'static>(&self, work: impl Fn(&Connection) -> T + Send + 'static) -> T {
        self.write(Ok(()), 0, move |connection| Ok(work(connection))).await.unwrap()
    }

    /// Holds the writer until what is returned is dropped. What is written meanwhile waits for one commit.
    fn hold(&self) -> (std::sync::mpsc::Sender<()>, Pending<()>) {
        let (release, released) = std_channel::<()>();
        let released = Mutex::new(released);
        let (begun, has_begun) = std_channel();
        let mut held = self.write(Ok(()), 0, move |_| {
            let _ = begun.send(());
            let _ = released.lock().unwrap().recv();
            Ok(())
        });
        let _ = held.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        has_begun.recv().unwrap();
        (release, held)
    }

    /// Lets the database grow by so many pages only.
    async fn limit_pages(&self, more: Option<i64>) {
        self.with_writer(move |connection| {
            let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
            let most = more.map_or(1 << 30, |more| pages + more);
            let _: i64 =
                connection.query_row(&format!("PRAGMA max_page_count = {most}"), [], |row| row.get(0)).unwrap();
        })
        .await;
    }
}

fn poll_once<T>(operation: &mut Pending<T>) {
    let waker = std::task::Waker::noop();
    assert!(operation.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
}

#[test]
fn what_waits_is_committed_together_and_each_has_its_own_result() {
    let (folder, store) = store();
    runtime().block_on(async {
        store.append("log", 0, vec![b"one".to_vec()]).await.unwrap();
        let (release, held) = store.hold();
        let mut appends: Vec<_> = [0, 1, 1, 2, 5].map(|at| store.append("log", at, vec![b"x".to_vec()])).into();
        appends.iter_mut().for_each(poll_once);
        let before = commits(folder.path());
        drop(release);
        held.await.unwrap();
        let mut results = Vec::new();
        for append in appends {
            results.push(append.await);
        }
        let conflict = |expected, at| Err(StoreError::Conflict { expected, at });
        assert_eq!(results, [conflict(0, 1), Ok(2), conflict(1, 2), Ok(3), conflict(5, 3)]);
        assert_eq!(store.lines("log", 0, 9).await.unwrap().len(), 3);
        assert_eq!(commits(folder.path()) - before, 1);
        // The control: one after another.
        store.append("log", 3, vec![b"x".to_vec()]).await.unwrap();
        store.append("log", 4, vec![b"x".to_vec()]).await.unwrap();
        assert_eq!(commits(folder.path()) - before, 3);
    });
}

/// Commits in the write-ahead log: its frames that say how large the database is then.
fn commits(folder: &Path) -> usize {
    let log = std::fs::read(folder.join("store.db-wal")).unwrap();
    log[32..].chunks_exact(24 + 4_096).filter(|frame| frame[4..8] != [0; 4]).count()
}

/// One that fails in the database takes none of the others with it, and leaves nothing itself.
#[test]
fn a_failure_in_a_group_fails_alone() {
    let (_folder, store) = store();
    runtime().block_on(async {
        let (release, held) = store.hold();
        let mut before = store.append("log", 0, vec![b"before".to_vec()]);
        poll_once(&mut before);
        let mut fails = store.write(Ok(()), 0, |connection| {
            rows::append(connection, "log", 1, &[b"half".to_vec()])?;
            connection.execute("INSERT INTO removed VALUES ('text')", [])?;
            Ok(())
        });
        poll_once(&mut fails);
        let mut after = store.append("log", 1, vec![b"after".to_vec()]);
        poll_once(&mut after);
        drop(release);
        held.await.unwrap();
        let failed = StoreError::Failed("Error code 20: datatype mismatch".to_owned());
        assert_eq!((before.await, fails.await, after.await), (Ok(1), Err(failed), Ok(2)));
        let lines: Vec<_> = store.lines("log", 0, 9).await.unwrap().into_iter().map(|line| line.bytes).collect();
        assert_eq!(lines, [b"before".to_vec(), b"after".to_vec()]);
    });
}

/// A database that may not grow, as on a full disk: the same code of SQLite.
#[test]
fn a_full_database_refuses_what_has_no_room_and_recovers() {
    let (folder, store) = store();
    runtime().block_on(async {
        store.append("log", 0, vec![vec![1; 10_000]]).await.unwrap();
        store.put("bucket", "key", Expected::Absent, vec![1; 10_000]).await.unwrap();
        store.is_writable().await.unwrap();
        store.limit_pages(Some(8)).await;
        let large = || vec![vec![2; MAX_LINE_BYTES]; 4];
        assert_eq!(store.append("log", 1, large()).await, Err(StoreError::Full));
        assert_eq!(store.put("bucket", "new", Expected::Absent, vec![2; 100_000]).await, Err(StoreError::Full));
        assert_eq!(store.put_blob(vec![2; 100_000]).await, Err(StoreError::Full));
        // Others of the same commit have room.
        let (release, held) = store.hold();
        let mut full = store.append("log", 1, large());
        poll_once(&mut full);
        let mut small = store.put("bucket", "small", Expected::Absent, vec![3]);
        poll_once(&mut small);
        drop(release);
        held.await.unwrap();
        assert_eq!((full.await, small.await), (Err(StoreError::Full), Ok(1)));
        // Nothing is lost, and nothing half is there.
        assert_eq!(store.lines("log", 0, 9).await.unwrap().len(), 1);
        assert_eq!(store.get("bucket", "key").await.unwrap().unwrap().value, vec![1; 10_000]);
        assert_eq!(store.get("bucket", "new").await, Ok(None));
        store.limit_pages(None).await;
        assert_eq!(store.append("log", 1, large()).await, Ok(5));
        assert_eq!(store.is_writable().await, Ok(()));
    });
    drop(store);
    let store = Sqlite::open(folder.path()).unwrap();
    runtime().block_on(async {
        assert_eq!(store.lines("log", 0, 9).await.unwrap().len(), 5);
        store.with_writer(check_integrity).await;
    });
}

fn check_integrity(connection: &Connection) {
    let result: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(result, "ok");
}

#[test]
fn a_full_queue_makes_its_callers_wait_in_order() {
    let (_folder, store) = store();
    runtime().block_on(async {
        let (release, held) = store.hold();
        // Each counts for its size: these are more than the queue has room for.
        let size = 1 << 20;
        let count = QUEUE_BYTES / size + 10;
        let mut puts: Vec<_> =
            (0..count).map(|n| store.put("bucket", "key", Expected::Version(n as u64), vec![1; size])).collect();
        puts.iter_mut().for_each(poll_once);
        assert!(store.inner.room.available_permits() < size / PIECE);
        // One that waits, and is dropped, is not executed.
        let mut dropped = store.put("bucket", "dropped", Expected::Absent, vec![1]);
        poll_once(&mut dropped);
        drop(dropped);
        drop(release);
        held.await.unwrap();
        for (n, put) in (1..).zip(puts) {
            assert_eq!(put.await, Ok(n));
        }
        assert_eq!(store.get("bucket", "dropped").await, Ok(None));
        assert_eq!(store.inner.room.available_permits(), QUEUE_BYTES / PIECE);
    });
}

#[test]
fn a_closed_store_ends_what_waits_and_executes_what_was_queued() {
    let (folder, store) = store();
    let runtime = runtime();
    let (waits, queued, never) = runtime.block_on(async {
        let mut waits = store.longer("log", 0);
        poll_once(&mut waits);
        let mut queued = store.put("bucket", "queued", Expected::Absent, vec![1]);
        poll_once(&mut queued);
        (waits, queued, store.put("bucket", "never", Expected::Absent, vec![1]))
    });
    let later = [store.get("bucket", "queued")];
    drop(store);
    runtime.block_on(async {
        assert_eq!(waits.await, Err(StoreError::Closed));
        assert_eq!(queued.await, Ok(1));
        assert_eq!(never.await, Err(StoreError::Closed));
        for read in later {
            assert_eq!(read.await, Err(StoreError::Closed));
        }
        let store = Sqlite::open(folder.path()).unwrap();
        assert_eq!(store.get("bucket", "queued").await.unwrap().unwrap().version, 1);
        assert_eq!(store.get("bucket", "never").await, Ok(None));
    });
}

#[test]
fn a_log_that_nobody_waits_for_takes_no_memory() {
    let (_folder, store) = store();
    runtime().block_on(async {
        let mut waits: Vec<_> = (0..100).map(|n| store.longer(&format!("log {}", n % 10), 0)).collect();
        waits.iter_mut().for_each(poll_once);
        assert_eq!(store.inner.waiters.logs(), 10);
        waits.truncate(5);
        assert_eq!(store.inner.waiters.logs(), 5);
        for n in 0..5 {
            store.append(&format!("log {n}"), 0, vec![Vec::new()]).await.unwrap();
        }
        for wait in waits {
            assert_eq!(wait.await, Ok(1));
        }
        assert_eq!(store.inner.waiters.logs(), 0);
    });
}

#[test]
fn lines_of_removed_logs_are_deleted() {
    let (folder, store) = store();
    runtime().block_on(async {
        for at in 0..3 {
            store.append("log", at * 1_000, vec![b"x".to_vec(); 1_000]).await.unwrap();
        }
        store.append("kept", 0, vec![b"x".to_vec()]).await.unwrap();
        store.remove_log("log").await.unwrap();
    });
    // Also by a process that comes later.
    drop(store);
    let store = Sqlite::open(folder.path()).unwrap();
    runtime().block_on(async {
        let left = |connection: &Connection| -> (i64, i64) {
            let number = |sql| connection.query_row(sql, [], |row| row.get(0)).unwrap();
            (number("SELECT count(*) FROM lines"), number("SELECT count(*) FROM removed"))
        };
        // A piece each time that nothing waits.
        let mut rounds = 0;
        while store.with_writer(left).await != (1, 0) {
            rounds += 1;
            assert!(rounds < 10_000, "lines are left");
            tokio::task::yield_now().await;
        }
        store.with_writer(check_integrity).await;
    });
}

#[test]
fn a_damaged_blob_is_not_returned() {
    let (_folder, store) = store();
    runtime().block_on(async {
        let digest = store.put_blob(b"abc".to_vec()).await.unwrap();
        store.with_writer(|connection| connection.execute("UPDATE blobs SET bytes = x'00'", []).unwrap()).await;
        assert_eq!(store.blob(&digest).await, Err(StoreError::Failed(format!("the blob `{digest}` is damaged"))));
    });
}

#[test]
fn a_backup_is_a_store_of_one_moment() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, store) = store();
    let other = tempfile::tempdir().unwrap();
    let to = other.path().join("store.db");
    runtime().block_on(async {
        let digest = store.put_blob(vec![5; 100_000]).await.unwrap();
        store.append("log", 0, vec![b"before".to_vec()]).await.unwrap();
        // Writes continue meanwhile, two values each time.
        let store = Arc::new(store);
        let writer = tokio::spawn({
            let store = store.clone();
            async move {
                for at in 0..300 {
                    store.append("pairs", at * 2, vec![Vec::new(); 2]).await.unwrap();
                }
            }
        });
        store.backup(&to).await.unwrap();
        writer.await.unwrap();
        let exists = StoreError::Failed("cannot write the backup: File exists (os error 17)".to_owned());
        assert_eq!(store.backup(&to).await, Err(exists.clone()));
        assert_eq!(store.backup(&folder.path().join("store.db")).await, Err(exists));
        assert!(matches!(store.backup(&other.path().join("none/x")).await, Err(StoreError::Failed(_))));
        assert_eq!(std::fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
        let copy = Sqlite::open(other.path()).unwrap();
        assert_eq!(copy.lines("log", 0, 9).await.unwrap().len(), 1);
        assert_eq!(copy.blob(&digest).await, Ok(Some(vec![5; 100_000])));
        let pairs = copy.lines("pairs", 0, 1_000).await.unwrap().len();
        assert!(pairs.is_multiple_of(2), "{pairs}");
        copy.with_writer(check_integrity).await;
        // It is a store of its own.
        copy.append("log", 1, vec![b"copy".to_vec()]).await.unwrap();
        assert_eq!(store.lines("log", 0, 9).await.unwrap().len(), 1);
        let memory = StoreError::Failed("a store in memory has no backup".to_owned());
        assert_eq!(Memory::new().backup(&to).await, Err(memory));
    });
}

/// A backup that fails leaves no file.
#[test]
fn a_backup_that_fails_leaves_no_file() {
    let (folder, store) = store();
    runtime().block_on(async {
        let odd = std::os::unix::ffi::OsStrExt::as_bytes(folder.path().as_os_str()).to_vec();
        let odd: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec([odd, b"/\xff".to_vec()].concat());
        let to = std::path::PathBuf::from(odd);
        let failed = StoreError::Failed("cannot write the backup: its path is not UTF-8".to_owned());
        assert_eq!(store.backup(&to).await, Err(failed));
        assert!(!to.exists());
    });
}
