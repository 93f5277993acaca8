//! How clients begin: what each of them sent to a server, replayed, and every answer as a whole.
//!
//! A file of `openings/` is one client in one revision. Its first line says whether it was `recorded` from the client or
//! `reconstructed` from its source, and how. Then come the messages in their order: those that the client sends, over
//! HTTP with its headers, and those that it receives.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;

use serde_json::Value as Json;

use crate::client::Client;
use crate::project::Project;
use crate::web::{Web, request};

/// The files, without their ends.
const OPENINGS: [&str; 9] = [
    "claude-code-2025-11-25",
    "claude-code-2026-07-28",
    "claude-code-http-2026-07-28",
    "codex-2025-06-18",
    "codex-http-2026-07-28",
    "copilot-cli-2026-07-28",
    "cursor-2025-11-25",
    "vscode-2025-11-25",
    "zed-2025-11-25",
];

const GREET: &str = "def run(args):\n    progress(1, 2, 'half')\n    return 'Hello ' + args['name']\n";

fn project() -> Project {
    Project::new()
        .policy("mcp:\n  resources:\n    - docs/**\n")
        .file("docs/guide.md", "# Guide\n")
        .file(".harness/agents/helper.md", "---\ndescription: Helps.\n---\nYou help.\n")
        .tool("greet", "parameters:\n  name: { type: string, required: true, description: Whom to greet. }\n", GREET)
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/mcp/openings"))
}

/// The first line of a file, and the others.
fn opening(name: &str) -> (Json, Vec<Json>) {
    let text = std::fs::read_to_string(folder().join(format!("{name}.jsonl"))).unwrap();
    let text = text.replace("{version}", env!("CARGO_PKG_VERSION"));
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.next().unwrap(), lines.collect())
}

/// Messages that the server still sends after the end of the client.
fn at_the_end(lines: &[Json]) -> (&[Json], &[Json]) {
    let end = lines.iter().position(|line| line["end"] == true).unwrap_or(lines.len());
    (&lines[..end], lines.get(end + 1..).unwrap_or_default())
}

fn replay(name: &str, lines: &[Json]) {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let (lines, rest) = at_the_end(lines);
    for line in lines {
        match (line.get("send"), line.get("receive")) {
            (Some(message), None) => client.send(message),
            (None, Some(message)) => assert_eq!(client.receive(), *message, "{name}"),
            _ => panic!("{name}: neither sent nor received: {line}"),
        }
    }
    let rest: Vec<Json> = rest.iter().map(|line| line["receive"].clone()).collect();
    assert_eq!(client.end(), (rest, 0, String::new()), "{name}");
}

/// What answers one request: its status and its messages. Of a stream that stays open the first message only.
fn answer(web: &Web, line: &Json, open: &mut Vec<BufReader<std::net::TcpStream>>) -> (u64, Vec<Json>) {
    let headers = line["headers"].as_object().unwrap();
    let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (&**name, value.as_str().unwrap())).collect();
    all.push(("Host", web.address()));
    let mut stream = web.connect();
    stream.write_all(&request("POST /mcp", &all, &line["post"].to_string())).unwrap();
    let mut stream = BufReader::new(stream);
    let mut next = || {
        let mut text = String::new();
        (stream.read_line(&mut text).unwrap() > 0).then_some(text)
    };
    let status = next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let head: Vec<String> = std::iter::from_fn(&mut next).take_while(|line| line != "\r\n").collect();
    let is_stream = head.iter().any(|line| line.to_ascii_lowercase().trim_end() == "content-type: text/event-stream");
    let data = |line: String| serde_json::from_str(line.strip_prefix("data:")?.trim()).ok();
    if line["post"]["method"] == "subscriptions/listen" {
        let first = std::iter::from_fn(&mut next).find_map(data).unwrap();
        open.push(stream);
        return (status, vec![first]);
    }
    if is_stream {
        return (status, std::iter::from_fn(next).filter_map(data).collect());
    }
    let mut body = String::new();
    stream.read_to_string(&mut body).unwrap();
    (status, (!body.is_empty()).then(|| serde_json::from_str(&body).unwrap()).into_iter().collect())
}

fn replay_http(name: &str, lines: &[Json]) {
    let project = project();
    let web = Web::open(&project);
    let mut open = Vec::new();
    let mut lines = lines.iter();
    while let (Some(sent), Some(wanted)) = (lines.next(), lines.next()) {
        let (status, messages) = answer(&web, sent, &mut open);
        assert_eq!(
            (&Json::from(status), &Json::from(messages)),
            (&wanted["status"], &wanted["receive"]),
            "{name}: {sent}"
        );
    }
}

#[test]
fn every_client_gets_the_answers_that_its_opening_wants() {
    for name in OPENINGS {
        let (head, lines) = opening(name);
        assert!(lines.len() > 4, "{name}");
        if head["transport"] == "http" { replay_http(name, &lines) } else { replay(name, &lines) }
    }
}

#[test]
fn every_file_is_replayed_and_says_where_it_is_from() {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = files.collect();
    files.sort();
    assert_eq!(files, OPENINGS.map(|name| format!("{name}.jsonl")));
    for name in OPENINGS {
        let (head, lines) = opening(name);
        assert!(["recorded", "reconstructed"].contains(&head["origin"].as_str().unwrap()), "{name}: {head}");
        assert!(!head["note"].as_str().unwrap().is_empty() && name.ends_with(head["protocol"].as_str().unwrap()));
        let sends = |line: &&Json| line.get("send").or(line.get("post")).is_some();
        let calls = lines.iter().filter(sends).any(|line| line.to_string().contains("\"tools/call\""));
        assert!(calls, "{name} calls no tool");
    }
}
