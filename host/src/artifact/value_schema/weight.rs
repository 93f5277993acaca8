//! What checking against a schema costs at most.
//!
//! The weight of a schema is that of its keywords with every reference written out, doubled where a value is looked at twice:
//! in `anyOf`, `oneOf`, `not`, `if` and the like, which are tried first and asked for their errors then. A reference to
//! what holds it has no end and is refused. The work of a check is at most the weight times the size of the value.

use serde_json::Value as Json;

use crate::artifact::suggest::quoted;

/// Bytes of a schema.
const MAX_BYTES: usize = 64 << 10;
/// Schemas within schemas, references followed.
const MAX_DEPTH: usize = 32;
/// Most that a schema weighs.
const MAX_WEIGHT: u64 = 20_000;
/// Most that a check costs: some seconds of the slowest keyword, milliseconds of ordinary ones.
const MAX_WORK: u64 = 50_000_000;
/// Characters of a number that is compared: more than any has, fewer than take long to convert.
const MAX_DIGITS: usize = 1000;
/// Bytes of a text that count as one value.
const BYTES: usize = 64;
/// Bytes of a pattern.
const MAX_PATTERN: usize = 1024;

/// What the value of a keyword holds, and how often a value is looked at for it.
pub(super) enum Holds {
    /// One schema.
    Schema(u64),
    /// A list of them.
    List(u64),
    /// A mapping from names to them.
    Named(u64),
    /// None.
    Nothing,
}

/// What a keyword holds.
pub(super) fn holds(keyword: &str) -> Holds {
    match keyword {
        "items" | "additionalProperties" | "then" | "else" | "contentSchema" => Holds::Schema(1),
        "contains" | "propertyNames" | "not" | "if" | "unevaluatedItems" | "unevaluatedProperties" => Holds::Schema(2),
        "allOf" | "prefixItems" => Holds::List(1),
        "anyOf" | "oneOf" => Holds::List(2),
        "properties" | "$defs" | "definitions" => Holds::Named(1),
        "patternProperties" | "dependentSchemas" => Holds::Named(2),
        _ => Holds::Nothing,
    }
}

/// What a schema weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Weight {
    weight: u64,
    /// Whether items are compared with each other.
    compares_items: bool,
}

/// Weighs a schema. An error says in one line what no schema here may have.
pub(super) fn weigh(schema: &Json) -> Result<Weight, String> {
    // Before anything is followed: a text of this size has no more keywords than that.
    if schema.to_string().len() > MAX_BYTES {
        return Err(format!("it is over {MAX_BYTES} bytes"));
    }
    let mut scale = Scale { root: schema, weight: 0, compares_items: false, within: Vec::new() };
    scale.add(schema, 1, 0)?;
    Ok(Weight { weight: scale.weight.max(1), compares_items: scale.compares_items })
}

struct Scale<'a> {
    root: &'a Json,
    weight: u64,
    compares_items: bool,
    /// The references that are being followed.
    within: Vec<&'a str>,
}

impl<'a> Scale<'a> {
    fn add(&mut self, schema: &'a Json, factor: u64, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("it has over {MAX_DEPTH} schemas within each other"));
        }
        self.put(factor)?;
        let Json::Object(keywords) = schema else { return Ok(()) };
        for (keyword, value) in keywords {
            self.put(factor)?;
            match keyword.as_str() {
                "$ref" => self.follow(value, factor, depth)?,
                "$id" | "$schema" | "$anchor" | "$dynamicRef" | "$dynamicAnchor" | "$recursiveRef"
                | "$recursiveAnchor" | "$vocabulary" => {
                    return Err(format!("`{keyword}` is not supported: references are local, such as `#/$defs/name`"));
                }
                "pattern" => self.pattern(value.as_str().unwrap_or_default(), factor)?,
                "enum" | "const" => self.put(factor.saturating_mul(size(value)))?,
                "uniqueItems" => self.compares_items = true,
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => number(value)?,
                _ => {}
            }
            // What is defined weighs where it is referred to.
            if keyword == "$defs" || keyword == "definitions" {
                continue;
            }
            let again = |times: u64| factor.saturating_mul(times);
            match (holds(keyword), value) {
                (Holds::Schema(times), value) => self.add(value, again(times), depth.saturating_add(1))?,
                (Holds::List(times), Json::Array(schemas)) => {
                    schemas.iter().try_for_each(|one| self.add(one, again(times), depth.saturating_add(1)))?;
                }
                (Holds::Named(times), Json::Object(schemas)) => {
                    for (name, one) in schemas {
                        if keyword == "patternProperties" {
                            self.pattern(name, again(times))?;
                        }
                        self.add(one, again(times), depth.saturating_add(1))?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn put(&mut self, weight: u64) -> Result<(), String> {
        self.weight = self.weight.saturating_add(weight);
        if self.weight > MAX_WEIGHT {
            return Err(format!(
                "checking it would take too long: with all references written out it weighs over {MAX_WEIGHT} keywords"
            ));
        }
        Ok(())
    }

    fn pattern(&mut self, pattern: &str, factor: u64) -> Result<(), String> {
        if pattern.len() > MAX_PATTERN {
            return Err(format!("a pattern is over {MAX_PATTERN} bytes"));
        }
        self.put(factor.saturating_mul(u64::try_from(pattern.len() / 8).unwrap_or(u64::MAX)))
    }

    fn follow(&mut self, reference: &'a Json, factor: u64, depth: usize) -> Result<(), String> {
        let text = reference.as_str().unwrap_or_default();
        let shown = quoted(text);
        let pointer = text.strip_prefix('#').ok_or_else(|| {
            format!("the reference {shown} leaves the schema: references are local, such as `#/$defs/name`")
        })?;
        if pointer.contains('%') {
            return Err(format!("the reference {shown} is written with `%`"));
        }
        let target = self.root.pointer(pointer).ok_or_else(|| format!("the reference {shown} leads nowhere"))?;
        // A reference that is within itself, or one to something above it.
        if self.within.contains(&text) {
            return Err(format!("the reference {shown} leads back to itself, without an end"));
        }
        self.within.push(text);
        self.add(target, factor, depth.saturating_add(1))?;
        self.within.pop();
        Ok(())
    }
}

impl Weight {
    /// Whether a value is small enough to be checked.
    pub(super) fn allows(&self, value: &Json) -> Result<(), String> {
        let mut compared = 0;
        let size = self.measure(value, &mut compared)?;
        if size.saturating_mul(self.weight).saturating_add(compared) > MAX_WORK {
            return Err("must be smaller to be checked against its schema".to_owned());
        }
        Ok(())
    }

    fn measure(&self, value: &Json, compared: &mut u64) -> Result<u64, String> {
        let own = match value {
            Json::Array(items) => {
                let mut inner: u64 = 0;
                for item in items {
                    inner = inner.saturating_add(self.measure(item, compared)?);
                }
                // At worst each item is compared with each other one.
                if self.compares_items {
                    *compared = compared.saturating_add(inner.saturating_mul(items.len() as u64) / 8);
                }
                inner
            }
            Json::Object(entries) => {
                let mut inner: u64 = 0;
                for (name, item) in entries {
                    inner = inner.saturating_add(text(name)).saturating_add(self.measure(item, compared)?);
                }
                inner
            }
            Json::Number(_) => {
                number(value)?;
                0
            }
            Json::String(string) => text(string),
            Json::Null | Json::Bool(_) => 0,
        };
        Ok(own.saturating_add(1))
    }
}

fn number(value: &Json) -> Result<(), String> {
    match value {
        Json::Number(number) if number.as_str().len() > MAX_DIGITS => {
            Err(format!("must not hold a number of over {MAX_DIGITS} digits"))
        }
        _ => Ok(()),
    }
}

fn text(text: &str) -> u64 {
    (text.len() / BYTES) as u64
}

/// How many values a value is.
fn size(value: &Json) -> u64 {
    match value {
        Json::Array(items) => items.iter().fold(1, |sum: u64, item| sum.saturating_add(size(item))),
        Json::Object(entries) => entries.values().fold(1, |sum: u64, item| sum.saturating_add(size(item))),
        _ => 1,
    }
}
