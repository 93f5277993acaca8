//! Memory of a server over many calls of many kinds.
//!
//! ```text
//! SERVE_SOAK_CALLS=8600000 cargo bench --bench serve -- soak     a day at 100 calls a second
//! ```

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hyper::Method;
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

use crate::Site;

/// Calls where `SERVE_SOAK_CALLS` does not say, parts after which memory is looked at, and connections.
const CALLS: usize = 100_000;
const PARTS: usize = 20;
const CONNECTIONS: usize = 8;
const TENANTS: [&str; 4] = ["t0", "t1", "t2", "t3"];
/// Every so many requests a run of an agent.
const RUNS: usize = 1_000;

const POLICY: &str = "---\nmodel: { provider: script, script: replies.yaml }\nsandbox:\n  fs: { read: [\"**\"], write: [\"out/**\"] }\n  limits: { timeout_ms: 600000 }\n---\n";
const REPLIES: &str = "- tool_calls: [{ name: one, args: {} }, { name: files, args: { n: 7 } }]\n- text: all done\n";
const HOOK: &str = "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n    if payload[\"args\"].get(\"n\") == 99:\n      return block(\"no\")\n    return allow()\n---\nBlocks one call of a hundred.\n";
/// Tools by their names: front matter and script.
const TOOLS: [(&str, &str, &str); 7] = [
    ("one", "", "def run(args):\n    return 1\n"),
    (
        "files",
        "parameters: { n: { type: integer } }\n",
        "def run(args):\n    name = \"out/%d.txt\" % (args[\"n\"] % 50)\n    fs.write(name, \"x\" * 2000)\n    return len(fs.read(name))\n",
    ),
    ("fails", "", "def run(args):\n    fail(\"as it should\")\n"),
    ("refused", "", "def run(args):\n    return fs.write(\"other.txt\", \"x\")\n"),
    ("large", "", "def run(args):\n    return [str(n) * 10 for n in range(500)]\n"),
    ("logs", "", "def run(args):\n    for n in range(20):\n        log.info(\"line %d\" % n)\n    return None\n"),
    (
        "stops",
        "capabilities: { limits: { fuel: 2000000 } }\n",
        "def run(args):\n    for n in range(1 << 30):\n        pass\n",
    ),
];

/// The mix, until all calls are made; memory after each part, and how much more it is at the end than after the second.
pub(crate) fn run(runtime: &Runtime) -> Json {
    let count = std::env::var("SERVE_SOAK_CALLS").ok().and_then(|text| text.parse().ok()).unwrap_or(CALLS);
    let site = Site::new();
    let keys: Vec<String> = TENANTS.iter().map(|id| runtime.block_on(tenant(&site, id))).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let ends: Mutex<BTreeMap<String, usize>> = Mutex::default();
    let looks: Mutex<Vec<Json>> = Mutex::default();
    let began = Instant::now();
    println!(
        "{:<48} {:>10} {:>10} {:>10}",
        format!("{count} requests of {} tenants", TENANTS.len()),
        "MiB",
        "files",
        "threads"
    );
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut client = Client::new(site.address);
                let mut seen: BTreeMap<String, usize> = BTreeMap::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let key = &keys[number / 7 % keys.len()];
                    *seen.entry(client.one(number, key)).or_default() += 1;
                    let now = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if now.is_multiple_of((count / PARTS).max(1)) {
                        looks.lock().unwrap().push(look(&site, now));
                    }
                }
                let mut ends = ends.lock().unwrap();
                seen.into_iter().for_each(|(end, count)| *ends.entry(end).or_default() += count);
            });
        }
    });
    let (took, ends, looks) = (began.elapsed(), ends.into_inner().unwrap(), looks.into_inner().unwrap());
    let bytes = |at: usize| looks[at]["bytes"].as_f64().unwrap();
    let drift = bytes(looks.len() - 1) / bytes(1.min(looks.len() - 1)) - 1.0;
    println!("    {ends:?}");
    println!(
        "    {:.0} requests a second; after all {:+.1} % of what it was after a tenth",
        count as f64 / took.as_secs_f64(),
        drift * 100.0
    );
    json!({"requests": count, "seconds": took.as_secs_f64(), "ends": ends, "parts": looks, "drift": drift})
}

/// What the server holds now.
fn look(site: &Site, requests: usize) -> Json {
    let process = format!("/proc/{}", site.child.id());
    let entries = |folder: &str| std::fs::read_dir(format!("{process}/{folder}")).unwrap().count();
    let (memory, files, threads) = (site.memory(), entries("fd"), entries("task"));
    println!("{requests:<48} {:>10.1} {files:>10} {threads:>10}", memory as f64 / 1048576.0);
    json!({"requests": requests, "bytes": memory, "files": files, "threads": threads})
}

async fn tenant(site: &Site, id: &str) -> String {
    let of = |front: &str, script: &str, about: &str| {
        format!("---\n{front}script: |\n  {}\n---\n{about}\n", script.trim_end().replace('\n', "\n  "))
    };
    let mut files = vec![
        (".harness/harness.md".to_owned(), POLICY.to_owned()),
        (".harness/hooks/watch.md".to_owned(), HOOK.to_owned()),
        ("replies.yaml".to_owned(), REPLIES.to_owned()),
    ];
    for (name, front, script) in TOOLS {
        files.push((format!(".harness/tools/{name}.md"), of(front, script, &format!("Is {name} of {id}."))));
    }
    site.tenant_with(id, files).await
}

struct Client(TcpStream);

impl Client {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    /// One request of the mix, and how it ended.
    fn one(&mut self, number: usize, key: &str) -> String {
        if number.is_multiple_of(RUNS) {
            let (status, _) = self.ask(&Method::POST, "/v1/runs", key, Some(&json!({"input": "go on"})));
            return format!("run {status}");
        }
        let tool = match number % 20 {
            0..=7 => "one",
            8..=12 => "files",
            13 => "fails",
            14 => "refused",
            15 => "large",
            16 => "logs",
            17 => "stops",
            18 => return format!("tools {}", self.ask(&Method::GET, "/v1/tools", key, None).0),
            _ => return format!("usage {}", self.ask(&Method::GET, "/v1/usage", key, None).0),
        };
        let arguments = if tool == "files" { json!({"n": number % 100}) } else { json!({}) };
        let path = format!("/v1/tools/{tool}/calls");
        let (status, answer) = self.ask(&Method::POST, &path, key, Some(&json!({ "arguments": arguments })));
        let outcome = answer["outcome"].as_str().unwrap_or("none");
        assert!(outcome != "none", "{tool}: {status} {answer}");
        format!("{tool} {outcome}")
    }

    fn ask(&mut self, method: &Method, path: &str, key: &str, body: Option<&Json>) -> (u16, Json) {
        let body = body.map(Json::to_string).unwrap_or_default();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n");
        let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        let text = format!("{head}{kind}Content-Length: {}\r\n\r\n{body}", body.len());
        self.0.write_all(text.as_bytes()).unwrap();
        let (mut text, mut buffer) = (Vec::new(), [0; 16 << 10]);
        loop {
            if let Some(answer) = answered(&text) {
                return answer;
            }
            let read = self.0.read(&mut buffer).unwrap();
            assert!(read > 0, "the connection has ended");
            text.extend(&buffer[..read]);
        }
    }
}

/// Status and body of an answer, once it is there.
fn answered(text: &[u8]) -> Option<(u16, Json)> {
    let end = text.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&text[..end]).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok()).unwrap();
    let body = text.get(end..end + length)?;
    let status = head.split(' ').nth(1)?.parse().unwrap();
    Some((status, serde_json::from_slice(body).unwrap_or_default()))
}
