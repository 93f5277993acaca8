//! What the gateway to other programs' servers costs: beside the same client at the same server without it.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use harness_bench::Samples;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Client, binary, message};

/// The argument by which this program is a server.
pub(crate) const SERVE: &str = "--serve-mcp";
/// Calls of each row in a round, and rounds.
const CALLS: usize = 200;
const ROUNDS: usize = 20;
/// Calls that start a process each.
const STARTS: usize = 60;
/// Connections of a row, and bytes of a transfer.
const CONNECTIONS: u64 = 500;
const BYTES: u64 = 1 << 30;
const HOOK: &str = "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n    if payload[\"args\"].get(\"name\") == \"Eve\":\n      return block(\"no\")\n    return allow()\n---\nWatches.\n";
/// A server that costs next to nothing to start.
const SHELL: &str = r#"while IFS= read -r line; do
  id=${line#*'"id":'}
  id=${id%%,*}
  case $line in
    *server/discover*) r='{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}' ;;
    *tools/list*) r='{"tools":[{"name":"greet","inputSchema":{"type":"object"}}]}' ;;
    *) r='{"content":[{"type":"text","text":"Hello Ada"}]}' ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$r"
done
"#;

/// The server: it greets, and connects to where it is told.
pub(crate) fn serve() {
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    for line in input.lines() {
        let asked: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if asked["id"].is_null() {
            continue;
        }
        let text = |text: String| json!({"content": [{"type": "text", "text": text}]});
        let arguments = &asked["params"]["arguments"];
        let port = || u16::try_from(arguments["port"].as_u64().unwrap()).unwrap();
        let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        let result = match (asked["method"].as_str().unwrap(), asked["params"]["name"].as_str()) {
            ("server/discover", _) => {
                json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
            }
            ("tools/list", _) => json!({"tools": [tool("greet"), tool("pull"), tool("connect")]}),
            (_, Some("pull")) => text(pulled(port()).to_string()),
            (_, Some("connect")) => text(connected(port()).to_string()),
            _ => text("Hello Ada".to_owned()),
        };
        writeln!(output, "{}", json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})).unwrap();
        output.flush().unwrap();
    }
}

/// Gbit/s of a transfer.
fn pulled(port: u16) -> f64 {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(("localhost", port)).unwrap();
    stream.write_all(b"all").unwrap();
    let (mut buffer, mut read) = (vec![0; 256 << 10], 0_u64);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        read += count as u64;
    }
    assert_eq!(read, BYTES);
    read as f64 * 8.0 / begun.elapsed().as_secs_f64() / 1e9
}

/// Microseconds from the start of a connection to its first byte, the median of many.
fn connected(port: u16) -> f64 {
    let once = || {
        let begun = Instant::now();
        let mut stream = TcpStream::connect(("localhost", port)).unwrap();
        stream.write_all(b"one").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        begun.elapsed()
    };
    Samples::of("connect", (0..CONNECTIONS).map(|_| once()).collect()).median()
}

/// Answers `all` with a gigabyte, and anything else with a byte.
fn source() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut asked = [0; 3];
                stream.read_exact(&mut asked).unwrap();
                let block = vec![0; 256 << 10];
                if asked != *b"all" {
                    return stream.write_all(&[0]).unwrap();
                }
                for _ in 0..BYTES / block.len() as u64 {
                    stream.write_all(&block).unwrap();
                }
            });
        }
    });
    port
}

/// A project with the server `s`, locked.
fn project(command: &Value, folder: &Path, more: &str) -> TempDir {
    let project = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(project.path().join(".harness/hooks")).unwrap();
    let policy = format!(
        "---\nmcp:\n  servers:\n    s: {{ command: {command}, folders: [{folder:?}], limits: {{ timeout_ms: 60000 }}{more} }}\n---\n"
    );
    std::fs::write(project.path().join(".harness/harness.md"), policy).unwrap();
    project
}

fn lock(project: &TempDir) {
    let locked = Command::new(binary()).arg("-C").arg(project.path()).arg("lock").output().unwrap();
    assert!(locked.status.success(), "{}", String::from_utf8_lossy(&locked.stderr));
}

fn call(tool: &str, arguments: &Value) -> String {
    message("tools/call", json!({"name": tool, "arguments": arguments}))
}

/// What a tool of the server says of a transfer.
fn told(client: &mut Client, tool: &str, port: u16) -> f64 {
    let line = client.answer(&call(tool, &json!({ "port": port })));
    let answer: Value = serde_json::from_str(&line).unwrap();
    answer["result"]["content"][0]["text"].as_str().unwrap().parse().unwrap()
}

/// All rows.
pub(crate) fn run() -> Value {
    // In a folder of its own: all of it is open to the server.
    let own = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let (program, script) = (path.join("server"), path.join("server.sh"));
    std::fs::copy(own, &program).unwrap();
    std::fs::write(&script, SHELL).unwrap();
    let port = source();
    let network = format!(", network: {{ allowed_domains: [{{ host: \"localhost:{port}\", private: true }}] }}");
    let serves = json!([program, SERVE]);
    let plain = project(&serves, &path, "");
    let hooked = project(&serves, &path, "");
    std::fs::write(hooked.path().join(".harness/hooks/watch.md"), HOOK).unwrap();
    let reaching = project(&serves, &path, &network);
    let fresh = project(&json!(["sh", script]), &path, ", keep: call");
    [&plain, &hooked, &reaching, &fresh].into_iter().for_each(lock);

    let binary = binary();
    let mut direct = Command::new(&program);
    direct.arg(SERVE);
    let mut direct = Client::spawn(direct);
    let mut through = Client::start(&binary, plain.path());
    let mut watched = Client::start(&binary, hooked.path());
    let (of_server, of_project) = (call("greet", &json!({"name": "Ada"})), call("s_greet", &json!({"name": "Ada"})));
    let rows = Samples::take_in_turn(
        &mut [
            ("the same client at the server itself", &mut || direct.ask(&of_server, "Hello Ada")),
            ("through the gateway, kept", &mut || through.ask(&of_project, "Hello Ada")),
            ("through the gateway, with a hook", &mut || watched.ask(&of_project, "Hello Ada")),
        ],
        ROUNDS,
        CALLS,
    );
    let mut walled = Client::start(&binary, fresh.path());
    let started = Samples::take("a walled process for each call", STARTS, || walled.ask(&of_project, "Hello Ada"));
    let floor = rows.first().map_or(f64::NAN, Samples::median);
    println!("\n{:<48} {:>10} {:>10} {:>8}", "gateway", "p50 µs", "p99 µs", "floors");
    let rows: Vec<&Samples> = rows.iter().chain([&started]).collect();
    rows.iter().for_each(|row| println!("{}", row.row(floor)));
    let median = |at: usize| rows.get(at).map_or(f64::NAN, |row| row.median());
    let (adds, hook) = (median(1) - median(0), median(2) - median(1));
    println!("the gateway adds {adds:.0} µs at p50, a hook {hook:.0} µs");

    let mut reaches = Client::start(&binary, reaching.path());
    let connects = told(&mut reaches, "s_connect", port);
    let gigabits = told(&mut reaches, "s_pull", port);
    let (plain_connects, plain_gigabits) = (told(&mut direct, "connect", port), told(&mut direct, "pull", port));
    println!("egress: {gigabits:.1} Gbit/s, {connects:.0} µs for a connection");
    println!("direct: {plain_gigabits:.1} Gbit/s, {plain_connects:.0} µs for a connection");
    json!({
        "rows": rows.iter().map(|row| row.json(floor)).collect::<Vec<_>>(),
        "gateway_adds_us": adds, "hook_adds_us": hook,
        "egress": {"gbit_s": gigabits, "connect_us": connects},
        "direct": {"gbit_s": plain_gigabits, "connect_us": plain_connects},
    })
}
