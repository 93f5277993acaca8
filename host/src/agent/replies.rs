//! What a reply calls, and what a model gets for a call that was not made.

use serde_json::Value as Json;

use super::error::TurnError;
use crate::dispatch::{CallError, content, reentry};
use crate::provider::{Finish, Reply, ToolCall};

/// The arguments of a call. What is no JSON is the text that it is, which the same check refuses as any other value that
/// is no object.
pub(super) fn arguments(call: &ToolCall) -> Json {
    let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// Whether a call has arguments and all of them: where a reply was cut, those of its last call may be missing.
pub(super) fn has_arguments(call: &ToolCall) -> bool {
    matches!(serde_json::from_str(&call.arguments), Ok(Json::Object(arguments)) if !arguments.is_empty())
}

/// What a model gets for a call that was not made, of at most `cap` bytes.
pub(super) fn refused(error: &CallError, cap: u64) -> String {
    let hint = match error {
        CallError::Unknown(unknown) => unknown.hint().map(|hint| format!("; {hint}")).unwrap_or_default(),
        _ => String::new(),
    };
    content::cut(format!("error: {}{hint}", reentry::told(error)), cap).0
}

/// The words of a reply that is to have nothing else.
pub(super) fn only_words(reply: &mut Reply, failed: u64) -> Result<(), TurnError> {
    reply.calls.clear();
    if reply.text.trim().is_empty() {
        let key = "`delegation.max_tool_failures` in `harness.md`";
        return Err(TurnError::Limit { what: "tool failures in a row", allowed: failed, key });
    }
    if reply.finish == Finish::ToolCalls {
        reply.finish = Finish::Stop;
    }
    Ok(())
}
