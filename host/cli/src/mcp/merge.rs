//! Adds one server to a file of a client, as a change of the text: what else is there stays byte for byte, comments too.
//! The result is read again and compared, so that a file that is not understood is left alone.

use serde::Serialize as _;
use serde_json::{Value as Json, json};

/// What came of a merge.
#[derive(Debug, PartialEq)]
pub(super) enum Merged {
    /// The server is there already, as it is to be.
    Same,
    Text(String),
}

const OTHER: &str = "it has a server of this name that is set up otherwise";

/// Adds `entry` as `name` to the object `section` at the top of a JSON text.
///
/// # Errors
///
/// Why it was not added.
pub(super) fn json(text: &str, section: &str, name: &str, entry: &Json, comments: bool) -> Result<Merged, String> {
    let plain = if comments { Plain::of(text) } else { Plain::same(text) };
    let read = |text: &str| serde_json::from_str::<Json>(text).map_err(|error| format!("it is not JSON: {error}"));
    let mut want = read(&plain.text)?;
    let servers = want.as_object_mut().ok_or("it is not a JSON object")?;
    let servers = servers.entry(section).or_insert_with(|| json!({}));
    let servers = servers.as_object_mut().ok_or_else(|| format!("`{section}` is not an object"))?;
    match servers.get(name) {
        Some(there) if there == entry => return Ok(Merged::Same),
        Some(_) => return Err(OTHER.to_owned()),
        None => servers.insert(name.to_owned(), entry.clone()),
    };
    let top = Object::at(&plain.text, 0).ok_or("it cannot be followed")?;
    let unit = top.indentation(&plain.text);
    let found: Vec<&Member> = top.members.iter().filter(|member| member.key == section).collect();
    let new = match found.as_slice() {
        [] => top.with(text, &plain, section, &json!({name: entry}), &unit, 1),
        [one] => {
            let object = Object::at(&plain.text, one.value.0).ok_or("it cannot be followed")?;
            object.with(text, &plain, name, entry, &unit, 2)
        }
        _ => return Err(format!("`{section}` is there twice")),
    };
    let again = if comments { Plain::of(&new) } else { Plain::same(&new) };
    if read(&again.text)? == want { Ok(Merged::Text(new)) } else { Err("it cannot be changed safely".to_owned()) }
}

/// A text as plain JSON, with spaces for comments and for commas after a last value. Each byte that is left is where it
/// was.
struct Plain {
    text: String,
    /// Where those commas were.
    commas: Vec<usize>,
}

impl Plain {
    fn same(text: &str) -> Self {
        Self { text: text.to_owned(), commas: Vec::new() }
    }

    fn of(text: &str) -> Self {
        let mut commas = Vec::new();
        let mut bytes = text.as_bytes().to_vec();
        let mut at = 0;
        // Where a comma stands that nothing has followed yet.
        let mut comma = None;
        let blank = |bytes: &mut Vec<u8>, from: usize, to: usize| {
            for byte in bytes.get_mut(from..to).unwrap_or_default() {
                if !matches!(byte, b'\n' | b'\r') {
                    *byte = b' ';
                }
            }
        };
        let rest = |from: usize| text.as_bytes().get(from..).unwrap_or_default();
        let end_of =
            |from: usize, end: &[u8]| rest(from).windows(end.len()).position(|found| found == end).map(|to| from + to);
        while let Some(byte) = text.as_bytes().get(at) {
            match byte {
                b'"' => {
                    comma = None;
                    at = end_of_string(text.as_bytes(), at);
                    continue;
                }
                b'/' if rest(at).starts_with(b"//") => {
                    let to = end_of(at, b"\n").unwrap_or(text.len());
                    blank(&mut bytes, at, to);
                    at = to;
                    continue;
                }
                // One that does not end is left, so that the text is no JSON.
                b'/' if rest(at).starts_with(b"/*") => {
                    if let Some(to) = end_of(at + 2, b"*/") {
                        blank(&mut bytes, at, to + 2);
                        at = to + 2;
                        continue;
                    }
                }
                b',' => comma = Some(at),
                b'}' | b']' => {
                    if let Some(comma) = comma.take() {
                        blank(&mut bytes, comma, comma + 1);
                        commas.push(comma);
                    }
                }
                b' ' | b'\t' | b'\n' | b'\r' => {}
                _ => comma = None,
            }
            at += 1;
        }
        Self { text: String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned()), commas }
    }
}

/// The place after a string that begins at `at`.
fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// An object in a JSON text that is known to be one.
#[derive(Debug)]
struct Object {
    /// Where its brackets are.
    open: usize,
    close: usize,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    key: String,
    /// Where the key begins.
    at: usize,
    /// Where the value begins and ends.
    value: (usize, usize),
}

impl Object {
    /// The object that begins at `from`, after spaces.
    fn at(text: &str, from: usize) -> Option<Self> {
        let bytes = text.as_bytes();
        let next = |from: usize| {
            let spaces = bytes.get(from..)?.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            Some(from + spaces)
        };
        let open = next(from)?;
        let mut at = next(open + 1)?;
        let mut members = Vec::new();
        if bytes.get(open)? != &b'{' {
            return None;
        }
        while bytes.get(at)? != &b'}' {
            let end = end_of_string(bytes, at);
            let key = serde_json::from_str(text.get(at..end)?).ok()?;
            let begin = next(next(end)? + 1)?;
            let mut values = serde_json::Deserializer::from_str(text.get(begin..)?).into_iter::<Json>();
            values.next()?.ok()?;
            let value = (begin, begin + values.byte_offset());
            members.push(Member { key, at, value });
            at = next(value.1)?;
            if bytes.get(at)? == &b',' {
                at = next(at + 1)?;
            }
        }
        Some(Self { open, close: at, members })
    }

    /// What its members are indented with.
    fn indentation(&self, text: &str) -> String {
        let before = self.members.first().and_then(|member| text.get(..member.at)).unwrap_or_default();
        let line = before.rsplit_once('\n').map_or("", |(_, line)| line);
        if line.is_empty() || !line.trim().is_empty() { "  ".to_owned() } else { line.to_owned() }
    }

    /// The text with one more member at the object's end.
    fn with(&self, text: &str, plain: &Plain, key: &str, value: &Json, unit: &str, depth: usize) -> String {
        let line = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let (inner, outer) = (unit.repeat(depth), unit.repeat(depth - 1));
        let value = pretty(value, unit).replace('\n', &format!("{line}{inner}"));
        let member = format!("{line}{inner}{}: {value}", Json::from(key));
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
        // After the last comment.
        let before_end = part(0, self.close).trim_end().len().max(self.open + 1);
        let is_line_of_its_own = part(before_end, self.close).contains('\n');
        let end = if is_line_of_its_own { part(before_end, self.close).to_owned() } else { format!("{line}{outer}") };
        let last = self.members.last().map(|member| member.value.1);
        let Some(last) = last else {
            return format!("{}{member}{end}{}", part(0, before_end), part(self.close, text.len()));
        };
        // One that was there stays: then there is one after the new member too.
        let has_comma = plain.commas.iter().any(|comma| (last..self.close).contains(comma));
        let (comma, after) = if has_comma { ("", ",") } else { (",", "") };
        let rest = part(self.close, text.len());
        format!("{}{comma}{}{member}{after}{end}{rest}", part(0, last), part(last, before_end))
    }
}

fn pretty(value: &Json, unit: &str) -> String {
    let mut bytes = Vec::new();
    let form = serde_json::ser::PrettyFormatter::with_indent(unit.as_bytes());
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, form);
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8(bytes).unwrap_or_default(),
        Err(_) => value.to_string(),
    }
}

/// The server as a table of TOML. Strings of JSON are strings of TOML.
pub(super) fn toml_table(section: &str, name: &str, entry: &Json) -> String {
    let lines = entry.as_object().into_iter().flatten().map(|(key, value)| format!("{key} = {value}\n"));
    format!("[{section}.{name}]\n{}", lines.collect::<String>())
}

/// Adds `entry` as the table `section.name` at the end of a TOML text.
///
/// # Errors
///
/// Why it was not added.
pub(super) fn toml(text: &str, section: &str, name: &str, entry: &Json) -> Result<Merged, String> {
    let read = |text: &str| {
        let table: toml::Table =
            toml::from_str(text).map_err(|error| format!("it is not TOML: {}", error.message()))?;
        serde_json::to_value(table).map_err(|error| error.to_string())
    };
    let mut want = read(text)?;
    let servers = want.as_object_mut().ok_or("it is not TOML")?.entry(section).or_insert_with(|| json!({}));
    let servers = servers.as_object_mut().ok_or_else(|| format!("`{section}` is not a table"))?;
    match servers.get(name) {
        Some(there) if there == entry => return Ok(Merged::Same),
        Some(_) => return Err(OTHER.to_owned()),
        None => servers.insert(name.to_owned(), entry.clone()),
    };
    let line = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let end = if text.ends_with('\n') { "" } else { line };
    let new = format!("{text}{end}{line}{}", toml_table(section, name, entry).replace('\n', line));
    match read(&new) {
        Ok(again) if again == want => Ok(Merged::Text(new)),
        _ => Err(format!("`{section}` is written as one value, to which no table can be added")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Json {
        json!({"command": "harness", "args": ["a"]})
    }

    fn merged(text: &str) -> String {
        match json(text, "servers", "it", &entry(), true) {
            Ok(Merged::Text(text)) => text,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn an_entry_is_added_at_the_end_and_everything_else_stays() {
        let added = "\"it\": {\n      \"command\": \"harness\",\n      \"args\": [\n        \"a\"\n      ]\n    }";
        let cases = [
            ("{}", format!("{{\n  \"servers\": {{\n    {added}\n  }}\n}}")),
            ("{\n  \"servers\": {}\n}\n", format!("{{\n  \"servers\": {{\n    {added}\n  }}\n}}\n")),
            (
                "// top\n{\n  \"a\": [1, 2,], // one\n  \"servers\": {\n    \"b\": {\"x\": \"}//,\"} // two\n    /* three */\n  }, // four\n}",
                format!(
                    "// top\n{{\n  \"a\": [1, 2,], // one\n  \"servers\": {{\n    \"b\": {{\"x\": \"}}//,\"}}, // two\n    /* three */\n    {added}\n  }}, // four\n}}"
                ),
            ),
            (
                "{\n  \"servers\": {\n    \"b\": 1, // two,\n  }\n}",
                format!("{{\n  \"servers\": {{\n    \"b\": 1, // two,\n    {added},\n  }}\n}}"),
            ),
        ];
        for (text, want) in cases {
            assert_eq!(merged(text), want);
            assert_eq!(json(&want, "servers", "it", &entry(), true), Ok(Merged::Same));
        }
    }

    #[test]
    fn indentation_and_ends_of_lines_are_those_of_the_file() {
        let tabs = merged("{\r\n\t\"a\": 1\r\n}\r\n");
        assert!(
            tabs.starts_with("{\r\n\t\"a\": 1,\r\n\t\"servers\": {\r\n\t\t\"it\": {\r\n\t\t\t\"command\""),
            "{tabs:?}"
        );
        assert!(tabs.ends_with("\r\n\t}\r\n}\r\n") && !tabs.replace("\r\n", "").contains('\n'), "{tabs:?}");
    }

    #[test]
    fn what_cannot_be_kept_is_left_alone() {
        let comments = [("[]", "not a JSON object"), ("{", "not JSON"), ("{\"servers\": []}", "not an object")];
        let more =
            [("{\"servers\": {\"it\": 1}}", "set up otherwise"), ("{\"servers\": {}, \"servers\": {}}", "twice")];
        for (text, why) in comments.into_iter().chain(more).chain([("{} /* x", "not JSON"), ("{,}", "not JSON")]) {
            let failed = json(text, "servers", "it", &entry(), true).unwrap_err();
            assert!(failed.contains(why), "{text}: {failed}");
        }
        assert!(json("{} // x", "servers", "it", &entry(), false).unwrap_err().contains("not JSON"));
        for (text, why) in [
            ("a = ", "not TOML"),
            ("servers = 1", "not a table"),
            ("servers = { a = { b = 1 } }", "one value"),
            ("[servers.it]\na = 1", "set up otherwise"),
        ] {
            let failed = toml(text, "servers", "it", &entry()).unwrap_err();
            assert!(failed.contains(why), "{text}: {failed}");
        }
    }

    #[test]
    fn a_table_is_added_at_the_end() {
        let text = "# of mine\nmodel = 'x' # kept\n\n[servers.other]\ncommand = \"y\"";
        let Ok(Merged::Text(new)) = toml(text, "servers", "it", &entry()) else { panic!() };
        assert_eq!(new, format!("{text}\n\n[servers.it]\ncommand = \"harness\"\nargs = [\"a\"]\n"));
        assert_eq!(toml(&new, "servers", "it", &entry()), Ok(Merged::Same));
    }
}
