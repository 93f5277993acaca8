//! Values that the built-ins give back: a record with fixed fields, and the headers of an HTTP answer.

use std::fmt;

use allocative::Allocative;
use serde_json::{Map, Value as Json};
use starlark::environment::{Methods, MethodsBuilder};
use starlark::values::dict::AllocDict;
use starlark::values::none::NoneOr;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagable, StarlarkValue, Value, ValueLike, starlark_value,
};
use starlark::{starlark_module, starlark_simple_value};

use crate::value;

/// A record: `x.size` and `x["size"]` are the same.
#[derive(Debug, ProvidesStaticType, NoSerialize, Allocative, StarlarkPagable)]
pub(crate) struct Record(
    #[allocative(skip)]
    #[starlark_pagable(skip)]
    pub(crate) Map<String, Json>,
);
starlark_simple_value!(Record);

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_fields(f, self.0.iter().map(|(k, v)| (k.as_str(), v.to_string())))
    }
}

#[starlark_value(type = "record")]
impl<'v> StarlarkValue<'v> for Record {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        value::from_json(self.0.get(attribute)?, heap).ok()
    }

    fn dir_attr(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let field = index.unpack_str().and_then(|name| self.get_attr(name, heap));
        field.ok_or_else(|| {
            let fields: Vec<_> = self.0.keys().map(String::as_str).collect();
            starlark::Error::new_value(anyhow::anyhow!("no field {index}; the fields are {}", fields.join(", ")))
        })
    }

    fn is_in(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.unpack_str().is_some_and(|name| self.0.contains_key(name)))
    }

    fn iterate_collect(&self, heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        Ok(self.0.keys().map(|name| heap.alloc(name.as_str())).collect())
    }

    fn length(&self) -> starlark::Result<i32> {
        Ok(i32::try_from(self.0.len()).unwrap_or(i32::MAX))
    }
}

/// The headers of an answer: like a dict with lower-case names, found whatever the case they are asked in.
#[derive(Debug, ProvidesStaticType, NoSerialize, Allocative, StarlarkPagable)]
pub(crate) struct Headers(pub(crate) Vec<(String, String)>);
starlark_simple_value!(Headers);

impl Headers {
    fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// As JSON: an object.
    pub(crate) fn to_json(&self) -> Json {
        Json::Object(self.0.iter().map(|(n, v)| (n.clone(), Json::from(v.as_str()))).collect())
    }
}

impl fmt::Display for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_fields(f, self.0.iter().map(|(k, v)| (k.as_str(), Json::from(v.as_str()).to_string())))
    }
}

#[starlark_value(type = "headers")]
impl<'v> StarlarkValue<'v> for Headers {
    fn get_methods() -> Option<&'static Methods> {
        Some(HEADERS_METHODS.methods())
    }

    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let found = index.unpack_str().and_then(|name| self.find(name));
        found
            .map(|value| heap.alloc(value))
            .ok_or_else(|| starlark::Error::new_value(anyhow::anyhow!("no header {index} in the answer")))
    }

    fn is_in(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.unpack_str().is_some_and(|name| self.find(name).is_some()))
    }

    fn iterate_collect(&self, heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        Ok(self.0.iter().map(|(name, _)| heap.alloc(name.as_str())).collect())
    }

    fn length(&self) -> starlark::Result<i32> {
        Ok(i32::try_from(self.0.len()).unwrap_or(i32::MAX))
    }
}

starlark::methods_static!(HEADERS_METHODS = headers_methods);

#[starlark_module]
fn headers_methods(builder: &mut MethodsBuilder) {
    fn get<'v>(
        this: Value<'v>,
        name: &str,
        #[starlark(default = NoneOr::None)] default: NoneOr<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let found = this.downcast_ref::<Headers>().and_then(|headers| headers.find(name));
        Ok(match (found, default) {
            (Some(value), _) => heap.alloc(value),
            (None, NoneOr::Other(default)) => default,
            (None, NoneOr::None) => Value::new_none(),
        })
    }

    fn keys<'v>(this: Value<'v>) -> anyhow::Result<Vec<String>> {
        Ok(pairs(this).iter().map(|(name, _)| name.clone()).collect())
    }

    fn values<'v>(this: Value<'v>) -> anyhow::Result<Vec<String>> {
        Ok(pairs(this).iter().map(|(_, value)| value.clone()).collect())
    }

    fn items<'v>(this: Value<'v>) -> anyhow::Result<Vec<(String, String)>> {
        Ok(pairs(this).to_vec())
    }
}

fn pairs(this: Value<'_>) -> &[(String, String)] {
    this.downcast_ref::<Headers>().map_or(&[], |headers| &headers.0)
}

fn write_fields<'a>(f: &mut fmt::Formatter<'_>, fields: impl Iterator<Item = (&'a str, String)>) -> fmt::Result {
    f.write_str("{")?;
    for (i, (name, value)) in fields.enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{}: {value}", Json::from(name))?;
    }
    f.write_str("}")
}

/// A dict from names to values, in the order given.
pub(crate) fn dict<'v, const N: usize>(heap: Heap<'v>, fields: [(&str, Value<'v>); N]) -> Value<'v> {
    heap.alloc(AllocDict(fields))
}
