//! Replies of a scripted model: a YAML list, for trying, testing and showing an agent without a network or a key.
//!
//! ```yaml
//! - tool_calls: [{ name: read_file, args: { path: config.yaml } }]
//! - expect: "port: 8080"
//!   text: It is 8080.
//! - agent: researcher
//!   text: Nothing was found.
//! - error: the service is down
//! ```

use serde_json::{Map, Value as Json};

use super::decode::{Decoder, Field, Unknown};
use super::diagnostic::{Diagnostics, Position};
use super::json;
use super::yaml;

/// One reply.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptedReply {
    /// The sub-agent that gets it; none: the root.
    pub agent: Option<String>,
    /// What the last message must hold.
    pub expect: Option<String>,
    /// What the model does.
    pub does: Does,
    /// Where it stands.
    pub position: Position,
}

/// What a reply is.
#[derive(Debug, Clone, PartialEq)]
pub enum Does {
    /// It answers: with text, with calls, or with both.
    Answer {
        /// What it says.
        text: String,
        /// Names and arguments of what it calls, in order.
        calls: Vec<(String, Map<String, Json>)>,
        /// The word of chat completions for why it ends; what its parts say where there is none.
        finish: Option<String>,
    },
    /// The service fails with this message.
    Fail(String),
}

/// Reads a list of replies. `file` is for messages. The replies are there only if nothing is wrong; the diagnostics hold
/// everything that is, and warnings.
pub fn parse(file: &str, text: &str) -> (Option<Vec<ScriptedReply>>, Diagnostics) {
    let name = file.rsplit('/').next().unwrap_or(file);
    let mut decoder = Decoder::new(file, format!("parse {name}"));
    let (root, errors) = yaml::parse(text, 1);
    decoder.yaml_errors(errors);
    let replies = root.and_then(|root| {
        let field = Field { path: "replies".to_owned(), key: None, node: &root };
        let items = decoder.list(&field)?;
        items.iter().map(|item| reply(&mut decoder, item)).collect::<Vec<_>>().into_iter().collect()
    });
    let diagnostics = decoder.into_diagnostics();
    (replies.filter(|_| !diagnostics.has_errors()), diagnostics)
}

fn reply(decoder: &mut Decoder, item: &Field<'_>) -> Option<ScriptedReply> {
    let position = decoder.position(item.span());
    let mut fields = decoder.mapping(item)?;
    let string = |decoder: &mut Decoder, field: Option<Field<'_>>| decoder.string(&field?).map(str::to_owned);
    let agent = string(decoder, fields.optional("agent"));
    let expect = string(decoder, fields.optional("expect"));
    let error = string(decoder, fields.optional("error"));
    let (text_field, calls_field) = (fields.optional("text"), fields.optional("tool_calls"));
    let finish = string(decoder, fields.optional("finish_reason"));
    let text = string(decoder, text_field.clone());
    let calls = calls_field.clone().and_then(|field| calls(decoder, &field));
    decoder.finish(fields, Unknown::Refuse);
    let does = match (error, text_field.is_some() || calls_field.is_some()) {
        (Some(message), false) => Does::Fail(message),
        (None, true) => Does::Answer { text: text.unwrap_or_default(), calls: calls.unwrap_or_default(), finish },
        (Some(_), true) => {
            decoder.error(item, "a reply has `error`, or `text` and `tool_calls`, not both".to_owned());
            return None;
        }
        (None, false) => {
            let hint =
                Some("write `text: ...`, `tool_calls: [{ name: ..., args: { ... } }]` or `error: ...`".to_owned());
            decoder.error_with(item, "a reply has neither `text`, `tool_calls` nor `error`".to_owned(), hint);
            return None;
        }
    };
    Some(ScriptedReply { agent, expect, does, position })
}

fn calls(decoder: &mut Decoder, field: &Field<'_>) -> Option<Vec<(String, Map<String, Json>)>> {
    let items = decoder.list(field)?;
    let calls: Vec<Option<(String, Map<String, Json>)>> = items.iter().map(|item| call(decoder, item)).collect();
    calls.into_iter().collect()
}

fn call(decoder: &mut Decoder, item: &Field<'_>) -> Option<(String, Map<String, Json>)> {
    let mut fields = decoder.mapping(item)?;
    let name = fields.optional("name").and_then(|f| decoder.string(&f).map(str::to_owned));
    let args = match fields.optional("args") {
        None => Some(Map::new()),
        Some(field) => match json::value(decoder, &field) {
            Some(Json::Object(args)) => Some(args),
            Some(_) => {
                decoder.error(&field, format!("`{}` must be a mapping", field.path));
                None
            }
            None => None,
        },
    };
    decoder.finish(fields, Unknown::Refuse);
    match name.filter(|name| !name.is_empty()) {
        Some(name) => Some((name, args?)),
        None => {
            decoder.error(item, format!("`{}` has no `name`", item.path));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_kinds() {
        let text = "- tool_calls: [{ name: read_file, args: { path: a } }, { name: done }]\n  text: Let me see.\n- expect: 8080\n  text: yes\n- agent: r\n  error: down\n- { text: cut, finish_reason: length }\n";
        let (_, wrong) = parse("replies.yaml", text);
        let shown: Vec<String> =
            wrong.iter().map(|d| format!("{}: {}", d.position.as_ref().unwrap(), d.message)).collect();
        assert_eq!(
            shown,
            [
                "replies.yaml:3:11: parse replies.yaml: yaml: line 3: `replies[1].expect` must be a string, found an integer"
            ]
        );
        let (replies, diagnostics) = parse("replies.yaml", &text.replace("8080", "'8080'"));
        assert_eq!(diagnostics.iter().count(), 0);
        let seen: Vec<_> = replies.unwrap().into_iter().map(|r| (r.agent, r.expect, r.does)).collect();
        let args = |value: Json| value.as_object().unwrap().clone();
        let answer = |text: &str, calls, finish: Option<&str>| Does::Answer {
            text: text.to_owned(),
            calls,
            finish: finish.map(str::to_owned),
        };
        let calls = vec![("read_file".to_owned(), args(json!({"path": "a"}))), ("done".to_owned(), Map::new())];
        assert_eq!(
            seen,
            [
                (None, None, answer("Let me see.", calls, None)),
                (None, Some("8080".to_owned()), answer("yes", Vec::new(), None)),
                (Some("r".to_owned()), None, Does::Fail("down".to_owned())),
                (None, None, answer("cut", Vec::new(), Some("length"))),
            ]
        );
    }

    #[test]
    fn everything_that_is_wrong() {
        let text = "- {}\n- { text: a, error: b }\n- tool_calls: [{ args: {} }]\n- tool_calls: [{ name: a, args: 7 }]\n- { txt: a, text: b }\n- 7\n";
        let (replies, wrong) = parse("replies.yaml", text);
        assert_eq!(replies, None);
        let shown: Vec<String> =
            wrong.iter().map(|d| format!("{}: {}", d.position.as_ref().unwrap(), d.message)).collect();
        insta::assert_snapshot!(shown.join("\n"), @"
        replies.yaml:1:3: a reply has neither `text`, `tool_calls` nor `error`
        replies.yaml:2:3: a reply has `error`, or `text` and `tool_calls`, not both
        replies.yaml:3:16: `replies[2].tool_calls[0]` has no `name`
        replies.yaml:4:33: `replies[3].tool_calls[0].args` must be a mapping
        replies.yaml:5:5: unknown key `replies[4].txt`
        replies.yaml:6:3: parse replies.yaml: yaml: line 6: `replies[5]` must be a mapping, found an integer
        ");
    }
}
