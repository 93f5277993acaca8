//! The deadline is kept where a call waits for what does not answer.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::engine::{Sandbox, Settings};
use super::outcome::{Entry, Limit, LimitKind, Outcome, Source};
use super::state::{Context, Session};
use harness_artifact::policy::ProjectPolicy;
use harness_capability::fs::Workspace;
use harness_policy::limits::Limits;

/// Far longer than the call has, and than a busy machine takes to notice.
const SLOW: Duration = Duration::from_secs(20);

/// Whether the slow disk has become fast, which ends what waits for it.
static FAST: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// A look at the slow disk.
fn slow() {
    let (fast, changed) = &FAST;
    drop(changed.wait_timeout_while(fast.lock().unwrap(), SLOW, |fast| !*fast).unwrap());
}

/// A disk that takes seconds for everything: the call ends in time, and meanwhile others of the same thread continue.
#[tokio::test]
async fn a_slow_disk() {
    let settings = Settings { instances: 2, ..Settings::default() };
    let sandbox = Sandbox::new(settings).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "text").unwrap();
    let image = |body: &str| {
        let text = format!("def run(args):\n    {body}\n");
        let (file, entry) = ("it.md".to_owned(), Entry::Tool);
        sandbox.load(&Source { file, text, first_line: 1, indent: 0, entry, predicate: None, coverage: false }).unwrap()
    };
    let context = |slow: Option<fn()>| Context {
        grant: Arc::new(ProjectPolicy::absent("harness.md").grant_for("tools/it", None)),
        workspace: Arc::new({
            let mut workspace = Workspace::open(folder.path()).unwrap();
            workspace.slow = slow;
            workspace
        }),
        session: Arc::new(Session::default()),
        turn: Arc::default(),
        namespace: None,
        system: Arc::default(),
        http: Arc::default(),
        listener: None,
        secrets: Arc::default(),
        depth: 0,
        reentry: None,
    };
    let limits = Limits { timeout: Duration::from_millis(500), ..Limits::default() };
    for body in ["return fs.read('a')", "return fs.list('.')", "return fs.exists('a')", "fs.copy('a', 'b')"] {
        let image = image(body);
        let control = sandbox.run(&image, context(None), Limits::default(), "{}").await;
        assert_eq!(control.outcome.name(), "completed", "{body}: {control:?}");
        let _ = std::fs::remove_file(folder.path().join("b"));
        let started = Instant::now();
        let waiting = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            started.elapsed()
        };
        let (late, other) = tokio::join!(sandbox.run(&image, context(Some(slow)), limits, "{}"), waiting);
        assert_eq!(late.outcome, Outcome::Limited(Limit::of(LimitKind::Deadline, 500)), "{body}");
        assert!(started.elapsed() < SLOW && other < SLOW, "{body}: {other:?}");
    }
    *FAST.0.lock().unwrap() = true;
    FAST.1.notify_all();
}
