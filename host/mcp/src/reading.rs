//! The methods of resources: `resources/list`, `resources/templates/list` and `resources/read`.

use std::collections::BTreeMap;

use rmcp::RoleServer;
use rmcp::model::{
    ErrorData, ListResourceTemplatesResult, ListResourcesResult, PaginatedRequestParams, ReadResourceResult,
    ResourceContents,
};
use rmcp::service::RequestContext;
use serde_json::json;

use crate::acts::{self, READ, Refused};
use crate::page::{FRESH_MS, SCOPE, page};
use crate::resources;
use crate::server::Server;

/// A page of the resources.
pub(crate) async fn list(
    server: &Server,
    asked: Option<PaginatedRequestParams>,
) -> Result<ListResourcesResult, ErrorData> {
    let loaded = server.project().loaded();
    let all = if acts::is_allowed(&loaded, READ) {
        let grant = server.grant(&loaded);
        let found = tokio::task::spawn_blocking(move || resources::list(&loaded, &grant)).await;
        let found = found.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        found.map_err(|why| ErrorData::internal_error(why, None))?
    } else {
        BTreeMap::new()
    };
    let (entries, next) = page(server.seals(), "resources/list", asked, &all)?;
    let mut listed = ListResourcesResult::with_all_items(entries).with_ttl_ms(FRESH_MS);
    (listed.next_cursor, listed.cache_scope) = (next, Some(SCOPE));
    Ok(listed)
}

/// A page of the templates.
pub(crate) async fn list_templates(
    server: &Server,
    asked: Option<PaginatedRequestParams>,
) -> Result<ListResourceTemplatesResult, ErrorData> {
    let loaded = server.project().loaded();
    let all = if acts::is_allowed(&loaded, READ) { resources::templates(&loaded) } else { BTreeMap::new() };
    let (entries, next) = page(server.seals(), "resources/templates/list", asked, &all)?;
    let mut listed = ListResourceTemplatesResult::with_all_items(entries).with_ttl_ms(FRESH_MS);
    (listed.next_cursor, listed.cache_scope) = (next, Some(SCOPE));
    Ok(listed)
}

/// Reads a resource.
///
/// # Errors
///
/// Why there is no such resource for this client, with the URI as `data`.
pub(crate) async fn read(
    server: &Server,
    uri: &str,
    context: &RequestContext<RoleServer>,
) -> Result<ReadResourceResult, ErrorData> {
    let report = acts::act(server, READ, json!({"uri": uri}), context).await.map_err(|refused| match refused {
        Refused::Denied(why) => {
            let mut uri = uri.to_owned();
            server.project().loaded().secrets().redact(&mut uri);
            ErrorData::resource_not_found(why, Some(json!({"uri": uri})))
        }
        refused => refused.into(),
    })?;
    let contents = match acts::rewritten(&report) {
        Some(text) => ResourceContents::text(text, uri),
        // Hooks may have made something else of it, which is a text too.
        None => serde_json::from_value(report.result.clone())
            .unwrap_or_else(|_| ResourceContents::text(report.content.clone(), uri)),
    };
    // Each read is an act that the audit log has.
    let mut result = ReadResourceResult::new(vec![contents]).with_ttl_ms(0);
    result.cache_scope = Some(SCOPE);
    Ok(result)
}
