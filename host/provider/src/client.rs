//! A provider over HTTP: what all wire formats have in common.

use std::fmt::Debug;
use std::time::Duration;

use serde_json::Value as Json;
use tokio::time::timeout;
use url::Url;

use super::key::{Key, Shown};
use super::reading::{Frames, Heard, Parts, Progress, Reading, Wrong};
use super::service::{Service, patiently};
use super::{Abilities, Delta, Pending, Provider, ProviderError, Reply, Request};

/// How long a whole reply may take, however busy the service is.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);

/// How long is waited for what a service adds to a reply that is whole.
const GRACE: Duration = Duration::from_secs(5);

/// How often a body is changed because a service refused it.
const MAX_LESSONS: u8 = 3;

/// One wire format.
pub(super) trait Format: Debug + Send + Sync {
    /// Where a conversation is sent.
    fn url(&self) -> &Url;

    /// What is sent.
    fn body(&self, request: &Request, stream: bool) -> Json;

    /// How a stream is cut, and who reads its pieces.
    fn parts(&self) -> (Frames, Box<dyn Parts>);

    /// Whether the refusal of what was sent taught the format to send another body.
    fn learn(&self, _refused: &ProviderError, _sent: &Json) -> bool {
        false
    }

    /// What the service says of a model.
    fn abilities<'a>(&'a self, service: &'a Service, model: &'a str) -> Pending<'a, Abilities>;

    /// The tokens of a request as it counts them, if it does.
    fn count<'a>(&'a self, _service: &'a Service, _request: &'a Request) -> Pending<'a, Option<u64>> {
        Box::pin(std::future::ready(None))
    }
}

/// A provider over HTTP.
#[derive(Debug)]
pub(super) struct Client<F> {
    pub(super) format: F,
    pub(super) service: Service,
    pub(super) stream: bool,
}

impl<F: Format> Provider for Client<F> {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        heard: &'a mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Pending<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let key = self.service.key()?;
            let mut lessons: u8 = 0;
            loop {
                let body = self.format.body(request, self.stream);
                let asked = timeout(LONGEST, self.ask(request, &body, key.as_ref(), heard)).await;
                let too_long = || Wrong::Cut(format!("it did not end within {} s", LONGEST.as_secs()));
                match asked.unwrap_or_else(|_| Err(self.service.error(too_long(), key.as_ref()))) {
                    Err(error) if lessons < MAX_LESSONS && self.format.learn(&error, &body) => {
                        lessons = lessons.saturating_add(1);
                    }
                    Err(error) => return Err(error),
                    Ok(reply) => return Ok(without(reply, key.as_ref())),
                }
            }
        })
    }

    fn abilities<'a>(&'a self, model: &'a str) -> Pending<'a, Abilities> {
        self.format.abilities(&self.service, model)
    }

    fn count<'a>(&'a self, request: &'a Request) -> Pending<'a, Option<u64>> {
        self.format.count(&self.service, request)
    }
}

impl<F: Format> Client<F> {
    async fn ask(
        &self,
        request: &Request,
        body: &Json,
        key: Option<&Key>,
        heard: &mut Heard<'_>,
    ) -> Result<Reply, ProviderError> {
        let (frames, parts) = self.format.parts();
        let accept = match frames {
            Frames::Events(_) if self.stream => "text/event-stream",
            Frames::Lines(_) if self.stream => "application/x-ndjson",
            _ => "application/json",
        };
        let mut answer =
            self.service.post(self.format.url(), key, body.to_string().into_bytes(), accept, heard).await?;
        let mut reading = if self.stream { Reading::streamed(frames, parts) } else { Reading::whole(parts) };
        let mut progress = Progress::Begun;
        let wrong = |wrong| self.service.error(wrong, key);
        let mut shown = Shown::new(key);
        let mut told = |delta: Delta<'_>| match delta {
            Delta::Text(text) => tell(&shown.more(text), heard),
            other => heard(other),
        };
        while progress != Progress::Done {
            // A reply that is whole is not lost because the service does not say good-bye.
            let whole = progress == Progress::Whole;
            let limit = if whole { GRACE.min(self.service.idle()) } else { self.service.idle() };
            let next = timeout(limit, answer.chunk());
            // What follows a reply that is whole is no matter of the user.
            let next = if whole { next.await } else { patiently(next, &mut told).await };
            match next {
                Ok(Ok(Some(bytes))) => progress = reading.feed(&bytes, &mut told).map_err(wrong)?,
                Ok(Ok(None)) => break,
                Ok(Err(_)) | Err(_) if whole => break,
                Ok(Err(error)) => return Err(self.service.cut(&error, key)),
                Err(_) => return Err(self.service.silent(limit)),
            }
        }
        let reply = reading.end(request, &mut told).map_err(wrong)?;
        tell(&shown.rest(), heard);
        Ok(reply)
    }
}

fn tell(text: &str, heard: &mut Heard<'_>) {
    if !text.is_empty() {
        heard(Delta::Text(text));
    }
}

/// A reply without the key, which a service may say back.
fn without(reply: Reply, key: Option<&Key>) -> Reply {
    let Some(key) = key else { return reply };
    let Reply { id, model, text, mut calls, usage, finish } = reply;
    for call in &mut calls {
        for part in [&mut call.id, &mut call.name, &mut call.arguments] {
            *part = key.redact_whole(std::mem::take(part));
        }
    }
    Reply {
        id: key.redact_whole(id),
        model: key.redact_whole(model),
        text: key.redact_whole(text),
        calls,
        usage,
        finish: super::Finish::of(&key.redact_whole(finish.as_str().to_owned())),
    }
}
