//! Errors as data: what happened, where in the artifact's file, and the calls that led there.

use std::fmt;
use std::rc::Rc;

use starlark::ErrorKind;
use starlark::codemap::FileSpan;

use crate::bindings::exports::harness::sandbox::script::{Failure, FailureKind, Frame, Predicate, Source};
use crate::coverage::Marks;
use crate::spelling;

/// More frames than this are cut from the middle of a stack.
const MAX_FRAMES: usize = 64;
/// A message is cut to this many bytes: it may hold a value that the script made.
const MAX_MESSAGE: usize = 8192;

/// A capability refused. Carried inside an error so that the host can be told without reading a text.
#[derive(Debug)]
pub(crate) struct Denied(pub(crate) String);

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Denied {}

/// Where a text of the artifact stands in its file.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) file: String,
    first_line: u32,
    /// Columns that stand before the text: in each of its lines, or only in the first.
    indent: u32,
    every_line: bool,
    /// Lines that were written before the text, and are not in the file.
    skipped: u32,
    /// Lines of the text.
    lines: u32,
    /// What was put into the text before it was compiled, if its lines are counted.
    marks: Option<Rc<Marks>>,
}

impl Place {
    /// The place of a script: a block of lines, all with the same indentation.
    pub(crate) fn of_script(source: &Source) -> Self {
        Self {
            file: source.file.clone(),
            first_line: source.first_line.max(1),
            indent: source.indent,
            every_line: true,
            skipped: 0,
            lines: count_lines(&source.text),
            marks: None,
        }
    }

    /// The place of an expression before which `skipped` lines were written.
    pub(crate) fn of_expression(file: &str, predicate: &Predicate, skipped: u32) -> Self {
        Self {
            file: file.to_owned(),
            first_line: predicate.line.max(1),
            indent: predicate.column.max(1) - 1,
            every_line: false,
            skipped,
            lines: count_lines(&predicate.text),
            marks: None,
        }
    }

    /// The place of nothing in particular.
    pub(crate) fn nowhere() -> Self {
        Self { file: String::new(), first_line: 1, indent: 0, every_line: false, skipped: 0, lines: 1, marks: None }
    }

    /// The same place, for spans of the text with these marks in it.
    pub(crate) fn with_marks(self, marks: Marks) -> Self {
        Self { marks: Some(Rc::new(marks)), ..self }
    }

    /// Where the text begins: line and column in the file, from 1.
    fn start(&self) -> (u32, u32) {
        (self.first_line, self.indent.saturating_add(1))
    }

    /// Line and column in the file, from 1, and never behind the text's last line.
    pub(crate) fn position(&self, span: &FileSpan) -> (u32, u32) {
        let begin = match &self.marks {
            Some(marks) => marks.written(span).resolve_span().begin,
            None => span.resolve_span().begin,
        };
        let line = u32::try_from(begin.line).unwrap_or(0).saturating_sub(self.skipped);
        let column = u32::try_from(begin.column).unwrap_or(0).saturating_add(1);
        let shift = if line == 0 || self.every_line { self.indent } else { 0 };
        let last = self.lines.saturating_sub(1);
        if line > last {
            return (self.first_line.saturating_add(last), shift.saturating_add(1));
        }
        (self.first_line.saturating_add(line), column.saturating_add(shift))
    }
}

fn count_lines(text: &str) -> u32 {
    u32::try_from(text.trim_end().lines().count()).unwrap_or(u32::MAX).max(1)
}

/// An error of the interpreter, told with the file's own lines.
pub(crate) fn failure(error: &starlark::Error, place: &Place) -> Failure {
    let own = error.span().map_or((0, 0), |span| place.position(span));
    let frames = &error.call_stack().frames;
    // The interpreter notes where each function was called from. What a reader wants is where each one was: at the
    // call of the next, and the last one at the error.
    let called_at =
        frames.iter().skip(1).map(|next| next.location.as_ref().map_or((0, 0), |span| place.position(span)));
    let frames: Vec<Frame> = frames
        .iter()
        .zip(called_at.chain([own]))
        .map(|(frame, (line, column))| Frame {
            name: spelling::written(&frame.name, frame.location.as_ref().map(FileSpan::source_span)),
            file: place.file.clone(),
            line,
            column,
        })
        .collect();
    let (kind, message) = describe(error, &frames);
    let message = spelling::as_called(message, error.span().map(|span| span.source_span()));
    let (line, column) = own;
    Failure { kind, message: shorten(message), file: place.file.clone(), line, column, stack: cut(frames) }
}

/// An error that is not the interpreter's; without a span, at the start of the text.
pub(crate) fn failure_at(kind: FailureKind, message: String, place: &Place, span: Option<&FileSpan>) -> Failure {
    let (line, column) = span.map_or_else(|| place.start(), |span| place.position(span));
    Failure { kind, message: shorten(message), file: place.file.clone(), line, column, stack: Vec::new() }
}

fn describe(error: &starlark::Error, frames: &[Frame]) -> (FailureKind, String) {
    match error.kind() {
        ErrorKind::Parser(e) | ErrorKind::Scope(e) => (FailureKind::Syntax, first_line(&e.to_string())),
        // The interpreter puts a space or a line before what the script gave.
        ErrorKind::Fail(e) => (FailureKind::Script, e.to_string().trim_start().to_owned()),
        ErrorKind::StackOverflow(_) => (FailureKind::Depth, too_deep(frames)),
        ErrorKind::Native(e) | ErrorKind::Other(e) | ErrorKind::Value(e) | ErrorKind::Function(e) => {
            let denied = e.chain().any(|cause| cause.is::<Denied>());
            (if denied { FailureKind::Denied } else { FailureKind::Script }, plain(format!("{e:#}")))
        }
        other => (FailureKind::Script, other.to_string()),
    }
}

/// The interpreter's own words for a change of what is frozen say nothing to who wrote the script.
fn plain(message: String) -> String {
    if message == "Immutable" {
        return "this value is fixed: what the top level of a script makes is not changed by its functions; change a \
                copy, such as `list(x)` or `dict(x)`"
            .to_owned();
    }
    message
}

/// Names the function that came up again, or the one that was running.
fn too_deep(frames: &[Frame]) -> String {
    let again = frames.iter().rev().find(|f| frames.iter().filter(|other| other.name == f.name).count() > 1);
    match again.or(frames.last()) {
        Some(f) => format!("function `{}` is called recursively: this Starlark has no recursion, write a loop", f.name),
        None => "functions call each other too deep: this Starlark has no recursion, write a loop".to_owned(),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn shorten(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        let end = message.floor_char_boundary(MAX_MESSAGE);
        message.truncate(end);
        message.push('…');
    }
    message
}

fn cut(mut frames: Vec<Frame>) -> Vec<Frame> {
    if frames.len() > MAX_FRAMES {
        frames.drain(MAX_FRAMES / 2..frames.len() - MAX_FRAMES / 2);
    }
    frames
}
