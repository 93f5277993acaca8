//! The walk through `.harness/`, and through the other folders that `harness.md` names.
//!
//! ```text
//! harness.md               the policy; `tools:`, `hooks:`, `agents:` in it; its prose is the system prompt. It may also be
//!                          `harness.md` or `harness.yaml` beside `.harness/`
//! tools/ hooks/ agents/    one artifact a file, named by it
//! skills/                  NAME.md, or a folder NAME/ with SKILL.md and files beside it
//! plugins/ builtins/       bundles: NAME.md with lists, or a folder NAME/ that holds tools/, hooks/, agents/,
//! overrides/               skills/ and bundle.md, any of them; one under plugins/ may have plugin.md
//! ```
//!
//! - `pinned`: plugins that the lock names
//! - `plugins`: plugins with a `plugin.md`
//! - `policy`: the policies, wherever they are
//! - `further`: the folders and repositories that `artifact_sources` names
//! - `skills`: skills and the files beside them
//! - `strays`: what nobody reads
//! - `trusted`: where plugins may come from

mod further;
mod pinned;
mod plugins;
mod policy;
mod skills;
mod strays;
mod trusted;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) use self::further::mismatch;
pub(super) use self::policy::NOT_BESIDE;
use self::skills::SKILLS;
use super::bounds::{Amounts, Bounds};
use super::lock::Lock;
use super::merge::{self, Level};
use super::root::{Found, Names, Root};
use super::{BundleFile, Host, Machine, Proposal, Registry, Unsaved, resolve};
use harness_artifact::agent::Agent;
use harness_artifact::bundle::{Bundle, Lists};
use harness_artifact::diagnostic::{Diagnostic, Diagnostics, Position};
use harness_artifact::hook::Hook;
use harness_artifact::plugin;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::tool::{Tool, name_problem};
use harness_plugin::content::Content;
use harness_sys as sys;

/// The folder of a project's artifacts.
pub(super) const FOLDER: &str = ".harness";
/// The file of its policy, in that folder.
const POLICY: &str = "harness.md";
/// The same as messages name it, and as one is to be written.
const POLICY_FILE: &str = ".harness/harness.md";
/// The file with the lists of a bundle that is a folder.
const BUNDLE_FILE: &str = "bundle.md";
/// Folders of single artifacts.
pub(super) const SINGLES: [&str; 3] = ["tools", "hooks", "agents"];
/// Folders of bundles.
pub(super) const BUNDLES: [&str; 3] = ["plugins", "builtins", "overrides"];
/// Folders that are read in another way, or that hold no artifacts.
pub(super) const OTHERS: [&str; 3] = [SKILLS, KEPT[0], KEPT[1]];
/// Folders of the host's own records.
const KEPT: [&str; 2] = ["audit", "sessions"];

/// See [`Registry::load`].
pub(super) fn project(root: &Path, host: &Host<'_>, proposal: &Proposal<'_>) -> Registry {
    let unsaved = proposal.unsaved.cloned().unwrap_or_default();
    let mut load = Load { plugins: host.plugins.clone(), unsaved, ..Load::default() };
    let (lock, machine) = (proposal.lock, load.machine(host.machine));
    let home = match sys::real_path(&root.join(FOLDER)) {
        Ok(real) => Some(Root::home(FOLDER, real)),
        // One file beside it is a whole project.
        Err(error) if error.kind() == ErrorKind::NotFound && policy::is_beside(root) => None,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let missing = Diagnostic::error(format!("there is not a folder `{FOLDER}` here"));
            load.registry.diagnostics.push(missing.hint("make one with `harness init`"));
            return load.registry;
        }
        Err(error) => {
            load.fail(FOLDER, true, &error);
            return load.registry;
        }
    };
    load.policy(root, home.as_ref(), proposal.policy);
    if load.names_of_server(host.machine) {
        load.registry.policy = None;
        return load.registry;
    }
    if let (Some(policy), Some(machine)) = (&mut load.registry.policy, machine) {
        *policy = std::mem::replace(policy, ProjectPolicy::absent(POLICY_FILE)).narrowed_by(machine);
    }
    if let Some(lock) = lock {
        load.vendored(lock, home.as_ref(), proposal.from_cache);
        load.cached(lock, root, home.as_ref(), proposal.from_cache);
    }
    if let Some(home) = &home {
        load.passed_over = proposal.from_cache.map(|name| format!("plugins/{name}"));
        load.walk(home);
    }
    load.further_roots(root, home, (!proposal.bare).then_some(lock));
    if let Some(lock) = lock {
        load.servers(lock);
        load.as_locked(lock);
    }
    if !proposal.bare {
        load.trusted(lock);
    }
    load.finish();
    load.registry
}

/// See [`Registry::outside`].
pub(super) fn outside(machine: &Machine) -> Registry {
    let mut load = Load::default();
    let machine = load.machine(machine);
    if !load.guard_lost {
        let policy = ProjectPolicy::absent(POLICY_FILE);
        load.registry.policy = Some(match machine {
            Some(machine) => policy.narrowed_by(machine),
            None => policy,
        });
    }
    load.registry
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
    /// Bytes that were read of the files beside all skills.
    skill_bytes: u64,
    /// Whether something that may guard against something could not be read.
    guard_lost: bool,
    /// What was taken of what loading may take.
    bounds: Bounds,
    /// The further folders with artifacts that the policy names, where they are.
    roots: Vec<PathBuf>,
    /// The folder of the plugins of the machine.
    plugins: Option<PathBuf>,
    /// The content of each plugin that the lock names, by its source.
    expected: HashMap<String, Content>,
    /// The repositories that were read, by what names of their sources begin with, each with what it is fetched from.
    repositories: Vec<(String, String)>,
    /// The place of a bundle that was read elsewhere already.
    passed_over: Option<String>,
    /// Texts that are read instead of those of their files.
    unsaved: Unsaved,
}

/// Where something is: below a root, and in which source, whose bounds it counts for.
#[derive(Clone, Copy)]
struct Within<'a> {
    root: &'a Root,
    source: &'a str,
}

impl Load {
    /// The tools of servers, as they were locked.
    fn servers(&mut self, lock: &Lock) {
        let servers = self.registry.policy.as_ref().map(|policy| policy.mcp.servers.clone()).unwrap_or_default();
        for server in servers {
            let Some(locked) = lock.server(&server.name).filter(|locked| locked.against(&server).is_none()) else {
                continue;
            };
            let (tools, wrong) = locked.tools(&server);
            wrong.into_iter().for_each(|one| self.registry.diagnostics.push(one));
            self.base.tools.extend(tools);
            self.registry.servers.push(Arc::new(locked.clone()));
        }
    }

    fn walk(&mut self, root: &Root) {
        let own = root.shown("");
        let here = Within { root, source: &own };
        self.strays(here, "", &[&SINGLES[..], &BUNDLES, &OTHERS].concat());
        if root.is_home() {
            // The host's own records are in these, and nothing is read from there.
            KEPT.iter().for_each(|folder| self.stray_folder(here, folder, None, false));
        }
        self.singles(here, "", false);
        for folder in BUNDLES {
            let overrides = folder == "overrides";
            if overrides && root.is_third_party() {
                self.no_overrides(here);
                continue;
            }
            let Names { files, folders, others, hidden, unnamed: _ } = self.names(here, folder, true);
            let hint = "a bundle is a file `NAME.md`, or a folder";
            for other in &others {
                self.stray_file(here, &format!("{folder}/{other}"), Some(hint));
            }
            self.hidden(here, folder, &hidden);
            for file in &files {
                let shown = root.shown(&file.place);
                if folders.contains(&file.stem) {
                    let message = format!("`{shown}.md` and `{shown}/` are one bundle twice");
                    let hint = format!("put the lists into `{shown}/{BUNDLE_FILE}`");
                    self.registry.diagnostics.push(Diagnostic::error(message).hint(hint));
                    self.guard_lost = true;
                }
                let source = root.source(&file.place);
                let here = Within { root, source: &source };
                if !self.readme(here, &file.below) && self.bundle_name(here, &file.below, &file.stem) {
                    self.bundle(here, &file.below, &file.place, overrides);
                }
            }
            for name in &folders {
                let place = format!("{folder}/{name}");
                if root.is_home() && self.passed_over.as_ref() == Some(&place) {
                    continue;
                }
                let source = root.source(&place);
                self.bundle_folder(Within { root, source: &source }, &place, name, overrides);
            }
        }
    }

    /// Whether a bundle can be called so.
    fn bundle_name(&mut self, here: Within<'_>, below: &str, name: &str) -> bool {
        let Some(wrong) = name_problem(name) else { return true };
        let shown = here.root.shown(below);
        let message = format!("the name of a bundle {wrong}: `{shown}`");
        self.registry.diagnostics.push(Diagnostic::error(message).hint("rename it"));
        self.guard_lost = true;
        false
    }

    fn bundle_folder(&mut self, here: Within<'_>, place: &str, name: &str, overrides: bool) {
        let shown = here.root.shown(place);
        if SINGLES.contains(&name) || name == SKILLS {
            let message = format!("`{shown}/` is not read: a bundle cannot be named `{name}`");
            let folder = shown.strip_suffix(name).unwrap_or(&shown);
            let hint = format!("give the bundle a folder of its own: `{folder}NAME/{name}/`");
            self.registry.diagnostics.push(Diagnostic::error(message).hint(hint));
            self.guard_lost = true;
            return;
        }
        // A link that leads out: said once, and which hooks are lost with it cannot be known.
        if self.inside(here.root, place, true).is_none() {
            self.guard_lost = true;
            return;
        }
        if !self.bundle_name(here, place, name) {
            return;
        }
        let file = format!("{place}/{BUNDLE_FILE}");
        let has_file = self.inside(here.root, &file, true).is_some();
        let has_part = |part: &&str| sys::is_folder(&here.root.path(&format!("{place}/{part}")));
        if !has_file && !SINGLES.iter().chain(&[SKILLS]).any(has_part) {
            let message = format!("`{shown}/` holds no artifacts");
            let hint = format!("a bundle has `{BUNDLE_FILE}`, or a folder `tools`, `hooks`, `agents` or `skills`");
            self.registry.diagnostics.push(Diagnostic::warning(message).hint(hint));
        }
        let is_plugin = place.starts_with("plugins/");
        let plugin_file: &[&str] = if is_plugin { &[plugin::FILE] } else { &[] };
        self.strays(here, place, &[&SINGLES[..], &OTHERS, plugin_file].concat());
        let plugin = if is_plugin { self.plugin(here, place) } else { None };
        if has_file {
            self.bundle(here, &file, place, overrides);
        } else {
            self.registry.bundles.push(BundleFile {
                name: here.source.to_owned(),
                path: shown,
                ..BundleFile::default()
            });
            self.found.push(here.source.to_owned());
        }
        if let Some(bundle) = self.registry.bundles.last_mut().filter(|bundle| bundle.name == here.source) {
            bundle.plugin = plugin;
        }
        self.singles(here, place, overrides);
    }

    /// A bundle's file.
    fn bundle(&mut self, here: Within<'_>, below: &str, place: &str, overrides: bool) {
        let name = here.source.to_owned();
        self.found.push(name.clone());
        let Some(text) = self.text(here, below, true) else {
            self.guard_lost = true;
            return;
        };
        let file = here.root.shown(below);
        let (bundle, diagnostics) = Bundle::parse(&file, &name, &text);
        self.parsed(here.source, &file, diagnostics);
        match bundle {
            Some(bundle) => {
                let path = here.root.shown(place);
                let (prose, tags) = (bundle.prose, bundle.tags);
                self.registry.bundles.push(BundleFile { name, path, prose, tags, ..BundleFile::default() });
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
    fn singles(&mut self, here: Within<'_>, folder: &str, overrides: bool) {
        for one in self.files(here, folder, "tools", false) {
            let (file, source) = (here.root.shown(&one.below), here.root.source(&one.place));
            let text = self.text(here, &one.below, false);
            let (tool, diagnostics) =
                text.map_or_else(Default::default, |text| Tool::parse_at(&file, &source, &one.stem, &text));
            self.parsed(here.source, &file, diagnostics);
            self.level(overrides).tools.extend(tool);
        }
        for one in self.files(here, folder, "hooks", true) {
            let (file, source) = (here.root.shown(&one.below), here.root.source(&one.place));
            let text = self.text(here, &one.below, true);
            let index = self.hooks;
            self.hooks = self.hooks.saturating_add(1);
            let (hook, diagnostics) =
                text.map_or_else(Default::default, |text| Hook::parse_at(&file, &source, &one.stem, index, &text));
            self.parsed(here.source, &file, diagnostics);
            // A hook that is left out guards nothing.
            self.guard_lost |= hook.is_none();
            self.level(overrides).hooks.extend(hook);
        }
        for one in self.files(here, folder, "agents", false) {
            let (file, source) = (here.root.shown(&one.below), here.root.source(&one.place));
            let text = self.text(here, &one.below, false);
            let (agent, diagnostics) =
                text.map_or_else(Default::default, |text| Agent::parse_at(&file, &source, &one.stem, &text));
            self.parsed(here.source, &file, diagnostics);
            self.level(overrides).agents.extend(agent);
        }
        self.skills(here, folder, overrides);
    }

    fn level(&mut self, overrides: bool) -> &mut Level {
        if overrides { &mut self.overrides } else { &mut self.base }
    }

    fn finish(&mut self) {
        self.held_to_asks();
        let before = self.registry.diagnostics.errors();
        merge::into(&mut self.registry, std::mem::take(&mut self.base), std::mem::take(&mut self.overrides));
        resolve::look_alikes(&mut self.registry);
        // Two of one name: which of them is meant cannot be known.
        self.guard_lost |= self.registry.diagnostics.errors() > before && !self.registry.hooks.is_empty();
        resolve::reserved(&mut self.registry);
        resolve::references(&mut self.registry);
        resolve::tools_of_skills(&mut self.registry);
        resolve::rules(&mut self.registry, std::mem::take(&mut self.found));
        resolve::done(&mut self.registry);
        self.unheard();
        if self.guard_lost {
            self.registry.policy = None;
        }
    }

    /// The artifacts in a folder of single ones, as a shell would list `*.md`.
    fn files(&mut self, here: Within<'_>, folder: &str, part: &str, guards: bool) -> Vec<Found> {
        let folder = if folder.is_empty() { part.to_owned() } else { format!("{folder}/{part}") };
        let Names { mut files, folders, others, hidden, unnamed: _ } = self.names(here, &folder, guards);
        self.hidden(here, &folder, &hidden);
        let hint = format!("an artifact is a file `NAME.md` in `{}/` itself", here.root.shown(&folder));
        for name in folders {
            self.stray_folder(here, &format!("{folder}/{name}"), Some(&hint), true);
        }
        for name in others {
            self.stray_file(here, &format!("{folder}/{name}"), Some(&hint));
        }
        files.retain(|file| !self.readme(here, &file.below));
        self.found.extend(files.iter().map(|file| here.root.source(&file.place)));
        files
    }

    /// What is in a folder. Nothing where there is no such folder. `guards` says whether something that guards may be in it.
    fn names(&mut self, here: Within<'_>, folder: &str, guards: bool) -> Names {
        let Some(path) = self.inside(here.root, folder, guards) else { return Names::default() };
        let listed = match sys::list_folder(&path) {
            Ok(mut listed) => {
                self.unsaved.list(&path, &mut listed);
                listed
            }
            Err(error) => {
                self.fail(&here.root.shown(folder), guards, &error);
                return Names::default();
            }
        };
        if !self.take(here.source, Amounts::listed(listed.len()), None) {
            return Names::default();
        }
        let names = here.root.names(folder, listed);
        for name in &names.unnamed {
            let shown = here.root.shown(&format!("{folder}/{name}"));
            self.fail(&shown, guards, &std::io::Error::other("its name is not UTF-8 text"));
        }
        names
    }

    /// Counts what was found in a file, and keeps what is wrong with it.
    fn parsed(&mut self, source: &str, file: &str, diagnostics: Diagnostics) {
        let problems = diagnostics.errors().saturating_add(diagnostics.warnings());
        let taken = Amounts::parsed(diagnostics.values(), problems);
        self.registry.diagnostics.append(diagnostics);
        self.take(source, taken, Some(file));
    }

    /// Takes of what loading may take. False where there is not so much left: then something is not read that may guard.
    fn take(&mut self, source: &str, more: Amounts, file: Option<&str>) -> bool {
        if let Err(over) = self.bounds.take(source, more) {
            self.registry.diagnostics.push(match file {
                Some(file) => over.at(Position { file: file.into(), line: 1, column: 1, length: 1 }),
                None => over,
            });
            self.guard_lost = true;
        }
        self.bounds.admits(source)
    }

    /// Reads a file and keeps its text for messages.
    fn text(&mut self, here: Within<'_>, below: &str, guards: bool) -> Option<String> {
        if !self.bounds.admits(here.source) {
            return None;
        }
        if self.content_of(here, below).is_some() {
            return self.verified_text(here, below, guards);
        }
        let path = self.inside(here.root, below, guards)?;
        self.read(here.source, &here.root.shown(below), &path, guards)
    }

    fn read(&mut self, source: &str, file: &str, path: &Path, guards: bool) -> Option<String> {
        let read = self.unsaved.text(path).unwrap_or_else(|| sys::read_text(path));
        self.kept(source, file, read, guards)
    }

    /// Counts a text that was read, and keeps it for messages.
    fn kept(&mut self, source: &str, file: &str, read: std::io::Result<String>, guards: bool) -> Option<String> {
        match read {
            Ok(text) => {
                if !self.take(source, Amounts::read(text.len()), Some(file)) {
                    return None;
                }
                self.registry.sources.insert(file.to_owned(), text.clone());
                Some(text)
            }
            Err(error) => {
                self.fail(file, guards, &error);
                None
            }
        }
    }

    /// The real path of something below a root, if it is there and no link leads out of it.
    fn inside(&mut self, root: &Root, below: &str, guards: bool) -> Option<PathBuf> {
        let (path, shown) = (root.path(below), &root.shown(below));
        match sys::real_path(&path) {
            Ok(real) if real.starts_with(&root.real) => Some(real),
            Ok(_) => {
                self.fail(shown, guards, &std::io::Error::other("a link leads out of the folder"));
                None
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {
                self.unsaved.has(&path).then_some(path)
            }
            Err(error) => {
                self.fail(shown, guards, &error);
                None
            }
        }
    }

    /// Says that something could not be read. `guards` is whether it may be what guards: all but tools and agents.
    fn fail(&mut self, shown: &str, guards: bool, why: &std::io::Error) {
        let error = Diagnostic::error(format!("cannot read `{shown}`: {why}"));
        self.registry.diagnostics.push(located(error, shown, why));
        self.guard_lost |= guards;
    }
}

/// The same at the place in the file that the error knows of.
fn located(diagnostic: Diagnostic, file: &str, why: &std::io::Error) -> Diagnostic {
    let not_text = why.get_ref().and_then(|inner| inner.downcast_ref::<sys::NotText>());
    match not_text {
        Some(sys::NotText { line, column }) => diagnostic
            .at(Position { file: file.into(), line: *line, column: *column, length: 1 })
            .hint("save the file as UTF-8"),
        None => diagnostic,
    }
}
