//! `trusted_sources`: where plugins may come from, what they have to prove, and the most that they may do. The project's
//! list and the host policy's both have to accept a plugin.

use serde_json::json;

use super::layer;
use crate::decode::{Decoder, Field};
use crate::diagnostic::Position;
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use crate::shape::{self, Read, Schema, Shape};
use crate::yaml::Value;
use harness_policy::layer::{Layer, Origin, Scope};
use harness_policy::signer::Signer;
use harness_policy::text::quoted;
use harness_policy::trust::{self, Provenance, Require, SourcePattern, TrustRule};

/// Entries at most, and signers of one.
const MOST: usize = 1_000;
const MOST_SIGNERS: usize = 100;
/// What the addresses of git repositories begin with.
const FETCHED: [&str; 2] = ["https://", "file:///"];

/// An entry of the list.
#[derive(Debug, Clone, PartialEq)]
pub struct TrustedSource {
    /// The sources that it is about, and what it requires.
    pub rule: TrustRule,
    /// The most that a plugin from there may do. It speaks of every capability.
    pub max: Option<Layer>,
    /// Whether the sources may be at addresses that are not public.
    pub is_private: bool,
    /// The secret that a registry is shown.
    pub credentials: Option<String>,
    /// Where it is.
    pub position: Position,
}

/// The most that one plugin may do, because of where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// The plugin, such as `plugins/acme`.
    pub source: String,
    /// The most.
    pub layer: Layer,
    /// Whether the host policy says so, and not the project's.
    pub of_machine: bool,
}

keys! {
    /// The keys of an entry.
    EntryKeys: Unknown::Refuse;
    /// The sources, such as `./plugins/*` or `git+https://github.com/acme/*`: one, or a beginning that ends in `/`, `@` or
    /// `:`, and `*`.
    required source: SourcePattern;
    /// The keys whose signatures count, with `require: signature`: `RWQ...` of minisign, `ssh-ed25519 AAAA...` of SSH, or a
    /// public key in PEM of sigstore.
    given signers: Vec<Located<Signer>>;
    /// `signature` by one of the signers, `pin` in `harness.lock`, or `none`. Default: `pin`.
    given require: Require;
    /// The most that a plugin from there may do. A key that is missing grants nothing.
    given max: Layer;
    /// Whether the sources may be at addresses that are not public. Default: false.
    given private: bool;
    /// The secret of `sandbox.secrets` with `USER:PASSWORD` for a registry, in the project's policy.
    given credentials: String;
}

/// An item of the list: an entry, or the address of a git repository, of which all is trusted, pinned.
pub(super) struct Item;

impl Shape for TrustedSource {
    fn schema() -> Schema {
        keys::schema::<EntryKeys<'_>>()
    }
}

impl Shape for Item {
    fn schema() -> Schema {
        shape::schema(json!({"anyOf": [TrustedSource::schema(), {"type": "string"}]}))
    }
}

impl Shape for SourcePattern {
    fn schema() -> Schema {
        let path = r"\.\.?/|/|\.harness/|.+/plugins/|\*$";
        shape::schema(json!({"type": "string", "pattern": format!("^({path}|[^/]+://[^/]+/)")}))
    }
}

impl Read for SourcePattern {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, Self::parse)
    }
}

impl Shape for Signer {
    fn schema() -> Schema {
        shape::schema(
            json!({"type": "string", "pattern": r"^\s*(RW[QRST]|ssh-ed25519 AAAA|MFkwEwYHKoZI|MCowBQYDK2Vw|-----BEGIN PUBLIC KEY-----)"}),
        )
    }
}

impl Read for Signer {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, Self::parse)
    }
}

impl Shape for Require {
    fn schema() -> Schema {
        shape::words(Self::WORDS.map(|(word, _)| word))
    }
}

impl Read for Require {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        shape::word(decoder, field, &Self::WORDS)
    }
}

/// The list of a project's policy.
pub(super) fn of_project(decoder: &mut Decoder, field: &Field<'_>, file: &str) -> Vec<TrustedSource> {
    let items = bounded(decoder, field).unwrap_or_default();
    items.iter().enumerate().filter_map(|(number, one)| item(decoder, one, file, number)).collect()
}

/// The list of a host policy.
pub(super) fn of_machine(decoder: &mut Decoder, field: &Field<'_>, file: &str) -> Vec<TrustedSource> {
    let items = bounded(decoder, field).unwrap_or_default();
    let mut read = Vec::new();
    for (number, item) in items.iter().enumerate() {
        let entry = self::item(decoder, item, file, number);
        if entry.as_ref().is_some_and(|entry| entry.credentials.is_some()) {
            let hint = "write it in the project's policy, which has the secrets".to_owned();
            decoder.error_with(item, format!("{} has `credentials`", quoted(&item.path)), Some(hint));
        }
        read.extend(entry);
    }
    read
}

/// An item: a mapping, or the address of a git repository.
fn item(decoder: &mut Decoder, field: &Field<'_>, file: &str, number: usize) -> Option<TrustedSource> {
    let Value::Str(address) = &field.node.value else { return entry(decoder, field, file, number) };
    let source = match SourcePattern::repository(address) {
        Ok(source) => source,
        Err(why) => {
            decoder.error(field, format!("{}: {why}", quoted(&field.path)));
            return None;
        }
    };
    if !FETCHED.iter().any(|scheme| address.starts_with(scheme)) {
        let what = format!("{} is an address that nothing is fetched from", quoted(&field.path));
        decoder.warn(field, what, "write that of a git repository, `https://HOST/REPOSITORY`, or `{ source: ... }`");
    }
    let rule = TrustRule { source, signers: Vec::new(), require: Require::default() };
    let position = decoder.position(field.span());
    Some(TrustedSource { rule, max: None, is_private: false, credentials: None, position })
}

fn bounded<'n>(decoder: &mut Decoder, field: &Field<'n>) -> Option<Vec<Field<'n>>> {
    let items = decoder.list(field)?;
    if items.len() > MOST {
        decoder.error(field, format!("{} has more than {MOST} entries", quoted(&field.path)));
        return None;
    }
    Some(items)
}

fn entry(decoder: &mut Decoder, field: &Field<'_>, file: &str, number: usize) -> Option<TrustedSource> {
    let keys: EntryKeys<'_> = decoder.keys(field)?;
    if keys.source.field().is_none() {
        decoder.error(field, format!("{} has no `source`", quoted(&field.path)));
    }
    let (source, named) = (keys.source.read(decoder), keys.signers.read(decoder));
    let require = keys.require.field().map(|_| keys.require.read(decoder)).unwrap_or(Some(Require::default()));
    let signers: Vec<Signer> = named.into_iter().flatten().map(|signer| signer.value).collect();
    match (require, keys.signers.field()) {
        (Some(Require::Signature), None) => {
            let hint = "name the keys that count: `signers: [RWQ...]`".to_owned();
            decoder.error_with(field, format!("{} requires a signature, by nobody", quoted(&field.path)), Some(hint));
        }
        (Some(Require::Signature), Some(list)) if !(1..=MOST_SIGNERS).contains(&signers.len()) => {
            decoder.error(list, format!("{} names 1 to {MOST_SIGNERS} keys", quoted(&list.path)));
        }
        (Some(Require::Pin | Require::None), Some(list)) => {
            let hint = "write `require: signature` beside it".to_owned();
            decoder.error_with(list, format!("{} requires nothing by itself", quoted(&list.path)), Some(hint));
        }
        _ => {}
    }
    let origin = Origin::new(file, Scope::Trusted(number));
    let max = keys.max.field().map(|max| layer::decode(decoder, max, origin));
    let max = match max {
        Some(max) => Some(whole(max?)),
        None => None,
    };
    let is_private = keys.private.read(decoder).unwrap_or_default();
    let credentials = keys.credentials.read(decoder);
    let position = decoder.position(field.span());
    let rule = TrustRule { source: source?, signers, require: require? };
    Some(TrustedSource { rule, max, is_private, credentials, position })
}

/// The same layer that speaks of everything: of what it did not, it grants nothing.
fn whole(layer: Layer) -> Layer {
    Layer {
        fs: Some(layer.fs.unwrap_or_default()),
        network: Some(layer.network.unwrap_or_default()),
        exec: Some(layer.exec.unwrap_or_default()),
        env: Some(layer.env.unwrap_or_default()),
        services: Some(layer.services.unwrap_or_default()),
        secrets: Some(layer.secrets.unwrap_or_default()),
        ..layer
    }
}

/// Whether lists let a source be at an address that is not public: an entry is about it, and each that is says so.
pub fn is_private(lists: &[&[TrustedSource]], source: &str) -> bool {
    let mut entries = lists.iter().filter_map(|list| list.iter().find(|entry| entry.rule.source.matches(source)));
    let first = entries.next().is_some_and(|entry| entry.is_private);
    first && entries.all(|entry| entry.is_private)
}

/// The entry of a list that a plugin is under; none where the list says nothing of it.
///
/// # Errors
///
/// Why the list refuses it, and the entry that does.
pub fn decide<'l>(
    list: &'l [TrustedSource],
    plugin: Provenance<'_>,
) -> Result<Option<&'l TrustedSource>, (String, Option<&'l TrustedSource>)> {
    let rules: Vec<TrustRule> = list.iter().map(|one| one.rule.clone()).collect();
    match trust::decide(&rules, plugin) {
        Ok(number) => Ok(number.and_then(|number| list.get(number))),
        Err((why, number)) => Err((why, number.and_then(|number| list.get(number)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ProjectPolicy;
    use crate::policy::machine::MachinePolicy;

    const KEY: &str = "RWQyUHrYd0ab27mjqZ75GRgdSpqXHVuKKq/eWWvtG2VlNaj3bNCz0hLz";

    /// What is reported of a list, in both policies where they say the same.
    fn told(list: &str) -> Vec<String> {
        let lines = |diagnostics: &crate::diagnostic::Diagnostics| {
            diagnostics.iter().map(|one| one.message.clone()).collect::<Vec<_>>()
        };
        let project = ProjectPolicy::parse("harness.md", &format!("---\ntrusted_sources: {list}\n---\n"));
        let machine = MachinePolicy::parse("policy.yaml", &format!("trusted_sources: {list}\n"));
        assert_eq!(project.0.is_some(), machine.0.is_some(), "{list}");
        assert_eq!(lines(&project.1).len(), lines(&machine.1).len());
        lines(&project.1)
    }

    #[test]
    fn entries() {
        let good = format!(
            "[{{ source: ./a/*, require: signature, signers: [{KEY}] }}, {{ source: ./b }}, {{ source: .harness/plugins/*, require: none, max: {{ env: [A] }} }}]"
        );
        assert_eq!(told(&good), Vec::<String>::new());
        let (policy, _) = ProjectPolicy::parse("harness.md", &format!("---\ntrusted_sources: {good}\n---\n"));
        let list = policy.unwrap().trusted;
        let shown: Vec<_> = list.iter().map(|one| (one.rule.source.to_string(), one.rule.require)).collect();
        let expected = [("./a/*", Require::Signature), ("./b", Require::Pin), (".harness/plugins/*", Require::None)];
        assert_eq!(shown, expected.map(|(source, require)| (source.to_owned(), require)));
        assert_eq!(list[0].rule.signers[0].as_str(), KEY);
        // What `max` does not name it does not grant.
        let max = list[2].max.as_ref().unwrap();
        assert_eq!((max.env.as_deref(), max.services.as_deref()), (Some(&["A".to_owned()][..]), Some(&[][..])));
        for (list, why) in [
            ("[{ require: pin }]", "`trusted_sources[0]` has no `source`"),
            ("[{ source: acme }]", "is not a pattern of sources"),
            ("[{ source: ./a, require: signed }]", "must be signature|pin|none"),
            ("[{ source: ./a, require: signature }]", "`trusted_sources[0]` requires a signature, by nobody"),
            ("[{ source: ./a, require: signature, signers: [] }]", "names 1 to 100 keys"),
            ("[{ source: ./a, require: signature, signers: [DB9B4677D87A5032] }]", "is not the public key of a signer"),
            ("[{ source: ./a, signer: x }]", "unknown key `trusted_sources[0].signer`"),
            ("[{ source: ./a, max: { nets: [] } }]", "unknown key `trusted_sources[0].max.nets`"),
            ("./a", "a list"),
        ] {
            let all = told(list);
            assert!(all.iter().any(|one| one.contains(why)), "{list}: {all:?}");
        }
        let ignored = told(&format!("[{{ source: ./a, signers: [{KEY}] }}]"));
        assert!(ignored[0].ends_with("`trusted_sources[0].signers` requires nothing by itself"), "{ignored:?}");
    }

    #[test]
    fn each_list_has_to_let_a_source_be_at_an_address_that_is_not_public() {
        let of = |list: &str| {
            let (policy, _) = ProjectPolicy::parse("harness.md", &format!("---\ntrusted_sources: {list}\n---\n"));
            policy.unwrap().trusted
        };
        let open = of("[{ source: git+https://a/x/*, private: true, credentials: A }]");
        let closed = of("[{ source: git+https://a/x/y }, { source: git+https://a/x/*, private: true }]");
        assert_eq!(open[0].credentials.as_deref(), Some("A"));
        let (one, other) = ("git+https://a/x/y", "git+https://a/x/z");
        for (lists, of_one, of_other) in [
            (&[][..], false, false),
            (&[&open[..]][..], true, true),
            (&[&closed[..]], false, true),
            (&[&open[..], &closed[..]], false, true),
            (&[&open[..], &[]], true, true),
        ] {
            assert_eq!((is_private(lists, one), is_private(lists, other)), (of_one, of_other));
        }
        assert!(!is_private(&[&open], "git+https://b/x/y"));
        let (policy, told) =
            MachinePolicy::parse("policy.yaml", "trusted_sources: [{ source: ./a, credentials: A }]\n");
        let told: Vec<String> = told.iter().map(|one| one.message.clone()).collect();
        assert_eq!((policy.is_none(), told), (true, vec!["`trusted_sources[0]` has `credentials`".to_owned()]));
    }

    #[test]
    fn addresses_of_git_repositories() {
        let both = |list: &str| {
            let (project, one) = ProjectPolicy::parse("harness.md", &format!("---\ntrusted_sources: {list}\n---\n"));
            let (machine, other) = MachinePolicy::parse("policy.yaml", &format!("trusted_sources: {list}\n"));
            let rules = |list: Vec<TrustedSource>| list.into_iter().map(|one| one.rule).collect::<Vec<_>>();
            let (project, machine) = (rules(project.unwrap().trusted), rules(machine.unwrap().trusted));
            assert_eq!((&project, one.warnings()), (&machine, other.warnings()), "{list}");
            (project, one.warnings())
        };
        let (rules, warnings) = both("[https://github.com/acme/tools, { source: ./a }]");
        assert_eq!(warnings, 0);
        assert_eq!(rules[0].source, SourcePattern::repository("https://github.com/acme/tools").unwrap());
        assert_eq!((rules[0].require, rules[1].source.to_string()), (Require::Pin, "./a".to_owned()));
        // One that nothing is fetched from still closes the list.
        for odd in ["git@github.com:acme/tools", "acme", "http://a/b"] {
            let (rules, warnings) = both(&format!("['{odd}']"));
            assert_eq!((rules.len(), warnings), (1, 1), "{odd}");
        }
        assert!(ProjectPolicy::parse("harness.md", "---\ntrusted_sources: ['']\n---\n").0.is_none());
        // A key that was to be this one is not nothing.
        assert!(ProjectPolicy::parse("harness.md", "---\ntrusted_source: [{ source: ./a }]\n---\n").0.is_none());
    }
}
