//! Every import of the contract, called with arguments out of any bytes, under a small grant.
//!
//! A guest written by hand, instead of the interpreter, takes the bytes for a list of calls: which import, and for each
//! of its arguments a number, a text, a text of a few words that lead somewhere, a list, or an address and a length
//! that mean nothing. It runs on the real engine with the real linkers. What holds always: the host does not panic and
//! returns no more than it may, the call ends by its deadline, no secret is told, and outside of the one folder that
//! may be written nothing has changed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness_artifact::policy::ProjectPolicy;
use harness_capability::env::Variables;
use harness_capability::fs::Workspace;
use harness_capability::reentry::{Allowance, Answering, Patience, Reentry};
use harness_capability::secrets::Vault;
use harness_capability::system::System;
use harness_capability::{agents, ask, events, meta, tasks};
use harness_policy::grant::Grant;
use harness_sandbox::engine::{Image, Sandbox, Settings};
use harness_sandbox::imports::Role;
use harness_sandbox::outcome::{Outcome, Report};
use harness_sandbox::price::Import;
use harness_sandbox::state::{Context, Session};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Resolve, WorldItem};

#[path = "../tests/attacks/compose.rs"]
mod compose;

/// How much later than its deadline a call may come back, on any machine and whatever else it does: far less than what
/// would wait. How late it is on a quiet one is what the corpus and a benchmark measure.
const GRACE: Duration = Duration::from_secs(3);
/// Longest bytes that are checked: more calls are not other calls.
const MOST: usize = 2048;
/// What is in all that is not granted.
const CANARY: &str = "canary-0d1f22b7-never-to-be-seen";
const TOKEN: &str = "token-5c0e99a4-never-to-be-seen";

/// What is in the folder, around and in the workspace.
const FILES: [(&str, &str); 11] = [
    ("outside/canary.txt", CANARY),
    ("work/src/a.txt", "a"),
    ("work/docs/guide.md", "guide"),
    ("work/docs/private/b.txt", CANARY),
    ("work/.env", CANARY),
    ("work/agents/team.md", CANARY),
    ("work/.git/config", CANARY),
    ("work/.harness/tools/t.md", "tool"),
    ("work/.harness/audit/old.jsonl", CANARY),
    ("work/keys/token", TOKEN),
    ("work/out/old.txt", "old"),
];

/// Texts that lead somewhere; `{}` is the port of the server.
const WORDS: &[&str] = &[
    "",
    ".",
    "..",
    "/",
    "//",
    "../",
    "out",
    "out/",
    "out/new.txt",
    "out/old.txt",
    "src",
    "src/a.txt",
    "docs/guide.md",
    "docs/private/b.txt",
    "docs",
    "**/*",
    "*",
    ".env",
    "agents/team.md",
    ".git/config",
    ".harness/tools/t.md",
    ".harness/audit/old.jsonl",
    "keys/token",
    "../outside/canary.txt",
    "out/way/canary.txt",
    "out/link",
    "\0",
    "\u{202e}",
    "%2e%2e/",
    "OUT/OLD.TXT",
    "true",
    "cat",
    "sh",
    "-c",
    "--",
    "LANG",
    "LD_PRELOAD",
    "HOME",
    "TOKEN",
    "KEY",
    "GET",
    "POST",
    "http://127.0.0.1:{}/",
    "http://127.0.0.1:9/",
    "http://169.254.169.254/",
    "http://localhost:{}/x",
    "file:///etc/passwd",
    "accept",
    "x-token",
    "host",
    "a: b\r\n",
    "custom.x",
    "tool.pre",
    "{\"a\": 1}",
    "null",
    "[",
    "it",
    "def run(args):\n    return 1\n",
    "k",
    "m",
    "{\"type\": \"object\"}",
    "-1",
    "18446744073709551616",
    "é",
];

const POLICY: &str = "---
network: { allowed_domains: [\"127.0.0.1:{}\"] }
sandbox:
  fs: { read: [src, docs, out, keys], write: [out], protect: [\"docs/private/**\"] }
  exec: { allow: [\"true\", \"cat *\"], env: [LANG] }
  env: [LANG]
  services: [cache, metrics, clock, random, events, meta, delegate, modify, prompt, ask_user, ask_model, ask_roots]
  secrets: { TOKEN: { file: keys/token, hosts: [\"127.0.0.1:{}\"] } }
  limits: { timeout_ms: 150, memory_mb: 16, file_bytes: 1048576, files: 200, host_calls: 2000 }
meta: { enabled: true }
---
";

thread_local! {
    static RIG: RefCell<Option<Rig>> = const { RefCell::new(None) };
}

/// Calls imports as the bytes say.
pub fn imports(bytes: &[u8]) {
    answered(bytes);
}

/// Does the same, and gives those that were called and not refused.
pub fn answered(bytes: &[u8]) -> Vec<Import> {
    RIG.with_borrow_mut(|rig| rig.get_or_insert_with(Rig::new).attempt(bytes.get(..MOST).unwrap_or(bytes)))
}

/// All that is made once.
struct Rig {
    runtime: Runtime,
    sandbox: Sandbox,
    tool: Image,
    hook: Image,
    grant: Arc<Grant>,
    secrets: Arc<Vault>,
    folder: TempDir,
}

impl Rig {
    fn new() -> Self {
        let port = serve().to_string();
        let sandbox = Sandbox::new(Settings { instances: 2, ..Settings::default() }).unwrap();
        let names: Vec<String> = functions().into_iter().map(|(name, _)| name).collect();
        let component = compose::component(&names, &guest(&port));
        let tool = sandbox.foreign(&component, Role::Tool, "guest.wasm").unwrap();
        let hook = sandbox.foreign(&component, Role::Hook, "guest.wasm").unwrap();
        let folder = tempfile::Builder::new().prefix("fuzz-").tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = folder.unwrap();
        restore(folder.path());
        let (policy, wrong) = ProjectPolicy::parse("harness.md", &POLICY.replace("{}", &port));
        let policy = policy.unwrap_or_else(|| panic!("{wrong:?}"));
        let secrets = policy.secrets.iter().map(|secret| &secret.value);
        Self {
            secrets: Arc::new(Vault::open(secrets, [], &folder.path().join("work"), &Variables::Host)),
            grant: Arc::new(policy.grant_for("tools/it", None)),
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            sandbox,
            tool,
            hook,
            folder,
        }
    }

    fn attempt(&self, bytes: &[u8]) -> Vec<Import> {
        let (role, program) = bytes.split_first().unwrap_or((&0, &[]));
        let mut text = String::new();
        program.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        restore(self.folder.path());
        let before = seen(self.folder.path());
        let limits = self.grant.limits();
        let mut tries = 4;
        loop {
            let context = Context {
                depth: 0,
                grant: self.grant.clone(),
                workspace: Arc::new(Workspace::open(&self.folder.path().join("work")).unwrap()),
                session: Arc::new(Session::default()),
                system: Arc::new(System::default().with_environment()),
                http: Arc::default(),
                listener: None,
                turn: Arc::default(),
                namespace: None,
                secrets: self.secrets.clone(),
                reentry: Some(Arc::new(Echo)),
            };
            let started = Instant::now();
            let report = if role % 4 == 3 {
                self.runtime.block_on(self.sandbox.handle(&self.hook, context, limits, "tool.pre", &text))
            } else {
                self.runtime.block_on(self.sandbox.run(&self.tool, context, limits, &text))
            };
            let took = started.elapsed();
            check(&report);
            assert_eq!(seen(self.folder.path()), before, "outside of `out` something has changed: {report:?}");
            if took <= limits.timeout + GRACE {
                return report.calls.iter().filter(|call| call.refused.is_none()).map(|call| call.import).collect();
            }
            // A busy machine is late now and then, a host that waits is late always.
            tries -= 1;
            assert!(tries > 0, "it took {took:?}: {report:?}");
        }
    }
}

fn check(report: &Report<String>) {
    if let Outcome::Fault(message) = &report.outcome {
        assert!(!message.contains("panicked") && !message.contains("gave back more"), "{message}");
    }
    let told = format!("{report:?}");
    assert!(!told.contains(CANARY) && !told.contains(TOKEN), "{told}");
}

/// A workspace with everything that it has at the beginning, and only that.
fn restore(folder: &Path) {
    let out = folder.join("work/out");
    let _ = fs::remove_dir_all(&out);
    for (path, text) in FILES {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
            fs::write(path, text).unwrap();
        }
    }
    std::os::unix::fs::symlink("../../outside", out.join("way")).unwrap();
    std::os::unix::fs::symlink("../src/a.txt", out.join("link")).unwrap();
}

/// All files and folders but for those in `out`, with what is in them.
fn seen(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(path) = left.pop() {
        if path.ends_with("work/out") {
            continue;
        }
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            found.insert(path, Vec::new());
        } else {
            found.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    found
}

/// A server that answers everything with what it was asked. Gives its port.
fn serve() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().filter_map(Result::ok) {
            let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
            let mut asked = vec![0; 4096];
            let length = stream.read(&mut asked).unwrap_or(0);
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
            let _ = stream.write_all(&[head.as_bytes(), asked.get(..length).unwrap_or_default()].concat());
        }
    });
    port
}

/// The way back into dispatch, for a guest that nobody dispatched: it returns what it is given.
#[derive(Debug)]
struct Echo;

impl Reentry for Echo {
    fn emit(&self, event: String, payload: String, left: Allowance) -> Answering<'_, String, events::Error> {
        let answer = if event.is_empty() { Err(events::Error::TooDeep(8)) } else { Ok(payload) };
        Box::pin(async move { (answer, left.fuel / 1000) })
    }

    fn register_tool(&self, tool: meta::NewTool, _: Allowance) -> Answering<'_, (), meta::Error> {
        let answer = if tool.replace { Err(meta::Error::Invalid(tool.script)) } else { Ok(()) };
        Box::pin(async move { (answer, 0) })
    }

    fn register_hook(&self, hook: meta::NewHook, _: Allowance) -> Answering<'_, (), meta::Error> {
        let used = if hook.name.is_empty() { u64::MAX } else { 1 };
        let answer = hook.when.map_or(Ok(()), |when| Err(meta::Error::Invalid(when)));
        Box::pin(async move { (answer, used) })
    }

    fn call_tool(&self, name: String, arguments: String, _: Allowance) -> Answering<'_, String, meta::Error> {
        let answer = if name.is_empty() { Err(meta::Error::TooMany(1)) } else { Ok(arguments) };
        Box::pin(async move { (answer, 1) })
    }

    fn call_all(&self, calls: String, _: Allowance) -> Answering<'_, String, meta::Error> {
        let answer = if calls.is_empty() { Err(meta::Error::TooDeep(8)) } else { Ok(calls) };
        Box::pin(async move { (answer, 1) })
    }

    fn delegate(&self, agent: String, task: String, _: Allowance) -> Answering<'_, String, agents::Error> {
        let answer = if agent.is_empty() { Err(agents::Error::Failed(task)) } else { Ok(task) };
        Box::pin(async move { (answer, 1) })
    }

    fn delegate_async(&self, agent: String, task: String, left: Allowance) -> Answering<'_, String, agents::Error> {
        self.delegate(agent, task, left)
    }

    fn tasks(&self, ids: Vec<String>, patience: Patience) -> Answering<'_, String, tasks::Error> {
        let answer = match patience {
            Patience::Until(_) if ids.is_empty() => Err(tasks::Error::Invalid(String::new())),
            _ => Ok(format!("[{}]", ids.join(","))),
        };
        Box::pin(async move { (answer, 1) })
    }

    fn ask(&self, questions: Vec<ask::Asked>, left: Allowance) -> Answering<'_, String, ask::Error> {
        Box::pin(async move { (Ok(serde_json::json!(vec![(); questions.len()]).to_string()), left.fuel / 1000) })
    }

    fn can_ask(&self) -> Vec<&'static str> {
        vec!["user", "roots"]
    }

    fn list_tools(&self, pattern: Option<String>, _: Allowance) -> Answering<'_, Vec<meta::ToolSummary>, meta::Error> {
        let name = pattern.unwrap_or_default();
        let answer = Ok(vec![meta::ToolSummary { description: name.clone(), name, parameter_count: 3 }]);
        Box::pin(async move { (answer, 0) })
    }
}

/// What an import takes as the machine has it: whether its last parameter is where its answer goes, and whether it gives
/// something back beside that.
struct Signature {
    params: Vec<WasmType>,
    answer_at: bool,
    gives: bool,
}

/// Every function of the contract, in the order of the price table.
fn functions() -> Vec<(String, Signature)> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit")).unwrap();
    let world = &resolve.worlds[resolve.packages[package].worlds["interpreter"]];
    let of = |import: &Import| {
        let (wanted, function) = import.path();
        let signature = world.imports.values().find_map(|item| {
            let WorldItem::Interface { id, .. } = item else { return None };
            let interface = &resolve.interfaces[*id];
            let function = interface.functions.get(function).filter(|_| interface.name.as_deref() == Some(wanted))?;
            Some(resolve.wasm_signature(AbiVariant::GuestImport, function))
        });
        let signature = signature.unwrap_or_else(|| panic!("the contract has no {wanted}.{function}"));
        let gives = !signature.results.is_empty();
        let signature = Signature { params: signature.params, answer_at: signature.retptr, gives };
        (format!("{wanted}.{function}"), signature)
    };
    Import::ALL.iter().map(of).collect()
}

/// The guest: what reads the bytes, and a call of each function.
fn guest(port: &str) -> String {
    let mut text = String::new();
    let (mut at, mut table) = (8192, String::new());
    for word in WORDS {
        let word = word.replace("{}", port);
        let bytes =
            |number: usize| u32::try_from(number).unwrap().to_le_bytes().map(|byte| format!("\\{byte:02x}")).concat();
        write!(table, "{}{}", bytes(at), bytes(word.len())).unwrap();
        let escaped: String = word.bytes().map(|byte| format!("\\{byte:02x}")).collect();
        writeln!(text, "(data (i32.const {at}) \"{escaped}\")").unwrap();
        at += word.len();
    }
    assert!(at < 16384);
    writeln!(text, "(data (i32.const 1024) \"{table}\")").unwrap();
    text.push_str(&READER.replace("{words}", &WORDS.len().to_string()));
    text.push_str("(func $one (param $op i32)\n");
    let locals: String = (0..16).map(|n| format!("(local $i{n} i32) (local $l{n} i64) (local $f{n} f64)\n")).collect();
    text.push_str(&locals);
    for (index, (name, signature)) in functions().iter().enumerate() {
        writeln!(text, "(if (i32.eq (local.get $op) (i32.const {index})) (then").unwrap();
        let mut given = String::new();
        let count = signature.params.len() - usize::from(signature.answer_at);
        let mut params = signature.params.iter().take(count).enumerate().peekable();
        while let Some((n, param)) = params.next() {
            let (local, read) = match param {
                WasmType::Pointer if matches!(params.peek(), Some((_, WasmType::Length))) => {
                    params.next();
                    writeln!(
                        text,
                        "(call $pair) (local.set $i{n} (global.get $at)) (local.set $i{} (global.get $length))",
                        n + 1
                    )
                    .unwrap();
                    write!(given, "(local.get $i{n}) (local.get $i{})", n + 1).unwrap();
                    continue;
                }
                WasmType::I64 | WasmType::PointerOrI64 => ("l", "(call $wide)"),
                WasmType::F64 => ("f", "(f64.reinterpret_i64 (call $wide))"),
                WasmType::F32 => panic!("the contract has no such number"),
                WasmType::I32 | WasmType::Pointer | WasmType::Length => ("i", "(call $number)"),
            };
            writeln!(text, "(local.set ${local}{n} {read})").unwrap();
            write!(given, "(local.get ${local}{n})").unwrap();
        }
        if signature.answer_at {
            given.push_str("(call $answer)");
        }
        let drop = if signature.gives { "drop" } else { "" };
        writeln!(text, "(call ${name} {given}) {drop}))").unwrap();
    }
    text.push_str(")\n");
    text
}

/// What of the guest is the same whatever the contract is. Bytes come as hexadecimal digits, and are put where those were.
const READER: &str = r#"
(memory (export "memory") 40)
(global $next (mut i32) (i32.const 0))
(global $end (mut i32) (i32.const 0))
(global $at (mut i32) (i32.const 0))
(global $length (mut i32) (i32.const 0))
(global $lists (mut i32) (i32.const 16384))
(global $free (mut i32) (i32.const 524288))
(func (export "cabi_realloc") (param $old i32) (param $was i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32) (local $missing i32)
    (local.set $at (i32.and
        (i32.add (global.get $free) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
    (global.set $free (i32.add (local.get $at) (local.get $size)))
    (local.set $missing (i32.sub
        (i32.add (i32.shr_u (global.get $free) (i32.const 16)) (i32.const 1)) (memory.size)))
    (if (i32.gt_s (local.get $missing) (i32.const 0)) (then (drop (memory.grow (local.get $missing)))))
    (local.get $at))
(func $digit (param $c i32) (result i32)
    (i32.sub (local.get $c) (select (i32.const 87) (i32.const 48) (i32.ge_u (local.get $c) (i32.const 97)))))
(func $decode (param $from i32) (param $bytes i32)
    (local $n i32)
    (global.set $next (local.get $from))
    (global.set $end (i32.add (local.get $from) (i32.shr_u (local.get $bytes) (i32.const 1))))
    (loop $more
        (if (i32.lt_u (i32.add (local.get $from) (local.get $n)) (global.get $end)) (then
            (i32.store8 (i32.add (local.get $from) (local.get $n)) (i32.or
                (i32.shl (call $digit (i32.load8_u (i32.add (local.get $from) (i32.shl (local.get $n) (i32.const 1))))) (i32.const 4))
                (call $digit (i32.load8_u offset=1 (i32.add (local.get $from) (i32.shl (local.get $n) (i32.const 1)))))))
            (local.set $n (i32.add (local.get $n) (i32.const 1)))
            (br $more)))))
(func $byte (result i32)
    (if (result i32) (i32.ge_u (global.get $next) (global.get $end))
        (then (i32.const 0))
        (else
            (global.set $next (i32.add (global.get $next) (i32.const 1)))
            (i32.load8_u (i32.sub (global.get $next) (i32.const 1))))))
(func $word (result i32)
    (i32.or (i32.or (call $byte) (i32.shl (call $byte) (i32.const 8)))
        (i32.or (i32.shl (call $byte) (i32.const 16)) (i32.shl (call $byte) (i32.const 24)))))
(func $wide (result i64)
    (i64.or (i64.extend_i32_u (call $word)) (i64.shl (i64.extend_i32_u (call $word)) (i64.const 32))))
;; Mostly one that an enumeration, an option or a flag has.
(func $number (result i32) (local $b i32)
    (local.set $b (call $byte))
    (if (result i32) (i32.lt_u (local.get $b) (i32.const 160))
        (then (i32.and (local.get $b) (i32.const 1)))
        (else (if (result i32) (i32.lt_u (local.get $b) (i32.const 224))
            (then (i32.and (local.get $b) (i32.const 31)))
            (else (call $word))))))
;; Mostly a place that is there.
(func $answer (result i32)
    (if (result i32) (i32.eq (i32.load8_u (global.get $next)) (i32.const 253))
        (then (call $word))
        (else (i32.const 512))))
(func $text (local $n i32)
    (local.set $n (call $byte))
    (global.set $at (global.get $next))
    (global.set $next (i32.add (global.get $next) (local.get $n)))
    (if (i32.gt_u (global.get $next) (global.get $end)) (then (global.set $next (global.get $end))))
    (global.set $length (i32.sub (global.get $next) (global.get $at))))
(func $known (local $n i32)
    (local.set $n (i32.shl (i32.rem_u (call $byte) (i32.const {words})) (i32.const 3)))
    (global.set $at (i32.load offset=1024 (local.get $n)))
    (global.set $length (i32.load offset=1028 (local.get $n))))
(func $simple
    (if (i32.and (call $byte) (i32.const 1)) (then (call $known)) (else (call $text))))
;; An address and a length.
(func $pair (local $how i32) (local $n i32) (local $from i32) (local $to i32)
    (local.set $how (i32.and (call $byte) (i32.const 15)))
    (if (i32.eqz (local.get $how)) (then
        (global.set $at (call $word))
        (global.set $length (call $word))
        (return)))
    (if (i32.eq (local.get $how) (i32.const 1)) (then
        (global.set $at (i32.const 1024))
        (global.set $length (i32.and (call $word) (i32.const 0x1fffff)))
        (return)))
    (if (i32.le_u (local.get $how) (i32.const 4)) (then (call $text) (return)))
    (if (i32.le_u (local.get $how) (i32.const 10)) (then (call $known) (return)))
    (if (i32.gt_u (global.get $lists) (i32.const 260000)) (then (global.set $lists (i32.const 16384))))
    (local.set $from (global.get $lists))
    (local.set $to (local.get $from))
    (local.set $n (i32.and (call $byte) (i32.const 7)))
    (if (i32.le_u (local.get $how) (i32.const 13)) (then
        ;; Texts, one after the other.
        (loop $more
            (call $simple)
            (memory.copy (local.get $to) (global.get $at) (global.get $length))
            (local.set $to (i32.add (local.get $to) (global.get $length)))
            (local.set $n (i32.sub (local.get $n) (i32.const 1)))
            (br_if $more (i32.gt_s (local.get $n) (i32.const 0))))
        (global.set $lists (local.get $to))
        (global.set $at (local.get $from))
        (global.set $length (i32.sub (local.get $to) (local.get $from)))
        (return)))
    ;; A list of texts, or of pairs of them.
    (local.set $from (i32.and (i32.add (local.get $from) (i32.const 7)) (i32.const -8)))
    (local.set $to (local.get $from))
    (global.set $lists (i32.add (local.get $from) (i32.const 64)))
    (loop $more
        (if (i32.gt_s (local.get $n) (i32.const 0)) (then
            (call $simple)
            (i32.store (local.get $to) (global.get $at))
            (i32.store offset=4 (local.get $to) (global.get $length))
            (local.set $to (i32.add (local.get $to) (i32.const 8)))
            (local.set $n (i32.sub (local.get $n) (i32.const 1)))
            (br $more))))
    (global.set $at (local.get $from))
    (global.set $length (i32.shr_u (i32.sub (local.get $to) (local.get $from)) (i32.sub (local.get $how) (i32.const 11)))))
(func $all
    (loop $more
        (if (i32.lt_u (global.get $next) (global.get $end)) (then
            ;; Behind the bytes, which the host was given memory for.
            (global.set $free (global.get $end))
            (call $one (call $byte))
            (br $more)))))
(func (export "run") (param $args i32) (param $length i32) (result i32)
    (call $decode (local.get $args) (local.get $length))
    (call $all)
    (call $say (i32.const 2)))
(func (export "handle") (param i32 i32) (param $args i32) (param $length i32) (result i32)
    (call $decode (local.get $args) (local.get $length))
    (call $all)
    (call $say (i32.const 2)))
"#;
