//! Instances that are made ahead, and those that are cleared up after their caller has the answer: nothing of one call is
//! in the next, and nothing of them is any project's burden.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::cache::Image;
use super::engine::{Sandbox, Settings};
use super::imports::Role;
use super::outcome::{Entry, Outcome, Report, Source};
use super::reset_tests::compose;
use super::scheduling::quota::Quota;
use super::spare::{AHEAD, AHEAD_OF_ONE, SPARE};
use super::state::{Context, Session};
use harness_artifact::policy::ProjectPolicy;
use harness_capability::fs::Workspace;
use harness_policy::grant::Grant;
use harness_policy::limits::Limits;
use tempfile::TempDir;

/// Says whether another call was here, and leaves all it can in the memory that it has: it never asks for more.
const MARKS: &str = r#"
(global $kept (mut i64) (i64.const 0))
(table $table 10 100 funcref)
(elem declare func $found)
(func $found (result i32)
    (local $at i32)
    (if (i64.ne (global.get $kept) (i64.const 0)) (then (return (i32.const 1))))
    (if (i32.eqz (ref.is_null (table.get $table (i32.const 5)))) (then (return (i32.const 1))))
    (local.set $at (i32.const 65536))
    (loop $more
        (if (i64.ne (i64.load (local.get $at)) (i64.const 0)) (then (return (i32.const 1))))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (br_if $more (i32.lt_u (local.get $at) (i32.const 131072))))
    (i32.const 0))
(func (export "run") (param i32 i32) (result i32)
    (local $seen i32)
    (local.set $seen (call $found))
    (global.set $kept (i64.const 1))
    (table.set $table (i32.const 5) (ref.func $found))
    (memory.fill (i32.const 65536) (i32.const 90) (i32.const 65536))
    (call $say (i32.sub (i32.const 2) (local.get $seen))))
(func (export "handle") (param i32 i32 i32 i32) (result i32) (call $say (i32.const 0)))
"#;

struct Fixture {
    sandbox: Sandbox,
    _folder: TempDir,
    workspace: Arc<Workspace>,
}

impl Fixture {
    fn new(instances: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "text").unwrap();
        let workspace = Arc::new(Workspace::open(folder.path()).unwrap());
        Self {
            sandbox: Sandbox::new(Settings { instances, ..Settings::default() }).unwrap(),
            _folder: folder,
            workspace,
        }
    }

    fn image(&self, body: &str) -> Image {
        let text = format!("def run(args):\n    {body}\n");
        let (file, entry) = ("it.md".to_owned(), Entry::Tool);
        let source = Source { file, text, first_line: 1, indent: 0, entry, predicate: None, coverage: false };
        self.sandbox.load(&source).unwrap()
    }

    fn context(&self, grant: Grant) -> Context {
        Context {
            grant: Arc::new(grant),
            workspace: self.workspace.clone(),
            session: Arc::new(Session::default()),
            turn: Arc::default(),
            namespace: None,
            system: Arc::default(),
            http: Arc::default(),
            listener: None,
            secrets: Arc::default(),
            depth: 0,
            reentry: None,
        }
    }

    fn granted(&self) -> Context {
        self.context(ProjectPolicy::absent("harness.md").grant_for("tools/it", None))
    }

    /// A call in a task of its own, as front ends make them.
    async fn call(&self, image: &Image, context: Context, limits: Limits) -> Report<String> {
        let (sandbox, image) = (self.sandbox.clone(), image.clone());
        let called = tokio::spawn(async move { sandbox.run(&image, context, limits, "{}").await }).await.unwrap();
        self.settled().await;
        called
    }

    /// Until what has ended is cleared up, and made again where it is to be.
    async fn settled(&self) {
        while self.taken() > self.ahead() {
            tokio::task::yield_now().await;
        }
    }

    fn taken(&self) -> u32 {
        self.sandbox.spares().taken.load(Ordering::SeqCst)
    }

    fn ahead(&self) -> u32 {
        u32::try_from(self.sandbox.spares().ahead().len()).unwrap()
    }

    /// Calls a script until its next instance is made ahead.
    async fn warm(&self, image: &Image) {
        self.warm_for(&self.sandbox, image).await;
    }

    /// The same for another project. While calls compute for long, and to link a script is long, nothing is made ahead.
    async fn warm_for(&self, project: &Sandbox, image: &Image) {
        for _ in 0..1_000_000 {
            let (sandbox, called, context) = (project.clone(), image.clone(), self.granted());
            let call = async move { sandbox.run(&called, context, Limits::default(), "{}").await };
            tokio::spawn(call).await.unwrap();
            self.settled().await;
            let id = project.share().id();
            if self.sandbox.spares().ahead().iter().any(|made| made.image.is(image) && made.project == id) {
                return;
            }
        }
        panic!("no instance is made ahead for a script that is called again and again");
    }
}

fn value(report: &Report<String>) -> &str {
    match &report.outcome {
        Outcome::Completed(value) => value,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn nothing_of_one_call_is_in_the_next() {
    let it = Fixture::new(1);
    let marks = it.sandbox.foreign(&compose::component(&[], MARKS), Role::Tool, "marks.wasm").unwrap();
    let other = it.image("return 1");
    it.warm(&marks).await;
    let mut ahead = 0;
    for n in 0..1000 {
        ahead += u32::from(it.sandbox.spares().has(&marks, false));
        assert_eq!(value(&it.call(&marks, it.granted(), Limits::default()).await), "passed", "{n}");
        if n % 7 == 0 {
            it.call(&other, it.granted(), Limits::default()).await;
        }
    }
    assert!(ahead > 0);
}

#[tokio::test]
async fn a_grant_is_of_its_call_alone() {
    let it = Fixture::new(1);
    let image = it.image("return fs.read('a')");
    it.warm(&image).await;
    for _ in 0..50 {
        it.warm(&image).await;
        assert_eq!(value(&it.call(&image, it.granted(), Limits::default()).await), "\"text\"");
        let refused = it.call(&image, it.context(Grant::new(Vec::new())), Limits::default()).await;
        assert_eq!(refused.outcome.name(), "denied");
    }
}

/// The same limits end a call, and the same is counted, whether its instance was made ahead or not.
#[tokio::test]
async fn limits_are_those_of_the_call() {
    let it = Fixture::new(1);
    let image = it.image("return [n for n in range(args.get('n', 10))]");
    let cold = it.call(&image, it.granted(), Limits::default()).await;
    assert_eq!(it.ahead(), 0);
    it.warm(&image).await;
    let warm = it.call(&image, it.granted(), Limits::default()).await;
    assert_eq!(cold.outcome, warm.outcome);
    assert_eq!((cold.usage.fuel, cold.usage.peak_memory), (warm.usage.fuel, warm.usage.peak_memory));
    for limits in [
        Limits { fuel: cold.usage.fuel / 2, ..Limits::default() },
        Limits { fuel: 1, ..Limits::default() },
        Limits { memory_bytes: cold.usage.peak_memory - 1, ..Limits::default() },
    ] {
        it.sandbox.spares().rest();
        let cold = it.call(&image, it.granted(), limits).await;
        it.warm(&image).await;
        let warm = it.call(&image, it.granted(), limits).await;
        assert_eq!(cold.outcome, warm.outcome);
        assert!(matches!(cold.outcome, Outcome::Limited(_) | Outcome::Busy(_)), "{limits:?}: {:?}", cold.outcome);
    }
    let exact = Limits { fuel: cold.usage.fuel, memory_bytes: cold.usage.peak_memory, ..Limits::default() };
    it.warm(&image).await;
    assert_eq!(it.call(&image, it.granted(), exact).await.outcome, cold.outcome);
}

/// A project without memory is refused, and its instance that was made ahead is on no account.
#[tokio::test]
async fn what_is_made_ahead_is_on_no_account() {
    let it = Fixture::new(4);
    let image = it.image("return 1");
    it.warm(&image).await;
    assert_eq!(it.sandbox.share().memory(), 0);
    let poor = Fixture { sandbox: it.sandbox.for_project(Quota::default().memory_bytes(1)), ..it };
    let refused = poor.call(&image, poor.granted(), Limits::default()).await;
    assert_eq!(refused.outcome.name(), "busy");
    assert_eq!(poor.sandbox.share().memory(), 0);
}

#[tokio::test]
async fn calls_that_fail_leave_nothing() {
    let it = Fixture::new(1);
    let image = it.image("return fail('no') if args.get('n', 1) else 1");
    let endless = it.image("[n for n in range(1 << 30)]");
    let late = Limits { timeout: Duration::from_millis(20), ..Limits::default() };
    it.warm(&image).await;
    for _ in 0..20 {
        assert_eq!(it.call(&image, it.granted(), Limits::default()).await.outcome.name(), "failed");
        assert_eq!(it.call(&endless, it.granted(), late).await.outcome.name(), "limited");
    }
    it.sandbox.spares().rest();
    assert_eq!((it.taken(), it.ahead()), (0, 0));
}

/// With every instance in use, calls wait for nothing that was made ahead, and all slots come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_full_pool() {
    let it = Arc::new(Fixture::new(2));
    let images: Vec<Image> = (0..40).map(|n| it.image(&format!("return {n}"))).collect();
    let mut calls = Vec::new();
    for n in 0..4000 {
        let (it, image) = (it.clone(), images[n % images.len()].clone());
        calls.push(tokio::spawn(async move {
            let report = it.sandbox.run(&image, it.granted(), Limits::default(), "{}").await;
            // Its queue has an end.
            assert!(matches!(report.outcome, Outcome::Completed(_) | Outcome::Busy(_)), "{:?}", report.outcome);
            matches!(report.outcome, Outcome::Completed(_))
        }));
    }
    let mut completed = 0;
    for call in calls {
        completed += u32::from(call.await.unwrap());
    }
    assert!(completed > 0);
    it.settled().await;
    assert!(it.taken() <= SPARE);
    it.sandbox.spares().rest();
    assert_eq!(it.taken(), 0);
}

#[tokio::test]
async fn a_project_has_a_few_ahead_and_a_host_some_more() {
    let it = Fixture::new(2);
    // Nothing is given up because the host has nothing to do, however slow this is.
    let _busy = it.sandbox.ticker().call().unwrap();
    let images: Vec<Image> = (0..AHEAD + 8).map(|n| it.image(&format!("return {n}"))).collect();
    for image in images.iter().take(AHEAD_OF_ONE + 3) {
        it.warm(image).await;
    }
    assert_eq!(it.ahead() as usize, AHEAD_OF_ONE);
    // Other projects keep theirs, as far as there is room.
    let mut sandboxes = Vec::new();
    for image in &images {
        let other = it.sandbox.for_project(Quota::default());
        it.warm_for(&other, image).await;
        sandboxes.push(other);
    }
    assert_eq!(it.ahead() as usize, AHEAD);
    drop(sandboxes);
    // What was made for projects that are closed goes when another one is made.
    it.warm(&images[0]).await;
    it.warm(&it.image("return 'last'")).await;
    assert!(it.ahead() as usize <= AHEAD_OF_ONE, "{}", it.ahead());
}

/// An instance that no call has can ask the host for nothing: a component that does so when it starts is never made ahead.
#[tokio::test]
async fn an_instance_without_a_call_asks_for_nothing() {
    let it = Fixture::new(1);
    let begin = "(func $begin (drop (call $limits.regex-bytes)))\n(start $begin)";
    let component = compose::component(&["limits.regex-bytes".to_owned()], &format!("{MARKS}\n{begin}"));
    let image = it.sandbox.foreign(&component, Role::Tool, "starts.wasm").unwrap();
    for _ in 0..20 {
        assert_eq!(value(&it.call(&image, it.granted(), Limits::default()).await), "passed");
    }
    assert!(!it.sandbox.spares().has(&image, false));
}

/// A host that is gone holds nothing, whatever was made ahead for it.
#[tokio::test]
async fn nothing_is_left_of_a_host() {
    let it = Fixture::new(1);
    let image = it.image("return 1");
    it.warm(&image).await;
    let spares = Arc::downgrade(it.sandbox.spares());
    drop((it, image));
    assert!(spares.upgrade().is_none());
}
