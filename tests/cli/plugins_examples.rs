//! The plugins in `examples/plugins`: packed, added, tested, and bounded by their grants. Fakes answer instead of services
//! and commands.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::project::{Project, Ran};

/// An example with the policy of a project that uses it.
struct Example {
    name: &'static str,
    policy: &'static str,
    rules: usize,
}

const EXAMPLES: &[Example] = &[
    Example { name: "budget", policy: "sandbox: {}\n", rules: 5 },
    Example { name: "git-review", policy: "sandbox:\n  exec: { allow: [git] }\n", rules: 3 },
    Example {
        name: "github",
        policy: "network:\n  allowed_domains: [{ host: api.github.com, methods: [GET, POST], scheme: https }]\nsandbox:\n  secrets:\n    GITHUB_TOKEN: { env: GITHUB_TOKEN, hosts: [api.github.com] }\n",
        rules: 3,
    },
    Example { name: "redact", policy: "sandbox: {}\n", rules: 3 },
    Example {
        name: "sqlite",
        policy: "sandbox:\n  fs: { read: [data] }\n  exec: { allow: [\"sqlite3 -batch -init /dev/null -readonly -safe -json *\"] }\n",
        rules: 2,
    },
    Example {
        name: "web-search",
        policy: "network:\n  allowed_domains: [{ host: api.search.brave.com, methods: [GET], scheme: https }]\nsandbox:\n  secrets:\n    BRAVE_API_KEY: { env: BRAVE_API_KEY, hosts: [api.search.brave.com] }\n",
        rules: 2,
    },
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/plugins")
}

fn example(name: &str) -> &'static Example {
    EXAMPLES.iter().find(|example| example.name == name).unwrap()
}

/// A project with a packed example in it, and a cache.
struct Place {
    project: Project,
    cache: TempDir,
    packed: String,
}

impl Place {
    fn new(example: &Example, more: &str) -> Self {
        Self::changed(example, more, str::to_owned)
    }

    /// The same, with each file of the example changed before it is packed.
    fn changed(example: &Example, more: &str, change: impl Fn(&str) -> String) -> Self {
        let project = Project::new().policy(&format!("{more}{}", example.policy));
        let from = folder().join(example.name);
        for part in ["", "tools", "hooks"] {
            let Ok(entries) = std::fs::read_dir(from.join(part)) else { continue };
            for path in entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
                let inside = path.strip_prefix(&from).unwrap().to_str().unwrap();
                let text = std::fs::read_to_string(&path).unwrap();
                project.write(&format!("{}/{inside}", example.name), &change(&text));
            }
        }
        let place =
            Self { project, cache: tempfile::tempdir().unwrap(), packed: format!("./{}-1.0.0.tar", example.name) };
        let ran = place.run(&["plugin", "pack", example.name]);
        assert_eq!(ran.code, 0, "{ran}");
        std::fs::remove_dir_all(place.project.path(example.name)).unwrap();
        place
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = self.project.command(arguments);
        command.env("XDG_CACHE_HOME", self.cache.path());
        command.env("GITHUB_TOKEN", "a token of nobody").env("BRAVE_API_KEY", "a key of nobody");
        self.project.ran(&command.output().unwrap())
    }

    /// Adds the plugin with all that it asks for.
    fn granted(self) -> Self {
        let shown = self.run(&["plugin", "show", &self.packed, "--json"]).json();
        let ran = self.run(&["plugin", "add", &self.packed, "--grant-digest", shown["review"].as_str().unwrap()]);
        assert_eq!(ran.code, 0, "{ran}");
        self
    }

    /// Adds it with nothing of that.
    fn refused(self) -> Self {
        let ran = self.run(&["plugin", "add", &self.packed, "--grant", "none"]);
        assert_eq!(ran.code, 0, "{ran}");
        self
    }

    fn policy(&self) -> String {
        std::fs::read_to_string(self.project.path(".harness/harness.md")).unwrap()
    }

    /// How a case of an artifact ended: whether it passed, and all that is reported of it.
    fn case(&self, artifact: &str, case: &str) -> (bool, String) {
        let report = self.run(&["test", artifact, "--json"]).json();
        let cases = report["cases"].as_array().unwrap();
        let found = cases.iter().find(|found| found["case"] == case).unwrap_or_else(|| panic!("no case {case:?}"));
        (found["passed"] == true, found.to_string())
    }
}

#[test]
fn each_is_packed_added_and_passes_its_cases() {
    let page = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let folders = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = folders
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, EXAMPLES.iter().map(|example| example.name).collect::<Vec<_>>());
    for example in EXAMPLES {
        let name = example.name;
        assert!(page.contains(&format!("\n| [{name}]({name}/plugin.md) |")), "README.md does not list {name}");
        let place = Place::new(example, "").granted();
        place.run(&["plugin", "verify"]).gives("verified: 1 plugin");
        place.run(&["plugin", "list"]).gives(&format!("{name} 1.0.0  ./{name}-1.0.0.tar"));
        let valid = place.run(&["validate", "--json"]);
        assert_eq!((valid.code, &valid.json()["problems"]), (0, &Json::Array(Vec::new())), "{name}: {valid}");
        let tested = place.run(&["test", "--json"]);
        let report = tested.json();
        let cases = report["cases"].as_array().unwrap();
        let failed: Vec<&Json> = cases.iter().filter(|case| case["passed"] != true).collect();
        assert!(tested.code == 0 && failed.is_empty() && cases.len() >= 10, "{name}: {failed:?}");
        // All that it asks for is granted by what `add` writes, and the page of the plugin shows that entry.
        let shown = place.run(&["plugin", "show", name, "--json"]).json();
        let asks = shown["asks"].as_array().unwrap();
        assert!(asks.len() == example.rules && asks.iter().all(|ask| ask["granted"] == true), "{name}: {shown}");
        let prose = std::fs::read_to_string(folder().join(name).join("plugin.md")).unwrap();
        assert!(prose.contains(&format!("plugins/{name}:")) && place.policy().contains(&format!("plugins/{name}:")));
    }
}

/// The text of an artifact whose cases do not declare a grant, so that the project's policy decides in them.
fn without_granted(text: &str) -> String {
    let mut left = text.to_owned();
    while let Some(start) = left.find("granted: {") {
        let (mut depth, mut end) = (0_usize, start);
        for (at, c) in left.get(start..).unwrap().char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => continue,
            }
            if depth == 0 {
                end = start + at + 1;
                break;
            }
        }
        let rest = left.get(end..).unwrap();
        end += if rest.starts_with(", ") { 2 } else { 0 };
        left.replace_range(start..end, "");
    }
    left
}

#[test]
fn a_tool_is_denied_without_its_grant_and_works_with_it() {
    for (name, tool, arguments, case, denial) in [
        (
            "github",
            "github_list_issues",
            &["repo=octo/hello"][..],
            "lists issues without pull requests",
            "secret: the secret `GITHUB_TOKEN` is not granted",
        ),
        (
            "github",
            "github_comment",
            &["repo=octo/hello", "number=7", "text=Fixed.", "--yes"],
            "adds a comment",
            "secret: the secret `GITHUB_TOKEN` is not granted",
        ),
        (
            "web-search",
            "web_search",
            &["query=x"],
            "lists results as text",
            "secret: the secret `BRAVE_API_KEY` is not granted",
        ),
        (
            "sqlite",
            "sqlite_query",
            &["database=shop.db", "query=select 1"],
            "returns rows",
            "exec.run: the command `sqlite3 -batch -init /dev/null -readonly -safe -json ./shop.db",
        ),
        (
            "git-review",
            "review_summary",
            &["to=staged"],
            "summarizes changes with findings",
            "exec.run: the command `git --no-pager --no-optional-locks --git-dir=.git",
        ),
    ] {
        let place = Place::changed(example(name), "", without_granted).refused();
        let ran = place.run(&[&["call", tool][..], arguments].concat());
        ran.says(3, denial);
        let (passed, report) = place.case(tool, case);
        assert!(!passed, "{name}: {report}");
        assert!(place.case(tool, "is denied without a grant").0);
        // The same case, with the same fakes.
        let place = Place::changed(example(name), "", without_granted).granted();
        let (passed, report) = place.case(tool, case);
        assert!(passed, "{name}: {report}");
        assert!(!place.case(tool, "is denied without a grant").0);
    }
}

/// A tool that writes needs a person, and a project that grants reading alone keeps it from writing.
#[test]
fn the_github_example_writes_only_with_a_person_and_a_grant() {
    let comment = ["call", "github_comment", "repo=octo/hello", "number=7", "text=Fixed."];
    let place = Place::new(example("github"), "").granted();
    place.run(&comment).says(3, "each call of `github_comment` needs confirmation");
    let reading = Example {
        policy: "network:\n  allowed_domains: [{ host: api.github.com, methods: [GET], scheme: https }]\nsandbox:\n  secrets:\n    GITHUB_TOKEN: { env: GITHUB_TOKEN, hosts: [api.github.com] }\n",
        ..*example("github")
    };
    let place = Place::changed(&reading, "", without_granted).granted();
    place.run(&[&comment[..], &["--yes"]].concat()).says(3, "`api.github.com`");
    assert!(!place.case("github_comment", "adds a comment").0);
    assert!(place.case("github_list_issues", "lists issues without pull requests").0);
}

const PEOPLE: &str = "def run(args):\n    return {'mail': 'ada@example.org', 'card': '4111 1111 1111 1111', 'n': 3}\n";
const FETCH: &str = "def run(args):\n    return 'see ' + args['url'].replace('[', '(')\n";

#[test]
fn the_redact_example_hides_data_in_results_and_arguments() {
    let with_tools = |mut place: Place| {
        place.project = place.project.tool("people", "", PEOPLE).tool("fetch_page", "", FETCH).tool("keep", "", FETCH);
        place
    };
    let place = with_tools(Place::new(example("redact"), ""));
    // Nothing hides it yet.
    assert!(place.run(&["call", "people"]).out.contains("ada@example.org"));
    // Without its events it is not added at all, so that no guard is silent.
    let denied = place.run(&["plugin", "add", &place.packed, "--grant", "none"]);
    assert!(denied.code != 0 && denied.err.contains("`sandbox.sources.plugins/redact.events`"), "{denied}");
    let place = place.granted();
    let ran = place.run(&["call", "people"]);
    assert_eq!(
        ran.out, "{\"mail\":\"[hidden: e-mail address]\",\"card\":\"[hidden: card number]\",\"n\":3}\n",
        "{ran}"
    );
    assert!(ran.err.contains("redact_results: hid 1 e-mail address, 1 card number in the result of people"), "{ran}");
    let url = "url=https://example.com/?to=ada@example.org&key=ghp_000000000000000000000000000000000000";
    let sent = place.run(&["call", "fetch_page", url]);
    assert_eq!(sent.out, "see https://example.com/?to=(hidden: e-mail address]&key=(hidden: token]\n", "{sent}");
    // A tool of another name gets the data, and only its result is changed.
    let kept = place.run(&["call", "keep", "url=ada@example.org"]);
    assert_eq!(kept.out, "see [hidden: e-mail address]\n", "{kept}");
    assert!(!kept.err.contains("redact_arguments"), "{kept}");
    // Without `modify` it blocks: data that it cannot hide does not pass.
    let policy = place.policy();
    assert!(policy.contains(", services: [modify]"), "{policy}");
    place.project.write(".harness/harness.md", &policy.replace(", services: [modify]", ""));
    assert_eq!(place.run(&["lock"]).code, 0);
    place.run(&["call", "people"]).says(3, "`modify` is not granted");
}

const MODEL: &str = "model: { provider: script, script: replies.yaml }\nexit_policy: { max_iterations: 100 }\n";
const LOOK: &str = "def run(args):\n    return 'nothing yet'\n";

#[test]
fn the_budget_example_ends_a_loop() {
    let again = "- tool_calls: [{ name: look, args: { n: 1 } }]\n";
    let refusal = "look was called 4 times with the same arguments";
    let with_tool = |mut place: Place| {
        place.project = place.project.tool("look", "", LOOK);
        place
    };
    let place = with_tool(Place::new(example("budget"), MODEL));
    let denied = place.run(&["plugin", "add", &place.packed, "--grant", "none"]);
    assert!(denied.code != 0 && denied.err.contains("`sandbox.sources.plugins/budget.events`"), "{denied}");
    // Without the guard the loop runs.
    place.project.write("replies.yaml", &format!("{}- text: Done.\n", again.repeat(6)));
    let ran = place.run(&["run", "--explain", "Go"]);
    assert!(ran.code == 0 && ran.out == "Done.\n" && !ran.err.contains(refusal), "{ran}");
    let place = place.granted();
    // A model that reads the reason resumes its work.
    let expected = "- { expect: use the result that you have, text: I stop. }\n";
    place.project.write("replies.yaml", &format!("{}{expected}", again.repeat(5)));
    let ran = place.run(&["run", "--explain", "Go"]);
    assert!(ran.code == 0 && ran.out == "I stop.\n" && ran.err.contains(refusal), "{ran}");
    assert_eq!(ran.err.matches("look completed").count(), 4, "{ran}");
    // The turn of one that does not ends before the next request.
    place.project.write("replies.yaml", &again.repeat(30));
    let ran = place.run(&["run", "--explain", "Go"]);
    assert!(ran.code != 0 && ran.err.contains("4 calls in it were refused"), "{ran}");
    assert_eq!(ran.err.matches("calls look").count(), 8, "{ran}");
    // Calls that differ pass, up to the limit of a turn.
    let other = |n: usize| format!("- tool_calls: [{{ name: look, args: {{ n: {n} }} }}]\n");
    let replies: String = (0..61).map(other).collect();
    place
        .project
        .write("replies.yaml", &format!("{replies}- {{ expect: this turn has made 60 calls, text: Enough. }}\n"));
    let ran = place.run(&["run", "--explain", "Go"]);
    assert!(ran.code == 0 && ran.out == "Enough.\n", "{ran}");
    assert_eq!(ran.err.matches("look completed").count(), 60, "{ran}");
}
