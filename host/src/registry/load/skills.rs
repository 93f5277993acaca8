//! Skills: `NAME.md`, or a folder `NAME/` with `SKILL.md` and files beside it.

use super::{Load, Names, Root, is_meant_to_be_read};
use crate::ambient::tree::{self, Most};
use crate::artifact::diagnostic::Diagnostic;
use crate::artifact::escape;
use crate::artifact::skill::{Skill, SkillFile};
use crate::artifact::suggest::quoted;
use crate::policy::path::protected;

/// The folder of skills.
pub(super) const SKILLS: &str = "skills";
/// The file with the prose of a skill that is a folder.
const SKILL_FILE: &str = "SKILL.md";
/// Skills of a project at most: a model is shown a line of each.
const MAX_SKILLS: usize = 256;
/// What may be beside a skill.
const MOST: Most = Most { entries: 1_000, bytes: 16 << 20, levels: 16 };
/// Bytes beside all skills of a project: they are looked at whenever it is loaded.
const MAX_BYTES: u64 = 32 << 20;
/// Files that are left out and told of, of one skill.
const MAX_TOLD: usize = 5;

impl Load {
    /// The skills in a folder.
    pub(super) fn skills(&mut self, root: &Root, folder: &str, overrides: bool) {
        let shown = format!("{folder}/{SKILLS}");
        let Names { stems, folders, others } = self.names(root, &shown);
        for other in others.iter().filter(|name| is_meant_to_be_read(name)) {
            self.unread(&format!("{shown}/{other}"), "a skill is a file `NAME.md`, or a folder with `SKILL.md`");
        }
        for stem in &stems {
            self.skill(root, &format!("{shown}/{stem}.md"), &format!("{shown}/{stem}"), stem, overrides);
        }
        for name in &folders {
            let (place, file) = (format!("{shown}/{name}"), format!("{shown}/{name}/{SKILL_FILE}"));
            // A link that leads out was told.
            if self.inside(root, &place).is_none() {
                continue;
            }
            if self.inside(root, &file).is_some() {
                self.skill(root, &file, &place, name, overrides);
            } else {
                self.unread(&format!("{place}/"), &format!("a skill that is a folder has its prose in `{SKILL_FILE}`"));
            }
        }
    }

    /// One of them. `place` is its folder, or its file without the ending.
    fn skill(&mut self, root: &Root, file: &str, place: &str, name: &str, overrides: bool) {
        let source_name = root.name_of(place);
        self.found.push(source_name.clone());
        let Some(text) = self.text(root, file) else { return };
        let (skill, diagnostics) = Skill::parse_at(file, &source_name, name, &text);
        self.registry.diagnostics.append(diagnostics);
        let Some(mut skill) = skill else { return };
        if file.ends_with(&format!("/{SKILL_FILE}")) && !self.beside(root, place, &mut skill) {
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

    /// The files beside a skill. False where they cannot be told, which was said.
    fn beside(&mut self, root: &Root, place: &str, skill: &mut Skill) -> bool {
        let Some(folder) = self.inside(root, place) else { return false };
        let most = Most { bytes: MOST.bytes.min(MAX_BYTES.saturating_sub(self.skill_bytes)), ..MOST };
        let tree = match tree::read(&folder, most, left_out) {
            Ok(tree) => tree,
            Err(error) => {
                let all = if most.bytes < MOST.bytes {
                    format!(", with those of all other skills {MAX_BYTES}")
                } else {
                    String::new()
                };
                let error = Diagnostic::error(format!("cannot read what is in `{place}/`: {error}{all}"));
                let hint = format!("a skill has at most {} files and {} bytes beside it", MOST.entries, MOST.bytes);
                self.registry.diagnostics.push(error.hint(hint));
                return false;
            }
        };
        let more = tree.left_out.len().saturating_sub(MAX_TOLD);
        for (path, why) in tree.left_out.iter().take(MAX_TOLD) {
            let shown = escape::line(path);
            let what = format!("{} of the skill {:?} is left out: {why}", quoted(&shown), skill.name);
            let rest = if more > 0 { format!("; {more} more like it") } else { String::new() };
            let hint = format!("a model reads nothing of it, and no lock keeps it{rest}");
            self.registry.diagnostics.push(Diagnostic::warning(what).at(skill.source.clone()).hint(hint));
        }
        let files = tree.files.into_iter().filter(|file| file.path != SKILL_FILE);
        skill.files = files.map(|file| SkillFile { path: file.path, bytes: file.bytes, sha256: file.sha256 }).collect();
        let bytes: u64 = skill.files.iter().map(|file| file.bytes).sum();
        self.skill_bytes = self.skill_bytes.saturating_add(bytes);
        skill.folder = Some(folder);
        true
    }
}

/// Why a file or folder of a name is not part of a skill; nothing to say of hidden ones, such as `.git`.
fn left_out(name: &str) -> Option<String> {
    if protected::is_sensitive(name) {
        return Some("it has a sensitive name".to_owned());
    }
    if name.chars().any(|c| escape::is_hidden(c) || matches!(c, '\\' | ':')) {
        return Some("its name has characters that a path of the workspace has not".to_owned());
    }
    name.starts_with('.').then(String::new)
}
