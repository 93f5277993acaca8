//! One layer of policy: what one place of one file says. A grant is several layers that must all agree.

use super::command::ExecRules;
use super::limits::LimitRules;
use super::network::NetworkRules;
use super::path::FsRules;
use super::positions::{RulePosition, RulePositions};

/// Which place of which file a layer came from, for hints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// File as the operator knows it, such as `.harness/harness.md`.
    pub file: String,
    /// Where in it the layer's keys are.
    pub scope: Scope,
    /// Line and column of each rule; empty where no file was read.
    pub places: RulePositions,
}

/// The place of a layer's keys in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The top level of the host policy, with the keys of the project's.
    Machine,
    /// The top level: `network.allowed_domains`, `sandbox.fs`, ...
    Project,
    /// `sandbox.sources.NAME`.
    Source(String),
    /// `mcp.servers.NAME`.
    Server(String),
    /// `capabilities:` of an artifact.
    Artifact,
    /// `max` of an entry of `trusted_sources`, by its number.
    Trusted(usize),
    /// `asks:` of a plugin.
    Asked,
    /// What a call was narrowed by: keys without anything above them.
    Call,
    /// What holds where no file says anything. A hint then names the key of `.harness/harness.md` to write.
    Default,
}

impl Origin {
    /// A place of a file of which no lines are known.
    pub fn new(file: impl Into<String>, scope: Scope) -> Self {
        Self { file: file.into(), scope, places: RulePositions::default() }
    }

    /// The full name of a key, such as `sandbox.fs.write` for `fs.write`. `network` is `network.allowed_domains` at
    /// the top level.
    pub fn key(&self, key: &str) -> String {
        match &self.scope {
            Scope::Machine | Scope::Project | Scope::Default if key == "network" => {
                "network.allowed_domains".to_owned()
            }
            Scope::Machine | Scope::Project | Scope::Default => format!("sandbox.{key}"),
            Scope::Source(name) => format!("sandbox.sources.{name}.{key}"),
            Scope::Server(name) => match key {
                "network" | "exec.network" => format!("mcp.servers.{name}.network.allowed_domains"),
                "exec.folders" => format!("mcp.servers.{name}.folders"),
                "exec.allow" => format!("mcp.servers.{name}.command"),
                key => format!("mcp.servers.{name}.{key}"),
            },
            Scope::Artifact => format!("capabilities.{key}"),
            Scope::Trusted(number) => format!("trusted_sources[{number}].max.{key}"),
            Scope::Asked => format!("asks.{key}"),
            Scope::Call => key.to_owned(),
        }
    }

    /// The end of every hint that asks for a line: "add `src` to `sandbox.fs.write` in `.harness/harness.md:5:9`".
    pub fn add(&self, value: &str, key: &str) -> String {
        format!("add `{value}` to `{}` in `{}`", self.key(key), self.of(key))
    }

    /// The file, and the line and column of a key where it is there: `.harness/harness.md:5:9`.
    pub fn of(&self, key: &str) -> String {
        self.at(self.places.key(key))
    }

    /// The file, and a place in it where that is known.
    pub fn at(&self, place: Option<RulePosition>) -> String {
        match place {
            Some(place) => format!("{}:{place}", self.file),
            None => self.file.clone(),
        }
    }
}

/// A permission that needs no rule beyond being granted: most are built-ins. `modify` lets a hook change what it hears,
/// and `prompt` lets the prose of a third party into what a model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are those of a policy")]
pub enum Service {
    Cache,
    Metrics,
    Clock,
    Random,
    Events,
    Meta,
    Delegate,
    Modify,
    Prompt,
    AskUser,
    AskModel,
    AskRoots,
}

impl Service {
    /// Those of the project's own artifacts where the policy says nothing of services: all that do not reach the client of
    /// a call.
    pub const DEFAULT: [Self; 9] = [
        Self::Cache,
        Self::Metrics,
        Self::Clock,
        Self::Random,
        Self::Events,
        Self::Meta,
        Self::Delegate,
        Self::Modify,
        Self::Prompt,
    ];

    /// All of them, in the order of listings.
    pub const ALL: [Self; 12] = [
        Self::Cache,
        Self::Metrics,
        Self::Clock,
        Self::Random,
        Self::Events,
        Self::Meta,
        Self::Delegate,
        Self::Modify,
        Self::Prompt,
        Self::AskUser,
        Self::AskModel,
        Self::AskRoots,
    ];

    /// The word in a policy and in a script.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Metrics => "metrics",
            Self::Clock => "clock",
            Self::Random => "random",
            Self::Events => "events",
            Self::Meta => "meta",
            Self::Delegate => "delegate",
            Self::Modify => "modify",
            Self::Prompt => "prompt",
            Self::AskUser => "ask_user",
            Self::AskModel => "ask_model",
            Self::AskRoots => "ask_roots",
        }
    }
}

/// What one place says. `None`: it says nothing of this, and leaves it to the other layers. `Some` of something
/// empty: nothing is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Where it was said.
    pub origin: Origin,
    /// Files.
    pub fs: Option<FsRules>,
    /// Hosts.
    pub network: Option<NetworkRules>,
    /// Commands.
    pub exec: Option<ExecRules>,
    /// Variables, by exact name.
    pub env: Option<Vec<String>>,
    /// Built-ins that need no further rule.
    pub services: Option<Vec<Service>>,
    /// Secrets, by name.
    pub secrets: Option<Vec<String>>,
    /// Limits.
    pub limits: LimitRules,
}

impl Layer {
    /// A layer that says nothing.
    pub fn silent(origin: Origin) -> Self {
        Self {
            origin,
            fs: None,
            network: None,
            exec: None,
            env: None,
            services: None,
            secrets: None,
            limits: LimitRules::default(),
        }
    }
}
