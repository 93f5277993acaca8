//! Questions of tools to the client: a form for its person, a request to its model, its folders.
//!
//! Up to 2025-11-25 the server asks while the call waits. In 2026-07-28 the answer to the call says what is asked, the call
//! is [parked](crate::parked), and the client sends the request again with the answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use harness_capability::ask::{Asked, Question};
use harness_dispatch::ask::{Answering, Respondent, Unanswered};
use hyper::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{ClientCapabilities, ErrorData, InputRequest, InputResponses, JsonObject, ServerRequest};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext, ServiceError};
use serde_json::{Value as Json, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::elicit;
use crate::http::replies::Exchange;
use crate::server::is_modern;

/// What a call asks, until it is answered.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) questions: Vec<Asked>,
    answer: oneshot::Sender<Vec<Json>>,
}

/// Answers the questions of one call.
#[derive(Debug)]
pub(crate) struct Questions {
    can: Vec<&'static str>,
    way: Way,
    /// What the client would have to declare for what was asked.
    missing: Mutex<ClientCapabilities>,
}

enum Way {
    /// While the call waits. Over HTTP the answer comes by itself.
    Now(Peer<RoleServer>, Option<Arc<Exchange>>),
    /// By the answer to the request that waits for the call.
    Again {
        open: mpsc::Sender<Open>,
        /// For all calls that wait for their clients.
        room: Arc<Semaphore>,
        /// Answers that came before their questions.
        early: Mutex<InputResponses>,
    },
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Now(..) => "Now",
            Self::Again { .. } => "Again",
        })
    }
}

impl Questions {
    /// For a call, and the questions that its client gets with the answer to its request.
    pub(crate) fn of(
        context: &RequestContext<RoleServer>,
        early: InputResponses,
        room: Arc<Semaphore>,
    ) -> (Arc<Self>, mpsc::Receiver<Open>) {
        let (open, opened) = mpsc::channel(1);
        let modern = is_modern(context);
        let exchange = exchange(context);
        let (declared, way) = match &exchange {
            _ if modern => (context.meta.client_capabilities(), Way::Again { open, room, early: Mutex::new(early) }),
            Some(there) => (Some(there.session.capabilities.clone()), Way::Now(context.peer.clone(), exchange.clone())),
            None => (context.client_capabilities(), Way::Now(context.peer.clone(), None)),
        };
        (Arc::new(Self { can: kinds(declared.as_ref()), way, missing: Mutex::default() }), opened)
    }

    /// That the client did not declare what the call has asked for, where that is so.
    pub(crate) fn undeclared(&self) -> Option<ErrorData> {
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (missing != ClientCapabilities::default()).then(|| ErrorData::missing_required_client_capability(missing))
    }

    /// Shows the client's person a form while the call waits. What the client has answered before does not count. None: it
    /// cannot be asked, or there is no answer.
    pub(crate) async fn form(&self, key: &str, message: String, schema: JsonObject) -> Option<Json> {
        let asked = Asked { key: key.to_owned(), question: Question::User { message, schema } };
        if !self.can.contains(&asked.question.whom()) {
            return None;
        }
        match &self.way {
            Way::Now(peer, exchange) => now(peer, exchange.as_deref(), &asked.question).await.ok(),
            Way::Again { open, room, .. } => again(open, room, vec![asked]).await.ok()?.pop(),
        }
    }

    fn decide(&self, questions: &[Asked]) -> Result<(), Unanswered> {
        for asked in questions {
            let whom = asked.question.whom();
            if self.can.contains(&whom) {
                continue;
            }
            let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
            if let Way::Again { .. } = self.way {
                match asked.question {
                    Question::User { .. } => missing.elicitation = Some(Default::default()),
                    Question::Model { .. } => missing.sampling = Some(Default::default()),
                    Question::Roots => missing.roots = Some(Default::default()),
                }
            }
            return Err(Unanswered::Unavailable(format!("the client of this call does not answer `ask.{whom}`")));
        }
        Ok(())
    }
}

impl Respondent for Questions {
    fn can(&self) -> Vec<&'static str> {
        self.can.clone()
    }

    fn ask<'a>(&'a self, questions: &'a [Asked]) -> Answering<'a> {
        Box::pin(async move {
            self.decide(questions)?;
            match &self.way {
                Way::Now(peer, exchange) => {
                    let mut answers = Vec::new();
                    for asked in questions {
                        answers.push(now(peer, exchange.as_deref(), &asked.question).await?);
                    }
                    Ok(answers)
                }
                Way::Again { open, room, early } => {
                    let known = read_all(questions, &early.lock().unwrap_or_else(PoisonError::into_inner));
                    if let Ok(answers) = known {
                        early.lock().unwrap_or_else(PoisonError::into_inner).clear();
                        return Ok(answers);
                    }
                    again(open, room, questions.to_vec()).await
                }
            }
        })
    }
}

/// What is known of the client of a request over HTTP.
pub(crate) fn exchange(context: &RequestContext<RoleServer>) -> Option<Arc<Exchange>> {
    context.extensions.get::<Parts>()?.extensions.get::<Arc<Exchange>>().cloned()
}

/// Asks while the call waits.
async fn now(peer: &Peer<RoleServer>, exchange: Option<&Exchange>, question: &Question) -> Result<Json, Unanswered> {
    let failed = |error: ServiceError| Unanswered::Failed(error.to_string());
    let request: ServerRequest = serde_json::from_value(written(question)).map_err(|_| unsayable())?;
    let answer = match exchange {
        None => serde_json::to_value(peer.send_request(request).await.map_err(failed)?).unwrap_or_default(),
        Some(exchange) => {
            let sent =
                peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await.map_err(failed)?;
            exchange.answer(sent.id.clone()).await.map_err(Unanswered::Failed)?
        }
    };
    read(question, &answer).map_err(Unanswered::Failed)
}

/// Asks by the answer to the request that waits for the call.
async fn again(
    open: &mpsc::Sender<Open>,
    room: &Arc<Semaphore>,
    questions: Vec<Asked>,
) -> Result<Vec<Json>, Unanswered> {
    let _place: OwnedSemaphorePermit = room
        .clone()
        .try_acquire_owned()
        .map_err(|_| Unanswered::Unavailable("too many calls wait for answers of their clients".to_owned()))?;
    let (answer, answered) = oneshot::channel();
    let gone = || Unanswered::Failed("the client is gone".to_owned());
    open.send(Open { questions, answer }).await.map_err(|_| gone())?;
    answered.await.map_err(|_| gone())
}

fn unsayable() -> Unanswered {
    Unanswered::Failed("clients cannot show this question".to_owned())
}

/// Whom a client answers for.
fn kinds(declared: Option<&ClientCapabilities>) -> Vec<&'static str> {
    let Some(declared) = declared else { return Vec::new() };
    let kinds = [
        ("user", elicit::asks(Some(declared.clone()))),
        ("model", declared.sampling.is_some()),
        ("roots", declared.roots.is_some()),
    ];
    kinds.into_iter().filter_map(|(whom, can)| can.then_some(whom)).collect()
}

impl Open {
    /// The questions as a client gets them.
    ///
    /// # Errors
    ///
    /// That one cannot be said in the protocol.
    pub(crate) fn requests(&self) -> Result<BTreeMap<String, InputRequest>, ErrorData> {
        let request = |asked: &Asked| {
            let request = serde_json::from_value(written(&asked.question));
            let request = request.map_err(|_| ErrorData::internal_error("a question cannot be sent", None))?;
            Ok((asked.key.clone(), request))
        };
        self.questions.iter().map(request).collect()
    }

    /// Gives the call what the client has answered, or this back where something is missing.
    pub(crate) fn answer(self, responses: &InputResponses) -> Result<(), Self> {
        match read_all(&self.questions, responses) {
            Ok(answers) => {
                // A call that is gone needs none.
                let _ = self.answer.send(answers);
                Ok(())
            }
            Err(_) => Err(self),
        }
    }
}

/// A question as the protocol has it.
fn written(question: &Question) -> Json {
    match question {
        Question::User { message, schema } => {
            json!({"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}})
        }
        Question::Model { messages, system, max_tokens } => {
            let messages: Vec<Json> = messages
                .iter()
                .map(|message| json!({"role": message.role, "content": {"type": "text", "text": message.text}}))
                .collect();
            let mut params = json!({"messages": messages, "maxTokens": max_tokens});
            if let (Some(system), Json::Object(params)) = (system, &mut params) {
                params.insert("systemPrompt".to_owned(), json!(system));
            }
            json!({"method": "sampling/createMessage", "params": params})
        }
        Question::Roots => json!({"method": "roots/list"}),
    }
}

fn read_all(questions: &[Asked], responses: &InputResponses) -> Result<Vec<Json>, String> {
    let answer = |asked: &Asked| {
        let response = responses.get(&asked.key).ok_or_else(|| format!("there is no answer to `{}`", asked.key))?;
        read(&asked.question, response)
    };
    questions.iter().map(answer).collect()
}

/// An answer as scripts get it. Errors: it is none to this question.
fn read(question: &Question, answer: &Json) -> Result<Json, String> {
    let text = |key: &str| answer.get(key).and_then(Json::as_str);
    match question {
        Question::User { .. } => match (text("action"), answer.get("content")) {
            (Some("accept"), Some(content @ Json::Object(_))) => Ok(json!({"action": "accept", "content": content})),
            (Some(action @ ("decline" | "cancel")), _) => Ok(json!({ "action": action })),
            _ => Err("the answer to a form has no `action`, or is accepted without `content`".to_owned()),
        },
        Question::Model { .. } => {
            let blocks = match answer.get("content") {
                Some(Json::Array(blocks)) => blocks.iter().collect(),
                Some(block) => vec![block],
                None => Vec::new(),
            };
            let is_text = |block: &&Json| block.get("type").and_then(Json::as_str) == Some("text");
            let texts = blocks.into_iter().filter(is_text).filter_map(|block| block.get("text").and_then(Json::as_str));
            let texts: Vec<&str> = texts.collect();
            let model = text("model").ok_or("the answer of a model has no `model`")?;
            if texts.is_empty() {
                return Err("the answer of a model has no text".to_owned());
            }
            Ok(json!({"text": texts.join("\n"), "model": model, "stop_reason": text("stopReason").unwrap_or_default()}))
        }
        Question::Roots => {
            let roots = answer.get("roots").and_then(Json::as_array).ok_or("the answer has no list `roots`")?;
            let root = |root: &Json| {
                let part = |key: &str| root.get(key).and_then(Json::as_str);
                let uri = part("uri").ok_or_else(|| "a root has no `uri`".to_owned())?;
                Ok(json!({"uri": uri, "name": part("name").unwrap_or_default()}))
            };
            roots.iter().map(root).collect::<Result<Vec<_>, String>>().map(Json::Array)
        }
    }
}

#[cfg(test)]
mod tests {
    use harness_capability::ask::{Message, Role};

    use super::*;

    fn form() -> Question {
        let Json::Object(schema) = json!({"type": "object", "properties": {"n": {"type": "string"}}}) else { panic!() };
        Question::User { message: "Who?".to_owned(), schema }
    }

    fn prompt() -> Question {
        let message = Message { role: Role::User, text: "hi".to_owned() };
        Question::Model { messages: vec![message], system: Some("s".to_owned()), max_tokens: 7 }
    }

    #[test]
    fn questions_are_said_in_the_protocol() {
        for question in [form(), prompt(), Question::Roots] {
            let json = written(&question);
            let request: InputRequest = serde_json::from_value(json.clone()).unwrap();
            let said = serde_json::to_value(request).unwrap();
            assert_eq!(
                (&said["method"], &said["params"]["maxTokens"]),
                (&json["method"], &json["params"]["maxTokens"])
            );
            assert_eq!(said["params"]["requestedSchema"], json["params"]["requestedSchema"]);
            serde_json::from_value::<ServerRequest>(json).unwrap();
        }
    }

    #[test]
    fn every_kind_of_choice_is_said() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "string", "enum": ["x", "y"]},
            "b": {"type": "string", "oneOf": [{"const": "x", "title": "X"}]},
            "c": {"type": "string", "enum": ["x"], "enumNames": ["X"]},
            "d": {"type": "array", "items": {"type": "string", "enum": ["x"]}},
            "e": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "X"}]}},
            "f": {"type": "integer", "default": 3},
            "g": {"type": "boolean", "default": true},
        }});
        let Json::Object(object) = schema.clone() else { panic!() };
        let json = written(&Question::User { message: "Which?".to_owned(), schema: object });
        let request: InputRequest = serde_json::from_value(json).unwrap();
        let said = serde_json::to_value(request).unwrap()["params"]["requestedSchema"]["properties"].take();
        assert_eq!(said, schema["properties"]);
    }

    #[test]
    fn answers_are_read_and_what_is_none_is_not() {
        let reply =
            |content: Json| json!({"role": "assistant", "content": content, "model": "m", "stopReason": "endTurn"});
        let text = |text: &str| json!({"type": "text", "text": text});
        let roots = json!({"roots": [{"uri": "file:///a", "name": "a"}, {"uri": "file:///b"}]});
        for (question, answer, want) in [
            (
                form(),
                json!({"action": "accept", "content": {"n": "x"}}),
                json!({"action": "accept", "content": {"n": "x"}}),
            ),
            (form(), json!({"action": "cancel", "content": {"n": "x"}}), json!({"action": "cancel"})),
            (prompt(), reply(text("a")), json!({"text": "a", "model": "m", "stop_reason": "endTurn"})),
            (
                prompt(),
                reply(json!([text("a"), text("b")])),
                json!({"text": "a\nb", "model": "m", "stop_reason": "endTurn"}),
            ),
            (Question::Roots, roots, json!([{"uri": "file:///a", "name": "a"}, {"uri": "file:///b", "name": ""}])),
        ] {
            assert_eq!(read(&question, &answer), Ok(want), "{answer}");
        }
        for (question, answer) in [
            (form(), json!(12345)),
            (form(), json!({"action": "accept"})),
            (form(), json!({"action": "yes", "content": {}})),
            (prompt(), reply(json!({"type": "image", "data": "", "mimeType": "image/png"}))),
            (prompt(), json!({"content": text("a")})),
            (Question::Roots, json!({})),
            (Question::Roots, json!({"roots": [{"name": "a"}]})),
        ] {
            assert!(read(&question, &answer).is_err(), "{answer}");
        }
    }
}
