//! `model` and `models` of `harness.md`: which models agents run on, and where those are asked.

use std::borrow::Cow;
use std::time::Duration;

use url::Url;

use super::decode::{Decoder, Field, Fields, Unknown};
use super::diagnostic::{Diagnostic, Position};
use super::located::Located;
use super::policy::layer;
use super::suggest::{closest, quoted};

/// Longest name of a model, in bytes.
const LONGEST_NAME: usize = 256;
/// Keys that say who is sent a conversation: one of these misspelled must not leave its default standing.
const ADDRESS_KEYS: [&str; 4] = ["provider", "base_url", "api_key_env", "script"];

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
    /// What is done about a request that failed.
    pub retry: Retry,
    /// How it is told of tools, [`ToolForm::Auto`] where the file says nothing.
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

/// How a model is told of tools, and how its calls are read.
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

/// What is done about a request that failed in a way that may pass.
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

    /// What an agent runs on that names this model: the one that is so called, else the main one's provider is asked
    /// for it, and whether it has such a model is seen then. None where the project has no main model.
    pub fn named(&self, name: &Located<String>) -> Option<Cow<'_, ModelConfig>> {
        if let Some(known) = self.all().find(|model| model.name.value == name.value) {
            return Some(Cow::Borrowed(known));
        }
        self.main.as_ref().map(|main| Cow::Owned(ModelConfig { name: name.clone(), ..main.clone() }))
    }

    pub(super) fn take(decoder: &mut Decoder, fields: &mut Fields<'_>) -> Self {
        let main = fields.optional("model").and_then(|f| ModelConfig::decode(decoder, &f, None));
        let items = fields.optional("models").and_then(|f| decoder.list(&f)).unwrap_or_default();
        let mut models = Self { main, others: Vec::new() };
        for item in &items {
            let Some(model) = ModelConfig::decode(decoder, item, models.main.as_ref()) else { continue };
            if let Some(first) = models.all().find(|other| other.name.value == model.name.value) {
                let again = Diagnostic::error(format!("model {:?} is defined more than once", model.name.value))
                    .at(model.name.position.clone())
                    .hint(format!("it is first defined at {}", first.name.position));
                decoder.diagnostics.push(again);
            }
            models.others.push(model);
        }
        models
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

    /// `main` is what one of `models` is asked by that names no provider of its own.
    fn decode(decoder: &mut Decoder, field: &Field<'_>, main: Option<&Self>) -> Option<Self> {
        let mut fields = decoder.mapping(field)?;
        let position = decoder.position(field.span());
        let name = fields.optional("name").map(|f| name(decoder, &f));
        let said = fields.optional("provider").map(|f| provider(decoder, &f));
        let base_url = fields.optional("base_url").map(|f| located(decoder, &f, |d, f| d.parse_one(f, base_url)));
        let key = fields.optional("api_key_env").map(|f| located(decoder, &f, |d, f| d.parse_one(f, key_variable)));
        let max_tokens = number(decoder, fields.optional("max_tokens"), 1..=10_000_000);
        let context_tokens = number(decoder, fields.optional("context_tokens"), 1..=1_000_000_000);
        let temperature = fields
            .optional("temperature")
            .and_then(|f| located(decoder, &f, |decoder, field| decoder.number_in(field, 0.0..=2.0)));
        let retry = fields.optional("retry").and_then(|f| Retry::decode(decoder, &f)).unwrap_or_default();
        let tools = fields.optional("tools").and_then(|f| located(decoder, &f, tool_form));
        let script = fields.optional("script").map(|f| located(decoder, &f, replies));
        decoder.finish(fields, Unknown::RefuseLike(&ADDRESS_KEYS));

        let inherited = main.filter(|_| said.is_none());
        let provider = match said {
            Some(said) => said?,
            None => inherited
                .map(|main| main.provider.clone())
                .unwrap_or_else(|| Located::new(Provider::OpenAi, position.clone())),
        };
        // An address that could not be read is no reason to ask for one.
        let base_url = match base_url {
            Some(said) => Some(said?),
            None => inherited.and_then(|main| main.base_url.clone()),
        };
        let script = match script {
            Some(said) => Some(said?),
            None => inherited.and_then(|main| main.script.clone()),
        };
        let name = match name {
            Some(name) => name,
            // One of `models` is there to be named.
            None if *provider == Provider::Script && field.key.is_some() => {
                Some(Located::new("script".to_owned(), position.clone()))
            }
            None => {
                let hint = "give it a line such as `name: gpt-4o-mini`".to_owned();
                decoder.error_with(field, format!("{}.name cannot be empty", field.path), Some(hint));
                None
            }
        };
        if *provider == Provider::Azure && base_url.is_none() {
            let hint = "add a line such as `base_url: https://NAME.openai.azure.com/openai/v1`".to_owned();
            decoder.error_with(field, format!("{} has no `base_url`", quoted(&field.path)), Some(hint));
        }
        match (*provider == Provider::Script, &script) {
            (true, None) => {
                let hint = "name the file of replies: `script: replies.yaml`".to_owned();
                decoder.error_with(field, format!("{} has no `script`", quoted(&field.path)), Some(hint));
            }
            (false, Some(script)) => {
                let other = Diagnostic::error(format!(
                    "`{}.script` has no meaning with the provider {}",
                    field.path,
                    quoted(provider.word())
                ));
                decoder.diagnostics.push(other.at(script.position.clone()).hint("write `provider: script`"));
            }
            _ => {}
        }
        Some(Self {
            name: name?,
            provider,
            base_url,
            api_key_env: match key {
                Some(said) => Some(said?),
                None => inherited.and_then(|main| main.api_key_env.clone()),
            },
            max_tokens,
            context_tokens,
            temperature,
            retry,
            tools: tools.unwrap_or_else(|| Located::new(ToolForm::default(), position.clone())),
            script,
            position,
        })
    }
}

impl Retry {
    fn decode(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        /// An hour, in milliseconds.
        const LONGEST: u64 = 3_600_000;
        let mut fields = decoder.mapping(field)?;
        let usual = Self::default();
        let retries = fields.optional("max_retries").and_then(|f| decoder.integer_in(&f, 0..=100));
        let initial = fields.optional("initial_backoff_ms").and_then(|f| decoder.integer_in(&f, 0..=LONGEST));
        let most = fields.optional("max_backoff_ms").and_then(|f| decoder.integer_in(&f, 0..=LONGEST));
        let multiplier = fields.optional("multiplier").and_then(|f| decoder.number_in(&f, 1.0..=100.0));
        decoder.finish(fields, Unknown::Warn);
        Some(Self {
            max_retries: retries.and_then(|n| u32::try_from(n).ok()).unwrap_or(usual.max_retries),
            initial_backoff: initial.map_or(usual.initial_backoff, Duration::from_millis),
            max_backoff: most.map_or(usual.max_backoff, Duration::from_millis),
            multiplier: multiplier.unwrap_or(usual.multiplier),
        })
    }
}

/// The name of a model, here and in an agent: whatever a provider may call one.
pub(super) fn name(decoder: &mut Decoder, field: &Field<'_>) -> Option<Located<String>> {
    let text = decoder.string(field)?;
    let (wrong, hint) = if text.trim().is_empty() {
        ("cannot be empty", "write a name such as `gpt-4o-mini`")
    } else if text.len() > LONGEST_NAME {
        ("may have at most 256 bytes", "write what its provider calls it")
    } else if text.chars().any(char::is_control) || text.trim() != text {
        ("must not begin or end with a space, nor hold control characters", "write it on one line")
    } else {
        return Some(Located::new(text.to_owned(), decoder.position(field.span())));
    };
    decoder.error_with(field, format!("{}: the name of a model {wrong}", quoted(&field.path)), Some(hint.to_owned()));
    None
}

/// The model of an agent: by its name alone.
pub(super) fn reference(decoder: &mut Decoder, field: &Field<'_>) -> Option<Located<String>> {
    if matches!(field.node.value, super::yaml::Value::Map(_)) {
        let hint = "write its name; who answers for it stands in `models:` of `.harness/harness.md`";
        decoder.wrong_type(field, "a string", Some(hint));
        return None;
    }
    name(decoder, field)
}

fn located<T>(
    decoder: &mut Decoder,
    field: &Field<'_>,
    read: impl Fn(&mut Decoder, &Field<'_>) -> Option<T>,
) -> Option<Located<T>> {
    Some(Located::new(read(decoder, field)?, decoder.position(field.span())))
}

fn number(
    decoder: &mut Decoder,
    field: Option<Field<'_>>,
    bounds: std::ops::RangeInclusive<u64>,
) -> Option<Located<u64>> {
    located(decoder, &field?, |decoder, field| decoder.integer_in(field, bounds.clone()))
}

fn provider(decoder: &mut Decoder, field: &Field<'_>) -> Option<Located<Provider>> {
    let word = decoder.string(field)?;
    let provider = Provider::ALL.into_iter().find(|provider| provider.word() == word);
    if provider.is_none() {
        let words = Provider::ALL.map(Provider::word);
        let hint = match closest(&word.to_ascii_lowercase(), words) {
            Some(word) => format!("did you mean `{word}`?"),
            None => "a server that speaks OpenAI's form is `provider: openai` with its `base_url`".to_owned(),
        };
        let message = format!("{}: {} is none of {}", quoted(&field.path), quoted(word), words.join(", "));
        decoder.error_with(field, message, Some(hint));
    }
    Some(Located::new(provider?, decoder.position(field.span())))
}

fn tool_form(decoder: &mut Decoder, field: &Field<'_>) -> Option<ToolForm> {
    decoder.parse_one(field, |word| {
        ToolForm::ALL
            .into_iter()
            .find(|form| form.word() == word)
            .ok_or_else(|| format!("{} is none of {}", quoted(word), ToolForm::ALL.map(ToolForm::word).join(", ")))
    })
}

/// What is no name may be the key itself, so no message repeats it.
fn key_variable(text: &str) -> Result<String, String> {
    layer::variable(text).map_err(|_| "write the name of the variable that holds the key, not the key".to_owned())
}

/// A place to send conversations and a key to. What a URL could hold of a secret belongs into a variable.
fn base_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|_| "write a URL such as `https://models.example/v1`".to_owned())?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err("write a URL that begins with `https://` or `http://`".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("leave user and password out, and name a variable with the key in `api_key_env`".to_owned());
    }
    if url.fragment().is_some() {
        return Err("leave out what follows `#`, it is never sent".to_owned());
    }
    Ok(url)
}

fn replies(decoder: &mut Decoder, field: &Field<'_>) -> Option<String> {
    decoder.parse_one(field, |text| {
        if text.trim().is_empty() || text.chars().any(char::is_control) {
            return Err("write the path of a file with replies, such as `replies.yaml`".to_owned());
        }
        Ok(text.to_owned())
    })
}

#[cfg(test)]
mod tests;
