//! Chat completions: OpenAI's wire format, which most services and local servers speak too.

mod abilities;
mod body;
mod parts;

pub(super) use body::{messages, tool};

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value as Json;
use url::Url;

use super::client::Format;
use super::reading::{Frames, Parts};
use super::service::Service;
use super::sse::Events;
use super::{Abilities, Pending, ProviderError, Request};

/// Chat completions of one service.
#[derive(Debug)]
pub(super) struct OpenAi {
    url: Url,
    /// Where the service reports its models, if it may be asked.
    about: Option<About>,
    /// The most tokens are called `max_completion_tokens`.
    completion_tokens: AtomicBool,
    /// The service does not know `stream_options`.
    no_options: AtomicBool,
}

/// Where a service reports its models.
#[derive(Debug)]
pub(super) struct About {
    /// llama.cpp's.
    props: Url,
    /// Everybody's.
    models: Url,
}

impl OpenAi {
    /// Chat completions below a base URL, whose query is kept. `about`: whether there is more to learn of a model there
    /// than its name.
    pub(super) fn new(base: &Url, about: bool) -> Self {
        let below = |words: &[&str]| {
            let mut url = base.clone();
            let path = url.path().trim_end_matches('/').trim_end_matches("/chat/completions").to_owned();
            url.set_path(&path);
            join(&mut url, words);
            url
        };
        let mut root = below(&[]);
        root.set_path(base.path().trim_end_matches('/').trim_end_matches("/v1"));
        join(&mut root, &["props"]);
        let own = base.host_str() == Some("api.openai.com");
        Self {
            url: below(&["chat", "completions"]),
            about: about.then(|| About { props: root, models: below(&["models"]) }),
            // Its newer models refuse the older name, and its older ones take both.
            completion_tokens: AtomicBool::new(own),
            no_options: AtomicBool::new(false),
        }
    }
}

/// Adds segments to a URL's path.
pub(super) fn join(url: &mut Url, words: &[&str]) {
    // Every URL with a host has segments.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(words);
    }
}

impl Format for OpenAi {
    fn url(&self) -> &Url {
        &self.url
    }

    fn body(&self, request: &Request, stream: bool) -> Json {
        let tokens =
            if self.completion_tokens.load(Ordering::Relaxed) { "max_completion_tokens" } else { "max_tokens" };
        body::of(request, tokens, stream, stream && !self.no_options.load(Ordering::Relaxed))
    }

    fn parts(&self) -> (Frames, Box<dyn Parts>) {
        (Frames::Events(Events::default()), Box::<parts::OpenAiParts>::default())
    }

    fn learn(&self, refused: &ProviderError, sent: &Json) -> bool {
        let ProviderError::Refused { status: 400 | 422, message, .. } = refused else { return false };
        let has = |name: &str| sent.get(name).is_some() && message.contains(name);
        if has("stream_options") {
            self.no_options.store(true, Ordering::Relaxed);
            return true;
        }
        if sent.get("max_tokens").is_some() && message.contains("max_completion_tokens") {
            self.completion_tokens.store(true, Ordering::Relaxed);
            return true;
        }
        let unknown = ["nrecogni", "nknown", "nsupported", "not supported", "not permitted"];
        if has("max_completion_tokens") && unknown.iter().any(|word| message.contains(word)) {
            self.completion_tokens.store(false, Ordering::Relaxed);
            return true;
        }
        false
    }

    fn abilities<'a>(&'a self, service: &'a Service, model: &'a str) -> Pending<'a, Abilities> {
        Box::pin(async move {
            match &self.about {
                Some(about) => abilities::ask(service, about, model).await,
                None => Abilities::default(),
            }
        })
    }
}
