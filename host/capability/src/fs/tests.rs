//! What each function does for a script that means well, and each refusal beside the same request granted.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::*;
use harness_policy::layer::{Layer, Origin, Scope};
use harness_policy::limits::{LimitKey, LimitRules};
use harness_policy::path::{FsRules, PathPattern};
use harness_testing::skip::{Need, skipped};

/// A workspace `app` in a folder of its own, with a folder `outside` beside it that nothing may reach.
pub(super) struct Bench {
    pub(super) home: tempfile::TempDir,
    pub(super) workspace: Workspace,
}

impl Bench {
    /// With these files in the workspace. A name that ends in `/` is a folder.
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("app")).unwrap();
        fs::create_dir(home.path().join("outside")).unwrap();
        fs::write(home.path().join("outside/secret"), "secret").unwrap();
        let workspace = Workspace::open(&home.path().join("app")).unwrap();
        let bench = Self { home, workspace };
        for (name, content) in files {
            let path = bench.at(name);
            fs::create_dir_all(if name.ends_with('/') { &path } else { path.parent().unwrap() }).unwrap();
            if !name.ends_with('/') {
                fs::write(path, content).unwrap();
            }
        }
        bench
    }

    /// Where a path of the workspace is for the system.
    pub(super) fn at(&self, path: &str) -> std::path::PathBuf {
        self.home.path().join("app").join(path)
    }

    pub(super) fn outside(&self, path: &str) -> std::path::PathBuf {
        self.home.path().join("outside").join(path)
    }

    pub(super) fn link(&self, name: &str, target: impl AsRef<Path>) {
        symlink(target, self.at(name)).unwrap();
    }

    /// The answer of a function that answers with the absolute path.
    pub(super) fn answer(&self, path: &str) -> Result<String, Error> {
        Ok(format!("{}/{path}", self.workspace.absolute()))
    }

    /// All there is in the workspace, with the content of files.
    pub(super) fn everything(&self) -> Vec<(String, String)> {
        fn walk(folder: &Path, prefix: &str, found: &mut Vec<(String, String)>) {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
                if entry.file_type().unwrap().is_dir() {
                    found.push((format!("{name}/"), String::new()));
                    walk(&entry.path(), &format!("{name}/"), found);
                } else {
                    found.push((name, fs::read_to_string(entry.path()).unwrap_or_default()));
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.at(""), "", &mut found);
        found.sort();
        found
    }
}

pub(super) fn grant(read: &[&str], write: &[&str], protect: &[&str], file_bytes: Option<u64>) -> Grant {
    let patterns = |texts: &[&str]| texts.iter().map(|text| PathPattern::parse(text).unwrap()).collect();
    Grant::new(vec![Layer {
        origin: Origin::new(".harness/harness.md", Scope::Project),
        fs: Some(FsRules {
            read: patterns(read),
            write: patterns(write),
            protect: patterns(protect),
            ..FsRules::default()
        }),
        network: None,
        exec: None,
        env: None,
        services: None,
        secrets: None,
        limits: LimitRules::default().with(LimitKey::FileBytes, file_bytes),
    }])
}

/// Everything that a policy can give.
pub(super) fn all() -> Grant {
    grant(&["."], &["."], &[], None)
}

pub(super) fn refused<T>(reason: &str, hint: &str) -> Result<T, Error> {
    Err(Error::AccessDenied(Denial { reason: reason.to_owned(), hint: hint.to_owned() }))
}

pub(super) fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, content)| ((*name).to_owned(), (*content).to_owned())).collect()
}

pub(super) fn error<T>(make: fn(String) -> Error, text: &str) -> Result<T, Error> {
    Err(make(text.to_owned()))
}

#[test]
fn a_workspace_is_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&Bench::new(&[]).workspace);
}

#[test]
fn the_root_of_the_system_is_no_workspace() {
    assert_eq!(Workspace::open(Path::new("/")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(Workspace::open(Path::new("/tmp/..")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn read() {
    let bench = Bench::new(&[("a/b.txt", "héllo"), ("empty", ""), ("folder/", "")]);
    fs::write(bench.at("binary"), [0xff, 0xfe]).unwrap();
    let read = |path: &str| bench.workspace.read(&all(), path);
    assert_eq!(read("a/b.txt"), Ok("héllo".to_owned()));
    assert_eq!(read("./a//b.txt"), Ok("héllo".to_owned()));
    assert_eq!(read(&format!("{}/a/b.txt", bench.workspace.absolute())), Ok("héllo".to_owned()));
    assert_eq!(read("empty"), Ok(String::new()));
    assert_eq!(read("binary"), error(Error::NotText, "binary"));
    assert_eq!(read("nothing"), error(Error::NotFound, "nothing"));
    assert_eq!(read("no/thing"), error(Error::NotFound, "no/thing"));
    assert_eq!(read("folder"), error(Error::NotAFile, "directory"));
    assert_eq!(read("."), error(Error::NotAFile, "directory"));
    assert_eq!(read("empty/x"), error(Error::NotADirectory, "empty/x"));
    assert_eq!(read(""), error(Error::Invalid, "a path may not be empty"));
}

#[test]
fn reading_needs_its_grant() {
    let bench = Bench::new(&[("src/a", "1"), ("out/a", "2")]);
    let some = grant(&["src"], &["."], &[], None);
    assert_eq!(bench.workspace.read(&some, "src/a"), Ok("1".to_owned()));
    // What is there and what is not look the same.
    for path in ["out/a", "out/b", "out/a/b"] {
        let reason =
            format!("reading `{path}` is not granted: nothing in `sandbox.fs.read` in `.harness/harness.md` covers it");
        let hint = format!("add `{path}` to `sandbox.fs.read` in `.harness/harness.md`");
        assert_eq!(bench.workspace.read(&some, path), refused(&reason, &hint));
        assert_eq!(bench.workspace.stat(&some, path), refused(&reason, &hint));
        assert_eq!(bench.workspace.list(&some, path), refused(&reason, &hint));
        assert_eq!(bench.workspace.exists(&some, path), Ok(false));
    }
    assert_eq!(bench.workspace.exists(&some, "src/a"), Ok(true));
    assert_eq!(bench.workspace.exists(&some, "src/b"), Ok(false));
}

#[test]
fn a_file_over_the_cap_is_not_read() {
    let bench = Bench::new(&[("eight", "12345678")]);
    assert_eq!(bench.workspace.read(&grant(&["."], &[], &[], Some(8)), "eight"), Ok("12345678".to_owned()));
    assert_eq!(bench.workspace.read(&grant(&["."], &[], &[], Some(7)), "eight"), Err(Error::TooLarge(7)));
    // A sparse file is as large as it says.
    fs::File::create(bench.at("sparse")).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(bench.workspace.read(&all(), "sparse"), Err(Error::TooLarge(16 << 20)));
}

/// It is not even begun to be read: of this file of the kernel's, which says that it has 4,096 bytes, none can be.
#[test]
fn a_file_that_says_that_it_is_over_the_cap_is_not_touched() {
    let folder = Path::new("/sys/devices/virtual/net/lo");
    let speed = folder.join("speed");
    if skipped(Need::SystemFile, speed.exists() && fs::read(&speed).is_err()) {
        return;
    }
    let workspace = Workspace::open(folder).unwrap();
    let read = |cap| workspace.read(&grant(&["."], &[], &[], Some(cap)), "speed");
    assert_eq!(read(4_095), Err(Error::TooLarge(4_095)));
    assert!(matches!(read(4_096), Err(Error::Io(_))));
}

/// As one that grows while it is read: this one of the kernel's says that it is empty, and has megabytes.
#[test]
fn of_a_file_that_has_more_than_it_says_no_more_than_the_cap_is_read() {
    let taken = || {
        let told = fs::read_to_string("/proc/thread-self/io").ok()?;
        told.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse::<u64>().ok()
    };
    let all = fs::read("/proc/kallsyms");
    if skipped(Need::SystemFile, all.is_ok() && taken().is_some()) {
        return;
    }
    let (all, before) = (all.unwrap(), taken().unwrap());
    let workspace = Workspace::open(Path::new("/proc")).unwrap();
    let read = workspace.read(&grant(&["."], &[], &[], Some(1_000)), "kallsyms");
    assert_eq!(read, Err(Error::TooLarge(1_000)));
    let taken = taken().unwrap() - before;
    assert!(taken < 10_000, "{taken} of {} bytes", all.len());
}

#[test]
fn write_makes_replaces_and_keeps_the_mode() {
    let bench = Bench::new(&[("script", "old")]);
    // But not that it runs as its owner.
    fs::set_permissions(bench.at("script"), fs::Permissions::from_mode(0o6750)).unwrap();
    assert_eq!(bench.workspace.write(&all(), "script", "new"), bench.answer("script"));
    assert_eq!(fs::metadata(bench.at("script")).unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(bench.workspace.write(&all(), "deep/er/a", "1"), bench.answer("deep/er/a"));
    assert_eq!(bench.workspace.write(&all(), "deep/../b", "2"), bench.answer("b"));
    let expected = [("b", "2"), ("deep/", ""), ("deep/er/", ""), ("deep/er/a", "1"), ("script", "new")];
    assert_eq!(bench.everything(), owned(&expected));
    assert_eq!(bench.workspace.write(&all(), "deep", ""), error(Error::NotAFile, "directory"));
    assert_eq!(bench.workspace.write(&all(), ".", ""), error(Error::NotAFile, "directory"));
    assert_eq!(bench.workspace.write(&all(), "b/c", ""), error(Error::NotADirectory, "b/c"));
    assert_eq!(bench.everything(), owned(&expected));
}

#[test]
fn a_write_that_fails_leaves_the_old_content() {
    let bench = Bench::new(&[("a", "old")]);
    let small = grant(&["."], &["."], &[], Some(4));
    assert_eq!(bench.workspace.write(&small, "a", "12345"), Err(Error::TooLarge(4)));
    assert_eq!(bench.workspace.write(&small, "new/a", "12345"), Err(Error::TooLarge(4)));
    assert_eq!(bench.everything(), owned(&[("a", "old")]));
    assert_eq!(bench.workspace.write(&small, "a", "1234"), bench.answer("a"));
    assert_eq!(bench.everything(), owned(&[("a", "1234")]));
}

#[test]
fn a_reader_of_the_old_file_keeps_it() {
    let bench = Bench::new(&[("a", "old")]);
    let mut reader = fs::File::open(bench.at("a")).unwrap();
    bench.workspace.write(&all(), "a", "new content").unwrap();
    let mut content = String::new();
    reader.read_to_string(&mut content).unwrap();
    assert_eq!(content, "old");
}

#[test]
fn writing_needs_its_grant() {
    let bench = Bench::new(&[("src/a", "1"), ("docs/a", "2"), ("docs/empty/", "")]);
    let some = grant(&["."], &["src"], &[], None);
    let before = bench.everything();
    let refusal = |path: &str| {
        let reason = format!(
            "writing `{path}` is not granted: nothing in `sandbox.fs.write` in `.harness/harness.md` covers it"
        );
        refused(&reason, &format!("add `{path}` to `sandbox.fs.write` in `.harness/harness.md`"))
    };
    assert_eq!(bench.workspace.write(&some, "docs/a", "x"), refusal("docs/a"));
    assert_eq!(bench.workspace.append(&some, "docs/a", "x"), refusal("docs/a"));
    assert_eq!(bench.workspace.remove(&some, "docs/a"), refusal("docs/a"));
    assert_eq!(bench.workspace.remove(&some, "docs/empty"), refusal("docs/empty"));
    assert_eq!(bench.workspace.mkdir(&some, "docs/new"), refusal("docs/new"));
    assert_eq!(bench.workspace.copy(&some, "src/a", "docs/b"), refusal("docs/b"));
    assert_eq!(bench.workspace.rename(&some, "src/a", "docs/b"), refusal("docs/b"));
    assert_eq!(bench.workspace.rename(&some, "docs/a", "src/b"), refusal("docs/a"));
    assert_eq!(bench.everything(), before);
    assert_eq!(bench.workspace.append(&some, "src/a", "x"), bench.answer("src/a"));
    assert_eq!(bench.workspace.copy(&some, "docs/a", "src/b"), bench.answer("src/b"));
    assert_eq!(bench.workspace.rename(&some, "src/b", "src/c"), bench.answer("src/c"));
    assert_eq!(bench.workspace.remove(&some, "src/a"), bench.answer("src/a"));
    assert_eq!(bench.workspace.mkdir(&some, "src/new"), bench.answer("src/new"));
    assert_eq!(
        bench.everything(),
        owned(&[("docs/", ""), ("docs/a", "2"), ("docs/empty/", ""), ("src/", ""), ("src/c", "2"), ("src/new/", "")])
    );
}

#[test]
fn what_may_only_be_written_cannot_be_moved_to_where_it_can_be_read() {
    let bench = Bench::new(&[("in/a", "1")]);
    let blind = grant(&["out"], &["."], &[], None);
    assert!(matches!(bench.workspace.rename(&blind, "in/a", "out/a"), Err(Error::AccessDenied(_))));
    assert!(matches!(bench.workspace.copy(&blind, "in/a", "out/a"), Err(Error::AccessDenied(_))));
    assert_eq!(bench.workspace.rename(&all(), "in/a", "out/a"), bench.answer("out/a"));
}

#[test]
fn append() {
    let bench = Bench::new(&[("a", "1"), ("folder/", "")]);
    assert_eq!(bench.workspace.append(&all(), "a", "2"), bench.answer("a"));
    assert_eq!(bench.workspace.append(&all(), "b", "3"), bench.answer("b"));
    assert_eq!(bench.workspace.append(&all(), "no/c", "4"), error(Error::NotFound, "no"));
    assert_eq!(bench.workspace.append(&all(), "folder", "4"), error(Error::NotAFile, "directory"));
    assert_eq!(bench.workspace.append(&grant(&[], &["."], &[], Some(3)), "a", "34"), Err(Error::TooLarge(3)));
    assert_eq!(bench.workspace.append(&grant(&[], &["."], &[], Some(3)), "c", "1234"), Err(Error::TooLarge(3)));
    assert_eq!(bench.workspace.append(&grant(&[], &["."], &[], Some(3)), "a", "3"), bench.answer("a"));
    assert_eq!(bench.everything(), owned(&[("a", "123"), ("b", "3"), ("folder/", "")]));
}

/// On a disk that is full, which for a process is one where no file of its may get larger.
#[test]
fn an_append_that_fails_leaves_the_file_as_it_was() {
    const FOLDER: &str = "HARNESS_TEST_APPEND";
    if let Ok(folder) = std::env::var(FOLDER) {
        let workspace = Workspace::open(std::path::Path::new(&folder)).unwrap();
        for path in ["there", "new"] {
            let failed = workspace.append(&all(), path, &"x".repeat(1 << 20)).unwrap_err();
            assert_eq!(failed, Error::Io("file too large".to_owned()));
        }
        assert!(workspace.append(&all(), "there", " and more").is_ok());
        return;
    }
    let bench = Bench::new(&[("there", "old")]);
    let limited = "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"";
    let name = "fs::tests::an_append_that_fails_leaves_the_file_as_it_was";
    let mut child = std::process::Command::new("sh");
    child.args(["-c", limited]).arg(std::env::current_exe().unwrap()).args([name, "--exact"]);
    let output = child.env(FOLDER, bench.at("")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(bench.at("there")).unwrap(), "old and more");
    let all: Vec<_> = fs::read_dir(bench.at("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(all, ["there"]);
}

#[test]
fn stat() {
    let bench = Bench::new(&[("a/b", "12345")]);
    fs::set_permissions(bench.at("a/b"), fs::Permissions::from_mode(0o640)).unwrap();
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(bench.at("a/b")).unwrap().set_modified(modified).unwrap();
    bench.link("link", "a/b");
    let facts =
        |name: &str| Facts { name: name.to_owned(), size: 5, is_dir: false, mode: 0o640, modified: 1_000_000_000 };
    assert_eq!(bench.workspace.stat(&all(), "a/b"), Ok(facts("b")));
    assert_eq!(bench.workspace.stat(&all(), "link"), Ok(facts("link")));
    let shown = |path: &str| bench.workspace.stat(&all(), path).map(|facts| (facts.name, facts.is_dir));
    assert_eq!(shown("a/"), Ok(("a".to_owned(), true)));
    assert_eq!(shown("."), Ok((".".to_owned(), true)));
    assert_eq!(shown("c"), error(Error::NotFound, "c"));
}

#[test]
fn remove() {
    let bench = Bench::new(&[("a", ""), ("full/b", ""), ("empty/", "")]);
    bench.link("link", "full/b");
    bench.link("dangling", "nowhere");
    let remove = |path: &str| bench.workspace.remove(&all(), path);
    assert_eq!(remove("full"), error(Error::NotEmpty, "full"));
    assert_eq!(remove("."), refused("the workspace itself may not be removed", ""));
    assert_eq!(remove("c"), error(Error::NotFound, "c"));
    for path in ["a", "empty", "link", "dangling"] {
        assert_eq!(remove(path), bench.answer(path));
    }
    assert_eq!(bench.everything(), owned(&[("full/", ""), ("full/b", "")]));
}

#[test]
fn mkdir() {
    let bench = Bench::new(&[("a", "")]);
    for path in ["b/c/d", "b/c", "b/e"] {
        assert_eq!(bench.workspace.mkdir(&all(), path), bench.answer(path));
    }
    assert_eq!(bench.workspace.mkdir(&all(), "."), Ok(bench.workspace.absolute().to_owned()));
    assert_eq!(bench.workspace.mkdir(&all(), "a"), error(Error::AlreadyExists, "a"));
    assert_eq!(bench.workspace.mkdir(&all(), "a/b"), error(Error::NotADirectory, "a/b"));
    assert_eq!(bench.everything(), owned(&[("a", ""), ("b/", ""), ("b/c/", ""), ("b/c/d/", ""), ("b/e/", "")]));
}
