//! Where packages come from.

use harness_artifact::policy::mcp::Installer;
use harness_capability::env::Variables;
use harness_policy::command::CommandNetwork;
use harness_policy::network::HostRule;
use url::Url;

use crate::failure::Failure;

/// A registry of packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Registry {
    /// Its address, as an installer takes it.
    pub(super) url: Url,
    /// The hosts that it is asked at, and that its files come from.
    pub(super) network: CommandNetwork,
}

/// The public index of Python, and the host that its files come from.
const PYPI: (&str, &str) = ("pypi.org", "files.pythonhosted.org:443");

/// The variables of the operator that name another registry for an installer, and the address of the public one.
const fn known(installer: Installer) -> (&'static [&'static str], &'static str) {
    match installer {
        Installer::Npm => (&["npm_config_registry", "NPM_CONFIG_REGISTRY"], "https://registry.npmjs.org/"),
        Installer::Uv => (&["UV_DEFAULT_INDEX", "UV_INDEX_URL"], "https://pypi.org/simple"),
    }
}

impl Registry {
    /// The public one, or the one that a variable of the operator names, which may be in a private network. Everything comes
    /// from one host, but for PyPI.
    ///
    /// # Errors
    ///
    /// The variable does not name one that can be used.
    pub(super) fn of(installer: Installer, variables: &Variables) -> Result<Self, Failure> {
        let (names, public) = known(installer);
        let value = |name: &&'static str| Some((*name, variables.value(name).filter(|value| !value.is_empty())?));
        match names.iter().find_map(value) {
            // The value may hold a password.
            Some((name, text)) => Self::read(&text, true).map_err(|why| format!("the variable `{name}`: {why}")),
            None => Self::read(public, false),
        }
        .map_err(Failure::Broken)
    }

    fn read(text: &str, is_private: bool) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| format!("it is not the address of a registry: {error}"))?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err("it is not the address of a registry: it has neither `https` nor `http`".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a registry with a user name or a password cannot be used".to_owned());
        }
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err("it is not the address of a registry: it has no host".to_owned());
        };
        let own = HostRule::parse(&format!("{host}:{port}"))?;
        if own.literal().is_none() {
            return Err("it is not the address of one host".to_owned());
        }
        let mut rules = vec![own.private(is_private)?];
        if host == PYPI.0 {
            rules.push(HostRule::parse(PYPI.1)?.private(is_private)?);
        }
        Ok(Self { url, network: CommandNetwork::hosts(rules)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(installer: Installer, given: &[(&str, &str)]) -> Result<(String, Vec<String>), String> {
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let registry = Registry::of(installer, &given.collect()).map_err(|failure| failure.to_string())?;
        let CommandNetwork::Hosts(rules) = registry.network else { panic!("{:?}", registry.network) };
        Ok((registry.url.to_string(), rules.iter().map(HostRule::to_string).collect()))
    }

    #[test]
    fn the_operator_may_name_another_one() {
        let told =
            |url: &str, rules: &[&str]| Ok((url.to_owned(), rules.iter().map(|&rule| rule.to_owned()).collect()));
        assert_eq!(of(Installer::Npm, &[]), told("https://registry.npmjs.org/", &["registry.npmjs.org:443"]));
        assert_eq!(
            of(Installer::Uv, &[]),
            told("https://pypi.org/simple", &["pypi.org:443", "files.pythonhosted.org:443"])
        );
        let own = of(Installer::Npm, &[("NPM_CONFIG_REGISTRY", "http://localhost:8/npm/"), ("UV_DEFAULT_INDEX", "x")]);
        assert_eq!(own.unwrap().0, "http://localhost:8/npm/");
        assert_eq!(
            of(Installer::Uv, &[("UV_INDEX_URL", "https://pypi.example.com/simple")]).unwrap().0,
            "https://pypi.example.com/simple"
        );
        let pypi = of(Installer::Uv, &[("UV_DEFAULT_INDEX", "https://pypi.org/simple")]).unwrap();
        assert_eq!(pypi.1.len(), 2, "{pypi:?}");
        // One that is empty names none.
        assert_eq!(of(Installer::Npm, &[("npm_config_registry", "")]), of(Installer::Npm, &[]));
    }

    #[test]
    fn what_cannot_be_used_is_refused_without_its_value() {
        for (value, why) in [
            ("x", "it is not the address of a registry: relative URL without a base"),
            ("file:///tmp", "it is not the address of a registry: it has neither `https` nor `http`"),
            ("https://ada:pass@npm.example.com/", "a registry with a user name or a password cannot be used"),
            ("https://token@npm.example.com/", "a registry with a user name or a password cannot be used"),
            ("https://*.example.com/", "it is not the address of one host"),
        ] {
            let told = of(Installer::Npm, &[("npm_config_registry", value)]);
            assert_eq!(told, Err(format!("the variable `npm_config_registry`: {why}")));
        }
    }
}
