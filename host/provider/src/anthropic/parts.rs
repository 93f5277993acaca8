//! A reply out of its events.

use serde::Deserialize;
use serde_json::Value as Json;

use crate::draft::{Draft, Piece};
use crate::reading::{Heard, Parts, Progress, Wrong, message_of, parse};
use crate::{Finish, Usage};

/// The types of events that mean something here. Others are `ping`, and what the format may get.
const KNOWN: [&str; 7] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "error",
];

/// What was read so far.
#[derive(Debug, Default)]
pub(crate) struct AnthropicParts {
    draft: Draft,
    /// The block whose call was begun with its whole input, until pieces of it come.
    begun: Option<(u64, String)>,
    done: bool,
}

/// What an event is. What else is in one of a type that is not known does not matter.
#[derive(Debug, Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}

/// An event of any type that is known.
#[derive(Debug, Deserialize)]
struct Event {
    index: Option<u64>,
    message: Option<Whole>,
    content_block: Option<Block>,
    delta: Option<Change>,
    usage: Option<Json>,
    error: Option<Json>,
}

/// A message, of which a stream gives only the beginning.
#[derive(Debug, Deserialize)]
struct Whole {
    id: Option<String>,
    model: Option<String>,
    content: Option<Vec<Block>>,
    stop_reason: Option<String>,
    usage: Option<Json>,
    error: Option<Json>,
}

#[derive(Debug, Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Json>,
}

#[derive(Debug, Deserialize)]
struct Change {
    text: Option<String>,
    partial_json: Option<String>,
    stop_reason: Option<String>,
}

impl Parts for AnthropicParts {
    fn take(&mut self, document: &str, heard: &mut Heard<'_>) -> Result<(), Wrong> {
        let Kind { kind } = parse(document)?;
        if !KNOWN.contains(&kind.as_str()) {
            return Ok(());
        }
        let event: Event = parse(document)?;
        match kind.as_str() {
            "message_start" => {
                if let Some(whole) = event.message {
                    self.message(whole, heard)?;
                }
            }
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.block(event.index.unwrap_or(0), block, heard)?;
                }
            }
            "content_block_delta" => {
                if let Some(change) = event.delta {
                    self.change(event.index.unwrap_or(0), &change, heard)?;
                }
            }
            "content_block_stop" => self.settle()?,
            "message_delta" => {
                self.draft.usage = usage(event.usage.as_ref(), self.draft.usage);
                self.stop(event.delta.and_then(|change| change.stop_reason));
            }
            "message_stop" => self.done = true,
            _ => return Err(refused(&event.error.unwrap_or_default())),
        }
        Ok(())
    }

    fn take_whole(&mut self, document: &str, heard: &mut Heard<'_>) -> Result<(), Wrong> {
        let whole: Whole = parse(document)?;
        if let Some(error) = whole.error {
            return Err(refused(&error));
        }
        if whole.content.is_none() {
            return Err(Wrong::Malformed("it has no `content`".to_owned()));
        }
        self.message(whole, heard)?;
        self.done = true;
        Ok(())
    }

    fn is_events(&self) -> bool {
        true
    }

    fn progress(&self) -> Progress {
        match self.draft.finish {
            _ if self.done => Progress::Done,
            Some(_) => Progress::Whole,
            None => Progress::Begun,
        }
    }

    fn draft(self: Box<Self>) -> Draft {
        self.draft
    }
}

impl AnthropicParts {
    fn message(&mut self, whole: Whole, heard: &mut Heard<'_>) -> Result<(), Wrong> {
        self.draft.id = whole.id.unwrap_or_default();
        self.draft.model = whole.model.unwrap_or_default();
        self.draft.usage = usage(whole.usage.as_ref(), self.draft.usage);
        for (index, block) in (0..).zip(whole.content.unwrap_or_default()) {
            self.block(index, block, heard)?;
            self.settle()?;
        }
        self.stop(whole.stop_reason);
        Ok(())
    }

    fn block(&mut self, index: u64, block: Block, heard: &mut Heard<'_>) -> Result<(), Wrong> {
        self.settle()?;
        match block.kind.as_str() {
            "text" => self.draft.text(&block.text.unwrap_or_default(), heard),
            "tool_use" => {
                let (id, name) = (block.id.unwrap_or_default(), block.name.unwrap_or_default());
                self.begun = Some((index, input(block.input)));
                self.draft.piece(Piece { index: Some(index), id: &id, name: &name, arguments: "" })
            }
            // The model's thoughts, and tools that the service runs itself.
            _ => Ok(()),
        }
    }

    fn change(&mut self, index: u64, change: &Change, heard: &mut Heard<'_>) -> Result<(), Wrong> {
        if let Some(text) = &change.text {
            self.draft.text(text, heard)?;
        }
        match &change.partial_json {
            Some(more) if !more.is_empty() => {
                // What the block began with is only meant where nothing follows.
                self.begun.take_if(|(begun, _)| *begun == index);
                self.draft.piece(Piece { index: Some(index), arguments: more, ..Piece::default() })
            }
            _ => Ok(()),
        }
    }

    /// Takes the input that a block began with.
    fn settle(&mut self) -> Result<(), Wrong> {
        match self.begun.take() {
            Some((index, arguments)) => {
                self.draft.piece(Piece { index: Some(index), arguments: &arguments, ..Piece::default() })
            }
            None => Ok(()),
        }
    }

    fn stop(&mut self, reason: Option<String>) {
        if let Some(reason) = reason {
            self.draft.finish = Some(match reason.as_str() {
                "end_turn" | "stop_sequence" => Finish::Stop,
                "tool_use" => Finish::ToolCalls,
                "max_tokens" => Finish::Length,
                "refusal" => Finish::ContentFilter,
                _ => Finish::Other(reason),
            });
        }
    }
}

/// The input that a block begins with: a stream has an empty object there.
fn input(input: Option<Json>) -> String {
    match input {
        Some(Json::Object(object)) if !object.is_empty() => Json::Object(object).to_string(),
        _ => String::new(),
    }
}

/// What a message used, counted up as it grows. What was read from a cache or written to one is part of the request.
fn usage(json: Option<&Json>, before: Option<Usage>) -> Option<Usage> {
    let Some(json) = json.filter(|json| json.is_object()) else { return before };
    let count = |name| json.get(name).and_then(Json::as_u64);
    let parts = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"].map(count);
    let before = before.unwrap_or_default();
    let input_tokens = match parts {
        [None, _, _] => before.input_tokens,
        parts => parts.into_iter().flatten().fold(0, u64::saturating_add),
    };
    Some(Usage { input_tokens, output_tokens: count("output_tokens").unwrap_or(before.output_tokens) })
}

/// An error in a stream, with the status that its type has outside of one.
fn refused(error: &Json) -> Wrong {
    let message = message_of(error);
    let status = match error.get("type").and_then(Json::as_str).unwrap_or_default() {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "api_error" => 500,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => return Wrong::Cut(format!("the service says: {message}")),
    };
    Wrong::Refused { status, message }
}
