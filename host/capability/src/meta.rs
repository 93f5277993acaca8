//! The interface `meta`: what a run adds to itself, and tools that call tools.

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

use super::denial::Denial;

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// Not enabled, not granted, or blocked by a hook.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
    /// Something that cannot be used. Carries what is wrong.
    #[component(name = "invalid")]
    Invalid(String),
    /// As many as the policy allows a run. Carries how many.
    #[component(name = "too-many")]
    TooMany(u32),
    /// Deeper than the policy allows. Carries the levels.
    #[component(name = "too-deep")]
    TooDeep(u32),
}

/// The record `new-tool`.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lift, Serialize, Deserialize)]
#[component(record)]
#[expect(missing_docs, reason = "the fields are the interface's")]
pub struct NewTool {
    pub name: String,
    pub description: String,
    pub parameters: String,
    pub script: String,
    pub replace: bool,
}

/// The record `new-hook`.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lift, Serialize, Deserialize)]
#[component(record)]
#[expect(missing_docs, reason = "the fields are the interface's")]
pub struct NewHook {
    pub name: String,
    pub event: String,
    pub script: String,
    pub when: Option<String>,
    pub priority: Option<i32>,
}

/// The record `tool-summary`.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(record)]
#[expect(missing_docs, reason = "the fields are the interface's")]
pub struct ToolSummary {
    pub name: String,
    pub description: String,
    #[component(name = "parameter-count")]
    pub parameter_count: u32,
}
