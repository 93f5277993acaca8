//! What is done with bytes from anywhere, by name: the fuzzer and the tests run the same.
//!
//! Each takes any bytes, and fails by a panic where something that always holds does not. Bytes that are no text are
//! read with replacement characters, so that none are wasted.

#[path = "imports.rs"]
mod imports;
#[path = "mcp.rs"]
mod mcp;
#[path = "session.rs"]
mod session;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use harness_artifact::agent::Agent;
use harness_artifact::bundle::Bundle;
use harness_artifact::diagnostic::Diagnostics;
use harness_artifact::event::Event;
use harness_artifact::hook::Hook;
use harness_artifact::policy::{ProjectPolicy, layer};
use harness_artifact::tool::Tool;
use harness_artifact::when::Filter;
use harness_policy::command::CommandRule;
use harness_policy::grant::Grant;
use harness_policy::network::{HostRule, Target};
use harness_policy::path::{Access, PathPattern, WorkspacePath};
use harness_provider::wire::Wire;
use harness_provider::{Delta, Finish, Message, Request};
use serde_json::Value as Json;
use url::Url;

pub use imports::{answered, imports};
pub use mcp::{called, mcp_definition, mcp_events, mcp_headers, mcp_lines, mcp_message, mcp_sealed};
pub use session::{session, shown};

/// A name, and what is done.
pub type Named = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Named; 16] = [
    ("artifact", artifact),
    ("policy", policy),
    ("path", path),
    ("network", network),
    ("command", command),
    ("arguments", arguments),
    ("when", when),
    ("provider_stream", provider_stream),
    ("session", session),
    ("imports", imports),
    ("mcp_lines", mcp_lines),
    ("mcp_message", mcp_message),
    ("mcp_headers", mcp_headers),
    ("mcp_sealed", mcp_sealed),
    ("mcp_definition", mcp_definition),
    ("mcp_events", mcp_events),
];

/// The text of an artifact, of each kind: it is there or something is wrong with it, and every message points into it.
pub fn artifact(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    let (tool, wrong) = Tool::parse("x.md", "x", text);
    pointing(tool.is_some(), &wrong, text);
    if let Some(tool) = tool {
        assert!(tool.json_schema().is_object());
    }
    let (hook, wrong) = Hook::parse("x.md", "x", 0, text);
    pointing(hook.is_some(), &wrong, text);
    let (agent, wrong) = Agent::parse("x.md", "x", text);
    pointing(agent.is_some(), &wrong, text);
    let (bundle, wrong) = Bundle::parse("plugins/x.md", "plugins/x", text);
    pointing(bundle.is_some(), &wrong, text);
}

/// The text of `harness.md`: a plugin gets no more than the project's own keys grant.
pub fn policy(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    let (policy, wrong) = ProjectPolicy::parse("harness.md", text);
    pointing(policy.is_some(), &wrong, text);
    let Some(policy) = policy else { return };
    let project = Grant::new(vec![policy.project.clone()]);
    let plugin = policy.grant_for("plugins/acme/tools/x", None);
    assert!(plugin.limits().fuel <= project.limits().fuel);
    for path in ["a", "docs/a", ".env", ".harness/harness.md", "src/main.rs"] {
        let Ok(path) = WorkspacePath::parse(path, "/w") else { continue };
        for access in [Access::Read, Access::Write] {
            assert!(plugin.decide_path(&path, access).is_err() || project.decide_path(&path, access).is_ok());
        }
    }
}

fn pointing(there: bool, wrong: &Diagnostics, text: &str) {
    assert_ne!(there, wrong.has_errors(), "it is there, or something is wrong with it");
    for one in wrong {
        if let Some(position) = &one.position {
            let lines = u32::try_from(text.split('\n').count()).unwrap_or(u32::MAX);
            assert!((1..=lines).contains(&position.line), "{one:?}");
        }
        let shown = one.render(Some(text), false);
        assert!(
            !shown.is_empty() && !shown.chars().any(|c| harness_policy::text::is_hidden(c) && c != '\n'),
            "{shown:?}"
        );
    }
}

/// A pattern, and a path on the next line. What is found is below folders that are walked; a path that is parsed again
/// is the same; and no path leads out.
pub fn path(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (pattern, path) = text.split_once('\n').unwrap_or((&text, "a/b"));
    let pattern = PathPattern::parse(pattern);
    let Ok(path) = WorkspacePath::parse(path, "/work") else { return };
    assert!(path.parts().iter().all(|part| !part.is_empty() && part != ".." && !part.contains(['/', '\0'])));
    assert_eq!(WorkspacePath::parse(&path.to_string(), "/work").as_ref(), Ok(&path));
    let Ok(pattern) = pattern else { return };
    if pattern.matches_exactly(&path) {
        let mut folder = path.parent();
        while let Some(above) = folder {
            assert!(pattern.could_match_below(&above), "{pattern} finds {path} and is not looked for in {above}");
            folder = above.parent();
        }
    }
    assert!(!pattern.matches(&path) || pattern.matches_in_any_case(&path));
    if let Ok(child) = path.child("x") {
        assert!(!pattern.matches(&path) || pattern.matches(&child), "{pattern} covers {path} and not what is in it");
    }
}

/// A rule for hosts, and a URL on the next line. The name that is decided on is the one that is asked, and addresses
/// of the machine's own are never reached by a rule that is not for them.
pub fn network(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (rule, url) = text.split_once('\n').unwrap_or((&text, "https://example.com/"));
    if let Ok(rule) = HostRule::parse(rule) {
        assert_eq!(HostRule::parse(&rule.to_string()).as_ref(), Ok(&rule), "{rule}");
    }
    let Ok(url) = Url::parse(url) else { return };
    let Ok(target) = Target::of(&url) else { return };
    assert!(matches!(url.scheme(), "http" | "https") && target.port() == url.port_or_known_default().unwrap_or(0));
    let host = target.host().to_string();
    assert!(!host.is_empty() && !host.contains(['\0', '@', '/', '\\', '%', ' ']), "{host:?}");
    let (any, _) = layer::parse("any", "network: [\"*\"]");
    let grant = Grant::new(any.into_iter().collect());
    for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST), [169, 254, 169, 254].into()] {
        assert!(grant.decide_address(&target, address).is_err(), "{target:?} by {address}");
    }
    assert!(Grant::new(Vec::new()).decide_target(&target).is_err());
}

/// A rule for commands, and the words of one on the lines after it. A rule is for one program, and says so again when
/// it is told.
pub fn command(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let Ok(rule) = CommandRule::parse(lines.next().unwrap_or_default()) else { return };
    assert_eq!(CommandRule::parse(&rule.to_string()).as_ref(), Ok(&rule));
    let program = lines.next().unwrap_or_default();
    let args: Vec<String> = lines.map(str::to_owned).collect();
    if rule.covers(program, &args) {
        assert!(!program.is_empty());
        assert!(!rule.covers(&format!("{program}x"), &args), "{rule} is for more than one program");
    }
}

/// Arguments as JSON, and as `key=value`, a line each, for a tool with one parameter of each type. What is read from
/// the command line fits.
pub fn arguments(bytes: &[u8]) {
    const TOOL: &str = "---\nparameters:\n  s: { type: string }\n  n: { type: number }\n  b: { type: boolean }\n  o: { type: object }\n  a: { type: array }\n---\n";
    let (Some(tool), _) = Tool::parse("x.md", "x", TOOL) else { return };
    let text = String::from_utf8_lossy(bytes);
    if let Ok(json) = serde_json::from_str::<Json>(&text)
        && let Err(errors) = tool.check_arguments(&json)
    {
        assert!(errors.iter().all(|error| !error.to_string().is_empty()));
    }
    let pairs: Vec<&str> = text.split('\n').collect();
    match tool.read_arguments(&pairs) {
        Ok(read) => assert_eq!(tool.check_arguments(&Json::Object(read)), Ok(())),
        Err(errors) => assert!(!errors.is_empty()),
    }
}

/// A `when`, an event and a payload, a line each: what is decided here is the same each time.
pub fn when(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.splitn(3, '\n');
    let Some(filter) = Filter::parse(lines.next().unwrap_or_default()) else { return };
    let event = lines.next().unwrap_or("tool.pre");
    let _ = Event::parse(event);
    let Ok(payload) = serde_json::from_str::<Json>(lines.next().unwrap_or("{}")) else { return };
    assert_eq!(filter.decide(event, &payload), filter.clone().decide(event, &payload));
}

/// What a model's service sends: a byte for the format, one for where it is cut, and the rest. The reply is the same
/// however it is cut, was told as it came, and can be sent back.
pub fn provider_stream(bytes: &[u8]) {
    let [kind, size, sent @ ..] = bytes else { return };
    let wire = match kind % 3 {
        0 => Wire::Chat,
        1 => Wire::Messages,
        _ => Wire::Ollama,
    };
    let streamed = kind & 0x80 == 0;
    let mut request = Request {
        model: "m".to_owned(),
        messages: Vec::new(),
        tools: Vec::new(),
        max_tokens: None,
        temperature: None,
        agent: String::new(),
    };
    let read = |size: usize| {
        let mut told = String::new();
        let reply = wire.read(&request, streamed, sent.chunks(size), &mut |delta| {
            if let Delta::Text(text) = delta {
                told.push_str(text);
            }
        });
        (reply, told)
    };
    let (whole, told) = read(sent.len().max(1));
    let (cut, told_cut) = read(usize::from(*size).max(1));
    assert_eq!(told, told_cut);
    let (reply, cut) = match (whole, cut) {
        (Ok(whole), Ok(cut)) => (whole, cut),
        (whole, cut) => return assert_eq!(whole.err(), cut.err()),
    };
    assert_eq!(reply.text, told);
    assert!(reply.finish != Finish::ToolCalls || !reply.calls.is_empty());
    assert_eq!(reply.calls.len(), cut.calls.len());
    let mut ids = HashSet::new();
    for (call, same) in reply.calls.iter().zip(&cut.calls) {
        // The ids that the host makes are made by chance.
        assert_eq!((&call.name, &call.arguments), (&same.name, &same.arguments));
        assert!(!call.name.is_empty() && !call.arguments.trim().is_empty());
        assert!(ids.insert(call.id.clone()), "{} is there twice", call.id);
    }
    request.messages.push(Message::Assistant { text: reply.text, calls: reply.calls });
    for wire in Wire::ALL {
        assert!(wire.body(&request, streamed).is_object());
    }
}
