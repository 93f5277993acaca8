use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::{Host, HostOptions, Options, Run};
use harness_registry::lock::{self, Lock};
use harness_registry::{Machine, Registry};

/// For what comes in any case; a machine may be slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the listener got: nothing, or the first message of what is wrong.
type Told = Receiver<Option<String>>;

fn tool(value: &str) -> String {
    format!("---\nscript: |\n  def run(args):\n      return {value}\n---\n")
}

fn folder() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    write(&root, "tools/it.md", &tool("'first'"));
    root
}

fn write(root: &TempDir, name: &str, text: &str) {
    let path = root.path().join(".harness").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn host() -> Host {
    Host::new(HostOptions::default()).unwrap()
}

fn open(host: &Host, root: &TempDir) -> Project {
    host.open(root.path(), Options { machine: Machine::None, ..Options::default() }).unwrap()
}

fn describe(result: Result<(), WatchError>) -> Option<String> {
    match result.err()? {
        WatchError::Load(OpenError::Artifacts(registry)) => {
            Some(registry.diagnostics().iter().next().unwrap().message.clone())
        }
        error => Some(error.to_string()),
    }
}

fn watch(project: &Project) -> (FileWatch, Told) {
    let (tell, told) = channel();
    let watch = project.watch(move |result| drop(tell.send(describe(result)))).unwrap();
    (watch, told)
}

async fn call(project: &Project, name: &str) -> String {
    match project.call(name, json!({}), &Run::new()).await {
        Ok(report) => report.content,
        Err(error) => error.to_string(),
    }
}

/// Waits for a reload after which a call of a tool returns this. A change may be read in several steps.
async fn until(project: &Project, told: &Told, name: &str, content: &str) {
    while call(project, name).await != content {
        told.recv_timeout(PATIENCE).unwrap();
    }
}

/// Waits until a reload is refused for this reason.
fn refused(told: &Told, why: &str) {
    let mut others = Vec::new();
    loop {
        match told.recv_timeout(PATIENCE) {
            Ok(Some(told)) if told == why => return,
            Ok(other) => others.push(other),
            Err(_) => panic!("not refused because {why:?}: {others:?}"),
        }
    }
}

/// How often a project was looked at since it is watched, with whether it is to be again.
fn looked_at(watch: &FileWatch) -> (u64, bool) {
    let state = watch.running.state();
    let entry = &state.entries[&watch.id];
    (entry.generation, entry.due.is_some())
}

/// Waits until all that was changed before is known: changes of all projects of a host come in one order.
async fn settle(control: &Project, told: &Told, root: &TempDir) {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let value = format!("settled {}", COUNT.fetch_add(1, Ordering::SeqCst));
    write(root, "tools/control.md", &tool(&format!("'{value}'")));
    until(control, told, "control", &value).await;
}

#[tokio::test]
async fn changes_take_force_however_they_are_made() {
    let root = folder();
    let project = open(&host(), &root);
    let (_watch, told) = watch(&project);
    let at = |name: &str| root.path().join(".harness").join(name);

    write(&root, "tools/it.md", &tool("'edited'"));
    until(&project, &told, "it", "edited").await;
    write(&root, "tools/new.md", &tool("'created'"));
    until(&project, &told, "new", "created").await;
    std::fs::write(root.path().join("elsewhere.md"), tool("'renamed'")).unwrap();
    std::fs::rename(root.path().join("elsewhere.md"), at("tools/it.md")).unwrap();
    until(&project, &told, "it", "renamed").await;
    std::fs::remove_file(at("tools/new.md")).unwrap();
    until(&project, &told, "new", "there is no tool `new`").await;

    write(&root, "plugins/acme/tools/deep.md", &tool("'in a new folder'"));
    until(&project, &told, "deep", "in a new folder").await;
    write(&root, "plugins/acme/tools/deep.md", &tool("'edited there'"));
    until(&project, &told, "deep", "edited there").await;
    std::fs::rename(at("plugins/acme"), root.path().join("away")).unwrap();
    until(&project, &told, "deep", "there is no tool `deep`").await;
    std::fs::rename(root.path().join("away"), at("plugins/acme")).unwrap();
    until(&project, &told, "deep", "edited there").await;

    // The folder itself, replaced by another one.
    std::fs::rename(root.path().join(".harness"), root.path().join("before")).unwrap();
    refused(&told, "there is not a folder `.harness` here");
    assert_eq!(call(&project, "deep").await, "edited there");
    write(&root, "tools/it.md", &tool("'in another folder'"));
    until(&project, &told, "it", "in another folder").await;
}

#[tokio::test]
async fn what_is_broken_leaves_the_version_before_in_force() {
    let root = folder();
    let project = open(&host(), &root);
    let (_watch, told) = watch(&project);
    write(&root, "tools/it.md", "---\ntimeout_ms: -1\n---\n");
    refused(&told, "tool \"it\" timeout_ms must be >= 0");
    assert_eq!(call(&project, "it").await, "first");
    // A FIFO is no file, and nobody waits for it. It comes in one step: without the tool, the project could be loaded.
    let (pipe, it) = (root.path().join("pipe"), root.path().join(".harness/tools/it.md"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::rename(&pipe, &it).unwrap();
    refused(&told, "cannot read `.harness/tools/it.md`: not a regular file");
    assert_eq!(call(&project, "it").await, "first");
    std::fs::remove_file(&it).unwrap();
    write(&root, "tools/it.md", &tool("'mended'"));
    until(&project, &told, "it", "mended").await;
}

#[tokio::test]
async fn policies_and_what_they_name_take_force() {
    let (root, elsewhere) = (folder(), tempfile::tempdir().unwrap());
    let machine = elsewhere.path().join("host.yaml");
    std::fs::write(&machine, "tools_policy: { deny: [other] }\n").unwrap();
    let options = Options { machine: Machine::File(machine.clone()), ..Options::default() };
    let project = host().open(root.path(), options).unwrap();
    let (_watch, told) = watch(&project);
    let denied = "the tool `it` is denied by `it`";

    // A policy beside the folder that was not there.
    std::fs::write(root.path().join("harness.yaml"), "tools_policy: { deny: [it] }\n").unwrap();
    until(&project, &told, "it", denied).await;
    std::fs::write(root.path().join("harness.yaml"), "tools_policy: { deny: [other] }\n").unwrap();
    until(&project, &told, "it", "first").await;
    // The host's, replaced as a whole.
    std::fs::write(elsewhere.path().join("new"), "tools_policy: { deny: [it] }\n").unwrap();
    std::fs::rename(elsewhere.path().join("new"), &machine).unwrap();
    until(&project, &told, "it", denied).await;
    std::fs::write(&machine, "tools_policy: { deny: [other] }\n").unwrap();
    until(&project, &told, "it", "first").await;

    // A further folder that is not there, and then is.
    let sources = "artifact_sources: [{ type: local, path: shared }]\n";
    std::fs::write(root.path().join("harness.yaml"), sources).unwrap();
    refused(&told, "cannot read `shared`: No such file or directory (os error 2)");
    std::fs::create_dir_all(root.path().join("shared/tools")).unwrap();
    std::fs::write(root.path().join("shared/tools/more.md"), tool("'shared'")).unwrap();
    until(&project, &told, "more", "shared").await;
    std::fs::write(root.path().join("shared/tools/more.md"), tool("'edited'")).unwrap();
    until(&project, &told, "more", "edited").await;
}

#[tokio::test]
async fn what_differs_from_the_lock_is_refused() {
    let root = folder();
    let project = open(&host(), &root);
    let (_watch, told) = watch(&project);
    let lock = || Lock::of(&Registry::load_unlocked(root.path(), &Machine::None)).text().unwrap();
    std::fs::write(root.path().join(lock::FILE), lock()).unwrap();
    while told.recv_timeout(PATIENCE).unwrap().is_some() {}
    write(&root, "tools/it.md", &tool("'changed'"));
    refused(&told, "the tool \"it\" differs from `harness.lock`: its script changed");
    assert_eq!(call(&project, "it").await, "first");
    std::fs::write(root.path().join(lock::FILE), lock()).unwrap();
    until(&project, &told, "it", "changed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_progress_ends_with_the_version_that_it_began_with() {
    let root = folder();
    std::fs::write(
        root.path().join(".harness/harness.md"),
        "---\nsandbox: { fs: { read: ['.'], write: ['.'] } }\n---\n",
    )
    .unwrap();
    let waits = "---\nscript: |\n  def run(args):\n      fs.write('began', '')\n      for n in range(100000):\n          \
                 if fs.exists('go'):\n              return value()\n          sleep(1)\n\n  def value():\n      \
                 return 'first'\n---\n";
    write(&root, "tools/waits.md", waits);
    let project = Arc::new(open(&host(), &root));
    let (_watch, told) = watch(&project);
    let caller = project.clone();
    let called = tokio::spawn(async move { call(&caller, "waits").await });
    while !root.path().join("began").exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    write(&root, "tools/waits.md", &tool("'second'"));
    write(&root, "tools/it.md", &tool("'second'"));
    until(&project, &told, "it", "second").await;
    assert_eq!(call(&project, "waits").await, "second");
    std::fs::write(root.path().join("go"), "").unwrap();
    assert_eq!(called.await.unwrap(), "first");
}

/// Neither what is written in the workspace, nor logs, nor what is beside the roots, nor changes of another project.
#[tokio::test]
async fn other_changes_cause_no_reload() {
    let (root, control_root, outside) = (folder(), folder(), tempfile::tempdir().unwrap());
    let host = host();
    let (project, control) = (open(&host, &root), open(&host, &control_root));
    std::os::unix::fs::symlink(outside.path(), root.path().join(".harness/notes")).unwrap();
    std::fs::create_dir_all(root.path().join("src/deep")).unwrap();
    let ((watched, _told), (_watch, told)) = (watch(&project), watch(&control));
    let before = looked_at(&watched);
    assert!(!before.1);
    for n in 0..200 {
        std::fs::write(root.path().join(format!("src/deep/{n}")), "x").unwrap();
        std::fs::write(root.path().join(format!("{n}.md")), "x").unwrap();
        std::fs::write(outside.path().join(format!("{n}.md")), "x").unwrap();
        write(&root, &format!("sessions/{n}.md"), "x");
        write(&root, "tools/.it.md.swp", "x");
    }
    // Calls write the audit log, and commands make folders that hold names.
    assert_eq!(call(&project, "it").await, "first");
    std::fs::create_dir(root.path().join("harness.md")).unwrap();
    std::fs::remove_dir(root.path().join("harness.md")).unwrap();
    settle(&control, &told, &control_root).await;
    assert_eq!(looked_at(&watched), before);
    // The control: the same project is reloaded for a change of its own.
    write(&root, "tools/it.md", &tool("'second'"));
    until(&project, &_told, "it", "second").await;
    assert_ne!(looked_at(&watched).0, before.0);
}

#[tokio::test]
async fn dropping_it_ends_the_watching() {
    let root = folder();
    let host = host();
    let (one, other) = (open(&host, &root), open(&host, &root));
    let ((ended, of_one), (running, told)) = (watch(&one), watch(&other));
    drop(ended);
    write(&root, "tools/it.md", &tool("'second'"));
    until(&other, &told, "it", "second").await;
    assert_eq!(call(&one, "it").await, "first");
    assert!(of_one.recv().is_err(), "its listener is dropped and was not called");
    // After the last one, another can begin.
    drop(running);
    let (_again, told) = watch(&one);
    assert_eq!(call(&one, "it").await, "second");
    write(&root, "tools/it.md", &tool("'third'"));
    until(&one, &told, "it", "third").await;
}

/// What changed since a project was opened is in force when it is watched, and what cannot be loaded then is an error.
#[tokio::test]
async fn nothing_is_missed_before_it_begins() {
    let root = folder();
    let project = open(&host(), &root);
    write(&root, "tools/it.md", &tool("'second'"));
    let (_watch, _told) = watch(&project);
    assert_eq!(call(&project, "it").await, "second");
    write(&root, "tools/it.md", "---\ntimeout_ms: -1\n---\n");
    let error = project.watch(|_| ()).unwrap_err();
    assert_eq!(describe(Err(error)).unwrap(), "tool \"it\" timeout_ms must be >= 0");
}

/// Files that are written all the time do not postpone it for ever.
#[tokio::test]
async fn a_stream_of_writes_postpones_nothing_for_ever() {
    let root = folder();
    let project = open(&host(), &root);
    let (_watch, told) = watch(&project);
    write(&root, "tools/it.md", &tool("'second'"));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                write(&root, "tools/stream.md", &tool("'x'"));
            }
        });
        let told = told.recv_timeout(PATIENCE);
        ended.store(true, Ordering::SeqCst);
        told.unwrap();
    });
    until(&project, &told, "it", "second").await;
}

#[tokio::test]
async fn a_listener_that_panics_ends_nothing() {
    let root = folder();
    let project = open(&host(), &root);
    let (tell, told) = channel();
    let _watch = project.watch(move |result| {
        tell.send(describe(result)).unwrap();
        panic!("a listener");
    });
    write(&root, "tools/it.md", &tool("'second'"));
    until(&project, &told, "it", "second").await;
    write(&root, "tools/it.md", &tool("'third'"));
    until(&project, &told, "it", "third").await;
}

#[test]
fn messages_name_the_limit() {
    let full = |path: &str| WatchError::Path { path: path.into(), source: std::io::Error::from_raw_os_error(28) };
    assert_eq!(
        full(".harness/tools").to_string(),
        "cannot watch `.harness/tools`: No space left on device (os error 28); this user watches as many files as it \
         may: raise `fs.inotify.max_user_watches` with sysctl"
    );
    assert_eq!(
        WatchError::Start(std::io::Error::from_raw_os_error(24)).to_string(),
        "cannot watch files: Too many open files (os error 24); raise `fs.inotify.max_user_instances` with sysctl if \
         this user has as many watchers as it may, or `ulimit -n` if this process has as many open files as it may"
    );
}
