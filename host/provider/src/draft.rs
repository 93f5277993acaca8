//! A reply that is being put together.

use std::collections::HashSet;

use super::reading::{Heard, Wrong};
use super::{Delta, Finish, Message, Reply, Request, ToolCall, Usage};
use harness_sys as sys;

/// Bytes of a reply: its text and its calls.
pub(super) const MAX_REPLY_BYTES: usize = 16 << 20;

/// Calls of one reply.
pub(super) const MAX_CALLS: usize = 128;

/// A reply, as far as it came.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) usage: Option<Usage>,
    pub(super) finish: Option<Finish>,
    text: String,
    calls: Vec<Call>,
    bytes: usize,
}

/// A call, as far as it came.
#[derive(Debug)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

/// More of a call.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Piece<'a> {
    /// Which of the reply's calls it belongs to.
    pub(super) index: Option<u64>,
    /// The call's; empty where the service gives none, or gave it before.
    pub(super) id: &'a str,
    /// Of the tool; empty where it was given before.
    pub(super) name: &'a str,
    /// More of the JSON text.
    pub(super) arguments: &'a str,
}

impl Draft {
    /// Takes more text, and shows it.
    pub(super) fn text(&mut self, text: &str, heard: &mut Heard<'_>) -> Result<(), Wrong> {
        if !text.is_empty() {
            self.grow(text.len())?;
            self.text.push_str(text);
            heard(Delta::Text(text));
        }
        Ok(())
    }

    /// Takes a whole call.
    pub(super) fn call(&mut self, id: &str, name: &str, arguments: &str) -> Result<(), Wrong> {
        let piece = Piece { index: None, id, name, arguments };
        let at = self.begin(piece)?;
        self.add(at, piece)
    }

    /// Takes more of a call.
    ///
    /// What says which call is its index. Where there is none it is the id, or else a name begins another. Services
    /// that send whole calls give each the same index: another id with a name begins another call there too.
    pub(super) fn piece(&mut self, piece: Piece<'_>) -> Result<(), Wrong> {
        let same = match piece.index {
            Some(_) => self.calls.iter().rposition(|call| call.index == piece.index),
            None if !piece.id.is_empty() => self.calls.iter().rposition(|call| call.id == piece.id),
            None if piece.name.is_empty() => self.calls.len().checked_sub(1),
            None => None,
        };
        let is_another = |call: &Call| {
            let ids = [piece.id, call.id.as_str()];
            !piece.name.is_empty() && ids.iter().all(|id| !id.is_empty()) && piece.id != call.id
        };
        let at = match same {
            Some(at) if !self.calls.get(at).is_some_and(is_another) => at,
            _ => self.begin(piece)?,
        };
        self.add(at, piece)
    }

    /// Whether neither text nor a call came.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.calls.is_empty()
    }

    fn begin(&mut self, piece: Piece<'_>) -> Result<usize, Wrong> {
        if self.calls.len() >= MAX_CALLS {
            return Err(Wrong::Malformed(format!("it has more than {MAX_CALLS} calls")));
        }
        self.calls.push(Call { index: piece.index, id: String::new(), name: String::new(), arguments: String::new() });
        Ok(self.calls.len().saturating_sub(1))
    }

    fn add(&mut self, at: usize, piece: Piece<'_>) -> Result<(), Wrong> {
        self.grow(piece.id.len().saturating_add(piece.name.len()).saturating_add(piece.arguments.len()))?;
        let Some(call) = self.calls.get_mut(at) else { return Ok(()) };
        if call.id.is_empty() {
            piece.id.clone_into(&mut call.id);
        }
        // Some services repeat the name in each piece; one that cuts it in two is not known.
        if call.name.is_empty() {
            piece.name.clone_into(&mut call.name);
        }
        call.arguments.push_str(piece.arguments);
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Wrong> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_REPLY_BYTES {
            return Err(Wrong::Malformed(format!("it holds more than {MAX_REPLY_BYTES} bytes")));
        }
        Ok(())
    }

    /// The reply, if it is whole. Its calls get ids that no other call of the conversation has.
    pub(super) fn finish(self, request: &Request) -> Result<Reply, Wrong> {
        let Self { id, model, usage, finish, text, mut calls, .. } = self;
        let Some(finish) = finish else { return Err(Wrong::Cut("it ended without saying why".to_owned())) };
        // Stable: those without an index stay as they came.
        calls.sort_by_key(|call| call.index);
        let mut ids = Ids::of(request);
        let mut whole = Vec::with_capacity(calls.len());
        for Call { id, name, arguments, .. } in calls {
            if name.is_empty() && arguments.trim().is_empty() {
                continue;
            }
            if name.is_empty() {
                return Err(Wrong::Malformed("a call does not say which tool it is for".to_owned()));
            }
            let arguments = if arguments.trim().is_empty() { "{}".to_owned() } else { arguments };
            whole.push(ToolCall { id: ids.unique(id), name, arguments });
        }
        let finish = match finish {
            Finish::ToolCalls if whole.is_empty() => {
                return Err(Wrong::Cut("its finish reason is tool calls, but it has none".to_owned()));
            }
            // Some services end every reply with the same word.
            Finish::Stop if !whole.is_empty() => Finish::ToolCalls,
            other => other,
        };
        Ok(Reply { id, model, text, calls: whole, usage, finish })
    }
}

/// The ids of a conversation's calls.
#[derive(Debug)]
pub(super) struct Ids(HashSet<String>);

impl Ids {
    pub(super) fn of(request: &Request) -> Self {
        let calls = request.messages.iter().filter_map(|message| match message {
            Message::Assistant { calls, .. } => Some(calls),
            _ => None,
        });
        Self(calls.flatten().map(|call| call.id.clone()).collect())
    }

    /// The id, if no call has it yet, or else a new one.
    pub(super) fn unique(&mut self, id: String) -> String {
        let mut id = id;
        if id.is_empty() || self.0.contains(&id) {
            // Any number that is free will do; from a random one on, none that an older session used comes again.
            let mut random = [0; 8];
            sys::fill_random(&mut random);
            let mut number = u64::from_le_bytes(random);
            id = format!("call_{number:016x}");
            while self.0.contains(&id) {
                number = number.wrapping_add(1);
                id = format!("call_{number:016x}");
            }
        }
        self.0.insert(id.clone());
        id
    }
}
