//! JSON to Starlark and back.
//!
//! A whole number is an int on the Starlark side, any other number a float. Integers keep every digit in both
//! directions. What has no place in JSON (a function, NaN, a list within itself) is an error that says what it was.

use num_bigint::BigInt;
use serde_json::{Map, Number, Value as Json};
use starlark::values::dict::{AllocDict, DictRef};
use starlark::values::float::StarlarkFloat;
use starlark::values::list::{AllocList, ListRef};
use starlark::values::set::SetRef;
use starlark::values::structs::StructRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, UnpackValue, Value, ValueLike};

use crate::record::{Headers, Record};

/// Lists and dicts within each other. The JSON parser on either side reads this many and no more, so that whatever is
/// written here can be read there.
pub(crate) const MAX_DEPTH: usize = 127;

/// Bytes of memory that one value may take as JSON, about. A value of a few names can stand for an endless text (a list
/// that holds another one twice, which holds another one twice, and so on), and this stops it before the memory is full.
/// It is twice the largest file that a script reads.
const MAX_BYTES: usize = 32 << 20;

/// What one value takes of that beside its text.
const VALUE_BYTES: usize = 32;

/// Below this, every whole number is exactly one float: 2^53.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Characters of a number that an error repeats.
const SHOWN_DIGITS: usize = 40;

/// The Starlark value of a JSON value. Errors: a number beyond the range of a float, or too much nesting.
pub(crate) fn from_json<'v>(value: &Json, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    read(value, heap, 0)
}

fn read<'v>(value: &Json, heap: Heap<'v>, depth: usize) -> anyhow::Result<Value<'v>> {
    Ok(match value {
        Json::Null => Value::new_none(),
        Json::Bool(truth) => Value::new_bool(*truth),
        Json::Number(number) => read_number(number, heap)?,
        Json::String(text) => heap.alloc(text.as_str()),
        Json::Array(items) => {
            let depth = deeper(depth)?;
            let items: Vec<Value<'v>> = items.iter().map(|item| read(item, heap, depth)).collect::<Result<_, _>>()?;
            heap.alloc(AllocList(items))
        }
        Json::Object(fields) => {
            let depth = deeper(depth)?;
            let fields: Vec<(&str, Value<'v>)> = fields
                .iter()
                .map(|(name, field)| Ok((name.as_str(), read(field, heap, depth)?)))
                .collect::<anyhow::Result<_>>()?;
            heap.alloc(AllocDict(fields))
        }
    })
}

fn read_number<'v>(number: &Number, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    let text = number.as_str();
    if !text.contains(['.', 'e', 'E']) {
        return match text.parse::<i64>() {
            Ok(small) => Ok(heap.alloc(small)),
            Err(_) => Ok(heap.alloc(text.parse::<BigInt>()?)),
        };
    }
    let float: f64 = text.parse()?;
    if !float.is_finite() {
        let shown: String = text.chars().take(SHOWN_DIGITS).collect();
        anyhow::bail!("number `{shown}` is out of range");
    }
    if float.abs() < EXACT && is_whole(text) {
        return Ok(heap.alloc(float as i64));
    }
    Ok(heap.alloc(float))
}

/// Whether the number that this text writes is whole. The float would not tell: it has been rounded.
fn is_whole(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let significant = whole.trim_start_matches('-').trim_end_matches('0');
    if fraction.is_empty() && significant.is_empty() {
        return true;
    }
    // How far the exponent may move the point to the left (negative) or must move it to the right.
    let needed = if fraction.is_empty() {
        -i128::try_from(whole.len() - whole.trim_end_matches('0').len()).unwrap_or(0)
    } else {
        i128::try_from(fraction.len()).unwrap_or(i128::MAX)
    };
    match exponent.parse::<i128>() {
        Ok(exponent) => exponent >= needed,
        // More digits than any text could make up for.
        Err(_) => !exponent.starts_with('-'),
    }
}

/// The JSON value of a Starlark value. Dicts need string keys and keep their order; tuples and sets are lists.
///
/// Errors name what cannot be told as JSON: a type such as `function`, NaN, an infinity, a key that is not a string,
/// nesting beyond [`MAX_DEPTH`], which is also what a list within itself comes to, or more than [`MAX_BYTES`].
pub(crate) fn to_json(value: Value<'_>) -> anyhow::Result<Json> {
    Writer { left: MAX_BYTES }.write(value, 0)
}

/// Counts what has been written.
struct Writer {
    /// Bytes that may still come.
    left: usize,
}

impl Writer {
    fn write<'v>(&mut self, value: Value<'v>, depth: usize) -> anyhow::Result<Json> {
        self.spend(VALUE_BYTES)?;
        if value.is_none() {
            return Ok(Json::Null);
        }
        if let Some(truth) = value.unpack_bool() {
            return Ok(Json::Bool(truth));
        }
        if let Some(text) = value.unpack_str() {
            self.spend(text.len())?;
            return Ok(Json::from(text));
        }
        if let Some(small) = value.unpack_i32() {
            return Ok(Json::from(small));
        }
        if let Some(big) = BigInt::unpack_value(value).ok().flatten() {
            let digits = big.to_string();
            self.spend(digits.len())?;
            return Ok(Json::Number(digits.parse()?));
        }
        if let Some(StarlarkFloat(float)) = value.downcast_ref() {
            return write_float(*float);
        }
        if let Some(list) = ListRef::from_value(value) {
            return self.list(list.iter(), depth);
        }
        if let Some(dict) = DictRef::from_value(value) {
            let named = dict.iter().map(|(key, field)| {
                let name = key.unpack_str().ok_or_else(|| {
                    anyhow::anyhow!("a dict key must be a string to be told as JSON, got {}", key.get_type())
                })?;
                Ok((name, field))
            });
            return self.object(named, depth);
        }
        if let Some(tuple) = TupleRef::from_value(value) {
            return self.list(tuple.iter(), depth);
        }
        if let Some(fields) = StructRef::from_value(value) {
            return self.object(fields.iter().map(|(name, field)| Ok((name.as_str(), field))), depth);
        }
        if let Some(set) = SetRef::unpack_value_opt(value) {
            return self.list(set.members().into_iter(), depth);
        }
        if let Some(record) = Record::from_value(value) {
            return self.ready(Json::Object(record.0.clone()));
        }
        if let Some(headers) = Headers::from_value(value) {
            return self.ready(headers.to_json());
        }
        anyhow::bail!("a value of type `{}` cannot be told as JSON", value.get_type())
    }

    fn list<'v>(&mut self, items: impl Iterator<Item = Value<'v>>, depth: usize) -> anyhow::Result<Json> {
        let depth = deeper(depth)?;
        items.map(|item| self.write(item, depth)).collect::<Result<_, _>>().map(Json::Array)
    }

    fn object<'v>(
        &mut self,
        fields: impl Iterator<Item = anyhow::Result<(&'v str, Value<'v>)>>,
        depth: usize,
    ) -> anyhow::Result<Json> {
        let depth = deeper(depth)?;
        let mut object = Map::new();
        for field in fields {
            let (name, field) = field?;
            self.spend(name.len())?;
            object.insert(name.to_owned(), self.write(field, depth)?);
        }
        Ok(Json::Object(object))
    }

    /// For what is JSON already.
    fn ready(&mut self, json: Json) -> anyhow::Result<Json> {
        self.spend(json.to_string().len())?;
        Ok(json)
    }

    fn spend(&mut self, bytes: usize) -> anyhow::Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => anyhow::bail!("more than {MAX_BYTES} bytes as JSON"),
        }
        Ok(())
    }
}

fn write_float(float: f64) -> anyhow::Result<Json> {
    let what = if float.is_nan() { "NaN" } else { "an infinity" };
    Number::from_f64(float).map(Json::Number).ok_or_else(|| anyhow::anyhow!("{what} cannot be told as JSON"))
}

fn deeper(depth: usize) -> anyhow::Result<usize> {
    anyhow::ensure!(depth < MAX_DEPTH, "nested deeper than {MAX_DEPTH} levels, or within itself");
    Ok(depth + 1)
}

#[cfg(test)]
mod tests;
