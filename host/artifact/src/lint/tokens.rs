//! The words of a script, as well as they are distinguished without parsing it: for looking at how they are used.

/// A word with its place in the script, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'t> {
    pub(super) what: What<'t>,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// What a word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What<'t> {
    /// A name or a word of the language.
    Name(&'t str),
    /// What is in quotes, as it is written.
    Text(&'t str),
    /// A number.
    Number,
    /// Any other character, and the end of a line that no bracket keeps open.
    Mark(char),
}

/// All of them, without space and comments.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut line, mut column, mut depth) = (1_u32, 1_u32, 0_u32);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let (length, what) = word(rest, next);
        let what = match what {
            Some(What::Mark('\n')) if depth > 0 => None,
            other => other,
        };
        match what {
            Some(What::Mark('(' | '[' | '{')) => depth = depth.saturating_add(1),
            Some(What::Mark(')' | ']' | '}')) => depth = depth.saturating_sub(1),
            _ => {}
        }
        found.extend(what.map(|what| Token { what, line, column }));
        let (taken, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        for c in taken.chars() {
            (line, column) = if c == '\n' { (line.saturating_add(1), 1) } else { (line, column.saturating_add(1)) };
        }
        rest = after;
    }
    found
}

/// The bytes that a word takes, and what it is.
fn word(rest: &str, next: char) -> (usize, Option<What<'_>>) {
    if next == '#' {
        return (rest.find('\n').unwrap_or(rest.len()), None);
    }
    if next == '\n' {
        return (1, Some(What::Mark('\n')));
    }
    if next.is_whitespace() {
        return (next.len_utf8(), None);
    }
    if let Some((length, text)) = quoted(rest) {
        return (length, Some(What::Text(text)));
    }
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    match rest.get(..end).filter(|word| !word.is_empty()) {
        Some(_) if next.is_numeric() => (end, Some(What::Number)),
        Some(word) => (end, Some(What::Name(word))),
        None => (next.len_utf8(), Some(What::Mark(next))),
    }
}

/// A text in quotes, with the bytes that it takes, where one begins here.
fn quoted(rest: &str) -> Option<(usize, &str)> {
    let prefix = rest.find(['"', '\'']).filter(|at| *at <= 2)?;
    let is_raw = match rest.get(..prefix)? {
        "" | "b" => false,
        "r" | "rb" | "br" => true,
        _ => return None,
    };
    let body = rest.get(prefix..)?;
    let quote = body.chars().next()?;
    let long: String = [quote; 3].iter().collect();
    let mark = if body.starts_with(&long) { long.as_str() } else { body.get(..1)? };
    let inner = body.get(mark.len()..)?;
    let (mut at, mut escaped) = (0, false);
    for (index, c) in inner.char_indices() {
        at = index;
        if escaped {
            escaped = false;
        } else if c == '\\' && !is_raw {
            escaped = true;
        } else if inner.get(index..).is_some_and(|rest| rest.starts_with(mark)) || (c == '\n' && mark.len() == 1) {
            break;
        } else {
            at = index.saturating_add(c.len_utf8());
        }
    }
    let text = inner.get(..at)?;
    Some((prefix.saturating_add(mark.len().saturating_mul(2)).saturating_add(at).min(rest.len()), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let shown = |text: &str| {
            tokens(text).iter().map(|t| format!("{}:{} {:?}", t.line, t.column, t.what)).collect::<Vec<_>>()
        };
        assert_eq!(
            shown("x = fs.read('a\\'b') # fs.no\nr\"\"\"q\n\"\"\" 1.5e3"),
            [
                "1:1 Name(\"x\")",
                "1:3 Mark('=')",
                "1:5 Name(\"fs\")",
                "1:7 Mark('.')",
                "1:8 Name(\"read\")",
                "1:12 Mark('(')",
                "1:13 Text(\"a\\\\'b\")",
                "1:19 Mark(')')",
                "1:28 Mark('\\n')",
                "2:1 Text(\"q\\n\")",
                "3:5 Number",
                "3:6 Mark('.')",
                "3:7 Number",
            ]
        );
        assert_eq!(shown("(\n)\n"), ["1:1 Mark('(')", "2:1 Mark(')')", "2:2 Mark('\\n')"]);
        for odd in ["'", "\"\"\"", "'\\", "r'", "\u{e9}'x", "b"] {
            let _ = tokens(odd);
        }
    }
}
