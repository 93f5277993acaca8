//! `harness new`: an artifact to begin with, which is valid and passes its cases.

use clap::{Args, Parser as _, ValueEnum};
use harness_artifact::plugin::check_name;
use harness_policy::text::quoted;
use harness_sys as sys;

use super::args::{Arguments, Command, ProjectArgs};
use super::exit::Exit;
use super::init;
use super::printer::Printer;
use super::project;

#[derive(Debug, Args)]
pub(crate) struct New {
    /// Kind of artifact.
    pub(crate) kind: Kind,

    /// Its name, which is that of its file.
    pub(crate) name: String,
}

/// What can be begun with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Tool,
    Hook,
    Agent,
    Skill,
    Plugin,
}

impl Kind {
    /// The file of a name below the project, its text, and what to run next.
    fn file(self, name: &str) -> (String, &'static str, String) {
        let (folder, text, next) = match self {
            Self::Tool => ("tools", include_str!("new/tool.md"), format!("test {name}")),
            Self::Hook => ("hooks", include_str!("new/hook.md"), format!("test {name}")),
            Self::Agent => ("agents", include_str!("new/agent.md"), "agents".to_owned()),
            Self::Skill | Self::Plugin => ("skills", include_str!("new/skill.md"), "skills".to_owned()),
        };
        (format!(".harness/{folder}/{name}.md"), text, next)
    }

    /// Whether something of this kind may have a name. Skills and plugins are known elsewhere, by a narrower one.
    fn check(self, name: &str) -> Result<(), String> {
        if matches!(self, Self::Skill | Self::Plugin) {
            return check_name(name);
        }
        let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_known);
        if is_name && name.len() <= 64 {
            return Ok(());
        }
        Err(format!("{} is not a name: it is a letter, then letters, digits, `_` and `-`, 64 in all", quoted(name)))
    }
}

pub(crate) fn run(command: &New, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let New { kind, name } = command;
    let failed = |why: String| {
        printer.error(&why, &[], None);
        Exit::Usage
    };
    kind.check(name).map_err(failed)?;
    if *kind == Kind::Plugin {
        return plugin(name, place, printer);
    }
    let root = project::root(place);
    if sys::is_gone(&root.join(".harness")) {
        printer.error("there is no project here", &[], Some("`harness init` writes one"));
        return Err(Exit::Usage);
    }
    let (file, text, next) = kind.file(name);
    let path = root.join(&file);
    let beside = root.join(file.trim_end_matches(".md"));
    if !sys::is_gone(&path) || !sys::is_gone(&beside) {
        return Err(failed(format!("`{file}` is there already")));
    }
    let text = text.replace("NAME", name);
    init::write(&path, &text).map_err(|error| failed(format!("cannot write `{file}`: {error}")))?;
    printer.data(&file);
    printer.say(&format!("\nnext:\n  harness validate\n  harness {next}"));
    Ok(Exit::Completed)
}

/// The same as `harness plugin new`.
fn plugin(name: &str, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    match Arguments::try_parse_from(["harness", "plugin", "new", "--", name]) {
        Ok(Arguments { command: Command::Plugin(command), .. }) => super::plugin::run(&command, place, printer),
        _ => Err(Exit::Usage),
    }
}
