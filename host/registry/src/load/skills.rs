//! Skills: `NAME.md`, or a folder `NAME/` with `SKILL.md` and files beside it.

use super::{Load, Within};
use crate::bounds::Amounts;
use crate::root::{Found, Names};
use harness_artifact::diagnostic::Diagnostic;
use harness_artifact::escape;
use harness_artifact::skill::{Skill, SkillFile};
use harness_policy::path::protected;
use harness_policy::text::quoted;
use harness_sys::tree::{self, Most, Taken};

/// The folder of skills.
pub(super) const SKILLS: &str = "skills";
/// The file with the prose of a skill that is a folder.
const SKILL_FILE: &str = "SKILL.md";
/// Skills of a project at most: a model is shown a line of each.
const MAX_SKILLS: usize = 256;
/// What may be beside a skill.
const MOST: Most = Most { entries: 1_000, bytes: 16 << 20, levels: 16 };
/// Bytes beside all skills of a project: they are checked whenever it is loaded.
const MAX_BYTES: u64 = 32 << 20;
/// Files of one skill that are left out and reported.
const MAX_TOLD: usize = 5;

impl Load {
    /// The skills in a folder.
    pub(super) fn skills(&mut self, here: Within<'_>, folder: &str, overrides: bool) {
        let folder = if folder.is_empty() { SKILLS.to_owned() } else { format!("{folder}/{SKILLS}") };
        let Names { files, folders, others, hidden, unnamed: _ } = self.names(here, &folder, false);
        self.hidden(here, &folder, &hidden);
        for other in &others {
            let hint = "a skill is a file `NAME.md`, or a folder with `SKILL.md`";
            self.stray_file(here, &format!("{folder}/{other}"), Some(hint));
        }
        for file in files {
            if !self.readme(here, &file.below) {
                self.skill(here, file, false, overrides);
            }
        }
        for stem in folders {
            let place = format!("{folder}/{stem}");
            let below = format!("{place}/{SKILL_FILE}");
            // A link that leads out was reported.
            if self.inside(here.root, &place, false).is_none() {
                continue;
            }
            if self.inside(here.root, &below, false).is_some() {
                self.skill(here, Found { below, stem, place }, true, overrides);
            } else {
                let hint = format!("a skill that is a folder has its prose in `{SKILL_FILE}`");
                self.stray_folder(here, &place, Some(&hint), false);
            }
        }
    }

    /// One of them.
    fn skill(&mut self, here: Within<'_>, found: Found, is_folder: bool, overrides: bool) {
        let (file, source) = (here.root.shown(&found.below), here.root.source(&found.place));
        self.found.push(source.clone());
        let Some(text) = self.text(here, &found.below, false) else { return };
        let (skill, diagnostics) = Skill::parse_at(&file, &source, &found.stem, &text);
        self.parsed(here.source, &file, diagnostics);
        let Some(mut skill) = skill else { return };
        if is_folder && !self.read_files(here, &found.place, &mut skill) {
            return;
        }
        let skills = &mut self.level(overrides).skills;
        if skills.len() >= MAX_SKILLS {
            let error = Diagnostic::error(format!("there are more than {MAX_SKILLS} skills")).at(skill.source);
            self.registry.diagnostics.push(error.hint("keep those apart in a project that needs them"));
            return;
        }
        skills.push(skill);
    }

    /// The files beside a skill. False where they cannot be read, which was reported.
    fn read_files(&mut self, here: Within<'_>, place: &str, skill: &mut Skill) -> bool {
        let Some(folder) = self.inside(here.root, place, false) else { return false };
        let shown = here.root.shown(place);
        let most = Most { bytes: MOST.bytes.min(MAX_BYTES.saturating_sub(self.skill_bytes)), ..MOST };
        let mut taken = Taken::default();
        let tree = tree::read(&folder, most, left_out, &mut taken);
        // Also of what could not be read to its end: many links to one such folder are as much work as many folders.
        self.skill_bytes = self.skill_bytes.saturating_add(taken.bytes);
        let admitted = self.take(here.source, Amounts::listed(taken.entries), None);
        let tree = match tree {
            Ok(tree) => tree,
            Err(error) => {
                let all = if most.bytes < MOST.bytes {
                    format!(", with those of all other skills {MAX_BYTES}")
                } else {
                    String::new()
                };
                let error = Diagnostic::error(format!("cannot read what is in `{shown}/`: {error}{all}"));
                let hint = format!("a skill has at most {} files and {} bytes beside it", MOST.entries, MOST.bytes);
                self.registry.diagnostics.push(error.hint(hint));
                return false;
            }
        };
        if !admitted {
            return false;
        }
        let more = tree.left_out.len().saturating_sub(MAX_TOLD);
        for (path, why) in tree.left_out.iter().take(MAX_TOLD) {
            let named = escape::line(path);
            let what = format!("{} of the skill {:?} is left out: {why}", quoted(&named), skill.name);
            let rest = if more > 0 { format!("; {more} more like it") } else { String::new() };
            let hint = format!("a model reads nothing of it, and no lock keeps it{rest}");
            self.registry.diagnostics.push(Diagnostic::warning(what).at(skill.source.clone()).hint(hint));
        }
        let is_other = |file: &&tree::Entry| {
            let below = format!("{place}/{}", file.path);
            self.content_of(here, &below).is_some_and(|(content, path)| content.digest_of(path) != Some(&file.sha256))
        };
        if let Some(file) = tree.files.iter().find(is_other) {
            let shown = here.root.shown(&format!("{place}/{}", file.path));
            self.fail(&shown, true, &std::io::Error::other("it was changed while it was read"));
            return false;
        }
        let files = tree.files.into_iter().filter(|file| file.path != SKILL_FILE);
        skill.files = files.map(|file| SkillFile { path: file.path, bytes: file.bytes, sha256: file.sha256 }).collect();
        skill.folder = Some(folder);
        true
    }
}

/// Why a file or folder of a name is not part of a skill; nothing to say of hidden ones, such as `.git`.
fn left_out(name: &str) -> Option<String> {
    if protected::is_sensitive(name) {
        return Some("it has a sensitive name".to_owned());
    }
    if name.chars().any(|c| harness_policy::text::is_hidden(c) || matches!(c, '\\' | ':')) {
        return Some("its name has characters that a path of the workspace has not".to_owned());
    }
    name.starts_with('.').then(String::new)
}
