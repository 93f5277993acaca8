//! The corpus: all cases, each from beginning to end with its control, and the host before and after.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use harness_policy::limits::LimitKey;
use harness_wall::{Files, Offers, wait_for_ends};
use tokio::runtime::Runtime;

use crate::attempt::{Seen, attempt, write};
use crate::case::{self, Case, Setting, Verdict};
use crate::process::{CANARY, Held, children_left, lingering};
use crate::world::{Servers, Stage, World};
use crate::{
    Arguments, clients, guests, host, imports, logs, mounts, plugins, printed, races, servers as mcp_servers, state,
    tenants,
};

/// The areas of the catalogue, in its order, and those for guests that are no interpreter and for the host's own process.
pub(crate) const AREAS: [&str; 18] = [
    "paths",
    "links",
    "odd",
    "protected",
    "urls",
    "network",
    "commands",
    "resources",
    "input",
    "state",
    "output",
    "policy",
    "guests",
    "host",
    "tenants",
    "clients",
    "servers",
    "plugins",
];

/// Longest time for what is left of a command that was given up.
const ENDS: Duration = Duration::from_secs(10);
/// How often a case that was late is tried at most: a machine may be late now and then, a host that waits is late always.
const TRIES: usize = 4;
/// One in so many cases is tried once more when all were, to see whether the host grows.
const AGAIN: usize = 5;
/// How often at most. What leaks does so each time.
const ROUNDS: usize = 6;
/// By how much its resident memory outside of the pools may have grown in the last of them, in KiB.
const MAY_GROW: u64 = 16 << 10;

/// What can be tried.
#[derive(Debug, Clone)]
pub(crate) enum Any {
    /// As the tables have it.
    Table(Box<Case>),
    /// A guest that is no interpreter, and its control.
    Guest(Box<guests::Case>),
    /// A plugin from elsewhere, in a room of its own.
    Plugin(Box<plugins::Case>),
    /// Everything that is tried of a function of the contract.
    Import(imports::Case),
    /// What takes a program to try.
    Coded(Coded),
}

/// A case in code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Coded {
    pub(crate) id: &'static str,
    pub(crate) tried: &'static str,
    /// What was wrong, and in a few words what happened.
    pub(crate) run: fn(&Runtime, &Servers) -> Result<String, String>,
    pub(crate) control: fn(&Runtime, &Servers) -> Result<String, String>,
}

impl Any {
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Table(case) => &case.id,
            Self::Guest(case) => &case.id,
            Self::Plugin(case) => &case.id,
            Self::Import(case) => &case.id,
            Self::Coded(case) => case.id,
        }
    }

    pub(crate) fn area(&self) -> &str {
        self.id().split('-').next().unwrap()
    }

    /// Whether it names a failure of another process.
    pub(crate) fn known(&self) -> bool {
        match self {
            Self::Table(case) => case.known.is_some(),
            Self::Plugin(case) => case.known.is_some(),
            Self::Guest(_) | Self::Import(_) => false,
            Self::Coded(case) => case.tried.contains("CVE") || case.tried.contains("harvey"),
        }
    }

    fn tried(&self) -> &str {
        match self {
            Self::Table(case) => &case.tried,
            Self::Guest(case) => &case.tried,
            Self::Plugin(case) => &case.tried,
            Self::Import(case) => &case.tried,
            Self::Coded(case) => case.tried,
        }
    }
}

/// Where the files are.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/attacks"))
}

/// All cases, by area, sorted by their numbers.
pub(crate) fn all() -> Vec<Any> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder().join("cases")).unwrap() {
        let path = entry.unwrap().path();
        let (name, text) = (path.file_name().unwrap().to_str().unwrap(), std::fs::read_to_string(&path).unwrap());
        cases.extend(case::read(name, &text).into_iter().map(|case| Any::Table(Box::new(case))));
    }
    cases.extend(guests::all().into_iter().map(|case| Any::Guest(Box::new(case))));
    cases.extend(plugins::all().into_iter().map(|case| Any::Plugin(Box::new(case))));
    cases.extend(imports::all().into_iter().map(Any::Import));
    let coded = [races::CASES, state::CASES, mounts::CASES, printed::CASES, logs::CASES, host::CASES];
    let coded = coded.iter().chain(tenants::CASES).chain(clients::CASES).chain(mcp_servers::CASES).copied();
    cases.extend(coded.flatten().map(|case| Any::Coded(*case)));
    cases.sort_by_key(|case| (AREAS.iter().position(|area| *area == case.area()), case.id().to_owned()));
    cases
}

/// What is wrong with the corpus itself.
pub(crate) fn check(cases: &[Any]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut ids = BTreeSet::new();
    for case in cases {
        let id = case.id();
        let number = id.strip_prefix(case.area()).and_then(|rest| rest.strip_prefix('-'));
        if number.is_none_or(|number| number.len() != 3 || number.parse::<u32>().is_err()) {
            wrong.push(format!("{id} is not an area and three digits"));
        }
        if !AREAS.contains(&case.area()) {
            wrong.push(format!("{id} is of no area"));
        }
        if !ids.insert(id) {
            wrong.push(format!("{id} is there twice"));
        }
        if case.tried().is_empty() {
            wrong.push(format!("{id} does not say what it tries"));
        }
        if let Any::Plugin(case) = case {
            wrong.extend(case.check());
        }
        if let Any::Table(case) = case {
            for alone in [false, true] {
                let (setting, control) = (case.setting.clone().here(alone), case.control().here(alone));
                if setting.ends.wanted().is_none() {
                    wrong.push(format!("{id} does not say in one way how it must end"));
                }
                // A control that is refused shows nothing.
                if control.ends.wanted().is_none_or(|wanted| wanted.word != "gives") {
                    wrong.push(format!("{id} has no control that gives something"));
                }
                if !differs(&setting, &control) {
                    wrong.push(format!("{id} is its own control"));
                }
            }
        }
    }
    let policies = || {
        cases.iter().filter_map(|case| if let Any::Table(case) = case { case.setting.policy.as_ref() } else { None })
    };
    for key in LimitKey::ALL {
        let name = key.facts().name;
        if !policies().any(|policy| policy.contains("limits:") && policy.contains(&format!("{name}: "))) {
            wrong.push(format!("there is no case that goes over the limit `{name}`"));
        }
    }
    for area in AREAS {
        if !cases.iter().any(|case| case.area() == area) {
            wrong.push(format!("there is no case of `{area}`"));
        }
    }
    wrong
}

fn differs(case: &Setting, control: &Setting) -> bool {
    let of = |setting: &Setting| format!("{:?}", Setting { ends: case::Ends::default(), ..setting.clone() });
    of(case) != of(control)
}

/// Runs cases and prints the table. Gives back how many failed, the host's own growth among them.
pub(crate) fn run(runtime: &Runtime, servers: &Servers, cases: &[Any], arguments: &Arguments) -> usize {
    let fail_fast = arguments.fail_fast;
    let here = Here { alone: alone(), confined: arguments.confined };
    println!("{:<14} {:<68} {:<10} {:<8} {:>9}", "id", "tried", "verdict", "control", "time");
    let (stage, rooms) = (Stage::new(), plugins::Rooms::default());
    let row = |case: &Any| match case {
        Any::Table(case) => tabled(runtime, servers, &stage, here, case),
        Any::Guest(case) => guests::row(runtime, servers, &stage, case),
        Any::Plugin(case) => plugins::row(servers, &rooms, case),
        Any::Import(case) => imports::row(runtime, servers, case),
        Any::Coded(case) => coded(runtime, servers, case),
    };
    let mut failed = 0;
    for case in cases {
        let row = row(case);
        let control = if row.control { "passed" } else { "FAILED" };
        let took = format!("{:.1} ms", row.took.as_secs_f64() * 1e3);
        println!("{:<14} {:<68} {:<10} {control:<8} {took:>9}", case.id(), shortened(case.tried(), 68), row.verdict);
        for wrong in &row.wrong {
            println!("    FAILED {}: {wrong}", case.id());
        }
        failed += usize::from(!row.wrong.is_empty());
        if failed > 0 && fail_fast {
            return failed;
        }
    }
    if fail_fast {
        return failed;
    }
    // All that is made once has been made: code paths, threads of the runtime, slots of the pools, arenas.
    let mut before = Held::settled(runtime, None);
    println!("\nafter all: {before}");
    let (mut grown, mut wrong) = (true, 0);
    // What the project of the last case holds, such as the images of its scripts, is held in both.
    let last = cases.iter().rev().find(|case| matches!(case, Any::Table(_)));
    let again: Vec<&Any> = cases.iter().step_by(AGAIN).chain(last).collect();
    for _ in 0..ROUNDS {
        for case in &again {
            let row = row(case);
            row.wrong.iter().for_each(|wrong| println!("    FAILED {} once more: {wrong}", case.id()));
            wrong += usize::from(!row.wrong.is_empty());
        }
        let after = Held::settled(runtime, Some(before));
        println!("after every {AGAIN}th once more: {after}");
        let left = after.descriptors > before.descriptors
            || after.threads > before.threads
            || after.children > before.children;
        grown = left || after.outside > before.outside + MAY_GROW;
        // The guests' threads are made for the first call that takes long, which depends on the machine: it may be one of
        // these. Then it is looked once more, and threads that are made each time are seen in the end.
        let made = after.guests > before.guests && after.children <= before.children;
        if left && !made || !grown {
            break;
        }
        before = after;
    }
    if grown {
        println!("    FAILED the host has grown");
        failed += 1;
    }
    if wrong > 0 {
        println!("    FAILED {wrong} cases once more");
        failed += 1;
    }
    failed
}

/// A line of the table.
pub(crate) struct Row {
    pub(crate) verdict: String,
    pub(crate) control: bool,
    pub(crate) took: Duration,
    pub(crate) wrong: Vec<String>,
}

/// What a case concerns.
#[derive(Debug, Clone, Copy)]
struct Here {
    /// Commands are behind Landlock alone.
    alone: bool,
    /// This process has given up what it does not need, and so have commands without a wall.
    confined: bool,
}

/// Whether commands are behind Landlock alone.
pub(crate) fn alone() -> bool {
    Offers::get().wall().is_ok_and(|wall| wall.files == Files::Rules)
}

impl Here {
    /// As it is tried here; nothing where it cannot be.
    fn setting(self, setting: Setting) -> Option<Setting> {
        let setting = setting.here(self.alone);
        let unconfined = setting.policy.as_ref().is_some_and(|policy| policy.contains("unconfined: true"));
        (!(self.confined && unconfined)).then_some(setting)
    }
}

fn tabled(runtime: &Runtime, servers: &Servers, stage: &Stage, here: Here, case: &Case) -> Row {
    let one = [String::new()];
    let each = if case.each.is_empty() { &one } else { case.each.as_slice() };
    let mut row = Row { verdict: String::new(), control: true, took: Duration::ZERO, wrong: Vec::new() };
    let (Some(setting), Some(control)) =
        (here.setting(case.setting.clone()), here.setting(case.control()).map(case::patient))
    else {
        println!("    {} was NOT tried: its commands would have no wall, and what this process gave up", case.id);
        return Row { verdict: "not tried".to_owned(), ..row };
    };
    if here.alone && case.setting.landlock.is_some() {
        println!("    {} needs a view, and there is none: what is weaker here is looked at", case.id);
    }
    for each in each {
        let (seen, wrong) = once(runtime, servers, stage, (&setting, each), true);
        row.took = row.took.max(seen.took);
        row.verdict = seen.verdict.word.to_owned();
        row.wrong.extend(wrong);
        let (_, wrong) = once(runtime, servers, stage, (&control, each), false);
        row.control &= wrong.is_empty();
        row.wrong.extend(wrong.into_iter().map(|wrong| format!("the control: {wrong}")));
    }
    row
}

fn coded(runtime: &Runtime, servers: &Servers, case: &Coded) -> Row {
    let started = std::time::Instant::now();
    let ran = (case.run)(runtime, servers);
    let took = started.elapsed();
    let control = (case.control)(runtime, servers);
    let mut wrong: Vec<String> = ran.as_ref().err().cloned().into_iter().collect();
    wrong.extend(control.as_ref().err().map(|wrong| format!("the control: {wrong}")));
    wrong.extend(outside(servers, None));
    Row { verdict: ran.unwrap_or_else(|_| "ESCAPE".to_owned()), control: control.is_ok(), took, wrong }
}

/// One attempt in a world of its own, and all that is wrong with it.
pub(crate) fn once(
    runtime: &Runtime,
    servers: &Servers,
    stage: &Stage,
    (setting, each): (&Setting, &str),
    attack: bool,
) -> (Seen, Vec<String>) {
    let mut late = None;
    for _ in 0..TRIES {
        let mut world = stage.world(servers);
        for thing in &setting.world {
            let thing: Vec<String> = thing.iter().map(|word| world.filled(word, each)).collect();
            world.add(&thing);
        }
        write(&world, setting, each);
        world.seal();
        let seen = attempt(runtime, &stage.project, &world, setting, each);
        let mut wrong = judged(&world, setting, &seen, each, attack);
        wrong.extend(outside(servers, Some(&world)));
        if !seen.late() || !wrong.is_empty() {
            return (seen, wrong);
        }
        late = Some(seen);
    }
    let seen = late.unwrap();
    let wrong = format!("{each}: took {:?}, and its deadline is {:?}", seen.took, seen.deadline);
    (seen, vec![wrong])
}

/// Whether it ended as it must, and told nothing.
fn judged(world: &World, setting: &Setting, seen: &Seen, each: &str, attack: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let wanted = setting.ends.wanted().unwrap();
    let wanted = Verdict { says: world.filled(&wanted.says, each), ..wanted };
    if !wanted.fits(&seen.verdict) {
        let Verdict { word, says } = &seen.verdict;
        let mark = if each.is_empty() { String::new() } else { format!("with {each:?} ") };
        wrong.push(format!("{mark}it must be {} {:?}\n        and was {word} {says:?}", wanted.word, wanted.says));
    }
    if let Some(recorded) = setting.recorded.as_ref().map(|text| world.filled(text, each))
        && !seen.record.contains(&recorded)
    {
        wrong.push(format!("{each}: the record must hold {recorded:?} and is {:?}", seen.record));
    }
    if let Some(tells) = setting.tells.as_ref().filter(|tells| !seen.told.contains(tells.as_str())) {
        wrong.push(format!("{each}: its caller must be told {tells:?} and was told {:?}", seen.told));
    }
    if setting.script.as_ref().is_some_and(|script| script.contains("{lingers}")) || each.contains("{lingers}") {
        wrong.extend(lingering().into_iter().map(|line| format!("{each}: ESCAPE: a process is left: {line:?}")));
    }
    if attack && seen.told.contains(CANARY) {
        wrong.push(format!("{each}: ESCAPE: the canary was told: {}", seen.told));
    }
    wrong
}

/// Whether anything outside was touched.
pub(crate) fn outside(servers: &Servers, world: Option<&World>) -> Vec<String> {
    let children = children_left();
    // What held a name of the workspace for a command goes after the command's last process.
    wait_for_ends(ENDS);
    let mut wrong = world.map(World::broken).unwrap_or_default();
    if servers.trap.connected() > 0 {
        wrong.push(format!("ESCAPE: the trap was connected to {} times", servers.trap.connected()));
    }
    if !children.is_empty() {
        wrong.push(format!("ESCAPE: processes are left: {children:?}"));
    }
    wrong
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}
