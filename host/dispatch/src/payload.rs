//! What each event carries, and what a hook's `modify` does to it.

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::blocks;
use harness_artifact::definition::Served;
use harness_artifact::event::{Event, Shape};
use harness_capability::secrets::Vault;

/// `tool.pre`: a call whose arguments fit, before the tool runs.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct ToolPre {
    pub id: String,
    pub name: String,
    /// JSON text, as a model sends it.
    pub arguments: String,
    /// The same, decoded. A hook may change either.
    pub args: Json,
}

/// `tool.post`: what a tool gave, before its caller gets it.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct ToolPost {
    pub call_id: String,
    pub name: String,
    /// The text that the caller gets: a string result as it is, any other as JSON; of a call that failed, why.
    pub content: String,
    /// The blocks of a result that is content, as JSON; none of any other. A hook may change them.
    pub blocks: Option<Json>,
    pub is_error: bool,
    /// The value that `run` returned; of a call that failed, `{"error": why}`. A hook may change either.
    pub result: Json,
}

/// `turn.end`: what a turn gave.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct TurnEnd {
    pub text: String,
    pub tool_calls: Vec<ToolUse>,
    pub usage: Tokens,
    /// What scripts logged in the turn.
    pub log: Vec<LogLine>,
}

/// One of the calls of a turn.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct ToolUse {
    pub name: String,
    pub args: Json,
}

/// A call that an agent has made, for anyone who judges its work: the keys are those of `tool.pre`.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct CallMade {
    pub id: String,
    pub name: String,
    pub args: Json,
}

/// What that gave its model: the keys are those of `tool.post`.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct CallResult {
    pub call_id: String,
    pub name: String,
    pub content: String,
    pub is_error: bool,
}

/// What a model counted.
#[derive(Debug, Clone, Copy, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct Tokens {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// A line that a script logged.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct LogLine {
    /// The tool or hook.
    pub source: String,
    pub level: String,
    pub message: String,
}

/// `completion.pre`: a request to a model, before it is sent.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct CompletionPre {
    pub model: String,
    /// Each a dict with `role` and `content`, and what else the provider's format has.
    pub messages: Vec<Json>,
    pub tools: Vec<Json>,
    pub max_tokens: Option<u64>,
    pub temperature: Option<f64>,
}

/// `completion.post`: what a model answered.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct CompletionPost {
    pub id: String,
    pub model: String,
    pub choices: Vec<Json>,
    pub usage: Tokens,
    pub finish_reason: String,
}

/// `delegation.pre`: a sub-agent is about to start.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct DelegationPre {
    pub id: String,
    pub parent_id: Option<String>,
    pub agent: String,
    pub prompt: String,
    /// Of the child; a child of the root has 1.
    pub depth: u32,
    /// The names from the root's sub-agent down to the child's.
    pub path: Vec<String>,
    pub model: Option<String>,
    pub tools: Vec<String>,
    pub hooks: Vec<String>,
}

/// `delegation.post`: a sub-agent has ended.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct DelegationPost {
    pub id: String,
    pub parent_id: Option<String>,
    pub agent: String,
    pub result: Json,
    pub depth: u32,
    /// As in [`DelegationPre`].
    pub path: Vec<String>,
}

/// `delegation.post_verify`: the result of a sub-agent is judged.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct DelegationPostVerify {
    #[serde(flatten)]
    pub post: DelegationPost,
    /// From 1.
    pub attempt: u32,
}

/// `agent.stop`: a model has stopped asking for tools.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct AgentStop {
    pub id: String,
    pub parent_id: Option<String>,
    pub finish_reason: String,
    pub iteration: u32,
    pub text: String,
    /// The same under the name that a delegation's result has for it. A hook may change either.
    pub response: String,
    /// The last calls of the turn.
    pub tool_calls: Vec<CallMade>,
    pub tool_results: Vec<CallResult>,
    /// Of the turn so far.
    pub usage: Tokens,
}

/// `builtin.pre`: a tool's script is about to call a built-in.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct BuiltinPre {
    pub tool: String,
    /// Such as `fs.read`.
    pub function: String,
    /// By name.
    pub arguments: Json,
}

/// `builtin.post`: a tool's script has called a built-in.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct BuiltinPost {
    #[serde(flatten)]
    pub pre: BuiltinPre,
    /// What the script gets; `None` where it failed.
    pub result: Json,
    /// Why it failed.
    pub error: Option<String>,
}

/// `error`: something that ends a turn.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct ErrorEnvelope {
    /// `config`, `tool`, `completion`, `delegation`, `limit`, `host`.
    pub kind: String,
    pub message: String,
    /// What it came from, such as a tool's name.
    pub source: String,
}

/// `meta.tool_register`: a script is about to add a tool.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct MetaToolRegister {
    pub name: String,
    pub description: String,
    pub parameters: Json,
    pub script: String,
    pub replace: bool,
}

/// `meta.hook_register`: a script is about to add a hook.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct MetaHookRegister {
    pub name: String,
    pub event: String,
    pub script: String,
    pub when: Option<String>,
    pub priority: i64,
}

/// `meta.call_tool`: a script is about to call a tool.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the keys are the event's")]
pub struct MetaCallTool {
    pub name: String,
    pub arguments: String,
    pub args: Json,
}

/// The agent that something is done by, as every payload that is a dict of the host's shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AgentAt {
    /// Its name; empty at the root, and where no agent is at work.
    pub name: String,
    /// 0 at the root.
    pub depth: u32,
    /// The names from the root's sub-agent down to its own.
    pub path: Vec<String>,
}

impl AgentAt {
    /// That at the end of a path.
    pub fn of(path: &[String]) -> Self {
        Self {
            name: path.last().cloned().unwrap_or_default(),
            depth: u32::try_from(path.len()).unwrap_or(u32::MAX),
            path: path.to_vec(),
        }
    }

    /// A payload as hooks see it, with the agent by which it came about. Those of `delegation.*` name as `agent` the
    /// one that is started.
    pub fn payload(&self, payload: &impl Serialize) -> Json {
        let mut payload = of(payload);
        if let Json::Object(object) = &mut payload {
            object.entry("agent").or_insert_with(|| of(self));
        }
        payload
    }
}

/// What a script emits, while hooks hear of it: a dict has `agent`, as every payload. What the script itself has there
/// is back when they have heard.
#[derive(Debug)]
pub struct Emitted {
    given: Option<Json>,
    is_dict: bool,
}

impl Emitted {
    pub(crate) fn by(agent: &AgentAt, payload: &mut Json) -> Self {
        let Json::Object(object) = payload else { return Self { given: None, is_dict: false } };
        Self { given: object.insert("agent".to_owned(), of(agent)), is_dict: true }
    }

    /// What the script gets back of what hooks have left.
    pub fn back(self, mut payload: Json) -> Json {
        if let (true, Json::Object(object)) = (self.is_dict, &mut payload) {
            match self.given {
                Some(given) => drop(object.insert("agent".to_owned(), given)),
                None => drop(object.shift_remove("agent")),
            }
        }
        payload
    }
}

/// The same of a call of a server's tool: with the server, and of a result with the value that came with it.
pub(super) fn of_server(mut payload: Json, served: Option<&Served>, structured: Option<Json>) -> Json {
    if let (Some(served), Json::Object(object)) = (served, &mut payload) {
        object.insert("server".to_owned(), served.server.as_str().into());
        object.insert("transport".to_owned(), served.transport.name().into());
        object.extend(structured.map(|structured| ("structured".to_owned(), structured)));
    }
    payload
}

/// A payload as hooks see it.
pub fn of(payload: &impl Serialize) -> Json {
    // Nothing here has keys that are no strings or numbers that are no JSON.
    serde_json::to_value(payload).unwrap_or_default()
}

/// Applies `modify(new)`: the keys given replace those keys, the rest stays; what is not a dict is replaced whole. What
/// an event is about cannot be changed, and what it says twice stays equal. Gives back warnings, one for each change that
/// the operation does not take back as well.
///
/// # Errors
///
/// Where the payload cannot be that: the hook has failed then.
pub fn modify(event: &Event, payload: &mut Json, new: Json) -> Result<Vec<String>, String> {
    match (&mut *payload, new) {
        (Json::Object(object), Json::Object(new)) => merge(event, object, new),
        (Json::Object(_), new) => Err(format!("`modify` of `{event}` takes a dict, not {}", kind(&new))),
        (payload, new) => match (event.shape(), &new) {
            (Shape::Nothing, _) => Ok(vec![format!("`{event}` has no payload: `modify` is ignored")]),
            (Shape::Text, Json::String(_)) | (Shape::Any | Shape::Dict(_), _) => {
                *payload = new;
                Ok(Vec::new())
            }
            (Shape::Text, other) => Err(format!("`modify` of `{event}` takes a string, not {}", kind(other))),
        },
    }
}

/// Adds to a payload that a person wrote what it must say twice and says once. Returns warnings.
///
/// # Errors
///
/// Where what it says cannot be said in the other form.
pub fn complete(event: &Event, payload: &mut Json) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    let Json::Object(given) = payload else { return Ok(warnings) };
    let mut without = given.clone();
    for key in ["arguments", "args", "content", "blocks", "result", "text", "response"] {
        without.remove(key);
    }
    keep_equal(event, &without, given, &mut warnings)?;
    Ok(warnings)
}

fn merge(event: &Event, object: &mut Map<String, Json>, new: Map<String, Json>) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    let old = object.clone();
    for (key, value) in new {
        if old.get(&key) == Some(&value) {
            continue;
        }
        warnings.extend(event.not_taken(&key));
        if !event.fixed_keys().contains(&key.as_str()) {
            object.insert(key, value);
        }
    }
    keep_equal(event, &old, object, &mut warnings)?;
    Ok(warnings)
}

/// Keeps equal what a payload says twice.
fn keep_equal(
    event: &Event,
    old: &Map<String, Json>,
    new: &mut Map<String, Json>,
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    match event {
        Event::ToolPre => arguments(old, new, warnings),
        Event::Meta(name) if name == "call_tool" => arguments(old, new, warnings),
        Event::ToolPost if blocks_of(old) != blocks_of(new) => blocks(old, new, warnings),
        Event::ToolPost => content(old, new, warnings),
        Event::AgentStop => {
            response(old, new, warnings);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Keeps `arguments`, a JSON text, and `args` equal. The one that was changed counts; of both, `args`.
fn arguments(old: &Map<String, Json>, new: &mut Map<String, Json>, warnings: &mut Vec<String>) -> Result<(), String> {
    let changed = |key: &str| old.get(key) != new.get(key);
    let (text, args) = (changed("arguments"), changed("args"));
    if text && !args {
        let decoded = match new.get("arguments") {
            Some(Json::String(text)) => serde_json::from_str(text).map_err(|_| "`arguments` is not JSON".to_owned())?,
            // The dict itself instead of its text is what the author means.
            Some(dict @ Json::Object(_)) => dict.clone(),
            other => return Err(format!("`arguments` must be JSON text, not {}", other.map_or("missing", kind))),
        };
        new.insert("args".to_owned(), decoded);
    } else if text {
        let same = matches!((new.get("arguments"), new.get("args")), (Some(Json::String(text)), Some(args))
            if serde_json::from_str::<Json>(text).is_ok_and(|text| text == *args));
        if !same {
            warnings.push("`arguments` and `args` say different things: `args` counts".to_owned());
        }
    }
    if let Some(args) = new.get("args").cloned() {
        new.insert("arguments".to_owned(), args.to_string().into());
    }
    Ok(())
}

/// Keeps `content`, a text, and `result` equal. The one that was changed counts; of both, `content`. Of a call that
/// failed, `result` is `{"error": content}`.
fn content(old: &Map<String, Json>, new: &mut Map<String, Json>, warnings: &mut Vec<String>) -> Result<(), String> {
    let changed = |key: &str| old.get(key) != new.get(key);
    let (text, result) = (changed("content"), changed("result"));
    let failed = old.get("is_error") == Some(&Json::Bool(true));
    let as_text = |result: &Json| match result.get("error") {
        Some(Json::String(why)) if failed => why.clone(),
        _ => text_of(result),
    };
    if result && !text {
        let text = new.get("result").map(as_text).unwrap_or_default();
        new.insert("content".to_owned(), text.into());
    } else if text {
        let Some(Json::String(content)) = new.get("content").cloned() else {
            return Err("`content` must be a string".to_owned());
        };
        let same = new.get("result").is_some_and(|result| {
            as_text(result) == content || serde_json::from_str(&content).is_ok_and(|decoded: Json| decoded == *result)
        });
        if !same {
            if result {
                warnings.push("`content` and `result` say different things: `content` counts".to_owned());
            }
            let decoded = if failed {
                json!({ "error": content })
            } else {
                serde_json::from_str(&content).unwrap_or(Json::String(content))
            };
            new.insert("result".to_owned(), decoded);
        }
    }
    // Nothing of the blocks is left beside a text or a value that replaces them.
    if (text || result) && new.get("blocks").is_some_and(|blocks| !blocks.is_null()) {
        new.insert("blocks".to_owned(), Json::Null);
    }
    is_error(new)
}

/// The blocks of a payload, where it has some.
fn blocks_of(payload: &Map<String, Json>) -> Option<&Json> {
    payload.get("blocks").filter(|blocks| !blocks.is_null())
}

/// Takes the text of blocks that a hook changed. `result` stays where it is another value than the text.
fn blocks(old: &Map<String, Json>, new: &mut Map<String, Json>, warnings: &mut Vec<String>) -> Result<(), String> {
    let changed = |key: &str| old.get(key) != new.get(key);
    if changed("content") {
        warnings.push("`content` and `blocks` are both changed: `blocks` counts".to_owned());
    }
    let text = match blocks_of(new) {
        None => old.get("content").and_then(Json::as_str).unwrap_or_default().to_owned(),
        Some(given) => blocks::text_of(&blocks::read(given, &Vault::default())?),
    };
    let failed = old.get("is_error") == Some(&Json::Bool(true));
    let was_text = old.get("content").and_then(Json::as_str).map(|content| blocks::result_of(content, failed));
    if !changed("result") && was_text.as_ref() == old.get("result") {
        new.insert("result".to_owned(), blocks::result_of(&text, failed));
    }
    new.insert("content".to_owned(), text.into());
    is_error(new)
}

fn is_error(new: &Map<String, Json>) -> Result<(), String> {
    match new.get("is_error") {
        None | Some(Json::Bool(_)) => Ok(()),
        Some(_) => Err("`is_error` must be True or False".to_owned()),
    }
}

/// Keeps `text` and `response`, the same under the names of two pages, equal. The one that was changed counts; of both,
/// `text`.
fn response(old: &Map<String, Json>, new: &mut Map<String, Json>, warnings: &mut Vec<String>) {
    let changed = |key: &str| old.get(key) != new.get(key);
    let (text, response) = (changed("text"), changed("response"));
    let (from, to) = if text { ("text", "response") } else { ("response", "text") };
    if text && response && new.get("text") != new.get("response") {
        warnings.push("`text` and `response` say different things: `text` counts".to_owned());
    }
    if (text || response)
        && let Some(value) = new.get(from).cloned()
    {
        new.insert(to.to_owned(), value);
    }
}

/// A result as text: a string is itself.
pub fn text_of(result: &Json) -> String {
    match result {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What a value is called in a script.
fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "None",
        Json::Bool(_) => "a bool",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "a dict",
    }
}

#[cfg(test)]
mod tests;
