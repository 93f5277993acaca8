//! `parameters:` of a tool: the short form of the page, in which each name has a type, and JSON Schema as the long one.
//!
//! A parameter may have any keyword of JSON Schema (2020-12) beside `type`, `description` and `required`. `parameters` may
//! also be one schema of an object: its `type` is then the text `object`, and its properties are the parameters. Whatever
//! is written is what a model is shown.

use serde_json::{Map, Value as Json, json};

use super::decode::{Decoder, Field};
use super::diagnostic::{Diagnostic, Position, Severity};
use super::json;
use super::keys::{self, Fields, Keys, Properties, Unknown, keys};
use super::located::Located;
use super::param_headers;
use super::shape::{self, Anything, Read, Schema, Shape};
use super::tool::{Parameter, ParameterType};
use super::value_schema::{self, ValueSchema};
use super::yaml::Value;
use harness_policy::text::quoted;

/// Keywords that a parameter may have beside `type`, `description` and `required`, with what they say.
const KEYWORDS: [(&str, &str); 56] = [
    ("default", "The value of an argument that is missing."),
    ("enum", "The allowed values."),
    ("const", "The only allowed value."),
    ("items", "The schema of each item of an array."),
    ("prefixItems", "The schemas of the first items of an array."),
    ("contains", "The schema that an item must match."),
    ("minContains", "Minimum number of items that match `contains`."),
    ("maxContains", "Maximum number of items that match `contains`."),
    ("minItems", "Minimum number of items."),
    ("maxItems", "Maximum number of items."),
    ("uniqueItems", "Whether items must be unique."),
    ("unevaluatedItems", "The schema of items that no other keyword covers."),
    ("properties", "The schemas of the keys of an object."),
    ("patternProperties", "The schemas of the keys that match a pattern."),
    ("additionalProperties", "The schema of all other keys; `false` allows none."),
    ("propertyNames", "The schema of the names of keys."),
    ("minProperties", "Minimum number of keys."),
    ("maxProperties", "Maximum number of keys."),
    ("dependentRequired", "Keys that are required if another key is present."),
    ("dependentSchemas", "The schema of the object if a key is present."),
    ("unevaluatedProperties", "The schema of keys that no other keyword covers."),
    ("minimum", "The minimum."),
    ("maximum", "The maximum."),
    ("exclusiveMinimum", "The exclusive lower bound."),
    ("exclusiveMaximum", "The exclusive upper bound."),
    ("multipleOf", "The number that a value must be a multiple of."),
    ("minLength", "Minimum number of characters of a string."),
    ("maxLength", "Maximum number of characters of a string."),
    ("pattern", "A regular expression that is found in the string; without look-around and back-references."),
    ("format", "The format of the string, such as `date` or `email`."),
    ("contentEncoding", "How the string is encoded; not checked."),
    ("contentMediaType", "The media type of the content of the string; not checked."),
    ("contentSchema", "The schema of the content of the string; not checked."),
    ("allOf", "Schemas that all must match."),
    ("anyOf", "Schemas of which at least one must match."),
    ("oneOf", "Schemas of which exactly one must match."),
    ("not", "A schema that must not match."),
    ("if", "A schema that decides between `then` and `else`."),
    ("then", "The schema that must match if `if` does."),
    ("else", "The schema that must match if `if` does not."),
    ("$ref", "A schema elsewhere in `parameters`, such as `#/$defs/name`; `#` is the whole."),
    ("$dynamicRef", "A schema with this `$dynamicAnchor`: the outermost one in the current check."),
    ("$anchor", "A name to refer to this schema by: `#name`."),
    ("$dynamicAnchor", "A name for `$dynamicRef`."),
    ("$id", "The URI that references within this schema are relative to. Nothing is fetched from it."),
    ("$schema", "The dialect, `https://json-schema.org/draft/2020-12/schema`."),
    ("$vocabulary", "Kept, and not checked."),
    ("$defs", "Schemas to refer to."),
    ("$comment", "A comment for readers."),
    ("title", "A name for people."),
    ("examples", "Examples of values."),
    ("deprecated", "Whether it is deprecated."),
    ("readOnly", "Kept, and not checked."),
    ("writeOnly", "Kept, and not checked."),
    ("nullable", "Not of JSON Schema: kept, and not checked."),
    (param_headers::KEYWORD, "The header `Mcp-Param-` and this, in which MCP clients send the argument over HTTP too."),
];

/// Keywords that say what a value is without a `type`.
const TYPELESS: [&str; 9] = ["enum", "const", "$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "not", "if"];
/// Keywords that nothing is checked by.
const ONLY_SHOWN: [&str; 7] = ["title", "examples", "deprecated", "readOnly", "writeOnly", "nullable", "$comment"];
/// Keywords of the arguments as a whole that are texts, which no parameter is.
const ABOUT_ALL: [&str; 5] = ["$id", "$schema", "$anchor", "$dynamicAnchor", "$comment"];

/// The keywords of a mapping.
pub(super) struct Keywords<'n>(Vec<(&'static str, Field<'n>)>);

impl<'n> Keys<'n> for Keywords<'n> {
    const UNKNOWN: Unknown = Unknown::Warn;

    fn take(fields: &mut Fields<'n>) -> Self {
        Self(KEYWORDS.iter().filter_map(|(word, _)| Some((*word, fields.take(word)?))).collect())
    }

    fn describe(properties: &mut Properties) {
        for (word, about) in KEYWORDS {
            properties.key::<Anything>(word, keys::Presence::Given, about, None);
        }
    }
}

impl Keywords<'_> {
    fn json(&self, decoder: &mut Decoder) -> Map<String, Json> {
        let read = self.0.iter().filter_map(|(word, field)| Some(((*word).to_owned(), json::value(decoder, field)?)));
        read.collect()
    }
}

keys! {
    /// The keys of one parameter beside the keywords of JSON Schema.
    ParameterKeys: Unknown::Warn;
    /// The JSON type of the argument.
    given kind("type"): Kind;
    /// For the model: units, formats, bounds.
    optional description: String;
    /// Whether a call must have it. For an object also the list of required keys.
    optional required: Required;
}

/// What a `type` may be.
struct Kind;

impl Shape for Kind {
    fn schema() -> Schema {
        let words = || ParameterType::ALL.map(ParameterType::word).into_iter().chain(["null"]).collect::<Vec<_>>();
        shape::schema(json!({"anyOf": [{"enum": words()}, {"type": "array", "items": {"enum": words()}}]}))
    }
}

/// What `required` may be.
enum Required {
    Flag(bool),
    Keys(Vec<String>),
}

impl Shape for Required {
    fn schema() -> Schema {
        shape::schema(json!({"anyOf": [bool::schema(), Vec::<String>::schema()], "default": false}))
    }
}

impl Read for Required {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        match &field.node.value {
            Value::Seq(_) => Vec::read(decoder, field).map(Self::Keys),
            _ => bool::read(decoder, field).map(Self::Flag),
        }
    }
}

impl Shape for Parameter {
    fn schema() -> Schema {
        let mut schema = keys::schema::<(ParameterKeys<'_>, Keywords<'_>)>();
        let ways = ["type"].iter().chain(&TYPELESS).map(|word| json!({"required": [word]}));
        schema.insert("anyOf".to_owned(), ways.collect::<Vec<Json>>().into());
        schema
    }
}

/// What a tool takes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters {
    /// In the order that the model sees.
    pub list: Vec<Parameter>,
    /// Keywords of the object that the arguments are, such as `additionalProperties`.
    pub keywords: Map<String, Json>,
    /// What checks more than names and types, where anything does.
    pub(super) schema: Option<ValueSchema>,
}

impl Shape for Parameters {
    fn schema() -> Schema {
        shape::schema(json!({
            "type": "object",
            "properties": {
                "type": {"description": "The text `object` if this is one schema; else a parameter."},
                "properties": {"description": "The parameters of such a schema; else a parameter."},
                "required": {"description": "The parameters that such a schema requires; else a parameter."},
                "additionalProperties": {"description": "Whether other arguments are accepted; else a parameter."},
                "$defs": {"description": "Schemas to refer to; else a parameter."},
                "$id": {"description": "The URI of the whole schema; else a parameter."},
                "$schema": {"description": "The dialect; else a parameter."},
                "$anchor": {"description": "A name of the whole schema; else a parameter."},
                "$dynamicAnchor": {"description": "A name for `$dynamicRef`; else a parameter."},
                "$comment": {"description": "A comment for readers; else a parameter."},
            },
            "additionalProperties": Parameter::schema(),
        }))
    }
}

impl Parameters {
    /// Parameters of names and types alone.
    pub fn of(list: Vec<Parameter>) -> Self {
        Self { list, ..Self::default() }
    }

    /// As a model sees them: a JSON Schema of an object, in the order of the file. Every array has `items`.
    pub fn json_schema(&self) -> Json {
        let mut schema = self.written();
        value_schema::with_items(&mut schema);
        schema
    }

    /// As they are checked: with nothing but what is written.
    fn written(&self) -> Json {
        let properties: Map<String, Json> =
            self.list.iter().map(|parameter| (parameter.name.clone(), parameter.json_schema())).collect();
        let required: Vec<&str> = self.list.iter().filter(|p| *p.required).map(|p| p.name.as_str()).collect();
        let mut schema = json!({ "type": "object", "properties": properties, "required": required });
        if let Json::Object(object) = &mut schema {
            object.extend(self.keywords.clone());
        }
        schema
    }

    /// Whether they say something of arguments of other names.
    pub(super) fn is_about_others(&self) -> bool {
        ["additionalProperties", "patternProperties", "unevaluatedProperties"]
            .iter()
            .any(|word| self.keywords.contains_key(*word))
    }

    /// Compiles what is more than names and types. An error says what is wrong with it.
    pub fn compiled(mut self) -> Result<Self, String> {
        let only_shown = |keywords: &Map<String, Json>| keywords.keys().all(|word| ONLY_SHOWN.contains(&word.as_str()));
        let plain = only_shown(&self.keywords)
            && self.list.iter().all(|one| only_shown(&one.keywords) && *one.kind != ParameterType::Integer);
        if plain {
            return Ok(self);
        }
        let schema = ValueSchema::compile(self.written()).map_err(|why| in_parameters(&why))?;
        param_headers::check(schema.json())?;
        // A default has to be what an author could have been given.
        let mut defaults = Map::new();
        self.fill(&mut defaults);
        for (name, value) in defaults {
            let properties: Map<String, Json> =
                self.list.iter().map(|one| (one.name.clone(), one.json_schema())).collect();
            let mut alone = Map::from_iter([("properties".to_owned(), properties.into())]);
            let referred = ["$defs", "$id", "$anchor", "$dynamicAnchor"];
            let about = referred.into_iter().filter_map(|word| Some((word, self.keywords.get(word)?.clone())));
            alone.extend(about.map(|(word, value)| (word.to_owned(), value)));
            let alone = ValueSchema::compile(Json::Object(alone)).map_err(|why| in_parameters(&why))?;
            alone.check(&json!({ name.as_str(): value })).map_err(|misfit| format!("the default of {misfit}"))?;
        }
        self.schema = Some(schema);
        Ok(self)
    }

    /// Gives arguments that are not there their default.
    pub fn fill(&self, arguments: &mut Map<String, Json>) {
        for parameter in &self.list {
            if let Some(default) =
                parameter.keywords.get("default").filter(|_| !arguments.contains_key(&parameter.name))
            {
                arguments.insert(parameter.name.clone(), default.clone());
            }
        }
    }

    /// Parameters as a file has them.
    pub(super) fn decode(decoder: &mut Decoder, tool: &str, field: &Field<'_>) -> Option<Self> {
        let entries = decoder.entries(field)?;
        let whole = entries.iter().any(|(key, field)| key.text == "type" && matches!(field.node.value, Value::Str(_)));
        let mut parameters = Self::default();
        let mut required = None;
        for (key, field) in entries {
            match (key.text.as_str(), &field.node.value) {
                ("type", Value::Str(word)) => {
                    if word != "object" {
                        let hint =
                            "the arguments of a tool are an object: write `type: object`, or the parameters by name";
                        decoder.error_with(
                            &field,
                            format!("tool {tool:?}: {} must be `object`, found {}", quoted(&field.path), quoted(word)),
                            Some(hint.to_owned()),
                        );
                    }
                }
                ("properties", Value::Map(_)) if whole => {
                    let named = decoder.entries(&field)?;
                    let read = named.iter().filter_map(|(key, field)| parameter(decoder, tool, &key.text, field));
                    parameters.list.extend(read.collect::<Vec<_>>());
                }
                ("required", _) if whole => required = Vec::<Located<String>>::read(decoder, &field),
                ("additionalProperties", Value::Bool(_)) | ("$defs", Value::Map(_)) => {
                    parameters.keywords.insert(key.text.clone(), json::value(decoder, &field)?);
                }
                (word, Value::Str(_)) if ABOUT_ALL.contains(&word) => {
                    parameters.keywords.insert(key.text.clone(), json::value(decoder, &field)?);
                }
                (word, _) if whole => {
                    if word != "description" && !KEYWORDS.iter().any(|(known, _)| *known == word) {
                        decoder.warn(&field, format!("unknown key {}, it is ignored", quoted(&field.path)), "");
                    }
                    parameters.keywords.insert(key.text.clone(), json::value(decoder, &field)?);
                }
                _ => parameters.list.extend(parameter(decoder, tool, &key.text, &field)),
            }
        }
        for name in required.unwrap_or_default() {
            match parameters.list.iter_mut().find(|one| one.name == name.value) {
                Some(parameter) => parameter.required = Located::new(true, name.position),
                None => {
                    let message =
                        format!("tool {tool:?}: `required` names {}, which is not a property", quoted(&name.value));
                    decoder.diagnostics.push(Diagnostic::error(message).at(name.position));
                }
            }
        }
        match parameters.compiled() {
            Ok(parameters) => Some(parameters),
            Err(why) => {
                decoder.error(field, format!("tool {tool:?} parameters: {why}"));
                None
            }
        }
    }

    /// The parts of a whole schema: what is not understood of it stays as it is, and nothing is compiled.
    pub(super) fn written_as(schema: &Json, position: &Position) -> Self {
        let mut parameters = Self::default();
        let names = schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
        let required: Vec<&str> = names.collect();
        for (word, value) in schema.as_object().into_iter().flatten() {
            match (word.as_str(), value) {
                ("properties", Json::Object(properties)) => {
                    let read = |(name, schema): (&String, &Json)| {
                        Parameter::written_as(name, schema, required.contains(&name.as_str()), position)
                    };
                    parameters.list = properties.iter().map(read).collect();
                }
                ("type", _) => {}
                (word, value) => drop(parameters.keywords.insert(word.to_owned(), value.clone())),
            }
        }
        parameters
    }

    /// Parameters as a script gives them, in the same forms. An error is one line.
    pub fn from_json(given: &Json) -> Result<Self, String> {
        if !given.is_object() {
            return Err("the parameters must be a dict".to_owned());
        }
        // JSON is YAML: one reader for both.
        let mut decoder = Decoder::new("parameters", String::new());
        let (root, errors) = super::yaml::parse(&given.to_string(), 1);
        decoder.yaml_errors(errors);
        let read = root
            .as_ref()
            .and_then(|node| Self::decode(&mut decoder, "", &Field { path: "parameters".to_owned(), key: None, node }));
        let diagnostics = decoder.into_diagnostics();
        let wrong = diagnostics.iter().find(|one| one.severity == Severity::Error).map(|one| one.message.clone());
        match (read, wrong) {
            (Some(read), None) => Ok(read),
            (_, wrong) => {
                let wrong = wrong.unwrap_or_else(|| "the parameters cannot be read".to_owned());
                // Neither has it a file nor its tool a name.
                let bare = ["tool \"\" parameters: ", "tool \"\": ", "tool \"\" ", ": yaml: line 1: "];
                Err(bare.iter().find_map(|start| wrong.strip_prefix(start)).unwrap_or(&wrong).to_owned())
            }
        }
    }
}

impl Parameter {
    /// That of a property of a whole schema.
    fn written_as(name: &str, schema: &Json, is_required: bool, position: &Position) -> Self {
        let mut keywords = match schema {
            Json::Object(keywords) => keywords.clone(),
            Json::Bool(false) => Map::from_iter([("not".to_owned(), json!({}))]),
            _ => Map::new(),
        };
        let kind = keywords.get("type").and_then(Json::as_str).and_then(ParameterType::parse);
        if kind.is_some() {
            keywords.shift_remove("type");
        }
        let description = keywords.get("description").and_then(Json::as_str).map(str::to_owned);
        if description.is_some() {
            keywords.shift_remove("description");
        }
        Self {
            name: name.to_owned(),
            kind: Located::new(kind.unwrap_or(ParameterType::Any), position.clone()),
            description: description.map(|text| Located::new(text, position.clone())),
            required: Located::new(is_required, position.clone()),
            keywords,
            position: position.clone(),
        }
    }

    /// As a model sees it.
    fn json_schema(&self) -> Json {
        let mut property = Map::new();
        if *self.kind != ParameterType::Any {
            property.insert("type".to_owned(), self.kind.word().into());
        }
        if let Some(description) = &self.description {
            property.insert("description".to_owned(), description.value.as_str().into());
        }
        property.extend(self.keywords.clone());
        property.into()
    }
}

/// A schema of the parameters speaks of `properties.x`, an author of `x`.
fn in_parameters(why: &str) -> String {
    why.replace("`properties.", "`")
}

fn parameter(decoder: &mut Decoder, tool: &str, name: &str, field: &Field<'_>) -> Option<Parameter> {
    if name.is_empty() || name.chars().any(char::is_control) {
        let what = "the name of a parameter must be text without control characters";
        decoder.error(field, format!("tool {tool:?}: {what}, found {}", quoted(name)));
    }
    let (keys, words): (ParameterKeys<'_>, Keywords<'_>) = decoder.keys(field)?;
    let mut keywords = words.json(decoder);
    let kind = kind(decoder, tool, name, field, keys.kind.field(), &mut keywords);
    let description = keys.description.located(decoder);
    let position = decoder.position(field.key.map_or(field.node.span, |key| key.span));
    let required = match keys.required.located(decoder) {
        Some(Located { value: Required::Flag(required), position }) => Located::new(required, position),
        Some(Located { value: Required::Keys(names), .. }) => {
            keywords.insert("required".to_owned(), json!(names));
            Located::new(false, position.clone())
        }
        None => Located::new(false, position.clone()),
    };
    Some(Parameter { name: name.to_owned(), kind: kind?, description, required, keywords, position })
}

fn kind(
    decoder: &mut Decoder,
    tool: &str,
    name: &str,
    parameter: &Field<'_>,
    field: Option<&Field<'_>>,
    keywords: &mut Map<String, Json>,
) -> Option<Located<ParameterType>> {
    let words = ParameterType::ALL.map(ParameterType::word).join(", ");
    let Some(field) = field else {
        if TYPELESS.iter().any(|word| keywords.contains_key(*word)) {
            return Some(Located::new(ParameterType::Any, decoder.position(parameter.span())));
        }
        let message = format!("tool {tool:?} parameter {} has no type", quoted(name));
        decoder.error_with(parameter, message, Some(format!("add `type:` with one of {words}")));
        return None;
    };
    let position = decoder.position(field.span());
    if let Value::Seq(_) = field.node.value {
        // Which words there are is for the schema to say.
        let list: Vec<String> = Vec::read(decoder, field)?;
        keywords.insert("type".to_owned(), json!(list));
        return Some(Located::new(ParameterType::Any, position));
    }
    let word = decoder.string(field)?;
    if word == "null" {
        keywords.insert("type".to_owned(), json!(word));
        return Some(Located::new(ParameterType::Any, position));
    }
    let kind = ParameterType::parse(word);
    if kind.is_none() {
        let message =
            format!("tool {tool:?} parameter {} has the type {}, must be one of {words}", quoted(name), quoted(word));
        let hint = ParameterType::suggest(word).map(|word| format!("did you mean `{word}`?"));
        decoder.error_with(field, message, hint);
    }
    Some(Located::new(kind?, position))
}

/// What a tool returns: `returns:`, a JSON Schema.
pub(super) struct Returns;

impl Shape for Returns {
    fn schema() -> Schema {
        shape::schema(json!({"type": ["object", "boolean"]}))
    }
}

/// Reads `returns`.
pub(super) fn returns(decoder: &mut Decoder, tool: &str, field: &Field<'_>) -> Option<ValueSchema> {
    if !matches!(field.node.value, Value::Map(_) | Value::Bool(_)) {
        decoder.wrong_type(field, "a JSON Schema", Some("such as `returns: { type: string }`"));
        return None;
    }
    match ValueSchema::compile(json::value(decoder, field)?) {
        Ok(schema) => Some(schema),
        Err(why) => {
            decoder.error(field, format!("tool {tool:?} returns: {why}"));
            None
        }
    }
}
