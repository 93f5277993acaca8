//! What `harness mcp serve` costs its clients.
//!
//! Calls over HTTP stand beside their floor: the same HTTP server in a process of its own, which answers with a constant,
//! asked by the same clients in the same run. The start of a server stands beside `harness --version`.
//! Tools of other programs' servers, through the gateway, stand beside the same client at the server itself; so does the
//! network of such a server.
//! Prints tables, and writes `target/bench/mcp.json`.
//!
//! ```text
//! cargo bench --bench mcp              all
//! cargo bench --bench mcp -- calls     those whose name has this in it: calls, start, ends, gateway
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a measurement ends where something fails"
)]

#[path = "mcp/gateway.rs"]
mod gateway;

use std::convert::Infallible;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use harness_bench::Samples;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Connections, each with one request at a time.
const CLIENTS: usize = 32;
/// How long each is measured, in turns so that what else the machine does touches both.
const TURN: Duration = Duration::from_millis(500);
const TURNS: usize = 6;
/// The argument by which this program is the floor.
const FLOOR: &str = "--answer-a-constant";
/// What the floor answers, and the server too.
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"Hello Ada"}],"isError":false}}"#;
const TOOL: &str = "---\nparameters:\n  name: { type: string }\nscript: |\n  def run(args):\n      return 'Hello ' + args['name']\n---\nGreets.\n";
/// A command with a child, and a grandchild in a session of its own.
const STARTS: &str = "---\nparameters:\n  script: { type: string }\ntimeout_ms: 600000\nscript: |\n  def run(args):\n      exec.run('sh', ['-c', args['script']])\n---\nStarts.\n";
const SCRIPT: &str = "exec > pipe; sleep 600 & setsid sh -c 'sleep 600 & wait' & echo begun; wait";

fn main() {
    if std::env::args().any(|argument| argument == FLOOR) {
        return answer_a_constant();
    }
    if std::env::args().any(|argument| argument == gateway::SERVE) {
        return gateway::serve();
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let takes = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted));
    let mut result = json!({"cores": std::thread::available_parallelism().map_or(0, usize::from)});
    if takes("calls") {
        result["calls"] = calls();
    }
    if takes("start") {
        result["start"] = start();
    }
    if takes("ends") {
        result["ends"] = ends();
    }
    if takes("gateway") {
        result["gateway"] = gateway::run();
    }
    let out = harness_bench::target().unwrap().join("bench");
    std::fs::create_dir_all(&out).unwrap();
    std::fs::write(out.join("mcp.json"), format!("{result:#}\n")).unwrap();
    println!("\nwritten: {}", out.join("mcp.json").display());
}

/// The HTTP server of the floor: it reads each body, and answers with a constant.
fn answer_a_constant() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(cores).enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("http://{}/mcp", listener.local_addr().unwrap());
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let _ = stream.set_nodelay(true);
            tokio::spawn(async move {
                let service = service_fn(|request: Request<Incoming>| async move {
                    let _ = request.into_body().collect().await;
                    let mut answer = Response::new(Full::new(Bytes::from_static(ANSWER.as_bytes())));
                    answer.headers_mut().insert("content-type", "application/json".parse().unwrap());
                    Ok::<_, Infallible>(answer)
                });
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
}

/// The binary as users have it, or the one that the variable `HARNESS` names.
fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("HARNESS") {
        return named.into();
    }
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--quiet", "--manifest-path"])
        // All packages that are built by default, or the engine would be built anew with other features.
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .status();
    assert!(built.unwrap().success());
    harness_bench::target().unwrap().join("release/harness")
}

fn project() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(".harness/tools")).unwrap();
    std::fs::write(folder.path().join(".harness/tools/greet.md"), TOOL).unwrap();
    folder
}

fn message(method: &str, mut params: Value) -> String {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

fn greet() -> String {
    message("tools/call", json!({"name": "greet", "arguments": {"name": "Ada"}}))
}

/// A server in a process of its own, and where it is reached.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap().to_owned();
        Self { child, address }
    }

    fn request(&self) -> Vec<u8> {
        let body = greet();
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: greet\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .into_bytes()
    }

    /// Calls for one turn: how long each took.
    fn turn(&self, clients: usize) -> Vec<Duration> {
        let request = self.request();
        let end = Instant::now() + TURN;
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..clients).map(|_| scope.spawn(|| self.calls(&request, end))).collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        })
    }

    fn calls(&self, request: &[u8], end: Instant) -> Vec<Duration> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        let (mut times, mut buffer) = (Vec::new(), vec![0; 4096]);
        while Instant::now() < end {
            let begun = Instant::now();
            stream.write_all(request).unwrap();
            let mut read = 0;
            loop {
                read += stream.read(&mut buffer[read..]).unwrap();
                let text = std::str::from_utf8(&buffer[..read]).unwrap();
                if text.ends_with("\"isError\":false}}") {
                    break;
                }
                assert!(read < buffer.len(), "{text}");
            }
            times.push(begun.elapsed());
        }
        times
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `harness mcp serve` over HTTP.
fn served(folder: &Path, more: &[&str]) -> Server {
    let mut command = Command::new(binary());
    command.arg("-C").arg(folder).args(["mcp", "serve", "--http", "127.0.0.1:0", "--no-token"]).args(more);
    Server::start(command)
}

fn calls() -> Value {
    let folder = project();
    let quiet = project();
    std::fs::write(quiet.path().join(".harness/harness.md"), "---\nsandbox: { audit: false }\n---\n").unwrap();
    let mut floor = Command::new(std::env::current_exe().unwrap());
    floor.arg(FLOOR);
    let servers = [
        ("floor: a constant", Server::start(floor)),
        ("tools/call", served(folder.path(), &[])),
        ("tools/call, no audit log", served(quiet.path(), &[])),
    ];
    let mut rows = Vec::new();
    println!(
        "{:<28} {:>8} {:>12} {:>10} {:>10} {:>8}",
        "over HTTP", "clients", "a second", "p50 µs", "p99 µs", "of floor"
    );
    for clients in [1, CLIENTS] {
        let mut times = vec![Vec::new(); servers.len()];
        for turn in 0..=TURNS {
            for ((_, server), times) in servers.iter().zip(&mut times) {
                let taken = server.turn(clients);
                if turn > 0 {
                    times.extend(taken);
                }
            }
        }
        let mut floor = f64::NAN;
        for ((name, _), times) in servers.iter().zip(times) {
            let a_second = times.len() as f64 / (TURN.as_secs_f64() * TURNS as f64);
            let samples = Samples::of(name, times);
            let (p50, p99) = (samples.median(), samples.percentile(0.99));
            if floor.is_nan() {
                floor = a_second;
            }
            println!("{name:<28} {clients:>8} {a_second:>12.0} {p50:>10.1} {p99:>10.1} {:>8.2}", a_second / floor);
            rows.push(json!({"name": name, "clients": clients, "calls_a_second": a_second, "p50_us": p50, "p99_us": p99, "of_floor": a_second / floor}));
        }
    }
    let resident = resident(&servers[1].1.child);
    println!("resident after these calls: {} MiB", resident >> 10);
    json!({"rows": rows, "resident_after_kib": resident})
}

/// Resident memory of a process, in KiB.
fn resident(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A client over standard input and output.
struct Client {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Client {
    fn start(binary: &Path, folder: &Path) -> Self {
        let mut command = Command::new(binary);
        command.arg("-C").arg(folder).args(["mcp", "serve"]);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from }
    }

    fn send(&mut self, message: &str) {
        self.to.as_mut().unwrap().write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    fn answer(&mut self, message: &str) -> String {
        self.send(message);
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line
    }

    fn ask(&mut self, message: &str, part: &str) {
        let line = self.answer(message);
        assert!(line.contains(part), "{line}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.wait();
    }
}

/// The start of a server, a call over standard input, and the memory of one that waits.
fn start() -> Value {
    let (folder, binary) = (project(), binary());
    let list = message("tools/list", json!({}));
    let rows = Samples::take_in_turn(
        &mut [
            ("floor: `harness --version`", &mut || {
                let mut command = Command::new(&binary);
                assert!(command.arg("--version").stdout(Stdio::null()).status().unwrap().success());
            }),
            ("start to the answer to tools/list, and end", &mut || {
                Client::start(&binary, folder.path()).ask(&list, "greet");
            }),
        ],
        5,
        10,
    );
    let floor = rows.first().map_or(f64::NAN, Samples::median);
    let mut first = Vec::new();
    for _ in 0..50 {
        let begun = Instant::now();
        let mut client = Client::start(&binary, folder.path());
        client.ask(&list, "greet");
        first.push(begun.elapsed());
    }
    let first = Samples::of("start to the answer to tools/list", first);
    let mut client = Client::start(&binary, folder.path());
    client.ask(&list, "greet");
    let idle = resident(&client.child);
    let call = greet();
    let called = Samples::take("tools/call over standard input", 5_000, || client.ask(&call, "Hello Ada"));
    println!("\n{:<48} {:>10} {:>10} {:>8}", "", "p50 µs", "p99 µs", "floors");
    let rows: Vec<&Samples> = rows.iter().chain([&first, &called]).collect();
    rows.iter().for_each(|row| println!("{}", row.row(floor)));
    println!("resident when idle: {:.1} MiB", idle as f64 / 1024.0);
    json!({"rows": rows.iter().map(|row| row.json(floor)).collect::<Vec<_>>(), "idle_kib": idle})
}

/// From the cancellation of a call to the end of the last process that its command has started.
fn ends() -> Value {
    let (folder, binary) = (project(), binary());
    let policy = "---\nsandbox:\n  fs: { read: [.], write: [.] }\n  exec: { allow: [sh] }\n  limits: { timeout_ms: 600000 }\n---\n";
    std::fs::write(folder.path().join(".harness/harness.md"), policy).unwrap();
    std::fs::write(folder.path().join(".harness/tools/starts.md"), STARTS).unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let call = message("tools/call", json!({"name": "starts", "arguments": {"script": SCRIPT}}));
    let mut client = Client::start(&binary, folder.path());
    let mut times = Vec::new();
    for id in 0..60 {
        client.send(&call.replacen("\"id\":1", &format!("\"id\":{id}"), 1));
        // Opened when the command opens it, and at its end when nobody holds it any more.
        let mut pipe = File::open(&pipe).unwrap();
        let mut begun = [0; 6];
        pipe.read_exact(&mut begun).unwrap();
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        let start = Instant::now();
        client.send(&cancel.to_string());
        assert_eq!(pipe.read(&mut begun).unwrap(), 0);
        times.push(start.elapsed());
    }
    let samples = Samples::of("cancellation to the end of the last process", times);
    println!("\n{:<48} {:>10.1} {:>10.1}", samples.name, samples.median(), samples.percentile(0.99));
    json!({"p50_us": samples.median(), "p99_us": samples.percentile(0.99)})
}
