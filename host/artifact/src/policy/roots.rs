//! `artifact_sources`: further folders with artifacts.

use serde_json::json;

use crate::decode::{Decoder, Field};
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use crate::shape::{self, Read, Schema, Shape};
use harness_policy::text::quoted;

/// A folder that is laid out as `.harness/` is, without `harness.md`: `{ type: local, path: ... }`.
pub(super) struct Root(pub(super) Located<String>);

keys! {
    /// The keys of one source.
    RootKeys: Unknown::Refuse;
    /// The type of the source: `local`. Nothing is fetched from elsewhere.
    required kind("type"): Local;
    /// The folder, relative to the project.
    required path: String;
}

/// The one type that there is.
struct Local;

impl Shape for Local {
    fn schema() -> Schema {
        shape::schema(json!({"const": "local"}))
    }
}

impl Shape for Root {
    fn schema() -> Schema {
        keys::schema::<RootKeys<'_>>()
    }
}

impl Read for Root {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let (keys, fields) = decoder.open::<RootKeys<'_>>(field)?;
        let kind = keys.kind.field().and_then(|f| Some((decoder.string(f)?, f)));
        match kind {
            Some(("local", _)) => {}
            // The other keys of such a source are of no interest then.
            Some((kind, f)) => {
                let message = format!("{}: sources of type {} are not fetched", quoted(&f.path), quoted(kind));
                let hint = "clone it into `.harness/plugins/`, or name a folder with `type: local`".to_owned();
                decoder.error_with(f, message, Some(hint));
                return None;
            }
            None => decoder.error(field, format!("{} has no `type`", quoted(&field.path))),
        }
        let Some(path) = keys.path.field() else {
            decoder.error(field, "artifact_sources local source requires path".to_owned());
            return None;
        };
        let folder = decoder.parse_one(path, folder);
        decoder.finish(&fields, Unknown::Refuse);
        folder.map(|folder| Self(Located::new(folder, decoder.position(path.span()))))
    }
}

/// The one spelling of a folder's path: it is what names of sources begin with.
pub(super) fn folder(text: &str) -> Result<String, String> {
    if text.starts_with('/') || text.chars().any(char::is_control) {
        return Err("write a path that is relative to the project".to_owned());
    }
    let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    match parts.join("/").as_str() {
        "" | ".." => Err("name a folder with artifacts".to_owned()),
        ".harness" => Err("`.harness` is always read".to_owned()),
        path => Ok(path.to_owned()),
    }
}
