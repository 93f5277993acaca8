//! What docs/api.md shows: each request is sent, in the order of the page, and answered as the page says.

use serde_json::{Value as Json, json};

use crate::project::Project;
use crate::site::Site;
use crate::web::{exchange, request};

/// Whether an answer is what the page shows; `"..."` there is any value.
fn fits(shown: &Json, given: &Json) -> bool {
    match (shown, given) {
        (Json::String(any), _) if any == "..." => true,
        (Json::Object(shown), Json::Object(given)) => {
            shown.len() == given.len()
                && shown.iter().all(|(key, shown)| given.get(key).is_some_and(|given| fits(shown, given)))
        }
        (Json::Array(shown), Json::Array(given)) => {
            shown.len() == given.len() && shown.iter().zip(given).all(|(shown, given)| fits(shown, given))
        }
        (shown, given) => shown == given,
    }
}

/// The requests of a page, each with the answer that follows it.
fn examples(page: &str) -> Vec<(String, String, Json)> {
    let mut found = Vec::new();
    let mut parts = page.split("\n```");
    let mut asked = None;
    while let (Some(_), Some(block)) = (parts.next(), parts.next()) {
        let (kind, text) = block.split_once('\n').unwrap();
        match kind {
            "http" => {
                let (line, body) = text.split_once('\n').unwrap_or((text, ""));
                asked = Some((line.to_owned(), body.trim().to_owned()));
            }
            "json" => {
                let (line, body) = asked.take().unwrap();
                found.push((line, body, serde_json::from_str(text).unwrap()));
            }
            _ => {}
        }
    }
    assert!(asked.is_none(), "a request without an answer");
    found
}

#[test]
fn requests_are_answered_as_the_page_says() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = std::fs::read_to_string(root.join("docs/api.md")).unwrap();
    let site = Site::open();
    let project = Project::new();
    std::fs::remove_dir_all(project.path(".harness")).unwrap();
    assert_eq!(project.run(&["init"]).code, 0);
    let acme = site.tenant("acme", &project);
    assert_eq!(site.ask(&acme.key, "PUT /v1/files/notes/today.md", &json!("one two three")).status, 200);
    let examples = examples(&page);
    assert!(examples.len() >= 6, "{}", examples.len());
    for (line, body, shown) in examples {
        let bearer = format!("Bearer {}", acme.key);
        let reply = exchange(
            &mut site.connect(),
            &request(&line, &[("Authorization", &bearer), ("Host", site.address())], &body),
        );
        assert!(fits(&shown, &reply.json()), "{line}\nshown {shown}\ngiven {}", reply.json());
    }
}
