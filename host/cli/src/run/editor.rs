//! The editor of what a person types in a conversation: several lines, pasted text, history, names of commands.

use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Cmd, CompletionType, Config, Context, Helper, KeyEvent, Modifiers};

use super::commands;
use super::history::MAX_ENTRIES;

/// The editor.
pub(super) type Editor = rustyline::Editor<Lines, MemHistory>;

/// Begins with what was typed before.
pub(super) fn editor(entries: &[String]) -> rustyline::Result<Editor> {
    let config = Config::builder().max_history_size(MAX_ENTRIES)?.completion_type(CompletionType::List).build();
    let history = MemHistory::with_config(&config);
    let mut editor = Editor::with_history(config, history)?;
    editor.set_helper(Some(Lines));
    // Enter sends; these break the line.
    for key in [KeyEvent::new('\r', Modifiers::ALT), KeyEvent::new('\n', Modifiers::ALT), KeyEvent::ctrl('J')] {
        editor.bind_sequence(key, Cmd::Newline);
    }
    for entry in entries {
        editor.add_history_entry(entry)?;
    }
    Ok(editor)
}

/// What a person meant who ended lines with a backslash.
pub(super) fn joined(typed: &str) -> String {
    typed.replace("\\\n", "\n").trim().to_owned()
}

/// A line that ends with a backslash has another one; a slash begins a command.
#[derive(Debug)]
pub(super) struct Lines;

impl Validator for Lines {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match context.input().ends_with('\\') {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Lines {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..at).filter(|typed| typed.starts_with('/')).unwrap_or(line);
        let fitting = commands::NAMES.iter().map(|name| format!("/{name}"));
        Ok((0, fitting.filter(|name| typed.starts_with('/') && name.starts_with(typed)).collect()))
    }
}

impl Hinter for Lines {
    type Hint = String;
}

impl Highlighter for Lines {}

impl Helper for Lines {}
