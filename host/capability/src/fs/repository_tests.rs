//! Folders that git would take for a repository.

use std::fs;

use super::tests::{Bench, all, grant, refused};
use super::*;

fn never<T>(path: &str) -> Result<T, Error> {
    let why =
        "git takes a folder with `HEAD`, `objects` and `refs` for a repository, and runs what is configured in it";
    refused(&format!("writing `{path}` is never allowed: {why}"), "")
}

/// A bare repository, a second work tree's, and what is none.
const FILES: [(&str, &str); 12] = [
    ("bare/HEAD", "ref: refs/heads/main"),
    ("bare/config", "as it was"),
    ("bare/hooks/pre-commit", "as it was"),
    ("bare/objects/", ""),
    ("bare/refs/heads/", ""),
    ("bare/description", ""),
    ("second/HEAD", ""),
    ("second/commondir", "../bare"),
    ("plain/hooks/use.js", ""),
    ("plain/config", ""),
    ("plain/refs/", ""),
    ("a", "1"),
];

#[test]
fn what_governs_a_repository_is_not_changed() {
    let bench = Bench::new(&FILES);
    bench.link("way", "bare/hooks");
    let (before, w, g) = (bench.everything(), &bench.workspace, &all());
    for path in [
        "bare/config",
        "bare/HEAD",
        "bare/hooks/pre-commit",
        "bare/hooks/post-commit",
        "bare/Config",
        "bare/config.worktree",
        "bare/commondir",
        "bare/objects/aa/bb",
        "bare/refs/heads/main",
        "way/pre-commit",
        "second/config.worktree",
        "second/commondir",
    ] {
        assert_eq!(w.write(g, path, "x"), never(path), "{path}");
        assert_eq!(w.append(g, path, "x"), never(path), "{path}");
        assert_eq!(w.remove(g, path), never(path), "{path}");
        assert_eq!(w.mkdir(g, path), never(path), "{path}");
        assert_eq!(w.copy(g, "a", path), never(path), "{path}");
        assert_eq!(w.rename(g, "a", path), never(path), "{path}");
        assert_eq!(w.rename(g, path, "b"), never(path), "{path}");
    }
    assert_eq!(bench.everything(), before);
    assert_eq!(w.read(g, "bare/config"), Ok("as it was".to_owned()));
    assert_eq!(w.copy(g, "bare/config", "b"), bench.answer("b"));
    for path in ["bare/description", "plain/config", "plain/hooks/use.js", "plain/HEAD"] {
        assert_eq!(w.write(g, path, "x"), bench.answer(path), "{path}");
    }
}

/// What is not granted is refused in the words of that.
#[test]
fn nothing_is_told_of_what_is_not_granted() {
    let bench = Bench::new(&FILES);
    let some = grant(&["."], &["plain"], &[], None);
    for path in ["bare/config", "second/config.worktree"] {
        let place = WorkspacePath::parse(path, "/").unwrap();
        let not_granted = some.decide_path(&place, Access::Write).unwrap_err();
        assert_eq!(bench.workspace.write(&some, path, "x"), Err(not_granted.into()));
    }
}

#[test]
fn no_folder_becomes_one() {
    let parts = ["HEAD", "objects", "refs"];
    for last in parts {
        let there: Vec<String> = parts.iter().filter(|part| **part != last).map(|part| format!("src/{part}")).collect();
        let mut files: Vec<(&str, &str)> = there.iter().map(|path| (path.as_str(), "")).collect();
        files.extend([("a", "1"), ("folder/x", "")]);
        let bench = Bench::new(&files);
        let (before, w, g) = (bench.everything(), &bench.workspace, &all());
        for name in [last.to_owned(), last.to_lowercase(), format!("{last}."), format!("{last}\u{200d}")] {
            let (path, below) = (format!("src/{name}"), format!("src/{name}/x"));
            assert_eq!(w.write(g, &path, "x"), never(&path));
            assert_eq!(w.write(g, &below, "x"), never(&below));
            assert_eq!(w.append(g, &path, "x"), never(&path));
            assert_eq!(w.mkdir(g, &path), never(&path));
            assert_eq!(w.copy(g, "a", &path), never(&path));
            assert_eq!(w.copy(g, "folder", &path), never(&path));
            assert_eq!(w.rename(g, "a", &path), never(&path));
            assert_eq!(w.rename(g, "folder", &path), never(&path));
        }
        assert_eq!(bench.everything(), before);
    }
    let bench = Bench::new(&[("src/HEAD", ""), ("other/commondir", ""), ("free/a", "")]);
    let write = |path| bench.workspace.write(&all(), path, "x");
    assert_eq!(write("src/commondir"), never("src/commondir"));
    assert_eq!(write("other/HEAD"), never("other/HEAD"));
    for path in ["free/HEAD", "free/objects/x", "src/refs/x", "other/objects/x", "other/refs", "free/config"] {
        assert_eq!(write(path), bench.answer(path), "{path}");
    }
    assert_eq!(write("free/refs/x"), never("free/refs/x"));
}

#[test]
fn none_comes_to_lie_in_a_new_place() {
    let bench = Bench::new(&[
        ("deep/bare/HEAD", ""),
        ("deep/bare/objects/x", ""),
        ("deep/bare/refs/x", ""),
        ("links/objects/", ""),
        ("links/refs/", ""),
    ]);
    bench.link("links/HEAD", "refs/heads/none");
    bench.link("made", "refs/heads/none");
    let (before, w, g) = (bench.everything(), &bench.workspace, &all());
    assert_eq!(w.copy(g, "deep", "copy"), never("copy/bare/refs"));
    assert_eq!(w.copy(g, "deep/bare", "copy"), never("copy/refs"));
    assert_eq!(w.rename(g, "deep", "moved"), never("deep/bare/HEAD"));
    assert_eq!(w.rename(g, "deep/bare", "moved"), never("deep/bare/HEAD"));
    // For git a link to nothing is a good `HEAD`.
    assert_eq!(w.rename(g, "links", "moved"), never("links/HEAD"));
    assert_eq!(bench.everything(), before);
    assert_eq!(w.remove(g, "links/HEAD"), never("links/HEAD"));
    fs::remove_file(bench.at("links/HEAD")).unwrap();
    assert_eq!(w.rename(g, "made", "links/HEAD"), never("links/HEAD"));
    assert_eq!(w.rename(g, "links", "moved"), bench.answer("moved"));
}

/// Each of three calls makes another part, at the same time; no one of them may see the others' missing and be late.
#[test]
fn three_at_one_time_make_none() {
    let bench = Bench::new(&[]);
    for round in 0..200 {
        let made = std::thread::scope(|scope| {
            let made = ["HEAD", "objects/x", "refs/x"].map(|part| {
                let (bench, path) = (&bench, format!("src{round}/{part}"));
                scope.spawn(move || bench.workspace.write(&all(), &path, "x").is_ok())
            });
            made.map(|thread| thread.join().unwrap()).into_iter().filter(|made| *made).count()
        });
        assert_eq!(made, 2);
    }
}
