//! A command that is talked to while it runs: a server of tools. The wall around it is that of every other command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::OwnedSemaphorePermit;

use super::child::{Pipes, Running};
use super::egress::Served;
use super::search::SearchPath;
use super::{Error, ExecContext, Output, Prepared, look_up};
use crate::resources::Resources;
use harness_policy::grant::Grant;

/// A command that serves.
#[derive(Debug, Clone)]
pub struct ServiceCommand {
    /// A name that is looked up, or an absolute path.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// All its variables but those of the host: `TMPDIR`, and `PATH` where it is not there.
    pub env: BTreeMap<String, String>,
    /// What is started for it; none: the program itself.
    pub installed: Option<Installed>,
}

/// What is started for a command that the grant covers: where that would fetch a program and start it, the program that was
/// fetched before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// The program, absolute and without links, in `folder`.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// A folder, absolute and without links, that it may read and run programs from, beside those of the grant.
    pub folder: PathBuf,
}

/// A command that serves, with the host's ends of its streams. Dropping its process ends that with all that came of it.
#[derive(Debug)]
pub struct Service {
    /// Its process.
    pub running: ServiceProcess,
    /// Its standard input.
    pub stdin: Sender,
    /// What it says.
    pub stdout: Receiver,
    /// What it says to its operator.
    pub stderr: Receiver,
}

/// The process of a command that serves, and all that came of it. Dropping it ends them.
#[derive(Debug)]
pub struct ServiceProcess {
    running: Running,
    /// Its network, where it is granted some hosts.
    _served: Option<Served>,
    /// Its place among the commands of the project.
    _place: OwnedSemaphorePermit,
}

impl ServiceProcess {
    /// Waits for the command to end, and for all its processes, which end with it.
    pub async fn ended(&self) {
        self.running.ended().await;
    }

    /// Asks all its processes to end, by SIGTERM. Whether they do shows by [`ended`](Self::ended).
    pub fn terminate(&self) {
        self.running.terminate();
    }

    /// Ends what is left of it and reaps it. Gives its code, where it ended by itself with one.
    pub async fn finish(self) -> Option<i32> {
        self.running.finish().await.0
    }
}

/// Where the program of a command that serves is, with this `PATH`, else the default one.
pub fn service_program(program: &str, path: Option<&str>, workspace: &Path) -> Option<PathBuf> {
    look_up(program, &SearchPath::new(path, workspace))
}

/// Starts a command that serves. `time` is what each of its processes may use of a processor. It counts among the commands
/// of its project for as long as it runs, and waits so long at most for one of them to end.
///
/// To be called in a tokio runtime with I/O and time.
///
/// # Errors
///
/// Where the grant does not cover it, there is no place for it, or it cannot be started.
pub async fn start_service(
    grant: &Grant,
    place: ExecContext<'_>,
    command: ServiceCommand,
    (resources, patience): (&Resources, Duration),
    time: Duration,
) -> Result<Service, Error> {
    grant.decide_command(&command.program, &command.args)?;
    let of_project = resources.command(patience).await.map_err(Error::Start)?;
    let prepared = prepared(grant, place, command)?;
    let (running, pipes, served) = prepared.start(true, time).await.map_err(Error::Start)?;
    let Pipes { stdin, stdout, stderr } = pipes;
    let stdin = stdin.ok_or_else(|| Error::Start("it has no standard input".to_owned()))?;
    Ok(Service { running: ServiceProcess { running, _served: served, _place: of_project }, stdin, stdout, stderr })
}

/// Runs such a command to its end, with nothing on its standard input.
///
/// To be called in a tokio runtime with I/O and time. Dropping the future ends all of its processes.
///
/// # Errors
///
/// Where the grant does not cover it, or it cannot be started.
pub async fn run_service(
    grant: &Grant,
    place: ExecContext<'_>,
    command: ServiceCommand,
    time: Duration,
) -> Result<Output, Error> {
    grant.decide_command(&command.program, &command.args)?;
    prepared(grant, place, command)?.run(None, time).await.map_err(Error::Start)
}

/// A command that was decided on.
fn prepared<'a>(grant: &'a Grant, place: ExecContext<'a>, command: ServiceCommand) -> Result<Prepared<'a>, Error> {
    super::decide_counted(grant, place)?;
    let ServiceCommand { program: name, args, mut env, installed } = command;
    let path = SearchPath::new(env.get("PATH").map(String::as_str), place.workspace);
    env.insert("PATH".to_owned(), path.value());
    let (program, args, installed) = match installed {
        Some(Installed { program, args, folder }) => (program, args, Some(folder)),
        None => (look_up(&name, &path).ok_or_else(|| Error::NotFound(name.clone()))?, args, None),
    };
    Ok(Prepared { grant, place, program, name, args, env, installed })
}
