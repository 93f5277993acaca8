//! The artifacts of a project: found, read, checked, and then never changed.
//!
//! [`Registry::load`] walks `.harness/` in a fixed order, so that two loads of the same files are the same registry.
//! It finds everything that is wrong and not only the first. A tool with an error is left out, and the others can be
//! used. A policy or a hook with an error could be the one that guards against something: then there is no
//! [`Registry::policy`], and without a policy nothing can run.

mod load;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::artifact::diagnostic::{Diagnostic, Diagnostics, Position};
use crate::artifact::hook::Hook;
use crate::artifact::policy::ProjectPolicy;
use crate::artifact::suggest;
use crate::artifact::tool::Tool;

/// What a project is made of. Immutable.
#[derive(Debug, Clone)]
pub struct Registry {
    tools: Vec<Tool>,
    hooks: Vec<Hook>,
    policy: Option<ProjectPolicy>,
    diagnostics: Diagnostics,
    sources: BTreeMap<String, String>,
}

/// There is no tool of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownTool {
    /// The name that was asked for.
    pub name: String,
    /// At most three names that are like it, the closest first.
    pub closest: Vec<String>,
}

impl Registry {
    /// Reads the project in a folder: the one that holds `.harness/`. Never fails as a whole; see
    /// [`diagnostics`](Self::diagnostics).
    pub fn load(root: &Path) -> Self {
        load::project(root)
    }

    /// The tools without an error, sorted by path.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// A tool by its exact name.
    pub fn tool(&self, name: &str) -> Result<&Tool, UnknownTool> {
        self.tools.iter().find(|tool| tool.name == name).ok_or_else(|| {
            let names = self.tools.iter().map(|tool| tool.name.as_str());
            let closest = suggest::several(name, names, 3).into_iter().map(str::to_owned).collect();
            UnknownTool { name: name.to_owned(), closest }
        })
    }

    /// The hooks without an error, sorted by path. In which order they are called is up to their priorities.
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    /// The policy. None where `harness.md`, any hook or the whole project could not be read: nothing may run then.
    pub fn policy(&self) -> Option<&ProjectPolicy> {
        self.policy.as_ref()
    }

    /// Everything that is wrong, in the order it was found.
    pub fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }

    /// The text of every file that was read, by the name that positions use, such as `.harness/tools/greet.md`.
    pub fn sources(&self) -> &BTreeMap<String, String> {
        &self.sources
    }

    /// A diagnostic with the line of the file it is about. See [`Diagnostic::render`].
    pub fn render(&self, diagnostic: &Diagnostic, color: bool) -> String {
        let file = diagnostic.position.as_ref().map(|position| &*position.file);
        diagnostic.render(file.and_then(|file| self.sources.get(file)).map(String::as_str), color)
    }

    fn empty() -> Self {
        Self {
            tools: Vec::new(),
            hooks: Vec::new(),
            policy: None,
            diagnostics: Diagnostics::new(),
            sources: BTreeMap::new(),
        }
    }

    /// Adds a tool unless its name is taken.
    fn add_tool(&mut self, tool: Tool) {
        match self.tools.iter().find(|other| other.name == tool.name).map(|other| other.source.clone()) {
            Some(first) => self.twice("tool", &tool.name, first, tool.source),
            None => self.tools.push(tool),
        }
    }

    /// Adds a hook unless its name is taken.
    fn add_hook(&mut self, hook: Hook) {
        match self.hooks.iter().find(|other| other.name == hook.name).map(|other| other.source.clone()) {
            Some(first) => self.twice("hook", &hook.name, first, hook.source),
            None => self.hooks.push(hook),
        }
    }

    fn twice(&mut self, kind: &str, name: &str, first: Position, second: Position) {
        let message = format!("{kind} {name:?} is defined more than once");
        self.diagnostics.push(Diagnostic::error(message).at(second).hint(format!("it is first defined at {first}")));
    }
}

impl fmt::Display for UnknownTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no tool {}", suggest::quoted(&self.name))
    }
}

impl std::error::Error for UnknownTool {}

impl UnknownTool {
    /// The close names as a question, if there are any.
    pub fn hint(&self) -> Option<String> {
        let names: Vec<String> = self.closest.iter().map(|name| format!("`{name}`")).collect();
        (!names.is_empty()).then(|| format!("did you mean {}?", names.join(" or ")))
    }
}

#[cfg(test)]
mod tests;
