//! The arguments of a call against the parameters of a tool.
//!
//! A required parameter must be there, a declared one must have its type, and anything else passes. No value is
//! converted: the string `"5"` is not a number, and `null` has no declared type at all.

use std::fmt;

use serde_json::{Map, Value};

use super::parameters::Parameters;
use super::tool::{Parameter, ParameterType};
use super::value_schema::Misfit;
use harness_policy::text::quoted;

/// Why a call's arguments do not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentError {
    /// The arguments are no JSON object.
    NotAnObject {
        /// What they are, such as `array`.
        found: &'static str,
    },
    /// A required one is not there.
    Missing {
        /// The parameter.
        name: String,
        /// Its type.
        wanted: ParameterType,
    },
    /// One has another type than declared.
    WrongType {
        /// The parameter.
        name: String,
        /// Its type.
        wanted: ParameterType,
        /// What the value is, such as `string`.
        found: &'static str,
    },
    /// What the schema of the parameters says beside that.
    Misfit(Misfit),
    /// On a command line: no `=`.
    NotAPair {
        /// What was given.
        given: String,
    },
    /// On a command line: given before.
    Twice {
        /// The key.
        name: String,
    },
    /// On a command line: the text is no value of the declared type.
    NotReadable {
        /// The parameter.
        name: String,
        /// Its type.
        wanted: ParameterType,
        /// What was given.
        given: String,
    },
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject { found } => write!(f, "the arguments must be an object, found {found}"),
            Self::Missing { name, wanted: ParameterType::Any } => write!(f, "the argument {} is missing", quoted(name)),
            Self::Missing { name, wanted } => write!(f, "the argument {} ({wanted}) is missing", quoted(name)),
            Self::WrongType { name, wanted, found } => {
                write!(f, "the argument {} must be of type {wanted}, found {found}", quoted(name))
            }
            Self::Misfit(Misfit { at, why }) if at.is_empty() => write!(f, "the arguments {why}"),
            Self::Misfit(Misfit { at, why }) => write!(f, "the argument `{at}` {why}"),
            Self::NotAPair { given } => write!(f, "an argument must be written `key=value`, found {}", quoted(given)),
            Self::Twice { name } => write!(f, "the argument {} is given twice", quoted(name)),
            Self::NotReadable { name, wanted, given } => {
                let form = match wanted {
                    ParameterType::String | ParameterType::Any => "any text",
                    ParameterType::Integer => "a whole number such as `15`",
                    ParameterType::Number => "a number such as `15` or `-0.5`",
                    ParameterType::Boolean => "`true` or `false`",
                    ParameterType::Object => "a JSON object such as `{\"a\": 1}`",
                    ParameterType::Array => "a JSON array such as `[1, 2]`",
                };
                write!(f, "the argument {} must be {form}, found {}", quoted(name), quoted(given))
            }
        }
    }
}

impl std::error::Error for ArgumentError {}

/// See [`Tool::check_arguments`](super::tool::Tool::check_arguments).
pub(super) fn check(parameters: &Parameters, arguments: &Value) -> Result<(), Vec<ArgumentError>> {
    let Value::Object(given) = arguments else {
        return Err(vec![ArgumentError::NotAnObject { found: json_type(arguments) }]);
    };
    let errors: Vec<ArgumentError> = parameters
        .list
        .iter()
        .filter_map(|parameter| match given.get(&parameter.name) {
            None if *parameter.required => {
                Some(ArgumentError::Missing { name: parameter.name.clone(), wanted: *parameter.kind })
            }
            Some(value) if !parameter.kind.is_of(value) => Some(ArgumentError::WrongType {
                name: parameter.name.clone(),
                wanted: *parameter.kind,
                found: json_type(value),
            }),
            _ => None,
        })
        .collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    let schema = parameters.schema.as_ref();
    schema.map_or(Ok(()), |schema| schema.check(arguments)).map_err(|misfit| vec![ArgumentError::Misfit(misfit)])
}

impl ParameterType {
    /// Whether a value may be of this type. Which numbers are whole is for the schema to say.
    fn is_of(self, value: &Value) -> bool {
        match self {
            Self::Any => true,
            Self::Integer => value.is_number(),
            kind => json_type(value) == kind.word(),
        }
    }
}

/// What the text of a pair is, for a parameter whose schema allows several types: what JSON it is, unless it is a text that
/// the schema names.
fn any(parameter: &Parameter, text: &str) -> Value {
    let named = |word: &str| parameter.keywords.get(word).and_then(Value::as_array);
    let constant = parameter.keywords.get("const").is_some_and(|value| value == text);
    if constant || named("enum").is_some_and(|values| values.iter().any(|value| value == text)) {
        return Value::from(text);
    }
    let types = named("type");
    let fits = |value: &Value| {
        let whole = value.is_i64() || value.is_u64();
        types.is_none_or(|types| types.iter().any(|word| word == json_type(value) || (whole && word == "integer")))
    };
    serde_json::from_str(text).ok().filter(fits).unwrap_or_else(|| Value::from(text))
}

/// See [`Tool::read_arguments`](super::tool::Tool::read_arguments). A key that is not declared holds the text.
pub(super) fn read<S: AsRef<str>>(
    parameters: &Parameters,
    pairs: &[S],
) -> Result<Map<String, Value>, Vec<ArgumentError>> {
    let mut arguments = Map::new();
    let mut errors = Vec::new();
    for pair in pairs {
        let Some((name, text)) = pair.as_ref().split_once('=').filter(|(name, _)| !name.is_empty()) else {
            errors.push(ArgumentError::NotAPair { given: pair.as_ref().to_owned() });
            continue;
        };
        if arguments.contains_key(name) {
            errors.push(ArgumentError::Twice { name: name.to_owned() });
            continue;
        }
        let parameter = parameters.list.iter().find(|parameter| parameter.name == name);
        let wanted = parameter.map_or(ParameterType::String, |parameter| *parameter.kind);
        let value = match (wanted, parameter) {
            (ParameterType::String, _) | (_, None) => Some(Value::from(text)),
            (ParameterType::Any, Some(parameter)) => Some(any(parameter, text)),
            _ => serde_json::from_str(text).ok().filter(|value| wanted.is_of(value)),
        };
        if value.is_none() {
            errors.push(ArgumentError::NotReadable { name: name.to_owned(), wanted, given: text.to_owned() });
        }
        // Kept even where it is wrong, so that a second one is still a second one.
        arguments.insert(name.to_owned(), value.unwrap_or_default());
    }
    if errors.is_empty() { Ok(arguments) } else { Err(errors) }
}

/// The name of a value's type in JSON Schema.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::super::diagnostic::Position;
    use super::super::located::Located;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parameters() -> Parameters {
        let list = [
            ("s", ParameterType::String, true),
            ("n", ParameterType::Number, false),
            ("b", ParameterType::Boolean, false),
            ("o", ParameterType::Object, false),
            ("a", ParameterType::Array, true),
        ]
        .map(|(name, kind, required)| {
            let position = Position { file: "f".into(), line: 1, column: 1, length: 1 };
            let (kind, required) = (Located::new(kind, position.clone()), Located::new(required, position.clone()));
            Parameter { name: name.to_owned(), kind, description: None, required, keywords: Map::new(), position }
        });
        Parameters::of(list.to_vec())
    }

    #[track_caller]
    fn checked(arguments: &Value, expect: &[&str]) {
        let errors = check(&parameters(), arguments).err().unwrap_or_default();
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn what_fits() {
        checked(&json!({"s": "", "a": []}), &[]);
        checked(&json!({"s": "x", "n": 1, "b": true, "o": {}, "a": [1], "extra": null}), &[]);
        checked(&serde_json::from_str(r#"{"s":"x","a":[],"n":123456789012345678901234567890}"#).unwrap(), &[]);
    }

    #[test]
    fn what_does_not() {
        checked(&json!([1]), &["the arguments must be an object, found array"]);
        checked(&json!(null), &["the arguments must be an object, found null"]);
        checked(&json!({}), &["the argument `s` (string) is missing", "the argument `a` (array) is missing"]);
        checked(
            &json!({"s": 1, "n": "5", "b": null, "o": [], "a": {}}),
            &[
                "the argument `s` must be of type string, found number",
                "the argument `n` must be of type number, found string",
                "the argument `b` must be of type boolean, found null",
                "the argument `o` must be of type object, found array",
                "the argument `a` must be of type array, found object",
            ],
        );
    }

    #[test]
    fn read_by_type() {
        let pairs = ["s=a=b", "n=-1.5e3", "b=true", "o={\"k\": [1]}", "a=[]", "x=5", "y="];
        let expect = r#"{"s":"a=b","n":-1.5e+3,"b":true,"o":{"k":[1]},"a":[],"x":"5","y":""}"#;
        assert_eq!(Value::from(read(&parameters(), &pairs).unwrap()).to_string(), expect);
    }

    #[test]
    fn not_readable() {
        let pairs = ["s", "=x", "n=ten", "n=1", "n=NaN", "b=yes", "o=[1]", "a=[1", "s=1", "s=1"];
        let errors = read(&parameters(), &pairs).unwrap_err();
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "an argument must be written `key=value`, found `s`",
                "an argument must be written `key=value`, found `=x`",
                "the argument `n` must be a number such as `15` or `-0.5`, found `ten`",
                "the argument `n` is given twice",
                "the argument `n` is given twice",
                "the argument `b` must be `true` or `false`, found `yes`",
                "the argument `o` must be a JSON object such as `{\"a\": 1}`, found `[1]`",
                "the argument `a` must be a JSON array such as `[1, 2]`, found `[1`",
                "the argument `s` is given twice",
            ]
        );
    }

    proptest! {
        #[test]
        fn what_is_read_is_of_its_type(pairs in proptest::collection::vec("[snboax]=.{0,12}", 0..6)) {
            if let Ok(arguments) = read(&parameters(), &pairs) {
                let wrong = check(&parameters(), &Value::from(arguments)).err().unwrap_or_default();
                let only_missing = wrong.iter().all(|e| matches!(e, ArgumentError::Missing { .. }));
                prop_assert!(only_missing);
            }
        }
    }
}
