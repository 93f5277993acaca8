//! Confirmation of calls by the person at the client, as elicitation.
//!
//! Up to 2025-11-25 the server asks while the call waits. In 2026-07-28 it cannot: the call is not made, its answer says
//! what is to be asked, and the client sends the request again with what the person said. Nothing is kept meanwhile: what
//! was asked is in a sealed state that comes back with the answer. A call that a running script or agent makes is asked about
//! as [tools ask](crate::questions): what runs waits, because it cannot be begun again.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use harness_artifact::escape;
use harness_dispatch::confirm::{Answer, Confirmer, Question};
use harness_sys::digest::digest;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ErrorData, InputRequest, InputRequiredResult, JsonObject, RequestStateCodec, SealOptions,
};
use rmcp::service::RequestContext;
use serde_json::{Value as Json, json};

use crate::http::replies::Session;
use crate::questions::Questions;
use crate::server::is_modern;
use crate::tasks::{Handle, Slot};

/// Name of the question in a request for input, and of the answer in its form.
const KEY: &str = "confirm";
/// How long what was asked may be answered.
const ANSWERABLE: Duration = Duration::from_secs(10 * 60);
/// Characters of the number of a question, which its state begins with.
const NUMBER: usize = 32;
/// How long what a client has said of itself counts.
const SESSION: Duration = Duration::from_secs(24 * 60 * 60);
/// What the seal of a session is for: no tool has this name.
const OF_SESSION: &[u8] = b"\0session";
/// What the state of a parked call begins with, and no other.
const PARKED: &str = "parked ";
/// Bytes of arguments that are shown.
const SHOWN: usize = 4 << 10;

/// Confirmed calls that are remembered until their questions cannot be answered any more. Beyond it calls are denied.
const MAX_SPENT: usize = 10_000;

/// Seals what was asked. Only the server that has asked can open it, and a call that was confirmed is made once.
pub(crate) struct Seals {
    codec: RequestStateCodec,
    /// Numbers of the questions whose calls were made, with the time until which they can be answered.
    spent: Mutex<HashMap<String, Instant>>,
}

impl Default for Seals {
    fn default() -> Self {
        Self::new()
    }
}

impl Seals {
    /// Seals with a key of its own.
    pub(crate) fn new() -> Self {
        let mut key = [0; 32];
        harness_sys::fill_random(&mut key);
        Self::with_key(key)
    }

    /// Seals with this key.
    pub(crate) fn with_key(key: [u8; 32]) -> Self {
        // Long enough by its type.
        Self { codec: RequestStateCodec::new_unchecked(key), spent: Mutex::default() }
    }

    /// Seals where a listing goes on, for its client to send back.
    pub(crate) fn seal_cursor(&self, listing: &str, last: &str) -> String {
        self.codec.seal_with(last.as_bytes(), &SealOptions::new().associated_data(listing.as_bytes()))
    }

    /// Where a listing goes on. None if this server has sealed no such cursor for this listing.
    pub(crate) fn open_cursor(&self, listing: &str, cursor: &str) -> Option<String> {
        String::from_utf8(self.codec.open_with(cursor, listing.as_bytes()).ok()?).ok()
    }

    /// Seals what a client of an older version has said of itself.
    pub(crate) fn seal_session(&self, session: &Session) -> Option<String> {
        let options = SealOptions::new().ttl(SESSION).associated_data(OF_SESSION);
        self.codec.seal_json_with(session, &options).ok()
    }

    /// What a client has said of itself, if this server has sealed it.
    pub(crate) fn session(&self, sealed: &str) -> Option<Session> {
        self.codec.open_json_with(sealed, OF_SESSION).ok()
    }

    /// Seals the number of a parked call of a tool.
    pub(crate) fn park(&self, number: &str, tool: &str) -> String {
        let options = SealOptions::new().ttl(ANSWERABLE).associated_data(tool.as_bytes());
        self.codec.seal_with(format!("{PARKED}{number}").as_bytes(), &options)
    }

    /// The number of a parked call of a tool, where this is the state of one.
    pub(crate) fn parked(&self, state: &str, tool: &str) -> Option<String> {
        let opened = String::from_utf8(self.codec.open_with(state, tool.as_bytes()).ok()?).ok()?;
        opened.strip_prefix(PARKED).map(str::to_owned)
    }

    /// Takes note that the call of this question is made. Whether it was not made before, and there is room to remember it.
    fn spend(&self, question: &str) -> bool {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        spent.retain(|_, until| *until > now);
        spent.len() < MAX_SPENT && spent.insert(question.to_owned(), now + ANSWERABLE).is_none()
    }
}

/// Asks the person at the client where nothing else has answered.
pub(crate) struct Asking {
    given: Arc<dyn Confirmer>,
    seals: Arc<Seals>,
    way: Way,
    /// How a call that waits asks.
    questions: Arc<Questions>,
    /// The task that the call has become: then it waits for the answer.
    slot: Arc<Slot>,
    /// What is to be asked before the call is made.
    open: Mutex<Option<Open>>,
}

/// How the person is asked.
enum Way {
    /// Not at all: the client cannot, or its person may not confirm calls.
    Not,
    /// While the call waits.
    Now,
    /// Before the request is sent again. With what was answered to the last one.
    Again(Option<Answered>),
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let way = match self.way {
            Way::Not => "Not",
            Way::Now => "Now",
            Way::Again(_) => "Again",
        };
        f.debug_struct("Asking").field("way", &way).finish_non_exhaustive()
    }
}

/// What a person has said of one call.
#[derive(Debug)]
struct Answered {
    /// Digest of what was asked.
    of: String,
    /// Number of the question.
    question: String,
    is_yes: bool,
}

#[derive(Debug)]
struct Open {
    of: String,
    form: ElicitRequestParams,
}

impl Asking {
    /// For one request of a client, whose person may confirm calls or may not.
    ///
    /// # Errors
    ///
    /// That the state of the request is not one that this server has sealed for this tool, or too old.
    pub(crate) fn new(
        (given, may_confirm): (Arc<dyn Confirmer>, bool),
        seals: Arc<Seals>,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        (slot, questions): (Arc<Slot>, Arc<Questions>),
    ) -> Result<Self, ErrorData> {
        let way = if is_modern(context) {
            let answered = answered(&seals.codec, request)?;
            if may_confirm && asks(context.meta.client_capabilities()) { Way::Again(answered) } else { Way::Not }
        } else if may_confirm {
            Way::Now
        } else {
            Way::Not
        };
        Ok(Self { given, seals, way, questions, slot, open: Mutex::default() })
    }

    /// What is to be answered instead of the result, where a question is open that the client can ask.
    pub(crate) fn input(&self, tool: &str) -> Option<InputRequiredResult> {
        let Open { of, form } = self.open.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let options = SealOptions::new().ttl(ANSWERABLE).associated_data(tool.as_bytes());
        let mut number = [0; 16];
        harness_sys::fill_random(&mut number);
        let state =
            self.seals.codec.seal_with(format!("{:032x}{of}", u128::from_ne_bytes(number)).as_bytes(), &options);
        let question = InputRequest::Elicitation(ElicitRequest::new(form));
        Some(InputRequiredResult::new(Some(BTreeMap::from([(KEY.to_owned(), question)])), Some(state)))
    }
}

impl Asking {
    /// Asks while the call waits.
    async fn meanwhile(&self, question: &Question<'_>) -> Answer {
        let (message, schema) = (message(question), schema(question));
        let said = self.questions.form(KEY, message, schema).await;
        let said = said.and_then(|said| serde_json::from_value::<ElicitResult>(said).ok());
        said.map_or(Answer::Nobody, |said| answer(&said))
    }
}

impl Confirmer for Asking {
    fn confirm<'a>(&'a self, question: &'a Question<'a>) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        Box::pin(async move {
            let given = self.given.confirm(question).await;
            if given != Answer::Nobody {
                return given;
            }
            let task = self.slot.get().await.clone();
            match &self.way {
                Way::Not => Answer::Nobody,
                Way::Again(_) if let Some(task) = task => answer_in(&task, question).await,
                Way::Now => self.meanwhile(question).await,
                Way::Again(_) if question.caller.is_some() => self.meanwhile(question).await,
                Way::Again(answered) => {
                    let of = subject(question);
                    match answered.as_ref().filter(|answered| answered.of == of) {
                        Some(Answered { is_yes: false, .. }) => return Answer::No,
                        Some(Answered { question, .. }) if self.seals.spend(question) => return Answer::Yes,
                        // Confirmed for a call that was made already.
                        Some(_) | None => {}
                    }
                    let open = form(question).map(|form| Open { of, form });
                    *self.open.lock().unwrap_or_else(PoisonError::into_inner) = open;
                    Answer::Nobody
                }
            }
        })
    }

    fn without(&self, tool: &str) -> String {
        self.given.without(tool)
    }
}

/// What the client says to a question of a task.
async fn answer_in(task: &Handle, question: &Question<'_>) -> Answer {
    let Some(form) = form(question) else { return Answer::Nobody };
    let said = task.ask(InputRequest::Elicitation(ElicitRequest::new(form))).await;
    let said = said.and_then(|said| serde_json::from_value::<ElicitResult>(said).ok());
    said.map_or(Answer::Nobody, |said| answer(&said))
}

/// Whether a client can show a form.
pub(crate) fn asks(capabilities: Option<ClientCapabilities>) -> bool {
    // One that names no mode has that of before there were modes.
    capabilities.and_then(|can| can.elicitation).is_some_and(|can| can.form.is_some() || can.url.is_none())
}

/// What the person has said to the question whose state comes with a request.
fn answered(codec: &RequestStateCodec, request: &CallToolRequestParams) -> Result<Option<Answered>, ErrorData> {
    let Some(state) = &request.request_state else { return Ok(None) };
    let opened = codec.open_with(state, request.name.as_bytes()).ok().and_then(|opened| String::from_utf8(opened).ok());
    let opened = opened.as_deref().and_then(|opened| opened.split_at_checked(NUMBER));
    let (question, of) = opened.map(|(question, of)| (question.to_owned(), of.to_owned())).ok_or_else(|| {
        ErrorData::invalid_params(
            "`requestState` is not one that this server returned for this tool, or is too old",
            None,
        )
    })?;
    let Some(said) = request.input_responses.as_ref().and_then(|responses| responses.get(KEY)) else { return Ok(None) };
    let said: ElicitResult = serde_json::from_value(said.clone())
        .map_err(|_| ErrorData::invalid_params(format!("the answer `{KEY}` is not one to an elicitation"), None))?;
    Ok(Some(Answered { of, question, is_yes: answer(&said) == Answer::Yes }))
}

fn answer(said: &ElicitResult) -> Answer {
    let is_yes = said.content.as_ref().is_some_and(|content| content.get(KEY) == Some(&Json::Bool(true)));
    if said.action == ElicitationAction::Accept && is_yes { Answer::Yes } else { Answer::No }
}

/// What is confirmed: the arguments that will run, after hooks.
fn subject(question: &Question<'_>) -> String {
    digest(&json!([question.tool, question.artifact, question.rule, question.arguments]).to_string())
}

/// What the person is shown.
fn message(question: &Question<'_>) -> String {
    let arguments = escape::text(&question.arguments.to_string()).into_owned();
    let shown = arguments.get(..arguments.floor_char_boundary(SHOWN)).unwrap_or_default();
    let cut = if shown.len() < arguments.len() { format!(" [... {} bytes]", arguments.len()) } else { String::new() };
    let by = question.caller.map(|caller| format!(", which {caller} calls,")).unwrap_or_default();
    format!(
        "`{}`{by} needs confirmation because of {}.\nIt would be called with {shown}{cut}",
        question.tool, question.rule
    )
}

/// The form below it.
fn schema(question: &Question<'_>) -> JsonObject {
    let title = format!("Call `{}`", question.tool);
    let properties = json!({KEY: {"type": "boolean", "title": title}});
    [("type", json!("object")), ("properties", properties), ("required", json!([KEY]))]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn form(question: &Question<'_>) -> Option<ElicitRequestParams> {
    let requested_schema = serde_json::from_value(Json::Object(schema(question))).ok()?;
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message: message(question), requested_schema })
}
