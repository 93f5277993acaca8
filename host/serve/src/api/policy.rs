//! The policy of a tenant's project, dry runs of another one, and the plugins that it grants something to.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use harness_agent::compare::{self, News};
use harness_policy::compare::agreed;
use harness_policy::grant::Grant;
use harness_registry::{BundleFile, Registry};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::calls::narrowed;
use super::{Caller, MAX_BODY, answer, parse, read};
use crate::problem::Problem;
use crate::server::Server;

type Answer = Result<Response<Body>, Problem>;

/// The body of a dry run: one of the two.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DryRun {
    /// A whole `harness.md` in place of the one in force.
    harness_md: Option<String>,
    /// Rules that would narrow all calls, as in `capabilities:`.
    layer: Option<Json>,
}

/// The effective policy: what all layers allow each tool together.
pub(super) async fn show(State(server): State<Arc<Server>>, Extension(caller): Extension<Caller>) -> Answer {
    let tenant = caller.tenant()?;
    let opened = server.tenants.opened(tenant).await?;
    let loaded = opened.project.loaded();
    let narrowed = tenant.layers(&caller.key);
    let tools: Vec<Json> = loaded
        .registry()
        .tools()
        .iter()
        .map(|tool| {
            let grant = loaded.policy().grant_of(tool);
            let grant = if narrowed.is_empty() { grant } else { grant.meet(&Grant::new(narrowed.clone())) };
            let allowed = loaded.policy().tools.decide(&tool.name).is_ok();
            json!({"tool": tool.name, "allowed": allowed, "rules": rules(&grant)})
        })
        .collect();
    Ok(answer(StatusCode::OK, &json!({"class": tenant.class.name, "tools": tools})))
}

/// The rules of a grant. `whole`: whether they are all that is allowed.
fn rules(grant: &Grant) -> Vec<Json> {
    agreed(grant).into_iter().map(|one| json!({"key": one.key, "rules": one.rules, "whole": one.whole})).collect()
}

/// Compares another policy with the one in force. Nothing changes.
pub(super) async fn dry_run(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Answer {
    let DryRun { harness_md, layer } = parse(&read(body, MAX_BODY).await?)?;
    let tenant = caller.tenant()?;
    let (wider, narrower) = match (harness_md, layer) {
        (Some(text), None) => {
            server.accepts_requests().await?;
            let opened = server.tenants.opened(tenant).await?;
            let loaded = opened.project.loaded();
            let look = move |new: &Registry| {
                let old = loaded.registry();
                Some((compare::projects(old, new)?, compare::projects(new, old)?))
            };
            // What cannot be compared has no policy, and is reported as a project with errors before.
            server.tenants.with_policy(tenant, &text, look).await?.ok_or_else(Problem::fault)?
        }
        (None, Some(rules)) => {
            let layer = Grant::new(vec![narrowed(&rules)?]);
            let opened = server.tenants.opened(tenant).await?;
            let loaded = opened.project.loaded();
            let (mut wider, mut narrower) = (News::new(), News::new());
            for tool in loaded.registry().tools() {
                let old = loaded.policy().grant_of(tool);
                let (new, of) = (old.meet(&layer), format!("tool `{}`", tool.name));
                compare::grants_of(&old, &new, &of, &mut wider);
                compare::grants_of(&new, &old, &of, &mut narrower);
            }
            (wider, narrower)
        }
        _ => return Err(Problem::invalid("send either `harness_md` or `layer`")),
    };
    let found = json!({"wider": compare::as_json(&wider), "narrower": compare::as_json(&narrower)});
    Ok(answer(StatusCode::OK, &found))
}

/// The plugins of the project: what each asks for and is granted, and what `harness.lock` has of it.
pub(super) async fn plugins(State(server): State<Arc<Server>>, Extension(caller): Extension<Caller>) -> Answer {
    let tenant = caller.tenant()?;
    let opened = server.tenants.opened(tenant).await?;
    let loaded = opened.project.loaded();
    let root = tenant.project_folder();
    let lock = tokio::task::spawn_blocking(move || Registry::read_lock(&root)).await.map_err(|_| Problem::fault())?;
    // A lock that cannot be read stops the project: this one was changed since it was opened.
    let lock = lock.ok().flatten().unwrap_or_default();
    let bundles = loaded.registry().bundles().iter().filter_map(|bundle| Some((plugin_of(bundle)?, bundle)));
    let plugins: Vec<Json> = bundles
        .map(|(name, bundle)| {
            let about = bundle.plugin.as_deref();
            let asks = about.map(|plugin| &*plugin.asks).unwrap_or_default().iter().map(|ask| {
                let rules: Vec<Json> =
                    ask.rules.iter().map(|rule| json!({"key": rule.key, "item": rule.item})).collect();
                json!({"reason": ask.reason, "rules": rules})
            });
            let locked = lock.plugin(name).map(|locked| {
                let signers: Vec<String> = locked.signers().iter().map(|signer| signer.as_str().to_owned()).collect();
                json!({
                    "version": locked.version.to_string(), "source": locked.source.to_string(),
                    "resolved": locked.resolved, "digest": locked.digest, "asked": locked.asked,
                    "granted": locked.granted, "signers": signers,
                })
            });
            json!({
                "name": name,
                "version": about.map(|plugin| plugin.version.to_string()),
                "description": about.map(|plugin| plugin.description.clone()),
                "asks": asks.collect::<Vec<_>>(),
                "granted": rules(&loaded.policy().grant_for(&bundle.name, None)),
                "verified": bundle.pinned,
                "locked": locked,
            })
        })
        .collect();
    Ok(answer(StatusCode::OK, &json!({"plugins": plugins})))
}

/// The name of a bundle that is a plugin.
fn plugin_of(bundle: &BundleFile) -> Option<&str> {
    bundle.name.strip_prefix("plugins/")
}
