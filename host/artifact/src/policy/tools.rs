//! `tools_policy`: which tools may be called, by name.

use std::fmt;

use crate::decode::{Decoder, Field};
use crate::diagnostic::Position;
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use crate::shape::{self, Between, Read, Schema, Shape};
use harness_policy::language::{Found, Machine, Node, Parts, Search, Test};
use harness_policy::refusal::Refusal;
use harness_policy::text::quoted;

/// Longest pattern, in bytes: a name is that of a file, which has at most 255.
const LONGEST: usize = 255;

/// Which tools may be called. The default allows every tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolsPolicy {
    mode: Mode,
    allow: Vec<Located<NamePattern>>,
    deny: Vec<Located<NamePattern>>,
    confirm: Vec<Located<NamePattern>>,
    /// How many tool calls of one reply run at a time.
    concurrency: Option<u64>,
    /// What hints say of where `allow` is or should be: the file, and line and column where it is there.
    place: String,
    /// The machine's say, asked first.
    outer: Option<Box<Self>>,
}

/// What holds for a name that no pattern matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Only what `allow` matches may be called. With an empty `allow`, nothing.
    Allowlist,
    /// Everything may be called but what `deny` matches. `allow` is ignored.
    #[default]
    Denylist,
}

impl ToolsPolicy {
    /// Whether a tool may be called, and be shown to a model. `deny` wins over `allow`.
    pub fn decide(&self, name: &str) -> Result<(), Refusal> {
        if let Some(outer) = &self.outer {
            outer.decide(name)?;
        }
        if let Some(pattern) = self.deny.iter().find(|pattern| pattern.matches(name)) {
            return Err(Refusal::new(
                format!("the tool {} is denied by `{}`", quoted(name), pattern.value),
                format!("remove `{}` from `tools_policy.deny` in `{}`", pattern.value, pattern.position),
            ));
        }
        match self.mode {
            Mode::Allowlist if !self.allow.iter().any(|pattern| pattern.matches(name)) => Err(Refusal::new(
                format!("the tool {} is not allowed", quoted(name)),
                format!("add {} to `tools_policy.allow` in `{}`", quoted(name), self.place),
            )),
            Mode::Allowlist | Mode::Denylist => Ok(()),
        }
    }

    /// The pattern by which a person confirms each call of a tool, where there is one.
    pub fn confirms(&self, name: &str) -> Option<&Located<NamePattern>> {
        let outer = self.outer.as_ref().and_then(|outer| outer.confirms(name));
        outer.or_else(|| self.confirm.iter().find(|pattern| pattern.matches(name)))
    }

    /// The maximum of concurrent tool calls of one reply: the least of its own and those of the outer policies.
    pub fn concurrency(&self) -> Option<u64> {
        self.levels().filter_map(|level| level.concurrency).min()
    }

    /// The same within another one: what both allow.
    #[must_use]
    pub fn narrowed_by(self, outer: Self) -> Self {
        Self { outer: Some(Box::new(outer)), ..self }
    }

    /// A name that this one lets be called and another one does not. An error: that could not be found out.
    pub fn wider_than(&self, old: &Self) -> Result<Option<String>, ()> {
        let before: Vec<(Option<Vec<Machine>>, Vec<Machine>)> = old.levels().map(Self::machines).collect();
        let mut questions: Vec<(Option<&Machine>, Vec<&Machine>)> = Vec::new();
        for (allow, deny) in &before {
            questions.extend(allow.as_ref().map(|allow| (None, allow.iter().collect())));
            questions.extend(deny.iter().map(|deny| (Some(deny), Vec::new())));
        }
        self.allowed_word(&questions, |name| old.decide(name).is_err())
    }

    /// One that allows what these patterns match, and nothing else.
    pub fn of_patterns(patterns: &[NamePattern], position: &Position) -> Self {
        let allow = patterns.iter().map(|pattern| Located::new(pattern.clone(), position.clone())).collect();
        Self { mode: Mode::Allowlist, allow, ..Self::default() }
    }

    /// A name that this one lets be called unasked, of which a person confirms each call by another one. An error:
    /// that could not be found out.
    pub fn asks_less_than(&self, old: &Self) -> Result<Option<String>, ()> {
        let asks = |policy: &Self| -> Vec<Machine> {
            policy.levels().flat_map(|level| &level.confirm).map(|pattern| pattern.machine()).collect()
        };
        let (before, now) = (asks(old), asks(self));
        let questions: Vec<_> = before.iter().map(|asked| (Some(asked), now.iter().collect())).collect();
        self.allowed_word(&questions, |name| old.confirms(name).is_some() && self.confirms(name).is_none())
    }

    /// It and what it is within.
    fn levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |policy| policy.outer.as_deref())
    }

    /// What it allows, where that is a list, and what it denies, apart from what it is within.
    fn machines(&self) -> (Option<Vec<Machine>>, Vec<Machine>) {
        let machines = |patterns: &[Located<NamePattern>]| patterns.iter().map(|pattern| pattern.machine()).collect();
        ((self.mode == Mode::Allowlist).then(|| machines(&self.allow)), machines(&self.deny))
    }

    /// A name that this one lets be called, and that for one of the questions the first machine covers and the others
    /// do not. `sure` is whether such a name is what is looked for.
    fn allowed_word(
        &self,
        questions: &[(Option<&Machine>, Vec<&Machine>)],
        sure: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, ()> {
        let now: Vec<(Option<Vec<Machine>>, Vec<Machine>)> = self.levels().map(Self::machines).collect();
        let any = Machine::any_part();
        let mut within: Vec<Vec<&Machine>> =
            now.iter().filter_map(|(allow, _)| Some(allow.as_ref()?.iter().collect())).collect();
        within.push(vec![&any]);
        let denied: Vec<&Machine> = now.iter().flat_map(|(_, deny)| deny).collect();
        for (covering, uncovered) in questions {
            let within = within.iter().cloned().chain(covering.map(|one| vec![one])).collect();
            let without = denied.iter().copied().chain(uncovered.iter().copied()).collect();
            match (Search { parts: Parts::Names, within, without }).find() {
                Found::Nothing => {}
                Found::Word(name) => {
                    let name = name.concat();
                    let certain = self.decide(&name).is_ok() && sure(&name);
                    return if certain { Ok(Some(name)) } else { Err(()) };
                }
                Found::Unknown => return Err(()),
            }
        }
        Ok(None)
    }

    /// All its own patterns, those that allow first, those of what needs confirmation last.
    pub fn patterns(&self) -> impl Iterator<Item = &Located<NamePattern>> {
        self.allow.iter().chain(&self.deny).chain(&self.confirm)
    }
}

keys! {
    /// The keys of `tools_policy`.
    ToolsKeys: Unknown::Refuse;
    /// The rule for a tool that no pattern matches: `allowlist` denies it, `denylist` allows it. Default: `allowlist`
    /// if `allow` has a name, otherwise `denylist`.
    given mode: Mode;
    /// Patterns of names of tools that may be called: `*` matches any characters, `?` one.
    given allow: Vec<Located<NamePattern>>;
    /// Patterns of names of tools that may not be called, even if another rule allows them.
    given deny: Vec<Located<NamePattern>>;
    /// Patterns of names of tools whose calls a person confirms, for every caller.
    given confirm: Vec<Located<NamePattern>>;
    /// How many tool calls of one reply of a model run at a time. Default: 1.
    given concurrency: Between<1, 16>;
}

impl Shape for ToolsPolicy {
    fn schema() -> Schema {
        keys::schema::<ToolsKeys<'_>>()
    }
}

impl Read for ToolsPolicy {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: ToolsKeys<'_> = decoder.keys(field)?;
        let named = keys.mode.read(decoder);
        let allow = keys.allow.read(decoder).unwrap_or_default();
        let inferred = if allow.is_empty() { Mode::Denylist } else { Mode::Allowlist };
        let mode = named.unwrap_or(inferred);
        if let (Mode::Denylist, false, Some(field)) = (mode, allow.is_empty(), keys.allow.field()) {
            let message = "`tools_policy.allow` is ignored with `mode: denylist`".to_owned();
            decoder.warn(field, message, "remove it, or write `mode: allowlist`");
        }
        let place = decoder.position(keys.allow.field().unwrap_or(field).span()).to_string();
        let deny = keys.deny.read(decoder).unwrap_or_default();
        let confirm = keys.confirm.read(decoder).unwrap_or_default();
        let concurrency = keys.concurrency.read(decoder).map(|n| n.0);
        Some(Self { mode, allow, deny, confirm, concurrency, place, outer: None })
    }
}

impl Mode {
    const ALL: [Self; 2] = [Self::Allowlist, Self::Denylist];

    fn word(self) -> &'static str {
        match self {
            Self::Allowlist => "allowlist",
            Self::Denylist => "denylist",
        }
    }
}

impl Shape for Mode {
    fn schema() -> Schema {
        shape::words(Self::ALL.map(Self::word))
    }
}

impl Read for Mode {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let word = decoder.string(field)?;
        let mode = Self::ALL.into_iter().find(|mode| mode.word() == word);
        if mode.is_none() {
            decoder.error(field, format!("tools_policy.mode {word:?} must be allowlist|denylist"));
        }
        mode
    }
}

impl Shape for NamePattern {
    fn schema() -> Schema {
        shape::Name::schema()
    }
}

impl Read for NamePattern {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        if decoder.string(field)?.is_empty() {
            decoder.error(field, format!("{} is empty", field.path));
            return None;
        }
        decoder.parse_one(field, Self::parse)
    }
}

/// A pattern for the name of a tool: `*` is any run of characters, also none; `?` is one. Letter case counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern(String);

impl NamePattern {
    /// Reads a pattern of 1 to 255 bytes. `[`, `]`, `{`, `}` and `\` mean something in other tools' patterns and are
    /// refused: taken literally here, a rule would quietly match nothing.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a pattern may not be empty".to_owned());
        }
        if text.len() > LONGEST {
            return Err(format!("a pattern may have at most {LONGEST} bytes"));
        }
        if let Some(c) = text.chars().find(|c| matches!(c, '[' | ']' | '{' | '}' | '\\')) {
            return Err(format!("`{c}` means nothing in a pattern, `?` stands for any one character"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The same as a machine that reads names.
    fn machine(&self) -> Machine {
        let mut nodes: Vec<Node> = Vec::new();
        for (c, here) in self.0.chars().zip(0..) {
            nodes.push(match c {
                '*' => Node { steps: vec![(Test::Any, here)], skips: vec![here + 1], ..Node::default() },
                '?' => Node { steps: vec![(Test::Any, here + 1)], ..Node::default() },
                c => Node { steps: vec![(Test::Is(c), here + 1)], ..Node::default() },
            });
        }
        nodes.push(Node { steps: vec![(Test::End, nodes.len() + 1)], ..Node::default() });
        nodes.push(Node { accepts: true, ..Node::default() });
        Machine { nodes, start: vec![0], folds: false }
    }

    /// Whether it matches the whole of a name. Takes time with the product of both lengths at most.
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut rest) = (self.0.chars(), name.chars());
        // After the last star: where to continue if what follows it turns out not to match.
        let mut retry: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
        loop {
            match (pattern.next(), rest.clone().next()) {
                (None, None) => return true,
                (Some('*'), _) => {
                    // The star takes nothing at first.
                    retry = Some((pattern.clone(), rest.clone()));
                    continue;
                }
                (Some(p), Some(c)) if p == '?' || p == c => {
                    rest.next();
                    continue;
                }
                _ => {}
            }
            // The last star takes one more character.
            let Some((after_star, mut taken)) = retry.take() else { return false };
            if taken.next().is_none() {
                return false;
            }
            pattern = after_star.clone();
            rest = taken.clone();
            retry = Some((after_star, taken));
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> NamePattern {
        NamePattern::parse(text).unwrap()
    }

    fn at(pattern: NamePattern) -> Located<NamePattern> {
        let position = crate::diagnostic::Position { file: "f".into(), line: 1, column: 1, length: 1 };
        Located::new(pattern, position)
    }

    #[test]
    fn matching() {
        for (text, matching, not) in [
            ("read_*", &["read_", "read_file"][..], &["read", "xread_file", "Read_file"][..]),
            ("*", &["", "a", "a.b"], &[]),
            ("?", &["a", "é"], &["", "ab"]),
            ("*_file", &["_file", "a_file_file"], &["_files", "file"]),
            ("a*b*c", &["abc", "a1b2c", "abbcc"], &["ab", "acb", "abcd"]),
            ("fs.read", &["fs.read"], &["fsxread", "fs.read "]),
        ] {
            for name in matching {
                assert!(pattern(text).matches(name), "{text} {name}");
            }
            for name in not {
                assert!(!pattern(text).matches(name), "{text} {name}");
            }
        }
    }

    #[test]
    fn what_is_no_pattern() {
        assert!(NamePattern::parse("").is_err());
        assert!(NamePattern::parse("[ab]").is_err());
        assert!(NamePattern::parse(&"a".repeat(256)).is_err());
        assert!(NamePattern::parse(&"a".repeat(255)).is_ok());
    }

    #[test]
    fn deny_wins_and_an_empty_allowlist_denies_all() {
        let file = ".harness/harness.md".to_owned();
        let policy = ToolsPolicy {
            mode: Mode::Allowlist,
            allow: vec![at(pattern("read_*")), at(pattern("run"))],
            deny: vec![at(pattern("*_secret"))],
            confirm: vec![at(pattern("read_*"))],
            concurrency: None,
            place: format!("{file}:5:3"),
            outer: None,
        };
        assert_eq!(policy.decide("read_file"), Ok(()));
        assert_eq!(
            policy.decide("read_secret"),
            Err(Refusal {
                reason: "the tool `read_secret` is denied by `*_secret`".to_owned(),
                hint: "remove `*_secret` from `tools_policy.deny` in `f:1:1`".to_owned(),
            })
        );
        assert_eq!(
            policy.decide("write_file"),
            Err(Refusal {
                reason: "the tool `write_file` is not allowed".to_owned(),
                hint: "add `write_file` to `tools_policy.allow` in `.harness/harness.md:5:3`".to_owned(),
            })
        );
        let nothing = ToolsPolicy { mode: Mode::Allowlist, place: file, ..ToolsPolicy::default() };
        assert!(nothing.decide("read_file").is_err());
        assert_eq!(ToolsPolicy::default().decide("read_file"), Ok(()));
        // What needs confirmation is so whatever a policy outside of it or within says.
        assert!(policy.confirms("read_file").is_some() && policy.confirms("run").is_none());
        let (inner, outer) =
            (ToolsPolicy::default().narrowed_by(policy.clone()), policy.narrowed_by(ToolsPolicy::default()));
        assert!(inner.confirms("read_file").is_some() && outer.confirms("read_file").is_some());
    }

    /// The obvious slow way.
    fn slow(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some(('*', p)), _) => (0..=name.len()).any(|n| slow(p, &name[n..])),
            (Some(('?', p)), Some((_, n))) => slow(p, n),
            (Some((a, p)), Some((b, n))) if a == b => slow(p, n),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn same_as_the_slow_way(text in "[ab*?]{1,8}", name in "[ab]{0,10}") {
            let chars = |s: &str| s.chars().collect::<Vec<_>>();
            prop_assert_eq!(pattern(&text).matches(&name), slow(&chars(&text), &chars(&name)));
        }
    }
}
