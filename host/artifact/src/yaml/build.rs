//! The parser's events into a tree, without recursion.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span as Events};

use super::{Block, Error, Key, LineColumn, MAX_BYTES, MAX_DEPTH, MAX_NODES, Node, Span, Style, Value, scalar};
use harness_policy::text::quoted;

/// See [`super::parse`].
pub(super) fn tree(text: &str, first_line: u32) -> (Option<Node>, Vec<Error>) {
    let mut builder = Builder { text, first_line, errors: Vec::new(), open: Vec::new(), root: None, nodes: 0 };
    let tree = match builder.run() {
        Ok(()) => Some(builder.root.unwrap_or(Node {
            value: Value::Null,
            span: point(LineColumn { line: first_line, column: 1 }),
            style: Style::Plain,
        })),
        Err(error) => {
            builder.errors.push(error);
            None
        }
    };
    (tree, builder.errors)
}

/// The key that other readers of YAML take for "the entries of these mappings too". Half of them do; to the others, and to
/// the core schema, it is a key like any other.
const MERGE: &str = "<<";

struct Builder<'t> {
    text: &'t str,
    first_line: u32,
    errors: Vec<Error>,
    /// Lists and mappings that are not closed yet, the innermost last.
    open: Vec<Open>,
    root: Option<Node>,
    nodes: usize,
}

enum Open {
    Seq {
        start: LineColumn,
        items: Vec<Node>,
    },
    Map {
        start: LineColumn,
        entries: Vec<(Key, Node)>,
        /// The line that each key is first on.
        lines: HashMap<String, u32>,
        /// The key whose value comes next, and whether that counts: it is there for the first time, and no merge key.
        key: Option<(Key, bool)>,
    },
}

impl Builder<'_> {
    fn run(&mut self) -> Result<(), Error> {
        if self.text.len() > MAX_BYTES {
            return Err(self.error(
                point(LineColumn { line: self.first_line, column: 1 }),
                format!("longer than {MAX_BYTES} bytes"),
            ));
        }
        self.refuse_control_characters()?;
        let mut documents = 0_u32;
        for event in Parser::new_from_str(self.text) {
            let (event, span) = event.map_err(|e| {
                let place = self.clamped(self.place(*e.marker()));
                if let Some(tab) = self.tab(place.line) {
                    return self.error(point(tab), "a tab cannot indent a line: use spaces".to_owned());
                }
                match e.info() {
                    // Of an alias of nothing it is an error first that nothing has the name.
                    info if info.ends_with("unknown anchor") => self.alias(point(place)),
                    info => self.error(point(place), info.to_owned()),
                }
            })?;
            let span = self.span(span);
            match event {
                Event::DocumentStart(_) => {
                    documents = documents.saturating_add(1);
                    if documents > 1 {
                        return Err(
                            self.error(point(self.clamped(span.start)), "a second document begins here".to_owned())
                        );
                    }
                }
                // What `<<:` names: that was said of the key.
                Event::Alias(_) if self.merges() => {
                    self.add(Node { value: Value::Null, span, style: Style::Plain })?;
                }
                Event::Alias(_) => {
                    return Err(self.alias(span));
                }
                Event::Scalar(text, style, anchor, tag) => {
                    self.refuse_extras(span, anchor, tag.is_some());
                    self.scalar(text.into_owned(), style, span)?;
                }
                Event::SequenceStart(anchor, tag) => {
                    self.refuse_extras(span, anchor, tag.is_some());
                    self.enter(span, Open::Seq { start: span.start, items: Vec::new() })?;
                }
                Event::MappingStart(anchor, tag) => {
                    self.refuse_extras(span, anchor, tag.is_some());
                    let map = Open::Map { start: span.start, entries: Vec::new(), lines: HashMap::new(), key: None };
                    self.enter(span, map)?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.leave(span.end)?,
                Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            }
        }
        Ok(())
    }

    /// YAML allows no control characters, and the parser takes NUL for the end of the text: what follows would be
    /// dropped without a word. A carriage return is allowed before a line break only, so that everybody counts the
    /// same lines.
    fn refuse_control_characters(&self) -> Result<(), Error> {
        let mut place = LineColumn { line: self.first_line, column: 1 };
        let mut characters = self.text.chars().peekable();
        while let Some(c) = characters.next() {
            let allowed = match c {
                '\n' | '\t' => true,
                '\r' => characters.peek() == Some(&'\n'),
                '\u{fffe}' | '\u{ffff}' => false,
                _ => !c.is_control(),
            };
            if !allowed {
                let error = self.error(point(place), format!("the character U+{:04X} is not allowed", u32::from(c)));
                return Err(Error {
                    hint: Some("in a double-quoted string, write it as an escape such as `\\x1b`"),
                    ..error
                });
            }
            if c == '\n' {
                place = LineColumn { line: place.line.saturating_add(1), column: 1 };
            } else {
                place.column = place.column.saturating_add(1);
            }
        }
        Ok(())
    }

    fn alias(&self, span: Span) -> Error {
        let error = self.error(span, "aliases (`*name`) are not supported".to_owned());
        Error { hint: Some("write the value out, or quote it if the star is part of it"), ..error }
    }

    fn refuse_extras(&mut self, span: Span, anchor: usize, tag: bool) {
        if anchor != 0 {
            self.errors.push(self.error(span, "anchors (`&name`) are not supported".to_owned()));
        }
        if tag {
            self.errors.push(self.error(span, "tags (`!name`) are not supported".to_owned()));
        }
    }

    fn scalar(&mut self, text: String, style: ScalarStyle, span: Span) -> Result<(), Error> {
        if let Some(Open::Map { key: key @ None, lines, .. }) = self.open.last_mut() {
            if text == MERGE && style == ScalarStyle::Plain {
                self.errors.push(Error {
                    message: "merge keys (`<<`) are not supported: nothing would be merged".to_owned(),
                    span,
                    hint: Some("write the keys out here, or quote it if a key is really called `<<`"),
                });
                *key = Some((Key { text, span }, false));
                return Ok(());
            }
            let earlier = lines.get(&text).copied();
            if let Some(line) = earlier {
                let message = format!("{} is given twice, first on line {line}", quoted(&text));
                self.errors.push(Error { message, span, hint: None });
            } else {
                lines.insert(text.clone(), span.start.line);
            }
            *key = Some((Key { text, span }, earlier.is_none()));
            return Ok(());
        }
        let (value, style) = match style {
            ScalarStyle::Plain => (scalar::resolve(&text), Style::Plain),
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => (Value::Str(text), Style::Quoted),
            ScalarStyle::Literal => {
                let block = block(&text, span.start);
                (Value::Str(text), Style::Literal(block))
            }
            ScalarStyle::Folded => {
                let block = block(&text, span.start);
                (Value::Str(text), Style::Folded(block))
            }
        };
        self.count(span)?;
        self.add(Node { value, span, style })
    }

    /// Whether what comes next is the value of a merge key.
    fn merges(&self) -> bool {
        matches!(self.open.last(), Some(Open::Map { key: Some((key, false)), .. }) if key.text == MERGE)
    }

    fn enter(&mut self, span: Span, open: Open) -> Result<(), Error> {
        if matches!(self.open.last(), Some(Open::Map { key: None, .. })) {
            return Err(self.error(span, "a key must be text, not a list or a mapping".to_owned()));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(self.error(span, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.count(span)?;
        self.open.push(open);
        Ok(())
    }

    fn leave(&mut self, end: LineColumn) -> Result<(), Error> {
        let node = |start: LineColumn, value| Node {
            value,
            span: Span { start, end: end.max(start) },
            style: Style::Collection,
        };
        match self.open.pop() {
            Some(Open::Seq { start, items }) => self.add(node(start, Value::Seq(items))),
            Some(Open::Map { start, entries, .. }) => self.add(node(start, Value::Map(entries))),
            None => Ok(()),
        }
    }

    fn add(&mut self, node: Node) -> Result<(), Error> {
        match self.open.last_mut() {
            Some(Open::Seq { items, .. }) => items.push(node),
            Some(Open::Map { entries, key, .. }) => {
                // What does not count was reported when its key was read.
                if let Some((key, true)) = key.take() {
                    entries.push((key, node));
                }
            }
            None => self.root = Some(node),
        }
        Ok(())
    }

    fn count(&mut self, span: Span) -> Result<(), Error> {
        self.nodes = self.nodes.saturating_add(1);
        if self.nodes > MAX_NODES {
            return Err(self.error(span, format!("more than {MAX_NODES} values")));
        }
        Ok(())
    }

    fn error(&self, span: Span, message: String) -> Error {
        Error { message, span, hint: None }
    }

    fn place(&self, marker: Marker) -> LineColumn {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        LineColumn {
            line: self.first_line.saturating_add(number(marker.line()).saturating_sub(1)),
            column: number(marker.col()).saturating_add(1),
        }
    }

    /// A line that a tab begins, beside the one on which the parser stopped: it stops before it, at it or after it,
    /// and says something else each time.
    fn tab(&self, stopped: u32) -> Option<LineColumn> {
        let near = stopped.saturating_sub(1)..=stopped.saturating_add(1);
        let mut lines = (self.first_line..).zip(self.text.split('\n'));
        let is_indented = |text: &str| text.starts_with('\t') && !text.trim().is_empty();
        let (line, _) = lines.find(|(line, text)| near.contains(line) && is_indented(text))?;
        Some(LineColumn { line, column: 1 })
    }

    fn span(&self, span: Events) -> Span {
        let (start, end) = (self.place(span.start), self.place(span.end));
        Span { start, end: end.max(start) }
    }

    /// The parser may report the end of the text as a line of its own, or as a column after a line break; a message
    /// points into the text.
    fn clamped(&self, place: LineColumn) -> LineColumn {
        let index = usize::try_from(place.line.saturating_sub(self.first_line)).unwrap_or(usize::MAX);
        let mut lines = self.text.split('\n');
        match lines.nth(index) {
            Some(line) => {
                let length = line.strip_suffix('\r').unwrap_or(line).chars().count();
                let last = u32::try_from(length).unwrap_or(u32::MAX).saturating_add(1);
                LineColumn { line: place.line, column: place.column.clamp(1, last) }
            }
            None => {
                let last = u32::try_from(self.text.split('\n').count()).unwrap_or(u32::MAX);
                LineColumn { line: self.first_line.saturating_add(last.saturating_sub(1)), column: 1 }
            }
        }
    }
}

fn point(place: LineColumn) -> Span {
    Span { start: place, end: place }
}

/// Where the text of a block scalar begins: the parser points at the first line that is not empty, and each empty
/// line before it is a line break at the front of the text.
fn block(text: &str, start: LineColumn) -> Block {
    let empty = text.chars().take_while(|c| *c == '\n').count();
    Block {
        first_line: start.line.saturating_sub(u32::try_from(empty).unwrap_or(u32::MAX)).max(1),
        indent: start.column.saturating_sub(1),
    }
}
