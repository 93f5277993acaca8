//! What is in folders of artifacts and is none: reported where it may have been meant to be one.

use super::{BUNDLE_FILE, Load, POLICY, Within};
use crate::bounds::Amounts;
use crate::unread::{self, is_meant_to_be_read};
use harness_artifact::diagnostic::Diagnostic;
use harness_artifact::suggest::closest;
use harness_sys as sys;

/// What is said of a README that is not read.
const README: &str = "a README is for people and not an artifact";

/// Whether a file in the folder of a bundle is probably meant to be the bundle's own.
fn is_meant_for_a_bundle(folder: &str, name: &str) -> bool {
    let own = folder.rsplit('/').next().unwrap_or(folder);
    let stem = name.strip_suffix(".md").unwrap_or_default();
    ["plugin", "builtin", "override", "index", POLICY.trim_end_matches(".md"), own].contains(&stem)
}

impl Load {
    /// What is in a folder beside the names that are read. A guard in it guards nothing.
    pub(super) fn strays(&mut self, here: Within<'_>, folder: &str, known: &[&str]) {
        // Where it cannot be listed, what it holds cannot be read either, which is reported there.
        let listed = sys::list_folder(&here.root.path(folder)).unwrap_or_default();
        if !self.take(here.source, Amounts::listed(listed.len()), None) {
            return;
        }
        let read = if folder.is_empty() { POLICY } else { BUNDLE_FILE };
        for name in listed.iter().filter_map(|name| name.to_str()) {
            let below = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            let is_policy = folder.is_empty() && here.root.is_home() && name == read;
            if known.contains(&name) || is_policy || !folder.is_empty() && name == read {
                continue;
            }
            if name.starts_with('.') {
                // What a root that is a whole repository hides is other programs'.
                if here.root.is_home() {
                    self.hidden(here, folder, &[name.to_owned()]);
                }
                continue;
            }
            if !sys::is_folder(&here.root.path(&below)) {
                let is_identity = folder.is_empty() && here.root.is_home() && name == unread::IDENTITY;
                let is_bundle = !folder.is_empty() && is_meant_for_a_bundle(folder, name);
                let is_own_readme = folder.is_empty() && here.root.is_home() && unread::is_readme(name);
                let hint = match (is_identity, is_bundle, is_own_readme) {
                    (true, ..) => Some("its prose belongs in `.harness/harness.md`"),
                    (_, true, _) => Some("the file of a bundle in its folder is `bundle.md`"),
                    (_, _, true) => Some(README),
                    _ => None,
                };
                self.stray_file(here, &below, hint);
                continue;
            }
            let meant = closest(&name.to_lowercase(), known.iter().copied());
            let hint = meant.map(|meant| format!("did you mean `{meant}/`?"));
            // A root is often a whole repository: of what else is in it only what is nearly a name that is read counts.
            if hint.is_some() || here.root.is_home() {
                self.stray_folder(here, &below, hint.as_deref(), false);
            }
        }
    }

    /// A file that nobody reads. With a hint it is one that someone seems to have meant.
    pub(super) fn stray_file(&mut self, here: Within<'_>, below: &str, hint: Option<&str>) {
        let name = below.rsplit('/').next().unwrap_or(below);
        let shown = here.root.shown(below);
        let otherwise = hint.unwrap_or("nothing is read from here: put it where it belongs, or delete it");
        if self.holds_one(here, below) {
            self.unread_artifact(&shown, otherwise);
        } else if hint.is_some() && (is_meant_to_be_read(name) || unread::is_readme(name)) {
            self.unread(&shown, hint);
        }
    }

    /// Files and folders whose names begin with a dot. Nothing is said of what is no artifact: editors and systems hide
    /// files.
    pub(super) fn hidden(&mut self, here: Within<'_>, folder: &str, names: &[String]) {
        for name in names {
            let below = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if sys::is_folder(&here.root.path(&below)) {
                if name != ".git" {
                    self.stray_folder(here, &below, None, false);
                }
            } else if self.holds_one(here, &below) {
                let hint = "a name that begins with a dot is not read: rename the file, or delete it";
                self.unread_artifact(&here.root.shown(&below), hint);
            }
        }
    }

    /// A folder that nobody reads, and what is in it. Where `parts` is said, it is one only where it holds what seems to be
    /// artifacts.
    pub(super) fn stray_folder(&mut self, here: Within<'_>, below: &str, hint: Option<&str>, parts: bool) {
        let name = below.rsplit('/').next().unwrap_or(below);
        let shown = here.root.shown(below);
        if unread::FOREIGN.contains(&name) && !parts {
            return self.unread(&format!("{shown}/"), unread::instead(name));
        }
        // It is read, as a root of its own, or holds one.
        let real = sys::real_path(&here.root.path(below)).unwrap_or_default();
        if self.roots.iter().any(|root| root.starts_with(&real)) {
            return;
        }
        // What a link leads to outside is nobody's artifact.
        let inside = real.starts_with(&here.root.real);
        let mut waiting = if inside { vec![(below.to_owned(), 1)] } else { Vec::new() };
        let mut left = unread::MOST;
        let (mut holding, mut seems) = (false, !parts);
        while let Some((folder, depth)) = waiting.pop() {
            // Very many links may lead to one large folder.
            if left == 0 || !self.bounds.admits(here.source) {
                break;
            }
            let names = sys::list_folder(&here.root.path(&folder)).unwrap_or_default();
            if !self.take(here.source, Amounts::listed(names.len().min(left)), None) {
                break;
            }
            for name in names.iter().filter_map(|name| name.to_str()) {
                let Some(less) = left.checked_sub(1) else { break };
                left = less;
                let below = format!("{folder}/{name}");
                seems |= is_meant_to_be_read(name);
                let path = here.root.path(&below);
                if sys::is_folder(&path) {
                    if depth < unread::DEEPEST && !path.is_symlink() {
                        waiting.push((below, depth.saturating_add(1)));
                    }
                } else if self.holds_one(here, &below) {
                    holding = true;
                    let shown = here.root.shown(&below);
                    self.unread_artifact(&shown, hint.unwrap_or("nothing is read from here: put it where it belongs"));
                }
            }
        }
        if seems && !holding && hint.is_some() {
            self.unread(&format!("{shown}/"), hint);
        }
    }

    /// Whether a file that nobody reads holds an artifact or a policy.
    fn holds_one(&mut self, here: Within<'_>, below: &str) -> bool {
        let name = below.rsplit('/').next().unwrap_or(below);
        if !unread::may_hold_one(name) || !self.bounds.admits(here.source) {
            return false;
        }
        let path = here.root.path(below);
        let inside = sys::real_path(&path).is_ok_and(|real| real.starts_with(&here.root.real));
        let text = sys::read_beginning(&path, unread::LOOKED_AT).ok().filter(|_| inside).unwrap_or_default();
        self.take(here.source, Amounts::read(text.len()), None)
            && unread::telling_key(&name.to_lowercase(), &text).is_some()
    }

    /// Whether a file is for people. That it is not read is reported.
    pub(super) fn readme(&mut self, here: Within<'_>, below: &str) -> bool {
        let name = below.rsplit('/').next().unwrap_or(below);
        if !unread::is_readme(name) {
            return false;
        }
        self.stray_file(here, below, Some(README));
        true
    }

    fn unread(&mut self, shown: &str, hint: Option<&str>) {
        let warning = Diagnostic::warning(format!("`{shown}` is not read"));
        self.registry.diagnostics.push(match hint {
            Some(hint) => warning.hint(hint),
            None => warning,
        });
    }

    /// An artifact or a policy that nobody reads may be a guard.
    pub(super) fn unread_artifact(&mut self, shown: &str, hint: &str) {
        let message = format!("`{shown}` is not read, but holds an artifact or a policy");
        self.registry.diagnostics.push(Diagnostic::error(message).hint(hint));
        self.guard_lost = true;
    }
}
