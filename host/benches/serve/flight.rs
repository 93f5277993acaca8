//! Memory of a server whose calls all wait, each with an instance, a connection and a script in the middle.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

use crate::{Site, request};

/// Calls at one time.
const CALLS: [usize; 3] = [100, 1_000, 10_000];
/// A class that lets all of them be made by one tenant.
pub(crate) const CONFIG: &str = "instances: 10000\nclasses: { default: { concurrent_calls: 10000, queued_calls: 10000, \
memory_bytes: 1000000000000, requests: { per_minute: 1000000, burst: 1000000 } } }\n";
const WAITS: &str = "def run(args):\n    text = \"in flight\" * 100\n    sleep(600000)\n    return text\n";
/// How often memory is looked at, and how often it has to be the same, to a part in a thousand, before it counts.
const LOOK: Duration = Duration::from_millis(500);
const SAME: usize = 4;

/// One row for each number of calls.
pub(crate) fn run(runtime: &Runtime) -> Json {
    let site = Site::start("flight", Some(tempfile::tempdir().unwrap()));
    let asked = request(&runtime.block_on(site.tenant("acme", WAITS)));
    println!("{:<48} {:>10} {:>10}", "calls in flight", "MiB", "KiB each");
    let mut streams: Vec<TcpStream> = Vec::new();
    let (mut none, mut rows) = (None, Vec::new());
    for count in CALLS {
        while streams.len() < count {
            let mut stream = TcpStream::connect(site.address).unwrap();
            stream.write_all(&asked).unwrap();
            stream.set_nonblocking(true).unwrap();
            streams.push(stream);
        }
        let memory = settled(&site);
        let answered = streams.iter().filter(|stream| stream.peek(&mut [0]).is_ok()).count();
        assert_eq!(answered, 0, "calls that are to wait were answered");
        // What the first hundred take is mostly what a server has once.
        let (first, base) = *none.get_or_insert((count, memory));
        let each = memory.saturating_sub(base) as f64 / (count - first).max(1) as f64 / 1024.0;
        println!("{count:<48} {:>10.1} {each:>10.1}", memory as f64 / 1048576.0);
        rows.push(json!({"calls": count, "bytes": memory, "kib_each": each}));
    }
    // Their clients are gone, which ends them.
    drop(streams);
    json!(rows)
}

/// The private memory of a server once it does not change any more.
fn settled(site: &Site) -> u64 {
    let (mut last, mut same) = (0_u64, 0);
    while same < SAME {
        std::thread::sleep(LOOK);
        let now = site.memory();
        same = if now.abs_diff(last) <= last / 1000 { same + 1 } else { 0 };
        last = now;
    }
    last
}
