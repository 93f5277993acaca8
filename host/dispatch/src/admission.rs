//! Which artifacts are loaded: hooks on `artifact.load` are asked of each, and may refuse it.
//!
//! A project's hook governs all artifacts, a plugin's only those of its own bundle. A hook on `artifact.load` is not asked of
//! itself, and one of the project's is asked by nobody: it is what governs. Where there is no such hook, nothing is done.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::chain::{CallContext, Dispatch, HookRun, Verdict};
use super::decision::Decision;
use super::loaded::Loaded;
use super::payload::AgentAt;
use super::recorder::Recorder;
use super::run::Run;
use harness_artifact::agent::Agent;
use harness_artifact::event::Event;
use harness_artifact::hook::Hook;
use harness_artifact::third_party;
use harness_artifact::tool::Tool;
use harness_registry::{BundleFile, Refused, Registry};

/// Fuel that all the hooks may use together for loading a project. What is not asked for by then is refused.
const MOST_FUEL: u64 = 20_000_000_000;

/// An artifact, as its hooks are asked of it.
struct Asked {
    refused: Refused,
    /// The plugin that it is of.
    author: Option<String>,
    /// Whether only the project's hooks are asked of it: a bundle, which its own hooks are of, and a hook on `artifact.load`.
    is_above: bool,
    payload: Json,
}

/// The artifacts that hooks refuse, by which and why. Not to be called in a task of a runtime: it waits.
pub(super) fn refused(loaded: &Loaded, recorder: Option<&Recorder>) -> Vec<Refused> {
    if loaded.parts.registry.chain(&Event::ArtifactLoad).is_empty() {
        return Vec::new();
    }
    let asked = asked(&loaded.parts.registry);
    // A thread of its own: who opens a project may be in a runtime already.
    let answers = std::thread::scope(|scope| {
        let ask = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            Some(runtime.block_on(ask(loaded, &asked, recorder)))
        };
        scope.spawn(ask).join().ok().flatten()
    });
    // Who has opened a project drops its privileges, which wants a process without other threads.
    loaded.parts.sandbox.rest();
    // Nobody could be asked: then nothing is known to be let in.
    answers.unwrap_or_else(|| {
        let nobody = |one: Asked| Refused { reason: "its hooks cannot run".to_owned(), ..one.refused };
        asked.into_iter().map(nobody).collect()
    })
}

async fn ask(loaded: &Loaded, asked: &[Asked], recorder: Option<&Recorder>) -> Vec<Refused> {
    let mut views: HashMap<Option<&str>, Arc<Loaded>> = HashMap::new();
    let (mut found, mut fuel) = (Vec::new(), 0_u64);
    for one in asked {
        // The hooks of a bundle do not govern each other, nor the bundle.
        let author = one.author.as_deref().filter(|_| !one.is_above);
        if one.is_above && one.author.is_none() && one.refused.kind == "hook" {
            continue;
        }
        let view = views.entry(author).or_insert_with(|| {
            Arc::new(loaded.with_hooks(|hook| {
                let of = third_party::author(&hook.source_name);
                of.is_none() || of == author
            }))
        });
        if fuel > MOST_FUEL {
            let reason = format!("the hooks on `artifact.load` took more than {MOST_FUEL} units of fuel in all");
            let refused = Refused { reason, ..one.refused.clone() };
            // It is refused already: that this cannot be recorded keeps nothing else from being.
            let place = CallContext::outermost(view.clone(), Run::new());
            if let Some(recorder) = recorder {
                let _ = recorder.refused(&place, &refused).await;
            }
            found.push(refused);
            continue;
        }
        let place = CallContext::outermost(view.clone(), Run::new());
        let dispatch = place.fire(&Event::ArtifactLoad, one.payload.clone()).await;
        fuel = fuel.saturating_add(dispatch.usage().fuel);
        if let Decision::Block(block) = &dispatch.decision {
            found.push(Refused { by: by(&dispatch), reason: block.to_string(), ..one.refused.clone() });
        }
        // That all allow it is not recorded: there is as much of that as there are artifacts, each time.
        let decided = |hook: &HookRun| matches!(hook.verdict, Verdict::Modify | Verdict::Block | Verdict::Error);
        let recorder = recorder.filter(|_| dispatch.hooks.iter().any(decided));
        let recorded = match recorder {
            Some(recorder) => recorder.loaded(&place, &one.refused, &dispatch).await,
            None => Ok(()),
        };
        if let (Err(reason), false) = (recorded, matches!(dispatch.decision, Decision::Block(_))) {
            found.push(Refused { reason, ..one.refused.clone() });
        }
    }
    found
}

/// The hook that blocked.
fn by(dispatch: &Dispatch) -> String {
    dispatch.hooks.iter().rev().find(|hook| hook.reason.is_some()).map(|hook| hook.name.clone()).unwrap_or_default()
}

/// All artifacts of a registry, with what is said of each.
fn asked(registry: &Registry) -> Vec<Asked> {
    let bundles = registry.bundles().iter().map(bundle);
    let tools = registry.tools().iter().map(|one| tool(one));
    let hooks = registry.hooks().iter().map(|one| hook(one));
    let agents = registry.agents().iter().map(|one| agent(one));
    bundles.chain(hooks).chain(tools).chain(agents).collect()
}

fn one(kind: &'static str, name: &str, source: &str, at: String, payload: Json, is_above: bool) -> Asked {
    let author = third_party::author(source).map(str::to_owned);
    let mut facts = json!({"kind": kind, "name": name, "source": source, "file": at, "plugin": author});
    if let (Some(facts), Json::Object(more)) = (facts.as_object_mut(), payload) {
        facts.extend(more);
    }
    let facts = AgentAt::default().payload(&facts);
    let refused = Refused {
        kind,
        name: name.to_owned(),
        source: source.to_owned(),
        at,
        by: String::new(),
        reason: String::new(),
    };
    Asked { refused, author, is_above, payload: facts }
}

/// What hooks are reported a tool.
#[cfg(test)]
pub(super) fn payload_of(tool: &Tool) -> Json {
    self::tool(tool).payload
}

fn tool(tool: &Tool) -> Asked {
    let payload = json!({"tags": tool.tags, "script": scripts(tool), "description": tool.description, "event": null});
    one("tool", &tool.name, &tool.source_name, tool.source.to_string(), payload, false)
}

/// What of a tool runs: its script, and behind it its `verify`.
fn scripts(tool: &Tool) -> String {
    let all: Vec<&str> = tool.script.iter().chain(&tool.verify).map(|script| script.text.as_str()).collect();
    all.join("\n")
}

fn hook(hook: &Hook) -> Asked {
    let script = hook.script.as_ref().map_or("", |script| script.text.as_str());
    let event = hook.event.to_string();
    let payload = json!({"tags": hook.tags, "script": script, "description": hook.prose, "event": event});
    let governs = *hook.event == Event::ArtifactLoad;
    one("hook", &hook.name, &hook.source_name, hook.source.to_string(), payload, governs)
}

/// With the scripts of all tools and hooks that it has written out: who refuses one of these refuses the agent.
fn agent(agent: &Agent) -> Asked {
    let tools = agent.tools.iter().filter_map(|one| Some(scripts(one.inline()?)));
    let hooks = agent.hooks.iter().filter_map(|one| Some(one.inline()?.script.as_ref()?.text.clone()));
    let scripts: Vec<String> = tools.chain(hooks).collect();
    let description = agent.description.as_ref().map_or("", |text| text.value.as_str());
    let payload = json!({"tags": agent.tags, "script": scripts.join("\n"), "description": description, "event": null});
    one("agent", &agent.name, &agent.source_name, agent.source.to_string(), payload, false)
}

fn bundle(bundle: &BundleFile) -> Asked {
    let payload = json!({"tags": bundle.tags, "script": "", "description": bundle.prose, "event": null});
    one("bundle", &bundle.name, &bundle.name, bundle.path.clone(), payload, true)
}
