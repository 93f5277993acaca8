//! Plugins with a `plugin.md`: read with their bundle, held to what they ask for, and checked against each other.

use std::sync::Arc;

use super::{Load, Within};
use harness_artifact::agent::Use;
use harness_artifact::diagnostic::Diagnostic;
use harness_artifact::plugin::{Asked, FILE, Plugin};
use harness_artifact::policy::hearing::Unheard;
use harness_artifact::policy::sources;
use semver::Version;

/// The version of this program, which plugins may require.
const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Load {
    /// The `plugin.md` of the bundle in a folder, where it has one.
    pub(super) fn plugin(&mut self, here: Within<'_>, place: &str) -> Option<Arc<Plugin>> {
        let below = format!("{place}/{FILE}");
        self.inside(here.root, &below, true)?;
        let text = self.text(here, &below, true)?;
        let file = here.root.shown(&below);
        let (plugin, diagnostics) = Plugin::parse(&file, Some(here.source), &text);
        self.parsed(here.source, &file, diagnostics);
        // What it asks for holds its scripts and hooks down.
        self.guard_lost |= plugin.is_none();
        plugin.map(Arc::new)
    }

    /// Holds the plugins to what they ask for, and finds those that need something else.
    pub(super) fn held_to_asks(&mut self) {
        let Some(policy) = &mut self.registry.policy else { return };
        let plugins = || self.registry.bundles.iter().filter_map(|bundle| Some((bundle, bundle.plugin.as_ref()?)));
        let asked = plugins().map(|(bundle, plugin)| {
            let rules: Vec<_> = plugin.rules().collect();
            Asked::of(rules.iter().copied(), &format!("{}/{FILE}", bundle.path), &bundle.name)
        });
        policy.plugins = asked.collect();
        let version = Version::parse(VERSION).unwrap_or(Version::new(0, 0, 0));
        let mut unmet = Vec::new();
        for (bundle, plugin) in plugins() {
            if let Some(required) = plugin.harness.as_ref().filter(|required| !required.matches(&version)) {
                let what = format!("`{}` needs Harness {}, and this is {version}", bundle.name, required.value);
                unmet.push(Diagnostic::error(what).at(required.position.clone()));
            }
            for (name, required) in &plugin.plugins {
                let found = plugins().find(|(_, other)| other.name.value == *name).map(|(_, other)| &other.version);
                let why = match found {
                    Some(found) if required.matches(found) => continue,
                    Some(found) => format!("and this one is {found}"),
                    None => "which is not there".to_owned(),
                };
                let what = format!("`{}` needs the plugin `{name}` {}, {why}", bundle.name, required.value);
                unmet.push(Diagnostic::error(what).at(required.position.clone()));
            }
        }
        self.guard_lost |= !unmet.is_empty();
        unmet.into_iter().for_each(|one| self.registry.diagnostics.push(one));
    }

    /// Finds hooks of plugins for events that they may not receive. One that falls silent may be a guard.
    pub(super) fn unheard(&mut self) {
        let Some(policy) = &self.registry.policy else { return };
        let own = self.registry.agents.iter().flat_map(|agent| &agent.hooks);
        let own = own.filter_map(Use::inline);
        let mut found = Vec::new();
        for hook in self.registry.hooks.iter().chain(own) {
            let (source, event) = (&hook.source_name, &hook.event);
            let bundle = sources::bundle_of(source).unwrap_or(source);
            let is_of = |other: &str| sources::bundle_of(other) == Some(bundle);
            let has_tools = self.registry.tools.iter().any(|tool| is_of(&tool.source_name));
            let has_agents = self.registry.agents.iter().any(|agent| is_of(&agent.source_name));
            let Err(unheard) = policy.shows(source, event, event.can_be_of(has_tools, has_agents)) else { continue };
            let what = format!("the hook {:?} of `{bundle}` is for `{}`", hook.name, event.value);
            let (why, hint) = match unheard {
                Unheard::Unconsented => {
                    let file = policy.project.origin.file.as_str();
                    let line = format!("add `{}` to `sandbox.sources.{bundle}.events` in `{file}`", event.value);
                    ("which no entry of `sandbox.sources` lets it receive", line)
                }
                Unheard::Unasked => {
                    let line = format!("its author adds `{}` to `events` of an ask in `{FILE}`", event.value);
                    ("which the plugin does not ask for", line)
                }
            };
            found.push(Diagnostic::error(format!("{what}, {why}")).at(event.position.clone()).hint(hint));
        }
        self.guard_lost |= !found.is_empty();
        found.into_iter().for_each(|one| self.registry.diagnostics.push(one));
    }
}
