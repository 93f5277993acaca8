//! Confirmation of calls by the person at the client, as elicitation.
//!
//! Up to 2025-11-25 the server asks while the call waits. In 2026-07-28 it cannot: the call is not made, its answer says
//! what is to be asked, and the client sends the request again with what the person said. Nothing is kept meanwhile: what
//! was asked is in a sealed state that comes back with the answer.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use harness_artifact::escape;
use harness_dispatch::confirm::{Answer, Confirmer, Question};
use harness_sys::digest::digest;
use hyper::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ErrorData, InputRequest, InputRequiredResult, ProtocolVersion, RequestStateCodec, SealOptions,
};
use rmcp::service::{Peer, RequestContext};
use serde_json::{Value as Json, json};

/// Name of the question in a request for input, and of the answer in its form.
const KEY: &str = "confirm";
/// How long what was asked may be answered.
const ANSWERABLE: Duration = Duration::from_secs(10 * 60);
/// Bytes of arguments that are shown.
const SHOWN: usize = 4 << 10;

/// Seals what was asked. Only the server that has asked can open it.
pub(crate) fn codec() -> RequestStateCodec {
    let mut key = [0; 32];
    harness_sys::fill_random(&mut key);
    // Long enough by its type.
    RequestStateCodec::new_unchecked(key)
}

/// Asks the person at the client where nothing else has answered.
#[derive(Debug)]
pub(crate) struct Asking {
    given: Arc<dyn Confirmer>,
    way: Way,
    /// What is to be asked before the call is made.
    open: Mutex<Option<Open>>,
}

/// How the person is asked.
enum Way {
    /// Not at all: the client cannot.
    Not,
    /// While the call waits.
    Now(Peer<RoleServer>),
    /// Before the request is sent again. With what was answered to the last one.
    Again(Option<Answered>),
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Not => "Not",
            Self::Now(_) => "Now",
            Self::Again(_) => "Again",
        })
    }
}

/// What a person has said of one call.
#[derive(Debug)]
struct Answered {
    /// Digest of what was asked.
    of: String,
    is_yes: bool,
}

#[derive(Debug)]
struct Open {
    of: String,
    form: ElicitRequestParams,
}

impl Asking {
    /// For one request of a client.
    ///
    /// # Errors
    ///
    /// That the state of the request is not one that this server has sealed for this tool, or too old.
    pub(crate) fn new(
        given: Arc<dyn Confirmer>,
        codec: &RequestStateCodec,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Self, ErrorData> {
        let is_modern = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        let over_http = context.extensions.get::<Parts>().is_some();
        let way = if is_modern {
            let answered = answered(codec, request)?;
            if asks(context.meta.client_capabilities()) { Way::Again(answered) } else { Way::Not }
        } else if !over_http && asks(context.client_capabilities()) {
            Way::Now(context.peer.clone())
        } else {
            Way::Not
        };
        Ok(Self { given, way, open: Mutex::default() })
    }

    /// What is to be answered instead of the result, where a question is open that the client can ask.
    pub(crate) fn input(&self, codec: &RequestStateCodec, tool: &str) -> Option<InputRequiredResult> {
        let Open { of, form } = self.open.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let options = SealOptions::new().ttl(ANSWERABLE).associated_data(tool.as_bytes());
        let state = codec.seal_with(of.as_bytes(), &options);
        let question = InputRequest::Elicitation(ElicitRequest::new(form));
        Some(InputRequiredResult::new(Some(BTreeMap::from([(KEY.to_owned(), question)])), Some(state)))
    }
}

impl Confirmer for Asking {
    fn confirm<'a>(&'a self, question: &'a Question<'a>) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        Box::pin(async move {
            let given = self.given.confirm(question).await;
            if given != Answer::Nobody {
                return given;
            }
            match &self.way {
                Way::Not => Answer::Nobody,
                Way::Now(peer) => match form(question) {
                    Some(form) => peer.create_elicitation(form).await.map_or(Answer::Nobody, |said| answer(&said)),
                    None => Answer::Nobody,
                },
                // What runs already cannot be begun again to ask.
                Way::Again(_) if question.caller.is_some() => Answer::Nobody,
                Way::Again(answered) => {
                    let of = subject(question);
                    if let Some(answered) = answered.as_ref().filter(|answered| answered.of == of) {
                        return if answered.is_yes { Answer::Yes } else { Answer::No };
                    }
                    let open = form(question).map(|form| Open { of, form });
                    *self.open.lock().unwrap_or_else(PoisonError::into_inner) = open;
                    Answer::Nobody
                }
            }
        })
    }
}

/// Whether a client can show a form.
fn asks(capabilities: Option<ClientCapabilities>) -> bool {
    // One that names no mode has that of before there were modes.
    capabilities.and_then(|can| can.elicitation).is_some_and(|can| can.form.is_some() || can.url.is_none())
}

/// What the person has said to the question whose state comes with a request.
fn answered(codec: &RequestStateCodec, request: &CallToolRequestParams) -> Result<Option<Answered>, ErrorData> {
    let Some(state) = &request.request_state else { return Ok(None) };
    let of = codec.open_with(state, request.name.as_bytes()).ok().and_then(|of| String::from_utf8(of).ok());
    let of = of.ok_or_else(|| {
        ErrorData::invalid_params(
            "`requestState` is not one that this server returned for this tool, or is too old",
            None,
        )
    })?;
    let Some(said) = request.input_responses.as_ref().and_then(|responses| responses.get(KEY)) else { return Ok(None) };
    let said: ElicitResult = serde_json::from_value(said.clone())
        .map_err(|_| ErrorData::invalid_params(format!("the answer `{KEY}` is not one to an elicitation"), None))?;
    Ok(Some(Answered { of, is_yes: answer(&said) == Answer::Yes }))
}

fn answer(said: &ElicitResult) -> Answer {
    let is_yes = said.content.as_ref().is_some_and(|content| content.get(KEY) == Some(&Json::Bool(true)));
    if said.action == ElicitationAction::Accept && is_yes { Answer::Yes } else { Answer::No }
}

/// What is confirmed: the arguments that will run, after hooks.
fn subject(question: &Question<'_>) -> String {
    digest(&json!([question.tool, question.artifact, question.rule, question.arguments]).to_string())
}

fn form(question: &Question<'_>) -> Option<ElicitRequestParams> {
    let arguments = escape::text(&question.arguments.to_string()).into_owned();
    let shown = arguments.get(..arguments.floor_char_boundary(SHOWN)).unwrap_or_default();
    let cut = if shown.len() < arguments.len() { format!(" [... {} bytes]", arguments.len()) } else { String::new() };
    let by = question.caller.map(|caller| format!(", which {caller} calls,")).unwrap_or_default();
    let message = format!(
        "`{}`{by} needs confirmation because of {}.\nIt would be called with {shown}{cut}",
        question.tool, question.rule
    );
    let schema = json!({
        "type": "object",
        "properties": {KEY: {"type": "boolean", "title": format!("Call `{}`", question.tool)}},
        "required": [KEY],
    });
    let requested_schema = serde_json::from_value(schema).ok()?;
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}
