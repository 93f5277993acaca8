//! Dry runs of a policy, and the plugins of a project.

use serde_json::{Value as Json, json};

use crate::project::{FINE, Project};
use crate::site::{Site, problem};

fn policy(text: &str) -> String {
    format!("---\n{text}---\n")
}

#[test]
fn a_dry_run_says_what_another_policy_allows_and_changes_nothing() {
    let site = Site::open();
    let before = "sandbox: { fs: { read: [a], write: [a] } }\n";
    let acme = site.tenant("acme", &Project::with_script(FINE).policy(before));
    let digest = || site.get(&acme.key, "/v1/project").json()["digest"].clone();
    let (project, effective) = (digest(), site.get(&acme.key, "/v1/policy").json());
    let dry = |body: Json| site.ask(&acme.key, "POST /v1/policy", &body);
    let keys = |found: &Json, side: &str| -> Vec<String> {
        found[side].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap().to_owned()).collect()
    };
    let same = dry(json!({"harness_md": policy(before)})).json();
    assert_eq!(same, json!({"wider": [], "narrower": []}));
    let wide = dry(json!({"harness_md": policy("sandbox: { fs: { read: [a, b], write: [] } }\n")})).json();
    assert_eq!(
        (keys(&wide, "wider"), keys(&wide, "narrower")),
        (vec!["fs.read".to_owned()], vec!["fs.write".to_owned()])
    );
    assert_eq!(wide["wider"][0]["for"], json!(["tool `it`"]), "{wide}");
    let layer = dry(json!({"layer": {"fs": {"read": ["a"], "write": []}}})).json();
    assert_eq!((keys(&layer, "wider"), keys(&layer, "narrower")), (Vec::new(), vec!["fs.write".to_owned()]), "{layer}");
    assert_eq!(dry(json!({"layer": "{\"fs\":{\"read\":[\"a\"],\"write\":[]}}"})).json(), layer);
    // What could not be uploaded cannot be tried.
    let wrong = dry(json!({"harness_md": policy("sandbox: { evn: [A] }\n")}));
    assert_eq!(problem(&wrong), (422, "project".to_owned()));
    assert_eq!(wrong.json()["errors"][0]["file"], ".harness/harness.md", "{wrong:?}");
    let of_server = dry(json!({"harness_md": policy("sandbox: { secrets: { A: { file: /etc/passwd } } }\n")}));
    assert_eq!(problem(&of_server), (422, "project".to_owned()));
    for body in
        [json!({}), json!({"harness_md": "", "layer": {}}), json!({"layer": {"fs": {"reads": []}}}), json!({"x": 1})]
    {
        assert_eq!(problem(&dry(body.clone())), (400, "invalid".to_owned()), "{body}");
    }
    assert_eq!((digest(), site.get(&acme.key, "/v1/policy").json()), (project, effective));
    let left: Vec<String> = std::fs::read_dir(site.data().join("tenants/acme"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("incoming"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
    // The role is the one that reads the policy.
    let ask = |role: &str| site.ask(&site.key("acme", role), "POST /v1/policy", &json!({"layer": {}})).status;
    assert_eq!(["developer", "auditor", "approver", "caller"].map(ask), [200, 200, 403, 403]);
}

#[test]
fn plugins_are_listed_with_what_they_ask_for_and_are_granted() {
    let site = Site::open();
    let about = "---\nname: acme\nversion: 1.2.0\ndescription: Reads notes.\nasks:\n  - reason: It reads notes.\n    fs: { read: [notes, more] }\n---\n";
    let project = Project::with_script(FINE)
        .policy("sandbox: { fs: { read: [notes] }, sources: { plugins/acme: { fs: { read: [notes] } } } }\n")
        .file(".harness/plugins/acme/plugin.md", about)
        .file(
            ".harness/plugins/acme/tools/look.md",
            "---\nname: look\ndescription: Looks.\n---\n```python\ndef run(args):\n    return 1\n```\n",
        );
    let tenant = site.tenant("tenant", &project);
    let found = site.get(&tenant.key, "/v1/plugins").json();
    let plugin = &found["plugins"][0];
    assert_eq!(
        (&plugin["name"], &plugin["version"], &plugin["description"], &plugin["verified"], &plugin["locked"]),
        (&json!("acme"), &json!("1.2.0"), &json!("Reads notes."), &json!(false), &Json::Null),
        "{found}"
    );
    let asks = json!([{"reason": "It reads notes.", "rules": [
        {"key": "fs.read", "item": "notes"}, {"key": "fs.read", "item": "more"},
    ]}]);
    assert_eq!(plugin["asks"], asks, "{found}");
    let granted = plugin["granted"].as_array().unwrap().iter().find(|rule| rule["key"] == "fs.read").unwrap();
    assert_eq!(granted["rules"], json!(["notes"]), "{found}");
    let none = site.tenant("none", &Project::with_script(FINE));
    assert_eq!(site.get(&none.key, "/v1/plugins").json(), json!({"plugins": []}));
}
