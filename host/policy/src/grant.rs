//! The grant of one call: layers of policy that must all agree.

use std::sync::Arc;

use super::command::is_identifier;
use super::layer::{Layer, Origin, Scope, Service};
use super::limits::{LimitKey, Limits};
use super::network::{HostRule, shown};
use super::refusal::Refusal;
use super::watch::{Request, Walls, Watched};

/// What one call may do. Immutable; made before the instance exists.
///
/// The decisions on files, hosts and commands are in [`path`](super::path), [`network`](super::network) and
/// [`command`](super::command), each an `impl Grant`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// All of these must allow what is asked. Empty: nothing is allowed.
    layers: Vec<Arc<Layer>>,
    /// The observer of what it allows.
    watched: Vec<Watched>,
}

impl Grant {
    /// A grant from its layers. Without a layer nothing is allowed; a capability that no layer speaks of is not
    /// granted either.
    pub fn new(layers: Vec<Layer>) -> Self {
        Self::of(layers.into_iter().map(Arc::new).collect())
    }

    /// The same from layers that others have too.
    pub fn of(layers: Vec<Arc<Layer>>) -> Self {
        Self { layers, watched: Vec::new() }
    }

    /// The same, with its decisions watched.
    #[must_use]
    pub fn watched(mut self, watched: Option<Watched>) -> Self {
        self.watched.extend(watched);
        self
    }

    /// The same, with nobody who watches.
    #[must_use]
    pub fn unwatched(&self) -> Self {
        Self::of(self.layers.clone())
    }

    /// Tells who watches of something that was allowed.
    pub fn note(&self, request: impl Fn() -> Request) {
        for watched in &self.watched {
            watched.note(&request);
        }
    }

    /// Tells who watches of walls that one is planned from now on.
    pub fn note_planned_wall(&self) {
        self.watched.iter().filter_map(Watched::walls).for_each(Walls::planned);
    }

    /// Tells who watches of walls that the one that was planned is built, or that this failed.
    pub fn note_built_wall(&self) {
        self.watched.iter().filter_map(Watched::walls).for_each(Walls::built);
    }

    /// What both grants allow.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            layers: self.layers.iter().chain(&other.layers).cloned().collect(),
            watched: self.watched.iter().chain(&other.watched).cloned().collect(),
        }
    }

    /// Whether it can change nothing outside of its call: no file, no command, and of the network only what reads. What
    /// calls of one run share, such as its cache, does not count.
    pub fn is_read_only(&self) -> bool {
        let none = |refuses: fn(&Layer) -> Option<bool>| {
            let mut said = self.layers.iter().filter_map(|layer| refuses(layer)).peekable();
            said.peek().is_none() || said.any(|refuses| refuses)
        };
        none(|layer| layer.fs.as_ref().map(|files| files.write.is_empty()))
            && none(|layer| layer.exec.as_ref().map(|commands| commands.allow.is_empty()))
            && none(|layer| layer.network.as_ref().map(|hosts| hosts.allow.iter().all(HostRule::only_reads)))
    }

    /// Whether it can change no file of the workspace.
    pub fn writes_no_file(&self) -> bool {
        let mut said = self.layers.iter().filter_map(|layer| layer.fs.as_ref()).peekable();
        said.peek().is_none() || said.any(|files| files.write.is_empty())
    }

    /// The layers, outermost first.
    pub fn layers(&self) -> &[Arc<Layer>] {
        &self.layers
    }

    /// The limits: of each the smallest that a layer names, else the default.
    pub fn limits(&self) -> Limits {
        Limits::of(|key| self.limit(key).0)
    }

    /// One limit, in the unit of its key, and the outermost of the layers that set it; none where it is the default.
    pub fn limit(&self, key: LimitKey) -> (u64, Option<&Origin>) {
        let named = self.layers.iter().filter_map(|layer| Some((layer.limits.get(key)?, Some(&layer.origin))));
        named.min_by_key(|(value, _)| *value).unwrap_or((key.facts().default, None))
    }

    /// What would raise a limit: the line that set it, else the one to write.
    pub fn raises(&self, key: LimitKey) -> String {
        let name = format!("limits.{}", key.facts().name);
        match self.limit(key).1 {
            Some(origin) => format!("`{}` in `{}` raises it", origin.key(&name), origin.of(&name)),
            None => format!("`sandbox.{name}` in `{}` raises it", self.policy_file()),
        }
    }

    /// Whether a built-in may be used.
    pub fn decide_service(&self, service: Service) -> Result<(), Refusal> {
        let name = service.name();
        self.every(
            |layer| layer.services.as_ref(),
            |services| services.contains(&service),
            |origin| Refusal::new(format!("`{name}` is not granted"), services_hint(origin, name)),
        )?;
        self.note(|| Request::Service(service));
        Ok(())
    }

    /// Whether a variable of the host's environment may be read.
    pub fn decide_env(&self, name: &str) -> Result<(), Refusal> {
        self.every(
            |layer| layer.env.as_ref(),
            |names| names.iter().any(|n| n == name),
            |origin| {
                let reason = format!("the variable `{}` is not granted", shown(name));
                // A policy names no other variables.
                let hint = is_identifier(name).then(|| origin.add(name, "env"));
                Refusal::new(reason, hint.unwrap_or_default())
            },
        )?;
        self.note(|| Request::Variable(name.to_owned()));
        Ok(())
    }

    /// The common shape of a decision: at least one layer speaks of the capability, and every layer that does allows
    /// it. The first that does not names itself in the refusal.
    pub fn every<'a, R: ?Sized + 'a>(
        &'a self,
        rules: impl Fn(&'a Layer) -> Option<&'a R>,
        allows: impl Fn(&'a R) -> bool,
        refuse: impl Fn(&Origin) -> Refusal,
    ) -> Result<(), Refusal> {
        let mut granted = false;
        for layer in &self.layers {
            if let Some(rules) = rules(layer) {
                if !allows(rules) {
                    return Err(refuse(&layer.origin));
                }
                granted = true;
            }
        }
        if granted { Ok(()) } else { Err(refuse(&self.nearest_origin())) }
    }

    /// The file of the project's policy, or the one to write.
    fn policy_file(&self) -> &str {
        let mut origins = self.layers.iter().map(|layer| &layer.origin);
        let project = origins.find(|origin| matches!(origin.scope, Scope::Project | Scope::Default));
        project.map_or(".harness/harness.md", |origin| &*origin.file)
    }

    /// The place to name in a hint when no layer speaks of something: the first layer's, else the project's policy.
    pub fn nearest_origin(&self) -> Origin {
        self.layers
            .first()
            .map_or_else(|| Origin::new(".harness/harness.md", Scope::Default), |layer| layer.origin.clone())
    }
}

/// The change that grants a service. Where a policy has no list yet, one with this service alone would take the others away.
fn services_hint(origin: &Origin, name: &str) -> String {
    let has_default = matches!(origin.scope, Scope::Machine | Scope::Project | Scope::Default);
    if !has_default || origin.places.key("services").is_some() {
        return origin.add(name, "services");
    }
    let names: Vec<&str> = Service::DEFAULT.map(Service::name).into_iter().chain([name]).collect();
    format!("write `{}: [{}]` in `{}`", origin.key("services"), names.join(", "), origin.file)
}
