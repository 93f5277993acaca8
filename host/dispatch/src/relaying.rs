//! A server of other programs for a client of its own, behind the wall that it has as a server of the project.

use std::path::Path;
use std::sync::Arc;

use harness_artifact::definition::Served;
use harness_artifact::policy::ProjectPolicy;
use harness_capability::fs::Workspace;
use harness_capability::http::Client;
use harness_capability::resources::Resources;
use harness_gateway::{Failure, Host, Streams, relay};
use harness_policy::watch::Watched;
use harness_registry::Registry;

use super::{OpenError, Options, guarded};

/// Starts a server of a policy behind its wall, and passes the lines of its client to it and back, until either ends. All of
/// its processes have ended then. Gives its exit code, where it ended by itself with one.
///
/// # Errors
///
/// Where the workspace cannot be opened. What is wrong with the server is its own answer.
pub async fn relay_server(
    root: &Path,
    registry: &Registry,
    mut policy: ProjectPolicy,
    options: &Options,
    name: &str,
    streams: Streams,
) -> Result<Result<Option<i32>, Failure>, OpenError> {
    let folder = options.workspace.as_deref().unwrap_or(root);
    let unopened = |source| OpenError::Workspace { path: folder.to_owned(), source };
    let workspace = Arc::new(Workspace::open(folder).map_err(unopened)?);
    let vault = Arc::new(guarded(root, registry, &mut policy, &workspace, options));
    let Some(server) = policy.mcp.server(name) else {
        return Ok(Err(Failure::Broken(format!("there is no server `{name}`"))));
    };
    let watch = options.watch.clone().filter(|watch| watch.is_of_servers());
    let watched = watch.map(|watch| Watched { watch, source: Served::source(name).into() });
    let grant = policy.grant_for_server(server).watched(watched);
    let host = Host {
        grant: &grant,
        folder: &workspace,
        workspace: workspace.absolute().as_ref(),
        vault: &vault,
        variables: &options.system.variables,
        http: &Client::default(),
        resources: &Resources::default(),
        answerer: None,
    };
    let lock = Registry::read_lock(root).ok().flatten();
    let locked = lock.as_ref().and_then(|lock| lock.server(name)).map(|locked| &locked.pinned);
    let mut ended = relay(server, locked, host, streams).await;
    if let Err(Failure::Broken(why) | Failure::Said(why)) = &mut ended {
        vault.redact(why);
    }
    Ok(ended)
}
