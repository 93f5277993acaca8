//! Errors as data: what happened, where in the artifact's file, and the calls that led there.

use std::fmt;

use starlark::ErrorKind;
use starlark::codemap::FileSpan;

use crate::bindings::exports::harness::sandbox::script::{Failure, FailureKind, Frame, Source};

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
    /// Added to the columns of the first line and of the others.
    columns: (u32, u32),
}

impl Place {
    /// The place of a script: a block of lines, all with the same indentation.
    pub(crate) fn of_script(source: &Source) -> Self {
        Self { file: source.file.clone(), first_line: source.first_line.max(1), columns: (source.indent, source.indent) }
    }

    /// The place of an expression of which `skipped` lines were written before it.
    pub(crate) fn of_expression(file: &str, line: u32, column: u32, skipped: u32) -> Self {
        Self { file: file.to_owned(), first_line: line.max(1).saturating_sub(skipped), columns: (column.max(1) - 1, 0) }
    }

    /// Line and column in the file, from 1.
    fn position(&self, span: &FileSpan) -> (u32, u32) {
        let begin = span.resolve_span().begin;
        let (line, column) = (u32::try_from(begin.line).unwrap_or(0), u32::try_from(begin.column).unwrap_or(0));
        let shift = if line == 0 { self.columns.0 } else { self.columns.1 };
        (self.first_line.saturating_add(line), column.saturating_add(1).saturating_add(shift))
    }
}

/// An error of the interpreter, told with the file's own lines.
pub(crate) fn failure(error: &starlark::Error, place: &Place) -> Failure {
    let (line, column) = error.span().map_or((0, 0), |span| place.position(span));
    let frames: Vec<Frame> = error
        .call_stack()
        .frames
        .iter()
        .map(|frame| {
            let (line, column) = frame.location.as_ref().map_or((0, 0), |span| place.position(span));
            Frame { name: frame.name.clone(), file: place.file.clone(), line, column }
        })
        .collect();
    let (kind, message) = describe(error, &frames);
    Failure { kind, message: shorten(message), file: place.file.clone(), line, column, stack: cut(frames) }
}

/// An error that is not the interpreter's, at a place that is known.
pub(crate) fn failure_at(kind: FailureKind, message: String, place: &Place, span: Option<&FileSpan>) -> Failure {
    let (line, column) = span.map_or((0, 0), |span| place.position(span));
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
            (if denied { FailureKind::Denied } else { FailureKind::Script }, format!("{e:#}"))
        }
        other => (FailureKind::Script, other.to_string()),
    }
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
