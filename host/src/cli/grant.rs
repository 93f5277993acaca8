//! What something may do, as lines for a person.

use harness::artifact::escape;
use harness::policy::grant::Grant;
use harness::policy::layer::{Layer, Scope};
use harness::policy::limits::Limits;
use serde_json::{Value as Json, json};

/// The layers of a grant, a few lines each.
pub(crate) fn lines(grant: &Grant) -> Vec<String> {
    grant.layers().iter().flat_map(layer).collect()
}

/// The limits in one line.
pub(crate) fn limits(limits: &Limits) -> String {
    format!(
        "limits: fuel {}, {} ms, memory {} MiB, output {} bytes, files {} bytes",
        limits.fuel,
        limits.timeout.as_millis(),
        limits.memory_bytes >> 20,
        limits.output_bytes,
        limits.file_bytes
    )
}

/// What one layer allows, a line each.
fn layer(layer: &Layer) -> Vec<String> {
    let mut lines = vec![format!("{}:", escape::line(&place(layer)))];
    for (what, values) in rules(layer) {
        let values =
            if values.is_empty() { "nothing".to_owned() } else { escape::line(&values.join(", ")).into_owned() };
        lines.push(format!("  {what}: {values}"));
    }
    lines
}

fn place(layer: &Layer) -> String {
    match &layer.origin.scope {
        Scope::Project => layer.origin.file.clone(),
        Scope::Source(name) => format!("{}, source `{name}`", layer.origin.file),
        Scope::Artifact => format!("{}, its capabilities", layer.origin.file),
        Scope::Default => "the defaults".to_owned(),
    }
}

fn rules(layer: &Layer) -> Vec<(&'static str, Vec<String>)> {
    let mut rules = Vec::new();
    if let Some(fs) = &layer.fs {
        rules.push(("read", fs.read.iter().map(ToString::to_string).collect()));
        rules.push(("write", fs.write.iter().map(ToString::to_string).collect()));
        if !fs.protect.is_empty() {
            rules.push(("protect", fs.protect.iter().map(ToString::to_string).collect()));
        }
    }
    if let Some(network) = &layer.network {
        rules.push(("hosts", network.allow.iter().map(ToString::to_string).collect()));
    }
    if let Some(exec) = &layer.exec {
        rules.push(("commands", exec.allow.iter().map(ToString::to_string).collect()));
        rules.push(("their variables", exec.env.clone()));
    }
    if let Some(env) = &layer.env {
        rules.push(("variables", env.clone()));
    }
    if let Some(services) = &layer.services {
        rules.push(("services", services.iter().map(|service| service.name().to_owned()).collect()));
    }
    // A project without secrets is the usual one.
    let silent = matches!(layer.origin.scope, Scope::Project | Scope::Default);
    if let Some(secrets) = layer.secrets.as_ref().filter(|secrets| !(silent && secrets.is_empty())) {
        rules.push(("secrets", secrets.clone()));
    }
    rules
}

/// The same as JSON: a list of layers, each with its place and what it allows.
pub(crate) fn as_json(grant: &Grant) -> Json {
    let layer = |layer: &Layer| {
        let rules: serde_json::Map<String, Json> =
            rules(layer).into_iter().map(|(what, values)| (what.replace(' ', "_"), json!(values))).collect();
        json!({"from": place(layer), "allows": rules})
    };
    json!(grant.layers().iter().map(layer).collect::<Vec<_>>())
}
