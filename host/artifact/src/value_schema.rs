//! A JSON Schema (2020-12) that arguments and results are checked against, with bounded work.
//!
//! The crate `jsonschema` checks. It is given nothing that can take long: what a schema costs is weighed before it
//! is compiled, patterns run on an engine in linear time, references stay in the schema, and how much there is to check
//! is counted before it is checked. A message names place, what is wanted and the type found, never the value: messages
//! are recorded, values are not.

mod graph;
mod misfit;
mod multiple;
mod order;
mod weight;

use std::fmt;
use std::sync::Arc;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value as Json;

pub use misfit::Misfit;

/// Bytes of a compiled pattern, and of what its engine keeps while it searches.
const MAX_PATTERN: usize = 256 << 10;

/// Schemas within schemas that an ordinary stack has room for.
const ORDINARY_DEPTH: usize = 64;
/// Bytes of a stack for more: what is not used of it is never touched.
const STACK: usize = 64 << 20;

/// A schema, compiled. Cheap to clone.
#[derive(Clone)]
pub struct ValueSchema {
    json: Arc<Json>,
    validator: Arc<Validator>,
    weight: weight::Weight,
    /// Whether objects are compared with each other.
    compares_objects: bool,
}

impl ValueSchema {
    /// Compiles a schema. An error says in one line what is wrong with it, and where.
    pub fn compile(json: Json) -> Result<Self, String> {
        let weight = weight::weigh(&json)?;
        let (checked, compares_objects) = order::sorted(&json);
        let patterns = PatternOptions::regex().size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN);
        let compile = || {
            jsonschema::options()
                .with_draft(Draft::Draft202012)
                .with_pattern_options(patterns)
                .should_validate_formats(true)
                // Compiling what a value holds takes longer than checking it.
                .with_format("regex", |_: &str| true)
                .with_keyword("multipleOf", multiple::keyword)
                .build(&checked)
                .map_err(|error| misfit::of(&error, &checked).of_a_schema())
        };
        // One that refers to itself is compiled as deep as it has schemas.
        let validator = if weight.is_walked() { with_room(compile)?? } else { compile()? };
        Ok(Self { json: Arc::new(json), validator: Arc::new(validator), weight, compares_objects })
    }

    /// The schema as it was given.
    pub fn json(&self) -> &Json {
        &self.json
    }

    /// Whether a value fits; the first thing that does not.
    pub fn check(&self, value: &Json) -> Result<(), Misfit> {
        let whole = |why| Misfit { at: String::new(), why };
        let depth = self.weight.allows(value).map_err(whole)?;
        let check = || {
            let sorted = self.compares_objects.then(|| order::of_keys(value));
            let value = sorted.as_ref().unwrap_or(value);
            self.validator.validate(value).map_err(|error| misfit::of(&error, value))
        };
        if depth > ORDINARY_DEPTH { with_room(check).map_err(whole)? } else { check() }
    }
}

/// Does something that needs more of a stack than the thread may have left.
fn with_room<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let done = thread.map(|thread| thread.join());
        done.ok().and_then(Result::ok).ok_or_else(|| "cannot be checked: the host has no thread for that".to_owned())
    })
}

impl PartialEq for ValueSchema {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl fmt::Debug for ValueSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueSchema({})", self.json)
    }
}

/// Gives every array of a schema `items`, which some services insist on.
pub fn with_items(schema: &mut Json) {
    let Json::Object(keywords) = schema else { return };
    let is_array = match keywords.get("type") {
        Some(Json::String(word)) => word == "array",
        Some(Json::Array(words)) => words.iter().any(|word| word == "array"),
        _ => false,
    };
    if is_array && !keywords.contains_key("items") {
        keywords.insert("items".to_owned(), Json::Object(serde_json::Map::new()));
    }
    for (keyword, value) in keywords.iter_mut() {
        match (weight::holds(keyword), value) {
            (weight::Holds::Schema(_), value) => with_items(value),
            (weight::Holds::List(_), Json::Array(schemas)) => schemas.iter_mut().for_each(with_items),
            (weight::Holds::Named(_), Json::Object(schemas)) => schemas.values_mut().for_each(with_items),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
