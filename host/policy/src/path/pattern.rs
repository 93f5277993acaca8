//! Patterns for paths, in policies and for `fs.glob`.

mod machine;

use std::fmt;

use super::WorkspacePath;
use super::protected::{fold, fold_case, is_skipped_by_wildcards};
use super::workspace_path::is_refused;

/// Longest pattern, in bytes: four times what anyone writes by hand.
pub const MAX_PATTERN_BYTES: usize = 1024;
/// Most parts between slashes: as deep as a search goes.
pub const MAX_PATTERN_PARTS: usize = 64;

/// A pattern relative to the workspace.
///
/// `*` is any run of characters and `?` is one, both within one name; `**`, alone between slashes, is any number of
/// folders. `.` is the workspace. A doubled or trailing slash and `.` between others mean nothing. Letter case
/// counts. A character that means something stands for itself in brackets: `[*]`, `[?]`, `[[]`, `[]]`, `[{]`, `[}]`, `[\]`.
/// There are no other classes, no alternatives, exclusions or escapes: what looks like one is refused rather than taken
/// literally, because a list of protected names must not quietly match nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    exact: Matcher,
    any_case: Matcher,
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PatternError {
    #[error("a pattern may not be empty")]
    Empty,
    #[error("a pattern may have at most {MAX_PATTERN_BYTES} bytes")]
    TooLong,
    #[error("a pattern may have at most {MAX_PATTERN_PARTS} parts")]
    TooManyParts,
    #[error("a pattern is relative to the workspace and may not begin with `/`")]
    Absolute,
    #[error("a pattern may not hold `..`")]
    Parent,
    #[error("`**` stands alone between slashes")]
    DoubleStar,
    #[error("`{0}` means nothing in a pattern, `[{0}]` is the character and `?` any one")]
    Meaningless(char),
    #[error("a pattern may not hold the character U+{0:04X}")]
    Character(u32),
}

impl PathPattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.len() > MAX_PATTERN_BYTES {
            return Err(PatternError::TooLong);
        }
        if let Some(c) = text.chars().find(|c| is_refused(*c)) {
            return Err(PatternError::Character(c.into()));
        }
        if text.starts_with('/') {
            return Err(PatternError::Absolute);
        }
        Ok(Self { text: text.to_owned(), exact: Matcher::parse(text)?, any_case: Matcher::parse(&fold_case(text))? })
    }

    /// The pattern for one path and what is in it. None where it would be too long or too deep.
    pub fn text_for(path: &WorkspacePath) -> Option<String> {
        let mut text = String::new();
        for c in path.to_string().chars() {
            match c {
                c if means_something(c) => text.extend(['[', c, ']']),
                c => text.push(c),
            }
        }
        Self::parse(&text).is_ok().then_some(text)
    }

    /// A pattern that protects a path: where none is for the path alone, the one for a folder that it is in.
    pub fn protecting(path: &WorkspacePath) -> Option<Self> {
        let mut folders = std::iter::successors(Some(path.clone()), WorkspacePath::parent);
        folders.find_map(|path| Self::parse(&Self::text_for(&path)?).ok())
    }

    /// Whether a rule with this pattern covers a path: it matches the path, or a folder that the path is in. A `/**`
    /// at the end says what holds anyway, and covers the folder before it too.
    pub fn matches(&self, path: &WorkspacePath) -> bool {
        self.exact.covers(path.parts().iter().map(String::as_str))
    }

    /// As [`matches`](Self::matches), for what is forbidden: also under the other spellings by which a file system
    /// may open the same file.
    pub fn matches_in_any_case(&self, path: &WorkspacePath) -> bool {
        let folded: Vec<String> = path.parts().iter().map(|part| fold(part)).collect();
        self.matches(path) || self.any_case.covers(folded.iter().map(String::as_str))
    }

    /// Whether a search with this pattern finds a path: the whole of it matches. A `/**` at the end finds what is in
    /// the folder before it, at any depth.
    pub fn matches_exactly(&self, path: &WorkspacePath) -> bool {
        self.is_whole(path.parts().iter().fold(self.start(), |progress, part| self.step(progress, part)))
    }

    /// Whether a search finds a path that is no link: the whole of it matches, and `.git` and `.harness` are in it only
    /// where the pattern spells them out.
    pub fn finds(&self, path: &WorkspacePath) -> bool {
        self.is_whole(path.parts().iter().fold(self.start(), |progress, part| {
            if is_skipped_by_wildcards(part) { self.step_literally(progress, part) } else { self.step(progress, part) }
        }))
    }

    /// Whether [`matches_exactly`](Self::matches_exactly) could hold for anything in a folder, at any depth.
    pub fn could_match_below(&self, folder: &WorkspacePath) -> bool {
        self.goes_on(folder.parts().iter().fold(self.start(), |progress, part| self.step(progress, part)))
    }

    /// A search at the workspace itself, to be taken down part by part with [`step`](Self::step).
    pub fn start(&self) -> Progress {
        self.exact.start()
    }

    /// The search in a folder or at a file of this name.
    pub fn step(&self, progress: Progress, name: &str) -> Progress {
        self.exact.step(progress, |part| part.matches(name))
    }

    /// As [`step`](Self::step), but only a part that spells out the name takes it; wildcards do not.
    pub fn step_literally(&self, progress: Progress, name: &str) -> Progress {
        self.exact.step(progress, |part| matches!(part, Part::Name(_)) && part.is_literal() && part.matches(name))
    }

    /// Whether what was walked so far matches.
    pub fn is_whole(&self, progress: Progress) -> bool {
        progress.has(self.exact.parts.len())
    }

    /// Whether more could match further down.
    pub fn goes_on(&self, progress: Progress) -> bool {
        (0..self.exact.parts.len()).any(|part| progress.has(part))
    }
}

/// As it was written.
impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PathPattern({:?})", self.text)
    }
}

/// How far into a pattern a path has come: a bit for each part that may be next, and one for the end. Each part is
/// compared with each name at most once, so no pattern makes matching blow up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress(u128);

impl Progress {
    fn has(self, part: usize) -> bool {
        self.0 & (1 << part) != 0
    }

    fn add(&mut self, part: usize) {
        self.0 |= 1 << part;
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Matcher {
    /// At most one more than [`MAX_PATTERN_PARTS`], which fits the bits of [`Progress`].
    parts: Vec<Part>,
    /// A rule covers all that gets past this many parts.
    covering: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// `**`
    Folders,
    /// Anything else between slashes.
    Name(Vec<Token>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Is(char),
    /// `?`
    One,
    /// `*`
    Run,
}

impl Matcher {
    fn parse(text: &str) -> Result<Self, PatternError> {
        let mut parts = Vec::new();
        for part in text.split('/').filter(|part| !matches!(*part, "" | ".")) {
            match part {
                ".." => return Err(PatternError::Parent),
                "**" if parts.last() == Some(&Part::Folders) => {}
                "**" => parts.push(Part::Folders),
                _ if part.contains("**") => return Err(PatternError::DoubleStar),
                _ => parts.push(Part::Name(tokens(part)?)),
            }
        }
        if parts.len() > MAX_PATTERN_PARTS {
            return Err(PatternError::TooManyParts);
        }
        let mut covering = parts.len();
        if parts.last() == Some(&Part::Folders) {
            covering -= 1;
            parts.push(Part::Name(vec![Token::Run]));
        }
        Ok(Self { parts, covering })
    }

    fn start(&self) -> Progress {
        let mut progress = Progress(0);
        self.reach(&mut progress, 0);
        progress
    }

    fn step(&self, progress: Progress, takes: impl Fn(&Part) -> bool) -> Progress {
        let mut next = Progress(0);
        for (at, part) in self.parts.iter().enumerate() {
            if progress.has(at) && takes(part) {
                // `**` may take the next name too.
                self.reach(&mut next, if *part == Part::Folders { at } else { at + 1 });
            }
        }
        next
    }

    /// `**` may also stand for no folder at all, so that what follows it is reached with it. Two never follow each
    /// other.
    fn reach(&self, progress: &mut Progress, at: usize) {
        progress.add(at);
        if self.parts.get(at) == Some(&Part::Folders) {
            progress.add(at + 1);
        }
    }

    fn covers<'a>(&self, names: impl Iterator<Item = &'a str>) -> bool {
        let mut progress = self.start();
        for name in names {
            if progress.has(self.covering) || progress.0 == 0 {
                break;
            }
            progress = self.step(progress, |part| part.matches(name));
        }
        progress.has(self.covering)
    }
}

impl Part {
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Folders => true,
            Self::Name(tokens) => matches(tokens, name),
        }
    }

    fn is_literal(&self) -> bool {
        match self {
            Self::Folders => false,
            Self::Name(tokens) => tokens.iter().all(|token| matches!(token, Token::Is(_))),
        }
    }
}

/// Whether a character stands for itself only in brackets.
fn means_something(c: char) -> bool {
    matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\')
}

/// The tokens of one name.
fn tokens(part: &str) -> Result<Vec<Token>, PatternError> {
    let mut tokens = Vec::new();
    let mut rest = part.chars();
    while let Some(c) = rest.next() {
        if c == '[' {
            let mut inner = rest.clone();
            match (inner.next(), inner.next()) {
                (Some(literal), Some(']')) if means_something(literal) => tokens.push(Token::Is(literal)),
                _ => return Err(PatternError::Meaningless(c)),
            }
            rest = inner;
        } else if matches!(c, ']' | '{' | '}' | '\\') {
            return Err(PatternError::Meaningless(c));
        } else {
            tokens.push(Token::from(c));
        }
    }
    Ok(tokens)
}

impl From<char> for Token {
    fn from(c: char) -> Self {
        match c {
            '*' => Self::Run,
            '?' => Self::One,
            c => Self::Is(c),
        }
    }
}

/// Takes time in the product of the two lengths at the most: only the last `*` is ever gone back to, because giving
/// more to an earlier one finds nothing that giving more to the last would not.
fn matches(tokens: &[Token], name: &str) -> bool {
    let (mut tokens, mut rest) = (tokens.iter(), name.chars());
    // What follows the last `*`, and where in the name it was last tried.
    let mut retry = None;
    loop {
        let fits = match tokens.next() {
            Some(Token::Run) => {
                retry = Some((tokens.clone(), rest.clone()));
                true
            }
            Some(Token::One) => rest.next().is_some(),
            Some(Token::Is(c)) => rest.next() == Some(*c),
            None if rest.next().is_none() => return true,
            None => false,
        };
        if !fits {
            let Some((after, from)) = &mut retry else { return false };
            if from.next().is_none() {
                return false;
            }
            (tokens, rest) = (after.clone(), from.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text).unwrap()
    }

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::parse(text, "/w").unwrap()
    }

    #[test]
    fn a_rule_covers_what_is_below() {
        let table: [(&str, &[&str], &[&str]); 10] = [
            (".", &[".", "a", "a/b/c"], &[]),
            ("**", &[".", "a", "a/b/c"], &[]),
            ("src", &["src", "src/a", "src/a/b"], &[".", "srcs", "a/src", "SRC"]),
            ("./src//", &["src", "src/a"], &["srcs"]),
            ("src/**", &["src", "src/a/b"], &[".", "srcs"]),
            ("*.rs", &["a.rs", "a.rs/in-a-folder", ".rs"], &["a.rst", "a/b.rs"]),
            ("**/*.rs", &["a.rs", "a/b/c.rs", "a.rs/b"], &["a/b", "."]),
            ("a/**/z", &["a/z", "a/b/z", "a/b/c/z", "a/z/y"], &["a", "z", "a/b", "b/z"]),
            ("a?c", &["abc", "a?c", "aéc/x"], &["ac", "abbc", "a/c"]),
            ("a*c*e", &["ace", "abcde", "accee"], &["ac", "abcd", "a/c/e"]),
        ];
        for (text, covered, others) in table {
            for covered in covered {
                assert!(pattern(text).matches(&path(covered)), "`{text}` covers `{covered}`");
            }
            for other in others {
                assert!(!pattern(text).matches(&path(other)), "`{text}` does not cover `{other}`");
            }
        }
    }

    #[test]
    fn a_search_finds_whole_paths() {
        let table: [(&str, &[&str], &[&str]); 6] = [
            ("src", &["src"], &["src/a", "."]),
            ("**", &["a", "a/b/c"], &["."]),
            ("src/**", &["src/a", "src/a/b"], &["src", "srcs/a"]),
            ("src/*", &["src/a"], &["src", "src/a/b"]),
            ("**/*.rs", &["a.rs", "a/b/c.rs"], &["a.rs/b", "a.rst"]),
            ("a/**/b/**/c", &["a/b/c", "a/x/b/y/z/c", "a/b/b/c/c"], &["a/c", "a/b/c/d"]),
        ];
        for (text, found, others) in table {
            for found in found {
                assert!(pattern(text).matches_exactly(&path(found)), "`{text}` finds `{found}`");
            }
            for other in others {
                assert!(!pattern(text).matches_exactly(&path(other)), "`{text}` does not find `{other}`");
            }
        }
    }

    #[test]
    fn a_search_knows_where_not_to_look() {
        for (text, folder, below) in [
            ("src/*.rs", ".", true),
            ("src/*.rs", "src", true),
            ("src/*.rs", "src/a", false),
            ("src/*.rs", "out", false),
            ("**/x", "a/b/c", true),
            ("a/**", "a/b/c", true),
            (".", ".", false),
        ] {
            assert_eq!(pattern(text).could_match_below(&path(folder)), below, "{text} {folder}");
        }
    }

    #[test]
    fn only_a_spelled_out_name_takes_a_literal_step() {
        for (text, whole) in [(".git", true), ("*", false), (".g?t", false), ("**", false), ("**/.git", true)] {
            let pattern = pattern(text);
            assert_eq!(pattern.is_whole(pattern.step_literally(pattern.start(), ".git")), whole, "{text}");
        }
    }

    #[test]
    fn forbidden_names_match_in_any_case() {
        for spelling in ["Secrets/A", "SECRETS/a", "secrets./a", "secretS"] {
            assert!(pattern("Secrets/**").matches_in_any_case(&path(spelling)), "{spelling}");
        }
        assert!(pattern("a.").matches_in_any_case(&path("a.")));
        assert!(!pattern("Secrets/**").matches_in_any_case(&path("secret")));
    }

    #[test]
    fn what_is_no_pattern() {
        let many = |parts: usize| vec!["a"; parts].join("/");
        for (text, error) in [
            ("", PatternError::Empty),
            ("/etc", PatternError::Absolute),
            ("..", PatternError::Parent),
            ("a/../b", PatternError::Parent),
            ("a**", PatternError::DoubleStar),
            ("***", PatternError::DoubleStar),
            ("*.{a,b}", PatternError::Meaningless('{')),
            ("a[b]", PatternError::Meaningless('[')),
            ("a\\b", PatternError::Meaningless('\\')),
            ("a\u{1b}", PatternError::Character(0x1b)),
            (&"a".repeat(MAX_PATTERN_BYTES + 1), PatternError::TooLong),
            (&many(MAX_PATTERN_PARTS + 1), PatternError::TooManyParts),
        ] {
            assert_eq!(PathPattern::parse(text), Err(error), "{text}");
        }
        assert!(pattern(&many(MAX_PATTERN_PARTS)).matches_exactly(&path(&many(MAX_PATTERN_PARTS))));
        assert!(PathPattern::parse(&format!("{}/**", many(MAX_PATTERN_PARTS - 1))).is_ok());
        assert_eq!(PatternError::Character(0x1b).to_string(), "a pattern may not hold the character U+001B");
    }

    #[test]
    fn a_hint_is_a_pattern_that_covers() {
        for text in
            [".", "a/b", "app/[slug]/page*.tsx", &"x/".repeat(100), &format!("{0}/{0}/{0}/{0}/{0}", "y".repeat(250))]
        {
            let Some(hint) = PathPattern::text_for(&path(text)) else {
                assert!(text.len() > MAX_PATTERN_BYTES || path(text).parts().len() > MAX_PATTERN_PARTS, "{text}");
                assert!(PathPattern::protecting(&path(text)).unwrap().matches(&path(text)), "{text}");
                continue;
            };
            assert!(pattern(&hint).matches(&path(text)), "{hint}");
        }
    }

    #[test]
    fn a_hard_pattern_ends() {
        let name = "a".repeat(255);
        assert!(!pattern(&format!("{}b", "*a".repeat(127))).matches(&path(&name)));
        let deep = vec!["a"; 256].join("/");
        assert!(!pattern(&format!("{}b", "**/a/".repeat(31))).matches_exactly(&path(&deep)));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in any::<String>(), path in "[a-c*?./]{1,40}") {
            if let (Ok(pattern), Ok(path)) = (PathPattern::parse(&text), WorkspacePath::parse(&path, "/w")) {
                let below = pattern.could_match_below(&path);
                prop_assert!(!pattern.matches(&path) || pattern.matches_in_any_case(&path));
                prop_assert!(!below || !pattern.to_string().is_empty());
            }
        }

        /// Against the plainest matcher there is, which takes exponential time.
        #[test]
        fn names_match_as_they_should(tokens in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            fn plain(tokens: &[u8], name: &[u8]) -> bool {
                match (tokens, name) {
                    ([], []) => true,
                    ([b'*', rest @ ..], _) => plain(rest, name) || (!name.is_empty() && plain(tokens, &name[1..])),
                    ([b'?', tokens @ ..], [_, name @ ..]) => plain(tokens, name),
                    ([t, tokens @ ..], [n, name @ ..]) => t == n && plain(tokens, name),
                    _ => false,
                }
            }
            let parsed: Vec<Token> = tokens.chars().map(Token::from).collect();
            prop_assert_eq!(matches(&parsed, &name), plain(tokens.as_bytes(), name.as_bytes()));
        }

        /// What is found at some depth is found with every folder above it looked into, and is covered.
        #[test]
        fn the_ways_of_matching_agree(text in "([ab*]|\\*\\*)(/([ab*]|\\*\\*)){0,3}", path in "[ab](/[ab]){0,4}") {
            let (pattern, path) = (pattern(&text), self::path(&path));
            if pattern.matches_exactly(&path) {
                prop_assert!(pattern.matches(&path));
                let mut above = path.parent();
                while let Some(folder) = above {
                    prop_assert!(pattern.could_match_below(&folder));
                    above = folder.parent();
                }
            }
        }
    }
}
