//! `sandbox.secrets`: what holds something secret, and which hosts and commands may get it. The secret itself is in no
//! file of the project's own.

use super::layer;
use crate::artifact::decode::{Decoder, Field, Unknown};
use crate::artifact::located::Located;
use crate::artifact::suggest::quoted;
use crate::policy::command::CommandRule;
use crate::policy::layer::{Layer, Origin};
use crate::policy::secret::{Holder, Secret};

pub(super) fn decode(decoder: &mut Decoder, field: &Field<'_>, origin: &Origin) -> Option<Vec<Located<Secret>>> {
    let mut secrets = Vec::new();
    for (key, field) in decoder.mapping(field)?.all() {
        let position = decoder.position(key.span);
        secrets.extend(secret(decoder, &key.text, &field, origin).map(|secret| Located::new(secret, position)));
    }
    Some(secrets)
}

fn secret(decoder: &mut Decoder, name: &str, field: &Field<'_>, origin: &Origin) -> Option<Secret> {
    if let Err(why) = layer::variable(name) {
        decoder.error(field, format!("a secret is named like a variable: {why}"));
    }
    let mut fields = decoder.mapping(field)?;
    let (env, file) = (fields.take("env"), fields.take("file"));
    let holder = match (&env, &file) {
        (Some(env), None) => decoder.parse_one(env, layer::variable).map(Holder::Variable),
        (None, Some(file)) => decoder.parse_one(file, path).map(Holder::File),
        (Some(_), Some(file)) => {
            decoder.error(file, format!("{} has both `env` and `file`: one of them holds it", quoted(&field.path)));
            None
        }
        (None, None) => {
            decoder.error(field, format!("{} has neither `env` nor `file`", quoted(&field.path)));
            None
        }
    };
    let hosts = fields.take("hosts").map(|f| layer::network(decoder, &f).map(|rules| rules.allow));
    let exec = fields.take("exec").map(|f| decoder.parsed(&f, CommandRule::parse));
    decoder.finish(fields, Unknown::Refuse);
    let (hosts, exec) = (hosts.unwrap_or_else(|| Some(Vec::new()))?, exec.unwrap_or_else(|| Some(Vec::new()))?);
    if hosts.is_empty() && exec.is_empty() {
        let hint = "name `hosts` that may be sent it, or commands in `exec` that may be given it";
        decoder.warn(field, format!("the secret {} can be used nowhere", quoted(name)), hint);
    }
    Some(Secret { name: name.to_owned(), holder: holder?, hosts, exec, origin: origin.clone() })
}

fn path(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 4096 || text.chars().any(char::is_control) {
        return Err(format!("{} is not the path of a file", quoted(text)));
    }
    Ok(text.to_owned())
}

/// What is not there in the layers that name secrets: a name that means nothing would grant nothing in silence.
pub(super) fn unknown<'a>(secrets: &'a [Located<Secret>], layer: &'a Layer) -> impl Iterator<Item = &'a String> {
    let names = layer.secrets.iter().flatten();
    names.filter(|name| !secrets.iter().any(|secret| secret.name == **name))
}
