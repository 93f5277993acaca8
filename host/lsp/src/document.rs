//! A text of the client, and positions in it.
//!
//! The protocol counts lines and UTF-16 code units from 0, diagnostics count lines and characters from 1, and the features
//! work with offsets in bytes.

use harness_artifact::diagnostic::Position as Located;
use lsp_types::{Position, Range};

/// The byte that a position of the protocol is at: within its line, and within the text.
pub(crate) fn offset(text: &str, at: Position) -> usize {
    let (start, line) = line(text, at.line);
    let mut units = 0_u32;
    for (byte, c) in line.char_indices() {
        if units >= at.character {
            return start.saturating_add(byte);
        }
        units = units.saturating_add(u32::try_from(c.len_utf16()).unwrap_or(2));
    }
    start.saturating_add(line.len())
}

/// The position of a byte.
pub(crate) fn position(text: &str, offset: usize) -> Position {
    let before = text.get(..offset).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |end| end.saturating_add(1));
    let number = before.bytes().filter(|byte| *byte == b'\n').count();
    Position { line: u32::try_from(number).unwrap_or(u32::MAX), character: units(before.get(start..).unwrap_or("")) }
}

/// The range of two bytes.
pub(crate) fn range(text: &str, bytes: std::ops::Range<usize>) -> Range {
    Range { start: position(text, bytes.start), end: position(text, bytes.end) }
}

/// The bytes that a diagnostic is about.
pub(crate) fn bytes_of(text: &str, at: &Located) -> std::ops::Range<usize> {
    let (mut start, mut line) = line(text, at.line.saturating_sub(1));
    // Diagnostics do not count it.
    if let Some(rest) = line.strip_prefix('\u{feff}').filter(|_| at.line <= 1) {
        (start, line) = (start.saturating_add('\u{feff}'.len_utf8()), rest);
    }
    let byte = |column: u32| {
        let characters = usize::try_from(column).unwrap_or(usize::MAX);
        line.char_indices().nth(characters).map_or(line.len(), |(byte, _)| byte)
    };
    let first = at.column.saturating_sub(1);
    start.saturating_add(byte(first))..start.saturating_add(byte(first.saturating_add(at.length)))
}

/// The range that a diagnostic is about.
pub(crate) fn range_of(text: &str, at: &Located) -> Range {
    range(text, bytes_of(text, at))
}

/// A line by its number from 0, without its break, and the byte that it begins at.
pub(crate) fn line(text: &str, number: u32) -> (usize, &str) {
    let mut start = 0_usize;
    for _ in 0..number {
        match text.get(start..).and_then(|rest| rest.find('\n')) {
            Some(end) => start = start.saturating_add(end).saturating_add(1),
            None => return (text.len(), ""),
        }
    }
    let rest = text.get(start..).unwrap_or("");
    let line = rest.split('\n').next().unwrap_or("");
    (start, line.strip_suffix('\r').unwrap_or(line))
}

fn units(text: &str) -> u32 {
    u32::try_from(text.chars().map(char::len_utf16).sum::<usize>()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf_16() {
        let text = "a\r\n😀ä: x\nz";
        for (line, character, byte) in
            [(0, 0, 0), (0, 9, 1), (1, 0, 3), (1, 2, 7), (1, 3, 9), (1, 99, 12), (2, 1, 14), (9, 9, 14)]
        {
            assert_eq!(offset(text, Position { line, character }), byte, "{line}:{character}");
        }
        // In the middle of a character that takes two units: after it.
        assert_eq!(offset(text, Position { line: 1, character: 1 }), 7);
        for (byte, line, character) in [(0, 0, 0), (3, 1, 0), (7, 1, 2), (9, 1, 3), (14, 2, 1), (99, 2, 1)] {
            assert_eq!(position(text, byte), Position { line, character }, "{byte}");
        }
    }

    #[test]
    fn what_a_diagnostic_is_about() {
        let at = |line, column, length| Located { file: "f".into(), line, column, length };
        let text = "\u{feff}---\n😀ä: x\n";
        assert_eq!(bytes_of(text, &at(1, 1, 3)), 3..6);
        let range = range_of(text, &at(2, 2, 1));
        assert_eq!((range.start.character, range.end.character), (2, 3));
        assert_eq!(bytes_of(text, &at(2, 99, 99)), 16..16);
        assert_eq!(bytes_of(text, &at(99, 1, 1)), 17..17);
    }
}
