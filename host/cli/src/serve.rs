//! `harness serve`: a server for many tenants.

use std::io::IsTerminal as _;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use harness_artifact::policy::machine::MachinePolicy;
use harness_artifact::server::ServerConfig;
use harness_dispatch::confinement::{Granted, needs_below};
use harness_mcp::http::{Clients, Identity, Listener};
use harness_policy::command::CommandNetwork;
use harness_serve::data::DataFolder;
use harness_serve::{Doors, FirstKey, Server, Settings};
use harness_sys::{self as sys, private};
use harness_wall::confine::{CommandNeeds, Plan};

use super::args::{Confine, ProjectArgs};
use super::exit::Exit;
use super::mcp::serve::identity as tls;
use super::printer::Printer;
use super::signals::Signals;
use super::{init, project};

mod doctor;
mod service;

use self::service::Service;

/// Threads that answer requests, at most.
const MAX_THREADS: usize = 16;
/// Tenants of `--demo`.
const DEMO: [&str; 2] = ["acme", "globex"];

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  harness serve --data ./data --demo\n  \
                  harness serve --data /var/lib/harness --config /etc/harness/serve.yaml\n  \
                  harness serve doctor --data /var/lib/harness --config /etc/harness/serve.yaml\n\n\
                  The operator's interface is at `DATA/admin.sock`: `harness admin` speaks with it. See docs/serve.md."
)]
pub(crate) struct Serve {
    #[command(subcommand)]
    pub(crate) command: Option<Other>,

    /// Keep everything in this folder. It is created, closed to other users.
    #[arg(long, value_name = "DIR", required = true)]
    pub(crate) data: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) door: Door,

    /// Show the operator a dashboard at this address, which must be of the loopback interface. Port 0 is any free one; the
    /// URL is printed.
    #[arg(long, value_name = "ADDR")]
    pub(crate) operator_dashboard: Option<SocketAddr>,

    /// Make two tenants with a small project each, and print a key for each of them and a link to the dashboard that signs
    /// in once.
    #[arg(long)]
    pub(crate) demo: bool,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

/// What else is done about a server.
#[derive(Debug, Subcommand)]
pub(crate) enum Other {
    /// Check whether this machine, the data folder and the configuration are ready for a server.
    Doctor(doctor::Doctor),
}

/// Which clients are let in by TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsClients {
    /// Those with a certificate.
    Required,
    /// Those without one too. One that is wrong is refused all the same.
    Optional,
}

/// Where a server lets tenants in, and its configuration.
#[derive(Debug, Args)]
pub(crate) struct Door {
    /// Let tenants connect at this address. Port 0 is any free one; the URL is printed. An address that is not of the
    /// loopback interface needs `--tls-cert` and `--tls-key`, or `--behind-proxy`. A socket that the service manager gives
    /// replaces it.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// Classes of tenants and the size of the server, as YAML.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Certificate of the server with its chain, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of the certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Certificates of authorities, as PEM: clients show a certificate that chains to one of them.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_client_ca: Option<PathBuf>,

    /// Whether clients may connect without a certificate.
    #[arg(long, value_name = "WHICH", requires = "tls_client_ca", default_value = "required")]
    pub(crate) tls_clients: TlsClients,

    /// Serve other addresses than those of the loopback interface without TLS: a proxy in front of the server has it.
    #[arg(long, conflicts_with = "tls_cert")]
    pub(crate) behind_proxy: bool,
}

pub(crate) fn run(command: &Serve, _: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    if let Some(Other::Doctor(doctor)) = &command.command {
        return Ok(doctor::run(doctor, printer));
    }
    let usage = |why: String| {
        printer.error(&why, &[], None);
        Exit::Usage
    };
    let folder = command.data.as_deref().ok_or_else(|| usage("`--data DIR` is missing".to_owned()))?;
    let (config, beside) = config(&command.door, printer)?;
    let data = DataFolder::open(folder).map_err(usage)?;
    // Before the process has other threads, and gives up making sockets.
    let mut service = Service::of_environment().map_err(usage)?;
    let tenants = listener(&command.door, service.socket.take(), printer)?;
    let operator = Listener::unix(&data.admin_socket()).map_err(|error| {
        let hint = "another server may use this folder";
        printer.error(&format!("cannot listen at `{}`: {error}", data.admin_socket().display()), &[], Some(hint));
        Exit::Usage
    })?;
    let operator_dashboard = command.operator_dashboard.map(|address| {
        Listener::loopback(address).map_err(|error| {
            let hint = "forward a port to it, as `ssh -L` does, to see it from elsewhere";
            printer.error(&format!("cannot listen at `{address}`: {error}"), &[], Some(hint));
            Exit::Usage
        })
    });
    let is_secure = command.door.tls_cert.is_some() || command.door.behind_proxy;
    let doors = Doors { tenants, operator, operator_dashboard: operator_dashboard.transpose()?, is_secure };
    let plan = plan(data.path(), &config, &beside).map_err(usage)?;
    project::confine(&plan, &command.confine, printer)?;
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let runtime = project::runtime_of(cores.min(MAX_THREADS), printer)?;
    let settings = Settings { data: data.path().to_owned(), config, beside };
    let exit = runtime.block_on(async {
        let (server, first) = Server::open(settings).await.map_err(|why| {
            printer.error(&why, &[], None);
            Exit::Fault
        })?;
        if let Some(first) = first {
            keep(&first, &data, printer)?;
        }
        if command.demo {
            demo(&server, &url(&doors.tenants, command), printer).await?;
        }
        Ok(serve(&server, doors, command, service, printer).await)
    });
    runtime.shutdown_background();
    exit
}

async fn serve(
    server: &std::sync::Arc<Server>,
    doors: Doors,
    command: &Serve,
    service: Service,
    printer: Printer,
) -> Exit {
    let mut signals = Signals::new();
    let url = url(&doors.tenants, command);
    if let Some(address) = doors.operator_dashboard.as_ref().and_then(Listener::address) {
        printer.say(&format!("the operator's dashboard: http://{address}/dashboard"));
    }
    let end = async move {
        // Clients may connect, and a signal is heard, from here on.
        printer.data(&url);
        service.ready();
        let heard = signals.unless(std::future::pending::<()>()).await;
        service.stopping();
        signals.at_once();
        heard
    };
    match server.serve(doors, end).await {
        Ok(Ok(())) => Exit::Completed,
        Ok(Err(heard)) => heard.exit(),
        Err(error) => {
            printer.error(&format!("cannot serve: {error}"), &[], None);
            Exit::Fault
        }
    }
}

/// Where tenants connect.
fn url(listener: &Listener, command: &Serve) -> String {
    let scheme = if command.door.tls_cert.is_some() { "https" } else { "http" };
    listener.address().map(|address| format!("{scheme}://{address}")).unwrap_or_default()
}

/// The configuration, and the folder that its paths are relative to.
fn config(door: &Door, printer: Printer) -> Result<(ServerConfig, PathBuf), Exit> {
    let Some(file) = &door.config else { return Ok((ServerConfig::default(), PathBuf::new())) };
    let text = sys::read_text(file).map_err(|error| {
        printer.error(&format!("cannot read `{}`: {error}", file.display()), &[], None);
        Exit::Usage
    })?;
    let (config, wrong) = ServerConfig::parse(&file.display().to_string(), &text);
    for one in &wrong {
        printer.problem(one, &one.render(Some(&text), printer.color()));
    }
    let beside = file.parent().map(Path::to_owned).unwrap_or_default();
    Ok((config.ok_or(Exit::Usage)?, beside))
}

fn listener(door: &Door, given: Option<TcpListener>, printer: Printer) -> Result<Listener, Exit> {
    listen(door, given).map_err(|(why, hint)| {
        printer.error(&why, &[], hint);
        Exit::Usage
    })
}

/// What the server is to tenants, and what they have to be.
fn identity(door: &Door, certificate: &Path, key: &Path) -> Result<Identity, String> {
    let Some(file) = &door.tls_client_ca else { return tls(certificate, key, None) };
    let authorities = sys::read_text(file).map_err(|error| format!("`{}` cannot be read: {error}", file.display()))?;
    let are_optional = door.tls_clients == TlsClients::Optional;
    tls(certificate, key, Some(Clients { authorities: &authorities, are_optional }))
        .map_err(|why| format!("`{}`: {why}", file.display()))
}

/// Listens for tenants, at a socket that was given if there is one. The error is what failed, and what to do.
fn listen(door: &Door, given: Option<TcpListener>) -> Result<Listener, (String, Option<&'static str>)> {
    let identity = match (&door.tls_cert, &door.tls_key) {
        (Some(certificate), Some(key)) => Some(identity(door, certificate, key).map_err(|why| (why, None))?),
        _ => None,
    };
    let address = given.as_ref().and_then(|given| given.local_addr().ok()).unwrap_or(door.listen);
    let listener = match (given, identity) {
        (Some(given), identity) => Listener::given(given, identity, door.behind_proxy),
        (None, Some(identity)) => Listener::tls(door.listen, identity),
        (None, None) if door.behind_proxy => Listener::behind_proxy(door.listen),
        (None, None) => Listener::loopback(door.listen),
    };
    listener.map_err(|error| {
        let hint = "an address that others reach needs `--tls-cert FILE --tls-key FILE`, or `--behind-proxy`";
        let is_open = error.kind() == std::io::ErrorKind::InvalidInput;
        (format!("cannot listen at `{address}`: {error}"), is_open.then_some(hint))
    })
}

/// What the process keeps: its data folder, the host policies of classes, and commands where one of them allows any.
fn plan(data: &Path, config: &ServerConfig, beside: &Path) -> Result<Plan, String> {
    let mut commands: Option<CommandNeeds> = None;
    let mut policies = Vec::new();
    for file in config.classes.iter().filter_map(|(_, class)| class.policy.as_ref()) {
        let path = beside.join(&file.value);
        let failed = |why: String| format!("the policy `{}` of a class: {why}", path.display());
        let text = sys::read_text(&path).map_err(|error| failed(error.to_string()))?;
        let (policy, wrong) = MachinePolicy::parse(&path.display().to_string(), &text);
        let policy = policy.ok_or_else(|| {
            let first = wrong.iter().next().map(|one| one.message.clone()).unwrap_or_default();
            failed(first)
        })?;
        let exec = policy.layer.exec.as_ref();
        if exec.is_none_or(|exec| !exec.allow.is_empty()) {
            let needs = commands.get_or_insert_default();
            needs.network |= exec.is_none_or(|exec| exec.network == CommandNetwork::All);
        }
        policies.extend(sys::real_path(&path).ok());
    }
    let mut needs = needs_below(&[data.to_owned()], Granted { commands, hosts: true });
    needs.read.extend(policies.iter().filter_map(|path| path.parent().map(Path::to_owned)));
    Ok(Plan::of(&needs))
}

/// Shows the first key to the person who starts the server, or writes it where only that user reads it.
fn keep(first: &FirstKey, data: &DataFolder, printer: Printer) -> Result<(), Exit> {
    if std::io::stderr().is_terminal() {
        printer.say(&format!("the operator's key, shown once: {}", first.text));
        return Ok(());
    }
    let file = data.admin_key();
    private::write(&file, &first.text).map_err(|error| {
        printer.error(&format!("cannot write `{}`: {error}", file.display()), &[], None);
        Exit::Fault
    })?;
    printer.say(&format!("the operator's key is in `{}`", file.display()));
    Ok(())
}

async fn demo(server: &Server, url: &str, printer: Printer) -> Result<(), Exit> {
    for tenant in DEMO {
        let made =
            server.demo(tenant, &init::FILES.iter().map(|(path, text)| (*path, *text)).collect::<Vec<_>>()).await;
        match made {
            Ok(Some(key)) => printer.say(&format!("tenant {tenant}: {key}")),
            Ok(None) => printer.say(&format!("tenant {tenant}: it is there already")),
            Err(why) => {
                printer.error(&why, &[], None);
                return Err(Exit::Fault);
            }
        }
    }
    let [first, _] = DEMO;
    if let Some(link) = server.sign_in_link(first) {
        printer.say(&format!("dashboard of {first}, signs in once within 10 minutes: {url}{link}"));
    }
    Ok(())
}
