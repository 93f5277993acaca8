//! What a configuration says of a model, in the form that a connection is made of.

use std::time::Duration;

use url::Url;

use harness_artifact::model::{ModelConfig, Provider as Kind, Retry, ToolForm};

/// How long a service may say nothing, unless the settings say otherwise.
pub const IDLE: Duration = Duration::from_secs(120);

/// How long a service that does not stream may take for its whole reply, unless the settings say otherwise.
pub const IDLE_WHOLE: Duration = Duration::from_secs(600);

/// A model, and how it is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The name that the service knows the model by.
    pub name: String,
    /// Whose wire format.
    pub kind: Kind,
    /// Where, if not where the kind is by default. A query, such as Azure's `api-version`, is kept.
    pub base_url: Option<Url>,
    /// The variable of the environment that holds the key. None: no key is sent.
    pub key_variable: Option<String>,
    /// At most so many tokens in a reply, where a request does not say.
    pub max_tokens: Option<u64>,
    /// From 0 to 2, where a request does not say.
    pub temperature: Option<f64>,
    /// When a request is made again.
    pub retry: Retry,
    /// How the model is given tools.
    pub tools: ToolForm,
    /// Instead of what the service says of the model. Told to Ollama, which else takes a short default.
    pub context_tokens: Option<u64>,
    /// Whether replies come as they are made, or in one piece.
    pub stream: bool,
    /// How long the service may say nothing. None: [`IDLE`], or [`IDLE_WHOLE`] where replies come in one piece.
    pub idle: Option<Duration>,
    /// Whether the service is reached at public addresses alone, whatever its name leads to: where others than the operator
    /// name it.
    pub is_public: bool,
}

impl Settings {
    /// A model at the address of its kind, with the key that is for there.
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind,
            base_url: None,
            key_variable: kind.key_variable().map(str::to_owned),
            max_tokens: None,
            temperature: None,
            retry: Retry::default(),
            tools: ToolForm::Auto,
            context_tokens: None,
            stream: true,
            idle: None,
            is_public: false,
        }
    }

    pub(super) fn idle(&self) -> Duration {
        self.idle.unwrap_or(if self.stream { IDLE } else { IDLE_WHOLE })
    }
}

impl From<&ModelConfig> for Settings {
    fn from(config: &ModelConfig) -> Self {
        Self {
            base_url: config.base_url.as_ref().map(|url| url.value.clone()),
            key_variable: config.key_variable().map(str::to_owned),
            max_tokens: config.max_tokens.as_ref().map(|most| most.value),
            temperature: config.temperature.as_ref().map(|temperature| temperature.value),
            retry: config.retry,
            tools: config.tools.value,
            context_tokens: config.context_tokens.as_ref().map(|most| most.value),
            stream: config.stream,
            ..Self::new(config.provider.value, config.name.value.clone())
        }
    }
}
