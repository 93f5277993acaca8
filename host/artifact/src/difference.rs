//! What differs between two texts, line by line.

use similar::{ChangeTag, TextDiff};

/// Characters of a line that are reported.
const MAX_WIDTH: usize = 160;

/// The lines that differ under a title, `-` for what was there and `+` for what is, with a line around them.
pub fn compared(title: &str, old: &str, new: &str) -> Vec<String> {
    let mut lines = vec![format!("{title}:")];
    let diff = TextDiff::from_lines(old, new);
    for change in diff.grouped_ops(1).iter().flatten().flat_map(|op| diff.iter_changes(op)) {
        let sign = match change.tag() {
            ChangeTag::Equal => ' ',
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        let line = change.value().trim_end_matches('\n');
        let shown: String = line.chars().take(MAX_WIDTH).collect();
        let rest = if shown.len() < line.len() { "..." } else { "" };
        lines.push(format!("{sign} {shown}{rest}"));
    }
    lines
}

/// So many lines at most; what is left out is counted.
pub fn cut(mut lines: Vec<String>, most: usize) -> Vec<String> {
    let more = lines.len().saturating_sub(most);
    lines.truncate(most);
    if more > 0 {
        lines.push(format!("... and {more} more lines"));
    }
    lines
}
