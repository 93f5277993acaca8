//! Names and characters of unknown origin, as messages show them.

/// Whether a terminal would act on a character, or show nothing for it: control characters, those that change the
/// direction of text, and those without width.
///
/// The variation selectors U+FE00 to U+FE0F are left alone: they only choose between two pictures of the character
/// before them.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' // soft hyphen
            | '\u{34f}' // combining grapheme joiner
            | '\u{61c}' // Arabic letter mark
            | '\u{115f}'..='\u{1160}' | '\u{3164}' | '\u{ffa0}' // Hangul fillers
            | '\u{17b4}'..='\u{17b5}' // Khmer inherent vowels
            | '\u{180b}'..='\u{180f}' // Mongolian selectors and vowel separator
            | '\u{200b}'..='\u{200f}' // zero width, left-to-right and right-to-left marks
            | '\u{2028}'..='\u{202e}' // separators, embeddings and overrides
            | '\u{2060}'..='\u{206f}' // invisible operators, isolates, deprecated formats
            | '\u{feff}' // byte order mark
            | '\u{fff0}'..='\u{fffb}' // interlinear annotation
            | '\u{fdd0}'..='\u{fdef}' | '\u{fffe}'..='\u{ffff}' // no characters, which XML forbids
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' // shorthand and musical formats
            | '\u{e0000}'..='\u{e0fff}' // tags and further variation selectors
        )
}

/// A name as a message shows it: in backticks, at most 60 characters of it.
pub fn quoted(name: &str) -> String {
    match name.char_indices().nth(60) {
        Some((end, _)) => format!("`{}...`", name.get(..end).unwrap_or_default()),
        None => format!("`{name}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn long_names_are_cut_on_a_character() {
        assert_eq!(quoted("x"), "`x`");
        assert_eq!(quoted(&"é".repeat(70)), format!("`{}...`", "é".repeat(60)));
    }
}
