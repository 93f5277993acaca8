//! The plugins of this machine, each in a folder with the digest of its content as its name. What is found there is read
//! whole, and is what its name says.

use std::path::{Path, PathBuf};

use harness_sys as sys;
use harness_sys::store::Store;
use harness_sys::tree::Most;

use crate::Rejected;
use crate::content::Content;

/// Where the folder is below that of all caches.
const BELOW: &str = "harness/plugins";
/// The name of a content in a fresh folder.
const FRESH: &str = "plugin";

/// A folder of plugins.
#[derive(Debug, Clone)]
pub struct Cache {
    store: Store,
}

/// A plugin that was found: where it is, and what was read there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its folder, absolute.
    pub folder: PathBuf,
    /// Its files.
    pub content: Content,
}

/// The folder of the plugins of this machine: below `XDG_CACHE_HOME`, else below `.cache` of `HOME`. `variable` gives the
/// value of a variable. None where neither is an absolute path.
pub fn folder(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join(BELOW))
}

impl Cache {
    /// The cache in a folder, which need not be there yet.
    pub fn new(folder: PathBuf) -> Self {
        // The bounds of a plugin are those of its content; the store is not asked to read one.
        Self { store: Store::new(folder, Most { entries: 0, bytes: 0, levels: 0 }) }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        self.store.folder()
    }

    /// The plugin with a digest; none where it is not there.
    ///
    /// # Errors
    ///
    /// What the system says. It is not what its name says. Others can write to the cache.
    pub fn find(&self, digest: &str) -> Result<Option<Found>, Rejected> {
        let Some(place) = self.store.located(digest)? else { return Ok(None) };
        let changed = |why: &str| Rejected::new(format!("`{}` was changed: {why}", place.display()));
        let content = Content::read_exactly(&place).map_err(|why| changed(&why.to_string()))?;
        if content.digest() != digest {
            return Err(changed("its digest is another one"));
        }
        Ok(Some(Found { folder: sys::real_path(&place)?, content }))
    }

    /// Keeps a plugin. One that is there and was changed is replaced.
    ///
    /// # Errors
    ///
    /// What the system says. Others can write to the cache.
    pub fn keep(&self, content: &Content) -> Result<Found, Rejected> {
        let digest = content.digest();
        if let Ok(Some(found)) = self.find(&digest) {
            return Ok(found);
        }
        let fresh = self.store.fresh()?;
        content.write(&fresh.path().join(FRESH))?;
        self.store.keep_as(&fresh, FRESH, &digest)?;
        self.find(&digest)?.ok_or_else(|| Rejected::new("it is gone again"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change<'a> = &'a dyn Fn(&Path);

    fn content(text: &str) -> Content {
        let files = [("plugin.md", text), ("tools/a.md", "tool")];
        Content::new(files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))).unwrap()
    }

    #[test]
    fn what_is_kept_is_found_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("plugins"));
        let content = content("one");
        let digest = content.digest();
        assert_eq!(cache.find(&digest), Ok(None));
        let kept = cache.keep(&content).unwrap();
        assert_eq!((cache.keep(&content).unwrap(), cache.find(&digest)), (kept.clone(), Ok(Some(kept.clone()))));
        assert_eq!(kept.content, content);
        for wrong in ["", "sha256:", "sha256:../../x", "sha512:00"] {
            assert!(cache.find(wrong).is_err(), "{wrong}");
        }
        // Each bit of each file, turned once.
        for (path, text) in content.files() {
            for at in 0..text.len() * 8 {
                let mut turned = text.to_vec();
                turned[at / 8] ^= 1 << (at % 8);
                std::fs::write(kept.folder.join(path), turned).unwrap();
                let why = cache.find(&digest).unwrap_err().to_string();
                assert!(why.ends_with(" was changed: its digest is another one"), "{why}");
            }
            std::fs::write(kept.folder.join(path), text).unwrap();
        }
        assert!(cache.find(&digest).is_ok());
        let changes: [(&str, Change<'_>); 5] = [
            ("one more file", &|at| std::fs::write(at.join("x"), "").unwrap()),
            ("one more folder", &|at| std::fs::create_dir(at.join("x")).unwrap()),
            ("a file that is gone", &|at| std::fs::remove_file(at.join("plugin.md")).unwrap()),
            ("another name", &|at| std::fs::rename(at.join("plugin.md"), at.join("plugin.mt")).unwrap()),
            ("a link", &|at| {
                std::fs::remove_file(at.join("plugin.md")).unwrap();
                std::os::unix::fs::symlink("tools/a.md", at.join("plugin.md")).unwrap();
            }),
        ];
        for (what, change) in changes {
            change(&kept.folder);
            assert!(cache.find(&digest).is_err(), "{what}");
            // And is kept anew.
            assert_eq!(cache.keep(&content), Ok(kept.clone()), "{what}");
        }
    }

    #[test]
    fn one_that_others_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("plugins"));
        let digest = cache.keep(&content("one")).unwrap().content.digest();
        std::fs::set_permissions(cache.folder(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(cache.find(&digest).unwrap_err().to_string().starts_with("others can write to "));
        std::fs::set_permissions(cache.folder(), std::fs::Permissions::from_mode(0o700)).unwrap();
        assert!(cache.find(&digest).unwrap().is_some());
    }

    #[test]
    fn where_it_is() {
        let of = |variables: &[(&str, &str)]| {
            let value =
                |name: &str| variables.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned());
            folder(value).map(|folder| folder.display().to_string())
        };
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")]).as_deref(), Some("/c/harness/plugins"));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CACHE_HOME", "c")]).as_deref(), Some("/h/.cache/harness/plugins"));
        assert_eq!(of(&[("HOME", "")]), None);
    }
}
