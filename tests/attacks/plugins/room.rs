//! Where a case is tried: a project with a plugin in `acme/`, a cache, and the same plugin in a repository and a registry
//! that all rooms share.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use harness_plugin::archive::pack;
use harness_plugin::content::Content;
use harness_testing::server::{Server, Step, head};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::objects::{File, Repository, packed};
use crate::process::CANARY;
use crate::project::{FINE, Project, Ran};

const PLUGIN: &str = "---\nname: acme\nversion: 1.2.0\ndescription: Searches the archive.\n---\n";
const TOOL: &str = "---\nscript: |\n  def run(args):\n      return 'theirs'\n---\nReads the archive.\n";
const PACKED: &str = "application/vnd.harness.plugin.v1.tar";
/// Where the repository and the registry have the plugin.
const FOLDER: &str = "acme";
/// The packed file that a case puts together itself.
const MADE: &str = "made.tar";
/// Public keys whose signatures are in the fixtures.
const KEYS: [(&str, &str); 3] = [
    ("minisign", "RWQyUHrYd0ab27mjqZ75GRgdSpqXHVuKKq/eWWvtG2VlNaj3bNCz0hLz"),
    ("ssh", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPwYkwYU1pOyCD0FMBSQ8AAe741BsH2dfDBN0B9fHbJm"),
    ("stranger", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILqIUWVyXL4Qnw8iSZsHuOvdfbrG0L+0A7a1Gtp4SEFy"),
];
/// The line of a signature that is not covered by it begins so.
const SIGNED: &str = "sign:";

/// The answers of the registry, by path.
type Answers = Arc<Mutex<BTreeMap<String, Vec<Step>>>>;

/// What all rooms share.
#[derive(Debug)]
pub(super) struct Shared {
    repository: TempDir,
    answers: Answers,
    registry: Server,
    _runtime: Runtime,
    rooms: AtomicUsize,
}

/// A room.
pub(super) struct Room<'s> {
    shared: &'s Shared,
    project: Project,
    cache: TempDir,
    number: usize,
    fills: BTreeMap<String, String>,
    /// What is in the commit of this room's tag, where it has one.
    commit: Option<Vec<File>>,
    made: Vec<u8>,
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn layer(kind: &str, bytes: &[u8]) -> Json {
    json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()})
}

fn manifest(layers: &Json) -> String {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.harness.plugin.v1",
        "config": layer("application/vnd.oci.empty.v1+json", b"{}"),
        "layers": layers,
    })
    .to_string()
}

fn answer(bytes: &[u8]) -> Vec<Step> {
    vec![head("200 OK", "application/octet-stream", ""), Step::Send(bytes.to_vec())]
}

impl Shared {
    pub(super) fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let answers = Answers::default();
        let known = answers.clone();
        let registry = runtime.block_on(Server::new(move |request, _| {
            let known = known.lock().unwrap();
            known.get(request.path()).cloned().unwrap_or_else(|| vec![head("404 Not Found", "text/plain", "")])
        }));
        let repository = tempfile::tempdir().unwrap();
        Repository(repository.path()).git(&["init", "--quiet", "--bare"], b"");
        Self { repository, answers, registry, _runtime: runtime, rooms: AtomicUsize::new(0) }
    }
}

impl<'s> Room<'s> {
    pub(super) fn new(shared: &'s Shared, fills: [(&str, &str); 2]) -> Self {
        let number = shared.rooms.fetch_add(1, Ordering::Relaxed);
        let project = Project::new().tool("it", "", FINE).file("docs/a.md", "one").file(".env", CANARY);
        let project = project.file("acme/plugin.md", PLUGIN).file("acme/tools/theirs.md", TOOL);
        let cache = tempfile::tempdir().unwrap();
        let mut fills: BTreeMap<String, String> =
            fills.map(|(name, text)| (name.to_owned(), text.to_owned())).into_iter().collect();
        let address = shared.registry.address().to_string();
        fills.insert("registry".to_owned(), format!("oci://{address}/r{number}/acme"));
        fills.insert("address".to_owned(), address);
        fills.insert("git".to_owned(), format!("git+file://{}@r{number}#{FOLDER}", shared.repository.path().display()));
        fills.insert("repository".to_owned(), format!("git+file://{}", shared.repository.path().display()));
        fills.insert("tag".to_owned(), format!("r{number}"));
        fills.insert("trace".to_owned(), cache.path().join("trace").display().to_string());
        fills.insert("cache".to_owned(), cache.path().display().to_string());
        fills.insert("project".to_owned(), project.root().display().to_string());
        fills.insert("canary".to_owned(), CANARY.to_owned());
        fills.extend(KEYS.map(|(name, key)| (name.to_owned(), key.to_owned())));
        let mut room = Self { shared, project, cache, number, fills, commit: None, made: Vec::new() };
        room.packed();
        room
    }

    pub(super) fn policy(&self, policy: &str, machine: &str) {
        self.project.write(".harness/harness.md", &format!("---\n{}---\n", self.filled(policy)));
        if !machine.is_empty() {
            fs::write(self.cache.path().join("host.yaml"), self.filled(machine)).unwrap();
        }
    }

    /// A text of a case with what is known here: `{git}`, `{registry}`, `{kept}` and more.
    pub(super) fn filled(&self, text: &str) -> String {
        let mut text = text.to_owned();
        // What a case is tried with may hold others.
        if let Some(each) = self.fills.get("each") {
            text = text.replace("{each}", each);
        }
        for (name, value) in &self.fills {
            let mark = format!("{{{name}}}");
            if text.contains(&mark) {
                text = text.replace(&mark, value);
            }
        }
        if text.contains("{kept}") {
            text = text.replace("{kept}", self.plugins().first().map_or("", String::as_str));
        }
        if text.contains("{digest}") {
            text = text.replace("{digest}", &self.shown("digest"));
        }
        if text.contains("{review}") {
            text = text.replace("{review}", &self.shown("review"));
        }
        text
    }

    /// A digest of the plugin beside the project, as it is reviewed.
    fn shown(&self, key: &str) -> String {
        self.run("plugin show ./acme --json").json()[key].as_str().unwrap().to_owned()
    }

    /// The plugins in the cache.
    fn plugins(&self) -> Vec<String> {
        let Ok(all) = fs::read_dir(self.cache.path().join("harness/plugins")) else { return Vec::new() };
        let all = all.map(|entry| entry.unwrap());
        let all = all.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
        all.map(|entry| entry.path().display().to_string()).collect()
    }

    /// Packs the plugin beside the project, and offers it in the registry.
    fn packed(&mut self) {
        let content = Content::read(&self.project.path(FOLDER));
        let Ok(packed) = content.and_then(|content| pack(&content)) else { return };
        let layer = layer(PACKED, &packed);
        let text = manifest(&json!([layer]));
        self.fills.insert("layer".to_owned(), layer.to_string());
        self.fills.insert("packed".to_owned(), digest(&packed));
        self.fills.insert("size".to_owned(), packed.len().to_string());
        self.fills.insert("manifest".to_owned(), digest(text.as_bytes()));
        self.answer(&format!("blobs/{}", digest(&packed)), answer(&packed));
        self.tag("1", &text);
    }

    fn tag(&self, tag: &str, manifest: &str) {
        for reference in [tag, &digest(manifest.as_bytes())] {
            self.answer(&format!("manifests/{reference}"), answer(manifest.as_bytes()));
        }
    }

    fn answer(&self, path: &str, steps: Vec<Step>) {
        self.shared.answers.lock().unwrap().insert(format!("/v2/r{}/acme/{path}", self.number), steps);
    }

    /// Runs a command of the program: words with one space between them, each filled in by itself.
    pub(super) fn run(&self, line: &str) -> Ran {
        let words: Vec<String> = line.split(' ').map(|word| self.filled(word)).collect();
        let host = self.cache.path().join("host.yaml");
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        let host = host.to_str().unwrap();
        if Path::new(host).exists() {
            arguments.splice(0..0, ["--policy", host]);
        }
        let mut command = self.project.command(&arguments);
        command.env("XDG_CACHE_HOME", self.cache.path()).stdin(Stdio::null());
        for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(name);
        }
        let output = command.output().unwrap();
        let code = output.status.code().unwrap_or(-1);
        let root = self.project.root().canonicalize().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(root.to_str().unwrap(), "[project]");
        Ran { code, out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// What a refusal leaves as it is: the policy, each pinned plugin but for what is staged of it, and what is in the
    /// project of plugins.
    pub(super) fn kept(&self) -> (String, Option<toml::Table>, String) {
        let policy = fs::read_to_string(self.project.path(".harness/harness.md")).unwrap_or_default();
        let lock = fs::read_to_string(self.project.path("harness.lock")).unwrap_or_default();
        let mut lock = toml::from_str::<toml::Table>(&lock).ok();
        for plugin in lock.iter_mut().filter_map(|lock| lock.get_mut("plugin")?.as_array_mut()).flatten() {
            let plugin = plugin.as_table_mut().unwrap();
            plugin.remove("staged");
            plugin.remove("sha256");
        }
        let mut listed = Vec::new();
        files(&self.project.path(".harness/plugins"), &mut listed);
        let texts = listed.into_iter().map(|path| format!("{}: {}", path.display(), digest(&fs::read(&path).unwrap())));
        (policy, lock, texts.collect::<Vec<_>>().join("\n"))
    }

    /// What may not be left of any attempt.
    pub(super) fn left(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.cache.path().join("trace").exists() {
            wrong.push("ESCAPE: something of the plugin was run".to_owned());
        }
        let Ok(all) = fs::read_dir(self.cache.path().join("harness/plugins")) else { return wrong };
        let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        wrong.extend(names.filter(|name| name.starts_with('.')).map(|name| format!("{name} is left in the cache")));
        wrong
    }

    /// Puts things into the room, in order:
    ///
    /// - `file PATH TEXT`, `edit PATH FROM TO`, `remove PATH`, `copy PATH TO`, `mode PATH OCTAL`: files, from the project's
    ///   folder. A text of `sign:NAME` is a signature of the fixtures, and `repeat:N:TEXT` the text so often
    /// - `line PATH LINE`: a line instead of the last one with the same key; `run COMMAND`, which has to succeed, and `tried COMMAND`; `keep NAME
    ///   TEXT`, which `{NAME}` stands for from then on
    /// - `swap PATH FROM|TO` is `edit`, and `words LINE` is any other in one text; `signed NAME` and `resigned NAME`, a
    ///   signature beside the plugin; `prose LINES LAST` and `asks N`, a long `plugin.md`; `more PATH`, an artifact
    /// - `link PATH TARGET`, `hard PATH OTHER`, `pipe PATH`, `folder PATH`, `many PATH N`: odd ones
    /// - `commit MODE PATH TEXT`, `drop PATH`: a file of the commit, as `file`; of a submodule, the text is a commit. A text of
    ///   `zeros:MIB` is very many zeros
    /// - `tar KIND PATH TEXT CHANGE`, `tar-of KIND PATH`, `tar end`: a packed file `made.tar`; the kind is the type's character
    /// - `answer PATH TEXT`, `status PATH STATUS HEADERS TEXT`, `endless PATH`, `plugin PATH`, `made PATH`, `signature
    ///   NAME`, `manifest TAG LAYERS`: answers of the registry, of which `plugin` is the packed plugin, and `made` is `made.tar`
    pub(super) fn put(&mut self, things: &[Vec<String>]) {
        for thing in things {
            let words: Vec<String> = thing.iter().map(|word| self.filled(word)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            self.put_one(&words);
        }
        self.publish();
    }

    /// Commits what is to be in the commit, and writes the packed file.
    fn publish(&mut self) {
        if let Some(files) = &self.commit {
            let commit = Repository(self.shared.repository.path()).commit(files, &format!("r{}", self.number));
            self.fills.insert("commit".to_owned(), commit);
        }
        if !self.made.is_empty() {
            fs::write(self.project.path(MADE), &self.made).unwrap();
            self.fills.insert("made".to_owned(), digest(&self.made));
            self.fills.insert("made_layer".to_owned(), layer(PACKED, &self.made).to_string());
        }
    }

    fn put_one(&mut self, words: &[&str]) {
        let at = |path: &str| self.project.path(path);
        match *words {
            ["file", path, text] => {
                fs::create_dir_all(at(path).parent().unwrap()).unwrap();
                fs::write(at(path), bytes(text)).unwrap();
            }
            ["edit", path, from, to] => {
                let text = fs::read_to_string(at(path)).unwrap();
                assert!(text.contains(from), "{path} has no {from:?}: {text}");
                fs::write(at(path), text.replacen(from, to, 1)).unwrap();
            }
            ["remove", path] if at(path).is_dir() => fs::remove_dir_all(at(path)).unwrap(),
            ["remove", path] => fs::remove_file(at(path)).unwrap(),
            ["copy", path, to] => assert!(fs::copy(at(path), at(to)).is_ok(), "{path} to {to}"),
            ["mode", path, mode] => {
                let mode = u32::from_str_radix(mode, 8).unwrap();
                fs::set_permissions(at(path), fs::Permissions::from_mode(mode)).unwrap();
            }
            ["link", path, target] => symlink(target, at(path)).unwrap(),
            ["hard", path, other] => fs::hard_link(at(other), at(path)).unwrap(),
            ["pipe", path] => {
                let status = Command::new("mkfifo").arg(at(path)).status().unwrap();
                assert!(status.success());
            }
            ["folder", path] => fs::create_dir_all(at(path)).unwrap(),
            ["many", path, count] => {
                fs::create_dir_all(at(path)).unwrap();
                (0..count.parse().unwrap()).for_each(|n: usize| fs::write(at(path).join(n.to_string()), "").unwrap());
            }
            ["commit", ..] | ["drop", ..] => self.commit(words),
            ["run", line] => {
                self.publish();
                let ran = self.run(line);
                assert_eq!(ran.code, 0, "`{line}` must succeed: {ran}");
            }
            ["tried", line] => {
                self.publish();
                drop(self.run(line));
            }
            ["keep", name, value] => drop(self.fills.insert(name.to_owned(), value.to_owned())),
            ["line", path, line] => {
                let text = fs::read_to_string(at(path)).unwrap();
                fs::write(at(path), with_line(&text, line)).unwrap();
            }
            ["swap", path, both] => {
                let (from, to) = both.split_once('|').unwrap();
                self.put_one(&["edit", path, from, to]);
            }
            ["words", line] => self.put_one(&line.split(' ').collect::<Vec<_>>()),
            ["signed", "none"] => {}
            ["signed", name] => self.put_one(&["file", "acme/plugin.sig", &format!("{SIGNED}{name}")]),
            ["resigned", "none"] => fs::remove_file(at("acme/plugin.sig")).unwrap(),
            ["resigned", name] => fs::write(at("acme/plugin.sig"), bytes(&format!("{SIGNED}{name}"))).unwrap(),
            ["prose", count, last] => {
                let prose = "x\n".repeat(count.parse().unwrap());
                fs::write(at("acme/plugin.md"), format!("{PLUGIN}{prose}{last}\n")).unwrap();
            }
            ["asks", count] => {
                let names: Vec<String> = (0..count.parse().unwrap()).map(|n: usize| format!("A{n}")).collect();
                let asks = format!("asks: [{{ reason: x, env: [{}] }}]\n---\n", names.join(", "));
                fs::write(at("acme/plugin.md"), PLUGIN.trim_end_matches("---\n").to_owned() + &asks).unwrap();
            }
            ["more", path] => {
                let (kind, keys) = (path.split('/').nth(1).unwrap(), "name: more\ndescription: D.\n");
                let text = match kind {
                    "tools" => TOOL.to_owned(),
                    "hooks" => {
                        "---\nevent: builtin.pre\nscript: |\n  def handle(event, payload):\n      return allow()\n---\n"
                            .to_owned()
                    }
                    _ => format!("---\n{}---\nHelp.\n", if kind == "agents" { "" } else { keys }),
                };
                self.put_one(&["file", path, &text]);
            }
            ["signature", name] => {
                let signature = bytes(&format!("{SIGNED}{name}"));
                self.answer(&format!("blobs/{}", digest(&signature)), answer(&signature));
                let packed: Json = serde_json::from_str(&self.fills["layer"]).unwrap();
                let kind = "application/vnd.harness.plugin.signature.v1.ssh";
                self.tag("1", &manifest(&json!([packed, layer(kind, &signature)])));
            }
            ["tar-of", line] => {
                let (kind, path) = line.split_once(' ').unwrap();
                self.made.extend(packed(kind.as_bytes()[0], path, "x", ""));
            }
            ["tar", "end"] => self.made.extend([0; 1024]),
            ["tar", kind, path, text] => self.made.extend(packed(kind.as_bytes()[0], path, text, "")),
            ["tar", kind, path, text, change] => self.made.extend(packed(kind.as_bytes()[0], path, text, change)),
            ["answer", path, text] => self.answer(path, answer(&bytes(text))),
            ["status", path, status, headers, text] => {
                let headers = String::from_utf8(bytes(headers)).unwrap();
                let head = head(status, "application/json", &headers);
                self.answer(path, vec![head, Step::Send(bytes(text))]);
            }
            ["plugin", path] => {
                let packed = Content::read(&at(FOLDER)).and_then(|content| pack(&content)).unwrap();
                self.answer(path, answer(&packed));
            }
            ["endless", path] => {
                self.answer(path, vec![head("200 OK", "text/plain", ""), Step::Repeat(vec![b' '; 4096])]);
            }
            ["manifest", tag, layers] => {
                self.tag(tag, &manifest(&serde_json::from_str(layers).unwrap_or_else(|why| panic!("{why}: {layers}"))));
            }
            ["made", path] => self.answer(path, answer(&self.made)),
            _ => panic!("{words:?} is nothing that can be put into a room"),
        }
        // A case may have changed the plugin, which the registry offers as it is.
        if words.get(1).is_some_and(|path| path.starts_with("acme/")) && !matches!(words[0], "commit" | "drop") {
            self.packed();
        }
    }

    fn commit(&mut self, words: &[&str]) {
        let repository = Repository(self.shared.repository.path());
        let mut files = self.commit.take().unwrap_or_else(|| {
            let of = |path: &str, text: &str| File {
                mode: "100644".to_owned(),
                path: format!("{FOLDER}/{path}"),
                object: repository.blob(text.as_bytes()),
            };
            vec![of("plugin.md", PLUGIN), of("tools/theirs.md", TOOL)]
        });
        match *words {
            ["drop", path] => files.retain(|file| file.path != path),
            ["commit", "160000", path, commit] => {
                files.push(File { mode: "160000".to_owned(), path: path.to_owned(), object: commit.to_owned() });
            }
            ["commit", mode, path, text] => {
                let object = repository.blob(&bytes(text));
                files.retain(|file| file.path != path || mode == "120000");
                files.push(File { mode: mode.to_owned(), path: path.to_owned(), object });
            }
            ["commit", "many", path, text, count] => {
                let object = repository.blob(&bytes(text));
                let of =
                    |n: usize| File { mode: "100644".to_owned(), path: format!("{path}/{n}"), object: object.clone() };
                files.extend((0..count.parse().unwrap()).map(of));
            }
            ["commit"] => {}
            _ => panic!("{words:?} is no file of a commit"),
        }
        self.commit = Some(files);
    }
}

/// What a text of a case stands for.
fn bytes(text: &str) -> Vec<u8> {
    if let Some(name) = text.strip_prefix(SIGNED) {
        let fixtures = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/plugin/src/signature/fixtures"));
        return fs::read(fixtures.join(name)).unwrap();
    }
    if let Some(count) = text.strip_prefix("zeros:") {
        return vec![0; count.parse::<usize>().unwrap() << 20];
    }
    if let Some((count, part)) = text.strip_prefix("repeat:").and_then(|rest| rest.split_once(':')) {
        return part.repeat(count.parse().unwrap()).into_bytes();
    }
    text.as_bytes().to_vec()
}

/// A text with another line instead of the last one that has the same key, or beneath all others.
fn with_line(text: &str, line: &str) -> String {
    let key = line.split_once(" = ").map_or(line, |(key, _)| key);
    let mut lines: Vec<&str> = text.lines().collect();
    match lines.iter().rposition(|one| one.strip_prefix(key).is_some_and(|rest| rest.starts_with(" = "))) {
        Some(at) => lines[at] = line,
        None => lines.push(line),
    }
    lines.join("\n") + "\n"
}

/// The regular files below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        match path.symlink_metadata() {
            Ok(one) if one.is_dir() => files(&path, found),
            Ok(one) if one.is_file() => found.push(path),
            _ => {}
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let begin = format!("/v2/r{}/", self.number);
        self.shared.answers.lock().unwrap().retain(|path, _| !path.starts_with(&begin));
    }
}
