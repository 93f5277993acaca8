//! Guests that are no interpreter: WebAssembly written by hand, on the engine, the pools and the linkers that scripts run
//! on, calling the imports as no interpreter would.
//!
//! A guest in `guests/*.toml` is the inside of a core module. Around it come the imports it names, with the types that the
//! contract in `wit/` gives them; a memory, `cabi_realloc` and the functions of `script` where it has none of its own; and
//! a few functions to keep it short. Or it is a whole component, where the attack is in the component itself.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use harness_artifact::policy::ProjectPolicy;
use harness_capability::fs::Workspace;
use harness_policy::grant::Grant;
use harness_sandbox::engine::{Sandbox, Settings};
use harness_sandbox::imports::Role;
use harness_sandbox::outcome::{Outcome, Report};
use harness_sandbox::state::{Context, Session};
use serde::Deserialize;
use tokio::runtime::Runtime;

use crate::attempt::Seen;
use crate::case::{Ends, Verdict, known_keys};
use crate::compose::component;
use crate::corpus::{Row, folder, outside};
use crate::process::{CANARY, Stretch};
use crate::world::{Servers, Stage, World};

#[derive(Debug, Deserialize)]
struct Table {
    case: Vec<Case>,
}

/// A guest, what must come of it, and one that does the same properly.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) tried: String,
    #[serde(default)]
    each: Vec<String>,
    #[serde(flatten)]
    guest: Guest,
    control: Guest,
}

#[derive(Debug, Clone, Deserialize)]
struct Guest {
    /// `tool`, `hook` or `when`.
    #[serde(default)]
    role: Option<String>,
    /// Front matter of `harness.md`.
    policy: Option<String>,
    /// Functions of the contract, such as `fs.read`, that are there as `$fs.read`.
    #[serde(default)]
    imports: Vec<String>,
    /// The inside of the module.
    wat: Option<String>,
    /// Or the whole component.
    component: Option<String>,
    #[serde(flatten)]
    ends: Ends,
}

const KEYS: [&str; 12] = [
    "role",
    "policy",
    "imports",
    "wat",
    "component",
    "gives",
    "denied",
    "failed",
    "limited",
    "refused",
    "rejected",
    "fault",
];

pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder().join("guests")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let table: Table = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let raw: toml::Table = toml::from_str(&text).unwrap();
        for case in raw["case"].as_array().unwrap() {
            let file = path.to_str().unwrap();
            known_keys(file, case, &[&["id", "tried", "each", "control"][..], &KEYS].concat());
            known_keys(file, &case["control"], &KEYS);
        }
        cases.extend(table.case);
    }
    cases
}

/// One sandbox for all guests, as a host has it.
fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| {
        let sandbox = Sandbox::new(Settings { instances: 2, ..Settings::default() }).unwrap();
        sandbox.pooling().unwrap();
        sandbox
    })
}

pub(crate) fn row(runtime: &Runtime, servers: &Servers, stage: &Stage, case: &Case) -> Row {
    let one = [String::new()];
    let each = if case.each.is_empty() { &one } else { case.each.as_slice() };
    let mut row = Row { verdict: String::new(), control: true, took: Duration::ZERO, wrong: Vec::new() };
    for each in each {
        let (seen, wrong) = once(runtime, servers, stage, (&case.guest, None), each);
        row.took = row.took.max(seen.took);
        row.verdict = seen.verdict.word.to_owned();
        row.wrong.extend(wrong);
        let (_, wrong) = once(runtime, servers, stage, (&case.control, Some(&case.guest)), each);
        row.control &= wrong.is_empty();
        row.wrong.extend(wrong.into_iter().map(|wrong| format!("the control: {wrong}")));
    }
    row
}

/// One call of a guest. A control takes what it does not say itself from its `case`.
fn once(
    runtime: &Runtime,
    servers: &Servers,
    stage: &Stage,
    (guest, case): (&Guest, Option<&Guest>),
    each: &str,
) -> (Seen, Vec<String>) {
    let mut world = stage.world(servers);
    world.seal();
    let policy = guest.policy.as_ref().or(case.and_then(|case| case.policy.as_ref())).cloned().unwrap_or_default();
    let role = guest.role.as_ref().or(case.and_then(|case| case.role.as_ref())).map_or("tool", String::as_str);
    let imports =
        if guest.imports.is_empty() { case.map_or(&guest.imports, |case| &case.imports) } else { &guest.imports };
    let component = match (&guest.component, &guest.wat) {
        (Some(text), _) => wat::parse_str(world.filled(text, each)).unwrap_or_else(|error| panic!("{error}")),
        (None, Some(text)) => component(imports, &world.filled(text, each)),
        (None, None) => panic!("there is no guest"),
    };
    let seen = call(runtime, &world, &component, role, &world.filled(&policy, each));
    let wanted = guest.ends.wanted().expect("a guest ends in one way");
    let wanted = Verdict { says: world.filled(&wanted.says, each), ..wanted };
    let mut wrong = outside(servers, Some(&world));
    if !wanted.fits(&seen.verdict) {
        let Verdict { word, says } = &seen.verdict;
        wrong.push(format!("{each} it must be {} {:?}\n        and was {word} {says:?}", wanted.word, wanted.says));
    }
    if case.is_none() && seen.told.contains(CANARY) {
        wrong.push(format!("{each}: ESCAPE: the canary was told: {}", seen.told));
    }
    // Whatever it did, an ordinary guest continues.
    if seen.late() && wrong.is_empty() {
        let again = call(runtime, &world, &component, role, &world.filled(&policy, each));
        if again.late() {
            wrong.push(format!("{each}: took {:?}, and its deadline is {:?}", again.took, again.deadline));
        }
    }
    (seen, wrong)
}

/// What a call may do under a policy.
pub(crate) fn grant(policy: &str) -> Grant {
    let text = format!("---\n{}\n---\n", policy.trim_end());
    let (policy, diagnostics) = ProjectPolicy::parse(".harness/harness.md", &text);
    policy.unwrap_or_else(|| panic!("{diagnostics:?}")).grant_for("tools/it", None)
}

fn call(runtime: &Runtime, world: &World, component: &[u8], role: &str, policy: &str) -> Seen {
    let grant = grant(policy);
    let limits = grant.limits();
    let context = Context {
        grant: Arc::new(grant),
        workspace: Arc::new(Workspace::open(&world.work()).unwrap()),
        session: Arc::new(Session::default()),
        turn: Arc::default(),
        namespace: None,
        system: Arc::default(),
        http: Arc::default(),
        listener: None,
        depth: 0,
        reentry: None,
        secrets: Arc::default(),
    };
    let linked = if role == "tool" { Role::Tool } else { Role::Hook };
    let image = match sandbox().foreign(component, linked, "guest.wasm") {
        Ok(image) => image,
        Err(error) => {
            let verdict = Verdict::new("refused", format!("{error:#}"));
            return Seen {
                verdict,
                told: format!("{error:?}"),
                took: Duration::ZERO,
                deadline: limits.timeout,
                busy: Duration::ZERO,
                record: String::new(),
            };
        }
    };
    let stretch = Stretch::begin();
    match role {
        "tool" => {
            let report = runtime.block_on(sandbox().run(&image, context, limits, "{}"));
            seen(report, stretch, limits.timeout)
        }
        "hook" => {
            let report = runtime.block_on(sandbox().handle(&image, context, limits, "tool.pre", "{}"));
            seen(report, stretch, limits.timeout)
        }
        "when" => {
            let report = runtime.block_on(sandbox().matches(&image, context, limits, "tool.pre", "{}"));
            seen(report, stretch, limits.timeout)
        }
        other => panic!("{other} is no role"),
    }
}

fn seen<T: std::fmt::Debug + ToString>(report: Report<T>, stretch: Stretch, deadline: Duration) -> Seen {
    let (took, busy) = stretch.end();
    let told = format!("{report:?}");
    let verdict = match report.outcome {
        Outcome::Completed(result) => Verdict::new("gives", serde_json::to_string(&result.to_string()).unwrap()),
        Outcome::Failed(failure) => Verdict::new("failed", failure.message),
        Outcome::Denied { refusal, .. } => Verdict::new("denied", refusal.reason),
        Outcome::Limited(limit) => Verdict::new("limited", limit.kind.name()),
        Outcome::Busy(busy) => Verdict::new("busy", busy.to_string()),
        Outcome::Fault(message) => Verdict::new("fault", message),
    };
    Seen { verdict, told, took, deadline, busy, record: String::new() }
}
