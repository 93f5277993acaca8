//! A thousand trees of artifacts, each well formed and then with one fault in it: loading finds nothing wrong in the
//! first, and the fault in the second, at its file and its line.

mod plugins;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proptest::prelude::RngExt as _;
use proptest::test_runner::{RngAlgorithm, TestRng};

use super::Registry;
use harness_artifact::diagnostic::Severity;

const TREES: usize = 1000;

/// What a file is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tool,
    Hook,
    Agent,
    Bundle,
    Harness,
}
use Kind::{Agent, Bundle, Harness, Hook, Tool};

const KINDS: [Kind; 5] = [Tool, Hook, Agent, Bundle, Harness];

/// A key of front matter with the lines that it and its value take.
type Block = (&'static str, Vec<String>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Document {
    kind: Kind,
    blocks: Vec<Block>,
    body: String,
    /// A byte order mark before the first line.
    mark: bool,
    /// Lines that end as on Windows.
    returns: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Document(Document),
    Bytes(Vec<u8>),
    Link(&'static str),
    Folder,
}

/// Files by their path, and the names of what they define.
#[derive(Debug, Clone, Default)]
struct Tree {
    pub files: BTreeMap<String, Content>,
    tools: BTreeSet<String>,
    hooks: BTreeSet<String>,
    agents: BTreeSet<String>,
    sources: Vec<String>,
    /// Names of tools under `overrides/`, and how many of them are instead of another.
    above: BTreeSet<String>,
    replaced: usize,
}

/// A fault that was put in.
struct Fault {
    what: String,
    /// Where it is: a file, or the beginning of its path where it is read as nothing; and a line, where it has one.
    places: Vec<(String, Option<u32>)>,
    /// Whether a guard is lost with it; none where that depends.
    guard: Option<bool>,
}

impl Document {
    fn text(&self) -> String {
        let lines = self.blocks.iter().flat_map(|(_, lines)| lines).map(|line| format!("{line}\n"));
        let text = format!("---\n{}---\n{}", lines.collect::<String>(), self.body);
        let text = if self.returns { text.replace('\n', "\r\n") } else { text };
        if self.mark { format!("\u{feff}{text}") } else { text }
    }

    /// The line of the file that a block begins at.
    fn line(&self, index: usize) -> u32 {
        let before: usize = self.blocks[..index].iter().map(|(_, lines)| lines.len()).sum();
        u32::try_from(before).unwrap() + 2
    }

    /// Puts a block instead of the one of this key, or anywhere. Gives back its line.
    fn set(&mut self, dice: &mut Dice, block: Block) -> u32 {
        let index = match self.blocks.iter().position(|(key, _)| *key == block.0) {
            Some(index) => {
                self.blocks[index] = block;
                index
            }
            None => {
                let index = dice.below(self.blocks.len() + 1);
                self.blocks.insert(index, block);
                index
            }
        };
        self.line(index)
    }
}

struct Dice {
    rng: TestRng,
    names: usize,
}

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.rng.random_range(0..end)
    }

    /// True so often in ten.
    fn often(&mut self, in_ten: usize) -> bool {
        self.below(10) < in_ten
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// A name that nothing has yet.
    fn name(&mut self) -> String {
        self.names += 1;
        let stem = *self.one(&["t", "read_", "Ünï ", "a.b-", "'", "# x", "no: ", "-", "日本"]);
        format!("{stem}{}", self.names)
    }

    /// Some of these blocks, in any order; those before `required` always.
    fn some(&mut self, mut blocks: Vec<Block>, required: usize) -> Vec<Block> {
        for index in (required..blocks.len()).rev() {
            if self.often(6) {
                blocks.remove(index);
            }
        }
        for index in (1..blocks.len()).rev() {
            let other = self.below(index + 1);
            blocks.swap(index, other);
        }
        blocks
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// Blocks of front matter from their text: a line that begins with a letter begins a block.
fn blocks(all: &[(&'static str, &str)]) -> Vec<Block> {
    all.iter().map(|(key, text)| (*key, lines(text))).collect()
}

fn tool(dice: &mut Dice) -> Vec<Block> {
    let script = "script: |\n  def run(args):\n      # ---\n      return {'é': args.get(\"a\")}\n\n  X = 1";
    let parameters = "parameters:\n  a: { type: string, required: true, description: 'One: of \"them\".' }\n  b:\n    type: array\n    description: >\n      Two\n      lines.";
    let tests = "tests:\n  - name: works\n    args: { a: x }\n    given: { files: { a.txt: one }, now: 2026-01-02T03:04:05Z }\n    expect: { result: { é: x } }\n  - name: too\n    contains: { log: [] }";
    let capabilities = "capabilities: { fs: { read: [docs] }, network: [a.example], limits: { fuel: 5 } }";
    let blocks = blocks(&[
        ("parameters", parameters),
        ("script", script),
        ("timeout_ms", "timeout_ms: 30000"),
        ("async", "async: true"),
        ("capabilities", capabilities),
        ("tests", tests),
    ]);
    dice.some(blocks, 0)
}

fn hook(dice: &mut Dice) -> Vec<Block> {
    let event = *dice.one(&["tool.pre", "tool.post", "turn.start", "custom.mine_2", "meta.tool_register", "error"]);
    let event = format!("event: {event}");
    let script = "script: |\n  def handle(event, payload):\n      return allow()";
    let tests = "tests:\n  - name: blocks\n    event: tool.pre\n    payload: { name: x, args: [1, null] }\n    expect: { decision: block }";
    let blocks = blocks(&[
        ("event", &event),
        ("script", script),
        ("when", "when: payload[\"name\"] in [\"a\", 'b'] and event != \"x\""),
        ("priority", "priority: -10"),
        ("capabilities", "capabilities:\n  env: [CI]\n  services: [cache, metrics]"),
        ("tests", tests),
    ]);
    dice.some(blocks, 1)
}

/// An item of a list, indented by two.
fn item(named: &str, name: &str, blocks: &[Block]) -> Vec<String> {
    let rest = blocks.iter().flat_map(|(_, lines)| lines).map(|line| format!("    {line}"));
    std::iter::once(format!("  - {named}: {name:?}")).chain(rest).collect()
}

impl Tree {
    fn add(&mut self, dice: &mut Dice, path: &str, kind: Kind, mut blocks: Vec<Block>) {
        plugins::hear_no_others(path, &mut blocks);
        let body =
            (*dice.one(&["", "prose", "\n# Title\n\n```\nevent: x\n---\n```\n", "\u{1b}[2J is only prose"])).to_owned();
        let document = Document { kind, blocks, body, mark: dice.often(1), returns: dice.often(1) };
        self.files.insert(path.to_owned(), Content::Document(document));
    }

    /// The lists of a bundle or of `harness.md`. `place` is what names of sources begin with.
    fn lists(&mut self, dice: &mut Dice, place: &str, above: bool) -> Vec<Block> {
        let (mut tools, mut hooks) = (lines("tools:"), lines("hooks:"));
        for _ in 0..dice.below(3) {
            let known: Vec<String> = self.tools.difference(&self.above).cloned().collect();
            let replaces = above && !known.is_empty() && dice.often(5);
            let name = if replaces { dice.one(&known).clone() } else { dice.name() };
            self.replaced += usize::from(replaces);
            if above {
                self.above.insert(name.clone());
            }
            tools.extend(item("name", &name, &tool(dice)));
            self.sources.push(format!("{place}tools/{name}"));
            self.tools.insert(name);
        }
        for _ in 0..dice.below(3) {
            let name = dice.name();
            hooks.extend(item("handler", &name, &hook(dice)));
            self.hooks.insert(name);
        }
        let mut blocks = vec![("tools", tools), ("hooks", hooks)];
        blocks.retain(|(_, lines)| lines.len() > 1);
        blocks
    }

    fn singles(&mut self, dice: &mut Dice, folder: &str, place: &str) {
        for (kind, part) in [(Tool, "tools"), (Hook, "hooks")] {
            for _ in 0..dice.below(3) {
                let name = dice.name();
                let blocks = if kind == Tool { tool(dice) } else { hook(dice) };
                self.add(dice, &format!("{folder}/{part}/{name}.md"), kind, blocks);
                self.sources.push(format!("{place}{part}/{name}"));
                let names = if kind == Tool { &mut self.tools } else { &mut self.hooks };
                names.insert(name);
            }
        }
    }

    fn bundles(&mut self, dice: &mut Dice, folder: &str) {
        for group in ["plugins", "builtins", "overrides"] {
            for _ in 0..dice.below(2) {
                let name = dice.name();
                let (place, above) = (format!("{group}/{name}/"), group == "overrides");
                let mut blocks = self.lists(dice, &place, above);
                if dice.often(5) {
                    blocks.insert(0, ("version", lines("version: 1.0.0\nauthor: Ada")));
                }
                if dice.often(5) {
                    self.add(dice, &format!("{folder}/{group}/{name}.md"), Bundle, blocks);
                } else {
                    self.add(dice, &format!("{folder}/{place}bundle.md"), Bundle, blocks);
                    self.singles(dice, &format!("{folder}/{group}/{name}"), &place);
                    self.files.insert(format!("{folder}/{place}README.md"), Content::Bytes(b"none".to_vec()));
                }
                self.sources.push(format!("{group}/{name}"));
            }
        }
    }

    /// Agents last: they refer to what there is.
    fn agents(&mut self, dice: &mut Dice) {
        let all = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>();
        let (tools, hooks) = (all(&self.tools), all(&self.hooks));
        for _ in 0..dice.below(3) {
            let mut own = lines("tools:");
            if !tools.is_empty() {
                own.push(format!("  - {:?}", dice.one(&tools)));
            }
            if dice.often(3) {
                let name = dice.name();
                own.extend(item("name", &name, &tool(dice)));
            }
            let mut blocks = blocks(&[("description", "description: Finds things."), ("model", "model: gpt-4o")]);
            if own.len() > 1 {
                blocks.push(("tools", own));
            }
            if !hooks.is_empty() {
                blocks.push(("hooks", vec![format!("hooks: [{:?}, {{ event: tool.pre }}]", dice.one(&hooks))]));
            }
            let (name, blocks) = (dice.name(), dice.some(blocks, 0));
            self.add(dice, &format!(".harness/agents/{name}.md"), Agent, blocks);
            self.agents.insert(name);
        }
    }

    fn policy(&mut self, dice: &mut Dice, further: bool) {
        let lists = self.lists(dice, "", false);
        let mut sandbox = lines(
            "sandbox:\n  fs: { read: [\".\"], write: [src, \"out/**\"], protect: [\"secrets/*\"] }\n  exec: { allow: [git, \"cargo test *\"], env: [PATH] }\n  limits: { fuel: 10000, memory_mb: 64 }",
        );
        if !self.sources.is_empty() {
            let source = dice.one(&self.sources);
            sandbox.push(format!("  sources: {{ {source:?}: {{ env: [A], limits: {{ timeout_ms: 5 }} }} }}"));
        }
        let hooks: Vec<String> = self.hooks.iter().cloned().collect();
        if !hooks.is_empty() {
            sandbox.push(format!("  hooks: {{ strict: true, named: {{ {:?}: allow }} }}", dice.one(&hooks)));
        }
        let tools: Vec<String> = self.tools.iter().cloned().collect();
        let mut policy = vec![("sandbox", sandbox)];
        if !tools.is_empty() {
            let rule = format!("tools_policy: {{ mode: allowlist, allow: [{:?}, \"*\"] }}", dice.one(&tools));
            policy.push(("tools_policy", vec![rule]));
        }
        policy.extend(blocks(&[
            ("network", "network:\n  allowed_domains: [a.example, \"*.b.example\", \"127.0.0.1:8080\", { host: c.internal, private: true }]"),
            ("meta", "meta: { enabled: true, max_tools: 3 }"),
            ("delegation", "delegation: { max_depth: 2, iterations_per_depth: [20, 10] }"),
            ("model", "model: { name: m }"),
        ]));
        let mut all = dice.some(policy, 0);
        all.extend(lists);
        if further {
            all.push(("artifact_sources", lines("artifact_sources:\n  - { type: local, path: further }")));
        }
        let all = dice.some(all.clone(), all.len());
        self.add(dice, ".harness/harness.md", Harness, all);
    }

    fn new(dice: &mut Dice) -> Self {
        let mut tree = Self::default();
        tree.files.insert(".harness/tools/.hidden.md".to_owned(), Content::Bytes(b"none".to_vec()));
        tree.files.insert(".harness/notes.md".to_owned(), Content::Bytes(vec![0xff]));
        tree.files.insert("outside/tools/x.md".to_owned(), Content::Bytes(b"---\n---\n".to_vec()));
        tree.singles(dice, ".harness", "");
        let further = dice.often(3);
        if further {
            tree.files.insert("further/x".to_owned(), Content::Bytes(Vec::new()));
            tree.singles(dice, "further", "further//");
        }
        // Overrides come last of the bundles, and the policy's lists cannot be replaced by what is already there.
        let policy = further || dice.often(8);
        tree.bundles(dice, ".harness");
        if policy {
            tree.policy(dice, further);
        }
        tree.agents(dice);
        tree
    }

    /// A document of a kind; a new one where there is none.
    fn any(&mut self, dice: &mut Dice, kind: Kind) -> (String, Document) {
        let document = |content: &Content| match content {
            Content::Document(document) if document.kind == kind => Some(document.clone()),
            _ => None,
        };
        let all: Vec<_> =
            self.files.iter().filter_map(|(path, content)| Some((path.clone(), document(content)?))).collect();
        if !all.is_empty() {
            return dice.one(&all).clone();
        }
        let name = dice.name();
        let blocks = if kind == Hook { hook(dice) } else { Vec::new() };
        let path = match kind {
            Harness => ".harness/harness.md".to_owned(),
            _ => format!(".harness/{}/{name}.md", ["tools", "hooks", "agents", "plugins"][kind as usize]),
        };
        self.add(dice, &path, kind, blocks);
        self.any(dice, kind)
    }

    fn write(&self, root: &Path, before: Option<&Self>) {
        for (name, content) in &self.files {
            if before.is_some_and(|before| before.files.get(name) == Some(content)) {
                continue;
            }
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            if before.is_some_and(|before| before.files.contains_key(name)) {
                std::fs::remove_file(&path).unwrap();
            }
            match content {
                Content::Document(document) => std::fs::write(path, document.text()).unwrap(),
                Content::Bytes(bytes) => std::fs::write(path, bytes).unwrap(),
                Content::Link(to) => std::os::unix::fs::symlink(root.join(to), path).unwrap(),
                Content::Folder => std::fs::create_dir(path).unwrap(),
            }
        }
    }
}

/// Of a kind, a key with a value that is wrong, and how far below its first line.
const WRONG: [(Kind, &str, &str, u32); 52] = [
    (Tool, "timeout_ms", "timeout_ms: -1", 0),
    (Tool, "timeout_ms", "timeout_ms: soon", 0),
    (Tool, "async", "async: maybe", 0),
    (Tool, "parameters", "parameters: [a]", 0),
    (Tool, "parameters", "parameters:\n  a: { type: text }", 1),
    (Tool, "parameters", "parameters:\n  a: { type: string }\n  b: { required: true }", 2),
    (Tool, "parameters", "parameters:\n  '': { type: string }", 1),
    (Tool, "capabilities", "capabilities:\n  env: [\"A B\"]", 1),
    (Tool, "tests", "tests:\n  - name: expects nothing", 1),
    (Tool, "tests", "tests:\n  - expect: { result: 1 }", 1),
    (Tool, "tests", "tests:\n  - { name: x, expect: { result: 1 } }\n  - { name: x, expect: { result: 1 } }", 2),
    (Tool, "tests", "tests:\n  - name: x\n    expect: { decision: block, result: 1 }", 2),
    (Tool, "tests", "tests:\n  - name: x\n    expects: { result: 1 }\n    expect: { result: 1 }", 2),
    (Hook, "event", "event: tool.per", 0),
    (Hook, "event", "event: custom.Bad", 0),
    (Hook, "event", "event: ''", 0),
    (Hook, "priority", "priority: high", 0),
    (Hook, "priority", "priority: 99999999999999999999", 0),
    (Hook, "when", "when: [x]", 0),
    (Hook, "capabilities", "capabilities:\n  network:\n    - \"*.*\"", 2),
    (Hook, "tests", "tests:\n  - name: x\n    event: nothing\n    expect: { decision: block }", 2),
    (Agent, "model", "model: 4", 0),
    (Agent, "tools", "tools: x", 0),
    (Agent, "tools", "tools:\n  - 7", 1),
    (Agent, "tools", "tools:\n  - nothing_such", 1),
    (Agent, "tools", "tools:\n  - script: x", 1),
    (Agent, "tools", "tools:\n  - name: x\n    timeout_ms: -1", 2),
    (Agent, "hooks", "hooks: [nothing_such]", 0),
    (Agent, "hooks", "hooks:\n  - priority: 1", 1),
    (Bundle, "tools", "tools:\n  - name: ''", 1),
    (Bundle, "tools", "tools:\n  - name: a/b", 1),
    (Bundle, "tools", "tools:\n  - name: \"a\\nb\"", 1),
    (Bundle, "tools", "tools:\n  - name: x_1\n  - name: x_1", 2),
    (Bundle, "hooks", "hooks:\n  - handler: x", 1),
    (Bundle, "hooks", "hooks:\n  - handler: x\n    event: tool.per", 2),
    (Bundle, "agents", "agents:\n  - model: m", 1),
    (Harness, "tools", "tools:\n  - name: ''", 1),
    (Harness, "agents", "agents:\n  - name: x\n    tools:\n      - nothing_such", 3),
    (Harness, "network", "network: { allowed_domains: [\"https://a.example\"] }", 0),
    (Harness, "network", "network:\n  allowed_domains:\n    - a.example\n    - a b", 3),
    (Harness, "sandbox", "sandbox:\n  fs: { read: [\"../x\"] }", 1),
    (Harness, "sandbox", "sandbox:\n  limits:\n    fuel: 0", 2),
    (Harness, "sandbox", "sandbox:\n  evn: [A]", 1),
    (Harness, "sandbox", "sandbox:\n  sources:\n    tool/x: {}", 2),
    (Harness, "sandbox", "sandbox:\n  hooks: { on_error: ask }", 1),
    (Harness, "sandbox", "sandbox:\n  secrets: { S: {} }", 1),
    (Harness, "sandbx", "sandbx: {}", 0),
    (Harness, "tools_policy", "tools_policy:\n  deny: [\"[a]\"]", 1),
    (Harness, "meta", "meta: { enable: true }", 0),
    (Harness, "delegation", "delegation: { iterations_per_depth: [] }", 0),
    (Harness, "artifact_sources", "artifact_sources:\n  - { type: local, path: nowhere }", 1),
    (Harness, "artifact_sources", "artifact_sources: [{ type: git, path: x }]", 0),
];

/// What is wrong in any front matter, each a block of its own.
const NO_YAML: [&str; 9] = [
    "zz: { a: [ }",
    "zz: &x 1",
    "zz: *x",
    "zz: !!str 1",
    "zz: \"a\u{7}b\"",
    "zz: a\u{1b}[2J",
    "zz: b: c",
    "? [a]\n: 1",
    "zz: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
];

/// What is wrong with a file as a whole; see [`spoiled`].
const FILES: [&str; 10] =
    ["unopened", "shifted", "unclosed", "trailing", "list", "doubled", "latin1", "large", "link", "folder"];

/// What is wrong with a tree; see [`misplaced`].
const PLACES: [&str; 6] = ["tools", "hooks", "bundles", "tools/", "name", "linked"];

/// Puts the fault of this number in.
fn spoil(tree: &mut Tree, dice: &mut Dice, number: usize) -> Fault {
    let no_yaml = KINDS.into_iter().flat_map(|kind| NO_YAML.map(|text| (kind, "zz", text, 0)));
    let blocks: Vec<_> = WRONG.into_iter().chain(no_yaml).collect();
    let number = number % (blocks.len() + FILES.len() * KINDS.len() + PLACES.len());
    if let Some((kind, key, text, below)) = blocks.get(number) {
        let (path, mut document) = tree.any(dice, *kind);
        let line = document.set(dice, (*key, lines(text))) + below;
        tree.files.insert(path.clone(), Content::Document(document));
        // An agent that refers to nothing is there all the same.
        let guard = guards(*kind) && !text.contains("nothing_such");
        return Fault { what: (*text).to_owned(), places: vec![(path, Some(line))], guard: Some(guard) };
    }
    let number = number - blocks.len();
    if let Some(what) = FILES.get(number / KINDS.len()) {
        let kind = KINDS[number % KINDS.len()];
        let (path, document) = tree.any(dice, kind);
        let (content, line) = spoiled(document, what);
        tree.files.insert(path.clone(), content);
        return Fault { what: format!("{what} {kind:?}"), places: vec![(path, line)], guard: Some(guards(kind)) };
    }
    let what = PLACES[number - FILES.len() * KINDS.len()];
    let (places, guard) = misplaced(tree, dice, what);
    Fault { what: what.to_owned(), places, guard }
}

/// Whether something that is lost may have guarded against something.
fn guards(kind: Kind) -> bool {
    !matches!(kind, Tool | Agent)
}

fn spoiled(mut document: Document, what: &str) -> (Content, Option<u32>) {
    (document.mark, document.returns, document.body) = (false, false, String::new());
    let end = document.line(document.blocks.len());
    let text = document.text();
    let open = text.strip_suffix("---\n").unwrap().to_owned();
    let bytes = |text: String| Content::Bytes(text.into_bytes());
    match what {
        "unopened" => (bytes(text.replacen("---\n", "", 1)), Some(1)),
        "shifted" => (bytes(text.replacen("---\n", "--- \n", 1)), Some(1)),
        "unclosed" => (bytes(open), Some(1)),
        "trailing" => (bytes(format!("{} \n", text.trim_end())), Some(1)),
        "list" => (bytes("---\n- a\n---\n".to_owned()), Some(2)),
        "doubled" => (bytes(open + "zz: 1\nzz: 2\n---\n"), Some(end + 1)),
        "latin1" => (Content::Bytes([text.as_bytes(), b"\xe9"].concat()), None),
        "large" => (bytes(text + &"a".repeat(1 << 20)), None),
        "link" => (Content::Link("outside/tools/x.md"), None),
        _ => (Content::Folder, None),
    }
}

/// Places of a fault, and whether a guard is lost with it.
fn misplaced(tree: &mut Tree, dice: &mut Dice, what: &str) -> (Vec<(String, Option<u32>)>, Option<bool>) {
    let document = |tree: &mut Tree, dice: &mut Dice, path: String, kind: Kind, block: Option<Block>| {
        tree.add(dice, &path, kind, block.into_iter().collect());
        path
    };
    let event = Some(("event", lines("event: error")));
    let name = dice.name();
    match what {
        "tools" => {
            let one = document(tree, dice, format!(".harness/tools/{name}.md"), Tool, None);
            let list = Some(("tools", lines(&format!("tools:\n  - name: {name:?}"))));
            let two = document(tree, dice, format!(".harness/plugins/{name}.md"), Bundle, list);
            (vec![(one, Some(1)), (two, None)], None)
        }
        "hooks" => {
            let one = document(tree, dice, format!(".harness/hooks/{name}.md"), Hook, event.clone());
            let two = document(tree, dice, format!(".harness/builtins/{name}/hooks/{name}.md"), Hook, event);
            (vec![(one, Some(1)), (two, Some(1))], Some(true))
        }
        "bundles" => {
            let one = document(tree, dice, format!(".harness/plugins/{name}.md"), Bundle, None);
            document(tree, dice, format!(".harness/plugins/{name}/hooks/x.md"), Hook, event);
            (vec![(one, None)], Some(true))
        }
        "tools/" => {
            document(tree, dice, ".harness/plugins/tools/x.md".to_owned(), Tool, None);
            (vec![(".harness/plugins/tools/".to_owned(), None)], Some(true))
        }
        "name" => {
            let path = document(tree, dice, ".harness/tools/a\u{1b}b\nc.md".to_owned(), Tool, None);
            (vec![(path, Some(1))], Some(false))
        }
        _ => {
            tree.files.insert(format!(".harness/plugins/{name}"), Content::Link("outside"));
            (vec![(format!(".harness/plugins/{name}"), None)], Some(true))
        }
    }
}

/// The errors of a registry: each at the fault, or about what is missing because of it.
fn check(registry: &Registry, fault: &Fault) -> Result<(), String> {
    let said = |what: &str| Err(format!("{} at {:?}: {what}", fault.what, fault.places));
    let mut found = false;
    for one in registry.diagnostics().iter() {
        let shown = registry.render(one, false);
        if shown.chars().any(|c| harness_policy::text::is_hidden(c) && c != '\n') {
            return said(&format!("{shown:?} is not harmless"));
        }
        let here = fault.places.iter().any(|(file, line)| match &one.position {
            Some(at) => *at.file == **file && line.is_none_or(|line| line == at.line),
            None => one.message.contains(&format!("`{file}")),
        });
        found |= here && one.severity == Severity::Error;
        if one.severity == Severity::Error && !here && !one.message.contains("which no artifact defines") {
            return said(&shown);
        }
    }
    match fault.guard {
        _ if !found => said("not told"),
        Some(guard) if guard != registry.policy().is_none() => said(&format!("a guard is lost: {guard}")),
        _ => Ok(()),
    }
}

#[test]
fn well_formed_and_with_one_fault() {
    let mut dice = Dice { rng: TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]), names: 0 };
    let mut wrong = BTreeMap::new();
    for number in 0..TREES {
        let root = tempfile::tempdir().unwrap();
        let mut tree = Tree::new(&mut dice);
        tree.write(root.path(), None);
        let registry = Registry::load(root.path());
        let told: Vec<String> = registry.diagnostics().iter().map(|one| registry.render(one, false)).collect();
        assert!(told.is_empty() && registry.policy().is_some(), "{number}: {told:#?}\n{:#?}", tree.files);
        let names = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(names(registry.tools().iter().map(|one| one.name.as_str()).collect()), tree.tools);
        assert_eq!(names(registry.hooks().iter().map(|one| one.name.as_str()).collect()), tree.hooks);
        assert_eq!(names(registry.agents().iter().map(|one| one.name.as_str()).collect()), tree.agents);
        assert_eq!((registry.tools().len(), registry.replaced().len()), (tree.tools.len(), tree.replaced));

        let before = tree.clone();
        let fault = spoil(&mut tree, &mut dice, number);
        tree.write(root.path(), Some(&before));
        let registry = Registry::load(root.path());
        if let Err(why) = check(&registry, &fault) {
            wrong.insert(fault.what, why);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
