//! How a call ended, and what it used.
//!
//! Six endings that are never confused: completed, failed, denied, over a limit, host busy, host fault. Each is a variant here,
//! an exit code of the command line and a shape in its JSON.

use std::fmt;
use std::time::Duration;

use serde_json::{Value as Json, json};
use wasmtime::component::{ComponentType, Lift, Lower};

use super::price::Import;
use super::scheduling::admission::Busy;
use harness_capability::coverage::Coverage;
use harness_capability::log::Log;
use harness_capability::secrets::Vault;
use harness_policy::limits::LimitKey;
use harness_policy::refusal::Refusal;
use harness_sys::digest::digest;
use harness_wall::Tier;

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome<T> {
    /// The script ran to its end.
    Completed(T),
    /// The script's own error.
    Failed(Failure),
    /// A capability refused and the script did not get past it.
    Denied {
        /// The script's error, with its place in the source.
        failure: Failure,
        /// What was refused and what would allow it.
        refusal: Refusal,
    },
    /// The call was ended for using too much.
    Limited(Limit),
    /// The host had no room for the call, or for more memory in the middle of it. The same call may do better later.
    Busy(Busy),
    /// The host could not do its part. Never the script's doing.
    Fault(String),
}

impl<T> Outcome<T> {
    /// The same ending with another result.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Completed(value) => Outcome::Completed(map(value)),
            Self::Failed(failure) => Outcome::Failed(failure),
            Self::Denied { failure, refusal } => Outcome::Denied { failure, refusal },
            Self::Limited(limit) => Outcome::Limited(limit),
            Self::Busy(busy) => Outcome::Busy(busy),
            Self::Fault(message) => Outcome::Fault(message),
        }
    }

    /// Puts notes instead of secrets in the report of this ending. A value that it completed with is not looked at.
    pub fn redact(&mut self, vault: &Vault) {
        match self {
            Self::Completed(_) | Self::Limited(_) | Self::Busy(_) => {}
            Self::Failed(failure) => failure.redact(vault),
            Self::Denied { failure, refusal } => {
                failure.redact(vault);
                vault.redact(&mut refusal.reason);
                vault.redact(&mut refusal.hint);
            }
            Self::Fault(message) => vault.redact(message),
        }
    }

    /// The word for this ending in JSON: `completed`, `failed`, `denied`, `limited`, `busy`, `fault`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completed",
            Self::Failed(_) => "failed",
            Self::Denied { .. } => "denied",
            Self::Limited(_) => "limited",
            Self::Busy(_) => "busy",
            Self::Fault(_) => "fault",
        }
    }
}

/// A limit that ended a call, and how much it allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Which.
    pub kind: LimitKind,
    /// How much it allows, in the unit of its kind.
    pub allowed: u64,
    /// The script's file; empty where nobody knows where the script was.
    pub file: String,
    /// Where the script was, if it could be told.
    pub at: Option<Spot>,
}

impl Limit {
    /// One that nothing more is known of.
    pub fn of(kind: LimitKind, allowed: u64) -> Self {
        Self { kind, allowed, file: String::new(), at: None }
    }
}

/// Where a script was when it was ended, and what it had of the memory. Told by its interpreter, whose word it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// In the artifact's file, from 1.
    pub line: u32,
    /// In the line, from 1.
    pub column: u32,
    /// Bytes of its values that were in use when they were last counted; 0 where they never were.
    pub live: u64,
    /// Bytes that it asked for at once; 0 where that is not known, or more than any memory has.
    pub asked: u64,
}

/// Which limit ended a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitKind {
    /// WebAssembly work and host calls, in units of fuel.
    Fuel,
    /// Wall time, in milliseconds: the policy's or the tool's own `timeout_ms`.
    Deadline,
    /// Linear memory, in bytes.
    Memory,
    /// The stack of the instance, in bytes: expressions or values nested too deeply.
    Stack,
    /// Calls within calls, in levels.
    Depth,
    /// The most that is taken from a script as its result, in bytes; `limits.output_bytes` only cuts what is given on.
    Output,
    /// What the host holds for a call, in bytes.
    HostMemory,
    /// Host calls.
    HostCalls,
    /// Bytes through host calls.
    Io,
    /// Files and folders that are changed.
    Files,
    /// Bytes of one file.
    FileSize,
    /// Bytes of an HTTP body.
    Body,
}

impl LimitKind {
    /// All, in the order of listings.
    pub const ALL: [Self; 12] = [
        Self::Fuel,
        Self::Deadline,
        Self::Memory,
        Self::Stack,
        Self::Depth,
        Self::Output,
        Self::HostMemory,
        Self::HostCalls,
        Self::Io,
        Self::Files,
        Self::FileSize,
        Self::Body,
    ];

    /// The word for it in messages and JSON; for wall time the key that sets it, of the policy and of a tool.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fuel => "fuel",
            Self::Deadline => "timeout_ms",
            Self::Memory => "memory",
            Self::Stack => "stack",
            Self::Depth => "call depth",
            Self::Output => "output",
            Self::HostMemory => "host memory",
            Self::HostCalls => "host calls",
            Self::Io => "bytes of host calls",
            Self::Files => "files",
            Self::FileSize => "file size",
            Self::Body => "body size",
        }
    }

    /// The limit of the policy that it is, where it is one.
    pub fn limit(self) -> Option<LimitKey> {
        match self {
            Self::Fuel => Some(LimitKey::Fuel),
            Self::Deadline => Some(LimitKey::Timeout),
            Self::Memory => Some(LimitKey::Memory),
            Self::Output => Some(LimitKey::Result),
            Self::HostMemory => Some(LimitKey::HostMemory),
            Self::HostCalls => Some(LimitKey::HostCalls),
            Self::Io => Some(LimitKey::Io),
            Self::Files => Some(LimitKey::Files),
            Self::FileSize => Some(LimitKey::FileBytes),
            Self::Body => Some(LimitKey::Body),
            Self::Stack | Self::Depth => None,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.kind {
            LimitKind::Depth => "levels",
            // In bytes, as it is enforced.
            LimitKind::Memory | LimitKind::HostMemory | LimitKind::Stack => "bytes",
            kind => kind.limit().map_or("", |key| key.facts().unit),
        };
        write!(f, "over the limit `{}` of {} {unit}", self.kind.name(), self.allowed)?;
        let Some(Spot { line, column, live, asked }) = self.at else { return Ok(()) };
        match self.file.as_str() {
            "" => write!(f, " at line {line}, column {column}")?,
            file => write!(f, " at {file}:{line}:{column}")?,
        }
        if asked > 0 {
            write!(f, ", where {asked} bytes were requested at once")?;
        }
        if live > 0 {
            write!(f, "; values took {live} bytes when they were last counted")?;
        }
        Ok(())
    }
}

/// What kind of thing went wrong in a script: the enum `failure-kind` of the interface `script`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
pub enum FailureKind {
    /// The text is not Starlark of this dialect.
    #[component(name = "syntax")]
    Syntax,
    /// The script ran and failed.
    #[component(name = "script")]
    Script,
    /// A capability refused.
    #[component(name = "denied")]
    Denied,
    /// The value cannot be told as JSON.
    #[component(name = "value")]
    Value,
    /// Calls within calls, too deep.
    #[component(name = "depth")]
    Depth,
    /// The function that its kind needs is not there.
    #[component(name = "entry-point")]
    EntryPoint,
}

impl FailureKind {
    /// The word for it in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Script => "script",
            Self::Denied => "denied",
            Self::Value => "value",
            Self::Depth => "depth",
            Self::EntryPoint => "entry-point",
        }
    }
}

/// One line of a call stack: the record `frame`.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lift)]
#[component(record)]
#[expect(missing_docs, reason = "the fields are the interface's")]
pub struct Frame {
    pub name: String,
    pub file: String,
    pub line: u32,
    pub column: u32,
}

/// A script's error: the record `failure`. Lines and columns count from 1 in the artifact's file; 0 is unknown.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lift)]
#[component(record)]
#[expect(missing_docs, reason = "the fields are the interface's")]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
    pub file: String,
    pub line: u32,
    pub column: u32,
    pub stack: Vec<Frame>,
}

impl Failure {
    /// Puts notes instead of secrets.
    pub fn redact(&mut self, vault: &Vault) {
        let names = self.stack.iter_mut().map(|frame| &mut frame.name);
        names.chain([&mut self.message]).for_each(|text| vault.redact(text));
    }

    /// An error without a place in the script.
    pub fn without_place(kind: FailureKind, file: &str, message: String) -> Self {
        Self { kind, message, file: file.to_owned(), line: 0, column: 0, stack: Vec::new() }
    }
}

/// What a call used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Units of fuel, host calls included.
    pub fuel: u64,
    /// From the start of the instance to its end.
    pub wall: Duration,
    /// Before that, how long it waited for its script to be loaded.
    pub loading: Duration,
    /// The most linear memory at one time, in bytes.
    pub peak_memory: u64,
    /// Host calls.
    pub host_calls: u64,
    /// Bytes that the script gave to host calls.
    pub bytes_in: u64,
    /// Bytes that host calls gave to the script.
    pub bytes_out: u64,
    /// Bytes that the host copied for the script, which went through no call.
    pub bytes_copied: u64,
    /// Files and folders that were made, written, copied, moved or removed.
    pub files: u64,
    /// The most that the host held for the call at one time, in bytes.
    pub peak_host_memory: u64,
    /// The weakest wall that something ran behind.
    pub tier: Tier,
}

impl Usage {
    /// What counts for `limits.io_bytes`.
    pub fn io_bytes(&self) -> u64 {
        self.bytes_in.saturating_add(self.bytes_out).saturating_add(self.bytes_copied)
    }

    /// The form of it in JSON, wall time in microseconds.
    pub fn as_json(&self) -> Json {
        json!({
            "fuel": self.fuel,
            "wall_us": u64::try_from(self.wall.as_micros()).unwrap_or(u64::MAX),
            "loading_us": u64::try_from(self.loading.as_micros()).unwrap_or(u64::MAX),
            "peak_memory": self.peak_memory,
            "host_calls": self.host_calls,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "bytes_copied": self.bytes_copied,
            "files": self.files,
            "peak_host_memory": self.peak_host_memory,
            "tier": self.tier.name(),
        })
    }

    /// What something used with what it started: the fuel and the time of that are in its own, where it has any itself.
    #[must_use]
    pub fn around(self, started: Self) -> Self {
        Self { fuel: self.fuel.max(started.fuel), wall: self.wall.max(started.wall), ..self.and(started) }
    }

    /// What two calls used together. Of peaks it is the larger one: each has its own memory.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            fuel: self.fuel.saturating_add(other.fuel),
            wall: self.wall.saturating_add(other.wall),
            loading: self.loading.saturating_add(other.loading),
            peak_memory: self.peak_memory.max(other.peak_memory),
            host_calls: self.host_calls.saturating_add(other.host_calls),
            bytes_in: self.bytes_in.saturating_add(other.bytes_in),
            bytes_out: self.bytes_out.saturating_add(other.bytes_out),
            bytes_copied: self.bytes_copied.saturating_add(other.bytes_copied),
            files: self.files.saturating_add(other.files),
            peak_host_memory: self.peak_host_memory.max(other.peak_host_memory),
            tier: self.tier.max(other.tier),
        }
    }
}

/// One host call, for a record of what a script did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCall {
    /// Which.
    pub import: Import,
    /// What it was about: a path, a URL, a command. Not escaped; at most 200 bytes.
    pub subject: String,
    /// What it cost.
    pub fuel: u64,
    /// How long it took.
    pub wall: Duration,
    /// Bytes in and out.
    pub bytes: (u64, u64),
    /// Why it was refused, if it was.
    pub refused: Option<String>,
}

/// Everything that is known of a call.
#[derive(Debug, Clone)]
pub struct Report<T> {
    /// How it ended.
    pub outcome: Outcome<T>,
    /// What it used.
    pub usage: Usage,
    /// What the script logged.
    pub log: Log,
    /// Its host calls in order, the first [`MAX_CALLS`](super::state::MAX_CALLS) of them.
    pub calls: Vec<HostCall>,
    /// Which of its lines were reached, where the script was loaded to tell.
    pub coverage: Option<Coverage>,
}

impl<T> Report<T> {
    /// The same report of another ending.
    pub fn map<U>(self, map: impl FnOnce(Outcome<T>) -> Outcome<U>) -> Report<U> {
        let Self { outcome, usage, log, calls, coverage } = self;
        Report { outcome: map(outcome), usage, log, calls, coverage }
    }
}

/// What became of a hook that was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Its `when` was false.
    Unmatched,
    /// Its `when` raised an error.
    WhenFailed(Failure),
    /// What `handle` decided, as JSON.
    Decided(String),
}

/// A script as the interpreter takes it: the record `source`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, ComponentType, Lower)]
#[component(record)]
pub struct Source {
    /// Name of the artifact's file, for messages.
    pub file: String,
    /// Starlark text.
    pub text: String,
    /// Line of the file at which the text begins, from 1.
    #[component(name = "first-line")]
    pub first_line: u32,
    /// Columns that YAML took off each line.
    pub indent: u32,
    /// Which function the script must define.
    pub entry: Entry,
    /// The hook's `when`, if it has one.
    pub predicate: Option<Predicate>,
    /// Whether each call shows which lines it reached.
    pub coverage: bool,
}

impl Source {
    /// The digest of its text and of its `when`, which finds a script in a recording.
    pub fn code(&self) -> String {
        let when = self.predicate.as_ref().map_or("", |when| when.text.as_str());
        digest(&format!("{} {when}{}", when.len(), self.text))
    }
}

/// Which function a script must define: the enum `entry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
pub enum Entry {
    /// `run(args)`
    #[component(name = "tool")]
    Tool,
    /// `handle(event, payload)`
    #[component(name = "hook")]
    Hook,
}

/// A `when` expression: the record `predicate`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, ComponentType, Lower)]
#[component(record)]
#[expect(missing_docs, reason = "the fields are the interface's")]
pub struct Predicate {
    pub text: String,
    pub line: u32,
    pub column: u32,
}
