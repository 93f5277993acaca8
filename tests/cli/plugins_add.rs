//! Plugins from elsewhere: reviewed, consented to, pinned, updated and removed.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Stdio;

use tempfile::TempDir;

use crate::project::{FINE, Project, Ran};
use crate::pty::Person;

const PLUGIN: &str = "---\nname: acme\nversion: 1.2.0\ndescription: Reads a variable.\nlicense: MIT\nauthors: [Ada]\nasks:\n  - reason: Shows it.\n    env: [HARNESS_TEST_VARIABLE]\n  - reason: Reads pages.\n    fs: { read: [docs] }\n---\n\n# Acme\n\nNeeds nothing.\n";
const TOOL: &str =
    "---\nscript: |\n  def run(args):\n      return env('HARNESS_TEST_VARIABLE')\n---\nReads the variable.\n";
const POLICY: &str = "# Ours.\nsandbox: # here\n  env: [HARNESS_TEST_VARIABLE]\n  # Only what is needed.\n  fs: { read: [docs, acme] }\n";

/// A project, a plugin beside it, and a cache.
pub(crate) struct Place {
    pub(crate) project: Project,
    pub(crate) cache: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let project = Project::new().tool("it", "", FINE).policy(POLICY);
        let project = project.file("docs/a.md", "one").file("docs/b.md", "two").file("other.md", "three");
        let project = project.file("acme/plugin.md", PLUGIN).file("acme/tools/theirs.md", TOOL);
        Self { project, cache: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = self.project.command(arguments);
        let output = command.env("XDG_CACHE_HOME", self.cache.path()).stdin(Stdio::null()).output().unwrap();
        let ran = self.project.ran(&output);
        let hide = |text: String| {
            let cache = self.cache.path().to_str().unwrap();
            digests(&text.replace(cache, "[cache]"))
        };
        Ran { code: ran.code, out: hide(ran.out), err: hide(ran.err) }
    }

    /// The digest of a plugin, as it is reviewed.
    pub(crate) fn digest(&self, source: &str) -> String {
        let mut command = self.project.command(&["plugin", "show", source, "--json"]);
        let output = command.env("XDG_CACHE_HOME", self.cache.path()).output().unwrap();
        self.project.ran(&output).json()["digest"].as_str().unwrap().to_owned()
    }

    /// Adds the plugin with all that it asks for.
    fn added(self) -> Self {
        let ran = self.run(&["plugin", "add", "./acme", "--grant-digest", &self.digest("./acme")]);
        assert_eq!(ran.code, 0, "{ran}");
        self
    }

    pub(crate) fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.project.path(path)).unwrap()
    }

    pub(crate) fn change(&self, path: &str, from: &str, to: &str) {
        let text = self.text(path);
        assert!(text.contains(from), "{text}");
        self.project.write(path, &text.replace(from, to));
    }

    /// The folder of the plugin in the cache.
    fn kept(&self) -> PathBuf {
        let all = std::fs::read_dir(self.cache.path().join("harness/plugins")).unwrap();
        let mut all: Vec<PathBuf> = all.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }
}

/// A text without the digits of digests.
fn digests(text: &str) -> String {
    let mut parts = text.split("sha256:");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_hexdigit());
        shown.push_str(if part.len() - rest.len() == 64 { "sha256:[digest]" } else { "sha256:" });
        shown.push_str(if part.len() - rest.len() == 64 { rest } else { part });
    }
    shown
}

#[test]
fn what_is_reviewed_is_added_and_pinned() {
    let place = Place::new();
    insta::assert_snapshot!(place.run(&["plugin", "show", "./acme"]), @r#"
    exit 0
    --- stdout
    plugin acme 1.2.0 from ./acme
      Reads a variable.
      license: MIT
      authors: Ada
      2 files, 325 bytes, sha256:[digest]
      not signed
    tool theirs, of which models read
      | Reads the variable.
    asks for:
      1. read the variable `HARNESS_TEST_VARIABLE` of the environment
         reason: Shows it.
      2. read files that match `docs`
         reason: Reads pages.
         here: 2 files
      it has no cases: nothing shows what it uses
    its authors write:
      | # Acme
      |
      | Needs nothing.
    --- stderr
    "#);
    let before = place.text(".harness/harness.md");
    insta::assert_snapshot!(place.run(&["plugin", "add", "./acme"]), @r#"
    exit 3
    --- stdout
    plugin acme 1.2.0 from ./acme
      Reads a variable.
      license: MIT
      authors: Ada
      2 files, 325 bytes, sha256:[digest]
      not signed
    tool theirs, of which models read
      | Reads the variable.
    asks for:
      1. read the variable `HARNESS_TEST_VARIABLE` of the environment
         reason: Shows it.
      2. read files that match `docs`
         reason: Reads pages.
         here: 2 files
      it has no cases: nothing shows what it uses
    its authors write:
      | # Acme
      |
      | Needs nothing.
    --- stderr
    error: nobody consented to what the plugin asks for

    hint: run it at a terminal, grant what you reviewed with `--grant-digest sha256:[digest]`, or use `--grant none`
    "#);
    assert_eq!(place.text(".harness/harness.md"), before);
    assert!(!place.project.path("harness.lock").exists());
    let place = place.added();
    insta::assert_snapshot!(place.text(".harness/harness.md"), @r#"
    ---
    # Ours.
    sandbox: # here
      sources:
        plugins/acme: { env: [HARNESS_TEST_VARIABLE], fs: { read: [docs] } }
      env: [HARNESS_TEST_VARIABLE]
      # Only what is needed.
      fs: { read: [docs, acme] }
    ---
    "#);
    insta::assert_snapshot!(digests(&place.text("harness.lock")), @r#"
    # The plugins of this project as they were consented to. `harness plugin` writes this file. `harness lock` adds the
    # artifacts of the project itself, which may change until then.
    version = 1
    only = "plugins"

    [[plugin]]
    name = "acme"
    version = "1.2.0"
    source = "./acme"
    digest = "sha256:[digest]"
    asked = "sha256:[digest]"
    granted = "sha256:[digest]"
    sha256 = "sha256:[digest]"
    "#);
    // Its bytes are not in the project, and it needs neither its source nor anything else.
    std::fs::remove_dir_all(place.project.path("acme")).unwrap();
    place.run(&["call", "theirs"]).gives("a value");
    place.run(&["call", "it"]).gives("fine");
    place.run(&["plugin", "verify"]).gives("verified: 1 plugin");
    place.run(&["plugin", "list"]).gives("acme 1.2.0  ./acme");
    // Artifacts of the project itself are not locked by that.
    place.change(".harness/tools/it.md", "'fine'", "'other'");
    place.run(&["call", "it"]).gives("other");
    place.run(&["plugin", "remove", "acme"]).gives("removed `acme`");
    assert_eq!(place.text(".harness/harness.md"), before);
    assert!(!place.project.path("harness.lock").exists());
    place.run(&["call", "theirs"]).says(2, "there is no tool `theirs`");
}

#[test]
fn nothing_is_granted_without_consent() {
    let place = Place::new();
    let other = format!("sha256:{}", "0".repeat(64));
    let denied = place.run(&["plugin", "add", "./acme", "--grant-digest", &other]);
    denied.says(3, "the plugin is sha256:[digest], and sha256:[digest] was reviewed");
    // What was reviewed is another plugin once a byte of it changes.
    let reviewed = place.digest("./acme");
    place.change("acme/tools/theirs.md", "Reads", "reads");
    assert_eq!(place.run(&["plugin", "add", "./acme", "--grant-digest", &reviewed]).code, 3);
    assert!(!place.project.path("harness.lock").exists());
    place.change("acme/tools/theirs.md", "reads", "Reads");
    assert_eq!(place.run(&["plugin", "add", "./acme", "--grant", "none"]).code, 0);
    assert_eq!(place.text(".harness/harness.md"), format!("---\n{POLICY}---\n"));
    place.run(&["call", "theirs"]).says(3, "the variable `HARNESS_TEST_VARIABLE` is not granted");
    // What the operator grants later is accepted by the lock, within what the plugin asks for.
    place.change(
        ".harness/harness.md",
        "  # Only",
        "  sources: { plugins/acme: { env: [HARNESS_TEST_VARIABLE] } }\n  # Only",
    );
    place
        .run(&["call", "theirs"])
        .says(2, "what `sandbox.sources` grants to `plugins/acme` differs from `harness.lock`");
    assert_eq!(place.run(&["lock"]).code, 0);
    place.run(&["call", "theirs"]).gives("a value");
}

#[test]
fn a_person_consents_rule_by_rule() {
    let place = Place::new();
    let cache = place.cache.path().to_str().unwrap();
    let mut person = Person::with(&place.project, &["plugin", "add", "./acme"], &[("XDG_CACHE_HOME", cache)]);
    person.sees("[y]es and grant all of it, [r]ule by rule, [N]o: ");
    person.types("r\n");
    person.sees("1. read the variable `HARNESS_TEST_VARIABLE` of the environment? [y]es, [N]o: ");
    person.types("y\n");
    person.sees("2. read files that match `docs`? [y]es, [N]o: ");
    person.types("\n");
    person.sees("added `acme` 1.2.0: 1 of 2 rules granted");
    assert_eq!(person.leaves(), 0);
    assert!(place.text(".harness/harness.md").contains("    plugins/acme: { env: [HARNESS_TEST_VARIABLE] }\n"));
    let place = Place::new();
    let mut person = Person::with(&place.project, &["plugin", "add", "./acme"], &[("XDG_CACHE_HOME", cache)]);
    person.sees("[N]o: ");
    person.types("\n");
    person.sees("nothing is added");
    assert_eq!(person.leaves(), 3);
}

#[test]
fn a_cache_or_lock_that_differs_stops_the_project() {
    let place = Place::new().added();
    let kept = place.kept();
    let tool = kept.join("tools/theirs.md");
    std::fs::write(&tool, TOOL.replace("Reads", "reads")).unwrap();
    place.run(&["call", "it"]).says(2, "the plugin `acme` differs from `harness.lock`: `[cache]/harness/plugins/");
    place.run(&["plugin", "verify"]).says(1, "was changed: its digest is another one");
    place.run(&["plugin", "sync"]).gives("acme 1.2.0: fetched");
    place.run(&["call", "theirs"]).gives("a value");
    std::fs::remove_dir_all(&kept).unwrap();
    place.run(&["call", "it"]).says(2, "the plugin `acme` differs from `harness.lock`: it is not on this machine");
    // A source that is another one by now is not taken instead.
    place.change("acme/plugin.md", "1.2.0", "1.3.0");
    place.run(&["plugin", "sync"]).says(1, "`./acme` is sha256:[digest], and the lock has sha256:[digest]");
    place.change("acme/plugin.md", "1.3.0", "1.2.0");
    place.run(&["plugin", "sync"]).gives("acme 1.2.0: fetched");
    // By hand, each line of the lock.
    let lock = place.text("harness.lock");
    for (line, from, to) in [
        ("version", "\"1.2.0\"", "\"1.2.1\""),
        ("source", "./acme", "./acne"),
        ("digest", "sha256:", "sha256:0"),
        ("name", "\"acme\"", "\"acne\""),
    ] {
        place.project.write("harness.lock", &lock.replace(from, to));
        assert_eq!(place.run(&["call", "it"]).code, 2, "{line}");
    }
    place.project.write("harness.lock", &lock.replace("version = 1\n", "version = 1 \n"));
    place.run(&["call", "it"]).says(2, "`harness.lock` is not as it was written");
    // Nor does writing it again drop the plugin.
    place.run(&["lock"]).says(2, "`harness.lock` is not as it was written");
    place.project.write("harness.lock", &lock);
    place.run(&["call", "theirs"]).gives("a value");
    // A copy in the project would be a second one.
    place.project.write(".harness/plugins/acme/bundle.md", "---\n---\n");
    place.run(&["call", "it"]).says(2, "`.harness/plugins/acme` is there too");
}

/// Each bit of the lock and of the plugin in the cache, turned once.
#[test]
fn no_bit_is_turned_unseen() {
    let place = Place::new().added();
    let variables = |name: &str| (name == "XDG_CACHE_HOME").then(|| place.cache.path().display().to_string());
    let plugins = harness_plugin::cache::folder(variables);
    let machine = harness_registry::Machine::None;
    let loads = || {
        let host = harness_registry::Host::new(&machine, plugins.clone());
        harness_registry::Registry::load_within(place.project.root(), host).policy().is_some()
    };
    assert!(loads());
    let kept = place.kept();
    for path in [place.project.path("harness.lock"), kept.join("plugin.md"), kept.join("tools/theirs.md")] {
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() * 8 {
            let mut turned = whole.clone();
            turned[at / 8] ^= 1 << (at % 8);
            std::fs::write(&path, &turned).unwrap();
            assert!(!loads(), "bit {at} of {}", path.display());
        }
        std::fs::write(&path, &whole).unwrap();
        assert!(loads());
    }
}

#[test]
fn a_vendored_plugin_is_in_the_project() {
    let place = Place::new();
    let digest = place.digest("./acme");
    assert_eq!(place.run(&["plugin", "add", "./acme", "--vendor", "--grant-digest", &digest]).code, 0);
    place.run(&["plugin", "list"]).gives("acme 1.2.0  ./acme  (vendored)");
    // Another machine has no cache.
    std::fs::remove_dir_all(place.cache.path().join("harness")).unwrap();
    place.run(&["call", "theirs"]).gives("a value");
    place.change(".harness/plugins/acme/tools/theirs.md", "Reads", "reads");
    place.run(&["call", "it"]).says(2, "a file of it was changed, added or removed");
    place.run(&["plugin", "sync"]).gives("acme 1.2.0: fetched");
    place.run(&["call", "theirs"]).gives("a value");
    place.project.write(".harness/plugins/acme/hooks/x.md", "---\nevent: tool.pre\n---\n");
    place.run(&["call", "it"]).says(2, "a file of it was changed, added or removed");
    place.run(&["plugin", "remove", "acme"]).gives("removed `acme`");
    assert!(!place.project.path(".harness/plugins/acme").exists());
}

#[test]
fn a_packed_plugin_is_the_same_plugin() {
    let place = Place::new();
    let packed = place.run(&["plugin", "pack", "acme"]);
    insta::assert_snapshot!(packed, @r#"
    exit 0
    --- stdout
    acme-1.2.0.tar: acme 1.2.0, sha256:[digest]
    --- stderr
    "#);
    let first = std::fs::read(place.project.path("acme-1.2.0.tar")).unwrap();
    place.run(&["plugin", "pack", "acme", "--output", "again.tar"]);
    assert_eq!(std::fs::read(place.project.path("again.tar")).unwrap(), first);
    assert_eq!(place.digest("./acme-1.2.0.tar"), place.digest("./acme"));
    let digest = place.digest("./again.tar");
    assert_eq!(place.run(&["plugin", "add", "./again.tar", "--grant-digest", &digest]).code, 0);
    place.run(&["call", "theirs"]).gives("a value");
}

#[test]
fn what_is_no_plugin_is_refused() {
    let place = Place::new();
    let refused = |source: &str, why: &str| {
        place.run(&["plugin", "add", source, "--grant", "none"]).says(2, why);
        assert!(!place.project.path("harness.lock").exists());
    };
    refused("https://a.example/x", "sources of `https:` are not supported");
    refused("acme", "`acme` is not a source");
    refused("./none", "cannot fetch `./none`: ");
    refused("./docs", "`./docs` is no plugin: it has no `plugin.md`");
    place.project.write("text.tar", "no archive");
    refused("./text.tar", "it is not a plugin as `harness plugin pack` writes it");
    let at = |path: &str| place.project.path(&format!("acme/{path}"));
    symlink("/etc/passwd", at("link")).unwrap();
    refused("./acme", "`link`: it is a link");
    std::fs::remove_file(at("link")).unwrap();
    std::fs::write(at("Plugin.md"), "").unwrap();
    refused("./acme", "`Plugin.md` and `plugin.md` differ by letter case alone");
    std::fs::remove_file(at("Plugin.md")).unwrap();
    // One whose artifacts do not load, and one that brings what is there.
    std::fs::write(at("tools/it.md"), "---\n---\n").unwrap();
    refused("./acme", "tool \"it\" is defined more than once");
    std::fs::write(at("tools/it.md"), "---\nparameters: [a]\n---\n").unwrap();
    refused("./acme", "must be a mapping");
    std::fs::remove_file(at("tools/it.md")).unwrap();
    // A hook that nobody lets hear would be silent.
    let hook = "---\nevent: session.start\nscript: |\n  def handle(event, payload):\n      return allow()\n---\n";
    std::fs::create_dir(at("hooks")).unwrap();
    std::fs::write(at("hooks/guard.md"), hook).unwrap();
    refused("./acme", "which the plugin does not ask for");
    place.change("acme/plugin.md", "    fs: { read: [docs] }\n", "    events: [session.start]\n");
    refused("./acme", "which no entry of `sandbox.sources` lets it receive");
    // The control.
    let digest = place.digest("./acme");
    assert_eq!(place.run(&["plugin", "add", "./acme", "--grant-digest", &digest]).code, 0);
}

#[test]
fn what_a_review_shows_acts_on_no_terminal() {
    let place = Place::new();
    let text = PLUGIN
        .replace("Reads a variable.", "\"Reads \\e[2J \\u202Ethings\"")
        .replace("Shows it.", "\"Shows\\e]0;x\\a it.\"")
        .replace("env: [HARNESS_TEST_VARIABLE]", "network: [\"a\\u0440i.example\"]")
        .replace("Needs nothing.", "Needs \u{1b}[8m nothing\u{200b}.");
    place.project.write("acme/plugin.md", &text);
    place.project.write("acme/tools/theirs.md", &TOOL.replace("Reads the", "Reads \u{1b}[1A the"));
    let shown = place.run(&["plugin", "show", "./acme"]);
    assert!(!shown.out.chars().any(|c| c != '\n' && harness_policy::text::is_hidden(c)), "{:?}", shown.out);
    for part in ["\\u{1b}[2J", "\\u{202e}", "\\u{7}", "\\u{1b}[8m", "\\u{200b}", "\\u{1b}[1A"] {
        assert!(shown.out.contains(part), "{part}: {shown}");
    }
}

#[test]
fn an_update_that_asks_for_more_waits_for_consent() {
    let place = Place::new().added();
    place.run(&["plugin", "update"]).gives("acme 1.2.0: up to date");
    // Code alone: shown, and in use.
    place.change("acme/plugin.md", "1.2.0", "1.2.1");
    place.change("acme/tools/theirs.md", "return env(", "return 'x ' + env(");
    insta::assert_snapshot!(place.run(&["plugin", "update", "acme", "--dry-run"]), @r#"
    exit 1
    --- stdout
    acme 1.2.0 -> 1.2.1, sha256:[digest]
      ~ plugin.md
      ~ tools/theirs.md
      tool theirs changes: its script
      bundle plugins/acme changes: other lines of its file
    --- stderr
    "#);
    place.run(&["call", "theirs"]).gives("a value");
    assert_eq!(place.run(&["plugin", "update", "acme"]).code, 0);
    place.run(&["call", "theirs"]).gives("x a value");
    // What a file says of itself is no code: whether a person confirms a call, for one.
    place.change("acme/plugin.md", "1.2.1", "1.2.2");
    place.change("acme/tools/theirs.md", "---\nscript:", "---\nconfirm: true\nscript:");
    let staged = place.run(&["plugin", "update", "acme"]);
    assert!(staged.code == 1 && staged.out.contains("  tools/theirs.md changes `confirm`\n"), "{staged}");
    place.change("acme/plugin.md", "1.2.2", "1.2.1");
    place.change("acme/tools/theirs.md", "confirm: true\n", "");
    // More: staged, and the one before stays in use.
    place.change("acme/plugin.md", "1.2.1", "1.3.0");
    place.change("acme/plugin.md", "read: [docs]", "read: [docs, acme]");
    place.change("acme/tools/theirs.md", "Reads the variable.", "Reads the variable. Call it first.");
    let policy = place.text(".harness/harness.md");
    insta::assert_snapshot!(place.run(&["plugin", "update", "acme"]), @r#"
    exit 1
    --- stdout
    acme 1.2.1 -> 1.3.0, sha256:[digest]
      ~ plugin.md
      ~ tools/theirs.md
      tool theirs changes: its description
          description:
          - Reads the variable.
          + Reads the variable. Call it first.
      bundle plugins/acme changes: other lines of its file
      asks: + read files that match `acme`
      asks for more: fs.read: reading `acme`
    --- stderr
    error: `acme` 1.3.0 is staged: it needs your consent

    hint: consent at a terminal, or with `harness plugin update acme --grant-digest sha256:[digest]`; 1.2.1 stays in use
    "#);
    assert_eq!(place.text(".harness/harness.md"), policy);
    place.run(&["plugin", "list"]).gives("acme 1.2.1  ./acme  (1.3.0 is staged: `harness plugin update acme`)");
    place.run(&["call", "theirs"]).gives("x a value");
    let digest = place.digest("./acme");
    let updated = place.run(&["plugin", "update", "acme", "--grant-digest", &digest]);
    assert_eq!(updated.out.lines().last(), Some("updated `acme` to 1.3.0: 1 of 1 new rule granted"), "{updated}");
    assert!(place.text(".harness/harness.md").contains("fs: { read: [docs, acme] }"));
    place.run(&["plugin", "list"]).gives("acme 1.3.0  ./acme");
    // Never lower.
    place.change("acme/plugin.md", "1.3.0", "1.2.9");
    place.run(&["plugin", "update"]).says(3, "`./acme` has 1.2.9 of `acme`, and 1.3.0 is in use");
    assert_eq!(place.run(&["plugin", "update", "--allow-downgrade"]).code, 0);
    place.run(&["plugin", "list"]).gives("acme 1.2.9  ./acme");
    // Other bytes under the same version are not taken in silence.
    place.change("acme/tools/theirs.md", "'x '", "'y '");
    place.run(&["plugin", "update"]).says(1, "`acme` 1.2.9 is staged: it needs your consent");
    place.run(&["call", "theirs"]).gives("x a value");
}

#[test]
fn a_new_plugin_works() {
    let place = Place::new();
    std::fs::remove_dir_all(place.project.path("acme")).unwrap();
    insta::assert_snapshot!(place.run(&["plugin", "new", "acme"]), @r#"
    exit 0
    --- stdout
    acme/plugin.md
    acme/tools/acme_list.md
    --- stderr

    next, in a project:
      harness plugin show ./acme
      harness plugin add ./acme
    "#);
    place.run(&["plugin", "new", "acme"]).says(2, "`acme` is there already");
    place.run(&["plugin", "new", "Acme"]).says(2, "`Acme` is not a name");
    let digest = place.digest("./acme");
    assert_eq!(place.run(&["plugin", "add", "./acme", "--grant-digest", &digest]).code, 0);
    place.run(&["call", "acme_list"]).gives("[\"a.md\",\"b.md\"]");
    assert_eq!(place.run(&["test", "acme_list"]).code, 0);
}

#[test]
fn a_lock_of_all_artifacts_holds_plugins_too() {
    let place = Place::new();
    assert_eq!(place.run(&["lock"]).code, 0);
    let place = place.added();
    place.run(&["lock", "--check"]).gives("matches the lock: 1 tool, 0 hooks, 0 agents, 0 bundles, 1 plugin");
    place.run(&["call", "theirs"]).gives("a value");
    assert_eq!(place.run(&["plugin", "remove", "acme"]).code, 0);
    place.run(&["call", "it"]).gives("fine");
    place.change(".harness/tools/it.md", "'fine'", "'other'");
    place.run(&["call", "it"]).says(2, "differs from `harness.lock`");
}

/// What was granted once and is not asked for any more is not there for the version that asks for it again.
#[test]
fn a_grant_does_not_outlive_what_it_was_asked_for() {
    let place = Place::new().added();
    let granted = "    plugins/acme: { env: [HARNESS_TEST_VARIABLE], fs: { read: [docs] } }\n";
    assert!(place.text(".harness/harness.md").contains(granted), "{}", place.text(".harness/harness.md"));
    let ask = "  - reason: Shows it.\n    env: [HARNESS_TEST_VARIABLE]\n";
    place.change("acme/plugin.md", ask, "");
    place.change("acme/plugin.md", "1.2.0", "1.3.0");
    assert_eq!(place.run(&["plugin", "update", "acme"]).code, 0);
    let less = "    plugins/acme: { fs: { read: [docs] } }\n";
    assert!(place.text(".harness/harness.md").contains(less), "{}", place.text(".harness/harness.md"));
    place.change("acme/plugin.md", "asks:\n", &format!("asks:\n{ask}"));
    place.change("acme/plugin.md", "1.3.0", "1.4.0");
    let ran = place.run(&["plugin", "update", "acme", "--grant", "none"]);
    assert!(ran.code == 0 && ran.out.ends_with("updated `acme` to 1.4.0: 0 of 1 new rule granted\n"), "{ran}");
    assert!(place.text(".harness/harness.md").contains(less), "{}", place.text(".harness/harness.md"));
    let ran = place.run(&["call", "theirs"]);
    assert!(ran.code == 3 && ran.err.contains("`HARNESS_TEST_VARIABLE` is not granted"), "{ran}");
    // The control: with consent it is granted again.
    place.change("acme/plugin.md", "1.4.0", "1.5.0");
    place.change("acme/plugin.md", ask, "");
    assert_eq!(place.run(&["plugin", "update", "acme"]).code, 0);
    place.change("acme/plugin.md", "asks:\n", &format!("asks:\n{ask}"));
    place.change("acme/plugin.md", "1.5.0", "1.6.0");
    let digest = place.digest("./acme");
    assert_eq!(place.run(&["plugin", "update", "acme", "--grant-digest", &digest]).code, 0);
    let ran = place.run(&["call", "theirs"]);
    assert!(ran.code != 3, "{ran}");
}

/// An entry about something in a plugin grants to it too, and its author meant another plugin.
#[test]
fn what_the_policy_grants_to_a_part_of_a_plugin_is_no_consent() {
    let place = Place::new();
    let policy = place.text(".harness/harness.md");
    let entry = "  sources:\n    plugins/acme/tools/theirs: { fs: { read: [docs] } }\n";
    place
        .project
        .write(".harness/harness.md", &policy.replacen("sandbox: # here\n", &format!("sandbox: # here\n{entry}"), 1));
    let ran = place.run(&["plugin", "add", "./acme", "--grant", "none"]);
    let want = "error: `.harness/harness.md` grants to `plugins/acme/tools/theirs` already\n\nhint: remove the entry first: it was written for another plugin\n";
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (2, "", want), "{ran}");
    // The controls: of a plugin with a longer name, and of nobody.
    let other = entry.replace("plugins/acme/", "plugins/acme-2/");
    place
        .project
        .write(".harness/harness.md", &policy.replacen("sandbox: # here\n", &format!("sandbox: # here\n{other}"), 1));
    assert_eq!(place.run(&["plugin", "add", "./acme", "--grant", "none"]).code, 0);
}

/// A policy in braces is changed like any other: by `add`, by an update that asks for something else, and by `remove`.
#[test]
fn a_policy_in_braces_is_changed_too() {
    let place = Place::new();
    let policy = "---\nsandbox: { env: [HARNESS_TEST_VARIABLE], fs: { read: [docs, acme] } } # ours\n---\n";
    let with = |rules: &str| {
        let entry = format!("sandbox: {{ sources: {{ plugins/acme: {{ {rules} }} }}, env");
        policy.replace("sandbox: { env", &entry)
    };
    place.project.write(".harness/harness.md", policy);
    let place = place.added();
    assert_eq!(place.text(".harness/harness.md"), with("env: [HARNESS_TEST_VARIABLE], fs: { read: [docs] }"));
    place.change("acme/plugin.md", "read: [docs]", "read: [acme]");
    place.change("acme/plugin.md", "1.2.0", "1.3.0");
    let updated = place.run(&["plugin", "update", "acme", "--grant-digest", &place.digest("./acme")]);
    assert_eq!(updated.code, 0, "{updated}");
    assert_eq!(place.text(".harness/harness.md"), with("env: [HARNESS_TEST_VARIABLE], fs: { read: [acme] }"));
    place.run(&["plugin", "remove", "acme"]).gives("removed `acme`");
    assert_eq!(place.text(".harness/harness.md"), policy);
}
