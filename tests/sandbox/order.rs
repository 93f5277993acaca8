//! What depends on the order of hooks, and what does not.
//!
//! Hooks of equal rank run in the order of their files. Someone who drops a file into a folder chooses its name, and
//! with it a place in that order. What that gives them:
//!
//! - Nothing on whether an event is blocked, among hooks that only allow, block or fail: it is where any of them blocks or
//!   fails, and then with the payload as it was.
//! - Nothing on the payload, among hooks that change different parts of it.
//! - Which of several hooks that block is named, and that those after it are not called.
//! - A change is seen by the hooks after it, and by those alone: a guard that is to see what runs in the end has to have a
//!   larger priority than what changes it.

use std::fs;

use harness_artifact::event::Event;
use harness_dispatch::{Decision, Options, Project, Run, Verdict};
use harness_registry::Machine;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value as Json, json};

/// What a hook does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Does {
    Allow,
    Block,
    Fail,
    /// Has a `when` that is false.
    Skip,
    /// Changes one of the arguments.
    Set(usize),
    /// Blocks where one of the arguments was changed.
    BlockIfSet(usize),
}

const ARGUMENTS: [&str; 3] = ["a", "b", "c"];

impl Does {
    /// As an artifact.
    fn artifact(self) -> String {
        let (when, body) = match self {
            Self::Allow => ("", "return allow()".to_owned()),
            Self::Block => ("", "return block('no')".to_owned()),
            Self::Fail => ("", "fail('broken')".to_owned()),
            Self::Skip => ("when: event == 'other'\n", "return block('never')".to_owned()),
            Self::Set(n) => ("", format!("return modify({{'args': dict(payload['args'], {} = 'set')}})", ARGUMENTS[n])),
            Self::BlockIfSet(n) => {
                ("", format!("return block('seen') if payload['args']['{}'] == 'set' else allow()", ARGUMENTS[n]))
            }
        };
        format!("---\nevent: tool.pre\n{when}script: |\n  def handle(event, payload):\n      {body}\n---\n")
    }

    /// What it decides where these arguments were set before.
    fn decides(self, set: [bool; 3]) -> Verdict {
        match self {
            Self::Allow => Verdict::Allow,
            Self::Block => Verdict::Block,
            Self::Fail => Verdict::Error,
            Self::Skip => Verdict::Skip,
            Self::Set(_) => Verdict::Modify,
            Self::BlockIfSet(n) if set[n] => Verdict::Block,
            Self::BlockIfSet(_) => Verdict::Allow,
        }
    }
}

/// The verdict of each hook in an order, and which arguments are set in the end.
fn folded(hooks: &[Does]) -> (Vec<Verdict>, [bool; 3]) {
    let (mut set, mut blocked) = ([false; 3], false);
    let verdicts = hooks.iter().map(|hook| {
        if blocked {
            return Verdict::NotReached;
        }
        let verdict = hook.decides(set);
        blocked = matches!(verdict, Verdict::Block | Verdict::Error);
        if let Does::Set(n) = hook {
            set[*n] = true;
        }
        verdict
    });
    (verdicts.collect(), set)
}

struct Rig {
    folder: tempfile::TempDir,
    project: Project,
    runtime: tokio::runtime::Runtime,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join(".harness")).unwrap();
        let policy = "---\nsandbox: { sources: { plugins/acme: { services: [modify], events: [tool.pre] } } }\n---\n";
        fs::write(folder.path().join(".harness/harness.md"), policy).unwrap();
        let options = Options { audit: false, machine: Machine::None, ..Options::default() };
        let project = Project::open(folder.path(), options).unwrap();
        Self { folder, project, runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap() }
    }

    /// The hooks in the order that they are called in, their verdicts, whether the event was blocked, and its arguments
    /// after it. Which folder each lies in is what `places` say.
    fn fire(&self, hooks: &[Does], places: u8) -> (Vec<Does>, Vec<Verdict>, bool, Json) {
        let home = self.folder.path().join(".harness");
        for folder in ["hooks", "plugins"] {
            let _ = fs::remove_dir_all(home.join(folder));
        }
        let mut files = Vec::new();
        for (n, hook) in hooks.iter().enumerate() {
            let folder = if places >> n & 1 == 1 { "plugins/acme/hooks" } else { "hooks" };
            fs::create_dir_all(home.join(folder)).unwrap();
            let file = format!("{folder}/h{n}.md");
            fs::write(home.join(&file), hook.artifact()).unwrap();
            files.push((file, *hook));
        }
        files.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.project.reload().unwrap();
        let payload = json!({"tool": "it", "name": "it", "args": {"a": "", "b": "", "c": ""}});
        let fired = self.runtime.block_on(self.project.fire(&Event::parse("tool.pre").unwrap(), payload, &Run::new()));
        let verdicts = fired.hooks.iter().map(|hook| hook.verdict).collect();
        let ordered = files.into_iter().map(|(_, hook)| hook).collect();
        (ordered, verdicts, fired.decision != Decision::Allow, fired.payload["args"].clone())
    }
}

fn args(set: [bool; 3]) -> Json {
    let text = |set| if set { "set" } else { "" };
    json!({"a": text(set[0]), "b": text(set[1]), "c": text(set[2])})
}

fn any_hook(only_decide: bool) -> impl Strategy<Value = Does> {
    let decide =
        prop_oneof![3 => Just(Does::Allow), 1 => Just(Does::Block), 1 => Just(Does::Fail), 1 => Just(Does::Skip)];
    let change = prop_oneof![
        2 => Just(Does::Allow),
        1 => Just(Does::Skip),
        3 => (0..ARGUMENTS.len()).prop_map(Does::Set),
        3 => (0..ARGUMENTS.len()).prop_map(Does::BlockIfSet),
    ];
    if only_decide { decide.boxed() } else { change.boxed() }
}

fn orders(only_decide: bool) -> impl Strategy<Value = (Vec<Does>, Vec<Does>, u8, u8)> {
    proptest::collection::vec(any_hook(only_decide), 1..6).prop_flat_map(|hooks| {
        let shuffled = Just(hooks.clone()).prop_shuffle();
        (Just(hooks), shuffled, any::<u8>(), any::<u8>())
    })
}

fn check(
    orders: impl Strategy<Value = (Vec<Does>, Vec<Does>, u8, u8)>,
    holds: impl Fn(&Rig, &[Does], &[Does], u8, u8),
) {
    let rig = Rig::new();
    let config = Config { cases: 40, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let ran = runner.run(&orders, |(one, other, places, others)| {
        holds(&rig, &one, &other, places, others);
        Ok(())
    });
    ran.unwrap();
}

#[test]
fn whether_hooks_that_decide_block_does_not_depend_on_their_order() {
    check(orders(true), |rig, one, other, places, others| {
        let any = one.iter().any(|hook| matches!(hook, Does::Block | Does::Fail));
        for (hooks, places) in [(one, places), (other, others)] {
            let (ordered, verdicts, blocked, payload) = rig.fire(hooks, places);
            assert_eq!((blocked, payload), (any, args([false; 3])), "{hooks:?}");
            assert_eq!(verdicts, folded(&ordered).0, "{ordered:?}");
        }
    });
}

#[test]
fn a_change_is_seen_by_the_hooks_after_it_and_by_no_others() {
    check(orders(false), |rig, one, other, places, others| {
        for (hooks, places) in [(one, places), (other, others)] {
            let (ordered, verdicts, blocked, payload) = rig.fire(hooks, places);
            let (wanted, set) = folded(&ordered);
            assert_eq!(blocked, wanted.contains(&Verdict::Block), "{ordered:?}");
            assert_eq!((verdicts, payload), (wanted, args(set)), "{ordered:?}");
        }
        // Without anyone who looks, changes of different parts come to the same in any order.
        let changes = |hooks: &[Does]| -> Vec<Does> {
            hooks.iter().copied().filter(|hook| !matches!(hook, Does::BlockIfSet(_))).collect()
        };
        assert_eq!(rig.fire(&changes(one), places).3, rig.fire(&changes(other), others).3);
    });
}
