//! A service's key, which nothing shows.

use std::fmt;

use reqwest::header::HeaderValue;

/// What stands where a key, or a part of one, was.
const HIDDEN: &str = "[key]";

/// As many characters in a row that are also in the key are taken for a part of it.
const PART: usize = 8;

/// A key. It has no form to be printed in, and leaves only as a header.
pub(super) struct Key(String);

impl Key {
    /// A key as a variable holds it; spaces and line breaks around it are not part of it.
    ///
    /// # Errors
    ///
    /// Where no header can hold it, or it is empty.
    pub(super) fn new(value: &str) -> Result<Self, NoKey> {
        let value = value.trim();
        if value.is_empty() {
            return Err(NoKey::Empty);
        }
        if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(NoKey::Characters);
        }
        Ok(Self(value.to_owned()))
    }

    /// The value of a header: something before it, and the key. Marked as what no log shows.
    pub(super) fn header(&self, before: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{before}{}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Text of a service without the key, without parts of it, and without the ends that services leave when they mask
    /// the middle. For short texts: it takes time with both lengths.
    pub(super) fn redact(&self, text: &str) -> String {
        let (key, bytes) = (self.0.as_bytes(), text.as_bytes());
        let part = PART.min(key.len());
        let mut hidden = vec![false; bytes.len()];
        for start in 0..bytes.len() {
            let rest = bytes.get(start..).unwrap_or_default();
            let longest = (0..key.len())
                .map(|at| common_start(rest, key.get(at..).unwrap_or_default()))
                .max()
                .unwrap_or_default();
            if longest >= part {
                hide(&mut hidden, start, longest);
            }
        }
        self.hide_masked(text, &mut hidden);
        let mut shown = String::with_capacity(text.len());
        let mut was = false;
        // The key is ASCII, so that what is hidden are whole characters.
        for (at, c) in text.char_indices() {
            let is = hidden.get(at).copied().unwrap_or(false);
            match (is, was) {
                (true, false) => shown.push_str(HIDDEN),
                (true, true) => {}
                (false, _) => shown.push(c),
            }
            was = is;
        }
        shown
    }

    /// Text of a service without the whole key. For texts of any length.
    pub(super) fn redact_whole(&self, text: String) -> String {
        // A short one may well be a word that is not meant.
        if self.0.len() < PART || !text.contains(&self.0) { text } else { text.replace(&self.0, HIDDEN) }
    }

    /// `sk-ab****wxyz`: what is before a mask and begins the key, and what is after one and ends it.
    fn hide_masked(&self, text: &str, hidden: &mut [bool]) {
        let is_mask = |c: char| matches!(c, '*' | '.' | '…' | '•');
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let mut at = 0;
        while let Some(found) = text.get(at..).and_then(|rest| rest.find(is_mask)) {
            let from = at.saturating_add(found);
            let rest = text.get(from..).unwrap_or_default();
            let length = rest.find(|c| !is_mask(c)).unwrap_or(rest.len());
            let to = from.saturating_add(length);
            at = to.max(from.saturating_add(1));
            let (mask, before) = (text.get(from..to).unwrap_or_default(), text.get(..from).unwrap_or_default());
            // A full stop is no mask.
            if mask == "." || mask == ".." {
                continue;
            }
            let begins = before.get(before.rfind(|c| !is_word(c)).map_or(0, |end| next(before, end))..);
            if let Some(word) = begins.filter(|word| word.len() > 1 && self.0.starts_with(*word)) {
                hide(hidden, from.saturating_sub(word.len()), word.len());
            }
            let after = text.get(to..).unwrap_or_default();
            let ends = after.get(..after.find(|c| !is_word(c)).unwrap_or(after.len()));
            if let Some(word) = ends.filter(|word| word.len() > 1 && self.0.ends_with(*word)) {
                hide(hidden, to, word.len());
            }
        }
    }
}

/// Where the character after the one that begins at `at` begins.
fn next(text: &str, at: usize) -> usize {
    at.saturating_add(text.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8))
}

fn common_start(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

fn hide(hidden: &mut [bool], from: usize, length: usize) {
    for place in hidden.iter_mut().skip(from).take(length) {
        *place = true;
    }
}

/// Text of a service as it comes, without the whole key: what may be the start of it waits for what follows.
pub(super) struct Shown<'a> {
    key: Option<&'a Key>,
    held: String,
}

impl<'a> Shown<'a> {
    pub(super) fn new(key: Option<&'a Key>) -> Self {
        // As for `redact_whole`.
        Self { key: key.filter(|key| key.0.len() >= PART), held: String::new() }
    }

    /// Takes more text. Gives back what can be shown.
    pub(super) fn more(&mut self, text: &str) -> String {
        let Some(key) = self.key else { return text.to_owned() };
        self.held.push_str(text);
        let mut shown = key.redact_whole(std::mem::take(&mut self.held));
        let starts = (1..key.0.len()).rev().filter_map(|length| key.0.get(..length));
        let start = starts.map(|start| if shown.ends_with(start) { start.len() } else { 0 }).max().unwrap_or(0);
        self.held = shown.split_off(shown.len().saturating_sub(start));
        shown
    }

    /// What was held back. Nothing follows.
    pub(super) fn rest(self) -> String {
        self.held
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoKey {
    /// There is nothing in it.
    #[error("is empty")]
    Empty,
    /// It cannot be sent.
    #[error("holds characters that no key has")]
    Characters,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "sk-proj-Zq3v8LmT0xYw5RkB";

    fn key() -> Key {
        Key::new(SECRET).unwrap()
    }

    #[test]
    fn nothing_shows_a_key() {
        assert_eq!(format!("{:?}", key()), "[key]");
        let header = key().header("Bearer ").unwrap();
        assert_eq!(format!("{header:?}"), "Sensitive");
        assert_eq!(header.as_bytes(), format!("Bearer {SECRET}").as_bytes());
    }

    #[test]
    fn spaces_around_a_key_are_not_part_of_it() {
        let header = Key::new(&format!(" {SECRET}\n")).unwrap().header("").unwrap();
        assert_eq!(header.as_bytes(), SECRET.as_bytes());
        assert_eq!(Key::new(" \n").unwrap_err(), NoKey::Empty);
        assert_eq!(Key::new("a\nb").unwrap_err(), NoKey::Characters);
        assert_eq!(Key::new("schlüssel").unwrap_err(), NoKey::Characters);
    }

    #[test]
    fn what_a_service_says_of_a_key_is_hidden() {
        let shown = |text: &str| key().redact(text);
        assert_eq!(shown(&format!("wrong key {SECRET}, sorry")), "wrong key [key], sorry");
        assert_eq!(shown(&format!("{SECRET}{SECRET}")), "[key]");
        assert_eq!(shown("it began with sk-proj-Zq3v8 and é"), "it began with [key] and é");
        assert_eq!(shown("wrong key: sk-proj-********5RkB."), "wrong key: [key]********[key].");
        assert_eq!(shown("wrong key: “sk-…RkB”"), "wrong key: “[key]…[key]”");
        assert_eq!(shown("a project. sk is not enough... and so on"), "a project. sk is not enough... and so on");
        assert_eq!(Key::new("abc").unwrap().redact("the abc of it"), "the [key] of it");
    }

    proptest! {
        /// In whatever pieces it comes, text is shown as it would be in one.
        #[test]
        fn a_key_in_pieces_is_not_shown(
            parts in proptest::collection::vec(prop_oneof![Just(SECRET.to_owned()), Just("sk-pro".to_owned()), "[sk-é]{0,4}"], 0..6),
            size in 1_usize..30,
        ) {
            let text = parts.concat();
            let (key, characters) = (key(), text.chars().collect::<Vec<_>>());
            let mut shown = Shown::new(Some(&key));
            let mut all: String = characters.chunks(size).map(|piece| shown.more(&piece.iter().collect::<String>())).collect();
            prop_assert!(!all.contains(SECRET));
            all.push_str(&shown.rest());
            prop_assert_eq!(all, key.redact_whole(text));
        }

        #[test]
        fn no_part_of_a_key_is_left(before in ".{0,20}", from in 0_usize..17, length in 8_usize..24, after in ".{0,20}") {
            let part: String = SECRET.chars().skip(from).take(length).collect();
            let shown = key().redact(&format!("{before}{part}{after}"));
            prop_assert!(!shown.contains(&part), "{}", shown);
        }
    }
}
