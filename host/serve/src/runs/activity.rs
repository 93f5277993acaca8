//! What was done in a turn, in the result of its run.

use harness_agent::{Activity, Session};
use serde_json::{Value as Json, json};

/// Bytes of calls and log lines in a result, so that there is room for the answer.
const MOST: usize = 128 << 10;
/// Bytes of a reply that was not finished.
const MOST_SAID: usize = 64 << 10;

/// A result with the calls of its turn, the log lines of its scripts, and the warning or unfinished reply that it ended with.
pub(super) fn with(mut result: Json, session: &Session, warning: Option<&str>) -> Json {
    let Some(members) = result.as_object_mut() else { return result };
    // In the order that `harness run --json` has.
    let usage = members.shift_remove("usage");
    members.shift_remove("rounds");
    if members.get("error").is_none() {
        members.insert("warning".to_owned(), json!(warning));
    } else if let Some(said) = session.unfinished().filter(|said| !said.is_empty() && said.len() <= MOST_SAID) {
        members.insert("said".to_owned(), said.into());
    }
    let Activity { calls, rounds, log } = session.activity();
    let (calls, log) = (json!(calls), json!(log));
    let bytes = calls.to_string().len().saturating_add(log.to_string().len());
    members.insert("rounds".to_owned(), rounds.into());
    if bytes <= MOST {
        members.insert("calls".to_owned(), calls);
    }
    members.extend(usage.map(|usage| ("usage".to_owned(), usage)));
    if bytes <= MOST {
        members.insert("log".to_owned(), log);
    }
    result
}
