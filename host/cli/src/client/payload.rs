//! Payloads of clients' hooks, as the payloads of this project's events.

use harness_artifact::event::Event;
use harness_dispatch::payload::{self, AgentAt, AgentStop, Tokens, ToolPost, ToolPre};
use serde_json::{Map, Value as Json, json};

use super::Client;

/// The hook events of clients that are dispatched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    PreToolUse,
    PostToolUse,
    PostToolUseFailure,
    UserPromptSubmit,
    Stop,
    SubagentStop,
    SessionStart,
    SessionEnd,
}

impl On {
    const ALL: [Self; 8] = [
        Self::PreToolUse,
        Self::PostToolUse,
        Self::PostToolUseFailure,
        Self::UserPromptSubmit,
        Self::Stop,
        Self::SubagentStop,
        Self::SessionStart,
        Self::SessionEnd,
    ];

    /// Its name in payloads and answers.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PreToolUse => "PreToolUse",
            Self::PostToolUse => "PostToolUse",
            Self::PostToolUseFailure => "PostToolUseFailure",
            Self::UserPromptSubmit => "UserPromptSubmit",
            Self::Stop => "Stop",
            Self::SubagentStop => "SubagentStop",
            Self::SessionStart => "SessionStart",
            Self::SessionEnd => "SessionEnd",
        }
    }

    fn event(self) -> Event {
        match self {
            Self::PreToolUse => Event::ToolPre,
            Self::PostToolUse | Self::PostToolUseFailure => Event::ToolPost,
            Self::UserPromptSubmit => Event::TurnStart,
            Self::Stop | Self::SubagentStop => Event::AgentStop,
            Self::SessionStart => Event::SessionStart,
            Self::SessionEnd => Event::SessionEnd,
        }
    }
}

/// The event that a client asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) on: On,
    /// Whether the agent runs on because a hook did not let it stop.
    pub(super) is_kept_running: bool,
}

/// What becomes of an event.
#[derive(Debug)]
pub(super) enum Kind {
    Dispatched(Asked),
    /// No event of this project stands for it.
    Passed,
}

/// An event with its payload.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) event: Event,
    pub(super) payload: Json,
}

/// Events of either client that are answered with nothing: <https://code.claude.com/docs/en/hooks> and
/// `codex-rs/hooks/src/events` of <https://github.com/openai/codex>. `WorktreeCreate` and `WorktreeRemove` are missing: a
/// hook on them has to do the work itself.
const PASSED: [&str; 24] = [
    "ConfigChange",
    "CwdChanged",
    "DirectoryAdded",
    "Elicitation",
    "ElicitationResult",
    "FileChanged",
    "InstructionsLoaded",
    "Interrupt",
    "MessageDisplay",
    "Notification",
    "PermissionDenied",
    "PermissionRequest",
    "PostCompact",
    "PostModelSwitch",
    "PostToolBatch",
    "PreCompact",
    "PreModelSwitch",
    "Setup",
    "StopFailure",
    "SubagentStart",
    "TaskCompleted",
    "TaskCreated",
    "TeammateIdle",
    "UserPromptExpansion",
];

/// Which event a payload is about.
pub(super) fn kind(client: Client, given: &Json) -> Result<Kind, String> {
    let name = given.get("hook_event_name").and_then(Json::as_str);
    let Some(name) = name else {
        return Err(format!("the payload of {} has no text `hook_event_name`", client.name()));
    };
    if let Some(on) = On::ALL.into_iter().find(|on| on.name() == name) {
        let is_kept_running = given.get("stop_hook_active") == Some(&Json::Bool(true));
        return Ok(Kind::Dispatched(Asked { on, is_kept_running }));
    }
    if PASSED.contains(&name) {
        return Ok(Kind::Passed);
    }
    Err(format!("`{name}` is no hook event of {} that this version of Harness knows", client.name()))
}

/// The payload of the event.
pub(super) fn request(client: Client, asked: Asked, given: Json) -> Result<Request, String> {
    let Json::Object(mut given) = given else { return Err("the payload of the client is not an object".to_owned()) };
    let agent = agent(&given);
    let payload = match asked.on {
        On::PreToolUse => {
            let name = client.tool(&text(&given, "tool_name")?);
            let args = match given.shift_remove("tool_input") {
                Some(args @ Json::Object(_)) => args,
                Some(Json::Null) => json!({}),
                _ => return Err(format!("`{}` of {} has no object `tool_input`", asked.on.name(), client.name())),
            };
            let pre = ToolPre { id: id(&given, "tool_use_id"), name, arguments: args.to_string(), args };
            agent.payload(&pre)
        }
        On::PostToolUse => {
            let name = client.tool(&text(&given, "tool_name")?);
            let Some(result) = given.shift_remove("tool_response") else {
                return Err(format!("`{}` of {} has no `tool_response`", asked.on.name(), client.name()));
            };
            let content = payload::text_of(&result);
            let (call_id, blocks) = (id(&given, "tool_use_id"), None);
            agent.payload(&ToolPost { call_id, name, content, blocks, is_error: false, result })
        }
        On::PostToolUseFailure => {
            let name = client.tool(&text(&given, "tool_name")?);
            let content = text(&given, "error")?;
            let result = json!({ "error": content });
            let (call_id, blocks) = (id(&given, "tool_use_id"), None);
            agent.payload(&ToolPost { call_id, name, content, blocks, is_error: true, result })
        }
        On::UserPromptSubmit => Json::String(text(&given, "prompt")?),
        On::Stop | On::SubagentStop => {
            // Older versions do not send the text.
            let text = id(&given, "last_assistant_message");
            agent.payload(&AgentStop {
                id: id(&given, "session_id"),
                parent_id: None,
                finish_reason: "stop".to_owned(),
                iteration: 0,
                response: text.clone(),
                text,
                tool_calls: Vec::new(),
                tool_results: Vec::new(),
                usage: Tokens { input_tokens: 0, output_tokens: 0 },
            })
        }
        On::SessionStart | On::SessionEnd => Json::Null,
    };
    Ok(Request { event: asked.on.event(), payload: with_client(client, payload, given) })
}

/// The rest of the client's payload, under a key that the host's own payloads do not have.
fn with_client(client: Client, mut payload: Json, mut rest: Map<String, Json>) -> Json {
    if let Json::Object(object) = &mut payload {
        for key in ["tool_name", "tool_use_id", "last_assistant_message"] {
            rest.shift_remove(key);
        }
        rest.insert("name".to_owned(), client.name().into());
        object.insert("client".to_owned(), rest.into());
    }
    payload
}

/// The agent at work: the client's root, or one below it.
fn agent(given: &Map<String, Json>) -> AgentAt {
    // The root may have a type, too; only what runs below it has a number.
    let below = given.get("agent_id").and_then(Json::as_str).map(|_| id(given, "agent_type"));
    AgentAt::of(&below.into_iter().collect::<Vec<_>>())
}

/// A text that must be there.
fn text(given: &Map<String, Json>, key: &str) -> Result<String, String> {
    let text = given.get(key).and_then(Json::as_str);
    text.map(str::to_owned).ok_or_else(|| format!("the payload of the client has no text `{key}`"))
}

/// A text that may be missing.
fn id(given: &Map<String, Json>, key: &str) -> String {
    given.get(key).and_then(Json::as_str).unwrap_or_default().to_owned()
}
