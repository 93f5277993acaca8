//! `sandbox.secrets`: what holds something secret, and which hosts and commands may get it. The secret itself is in no
//! file of the project's own.

use super::layer::{self, Hosts, Spots, Variable};
use super::mcp::McpServer;
use crate::decode::{Decoder, Field};
use crate::diagnostic::Diagnostic;
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use crate::shape::{Name, Read, Schema, Shape};
use harness_policy::command::CommandRule;
use harness_policy::layer::{Layer, Origin};
use harness_policy::secret::{Holder, Secret};
use harness_policy::text::quoted;

keys! {
    /// The keys of one secret.
    SecretKeys: Unknown::Refuse;
    /// The variable of the host's environment that holds the value.
    given env: Variable;
    /// The file that holds the value: relative to the folder that holds `.harness/`, relative to the home folder with
    /// `~/`, or absolute.
    given file: HeldIn;
    /// Hosts that may receive it, in headers.
    given hosts: Hosts;
    /// Commands that may receive it.
    given exec: Vec<Located<CommandRule>>;
}

impl Shape for Secret {
    fn schema() -> Schema {
        keys::schema::<SecretKeys<'_>>()
    }
}

/// The path of a file with a secret.
struct HeldIn(String);

impl Shape for HeldIn {
    fn schema() -> Schema {
        Name::schema()
    }
}

impl Read for HeldIn {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, path).map(Self)
    }
}

pub(super) fn decode(decoder: &mut Decoder, field: &Field<'_>, origin: &Origin) -> Option<Vec<Located<Secret>>> {
    let mut secrets = Vec::new();
    for (key, field) in decoder.entries(field)? {
        let position = decoder.position(key.span);
        let secret = secret(decoder, &key.text, &field, origin);
        secrets.extend(secret.map(|(mut secret, spots)| {
            secret.origin.places = spots.places(Some(&position));
            Located::new(secret, position)
        }));
    }
    Some(secrets)
}

fn secret(decoder: &mut Decoder, name: &str, field: &Field<'_>, origin: &Origin) -> Option<(Secret, Spots)> {
    if let Err(why) = layer::variable(name) {
        decoder.error(field, format!("a secret is named like a variable: {why}"));
    }
    let keys: SecretKeys<'_> = decoder.keys(field)?;
    let holder = match (keys.env.field(), keys.file.field()) {
        (Some(_), None) => keys.env.read(decoder).map(|name| Holder::Variable(name.0)),
        (None, Some(_)) => keys.file.read(decoder).map(|path| Holder::File(path.0)),
        (Some(_), Some(file)) => {
            decoder.error(file, format!("{} has both `env` and `file`: one of them holds it", quoted(&field.path)));
            None
        }
        (None, None) => {
            decoder.error(field, format!("{} has neither `env` nor `file`", quoted(&field.path)));
            None
        }
    };
    let mut spots = Spots::default();
    let (hosts, exec) = (spots.list(decoder, "hosts", &keys.hosts), spots.list(decoder, "exec", &keys.exec));
    let unread = |there: bool, read: bool| there && !read;
    if unread(keys.hosts.field().is_some(), hosts.is_some()) || unread(keys.exec.field().is_some(), exec.is_some()) {
        // The error was reported.
        return None;
    }
    let (hosts, exec) = (hosts.unwrap_or_default(), exec.unwrap_or_default());
    Some((Secret { name: name.to_owned(), holder: holder?, hosts, exec, origin: origin.clone() }, spots))
}

/// Warns of secrets that nothing may receive.
pub(super) fn warn_of_unused(decoder: &mut Decoder, secrets: &[Located<Secret>], servers: &[McpServer]) {
    for secret in secrets {
        let named = || servers.iter().any(|server| server.secrets().any(|name| name == secret.name));
        if secret.hosts.is_empty() && secret.exec.is_empty() && !named() {
            let hint = "name the `hosts`, or the commands in `exec`, that may receive it";
            let what = format!("the secret {} cannot be used anywhere", quoted(&secret.name));
            decoder.diagnostics.push(Diagnostic::warning(what).at(secret.position.clone()).hint(hint));
        }
    }
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
