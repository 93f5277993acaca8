//! The policies: the machine's, and the project's wherever it is.

use std::io::ErrorKind;
use std::path::Path;

use super::{FOLDER, Load, POLICY, POLICY_FILE, Within, located};
use crate::root::Root;
use crate::{Machine, POLICIES_BESIDE, unread};
use harness_artifact::diagnostic::Diagnostic;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::policy::machine::{self, MachinePolicy};
use harness_artifact::policy::tenant;
use harness_policy::path::protected::LOOK_LIKE_POLICIES;
use harness_sys as sys;

/// Names beside `.harness/` that someone may take for those of a policy.
pub(crate) const NOT_BESIDE: [&str; 6] = {
    let [yml, markdown, hidden, hidden_yaml] = LOOK_LIKE_POLICIES;
    ["Harness.md", "HARNESS.md", yml, markdown, hidden, hidden_yaml]
};

/// Whether a policy is beside the folder of the artifacts.
pub(super) fn is_beside(root: &Path) -> bool {
    POLICIES_BESIDE.iter().any(|name| sys::is_there(&root.join(name)))
}

impl Load {
    /// The host policy. One that is there and cannot be used stops everything.
    pub(super) fn machine(&mut self, machine: &Machine) -> Option<MachinePolicy> {
        let (path, named) = match machine {
            Machine::Installed => (Path::new(machine::FILE), false),
            Machine::File(path) | Machine::Server(path) => (path.as_path(), true),
            Machine::None => return None,
        };
        let shown = match machine {
            // A tenant reads it in hints, and learns nothing of where the server keeps it.
            Machine::Server(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            _ => path.display().to_string(),
        };
        let text = match sys::read_text(path) {
            Ok(text) => text,
            // A link that leads nowhere is there.
            Err(error) if error.kind() == ErrorKind::NotFound && !named && !path.is_symlink() => return None,
            Err(error) => {
                let message = format!("cannot read the host policy `{shown}`: {error}");
                self.registry.diagnostics.push(located(Diagnostic::error(message), &shown, &error));
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

    /// The policy, wherever it is. Two of them are none: which one was meant cannot be known.
    pub(super) fn policy(&mut self, root: &Path, home: Option<&Root>, proposed: Option<&str>) {
        // A link that leads nowhere is there, and is not the same as no policy.
        let mut there: Vec<String> = Vec::new();
        if let Some(home) = home {
            match sys::list_folder(&home.real) {
                Ok(mut names) => {
                    self.unsaved.list(&home.real, &mut names);
                    if names.iter().any(|name| name == POLICY) {
                        there.push(POLICY_FILE.to_owned());
                    }
                }
                Err(error) => return self.fail(FOLDER, true, &error),
            }
        }
        there.extend(
            POLICIES_BESIDE.iter().filter(|name| sys::is_there(&root.join(name))).map(|name| (*name).to_owned()),
        );
        self.policies_that_are_none(root);
        let file = match there.as_slice() {
            [] if proposed.is_some() => POLICY_FILE.to_owned(),
            [] => {
                self.registry.policy = Some(ProjectPolicy::absent(POLICY_FILE));
                return;
            }
            [file] => file.clone(),
            several => {
                let names = several.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and ");
                let twice = Diagnostic::error(format!("the project has {} policies: {names}", several.len()));
                self.registry.diagnostics.push(twice.hint("keep one of them, and delete or rename the other"));
                self.guard_lost = true;
                return;
            }
        };
        let text = match home {
            _ if proposed.is_some() => proposed.map(str::to_owned),
            Some(home) if file == POLICY_FILE => self.text(Within { root: home, source: FOLDER }, POLICY, true),
            _ => self.text_beside(root, &file),
        };
        let Some(text) = text else { return };
        if proposed.is_some() {
            self.registry.sources.insert(file.clone(), text.clone());
        }
        let (policy, diagnostics) = ProjectPolicy::parse(&file, &text);
        self.parsed(FOLDER, &file, diagnostics);
        if let Some(policy) = &policy {
            self.lists(policy.lists.clone(), false);
        }
        let roots = policy.iter().flat_map(|policy| &policy.roots).filter_map(|further| further.value.local());
        self.roots = roots.filter_map(|further| sys::real_path(&root.join(further)).ok()).collect();
        self.registry.policy_file.clone_from(&file);
        self.registry.policy = policy;
    }

    /// Whether the policy names something of the server that a tenant shares with others. Then nothing else is read.
    pub(super) fn names_of_server(&mut self, machine: &Machine) -> bool {
        let Machine::Server(_) = machine else { return false };
        let found = self.registry.policy.as_ref().map(tenant::problems).unwrap_or_default();
        let is_any = !found.is_empty();
        found.into_iter().for_each(|one| self.registry.diagnostics.push(one));
        self.guard_lost |= is_any;
        is_any
    }

    /// A policy's text beside the folder of the artifacts. It is there as itself: no link leads to one elsewhere.
    fn text_beside(&mut self, root: &Path, file: &str) -> Option<String> {
        let path = root.join(file);
        if path.is_symlink() {
            self.fail(file, true, &std::io::Error::other("it is a link, and scripts may write what it leads to"));
            return None;
        }
        self.read(FOLDER, file, &sys::real_path(&path).unwrap_or(path), true)
    }

    /// Policies under names that nobody reads.
    fn policies_that_are_none(&mut self, root: &Path) {
        for name in NOT_BESIDE {
            let path = root.join(name);
            if !sys::is_there(&path) || sys::is_folder(&path) {
                continue;
            }
            // On a disk without letter case it is the one that is read, under another spelling.
            let real = sys::real_path(&path).ok();
            if POLICIES_BESIDE.iter().any(|read| real.is_some() && sys::real_path(&root.join(read)).ok() == real) {
                continue;
            }
            let text = sys::read_beginning(&path, unread::LOOKED_AT).unwrap_or_default();
            if unread::telling_key(&name.to_lowercase(), &text).is_some() {
                self.unread_artifact(name, &format!("a policy is in `{POLICY_FILE}`, `harness.md` or `harness.yaml`"));
            }
        }
    }
}
