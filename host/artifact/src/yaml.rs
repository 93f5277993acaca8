//! YAML 1.2 as a tree in which everything knows its place.
//!
//! Only what an artifact needs: one document, the core schema, scalars as keys. Anchors, aliases, tags and merge keys
//! are refused, since they make a text mean more than it shows; depth, size and number of nodes are bounded. Parsing
//! never panics and takes time in proportion to the text.

mod build;
mod flow;
mod scalar;

pub use flow::flow;
pub use scalar::integer;

use std::fmt;

/// Longest text, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// Deepest nesting of lists and mappings. The outermost counts.
pub const MAX_DEPTH: usize = 32;
/// Most values, keys not counted.
pub const MAX_NODES: usize = 100_000;

/// A place in the file: line and column from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "said above")]
pub struct LineColumn {
    pub line: u32,
    pub column: u32,
}

/// From where to where something reaches; the end is the place after its last character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "said above")]
pub struct Span {
    pub start: LineColumn,
    pub end: LineColumn,
}

impl Span {
    /// How many characters of the first line it covers: at least 1, and 1 where it covers several lines.
    pub fn length(self) -> u32 {
        if self.start.line == self.end.line { self.end.column.saturating_sub(self.start.column).max(1) } else { 1 }
    }
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it is. Of a block scalar: its content, from the first line that is not empty.
    pub span: Span,
    /// How it was written.
    pub style: Style,
}

impl Node {
    /// How many keys and values it is made of, itself counted. Never deep: see [`MAX_DEPTH`].
    pub fn count(&self) -> usize {
        let inside: usize = match &self.value {
            Value::Seq(items) => items.iter().map(Self::count).sum(),
            Value::Map(entries) => entries.iter().map(|(_, node)| node.count().saturating_add(1)).sum(),
            _ => 0,
        };
        inside.saturating_add(1)
    }
}

/// What a value is, by the core schema: a plain scalar may be anything, a quoted one or a block is always text.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`, `~`, or nothing at all.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number as it was written, of any size: decimal with a sign, `0o17`, `0xff`.
    Int(String),
    /// A number with a point or an exponent as it was written; `.inf` and `.nan` too.
    Float(String),
    /// Text.
    Str(String),
    /// A list.
    Seq(Vec<Node>),
    /// A mapping in the order of the file. No key is there twice.
    Map(Vec<(Key, Node)>),
}

impl Value {
    /// What it is, with an article, for "found ...".
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Str(_) => "a string",
            Self::Seq(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// A key of a mapping. Always text: `1:` is the key `1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The text.
    pub text: String,
    /// Where it is.
    pub span: Span,
}

/// How a value was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A scalar without quotes.
    Plain,
    /// In single or double quotes.
    Quoted,
    /// After `|`: each line of the text is a line of the file, less its indentation.
    Literal(Block),
    /// After `>`: lines are joined, and the text has fewer of them than the file.
    Folded(Block),
    /// A list or a mapping.
    Collection,
}

/// Where the text of a block scalar is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Line of the file with the first line of the text, from 1.
    pub first_line: u32,
    /// How many characters YAML removed from the front of each line.
    pub indent: u32,
}

/// Something wrong with the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// One line, without the place.
    pub message: String,
    /// Where.
    pub span: Span,
    /// What to do about it, where that is known.
    pub hint: Option<&'static str>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.span.start.line, self.message)
    }
}

/// Parses a text that begins at line `first_line` of its file.
///
/// The tree is there unless the text could not be followed to its end; a key that is given twice or an anchor leaves
/// it whole (the first value counts), with the error beside it, so that the rest can still be checked. A tree with
/// errors beside it is good for finding more errors, and for nothing else. Empty text is [`Value::Null`].
pub fn parse(text: &str, first_line: u32) -> (Option<Node>, Vec<Error>) {
    build::tree(text, first_line)
}

#[cfg(test)]
mod tests;
