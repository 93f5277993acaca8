//! What a lock keeps of a server: everything that its tools are made of, so that none is started to list them.

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::FILE;
use super::entry::position;
use harness_artifact::definition::{Definition, distinct};
use harness_artifact::diagnostic::{Diagnostic, Position};
use harness_artifact::pinned::{Pinned, PinnedEndpoint, PinnedPackages};
use harness_artifact::policy::mcp::{Endpoint, McpServer};
use harness_artifact::tool::Tool;
use harness_sys::digest::digest;

/// A server, as TOML has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerDocument {
    name: Spanned<String>,
    transport: String,
    /// Of one over standard input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<Vec<String>>,
    /// Of the file of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    /// Of all that was fetched for one that is a package runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    packages: Option<String>,
    /// The moment before which that had been published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    /// Of one over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// The revision of the protocol.
    protocol: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instructions: Option<String>,
    #[serde(default, rename = "tool", skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolDocument>,
}

/// One of its tools.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolDocument {
    name: Spanned<String>,
    /// Of the definition in its one form.
    sha256: String,
    /// The definition with a line for each value.
    definition: String,
}

/// A server as the lock has it.
#[derive(Debug, Clone, PartialEq)]
pub struct LockedServer {
    /// What it is.
    pub pinned: Pinned,
    /// Where its entry is.
    pub position: Position,
    /// Where the entry of each tool is.
    positions: Vec<Position>,
}

impl LockedServer {
    /// One that was just read. Where it will be is not known.
    pub fn new(mut pinned: Pinned) -> Self {
        pinned.tools.sort_by(|a, b| a.name().cmp(b.name()));
        let here = Position { file: FILE.into(), line: 1, column: 1, length: 1 };
        Self { positions: vec![here.clone(); pinned.tools.len()], position: here, pinned }
    }

    /// # Errors
    ///
    /// What is wrong with the entry: it was changed by hand, or by a merge.
    pub(super) fn read(document: ServerDocument, text: &str) -> Result<Self, Diagnostic> {
        let at = position(text, Some(document.name.span()));
        let server = document.name.into_inner();
        let wrong = |at: &Position, why: String| {
            let wrong = Diagnostic::error(format!("`{FILE}`: the server {server:?}: {why}")).at(at.clone());
            wrong.hint("write it again with `harness lock`")
        };
        let ServerDocument { transport, command, program, packages, before, url, .. } = document;
        let (version, instructions) = (document.protocol, document.instructions);
        let packages = match (packages, before) {
            (Some(tree), Some(before)) => Some(PinnedPackages::new(tree, before).map_err(|why| wrong(&at, why))?),
            (None, None) => None,
            _ => return Err(wrong(&at, "`packages` and `before` belong together".to_owned())),
        };
        let endpoint = match (&*transport, command, program, url) {
            ("stdio", Some(command), Some(program), None) => PinnedEndpoint::Command { command, program, packages },
            ("http", None, None, Some(url)) if packages.is_none() => PinnedEndpoint::Url(url),
            ("stdio", ..) => return Err(wrong(&at, "one over stdio has a `command` and a `program`".to_owned())),
            ("http", ..) => return Err(wrong(&at, "one over http has a `url` alone".to_owned())),
            _ => return Err(wrong(&at, format!("the transport {transport:?} is not known"))),
        };
        let (mut tools, mut positions) = (Vec::new(), Vec::new());
        for tool in document.tools {
            let here = position(text, Some(tool.name.span()));
            let json = serde_json::from_str(&tool.definition).map_err(|error| wrong(&here, error.to_string()))?;
            let definition = Definition::read(json).map_err(|why| wrong(&here, why))?;
            if definition.name() != tool.name.as_ref() || digest(&definition.canonical()) != tool.sha256 {
                return Err(wrong(&here, format!("the tool {:?} is not what its digest says", tool.name.as_ref())));
            }
            tools.push(definition);
            positions.push(here);
        }
        distinct(&server, &tools).map_err(|why| wrong(&at, why))?;
        Ok(Self { pinned: Pinned { server, endpoint, version, instructions, tools }, position: at, positions })
    }

    pub(super) fn document(&self) -> ServerDocument {
        let unplaced = |text: &str| Spanned::new(0..0, text.to_owned());
        let Pinned { server, endpoint, version, instructions, tools } = &self.pinned;
        let (command, program, packages, url) = match endpoint.clone() {
            PinnedEndpoint::Command { command, program, packages } => (Some(command), Some(program), packages, None),
            PinnedEndpoint::Url(url) => (None, None, None, Some(url)),
        };
        let tool = |tool: &Definition| ToolDocument {
            name: unplaced(tool.name()),
            sha256: digest(&tool.canonical()),
            definition: format!("{}\n", tool.lines()),
        };
        ServerDocument {
            name: unplaced(server),
            transport: endpoint.transport().name().to_owned(),
            command,
            program,
            packages: packages.as_ref().map(|packages| packages.tree().to_owned()),
            before: packages.map(|packages| packages.before().to_owned()),
            url,
            protocol: version.clone(),
            instructions: instructions.clone(),
            tools: tools.iter().map(tool).collect(),
        }
    }

    /// What of it the policy now says otherwise, in words.
    pub(crate) fn against(&self, server: &McpServer) -> Option<String> {
        let what = match (&server.endpoint, &self.pinned.endpoint) {
            (Endpoint::Command(now), PinnedEndpoint::Command { command, .. }) => {
                (now.words() != *command).then_some("its command changed")
            }
            (Endpoint::Url(now), PinnedEndpoint::Url(url)) => (now.url.as_str() != url).then_some("its url changed"),
            (Endpoint::Command(_), PinnedEndpoint::Url(_)) => Some("it is a command instead of a url"),
            (Endpoint::Url(_), PinnedEndpoint::Command { .. }) => Some("it is a url instead of a command"),
        };
        what.map(str::to_owned)
    }

    /// Its tools that the policy wants, or what cannot be one.
    pub(crate) fn tools(&self, server: &McpServer) -> (Vec<Tool>, Vec<Diagnostic>) {
        let (mut tools, mut wrong) = (Vec::new(), Vec::new());
        for (definition, position) in self.pinned.tools.iter().zip(&self.positions) {
            if !server.offers(definition.name()) {
                continue;
            }
            match definition.tool(&self.pinned.server, self.pinned.endpoint.transport(), position) {
                Ok(tool) => tools.push(tool),
                Err(why) => {
                    let what = format!("the server {:?}: {why}", self.pinned.server);
                    wrong.push(
                        Diagnostic::error(what)
                            .at(position.clone())
                            .hint("leave it out with `tools` of the server in `mcp.servers`, and write the lock again"),
                    );
                }
            }
        }
        (tools, wrong)
    }
}
