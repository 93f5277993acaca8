//! What something may do, as lines for a person.

use harness_artifact::escape;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::policy::mcp::{Endpoint, McpServer};
use harness_policy::command::CommandNetwork;
use harness_policy::compare::{Agreed, agreed};
use harness_policy::grant::Grant;
use harness_policy::layer::{Layer, Scope, Service};
use harness_policy::limits::{LimitKey, Limits};
use harness_policy::positions::RulePosition;
use serde_json::{Map, Value as Json, json};

/// The layers of a grant, a few lines each.
pub(crate) fn lines(grant: &Grant) -> Vec<String> {
    grant.layers().iter().flat_map(|one| layer(one)).collect()
}

/// What all layers of a grant allow together, a line for each key. Services that the project has turned off are not there.
pub(crate) fn allowed(grant: &Grant, policy: &ProjectPolicy) -> Vec<Agreed> {
    let mut rules = agreed(grant);
    for one in rules.iter_mut().filter(|one| one.key == "services") {
        one.rules.retain(|service| policy.meta.enabled || service != Service::Meta.name());
    }
    rules
}

/// The rules of one key in a line.
pub(crate) fn line(agreed: &Agreed) -> String {
    rules_line(&agreed.rules, agreed.whole)
}

/// The same of rules that are not in a grant here. `whole`: whether they are all that is allowed.
pub(crate) fn rules_line(rules: &[impl AsRef<str>], whole: bool) -> String {
    let shown: Vec<&str> = rules.iter().map(AsRef::as_ref).collect();
    let shown = escape::line(&shown.join(", ")).into_owned();
    match (rules.is_empty(), whole) {
        (true, true) => "nothing".to_owned(),
        (false, true) => shown,
        (true, false) => "what all layers cover".to_owned(),
        (false, false) => format!("{shown}, and what else all layers cover"),
    }
}

/// What an MCP server is, a few lines: its command and the names of its variables, or its URL and those of its headers.
pub(crate) fn server(server: &McpServer) -> Vec<String> {
    let (place, given) = match &server.endpoint {
        Endpoint::Command(_) => ("command", "variables"),
        Endpoint::Url(_) => ("url", "headers"),
    };
    let names: Vec<&str> = server.given().iter().map(|(name, _)| name.as_str()).collect();
    let names = if names.is_empty() { "none".to_owned() } else { escape::line(&names.join(", ")).into_owned() };
    let mut lines = vec![format!("{place}: {}", escape::line(&server.location())), format!("{given}: {names}")];
    if let Some(tools) = &server.tools {
        let tools: Vec<String> = tools.iter().map(ToString::to_string).collect();
        lines.push(format!("tools: {}", escape::line(&tools.join(", "))));
    }
    lines.push(format!("keep: {}", server.keep.word()));
    lines
}

/// A JSON object with where a server is too, and the names of what it is given.
pub(crate) fn with_endpoint(mut object: Json, server: &McpServer) -> Json {
    if let Some(object) = object.as_object_mut() {
        let names: Vec<&String> = server.given().iter().map(|(name, _)| name).collect();
        match &server.endpoint {
            Endpoint::Command(command) => {
                object.insert("command".to_owned(), json!(command.words()));
                object.insert("variables".to_owned(), json!(names));
            }
            Endpoint::Url(remote) => {
                object.insert("url".to_owned(), json!(remote.url.to_string()));
                object.insert("headers".to_owned(), json!(names));
            }
        }
    }
    object
}

/// The limits in one line.
pub(crate) fn limits(limits: &Limits) -> String {
    let one = |key: &LimitKey| {
        let facts = key.facts();
        format!("{} {}", facts.name, limits.get(*key))
    };
    format!("limits: {}", LimitKey::ALL.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// What one layer allows, a line each, with the place where that is written.
fn layer(layer: &Layer) -> Vec<String> {
    let mut lines = vec![format!("{}:", escape::line(&place(layer)))];
    let origin = &layer.origin;
    for Rules { what, key, values } in rules(layer) {
        let values =
            if values.is_empty() { "nothing".to_owned() } else { escape::line(&values.join(", ")).into_owned() };
        let place = origin.places.key(key).map(|place| origin.at(Some(place)));
        let place = place.map(|place| format!(" ({})", escape::line(&place))).unwrap_or_default();
        lines.push(format!("  {what}: {values}{place}"));
    }
    lines
}

fn place(layer: &Layer) -> String {
    let origin = &layer.origin;
    let file = origin.at(origin.places.own());
    match &origin.scope {
        Scope::Machine | Scope::Project => file,
        Scope::Source(name) => format!("{file}, source `{name}`"),
        Scope::Server(name) => format!("{file}, MCP server `{name}`"),
        Scope::Artifact => format!("{file}, its capabilities"),
        Scope::Trusted(number) => format!("{file}, the most for its source (`trusted_sources[{number}]`)"),
        Scope::Asked => format!("{file}, what the plugin asks for"),
        Scope::Call => format!("this call, by {file}"),
        Scope::Default => "the defaults".to_owned(),
    }
}

/// What a layer says of one thing.
struct Rules {
    what: &'static str,
    key: &'static str,
    values: Vec<String>,
}

fn rules(layer: &Layer) -> Vec<Rules> {
    fn texts<T: ToString>(values: &[T]) -> Vec<String> {
        values.iter().map(ToString::to_string).collect()
    }
    let mut rules = Vec::new();
    let mut say = |what, key, values| rules.push(Rules { what, key, values });
    if let Some(fs) = &layer.fs {
        say("read", "fs.read", texts(&fs.read));
        say("write", "fs.write", texts(&fs.write));
        if !fs.protect.is_empty() {
            say("protect", "fs.protect", texts(&fs.protect));
        }
    }
    if let Some(network) = &layer.network {
        say("hosts", "network", texts(&network.allow));
    }
    if let Some(exec) = &layer.exec {
        say("commands", "exec.allow", texts(&exec.allow));
        say("their variables", "exec.env", exec.env.clone());
        if !exec.folders.is_empty() {
            say("their folders", "exec.folders", texts(&exec.folders));
        }
        match &exec.network {
            CommandNetwork::None => {}
            CommandNetwork::Hosts(hosts) => say("their network", "exec.network", texts(hosts)),
            CommandNetwork::All => say("their network", "exec.network", vec!["all of it".to_owned()]),
        }
        if exec.unconfined {
            say("their wall", "exec.unconfined", vec!["none".to_owned()]);
        }
    }
    if let Some(env) = &layer.env {
        say("variables", "env", env.clone());
    }
    if let Some(services) = &layer.services {
        say("services", "services", services.iter().map(|service| service.name().to_owned()).collect());
    }
    // A project without secrets is the usual one.
    let silent = matches!(layer.origin.scope, Scope::Project | Scope::Default);
    if let Some(secrets) = layer.secrets.as_ref().filter(|secrets| !(silent && secrets.is_empty())) {
        say("secrets", "secrets", secrets.clone());
    }
    rules
}

/// The same as JSON: a list of layers, each with its place, what it allows, and where each of its keys and rules is.
pub(crate) fn as_json(grant: &Grant) -> Json {
    let at = |place: RulePosition| json!({"line": place.line, "column": place.column});
    let layer = |layer: &Layer| {
        let rules: Map<String, Json> =
            rules(layer).into_iter().map(|rules| (rules.what.replace(' ', "_"), json!(rules.values))).collect();
        let places = &layer.origin.places;
        let keys: Map<String, Json> = places
            .keys()
            .map(|(key, spot)| {
                let mut place = at(spot.value);
                if let (Some(place), false) = (place.as_object_mut(), spot.rules.is_empty()) {
                    place.insert("rules".to_owned(), spot.rules.iter().copied().map(at).collect());
                }
                (key.to_owned(), place)
            })
            .collect();
        json!({
            "from": place(layer),
            "file": layer.origin.file,
            "line": places.own().map(|own| own.line),
            "column": places.own().map(|own| own.column),
            "allows": rules,
            "places": keys,
        })
    };
    json!(grant.layers().iter().map(|one| layer(one)).collect::<Vec<_>>())
}
