//! `plugin.md`: the name, version and authors of a plugin, and the capabilities that it asks for.
//!
//! - `asks`: the rules that a plugin asks for, each by itself and together

mod asks;

use semver::{Version, VersionReq};
use serde_json::json;

use super::decode::{Decoder, Field};
use super::diagnostic::{Diagnostic, Diagnostics};
use super::keys::{self, Unknown, keys};
use super::located::Located;
use super::shape::{self, Named, Read, Schema, Shape};
use harness_policy::text::quoted;

pub use self::asks::{Ask, Asked, Rule, canonical, entry, layer};

/// Its name in the folder of a plugin.
pub const FILE: &str = "plugin.md";
/// Characters of a name.
const MAX_NAME: usize = 64;
/// Characters of a description and of a reason.
pub(super) const MAX_TEXT: usize = 1024;
/// Rules of all asks.
const MAX_RULES: usize = 256;
/// Names that a bundle cannot have: folders of artifacts.
const FOLDERS: [&str; 4] = ["tools", "hooks", "agents", "skills"];

/// A plugin as its `plugin.md` describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// Its name: that of its folder under `plugins/`.
    pub name: Located<String>,
    /// Its version, by the rules of Semantic Versioning.
    pub version: Version,
    /// Its purpose, in a sentence or two.
    pub description: String,
    /// Its license.
    pub license: Option<String>,
    /// Its authors.
    pub authors: Vec<String>,
    /// Where to read more.
    pub homepage: Option<String>,
    /// The versions of this program that it works with; none where it does not say.
    pub harness: Option<Located<VersionReq>>,
    /// The plugins that it needs, each with the versions that it works with.
    pub plugins: Vec<(String, Located<VersionReq>)>,
    /// What it asks for, in the order of the file.
    pub asks: Vec<Ask>,
    /// Its prose, for the person who installs it. No model reads it.
    pub prose: String,
}

keys! {
    /// The keys of `plugin.md`. A key that is not understood may be one that narrows.
    pub(super) PluginKeys: Unknown::Refuse;
    /// The name of the plugin: that of its folder, 1 to 64 lower-case letters, digits and single hyphens.
    required name: PluginName;
    /// Its version, such as `1.2.0` (Semantic Versioning).
    required version: SemanticVersion;
    /// Its purpose, in a sentence or two.
    required description: Sentence;
    /// Its license, such as `MIT`.
    given license: String;
    /// Its authors.
    given authors: Vec<String>;
    /// Where to read more: an address with `https` or `http`.
    given homepage: Homepage;
    /// What it needs.
    given requires: Requires;
    /// What it asks for. Without it: the pure built-ins and the log.
    given asks: Vec<Ask>;
}

keys! {
    /// What a plugin needs.
    RequiresKeys: Unknown::Refuse;
    /// Versions of Harness that it works with, such as `>=0.1, <2`.
    given harness: Requirement;
    /// Plugins that it needs, by name, each with the versions that it works with, such as `^1.2`.
    given plugins: Named<Requirement>;
}

pub(super) struct PluginName(pub(super) String);

impl Shape for PluginName {
    fn schema() -> Schema {
        shape::schema(json!({"type": "string", "maxLength": MAX_NAME, "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"}))
    }
}

impl Read for PluginName {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, |text| check_name(text).map(|()| Self(text.to_owned())))
    }
}

/// Whether a plugin may have this name.
///
/// # Errors
///
/// Why not, in words that follow the name of a value.
pub fn check_name(text: &str) -> Result<(), String> {
    let part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if text.len() > MAX_NAME || !text.split('-').all(part) {
        let fits = format!("1 to {MAX_NAME} lower-case letters, digits and single hyphens between them");
        return Err(format!("{} is not a name: {fits}", quoted(text)));
    }
    if FOLDERS.contains(&text) {
        return Err(format!("{} is the name of a folder of artifacts", quoted(text)));
    }
    Ok(())
}

pub(super) struct SemanticVersion(pub(super) Version);

impl Shape for SemanticVersion {
    fn schema() -> Schema {
        let number = "(0|[1-9][0-9]*)";
        let pattern = format!("^{number}\\.{number}\\.{number}(-[0-9A-Za-z.-]+)?(\\+[0-9A-Za-z.-]+)?$");
        shape::schema(json!({"type": "string", "pattern": pattern}))
    }
}

impl Read for SemanticVersion {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, |text| {
            let why = |error| format!("{} is not a version such as `1.2.0`: {error}", quoted(text));
            Version::parse(text).map(Self).map_err(why)
        })
    }
}

struct Requirement(Located<VersionReq>);

impl Shape for Requirement {
    fn schema() -> Schema {
        String::schema()
    }
}

impl Read for Requirement {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let parsed = decoder.parse_one(field, |text| {
            let why = |error| format!("{} is not a range of versions such as `^1.2`: {error}", quoted(text));
            VersionReq::parse(text).map_err(why)
        });
        parsed.map(|parsed| Self(Located::new(parsed, decoder.position(field.span()))))
    }
}

/// A text that a person reads: not empty, and not too long.
pub(super) struct Sentence(pub(super) String);

impl Shape for Sentence {
    fn schema() -> Schema {
        shape::schema(json!({"type": "string", "minLength": 1, "maxLength": MAX_TEXT}))
    }
}

impl Read for Sentence {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let text = decoder.string(field)?.trim();
        if text.is_empty() || text.chars().count() > MAX_TEXT {
            decoder.error(field, format!("{} has 1 to {MAX_TEXT} characters", quoted(&field.path)));
            return None;
        }
        Some(Self(text.to_owned()))
    }
}

struct Homepage(String);

impl Shape for Homepage {
    fn schema() -> Schema {
        shape::schema(json!({"type": "string", "pattern": "^https?://[^/]"}))
    }
}

impl Read for Homepage {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, |text| {
            let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
            let is_address = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
            let wrong = || format!("{} is not an address with `https` or `http`", quoted(text));
            if is_address { Ok(Self(text.to_owned())) } else { Err(wrong()) }
        })
    }
}

/// `requires`, for its schema.
struct Requires;

impl Shape for Requires {
    fn schema() -> Schema {
        keys::schema::<RequiresKeys<'_>>()
    }
}

impl Plugin {
    /// Reads a `plugin.md`. `file` is for messages; `source` is the name by which policies know the plugin, such as
    /// `plugins/acme`, where it is in a folder that has to have its name. The plugin is there only if nothing is wrong with it; the diagnostics hold everything that is.
    pub fn parse(file: &str, source: Option<&str>, text: &str) -> (Option<Self>, Diagnostics) {
        let mut decoder = Decoder::new(file, format!("parse {FILE}"));
        let plugin = Self::decode(&mut decoder, source, text);
        let diagnostics = decoder.into_diagnostics();
        (plugin.filter(|_| !diagnostics.has_errors()), diagnostics)
    }

    fn decode(decoder: &mut Decoder, source: Option<&str>, text: &str) -> Option<Self> {
        let document = decoder.document(text)?;
        let keys: PluginKeys<'_> = decoder.root(&document.root)?;
        let missing = [
            ("name", keys.name.field().is_none(), "name: acme"),
            ("version", keys.version.field().is_none(), "version: 0.1.0"),
            ("description", keys.description.field().is_none(), "description: Searches the archive."),
        ];
        for (key, _, line) in missing.into_iter().filter(|(_, is_missing, _)| *is_missing) {
            let top = decoder.top();
            let error = Diagnostic::error(format!("a plugin needs `{key}`")).at(top);
            decoder.diagnostics.push(error.hint(format!("add a line such as `{line}`")));
        }
        let name = keys.name.located(decoder).map(|name| name.map(|name| name.0));
        let own = source.map(|source| source.rsplit('/').next().unwrap_or(source));
        if let (Some(own), Some(name)) = (own, &name)
            && name.value != own
        {
            let error = Diagnostic::error(format!("`name` is {}, and the folder is {}", quoted(name), quoted(own)));
            let hint = format!("a plugin has the name of its folder: write `name: {own}`, or rename the folder");
            decoder.diagnostics.push(error.at(name.position.clone()).hint(hint));
        }
        let version = keys.version.read(decoder);
        let description = keys.description.read(decoder);
        let requires: Option<RequiresKeys<'_>> = keys.requires.field().and_then(|field| decoder.keys(field));
        let (mut harness, mut plugins) = (None, Vec::new());
        if let Some(requires) = requires {
            harness = requires.harness.read(decoder).map(|one| one.0);
            let named = requires.plugins.read(decoder).unwrap_or_default();
            plugins = named.0.into_iter().map(|one| self::required(decoder, one)).collect();
        }
        let asks = keys.asks.read(decoder).unwrap_or_default();
        self::asks::check(decoder, keys.asks.field(), &asks, MAX_RULES);
        Some(Self {
            name: name?,
            version: version?.0,
            description: description?.0,
            license: keys.license.read(decoder),
            authors: keys.authors.read(decoder).unwrap_or_default(),
            homepage: keys.homepage.read(decoder).map(|homepage| homepage.0),
            harness,
            plugins,
            asks,
            prose: document.body.to_owned(),
        })
    }

    /// All rules that it asks for, in the order of the file.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.asks.iter().flat_map(|ask| &ask.rules)
    }
}

fn required(decoder: &mut Decoder, one: shape::Entry<Requirement>) -> (String, Located<VersionReq>) {
    if let Err(why) = check_name(&one.name) {
        decoder.diagnostics.push(Diagnostic::error(format!("`requires.plugins`: {why}")).at(one.position));
    }
    (one.name, one.value.0)
}

#[cfg(test)]
mod tests;
