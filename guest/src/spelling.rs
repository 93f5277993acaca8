//! `task.await`: the format has this name, and the language keeps `await` for itself.
//!
//! Where a script writes `task.await`, the interpreter is given a name of the same length, so that every line and column
//! stays where it is.

use starlark::syntax::Dialect;
use starlark_syntax::codemap::CodeMap;
use starlark_syntax::lexer::{Lexer, Token};

/// The word of the format.
const WORD: &str = "await";
/// What stands in its place; of the same length.
const INSTEAD: &str = "wait_";

/// The script as the interpreter takes it.
pub(crate) fn readable(text: &str, dialect: &Dialect) -> String {
    let mut readable = text.to_owned();
    if !text.contains(WORD) {
        return readable;
    }
    // What was seen last of `task`, `.`.
    let mut seen = 0;
    for lexeme in Lexer::new(text, dialect, CodeMap::new(String::new(), text.to_owned())) {
        seen = match (seen, lexeme) {
            (_, Ok((_, Token::Identifier(name), _))) if name == "task" => 1,
            (1, Ok((_, Token::Dot, _))) => 2,
            (2, Err(error)) => {
                let error = error.into_error();
                if let Some(span) = error.span().filter(|span| span.source_span() == WORD) {
                    let begin = span.span.begin().get() as usize;
                    readable.replace_range(begin..begin.saturating_add(WORD.len()), INSTEAD);
                }
                0
            }
            _ => 0,
        };
    }
    readable
}

/// The name of a function as the script called it: `fs.read`, not `read`.
pub(crate) fn written(name: &str, call: Option<&str>) -> String {
    match path_of(call) {
        Some((path, last)) if last == name => path.replace(INSTEAD, WORD),
        _ if name == INSTEAD => WORD.to_owned(),
        _ => name.to_owned(),
    }
}

/// An error of a call that names the function alone, with the name that the script called it by.
pub(crate) fn as_called(message: String, call: Option<&str>) -> String {
    const OF: &str = "for call to ";
    let (Some((before, name)), Some((path, last))) = (message.split_once(OF), path_of(call)) else {
        return message;
    };
    let (open, close) = if name.starts_with('`') { ("`", "`") } else { ("", "") };
    if name == format!("{open}{last}{close}") {
        return format!("{before}{OF}{open}{}{close}", path.replace(INSTEAD, WORD));
    }
    message
}

/// What a call calls where that is a name in another, such as `fs.read`, and the last of these names.
fn path_of(call: Option<&str>) -> Option<(&str, &str)> {
    let called = call?.split('(').next()?.trim_end();
    let is_path = called.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let (_, last) = called.rsplit_once('.').filter(|_| is_path)?;
    Some((called, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::DIALECT;

    fn check(text: &str, expected: &str) {
        assert_eq!(text.len(), expected.len());
        assert_eq!(readable(text, &DIALECT), expected);
    }

    #[test]
    fn only_where_it_is_the_function_of_task() {
        check("x = task.await(id)\n", "x = task.wait_(id)\n");
        check(
            "def run(args):\n    # é\n    return [task . await(a), task.await(b)]\n",
            "def run(args):\n    # é\n    return [task . wait_(a), task.wait_(b)]\n",
        );
        for same in [
            "x = 'task.await(1)'\n",
            "# task.await(1)\nx = 1\n",
            "x = \"\"\"\ntask.await\n\"\"\"\n",
            "x = other.await(1)\n",
            "await = 1\n",
            "x = task.awaited\n",
            "x = task.poll(await)\n",
        ] {
            check(same, same);
        }
    }

    #[test]
    fn functions_have_the_names_that_they_are_called_by() {
        assert_eq!(written("read", Some("fs.read('a')")), "fs.read");
        assert_eq!(written("wait_", Some("task.wait_(id)")), "task.await");
        assert_eq!(written("wait_", None), "await");
        for (name, call) in [("f", "f(1)"), ("f", "g().f(1)"), ("f", "xs.g(f)"), ("run", "")] {
            assert_eq!(written(name, Some(call)), name, "{call}");
        }
    }

    #[test]
    fn errors_name_functions_as_they_are_called() {
        let as_called = |message: &str, call: &str| as_called(message.to_owned(), Some(call));
        assert_eq!(
            as_called("Missing parameter `path` for call to `read`", "fs.read()"),
            "Missing parameter `path` for call to `fs.read`"
        );
        assert_eq!(
            as_called("Found `y` extra named parameter(s) for call to read", "fs.read (y = 1)"),
            "Found `y` extra named parameter(s) for call to fs.read"
        );
        assert_eq!(
            as_called("Missing parameter `task_id` for call to `wait_`", "task.wait_()"),
            "Missing parameter `task_id` for call to `task.await`"
        );
        for (message, call) in [
            ("Missing parameter `x` for call to `f`", "f()"),
            ("Missing parameter `x` for call to `f`", "g().f()"),
            ("Missing parameter `x` for call to `f`", "sorted([1], key = f)"),
            ("no such thing", "fs.read('a')"),
        ] {
            assert_eq!(as_called(message, call), message);
        }
    }
}
