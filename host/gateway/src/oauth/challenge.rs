//! What a server says of the authorization that it wants: the header `WWW-Authenticate` (RFC 9110, section 11; RFC 6750).

use serde::{Deserialize, Serialize};

use harness_artifact::policy::mcp::is_scope;

/// Bytes of a header that is read.
const MAX_BYTES: usize = 8192;

/// Scopes of one text, and of one login.
pub(super) const MAX_SCOPES: usize = 64;

/// What is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Challenge {
    /// Where the server describes its authorization.
    pub(crate) resource_metadata: Option<String>,
    /// What the token has to allow.
    pub(crate) scopes: Vec<String>,
}

impl Challenge {
    /// Reads the header of an answer, of which there may be several. Without one of `Bearer`, nothing more is known.
    pub(crate) fn read<'h>(headers: impl Iterator<Item = &'h str>) -> Self {
        headers.filter(|header| header.len() <= MAX_BYTES).find_map(bearer).unwrap_or_default()
    }
}

fn bearer(header: &str) -> Option<Challenge> {
    let mut challenge = None;
    let mut rest = header;
    while let Some((name, after)) = token(rest) {
        let (name, value, next) = match after.strip_prefix('=') {
            Some(after) => {
                let (value, next) = value(after)?;
                (name, Some(value), next)
            }
            None => (name, None, after),
        };
        rest = next.trim_start_matches([' ', '\t', ',']);
        let Some(value) = value else {
            // The name of a scheme: what follows belongs to it.
            if challenge.is_some() {
                break;
            }
            challenge = name.eq_ignore_ascii_case("bearer").then(Challenge::default);
            continue;
        };
        let Some(challenge) = &mut challenge else { continue };
        match name.to_ascii_lowercase().as_str() {
            "resource_metadata" => challenge.resource_metadata = Some(value),
            "scope" => challenge.scopes = scopes(&value),
            _ => {}
        }
    }
    challenge
}

/// The scopes of a text, each once, in its order.
pub(crate) fn scopes(text: &str) -> Vec<String> {
    let mut scopes: Vec<String> = Vec::new();
    for scope in text.split(' ').filter(|scope| is_scope(scope)).take(MAX_SCOPES) {
        if !scopes.iter().any(|known| known == scope) {
            scopes.push(scope.to_owned());
        }
    }
    scopes
}

/// The token that a text begins with, and the rest.
fn token(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches([' ', '\t', ',']);
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let end = text.find(|c: char| !is_token(c)).unwrap_or(text.len());
    let (token, rest) = text.split_at_checked(end)?;
    (!token.is_empty()).then_some((token, rest))
}

/// The value of a parameter, and the rest.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        let (value, rest) = text.split_at_checked(end)?;
        return Some((value.to_owned(), rest));
    };
    let (mut value, mut chars) = (String::new(), quoted.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, quoted.get(at.saturating_add(1)..)?)),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(header: &str) -> (Option<String>, Vec<String>) {
        let challenge = Challenge::read(std::iter::once(header));
        (challenge.resource_metadata, challenge.scopes)
    }

    #[test]
    fn parameters_are_those_of_bearer() {
        let url = Some("https://a.example/x".to_owned());
        let list = |scopes: &[&str]| scopes.iter().map(|&scope| scope.to_owned()).collect::<Vec<_>>();
        for (header, resource, scopes) in [
            ("Bearer", None, &[][..]),
            ("Bearer resource_metadata=\"https://a.example/x\", scope=\"a b a\"", url.clone(), &["a", "b"]),
            (
                "bearer error=insufficient_scope,scope=a , Resource_Metadata=\"https://a.example/x\"",
                url.clone(),
                &["a"],
            ),
            ("Basic realm=\"x, Bearer scope=no\", Bearer scope=\"a\\\" b\"", None, &["b"]),
            ("Basic realm=x", None, &[]),
            ("Bearer scope=\"a", None, &[]),
            ("Bearer scope=a, Digest resource_metadata=\"https://b.example/\"", None, &["a"]),
            ("", None, &[]),
        ] {
            assert_eq!(read(header), (resource, list(scopes)), "{header}");
        }
        let two = ["Basic realm=x", "Bearer scope=a"];
        assert_eq!(Challenge::read(two.into_iter()).scopes, ["a"]);
    }

    proptest! {
        #[test]
        fn no_header_is_too_strange(header in "(Bearer|scope|=|\"|\\\\| |,|a){0,30}") {
            let _ = read(&header);
        }
    }
}
