//! The walk through `.harness/`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::Registry;
use crate::ambient;
use crate::artifact::diagnostic::Diagnostic;
use crate::artifact::hook::Hook;
use crate::artifact::policy::ProjectPolicy;
use crate::artifact::suggest::{closest, quoted};
use crate::artifact::tool::Tool;
use crate::artifact::yaml::Value;

/// The folder of a project's artifacts.
const FOLDER: &str = ".harness";
/// The file of its policy.
const POLICY_FILE: &str = ".harness/harness.md";

/// See [`Registry::load`].
pub(super) fn project(root: &Path) -> Registry {
    let mut load = Load { registry: Registry::empty(), real: PathBuf::new(), found: Vec::new() };
    match ambient::real_path(&root.join(FOLDER)) {
        Ok(real) => {
            load.real = real;
            load.run();
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let missing = Diagnostic::error(format!("there is no folder `{FOLDER}` here"));
            load.registry.diagnostics.push(missing.hint("make one with `harness init`"));
        }
        Err(error) => load.fail(FOLDER, &error.to_string()),
    }
    load.registry
}

struct Load {
    registry: Registry,
    /// Where `.harness` really is. Nothing outside it is read.
    real: PathBuf,
    /// The artifacts that have a file, by the name that `sandbox.sources` uses, those with errors too.
    found: Vec<String>,
}

impl Load {
    fn run(&mut self) {
        self.policy();
        for stem in self.stems("tools") {
            let file = format!("{FOLDER}/tools/{stem}.md");
            if let Some(text) = self.text(&file) {
                let (tool, diagnostics) = Tool::parse(&file, &stem, text);
                self.registry.diagnostics.append(diagnostics);
                tool.into_iter().for_each(|tool| self.registry.add_tool(tool));
            }
        }
        let before = self.registry.diagnostics.errors();
        for (index, stem) in self.stems("hooks").into_iter().enumerate() {
            let file = format!("{FOLDER}/hooks/{stem}.md");
            if let Some(text) = self.text(&file) {
                let (hook, diagnostics) = Hook::parse(&file, &stem, index, text);
                self.registry.diagnostics.append(diagnostics);
                hook.into_iter().for_each(|hook| self.registry.add_hook(hook));
            }
        }
        self.names_in_the_policy();
        // A hook that is left out guards nothing.
        if self.registry.diagnostics.errors() > before {
            self.registry.policy = None;
        }
    }

    fn policy(&mut self) {
        // A link that leads nowhere is there, and is not the same as no policy.
        let absent = match ambient::list_folder(&self.real) {
            Ok(names) => !names.iter().any(|name| name == "harness.md"),
            Err(error) => return self.fail(FOLDER, &error.to_string()),
        };
        if absent {
            self.registry.policy = Some(ProjectPolicy::absent(POLICY_FILE));
            return;
        }
        let Some(text) = self.text(POLICY_FILE) else { return };
        let (policy, diagnostics) = ProjectPolicy::parse(POLICY_FILE, text);
        self.registry.diagnostics.append(diagnostics);
        for other in policy.iter().flat_map(|policy| &policy.rest) {
            let empty = matches!(&other.value.value, Value::Null)
                || matches!(&other.value.value, Value::Seq(s) if s.is_empty());
            if matches!(other.name, "tools" | "hooks" | "agents") && !empty {
                let warning = Diagnostic::warning(format!("`{}` in `harness.md` has no effect", other.name));
                let hint = format!("write each as a file in `{FOLDER}/{}/`", other.name);
                self.registry.diagnostics.push(warning.at(other.position.clone()).hint(hint));
            }
        }
        self.registry.policy = policy;
    }

    /// The artifacts in a folder, sorted, as a shell would list `*.md`: without hidden files. None where there is no
    /// such folder.
    fn stems(&mut self, folder: &str) -> Vec<String> {
        let shown = format!("{FOLDER}/{folder}");
        let Some(path) = self.inside(&shown) else { return Vec::new() };
        let names = match ambient::list_folder(&path) {
            Ok(names) => names,
            Err(error) => {
                self.fail(&shown, &error.to_string());
                return Vec::new();
            }
        };
        let mut stems = Vec::new();
        for name in names {
            match name.to_str() {
                Some(name) if !name.starts_with('.') => stems.extend(name.strip_suffix(".md").map(str::to_owned)),
                Some(_) => {}
                None => self.fail(&format!("{shown}/{}", name.to_string_lossy()), "its name is not UTF-8 text"),
            }
        }
        self.found.extend(stems.iter().map(|stem| format!("{folder}/{stem}")));
        stems
    }

    /// Reads a file and keeps its text for messages.
    fn text(&mut self, file: &str) -> Option<&str> {
        let path = self.inside(file)?;
        match ambient::read_text(&path) {
            Ok(text) => Some(self.registry.sources.entry(file.to_owned()).or_insert(text)),
            Err(error) => {
                self.fail(file, &error.to_string());
                None
            }
        }
    }

    /// The real path of something below `.harness/`, if it is there and no link leads out of the folder.
    fn inside(&mut self, shown: &str) -> Option<PathBuf> {
        let below = shown.strip_prefix(FOLDER).unwrap_or(shown).trim_start_matches('/');
        let path = self.real.join(below);
        match ambient::real_path(&path) {
            Ok(real) if real.starts_with(&self.real) => Some(real),
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
    }

    /// Names in the policy that no artifact has: a rule for them does nothing, which its author should know.
    fn names_in_the_policy(&mut self) {
        let Some(policy) = &self.registry.policy else { return };
        let mut warnings = Vec::new();
        for source in &policy.sources {
            let folder = ["tools/", "hooks/"].into_iter().find(|folder| source.name.starts_with(folder));
            if let Some(folder) = folder
                && !self.found.iter().any(|found| source.covers(found))
            {
                let what = format!("`sandbox.sources` names {}, which is not there", quoted(&source.name));
                let known = self.found.iter().map(String::as_str);
                let warning = Diagnostic::warning(what).at(source.position.clone());
                warnings.push(match closest(&source.name, known.filter(|found| found.starts_with(folder))) {
                    Some(name) => warning.hint(format!("did you mean `{name}`?")),
                    None => warning,
                });
            }
        }
        warnings.into_iter().for_each(|warning| self.registry.diagnostics.push(warning));
    }
}
