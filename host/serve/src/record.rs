//! What the store has of a tenant.

use harness_policy::command::changes_programs;
use serde::{Deserialize, Serialize};

/// Characters of the identifier of a tenant.
const MAX_ID: usize = 40;

/// A tenant as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantRecord {
    /// Its identifier: lower-case letters, digits and `-`, as in the name of a host.
    pub id: String,
    /// Its class, by name.
    pub class: String,
    /// Whether it may do anything.
    pub state: State,
    /// Rules that narrow each of its calls, as in `capabilities:`.
    pub policy: Option<String>,
    /// The digest of its project, whose files are a blob of the store.
    pub project: Option<String>,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
    /// Its workspaces beside `default`, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspaces: Vec<String>,
}

/// Whether a tenant may do anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It may.
    Active,
    /// Its keys are refused. What it has stays.
    Suspended,
}

/// What is wrong with the identifier of a tenant, if anything is.
pub fn id_problem(id: &str) -> Option<&'static str> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = (1..=MAX_ID).contains(&id.len()) && id.bytes().all(is_plain);
    let ends_well = !id.starts_with('-') && !id.ends_with('-') && id.starts_with(|c: char| c.is_ascii_lowercase());
    (!(fits && ends_well))
        .then_some("an identifier is 1 to 40 lower-case letters, digits and `-`, and begins with a letter")
}

/// What is wrong with the name of a secret, if anything is.
pub fn secret_problem(name: &str) -> Option<&'static str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = (1..=100).contains(&name.len())
        && name.bytes().all(is_plain)
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if !fits {
        return Some("a name is 1 to 100 letters, digits and `_`, and does not begin with a digit");
    }
    is_of_server(name).then_some("a variable of this name would change how the server or its programs work")
}

/// Whether the server, or a program that it starts, goes by a variable of this name: the secrets of a tenant are its
/// variables, and with a `HOME` of its choice it would have the operator's logins and plugins.
pub(crate) fn is_of_server(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    changes_programs(name) || upper.starts_with("XDG_") || upper.starts_with("HARNESS_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_a_folder_and_nothing_else() {
        for id in ["a", "acme", "acme-2", &"a".repeat(40)] {
            assert_eq!(id_problem(id), None, "{id}");
        }
        for id in ["", "A", "-a", "a-", "1a", "a.b", "..", "a/b", "a b", "ä", &"a".repeat(41), "a\0"] {
            assert!(id_problem(id).is_some(), "{id}");
        }
        assert_eq!(secret_problem("API_KEY2"), None);
        for name in [
            "HOME",
            "home",
            "PATH",
            "XDG_STATE_HOME",
            "XDG_CACHE_HOME",
            "LD_PRELOAD",
            "HARNESS_X",
            "GIT_DIR",
            "https_proxy",
        ] {
            assert!(secret_problem(name).is_some_and(|why| why.contains("the server")), "{name}");
        }
        for name in ["", "2A", "A-B", "A/B", "A=B", "Ä", &"A".repeat(101)] {
            assert!(secret_problem(name).is_some(), "{name}");
        }
    }
}
