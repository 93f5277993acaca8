//! JSON Schemas of the front matter, for editors: 2020-12, one for each kind of artifact.
//!
//! Words, events, bounds and names of built-ins come from the types that the decoders use. A test gives documents to both
//! and wants the same answer, and another compares the keys.

use serde_json::{Map, Value as Json, json};

use super::cases::{Aspect, Subject};
use super::event::Event;
use super::model::{Provider, ToolForm};
use super::policy::layer;
use super::tool::ParameterType;
use crate::policy::layer::Service;

/// The kinds of artifact that have a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the artifacts")]
pub enum Kind {
    Tool,
    Hook,
    Agent,
    Bundle,
    Harness,
}

impl Kind {
    /// All of them, in the order of listings.
    pub const ALL: [Self; 5] = [Self::Tool, Self::Hook, Self::Agent, Self::Bundle, Self::Harness];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Hook => "hook",
            Self::Agent => "agent",
            Self::Bundle => "bundle",
            Self::Harness => "harness",
        }
    }
}

/// The schema of a kind's front matter. Keys that it does not know are allowed where loading ignores them.
pub fn of(kind: Kind) -> Json {
    let mut schema = match kind {
        Kind::Tool => open(tool_keys(), &[]),
        Kind::Hook => open(hook_keys(), &["event"]),
        Kind::Agent => open(agent_keys(), &[]),
        Kind::Bundle => open(bundle_keys(), &[]),
        Kind::Harness => open(harness_keys(), &[]),
    };
    if let Some(object) = schema.as_object_mut() {
        object.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        object.insert("title".to_owned(), json!(format!("front matter of a {} artifact", kind.name())));
    }
    schema
}

type Keys = Vec<(&'static str, Json)>;

/// A mapping whose other keys are ignored.
fn open(keys: Keys, required: &[&str]) -> Json {
    mapping(keys, required, true)
}

/// A mapping that has no other keys.
fn closed(keys: Keys) -> Json {
    mapping(keys, &[], false)
}

fn mapping(keys: Keys, required: &[&str], others: bool) -> Json {
    let properties: Map<String, Json> = keys.into_iter().map(|(key, schema)| (key.to_owned(), schema)).collect();
    let mut schema = json!({"type": "object", "properties": properties});
    if let Some(object) = schema.as_object_mut() {
        if !required.is_empty() {
            object.insert("required".to_owned(), json!(required));
        }
        if !others {
            object.insert("additionalProperties".to_owned(), json!(false));
        }
    }
    schema
}

/// A key that may stand there without a value.
fn or_nothing(mut schema: Json) -> Json {
    if let Some(kind) = schema.get_mut("type") {
        *kind = json!([kind.clone(), "null"]);
        return schema;
    }
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn text(what: &str) -> Json {
    json!({"type": "string", "description": what})
}

fn list(items: Json) -> Json {
    json!({"type": "array", "items": items})
}

fn names(values: Json) -> Json {
    json!({"type": "object", "additionalProperties": values})
}

fn tool_keys() -> Keys {
    let words = ParameterType::ALL.map(ParameterType::word);
    let parameter = open(
        vec![
            ("type", json!({"enum": words, "description": "What the argument must be in JSON."})),
            ("description", or_nothing(text("For the model: units, formats, bounds."))),
            ("required", or_nothing(json!({"type": "boolean", "default": false}))),
        ],
        &["type"],
    );
    let mut parameters = or_nothing(names(parameter));
    if let Some(object) = parameters.as_object_mut() {
        object.insert("description".to_owned(), json!("What the tool takes, in the order that the model sees."));
    }
    vec![
        ("parameters", parameters),
        ("script", or_nothing(text("Starlark that defines `run(args)`."))),
        (
            "timeout_ms",
            or_nothing(
                json!({"type": "integer", "minimum": 0, "default": 0, "description": "Most time of a call; 0: the policy's."}),
            ),
        ),
        (
            "async",
            or_nothing(json!({"type": "boolean", "default": false, "description": "Reserved: kept, without effect."})),
        ),
        ("capabilities", layer_schema()),
        ("tests", or_nothing(list(case(Subject::Tool)))),
    ]
}

fn hook_keys() -> Keys {
    vec![
        ("event", event()),
        ("script", or_nothing(text("Starlark that defines `handle(event, payload)`."))),
        ("when", or_nothing(text("An expression over `payload` and `event`; the hook is called where it is true."))),
        (
            "priority",
            or_nothing(json!({"type": "integer", "default": 0, "description": "Lower ones are called first."})),
        ),
        ("capabilities", layer_schema()),
        ("tests", or_nothing(list(case(Subject::Hook)))),
    ]
}

fn event() -> Json {
    let fixed: Vec<String> = Event::FIXED.iter().map(ToString::to_string).collect();
    json!({
        "anyOf": [{"enum": fixed}, {"type": "string", "pattern": "^(custom|meta)\\.[a-z0-9_]+$"}],
        "description": "What the hook is called for.",
    })
}

/// A tool, hook or agent in a list: its own keys, and its name.
fn entry(mut keys: Keys, name: &'static str, more: Keys, required: &[&str]) -> Json {
    let mut all = vec![(name, json!({"type": "string", "minLength": 1}))];
    all.extend(more);
    all.append(&mut keys);
    open(all, required)
}

fn tool_entry() -> Json {
    entry(tool_keys(), "name", vec![("description", or_nothing(text("For the model.")))], &["name"])
}

fn hook_entry() -> Json {
    let name = or_nothing(text("The hook's name; without one it is called by its place."));
    entry(hook_keys(), "handler", vec![("name", name)], &["event"])
}

fn agent_keys() -> Keys {
    let or_name =
        |definition: Json| or_nothing(list(json!({"anyOf": [{"type": "string", "minLength": 1}, definition]})));
    vec![
        ("description", or_nothing(text("One sentence for the planner that chooses among agents."))),
        (
            "model",
            or_nothing(
                json!({"type": "string", "minLength": 1, "description": "The model it runs on; without one, its caller's."}),
            ),
        ),
        ("tools", or_name(tool_entry())),
        ("hooks", or_name(hook_entry())),
    ]
}

fn agent_entry() -> Json {
    entry(agent_keys(), "name", vec![("system_prompt", or_nothing(text("What it is told.")))], &["name"])
}

fn lists() -> Keys {
    vec![
        ("tools", or_nothing(list(tool_entry()))),
        ("hooks", or_nothing(list(hook_entry()))),
        ("agents", or_nothing(list(agent_entry()))),
    ]
}

fn bundle_keys() -> Keys {
    let mut keys = lists();
    keys.extend(
        ["name", "type", "version", "description", "author", "license", "homepage", "tags"]
            .map(|label| (label, json!(true))),
    );
    keys
}

fn between(bounds: &std::ops::RangeInclusive<u64>) -> Json {
    json!({"type": "integer", "minimum": bounds.start(), "maximum": bounds.end()})
}

fn layer_rules() -> Keys {
    let texts = || list(json!({"type": "string"}));
    let limits = layer::LIMITS.iter().map(|(key, bounds)| (*key, between(bounds))).collect();
    vec![
        ("fs", closed(vec![("read", texts()), ("write", texts()), ("protect", texts())])),
        (
            "exec",
            closed(vec![
                ("allow", texts()),
                ("env", texts()),
                ("network", json!({"type": "boolean"})),
                ("unconfined", json!({"type": "boolean"})),
            ]),
        ),
        ("env", texts()),
        ("services", list(json!({"enum": Service::ALL.map(Service::name)}))),
        ("limits", closed(limits)),
    ]
}

fn hosts() -> Json {
    let private = closed(vec![("host", json!({"type": "string"})), ("private", json!({"type": "boolean"}))]);
    list(json!({"anyOf": [{"type": "string"}, private]}))
}

fn layer_schema() -> Json {
    let mut keys = vec![("network", hosts()), ("secrets", list(json!({"type": "string"})))];
    keys.extend(layer_rules());
    closed(keys)
}

fn harness_keys() -> Keys {
    let answer = json!({"enum": ["block", "allow"]});
    let hooks =
        closed(vec![("on_error", answer.clone()), ("strict", json!({"type": "boolean"})), ("named", names(answer))]);
    let text = || json!({"type": "string"});
    let secret =
        closed(vec![("env", text()), ("file", text()), ("hosts", hosts()), ("exec", list(json!({"type": "string"})))]);
    let mut sandbox = layer_rules();
    sandbox.extend([
        ("audit", json!({"type": "boolean", "default": true})),
        ("secrets", names(secret)),
        ("hooks", hooks),
        ("sources", names(layer_schema())),
    ]);
    let tools_policy = closed(vec![
        ("mode", json!({"enum": ["allowlist", "denylist"]})),
        ("allow", list(json!({"type": "string", "minLength": 1}))),
        ("deny", list(json!({"type": "string", "minLength": 1}))),
    ]);
    let count = || json!({"type": "integer", "minimum": 0, "maximum": 1000});
    let meta = closed(vec![
        ("enabled", json!({"type": "boolean"})),
        ("max_tools", count()),
        ("max_hooks", count()),
        ("max_agents", count()),
        ("max_call_depth", count()),
    ]);
    let integer = || json!({"type": "integer", "minimum": 0});
    let delegation = closed(vec![
        ("max_depth", integer()),
        ("max_concurrent", integer()),
        ("iterations_per_depth", list(integer())),
        ("timeout_ms", integer()),
        ("allow_recursive", json!({"type": "boolean"})),
        ("verify", json!({"type": "string"})),
        ("max_verify_retries", integer()),
    ]);
    let source = closed(vec![("type", json!({"const": "local"})), ("path", json!({"type": "string"}))]);
    let mut keys = vec![
        ("network", closed(vec![("allowed_domains", hosts())])),
        ("sandbox", closed(sandbox)),
        ("tools_policy", tools_policy),
        ("meta", meta),
        ("delegation", delegation),
        ("artifact_sources", list(source)),
    ];
    let (mut main, mut further) = (model(), model());
    if let (Some(main), Some(further)) = (main.as_object_mut(), further.as_object_mut()) {
        let scripted = json!({"required": ["provider"], "properties": {"provider": {"const": "script"}}});
        main.insert("anyOf".to_owned(), json!([{"required": ["name"]}, scripted]));
        further.insert("required".to_owned(), json!(["name"]));
    }
    keys.extend([("model", or_nothing(main)), ("models", or_nothing(list(further)))]);
    keys.extend(lists());
    let bounded = |low, high| json!({"type": "integer", "minimum": low, "maximum": high});
    let context = vec![
        ("max_history", bounded(1, 100_000)),
        ("max_tokens", bounded(256, 100_000_000)),
        ("system_prompt", json!({"type": "string"})),
    ];
    let exit = vec![
        ("mode", json!({"enum": ["natural", "done_tool", "hook", "hybrid"]})),
        ("max_iterations", bounded(0, 1000)),
        ("on_max_iterations", json!({"enum": ["error", "warn_and_exit", "continue_with_warning"]})),
    ];
    keys.extend([("context", or_nothing(open(context, &[]))), ("exit_policy", or_nothing(open(exit, &[])))]);
    keys.extend(super::policy::OTHER_KEYS.map(|key| (key, json!(true))));
    keys
}

fn model() -> Json {
    let within = |least: f64, most: f64| json!({"type": ["number", "null"], "minimum": least, "maximum": most});
    let count = |least: u64, most: u64| or_nothing(between(&(least..=most)));
    let retry = open(
        vec![
            ("max_retries", count(0, 100)),
            ("initial_backoff_ms", count(0, 3_600_000)),
            ("max_backoff_ms", count(0, 3_600_000)),
            ("multiplier", within(1.0, 100.0)),
        ],
        &[],
    );
    let words =
        |words: Vec<&str>| json!({"enum": words.into_iter().map(Json::from).chain([Json::Null]).collect::<Vec<_>>()});
    let keys = vec![
        ("name", json!({"type": "string", "minLength": 1, "description": "What its provider calls it."})),
        ("provider", words(Provider::ALL.map(Provider::word).to_vec())),
        ("base_url", or_nothing(json!({"type": "string", "pattern": "^https?://"}))),
        ("api_key_env", or_nothing(json!({"type": "string"}))),
        ("max_tokens", count(1, 10_000_000)),
        ("context_tokens", count(1, 1_000_000_000)),
        ("temperature", within(0.0, 2.0)),
        ("retry", or_nothing(retry)),
        ("tools", words(ToolForm::ALL.map(ToolForm::word).to_vec())),
        ("script", or_nothing(json!({"type": "string", "minLength": 1}))),
    ];
    let mut schema = open(keys, &[]);
    if let Some(object) = schema.as_object_mut() {
        let needs = |word: &str, key: &str| {
            json!({
                "if": {"required": ["provider"], "properties": {"provider": {"const": word}}},
                "then": {"required": [key]},
            })
        };
        object.insert("allOf".to_owned(), json!([needs("azure", "base_url"), needs("script", "script")]));
    }
    schema
}

fn case(subject: Subject) -> Json {
    let http = closed(vec![
        ("method", json!({"type": "string"})),
        ("url", json!({"type": "string"})),
        ("status", json!({"type": "integer", "minimum": 100, "maximum": 599})),
        ("headers", names(json!({"type": "string"}))),
        ("body", json!({"type": "string"})),
    ]);
    let command = closed(vec![
        ("cmd", json!({"type": "string"})),
        ("args", list(json!({"type": "string"}))),
        ("stdout", json!({"type": "string"})),
        ("stderr", json!({"type": "string"})),
        ("exit_code", json!({"type": "integer"})),
        ("timed_out", json!({"type": "boolean"})),
    ]);
    let given = closed(vec![
        ("files", names(json!({"type": "string"}))),
        ("http", list(http)),
        ("commands", list(command)),
        ("now", json!({"type": ["string", "integer"]})),
        ("random", json!({"type": "integer", "minimum": 0})),
        ("env", names(json!({"type": "string"}))),
        ("cache", names(json!(true))),
        ("metrics", names(json!({"type": "number"}))),
        ("hooks", json!({"type": "boolean"})),
    ]);
    let looked_at = || {
        let aspects = Aspect::ALL.iter().filter(|aspect| aspect.is_of(subject));
        closed(aspects.map(|aspect| (aspect.word(), json!(true))).collect())
    };
    let mut keys = vec![("name", json!({"type": "string", "minLength": 1}))];
    match subject {
        Subject::Tool => keys.push(("args", json!({"type": "object"}))),
        Subject::Hook => keys.extend([("event", event()), ("payload", json!(true))]),
    }
    keys.extend([("given", given), ("expect", looked_at()), ("contains", looked_at())]);
    let mut schema = closed(keys);
    if let Some(object) = schema.as_object_mut() {
        object.insert("required".to_owned(), json!(["name"]));
        object.insert("anyOf".to_owned(), json!([{"required": ["expect"]}, {"required": ["contains"]}]));
    }
    schema
}

#[cfg(test)]
mod tests;
