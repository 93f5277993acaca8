//! What loading a script takes, and who pays for it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::*;
use crate::loading::LoadDeadline;
use crate::past::{Began, LoadEnd, Past, Seen, Went};
use harness_sandbox::state::Session;
use harness_sandbox::tape::{Given, Ran, Script, Tape};

/// Who waits in a run, for nothing in particular.
fn waiter(run: &Run) -> Waiter<'_> {
    Waiter { run, input: "" }
}

/// The lines of a script that works at its top as often as this.
fn works(times: u32) -> String {
    format!("def f():\n    for i in range({times}):\n        pass\n\nf()\n\ndef run(args):\n    return 1\n")
}

/// Another policy may let what one does not, and another call may have the time that one has not.
#[tokio::test]
async fn what_was_too_much_to_load_is_tried_again() {
    let policy = "---\nsandbox: { limits: { fuel: 1000 } }\n---\n";
    let root = folder(&[("tools/it.md", &artifact("", &works(1_000_000))), ("harness.md", policy)]);
    let project = open(&root);
    for _ in 0..2 {
        let Err(CallError::Script(failure)) = project.call("it", json!({}), &Run::new()).await else { panic!() };
        let over = "loading the script is over the limit `fuel` of 100000000 units: move work into a function \
                    (`sandbox.limits.fuel` in `.harness/harness.md:2:28` raises it)";
        assert_eq!(failure.message, over);
    }
    write(&root, "harness.md", "---\n---\n");
    project.reload().unwrap();
    let loaded = project.loaded();
    let tool = loaded.registry().tool("it").unwrap().clone();
    let until = |_| Some(LoadDeadline::new(Instant::now(), Duration::ZERO));
    let run = Run::new();
    let late = loaded.tool(&tool, waiter(&run), until).await.image;
    assert!(matches!(late, Some(Err(Unloadable::Late(..)))), "{late:?}");
    assert_eq!(content(&project, "it", &Run::new()).await, "1");
}

/// The same on every run: nothing of it is kept between runs.
#[tokio::test]
async fn who_adds_a_script_pays_for_loading_it() {
    let adds = |times| {
        let script = works(times).replace('\n', "\\n");
        artifact("", &format!("def run(args):\n    meta.register_tool('new', '', {{}}, '{script}')\n    return 1\n"))
    };
    let files = [("tools/little.md", &*adds(1)), ("tools/much.md", &adds(1_000_000))];
    let root = folder(&files);
    write(&root, "harness.md", "---\nmeta: { enabled: true }\n---\n");
    let project = open(&root);
    let mut fuel = Vec::new();
    for name in ["little", "much", "little", "much"] {
        let report = project.call(name, json!({}), &Run::new()).await.unwrap();
        assert_eq!(report.content, "1");
        fuel.push(report.usage.fuel);
    }
    assert_eq!(fuel[..2], fuel[2..]);
    assert!(fuel[1] - fuel[0] > 100_000_000, "{fuel:?}");
}

/// Top-level code of this much work: some 260 million units of fuel.
const HEAVY: u32 = 2_500_000;

/// What the scripts of one source take together has a bound, and which of them are over it is the same each time. Another
/// source has its own.
#[test]
fn loading_is_paid_from_one_budget_for_each_source() {
    let heavy = works(HEAVY);
    let all: Vec<(String, String)> = (0..60)
        .map(|n| (format!("tools/heavy{n:02}.md"), artifact("", &heavy.replace("return 1", &format!("return {n}")))))
        .chain([("tools/small.md".to_owned(), returns("1"))])
        .chain([("plugins/other/tools/heavy.md".to_owned(), artifact("", &heavy))])
        .collect();
    let files: Vec<(&str, &str)> = all.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let root = folder(&files);
    let failed = |coverage| {
        let options = Options { audit: false, coverage, ..Options::default() };
        let failures = Project::open(root.path(), options).unwrap().loaded().load_all();
        let told = failures.iter().map(|one| match one {
            Unloadable::Script(failure) => (failure.file.clone(), failure.message.clone()),
            other => panic!("{other:?}"),
        });
        told.collect::<Vec<_>>()
    };
    let first = failed(false);
    assert!(first.len() > 2 && first.len() < 58, "{} of them", first.len());
    let why = "the scripts of the project take more than 10000000000 units of fuel together to load: move work into functions";
    // The last ones, in order.
    let expected: Vec<(String, String)> =
        (60 - first.len()..60).map(|n| (format!(".harness/tools/heavy{n:02}.md"), why.to_owned())).collect();
    assert_eq!(first, expected);
    assert_eq!(failed(false), first);
    // Where lines are reported a load takes more, and there is not more of it.
    let reported = failed(true);
    assert!(reported.len() >= first.len() && reported.iter().all(|(_, told)| told == why), "{reported:?}");
}

/// The loads of a bundle, and those of all bundles, have bounds too that hold what every script may use.
#[tokio::test]
async fn the_loads_of_bundles_have_bounds_together() {
    let root = folder(&[("tools/one.md", &returns("1")), ("plugins/p/tools/two.md", &returns("2"))]);
    let project = open(&root);
    for (bundle, why) in [
        ("plugins/p", "the scripts of `plugins/p` take more than 20000000000 units of fuel together to load"),
        ("plugins/q", "the scripts of all bundles take more than 40000000000 units of fuel together to load"),
    ] {
        // The project's own never pay for it.
        write(&root, "tools/one.md", &returns(&format!("'{bundle}'")));
        project.reload().unwrap();
        project.loaded().parts.images.count(bundle, crate::loading::BUNDLES_FUEL + 1);
        let Err(CallError::Script(failure)) = project.call("two", json!({}), &Run::new()).await else { panic!() };
        assert_eq!(failure.message, format!("{why}: remove some of them"));
        assert_eq!(content(&project, "one", &Run::new()).await, bundle);
    }
    project.reload().unwrap();
    assert_eq!(content(&project, "two", &Run::new()).await, "2");
}

/// A call waits for its script until its deadline and no longer; the load continues, and the next call finds it loaded.
#[tokio::test]
async fn a_call_that_waits_for_its_script_ends_at_its_deadline() {
    let heavy = works(HEAVY);
    let root = folder(&[
        ("tools/it.md", &artifact("timeout_ms: 1\n", &heavy)),
        ("tools/long.md", &artifact("", &heavy.replace("return 1", "return 2"))),
    ]);
    let project = open(&root);
    match project.call("it", json!({}), &Run::new()).await {
        Err(error @ CallError::Late(..)) => {
            let told = "tool `it` was ended while its script was loaded: over the limit `timeout_ms` of 1 ms; the next call may find it loaded";
            assert_eq!((error.to_string().as_str(), error.outcome()), (told, "limited"));
        }
        other => panic!("{other:?}"),
    }
    // All that wait for one script wait for one load of it.
    let loaded = project.loaded();
    let tool = loaded.registry().tool("it").unwrap().clone();
    let run = Run::new();
    let (one, other) =
        tokio::join!(loaded.tool(&tool, waiter(&run), |_| None), loaded.tool(&tool, waiter(&run), |_| None));
    for callable in [one, other] {
        assert!(matches!(callable.image, Some(Ok(_))) && callable.loading > Duration::ZERO, "{callable:?}");
    }
    assert_eq!(loaded.tool(&tool, waiter(&run), |_| None).await.loading, Duration::ZERO);
    // What a call has waited for is in its report, and gone of its time.
    let report = project.call("long", json!({}), &Run::new()).await.unwrap();
    assert!(report.usage.loading > Duration::ZERO, "{:?}", report.usage);
    assert_eq!(project.call("long", json!({}), &Run::new()).await.unwrap().usage.loading, Duration::ZERO);
}

/// Many hooks that take long to load take no longer together than the call that waits for them has.
#[tokio::test]
async fn hooks_are_loaded_within_the_time_of_their_call() {
    let hook = |n: usize| {
        let text = format!("{}\ndef handle(event, payload):\n    return allow()  # {n}\n", works(HEAVY));
        (format!("hooks/h{n:02}.md"), artifact("event: tool.pre\n", &text))
    };
    let all: Vec<(String, String)> = (0..55)
        .map(hook)
        .chain([("tools/it.md".to_owned(), artifact("timeout_ms: 100\n", "def run(args):\n    return 1\n"))])
        .collect();
    let files: Vec<(&str, &str)> = all.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let project = open(&folder(&files));
    let loaded = project.loaded();
    let run = Run::new();
    assert!(loaded.tool(loaded.registry().tool("it").unwrap(), waiter(&run), |_| None).await.image.is_some());
    let report = project.call("it", json!({}), &Run::new()).await.unwrap();
    let pre = report.pre.unwrap();
    let loading: Duration = pre.hooks.iter().map(|hook| hook.usage.loading).sum();
    // The waits are cut at the deadline: each but the last ended before it.
    let reason = pre.decision.blocked().unwrap();
    let late = "the hook failed: loading the script is over the limit `timeout_ms` of 100 ms: move work into a function \
         (that is the time of the call that waits for it)";
    assert!(reason.contains(late), "{reason}");
    let ran = pre.hooks.iter().filter(|hook| hook.verdict.ran()).count();
    assert!(ran < 55 && loading > Duration::ZERO, "{ran} of them in {loading:?}");
}

/// What each hook may take, all hooks of an event together may not: also where their scripts are loaded already.
#[tokio::test]
async fn the_hooks_of_an_event_have_its_time_together() {
    let policy =
        "---\nsandbox: { limits: { timeout_ms: 1000, fuel: 1000000000000 }, hooks: { on_error: allow } }\n---\n";
    let hook = "def handle(event, payload):\n    if payload['args'].get('long'):\n        for _ in range(1000000000):\n            pass\n    return allow()\n";
    let hook = artifact("event: tool.pre\n", hook);
    let root = folder(&[("harness.md", policy), ("tools/it.md", &returns("1"))]);
    ["a", "b", "c"].iter().for_each(|name| write(&root, &format!("hooks/{name}.md"), &hook));
    let project = open(&root);
    let loaded = project.loaded();
    let run = Run::new();
    // However busy the machine is.
    for hook in loaded.registry().hooks() {
        assert!(loaded.hook(hook, waiter(&run), None).await.image.unwrap().is_ok());
    }
    let report = project.call("it", json!({"long": true}), &Run::new()).await.unwrap();
    let hooks = report.pre.unwrap().hooks;
    let fuel: Vec<u64> = hooks.iter().map(|hook| hook.usage.fuel).collect();
    assert!(fuel[0] > 1_000_000 && fuel[1..].iter().all(|later| *later < fuel[0] / 4), "{fuel:?}");
    let why: Vec<&String> = hooks.iter().flat_map(|hook| &hook.warnings).collect();
    assert!(why.iter().all(|why| why.contains("over the limit `timeout_ms` of 1000 ms")), "{why:?}");
    assert_eq!((why.len(), report.content.as_str()), (3, "1"));
}

/// A tape of the scripts' reports, and a past that knows how loads ended.
#[derive(Debug, Default)]
struct Kept {
    told: Mutex<Vec<(String, &'static str, String)>>,
    loads: Mutex<Vec<LoadEnd>>,
}

impl Tape for Kept {
    fn begin(&self, _: &Script) -> Option<Given> {
        None
    }

    fn end(&self, ran: Ran) {
        self.told.lock().unwrap().push((ran.script.role, ran.outcome, ran.result));
    }
}

impl Past for Kept {
    fn began(&self, _: &str) -> Option<Began> {
        None
    }

    fn looked(&self) -> Option<Looked> {
        None
    }

    fn saw(&self, _: u64) -> Seen {
        Seen::Anew
    }

    fn unfinished(&self) -> Option<String> {
        None
    }

    fn state(&self, _: u64) -> Pin<Box<dyn Future<Output = Option<Arc<Added>>> + Send + '_>> {
        Box::pin(std::future::ready(None))
    }

    fn keep(&self, _: &Arc<Added>) {}

    fn over(&self, _: &str) {}

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }

    fn late_task(&self, _: &str) -> Option<u64> {
        None
    }

    fn late_delegation(&self, _: &str) -> bool {
        false
    }

    fn load(&self, script: &Script) -> Option<LoadEnd> {
        assert!(script.is_load(), "{script:?}");
        self.loads.lock().unwrap().pop()
    }

    fn turn(&self, _: &str) -> Went {
        Went::default()
    }
}

fn taped(kept: &Arc<Kept>) -> Arc<Run> {
    Run::with_session(Session { tape: Some(kept.clone()), ..Session::default() })
}

/// A load that its caller got no image of is kept: with the error that the caller got, or as abandoned.
#[tokio::test]
async fn a_load_without_an_image_is_recorded() {
    let root =
        folder(&[("tools/it.md", &artifact("timeout_ms: 1\n", &works(HEAVY))), ("tools/quick.md", &returns("1"))]);
    let project = open(&root);
    let kept = Arc::new(Kept::default());
    let run = taped(&kept);
    assert!(matches!(project.call("it", json!({}), &run).await, Err(CallError::Late(..))));
    assert_eq!(content(&project, "quick", &run).await, "1");
    let loaded = project.loaded();
    let tool = loaded.registry().tool("it").unwrap().clone();
    tokio::select! {
        biased;
        callable = loaded.tool(&tool, waiter(&run), |_| None) => panic!("{callable:?}"),
        () = std::future::ready(()) => {}
    }
    let told = kept.told.lock().unwrap();
    let told: Vec<(&str, &str)> = told.iter().map(|(role, outcome, _)| (role.as_str(), *outcome)).collect();
    assert_eq!(told, [("load", "limited"), ("tool", "completed"), ("load", "abandoned")]);
}

/// A replay ends a load where it ended then, though its script is here by now; all other loads take as long as they take.
#[tokio::test]
async fn a_replay_ends_loads_as_they_ended() {
    let root = folder(&[("tools/it.md", &artifact("", &works(HEAVY)))]);
    let project = open(&root);
    let why = "loading the script is over the limit `timeout_ms` of 7 ms".to_owned();
    let late = LoadEnd::Late { why: why.clone(), allowed: 7, fuel: 0 };
    let kept = Arc::new(Kept { loads: Mutex::new(vec![LoadEnd::Abandoned, late]), ..Kept::default() });
    let loaded = project.loaded();
    let tool = loaded.registry().tool("it").unwrap().clone();
    assert!(loaded.tool(&tool, waiter(&Run::new()), |_| None).await.image.unwrap().is_ok());
    let run = taped(&kept);
    run.set_past(kept.clone());
    match project.call("it", json!({}), &run).await {
        Err(CallError::Late(name, limit)) => assert_eq!((name.as_str(), limit.allowed), ("it", 7)),
        other => panic!("{other:?}"),
    }
    let cut = harness_sandbox::strand::until_cut(project.call("it", json!({}), &run));
    assert!(harness_sandbox::strand::in_strand(Arc::default(), cut).await.is_none());
    assert_eq!(content(&project, "it", &run).await, "1");
    let told = kept.told.lock().unwrap();
    let load = |outcome, result: &str| ("load".to_owned(), outcome, result.to_owned());
    assert_eq!(told[..2], [load("limited", &why), load("abandoned", "")]);
    assert_eq!((told.len(), told[2].1), (3, "completed"));
}
