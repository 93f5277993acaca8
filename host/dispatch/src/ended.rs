//! What a call comes to: a value, an error, what hooks made of it, and the text that its caller gets.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::blocks::{self, Block, Content, Whole};
use super::chain::{Dispatch, describe_failure};
use super::content::{self, ToolOutput};
use super::payload;
use super::pipeline::CallReport;
use harness_artifact::tool::Tool;
use harness_capability::log::Log;
use harness_capability::secrets::Vault;
use harness_policy::grant::Grant;
use harness_policy::refusal::Refusal;
use harness_sandbox::outcome::{Failure, FailureKind, Outcome, Usage};

impl CallReport {
    /// A call that its hooks have been asked about, and of which no more is known.
    pub(super) fn begun(id: String, tool: String, grant: Arc<Grant>, pre: Option<Dispatch>) -> Self {
        Self {
            id,
            tool,
            confirmed: None,
            task: None,
            ends: None,
            grant,
            outcome: Outcome::Completed(ToolOutput::default()),
            content: String::new(),
            rich: None,
            result: Json::Null,
            is_error: false,
            usage: Usage::default(),
            log: Log::default(),
            calls: Vec::new(),
            coverage: None,
            verify: None,
            pre,
            post: None,
            nested: Vec::new(),
        }
    }

    /// The tool gave a value.
    pub(super) fn complete(&mut self, mut result: Json, vault: &Vault) {
        vault.redact_json(&mut result);
        self.content = payload::text_of(&result);
        self.result = result;
        self.outcome = Outcome::Completed(ToolOutput::default());
    }

    /// The tool gave content.
    pub(super) fn complete_with(&mut self, whole: Whole, vault: &Vault) {
        let mut blocks = match whole.blocks(vault) {
            Ok(blocks) => blocks,
            Err(why) => return self.not_content(&why),
        };
        let mut structured = whole.structured;
        if let Some(value) = &mut structured {
            vault.redact_json(value);
            // Who reads no values gets it as text.
            if blocks.is_empty() {
                blocks.push(Block::text(payload::text_of(value)));
            }
        }
        let text = blocks::text_of(&blocks);
        let (structured, result) = match structured {
            Some(value) => (true, value),
            None => (false, blocks::result_of(&text, whole.error)),
        };
        self.content = text;
        self.result = result;
        self.is_error = whole.error;
        self.rich = Some(Content { blocks, structured });
        self.outcome = Outcome::Completed(ToolOutput::default());
    }

    fn not_content(&mut self, why: &str) {
        let why = format!("the content cannot be returned: {why}");
        self.end(Outcome::Failed(Failure::without_place(FailureKind::Script, "", why)));
    }

    /// It gave none: its caller gets why.
    pub(super) fn end(&mut self, outcome: Outcome<ToolOutput>) {
        self.rich = None;
        let why = match &outcome {
            Outcome::Completed(_) => String::new(),
            Outcome::Failed(failure) => format!("tool error: {}", describe_failure(failure)),
            Outcome::Denied { failure, .. } => format!("tool denied: {}", describe_failure(failure)),
            Outcome::Limited(limit) => format!("tool error: {limit}"),
            Outcome::Busy(busy) => format!("tool error: {busy}"),
            // What is wrong with the host is for its operator.
            Outcome::Fault(_) => "tool error: the host failed".to_owned(),
        };
        self.result = json!({ "error": why });
        self.content = why;
        self.is_error = true;
        self.outcome = outcome;
    }

    /// A hook stopped the call, or kept its result back.
    pub(super) fn block(&mut self, what: &str, reason: &str) {
        let failure = Failure::without_place(FailureKind::Denied, "", reason.to_owned());
        self.end(Outcome::Denied { failure, refusal: Refusal::always(reason) });
        self.content = format!("{what}: {reason}");
        self.result = json!({ "error": self.content });
    }

    /// What the hooks made of the result.
    pub(super) fn settle(&mut self, post: &Dispatch, vault: &Vault) {
        if let Some(reason) = post.decision.blocked() {
            return self.block("tool result blocked", &reason);
        }
        if let Some(Json::String(content)) = post.payload.get("content")
            && self.content != *content
        {
            self.content.clone_from(content);
            // What was taken out of the text is not to be found beside it.
            if let Outcome::Failed(failure) | Outcome::Denied { failure, .. } = &mut self.outcome {
                failure.message.clone_from(content);
            }
        }
        self.result = post.payload.get("result").cloned().unwrap_or_default();
        self.is_error = post.payload.get("is_error").and_then(Json::as_bool).unwrap_or(self.is_error);
        self.rich = match post.payload.get("blocks").filter(|blocks| !blocks.is_null()) {
            None => None,
            Some(given) => match blocks::read(given, vault) {
                Ok(blocks) => {
                    let was = self.rich.as_ref().is_some_and(|rich| rich.structured);
                    let is_text = self.result == blocks::result_of(&self.content, self.is_error);
                    Some(Content { blocks, structured: was || !is_text })
                }
                Err(why) => return self.not_content(&why),
            },
        };
    }

    /// What the tool declares of its result, held against what the hooks have left of it.
    pub(super) fn fit(&mut self, tool: &Tool) {
        if self.is_error || !matches!(self.outcome, Outcome::Completed(_)) {
            return;
        }
        if let Err(misfit) = tool.check_result(&self.result) {
            let why = format!("the result does not fit `returns`: {misfit}");
            self.end(Outcome::Failed(Failure::without_place(FailureKind::Script, "", why)));
        }
    }

    /// Step 6. The text within what a model gets; a call that completed, or that a hook says is no error, has this as
    /// its output.
    pub(super) fn cut(&mut self, cap: u64) {
        let fitted = self.rich.as_mut().map_or(Ok(false), |rich| blocks::fit(&mut rich.blocks, cap));
        if let Err(why) = &fitted {
            self.not_content(why);
        }
        let (content, truncated) = content::cut(std::mem::take(&mut self.content), cap);
        self.content = content;
        let truncated = truncated || fitted == Ok(true);
        let failed = matches!(self.outcome, Outcome::Failed(_));
        if matches!(self.outcome, Outcome::Completed(_)) || (failed && !self.is_error) {
            let output = ToolOutput { result: self.result.clone(), content: self.content.clone(), truncated };
            self.outcome = Outcome::Completed(output);
        }
    }
}
