//! A result as a model gets it: text, and not too much of it.

use serde_json::Value as Json;

/// What a tool gave back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// The value that `run` returned, whole.
    pub result: Json,
    /// What a model gets: a string as it is, anything else as JSON, cut to `limits.output_bytes`.
    pub content: String,
    /// Whether `content` was cut.
    pub truncated: bool,
}

/// The output for a result in JSON.
pub(crate) fn output(json: &str, cap: u64) -> serde_json::Result<ToolOutput> {
    let result: Json = serde_json::from_str(json)?;
    let whole = match &result {
        Json::String(text) => text.clone(),
        _ => json.to_owned(),
    };
    let (content, truncated) = cut(whole, cap);
    Ok(ToolOutput { result, content, truncated })
}

/// Text of at most `cap` bytes. Where some had to go, it ends with a notice that is itself within the cap.
pub(crate) fn cut(mut text: String, cap: u64) -> (String, bool) {
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
    fn a_string_is_the_content_and_anything_else_is_json() {
        let text = output(r#""a\nb""#, 100).unwrap();
        assert_eq!(text, ToolOutput { result: Json::from("a\nb"), content: "a\nb".to_owned(), truncated: false });
        let object = output(r#"{"a":[1,2.5,null,12345678901234567890123]}"#, 100).unwrap();
        assert_eq!(object.content, r#"{"a":[1,2.5,null,12345678901234567890123]}"#);
        assert!(output("", 100).is_err());
    }

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
