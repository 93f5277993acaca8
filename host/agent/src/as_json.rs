//! Events of an agent as JSON, for programs: a line each of `--output stream-json`, and of a run of a server.

use serde_json::{Value as Json, json};

use super::listener::AgentEvent;

/// An event as programs get it. Nothing of a reply is in it before hooks have let it pass. None: programs do not get it.
pub fn event_as_json(what: &AgentEvent<'_>) -> Option<Json> {
    Some(match what {
        AgentEvent::Turn { agent, text, .. } => json!({"type": "turn", "agent": agent, "text": text}),
        AgentEvent::Continued { turn } => json!({"type": "continued", "agent": "", "text": turn.text}),
        AgentEvent::Asked { agent, round, request, .. } => {
            json!({"type": "asked", "agent": agent, "round": round, "model": request.model})
        }
        AgentEvent::Text { agent, text } => json!({"type": "text", "agent": agent, "text": text}),
        AgentEvent::Retry { agent, error, pause, attempt, of } => {
            let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            json!({
                "type": "retry", "agent": agent, "error": error, "pause_ms": pause, "attempt": attempt,
                "attempts": of,
            })
        }
        AgentEvent::Silent { agent, since } => json!({"type": "silent", "agent": agent, "seconds": since.as_secs()}),
        AgentEvent::Calls { agent, call } => {
            json!({"type": "call", "agent": agent, "id": call.id, "tool": call.name, "arguments": call.arguments})
        }
        AgentEvent::Called { agent, call, report, content, .. } => {
            let outcome = report.as_ref().map_or_else(|error| error.outcome(), |report| report.outcome.name());
            let is_error = report.as_ref().map_or(true, |report| report.is_error);
            json!({
                "type": "called", "agent": agent, "id": call.id, "tool": call.name, "outcome": outcome,
                "is_error": is_error, "content": content,
            })
        }
        AgentEvent::Delegated { agent, to, attempt, task, .. } => {
            json!({"type": "delegated", "agent": agent, "to": to, "attempt": attempt, "task": task})
        }
        AgentEvent::Step { agent, tool, step } => json!({
            "type": "progress", "agent": agent, "tool": tool, "done": step.done, "total": step.total,
            "message": step.message,
        }),
        _ => return None,
    })
}
