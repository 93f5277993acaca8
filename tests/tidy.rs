//! Rules about the tree itself.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::path::{Path, PathBuf};

/// Lines of a source file. What grows past it has more than one subject.
const MAX_LINES: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// All files of a kind below a folder.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root().join(folder)];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty());
    found
}

fn sources() -> Vec<(PathBuf, String)> {
    let all = ["host/src", "guest/src", "guest/build/src"].into_iter().flat_map(|folder| files(folder, "rs"));
    all.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// Each file says at its top what it is about. Files that only hold tests say it by their name.
#[test]
fn every_module_says_what_it_is() {
    for (path, text) in sources() {
        let tests = path.file_stem().unwrap().to_string_lossy().ends_with("tests");
        assert!(tests || text.starts_with("//!"), "{} does not begin with `//!`", path.display());
    }
}

#[test]
fn no_file_has_outgrown_its_room() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines, {MAX_LINES} is the most", path.display());
    }
}

/// What each room may name. `policy` and `artifact` know nothing of the engine, the system or time.
#[test]
fn rooms_name_only_what_they_may() {
    let forbidden = [
        (
            "host/src/policy",
            &["wasmtime", "tokio", "std::fs", "crate::sandbox", "crate::capability", "crate::ambient"][..],
        ),
        (
            "host/src/artifact",
            &["wasmtime", "tokio", "std::fs", "crate::sandbox", "crate::capability", "crate::ambient"],
        ),
        ("host/src/capability", &["crate::sandbox", "crate::dispatch", "crate::registry", "crate::artifact::tool"]),
        ("host/src/registry", &["crate::sandbox", "crate::dispatch", "crate::capability"]),
        ("host/src/cli", &["crate::"]),
    ];
    for (room, words) in forbidden {
        for path in files(room, "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            // Tests of a room may use what they need.
            let code = text.split("#[cfg(test)]").next().unwrap();
            let uses = code.lines().filter(|line| line.trim_start().starts_with("use "));
            for line in uses {
                for word in words {
                    let tests = path.file_stem().unwrap().to_string_lossy().contains("test");
                    assert!(tests || !line.contains(word), "{}: {line}", path.display());
                }
            }
        }
    }
}

/// Every item of the contract is documented: an author reads nothing else.
#[test]
fn the_contract_is_documented() {
    for path in files("wit", "wit") {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (n, line) in lines.iter().enumerate() {
            let item = ["interface ", "record ", "variant ", "enum ", "world ", "package "]
                .iter()
                .any(|w| line.starts_with(w))
                || line.contains(": func(");
            let error = *line == "variant error {";
            if item && !error && n > 0 {
                assert!(lines[n - 1].starts_with("///"), "{}:{}: {line}", path.display(), n + 1);
            }
        }
    }
}

/// The capability table in the README names every interface of the contract that is for scripts, and no other.
#[test]
fn the_readme_tells_every_capability() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let table = readme.split("## Capabilities").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut told: Vec<String> =
        table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next().map(str::to_owned)).collect();
    told.sort();
    let mut interfaces: Vec<String> = files("wit", "wit")
        .iter()
        .filter(|path| !path.parent().is_some_and(|folder| folder.ends_with("deps")))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| !["world", "script", "last-words", "limits", "coverage", "observe"].contains(&name.as_str()))
        .collect();
    interfaces.sort();
    assert_eq!(told, interfaces);
}

/// The limits in the README and in the page on policies are those of the code: all of them, with their reasons.
#[test]
fn the_pages_tell_the_limits() {
    use harness::policy::limits::LimitKey;
    let rows = |file: &str| -> Vec<String> {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let table = text.split("## Limits").nth(1).unwrap().split("\n## ").next().unwrap().to_owned();
        table.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect()
    };
    let grouped = |value: u64| {
        let digits = value.to_string();
        let parts: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().map(|part| std::str::from_utf8(part).unwrap()).collect();
        parts.join(",")
    };
    let facts = || LimitKey::ALL.iter().map(|key| key.facts());
    let short = facts().map(|f| format!("| `{}` | {} | {} |", f.name, grouped(f.default), f.what));
    assert_eq!(rows("README.md"), short.collect::<Vec<_>>());
    let long =
        facts().map(|f| format!("| `{}` | {} {} | {} | {} |", f.name, grouped(f.default), f.unit, f.what, f.why));
    assert_eq!(rows("docs/policy.md"), long.collect::<Vec<_>>());
}

/// What the host refuses to read, git would show out of its history: the tool that runs git leaves out the same names.
#[test]
fn git_leaves_out_the_names_that_no_tool_may_read() {
    let tool = std::fs::read_to_string(root().join(".harness/tools/git_command.md")).unwrap();
    let list = tool.split("SENSITIVE = [").nth(1).unwrap().split(']').next().unwrap();
    let names: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    assert_eq!(names, harness::policy::path::protected::SENSITIVE);
}

/// Each behaviour of the artifact format is shown by a test that is there, or the page says that there is none yet.
#[test]
fn every_behaviour_names_a_test_that_exists() {
    let page = std::fs::read_to_string(root().join("docs/behaviour.md")).unwrap();
    let named: Vec<(&str, &str)> = page
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter_map(|word| word.split_once("::"))
        .collect();
    for (file, name) in &named {
        let text = std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(&format!("fn {name}(")), "{file} has no `{name}`");
    }
    let mut ids = std::collections::HashSet::new();
    for row in
        page.lines().filter(|line| line.starts_with('|') && !line.starts_with("| id |") && !line.starts_with("|---"))
    {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [id, _, shown] = cells.as_slice() else { panic!("not three cells: {row}") };
        assert!(ids.insert(*id), "{id} is there twice");
        let tests = || shown.split(", ").all(|one| one.starts_with('`') && one.ends_with('`') && one.contains("::"));
        let said = shown.starts_with("by design: ");
        assert!(said || tests(), "{id}: {shown}");
    }
    assert!(!ids.is_empty());
}
