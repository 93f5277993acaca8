//! Edits on the text of a file, as pure functions. Lines count from 1.

use anyhow::{bail, ensure};
use similar::TextDiff;

/// Lines of context in a diff.
const CONTEXT: usize = 3;

/// The last part of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

pub(super) fn unified_diff(old: &str, new: &str, old_name: &str, new_name: &str) -> String {
    TextDiff::from_lines(old, new).unified_diff().context_radius(CONTEXT).header(old_name, new_name).to_string()
}

/// Replaces the one place where `old` stands.
pub(super) fn replace_one(content: &str, old: &str, new: &str, path: &str) -> anyhow::Result<String> {
    ensure!(!old.is_empty(), "the old string cannot be empty");
    match content.matches(old).count() {
        0 => bail!("old string not found in {path}"),
        1 => Ok(content.replacen(old, new, 1)),
        count => bail!("old string found {count} times in {path} (must be unique)"),
    }
}

/// Replaces all places, and says how many there were.
pub(super) fn replace_all(content: &str, old: &str, new: &str, path: &str) -> anyhow::Result<(String, usize)> {
    ensure!(!old.is_empty(), "the old string cannot be empty");
    match content.matches(old).count() {
        0 => bail!("old string not found in {path}"),
        count => Ok((content.replace(old, new), count)),
    }
}

/// `N. line`, from `start` to `end`; all that follow where `end` is not above 0, none where `start` is past the end.
pub(super) fn numbered_lines(content: &str, start: i64, end: i64) -> String {
    let last = if end > 0 { end } else { i64::MAX };
    let chosen = content.lines().zip(1_i64..).filter(|(_, number)| (start..=last).contains(number));
    chosen.map(|(line, number)| format!("{number}. {line}\n")).collect()
}

/// Inserts before a line, or at the end where there are fewer; says how many lines went in.
pub(super) fn insert_at(content: &str, line: i64, inserted: &str) -> anyhow::Result<(String, usize)> {
    ensure!(line >= 1, "line must be >= 1, got {line}");
    let inserted = whole_lines(inserted);
    let mut result = String::with_capacity(content.len() + inserted.len() + 1);
    let mut done = false;
    for (old, number) in content.split_inclusive('\n').zip(1_i64..) {
        if number == line {
            result.push_str(&inserted);
            done = true;
        }
        result.push_str(old);
    }
    if !done {
        if !result.is_empty() && !result.ends_with('\n') {
            result.push('\n');
        }
        result.push_str(&inserted);
    }
    Ok((result, inserted.lines().count()))
}

/// Puts other text in the place of the lines from `start` to `end`; nothing where it is empty.
pub(super) fn replace_lines(content: &str, start: i64, end: i64, replacement: &str) -> anyhow::Result<String> {
    ensure!(start >= 1, "start must be >= 1, got {start}");
    ensure!(start <= end, "start ({start}) > end ({end})");
    let replacement = whole_lines(replacement);
    let mut result = String::with_capacity(content.len() + replacement.len());
    let mut done = false;
    for (old, number) in content.split_inclusive('\n').zip(1_i64..) {
        if (start..=end).contains(&number) {
            if !done {
                result.push_str(&replacement);
                done = true;
            }
        } else {
            result.push_str(old);
        }
    }
    ensure!(done, "start ({start}) is past the last line");
    Ok(result)
}

/// Ends in a line break, unless it is empty.
fn whole_lines(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_only_what_is_unique() {
        assert_eq!(replace_one("a b", "a", "x", "f").unwrap(), "x b");
        assert_eq!(
            replace_one("a a", "a", "x", "f").unwrap_err().to_string(),
            "old string found 2 times in f (must be unique)"
        );
        assert_eq!(replace_one("b", "a", "x", "f").unwrap_err().to_string(), "old string not found in f");
        assert_eq!(replace_all("a a", "a", "x", "f").unwrap(), ("x x".to_owned(), 2));
        assert_eq!(replace_all("b", "a", "x", "f").unwrap_err().to_string(), "old string not found in f");
        assert_eq!(replace_all("b", "", "x", "f").unwrap_err().to_string(), "the old string cannot be empty");
    }

    #[test]
    fn numbers_lines() {
        assert_eq!(numbered_lines("a\nb\nc\n", 2, 0), "2. b\n3. c\n");
        assert_eq!(numbered_lines("a\nb\nc\n", 1, 2), "1. a\n2. b\n");
        assert_eq!(numbered_lines("a\nb\nc\n", 9, 0), "");
    }

    #[test]
    fn inserts_and_replaces_lines() {
        assert_eq!(insert_at("a\nb\n", 2, "x\ny").unwrap(), ("a\nx\ny\nb\n".to_owned(), 2));
        assert_eq!(insert_at("a\nb", 9, "x").unwrap(), ("a\nb\nx\n".to_owned(), 1));
        assert_eq!(insert_at("", 1, "x").unwrap(), ("x\n".to_owned(), 1));
        assert_eq!(replace_lines("a\nb\nc\n", 2, 3, "x").unwrap(), "a\nx\n");
        assert_eq!(replace_lines("a\nb\nc\n", 2, 2, "").unwrap(), "a\nc\n");
        assert_eq!(replace_lines("a\n", 3, 2, "").unwrap_err().to_string(), "start (3) > end (2)");
        assert_eq!(replace_lines("a\n", 3, 4, "").unwrap_err().to_string(), "start (3) is past the last line");
    }

    #[test]
    fn diffs() {
        assert_eq!(unified_diff("a\nb\n", "a\nc\n", "old", "new"), "--- old\n+++ new\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
    }
}
