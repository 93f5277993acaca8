//! Acts of clients that call no tool of the project: reading a resource, getting a prompt, and searching tools. Each is a
//! call by the name of its method, which no tool can have, or of `search_tools`: policy, hooks, confirmation and the audit log apply as to any other.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use harness_artifact::tool::{ParameterType, Tool};
use harness_dispatch::builtin::{Answered, BuiltInCall, BuiltIns};
use harness_dispatch::chain::CallContext;
use harness_dispatch::past::Happened;
use harness_dispatch::{Call, CallError, CallReport, Loaded, Run};
use harness_policy::refusal::Refusal;
use harness_policy::text::quoted;
use harness_sandbox::outcome::Outcome;
use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::RequestContext;
use serde_json::{Map, Value as Json};

use crate::call::client_request;
use crate::catalog::Catalog;
use crate::principal::{NotAdmitted, grant};
use crate::prompts::{self, Prompts};
use crate::resources::{self, Ended};
use crate::search::{self, SEARCH};
use crate::server::Server;

/// Reads a resource.
pub(crate) const READ: &str = "resources/read";
/// Gets a prompt.
pub(crate) const PROMPT: &str = "prompts/get";

/// The names of all acts, for `tools_policy` and the audit log.
pub const ACTS: [&str; 3] = [PROMPT, READ, SEARCH];

/// The acts as tools.
static TOOLS: LazyLock<Vec<Arc<Tool>>> = LazyLock::new(|| {
    let uri = ("uri", ParameterType::String, true, "URI of the resource.");
    let name = ("name", ParameterType::String, true, "Name of the prompt.");
    let arguments = ("arguments", ParameterType::Object, false, "Its arguments, each a text.");
    let query = ("query", ParameterType::String, true, "Words.");
    vec![
        Arc::new(Tool::built_in(SEARCH, "Finds tools.", &[query])),
        Arc::new(Tool::built_in(READ, "Reads a resource.", &[uri])),
        Arc::new(Tool::built_in(PROMPT, "Gets a prompt.", &[name, arguments])),
    ]
});

/// Whether the policy lets clients do this.
pub(crate) fn is_allowed(loaded: &Loaded, act: &str) -> bool {
    loaded.policy().tools.decide(act).is_ok()
}

/// How an act did not come to a result.
pub(crate) enum Refused {
    /// It was denied, or what it was about is not there: in words for the client, with the hint that would allow it.
    Denied(String),
    /// It failed.
    Failed(String),
    /// The host failed, which is for its operator.
    Host,
    /// Nothing of it ran.
    NotAdmitted(NotAdmitted),
}

impl From<Refused> for ErrorData {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Denied(why) => Self::invalid_params(why, None),
            Refused::Failed(why) => Self::internal_error(why, None),
            Refused::Host => Self::internal_error("the host failed", None),
            Refused::NotAdmitted(why) => why.into(),
        }
    }
}

/// Makes an act, and returns its report.
pub(crate) async fn act(
    server: &Server,
    name: &str,
    arguments: Json,
    context: &RequestContext<RoleServer>,
) -> Result<CallReport, Refused> {
    let principal = server.principal();
    principal.admit().await.map_err(Refused::NotAdmitted)?;
    let run = Run::narrowed(principal.layers());
    run.set_client_request(client_request(server, context));
    run.set_confirmer(server.settings().confirmer.clone());
    run.set_built_ins(Arc::new(Acts));
    let call = Call { id: None, name: name.to_owned(), arguments };
    let report = server.project().make(call, &run).await.map_err(|error| match error {
        CallError::NotAllowed(refusal) => Refused::Denied(with_hint(&refusal.reason, &refusal.hint)),
        CallError::Host(why) => {
            (server.settings().on_fault)(&why);
            Refused::Host
        }
        error => Refused::Failed(error.to_string()),
    })?;
    principal.spend(&report);
    match &report.outcome {
        Outcome::Completed(_) if !report.is_error => Ok(report),
        Outcome::Denied { refusal, .. } => {
            let why = report.content.trim_start_matches("tool denied: ");
            Err(Refused::Denied(with_hint(why, &refusal.hint)))
        }
        Outcome::Fault(why) => {
            (server.settings().on_fault)(why);
            Err(Refused::Host)
        }
        _ => Err(Refused::Failed(report.content.trim_start_matches("tool error: ").to_owned())),
    }
}

fn with_hint(why: &str, hint: &str) -> String {
    if hint.is_empty() { why.to_owned() } else { format!("{why}\nhint: {hint}") }
}

/// The text that hooks left of a result, where they changed it and not the value. What they took out of the text must not
/// be found beside it.
pub(crate) fn rewritten(report: &CallReport) -> Option<String> {
    let payload = &report.post.as_ref()?.payload;
    let text = payload.get("content")?.as_str()?;
    let of_value = match payload.get("result")? {
        Json::String(text) => text.clone(),
        value => value.to_string(),
    };
    (text != of_value).then(|| text.to_owned())
}

/// The acts of one request.
#[derive(Debug)]
struct Acts;

impl BuiltIns for Acts {
    fn tools(&self) -> &[Arc<Tool>] {
        &TOOLS
    }

    fn happened(&self, _: &Happened<'_>) {}

    fn call<'a>(
        &'a self,
        place: &'a CallContext,
        call: BuiltInCall<'a>,
    ) -> Pin<Box<dyn Future<Output = Answered> + Send + 'a>> {
        Box::pin(async move {
            let text = |key: &str| call.arguments.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
            let outcome = match call.name {
                READ => read(place, text("uri")).await,
                SEARCH => Outcome::Completed(search::find(&Catalog::of(&place.loaded), &text("query")).to_string()),
                PROMPT => {
                    let given = call.arguments.get("arguments").and_then(Json::as_object).cloned();
                    get(place, text("name"), given.unwrap_or_default()).await
                }
                other => Outcome::Fault(format!("`{other}` is no act")),
            };
            Answered { outcome, nested: Vec::new() }
        })
    }
}

async fn read(place: &CallContext, uri: String) -> Outcome<String> {
    let (loaded, grant) = (place.loaded.clone(), grant(&place.loaded, place.run.layers()));
    let Some(source) = resources::find(&loaded, &uri) else {
        return *resources::denied(resources::not_offered(&loaded, &uri));
    };
    at_the_disk(move || Ok(resources::shown(&uri, resources::read(&loaded, &grant, &source)?))).await
}

async fn get(place: &CallContext, name: String, given: Map<String, Json>) -> Outcome<String> {
    let (loaded, grant) = (place.loaded.clone(), grant(&place.loaded, place.run.layers()));
    let prompts = Prompts::of(&loaded);
    let Some(of) = prompts.get(&name).cloned() else {
        return *resources::denied(Refusal::always(format!("there is no prompt {}", quoted(&name))));
    };
    at_the_disk(move || prompts::get(&loaded, &grant, &of, &given)).await
}

/// Work that waits for the disk, which may take its time.
async fn at_the_disk(work: impl FnOnce() -> Result<Json, Ended> + Send + 'static) -> Outcome<String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(result)) => Outcome::Completed(result.to_string()),
        Ok(Err(ended)) => *ended,
        Err(error) => Outcome::Fault(error.to_string()),
    }
}
