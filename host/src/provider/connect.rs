//! From settings to a provider.

use std::sync::Arc;

use url::Url;

use super::abilities::Known;
use super::anthropic::{self, Anthropic};
use super::client::{Client, Format};
use super::ollama::Ollama;
use super::openai::OpenAi;
use super::prose::Prose;
use super::retry::Retrying;
use super::service::{Login, Service};
use super::settings::{Kind, Settings, ToolMode};
use super::{Abilities, Delta, Message, Pending, Provider, ProviderError, Reply, Request};
use crate::ambient;

pub use super::service::Variables;

/// A provider for a model, with its key in the environment of this process.
///
/// It asks again what failed for a moment, fills in what a request leaves open, and gives tools in prose to a model that
/// has none, so that who asks always asks with tools. Nothing is sent, and no key is read, before the first request.
///
/// # Errors
///
/// [`ProviderError::Unusable`] where the settings cannot be meant.
pub fn connect(settings: &Settings) -> Result<Box<dyn Provider>, ProviderError> {
    connect_with(settings, Arc::new(ambient::variable))
}

/// As [`connect()`], with keys from elsewhere.
///
/// # Errors
///
/// As [`connect()`].
pub fn connect_with(settings: &Settings, variables: Variables) -> Result<Box<dyn Provider>, ProviderError> {
    let url = base_url(settings)?;
    // The key of a service is for that service: a URL of another one needs it to be named.
    let default_key = settings.base_url.is_none() || settings.kind == Kind::Azure;
    let default_key = settings.kind.default_key().filter(|_| default_key).map(str::to_owned);
    let variable = settings.api_key_env.clone().or(default_key);
    let service = |login, headers| Service::new(&url, login, variable, variables, headers, settings.idle());
    match settings.kind {
        Kind::OpenAi | Kind::Copilot | Kind::Azure => {
            let versioned = url.query_pairs().any(|(name, _)| name == "api-version");
            let azure = settings.kind == Kind::Azure || versioned;
            let login = if azure { Login::Header("api-key") } else { Login::Bearer };
            // OpenAI's own list has nothing but names.
            let about = !azure && (settings.kind == Kind::Copilot || settings.base_url.is_some());
            Ok(model(OpenAi::new(&url, about), service(login, &[]), settings))
        }
        Kind::Anthropic => {
            let service = service(Login::Header("x-api-key"), anthropic::HEADERS);
            Ok(model(Anthropic::new(&url), service, settings))
        }
        Kind::Ollama => Ok(model(Ollama::new(&url, settings.context_tokens), service(Login::Bearer, &[]), settings)),
        Kind::Script => Err(ProviderError::Unusable("a scripted provider has no service to connect to".to_owned())),
    }
}

fn base_url(settings: &Settings) -> Result<Url, ProviderError> {
    let kind = settings.kind.as_str();
    let Some(text) = settings.base_url.as_deref().or(settings.kind.default_url()) else {
        return Err(ProviderError::Unusable(format!("the provider `{kind}` needs a `base_url`")));
    };
    // The text may hold what should not be shown, so that it is not.
    let wrong = |why: &str| ProviderError::Unusable(format!("`base_url` of the provider `{kind}` {why}"));
    let mut url = Url::parse(text.trim()).map_err(|error| wrong(&format!("is no URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong("begins with `http://` or `https://` and a host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("may not hold a name or a password: `api_key_env` names the variable with the key"));
    }
    url.set_fragment(None);
    Ok(url)
}

fn model<F: Format + 'static>(format: F, service: Service, settings: &Settings) -> Box<dyn Provider> {
    let client = Client { format, service, stream: settings.stream };
    Box::new(Model {
        inner: Retrying::new(client, settings.retry),
        settings: settings.clone(),
        known: Known::default(),
    })
}

/// A provider as its settings want it.
#[derive(Debug)]
struct Model<P> {
    inner: P,
    settings: Settings,
    known: Known,
}

impl<P: Provider> Provider for Model<P> {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        heard: &'a mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Pending<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let mut request = self.filled(request);
            let prose = Prose::new(&self.inner);
            match self.settings.tools {
                ToolMode::Structured => self.inner.complete(&request, heard).await,
                ToolMode::Prose => prose.complete(&request, heard).await,
                ToolMode::None => {
                    request.tools.clear();
                    prose.complete(&request, heard).await
                }
                ToolMode::Auto if !has_tools(&request) => self.inner.complete(&request, heard).await,
                ToolMode::Auto => {
                    if self.known.of(&self.inner, &request.model).await.tools == Some(false) {
                        return prose.complete(&request, heard).await;
                    }
                    match self.inner.complete(&request, heard).await {
                        Err(error) if refuses_tools(&error) => {
                            self.known.without_tools(&request.model).await;
                            prose.complete(&request, heard).await
                        }
                        ended => ended,
                    }
                }
            }
        })
    }

    fn abilities<'a>(&'a self, model: &'a str) -> Pending<'a, Abilities> {
        Box::pin(async move {
            let model = if model.is_empty() { &self.settings.name } else { model };
            let context = self.settings.context_tokens;
            let said = match (self.settings.tools, context) {
                (ToolMode::Auto, _) | (_, None) => self.known.of(&self.inner, model).await,
                _ => Abilities::default(),
            };
            // In prose every model has tools.
            let tools = match self.settings.tools {
                ToolMode::None => Some(false),
                ToolMode::Auto if said.tools.is_none() => None,
                _ => Some(true),
            };
            Abilities { tools, context_tokens: context.or(said.context_tokens) }
        })
    }
}

impl<P> Model<P> {
    /// The request with what the settings say where it says nothing.
    fn filled(&self, request: &Request) -> Request {
        let mut request = request.clone();
        if request.model.is_empty() {
            request.model.clone_from(&self.settings.name);
        }
        request.max_tokens = request.max_tokens.or(self.settings.max_tokens);
        request.temperature = request.temperature.or(self.settings.temperature);
        request
    }
}

fn has_tools(request: &Request) -> bool {
    let called = |message: &Message| match message {
        Message::Assistant { calls, .. } => !calls.is_empty(),
        Message::Tool { .. } => true,
        Message::System(_) | Message::User(_) => false,
    };
    !request.tools.is_empty() || request.messages.iter().any(called)
}

/// Whether a service refuses, not the request, but that it has tools.
fn refuses_tools(error: &ProviderError) -> bool {
    let ProviderError::Refused { status: 400 | 404 | 422 | 500 | 501, message, .. } = error else { return false };
    let message = message.to_lowercase();
    let no = ["not support", "unsupported", "support tool use", "--jinja", "not enabled"];
    message.contains("tool") && no.iter().any(|word| message.contains(word))
}
