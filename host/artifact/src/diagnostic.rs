//! What is wrong with a file, and where; and how that is shown.

use std::fmt;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::escape;

/// How many diagnostics of one severity a collection keeps. Further ones are only counted: a file of a megabyte can
/// hold a hundred thousand mistakes, and nobody reads the second hundred.
pub const KEPT: usize = 100;

/// A source line longer than this many bytes is not shown under a message; the position still is.
const LONGEST_LINE: usize = 4096;

/// Whether a diagnostic keeps the project from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Nothing runs until it is mended.
    Error,
    /// Probably not what the author meant.
    Warning,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Position {
    /// The file as its author knows it, such as `.harness/tools/greet.md`.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1, in characters.
    pub column: u32,
    /// How many characters of the line are meant; at least 1 where there is anything to point at.
    pub length: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether it is an error.
    pub severity: Severity,
    /// What is wrong: one line, lower case, no final period. May hold text of the file as it is; it is escaped when
    /// it is shown.
    pub message: String,
    /// Where; none where the thing is about no place in a file, such as a missing folder.
    pub position: Option<Position>,
    /// What there is to see, on lines of its own.
    pub note: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// Whether it is about the project as a whole, and not about what a single call uses.
    pub is_about_all: bool,
}

impl Diagnostic {
    /// An error without a place or a hint.
    pub fn error(message: impl Into<String>) -> Self {
        let message = message.into();
        Self { severity: Severity::Error, message, position: None, note: None, hint: None, is_about_all: false }
    }

    /// A warning without a place or a hint.
    pub fn warning(message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(message) }
    }

    /// The same, at a place.
    #[must_use]
    pub fn at(mut self, position: Position) -> Self {
        self.position = Some(position);
        self
    }

    /// The same, about the project as a whole.
    #[must_use]
    pub fn about_all(mut self) -> Self {
        self.is_about_all = true;
        self
    }

    /// The same, with lines to look at.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// The same, with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The message as a person reads it: severity, text, place, the line with a caret, hint. No final line break.
    ///
    /// `source` is the whole text of the position's file; without it the line is left out. With `color` the text
    /// holds ANSI styles and is for a terminal only. All of it is safe to print, whatever the file holds.
    pub fn render(&self, source: Option<&str>, color: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(escape::line(&self.message)));
        if let Some(position) = &self.position {
            let file = escape::line(&position.file);
            let shown = source.and_then(|text| line_of(text, position.line)).filter(|line| line.len() <= LONGEST_LINE);
            group = match shown {
                Some(line) => {
                    let line = escape::same_width(line);
                    let span = span(&line, position.column, position.length);
                    group.element(
                        Snippet::source(line)
                            .path(file)
                            .line_start(usize::try_from(position.line).unwrap_or(usize::MAX))
                            .annotation(AnnotationKind::Primary.span(span)),
                    )
                }
                None => group.element(
                    Origin::path(file)
                        .line(usize::try_from(position.line).unwrap_or(usize::MAX))
                        .char_column(usize::try_from(position.column).unwrap_or(usize::MAX)),
                ),
            };
        }
        if let Some(note) = &self.note {
            let lines: Vec<_> = note.lines().map(escape::line).collect();
            group = group.element(Level::NOTE.message(lines.join("\n")));
        }
        if let Some(hint) = &self.hint {
            group = group.element(Level::HELP.with_name("hint").message(escape::line(hint)));
        }
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&[group])
    }
}

/// A line of a text, by its number from 1, without its break and without the byte order mark of the first.
fn line_of(text: &str, number: u32) -> Option<&str> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    let line = text.strip_prefix('\u{feff}').unwrap_or(text).split('\n').nth(index)?;
    Some(line.strip_suffix('\r').unwrap_or(line))
}

/// The bytes of a line that a column and a length name, cut to the line.
fn span(line: &str, column: u32, length: u32) -> std::ops::Range<usize> {
    let at = |column: u32| {
        let characters = usize::try_from(column.saturating_sub(1)).unwrap_or(usize::MAX);
        line.char_indices().nth(characters).map_or(line.len(), |(byte, _)| byte)
    };
    at(column)..at(column.saturating_add(length))
}

/// Diagnostics in the order they were found, at most [`KEPT`] of each severity.
#[derive(Debug, Clone, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
    /// Keys and values of what was read to find them.
    values: usize,
}

impl Diagnostics {
    /// An empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one at the end, or only counts it where there are enough of its severity.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.push_with(diagnostic.severity, || diagnostic);
    }

    /// The same for one that takes work to write, such as a suggestion: it is written only where it is kept.
    pub fn push_with(&mut self, severity: Severity, diagnostic: impl FnOnce() -> Diagnostic) {
        let count = match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count = count.saturating_add(1);
        if *count <= KEPT {
            self.list.push(diagnostic());
        }
    }

    /// How many keys and values were read to find these.
    pub fn values(&self) -> usize {
        self.values
    }

    /// Counts keys and values that were read.
    pub fn read(&mut self, values: usize) {
        self.values = self.values.saturating_add(values);
    }

    /// Adds all of another collection, in its order, those that it only counted too.
    pub fn append(&mut self, other: Self) {
        let (errors, warnings) = (other.hidden(Severity::Error), other.hidden(Severity::Warning));
        for diagnostic in other.list {
            self.push(diagnostic);
        }
        self.errors = self.errors.saturating_add(errors);
        self.warnings = self.warnings.saturating_add(warnings);
    }

    /// The same diagnostics and counts in another order.
    pub(super) fn with_order(self, list: Vec<Diagnostic>) -> Self {
        Self { list, ..self }
    }

    /// How many errors there are, those that are only counted included.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// How many warnings there are, those that are only counted included.
    pub fn warnings(&self) -> usize {
        self.warnings
    }

    /// Whether anything keeps the project from running.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// How many of a severity were found but not kept.
    pub fn hidden(&self, severity: Severity) -> usize {
        let found = if severity == Severity::Error { self.errors } else { self.warnings };
        found.saturating_sub(self.list.iter().filter(|d| d.severity == severity).count())
    }
}

/// Equal is what says the same: how much was read to find it is no part of that, or nothing that was read would be
/// as good as [`Diagnostics::new`].
impl PartialEq for Diagnostics {
    fn eq(&self, other: &Self) -> bool {
        (&self.list, self.errors, self.warnings) == (&other.list, other.errors, other.warnings)
    }
}

impl Eq for Diagnostics {}

impl std::ops::Deref for Diagnostics {
    type Target = [Diagnostic];

    fn deref(&self) -> &[Diagnostic] {
        &self.list
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(line: u32, column: u32, length: u32) -> Position {
        Position { file: ".harness/tools/x.md".into(), line, column, length }
    }

    #[test]
    fn plain() {
        let source = "---\ntimout_ms: 5\n---\n";
        let diagnostic =
            Diagnostic::warning("unknown key `timout_ms`").at(at(2, 1, 9)).hint("did you mean `timeout_ms`?");
        insta::assert_snapshot!(diagnostic.render(Some(source), false), @r#"
        warning: unknown key `timout_ms`
         --> .harness/tools/x.md:2:1
          |
        2 | timout_ms: 5
          | ^^^^^^^^^
          |
          = hint: did you mean `timeout_ms`?
        "#);
        insta::assert_snapshot!(diagnostic.render(None, false), @r#"
        warning: unknown key `timout_ms`
        --> .harness/tools/x.md:2:1
         = hint: did you mean `timeout_ms`?
        "#);
    }

    #[test]
    fn without_a_place() {
        insta::assert_snapshot!(Diagnostic::error("no folder").hint("make one").render(None, false), @r#"
        error: no folder
         |
         = hint: make one
        "#);
    }

    #[test]
    fn colored() {
        let shown = Diagnostic::error("bad").at(at(1, 1, 3)).render(Some("---\n"), true);
        assert!(shown.contains("\x1b["), "{shown}");
    }

    #[test]
    fn hostile_text_does_not_reach_the_terminal() {
        let source = "a: \x1b]0;title\x07\u{202e}b\n";
        let shown = Diagnostic::error("bad \x1b[2J").at(at(1, 4, 3)).hint("\u{200b}").render(Some(source), false);
        insta::assert_snapshot!(shown, @r#"
        error: bad \u{1b}[2J
         --> .harness/tools/x.md:1:4
          |
        1 | a: ␛]0;title␇�b
          |    ^^^
          |
          = hint: \u{200b}
        "#);
    }

    #[test]
    fn too_many_are_counted() {
        let mut all = Diagnostics::new();
        for n in 0..KEPT + 5 {
            all.push(Diagnostic::warning(format!("{n}")));
        }
        all.push(Diagnostic::error("last"));
        let mut sum = Diagnostics::new();
        sum.append(all);
        assert_eq!(
            (sum.len(), sum.errors(), sum.warnings(), sum.hidden(Severity::Warning)),
            (KEPT + 1, 1, KEPT + 5, 5)
        );
        assert_eq!(sum.last(), Some(&Diagnostic::error("last")));
    }

    proptest! {
        #[test]
        fn rendering_is_total(
            source in any::<String>(), message in any::<String>(),
            line in 0..6_u32, column in any::<u32>(), length in any::<u32>(), near in 0..20_u32,
        ) {
            for (column, length) in [(column, length), (near, 1), (near, length), (0, 0)] {
                let diagnostic = Diagnostic::error(message.as_str()).at(at(line, column, length)).hint(message.as_str());
                let shown = diagnostic.render(Some(&source), false);
                prop_assert!(!shown.chars().any(|c| harness_policy::text::is_hidden(c) && c != '\n'), "{:?}", shown);
            }
        }
    }
}
