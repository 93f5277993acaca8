//! One more entry in a list of a policy. Everything else stays as it is, and what cannot be changed so is left alone.

use std::ops::Range;

use harness_artifact::diagnostic::Position;
use harness_artifact::yaml::{self, Key, LineColumn, Node, Value};

use crate::{cursor, document};

/// The bytes to replace and by what, so that the list at these keys has one more value, which is written as YAML.
pub(super) fn add(text: &str, is_yaml: bool, keys: &[&str], value: &str) -> Option<(Range<usize>, String)> {
    let range = cursor::yaml(text, is_yaml)?;
    let (root, wrong) = yaml::parse(text.get(range.clone())?, line_of(text, range.start));
    if !wrong.is_empty() || value.contains('\n') {
        return None;
    }
    let (mut depth, mut holder, mut at) = (0_usize, None, root.as_ref());
    for key in keys {
        let Some(Node { value: Value::Map(entries), .. }) = at else { break };
        let Some((found, node)) = entries.iter().find(|(one, _)| one.text == *key) else { break };
        (depth, holder, at) = (depth.saturating_add(1), Some(found), Some(node));
    }
    let rest = keys.get(depth..)?;
    let (at, new) = match (holder, at) {
        (Some(_), Some(list)) if rest.is_empty() => in_list(text, list, value)?,
        (Some(key), Some(map)) => in_map(text, key, map, &entry(rest, value))?,
        _ => (range.end, format!("{}\n", entry(keys, value))),
    };
    let mut changed = text.to_owned();
    changed.insert_str(at, &new);
    let whole = cursor::yaml(&changed, is_yaml).and_then(|range| changed.get(range));
    yaml::parse(whole?, 1).1.is_empty().then_some((at..at, new))
}

/// `a: { b: [value] }`.
fn entry(keys: &[&str], value: &str) -> String {
    match keys {
        [] => format!("[{value}]"),
        [key] => format!("{key}: [{value}]"),
        [key, rest @ ..] => format!("{key}: {{ {} }}", entry(rest, value)),
    }
}

fn in_list(text: &str, list: &Node, value: &str) -> Option<(usize, String)> {
    let Value::Seq(items) = &list.value else { return None };
    let (start, end) = (byte(text, list.span.start), byte(text, list.span.end));
    if text.get(start..)?.starts_with('[') {
        let close = text.get(start..end)?.rfind(']')?.saturating_add(start);
        return Some((close, if items.is_empty() { value.to_owned() } else { format!(", {value}") }));
    }
    let last = items
        .last()
        .filter(|last| matches!(last.value, Value::Str(_)) && last.span.start.line == last.span.end.line)?;
    let (begins, line) = document::line(text, last.span.start.line.saturating_sub(1));
    let dash = line.find('-').filter(|dash| line.get(..*dash).is_some_and(|before| before.trim().is_empty()))?;
    let after = begins.saturating_add(line.len());
    Some((after, format!("\n{}- {value}", line.get(..dash)?)))
}

fn in_map(text: &str, key: &Key, map: &Node, entry: &str) -> Option<(usize, String)> {
    let Value::Map(entries) = &map.value else { return None };
    let start = byte(text, map.span.start);
    if text.get(start..)?.starts_with('{') {
        let gap = if entries.is_empty() { " " } else { "," };
        return Some((start.saturating_add(1), format!(" {entry}{gap}")));
    }
    let column = entries.first()?.0.span.start.column;
    let (begins, line) = document::line(text, key.span.start.line.saturating_sub(1));
    let indent = " ".repeat(usize::try_from(column).ok()?.saturating_sub(1));
    Some((begins.saturating_add(line.len()), format!("\n{indent}{entry}")))
}

fn byte(text: &str, at: LineColumn) -> usize {
    document::bytes_of(text, &Position { file: "".into(), line: at.line, column: at.column, length: 0 }).start
}

/// The number from 1 of the line that a byte begins.
fn line_of(text: &str, byte: usize) -> u32 {
    document::position(text, byte).line.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_entry() {
        for (yaml, expect) in [
            ("", "sandbox: { fs: { read: [docs] } }\n"),
            ("sandbox:\n  fs:\n    read: [a]\n", "sandbox:\n  fs:\n    read: [a, docs]\n"),
            ("sandbox:\n  fs:\n    read: []\n", "sandbox:\n  fs:\n    read: [docs]\n"),
            (
                "sandbox:\n  fs:\n    read:\n    - a\n    - b # why\n",
                "sandbox:\n  fs:\n    read:\n    - a\n    - b # why\n    - docs\n",
            ),
            ("sandbox:\n  fs:\n    write: [a]\n", "sandbox:\n  fs:\n    read: [docs]\n    write: [a]\n"),
            ("sandbox: { env: [A] }\n", "sandbox: { fs: { read: [docs] }, env: [A] }\n"),
            ("sandbox: {}\n", "sandbox: { fs: { read: [docs] } }\n"),
        ] {
            let text = format!("---\n{yaml}---\nprose\n");
            let (range, new) = add(&text, false, &["sandbox", "fs", "read"], "docs").unwrap();
            let mut changed = text.clone();
            changed.replace_range(range, &new);
            assert_eq!(changed, format!("---\n{expect}---\nprose\n"));
        }
        for yaml in
            ["sandbox: [", "sandbox:\n", "sandbox:\n  fs:\n    read: a\n", "sandbox:\n  fs:\n    read:\n    - {}\n"]
        {
            let text = format!("---\n{yaml}---\n");
            assert_eq!(add(&text, false, &["sandbox", "fs", "read"], "docs"), None, "{yaml}");
        }
        assert_eq!(add("sandbox: {}", true, &["sandbox", "env"], "A"), Some((10..10, " env: [A] ".to_owned())));
    }
}
