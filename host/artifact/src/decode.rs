//! Nodes into values, with a message for each that does not fit.
//!
//! Every function answers `None` after it has said what is wrong, and the caller resumes the next key, so that one pass
//! finds everything. Which keys a mapping has is declared with `keys!`.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::diagnostic::{Diagnostic, Diagnostics, Position};
use super::frontmatter;
use super::keys::Fields;
use super::script::Script;
use super::yaml::{self, Key, LineColumn, Node, Span, Style, Value};
use harness_policy::text::quoted;

/// Collects what is wrong with one file.
#[derive(Debug)]
pub struct Decoder {
    file: Arc<str>,
    /// What every message about the form of the file begins with, such as `parse tool greet.md`.
    task: String,
    pub(super) diagnostics: Diagnostics,
}

/// The two parts of an artifact, the first one parsed.
#[derive(Debug)]
pub struct Document<'t> {
    pub(crate) root: Node,
    pub(crate) body: &'t str,
    pub(crate) verbatim: &'t str,
}

/// A value with its name, such as `parameters.path.required`.
#[derive(Debug, Clone)]
pub struct Field<'n> {
    /// Its keys from the top, joined by dots.
    pub path: String,
    /// Its own key; an item of a list has none.
    pub key: Option<&'n Key>,
    /// Its value.
    pub node: &'n Node,
}

impl Decoder {
    /// A decoder of a file; errors of its form begin with `task`.
    pub fn new(file: &str, task: String) -> Self {
        Self { file: file.into(), task, diagnostics: Diagnostics::new() }
    }

    /// What was collected, in the order of the file.
    pub fn into_diagnostics(self) -> Diagnostics {
        let mut list: Vec<Diagnostic> = self.diagnostics.iter().cloned().collect();
        // Stable: several at one place stay in the order they were found.
        list.sort_by_key(|d| d.position.as_ref().map(|position| (position.line, position.column)));
        self.diagnostics.with_order(list)
    }

    /// Splits the text and parses its YAML. `None` where there is no tree to resume.
    pub fn document<'t>(&mut self, text: &'t str) -> Option<Document<'t>> {
        let front = match frontmatter::split(text) {
            Ok(front) => front,
            Err(missing) => {
                let position = self.position_at(LineColumn { line: missing.line, column: 1 }, missing.length);
                let message = format!("{}: {}", self.task, missing.message);
                self.diagnostics.push(Diagnostic::error(message).at(position).hint(missing.hint));
                return None;
            }
        };
        let root = self.yaml(front.yaml, front.first_line)?;
        Some(Document { root, body: front.body, verbatim: front.verbatim })
    }

    /// Parses YAML. `None` where there is no tree to resume.
    pub fn yaml(&mut self, text: &str, first_line: u32) -> Option<Node> {
        let (root, errors) = yaml::parse(text, first_line);
        self.yaml_errors(errors);
        self.diagnostics.read(root.as_ref().map_or(0, Node::count));
        root
    }

    /// What is wrong with the YAML itself.
    pub fn yaml_errors(&mut self, errors: Vec<yaml::Error>) {
        for error in errors {
            let diagnostic = Diagnostic::error(format!("{}: yaml: {error}", self.task)).at(self.position(error.span));
            self.diagnostics.push(match error.hint {
                Some(hint) => diagnostic.hint(hint),
                None => diagnostic,
            });
        }
    }

    pub(crate) fn position(&self, span: Span) -> Position {
        self.position_at(span.start, span.length())
    }

    fn position_at(&self, place: LineColumn, length: u32) -> Position {
        Position { file: Arc::clone(&self.file), line: place.line, column: place.column, length }
    }

    /// The first line of the file: where an artifact is as a whole.
    pub fn top(&self) -> Position {
        self.position_at(LineColumn { line: 1, column: 1 }, 3)
    }

    /// An error about what a value means, in its own words.
    pub fn error(&mut self, field: &Field<'_>, message: String) {
        let diagnostic = Diagnostic::error(message).at(self.position(field.span()));
        self.diagnostics.push(diagnostic);
    }

    /// Like [`error`](Self::error), with a hint.
    pub fn error_with(&mut self, field: &Field<'_>, message: String, hint: Option<String>) {
        let mut diagnostic = Diagnostic::error(message).at(self.position(field.span()));
        diagnostic.hint = hint;
        self.diagnostics.push(diagnostic);
    }

    /// A warning about a value.
    pub fn warn(&mut self, field: &Field<'_>, message: String, hint: &str) {
        let diagnostic = Diagnostic::warning(message).at(self.position(field.span())).hint(hint);
        self.diagnostics.push(diagnostic);
    }

    /// An error about the form of the file: a type, a range.
    pub(super) fn malformed(&mut self, span: Span, message: &str, hint: Option<&str>) {
        let message = format!("{}: yaml: line {}: {message}", self.task, span.start.line);
        let mut diagnostic = Diagnostic::error(message).at(self.position(span));
        diagnostic.hint = hint.map(str::to_owned);
        self.diagnostics.push(diagnostic);
    }

    pub(super) fn wrong_type(&mut self, field: &Field<'_>, wanted: &str, hint: Option<&str>) {
        let message = format!("{} must be {wanted}, found {}", quoted(&field.path), field.node.value.kind());
        self.malformed(field.span(), &message, hint);
    }

    pub(super) fn mapping<'n>(&mut self, field: &Field<'n>) -> Option<Fields<'n>> {
        match &field.node.value {
            Value::Map(entries) => Some(Fields::new(&field.path, entries)),
            _ => {
                self.wrong_type(field, "a mapping", None);
                None
            }
        }
    }

    pub(crate) fn list<'n>(&mut self, field: &Field<'n>) -> Option<Vec<Field<'n>>> {
        match &field.node.value {
            Value::Seq(items) => Some(
                items
                    .iter()
                    .enumerate()
                    .map(|(i, node)| Field { path: format!("{}[{i}]", field.path), key: None, node })
                    .collect(),
            ),
            other => {
                let one = matches!(other, Value::Str(_)).then_some("write a list of one in square brackets");
                self.wrong_type(field, "a list", one);
                None
            }
        }
    }

    pub(crate) fn string<'n>(&mut self, field: &Field<'n>) -> Option<&'n str> {
        match &field.node.value {
            Value::Str(text) => Some(text),
            other => {
                let scalar = matches!(other, Value::Bool(_) | Value::Int(_) | Value::Float(_));
                self.wrong_type(field, "a string", scalar.then_some("put it in quotes"));
                None
            }
        }
    }

    /// A string turned into `T`; the error of `parse` follows the name of the value.
    pub fn parse_one<T>(&mut self, item: &Field<'_>, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = self.string(item)?;
        match parse(text) {
            Ok(value) => Some(value),
            Err(why) => {
                self.error(item, format!("{}: {why}", quoted(&item.path)));
                None
            }
        }
    }

    pub(crate) fn boolean(&mut self, field: &Field<'_>) -> Option<bool> {
        match &field.node.value {
            Value::Bool(value) => Some(*value),
            other => {
                let word = match other {
                    Value::Str(text) if field.node.style == Style::Plain => text.to_ascii_lowercase(),
                    _ => String::new(),
                };
                let old = matches!(word.as_str(), "yes" | "no" | "on" | "off" | "y" | "n");
                self.wrong_type(
                    field,
                    "true or false",
                    old.then_some("`yes`, `no`, `on` and `off` are text in YAML 1.2"),
                );
                None
            }
        }
    }

    /// A whole number of any size; far out ones come as the ends of the range.
    pub fn integer(&mut self, field: &Field<'_>) -> Option<i128> {
        match &field.node.value {
            Value::Int(text) => Some(yaml::integer(text)),
            _ => {
                self.wrong_type(field, "an integer", None);
                None
            }
        }
    }

    /// A whole number within bounds.
    pub fn integer_in(&mut self, field: &Field<'_>, bounds: RangeInclusive<u64>) -> Option<u64> {
        let value = self.integer(field)?;
        match u64::try_from(value) {
            Ok(value) if bounds.contains(&value) => Some(value),
            _ => {
                let (least, most) = bounds.into_inner();
                let message = format!("{} must be between {least} and {most}", quoted(&field.path));
                self.malformed(field.span(), &message, None);
                None
            }
        }
    }

    /// A number within bounds, whole or not.
    pub fn number_in(&mut self, field: &Field<'_>, bounds: RangeInclusive<f64>) -> Option<f64> {
        let value = match &field.node.value {
            // More digits than a number holds are far out of any bounds.
            Value::Int(text) => yaml::integer(text).to_string().parse().ok(),
            // `.inf` and `.nan` are none.
            Value::Float(text) => text.parse().ok(),
            _ => {
                self.wrong_type(field, "a number", None);
                return None;
            }
        };
        let inside = value.filter(|value| bounds.contains(value));
        if inside.is_none() {
            let (least, most) = bounds.into_inner();
            let message = format!("{} must be between {least} and {most}", quoted(&field.path));
            self.malformed(field.span(), &message, None);
        }
        inside
    }

    /// Source text; nothing where it is empty.
    pub fn script(&mut self, field: &Field<'_>) -> Option<Script> {
        self.string(field)?;
        let script = Script::of(field.node)?;
        if script.text.trim().contains('\n') {
            let name = quoted(&field.path);
            match field.node.style {
                Style::Folded(_) => {
                    self.warn(field, format!("{name} is folded: YAML joins its lines"), "write `|` instead of `>`");
                }
                Style::Quoted => {
                    let message = format!("{name} has several lines in quotes: errors may name a nearby line");
                    self.warn(field, message, "write it as a block after `|`");
                }
                _ => {}
            }
        }
        Some(script)
    }
}

impl Field<'_> {
    /// What a message points at: the value where it is on one line, else its key.
    pub fn span(&self) -> Span {
        let here = self.node.span;
        let visible = !matches!(self.node.value, Value::Null)
            && !matches!(self.node.style, Style::Literal(_) | Style::Folded(_))
            && here.start.line == here.end.line
            && here.start.column < here.end.column;
        match self.key {
            Some(key) if !visible => key.span,
            _ => here,
        }
    }
}
