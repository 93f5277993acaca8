//! What the policy of a tenant may not name: files, programs and addresses of the server that it shares with others.
//!
//! A project on someone's own machine is as trusted as the machine's owner: its policy names the files of secrets, folders
//! outside of it, addresses of the own network. A server gets the project of a tenant as an upload, from a stranger.

use std::net::IpAddr;

use url::{Host, Url};

use super::ProjectPolicy;
use super::mcp::Endpoint;
use crate::diagnostic::{Diagnostic, Position};
use crate::model::{ModelConfig, Provider};
use harness_policy::layer::{Layer, Origin};
use harness_policy::network::address::AddressKind;
use harness_policy::secret::Holder;
use harness_policy::text::quoted;

/// Everything that this policy names and a tenant's may not. Without any, nothing in it leads out of the tenant's own folder,
/// store and public addresses.
pub fn problems(policy: &ProjectPolicy) -> Vec<Diagnostic> {
    let layers = std::iter::once(&policy.project).chain(policy.sources.iter().map(|source| &source.layer));
    let mut found: Vec<Diagnostic> = layers.flat_map(of_layer).collect();
    found.extend(policy.secrets.iter().filter_map(|secret| {
        match &secret.value.holder {
            Holder::Variable(_) => None,
            Holder::File(file) => Some(
                refused(format!("the secret `{}` is in the file {}", secret.value.name, quoted(file)))
                    .at(secret.position.clone())
                    .hint("name it with `env`: the secrets of the tenant are its variables"),
            ),
        }
    }));
    found.extend(policy.roots.iter().filter_map(|root| {
        let path = root.value.local().filter(|path| path.split('/').any(|part| part == ".."))?;
        let what = refused(format!("`artifact_sources` names {}, outside of the project", quoted(path)));
        Some(what.at(root.position.clone()).hint("upload the folder with the project"))
    }));
    for server in &policy.mcp.servers {
        let what = match &server.endpoint {
            Endpoint::Command(_) => "is a command of the machine".to_owned(),
            Endpoint::Url(at) if is_inside(&at.url) => "is at an address that is not public".to_owned(),
            Endpoint::Url(_) if reaches_inside(&server.layer).is_some() => "may be at a private address".to_owned(),
            Endpoint::Url(_) => continue,
        };
        let what = refused(format!("the MCP server `{}` {what}", server.name)).at(server.position.clone());
        found.push(what.hint("name the public `https` URL of a server, without `private: true`"));
    }
    found.extend(policy.models.all().filter_map(of_model));
    if !policy.audit {
        let what = refused("`sandbox.audit: false` would leave calls out of the record".to_owned());
        found.push(what.hint(format!("remove it from `{}`", policy.project.origin.file)));
    }
    found
}

/// What a layer grants of the server.
fn of_layer(layer: &Layer) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut add = |key: &str, what: String, hint: &str| {
        let what = refused(what).hint(hint);
        found.push(match position(&layer.origin, key) {
            Some(position) => what.at(position),
            None => what,
        });
    };
    if let Some(exec) = &layer.exec {
        if !exec.folders.is_empty() {
            let what = format!("`{}` names folders of the machine", layer.origin.key("exec.folders"));
            add("exec.folders", what, "remove it: commands have the machine's own folders and the workspace");
        }
        if exec.unconfined {
            let what = format!("`{}` takes the wall of commands away", layer.origin.key("exec.unconfined"));
            add("exec.unconfined", what, "remove it: commands of a tenant run behind their wall");
        }
    }
    if let Some(rule) = reaches_inside(layer) {
        let what = format!("`{}` grants {}, which is not public", layer.origin.key("network"), quoted(&rule));
        add("network", what, "remove it: a tenant reaches public addresses only");
    }
    found
}

/// A rule of a layer that covers addresses that are not public, or may.
fn reaches_inside(layer: &Layer) -> Option<String> {
    layer.network.as_ref()?.allow.iter().find(|rule| rule.stays_inside()).map(ToString::to_string)
}

/// What a model's service has to do with the server's own network. Its connections are decided again, by address.
fn of_model(model: &ModelConfig) -> Option<Diagnostic> {
    let default = || model.provider.value.base_url().and_then(|url| Url::parse(url).ok());
    let (url, position) = match &model.base_url {
        Some(url) => (url.value.clone(), url.position.clone()),
        None => (default()?, model.provider.position.clone()),
    };
    let hint = match model.provider.value {
        Provider::Ollama => "name a public address with `base_url`",
        _ => "name a public address",
    };
    let what = || {
        refused(format!("the model `{}` is asked at {}, which is not public", model.name.value, quoted(url.as_str())))
    };
    is_inside(&url).then(|| what().at(position).hint(hint))
}

/// Whether a URL says by itself that it leads to no public address. What a name leads to is decided when it is connected to.
pub fn is_inside(url: &Url) -> bool {
    let is_inside = |address: IpAddr| AddressKind::of(address) != AddressKind::Public;
    match url.host() {
        Some(Host::Ipv4(address)) => is_inside(address.into()),
        Some(Host::Ipv6(address)) => is_inside(address.into()),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => true,
    }
}

fn refused(what: String) -> Diagnostic {
    Diagnostic::error(format!("{what}: the project of a tenant names nothing of the server"))
}

fn position(origin: &Origin, key: &str) -> Option<Position> {
    let place = origin.places.key(key)?;
    Some(Position { file: origin.file.as_str().into(), line: place.line, column: place.column, length: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(policy: &str) -> Vec<String> {
        let (read, wrong) = ProjectPolicy::parse("harness.md", &format!("---\n{policy}\n---\n"));
        let read = read.unwrap_or_else(|| panic!("{policy}: {wrong:?}"));
        let shown = |one: Diagnostic| {
            let place = one.position.map(|at| format!("{}:{} ", at.line, at.column)).unwrap_or_default();
            format!("{place}{}", one.message.trim_end_matches(": the project of a tenant names nothing of the server"))
        };
        problems(&read).into_iter().map(shown).collect()
    }

    #[test]
    fn what_leads_to_the_server_is_found() {
        for (policy, found) in [
            (
                "sandbox: { secrets: { K: { file: /etc/shadow, hosts: [a.example] } } }",
                "2:23 the secret `K` is in the file `/etc/shadow`",
            ),
            (
                "artifact_sources: [{ type: local, path: ../other }]",
                "2:41 `artifact_sources` names `../other`, outside of the project",
            ),
            (
                "sandbox: { exec: { allow: [ls], unconfined: true } }",
                "2:45 `sandbox.exec.unconfined` takes the wall of commands away",
            ),
            (
                "sandbox: { exec: { allow: [ls], folders: [/opt] } }",
                "2:42 `sandbox.exec.folders` names folders of the machine",
            ),
            (
                "network: { allowed_domains: ['127.0.0.1:8080'] }",
                "2:29 `network.allowed_domains` grants `127.0.0.1:8080`, which is not public",
            ),
            (
                "network: { allowed_domains: ['[::1]:80'] }",
                "2:29 `network.allowed_domains` grants `[::1]:80`, which is not public",
            ),
            (
                "network: { allowed_domains: [{ host: db.internal, private: true }] }",
                "2:29 `network.allowed_domains` grants `db.internal`, which is not public",
            ),
            ("mcp: { servers: { s: { command: [srv] } } }", "2:19 the MCP server `s` is a command of the machine"),
            (
                "mcp: { servers: { s: { url: 'http://10.0.0.1/mcp' } } }",
                "2:19 the MCP server `s` is at an address that is not public",
            ),
            (
                "model: { name: m, provider: ollama }",
                "2:29 the model `m` is asked at `http://127.0.0.1:11434/`, which is not public",
            ),
            (
                "model: { name: m, provider: openai, base_url: 'http://169.254.169.254/v1' }",
                "2:47 the model `m` is asked at `http://169.254.169.254/v1`, which is not public",
            ),
            (
                "model: { name: m, provider: openai, base_url: 'http://localhost:1/v1' }",
                "2:47 the model `m` is asked at `http://localhost:1/v1`, which is not public",
            ),
            ("sandbox: { audit: false }", "`sandbox.audit: false` would leave calls out of the record"),
        ] {
            assert_eq!(of(policy), [found], "{policy}");
        }
    }

    #[test]
    fn what_stays_in_the_tenants_own_is_not() {
        for policy in [
            "sandbox: { secrets: { K: { env: TOKEN, hosts: [a.example] } } }",
            "artifact_sources: [{ type: local, path: more/kit }]",
            "sandbox: { exec: { allow: [ls] } }",
            "network: { allowed_domains: [api.example.com, '*', '8.8.8.8:53'] }",
            "mcp: { servers: { s: { url: 'https://mcp.example.com/mcp' } } }",
            "model: { name: m, provider: openai }",
            "model: { name: m, provider: script, script: replies.yaml }",
        ] {
            assert_eq!(of(policy), Vec::<String>::new(), "{policy}");
        }
    }
}
