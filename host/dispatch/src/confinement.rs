//! What a process needs for the calls of a project: from this the host plans which privileges it drops.

use std::path::{Path, PathBuf};

use harness_artifact::model::Provider;
use harness_artifact::policy::mcp::{Endpoint, McpServer};
use harness_capability::env::Variables;
use harness_policy::command::CommandNetwork;
use harness_policy::layer::Layer;
use harness_registry::Registry;
use harness_wall::confine::{CommandNeeds, Needs};

/// The folders that a project's artifacts are read from.
pub fn folders(registry: &Registry, root: &Path) -> Vec<PathBuf> {
    let plugins = registry.plugins().map(Path::to_owned);
    registry.roots().iter().cloned().chain([root.to_owned(), root.join(".harness")]).chain(plugins).collect()
}

/// What the projects of a host may need, those that are opened later too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Granted {
    /// What commands need, where a policy may grant any.
    pub commands: Option<CommandNeeds>,
    /// Whether hosts or models may be asked.
    pub hosts: bool,
}

/// What calls need in all projects below these folders, artifacts and workspaces included. A project that is added below
/// one of them needs no new right; what its policy grants beyond `granted` fails when it is used.
pub fn needs_below(roots: &[PathBuf], granted: Granted) -> Needs {
    Needs { read: roots.to_vec(), write: roots.to_vec(), commands: granted.commands, hosts: granted.hosts }
}

/// What calls in a project need: its folder, `workspace` if its tools work elsewhere, and what its policy grants.
/// `instead` replaces the policy of the project for one of its tools; `~` in a rule is the `HOME` of these variables.
pub fn needs(
    registry: &Registry,
    root: &Path,
    workspace: Option<&Path>,
    instead: Option<&Layer>,
    variables: &Variables,
) -> Needs {
    let policy = registry.policy();
    let layers = || policy.map(|policy| &policy.project).into_iter().chain(instead);
    let exec = || layers().filter_map(|layer| layer.exec.as_ref());
    let servers = || policy.into_iter().flat_map(|policy| &policy.mcp.servers);
    let exec = || exec().chain(servers().filter_map(|server| server.layer.exec.as_ref()));
    // What was fetched for servers whose commands are package runners.
    let fetches = |server: &&McpServer| match &server.endpoint {
        Endpoint::Command(command) => command.packages().is_some(),
        Endpoint::Url(_) => false,
    };
    let fetched = servers().find(fetches).and_then(|_| harness_gateway::packages(variables));
    let commands = exec().any(|exec| !exec.allow.is_empty()).then(|| {
        let home = variables.value("HOME").map(PathBuf::from);
        let granted = exec().flat_map(|exec| &exec.folders).filter_map(|folder| folder.path(home.as_deref()));
        CommandNeeds {
            unconfined: exec().any(|exec| exec.unconfined),
            network: exec().any(|exec| exec.network == CommandNetwork::All),
            folders: granted.chain(fetched).collect(),
        }
    });
    let asks = policy.is_some_and(|policy| policy.models.all().any(|model| *model.provider != Provider::Script));
    // Commands that reach some hosts alone make sockets of the internet, in a network of their own.
    let connects = exec().any(|exec| !exec.allow.is_empty() && matches!(exec.network, CommandNetwork::Hosts(_)));
    // The logins of the operator at servers, where there are any yet.
    let logs_in = servers().any(|server| matches!(&server.endpoint, Endpoint::Url(remote) if remote.oauth.is_some()));
    let logins = harness_gateway::logins(variables).filter(|_| logs_in);
    let granted = layers().filter_map(|layer| layer.network.as_ref()).any(|network| !network.allow.is_empty());
    Needs {
        read: folders(registry, root),
        write: [workspace.unwrap_or(root).to_owned(), root.join(harness_audit::FOLDER)]
            .into_iter()
            .chain(logins)
            .collect(),
        commands,
        hosts: asks || granted || connects || servers().any(|server| matches!(server.endpoint, Endpoint::Url(_))),
    }
}

#[cfg(test)]
mod tests {
    use harness_registry::Machine;

    use super::*;

    #[test]
    fn a_policy_says_what_its_calls_need() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let of = |policy: &str| {
            std::fs::create_dir_all(root.join(".harness")).unwrap();
            std::fs::write(root.join(".harness/harness.md"), format!("---\n{policy}\n---\n")).unwrap();
            needs(&Registry::load_within(root, &Machine::None), root, None, None, &Variables::Host)
        };
        let harness = root.join(".harness");
        // The registry has the real path of the folder as a root of its own.
        let read = of("").read;
        assert!(read.contains(&root.to_owned()) && read.contains(&harness), "{read:?}");
        let write = vec![root.to_owned(), root.join(harness_audit::FOLDER)];
        let nothing = Needs { read, write, commands: None, hosts: false };
        assert_eq!(of(""), nothing);
        let hosts = Needs { hosts: true, ..nothing.clone() };
        assert_eq!(of("network: { allowed_domains: [a.test] }"), hosts);
        assert_eq!(of("model: { name: m, provider: ollama }"), hosts);
        let commands = |unconfined, network, folders: &[&str]| Needs {
            commands: Some(CommandNeeds { unconfined, network, folders: folders.iter().map(PathBuf::from).collect() }),
            ..nothing.clone()
        };
        assert_eq!(of("sandbox: { exec: { allow: [sh] } }"), commands(false, false, &[]));
        let all = "sandbox: { exec: { allow: [sh], network: true, unconfined: true, folders: [/opt/go] } }";
        assert_eq!(of(all), commands(true, true, &["/opt/go"]));
        // Some hosts need less than the whole network: no Unix socket and none of the kernel's.
        let some = |policy: &str| {
            let needs = of(policy);
            (needs.commands.is_some_and(|commands| commands.network), needs.hosts)
        };
        assert_eq!(some("sandbox: { exec: { allow: [sh], network: [a.example] } }"), (false, true));
        assert_eq!(some("sandbox: { exec: { allow: [], network: [a.example] } }"), (false, false));
        let server = "mcp: { servers: { a: { command: [sh], network: { allowed_domains: [a.example] } } } }";
        assert_eq!(some(server), (false, true));
        let server = "mcp: { servers: { a: { command: [sh], folders: [/opt/node] } } }";
        assert_eq!(of(server), commands(false, false, &["/opt/node"]));
        // The packages of a runner are outside of the project.
        let fetches = |program: &str| {
            let policy = format!("mcp: {{ servers: {{ a: {{ command: [{program}, a@1.0.0] }} }} }}");
            std::fs::write(root.join(".harness/harness.md"), format!("---\n{policy}\n---\n")).unwrap();
            let variables = Variables::from_iter([("HOME".to_owned(), "/home/ada".to_owned())]);
            needs(&Registry::load_within(root, &Machine::None), root, None, None, &variables)
        };
        assert_eq!(fetches("npx"), commands(false, false, &["/home/ada/.cache/harness/packages"]));
        assert_eq!(fetches("node"), commands(false, false, &[]));
        assert_eq!(of("mcp: { servers: { a: { url: 'https://a.example/mcp' } } }"), hosts);
        // Where no command is granted, the rest of the rules has no use.
        assert_eq!(of("sandbox: { exec: { allow: [], folders: [/opt/go] } }"), nothing);
    }
}
