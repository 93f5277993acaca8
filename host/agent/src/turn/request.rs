//! What a model is asked, and what its service counted for that.

use super::super::ledger::Entry;
use super::super::models::Model;
use super::super::prose::Beginning;
use super::super::window;
use super::Work;
use harness_dispatch::chain::CallContext;
use harness_provider::message::without_orphans;
use harness_provider::{Message, Reply, Request};

impl Work<'_> {
    /// What the model is asked: the beginning, and as much of the conversation as it may get.
    pub(super) async fn request(
        &mut self,
        model: &Model,
        here: &CallContext,
        past: &[Message],
        pinned: usize,
        room: u64,
    ) -> Request {
        let settings = &self.runtime.crew.settings;
        let mut request = Request {
            model: model.name.clone(),
            messages: Vec::new(),
            tools: self.runtime.tools(here),
            max_tokens: model.max_tokens,
            temperature: model.temperature,
            agent: self.runtime.name().to_owned(),
        };
        let form = model.provider.form(&request).await;
        request.messages = Beginning::of(self.runtime, form, room).messages();
        let scale = self.runtime.scale(&model.name);
        let room = window::room(settings.max_history, room, model.max_tokens, scale, &request);
        request.messages.extend(without_orphans(window::window_from(past, pinned, room, &mut self.start)));
        request
    }

    /// What the service counted, and how that compares to what was estimated.
    pub(super) fn count(&mut self, request: &Request, reply: &Reply) {
        let Some(usage) = reply.usage else {
            // A service that does not count is not one without a budget.
            let estimated = window::tokens_of(request).saturating_add(window::tokens_of_reply(reply));
            self.purse.ledger.enter(Entry::Tokens(estimated));
            return;
        };
        self.runtime.crew.counted.add(usage);
        self.purse.ledger.enter(Entry::Tokens(usage.input_tokens.saturating_add(usage.output_tokens)));
        self.usage.input_tokens = self.usage.input_tokens.saturating_add(usage.input_tokens);
        self.usage.output_tokens = self.usage.output_tokens.saturating_add(usage.output_tokens);
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let scale = usage.input_tokens as f64 / window::tokens_of(request).max(1) as f64;
        if usage.input_tokens > 0 {
            self.runtime.counts(&request.model, scale.clamp(0.25, 4.0));
        }
    }
}
