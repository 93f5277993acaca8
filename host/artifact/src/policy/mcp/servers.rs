//! `mcp.servers`: servers of tools by the Model Context Protocol, and what each of them may do. One is a command behind a
//! wall of its own, or a URL.

use serde_json::json;

use super::super::Network;
use super::super::layer::{self, Builder};
use super::super::tools::NamePattern;
use super::address::{self, ServerUrl};
use super::oauth::OAuth;
use super::runner::{self, Packages};
use super::template::VariableText;
use crate::decode::{Decoder, Field};
use crate::definition::Transport;
use crate::diagnostic::{Diagnostic, Position};
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use crate::shape::{self, Entry, Named, Read, Schema, Shape, chosen_by_word};
use harness_policy::command::{CommandNetwork, CommandRule, ExecRules, FolderRule};
use harness_policy::layer::{Layer, Origin, Scope};
use harness_policy::limits::LimitRules;
use harness_policy::network::NetworkRules;
use harness_policy::path::FsRules;
use harness_policy::text::quoted;

/// Servers of a policy.
const MAX_SERVERS: usize = 64;
/// Characters of a server's name: names of tools begin with it, and have 40.
const MAX_NAME: usize = 20;

/// A server whose tools are tools of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServer {
    /// Its key: names of its tools begin with it.
    pub name: String,
    /// Where it is.
    pub endpoint: Endpoint,
    /// How long one process or session of it serves.
    pub keep: Keep,
    /// Names of its tools that are tools of the project, as it names them. None: all.
    pub tools: Option<Vec<NamePattern>>,
    /// What its processes, or requests to it, may do. It speaks of everything.
    pub layer: Layer,
    /// Where its name is.
    pub position: Position,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A command of this machine, spoken to over standard input and output.
    Command(ServerCommand),
    /// A URL, spoken to over HTTP.
    Url(ServerUrl),
}

/// A server that is a command behind a wall of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCommand {
    /// The program.
    pub program: String,
    /// Its arguments, literally.
    pub args: Vec<String>,
    /// All its variables but `TMPDIR`, and `PATH` where it is not there.
    pub env: Vec<(String, VariableText)>,
}

impl ServerCommand {
    /// The program and its arguments as one list.
    pub fn words(&self) -> Vec<String> {
        std::iter::once(&self.program).chain(&self.args).cloned().collect()
    }

    /// The packages that it fetches of a registry, where it is a package runner and the host does that for it.
    pub fn packages(&self) -> Option<Packages> {
        runner::packages(&self.program, &self.args)
    }
}

/// How long one process or session of a server serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keep {
    /// For all calls of a run.
    #[default]
    Run,
    /// For one call.
    Call,
}

impl Keep {
    const WORDS: [(&'static str, Self); 2] = [("run", Self::Run), ("call", Self::Call)];

    /// The word in a policy.
    pub fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Call => "call",
        }
    }
}

chosen_by_word!(Keep);

keys! {
    /// The keys of one server: `command` or `url`, and what belongs to it.
    ServerKeys: Unknown::Refuse;
    /// The program and each argument, literally. It runs behind the wall that commands run behind.
    given command: Vec<String>;
    /// The URL of a server over HTTP, such as `https://mcp.example.com/mcp`. Requests go to its host and no other.
    given url: String;
    /// Headers of each request to `url`. `{secret:NAME}` and `{env:NAME}` in a value stand for a secret and for a variable
    /// of the host.
    given headers: Named<VariableText>;
    /// Whether the host of `url` may lead to a private address, and be asked with `http`. Default: false.
    given private: bool;
    /// The login at `url` with `harness mcp login`; `{}` is enough for most servers. Default: none.
    given oauth: OAuth;
    /// Variables of the command. `{secret:NAME}` and `{env:NAME}` in a value stand for a secret and for a variable of the
    /// host.
    given env: Named<VariableText>;
    /// Files of the workspace that the command may read and write, which `sandbox.fs` has to grant too. Default: none.
    given fs: FsRules;
    /// Hosts that the command may reach; of a URL with `oauth`, those of authorization servers. Default: none.
    given network: Network;
    /// Folders outside of the workspace that the command may read and run programs from, such as `/opt/node`.
    given folders: Vec<Located<FolderRule>>;
    /// Limits of its calls and processes. The smallest limit of all layers applies.
    given limits: LimitRules;
    /// How long one process or session serves: all calls of a run (`run`), or one (`call`).
    given keep: Keep = Keep::Run;
    /// Patterns of names of its tools, as it names them, that are tools of the project. Default: all.
    given tools: Vec<Located<NamePattern>>;
    /// Whether `npx`, `uvx` and the like may name a package without an exact version. What is fetched of it is locked all the
    /// same. Default: false.
    given floating: bool;
}

/// `mcp.servers`, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Servers(pub(super) Vec<McpServer>);

impl Shape for Servers {
    fn schema() -> Schema {
        shape::schema(json!({
            "type": "object",
            "maxProperties": MAX_SERVERS,
            "propertyNames": {"pattern": format!("^[a-z][a-z0-9_]{{0,{}}}$", MAX_NAME - 1)},
            "additionalProperties": keys::schema::<ServerKeys<'_>>(),
        }))
    }
}

impl Read for Servers {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let entries = decoder.entries(field)?;
        if entries.len() > MAX_SERVERS {
            decoder.error(field, format!("{} has more than {MAX_SERVERS} entries", quoted(&field.path)));
            return None;
        }
        let mut servers = Vec::new();
        for (key, entry) in entries {
            let position = decoder.position(key.span);
            if !is_name(&key.text) {
                let what = format!("{} is not the name of a server", quoted(&key.text));
                let hint = format!("1 to {MAX_NAME} characters of a-z, 0-9 and _, a letter first");
                decoder.diagnostics.push(Diagnostic::error(what).at(position.clone()).hint(hint));
            }
            servers.extend(server(decoder, &key.text, &entry, position));
        }
        Some(Self(servers))
    }
}

/// Whether a server may be called so.
pub fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.len() <= MAX_NAME && text.chars().all(fits)
}

fn server(decoder: &mut Decoder, name: &str, field: &Field<'_>, position: Position) -> Option<McpServer> {
    let keys: ServerKeys<'_> = decoder.keys(field)?;
    let mut builder = Builder::new(Origin::new(&*position.file, Scope::Server(name.to_owned())));
    builder.of_server(decoder, &keys.fs, &keys.network, &keys.limits);
    let folders = builder.folders(decoder, &keys.folders);
    let layer = builder.layer(Some(&position));
    let (endpoint, layer) = match (keys.command.field(), keys.url.field()) {
        (Some(line), None) => command(decoder, &keys, line, (layer, folders))?,
        (None, Some(url)) => remote(decoder, &keys, url, layer)?,
        (Some(_), Some(url)) => {
            decoder.error(url, format!("{} has both `command` and `url`: it is one of them", quoted(&field.path)));
            return None;
        }
        (None, None) => {
            decoder.error(field, format!("{} has neither `command` nor `url`", quoted(&field.path)));
            return None;
        }
    };
    let tools = keys.tools.read(decoder).map(|all| all.into_iter().map(|one| one.value).collect());
    Some(McpServer { name: name.to_owned(), endpoint, keep: keys.keep.read(decoder), tools, layer, position })
}

/// Refuses keys that mean nothing beside `command` or `url`.
fn refuse(decoder: &mut Decoder, of: &str, others: &[Option<&Field<'_>>]) {
    for other in others.iter().copied().flatten() {
        decoder.error(other, format!("{} is for a server with `{of}`", quoted(&other.path)));
    }
}

fn command(
    decoder: &mut Decoder,
    keys: &ServerKeys<'_>,
    line: &Field<'_>,
    (mut layer, folders): (Layer, Vec<FolderRule>),
) -> Option<(Endpoint, Layer)> {
    refuse(decoder, "url", &[keys.headers.field(), keys.private.field(), keys.oauth.field()]);
    let command = Vec::<String>::read(decoder, line)?;
    let wrong = |decoder: &mut Decoder, why: &str| decoder.error(line, format!("{}: {why}", quoted(&line.path)));
    let Some((program, args)) = command.split_first() else {
        wrong(decoder, "it is empty: the program comes first");
        return None;
    };
    let rule = match CommandRule::exactly(program, args) {
        Ok(rule) => rule,
        Err(why) => {
            wrong(decoder, &why);
            return None;
        }
    };
    if let (Some(package), false) = (runner::floating(program, args), keys.floating.read(decoder).unwrap_or(false)) {
        let what = format!("{}: {package}", quoted(&line.path));
        let hint = "name the exact version, or write `floating: true` to run whatever is the newest".to_owned();
        decoder.error_with(line, what, Some(hint));
    }
    let env = keys.env.read(decoder).unwrap_or_default();
    for entry in &env.0 {
        let is_reserved = entry.name == "TMPDIR";
        let why = layer::variable(&entry.name).err();
        let why = why.or_else(|| is_reserved.then(|| format!("{} is set by the host", quoted(&entry.name))));
        if let Some(why) = why {
            decoder.diagnostics.push(Diagnostic::error(why).at(entry.position.clone()));
        }
    }
    // What it reaches is what commands reach: it makes no requests by the host's own client.
    let hosts = layer.network.replace(NetworkRules::default()).map(|rules| rules.allow).unwrap_or_default();
    let network = CommandNetwork::hosts(hosts).unwrap_or_else(|why| {
        if let Some(network) = keys.network.field() {
            decoder.error(network, format!("{}: {why}", quoted(&network.path)));
        }
        CommandNetwork::None
    });
    layer.exec = Some(ExecRules { allow: vec![rule], env: Vec::new(), folders, network, unconfined: false });
    let (program, args) = (program.clone(), args.to_vec());
    Some((Endpoint::Command(ServerCommand { program, args, env: env.pairs() }), layer))
}

fn is_authorization(entry: &&Entry<VariableText>) -> bool {
    entry.name.eq_ignore_ascii_case("authorization")
}

fn remote(
    decoder: &mut Decoder,
    keys: &ServerKeys<'_>,
    field: &Field<'_>,
    mut layer: Layer,
) -> Option<(Endpoint, Layer)> {
    let others = [keys.env.field(), keys.fs.field(), keys.folders.field(), keys.floating.field()];
    refuse(decoder, "command", &others);
    let oauth = keys.oauth.read(decoder);
    if oauth.is_none() {
        refuse(decoder, "command` or `oauth", &[keys.network.field()]);
    }
    let is_private = keys.private.read(decoder).unwrap_or(false);
    let headers = keys.headers.read(decoder).unwrap_or_default();
    for entry in &headers.0 {
        if let Err(why) = address::header(&entry.name, &entry.value) {
            decoder.diagnostics.push(Diagnostic::error(why).at(entry.position.clone()));
        }
    }
    if let (Some(oauth), Some(given)) = (keys.oauth.field(), headers.0.iter().find(is_authorization)) {
        let why = format!("{} has `oauth`, which sets the header {}", quoted(&oauth.path), quoted(&given.name));
        decoder.diagnostics.push(Diagnostic::error(why).at(given.position.clone()));
    }
    let (url, rule) = decoder.parse_one(field, |text| ServerUrl::parse(text, is_private))?;
    let others = layer.network.take().map(|rules| rules.allow).unwrap_or_default();
    layer.network = Some(NetworkRules { allow: std::iter::once(rule).chain(others).collect() });
    layer.exec = Some(ExecRules::default());
    Some((Endpoint::Url(ServerUrl { url, headers: headers.pairs(), oauth }), layer))
}

impl McpServer {
    /// How it is spoken to.
    pub fn transport(&self) -> Transport {
        match &self.endpoint {
            Endpoint::Command(_) => Transport::Stdio,
            Endpoint::Url(_) => Transport::Http,
        }
    }

    /// Where it is, in one line: the command or the URL.
    pub fn location(&self) -> String {
        match &self.endpoint {
            Endpoint::Command(command) => command.words().join(" "),
            Endpoint::Url(remote) => remote.url.to_string(),
        }
    }

    /// Its variables or headers, as they are written.
    pub fn given(&self) -> &[(String, VariableText)] {
        match &self.endpoint {
            Endpoint::Command(command) => &command.env,
            Endpoint::Url(remote) => &remote.headers,
        }
    }

    /// Whether one of its tools is a tool of the project, by the name that it has there.
    pub fn offers(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(tool)))
    }

    /// The secrets that its variables or headers hold, and that of its client.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let oauth = match &self.endpoint {
            Endpoint::Url(remote) => remote.oauth.as_ref(),
            Endpoint::Command(_) => None,
        };
        let client = oauth.and_then(|oauth| oauth.client.as_ref()?.secret.as_deref());
        self.given().iter().flat_map(|(_, value)| value.secrets()).chain(client)
    }
}

#[cfg(test)]
mod tests;
