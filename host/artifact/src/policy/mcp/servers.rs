//! `mcp.servers`: programs that serve tools by the Model Context Protocol, and what the wall around each of them opens.

use std::fmt;

use serde_json::{Value as Json, json};

use super::super::Network;
use super::super::layer::{self, Builder};
use super::super::tools::NamePattern;
use super::floating;
use crate::decode::{Decoder, Field};
use crate::diagnostic::{Diagnostic, Position};
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use crate::shape::{self, Named, Read, Schema, Shape, Shown};
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

/// A server that is a command behind a wall of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServer {
    /// Its key: names of its tools begin with it.
    pub name: String,
    /// The program.
    pub program: String,
    /// Its arguments, literally.
    pub args: Vec<String>,
    /// All its variables but `TMPDIR`, and `PATH` where it is not there.
    pub env: Vec<(String, VariableText)>,
    /// How long one process of it serves.
    pub keep: Keep,
    /// Names of its tools that are tools of the project, as it names them. None: all.
    pub tools: Option<Vec<NamePattern>>,
    /// What its processes may do. It speaks of everything.
    pub layer: Layer,
    /// Where its name is.
    pub position: Position,
}

/// How long one process of a server serves.
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

impl Shape for Keep {
    fn schema() -> Schema {
        shape::words(Self::WORDS.map(|(word, _)| word))
    }
}

impl Read for Keep {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        shape::word(decoder, field, &Self::WORDS)
    }
}

impl Shown for Keep {
    fn shown(&self) -> Json {
        shape::word_of(*self, &Self::WORDS)
    }
}

/// The value of a variable, with secrets and variables of the host by name: `Bearer {secret:TOKEN}`, `{env:HOME}/x`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableText(Vec<Piece>);

/// A part of a [`VariableText`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// As it is written.
    Text(String),
    /// The value of a secret.
    Secret(String),
    /// The value of a variable of the host's environment.
    Variable(String),
}

impl VariableText {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// What is wrong with a part in braces.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            plain.push_str(before);
            let kind = [("secret:", Piece::Secret as fn(String) -> Piece), ("env:", Piece::Variable)];
            let Some((name, make)) =
                kind.into_iter().find_map(|(start, make)| Some((after.strip_prefix(start)?, make)))
            else {
                plain.push('{');
                rest = after;
                continue;
            };
            let Some((name, after)) = name.split_once('}') else {
                return Err(format!("{} has no `}}`", quoted(&format!("{{{after}"))));
            };
            let name = layer::variable(name)?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(make(name));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        if text.contains('\0') {
            return Err("there is a NUL in it".to_owned());
        }
        Ok(Self(pieces))
    }

    /// Its parts in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// The secrets that it names.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Secret(name) => Some(name.as_str()),
            Piece::Text(_) | Piece::Variable(_) => None,
        })
    }
}

/// As it is written in a policy.
impl fmt::Display for VariableText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Secret(name) => write!(f, "{{secret:{name}}}"),
            Piece::Variable(name) => write!(f, "{{env:{name}}}"),
        })
    }
}

impl Shape for VariableText {
    fn schema() -> Schema {
        String::schema()
    }
}

impl Read for VariableText {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, Self::parse)
    }
}

keys! {
    /// The keys of one server.
    ServerKeys: Unknown::Refuse;
    /// The program and each argument, literally. It runs behind the wall that commands run behind.
    required command: Vec<String>;
    /// Its variables. `{secret:NAME}` and `{env:NAME}` in a value stand for a secret and for a variable of the host.
    given env: Named<VariableText>;
    /// Files of the workspace that it may read and write, which `sandbox.fs` has to grant too. Default: none.
    given fs: FsRules;
    /// Hosts that it may reach. Default: none.
    given network: Network;
    /// Folders outside of the workspace that it may read and run programs from, such as `/opt/node`.
    given folders: Vec<Located<FolderRule>>;
    /// Limits of its processes. The smallest limit of all layers applies.
    given limits: LimitRules;
    /// How long one process serves: all calls of a run (`run`), or one (`call`).
    given keep: Keep = Keep::Run;
    /// Patterns of names of its tools, as it names them, that are tools of the project. Default: all.
    given tools: Vec<Located<NamePattern>>;
    /// Whether `npx`, `uvx` and the like may start a package without an exact version.
    given floating: bool = false;
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
    let Some(line) = keys.command.field() else {
        decoder.error(field, format!("{} has no `command`", quoted(&field.path)));
        return None;
    };
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
    if let (Some(package), false) = (floating::package(program, args), keys.floating.read(decoder)) {
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
    let mut builder = Builder::new(Origin::new(&*position.file, Scope::Server(name.to_owned())));
    builder.of_server(decoder, &keys.fs, &keys.network, &keys.limits);
    let folders = builder.folders(decoder, &keys.folders);
    let mut layer = builder.layer(Some(&position));
    // What it reaches is what commands reach: it makes no requests by the host's own client.
    let hosts = layer.network.replace(NetworkRules::default()).map(|rules| rules.allow).unwrap_or_default();
    let network = CommandNetwork::hosts(hosts).unwrap_or_else(|why| {
        if let Some(network) = keys.network.field() {
            decoder.error(network, format!("{}: {why}", quoted(&network.path)));
        }
        CommandNetwork::None
    });
    layer.exec = Some(ExecRules { allow: vec![rule], env: Vec::new(), folders, network, unconfined: false });
    let tools = keys.tools.read(decoder).map(|all| all.into_iter().map(|one| one.value).collect());
    Some(McpServer {
        name: name.to_owned(),
        program: program.clone(),
        args: args.to_vec(),
        env: env.pairs(),
        keep: keys.keep.read(decoder),
        tools,
        layer,
        position,
    })
}

impl McpServer {
    /// The command as one list.
    pub fn command(&self) -> Vec<String> {
        std::iter::once(&self.program).chain(&self.args).cloned().collect()
    }

    /// Whether one of its tools is a tool of the project, by the name that it has there.
    pub fn offers(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(tool)))
    }

    /// The secrets that its variables hold.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.env.iter().flat_map(|(_, value)| value.secrets())
    }
}

#[cfg(test)]
mod tests;
