//! Whether secrets may be given to anything that they were not for.

use super::{Example, Grant, Wider, certain, command, host};
use crate::command::{CommandRule, ExecRules};
use crate::layer::Layer;
use crate::network::{HostRule, NetworkRules};
use crate::secret::{Holder, Secret};

/// What the definitions of `new` allow and those of `old` do not: at most one example for each key of each secret.
pub fn wider_secrets<'a>(
    old: impl Iterator<Item = &'a Secret> + Clone,
    new: impl Iterator<Item = &'a Secret>,
) -> Vec<Wider> {
    let mut found = Vec::new();
    for now in new {
        let name = &now.name;
        let mut tell = |key: &str, example: Option<Example>| {
            found.extend(example.map(|example| Wider { key: format!("secrets.{name}{key}"), example }));
        };
        // One that was not there is a name that grants did not hold.
        let Some(before) = old.clone().find(|secret| secret.name == *name) else { continue };
        if before.holder != now.holder {
            tell(
                "",
                certain(
                    format!("using what {} holds", held(&now.holder)),
                    &format!("it is what {} holds", held(&before.holder)),
                ),
            );
        }
        let refused = format!("the secret `{name}` is not for it");
        let to = |example: Example| match example {
            Example::Certain { what, .. } => {
                Example::Certain { what: format!("giving it to {what}"), refused: refused.clone() }
            }
            Example::Perhaps => Example::Perhaps,
        };
        tell(".hosts", host(&hosts(before, &before.hosts), &hosts(now, &now.hosts)).map(to));
        tell(".exec", command(&commands(before, &before.exec), &commands(now, &now.exec), true).map(to));
    }
    found
}

fn held(holder: &Holder) -> String {
    match holder {
        Holder::Variable(name) => format!("the variable `{name}`"),
        Holder::File(path) => format!("the file `{path}`"),
    }
}

fn hosts(secret: &Secret, allow: &[HostRule]) -> Grant {
    Grant::new(vec![Layer {
        network: Some(NetworkRules { allow: allow.to_vec() }),
        ..Layer::silent(secret.origin.clone())
    }])
}

fn commands(secret: &Secret, allow: &[CommandRule]) -> Grant {
    let exec = ExecRules { allow: allow.to_vec(), ..ExecRules::default() };
    Grant::new(vec![Layer { exec: Some(exec), ..Layer::silent(secret.origin.clone()) }])
}
