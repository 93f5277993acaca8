//! `harness inspect`: what is loaded, from where, what each may do, and what replaced what.

use harness_artifact::agent::Use;
use harness_artifact::definition::Served;
use harness_artifact::escape;
use harness_artifact::hook::Hook;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::tool::Tool;
use harness_policy::compare::Agreed;
use harness_policy::grant::Grant;
use harness_registry::Registry;
use serde_json::{Value as Json, json};

use super::args::{Inspect, ProjectArgs};
use super::exit::Exit;
use super::printer::Printer;
use super::{agents, grant, hooks, project, skills};

pub(crate) fn run(command: &Inspect, place: &ProjectArgs, printer: &Printer) -> Exit {
    let registry = project::registry(place);
    project::report(&registry, *printer);
    let Some(policy) = registry.policy() else { return Exit::Usage };
    let wanted = |name: &str| command.names.is_empty() || command.names.iter().any(|wanted| wanted == name);
    let known = |name: &String| {
        registry.tool(name).is_ok()
            || registry.hook(name).is_some()
            || registry.agents().iter().any(|agent| agent.name == *name)
            || registry.skills().iter().any(|skill| skill.name == *name)
            || policy.mcp.server(name).is_some()
    };
    if let Some(unknown) = command.names.iter().find(|name| !known(name)) {
        printer.error(
            &format!("there is no tool, hook, agent, skill or MCP server `{unknown}`"),
            &[],
            Some("`harness inspect` lists all"),
        );
        return Exit::Usage;
    }
    if command.json {
        printer.json(&all_as_json(&registry, policy, wanted));
        return if registry.diagnostics().has_errors() { Exit::Usage } else { Exit::Completed };
    }
    let mut text = String::new();
    for tool in registry.tools().iter().filter(|tool| wanted(&tool.name)) {
        head(&mut text, "tool", &tool.name, &tool.source.to_string(), &tool.source_name);
        text.push_str(&tool_lines(tool, policy));
        granted(&mut text, &policy.grant_of(tool), policy, command.full);
    }
    for hook in registry.hooks().iter().filter(|hook| wanted(&hook.name)) {
        head(&mut text, "hook", &hook.name, &hook.source.to_string(), &hook.source_name);
        text.push_str(&hook_lines(hook, &registry));
        granted(&mut text, &policy.grant_for(&hook.source_name, hook.capabilities.as_ref()), policy, command.full);
    }
    for agent in registry.agents().iter().filter(|agent| wanted(&agent.name)) {
        head(&mut text, "agent", &agent.name, &agent.source.to_string(), &agent.source_name);
        let own = agent.tools.iter().filter_map(Use::inline).map(|tool| &tool.name);
        for name in own.chain(agent.hooks.iter().filter_map(Use::inline).map(|hook| &hook.name)) {
            let name = escape::line(name);
            text.push_str(&format!("  has `{name}`: `harness policy show {}/{name}`\n", escape::line(&agent.name)));
        }
    }
    for skill in registry.skills().iter().filter(|skill| wanted(&skill.name)) {
        head(&mut text, "skill", &skill.name, &skill.source.to_string(), &skill.source_name);
        text.push_str(&skills::lines(skill, policy));
    }
    for server in policy.mcp.servers.iter().filter(|server| wanted(&server.name)) {
        head(&mut text, "MCP server", &server.name, &server.position.to_string(), &Served::source(&server.name));
        text.push_str(&grant::server(server).iter().map(|line| format!("  {line}\n")).collect::<String>());
        granted(&mut text, &policy.grant_for_server(server), policy, command.full);
    }
    for bundle in registry.bundles().iter().filter(|_| command.names.is_empty()) {
        text.push_str(&format!("bundle {}\n", escape::line(&bundle.name)));
        if let Some(plugin) = &bundle.plugin {
            let (version, description) = (&plugin.version, escape::line(&plugin.description));
            text.push_str(&format!("  version {version}: {description}\n"));
        }
    }
    for one in registry.replaced().iter().filter(|one| wanted(&one.name)) {
        text.push_str(&replaced(one));
    }
    printer.data(&text);
    if registry.diagnostics().has_errors() { Exit::Usage } else { Exit::Completed }
}

/// What stands instead of what.
pub(crate) fn replaced(one: &harness_registry::Replaced) -> String {
    let (by, what) = (one.by.to_string(), one.what.to_string());
    format!(
        "replaced: {} `{}` of {} by {}\n",
        one.kind,
        escape::line(&one.name),
        escape::line(&what),
        escape::line(&by)
    )
}

fn head(text: &mut String, kind: &str, name: &str, place: &str, source: &str) {
    text.push_str(&format!("{kind} {}\n", escape::line(name)));
    text.push_str(&format!("  from {}, source `{}`\n", escape::line(place), escape::line(source)));
}

fn tool_lines(tool: &Tool, policy: &ProjectPolicy) -> String {
    let mut text = String::new();
    if let Err(refusal) = policy.tools.decide(&tool.name) {
        text.push_str(&format!("  not callable: {}\n", escape::line(&refusal.reason)));
    }
    if let Some(served) = &tool.served {
        let (tool, server) = (escape::line(&served.tool), escape::line(&served.server));
        text.push_str(&format!("  the tool `{tool}` of the MCP server `{server}`\n"));
    } else if tool.script.is_none() {
        text.push_str("  no script: nothing to run\n");
    }
    let lines = |schema: &Json| escape::line(&schema.to_string()).into_owned();
    if !tool.parameters.list.is_empty() {
        text.push_str(&format!("  parameters: {}\n", lines(&tool.json_schema())));
    }
    if let Some(returns) = &tool.returns {
        text.push_str(&format!("  returns: {}\n", lines(returns.json())));
    }
    if tool.verify.is_some() {
        text.push_str("  verify: a script checks each result\n");
    }
    if *tool.asynchronous {
        let how = if policy.async_tools { "in the background" } else { "ignored: `sandbox.async_tools` is not set" };
        text.push_str(&format!("  async: {how}\n"));
    }
    if needs_confirmation(tool, policy) {
        text.push_str("  each call needs confirmation by a person\n");
    }
    if policy.mcp.is_only_in_scripts(tool) {
        text.push_str("  only scripts call it, no model and no client\n");
    }
    if let Some(timeout) = &tool.timeout_ms {
        text.push_str(&format!("  timeout_ms: {}\n", timeout.value));
    }
    text
}

/// Whether a person has to confirm its calls.
fn needs_confirmation(tool: &Tool, policy: &ProjectPolicy) -> bool {
    *tool.confirm || policy.tools.confirms(&tool.name).is_some()
}

fn hook_lines(hook: &Hook, registry: &Registry) -> String {
    let chain = registry.chain(&hook.event);
    let place = chain.iter().position(|other| other.name == hook.name).unwrap_or_default().saturating_add(1);
    let mut text = format!("  on {}, priority {}, {place} of {}\n", *hook.event, *hook.priority, chain.len());
    if let Some(shows) = hooks::received(hook, registry.policy()) {
        text.push_str(&format!("  receives the event {}\n", shows.describe()));
    }
    if let Some(when) = &hook.when {
        let how = if hook.filter.is_some() { "decided without an instance" } else { "evaluated in its instance" };
        text.push_str(&format!("  when {} ({how})\n", escape::line(when.text.trim())));
    }
    text
}

/// What it may do: what all layers allow together, or each of them with its place, and the limits.
fn granted(text: &mut String, grant: &Grant, policy: &ProjectPolicy, full: bool) {
    if full {
        text.push_str("  may do what all of these layers allow:\n");
        for line in grant::lines(grant) {
            text.push_str(&format!("    {line}\n"));
        }
        text.push_str(&format!("  {}\n", grant::limits(&grant.limits())));
        return;
    }
    let says = |one: &Agreed| {
        !one.whole || !matches!(one.rules.as_slice(), [] | [_] if one.rules.iter().all(|rule| rule == "false"))
    };
    for one in grant::allowed(grant, policy).iter().filter(|one| says(one)) {
        text.push_str(&format!("  {}: {}\n", one.key, grant::line(one)));
    }
}

fn all_as_json(registry: &Registry, policy: &ProjectPolicy, wanted: impl Fn(&str) -> bool) -> Json {
    let with_grant = |mut object: Json, grant: Json| {
        if let Some(object) = object.as_object_mut() {
            object.insert("grant".to_owned(), grant);
        }
        object
    };
    let tools = registry.tools().iter().filter(|tool| wanted(&tool.name)).map(|tool| {
        let mut object = json!({
            "name": tool.name,
            "file": &*tool.source.file,
            "line": tool.source.line,
            "source": tool.source_name,
            "script": tool.script.is_some(),
            "verify": tool.verify.is_some(),
            "async": *tool.asynchronous,
            "confirm": needs_confirmation(tool, policy),
            "timeout_ms": tool.timeout_ms.as_ref().map(|timeout| timeout.value),
            "allowed": policy.tools.decide(&tool.name).is_ok(),
            "parameters": tool.json_schema(),
            "returns": tool.returns.as_ref().map(|returns| returns.json()),
            "cases": tool.cases.len(),
        });
        if let (Some(object), Some(served)) = (object.as_object_mut(), &tool.served) {
            object.insert("server".to_owned(), json!({"name": served.server, "tool": served.tool}));
        }
        if let (Some(object), true) = (object.as_object_mut(), policy.mcp.is_only_in_scripts(tool)) {
            object.insert("expose".to_owned(), json!("script"));
        }
        with_grant(object, grant::as_json(&policy.grant_of(tool)))
    });
    let hooks = registry.hooks().iter().filter(|hook| wanted(&hook.name)).map(|hook| {
        let grant = policy.grant_for(&hook.source_name, hook.capabilities.as_ref());
        with_grant(hooks::as_json(hook, Some(policy)), grant::as_json(&grant))
    });
    let servers = policy.mcp.servers.iter().filter(|server| wanted(&server.name)).map(|server| {
        let object = json!({
            "name": server.name,
            "file": &*server.position.file,
            "line": server.position.line,
            "keep": server.keep.word(),
        });
        let object = grant::with_endpoint(object, server);
        with_grant(object, grant::as_json(&policy.grant_for_server(server)))
    });
    let servers: Vec<Json> = servers.collect();
    let replaced = registry.replaced().iter().filter(|one| wanted(&one.name));
    let mut all = json!({
        "tools": tools.collect::<Vec<_>>(),
        "hooks": hooks.collect::<Vec<_>>(),
        "agents": registry.agents().iter().filter(|agent| wanted(&agent.name)).map(|agent| agents::as_json(agent)).collect::<Vec<_>>(),
        "skills": registry.skills().iter().filter(|skill| wanted(&skill.name)).map(|skill| skills::as_json(skill, policy)).collect::<Vec<_>>(),
        "bundles": registry.bundles().iter().map(|bundle| &bundle.name).collect::<Vec<_>>(),
        "replaced": replaced.map(|one| json!({"kind": one.kind, "name": one.name, "by": one.by.to_string(), "what": one.what.to_string()})).collect::<Vec<_>>(),
    });
    let plugins = registry.bundles().iter().filter_map(|bundle| {
        let plugin = bundle.plugin.as_ref()?;
        Some(json!({"source": bundle.name, "version": plugin.version.to_string(), "description": plugin.description}))
    });
    let plugins: Vec<Json> = plugins.collect();
    if let (Some(all), false) = (all.as_object_mut(), plugins.is_empty()) {
        all.insert("plugins".to_owned(), Json::Array(plugins));
    }
    if let (Some(all), false) = (all.as_object_mut(), servers.is_empty()) {
        all.insert("servers".to_owned(), Json::Array(servers));
    }
    all
}
