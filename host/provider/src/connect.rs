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
use super::settings::Settings;
use super::{Abilities, Delta, Form, Message, Pending, Provider, ProviderError, Reply, Request};
use harness_artifact::model::{Provider as Kind, ToolForm};
use harness_artifact::policy::tenant;
use harness_capability::outbound::Outbound;
use harness_sys as sys;

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
    connect_with(settings, Arc::new(sys::variable))
}

/// As [`connect()`], with keys from elsewhere.
///
/// # Errors
///
/// As [`connect()`].
pub fn connect_with(settings: &Settings, variables: Variables) -> Result<Box<dyn Provider>, ProviderError> {
    connect_counted(settings, variables, &Outbound::default())
}

/// As [`connect_with()`], with what is sent counted by a meter.
///
/// # Errors
///
/// As [`connect()`].
pub fn connect_counted(
    settings: &Settings,
    variables: Variables,
    outbound: &Outbound,
) -> Result<Box<dyn Provider>, ProviderError> {
    let url = base_url(settings)?;
    let variable = settings.key_variable.clone();
    let service = |login, headers| {
        let service = Service::new(&url, login, variable, variables, headers, settings.idle());
        let service = service.counted_by(outbound.clone());
        if settings.is_public { service.at_public_addresses() } else { service }
    };
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

/// Where the service is. What a file says was checked when it was read; what a program says is checked here.
fn base_url(settings: &Settings) -> Result<Url, ProviderError> {
    let kind = settings.kind.word();
    let known = || settings.kind.base_url().and_then(|url| Url::parse(url).ok());
    let Some(mut url) = settings.base_url.clone().or_else(known) else {
        return Err(ProviderError::Unusable(format!("the provider `{kind}` needs a `base_url`")));
    };
    let plain = url.username().is_empty() && url.password().is_none();
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() || !plain {
        let why = "is not an `http` or `https` URL without user and password";
        return Err(ProviderError::Unusable(format!("the `base_url` of the provider `{kind}` {why}")));
    }
    if settings.is_public && tenant::is_inside(&url) {
        let why = "is not public, and only public addresses are asked here";
        return Err(ProviderError::Unusable(format!("the `base_url` of the provider `{kind}` {why}")));
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
            let learns = self.settings.tools == ToolForm::Auto && has_tools(&request);
            match self.form(&request).await {
                Form::Structured => match self.inner.complete(&request, heard).await {
                    Err(error) if learns && error.refuses_tools() => {
                        self.known.without_tools(&request.model).await;
                        prose.complete(&request, heard).await
                    }
                    ended => ended,
                },
                Form::Prose => prose.complete(&request, heard).await,
                Form::None => {
                    request.tools.clear();
                    prose.complete(&request, heard).await
                }
            }
        })
    }

    fn form<'a>(&'a self, request: &'a Request) -> Pending<'a, Form> {
        Box::pin(async move {
            let model = if request.model.is_empty() { &self.settings.name } else { &request.model };
            match self.settings.tools {
                ToolForm::Structured => Form::Structured,
                ToolForm::Prose => Form::Prose,
                ToolForm::None => Form::None,
                ToolForm::Auto if !has_tools(request) => Form::Structured,
                ToolForm::Auto if self.known.of(&self.inner, model).await.tools == Some(false) => Form::Prose,
                ToolForm::Auto => Form::Structured,
            }
        })
    }

    fn count<'a>(&'a self, request: &'a Request) -> Pending<'a, Option<u64>> {
        Box::pin(async move {
            // Of prose it would count another request than the one that is made.
            match self.settings.tools {
                ToolForm::Auto | ToolForm::Structured => self.inner.count(&self.filled(request)).await,
                ToolForm::Prose | ToolForm::None => None,
            }
        })
    }

    fn abilities<'a>(&'a self, model: &'a str) -> Pending<'a, Abilities> {
        Box::pin(async move {
            let model = if model.is_empty() { self.settings.name.as_str() } else { model };
            let context = self.settings.context_tokens.filter(|_| model == self.settings.name);
            let said = match (self.settings.tools, context) {
                (ToolForm::Auto, _) | (_, None) => self.known.of(&self.inner, model).await,
                _ => Abilities::default(),
            };
            // In prose every model has tools.
            let tools = match self.settings.tools {
                ToolForm::None => Some(false),
                ToolForm::Auto if said.tools.is_none() => None,
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
