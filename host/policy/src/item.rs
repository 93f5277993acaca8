//! Texts as items of a YAML list: how hints and learned policies write rules.
//!
//! What is printed is meant to be pasted. So a text reads back as itself in a block list and in a flow list, and nothing
//! in it can end the backticks of a message or hide on a terminal.

use crate::text::is_hidden;

/// A text as a YAML scalar; in quotes unless it is plainly a text.
pub fn scalar(text: &str) -> String {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-'));
    if plain && begins_plainly(text) { text.to_owned() } else { quoted(text) }
}

/// The same for a message, where a text with spaces and wildcards is easier to read without quotes.
pub fn in_message(text: &str) -> String {
    let plain = |c: char| {
        c.is_ascii_alphanumeric()
            || matches!(
                c,
                '_' | '.'
                    | '/'
                    | '-'
                    | ' '
                    | '"'
                    | '\''
                    | '*'
                    | '?'
                    | '='
                    | '+'
                    | '@'
                    | '$'
                    | '('
                    | ')'
                    | ';'
                    | '<'
                    | '>'
                    | '|'
            )
            || (!c.is_ascii() && c.is_alphanumeric() && !is_hidden(c))
    };
    // A dash alone before the `,` or `]` of a list is an error to who reads YAML here.
    let ends_plainly = !text.ends_with(' ') && !text.ends_with(" -");
    if text.chars().all(plain) && begins_plainly(text) && ends_plainly { text.to_owned() } else { quoted(text) }
}

/// Whether YAML takes an unquoted scalar that begins so for a text.
fn begins_plainly(text: &str) -> bool {
    let word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    text.starts_with(|c: char| c.is_alphabetic() || c == '_') && !word.contains(&text.to_ascii_lowercase().as_str())
}

/// What JSON writes is what YAML reads. A character that nobody sees is written as its number, and so is a backtick.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for c in serde_json::Value::from(text).to_string().chars() {
        match c {
            c if c == '`' || is_hidden(c) => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted
}
