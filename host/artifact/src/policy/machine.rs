//! The policy of a machine: what anyone who runs it lets any project do at most.
//!
//! A YAML file with the policy keys of `harness.md`. It can only take away: a key that is not there says nothing, and
//! one that is there counts whole, as it does in the other layers. What only a project can say is refused in it.

use super::hooks::HookFailure;
use super::layer::{Builder, RuleKeys};
use super::meta::MetaPolicy;
use super::sources::{self, SourceRules};
use super::tools::ToolsPolicy;
use super::trusted::{self, Item, TrustedSource};
use super::{Network, NetworkKeys};
use crate::decode::{Decoder, Field};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::keys::{self, Unknown, keys};
use crate::shape::{Named, Schema, Shape};
use crate::yaml;
use harness_policy::layer::{Layer, Origin, Scope};
use harness_policy::text::quoted;

keys! {
    /// The keys of a host policy.
    MachineKeys: Unknown::Refuse;
    /// Which hosts scripts may reach at most.
    given network: Network;
    /// What scripts may do at most.
    given sandbox: MachineSandbox;
    /// Which tools may be called at most, by name.
    given tools_policy: ToolsPolicy;
    /// Where plugins may come from, and what they have to prove. Without it: what the project says.
    given trusted_sources: Vec<Item>;
    /// Bounds of the tools and hooks that a run may add.
    given meta: MetaPolicy;
}

keys! {
    /// The keys of its `sandbox` beside those of every layer.
    SandboxKeys: Unknown::Refuse;
    /// Whether calls and decisions are recorded whatever a project says.
    given audit: bool = false;
    /// What becomes at least of an event whose hook fails.
    given hooks: HookFailure;
    /// Rules for one artifact, a folder of them, or a bundle, by name: `tools/deploy`, `plugins/acme`.
    given sources: Named<SourceRules>;
}

/// `sandbox`, for its schema.
struct MachineSandbox;

impl Shape for MachineSandbox {
    fn schema() -> Schema {
        keys::schema::<(RuleKeys<'_>, SandboxKeys<'_>)>()
    }
}

/// Where it is, unless another place is named.
pub const FILE: &str = "/etc/harness/policy.yaml";

/// What a machine lets any project do at most.
#[derive(Debug, Clone, PartialEq)]
pub struct MachinePolicy {
    /// The outermost layer of every grant.
    pub layer: Layer,
    /// Its `sandbox.sources`, in the order of the file.
    pub sources: Vec<SourceRules>,
    /// Its `tools_policy`.
    pub tools: Option<ToolsPolicy>,
    /// Its `sandbox.hooks`.
    pub hooks: Option<HookFailure>,
    /// Its `meta`.
    pub meta: Option<MetaPolicy>,
    /// Its `trusted_sources`, in the order of the file.
    pub trusted: Vec<TrustedSource>,
    /// Whether everything is recorded, whatever a project says.
    pub audit: bool,
}

impl MachinePolicy {
    /// Reads the file. `file` is for messages. The policy is there only if nothing is wrong with it.
    pub fn parse(file: &str, text: &str) -> (Option<Self>, Diagnostics) {
        let name = file.rsplit('/').next().unwrap_or(file);
        let mut decoder = Decoder::new(file, format!("parse {name}"));
        let (root, errors) = yaml::parse(text, 1);
        let readable = errors.is_empty();
        decoder.yaml_errors(errors);
        let policy = root
            .as_ref()
            .filter(|root| root.value != yaml::Value::Null)
            .and_then(|root| Self::decode(&mut decoder, file, root));
        let mut diagnostics = decoder.into_diagnostics();
        if readable && policy.is_none() && !diagnostics.has_errors() {
            // A file that was cut short must not be a policy that forbids nothing.
            let empty = Diagnostic::error(format!("{} is empty", quoted(file)));
            diagnostics.push(empty.hint("write `{}` for a policy that narrows nothing"));
        }
        (policy.filter(|_| !diagnostics.has_errors()), diagnostics)
    }

    /// Its layers of the grant of an artifact, the outermost first.
    pub fn layers(&self, source: &str) -> Vec<Layer> {
        let entries = sources::about_in_any_root(&self.sources, source).into_iter().map(|entry| entry.layer.clone());
        std::iter::once(self.layer.clone()).chain(entries).collect()
    }

    fn decode(decoder: &mut Decoder, file: &str, root: &yaml::Node) -> Option<Self> {
        let keys: MachineKeys<'_> = decoder.root(root)?;
        let origin = || Origin::new(file, Scope::Machine);
        let mut builder = Builder::new(origin());
        let mut policy = Self {
            layer: Layer::silent(origin()),
            sources: Vec::new(),
            tools: keys.tools_policy.read(decoder),
            hooks: None,
            meta: keys.meta.read(decoder),
            trusted: Vec::new(),
            audit: false,
        };
        let trusted = keys.trusted_sources.field();
        policy.trusted = trusted.map(|field| trusted::of_machine(decoder, field, file)).unwrap_or_default();
        if let Some(network) = keys.network.field().and_then(|f| decoder.keys::<NetworkKeys<'_>>(f)) {
            builder.network(decoder, &network.allowed_domains);
        }
        let sandbox: Option<(RuleKeys<'_>, SandboxKeys<'_>)> = keys.sandbox.field().and_then(|f| decoder.keys(f));
        if let Some((rules, others)) = sandbox {
            builder.rules(decoder, rules);
            policy.sandbox(decoder, file, others);
        }
        policy.layer = builder.layer(None);
        Some(policy)
    }

    fn sandbox(&mut self, decoder: &mut Decoder, file: &str, keys: SandboxKeys<'_>) {
        self.hooks = keys.hooks.read(decoder);
        let entries = keys.sources.field().and_then(|field| sources::decode(decoder, field, file));
        self.sources = entries.unwrap_or_default();
        let field = keys.audit.field().cloned();
        self.audit = keys.audit.read(decoder);
        if let (Some(field), false) = (field, self.audit) {
            takes_nothing_away(decoder, &field);
        }
    }
}

fn takes_nothing_away(decoder: &mut Decoder, field: &Field<'_>) {
    let message = format!("{} is ignored: a host policy can only narrow", quoted(&field.path));
    decoder.warn(field, message, "leave it out: without it, a project may turn its audit log off");
}
