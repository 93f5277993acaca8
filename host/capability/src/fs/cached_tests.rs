//! What is answered without waiting is what would be answered with it, and is answered wherever that can be.

use std::fs;

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::cached::MAX_BYTES;
use super::tests::{Bench, all, grant};

/// A workspace with something of each kind.
fn bench() -> Bench {
    let large = "x".repeat(usize::try_from(MAX_BYTES).unwrap());
    let bench = Bench::new(&[
        ("a", "1"),
        ("sub/b.txt", "héllo"),
        ("sub/deep/c", ""),
        ("sub/.env", "secret"),
        ("agents/x", "closed"),
        ("large", &large),
        ("larger", &format!("{large}x")),
    ]);
    fs::write(bench.at("binary"), [0xff, 0xfe]).unwrap();
    mknodat(CWD, bench.at("fifo"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    for (name, target) in [("link", "a"), ("folder", "sub"), ("up", ".."), ("env", "sub/.env"), ("nowhere", "no")] {
        bench.link(name, target);
    }
    bench.link("out", bench.outside("secret"));
    bench
}

#[test]
fn what_is_in_memory_is_answered_at_once() {
    let bench = bench();
    let workspace = &bench.workspace;
    // On other file systems nothing is.
    let text = |text: &str| workspace.local.then(|| text.to_owned());
    let read = |path: &str| workspace.read_cached(&all(), path);
    assert_eq!(read("a"), text("1"));
    assert_eq!(read("./sub//b.txt"), text("héllo"));
    assert_eq!(read(&format!("{}/sub/../sub/deep/c", workspace.absolute())), text(""));
    assert_eq!(read("large"), workspace.local.then(|| workspace.read(&all(), "large").unwrap()));
    for path in ["no", "sub/no", "no/thing"] {
        // It has been looked for before.
        assert_eq!(workspace.exists(&all(), path), Ok(false));
        assert_eq!(workspace.exists_cached(&all(), path), workspace.local.then_some(false), "{path}");
    }
    for path in ["a", "sub", ".", "fifo", "sub/deep/c", "larger", "binary"] {
        assert_eq!(workspace.exists_cached(&all(), path), workspace.local.then_some(true), "{path}");
        let want = workspace.local.then(|| workspace.stat(&all(), path).unwrap());
        assert_eq!(workspace.stat_cached(&all(), path), want, "{path}");
    }
}

/// Opening a pipe lets someone continue who waits for that.
#[test]
fn what_is_no_file_is_not_opened() {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let bench = bench();
    let opened = init(CreateFlags::NONBLOCK).unwrap();
    add_watch(&opened, bench.at("fifo"), WatchFlags::OPEN).unwrap();
    assert_eq!(bench.workspace.read_cached(&all(), "fifo"), None);
    assert_eq!(rustix::io::read(&opened, &mut [0; 256]), Err(rustix::io::Errno::AGAIN));
    fs::OpenOptions::new().read(true).write(true).open(bench.at("fifo")).unwrap();
    assert!(rustix::io::read(&opened, &mut [0; 256]).is_ok());
}

#[test]
fn the_rest_is_not() {
    let bench = bench();
    let workspace = &bench.workspace;
    for path in ["", "no", "sub", ".", "larger", "binary", "fifo", "link", "folder/b.txt", "up/app/a", "env", "out"] {
        assert_eq!(workspace.read_cached(&all(), path), None, "{path}");
    }
    for path in
        ["../outside/secret", "/etc/passwd", "link", "folder", "folder/b.txt", "nowhere", "agents/x", "sub/.env"]
    {
        assert_eq!(workspace.read_cached(&all(), path), None, "{path}");
        assert_eq!(workspace.exists_cached(&all(), path), None, "{path}");
        assert_eq!(workspace.stat_cached(&all(), path), None, "{path}");
    }
    // Over the cap, and not granted.
    let small = grant(&["sub"], &[], &[], Some(3));
    assert_eq!(workspace.read_cached(&small, "sub/b.txt"), None);
    assert_eq!(workspace.read_cached(&small, "sub/deep/c"), workspace.local.then(String::new));
    assert_eq!(workspace.read_cached(&small, "a"), None);
    assert_eq!(workspace.stat_cached(&small, "a"), None);
}

proptest! {
    #[test]
    fn it_is_the_same_answer(
        parts in proptest::collection::vec(
            proptest::sample::select(vec![
                "a", "sub", "b.txt", "deep", "c", ".env", "agents", "x", "large", "larger", "binary", "fifo", "link",
                "folder", "up", "app", "env", "nowhere", "out", "..", ".", "", "SUB",
            ]),
            1..5,
        ),
        read in proptest::sample::select(vec![".", "sub", "sub/deep", "a", "*.txt"]),
        cap in proptest::option::of(0_u64..8),
    ) {
        thread_local! { static BENCH: Bench = bench() }
        BENCH.with(|bench| {
            let (workspace, path) = (&bench.workspace, parts.join("/"));
            let grant = grant(&[read], &[], &[], cap);
            if let Some(content) = workspace.read_cached(&grant, &path) {
                prop_assert_eq!(Ok(content), workspace.read(&grant, &path));
            }
            if let Some(there) = workspace.exists_cached(&grant, &path) {
                prop_assert_eq!(Ok(there), workspace.exists(&grant, &path));
            }
            if let Some(facts) = workspace.stat_cached(&grant, &path) {
                prop_assert_eq!(Ok(facts), workspace.stat(&grant, &path));
            }
            Ok(())
        })?;
    }
}
