//! A `when` that can be decided without running it: one that only compares texts of the payload with texts.
//!
//! Most hooks are for one tool, and say so with `payload["name"] == "run_command"`. An instance of the interpreter for
//! that answer costs more than all the rest of such a hook. Here is the part of the language whose answer is certain:
//!
//! ```text
//! payload["KEY"]  payload.get("KEY")  event  "TEXT"  ["TEXT", ...]
//! ==  !=  in  not in  and  or  not  ( )  True  False
//! ```
//!
//! Texts are without escapes. Whatever else a `when` has, and whatever else a payload holds at a key, is not decided
//! here: the interpreter is asked, which also reports errors. A test compares both on random expressions.

use serde_json::Value as Json;

/// A `when` in the part of the language that is decided here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter(Expression);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Expression {
    Constant(bool),
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Equal(Term, Term),
    In(Term, Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    Text(String),
    Event,
    /// `payload["KEY"]`
    Key(String),
    /// `payload.get("KEY")`
    Get(String),
}

/// The longest `when` that is decided here; a longer one is the interpreter's. Deciding takes none of a call's fuel, and
/// the host's own stack with each `and` and `or`.
const MAX_BYTES: usize = 4096;
/// Expressions in parentheses and behind `not`, inside each other. More are the interpreter's.
const MAX_DEPTH: u32 = 32;

impl Filter {
    /// Reads a `when`; none where it has anything that is not decided here.
    pub fn parse(text: &str) -> Option<Self> {
        let tokens = tokens(Some(text).filter(|text| text.len() <= MAX_BYTES)?)?;
        let mut parser = Parser { tokens: &tokens, depth: 0 };
        let expression = parser.or()?;
        parser.tokens.is_empty().then_some(Self(expression))
    }

    /// Whether it is true; none where that is not certain, as where a key is missing.
    pub fn decide(&self, event: &str, payload: &Json) -> Option<bool> {
        self.0.decide(event, payload)
    }
}

impl Expression {
    /// In the interpreter's order: what it would not look at may be uncertain, what it looks at may not.
    fn decide(&self, event: &str, payload: &Json) -> Option<bool> {
        Some(match self {
            Self::Constant(value) => *value,
            Self::Not(inner) => !inner.decide(event, payload)?,
            Self::And(left, right) => left.decide(event, payload)? && right.decide(event, payload)?,
            Self::Or(left, right) => left.decide(event, payload)? || right.decide(event, payload)?,
            Self::Equal(left, right) => left.text(event, payload)? == right.text(event, payload)?,
            Self::In(term, texts) => {
                let found = term.text(event, payload)?;
                found.is_some_and(|found| texts.iter().any(|text| text == found))
            }
        })
    }
}

impl Term {
    /// Its text; `Some(None)` is Starlark's `None`.
    fn text<'a>(&'a self, event: &'a str, payload: &'a Json) -> Option<Option<&'a str>> {
        match self {
            Self::Text(text) => Some(Some(text)),
            Self::Event => Some(Some(event)),
            Self::Key(key) => payload.as_object()?.get(key)?.as_str().map(Some),
            Self::Get(key) => match payload.as_object()?.get(key) {
                None => Some(None),
                Some(value) => value.as_str().map(Some),
            },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Sign(&'static str),
}

const SIGNS: [&str; 8] = ["==", "!=", "[", "]", "(", ")", ",", "."];

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut rest = text.trim();
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push(Token::Sign(sign));
            rest = rest.get(sign.len()..)?;
        } else if first == '"' || first == '\'' {
            let inner = rest.get(1..)?;
            let (content, after) = inner.split_at_checked(inner.find(first)?)?;
            // An escape means something else; two quotes in a row may begin a text of three.
            if content.contains(['\\', '\n', '\r']) || content.is_empty() {
                return None;
            }
            tokens.push(Token::Text(content.to_owned()));
            rest = after.get(1..)?;
            // A text that follows at once is part of it in some dialects.
            if rest.starts_with(|c: char| c == '"' || c == '\'' || c == '_' || c.is_alphanumeric()) {
                return None;
            }
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let (word, after) = rest.split_at_checked(end)?;
            if after.starts_with(['"', '\'']) {
                return None;
            }
            tokens.push(Token::Word(word.to_owned()));
            rest = after;
        } else {
            return None;
        }
        rest = rest.trim_start_matches(' ');
    }
    Some(tokens)
}

struct Parser<'t> {
    tokens: &'t [Token],
    depth: u32,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<&Token> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.tokens.first(), Some(Token::Sign(next)) if *next == sign);
        if found {
            self.next();
        }
        found
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = matches!(self.tokens.first(), Some(Token::Word(next)) if next == word);
        if found {
            self.next();
        }
        found
    }

    fn text(&mut self) -> Option<String> {
        match self.next()? {
            Token::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn or(&mut self) -> Option<Expression> {
        let mut left = self.and()?;
        while self.take_word("or") {
            left = Expression::Or(Box::new(left), Box::new(self.and()?));
        }
        Some(left)
    }

    fn and(&mut self) -> Option<Expression> {
        let mut left = self.not()?;
        while self.take_word("and") {
            left = Expression::And(Box::new(left), Box::new(self.not()?));
        }
        Some(left)
    }

    fn not(&mut self) -> Option<Expression> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > MAX_DEPTH {
            return None;
        }
        let found = if self.take_word("not") {
            Some(Expression::Not(Box::new(self.not()?)))
        } else if self.take_sign("(") {
            let inner = self.or()?;
            // What follows a group is compared with a bool: the interpreter's.
            self.take_sign(")").then_some(inner)
        } else if self.take_word("True") {
            Some(Expression::Constant(true))
        } else if self.take_word("False") {
            Some(Expression::Constant(false))
        } else {
            self.comparison()
        };
        self.depth = self.depth.saturating_sub(1);
        found
    }

    fn comparison(&mut self) -> Option<Expression> {
        let left = self.term()?;
        if self.take_sign("==") {
            return Some(Expression::Equal(left, self.term()?));
        }
        if self.take_sign("!=") {
            return Some(Expression::Not(Box::new(Expression::Equal(left, self.term()?))));
        }
        if self.take_word("in") {
            return Some(Expression::In(left, self.list()?));
        }
        if self.take_word("not") && self.take_word("in") {
            return Some(Expression::Not(Box::new(Expression::In(left, self.list()?))));
        }
        None
    }

    fn term(&mut self) -> Option<Term> {
        match self.next()? {
            Token::Text(text) => Some(Term::Text(text.clone())),
            Token::Word(word) if word == "event" => Some(Term::Event),
            Token::Word(word) if word == "payload" => {
                if self.take_sign("[") {
                    let key = self.text()?;
                    return self.take_sign("]").then_some(Term::Key(key));
                }
                if self.take_sign(".") && self.take_word("get") && self.take_sign("(") {
                    let key = self.text()?;
                    return self.take_sign(")").then_some(Term::Get(key));
                }
                None
            }
            _ => None,
        }
    }

    fn list(&mut self) -> Option<Vec<String>> {
        let mut texts = Vec::new();
        if !self.take_sign("[") {
            return None;
        }
        while !self.take_sign("]") {
            texts.push(self.text()?);
            if !self.take_sign(",") {
                return self.take_sign("]").then_some(texts);
            }
        }
        Some(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[track_caller]
    fn decided(when: &str, expect: Option<bool>) {
        let payload = json!({"name": "run", "n": 1, "kind": "x"});
        assert_eq!(Filter::parse(when).and_then(|filter| filter.decide("tool.pre", &payload)), expect, "{when}");
    }

    #[test]
    fn what_is_certain() {
        decided(r#"payload["name"] == "run""#, Some(true));
        decided(r#"payload["name"] == 'walk'"#, Some(false));
        decided(r#"payload["name"] != "run""#, Some(false));
        decided(r#"payload["name"] in ["walk", "run",]"#, Some(true));
        decided(r#"payload["name"] not in ["walk"] and event == "tool.pre""#, Some(true));
        decided(r#"not payload["name"] == "run" or (event != "x" and True)"#, Some(true));
        decided(r#"payload.get("none") == "x""#, Some(false));
        decided(r#"payload.get("none") in ["x"]"#, Some(false));
        // What is not looked at may be uncertain.
        decided(r#"False and payload["none"] == "x""#, Some(false));
        decided(r#"True or payload["none"] == "x""#, Some(true));
    }

    #[test]
    fn what_is_the_interpreter_s() {
        for when in [
            r#"payload["none"] == "x""#,
            r#"payload["n"] == "1""#,
            r#"payload["none"] == "x" and False"#,
            r#"payload.name == "run""#,
            r#"payload["name"] == "r\x75n""#,
            r#"payload["name"] == r"run""#,
            r#"payload["name"] == """run""""#,
            r#"payload["name"] == "ru" "n""#,
            r#"payload["name"]"#,
            r#"payload["name"] == "run" == True"#,
            r#"(payload["name"] == "run") == True"#,
            r#"payload["name"] in ("run", "walk")"#,
            r#"payload["name"] in "running""#,
            r#"len(payload["name"]) > 2"#,
            r#"payload["name"] == "" "#,
            "True # why",
            "",
            "event == ",
            "payload",
            "not",
        ] {
            decided(when, None);
        }
        decided(&format!("{}True", "not ".repeat(40)), None);
        decided(&"(".repeat(100_000), None);
    }

    #[test]
    fn long_ones_are_the_interpreter_s() {
        let longest = format!("{}True", "False or ".repeat((MAX_BYTES - 4) / 9));
        decided(&longest, Some(true));
        for operator in ["or", "and"] {
            decided(&format!("{}True", format!("True {operator} ").repeat(200_000)), None);
        }
    }

    proptest! {
        #[test]
        fn reading_is_total(text in any::<String>(), near in "(payload|event|get|not|and|or|in|True|\\[|\\]|\\(|\\)|,|\\.|==|!=|\"a\"|'b'| ){0,30}") {
            for text in [text, near] {
                if let Some(filter) = Filter::parse(&text) {
                    let _ = filter.decide("e", &json!({"a": "b"}));
                }
            }
        }
    }
}
