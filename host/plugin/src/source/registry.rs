//! A plugin in a registry of the Open Container Initiative: `oci://host/name:tag`, or `oci://host/name@sha256:digest`.

use std::fmt;

use url::Url;

use super::address;

/// Bytes of a name and of a tag, as the distribution specification has them.
const MAX_NAME: usize = 255;
const MAX_TAG: usize = 128;

/// An artifact of a registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegistrySource {
    host: String,
    name: String,
    version: Version,
}

/// Which artifact of a name it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// The one that a tag is at, which may move.
    Tag(String),
    /// The one with this digest of its manifest, as `sha256:` and hexadecimal digits.
    Digest(String),
}

impl RegistrySource {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let form = || "it has the form `oci://HOST/NAME:TAG` or `oci://HOST/NAME@sha256:DIGEST`".to_owned();
        let rest = text.strip_prefix("oci://").ok_or_else(form)?;
        let (host, rest) = rest.split_once('/').ok_or_else(form)?;
        let (name, version) = match rest.split_once('@') {
            Some((name, digest)) => (name, Version::Digest(digest.to_owned())),
            None => {
                let (name, tag) = rest.split_once(':').ok_or_else(form)?;
                (name, Version::Tag(tag.to_owned()))
            }
        };
        address(&format!("https://{host}/"))?;
        let is_good = match &version {
            Version::Tag(tag) => is_tag(tag),
            Version::Digest(digest) => is_digest(digest),
        };
        if name.len() > MAX_NAME || !name.split('/').all(is_part) || !is_good {
            return Err(form());
        }
        Ok(Self { host: host.to_owned(), name: name.to_owned(), version })
    }

    /// Host and port of the registry, as the source has them.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The name of the repository.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which artifact it is.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The registry, asked like this.
    ///
    /// # Errors
    ///
    /// The host is none that an address has.
    pub fn url(&self, scheme: &str) -> Result<Url, String> {
        Url::parse(&format!("{scheme}://{}/", self.host)).map_err(|error| error.to_string())
    }
}

/// Whether a text is a digest of SHA-256.
pub fn is_digest(text: &str) -> bool {
    let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix("sha256:").is_some_and(|digits| digits.len() == 64 && digits.bytes().all(hex))
}

fn is_tag(tag: &str) -> bool {
    let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let rest = |c: char| first(c) || matches!(c, '.' | '-');
    tag.len() <= MAX_TAG && tag.starts_with(first) && tag.chars().all(rest)
}

/// A part of a name: small letters and digits, with separators between them.
fn is_part(part: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    part.starts_with(plain)
        && part.ends_with(plain)
        && part.chars().all(|c| plain(c) || matches!(c, '.' | '_' | '-'))
        && !["..", "___", "._", "_.", ".-", "-.", "_-", "-_"].iter().any(|odd| part.contains(odd))
}

impl fmt::Display for RegistrySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Version::Tag(tag) => write!(f, "oci://{}/{}:{tag}", self.host, self.name),
            Version::Digest(digest) => write!(f, "oci://{}/{}@{digest}", self.host, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;

    #[test]
    fn sources_of_registries() {
        let digest = format!("sha256:{}", "0f".repeat(32));
        for text in [
            "oci://ghcr.io/acme/units:1.2".to_owned(),
            "oci://localhost:5000/units:v1_2-rc.1".to_owned(),
            "oci://[::1]:5000/a/b__c/d-e:x".to_owned(),
            format!("oci://ghcr.io/acme/units@{digest}"),
        ] {
            let Ok(Source::Registry(source)) = Source::parse(&text) else { panic!("{text}") };
            assert_eq!(source.to_string(), text);
        }
        let form = "it has the form `oci://HOST/NAME:TAG` or `oci://HOST/NAME@sha256:DIGEST`";
        for (text, why) in [
            ("oci://ghcr.io/acme", form),
            ("oci://ghcr.io", form),
            ("oci:ghcr.io/a:b", form),
            ("oci://ghcr.io/a:", form),
            ("oci://ghcr.io/A:1", form),
            ("oci://ghcr.io/a/../b:1", form),
            ("oci://ghcr.io/a//b:1", form),
            ("oci://ghcr.io/a:1/2", form),
            ("oci://ghcr.io/a:-x", form),
            ("oci://ghcr.io/a@sha256:00", form),
            ("oci://ghcr.io/a@sha512:00", form),
            ("oci://ghcr.io/a:1@sha256:00", form),
            ("oci://ada@ghcr.io/a:1", "an address with a user or a password is not kept"),
            ("oci://GHCR.io/a:1", "write the address as `https://ghcr.io/`"),
            ("oci://ghcr.io:443/a:1", "write the address as `https://ghcr.io/`"),
        ] {
            let told = Source::parse(text).unwrap_err().to_string();
            assert!(told.ends_with(&format!(" is not a source: {why}")), "{text}: {told}");
        }
    }
}
