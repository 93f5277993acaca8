//! Clients of the Model Context Protocol, and how each of them writes down a server that it starts.

use std::path::Path;

use clap::ValueEnum;
use serde_json::{Value as Json, json};

/// A client that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    ClaudeCode,
    Codex,
    Vscode,
    Cursor,
    Zed,
    Goose,
}

/// The form of a client's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    /// With comments, and a comma after the last value.
    JsonWithComments,
    Toml,
    Yaml,
}

/// Where a client looks for servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum File {
    /// In the project, relative to its folder.
    Project(&'static str),
    /// In the home folder alone.
    Home(&'static str),
}

impl Client {
    pub(crate) fn file(self) -> File {
        match self {
            Self::ClaudeCode => File::Project(".mcp.json"),
            Self::Codex => File::Project(".codex/config.toml"),
            Self::Vscode => File::Project(".vscode/mcp.json"),
            Self::Cursor => File::Project(".cursor/mcp.json"),
            Self::Zed => File::Project(".zed/settings.json"),
            Self::Goose => File::Home("~/.config/goose/config.yaml"),
        }
    }

    pub(crate) fn form(self) -> Form {
        match self {
            Self::ClaudeCode => Form::Json,
            Self::Vscode | Self::Cursor | Self::Zed => Form::JsonWithComments,
            Self::Codex => Form::Toml,
            Self::Goose => Form::Yaml,
        }
    }

    /// The key under which the file has servers, by their names.
    pub(crate) fn section(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::Cursor => "mcpServers",
            Self::Codex => "mcp_servers",
            Self::Vscode => "servers",
            Self::Zed => "context_servers",
            Self::Goose => "extensions",
        }
    }

    /// The server of a project, as the client has it under its name.
    pub(crate) fn entry(self, name: &str, root: &Path) -> Json {
        let arguments = json!(["-C", root.to_string_lossy(), "mcp", "serve"]);
        match self {
            Self::ClaudeCode | Self::Vscode => json!({"type": "stdio", "command": "harness", "args": arguments}),
            Self::Codex | Self::Cursor => json!({"command": "harness", "args": arguments}),
            Self::Zed => json!({"source": "custom", "command": "harness", "args": arguments, "env": {}}),
            Self::Goose => {
                let (kind, cmd, description) = ("stdio", "harness", "Tools of a project");
                json!({"enabled": true, "type": kind, "name": name, "description": description, "cmd": cmd, "args": arguments, "timeout": 300})
            }
        }
    }
}
