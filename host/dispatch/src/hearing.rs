//! Which hooks receive an event, and what they see of it.
//!
//! The project's own hooks receive every event. A plugin's hooks receive those of the plugin's own tools, agents and scripts,
//! and of others what the policy consents to: whole, by names, or by names and digests. Events that a plugin's scripts emit
//! are the plugin's own, unless it shares their names.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::chain::CallContext;
use super::digest_key::DigestKey;
use super::matching::Payload;
use harness_artifact::event::Event;
use harness_artifact::hook::Hook;
use harness_artifact::policy::hearing::Shows;
use harness_artifact::policy::sources::bundle_of;
use harness_artifact::tool::Tool;
use harness_policy::grant::Grant;
use harness_policy::shared::SharedKind;
use harness_sandbox::engine::Image;

/// Keys of payloads that hold names, identifiers and numbers of the host.
const NAMES: [&str; 22] = [
    "id",
    "call_id",
    "parent_id",
    "name",
    "source",
    "agent",
    "depth",
    "path",
    "attempt",
    "iteration",
    "model",
    "kind",
    "event",
    "priority",
    "tool",
    "function",
    "server",
    "transport",
    "is_error",
    "finish_reason",
    "max_tokens",
    "temperature",
];
/// Those that hold lists of names in some payloads.
const LISTS: [&str; 2] = ["tools", "hooks"];

/// What an event is about, beside who causes it.
#[derive(Debug, Clone)]
pub enum Subject {
    /// The tool that is called.
    Tool(Arc<Tool>),
    /// The source of the agent that is set to work.
    Agent(Arc<str>),
}

impl Subject {
    fn source(&self) -> &str {
        match self {
            Self::Tool(tool) => &tool.source_name,
            Self::Agent(source) => source,
        }
    }
}

/// A hook of this dispatch.
pub(super) struct Link<'a> {
    pub(super) hook: &'a Arc<Hook>,
    /// Of one that a script has added: what it may do, and its image.
    pub(super) added: Option<(&'a Arc<Grant>, &'a Image)>,
    /// What it sees of the payload.
    pub(super) shows: Shows,
}

impl Link<'_> {
    /// The payload as this hook sees it; none where it sees all of it.
    pub(super) fn narrowed(&self, place: &CallContext, event: &Event, payload: &Payload) -> Option<Payload> {
        let source = place.about.as_ref().map(Subject::source);
        let narrow = |payload: &Json| narrowed(event, payload, (self.shows, place.run.digest_key()), source);
        (self.shows < Shows::All).then(|| payload.map(narrow))
    }
}

impl CallContext {
    /// The same for events of a call of this tool.
    pub(super) fn concerning(&self, tool: &Arc<Tool>) -> Self {
        Self { about: Some(Subject::Tool(tool.clone())), ..self.clone() }
    }

    /// The hooks of an event, in order: the project's, and those added to the run after all of their priority.
    pub(super) fn chain(&self, event: &Event) -> Vec<Link<'_>> {
        let chain = self.loaded.parts.registry.chain(event);
        let mut links: Vec<Link<'_>> = chain.iter().map(|hook| Link { hook, added: None, shows: Shows::All }).collect();
        // One that a script has added hears no built-ins.
        if !event.is_builtin() && !self.added.hooks.is_empty() {
            links.extend(self.added.hooks_of(event).map(|one| {
                let added = Some((&one.grant, &one.image));
                Link { hook: &one.hook, added, shows: Shows::All }
            }));
            links.sort_by_key(|link| *link.hook.priority);
        }
        if let Some(only) = &self.only {
            // A case of `harness test` is about this hook, and there is nobody else whose event it could be.
            links.retain(|link| *link.hook.name == **only);
            return links;
        }
        for link in &mut links {
            link.shows = self.shows(&link.hook.source_name, event);
        }
        links.retain(|link| link.shows > Shows::Own);
        links
    }

    /// What the hooks of a source see of an event here.
    fn shows(&self, source: &str, event: &Event) -> Shows {
        let policy = &self.loaded.parts.policy;
        let (own, actor) = (bundle_of(source), self.actor.as_deref());
        if let (Event::Custom(name), Some(actor)) = (event, actor)
            && let Some(namespace) = policy.namespace(actor).filter(|namespace| own != Some(namespace.plugin.as_str()))
            && !namespace.shares(SharedKind::Custom, name)
        {
            return Shows::Own;
        }
        match own {
            Some(own) if !self.is_of(own, event) => policy.shows(source, event, true).unwrap_or(Shows::Own),
            _ => Shows::All,
        }
    }

    /// Whether an event is one of a plugin: of a tool, an agent or a script of its own.
    fn is_of(&self, plugin: &str, event: &Event) -> bool {
        let is_own = |source: Option<&str>| source.and_then(bundle_of) == Some(plugin);
        match event {
            Event::BuiltinPre | Event::BuiltinPost => {
                self.at_work.as_ref().is_none_or(|at_work| is_own(Some(&at_work.source)))
            }
            // Who asks these has left out the hooks of others.
            Event::ArtifactLoad | Event::McpList => true,
            Event::SessionStart | Event::SessionEnd => false,
            Event::Custom(_) => is_own(self.actor.as_deref()),
            _ => is_own(self.actor.as_deref()) || is_own(self.about.as_ref().map(Subject::source)),
        }
    }
}

/// A payload without what a hook is not to see: each value that is no name is None, or its digest. `source` is where the
/// tool or the agent is from that it is about.
fn narrowed(event: &Event, payload: &Json, (shows, key): (Shows, &DigestKey), source: Option<&str>) -> Json {
    let hidden = |value: &Json| match (shows, value) {
        (Shows::Digests, value) if !value.is_null() => json!(key.digest(&value.to_string())),
        _ => Json::Null,
    };
    let Json::Object(object) = payload else { return hidden(payload) };
    let is_custom = matches!(event, Event::Custom(_));
    let is_names = |value: &Json| value.as_array().is_some_and(|all| all.iter().all(Json::is_string));
    let is_name = |key: &str, value: &Json| match is_custom {
        // All but the agent are the words of who emitted it.
        true => key == "agent",
        false => NAMES.contains(&key) || (LISTS.contains(&key) && is_names(value)),
    };
    let shown = object.iter().map(|(key, value)| {
        let value = if is_name(key, value) { value.clone() } else { hidden(value) };
        (key.clone(), value)
    });
    let mut shown: Map<String, Json> = shown.collect();
    if let (Some(source), false) = (source, is_custom) {
        shown.insert("source".to_owned(), source.into());
    }
    Json::Object(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_is_hidden() {
        let payload = json!({"id": "call_1", "name": "deploy", "arguments": "{\"to\":\"x\"}", "args": {"to": "x"}, "agent": {"name": "", "depth": 0, "path": []}});
        let key = DigestKey::random();
        let digest = |text: &str| key.digest(text);
        let narrowed = |event: &Event, payload: &Json, shows, source| narrowed(event, payload, (shows, &key), source);
        let narrow = |shows| narrowed(&Event::ToolPre, &payload, shows, Some("tools/deploy"));
        let names = json!({"id": "call_1", "name": "deploy", "arguments": null, "args": null, "agent": {"name": "", "depth": 0, "path": []}, "source": "tools/deploy"});
        assert_eq!(narrow(Shows::Names), names);
        let digests = narrow(Shows::Digests);
        assert_eq!(digests["args"], digest(r#"{"to":"x"}"#));
        assert_eq!((&digests["name"], &digests["source"]), (&json!("deploy"), &json!("tools/deploy")));
        // A text, and what a script emits, are nobody's names.
        assert_eq!(narrowed(&Event::TurnStart, &json!("secret"), Shows::Names, None), Json::Null);
        assert_eq!(narrowed(&Event::TurnStart, &json!("secret"), Shows::Digests, None), digest("\"secret\""));
        let emitted = json!({"name": "secret", "agent": {"name": "a"}});
        let shown = narrowed(&Event::Custom("x".to_owned()), &emitted, Shows::Names, Some("tools/x"));
        assert_eq!(shown, json!({"name": null, "agent": {"name": "a"}}));
        // Lists of names are names, and other lists under the same key are not.
        let started = json!({"tools": ["a"], "hooks": [{"name": "b"}], "prompt": "secret"});
        let shown = narrowed(&Event::DelegationPre, &started, Shows::Names, None);
        assert_eq!(shown, json!({"tools": ["a"], "hooks": null, "prompt": null}));
    }
}
