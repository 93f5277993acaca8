//! What clients of the Model Context Protocol send: lines, messages, headers and sealed texts. And what they get of tools,
//! and what servers stream.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness_agent::{Model, Models};
use harness_artifact::tool::Tool;
use harness_artifact::value_schema::ValueSchema;
use harness_dispatch::confirm::Granted;
use harness_dispatch::{Options, Project};
use harness_gateway::sse::Events;
use harness_mcp::fuzzing::{Endpoint, PORT, Seals, definition, lines, message};
use harness_mcp::{MAX_NAME, Names, Server, Settings};
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// A byte for the longest line, one for where the stream is cut, and the stream. Lines are the same however it is cut,
/// none is longer than it may be, and the identifier of one that is too long is the one that is in it.
pub fn mcp_lines(bytes: &[u8]) {
    let [most, size, stream @ ..] = bytes else { return };
    let most = usize::from(*most);
    let found = lines(most, std::iter::once(stream));
    assert_eq!(found, lines(most, stream.chunks(usize::from(*size).max(1))));
    let is_one = |line: &&[u8]| line.len() > most || !line.trim_ascii().is_empty();
    let wanted: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').filter(is_one).collect();
    assert_eq!(found.len(), wanted.len());
    for (found, line) in found.iter().zip(wanted) {
        match found {
            Ok(found) => assert!(found == line && line.len() <= most),
            Err(id) => {
                assert!(line.len() > most);
                // A key may be written with escapes. Then it is not found.
                let whole = serde_json::from_slice::<Json>(line).ok().filter(|_| !line.contains(&b'\\'));
                if let (Some(id), Some(whole)) = (id, whole) {
                    assert_eq!(whole.get("id"), Some(id));
                }
            }
        }
    }
}

/// A message. What is read is one with a method or an answer, and can be written and read again. What is not gets an
/// error, with the identifier if it has one.
pub fn mcp_message(bytes: &[u8]) {
    match message(bytes) {
        Ok(read) => {
            assert!(read["method"].is_string() || read.get("result").is_some() || read["error"].is_object(), "{read}");
            assert_eq!(message(read.to_string().as_bytes()), Ok(read));
        }
        Err(answer) => {
            assert!(answer["jsonrpc"] == "2.0" && answer["error"]["message"].is_string(), "{answer}");
            let code = answer["error"]["code"].as_i64();
            assert_eq!(code == Some(-32700), serde_json::from_slice::<Json>(bytes).is_err(), "{answer}");
        }
    }
}

#[derive(Debug)]
struct NoModels;

impl Models for NoModels {
    fn main(&self) -> Result<Model, String> {
        Err("there is none".to_owned())
    }

    fn profile(&self, _: &str) -> Option<Result<Model, String>> {
        None
    }
}

/// Bytes of stack of the binary's threads.
const STACK: usize = 8 << 20;

/// A server of one tool, which returns its argument.
struct Served {
    runtime: Runtime,
    endpoint: Endpoint,
    _folder: TempDir,
}

static SERVED: LazyLock<Option<Mutex<Served>>> = LazyLock::new(|| {
    const TOOL: &str = "---\nparameters:\n  region: { type: string, x-mcp-header: Region }\nscript: |\n  def run(args):\n    return args['region']\n---\nA tool.\n";
    let folder = tempfile::tempdir().ok()?;
    std::fs::create_dir_all(folder.path().join(".harness/tools")).ok()?;
    std::fs::write(folder.path().join(".harness/tools/it.md"), TOOL).ok()?;
    let project = Project::open(folder.path(), Options { audit: false, ..Options::default() }).ok()?;
    let settings = Settings::new(Arc::new(NoModels), Arc::new(Granted));
    let endpoint = Endpoint::new(Server::new(project, settings));
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    Some(Mutex::new(Served { runtime, endpoint, _folder: folder }))
});

/// Five lines: `Host`, `Origin`, `Mcp-Name`, `Mcp-Param-Region`, and the argument `region` of a call. An empty line is a
/// header that is not there. The call is made only if the names are the server's own, and the headers say what the
/// message says.
pub fn mcp_headers(bytes: &[u8]) {
    drop(called(bytes));
}

/// The same. Returns what the tool returned, where it was called.
pub fn called(bytes: &[u8]) -> Option<String> {
    let clean: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != b'\r').collect();
    let mut parts = clean.splitn(5, |byte| *byte == b'\n');
    let [host, origin, name, param] = [(); 4].map(|()| parts.next().unwrap_or_default());
    let region = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "it", "arguments": {"region": region}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let mut sent = b"POST /mcp HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n".to_vec();
    for (header, value) in [("Host", host), ("Origin", origin), ("Mcp-Name", name), ("Mcp-Param-Region", param)] {
        if !value.is_empty() {
            sent.extend([header.as_bytes(), b": ", value, b"\r\n"].concat());
        }
    }
    sent.extend(format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes());
    let served = SERVED.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
    // On a stack as the binary's threads have it: in some builds a call takes more than a thread has by default.
    let exchange = || served.runtime.block_on(served.endpoint.exchange(&sent));
    let answer = std::thread::scope(|scope| {
        let exchange = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, exchange).ok()?;
        Some(exchange.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
    assert!(matches!(status, Some(200 | 400 | 403 | 404 | 408 | 431)), "{answer}");
    let result = serde_json::from_str::<Json>(body).unwrap_or_default()["result"].take();
    if result["isError"] != false {
        return None;
    }
    let text = result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert_eq!((status, &text), (Some(200), &region));
    assert!(is_own(host), "{answer}");
    let page = [&b"http://"[..], b"https://"].iter().find_map(|scheme| origin.strip_prefix(*scheme));
    assert!(origin.is_empty() || page.is_some_and(is_own), "{answer}");
    assert_eq!((decoded(name).as_deref(), decoded(param)), (Some("it"), Some(region)));
    Some(text)
}

/// Whether this is a name of the machine itself, with the port of the server.
fn is_own(authority: &[u8]) -> bool {
    let text = String::from_utf8_lossy(authority).trim().to_ascii_lowercase();
    let Some((name, port)) = text.rsplit_once(':') else { return false };
    let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    port.parse() == Ok(PORT) && (name == "localhost" || ip.is_ok_and(|ip| ip.is_loopback()))
}

/// What the value of a header says, as the specification has it.
fn decoded(value: &[u8]) -> Option<String> {
    let value = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(coded) => String::from_utf8(STANDARD.decode(coded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

static SEALS: LazyLock<Seals> = LazyLock::new(Seals::default);

/// A byte for which seal, one for where it is changed, one for how, and what is sealed. What was sealed opens as that
/// and as nothing else, what was changed does not open as something else, and what was never sealed does not open.
pub fn mcp_sealed(bytes: &[u8]) {
    let [kind, at, change, text @ ..] = bytes else { return };
    let text = &*String::from_utf8_lossy(text);
    let kind = usize::from(*kind) % 3;
    let sealed = SEALS.seal(text);
    for (sealed, wanted) in sealed.iter().zip(0..) {
        let opened = SEALS.open(sealed);
        for (opened, other) in opened.iter().zip(0..) {
            assert_eq!(opened.as_deref(), (wanted == other).then_some(text), "{wanted} as {other}");
        }
        assert_eq!(Seals::default().open(sealed), [None, None, None]);
    }
    let sealed = sealed.into_iter().nth(kind).unwrap_or_default();
    let mut changed = sealed.clone().into_bytes();
    let at = usize::from(*at) % changed.len().max(1);
    if let Some(byte) = changed.get_mut(at) {
        *byte ^= change;
    }
    if let Ok(changed) = String::from_utf8(changed) {
        // The last letters of Base64 have bits that say nothing.
        assert!(SEALS.open(&changed).iter().flatten().all(|opened| opened == text), "{changed}");
    }
    let cut = sealed.get(..at).unwrap_or_default();
    assert_eq!((SEALS.open(cut), SEALS.open(text)), ([None, None, None], [None, None, None]));
}

/// A byte for the longest event, one for where the stream is cut, and the stream. Events are the same however it is cut,
/// and none is longer than it may be. Lines are as the specification of events has them.
pub fn mcp_events(bytes: &[u8]) {
    let [most, size, stream @ ..] = bytes else { return };
    let most = usize::from(*most);
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut events = Events::new(most);
        let found: Result<Vec<_>, _> = pieces.map(|piece| events.feed(piece)).collect();
        (found.map(|found| found.concat()), events)
    };
    let (found, events) = read(&mut std::iter::once(stream));
    let (cut, same) = read(&mut stream.chunks(usize::from(*size).max(1)));
    assert_eq!(found, cut);
    let Ok(found) = found else { return };
    assert_eq!((events.last_id(), events.retry()), (same.last_id(), same.retry()));
    // A replacement character has three bytes where there was one.
    assert!(found.iter().all(|data| data.len() <= most.saturating_mul(3)));
    let text = String::from_utf8_lossy(stream).replace("\r\n", "\n").replace('\r', "\n");
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let data = |block: &str| -> Option<String> {
        let lines = block.split('\n').filter_map(|line| match line.split_once(':') {
            Some(("data", value)) => Some(value.strip_prefix(' ').unwrap_or(value)),
            None if line == "data" => Some(""),
            _ => None,
        });
        let lines: Vec<&str> = lines.collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    };
    // What no blank line ends is no event.
    let (mut wanted, mut block) = (Vec::new(), Vec::new());
    let mut lines: Vec<&str> = text.split('\n').collect();
    lines.pop();
    for line in lines {
        if line.is_empty() {
            wanted.extend(data(&block.join("\n")));
            block.clear();
        } else {
            block.push(line);
        }
    }
    assert_eq!(found, wanted);
}

/// The text of a tool. What clients get of it is plainly a schema of an object, which can be used, and a description
/// that none of them cuts. Its lines are names: each gets one that all clients accept, and no two the same.
pub fn mcp_definition(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    if let (Some(tool), _) = Tool::parse("x.md", "x", text) {
        let shown = definition(&tool);
        let schema = shown["inputSchema"].clone();
        let keys: BTreeSet<&str> = schema.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        assert_eq!(schema["type"], "object", "{shown}");
        for refused in ["$ref", "allOf", "anyOf", "const", "else", "enum", "if", "not", "oneOf", "then"] {
            assert!(!keys.contains(refused), "{shown}");
        }
        assert!(ValueSchema::compile(schema.clone()).is_ok(), "{shown}");
        assert!(shown["description"].as_str().is_none_or(|text| text.len() <= 2048), "{shown}");
        assert!(shown.get("outputSchema").is_none_or(Json::is_object), "{shown}");
    }
    let own: BTreeSet<&str> = text.split('\n').collect();
    let names = Names::of(own.iter().copied());
    assert_eq!(names.iter().map(|(_, own)| own).collect::<BTreeSet<_>>(), own);
    assert_eq!(names.iter().count(), own.len());
    for (name, own) in names.iter() {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        assert!(is_plain && (1..=MAX_NAME).contains(&name.len()), "{name:?}");
        assert_eq!(names.own(name), Some(own));
    }
}
