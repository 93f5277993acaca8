//! `search_tools`: where there are more tools than a client gets listed, it finds the others by words.

use harness_dispatch::code::rank;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, ErrorData, JsonObject, Tool as Definition, ToolAnnotations,
};
use rmcp::service::RequestContext;
use serde_json::{Value as Json, json};

use crate::acts::{self, Refused};
use crate::catalog::Catalog;
use crate::server::Server;

/// The name of the tool.
pub(crate) const SEARCH: &str = "search_tools";
/// Tools that one search returns.
const MAX_FOUND: usize = 20;
/// Bytes of all of them as JSON, unless the first one is larger.
const MAX_BYTES: usize = 32 << 10;

/// Its definition, where there are so many tools.
pub(crate) fn definition(tools: usize) -> Definition {
    let description = format!(
        "Finds tools of this server, which has {tools}, by words of their names and descriptions. Returns the name, the \
         description and the input schema of each: call what is found by its name."
    );
    let query = json!({"type": "string", "description": "Words, such as `deploy staging`."});
    let schema = json!({"type": "object", "properties": {"query": query}, "required": ["query"]});
    let schema = match schema {
        Json::Object(schema) => schema,
        _ => JsonObject::new(),
    };
    let mut definition = Definition::new(SEARCH, description, std::sync::Arc::new(schema));
    definition.annotations = Some(ToolAnnotations::new().read_only(true).open_world(false));
    definition
}

/// The tools that a query finds: those with more of its words first, in names before descriptions, then by name.
pub(crate) fn find(catalog: &Catalog, query: &str) -> Json {
    let tools = catalog.definitions().values().filter(|tool| tool.name != SEARCH);
    let found = rank(query, tools.map(|tool| (&*tool.name, tool.description.as_deref().unwrap_or_default(), tool)));
    let total = found.len();
    let (mut tools, mut bytes) = (Vec::new(), 0_usize);
    for tool in found.into_iter().take(MAX_FOUND) {
        let shown = json!({"name": tool.name, "description": tool.description, "inputSchema": *tool.input_schema});
        bytes = bytes.saturating_add(shown.to_string().len());
        if bytes > MAX_BYTES && !tools.is_empty() {
            break;
        }
        tools.push(shown);
    }
    json!({"tools": tools, "total": total})
}

/// A call of it, which is one like any other.
///
/// # Errors
///
/// That the host failed.
pub(crate) async fn call(
    server: &Server,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let arguments = Json::Object(request.arguments.unwrap_or_default());
    let (text, is_error) = match acts::act(server, SEARCH, arguments, context).await {
        Ok(report) => (report.content, false),
        Err(Refused::Denied(why)) => (format!("tool denied: {why}"), true),
        Err(Refused::Failed(why)) => (format!("tool error: {why}"), true),
        Err(Refused::Host) => ("tool error: the host failed".to_owned(), true),
        Err(Refused::NotAdmitted(why)) => return Err(why.into()),
    };
    let content = vec![ContentBlock::text(text)];
    Ok(if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) })
}
