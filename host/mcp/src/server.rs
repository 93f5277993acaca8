//! The server: what each request of a client comes to, in both eras of the protocol.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures_util::FutureExt;
use harness_agent::Models;
use harness_dispatch::confirm::Confirmer;
use harness_dispatch::{FileWatch, Loaded, Project, WatchError};
use harness_policy::grant::Grant;
use hyper::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompleteResult, CustomRequest,
    CustomResult, DiscoverResult, ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse, GetTaskParams,
    GetTaskResult, Implementation, InitializeRequestParams, InitializeResult, JsonObject, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter, Tool as Definition, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use tokio_util::sync::CancellationToken;

use crate::agents::AtWork;
use crate::catalog::Catalog;
use crate::changes::Changes;
use crate::listening::{self, Connection};
use crate::notices::Threshold;
use crate::page::{FRESH_MS, SCOPE, page};
use crate::parked::Parked;
use crate::principal::{self, Principal};
use crate::tasks::{Slot, Tasks};
use crate::{call, elicit, prompting, reading, tasks};

/// Methods that 2026-07-28 has no more. There, each request names its version and the level of lines that it wants, and
/// clients subscribe with `subscriptions/listen`.
const ONLY_OLDER: [&str; 4] = ["initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];
/// Bytes of the name of a method that there is not, in the answer.
const MAX_SHOWN: usize = 200;
/// Methods that have parameters which may be wrong. Any other method that is not handled does not exist.
const WITH_PARAMETERS: [&str; 16] = [
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/update",
    "tools/call",
    "tools/list",
];

/// A project's tools for clients of the Model Context Protocol. Cheap to clone; all clones are one server.
///
/// It keeps nothing of a client between two requests but its tasks. Each `tools/call` is one call of the project with a
/// [`Run`](harness_dispatch::Run) of its own.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

/// What a server needs beside its project.
pub struct Settings {
    /// Answer agents that tools delegate to, and those that clients set tasks.
    pub models: Arc<dyn Models>,
    /// Asked about calls that need confirmation.
    pub confirmer: Arc<dyn Confirmer>,
    /// Gets each failure of the host, which is for its operator and not for a client.
    pub on_fault: Box<dyn Fn(&str) + Send + Sync>,
    /// Whose requests are answered.
    pub principal: Arc<dyn Principal>,
    /// Seals what clients send back, such as sessions and cursors. Another server with the same key opens them.
    pub key: [u8; 32],
    /// Tasks at one time, and those whose results are kept included.
    pub tasks: (usize, usize),
}

impl Settings {
    /// Those of a server for the operator of this process, with a key of its own.
    pub fn new(models: Arc<dyn Models>, confirmer: Arc<dyn Confirmer>) -> Self {
        let (principal, on_fault) = (Arc::new(principal::Operator), Box::new(|_: &str| ()));
        let mut key = [0; 32];
        harness_sys::fill_random(&mut key);
        Self { models, confirmer, on_fault, principal, key, tasks: (tasks::MAX_RUNNING, tasks::MAX_KEPT) }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("confirmer", &self.confirmer).finish_non_exhaustive()
    }
}

struct Inner {
    /// The project, with the models that it names.
    served: RwLock<(Project, Arc<dyn Models>)>,
    settings: Settings,
    /// The catalog of the artifacts that were in force when it was last used.
    catalog: Mutex<Option<(Arc<Loaded>, Arc<Catalog>)>>,
    /// Canceled when no call is to continue.
    closing: CancellationToken,
    /// Seals what a client is to ask.
    seals: Arc<elicit::Seals>,
    /// What clients are notified of.
    changes: Changes,
    /// Agents that work for clients.
    agents: Arc<AtWork>,
    /// Calls that last.
    tasks: Arc<Tasks>,
    /// Calls that wait for their clients.
    parked: Arc<Parked>,
    /// Which lines of scripts the client at the other end of standard input wants.
    threshold: Threshold,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

impl Server {
    /// Serves a project.
    pub fn new(project: Project, settings: Settings) -> Self {
        let (catalog, closing) = (Mutex::default(), CancellationToken::new());
        let (seals, agents) = (Arc::new(elicit::Seals::with_key(settings.key)), Arc::default());
        let tasks = Arc::new(Tasks::new(settings.tasks));
        let (changes, threshold, parked) = (Changes::default(), Threshold::default(), Parked::new());
        let served = RwLock::new((project, settings.models.clone()));
        let inner = Inner { served, settings, catalog, closing, seals, changes, agents, tasks, parked, threshold };
        Self { inner: Arc::new(inner) }
    }

    /// Serves another opening of its project from here on. Calls that have begun keep the one that they began with.
    pub fn replace(&self, project: Project, models: Arc<dyn Models>) {
        *self.inner.served.write().unwrap_or_else(PoisonError::into_inner) = (project, models);
        self.note();
    }

    /// Compares what is in force with what clients were last notified of, and notifies those that listen. Looks at the
    /// workspace.
    pub fn note(&self) {
        let loaded = self.project().loaded();
        self.inner.changes.note(&loaded, &self.grant(&loaded));
    }

    /// Whether nothing of a client is kept: no task, and no call that waits for its answers.
    pub fn is_idle(&self) -> bool {
        self.inner.tasks.is_empty() && self.inner.parked.is_empty()
    }

    /// Watches the project's files, as [`Project::watch`] does: what changes takes force by itself, and clients that want it
    /// are notified. Calls that have begun keep the version that they began with. `on_refused` gets each version that does
    /// not take force.
    ///
    /// # Errors
    ///
    /// As for [`Project::watch`].
    pub fn watch(
        &self,
        mut on_refused: impl FnMut(Result<(), WatchError>) + Send + 'static,
    ) -> Result<FileWatch, WatchError> {
        let inner = Arc::downgrade(&self.inner);
        let watch = self.project().watch(move |result| {
            if let (Ok(()), Some(inner)) = (&result, inner.upgrade()) {
                Self { inner }.note();
            }
            on_refused(result);
        })?;
        self.note();
        Ok(watch)
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.inner.changes
    }

    /// Ends all calls. Requests that are no calls are still answered.
    pub fn close(&self) {
        self.inner.closing.cancel();
        self.inner.parked.clear();
    }

    /// Canceled when no call is to continue.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.inner.closing
    }

    /// The project that is served.
    pub fn project(&self) -> Project {
        self.inner.served.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The models of that.
    pub(crate) fn models(&self) -> Arc<dyn Models> {
        self.inner.served.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Whose requests are answered.
    pub(crate) fn principal(&self) -> &Arc<dyn Principal> {
        &self.inner.settings.principal
    }

    /// What its clients may do with files where no artifact acts for them.
    pub(crate) fn grant(&self, loaded: &Loaded) -> Grant {
        principal::grant(loaded, &self.principal().layers())
    }

    pub(crate) fn seals(&self) -> &Arc<elicit::Seals> {
        &self.inner.seals
    }

    pub(crate) fn parked(&self) -> &Arc<Parked> {
        &self.inner.parked
    }

    pub(crate) fn threshold(&self) -> &Threshold {
        &self.inner.threshold
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Agents that work for its clients.
    pub(crate) fn agents(&self) -> &Arc<AtWork> {
        &self.inner.agents
    }

    /// What is in force, and its catalog.
    pub(crate) fn catalog(&self) -> (Arc<Loaded>, Arc<Catalog>) {
        let loaded = self.project().loaded();
        let mut kept = self.inner.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        let catalog = match &*kept {
            Some((of, catalog)) if Arc::ptr_eq(of, &loaded) => catalog.clone(),
            _ => {
                let catalog = Arc::new(Catalog::of(&loaded));
                *kept = Some((loaded.clone(), catalog.clone()));
                catalog
            }
        };
        (loaded, catalog)
    }

    fn identity() -> Implementation {
        Implementation::new("harness", env!("CARGO_PKG_VERSION"))
    }

    /// What a request comes to. A panic ends this request alone, and its client gets an answer.
    async fn answer<T>(work: impl Future<Output = Result<T, ErrorData>>) -> Result<T, ErrorData> {
        AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
            Err(ErrorData::internal_error("the server failed while it answered this request", None))
        })
    }

    /// Makes a call. If it lasts and its client can follow a task, it becomes one.
    async fn call(&self, request: CallToolRequestParams, context: RequestContext<RoleServer>) -> tasks::Ended {
        let follows = context.client_capabilities().is_some_and(|can| can.supports_tasks());
        let slot = Arc::new(Slot::new(follows && is_modern(&context)));
        if !slot.can_be() {
            return Self::answer(call::make(self, request, &context, &slot)).await;
        }
        let after = if call::is_task_at_once(self, &request.name) { Duration::ZERO } else { tasks::TASK_AFTER };
        let (server, own) = (self.clone(), slot.clone());
        let work = async move { Self::answer(call::make(&server, request, &context, &own)).await };
        self.inner.tasks.lead(work, &slot, after, self.closing().clone()).await
    }

    /// The same, which ends with its request and with the server: it is dropped, and with it all that it has started.
    async fn unless_ended<T>(
        &self,
        context: &RequestContext<RoleServer>,
        work: impl Future<Output = Result<T, ErrorData>>,
    ) -> Result<T, ErrorData> {
        begun(context)?;
        tokio::select! {
            biased;
            () = context.ct.cancelled() => Err(ErrorData::internal_error("the call was canceled", None)),
            () = self.closing().cancelled() => {
                Err(ErrorData::internal_error("the call was ended: the server is closing", None))
            }
            result = Self::answer(work) => result,
        }
    }

    fn list(&self, asked: Option<PaginatedRequestParams>) -> Result<ListToolsResult, ErrorData> {
        let (tools, next) = page(self.seals(), "tools/list", asked, self.catalog().1.listed())?;
        let mut listed = ListToolsResult::with_all_items(tools).with_ttl_ms(FRESH_MS);
        (listed.next_cursor, listed.cache_scope) = (next, Some(SCOPE));
        Ok(listed)
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut can = ServerCapabilities::builder()
            .enable_completions()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_tasks()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        can.logging = Some(JsonObject::new());
        ServerConfig::new(can).with_server_info(Self::identity())
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        if is_modern(&context) {
            return Err(no_method("initialize"));
        }
        let mut answer = self.negotiate_initialize(&request)?;
        if context.extensions.get::<Arc<Connection>>().is_none() {
            // No stream leads to this client.
            quiet(&mut answer.capabilities);
        }
        // They belong to later versions.
        answer.capabilities.extensions = None;
        // Requests of this connection that name no version have the one that was agreed on.
        context.peer.set_peer_info(request.with_protocol_version(answer.protocol_version.clone()));
        Ok(answer)
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let versions = self.supported_protocol_versions().into_owned();
        let mut answer = DiscoverResult::from_server_info(versions, self.get_info());
        answer.ttl_ms = FRESH_MS;
        answer.cache_scope = SCOPE;
        Ok(answer)
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        begun(&context)?;
        Self::answer(std::future::ready(()).map(|()| self.list(page))).await
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        begun(&context)?;
        let (canceled, closing) = (context.ct.clone(), self.closing().clone());
        // The call is dropped, and with it all that it has started.
        tokio::select! {
            biased;
            () = canceled.cancelled() => Err(ErrorData::internal_error("the call was canceled", None)),
            () = closing.cancelled() => Err(ErrorData::internal_error("the call was ended: the server is closing", None)),
            result = self.call(request, context) => result,
        }
    }

    async fn list_resources(
        &self,
        asked: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.unless_ended(&context, reading::list(self, asked)).await
    }

    async fn list_resource_templates(
        &self,
        asked: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.unless_ended(&context, reading::list_templates(self, asked)).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.unless_ended(&context, reading::read(self, &request.uri, &context)).await.map(Into::into)
    }

    async fn list_prompts(
        &self,
        asked: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.unless_ended(&context, async { prompting::list(self, asked) }).await
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.unless_ended(&context, prompting::get(self, request, &context)).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.unless_ended(&context, async { prompting::complete(self, &request) }).await
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if is_modern(&context) {
            return Err(no_method("resources/subscribe"));
        }
        let connection = context.extensions.get::<Arc<Connection>>().map(|connection| &**connection);
        self.unless_ended(&context, async { listening::subscribe(self, connection, &request.uri) }).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        begun(&context)?;
        if is_modern(&context) {
            return Err(no_method("resources/unsubscribe"));
        }
        listening::unsubscribe(
            context.extensions.get::<Arc<Connection>>().map(|connection| &**connection),
            &request.uri,
        );
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(listening::accept(self, requested))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        listening::listen(self, &context).await;
        Ok(())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        begun(&context)?;
        self.inner.tasks.get(&request.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        begun(&context)?;
        self.inner.tasks.update(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        begun(&context)?;
        self.inner.tasks.cancel(&request.task_id)
    }

    #[expect(deprecated, reason = "the name of the type; older clients set a level")]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        begun(&context)?;
        if is_modern(&context) {
            return Err(no_method("logging/setLevel"));
        }
        let level = serde_json::to_value(request.level).unwrap_or_default();
        // Over HTTP nothing is kept, not even of the same client.
        if context.extensions.get::<Parts>().is_none() {
            self.threshold().set(level.as_str().unwrap_or_default());
        }
        Ok(())
    }

    fn get_tool(&self, name: &str) -> Option<Definition> {
        self.catalog().1.definition(name).cloned()
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.as_str();
        // A known method whose parameters could not be read gets here as well.
        let is_gone = is_modern(&context) && ONLY_OLDER.contains(&method);
        Err(if WITH_PARAMETERS.contains(&method) && !is_gone {
            ErrorData::invalid_params(format!("the parameters of `{method}` cannot be read"), None)
        } else {
            let mut method = request.method.clone();
            self.project().loaded().secrets().redact(&mut method);
            no_method(method.get(..method.floor_char_boundary(MAX_SHOWN)).unwrap_or_default())
        })
    }
}

/// Without notifications of changes.
fn quiet(can: &mut ServerCapabilities) {
    can.tools.iter_mut().for_each(|tools| tools.list_changed = None);
    can.prompts.iter_mut().for_each(|prompts| prompts.list_changed = None);
    can.resources.iter_mut().for_each(|resources| (resources.list_changed, resources.subscribe) = (None, None));
}

fn no_method(method: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("there is no method `{method}`"), None)
}

/// Whether a request names a version that has no `initialize`.
pub(crate) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.meta.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// Whether the request belongs to one of the eras: it names a version, or follows `initialize`.
fn begun(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    match context.protocol_version() {
        Some(_) => Ok(()),
        None => Err(ErrorData::invalid_request(
            "send `initialize` first, or name a protocol version as `io.modelcontextprotocol/protocolVersion` in `_meta`",
            None,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let panics = async { panic!("of a test") };
        let answer: Result<(), _> = Server::answer(panics).await;
        assert_eq!(answer.unwrap_err().code, ErrorCode::INTERNAL_ERROR);
        assert_eq!(Server::answer(std::future::ready(Ok(1))).await, Ok(1));
    }
}
