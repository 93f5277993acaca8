//! Tools for models that have none: described in the prompt, called in fenced JSON, answered as marked text.

mod fences;
mod prompt;

use super::draft::Ids;
use super::{Abilities, Delta, Finish, Form, Pending, Provider, ProviderError, Reply, Request, ToolCall};
use fences::Fences;

pub use prompt::{HOW, as_plain_text, described};

/// A provider whose model reads and writes nothing but text.
///
/// To who asks it is one with tools: what a reply calls is in its `calls`, under ids of the host, and no longer in its
/// text. Where a request has no tools, calls of the conversation are sent as text too, and none are read.
#[derive(Debug)]
pub struct Prose<P>(P);

impl<P> Prose<P> {
    /// Gives this provider's models tools in prose.
    pub fn new(inner: P) -> Self {
        Self(inner)
    }
}

impl<P: Provider> Provider for Prose<P> {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        heard: &'a mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Pending<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let plain = prompt::plain(request);
            if request.tools.is_empty() {
                return self.0.complete(&plain, heard).await;
            }
            let mut fences = Fences::default();
            let mut reply = {
                let mut tell = |delta: Delta<'_>| match delta {
                    Delta::Text(text) => {
                        let shown = fences.feed(text);
                        if !shown.is_empty() {
                            heard(Delta::Text(&shown));
                        }
                    }
                    Delta::Retry { .. } => {
                        fences = Fences::default();
                        heard(delta);
                    }
                    Delta::Silent { .. } => heard(delta),
                };
                self.0.complete(&plain, &mut tell).await?
            };
            // A block that was not closed is half of one where the reply was cut.
            let whole = reply.finish == Finish::Stop;
            let (shown, _) = fences.end(whole);
            if !shown.is_empty() {
                heard(Delta::Text(&shown));
            }
            let (text, calls) = fences::read(&reply.text, whole);
            reply.text = text;
            let mut ids = Ids::of(request);
            let calls = calls.into_iter().map(|call| {
                let id = ids.unique(String::new());
                ToolCall { id, name: call.name, arguments: call.arguments }
            });
            reply.calls.extend(calls);
            if reply.finish == Finish::Stop && !reply.calls.is_empty() {
                reply.finish = Finish::ToolCalls;
            }
            Ok(reply)
        })
    }

    fn abilities<'a>(&'a self, model: &'a str) -> Pending<'a, Abilities> {
        Box::pin(async move { Abilities { tools: Some(true), ..self.0.abilities(model).await } })
    }

    fn form<'a>(&'a self, _: &'a Request) -> Pending<'a, Form> {
        Box::pin(std::future::ready(Form::Prose))
    }
}
