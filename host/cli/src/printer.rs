//! The only place that writes to the terminal. Standard output is data, standard error is talk; what came from a
//! script, an artifact or the network is escaped before a terminal sees it.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use harness_artifact::diagnostic::{Diagnostic, Position, Severity};
use harness_artifact::escape;
use harness_dispatch::as_json;
use harness_lsp::hint::AskedRule;
use serde_json::Value as Json;

use super::args::Color;

/// The text that is shown as it comes: a process has one terminal.
static TEXT: Mutex<Text> = Mutex::new(Text::new());

/// The lines for standard error that wait for the end of the command, where they do.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Why something of the result could not be written, the first time.
static LOST: OnceLock<String> = OnceLock::new();

/// The errors that were reported so far, the first one first.
static REPORTED: Mutex<Vec<Reported>> = Mutex::new(Vec::new());

/// An error as a program gets it.
#[derive(Debug, Clone)]
pub(crate) struct Reported {
    pub(crate) message: String,
    pub(crate) position: Option<Position>,
    pub(crate) hint: String,
}

impl Reported {
    /// The error of this kind, for programs.
    pub(crate) fn as_json(&self, kind: &str) -> Json {
        as_json::error(kind, &self.message, &self.hint, self.position.as_ref())
    }

    /// All of them as one, a line each, instead of the first.
    pub(crate) fn all() -> Self {
        let told = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<String> = told.iter().map(Self::line).collect();
        let position = told.first().and_then(|first| first.position.clone());
        let hint = told.first().map(|first| first.hint.clone()).unwrap_or_default();
        Self { message: lines.join("\n"), position, hint }
    }

    /// With its place.
    fn line(&self) -> String {
        self.position.as_ref().map_or_else(|| self.message.clone(), |place| format!("{place}: {}", self.message))
    }

    fn keep(self) {
        REPORTED.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }
}

/// A text that comes in pieces. What is said meanwhile waits for the end of its line; where a person types, all of it waits.
#[derive(Debug)]
struct Text {
    /// Whether a line of it has begun and not ended.
    open: bool,
    /// Whether a person types.
    typed: bool,
    /// Of the text.
    later: String,
    /// What was said beside it.
    waiting: Vec<String>,
}

impl Text {
    const fn new() -> Self {
        Self { open: false, typed: false, later: String::new(), waiting: Vec::new() }
    }

    fn of_terminal() -> MutexGuard<'static, Self> {
        TEXT.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// More of it: the lines that it ends, what was said until then, and the beginning of its next line.
    fn more<'t>(&mut self, piece: &'t str) -> (&'t str, Vec<String>, &'t str) {
        if self.typed {
            self.later.push_str(piece);
            return ("", Vec::new(), "");
        }
        let (lines, rest) = piece.split_at(piece.rfind('\n').map_or(0, |end| end.saturating_add(1)));
        self.open = !rest.is_empty() || (self.open && lines.is_empty());
        let said = if self.open && lines.is_empty() { Vec::new() } else { std::mem::take(&mut self.waiting) };
        (lines, said, rest)
    }

    /// A line beside it: back, where it can be said now.
    fn next_to<'l>(&mut self, line: &'l str) -> Option<&'l str> {
        if self.is_taken() {
            self.waiting.push(line.to_owned());
        }
        (!self.is_taken()).then_some(line)
    }

    /// Whether what is said has to wait.
    fn is_taken(&self) -> bool {
        self.open || self.typed
    }
}

/// A person types, until this is dropped.
#[derive(Debug)]
pub(crate) struct Typing(Printer);

impl Drop for Typing {
    fn drop(&mut self) {
        let mut text = Text::of_terminal();
        text.typed = false;
        let later = std::mem::take(&mut text.later);
        drop(text);
        self.0.piece(&later);
    }
}

/// Where output goes, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    color: bool,
}

impl Printer {
    pub(crate) fn new(color: Color) -> Self {
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                std::io::stderr().is_terminal() && harness_sys::variable("NO_COLOR").is_none_or(|v| v.is_empty())
            }
        };
        Self { color }
    }

    pub(crate) fn color(self) -> bool {
        self.color
    }

    /// Data for anyone who reads standard output: as it is for a pipe, escaped for a terminal, ended with a line break.
    pub(crate) fn data(self, text: &str) {
        let shown = if std::io::stdout().is_terminal() { escape::text(text) } else { text.into() };
        out(&[&shown, if shown.ends_with('\n') { "" } else { "\n" }]);
    }

    /// Why something of the result was not written, where that is no matter of a reader that has gone away.
    pub(crate) fn lost(self) -> Option<&'static str> {
        LOST.get().map(String::as_str)
    }

    /// Whether data may be in color: on a terminal, unless nobody wants any.
    pub(crate) fn colors_data(self) -> bool {
        self.color && std::io::stdout().is_terminal()
    }

    /// Text of the data in a color, where [data may be in color](Self::colors_data).
    pub(crate) fn paint_data(self, text: &str, numbers: &str) -> String {
        if self.colors_data() { self.paint(text, numbers) } else { text.to_owned() }
    }

    /// Data whose parts were escaped, each where it was put in: what is left of escapes is color.
    pub(crate) fn shown(self, text: &str) {
        out(&[text]);
    }

    /// Sets a mode of the terminal, where standard output is one.
    pub(crate) fn mode(self, sequence: &str) {
        if std::io::stdout().is_terminal() {
            out(&[sequence]);
        }
    }

    /// More of a text that is shown on a terminal as it comes.
    pub(crate) fn piece(self, text: &str) {
        let shown = escape::text(text);
        let mut open = Text::of_terminal();
        let (lines, said, rest) = open.more(&shown);
        out(&[lines]);
        said.iter().for_each(|line| written(line));
        out(&[rest]);
    }

    /// Whether a line of such a text has begun and not ended, or a person types.
    pub(crate) fn is_taken(self) -> bool {
        Text::of_terminal().is_taken()
    }

    /// Whether a line of such a text has begun and not ended, and no person types.
    pub(crate) fn is_open(self) -> bool {
        let text = Text::of_terminal();
        text.open && !text.typed
    }

    /// Ends the line of such a text and leaves the terminal to a person who types.
    pub(crate) fn typing(self) -> Typing {
        if self.is_taken() {
            self.piece("\n");
        }
        Text::of_terminal().typed = true;
        Typing(self)
    }

    /// JSON on standard output, with escapes for all that a terminal acts on or shows nothing for.
    pub(crate) fn json(self, value: &serde_json::Value) {
        let text = format!("{value:#}");
        let lines: Vec<_> = text.lines().map(escape::json).collect();
        self.data(&lines.join("\n"));
    }

    /// A line of talk, not escaped: for text that is ours, or was escaped. Not within a line of a text that comes.
    pub(crate) fn say(self, text: &str) {
        if let Some(line) = Text::of_terminal().next_to(text) {
            written(line);
        }
    }

    /// Keeps lines for standard error from now on.
    pub(crate) fn hold(self) {
        *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    }

    /// Prints the kept lines, or drops them, and keeps no more.
    pub(crate) fn release(self, print: bool) {
        let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
        if print {
            held.into_iter().flatten().for_each(|line| written(&line));
        }
    }

    /// A question to a person who types, without a line break: the answer stands behind it.
    pub(crate) fn ask(self, text: &str) {
        let mut err = std::io::stderr().lock();
        let _ = err.write_all(text.as_bytes());
        let _ = err.flush();
    }

    /// `error: ...`, its causes one a line, and `hint: ...` after an empty line.
    pub(crate) fn error(self, message: &str, causes: &[String], hint: Option<&str>) {
        let with_causes =
            if causes.is_empty() { message.to_owned() } else { format!("{message}: {}", causes.join("; ")) };
        Reported { message: with_causes, position: None, hint: hint.unwrap_or_default().to_owned() }.keep();
        self.say(&format!("{} {}", self.paint("error:", "1;31"), escape::text(message)));
        for cause in causes {
            self.say(&format!("  {}", escape::text(cause)));
        }
        if let Some(hint) = hint.filter(|hint| !hint.is_empty()) {
            self.say(&format!("\n{} {}", self.paint("hint:", "1;36"), escape::text(hint)));
            self.lines_of(hint);
        }
    }

    /// What is wrong with an artifact, as it was rendered.
    pub(crate) fn problem(self, diagnostic: &Diagnostic, rendered: &str) {
        if diagnostic.severity == Severity::Error {
            let Diagnostic { message, position, hint, .. } = diagnostic.clone();
            Reported { message, position, hint: hint.unwrap_or_default() }.keep();
        }
        self.rendered(diagnostic, rendered);
    }

    /// A diagnostic as it was rendered.
    pub(crate) fn rendered(self, diagnostic: &Diagnostic, rendered: &str) {
        self.say(rendered.trim_end());
        diagnostic.hint.iter().for_each(|hint| self.lines_of(hint));
    }

    /// The lines that a hint asks for, where the file does not have the key: at the left margin and without marks, so that
    /// they can be pasted.
    fn lines_of(self, hint: &str) {
        if let Some(lines) = AskedRule::of(hint).and_then(|rule| rule.lines()) {
            self.say(&format!("\n{}", escape::text(&lines)));
        }
    }

    /// `warning: ...`.
    pub(crate) fn warning(self, message: &str) {
        self.say(&format!("{} {}", self.paint("warning:", "1;33"), escape::text(message)));
    }

    /// Text in a color, given as the numbers of an SGR sequence (ECMA-48, 8.3.117).
    pub(crate) fn paint(self, text: &str, numbers: &str) -> String {
        if self.color { format!("\x1b[{numbers}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Writes to standard output.
fn out(parts: &[&str]) {
    let mut out = std::io::stdout().lock();
    let result = parts.iter().try_for_each(|part| out.write_all(part.as_bytes()));
    put(result.and_then(|()| out.flush()));
}

/// Keeps why something was not written to standard output. A reader that has seen enough is no failure of ours.
pub(crate) fn put(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = LOST.set(error.to_string());
    }
}

fn written(line: &str) {
    if let Some(held) = HELD.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        held.push(line.to_owned());
        return;
    }
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_beside_a_text_waits_for_the_end_of_its_line() {
        let mut text = Text::new();
        assert_eq!(text.next_to("before"), Some("before"));
        assert_eq!(text.more("The por"), ("", vec![], "The por"));
        assert_eq!((text.next_to("worker calls look"), text.next_to("worker is done")), (None, None));
        assert_eq!(text.more("t is "), ("", vec![], "t is "));
        let said = vec!["worker calls look".to_owned(), "worker is done".to_owned()];
        assert_eq!(text.more("8080.\nOr\nnot"), ("8080.\nOr\n", said, "not"));
        assert_eq!(text.next_to("again"), None);
        // Nothing comes, and nothing ends.
        assert_eq!((text.more(""), text.is_taken()), (("", vec![], ""), true));
        assert_eq!(text.more("\n"), ("\n", vec!["again".to_owned()], ""));
        assert_eq!(text.next_to("after"), Some("after"));
        // Where a person types, all of it does, and comes in its order.
        text.typed = true;
        assert_eq!(
            (text.more("It "), text.next_to("aside"), text.more("is")),
            (("", vec![], ""), None, ("", vec![], ""))
        );
        text.typed = false;
        let later = std::mem::take(&mut text.later);
        assert_eq!(
            (text.more(&later), text.more(".\n")),
            (("", vec![], "It is"), (".\n", vec!["aside".to_owned()], ""))
        );
        (text.typed, text.waiting) = (false, vec!["alone".to_owned()]);
        assert_eq!(text.more(""), ("", vec!["alone".to_owned()], ""));
    }
}
