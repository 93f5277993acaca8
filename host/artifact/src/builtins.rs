//! The built-ins that scripts call, as their page lists them: what there is, and what an editor shows of it.
//!
//! The page is `docs/builtins.md`, which tests keep true.

use std::sync::LazyLock;

/// The page.
const PAGE: &str = include_str!("builtins.md");
/// Examples of one built-in that are kept.
const MOST_EXAMPLES: usize = 3;

/// A function that scripts call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltIn {
    /// Its name, such as `fs.read` or `sleep`.
    pub name: &'static str,
    /// Its name with its parameters and their defaults.
    pub signature: &'static str,
    /// What it returns: Markdown without a line break.
    pub returns: &'static str,
    /// Whether hooks can call it.
    pub hooks: bool,
    /// The keys of the dict or record that it returns, or of those in the list that it returns.
    pub fields: Vec<&'static str>,
    /// What grants it: the first paragraph of its section, Markdown that may have several lines.
    pub section: &'static str,
    /// Lines that call it, each with its result in a comment.
    pub examples: Vec<&'static str>,
}

/// What the page lists.
#[derive(Debug)]
struct Page {
    built_ins: Vec<BuiltIn>,
    language: Vec<&'static str>,
}

static PARSED: LazyLock<Page> = LazyLock::new(|| parse(PAGE));

/// All built-ins, in the order of the page.
pub fn all() -> &'static [BuiltIn] {
    &PARSED.built_ins
}

/// The built-in of a name.
pub fn named(name: &str) -> Option<&'static BuiltIn> {
    all().iter().find(|one| one.name == name)
}

/// The functions of the language itself, such as `len`.
pub fn of_language() -> &'static [&'static str] {
    &PARSED.language
}

fn parse(page: &'static str) -> Page {
    let mut parsed = Page { built_ins: Vec::new(), language: Vec::new() };
    for section in page.split("\n## ").skip(1) {
        let paragraph = section.split("\n\n").nth(1).filter(|text| !text.starts_with(['|', '`', '#']));
        let mut before: Vec<&'static str> = Vec::new();
        for cells in section.lines().filter(|line| line.starts_with("| ")).map(cells) {
            let (Some(first), Some(returns)) = (cells.first().copied(), cells.get(1).copied()) else { continue };
            if first == "the language" {
                parsed.language.extend(quoted(returns));
                continue;
            }
            // `for` and the like on the page are no calls.
            let fields = fields(returns, &before);
            for signature in quoted(first).filter(|call| is_call(call)) {
                let (name, _) = signature.split_once('(').unwrap_or((signature, ""));
                parsed.built_ins.push(BuiltIn {
                    name,
                    signature,
                    returns,
                    hooks: cells.last() != Some(&"no"),
                    fields: fields.clone(),
                    section: paragraph.unwrap_or_default(),
                    examples: examples(section, name),
                });
            }
            before = fields;
        }
    }
    parsed
}

/// The cells of a row.
fn cells(row: &'static str) -> Vec<&'static str> {
    row.trim_matches('|').split(" | ").map(str::trim).collect()
}

/// What is between backticks.
fn quoted(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether this is a name with parameters: `fs.read(path)`.
fn is_call(text: &str) -> bool {
    text.ends_with(')') && text.split_once('(').is_some_and(|(name, _)| name.split('.').all(is_name))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The keys that a cell says a result has; `before` are those of the row above it.
fn fields(returns: &'static str, before: &[&'static str]) -> Vec<&'static str> {
    if ["the same", "such a dict", "a list of such"].iter().any(|same| returns.starts_with(same)) {
        return before.to_vec();
    }
    let kinds = ["a dict `", "a record `", "a record with `", "a list of dicts `", "a list of records with `"];
    if !kinds.iter().any(|kind| returns.starts_with(kind)) {
        return Vec::new();
    }
    let keys = returns.split([';', ':']).next().unwrap_or(returns);
    // What is in brackets says more of a key.
    let outside = keys.split('(').map(|part| part.split_once(')').map_or(part, |(_, after)| after));
    outside.flat_map(quoted).filter(|key| is_name(key)).collect()
}

/// Lines of a section that begin with a call.
fn examples(section: &'static str, name: &str) -> Vec<&'static str> {
    let calls = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('('));
    section.lines().filter(calls).take(MOST_EXAMPLES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_editor_shows() {
        let stat = named("fs.stat").unwrap();
        assert_eq!((stat.signature, stat.hooks), ("fs.stat(path)", true));
        assert_eq!(stat.fields, ["name", "size", "is_dir", "mode", "mod_time"]);
        assert!(stat.section.starts_with("Granted by `sandbox.fs`"), "{}", stat.section);
        let read = named("fs.read").unwrap();
        assert_eq!(read.examples, ["fs.read(\"notes/a.md\")  # \"one\\ntwo\\nthree\\n\"",]);
        assert!(!named("fs.write").unwrap().hooks && named("http.get").unwrap().hooks);
    }

    #[test]
    fn keys_of_results() {
        let of = |name: &str| named(name).unwrap().fields.clone();
        assert_eq!(of("http.post"), ["status", "ok", "url", "body", "headers"]);
        assert_eq!(of("ask.user"), ["action", "content"]);
        assert_eq!(of("meta.parallel"), ["ok", "value", "error"]);
        assert_eq!(of("parallel.race"), ["id", "tool", "status", "result", "is_error"]);
        assert_eq!(of("fs.find"), ["line_num", "text"]);
        assert_eq!(of("fs.read"), [""; 0]);
        assert_eq!(of("ctx.snapshot"), [""; 0]);
    }
}
