//! What one call may use at most.

use std::time::Duration;

/// The limits of one call. Every one has a default; a policy can set each (`sandbox.limits`), and of several layers
/// the smallest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// WebAssembly work and host calls, in wasmtime's fuel: about one unit an instruction, some ten a
    /// nanosecond. 10,000,000,000 is about a second of one core.
    pub fuel: u64,
    /// Wall time of the whole call, host calls included. 30 s: what people wait for a tool.
    pub timeout: Duration,
    /// Linear memory of the instance, in bytes. 64 MiB: the interpreter takes some 6 MiB of it.
    pub memory_bytes: u64,
    /// Result of a tool, in bytes of UTF-8. 64 KiB: what a model can use.
    pub output_bytes: u64,
    /// Processes that a command and its children may be at one time.
    pub processes: u64,
    /// Size of any file that is read or written, in bytes. 16 MiB.
    pub file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: 10_000_000_000,
            timeout: Duration::from_secs(30),
            memory_bytes: 64 << 20,
            output_bytes: 64 << 10,
            processes: 64,
            file_bytes: 16 << 20,
        }
    }
}

/// Limits as a layer of policy gives them: only those it names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of Limits")]
pub struct LimitRules {
    pub fuel: Option<u64>,
    pub timeout: Option<Duration>,
    pub memory_bytes: Option<u64>,
    pub output_bytes: Option<u64>,
    pub processes: Option<u64>,
    pub file_bytes: Option<u64>,
}
