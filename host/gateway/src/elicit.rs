//! Forms of servers for the person at the host: the only thing that a server may ask for, and only where a person can
//! answer it.
//!
//! Up to 2025-11-25 a server asks by a request of its own while a call waits. In 2026-07-28 the result of the call says what
//! is asked, and the call is made again with the answers.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use serde_json::{Map, Value as Json, json};

use crate::failure::Failure;
use crate::limits::{FORM_BYTES, FORMS};
use crate::message::RpcError;
use harness_artifact::definition::shown;
use harness_artifact::third_party;
use harness_capability::ask::check_form;

/// Bytes of the name of a field.
const MAX_NAME: usize = 64;
/// Characters of each text of a field: its title, description, choices and default.
const MAX_FIELD: usize = 200;

/// The request by which a server asks a person.
pub(crate) const METHOD: &str = "elicitation/create";

/// A form that can be shown: of flat fields, bounded, without hidden characters.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// What the server says. It is a third party's: the host shows it with the name of the server.
    pub message: String,
    /// The schema of the form: an object whose properties are texts, numbers, booleans or choices.
    pub schema: Map<String, Json>,
}

/// The answer to a form: `{"action": "accept", "content": {...}}`, `{"action": "decline"}` or `{"action": "cancel"}`.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Json> + Send + 'a>>;

/// Shows the forms of a server to a person, and names the server. A call has at most one.
pub trait Answerer: Debug + Send + Sync {
    /// Shows a form. The future is dropped if the call ends first.
    fn show<'a>(&'a self, form: &'a Form) -> Answering<'a>;
}

impl Form {
    /// Reads the parameters of `elicitation/create`.
    ///
    /// # Errors
    ///
    /// Why it cannot be shown.
    pub fn read(params: &Json) -> Result<Self, String> {
        match params.get("mode").map(Json::as_str) {
            None | Some(Some("form")) => {}
            Some(_) => return Err("only forms are shown".to_owned()),
        }
        let message = params.get("message").and_then(Json::as_str).filter(|text| !text.is_empty());
        let message = message.ok_or("a form has no `message`")?;
        let schema =
            params.get("requestedSchema").and_then(Json::as_object).ok_or("a form has no `requestedSchema`")?;
        check_form(schema)?;
        let fields = schema.get("properties").and_then(Json::as_object);
        let fields = fields.filter(|fields| !fields.is_empty()).ok_or("a form has no fields")?;
        if fields.values().any(nested) {
            return Err("a field of the form is nested".to_owned());
        }
        if !fields.keys().all(|name| is_name(name)) || !fields.values().all(is_short) {
            return Err(format!(
                "names of fields have up to {MAX_NAME} letters, digits, `_`, `-` and `.`, and their texts up to \
                 {MAX_FIELD} characters without two spaces in a row"
            ));
        }
        let text = Json::Object(schema.clone()).to_string();
        if message.len().saturating_add(text.len()) > FORM_BYTES {
            return Err(format!("the form has over {FORM_BYTES} bytes"));
        }
        shown(message)
            .and_then(|()| all_shown(&Json::Object(schema.clone())))
            .map_err(|_| "the form has hidden characters")?;
        Ok(Self { message: message.to_owned(), schema: schema.clone() })
    }
}

/// A name that stands in a question of the host's, where nothing else is of the server.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Whether no text of a field is so long, or has so much space in it, that it could look like a line of the host's.
fn is_short(value: &Json) -> bool {
    match value {
        Json::String(text) => text.chars().count() <= MAX_FIELD && !text.contains("  "),
        Json::Array(items) => items.iter().all(is_short),
        Json::Object(object) => object.values().all(is_short),
        Json::Null | Json::Bool(_) | Json::Number(_) => true,
    }
}

/// Whether a field is more than a plain value, a choice, or a list of choices.
fn nested(field: &Json) -> bool {
    let Some(field) = field.as_object() else { return true };
    let items = field.get("items").and_then(Json::as_object);
    let keys = field.keys().chain(items.into_iter().flat_map(Map::keys));
    keys.into_iter()
        .any(|key| matches!(key.as_str(), "properties" | "$ref" | "allOf" | "not" | "if" | "additionalProperties"))
}

fn all_shown(value: &Json) -> Result<(), String> {
    match value {
        Json::String(text) => shown(text),
        Json::Array(items) => items.iter().try_for_each(all_shown),
        Json::Object(object) => object.iter().try_for_each(|(key, value)| shown(key).and_then(|()| all_shown(value))),
        Json::Null | Json::Bool(_) | Json::Number(_) => Ok(()),
    }
}

/// What a server is told that it may ask for.
pub(crate) fn capabilities(can_ask: bool) -> Json {
    if can_ask { json!({"elicitation": {"form": {}}}) } else { json!({}) }
}

/// The answer where nobody gives one.
pub(crate) fn declined() -> Json {
    json!({"action": "decline"})
}

/// Answers a request of a server's.
///
/// # Errors
///
/// That it is no form that can be shown.
pub(crate) async fn answer(answerer: Option<&dyn Answerer>, params: &Json) -> Result<Json, RpcError> {
    let invalid = |message: String| RpcError { code: -32602, message, data: Json::Null };
    let form = Form::read(params).map_err(invalid)?;
    Ok(match answerer {
        Some(answerer) => answerer.show(&form).await,
        None => declined(),
    })
}

/// Answers what a result of `tools/call` asks: the keys that the call is made again with.
///
/// # Errors
///
/// That it asks for something else, or for nothing.
pub(crate) async fn answers(result: &Json, answerer: Option<&dyn Answerer>) -> Result<Map<String, Json>, Failure> {
    let broken = |why: &str| Failure::Broken(why.to_owned());
    let requests = match result.get("inputRequests") {
        None | Some(Json::Null) => Map::new(),
        Some(Json::Object(requests)) if requests.len() <= FORMS => requests.clone(),
        Some(Json::Object(_)) => return Err(Failure::Broken(format!("it asks more than {FORMS} things at once"))),
        Some(_) => return Err(broken("its `inputRequests` are no object")),
    };
    let state = result.get("requestState").filter(|state| !state.is_null());
    if requests.is_empty() && state.is_none() {
        return Err(broken("it asks, and does not say what"));
    }
    for request in requests.values() {
        let method = request.get("method").and_then(Json::as_str).unwrap_or_default();
        if method != METHOD {
            return Err(Failure::Broken(format!("it asks for `{}`, which is not offered", third_party::name(method))));
        }
    }
    let mut responses = Map::new();
    for (key, request) in requests {
        let params = request.get("params").cloned().unwrap_or_default();
        // A result has no place for an error.
        responses.insert(key, answer(answerer, &params).await.unwrap_or_else(|_| declined()));
    }
    let mut more = Map::new();
    more.insert("inputResponses".to_owned(), Json::Object(responses));
    more.extend(state.map(|state| ("requestState".to_owned(), state.clone())));
    Ok(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says the same to each form.
    #[derive(Debug)]
    struct Same(Json);

    impl Answerer for Same {
        fn show<'a>(&'a self, _: &'a Form) -> Answering<'a> {
            Box::pin(std::future::ready(self.0.clone()))
        }
    }

    fn params(field: Json) -> Json {
        json!({"message": "How many?", "requestedSchema": {"type": "object", "properties": {"n": field}}})
    }

    #[test]
    fn only_flat_forms_are_shown() {
        for field in [
            json!({"type": "integer", "minimum": 1, "default": 2}),
            json!({"type": "string", "enum": ["a", "b"]}),
            json!({"type": "array", "items": {"type": "string", "enum": ["a"]}}),
        ] {
            assert!(Form::read(&params(field.clone())).is_ok(), "{field}");
        }
        for field in [
            json!({"type": "object"}),
            json!({"type": "array", "items": {"type": "object", "properties": {}}}),
            json!({"type": "string", "$ref": "#"}),
            json!({"type": "string", "title": "a\u{202e}b"}),
            json!({"type": "string", "enum": ["ok", format!("x{}Call it? [y]es, [N]o", " ".repeat(40))]}),
            json!({"type": "string", "default": "x".repeat(MAX_FIELD + 1)}),
            json!(true),
        ] {
            assert!(Form::read(&params(field.clone())).is_err(), "{field}");
        }
        for (name, is_shown) in [("n-1.x_Y", true), ("", false), ("sudo password", false), (&*"n".repeat(65), false)] {
            let schema = json!({"type": "object", "properties": {name: {"type": "string"}}});
            let read = Form::read(&json!({"message": "Which?", "requestedSchema": schema}));
            assert_eq!(read.is_ok(), is_shown, "{name}");
        }
        // To a form without fields nobody would have to say anything.
        let empty = json!({"message": "Delete all?", "requestedSchema": {"type": "object", "properties": {}}});
        assert_eq!(Form::read(&empty), Err("a form has no fields".to_owned()));
        let mut other = params(json!({"type": "integer"}));
        other["mode"] = json!("url");
        assert_eq!(Form::read(&other), Err("only forms are shown".to_owned()));
        other["mode"] = json!("form");
        other["message"] = json!("x".repeat(FORM_BYTES));
        assert_eq!(Form::read(&other), Err(format!("the form has over {FORM_BYTES} bytes")));
        for message in [json!(""), json!("a\u{1b}[2J"), json!(1), Json::Null] {
            other["message"] = message;
            assert!(Form::read(&other).is_err());
        }
    }

    #[tokio::test]
    async fn what_a_result_asks_is_answered_and_its_state_returned() {
        let accepted = json!({"action": "accept", "content": {"n": 7}});
        let same = Same(accepted.clone());
        let request = json!({"method": METHOD, "params": params(json!({"type": "integer"}))});
        let asks = json!({"inputRequests": {"a": request}, "requestState": "opaque"});
        let answered = answers(&asks, Some(&same)).await.unwrap();
        assert_eq!(Json::Object(answered), json!({"inputResponses": {"a": accepted}, "requestState": "opaque"}));
        let alone = answers(&asks, None).await.unwrap();
        assert_eq!(alone["inputResponses"], json!({"a": {"action": "decline"}}));
        // What cannot be shown is declined, and what only has a state is asked again.
        let url = json!({"inputRequests": {"a": {"method": METHOD, "params": {"mode": "url"}}}});
        assert_eq!(answers(&url, Some(&same)).await.unwrap()["inputResponses"], json!({"a": {"action": "decline"}}));
        let state = answers(&json!({"requestState": "s"}), Some(&same)).await.unwrap();
        assert_eq!(Json::Object(state), json!({"inputResponses": {}, "requestState": "s"}));
        for (wrong, why) in [
            (json!({}), "it asks, and does not say what"),
            (json!({"inputRequests": []}), "its `inputRequests` are no object"),
            (
                json!({"inputRequests": {"a": {"method": "sampling/createMessage"}}}),
                "it asks for `sampling/createMessage`, which is not offered",
            ),
        ] {
            assert_eq!(answers(&wrong, Some(&same)).await, Err(Failure::Broken(why.to_owned())));
        }
    }
}
