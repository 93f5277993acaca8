//! `harness --server URL`: commands that are executed by a server, and print what they print here.

pub(crate) mod approvals;
mod call;
mod problem;
mod sessions;
mod tools;
mod turn;
pub(crate) mod usage;
mod watch;

use harness_serve::remote::{Answer, Ask, Lost, Remote};
use harness_sys as sys;
use serde_json::Value as Json;

use super::args::{Command, Confine, Confirm, Policy, ProjectArgs, ServerArgs};
use super::exit::Exit;
use super::printer::Printer;
use super::project;

/// The variable that holds the key of a tenant.
const KEY: &str = "HARNESS_API_KEY";
/// Bytes of a file that holds a key.
const MAX_KEY: usize = 4096;
/// The commands that a server executes.
const COMMANDS: &str = "`call`, `tools`, `run`, `deploy`, `sessions`, `policy show`, `approvals` and `usage`";

/// Executes a command on the server. An error is that nothing was done, which was reported.
pub(crate) fn run(
    command: &Command,
    url: &str,
    server: &ServerArgs,
    place: &ProjectArgs,
    printer: Printer,
) -> Result<Exit, Exit> {
    let executes = matches!(
        command,
        Command::Call(_)
            | Command::Tools(_)
            | Command::Run(_)
            | Command::Deploy(_)
            | Command::Sessions(_)
            | Command::Policy(Policy::Show(_))
            | Command::Approvals(_)
            | Command::Usage(_)
    );
    if !executes {
        let hint = format!("with `--server` these work: {COMMANDS}");
        printer.error("no server executes this command", &[], Some(&hint));
        return Err(Exit::Usage);
    }
    let remote = open(url, server, printer)?;
    without(
        &[("-C", place.project.is_some()), ("--policy", place.policy.is_some())],
        "the project and its policies are those of the key's tenant",
        printer,
    )?;
    match command {
        Command::Call(command) => call::run(command, &remote, printer),
        Command::Tools(command) => tools::run(command, &remote, printer),
        Command::Run(command) => turn::talk(command, &remote, printer),
        Command::Deploy(command) => turn::deploy(command, &remote, printer),
        Command::Sessions(command) => sessions::run(command, &remote, printer),
        Command::Policy(Policy::Show(command)) => tools::policy(command, &remote, printer),
        Command::Approvals(command) => approvals::run(command, &remote, printer),
        Command::Usage(command) => usage::run(command, &remote, printer),
        _ => Err(Exit::Usage),
    }
}

/// Says that a command needs a server.
pub(crate) fn needed(printer: Printer) -> Exit {
    let hint = format!("name it with `--server URL`, and set `{KEY}` to a key of a tenant");
    printer.error("this command is about a server, and none is named", &[], Some(&hint));
    Exit::Usage
}

fn open(url: &str, server: &ServerArgs, printer: Printer) -> Result<Remote, Exit> {
    let key = match &server.key_file {
        Some(file) => sys::read_secret(file, MAX_KEY)
            .map_err(|error| failed(&format!("cannot read the key in `{}`: {error}", file.display()), None, printer))?,
        None => sys::variable(KEY).ok_or_else(|| {
            let hint = format!("set `{KEY}` to a key of a tenant, or name a file that holds it with `--key-file`");
            failed("there is no key for the server", Some(&hint), printer)
        })?,
    };
    Remote::new(url, &key).map_err(|why| failed(&why, None, printer))
}

fn failed(why: &str, hint: Option<&str>, printer: Printer) -> Exit {
    printer.error(why, &[], hint);
    Exit::Usage
}

/// Says which option means nothing on a server, where one was given.
fn without(options: &[(&str, bool)], hint: &str, printer: Printer) -> Result<(), Exit> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(failed(&format!("`{option}` does not work with `--server`"), Some(hint), printer)),
        None => Ok(()),
    }
}

/// The same for options that calls and turns share.
fn without_shared(
    workspace: Option<&std::path::PathBuf>,
    confirm: &Confirm,
    confine: &Confine,
    printer: Printer,
) -> Result<(), Exit> {
    let here = "the server runs the scripts, in the workspace of the tenant";
    without(
        &[
            ("--workspace", workspace.is_some()),
            ("--self-confine", confine.self_confine),
            ("--no-self-confine", confine.no_self_confine),
        ],
        here,
        printer,
    )?;
    without(
        &[("--confirm", !confirm.confirm.is_empty()), ("--yes", confirm.yes)],
        "nobody approves a call of their own key: another key does, with `harness approvals approve`",
        printer,
    )
}

/// Sends a request, and gives what it was answered with if that is no error.
async fn ask(remote: &Remote, ask: &Ask<'_>, printer: Printer) -> Result<Answer, Exit> {
    match remote.ask(ask).await {
        Ok(answer) if answer.status < 400 => Ok(answer),
        Ok(answer) => Err(problem::report(&answer, remote, printer)),
        Err(Lost(why)) => {
            printer.error(&why, &[], None);
            Err(Exit::Fault)
        }
    }
}

/// The same for an answer that is JSON.
async fn ask_json(remote: &Remote, request: &Ask<'_>, printer: Printer) -> Result<Json, Exit> {
    let answer = ask(remote, request, printer).await?;
    answer.json().ok_or_else(|| {
        printer.error(&format!("the server at `{}` answers with no JSON", remote.url("")), &[], None);
        Exit::Fault
    })
}

/// The text of a member, or none.
fn text<'j>(json: &'j Json, name: &str) -> &'j str {
    json.get(name).and_then(Json::as_str).unwrap_or_default()
}

/// The entries of a member that is a list.
fn list<'j>(json: &'j Json, name: &str) -> &'j [Json] {
    json.get(name).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Runs requests to their end.
fn block_on<T>(work: impl Future<Output = Result<T, Exit>>, printer: Printer) -> Result<T, Exit> {
    project::block_on(work, printer)?
}
