//! JSON as it is given to the host: read strictly, or made of a YAML value.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value as Json};

use super::decode::{Decoder, Field};
use super::yaml::{self, Node, Value};

/// The value of a field. Whole numbers keep all their digits; `.inf` and `.nan` are no JSON and are errors.
pub fn value(decoder: &mut Decoder, field: &Field<'_>) -> Option<Json> {
    of(decoder, field, field.node)
}

fn of(decoder: &mut Decoder, field: &Field<'_>, node: &Node) -> Option<Json> {
    Some(match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(text) => Json::Number(whole(text)?),
        Value::Float(text) => match text.parse::<f64>().ok().and_then(Number::from_f64) {
            Some(number) => Json::Number(number),
            None => {
                decoder.error(field, format!("`{}`: `{text}` is not a JSON number", field.path));
                return None;
            }
        },
        Value::Str(text) => Json::String(text.clone()),
        Value::Seq(items) => {
            let items: Vec<Option<Json>> = items.iter().map(|item| of(decoder, field, item)).collect();
            Json::Array(items.into_iter().collect::<Option<_>>()?)
        }
        Value::Map(entries) => {
            let mut object = Map::new();
            for (key, node) in entries {
                object.insert(key.text.clone(), of(decoder, field, node)?);
            }
            Json::Object(object)
        }
    })
}

/// A whole number of any size in decimal; the other bases of YAML are read as numbers.
fn whole(text: &str) -> Option<Number> {
    let decimal = text.strip_prefix('+').unwrap_or(text);
    serde_json::from_str(decimal).ok().or_else(|| serde_json::from_str(&yaml::integer(text).to_string()).ok())
}

/// Reads JSON that somebody gave. `what` is what it is, with its verb, for messages: `the arguments are`.
///
/// # Errors
///
/// It is not JSON; an object has a key twice, of which programs see either; a number is out of range.
pub fn parse(text: &str, what: &str) -> Result<Json, String> {
    let json = serde_json::from_str(text).map_err(|error| format!("{what} not JSON: {error}"))?;
    // The value has only the last of two.
    Once.deserialize(&mut serde_json::Deserializer::from_str(text)).map_err(|error| error.to_string())?;
    finite(json)
}

/// The value, unless a number in it is beyond what scripts can have. Whole ones may be of any size.
///
/// # Errors
///
/// The number that is out of range.
pub fn finite(json: Json) -> Result<Json, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let text = "a: [1, -2.5, true, null, x, 0x10, 123456789012345678901234567890, '1']\nb: {c: {}}\nd: +07\n";
        let (tree, _) = yaml::parse(text, 1);
        let node = tree.unwrap();
        let mut decoder = Decoder::new("f", String::new());
        let json = value(&mut decoder, &Field { path: String::new(), key: None, node: &node }).unwrap();
        assert_eq!(
            json.to_string(),
            r#"{"a":[1,-2.5,true,null,"x",16,123456789012345678901234567890,"1"],"b":{"c":{}},"d":7}"#
        );
    }
}
