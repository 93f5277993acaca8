//! A YAML value as JSON, for the parts of an artifact that hold data.

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
