//! Definitions of tools as a server gives them: checked, in one form, and as tools of the project.
//!
//! A definition is a text that a model reads and a contract that calls are checked against, and both are another
//! program's. It is kept whole, with all its keys; what a person would not see in it is refused.

use std::collections::HashSet;

use serde_json::{Map, Value as Json};

use super::alike;
use super::diagnostic::Position;
use super::located::Located;
use super::param_headers;
pub use super::param_headers::ParamHeader;
use super::parameters::Parameters;
use super::tool::Tool;
use super::value_schema::ValueSchema;
use harness_policy::text::{is_hidden, quoted};
use sha2::{Digest as _, Sha256};

/// Objects and lists within each other in a definition.
pub const MAX_DEPTH: usize = 32;
/// Values in a definition, keys counted.
pub const MAX_NODES: usize = 10_000;
/// Bytes of a definition in its one form.
pub const MAX_BYTES: usize = 256 << 10;
/// Tools of a server.
pub const MAX_TOOLS: usize = 1_000;
/// Characters of a tool's name at its server.
const MAX_NAME: usize = 128;
/// Characters of its name in the project.
const MAX_FITTED: usize = 40;
/// Hexadecimal digits of the SHA-256 digest of its whole name, which one ends with that was cut.
const DIGITS: usize = 8;

/// A definition that nothing is wrong with.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    name: String,
    json: Json,
}

/// The server that a tool is of, and what the tool is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The name of the server in the policy.
    pub server: String,
    /// The name of the tool at the server.
    pub tool: String,
    /// How the server is spoken to.
    pub transport: Transport,
    /// Whether the server says that a call may destroy something: a person confirms each.
    pub is_destructive: bool,
}

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Over the standard input and output of a command.
    Stdio,
    /// Over Streamable HTTP.
    Http,
}

impl Transport {
    /// The word in payloads of hooks and in `harness.lock`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
        }
    }
}

impl Served {
    /// The name of its source, as messages and frames have it.
    pub fn source(server: &str) -> String {
        format!("{SOURCE}{server}")
    }
}

/// What the names of sources begin with that are servers.
const SOURCE: &str = "mcp/";

/// The server that a source is, where it is one.
pub fn server_of(source: &str) -> Option<&str> {
    source.strip_prefix(SOURCE)
}

impl Definition {
    /// Reads one as a server gives it.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in one line.
    pub fn read(json: Json) -> Result<Self, String> {
        let Some(object) = json.as_object() else { return Err("a definition is no object".to_owned()) };
        let Some(Json::String(name)) = object.get("name") else { return Err("a definition has no name".to_owned()) };
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(fits) {
            let shown = super::escape::line(name).into_owned();
            let what = format!("the name {} is not 1 to {MAX_NAME} of a-z, A-Z, 0-9, `_`, `-` and `.`", quoted(&shown));
            return Err(what);
        }
        let name = name.clone();
        let wrong = |why: String| format!("the tool {}: {why}", quoted(&name));
        within(&json, 0, &mut 0).map_err(wrong)?;
        if canonical(&json).len() > MAX_BYTES {
            return Err(wrong(format!("its definition is over {MAX_BYTES} bytes")));
        }
        let is_object = |schema: &Json| schema.get("type").and_then(Json::as_str) == Some("object");
        if !object.get("inputSchema").is_some_and(is_object) {
            return Err(wrong("its `inputSchema` is not the schema of an object".to_owned()));
        }
        if object.get("description").is_some_and(|text| !text.is_string()) {
            return Err(wrong("its `description` is not text".to_owned()));
        }
        let destructive = annotation(object, "destructiveHint");
        if destructive.is_some_and(|hint| !hint.is_boolean()) {
            return Err(wrong("its `destructiveHint` is neither true nor false".to_owned()));
        }
        Ok(Self { name, json })
    }

    /// The name at the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All of it.
    pub fn json(&self) -> &Json {
        &self.json
    }

    /// The arguments that are sent as headers too, over HTTP.
    ///
    /// # Errors
    ///
    /// Why a client leaves the tool out: a header is not as the protocol wants it.
    pub fn mirrored(&self) -> Result<Vec<ParamHeader>, String> {
        let schema = self.json.get("inputSchema").unwrap_or(&Json::Null);
        param_headers::mirrored(schema).map_err(|why| format!("the tool {}: {why}", quoted(&self.name)))
    }

    /// The text by which two definitions are one: keys in order, nothing between tokens.
    pub fn canonical(&self) -> String {
        canonical(&self.json)
    }

    /// The same with a line for each value, to be read and compared by people.
    pub fn lines(&self) -> String {
        format!("{:#}", sorted(&self.json))
    }

    /// The tool of the project that it is.
    ///
    /// # Errors
    ///
    /// Why calls of it could not be checked.
    pub fn tool(&self, server: &str, transport: Transport, position: &Position) -> Result<Tool, String> {
        let wrong = |what: &str, why: String| format!("the tool {}: {what}: {why}", quoted(&self.name));
        let schema = self.json.get("inputSchema").cloned().unwrap_or_default();
        let parameters = Parameters::of_schema(&schema, position).map_err(|why| wrong("`inputSchema`", why))?;
        let returns =
            self.json.get("outputSchema").filter(|schema| !schema.is_null()).map(|schema| {
                ValueSchema::compile(without_dialect(schema)?).map_err(|why| wrong("`outputSchema`", why))
            });
        let text = |key: &str| self.json.get(key).and_then(Json::as_str).map(str::trim).filter(|text| !text.is_empty());
        let name = fitted(server, &self.name);
        let description = text("description").or_else(|| text("title")).unwrap_or(&self.name).to_owned();
        let hint = self.json.as_object().and_then(|object| annotation(object, "destructiveHint"));
        let is_destructive = hint == Some(&Json::Bool(true));
        let plain = Tool::built_in(&name, &description, &[]);
        Ok(Tool {
            parameters,
            returns: returns.transpose()?,
            confirm: Located::new(is_destructive, position.clone()),
            asynchronous: Located::new(false, position.clone()),
            source: position.clone(),
            source_name: Served::source(server),
            served: Some(Served { server: server.to_owned(), tool: self.name.clone(), transport, is_destructive }),
            ..plain
        })
    }
}

fn annotation<'d>(definition: &'d Map<String, Json>, key: &str) -> Option<&'d Json> {
    definition.get("annotations")?.as_object()?.get(key).filter(|value| !value.is_null())
}

/// What holds between the definitions of one server: each name is there once, and looks like no other.
///
/// # Errors
///
/// The two that cannot be distinguished, or that there are too many.
pub fn distinct(server: &str, definitions: &[Definition]) -> Result<(), String> {
    if definitions.len() > MAX_TOOLS {
        return Err(format!("it has more than {MAX_TOOLS} tools"));
    }
    let (mut names, mut fitted_names) = (HashSet::new(), std::collections::HashMap::new());
    for definition in definitions {
        if !names.insert(definition.name()) {
            return Err(format!("it has two tools of the name {}", quoted(definition.name())));
        }
        let looks = alike::looks(&fitted(server, definition.name()));
        if let Some(other) = fitted_names.insert(looks, definition.name()) {
            let (one, other) = (quoted(definition.name()), quoted(other));
            return Err(format!("the names {other} and {one} of its tools cannot be distinguished"));
        }
    }
    Ok(())
}

/// The name of a tool in the project: that of the server, `_` and its own in lower case, with `_` for what no name has.
/// One that is too long is cut, and ends with a part of its digest.
pub fn fitted(server: &str, tool: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let mut name: String = server.chars().chain(['_']).chain(tool.chars().map(fit)).collect();
    if name.len() > MAX_FITTED {
        name.truncate(MAX_FITTED - 1 - DIGITS);
        name.push('_');
        name.extend(Sha256::digest(tool).iter().take(DIGITS / 2).map(|byte| format!("{byte:02x}")));
    }
    name
}

/// The one form of a JSON value: keys in the order of their bytes at any depth, nothing between tokens.
pub fn canonical(value: &Json) -> String {
    sorted(value).to_string()
}

fn sorted(value: &Json) -> Json {
    match value {
        Json::Object(object) => {
            let mut keys: Vec<&String> = object.keys().collect();
            keys.sort_unstable();
            let entries = keys.into_iter().filter_map(|key| Some((key.clone(), sorted(object.get(key)?))));
            Json::Object(entries.collect())
        }
        Json::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// Whether a value is within the bounds of a definition, and shows all that it says.
fn within(value: &Json, depth: usize, nodes: &mut usize) -> Result<(), String> {
    *nodes = nodes.saturating_add(1);
    if *nodes > MAX_NODES {
        return Err(format!("its definition has more than {MAX_NODES} values"));
    }
    match value {
        Json::String(text) => shown(text),
        Json::Array(_) | Json::Object(_) if depth >= MAX_DEPTH => {
            Err(format!("its definition is deeper than {MAX_DEPTH} levels"))
        }
        Json::Array(items) => items.iter().try_for_each(|item| within(item, depth.saturating_add(1), nodes)),
        Json::Object(object) => object.iter().try_for_each(|(key, value)| {
            shown(key)?;
            within(value, depth.saturating_add(1), nodes)
        }),
        Json::Null | Json::Bool(_) | Json::Number(_) => Ok(()),
    }
}

/// Refuses a text with characters that a person does not see, or that change how others are shown.
///
/// # Errors
///
/// The first of them.
pub fn shown(text: &str) -> Result<(), String> {
    let plain = |c: char| matches!(c, '\n' | '\t' | '\r');
    match text.chars().find(|c| is_hidden(*c) && !plain(*c)) {
        Some(c) => Err(format!("its definition has the hidden character U+{:04X}", u32::from(c))),
        None => Ok(()),
    }
}

/// A schema that is checked as one of 2020-12. What draft 7 says otherwise is not in schemas of arguments.
fn without_dialect(schema: &Json) -> Result<Json, String> {
    let mut schema = schema.clone();
    if let Json::Object(object) = &mut schema
        && let Some(dialect) = object.get("$schema")
    {
        let known = ["draft-07/schema", "draft/2020-12/schema", "draft/2019-09/schema"];
        let text = dialect.as_str().unwrap_or_default().trim_end_matches('#');
        if !known.iter().any(|known| text.ends_with(known)) {
            return Err(format!("the dialect {} is not known", quoted(&dialect.to_string())));
        }
        object.shift_remove("$schema");
    }
    Ok(schema)
}

impl Parameters {
    /// Parameters that a whole schema says, as a server gives it.
    pub(super) fn of_schema(schema: &Json, position: &Position) -> Result<Self, String> {
        let schema = without_dialect(schema)?;
        let mut parameters = Self::written_as(&schema, position);
        parameters.schema = Some(ValueSchema::compile(schema)?);
        Ok(parameters)
    }
}

#[cfg(test)]
mod tests;
