//! What plugins cost: from `harness plugin add` to the first call of a tool, for each kind of source, and what verifying a
//! plugin adds to loading a project.
//!
//! `add` stands beside two starts of the program that do nothing, and beside reading, hashing and writing the same files. A
//! load stands beside reading and hashing the same 100 files, and beside the same load without a lock.
//!
//! Prints tables, and writes `target/bench/plugins.json`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement ends where something fails"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness_bench::Samples;
use harness_plugin::archive::pack;
use harness_plugin::content::Content;
use harness_registry::{Host, Machine, Registry};
use harness_sys::digest::digest_of;
use harness_testing::server::{Server, Step, head};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Files of the plugin that is loaded: with `plugin.md`, a hundred.
const TOOLS: usize = 99;
const PLUGIN: &str = "---\nname: acme\nversion: 1.2.0\ndescription: Searches the archive.\n---\n";
const TOOL: &str = "---\nscript: |\n  def run(args):\n      return 'theirs'\n---\nReads the archive.\n";
const ROUNDS: usize = 20;

fn main() {
    let result = json!({
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "add": add(),
        "load": load(),
    });
    let out = harness_bench::target().unwrap().join("bench");
    std::fs::create_dir_all(&out).unwrap();
    std::fs::write(out.join("plugins.json"), format!("{result:#}\n")).unwrap();
    println!("\nwritten: {}", out.join("plugins.json").display());
}

/// The rows of a table, with the median of the first as the floor.
fn table(title: &str, rows: &[Samples]) -> Value {
    let floor = rows.first().map_or(f64::NAN, Samples::median);
    println!("{title:<48} {:>10} {:>10} {:>8}", "p50 µs", "p99 µs", "floors");
    for row in rows {
        println!("{}", row.row(floor));
    }
    println!();
    rows.iter().map(|row| row.json(floor)).collect()
}

fn write(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The program, which cargo builds beside the measurements.
fn harness() -> PathBuf {
    let path = harness_bench::target().unwrap().join("release/harness");
    assert!(path.exists(), "build it first: cargo build --release --locked");
    path
}

/// Runs the program in a project of its own, beside which its cache is: nothing of the machine has a part.
fn run(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new(harness());
    command.args(arguments).current_dir(folder).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    let beside = folder.parent().unwrap();
    command.env("HOME", beside).env("XDG_CACHE_HOME", beside.join("cache")).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn git(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b.c"]).args(arguments).current_dir(folder);
    assert!(command.stdout(Stdio::null()).status().unwrap().success(), "{arguments:?}");
}

/// A folder with an empty project, which trusts sources at private addresses.
struct Room {
    project: PathBuf,
    cache: PathBuf,
    _folder: TempDir,
}

fn project(sources: &[String]) -> Room {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("project");
    let trusted: String =
        sources.iter().map(|source| format!("  - {{ source: \"{source}\", private: true }}\n")).collect();
    let trusted = if trusted.is_empty() { trusted } else { format!("trusted_sources:\n{trusted}") };
    write(&project, ".harness/harness.md", &format!("---\n{trusted}---\n"));
    Room { project, cache: folder.path().join("cache"), _folder: folder }
}

/// From `add` to the first call.
fn add() -> Value {
    let origin = tempfile::tempdir().unwrap();
    let plugin = origin.path().join("acme");
    write(&plugin, "plugin.md", PLUGIN);
    write(&plugin, "tools/theirs.md", TOOL);
    git(origin.path(), &["init", "--quiet", "--initial-branch", "main"]);
    git(origin.path(), &["add", "."]);
    git(origin.path(), &["commit", "--quiet", "--message", "x"]);
    let packed = pack(&Content::read(&plugin).unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let registry = runtime.block_on(registry(packed));
    let sources = [
        plugin.display().to_string(),
        format!("git+file://{}@main#acme", origin.path().display()),
        format!("oci://{}/acme:1", registry.address()),
    ];
    let added = |source: &str| {
        let project = project(&sources);
        run(&project.project, &["plugin", "add", source, "--grant", "none"]);
        run(&project.project, &["call", "theirs"]);
    };
    let files = std::cell::Cell::new(0_usize);
    let copied = || {
        let scratch = tempfile::tempdir().unwrap();
        for path in ["plugin.md", "tools/theirs.md"] {
            let text = std::fs::read(plugin.join(path)).unwrap();
            files.set(files.get() + digest_of(&text).len());
            let to = scratch.path().join(path);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::write(to, text).unwrap();
        }
    };
    let [of_folder, of_git, of_registry] = &sources;
    let rows = Samples::take_in_turn(
        &mut [
            ("floor: two starts that do nothing", &mut || {
                run(origin.path(), &["--version"]);
                run(origin.path(), &["--version"]);
            }),
            ("floor: its files read, hashed and written", &mut || copied()),
            ("from a folder to the first call", &mut || added(of_folder)),
            ("from a git repository to the first call", &mut || added(of_git)),
            ("from a registry to the first call", &mut || added(of_registry)),
        ],
        ROUNDS,
        1,
    );
    table("add", &rows)
}

/// A registry on the loopback interface that has one plugin.
async fn registry(packed: Vec<u8>) -> Server {
    let layer = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "digest": digest_of(bytes), "size": bytes.len()});
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.harness.plugin.v1",
        "config": layer("application/vnd.oci.empty.v1+json", b"{}"),
        "layers": [layer("application/vnd.harness.plugin.v1.tar", &packed)],
    });
    let manifest = manifest.to_string().into_bytes();
    let blob = format!("/v2/acme/blobs/{}", digest_of(&packed));
    Server::new(move |request, _| {
        let body = match request.path() {
            path if path == blob => &packed,
            path if path.starts_with("/v2/acme/manifests/") => &manifest,
            _ => return vec![head("404 Not Found", "text/plain", "")],
        };
        vec![head("200 OK", "application/octet-stream", ""), Step::Send(body.clone())]
    })
    .await
}

/// What verifying a plugin of a hundred files adds to loading the project.
fn load() -> Value {
    let unverified = project(&[]);
    let whole = |folder: &Path| {
        write(folder, "plugin.md", PLUGIN);
        for number in 0..TOOLS {
            write(folder, &format!("tools/theirs_{number}.md"), TOOL);
        }
    };
    whole(&unverified.project.join(".harness/plugins/acme"));
    let [vendored, cached] = [&["--vendor"][..], &[]].map(|more| {
        let project = project(&[]);
        let beside = project.project.join("acme");
        whole(&beside);
        run(&project.project, &[&["plugin", "add", "./acme", "--grant", "none"], more].concat());
        std::fs::remove_dir_all(&beside).unwrap();
        project
    });
    let loaded = |room: &Room| {
        let plugins = room.cache.join("harness/plugins");
        let registry = Registry::load_within(&room.project, Host::new(&Machine::None, Some(plugins)));
        assert_eq!((registry.tools().len(), registry.diagnostics().has_errors()), (TOOLS, false));
    };
    let files: Vec<PathBuf> = {
        let tools = unverified.project.join(".harness/plugins/acme/tools");
        let all = std::fs::read_dir(tools).unwrap().map(|entry| entry.unwrap().path());
        all.chain([unverified.project.join(".harness/plugins/acme/plugin.md")]).collect()
    };
    let rows = Samples::take_in_turn(
        &mut [
            ("floor: 100 files read and hashed", &mut || {
                assert!(files.iter().all(|file| digest_of(&std::fs::read(file).unwrap()).len() > 64));
            }),
            ("a plugin of 100 files, not verified", &mut || loaded(&unverified)),
            ("the same, verified, in the project", &mut || loaded(&vendored)),
            ("the same, verified, in the cache", &mut || loaded(&cached)),
        ],
        ROUNDS,
        10,
    );
    let added = |row: usize| {
        let of = |row: usize| rows.get(row).map_or(f64::NAN, Samples::median);
        of(row) - of(1)
    };
    let value = table("load", &rows);
    println!("verifying adds {:.2} ms in the project, {:.2} ms in the cache", added(2) / 1e3, added(3) / 1e3);
    json!({"rows": value, "added_us": {"project": added(2), "cache": added(3)}})
}
