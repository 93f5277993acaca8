//! "Did you mean": the known words closest to one that is not known.

/// Longest word that is suggested, in bytes.
const LONGEST: usize = 64;
/// Words that are checked for a suggestion.
const MOST_KNOWN: usize = 1_000;

/// The closest of `known` to `given`, if any is close enough to be a slip of the pen.
pub fn closest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    several(given, known, 1).into_iter().next()
}

/// At most `most` of `known`, the closest first; equally close ones in their own order.
pub fn several<'a>(given: &str, known: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    // The measure takes time with the product of both lengths, and nobody mistypes a word of this length.
    if given.len() > LONGEST {
        return Vec::new();
    }
    let mut found: Vec<(f64, &str)> = known
        .into_iter()
        .take(MOST_KNOWN)
        .filter(|word| word.len() <= LONGEST)
        .map(|word| (likeness(given, word), word))
        .filter(|(likeness, _)| *likeness > 0.7)
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().take(most).map(|(_, word)| word).collect()
}

/// From 0 to 1. 0.7 is where clap draws the line for its own suggestions, which use the same measure. It has little to
/// say of short words; there, one slip (`evn` for `env`) is enough.
fn likeness(given: &str, word: &str) -> f64 {
    COMPARED.with(|compared| compared.set(compared.get() + 1));
    let one_slip = strsim::osa_distance(given, word) <= 1;
    match word.chars().count() {
        // That a longer word has the one letter too says nothing.
        0..3 if !one_slip => 0.0,
        3.. if one_slip => strsim::jaro(given, word).max(0.9),
        _ => strsim::jaro(given, word),
    }
}

/// How many words this thread has compared so far: tests count by it what is done in vain.
pub fn compared() -> u64 {
    COMPARED.get()
}

thread_local! {
    static COMPARED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::{closest, several};

    #[test]
    fn only_what_is_close() {
        assert_eq!(closest("timout_ms", ["parameters", "timeout_ms", "script"]), Some("timeout_ms"));
        assert_eq!(closest("xyz", ["parameters", "timeout_ms", "script"]), None);
        assert_eq!(several("read_fil", ["write_file", "read_file", "read_files"], 2), ["read_file", "read_files"]);
        assert_eq!(closest("evn", ["fs", "exec", "env"]), Some("env"));
        assert_eq!(closest("a", ["b", "fs"]), None);
        assert_eq!((closest("other", ["o"]), closest("fss", ["fs"])), (None, Some("fs")));
        assert_eq!(closest(&"a".repeat(200), ["aaa"]), None);
    }
}
