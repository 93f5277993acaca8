//! Plugins that the lock names: their bytes are those of the lock, and each text is one of these bytes.

use std::path::Path;

use super::{Load, Within};
use crate::lock::{FILE, Lock, LockedPlugin};
use crate::root::Root;
use harness_artifact::diagnostic::Diagnostic;
use harness_artifact::plugin::canonical;
use harness_plugin::Rejected;
use harness_plugin::cache::{Cache, Found};
use harness_plugin::content::Content;
use harness_sys as sys;
use harness_sys::digest::digest;

/// What is said of a content that the cache does not have.
pub(super) const ABSENT: &str = "it is not on this machine";
/// What accepts or restores a plugin that differs.
const RESTORE: &str = "`harness plugin sync` restores it";

impl Load {
    /// Checks the plugins that the lock has in the project, and keeps the digests of their files.
    pub(super) fn vendored(&mut self, lock: &Lock, home: Option<&Root>, from_cache: Option<&str>) {
        for plugin in lock.plugins().filter(|plugin| plugin.vendored && from_cache != Some(&plugin.name)) {
            let content = match home {
                Some(home) => Content::read_exactly(&home.path(&plugin.source_name())),
                None => Err(Rejected::new("there is no folder `.harness`")),
            };
            match content {
                Ok(content) if content.digest() == plugin.digest => self.expect(plugin, content),
                Ok(_) => self.differs(plugin, "a file of it was changed, added or removed", RESTORE),
                Err(why) => self.differs(plugin, &why.to_string(), RESTORE),
            }
        }
    }

    /// Reads the plugins that the lock has in the cache.
    pub(super) fn cached(&mut self, lock: &Lock, root: &Path, home: Option<&Root>, from_cache: Option<&str>) {
        for plugin in lock.plugins().filter(|plugin| !plugin.vendored || from_cache == Some(&plugin.name)) {
            let source = plugin.source_name();
            let copies = [source.clone(), format!("{source}.md")];
            let there = |copy: &&String| home.is_some_and(|home| !sys::is_gone(&home.path(copy)));
            if let Some(copy) = copies.iter().find(there).filter(|_| from_cache != Some(&plugin.name)) {
                let why = format!("`.harness/{copy}` is there too");
                self.differs(plugin, &why, "remove it: the plugin is loaded from the cache of the machine");
                continue;
            }
            let found = match self.found(&plugin.digest, root) {
                Ok(found) => found,
                Err((why, hint)) => {
                    self.differs(plugin, &why, hint);
                    continue;
                }
            };
            self.expect(plugin, found.content);
            self.registry.plugins.clone_from(&self.plugins);
            let root = Root::plugin(source.clone(), found.folder);
            self.bundle_folder(Within { root: &root, source: &source }, &source, &plugin.name, false);
        }
    }

    /// What the cache has under a digest. An error says what is wrong, and what can be done about it.
    pub(super) fn found(&self, digest: &str, root: &Path) -> Result<Found, (String, &'static str)> {
        let Some(folder) = self.plugins.clone() else {
            return Err(("this program keeps no plugins".to_owned(), "set `XDG_CACHE_HOME` or `HOME`"));
        };
        if sys::real_path(&folder).is_ok_and(|real| sys::real_path(root).is_ok_and(|root| real.starts_with(root))) {
            let why = format!("`{}` is in the project", folder.display());
            return Err((why, "set `XDG_CACHE_HOME` to a folder outside of it"));
        }
        match Cache::new(folder).find(digest) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err((ABSENT.to_owned(), "`harness plugin sync` fetches it")),
            Err(why) => Err((why.to_string(), RESTORE)),
        }
    }

    fn expect(&mut self, plugin: &LockedPlugin, content: Content) {
        if let Err(why) = plugin.verify(&content) {
            self.differs(
                plugin,
                &why.to_string(),
                "add the plugin again: `harness.lock` has a signature that is not its own",
            );
        }
        self.expected.insert(plugin.source_name(), content);
    }

    /// The verified content that a file below the root has to be in, with its path in that. None where the file may be
    /// anything.
    pub(super) fn content_of<'a>(&'a self, here: Within<'a>, below: &'a str) -> Option<(&'a Content, &'a str)> {
        if let Some(content) = &here.root.content {
            return Some((content, below));
        }
        let content = self.expected.get(here.source)?;
        // What is not below the source is in no content.
        Some((content, below.strip_prefix(here.source).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default()))
    }

    /// The text of a file of verified content, as it was verified. None where there is no such file, which has to be gone
    /// from its folder too.
    pub(super) fn verified_text(&mut self, here: Within<'_>, below: &str, guards: bool) -> Option<String> {
        let (content, path) = self.content_of(here, below)?;
        let (bytes, shown) = (content.bytes(path).map(<[u8]>::to_vec), here.root.shown(below));
        let Some(bytes) = bytes else {
            if !sys::is_gone(&here.root.path(below)) {
                self.fail(&shown, true, &std::io::Error::other("it was changed while it was read"));
            }
            return None;
        };
        self.kept(here.source, &shown, sys::text_of(bytes), guards)
    }

    /// Holds the plugins of the lock to its versions and digests.
    pub(super) fn as_locked(&mut self, lock: &Lock) {
        for plugin in lock.plugins() {
            let source = plugin.source_name();
            let bundle = self.registry.bundles.iter_mut().find(|bundle| bundle.name == source);
            let Some(bundle) = bundle.filter(|_| self.expected.contains_key(&source)) else { continue };
            bundle.pinned = true;
            let why = match &bundle.plugin {
                None => "it has no `plugin.md`",
                Some(read) if read.version != plugin.version => "its version is another one",
                Some(read) if digest(&canonical(read.rules())) != plugin.asked => "it asks for something else",
                Some(_) => continue,
            };
            self.differs(plugin, why, "restore the file as it was committed, or add the plugin again");
        }
    }

    /// A plugin that is not what the lock says may be a guard.
    fn differs(&mut self, plugin: &LockedPlugin, why: &str, hint: &str) {
        let what = format!("the plugin `{}` differs from `{FILE}`: {why}", plugin.name);
        self.registry.diagnostics.push(Diagnostic::error(what).at(plugin.position.clone()).hint(hint));
        self.guard_lost = true;
    }
}
