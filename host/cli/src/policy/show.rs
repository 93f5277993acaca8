//! `harness policy show`: one grant, as it is enforced.

use harness_artifact::definition::Served;
use harness_artifact::escape;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::tool::Tool;
use harness_policy::compare::Agreed;
use harness_policy::deadline::Decides;
use harness_policy::grant::Grant;
use harness_policy::layer::Origin;
use harness_policy::limits::LimitKey;
use serde_json::{Value as Json, json};

use super::super::args::{Granted, ProjectArgs};
use super::super::exit::Exit;
use super::super::hooks::received;
use super::super::printer::Printer;
use super::super::{call, grant, project};

/// A limit of the grant: its value in the unit of its key, and who set it.
struct Set {
    key: LimitKey,
    value: u64,
    by: Option<String>,
    /// What the tool asks for, and where, if that is more.
    asked: Option<(u64, String)>,
}

pub(super) fn run(command: &Granted, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let registry = project::registry(place);
    project::report(&registry, printer);
    let policy = registry.policy().ok_or(Exit::Usage)?;
    let name = command.name.as_str();
    let found = registry.tool(name);
    let tool = found.as_ref().ok().copied().or_else(|| registry.tool_of_agent(name));
    let hook = registry.hook(name).or_else(|| registry.hook_of_agent(name));
    let is_act = harness_mcp::ACTS.contains(&name);
    let (server, source_of_server) = (policy.mcp.server(name), Served::source(name));
    let (kind, source, own, called) = match (tool, hook) {
        (Some(tool), _) => ("tool", tool.source_name.as_str(), tool.capabilities.as_ref(), Some(tool)),
        (None, Some(hook)) => ("hook", hook.source_name.as_str(), hook.capabilities.as_ref(), None),
        // What MCP clients do without a tool has what the project may do.
        (None, None) if is_act => ("act", "", None, None),
        (None, None) if server.is_some() => ("server", source_of_server.as_str(), None, None),
        (None, None) => {
            let hint = found.err().and_then(|unknown| unknown.hint());
            let hint = hint.unwrap_or_else(|| "`harness inspect` lists all".to_owned());
            printer.error(&format!("there is no tool, hook or MCP server `{name}`"), &[], Some(&hint));
            return Err(Exit::Usage);
        }
    };
    let server = server.filter(|_| kind == "server");
    let mut granted = match (called, server) {
        (Some(tool), _) => policy.grant_of(tool),
        (None, Some(server)) => policy.grant_for_server(server),
        (None, None) => policy.grant_for(source, own),
    };
    if let Some(rules) = &command.within {
        granted = granted.meet(&Grant::new(vec![call::narrowing(rules, printer)?]));
    }
    let limits = limits(&granted, called.map(AsRef::as_ref));
    let is_called = tool.is_some() || (hook.is_none() && is_act);
    let refused = is_called.then(|| policy.tools.decide(name).err()).flatten();
    let offered = if kind == "act" { offered(policy) } else { Vec::new() };
    let rules = grant::allowed(&granted, policy);
    if command.json {
        let by_key = |one: &Agreed| (one.key.to_owned(), json!({"rules": one.rules, "whole": one.whole}));
        let limit = |set: &Set| {
            let facts = set.key.facts();
            let mut told = json!({"value": set.value, "unit": facts.unit, "set_by": set.by});
            if let (Some(told), Some((asked, place))) = (told.as_object_mut(), &set.asked) {
                told.insert("asked".to_owned(), json!({"value": asked, "by": place}));
            }
            (facts.name.to_owned(), told)
        };
        let mut told = json!({
            "kind": kind,
            "name": name,
            "source": source,
            "refused": refused.map(|refusal| refusal.reason),
            "grant": rules.iter().map(by_key).collect::<serde_json::Map<String, Json>>(),
            "limits": limits.iter().map(limit).collect::<serde_json::Map<String, Json>>(),
            "layers": grant::as_json(&granted),
        });
        if let (Some(told), true) = (told.as_object_mut(), kind == "act") {
            told.insert("offered".to_owned(), json!(offered));
        }
        let shows = hook.filter(|_| kind == "hook").and_then(|hook| received(hook, Some(policy)));
        if let (Some(told), Some(shows)) = (told.as_object_mut(), shows) {
            told.insert("receives".to_owned(), shows.name().into());
        }
        if let Some(server) = server {
            told = grant::with_endpoint(told, server);
        }
        printer.json(&told);
        return Ok(Exit::Completed);
    }
    let mut text = match kind {
        "act" => format!("act {} of MCP clients\n", escape::line(name)),
        "server" => format!("MCP server {}, source `{}`\n", escape::line(name), escape::line(source)),
        _ => format!("{kind} {}, source `{}`\n", escape::line(name), escape::line(source)),
    };
    for line in server.map(grant::server).unwrap_or_default() {
        text.push_str(&format!("{line}\n"));
    }
    if let Some(refusal) = refused {
        text.push_str(&format!("not callable: {}\n", escape::line(&refusal.reason)));
    }
    if !offered.is_empty() {
        text.push_str(&format!("files that `mcp` offers: {}\n", escape::line(&offered.join(", "))));
    }
    if let Some((hook, shows)) =
        hook.filter(|_| kind == "hook").and_then(|hook| Some((hook, received(hook, Some(policy))?)))
    {
        text.push_str(&format!("receives `{}` {}\n", *hook.event, shows.describe()));
    }
    text.push_str("allowed by all its layers:\n");
    for one in &rules {
        text.push_str(&format!("  {}: {}\n", one.key, grant::line(one)));
    }
    text.push_str("limits, each with its origin:\n");
    for Set { key, value, by, asked } in &limits {
        let facts = key.facts();
        let by = by.as_deref().unwrap_or("the default");
        text.push_str(&format!("  {}: {value} {}, {}", facts.name, facts.unit, escape::line(by)));
        if let Some((asked, place)) = asked {
            text.push_str(&format!("; not the {asked} of `timeout_ms` in `{}`", escape::line(place)));
        }
        text.push('\n');
    }
    text.push_str("layers, the outermost first:\n");
    for one in grant::lines(&granted) {
        text.push_str(&format!("  {one}\n"));
    }
    printer.data(&text);
    Ok(Exit::Completed)
}

/// The entries of `mcp.resources` and `mcp.templates`.
fn offered(policy: &ProjectPolicy) -> Vec<String> {
    let resources = policy.mcp.resources.iter().map(|one| one.value.to_string());
    resources.chain(policy.mcp.templates.iter().map(|one| one.value.to_string())).collect()
}

/// All limits of a grant; a tool's own `timeout_ms` is one more line that may decide.
fn limits(grant: &Grant, tool: Option<&Tool>) -> Vec<Set> {
    let set = |key: &LimitKey| {
        let (value, origin) = grant.limit(*key);
        let set = Set { key: *key, value, by: origin.map(|origin| line_of(origin, *key)), asked: None };
        match tool {
            Some(tool) if *key == LimitKey::Timeout => timeout(grant, tool, set),
            _ => set,
        }
    };
    LimitKey::ALL.iter().map(set).collect()
}

fn line_of(origin: &Origin, key: LimitKey) -> String {
    let name = format!("limits.{}", key.facts().name);
    format!("`{}` in `{}`", origin.key(&name), origin.of(&name))
}

fn timeout(grant: &Grant, tool: &Tool, set: Set) -> Set {
    let deadline = grant.deadline(tool.asked(), tool.author());
    let own = tool.timeout_ms.as_ref();
    let by = match deadline.by {
        Decides::Tool => own.map(|own| format!("`timeout_ms` in `{}`", own.position)),
        Decides::Layer(origin) => Some(line_of(origin, set.key)),
        Decides::Default => None,
    };
    let asked = own.filter(|own| deadline.cuts(Some(own.value))).map(|own| (own.value, own.position.to_string()));
    Set { value: deadline.ms, by, asked, ..set }
}
