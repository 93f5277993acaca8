//! A model whose replies are written down: no network, no key, the same each time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value as Json;

use super::{Abilities, Delta, Finish, Message, Pending, Provider, ProviderError, Reply, Request, ToolCall, Usage};
use harness_artifact::replies::{Does, ScriptedReply};

/// Bytes of a text that an error shows.
const SHOWN: usize = 200;
/// Bytes of a token, about: what a service would count is only estimated.
const BYTES_PER_TOKEN: usize = 4;

/// Gives its replies in order, to each agent its own.
#[derive(Debug)]
pub struct Scripted {
    file: String,
    replies: Vec<ScriptedReply>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// For each agent, the place in the list behind the last reply that it was given.
    given: HashMap<String, usize>,
    calls: u64,
}

impl Scripted {
    /// Of a list of replies; `file` is for messages.
    pub fn new(file: &str, replies: Vec<ScriptedReply>) -> Self {
        Self { file: file.to_owned(), replies, state: Mutex::default() }
    }

    fn answer(&self, request: &Request) -> Result<Reply, ProviderError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let whose = |reply: &ScriptedReply| reply.agent.as_deref().unwrap_or_default() == request.agent;
        let first = state.given.get(&request.agent).copied().unwrap_or(0);
        let mut rest = self.replies.iter().enumerate().skip(first).filter(|(_, reply)| whose(reply));
        let Some((at, reply)) = rest.next() else {
            let who = if request.agent.is_empty() { "the root".to_owned() } else { format!("`{}`", request.agent) };
            let all = self.replies.iter().filter(|reply| whose(reply)).count();
            return Err(ProviderError::Unusable(format!(
                "`{}` has no more replies for {who}: all {all} were given",
                self.file
            )));
        };
        if let Some(expected) = &reply.expect {
            let last = request.messages.last().map(content).unwrap_or_default();
            if !last.contains(expected.as_str()) {
                let shown = last.get(..last.floor_char_boundary(SHOWN)).unwrap_or_default();
                return Err(ProviderError::Unusable(format!(
                    "{}: the reply expects {expected:?} in the last message, which is {shown:?}",
                    reply.position
                )));
            }
        }
        state.given.insert(request.agent.clone(), at.saturating_add(1));
        let (text, calls, finish) = match &reply.does {
            Does::Fail(message) => {
                let (service, message) = (self.file.clone(), message.clone());
                return Err(ProviderError::Refused { service, status: 500, message, retry_after: None });
            }
            Does::Answer { text, calls, finish } => (text, calls, finish),
        };
        let calls: Vec<ToolCall> = calls
            .iter()
            .map(|(name, args)| {
                state.calls = state.calls.saturating_add(1);
                let id = format!("call_{}", state.calls);
                ToolCall { id, name: name.clone(), arguments: Json::Object(args.clone()).to_string() }
            })
            .collect();
        let natural = if calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
        let bytes = |text: &str| (text.len() / BYTES_PER_TOKEN) as u64;
        let usage = Usage {
            input_tokens: request.messages.iter().map(|message| bytes(content(message))).sum(),
            output_tokens: bytes(text).saturating_add(calls.iter().map(|call| bytes(&call.arguments)).sum()),
        };
        Ok(Reply {
            id: format!("reply_{}", at.saturating_add(1)),
            model: request.model.clone(),
            text: text.clone(),
            calls,
            usage: Some(usage),
            finish: finish.as_deref().map_or(natural, Finish::of),
        })
    }
}

impl Provider for Scripted {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        heard: &'a mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Pending<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let reply = self.answer(request)?;
            for word in reply.text.split_inclusive(' ') {
                heard(Delta::Text(word));
            }
            Ok(reply)
        })
    }

    fn abilities<'a>(&'a self, _: &'a str) -> Pending<'a, Abilities> {
        Box::pin(async { Abilities { tools: Some(true), context_tokens: None } })
    }
}

/// What a message says.
fn content(message: &Message) -> &str {
    match message {
        Message::System(text) | Message::User(text) | Message::Assistant { text, .. } => text,
        Message::Tool { content, .. } => content,
    }
}
