//! How models are read: their keys, and what becomes of them.

use std::time::Duration;

use serde_json::{Value as Json, json};
use url::Url;

use super::{ModelConfig, Models, Prices, Provider, Retry, ToolForm};
use crate::decode::{Decoder, Field};
use crate::diagnostic::Diagnostic;
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use crate::policy::layer::{self, Variable};
use crate::shape::{self, Between, Read, Schema, Shape, Shown, Within};
use crate::suggest::closest;
use crate::yaml::Value;
use harness_policy::text::quoted;

/// Longest name of a model, in bytes.
const LONGEST_NAME: usize = 256;

keys! {
    /// The models in `harness.md`.
    pub(crate) ModelKeys: Unknown::Warn;
    /// The default model of agents.
    optional model: Main;
    /// Further models that agents may name. An entry without `provider` uses the provider and the connection of the
    /// main model.
    optional models: Vec<Further>;
}

keys! {
    /// The keys of one model. Those that say who is sent a conversation, or that it gets no tools, must not be misspelled
    /// and leave their defaults standing.
    ConfigKeys: Unknown::RefuseLike(&["provider", "base_url", "api_key_env", "script", "tools"]);
    /// Its name at its provider.
    optional name: ModelName;
    /// The kind of service. Default: the provider of the main model, or `openai`.
    optional provider: Provider;
    /// The address of the service. Default: that of the provider.
    optional base_url: BaseUrl;
    /// The variable of the host's environment that holds the key.
    optional api_key_env: KeyVariable;
    /// Maximum tokens of a reply.
    optional max_tokens: Between<1, 10_000_000>;
    /// Maximum tokens of a conversation.
    optional context_tokens: Between<1, 1_000_000_000>;
    /// Sampling temperature.
    optional temperature: Within<0, 2>;
    /// What the service charges, for the cost on the page of a session.
    optional prices: Prices;
    /// The retries of a request that failed temporarily.
    optional retry: Retry;
    /// Whether replies are streamed.
    optional stream: bool = true;
    /// How the model receives tools: `auto`, as its provider supports it; `structured`, in the provider's form;
    /// `prose`, in the prompt; `none`, not at all.
    optional tools: ToolForm = ToolForm::default();
    /// The file of replies of `provider: script`, relative to the project.
    optional script: Replies;
}

keys! {
    /// The keys of `prices`: US dollars for a million tokens.
    PriceKeys: Unknown::Refuse;
    /// For tokens that the model reads.
    required input: Within<0, 1_000_000>;
    /// For tokens that the model writes.
    required output: Within<0, 1_000_000>;
}

keys! {
    /// The keys of `retry`.
    RetryKeys: Unknown::Warn;
    /// Maximum number of retries of a request.
    optional max_retries: Between<0, 100> = Between(3);
    /// First pause, in milliseconds; at most an hour.
    optional initial_backoff_ms: Between<0, 3_600_000> = Between(1_000);
    /// Longest pause, in milliseconds; at most an hour.
    optional max_backoff_ms: Between<0, 3_600_000> = Between(30_000);
    /// Factor by which each pause is longer than the one before.
    optional multiplier: Within<1, 100> = Within(2.0);
}

impl Models {
    /// `model` and `models`.
    pub(crate) fn decode(decoder: &mut Decoder, keys: &ModelKeys<'_>) -> Self {
        let main = keys.model.field().and_then(|f| ModelConfig::decode(decoder, f, None));
        let items = keys.models.field().and_then(|f| match f.node.value {
            Value::Map(_) => {
                let hint = "write an item for each model: `- { name: qwen3, provider: ollama, tools: auto }`";
                decoder.wrong_type(f, "a list", Some(hint));
                None
            }
            _ => decoder.list(f),
        });
        let items = items.unwrap_or_default();
        let mut models = Self { main, others: Vec::new() };
        for item in &items {
            let Some(model) = ModelConfig::decode(decoder, item, Some(&models)) else { continue };
            let first = models.all().find(|other| other.name.value == model.name.value);
            // The main one may be listed among the others; and who says the same twice has said it once.
            if first.is_some_and(|first| model.repeats(first)) {
                continue;
            }
            if let Some(first) = first {
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
    /// Whether it says nothing else than another definition of the same model: each key is that one's, or is not there.
    fn repeats(&self, other: &Self) -> bool {
        fn same<T: PartialEq>(own: Option<&Located<T>>, other: Option<&Located<T>>) -> bool {
            own.is_none_or(|own| other.is_some_and(|other| own.value == other.value))
        }
        same(Some(&self.provider), Some(&other.provider))
            && same(self.base_url.as_ref(), other.base_url.as_ref())
            && same(self.api_key_env.as_ref(), other.api_key_env.as_ref())
            && same(self.max_tokens.as_ref(), other.max_tokens.as_ref())
            && same(self.context_tokens.as_ref(), other.context_tokens.as_ref())
            && same(self.temperature.as_ref(), other.temperature.as_ref())
            && same(self.script.as_ref(), other.script.as_ref())
            && (self.prices == other.prices || self.prices.is_none())
            && (self.retry == other.retry || self.retry == Retry::default())
            && (self.stream == other.stream || self.stream)
            && (self.tools.value == other.tools.value || self.tools.value == ToolForm::default())
    }

    /// `among` are the models before it, where it is one of `models`: without a provider it is asked as the main one is.
    fn decode(decoder: &mut Decoder, field: &Field<'_>, among: Option<&Models>) -> Option<Self> {
        let keys: ConfigKeys<'_> = decoder.keys(field)?;
        let position = decoder.position(field.span());
        let main = among.and_then(|models| models.main.as_ref()).filter(|_| keys.provider.field().is_none());
        let provider = match keys.provider.field() {
            Some(_) => keys.provider.located(decoder),
            None => Some(
                main.map_or_else(|| Located::new(Provider::OpenAi, position.clone()), |main| main.provider.clone()),
            ),
        };
        let base_url = keys.base_url.located(decoder).map(|url| url.map(|url| url.0));
        let api_key_env = keys.api_key_env.located(decoder).map(|name| name.map(|name| name.0));
        let script = keys.script.located(decoder).map(|path| path.map(|path| path.0));
        let name = match (keys.name.field(), provider.as_deref()) {
            (Some(_), _) => keys.name.located(decoder).map(|name| name.map(|name| name.0)),
            // One of `models` is there to be named.
            (None, Some(Provider::Script)) if among.is_none() => {
                Some(Located::new("script".to_owned(), position.clone()))
            }
            // Said of the provider already, and a scripted one needs no name.
            (None, None) if among.is_none() && script.is_some() => None,
            (None, _) => {
                let hint = "give it a line such as `name: gpt-4o-mini`".to_owned();
                decoder.error_with(field, format!("{}.name cannot be empty", field.path), Some(hint));
                None
            }
        };
        let model = Self {
            max_tokens: keys.max_tokens.located(decoder).map(|n| n.map(|n| n.0)),
            context_tokens: keys.context_tokens.located(decoder).map(|n| n.map(|n| n.0)),
            temperature: keys.temperature.located(decoder).map(|n| n.map(|n| n.0)),
            prices: keys.prices.read(decoder),
            retry: keys.retry.read(decoder).unwrap_or_default(),
            stream: keys.stream.read(decoder),
            tools: keys.tools.located(decoder, &position),
            base_url: base_url.or_else(|| main.and_then(|main| main.base_url.clone())),
            api_key_env: api_key_env.or_else(|| main.and_then(|main| main.api_key_env.clone())),
            script: script.or_else(|| main.and_then(|main| main.script.clone())),
            name: name?,
            provider: provider?,
            position,
        };
        // What is there and could not be read was reported already.
        let lacks = |key: &str, there: bool, hint: &str| {
            (!there).then(|| (format!("{} has no `{key}`", quoted(&field.path)), hint.to_owned()))
        };
        let lacking = match *model.provider {
            Provider::Azure => {
                let there = keys.base_url.field().is_some() || model.base_url.is_some();
                lacks("base_url", there, "add a line such as `base_url: https://NAME.openai.azure.com/openai/v1`")
            }
            Provider::Script => {
                let there = keys.script.field().is_some() || model.script.is_some();
                lacks("script", there, "name the file of replies: `script: replies.yaml`")
            }
            _ => None,
        };
        if let Some((message, hint)) = lacking {
            decoder.error_with(field, message, Some(hint));
        }
        if let (false, Some(script)) = (*model.provider == Provider::Script, keys.script.field()) {
            let provider = quoted(model.provider.word());
            let message = format!("{} has no meaning with the provider {provider}", quoted(&script.path));
            decoder.error_with(script, message, Some("write `provider: script`".to_owned()));
        }
        Some(model)
    }
}

/// The main model, for its schema: the scripted one needs no name.
struct Main;

impl Shape for Main {
    fn schema() -> Schema {
        let mut schema = config();
        let scripted = json!({"required": ["provider"], "properties": {"provider": {"const": "script"}}});
        schema.insert("anyOf".to_owned(), json!([named(), scripted]));
        schema
    }
}

/// One of `models`, for its schema.
struct Further;

impl Shape for Further {
    fn schema() -> Schema {
        let mut schema = config();
        if let Some(Json::Array(all)) = schema.get_mut("allOf") {
            all.push(named());
        }
        schema
    }
}

fn named() -> Json {
    json!({"required": ["name"], "properties": {"name": {"type": "string"}}})
}

/// The keys, and what single providers need.
fn config() -> Schema {
    let needs = |provider: Provider, key: &str| {
        json!({
            "if": {"required": ["provider"], "properties": {"provider": {"const": provider.word()}}},
            "then": {"required": [key], "properties": {key: {"type": "string"}}},
        })
    };
    let mut schema = keys::schema::<ConfigKeys<'_>>();
    let needs = [needs(Provider::Azure, "base_url"), needs(Provider::Script, "script")];
    schema.insert("allOf".to_owned(), json!(needs));
    schema
}

impl Shape for Prices {
    fn schema() -> Schema {
        keys::schema::<PriceKeys<'_>>()
    }
}

impl Read for Prices {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: PriceKeys<'_> = decoder.keys(field)?;
        for (key, given) in [("input", keys.input.field()), ("output", keys.output.field())] {
            if given.is_none() {
                let hint = "write US dollars for a million tokens: `prices: { input: 0.15, output: 0.6 }`".to_owned();
                decoder.error_with(field, format!("{} has no `{key}`", quoted(&field.path)), Some(hint));
            }
        }
        let (input, output) = (keys.input.read(decoder), keys.output.read(decoder));
        Some(Self { input: input?.0, output: output?.0 })
    }
}

impl Shape for Retry {
    fn schema() -> Schema {
        keys::schema::<RetryKeys<'_>>()
    }
}

impl Read for Retry {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: RetryKeys<'_> = decoder.keys(field)?;
        Some(Self {
            max_retries: u32::try_from(keys.max_retries.read(decoder).0).ok()?,
            initial_backoff: Duration::from_millis(keys.initial_backoff_ms.read(decoder).0),
            max_backoff: Duration::from_millis(keys.max_backoff_ms.read(decoder).0),
            multiplier: keys.multiplier.read(decoder).0,
        })
    }
}

/// The name of a model, here and in an agent: whatever a provider may call one.
pub(crate) struct ModelName(String);

impl Shape for ModelName {
    fn schema() -> Schema {
        shape::schema(json!({"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}))
    }
}

impl Read for ModelName {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let text = decoder.string(field)?;
        let (wrong, hint) = if text.trim().is_empty() {
            ("cannot be empty", "write a name such as `gpt-4o-mini`")
        } else if text.len() > LONGEST_NAME {
            ("may have at most 256 bytes", "write what its provider calls it")
        } else if text.chars().any(char::is_control) || text.trim() != text {
            ("must not begin or end with a space, nor hold control characters", "write it on one line")
        } else {
            return Some(Self(text.to_owned()));
        };
        let message = format!("{}: the name of a model {wrong}", quoted(&field.path));
        decoder.error_with(field, message, Some(hint.to_owned()));
        None
    }
}

/// The model of an agent: by its name alone.
pub(crate) fn reference(decoder: &mut Decoder, field: &Field<'_>) -> Option<Located<String>> {
    if matches!(field.node.value, Value::Map(_)) {
        let hint = "write its name; its service is in `models:` of the policy";
        decoder.wrong_type(field, "a string", Some(hint));
        return None;
    }
    Located::<ModelName>::read(decoder, field).map(|name| name.map(|name| name.0))
}

impl Shape for Provider {
    fn schema() -> Schema {
        shape::words(Self::ALL.map(Self::word))
    }
}

impl Read for Provider {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let word = decoder.string(field)?;
        let provider = Self::ALL.into_iter().find(|provider| provider.word() == word);
        if provider.is_none() {
            let words = Self::ALL.map(Self::word);
            let hint = match closest(&word.to_ascii_lowercase(), words) {
                Some(word) => format!("did you mean `{word}`?"),
                None => "a server that speaks OpenAI's form is `provider: openai` with its `base_url`".to_owned(),
            };
            let message = format!("{}: {} is none of {}", quoted(&field.path), quoted(word), words.join(", "));
            decoder.error_with(field, message, Some(hint));
        }
        provider
    }
}

impl Shape for ToolForm {
    fn schema() -> Schema {
        shape::words(Self::ALL.map(Self::word))
    }
}

impl Read for ToolForm {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, |word| {
            let form = Self::ALL.into_iter().find(|form| form.word() == word);
            form.ok_or_else(|| format!("{} is none of {}", quoted(word), Self::ALL.map(Self::word).join(", ")))
        })
    }
}

impl Shown for ToolForm {
    fn shown(&self) -> Json {
        json!(self.word())
    }
}

/// The name of a variable with a key.
struct KeyVariable(String);

impl Shape for KeyVariable {
    fn schema() -> Schema {
        Variable::schema()
    }
}

impl Read for KeyVariable {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        // What is no name may be the key itself, so the message does not repeat it.
        let why = |_| "write the name of the variable that holds the key, not the key".to_owned();
        decoder.parse_one(field, |text| layer::variable(text).map_err(why)).map(Self)
    }
}

/// Where conversations and a key are sent.
struct BaseUrl(Url);

impl Shape for BaseUrl {
    fn schema() -> Schema {
        shape::schema(json!({"type": "string", "pattern": "^https?://"}))
    }
}

impl Read for BaseUrl {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, base_url).map(Self)
    }
}

/// The path of a file with replies.
struct Replies(String);

impl Shape for Replies {
    fn schema() -> Schema {
        shape::Name::schema()
    }
}

impl Read for Replies {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, |text| {
            if text.trim().is_empty() || text.chars().any(char::is_control) {
                return Err("write the path of a file with replies, such as `replies.yaml`".to_owned());
            }
            Ok(Self(text.to_owned()))
        })
    }
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
