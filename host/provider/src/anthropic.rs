//! Messages: Anthropic's wire format.

mod body;
mod parts;

pub(super) use body::object;

use serde_json::Value as Json;
use url::Url;

use super::client::Format;
use super::openai::join;
use super::reading::{Frames, Parts};
use super::service::Service;
use super::sse::Events;
use super::{Abilities, Pending, Request};

/// What every request says.
pub(super) const HEADERS: &[(&str, &str)] = &[("anthropic-version", "2023-06-01")];

/// Messages of one service.
#[derive(Debug)]
pub(super) struct Anthropic {
    url: Url,
    models: Url,
    count: Url,
}

impl Anthropic {
    /// Messages below a base URL, with or without its `v1`.
    pub(super) fn new(base: &Url) -> Self {
        let mut root = base.clone();
        root.set_path(base.path().trim_end_matches('/').trim_end_matches("/v1"));
        let (mut url, mut models, mut count) = (root.clone(), root.clone(), root);
        join(&mut url, &["v1", "messages"]);
        join(&mut models, &["v1", "models"]);
        join(&mut count, &["v1", "messages", "count_tokens"]);
        Self { url, models, count }
    }
}

impl Format for Anthropic {
    fn url(&self) -> &Url {
        &self.url
    }

    fn body(&self, request: &Request, stream: bool) -> Json {
        body::of(request, stream)
    }

    fn parts(&self) -> (Frames, Box<dyn Parts>) {
        (Frames::Events(Events::default()), Box::<parts::AnthropicParts>::default())
    }

    fn count<'a>(&'a self, service: &'a Service, request: &'a Request) -> Pending<'a, Option<u64>> {
        Box::pin(async move {
            let mut body = body::of(request, false);
            // What it counts is what is said, not how it is answered.
            for key in ["max_tokens", "temperature", "stream"] {
                body.as_object_mut().map(|body| body.remove(key));
            }
            service.tell(&self.count, Some(&body)).await?.get("input_tokens").and_then(Json::as_u64)
        })
    }

    fn abilities<'a>(&'a self, service: &'a Service, model: &'a str) -> Pending<'a, Abilities> {
        Box::pin(async move {
            let mut url = self.models.clone();
            join(&mut url, &[model]);
            let about = service.tell(&url, None).await;
            let tokens = about.as_ref().and_then(|about| about.get("max_input_tokens")).and_then(Json::as_u64);
            // The format has no models without tools.
            Abilities { tools: Some(true), context_tokens: tokens.filter(|tokens| *tokens > 0) }
        })
    }
}
