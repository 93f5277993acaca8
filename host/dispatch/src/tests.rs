mod loads;
mod progress;
mod projects;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use harness_artifact::policy::layer;
use harness_artifact::when::Filter;
use harness_sandbox::outcome::{Entry, LimitKind, Outcome, Predicate, Source};
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

/// A project of these files below `.harness/`.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        write(&root, name, text);
    }
    root
}

fn write(root: &TempDir, name: &str, text: &str) {
    let path = root.path().join(".harness").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Some of the folders are gone before the calls are made: there is nothing to record in.
fn open(root: &TempDir) -> Project {
    Project::open(root.path(), Options { audit: false, ..Options::default() }).unwrap()
}

/// A caller that does not wait leaves a line all the same.
#[tokio::test]
async fn a_call_that_is_given_up_is_recorded() {
    let root = tempfile::tempdir().unwrap();
    write(&root, "tools/slow.md", &artifact("", "def run(args):\n    fs.write('begun', '')\n    sleep(60000)\n"));
    let project = Project::open(root.path(), Options::default()).unwrap();
    let run = Run::new();
    let call = project.call("slow", json!({}), &run);
    let begun = async {
        while !root.path().join("begun").exists() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        ended = call => panic!("{ended:?}"),
        () = begun => {}
    }
    let lines = harness_audit::lines(&root.path().join(harness_audit::FOLDER)).unwrap();
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((lines.len(), &line["tool"], &line["outcome"]), (1, &json!("slow"), &json!("abandoned")));
}

/// Front matter with a script.
fn artifact(front: &str, script: &str) -> String {
    let script: String = script.lines().map(|line| format!("  {line}\n")).collect();
    format!("---\n{front}script: |\n{script}---\n")
}

fn returns(value: &str) -> String {
    artifact("", &format!("def run(args):\n    return {value}\n"))
}

fn decides(front: &str, decision: &str) -> String {
    artifact(front, &format!("def handle(event, payload):\n    return {decision}\n"))
}

async fn content(project: &Project, name: &str, run: &Arc<Run>) -> String {
    project.call(name, json!({}), run).await.unwrap().content
}

#[tokio::test]
async fn a_changed_folder_is_taken_in_force_and_a_broken_one_is_not() {
    let root = folder(&[("tools/it.md", &returns("1"))]);
    let project = open(&root);
    let run = Run::new();
    assert_eq!(content(&project, "it", &run).await, "1");
    let before = project.loaded();

    write(&root, "tools/it.md", &returns("2"));
    write(&root, "tools/more.md", &returns("3"));
    assert_eq!(content(&project, "it", &run).await, "1");
    project.reload().unwrap();
    assert_eq!((content(&project, "it", &run).await, content(&project, "more", &run).await), ("2".into(), "3".into()));

    write(&root, "tools/it.md", "---\ntimeout_ms: -1\n---\n");
    let Err(OpenError::Artifacts(registry)) = project.reload() else { panic!() };
    let told: Vec<&str> = registry.diagnostics().iter().map(|d| d.message.as_str()).collect();
    assert_eq!(told, ["tool \"it\" timeout_ms must be >= 0"]);
    assert_eq!(content(&project, "it", &run).await, "2");
    // Who holds the old state still has it.
    assert_eq!(before.registry().tools().len(), 1);
}

#[tokio::test]
async fn a_caller_with_its_own_grant() {
    let reads = artifact("", "def run(args):\n    return fs.read(args['path'])\n");
    let root = folder(&[("tools/reads.md", &reads)]);
    std::fs::create_dir(root.path().join("docs")).unwrap();
    std::fs::write(root.path().join("docs/a.txt"), "in").unwrap();
    std::fs::write(root.path().join("b.txt"), "out").unwrap();
    let project = open(&root);
    let outcome = async |path: &str, run: &Arc<Run>| {
        project.call("reads", json!({"path": path}), run).await.unwrap().outcome.name()
    };
    let (layer, diagnostics) = layer::parse("tenant", "fs: { read: [docs] }\nlimits: { timeout_ms: 5000 }");
    assert!(!diagnostics.has_errors());
    let narrowed = Run::narrowed(layer.into_iter().collect());
    assert_eq!((outcome("docs/a.txt", &narrowed).await, outcome("b.txt", &narrowed).await), ("completed", "denied"));
    assert_eq!(outcome("b.txt", &Run::new()).await, "completed");
    let (none, diagnostics) = layer::parse("tenant", "fss: {}");
    assert_eq!((none, diagnostics.errors()), (None, 1));
}

#[tokio::test]
async fn runs_share_nothing() {
    let counts = "def run(args):\n    n = cache.get('n', 0) + 1\n    cache.set('n', n)\n    return n\n";
    let project = open(&folder(&[("tools/counts.md", &artifact("", counts))]));
    let (one, other) = (Run::new(), Run::new());
    assert_eq!(content(&project, "counts", &one).await, "1");
    assert_eq!(content(&project, "counts", &one).await, "2");
    assert_eq!(content(&project, "counts", &other).await, "1");
}

#[tokio::test]
async fn many_callers_at_once() {
    let echo = artifact("", "def run(args):\n    return args['n']\n");
    let adds = decides("event: tool.pre\n", "modify({'args': {'n': payload['args']['n'] + 1}})");
    let root = folder(&[("tools/echo.md", &echo), ("hooks/adds.md", &adds)]);
    let options = Options::default();
    let project = Arc::new(Project::open(root.path(), options).unwrap());
    let calls: Vec<_> = (0..64)
        .map(|n| {
            let project = project.clone();
            tokio::spawn(async move { project.call("echo", json!({"n": n}), &Run::new()).await.unwrap().result })
        })
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), json!(n + 1));
    }
}

/// An implementation that counts its calls.
#[derive(Debug, Default)]
struct Counter(AtomicUsize);

impl NativeTool for Counter {
    fn call(&self, arguments: Json) -> Pin<Box<dyn Future<Output = Result<Json, String>> + Send + '_>> {
        Box::pin(async move {
            self.0.fetch_add(1, Ordering::Relaxed);
            match arguments.get("fail") {
                Some(_) => Err("no".to_owned()),
                None => Ok(json!({"got": arguments})),
            }
        })
    }
}

#[tokio::test]
async fn a_tool_that_the_embedder_implements_is_checked_and_governed() {
    let declared = "---\nparameters:\n  n: { type: number, required: true }\n---\n# native\n";
    let guard = decides("event: tool.pre\nwhen: payload[\"args\"][\"n\"] == 13\n", "block('not that one')");
    let redacts = decides("event: tool.post\n", "modify({'result': {'redacted': True}})");
    let root = folder(&[("tools/native.md", declared), ("hooks/guard.md", &guard), ("hooks/redacts.md", &redacts)]);
    let counter = Arc::new(Counter::default());
    let natives: Vec<(String, Arc<dyn NativeTool>)> = vec![("native".to_owned(), counter.clone())];
    let project = Project::open(root.path(), Options { natives, ..Options::default() }).unwrap();
    let run = Run::new();
    let Err(CallError::Arguments { .. }) = project.call("native", json!({"n": "x"}), &run).await else { panic!() };
    let blocked = project.call("native", json!({"n": 13}), &run).await.unwrap();
    assert_eq!(blocked.content, "tool blocked: blocked by hook \"guard\": not that one");
    assert_eq!(counter.0.load(Ordering::Relaxed), 0);
    let called = project.call("native", json!({"n": 1}), &run).await.unwrap();
    assert_eq!((called.content.as_str(), called.is_error), ("{\"redacted\":true}", false));
    let failed = project.call("native", json!({"n": 1, "fail": 1}), &run).await.unwrap();
    assert_eq!((failed.outcome.name(), counter.0.load(Ordering::Relaxed)), ("failed", 2));
    // Without an implementation it says so.
    let Err(CallError::NoScript(name)) = open(&root).call("native", json!({"n": 1}), &run).await else { panic!() };
    assert_eq!(name, "native");
}

#[tokio::test]
async fn a_call_has_an_identifier_that_its_hooks_see() {
    let keeps = decides("event: tool.pre\n", "[cache.set('id', payload['id']), allow()][1]");
    let sees = artifact("", "def run(args):\n    return cache.get('id')\n");
    let project = open(&folder(&[("tools/sees.md", &sees), ("hooks/keeps.md", &keeps)]));
    let run = Run::new();
    assert_eq!(content(&project, "sees", &run).await, "call_1");
    assert_eq!(content(&project, "sees", &run).await, "call_2");
    let call = Call { id: Some("toolu_7".to_owned()), name: "sees".to_owned(), arguments: json!({}) };
    let report = project.make(call, &run).await.unwrap();
    assert_eq!((report.id.as_str(), report.content.as_str()), ("toolu_7", "toolu_7"));
}

/// A script that fires an event whose hook fires it again, and again.
#[tokio::test]
async fn a_loop_of_events_ends() {
    let emits = artifact("", "def run(args):\n    return events.emit('custom.ping', {'n': 0})\n");
    let again = artifact(
        "event: custom.ping\n",
        "def handle(event, payload):\n    cache.set('deep', payload['n'] + 1)\n    events.emit('custom.ping', {'n': payload['n'] + 1})\n    return allow()\n",
    );
    let project = open(&folder(&[("tools/emits.md", &emits), ("hooks/again.md", &again)]));
    let run = Run::new();
    let report = project.call("emits", json!({}), &run).await.unwrap();
    // The innermost hook fails and so blocks its event, and with it the one above, up to the call; every level is there.
    let failed = "events.emit: blocked by hook \"again\": the hook failed: ";
    let why = "events.emit: events within events, deeper than 8 levels";
    assert!(report.content.starts_with(&format!("tool denied: {}{why}", failed.repeat(8))), "{}", report.content);
    assert_eq!(run.session().cache.get("deep").as_deref(), Some("8"));
    let mut innermost = &report.nested;
    let mut levels = 0;
    while let Some(Nested::Event(dispatch)) = innermost.first() {
        levels += 1;
        let hook = dispatch.hooks.first().unwrap();
        assert!(hook.reason.as_deref().is_some_and(|reason| reason.contains(why)), "{:?}", hook.reason);
        innermost = &hook.nested;
    }
    assert_eq!(levels, 8);
}

/// A plugin of very many small scripts takes no more of the host than one of some hundred.
#[tokio::test]
async fn a_bundle_has_so_many_scripts() {
    let names: Vec<String> = (0..300).map(|n| format!("{n:03}")).collect();
    let files = |folder: &str| -> Vec<(String, String)> {
        names.iter().map(|n| (format!("{folder}tools/t{n}.md"), returns("1"))).collect()
    };
    for (place, loaded) in [("", 300), ("plugins/x/", 256)] {
        let files = files(place);
        let project = open(&folder(&files.iter().map(|(name, text)| (&**name, &**text)).collect::<Vec<_>>()));
        let run = Run::new();
        let mut completed = 0;
        for n in &names {
            match project.call(&format!("t{n}"), json!({}), &run).await {
                Ok(_) => completed += 1,
                Err(CallError::Script(failure)) => {
                    let why = "the scripts of `plugins/x` are more than 256: the others are not loaded";
                    assert_eq!(failure.message, why);
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!(completed, loaded, "{place}");
    }
}

/// A copy ends where its call has no more files or bytes, and does not continue to where it is counted.
#[tokio::test]
async fn a_copy_ends_at_the_limits_of_its_call() {
    let copies = artifact("", "def run(args):\n    fs.copy('tree', 'copy')\n");
    for (limit, kind, most) in [("files: 10", LimitKind::Files, 10), ("io_bytes: 20000", LimitKind::Io, 21)] {
        let policy = format!("---\nsandbox: {{ limits: {{ {limit} }} }}\n---\n");
        let root = folder(&[("tools/copies.md", &copies), ("harness.md", &policy)]);
        std::fs::create_dir(root.path().join("tree")).unwrap();
        for n in 0..200 {
            std::fs::write(root.path().join(format!("tree/{n}")), [b'x'; 1000]).unwrap();
        }
        let report = open(&root).call("copies", json!({}), &Run::new()).await.unwrap();
        let Outcome::Limited(hit) = report.outcome else { panic!("{limit}: {:?}", report.outcome) };
        assert_eq!(hit.kind, kind);
        let made = std::fs::read_dir(root.path().join("copy")).map_or(0, Iterator::count);
        assert!(made <= most, "{limit}: {made} files");
    }
}

/// What is started may be much, and say much: the host keeps so much of it, and what the rest used.
#[tokio::test]
async fn what_is_started_takes_room_that_has_an_end() {
    let emits = artifact(
        "parameters: { events: { type: number } }\n",
        "def run(args):\n    for i in range(int(args['events'])):\n        events.emit('custom.big')\n    return 'done'\n",
    );
    let logs = artifact(
        "event: custom.big\n",
        "def handle(event, payload):\n    for i in range(100):\n        log('x' * 16000)\n    return allow()\n",
    );
    let hooks: Vec<String> = (0..12).map(|n| format!("hooks/h{n:02}.md")).collect();
    let with_hooks = |count: usize| {
        let hooks = hooks.iter().take(count).map(|name| (name.as_str(), logs.as_str()));
        open(&folder(&[vec![("tools/emits.md", emits.as_str())], hooks.collect()].concat()))
    };
    let call = async |project: Project, events: u64| {
        project.call("emits", json!({ "events": events }), &Run::new()).await.unwrap()
    };

    let one = call(with_hooks(1), 1).await.total().fuel;
    let report = call(with_hooks(1), 40).await;
    let (kept, rest) = report.nested.split_at(10);
    let lines = |nested: &Nested| match nested {
        Nested::Event(dispatch) => dispatch.hooks[0].log.lines.len(),
        _ => 0,
    };
    assert_eq!(kept.iter().map(lines).collect::<Vec<_>>(), [100; 10]);
    let [Nested::Rest { count: 30, usage }] = rest else { panic!("{rest:?}") };
    // What the others used is counted all the same.
    let each = usage.fuel / 30;
    assert!(each < one && report.total().fuel >= each * 40, "{each} {one} {}", report.total().fuel);

    let report = call(with_hooks(12), 1).await;
    let [Nested::Event(dispatch)] = report.nested.as_slice() else { panic!("{:?}", report.nested) };
    let told = dispatch.hooks.iter().map(|hook| (hook.log.lines.len(), hook.log.dropped)).collect::<Vec<_>>();
    assert_eq!(told, [vec![(100, 0); 10], vec![(0, 100); 2]].concat());
}

/// What a nested call uses is taken from the caller's fuel: it cannot get more work done than its own limit.
#[tokio::test]
async fn nested_work_is_paid_by_the_caller() {
    let emits = artifact(
        "capabilities: { limits: { fuel: 50000000 } }\n",
        "def run(args):\n    for i in range(1000):\n        events.emit('custom.work')\n    return 'done'\n",
    );
    let works = artifact(
        "event: custom.work\n",
        "def handle(event, payload):\n    x = 0\n    for i in range(20000):\n        x += i\n    return allow()\n",
    );
    let project = open(&folder(&[("tools/emits.md", &emits), ("hooks/works.md", &works)]));
    let report = project.call("emits", json!({}), &Run::new()).await.unwrap();
    let Outcome::Limited(limit) = report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!((limit.kind.name(), limit.allowed), ("fuel", 50_000_000));
}

/// What the hooks of a nested call take is not there a second time for its tool.
#[tokio::test]
async fn hooks_of_a_nested_call_take_from_its_fuel() {
    const FUEL: u64 = 500_000_000;
    let calls = artifact("", "def run(args):\n    return meta.call_tool('burns')\n");
    let burns = artifact("", "def run(args):\n    for i in range(1000000000):\n        pass\n");
    let works = artifact(
        "event: tool.pre\nwhen: payload[\"name\"] == \"burns\"\n",
        "def handle(event, payload):\n    x = 0\n    for i in range(20000):\n        x += i\n    return allow()\n",
    );
    let policy = format!("---\nmeta: {{ enabled: true }}\nsandbox: {{ limits: {{ fuel: {FUEL} }} }}\n---\n");
    let root = folder(&[
        ("tools/calls.md", &calls),
        ("tools/burns.md", &burns),
        ("hooks/works.md", &works),
        ("harness.md", &policy),
    ]);
    let report = open(&root).call("calls", json!({}), &Run::new()).await.unwrap();
    let [.., Nested::Call(inner)] = report.nested.as_slice() else { panic!("{:?}", report.nested) };
    let Outcome::Limited(limit) = &inner.outcome else { panic!("{:?}", inner.outcome) };
    let hook = inner.pre.as_ref().unwrap().usage().fuel;
    assert!(hook > 1_000_000, "{hook}");
    assert!(limit.allowed + hook <= FUEL, "{} and {hook}", limit.allowed);
}

/// The hooks of one dispatch are those that were there when it began, whatever a reload brings meanwhile.
#[tokio::test]
async fn a_dispatch_sees_one_registry() {
    let waits = "def handle(event, payload):\n    cache.set('in', True)\n    for i in range(2000):\n        if cache.has('go'):\n            return allow()\n        sleep(5)\n    return block('never told to go on')\n";
    let root = folder(&[
        ("tools/it.md", &returns("1")),
        ("hooks/waits.md", &artifact("event: tool.pre\npriority: 1\n", waits)),
    ]);
    let project = Arc::new(open(&root));
    let run = Run::new();
    let under_way = {
        let (project, run) = (project.clone(), run.clone());
        tokio::spawn(async move { project.call("it", json!({}), &run).await.unwrap() })
    };
    while !run.session().cache.has("in") {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    write(&root, "hooks/blocks.md", &decides("event: tool.pre\npriority: 2\n", "block('new')"));
    project.reload().unwrap();
    run.session().cache.set("go".to_owned(), "true".to_owned()).unwrap();
    assert_eq!(under_way.await.unwrap().content, "1");
    let after = project.call("it", json!({}), &run).await.unwrap();
    assert_eq!(after.content, "tool blocked: blocked by hook \"blocks\": new");
}

/// Words of the part of the language that is decided without an instance.
fn expression() -> impl Strategy<Value = String> {
    let key = || prop_oneof![Just("\"name\""), Just("'kind'"), Just("\"none\""), Just("\"n\"")];
    let text = || prop_oneof![Just("\"run\""), Just("'walk'"), Just("\"x\""), Just("'tool.pre'")];
    let term = prop_oneof![
        key().prop_map(|key| format!("payload[{key}]")),
        key().prop_map(|key| format!("payload.get({key})")),
        Just("event".to_owned()),
        text().prop_map(str::to_owned),
    ];
    let list = proptest::collection::vec(text(), 0..3).prop_map(|texts| format!("[{}]", texts.join(", ")));
    let leaf = prop_oneof![
        (term.clone(), prop_oneof![Just("=="), Just("!=")], term.clone())
            .prop_map(|(a, op, b)| format!("{a} {op} {b}")),
        (term, prop_oneof![Just("in"), Just("not in")], list).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
        Just("True".to_owned()),
        Just("False".to_owned()),
    ];
    leaf.prop_recursive(4, 16, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} and {b}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} or {b}")),
            inner.clone().prop_map(|a| format!("not {a}")),
            inner.prop_map(|a| format!("({a})")),
        ]
    })
}

/// What is decided without an instance is what the interpreter says.
#[test]
fn a_filter_agrees_with_the_interpreter() {
    let root = folder(&[]);
    std::fs::create_dir(root.path().join(".harness")).unwrap();
    let project = open(&root);
    let loaded = project.loaded();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let payloads = [
        json!({"name": "run", "kind": "x", "n": 1}),
        json!({"name": "walk", "n": null}),
        json!({"kind": 5}),
        json!("run"),
    ];
    let decided = AtomicUsize::new(0);
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        ProptestConfig { cases: 60, ..ProptestConfig::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let outcome = runner.run(&expression(), |when| {
        let filter = Filter::parse(&when).unwrap_or_else(|| panic!("{when}"));
        let source = Source {
            file: "w.md".to_owned(),
            text: String::new(),
            first_line: 1,
            indent: 0,
            entry: Entry::Hook,
            predicate: Some(Predicate { text: when.clone(), line: 1, column: 1 }),
            coverage: false,
        };
        let image = loaded.sandbox().load(&source).unwrap();
        for payload in &payloads {
            let Some(certain) = filter.decide("tool.pre", payload) else { continue };
            decided.fetch_add(1, Ordering::Relaxed);
            let grant = harness_policy::grant::Grant::new(vec![loaded.policy().project.clone()]);
            let limits = grant.limits();
            let context = harness_sandbox::state::Context {
                grant: Arc::new(grant),
                workspace: loaded.workspace().clone(),
                session: Arc::default(),
                turn: Arc::default(),
                namespace: None,
                system: Arc::default(),
                http: Arc::default(),
                listener: None,
                secrets: Arc::default(),
                depth: 0,
                reentry: None,
            };
            let text = payload.to_string();
            let report = runtime.block_on(loaded.sandbox().matches(&image, context, limits, "tool.pre", &text));
            prop_assert_eq!(report.outcome, Outcome::Completed(certain), "{} on {}", when, payload);
        }
        Ok(())
    });
    outcome.unwrap();
    assert!(decided.load(Ordering::Relaxed) > 60, "too little was decided to say anything");
}

#[test]
fn every_script_is_loaded_on_all_cores() {
    let mut files: Vec<(String, String)> =
        (0..40).map(|n| (format!("tools/t{n:02}.md"), returns(&n.to_string()))).collect();
    files.push(("tools/bad.md".to_owned(), returns("nothing_of_this_name")));
    files.push(("hooks/worse.md".to_owned(), decides("event: error\nwhen: 1 +\n", "allow()")));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let failures = open(&folder(&files)).loaded().load_all();
    let files: Vec<&str> = failures
        .iter()
        .map(|one| match one {
            Unloadable::Script(failure) | Unloadable::Late(failure, _) => failure.file.as_str(),
            Unloadable::Host(message) => panic!("{message}"),
        })
        .collect();
    assert_eq!(files, [".harness/tools/bad.md", ".harness/hooks/worse.md"]);
}
