//! `harness admin workspace`: the workspaces of a tenant.

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value as Json, json};

use super::{At, OneTenant, ask};
use crate::exit::Exit;
use crate::printer::Printer;

#[derive(Debug, Subcommand)]
pub(crate) enum Workspace {
    /// Make a workspace.
    Add(OneWorkspace),
    /// List the workspaces of a tenant, with what they hold.
    List(OneTenant),
    /// Remove a workspace with its files, if nothing is under way in it.
    Remove(OneWorkspace),
}

#[derive(Debug, Args)]
pub(crate) struct OneWorkspace {
    #[command(flatten)]
    pub(crate) at: At,
    /// Identifier of the tenant.
    pub(crate) id: String,
    /// Name of the workspace: lower-case letters, digits and `-`.
    pub(crate) name: String,
}

pub(super) fn run(command: &Workspace, printer: Printer) -> Result<Exit, Exit> {
    let of = |id: &str| format!("/admin/v1/tenants/{id}/workspaces");
    match command {
        Workspace::Add(OneWorkspace { at, id, name }) => {
            ask(at, Method::POST, &of(id), &json!({"name": name}), printer)
        }
        Workspace::List(OneTenant { at, id }) => ask(at, Method::GET, &of(id), &Json::Null, printer),
        Workspace::Remove(OneWorkspace { at, id, name }) => {
            ask(at, Method::DELETE, &format!("{}/{name}", of(id)), &Json::Null, printer)
        }
    }
}
