//! `string.upper`, `lower`, `trim`, `split`, `join`, `truncate`, `pad_left`, `pad_right`.
//!
//! Lengths count characters, as `len` does, and no function ever splits one.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::list::ListRef;
use starlark::values::none::NoneOr;
use starlark::values::tuple::TupleRef;

use super::argument;

use crate::observe::pure;

/// Characters that a padded string may have. A number is easily mistyped, and 1 MiB is far beyond any column.
const MAX_WIDTH: usize = 1 << 20;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("string", |space| pure(space, "string", functions));
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn upper<'v>(s: Value<'v>) -> anyhow::Result<String> {
        Ok(argument::text("string.upper", "s", s)?.to_uppercase())
    }

    fn lower<'v>(s: Value<'v>) -> anyhow::Result<String> {
        Ok(argument::text("string.lower", "s", s)?.to_lowercase())
    }

    /// Without white space at either end.
    fn trim<'v>(s: Value<'v>) -> anyhow::Result<&'v str> {
        Ok(argument::text("string.trim", "s", s)?.trim())
    }

    /// The pieces between the separators. An empty separator gives the characters.
    fn split<'v>(s: Value<'v>, sep: Value<'v>) -> anyhow::Result<Vec<&'v str>> {
        let text = argument::text("string.split", "s", s)?;
        let sep = argument::text("string.split", "sep", sep)?;
        if sep.is_empty() {
            return Ok(text.split_inclusive(|_: char| true).collect());
        }
        Ok(text.split(sep).collect())
    }

    fn join<'v>(parts: Value<'v>, sep: Value<'v>) -> anyhow::Result<String> {
        let sep = argument::text("string.join", "sep", sep)?;
        let parts = match (ListRef::from_value(parts), TupleRef::from_value(parts)) {
            (Some(list), _) => list.content(),
            (None, Some(tuple)) => tuple.content(),
            (None, None) => anyhow::bail!("string.join: expected list or tuple, got {}", parts.get_type()),
        };
        let texts = parts.iter().enumerate().map(|(index, part)| {
            let found = part.get_type();
            part.unpack_str().ok_or_else(|| anyhow::anyhow!("string.join: part {index} must be a string, got {found}"))
        });
        let texts: Vec<&str> = texts.collect::<Result<_, _>>()?;
        let bytes = texts.iter().map(|text| text.len() + sep.len()).fold(0, usize::saturating_add);
        let most = argument::MAX_TEXT;
        anyhow::ensure!(bytes <= most, "string.join: the result is longer than {most} bytes");
        Ok(texts.join(sep))
    }

    /// The first `n` characters, and then `suffix` if anything was cut off.
    fn truncate<'v>(
        s: Value<'v>,
        n: Value<'v>,
        #[starlark(default = NoneOr::None)] suffix: NoneOr<Value<'v>>,
    ) -> anyhow::Result<String> {
        let text = argument::text("string.truncate", "s", s)?;
        let n = argument::count("string.truncate", "n", n)?;
        let suffix = match suffix {
            NoneOr::None => "",
            NoneOr::Other(suffix) => argument::text("string.truncate", "suffix", suffix)?,
        };
        Ok(match text.char_indices().nth(n) {
            Some((end, _)) => format!("{}{suffix}", text.get(..end).unwrap_or_default()),
            None => text.to_owned(),
        })
    }

    /// At least `n` characters wide, filled up with `char` (a space) at the left.
    fn pad_left<'v>(
        s: Value<'v>,
        n: Value<'v>,
        #[starlark(default = NoneOr::None)] char: NoneOr<Value<'v>>,
    ) -> anyhow::Result<String> {
        let (text, padding) = padding("string.pad_left", s, n, char)?;
        Ok(padding + text)
    }

    /// At least `n` characters wide, filled up with `char` (a space) at the right.
    fn pad_right<'v>(
        s: Value<'v>,
        n: Value<'v>,
        #[starlark(default = NoneOr::None)] char: NoneOr<Value<'v>>,
    ) -> anyhow::Result<String> {
        let (text, padding) = padding("string.pad_right", s, n, char)?;
        Ok(text.to_owned() + &padding)
    }
}

fn padding<'v>(
    builtin: &str,
    s: Value<'v>,
    n: Value<'v>,
    char: NoneOr<Value<'v>>,
) -> anyhow::Result<(&'v str, String)> {
    let text = argument::text(builtin, "s", s)?;
    let n = argument::count(builtin, "n", n)?;
    anyhow::ensure!(n <= MAX_WIDTH, "{builtin}: n must be <= {MAX_WIDTH}");
    let char = match char {
        NoneOr::None => " ",
        NoneOr::Other(char) => argument::text(builtin, "char", char)?,
    };
    anyhow::ensure!(char.chars().count() == 1, "{builtin}: char must be exactly one character");
    Ok((text, char.repeat(n.saturating_sub(text.chars().count()))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::testing::{check_all, evaluate, fail_all};

    #[test]
    fn case_and_white_space() {
        check_all([
            ("string.upper('a\u{e9}\u{df}1')", json!("A\u{c9}SS1")),
            ("string.upper(s = '')", json!("")),
            ("string.lower('A\u{c9}1')", json!("a\u{e9}1")),
            ("string.lower(s = 'X')", json!("x")),
            ("string.trim(' \\t\\n a b \\r\\n\u{a0}')", json!("a b")),
            ("string.trim(s = '  ')", json!("")),
        ]);
    }

    #[test]
    fn split_and_join() {
        check_all([
            ("string.split('a,b,,c', ',')", json!(["a", "b", "", "c"])),
            ("string.split('', ',')", json!([""])),
            ("string.split('abc', 'x')", json!(["abc"])),
            ("string.split('a--b', sep = '--')", json!(["a", "b"])),
            ("string.split('a\u{e9}\u{65e5}', '')", json!(["a", "\u{e9}", "\u{65e5}"])),
            ("string.split(s = '', sep = '')", json!([])),
            ("string.join(['a', 'b', 'c'], ', ')", json!("a, b, c")),
            ("string.join(('a', 'b'), '')", json!("ab")),
            ("string.join(parts = [], sep = 'x')", json!("")),
        ]);
        fail_all([
            ("string.join('abc', ',')", "string.join: expected list or tuple, got string"),
            ("string.join({}, ',')", "string.join: expected list or tuple, got dict"),
            ("string.join(['a', 1], ',')", "string.join: part 1 must be a string, got int"),
            ("string.join(['a'], None)", "string.join: sep must be a string, got NoneType"),
            ("string.join(['a' * 1048576] * 17, '')", "string.join: the result is longer than 16777216 bytes"),
            ("string.join([''] * 17, 'a' * 1048576)", "string.join: the result is longer than 16777216 bytes"),
            ("string.split(1, ',')", "string.split: s must be a string, got int"),
            ("string.split('a', 1)", "string.split: sep must be a string, got int"),
        ]);
    }

    #[test]
    fn truncate() {
        check_all([
            ("string.truncate('hello', 3)", json!("hel")),
            ("string.truncate('hello', 5)", json!("hello")),
            ("string.truncate('hello', 9)", json!("hello")),
            ("string.truncate('hello', 0)", json!("")),
            ("string.truncate('', 0)", json!("")),
            ("string.truncate('h\u{e9}\u{65e5}\u{1f600}o', 4)", json!("h\u{e9}\u{65e5}\u{1f600}")),
            ("string.truncate('hello', 3, '\u{2026}')", json!("hel\u{2026}")),
            ("string.truncate('hello', 5, '...')", json!("hello")),
            ("string.truncate(s = 'hello', n = 2, suffix = '...')", json!("he...")),
            ("string.truncate('hello', 1 << 70)", json!("hello")),
            ("string.truncate('hello', 2, None)", json!("he")),
        ]);
        fail_all([
            ("string.truncate('a', -1)", "string.truncate: n must be >= 0"),
            ("string.truncate('a', -(1 << 70))", "string.truncate: n must be >= 0"),
            ("string.truncate('a', 1.0)", "string.truncate: n must be an int, got float"),
            ("string.truncate('a', True)", "string.truncate: n must be an int, got bool"),
            ("string.truncate('a', '1')", "string.truncate: n must be an int, got string"),
            ("string.truncate(None, 1)", "string.truncate: s must be a string, got NoneType"),
            ("string.truncate('ab', 1, 1)", "string.truncate: suffix must be a string, got int"),
        ]);
    }

    #[test]
    fn pad() {
        check_all([
            ("string.pad_left('7', 3)", json!("  7")),
            ("string.pad_left('7', 3, '0')", json!("007")),
            ("string.pad_left('\u{65e5}', n = 3, char = '\u{e9}')", json!("\u{e9}\u{e9}\u{65e5}")),
            ("string.pad_left('hello', 3)", json!("hello")),
            ("string.pad_left('', 0)", json!("")),
            ("string.pad_right('7', 3)", json!("7  ")),
            ("string.pad_right(s = '7', n = 3, char = '.')", json!("7..")),
            ("string.pad_right('hello', 5)", json!("hello")),
            ("len(string.pad_left('', 1048576))", json!(1_048_576)),
        ]);
        fail_all([
            ("string.pad_left('a', -1)", "string.pad_left: n must be >= 0"),
            ("string.pad_right('a', -1)", "string.pad_right: n must be >= 0"),
            ("string.pad_left('a', 1048577)", "string.pad_left: n must be <= 1048576"),
            ("string.pad_right('a', 1 << 80)", "string.pad_right: n must be <= 1048576"),
            ("string.pad_left('a', 3, '')", "string.pad_left: char must be exactly one character"),
            ("string.pad_right('a', 3, 'ab')", "string.pad_right: char must be exactly one character"),
            ("string.pad_right('a', 3, 0)", "string.pad_right: char must be a string, got int"),
            ("string.pad_left(7, 3)", "string.pad_left: s must be a string, got int"),
        ]);
    }

    proptest! {
        #[test]
        fn truncated_is_a_prefix_of_that_many_characters(text in ".{0,12}", n in 0_usize..15) {
            let cut = evaluate(&format!("string.truncate({}, {n})", json!(text))).unwrap();
            prop_assert_eq!(cut, json!(text.chars().take(n).collect::<String>()));
        }

        #[test]
        fn split_joins_again(text in "[ab,;]{0,16}", sep in "[,;]{0,2}") {
            let program = format!("string.join(string.split({0}, {1}), {1})", json!(text), json!(sep));
            prop_assert_eq!(evaluate(&program).unwrap(), json!(text));
        }
    }
}
