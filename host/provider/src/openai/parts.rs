//! A reply out of its chunks.

use serde::Deserialize;
use serde_json::Value as Json;

use crate::draft::{Draft, Piece};
use crate::reading::{Heard, Parts, Progress, Wrong, json_text, message_of, parse};
use crate::{Finish, Usage};

/// What was read so far.
#[derive(Debug, Default)]
pub(crate) struct OpenAiParts {
    draft: Draft,
    done: bool,
}

/// A chunk of a stream, or a whole completion: they differ in one name.
#[derive(Debug, Deserialize)]
struct Chunk {
    id: Option<String>,
    model: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<Json>,
    error: Option<Json>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    index: Option<u64>,
    #[serde(alias = "message")]
    delta: Option<Said>,
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Said {
    content: Option<Json>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Called>>,
}

#[derive(Debug, Deserialize)]
struct Called {
    index: Option<u64>,
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<Json>,
}

impl Parts for OpenAiParts {
    fn take(&mut self, document: &str, heard: &mut Heard<'_>) -> Result<(), Wrong> {
        if document.trim() == "[DONE]" {
            self.done = true;
            // Some services end a reply with nothing else.
            if !self.draft.is_empty() {
                self.draft.finish.get_or_insert(Finish::Stop);
            }
            return Ok(());
        }
        self.chunk(parse(document)?, heard)
    }

    fn take_whole(&mut self, document: &str, heard: &mut Heard<'_>) -> Result<(), Wrong> {
        let chunk: Chunk = parse(document)?;
        if chunk.error.is_none() && chunk.choices.as_ref().is_none_or(Vec::is_empty) {
            return Err(Wrong::Malformed("it has no `choices`".to_owned()));
        }
        self.chunk(chunk, heard)?;
        // Without a stream there is nothing that could have been cut.
        self.draft.finish.get_or_insert(Finish::Stop);
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

impl OpenAiParts {
    fn chunk(&mut self, chunk: Chunk, heard: &mut Heard<'_>) -> Result<(), Wrong> {
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(refused(&error));
        }
        let draft = &mut self.draft;
        set(&mut draft.id, chunk.id);
        set(&mut draft.model, chunk.model);
        draft.usage = chunk.usage.as_ref().and_then(usage).or(draft.usage);
        // Only one is asked for.
        for choice in chunk.choices.unwrap_or_default().into_iter().filter(|choice| choice.index.unwrap_or(0) == 0) {
            if let Some(said) = choice.delta {
                draft.text(&text(said.content)?, heard)?;
                draft.text(&said.refusal.unwrap_or_default(), heard)?;
                for called in said.tool_calls.unwrap_or_default() {
                    add(draft, called)?;
                }
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                draft.finish = Some(Finish::of(&reason));
            }
        }
        Ok(())
    }
}

fn set(kept: &mut String, said: Option<String>) {
    if let Some(said) = said.filter(|said| !said.is_empty()) {
        *kept = said;
    }
}

fn add(draft: &mut Draft, called: Called) -> Result<(), Wrong> {
    let Called { index, id, function } = called;
    let (name, arguments) = function.map_or((None, None), |function| (function.name, function.arguments));
    let arguments = json_text(arguments);
    let (id, name) = (id.unwrap_or_default(), name.unwrap_or_default());
    draft.piece(Piece { index, id: &id, name: &name, arguments: &arguments })
}

/// Text, or a list of parts of which some are text.
fn text(content: Option<Json>) -> Result<String, Wrong> {
    match content {
        None | Some(Json::Null) => Ok(String::new()),
        Some(Json::String(text)) => Ok(text),
        Some(Json::Array(parts)) => {
            Ok(parts.iter().filter_map(|part| part.get("text").and_then(Json::as_str)).collect())
        }
        Some(_) => Err(Wrong::Malformed("`content` is not text".to_owned())),
    }
}

fn usage(json: &Json) -> Option<Usage> {
    let count = |name| json.get(name).and_then(Json::as_u64);
    let (input, output) = (count("prompt_tokens"), count("completion_tokens"));
    (input.is_some() || output.is_some())
        .then(|| Usage { input_tokens: input.unwrap_or(0), output_tokens: output.unwrap_or(0) })
}

/// An error in a stream. Services have the status in `code`, or a word there or in `type`.
fn refused(error: &Json) -> Wrong {
    let message = message_of(error);
    let code = error.get("code").and_then(Json::as_u64).and_then(|code| u16::try_from(code).ok());
    let words = ["code", "type"].map(|name| error.get(name).and_then(Json::as_str).unwrap_or_default());
    let says = |part: &str| words.iter().any(|word| word.contains(part));
    let status = match code.filter(|code| (400..600).contains(code)) {
        Some(code) => code,
        None if says("rate_limit") || says("quota") => 429,
        None if says("content_filter") || says("invalid") || says("context_length") => 400,
        None if says("server_error") || says("overloaded") => 500,
        None => return Wrong::Cut(format!("the service says: {message}")),
    };
    Wrong::Refused { status, message }
}
