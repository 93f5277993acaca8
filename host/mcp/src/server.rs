//! The server: what each request of a client comes to, in both eras of the protocol.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use harness_agent::Models;
use harness_dispatch::confirm::Confirmer;
use harness_dispatch::{Loaded, Project};
use hyper::http::request::Parts;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, DiscoverResult, ErrorCode,
    ErrorData, Implementation, InitializeRequestParams, InitializeResult, JsonObject, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool as Definition,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use tokio_util::sync::CancellationToken;

use crate::catalog::Catalog;
use crate::notices::{Threshold, is_modern};
use crate::parked::Parked;
use crate::{call, elicit};

/// How long a client may keep a listing, in milliseconds. Files may change at any time.
const FRESH_MS: u64 = 5_000;
/// Methods that have parameters which may be wrong. Any other method that is not handled does not exist.
const WITH_PARAMETERS: [&str; 5] =
    ["initialize", "tools/call", "tools/list", "completion/complete", "logging/setLevel"];

/// A project's tools for clients of the Model Context Protocol. Cheap to clone; all clones are one server.
///
/// It keeps nothing of a client between two requests. Each `tools/call` is one call of the project with a
/// [`Run`](harness_dispatch::Run) of its own.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

/// What a server needs beside its project.
pub struct Settings {
    /// Answer agents that tools delegate to.
    pub models: Arc<dyn Models>,
    /// Asked about calls that need confirmation.
    pub confirmer: Arc<dyn Confirmer>,
    /// Gets each failure of the host, which is for its operator and not for a client.
    pub on_fault: Box<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("confirmer", &self.confirmer).finish_non_exhaustive()
    }
}

struct Inner {
    project: Project,
    settings: Settings,
    /// The catalog of the artifacts that were in force when it was last used.
    catalog: Mutex<Option<(Arc<Loaded>, Arc<Catalog>)>>,
    /// Canceled when no call is to continue.
    closing: CancellationToken,
    /// Seals what a client is to ask.
    seals: Arc<elicit::Seals>,
    /// Calls that wait for their clients.
    parked: Arc<Parked>,
    /// Which lines of scripts the client at the other end of standard input wants.
    threshold: Threshold,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("project", &self.inner.project).finish_non_exhaustive()
    }
}

impl Server {
    /// Serves a project.
    pub fn new(project: Project, settings: Settings) -> Self {
        let (catalog, closing) = (Mutex::default(), CancellationToken::new());
        let seals = Arc::new(elicit::Seals::new());
        let (threshold, parked) = (Threshold::default(), Parked::new());
        Self { inner: Arc::new(Inner { project, settings, catalog, closing, seals, parked, threshold }) }
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
    pub fn project(&self) -> &Project {
        &self.inner.project
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

    /// The catalog of what is in force.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        let loaded = self.inner.project.loaded();
        let mut kept = self.inner.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((of, catalog)) if Arc::ptr_eq(of, &loaded) => catalog.clone(),
            _ => {
                let catalog = Arc::new(Catalog::of(&loaded));
                *kept = Some((loaded, catalog.clone()));
                catalog
            }
        }
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

    fn list(&self, page: Option<PaginatedRequestParams>) -> Result<ListToolsResult, ErrorData> {
        // There is one page, so that no cursor was ever given out.
        if page.is_some_and(|page| page.cursor.is_some()) {
            return Err(ErrorData::invalid_params("`cursor` is not one that this server returned", None));
        }
        let tools = self.catalog().definitions().cloned().collect();
        let listed = ListToolsResult::with_all_items(tools).with_ttl_ms(FRESH_MS);
        Ok(ListToolsResult { cache_scope: Some(CacheScope::Private), ..listed })
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder().enable_tools().build();
        capabilities.logging = Some(JsonObject::new());
        ServerConfig::new(capabilities).with_server_info(Self::identity())
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let answer = self.negotiate_initialize(&request)?;
        // Requests of this connection that name no version have the one that was agreed on.
        context.peer.set_peer_info(request.with_protocol_version(answer.protocol_version.clone()));
        Ok(answer)
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let versions = self.supported_protocol_versions().into_owned();
        let mut answer = DiscoverResult::from_server_info(versions, self.get_info());
        answer.ttl_ms = FRESH_MS;
        answer.cache_scope = CacheScope::Private;
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
            result = Self::answer(call::make(self, request, &context)) => result,
        }
    }

    #[expect(deprecated, reason = "the name of the type; older clients set a level")]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        begun(&context)?;
        if is_modern(&context) {
            let why = "there is no method `logging/setLevel`: each request names its level in `_meta`";
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, why, None));
        }
        let level = serde_json::to_value(request.level).unwrap_or_default();
        // Over HTTP nothing is kept, not even of the same client.
        if context.extensions.get::<Parts>().is_none() {
            self.threshold().set(level.as_str().unwrap_or_default());
        }
        Ok(())
    }

    fn get_tool(&self, name: &str) -> Option<Definition> {
        self.catalog().definition(name).cloned()
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        // A known method whose parameters could not be read gets here as well.
        Err(if WITH_PARAMETERS.contains(&method.as_str()) {
            ErrorData::invalid_params(format!("the parameters of `{method}` cannot be read"), None)
        } else {
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("there is no method `{method}`"), None)
        })
    }
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
