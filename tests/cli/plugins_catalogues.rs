//! Catalogues: plugins that are looked up by name, and what a hostile catalogue gets.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::project::{FINE, Project, Ran};

const PLUGIN: &str = "---\nname: acme\nversion: 1.0.0\ndescription: Says hello.\n---\n";
const TOOL: &str = "---\nscript: |\n  def run(args):\n      return 'hello'\n---\nSays hello.\n";
const INDEX: &str = "plugins:\n  - name: acme\n    version: 1.0.0\n    description: Says hello.\n    source: ./acme\n";
const FOLDER: &str = "sandbox: {}\ncatalogues: { ours: ./catalogue }\n";

/// A project, a cache, and a repository with a catalogue that has the plugin `acme`.
pub(crate) struct Place {
    pub(crate) project: Project,
    pub(crate) repository: TempDir,
    pub(crate) cache: TempDir,
}

impl Place {
    /// The catalogue is the folder `catalogue` of the project.
    fn folder() -> Self {
        let place = Self::empty();
        place.project.write(".harness/harness.md", &format!("---\n{FOLDER}---\n"));
        place.project.write("catalogue/catalogue.yaml", INDEX);
        place.project.write("catalogue/acme/plugin.md", PLUGIN);
        place.project.write("catalogue/acme/tools/theirs.md", TOOL);
        place
    }

    /// The catalogue is the repository.
    pub(crate) fn git() -> Self {
        let place = Self::empty();
        place.policy(&format!("sandbox: {{}}\ncatalogues: {{ ours: '{}' }}\n", place.source("")));
        place.write("catalogue.yaml", INDEX);
        place.write("acme/plugin.md", PLUGIN);
        place.write("acme/tools/theirs.md", TOOL);
        place.commit();
        place
    }

    pub(crate) fn empty() -> Self {
        let place = Self {
            project: Project::new().tool("it", "", FINE).policy("sandbox: {}\n"),
            repository: tempfile::tempdir().unwrap(),
            cache: tempfile::tempdir().unwrap(),
        };
        place.git_at(&["init", "--quiet", "--initial-branch=main"]);
        place
    }

    pub(crate) fn policy(&self, text: &str) {
        self.project.write(".harness/harness.md", &format!("---\n{text}---\n"));
    }

    fn git_at(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]).args(arguments);
        command.current_dir(self.repository.path());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        let output = command.output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.repository.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), text).unwrap();
    }

    /// Commits all that is there, and gives the commit.
    pub(crate) fn commit(&self) -> String {
        self.git_at(&["add", "--all"]);
        self.git_at(&["commit", "--quiet", "--allow-empty", "--message", "more"]);
        self.git_at(&["rev-parse", "HEAD"])
    }

    pub(crate) fn source(&self, rest: &str) -> String {
        format!("git+file://{}{rest}", self.repository.path().to_str().unwrap())
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = self.project.command(arguments);
        let output = command.env("XDG_CACHE_HOME", self.cache.path()).stdin(Stdio::null()).output().unwrap();
        let ran = self.project.ran(&output);
        let hide = |text: String| text.replace(self.repository.path().to_str().unwrap(), "/repository");
        Ran { code: ran.code, out: hide(ran.out), err: hide(ran.err) }
    }

    pub(crate) fn add(&self, name: &str) -> Ran {
        self.run(&["plugin", "add", name, "--grant", "none"])
    }

    pub(crate) fn lock(&self) -> String {
        std::fs::read_to_string(self.project.path("harness.lock")).unwrap_or_default()
    }

    pub(crate) fn forget(&self) {
        std::fs::remove_dir_all(self.cache.path().join("harness")).unwrap();
    }
}

#[test]
fn a_plugin_of_a_folder_is_found_and_added() {
    let place = Place::folder();
    insta::assert_snapshot!(place.run(&["plugin", "search"]), @"
    exit 0
    --- stdout
    acme@ours 1.0.0
      Says hello.
      source: ./catalogue/acme
    --- stderr
    ");
    let json = place.run(&["plugin", "search", "HELLO", "acme", "--json"]).json();
    let expected = serde_json::json!([{
        "name": "acme", "catalogue": "ours", "version": "1.0.0", "description": "Says hello.",
        "source": "./catalogue/acme", "pinned": true, "problem": null, "alike": [],
    }]);
    assert_eq!(json, expected);
    let none = place.run(&["plugin", "search", "other"]);
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (0, "", "no plugin was found\n"));

    let shown = place.run(&["plugin", "show", "acme@ours"]);
    assert!(shown.out.starts_with("plugin acme 1.0.0 from ./catalogue/acme, by the catalogue `ours`\n"), "{shown}");
    let added = place.add("acme@ours");
    assert_eq!(added.code, 0, "{added}");
    assert!(place.lock().contains("source = \"./catalogue/acme\"\ncatalogue = \"ours\"\n"), "{}", place.lock());
    place.run(&["call", "theirs"]).gives("hello");
    let listed = place.run(&["plugin", "list", "--json"]).json();
    assert_eq!(listed[0]["catalogue"], "ours");
    assert_eq!(place.run(&["plugin", "update"]).out, "acme 1.0.0: up to date\n");

    // What the catalogue names no more stays in use, and is no update.
    place.project.write("catalogue/catalogue.yaml", "plugins: [{ name: acne, source: ./acme }]\n");
    let gone = place.run(&["plugin", "update"]);
    let why = "error: the catalogue `ours` has no plugin `acme`\n\nhint: it has `acne`\n";
    assert_eq!((gone.code, gone.err.as_str()), (2, why));
    place.run(&["call", "theirs"]).gives("hello");
    // Another name for the same plugin is none of its names.
    let other = place.add("acne@ours");
    assert_eq!(other.err, "error: `./catalogue/acme` is the plugin `acme`, and not `acne`\n");
}

#[test]
fn the_catalogue_of_a_plugin_in_the_lock_is_not_changed_by_hand() {
    let place = Place::folder();
    assert_eq!(place.add("acme@ours").code, 0);
    let lock = place.lock();
    for changed in
        [lock.replace("catalogue = \"ours\"", "catalogue = \"other\""), lock.replace("catalogue = \"ours\"\n", "")]
    {
        place.project.write("harness.lock", &changed);
        let ran = place.run(&["call", "theirs"]);
        assert!(ran.code == 2 && ran.err.contains("its entry was changed by hand"), "{ran}");
    }
    place.project.write("harness.lock", &lock);
    place.run(&["call", "theirs"]).gives("hello");
}

#[test]
fn what_a_repository_names_of_itself_is_pinned_to_its_commit() {
    let place = Place::git();
    let first = place.git_at(&["rev-parse", "HEAD"]);
    let searched = place.run(&["plugin", "search"]);
    let source = format!("  source: git+file:///repository@{first}#acme\n");
    assert!(searched.code == 0 && searched.out.ends_with(&source), "{searched}");
    assert_eq!(place.add("acme@ours").code, 0);
    let (pinned, resolved) = (format!("@{first}#acme\"\n"), format!("resolved = \"{first}\"\n"));
    let lock = place.lock();
    assert!(lock.contains(&pinned) && lock.contains(&resolved) && lock.contains("catalogue = \"ours\"\n"), "{lock}");

    // A commit that changes something else changes nothing here.
    place.write("README", "more");
    place.commit();
    assert_eq!(place.run(&["plugin", "update"]).out, "acme 1.0.0: up to date\n");
    assert_eq!(place.lock(), lock);

    // A new version of the same source needs no more consent than any.
    place.write("acme/plugin.md", &PLUGIN.replace("1.0.0", "1.1.0"));
    place.write("acme/tools/theirs.md", &TOOL.replace("'hello'", "'other'"));
    let third = place.commit();
    let updated = place.run(&["plugin", "update"]);
    assert_eq!(updated.code, 0, "{updated}");
    let change = format!("  source: git+file:///repository@{first}#acme -> git+file:///repository@{third}#acme\n");
    assert!(updated.out.contains(&change), "{updated}");
    place.run(&["call", "theirs"]).gives("other");
    // A fresh clone gets what the lock has.
    place.forget();
    assert_eq!(place.run(&["plugin", "sync"]).out, "acme 1.1.0: fetched\n");
    place.run(&["call", "theirs"]).gives("other");
}

#[test]
fn a_name_that_moves_to_another_source_needs_consent() {
    let place = Place::git();
    assert_eq!(place.add("acme@ours").code, 0);
    // A higher version whose code alone differs: from the same folder it would be used.
    place.write("evil/plugin.md", &PLUGIN.replace("1.0.0", "9.0.0"));
    place.write("evil/tools/theirs.md", &TOOL.replace("'hello'", "'evil'"));
    place.write("catalogue.yaml", &INDEX.replace("./acme", "./evil"));
    place.commit();
    let staged = place.run(&["plugin", "update"]);
    assert!(staged.code == 1 && staged.err.contains("`acme` 9.0.0 is staged: it needs your consent"), "{staged}");
    assert!(staged.out.contains("#acme -> git+file:///repository@"), "{staged}");
    place.run(&["call", "theirs"]).gives("hello");
    let agreed = place.run(&["plugin", "update", "acme", "--grant", "none"]);
    assert_eq!(agreed.code, 0, "{agreed}");
    place.run(&["call", "theirs"]).gives("evil");

    // The same of another catalogue with the name, and of a source that a person names.
    let ours = place.source("");
    place.policy(&format!("sandbox: {{}}\ncatalogues: {{ ours: '{ours}', theirs: '{ours}' }}\n"));
    let moved = place.run(&["plugin", "update", "acme", "--from", "acme@theirs"]);
    assert!(moved.code == 1 && moved.out.contains("  catalogue: `ours` -> `theirs`\n"), "{moved}");
    // Without its catalogue, a plugin has no update, and is looked up in no other.
    place.policy(&format!("sandbox: {{}}\ncatalogues: {{ theirs: '{ours}' }}\n"));
    let gone = place.run(&["plugin", "update"]);
    assert!(gone.code == 2 && gone.err.starts_with("error: the policy has no catalogue `ours`\n"), "{gone}");
}

#[test]
fn the_operator_names_the_catalogues() {
    let place = Place::folder();
    let bare = place.add("acme");
    assert!(bare.code == 2 && bare.err.ends_with("hint: a plugin of a catalogue is `acme@CATALOGUE`\n"), "{bare}");
    let unknown = place.add("acme@theirs");
    insta::assert_snapshot!(unknown, @"
    exit 2
    --- stdout
    --- stderr
    error: the policy has no catalogue `theirs`

    hint: name it in the policy: `catalogues: { theirs: git+https://HOST/REPOSITORY }`
    ");
    place.policy("sandbox: {}\n");
    let none = place.run(&["plugin", "search"]);
    assert_eq!((none.code, none.out.as_str()), (0, ""));
    assert!(none.err.starts_with("no catalogues: name one in the policy under `catalogues`"), "{none}");
    assert_eq!(place.add("acme@ours").code, 2);

    // The host policy says which ones a project may name.
    place.policy(FOLDER);
    let host = |text: &str| {
        let file = place.at("host.yaml");
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let closed = host("catalogues: [git+https://github.com/acme/*]\n");
    let refused = place.run(&["--policy", &closed, "plugin", "add", "acme@ours", "--grant", "none"]);
    insta::assert_snapshot!(refused, @"
    exit 3
    --- stdout
    --- stderr
    error: the host policy refuses the catalogue `ours` at `./catalogue`

    hint: `catalogues` of the host policy lists the sources that a project may name
    ");
    assert_eq!(place.run(&["--policy", &closed, "plugin", "search"]).code, 3);
    let open = host("catalogues: [./catalogue]\n");
    assert_eq!(place.run(&["--policy", &open, "plugin", "add", "acme@ours", "--grant", "none"]).code, 0);
}

#[test]
fn trusted_sources_decide_about_the_source_that_a_catalogue_names() {
    let place = Place::folder();
    place.policy(&format!("{FOLDER}trusted_sources: [{{ source: ./other/* }}]\n"));
    let refused = place.add("acme@ours");
    let why = "`trusted_sources` refuses `plugins/acme`: it comes from `./catalogue/acme`, which no entry is about";
    assert!(refused.code == 2 && refused.err.contains(why), "{refused}");
    assert_eq!(place.lock(), "");
    place.policy(&format!("{FOLDER}trusted_sources: [{{ source: ./catalogue/* }}]\n"));
    assert_eq!(place.add("acme@ours").code, 0);
}

/// What an index names, why it is not added, and the same without what is wrong with it.
#[test]
fn hostile_indexes() {
    let place = Place::folder();
    let add = |index: &str| {
        place.project.write("catalogue/catalogue.yaml", index);
        place.add("acme@ours")
    };
    std::fs::create_dir(place.project.path("catalogue/links")).unwrap();
    symlink(place.project.path(".harness"), place.project.path("catalogue/links/out")).unwrap();
    symlink(place.project.path("catalogue/acme"), place.project.path("catalogue/links/in")).unwrap();
    let one = |source: &str| format!("plugins: [{{ name: acme, source: {source} }}]\n");
    let long = format!("# {}\n{}", "x".repeat(2 << 20), one("./acme"));
    let many: String = (0..2001).map(|number| format!("- {{ name: a{number}, source: ./acme }}\n")).collect();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    for (index, why) in [
        (one("../acme"), "`../acme` is neither `./FOLDER`"),
        (one("./acme/../../.harness"), "`./acme/../../.harness` is not a folder inside the catalogue"),
        (one("/etc"), "`/etc` is neither `./FOLDER`"),
        (one("./links/in"), "cannot fetch `./catalogue/links/in`: "),
        (one("./links/out"), "has the source `links/out`, which is outside of the catalogue"),
        (one("./nowhere"), "has no folder: "),
        (one("'git+https://a.example/x@v1'"), "which names neither a commit nor a digest"),
        (one("'oci://a.example/x:1'"), "which names neither a commit nor a digest"),
        (one("'git+ssh://a.example/x'"), "is neither `./FOLDER`"),
        (one(&format!("'git+https://127.0.0.1:9/x@{commit}'")), "not public"),
        (one(&format!("'git+https://[::1]:9/x@{commit}'")), "not public"),
        (one(&format!("'git+https://169.254.169.254/x@{commit}'")), "not public"),
        (format!("plugins:\n{many}"), "an index has at most 2000 plugins"),
        (long, "catalogue.yaml`"),
        (
            "plugins: [{ name: acme, source: ./acme }, { name: Acme, source: ./acme }]\n".to_owned(),
            "`Acme` is not a name",
        ),
        (
            "plugins: [{ name: acme, source: ./acme }, { name: \"a\\u0441me\", source: ./acme }]\n".to_owned(),
            "is not a name",
        ),
        ("plugins: [{ name: acme, source: ./acme }, { name: acme, source: ./evil }]\n".to_owned(), "is there twice"),
        ("plugins: [{ name: acme, source: ./acme, run: x }]\n".to_owned(), "unknown key"),
        ("plugins: [{ name: acme, source: *a }]\n".to_owned(), "yaml"),
        ("plugins: 7\n".to_owned(), "must be a list"),
    ] {
        let ran = add(&index);
        assert!(ran.code == 2 && ran.err.contains(why), "{why}: {ran}");
        assert_eq!((ran.out.as_str(), place.lock().as_str()), ("", ""), "{why}");
        // The control.
        assert_eq!(add(&one("./acme")).code, 0, "{why}");
        assert_eq!(place.run(&["plugin", "remove", "acme"]).code, 0);
    }
    // The index itself is in the catalogue, too.
    let index = place.project.path("catalogue/catalogue.yaml");
    std::fs::remove_file(&index).unwrap();
    symlink(place.project.path(".harness/harness.md"), &index).unwrap();
    let ran = place.add("acme@ours");
    assert!(ran.code == 2 && ran.err.contains("`catalogue.yaml` is outside of the catalogue"), "{ran}");
    std::fs::remove_file(&index).unwrap();
    let ran = place.add("acme@ours");
    let why = "it has no `catalogue.yaml` and no `.claude-plugin/marketplace.json`";
    assert!(ran.code == 2 && ran.err.contains(why), "{ran}");
}

/// An address of this machine is asked only where an entry of `trusted_sources` says `private: true`.
#[test]
fn a_source_at_a_private_address_is_the_operators_to_open() {
    let place = Place::folder();
    let source = "git+https://127.0.0.1:9/x@0123456789abcdef0123456789abcdef01234567";
    place.project.write("catalogue/catalogue.yaml", &format!("plugins: [{{ name: acme, source: '{source}' }}]\n"));
    place.policy(&format!("{FOLDER}trusted_sources: [{{ source: git+https://127.0.0.1:9/x@*, private: true }}]\n"));
    let asked = place.add("acme@ours");
    // Nobody listens there: it was asked.
    assert!(asked.code == 2 && !asked.err.contains("not public"), "{asked}");
    place.policy(&format!("{FOLDER}trusted_sources: [{{ source: git+https://127.0.0.1:9/x@* }}]\n"));
    let refused = place.add("acme@ours");
    assert!(refused.code == 2 && refused.err.contains("not public"), "{refused}");
}

#[test]
fn what_a_catalogue_writes_does_nothing_to_a_terminal() {
    let place = Place::folder();
    let index = "plugins:\n  - { name: acme, source: ./acme, description: \"a\\e[2Jb\\nplugin fine\\u202ec\\u009b1m\" }\n  - { name: acrne, source: ./acme }\n";
    place.project.write("catalogue/catalogue.yaml", index);
    let ran = place.run(&["plugin", "search"]);
    insta::assert_snapshot!(ran, @r"
    exit 0
    --- stdout
    acme@ours
      a\u{1b}[2Jb\nplugin fine\u{202e}c\u{9b}1m
      source: ./catalogue/acme
      its name looks like that of `acrne`
    acrne@ours
      source: ./catalogue/acme
      its name looks like that of `acme`
    --- stderr
    ");
    place.project.write("catalogue/catalogue.yaml", "plugins: [{ name: \"a\\e[2J\", source: ./acme }]\n");
    let ran = place.run(&["plugin", "search"]);
    assert!(ran.code == 1 && !ran.err.contains('\u{1b}') && ran.err.contains("is not a name"), "{ran}");
    // What is in a marketplace and left out is named, once for all of them.
    std::fs::remove_file(place.project.path("catalogue/catalogue.yaml")).unwrap();
    let left: Vec<String> = (0..7).map(|number| format!("{{\"name\":\"\\u001b[2J{number}\"}}")).collect();
    let index = format!("{{\"plugins\":[{}]}}", left.join(","));
    place.project.write("catalogue/.claude-plugin/marketplace.json", &index);
    let ran = place.run(&["plugin", "search"]);
    assert!(ran.code == 0 && !ran.err.contains('\u{1b}'), "{ran}");
    assert_eq!(ran.err.lines().filter(|line| line.starts_with("warning: ")).count(), 6, "{ran}");
    assert!(ran.err.contains("has 2 more that are left out"), "{ran}");
}

#[test]
fn a_catalogue_that_cannot_be_read_hides_no_other() {
    let place = Place::folder();
    place.policy("sandbox: {}\ncatalogues: { gone: ./nowhere, ours: ./catalogue }\n");
    let ran = place.run(&["plugin", "search"]);
    let why = "error: the catalogue `gone` at `./nowhere` cannot be read: No such file or directory (os error 2)\n";
    assert_eq!((ran.code, ran.err.as_str()), (1, why));
    assert!(ran.out.starts_with("acme@ours 1.0.0\n"), "{ran}");
}

/// The policy and the index of the page are what they are said to be.
#[test]
fn what_the_page_shows_is_read() {
    let page = include_str!("../../docs/plugins.md").split("\n### Catalogues\n").nth(1).unwrap();
    let page = page.split("\n### ").next().unwrap();
    let blocks: Vec<&str> = page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let [policy, index] = blocks.as_slice() else { panic!("{blocks:?}") };
    let place = Place::folder();
    place.policy(&format!("sandbox: {{}}\n{policy}"));
    assert_eq!(place.run(&["validate"]).code, 0);
    place.policy(FOLDER);
    place.project.write("catalogue/catalogue.yaml", index);
    place.project.write("catalogue/units/plugin.md", &PLUGIN.replace("acme", "units"));
    insta::assert_snapshot!(place.run(&["plugin", "search"]), @"
    exit 0
    --- stdout
    units@ours 1.2.0
      Converts units.
      source: ./catalogue/units
    notes@ours
      source: git+https://github.com/acme/notes@0123456789abcdef0123456789abcdef01234567#plugin
    --- stderr
    ");
    assert_eq!(place.add("units@ours").code, 0);
}
