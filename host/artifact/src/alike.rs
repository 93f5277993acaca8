//! Names that look like others: what a person, or a model, cannot distinguish must not be two things.

use unicode_security::confusable_detection::skeleton;
use unicode_security::mixed_script::AugmentedScriptSet;

/// What a name looks like: equal for names that cannot be distinguished by eye. Those of Unicode's table of
/// confusables.
pub fn looks(name: &str) -> String {
    skeleton(name).collect()
}

/// Whether two names are not the same, and look it.
pub fn is_alike(one: &str, other: &str) -> bool {
    one != other && looks(one) == looks(other)
}

/// The first character of a name that shows nothing, or makes others show otherwise.
pub fn invisible(name: &str) -> Option<char> {
    name.chars().find(|c| harness_policy::text::is_hidden(*c) || matches!(c, '\u{fe00}'..='\u{fe0f}'))
}

/// The scripts of a name that no language mixes, such as Latin and Cyrillic. Latin letters stand beside Chinese, Japanese
/// and Korean ones: what Unicode calls highly restrictive.
pub fn mixed_scripts(name: &str) -> Option<Vec<&'static str>> {
    let is_mixed = |set: &AugmentedScriptSet| set.is_empty();
    if !is_mixed(&AugmentedScriptSet::for_str(name)) {
        return None;
    }
    let rest: String = name.chars().filter(|c| !is_latin(*c)).collect();
    let rest = AugmentedScriptSet::for_str(&rest);
    if rest.hanb || rest.jpan || rest.kore {
        return None;
    }
    let mut scripts: Vec<&'static str> = Vec::new();
    for c in name.chars() {
        let set = AugmentedScriptSet::for_char(c);
        // A character of several scripts, or of all, is in none alone.
        if set.is_all() || set.base.len() != 1 {
            continue;
        }
        if let Some(script) = set.base.iter().map(|script| script.full_name()).next()
            && !scripts.contains(&script)
        {
            scripts.push(script);
        }
    }
    Some(scripts)
}

fn is_latin(c: char) -> bool {
    let set = AugmentedScriptSet::for_char(c);
    !set.is_all() && set.base.iter().any(|script| script.short_name() == "Latn")
}

/// The characters of a name that are not on every keyboard, by their numbers.
pub fn unusual(name: &str) -> String {
    let mut found: Vec<String> = Vec::new();
    for c in name.chars().filter(|c| !c.is_ascii()) {
        let shown = format!("U+{:04X}", u32::from(c));
        if !found.contains(&shown) && found.len() < 8 {
            found.push(shown);
        }
    }
    found.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_like_others() {
        for (one, other) in [
            ("read_file", "r\u{435}ad_file"),
            ("read_file", "read_fi1e"),
            ("scope", "\u{455}\u{441}\u{43e}\u{440}\u{435}"),
            ("caf\u{e9}", "cafe\u{301}"),
            ("modern", "modem"),
            ("a b", "a\u{a0}b"),
        ] {
            assert!(is_alike(one, other) && is_alike(other, one), "{one} {other}");
        }
        for (one, other) in [("read_file", "read_file"), ("read_file", "read_files"), ("b", "B"), ("t10", "t1o")] {
            assert!(!is_alike(one, other), "{one} {other}");
        }
    }

    #[test]
    fn scripts() {
        for name in [
            "read_file",
            "\u{dc}n\u{ef} 1",
            "\u{65e5}\u{672c}5",
            "read_\u{65e5}\u{672c}",
            "\u{441}\u{43a}\u{430}\u{43d}_1",
            "# x4",
            "",
        ] {
            assert_eq!(mixed_scripts(name), None, "{name}");
        }
        assert_eq!(mixed_scripts("r\u{435}ad"), Some(vec!["Latin", "Cyrillic"]));
        assert_eq!(mixed_scripts("\u{3b1}b\u{65e5}"), Some(vec!["Greek", "Latin", "Han"]));
    }

    #[test]
    fn what_shows_nothing() {
        assert_eq!(invisible("a\u{200b}b"), Some('\u{200b}'));
        assert_eq!(invisible("a\u{fe0f}"), Some('\u{fe0f}'));
        assert_eq!(invisible("\u{dc}n\u{ef} 1"), None);
        assert_eq!(unusual("r\u{435}\u{435}d"), "U+0435");
    }
}
