//! Text of unknown origin, made fit for a terminal.
//!
//! A file, a script, a model or a server may hold characters that move the cursor, recolor the screen, reverse the
//! reading order or show nothing at all. Everything that is printed goes through one of these functions.

use std::borrow::Cow;
use std::fmt::Write as _;

use harness_policy::text::is_hidden;

/// For a message of one line: every hidden character is shown as an escape, line breaks and tabs too.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// For text of several lines: like [`line()`], but line breaks and tabs stay. A carriage return before a line break is
/// dropped; alone it would let a line overwrite itself, and is shown as `\r`.
pub fn text(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") {
        return Cow::Owned(escaped(&text.replace("\r\n", "\n"), |c| matches!(c, '\n' | '\t')).into_owned());
    }
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// For a line of source over a caret: every hidden character becomes exactly one visible one, so that columns stay
/// where they are. Tabs stay.
pub fn same_width(line: &str) -> Cow<'_, str> {
    if !line.chars().any(|c| c != '\t' && is_hidden(c)) {
        return Cow::Borrowed(line);
    }
    Cow::Owned(line.chars().map(|c| if c == '\t' { c } else { picture(c) }).collect())
}

/// For JSON on one line: every hidden character is shown as an escape that JSON has. They are in texts alone there.
pub fn json(line: &str) -> Cow<'_, str> {
    if !line.chars().any(is_hidden) {
        return Cow::Borrowed(line);
    }
    let mut shown = String::with_capacity(line.len().saturating_add(16));
    for c in line.chars() {
        if is_hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

fn escaped(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_hidden(c) && !keep(c)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len().saturating_add(16));
    for c in text.chars() {
        match c {
            _ if keep(c) || !is_hidden(c) => shown.push(c),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            // Writing to a string cannot fail.
            _ => drop(write!(shown, "\\u{{{:x}}}", u32::from(c))),
        }
    }
    Cow::Owned(shown)
}

/// A visible character instead of a hidden one: Unicode's control picture where there is one.
fn picture(c: char) -> char {
    match c {
        '\0'..='\x1f' => char::from_u32(0x2400_u32.saturating_add(u32::from(c))).unwrap_or('\u{fffd}'),
        '\x7f' => '\u{2421}',
        _ if is_hidden(c) => '\u{fffd}',
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn json_stays_json() {
        let value = serde_json::json!({"a": "x\u{200b}\u{1b}\u{e0041}y"});
        let shown = super::json(&value.to_string()).into_owned();
        assert_eq!(shown, r#"{"a":"x\u200b\u001b\udb40\udc41y"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        assert_eq!(super::json("{}"), "{}");
    }

    #[test]
    fn a_line_shows_everything_hidden() {
        for (given, shown) in [
            ("plain text, ünï 漢字 🦀", "plain text, ünï 漢字 🦀"),
            ("a\x1b[31mred", "a\\u{1b}[31mred"),
            ("one\r\ntwo\tthree", "one\\r\\ntwo\\tthree"),
            ("\u{202e}evil\u{2066}", "\\u{202e}evil\\u{2066}"),
            ("zero\u{200b}width\u{feff}", "zero\\u{200b}width\\u{feff}"),
            ("c1\u{9b}31m", "c1\\u{9b}31m"),
            ("tag\u{e0041}", "tag\\u{e0041}"),
        ] {
            assert_eq!(super::line(given), shown);
        }
    }

    #[test]
    fn text_keeps_its_lines() {
        assert_eq!(super::text("a\tb\nc"), "a\tb\nc");
        assert_eq!(super::text("a\r\nb\rc\x07"), "a\nb\\rc\\u{7}");
    }

    #[test]
    fn source_keeps_its_columns() {
        assert_eq!(super::same_width("a\tb"), "a\tb");
        assert_eq!(super::same_width("a\x1bb\u{202e}c\x7f"), "a\u{241b}b\u{fffd}c\u{2421}");
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_left(given in any::<String>()) {
            prop_assert!(!super::line(&given).chars().any(harness_policy::text::is_hidden));
            prop_assert!(!super::text(&given).chars().any(|c| harness_policy::text::is_hidden(c) && c != '\n' && c != '\t'));
            let same = super::same_width(&given);
            prop_assert!(!same.chars().any(|c| harness_policy::text::is_hidden(c) && c != '\t'));
            prop_assert_eq!(same.chars().count(), given.chars().count());
        }
    }
}
