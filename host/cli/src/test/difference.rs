//! What was expected beside what there was.

use harness_artifact::escape;
use harness_dispatch::testing::Difference;
use serde_json::{Value as Json, json};
use similar::{ChangeTag, TextDiff};

use super::super::printer::Printer;

/// A few lines, escaped: what was checked, then both texts line by line, `-` for what was expected.
pub(crate) fn shown(difference: &Difference, printer: Printer) -> String {
    let expected = &difference.expected;
    let must = if expected.whole { "is not as expected" } else { "does not hold what is expected" };
    let mut text = format!("     `{}` {must} on line {}:\n", expected.aspect.word(), expected.position.line);
    let (wanted, found) = (lines(&expected.value), lines(&difference.found));
    for change in TextDiff::from_lines(&wanted, &found).iter_all_changes() {
        let line = change.value().trim_end_matches('\n');
        let line = cut(&escape::line(line));
        text.push_str(&match change.tag() {
            ChangeTag::Equal => format!("       {line}\n"),
            ChangeTag::Delete => printer.paint_data(&format!("     - {line}"), "31") + "\n",
            ChangeTag::Insert => printer.paint_data(&format!("     + {line}"), "32") + "\n",
        });
    }
    text
}

/// Characters of a line that are shown.
const WIDTH: usize = 200;

fn cut(line: &str) -> String {
    match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}... ({} characters)", line.get(..end).unwrap_or_default(), line.chars().count()),
        None => line.to_owned(),
    }
}

/// A value on lines of its own: a text as it is, a list or dict one item a line.
fn lines(value: &Json) -> String {
    match value {
        Json::String(text) => format!("{text}\n"),
        other => format!("{other:#}\n"),
    }
}

pub(super) fn as_json(difference: &Difference) -> Json {
    json!({
        "aspect": difference.expected.aspect.word(),
        "whole": difference.expected.whole,
        "expected": difference.expected.value,
        "found": difference.found,
        "line": difference.expected.position.line,
    })
}
