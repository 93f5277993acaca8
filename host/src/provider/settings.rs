//! What a configuration says of a model.

use std::time::Duration;

use super::retry::Backoff;

/// How long a service may say nothing, unless the settings say otherwise.
pub const IDLE: Duration = Duration::from_secs(120);

/// How long a service that does not stream may take for its whole reply, unless the settings say otherwise.
pub const IDLE_WHOLE: Duration = Duration::from_secs(600);

/// A model, and how it is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The name that the service knows the model by.
    pub name: String,
    /// Whose wire format and defaults.
    pub kind: Kind,
    /// Where, if not where the kind is by default. A query, such as Azure's `api-version`, is kept.
    pub base_url: Option<String>,
    /// The variable of the environment that holds the key. None: that of the kind, unless `base_url` is given, because
    /// a key is for the service that it was made for.
    pub api_key_env: Option<String>,
    /// At most so many tokens in a reply, where a request does not say.
    pub max_tokens: Option<u64>,
    /// From 0 to 2, where a request does not say.
    pub temperature: Option<f64>,
    /// When a request is made again.
    pub retry: Backoff,
    /// How the model is given tools.
    pub tools: ToolMode,
    /// Instead of what the service says of the model. Told to Ollama, which else takes a short default.
    pub context_tokens: Option<u64>,
    /// The file of a scripted provider's replies.
    pub script: Option<String>,
    /// Whether replies come as they are made, or in one piece.
    pub stream: bool,
    /// How long the service may say nothing. None: [`IDLE`], or [`IDLE_WHOLE`] where replies come in one piece.
    pub idle: Option<Duration>,
}

impl Settings {
    /// A model with the defaults of its kind.
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind,
            base_url: None,
            api_key_env: None,
            max_tokens: None,
            temperature: None,
            retry: Backoff::default(),
            tools: ToolMode::Auto,
            context_tokens: None,
            script: None,
            stream: true,
            idle: None,
        }
    }

    pub(super) fn idle(&self) -> Duration {
        self.idle.unwrap_or(if self.stream { IDLE } else { IDLE_WHOLE })
    }
}

/// Whose wire format and defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Chat completions, of OpenAI and of everybody who speaks like it.
    OpenAi,
    /// Chat completions of GitHub Copilot.
    Copilot,
    /// Chat completions of Azure.
    Azure,
    /// Messages of Anthropic.
    Anthropic,
    /// Ollama's own chat.
    Ollama,
    /// Replies out of a file.
    Script,
}

impl Kind {
    /// Where it is, if nobody says otherwise. None: somebody has to.
    pub fn default_url(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => Some("https://api.openai.com/v1"),
            Self::Copilot => Some("https://api.githubcopilot.com"),
            Self::Anthropic => Some("https://api.anthropic.com"),
            Self::Ollama => Some("http://127.0.0.1:11434"),
            Self::Azure | Self::Script => None,
        }
    }

    /// The variable that holds its key, if it has one.
    pub fn default_key(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => Some("OPENAI_API_KEY"),
            Self::Copilot => Some("GITHUB_TOKEN"),
            Self::Azure => Some("AZURE_OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Ollama | Self::Script => None,
        }
    }

    /// The word for it in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Copilot => "copilot",
            Self::Azure => "azure",
            Self::Anthropic => "anthropic",
            Self::Ollama => "ollama",
            Self::Script => "script",
        }
    }
}

/// How a model is given tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolMode {
    /// As the service says that the model can; structured where it does not say, until it refuses.
    #[default]
    Auto,
    /// In the wire format's own way.
    Structured,
    /// Described in the prompt, and called in text.
    Prose,
    /// Not at all.
    None,
}
