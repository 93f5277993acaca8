//! Values of front matter that are data: JSON, numbers and moments of a test case.

use serde_json::{Map, Value as Json, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::decode::{Decoder, Field};
use super::json;
use super::shape::{self, Read, Schema, Shape};
use super::yaml::Value;
use harness_policy::text::quoted;

/// Any JSON.
pub(super) struct Data(pub(super) Json);

impl Shape for Data {
    fn schema() -> Schema {
        Schema::new()
    }
}

impl Read for Data {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        json::value(decoder, field).map(Self)
    }
}

/// The arguments of a call.
pub(super) struct Arguments(pub(super) Map<String, Json>);

impl Shape for Arguments {
    fn schema() -> Schema {
        shape::schema(json!({"type": "object"}))
    }
}

impl Read for Arguments {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.mapping(field)?;
        match json::value(decoder, field)? {
            Json::Object(arguments) => Some(Self(arguments)),
            _ => None,
        }
    }
}

/// The value of a metric.
pub(super) struct Metric(pub(super) f64);

impl Shape for Metric {
    fn schema() -> Schema {
        shape::schema(json!({"type": "number"}))
    }
}

impl Read for Metric {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        match json::value(decoder, field)? {
            Json::Number(number) => number.as_f64().map(Self),
            _ => {
                decoder.error(field, format!("{} must be a number", quoted(&field.path)));
                None
            }
        }
    }
}

/// How a command ended. One that no process has is as good as none.
pub(super) struct ExitCode;

impl Shape for ExitCode {
    fn schema() -> Schema {
        shape::schema(json!({"type": "integer"}))
    }
}

/// Seconds and nanoseconds since 1970.
pub(super) struct Moment(pub(super) (i64, u32));

impl Shape for Moment {
    fn schema() -> Schema {
        shape::schema(json!({"type": ["string", "integer"]}))
    }
}

impl Read for Moment {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        if let Value::Int(_) = field.node.value {
            return decoder.integer(field).and_then(|seconds| i64::try_from(seconds).ok()).map(|s| Self((s, 0)));
        }
        decoder.parse_one(field, |text| {
            let moment = OffsetDateTime::parse(text, &Rfc3339)
                .map_err(|_| format!("{} is not a time such as `2026-01-02T03:04:05Z`", quoted(text)))?;
            Ok(Self((moment.unix_timestamp(), moment.nanosecond())))
        })
    }
}
