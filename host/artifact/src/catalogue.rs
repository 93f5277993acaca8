//! The index of a catalogue: the plugins that it names, each with its source. There are two forms: [`FILE`], and the
//! [`MARKETPLACE`] of Claude plugins.
//!
//! An index is third-party: it names plugins and grants nothing. Its bounds are checked before anything of it is used.

mod marketplace;

use std::collections::BTreeSet;

use semver::Version;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::decode::{Decoder, Field};
use super::diagnostic::{Diagnostic, Diagnostics};
use super::foreign::Listing;
use super::keys::{self, Unknown, keys};
use super::plugin::{PluginName, SemanticVersion, Sentence};
use super::shape::{self, Read, Schema, Shape};
use harness_policy::text::quoted;

/// The index in the form of this program.
pub const FILE: &str = "catalogue.yaml";
/// The index in the form of Claude plugins.
pub const MARKETPLACE: &str = ".claude-plugin/marketplace.json";
/// The files that a catalogue may have its index in: the first that is there counts.
pub const FILES: [&str; 2] = [FILE, MARKETPLACE];
/// Bytes of an index.
pub const MAX_BYTES: usize = 2 << 20;
/// Plugins of an index.
const MAX_ENTRIES: usize = 2_000;

/// An index that was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalogue {
    /// The plugins, in the order of the file. No two have the same name.
    pub entries: Vec<Entry>,
    /// What a marketplace names and no plugin here can be called, each with the reason.
    pub left_out: Vec<String>,
    /// When it ends; none where it does not say.
    pub expires: Option<Expiry>,
}

/// The end of an index. One that is older is not used: a mirror cannot withhold newer indexes forever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// As it is written.
    pub text: String,
    /// The same, in seconds since 1970.
    pub seconds: u64,
}

impl Expiry {
    /// Reads a day, which begins at midnight UTC, or a moment.
    fn parse(text: &str) -> Result<Self, String> {
        let whole = if text.contains('T') { text.to_owned() } else { format!("{text}T00:00:00Z") };
        let moment = OffsetDateTime::parse(&whole, &Rfc3339);
        let seconds = moment.ok().and_then(|moment| u64::try_from(moment.unix_timestamp()).ok());
        let wrong = || {
            format!("{} is not a day such as `2027-01-31`, or a moment such as `2027-01-31T12:00:00Z`", quoted(text))
        };
        Ok(Self { text: text.to_owned(), seconds: seconds.ok_or_else(wrong)? })
    }
}

impl Shape for Expiry {
    fn schema() -> Schema {
        shape::schema(json!({"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}(T.+)?$"}))
    }
}

impl Read for Expiry {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, Self::parse)
    }
}

/// A plugin as a catalogue names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name, such as `acme`.
    pub name: String,
    /// Its purpose, in the words of the catalogue.
    pub description: Option<String>,
    /// Its version, in the words of the catalogue.
    pub version: Option<Version>,
    /// Where it is; or why it cannot be fetched, in words that follow its name.
    pub source: Result<Listed, String>,
    /// The parts of the folder that it picks; none where the folder is read as it is.
    pub listing: Option<Listing>,
}

/// Where a catalogue says that a plugin is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// In the catalogue itself: in a folder, or in all of it.
    Own(Option<String>),
    /// At a source that names its version exactly.
    Pinned(String),
    /// In a git repository, as a marketplace names one.
    Git {
        /// The address of the repository.
        url: String,
        /// A commit, a tag or a branch.
        reference: Option<String>,
        /// The folder of the plugin.
        folder: Option<String>,
    },
}

keys! {
    /// The keys of `catalogue.yaml`.
    CatalogueKeys: Unknown::Refuse;
    /// The plugins.
    required plugins: Vec<Entry>;
    /// When the index ends, as `2027-01-31` or `2027-01-31T12:00:00Z`: from then on nobody uses it.
    given expires: Expiry;
}

keys! {
    /// The keys of a plugin in it.
    EntryKeys: Unknown::Refuse;
    /// The name of the plugin, as its `plugin.md` has it.
    required name: PluginName;
    /// Where it is: a folder of the catalogue such as `./units`, a commit such as `git+https://HOST/REPOSITORY@COMMIT`, or
    /// a manifest such as `oci://HOST/NAME@sha256:DIGEST`.
    required source: Listed;
    /// Its purpose, in a sentence or two.
    given description: Sentence;
    /// Its version, such as `1.2.0`.
    given version: SemanticVersion;
}

impl Shape for Listed {
    fn schema() -> Schema {
        shape::schema(json!({"type": "string", "pattern": r"^(\./|git\+(https|file)://|oci://)"}))
    }
}

impl Read for Listed {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, |text| match own_folder(text) {
            Some(own) => own,
            None if ["git+https://", "git+file://", "oci://"].iter().any(|begin| text.starts_with(begin)) => {
                Ok(Self::Pinned(text.to_owned()))
            }
            None => Err(format!(
                "{} is neither `./FOLDER`, `git+https://...@COMMIT` nor `oci://...@sha256:...`",
                quoted(text)
            )),
        })
    }
}

fn too_many() -> String {
    format!("an index has at most {MAX_ENTRIES} plugins")
}

/// A folder of the catalogue itself; none where a text names something else.
fn own_folder(text: &str) -> Option<Result<Listed, String>> {
    if text == "." {
        return Some(Ok(Listed::Own(None)));
    }
    let folder = text.strip_prefix("./")?.trim_end_matches('/');
    if folder.is_empty() {
        return Some(Ok(Listed::Own(None)));
    }
    let is_inside = folder.split('/').all(|part| !matches!(part, "" | "." | ".."));
    Some(match is_inside {
        true => Ok(Listed::Own(Some(folder.to_owned()))),
        false => Err(format!("{} is not a folder inside the catalogue", quoted(text))),
    })
}

impl Shape for Entry {
    fn schema() -> Schema {
        keys::schema::<EntryKeys<'_>>()
    }
}

impl Read for Entry {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: EntryKeys<'_> = decoder.keys(field)?;
        let missing = [("name", keys.name.field().is_none()), ("source", keys.source.field().is_none())];
        for (key, _) in missing.into_iter().filter(|(_, is_missing)| *is_missing) {
            decoder.error(field, format!("{} has no `{key}`", quoted(&field.path)));
        }
        let (name, source) = (keys.name.read(decoder), keys.source.read(decoder));
        let description = keys.description.read(decoder).map(|text| text.0);
        let version = keys.version.read(decoder).map(|version| version.0);
        Some(Self { name: name?.0, description, version, source: Ok(source?), listing: None })
    }
}

impl Catalogue {
    /// Reads an index. `name` is one of [`FILES`], and `shown` is for messages. The catalogue is there only if nothing is
    /// wrong with it; the diagnostics hold everything that is.
    pub fn parse(name: &str, shown: &str, text: &str) -> (Option<Self>, Diagnostics) {
        let mut decoder = Decoder::new(shown, format!("parse {name}"));
        let catalogue = Self::decode(&mut decoder, name, text);
        let diagnostics = decoder.into_diagnostics();
        (catalogue.filter(|_| !diagnostics.has_errors()), diagnostics)
    }

    fn decode(decoder: &mut Decoder, name: &str, text: &str) -> Option<Self> {
        let refuse = |decoder: &mut Decoder, why: String| {
            let at = decoder.top();
            decoder.diagnostics.push(Diagnostic::error(why).at(at));
        };
        if text.len() > MAX_BYTES {
            refuse(decoder, format!("an index has at most {MAX_BYTES} bytes"));
            return None;
        }
        let catalogue = match name == MARKETPLACE {
            true => marketplace::read(text).map_err(|why| refuse(decoder, why)).ok()?,
            false => Self::own(decoder, text)?,
        };
        if catalogue.entries.len() > MAX_ENTRIES {
            refuse(decoder, too_many());
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = catalogue.entries.iter().find(|entry| !seen.insert(&entry.name)) {
            refuse(decoder, format!("the plugin {} is there twice", quoted(&twice.name)));
        }
        Some(catalogue)
    }

    fn own(decoder: &mut Decoder, text: &str) -> Option<Self> {
        let root = decoder.yaml(text, 1)?;
        let keys: CatalogueKeys<'_> = decoder.root(&root)?;
        if keys.plugins.field().is_none() {
            let at = decoder.top();
            let error = Diagnostic::error("a catalogue needs `plugins`").at(at);
            decoder.diagnostics.push(error.hint("add a list such as `plugins: [{ name: units, source: ./units }]`"));
        }
        let expires = match keys.expires.field() {
            Some(_) => Some(keys.expires.read(decoder)?),
            None => None,
        };
        Some(Self { entries: keys.plugins.read(decoder)?, left_out: Vec::new(), expires })
    }

    /// The plugin with a name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

#[cfg(test)]
mod tests;
