//! The calls of a turn with their results: for verification, and for reports on turns without an answer.

use std::collections::VecDeque;

use serde_json::Value as Json;

use harness_dispatch::payload::{CallMade, CallResult, LogLine, ToolUse};

/// The activity of a turn, however it ended.
#[derive(Debug, Clone, Default)]
pub struct Activity {
    /// The calls that the model requested, in order. The last one may not have ended.
    pub calls: Vec<ToolUse>,
    /// Rounds with calls.
    pub rounds: u32,
    /// The log lines of its scripts.
    pub log: Vec<LogLine>,
}

/// Bytes of arguments and contents that are kept of a turn.
const MOST: usize = 256 << 10;

/// The last calls of a turn with their results: as many complete ones as fit.
#[derive(Debug, Clone, Default)]
pub(super) struct RecentCalls {
    calls: VecDeque<(CallMade, CallResult)>,
    bytes: usize,
}

impl RecentCalls {
    pub(super) fn push(&mut self, id: &str, name: &str, args: Json, content: String, is_error: bool) {
        let (id, name) = (id.to_owned(), name.to_owned());
        let made = CallMade { id: id.clone(), name: name.clone(), args };
        let one = (made, CallResult { call_id: id, name, content, is_error });
        self.bytes = self.bytes.saturating_add(bytes(&one));
        self.calls.push_back(one);
        while self.bytes > MOST
            && let Some(oldest) = self.calls.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(bytes(&oldest));
        }
    }

    pub(super) fn calls(&self) -> Vec<CallMade> {
        self.calls.iter().map(|(made, _)| made.clone()).collect()
    }

    pub(super) fn results(&self) -> Vec<CallResult> {
        self.calls.iter().map(|(_, result)| result.clone()).collect()
    }
}

fn bytes((made, result): &(CallMade, CallResult)) -> usize {
    [made.id.len(), made.name.len(), made.args.to_string().len(), result.content.len()].iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_have_room() {
        let kept = |sizes: &[usize]| -> Vec<usize> {
            let mut made = RecentCalls::default();
            sizes.iter().for_each(|size| made.push("", "", "".into(), "x".repeat(*size), false));
            assert_eq!(made.calls().len(), made.results().len());
            made.results().iter().map(|result| result.content.len()).collect()
        };
        // The empty text of the arguments has two quotation marks.
        let whole = MOST - 2;
        assert_eq!(kept(&[1, 2, 3]), [1, 2, 3]);
        assert_eq!(kept(&[1, whole]), [whole]);
        assert_eq!(kept(&[7, whole - 10, 8]), [whole - 10, 8]);
        assert!(kept(&[1, whole + 1]).is_empty());
        assert_eq!(kept(&[whole + 1, 5]), [5]);
    }
}
