//! Where in an artifact a position is: the keys above it, and what may be written there.
//!
//! A text that is being written is seldom valid YAML. So the lines before the position are followed by their indentation
//! alone, which is enough for the keys.

use std::ops::Range;

/// Levels that are followed: YAML of an artifact has at most 32.
const DEEPEST: usize = 64;

/// One step from the outermost mapping to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    /// An item of a list, by its index.
    Item(usize),
}

/// What may be written at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A key of the mapping at the path, or the value at the path as a whole.
    KeyOrValue,
    /// The value at the path.
    Value,
    /// A part of the text at the path, in a block or behind the key.
    Text,
}

/// A position in the front matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) path: Vec<Step>,
    pub(crate) what: What,
    /// The bytes of the word up to the position. Of a text: all of it up to the position.
    pub(crate) before: Range<usize>,
}

impl Cursor {
    /// The innermost key of the path.
    pub(crate) fn key(&self) -> Option<&str> {
        self.path.iter().rev().find_map(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::Item(_) => None,
        })
    }

    /// Whether it is in a piece of Starlark.
    pub(crate) fn is_in_script(&self) -> bool {
        let of_script = matches!(self.path.last(), Some(Step::Key(key)) if is_script(key));
        of_script && self.what != What::KeyOrValue
    }
}

/// Whether the text of a key is Starlark.
pub(crate) fn is_script(key: &str) -> bool {
    matches!(key, "script" | "verify" | "when")
}

/// The bytes of the YAML of an artifact: all of it, or what is between its delimiters; up to the end where the second one
/// is not written yet.
pub(crate) fn yaml(text: &str, is_all: bool) -> Option<Range<usize>> {
    if is_all {
        return Some(0..text.len());
    }
    let mut lines = text.split_inclusive('\n');
    let first = lines.next()?;
    if first.trim_start_matches('\u{feff}').trim_end() != "---" {
        return None;
    }
    let start = first.len();
    let mut end = start;
    for line in lines {
        if line.trim_end_matches(['\r', '\n']) == "---" {
            break;
        }
        end = end.saturating_add(line.len());
    }
    Some(start..end)
}

/// The cursor at a byte of a text, where that is in its YAML.
pub(crate) fn at(text: &str, is_all: bool, offset: usize) -> Option<Cursor> {
    let yaml = yaml(text, is_all)?;
    if offset < yaml.start || offset > yaml.end {
        return None;
    }
    let mut scan = Scan { text, stack: Vec::new(), open: Open::Nothing };
    let mut start = yaml.start;
    for line in text.get(yaml)?.split_inclusive('\n') {
        let next = start.saturating_add(line.len());
        // A line that nothing ends yet is being written.
        if offset < next || !line.ends_with('\n') {
            break;
        }
        scan.line(start, line.trim_end_matches(['\r', '\n']));
        start = next;
    }
    let line = text.get(start..)?.split(['\r', '\n']).next()?;
    scan.cursor(start, line, offset.saturating_sub(start))
}

/// What has begun and not ended.
#[derive(Debug, Clone, Copy)]
enum Open {
    Nothing,
    /// A block of text below a key or a dash at this column; its text begins with a line at this byte.
    Block {
        column: usize,
        start: usize,
    },
    /// A list or mapping in brackets that begins at this byte.
    Brackets {
        start: usize,
    },
}

struct Scan<'t> {
    text: &'t str,
    /// The steps so far, each with the column that it is at.
    stack: Vec<(usize, Step)>,
    open: Open,
}

/// What a line has after its dashes.
struct Content<'l> {
    column: usize,
    text: &'l str,
}

impl Scan<'_> {
    /// A whole line before the cursor.
    fn line(&mut self, start: usize, line: &str) {
        let blank = line.trim().is_empty();
        match self.open {
            Open::Block { column, .. } if blank || indent(line) > column => return,
            Open::Brackets { start: opened } => {
                let end = start.saturating_add(line.len());
                if brackets(self.text.get(opened..end).unwrap_or("")).is_none() {
                    self.open = Open::Nothing;
                }
                return;
            }
            _ => self.open = Open::Nothing,
        }
        if blank || line.trim_start().starts_with('#') {
            return;
        }
        let content = self.dashes(line);
        let (column, value) = match key(content.text) {
            Some((key, value)) => {
                self.enter(content.column, Step::Key(key.to_owned()));
                (content.column, value)
            }
            None => (self.stack.last().map_or(0, |(column, _)| *column), content.text),
        };
        if value.starts_with(['|', '>']) {
            let start = start.saturating_add(line.len());
            self.open = Open::Block { column, start: after_break(self.text, start) };
        } else if value.starts_with(['{', '[']) && brackets(value).is_some() {
            self.open = Open::Brackets { start: start.saturating_add(line.len()).saturating_sub(value.len()) };
        }
    }

    /// The cursor at a byte of a line.
    fn cursor(mut self, start: usize, line: &str, byte: usize) -> Option<Cursor> {
        let offset = start.saturating_add(byte);
        let before = line.get(..byte)?;
        match self.open {
            Open::Brackets { start } => return self.in_brackets(start..offset),
            Open::Block { column, start } => {
                let is_in = if line.trim().is_empty() { before.len() > column } else { indent(line) > column };
                if is_in {
                    return self.ends(What::Text, start.min(offset)..offset);
                }
            }
            Open::Nothing => {}
        }
        if before.trim_start().starts_with('#') {
            return None;
        }
        let content = self.dashes(before);
        if let Some((key, value)) = key(content.text) {
            let is_text = is_script(key);
            self.enter(content.column, Step::Key(key.to_owned()));
            let from = offset.saturating_sub(value.len());
            return match value.chars().next() {
                Some('|' | '>' | '#') => None,
                Some('{' | '[') if !is_text => self.in_brackets(from..offset),
                Some(quote @ ('"' | '\'')) => self.ends(
                    if is_text { What::Text } else { What::Value },
                    from.saturating_add(quote.len_utf8())..offset,
                ),
                _ => self.ends(if is_text { What::Text } else { What::Value }, from..offset),
            };
        }
        let from = offset.saturating_sub(content.text.len());
        if content.text.starts_with(['{', '[']) {
            return self.in_brackets(from..offset);
        }
        self.leave(content.column);
        let quote = usize::from(content.text.starts_with(['"', '\'']));
        self.ends(What::KeyOrValue, from.saturating_add(quote)..offset)
    }

    fn ends(self, what: What, before: Range<usize>) -> Option<Cursor> {
        let path = self.stack.into_iter().map(|(_, step)| step).collect();
        Some(Cursor { path, what, before: before.start.min(before.end)..before.end })
    }

    /// The cursor after this part of a list or mapping in brackets.
    fn in_brackets(self, part: Range<usize>) -> Option<Cursor> {
        let text = self.text.get(part.clone())?;
        let Brackets { steps, is_key, word } = brackets(text)?;
        let what = if is_key { What::KeyOrValue } else { What::Value };
        let mut cursor = self.ends(what, part.end.saturating_sub(word)..part.end)?;
        cursor.path.extend(steps);
        Some(cursor)
    }

    /// Enters the items that the dashes of a line begin.
    fn dashes<'l>(&mut self, line: &'l str) -> Content<'l> {
        let mut column = indent(line);
        let mut text = line.get(column..).unwrap_or("");
        while let Some(rest) = text.strip_prefix('-').filter(|rest| rest.is_empty() || rest.starts_with(' ')) {
            let mut index = 0;
            while let Some((at, step)) = self.stack.last() {
                match step {
                    Step::Item(before) if *at == column => index = before.saturating_add(1),
                    Step::Key(_) if *at == column => break,
                    _ if *at < column => break,
                    _ => {}
                }
                self.stack.pop();
            }
            self.push(column, Step::Item(index));
            let trimmed = rest.trim_start_matches(' ');
            column = column.saturating_add(1).saturating_add(rest.len().saturating_sub(trimmed.len()));
            text = trimmed;
        }
        Content { column, text }
    }

    /// Leaves what is not above a column.
    fn leave(&mut self, column: usize) {
        while self.stack.last().is_some_and(|(at, _)| *at >= column) {
            self.stack.pop();
        }
    }

    fn enter(&mut self, column: usize, step: Step) {
        self.leave(column);
        self.push(column, step);
    }

    fn push(&mut self, column: usize, step: Step) {
        if self.stack.len() < DEEPEST {
            self.stack.push((column, step));
        }
    }
}

/// Where the text of a block is: after the break that ends the line of its key.
fn after_break(text: &str, end: usize) -> usize {
    text.get(end..).and_then(|rest| rest.find('\n')).map_or(text.len(), |at| end.saturating_add(at).saturating_add(1))
}

fn indent(line: &str) -> usize {
    line.len().saturating_sub(line.trim_start_matches(' ').len())
}

/// A key and what is behind it, where a text begins with one.
fn key(text: &str) -> Option<(&str, &str)> {
    let (key, rest) = match text.chars().next()? {
        quote @ ('"' | '\'') => {
            text.get(1..)?.split_once(quote).and_then(|(key, rest)| Some((key, rest.strip_prefix(':')?)))?
        }
        _ => {
            let at = text.match_indices(':').map(|(at, _)| at).find(|at| {
                let after = text.get(at.saturating_add(1)..).unwrap_or("");
                after.is_empty() || after.starts_with([' ', '\t'])
            })?;
            (text.get(..at)?, text.get(at.saturating_add(1)..)?)
        }
    };
    let is_one = !key.is_empty() && !key.contains([' ', '{', '[', '#', ',']);
    is_one.then(|| (key, rest.trim_start_matches([' ', '\t'])))
}

/// What is open at the end of a text that begins with a bracket.
#[derive(Debug, PartialEq, Eq)]
struct Brackets {
    steps: Vec<Step>,
    /// Whether a key of a mapping may come.
    is_key: bool,
    /// Bytes of the word at the end.
    word: usize,
}

enum Level {
    Map(Option<String>),
    List(usize),
}

/// None where all brackets are closed.
fn brackets(text: &str) -> Option<Brackets> {
    let mut levels: Vec<Level> = Vec::new();
    let mut word = 0;
    let mut quote: Option<char> = None;
    for (at, c) in text.char_indices() {
        let after = at.saturating_add(c.len_utf8());
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if text.get(word..at).is_some_and(|word| word.trim().is_empty()) => {
                (quote, word) = (Some(c), after);
            }
            (None, '{' | '[') => {
                if levels.len() < DEEPEST {
                    levels.push(if c == '{' { Level::Map(None) } else { Level::List(0) });
                }
                word = after;
            }
            (None, '}' | ']') => {
                levels.pop();
                if levels.is_empty() {
                    return None;
                }
                word = after;
            }
            (None, ',') => {
                match levels.last_mut()? {
                    Level::Map(key) => *key = None,
                    Level::List(index) => *index = index.saturating_add(1),
                }
                word = after;
            }
            (None, ':')
                if text.get(after..).is_none_or(|rest| rest.is_empty() || rest.starts_with([' ', '\n', '\r'])) =>
            {
                if let Some(Level::Map(key @ None)) = levels.last_mut() {
                    *key = text.get(word..at).map(|key| key.trim().trim_matches(['"', '\'']).to_owned());
                    word = after;
                }
            }
            (None, _) if c.is_whitespace() && text.get(word..at).is_some_and(|word| word.trim().is_empty()) => {
                word = after
            }
            (None, _) => {}
        }
    }
    let is_key = matches!(levels.last()?, Level::Map(None));
    let steps = levels.into_iter().filter_map(|level| match level {
        Level::Map(key) => key.map(Step::Key),
        Level::List(index) => Some(Step::Item(index)),
    });
    Some(Brackets { steps: steps.collect(), is_key, word: text.len().saturating_sub(word) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cursor at `|` as text: its path, what may come, and the word.
    #[track_caller]
    fn shown(marked: &str) -> String {
        let text = format!("---\n{marked}");
        let offset = text.find('¦').unwrap();
        let text = text.replace('¦', "");
        let Some(cursor) = at(&text, false, offset) else { return "none".to_owned() };
        let path = cursor.path.iter().map(|step| match step {
            Step::Key(key) => key.clone(),
            Step::Item(index) => format!("[{index}]"),
        });
        let path = path.collect::<Vec<_>>().join(".");
        format!("{path} {:?} {:?}", cursor.what, text.get(cursor.before).unwrap())
    }

    #[test]
    fn in_lines() {
        for (text, expect) in [
            ("¦\n---\n", " KeyOrValue \"\""),
            ("time¦", " KeyOrValue \"time\""),
            ("a: 1\ntim¦e: x", " KeyOrValue \"tim\""),
            ("event: tool¦.pre\n---\n", "event Value \"tool\""),
            ("event: ¦", "event Value \"\""),
            ("event: \"to¦\"", "event Value \"to\""),
            ("sandbox:\n  fs:\n    re¦\n", "sandbox.fs KeyOrValue \"re\""),
            ("sandbox:\n  fs:\n    read: [a]\n  ¦", "sandbox KeyOrValue \"\""),
            ("sandbox:\n  fs:\n    read: [a]\n¦", " KeyOrValue \"\""),
            ("tools:\n  - name: x\n    ¦", "tools.[0] KeyOrValue \"\""),
            ("tools:\n- name: x\n- na¦", "tools.[1] KeyOrValue \"na\""),
            ("tools:\n- name: x\n- name: ¦", "tools.[1].name Value \"\""),
            ("tools:\n- name: x\nhooks:\n  - a\n  - ¦", "hooks.[1] KeyOrValue \"\""),
            ("a: # x\n  # y¦", "none"),
            ("a: 1\n---\n¦", "none"),
        ] {
            assert_eq!(shown(text), expect, "{text}");
        }
    }

    #[test]
    fn in_texts() {
        for (text, expect) in [
            ("script: |\n  def run(args):\n      fs.¦\n", "script Text \"  def run(args):\\n      fs.\""),
            ("script: |\n  a\n\n¦", " KeyOrValue \"\""),
            ("script: |\n  a\n\n  ¦", "script Text \"  a\\n\\n  \""),
            ("script: |\n  a: b\nwhen: payl¦", "when Text \"payl\""),
            ("when: 'payl¦", "when Text \"payl\""),
            ("tools:\n  - script: |\n      x¦", "tools.[0].script Text \"      x\""),
            ("tools:\n  - script: |\n      x\n    na¦", "tools.[0] KeyOrValue \"na\""),
            ("script: |¦", "none"),
            ("a: >\n  b¦", "a Text \"  b\""),
        ] {
            assert_eq!(shown(text), expect, "{text}");
        }
    }

    #[test]
    fn in_brackets() {
        for (text, expect) in [
            ("sandbox: { ¦", "sandbox KeyOrValue \"\""),
            ("sandbox: { fs: { re¦", "sandbox.fs KeyOrValue \"re\""),
            ("sandbox: { fs: { read: [a, b¦", "sandbox.fs.read.[1] Value \"b\""),
            ("sandbox: { fs: { read: [a] }, en¦ }", "sandbox KeyOrValue \"en\""),
            ("sandbox: { fs: { read: [a] } } ¦", "none"),
            ("a:\n  - { b: \"c, d¦\" }", "a.[0].b Value \"c, d\""),
            ("a: [\n  x,\n  y¦", "a.[1] Value \"y\""),
            ("a: [\n  x\n]\nb¦", " KeyOrValue \"b\""),
        ] {
            assert_eq!(shown(text), expect, "{text}");
        }
    }

    #[test]
    fn anything_is_followed() {
        for text in
            ["", "---", "---\n- - - -", "---\n\u{feff}: é: ", "---\n]]}}{[\"", "---\r\na: |\r\n  x\r\n---\r\n", "é"]
        {
            for offset in 0..=text.len().saturating_add(1) {
                let _ = at(text, false, offset);
                let _ = at(text, true, offset);
            }
        }
        let deep = format!("---\n{}", "- ".repeat(10_000));
        assert_eq!(at(&deep, false, deep.len()).map(|cursor| cursor.path.len()), Some(DEEPEST));
    }
}
