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
                Scope::Machine | Scope::Source(_) | Scope::Artifact | Scope::Call => {
                    Refusal::new(format!("the secret `{quoted}` is not granted"), origin.add(name, "secrets"))
                }
            },
        )?;
        self.note(|| Request::Secret(name.to_owned()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::policy::ProjectPolicy;

    const POLICY: &str = "---\nsandbox:\n  secrets:\n    A: { env: A, hosts: [a.test, \"*.b.test:8443\", \"127.0.0.1:80\", \"8.8.8.8\", { host: c.test, private: true }], exec: [\"git push *\", gh] }\n    B: { file: b }\n  sources: { plugins/acme: { secrets: [A] }, plugins/acme/tools/x: { secrets: [] } }\n---\n";

    fn policy() -> ProjectPolicy {
        let (policy, diagnostics) = ProjectPolicy::parse(".harness/harness.md", POLICY);
        policy.unwrap_or_else(|| panic!("{diagnostics:?}"))
    }

    fn told(decided: Result<(), Refusal>) -> String {
        decided.map_or_else(|refusal| format!("{} ({})", refusal.reason, refusal.hint), |()| "yes".to_owned())
    }

    #[test]
    fn hosts() {
        let policy = policy();
        let to = |url: &str| told(policy.secrets[0].decide_target(&Target::of(&url.parse().unwrap()).unwrap()));
        for good in [
            "https://a.test/x",
            "https://A.test./x",
            "https://x.b.test:8443/",
            "http://127.0.0.1/",
            "http://c.test/",
            "https://8.8.8.8/",
        ] {
            assert_eq!(to(good), "yes", "{good}");
        }
        insta::assert_snapshot!(to("https://evil.test/"), @r#"the secret `A` is not for the host `evil.test` (add `{ host: "evil.test:443", methods: [GET], scheme: https }` to `sandbox.secrets.A.hosts` in `.harness/harness.md:4:25`)"#);
        insta::assert_snapshot!(to("https://a.test.evil.test/"), @r#"the secret `A` is not for the host `a.test.evil.test` (add `{ host: "a.test.evil.test:443", methods: [GET], scheme: https }` to `sandbox.secrets.A.hosts` in `.harness/harness.md:4:25`)"#);
        insta::assert_snapshot!(to("https://a.test:8443/"), @r#"the secret `A` is not for the host `a.test:8443` (add `{ host: "a.test:8443", methods: [GET], scheme: https }` to `sandbox.secrets.A.hosts` in `.harness/harness.md:4:25`)"#);
        insta::assert_snapshot!(to("http://a.test/"), @"the secret `A` would go to `a.test` in the clear (ask with `https`)");
        insta::assert_snapshot!(to("http://8.8.8.8/"), @"the secret `A` would go to `8.8.8.8` in the clear (ask with `https`)");
        let none = &policy.secrets[1];
        insta::assert_snapshot!(told(none.decide_target(&Target::of(&"https://a.test/".parse().unwrap()).unwrap())), @r#"the secret `B` is not for the host `a.test` (add `{ host: "a.test:443", methods: [GET], scheme: https }` to `sandbox.secrets.B.hosts` in `.harness/harness.md:5:5`)"#);
    }

    #[test]
    fn commands() {
        let policy = policy();
        let to = |program: &str, args: &[&str]| {
            let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
            told(policy.secrets[0].decide_command(program, &args))
        };
        assert_eq!(to("gh", &["pr", "list"]), "yes");
        assert_eq!(to("git", &["push", "origin"]), "yes");
        insta::assert_snapshot!(to("git", &["log"]), @"the secret `A` is not for the command `git` (add `git log` to `sandbox.secrets.A.exec` in `.harness/harness.md:4:118`)");
        insta::assert_snapshot!(to("env", &[]), @"the secret `A` is not for the command `env` (add `{ argv: [env] }` to `sandbox.secrets.A.exec` in `.harness/harness.md:4:118`)");
        insta::assert_snapshot!(told(policy.secrets[1].decide_command("gh", &[])), @"the secret `B` is not for the command `gh` (add `{ argv: [gh] }` to `sandbox.secrets.B.exec` in `.harness/harness.md:5:5`)");
    }

    #[test]
    fn names() {
        let policy = policy();
        let of = |source: &str, name: &str| told(policy.grant_for(source, None).decide_secret(name));
        assert_eq!((of("tools/x", "A"), of("tools/x", "B")), ("yes".to_owned(), "yes".to_owned()));
        assert_eq!(of("plugins/acme/tools/y", "A"), "yes");
        insta::assert_snapshot!(of("tools/x", "C`"), @"there is no secret `C'` ()");
        insta::assert_snapshot!(of("plugins/acme/tools/y", "B"), @"the secret `B` is not granted (add `B` to `sandbox.sources.plugins/acme.secrets` in `.harness/harness.md:6:39`)");
        insta::assert_snapshot!(of("plugins/acme/tools/x", "A"), @"the secret `A` is not granted (add `A` to `sandbox.sources.plugins/acme/tools/x.secrets` in `.harness/harness.md:6:79`)");
        insta::assert_snapshot!(of("plugins/other/tools/x", "A"), @"the secret `A` is not granted (add `A` to `sandbox.sources.plugins/other.secrets` in `.harness/harness.md`)");
        insta::assert_snapshot!(told(Grant::new(Vec::new()).decide_secret("A")), @"there is no secret `A` (name it in `.harness/harness.md`: `A: { env: VARIABLE, hosts: [HOST] }` in `sandbox.secrets`)");
    }
}
