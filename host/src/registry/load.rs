//! The walk through `.harness/`, and through the other folders that `harness.md` names.
//!
//! ```text
//! harness.md               the policy; `tools:`, `hooks:`, `agents:` in it; its prose is the system prompt
//! tools/ hooks/ agents/    one artifact a file, named by it
//! skills/                  NAME.md, or a folder NAME/ with SKILL.md and files beside it
//! plugins/ builtins/       bundles: NAME.md with lists, or a folder NAME/ that holds tools/, hooks/, agents/,
//! overrides/               skills/ and bundle.md, any of them
//! ```

mod skills;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use self::skills::SKILLS;
use super::merge::{self, Level};
use super::{BundleFile, Machine, Registry, resolve};
use crate::ambient;
use crate::artifact::agent::Agent;
use crate::artifact::bundle::{Bundle, Lists};
use crate::artifact::diagnostic::Diagnostic;
use crate::artifact::hook::Hook;
use crate::artifact::policy::ProjectPolicy;
use crate::artifact::policy::machine::{self, MachinePolicy};
use crate::artifact::suggest::closest;
use crate::artifact::tool::Tool;

/// The folder of a project's artifacts.
const FOLDER: &str = ".harness";
/// The file of its policy.
const POLICY_FILE: &str = ".harness/harness.md";
/// The file with the lists of a bundle that is a folder.
const BUNDLE_FILE: &str = "bundle.md";
/// Folders of single artifacts.
const SINGLES: [&str; 3] = ["tools", "hooks", "agents"];
/// Folders of bundles.
const BUNDLES: [&str; 3] = ["plugins", "builtins", "overrides"];
/// Folders of artifacts in a bundle.
const PARTS: [&str; 4] = [SINGLES[0], SINGLES[1], SINGLES[2], SKILLS];

/// See [`Registry::load`].
pub(super) fn project(root: &Path, machine: &Machine) -> Registry {
    let mut load = Load::default();
    let machine = load.machine(machine);
    match ambient::real_path(&root.join(FOLDER)) {
        Ok(real) => {
            let home = Root { shown: FOLDER.to_owned(), real };
            load.policy(&home);
            if let (Some(policy), Some(machine)) = (&mut load.registry.policy, machine) {
                *policy = std::mem::replace(policy, ProjectPolicy::absent(POLICY_FILE)).within(machine);
            }
            load.walk(&home);
            load.further_roots(root);
            load.finish();
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let missing = Diagnostic::error(format!("there is no folder `{FOLDER}` here"));
            load.registry.diagnostics.push(missing.hint("make one with `harness init`"));
        }
        Err(error) => load.fail(FOLDER, &error.to_string()),
    }
    load.registry
}

/// A folder with artifacts.
struct Root {
    /// As messages name it.
    shown: String,
    /// Where it really is. Nothing outside it is read.
    real: PathBuf,
}

#[derive(Default)]
struct Load {
    registry: Registry,
    base: Level,
    overrides: Level,
    /// All artifacts and bundles by the name that `sandbox.sources` uses, those with errors too.
    found: Vec<String>,
    /// Hooks so far, for the index in messages.
    hooks: usize,
    /// Bytes of the files beside all skills.
    skill_bytes: u64,
    /// Whether something that may guard against something could not be read.
    guard_lost: bool,
}

impl Load {
    /// The machine's policy. One that is there and cannot be used stops everything.
    fn machine(&mut self, machine: &Machine) -> Option<MachinePolicy> {
        let (path, named) = match machine {
            Machine::Installed => (Path::new(machine::FILE), false),
            Machine::File(path) => (path.as_path(), true),
            Machine::None => return None,
        };
        let shown = path.display().to_string();
        let text = match ambient::read_text(path) {
            Ok(text) => text,
            // A link that leads nowhere is there.
            Err(error) if error.kind() == ErrorKind::NotFound && !named && !path.is_symlink() => return None,
            Err(error) => {
                let message = format!("cannot read the machine's policy `{shown}`: {error}");
                self.registry.diagnostics.push(Diagnostic::error(message));
                self.guard_lost = true;
                return None;
            }
        };
        let (policy, diagnostics) = MachinePolicy::parse(&shown, &text);
        self.registry.sources.insert(shown, text);
        self.registry.machine = Some(path.to_owned());
        self.registry.diagnostics.append(diagnostics);
        self.guard_lost |= policy.is_none();
        policy
    }

    fn policy(&mut self, home: &Root) {
        // A link that leads nowhere is there, and is not the same as no policy.
        let absent = match ambient::list_folder(&home.real) {
            Ok(names) => !names.iter().any(|name| name == "harness.md"),
            Err(error) => return self.fail(FOLDER, &error.to_string()),
        };
        if absent {
            self.registry.policy = Some(ProjectPolicy::absent(POLICY_FILE));
            return;
        }
        let Some(text) = self.text(home, POLICY_FILE) else { return };
        let (policy, diagnostics) = ProjectPolicy::parse(POLICY_FILE, &text);
        self.registry.diagnostics.append(diagnostics);
        if let Some(policy) = &policy {
            self.lists(policy.lists.clone(), false);
        }
        self.registry.policy = policy;
    }

    /// Folders that `artifact_sources` names. What is in them is the operator's own, as what is in `.harness/` is.
    fn further_roots(&mut self, root: &Path) {
        let roots = self.registry.policy.as_ref().map(|policy| policy.roots.clone()).unwrap_or_default();
        for further in roots {
            match ambient::real_path(&root.join(&further.value)) {
                Ok(real) => {
                    self.registry.roots.push(real.clone());
                    self.walk(&Root { shown: further.value, real });
                }
                Err(error) => {
                    let message = format!("cannot read `{}`: {error}", further.value);
                    self.registry.diagnostics.push(Diagnostic::error(message).at(further.position));
                    self.guard_lost = true;
                }
            }
        }
    }

    fn walk(&mut self, root: &Root) {
        self.misnamed(root, &root.shown, &[&PARTS[..], &BUNDLES].concat());
        self.singles(root, &root.shown.clone(), false);
        for folder in BUNDLES {
            let shown = format!("{}/{folder}", root.shown);
            let overrides = folder == "overrides";
            let Names { stems, folders, others } = self.names(root, &shown);
            for other in others.iter().filter(|name| is_meant_to_be_read(name)) {
                self.unread(&format!("{shown}/{other}"), "a bundle is a file `NAME.md`, or a folder");
            }
            for stem in &stems {
                let place = format!("{shown}/{stem}");
                if folders.contains(stem) {
                    let message = format!("`{place}.md` and `{place}/` are one bundle twice");
                    let hint = format!("put the lists into `{place}/{BUNDLE_FILE}`");
                    self.registry.diagnostics.push(Diagnostic::error(message).hint(hint));
                    self.guard_lost = true;
                }
                self.bundle(root, &format!("{place}.md"), &place, overrides);
            }
            for name in &folders {
                self.bundle_folder(root, &format!("{shown}/{name}"), overrides);
            }
        }
    }

    fn bundle_folder(&mut self, root: &Root, place: &str, overrides: bool) {
        let name = place.rsplit('/').next().unwrap_or(place);
        if PARTS.contains(&name) {
            let message = format!("`{place}/` is not read: a bundle cannot be named `{name}`");
            let folder = place.strip_suffix(name).unwrap_or(place);
            let hint = format!("give the bundle a folder of its own: `{folder}NAME/{name}/`");
            self.registry.diagnostics.push(Diagnostic::error(message).hint(hint));
            self.guard_lost = true;
            return;
        }
        // A link that leads out: said once, and which hooks are lost with it cannot be known.
        if self.inside(root, place).is_none() {
            self.guard_lost = true;
            return;
        }
        let has_file = self.inside(root, &format!("{place}/{BUNDLE_FILE}")).is_some();
        if !has_file && !PARTS.iter().any(|part| ambient::is_folder(&root.path(&format!("{place}/{part}")))) {
            let message = format!("`{place}/` holds no artifacts");
            let hint = format!("a bundle has `{BUNDLE_FILE}`, or a folder `tools`, `hooks`, `agents` or `skills`");
            self.registry.diagnostics.push(Diagnostic::warning(message).hint(hint));
        }
        self.misnamed(root, place, &PARTS);
        if has_file {
            self.bundle(root, &format!("{place}/{BUNDLE_FILE}"), place, overrides);
        } else {
            self.registry.bundles.push(BundleFile { name: root.name_of(place), prose: String::new() });
            self.found.push(root.name_of(place));
        }
        self.singles(root, place, overrides);
    }

    /// A bundle's file.
    fn bundle(&mut self, root: &Root, file: &str, place: &str, overrides: bool) {
        let name = root.name_of(place);
        self.found.push(name.clone());
        let Some(text) = self.text(root, file) else {
            self.guard_lost = true;
            return;
        };
        let (bundle, diagnostics) = Bundle::parse(file, &name, &text);
        self.registry.diagnostics.append(diagnostics);
        match bundle {
            Some(bundle) => {
                self.registry.bundles.push(BundleFile { name, prose: bundle.prose });
                self.lists(bundle.lists, overrides);
            }
            // Which of its hooks are lost cannot be known.
            None => self.guard_lost = true,
        }
    }

    fn lists(&mut self, lists: Lists, overrides: bool) {
        let Lists { tools, hooks, agents } = lists;
        self.found.extend(tools.iter().map(|tool| tool.source_name.clone()));
        self.found.extend(hooks.iter().map(|hook| hook.source_name.clone()));
        self.found.extend(agents.iter().map(|agent| agent.source_name.clone()));
        let level = self.level(overrides);
        level.tools.extend(tools);
        level.hooks.extend(hooks);
        level.agents.extend(agents);
    }

    /// The folders of single artifacts in a folder.
    fn singles(&mut self, root: &Root, folder: &str, overrides: bool) {
        for (file, stem) in self.files(root, &format!("{folder}/tools")) {
            let text = self.text(root, &file);
            let (tool, diagnostics) =
                text.map_or_else(Default::default, |text| Tool::parse_at(&file, &root.name_of(&file), &stem, &text));
            self.registry.diagnostics.append(diagnostics);
            self.level(overrides).tools.extend(tool);
        }
        for (file, stem) in self.files(root, &format!("{folder}/hooks")) {
            let text = self.text(root, &file);
            let index = self.hooks;
            self.hooks = self.hooks.saturating_add(1);
            let (hook, diagnostics) = text
                .map_or_else(Default::default, |text| Hook::parse_at(&file, &root.name_of(&file), &stem, index, &text));
            self.registry.diagnostics.append(diagnostics);
            // A hook that is left out guards nothing.
            self.guard_lost |= hook.is_none();
            self.level(overrides).hooks.extend(hook);
        }
        for (file, stem) in self.files(root, &format!("{folder}/agents")) {
            let text = self.text(root, &file);
            let (agent, diagnostics) =
                text.map_or_else(Default::default, |text| Agent::parse_at(&file, &root.name_of(&file), &stem, &text));
            self.registry.diagnostics.append(diagnostics);
            self.level(overrides).agents.extend(agent);
        }
        self.skills(root, folder, overrides);
    }

    fn level(&mut self, overrides: bool) -> &mut Level {
        if overrides { &mut self.overrides } else { &mut self.base }
    }

    fn finish(&mut self) {
        let before = self.registry.diagnostics.errors();
        merge::into(&mut self.registry, std::mem::take(&mut self.base), std::mem::take(&mut self.overrides));
        // Two of one name: which of them is meant cannot be known.
        self.guard_lost |= self.registry.diagnostics.errors() > before && !self.registry.hooks.is_empty();
        resolve::reserved(&mut self.registry);
        resolve::references(&mut self.registry);
        resolve::tools_of_skills(&mut self.registry);
        resolve::rules(&mut self.registry, &self.found);
        resolve::done(&mut self.registry);
        if self.guard_lost {
            self.registry.policy = None;
        }
    }

    /// The artifacts in a folder, as a shell would list `*.md`: file and stem.
    fn files(&mut self, root: &Root, shown: &str) -> Vec<(String, String)> {
        let Names { stems, folders, others } = self.names(root, shown);
        let holds_some = |folder: &&String| {
            let names = ambient::list_folder(&root.path(&format!("{shown}/{folder}"))).unwrap_or_default();
            names.iter().filter_map(|name| name.to_str()).any(is_meant_to_be_read)
        };
        let folders = folders.iter().filter(holds_some).map(|folder| format!("{folder}/"));
        for other in folders.chain(others.into_iter().filter(|name| is_meant_to_be_read(name))) {
            self.unread(&format!("{shown}/{other}"), &format!("an artifact is a file `NAME.md` in `{shown}/` itself"));
        }
        self.found.extend(stems.iter().map(|stem| root.name_of(&format!("{shown}/{stem}"))));
        stems.into_iter().map(|stem| (format!("{shown}/{stem}.md"), stem)).collect()
    }

    /// What is in a folder. Nothing where there is no such folder.
    fn names(&mut self, root: &Root, shown: &str) -> Names {
        let mut found = Names::default();
        let Some(path) = self.inside(root, shown) else { return found };
        let names = match ambient::list_folder(&path) {
            Ok(names) => names,
            Err(error) => {
                self.fail(shown, &error.to_string());
                return found;
            }
        };
        for name in names {
            match name.to_str() {
                Some(name) if name.starts_with('.') => {}
                Some(name) => match name.strip_suffix(".md") {
                    Some(stem) => found.stems.push(stem.to_owned()),
                    None if ambient::is_folder(&path.join(name)) => found.folders.push(name.to_owned()),
                    None => found.others.push(name.to_owned()),
                },
                None => self.fail(&format!("{shown}/{}", name.to_string_lossy()), "its name is not UTF-8 text"),
            }
        }
        found
    }

    /// Tells of folders whose names are nearly those that are read: a guard in one of them guards nothing.
    fn misnamed(&mut self, root: &Root, shown: &str, known: &[&str]) {
        // Where it cannot be listed, what it holds cannot be read either, which is told there.
        let names = ambient::list_folder(&root.path(shown)).unwrap_or_default();
        for name in names.iter().filter_map(|name| name.to_str()).filter(|name| !known.contains(name)) {
            let meant = closest(&name.to_lowercase(), known.iter().copied());
            if let Some(meant) = meant.filter(|_| ambient::is_folder(&root.path(&format!("{shown}/{name}")))) {
                self.unread(&format!("{shown}/{name}/"), &format!("did you mean `{meant}/`?"));
            }
        }
    }

    fn unread(&mut self, shown: &str, hint: &str) {
        self.registry.diagnostics.push(Diagnostic::warning(format!("`{shown}` is not read")).hint(hint));
    }

    /// Reads a file and keeps its text for messages.
    fn text(&mut self, root: &Root, file: &str) -> Option<String> {
        let path = self.inside(root, file)?;
        match ambient::read_text(&path) {
            Ok(text) => {
                self.registry.sources.insert(file.to_owned(), text.clone());
                Some(text)
            }
            Err(error) => {
                self.fail(file, &error.to_string());
                None
            }
        }
    }

    /// The real path of something below a root, if it is there and no link leads out of it.
    fn inside(&mut self, root: &Root, shown: &str) -> Option<PathBuf> {
        let path = root.path(shown);
        match ambient::real_path(&path) {
            Ok(real) if real.starts_with(&root.real) => Some(real),
            Ok(_) => {
                self.fail(shown, "a link leads out of the folder");
                None
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => None,
            Err(error) => {
                self.fail(shown, &error.to_string());
                None
            }
        }
    }

    fn fail(&mut self, shown: &str, why: &str) {
        self.registry.diagnostics.push(Diagnostic::error(format!("cannot read `{shown}`: {why}")));
        // What could not be read may be a guard, but for a file that is a tool or an agent for sure.
        let single = shown.rsplit('/').take(2).any(|part| matches!(part, "tools" | "agents" | SKILLS));
        self.guard_lost |= !single;
    }
}

/// Whether somebody probably takes a file of this name for an artifact.
fn is_meant_to_be_read(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    ending.is_some_and(|ending| matches!(&*ending, "md" | "markdown" | "mdx" | "star"))
}

/// The names of what is in a folder, sorted, without hidden ones.
#[derive(Default)]
struct Names {
    /// Of Markdown files, without the ending.
    stems: Vec<String>,
    folders: Vec<String>,
    /// Of all else.
    others: Vec<String>,
}

impl Root {
    /// The name of something as a source: its path below the root, without the ending.
    fn name_of(&self, shown: &str) -> String {
        let below = shown.strip_prefix(&self.shown).unwrap_or(shown).trim_start_matches('/');
        below.strip_suffix(".md").unwrap_or(below).to_owned()
    }

    fn path(&self, shown: &str) -> PathBuf {
        self.real.join(shown.strip_prefix(&self.shown).unwrap_or(shown).trim_start_matches('/'))
    }
}
