//! What each host call costs, and how much may go in and come out: one table.
//!
//! Fuel is about one unit for a WebAssembly instruction, some ten of them a nanosecond. A price is set so that a
//! script cannot keep the host busy for much longer than the same fuel would keep the script busy.

/// The price and the caps of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Fuel for a call.
    pub call: u64,
    /// Fuel for each byte that goes in or comes out.
    pub byte: u64,
    /// Bytes that may go in; more ends the call of the script as a refused request, unless the interface has an error
    /// for it.
    pub max_in: Cap,
    /// Bytes that may come out. The function itself keeps to it; one that does not is a fault of the host.
    pub max_out: Cap,
}

/// A cap in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cap {
    /// Always this.
    Bytes(u64),
    /// `limits.file_bytes`, and a path.
    File,
}

impl Cap {
    /// In bytes, where a file may have `file_bytes`.
    pub fn bytes(self, file_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::File => file_bytes.saturating_add(PATH),
        }
    }
}

/// Two paths and their lengths; see `wit/fs.wit`.
const PATH: u64 = 8 << 10;
/// Names of a listing: 10,000 of them, each at most a path.
const NAMES: u64 = 40 << 20;
/// A request or an answer of `http`, and the parts around its body.
const EXCHANGE: u64 = 12 << 20;

macro_rules! imports {
    ($($(#[$doc:meta])* $variant:ident = $interface:literal $function:literal, $call:literal + $byte:literal, $in:expr => $out:expr;)*) => {
        /// A function that the host gives to scripts.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "interface and function are the name")]
        pub enum Import { $($variant,)* }

        impl Import {
            /// All, by interface.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Interface and function, as in `wit/`.
            pub fn path(self) -> (&'static str, &'static str) {
                match self { $(Self::$variant => ($interface, $function),)* }
            }

            /// Whether what it is given leaves the host's memory: for a file, a server or a command.
            pub fn leaves(self) -> bool {
                matches!(
                    self,
                    Self::FsWrite
                        | Self::FsAppend
                        | Self::FsMkdir
                        | Self::FsCopy
                        | Self::FsMove
                        | Self::HttpSend
                        | Self::ExecRun
                )
            }

            /// What it costs, and its caps.
            pub fn price(self) -> Price {
                match self {
                    $(Self::$variant => Price { call: $call, byte: $byte, max_in: $in, max_out: $out },)*
                }
            }
        }
    };
}

impl Import {
    /// Whether a call counts for `limits.files`.
    pub fn changes_files(self) -> bool {
        matches!(self, Self::FsWrite | Self::FsAppend | Self::FsRemove | Self::FsMkdir | Self::FsCopy | Self::FsMove)
    }
}

use Cap::{Bytes, File};

// What is new goes last: the kept cases of fuzzing call imports by their places.
// Name                interface   function      call + byte        in => out
imports! {
    MonotonicNow     = "monotonic-clock" "now",  2_000 + 0,       Bytes(0) => Bytes(0);
    InsecureSeed     = "insecure-seed" "insecure-seed", 2_000 + 0, Bytes(0) => Bytes(0);
    LastWordsWrite   = "last-words" "write",     5_000 + 2,       Bytes(1 << 20) => Bytes(0);
    LogWrite         = "log"     "write",        5_000 + 2,       Bytes(1 << 20) => Bytes(0);
    FsRead           = "fs"      "read",       100_000 + 2,       Bytes(PATH) => File;
    FsWrite          = "fs"      "write",    1_000_000 + 4,       File => Bytes(PATH);
    FsAppend         = "fs"      "append",     200_000 + 4,       File => Bytes(PATH);
    FsExists         = "fs"      "exists",      50_000 + 2,       Bytes(PATH) => Bytes(0);
    FsStat           = "fs"      "stat",        50_000 + 2,       Bytes(PATH) => Bytes(PATH);
    FsList           = "fs"      "list",       200_000 + 20,      Bytes(PATH) => Bytes(NAMES);
    FsGlob           = "fs"      "glob",     2_000_000 + 40,      Bytes(PATH) => Bytes(NAMES);
    FsRemove         = "fs"      "remove",     200_000 + 2,       Bytes(PATH) => Bytes(PATH);
    FsMkdir          = "fs"      "mkdir",      200_000 + 2,       Bytes(PATH) => Bytes(PATH);
    FsCopy           = "fs"      "copy",    10_000_000 + 2,       Bytes(PATH) => Bytes(PATH);
    FsMove           = "fs"      "move",       500_000 + 2,       Bytes(PATH) => Bytes(PATH);
    HttpSend         = "http"    "send",     2_000_000 + 4,       Bytes(EXCHANGE) => Bytes(EXCHANGE);
    ExecRun          = "exec"    "run",     10_000_000 + 4,       Bytes(EXCHANGE) => Bytes(6 << 20);
    CacheGet         = "cache"   "get",          5_000 + 4,       Bytes(1 << 10) => Bytes(1 << 20);
    CacheSet         = "cache"   "set",          5_000 + 4,       Bytes((1 << 20) + (1 << 10)) => Bytes(0);
    CacheHas         = "cache"   "has",          5_000 + 4,       Bytes(1 << 10) => Bytes(0);
    CacheDelete      = "cache"   "delete",       5_000 + 4,       Bytes(1 << 10) => Bytes(0);
    CacheClear       = "cache"   "clear",      100_000 + 4,       Bytes(0) => Bytes(0);
    MetricsIncr      = "metrics" "incr",         5_000 + 4,       Bytes(1 << 10) => Bytes(0);
    MetricsSet       = "metrics" "set",          5_000 + 4,       Bytes(1 << 10) => Bytes(0);
    MetricsGet       = "metrics" "get",          5_000 + 4,       Bytes(1 << 10) => Bytes(0);
    MetricsReset     = "metrics" "reset",       20_000 + 4,       Bytes(1 << 10) => Bytes(0);
    MetricsSnapshot  = "metrics" "snapshot",    20_000 + 4,       Bytes(0) => Bytes(1 << 20);
    ClockNow         = "clock"   "now",          2_000 + 0,       Bytes(0) => Bytes(0);
    ClockSleep       = "clock"   "sleep",       20_000 + 0,       Bytes(0) => Bytes(0);
    RandomBytes      = "random"  "bytes",        5_000 + 20,      Bytes(0) => Bytes(1 << 10);
    EventsEmit       = "events"  "emit",       200_000 + 4,       Bytes((1 << 20) + (1 << 10)) => Bytes(8 << 20);
    MetaRegisterTool = "meta"    "register-tool", 20_000_000 + 20, Bytes(2 << 20) => Bytes(0);
    MetaRegisterHook = "meta"    "register-hook", 20_000_000 + 20, Bytes(2 << 20) => Bytes(0);
    MetaCallTool     = "meta"    "call-tool",  500_000 + 4,       Bytes(EXCHANGE) => Bytes(EXCHANGE);
    MetaListTools    = "meta"    "list-tools", 200_000 + 4,       Bytes(1 << 10) => Bytes(NAMES);
    AgentsDelegate   = "agents"  "delegate", 1_000_000 + 4,       Bytes(1 << 20) => Bytes(8 << 20);
    AgentsDelegateAsync = "agents" "delegate-async", 1_000_000 + 4, Bytes(1 << 20) => Bytes(1 << 10);
    TasksPoll        = "tasks"   "poll",       100_000 + 4,       Bytes(1 << 10) => Bytes(1 << 20);
    TasksWait        = "tasks"   "wait",       200_000 + 4,       Bytes(16 << 10) => Bytes(8 << 20);
    CoverageRecord   = "coverage" "record",      5_000 + 1,       Bytes(1 << 20) => Bytes(0);
    EnvGet           = "env"     "get",          5_000 + 4,       Bytes(1 << 10) => Bytes(1 << 20);
    SecretsHandle    = "secrets" "handle",       5_000 + 4,       Bytes(1 << 10) => Bytes(2 << 10);
    LimitsRegexBytes = "limits"  "regex-bytes",  2_000 + 0,       Bytes(0) => Bytes(0);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Every function that the contract imports has a row, and every row is a function of the contract.
    #[test]
    fn the_table_is_the_contract() {
        let mut resolve = wit_parser::Resolve::default();
        let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit");
        let (package, _) = resolve.push_dir(&wit).unwrap();
        let world = &resolve.worlds[resolve.packages[package].worlds["interpreter"]];
        let mut contract = BTreeSet::new();
        for (_, item) in &world.imports {
            let wit_parser::WorldItem::Interface { id, .. } = item else { panic!("only interfaces are imported") };
            let interface = &resolve.interfaces[*id];
            for function in interface.functions.keys() {
                contract.insert((interface.name.clone().unwrap(), function.clone()));
            }
        }
        let owned = |(interface, function): (&str, &str)| (interface.to_owned(), function.to_owned());
        let table: BTreeSet<_> = Import::ALL.iter().map(|import| owned(import.path())).collect();
        assert_eq!(table, contract);
        assert_eq!(table.len(), Import::ALL.len(), "a function has two rows");
        assert!(Import::ALL.iter().all(|import| import.price().call > 0), "a call is free");
    }
}
