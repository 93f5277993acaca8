//! Which artifacts and cases are run: those whose names fit a pattern.

use harness_dispatch::testing::Subject;

/// The patterns of the cases that are wanted; without any, all cases are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filter<'a>(pub(super) &'a [String]);

impl<'a> Filter<'a> {
    /// All cases.
    pub(crate) const ALL: Self = Self(&[]);

    /// Whether all cases are wanted.
    pub(super) fn is_open(self) -> bool {
        self.0.is_empty()
    }

    /// Whether a case of this name is wanted.
    pub(super) fn takes(self, name: &str) -> bool {
        self.is_open() || self.0.iter().any(|pattern| fits(pattern, name))
    }

    /// The first pattern that fits no case: a misspelled one would let a run pass in which nothing ran.
    pub(super) fn matches_none(self, subjects: &[Subject]) -> Option<&'a str> {
        let names = || subjects.iter().flat_map(Subject::cases).map(|case| &case.name);
        self.0.iter().find(|pattern| !names().any(|name| fits(pattern, name))).map(String::as_str)
    }
}

/// Whether a name fits a pattern: each `*` stands for any text.
pub(super) fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        // The first match leaves the most for those after it.
        match left.split_once(part) {
            Some((_, after)) => left = after,
            None => return false,
        }
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let fitting =
            [("a", "a"), ("*", ""), ("*", "x"), ("read_*", "read_"), ("*_file", "read_file"), ("a*b*b", "abb")];
        let others = [("a", "ab"), ("read_*", "Read_file"), ("a*b*b", "ab"), ("*x", "xy"), ("ab*ba", "aba"), ("", "a")];
        for (pattern, name) in fitting {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in others {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
