//! How a value may look after a server, a program or a script's library wrote it down.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// A form of a value, and how many characters at its sides may hold a part of the value too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    pub(super) text: String,
    pub(super) before: usize,
    pub(super) after: usize,
}

/// What writers of JSON escape by number beside control characters: nothing; what has a meaning in HTML; in its attributes
/// too; and what else .NET takes no chances with.
const IN_JSON: [&str; 5] = ["", "<>&\u{2028}\u{2029}", "<>&'=\u{2028}\u{2029}", "<>&'\"", "<>&'\"+`"];

/// What is not percent-encoded beside letters, digits and `-._`: as the standard for URLs wants it, as JavaScript does it
/// with a part and with a whole URL, as Python does it, as forms do it, and as PHP does it.
const IN_URLS: [&str; 6] = ["~", "~!'()*", "~!'()*;/?:@&=+$,#", "~/", "*", ""];

/// How quotes look in HTML and XML.
const QUOTES: [(&str, &str); 6] =
    [("\"", "'"), ("&quot;", "'"), ("&quot;", "&#39;"), ("&quot;", "&#x27;"), ("&quot;", "&apos;"), ("&#34;", "&#39;")];

/// All forms of a value that are looked for, each once: as it is, in JSON, percent-encoded, in HTML, in hexadecimal, and
/// in base64 with anything before and after it.
pub(super) fn all(value: &str) -> Vec<Form> {
    let bytes = value.as_bytes();
    let mut texts = vec![value.to_owned(), hex(bytes), hex(bytes).to_uppercase()];
    for (ascii, upper) in [(false, false), (false, true), (true, false), (true, true)] {
        texts.extend(IN_JSON.map(|also| json(value, also, ascii, upper)));
        // As many write it: `/` too.
        texts.push(json(value, "", ascii, upper).replace('/', "\\/"));
    }
    for also in IN_URLS {
        for form in [true, false] {
            texts.extend([true, false].map(|upper| percent(bytes, also, form, upper)));
        }
    }
    texts.extend(QUOTES.map(|(double, single)| entities(value, double, single)));
    let mut forms: Vec<Form> = texts.into_iter().map(|text| Form { text, before: 0, after: 0 }).collect();
    for alphabet in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        forms.extend((0..3).map(|before| base64_within(bytes, before, &alphabet)));
    }
    forms.sort_unstable();
    forms.dedup_by(|a, b| a.text == b.text);
    forms
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// In JSON, with these characters escaped by number, and where it is to be ASCII, all that are not.
fn json(value: &str, also: &str, ascii: bool, upper: bool) -> String {
    value.chars().fold(String::new(), |mut text, one| {
        let letter = match one {
            '"' | '\\' => Some(one),
            '\u{8}' => Some('b'),
            '\t' => Some('t'),
            '\n' => Some('n'),
            '\u{c}' => Some('f'),
            '\r' => Some('r'),
            _ => None,
        };
        if one < ' ' && letter.is_none() || also.contains(one) || (ascii && one > '~') {
            for unit in one.encode_utf16(&mut [0; 2]) {
                let _ = if upper { write!(text, "\\u{unit:04X}") } else { write!(text, "\\u{unit:04x}") };
            }
        } else {
            text.extend(letter.map(|_| '\\'));
            text.push(letter.unwrap_or(one));
        }
        text
    })
}

/// In HTML or XML, with escaped quotes.
fn entities(value: &str, double: &str, single: &str) -> String {
    let value = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    value.replace('"', double).replace('\'', single)
}

/// Percent-encoded but for letters, digits, `-._` and what is named; in a form, a space is `+`.
fn percent(bytes: &[u8], also: &str, form: bool, upper: bool) -> String {
    bytes.iter().fold(String::new(), |mut text, &byte| {
        let _ = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => write!(text, "{}", char::from(byte)),
            _ if also.contains(char::from(byte)) => write!(text, "{}", char::from(byte)),
            b' ' if form => write!(text, "+"),
            _ if upper => write!(text, "%{byte:02X}"),
            _ => write!(text, "%{byte:02x}"),
        };
        text
    })
}

/// The characters of base64 that these bytes alone decide, where `before` bytes (modulo three) are in front of them. Of
/// the characters beside those, what is in front and behind decides a part.
fn base64_within(bytes: &[u8], before: usize, alphabet: &GeneralPurpose) -> Form {
    let mut whole = vec![0; before];
    whole.extend_from_slice(bytes);
    let (bits_before, bits) = (before * 8, whole.len().saturating_mul(8));
    let text = alphabet.encode(whole).get(bits_before.div_ceil(6)..bits / 6).unwrap_or_default().to_owned();
    Form { text, before: usize::from(bits_before % 6 != 0), after: usize::from(bits % 6 != 0) }
}

/// Base64 with padding, as `Authorization: Basic` wants it.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(value: &str) -> Vec<String> {
        all(value).into_iter().map(|form| form.text).collect()
    }

    #[test]
    fn of_a_value() {
        insta::assert_debug_snapshot!(texts("s/e \"c\u{e9}?>"), @r#"
        [
            "732F65202263C3A93F3E",
            "732f65202263c3a93f3e",
            "MvZSAiY8OpPz",
            "cy9lICJjw6k/P",
            "cy9lICJjw6k_P",
            "s%2Fe%20%22c%C3%A9%3F%3E",
            "s%2Fe+%22c%C3%A9%3F%3E",
            "s%2fe%20%22c%c3%a9%3f%3e",
            "s%2fe+%22c%c3%a9%3f%3e",
            "s/e \"cé?&gt;",
            "s/e \"cé?>",
            "s/e &#34;cé?&gt;",
            "s/e &quot;cé?&gt;",
            "s/e \\\"c\\u00E9?>",
            "s/e \\\"c\\u00E9?\\u003E",
            "s/e \\\"c\\u00e9?>",
            "s/e \\\"c\\u00e9?\\u003e",
            "s/e \\\"cé?>",
            "s/e \\\"cé?\\u003E",
            "s/e \\\"cé?\\u003e",
            "s/e \\u0022c\\u00E9?\\u003E",
            "s/e \\u0022c\\u00e9?\\u003e",
            "s/e \\u0022cé?\\u003E",
            "s/e \\u0022cé?\\u003e",
            "s/e%20%22c%C3%A9%3F%3E",
            "s/e%20%22c%C3%A9?%3E",
            "s/e%20%22c%c3%a9%3f%3e",
            "s/e%20%22c%c3%a9?%3e",
            "s/e+%22c%C3%A9%3F%3E",
            "s/e+%22c%C3%A9?%3E",
            "s/e+%22c%c3%a9%3f%3e",
            "s/e+%22c%c3%a9?%3e",
            "s\\/e \\\"c\\u00E9?>",
            "s\\/e \\\"c\\u00e9?>",
            "s\\/e \\\"cé?>",
            "zL2UgImPDqT8+",
            "zL2UgImPDqT8-",
        ]
        "#);
        // Where nothing is special, most forms are one.
        insta::assert_debug_snapshot!(texts("plain_01"), @r#"
        [
            "706C61696E5F3031",
            "706c61696e5f3031",
            "BsYWluXzAx",
            "cGxhaW5fMD",
            "plain_01",
            "wbGFpbl8wM",
        ]
        "#);
    }

    proptest! {
        /// Whatever is around it: the form is in the base64 of the whole.
        #[test]
        fn base64_is_found_in_that_of_a_longer_text(value in ".{8,40}", before in ".{0,7}", after in ".{0,7}") {
            let whole = base64(format!("{before}{value}{after}").as_bytes());
            let for_urls = whole.replace('+', "-").replace('/', "_");
            let forms = all(&value);
            prop_assert!(forms.iter().any(|form| whole.contains(form.text.as_str())));
            prop_assert!(forms.iter().any(|form| for_urls.contains(form.text.as_str())));
        }
    }
}
