//! `sandbox.secrets`: which variables hold something secret, and which hosts may get it. The secret itself is in no
//! file.

use super::layer;
use crate::artifact::decode::{Decoder, Field, Unknown};
use crate::artifact::suggest::quoted;
use crate::policy::network::HostRule;

/// A secret by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// The name that scripts use for it.
    pub name: String,
    /// The variable of the host's environment that holds it.
    pub env: String,
    /// Where it may be sent.
    pub hosts: Vec<HostRule>,
}

pub(super) fn decode(decoder: &mut Decoder, field: &Field<'_>) -> Option<Vec<Secret>> {
    let entries = decoder.mapping(field)?.all();
    Some(entries.into_iter().filter_map(|(key, field)| secret(decoder, &key.text, &field)).collect())
}

fn secret(decoder: &mut Decoder, name: &str, field: &Field<'_>) -> Option<Secret> {
    if let Err(why) = layer::variable(name) {
        decoder.error(field, format!("a secret is named like a variable: {why}"));
    }
    let mut fields = decoder.mapping(field)?;
    let env = match fields.take("env") {
        Some(field) => decoder.parse_one(&field, layer::variable),
        None => {
            decoder.error(field, format!("{} has no `env`", quoted(&field.path)));
            None
        }
    };
    let hosts = fields.take("hosts").map(|f| layer::network(decoder, &f).map(|rules| rules.allow));
    decoder.finish(fields, Unknown::Refuse);
    Some(Secret { name: name.to_owned(), env: env?, hosts: hosts.unwrap_or_else(|| Some(Vec::new()))? })
}
