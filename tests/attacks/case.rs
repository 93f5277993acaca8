//! A case as the files have it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value as Json;

/// A file of cases.
#[derive(Debug, Deserialize)]
struct Table {
    case: Vec<Case>,
}

/// The keys of a case and of its control; serde cannot refuse others where a struct is spread over another.
const OF_A_CASE: [&str; 5] = ["id", "tried", "known", "each", "control"];
const OF_BOTH: [&str; 25] = [
    "landlock",
    "recorded",
    "tells",
    "machine",
    "locked",
    "world",
    "policy",
    "artifacts",
    "front",
    "script",
    "guests",
    "args",
    "call",
    "fire",
    "program",
    "caller",
    "names",
    "gives",
    "but",
    "denied",
    "failed",
    "limited",
    "refused",
    "rejected",
    "fault",
];

/// What is tried, where, what must come of it, and the same with the grant present.
///
/// Texts may hold `{work}`, `{outside}`, `{server}`, `{other}`, `{trap}` and more, which the world fills in, and `{each}`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Case {
    pub(crate) id: String,
    /// One sentence, beginning with a verb: what the attacker does.
    pub(crate) tried: String,
    /// Where this was found in others: a CVE, or which project's failure it was.
    pub(crate) known: Option<String>,
    /// The case is tried with each of these instead of `{each}`.
    #[serde(default)]
    pub(crate) each: Vec<String>,
    #[serde(flatten)]
    pub(crate) setting: Setting,
    pub(crate) control: Control,
}

/// Where and how it is tried.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Setting {
    /// What is in the workspace beside what is always there; see `world`.
    #[serde(default)]
    pub(crate) world: Vec<Vec<String>>,
    /// Front matter of `harness.md`.
    pub(crate) policy: Option<String>,
    /// Further files below `.harness/`.
    #[serde(default)]
    pub(crate) artifacts: BTreeMap<String, String>,
    /// Further front matter of the tool.
    pub(crate) front: Option<String>,
    /// An expression, or the lines of `run`, or a whole script.
    pub(crate) script: Option<String>,
    /// Guests that are no interpreter, instead of the scripts of the tools and hooks of these names.
    #[serde(default)]
    pub(crate) guests: BTreeMap<String, Guest>,
    /// Arguments of the call, as JSON; or the payload of `fire`.
    pub(crate) args: Option<String>,
    /// Call another tool than `it`.
    pub(crate) call: Option<String>,
    /// Fire this event instead of calling a tool.
    pub(crate) fire: Option<String>,
    /// Run the program with these arguments in the workspace instead, as an operator does.
    pub(crate) program: Option<String>,
    /// The layer of the caller, which narrows the call.
    pub(crate) caller: Option<String>,
    /// The host policy; without it, one that takes nothing away.
    pub(crate) machine: Option<String>,
    /// The project is locked as it is, and then these files below `.harness/` are written; what is empty is removed.
    pub(crate) locked: Option<BTreeMap<String, String>>,
    /// What the caller must be told beside how it ended.
    pub(crate) tells: Option<String>,
    /// What the record of the call must hold.
    pub(crate) recorded: Option<String>,
    /// What names resolve to, one list after the other; the last one stays. Without any, names are the system's.
    #[serde(default)]
    pub(crate) names: BTreeMap<String, Vec<Vec<IpAddr>>>,
    /// What is otherwise where commands are behind Landlock alone.
    pub(crate) landlock: Option<Box<Setting>>,
    #[serde(flatten)]
    pub(crate) ends: Ends,
}

/// The inside of a core module, and the functions of the contract that it imports; see `guests`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Guest {
    /// Front matter of its tool, or of its hook, which has an `event`.
    #[serde(default)]
    pub(crate) front: String,
    pub(crate) imports: Vec<String>,
    pub(crate) wat: String,
}

/// The control: what differs, and what it gives.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Control {
    #[serde(flatten)]
    pub(crate) setting: Setting,
}

/// How a call must end: one of these. In a text, `…` stands for anything.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Ends {
    /// It completes, and gives this.
    pub(crate) gives: Option<toml::Value>,
    /// It ends in any way but that it completes and gives this.
    pub(crate) but: Option<String>,
    /// A rule refuses it, in these words.
    pub(crate) denied: Option<String>,
    /// The script fails, with this message.
    pub(crate) failed: Option<String>,
    /// This limit ends it.
    pub(crate) limited: Option<String>,
    /// The project or the script is not loaded, for this reason.
    pub(crate) refused: Option<String>,
    /// The call is not made, for this reason.
    pub(crate) rejected: Option<String>,
    /// The host gives up on an instance that is no interpreter.
    pub(crate) fault: Option<String>,
}

/// How a call ended, or must end: the word and what it says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) word: &'static str,
    pub(crate) says: String,
}

impl Verdict {
    pub(crate) fn new(word: &'static str, says: impl Into<String>) -> Self {
        Self { word, says: says.into() }
    }

    /// Whether an ending is what this asks for.
    pub(crate) fn fits(&self, found: &Self) -> bool {
        match self.word {
            // Where nothing was called, nothing was tried.
            "but" => match found.word {
                "refused" | "rejected" => false,
                "gives" => !matches(&self.says, &found.says),
                _ => true,
            },
            word => word == found.word && matches(&self.says, &found.says),
        }
    }
}

/// The same with a minute where it has less: what a control shows is not how fast the machine is.
pub(crate) fn patient(setting: Setting) -> Setting {
    let longer = |text: Option<String>| text.map(|text| longer(&text));
    let Setting { policy, machine, front, caller, .. } = setting.clone();
    Setting {
        policy: longer(policy),
        machine: longer(machine),
        front: longer(front),
        caller: longer(caller),
        ..setting
    }
}

fn longer(text: &str) -> String {
    const KEY: &str = "timeout_ms: ";
    let mut parts = text.split(KEY);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        out.push_str(KEY);
        match part[..digits].parse::<u64>() {
            Ok(time) => out.push_str(&time.max(60_000).to_string()),
            Err(_) => out.push_str(&part[..digits]),
        }
        out.push_str(&part[digits..]);
    }
    out
}

/// Whether a text is this one, in which `…` stands for anything.
pub(crate) fn matches(wanted: &str, text: &str) -> bool {
    let Some((start, rest)) = wanted.split_once('…') else { return wanted == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    let mut starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    starts.any(|at| matches(rest, &text[at..]))
}

impl Ends {
    /// What is asked for; nothing where it is not exactly one.
    pub(crate) fn wanted(&self) -> Option<Verdict> {
        let Self { gives, but, denied, failed, limited, refused, rejected, fault } = self;
        let gives = gives.as_ref().map(|value| json(value).to_string());
        let words = [
            ("gives", &gives),
            ("but", but),
            ("denied", denied),
            ("failed", failed),
            ("limited", limited),
            ("refused", refused),
            ("rejected", rejected),
            ("fault", fault),
        ];
        let mut given = words.into_iter().filter_map(|(word, says)| Some(Verdict::new(word, says.clone()?)));
        given.next().filter(|_| given.next().is_none())
    }
}

impl Case {
    pub(crate) fn area(&self) -> &str {
        self.id.split('-').next().unwrap()
    }

    /// The same with the control's own settings instead of the case's.
    pub(crate) fn control(&self) -> Setting {
        let own = self.control.setting.clone();
        Setting { ends: own.ends.clone(), ..self.setting.clone().with(own) }
    }
}

impl Setting {
    /// As it is where commands are behind Landlock `alone`, or are not.
    pub(crate) fn here(self, alone: bool) -> Self {
        let bare = Self { landlock: None, ..self.clone() };
        match self.landlock {
            Some(other) if alone => bare.with(*other),
            _ => bare,
        }
    }

    /// The same with another's own instead of this one's.
    fn with(self, own: Self) -> Self {
        let mine = self;
        let mut world = mine.world;
        world.extend(own.world);
        let mut artifacts = mine.artifacts;
        artifacts.extend(own.artifacts);
        let mut guests = mine.guests;
        guests.extend(own.guests);
        Self {
            world,
            artifacts,
            guests,
            policy: own.policy.or(mine.policy),
            front: own.front.or(mine.front),
            script: own.script.or(mine.script),
            args: own.args.or(mine.args),
            call: own.call.or(mine.call),
            fire: own.fire.or(mine.fire),
            program: own.program.or(mine.program),
            caller: own.caller.or(mine.caller),
            machine: own.machine.or(mine.machine),
            locked: own.locked.or(mine.locked),
            tells: own.tells.or(mine.tells),
            recorded: own.recorded.or(mine.recorded),
            names: if own.names.is_empty() { mine.names } else { own.names },
            landlock: own.landlock,
            ends: if own.ends.wanted().is_some() { own.ends } else { mine.ends },
        }
    }
}

pub(crate) fn known_keys(file: &str, table: &toml::Value, known: &[&str]) {
    for key in table.as_table().unwrap().keys() {
        assert!(known.contains(&key.as_str()), "{file}: `{key}` is no key of {table}");
    }
}

fn json(value: &toml::Value) -> Json {
    serde_json::to_value(value).unwrap()
}

/// The cases of a file.
pub(crate) fn read(file: &str, text: &str) -> Vec<Case> {
    let table: Table = toml::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
    let raw: toml::Table = toml::from_str(text).unwrap();
    for case in raw["case"].as_array().unwrap() {
        known_keys(file, case, &[&OF_A_CASE[..], &OF_BOTH].concat());
        known_keys(file, &case["control"], &OF_BOTH);
        for of in [case, &case["control"]] {
            of.get("landlock").into_iter().for_each(|own| known_keys(file, own, &OF_BOTH));
        }
    }
    let area = file.strip_suffix(".toml").unwrap();
    for case in &table.case {
        assert_eq!(case.area(), area, "{} is in {file}", case.id);
    }
    table.case
}
