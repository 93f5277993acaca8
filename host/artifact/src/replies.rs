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

use super::data::Data;
use super::decode::{Decoder, Field};
use super::diagnostic::{Diagnostics, Position};
use super::keys::{self, Unknown, keys};
use super::shape::{Read, Schema, Shape};
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
        Vec::read(&mut decoder, &field)
    });
    let diagnostics = decoder.into_diagnostics();
    (replies.filter(|_| !diagnostics.has_errors()), diagnostics)
}

keys! {
    /// The keys of one reply.
    ReplyKeys: Unknown::Refuse;
    /// The sub-agent that gets it; without one, the root.
    optional agent: String;
    /// What the last message must hold.
    optional expect: String;
    /// What the service says, where it fails.
    optional error: String;
    /// What the model says.
    optional text: String;
    /// What it calls, in order.
    optional tool_calls: Vec<ScriptedCall>;
    /// The word of chat completions for why it ends; what its parts say where there is none.
    optional finish_reason: String;
}

keys! {
    /// The keys of one call.
    CallKeys: Unknown::Refuse;
    /// The name of the tool.
    required name: String;
    /// The arguments.
    optional args: Data;
}

impl Shape for ScriptedReply {
    fn schema() -> Schema {
        keys::schema::<ReplyKeys<'_>>()
    }
}

impl Read for ScriptedReply {
    fn read(decoder: &mut Decoder, item: &Field<'_>) -> Option<Self> {
        let position = decoder.position(item.span());
        let keys: ReplyKeys<'_> = decoder.keys(item)?;
        let (agent, expect) = (keys.agent.read(decoder), keys.expect.read(decoder));
        let (error, finish) = (keys.error.read(decoder), keys.finish_reason.read(decoder));
        let (text, calls) = (keys.text.read(decoder), keys.tool_calls.read(decoder));
        let answers = keys.text.field().is_some() || keys.tool_calls.field().is_some();
        let does = match (error, answers) {
            (Some(message), false) => Does::Fail(message),
            (None, true) => {
                let calls = calls.unwrap_or_default().into_iter().map(|call| (call.name, call.args)).collect();
                Does::Answer { text: text.unwrap_or_default(), calls, finish }
            }
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
        Some(Self { agent, expect, does, position })
    }
}

/// A call that a reply makes.
struct ScriptedCall {
    name: String,
    args: Map<String, Json>,
}

impl Shape for ScriptedCall {
    fn schema() -> Schema {
        keys::schema::<CallKeys<'_>>()
    }
}

impl Read for ScriptedCall {
    fn read(decoder: &mut Decoder, item: &Field<'_>) -> Option<Self> {
        let keys: CallKeys<'_> = decoder.keys(item)?;
        let args = match keys.args.field() {
            None => Some(Map::new()),
            Some(field) => match keys.args.read(decoder).map(|args| args.0) {
                Some(Json::Object(args)) => Some(args),
                Some(_) => {
                    decoder.error(field, format!("`{}` must be a mapping", field.path));
                    None
                }
                None => None,
            },
        };
        match keys.name.read(decoder).filter(|name| !name.is_empty()) {
            Some(name) => Some(Self { name, args: args? }),
            None => {
                decoder.error(item, format!("`{}` has no `name`", item.path));
                None
            }
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
