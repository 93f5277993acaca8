//! Plugins in git repositories: what is fetched, what the lock keeps of it, and what a hostile repository gets.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::project::{FINE, Project, Ran};

const PLUGIN: &str = "---\nname: acme\nversion: 1.0.0\ndescription: Says hello.\n---\n";
const TOOL: &str = "---\nscript: |\n  def run(args):\n      return 'hello'\n---\nSays hello.\n";

/// A repository with a plugin in the folder `acme`, and a project.
pub(crate) struct Place {
    pub(crate) project: Project,
    pub(crate) repository: TempDir,
    pub(crate) cache: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self {
            project: Project::new().tool("it", "", FINE).policy("sandbox: {}\n"),
            repository: tempfile::tempdir().unwrap(),
            cache: tempfile::tempdir().unwrap(),
        };
        place.git(&["init", "--quiet", "--initial-branch=main"]);
        place.write("acme/plugin.md", PLUGIN);
        place.write("acme/tools/theirs.md", TOOL);
        place.commit("v1");
        place
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        let identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "protocol.file.allow=always"];
        command.args(identity).args(arguments).current_dir(self.repository.path());
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

    /// Commits all that is there, with a tag, and gives the commit.
    pub(crate) fn commit(&self, tag: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", tag]);
        self.git(&["tag", "--force", tag]);
        self.git(&["rev-parse", "HEAD"])
    }

    fn source(&self, rest: &str) -> String {
        format!("git+file://{}{rest}", self.repository.path().to_str().unwrap())
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, &[])
    }

    fn run_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
        let mut command = self.project.command(arguments);
        command.env("XDG_CACHE_HOME", self.cache.path()).envs(variables.iter().copied()).stdin(Stdio::null());
        let ran = self.project.ran(&command.output().unwrap());
        let hide = |text: String| text.replace(self.repository.path().to_str().unwrap(), "/repository");
        Ran { code: ran.code, out: hide(ran.out), err: hide(ran.err) }
    }

    fn add(&self, rest: &str) -> Ran {
        self.run(&["plugin", "add", &self.source(rest), "--grant", "none"])
    }

    pub(crate) fn lock(&self) -> String {
        std::fs::read_to_string(self.project.path("harness.lock")).unwrap_or_default()
    }

    /// What a fetch has left behind in the cache beside plugins.
    pub(crate) fn left(&self) -> Vec<PathBuf> {
        let Ok(all) = std::fs::read_dir(self.cache.path().join("harness/plugins")) else { return Vec::new() };
        let all = all.map(|entry| entry.unwrap().path());
        all.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with('.')).collect()
    }
}

#[test]
fn a_plugin_is_used_as_it_is_at_a_tag_a_branch_or_a_commit() {
    let place = Place::new();
    let first = place.git(&["rev-parse", "HEAD"]);
    place.write("acme/plugin.md", &PLUGIN.replace("1.0.0", "1.1.0"));
    let second = place.commit("v1.1");
    for (rest, version, commit) in [
        ("@v1#acme", "1.0.0", &first),
        (&format!("@{first}#acme"), "1.0.0", &first),
        ("@v1.1#acme", "1.1.0", &second),
        ("@main#acme", "1.1.0", &second),
        ("#acme", "1.1.0", &second),
    ] {
        let ran = place.add(rest);
        assert_eq!(ran.code, 0, "{rest}: {ran}");
        let lock = place.lock();
        assert!(lock.contains(&format!("resolved = \"{commit}\"\n")), "{rest}: {lock}");
        assert!(lock.contains(&format!("version = \"{version}\"\n")), "{rest}: {lock}");
        place.run(&["call", "theirs"]).gives("hello");
        assert_eq!(place.left(), Vec::<PathBuf>::new());
        assert_eq!(place.run(&["plugin", "remove", "acme"]).code, 0);
    }
    let shown = place.run(&["plugin", "show", &place.source("@v1#acme")]);
    let place_of =
        format!("plugin acme 1.0.0 from git+file:///repository@v1#acme\n  Says hello.\n  which is at {first}\n");
    assert!(shown.out.starts_with(&place_of), "{shown}");
    // An annotated tag is of its commit.
    place.git(&["tag", "--annotate", "--message", "x", "signed", "v1"]);
    assert_eq!(place.add("@signed#acme").code, 0);
    assert!(place.lock().contains(&format!("resolved = \"{first}\"\n")));
}

#[test]
fn what_moves_later_changes_nothing_until_it_is_updated() {
    let place = Place::new();
    let first = place.git(&["rev-parse", "HEAD"]);
    assert_eq!(place.add("@main#acme").code, 0);
    place.write("acme/tools/theirs.md", &TOOL.replace("'hello'", "'other'"));
    let second = place.commit("v2");

    place.run(&["call", "theirs"]).gives("hello");
    // Another machine fetches the commit of the lock, and not what the branch is at.
    std::fs::remove_dir_all(place.cache.path().join("harness")).unwrap();
    assert_eq!(place.run(&["call", "theirs"]).code, 2);
    let synced = place.run(&["plugin", "sync"]);
    assert_eq!((synced.code, synced.out.as_str()), (0, "acme 1.0.0: fetched\n"), "{synced}");
    place.run(&["call", "theirs"]).gives("hello");

    // The same version with other content is nobody's update until a person agrees.
    let staged = place.run(&["plugin", "update", "acme"]);
    assert_eq!(staged.code, 1, "{staged}");
    assert!(staged.out.contains("its content changed, and its version did not\n"), "{staged}");
    assert!(place.lock().contains(&format!("resolved = \"{first}\"\n")));
    let agreed = place.run(&["plugin", "update", "acme", "--grant", "none"]);
    assert_eq!(agreed.code, 0, "{agreed}");
    assert!(place.lock().contains(&format!("resolved = \"{second}\"\n")));
    place.run(&["call", "theirs"]).gives("other");

    // A commit that is gone from the repository is not replaced by what is there.
    place.git(&["checkout", "--quiet", "--orphan", "new"]);
    place.git(&["commit", "--quiet", "--message", "new"]);
    place.git(&["branch", "--force", "main"]);
    place.git(&["tag", "--delete", "v1", "v2"]);
    place.git(&["reflog", "expire", "--expire=now", "--all"]);
    place.git(&["gc", "--quiet", "--prune=now"]);
    std::fs::remove_dir_all(place.cache.path().join("harness")).unwrap();
    let gone = place.run(&["plugin", "sync"]);
    assert_eq!(gone.code, 1, "{gone}");
    let third = place.git(&["rev-parse", "main"]);
    let why = format!(
        "cannot fetch `git+file:///repository@main#acme`: it is at the commit {third} now, and {second} is wanted"
    );
    assert!(gone.err.contains(&why), "{gone}");
}

#[test]
fn another_source_needs_consent() {
    let place = Place::new();
    assert_eq!(place.add("@v1#acme").code, 0);
    place.write("acme/plugin.md", &PLUGIN.replace("1.0.0", "1.1.0"));
    place.commit("v1.1");
    let from = place.source("@v1.1#acme");
    let staged = place.run(&["plugin", "update", "acme", "--from", &from]);
    assert_eq!(staged.code, 1, "{staged}");
    let change = "  source: git+file:///repository@v1#acme -> git+file:///repository@v1.1#acme\n";
    assert!(staged.out.contains(change), "{staged}");
    assert!(place.lock().contains("version = \"1.0.0\"\n") && place.lock().contains("@v1#acme\"\n"));
    let agreed = place.run(&["plugin", "update", "acme", "--from", &from, "--grant", "none"]);
    assert_eq!(agreed.code, 0, "{agreed}");
    assert!(place.lock().contains("version = \"1.1.0\"\n") && place.lock().contains("@v1.1#acme\"\n"));
    // And back only where that is wanted.
    let back = place.source("@v1#acme");
    let lower = place.run(&["plugin", "update", "acme", "--from", &back, "--grant", "none"]);
    assert_eq!(lower.code, 3, "{lower}");
    let lower = place.run(&["plugin", "update", "acme", "--from", &back, "--grant", "none", "--allow-downgrade"]);
    assert_eq!(lower.code, 0, "{lower}");
}

#[test]
fn a_commit_with_what_no_plugin_has_is_refused_by_name() {
    let refused = |prepare: &dyn Fn(&Place), why: &str| {
        let place = Place::new();
        prepare(&place);
        place.commit("bad");
        let ran = place.add("@bad#acme");
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran}");
        assert_eq!(ran.err, format!("error: cannot fetch `git+file:///repository@bad#acme`: {why}\n"));
        assert_eq!((place.lock(), place.left()), (String::new(), Vec::new()));
        // The control: the commit before it.
        assert_eq!(place.add("@v1#acme").code, 0);
    };
    refused(&|place| symlink("/etc/passwd", place.at("acme/link")).unwrap(), "`link` is a link");
    refused(&|place| symlink("plugin.md", place.at("acme/tools/link.md")).unwrap(), "`tools/link.md` is a link");
    refused(
        &|place| {
            place.write("acme/run.sh", "#!/bin/sh\n");
            std::fs::set_permissions(place.at("acme/run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        },
        "`run.sh` is executable: nothing of a plugin is run by the system (`git update-index --chmod=-x`)",
    );
    refused(
        &|place| {
            let other = place.repository.path().to_str().unwrap().to_owned();
            place.git(&["submodule", "--quiet", "add", &other, "acme/sub"]);
        },
        "`sub` is a submodule",
    );
    refused(
        &|place| {
            place.write("acme/a.md", "");
            place.write("acme/A.md", "");
        },
        "`A.md` and `a.md` differ by letter case alone",
    );
    refused(
        &|place| place.write("acme/a\u{202e}b.md", ""),
        "`a\\u{202e}b.md` has a character that not every system has in names",
    );
    refused(&|place| place.write("acme/big", &"x".repeat((16 << 20) + 1)), "it has more than 16777216 bytes");
    refused(
        &|place| (0..=1000).for_each(|number| place.write(&format!("acme/many/{number}"), "")),
        "it has more than 1000 files",
    );
    // Little of a pack is much of a file.
    refused(
        &|place| place.write("acme/bomb", &"\0".repeat(200 << 20)),
        "`acme`: git failed: it was ended by a signal, perhaps at a limit",
    );
}

#[test]
fn nothing_of_a_repository_is_run_and_its_files_are_what_they_are() {
    let place = Place::new();
    let trace = place.cache.path().join("trace");
    let run = format!("echo ran >> {}", trace.display());
    place.write(".gitattributes", "*.md export-ignore text eol=crlf filter=evil ident\n*.txt export-subst\n");
    place.write("acme/.gitattributes", "* export-ignore\n");
    place.write("acme/note.txt", "$Format:%H$ $Id$\nline\n");
    place.git(&["config", "filter.evil.smudge", &run]);
    place.git(&["config", "filter.evil.clean", "cat"]);
    place.git(&["config", "core.fsmonitor", &run]);
    place.git(&["config", "uploadpack.packObjectsHook", &run]);
    place.git(&["config", "core.sshCommand", &run]);
    place.git(&["config", "tar.tar.command", &run]);
    for hook in ["post-checkout", "pre-upload", "reference-transaction", "post-index-change"] {
        let path = place.at(".git/hooks").join(hook);
        std::fs::write(&path, format!("#!/bin/sh\n{run}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    place.git(&["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "add", "--all"]);
    place.git(&["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "commit", "--quiet", "--message", "x"]);
    let _ = std::fs::remove_file(&trace);
    let evil = [
        ("GIT_SSH_COMMAND", run.as_str()),
        ("GIT_EXTERNAL_DIFF", run.as_str()),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
        ("GIT_CONFIG_VALUE_0", run.as_str()),
        ("GIT_DIR", "/nowhere"),
    ];
    let source = place.source("@main#acme");
    let ran = place.run_with(&["plugin", "add", &source, "--grant", "none", "--vendor"], &evil);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(!trace.exists(), "{}", std::fs::read_to_string(&trace).unwrap());
    let kept = |path: &str| std::fs::read_to_string(place.project.path(".harness/plugins/acme").join(path)).unwrap();
    assert_eq!((kept("plugin.md"), kept("tools/theirs.md")), (PLUGIN.to_owned(), TOOL.to_owned()));
    assert_eq!(
        (kept("note.txt"), kept(".gitattributes")),
        ("$Format:%H$ $Id$\nline\n".to_owned(), "* export-ignore\n".to_owned())
    );
}

#[test]
fn what_is_not_there_is_said() {
    let place = Place::new();
    for (rest, why) in [
        ("@v9#acme", "couldn't find remote ref refs/tags/v9"),
        ("@v1#other", "`other`: not a valid object name: "),
        ("@v1#acme/plugin.md", "`acme/plugin.md`: not a tree object: "),
        ("@v1", "`git+file:///repository@v1` is no plugin: it has no `plugin.md`"),
    ] {
        let ran = place.add(rest);
        assert!(ran.code == 2 && ran.err.contains(why), "{rest}: {ran}");
    }
    let gone = place.run(&["plugin", "add", "git+file:///nowhere/x@v1#a", "--grant", "none"]);
    assert_eq!(
        gone.err,
        "error: cannot fetch `git+file:///nowhere/x@v1#a`: `/nowhere/x`: No such file or directory (os error 2)\n"
    );
}

/// Nobody listens at these addresses; they are not asked.
#[test]
fn an_address_that_is_not_public_is_not_asked() {
    let place = Place::new();
    for host in ["127.0.0.1:9", "localhost:9", "10.0.0.1", "169.254.169.254", "[::1]:9", "[fd00::1]"] {
        let ran = place.run(&["plugin", "add", &format!("git+https://{host}/x@v1"), "--grant", "none"]);
        assert_eq!(ran.code, 2, "{host}: {ran}");
        assert!(
            ran.err.contains("not public") || ran.err.contains("needs a rule with `private: true`"),
            "{host}: {ran}"
        );
    }
}

/// A host policy bounds what is fetched, whatever the project says.
#[test]
fn a_host_policy_without_a_network_for_commands_lets_nothing_be_fetched() {
    let place = Place::new();
    let policy = place.cache.path().join("host.yaml");
    std::fs::write(&policy, "sandbox: { exec: { allow: [], network: false } }\n").unwrap();
    let policy = policy.to_str().unwrap();
    let source = "git+https://example.invalid/x@v1";
    let refused = place.run(&["--policy", policy, "plugin", "add", source, "--grant", "none"]);
    let why = "error: cannot fetch `git+https://example.invalid/x@v1`: the host policy gives commands no network\n";
    let hint = "\nhint: `sandbox.exec.network` of the host policy opens it\n";
    assert_eq!((refused.code, refused.err), (2, format!("{why}{hint}")));
    // The control: what needs no network, and the same source without that policy, which is looked up.
    let local = place.run(&["--policy", policy, "plugin", "add", &place.source("@v1#acme"), "--grant", "none"]);
    assert_eq!(local.code, 0, "{local}");
    let asked = place.run(&["plugin", "show", source]);
    assert!(asked.code == 2 && !asked.err.contains("no network"), "{asked}");
}
