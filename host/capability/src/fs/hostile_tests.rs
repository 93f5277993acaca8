//! Links, odd files, protected names and races: attempts to reach what is not granted, each beside one that is.

use std::fs;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::tests::{Bench, all, grant, refused};
use super::*;

type Attempt = (&'static str, fn(&Workspace, &Grant, &str) -> Option<Error>);

/// Each function with a path, as the error it fails with; what is answered without waiting has not failed.
const ATTEMPTS: [Attempt; 12] = [
    ("read", |w, g, path| w.read_cached(g, path).map_or_else(|| w.read(g, path).err(), |_| None)),
    ("write", |w, g, path| w.write(g, path, "x").err()),
    ("append", |w, g, path| w.append(g, path, "x").err()),
    ("exists", |w, g, path| w.exists(g, path).err()),
    ("stat", |w, g, path| w.stat_cached(g, path).map_or_else(|| w.stat(g, path).err(), |_| None)),
    ("list", |w, g, path| w.list(g, path).err()),
    ("remove", |w, g, path| w.remove(g, path).err()),
    ("mkdir", |w, g, path| w.mkdir(g, path).err()),
    ("copy from", |w, g, path| w.copy(g, path, "copy").err()),
    ("copy to", |w, g, path| w.copy(g, "a", path).err()),
    ("move from", |w, g, path| w.rename(g, path, "moved").err()),
    ("move to", |w, g, path| w.rename(g, "a", path).err()),
];

fn is_denied(error: Option<Error>) -> bool {
    matches!(error, Some(Error::AccessDenied(_)))
}

#[test]
fn no_function_leaves_the_workspace() {
    let bench = Bench::new(&[("a", "1"), ("sub/", "")]);
    fs::create_dir(bench.home.path().join("app-secret")).unwrap();
    fs::write(bench.home.path().join("app-secret/x"), "secret").unwrap();
    bench.link("out", bench.outside(""));
    bench.link("up", "..");
    bench.link("sub/up", "../..");
    bench.link("chain", "out");
    bench.link("around", format!("{}/../outside", bench.workspace.absolute()));
    bench.link("proc", "/proc/self");
    bench.link("fd", "/dev/fd");
    let secret = bench.outside("secret").to_str().unwrap().to_owned();
    let sibling = format!("{}-secret/x", bench.workspace.absolute());
    let before = bench.everything();
    for path in [
        "../outside/secret",
        "sub/../../outside/secret",
        "/etc/passwd",
        &secret,
        &sibling,
        "out/secret",
        "out/new/er/file",
        "up/outside/secret",
        "sub/up/outside/secret",
        "chain/secret",
        "around/secret",
        "proc/environ",
        "proc/root/etc/passwd",
        "fd/0",
        // Up and down again is out all the same.
        "up/app/a",
    ] {
        for (name, attempt) in ATTEMPTS {
            assert!(is_denied(attempt(&bench.workspace, &all(), path)), "{name} {path}");
        }
    }
    // Links are nowhere followed in patterns.
    assert_eq!(bench.workspace.glob(&all(), "out/*"), Ok(vec![]));
    assert_eq!(bench.everything(), before);
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    assert_eq!(fs::read_dir(bench.outside("")).unwrap().count(), 1);
    let reason = "`out/secret` leads out of the workspace through a link";
    assert_eq!(bench.workspace.read(&all(), "out/secret"), refused(reason, ""));
    // The links themselves may be removed.
    assert_eq!(bench.workspace.remove(&all(), "out"), bench.answer("out"));
    assert_eq!(bench.workspace.read(&all(), "a"), Ok("1".to_owned()));
}

#[test]
fn a_link_as_the_last_part_that_leaves() {
    let bench = Bench::new(&[("a", "1")]);
    for (name, target) in [("file", "secret"), ("dangling", "new"), ("folder", "")] {
        bench.link(name, bench.outside(target));
        for (attempt, run) in ATTEMPTS {
            // These mean the link: to remove and to move it is harmless, and nothing can be put in its place.
            if !matches!(attempt, "remove" | "move from" | "copy to" | "move to") {
                assert!(is_denied(run(&bench.workspace, &all(), name)), "{attempt} {name}");
            }
        }
        assert_eq!(bench.workspace.copy(&all(), "a", name), Err(Error::AlreadyExists(name.to_owned())));
        assert_eq!(bench.workspace.rename(&all(), "a", name), Err(Error::AlreadyExists(name.to_owned())));
    }
    // A link that was moved leads out as it did.
    assert_eq!(bench.workspace.rename(&all(), "file", "b/file"), bench.answer("b/file"));
    assert!(is_denied(bench.workspace.read(&all(), "b/file").err()));
    assert_eq!(fs::read_dir(bench.outside("")).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(bench.outside("secret")).unwrap(), "secret");
}

#[test]
fn links_inside_lead_where_they_say() {
    let bench = Bench::new(&[("src/deep/a", "1"), ("b", "2"), ("sub/", "")]);
    bench.link("relative", "src");
    bench.link("absolute", format!("{}/src/deep", bench.workspace.absolute()));
    bench.link("to-root", bench.workspace.absolute());
    bench.link("sub/up", "..");
    bench.link("twice", "sub/up/src");
    bench.link("file", "relative/deep/a");
    let read = |path: &str| bench.workspace.read(&all(), path);
    for path in ["relative/deep/a", "absolute/a", "to-root/src/deep/a", "sub/up/src/deep/a", "twice/deep/a", "file"] {
        assert_eq!(read(path), Ok("1".to_owned()), "{path}");
    }
    // The target's `..` is where the link is; a script's own is taken from the text.
    assert_eq!(read("relative/../b"), Ok("2".to_owned()));
    assert_eq!(bench.workspace.list(&all(), "sub/up"), bench.workspace.list(&all(), "."));
    // Answers name the place.
    assert_eq!(bench.workspace.write(&all(), "twice/new/c", "3"), bench.answer("src/new/c"));
    assert_eq!(bench.workspace.write(&all(), "file", "4"), bench.answer("src/deep/a"));
    assert!(fs::symlink_metadata(bench.at("file")).unwrap().is_symlink());
    assert_eq!(bench.workspace.mkdir(&all(), "sub/up"), Ok(bench.workspace.absolute().to_owned()));
}

#[test]
fn the_place_is_judged_and_not_the_link() {
    let bench = Bench::new(&[
        ("src/a", "1"),
        ("docs/b", "2"),
        ("docs/.env", "3"),
        ("agents/c", "4"),
        (".git/d", "5"),
        ("a", ""),
    ]);
    bench.link("src/docs", "../docs");
    bench.link("src/plain.txt", "../docs/.env");
    bench.link("src/team", "../agents");
    bench.link("src/team.txt", "../agents/c");
    bench.link("src/repo", "../.git");
    bench.link("docs/src", "../src");
    let some = grant(&["src"], &["src"], &[], None);
    // A link to what is not granted gives nothing, a link that is not granted to what is gives it.
    assert!(is_denied(bench.workspace.read(&some, "src/docs/b").err()));
    assert_eq!(bench.workspace.read(&some, "docs/src/a"), Ok("1".to_owned()));
    assert_eq!(bench.workspace.read(&all(), "src/docs/b"), Ok("2".to_owned()));
    for path in ["src/plain.txt", "src/team/c", "src/team.txt", "src/team/new/er"] {
        assert!(is_denied(bench.workspace.read(&all(), path).err()), "{path}");
        assert!(is_denied(bench.workspace.write(&all(), path, "x").err()), "{path}");
        assert!(is_denied(bench.workspace.append(&all(), path, "x").err()), "{path}");
        assert_eq!(bench.workspace.exists(&all(), path), Ok(false), "{path}");
    }
    assert!(is_denied(bench.workspace.list(&all(), "src/team").err()));
    assert_eq!(bench.workspace.read(&all(), "src/repo/d"), Ok("5".to_owned()));
    assert!(is_denied(bench.workspace.write(&all(), "src/repo/d", "x").err()));
    assert!(is_denied(bench.workspace.write(&all(), "src/repo/hooks/x", "x").err()));
    assert!(is_denied(bench.workspace.copy(&all(), "a", "src/repo/e").err()));
    assert!(is_denied(bench.workspace.remove(&all(), "src/repo/d").err()));
}

#[test]
fn nothing_is_made_through_a_link_to_nothing() {
    let bench = Bench::new(&[("src/", ""), ("a", "")]);
    bench.link("dangling", "src/new");
    bench.link("src/below", "gone/folder");
    let reason = |path: &str| format!("writing `{path}` is not allowed: it is a link to nothing");
    let workspace = &bench.workspace;
    let before = bench.everything();
    assert_eq!(workspace.write(&all(), "dangling", "x"), refused(&reason("dangling"), ""));
    assert_eq!(workspace.append(&all(), "dangling", "x"), refused(&reason("dangling"), ""));
    assert_eq!(workspace.mkdir(&all(), "dangling"), refused(&reason("dangling"), ""));
    assert_eq!(workspace.write(&all(), "src/below/x/y", "x"), refused(&reason("src/below/x/y"), ""));
    assert_eq!(workspace.copy(&all(), "a", "src/below/x"), refused(&reason("src/below/x"), ""));
    assert_eq!(workspace.read(&all(), "dangling"), Err(Error::NotFound("dangling".to_owned())));
    assert_eq!(workspace.exists(&all(), "dangling"), Ok(false));
    assert_eq!(bench.everything(), before);
    assert_eq!(workspace.write(&all(), "src/new", "x"), bench.answer("src/new"));
    assert_eq!(workspace.read(&all(), "dangling"), Ok("x".to_owned()));
}

#[test]
fn links_without_end_end() {
    let bench = Bench::new(&[("a", "1"), ("d/d/d/", "")]);
    bench.link("self", "self");
    bench.link("ping", "pong");
    bench.link("pong", "ping");
    bench.link("l0", "a");
    for n in 1..=40 {
        bench.link(&format!("l{n}"), format!("l{}", n - 1));
    }
    for path in ["self", "self/x", "ping", "l40"] {
        let reason = format!("`{path}` leads through more than 40 links");
        assert_eq!(bench.workspace.read(&all(), path), refused(&reason, ""));
    }
    assert_eq!(bench.workspace.read(&all(), "l39"), Ok("1".to_owned()));
    // Few links that are long ways around.
    let around = "d/d/d/../../../".repeat(200);
    bench.link("m0", format!("{around}a"));
    assert_eq!(bench.workspace.read(&all(), "m0"), Ok("1".to_owned()));
    bench.link("m1", format!("{around}m0"));
    bench.link("m2", format!("{around}m1"));
    let reason = "`m2` takes more than 4096 steps to follow";
    assert_eq!(bench.workspace.read(&all(), "m2"), refused(reason, ""));
}

#[test]
fn links_are_not_copied() {
    let bench = Bench::new(&[("f/a", "1")]);
    bench.link("f/z", "a");
    bench.link("link", "f/a");
    let refusal = |path: &str| refused(&format!("copying `{path}` is not allowed: it is a link"), "");
    assert_eq!(bench.workspace.copy(&all(), "f", "g"), refusal("f/z"));
    assert_eq!(bench.workspace.copy(&all(), "link", "g"), refusal("link"));
    assert!(!bench.at("g").exists());
    assert_eq!(bench.workspace.copy(&all(), "f/a", "g"), bench.answer("g"));
}

#[test]
fn odd_files_are_never_opened() {
    let bench = Bench::new(&[("f/", "")]);
    mknodat(CWD, bench.at("fifo"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    mknodat(CWD, bench.at("f/fifo"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    let _listener = UnixListener::bind(bench.at("socket")).unwrap();
    bench.link("link", "fifo");
    for (path, kind) in [("fifo", "fifo"), ("link", "fifo"), ("socket", "socket")] {
        let odd = || Some(Error::NotAFile(kind.to_owned()));
        assert_eq!(bench.workspace.read(&all(), path).err(), odd());
        assert_eq!(bench.workspace.write(&all(), path, "x").err(), odd());
        assert_eq!(bench.workspace.append(&all(), path, "x").err(), odd());
    }
    let odd = || Err(Error::NotAFile("fifo".to_owned()));
    assert_eq!(bench.workspace.copy(&all(), "fifo", "g"), odd());
    assert_eq!(bench.workspace.copy(&all(), "f", "g"), odd());
    assert!(!bench.at("g").exists());
    // Even where it takes the place of a file between look and open.
    let root = &bench.workspace.root;
    let fails = |error: &io::Error| Error::Io(error.kind().to_string());
    let opened = open_file(root, "fifo", OpenOptions::new().read(true), fails);
    assert_eq!(opened.err(), Some(Error::NotAFile("fifo".to_owned())));
    assert!(open_file(root, "link", OpenOptions::new().read(true), fails).is_err());
}

#[test]
fn a_file_with_other_names_is_not_written() {
    let bench = Bench::new(&[("plain", "1")]);
    fs::hard_link(bench.outside("secret"), bench.at("hard")).unwrap();
    let reason = "writing `hard` is not allowed: the file has other names too (hard links)";
    assert_eq!(bench.workspace.write(&all(), "hard", "x"), refused(reason, ""));
    assert_eq!(bench.workspace.append(&all(), "hard", "x"), refused(reason, ""));
    assert_eq!(bench.workspace.read(&all(), "hard"), Ok("secret".to_owned()));
    assert_eq!(bench.workspace.remove(&all(), "hard"), bench.answer("hard"));
    assert_eq!(fs::read_to_string(bench.outside("secret")).unwrap(), "secret");
    assert_eq!(bench.workspace.append(&all(), "plain", "2"), bench.answer("plain"));
}

#[test]
fn a_file_with_a_protected_name_is_read_under_none() {
    let bench = Bench::new(&[("sub/.env", "1"), ("private/x", "2"), ("a", "3"), ("sub/.git/config", "4"), ("b", "5")]);
    let names =
        [("sub/.env", "env"), ("private/x", "deep"), ("a", "sub/a"), ("sub/.git/config", "config"), ("b", "id_b")];
    for (file, name) in names {
        fs::hard_link(bench.at(file), bench.at(name)).unwrap();
    }
    let read = |grant: &Grant, path: &str| bench.workspace.read(grant, path);
    let closed = |path: &str| {
        let reason =
            format!("reading `{path}` is not allowed: the file has another name, which is protected (hard links)");
        refused(&reason, "")
    };
    let protecting = grant(&["."], &["."], &["private"], None);
    for (grant, deep) in [(all(), Ok("2".to_owned())), (protecting, closed("deep")), (all(), Ok("2".to_owned()))] {
        assert_eq!(read(&grant, "env"), closed("env"));
        assert_eq!(read(&grant, "b"), closed("b"));
        assert_eq!(bench.workspace.copy(&grant, "env", "mine"), closed("env"));
        assert_eq!(read(&grant, "deep"), deep);
        // What may be read under each of its names.
        assert_eq!(read(&grant, "a"), Ok("3".to_owned()));
        assert_eq!(read(&grant, "config"), Ok("4".to_owned()));
        assert_eq!(bench.workspace.read_cached(&grant, "a"), None);
    }
}

#[test]
fn what_is_linked_later_is_found_when_a_search_is_no_longer_fresh() {
    let bench = Bench::new(&[(".env", "1"), ("a", "2")]);
    fs::hard_link(bench.at("a"), bench.at("b")).unwrap();
    assert_eq!(bench.workspace.read(&all(), "b"), Ok("2".to_owned()));
    fs::hard_link(bench.at(".env"), bench.at("env")).unwrap();
    if let Some(searched) = bench.workspace.searched.lock().unwrap().as_mut() {
        searched.until = std::time::Instant::now();
    }
    let reason = "reading `env` is not allowed: the file has another name, which is protected (hard links)";
    assert_eq!(bench.workspace.read(&all(), "env"), refused(reason, ""));
}

/// Whether a file has a protected name cannot be reported where there is too much to look at.
#[test]
fn a_file_with_other_names_in_a_tree_without_end_is_not_read() {
    let bench = Bench::new(&[("a", "1"), ("plain", "2")]);
    let deep = vec!["d"; 70].join("/");
    fs::create_dir_all(bench.at(&deep)).unwrap();
    fs::hard_link(bench.at("a"), bench.at("b")).unwrap();
    let reason = "reading `a` is not allowed: the file has other names too (hard links), and whether one of them is \
                  protected cannot be seen: there are over 64 folders inside each other";
    assert_eq!(bench.workspace.read(&all(), "a"), refused(reason, ""));
    assert_eq!(bench.workspace.read(&all(), "plain"), Ok("2".to_owned()));
}

#[test]
fn protected_names_are_closed_in_every_function() {
    let closed =
        ["agents", "AGENTS/x", ".env", "sub/.ENV.local", "x.PEM", "id_rsa", "sub/.netrc", ".env/inside", ".npmrc. "];
    let read_only = [".git/config", ".Git/new", ".harness/tools/x.md", "sub/.git/hooks/pre-commit"];
    let bench = Bench::new(&[("a", "1"), ("agents/x", ""), (".git/config", "2"), (".harness/harness.md", "")]);
    let before = bench.everything();
    for path in closed {
        for (name, attempt) in ATTEMPTS {
            let error = attempt(&bench.workspace, &all(), path);
            assert!(if name == "exists" { error.is_none() } else { is_denied(error) }, "{name} {path}");
        }
        assert_eq!(bench.workspace.exists(&all(), path), Ok(false));
        assert_eq!(bench.workspace.exists_cached(&all(), path), None);
    }
    for path in read_only {
        for (name, attempt) in ATTEMPTS {
            if matches!(name, "write" | "append" | "remove" | "mkdir" | "copy to" | "move to" | "move from") {
                assert!(is_denied(attempt(&bench.workspace, &all(), path)), "{name} {path}");
            }
        }
    }
    assert_eq!(bench.everything(), before);
    assert_eq!(bench.workspace.read(&all(), ".git/config"), Ok("2".to_owned()));
    assert_eq!(bench.workspace.write(&all(), "x.pem.bak", "3"), bench.answer("x.pem.bak"));
    assert_eq!(bench.workspace.write(&all(), "sub/agents/x", "3"), bench.answer("sub/agents/x"));
}

#[test]
fn errors_hold_no_path_of_the_host() {
    let bench = Bench::new(&[("a", "1")]);
    bench.link("out", bench.outside("secret"));
    let host = bench.home.path().to_str().unwrap().to_owned();
    for path in ["out", "nothing", "a/b", "..", "agents", "x\u{7}"] {
        for (name, attempt) in ATTEMPTS {
            if name.ends_with("from") || name.ends_with("to") || name == "remove" {
                continue;
            }
            let text = format!("{:?}", attempt(&bench.workspace, &grant(&["."], &[], &[], None), path));
            assert!(!text.contains(&host), "{name} {path}: {text}");
        }
    }
}

/// A folder is swapped for a link to outside and back, as fast as another thread can, while everything that changes
/// something is tried below it. What is outside stays as it was; and some calls must have come through, or nothing
/// was tried.
#[test]
fn a_folder_that_turns_into_a_link_lets_nothing_out() {
    const ROUNDS: usize = 3000;
    let bench = Bench::new(&[("dir/", ""), ("source/a", "1")]);
    bench.link("bait", bench.outside(""));
    let stop = AtomicBool::new(false);
    let mut through = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // The name is at all times one or the other.
                rustix::fs::renameat_with(
                    CWD,
                    bench.at("dir"),
                    CWD,
                    bench.at("bait"),
                    rustix::fs::RenameFlags::EXCHANGE,
                )
                .unwrap();
            }
        });
        for round in 0..ROUNDS {
            let workspace = &bench.workspace;
            let results = [
                workspace.append(&all(), "dir/log", "x").err(),
                workspace.mkdir(&all(), &format!("dir/sub/{}", round % 7)).err(),
                workspace.copy(&all(), "source", &format!("dir/copy{round}")).err(),
                workspace.remove(&all(), "dir/secret").err(),
                workspace.rename(&all(), "dir/secret", "stolen").err(),
                // Fewer of these, because each waits for the disk.
                if round % 20 == 0 { workspace.write(&all(), "dir/deep/er/file", "x").err() } else { None },
            ];
            through += results.iter().filter(|error| error.is_none()).count();
            for content in [workspace.read(&all(), "dir/secret").ok(), workspace.read_cached(&all(), "dir/secret")] {
                assert_ne!(content.as_deref(), Some("secret"));
            }
            let found = workspace.glob(&all(), "dir/*").unwrap();
            assert!(!found.contains(&"dir/secret".to_owned()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(through > 0, "nothing came through");
    assert_eq!(fs::read_to_string(bench.outside("secret")).unwrap(), "secret");
    let outside: Vec<_> = fs::read_dir(bench.outside("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(outside, ["secret"]);
    assert!(!bench.at("stolen").exists());
}
