//! A reply out of its lines.

use serde::Deserialize;
use serde_json::Value as Json;

use crate::draft::Draft;
use crate::reading::{Heard, Parts, Progress, Wrong, json_text, message_of, parse, unreadable};
use crate::{Finish, Usage};

/// What was read so far.
#[derive(Debug, Default)]
pub(crate) struct OllamaParts {
    draft: Draft,
    done: bool,
}

/// A line of a stream, or a whole reply: they are alike.
#[derive(Debug, Deserialize)]
struct Line {
    model: Option<String>,
    message: Option<Said>,
    done: Option<bool>,
    done_reason: Option<String>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
    error: Option<Json>,
}

#[derive(Debug, Deserialize)]
struct Said {
    content: Option<String>,
    tool_calls: Option<Vec<Called>>,
}

#[derive(Debug, Deserialize)]
struct Called {
    id: Option<String>,
    function: Function,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    arguments: Option<Json>,
}

impl Parts for OllamaParts {
    fn take(&mut self, document: &str, heard: &mut Heard<'_>) -> Result<(), Wrong> {
        self.line(parse(document)?, heard)
    }

    fn take_whole(&mut self, document: &str, heard: &mut Heard<'_>) -> Result<(), Wrong> {
        // One that streams although it was asked not to has a line for each piece, under the type of a whole answer.
        let mut lines = serde_json::Deserializer::from_str(document).into_iter();
        while let Some(line) = lines.next() {
            self.line(line.map_err(|error| unreadable(&error))?, heard)?;
        }
        Ok(())
    }

    fn is_events(&self) -> bool {
        false
    }

    fn progress(&self) -> Progress {
        if self.done { Progress::Done } else { Progress::Begun }
    }

    fn draft(self: Box<Self>) -> Draft {
        self.draft
    }
}

impl OllamaParts {
    fn line(&mut self, line: Line, heard: &mut Heard<'_>) -> Result<(), Wrong> {
        if let Some(error) = line.error {
            return Err(Wrong::Cut(format!("the service says: {}", message_of(&error))));
        }
        if let Some(model) = line.model {
            self.draft.model = model;
        }
        if let Some(said) = line.message {
            self.draft.text(&said.content.unwrap_or_default(), heard)?;
            for Called { id, function: Function { name, arguments } } in said.tool_calls.unwrap_or_default() {
                // Each is whole, whatever its index says.
                self.draft.call(&id.unwrap_or_default(), &name, &json_text(arguments))?;
            }
        }
        if line.done == Some(true) {
            self.done = true;
            // Older servers say no reason.
            let reason = line.done_reason.filter(|reason| !reason.is_empty());
            self.draft.finish = Some(reason.as_deref().map_or(Finish::Stop, Finish::of));
            self.draft.usage = (line.prompt_eval_count.is_some() || line.eval_count.is_some()).then(|| Usage {
                input_tokens: line.prompt_eval_count.unwrap_or(0),
                output_tokens: line.eval_count.unwrap_or(0),
            });
        }
        Ok(())
    }
}
