//! `harness names`: the names that completion offers, one a line.

use clap::{Args, ValueEnum};
use harness_session::{FOLDER, read};

use super::args::ProjectArgs;
use super::exit::Exit;
use super::printer::Printer;
use super::project;

#[derive(Debug, Args)]
pub(crate) struct Names {
    /// Kind of name.
    pub(crate) of: Of,
}

/// What has names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Of {
    /// What `call` takes.
    Tools,
    /// What `test` takes.
    Tested,
    /// What `inspect` and `policy show` take.
    All,
    /// What `--resume` and `sessions` take.
    Sessions,
}

/// Prints names as far as there are any: completion shows no errors.
pub(crate) fn run(command: &Names, place: &ProjectArgs, printer: &Printer) -> Exit {
    let names = match command.of {
        Of::Sessions => read::names(&project::root(place).join(FOLDER)).unwrap_or_default(),
        of => of_artifacts(of, place),
    };
    let text: String = names.iter().filter(|name| is_plain(name)).map(|name| format!("{name}\n")).collect();
    if !text.is_empty() {
        printer.data(&text);
    }
    Exit::Completed
}

fn of_artifacts(of: Of, place: &ProjectArgs) -> Vec<String> {
    let registry = project::registry(place);
    let mut names: Vec<String> = registry.tools().iter().map(|tool| tool.name.clone()).collect();
    if of != Of::Tools {
        names.extend(registry.hooks().iter().map(|hook| hook.name.clone()));
    }
    if of == Of::All {
        names.extend(registry.agents().iter().map(|agent| agent.name.clone()));
        names.extend(registry.skills().iter().map(|skill| skill.name.clone()));
    }
    names
}

/// Whether a shell reads a name as it is: shells expand the words that completion gives them, and a project may be a
/// third party's.
fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'))
        && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}
