//! Starts a server: its process, behind its wall, or what is asked at its URL.

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
use crate::link::Link;
use crate::listing;
use crate::oauth::Login;
use crate::oauth::asker::Asker;
use crate::oauth::store::Store;
use crate::packages::{self, Fetch, Kept, Program};
use crate::remote::{Reach, Remote};
use harness_artifact::pinned::{Pinned, PinnedEndpoint};
use harness_artifact::policy::mcp::{Endpoint, McpServer, Piece, ServerCommand, VariableText};
use harness_capability::env::Variables;
use harness_capability::exec::{self, ExecContext, Service, ServiceCommand};
use harness_capability::fs::Workspace;
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
    pub folder: &'a Arc<Workspace>,
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

/// What a server is now.
#[derive(Debug)]
pub struct Reading {
    /// What is locked of it.
    pub pinned: Pinned,
    /// Tools that clients have to leave out, each with the reason.
    pub left_out: Vec<String>,
}

/// Reads what a server is. `locked` is what it was; packages of a server whose command is still that one are those of the
/// lock, unless they are fetched anew.
///
/// # Errors
///
/// Why it cannot be started, or what is wrong with what it says.
pub async fn read(
    server: &McpServer,
    locked: Option<&Pinned>,
    fetch: Fetch,
    host: Host<'_>,
) -> Result<Reading, Failure> {
    let program = Found::new(packages::look(server, locked, fetch, &host).await?)?;
    let endpoint = endpoint(server, &program, &host).await?;
    let reading = async {
        let opened = era::probe(async || start(server, &program, &host, START).await).await?;
        let about = opened.about.clone();
        let listed = listing::list(&opened.link, &about.version, server).await?;
        opened.link.close().await;
        let (version, instructions) = (about.version, about.instructions);
        let pinned = Pinned { server: server.name.clone(), endpoint, version, instructions, tools: listed.tools };
        Ok(Reading { pinned, left_out: listed.left_out })
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
    let program = Found::new(packages::locked(server, locked, host).await?)?;
    let changes = locked.endpoint.changes(&endpoint(server, &program, host).await?);
    if !changes.is_empty() {
        return Err(Failure::drift(&server.name, &changes));
    }
    era::begin(start(server, &program, host, time).await?, &locked.version).await
}

/// The packages of a server, and what is started of them; nothing where its command is started itself.
#[derive(Debug)]
pub(crate) struct Found {
    kept: Option<(Kept, Program)>,
}

impl Found {
    /// # Errors
    ///
    /// The packages have no such program.
    pub(crate) fn new(kept: Option<Kept>) -> Result<Self, Failure> {
        let found = kept.map(|kept| kept.program().map(|program| (kept, program))).transpose()?;
        Ok(Self { kept: found })
    }

    fn program(&self) -> Option<&Program> {
        self.kept.as_ref().map(|(_, program)| program)
    }
}

/// Where a server is now.
async fn endpoint(server: &McpServer, found: &Found, host: &Host<'_>) -> Result<PinnedEndpoint, Failure> {
    match &server.endpoint {
        Endpoint::Command(command) => {
            let program = digest(command, found.program(), host).await?;
            let packages = found.kept.as_ref().map(|(kept, _)| kept.pinned.clone());
            Ok(PinnedEndpoint::Command { command: command.words(), program, packages })
        }
        Endpoint::Url(remote) => Ok(PinnedEndpoint::Url(remote.url.to_string())),
    }
}

/// The digest of a server's program.
async fn digest(server: &ServerCommand, program: Option<&Program>, host: &Host<'_>) -> Result<String, Failure> {
    let program = match program {
        Some(program) => program.installed.program.clone(),
        None => {
            let path = search_path(server, host)?;
            exec::service_program(&server.program, path.as_deref(), host.workspace)
                .ok_or_else(|| Failure::Broken(format!("there is no program `{}`", server.program)))?
        }
    };
    let read = tokio::task::spawn_blocking(move || harness_sys::digest::digest_of_file(&program)).await;
    let unreadable = |why: &dyn std::fmt::Display| Failure::Broken(format!("its program cannot be read: {why}"));
    match read {
        Ok(Ok(digest)) => Ok(digest),
        Ok(Err(error)) => Err(unreadable(&error)),
        Err(error) => Err(unreadable(&error)),
    }
}

async fn start(server: &McpServer, found: &Found, host: &Host<'_>, time: Duration) -> Result<Link, Failure> {
    match &server.endpoint {
        Endpoint::Command(command) => {
            let service = service(command, found, host, time).await?;
            Ok(Link::Process(Connection::new(service, host.answerer.is_some())))
        }
        Endpoint::Url(remote) => {
            let mut sealed = Vec::new();
            for (name, value) in &remote.headers {
                sealed.push((name.clone(), filled(value, host)?));
            }
            let (http, grant, vault) = (host.http.clone(), host.grant.clone(), host.vault.clone());
            let (url, login) = (remote.url.clone(), login_of(server, host)?);
            Ok(Link::Remote(Remote::new(Reach {
                url,
                sealed,
                http,
                grant,
                vault,
                login,
                can_ask: host.answerer.is_some(),
            })))
        }
    }
}

/// The login at a server, where the policy allows one.
///
/// # Errors
///
/// Why it cannot be used.
pub(crate) fn login_of(server: &McpServer, host: &Host<'_>) -> Result<Option<Login>, Failure> {
    let Endpoint::Url(remote) = &server.endpoint else { return Ok(None) };
    let Some(settings) = &remote.oauth else { return Ok(None) };
    let secret = match settings.client.as_ref().and_then(|client| client.secret.as_deref()) {
        Some(name) => Some(host.vault.open_for_server(name)?.to_owned()),
        None => None,
    };
    let store = Store::of(&server.name, remote.url.as_str(), host.workspace, host.variables)?;
    let asker = Asker { http: host.http.clone(), grant: host.grant.clone(), vault: host.vault.clone() };
    Ok(Some(Login::new((&server.name, &remote.url), (settings, secret), store, asker)))
}

/// Starts the process of a server behind its wall.
///
/// # Errors
///
/// Why it cannot be started.
pub(crate) async fn service(
    server: &ServerCommand,
    found: &Found,
    host: &Host<'_>,
    time: Duration,
) -> Result<Service, Failure> {
    let mut env = environment(server, host)?;
    if let Some(program) = found.program() {
        program.add_to(&mut env);
    }
    let installed = found.program().map(|program| program.installed.clone());
    let handles = Handles::new(host.vault.clone());
    let Host { grant, folder, workspace, variables, http, resources, .. } = *host;
    let dir = &start_folder(folder, grant).await?;
    let place = ExecContext { dir, workspace, listings: &Arc::default(), handles: &handles, variables, http };
    let command = ServiceCommand { program: server.program.clone(), args: server.args.clone(), env, installed };
    exec::start_service(grant, place, command, (resources, PLACE), time).await.map_err(|error| match error {
        exec::Error::AccessDenied(denial) => Failure::Refused { refusal: denial.into(), difference: None },
        exec::Error::InvalidCommand(why) | exec::Error::Start(why) => {
            Failure::Broken(format!("it cannot be started: {why}"))
        }
        exec::Error::NotFound(name) => Failure::Broken(format!("there is no program `{name}`")),
    })
}

/// A handle of the folder that a process starts in. It is opened on another thread: the disk may not answer.
async fn start_folder(folder: &Arc<Workspace>, grant: &Grant) -> Result<Dir, Failure> {
    let (there, of) = (folder.clone(), grant.clone());
    let unopened = |why: &dyn std::fmt::Debug| Failure::Broken(format!("the folder to start in: {why:?}"));
    match tokio::task::spawn_blocking(move || there.service_dir(&of)).await {
        Ok(Ok(dir)) => Ok(dir),
        Ok(Err(error)) => Err(unopened(&error)),
        Err(error) => Err(unopened(&error)),
    }
}

/// The `PATH` of its variables, where it is there.
pub(crate) fn search_path(server: &ServerCommand, host: &Host<'_>) -> Result<Option<String>, Failure> {
    let given = server.env.iter().find(|(name, _)| name == "PATH");
    given.map(|(_, value)| filled(value, host)).transpose()
}

/// All its variables, with what the policy names in them.
fn environment(server: &ServerCommand, host: &Host<'_>) -> Result<BTreeMap<String, String>, Failure> {
    let mut env = BTreeMap::new();
    for (name, value) in &server.env {
        env.insert(name.clone(), filled(value, host)?);
    }
    // The folder to start in need not be it.
    env.entry("HARNESS_WORKSPACE".to_owned()).or_insert_with(|| host.workspace.to_string_lossy().into_owned());
    Ok(env)
}

/// A text with the secrets and variables that it names.
fn filled(value: &VariableText, host: &Host<'_>) -> Result<String, Failure> {
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
    Ok(text)
}
