//! The parts of a folder that a Claude plugin is: what its `plugin.json`, or the entry of a marketplace, picks beside or
//! instead of the default folders.
//!
//! - `skills` adds folders to `skills/`: a skill itself, or one with skills in it
//! - `agents` and `commands` replace `agents/` and `commands/`: files, or folders with files in them
//! - `mcpServers` adds to `.mcp.json`: files, or servers themselves
//!
//! An entry with `strict: false` is all of the plugin: what it does not list does not come along.

use serde_json::{Map, Value as Json};

use harness_policy::text::quoted;

/// Keys that pick parts.
const PARTS: [&str; 4] = ["skills", "agents", "commands", MCP];
const MCP: &str = "mcpServers";
/// Keys that an entry says what `plugin.json` does not say with.
const WORDS: [&str; 5] = ["version", "description", "author", "license", "homepage"];
const STRICT: &str = "strict";
/// Keys of what another program would run.
const RUN: [&str; 3] = ["hooks", "lspServers", "monitors"];
/// Paths of one key, and bytes of what an entry picks, as text.
const MAX_PATHS: usize = 200;
const MAX_BYTES: usize = 32 << 10;

/// The parts that a manifest or an entry picks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// Whether the default folders count, too.
    pub(super) has_defaults: bool,
    /// Folders of skills, without the slash at their end. The folder itself is "".
    pub(super) skills: Vec<String>,
    /// Files and folders of agents; none where the default folder counts.
    pub(super) agents: Option<Vec<String>>,
    /// Files and folders of commands; none where the default folder counts.
    pub(super) commands: Option<Vec<String>>,
    /// Files with servers.
    pub(super) server_files: Vec<String>,
    /// Servers themselves, by name.
    pub(super) servers: Vec<Map<String, Json>>,
    /// Keys of what another program would run.
    pub(super) left_out: Vec<String>,
    /// What it says beside that.
    pub(super) words: Map<String, Json>,
    /// The keys of it that count.
    written: Map<String, Json>,
}

impl Listing {
    /// Reads the parts that an entry of a marketplace picks. None where it picks none: then the folder is read as it is.
    ///
    /// # Errors
    ///
    /// It picks something that is not inside the plugin, in words that follow the name of the plugin.
    pub fn of_entry(entry: &Map<String, Json>) -> Result<Option<Self>, String> {
        let is_given = |key: &&str| entry.get(*key).is_some_and(|value| !value.is_null());
        if !PARTS.iter().any(|key| is_given(&key)) {
            return Ok(None);
        }
        let counts = PARTS.iter().chain(&WORDS).chain([&STRICT]).copied();
        let written: Map<String, Json> =
            counts.filter(is_given).filter_map(|key| Some((key.to_owned(), entry.get(key)?.clone()))).collect();
        if Json::Object(written.clone()).to_string().len() > MAX_BYTES {
            return Err(format!("picks parts of a folder in more than {MAX_BYTES} bytes"));
        }
        let has_defaults = match entry.get(STRICT) {
            None | Some(Json::Null | Json::Bool(true)) => true,
            Some(Json::Bool(false)) => false,
            Some(_) => return Err("has a `strict` that is neither true nor false".to_owned()),
        };
        let words = WORDS.into_iter().filter_map(|key| Some((key.to_owned(), written.get(key)?.clone()))).collect();
        Self::read(&written).map(|listing| Some(Self { has_defaults, words, written, ..listing }))
    }

    /// Reads what [`text`](Self::text) wrote.
    ///
    /// # Errors
    ///
    /// It is not what that wrote.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "its parts are not as they were written".to_owned();
        let Ok(Json::Object(entry)) = serde_json::from_str::<Json>(text) else { return Err(wrong()) };
        Self::of_entry(&entry)?.filter(|listing| listing.text() == text).ok_or_else(wrong)
    }

    /// The keys of an entry that count, as text that is the same for the same entry.
    pub fn text(&self) -> String {
        Json::Object(self.written.clone()).to_string()
    }

    /// Reads the parts that a `plugin.json` picks.
    ///
    /// # Errors
    ///
    /// It picks something that is not inside the plugin, in words that follow its name.
    pub(super) fn of_manifest(manifest: &Map<String, Json>) -> Result<Self, String> {
        let listing = Self::read(manifest)?;
        Ok(Self { has_defaults: true, ..listing })
    }

    fn read(keys: &Map<String, Json>) -> Result<Self, String> {
        let listed =
            |key: &str| keys.get(key).filter(|value| !value.is_null()).map(|value| paths(key, value)).transpose();
        let (mut server_files, mut servers) = (Vec::new(), Vec::new());
        // A path leads to a file, which is named by itself.
        let is_inline = |key: &&str| matches!(keys.get(*key), Some(Json::Object(_) | Json::Array(_)));
        let mut left_out: Vec<String> = RUN.into_iter().filter(is_inline).map(str::to_owned).collect();
        let all = match keys.get(MCP) {
            None | Some(Json::Null) => Vec::new(),
            Some(Json::Array(all)) if all.len() <= MAX_PATHS => all.iter().collect(),
            Some(one @ (Json::String(_) | Json::Object(_))) => vec![one],
            Some(_) => return Err(format!("has `{MCP}` that are neither paths nor servers")),
        };
        for one in all {
            match one {
                // Packed servers, and those elsewhere, are programs that would be fetched and run.
                Json::String(path)
                    if path.contains("://") || [".mcpb", ".dxt"].iter().any(|end| path.ends_with(end)) =>
                {
                    left_out.push(format!("{MCP}: {path}"));
                }
                Json::String(path) => server_files.push(inside(MCP, path)?),
                Json::Object(all) => servers.push(match all.get(MCP) {
                    Some(Json::Object(inner)) => inner.clone(),
                    _ => all.clone(),
                }),
                _ => return Err(format!("has `{MCP}` that are neither paths nor servers")),
            }
        }
        Ok(Self {
            skills: listed("skills")?.unwrap_or_default(),
            agents: listed("agents")?,
            commands: listed("commands")?,
            server_files,
            servers,
            left_out,
            ..Self::default()
        })
    }

    /// Whether it picks parts.
    pub(super) fn is_empty(&self) -> bool {
        self.skills.is_empty()
            && self.agents.is_none()
            && self.commands.is_none()
            && self.server_files.is_empty()
            && self.servers.is_empty()
    }

    /// What a manifest picks together with what an entry does.
    ///
    /// # Errors
    ///
    /// The entry is all of the plugin, and the manifest picks parts as well.
    pub(super) fn joined(self, entry: Option<&Self>) -> Result<Self, String> {
        let Some(entry) = entry else { return Ok(self) };
        if !entry.has_defaults {
            return match self.is_empty() {
                true => Ok(Self { left_out: [self.left_out, entry.left_out.clone()].concat(), ..entry.clone() }),
                false => {
                    Err("its `plugin.json` picks parts, and so does the catalogue, with `strict: false`".to_owned())
                }
            };
        }
        let both = |own: Option<Vec<String>>, more: &Option<Vec<String>>| match (own, more) {
            (Some(own), Some(more)) => Some([own, more.clone()].concat()),
            (own, more) => own.or_else(|| more.clone()),
        };
        Ok(Self {
            has_defaults: true,
            skills: [self.skills, entry.skills.clone()].concat(),
            agents: both(self.agents, &entry.agents),
            commands: both(self.commands, &entry.commands),
            server_files: [self.server_files, entry.server_files.clone()].concat(),
            servers: [self.servers, entry.servers.clone()].concat(),
            left_out: [self.left_out, entry.left_out.clone()].concat(),
            words: entry.words.clone(),
            written: Map::new(),
        })
    }
}

/// The paths of a key: one, or a list.
fn paths(key: &str, value: &Json) -> Result<Vec<String>, String> {
    let wrong = || format!("has `{key}` that are no paths");
    let one = |value: &Json| inside(key, value.as_str().ok_or_else(wrong)?);
    match value {
        Json::Array(all) if all.len() > MAX_PATHS => Err(format!("has more than {MAX_PATHS} `{key}`")),
        Json::Array(all) => all.iter().map(one).collect(),
        value => one(value).map(|path| vec![path]),
    }
}

/// A path inside the plugin, without `./` and without a slash at its end.
fn inside(key: &str, path: &str) -> Result<String, String> {
    let below = path.strip_prefix("./").map(|below| below.strip_suffix('/').unwrap_or(below));
    let is_inside = |below: &&str| {
        below.is_empty() || !below.contains('\\') && below.split('/').all(|part| !matches!(part, "" | "." | ".."))
    };
    let outside = || format!("has `{key}` with {}, which is not a path `./...` inside the plugin", quoted(path));
    below.filter(is_inside).map(str::to_owned).ok_or_else(outside)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(entry: Json) -> Result<Option<Listing>, String> {
        Listing::of_entry(entry.as_object().unwrap())
    }

    #[test]
    fn what_an_entry_picks() {
        let entry = json!({
            "name": "x", "source": "./", "category": "y", "strict": false, "description": "D.",
            "skills": ["./", "./a/b/"], "agents": "./c.md", "mcpServers": ["./d.json", {"db": {"command": "x"}}, "./e.mcpb"],
        });
        let listing = of(entry).unwrap().unwrap();
        assert_eq!(listing.skills, ["", "a/b"]);
        assert_eq!((listing.agents.clone(), listing.commands.clone()), (Some(vec!["c.md".to_owned()]), None));
        assert_eq!((listing.server_files.clone(), listing.servers.len()), (vec!["d.json".to_owned()], 1));
        assert_eq!((listing.left_out.clone(), listing.has_defaults), (vec!["mcpServers: ./e.mcpb".to_owned()], false));
        // What is kept of it is read as the same.
        assert!(!listing.text().contains("category"), "{}", listing.text());
        assert_eq!(Listing::parse(&listing.text()), Ok(listing.clone()));
        for text in ["", "{}", "[]", "{\"skills\":[\"../x\"]}", &format!(" {}", listing.text())] {
            assert!(Listing::parse(text).is_err(), "{text}");
        }
        for none in [json!({}), json!({"skills": null}), json!({"strict": false}), json!({"hooks": {}})] {
            assert_eq!(of(none), Ok(None));
        }
    }

    #[test]
    fn what_is_not_inside_is_refused() {
        for key in PARTS {
            for path in [
                "../a",
                "/a",
                "a",
                "",
                ".",
                "..",
                "./../a",
                "./a/../b",
                "./a//b",
                ".//a",
                "./a\\..\\b",
                "./a/./b",
                "~/a",
            ] {
                let outside =
                    format!("has `{key}` with {}, which is not a path `./...` inside the plugin", quoted(path));
                assert_eq!(of(json!({key: path})), Err(outside.clone()), "{key} {path}");
                assert_eq!(of(json!({key: ["./a", path]})), Err(outside), "{key} {path}");
            }
            assert!(of(json!({key: "./a"})).is_ok());
            for other in [json!(7), json!([7]), json!([["./a"]]), json!(true)] {
                assert!(of(json!({key: other.clone()})).is_err(), "{key} {other}");
            }
            assert!(of(json!({key: vec!["./a"; MAX_PATHS]})).is_ok());
            assert!(of(json!({key: vec!["./a"; MAX_PATHS + 1]})).is_err());
        }
        for key in ["skills", "agents", "commands"] {
            assert!(of(json!({key: {"a": "./a"}})).is_err(), "{key}");
        }
        assert!(of(json!({"skills": "./a", "strict": "no"})).is_err());
        assert!(of(json!({"skills": format!("./{}", "a".repeat(MAX_BYTES))})).is_err());
    }
}
