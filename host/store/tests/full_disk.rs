//! A disk that becomes full: new work is refused, what is stored stays, and writes succeed again once there is room.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::path::Path;
use std::process::Command;

use harness_store::{Expected, Sqlite, Store, StoreError};

/// The small disk, for the process that fills it.
const DISK: &str = "HARNESS_STORE_SMALL_DISK";

/// Mounts a disk of 6 MiB for a process of its own, which is this program again.
const MOUNT: &str = "mount -t tmpfs -o size=6m none \"$0\" || exit 99; exec \"$1\" --exact child --nocapture";

#[test]
fn a_full_disk_refuses_new_work_and_loses_nothing() {
    if std::env::var_os(DISK).is_some() {
        return;
    }
    let disk = tempfile::tempdir().unwrap();
    let child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", MOUNT])
        .args([disk.path(), &std::env::current_exe().unwrap()])
        .env(DISK, disk.path())
        .output();
    let failed = match child {
        Err(error) => error.to_string(),
        Ok(child) if child.status.success() => {
            assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"));
            return;
        }
        Ok(child) => String::from_utf8_lossy(&[child.stdout, child.stderr].concat()).into_owned(),
    };
    let has_namespaces = !(failed.contains("unshare") || failed.contains("mount:"));
    assert!(harness_testing::skip::skipped(harness_testing::skip::Need::Namespaces, has_namespaces), "{failed}");
}

#[test]
fn child() {
    let Some(disk) = std::env::var_os(DISK) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let store = Sqlite::open(&disk).unwrap();
    let lines = runtime.block_on(fill(&store, Path::new(&disk)));
    drop(store);
    let store = Sqlite::open(&disk).unwrap();
    runtime.block_on(async {
        assert_eq!(store.lines("log", 0, 10_000).await.unwrap().len() as u64, lines);
        assert_eq!(store.is_writable().await, Ok(()));
    });
}

/// Fills the disk by a log, and makes room again.
async fn fill(store: &Sqlite, disk: &Path) -> u64 {
    let ballast = disk.join("ballast");
    std::fs::write(&ballast, vec![1; 3 << 20]).unwrap();
    assert_eq!(store.is_writable().await, Ok(()));
    let value = store.put("bucket", "key", Expected::Absent, vec![3; 10_000]).await.unwrap();
    let mut length = 0;
    let line = || vec![vec![2; 60_000]; 2];
    let error = loop {
        match store.append("log", length, line()).await {
            Ok(longer) => length = longer,
            Err(error) => break error,
        }
        assert!(length < 1_000, "the disk has no end");
    };
    assert_eq!(error, StoreError::Full);
    assert!(length > 4, "{length}");
    assert_eq!(store.is_writable().await, Err(StoreError::Full));
    assert_eq!(store.put_blob(vec![2; 1 << 20]).await, Err(StoreError::Full));
    assert_eq!(store.backup(&disk.join("backup")).await, Err(StoreError::Full));
    assert!(!disk.join("backup").exists());
    // Reads work, of what was there alone.
    assert_eq!(store.lines("log", 0, 10_000).await.unwrap().len() as u64, length);
    assert_eq!(store.get("bucket", "key").await.unwrap().unwrap().version, value);
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(store.is_writable().await, Ok(()));
    assert_eq!(store.append("log", length, line()).await, Ok(length + 2));
    length + 2
}
