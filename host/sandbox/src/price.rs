//! The table of imports: who may call each, what becomes of its parameters and its answer, what it costs, and how much may
//! go in and come out.
//!
//! A new import does not compile until its row answers all of it.
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

impl Price {
    /// Whether `limits.file_bytes` is what bounds it.
    pub fn carries_a_file(self) -> bool {
        self.max_in == Cap::File || self.max_out == Cap::File
    }
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
/// All values of a turn, and what JSON makes of control characters in their keys.
const SNAPSHOT: u64 = 14 << 20;
/// A step of the work, with a message that the host cuts.
const STEP: u64 = 64 << 10;
/// Questions to a client.
const QUESTIONS: u64 = harness_capability::ask::MAX_ASKED as u64;
/// What it answers, and the words of an error.
const ANSWERS: u64 = harness_capability::ask::MAX_ANSWERED as u64 + (4 << 10);
/// A call of a pure built-in for its hooks, and the function's name.
const HEARD: u64 = (12 << 20) + (1 << 10);

/// In which file below `imports/` an import is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// `interpreter.rs`: what the interpreter itself needs, and what it reports.
    Interpreter,
    /// `files.rs`: files of the workspace.
    Files,
    /// `machine.rs`: servers, commands, the clock, random numbers, variables, secrets.
    Machine,
    /// `shared.rs`: values that calls share.
    Shared,
    /// `dispatched.rs`: what leads back into dispatch.
    Dispatched,
}

/// Which roles may call an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// Every role, a `when` included: the interpreter itself needs it.
    Interpreter,
    /// Tools and hooks.
    Scripts,
    /// Tools only.
    Tools,
}

/// Whether an import passes its parameters on to a file, a server or a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// They stay in the host's memory.
    Stays,
    /// They leave it: a call that holds a secret is denied.
    Leaves,
}

/// Whether a call counts for `limits.files`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// It changes no file.
    Unchanged,
    /// It changes one or more.
    Changed,
}

/// Where an answer comes from when a session is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// From the session's record: it came from outside of the interpreter and its scripts.
    Kept,
    /// From the same work, done again: it depends on nothing else, or leads back into dispatch.
    Again,
}

/// How the hooks on `builtin.pre` and `builtin.post` hear of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// As this function with these arguments.
    As(&'static str, &'static [&'static str]),
    /// Not by itself: the interpreter calls it, and not the script.
    Never,
}

/// What the host decides about an import. Each row of the table answers all of it; there are no defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Where it is linked.
    pub home: Home,
    /// Who may call it.
    pub callers: Callers,
    /// What becomes of its parameters.
    pub given: Given,
    /// Whether it changes files.
    pub files: Files,
    /// What a replay does.
    pub replay: Replay,
    /// How hooks hear of a call.
    pub seen: Seen,
    /// What it costs, and its caps.
    pub price: Price,
}

macro_rules! imports {
    ($($(#[$doc:meta])* $variant:ident = $interface:literal $function:literal
        $home:ident, $callers:ident, $given:ident, $files:ident, $replay:ident, $call:literal + $byte:literal, $in:expr => $out:expr, $seen:expr;)*) => {
        /// A function that the host gives to scripts.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "interface and function are the name")]
        pub enum Import { $($variant,)* }

        impl Import {
            /// All, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Interface and function, as in `wit/`.
            pub fn path(self) -> (&'static str, &'static str) {
                match self { $(Self::$variant => ($interface, $function),)* }
            }

            /// Its row of the table.
            pub fn facts(self) -> Facts {
                match self {
                    $(Self::$variant => Facts {
                        home: Home::$home,
                        callers: Callers::$callers,
                        given: Given::$given,
                        files: Files::$files,
                        replay: Replay::$replay,
                        seen: $seen,
                        price: Price { call: $call, byte: $byte, max_in: $in, max_out: $out },
                    },)*
                }
            }
        }
    };
}

impl Import {
    /// What it costs, and its caps.
    pub fn price(self) -> Price {
        self.facts().price
    }

    /// Whether its parameters leave the host's memory: for a file, a server or a command.
    pub fn leaves(self) -> bool {
        self.facts().given == Given::Leaves
    }

    /// Whether a call counts for `limits.files`.
    pub fn changes_files(self) -> bool {
        self.facts().files == Files::Changed
    }

    /// Whether a session keeps its answer.
    pub(super) fn is_taped(self) -> bool {
        self.facts().replay == Replay::Kept
    }
}

use Cap::{Bytes, File};
use Seen::{As, Never};

// What is new goes last: the kept cases of fuzzing call imports by their places.
// Name                  interface and function            home         callers      given   files      replay       call + byte in => out, seen by hooks
#[rustfmt::skip]
imports! {
    MonotonicNow        = "monotonic-clock" "now"           Interpreter, Interpreter, Stays,  Unchanged, Again,        2_000 + 0, Bytes(0) => Bytes(0), Never;
    InsecureSeed        = "insecure-seed" "insecure-seed"   Interpreter, Interpreter, Stays,  Unchanged, Again,        2_000 + 0, Bytes(0) => Bytes(0), Never;
    LastWordsWrite      = "last-words" "write"              Interpreter, Interpreter, Stays,  Unchanged, Again,        5_000 + 2, Bytes(1 << 20) => Bytes(0), Never;
    LogWrite            = "log" "write"                     Interpreter, Scripts,     Stays,  Unchanged, Again,        5_000 + 2, Bytes(1 << 20) => Bytes(0), As("log", &["level", "message"]);
    FsRead              = "fs" "read"                       Files,       Scripts,     Stays,  Unchanged, Kept,       100_000 + 2, Bytes(PATH) => File, As("fs.read", &["path"]);
    FsWrite             = "fs" "write"                      Files,       Tools,       Leaves, Changed,   Kept,     1_000_000 + 4, File => Bytes(PATH), As("fs.write", &["path", "content"]);
    FsAppend            = "fs" "append"                     Files,       Tools,       Leaves, Changed,   Kept,       200_000 + 4, File => Bytes(PATH), As("fs.append", &["path", "content"]);
    FsExists            = "fs" "exists"                     Files,       Scripts,     Stays,  Unchanged, Kept,        50_000 + 2, Bytes(PATH) => Bytes(0), As("fs.exists", &["path"]);
    FsStat              = "fs" "stat"                       Files,       Scripts,     Stays,  Unchanged, Kept,        50_000 + 2, Bytes(PATH) => Bytes(PATH), As("fs.stat", &["path"]);
    FsList              = "fs" "list"                       Files,       Scripts,     Stays,  Unchanged, Kept,      200_000 + 20, Bytes(PATH) => Bytes(NAMES), As("fs.list", &["path"]);
    FsGlob              = "fs" "glob"                       Files,       Scripts,     Stays,  Unchanged, Kept,    2_000_000 + 40, Bytes(PATH) => Bytes(NAMES), As("fs.glob", &["pattern"]);
    FsRemove            = "fs" "remove"                     Files,       Tools,       Stays,  Changed,   Kept,       200_000 + 2, Bytes(PATH) => Bytes(PATH), As("fs.remove", &["path"]);
    FsMkdir             = "fs" "mkdir"                      Files,       Tools,       Leaves, Changed,   Kept,       200_000 + 2, Bytes(PATH) => Bytes(PATH), As("fs.mkdir", &["path"]);
    FsCopy              = "fs" "copy"                       Files,       Tools,       Leaves, Changed,   Kept,    10_000_000 + 2, Bytes(PATH) => Bytes(PATH), As("fs.copy", &["src", "dst"]);
    FsMove              = "fs" "move"                       Files,       Tools,       Leaves, Changed,   Kept,       500_000 + 2, Bytes(PATH) => Bytes(PATH), As("fs.move", &["src", "dst"]);
    HttpSend            = "http" "send"                     Machine,     Scripts,     Leaves, Unchanged, Kept,     2_000_000 + 4, Bytes(EXCHANGE) => Bytes(EXCHANGE), As("http.request", &["method", "url", "headers", "body", "timeout_ms"]);
    ExecRun             = "exec" "run"                      Machine,     Tools,       Leaves, Unchanged, Kept,    10_000_000 + 4, Bytes(EXCHANGE) => Bytes(6 << 20), As("exec.run", &["cmd", "args", "dir", "env", "stdin", "timeout_ms"]);
    CacheGet            = "cache" "get"                     Shared,      Scripts,     Stays,  Unchanged, Kept,         5_000 + 4, Bytes(1 << 10) => Bytes(1 << 20), As("cache.get", &["key"]);
    CacheSet            = "cache" "set"                     Shared,      Scripts,     Stays,  Unchanged, Kept,         5_000 + 4, Bytes((1 << 20) + (1 << 10)) => Bytes(0), As("cache.set", &["key", "value"]);
    CacheHas            = "cache" "has"                     Shared,      Scripts,     Stays,  Unchanged, Kept,         5_000 + 4, Bytes(1 << 10) => Bytes(0), As("cache.has", &["key"]);
    CacheDelete         = "cache" "delete"                  Shared,      Scripts,     Stays,  Unchanged, Kept,         5_000 + 4, Bytes(1 << 10) => Bytes(0), As("cache.delete", &["key"]);
    CacheClear          = "cache" "clear"                   Shared,      Scripts,     Stays,  Unchanged, Kept,       100_000 + 4, Bytes(0) => Bytes(0), As("cache.clear", &[]);
    MetricsIncr         = "metrics" "incr"                  Shared,      Scripts,     Stays,  Unchanged, Kept,         5_000 + 4, Bytes(1 << 10) => Bytes(0), As("metrics.incr", &["name", "delta"]);
    MetricsSet          = "metrics" "set"                   Shared,      Scripts,     Stays,  Unchanged, Kept,         5_000 + 4, Bytes(1 << 10) => Bytes(0), As("metrics.set", &["name", "value"]);
    MetricsGet          = "metrics" "get"                   Shared,      Scripts,     Stays,  Unchanged, Kept,         5_000 + 4, Bytes(1 << 10) => Bytes(0), As("metrics.get", &["name"]);
    MetricsReset        = "metrics" "reset"                 Shared,      Scripts,     Stays,  Unchanged, Kept,        20_000 + 4, Bytes(1 << 10) => Bytes(0), As("metrics.reset", &["name"]);
    MetricsSnapshot     = "metrics" "snapshot"              Shared,      Scripts,     Stays,  Unchanged, Kept,        20_000 + 4, Bytes(0) => Bytes(1 << 20), As("metrics.snapshot", &[]);
    ClockNow            = "clock" "now"                     Machine,     Scripts,     Stays,  Unchanged, Kept,         2_000 + 0, Bytes(0) => Bytes(0), As("time.now", &[]);
    ClockSleep          = "clock" "sleep"                   Machine,     Scripts,     Stays,  Unchanged, Kept,        20_000 + 0, Bytes(0) => Bytes(0), As("sleep", &["ms"]);
    RandomBytes         = "random" "bytes"                  Machine,     Scripts,     Stays,  Unchanged, Kept,        5_000 + 20, Bytes(0) => Bytes(1 << 10), As("random", &["count"]);
    EventsEmit          = "events" "emit"                   Dispatched,  Scripts,     Stays,  Unchanged, Again,      200_000 + 4, Bytes((1 << 20) + (1 << 10)) => Bytes(8 << 20), As("events.emit", &["event", "payload"]);
    MetaRegisterTool    = "meta" "register-tool"            Dispatched,  Tools,       Stays,  Unchanged, Again,  20_000_000 + 20, Bytes(2 << 20) => Bytes(0), As("meta.register_tool", &["name", "description", "parameters", "script", "replace"]);
    MetaRegisterHook    = "meta" "register-hook"            Dispatched,  Tools,       Stays,  Unchanged, Again,  20_000_000 + 20, Bytes(2 << 20) => Bytes(0), As("meta.register_hook", &["name", "event", "script", "when", "priority"]);
    MetaCallTool        = "meta" "call-tool"                Dispatched,  Scripts,     Stays,  Unchanged, Again,      500_000 + 4, Bytes(EXCHANGE) => Bytes(EXCHANGE), As("meta.call_tool", &["name", "arguments"]);
    MetaListTools       = "meta" "list-tools"               Dispatched,  Scripts,     Stays,  Unchanged, Again,      200_000 + 4, Bytes(1 << 10) => Bytes(NAMES), As("meta.list_tools", &["pattern"]);
    AgentsDelegate      = "agents" "delegate"               Dispatched,  Tools,       Stays,  Unchanged, Again,    1_000_000 + 4, Bytes(1 << 20) => Bytes(8 << 20), As("delegate", &["agent", "task"]);
    AgentsDelegateAsync = "agents" "delegate-async"         Dispatched,  Tools,       Stays,  Unchanged, Again,    1_000_000 + 4, Bytes(1 << 20) => Bytes(1 << 10), As("delegate_async", &["agent", "task"]);
    TasksPoll           = "tasks" "poll"                    Dispatched,  Tools,       Stays,  Unchanged, Again,      100_000 + 4, Bytes(1 << 10) => Bytes(1 << 20), As("task.poll", &["id"]);
    TasksWait           = "tasks" "wait"                    Dispatched,  Tools,       Stays,  Unchanged, Again,      200_000 + 4, Bytes(16 << 10) => Bytes(8 << 20), As("task.await", &["ids", "timeout_ms"]);
    CoverageRecord      = "coverage" "record"               Interpreter, Scripts,     Stays,  Unchanged, Again,        5_000 + 1, Bytes(1 << 20) => Bytes(0), Never;
    EnvGet              = "env" "get"                       Machine,     Scripts,     Stays,  Unchanged, Kept,         5_000 + 4, Bytes(1 << 10) => Bytes(1 << 20), As("env", &["key"]);
    SecretsHandle       = "secrets" "handle"                Machine,     Scripts,     Stays,  Unchanged, Kept,         5_000 + 4, Bytes(1 << 10) => Bytes(2 << 10), As("secret", &["name"]);
    LimitsRegexBytes    = "limits" "regex-bytes"            Interpreter, Scripts,     Stays,  Unchanged, Again,        2_000 + 0, Bytes(0) => Bytes(0), Never;
    ObserveBefore       = "observe" "before"                Dispatched,  Tools,       Stays,  Unchanged, Again,      100_000 + 4, Bytes(HEARD) => Bytes(HEARD), Never;
    ObserveAfter        = "observe" "after"                 Dispatched,  Tools,       Stays,  Unchanged, Again,      100_000 + 4, Bytes(HEARD) => Bytes(HEARD), Never;
    TurnGet             = "turn" "get"                      Shared,      Scripts,     Stays,  Unchanged, Kept,         5_000 + 4, Bytes(1 << 10) => Bytes(1 << 20), As("ctx.get", &["key"]);
    TurnSet             = "turn" "set"                      Shared,      Scripts,     Stays,  Unchanged, Kept,         5_000 + 4, Bytes((1 << 20) + (1 << 10)) => Bytes(0), As("ctx.set", &["key", "value"]);
    TurnHas             = "turn" "has"                      Shared,      Scripts,     Stays,  Unchanged, Kept,         5_000 + 4, Bytes(1 << 10) => Bytes(0), As("ctx.has", &["key"]);
    TurnDelete          = "turn" "delete"                   Shared,      Scripts,     Stays,  Unchanged, Kept,         5_000 + 4, Bytes(1 << 10) => Bytes(0), As("ctx.delete", &["key"]);
    TurnClear           = "turn" "clear"                    Shared,      Scripts,     Stays,  Unchanged, Kept,        20_000 + 4, Bytes(0) => Bytes(0), As("ctx.clear", &[]);
    TurnSnapshot        = "turn" "snapshot"                 Shared,      Scripts,     Stays,  Unchanged, Kept,        50_000 + 4, Bytes(0) => Bytes(SNAPSHOT), As("ctx.snapshot", &[]);
    FsReadBase64        = "fs" "read-base64"                Files,       Scripts,     Stays,  Unchanged, Kept,       100_000 + 2, Bytes(PATH) => File, As("fs.read_base64", &["path"]);
    ProgressReport      = "progress" "report"               Interpreter, Tools,       Stays,  Unchanged, Again,        5_000 + 2, Bytes(STEP) => Bytes(0), As("progress", &["done", "total", "message"]);
    AskAsk              = "ask" "ask"                       Dispatched,  Tools,       Leaves, Unchanged, Kept,       200_000 + 4, Bytes(QUESTIONS) => Bytes(ANSWERS), As("ask.all", &["questions"]);
    AskCan              = "ask" "can"                       Dispatched,  Tools,       Stays,  Unchanged, Kept,         5_000 + 4, Bytes(0) => Bytes(1 << 10), As("ask.can", &[]);
    MetaCallAll         = "meta" "call-all"                 Dispatched,  Scripts,     Stays,  Unchanged, Again,      500_000 + 4, Bytes(EXCHANGE) => Bytes(EXCHANGE), As("meta.parallel", &["calls"]);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::imports::Role;

    /// Every function that the contract imports has a row, and every row is a function of the contract.
    #[test]
    fn the_table_is_the_contract() {
        let mut resolve = wit_parser::Resolve::default();
        let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("wit");
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

    /// A function that hooks hear of has the arguments of its row in the page on built-ins, or else a row in that on hooks.
    #[test]
    fn the_pages_tell_what_hooks_hear_of() {
        let section = include_str!("../../../docs/hooks.md").split("## Built-ins").nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
        let signatures = include_str!("../../../docs/builtins.md");
        for import in Import::ALL {
            let Seen::As(function, arguments) = import.facts().seen else { continue };
            let as_written = signatures.split_once(&format!("`{function}(")).and_then(|(_, rest)| {
                let parameters = rest.split_once(")`")?.0.split(", ").filter(|parameter| !parameter.is_empty());
                Some(parameters.map(|parameter| parameter.split('=').next().unwrap()).collect::<BTreeSet<_>>())
            });
            let row = rows.iter().find(|row| row.split(" | ").next().unwrap().contains(&format!("`{function}`")));
            match row {
                Some(row) => assert!(
                    arguments.iter().all(|argument| row.contains(&format!("`{argument}`"))),
                    "{function}: {arguments:?}"
                ),
                None => assert_eq!(as_written, Some(arguments.iter().copied().collect()), "{function}"),
            }
        }
    }

    /// What the table opens to each role, and what it says of each function that reaches the world, in whole: a changed
    /// answer is a decision and shows up here.
    #[test]
    fn the_answers_of_the_table() {
        let named = |keep: &dyn Fn(Import) -> bool| {
            let all = Import::ALL.iter().filter(|import| keep(**import)).map(|import| import.path());
            all.map(|(interface, function)| format!("{interface}.{function}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(named(&|import| !Role::Tool.may(import)), "");
        assert_eq!(
            named(&|import| !Role::Hook.may(import)),
            "fs.write fs.append fs.remove fs.mkdir fs.copy fs.move exec.run meta.register-tool meta.register-hook \
             agents.delegate agents.delegate-async tasks.poll tasks.wait observe.before observe.after progress.report \
             ask.ask ask.can"
        );
        assert_eq!(
            named(&|import| Role::Predicate.may(import)),
            "monotonic-clock.now insecure-seed.insecure-seed last-words.write"
        );
        assert_eq!(named(&Import::leaves), "fs.write fs.append fs.mkdir fs.copy fs.move http.send exec.run ask.ask");
        assert_eq!(named(&Import::changes_files), "fs.write fs.append fs.remove fs.mkdir fs.copy fs.move");
        assert_eq!(
            named(&|import| !import.is_taped()),
            "monotonic-clock.now insecure-seed.insecure-seed last-words.write log.write events.emit \
             meta.register-tool meta.register-hook meta.call-tool meta.list-tools agents.delegate \
             agents.delegate-async tasks.poll tasks.wait coverage.record limits.regex-bytes observe.before observe.after \
             progress.report meta.call-all"
        );
        assert_eq!(named(&|import| import.price().carries_a_file()), "fs.read fs.write fs.append fs.read-base64");
        assert_eq!(
            named(&|import| import.facts().seen == Seen::Never),
            "monotonic-clock.now insecure-seed.insecure-seed last-words.write coverage.record limits.regex-bytes \
             observe.before observe.after"
        );
        // A hook changes nothing, whatever a row says of it.
        assert!(Import::ALL.iter().all(|import| !import.changes_files() || !Role::Hook.may(*import)));
    }
}
