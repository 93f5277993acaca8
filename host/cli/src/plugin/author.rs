//! `harness plugin new` and `pack`.

use std::path::{Path, PathBuf};

use clap::Args;
use harness_artifact::plugin::{FILE, check_name};
use harness_plugin::archive::{self, ENDING};
use harness_plugin::content::Content;
use harness_sys as sys;
use harness_sys::output::{self, Readers};
use harness_sys::tree;

use super::fetched::Fetched;
use crate::args::ProjectArgs;
use crate::exit::Exit;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct New {
    /// Name of the plugin, and of the folder that is written in the current folder.
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Pack {
    /// Folder of the plugin.
    #[arg(default_value = ".")]
    pub(crate) folder: PathBuf,

    /// File to write. Default: `NAME-VERSION.tar` in the current folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

const PLUGIN: &str = include_str!("new_plugin.md");
const TOOL: &str = include_str!("new_tool.md");

pub(super) fn new(command: &New, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let name = &command.name;
    let failed = |why: String| {
        printer.error(&why, &[], None);
        Exit::Usage
    };
    check_name(name).map_err(failed)?;
    let folder = place.project.clone().unwrap_or_else(sys::current_folder).join(name);
    let plugin = PLUGIN.replace("NAME", name);
    let tool = format!("tools/{}_list.md", name.replace('-', "_"));
    let files = [(FILE, plugin.as_bytes()), (tool.as_str(), TOOL.as_bytes())];
    if !sys::is_gone(&folder) {
        return Err(failed(format!("`{name}` is there already")));
    }
    tree::write(&folder, files.into_iter()).map_err(|error| failed(format!("cannot write `{name}`: {error}")))?;
    printer.data(&format!("{name}/{FILE}\n{name}/{tool}"));
    printer.say(&format!("\nnext, in a project:\n  harness plugin show ./{name}\n  harness plugin add ./{name}"));
    Ok(Exit::Completed)
}

pub(super) fn pack(command: &Pack, printer: Printer) -> Result<Exit, Exit> {
    let failed = |why: String| {
        printer.error(&why, &[], None);
        Exit::Usage
    };
    let shown = command.folder.display();
    let content = Content::read(&command.folder).map_err(|why| failed(format!("`{shown}` is no plugin: {why}")))?;
    let fetched = Fetched::of(content, &shown.to_string(), printer)?;
    let packed = archive::pack(&fetched.content).map_err(|why| failed(format!("`{shown}` cannot be packed: {why}")))?;
    let name = format!("{}-{}{ENDING}", fetched.name(), fetched.plugin.version);
    let path = command.output.clone().unwrap_or_else(|| PathBuf::from(&name));
    let here = sys::current_folder();
    let shared: [&Path; 1] = [&here];
    output::write(&path, &packed, Readers::All, &shared)
        .map_err(|error| failed(format!("cannot write `{}`: {error}", path.display())))?;
    printer.data(&format!("{}: {} {}, {}", path.display(), fetched.name(), fetched.plugin.version, fetched.digest));
    Ok(Exit::Completed)
}
