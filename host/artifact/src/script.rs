//! A piece of Starlark in an artifact, and how its lines map to those of the file.

use super::yaml::{Node, Style, Value};

/// Source text with its place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The source, as YAML gives it: without the indentation of the block.
    pub text: String,
    /// Line of the file that the first line of the text is on, from 1.
    pub first_line: u32,
    /// How many characters stand before the text in each of those lines: the indentation that YAML removed, or, for
    /// a text on the line of its key, what comes before it.
    pub indent: u32,
    /// Line of the file that the text ends on, from 1.
    pub last_line: u32,
}

impl Script {
    /// The script of a scalar node; none where the node is not text or holds nothing but white space.
    pub fn of(node: &Node) -> Option<Self> {
        let Value::Str(text) = &node.value else { return None };
        if text.trim().is_empty() {
            return None;
        }
        let (first_line, indent) = match node.style {
            Style::Literal(block) | Style::Folded(block) => (block.first_line, block.indent),
            // After the opening quote.
            Style::Quoted => (node.span.start.line, node.span.start.column),
            Style::Plain | Style::Collection => (node.span.start.line, node.span.start.column.saturating_sub(1)),
        };
        // A block's span ends where the next thing begins; its text ends with its last line.
        let last_line = match node.style {
            Style::Literal(_) => {
                first_line.saturating_add(u32::try_from(text.lines().count().saturating_sub(1)).unwrap_or(u32::MAX))
            }
            _ => node.span.end.line.max(first_line),
        };
        Some(Self { text: text.clone(), first_line, indent, last_line })
    }

    /// The line and column of the file for a line and column of the text, all from 1.
    ///
    /// Exact for a block after `|` and for a text on one line without escapes, which is how scripts are written. For
    /// the other forms YAML rearranges lines, and the answer is near. Never outside the text's own lines.
    pub fn locate(&self, line: u32, column: u32) -> (u32, u32) {
        let line = self.first_line.saturating_add(line.saturating_sub(1)).min(self.last_line);
        (line, self.indent.saturating_add(column.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::yaml;
    use super::*;

    #[track_caller]
    fn check(yaml: &str, expect: Option<(&str, u32, u32, u32)>) {
        let (tree, errors) = yaml::parse(yaml, 2);
        assert_eq!(errors, []);
        let Some(Node { value: Value::Map(entries), .. }) = tree else { panic!("a mapping is wanted") };
        let script = Script::of(&entries[0].1);
        let found = script.as_ref().map(|s| (s.text.as_str(), s.first_line, s.indent, s.last_line));
        assert_eq!(found, expect);
    }

    #[test]
    fn blocks() {
        check("script: |\n  a\n    b\n", Some(("a\n  b\n", 3, 2, 4)));
        check("script: |-\n    a\n", Some(("a", 3, 4, 3)));
        check("script: |\n\n\n  a\nx: 1\n", Some(("\n\na\n", 3, 2, 5)));
        check("script: |2\n    a\n  b\n", Some(("  a\nb\n", 3, 2, 4)));
        check("script: | # why\n   a\n\n   b\n\n\nx: 1\n", Some(("a\n\nb\n", 3, 3, 5)));
        check("script: |+\n  a\n\n", Some(("a\n\n", 3, 2, 4)));
        check("script: |\r\n  a\r\n  b\r\n", Some(("a\nb\n", 3, 2, 4)));
        check("script: |\n  ---\n  a\n", Some(("---\na\n", 3, 2, 4)));
        check("script:\n  |\n  a\n", Some(("a\n", 4, 2, 4)));
    }

    #[test]
    fn on_the_line_of_the_key() {
        check("when: payload.x == 1\n", Some(("payload.x == 1", 2, 6, 2)));
        check("when: 'a == 1'\n", Some(("a == 1", 2, 7, 2)));
        check("when: \"a == 1\"\n", Some(("a == 1", 2, 7, 2)));
    }

    #[test]
    fn nothing_to_run() {
        check("script: ''\n", None);
        check("script: |\n", None);
        check("script: \"  \\n\"\n", None);
        check("script:\n", None);
    }

    #[test]
    fn places() {
        let block = Script { text: "a\nb\n".to_owned(), first_line: 5, indent: 2, last_line: 6 };
        assert_eq!(block.locate(1, 1), (5, 3));
        assert_eq!(block.locate(2, 4), (6, 6));
        assert_eq!(block.locate(9, 0), (6, 3));
        assert_eq!(block.locate(u32::MAX, u32::MAX), (6, u32::MAX));
    }
}
