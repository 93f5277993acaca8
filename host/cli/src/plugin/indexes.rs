//! Indexes of catalogues that are kept on this machine, so that a search need not fetch them each time and works without a
//! network. One is kept under the digest of its source, with the commit and the moment that it was fetched at. Nothing is
//! added from it: what is added or updated is looked up in an index that was fetched for that.

use std::path::PathBuf;
use std::time::Duration;

use harness_fetch::catalogue::Index;
use harness_plugin::source::Source;
use harness_sys as sys;
use harness_sys::digest::digest;
use harness_sys::store::Store;
use harness_sys::tree::{self, Most};
use serde::{Deserialize, Serialize};

use super::review::plural;

/// The file of one, in a folder with the digest of its source as its name.
const FILE: &str = "index.json";
/// The name of the folder before it is kept.
const FRESH: &str = "kept";
/// Bytes of the file: those of the text, escaped.
const MAX_BYTES: u64 = 16 << 20;

/// The kept indexes of a machine.
pub(super) struct Indexes {
    store: Store,
}

/// One as it is kept.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// The source of the catalogue, as the policy has it.
    source: String,
    /// The same at its commit.
    at: String,
    /// When it was fetched, in seconds since 1970.
    fetched: u64,
    /// Which file it is.
    file: String,
    /// Of the text.
    sha256: String,
    text: String,
}

/// An index that was kept.
pub(super) struct Kept {
    pub(super) index: Index,
    pub(super) age: Duration,
}

impl Indexes {
    /// Those beside the plugins of a machine.
    pub(super) fn beside(plugins: &std::path::Path) -> Option<Self> {
        let folder = plugins.parent()?.join("catalogues");
        Some(Self { store: Store::new(folder, Most { entries: 0, bytes: 0, levels: 0 }) })
    }

    /// The one of a source. None where it is not there, or is not what was kept: it is fetched then.
    pub(super) fn find(&self, source: &Source) -> Option<Kept> {
        let name = source.to_string();
        let folder: PathBuf = self.store.located(&digest(&name)).ok()??;
        let text = String::from_utf8(tree::read_file(&folder, FILE, MAX_BYTES).ok()?).ok()?;
        let Document { source: of, at, fetched, file, sha256, text } = serde_json::from_str(&text).ok()?;
        if of != name || digest(&text) != sha256 {
            return None;
        }
        // A moment that has not come yet says nothing about the age.
        let age = sys::since_epoch().checked_sub(Duration::from_secs(fetched))?;
        let index = Index::kept(source, (&at, &file), text).ok()?;
        Some(Kept { index, age })
    }

    /// Keeps one that was fetched now.
    pub(super) fn keep(&self, source: &Source, index: &Index) -> std::io::Result<()> {
        let name = source.to_string();
        let document = Document {
            at: index.at().to_string(),
            fetched: sys::since_epoch().as_secs(),
            file: index.file.clone(),
            sha256: digest(&index.text),
            text: index.text.clone(),
            source: name.clone(),
        };
        let text = serde_json::to_string(&document).map_err(std::io::Error::other)?;
        let fresh = self.store.fresh()?;
        tree::write(&fresh.path().join(FRESH), [(FILE, text.as_bytes())].into_iter())?;
        self.store.keep_as(&fresh, FRESH, &digest(&name))
    }
}

/// An age in words.
pub(super) fn words(age: Duration) -> String {
    let minutes = usize::try_from(age.as_secs() / 60).unwrap_or(usize::MAX);
    match minutes {
        0 => "less than a minute".to_owned(),
        1..=119 => plural(minutes, "minute"),
        120..=2879 => plural(minutes / 60, "hour"),
        _ => plural(minutes / (24 * 60), "day"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        let of = |minutes: u64| words(Duration::from_secs(minutes * 60));
        let all = [0, 1, 59, 119, 120, 2879, 2880, 100_000].map(of);
        assert_eq!(
            all,
            ["less than a minute", "1 minute", "59 minutes", "119 minutes", "2 hours", "47 hours", "2 days", "69 days"]
        );
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test changes the cache")]
    fn what_is_kept_is_what_was_fetched() {
        let cache = tempfile::tempdir().unwrap();
        let indexes = Indexes::beside(&cache.path().join("plugins")).unwrap();
        let source = Source::parse("git+https://a.example/x#dir").unwrap();
        let at = format!("git+https://a.example/x@{}#dir", "0f".repeat(20));
        let index = |at: &str, file: &str| Index::kept(&source, (at, file), "plugins: []\n".to_owned());
        assert!(indexes.find(&source).is_none());
        indexes.keep(&source, &index(&at, "catalogue.yaml").unwrap()).unwrap();
        let kept = indexes.find(&source).unwrap();
        assert_eq!((kept.index.text.as_str(), kept.index.at().to_string()), ("plugins: []\n", at.clone()));
        assert!(kept.age < Duration::from_secs(3600));
        // Another source has none, and no commit of another one is taken for it.
        assert!(indexes.find(&Source::parse("git+https://a.example/y#dir").unwrap()).is_none());
        for (at, file) in [
            (at.replace("a.example", "b.example"), "catalogue.yaml"),
            ("git+https://a.example/x@main#dir".to_owned(), "catalogue.yaml"),
            ("./x".to_owned(), "catalogue.yaml"),
            (at.clone(), "../catalogue.yaml"),
        ] {
            assert!(index(&at, file).is_err(), "{at} {file}");
        }
        let path =
            cache.path().join("catalogues").join(digest(&source.to_string()).trim_start_matches("sha256:")).join(FILE);
        let good = std::fs::read_to_string(&path).unwrap();
        for changed in [
            good.replace("plugins: []", "plugins: [ ]"),
            good.replace("a.example/x@", "b.example/x@"),
            good.replace("\"fetched\":", "\"fetched\":9"),
            good.replace("catalogue.yaml", "catalogue.yml"),
            good.replace("{\"source\"", "{\"x\":1,\"source\""),
            String::new(),
        ] {
            std::fs::write(&path, changed).unwrap();
            assert!(indexes.find(&source).is_none());
        }
        std::fs::write(&path, good).unwrap();
        assert!(indexes.find(&source).is_some());
    }
}
