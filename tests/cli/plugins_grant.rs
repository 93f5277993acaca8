//! What a plugin asks for is granted later, and taken back.

use crate::plugins_add::Place;
use crate::pty::Person;

const ALL: &str = "    plugins/acme: { env: [HARNESS_TEST_VARIABLE], fs: { read: [docs] } }\n";

#[test]
fn what_was_not_granted_is_granted_later_and_taken_back() {
    let place = Place::new();
    let digest = place.digest("./acme");
    assert_eq!(place.run(&["plugin", "add", "./acme", "--grant", "none"]).code, 0);
    let denied = "`HARNESS_TEST_VARIABLE` is not granted";
    place.run(&["call", "theirs"]).says(3, denied);
    let policy = place.text(".harness/harness.md");
    insta::assert_snapshot!(place.run(&["plugin", "grant", "acme"]), @r#"
    exit 3
    --- stdout
    plugin acme 1.2.0 from ./acme
      Reads a variable.
      license: MIT
      authors: Ada
      2 files, 325 bytes, sha256:[digest]
      not signed
    tool theirs, of which models read
      | Reads the variable.
    asks for:
      1. read the variable `HARNESS_TEST_VARIABLE` of the environment (not granted)
         reason: Shows it.
      2. read files that match `docs` (not granted)
         reason: Reads pages.
         here: 2 files
      it has no cases: nothing shows what it uses
    its authors write:
      | # Acme
      |
      | Needs nothing.
    --- stderr
    error: nobody consented to what the plugin asks for

    hint: run it at a terminal, grant what you reviewed with `--grant-digest sha256:[digest]`, or use `--grant none`
    "#);
    let other = format!("sha256:{}", "0".repeat(64));
    place.run(&["plugin", "grant", "acme", "--grant-digest", &other]).says(3, "was reviewed");
    assert_eq!(place.text(".harness/harness.md"), policy);
    place.run(&["call", "theirs"]).says(3, denied);
    let ran = place.run(&["plugin", "grant", "acme", "--grant-digest", &digest]);
    assert!(ran.code == 0 && ran.out.ends_with("granted `acme`: 2 of 2 rules\n"), "{ran}");
    assert!(place.text(".harness/harness.md").contains(ALL), "{}", place.text(".harness/harness.md"));
    place.run(&["call", "theirs"]).gives("a value");
    insta::assert_snapshot!(place.run(&["plugin", "grant", "acme"]), @r#"
    exit 0
    --- stdout
    `acme`: all that it asks for is granted
    --- stderr
    "#);
    insta::assert_snapshot!(place.run(&["plugin", "grant", "acme", "--grant", "none"]), @r#"
    exit 0
    --- stdout
    `acme`: nothing of what it asks for is granted
    --- stderr
    "#);
    assert_eq!(place.text(".harness/harness.md"), policy);
    place.run(&["call", "theirs"]).says(3, denied);
    place.run(&["plugin", "verify"]).gives("verified: 1 plugin");
    place.run(&["plugin", "grant", "acne"]).says(2, "acne");
}

#[test]
fn a_person_grants_rule_by_rule_later() {
    let place = Place::new();
    assert_eq!(place.run(&["plugin", "add", "./acme", "--grant", "none"]).code, 0);
    let grant = || {
        let cache = place.cache.path().to_str().unwrap();
        Person::with(&place.project, &["plugin", "grant", "acme"], &[("XDG_CACHE_HOME", cache)])
    };
    let mut person = grant();
    person.sees("Grant this? [y]es and grant all of it, [r]ule by rule, [N]o: ");
    person.types("\n");
    person.sees("nothing is changed");
    assert_eq!(person.leaves(), 3);
    let mut person = grant();
    person.sees("[N]o: ");
    person.types("r\n");
    person.sees("1. read the variable `HARNESS_TEST_VARIABLE` of the environment? [y]es, [N]o: ");
    person.types("\n");
    person.sees("2. read files that match `docs`? [y]es, [N]o: ");
    person.types("y\n");
    person.sees("granted `acme`: 1 of 2 rules");
    assert_eq!(person.leaves(), 0);
    assert!(place.text(".harness/harness.md").contains("    plugins/acme: { fs: { read: [docs] } }\n"));
    // What is granted already is not asked for again.
    let mut person = grant();
    person.sees("2. read files that match `docs` (granted)");
    person.sees("[N]o: ");
    person.types("r\n");
    person.sees("1. read the variable `HARNESS_TEST_VARIABLE` of the environment? [y]es, [N]o: ");
    person.types("y\n");
    person.sees("granted `acme`: 1 of 1 rule");
    assert_eq!(person.leaves(), 0);
    let both = "    plugins/acme: { fs: { read: [docs] }, env: [HARNESS_TEST_VARIABLE] }\n";
    assert!(place.text(".harness/harness.md").contains(both), "{}", place.text(".harness/harness.md"));
    place.run(&["call", "theirs"]).gives("a value");
}

/// An operator who writes the entry by hand accepts that in the same way.
#[test]
fn an_entry_that_was_written_by_hand_is_accepted() {
    let place = Place::new();
    let digest = place.digest("./acme");
    assert_eq!(place.run(&["plugin", "add", "./acme", "--grant", "none"]).code, 0);
    place.change(".harness/harness.md", "  # Only", &format!("  sources:\n{ALL}  # Only"));
    let hint = "restore the entry, or review and accept it with `harness plugin grant acme`";
    place.run(&["call", "theirs"]).says(2, hint);
    let ran = place.run(&["plugin", "grant", "acme", "--grant-digest", &digest]);
    assert!(ran.code == 0 && ran.out.ends_with("accepted what `acme` is granted\n"), "{ran}");
    place.run(&["call", "theirs"]).gives("a value");
}
