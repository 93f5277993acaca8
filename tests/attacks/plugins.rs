//! Plugins from elsewhere that are after the operator who reviews them, and after the project that uses them: what is
//! fetched, unpacked, verified, consented to and updated.
//!
//! The cases are tables in `plugins/*.toml`. Each has a room of its own: a project, a plugin in `acme/`, the same plugin in a
//! git repository and in a registry, and a cache. Things are put there, commands run that have to succeed, more things are
//! done, and then one command is tried. The control has the same keys, of which it replaces some, and has to succeed.
//!
//! A case that is refused leaves the lock, the policy and the plugins of the project as they were. None runs anything, shows
//! the canary, or prints a character that acts on a terminal.
//!
//! - `room`: where a case is tried, and what can be put there
//! - `objects`: commits and packed files that no tool would write

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::case::matches;
use crate::corpus::{Row, folder, outside};
use crate::process::CANARY;
use crate::project::Ran;
use crate::world::Servers;

#[path = "plugins/objects.rs"]
mod objects;
#[path = "plugins/room.rs"]
mod room;

use room::{Room, Shared};

/// The keys of a case that are not about its room.
const OWN: [&str; 5] = ["id", "tried", "known", "each", "control"];
/// What is tried where nothing else is named.
const RUN: &str = "plugin add ./acme --grant none";

/// What is tried, and the same without harm.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) tried: String,
    pub(crate) known: Option<String>,
    /// The case is tried with each of these instead of `{each}`.
    each: Vec<String>,
    setting: Setting,
    control: Setting,
}

/// What is in the room, what is run there, and how that has to end.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Setting {
    /// Front matter of `harness.md`.
    policy: String,
    /// The host policy; empty: none.
    machine: String,
    /// Things that are there first; see [`Room::put`].
    world: Vec<Vec<String>>,
    /// Commands that have to succeed.
    before: Vec<String>,
    /// Things that happen after them.
    then: Vec<Vec<String>>,
    /// The command that is tried: words with a space between them, each filled in by itself.
    run: String,
    /// How it exits: 2 where nothing is said, and 0 of a control.
    code: Option<i32>,
    /// What it says of that, in which `…` stands for anything.
    says: Option<String>,
    /// What it prints, in the same way.
    prints: Option<String>,
    /// What is nowhere in either.
    lacks: Vec<String>,
}

impl Default for Setting {
    fn default() -> Self {
        let policy = "trusted_sources:\n  - { source: \"oci://{address}/*\", private: true }\n  - { source: \"*\" }\nsandbox:\n  env: [HARNESS_TEST_VARIABLE]\n  fs: { read: [docs, acme] }\n";
        Self {
            policy: policy.to_owned(),
            machine: String::new(),
            world: Vec::new(),
            before: Vec::new(),
            then: Vec::new(),
            run: RUN.to_owned(),
            code: None,
            says: None,
            prints: None,
            lacks: Vec::new(),
        }
    }
}

/// The rooms of a run: what they share is made for the first of them.
#[derive(Debug, Default)]
pub(crate) struct Rooms(OnceCell<Shared>);

/// All cases of the tables.
pub(crate) fn all() -> Vec<Case> {
    let tables = std::fs::read_dir(folder().join("plugins")).unwrap().map(|entry| entry.unwrap().path());
    let tables = tables.filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
    tables.flat_map(|path| read(&std::fs::read_to_string(&path).unwrap(), path.to_str().unwrap())).collect()
}

fn read(text: &str, file: &str) -> Vec<Case> {
    let table: toml::Table = toml::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
    let cases = table["case"].as_array().unwrap().iter().map(|case| case.as_table().unwrap().clone());
    cases.map(|case| Case::read(case).unwrap_or_else(|why| panic!("{file}: {why}"))).collect()
}

impl Case {
    fn read(mut table: toml::Table) -> Result<Self, String> {
        let mut own: BTreeMap<&str, toml::Value> =
            OWN.into_iter().filter_map(|key| Some((key, table.remove(key)?))).collect();
        let mut text = |key: &str| own.remove(key).and_then(|value| value.as_str().map(str::to_owned));
        let (id, tried, known) = (text("id").ok_or("a case has no `id`")?, text("tried"), text("known"));
        let each = own.remove("each").map_or(Ok(Vec::new()), toml::Value::try_into);
        let setting = |table: toml::Table| table.try_into::<Setting>().map_err(|error| format!("{id}: {error}"));
        let control = own.remove("control").and_then(|control| control.as_table().cloned());
        let mut of_control = table.clone();
        for key in ["code", "says", "prints", "lacks"] {
            of_control.remove(key);
        }
        of_control.extend(control.ok_or_else(|| format!("{id} has no control"))?);
        Ok(Self {
            tried: tried.ok_or_else(|| format!("{id} has no `tried`"))?,
            known,
            each: each.map_err(|error| format!("{id}: {error}"))?,
            setting: setting(table)?,
            control: setting(of_control)?,
            id,
        })
    }

    /// What is wrong with the case itself.
    pub(crate) fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let Setting { code, says, prints, lacks, .. } = &self.setting;
        if says.is_none() && prints.is_none() && (lacks.is_empty() || *code != Some(0)) {
            wrong.push(format!("{} does not say how it must end", self.id));
        }
        if self.control.code.unwrap_or(0) != 0 || self.control.says.is_some() {
            wrong.push(format!("{} has no control that succeeds", self.id));
        }
        let bare = |setting: &Setting| {
            let mut bare = setting.clone();
            (bare.code, bare.says, bare.prints, bare.lacks) = (None, None, None, Vec::new());
            bare
        };
        if bare(&self.setting) == bare(&self.control) {
            wrong.push(format!("{} is its own control", self.id));
        }
        wrong
    }
}

/// Tries a case and its control.
pub(crate) fn row(servers: &Servers, rooms: &Rooms, case: &Case) -> Row {
    let shared = rooms.0.get_or_init(Shared::new);
    let one = [String::new()];
    let each_of = if case.each.is_empty() { &one } else { case.each.as_slice() };
    let mut row = Row { verdict: String::new(), control: true, took: Duration::ZERO, wrong: Vec::new() };
    for each in each_of {
        let mark = if each.is_empty() { String::new() } else { format!("with {each:?} ") };
        let (code, took, wrong) = once(shared, servers, &case.setting, each, case.setting.code.unwrap_or(2));
        row.took = row.took.max(took);
        row.verdict = format!("exit {code}");
        row.wrong.extend(wrong.into_iter().map(|wrong| format!("{mark}{wrong}")));
        // A control is tried once where it is the same with each.
        if *each != each_of[0] && !format!("{:?}", case.control).contains("{each}") {
            continue;
        }
        let (_, _, wrong) = once(shared, servers, &case.control, each, 0);
        row.control &= wrong.is_empty();
        row.wrong.extend(wrong.into_iter().map(|wrong| format!("the control: {mark}{wrong}")));
    }
    row.wrong.extend(outside(servers, None));
    row
}

/// One attempt in a room of its own, and all that is wrong with it.
fn once(shared: &Shared, servers: &Servers, setting: &Setting, each: &str, code: i32) -> (i32, Duration, Vec<String>) {
    let trap = servers.trap.address.to_string();
    let mut room = Room::new(shared, [("each", each), ("trap", &trap)]);
    room.policy(&setting.policy, &setting.machine);
    room.put(&setting.world);
    for line in &setting.before {
        let ran = room.run(line);
        if ran.code != 0 {
            return (ran.code, Duration::ZERO, vec![format!("`{line}` before it must succeed: {ran}")]);
        }
    }
    room.put(&setting.then);
    let kept = room.kept();
    let started = Instant::now();
    let ran = room.run(&setting.run);
    let took = started.elapsed();
    let mut wrong = judged(&room, setting, &ran, code);
    if ran.code != 0 && room.kept() != kept {
        wrong.push(format!("ESCAPE: it was refused, and the project changed: {:?}", room.kept()));
    }
    wrong.extend(room.left());
    (ran.code, took, wrong)
}

fn judged(room: &Room<'_>, setting: &Setting, ran: &Ran, code: i32) -> Vec<String> {
    let mut wrong = Vec::new();
    let is = |wanted: &Option<String>, text: &str| {
        wanted.as_ref().is_none_or(|wanted| matches(&format!("…{}…", room.filled(wanted)), text))
    };
    if ran.code != code || !is(&setting.says, &ran.err) || !is(&setting.prints, &ran.out) {
        let (says, prints) = (&setting.says, &setting.prints);
        wrong.push(format!("it must exit with {code}, say {says:?} and print {prints:?}\n{ran}"));
    }
    let both = format!("{}{}", ran.out, ran.err);
    for lacking in &setting.lacks {
        if both.contains(&room.filled(lacking)) {
            wrong.push(format!("ESCAPE: it shows {lacking:?}: {ran}"));
        }
    }
    if let Some(hidden) = both.chars().find(|c| *c != '\n' && harness_policy::text::is_hidden(*c)) {
        wrong.push(format!("ESCAPE: it prints {hidden:?}: {ran:?}"));
    }
    if both.contains(CANARY) {
        wrong.push(format!("ESCAPE: the canary was told: {ran}"));
    }
    wrong
}
