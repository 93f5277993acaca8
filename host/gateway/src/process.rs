//! A server's process, behind its wall.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cap_std::fs::Dir;

use crate::connection::Connection;
use crate::elicit::Answerer;
use crate::era::{self, Opened};
use crate::failure::Failure;
use crate::limits::{PLACE, START};
use crate::listing;
use harness_artifact::pinned::{Change, Pinned};
use harness_artifact::policy::mcp::{McpServer, Piece};
use harness_capability::env::Variables;
use harness_capability::exec::{self, ExecContext, Service, ServiceCommand};
use harness_capability::http::Client;
use harness_capability::resources::Resources;
use harness_capability::secrets::{Handles, Vault};
use harness_policy::grant::Grant;

/// Where servers run, and with what.
#[derive(Debug, Clone, Copy)]
pub struct Host<'a> {
    /// What their processes may do.
    pub grant: &'a Grant,
    /// The workspace, which they start in.
    pub dir: &'a Dir,
    /// The same, absolute.
    pub workspace: &'a Path,
    /// The secrets of the project.
    pub vault: &'a Arc<Vault>,
    /// The variables of the machine, as the project sees them.
    pub variables: &'a Variables,
    /// Whose names and share of lookups count for the hosts that they connect to.
    pub http: &'a Client,
    /// What the project's commands may use together; each process counts among them.
    pub resources: &'a Resources,
    /// Who answers what a server asks during a call; none where nobody can.
    pub answerer: Option<&'a dyn Answerer>,
}

/// Reads what a server is: what is locked of it.
///
/// # Errors
///
/// Why it cannot be started, or what is wrong with what it says.
pub async fn read(server: &McpServer, host: Host<'_>) -> Result<Pinned, Failure> {
    let program = digest(server, &host).await?;
    let reading = async {
        let opened = era::probe(async || start(server, &host, START).await).await?;
        let about = opened.about.clone();
        let tools = listing::list(&opened.connection, &about.version, server).await?;
        opened.connection.close().await;
        let (version, instructions) = (about.version, about.instructions);
        Ok(Pinned { server: server.name.clone(), command: server.command(), program, version, instructions, tools })
    };
    let late = || Failure::Broken(format!("it did not list its tools within {} seconds", START.as_secs()));
    tokio::time::timeout(START, reading).await.unwrap_or_else(|_| Err(late()))
}

/// Starts a server that was locked. Nothing of what it is now is looked at but the file of its program.
///
/// # Errors
///
/// Why it cannot be started.
pub(crate) async fn open(
    server: &McpServer,
    locked: &Pinned,
    host: &Host<'_>,
    time: Duration,
) -> Result<Opened, Failure> {
    if digest(server, host).await? != locked.program {
        let changed = Change { what: "the file of its program changed".to_owned(), lines: Vec::new() };
        return Err(Failure::drift(&server.name, &[changed]));
    }
    era::begin(start(server, host, time).await?, &locked.version).await
}

/// The digest of a server's program.
async fn digest(server: &McpServer, host: &Host<'_>) -> Result<String, Failure> {
    let env = environment(server, host)?;
    let program = exec::service_program(&server.program, env.get("PATH").map(String::as_str), host.workspace)
        .ok_or_else(|| Failure::Broken(format!("there is no program `{}`", server.program)))?;
    let read = tokio::task::spawn_blocking(move || harness_sys::digest::digest_of_file(&program)).await;
    let unreadable = |why: &dyn std::fmt::Display| Failure::Broken(format!("its program cannot be read: {why}"));
    match read {
        Ok(Ok(digest)) => Ok(digest),
        Ok(Err(error)) => Err(unreadable(&error)),
        Err(error) => Err(unreadable(&error)),
    }
}

async fn start(server: &McpServer, host: &Host<'_>, time: Duration) -> Result<Connection, Failure> {
    Ok(Connection::new(service(server, host, time).await?, host.answerer.is_some()))
}

/// Starts the process of a server behind its wall.
///
/// # Errors
///
/// Why it cannot be started.
pub(crate) async fn service(server: &McpServer, host: &Host<'_>, time: Duration) -> Result<Service, Failure> {
    let env = environment(server, host)?;
    let handles = Handles::new(host.vault.clone());
    let Host { grant, dir, workspace, variables, http, resources, .. } = *host;
    let place = ExecContext { dir, workspace, handles: &handles, variables, http };
    let command = ServiceCommand { program: server.program.clone(), args: server.args.clone(), env };
    exec::start_service(grant, place, command, (resources, PLACE), time).await.map_err(|error| match error {
        exec::Error::AccessDenied(denial) => Failure::Refused { refusal: denial.into(), difference: None },
        exec::Error::InvalidCommand(why) | exec::Error::Start(why) => {
            Failure::Broken(format!("it cannot be started: {why}"))
        }
        exec::Error::NotFound(name) => Failure::Broken(format!("there is no program `{name}`")),
    })
}

/// All its variables, with what the policy names in them.
fn environment(server: &McpServer, host: &Host<'_>) -> Result<BTreeMap<String, String>, Failure> {
    let mut env = BTreeMap::new();
    for (name, value) in &server.env {
        let mut text = String::new();
        for piece in value.pieces() {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Secret(secret) => text.push_str(host.vault.open_for_server(secret)?),
                Piece::Variable(variable) => {
                    host.vault.decide_variable(variable)?;
                    let unset = || Failure::Broken(format!("the variable `{variable}` is not set"));
                    text.push_str(&host.variables.value(variable).ok_or_else(unset)?);
                }
            }
        }
        env.insert(name.clone(), text);
    }
    // The folder to start in need not be it.
    env.entry("HARNESS_WORKSPACE".to_owned()).or_insert_with(|| host.workspace.to_string_lossy().into_owned());
    Ok(env)
}
