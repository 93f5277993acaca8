//! What a request to `harness serve` costs beside an empty handler of axum in the same run; what a tenant costs that does
//! nothing; how long a first call takes; what a tenant notices of another one that tries to take all of the machine; what
//! calls take that wait; and whether memory grows.
//!
//! ```text
//! cargo bench --bench serve              all
//! cargo bench --bench serve -- tenants   those whose name has this in it: calls, cold, tenants, neighbours, flight, soak
//! ```
//!
//! Servers are processes of their own, and clients are in this one, on the same cores. Prints tables, and writes
//! `target/bench/serve.json`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::cast_precision_loss,
    reason = "a measurement ends where something fails"
)]

#[path = "serve/flight.rs"]
mod flight;
#[path = "serve/soak.rs"]
mod soak;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use harness_artifact::server::ServerConfig;
use harness_bench::Samples;
use harness_mcp::http::{Limits, Listener, Threads, serve_connections};
use harness_plugin::archive::pack;
use harness_plugin::content::Content;
use harness_serve::{Doors, Server, Settings, client};
use hyper::Method;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;

/// Connections that send requests at one time, for how long a round, and rounds.
const CONNECTIONS: usize = 32;
const ROUND: Duration = Duration::from_secs(4);
const ROUNDS: usize = 3;
/// Requests with one in flight.
const CALLS: usize = 3_000;
/// Tenants whose first call is timed.
const COLD: usize = 100;
/// Tenants that are registered and do nothing.
const IDLE: [usize; 2] = [1_000, 10_000];
/// Requests of the operator at one time.
const AT_ONCE: usize = 64;
/// Endless calls of a hostile tenant, calls of the other one, and the pause between them.
const ENDLESS: usize = 64;
const VICTIM: usize = 1_000;
const PAUSE: Duration = Duration::from_millis(2);

/// A class that no measurement reaches the end of.
const CONFIG: &str = "instances: 256\nclasses: { default: { requests: { per_minute: 1000000, burst: 1000000 } } }\n";
const ONE: &str = "def run(args):\n    return 1\n";
const LOOP: &str = "def run(args):\n    for i in range(1 << 30):\n        pass\n";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if let [child, what, data] = &words[..]
        && child == "child"
    {
        return serve(what, Path::new(data));
    }
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|part| name.contains(part.as_str()));
    let mut figures = serde_json::Map::new();
    let runtime = runtime();
    for (name, measure) in [
        ("calls", calls as fn(&Runtime) -> Json),
        ("cold", cold),
        ("tenants", tenants),
        ("neighbours", neighbours),
        ("flight", flight::run),
        ("soak", soak::run),
    ] {
        if is_wanted(name) {
            figures.insert(name.to_owned(), measure(&runtime));
        }
    }
    if let Some(folder) = harness_bench::target() {
        let folder = folder.join("bench");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("serve.json"), serde_json::to_string_pretty(&figures).unwrap()).unwrap();
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A server in a process of its own: its address on standard output, until standard input ends.
fn serve(what: &str, data: &Path) {
    runtime().block_on(async {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let tenants = Listener::loopback(loopback).unwrap();
        let address = tenants.address().unwrap();
        let end = async {
            println!("{address}");
            let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await;
        };
        if what == "empty" {
            let answer = || async { (axum::http::StatusCode::OK, [("content-type", "application/json")], "{}") };
            let router = Router::new().route("/v1/tools/{tool}/calls", post(answer));
            let service = TowerToHyperService::new(router);
            let threads = Threads::new(2).unwrap();
            serve_connections(
                tenants,
                Limits { connections: 1_000, ..Limits::default() },
                &threads,
                service,
                end,
                || (),
            )
            .await
            .unwrap();
            return;
        }
        let config = if what == "flight" { flight::CONFIG } else { CONFIG };
        let (config, _) = ServerConfig::parse("serve.yaml", config);
        let settings = Settings { data: data.to_owned(), config: config.unwrap(), beside: data.to_owned() };
        let (server, first) = Server::open(settings).await.unwrap();
        if let Some(first) = first {
            std::fs::write(data.join("admin.key"), first.text).unwrap();
        }
        let operator = Listener::unix(&data.join("admin.sock")).unwrap();
        let doors = Doors { tenants, operator, operator_dashboard: None, is_secure: false };
        server.serve(doors, end).await.unwrap();
    });
}

/// A server that runs.
struct Site {
    child: Child,
    address: SocketAddr,
    folder: Option<TempDir>,
    /// From the start of its process until it answers.
    ready: Duration,
}

impl Site {
    fn start(what: &str, folder: Option<TempDir>) -> Self {
        let began = Instant::now();
        let data = folder.as_ref().map_or(Path::new("."), TempDir::path);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child", what]).arg(data).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: line.trim().parse().unwrap(), folder, ready: began.elapsed() }
    }

    fn new() -> Self {
        Self::start("serve", Some(tempfile::tempdir().unwrap()))
    }

    fn again(mut self) -> Self {
        let folder = self.folder.take();
        drop(self);
        Self::start("serve", folder)
    }

    /// What the operator asks.
    async fn admin(&self, method: Method, path: &str, body: Vec<u8>) -> Json {
        let data = self.folder.as_ref().unwrap().path();
        let key = std::fs::read_to_string(data.join("admin.key")).unwrap();
        let asked = client::ask(&data.join("admin.sock"), &key, method, path, body).await.unwrap();
        assert!(asked.0 < 300, "{path}: {asked:?}");
        asked.1
    }

    /// A tenant with a key, and a project of one tool `it` unless its script is empty.
    async fn tenant(&self, id: &str, script: &str) -> String {
        if script.is_empty() {
            return self.tenant_with(id, Vec::new()).await;
        }
        let limits = "---\nsandbox: { limits: { timeout_ms: 600000, fuel: 100000000000000 } }\n---\n".to_owned();
        let tool = format!("---\nscript: |\n  {}\n---\nIt is {id}.\n", script.trim_end().replace('\n', "\n  "));
        let files = [(".harness/harness.md", limits), (".harness/tools/it.md", tool)];
        self.tenant_with(id, files.map(|(path, text)| (path.to_owned(), text)).to_vec()).await
    }

    /// A tenant with a key, and a project of these files where there are some.
    async fn tenant_with(&self, id: &str, files: Vec<(String, String)>) -> String {
        self.admin(Method::POST, "/admin/v1/tenants", json!({"id": id}).to_string().into_bytes()).await;
        if !files.is_empty() {
            let files = files.into_iter().map(|(path, text)| (path, text.into_bytes()));
            let packed = pack(&Content::new(files).unwrap()).unwrap();
            self.admin(Method::PUT, &format!("/admin/v1/tenants/{id}/project"), packed).await;
        }
        let body = json!({"role": "owner", "label": "bench"}).to_string().into_bytes();
        let made = self.admin(Method::POST, &format!("/admin/v1/tenants/{id}/keys"), body).await;
        made["key"].as_str().unwrap().to_owned()
    }

    /// Private memory of the server's process, in bytes.
    fn memory(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id())).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("Private_"));
        lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>() << 10
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

/// The bytes of a call with a key.
fn request(key: &str) -> Vec<u8> {
    let head = format!("POST /v1/tools/it/calls HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n");
    format!("{head}Content-Type: application/json\r\nContent-Length: 16\r\n\r\n{{\"arguments\":{{}}}}").into_bytes()
}

/// How many bytes the first answer of a text has, once all of them are there.
fn length(text: &[u8]) -> Option<usize> {
    let end = text.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&text[..end]).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}{}", String::from_utf8_lossy(&text[end..]));
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("content-length: ")).unwrap();
    let whole = end + line["content-length: ".len()..].parse::<usize>().unwrap();
    (text.len() >= whole).then_some(whole)
}

/// A connection that sends one request after the other.
struct Connection(TcpStream);

impl Connection {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    fn call(&mut self, request: &[u8]) -> Duration {
        let began = Instant::now();
        self.0.write_all(request).unwrap();
        let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
        while length(&text).is_none() {
            let read = self.0.read(&mut buffer).unwrap();
            assert!(read > 0, "the connection has ended");
            text.extend(&buffer[..read]);
        }
        began.elapsed()
    }
}

/// Calls in a second over many connections.
fn rate(runtime: &Runtime, address: SocketAddr, request: &[u8]) -> f64 {
    let until = Instant::now() + ROUND;
    let work = |request: Vec<u8>| async move {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (mut count, mut text) = (0_u64, Vec::with_capacity(4096));
        while Instant::now() < until {
            stream.write_all(&request).await.unwrap();
            text.clear();
            while length(&text).is_none() {
                assert!(stream.read_buf(&mut text).await.unwrap() > 0, "the connection has ended");
            }
            count += 1;
        }
        count
    };
    let tasks: Vec<_> = (0..CONNECTIONS).map(|_| runtime.spawn(work(request.to_vec()))).collect();
    let count: u64 = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).sum();
    count as f64 / ROUND.as_secs_f64()
}

/// Recorded calls beside an empty handler.
fn calls(runtime: &Runtime) -> Json {
    let (empty, site) = (Site::start("empty", None), Site::new());
    let request = request(&runtime.block_on(site.tenant("acme", ONE)));
    let (mut one, mut other) = (Connection::new(empty.address), Connection::new(site.address));
    let mut rows: [(&'static str, &mut dyn FnMut() -> Duration); 2] =
        [("an empty handler", &mut || one.call(&request)), ("a recorded tool call", &mut || other.call(&request))];
    let times = Samples::times_in_turn(&mut rows, 10, CALLS / 10);
    println!("{:<48} {:>10} {:>10} {:>8}", "one request in flight", "p50 µs", "p99 µs", "empty");
    let floor = times[0].median();
    times.iter().for_each(|samples| println!("{}", samples.row(floor)));
    println!("    a call takes {:.1} µs more at p50", times[1].median() - floor);
    // In turn, so that what else the machine does touches both.
    let mut rates = [0.0, 0.0];
    for _ in 0..ROUNDS {
        rates[0] += rate(runtime, empty.address, &request) / ROUNDS as f64;
        rates[1] += rate(runtime, site.address, &request) / ROUNDS as f64;
    }
    println!("{:<48} {:>10} {:>10}", format!("{CONNECTIONS} connections"), "calls/s", "of empty");
    for (name, rate) in [("an empty handler", rates[0]), ("recorded tool calls", rates[1])] {
        println!("{name:<48} {rate:>10.0} {:>10.2}", rate / rates[0]);
    }
    let rows: Vec<Json> = times.iter().map(|samples| samples.json(floor)).collect();
    json!({"one": rows, "empty_per_s": rates[0], "calls_per_s": rates[1], "ratio": rates[1] / rates[0]})
}

/// The first call of tenants whose projects are not open, each with a tool of its own.
fn cold(runtime: &Runtime) -> Json {
    let site = Site::new();
    let keys: Vec<String> = (0..COLD)
        .map(|n| runtime.block_on(site.tenant(&format!("t{n}"), &format!("def run(args):\n    return {n}\n"))))
        .collect();
    let site = site.again();
    // What the process does once.
    let times: Vec<Duration> =
        keys.iter().map(|key| Connection::new(site.address).call(&request(key))).skip(1).collect();
    let first = Samples::of("the first call of a tenant", times);
    let times = keys.iter().map(|key| Connection::new(site.address).call(&request(key))).skip(1).collect();
    let second = Samples::of("the second one, on a new connection", times);
    println!("{:<48} {:>10} {:>10} {:>8}", "after a start", "p50 µs", "p99 µs", "second");
    println!("{}\n{}", first.row(second.median()), second.row(second.median()));
    json!([first.json(second.median()), second.json(second.median())])
}

/// Tenants that are registered, with a key each, and do nothing.
fn tenants(runtime: &Runtime) -> Json {
    let mut site = Site::new().again();
    let (none, mut there) = (site.memory(), 0);
    println!("{:<48} {:>10} {:>10} {:>10}", "registered, after a start", "MiB", "KiB each", "ready ms");
    let mut rows = vec![json!({"tenants": 0, "bytes": none, "ready_ms": site.ready.as_secs_f64() * 1e3})];
    for count in IDLE {
        for from in (there..count).step_by(AT_ONCE) {
            let ids: Vec<String> = (from..count.min(from + AT_ONCE)).map(|n| format!("t{n}")).collect();
            runtime.block_on(async { futures_util::future::join_all(ids.iter().map(|id| site.tenant(id, ""))).await });
        }
        there = count;
        site = site.again();
        let (memory, ready) = (site.memory(), site.ready.as_secs_f64() * 1e3);
        let each = memory.saturating_sub(none) as f64 / count as f64 / 1024.0;
        println!("{count:<48} {:>10.1} {each:>10.2} {ready:>10.0}", memory as f64 / 1048576.0);
        rows.push(json!({"tenants": count, "bytes": memory, "kib_each": each, "ready_ms": ready}));
    }
    json!(rows)
}

/// A small call of one tenant, alone and beside endless loops of another one.
fn neighbours(runtime: &Runtime) -> Json {
    let site = Site::new();
    let victim = request(&runtime.block_on(site.tenant("victim", ONE)));
    let hostile = request(&runtime.block_on(site.tenant("hostile", LOOP)));
    let measured = |name| {
        let mut connection = Connection::new(site.address);
        let mut times = Vec::new();
        for n in 0..VICTIM + VICTIM / 10 {
            std::thread::sleep(PAUSE);
            let time = connection.call(&victim);
            if n >= VICTIM / 10 {
                times.push(time);
            }
        }
        Samples::of(name, times)
    };
    println!("{:<48} {:>10} {:>10} {:>8}", "a small call, one in flight", "p50 µs", "p99 µs", "alone");
    let alone = measured("alone");
    println!("{}", alone.row(alone.median()));
    let stop = AtomicBool::new(false);
    let endless: Vec<TcpStream> = (0..ENDLESS)
        .map(|_| {
            let mut stream = TcpStream::connect(site.address).unwrap();
            stream.write_all(&hostile).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        })
        .collect();
    // Until they are at work; one that has ended would be noticed by its answer.
    std::thread::sleep(Duration::from_secs(1));
    let beside = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
                for stream in &endless {
                    assert!(stream.peek(&mut [0]).is_err(), "an endless call has ended");
                }
            }
        });
        let beside = measured("beside a tenant with 64 endless loops");
        stop.store(true, Ordering::Relaxed);
        watch.join().unwrap();
        beside
    });
    println!("{}", beside.row(alone.median()));
    json!([alone.json(alone.median()), beside.json(alone.median())])
}
