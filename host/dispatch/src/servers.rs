//! What is done with the servers of a policy without a project: they are read for the lock, their packages are fetched, and
//! the operator logs in.

use std::path::Path;
use std::sync::Arc;

use harness_artifact::definition::Definition;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::policy::mcp::McpServer;
use harness_capability::fs::Workspace;
use harness_capability::http::Client;
use harness_capability::resources::Resources;
use harness_capability::secrets::Vault;
use harness_gateway::{Failure, Fetch, Host, LoggedIn, Prompt, Reading};
use harness_registry::Registry;
use harness_registry::lock::Lock;

use super::{OpenError, Options, guarded};

/// What servers are started and asked with.
struct Ground<'a> {
    policy: ProjectPolicy,
    workspace: Arc<Workspace>,
    vault: Arc<Vault>,
    options: &'a Options,
    http: Client,
    resources: Resources,
    /// What of them was locked, where that can be read.
    lock: Option<Lock>,
}

impl<'a> Ground<'a> {
    /// None where there is no policy.
    fn of(root: &Path, registry: &Registry, options: &'a Options) -> Result<Option<Self>, OpenError> {
        let Some(mut policy) = registry.policy().cloned() else { return Ok(None) };
        let folder = options.workspace.as_deref().unwrap_or(root);
        let unopened = |source| OpenError::Workspace { path: folder.to_owned(), source };
        let workspace = Arc::new(Workspace::open(folder).map_err(unopened)?);
        let vault = Arc::new(guarded(root, registry, &mut policy, &workspace, options));
        let (http, resources) = (Client::default(), Resources::default());
        let lock = Registry::read_lock(root).ok().flatten();
        Ok(Some(Self { policy, workspace, vault, options, http, resources, lock }))
    }

    /// All servers, or the one of a name.
    fn servers(&self, only: Option<&str>) -> impl Iterator<Item = &McpServer> {
        self.policy.mcp.servers.iter().filter(move |server| only.is_none_or(|only| server.name == only))
    }

    /// Does something with a server. What it says then shows no secret.
    async fn ask<T>(
        &self,
        server: &McpServer,
        ask: impl AsyncFnOnce(Host<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let grant = self.policy.grant_for_server(server);
        let host = Host {
            grant: &grant,
            folder: &self.workspace,
            workspace: self.workspace.absolute().as_ref(),
            vault: &self.vault,
            variables: &self.options.system.variables,
            http: &self.http,
            resources: &self.resources,
            answerer: None,
        };
        // Of a type of its own: all that a server is asked is deep enough.
        let mut done = Box::pin(ask(host)).await;
        if let Err(Failure::Broken(why) | Failure::Said(why)) = &mut done {
            self.vault.redact(why);
        }
        done
    }
}

/// What is done about the login at a server.
#[derive(Debug, Clone, Copy)]
pub enum LoginAction<'a> {
    /// Log in. With the port of the listener that the browser comes back to (0 is any), and who shows the address.
    In(u16, &'a dyn Prompt),
    /// The login is forgotten.
    Out,
}

/// What came of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginState {
    /// There is a login, a new one or the one before.
    In(LoggedIn),
    /// There is none. Whether there was one.
    Out(bool),
}

/// Logs in at a server of a policy, or out. None where there is no server of this name.
///
/// # Errors
///
/// Where the workspace cannot be opened. What is wrong with the login is its own answer.
pub async fn login_server(
    root: &Path,
    registry: &Registry,
    options: &Options,
    name: &str,
    action: LoginAction<'_>,
) -> Result<Option<Result<LoginState, Failure>>, OpenError> {
    let Some(ground) = Ground::of(root, registry, options)? else { return Ok(None) };
    let Some(server) = ground.policy.mcp.server(name) else { return Ok(None) };
    let done = ground.ask(server, async |host| match action {
        LoginAction::In(port, prompt) => harness_gateway::login(server, host, port, prompt).await.map(LoginState::In),
        LoginAction::Out => harness_gateway::logout(server, host).map(LoginState::Out),
    });
    Ok(Some(done.await))
}

/// Starts the servers of a policy, each behind its wall, and reads what they are: what `harness.lock` keeps of them. All of
/// them, or the one of a name.
///
/// # Errors
///
/// Where the workspace cannot be opened. What is wrong with a server is its own answer.
pub async fn read_servers(
    root: &Path,
    registry: &Registry,
    options: &Options,
    only: Option<&str>,
    fetch: Fetch,
) -> Result<Vec<(String, Result<Reading, Failure>)>, OpenError> {
    let Some(ground) = Ground::of(root, registry, options)? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for server in ground.servers(only) {
        let locked = ground.lock.as_ref().and_then(|lock| lock.server(&server.name)).map(|locked| &locked.pinned);
        let read = ground.ask(server, async |host| {
            let reading = harness_gateway::read(server, locked, fetch, host).await?;
            // What is locked is committed.
            let Reading { pinned, .. } = &reading;
            let texts = pinned.tools.iter().map(Definition::canonical).chain(pinned.instructions.clone());
            match texts.into_iter().find_map(|text| ground.vault.find(&text).map(str::to_owned)) {
                Some(name) => Err(Failure::Broken(format!("what it says holds the value of the secret `{name}`"))),
                None => Ok(reading),
            }
        });
        all.push((server.name.clone(), read.await));
    }
    Ok(all)
}

/// Fetches the packages of the servers of a policy that are not on this machine, all of them or those of the one of a name,
/// and compares them with the lock. Gives the digest of the packages of each server that has any.
///
/// # Errors
///
/// Where the workspace cannot be opened. What is wrong with a server is its own answer.
pub async fn fetch_packages(
    root: &Path,
    registry: &Registry,
    options: &Options,
    only: Option<&str>,
) -> Result<Vec<(String, Result<String, Failure>)>, OpenError> {
    let Some(ground) = Ground::of(root, registry, options)? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for server in ground.servers(only) {
        let locked = ground.lock.as_ref().and_then(|lock| lock.server(&server.name)).map(|locked| &locked.pinned);
        let fetched = ground.ask(server, async |host| harness_gateway::fetch(server, locked, host).await);
        if let Some(fetched) = fetched.await.transpose() {
            all.push((server.name.clone(), fetched));
        }
    }
    Ok(all)
}
