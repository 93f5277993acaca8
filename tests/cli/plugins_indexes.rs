//! Indexes of catalogues that are kept on this machine, and those that have expired.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use crate::plugins_catalogues::Place;
use crate::project::Ran;

fn index(description: &str) -> String {
    format!("plugins:\n  - {{ name: acme, description: {description}, source: ./acme }}\n")
}

/// The file of the one index that is kept.
fn kept(place: &Place) -> PathBuf {
    let all = std::fs::read_dir(place.cache.path().join("harness/catalogues")).unwrap();
    let mut all = all.map(|entry| entry.unwrap().path().join("index.json")).filter(|path| path.exists());
    let one = all.next().unwrap();
    assert_eq!(all.next(), None);
    one
}

/// Changes a key of it.
fn rekeep(place: &Place, key: &str, change: impl FnOnce(&Json) -> Json) {
    let text = std::fs::read_to_string(kept(place)).unwrap();
    let mut document: Json = serde_json::from_str(&text).unwrap();
    document[key] = change(&document[key]);
    std::fs::write(kept(place), document.to_string()).unwrap();
}

fn aged(place: &Place, seconds: u64) {
    rekeep(place, "fetched", |fetched| json!(fetched.as_u64().unwrap() - seconds));
}

fn describes(ran: &Ran, description: &str) {
    assert!(ran.code == 0 && ran.out.contains(&format!("  {description}\n")), "{ran}");
}

#[test]
fn a_search_uses_an_index_that_was_fetched_before() {
    let place = Place::git();
    place.write("catalogue.yaml", &index("One."));
    place.commit();
    let search = |more: &[&str]| place.run(&[&["plugin", "search"], more].concat());
    let first = search(&[]);
    describes(&first, "One.");
    assert_eq!(first.err, "");
    place.write("catalogue.yaml", &index("Two."));
    let commit = place.commit();
    let again = search(&[]);
    describes(&again, "One.");
    assert_eq!(again.err, "the index of `ours` is less than a minute old: `--refresh` fetches it\n");
    assert!(!again.out.contains(&commit), "{again}");
    // What is added is looked up in an index that is fetched for it.
    let shown = place.run(&["plugin", "show", "acme@ours"]);
    assert!(shown.code == 0 && shown.out.contains(&commit), "{shown}");
    describes(&search(&[]), "Two.");

    place.write("catalogue.yaml", &index("Three."));
    place.commit();
    aged(&place, 59 * 60);
    let old = search(&[]);
    describes(&old, "Two.");
    assert!(old.err.starts_with("the index of `ours` is 59 minutes old: "), "{old}");
    // With a lower bound, and when it is too old, it is fetched.
    describes(&search(&["--max-age", "58"]), "Three.");
    place.write("catalogue.yaml", &index("Four."));
    place.commit();
    aged(&place, 61 * 60);
    let fetched = search(&[]);
    describes(&fetched, "Four.");
    assert_eq!(fetched.err, "");
    place.write("catalogue.yaml", &index("Five."));
    place.commit();
    describes(&search(&["--refresh"]), "Five.");
    describes(&search(&[]), "Five.");
    // Of a moment that has not come yet, nobody knows the age.
    place.write("catalogue.yaml", &index("Six."));
    place.commit();
    rekeep(&place, "fetched", |fetched| json!(fetched.as_u64().unwrap() + 1_000_000));
    describes(&search(&[]), "Six.");
}

#[test]
fn a_search_works_without_the_repository() {
    let place = Place::git();
    let search = || place.run(&["plugin", "search"]);
    describes(&search(), "Says hello.");
    let gone = tempfile::tempdir().unwrap();
    std::fs::rename(place.at(".git"), gone.path().join("git")).unwrap();
    describes(&search(), "Says hello.");
    aged(&place, 3 * 3600);
    let old = search();
    describes(&old, "Says hello.");
    let warning = "warning: the catalogue `ours` cannot be fetched: ";
    assert!(old.err.starts_with(warning) && old.err.ends_with("; its index is 3 hours old\n"), "{old}");
    // Nothing is added from it.
    let refused = place.add("acme@ours");
    assert!(refused.code == 2 && place.lock().is_empty(), "{refused}");
    let refused = place.run(&["plugin", "search", "--refresh"]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{refused}");
    // The control: with the repository it is fetched, and added.
    std::fs::rename(gone.path().join("git"), place.at(".git")).unwrap();
    assert_eq!(search().err, "");
    assert_eq!(place.add("acme@ours").code, 0);
}

#[test]
fn a_kept_index_that_was_changed_is_fetched_again() {
    let place = Place::git();
    let search = || place.run(&["plugin", "search"]);
    describes(&search(), "Says hello.");
    let good = std::fs::read_to_string(kept(&place)).unwrap();
    type Change = fn(&Json) -> Json;
    let changes: [(&str, Change); 6] = [
        ("text", |text| json!(text.as_str().unwrap().replace("Says hello.", "Mine."))),
        ("at", |at| json!(at.as_str().unwrap().replace("git+file://", "git+https://a.example"))),
        ("at", |_| json!("./mine")),
        ("source", |_| json!("git+https://a.example/x")),
        ("file", |_| json!("../../mine")),
        ("more", |_| json!(1)),
    ];
    for (key, change) in changes {
        rekeep(&place, key, change);
        let fetched = search();
        describes(&fetched, "Says hello.");
        assert_eq!(fetched.err, "", "{key}");
        assert_eq!(search().err, "the index of `ours` is less than a minute old: `--refresh` fetches it\n");
    }
    for text in ["", "{", "[]", good.split_at(good.len() / 2).0] {
        std::fs::write(kept(&place), text).unwrap();
        assert_eq!(search().err, "", "{text}");
    }
}

#[test]
fn an_index_that_expired_is_refused() {
    let place = Place::git();
    let expiring = |end: &str| format!("{}expires: {end}\n", index("One."));
    let why = "error: the index of the catalogue `ours` expired at 2026-01-31\n\nhint: who publishes the catalogue has to publish a new one\n";
    place.write("catalogue.yaml", &expiring("2026-01-31"));
    place.commit();
    for _ in ["fetched", "kept"] {
        let refused = place.run(&["plugin", "search"]);
        assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{refused}");
        assert!(refused.err.ends_with(&format!("{why}no plugin was found\n")), "{refused}");
    }
    let refused = place.add("acme@ours");
    assert_eq!((refused.code, refused.err.as_str()), (3, why), "{refused}");
    assert!(place.lock().is_empty());
    place.write("catalogue.yaml", &expiring("2999-01-31T12:00:00Z"));
    place.commit();
    describes(&place.run(&["plugin", "search", "--refresh"]), "One.");
    assert_eq!(place.add("acme@ours").code, 0);
    // One that is in use goes on; a later version is not looked up in an index that expired.
    place.write("catalogue.yaml", &expiring("2026-01-31"));
    place.commit();
    let refused = place.run(&["plugin", "update"]);
    assert_eq!((refused.code, refused.err.as_str()), (3, why), "{refused}");
    place.run(&["call", "theirs"]).gives("hello");
}
