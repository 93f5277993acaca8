//! `harness policy learn -- mcp`: what a call of a server's tool needs, as the entry of the server.

use harness_artifact::definition::fitted;
use harness_artifact::policy::mcp::Endpoint;
use harness_capability::env::Variables;
use harness_dispatch::{Options, confinement};
use harness_sys as sys;
use harness_wall::confine::Plan;

use super::super::args::{Learn, ProjectArgs};
use super::super::edit;
use super::super::exit::Exit;
use super::super::mcp::learned::Learning;
use super::super::printer::Printer;
use super::super::project;
use super::learn::{Repeatable, make_and_report, read};

const USAGE: &str = "harness policy learn -- mcp SERVER TOOL ...";

pub(super) fn run(command: &Learn, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let refuse = |why: &str, hint: &str| {
        printer.error(why, &[], Some(hint));
        Exit::Usage
    };
    let [_, name, tool, rest @ ..] = command.call.as_slice() else {
        return Err(refuse("a call of a server names the server and its tool", USAGE));
    };
    if command.granting.is_some() || command.again || command.once {
        return Err(refuse("`--granting`, `--again` and `--once` are not for calls of servers", USAGE));
    }
    let called = fitted(name, tool);
    let words = ["call", called.as_str()].into_iter().chain(rest.iter().map(String::as_str));
    let asked = read(words, printer)?;
    let root = project::root(place);
    let workspace = asked.workspace.clone().unwrap_or_else(|| root.clone());
    let learning = Learning::start(&workspace, printer)?;
    let options =
        Options { workspace: asked.workspace.clone(), watch: Some(learning.watch.clone()), ..Options::default() };
    let project = project::open_for(place, options, printer, |all| project::files_of(all, &asked.tool))?;
    let loaded = project.loaded();
    let policy = loaded.policy();
    let Some(server) = policy.mcp.server(name) else {
        return Err(refuse(&format!("there is no server `{name}`"), "`harness mcp list` lists them"));
    };
    if let Endpoint::Url(_) = server.endpoint {
        let why = format!("the server `{name}` is at a URL: its process is not here to be observed");
        return Err(refuse(&why, "it has what its headers hold, and reaches nothing by this host but its URL"));
    }
    let call = Repeatable::new(&asked, &project, printer)?;
    let needs = confinement::needs(loaded.registry(), &root, asked.workspace.as_deref(), None, &Variables::Host);
    project::confine(&Plan::of(&needs), &asked.confine, printer)?;
    let file = loaded.registry().policy_file();
    let entry =
        sys::read_text(&root.join(file)).ok().and_then(|text| edit::entry(file, &text, &["mcp", "servers", name]));
    let entry = entry.ok_or_else(|| Learning::unreadable(name, printer))?;
    let grant = policy.grant_for_server(server);
    // What was read to open the project is no use of the server's.
    learning.forget();
    let (exit, _) = make_and_report(&asked, &project, &call, printer)?;
    printer.data(&learning.end(name, &entry, &grant, printer));
    Ok(exit)
}
