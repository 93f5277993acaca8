//! Measures the embedded store on the disk of a folder: `cargo run --release -p harness-store --example measure [FOLDER]`.

#![expect(clippy::print_stdout, clippy::unwrap_used, clippy::indexing_slicing, reason = "a program for developers")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness_store::{Expected, Sqlite, Store};

/// Bytes of a line and of a value.
const BYTES: usize = 400;

fn print(what: &str, mut times: Vec<Duration>, took: Duration) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    let rate = times.len() as f64 / took.as_secs_f64();
    println!("{what:<44} p50 {:>10.1?}   p99 {:>10.1?}   {rate:>9.0}/s", at(50), at(99));
}

/// Does something so many times, in so many tasks.
async fn measure<F>(
    what: &str,
    tasks: usize,
    times: usize,
    operation: impl Fn(usize, usize) -> F + Send + Sync + 'static,
) where
    F: Future<Output = ()> + Send,
{
    let operation = Arc::new(operation);
    let began = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let operation = operation.clone();
            tokio::spawn(async move {
                let mut took = Vec::new();
                for n in 0..times {
                    let began = Instant::now();
                    operation(task, n).await;
                    took.push(began.elapsed());
                }
                took
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in running {
        all.extend(task.await.unwrap());
    }
    print(what, all, began.elapsed());
}

fn main() {
    let parent = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let folder = tempfile::tempdir_in(parent).unwrap();
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(folder.path()).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        for (tasks, times) in [(1, 2_000), (16, 1_000), (64, 500), (256, 200)] {
            let store = store.clone();
            measure(&format!("append of a line, {tasks} in flight"), tasks, times, move |task, n| {
                let log = format!("log {tasks} {task}");
                let append = store.append(&log, n as u64, vec![vec![7; BYTES]]);
                async move { assert_eq!(append.await.unwrap(), n as u64 + 1) }
            })
            .await;
        }
        let writes = store.clone();
        measure("append of 100 lines, 1 in flight", 1, 500, move |_, n| {
            let append = writes.append("hundreds", n as u64 * 100, vec![vec![7; BYTES]; 100]);
            async move { assert!(append.await.is_ok()) }
        })
        .await;
        let writes = store.clone();
        measure("put, 1 in flight", 1, 2_000, move |_, n| {
            let put = writes.put("bucket", &(n % 1_000).to_string(), Expected::Anything, vec![7; BYTES]);
            async move { assert!(put.await.is_ok()) }
        })
        .await;
        for tasks in [1, 64] {
            let reads = store.clone();
            measure(&format!("get, {tasks} in flight"), tasks, 100_000 / tasks, move |_, n| {
                let get = reads.get("bucket", &(n % 1_000).to_string());
                async move { assert!(get.await.unwrap().is_some()) }
            })
            .await;
            let reads = store.clone();
            measure(&format!("10 lines of a log, {tasks} in flight"), tasks, 20_000 / tasks, move |_, n| {
                let lines = reads.lines("hundreds", (n % 40_000) as u64, 10);
                async move { assert_eq!(lines.await.unwrap().len(), 10) }
            })
            .await;
        }
        let blobs = store.clone();
        measure("blob of 8 MiB, 1 in flight", 1, 10, move |_, n| {
            let put = blobs.put_blob(vec![n as u8; 8 << 20]);
            async move { assert!(put.await.is_ok()) }
        })
        .await;
    });
    let began = Instant::now();
    drop(store);
    let closed = began.elapsed();
    let began = Instant::now();
    let store = Sqlite::open(folder.path()).unwrap();
    println!("closed in {closed:.1?}, opened in {:.1?}", began.elapsed());
    drop(store);
}
