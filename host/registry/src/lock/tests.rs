use std::path::Path;

use super::*;

const TOOL: &str = "---\nparameters:\n  path: { type: string, required: true, description: A file. }\n  deep: { type: boolean }\nscript: |\n  def run(args):\n      return 1\n---\n# reads\n\nReads a file.\nAnd no more.\n";
const HOOK: &str =
    "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      return allow()\n---\nWatches.\n";
const POLICY: &str = "---\nsandbox: { fs: { read: [docs] } }\ntools:\n  - { name: inner, description: Is inline., script: \"def run(args): pass\" }\n---\nprose\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.write(".harness/tools/reads.md", TOOL);
        folder.write(".harness/hooks/watch.md", HOOK);
        folder.write(".harness/harness.md", POLICY);
        folder
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn lock(&self) -> Lock {
        Lock::of(&Registry::load_unlocked(self.root(), &crate::Machine::None))
    }

    /// What is wrong with it, as a person reads it.
    fn wrong(&self) -> String {
        let registry = Registry::load(self.root());
        assert_eq!(registry.policy().is_none(), registry.diagnostics().has_errors());
        registry.diagnostics().iter().map(|one| one.render(None, false)).collect::<Vec<_>>().join("\n\n")
    }
}

#[test]
fn the_file_is_always_the_same_and_reads_back() {
    let folder = Folder::new();
    let lock = folder.lock();
    let text = lock.text().unwrap();
    insta::assert_snapshot!(text, @r#"
    # The artifacts of this project as they were reviewed. `harness lock` writes this file, and artifacts that differ from it
    # are rejected. Review a change before you lock it.
    version = 1

    [[artifact]]
    kind = "tool"
    name = "inner"
    path = ".harness/harness.md"
    sha256 = "sha256:f8deb4ea57146c189e93e1bbe3d3504b44588f7995e1d3c94b6f070ed12dba33"
    script = "sha256:c68a80ff8980fff26333977cd06aa529098a2dab42e7e102b3e1b43ca39ee77b"
    schema = "sha256:ab7bd4d62ff6dceead46c152b2ebb362c3ff9bd30b5e7894f5d8835830218dcb"
    description = "sha256:1520acd179012d2f07424c2b7a9f4b6deaf5b12fe7e67a51506fd4e85313d19a"

    [artifact.shown]
    description = "Is inline."

    [[artifact]]
    kind = "tool"
    name = "reads"
    path = ".harness/tools/reads.md"
    sha256 = "sha256:df1e5c3627eecb9d4c4558b2ad9b4bb7e919daa9328fe27bd12399124b9f1217"
    script = "sha256:d6dd60271a49bf956ae5fc39d310d2e9f21fe6ed5f3252837825ed4a22ac5000"
    schema = "sha256:028e10057d9d6bced14e3becf8cfafee2a78756371833ba67871c587660331f6"
    description = "sha256:e25b6a6c539c578fb0dbc01ddca10276425d3252ce3c9a6e7938c9440fba846c"

    [artifact.shown]
    parameters = [
        'path, required: {"type":"string","description":"A file."}',
        'deep, optional: {"type":"boolean"}',
    ]
    description = """
    # reads

    Reads a file.
    And no more."""

    [[artifact]]
    kind = "hook"
    name = "watch"
    path = ".harness/hooks/watch.md"
    sha256 = "sha256:54283856fd4aec275ee8304831affb057f6fa5d33d2442c38f2c96ed7d71589c"
    script = "sha256:75195335a50d72c0430662b81bea4459cfc99056deed389c76dd40618aa98c0a"
    description = "sha256:8998fd252b0784472da89892232aee9824ddcec0be23c8c94e9ca17c49e1830b"

    [artifact.shown]
    description = "Watches."
    "#);
    assert_eq!(Lock::parse(&text), Ok(lock));
    folder.write("harness.lock", &text);
    assert_eq!(folder.wrong(), "");
}

#[test]
fn every_drift_is_told_at_once() {
    let folder = Folder::new();
    folder.write(".harness/tools/gone.md", TOOL);
    folder.write("harness.lock", &folder.lock().text().unwrap());
    std::fs::remove_file(folder.root().join(".harness/tools/gone.md")).unwrap();
    let changed = TOOL
        .replace("And no more.", "And sends it to me.")
        .replace("boolean", "string")
        .replace("return 1", "return 2");
    folder.write(".harness/tools/reads.md", &changed);
    folder.write(".harness/hooks/watch.md", &HOOK.replace("tool.pre", "tool.post"));
    folder.write(".harness/plugins/acme/tools/new.md", TOOL);
    folder.write(".harness/harness.md", &POLICY.replace("Is inline.", "Is another."));
    insta::assert_snapshot!(folder.wrong(), @r#"
    error: the tool "gone" of `.harness/tools/gone.md` is in `harness.lock` but was removed
     |
     = hint: restore it, or remove it from the lock with `harness lock`

    error: the tool "inner" differs from `harness.lock`: its description changed
    --> .harness/harness.md:1:1
     = note: description:
             - Is inline.
             + Is another.
     = hint: restore it, or review and accept it with `harness lock`

    error: the tool "new" is not in `harness.lock`
    --> .harness/plugins/acme/tools/new.md:1:1
     = hint: review it, then accept it with `harness lock`

    error: the tool "reads" differs from `harness.lock`: its description, its parameters, its script changed
    --> .harness/tools/reads.md:1:1
     = note: parameters:
               path, required: {"type":"string","description":"A file."}
             - deep, optional: {"type":"boolean"}
             + deep, optional: {"type":"string"}
             description:
               Reads a file.
             - And no more.
             + And sends it to me.
     = hint: restore it, or review and accept it with `harness lock`

    error: the hook "watch" differs from `harness.lock`: other lines of its file changed
    --> .harness/hooks/watch.md:1:1
     = hint: restore it, or review and accept it with `harness lock`

    error: the bundle "plugins/acme" is not in `harness.lock`
    --> .harness/plugins/acme:1:1
     = hint: review it, then accept it with `harness lock`
    "#);
}

/// What is written beside an artifact in `harness.md` is not part of it, and may change.
#[test]
fn the_policy_is_not_locked() {
    let folder = Folder::new();
    folder.write("harness.lock", &folder.lock().text().unwrap());
    folder.write(".harness/harness.md", &POLICY.replace("[docs]", "[docs, src]").replace("prose", "other prose"));
    assert_eq!(folder.wrong(), "");
    folder.write(".harness/harness.md", &POLICY.replace("name: inner,", "name: inner, timeout_ms: 5,"));
    insta::assert_snapshot!(folder.wrong(), @r#"
    error: the tool "inner" differs from `harness.lock`: other lines of its file changed
    --> .harness/harness.md:1:1
     = hint: restore it, or review and accept it with `harness lock`
    "#);
}

/// The texts only inform: a lock whose texts were changed to fit decides as its digests say, and its texts are not shown.
#[test]
fn texts_that_are_not_those_of_the_digests() {
    let folder = Folder::new();
    let text = folder.lock().text().unwrap().replace("And no more.", "And sends it to me.");
    folder.write("harness.lock", &text);
    assert_eq!(folder.wrong(), "");
    folder.write(".harness/tools/reads.md", &TOOL.replace("And no more.", "And sends it to me."));
    insta::assert_snapshot!(folder.wrong(), @r#"
    error: the tool "reads" differs from `harness.lock`: its description changed
    --> .harness/tools/reads.md:1:1
     = hint: restore it, or review and accept it with `harness lock`
    "#);
}

#[test]
fn a_lock_that_cannot_be_read() {
    let folder = Folder::new();
    for (text, wrong) in [
        ("", "missing field `version`"),
        ("version = 2\n", "has the version 2, and this program reads 1"),
        ("version = 1\nextra = 1\n", "unknown field `extra`"),
        ("<<<<<<< ours\nversion = 1\n", "`harness.lock` cannot be read"),
    ] {
        folder.write("harness.lock", text);
        let found = folder.wrong();
        assert!(found.contains(wrong), "{text:?}: {found}");
    }
    let text = folder.lock().text().unwrap();
    let twice = text.replace("name = \"inner\"", "name = \"reads\"");
    folder.write("harness.lock", &twice);
    assert!(folder.wrong().contains("`harness.lock` has the tool \"reads\" twice"), "{}", folder.wrong());
    std::fs::remove_file(folder.root().join("harness.lock")).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.root().join("harness.lock")).unwrap();
    assert!(folder.wrong().contains("cannot read `harness.lock`"), "{}", folder.wrong());
}

/// Each byte of a locked server is another one: the lock cannot be read, or the server differs from what it says.
#[test]
fn no_byte_of_a_locked_server_changes_unseen() {
    let tool = serde_json::json!({
        "name": "read", "description": "Reads.", "inputSchema": {"type": "object"}, "_meta": {"a": [1, true, null]},
    });
    let (tree, before) = (format!("sha256:{}", "0a".repeat(32)), "2026-07-28T12:00:00Z".to_owned());
    let pinned = harness_artifact::pinned::Pinned {
        server: "s".to_owned(),
        endpoint: harness_artifact::pinned::PinnedEndpoint::Command {
            command: vec!["npx".to_owned(), "mcp-s@1.0.0".to_owned()],
            program: "sha256:12".to_owned(),
            packages: Some(harness_artifact::pinned::PinnedPackages::new(tree, before).unwrap()),
        },
        version: "2026-07-28".to_owned(),
        instructions: Some("Be kind.".to_owned()),
        tools: vec![harness_artifact::definition::Definition::read(tool).unwrap()],
    };
    let text = Lock::default().with_servers([LockedServer::new(pinned.clone())]).text().unwrap();
    let begins = text.find("[[server]]").unwrap();
    let same = Lock::parse(&text).unwrap();
    assert_eq!(same.server("s").unwrap().pinned, pinned);
    for at in begins..text.len() {
        for byte in [b'x', b'0', b' ', b'"', b'\n'] {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = byte;
            let changed = String::from_utf8(bytes).unwrap();
            let Ok(lock) = Lock::parse(&changed) else { continue };
            // Another name is another server, which is not locked then.
            let Some(server) = lock.server("s") else { continue };
            // What was written with other space only is the same; anything else differs from the server.
            assert!(server.pinned == pinned || !server.pinned.changes(&pinned).is_empty(), "{changed}");
        }
    }
}

#[test]
fn what_is_wrong_with_locked_packages_is_said() {
    let told = |lines: &str| {
        let text = format!("version = 1\n\n[[server]]\nname = \"s\"\n{lines}protocol = \"2026-07-28\"\n");
        Lock::parse(&text).map(drop).map_err(|wrong| wrong.message)
    };
    let tree = format!("packages = \"sha256:{}\"\n", "0a".repeat(32));
    let before = "before = \"2026-07-28T12:00:00Z\"\n";
    let stdio = "transport = \"stdio\"\ncommand = [\"npx\", \"a@1.0.0\"]\nprogram = \"sha256:12\"\n";
    assert_eq!(told(&format!("{stdio}{tree}{before}")), Ok(()));
    assert_eq!(told(stdio), Ok(()));
    let wrong = |why: &str| Err(format!("`harness.lock`: the server \"s\": {why}"));
    assert_eq!(told(&format!("{stdio}{tree}")), wrong("`packages` and `before` belong together"));
    assert_eq!(told(&format!("{stdio}{before}")), wrong("`packages` and `before` belong together"));
    let outside = "packages = \"sha256:../../tmp\"\n";
    assert_eq!(told(&format!("{stdio}{outside}{before}")), wrong("`sha256:../../tmp` is not the digest of packages"));
    let url = "transport = \"http\"\nurl = \"https://a.example/mcp\"\n";
    assert_eq!(told(&format!("{url}{tree}{before}")), wrong("one over http has a `url` alone"));
}
