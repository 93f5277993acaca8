//! `.mcp.json`: the servers that a plugin of another program would start or ask. Each becomes an entry of `mcp.servers` that
//! a person may consent to; until then it is text.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json, json};

use crate::policy::ProjectPolicy;
use crate::policy::mcp::is_server_name;
use harness_policy::text::quoted;

/// Servers of one file.
const MAX_SERVERS: usize = 32;

/// A server as a plugin names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its name, as a policy can have it.
    pub name: String,
    /// What it does and what it is given, in words that follow the name.
    pub words: String,
    /// Its entry in `mcp.servers`; or why it has none, in words that follow the name.
    pub entry: Result<Json, String>,
}

/// The servers of a file, in the order of their names.
pub(super) fn read(text: &[u8]) -> Vec<Server> {
    let all = of_file(text).unwrap_or_default();
    let mut servers: Vec<Server> = all.iter().take(MAX_SERVERS).map(|(name, of)| server(name, of)).collect();
    servers.sort_by(|one, other| one.name.cmp(&other.name));
    // Of two with one name, nobody could say which was consented to.
    servers.dedup_by(|other, one| {
        let is_same = one.name == other.name;
        if is_same {
            one.entry = Err("is there twice".to_owned());
        }
        is_same
    });
    servers
}

/// The servers of a file as they are written; none where it has none.
pub(super) fn of_file(text: &[u8]) -> Option<Map<String, Json>> {
    match serde_json::from_slice::<Json>(text).ok()? {
        Json::Object(mut file) => match file.shift_remove("mcpServers") {
            Some(Json::Object(servers)) => Some(servers),
            Some(_) => None,
            None => Some(file),
        },
        _ => None,
    }
}

fn text<'s>(of: &'s Json, key: &str) -> Option<&'s str> {
    of.get(key).and_then(Json::as_str)
}

fn server(written: &str, of: &Json) -> Server {
    let name = written.replace('-', "_").to_ascii_lowercase();
    let args = of.get("args").and_then(Json::as_array).into_iter().flatten();
    let command: Vec<&str> = text(of, "command").into_iter().chain(args.filter_map(Json::as_str)).collect();
    let what = match text(of, "url") {
        Some(url) => format!("is asked at {}", json!(url)),
        None => format!("runs {}", json!(command)),
    };
    let given = ["env", "headers"].map(|key| of.get(key).and_then(Json::as_object));
    let given: Vec<String> =
        given.into_iter().flatten().flatten().map(|(name, value)| format!("{name}={}", shown(value))).collect();
    let given = if given.is_empty() { String::new() } else { format!(", with {}", given.join(", ")) };
    let entry = entry(&name, of, &command);
    let variables = entry.as_ref().map(variables).unwrap_or_default();
    // A person could take `${NAME}` for the text itself.
    let variables = match variables.is_empty() {
        true => String::new(),
        false => format!(", and gets from this machine's environment {}", variables.join(", ")),
    };
    Server { name, words: format!("{what}{given}{variables}"), entry }
}

/// The variables of the host that an entry gives a server, each once.
fn variables(entry: &Json) -> Vec<String> {
    let values = ["env", "headers"].into_iter().filter_map(|key| entry.get(key)?.as_object());
    let texts = values.flat_map(Map::values).filter_map(Json::as_str);
    let names = texts.flat_map(|text| text.split("{env:").skip(1)).filter_map(|rest| rest.split_once('}'));
    let names: BTreeSet<&str> = names.map(|(name, _)| name).collect();
    names.into_iter().map(quoted).collect()
}

/// A value of a variable or a header.
fn shown(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| json!(text).to_string())
}

/// The entry of a server, if a policy can have it.
fn entry(name: &str, of: &Json, command: &[&str]) -> Result<Json, String> {
    if !is_server_name(name) {
        return Err(format!("has a name that no server can have: {}", quoted(name)));
    }
    let mut entry = Map::new();
    match (text(of, "url"), text(of, "command")) {
        (Some(url), None) if text(of, "type") != Some("sse") => {
            if !url.starts_with("https://") {
                return Err(format!("is asked at {}, and not over https", quoted(url)));
            }
            entry.insert("url".to_owned(), plain(url)?.into());
            values(of, "headers", &mut entry)?;
        }
        (None, Some(_)) => {
            let words = command.iter().map(|word| plain(word)).collect::<Result<Vec<_>, _>>()?;
            entry.insert("command".to_owned(), words.into());
            values(of, "env", &mut entry)?;
        }
        // What two files name in different ways.
        _ if of.is_null() => return Err("is named twice, with different contents".to_owned()),
        _ => return Err("has neither a command nor an address over HTTP".to_owned()),
    }
    let entry = Json::Object(entry);
    let policy = json!({"mcp": {"servers": {name: entry}}}).to_string();
    let (policy, diagnostics) = ProjectPolicy::parse("harness.yaml", &policy);
    match (policy, diagnostics.iter().next()) {
        (Some(_), _) => Ok(entry),
        (None, Some(wrong)) => Err(format!("has no entry that a policy can have: {}", wrong.message)),
        (None, None) => Err("has no entry that a policy can have".to_owned()),
    }
}

/// A word of a command, and an address: literally, without variables.
fn plain(text: &str) -> Result<&str, String> {
    match text.contains("${") {
        true if text.contains("CLAUDE_PLUGIN_ROOT") => Err("runs a file of the plugin, which stays behind".to_owned()),
        true => Err(format!("has a variable in {}, which an entry cannot have there", quoted(text))),
        false => Ok(text),
    }
}

fn values(of: &Json, key: &str, entry: &mut Map<String, Json>) -> Result<(), String> {
    let Some(values) = of.get(key).and_then(Json::as_object).filter(|values| !values.is_empty()) else { return Ok(()) };
    let mut read = Map::new();
    for (name, value) in values {
        let value = value.as_str().ok_or_else(|| format!("has a value of {} that is no text", quoted(name)))?;
        read.insert(name.clone(), template(name, value)?.into());
    }
    entry.insert(key.to_owned(), read.into());
    Ok(())
}

/// `${NAME}` is a variable of the host. A brace of any other kind could name a secret of the project.
fn template(name: &str, value: &str) -> Result<String, String> {
    let wrong = || Err(format!("has a value of {} with braces that are not `${{NAME}}`", quoted(name)));
    let (mut read, mut rest) = (String::new(), value);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((variable, after)) = after.split_once('}') else { return wrong() };
        let is_name = variable.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !variable.is_empty();
        if before.contains('{') || !is_name {
            return wrong();
        }
        read.push_str(&format!("{before}{{env:{variable}}}"));
        rest = after;
    }
    if rest.contains('{') {
        return wrong();
    }
    read.push_str(rest);
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(of: &str) -> Result<Json, String> {
        let servers = read(format!("{{\"mcpServers\":{{\"my-db\":{of}}}}}").as_bytes());
        assert_eq!((servers.len(), servers[0].name.as_str()), (1, "my_db"));
        servers[0].entry.clone()
    }

    #[test]
    fn entries_of_a_policy() {
        for (of, entry) in [
            (r#"{"command":"npx","args":["-y","db@1.2.3"]}"#, json!({"command": ["npx", "-y", "db@1.2.3"]})),
            (
                r#"{"command":"db","env":{"TOKEN":"a${MINE}b","PLAIN":"x"}}"#,
                json!({"command": ["db"], "env": {"TOKEN": "a{env:MINE}b", "PLAIN": "x"}}),
            ),
            (
                r#"{"type":"http","url":"https://a.example/mcp","headers":{"X-Key":"${KEY}"}}"#,
                json!({"url": "https://a.example/mcp", "headers": {"X-Key": "{env:KEY}"}}),
            ),
        ] {
            assert_eq!(one(of), Ok(entry), "{of}");
        }
    }

    #[test]
    fn what_no_entry_has() {
        for (of, why) in [
            (r#"{"command":"npx","args":["-y","db"]}"#, "without an exact version"),
            (r#"{"command":"${CLAUDE_PLUGIN_ROOT}/bin/x"}"#, "runs a file of the plugin, which stays behind"),
            (r#"{"command":"db","args":["${HOME}"]}"#, "has a variable in `${HOME}`"),
            (r#"{"command":"db","env":{"A":"{secret:TOKEN}"}}"#, "with braces that are not `${NAME}`"),
            (r#"{"command":"db","env":{"A":"{${X}secret:TOKEN}"}}"#, "with braces that are not `${NAME}`"),
            (r#"{"command":"db","env":{"A":"${X:-y}"}}"#, "with braces that are not `${NAME}`"),
            (r#"{"command":"db","env":{"A":1}}"#, "that is no text"),
            (r#"{"command":"db","env":{"LD_PRELOAD ":"x"}}"#, "has no entry that a policy can have: "),
            (r#"{"url":"http://127.0.0.1:9/mcp"}"#, "is asked at `http://127.0.0.1:9/mcp`, and not over https"),
            (r#"{"url":"https://"}"#, "has no entry that a policy can have: "),
            (r#"{"type":"sse","url":"https://a.example/mcp"}"#, "has neither a command nor an address over HTTP"),
            (r#"{"url":"https://a.example","command":"db"}"#, "has neither a command nor an address over HTTP"),
            ("{}", "has neither a command nor an address over HTTP"),
            ("7", "has neither a command nor an address over HTTP"),
        ] {
            let told = one(of).unwrap_err();
            assert!(told.contains(why), "{of}: {told}");
        }
        let twice = read(br#"{"a-b":{"command":"x"},"a_b":{"command":"y"}}"#);
        assert_eq!((twice.len(), twice[0].entry.clone()), (1, Err("is there twice".to_owned())));
        assert!(read(b"{").is_empty() && read(b"[]").is_empty());
        let odd = read(br#"{"\u001b[2J":{"command":"x"}}"#);
        assert!(odd[0].entry.as_ref().unwrap_err().starts_with("has a name that no server can have: "));
    }

    #[test]
    fn words() {
        let servers =
            read(br#"{"db":{"command":"db","args":["a b"],"env":{"T":"${X}"}},"web":{"url":"https://a.example/"}}"#);
        let words: Vec<&str> = servers.iter().map(|one| one.words.as_str()).collect();
        let runs = r#"runs ["db","a b"], with T="${X}", and gets from this machine's environment `X`"#;
        assert_eq!(words, [runs, r#"is asked at "https://a.example/""#]);
        let two = read(br#"{"web":{"url":"https://a.example/","headers":{"A":"${B} ${A}","C":"${B}","D":"plain"}}}"#);
        assert!(two[0].words.ends_with("\", and gets from this machine's environment `A`, `B`"), "{}", two[0].words);
        // One that is not started gets nothing.
        let none = read(br#"{"db":{"command":"db","env":{"T":"${X}","U":"{secret:S}"}}}"#);
        assert!(!none[0].words.contains("environment"), "{}", none[0].words);
    }
}
