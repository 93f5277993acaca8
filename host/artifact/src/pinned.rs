//! What a server was when someone looked at it, and what of it is another one now.

use super::definition::{Definition, Transport};
use super::difference::{compared, cut};
use harness_policy::text::quoted;

/// Lines that are shown of the changes of a server.
const MAX_LINES: usize = 60;

/// A server as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Pinned {
    /// Its name in the policy.
    pub server: String,
    /// Where it is.
    pub endpoint: PinnedEndpoint,
    /// The revision of the protocol that it speaks.
    pub version: String,
    /// What it tells models of itself.
    pub instructions: Option<String>,
    /// Its tools that are tools of the project, in the order of their names.
    pub tools: Vec<Definition>,
}

/// Where a server was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinnedEndpoint {
    /// A command of this machine.
    Command {
        /// As the policy has it.
        command: Vec<String>,
        /// The digest of the program's file.
        program: String,
        /// What the host fetched for it; none where it is no package runner.
        packages: Option<PinnedPackages>,
    },
    /// A URL.
    Url(String),
}

/// The packages of a server, as they were fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedPackages {
    /// The digest of all that was installed: `sha256:` and 64 hexadecimal digits.
    tree: String,
    /// The moment before which what was taken had been published, as RFC 3339 has it, in UTC and whole seconds.
    before: String,
}

impl PinnedPackages {
    /// # Errors
    ///
    /// What of the two is not in its form: the first becomes a path, the second an argument.
    pub fn new(tree: String, before: String) -> Result<Self, String> {
        let is_hex = |c: char| c.is_ascii_digit() || matches!(c, 'a'..='f');
        if !tree.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.chars().all(is_hex)) {
            return Err(format!("{} is not the digest of packages", quoted(&tree)));
        }
        let like = |c: char, form: char| if form == '0' { c.is_ascii_digit() } else { c == form };
        let form = "0000-00-00T00:00:00Z";
        if before.len() != form.len() || !before.chars().zip(form.chars()).all(|(c, form)| like(c, form)) {
            return Err(format!("{} is not a moment such as `2026-07-28T12:00:00Z`", quoted(&before)));
        }
        Ok(Self { tree, before })
    }

    /// The digest of all that was installed: `sha256:` and 64 hexadecimal digits.
    pub fn tree(&self) -> &str {
        &self.tree
    }

    /// The moment before which what was taken had been published, such as `2026-07-28T12:00:00Z`.
    pub fn before(&self) -> &str {
        &self.before
    }
}

impl PinnedEndpoint {
    /// How it is spoken to.
    pub fn transport(&self) -> Transport {
        match self {
            Self::Command { .. } => Transport::Stdio,
            Self::Url(_) => Transport::Http,
        }
    }

    /// What of it is another one in `new`.
    pub fn changes(&self, new: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        match (self, new) {
            (
                Self::Command { command: old, program: was, packages: had },
                Self::Command { command: new, program: is, packages: has },
            ) => {
                if old != new {
                    let lines = |command: &[String]| command.iter().map(|word| format!("{word}\n")).collect::<String>();
                    let lines = compared("command", &lines(old), &lines(new));
                    changes.push(Change { what: "its command changed".to_owned(), lines });
                }
                if had != has {
                    changes.push(Change::packages());
                } else if was != is {
                    changes.push(Change::new("the file of its program changed"));
                }
            }
            (Self::Url(old), Self::Url(new)) if old != new => {
                let lines = compared("url", &format!("{old}\n"), &format!("{new}\n"));
                changes.push(Change { what: "its url changed".to_owned(), lines });
            }
            (Self::Url(_), Self::Url(_)) => {}
            (old, new) => {
                let (new, old) = (new.transport().name(), old.transport().name());
                changes.push(Change::new(format!("its transport is {new} instead of {old}")));
            }
        }
        changes
    }
}

/// Something of a server that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// In one line, such as ``the tool `read` changed``.
    pub what: String,
    /// Line by line, where there is a text to compare.
    pub lines: Vec<String>,
}

impl Change {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), lines: Vec::new() }
    }

    /// Other packages.
    pub fn packages() -> Self {
        Self::new("its packages changed")
    }
}

impl Pinned {
    /// What of it is another one in `new`: nothing where both are the same.
    pub fn changes(&self, new: &Self) -> Vec<Change> {
        let mut changes = self.endpoint.changes(&new.endpoint);
        if self.version != new.version {
            changes.push(Change::new(format!("it speaks {} instead of {}", new.version, self.version)));
        }
        changes.extend(instructions(self.instructions.as_deref(), new.instructions.as_deref()));
        changes.extend(tools(&self.tools, &new.tools));
        changes
    }
}

/// What of a server's instructions is another text.
pub fn instructions(old: Option<&str>, new: Option<&str>) -> Option<Change> {
    (old != new).then(|| {
        let text = |text: Option<&str>| text.map(|text| format!("{text}\n")).unwrap_or_default();
        Change { what: "its instructions changed".to_owned(), lines: compared("instructions", &text(old), &text(new)) }
    })
}

/// Which tools were added, removed or changed, by name.
pub fn tools(old: &[Definition], new: &[Definition]) -> Vec<Change> {
    let find = |all: &'_ [Definition], name: &str| all.iter().find(|one| one.name() == name).cloned();
    let mut changes = Vec::new();
    for was in old {
        match find(new, was.name()) {
            None => changes.push(Change::new(format!("the tool {} was removed", quoted(was.name())))),
            Some(is) if is.canonical() != was.canonical() => {
                let text = |one: &Definition| format!("{}\n", one.lines());
                let lines = compared(was.name(), &text(was), &text(&is));
                changes.push(Change { what: format!("the tool {} changed", quoted(was.name())), lines });
            }
            Some(_) => {}
        }
    }
    let added = new.iter().filter(|one| find(old, one.name()).is_none());
    changes.extend(added.map(|one| Change::new(format!("the tool {} was added", quoted(one.name())))));
    changes
}

/// All changes in one line, and line by line below that, where there are texts to compare.
pub fn describe(server: &str, changes: &[Change]) -> (String, Option<String>) {
    let what: Vec<&str> = changes.iter().map(|change| change.what.as_str()).collect();
    let shown = what.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    let rest = what.len().saturating_sub(5);
    let more = if rest > 0 { format!(", and {rest} more") } else { String::new() };
    let lines = cut(changes.iter().flat_map(|change| change.lines.clone()).collect(), MAX_LINES);
    let line = format!("the server {} differs from `harness.lock`: {shown}{more}", quoted(server));
    (line, (!lines.is_empty()).then(|| lines.join("\n")))
}

#[cfg(test)]
mod mutations;
#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    use super::*;

    fn tool(name: &str, description: &str) -> Definition {
        let json = json!({"description": description, "name": name, "inputSchema": {"type": "object"}});
        Definition::read(json).unwrap()
    }

    fn command(words: &[&str], program: &str) -> PinnedEndpoint {
        let command = words.iter().map(|word| (*word).to_owned()).collect();
        PinnedEndpoint::Command { command, program: program.to_owned(), packages: None }
    }

    fn fetched(tree: char, before: &str, program: &str) -> PinnedEndpoint {
        let packages =
            PinnedPackages::new(format!("sha256:{}", tree.to_string().repeat(64)), before.to_owned()).unwrap();
        let command = vec!["npx".to_owned(), "a@1.0.0".to_owned()];
        PinnedEndpoint::Command { command, program: program.to_owned(), packages: Some(packages) }
    }

    #[test]
    fn packages_are_their_tree() {
        let of = |tree, before: &str, program: &str| Pinned { endpoint: fetched(tree, before, program), ..server() };
        let was = of('a', "2026-07-28T12:00:00Z", "sha256:1");
        assert_eq!(was.changes(&was), []);
        let changed = |now: &Pinned| was.changes(now).into_iter().map(|change| change.what).collect::<Vec<_>>();
        // What is fetched for this moment may be another tree.
        assert_eq!(changed(&of('a', "2026-08-01T00:00:00Z", "sha256:1")), ["its packages changed"]);
        // The program is one of them.
        assert_eq!(changed(&of('b', "2026-07-28T12:00:00Z", "sha256:2")), ["its packages changed"]);
        let runner = Pinned { endpoint: command(&["npx", "a@1.0.0"], "sha256:1"), ..server() };
        assert_eq!(changed(&runner), ["its packages changed"]);
        assert_eq!(runner.changes(&was).len(), 1);
    }

    #[test]
    fn what_becomes_a_path_and_an_argument_has_one_form() {
        let (tree, before) = (format!("sha256:{}", "0a".repeat(32)), "2026-07-28T12:00:00Z");
        assert!(PinnedPackages::new(tree.clone(), before.to_owned()).is_ok());
        for wrong in ["", "sha256:", "sha256:../../../x", &tree.to_uppercase(), &format!("{tree}0"), &"0a".repeat(32)] {
            let why = format!("{} is not the digest of packages", quoted(wrong));
            assert_eq!(PinnedPackages::new(wrong.to_owned(), before.to_owned()), Err(why));
        }
        for wrong in
            ["", "now", "2026-07-28", "2026-07-28T12:00:00+01:00", "--before=0000000000", "２026-07-28T12:00:00"]
        {
            let why = format!("`{wrong}` is not a moment such as `2026-07-28T12:00:00Z`");
            assert_eq!(PinnedPackages::new(tree.clone(), wrong.to_owned()), Err(why));
        }
    }

    fn server() -> Pinned {
        Pinned {
            server: "files".to_owned(),
            endpoint: command(&["mcp-files", "--x"], "sha256:1"),
            version: "2025-11-25".to_owned(),
            instructions: Some("Be kind.".to_owned()),
            tools: vec![tool("read", "Reads."), tool("write", "Writes.")],
        }
    }

    fn told(new: &Pinned) -> (String, Option<String>) {
        let server = server();
        describe("files", &server.changes(new))
    }

    #[test]
    fn each_change_is_shown() {
        assert_eq!(server().changes(&server()), []);
        let tools = |tools: Vec<Definition>| told(&Pinned { tools, ..server() });
        let differs = "the server `files` differs from `harness.lock`: ";
        assert_eq!(
            tools(vec![tool("read", "Reads, and tells."), tool("write", "Writes.")]),
            (
                format!("{differs}the tool `read` changed"),
                Some("read:\n  {\n-   \"description\": \"Reads.\",\n+   \"description\": \"Reads, and tells.\",\n    \"inputSchema\": {".to_owned())
            )
        );
        // A tool of another name is another tool.
        assert_eq!(
            tools(vec![tool("read", "Reads."), tool("Write", "Writes.")]),
            (format!("{differs}the tool `write` was removed, the tool `Write` was added"), None)
        );
        assert_eq!(
            told(&Pinned {
                instructions: None,
                endpoint: command(&["mcp-files", "--x"], ""),
                version: "2026-07-28".to_owned(),
                ..server()
            }),
            (
                format!(
                    "{differs}the file of its program changed, it speaks 2026-07-28 instead of 2025-11-25, its instructions changed"
                ),
                Some("instructions:\n- Be kind.".to_owned())
            )
        );
        assert_eq!(
            told(&Pinned { endpoint: command(&["mcp-files"], "sha256:1"), ..server() }),
            (format!("{differs}its command changed"), Some("command:\n  mcp-files\n- --x".to_owned()))
        );
        let at = |url: &str| Pinned { endpoint: PinnedEndpoint::Url(url.to_owned()), ..server() };
        assert_eq!(told(&at("https://a.example/")), (format!("{differs}its transport is http instead of stdio"), None));
        assert_eq!(at("https://a.example/").changes(&at("https://a.example/")), []);
        assert_eq!(
            describe("files", &at("https://a.example/").changes(&at("https://b.example/"))),
            (format!("{differs}its url changed"), Some("url:\n- https://a.example/\n+ https://b.example/".to_owned()))
        );
    }

    /// A definition with every kind of value, for changes of single bytes.
    fn rich() -> Json {
        json!({
            "name": "read", "title": "Read", "description": "Reads a file.",
            "inputSchema": {"type": "object", "properties": {"path": {"type": "string", "maxLength": 100}}, "required": ["path"]},
            "outputSchema": {"type": "object", "properties": {"n": {"type": "number", "minimum": -1.5}}},
            "annotations": {"readOnlyHint": true, "destructiveHint": false, "title": null},
            "_meta": {"com.example/x": [1, 2, {"a": "b"}]}, "icons": [{"src": "https://a.example/i.png"}],
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        /// Each change of one byte that leaves a definition is seen, and is no longer the tool that was locked.
        #[test]
        fn no_change_of_a_byte_is_missed(at in 0_usize..400, byte in 32_u8..127) {
            let text = rich().to_string();
            let mut bytes = text.clone().into_bytes();
            let at = at % bytes.len();
            prop_assume!(bytes[at] != byte);
            bytes[at] = byte;
            let locked = Definition::read(rich()).unwrap();
            let changed = serde_json::from_slice(&bytes).ok().and_then(|json: Json| Definition::read(json).ok());
            if let Some(changed) = changed.filter(|changed| *changed.json() != rich()) {
                prop_assert!(!tools(std::slice::from_ref(&locked), std::slice::from_ref(&changed)).is_empty());
            }
        }
    }
}
