//! Adds and removes one server in the text of a policy. Everything else stays byte for byte, comments too. The result is
//! read again and compared, so that a file that is not understood is left alone.

use harness_artifact::decode::{Decoder, Field};
use harness_artifact::yaml::{self, Node, Value};
use harness_artifact::{frontmatter, json};
use serde_json::{Map, Value as Json, json};

/// Why a file was left alone.
const UNSAFE: &str = "it cannot be changed safely";
const IN_BRACES: &str = "is written in braces: change it yourself";

/// The text of a policy with one more server. `entry` is its value as a line of YAML.
///
/// # Errors
///
/// Why it was not added.
pub(super) fn add(file: &str, text: &str, name: &str, entry: &str) -> Result<String, String> {
    let text = if text.trim().is_empty() && !is_yaml(file) { "---\n---\n" } else { text };
    let parts = Parts::of(file, text)?;
    let root = parts.root()?;
    let mut want = parts.json(root.as_ref())?;
    let value = Parts { before: "", yaml: entry, after: "" };
    let value = value.json(value.root()?.as_ref())?;
    let object = |value: &mut Json| match value {
        Json::Null => {
            *value = json!({});
            Ok(())
        }
        Json::Object(_) => Ok(()),
        _ => Err("it is not a mapping".to_owned()),
    };
    object(&mut want)?;
    let mcp = want.as_object_mut().ok_or(UNSAFE)?.entry("mcp").or_insert(Json::Null);
    object(mcp)?;
    let servers = mcp.as_object_mut().ok_or(UNSAFE)?.entry("servers").or_insert(Json::Null);
    object(servers)?;
    if servers.as_object_mut().ok_or(UNSAFE)?.insert(name.to_owned(), value).is_some() {
        return Err(format!("it has a server `{name}` already"));
    }
    let top = entries(root.as_ref());
    let mcp = top.iter().find(|(key, _)| key.text == "mcp");
    let servers = mcp.and_then(|(_, node)| entries(Some(node)).iter().find(|(key, _)| key.text == "servers"));
    let new = match (mcp, servers) {
        (None, _) => parts.with_line(None, &format!("mcp:\n  servers:\n    {name}: {entry}\n")),
        (Some((key, node)), None) => {
            let indent = parts.indent_in(node, key.span.start.column)?;
            parts.with_line(Some(key.span.start.line), &format!("{indent}servers:\n{indent}  {name}: {entry}\n"))
        }
        (Some(_), Some((key, node))) => {
            let indent = parts.indent_in(node, key.span.start.column)?;
            parts.with_line(Some(key.span.start.line), &format!("{indent}{name}: {entry}\n"))
        }
    };
    checked(file, new, &want)
}

/// The entry of a server in the text of a policy; none where it is not there.
pub(crate) fn entry(file: &str, text: &str, name: &str) -> Option<Map<String, Json>> {
    let parts = Parts::of(file, text).ok()?;
    let policy = parts.json(parts.root().ok()?.as_ref()).ok()?;
    policy.get("mcp")?.get("servers")?.get(name)?.as_object().cloned()
}

/// The text of a policy without a server.
///
/// # Errors
///
/// Why it was not removed.
pub(super) fn remove(file: &str, text: &str, name: &str) -> Result<String, String> {
    let parts = Parts::of(file, text)?;
    let root = parts.root()?;
    let mut want = parts.json(root.as_ref())?;
    let none = || format!("it has no server `{name}`");
    // What is then empty goes too.
    let (mut path, mut at) = (Vec::new(), root.as_ref());
    for key in ["mcp", "servers", name] {
        let all = entries(at);
        let found = all.iter().find(|(one, _)| one.text == key).ok_or_else(none)?;
        path.push((found, all.len()));
        at = Some(&found.1);
    }
    let alone = path.iter().rev().take_while(|(_, siblings)| *siblings == 1).count().min(2);
    let level = 2_usize.saturating_sub(alone);
    let key = path.get(level).map(|(entry, _)| &entry.0).ok_or(UNSAFE)?;
    let holder = match level {
        0 => root.as_ref(),
        other => path.get(other.saturating_sub(1)).map(|(entry, _)| &entry.1),
    };
    if holder.is_some_and(|holder| parts.is_in_braces(holder)) {
        return Err(format!("`mcp.servers` {IN_BRACES}"));
    }
    take(&mut want, &["mcp", "servers", name], level);
    let new = parts.without(key.span.start.line, key.span.start.column);
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
    fn indent_in(&self, node: &Node, column: u32) -> Result<String, String> {
        let deeper = column.saturating_add(1);
        let column = match &node.value {
            Value::Null => deeper,
            Value::Map(_) if self.is_in_braces(node) => return Err(format!("`mcp` {IN_BRACES}")),
            Value::Map(entries) => entries.first().map_or(deeper, |(key, _)| key.span.start.column.saturating_sub(1)),
            _ => return Err("`mcp` is not a mapping".to_owned()),
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

    /// The text without the entry whose key is there, and without what is further in than that.
    fn without(&self, line: u32, column: u32) -> String {
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
        let kept = lines.iter().enumerate().filter(|(at, _)| !(from..to).contains(at)).map(|(_, line)| *line);
        format!("{before}{}{after}", kept.collect::<String>())
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

    const ENTRY: &str = "{ command: [\"b\"] }";

    fn added(yaml: &str) -> Result<String, String> {
        let new = add("harness.md", &format!("---\n{yaml}---\n\nProse.\n"), "a", ENTRY)?;
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
            assert_eq!(remove("harness.md", &file, "a"), Ok(format!("---\n{before}---\n")));
        }
        assert_eq!(
            add("harness.md", "", "a", ENTRY),
            Ok("---\nmcp:\n  servers:\n    a: { command: [\"b\"] }\n---\n".to_owned())
        );
        assert_eq!(
            add("harness.yaml", "x: 1", "a", ENTRY),
            Ok("x: 1\nmcp:\n  servers:\n    a: { command: [\"b\"] }\n".to_owned())
        );
    }

    #[test]
    fn what_is_not_understood_is_left_alone() {
        assert_eq!(added("mcp: { agents: [x] }\n"), Err("`mcp` is written in braces: change it yourself".to_owned()));
        assert_eq!(added("mcp:\n  servers: { a: { command: [c] } }\n"), Err("it has a server `a` already".to_owned()));
        assert_eq!(added("mcp: 1\n"), Err("it is not a mapping".to_owned()));
        assert!(added("mcp: [\n").is_err());
        let remove = |yaml: &str| remove("harness.yaml", yaml, "a");
        assert_eq!(remove("mcp:\n  servers:\n    b: { command: [c] }\n"), Err("it has no server `a`".to_owned()));
        assert!(remove("mcp: { servers: { a: { command: [c] }, b: { command: [c] } } }\n").is_err());
    }

    #[test]
    fn an_entry_of_several_lines_is_removed_whole() {
        let before = "mcp:\n  servers:\n    a:\n      command:\n        - b\n\n      keep: call\n\n    # next\n    c: { command: [d] }\nx: 1\n";
        let after = "mcp:\n  servers:\n\n    # next\n    c: { command: [d] }\nx: 1\n";
        assert_eq!(remove("harness.yaml", before, "a"), Ok(after.to_owned()));
    }
}
