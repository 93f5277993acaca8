//! Where plugins may come from: patterns of sources, each with what a plugin from there has to prove. The first pattern that
//! matches decides; a source that no pattern matches is refused.

use std::fmt;

use super::signer::Signer;
use super::text::{is_hidden, quoted};

/// Bytes of a pattern.
const MAX_BYTES: usize = 4 << 10;
/// What the sources in git repositories begin with.
const GIT: &str = "git+";
/// What whole names of tags begin with.
const TAGS: &str = "refs/tags/";
/// The folder of plugins in a folder with artifacts.
const PLUGINS: &str = "/plugins/";

/// A pattern of sources: the text of one, a beginning and `*` for any rest, or the address of a git repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePattern {
    /// The source, or what it begins with.
    text: String,
    rest: Rest,
}

/// What follows the text of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    Nothing,
    Any,
    /// A reference and a folder of a git repository, or neither: the text is its address.
    Version,
}

/// What a plugin has to prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Require {
    /// A signature by one of the signers.
    Signature,
    /// The digest that `harness.lock` has.
    #[default]
    Pin,
    /// Nothing.
    None,
}

/// An entry of `trusted_sources`: who may bring plugins from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustRule {
    /// The sources that it is about.
    pub source: SourcePattern,
    /// The keys that count. Empty unless a signature is required.
    pub signers: Vec<Signer>,
    /// What is required.
    pub require: Require,
}

/// What is known of a plugin when its source is decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provenance<'p> {
    /// `harness.lock` names it, or will: its source, and the keys whose signatures of its content were verified.
    Pinned(&'p str, &'p [Signer]),
    /// It lies in the project at this path, and no lock names it.
    Unpinned(&'p str),
}

impl SourcePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// It can match no source, or more than its author can mean.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("{} is not a pattern of sources: {why}", quoted(text)));
        if text.is_empty() || text.len() > MAX_BYTES || text.chars().any(is_hidden) {
            return wrong("write a source, such as `./plugins/*`");
        }
        let (fixed, is_open) = match text.strip_suffix('*') {
            Some(fixed) => (fixed, true),
            None => (text, false),
        };
        if fixed.contains('*') || is_open && !fixed.is_empty() && !fixed.ends_with(['/', '@', ':']) {
            return wrong("`*` stands at the end, after `/`, `@` or `:`");
        }
        if let Some((_, rest)) = fixed.split_once("://") {
            if !rest.contains('/') {
                return wrong("it names a host with everything on it: write at least one more part, such as `/acme/*`");
            }
        } else if !["./", "../", "/", ".harness/"].iter().any(|begin| fixed.starts_with(begin))
            && !fixed.contains(PLUGINS)
            && !fixed.is_empty()
        {
            return wrong("a path begins with `./`, `../`, `/` or `.harness/`, and an address with its scheme");
        }
        Ok(Self { text: fixed.to_owned(), rest: if is_open { Rest::Any } else { Rest::Nothing } })
    }

    /// All of one git repository, by its address: each commit, tag and branch, and each folder.
    ///
    /// # Errors
    ///
    /// It can be the address of none.
    pub fn repository(address: &str) -> Result<Self, String> {
        if address.is_empty() || address.len() > MAX_BYTES || address.chars().any(is_hidden) {
            return Err(format!("{} is not the address of a git repository", quoted(address)));
        }
        Ok(Self { text: address.to_owned(), rest: Rest::Version })
    }

    /// Whether it is about a source. A rest that another program could read as a way out of what is before it matches
    /// nothing.
    pub fn matches(&self, source: &str) -> bool {
        let source = match self.rest {
            Rest::Nothing => return source == self.text,
            Rest::Version => source.strip_prefix(GIT).unwrap_or_default(),
            Rest::Any => source,
        };
        let Some(rest) = source.strip_prefix(&self.text) else { return false };
        if self.rest == Rest::Version {
            // An `@` before another one is of the address, and not of this one.
            let version = rest.split('#').next().unwrap_or_default();
            return version.is_empty() || version.strip_prefix('@').is_some_and(|version| !version.contains('@'));
        }
        if self.text.is_empty() {
            return true;
        }
        let is_plain = !rest.contains(['%', '\\', '?']) && !rest.chars().any(is_hidden);
        let mut parts = rest.split(['/', '#', '@', ':']);
        // Of one repository all versions, and no other repository.
        let is_version = self.text.ends_with(['@', ':']);
        let version = rest.split('#').next().unwrap_or_default();
        let version = version.strip_prefix(TAGS).filter(|tag| !tag.contains('@')).unwrap_or(version);
        is_plain && parts.all(|part| !matches!(part, "" | "." | "..")) && !(is_version && version.contains('/'))
    }
}

impl fmt::Display for SourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.rest == Rest::Any { "*" } else { "" })
    }
}

impl Require {
    /// The words of a policy.
    pub const WORDS: [(&'static str, Self); 3] =
        [("signature", Self::Signature), ("pin", Self::Pin), ("none", Self::None)];
}

/// The entry of a list that a plugin is under, by its number. None where the list has no entry, and for what lies in the
/// project itself and no entry is about.
///
/// # Errors
///
/// Why the list refuses it, as a sentence without a subject, and the number of the entry that does, where one does.
pub fn decide(list: &[TrustRule], plugin: Provenance<'_>) -> Result<Option<usize>, (String, Option<usize>)> {
    let source = match plugin {
        Provenance::Pinned(source, _) | Provenance::Unpinned(source) => source,
    };
    let Some((number, rule)) = list.iter().enumerate().find(|(_, rule)| rule.source.matches(source)) else {
        return match plugin {
            Provenance::Pinned(..) if !list.is_empty() => {
                Err((format!("comes from {}, which no entry is about", quoted(source)), None))
            }
            _ => Ok(None),
        };
    };
    let why = match (rule.require, plugin) {
        (Require::Signature, Provenance::Pinned(_, signers)) => match signers {
            signers if signers.iter().any(|signer| rule.signers.contains(signer)) => return Ok(Some(number)),
            [] => "is not signed".to_owned(),
            [one] => format!("is signed by `{one}`, which is not one of the signers"),
            several => format!("has {} signatures, none by one of the signers", several.len()),
        },
        (Require::Signature, Provenance::Unpinned(_)) => "is not in `harness.lock`, which keeps signatures".to_owned(),
        (Require::Pin, Provenance::Unpinned(_)) => "is not in `harness.lock`".to_owned(),
        (Require::Pin, Provenance::Pinned(..)) | (Require::None, _) => return Ok(Some(number)),
    };
    Err((why, Some(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> SourcePattern {
        SourcePattern::parse(text).unwrap()
    }

    #[test]
    fn patterns() {
        for (text, source, is_match) in [
            ("./acme", "./acme", true),
            ("./acme", "./acme/x", false),
            ("./plugins/*", "./plugins/acme", true),
            ("./plugins/*", "./plugins/a/acme-1.2.0.tar", true),
            ("./plugins/*", "./plugins/", false),
            ("./plugins/*", "./pluginsx/acme", false),
            ("./plugins/*", "./plugins/../evil", false),
            ("./plugins/*", "./plugins/a/../../evil", false),
            ("./plugins/*", "./plugins/a//b", false),
            ("../shared/*", "../shared/acme", true),
            ("../*", "../../acme", false),
            ("/opt/plugins/*", "/opt/plugins/acme", true),
            ("/opt/plugins/*", "/opt/plugins/./acme", false),
            ("/opt/plugins/*", "/opt/evil/acme", false),
            (".harness/plugins/*", ".harness/plugins/acme", true),
            ("vendor/plugins/*", "vendor/plugins/acme", true),
            ("git+https://github.com/acme/*", "git+https://github.com/acme/tools@v1.2#sub/dir", true),
            ("git+https://github.com/acme/*", "git+https://github.com/acmex/tools@v1", false),
            ("git+https://github.com/acme/*", "git+https://github.com/acme/../evil/tools@v1", false),
            ("git+https://github.com/acme/*", "git+https://github.com/acme/%2e%2e/evil/tools@v1", false),
            ("git+https://github.com/acme/*", "git+https://github.com/acme/..\\evil@v1", false),
            ("git+https://github.com/acme/*", "git+https://GitHub.com/acme/tools@v1", false),
            ("git+https://github.com/acme/*", "git+https://github.com/acme/tools@v1#../x", false),
            ("git+https://github.com/acme/*", "git+https://ada@github.com/acme/tools@v1", false),
            ("git+https://github.com/acme/*", "git+https://evil.example/git+https://github.com/acme/x", false),
            ("git+https://github.com/acme/tools@*", "git+https://github.com/acme/tools@v1.2#sub/dir", true),
            ("git+https://github.com/acme/tools@*", "git+https://github.com/acme/tools@v1/x", false),
            ("git+https://github.com/acme/tools@*", "git+https://github.com/acme/tools@refs/tags/v1#sub/dir", true),
            ("git+https://github.com/acme/tools@*", "git+https://github.com/acme/tools@refs/tags/x@v1", false),
            ("git+https://github.com/acme/tools@*", "git+https://github.com/acme/tools@refs/tags/x/y", false),
            ("git+https://github.com/acme/tools@*", "git+https://github.com/acme/tools2@v1", false),
            ("oci://registry.example/ns/*", "oci://registry.example/ns/acme:1.2", true),
            ("oci://registry.example/ns/*", "oci://registry.example/other/acme:1.2", false),
            ("oci://registry.example/ns/acme:*", "oci://registry.example/ns/acme:1.2", true),
            ("oci://registry.example/ns/acme@*", "oci://registry.example/ns/acme@sha256:00", true),
            ("*", "oci://registry.example/ns/acme:1.2", true),
            ("*", "./acme", true),
        ] {
            assert_eq!(pattern(text).matches(source), is_match, "{text} {source}");
            assert_eq!(pattern(text).to_string(), text);
        }
        for (text, why) in [
            ("", "write a source, such as `./plugins/*`"),
            ("./a\u{202e}*", "write a source, such as `./plugins/*`"),
            ("./a*b", "`*` stands at the end, after `/`, `@` or `:`"),
            ("./a*", "`*` stands at the end, after `/`, `@` or `:`"),
            ("./*/*", "`*` stands at the end, after `/`, `@` or `:`"),
            ("plugins/*", "a path begins with `./`, `../`, `/` or `.harness/`"),
            ("acme", "a path begins with `./`, `../`, `/` or `.harness/`"),
            ("git+https://*", "it names a host with everything on it"),
            ("git+https://github.com@*", "it names a host with everything on it"),
            ("oci://registry.example:*", "it names a host with everything on it"),
        ] {
            let told = SourcePattern::parse(text).unwrap_err();
            assert!(told.contains(&format!(" is not a pattern of sources: {why}")), "{told}");
        }
    }

    #[test]
    fn repositories() {
        let pattern = SourcePattern::repository("https://h/acme/tools").unwrap();
        assert_eq!(pattern.to_string(), "https://h/acme/tools");
        for (source, is_match) in [
            ("git+https://h/acme/tools", true),
            ("git+https://h/acme/tools@v1", true),
            ("git+https://h/acme/tools@feature/x#a/b", true),
            ("git+https://h/acme/tools#a@b", true),
            ("git+https://h/acme/tools.git@v1", false),
            ("git+https://h/acme/tools/x@v1", false),
            // A repository with this name: `tools@x/y` at `v1`.
            ("git+https://h/acme/tools@x/y@v1", false),
            ("https://h/acme/tools", false),
            ("oci://h/acme/tools", false),
            ("./https://h/acme/tools", false),
        ] {
            assert_eq!(pattern.matches(source), is_match, "{source}");
        }
        for wrong in ["", "a\u{202e}b", &"a".repeat(5000)] {
            assert!(SourcePattern::repository(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_first_that_matches_decides() {
        let key = |letter: &str| Signer::parse(&format!("RWQ{}", letter.repeat(53))).unwrap();
        let (ours, theirs) = ([key("a")], [key("b")]);
        let rule = |source: &str, require| TrustRule {
            source: pattern(source),
            signers: if require == Require::Signature { ours.to_vec() } else { Vec::new() },
            require,
        };
        let list = [
            rule("./signed/*", Require::Signature),
            rule("./signed/../x", Require::None),
            rule(".harness/plugins/ours", Require::None),
            rule(".harness/plugins/*", Require::Pin),
            rule("./*", Require::Pin),
        ];
        let both = [theirs[0].clone(), ours[0].clone()];
        let why = |plugin| decide(&list, plugin).map_err(|(why, number)| format!("{why} {number:?}"));
        assert_eq!(why(Provenance::Pinned("./signed/a", &ours)), Ok(Some(0)));
        assert_eq!(why(Provenance::Pinned("./signed/a", &both)), Ok(Some(0)));
        assert_eq!(why(Provenance::Pinned("./signed/a", &[])), Err("is not signed Some(0)".to_owned()));
        let other = format!("is signed by `{}`, which is not one of the signers Some(0)", theirs[0]);
        assert_eq!(why(Provenance::Pinned("./signed/a", &theirs)), Err(other));
        assert_eq!(why(Provenance::Pinned("./other", &[])), Ok(Some(4)));
        let none = "comes from `/opt/x`, which no entry is about None";
        assert_eq!(why(Provenance::Pinned("/opt/x", &ours)), Err(none.to_owned()));
        assert_eq!(why(Provenance::Unpinned(".harness/plugins/ours")), Ok(Some(2)));
        assert_eq!(why(Provenance::Unpinned(".harness/plugins/a")), Err("is not in `harness.lock` Some(3)".to_owned()));
        assert_eq!(why(Provenance::Unpinned("vendor/plugins/a")), Ok(None));
        // Without an entry nothing is decided.
        assert_eq!(decide(&[], Provenance::Pinned("/opt/x", &[])), Ok(None));
    }
}
