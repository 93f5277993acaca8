//! How a script calls a tool, as a line of Python that models know how to read.

use serde_json::{Map, Value as Json};

use super::Callable;
use harness_artifact::definition::server_of;
use harness_artifact::tool::{Parameter, Tool};
use harness_artifact::{escape, third_party};

/// Bytes of the first sentence of a description, in a listing.
const MAX_FIRST: usize = 200;
/// Bytes of a value that a parameter is listed with.
const MAX_VALUE: usize = 80;

/// A tool in a listing: how it is called, and what it does. What a third party says of its own is marked as a quote.
pub(super) fn line(callable: &Callable, tool: &Tool) -> String {
    let what = first_sentence(&tool.description, &tool.name);
    let shown = match author(tool) {
        _ if what.is_empty() => String::new(),
        None => format!("  # {what}"),
        Some(author) => format!("  # {}", third_party::said(&author, what)),
    };
    format!("{}{shown}", signature(callable, tool))
}

/// All that there is to say of a tool.
pub(super) fn described(callable: &Callable, tool: &Tool) -> String {
    let (description, schema) = tool.offered();
    let mut text = format!("{}\n\n{}\n", signature(callable, tool), description.trim());
    let properties = schema.get("properties").and_then(Json::as_object);
    if let Some(properties) = properties.filter(|properties| !properties.is_empty()) {
        text.push_str("\nParameters, as JSON Schema:\n");
        for (name, schema) in properties {
            let required = is_required(tool, name);
            let required = if required { " (required)" } else { "" };
            text.push_str(&format!("- {}{required}: {schema}\n", Json::from(name.as_str())));
        }
    }
    if let Some(returns) = &tool.returns {
        text.push_str(&format!("\nReturns, as JSON Schema: {}\n", returns.json()));
    }
    text
}

fn is_required(tool: &Tool, name: &str) -> bool {
    tool.parameters.list.iter().any(|parameter| parameter.name == name && parameter.required.value)
}

/// The third party that a tool is of: a plugin or a server.
pub(super) fn author(tool: &Tool) -> Option<String> {
    let author = third_party::author(&tool.source_name).map(str::to_owned);
    author.or_else(|| server_of(&tool.source_name).map(|_| tool.source_name.clone()))
}

/// The call: `tracker_list(state: str, limit: int = 20) -> list`.
fn signature(callable: &Callable, tool: &Tool) -> String {
    let written = written(callable, tool);
    if author(tool).is_some() { escape::line(&written).to_string() } else { written }
}

fn written(callable: &Callable, tool: &Tool) -> String {
    let returns = tool.returns.as_ref().map_or(Json::Null, |returns| returns.json().clone());
    let returns = returns.as_object().map(kind).filter(|kind| kind != "any");
    let returns = returns.map_or_else(String::new, |returns| format!(" -> {returns}"));
    let required = tool.parameters.list.iter().filter(|parameter| parameter.required.value);
    let optional = tool.parameters.list.iter().filter(|parameter| !parameter.required.value);
    let Some(function) = callable.function_of(tool) else {
        // Its name is none of the language.
        let given: Vec<String> = required.chain(optional).map(pair).collect();
        return format!("meta.call({}, {{{}}}){returns}", Json::from(tool.name.as_str()), given.join(", "));
    };
    let given: Vec<String> = required.chain(optional).map(argument).collect();
    format!("{function}({}){returns}", given.join(", "))
}

fn argument(parameter: &Parameter) -> String {
    let kind = kind_of(parameter);
    if !is_name(&parameter.name) {
        return format!("**{{{}: {kind}}}", Json::from(parameter.name.as_str()));
    }
    if parameter.required.value {
        return format!("{}: {kind}", parameter.name);
    }
    let default = parameter.keywords.get("default").map(literal).filter(|default| default.len() <= MAX_VALUE);
    format!("{}: {kind} = {}", parameter.name, default.as_deref().unwrap_or("..."))
}

fn pair(parameter: &Parameter) -> String {
    format!("{}: {}", Json::from(parameter.name.as_str()), kind_of(parameter))
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn kind_of(parameter: &Parameter) -> String {
    let mut schema = parameter.keywords.clone();
    schema.entry("type").or_insert_with(|| parameter.kind.value.word().into());
    kind(&schema)
}

/// A type of Python for a schema.
fn kind(schema: &Map<String, Json>) -> String {
    if let Some(Json::Array(values)) = schema.get("enum") {
        let all: Vec<String> = values.iter().map(literal).collect();
        let all = all.join(" | ");
        if !all.is_empty() && all.len() <= MAX_VALUE {
            return all;
        }
    }
    let word = match schema.get("type") {
        Some(Json::String(word)) => word.as_str(),
        Some(Json::Array(words)) => {
            let all: Vec<&str> = words.iter().filter_map(Json::as_str).map(python).collect();
            return all.join(" | ");
        }
        _ => "any",
    };
    match (word, schema.get("items").and_then(Json::as_object)) {
        ("array", Some(items)) if !items.is_empty() => match kind(items) {
            inner if inner == "any" => "list".to_owned(),
            inner => format!("list[{inner}]"),
        },
        (word, _) => python(word).to_owned(),
    }
}

fn python(word: &str) -> &str {
    match word {
        "string" => "str",
        "integer" => "int",
        "number" => "float",
        "boolean" => "bool",
        "array" => "list",
        "object" => "dict",
        "null" => "None",
        _ => "any",
    }
}

/// A value as a script writes it.
fn literal(value: &Json) -> String {
    match value {
        Json::Null => "None".to_owned(),
        Json::Bool(true) => "True".to_owned(),
        Json::Bool(false) => "False".to_owned(),
        Json::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Json::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| format!("{}: {}", Json::from(key.as_str()), literal(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// The first sentence of a description, without a heading that repeats the name.
fn first_sentence<'a>(description: &'a str, name: &str) -> &'a str {
    let lines = description.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_name = |line: &&str| line.trim_start_matches('#').trim() == name;
    let Some(line) = lines.clone().find(|line| !is_name(line)) else { return "" };
    let line = line.trim_start_matches('#').trim();
    let end = line.find(". ").map_or(line.len(), |end| end.saturating_add(1));
    line.get(..line.floor_char_boundary(end.min(MAX_FIRST))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_and_values_are_written_as_scripts_have_them() {
        for (schema, want) in [
            (json!({"type": "string"}), "str"),
            (json!({"type": "integer"}), "int"),
            (json!({"type": ["string", "null"]}), "str | None"),
            (json!({"type": "array", "items": {"type": "object"}}), "list[dict]"),
            (json!({"type": "array", "items": {}}), "list"),
            (json!({"enum": ["open", "closed", null]}), "\"open\" | \"closed\" | None"),
            (json!({"type": "string", "enum": vec!["long"; 40]}), "str"),
            (json!({"anyOf": []}), "any"),
        ] {
            assert_eq!(kind(schema.as_object().unwrap()), want);
        }
        assert_eq!(literal(&json!({"a": [true, null, "x", 1.5]})), "{\"a\": [True, None, \"x\", 1.5]}");
    }

    #[test]
    fn the_first_sentence_says_what_it_does() {
        assert_eq!(first_sentence("# list\n\nLists issues. Slowly.", "list"), "Lists issues.");
        assert_eq!(first_sentence("Lists v1.2 issues", "list"), "Lists v1.2 issues");
        assert_eq!(first_sentence("# list", "list"), "");
        assert_eq!(first_sentence(&"\u{fc}".repeat(300), "x").len(), MAX_FIRST);
    }
}
