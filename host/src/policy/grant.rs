//! The grant of one call: layers of policy that must all agree.

use super::layer::{Layer, Origin, Scope, Service};
use super::limits::Limits;
use super::refusal::Refusal;

/// What one call may do. Immutable; made before the instance exists.
///
/// The decisions on files, hosts and commands are in [`path`](super::path), [`network`](super::network) and
/// [`command`](super::command), each an `impl Grant`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// All of these must allow what is asked. Empty: nothing is allowed.
    layers: Vec<Layer>,
}

impl Grant {
    /// A grant from its layers. Without a layer nothing is allowed; a capability that no layer speaks of is not
    /// granted either.
    pub fn new(layers: Vec<Layer>) -> Self {
        Self { layers }
    }

    /// What both grants allow.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        Self { layers: self.layers.iter().chain(&other.layers).cloned().collect() }
    }

    /// The layers, outermost first.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The limits: of each the smallest that a layer names, else the default.
    pub fn limits(&self) -> Limits {
        let defaults = Limits::default();
        let all =
            |pick: fn(&Layer) -> Option<u64>, default| self.layers.iter().filter_map(pick).min().unwrap_or(default);
        Limits {
            fuel: all(|l| l.limits.fuel, defaults.fuel),
            timeout: self.layers.iter().filter_map(|l| l.limits.timeout).min().unwrap_or(defaults.timeout),
            memory_bytes: all(|l| l.limits.memory_bytes, defaults.memory_bytes),
            output_bytes: all(|l| l.limits.output_bytes, defaults.output_bytes),
            processes: all(|l| l.limits.processes, defaults.processes),
            file_bytes: all(|l| l.limits.file_bytes, defaults.file_bytes),
        }
    }

    /// Whether a built-in may be used.
    pub fn decide_service(&self, service: Service) -> Result<(), Refusal> {
        let name = service.name();
        self.every(
            |layer| layer.services.as_ref(),
            |services| services.contains(&service),
            |origin| Refusal::new(format!("`{name}` is not granted"), origin.add(name, "services")),
        )
    }

    /// Whether a variable of the host's environment may be read.
    pub fn decide_env(&self, name: &str) -> Result<(), Refusal> {
        self.every(
            |layer| layer.env.as_ref(),
            |names| names.iter().any(|n| n == name),
            |origin| Refusal::new(format!("the variable `{name}` is not granted"), origin.add(name, "env")),
        )
    }

    /// The common shape of a decision: at least one layer speaks of the capability, and every layer that does allows
    /// it. The first that does not names itself in the refusal.
    pub(crate) fn every<'a, R: ?Sized + 'a>(
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

    /// The place to name in a hint when no layer speaks of something: the first layer's, else the project's policy.
    pub(crate) fn nearest_origin(&self) -> Origin {
        self.layers
            .first()
            .map_or_else(|| Origin::new(".harness/harness.md", Scope::Default), |layer| layer.origin.clone())
    }
}
