//! Whole folders: listings, searches, copies and moves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::tests::{Bench, all, error, grant, owned, refused};
use super::*;

#[test]
fn list_leaves_out_what_is_refused() {
    let bench = Bench::new(&[
        ("b", ""),
        ("a/x", ""),
        (".env", ""),
        ("id_rsa", ""),
        ("agents/x", ""),
        (".git/config", ""),
        (".harness/harness.md", ""),
        ("private", ""),
        ("x\u{1b}[31m", ""),
    ]);
    fs::write(
        Path::new(&bench.at("")).join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff")),
        "",
    )
    .unwrap();
    bench.link("link", "/etc");
    let some = grant(&["."], &[], &["private"], None);
    let names = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    assert_eq!(bench.workspace.list(&some, "."), names(&[".git", ".harness", "a", "b", "link"]));
    assert_eq!(bench.workspace.list(&some, "a"), names(&["x"]));
    assert_eq!(bench.workspace.list(&some, "b"), error(Error::NotADirectory, "b"));
    assert_eq!(bench.workspace.list(&some, "c"), error(Error::NotFound, "c"));
    assert_eq!(
        bench.workspace.list(&some, "agents"),
        refused("reading `agents` is never allowed: the folder `agents/` is protected", "")
    );
}

/// What holds a closed name while a command runs is no entry of the workspace; anything else of that name is.
#[test]
fn list_and_glob_leave_out_what_only_holds_a_name() {
    let bench = Bench::new(&[
        ("a", ""),
        ("harness.md/", ""),
        ("harness.lock/", ""),
        ("sub/harness.md/", ""),
        ("sub/harness.lock/", ""),
    ]);
    for name in ["harness.md", "sub/harness.md"] {
        fs::set_permissions(bench.at(name), fs::Permissions::from_mode(harness_sys::PLACEHOLDER)).unwrap();
    }
    assert_eq!(bench.workspace.list(&all(), "."), Ok(owned_names(&["a", "harness.lock", "sub"])));
    assert_eq!(bench.workspace.list(&all(), "sub"), Ok(owned_names(&["harness.lock"])));
    let found = bench.workspace.glob(&all(), "**");
    assert_eq!(found, Ok(owned_names(&["a", "harness.lock", "sub", "sub/harness.lock"])));
}

fn owned_names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_listing_is_bounded() {
    let bench = Bench::new(&[("full/", "")]);
    for name in 0..MAX_NAMES {
        fs::write(bench.at(&format!("full/{name}")), "").unwrap();
    }
    assert_eq!(bench.workspace.list(&all(), "full").map(|names| names.len()), Ok(10_000));
    assert_eq!(bench.workspace.glob(&all(), "full/*").map(|names| names.len()), Ok(10_000));
    assert_eq!(bench.workspace.rename(&all(), "full", "moved"), bench.answer("moved"));
    fs::write(bench.at("moved/one-more"), "").unwrap();
    assert_eq!(bench.workspace.list(&all(), "moved"), Err(Error::TooLarge(10_000)));
    assert_eq!(bench.workspace.glob(&all(), "**"), Err(Error::TooLarge(10_000)));
    assert_eq!(bench.workspace.copy(&all(), "moved", "copy"), Err(Error::TooLarge(10_000)));
    assert!(!bench.at("copy").exists());
}

#[test]
fn glob() {
    let bench = Bench::new(&[
        ("a.rs", ""),
        ("src/b.rs", ""),
        ("src/deep/er/c.rs", ""),
        ("src/deep/d.txt", ""),
        (".git/e.rs", ""),
        (".harness/tools/f.rs", ""),
        ("agents/g.rs", ""),
        (".env", ""),
        (".env.d/h.rs", ""),
        ("private/i.rs", ""),
    ]);
    bench.link("loop", ".");
    bench.link("src/link.rs", "b.rs");
    let some = grant(&["."], &[], &["private"], None);
    let glob = |pattern: &str| bench.workspace.glob(&some, pattern).map(|found| found.join(" "));
    let found = |paths: &str| Ok(paths.to_owned());
    assert_eq!(glob("**/*.rs"), found("a.rs src/b.rs src/deep/er/c.rs"));
    assert_eq!(glob("*.rs"), found("a.rs"));
    assert_eq!(glob("src/*"), found("src/b.rs src/deep"));
    assert_eq!(glob("src/**"), found("src/b.rs src/deep src/deep/d.txt src/deep/er src/deep/er/c.rs"));
    assert_eq!(glob("*"), found("a.rs src"));
    assert_eq!(glob(".git/*"), found(".git/e.rs"));
    assert_eq!(glob("**/.git"), found(".git"));
    assert_eq!(glob(".harness/**"), found(".harness/tools .harness/tools/f.rs"));
    assert_eq!(glob("agents/*"), found(""));
    assert_eq!(glob(".env*"), found(""));
    assert_eq!(glob("loop/*.rs"), found(""));
    assert_eq!(glob("src/?.rs"), found("src/b.rs"));
    assert_eq!(glob("SRC/*.rs"), found(""));
    assert_eq!(glob(""), error(Error::Invalid, "a pattern may not be empty"));
    assert_eq!(glob("../*"), error(Error::Invalid, "a pattern may not hold `..`"));
    // Only what is granted, found through folders that are not.
    let deep = grant(&["src/deep/er"], &[], &[], None);
    assert_eq!(bench.workspace.glob(&deep, "**/*.rs"), Ok(vec!["src/deep/er/c.rs".to_owned()]));
    assert!(matches!(bench.workspace.glob(&grant(&[], &["."], &[], None), "**"), Err(Error::AccessDenied(_))));
}

#[test]
fn walks_go_so_deep_and_no_deeper() {
    let deep = |levels: usize| vec!["d"; levels].join("/");
    let bench = Bench::new(&[(&format!("{}/x", deep(64)), "")]);
    assert_eq!(bench.workspace.glob(&all(), "**/x"), Ok(vec![format!("{}/x", deep(64))]));
    assert_eq!(bench.workspace.copy(&all(), "d", "e"), bench.answer("e"));
    assert_eq!(bench.workspace.rename(&all(), "e", "f"), bench.answer("f"));
    fs::remove_dir_all(bench.at("f")).unwrap();
    fs::create_dir_all(bench.at(&deep(66))).unwrap();
    assert_eq!(bench.workspace.glob(&all(), "**/x"), Err(Error::TooLarge(64)));
    assert_eq!(bench.workspace.copy(&all(), "d", "e"), Err(Error::TooLarge(64)));
    assert_eq!(bench.workspace.rename(&all(), "d", "e"), Err(Error::TooLarge(64)));
    assert!(!bench.at("e").exists());
}

#[test]
fn copy() {
    let bench = Bench::new(&[("a", "1"), ("f/x", "2"), ("f/g/y", "3"), ("f/empty/", "")]);
    fs::set_permissions(bench.at("a"), fs::Permissions::from_mode(0o6700)).unwrap();
    let copy = |source: &str, target: &str| bench.workspace.copy(&all(), source, target);
    assert_eq!(copy("a", "new/b"), bench.answer("new/b"));
    assert_eq!(fs::metadata(bench.at("new/b")).unwrap().permissions().mode() & 0o7777, 0o700);
    assert_eq!(copy("f", "h"), bench.answer("h"));
    let expected = [
        ("a", "1"),
        ("f/", ""),
        ("f/empty/", ""),
        ("f/g/", ""),
        ("f/g/y", "3"),
        ("f/x", "2"),
        ("h/", ""),
        ("h/empty/", ""),
        ("h/g/", ""),
        ("h/g/y", "3"),
        ("h/x", "2"),
        ("new/", ""),
        ("new/b", "1"),
    ];
    assert_eq!(bench.everything(), owned(&expected));
    assert_eq!(copy("a", "h"), error(Error::AlreadyExists, "h"));
    assert_eq!(copy("a", "a"), error(Error::AlreadyExists, "a"));
    assert_eq!(copy("f", "f/g/z"), error(Error::Invalid, "`f/g/z` is inside `f`"));
    assert_eq!(copy("no", "z"), error(Error::NotFound, "no"));
    assert_eq!(copy("a", "a/z"), error(Error::NotADirectory, "a/z"));
    assert_eq!(copy(".", "z"), refused("the workspace itself may not be copied or moved", ""));
    let small = grant(&["."], &["."], &[], Some(0));
    assert_eq!(bench.workspace.copy(&small, "f", "z"), Err(Error::TooLarge(0)));
    // What is over the cap takes nothing of the bytes that are left.
    let mut room = Room { files: 10, bytes: 10, over: None };
    assert_eq!(bench.workspace.copy_within(&small, "a", "z", &mut room), Err(Error::TooLarge(0)));
    assert_eq!((room.bytes, room.over), (10, Some(LimitKey::FileBytes)));
    // Nor is checked what would be put where something is.
    std::os::unix::fs::symlink("a", bench.at("link")).unwrap();
    assert_eq!(copy("link", "a"), Err(Error::AlreadyExists("a".to_owned())));
    fs::remove_file(bench.at("link")).unwrap();
    // Or of more bytes than are left.
    let mut room = Room { files: 10, bytes: 1, over: None };
    assert_eq!(bench.workspace.copy_within(&all(), "f", "z", &mut room), Err(Error::TooLarge(0)));
    assert_eq!(room, Room { files: 6, bytes: 0, over: Some(LimitKey::Io) });
    assert_eq!(bench.everything(), owned(&expected));
}

#[test]
fn rename() {
    let bench = Bench::new(&[("a", "1"), ("f/x", "2"), ("g", "3")]);
    let rename = |source: &str, target: &str| bench.workspace.rename(&all(), source, target);
    assert_eq!(rename("a", "g"), error(Error::AlreadyExists, "g"));
    assert_eq!(rename("a", "f"), error(Error::AlreadyExists, "f"));
    assert_eq!(rename("f", "f/g"), error(Error::Invalid, "`f/g` is inside `f`"));
    assert_eq!(rename(".", "z"), refused("the workspace itself may not be copied or moved", ""));
    assert_eq!(rename("no", "z"), error(Error::NotFound, "no"));
    assert_eq!(rename("a", "new/b"), bench.answer("new/b"));
    assert_eq!(rename("f", "h"), bench.answer("h"));
    let expected = [("g", "3"), ("h/", ""), ("h/x", "2"), ("new/", ""), ("new/b", "1")];
    assert_eq!(bench.everything(), owned(&expected));
}

#[test]
fn nothing_is_placed_over_what_has_come_meanwhile() {
    let bench = Bench::new(&[("a", "new"), ("b", "old")]);
    let root = &bench.workspace.root;
    let error = replace::rename_to_free(root, "a", root, "b").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(bench.everything(), owned(&[("a", "new"), ("b", "old")]));
}

#[test]
fn folders_with_something_refused_stay_whole() {
    for (inside, name) in [(".env", "`.env*` is a sensitive name"), (".git/config", "the folder `.git/` is protected")]
    {
        let bench = Bench::new(&[("f/a", "1"), ("f/z", "2"), (&format!("f/{inside}"), "3")]);
        let before = bench.everything();
        let refusal = |doing: &str, at: &str| refused(&format!("{doing} `{at}` is never allowed: {name}"), "");
        let top = inside.split('/').next().unwrap();
        let copying = if top == ".env" { refusal("reading", "f/.env") } else { refusal("writing", "g/.git") };
        assert_eq!(bench.workspace.copy(&all(), "f", "g"), copying);
        let moving = refusal(if top == ".env" { "reading" } else { "writing" }, &format!("f/{top}"));
        assert_eq!(bench.workspace.rename(&all(), "f", "g"), moving);
        assert_eq!(bench.everything(), before);
    }
    // Under a name that is as free as any, but not to this policy.
    let bench = Bench::new(&[("f/keep/a", "1")]);
    let some = grant(&["."], &["."], &["g/keep"], None);
    assert!(matches!(bench.workspace.copy(&some, "f", "g"), Err(Error::AccessDenied(_))));
    assert!(matches!(bench.workspace.rename(&some, "f", "g"), Err(Error::AccessDenied(_))));
    assert_eq!(bench.everything(), owned(&[("f/", ""), ("f/keep/", ""), ("f/keep/a", "1")]));
    assert_eq!(bench.workspace.copy(&some, "f", "h"), bench.answer("h"));
}

#[test]
fn a_folder_for_a_child() {
    let bench = Bench::new(&[("src/a", ""), ("agents/", ""), ("out/", "")]);
    bench.link("link", "src");
    bench.link("away", bench.outside(""));
    let some = grant(&["src", "agents"], &[], &[], None);
    let open = |path: &str| bench.workspace.open_dir(&some, path).map(|dir| dir.exists("a"));
    assert_eq!(open("src"), Ok(true));
    assert_eq!(open("link"), Ok(true));
    assert_eq!(open("src/a"), error(Error::NotADirectory, "src/a"));
    for path in ["out", "agents", "away", "..", "."] {
        assert!(matches!(open(path), Err(Error::AccessDenied(_))), "{path}");
    }
}
