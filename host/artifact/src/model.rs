//! `model` and `models` of `harness.md`: which models agents run on, and where those are asked.

mod read;

pub(super) use read::{ModelKeys, ModelName, reference};

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use url::Url;

use super::diagnostic::Position;
use super::located::Located;

/// A model, and how it is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// What its provider calls it. `script` where `model` is the scripted provider and names none.
    pub name: Located<String>,
    /// Who is asked. [`Provider::OpenAi`] where the file says nothing.
    pub provider: Located<Provider>,
    /// Where, if not at the provider's own address: `http` or `https`, without user, password and fragment.
    pub base_url: Option<Located<Url>>,
    /// The variable of the host's environment that holds the key, where the file names one; see
    /// [`key_variable`](Self::key_variable).
    pub api_key_env: Option<Located<String>>,
    /// Most tokens of one answer, 1 to 10^7; none: the provider's.
    pub max_tokens: Option<Located<u64>>,
    /// How many tokens a conversation may have, 1 to 10^9; none: what the provider says of the model.
    pub context_tokens: Option<Located<u64>>,
    /// From 0 to 2; none: the provider's.
    pub temperature: Option<Located<f64>>,
    /// What its service charges, for the page of a session; none: not known.
    pub prices: Option<Prices>,
    /// What is done about a request that failed.
    pub retry: Retry,
    /// Whether replies are asked for as they are made; true where the file says nothing.
    pub stream: bool,
    /// How it learns of tools, [`ToolForm::Auto`] where the file says nothing.
    pub tools: Located<ToolForm>,
    /// Of the scripted provider, and of no other: the YAML file of replies, relative to the project.
    pub script: Option<Located<String>>,
    /// Where it is declared.
    pub position: Position,
}

/// Who answers for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    /// OpenAI, and with `base_url` whatever speaks its chat completions.
    OpenAi,
    /// Anthropic.
    Anthropic,
    /// Ollama.
    Ollama,
    /// GitHub Copilot.
    Copilot,
    /// Azure OpenAI, at the operator's own address.
    Azure,
    /// Nobody: replies come from a file.
    Script,
}

impl Provider {
    /// All of them, in the order of messages.
    pub const ALL: [Self; 6] = [Self::OpenAi, Self::Anthropic, Self::Ollama, Self::Copilot, Self::Azure, Self::Script];

    /// The word in a file.
    pub fn word(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Ollama => "ollama",
            Self::Copilot => "copilot",
            Self::Azure => "azure",
            Self::Script => "script",
        }
    }

    /// Where it is asked if no file says otherwise; none where it has no address that all share.
    pub fn base_url(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => Some("https://api.openai.com/v1"),
            Self::Anthropic => Some("https://api.anthropic.com/v1"),
            Self::Ollama => Some("http://127.0.0.1:11434"),
            Self::Copilot => Some("https://api.githubcopilot.com"),
            Self::Azure | Self::Script => None,
        }
    }

    /// The variable that customarily holds its key; none where there is no key.
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => Some("OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Copilot => Some("GITHUB_TOKEN"),
            Self::Azure => Some("AZURE_OPENAI_API_KEY"),
            Self::Ollama | Self::Script => None,
        }
    }
}

/// How a model learns of tools, and how its calls are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ToolForm {
    /// As the provider says of the model.
    #[default]
    Auto,
    /// By the provider's own form for tools.
    Structured,
    /// Described in the prompt, called in fenced JSON.
    Prose,
    /// Not at all.
    None,
}

impl ToolForm {
    /// All of them, in the order of messages.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Structured, Self::Prose, Self::None];

    /// The word in a file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Structured => "structured",
            Self::Prose => "prose",
            Self::None => "none",
        }
    }
}

/// What a service charges for a million tokens, in US dollars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// Of those that it reads.
    pub input: f64,
    /// Of those that it writes.
    pub output: f64,
}

/// The retries of a request that failed temporarily.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    /// How often it is sent again, 0 to 100.
    pub max_retries: u32,
    /// How long is waited the first time, up to an hour.
    pub initial_backoff: Duration,
    /// How long is waited at most, up to an hour.
    pub max_backoff: Duration,
    /// How much longer each time, 1 to 100.
    pub multiplier: f64,
}

impl Default for Retry {
    /// Three times: after one, two and four seconds.
    fn default() -> Self {
        Self {
            max_retries: 3,
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(30),
            multiplier: 2.0,
        }
    }
}

/// The models of a project.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Models {
    /// `model`: what agents run on that name none.
    pub main: Option<ModelConfig>,
    /// `models`, in the order of the file. No two of all have the same name.
    pub others: Vec<ModelConfig>,
}

impl Models {
    /// All of them, the main one first.
    pub fn all(&self) -> impl Iterator<Item = &ModelConfig> {
        self.main.iter().chain(&self.others)
    }

    /// The variables that hold their keys, each once.
    pub fn key_variables(&self) -> BTreeSet<&str> {
        self.all().filter_map(ModelConfig::key_variable).collect()
    }

    /// What an agent runs on that names this model: the one that is so called, else the main one's provider is asked
    /// for it, and whether it has such a model is seen then. None where the project has no main model.
    pub fn named(&self, name: &Located<String>) -> Option<Cow<'_, ModelConfig>> {
        if let Some(known) = self.all().find(|model| model.name.value == name.value) {
            return Some(Cow::Borrowed(known));
        }
        self.main.as_ref().map(|main| Cow::Owned(ModelConfig { name: name.clone(), ..main.clone() }))
    }
}

impl ModelConfig {
    /// The variable of the host's environment that holds its key: the one that the file names, else the provider's own,
    /// which is meant for the provider's own address and sent to no other.
    pub fn key_variable(&self) -> Option<&str> {
        let elsewhere = self.base_url.is_some() && *self.provider != Provider::Azure;
        match &self.api_key_env {
            Some(named) => Some(&named.value),
            None if elsewhere => None,
            None => self.provider.key_variable(),
        }
    }
}

#[cfg(test)]
mod tests;
