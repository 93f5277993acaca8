//! Plugins of other programs, made into plugins of this one: Claude plugins, and folders of Agent Skills.
//!
//! What is prose comes along: skills, agents and commands. What another program would run does not: hooks and programs are
//! named, so that a person sees them, and stay behind. The plugin asks for its servers as for everything else. The same files
//! become the same plugin on every machine.

mod prose;
mod servers;

use std::collections::{BTreeMap, BTreeSet};

use semver::Version;
use serde_json::{Map, Value as Json, json};

use self::prose::{agent, command, is_name, skill};
pub use self::servers::Server;
use super::plugin::{FILE, MAX_TEXT, check_name};
use harness_policy::text::quoted;

/// What a Claude plugin says of itself.
const MANIFEST: &str = ".claude-plugin/plugin.json";
/// The prose of a skill.
pub(crate) const SKILL: &str = "SKILL.md";
/// The servers of a plugin.
pub const SERVERS: &str = ".mcp.json";
/// The version of a plugin that has none.
const NO_VERSION: Version = Version::new(0, 0, 0);
/// Authors that are taken over, and characters of each.
const MAX_AUTHORS: usize = 20;
const MAX_AUTHOR: usize = 200;

/// The files of a plugin, by their paths.
pub type Files<'f> = BTreeMap<&'f str, &'f [u8]>;

/// A plugin that was made of another program's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// What it was, in words that follow "from".
    pub form: &'static str,
    /// Its files, with a `plugin.md`.
    pub files: Vec<(String, Vec<u8>)>,
    /// What was left behind: each path, and the reason where it is none that is obvious.
    pub left_out: Vec<String>,
}

/// Whether files are a plugin of another program, and none of this one.
pub fn is_foreign(files: &Files<'_>) -> bool {
    let is_skill = |path: &&str| path.strip_prefix("skills/").is_some_and(|rest| rest.ends_with("/SKILL.md"));
    !files.contains_key(FILE)
        && (files.contains_key(MANIFEST) || files.contains_key(SKILL) || files.keys().any(is_skill))
}

/// Makes a plugin of another program's. `name` is what a person or a catalogue calls it; its own name counts without it.
///
/// # Errors
///
/// It has no name that a plugin can have, a manifest that cannot be read, or nothing that comes along.
pub fn convert(files: &Files<'_>, name: Option<&str>) -> Result<Converted, String> {
    let manifest = manifest(files)?;
    let mut parts = Parts::default();
    if files.contains_key(SKILL) && !files.contains_key(MANIFEST) {
        parts.whole_skill(files)?;
    } else {
        parts.collect(files);
    }
    let text = |key: &str| manifest.get(key).and_then(Json::as_str).map(str::trim).filter(|text| !text.is_empty());
    let own = text("name").map(str::to_owned).or_else(|| parts.only_skill());
    let Some(name) = name.map(str::to_owned).or(own) else {
        return Err("it says no name: name it as a catalogue does, or fetch one of its skills".to_owned());
    };
    check_name(&name)?;
    if parts.files.is_empty() {
        return Err("it has no skill, agent or command that comes along".to_owned());
    }
    let version = text("version").and_then(|version| Version::parse(version).ok()).unwrap_or(NO_VERSION);
    let form = if manifest.is_empty() { "a folder of Agent Skills" } else { "a Claude plugin" };
    let description = text("description").map(str::to_owned).or_else(|| parts.descriptions.values().next().cloned());
    let mut front = vec![
        ("name", Json::from(name)),
        ("version", version.to_string().into()),
        ("description", cut(&description.unwrap_or_else(|| format!("Made from {form}.")), MAX_TEXT).into()),
    ];
    front.extend(text("license").map(|license| ("license", cut(license, MAX_TEXT).into())));
    front.extend(authors(&manifest).map(|authors| ("authors", authors)));
    let is_address = |text: &&str| ["https://", "http://"].iter().any(|begin| text.starts_with(begin));
    front.extend(text("homepage").filter(is_address).map(|homepage| ("homepage", homepage.into())));
    front.push(("asks", asks(files)));
    parts.files.insert(FILE.to_owned(), document(&front, ""));
    if let Some(servers) = files.get(SERVERS) {
        // Read again whenever the plugin is: the digest of the plugin is over it.
        parts.used.insert(SERVERS.to_owned());
        parts.files.insert(SERVERS.to_owned(), servers.to_vec());
    }
    let left_out = parts.left_out(files);
    Ok(Converted { form, files: parts.files.into_iter().collect(), left_out })
}

/// What the plugin asks for: that its prose is shown to models, and each server that can be had.
fn asks(files: &Files<'_>) -> Json {
    let prompt = json!({"reason": "Puts its skills and agents into the prompts of models.", "services": ["prompt"]});
    let servers = servers(files.get(SERVERS).copied());
    let names: Vec<String> = servers.into_iter().filter(|one| one.entry.is_ok()).map(|one| one.name).collect();
    let of_servers = json!({"reason": "Its `.mcp.json` names these servers.", "mcp": names});
    let of_servers = (!names.is_empty()).then_some(of_servers);
    std::iter::once(prompt).chain(of_servers).collect()
}

/// A file with front matter. JSON is YAML.
fn document(front: &[(&str, Json)], body: &str) -> Vec<u8> {
    let lines: String = front.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
    format!("---\n{lines}---\n{body}").into_bytes()
}

/// The beginning of a text.
fn cut(text: &str, most: usize) -> String {
    text.trim().chars().take(most).collect()
}

/// What a Claude plugin says of itself; empty where the files are none.
fn manifest(files: &Files<'_>) -> Result<Map<String, Json>, String> {
    let Some(text) = files.get(MANIFEST) else { return Ok(Map::new()) };
    match serde_json::from_slice(text) {
        Ok(Json::Object(manifest)) => Ok(manifest),
        Ok(_) => Err(format!("`{MANIFEST}` is no mapping")),
        Err(error) => Err(format!("`{MANIFEST}` is not JSON: {error}")),
    }
}

fn authors(manifest: &Map<String, Json>) -> Option<Json> {
    let author = |author: &Json| match author {
        Json::String(text) => Some(cut(text, MAX_AUTHOR)),
        Json::Object(author) => {
            let text = |key: &str| author.get(key).and_then(Json::as_str);
            let email = text("email").map(|email| format!(" <{email}>")).unwrap_or_default();
            text("name").map(|name| cut(&format!("{name}{email}"), MAX_AUTHOR))
        }
        _ => None,
    };
    let authors: Vec<String> = match manifest.get("author")? {
        Json::Array(all) => all.iter().filter_map(author).take(MAX_AUTHORS).collect(),
        one => author(one).into_iter().collect(),
    };
    (!authors.is_empty()).then(|| authors.into())
}

/// The servers that a plugin brings in its `.mcp.json`. None of them is started by that.
pub fn servers(file: Option<&[u8]>) -> Vec<Server> {
    file.map(servers::read).unwrap_or_default()
}

/// What comes along.
#[derive(Debug, Default)]
struct Parts {
    files: BTreeMap<String, Vec<u8>>,
    /// The description of each skill and agent, by its name.
    descriptions: BTreeMap<String, String>,
    /// Files that were used.
    used: BTreeSet<String>,
    /// Why a file that seemed to be prose was not.
    refused: BTreeMap<String, String>,
}

impl Parts {
    /// All files are those of one skill.
    fn whole_skill(&mut self, files: &Files<'_>) -> Result<(), String> {
        let text = files.get(SKILL).copied().unwrap_or_default();
        let name = prose::name(text).ok_or_else(|| format!("`{SKILL}` says no `name` that a skill can have"))?;
        self.skill(&name, SKILL, "", files);
        match self.refused.remove(SKILL) {
            Some(why) => Err(format!("`{SKILL}`: {why}")),
            None => Ok(()),
        }
    }

    fn collect(&mut self, files: &Files<'_>) {
        for path in files.keys() {
            let parts: Vec<&str> = path.split('/').collect();
            match parts.as_slice() {
                ["skills", name, SKILL] => self.skill(name, path, &format!("skills/{name}/"), files),
                ["agents", file] => self.single(path, file, files, "agents", agent),
                _ => {}
            }
        }
        // A skill of the same name counts.
        for path in files.keys() {
            if let Some(file) = path.strip_prefix("commands/").filter(|file| !file.contains('/')) {
                self.single(path, file, files, "skills", command);
            }
        }
    }

    /// A skill with the files of its folder.
    fn skill(&mut self, name: &str, path: &str, folder: &str, files: &Files<'_>) {
        let Some(text) = files.get(path) else { return };
        let made = is_name(name).and_then(|()| skill(name, text));
        let Some(text) = self.made(name, path, made) else { return };
        self.files.insert(format!("skills/{name}/{SKILL}"), text);
        let beside = files.iter().filter(|(other, _)| other.starts_with(folder) && **other != path);
        for (other, text) in beside {
            let below = other.strip_prefix(folder).unwrap_or(other);
            if !below.split('/').any(|part| part.starts_with('.')) {
                self.used.insert((*other).to_owned());
                self.files.insert(format!("skills/{name}/{below}"), text.to_vec());
            }
        }
    }

    /// A file that becomes another one.
    fn single(
        &mut self,
        path: &str,
        file: &str,
        files: &Files<'_>,
        folder: &str,
        make: impl Fn(&str, &[u8]) -> Result<(String, Vec<u8>), String>,
    ) {
        let Some((name, text)) = file.strip_suffix(".md").zip(files.get(path)) else { return };
        if folder == "skills" && self.files.contains_key(&format!("skills/{name}/{SKILL}")) {
            self.refused.insert(path.to_owned(), "a skill has its name".to_owned());
            return;
        }
        let made = is_name(name).and_then(|()| make(name, text));
        if let Some(text) = self.made(name, path, made) {
            self.files.insert(format!("{folder}/{name}.md"), text);
        }
    }

    fn made(&mut self, name: &str, path: &str, made: Result<(String, Vec<u8>), String>) -> Option<Vec<u8>> {
        match made {
            Ok((description, text)) => {
                self.used.insert(path.to_owned());
                self.descriptions.insert(name.to_owned(), description);
                Some(text)
            }
            Err(why) => {
                self.refused.insert(path.to_owned(), why);
                None
            }
        }
    }

    /// The name of the only skill.
    fn only_skill(&self) -> Option<String> {
        let mut names = self.descriptions.keys();
        names.next().filter(|_| names.next().is_none()).cloned()
    }

    /// What stays behind, in the order of the paths.
    fn left_out(&self, files: &Files<'_>) -> Vec<String> {
        let is_left = |path: &&&str| !self.used.contains(**path) && **path != MANIFEST;
        let shown = files.keys().filter(is_left).map(|path| match self.refused.get(*path) {
            Some(why) => format!("{path}: {why}"),
            None => (*path).to_owned(),
        });
        shown.collect()
    }
}

/// Why something is no name of a skill or an agent.
pub(crate) fn not_a_name(name: &str) -> String {
    format!("{} is not a name of small letters, digits and single hyphens", quoted(name))
}

#[cfg(test)]
mod tests;
