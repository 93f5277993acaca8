//! What is not as it was locked, in words and lines.

use super::FILE;
use super::entry::Entry;
use harness_artifact::diagnostic::{Diagnostic, Position};
use harness_artifact::difference::{compared, cut};

/// Lines of a difference that are reported.
const MAX_LINES: usize = 40;

/// An artifact that is not what the lock says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drift {
    /// It was not there.
    Added(Entry),
    /// It is not there any more.
    Removed(Entry),
    /// It is another one.
    Changed {
        /// What it was.
        old: Box<Entry>,
        /// What it is.
        new: Box<Entry>,
    },
}

impl Drift {
    /// Between two states of one artifact, where there is any. Nothing is decided on the texts: they only inform.
    pub fn between(old: &Entry, new: &Entry) -> Option<Self> {
        let parts = |one: &Entry| {
            let Entry { path, sha256, script, schema, files, description, .. } = one.clone();
            (path, sha256, script, schema, files, description)
        };
        (parts(old) != parts(new)).then(|| Self::Changed { old: Box::new(old.clone()), new: Box::new(new.clone()) })
    }

    /// What there is, or what there was.
    pub fn entry(&self) -> &Entry {
        match self {
            Self::Added(entry) | Self::Removed(entry) => entry,
            Self::Changed { new, .. } => new,
        }
    }

    /// The names of the parts that changed; none where it was added or removed.
    pub fn parts(&self) -> Vec<&'static str> {
        match self {
            Self::Added(_) | Self::Removed(_) => Vec::new(),
            Self::Changed { old, new } => changed(old, new),
        }
    }

    /// In one line.
    pub fn describe(&self) -> String {
        let Entry { kind, name, path, .. } = self.entry();
        match self {
            Self::Added(_) => format!("the {kind} {name:?} is not in `{FILE}`"),
            Self::Removed(_) => format!("the {kind} {name:?} of `{path}` is in `{FILE}` but was removed"),
            Self::Changed { old, new } => {
                let what = changed(old, new);
                let was = if old.path == new.path { String::new() } else { format!(", it was in `{}`", old.path) };
                format!("the {kind} {name:?} differs from `{FILE}`: {} changed{was}", what.join(", "))
            }
        }
    }

    /// Line by line, `-` for what it was: its description and its parameters. None where these are as they were.
    pub fn difference(&self) -> Option<String> {
        let Self::Changed { old, new } = self else { return None };
        let mut lines = Vec::new();
        if old.schema != new.schema {
            let text =
                |entry: &Entry| entry.shown.parameters.iter().map(|line| format!("{line}\n")).collect::<String>();
            if text(old) != text(new) {
                lines.extend(compared("parameters", &text(old), &text(new)));
            }
            let returns =
                |entry: &Entry| entry.shown.returns.iter().map(|line| format!("{line}\n")).collect::<String>();
            if returns(old) != returns(new) {
                lines.extend(compared("returns", &returns(old), &returns(new)));
            }
        }
        if old.files != new.files {
            let text = |entry: &Entry| entry.shown.files.iter().map(|line| format!("{line}\n")).collect::<String>();
            lines.extend(compared("files", &text(old), &text(new)));
        }
        if old.description != new.description
            && let Some(before) = old.description()
        {
            lines.extend(compared("description", &format!("{before}\n"), &format!("{}\n", new.shown.description)));
        }
        let lines = cut(lines, MAX_LINES);
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// As an error of the project.
    pub fn diagnostic(&self) -> Diagnostic {
        let hint = match self {
            Self::Added(_) => "review it, then accept it with `harness lock`",
            Self::Removed(_) => "restore it, or remove it from the lock with `harness lock`",
            Self::Changed { .. } => "restore it, or review and accept it with `harness lock`",
        };
        let error = Diagnostic::error(self.describe()).hint(hint);
        let error = match self.difference() {
            Some(difference) => error.note(difference),
            None => error,
        };
        match self {
            Self::Removed(_) => error,
            Self::Added(_) | Self::Changed { .. } => {
                error.at(Position { file: self.entry().path.as_str().into(), line: 1, column: 1, length: 1 })
            }
        }
    }
}

/// The names of the parts that are others.
fn changed(old: &Entry, new: &Entry) -> Vec<&'static str> {
    let parts = [
        ("its file", old.path != new.path),
        ("its description", old.description != new.description),
        ("its parameters or `returns`", old.schema != new.schema && old.shown.returns != new.shown.returns),
        ("its parameters", old.schema != new.schema && old.shown.returns == new.shown.returns),
        ("its script", old.script != new.script),
        ("the files beside it", old.files != new.files),
    ];
    let parts: Vec<&str> = parts.into_iter().filter_map(|(name, changed)| changed.then_some(name)).collect();
    // Limits, capabilities, priority, cases, or only the form.
    if parts.is_empty() { vec!["other lines of its file"] } else { parts }
}
