//! Projects of one host: what each gets of the machine, and how much of what all have.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::AtomicU64;

use super::*;
use harness_capability::clock::{Clock, Moment};
use harness_capability::random::Random;
use harness_capability::system::System;
use harness_sandbox::scheduling::quota::Quota;

fn host() -> Host {
    Host::new(HostOptions::default()).unwrap()
}

fn project(root: &TempDir, host: &Host, options: Options) -> Project {
    host.open(root.path(), Options { machine: Machine::None, ..options }).unwrap()
}

/// Of the process's environment a project has what its options give it: scripts, commands and secrets.
#[tokio::test]
async fn what_is_not_given_is_not_there() {
    let policy = "---\nsandbox:\n  env: [PATH, GIVEN]\n  exec: { allow: [env], env: [HOME, GIVEN], unconfined: true }\n  secrets: { TOKEN: { env: TOKEN, exec: [env] } }\n---\n";
    let looks = "def run(args):\n    shown = exec.run('env')['stdout'].splitlines()\n    return [env('PATH') != '', env('GIVEN'), sorted([one for one in shown if not one.startswith('PATH=')])]\n";
    let root = folder(&[("tools/it.md", &artifact("", looks)), ("harness.md", policy)]);
    let host = host();
    let options = |system| Options { system, ..Options::default() };
    let given = [("GIVEN".to_owned(), "a value".to_owned())].into_iter().collect();
    let bare = project(&root, &host, Options::default());
    let given = project(&root, &host, options(System::default().with_variables(given)));
    let process = project(&root, &host, options(System::default().with_environment()));
    assert_eq!(content(&bare, "it", &Run::new()).await, r#"[false,"",[]]"#);
    assert_eq!(content(&given, "it", &Run::new()).await, r#"[false,"a value",["GIVEN=a value"]]"#);
    let home = std::env::var("HOME").unwrap();
    assert_eq!(content(&process, "it", &Run::new()).await, format!(r#"[true,"",["HOME={home}"]]"#));
    // A secret is read from the same variables.
    let missing = |project: &Project| project.loaded().secrets().missing().count();
    assert_eq!((missing(&bare), missing(&given)), (1, 1));
    let token = [("TOKEN".to_owned(), "a long enough value".to_owned())].into_iter().collect();
    assert_eq!(missing(&project(&root, &host, options(System::default().with_variables(token)))), 0);
}

#[tokio::test]
async fn time_and_random_numbers_are_those_that_are_given() {
    let root = folder(&[("tools/it.md", &returns("[time.now(), uuid.v4()]"))]);
    let host = host();
    let fixed = |seed| {
        let clock = Clock::Fixed(Moment { seconds: 1_767_323_045, nanoseconds: 0 });
        let system = System::default().with_clock(clock).with_random(Random::Seeded(AtomicU64::new(seed)));
        project(&root, &host, Options { system, ..Options::default() })
    };
    let (first, same, other) = (fixed(7), fixed(7), fixed(8));
    let seen = content(&first, "it", &Run::new()).await;
    assert!(seen.starts_with(r#"["2026-01-02T03:04:05Z","#), "{seen}");
    assert_eq!(content(&same, "it", &Run::new()).await, seen);
    assert_ne!(content(&other, "it", &Run::new()).await, seen);
    let own = project(&root, &host, Options::default());
    assert_ne!(content(&own, "it", &Run::new()).await, content(&own, "it", &Run::new()).await);
}

/// A server that answers each request with so many bytes.
fn server(bytes: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n{}", "x".repeat(bytes));
        }
    });
    port
}

/// A body that the project has no room for is an error of its request, and of no other project's.
#[tokio::test]
async fn bodies_under_way_have_a_bound() {
    let port = server(100_000);
    let policy = format!("---\nnetwork: {{ allowed_domains: ['127.0.0.1:{port}'] }}\n---\n");
    let asks = format!("def run(args):\n    return len(http.get('http://127.0.0.1:{port}/')['body'])\n");
    let root = folder(&[("tools/it.md", &artifact("", &asks)), ("harness.md", &policy)]);
    let host = host();
    let with =
        |bytes| project(&root, &host, Options { quota: Quota::default().http_bytes(bytes), ..Options::default() });
    let (small, enough) = (with(99_999), with(100_000));
    let report = small.call("it", json!({}), &Run::new()).await.unwrap();
    let why = "busy: the bodies of the project's requests together would exceed 99999 bytes (`http_bytes`, set by the project's quota); retry later";
    assert!(report.is_error && report.content.contains(why), "{}", report.content);
    for _ in 0..3 {
        assert_eq!(content(&enough, "it", &Run::new()).await, "100000");
    }
    assert_eq!((small.share().resources().http_bytes(), enough.share().resources().http_bytes()), (0, 0));
}

/// Commands and files that are over the project's number wait for each other; a command waits for its own time and no
/// longer.
#[tokio::test]
async fn commands_and_files_have_a_number() {
    let policy = "---\nsandbox: { exec: { allow: [sh], unconfined: true } }\n---\n";
    let holds = "def run(args):\n    return exec.run('sh', ['-c', 'touch held; while [ ! -e go ]; do sleep 0.01; done'])['exit_code']\n";
    let asks = "def run(args):\n    return exec.run('sh', ['-c', 'exit 3'], timeout_ms=args['ms'])['exit_code']\n";
    let reads = "def run(args):\n    return [fs.list('.'), fs.glob('*.none')][1]\n";
    let files = [
        ("tools/holds.md", &*artifact("", holds)),
        ("tools/asks.md", &artifact("", asks)),
        ("tools/reads.md", &artifact("", reads)),
        ("harness.md", policy),
    ];
    let root = folder(&files);
    let host = host();
    let quota = Quota::default().commands(1).open_files(1);
    let few = Arc::new(project(&root, &host, Options { quota, ..Options::default() }));
    let other = project(&root, &host, Options::default());
    let held = tokio::spawn({
        let few = few.clone();
        async move { few.call("holds", json!({}), &Run::new()).await.unwrap().content }
    });
    while !root.path().join("held").exists() {
        tokio::task::yield_now().await;
    }
    let report = few.call("asks", json!({"ms": 20}), &Run::new()).await.unwrap();
    let why = "busy: the command waited 20 ms for one of the project's 1 commands to end (`commands`, set by the project's quota); retry later";
    assert!(report.is_error && report.content.contains(why), "{}", report.content);
    let report = other.call("asks", json!({"ms": 30_000}), &Run::new()).await.unwrap();
    assert_eq!(report.content, "3");
    std::fs::write(root.path().join("go"), "").unwrap();
    assert_eq!(held.await.unwrap(), "0");
    assert_eq!(few.call("asks", json!({"ms": 30_000}), &Run::new()).await.unwrap().content, "3");
    // All of them come to their turn.
    let mut reading = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let few = few.clone();
        reading.spawn(async move { few.call("reads", json!({}), &Run::new()).await.unwrap().content });
    }
    assert!(reading.join_all().await.iter().all(|content| content == "[]"));
}

/// A project that keeps too many images ready gives up its own, and nobody else's.
#[tokio::test]
async fn images_that_are_kept_ready_have_a_bound() {
    let tools: Vec<(String, String)> = (0..20).map(|n| (format!("tools/t{n}.md"), returns(&n.to_string()))).collect();
    let files: Vec<(&str, &str)> = tools.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let (many, one) = (folder(&files), folder(&[("tools/own.md", &returns("'own'"))]));
    let host = host();
    let own = project(&one, &host, Options::default());
    assert_eq!(content(&own, "own", &Run::new()).await, "own");
    let (_, size) = host.images();
    let quota = Quota::default().image_bytes(4 * size);
    let greedy = project(&many, &host, Options { quota, ..Options::default() });
    for _ in 0..2 {
        for n in 0..20 {
            assert_eq!(content(&greedy, &format!("t{n}"), &Run::new()).await, n.to_string());
        }
    }
    let (count, bytes) = host.images();
    assert!(count < 8 && bytes <= 6 * size, "{count} of {bytes} bytes");
    let free = project(&many, &host, Options::default());
    for n in 0..20 {
        assert_eq!(content(&free, &format!("t{n}"), &Run::new()).await, n.to_string());
    }
    assert!(host.images().0 > 20);
}

/// The log is that of the folder that was opened: when another project takes its path, nothing is called, and nothing is
/// written into the log of the other.
#[tokio::test]
async fn the_log_of_another_project_stays_its_own() {
    let outer = tempfile::tempdir().unwrap();
    let lay = |name: &str| {
        let tools = outer.path().join(name).join(".harness/tools");
        std::fs::create_dir_all(&tools).unwrap();
        std::fs::write(tools.join("it.md"), returns(&format!("'{name}'"))).unwrap();
        outer.path().join(name)
    };
    let (first, second) = (lay("first"), lay("second"));
    let host = host();
    let open = |root: &Path| host.open(root, Options { machine: Machine::None, ..Options::default() }).unwrap();
    let (one, other) = (open(&first), open(&second));
    assert_eq!(content(&one, "it", &Run::new()).await, "first");
    assert_eq!(content(&other, "it", &Run::new()).await, "second");
    let lines = |root: &Path| harness_audit::lines(&root.join(harness_audit::FOLDER)).unwrap().len();
    let moved = outer.path().join("moved");
    std::fs::rename(&first, &moved).unwrap();
    std::fs::rename(&second, &first).unwrap();
    // Until the writer looks for its files again, it has those of the folder that was moved.
    let error = loop {
        match one.call("it", json!({}), &Run::new()).await {
            Ok(_) => tokio::time::sleep(std::time::Duration::from_millis(1)).await,
            Err(error) => break error,
        }
    };
    let why = format!("`{}` is no longer the folder that was opened: reload the project", first.display());
    assert!(error.to_string().contains(&why), "{error}");
    assert!(lines(&moved) >= 1);
    assert_eq!(lines(&first), 1);
    // Reloaded it is the project of the folder that is there, with that one's log.
    one.reload().unwrap();
    assert_eq!(content(&one, "it", &Run::new()).await, "second");
    assert_eq!(lines(&first), 2);
}

/// Background tasks that one project starts leave the others their instances.
#[tokio::test]
async fn background_tasks_count_for_the_instances_of_their_project() {
    let policy = "---\nmeta: { enabled: true }\nsandbox: { async_tools: true }\n---\n";
    let starts = "def run(args):\n    for n in range(12):\n        meta.call_tool('sleeps', {})\n    metrics.set('started', 1)\n    sleep(600000)\n";
    let sleeps = artifact("async: true\n", "def run(args):\n    metrics.incr('asleep')\n    sleep(600000)\n");
    let greedy =
        folder(&[("tools/starts.md", &artifact("", starts)), ("tools/sleeps.md", &sleeps), ("harness.md", policy)]);
    let root = folder(&[("tools/it.md", &returns("1"))]);
    let host = Host::new(HostOptions::default().instances(4)).unwrap();
    let options = Options { quota: Quota::default().instances(2), audit: false, ..Options::default() };
    let (greedy, other) = (Arc::new(project(&greedy, &host, options)), project(&root, &host, Options::default()));
    let run = Run::new();
    let starting = tokio::spawn({
        let (greedy, run) = (greedy.clone(), run.clone());
        async move { drop(greedy.call("starts", json!({}), &run).await) }
    });
    while run.session().metrics.get("started") < 1.0 || run.session().metrics.get("asleep") < 2.0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    // One more than its room: the instance that is reserved for its level.
    assert_eq!(run.session().metrics.get("asleep"), 2.0);
    for _ in 0..20 {
        assert_eq!(content(&other, "it", &Run::new()).await, "1");
    }
    starting.abort();
    run.tasks().cancel();
}
