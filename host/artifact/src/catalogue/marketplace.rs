//! `.claude-plugin/marketplace.json`, the index of Claude plugins, read as that of a catalogue. Keys that it does not know
//! are ignored, as its own programs do.

use semver::Version;
use serde_json::{Map, Value as Json};

use super::{Catalogue, Entry, Listed, MAX_ENTRIES, own_folder, too_many};
use crate::foreign::Listing;
use crate::plugin::{MAX_TEXT, check_name};
use harness_policy::text::quoted;

/// Reads an index.
///
/// # Errors
///
/// It is none, or none of which anything can be used.
pub(super) fn read(text: &str) -> Result<Catalogue, String> {
    let root: Json = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    let plugins = root.get("plugins").and_then(Json::as_array).ok_or("it has no list `plugins`")?;
    if plugins.len() > MAX_ENTRIES {
        return Err(too_many());
    }
    let base = root.get("metadata").and_then(|metadata| metadata.get("pluginRoot")).and_then(Json::as_str);
    let mut catalogue = Catalogue::default();
    for plugin in plugins {
        match entry(plugin, base) {
            Ok(entry) => catalogue.entries.push(entry),
            Err(why) => catalogue.left_out.push(why),
        }
    }
    Ok(catalogue)
}

fn entry(plugin: &Json, base: Option<&str>) -> Result<Entry, String> {
    let text = |key: &str| plugin.get(key).and_then(Json::as_str);
    let name = text("name").ok_or("a plugin without a name")?;
    check_name(name)?;
    let description = text("description").map(|text| text.trim().chars().take(MAX_TEXT).collect());
    let version = text("version").and_then(|version| Version::parse(version).ok());
    let source = match plugin.get("source") {
        Some(Json::String(folder)) => own(folder, base),
        Some(Json::Object(source)) => elsewhere(source),
        _ => Err("has no `source`".to_owned()),
    };
    let listing = plugin.as_object().map_or(Ok(None), Listing::of_entry);
    let (source, listing) = match (source, listing) {
        (Ok(source), Ok(listing)) => (Ok(source), listing),
        (Err(why), _) | (_, Err(why)) => (Err(why), None),
    };
    Ok(Entry { name: name.to_owned(), description, version, source, listing })
}

/// A folder of the marketplace, below `metadata.pluginRoot` where its path does not begin with `./`.
fn own(folder: &str, base: Option<&str>) -> Result<Listed, String> {
    let outside = || format!("has the source {}, which is not a folder inside the catalogue", quoted(folder));
    let path = match base {
        Some(base) if !folder.starts_with("./") => format!("{}/{folder}", base.trim_end_matches('/')),
        _ => folder.to_owned(),
    };
    own_folder(&path).and_then(Result::ok).ok_or_else(outside)
}

fn elsewhere(source: &Map<String, Json>) -> Result<Listed, String> {
    let text = |key: &str| source.get(key).and_then(Json::as_str);
    let needed = |key: &str| text(key).ok_or_else(|| format!("has a `source` without `{key}`"));
    let is_owned = |repo: &str| repo.split('/').filter(|part| !part.is_empty()).count() == 2 && !repo.contains(':');
    let of_github = |repo: &str| format!("https://github.com/{repo}");
    let url = match needed("source")? {
        "github" => needed("repo").map(of_github)?,
        "url" => needed("url")?.to_owned(),
        "git-subdir" => match needed("url")? {
            repo if is_owned(repo) => of_github(repo),
            url => url.to_owned(),
        },
        other => return Err(format!("has a source of the kind {}, which is not fetched", quoted(other))),
    };
    let folder = match text("source") {
        Some("git-subdir") => match own_folder(&format!("./{}", needed("path")?.trim_start_matches("./"))) {
            Some(Ok(Listed::Own(folder))) => folder,
            _ => return Err("has a `path` that is not a folder inside the repository".to_owned()),
        },
        _ => None,
    };
    let reference = match (source.get("sha"), source.get("ref")) {
        (Some(Json::String(sha)), _) if is_commit(sha) => Some(sha.clone()),
        (Some(_), _) => return Err("has a `sha` that is not the whole name of a commit".to_owned()),
        (None, Some(Json::String(reference))) => Some(reference.clone()),
        (None, Some(_)) => return Err("has a `ref` that is not the name of a tag or a branch".to_owned()),
        (None, None) => None,
    };
    Ok(Listed::Git { url, reference, folder })
}

fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
