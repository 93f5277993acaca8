//! The short way of a call: straight to the server, without rmcp's service for one request.
//!
//! That service is four tasks and their channels for each request, which takes longer than a small call. It is needed where
//! the server sends something before its answer, and where a header does not say plainly what the message says: what is
//! wrong with a request is for rmcp to find. All other calls go this way, and come to the same.

use std::convert::Infallible;
use std::sync::OnceLock;

use hyper::StatusCode;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use hyper::http::request::Parts;
use rmcp::model::{
    CallToolRequest, ClientJsonRpcMessage, ClientRequest, ErrorCode, ProtocolVersion, RequestId, RequestMetaObject,
    ServerJsonRpcMessage,
};
use rmcp::service::{RequestContext, RunningService, serve_directly};
use rmcp::transport::Transport;
use rmcp::{RoleServer, Service as _};
use serde_json::Value as Json;

use super::{Answer, written};
use crate::server::Server;

/// Keys of `_meta` in a plain request. Any other one may want something of the transport.
const PLAIN: [&str; 3] = [
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/clientInfo",
];
/// What begins the name of a header that repeats an argument.
const ARGUMENT: &str = "mcp-param-";
/// The key of a schema that wants such a header.
const WANTS_HEADER: &str = "x-mcp-header";

/// Calls that go this way.
pub(super) struct Direct {
    server: Server,
    /// A connection that leads nowhere: the server's functions want one, and send nothing on it here.
    nowhere: OnceLock<RunningService<RoleServer, Server>>,
}

impl Direct {
    pub(super) fn new(server: Server) -> Self {
        Self { server, nowhere: OnceLock::new() }
    }

    /// Whether a call can go this way.
    pub(super) fn takes(&self, headers: &HeaderMap, call: &CallToolRequest) -> bool {
        let Some(meta) = call.extensions.get::<RequestMetaObject>() else { return false };
        let name = &*call.params.name;
        let is_newest = meta.protocol_version().is_some_and(|version| version == ProtocolVersion::V_2026_07_28);
        let is_plain = meta.keys().all(|key| PLAIN.contains(&key.as_str()));
        let follows_no_task = meta.client_capabilities().is_some_and(|can| !can.supports_tasks());
        let schema = || self.server.catalog().1.definition(name).map(|tool| tool.input_schema.clone());
        is_newest
            && is_plain
            && follows_no_task
            && say(headers, name)
            && schema().is_none_or(|schema| !wants_headers(schema.get("properties")))
    }

    /// Makes a call.
    pub(super) async fn answer(&self, id: RequestId, mut call: CallToolRequest, head: Parts) -> Answer {
        let peer = self.nowhere.get_or_init(|| serve_directly(self.server.clone(), Nowhere, None)).peer().clone();
        let mut context = RequestContext::new(id.clone(), peer);
        context.meta = call.extensions.remove().unwrap_or_default();
        context.extensions = std::mem::take(&mut call.extensions);
        context.extensions.insert(head);
        let made = self.server.handle_request(ClientRequest::CallToolRequest(call), context).await;
        match made {
            Ok(result) => written(StatusCode::OK, &ServerJsonRpcMessage::response(result, id)),
            Err(error) => written(status(error.code), &ServerJsonRpcMessage::error(error, Some(id))),
        }
    }
}

/// The status of an error, as the protocol has it for HTTP.
fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
        | ErrorCode::HEADER_MISMATCH => StatusCode::BAD_REQUEST,
        ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

/// Whether headers say plainly that this tool is called in the newest revision, and that any answer is taken.
fn say(headers: &HeaderMap, tool: &str) -> bool {
    let one = |name: &str| {
        let mut values = headers.get_all(name).iter();
        values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok())
    };
    let accepts = |kind: &str| one(ACCEPT.as_str()).is_some_and(|all| all.split(',').any(|one| one.trim() == kind));
    one("mcp-protocol-version") == Some(ProtocolVersion::V_2026_07_28.as_str())
        && one("mcp-method") == Some("tools/call")
        && one("mcp-name") == Some(tool)
        // Such a name is written in another way.
        && !tool.starts_with("=?")
        && one(CONTENT_TYPE.as_str()) == Some("application/json")
        && accepts("application/json")
        && accepts("text/event-stream")
        && headers.keys().all(|name| !name.as_str().starts_with(ARGUMENT))
}

/// Whether the schema of a property, however deep, wants a header.
fn wants_headers(properties: Option<&Json>) -> bool {
    let Some(Json::Object(properties)) = properties else { return false };
    properties.values().any(|schema| schema.get(WANTS_HEADER).is_some() || wants_headers(schema.get("properties")))
}

/// A connection on which nothing comes.
struct Nowhere;

impl Transport<RoleServer> for Nowhere {
    type Error = Infallible;

    fn send(&mut self, _: ServerJsonRpcMessage) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        std::future::ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        std::future::pending().await
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use serde_json::json;

    use super::*;

    fn headers(changed: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "it"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        for (name, value) in changed {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_headers_that_say_it_plainly_do() {
        assert!(say(&headers(&[]), "it"));
        assert!(say(&headers(&[("accept", "text/event-stream,application/json,*/*")]), "it"));
        for changed in [
            ("mcp-protocol-version", "2025-11-25"),
            ("mcp-method", "tools/list"),
            ("mcp-name", "other"),
            ("mcp-name", "IT"),
            ("content-type", "application/json; charset=utf-8"),
            ("content-type", "text/plain"),
            ("accept", "application/json"),
            ("accept", "application/json, text/event-stream;q=0"),
            ("accept", "*/*"),
            ("mcp-param-x", "1"),
        ] {
            assert!(!say(&headers(&[changed]), "it"), "{changed:?}");
        }
        for name in ["mcp-protocol-version", "mcp-method", "mcp-name", "content-type", "accept"] {
            let (mut without, mut twice) = (headers(&[]), headers(&[]));
            let value = without.remove(name).unwrap();
            twice.append(name, value);
            assert!(!say(&without, "it") && !say(&twice, "it"), "{name}");
        }
        assert!(!say(&headers(&[("mcp-name", "=?base64?aXQ=?=")]), "it"));
        assert!(!say(&headers(&[("mcp-name", "=?base64?aXQ=?=")]), "=?base64?aXQ=?="));
    }

    #[test]
    fn a_schema_wants_headers_of_properties_however_deep() {
        let wants = |schema: Json| wants_headers(schema.get("properties"));
        assert!(wants(json!({"properties": {"a": {}, "b": {"x-mcp-header": "B"}}})));
        assert!(wants(json!({"properties": {"a": {"properties": {"b": {"x-mcp-header": "B"}}}}})));
        assert!(!wants(json!({"properties": {"a": {"properties": {"b": {"type": "string"}}}}})));
        assert!(!wants(json!({"x-mcp-header": "A"})));
    }
}
