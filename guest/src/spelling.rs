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

/// The name of a function as the script has it.
pub(crate) fn written(name: &str) -> &str {
    if name == INSTEAD { WORD } else { name }
}

/// An error that names the function, with the name that the script has.
pub(crate) fn written_in(message: String) -> String {
    const NAMED: &str = "`task.wait_`";
    if message.contains(NAMED) { message.replace(NAMED, "`task.await`") } else { message }
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
}
