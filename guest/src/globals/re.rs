//! `re.match`, `re.search`, `re.find_all` (= `re.findall`), `re.replace`, `re.split`.
//!
//! The engine is linear in the text whatever the pattern, and for that has neither look-around nor back-references.
//! Offsets count characters, as indices of a Starlark string do: `text[m["start"]:m["end"]] == m["full_match"]`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use regex::{Captures, Regex, RegexBuilder};
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::dict::AllocDict;
use starlark::values::{Heap, Value};

use super::argument::{self, MAX_TEXT};
use crate::bindings::harness::sandbox::limits;
use crate::observe::pure;
use crate::phase;
use crate::record::dict;

/// Bytes of a pattern. Longer ones are lists of words, for which there is `in`.
const MAX_PATTERN: usize = 4096;

/// Bytes of a pattern that is compiled while a script is loaded, for whom no policy says anything yet.
const WHILE_LOADING: u64 = 1 << 20;

/// Matches of one call. Each one is a value on the script's heap.
const MAX_MATCHES: usize = 10_000;

/// Compiled patterns that are kept for the next call with the same one: a loop over lines compiles once. Few, since
/// each may take the limit twice, of the memory that the script has.
const KEPT: usize = 8;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("re", |space| pure(space, "re", functions));
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// The match at the very start of the text, as a dict `matched, full_match, groups, named_groups, start, end`.
    /// A group that took no part is an empty string. Without a match: `False`, empty ones, and -1 for both offsets.
    fn r#match<'v>(pattern: Value<'v>, text: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        let (regex, text) = prepare("re.match", pattern, text)?;
        // The engine finds the leftmost match first, so one that starts later means that none starts here.
        let captures = regex.captures(text).filter(|captures| captures.get_match().start() == 0);
        Ok(describe(&regex, text, captures, heap))
    }

    /// The first match anywhere in the text, told like that of `re.match`.
    fn search<'v>(pattern: Value<'v>, text: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        let (regex, text) = prepare("re.search", pattern, text)?;
        Ok(describe(&regex, text, regex.captures(text), heap))
    }

    /// All matches that do not overlap: the whole of each, whatever groups there are.
    fn find_all<'v>(pattern: Value<'v>, text: Value<'v>) -> anyhow::Result<Vec<&'v str>> {
        every_match("re.find_all", pattern, text)
    }

    /// The same as `re.find_all`.
    fn findall<'v>(pattern: Value<'v>, text: Value<'v>) -> anyhow::Result<Vec<&'v str>> {
        every_match("re.findall", pattern, text)
    }

    /// The text with every match replaced. In the replacement `$1` and `${1}` are a group, `$name` and `${name}` a
    /// named one, `$0` the whole match and `$$` a dollar sign.
    fn replace<'v>(pattern: Value<'v>, repl: Value<'v>, text: Value<'v>) -> anyhow::Result<String> {
        let (regex, text) = prepare("re.replace", pattern, text)?;
        let repl = argument::text("re.replace", "repl", repl)?;
        replace_all(&regex, &replacement(&regex, repl)?, text)
    }

    /// What is left between the matches, empty strings included.
    fn split<'v>(pattern: Value<'v>, text: Value<'v>) -> anyhow::Result<Vec<&'v str>> {
        let (regex, text) = prepare("re.split", pattern, text)?;
        // One piece more than there are matches.
        up_to("re.split", MAX_MATCHES + 1, regex.split(text))
    }
}

fn every_match<'v>(builtin: &str, pattern: Value<'v>, text: Value<'v>) -> anyhow::Result<Vec<&'v str>> {
    let (regex, text) = prepare(builtin, pattern, text)?;
    up_to(builtin, MAX_MATCHES, regex.find_iter(text).map(|found| found.as_str()))
}

fn up_to<'v>(builtin: &str, most: usize, pieces: impl Iterator<Item = &'v str>) -> anyhow::Result<Vec<&'v str>> {
    let pieces: Vec<&str> = pieces.take(most + 1).collect();
    anyhow::ensure!(pieces.len() <= most, "{builtin}: more than {MAX_MATCHES} matches");
    Ok(pieces)
}

fn prepare<'v>(builtin: &str, pattern: Value<'v>, text: Value<'v>) -> anyhow::Result<(Rc<Regex>, &'v str)> {
    let pattern = argument::text(builtin, "pattern", pattern)?;
    let text = argument::text(builtin, "text", text)?;
    anyhow::ensure!(text.len() <= MAX_TEXT, "{builtin}: text is longer than {MAX_TEXT} bytes");
    Ok((compile(builtin, pattern)?, text))
}

fn compile(builtin: &str, pattern: &str) -> anyhow::Result<Rc<Regex>> {
    thread_local! {
        /// The latest ones, the very latest at the end.
        static COMPILED: RefCell<Vec<Compiled>> = const { RefCell::new(Vec::new()) };
    }
    anyhow::ensure!(pattern.len() <= MAX_PATTERN, "{builtin}: pattern is longer than {MAX_PATTERN} bytes");
    let most = most_bytes();
    COMPILED.with_borrow_mut(|kept| {
        // One that was compiled while the script was loaded may be larger than this call allows.
        if let Some(index) = kept.iter().position(|known| known.pattern == pattern && known.within <= most) {
            let known = kept.remove(index);
            let regex = Rc::clone(&known.regex);
            kept.push(known);
            return Ok(regex);
        }
        let bytes = usize::try_from(most).unwrap_or(usize::MAX);
        let compiled = RegexBuilder::new(pattern).size_limit(bytes).dfa_size_limit(bytes).build();
        let regex = Rc::new(compiled.map_err(|error| anyhow::anyhow!("{builtin}: {}", tell(&error, most)))?);
        if kept.len() == KEPT {
            kept.remove(0);
        }
        kept.push(Compiled { pattern: pattern.to_owned(), within: most, regex: Rc::clone(&regex) });
        Ok(regex)
    })
}

struct Compiled {
    pattern: String,
    /// The bytes that it was allowed.
    within: u64,
    regex: Rc<Regex>,
}

/// Bytes of a compiled pattern, and of what the engine keeps of it while it searches: a short pattern can ask for very
/// much, as `(\w{100}){100}` does. The host is asked once in a call.
fn most_bytes() -> u64 {
    thread_local! {
        static ASKED: Cell<Option<u64>> = const { Cell::new(None) };
    }
    if phase::is_loading() {
        return WHILE_LOADING;
    }
    let most = ASKED.get().unwrap_or_else(limits::regex_bytes);
    ASKED.set(Some(most));
    most
}

/// One line of what the engine says on several: the last one, without the drawing above it.
fn tell(error: &regex::Error, most: u64) -> String {
    match error {
        // The classes of Unicode are what makes a repetition large: `\w` takes some 40 KiB each time.
        regex::Error::CompiledTooBig(_) => format!(
            "the pattern needs more than {most} bytes when compiled (`limits.regex_bytes`); in `{{n}}`, [0-9A-Za-z_] is \
             smaller than \\w"
        ),
        other => {
            let text = other.to_string();
            let last = text.lines().last().unwrap_or_default();
            format!("invalid pattern: {}", last.strip_prefix("error: ").unwrap_or(last))
        }
    }
}

fn describe<'v>(regex: &Regex, text: &'v str, captures: Option<Captures<'v>>, heap: Heap<'v>) -> Value<'v> {
    let mut groups: Vec<&str> = Vec::new();
    let mut named: Vec<(&str, &str)> = Vec::new();
    let (mut full, mut start, mut end) = ("", -1, -1);
    if let Some(captures) = &captures {
        let of = |index: usize| captures.get(index).map_or("", |group| group.as_str());
        groups = (1..captures.len()).map(of).collect();
        named = regex.capture_names().enumerate().filter_map(|(index, name)| Some((name?, of(index)))).collect();
        let whole = captures.get_match();
        full = whole.as_str();
        start = characters(text.get(..whole.start()).unwrap_or_default());
        end = start + characters(full);
    }
    dict(
        heap,
        [
            ("matched", Value::new_bool(captures.is_some())),
            ("full_match", heap.alloc(full)),
            ("groups", heap.alloc(groups)),
            ("named_groups", heap.alloc(AllocDict(named))),
            ("start", heap.alloc(start)),
            ("end", heap.alloc(end)),
        ],
    )
}

fn characters(text: &str) -> i64 {
    i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
}

/// A part of a replacement.
enum Part<'a> {
    Text(&'a str),
    Group(usize),
}

fn replacement<'a>(regex: &Regex, repl: &'a str) -> anyhow::Result<Vec<Part<'a>>> {
    let mut parts = Vec::new();
    let mut rest = repl;
    while let Some((before, after)) = rest.split_once('$') {
        parts.push(Part::Text(before));
        if let Some(after) = after.strip_prefix('$') {
            parts.push(Part::Text("$"));
            rest = after;
            continue;
        }
        let (name, after) = match after.strip_prefix('{') {
            Some(braced) => {
                braced.split_once('}').ok_or_else(|| anyhow::anyhow!("re.replace: `${{` without `}}` in repl"))?
            }
            None => {
                let length = after.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
                after.split_at(length)
            }
        };
        if name.is_empty() {
            parts.push(Part::Text("$"));
        } else {
            parts.push(Part::Group(group(regex, name)?));
        }
        rest = after;
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

fn group(regex: &Regex, name: &str) -> anyhow::Result<usize> {
    let index = if name.bytes().all(|byte| byte.is_ascii_digit()) {
        name.parse().ok().filter(|index| *index < regex.captures_len())
    } else {
        regex.capture_names().position(|known| known == Some(name))
    };
    index.ok_or_else(|| anyhow::anyhow!("re.replace: the pattern has no group `{name}`; a dollar sign is `$$`"))
}

fn replace_all(regex: &Regex, parts: &[Part<'_>], text: &str) -> anyhow::Result<String> {
    let mut result = String::new();
    let mut append = |piece: &str| {
        // A group may be long, and be named often.
        anyhow::ensure!(
            result.len() + piece.len() <= MAX_TEXT,
            "re.replace: the result is longer than {MAX_TEXT} bytes"
        );
        result.push_str(piece);
        Ok(())
    };
    let mut copied = 0;
    for (index, captures) in regex.captures_iter(text).enumerate() {
        anyhow::ensure!(index < MAX_MATCHES, "re.replace: more than {MAX_MATCHES} matches");
        let whole = captures.get_match();
        append(text.get(copied..whole.start()).unwrap_or_default())?;
        for part in parts {
            append(match part {
                Part::Text(text) => text,
                Part::Group(group) => captures.get(*group).map_or("", |group| group.as_str()),
            })?;
        }
        copied = whole.end();
    }
    append(text.get(copied..).unwrap_or_default())?;
    Ok(result)
}

#[cfg(test)]
mod tests;
