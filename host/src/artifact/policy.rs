//! The policy of a project: what the front matter of `.harness/harness.md` says of capabilities, tools and hooks.
//!
//! # Layers
//!
//! The [grant](ProjectPolicy::grant_for) of a call is a list of layers that must all agree, so that each can only
//! narrow the ones before it:
//!
//! 1. the project: `network.allowed_domains` and `sandbox`. A key that is not there has its default: the workspace
//!    for reading and writing, the built-ins that need no rule, and no host, command or variable;
//! 2. each entry of `sandbox.sources` that names the artifact, its folder or its bundle, the outermost first. For the
//!    project's own artifacts a key that is missing in an entry says nothing. For what is under `plugins/`, a key that
//!    no such entry has means that nothing is granted;
//! 3. `capabilities` in the front matter of the artifact itself. A missing key says nothing.
//!
//! A key that is there grants what it lists and nothing else: `fs: { read: [docs] }` grants no writing, and
//! `exec: { allow: [git] }` no variable and no network for commands. The project's own artifacts may use the secrets that
//! `sandbox.secrets` defines; in the other layers `secrets` is a list of their names.
//!
//! # Strictness
//!
//! In the keys of a policy (`network`, `sandbox`, `tools_policy`, `meta`, `delegation`) whatever is not understood is
//! an error, as is a key that seems to be one of these misspelled, and a policy with an error is no policy: [`ProjectPolicy::parse`] gives none, and nothing can run.

pub mod context;
pub mod delegation;
pub mod exit;
pub mod hooks;
pub mod layer;
pub mod meta;
mod roots;
pub mod secrets;
pub mod sources;
pub mod tools;

use self::context::ContextPolicy;
use self::delegation::DelegationPolicy;
use self::exit::ExitPolicy;
use self::hooks::HookFailure;
use self::meta::MetaPolicy;
use self::sources::SourceRules;
use self::tools::ToolsPolicy;
use super::bundle::Lists;
use super::decode::{Decoder, Fields, Unknown};
use super::diagnostic::{Diagnostics, Position};
use super::located::Located;
use super::model::Models;
use super::suggest::quoted;
use super::yaml::Node;
use crate::policy::grant::Grant;
use crate::policy::layer::{Layer, Origin, Scope, Service};
use crate::policy::path::{FsRules, PathPattern};
use crate::policy::secret::Secret;

/// Keys of `harness.md` that are the policy.
const POLICY_KEYS: [&str; 5] = ["network", "sandbox", "tools_policy", "meta", "delegation"];

/// Keys of `harness.md` that are no policy. They are kept as they are for the rooms that read them.
pub(super) const OTHER_KEYS: [&str; 3] = ["serve", "trusted_sources", "verify_policy"];

/// What a project allows.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectPolicy {
    /// The first layer of every grant. It speaks of every capability, so that no other layer can grant what this one
    /// does not.
    pub project: Layer,
    /// `sandbox.sources`, in the order of the file.
    pub sources: Vec<SourceRules>,
    /// `tools_policy`.
    pub tools: ToolsPolicy,
    /// `sandbox.hooks`.
    pub hooks: HookFailure,
    /// `sandbox.audit`: whether calls and decisions are recorded. True where the file says nothing.
    pub audit: bool,
    /// `sandbox.secrets`, in the order of the file.
    pub secrets: Vec<Located<Secret>>,
    /// `meta`.
    pub meta: MetaPolicy,
    /// `delegation`.
    pub delegation: DelegationPolicy,
    /// `context`.
    pub context: ContextPolicy,
    /// `exit_policy`.
    pub exit: ExitPolicy,
    /// `model` and `models`.
    pub models: Models,
    /// `tools`, `hooks` and `agents`: artifacts that are written in this file.
    pub lists: Lists,
    /// `artifact_sources`: further folders with artifacts, relative to the project.
    pub roots: Vec<Located<String>>,
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
        let origin = Origin { file: file.to_owned(), scope: Scope::Default };
        Self {
            project: with_defaults(layer::silent(origin)),
            sources: Vec::new(),
            tools: ToolsPolicy::default(),
            hooks: HookFailure::default(),
            audit: true,
            secrets: Vec::new(),
            meta: MetaPolicy::default(),
            delegation: DelegationPolicy::default(),
            context: ContextPolicy::default(),
            exit: ExitPolicy::default(),
            models: Models::default(),
            lists: Lists::default(),
            roots: Vec::new(),
            rest: Vec::new(),
            body: String::new(),
        }
    }

    /// Reads `harness.md`. `file` is for messages, such as `.harness/harness.md`. The policy is there only if nothing
    /// is wrong with the file; the diagnostics hold everything that is, and warnings.
    pub fn parse(file: &str, text: &str) -> (Option<Self>, Diagnostics) {
        let name = file.rsplit('/').next().unwrap_or(file);
        let mut decoder = Decoder::new(file, format!("parse {name}"));
        let policy = Self::decode(&mut decoder, file, text);
        let diagnostics = decoder.into_diagnostics();
        (policy.filter(|_| !diagnostics.has_errors()), diagnostics)
    }

    fn decode(decoder: &mut Decoder, file: &str, text: &str) -> Option<Self> {
        let document = decoder.document(text)?;
        let mut fields = decoder.root(&document.root)?;
        let mut policy = Self { body: document.body.to_owned(), ..Self::absent(file) };
        policy.roots = fields.take("artifact_sources").map(|f| roots::decode(decoder, &f)).unwrap_or_default();
        let mut project = layer::silent(Origin { file: file.to_owned(), scope: Scope::Project });
        if let Some(mut network) = fields.take("network").and_then(|f| decoder.mapping(&f)) {
            project.network = network.take("allowed_domains").and_then(|f| layer::network(decoder, &f));
            decoder.finish(network, Unknown::Refuse);
        }
        if let Some(sandbox) = fields.take("sandbox").and_then(|f| decoder.mapping(&f)) {
            policy.sandbox(decoder, file, &mut project, sandbox);
        }
        policy.project = with_defaults(project);
        if let Some(field) = fields.take("tools_policy") {
            policy.tools = ToolsPolicy::decode(decoder, &field, file).unwrap_or_default();
        }
        if let Some(field) = fields.take("meta") {
            policy.meta = MetaPolicy::decode(decoder, &field).unwrap_or_default();
        }
        if let Some(field) = fields.take("delegation") {
            policy.delegation = DelegationPolicy::decode(decoder, &field).unwrap_or_default();
        }
        if let Some(field) = fields.optional("context") {
            policy.context = ContextPolicy::decode(decoder, &field).unwrap_or_default();
        }
        if let Some(field) = fields.optional("exit_policy") {
            policy.exit = ExitPolicy::decode(decoder, &field).unwrap_or_default();
        }
        policy.models = Models::take(decoder, &mut fields);
        policy.lists = Lists::take(decoder, &mut fields, "");
        for name in OTHER_KEYS {
            if let Some(field) = fields.take(name) {
                let position = decoder.position(field.key.map_or(field.node.span, |key| key.span));
                policy.rest.push(Other { name, value: field.node.clone(), position });
            }
        }
        decoder.finish(fields, Unknown::RefuseLike(&POLICY_KEYS));
        Some(policy)
    }

    fn sandbox(&mut self, decoder: &mut Decoder, file: &str, project: &mut Layer, mut fields: Fields<'_>) {
        layer::rules(decoder, &mut fields, project);
        if let Some(field) = fields.take("audit") {
            self.audit = decoder.boolean(&field).unwrap_or(true);
        }
        if let Some(field) = fields.take("secrets") {
            self.secrets = secrets::decode(decoder, &field, &project.origin).unwrap_or_default();
        }
        if let Some(field) = fields.take("hooks") {
            self.hooks = HookFailure::decode(decoder, &field).unwrap_or_default();
        }
        project.secrets = Some(self.secrets.iter().map(|secret| secret.name.clone()).collect());
        if let Some(field) = fields.take("sources") {
            self.sources = sources::decode(decoder, &field, file).unwrap_or_default();
            for source in &self.sources {
                for name in secrets::unknown(&self.secrets, &source.layer) {
                    let message = format!("{} names no secret {}", quoted(&field.path), quoted(name));
                    let hint = "secrets are named in `sandbox.secrets`".to_owned();
                    decoder.error_with(&field, message, Some(hint));
                }
            }
        }
        decoder.finish(fields, Unknown::Refuse);
    }

    /// What an artifact may do. `source` is its place below `.harness/` without `.md`, such as `tools/deploy` or
    /// `plugins/acme/tools/x`; `capabilities` is the layer of its own front matter.
    pub fn grant_for(&self, source: &str, capabilities: Option<&Layer>) -> Grant {
        let mut entries: Vec<&SourceRules> = self.sources.iter().filter(|entry| entry.covers(source)).collect();
        // All of these are beginnings of one name, so that the shorter one is further out.
        entries.sort_by_key(|entry| entry.name.len());
        let mut layers = vec![self.project.clone()];
        if let Some(bundle) = sources::bundle_of(source) {
            layers.push(sources::floor(bundle, &entries, &self.project.origin.file));
        }
        layers.extend(entries.into_iter().map(|entry| entry.layer.clone()));
        layers.extend(capabilities.cloned());
        Grant::new(layers)
    }
}

/// A layer that speaks of everything: what it left open has its default.
fn with_defaults(layer: Layer) -> Layer {
    let workspace = || PathPattern::parse(".").into_iter().collect::<Vec<_>>();
    Layer {
        fs: Some(layer.fs.unwrap_or_else(|| FsRules { read: workspace(), write: workspace(), protect: Vec::new() })),
        network: Some(layer.network.unwrap_or_default()),
        exec: Some(layer.exec.unwrap_or_default()),
        env: Some(layer.env.unwrap_or_default()),
        services: Some(layer.services.unwrap_or_else(|| Service::ALL.to_vec())),
        secrets: Some(layer.secrets.unwrap_or_default()),
        ..layer
    }
}

#[cfg(test)]
mod tests;
