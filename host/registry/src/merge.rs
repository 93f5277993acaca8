//! What was found into what there is: one artifact for each name, in order.
//!
//! Two levels: what is under `overrides/`, and everything else. Within a level a name stands for one thing, and a
//! second one is an error that names both places: neither a plugin nor a later file can quietly take the place of a
//! guard. What is under `overrides/` replaces by name what the other level defines.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Registry, Replaced};
use harness_artifact::agent::Agent;
use harness_artifact::diagnostic::{Diagnostic, Diagnostics, Position};
use harness_artifact::event::Event;
use harness_artifact::hook::Hook;
use harness_artifact::skill::Skill;
use harness_artifact::tool::Tool;

/// What a level defines.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(super) tools: Vec<Tool>,
    pub(super) hooks: Vec<Hook>,
    pub(super) agents: Vec<Agent>,
    pub(super) skills: Vec<Skill>,
}

/// What has a name and a place.
trait Named {
    const KIND: &'static str;
    fn name(&self) -> &str;
    fn source(&self) -> &Position;
}

macro_rules! named {
    ($($ty:ident = $kind:literal),*) => {
        $(impl Named for $ty {
            const KIND: &'static str = $kind;
            fn name(&self) -> &str {
                &self.name
            }
            fn source(&self) -> &Position {
                &self.source
            }
        })*
    };
}
named!(Tool = "tool", Hook = "hook", Agent = "agent", Skill = "skill");

/// Fills a registry.
pub(super) fn into(registry: &mut Registry, base: Level, overrides: Level) {
    let Registry { diagnostics, replaced, .. } = registry;
    registry.tools = merged(base.tools, overrides.tools, diagnostics, replaced);
    registry.hooks = merged(base.hooks, overrides.hooks, diagnostics, replaced);
    registry.agents = merged(base.agents, overrides.agents, diagnostics, replaced);
    registry.skills = merged(base.skills, overrides.skills, diagnostics, replaced);
    index(registry);
}

/// Finds tools by name and hooks by event.
pub(super) fn index(registry: &mut Registry) {
    registry.tools_by_name =
        registry.tools.iter().enumerate().map(|(index, tool)| (tool.name.clone(), index)).collect();
    let mut chains: HashMap<Event, Vec<Arc<Hook>>> = HashMap::new();
    for hook in &registry.hooks {
        chains.entry(hook.event.value.clone()).or_default().push(hook.clone());
    }
    // Stable: equal priorities stay in the order of their sources.
    chains.values_mut().for_each(|chain| chain.sort_by_key(|hook| *hook.priority));
    registry.chains = chains;
}

fn merged<T: Named>(
    base: Vec<T>,
    overrides: Vec<T>,
    diagnostics: &mut Diagnostics,
    replaced: &mut Vec<Replaced>,
) -> Vec<Arc<T>> {
    let overrides = unique(overrides, diagnostics);
    let by_name: HashMap<String, Position> =
        overrides.iter().map(|one| (one.name().to_owned(), one.source().clone())).collect();
    let mut all = unique(base, diagnostics);
    all.retain(|one| match by_name.get(one.name()) {
        None => true,
        Some(by) => {
            let (name, what) = (one.name().to_owned(), one.source().clone());
            replaced.push(Replaced { kind: T::KIND, name, by: by.clone(), what });
            false
        }
    });
    all.extend(overrides);
    all.sort_by(|a, b| order(a.source()).cmp(&order(b.source())));
    all.into_iter().map(Arc::new).collect()
}

/// By path, and within a file by line and column.
fn order(position: &Position) -> (&str, u32, u32) {
    (&position.file, position.line, position.column)
}

/// The first of each name; an error for each further one.
fn unique<T: Named>(mut level: Vec<T>, diagnostics: &mut Diagnostics) -> Vec<T> {
    level.sort_by(|a, b| order(a.source()).cmp(&order(b.source())));
    let mut first: HashMap<String, Position> = HashMap::new();
    level.retain(|one| match first.get(one.name()) {
        None => {
            first.insert(one.name().to_owned(), one.source().clone());
            true
        }
        Some(at) => {
            let message = format!("{} {:?} is defined more than once", T::KIND, one.name());
            let hint = format!("it is first defined at {at}; to replace it on purpose, put this one in `overrides/`");
            diagnostics.push(Diagnostic::error(message).at(one.source().clone()).hint(hint));
            false
        }
    });
    level
}
