//! `harness admin`: the operator's side of `harness serve`, at the socket in its data folder.

mod backups;
mod workspaces;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use harness_plugin::archive;
use harness_plugin::content::Content;
use harness_serve::archive::OF_HOST;
use harness_serve::client;
use harness_sys as sys;
use hyper::Method;
use serde_json::{Value as Json, json};

use super::exit::Exit;
use super::printer::Printer;
use super::{input, project};

/// The variable that holds the operator's key, where no file does.
const KEY: &str = "HARNESS_ADMIN_KEY";

/// Where the server is.
#[derive(Debug, Clone, Args)]
pub(crate) struct At {
    /// Data folder of the server. The operator's key is read from `HARNESS_ADMIN_KEY`, or from `DATA/admin.key`.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Admin {
    /// Make, list, show, suspend, resume and remove tenants.
    #[command(subcommand)]
    Tenant(Tenant),
    /// Make, list and remove keys of a tenant.
    #[command(subcommand)]
    Key(Key),
    /// Make, list and remove workspaces of a tenant.
    #[command(subcommand)]
    Workspace(workspaces::Workspace),
    /// Set a secret of a tenant from standard input. Nobody reads it back.
    Secret(Secret),
    /// Upload a folder as the project of a tenant.
    Upload(Upload),
    /// Print the audit log of the server as JSON Lines: changes by the operator, and refused keys.
    Audit(Audit),
    /// Write a copy of everything but keys to the folder `DATA/backups/NAME`, while requests are served.
    Backup(backups::Backup),
    /// Make a data folder of a backup, or verify one.
    Restore(backups::Restore),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tenant {
    /// Make a tenant.
    Add(AddTenant),
    /// List the tenants.
    List(At),
    /// Show a tenant, with what it has used of its budgets.
    Show(OneTenant),
    /// Refuse all keys of a tenant. What it has stays.
    Suspend(OneTenant),
    /// Accept its keys again.
    Resume(OneTenant),
    /// Remove a tenant with its project, files, secrets, keys and record.
    Remove(OneTenant),
}

#[derive(Debug, Args)]
pub(crate) struct AddTenant {
    #[command(flatten)]
    pub(crate) at: At,
    /// Its identifier: lower-case letters, digits and `-`.
    pub(crate) id: String,
    /// Its class. Default: `default`.
    #[arg(long)]
    pub(crate) class: Option<String>,
    /// Folder of its project, which is uploaded.
    #[arg(long, value_name = "DIR")]
    pub(crate) from: Option<PathBuf>,
    /// Rules that narrow each of its calls, written like `capabilities:`.
    #[arg(long, value_name = "RULES", allow_hyphen_values = true)]
    pub(crate) within: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct OneTenant {
    #[command(flatten)]
    pub(crate) at: At,
    /// Its identifier.
    pub(crate) id: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Make a key, and print it. It is not shown again.
    Add(AddKey),
    /// List the keys of a tenant.
    List(OneTenant),
    /// Remove a key: no request with it is accepted from then on.
    Remove(OneKey),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum KeyRole {
    Owner,
    Developer,
    Approver,
    Auditor,
    Caller,
}

#[derive(Debug, Args)]
pub(crate) struct AddKey {
    #[command(flatten)]
    pub(crate) at: At,
    /// Identifier of the tenant.
    pub(crate) id: String,
    /// What the key may do.
    #[arg(long, value_enum)]
    pub(crate) role: KeyRole,
    /// What it is called in records.
    #[arg(long)]
    pub(crate) label: String,
    /// Rules that narrow each call with it, written like `capabilities:`.
    #[arg(long, value_name = "RULES", allow_hyphen_values = true)]
    pub(crate) within: Option<String>,
    /// Number of days after which it is refused. Default: never.
    #[arg(long, value_name = "DAYS")]
    pub(crate) days: Option<u32>,
    /// Workspace that it is narrowed to; may be given again. Default: all of the tenant.
    #[arg(long, value_name = "NAME")]
    pub(crate) workspace: Vec<String>,
    /// SHA-256 fingerprint of the client certificate that it is bound to. It is refused on other connections.
    #[arg(long, value_name = "SHA256")]
    pub(crate) certificate: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct OneKey {
    #[command(flatten)]
    pub(crate) at: At,
    /// Identifier of the tenant.
    pub(crate) id: String,
    /// Identifier of the key: what stands between its underscores.
    pub(crate) key: String,
}

#[derive(Debug, Args)]
pub(crate) struct Secret {
    #[command(flatten)]
    pub(crate) at: At,
    /// Identifier of the tenant.
    pub(crate) id: String,
    /// The name: what the policy of the tenant names with `env:`.
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Upload {
    #[command(flatten)]
    pub(crate) at: At,
    /// Identifier of the tenant.
    pub(crate) id: String,
    /// Folder of the project.
    pub(crate) from: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(flatten)]
    pub(crate) at: At,
    /// Print the entries after the one with this number.
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub(crate) after: u64,
}

pub(crate) fn run(command: &Admin, printer: Printer) -> Result<Exit, Exit> {
    match command {
        Admin::Tenant(command) => tenant(command, printer),
        Admin::Key(command) => key(command, printer),
        Admin::Workspace(command) => workspaces::run(command, printer),
        Admin::Secret(Secret { at, id, name }) => {
            let value = input::text("-").map_err(|why| usage(&why, printer))?;
            let body = json!({"value": value.strip_suffix('\n').unwrap_or(&value)});
            ask(at, Method::PUT, &format!("/admin/v1/tenants/{id}/secrets/{name}"), &body, printer)
        }
        Admin::Upload(Upload { at, id, from }) => upload(at, id, from, printer),
        Admin::Audit(Audit { at, after }) => audit(at, *after, printer),
        Admin::Backup(command) => backups::write(command, printer),
        Admin::Restore(command) => backups::restore(command, printer),
    }
}

fn tenant(command: &Tenant, printer: Printer) -> Result<Exit, Exit> {
    let of = |id: &str| format!("/admin/v1/tenants/{id}");
    let state = |state: &str| json!({"state": state});
    match command {
        Tenant::Add(AddTenant { at, id, class, from, within }) => {
            let body = json!({"id": id, "class": class, "policy": within});
            let made = ask(at, Method::POST, "/admin/v1/tenants", &body, printer)?;
            match from {
                Some(from) if made == Exit::Completed => upload(at, id, from, printer),
                _ => Ok(made),
            }
        }
        Tenant::List(at) => ask(at, Method::GET, "/admin/v1/tenants", &Json::Null, printer),
        Tenant::Show(OneTenant { at, id }) => ask(at, Method::GET, &of(id), &Json::Null, printer),
        Tenant::Suspend(OneTenant { at, id }) => ask(at, Method::PATCH, &of(id), &state("suspended"), printer),
        Tenant::Resume(OneTenant { at, id }) => ask(at, Method::PATCH, &of(id), &state("active"), printer),
        Tenant::Remove(OneTenant { at, id }) => ask(at, Method::DELETE, &of(id), &Json::Null, printer),
    }
}

fn key(command: &Key, printer: Printer) -> Result<Exit, Exit> {
    let of = |id: &str| format!("/admin/v1/tenants/{id}/keys");
    match command {
        Key::Add(AddKey { at, id, role, label, within, days, workspace, certificate }) => {
            let role = role.to_possible_value().map(|role| role.get_name().to_owned());
            let day = 86_400_000;
            let now = u64::try_from(sys::since_epoch().as_millis()).unwrap_or(u64::MAX);
            let expires = days.map(|days| now.saturating_add(u64::from(days).saturating_mul(day)));
            let workspaces = Some(workspace).filter(|names| !names.is_empty());
            let body = json!({
                "role": role, "label": label, "policy": within, "expires": expires, "workspaces": workspaces,
                "certificate": certificate,
            });
            ask(at, Method::POST, &of(id), &body, printer)
        }
        Key::List(OneTenant { at, id }) => ask(at, Method::GET, &of(id), &Json::Null, printer),
        Key::Remove(OneKey { at, id, key }) => {
            ask(at, Method::DELETE, &format!("{}/{key}", of(id)), &Json::Null, printer)
        }
    }
}

fn upload(at: &At, id: &str, from: &Path, printer: Printer) -> Result<Exit, Exit> {
    let content = Content::read_project(from, &OF_HOST).and_then(|content| archive::pack(&content));
    let packed = content.map_err(|why| usage(&format!("`{}`: {why}", from.display()), printer))?;
    send(at, Method::PUT, &format!("/admin/v1/tenants/{id}/project"), packed, printer)
}

fn usage(why: &str, printer: Printer) -> Exit {
    printer.error(why, &[], None);
    Exit::Usage
}

fn ask(at: &At, method: Method, path: &str, body: &Json, printer: Printer) -> Result<Exit, Exit> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    send(at, method, path, body, printer)
}

/// Prints the audit log. The server answers with so many lines at most: it is asked again until there are no more.
fn audit(at: &At, after: u64, printer: Printer) -> Result<Exit, Exit> {
    let mut after = after;
    loop {
        let path = format!("/admin/v1/audit?after={after}");
        let (status, text) = exchange(at, Method::GET, &path, Vec::new(), printer)?;
        if status >= 400 {
            return failed(status, &as_json(text), printer);
        }
        let Some(last) = text.lines().last() else { return Ok(Exit::Completed) };
        let seq = serde_json::from_str::<Json>(last).ok().and_then(|last| last.get("seq")?.as_u64());
        printer.data(text.trim_end());
        match seq {
            Some(seq) if seq > after => after = seq,
            _ => return Ok(Exit::Completed),
        }
    }
}

/// Sends a request, and prints its answer.
fn send(at: &At, method: Method, path: &str, body: Vec<u8>, printer: Printer) -> Result<Exit, Exit> {
    if path.bytes().any(|byte| !byte.is_ascii_graphic() || matches!(byte, b'?' | b'#' | b'%')) {
        return Err(usage("a name has a character that no name here has", printer));
    }
    let (status, text) = exchange(at, method, path, body, printer)?;
    let answer = as_json(text);
    if status >= 400 {
        return failed(status, &answer, printer);
    }
    printer.json(&answer);
    Ok(Exit::Completed)
}

/// Sends a request with the operator's key. The answer is its status and its body.
fn exchange(at: &At, method: Method, path: &str, body: Vec<u8>, printer: Printer) -> Result<(u16, String), Exit> {
    let key = sys::variable(KEY).or_else(|| sys::read_secret(&at.data.join("admin.key"), 4096).ok());
    let Some(key) = key else {
        let hint = format!("set `{KEY}` to the key that the server printed at its first start");
        printer.error("there is no key of the operator", &[], Some(&hint));
        return Err(Exit::Usage);
    };
    let socket = at.data.join("admin.sock");
    let asked = client::text(&socket, key.trim(), method, path, body);
    project::block_on(asked, printer)?.map_err(|why| {
        printer.error(&why, &[], Some("start it with `harness serve --data DIR`"));
        Exit::Fault
    })
}

fn as_json(text: String) -> Json {
    serde_json::from_str(&text).unwrap_or(Json::String(text))
}

/// Prints why a request failed.
fn failed(status: u16, answer: &Json, printer: Printer) -> Result<Exit, Exit> {
    let text = |name: &str| answer.get(name).and_then(Json::as_str).map(str::to_owned);
    let causes: Vec<String> = answer.get("errors").and_then(Json::as_array).into_iter().flatten().map(cause).collect();
    printer.error(
        &text("detail").unwrap_or_else(|| format!("the server answered {status}")),
        &causes,
        text("hint").as_deref(),
    );
    Err(match status {
        400 | 404 | 409 | 422 => Exit::Usage,
        401 | 403 => Exit::Denied,
        429 | 507 => Exit::Limited,
        _ => Exit::Fault,
    })
}

/// One of the errors of a project.
fn cause(error: &Json) -> String {
    let text = |name: &str| error.get(name).and_then(Json::as_str);
    let message = text("message").unwrap_or_default();
    match (text("file"), error.get("line").and_then(Json::as_u64)) {
        (Some(file), Some(line)) => format!("{file}:{line}: {message}"),
        _ => message.to_owned(),
    }
}
