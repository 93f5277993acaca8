use std::sync::LazyLock;

use super::super::agent::Agent;
use super::super::bundle::Bundle;
use super::super::diagnostic::{Diagnostics, Severity};
use super::super::hook::Hook;
use super::super::plugin::Plugin;
use super::super::policy::ProjectPolicy;
use super::super::skill::Skill;
use super::super::tool::Tool;
use super::super::yaml::{self, Node, Value};
use super::*;

/// What loading says of front matter.
fn loaded(kind: Kind, yaml: &str) -> Diagnostics {
    let text = format!("---\n{yaml}\n---\n");
    match kind {
        Kind::Tool => Tool::parse("f.md", "f", &text).1,
        Kind::Hook => Hook::parse("f.md", "f", 0, &text).1,
        Kind::Agent => Agent::parse("f.md", "f", &text).1,
        Kind::Skill => Skill::parse_at("f.md", "skills/f", "f", &text).1,
        Kind::Bundle => Bundle::parse("f.md", "plugins/f", &text).1,
        Kind::Plugin => Plugin::parse("plugin.md", Some("plugins/f"), &text).1,
        Kind::Harness => ProjectPolicy::parse("harness.md", &text).1,
    }
}

/// YAML as an editor hands it to a schema.
fn json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int(text) => serde_json::from_str(text).unwrap_or(json!(0)),
        Value::Float(text) => json!(text.parse::<f64>().unwrap_or(0.5)),
        Value::Str(text) => json!(text),
        Value::Seq(items) => items.iter().map(json).collect(),
        Value::Map(entries) => Json::Object(entries.iter().map(|(key, node)| (key.text.clone(), json(node))).collect()),
    }
}

fn fits(kind: Kind, yaml: &str) -> bool {
    let node = yaml::parse(yaml, 1).0.unwrap();
    let value = if node.value == Value::Null { json!({}) } else { json(&node) };
    // Compiling a schema takes far longer than asking it.
    static ALL: LazyLock<Vec<jsonschema::Validator>> =
        LazyLock::new(|| Kind::ALL.iter().map(|kind| jsonschema::validator_for(&of(*kind)).unwrap()).collect());
    let at = Kind::ALL.iter().position(|one| *one == kind).unwrap();
    ALL[at].is_valid(&value)
}

#[track_caller]
fn agree(kind: Kind, yaml: &str, good: bool) {
    let found = loaded(kind, yaml);
    let errors: Vec<&str> =
        found.iter().filter(|d| d.severity == Severity::Error).map(|d| d.message.as_str()).collect();
    assert_eq!(errors.is_empty(), good, "{yaml}: {errors:?}");
    assert_eq!(fits(kind, yaml), good, "{}: {yaml}", kind.name());
}

const TOOL: &str = "parameters:\n  a: { type: string, description: x, required: true }\nscript: |\n  def run(args):\n    return 1\ntimeout_ms: 5\nasync: true\nconfirm: true\ncapabilities: { fs: { read: [docs] }, network: [a.com, { host: b.org, private: true }], limits: { fuel: 5 }, services: [cache] }\ntests:\n  - name: t\n    args: { a: x }\n    given: { files: { a: b }, http: [{ url: \"https://a.com\" }], commands: [{ cmd: ls }], now: 5, hooks: true }\n    expect: { result: 1 }\n    contains: { log: [x] }";
const HOOK: &str = "event: tool.pre\npriority: -3\nwhen: 'True'\nscript: x\ntests: [{ name: t, event: custom.x, payload: [1], expect: { decision: allow } }]";
const PLUGIN: &str = "name: f\nversion: 1.2.3-rc.1\ndescription: x\nlicense: MIT\nauthors: [Ada]\nhomepage: https://a.example\nrequires: { harness: '>=0.1', plugins: { other: ^1.2 } }\nasks:\n  - reason: y\n    fs: { read: [docs], write: [out] }\n    network: [a.com, { host: b.org, private: true }]\n    exec: { allow: [git, { argv: [ls, -l] }], env: [PATH], folders: [/opt/go], network: [a.com], unconfined: true }\n    env: [A]\n    services: [cache]\n    secrets: [K]\n    tools: ['read_*']\n    mcp: [git]\n    events: [tool.pre, custom.x]";
const HARNESS: &str = "network: { allowed_domains: [a.com] }\nsandbox:\n  async_tools: true\n  fs: { read: [.], protect: [x] }\n  exec: { allow: [git], env: [PATH], folders: [/opt/go], network: true, unconfined: false }\n  limits: { memory_mb: 64 }\n  hooks: { on_error: allow, strict: true, named: { g: block } }\n  secrets: { A: { env: A, hosts: [a.com] } }\n  sources: { plugins/x: { env: [A] } }\ntools_policy: { mode: allowlist, allow: [x], deny: [], confirm: [\"rm_*\"] }\nmeta: { enabled: true, max_tools: 3 }\ndelegation: { max_depth: 2, iterations_per_depth: [1], budget: { tokens: 5 }, tree_budget: { rounds: 1, tokens: 2, time_ms: 3, calls: 4 } }\nartifact_sources: [{ type: local, path: more }]\ntrusted_sources: [{ source: ./a/*, require: signature, signers: [RWQyUHrYd0ab27mjqZ75GRgdSpqXHVuKKq/eWWvtG2VlNaj3bNCz0hLz], max: { env: [A] } }, { source: ./b }, \"https://a.example/b\"]\nmodel: { name: x, provider: ollama, base_url: \"http://127.0.0.1:1\", max_tokens: 5, temperature: 0.5, stream: false, retry: { max_retries: 0 }, tools: prose }\nmodels: [{ name: y }, { name: z, provider: script, script: r.yaml }]\ntools: [{ name: t }]\nhooks: [{ event: error }]\nagents: [{ name: a, system_prompt: x, tools: [t, { name: own }], hooks: [g, { event: error }] }]";

#[test]
fn what_loads_fits() {
    for (kind, yaml) in [
        (Kind::Tool, ""),
        (Kind::Tool, TOOL),
        (Kind::Tool, "parameters:\nscript:\ntimeout_ms:\nother: 1"),
        (Kind::Hook, "event: meta.tool_register"),
        (Kind::Hook, HOOK),
        (Kind::Agent, ""),
        (
            Kind::Agent,
            "description: x\nmodel: m\nbudget: { calls: 3 }\ntools: [a, { name: b, timeout_ms: 1 }]\nhooks: [c, { event: error, handler: h }]",
        ),
        (Kind::Skill, "name: f\ndescription: x"),
        (
            Kind::Skill,
            "name: f\ndescription: x\nlicense: MIT\ncompatibility: y\nmetadata: { a: 1 }\nallowed-tools: [a, b c]\nversion: 2",
        ),
        (Kind::Bundle, "name: x\nversion: 1\ntools: [{ name: t, description: d }]\nhooks: [{ event: error }]"),
        (Kind::Plugin, "name: f\nversion: 1.2.3\ndescription: x"),
        (Kind::Plugin, PLUGIN),
        (Kind::Harness, ""),
        (Kind::Harness, HARNESS),
    ] {
        agree(kind, yaml, true);
    }
}

#[test]
fn what_does_not_load_does_not_fit() {
    for (kind, yaml) in [
        (Kind::Tool, "parameters: [a]"),
        (Kind::Tool, "parameters: { a: { type: int } }"),
        (Kind::Tool, "parameters: { a: { required: true } }"),
        (Kind::Tool, "parameters: { a: { type: string, required: 1 } }"),
        (Kind::Tool, "script: 5"),
        (Kind::Tool, "timeout_ms: -1"),
        (Kind::Tool, "timeout_ms: 1.5"),
        (Kind::Tool, "async: maybe"),
        (Kind::Tool, "confirm: maybe"),
        (Kind::Tool, "confirm:"),
        (Kind::Tool, "network: {}"),
        (Kind::Agent, "sandbox: {}"),
        (Kind::Bundle, "tools_policy: {}"),
        (Kind::Tool, "capabilities: { fss: {} }"),
        (Kind::Tool, "capabilities: { limits: { fuel: 0 } }"),
        (Kind::Tool, "capabilities: { services: [cash] }"),
        (Kind::Tool, "tests: [{ name: a }]"),
        (Kind::Tool, "tests: [{ expect: { result: 1 } }]"),
        (Kind::Tool, "tests: [{ name: a, expect: { decision: allow } }]"),
        (Kind::Tool, "tests: [{ name: a, args: [1], expect: { result: 1 } }]"),
        (Kind::Hook, "priority: 1"),
        (Kind::Hook, "event: tool.per"),
        (Kind::Hook, "event: custom.Bad"),
        (Kind::Hook, "event: tool.pre\npriority: high"),
        (Kind::Hook, "event: tool.pre\nwhen: [x]"),
        (Kind::Agent, "tools: [5]"),
        (Kind::Agent, "tools: [{ script: x }]"),
        (Kind::Agent, "hooks: [{ script: x }]"),
        (Kind::Agent, "model: 5"),
        (Kind::Skill, ""),
        (Kind::Skill, "name: f\ndescription: ''"),
        (Kind::Skill, "name: f\ndescription: 5"),
        (Kind::Skill, "name: f\ndescription: x\nscript: y"),
        (Kind::Skill, "name: F\ndescription: x"),
        (Kind::Skill, "name: f\ndescription: x\nallowed-tools: 5"),
        (Kind::Skill, "name: f\ndescription: x\nmetadata: [a]"),
        (Kind::Bundle, "tools: [{ description: x }]"),
        (Kind::Bundle, "hooks: {}"),
        (Kind::Bundle, "agents: [{ model: m }]"),
        (Kind::Plugin, ""),
        (Kind::Plugin, "name: f\nversion: 1.2.3"),
        (Kind::Plugin, "name: F\nversion: 1.2.3\ndescription: x"),
        (Kind::Plugin, "name: f\nversion: 1.2\ndescription: x"),
        (Kind::Plugin, "name: f\nversion: 01.2.3\ndescription: x"),
        (Kind::Plugin, "name: f\nversion: 1.2.3\ndescription: ''"),
        (Kind::Plugin, "name: f\nversion: 1.2.3\ndescription: x\ntools: []"),
        (Kind::Plugin, "name: f\nversion: 1.2.3\ndescription: x\nhomepage: 'javascript:x'"),
        (Kind::Plugin, "name: f\nversion: 1.2.3\ndescription: x\nasks: { reason: x, env: [A] }"),
        (Kind::Plugin, "name: f\nversion: 1.2.3\ndescription: x\nasks: [{ env: [A] }]"),
        (Kind::Plugin, "name: f\nversion: 1.2.3\ndescription: x\nasks: [{ reason: x, limits: { fuel: 5 } }]"),
        (Kind::Plugin, "name: f\nversion: 1.2.3\ndescription: x\nasks: [{ reason: x, fs: { protect: [a] } }]"),
        (Kind::Plugin, "name: f\nversion: 1.2.3\ndescription: x\nasks: [{ reason: x, events: [tool.per] }]"),
        (Kind::Plugin, "name: f\nversion: 1.2.3\ndescription: x\nrequires: { rust: x }"),
        (Kind::Harness, "sandbox: { evn: [A] }"),
        (Kind::Harness, "sandbox: { limits: { memory_mb: 5 } }"),
        (Kind::Harness, "sandbox: { hooks: { on_error: pass } }"),
        (Kind::Harness, "tools_policy: { mode: some }"),
        (Kind::Harness, "meta: { enabled: 1 }"),
        (Kind::Harness, "network: { allowed_domains: a.com }"),
        (Kind::Harness, "model: gpt-4o"),
        (Kind::Harness, "model: { provider: openai }"),
        (Kind::Harness, "model: { name: m, provider: closedai }"),
        (Kind::Harness, "model: { name: m, provider: azure }"),
        (Kind::Harness, "model: { provider: script }"),
        (Kind::Harness, "model: { name: m, base_url: x.example }"),
        (Kind::Harness, "model: { name: m, temperature: 3 }"),
        (Kind::Harness, "model: { name: m, retry: { multiplier: 0.5 } }"),
        (Kind::Harness, "model: { name: m, tools: some }"),
        (Kind::Harness, "models: [{ provider: script, script: r.yaml }]"),
        (Kind::Agent, "model: ''"),
        (Kind::Harness, "artifact_sources: [{ type: git, url: x }]"),
    ] {
        agree(kind, yaml, false);
    }
}

/// Everything below a schema, itself included, with its path.
fn walk<'s>(path: &str, schema: &'s Json, see: &mut impl FnMut(&str, &'s serde_json::Map<String, Json>)) {
    let Some(object) = schema.as_object() else { return };
    see(path, object);
    for (key, properties) in object.get("properties").and_then(Json::as_object).into_iter().flatten() {
        walk(&format!("{path}.{key}"), properties, see);
    }
    for key in ["items", "additionalProperties", "if", "then"] {
        walk(&format!("{path}.{key}"), object.get(key).unwrap_or(&Json::Null), see);
    }
    for key in ["anyOf", "allOf"] {
        for way in object.get(key).and_then(Json::as_array).into_iter().flatten() {
            walk(path, way, see);
        }
    }
}

/// An editor shows what a key is for, and knows every word that a schema is written in: those of draft 7, in which
/// yaml-language-server is at home.
#[test]
fn an_editor_can_use_them() {
    const WORDS: [&str; 22] = [
        "$schema",
        "title",
        "description",
        "type",
        "enum",
        "const",
        "default",
        "properties",
        "required",
        "additionalProperties",
        "propertyNames",
        "maxProperties",
        "items",
        "minItems",
        "anyOf",
        "allOf",
        "if",
        "then",
        "minimum",
        "maximum",
        "pattern",
        "minLength",
    ];
    for kind in Kind::ALL {
        let schema = of(kind);
        assert!(schema["title"].is_string() && schema["description"].is_string(), "{}", kind.name());
        let mut told = 0;
        walk("", &schema, &mut |path, object| {
            for word in object.keys() {
                assert!(WORDS.contains(&word.as_str()) || word == "maxLength", "{} {path}: {word}", kind.name());
            }
            // What narrows a key that is described elsewhere says nothing of it.
            if object.contains_key("additionalProperties") || object.get("type") == Some(&json!("object")) {
                for (key, property) in object.get("properties").and_then(Json::as_object).into_iter().flatten() {
                    let about = property["description"].as_str().unwrap_or_default();
                    assert!(about.ends_with('.') && about.len() > 10, "{} {path}.{key}: {about:?}", kind.name());
                    told += 1;
                }
            }
        });
        assert!(told >= 10, "{}: {told}", kind.name());
    }
}

/// What a schema shows as a default is what a file without the key comes to.
#[test]
fn defaults_are_those_of_loading() {
    let default = |kind: Kind, path: &str| {
        let schema = of(kind);
        schema.pointer(&format!("/properties/{path}/default")).cloned().unwrap_or_else(|| panic!("{path}"))
    };
    let tool = Tool::parse("f.md", "f", "---\n---\n").0.unwrap();
    assert_eq!(default(Kind::Tool, "async"), json!(tool.asynchronous.value));
    let hook = Hook::parse("f.md", "f", 0, "---\nevent: error\n---\n").0.unwrap();
    assert_eq!(default(Kind::Hook, "priority"), json!(hook.priority.value));
    let policy = ProjectPolicy::parse("harness.md", "---\nmodel: { name: m, retry: {} }\n---\n").0.unwrap();
    assert_eq!(default(Kind::Harness, "sandbox/properties/audit"), json!(policy.audit));
    assert_eq!(default(Kind::Harness, "meta/properties/enabled"), json!(policy.meta.enabled));
    assert_eq!(default(Kind::Harness, "sandbox/properties/hooks/properties/on_error"), json!("block"));
    let model = policy.models.main.unwrap();
    assert_eq!(model.retry, crate::model::Retry::default());
    assert_eq!(default(Kind::Harness, "model/properties/tools"), json!(model.tools.word()));
    let retry = |key: &str| default(Kind::Harness, &format!("model/properties/retry/properties/{key}"));
    assert_eq!(retry("max_retries"), json!(model.retry.max_retries));
    assert_eq!(retry("initial_backoff_ms"), json!(u64::try_from(model.retry.initial_backoff.as_millis()).unwrap()));
    assert_eq!(retry("max_backoff_ms"), json!(u64::try_from(model.retry.max_backoff.as_millis()).unwrap()));
    assert_eq!(retry("multiplier"), json!(model.retry.multiplier));
}

/// The keys of a schema are those that the decoder asks for: it warns of, or refuses, every other one.
#[test]
fn the_keys_are_the_decoder_s() {
    for kind in Kind::ALL {
        let schema = of(kind);
        let keys: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        for key in &keys {
            let found = loaded(kind, &format!("{key}:"));
            let unknown = format!("unknown key `{key}`");
            assert!(!found.iter().any(|d| d.message.starts_with(&unknown)), "{} {key}", kind.name());
        }
        let found = loaded(kind, "zzzzz: 1");
        let hint = found.iter().find(|d| d.message.starts_with("unknown key")).and_then(|d| d.hint.clone()).unwrap();
        let mut known: Vec<&str> = hint.strip_prefix("known here: ").unwrap().split(", ").collect();
        let mut keys: Vec<&str> = keys.into_iter().map(String::as_str).collect();
        known.sort_unstable();
        keys.sort_unstable();
        assert_eq!(keys, known, "{}", kind.name());
    }
}

/// Values of the wrong type at any place: loading and the schema agree on each.
#[test]
fn loading_and_schema_agree() {
    const KEYS: [&str; 20] = [
        "parameters",
        "script",
        "timeout_ms",
        "async",
        "capabilities",
        "event",
        "when",
        "priority",
        "tests",
        "tools",
        "hooks",
        "agents",
        "description",
        "model",
        "models",
        "sandbox",
        "network",
        "meta",
        "delegation",
        "tools_policy",
    ];
    const VALUES: [&str; 14] = [
        "5",
        "-1",
        "1.5",
        "text",
        "true",
        "[]",
        "{}",
        "[1]",
        "[a]",
        "{ a: 1 }",
        "{ a: {} }",
        "[{}]",
        "[{ name: a }]",
        "[{ event: error }]",
    ];
    let mut apart = Vec::new();
    for kind in Kind::ALL {
        for key in KEYS {
            let required = match kind {
                Kind::Hook if key != "event" => "event: error\n",
                Kind::Skill if key == "description" => "name: f\n",
                Kind::Skill => "name: f\ndescription: x\n",
                _ => "",
            };
            for value in VALUES {
                let yaml = format!("{required}{key}: {value}");
                let found = loaded(kind, &yaml);
                if fits(kind, &yaml) == found.has_errors() {
                    apart.push(format!("{}: {yaml}: {found:?}", kind.name()));
                }
            }
        }
    }
    assert_eq!(apart, Vec::<String>::new());
}

/// Collects the paths of all mappings whose keys a schema lists, with whether it takes others.
fn mappings(schema: &Json, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, bool)>) {
    if schema.get("properties").is_some() && !path.is_empty() {
        found.push((path.clone(), schema.get("additionalProperties") != Some(&json!(false))));
    }
    let mut inside = |name: &str, schema: &Json| {
        path.push(name.to_owned());
        mappings(schema, path, found);
        path.pop();
    };
    for (key, property) in schema.get("properties").and_then(Json::as_object).into_iter().flatten() {
        inside(key, property);
    }
    if let Some(items) = schema.get("items") {
        inside("[]", items);
    }
    if let Some(others) = schema.get("additionalProperties").filter(|others| others.is_object()) {
        inside("a_name", others);
    }
    for way in schema.get("anyOf").and_then(Json::as_array).into_iter().flatten() {
        mappings(way, path, found);
    }
}

/// At any depth, a schema takes an unknown key where loading ignores it, and does not where loading refuses it.
#[test]
fn unknown_keys_fit_where_loading_ignores_them() {
    let (mut refused, mut ignored, mut apart) = (0, 0, Vec::new());
    for kind in Kind::ALL {
        let mut found = Vec::new();
        mappings(&of(kind), &mut Vec::new(), &mut found);
        for (path, takes_others) in found {
            let value = path.iter().rev().fold(json!({"zzzzz": 1}), |inner, step| match step.as_str() {
                "[]" => json!([inner]),
                key => json!({key: inner}),
            });
            let loaded = loaded(kind, &value.to_string());
            let unknown =
                loaded.iter().find(|one| one.message.starts_with("unknown key") && one.message.contains("zzzzz"));
            // Some are not looked into before they have a name.
            let Some(unknown) = unknown else { continue };
            let is_refused = unknown.severity == Severity::Error;
            *(if is_refused { &mut refused } else { &mut ignored }) += 1;
            if is_refused == takes_others {
                apart.push(format!("{} {}", kind.name(), path.join(".")));
            }
        }
    }
    assert_eq!(apart, Vec::<String>::new());
    assert!(refused > 60 && ignored > 5, "{refused} refused, {ignored} ignored");
}
