//! `catalogues`: where plugins are looked up by name. The project's policy names them, and the host policy says which it may
//! name at most.

use serde_json::json;

use crate::decode::{Decoder, Field};
use crate::diagnostic::{Diagnostic, Position};
use crate::plugin::check_name;
use crate::shape::{self, Named, Read, Schema, Shape};
use harness_policy::text::quoted;
use harness_policy::trust::SourcePattern;

/// Catalogues of a project, and patterns of a host policy.
const MOST: usize = 100;
/// Bytes of a source.
const MAX_BYTES: usize = 4 << 10;

/// A catalogue of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCatalogue {
    /// Its name: what follows `@` in `NAME@CATALOGUE`.
    pub name: String,
    /// Where it is: a folder, or a git repository.
    pub source: String,
    /// Where its entry is.
    pub position: Position,
}

/// The catalogues of a project, by name.
pub(super) struct Catalogues(pub(super) Vec<NamedCatalogue>);

/// The source of a catalogue.
struct CatalogueSource(String);

/// What a source begins with.
const BEGINNINGS: [&str; 5] = ["./", "../", "/", "git+https://", "git+file:///"];

impl Shape for CatalogueSource {
    fn schema() -> Schema {
        shape::schema(json!({"type": "string", "pattern": r"^(\.\.?/|/|git\+https://|git\+file:///)"}))
    }
}

impl Read for CatalogueSource {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, |text| match BEGINNINGS.iter().any(|begin| text.starts_with(begin)) {
            true if text.len() <= MAX_BYTES => Ok(Self(text.to_owned())),
            _ => Err("a catalogue is a folder such as `./catalogue`, or `git+https://HOST/REPOSITORY`".to_owned()),
        })
    }
}

impl Shape for Catalogues {
    fn schema() -> Schema {
        let mut schema = Named::<CatalogueSource>::schema();
        schema.insert("maxProperties".to_owned(), json!(MOST));
        schema.insert("propertyNames".to_owned(), json!({"maxLength": 64, "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"}));
        schema
    }
}

impl Read for Catalogues {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let named: Named<CatalogueSource> = Named::read(decoder, field)?;
        if named.0.len() > MOST {
            decoder.error(field, format!("{} has more than {MOST} entries", quoted(&field.path)));
            return None;
        }
        let mut read = Vec::new();
        for entry in named.0 {
            if let Err(why) = check_name(&entry.name) {
                decoder.diagnostics.push(Diagnostic::error(format!("`catalogues`: {why}")).at(entry.position.clone()));
            }
            read.push(NamedCatalogue { name: entry.name, source: entry.value.0, position: entry.position });
        }
        Some(Self(read))
    }
}

/// The sources of catalogues that a host policy lets a project name; none where it says nothing of them.
pub(super) fn of_machine(decoder: &mut Decoder, field: &Field<'_>) -> Option<Vec<SourcePattern>> {
    let patterns: Vec<SourcePattern> = Vec::read(decoder, field)?;
    if patterns.len() > MOST {
        decoder.error(field, format!("{} has more than {MOST} entries", quoted(&field.path)));
        return None;
    }
    Some(patterns)
}

#[cfg(test)]
mod tests {
    use crate::policy::ProjectPolicy;
    use crate::policy::machine::MachinePolicy;

    fn project(text: &str) -> Result<Vec<(String, String)>, Vec<String>> {
        let (policy, diagnostics) = ProjectPolicy::parse("harness.md", &format!("---\ncatalogues: {text}\n---\n"));
        let named = policy.map(|policy| policy.catalogues.into_iter().map(|one| (one.name, one.source)).collect());
        named.ok_or_else(|| diagnostics.iter().map(|one| one.message.clone()).collect())
    }

    #[test]
    fn catalogues_of_a_project() {
        let pair = |name: &str, source: &str| (name.to_owned(), source.to_owned());
        let named = project("{ acme: ./catalogue, far: 'git+https://a.example/x@v1#dir' }");
        assert_eq!(named, Ok(vec![pair("acme", "./catalogue"), pair("far", "git+https://a.example/x@v1#dir")]));
        for (text, why) in [
            ("{ Acme: ./a }", "`catalogues`: `Acme` is not a name: "),
            ("{ acme: 'oci://a.example/x:1' }", "a catalogue is a folder such as"),
            ("{ acme: 'https://a.example/x' }", "a catalogue is a folder such as"),
            ("[./a]", "`catalogues` must be a mapping"),
        ] {
            let all = project(text).unwrap_err();
            assert!(all.iter().any(|one| one.contains(why)), "{text}: {all:?}");
        }
        assert_eq!(ProjectPolicy::parse("harness.md", "---\n---\n").0.unwrap().catalogues, []);
    }

    #[test]
    fn a_host_policy_names_the_most() {
        let machine = |text: &str| MachinePolicy::parse("policy.yaml", text).0.map(|policy| policy.catalogues);
        assert_eq!(machine("{}"), Some(None));
        assert_eq!(machine("catalogues: []"), Some(Some(Vec::new())));
        let some = machine("catalogues: [git+https://a.example/acme/*]").flatten().unwrap();
        assert!(some[0].matches("git+https://a.example/acme/x") && !some[0].matches("git+https://a.example/other/x"));
        assert_eq!(machine("catalogues: { acme: ./a }"), None);
    }
}
