//! `harness mcp serve`.

use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use clap::Args;
use harness_dispatch::confirm::{Answer, Confirmer, Question};
use harness_dispatch::{FileWatch, OpenError, Options, Project, WatchError};
use harness_mcp::http::{self, Access, Authority, Clients, Identity, Limits, Listener, MIN_TOKEN, Threads, Token};
use harness_mcp::{Server, Settings, stdio};
use harness_sys as sys;

use crate::args::{Confine, Confirm, ProjectArgs};
use crate::exit::Exit;
use crate::printer::Printer;
use crate::signals::Signals;
use crate::{project, run};

/// Threads that answer requests, at most.
const MAX_THREADS: usize = 8;
/// Bytes of a private key.
const MAX_KEY: usize = 64 << 10;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  claude mcp add project -- harness -C /path/to/project mcp serve\n  \
                        HARNESS_TOKEN=... harness mcp serve --http 127.0.0.1:8787 --token-env HARNESS_TOKEN")]
pub(crate) struct Serve {
    /// Serve over HTTP at this address, such as `127.0.0.1:8787`, until SIGINT or SIGTERM. Port 0 is any free one; the
    /// URL is printed. An address that is not of the loopback interface needs `--tls-cert` and `--tls-key`.
    #[arg(long, value_name = "ADDR", conflicts_with = "unix")]
    pub(crate) http: Option<SocketAddr>,

    /// Serve over HTTP at this socket in the file system, which only programs of the same user can open. It is removed at
    /// the end.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["token_env", "no_token"])]
    pub(crate) unix: Option<PathBuf>,

    /// Require `Authorization: Bearer TOKEN` of each request, with the token that is in this environment variable.
    #[arg(long, value_name = "VAR", requires = "http", conflicts_with = "no_token")]
    pub(crate) token_env: Option<String>,

    /// Let every program that can connect call the tools.
    #[arg(long, requires = "http")]
    pub(crate) no_token: bool,

    /// Certificate of the server with its chain, as PEM.
    #[arg(long, value_name = "FILE", requires_all = ["http", "tls_key"])]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of the certificate, as PEM.
    #[arg(long, value_name = "FILE", requires_all = ["http", "tls_cert"])]
    pub(crate) tls_key: Option<PathBuf>,

    /// Accept requests whose `Host` has this name, with this port or any; may be repeated. The address itself is always
    /// accepted, and `localhost` on the loopback interface.
    #[arg(long, value_name = "NAME[:PORT]", requires = "http")]
    pub(crate) host: Vec<Authority>,

    /// Folder that tools work in. Default: the folder that holds `.harness`.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) confirm: Confirm,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

pub(crate) fn run(command: &Serve, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let access = access(command, printer)?;
    let options = Options { workspace: command.workspace.clone(), ..Options::default() };
    let project = project::open(place, options, printer)?;
    // Before the process gives up making sockets.
    let listener = listener(command, printer)?;
    let mut plan = project::plan(&project, place, command.workspace.as_deref());
    if let Some(path) = &command.unix {
        // The socket is removed from there at the end.
        plan = plan.with_folder(path.parent().filter(|path| *path != Path::new("")).unwrap_or(Path::new(".")));
    }
    project::confine(&plan, &command.confine, printer)?;
    // Its threads are begun when the process has given up what it does not need.
    let runtime = project::runtime_of(1, printer)?;
    let server = server(project, &command.confirm, place, printer);
    // Until the end: what changes takes force meanwhile.
    let _watch = watch(&server, printer);
    let exit = runtime.block_on(async {
        match listener {
            Some(listener) => over_http(server.clone(), listener, access, command.host.clone(), printer).await,
            None => over_stdio(&server, printer).await,
        }
    });
    Ok(project::audited(&server.project(), exit, printer))
}

/// Threads that answer the requests of connections. The client at the other end of standard input has its answers from
/// one thread: to hand a request to another one takes longer than most calls do. Scripts that compute for long have threads
/// of their own.
fn threads() -> std::io::Result<Threads> {
    Threads::new(std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MAX_THREADS))
}

async fn over_stdio(server: &Server, printer: Printer) -> Exit {
    let mut signals = Signals::new();
    let served = signals.unless(stdio::serve(server.clone(), std::io::stdin(), std::io::stdout())).await;
    signals.at_once();
    server.close();
    match served {
        Ok(Ok(())) => Exit::Completed,
        Ok(Err(error)) => {
            printer.error(&format!("cannot write to the client: {error}"), &[], None);
            Exit::Fault
        }
        Err(heard) => heard.exit(),
    }
}

async fn over_http(
    server: Server,
    listener: Listener,
    access: Access,
    hosts: Vec<Authority>,
    printer: Printer,
) -> Exit {
    let mut signals = Signals::new();
    let place = listener.to_string();
    let end = async move {
        // Clients may connect, and a signal is heard, from here on.
        printer.data(&place);
        let heard = signals.unless(std::future::pending::<()>()).await;
        signals.at_once();
        heard
    };
    let served = async {
        let threads = threads()?;
        http::serve(server, listener, access, hosts, Limits::default(), &threads, end).await
    };
    match served.await {
        Ok(Ok(())) => Exit::Completed,
        Ok(Err(heard)) => heard.exit(),
        Err(error) => {
            printer.error(&format!("cannot serve: {error}"), &[], None);
            Exit::Fault
        }
    }
}

/// What clients have to show.
fn access(command: &Serve, printer: Printer) -> Result<Access, Exit> {
    let Some(variable) = &command.token_env else {
        if command.http.is_some() && !command.no_token {
            let hint = "`--token-env VAR` names the variable that holds a token; `--no-token` lets every program of the \
                        machine call the tools; `--unix PATH` needs no token";
            printer.error("clients over HTTP need a token", &[], Some(hint));
            return Err(Exit::Usage);
        }
        return Ok(Access::Open);
    };
    let Some(text) = sys::variable(variable) else {
        printer.error(&format!("the environment variable `{variable}` is not set to text"), &[], None);
        return Err(Exit::Usage);
    };
    Token::new(&text).map(Access::Token).ok_or_else(|| {
        let why = format!("the token in `{variable}` is too short or has characters that a header cannot hold");
        let hint = format!("a token has {MIN_TOKEN} characters of ASCII at least, and no spaces");
        printer.error(&why, &[], Some(&hint));
        Exit::Usage
    })
}

/// Where clients connect to. None if there is one client, at the other end of standard input.
fn listener(command: &Serve, printer: Printer) -> Result<Option<Listener>, Exit> {
    let refused = |place: &dyn std::fmt::Display, error: &dyn std::fmt::Display, hint: Option<&str>| {
        printer.error(&format!("cannot listen at `{place}`: {error}"), &[], hint);
        Exit::Usage
    };
    if let Some(path) = &command.unix {
        return Listener::unix(path).map(Some).map_err(|error| refused(&path.display(), &error, None));
    }
    let Some(address) = command.http else { return Ok(None) };
    let listener = match (&command.tls_cert, &command.tls_key) {
        (Some(certificate), Some(key)) => {
            let identity = identity(certificate, key, None).map_err(|why| {
                printer.error(&why, &[], None);
                Exit::Usage
            })?;
            Listener::tls(address, identity)
        }
        _ => Listener::loopback(address),
    };
    listener.map(Some).map_err(|error| {
        let hint = "an address that others reach needs TLS: `--tls-cert FILE --tls-key FILE`";
        refused(&address, &error, (error.kind() == std::io::ErrorKind::InvalidInput).then_some(hint))
    })
}

/// The identity in two PEM files, for clients that show certificates or not.
pub(crate) fn identity(certificate: &Path, key: &Path, clients: Option<Clients<'_>>) -> Result<Identity, String> {
    let read = |path: &Path, error: std::io::Error| format!("`{}` cannot be read: {error}", path.display());
    let chain = sys::read_text(certificate).map_err(|error| read(certificate, error))?;
    let secret = sys::read_secret(key, MAX_KEY).map_err(|error| read(key, error))?;
    match clients {
        Some(clients) => Identity::with_clients(&chain, &secret, clients),
        None => Identity::of_pem(&chain, &secret),
    }
}

fn server(project: Project, confirm: &Confirm, place: &ProjectArgs, printer: Printer) -> Server {
    let models = run::models(&project, place);
    let confirmer = Arc::new(InAdvance(confirm.clone()));
    let on_fault = Box::new(move |why: &str| printer.error(&format!("the host failed: {why}"), &[], None));
    Server::new(project, Settings { on_fault, ..Settings::new(models, confirmer) })
}

/// Takes changed files in force, until the value is dropped. What is wrong with a version is printed once: until then, and
/// as long as nobody mends it, the version before stays in force.
fn watch(server: &Server, printer: Printer) -> Option<FileWatch> {
    let mut last = None;
    let watched = server.watch(move |result| {
        let wrong = result.as_ref().err().map(wrong);
        if let Err(error) = &result
            && last != wrong
        {
            printer.error("the changed files are not in force: the version before stays", &[], None);
            match error {
                WatchError::Load(error) => drop(project::unopened(error, printer)),
                other => printer.error(&other.to_string(), &[], None),
            }
        }
        last = wrong;
    });
    watched.map_err(|error| printer.error(&format!("changes of files do not take force: {error}"), &[], None)).ok()
}

/// What is wrong with a version, to be compared.
fn wrong(error: &WatchError) -> String {
    match error {
        WatchError::Load(OpenError::Artifacts(registry)) => {
            registry.diagnostics().iter().map(|one| format!("{:?} {}\n", one.position, one.message)).collect()
        }
        other => other.to_string(),
    }
}

/// Confirms the calls that the command line names. Standard input is the client's, so that nobody can be asked there.
#[derive(Debug)]
struct InAdvance(Confirm);

impl Confirmer for InAdvance {
    fn confirm<'a>(&'a self, question: &'a Question<'a>) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        let is_named = self.0.yes || self.0.confirm.iter().any(|name| name == question.tool);
        Box::pin(std::future::ready(if is_named { Answer::Yes } else { Answer::Nobody }))
    }
}
