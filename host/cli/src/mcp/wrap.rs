//! `harness mcp wrap`: a server of another program for any client, behind the wall.

use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use harness_artifact::escape;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::policy::mcp::{Endpoint, McpServer};
use harness_capability::system::System;
use harness_dispatch::{Options, ServerFailure as Failure, Streams, relay_server};
use harness_registry::Registry;
use harness_sys as sys;
use serde_json::{Map, Value as Json, json};
use tokio::sync::mpsc;

use super::learned::Learning;
use super::opens::Opens;
use crate::args::ProjectArgs;
use crate::edit;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;
use crate::signals::Signals;

/// The name of a server that only the command line describes.
const NAME: &str = "wrapped";
/// Pieces of a stream that wait for their reader.
const WAITING: usize = 16;
/// Threads that write.
const WRITERS: usize = 2;
/// How long they write after the end.
const FLUSH: Duration = Duration::from_secs(2);
/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 the client has closed or the server ended with 0, 1 it failed, 2 it cannot be \
                        started so, 3 denied.\n\nExamples:\n  harness mcp wrap -- mcp-files\n  \
                        harness mcp wrap --profile read-workspace --network api.example.org -- mcp-tickets\n  \
                        harness mcp wrap --profile write-workspace --learn -- mcp-files")]
pub(crate) struct Wrap {
    /// What the server may do, before the options below add to it. Default: the entry of `mcp.servers` with this command,
    /// or `strict` where an option below is given.
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<Profile>,

    #[command(flatten)]
    pub(crate) opens: Opens,

    /// Folder outside of the workspace that it may read and run programs from; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Vec<PathBuf>,

    /// Print the least entry of `mcp.servers` that allows what the server used, to standard error at the end. Files are
    /// those that anybody used meanwhile and that the server may use.
    #[arg(long)]
    pub(crate) learn: bool,

    /// Folder that the server works in. Default: the folder that holds `.harness`, else the current one.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    /// The command, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// What a server may do that no policy describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// No file of the workspace, no host, no variable.
    Strict,
    /// Read the workspace, but not its secrets; no host, no variable.
    ReadWorkspace,
    /// Read and write the workspace, but not what governs it; no host, no variable.
    WriteWorkspace,
}

pub(super) fn run(command: &Wrap, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    project::named(place, printer)?;
    let (root, machine) = (project::root(place), project::machine(place));
    let registry = if Registry::is_in(&root) {
        Registry::load_unlocked(&root, project::host(&machine))
    } else {
        Registry::outside(&machine)
    };
    let Some(policy) = registry.policy() else {
        project::report(&registry, printer);
        return Err(Exit::Usage);
    };
    let (policy, name) = if command.is_described() {
        (described(command, &registry, &root, printer)?, NAME.to_owned())
    } else {
        let has_command = |server: &&McpServer| match &server.endpoint {
            Endpoint::Command(own) => own.words() == command.command,
            Endpoint::Url(_) => false,
        };
        let named = policy.mcp.servers.iter().find(has_command);
        let Some(McpServer { name, .. }) = named else {
            let line = escape::line(&command.command.join(" ")).into_owned();
            let hint =
                "name what it may do, such as `--profile strict` or `--read docs`, or add it with `harness mcp add`";
            printer.error(&format!("no server of the policy has the command `{line}`"), &[], Some(hint));
            return Err(Exit::Usage);
        };
        (policy.clone(), name.clone())
    };
    let learning = command
        .learn
        .then(|| {
            let entry = command.entry_in(registry.policy_file(), &root, &name);
            let (Some(entry), Some(server)) = (entry, policy.mcp.server(&name)) else {
                return Err(Learning::unreadable(&name, printer));
            };
            let folder = command.workspace.as_deref().unwrap_or(&root);
            Ok((Learning::start(folder, printer)?, entry, policy.grant_for_server(server)))
        })
        .transpose()?;
    let options = Options {
        workspace: command.workspace.clone(),
        machine,
        system: System::default().with_environment(),
        watch: learning.as_ref().map(|(learning, ..)| learning.watch.clone()),
        ..Options::default()
    };
    let (streams, written) = streams(printer)?;
    let relayed = async {
        let mut signals = Signals::new();
        signals.unless(relay_server(&root, &registry, policy, &options, &name, streams)).await
    };
    let ended = project::block_on(relayed, printer)?;
    // What it said last is written before this process ends, to a client that reads.
    if ended.is_ok() {
        for _ in 0..WRITERS {
            let _ = written.recv_timeout(FLUSH);
        }
    }
    if let Some((learning, entry, grant)) = learning {
        // Standard output is the server's.
        learning.end(&name, &entry, &grant, printer).lines().for_each(|line| printer.say(line));
    }
    match ended {
        Err(heard) => Ok(heard.exit()),
        Ok(Err(error)) => Err(project::unopened(&error, printer)),
        Ok(Ok(Ok(None | Some(0)))) => Ok(Exit::Completed),
        Ok(Ok(Ok(Some(code)))) => {
            printer.error(&format!("the server ended with the code {code}"), &[], None);
            Ok(Exit::Failed)
        }
        Ok(Ok(Err(failure))) => Ok(failed(&failure, printer)),
    }
}

fn failed(failure: &Failure, printer: Printer) -> Exit {
    let why = format!("the server: {}", escape::line(&failure.to_string()));
    match failure {
        Failure::Refused { refusal, .. } => {
            printer.error(&why, &[], Some(&refusal.hint));
            Exit::Denied
        }
        Failure::Broken(_) | Failure::Said(_) => {
            printer.error(&why, &[], None);
            Exit::Failed
        }
    }
}

impl Wrap {
    /// Whether the command line says what the server may do.
    fn is_described(&self) -> bool {
        let lists = [&self.opens.read, &self.opens.write, &self.opens.network, &self.opens.env];
        self.profile.is_some()
            || self.opens.floating
            || !self.folder.is_empty()
            || lists.into_iter().any(|list| !list.is_empty())
    }

    /// The entry of its server, as it is written in the policy or on the command line.
    fn entry_in(&self, file: &str, root: &Path, name: &str) -> Option<Map<String, Json>> {
        if self.is_described() {
            return serde_json::from_str::<Json>(&self.entry()).ok()?.as_object().cloned();
        }
        edit::entry(file, &sys::read_text(&root.join(file)).ok()?, &["mcp", "servers", name])
    }

    /// As an entry of `mcp.servers`, on one line of YAML. JSON is YAML too.
    fn entry(&self) -> String {
        let whole = || vec![".".to_owned()];
        let (mut read, mut write) = match self.profile {
            None | Some(Profile::Strict) => (Vec::new(), Vec::new()),
            Some(Profile::ReadWorkspace) => (whole(), Vec::new()),
            Some(Profile::WriteWorkspace) => (whole(), whole()),
        };
        read.extend(self.opens.read.iter().cloned());
        write.extend(self.opens.write.iter().cloned());
        let pairs = self.opens.env.iter().map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let env: serde_json::Map<_, _> = pairs.map(|(name, value)| (name.to_owned(), json!(value))).collect();
        let mut entry = json!({
            "command": self.command,
            "env": env,
            "fs": {"read": read, "write": write},
            "network": {"allowed_domains": self.opens.network},
            "folders": self.folder,
        });
        if let (true, Some(entry)) = (self.opens.floating, entry.as_object_mut()) {
            entry.insert("floating".to_owned(), json!(true));
        }
        entry.to_string()
    }
}

/// The policy with the server that the command line describes.
fn described(command: &Wrap, registry: &Registry, root: &Path, printer: Printer) -> Result<ProjectPolicy, Exit> {
    let named = registry.policy_file();
    let file = if named.is_empty() { ".harness/harness.md" } else { named };
    let failed = |why: String| {
        printer.error(&format!("the options cannot be added to `{file}`: {why}"), &[], None);
        Exit::Usage
    };
    let text = match sys::read_text(&root.join(file)) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(format!("it cannot be read: {error}"))),
    };
    let text = edit::add(file, &text, &["mcp", "servers", NAME], &command.entry()).map_err(failed)?;
    let (policy, wrong) = ProjectPolicy::parse(file, &text);
    let machine = registry.policy().and_then(|policy| policy.machine.clone());
    match (policy, machine) {
        (Some(policy), Some(machine)) => Ok(policy.narrowed_by(*machine)),
        (Some(policy), None) => Ok(policy),
        (None, _) => {
            for diagnostic in &wrong {
                printer.problem(diagnostic, &diagnostic.render(Some(&text), printer.color()));
            }
            Err(failed("they are not a server".to_owned()))
        }
    }
}

/// The streams of this process, each with a thread of its own: what is at their other ends may block them. Each of the two
/// that write says when it has.
fn streams(printer: Printer) -> Result<(Streams, std::sync::mpsc::Receiver<()>), Exit> {
    let (found, input) = mpsc::channel(WAITING);
    let reader = move || {
        let (mut input, mut chunk) = (std::io::stdin(), vec![0; CHUNK]);
        loop {
            let read = match input.read(&mut chunk) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => return,
                Ok(read) => chunk.get(..read).unwrap_or_default().to_vec(),
            };
            if found.blocking_send(read).is_err() {
                return;
            }
        }
    };
    let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop).map_err(|error| {
            printer.error(&format!("cannot start: {error}"), &[], None);
            Exit::Fault
        })
    };
    // They end with their streams, or with this process.
    start("wrap-read", Box::new(reader))?;
    let (output, lines) = mpsc::channel(WAITING);
    let (errors, told) = mpsc::channel(WAITING);
    let (done, written) = std::sync::mpsc::channel();
    let is_done = done.clone();
    start("wrap-write", Box::new(move || write(std::io::stdout(), lines, &done)))?;
    start("wrap-errors", Box::new(move || write(std::io::stderr(), told, &is_done)))?;
    Ok((Streams { input, output, errors }, written))
}

/// Writes until all senders are gone, or nobody reads.
fn write(mut to: impl Write, mut from: mpsc::Receiver<Vec<u8>>, done: &std::sync::mpsc::Sender<()>) {
    while let Some(bytes) = from.blocking_recv() {
        if to.write_all(&bytes).and_then(|()| to.flush()).is_err() {
            break;
        }
    }
    let _ = done.send(());
}
