//! The servers of `mcp.servers` in `harness lock`: each is started, behind its wall, and what it says is what is locked.

use std::path::Path;

use harness_artifact::pinned::{Pinned, describe};
use harness_artifact::{escape, third_party};
use harness_capability::system::System;
use harness_dispatch::{self as dispatch, Fetch, Options, Reading};
use harness_registry::Registry;
use harness_registry::lock::{self, Lock, LockedServer};
use serde_json::{Value as Json, json};

use crate::args::ProjectArgs;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::project;

/// What differs of a server.
pub(super) struct Drift {
    server: String,
    what: &'static str,
    told: String,
    difference: Option<String>,
}

/// What the servers are.
#[derive(Default)]
pub(super) struct Read {
    /// Those that could be read.
    pub(super) locked: Vec<LockedServer>,
    /// The names of the others.
    pub(super) failed: Vec<String>,
}

/// Starts the servers of a policy and reads what they are. Those that cannot be read are reported.
///
/// # Errors
///
/// Where none can be started, which was reported.
pub(super) fn read(
    root: &Path,
    registry: &Registry,
    fetch: Fetch,
    place: &ProjectArgs,
    printer: Printer,
) -> Result<Read, Exit> {
    let servers = registry.policy().map(|policy| policy.mcp.servers.len()).unwrap_or_default();
    if servers == 0 {
        return Ok(Read::default());
    }
    let options = Options {
        machine: project::machine(place),
        system: System::default().with_environment(),
        ..Options::default()
    };
    let progress = Progress::start("starting servers".to_owned());
    let read = project::block_on(dispatch::read_servers(root, registry, &options, None, fetch), printer)?;
    drop(progress);
    let read = read.map_err(|error| project::unopened(&error, printer))?;
    let mut all = Read::default();
    for (name, read) in read {
        match read {
            Ok(Reading { pinned, left_out }) => {
                report_left_out(&name, &left_out, printer);
                all.locked.push(LockedServer::new(pinned));
            }
            Err(failure) => {
                let why = escape::line(&failure.to_string()).into_owned();
                printer.error(&format!("the server `{name}` cannot be locked: {why}"), &[], None);
                all.failed.push(name);
            }
        }
    }
    Ok(all)
}

/// Reports tools of a server that clients have to leave out.
pub(crate) fn report_left_out(server: &str, left_out: &[String], printer: Printer) {
    for why in left_out {
        printer.say(&escape::line(&format!("the server `{server}`: left out: {why}")));
    }
}

/// What of the servers is not as it was locked, by name.
pub(super) fn drifts(kept: Option<&Lock>, now: &Lock) -> Vec<Drift> {
    let Some(kept) = kept else { return Vec::new() };
    let mut drifts = Vec::new();
    for new in now.servers().map(|server| &server.pinned) {
        match kept.server(&new.server) {
            None => drifts.push(Drift {
                server: new.server.clone(),
                what: "added",
                told: format!("the server {:?} is not in `{}`", new.server, lock::FILE),
                difference: Some(offered(new)),
            }),
            Some(old) => {
                let changes = old.pinned.changes(new);
                if !changes.is_empty() {
                    let (told, difference) = describe(&new.server, &changes);
                    drifts.push(Drift { server: new.server.clone(), what: "changed", told, difference });
                }
            }
        }
    }
    for old in kept.servers().filter(|old| now.server(&old.pinned.server).is_none()) {
        let server = old.pinned.server.clone();
        let told = format!("the server {server:?} is in `{}` but was removed", lock::FILE);
        drifts.push(Drift { server, what: "removed", told, difference: None });
    }
    drifts
}

/// What a server offers that nobody has reviewed.
fn offered(server: &Pinned) -> String {
    let instructions = server.instructions.iter().map(|text| format!("+ instructions: {}", third_party::line(text)));
    let tools = server.tools.iter().map(|tool| {
        let description = tool.json().get("description").and_then(Json::as_str).unwrap_or_default();
        format!("+ {}: {}", tool.name(), third_party::line(description))
    });
    instructions.chain(tools).collect::<Vec<_>>().join("\n")
}

/// One change for a person.
pub(super) fn report(drift: &Drift, printer: Printer) {
    printer.say(&escape::line(&drift.told));
    super::print_difference(drift.difference.as_deref(), printer);
}

pub(super) fn as_json(drift: &Drift) -> Json {
    json!({
        "kind": "server", "name": drift.server, "path": lock::FILE, "what": drift.what,
        "told": drift.told, "difference": drift.difference,
    })
}
