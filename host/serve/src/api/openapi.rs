//! `/openapi.json`: the interface as OpenAPI 3.1, written from one table.
//!
//! A route is in the table, or it is not served: `Routes::on` looks its path and its action up. The schemas of bodies are
//! data, in `schemas.json`. `docs/openapi.json` is the kept document, and a test compares it.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::{Map, Value as Json, json};

use super::answer;
use crate::role::{Action, Role};

/// What is sent or answered.
#[derive(Debug, Clone, Copy)]
enum Content {
    /// Nothing.
    Empty,
    /// JSON of this schema.
    Json(&'static str),
    /// The same, which may be left out.
    Perhaps(&'static str),
    /// A message of the Model Context Protocol, or a stream of them.
    Messages,
    /// Text or bytes of this media type.
    Of(&'static str),
    /// The same, which may be empty.
    PerhapsOf(&'static str),
}

/// One request that the interface takes.
#[derive(Debug)]
struct Operation {
    method: &'static str,
    /// As in OpenAPI. A path of the router that ends in `{*path}` ends in `{path}` here.
    path: &'static str,
    /// What a key must be allowed to ask for; none: no key is needed.
    action: Option<Action>,
    /// The name of its function in clients.
    name: &'static str,
    summary: &'static str,
    /// Parameters after `?`, each with its type.
    query: &'static [(&'static str, &'static str)],
    /// Headers, beside those of every request.
    headers: &'static [&'static str],
    body: Content,
    /// Answers that are no errors.
    answers: &'static [(u16, Content)],
}

/// Parameters of lists in pages.
const PAGES: &[(&str, &str)] = &[("after", "string"), ("limit", "integer")];
/// Of requests that begin work.
const ONCE: &[&str] = &["Idempotency-Key"];
/// The same in a workspace.
const RUN: &[&str] = &["Idempotency-Key", "Harness-Workspace"];
/// Of what is done in a workspace.
const IN: &[&str] = &["Harness-Workspace"];
/// Of calls, which may be begun only.
const CALL: &[&str] = &["Idempotency-Key", "Prefer", "Harness-Workspace"];
/// Of event streams.
const EVENTS: &[&str] = &["Last-Event-ID"];
/// Of the Model Context Protocol.
const MCP: &[&str] = &["MCP-Protocol-Version", "Mcp-Session-Id", "Mcp-Method", "Mcp-Name", "Harness-Workspace"];
const JSON_LINES: Content = Content::Of("application/x-ndjson");

macro_rules! operations {
    ($($method:ident $path:literal $action:expr, $name:literal, $summary:literal, $query:expr, $headers:expr, $body:expr,
       [$($status:literal $content:expr),+];)+) => {
        &[$(Operation {
            method: stringify!($method),
            path: $path,
            action: $action,
            name: $name,
            summary: $summary,
            query: $query,
            headers: $headers,
            body: $body,
            answers: &[$(($status, $content)),+],
        }),+]
    };
}

use Action::{
    Approve, Call, ManageKeys, ManageWebhooks, ManageWorkspaces, ReadAudit, ReadFiles, ReadPolicy, ReadRuns, ReadTools,
    ReadUsage, Run, WriteFiles, WriteProject, WriteSecrets,
};
use Content::{Empty, Json as J, Messages, Of, Perhaps, PerhapsOf};

#[rustfmt::skip]
const OPERATIONS: &[Operation] = operations! {
    get "/v1/tools" Some(ReadTools), "listTools", "List the tools that the policy allows", &[], &[], Empty, [200 J("Tools")];
    post "/v1/tools/{name}/calls" Some(Call), "callTool", "Call a tool", &[], CALL, Perhaps("CallRequest"), [200 J("Call"), 202 J("Run")];
    get "/v1/runs" Some(ReadRuns), "listRuns", "List runs, the oldest first", PAGES, &[], Empty, [200 J("Runs")];
    post "/v1/runs" Some(Run), "beginRun", "Give the agent a message", &[], RUN, J("RunRequest"), [202 J("Run")];
    get "/v1/runs/{id}" Some(ReadRuns), "showRun", "Show a run, with its result once it has ended", &[], &[], Empty, [200 J("Run")];
    delete "/v1/runs/{id}" Some(Run), "stopRun", "Stop a run, and wait for its end", &[], &[], Empty, [200 J("Run")];
    get "/v1/runs/{id}/events" Some(ReadRuns), "followRun", "Follow the events of a run until its end", &[("after", "integer")], EVENTS, Empty, [200 Of("text/event-stream")];
    get "/v1/sessions" Some(ReadRuns), "listSessions", "List sessions, the oldest first", PAGES, &[], Empty, [200 J("Sessions")];
    get "/v1/sessions/{id}" Some(ReadRuns), "showSession", "Show a session as a timeline; with `.jsonl` its file, with `.html` a page", &[], &[], Empty, [200 J("Session")];
    post "/v1/sessions/{id}/turns" Some(Run), "continueSession", "Begin a further turn of a session", &[], ONCE, J("TurnRequest"), [202 J("Run")];
    post "/v1/sessions/{id}/replay" Some(ReadRuns), "replaySession", "Run a session again with its recorded answers, and compare", &[], ONCE, Perhaps("Nothing"), [200 J("Replay")];
    get "/v1/approvals" Some(Approve), "listApprovals", "List the calls that wait for confirmation", &[], &[], Empty, [200 J("Approvals")];
    post "/v1/approvals/{id}" Some(Approve), "answerApproval", "Confirm or refuse a call", &[], &[], J("AnswerRequest"), [200 J("Answered")];
    get "/v1/usage" Some(ReadUsage), "showUsage", "Show what was used of budgets and rates", &[], &[], Empty, [200 J("Usage")];
    get "/v1/audit" Some(ReadAudit), "readAudit", "Read the audit log", &[("after", "integer"), ("limit", "integer")], &[], Empty, [200 JSON_LINES];
    get "/v1/policy" Some(ReadPolicy), "showPolicy", "Show what all layers of policy allow each tool", &[], &[], Empty, [200 J("Policy")];
    post "/v1/policy" Some(ReadPolicy), "tryPolicy", "Compare another policy with the one in force; nothing changes", &[], &[], J("PolicyRequest"), [200 J("PolicyDiff")];
    get "/v1/plugins" Some(ReadPolicy), "listPlugins", "List the plugins of the project", &[], &[], Empty, [200 J("Plugins")];
    get "/v1/files" Some(ReadFiles), "listFiles", "List files of the workspace", &[("pattern", "string"), ("workspace", "string")], IN, Empty, [200 J("Files")];
    get "/v1/files/{path}" Some(ReadFiles), "readFile", "Read a file", &[("workspace", "string")], IN, Empty, [200 Of("application/octet-stream")];
    put "/v1/files/{path}" Some(WriteFiles), "writeFile", "Write a file", &[("workspace", "string")], IN, PerhapsOf("application/octet-stream"), [200 J("Written")];
    delete "/v1/files/{path}" Some(WriteFiles), "removeFile", "Remove a file", &[("workspace", "string")], IN, Empty, [200 J("Removed")];
    get "/v1/workspaces" Some(ReadTools), "listWorkspaces", "List workspaces, with what they hold", &[], &[], Empty, [200 J("Workspaces")];
    post "/v1/workspaces" Some(ManageWorkspaces), "createWorkspace", "Make a workspace", &[], &[], J("WorkspaceRequest"), [201 J("Workspace")];
    delete "/v1/workspaces/{name}" Some(ManageWorkspaces), "removeWorkspace", "Remove a workspace with its files", &[], &[], Empty, [200 J("Workspace")];
    get "/v1/project" Some(ReadTools), "showProject", "Show the digest of the project in force", &[], &[], Empty, [200 J("Project")];
    put "/v1/project" Some(WriteProject), "uploadProject", "Replace the project by a tar archive", &[], &[], Of("application/octet-stream"), [200 J("Project")];
    get "/v1/secrets" Some(WriteSecrets), "listSecrets", "List the names of secrets", &[], &[], Empty, [200 J("Secrets")];
    put "/v1/secrets/{name}" Some(WriteSecrets), "setSecret", "Set a secret", &[], &[], J("SecretRequest"), [200 J("Secret")];
    delete "/v1/secrets/{name}" Some(WriteSecrets), "removeSecret", "Remove a secret", &[], &[], Empty, [200 J("Secret")];
    get "/v1/keys" Some(ManageKeys), "listKeys", "List the keys of the tenant", &[], &[], Empty, [200 J("Keys")];
    post "/v1/keys" Some(ManageKeys), "createKey", "Make a key; its text is in the answer alone", &[], &[], J("KeyRequest"), [201 J("NewKey")];
    delete "/v1/keys/{id}" Some(ManageKeys), "removeKey", "Remove a key", &[], &[], Empty, [200 J("RemovedKey")];
    get "/v1/webhooks" Some(ManageWebhooks), "listWebhooks", "List the webhooks of the tenant", &[], &[], Empty, [200 J("Webhooks")];
    post "/v1/webhooks" Some(ManageWebhooks), "createWebhook", "Name an address that events are sent to; its secret is in the answer alone", &[], &[], J("WebhookRequest"), [201 J("NewWebhook")];
    get "/v1/webhooks/{id}" Some(ManageWebhooks), "showWebhook", "Show a webhook, and why it is disabled", &[], &[], Empty, [200 J("Webhook")];
    patch "/v1/webhooks/{id}" Some(ManageWebhooks), "changeWebhook", "Change its address or events, or enable it again", &[], &[], J("WebhookChange"), [200 J("Webhook")];
    delete "/v1/webhooks/{id}" Some(ManageWebhooks), "removeWebhook", "Remove a webhook, with what waits to be sent", &[], &[], Empty, [200 J("RemovedKey")];
    post "/v1/webhooks/{id}/secret" Some(ManageWebhooks), "rotateWebhookSecret", "Make another secret; the one before signs too for a day", &[], &[], Perhaps("Nothing"), [200 J("NewWebhook")];
    post "/v1/webhooks/{id}/test" Some(ManageWebhooks), "testWebhook", "Send an event to a webhook", &[], &[], Perhaps("Nothing"), [202 J("Delivery")];
    get "/v1/webhooks/{id}/deliveries" Some(ManageWebhooks), "listDeliveries", "List what was sent to a webhook, the oldest first", PAGES, &[], Empty, [200 J("Deliveries")];
    get "/v1/models" Some(Run), "listModels", "List agents as models", &[], &[], Empty, [200 J("Models")];
    post "/v1/chat/completions" Some(Run), "completeChat", "Ask the agent in the form of chat completions", &[], RUN, J("ChatRequest"), [200 J("Chat")];
    post "/mcp" Some(Call), "sendMessage", "Send one message of the Model Context Protocol", &[], MCP, J("Any"), [200 Messages, 202 Empty, 400 J("Any"), 404 J("Any")];
    get "/healthz" None, "isAlive", "Whether the process answers", &[], &[], Empty, [200 J("Status")];
    get "/readyz" None, "isReady", "Whether the server takes work", &[], &[], Empty, [200 J("Status")];
    get "/openapi.json" None, "describe", "This description", &[], &[], Empty, [200 J("Any")];
};

/// Schemas by name.
const SCHEMAS: &str = include_str!("schemas.json");

static DOCUMENT: LazyLock<Json> = LazyLock::new(document);

pub(super) async fn show() -> Response<Body> {
    answer(StatusCode::OK, &DOCUMENT)
}

/// Whether the table describes a path of the router, with this action.
pub(super) fn describes(path: &str, action: Option<Action>) -> bool {
    let path = path.replace("{*", "{");
    OPERATIONS.iter().any(|one| one.path == path && one.action == action)
}

fn document() -> Json {
    let mut paths = Map::new();
    for one in OPERATIONS {
        let methods = paths.entry(one.path).or_insert_with(|| json!({}));
        if let Some(methods) = methods.as_object_mut() {
            methods.insert(one.method.to_owned(), operation(one));
        }
    }
    // A schema that cannot be read is noticed by the test of the kept file.
    let schemas: Json = serde_json::from_str(SCHEMAS).unwrap_or_default();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Harness",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Tools, agents, files and records of one tenant of `harness serve`. See docs/api.md.",
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "`hk_ID_SECRET`"}},
            "responses": {"Problem": {
                "description": "An error",
                "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            }},
        },
    })
}

fn operation(one: &Operation) -> Json {
    let mut answers: Map<String, Json> = one
        .answers
        .iter()
        .map(|(status, content)| {
            let description = StatusCode::from_u16(*status).ok().and_then(|status| status.canonical_reason());
            let mut answer = json!({"description": description});
            if let (Some(answer), Some(content)) = (answer.as_object_mut(), content_of(*content)) {
                answer.insert("content".to_owned(), content);
            }
            (status.to_string(), answer)
        })
        .collect();
    answers.insert("default".to_owned(), json!({"$ref": "#/components/responses/Problem"}));
    let in_path = one.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| parameter("path", name, "string"));
    let in_query = one.query.iter().map(|(name, kind)| parameter("query", name, kind));
    let in_head = one.headers.iter().map(|name| parameter("header", name, "string"));
    let mut operation = json!({"operationId": one.name, "summary": one.summary, "responses": answers});
    let Some(members) = operation.as_object_mut() else { return operation };
    let parameters: Vec<Json> = in_path.chain(in_query).chain(in_head).collect();
    if !parameters.is_empty() {
        members.insert("parameters".to_owned(), parameters.into());
    }
    if let Some(content) = content_of(one.body) {
        let is_required = !matches!(one.body, Content::Perhaps(_) | Content::PerhapsOf(_));
        members.insert("requestBody".to_owned(), json!({"required": is_required, "content": content}));
    }
    match one.action {
        None => drop(members.insert("security".to_owned(), json!([]))),
        Some(action) => {
            let roles = Role::ALL.iter().filter(|role| role.may(action)).map(|role| role.name());
            members.insert("x-roles".to_owned(), roles.collect());
        }
    }
    operation
}

fn parameter(place: &str, name: &str, kind: &str) -> Json {
    let mut schema = json!({"type": kind});
    if let (Some(schema), "integer") = (schema.as_object_mut(), kind) {
        schema.insert("minimum".to_owned(), 0.into());
    }
    json!({"name": name, "in": place, "required": place == "path", "schema": schema})
}

fn content_of(content: Content) -> Option<Json> {
    Some(match content {
        Content::Empty => return None,
        Content::Json(name) | Content::Perhaps(name) => {
            json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}})
        }
        Content::Messages => json!({
            "application/json": {"schema": {"$ref": "#/components/schemas/Any"}},
            "text/event-stream": {},
        }),
        // Its events are objects, whose form is their kind's.
        Content::Of(kind @ "text/event-stream") => json!({kind: {}}),
        Content::Of(kind) | Content::PerhapsOf(kind) => json!({kind: {"schema": {"type": "string"}}}),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_schemas_are_there_once() {
        let schemas: Json = serde_json::from_str(SCHEMAS).unwrap();
        let text = DOCUMENT.to_string();
        for name in text.split("#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert!(schemas.get(name).is_some(), "no schema {name}");
        }
        for name in schemas.as_object().unwrap().keys() {
            assert!(text.contains(&format!("#/components/schemas/{name}\"")), "nothing uses the schema {name}");
        }
        let mut names: Vec<&str> = OPERATIONS.iter().map(|one| one.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OPERATIONS.len());
    }
}
