//! What a model gets for a call that was not made, and what stays of a reply that is to have words alone.

use super::error::TurnError;
use harness_dispatch::{CallError, content, reentry};
use harness_provider::{Finish, Reply};

/// What a model gets for a call that was not made, of at most `cap` bytes.
pub(super) fn refused(error: &CallError, cap: u64) -> String {
    let hint = match error {
        CallError::Unknown(unknown) => unknown.hint().map(|hint| format!("; {hint}")).unwrap_or_default(),
        _ => String::new(),
    };
    content::cut(format!("error: {}{hint}", reentry::describe(error)), cap).0
}

/// The words of a reply that is to have nothing else.
///
/// # Errors
///
/// The limit that takes its calls, where it has no words.
pub(super) fn only_words(reply: &mut Reply, limit: &TurnError) -> Result<(), TurnError> {
    reply.calls.clear();
    if reply.text.trim().is_empty() {
        return Err(limit.clone());
    }
    if reply.finish == Finish::ToolCalls {
        reply.finish = Finish::Stop;
    }
    Ok(())
}
