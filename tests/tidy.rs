//! Rules about the tree itself.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "tests"
)]

#[path = "tidy/words.rs"]
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

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
    let crates = std::fs::read_dir(root().join("host")).unwrap().map(|entry| entry.unwrap().path().join("src"));
    let crates = crates.filter(|folder| folder.is_dir()).map(|folder| folder.to_str().unwrap().to_owned());
    let others = ["host/src", "guest/src", "guest/build/src"].map(str::to_owned);
    let all = crates.chain(others).flat_map(|folder| files(&folder, "rs"));
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

/// What cargo says of the workspace's own packages: their names, and the names of what each depends on for its own code.
fn packages() -> BTreeMap<String, BTreeSet<String>> {
    let arguments = ["metadata", "--format-version=1", "--no-deps", "--offline", "--locked"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // Some have another name on crates.io than here: theirs was taken.
    let text = |value: &serde_json::Value| match value.as_str().unwrap() {
        "harness-host" => "harness".to_owned(),
        "harness-command-line" => "harness-cli".to_owned(),
        "harness-language-server" => "harness-lsp".to_owned(),
        name => name.to_owned(),
    };
    let package = |package: &serde_json::Value| {
        let used = package["dependencies"].as_array().unwrap().iter().filter(|used| used["kind"].is_null());
        (text(&package["name"]), used.map(|used| text(&used["name"])).collect())
    };
    metadata["packages"].as_array().unwrap().iter().map(package).collect()
}

/// The arrows of the diagram of crates in docs/architecture.md.
fn drawn() -> BTreeSet<(String, String)> {
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let diagram = page.split("```mermaid").nth(1).unwrap().split("```").next().unwrap();
    let arrow =
        |line: &str| line.split_once(" --> ").map(|(user, used)| (user.trim().to_owned(), used.trim().to_owned()));
    diagram.lines().filter_map(arrow).collect()
}

/// Every dependency between crates is drawn, directly or by way of others, and every arrow is a dependency.
#[test]
fn crates_depend_as_the_diagram_draws_them() {
    let packages = packages();
    let short = |name: &str| name.strip_prefix("harness-").unwrap_or(name).to_owned();
    let left_out = ["harness-bench", "harness-guest", "harness-guest-build"];
    let own = packages.iter().filter(|(name, _)| name.starts_with("harness") && !left_out.contains(&name.as_str()));
    let real: BTreeSet<(String, String)> = own
        .flat_map(|(user, used)| used.iter().map(move |used| (user, used)))
        .filter(|(_, used)| used.starts_with("harness"))
        .map(|(user, used)| (short(user), short(used)))
        .collect();
    let drawn = drawn();
    let missing: Vec<_> = drawn.difference(&real).collect();
    assert!(missing.is_empty(), "drawn, and no dependency: {missing:?}");
    let mut reached = drawn;
    loop {
        let further: BTreeSet<_> = reached
            .iter()
            .flat_map(|(user, by)| {
                reached.iter().filter(move |(from, _)| from == by).map(move |(_, used)| (user, used))
            })
            .map(|(user, used)| (user.clone(), used.clone()))
            .filter(|arrow| !reached.contains(arrow))
            .collect();
        if further.is_empty() {
            break;
        }
        reached.extend(further);
    }
    let not_drawn: Vec<_> = real.difference(&reached).collect();
    assert!(not_drawn.is_empty(), "dependencies that are not drawn: {not_drawn:?}");
}

/// The tables of crates in the README and in docs/architecture.md name each of them.
#[test]
fn every_crate_is_in_the_tables() {
    let folders = std::fs::read_dir(root().join("host")).unwrap().map(|entry| entry.unwrap().path());
    let crates =
        folders.filter(|folder| folder.join("Cargo.toml").exists() && folder.file_name().unwrap() != "benches");
    let names: Vec<String> = crates.map(|folder| folder.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert!(names.len() > 10, "{names:?}");
    let [readme, page] =
        ["README.md", "docs/architecture.md"].map(|page| std::fs::read_to_string(root().join(page)).unwrap());
    for name in names {
        assert!(readme.contains(&format!("\n| `host/{name}/` |")), "`host/{name}/` is not in the README");
        assert!(page.contains(&format!("\n| `{name}` |")), "`{name}` is not in docs/architecture.md");
    }
}

/// The table of where a new feature goes names files and folders that exist.
#[test]
fn places_for_new_features_exist() {
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let table = page.split("## Where a new feature goes").nth(1).unwrap().split("\n## ").next().unwrap();
    let cells =
        table.lines().filter(|line| line.starts_with("| a")).flat_map(|line| line.split('`').skip(1).step_by(2));
    let paths: Vec<&str> = cells.filter(|cell| cell.contains('/')).collect();
    assert!(paths.len() > 30, "{paths:?}");
    let missing: Vec<_> = paths.into_iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Rules and artifacts are pure: nothing of the engine, the system, the network or time is built into them.
#[test]
fn pure_crates_use_nothing_that_acts() {
    let packages = packages();
    let acting = ["wasmtime", "tokio", "rustix", "libc", "reqwest", "cap-std", "tempfile"];
    for pure in ["harness-policy", "harness-artifact"] {
        for used in &packages[pure] {
            assert!(!acting.contains(&used.as_str()), "{pure} uses {used}");
        }
    }
    // The control: a crate that acts.
    assert!(packages["harness-wall"].contains("rustix"));
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
fn the_readme_has_every_capability() {
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
fn the_pages_have_the_limits() {
    use harness_policy::limits::LimitKey;
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
    assert_eq!(names, harness_policy::path::protected::SENSITIVE);
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
