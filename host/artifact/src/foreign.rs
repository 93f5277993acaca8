//! Plugins of other programs, made into plugins of this one: Claude plugins, and folders of Agent Skills.
//!
//! What is prose comes along: skills, agents and commands. What another program would run does not: hooks and programs are
//! named, so that a person sees them, and stay behind. The plugin asks for its servers as for everything else. The same files
//! become the same plugin on every machine.

mod listing;
mod prose;
mod servers;

use std::collections::{BTreeMap, BTreeSet};

use semver::Version;
use serde_json::{Map, Value as Json, json};

pub use self::listing::Listing;
use self::prose::{agent, command, is_name, skill};
pub use self::servers::Server;
use super::plugin::{FILE, MAX_TEXT, check_name};
use harness_policy::text::quoted;

/// What a Claude plugin says of itself.
const MANIFEST: &str = ".claude-plugin/plugin.json";
/// The prose of a skill.
pub(crate) const SKILL: &str = "SKILL.md";
/// The servers of a plugin: those that it lists elsewhere, too, once it was converted.
pub const SERVERS: &str = ".mcp.json";
/// Folders of the root that are no part of a skill there.
const FOLDERS: [&str; 5] = ["skills", "agents", "commands", "hooks", "bin"];
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
    // A catalogue may pick one that is elsewhere.
    let is_skill = |path: &&str| path.ends_with("/SKILL.md");
    !files.contains_key(FILE)
        && (files.contains_key(MANIFEST) || files.contains_key(SKILL) || files.keys().any(is_skill))
}

/// Makes a plugin of another program's. `name` is what a person or a catalogue calls it; its own name counts without it.
/// `entry` is what the entry of a marketplace picks.
///
/// # Errors
///
/// It has no name that a plugin can have, a manifest that cannot be read or that picks what is outside of it, or nothing that
/// comes along.
pub fn convert(files: &Files<'_>, name: Option<&str>, entry: Option<&Listing>) -> Result<Converted, String> {
    let manifest = manifest(files)?;
    let own = Listing::of_manifest(&manifest).map_err(|why| format!("its `{MANIFEST}` {why}"))?;
    let listing = own.joined(entry)?;
    let mut parts = Parts::default();
    if files.contains_key(SKILL) && !files.contains_key(MANIFEST) && entry.is_none() {
        parts.whole_skill(files)?;
    } else {
        parts.collect(files, &listing);
    }
    let words = [&manifest, &listing.words];
    let text = |key: &str| {
        let mut texts = words.into_iter().filter_map(|of| of.get(key)).filter_map(Json::as_str).map(str::trim);
        texts.find(|text| !text.is_empty())
    };
    let own = text("name").map(str::to_owned).or_else(|| parts.only_skill());
    let Some(name) = name.map(str::to_owned).or(own) else {
        return Err("it says no name: name it as a catalogue does, or fetch one of its skills".to_owned());
    };
    check_name(&name)?;
    if parts.files.is_empty() {
        return Err("it has no skill, agent or command that comes along".to_owned());
    }
    let version = text("version").and_then(|version| Version::parse(version).ok()).unwrap_or(NO_VERSION);
    let is_claude = !manifest.is_empty() || entry.is_some();
    let form = if is_claude { "a Claude plugin" } else { "a folder of Agent Skills" };
    let description = text("description").map(str::to_owned).or_else(|| parts.descriptions.values().next().cloned());
    let mut front = vec![
        ("name", Json::from(name)),
        ("version", version.to_string().into()),
        ("description", cut(&description.unwrap_or_else(|| format!("Made from {form}.")), MAX_TEXT).into()),
    ];
    front.extend(text("license").map(|license| ("license", cut(license, MAX_TEXT).into())));
    front.extend(words.into_iter().find_map(authors).map(|authors| ("authors", authors)));
    let is_address = |text: &&str| ["https://", "http://"].iter().any(|begin| text.starts_with(begin));
    front.extend(text("homepage").filter(is_address).map(|homepage| ("homepage", homepage.into())));
    let servers = parts.servers(files, &listing);
    front.push(("asks", asks(servers.as_deref(), servers.as_deref() == files.get(SERVERS).copied())));
    parts.files.insert(FILE.to_owned(), document(&front, ""));
    // Read again whenever the plugin is: the digest of the plugin is over it.
    parts.files.extend(servers.map(|servers| (SERVERS.to_owned(), servers)));
    let left_out = parts.left_out(files, &listing);
    Ok(Converted { form, files: parts.files.into_iter().collect(), left_out })
}

/// What the plugin asks for: that its prose is shown to models, and each server that can be had.
fn asks(file: Option<&[u8]>, is_default: bool) -> Json {
    let prompt = json!({"reason": "Puts its skills and agents into the prompts of models.", "services": ["prompt"]});
    let names: Vec<String> = servers(file).into_iter().filter(|one| one.entry.is_ok()).map(|one| one.name).collect();
    let where_from = if is_default { "Its `.mcp.json` names these servers." } else { "It lists these servers." };
    let of_servers = json!({"reason": where_from, "mcp": names});
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
    /// What is listed and is not there.
    missing: Vec<String>,
    /// Whether they are those of a plugin, and not of one skill.
    is_plugin: bool,
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

    fn collect(&mut self, files: &Files<'_>, listing: &Listing) {
        self.is_plugin = true;
        let default = |folder: &str| if listing.has_defaults { vec![folder.to_owned()] } else { Vec::new() };
        for folder in default("skills") {
            self.skills_below(&folder, files);
        }
        for folder in &listing.skills {
            self.listed_skills(folder, files);
        }
        let agents = listing.agents.clone().unwrap_or_else(|| default("agents"));
        self.singles(&agents, ("agents", listing.agents.is_some()), files, agent);
        // A skill of the same name counts.
        let commands = listing.commands.clone().unwrap_or_else(|| default("commands"));
        self.singles(&commands, ("commands", listing.commands.is_some()), files, command);
    }

    /// The skills in a folder. Returns whether there is one.
    fn skills_below(&mut self, folder: &str, files: &Files<'_>) -> bool {
        let begin = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut has_one = false;
        for path in files.keys() {
            let below: Vec<&str> =
                path.strip_prefix(&begin).map(|below| below.split('/').collect()).unwrap_or_default();
            if let [name, SKILL] = below.as_slice() {
                has_one = true;
                self.skill(name, path, &format!("{begin}{name}/"), files);
            }
        }
        has_one
    }

    /// A listed folder: a skill, or one with skills in it.
    fn listed_skills(&mut self, folder: &str, files: &Files<'_>) {
        let path = if folder.is_empty() { SKILL.to_owned() } else { format!("{folder}/{SKILL}") };
        let name = match folder.rsplit('/').next() {
            Some("") | None => files.get(SKILL).and_then(|text| prose::name(text)),
            Some(name) => Some(name.to_owned()),
        };
        match (files.contains_key(path.as_str()), name) {
            (true, Some(name)) => {
                let beside = if folder.is_empty() { String::new() } else { format!("{folder}/") };
                self.skill(&name, &path, &beside, files);
            }
            (true, None) => {
                self.refused.insert(path, "it says no `name` that a skill can have".to_owned());
            }
            (false, _) => {
                if !self.skills_below(folder, files) {
                    self.missing.push(format!("./{folder}: it is listed in `skills`, and has no skill"));
                }
            }
        }
    }

    /// Files, and those in folders, each of which becomes another one.
    fn singles(
        &mut self,
        paths: &[String],
        (key, is_listed): (&str, bool),
        files: &Files<'_>,
        make: impl Fn(&str, &[u8]) -> Result<(String, Vec<u8>), String> + Copy,
    ) {
        let folder = if key == "agents" { "agents" } else { "skills" };
        for listed in paths {
            let begin = if listed.is_empty() { String::new() } else { format!("{listed}/") };
            let is_one = |path: &&&str| {
                path.strip_prefix(&begin).is_some_and(|file| !file.contains('/')) || **path == listed.as_str()
            };
            let mut has_one = false;
            for path in files.keys().filter(is_one).filter(|path| path.ends_with(".md")) {
                has_one = true;
                let file = path.rsplit('/').next().unwrap_or(path);
                self.single(path, file, files, folder, make);
            }
            if is_listed && !has_one {
                self.missing.push(format!("./{listed}: it is listed in `{key}`, and has no file of them"));
            }
        }
    }

    /// A skill with the files of its folder.
    fn skill(&mut self, name: &str, path: &str, folder: &str, files: &Files<'_>) {
        let Some(text) = files.get(path).filter(|_| !self.used.contains(path)) else { return };
        let is_taken = self.files.contains_key(&format!("skills/{name}/{SKILL}"));
        let taken = if is_taken { Err("a skill has its name".to_owned()) } else { Ok(()) };
        let made = taken.and_then(|()| is_name(name)).and_then(|()| skill(name, text));
        let Some(text) = self.made(name, path, made) else { return };
        self.files.insert(format!("skills/{name}/{SKILL}"), text);
        let is_part = |other: &str| match folder {
            // Of a skill at the root of a plugin, other parts of it are none.
            "" => !self.is_plugin || !FOLDERS.iter().any(|part| other.split('/').next() == Some(part)),
            folder => other.starts_with(folder),
        };
        let beside: Vec<_> = files.iter().filter(|(other, _)| is_part(other) && **other != path).collect();
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
        if self.used.contains(path) {
            return;
        }
        let made = format!("{folder}/{name}.md");
        if folder == "skills" && self.files.contains_key(&format!("skills/{name}/{SKILL}")) {
            self.refused.insert(path.to_owned(), "a skill has its name".to_owned());
            return;
        }
        if self.files.contains_key(&made) {
            self.refused.insert(path.to_owned(), "another file has its name".to_owned());
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

    /// The text of [`SERVERS`]: as it is where that is all, else with the servers that are listed elsewhere. Of two with one
    /// name, neither is kept.
    fn servers(&mut self, files: &Files<'_>, listing: &Listing) -> Option<Vec<u8>> {
        let own = files.get(SERVERS).copied().filter(|_| listing.has_defaults);
        self.used.extend(own.map(|_| SERVERS.to_owned()));
        if listing.server_files.is_empty() && listing.servers.is_empty() {
            return own.map(<[u8]>::to_vec);
        }
        let mut all: Vec<Map<String, Json>> = own.and_then(servers::of_file).into_iter().collect();
        for path in listing.server_files.iter().filter(|path| *path != SERVERS || own.is_none()) {
            match files.get(path.as_str()).copied().and_then(servers::of_file) {
                Some(servers) => {
                    self.used.insert(path.clone());
                    all.push(servers);
                }
                None => self.missing.push(format!("./{path}: it is listed in `mcpServers`, and has no servers")),
            }
        }
        let mut joined = Map::new();
        for (name, of) in all.into_iter().chain(listing.servers.iter().cloned()).flatten() {
            match joined.get_mut(&name) {
                Some(other) if *other != of => *other = Json::Null,
                Some(_) => {}
                None => drop(joined.insert(name, of)),
            }
        }
        (!joined.is_empty()).then(|| json!({ "mcpServers": joined }).to_string().into_bytes())
    }

    /// What stays behind, in the order of the paths.
    fn left_out(&self, files: &Files<'_>, listing: &Listing) -> Vec<String> {
        let is_left = |path: &&&str| !self.used.contains(**path) && **path != MANIFEST;
        let shown = files.keys().filter(is_left).map(|path| match self.refused.get(*path) {
            Some(why) => format!("{path}: {why}"),
            None => (*path).to_owned(),
        });
        let keys = listing.left_out.iter().map(|key| format!("`{key}` of its manifest"));
        shown.chain(self.missing.iter().cloned()).chain(keys).collect()
    }
}

/// Why something is no name of a skill or an agent.
pub(crate) fn not_a_name(name: &str) -> String {
    format!("{} is not a name of small letters, digits and single hyphens", quoted(name))
}

#[cfg(test)]
mod tests;
