//! The interface `exec`: child processes.
//!
//! A command is checked, decided by the grant, looked up outside of the workspace, and run behind a wall of the
//! kernel's. All its processes end with it, when its time is up, when the call ends and when the host does.

mod capture;
mod child;
mod egress;
mod git;
mod notes;
mod search;
mod service;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cap_std::fs::Dir;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;
use tracing::Instrument as _;
use wasmtime::component::{ComponentType, Lift, Lower};

use super::denial::Denial;
use super::env::Variables;
use super::fs;
use super::http::Client;
use super::secrets::{CommandLoan, Handles, Vault};
use super::spans;
use capture::{Capture, Flood};
use child::{Pipes, Running, Start};
use egress::{Egress, Served};
use harness_policy::command::CommandReach;
use harness_policy::grant::Grant;
use harness_policy::refusal::Refusal;
use harness_sys as sys;
use harness_wall::{For, Hit, Listings, Offers, Starting, Tier, Wall};
use search::SearchPath;
pub use service::{Installed, Service, ServiceCommand, ServiceProcess, run_service, service_program, start_service};

/// Time for a child whose command does not say: what people wait for a tool.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(30_000);

const MAX_PROGRAM_BYTES: usize = 4096;
const MAX_ARGS: usize = 1024;
const MAX_ARGS_BYTES: usize = 1 << 20;
const MAX_VARIABLES: usize = 64;
const MAX_VARIABLES_BYTES: usize = 1 << 20;
const MAX_STDIN_BYTES: usize = 10 << 20;

/// How long pipes are read after all processes were ended. They are at their end then, unless one of them cannot be killed.
const DRAIN: Duration = Duration::from_millis(200);

/// The variant `error`.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// No rule of the grant covers the command, its arguments, its folder or a variable.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
    /// Not a command that can be started at all. Carries what is wrong.
    #[component(name = "invalid-command")]
    InvalidCommand(String),
    /// There is no such program on the search path. Carries its name.
    #[component(name = "not-found")]
    NotFound(String),
    /// The system would not start it. Carries its words.
    #[component(name = "start")]
    Start(String),
}

/// The record `command`.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lift, Serialize, Deserialize)]
#[component(record)]
pub struct Command {
    /// A name that is looked up, or an absolute path. At most 4,096 bytes, no control character.
    pub program: String,
    /// At most 1,024, together at most 1 MiB.
    pub args: Vec<String>,
    /// Folder to start in. [`run`] does not look at it: the caller has decided and opened it ([`ExecContext`]).
    pub dir: String,
    /// At most 64, together at most 1 MiB.
    pub env: Vec<(String, String)>,
    /// At most 10 MiB. Without it, standard input is empty.
    pub stdin: Option<String>,
    /// 0 means [`DEFAULT_TIMEOUT`].
    #[component(name = "timeout-ms")]
    pub timeout_ms: u32,
}

/// The record `output`.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(record)]
pub struct Output {
    /// At most 1 MiB of text.
    pub stdout: String,
    /// The same.
    pub stderr: String,
    /// -1 where a signal ended it, a timeout's included.
    #[component(name = "exit-code")]
    pub exit_code: i32,
    /// Milliseconds from start to end.
    #[component(name = "duration-ms")]
    pub duration_ms: u64,
    /// Whether its time was up.
    #[component(name = "timed-out")]
    pub timed_out: bool,
    /// Whether more was printed than is given.
    pub truncated: bool,
}

impl Command {
    /// The time that it asks for.
    pub fn time(&self) -> Duration {
        match self.timeout_ms {
            0 => DEFAULT_TIMEOUT,
            millis => Duration::from_millis(u64::from(millis)),
        }
    }
}

/// Where a command runs.
#[derive(Debug, Clone, Copy)]
pub struct ExecContext<'a> {
    /// The folder to start in, opened by who decided on it.
    pub dir: &'a Dir,
    /// The workspace, absolute: no program is looked up in it.
    pub workspace: &'a Path,
    /// What is known of its folders from earlier commands.
    pub listings: &'a Arc<Listings>,
    /// What stands for secrets in the call that runs it.
    pub handles: &'a Handles,
    /// Where the variables are that the grant may name.
    pub variables: &'a Variables,
    /// Whose names and share of lookups count for the hosts that a command connects to.
    pub http: &'a Client,
}

/// Who runs commands.
#[derive(Debug, Clone, Default)]
pub enum Runner {
    /// The system.
    #[default]
    System,
    /// Nobody: what the grant allows gives one of these.
    Canned(Vec<Canned>),
}

/// What a command gives, for a test or a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canned {
    /// The program as the script names it.
    pub program: String,
    /// Its arguments; none: whatever they are.
    pub args: Option<Vec<String>>,
    /// What comes back.
    pub output: Output,
}

impl Runner {
    /// The wall that a command is going to run behind, where it is one that runs.
    pub fn tier(&self, grant: &Grant, command: &Command) -> Option<Tier> {
        let runs = matches!(self, Self::System) && grant.decide_command(&command.program, &command.args).is_ok();
        if runs { tier(grant).ok() } else { None }
    }

    /// See [`run`].
    pub async fn run(
        &self,
        grant: &Grant,
        place: ExecContext<'_>,
        deadline_left: Duration,
        command: Command,
    ) -> Result<Output, Error> {
        let (span, program) = (spans::command(), command.program.clone());
        let ended = self.execute(grant, place, deadline_left, command).instrument(span.clone()).await;
        spans::ended(&span, &program, &ended);
        ended
    }

    async fn execute(
        &self,
        grant: &Grant,
        place: ExecContext<'_>,
        deadline_left: Duration,
        mut command: Command,
    ) -> Result<Output, Error> {
        let Self::Canned(canned) = self else { return run(grant, place, deadline_left, command).await };
        decide(grant, &command)?;
        lend(place.handles, &mut command)?;
        let fits = |one: &&Canned| {
            one.program == command.program && one.args.as_ref().is_none_or(|args| *args == command.args)
        };
        canned.iter().find(fits).map(|one| one.output.clone()).ok_or_else(|| {
            let words = std::iter::once(&command.program).chain(&command.args).map(String::as_str);
            Error::Start(format!("no result is given for `{}`", words.collect::<Vec<_>>().join(" ")))
        })
    }
}

/// Runs a command to its end. Everything but the folder is decided by `grant`; handles of secrets in the values of
/// variables are exchanged for what they stand for. The child's time is what it asks for, and at most `deadline_left`.
///
/// To be called in a tokio runtime with I/O and time. Dropping the future ends all of the command's processes.
pub async fn run(
    grant: &Grant,
    place: ExecContext<'_>,
    deadline_left: Duration,
    mut command: Command,
) -> Result<Output, Error> {
    decide(grant, &command)?;
    decide_counted(grant, place)?;
    lend(place.handles, &mut command)?.fill()?;
    let (path, env) = environment(grant, place, &command.env);
    let program = look_up(&command.program, &path).ok_or_else(|| Error::NotFound(command.program.clone()))?;
    let limit = command.time().min(deadline_left);
    let is_git = git::is_git(&program);
    let mut prepared =
        Prepared { grant, place, program, name: command.program, args: command.args, env, installed: None };
    let started = Instant::now();
    if is_git {
        prepared.env.extend(git::variables(""));
        let given = std::mem::take(&mut prepared.args);
        let names = prepared.settings(&given, started + limit).await.map_err(Error::Start)?;
        prepared.env.extend(git::variables(&names));
        prepared.args = git::arguments(&given);
    }
    let left = limit.saturating_sub(started.elapsed());
    let output = prepared.run(command.stdin, left).await.map_err(Error::Start)?;
    Ok(Output { duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX), ..output })
}

/// A command that is decided on.
struct Prepared<'a> {
    grant: &'a Grant,
    place: ExecContext<'a>,
    program: PathBuf,
    /// As the script named it.
    name: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    /// A folder that it sees beside those that are granted.
    installed: Option<PathBuf>,
}

impl Prepared<'_> {
    /// The names of all settings that git, with these arguments, may go by, each with a NUL after it.
    async fn settings(&mut self, given: &[String], until: Instant) -> Result<String, String> {
        let workspace = self.place.workspace.to_owned();
        let found = tokio::task::spawn_blocking(move || git::repositories(&workspace)).await;
        let found = found.map_err(|error| error.to_string())??;
        let mut listings = vec![git::listing(given)];
        // One that is alone is the one that the command is about.
        if found.len() > 1 {
            listings.extend(found.iter().map(|repository| git::listing_of(repository)).collect::<Result<Vec<_>, _>>()?);
        }
        let mut all = String::new();
        for listing in listings {
            self.args = listing;
            // Where there is no repository there are no names.
            let names = self.run(None, until.saturating_duration_since(Instant::now())).await?;
            if names.timed_out || names.truncated {
                return Err("the repository's configuration cannot be read".to_owned());
            }
            all.push_str(&names.stdout);
        }
        match git::unstoppable(&all) {
            Some(name) => {
                Err(format!("git cannot be kept from what the repository's configuration starts by `{name}`"))
            }
            None => Ok(all),
        }
    }

    /// Runs it once, to its end.
    async fn run(&self, stdin: Option<String>, limit: Duration) -> Result<Output, String> {
        let begun = Instant::now();
        let (running, pipes, served) = self.start(stdin.is_some(), limit).await?;
        let vault = self.place.handles.vault();
        let (mut output, hit) = supervise(running, pipes, stdin.unwrap_or_default(), begun, limit, vault).await;
        let refused = served.as_ref().map(Served::refused).unwrap_or_default();
        notes::add(&mut output, hit, &refused, self.grant);
        Ok(output)
    }

    /// Starts it, on another thread: the whole workspace is walked before, and the kernel builds a file system, and neither
    /// the deadline nor other calls wait for that.
    async fn start(&self, stdin: bool, time: Duration) -> Result<(Running, Pipes, Option<Served>), String> {
        let Self { grant, place, program, name, args, env, installed } = self;
        let dir = place.dir.try_clone().map_err(|_| "the folder cannot be opened".to_owned())?;
        let (grant, workspace, handles) = ((*grant).clone(), place.workspace.to_owned(), place.handles.clone());
        let (variables, dialer) = (place.variables.clone(), place.http.dialer());
        let (program, name, args, mut env) = (program.clone(), name.clone(), args.clone(), env.clone());
        let (installed, listings) = (installed.clone(), place.listings.clone());
        let start = Starting::begin();
        let starting = tokio::task::spawn_blocking(move || {
            // Also where the call is dropped meanwhile: what holds names of the workspace goes when it is started.
            let _start = start;
            let home = variables.value("HOME").map(PathBuf::from);
            let egress = Egress::of(&grant);
            let wanted = For {
                grant: &grant,
                dir: &dir,
                workspace: &workspace,
                listings: &listings,
                secrets: handles.vault().files(),
                home: home.as_deref(),
                program: &program,
                name: &name,
                time,
                network: egress.as_ref().map(Egress::network),
                installed: installed.as_deref(),
            };
            grant.note_planned_wall();
            let wall = Wall::new(&wanted).map_err(|why| format!("it cannot be confined: {why}"));
            grant.note_built_wall();
            let wall = wall?;
            if let Some(folder) = &wall.temporary {
                env.insert("TMPDIR".to_owned(), folder.to_string_lossy().into_owned());
            }
            if egress.is_some() {
                env.extend(Egress::variables());
            }
            // The texts of these errors hold a number and its meaning, and no path.
            let start = Start { program: &program, name: &name, args: &args, env: &env, dir: &dir, stdin, wall };
            let (mut running, pipes) = Running::start(start)?;
            let listeners = running.listeners();
            let served = egress.map(|egress| egress.serve(listeners, dialer)).transpose();
            Ok((running, pipes, served.map_err(|error| error.to_string())?))
        });
        starting.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

/// Whether the grant covers a command that can be started at all.
fn decide(grant: &Grant, command: &Command) -> Result<(), Error> {
    check(command)?;
    grant.decide_command(&command.program, &command.args)?;
    for (name, _) in &command.env {
        grant.decide_child_env(name)?;
    }
    Ok(())
}

/// Whether what the command sends is counted, where it has to be. The whole network is not reached through the host.
fn decide_counted(grant: &Grant, place: ExecContext<'_>) -> Result<(), Refusal> {
    if grant.exec_network() != CommandReach::All || !place.http.is_bounded() {
        return Ok(());
    }
    let what = "`exec.network: true` gives a command the whole network, where the bytes that it sends are not counted, and there \
                is a budget of egress";
    Err(Refusal::new(what, "list the hosts that it needs in `exec.network`"))
}

/// The secrets that a command is given in its variables.
fn lend<'c>(handles: &'c Handles, command: &'c mut Command) -> Result<CommandLoan<'c>, Refusal> {
    let Command { program, args, dir, env, stdin, .. } = command;
    handles.lend_to_command(program, args, dir, stdin.as_deref(), env)
}

/// Everything that can be said of a command without knowing the grant.
fn check(command: &Command) -> Result<(), Error> {
    let bytes = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
    let wrong = if command.program.is_empty() {
        "the program has no name"
    } else if command.program.len() > MAX_PROGRAM_BYTES {
        "the program's name is over 4,096 bytes"
    } else if command.program.chars().any(char::is_control) {
        "there is a control character in the program's name"
    } else if command.program.contains('/') && !command.program.starts_with('/') {
        "the program is neither a name nor an absolute path"
    } else if command.args.len() > MAX_ARGS {
        "there are over 1,024 arguments"
    } else if bytes(&command.args) > MAX_ARGS_BYTES {
        "the arguments are over 1 MiB"
    } else if command.args.iter().any(|arg| arg.contains('\0')) {
        "there is a NUL in an argument"
    } else if command.env.len() > MAX_VARIABLES {
        "there are over 64 variables"
    } else if command.env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_VARIABLES_BYTES {
        "the variables are over 1 MiB"
    } else if command.env.iter().any(|(_, value)| value.contains('\0')) {
        "there is a NUL in a variable's value"
    } else if command.stdin.as_ref().is_some_and(|text| text.len() > MAX_STDIN_BYTES) {
        "the standard input is over 10 MiB"
    } else {
        return Ok(());
    };
    Err(Error::InvalidCommand(wrong.to_owned()))
}

/// The search path, and the variables of the child: those of the host that the grant names and that hold no secret, a
/// `PATH`, and those that the script gives.
fn environment(
    grant: &Grant,
    place: ExecContext<'_>,
    given: &[(String, String)],
) -> (SearchPath, BTreeMap<String, String>) {
    let vault = place.handles.vault();
    let granted = grant.exec_env().into_iter().filter(|name| !vault.holds_variable(name));
    let mut env: BTreeMap<String, String> =
        granted.filter_map(|name| place.variables.value(&name).map(|value| (name, value))).collect();
    let path = SearchPath::new(env.get("PATH").map(String::as_str), place.workspace);
    env.insert("PATH".to_owned(), path.value());
    env.extend(given.iter().cloned());
    (path, env)
}

fn look_up(program: &str, path: &SearchPath) -> Option<PathBuf> {
    if program.contains('/') {
        // A rule named exactly this path.
        Some(PathBuf::from(program)).filter(|path| sys::is_executable(path))
    } else {
        path.find(program)
    }
}

/// The wall around the commands of a grant.
///
/// # Errors
///
/// All that the kernel lacks for one; no command runs then.
pub fn tier(grant: &Grant) -> Result<Tier, Vec<String>> {
    harness_wall::tier(grant, Offers::get())
}

/// Why a child is no longer waited for.
enum Ending {
    Exited,
    OutOfTime,
    Flood,
}

async fn supervise(
    running: Running,
    pipes: Pipes,
    stdin: String,
    started: Instant,
    limit: Duration,
    vault: &Vault,
) -> (Output, Hit) {
    let (mut stdout, mut stderr) = (Capture::with_room_for(vault.longest()), Capture::with_room_for(vault.longest()));
    let (ending, code, hit);
    {
        let talk = talk(pipes, stdin, &mut stdout, &mut stderr);
        tokio::pin!(talk);
        let out_of_time = tokio::time::sleep_until(started + limit);
        tokio::pin!(out_of_time);
        let mut talking = true;
        ending = loop {
            tokio::select! {
                biased;
                () = running.ended() => break Ending::Exited,
                () = &mut out_of_time => break Ending::OutOfTime,
                said = &mut talk, if talking => match said {
                    // It closed its pipes and continues.
                    Ok(()) => talking = false,
                    Err(Flood) => {
                        talking = false;
                        break Ending::Flood;
                    }
                },
            }
        };
        (code, hit) = running.finish().await;
        if talking {
            let _ = tokio::time::timeout(DRAIN, talk).await;
        }
    }
    let (stdout, more_stdout) = stdout.text(vault);
    let (stderr, more_stderr) = stderr.text(vault);
    let output = Output {
        stdout,
        stderr,
        exit_code: match ending {
            Ending::Exited => code.unwrap_or(-1),
            Ending::OutOfTime | Ending::Flood => -1,
        },
        duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        timed_out: matches!(ending, Ending::OutOfTime),
        truncated: more_stdout || more_stderr,
    };
    (output, hit)
}

/// Writes standard input and reads both outputs at the same time, so that neither side waits for the other for ever.
async fn talk(pipes: Pipes, stdin: String, stdout: &mut Capture, stderr: &mut Capture) -> Result<(), Flood> {
    let feed = async {
        if let Some(mut pipe) = pipes.stdin {
            // A child need not read what it is given.
            let _ = pipe.write_all(stdin.as_bytes()).await;
        }
        Ok(())
    };
    tokio::try_join!(feed, stdout.fill(pipes.stdout), stderr.fill(pipes.stderr)).map(|_| ())
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::AccessDenied(refusal.into())
    }
}

/// Why the folder that a command asked for could not be opened.
impl From<fs::Error> for Error {
    fn from(error: fs::Error) -> Self {
        match error {
            fs::Error::AccessDenied(denial) => Self::AccessDenied(denial),
            fs::Error::NotFound(path) => Self::InvalidCommand(format!("there is not a folder `{path}`")),
            fs::Error::NotADirectory(path) => Self::InvalidCommand(format!("`{path}` is not a folder")),
            fs::Error::Invalid(why) => Self::InvalidCommand(format!("the folder is not a path: {why}")),
            fs::Error::Io(why) => Self::Start(format!("the folder cannot be opened: {why}")),
            fs::Error::AlreadyExists(_)
            | fs::Error::NotAFile(_)
            | fs::Error::NotEmpty(_)
            | fs::Error::TooLarge(_)
            | fs::Error::NotText(_) => Self::InvalidCommand("the folder cannot be opened".to_owned()),
        }
    }
}

#[cfg(test)]
mod egress_tests;
#[cfg(test)]
mod hold_tests;
#[cfg(test)]
mod share_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wall_tests;
