//! Adds and removes one entry in the text of a policy, such as a server or a source. Everything else stays byte for byte,
//! comments too. The result is read again and compared, so that a file that is not understood is left alone.

use harness_artifact::decode::{Decoder, Field};
use harness_artifact::yaml::{self, LineColumn, Node, Value};
use harness_artifact::{frontmatter, json};
use serde_json::{Map, Value as Json, json};

/// Why a file was left alone.
const UNSAFE: &str = "it cannot be changed safely";

/// The values of the front matter of a file, by key.
///
/// # Errors
///
/// It has none that can be read.
pub(crate) fn front(file: &str, text: &str) -> Result<Map<String, Json>, String> {
    let parts = Parts::of(file, text)?;
    match parts.json(parts.root()?.as_ref())? {
        Json::Object(keys) => Ok(keys),
        Json::Null => Ok(Map::new()),
        _ => Err(UNSAFE.to_owned()),
    }
}

/// The text of a policy with one more entry at a path of keys, such as `mcp.servers.NAME`. `entry` is its value as a line
/// of YAML.
///
/// # Errors
///
/// Why it was not added.
pub(crate) fn add(file: &str, text: &str, path: &[&str], entry: &str) -> Result<String, String> {
    let text = if text.trim().is_empty() && !is_yaml(file) { "---\n---\n" } else { text };
    let parts = Parts::of(file, text)?;
    let root = parts.root()?;
    let mut want = parts.json(root.as_ref())?;
    let value = Parts { before: "", yaml: entry, after: "" };
    let value = value.json(value.root()?.as_ref())?;
    if put(&mut want, path, value)? {
        return Err(format!("it has {} `{}` already", noun(path), path.last().unwrap_or(&"")));
    }
    // The innermost mapping of the path that is there, with its key.
    let (mut depth, mut holder, mut at) = (0_usize, None, root.as_ref());
    for key in path {
        let found = entries(at).iter().find(|(one, _)| one.text == *key);
        let Some((key, node)) = found else { break };
        (depth, holder, at) = (depth.saturating_add(1), Some((key, node)), Some(node));
    }
    let rest = path.get(depth..).unwrap_or_default();
    let new = match holder {
        None => parts.with_line(None, &nested(rest, "", entry)),
        Some((_, node)) if parts.is_in_braces(node) => parts.with_first(node, &in_braces(rest, entry))?,
        Some((key, node)) => {
            let named = path.get(..depth).unwrap_or_default().join(".");
            let indent = parts.indent_in(node, key.span.start.column, &named)?;
            parts.with_line(Some(key.span.start.line), &nested(rest, &indent, entry))
        }
    };
    checked(file, new, &want)
}

/// The text of a policy with an entry that may be there already: its value is replaced.
///
/// # Errors
///
/// Why it stays as it is.
pub(crate) fn set(file: &str, text: &str, path: &[&str], entry: &str) -> Result<String, String> {
    let parts = Parts::of(file, text)?;
    let root = parts.root()?;
    let Some((key, alone)) = found(root.as_ref(), path) else { return add(file, text, path, entry) };
    if alone {
        return add(file, &remove(file, text, path)?, path, entry);
    }
    let mut want = parts.json(root.as_ref())?;
    let value = Parts { before: "", yaml: entry, after: "" };
    put(&mut want, path, value.json(value.root()?.as_ref())?)?;
    let indent = " ".repeat(usize::try_from(key.span.start.column.saturating_sub(1)).unwrap_or_default());
    let line = nested(path.get(path.len().saturating_sub(1)..).unwrap_or_default(), &indent, entry);
    let new = parts.replaced(key.span.start.line, key.span.start.column, &line);
    checked(file, new, &want)
}

/// The key of an entry, and whether its value is not on lines of its own: it is in braces with others.
fn found<'n>(root: Option<&'n Node>, path: &[&str]) -> Option<(&'n yaml::Key, bool)> {
    let (mut at, mut key, mut line) = (root, None, 0);
    let mut shares_line = false;
    for name in path {
        let (one, node) = entries(at).iter().find(|(one, _)| one.text == *name)?;
        shares_line = one.span.start.line == line;
        line = one.span.start.line;
        (key, at) = (Some(one), Some(node));
    }
    key.map(|key| (key, shares_line))
}

/// Puts a value at a path of mappings. Returns whether one was there.
fn put(root: &mut Json, path: &[&str], value: Json) -> Result<bool, String> {
    let mut at = root;
    for (depth, key) in path.iter().enumerate() {
        if at.is_null() {
            *at = json!({});
        }
        let object = at.as_object_mut().ok_or("it is not a mapping")?;
        if depth.saturating_add(1) == path.len() {
            return Ok(object.insert((*key).to_owned(), value).is_some());
        }
        at = object.entry(*key).or_insert(Json::Null);
    }
    Err(UNSAFE.to_owned())
}

/// What an entry of a path is called.
fn noun(path: &[&str]) -> &'static str {
    if path.first() == Some(&"mcp") { "a server" } else { "an entry" }
}

/// The lines of an entry below keys.
fn nested(path: &[&str], indent: &str, entry: &str) -> String {
    let last = path.len().saturating_sub(1);
    let line = |(depth, key): (usize, &&str)| {
        let value = if depth == last { format!(" {entry}") } else { String::new() };
        format!("{indent}{}{key}:{value}\n", "  ".repeat(depth))
    };
    path.iter().enumerate().map(line).collect()
}

/// The same on one line.
fn in_braces(path: &[&str], entry: &str) -> String {
    let mut text = entry.to_owned();
    for (depth, key) in path.iter().enumerate().rev() {
        text = if depth == 0 { format!("{key}: {text}") } else { format!("{{ {key}: {text} }}") };
    }
    text
}

/// The entry at a path in the text of a policy; none where it is not there.
pub(crate) fn entry(file: &str, text: &str, path: &[&str]) -> Option<Map<String, Json>> {
    let parts = Parts::of(file, text).ok()?;
    let policy = parts.json(parts.root().ok()?.as_ref()).ok()?;
    path.iter().try_fold(&policy, |at, key| at.get(*key))?.as_object().cloned()
}

/// The text of a policy without an entry. What is then empty goes too, but for the outermost key.
///
/// # Errors
///
/// Why it was not removed.
pub(crate) fn remove(file: &str, text: &str, names: &[&str]) -> Result<String, String> {
    let parts = Parts::of(file, text)?;
    let root = parts.root()?;
    let mut want = parts.json(root.as_ref())?;
    let none = || {
        format!(
            "it has no {} `{}`",
            noun(names).trim_start_matches("an ").trim_start_matches("a "),
            names.last().unwrap_or(&"")
        )
    };
    let (mut path, mut at) = (Vec::new(), root.as_ref());
    for key in names {
        let all = entries(at);
        let found = all.iter().find(|(one, _)| one.text == *key).ok_or_else(none)?;
        path.push((found, all.len()));
        at = Some(&found.1);
    }
    let last = names.len().saturating_sub(1);
    let alone = path.iter().rev().take_while(|(_, siblings)| *siblings == 1).count().min(last);
    let level = last.saturating_sub(alone);
    let (key, node) = path.get(level).map(|(entry, _)| *entry).ok_or(UNSAFE)?;
    let holder = match level {
        0 => root.as_ref(),
        other => path.get(other.saturating_sub(1)).map(|(entry, _)| &entry.1),
    };
    take(&mut want, names, level);
    let new = match holder.is_some_and(|holder| parts.is_in_braces(holder)) {
        true => parts.without(key, node)?,
        false => parts.replaced(key.span.start.line, key.span.start.column, ""),
    };
    checked(file, new, &want)
}

/// Removes what is at a level of a path.
fn take(value: &mut Json, path: &[&str], level: usize) {
    let mut at = value;
    for key in path.iter().take(level) {
        let Some(next) = at.get_mut(*key) else { return };
        at = next;
    }
    if let (Some(object), Some(key)) = (at.as_object_mut(), path.get(level)) {
        object.shift_remove(*key);
    }
}

/// The text, if it says what it is to say, and reads as it did otherwise.
fn checked(file: &str, new: String, want: &Json) -> Result<String, String> {
    let parts = Parts::of(file, &new)?;
    let is = parts.json(parts.root()?.as_ref())?;
    // An empty policy is written without anything.
    let empty = |value: &Json| value.is_null() || value == &Json::Object(Map::new());
    let same = is == *want || empty(&is) && empty(want);
    if same { Ok(new) } else { Err(UNSAFE.to_owned()) }
}

fn is_yaml(file: &str) -> bool {
    file.ends_with(".yaml")
}

/// A policy's text: its YAML, and what is around it.
struct Parts<'t> {
    before: &'t str,
    yaml: &'t str,
    after: &'t str,
}

impl<'t> Parts<'t> {
    fn of(file: &str, text: &'t str) -> Result<Self, String> {
        if is_yaml(file) {
            return Ok(Self { before: "", yaml: text, after: "" });
        }
        let front = frontmatter::split(text).map_err(|missing| missing.message.to_owned())?;
        let start = front.yaml.as_ptr().addr().saturating_sub(text.as_ptr().addr());
        let end = start.saturating_add(front.yaml.len());
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
        Ok(Self { before: part(0, start), yaml: front.yaml, after: part(end, text.len()) })
    }

    fn root(&self) -> Result<Option<Node>, String> {
        let (root, errors) = yaml::parse(self.yaml, 1);
        match errors.first() {
            Some(error) => Err(format!("line {}: {error}", error.span.start.line)),
            None => Ok(root),
        }
    }

    fn json(&self, root: Option<&Node>) -> Result<Json, String> {
        let Some(node) = root else { return Ok(Json::Null) };
        let mut decoder = Decoder::new("", String::new());
        json::value(&mut decoder, &Field { path: String::new(), key: None, node }).ok_or_else(|| UNSAFE.to_owned())
    }

    /// Whether a value begins with a brace.
    fn is_in_braces(&self, node: &Node) -> bool {
        let at = |number: u32| usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
        let line = self.yaml.lines().nth(at(node.span.start.line)).unwrap_or_default();
        line.chars().nth(at(node.span.start.column)) == Some('{')
    }

    /// The indentation of what is in a mapping that is not in braces, whose own key is in this column.
    fn indent_in(&self, node: &Node, column: u32, named: &str) -> Result<String, String> {
        let deeper = column.saturating_add(1);
        let column = match &node.value {
            Value::Null => deeper,
            Value::Map(entries) => entries.first().map_or(deeper, |(key, _)| key.span.start.column.saturating_sub(1)),
            _ => return Err(format!("`{named}` is not a mapping")),
        };
        Ok(" ".repeat(usize::try_from(column).unwrap_or(usize::MAX)))
    }

    /// The text with lines after a line of the YAML, else at its end.
    fn with_line(&self, after: Option<u32>, lines: &str) -> String {
        let Self { before, yaml, after: rest } = self;
        let Some(after) = after else {
            let gap = if yaml.is_empty() || yaml.ends_with('\n') { "" } else { "\n" };
            return format!("{before}{yaml}{gap}{lines}{rest}");
        };
        let mut new = (*before).to_owned();
        for (number, line) in (1_u32..).zip(yaml.split_inclusive('\n')) {
            new.push_str(line);
            if number == after {
                new.push_str(if line.ends_with('\n') { "" } else { "\n" });
                new.push_str(lines);
            }
        }
        new.push_str(rest);
        new
    }

    /// How many bytes of the YAML are before a character.
    fn offset(&self, at: LineColumn) -> Option<usize> {
        let number = usize::try_from(at.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let skipped: usize = self.yaml.split_inclusive('\n').take(number).map(str::len).sum();
        let line = self.yaml.get(skipped..)?;
        let column = usize::try_from(at.column.saturating_sub(1)).unwrap_or(usize::MAX);
        let ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
        Some(skipped.saturating_add(ends.into_iter().nth(column)?))
    }

    /// The text without one of several entries in a mapping in braces, and without one comma.
    fn without(&self, key: &yaml::Key, node: &Node) -> Result<String, String> {
        let (from, to) = (self.offset(key.span.start).ok_or(UNSAFE)?, self.offset(node.span.end).ok_or(UNSAFE)?);
        let (before, after) = (self.yaml.get(..from).ok_or(UNSAFE)?, self.yaml.get(to..).ok_or(UNSAFE)?);
        let inside = match after.trim_start().strip_prefix(',') {
            Some(after) => format!("{before}{}", after.trim_start_matches(' ')),
            // The last one: the comma is before it, and a space before the brace.
            None => format!("{} {}", before.trim_end().trim_end_matches(','), after.trim_start_matches(' ')),
        };
        Ok(format!("{}{inside}{}", self.before, self.after))
    }

    /// The text with one more entry in a mapping in braces, as its first one.
    fn with_first(&self, node: &Node, entry: &str) -> Result<String, String> {
        let LineColumn { line, column } = node.span.start;
        let inside = self.offset(LineColumn { line, column: column.saturating_add(1) }).ok_or(UNSAFE)?;
        let (before, after) = self.yaml.split_at_checked(inside).ok_or(UNSAFE)?;
        let comma = if entries(Some(node)).is_empty() { " " } else { "," };
        Ok(format!("{}{before} {entry}{comma}{after}{}", self.before, self.after))
    }

    /// The text with other lines instead of the entry whose key is there, and of what is further in than that.
    fn replaced(&self, line: u32, column: u32, by: &str) -> String {
        let Self { before, yaml, after } = self;
        let lines: Vec<&str> = yaml.split_inclusive('\n').collect();
        let from = usize::try_from(line.saturating_sub(1)).unwrap_or_default();
        let outer = usize::try_from(column.saturating_sub(1)).unwrap_or_default();
        let indent = |line: &str| line.len().saturating_sub(line.trim_start_matches(' ').len());
        let mut to = from.saturating_add(1);
        for (at, line) in lines.iter().enumerate().skip(from.saturating_add(1)) {
            let blank = line.trim().is_empty();
            if !blank && indent(line) <= outer {
                break;
            }
            // What is blank belongs to what follows.
            if !blank {
                to = at.saturating_add(1);
            }
        }
        let part = |from: usize, to: usize| lines.get(from..to).unwrap_or_default().concat();
        format!("{before}{}{by}{}{after}", part(0, from), part(to, lines.len()))
    }
}

fn entries(node: Option<&Node>) -> &[(yaml::Key, Node)] {
    match node.map(|node| &node.value) {
        Some(Value::Map(entries)) => entries,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: [&str; 3] = ["mcp", "servers", "a"];
    const ENTRY: &str = "{ command: [\"b\"] }";

    fn added(yaml: &str) -> Result<String, String> {
        let new = add("harness.md", &format!("---\n{yaml}---\n\nProse.\n"), &PATH, ENTRY)?;
        Ok(new.strip_prefix("---\n").unwrap().strip_suffix("---\n\nProse.\n").unwrap().to_owned())
    }

    #[test]
    fn a_server_is_added_and_all_else_stays() {
        for (before, after) in [
            ("", "mcp:\n  servers:\n    a: { command: [\"b\"] }\n"),
            ("# one\nx: 1 # two\n", "# one\nx: 1 # two\nmcp:\n  servers:\n    a: { command: [\"b\"] }\n"),
            (
                "mcp: # here\n    # why\n    agents: [x]\ny: 2\n",
                "mcp: # here\n    servers:\n      a: { command: [\"b\"] }\n    # why\n    agents: [x]\ny: 2\n",
            ),
            (
                "mcp:\n  servers:\n    # other\n    z: { command: [c] }\n",
                "mcp:\n  servers:\n    a: { command: [\"b\"] }\n    # other\n    z: { command: [c] }\n",
            ),
        ] {
            assert_eq!(added(before), Ok(after.to_owned()));
            // And taken away again.
            let file = format!("---\n{after}---\n");
            assert_eq!(remove("harness.md", &file, &PATH), Ok(format!("---\n{before}---\n")));
        }
        assert_eq!(
            add("harness.md", "", &PATH, ENTRY),
            Ok("---\nmcp:\n  servers:\n    a: { command: [\"b\"] }\n---\n".to_owned())
        );
        assert_eq!(
            add("harness.yaml", "x: 1", &PATH, ENTRY),
            Ok("x: 1\nmcp:\n  servers:\n    a: { command: [\"b\"] }\n".to_owned())
        );
    }

    #[test]
    fn what_is_not_understood_is_left_alone() {
        assert_eq!(added("mcp:\n  servers: { a: { command: [c] } }\n"), Err("it has a server `a` already".to_owned()));
        assert_eq!(added("mcp: 1\n"), Err("it is not a mapping".to_owned()));
        assert!(added("mcp: [\n").is_err());
        let remove = |yaml: &str| remove("harness.yaml", yaml, &PATH);
        assert_eq!(remove("mcp:\n  servers:\n    b: { command: [c] }\n"), Err("it has no server `a`".to_owned()));
    }

    #[test]
    fn an_entry_is_added_in_braces_and_replaced() {
        for (before, after) in [
            ("mcp: { agents: [x] }\n", "mcp: { servers: { a: { command: [\"b\"] } }, agents: [x] }\n"),
            ("mcp: {} # why\n", "mcp: { servers: { a: { command: [\"b\"] } } } # why\n"),
            (
                "mcp:\n  servers: { z: { command: [c] } }\n",
                "mcp:\n  servers: { a: { command: [\"b\"] }, z: { command: [c] } }\n",
            ),
        ] {
            assert_eq!(added(before), Ok(after.to_owned()));
        }
        let path = ["sandbox", "sources", "plugins/acme"];
        let set = |yaml: &str| set("harness.yaml", yaml, &path, "{ env: [\"A\"] }");
        let before = "sandbox: # one\n  # two\n  sources: # three\n    plugins/acme: # four\n      fs: { read: [x] }\n    # five\n    plugins/b: {}\n";
        let after = "sandbox: # one\n  # two\n  sources: # three\n    plugins/acme: { env: [\"A\"] }\n    # five\n    plugins/b: {}\n";
        assert_eq!(set(before), Ok(after.to_owned()));
        assert_eq!(set(after), Ok(after.to_owned()));
        assert_eq!(set("sandbox: {}\n"), Ok("sandbox: { sources: { plugins/acme: { env: [\"A\"] } } }\n".to_owned()));
        for (before, after) in [
            ("{ plugins/acme: {}, plugins/b: {} }", "{ plugins/acme: { env: [\"A\"] }, plugins/b: {} }"),
            (
                "{ plugins/b: {}, plugins/acme: { fs: { read: [x] } } }",
                "{ plugins/acme: { env: [\"A\"] }, plugins/b: {} }",
            ),
        ] {
            let of = |sources: &str| format!("sandbox: {{ sources: {sources}, env: [A] }} # why\n");
            assert_eq!(set(&of(before)), Ok(of(after)));
        }
    }

    #[test]
    fn an_entry_in_braces_is_removed() {
        let remove = |yaml: &str| remove("harness.yaml", yaml, &PATH);
        for (before, after) in [
            ("mcp: { servers: { a: { command: [c] }, b: {} } } # x\n", "mcp: { servers: { b: {} } } # x\n"),
            ("mcp: { servers: { b: {}, a: { command: [c] } } }\n", "mcp: { servers: { b: {} } }\n"),
            ("mcp: { servers: { b: {}, a: [\"}, ,\"] , c: 1 } }\n", "mcp: { servers: { b: {}, c: 1 } }\n"),
            ("mcp:\n  servers: { b: {},\n    a: {\n      x: 1 } }\ny: 2\n", "mcp:\n  servers: { b: {} }\ny: 2\n"),
            ("mcp: { agents: [x], servers: { a: {} } }\n", "mcp: { agents: [x] }\n"),
            ("mcp: { \u{fc}: 1, servers: { a: {} } }\n", "mcp: { \u{fc}: 1 }\n"),
        ] {
            assert_eq!(remove(before), Ok(after.to_owned()), "{before}");
        }
    }

    #[test]
    fn an_entry_of_several_lines_is_removed_whole() {
        let before = "mcp:\n  servers:\n    a:\n      command:\n        - b\n\n      keep: call\n\n    # next\n    c: { command: [d] }\nx: 1\n";
        let after = "mcp:\n  servers:\n\n    # next\n    c: { command: [d] }\nx: 1\n";
        assert_eq!(remove("harness.yaml", before, &PATH), Ok(after.to_owned()));
    }
}
