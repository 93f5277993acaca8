//! `harness mcp list`, `test`, `add` and `remove`: the servers whose tools the project has.

use std::path::Path;

use clap::Args;
use harness_artifact::pinned::describe;
use harness_artifact::policy::mcp::{Endpoint, Keep, McpServer, is_server_name};
use harness_artifact::{escape, third_party};
use harness_capability::system::System;
use harness_dispatch::{self as dispatch, Fetch, Options, Reading};
use harness_registry::Registry;
use harness_sys::{self as sys, output};
use serde_json::{Value as Json, json};

use super::fetch;
use super::opens::Opens;
use crate::args::ProjectArgs;
use crate::edit;
use crate::exit::Exit;
use crate::lock::report_left_out;
use crate::printer::Printer;
use crate::project;

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print the servers as one JSON array.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 as it is locked, 1 it cannot be read or differs, 2 there is no such server.")]
pub(crate) struct Test {
    /// The server.
    pub(crate) name: String,

    /// Print what it is as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 added, 1 added, but its packages cannot be fetched, 2 nothing is added.\n\n\
                        Examples:\n  harness mcp add files --read docs -- mcp-files\n  \
                        harness mcp add git --read . --keep-call -- mcp-git --repository .\n  \
                        harness mcp add docs --url https://mcp.example.com/mcp --header 'Authorization: Bearer {secret:DOCS}'")]
pub(crate) struct Add {
    /// Its name: 1 to 20 characters of `a-z`, `0-9` and `_`, a letter first. Names of its tools begin with it.
    #[arg(value_parser = name)]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) opens: Opens,

    /// Start a process, or begin a session, for each call instead of one for a run.
    #[arg(long)]
    pub(crate) keep_call: bool,

    /// URL of a server over HTTP, such as `https://mcp.example.com/mcp`, instead of a command.
    #[arg(long, value_name = "URL", conflicts_with_all = ["command", "read", "write", "network", "env", "floating"])]
    pub(crate) url: Option<String>,

    /// A header of each request to the URL as `NAME: VALUE`, with `{secret:NAME}` and `{env:NAME}` in the value; may be
    /// repeated.
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    pub(crate) header: Vec<String>,

    /// Let the host of the URL lead to a private address, and ask it with `http`.
    #[arg(long, requires = "url")]
    pub(crate) private: bool,

    /// Pattern of names of its tools that the project has, as it names them; may be repeated. Default: all.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) tool: Vec<String>,

    /// The command, after `--`.
    #[arg(last = true, required_unless_present = "url", value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The server.
    pub(crate) name: String,
}

fn name(text: &str) -> Result<String, String> {
    let why = "1 to 20 characters of a-z, 0-9 and _, a letter first";
    if is_server_name(text) { Ok(text.to_owned()) } else { Err(why.to_owned()) }
}

pub(super) fn list(command: &List, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let registry = project::registry(place);
    project::report(&registry, printer);
    let policy = registry.policy().ok_or(Exit::Usage)?;
    let servers = &policy.mcp.servers;
    if command.json {
        printer.json(&servers.iter().map(|server| as_json(server, &registry)).collect());
        return Ok(Exit::Completed);
    }
    if servers.is_empty() {
        printer.say("no servers: add one with `harness mcp add NAME -- COMMAND` or `harness mcp add NAME --url URL`");
        return Ok(Exit::Completed);
    }
    let mut text = String::new();
    for server in servers {
        let state = match registry.server(&server.name) {
            Some(locked) => {
                let tools = locked.pinned.tools.iter().filter(|tool| server.offers(tool.name())).count();
                format!("{}, {tools} tools", locked.pinned.version)
            }
            None => "not locked".to_owned(),
        };
        let location = escape::line(&server.location()).into_owned();
        text.push_str(&format!("{}  {location}  (keep: {}; {state})\n", server.name, server.keep.word()));
        for tool in
            registry.tools().iter().filter(|tool| tool.served.as_ref().is_some_and(|of| of.server == server.name))
        {
            text.push_str(&format!("    {}\n", escape::line(&tool.name)));
        }
    }
    printer.data(&text);
    Ok(Exit::Completed)
}

fn as_json(server: &McpServer, registry: &Registry) -> Json {
    let tools = registry.tools().iter().filter_map(|tool| {
        let served = tool.served.as_ref().filter(|served| served.server == server.name)?;
        Some(json!({"name": tool.name, "tool": served.tool}))
    });
    let given = server.given().iter().map(|(name, value)| (name.clone(), Json::from(value.to_string())));
    let given: Json = given.collect::<serde_json::Map<String, Json>>().into();
    let mut shown = json!({"name": server.name, "transport": server.transport().name()});
    let endpoint = match &server.endpoint {
        Endpoint::Command(command) => json!({"command": command.words(), "env": given}),
        Endpoint::Url(remote) => json!({"url": remote.url.as_str(), "headers": given}),
    };
    let rest = json!({
        "keep": server.keep.word(),
        "locked": registry.server(&server.name).map(|locked| json!({"protocol": locked.pinned.version})),
        "tools": tools.collect::<Vec<_>>(),
    });
    if let (Some(shown), Json::Object(endpoint), Json::Object(rest)) = (shown.as_object_mut(), endpoint, rest) {
        shown.extend(endpoint);
        shown.extend(rest);
    }
    shown
}

pub(super) fn test(command: &Test, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let (root, machine) = (project::root(place), project::machine(place));
    let registry = Registry::load_unlocked(&root, project::host(&machine));
    let Some(policy) = registry.policy() else {
        project::report(&registry, printer);
        return Err(Exit::Usage);
    };
    if policy.mcp.server(&command.name).is_none() {
        let why = format!("there is no server `{}`", command.name);
        printer.error(&why, &[], Some("`harness mcp list` lists them"));
        return Err(Exit::Usage);
    }
    let options = Options { machine, system: System::default().with_environment(), ..Options::default() };
    let read = dispatch::read_servers(&root, &registry, &options, Some(&command.name), Fetch::Missing);
    let read = project::block_on(read, printer)?;
    let read = read.map_err(|error| project::unopened(&error, printer))?;
    let Some((name, read)) = read.into_iter().next() else { return Err(Exit::Usage) };
    let pinned = match read {
        Ok(Reading { pinned, left_out }) => {
            report_left_out(&name, &left_out, printer);
            pinned
        }
        Err(failure) => {
            let why = format!("the server `{name}`: {}", escape::line(&failure.to_string()));
            printer.error(&why, &[], None);
            return Ok(Exit::Failed);
        }
    };
    let locked = Registry::read_lock(&root).ok().flatten();
    let locked = locked.as_ref().and_then(|lock| lock.server(&name));
    let changes = locked.map(|locked| locked.pinned.changes(&pinned)).unwrap_or_default();
    let drift = (!changes.is_empty()).then(|| describe(&name, &changes));
    if command.json {
        printer.json(&json!({
            "name": name,
            "protocol": pinned.version,
            "instructions": pinned.instructions,
            "tools": pinned.tools.iter().map(|tool| tool.json().clone()).collect::<Vec<_>>(),
            "locked": locked.is_some() && drift.is_none(),
            "drift": drift.as_ref().map(|(told, difference)| json!({"told": told, "difference": difference})),
        }));
    } else {
        let mut text = format!("{name} speaks {}: {} tools\n", pinned.version, pinned.tools.len());
        for tool in &pinned.tools {
            let description = tool.json().get("description").and_then(Json::as_str).unwrap_or_default();
            text.push_str(&format!("  {}  {}\n", tool.name(), third_party::line(description)));
        }
        printer.data(&text);
    }
    match (&drift, locked) {
        (Some((told, difference)), _) => {
            let causes: Vec<String> =
                difference.iter().flat_map(|lines| lines.lines()).map(|line| escape::line(line).into_owned()).collect();
            printer.error(&escape::line(told), &causes, Some("`harness lock` accepts that"));
            Ok(Exit::Failed)
        }
        (None, None) => {
            printer.say("not locked: `harness lock` accepts what it is");
            Ok(Exit::Failed)
        }
        (None, Some(_)) => Ok(Exit::Completed),
    }
}

pub(super) fn add(command: &Add, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    change(place, printer, "added", |file, text| {
        edit::add(file, text, &["mcp", "servers", &command.name], &entry(command))
    })?;
    let root = project::root(place);
    let registry = Registry::load_unlocked(&root, project::host(&project::machine(place)));
    if fetch::packages(&root, &registry, Some(&command.name), place, printer)? == Some(Exit::Failed) {
        let again = format!("`{}` is in the policy without them: `harness mcp fetch {0}` tries again", command.name);
        printer.say(&again);
        return Ok(Exit::Failed);
    }
    printer.data(&format!("added `{}`: review what it offers with `harness lock`", command.name));
    Ok(Exit::Completed)
}

pub(super) fn remove(command: &Remove, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    change(place, printer, "removed", |file, text| edit::remove(file, text, &["mcp", "servers", &command.name]))?;
    printer.data(&format!("removed `{}`: take it out of the lock with `harness lock`", command.name));
    Ok(Exit::Completed)
}

/// The value of an entry, on one line of YAML. JSON is YAML too.
fn entry(command: &Add) -> String {
    let list = |texts: &[String]| json!(texts).to_string();
    let pairs = |pairs: &[String], sign: char| {
        let pairs = pairs.iter().map(|pair| pair.split_once(sign).unwrap_or((pair, "")));
        let pairs: Vec<String> =
            pairs.map(|(name, value)| format!("{}: {}", json!(name.trim()), json!(value.trim_start()))).collect();
        pairs.join(", ")
    };
    let mut parts = Vec::new();
    match &command.url {
        Some(url) => parts.push(format!("url: {}", json!(url))),
        None => parts.push(format!("command: {}", list(&command.command))),
    }
    if !command.header.is_empty() {
        parts.push(format!("headers: {{ {} }}", pairs(&command.header, ':')));
    }
    if command.private {
        parts.push("private: true".to_owned());
    }
    if !command.opens.env.is_empty() {
        parts.push(format!("env: {{ {} }}", pairs(&command.opens.env, '=')));
    }
    let sides = [("read", &command.opens.read), ("write", &command.opens.write)];
    let sides: Vec<String> = sides
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(key, side)| format!("{key}: {}", list(side)))
        .collect();
    if !sides.is_empty() {
        parts.push(format!("fs: {{ {} }}", sides.join(", ")));
    }
    if !command.opens.network.is_empty() {
        parts.push(format!("network: {{ allowed_domains: {} }}", list(&command.opens.network)));
    }
    if command.keep_call {
        parts.push(format!("keep: {}", Keep::Call.word()));
    }
    if !command.tool.is_empty() {
        parts.push(format!("tools: {}", list(&command.tool)));
    }
    if command.opens.floating {
        parts.push("floating: true".to_owned());
    }
    format!("{{ {} }}", parts.join(", "))
}

/// Changes the file of the policy. What is wrong with the policy then is reported, and the file stays as it was.
fn change(
    place: &ProjectArgs,
    printer: Printer,
    done: &str,
    edit: impl Fn(&str, &str) -> Result<String, String>,
) -> Result<(), Exit> {
    let root = project::there(place, printer)?;
    let registry = Registry::load_unlocked(&root, project::host(&project::machine(place)));
    let named = registry.policy_file();
    let file = if named.is_empty() { ".harness/harness.md" } else { named };
    let failed = |why: String| {
        printer.error(&format!("`{file}` stays as it is: {why}"), &[], None);
        Exit::Usage
    };
    let path = root.join(file);
    let text = match sys::read_text(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(format!("it cannot be read: {error}"))),
    };
    let new = edit(file, &text).map_err(failed)?;
    let (policy, wrong) = harness_artifact::policy::ProjectPolicy::parse(file, &new);
    if policy.is_none() {
        for diagnostic in &wrong {
            printer.problem(diagnostic, &diagnostic.render(Some(&new), printer.color()));
        }
        return Err(failed(format!("nothing is {done}")));
    }
    let shared: [&Path; 1] = [&root];
    output::write(&path, &new, output::Readers::All, &shared).map_err(|error| failed(error.to_string()))
}
