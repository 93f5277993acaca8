//! Quick fixes: the edits that hints of diagnostics ask for.

mod policy;

use std::ops::Range;

use harness_artifact::diagnostic::Diagnostic;

use crate::document;
use crate::hint::AskedRule;

/// Edits that a hint asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fix {
    pub(crate) title: String,
    /// The file; that of the diagnostic if there is none.
    pub(crate) file: Option<String>,
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
}

/// The fix of a diagnostic in a text; `other` is the text of another file of the project.
pub(crate) fn of<'o>(diagnostic: &Diagnostic, text: &str, other: impl Fn(&str) -> Option<&'o str>) -> Option<Fix> {
    let (at, hint) = (diagnostic.position.as_ref()?, diagnostic.hint.as_deref()?);
    let range = document::bytes_of(text, at);
    let old = text.get(range.clone())?;
    let here = |title: String, range: Range<usize>, text: String| Some(Fix { title, file: None, range, text });
    if let Some(word) = between(hint, "did you mean `", "`?").filter(|word| !word.contains('`')) {
        let inner = unquoted(old);
        if inner.is_empty() || !diagnostic.message.contains(inner) {
            return None;
        }
        return here(format!("Change to `{word}`"), range, old.replacen(inner, word, 1));
    }
    if let Some(key) = between(hint, "write `payload[\"", "\"]`").filter(|key| old == format!("payload.{key}")) {
        return here(format!("Change to `payload[\"{key}\"]`"), range, format!("payload[\"{key}\"]"));
    }
    if let Some(line) = between(hint, "add a line such as `", "`") {
        let after = text.find('\n').map_or(text.len(), |end| end.saturating_add(1));
        return here(format!("Add `{line}`"), after..after, format!("{line}\n"));
    }
    if let Some(AskedRule { value, keys, file, .. }) = AskedRule::of(hint) {
        let (range, new) = policy::add(other(file)?, file.ends_with(".yaml"), &keys, value)?;
        let title = format!("Add `{value}` to `{}` in `{file}`", keys.join("."));
        return Some(Fix { title, file: Some(file.to_owned()), range, text: new });
    }
    let whole = |text: String| here("Fix as the hint says".to_owned(), range.clone(), text);
    match hint {
        "put it in quotes" if !old.contains(['"', '\\', '\n']) => {
            here("Put it in quotes".to_owned(), range, format!("\"{old}\""))
        }
        "write a list of one in square brackets" => here("Make it a list".to_owned(), range, format!("[{old}]")),
        "remove the space around `---`" => whole("---".to_owned()),
        "write `|` instead of `>`" => {
            let end = text.get(range.end..)?.find('>')?.saturating_add(range.end);
            let is_on_line = !text.get(range.end..end)?.contains('\n');
            is_on_line
                .then(|| here("Write `|` instead of `>`".to_owned(), end..end.saturating_add(1), "|".to_owned()))?
        }
        _ => None,
    }
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(before)?;
    rest.split_once(after).map(|(inside, _)| inside)
}

/// A word without its quotes.
fn unquoted(word: &str) -> &str {
    let inside = |quote: char| word.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness_artifact::hook::Hook;
    use harness_artifact::tool::Tool;

    /// The text after the first fix, with its title.
    #[track_caller]
    fn fixed(text: &str) -> (String, String) {
        let (_, mut found) = Tool::parse_at("f.md", "f", "f", text);
        if text.contains("#hook") {
            found = Hook::parse("f.md", "f", 0, text).1;
        }
        let fix = found.iter().find_map(|one| of(one, text, |_| None)).unwrap_or_else(|| panic!("{found:?}"));
        let mut new = text.to_owned();
        new.replace_range(fix.range, &fix.text);
        (fix.title, new)
    }

    #[test]
    fn hints_that_are_edits() {
        for (text, title, new) in [
            ("---\ntimout_ms: 5\n---\n", "Change to `timeout_ms`", "---\ntimeout_ms: 5\n---\n"),
            ("---\n\"timout_ms\": 5\n---\n", "Change to `timeout_ms`", "---\n\"timeout_ms\": 5\n---\n"),
            ("---\ntags: a\n---\n", "Make it a list", "---\ntags: [a]\n---\n"),
            ("---\ntags: [5]\n---\n", "Put it in quotes", "---\ntags: [\"5\"]\n---\n"),
            ("--- \n---\n", "Fix as the hint says", "---\n---\n"),
            ("---\n#hook\n---\n", "Add `event: tool.pre`", "---\nevent: tool.pre\n#hook\n---\n"),
            (
                "---\nscript: >\n  a = 1\n\n  b = 2\n---\n",
                "Write `|` instead of `>`",
                "---\nscript: |\n  a = 1\n\n  b = 2\n---\n",
            ),
        ] {
            assert_eq!(fixed(text), (title.to_owned(), new.to_owned()), "{text}");
        }
    }

    #[test]
    fn hints_that_are_none() {
        let (_, found) = Tool::parse_at("f.md", "f", "f", "---\nasync: maybe\nzzzzz: 1\n---\n");
        assert_eq!(found.iter().filter_map(|one| of(one, "---\nasync: maybe\nzzzzz: 1\n---\n", |_| None)).count(), 0);
        assert_eq!(found.iter().count(), 2);
    }
}
