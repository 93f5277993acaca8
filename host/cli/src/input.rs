//! JSON that is given as the text itself, as `@FILE`, or on standard input.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;

/// Bytes that are read from a file or standard input.
const MAX_BYTES: u64 = 16 << 20;

/// The text that an argument stands for. An error is one line.
pub(crate) fn text(given: &str) -> Result<String, String> {
    match given {
        "-" => bounded(std::io::stdin().lock(), "standard input"),
        text => match text.strip_prefix('@') {
            Some(path) => {
                let file = std::fs::File::open(path).map_err(|error| format!("cannot read `{path}`: {error}"))?;
                bounded(file, path)
            }
            None => Ok(text.to_owned()),
        },
    }
}

/// The value that an argument stands for; `what` begins a message of it, such as "the payload is". In no object is a key
/// twice, and each number is one that scripts can have.
pub(crate) fn json(given: &str, what: &str) -> Result<Json, String> {
    let text = text(given)?;
    let json = serde_json::from_str(&text).map_err(|error| format!("{what} not JSON: {error}"))?;
    // The value has only the last of two.
    Once.deserialize(&mut serde_json::Deserializer::from_str(&text)).map_err(|error| error.to_string())?;
    finite(json)
}

/// The value, unless a number in it is beyond what scripts can have. Whole ones may be of any size.
pub(crate) fn finite(json: Json) -> Result<Json, String> {
    fn beyond(json: &Json) -> Option<String> {
        match json {
            Json::Number(number) => {
                let text = number.to_string();
                (text.contains(['.', 'e', 'E']) && number.as_f64().is_none()).then_some(text)
            }
            Json::Array(items) => items.iter().find_map(beyond),
            Json::Object(entries) => entries.values().find_map(beyond),
            Json::Null | Json::Bool(_) | Json::String(_) => None,
        }
    }
    beyond(&json)
        .map_or(Ok(json), |number| Err(format!("the number `{number}` is out of range: it has to be below 1.8e308")))
}

/// Reads JSON for the keys of its objects: an error where one is there twice.
#[derive(Clone, Copy)]
struct Once;

impl<'de> DeserializeSeed<'de> for Once {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    /// Of a number too that is too large for those above: it is the one entry of an object.
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(A::Error::custom(format_args!("the key `{key}` is given twice")));
            }
            keys.insert(key);
            entries.next_value_seed(self)?;
        }
        Ok(())
    }
}

fn bounded(source: impl Read, name: &str) -> Result<String, String> {
    let mut text = String::new();
    let read = source.take(MAX_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| format!("cannot read `{name}`: {error}"))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("`{name}` holds more than {MAX_BYTES} bytes"));
    }
    Ok(text)
}
