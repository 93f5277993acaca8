//! The policy of a project: what the front matter of `.harness/harness.md` says of capabilities, tools and hooks.
//!
//! # Layers
//!
//! The [grant](ProjectPolicy::grant_for) of a call is a list of layers that must all agree, so that each can only
//! narrow the ones before it:
//!
//! 1. the [machine], where it has a policy: what it says, and the entries of its own `sandbox.sources`. A missing
//!    key says nothing;
//! 2. the project: `network.allowed_domains` and `sandbox`. A key that is not there has its default: the workspace
//!    for reading and writing, the built-ins that need no rule, and no host, command or variable;
//! 3. each entry of `sandbox.sources` that names the artifact, its folder or its bundle, the outermost first. For the
//!    project's own artifacts a key that is missing in an entry says nothing. For what is under `plugins/`, a key that
//!    no such entry has means that nothing is granted;
//! 4. for what is of a plugin, `max` of the entries of `trusted_sources` that it comes under, in the host policy and in the
//!    project's. A missing key grants nothing;
//! 5. for what is of a plugin with a `plugin.md`, all that it asks for there. A missing key grants nothing;
//! 6. `capabilities` in the front matter of the artifact itself. A missing key says nothing;
//! 7. the call, where who makes it narrows it. A missing key says nothing.
//!
//! A key that is there grants what it lists and nothing else: `fs: { read: [docs] }` grants no writing, and
//! `exec: { allow: [git] }` no variable and no network for commands. The project's own artifacts may use the secrets that
//! `sandbox.secrets` defines; in the other layers `secrets` is a list of their names.
//!
//! # Strictness
//!
//! In the keys of a policy (`network`, `sandbox`, `tools_policy`, `meta`, `delegation`, `mcp`) whatever is not understood is
//! an error, as is a key that seems to be one of these misspelled, and a policy with an error is no policy: [`ProjectPolicy::parse`] gives none, and nothing can run.

pub mod budget;
pub mod catalogues;
pub mod context;
pub mod delegation;
pub mod exit;
pub mod hearing;
pub mod hooks;
pub mod layer;
pub mod learn;
pub mod machine;
pub mod mcp;
pub mod meta;
pub mod roots;
pub mod secrets;
pub mod sources;
pub mod tenant;
pub mod tools;
pub mod trusted;

use self::catalogues::{Catalogues, NamedCatalogue};
use self::context::ContextPolicy;
use self::delegation::DelegationPolicy;
use self::exit::ExitPolicy;
use self::hearing::{Shows, Unheard};
use self::hooks::HookFailure;
use self::layer::{Builder, Hosts, RuleKeys};
use self::machine::MachinePolicy;
use self::mcp::{McpPolicy, McpServer};
use self::meta::MetaPolicy;
use self::roots::ArtifactSource;
use self::sources::SourceRules;
use self::tools::ToolsPolicy;
use self::trusted::{Bound, Item, TrustedSource};
use super::agent::Agent;
use super::bundle::{ListKeys, Lists};
use super::decode::Decoder;
use super::diagnostic::{Diagnostic, Diagnostics, Position};
use super::event::Event;
use super::keys::{self, Slot, Unknown, keys};
use super::located::Located;
use super::model::{ModelKeys, Models};
use super::plugin::Asked;
use super::shape::{Anything, Named, Schema, Shape};
use super::tool::Tool;
use super::yaml::{Node, Value};
use harness_policy::grant::Grant;
use harness_policy::layer::{Layer, Origin, Scope, Service};
use harness_policy::path::{FsRules, PathPattern};
use harness_policy::secret::Secret;
use harness_policy::shared::Namespace;
use harness_policy::text::quoted;

keys! {
    /// What of `harness.md` is the policy, and the folders that it names. A key that seems to be one of these is an
    /// error: it must not leave the defaults standing.
    PolicyKeys: Unknown::RefuseLike(&["network", "sandbox", "tools_policy", "meta", "delegation", "trusted_sources"]);
    /// Further folders with artifacts.
    given artifact_sources: Vec<roots::Item>;
    /// Where plugins may come from, and what they have to prove. Without it: anywhere, pinned.
    given trusted_sources: Vec<Item>;
    /// Catalogues in which plugins are looked up as `NAME@CATALOGUE`, by name, each with its source: a folder such as
    /// `./catalogue`, or a git repository. Default: none.
    given catalogues: Catalogues;
    /// Rules for the network.
    given network: Network;
    /// Rules for scripts: files, commands, variables, limits.
    given sandbox: Sandbox;
    /// Rules for calls of tools, by name.
    given tools_policy: ToolsPolicy;
    /// The tools and hooks that a run may add. Default: none.
    given meta: MetaPolicy;
    /// Rules for delegation to sub-agents.
    given delegation: DelegationPolicy;
    /// What clients of the Model Context Protocol are offered beside tools, and how they get these.
    given mcp: McpPolicy;
    /// Bounds of the conversation that a model receives.
    optional context: ContextPolicy;
    /// Rules for the end of a turn.
    optional exit_policy: ExitPolicy;
}

keys! {
    /// What of `harness.md` is for other rooms, which read it themselves.
    OtherKeys: Unknown::Warn;
    /// Origins of messages that an agent answers. Ignored.
    given serve: Anything;
    /// How results are verified.
    given verify_policy: Anything;
}

/// All keys of `harness.md`.
type HarnessKeys<'n> = (PolicyKeys<'n>, (ModelKeys<'n>, (ListKeys<'n>, OtherKeys<'n>)));

keys! {
    /// The keys of `network`.
    NetworkKeys: Unknown::Refuse;
    /// Hosts that may be reached, such as `api.example.org`, `*.example.net`, `127.0.0.1:8080`. Without it: none.
    given allowed_domains: Hosts;
}

keys! {
    /// The keys of `sandbox` beside those of every layer.
    SandboxKeys: Unknown::Refuse;
    /// Whether calls and decisions are logged in `.harness/audit/`.
    given audit: bool = true;
    /// Whether tools with `async: true` run in the background.
    given async_tools: bool = false;
    /// Secrets by name, each with its origin and its allowed targets.
    given secrets: Named<Secret>;
    /// Rules for hooks that fail.
    given hooks: HookFailure;
    /// Rules for one artifact, a folder of them, or a bundle, by name: `tools/deploy`, `plugins/acme`.
    given sources: Named<SourceRules>;
}

/// `network`, for its schema.
struct Network;

impl Shape for Network {
    fn schema() -> Schema {
        keys::schema::<NetworkKeys<'_>>()
    }
}

/// `sandbox`, for its schema.
struct Sandbox;

impl Shape for Sandbox {
    fn schema() -> Schema {
        keys::schema::<(RuleKeys<'_>, SandboxKeys<'_>)>()
    }
}

/// What a project allows.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectPolicy {
    /// The host policy, within which this one is.
    pub machine: Option<Box<MachinePolicy>>,
    /// What holds for one source instead of this policy, by its name: for looking at what it would do.
    pub instead: Option<(String, Layer)>,
    /// The first layer of every grant. It speaks of every capability, so that no other layer can grant what this one
    /// does not.
    pub project: Layer,
    /// `sandbox.sources`, in the order of the file.
    pub sources: Vec<SourceRules>,
    /// What plugins with a `plugin.md` ask for. None gets more, whatever `sandbox.sources` grants.
    pub plugins: Vec<Asked>,
    /// `trusted_sources`, in the order of the file.
    pub trusted: Vec<TrustedSource>,
    /// The most that plugins may do because of where they come from: what the entries of `trusted_sources` that they are
    /// under say, of the host policy first.
    pub bounds: Vec<Bound>,
    /// `catalogues`, in the order of the file.
    pub catalogues: Vec<NamedCatalogue>,
    /// `tools_policy`.
    pub tools: ToolsPolicy,
    /// `sandbox.hooks`.
    pub hooks: HookFailure,
    /// `sandbox.audit`: whether calls and decisions are recorded. True where the file says nothing.
    pub audit: bool,
    /// `sandbox.async_tools`: whether tools with `async: true` run in the background. False where the file says
    /// nothing.
    pub async_tools: bool,
    /// `sandbox.secrets`, in the order of the file.
    pub secrets: Vec<Located<Secret>>,
    /// `meta`.
    pub meta: MetaPolicy,
    /// `delegation`.
    pub delegation: DelegationPolicy,
    /// `mcp`.
    pub mcp: McpPolicy,
    /// `context`.
    pub context: ContextPolicy,
    /// `exit_policy`.
    pub exit: ExitPolicy,
    /// `model` and `models`.
    pub models: Models,
    /// `tools`, `hooks` and `agents`: artifacts that are written in this file.
    pub lists: Lists,
    /// `artifact_sources`: further folders with artifacts.
    pub roots: Vec<Located<ArtifactSource>>,
    /// The other known keys of the file, in a fixed order, not looked into.
    pub rest: Vec<Other>,
    /// The prose of the file: the system prompt.
    pub body: String,
}

/// A key of `harness.md` that is no policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Other {
    /// The key.
    pub name: &'static str,
    /// Its value.
    pub value: Node,
    /// Where it is.
    pub position: Position,
}

impl ProjectPolicy {
    /// What holds where there is no `harness.md`. `file` is the one that hints name: the one to write.
    pub fn absent(file: &str) -> Self {
        let origin = Origin::new(file, Scope::Default);
        Self {
            machine: None,
            instead: None,
            project: with_defaults(Layer::silent(origin)),
            sources: Vec::new(),
            plugins: Vec::new(),
            trusted: Vec::new(),
            bounds: Vec::new(),
            catalogues: Vec::new(),
            tools: ToolsPolicy::default(),
            hooks: HookFailure::default(),
            audit: true,
            async_tools: false,
            secrets: Vec::new(),
            meta: MetaPolicy::default(),
            delegation: DelegationPolicy::default(),
            mcp: McpPolicy::default(),
            context: ContextPolicy::default(),
            exit: ExitPolicy::default(),
            models: Models::default(),
            lists: Lists::default(),
            roots: Vec::new(),
            rest: Vec::new(),
            body: String::new(),
        }
    }

    /// Reads `harness.md`, or `harness.yaml`, which is YAML as a whole and has no prose. `file` says which, and is for
    /// messages, such as `.harness/harness.md`. The policy is there only if nothing is wrong with the file; the diagnostics
    /// hold everything that is, and warnings.
    pub fn parse(file: &str, text: &str) -> (Option<Self>, Diagnostics) {
        let name = file.rsplit('/').next().unwrap_or(file);
        let mut decoder = Decoder::new(file, format!("parse {name}"));
        let policy = Self::decode(&mut decoder, file, text);
        let diagnostics = decoder.into_diagnostics();
        (policy.filter(|_| !diagnostics.has_errors()), diagnostics)
    }

    fn decode(decoder: &mut Decoder, file: &str, text: &str) -> Option<Self> {
        let (root, body) = if file.ends_with(".yaml") {
            let root = decoder.yaml(text, 1)?;
            if root.value == Value::Null {
                // A file that was cut short must not leave the defaults standing.
                let empty = Diagnostic::error(format!("{} is empty", quoted(file))).at(decoder.top());
                decoder.diagnostics.push(empty.hint("write `{}` for a policy of defaults"));
                return None;
            }
            (root, "")
        } else {
            let document = decoder.document(text)?;
            (document.root, document.body)
        };
        let (keys, (models, (lists, others))): HarnessKeys<'_> = decoder.root(&root)?;
        let mut policy = Self { body: body.to_owned(), ..Self::absent(file) };
        let roots = keys.artifact_sources.read(decoder).unwrap_or_default();
        policy.roots = roots.into_iter().filter_map(|item| item.0).collect();
        let trusted = keys.trusted_sources.field();
        policy.trusted = trusted.map(|field| trusted::of_project(decoder, field, file)).unwrap_or_default();
        policy.catalogues = keys.catalogues.read(decoder).map(|all| all.0).unwrap_or_default();
        let mut project = Builder::new(Origin::new(file, Scope::Project));
        if let Some(network) = keys.network.field().and_then(|f| decoder.keys::<NetworkKeys<'_>>(f)) {
            project.network(decoder, &network.allowed_domains);
        }
        if let Some((rules, others)) = keys.sandbox.field().and_then(|f| decoder.keys(f)) {
            project.rules(decoder, rules);
            policy.sandbox(decoder, file, others);
            project.secrets(policy.secrets.iter().map(|secret| secret.name.clone()).collect());
        }
        policy.project = with_defaults(project.layer(None));
        policy.tools = keys.tools_policy.read(decoder).unwrap_or_default();
        policy.meta = keys.meta.read(decoder).unwrap_or_default();
        policy.delegation = keys.delegation.read(decoder).unwrap_or_default();
        policy.mcp = keys.mcp.read(decoder).unwrap_or_default();
        policy.names_of_servers(decoder);
        secrets::warn_of_unused(decoder, &policy.secrets, &policy.mcp.servers);
        policy.context = keys.context.read(decoder).unwrap_or_default();
        policy.exit = keys.exit_policy.read(decoder).unwrap_or_default();
        policy.models = Models::decode(decoder, &models);
        policy.lists = Lists::decode(decoder, &lists, "");
        policy.rest = others.kept(decoder);
        Some(policy)
    }

    fn sandbox(&mut self, decoder: &mut Decoder, file: &str, keys: SandboxKeys<'_>) {
        self.audit = keys.audit.read(decoder);
        self.async_tools = keys.async_tools.read(decoder);
        let origin = Origin::new(file, Scope::Project);
        self.secrets = keys.secrets.field().and_then(|f| secrets::decode(decoder, f, &origin)).unwrap_or_default();
        self.hooks = keys.hooks.read(decoder).unwrap_or_default();
        let Some(field) = keys.sources.field() else { return };
        self.sources = sources::decode(decoder, field, file).unwrap_or_default();
        for source in &self.sources {
            for name in secrets::unknown(&self.secrets, &source.layer) {
                let what = format!("the entry {} of {}", quoted(&source.name), quoted(&field.path));
                let message = format!("{what} grants the secret {}, which the policy does not define", quoted(name));
                let hint = format!(
                    "define it in `sandbox.secrets`, such as `{name}: {{ env: {name}, hosts: [HOST] }}`: where its value is, and \
                     the hosts that may be sent it"
                );
                decoder.diagnostics.push(Diagnostic::error(message).at(source.position.clone()).hint(hint));
            }
        }
    }

    /// What servers and plugins name has to be there: a name that means nothing would grant nothing in silence.
    fn names_of_servers(&self, decoder: &mut Decoder) {
        for server in &self.mcp.servers {
            for name in server.secrets().filter(|name| !self.secrets.iter().any(|secret| secret.name == **name)) {
                let what = format!("the server {} names no secret {}", quoted(&server.name), quoted(name));
                let wrong = Diagnostic::error(what).at(server.position.clone());
                decoder.diagnostics.push(wrong.hint("secrets are named in `sandbox.secrets`"));
            }
        }
        for (name, position) in self
            .sources
            .iter()
            .flat_map(|source| source.servers.iter().flatten())
            .filter_map(|named| self.mcp.server(&named.value).is_none().then_some((&named.value, &named.position)))
        {
            let wrong = Diagnostic::error(format!("there is no server {}", quoted(name))).at(position.clone());
            decoder.diagnostics.push(wrong.hint("servers are named in `mcp.servers`"));
        }
    }

    /// The same within a host policy: what both allow.
    #[must_use]
    pub fn narrowed_by(mut self, machine: MachinePolicy) -> Self {
        if let Some(tools) = machine.tools.clone() {
            self.tools = self.tools.narrowed_by(tools);
        }
        if let Some(hooks) = machine.hooks.clone() {
            self.hooks = self.hooks.narrowed_by(hooks);
        }
        if let Some(meta) = machine.meta {
            self.meta = self.meta.narrowed_by(meta);
        }
        self.audit |= machine.audit;
        self.machine = Some(Box::new(machine));
        self
    }

    /// What an agent may do, whoever sets it to work: none of its calls gets more. None where that is what the project
    /// may do as a whole.
    pub fn grant_for_agent(&self, agent: &Agent) -> Option<Grant> {
        let grant = self.grant_for(&agent.source_name, agent.capabilities.as_ref());
        let grant = match &agent.limits {
            Some(limits) => grant.meet(&Grant::new(vec![limits.clone()])),
            None => grant,
        };
        (grant.layers().len() > self.grant_for("", None).layers().len()).then_some(grant)
    }

    /// Whether an agent may call a tool at all: a plugin's calls the plugin's own, and those that the policy names for it.
    pub fn lends(&self, agent: &str, tool: &Tool) -> bool {
        sources::bundle_of(agent).is_none_or(|plugin| {
            let is_lent = || sources::lends(&self.sources, agent, self.own(agent), &tool.name);
            let is_asked =
                || self.asked(agent).is_none_or(|asked| asked.tools.iter().any(|pattern| pattern.matches(&tool.name)));
            sources::bundle_of(&tool.source_name) == Some(plugin) || is_lent() && is_asked()
        })
    }

    /// The tools of others that an agent of a source may call: those that each entry about it names. None where no entry
    /// names any.
    pub fn lent(&self, source: &str) -> Option<ToolsPolicy> {
        let entries = sources::about(&self.sources, source);
        let is_own = |entry: &&SourceRules| self.own(source).is_none_or(|own| sources::covers(own, &entry.name));
        if !entries.iter().copied().filter(is_own).any(|entry| entry.tools.is_some()) {
            return None;
        }
        let entries = entries.into_iter();
        let named = entries.filter_map(|entry| Some(ToolsPolicy::of_patterns(entry.tools.as_ref()?, &entry.position)));
        let asked = self.asked(source).map(|asked| ToolsPolicy::of_patterns(&asked.tools, &asked.position()));
        let named = named.reduce(|outer, inner| inner.narrowed_by(outer))?;
        Some(match asked {
            Some(asked) => asked.narrowed_by(named),
            None => named,
        })
    }

    /// What a tool may do: of one of a server, what the server's processes may do.
    pub fn grant_of(&self, tool: &Tool) -> Grant {
        match tool.served.as_ref().and_then(|served| self.mcp.server(&served.server)) {
            Some(server) => self.grant_for_server(server),
            None => self.grant_for(&tool.source_name, tool.capabilities.as_ref()),
        }
    }

    /// What the processes of a server may do. The project's rules for commands and hosts of scripts are not the server's:
    /// its own entry has those.
    pub fn grant_for_server(&self, server: &McpServer) -> Grant {
        let mut layers = self.machine.as_ref().map(|machine| machine.layers("")).unwrap_or_default();
        let project = self.project.clone();
        layers.push(Layer { exec: None, network: None, env: None, services: None, secrets: None, ..project });
        layers.push(server.layer.clone());
        Grant::new(layers)
    }

    /// Whether what is of a source may call the tools of a server: a plugin's artifacts only where the policy says so.
    pub fn lends_server(&self, source: &str, server: &str) -> bool {
        let is_asked = || self.asked(source).is_none_or(|asked| asked.servers.iter().any(|name| name == server));
        sources::bundle_of(source)
            .is_none_or(|_| sources::lends_server(&self.sources, source, self.own(source), server) && is_asked())
    }

    /// What an artifact may do. `source` is its place below `.harness/` without `.md`, such as `tools/deploy` or
    /// `plugins/acme/tools/x`; `capabilities` is the layer of its own front matter.
    pub fn grant_for(&self, source: &str, capabilities: Option<&Layer>) -> Grant {
        let entries = sources::about(&self.sources, source);
        let mut layers = self.machine.as_ref().map(|machine| machine.layers(source)).unwrap_or_default();
        let bundle = sources::bundle_of(source);
        let bounds = |of_machine: bool| {
            let here =
                self.bounds.iter().filter(move |one| bundle == Some(&one.source) && one.of_machine == of_machine);
            here.map(|one| one.layer.clone())
        };
        layers.extend(bounds(true));
        if let Some((_, layer)) = self.instead.as_ref().filter(|(name, _)| name == source) {
            layers.push(layer.clone());
            layers.extend(capabilities.cloned());
            return Grant::new(layers);
        }
        layers.push(self.project.clone());
        layers.extend(bounds(false));
        if let Some(bundle) = bundle {
            // Of a plugin that asks, an entry for all plugins only narrows what was consented to for this one.
            let own = self.own(source);
            let is_own = |entry: &&&SourceRules| own.is_none_or(|own| sources::covers(own, &entry.name));
            let granting: Vec<&SourceRules> = entries.iter().filter(is_own).copied().collect();
            layers.push(sources::floor(bundle, &granting, &self.project.origin.file));
        }
        layers.extend(entries.into_iter().map(|entry| entry.layer.clone()));
        layers.extend(self.asked(source).map(|asked| asked.layer.clone()));
        layers.extend(capabilities.cloned());
        Grant::new(layers)
    }

    /// The name of the plugin that a source is of, where it has a `plugin.md`.
    fn own(&self, source: &str) -> Option<&str> {
        self.asked(source).map(|asked| asked.source.as_str())
    }

    /// What the plugin that a source is of asks for, where it has a `plugin.md`.
    pub fn asked(&self, source: &str) -> Option<&Asked> {
        let bundle = sources::bundle_of(source)?;
        self.plugins.iter().find(|asked| asked.source == bundle)
    }

    /// All that `sandbox.sources` says of a plugin, as text that is always the same for the same entries.
    pub fn granted(&self, source: &str) -> String {
        let is_about = |entry: &&SourceRules| entry.covers(source) || sources::covers(source, &entry.name);
        let entries = self.sources.iter().filter(is_about);
        let mut lines: Vec<String> =
            entries.map(|entry| format!("{}\n", serde_json::json!([entry.name, entry.written]))).collect();
        lines.sort_unstable();
        lines.concat()
    }

    /// The names of the plugin that a source is of; none where it is of none: its names are the project's.
    pub fn namespace(&self, source: &str) -> Option<Namespace> {
        let bundle = sources::bundle_of(source)?;
        let mut lists = sources::shared(&self.sources, source, self.own(source));
        if let (Some(asked), false) = (self.asked(source), lists.is_empty()) {
            lists.push(asked.shared.clone());
        }
        Some(Namespace::new(bundle, lists))
    }

    /// What the hooks of a source receive of an event of others: all of it, unless the source is of a plugin. Of that an
    /// entry of `sandbox.sources` has to name the event, and the asks of its `plugin.md`, where it has one. `can_be_own`
    /// is whether the event may be one of the plugin's own tools and agents.
    ///
    /// # Errors
    ///
    /// Why a hook for it stops the project.
    pub fn shows(&self, source: &str, event: &Event, can_be_own: bool) -> Result<Shows, Unheard> {
        if sources::bundle_of(source).is_none() {
            return Ok(Shows::All);
        }
        let consented = sources::shows(&self.sources, source, self.own(source), event);
        let asked = self.asked(source).map_or(Some(Shows::All), |asked| hearing::shown(&asked.events, event));
        hearing::decide(event, asked, consented, can_be_own)
    }
}

impl ProjectPolicy {
    /// The same policy with something else granted to one source. What protects the project stays, and so do its limits.
    pub fn granting(&self, source: &str, layer: &Layer) -> Self {
        let mut layer = with_defaults(layer.clone());
        if let (Some(fs), Some(own)) = (&mut layer.fs, &self.project.fs) {
            fs.protect.extend(own.protect.iter().cloned());
            fs.repository.extend(own.repository.iter().cloned());
            fs.home.clone_from(&own.home);
        }
        layer.limits = self.project.limits;
        Self { instead: Some((source.to_owned(), layer)), ..self.clone() }
    }
}

impl Shape for ProjectPolicy {
    fn schema() -> Schema {
        keys::schema::<HarnessKeys<'_>>()
    }
}

impl OtherKeys<'_> {
    /// Those that are there, as they are.
    fn kept(&self, decoder: &mut Decoder) -> Vec<Other> {
        let mut other = |name, slot: &Slot<'_, Anything>| {
            let field = slot.field()?;
            let what = format!("`{name}` is for other hosts and is ignored here");
            decoder.warn(field, what, "leave it for them, or remove it");
            let position = decoder.position(field.key.map_or(field.node.span, |key| key.span));
            Some(Other { name, value: field.node.clone(), position })
        };
        let all = [other("serve", &self.serve), other("verify_policy", &self.verify_policy)];
        all.into_iter().flatten().collect()
    }
}

/// A layer that speaks of everything: what it left open has its default.
fn with_defaults(layer: Layer) -> Layer {
    let workspace = || PathPattern::parse(".").into_iter().collect::<Vec<_>>();
    Layer {
        fs: Some(layer.fs.unwrap_or_else(|| FsRules { read: workspace(), write: workspace(), ..FsRules::default() })),
        network: Some(layer.network.unwrap_or_default()),
        exec: Some(layer.exec.unwrap_or_default()),
        env: Some(layer.env.unwrap_or_default()),
        services: Some(layer.services.unwrap_or_else(|| Service::DEFAULT.to_vec())),
        secrets: Some(layer.secrets.unwrap_or_default()),
        ..layer
    }
}

#[cfg(test)]
mod tests;
