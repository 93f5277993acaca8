//! Why the host has no room for a call.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why the host had no room for a call. The same call may do better later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busy {
    /// What there was too little of.
    pub limit: BusyLimit,
    /// How much of it there is.
    pub allowed: u64,
    /// Milliseconds for which the call waited, where it waited until its deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// Milliseconds after which to try again: an estimate from how long calls took lately.
    pub retry_ms: u64,
}

/// What there can be too little of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BusyLimit {
    /// Instances of the host, for all of its projects.
    Instances,
    /// Instances of the project.
    ProjectInstances,
    /// Calls of the project at one time.
    ConcurrentCalls,
    /// Calls of the project that wait.
    QueuedCalls,
    /// Memory of the project's instances together, in bytes.
    MemoryBytes,
}

impl BusyLimit {
    /// Its key in the options of a host or a project.
    pub fn key(self) -> &'static str {
        match self {
            Self::Instances | Self::ProjectInstances => "instances",
            Self::ConcurrentCalls => "concurrent_calls",
            Self::QueuedCalls => "queued_calls",
            Self::MemoryBytes => "memory_bytes",
        }
    }

    /// Whose options have it.
    pub fn set_by(self) -> &'static str {
        match self {
            Self::Instances => "the host's options",
            Self::ProjectInstances | Self::ConcurrentCalls | Self::QueuedCalls | Self::MemoryBytes => {
                "the project's quota"
            }
        }
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, allowed, waited_ms, retry_ms } = *self;
        match (limit, waited_ms) {
            (BusyLimit::QueuedCalls, _) => write!(f, "busy: {allowed} calls of the project are waiting already")?,
            (BusyLimit::ConcurrentCalls, Some(ms)) => {
                write!(f, "busy: the call waited {ms} ms for one of the project's {allowed} running calls to end")?;
            }
            (BusyLimit::ProjectInstances, Some(ms)) => {
                write!(f, "busy: the call waited {ms} ms for one of the project's {allowed} instances")?;
            }
            (BusyLimit::Instances, Some(ms)) => {
                write!(f, "busy: the call waited {ms} ms for one of the host's {allowed} instances")?;
            }
            (BusyLimit::MemoryBytes, _) => {
                write!(f, "busy: the project's instances together would exceed {allowed} bytes of memory")?;
            }
            (limit, None) => write!(f, "busy: `{}` is {allowed}", limit.key())?,
        }
        write!(f, " (`{}`, set by {}); retry in {retry_ms} ms", limit.key(), limit.set_by())
    }
}
