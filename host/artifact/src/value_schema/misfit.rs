//! What is wrong with a value, in words.

use std::fmt;

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use serde_json::Value as Json;

use crate::arguments::json_type;

/// Bytes of what a message shows of a schema.
const MAX_SHOWN: usize = 200;

/// What is wrong with a value, and where in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The place, such as `items[0].name`; empty: the whole.
    pub at: String,
    /// What is wrong there, beginning with a verb: "must be at least 1".
    pub why: String,
}

impl Misfit {
    /// The same of a schema that is no schema.
    pub(super) fn of_a_schema(&self) -> String {
        if self.at.is_empty() { format!("it {}", self.why) } else { format!("`{}` {}", self.at, self.why) }
    }
}

/// With the whole called "the value".
impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.at.is_empty() { write!(f, "the value {}", self.why) } else { write!(f, "`{}` {}", self.at, self.why) }
    }
}

/// The words for an error in a value.
pub(super) fn of(error: &ValidationError<'_>, value: &Json) -> Misfit {
    let why = match refused_keys(error, value) {
        Some(names) => undeclared(&names),
        None => why(error.kind(), error.instance()),
    };
    Misfit { at: place(error.instance_path().as_str()), why: shorten(&why) }
}

/// The keys of an object that may have none at all: of that the error has the first one's value, and no name.
fn refused_keys(error: &ValidationError<'_>, value: &Json) -> Option<Vec<String>> {
    if !matches!(error.kind(), Kind::FalseSchema) || !error.schema_path().as_str().ends_with("/additionalProperties") {
        return None;
    }
    let object = value.pointer(error.instance_path().as_str())?.as_object()?;
    // Where the schema of a key with this name is `false`, the error is about the object itself.
    let is_first = object.values().next() == Some(&**error.instance());
    is_first.then(|| object.keys().cloned().collect())
}

fn undeclared(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(3).map(|name| format!("`{}`", name.replace('`', "'"))).collect();
    let more = if names.len() > 3 { " and more" } else { "" };
    format!("must not have undeclared keys, found {}{more}", shown.join(", "))
}

/// A JSON Pointer as a script writes it: `a.b[0]`.
fn place(pointer: &str) -> String {
    let mut place = String::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~").replace('`', "'");
        if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) && !place.is_empty() {
            place.push_str(&format!("[{part}]"));
        } else {
            if !place.is_empty() {
                place.push('.');
            }
            place.push_str(&part);
        }
    }
    shorten(&place)
}

fn why(kind: &Kind, found: &Json) -> String {
    let items = |count: u64| if count == 1 { "item" } else { "items" };
    let characters = |count: u64| if count == 1 { "character" } else { "characters" };
    let keys = |count: u64| if count == 1 { "key" } else { "keys" };
    match kind {
        Kind::Type { kind } => {
            let wanted = match kind {
                TypeKind::Single(one) => one.to_string(),
                TypeKind::Multiple(set) => {
                    let words: Vec<String> = set.iter().map(|one| one.to_string()).collect();
                    words.join(" or ")
                }
            };
            // A number that is not whole.
            let found = if wanted == "integer" && found.is_number() { "a fraction" } else { json_type(found) };
            format!("must be of type {wanted}, found {found}")
        }
        Kind::Enum { options: Json::Array(options) } => {
            let options: Vec<String> = options.iter().map(ToString::to_string).collect();
            format!("must be one of {}, found another {}", options.join(", "), json_type(found))
        }
        Kind::Constant { expected_value } => format!("must be {expected_value}, found another {}", json_type(found)),
        Kind::Minimum { limit } => format!("must be at least {limit}"),
        Kind::Maximum { limit } => format!("must be at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("must have at least {limit} {}", characters(*limit)),
        Kind::MaxLength { limit } => format!("must have at most {limit} {}", characters(*limit)),
        Kind::MinItems { limit } => format!("must have at least {limit} {}", items(*limit)),
        Kind::MaxItems { limit } => format!("must have at most {limit} {}", items(*limit)),
        Kind::MinProperties { limit } => format!("must have at least {limit} {}", keys(*limit)),
        Kind::MaxProperties { limit } => format!("must have at most {limit} {}", keys(*limit)),
        Kind::UniqueItems => "must not have an item twice".to_owned(),
        Kind::Pattern { pattern } => format!("must match the pattern `{}`", pattern.replace('`', "'")),
        Kind::Format { format } => format!("must have the format `{format}`"),
        Kind::Required { property } => format!("must have the key {property}"),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            undeclared(unexpected)
        }
        Kind::AdditionalItems { .. } | Kind::UnevaluatedItems { .. } => {
            "must not have more items than are declared".to_owned()
        }
        Kind::Contains => "must have an item that fits `contains`".to_owned(),
        Kind::AnyOf { .. } => format!("must fit a schema of `anyOf`, found {}", json_type(found)),
        Kind::OneOfNotValid { .. } => format!("must fit a schema of `oneOf`, found {}", json_type(found)),
        Kind::OneOfMultipleValid { .. } => "must fit one schema of `oneOf` alone".to_owned(),
        Kind::Not { .. } => "must not fit the schema of `not`".to_owned(),
        Kind::PropertyNames { .. } => "must have keys that fit `propertyNames`".to_owned(),
        // Of a keyword that is checked here.
        Kind::Custom { message, .. } => message.clone(),
        Kind::FalseSchema => "must not be there".to_owned(),
        other => format!("must fit `{}` of its schema", other.keyword()),
    }
}

/// At most so much, on a character boundary.
fn shorten(text: &str) -> String {
    if text.len() <= MAX_SHOWN {
        return text.to_owned();
    }
    let mut end = MAX_SHOWN;
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    format!("{}…", text.get(..end).unwrap_or_default())
}
