//! `artifact_sources`: further folders with artifacts.

use crate::artifact::decode::{Decoder, Field, Unknown};
use crate::artifact::located::Located;
use crate::artifact::suggest::quoted;

/// A list of `{ type: local, path: ... }`, each a folder that is laid out as `.harness/` is, without `harness.md`.
pub(super) fn decode(decoder: &mut Decoder, field: &Field<'_>) -> Vec<Located<String>> {
    let items = decoder.list(field).unwrap_or_default();
    items.iter().filter_map(|item| root(decoder, item)).collect()
}

fn root(decoder: &mut Decoder, item: &Field<'_>) -> Option<Located<String>> {
    let mut fields = decoder.mapping(item)?;
    let kind = fields.optional("type").and_then(|f| Some((decoder.string(&f)?.to_owned(), f)));
    match kind {
        Some((kind, _)) if kind == "local" => {}
        Some((kind, f)) => {
            let hint = "clone it into `.harness/plugins/`, or name a folder with `type: local`".to_owned();
            decoder.error_with(
                &f,
                format!("{}: sources of type {} are not fetched", quoted(&f.path), quoted(&kind)),
                Some(hint),
            );
            return None;
        }
        None => decoder.error(item, format!("{} has no `type`", quoted(&item.path))),
    }
    let path = fields.optional("path");
    let Some(field) = path else {
        decoder.error(item, "artifact_sources local source requires path".to_owned());
        return None;
    };
    let root = decoder.parse_one(&field, |text| {
        let text = text.strip_suffix('/').unwrap_or(text);
        match text {
            "" | "." | ".." => Err("name a folder with artifacts".to_owned()),
            ".harness" => Err("`.harness` is always read".to_owned()),
            _ if text.starts_with('/') || text.chars().any(char::is_control) => {
                Err("write a path that is relative to the project".to_owned())
            }
            _ => Ok(text.to_owned()),
        }
    });
    decoder.finish(fields, Unknown::Refuse);
    root.map(|root| Located::new(root, decoder.position(field.span())))
}
