//! The interface `ask`: questions of a script to the client that has asked for its call.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use wasmtime::component::{ComponentType, Lower};

use super::denial::Denial;
use harness_policy::layer::Service;

/// Questions that are asked at once.
pub const MAX_QUESTIONS: usize = 16;
/// Bytes of all questions together, as JSON.
pub const MAX_ASKED: usize = 256 << 10;
/// Bytes of all answers together, as JSON.
pub const MAX_ANSWERED: usize = 1 << 20;
/// Tokens of a reply.
const MAX_TOKENS: u32 = 1_000_000;
/// Fields of a form.
const MAX_FIELDS: usize = 64;

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// The grant does not hold one of the questions.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
    /// Not questions. Carries what is wrong.
    #[component(name = "invalid")]
    Invalid(String),
    /// Nobody can answer here. Carries why.
    #[component(name = "unavailable")]
    Unavailable(String),
    /// There is no answer. Carries why.
    #[component(name = "failed")]
    Failed(String),
}

/// One question, and the key by which the client knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// No two that are asked at once have the same.
    pub key: String,
    /// What is asked.
    pub question: Question,
}

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// A form for the person: `ask.user`.
    User {
        /// What the person is asked.
        message: String,
        /// The schema of the form: an object whose properties are texts, numbers, booleans or choices.
        schema: Map<String, Json>,
    },
    /// A request to the client's model: `ask.model`.
    Model {
        /// The conversation, oldest first; not empty.
        messages: Vec<Message>,
        /// What the model is told before it.
        system: Option<String>,
        /// Most tokens of the reply.
        max_tokens: u32,
    },
    /// The folders that the client works in: `ask.roots`.
    Roots,
}

/// A message for a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What.
    pub text: String,
}

/// Who says something to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person.
    User,
    /// The model itself.
    Assistant,
}

/// A question as scripts write it.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Written {
    User {
        user: String,
        schema: Map<String, Json>,
    },
    Model {
        model: Prompt,
        #[serde(default)]
        system: Option<String>,
        #[serde(default = "tokens")]
        max_tokens: u32,
    },
    Roots {
        roots: bool,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Messages(Vec<Message>),
}

fn tokens() -> u32 {
    1_000
}

impl Question {
    /// The word for whom it asks: that of its function in `ask`.
    pub fn whom(&self) -> &'static str {
        match self {
            Self::User { .. } => "user",
            Self::Model { .. } => "model",
            Self::Roots => "roots",
        }
    }

    /// The service of the policy that grants it.
    pub fn service(&self) -> Service {
        match self {
            Self::User { .. } => Service::AskUser,
            Self::Model { .. } => Service::AskModel,
            Self::Roots => Service::AskRoots,
        }
    }
}

/// Reads questions.
///
/// # Errors
///
/// What is wrong with the first that is none.
pub fn read(questions: &str) -> Result<Vec<Asked>, Error> {
    let invalid = |why: String| Error::Invalid(why);
    if questions.len() > MAX_ASKED {
        return Err(invalid(format!("the questions have {} bytes, more than {MAX_ASKED}", questions.len())));
    }
    let written: Vec<Json> =
        serde_json::from_str(questions).map_err(|_| invalid("the questions are not a list".to_owned()))?;
    if written.is_empty() || written.len() > MAX_QUESTIONS {
        return Err(invalid(format!("1 to {MAX_QUESTIONS} questions can be asked at once, not {}", written.len())));
    }
    let mut keys = BTreeSet::new();
    let mut asked = |(at, mut written): (usize, Json)| {
        let wrong = |why: &str| invalid(format!("question {at}: {why}"));
        let forms = "a question has `user` and `schema`, or `model` (with `system`, `max_tokens`), or `roots`";
        let key = match written.as_object_mut().and_then(|written| written.shift_remove("key")) {
            None => format!("q{}", at.saturating_add(1)),
            Some(Json::String(key)) if is_key(&key) => key,
            Some(_) => return Err(wrong("`key` must be 1 to 64 letters, digits, `_`, `-` and `.`")),
        };
        if !keys.insert(key.clone()) {
            return Err(wrong(&format!("another question has the key `{key}`")));
        }
        let written = serde_json::from_value(written).map_err(|_| wrong(forms))?;
        let question = checked(written).map_err(|why| wrong(&why))?;
        Ok(Asked { key, question })
    };
    written.into_iter().enumerate().map(&mut asked).collect()
}

fn is_key(key: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=64).contains(&key.len()) && key.bytes().all(is_plain)
}

fn checked(written: Written) -> Result<Question, String> {
    match written {
        Written::User { user, .. } if user.is_empty() => Err("the message is empty".to_owned()),
        Written::User { user, schema } => {
            check_form(&schema)?;
            Ok(Question::User { message: user, schema })
        }
        Written::Model { model, system, max_tokens } => {
            let messages = match model {
                Prompt::Text(text) => vec![Message { role: Role::User, text }],
                Prompt::Messages(messages) => messages,
            };
            if messages.is_empty() {
                return Err("there is no message".to_owned());
            }
            if max_tokens == 0 || max_tokens > MAX_TOKENS {
                return Err(format!("`max_tokens` must be from 1 to {MAX_TOKENS}"));
            }
            Ok(Question::Model { messages, system, max_tokens })
        }
        Written::Roots { roots: true } => Ok(Question::Roots),
        Written::Roots { roots: false } => Err("`roots` must be True".to_owned()),
    }
}

/// Checks that clients can show a form: an object without objects in it, of so many fields at most.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_form(schema: &Map<String, Json>) -> Result<(), String> {
    let wrong = || "the schema must be of an object, with `type` and `properties`".to_owned();
    if schema.get("type").and_then(Json::as_str) != Some("object") {
        return Err(wrong());
    }
    let fields = schema.get("properties").and_then(Json::as_object).ok_or_else(wrong)?;
    if fields.len() > MAX_FIELDS {
        return Err(format!("the form has {} fields, more than {MAX_FIELDS}", fields.len()));
    }
    for (name, field) in fields {
        let kind = field.get("type").and_then(Json::as_str);
        if !matches!(kind, Some("string" | "number" | "integer" | "boolean" | "array")) {
            return Err(format!("the field `{name}` must be a string, a number, an integer, a boolean or an array"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn questions_are_read() {
        let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let questions = json!([
            {"user": "Who?", "schema": schema, "key": "name"},
            {"model": "hi"},
            {"model": [{"role": "assistant", "text": "a"}, {"role": "user", "text": "b"}], "system": "s", "max_tokens": 7},
            {"roots": true},
        ]);
        let Json::Object(schema) = schema else { panic!() };
        let message = |role, text: &str| Message { role, text: text.to_owned() };
        let asked = |key: &str, question| Asked { key: key.to_owned(), question };
        assert_eq!(
            read(&questions.to_string()),
            Ok(vec![
                asked("name", Question::User { message: "Who?".to_owned(), schema }),
                asked(
                    "q2",
                    Question::Model { messages: vec![message(Role::User, "hi")], system: None, max_tokens: 1000 }
                ),
                asked(
                    "q3",
                    Question::Model {
                        messages: vec![message(Role::Assistant, "a"), message(Role::User, "b")],
                        system: Some("s".to_owned()),
                        max_tokens: 7,
                    }
                ),
                asked("q4", Question::Roots),
            ])
        );
    }

    #[test]
    fn what_is_none_is_said() {
        let forms =
            "question 0: a question has `user` and `schema`, or `model` (with `system`, `max_tokens`), or `roots`";
        let form = "question 0: the schema must be of an object, with `type` and `properties`";
        let tokens = "question 0: `max_tokens` must be from 1 to 1000000";
        for (questions, why) in [
            (json!([]), "1 to 16 questions can be asked at once, not 0"),
            (json!(vec![json!({"roots": true}); 17]), "1 to 16 questions can be asked at once, not 17"),
            (json!({}), "the questions are not a list"),
            (json!(["hi"]), forms),
            (json!([{"user": "a"}]), forms),
            (json!([{"roots": true, "more": 1}]), forms),
            (json!([{"model": [{"role": "system", "text": "a"}]}]), forms),
            (json!([{"user": "", "schema": {}}]), "question 0: the message is empty"),
            (json!([{"user": "a", "schema": {}}]), form),
            (json!([{"user": "a", "schema": {"type": "object"}}]), form),
            (
                json!([{"user": "a", "schema": {"type": "object", "properties": {"o": {"type": "object"}}}}]),
                "question 0: the field `o` must be a string, a number, an integer, a boolean or an array",
            ),
            (json!([{"model": []}]), "question 0: there is no message"),
            (json!([{"model": "a", "max_tokens": 0}]), tokens),
            (json!([{"model": "a", "max_tokens": 1_000_001}]), tokens),
            (
                json!([{"roots": true, "key": "a b"}]),
                "question 0: `key` must be 1 to 64 letters, digits, `_`, `-` and `.`",
            ),
            (json!([{"roots": true, "key": "q2"}, {"roots": true}]), "question 1: another question has the key `q2`"),
            (json!([{"roots": true}, {"roots": false}]), "question 1: `roots` must be True"),
        ] {
            assert_eq!(read(&questions.to_string()), Err(Error::Invalid(why.to_owned())), "{questions}");
        }
        let long = json!([{"model": "x".repeat(MAX_ASKED)}]).to_string();
        let why = format!("the questions have {} bytes, more than 262144", long.len());
        assert_eq!(read(&long), Err(Error::Invalid(why)));
    }
}
