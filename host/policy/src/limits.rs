//! What one call may use at most: one table.
//!
//! A limit has a name in the policy, a default with its reason, and bounds for what a policy may say. Of several layers
//! the smallest counts.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitFacts {
    /// The key below `limits`.
    pub name: &'static str,
    /// What holds where no layer names it.
    pub default: u64,
    /// What a policy may say.
    pub bounds: RangeInclusive<u64>,
    /// The unit of the three above.
    pub unit: &'static str,
    /// What it limits.
    pub what: &'static str,
    /// Why the default is what it is.
    pub why: &'static str,
}

macro_rules! limits {
    ($($key:ident = $name:literal, $default:expr, $bounds:expr, $unit:literal, $what:literal, $why:literal;)*) => {
        /// A limit by its key in a policy.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum LimitKey { $(#[doc = $what] $key,)* }

        impl LimitKey {
            /// All, in the order of listings.
            pub const ALL: &[Self] = &[$(Self::$key,)*];

            /// Its row.
            pub fn facts(self) -> LimitFacts {
                match self {
                    $(Self::$key => LimitFacts {
                        name: $name, default: $default, bounds: $bounds, unit: $unit, what: $what, why: $why,
                    },)*
                }
            }
        }
    };
}

limits! {
    Fuel = "fuel", 10_000_000_000, 1..=1_000_000_000_000_000, "units",
        "WebAssembly instructions and host calls, each at its price",
        "about a second of one core; a unit is about an instruction, some ten a nanosecond";
    Timeout = "timeout_ms", 30_000, 1..=86_400_000, "ms",
        "wall time, including waiting",
        "how long people wait for a tool. A tool's own `timeout_ms` may set another time: up to this limit if it is set, otherwise up to 600,000; in a plugin, up to the default";
    Memory = "memory_mb", 64, 16..=4096, "MiB",
        "linear memory of the instance",
        "the interpreter takes some 6 MiB; the rest is for the largest file and the values that a script makes of it";
    Output = "output_bytes", 64 << 10, 256..=16 << 20, "bytes",
        "the result as a model gets it; the rest is cut, with a notice",
        "some 16,000 tokens: what a model can use of one answer";
    Result = "result_bytes", 4 << 20, 256..=16 << 20, "bytes",
        "the result as hooks and programs get it",
        "a quarter of the largest file; a model gets `output_bytes` of it";
    HostMemory = "host_memory_mb", 64, 1..=4096, "MiB",
        "memory of the host for a call: its log, its records, and the data of the current host call",
        "as much as the call itself may use; room for the longest log and the longest listing";
    HostCalls = "host_calls", 100_000, 1..=1_000_000_000, "calls",
        "host calls, including denied ones",
        "ten for each of the 10,000 names of the longest listing";
    Io = "io_bytes", 256 << 20, 1..=1 << 40, "bytes",
        "bytes through host calls, in both directions, and bytes that `fs.copy` copies; not the bytes that a command writes",
        "sixteen of the largest files";
    Files = "files", 10_000, 0..=10_000_000, "files",
        "files and folders that host calls create, write, copy, move or remove; not those of a command",
        "as many as the longest listing has names; more would fill the tables of a disk";
    FileBytes = "file_bytes", 16 << 20, 1..=1 << 30, "bytes",
        "the size of each file that is read, written or copied, also by a command",
        "a quarter of the instance's memory, in which a script holds it as text";
    Body = "body_bytes", 10 << 20, 1..=10 << 20, "bytes",
        "the body of an HTTP request or response, as received and after decompression",
        "the most that the contract allows; pages and APIs are far below";
    Regex = "regex_bytes", 1 << 20, 1 << 10..=16 << 20, "bytes",
        "a compiled pattern of `re`, with the memory of the engine while it searches",
        "eight are kept for the next search, a quarter of the instance's memory at most; `\\w` takes 40 KiB each time";
    LogLines = "log_lines", 1_000, 0..=100_000, "lines",
        "log lines that are kept, each of at most 16 KiB; further lines are counted and dropped",
        "more than people read of one call, and at most 16 MiB in the host";
    Processes = "processes", 64, 1..=4096, "processes",
        "processes and threads of a command at one time",
        "enough for a parallel build on a large machine; stops a fork bomb";
    CommandMemory = "command_memory_mb", 4096, 16..=1 << 20, "MiB",
        "memory of a command: the total in a control group, otherwise that of each process",
        "compilers and linkers take two gigabytes; more would starve other programs";
}

/// The limits of one call, in the units that they are enforced in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table says it")]
pub struct Limits {
    pub fuel: u64,
    pub timeout: Duration,
    /// Of `timeout`, how much is over when the script begins to run: it was waited for to be loaded.
    pub waited: Duration,
    /// Of `timeout`, how much is over for another reason: the hooks of an event have it together.
    pub gone: Duration,
    pub memory_bytes: u64,
    pub output_bytes: u64,
    pub result_bytes: u64,
    pub host_memory_bytes: u64,
    pub host_calls: u64,
    pub io_bytes: u64,
    pub files: u64,
    pub file_bytes: u64,
    pub body_bytes: u64,
    pub regex_bytes: u64,
    pub log_lines: u64,
    pub processes: u64,
    pub command_memory_bytes: u64,
}

impl Limits {
    /// Of the time, what is left when the script begins to run.
    pub fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.waited.max(self.gone))
    }

    /// Leaves no more of the time than this.
    pub fn end_within(&mut self, left: Option<Duration>) {
        self.gone = left.map_or(Duration::ZERO, |left| self.timeout.saturating_sub(left));
    }

    /// Limits of which each is asked for, in the unit of its key.
    pub fn of(get: impl Fn(LimitKey) -> u64) -> Self {
        let mebibytes = |key| get(key).saturating_mul(1 << 20);
        Self {
            fuel: get(LimitKey::Fuel),
            timeout: Duration::from_millis(get(LimitKey::Timeout)),
            waited: Duration::ZERO,
            gone: Duration::ZERO,
            memory_bytes: mebibytes(LimitKey::Memory),
            output_bytes: get(LimitKey::Output),
            result_bytes: get(LimitKey::Result),
            host_memory_bytes: mebibytes(LimitKey::HostMemory),
            host_calls: get(LimitKey::HostCalls),
            io_bytes: get(LimitKey::Io),
            files: get(LimitKey::Files),
            file_bytes: get(LimitKey::FileBytes),
            body_bytes: get(LimitKey::Body),
            regex_bytes: get(LimitKey::Regex),
            log_lines: get(LimitKey::LogLines),
            processes: get(LimitKey::Processes),
            command_memory_bytes: mebibytes(LimitKey::CommandMemory),
        }
    }

    /// One of them, in the unit of its key.
    pub fn get(&self, key: LimitKey) -> u64 {
        match key {
            LimitKey::Fuel => self.fuel,
            LimitKey::Timeout => u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
            LimitKey::Memory => self.memory_bytes >> 20,
            LimitKey::Output => self.output_bytes,
            LimitKey::Result => self.result_bytes,
            LimitKey::HostMemory => self.host_memory_bytes >> 20,
            LimitKey::HostCalls => self.host_calls,
            LimitKey::Io => self.io_bytes,
            LimitKey::Files => self.files,
            LimitKey::FileBytes => self.file_bytes,
            LimitKey::Body => self.body_bytes,
            LimitKey::Regex => self.regex_bytes,
            LimitKey::LogLines => self.log_lines,
            LimitKey::Processes => self.processes,
            LimitKey::CommandMemory => self.command_memory_bytes >> 20,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(|key| key.facts().default)
    }
}

/// Limits as a layer of policy gives them, in the units of their keys: only those it names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitRules([Option<u64>; LimitKey::ALL.len()]);

impl LimitRules {
    /// What it says of a limit.
    pub fn get(&self, key: LimitKey) -> Option<u64> {
        self.0.get(key as usize).copied().flatten()
    }

    /// Says something of a limit.
    #[must_use]
    pub fn with(mut self, key: LimitKey, value: Option<u64>) -> Self {
        if let Some(place) = self.0.get_mut(key as usize) {
            *place = value;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_a_place_of_its_own() {
        let numbered = Limits::of(|key| key as u64 + 1);
        for key in LimitKey::ALL {
            let facts = key.facts();
            assert_eq!(numbered.get(*key), *key as u64 + 1, "{}", facts.name);
            assert!(facts.bounds.contains(&facts.default), "{}", facts.name);
            let rules = LimitRules::default().with(*key, Some(7));
            for other in LimitKey::ALL {
                assert_eq!(rules.get(*other), (key == other).then_some(7));
            }
        }
    }
}
