//! What servers offer: hooks on `mcp.list` see the definitions of each server, and leave some out or write others.
//!
//! The hooks are the project's own, and the definitions are those of the lock: no server is started. What is compared with
//! a server later is what is locked, whatever hooks made of it.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::chain::{CallContext, Dispatch, HookRun, Verdict};
use super::loaded::{Loaded, Parts};
use super::payload::AgentAt;
use super::recorder::Recorder;
use super::run::Run;
use harness_artifact::definition::{Definition, Served, Transport};
use harness_artifact::event::Event;
use harness_artifact::third_party;
use harness_artifact::tool::Tool;
use harness_registry::{Refused, Registry};

/// The artifacts with the tools of servers as hooks have left them. Not to be called in a task of a runtime: it waits.
pub(super) fn listed(loaded: &Loaded, recorder: Option<&Recorder>) -> Registry {
    let registry = loaded.parts.registry.clone();
    if registry.chain(&Event::McpList).is_empty() || registry.servers().is_empty() {
        return registry;
    }
    // A thread of its own: who opens a project may be in a runtime already.
    let asked = std::thread::scope(|scope| {
        let ask = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            Some(runtime.block_on(ask(loaded, recorder)))
        };
        scope.spawn(ask).join().ok().flatten()
    });
    loaded.parts.sandbox.rest();
    match asked {
        Some(registry) => registry,
        // Nobody could be asked: then nothing is known to be let in.
        None => registry.servers().iter().fold(registry.clone(), |registry, server| {
            let name = &server.pinned.server;
            registry.with_served(
                name,
                Vec::new(),
                Some(refused(name, String::new(), "its hooks cannot run".to_owned())),
            )
        }),
    }
}

async fn ask(loaded: &Loaded, recorder: Option<&Recorder>) -> Registry {
    let view = Arc::new(loaded.with_hooks(|hook| third_party::author(&hook.source_name).is_none()));
    let mut registry = loaded.parts.registry.clone();
    for server in loaded.parts.registry.servers() {
        let name = &server.pinned.server;
        let of = |tool: &&Arc<Tool>| tool.served.as_ref().is_some_and(|served| served.server == *name);
        let tools: Vec<Arc<Tool>> = loaded.parts.registry.tools().iter().filter(of).cloned().collect();
        let named = |tool: &str| tools.iter().any(|one| one.served.as_ref().is_some_and(|served| served.tool == tool));
        let definitions = server.pinned.tools.iter().filter(|definition| named(definition.name()));
        let definitions: Vec<Json> = definitions.map(|definition| definition.json().clone()).collect();
        let place = CallContext::outermost(view.clone(), Run::new());
        let payload =
            json!({"server": name, "transport": server.pinned.endpoint.transport().name(), "tools": definitions});
        let dispatch = place.fire(&Event::McpList, AgentAt::default().payload(&payload)).await;
        let decided = |hook: &HookRun| matches!(hook.verdict, Verdict::Modify | Verdict::Block | Verdict::Error);
        let recorder = recorder.filter(|_| dispatch.hooks.iter().any(decided));
        let recorded = Recorder::decided(recorder, &place, &Event::McpList, &dispatch).await;
        let left = match (dispatch.decision.blocked(), recorded) {
            (Some(reason), _) | (None, Err(reason)) => Err(reason),
            (None, Ok(())) => left(name, &tools, dispatch.payload.get("tools")),
        };
        registry = match left {
            Ok(tools) => registry.with_served(name, tools, None),
            Err(reason) => registry.with_served(name, Vec::new(), Some(refused(name, by(&dispatch), reason))),
        };
    }
    registry
}

/// The tools that hooks have left, each with what they wrote of it.
fn left(server: &str, tools: &[Arc<Tool>], definitions: Option<&Json>) -> Result<Vec<Tool>, String> {
    let Some(Json::Array(definitions)) = definitions else { return Err("`tools` must be a list".to_owned()) };
    let mut left: Vec<Tool> = Vec::new();
    for definition in definitions {
        let definition = Definition::read(definition.clone())?;
        let named = |tool: &&Arc<Tool>| tool.served.as_ref().is_some_and(|served| served.tool == definition.name());
        let Some(before) = tools.iter().find(named) else {
            return Err(format!("`tools` has `{}`, which was not there", definition.name()));
        };
        let transport = before.served.as_ref().map_or(Transport::Stdio, |served| served.transport);
        let mut tool = definition.tool(server, transport, &before.source)?;
        if left.iter().any(|other| other.name == tool.name) {
            return Err(format!("`tools` has `{}` twice", definition.name()));
        }
        // What needs confirmation still does.
        if *before.confirm {
            tool.confirm = before.confirm.clone();
            tool.served.clone_from(&before.served);
        }
        left.push(tool);
    }
    Ok(left)
}

fn refused(server: &str, by: String, reason: String) -> Refused {
    let source = Served::source(server);
    Refused { kind: "server", name: server.to_owned(), source, at: harness_registry::lock::FILE.to_owned(), by, reason }
}

/// The hook that blocked, else the last that changed something.
fn by(dispatch: &Dispatch) -> String {
    let mut hooks = dispatch.hooks.iter().rev();
    hooks
        .find(|hook| hook.reason.is_some() || hook.verdict == Verdict::Modify)
        .map(|hook| hook.name.clone())
        .unwrap_or_default()
}

/// The same as [`listed`] of one state, as parts.
pub(super) fn applied(loaded: Loaded, recorder: Option<&Recorder>) -> Loaded {
    let registry = listed(&loaded, recorder);
    Loaded::new(Parts { registry, ..loaded.parts() })
}

#[cfg(test)]
mod tests {
    use harness_artifact::diagnostic::Position;

    use super::*;

    #[test]
    fn hooks_leave_out_and_rewrite_and_add_nothing() {
        let here = Position { file: "harness.lock".into(), line: 3, column: 1, length: 1 };
        let definition = |name: &str, text: &str| json!({"name": name, "description": text, "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": name == "drop"}});
        let tool = |name: &str| {
            Arc::new(Definition::read(definition(name, "old")).unwrap().tool("s", Transport::Stdio, &here).unwrap())
        };
        let tools = [tool("a"), tool("b"), tool("drop")];
        let left = |definitions: Json| left("s", &tools, Some(&definitions));
        let kept = left(json!([definition("b", "new")])).unwrap();
        assert_eq!(kept.iter().map(|tool| (&*tool.name, &*tool.description)).collect::<Vec<_>>(), [("s_b", "new")]);
        let mut softer = definition("drop", "kind");
        softer["annotations"] = json!({"destructiveHint": false});
        assert!(*left(json!([softer])).unwrap()[0].confirm);
        assert_eq!(left(json!([])), Ok(Vec::new()));
        for (definitions, why) in [
            (json!({}), "`tools` must be a list"),
            (json!([definition("c", "x")]), "`tools` has `c`, which was not there"),
            (json!([definition("a", "x"), definition("a", "y")]), "`tools` has `a` twice"),
            (json!([definition("a", "x\u{202e}")]), "the tool `a`: its definition has the hidden character U+202E"),
        ] {
            assert_eq!(left(definitions), Err(why.to_owned()));
        }
    }
}
