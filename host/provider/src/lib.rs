//! Model clients behind one trait: what is asked of a model, what it answers, and what it can do.
//!
//! A [`Provider`] speaks one wire format. It keeps no conversation: each [`Request`] carries all of it. Dropping the
//! future of [`Provider::complete`] gives the request up.
//!
//! [`connect()`](connect::connect) makes one of settings. Below it each wire format is two pure things, what is sent and
//! how bytes become a reply, and all share one client. The formats are written here: a library for them would have to
//! bound what a service may send, show a cut stream from a whole one and keep a key out of every error.

#![cfg_attr(test, expect(clippy::string_slice, reason = "tests cut texts they know"))]

mod abilities;
mod anthropic;
mod client;
pub mod connect;
mod draft;
mod key;
mod lines;
pub mod message;
mod ollama;
mod openai;
pub mod prose;
pub mod public;
mod reading;
pub mod retry;
pub mod script;
mod service;
pub mod settings;
mod sse;
#[cfg(test)]
mod tests;
pub mod wire;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub use message::{Message, ToolCall};

use serde_json::Value as Json;

use harness_capability::secrets::Vault;

/// A future of a trait object.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The service of a model.
pub trait Provider: Debug + Send + Sync {
    /// Requests one reply. Parts of it are passed to `heard` as they arrive; the reply contains all of them again.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply is not complete, for example if a stream ends without a finish reason.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        heard: &'a mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Pending<'a, Result<Reply, ProviderError>>;

    /// Returns what a model supports, as far as the service reports it.
    fn abilities<'a>(&'a self, model: &'a str) -> Pending<'a, Abilities>;

    /// Returns the tokens of a request as the service counts them, without sending it; `None` if it does not count.
    fn count<'a>(&'a self, _request: &'a Request) -> Pending<'a, Option<u64>> {
        Box::pin(std::future::ready(None))
    }

    /// Returns the form in which a request is sent. Only the [`abilities`](Self::abilities) are requested from the service.
    fn form<'a>(&'a self, _request: &'a Request) -> Pending<'a, Form> {
        Box::pin(std::future::ready(Form::Structured))
    }
}

impl<P: Provider + ?Sized> Provider for &P {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        heard: &'a mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Pending<'a, Result<Reply, ProviderError>> {
        (**self).complete(request, heard)
    }

    fn abilities<'a>(&'a self, model: &'a str) -> Pending<'a, Abilities> {
        (**self).abilities(model)
    }

    fn count<'a>(&'a self, request: &'a Request) -> Pending<'a, Option<u64>> {
        (**self).count(request)
    }

    fn form<'a>(&'a self, request: &'a Request) -> Pending<'a, Form> {
        (**self).form(request)
    }
}

/// The form in which a model gets its tools, and calls with their results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In fields of the request.
    Structured,
    /// In the text of its messages.
    Prose,
    /// No tools; earlier calls in the text of its messages.
    None,
}

impl Form {
    /// The word in a policy.
    pub fn word(self) -> &'static str {
        match self {
            Self::Structured => "structured",
            Self::Prose => "prose",
            Self::None => "none",
        }
    }
}

/// A request to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The name that the service knows the model by.
    pub model: String,
    /// The conversation, the system prompt first.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<ToolSchema>,
    /// The maximum number of tokens in the reply.
    pub max_tokens: Option<u64>,
    /// The sampling temperature, from 0 to 2.
    pub temperature: Option<f64>,
    /// The agent that sends the request; empty for the root. It is not sent: a scripted provider has replies for each
    /// agent.
    pub agent: String,
}

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSchema {
    /// The name by which the model calls it.
    pub name: String,
    /// When and how to use it, for the model.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Json,
}

/// The reply of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The identifier that the service gave the reply; empty without one.
    pub id: String,
    /// The name of the model that replied, as the service reports it.
    pub model: String,
    /// The text. A reply may have both text and calls.
    pub text: String,
    /// The calls, in order.
    pub calls: Vec<ToolCall>,
    /// The tokens that the service counted, if it did.
    pub usage: Option<Usage>,
    /// The finish reason.
    pub finish: Finish,
}

impl Reply {
    /// Puts notes instead of secrets and keys: what a model says is shown, kept and given to tools.
    pub fn redact(&mut self, vault: &Vault) {
        let calls = self.calls.iter_mut().flat_map(|call| [&mut call.id, &mut call.name, &mut call.arguments]);
        calls.chain([&mut self.text]).for_each(|text| vault.redact(text));
    }
}

/// Tokens that a service counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the request.
    pub input_tokens: u64,
    /// Tokens of the reply.
    pub output_tokens: u64,
}

/// The finish reason of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// The reply is complete.
    Stop,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The reply was cut at the maximum number of tokens.
    Length,
    /// The service filtered the reply.
    ContentFilter,
    /// Another reason of the service.
    Other(String),
}

impl Finish {
    /// The word that chat completions use.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
            Self::Other(word) => word,
        }
    }

    /// From the word that chat completions use.
    pub fn of(word: &str) -> Self {
        match word {
            "stop" | "end_turn" => Self::Stop,
            "tool_calls" => Self::ToolCalls,
            "length" => Self::Length,
            "content_filter" => Self::ContentFilter,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// What comes before a reply's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delta<'a> {
    /// More of its text.
    Text(&'a str),
    /// The attempt failed and another is made after a pause. Text that was reported belongs to the attempt that failed.
    Retry {
        /// Why.
        error: &'a ProviderError,
        /// How long until then.
        pause: Duration,
        /// The number of that attempt, from 2.
        attempt: u32,
        /// How many there are at most.
        of: u32,
    },
    /// Nothing has come from the service for a while, which is still waited for.
    Silent {
        /// How long.
        since: Duration,
    },
}

/// What a model can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Whether it calls tools; none where nobody says.
    pub tools: Option<bool>,
    /// How many tokens a request and its reply may have together.
    pub context_tokens: Option<u64>,
}

/// Why there is no reply. No text here holds a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The service cannot be reached, or the connection broke.
    #[error("cannot reach {service}: {reason}")]
    Unreachable {
        /// The address, without its path.
        service: String,
        /// What the connection said.
        reason: String,
    },
    /// The service refuses, with its status and what it says.
    #[error("{service} answers {status}: {message}{}", come_back(*retry_after))]
    Refused {
        /// The address, without its path.
        service: String,
        /// Of HTTP.
        status: u16,
        /// The start of its answer.
        message: String,
        /// When to come back, where it says so.
        retry_after: Option<Duration>,
    },
    /// The stream ended before the reply did.
    #[error("the reply of {service} was cut: {reason}")]
    Cut {
        /// The address, without its path.
        service: String,
        /// Where.
        reason: String,
    },
    /// What came is no reply.
    #[error("the reply of {service} cannot be read: {reason}")]
    Malformed {
        /// The address, without its path.
        service: String,
        /// What is wrong.
        reason: String,
    },
    /// Nothing came for too long.
    #[error("{service} is silent for {} s", limit.as_secs())]
    Silent {
        /// The address, without its path.
        service: String,
        /// How long that was allowed.
        limit: Duration,
    },
    /// The request cannot be made: configuration.
    #[error("{0}")]
    Unusable(String),
    /// Who pays for the request does not let it be made: a budget is used up, or the model has no price.
    #[error("{0}")]
    NotAdmitted(String),
}

fn come_back(retry_after: Option<Duration>) -> String {
    retry_after
        .map_or_else(String::new, |wait| format!("; it wants to be asked again in {} s", wait.as_secs_f64().ceil()))
}

impl ProviderError {
    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Cut { .. } | Self::Silent { .. } => true,
            Self::Refused { status, .. } => {
                (*status == 429 || *status == 408 || *status >= 500) && !self.refuses_tools()
            }
            Self::Malformed { .. } | Self::Unusable(_) | Self::NotAdmitted(_) => false,
        }
    }

    /// Whether a service refuses, not the request, but that it has tools: some say so as if they had failed.
    pub fn refuses_tools(&self) -> bool {
        let Self::Refused { status: 400 | 404 | 422 | 500 | 501, message, .. } = self else { return false };
        let message = message.to_lowercase();
        let no = ["not support", "unsupported", "support tool use", "--jinja", "not enabled"];
        message.contains("tool") && no.iter().any(|word| message.contains(word))
    }
}
