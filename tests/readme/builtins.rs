//! The page on built-ins: every function that the guest registers, with its parameters and defaults, and every example.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value as Json;

use super::HARNESS;

static PAGE: LazyLock<String> = LazyLock::new(|| {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/builtins.md")).unwrap()
});

/// What the examples have instead of the folder that a case is run in.
const WORKSPACE: &str = "/home/ada/project";

/// The tool that examples call.
const GREET: &str = "---\nparameters: { name: { type: string } }\nscript: |\n  def run(args):\n      return \"hello \" + args[\"name\"]\n---\nGreet someone.\n";

/// Those that are not written as a function of a namespace in the guest.
const BY_HAND: [&str; 2] = ["log(message)", "print(*values)"];

/// The rows of the page's tables of built-ins: each signature, and whether hooks have it.
fn rows() -> BTreeMap<String, bool> {
    let mut rows = BTreeMap::new();
    let mut in_table = false;
    for line in PAGE.lines() {
        in_table = line.starts_with("| built-in |") || in_table && line.starts_with('|');
        if !in_table || !line.starts_with("| `") {
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        for signature in cells[0].split('`').skip(1).step_by(2) {
            let in_hooks = cells.get(2).is_none_or(|cell| *cell == "yes");
            assert_eq!(rows.insert(signature.to_owned(), in_hooks), None, "{signature} is there twice");
        }
    }
    rows
}

fn name(signature: &str) -> &str {
    signature.split('(').next().unwrap()
}

/// The component is made of these sources, which another test sees to.
#[test]
fn the_page_on_builtins_has_all_of_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest/src/globals");
    let mut registered: BTreeSet<String> = BY_HAND.map(str::to_owned).into();
    for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            registered.extend(signatures(text.split("#[cfg(test)]").next().unwrap()));
        }
    }
    // Its namespace is opened in the file beside it.
    let calls = std::fs::read_to_string(folder.join("meta/calls.rs")).unwrap().replace("= LIMIT)", "= 8)");
    let calls = format!("builder.namespace(\"meta\"\n{}", calls.split("#[cfg(test)]").next().unwrap());
    registered.extend(signatures(&calls.replace("pub(super) fn functions", "fn functions")));
    assert!(registered.contains("fs.read(path)"));
    let told: BTreeSet<String> = rows().into_keys().collect();
    let only_one_has: Vec<&String> = told.symmetric_difference(&registered).collect();
    assert_eq!(only_one_has, Vec::<&String>::new());
}

/// The functions that a file of the guest registers, as a script calls them.
fn signatures(text: &str) -> Vec<String> {
    let text = text.replace("DEFAULT_SECONDS", "30.0");
    let named = ["namespace(\"", "set(\""].iter().find_map(|call| text.split(&format!("builder.{call}")).nth(1));
    let namespace = named.map(|rest| rest.split('"').next().unwrap());
    let mut found = Vec::new();
    for module in text.split("#[starlark_module]\nfn ").skip(1) {
        let body = module.split("\n}\n").next().unwrap();
        let global = module.starts_with("globals(");
        for function in body.split("\n    fn ").skip(1) {
            let (head, rest) = function.split_once('(').unwrap();
            let name = head.split('<').next().unwrap().trim_start_matches("r#");
            // A keyword of Rust.
            let name = if name == "wait_" { "await" } else { name };
            let parameters = parameters(rest.split(") -> ").next().unwrap());
            let prefix = namespace.filter(|_| !global).map(|namespace| format!("{namespace}.")).unwrap_or_default();
            found.push(format!("{prefix}{name}({})", parameters.join(", ")));
        }
    }
    found
}

/// Parameters as Rust has them, as a script has them: without what the interpreter gives.
fn parameters(text: &str) -> Vec<String> {
    let ours = |parameter: &&str| !parameter.starts_with("heap:") && !parameter.contains("#[starlark(this)]");
    let told = |parameter: &str| {
        let (attribute, rest) = parameter.rsplit_once(")] ").unwrap_or(("", parameter));
        let name = rest.split(':').next().unwrap();
        match attribute.strip_prefix("#[starlark(default = ") {
            Some(default) => format!("{name}={}", value(default)),
            None if attribute == "#[starlark(args" => format!("*{name}"),
            None => name.to_owned(),
        }
    };
    apart(text).into_iter().filter(ours).map(told).collect()
}

/// Parameters, apart at commas that are in no brackets.
fn apart(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let pieces = text.split(|char| {
        match char {
            '(' | '[' | '<' => depth += 1,
            ')' | ']' | '>' => depth -= 1,
            _ => {}
        }
        char == ',' && depth == 0
    });
    pieces.map(str::trim).filter(|piece| !piece.is_empty()).collect()
}

/// A default as a script would write it.
fn value(rust: &str) -> String {
    match rust {
        "NoneOr::None" => "None".to_owned(),
        "false" => "False".to_owned(),
        _ if rust.starts_with("UnpackList") => "[]".to_owned(),
        _ if rust.ends_with("::default()") => "{}".to_owned(),
        _ => rust.trim_start_matches("UnpackFloat(").trim_end_matches(')').trim_end_matches(".0").replace('_', ""),
    }
}

/// An example, what the page says of it, and under which heading.
struct Example {
    call: String,
    gives: String,
    heading: &'static str,
}

impl Example {
    fn names(&self, function: &str) -> bool {
        let call = format!("{function}(");
        self.call.match_indices(&call).any(|(at, _)| {
            let before = self.call.get(..at).unwrap().chars().next_back();
            !before.is_some_and(|char| char.is_alphanumeric() || matches!(char, '_' | '.'))
        })
    }

    fn fails(&self) -> bool {
        self.gives.starts_with("error: ") || self.gives.starts_with("denied: ")
    }

    fn is_of_agents(&self) -> bool {
        self.heading == "Agents and tasks"
    }
}

fn examples() -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for section in PAGE.split("\n## ").skip(1) {
        let heading = section.lines().next().unwrap();
        for block in section.split("```python\n").skip(1) {
            for line in block.split("\n```").next().unwrap().lines() {
                match (line.strip_prefix("# "), line.rsplit_once("  # ")) {
                    (Some(gives), _) => examples.last_mut().unwrap().gives = gives.to_owned(),
                    (None, Some((call, gives))) => {
                        examples.push(Example { call: call.to_owned(), gives: gives.to_owned(), heading });
                    }
                    (None, None) => examples.push(Example { call: line.to_owned(), gives: String::new(), heading }),
                }
            }
        }
    }
    examples
}

#[test]
fn every_builtin_has_an_example() {
    let examples = examples();
    for signature in rows().keys() {
        assert!(examples.iter().any(|example| example.names(name(signature))), "{signature}");
    }
}

/// The blocks of YAML at the end of the page: the policy, and the world of a case.
fn blocks() -> [&'static str; 2] {
    let mut blocks = PAGE.split("```yaml\n").skip(1).map(|rest| rest.split("\n```").next().unwrap());
    [blocks.next().unwrap(), blocks.next().unwrap()]
}

fn write(folder: &Path, path: &str, text: &str) {
    let path = folder.join(".harness").join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Front matter whose script has each example as a function in a list.
fn script(examples: &[Example], entry: &str) -> String {
    let calls: String = examples.iter().map(|example| format!("      lambda: ({}),\n", example.call)).collect();
    format!("script: |\n  EXAMPLES = [\n{calls}  ]\n{entry}tests:\n")
}

/// A case for each example, which expects what nothing is, so that it is told what there was.
fn cases(examples: &[Example], given: &str, argument: &str, aspect: &str) -> String {
    let given = given.replace('\n', "\n    ");
    let case =
        |n| format!("  - name: '{n}'\n    {argument}: {{ n: {n} }}\n    {given}\n    expect: {{ {aspect}: '?' }}\n");
    (0..examples.len()).map(case).collect()
}

/// What there was, case by case.
fn found(folder: &Path, artifact: &str) -> Vec<Json> {
    let temporary = folder.join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    let mut command = Command::new(HARNESS);
    command.args(["test", artifact, "--json"]).current_dir(folder);
    let output = command.env("TMPDIR", temporary).env("API_TOKEN", "of-the-operator").output().unwrap();
    let report: Json = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let cases = report["cases"].as_array().unwrap();
    cases.iter().map(|case| case["differences"][0]["found"].clone()).collect()
}

/// What a call gave, as the page shows it: with the folder of the page, and without the script's line in an error.
fn told(folder: &Path, found: &Json) -> String {
    let text = match found["error"].as_str().or_else(|| found.as_str()) {
        Some(text) => text.strip_prefix("tool ").unwrap_or(text),
        None => panic!("{found}"),
    };
    let text = text.rsplit_once(" (.harness/").map_or(text, |(text, _)| text);
    let scratch = format!("{}/tmp/", folder.display());
    match text.split_once(&scratch) {
        Some((before, after)) => format!("{before}{WORKSPACE}/{}", after.split_once('/').unwrap().1),
        None => text.to_owned(),
    }
}

#[test]
fn the_examples_of_builtins_are_true() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let [policy, given] = blocks();
    let (of_agents, examples): (Vec<_>, Vec<_>) = examples().into_iter().partition(Example::is_of_agents);
    write(&folder, "harness.md", &format!("---\n{policy}\n---\n"));
    write(&folder, "tools/greet.md", GREET);
    let entry = "  def run(args):\n      return repr(EXAMPLES[args[\"n\"]]())\n";
    let all = script(&examples, entry) + &cases(&examples, given, "args", "result");
    write(&folder, "tools/examples.md", &format!("---\nparameters: {{ n: {{ type: number }} }}\n{all}---\nAll.\n"));
    let found = found(&folder, "examples");
    assert_eq!(found.len(), examples.len());
    for (example, found) in examples.iter().zip(found) {
        assert_eq!(told(&folder, &found), example.gives, "{}", example.call);
    }
    assert_eq!(of_agents.len(), 7);
}

/// Agents and tasks are there in calls, not in cases.
#[test]
fn the_examples_of_agents_are_true() {
    let folder = tempfile::tempdir().unwrap();
    let examples: Vec<Example> = examples().into_iter().filter(Example::is_of_agents).collect();
    let policy =
        "model: { provider: script, script: replies.yaml }\nsandbox: { async_tools: true }\nmeta: { enabled: true }\n";
    write(folder.path(), "harness.md", &format!("---\n{policy}---\n"));
    std::fs::write(folder.path().join("replies.yaml"), "- { agent: finder, text: On 12 May. }\n").unwrap();
    write(folder.path(), "agents/finder.md", "---\ndescription: Finds.\n---\nYou find things.\n");
    let slow = "async: true\nscript: |\n  def run(args):\n      return {\"n\": 1}\n";
    write(folder.path(), "tools/slow.md", &format!("---\n{slow}---\nSlow.\n"));
    for example in examples {
        let script = format!("script: |\n  def run(args):\n      return repr({})\n", example.call);
        write(folder.path(), "tools/example.md", &format!("---\n{script}---\nOne.\n"));
        assert_eq!(super::run(folder.path(), "harness call example").trim_end(), example.gives, "{}", example.call);
    }
}

/// What the page says of hooks: those built-ins that they lack are refused, and no others.
#[test]
fn hooks_have_what_the_page_says() {
    let folder = tempfile::tempdir().unwrap();
    let [policy, given] = blocks();
    let lacking: Vec<String> =
        rows().into_iter().filter(|(_, there)| !there).map(|(signature, _)| name(&signature).to_owned()).collect();
    assert!(lacking.iter().any(|name| name == "fs.write"));
    let all: Vec<Example> = examples().into_iter().filter(|example| !example.fails()).collect();
    let entry = "  def handle(event, payload):\n      EXAMPLES[payload[\"n\"]]()\n      return allow()\n";
    let hook = script(&all, entry) + &cases(&all, given, "payload", "reason");
    // What begins a task for them: else they would fail before they ask for one.
    let slow = "script: |\n  def run(args):\n      return {\"task_id\": \"task_1\"}\n";
    write(folder.path(), "tools/slow.md", &format!("---\n{slow}---\nSlow.\n"));
    write(folder.path(), "tools/greet.md", GREET);
    write(folder.path(), "harness.md", &format!("---\n{policy}\n---\n"));
    write(folder.path(), "hooks/examples.md", &format!("---\nevent: custom.example\n{hook}---\nAll.\n"));
    let found = found(folder.path(), "examples");
    assert_eq!(found.len(), all.len());
    for (example, found) in all.iter().zip(found) {
        let refused = lacking.iter().filter(|name| example.names(name)).any(|name| {
            let why = "is not there in a hook: hooks inspect and decide, they run and change nothing";
            found.as_str().is_some_and(|reason| reason.contains(&format!("`{name}` {why}")))
        });
        let there = !lacking.iter().any(|name| example.names(name));
        assert!(if there { found.is_null() } else { refused }, "{}: {found}", example.call);
    }
}

/// The names of the language's own functions, and the methods of its values.
#[test]
fn the_language_has_what_the_page_says() {
    let folder = tempfile::tempdir().unwrap();
    let row = |of: &str| -> Vec<String> {
        let row = PAGE.split(&format!("\n| {of} | `")).nth(1).unwrap().split("` |\n").next().unwrap();
        row.split("`, `").map(str::to_owned).collect()
    };
    let own = row("the language").join(", ");
    let script = format!(
        "script: |\n  OWN = [{own}]\n  def run(args):\n      return {{\"a text\": dir(\"\"), \"a list\": dir([]), \"a dict\": dir({{}}), \"a set\": dir(set())}}\n"
    );
    write(folder.path(), "tools/names.md", &format!("---\n{script}---\nNames.\n"));
    let printed: Json = serde_json::from_str(&super::run(folder.path(), "harness call names")).unwrap();
    for (of, names) in printed.as_object().unwrap() {
        assert_eq!(names, &Json::from(row(of)), "{of}");
    }
}

/// Words of Python that the page says are not there: a script that has one at its top level is not loaded.
#[test]
fn the_language_lacks_what_the_page_says() {
    let folder = tempfile::tempdir().unwrap();
    let table = PAGE.split("\n| Python | here |\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let cells = table.lines().map(|row| row.trim_start_matches('|').split(" | ").next().unwrap());
    let words: Vec<&str> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|code| code.bytes().all(|byte| byte.is_ascii_lowercase()))
        .collect();
    assert!(words.contains(&"while") && words.contains(&"sum"), "{words:?}");
    for word in &words {
        let script = format!("script: |\n  X = {word}\n  def run(args):\n      return 1\n");
        write(folder.path(), &format!("tools/{word}.md"), &format!("---\n{script}---\nIt.\n"));
    }
    let said = super::run(folder.path(), "harness validate");
    for word in &words {
        assert!(said.contains(&format!("--> .harness/tools/{word}.md:3:")), "{word}: {said}");
    }
}
