//! Answers to clients: what is printed on standard output and standard error, and the exit code.

use harness_artifact::event::Event;
use harness_dispatch::{Block, Dispatch};
use serde_json::{Value as Json, json};

use super::super::exit::Exit;
use super::super::printer::Printer;
use super::Client;
use super::payload::{Asked, On};

/// What an agent that may not stop gets instead of the words of a plugin that may not prompt it.
const NOT_YET: &str = "A hook of a plugin does not let you stop yet.";

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// On standard output.
    pub(super) json: Option<Json>,
    /// Why it blocks, on standard error, where clients read it that do not read the JSON beside exit code 2.
    pub(super) reason: Option<String>,
    pub(super) exit: Exit,
}

impl Answer {
    /// No opinion: the client decides as it does without this hook.
    pub(super) fn nothing() -> Self {
        Self { json: None, reason: None, exit: Exit::Completed }
    }

    /// A change, or something beside the decision.
    fn json(json: Json) -> Self {
        Self { json: Some(json), reason: None, exit: Exit::Completed }
    }

    /// A block because there is no decision.
    pub(super) fn failed(asked: Option<Asked>, why: &str) -> Self {
        let why = format!("blocked by harness, which cannot decide: {why}");
        match asked {
            // The agent would be sent back forever. It had the reason once.
            Some(Asked { on: On::Stop | On::SubagentStop, is_kept_running: true }) => Self::ends(why),
            _ => Self::blocked(asked, why),
        }
    }

    fn blocked(asked: Option<Asked>, why: String) -> Self {
        let json = asked.and_then(|asked| match asked.on {
            On::PreToolUse => Some(json!({
                "hookSpecificOutput": {
                    "hookEventName": asked.on.name(),
                    "permissionDecision": "deny",
                    "permissionDecisionReason": why,
                },
            })),
            On::PostToolUse | On::PostToolUseFailure | On::UserPromptSubmit | On::Stop | On::SubagentStop => {
                Some(json!({"decision": "block", "reason": why}))
            }
            On::SessionStart | On::SessionEnd => None,
        });
        match asked {
            // Exit code 2 means nothing there, and Codex reads JSON only beside 0.
            Some(Asked { on: On::SessionStart, .. }) => Self::ends(why),
            _ => Self { json, reason: Some(why), exit: Exit::Blocked },
        }
    }

    /// Ends the turn of the client, which shows the reason to the user.
    fn ends(why: String) -> Self {
        Self::json(json!({"continue": false, "stopReason": why, "systemMessage": why}))
    }
}

/// The answer that the hooks' decision comes to.
pub(super) fn of(client: Client, asked: Asked, before: &Json, dispatch: &Dispatch, printer: Printer) -> Answer {
    if let Some(block) = dispatch.decision.block() {
        return blocked(asked, block);
    }
    if dispatch.payload == *before {
        return Answer::nothing();
    }
    match asked.on {
        On::PreToolUse => arguments(client, asked, before, &dispatch.payload),
        On::PostToolUse => result(client, asked, before, &dispatch.payload, printer),
        On::PostToolUseFailure => match (before.get("content"), dispatch.payload.get("content")) {
            (before, after) if before == after => Answer::nothing(),
            (_, after) => Answer::json(json!({
                "hookSpecificOutput": {"hookEventName": asked.on.name(), "additionalContext": after},
            })),
        },
        On::UserPromptSubmit => {
            let prompt = dispatch.payload.as_str().unwrap_or_default();
            let why = format!(
                "blocked by harness: a hook changed the prompt, and {} cannot change it. Send this instead:\n{prompt}",
                client.name()
            );
            Answer::blocked(Some(asked), why)
        }
        On::Stop | On::SubagentStop => {
            if before.get("text") != dispatch.payload.get("text") {
                printer.warning(&format!(
                    "a hook changed the `text` of `{}`, which {} has shown already: the change is ignored",
                    Event::AgentStop,
                    client.name()
                ));
            }
            Answer::nothing()
        }
        On::SessionStart | On::SessionEnd => Answer::nothing(),
    }
}

/// A hook blocked.
fn blocked(asked: Asked, block: &Block) -> Answer {
    let stops = matches!(asked.on, On::Stop | On::SubagentStop);
    let why = if stops { block.to_prompt(NOT_YET) } else { block.to_string() };
    match asked {
        // As in a turn of Harness itself: a guard that does not work ends it.
        Asked { is_kept_running: true, .. } if stops && block.failed => Answer::ends(why),
        _ => Answer::blocked(Some(asked), why),
    }
}

/// A hook may have changed the arguments.
fn arguments(client: Client, asked: Asked, before: &Json, after: &Json) -> Answer {
    let args = after.get("args");
    if before.get("args") == args {
        return Answer::nothing();
    }
    let Some(args @ Json::Object(_)) = args else {
        let why = "blocked by harness: a hook changed the arguments to something that is not a dict".to_owned();
        return Answer::blocked(Some(asked), why);
    };
    let name = asked.on.name();
    Answer::json(match client {
        // Without a decision the client asks about the changed call as it does about any other.
        Client::ClaudeCode => json!({"hookSpecificOutput": {"hookEventName": name, "updatedInput": args}}),
        // It takes a change with this word only. Its own approvals and its sandbox come after it.
        Client::Codex => json!({
            "hookSpecificOutput": {"hookEventName": name, "permissionDecision": "allow", "updatedInput": args},
        }),
    })
}

/// A hook may have changed the result.
fn result(client: Client, asked: Asked, before: &Json, after: &Json, printer: Printer) -> Answer {
    if before.get("is_error") != after.get("is_error") {
        printer.warning(&format!("a hook changed `is_error`, which {} cannot change: it is ignored", client.name()));
    }
    if before.get("content") == after.get("content") && before.get("result") == after.get("result") {
        return Answer::nothing();
    }
    let content = after.get("content").cloned().unwrap_or_default();
    let was = before.get("result").cloned().unwrap_or_default();
    // A text stays one, also where it looks like other JSON.
    let result = if was.is_string() { content.clone() } else { after.get("result").cloned().unwrap_or_default() };
    match client {
        // The reason of a block is what the model gets instead of the result.
        Client::Codex => Answer::json(json!({"decision": "block", "reason": content})),
        Client::ClaudeCode => {
            let is_mcp = before.pointer("/name").and_then(Json::as_str).is_some_and(|name| name.contains(".mcp__"));
            if !is_mcp && !fits(&was, &result) {
                let why = "blocked by harness: a hook changed the result to another form, which claude-code ignores; \
                           change values within `result` instead";
                let mut answer = Answer::ends(why.to_owned());
                if let Some(Json::Object(object)) = &mut answer.json {
                    object.insert("decision".to_owned(), "block".into());
                    object.insert("reason".to_owned(), why.into());
                }
                return answer;
            }
            let mut output = json!({"hookEventName": asked.on.name(), "updatedToolOutput": result});
            if let (true, Json::Object(object)) = (is_mcp, &mut output) {
                // Before version 2.1.121 of the client.
                object.insert("updatedMCPToolOutput".to_owned(), result);
            }
            Answer::json(json!({ "hookSpecificOutput": output }))
        }
    }
}

/// Whether a result has the keys and the kinds of values of another, which the client checks.
fn fits(was: &Json, is: &Json) -> bool {
    match (was, is) {
        (Json::Object(was), Json::Object(is)) => {
            was.len() == is.len() && was.iter().all(|(key, was)| is.get(key).is_some_and(|is| fits(was, is)))
        }
        _ => std::mem::discriminant(was) == std::mem::discriminant(is),
    }
}
