//! A result as a model gets it: text, and not too much of it.

use serde_json::Value as Json;

/// What a tool returned.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// The value that `run` returned, as its hooks left it, whole.
    pub result: Json,
    /// What a model gets: a string as it is, anything else as JSON, cut to `limits.output_bytes`.
    pub content: String,
    /// Whether `content` was cut.
    pub truncated: bool,
}

/// Text of at most `cap` bytes. Where some had to go, it ends with a notice that is itself within the cap.
pub fn cut(mut text: String, cap: u64) -> (String, bool) {
    let cap = usize::try_from(cap).unwrap_or(usize::MAX);
    if text.len() <= cap {
        return (text, false);
    }
    let notice = format!("\n[output truncated at {cap} bytes]");
    text.truncate(text.floor_char_boundary(cap.saturating_sub(notice.len())));
    text.push_str(&notice);
    text.truncate(text.floor_char_boundary(cap));
    (text, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notice_is_within_the_cap() {
        let notice = "\n[output truncated at 40 bytes]";
        assert_eq!(cut("x".repeat(40), 40), ("x".repeat(40), false));
        assert_eq!(cut("x".repeat(41), 40), (format!("{}{notice}", "x".repeat(9)), true));
        // Never half a character: only four of the two-byte ones fit beside one byte.
        assert_eq!(cut(format!("x{}", "ü".repeat(50)), 40), (format!("x{}{notice}", "ü".repeat(4)), true));
        assert!(cut("x".repeat(41), 8).0.len() <= 8);
    }
}
