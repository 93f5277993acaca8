//! What loading a script may use.

use std::time::{Duration, Instant};

use super::engine::{Sandbox, ScriptError, Settings};
use super::loader::{Budget, LOAD_MEMORY};
use super::outcome::{Entry, Limit, LimitKind, Source};

const RUN: &str = "def run(args):\n    return 1\n";
/// Does not end.
const ENDLESS: &str =
    "def f():\n    for i in range(1 << 30):\n        for j in range(1 << 30):\n            pass\n\nf()\n\n";

fn sandbox() -> Sandbox {
    Sandbox::new(Settings { instances: 1, ..Settings::default() }).unwrap()
}

fn source(top: &str) -> Source {
    let (file, text) = ("it.md".to_owned(), format!("{top}{RUN}"));
    Source { file, text, first_line: 1, indent: 0, entry: Entry::Tool, predicate: None, coverage: false }
}

/// How a load ended, as a limit, and the fuel that it took.
fn over(top: &str, budget: Budget) -> (Option<Limit>, u64) {
    match sandbox().load_within(&source(top), budget) {
        (Ok(_), fuel) => (None, fuel),
        (Err(ScriptError::Over(limit)), fuel) => (Some(Limit { at: None, ..limit }), fuel),
        (Err(error), _) => panic!("{error}"),
    }
}

#[test]
fn each_limit_of_a_load() {
    let budget = Budget::default();
    let (control, small) = over("", budget);
    assert_eq!(control, None);
    let fuel = Budget { fuel: 1_000_000, ..budget };
    let limit = |kind, allowed| Some(Limit::of(kind, allowed));
    assert_eq!(over(ENDLESS, fuel), (limit(LimitKind::Fuel, 1_000_000), 1_000_000));
    assert_eq!(over("", fuel), (None, small), "it does not depend on what there is, and is the same each time");
    let list = "X = [str(i) + 'abcdefghijklmnop' for i in range(400000)]\n";
    assert_eq!(over(list, budget).0, limit(LimitKind::Memory, LOAD_MEMORY));
    assert_eq!(over(&list.replace("400000", "40000"), budget).0, None);
    let (late, milliseconds) = (Duration::from_millis(50), 50);
    let deadline = Some(Instant::now() + late);
    let time = Budget { fuel: u64::MAX / 2, deadline, milliseconds, ..budget };
    let started = Instant::now();
    assert_eq!(over(ENDLESS, time).0, limit(LimitKind::Deadline, 50));
    assert!(started.elapsed() < Duration::from_secs(300));
}

/// Wherever a load is stopped, its author learns the line that was being evaluated; the first where nothing of it runs yet.
#[test]
fn a_load_that_is_stopped_reports_its_line() {
    let at = |top: &str, budget| {
        let source = Source { first_line: 5, indent: 2, ..source(top) };
        match sandbox().load_within(&source, budget).0 {
            Err(ScriptError::Over(limit)) => limit.at.map(|at| (at.line, at.column)),
            other => panic!("{:?}", other.map(|_| ())),
        }
    };
    let (budget, first, inner) = (Budget::default(), Some((5, 3)), Some((7, 11)));
    let fuel = |fuel| Budget { fuel, ..budget };
    assert_eq!(at(ENDLESS, fuel(100_000_000)), inner);
    assert_eq!(at(ENDLESS, fuel(1_000_000)), first, "it is still parsed");
    let list = "X = 1\nY = [str(i) + 'abcdefghijklmnop' for i in range(400000)]\n";
    assert_eq!(at(list, budget).map(|(line, _)| line), Some(6));
    // How far a script gets in a given time is a matter of the machine.
    let stopped = (1..16).map(|n| {
        let milliseconds = 1 << n;
        let deadline = Some(Instant::now() + Duration::from_millis(milliseconds));
        at(ENDLESS, Budget { fuel: u64::MAX / 2, deadline, milliseconds, ..budget })
    });
    assert!(stopped.into_iter().any(|at| at == inner));
}

/// A load that takes its time keeps nobody of the same thread waiting, and who waits for it waits until the deadline.
#[tokio::test]
async fn others_go_on_while_a_script_is_loaded() {
    let sandbox = sandbox();
    // A busy machine can hold up anyone. Who is kept waiting by the loads is so however long they take.
    let mut went_on = false;
    for milliseconds in [2_000, 8_000, 32_000] {
        let started = Instant::now();
        let late = Duration::from_millis(milliseconds);
        let budget = Budget { fuel: u64::MAX / 2, deadline: Some(started + late), milliseconds, ..Budget::default() };
        // More than have a turn.
        let mut loads = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let sandbox = sandbox.clone();
            loads.spawn(async move { sandbox.load_beside(source(ENDLESS), budget).await });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        went_on = started.elapsed() < late;
        for (loaded, _) in loads.join_all().await {
            let error = loaded.unwrap_err().to_string();
            let over = format!(
                "loading the script is over the limit `timeout_ms` of {milliseconds} ms: move work into a function"
            );
            assert_eq!(error, over);
        }
        if went_on {
            break;
        }
    }
    assert!(went_on);
    // And after that there is room for the next one.
    sandbox.load_beside(source(""), Budget::default()).await.0.unwrap();
}
