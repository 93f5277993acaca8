//! Secrets: what may be used without being seen, and where the host may put it.
//!
//! Two questions for each use. Does the grant hold the secret ([`Grant::decide_secret`])? And is what it would be given
//! to, a host or a command, one that the secret is for ([`Secret::decide_target`], [`Secret::decide_command`])?

use super::command::{CommandRule, TOO_LONG, is_identifier};
use super::grant::Grant;
use super::layer::{Origin, Scope};
use super::network::{HostRule, Scheme, Target, shown};
use super::refusal::Refusal;
use super::watch::Request;

/// A secret by name. Its value is not in here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// The name that scripts use for it.
    pub name: String,
    /// What holds it.
    pub holder: Holder,
    /// The hosts that may be sent it. Empty: none.
    pub hosts: Vec<HostRule>,
    /// The commands that may be given it. Empty: none.
    pub exec: Vec<CommandRule>,
    /// The place that names it, for hints.
    pub origin: Origin,
}

/// What holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A variable of the host's environment.
    Variable(String),
    /// A file: a path from the folder that holds `.harness/`, from the home folder where it begins with `~/`, or
    /// absolute.
    File(String),
}

impl Secret {
    /// Whether it may be sent to where a request goes. In the clear it goes only where a rule says that it stays inside:
    /// to an address that is not public, or to a host with `private: true`.
    pub fn decide_target(&self, target: &Target) -> Result<(), Refusal> {
        let covering = || self.hosts.iter().filter(|rule| rule.covers(target));
        if covering().next().is_none() {
            let reason = format!("the secret `{}` is not for the host `{target}`", self.name);
            return Err(Refusal::new(reason, self.add(&HostRule::item_for(target, false), "hosts")));
        }
        if target.scheme() == Scheme::Http && !covering().any(HostRule::stays_inside) {
            let reason = format!("the secret `{}` would go to `{target}` in the clear", self.name);
            return Err(Refusal::new(reason, "ask with `https`"));
        }
        Ok(())
    }

    /// Whether a command may be given it.
    pub fn decide_command(&self, program: &str, args: &[String]) -> Result<(), Refusal> {
        if self.exec.iter().any(|rule| rule.covers(program, args)) {
            return Ok(());
        }
        let reason = format!("the secret `{}` is not for the command `{}`", self.name, shown(program));
        Err(match CommandRule::shown_for(program, args) {
            Some(Ok(rule)) => Refusal::new(reason, self.add(&rule, "exec")),
            Some(Err(())) => {
                let list = self.origin.key(&format!("secrets.{}.exec", self.name));
                Refusal::new(reason, format!("{TOO_LONG} `{list}`"))
            }
            None => Refusal::always(reason),
        })
    }

    fn add(&self, value: &str, key: &str) -> String {
        let list = self.origin.key(&format!("secrets.{}.{key}", self.name));
        let places = &self.origin.places;
        format!("add `{value}` to `{list}` in `{}`", self.origin.at(places.key(key).or(places.own())))
    }
}

impl Grant {
    /// Whether a secret may be used by name.
    pub fn decide_secret(&self, name: &str) -> Result<(), Refusal> {
        let quoted = shown(name);
        self.every(
            |layer| layer.secrets.as_ref(),
            |names| names.iter().any(|granted| granted == name),
            |origin| match origin.scope {
                // No policy names a secret so.
                _ if !is_identifier(name) => Refusal::always(format!("there is no secret `{quoted}`")),
                Scope::Project | Scope::Default => Refusal::new(
                    format!("there is no secret `{quoted}`"),
                    format!(
                        "name it in `{}`: `{name}: {{ env: VARIABLE, hosts: [HOST] }}` in `sandbox.secrets`",
                        origin.file
                    ),
                ),
                Scope::Machine
                | Scope::Source(_)
                | Scope::Server(_)
                | Scope::Artifact
                | Scope::Trusted(_)
                | Scope::Asked
                | Scope::Call => {
                    Refusal::new(format!("the secret `{quoted}` is not granted"), origin.add(name, "secrets"))
                }
            },
        )?;
        self.note(|| Request::Secret(name.to_owned()));
        Ok(())
    }
}
