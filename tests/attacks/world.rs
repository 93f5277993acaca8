//! Where a case is tried: a workspace, what lies around it, two servers that may be granted and one that never is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use harness_capability::system::System;
use harness_dispatch::{Options, Project};
use harness_registry::Machine;
use tempfile::TempDir;

use crate::process::{CANARY, lingers};
use crate::server::Server;

/// The servers of a run. All three are on the loopback interface.
pub(crate) struct Servers {
    /// Two that a policy may grant.
    pub(crate) server: Server,
    pub(crate) other: Server,
    /// Nobody may ever connect to this one.
    pub(crate) trap: Server,
}

impl Servers {
    pub(crate) async fn start() -> Self {
        Self { server: Server::start().await, other: Server::start().await, trap: Server::start().await }
    }
}

/// A project that is opened once and read again for each case, so that all are tried on the same engine and the same
/// pools.
pub(crate) struct Stage {
    folder: TempDir,
    pub(crate) project: Project,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = folder();
        let work = folder.path().canonicalize().unwrap().join("work");
        fs::create_dir_all(work.join(".harness")).unwrap();
        let machine = folder.path().canonicalize().unwrap().join(MACHINE);
        write(&machine, "{}");
        // With an agent, for which there is room beside the one call: else the pools would be created again on the way.
        write(&work.join(".harness/harness.md"), "---\ndelegation: { max_concurrent: 1 }\n---\n");
        write(&work.join(".harness/agents/first.md"), "---\ndescription: The first.\n---\n# First\n");
        let options = Options {
            machine: Machine::File(machine),
            system: System::default().with_environment(),
            ..Options::default()
        };
        let project = Project::open(&work, options).unwrap();
        Self { folder, project }
    }

    pub(crate) fn world(&self, servers: &Servers) -> World {
        // What the last one began is in its audit log before that is gone.
        let _ = self.project.audited();
        World::at(self.folder.path(), servers)
    }
}

/// How many worlds there were: what holds this number was never loaded before.
static WORLDS: AtomicU64 = AtomicU64::new(0);

/// Where the host policy is, beside the workspace.
const MACHINE: &str = "machine/policy.yaml";

/// A folder with a workspace in it, and secrets around and inside.
pub(crate) struct World {
    base: PathBuf,
    /// Where nobody else has the folder: it goes with the world.
    _own: Option<TempDir>,
    _sockets: Vec<UnixListener>,
    fills: Vec<(&'static str, String)>,
    before: BTreeMap<PathBuf, String>,
}

/// What is in the workspace always. What holds the canary is protected.
const FILES: [(&str, &str); 10] = [
    ("inside.txt", "inside"),
    ("src/a.txt", "a"),
    ("docs/guide.md", "guide"),
    ("agents/team.md", CANARY),
    (".env", CANARY),
    ("src/key.pem", CANARY),
    (".git/config", "[core]\n\tbare = false\n"),
    (".git/HEAD", "ref: refs/heads/main\n"),
    (".harness/audit/old.jsonl", CANARY),
    (".harness/sessions/old.jsonl", CANARY),
];

/// What a case must leave as it is, in the workspace.
const KEPT: [&str; 10] = [
    "harness.lock",
    "harness.md",
    "harness.yaml",
    "agents",
    ".env",
    "src/key.pem",
    ".git",
    ".harness/tools",
    ".harness/hooks",
    ".harness/sessions",
];

/// Removes a folder with all that is in it, also what a case closed to its own user.
fn remove(folder: &Path) {
    fn open(folder: &Path) {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        entries.filter(|entry| entry.file_type().unwrap().is_dir()).for_each(|entry| open(&entry.path()));
    }
    if fs::remove_dir_all(folder).is_err() {
        open(folder);
        fs::remove_dir_all(folder).unwrap();
    }
}

impl World {
    /// A world in a folder of its own.
    pub(crate) fn new(servers: &Servers) -> Self {
        let own = folder();
        let mut world = Self::at(own.path(), servers);
        world._own = Some(own);
        world
    }

    /// A world with what every case has, in a folder that was another's before.
    pub(crate) fn at(base: &Path, servers: &Servers) -> Self {
        let base = base.canonicalize().unwrap();
        for entry in fs::read_dir(&base).unwrap() {
            remove(&entry.unwrap().path());
        }
        let at = |path: &str| base.join(path);
        for (path, text) in FILES {
            write(&at("work").join(path), text);
        }
        write(&at(MACHINE), "{}");
        write(&at("outside/canary.txt"), CANARY);
        write(&at("outside/folder/canary.txt"), CANARY);
        write(&at("work-secret/canary.txt"), CANARY);
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let port = |address: SocketAddr| address.port().to_string();
        let fills = vec![
            ("{work}", text(at("work"))),
            ("{outside}", text(at("outside"))),
            ("{beside}", text(at("work-secret"))),
            ("{machine}", text(at(MACHINE))),
            ("{marker}", text(at("outside/marker"))),
            ("{server}", servers.server.address.to_string()),
            ("{server_port}", port(servers.server.address)),
            ("{other}", servers.other.address.to_string()),
            ("{other_port}", port(servers.other.address)),
            ("{trap}", servers.trap.address.to_string()),
            ("{trap_port}", port(servers.trap.address)),
            ("{pid}", std::process::id().to_string()),
            ("{lingers}", lingers()),
            ("{fresh}", WORLDS.fetch_add(1, Ordering::Relaxed).to_string()),
        ];
        Self { base, _own: None, _sockets: Vec::new(), fills, before: BTreeMap::new() }
    }

    /// The workspace, which is the project's folder too.
    pub(crate) fn work(&self) -> PathBuf {
        self.base.join("work")
    }

    /// The policy of the machine that it is on.
    pub(crate) fn machine(&self) -> PathBuf {
        self.base.join(MACHINE)
    }

    /// A text with its places filled in.
    pub(crate) fn filled(&self, text: &str, each: &str) -> String {
        let text = text.replace("{each}", each);
        self.fills.iter().fold(text, |text, (name, value)| text.replace(name, value))
    }

    /// Adds one thing, as a case words it: what it is, where, and more.
    pub(crate) fn add(&mut self, thing: &[String]) {
        let thing: Vec<&str> = thing.iter().map(String::as_str).collect();
        let at = |path: &str| {
            let path = self.work().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        match thing.as_slice() {
            ["file", path, text] => fs::write(at(path), text).unwrap(),
            ["filled", path, bytes] => fs::write(at(path), "x".repeat(bytes.parse().unwrap())).unwrap(),
            ["padded", path, text, bytes] => {
                fs::write(at(path), text.replace('…', &"x".repeat(bytes.parse().unwrap()))).unwrap();
            }
            ["bytes", path, hex] => {
                let bytes = hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap());
                fs::write(at(path), bytes.collect::<Vec<_>>()).unwrap();
            }
            // A name that is not text, by its bytes.
            ["named", folder, hex] => {
                let bytes = hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
                let name = OsString::from_vec(bytes);
                fs::create_dir_all(at(folder)).unwrap();
                fs::write(at(folder).join(name), "odd").unwrap();
            }
            ["program", path, text] => {
                fs::write(at(path), text).unwrap();
                fs::set_permissions(at(path), fs::Permissions::from_mode(0o755)).unwrap();
            }
            ["git", words @ ..] => {
                let mut git = Command::new("git");
                git.args(words).current_dir(self.work()).stdin(Stdio::null());
                let ran = git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
                assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            }
            // What the operator has done with the program before.
            ["harness", words @ ..] => {
                let mut harness = Command::new(env!("CARGO_BIN_EXE_harness"));
                let ran = harness.args(words).current_dir(self.work()).stdin(Stdio::null()).output().unwrap();
                assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            }
            ["mode", path, mode] => {
                let mode = u32::from_str_radix(mode, 8).unwrap();
                fs::set_permissions(at(path), fs::Permissions::from_mode(mode)).unwrap();
            }
            ["folder", path] => fs::create_dir_all(at(path)).unwrap(),
            ["link", path, target] => symlink(target, at(path)).unwrap(),
            ["hard", path, target] => fs::hard_link(target, at(path)).unwrap(),
            ["fifo", path] => {
                use rustix::fs::{CWD, FileType, Mode, mknodat};
                mknodat(CWD, at(path), FileType::Fifo, Mode::from(0o600), 0).unwrap();
            }
            ["socket", path] => {
                // A socket's whole path may have 108 bytes.
                let socket = UnixListener::bind(at(path)).unwrap();
                self._sockets.push(socket);
            }
            ["sparse", path, bytes] => {
                fs::File::create(at(path)).unwrap().set_len(bytes.parse().unwrap()).unwrap();
            }
            ["many", folder, count] => {
                fs::create_dir_all(at(folder)).unwrap();
                for n in 0..count.parse::<u32>().unwrap() {
                    fs::File::create(at(folder).join(format!("f{n:06}"))).unwrap();
                }
            }
            ["deep", folder, levels] => {
                let levels = vec!["d"; levels.parse().unwrap()].join("/");
                fs::create_dir_all(at(folder).join(levels)).unwrap();
            }
            ["links", path, count, target] => {
                let count: u32 = count.parse().unwrap();
                for n in 0..count {
                    let next = if n + 1 == count { (*target).to_owned() } else { format!("{path}{}", n + 1) };
                    symlink(next, at(&format!("{path}{n}"))).unwrap();
                }
            }
            // For controls: without what the case has put there.
            ["gone", path] => {
                let path = at(path);
                let _ = fs::remove_file(&path);
                let _ = fs::remove_dir_all(&path);
            }
            // Links that are artifacts by their names, all to one file.
            ["artifacts", folder, count, target] => {
                for n in 0..count.parse::<u32>().unwrap() {
                    symlink(target, at(&format!("{folder}/n{n:05}.md"))).unwrap();
                }
            }
            // A link that goes in and out of folders before it arrives.
            ["around", path, times, target] => {
                let way = "d/d/d/../../../".repeat(times.parse().unwrap());
                symlink(format!("{way}{target}"), at(path)).unwrap();
            }
            other => panic!("{other:?} is nothing that a world can hold"),
        }
    }

    /// Remembers what must not change.
    pub(crate) fn seal(&mut self) {
        self.before = self.sealed();
    }

    /// What has changed that must not have.
    pub(crate) fn broken(&self) -> Vec<String> {
        let after = self.sealed();
        let mut broken = Vec::new();
        for path in self.before.keys().chain(after.keys()).collect::<std::collections::BTreeSet<_>>() {
            let (before, after) = (self.before.get(path), after.get(path));
            if before != after {
                broken.push(format!("ESCAPE: {} was {before:?} and is {after:?}", path.display()));
            }
        }
        let mut left = Vec::new();
        walk(&self.work(), &mut |path| {
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".harness-tmp-")) {
                left.push(format!("{} was left behind", path.display()));
            }
        });
        broken.extend(left);
        broken
    }

    fn sealed(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        let base = &self.base;
        let kept = KEPT.iter().map(|path| self.work().join(path));
        for root in kept.chain([base.join("outside"), base.join("work-secret"), base.join("machine")]) {
            walk(&root, &mut |path| {
                let Ok(metadata) = fs::symlink_metadata(path) else { return };
                let content = if metadata.is_file() { fs::read(path).unwrap_or_default() } else { Vec::new() };
                let facts = (metadata.mode(), metadata.nlink(), metadata.mtime_nsec());
                // A folder's own times change when a link in it is read by nobody at all on some file systems.
                let facts = if metadata.is_dir() { (facts.0, 0, 0) } else { facts };
                found.insert(path.to_owned(), format!("{facts:?} {:?}", String::from_utf8_lossy(&content)));
            });
        }
        found
    }
}

/// In memory where the machine has a folder for that: what is tried is not the disk, and a hundred thousand files are made
/// there in a moment.
pub(crate) fn folder() -> TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix("attack-");
    builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).unwrap()
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Everything at and below a path, links not followed.
fn walk(path: &Path, see: &mut dyn FnMut(&Path)) {
    see(path);
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        for entry in fs::read_dir(path).into_iter().flatten().filter_map(Result::ok) {
            walk(&entry.path(), see);
        }
    }
}
