//! What is before a position in a script, as well as it is seen in one line without parsing it.

use std::ops::Range;

use harness_artifact::builtins::{self, BuiltIn};

/// What is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Context<'t> {
    /// A name by itself.
    Name { word: &'t str },
    /// What is behind a dot.
    Member { of: Subject<'t>, word: &'t str },
    /// A key in quotes, in `[ ]` or as the first argument of `get`.
    Key { of: Subject<'t>, word: &'t str },
    /// The first argument of a call, in quotes.
    Argument { callee: &'t str, word: &'t str },
}

/// What a dot or a bracket is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject<'t> {
    Name(&'t str),
    /// The result of a call of this function.
    Call(&'t str),
}

/// The context at the end of a part of a script. None in a comment, and in a text that is no key and no argument.
pub(crate) fn context(before: &str) -> Option<Context<'_>> {
    let line = before.rsplit('\n').next()?;
    match open(line)? {
        Some(quote) => {
            let (head, word) = (line.get(..quote)?.trim_end(), line.get(quote.saturating_add(1)..)?);
            if let Some(of) = head.strip_suffix('[').or_else(|| head.strip_suffix(".get(")) {
                return Some(Context::Key { of: subject(of)?, word });
            }
            let callee = dotted_end(head.strip_suffix('(')?);
            (!callee.is_empty()).then_some(Context::Argument { callee, word })
        }
        None => {
            let start = line.len().saturating_sub(trailing(line, |c| is_part(c)));
            let (head, word) = line.split_at_checked(start)?;
            match head.strip_suffix('.') {
                Some(of) => Some(Context::Member { of: subject(of)?, word }),
                None if word.starts_with(|c: char| c.is_ascii_digit()) => None,
                None => Some(Context::Name { word }),
            }
        }
    }
}

/// The function whose result a subject is, where that is a built-in: of a call itself, or of what was last assigned to a
/// name.
pub(crate) fn result_of(subject: Subject<'_>, before: &str) -> Option<&'static BuiltIn> {
    match subject {
        Subject::Call(callee) => builtins::named(callee),
        Subject::Name(name) => before.lines().rev().find_map(|line| {
            let line = line.trim_start();
            let assigned = line.strip_prefix(name).and_then(|rest| rest.trim_start().strip_prefix("= "));
            let looped = || line.strip_prefix("for ")?.strip_prefix(name)?.strip_prefix(" in ");
            let value = assigned.or_else(looped)?;
            let (callee, _) = value.split_once('(')?;
            builtins::named(callee.trim())
        }),
    }
}

/// A text in quotes on a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quoted<'t> {
    pub(crate) text: &'t str,
    /// Its bytes in the line, without the quotes.
    pub(crate) range: Range<usize>,
    /// The function whose first argument it is; empty if it is none.
    pub(crate) callee: &'t str,
}

/// The text in quotes that a byte of a line is in.
pub(crate) fn quoted_at(line: &str, byte: usize) -> Option<Quoted<'_>> {
    let start = open(line.get(..byte)?)??;
    let quote = line.get(start..)?.chars().next()?;
    let from = start.saturating_add(1);
    let text = line.get(from..)?.split(quote).next()?;
    let head = line.get(..start)?.trim_end();
    let callee = head.strip_suffix('(').map(dotted_end).unwrap_or("");
    Some(Quoted { text, range: from..from.saturating_add(text.len()), callee })
}

/// The name that a byte of a line is in, with what is before its dots: of `fs.read` at `re`, all of it; at `fs`, `fs`.
pub(crate) fn dotted_at(line: &str, byte: usize) -> Option<(&str, Range<usize>)> {
    if open(line.get(..byte)?)?.is_some() {
        return None;
    }
    let rest = line.get(byte..)?;
    let end = byte.saturating_add(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
    let name = dotted_end(line.get(..end)?);
    let name = name.trim_start_matches('.');
    (!name.is_empty() && !name.ends_with('.')).then(|| (name, end.saturating_sub(name.len())..end))
}

/// The byte of the quote that is open at the end of a part of a line, if one is. None in a comment.
fn open(line: &str) -> Option<Option<usize>> {
    let mut quote: Option<(char, usize)> = None;
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some((open, _)) if c == open => quote = None,
            Some(_) => {}
            None if c == '#' => return None,
            None if c == '"' || c == '\'' => quote = Some((c, at)),
            None => {}
        }
    }
    Some(quote.map(|(_, at)| at))
}

/// What a text ends with, where a key or a member of that is meant.
fn subject(text: &str) -> Option<Subject<'_>> {
    let text = text.trim_end();
    if let Some(inside) = text.strip_suffix(')') {
        let callee = dotted_end(inside.get(..opening(inside, '(', ')')?)?);
        return (!callee.is_empty()).then_some(Subject::Call(callee));
    }
    if let Some(inside) = text.strip_suffix(']') {
        return subject(inside.get(..opening(inside, '[', ']')?)?);
    }
    let name = dotted_end(text);
    (!name.is_empty() && !name.contains('.')).then_some(Subject::Name(name))
}

/// The byte of the bracket that a closing one after this text belongs to.
fn opening(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 1_u32;
    text.char_indices().rev().find_map(|(at, c)| {
        if c == close {
            depth = depth.saturating_add(1);
        } else if c == open {
            depth = depth.saturating_sub(1);
        }
        (depth == 0).then_some(at)
    })
}

/// The name with dots that a text ends with.
fn dotted_end(text: &str) -> &str {
    let start = text.len().saturating_sub(trailing(text, |c| is_part(c) || c == '.'));
    text.get(start..).unwrap_or("")
}

/// Bytes at the end of a text that are such characters.
fn trailing(text: &str, is_one: impl Fn(char) -> bool) -> usize {
    text.len().saturating_sub(text.trim_end_matches(is_one).len())
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts() {
        use Context::{Argument, Key, Member, Name};
        for (before, expect) in [
            ("def run(args):\n    fs.re", Some(Member { of: Subject::Name("fs"), word: "re" })),
            ("x = fs.stat(args[\"p\"]).", Some(Member { of: Subject::Call("fs.stat"), word: "" })),
            ("x = fs.find(a, (b))[0].", Some(Member { of: Subject::Call("fs.find"), word: "" })),
            ("    le", Some(Name { word: "le" })),
            ("", Some(Name { word: "" })),
            ("    args[\"na", Some(Key { of: Subject::Name("args"), word: "na" })),
            ("    payload.get('", Some(Key { of: Subject::Name("payload"), word: "" })),
            ("    return meta.call_tool(\"gr", Some(Argument { callee: "meta.call_tool", word: "gr" })),
            ("    x = \"text", None),
            ("    x # fs.", None),
            ("    x = 'it\\'s' + fs.", Some(Member { of: Subject::Name("fs"), word: "" })),
            ("    1", None),
            ("    a.b.", None),
        ] {
            assert_eq!(context(before), expect, "{before}");
        }
    }

    #[test]
    fn results() {
        let name = |subject, before| result_of(subject, before).map(|one| one.name);
        let before = "def run(args):\n    r = http.get(args['u'])\n    for f in fs.find('a', 'b'):\n        ";
        assert_eq!(name(Subject::Name("r"), before), Some("http.get"));
        assert_eq!(name(Subject::Name("f"), before), Some("fs.find"));
        assert_eq!(name(Subject::Name("x"), before), None);
        assert_eq!(name(Subject::Call("fs.stat"), ""), Some("fs.stat"));
    }

    #[test]
    fn at_a_byte() {
        let line = "  x = meta.call_tool(\"greet\", {})  # fs.read";
        let found = quoted_at(line, 24).unwrap();
        assert_eq!((found.text, found.callee, line.get(found.range).unwrap()), ("greet", "meta.call_tool", "greet"));
        assert_eq!(quoted_at(line, 3), None);
        assert_eq!(dotted_at(line, 13).map(|(name, _)| name), Some("meta.call_tool"));
        assert_eq!(dotted_at(line, 7), Some(("meta", 6..10)));
        assert_eq!((dotted_at(line, 24), dotted_at(line, 40), dotted_at(line, 0)), (None, None, None));
    }
}
