//! Finds all forms of all values in a text, in one pass over it.

use std::fmt;
use std::ops::Range;

use aho_corasick::{AhoCorasick, BuildError, MatchKind};
use serde_json::{Map, Value as Json};

use super::forms::{self, Form};

/// Bytes of a name in a note.
const MAX_NAME: usize = 32;

/// Looks for values. It never says where in a value something is, nor that a part of one was found: else a script could
/// find a value out piece by piece.
pub(super) struct Scanner {
    automaton: AhoCorasick,
    /// Of each pattern, the form that it is of, and the name of its secret.
    patterns: Vec<(Form, String)>,
    /// Bytes of the longest pattern.
    longest: usize,
}

/// Without the patterns.
impl fmt::Debug for Scanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scanner").field("patterns", &self.patterns.len()).finish_non_exhaustive()
    }
}

impl Scanner {
    /// For these names and values. None where there are no values.
    pub(super) fn new<'a>(values: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Option<Self>, BuildError> {
        let forms = values.flat_map(|(name, value)| forms::all(value).into_iter().map(move |form| (form, name)));
        let patterns: Vec<(Form, String)> = forms.map(|(form, name)| (form, name.to_owned())).collect();
        if patterns.is_empty() {
            return Ok(None);
        }
        // With a character of a part at its end.
        let longest = patterns.iter().map(|(form, _)| form.text.len()).max().unwrap_or_default().saturating_add(1);
        // All matches, those that overlap too: of two values that share an end, none must be left in half.
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(patterns.iter().map(|(form, _)| &form.text))?;
        Ok(Some(Self { automaton, patterns, longest }))
    }

    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The secret that is first found in a text.
    pub(super) fn find(&self, text: &str) -> Option<&str> {
        let found = self.automaton.find(text)?;
        self.patterns.get(found.pattern().as_usize()).map(|(_, name)| name.as_str())
    }

    /// Where the end of a text may be the beginning of a value: what follows decides.
    pub(super) fn begins(&self, text: &str) -> usize {
        let from = text.floor_char_boundary(text.len().saturating_sub(self.longest));
        let begins = |end: &str| self.patterns.iter().any(|(form, _)| form.text.starts_with(end));
        (from..text.len()).find(|at| text.get(*at..).is_some_and(begins)).unwrap_or(text.len())
    }

    /// Puts a note instead of each value that begins in the first `cap` bytes, and leaves out what is after them.
    pub(super) fn redact_within(&self, text: &mut String, cap: usize) {
        let cap = text.floor_char_boundary(cap);
        if !self.automaton.is_match(&*text) {
            return text.truncate(cap);
        }
        let mut redacted = String::new();
        let mut from = 0;
        for (range, name) in self.ranges(text).iter().filter(|(range, _)| range.start < cap) {
            redacted.push_str(text.get(from..range.start).unwrap_or_default());
            redacted.push_str(&note(name));
            from = range.end;
        }
        redacted.push_str(text.get(from..cap).unwrap_or_default());
        *text = redacted;
    }

    /// Where values are: those that overlap as one, by the name of the first.
    fn ranges(&self, text: &str) -> Vec<(Range<usize>, &str)> {
        let range = |form: &Form, found: Range<usize>| {
            let start = found.start.saturating_sub(form.before);
            let end = found.end.saturating_add(form.after).min(text.len());
            // What is beside it may be no base64 at all, and of several bytes.
            text.floor_char_boundary(start)..text.ceil_char_boundary(end)
        };
        let mut found: Vec<(Range<usize>, &str)> = self
            .automaton
            .find_overlapping_iter(text)
            .filter_map(|one| {
                let (form, name) = self.patterns.get(one.pattern().as_usize())?;
                Some((range(form, one.range()), name.as_str()))
            })
            .collect();
        found.sort_by_key(|(range, _)| range.start);
        let mut merged: Vec<(Range<usize>, &str)> = Vec::new();
        for (range, name) in found {
            match merged.last_mut().filter(|(last, _)| range.start < last.end) {
                Some((last, _)) => last.end = last.end.max(range.end),
                None => merged.push((range, name)),
            }
        }
        merged
    }

    /// The same for every text, key and number of a JSON value.
    pub(super) fn redact_json(&self, value: &mut Json) {
        match value {
            Json::String(text) => self.redact_within(text, usize::MAX),
            Json::Number(number) => {
                let mut text = number.to_string();
                if self.automaton.is_match(&text) {
                    self.redact_within(&mut text, usize::MAX);
                    *value = Json::String(text);
                }
            }
            Json::Array(items) => items.iter_mut().for_each(|item| self.redact_json(item)),
            Json::Object(fields) => {
                fields.values_mut().for_each(|field| self.redact_json(field));
                if fields.keys().any(|key| self.automaton.is_match(key)) {
                    let all = std::mem::take(fields).into_iter().map(|(mut key, field)| {
                        self.redact_within(&mut key, usize::MAX);
                        (key, field)
                    });
                    *fields = all.collect::<Map<_, _>>();
                }
            }
            Json::Null | Json::Bool(_) => {}
        }
    }
}

/// What stands instead of a value. Of the name, which is ASCII, no more than a text may grow by.
pub(super) fn note(name: &str) -> String {
    format!("[redacted:{}]", name.get(..MAX_NAME).unwrap_or(name))
}
