//! The audit log of the server: what its operator changes, and keys that are refused.

use serde_json::{Value as Json, json};

use crate::project::{FINE, Project};
use crate::site::{Site, problem};

/// The entries of the log, as `harness admin audit` prints them.
fn entries(site: &Site, more: &[&str]) -> Vec<Json> {
    let (code, out, err) = site.harness(&[&["admin", "audit", "--data", "data"], more].concat(), "");
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Entries of a kind, with these members of each.
fn of(entries: &[Json], event: &str, members: &[&str]) -> Vec<Json> {
    let kind = |entry: &&Json| entry["event"] == event;
    let picked = |entry: &Json| members.iter().map(|member| entry[member].clone()).collect();
    entries.iter().filter(kind).map(picked).collect()
}

#[test]
fn each_change_of_the_operator_has_two_lines_and_no_secret_is_in_any() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let key = site.admin("POST /admin/v1/tenants/acme/keys", &json!({"role": "caller", "label": "ci"})).json();
    let secret = site.admin("PUT /admin/v1/tenants/acme/secrets/MARK", &json!({"value": "mark-secret"}));
    assert_eq!(secret.status, 200, "{secret:?}");
    let rules = json!({"policy": "fs: { read: [a] }", "state": "suspended"});
    assert_eq!(site.admin("PATCH /admin/v1/tenants/acme", &rules).status, 200);
    assert_eq!(site.admin("PATCH /admin/v1/tenants/nobody", &json!({"state": "active"})).status, 404);
    assert_eq!(site.admin("POST /admin/v1/backup", &json!({"name": "first"})).status, 201);
    let id = key["id"].as_str().unwrap();
    assert_eq!(site.admin(&format!("DELETE /admin/v1/tenants/acme/keys/{id}"), &Json::Null).status, 200);
    // What only reads is no change.
    assert_eq!(site.admin("GET /admin/v1/tenants", &Json::Null).status, 200);
    let all = entries(&site, &[]);
    let operator = site.operator();
    let operator = operator.split('_').nth(1).unwrap();
    assert_eq!(of(&all, "started", &["seq", "first_key"]), [json!([1, operator])]);
    let tenants = "/admin/v1/tenants";
    let owner = acme.key.split('_').nth(1).unwrap();
    assert_eq!(
        of(&all, "change", &["key", "label", "method", "path", "tenant"]),
        [
            json!([operator, "first key", "POST", tenants, null]),
            json!([operator, "first key", "POST", format!("{tenants}/acme/keys"), "acme"]),
            json!([operator, "first key", "POST", format!("{tenants}/acme/keys"), "acme"]),
            json!([operator, "first key", "PUT", format!("{tenants}/acme/secrets/MARK"), "acme"]),
            json!([operator, "first key", "PATCH", format!("{tenants}/acme"), "acme"]),
            json!([operator, "first key", "PATCH", format!("{tenants}/nobody"), "nobody"]),
            json!([operator, "first key", "POST", "/admin/v1/backup", null]),
            json!([operator, "first key", "DELETE", format!("{tenants}/acme/keys/{id}"), "acme"]),
        ]
    );
    let made = |id: &str, role: &str, label: &str| json!({"key": id, "role": role, "label": label, "policy": null, "expires": null});
    assert_eq!(
        of(&all, "changed", &["status", "details"]),
        [
            json!([201, {"tenant": "acme", "class": "default", "policy": null}]),
            json!([201, made(owner, "owner", "owner of the tests")]),
            json!([201, made(id, "caller", "ci")]),
            json!([200, {"secret": "MARK"}]),
            json!([200, rules]),
            json!([404, null]),
            json!([201, {"backup": "first"}]),
            json!([200, null]),
        ]
    );
    let numbers = |event| of(&all, event, &["request"]);
    assert_eq!(numbers("change"), numbers("changed"));
    let text = json!(all).to_string();
    let (_, secret_of_key) = key["key"].as_str().unwrap().split_at(20);
    for mark in ["mark-secret", secret_of_key, &acme.key[20..], &site.operator()[20..]] {
        assert!(!text.contains(mark), "{mark} is in {text}");
    }
    let moments = of(&all, "change", &["time"]);
    assert!(moments.is_sorted_by_key(Json::to_string) && moments[0][0].as_str().unwrap().ends_with('Z'), "{moments:?}");
    // A part of it.
    assert_eq!(entries(&site, &["--after", "3"]), all[3..]);
    assert_eq!(entries(&site, &["--after", "1000"]), Vec::<Json>::new());
}

#[test]
fn keys_that_are_refused_are_recorded_and_cannot_flood_the_log() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let expired = json!({"role": "caller", "label": "old", "expires": 1});
    let expired = site.ask(&acme.key, "POST /v1/keys", &expired).json()["key"].as_str().unwrap().to_owned();
    let id = |key: &str| key.split('_').nth(1).unwrap().to_owned();
    let wrong = format!("{}{}", &acme.key[..acme.key.len() - 4], "0000");
    let unknown = format!("hk_{}_{}", "0".repeat(16), "0".repeat(64));
    for key in ["a-password-of-another-program", &unknown, &wrong, &expired] {
        assert_eq!(problem(&site.get(key, "/v1/tools")), (401, "unauthorized".to_owned()), "{key}");
    }
    let suspend = |state: &str| site.admin("PATCH /admin/v1/tenants/acme", &json!({"state": state})).status;
    assert_eq!(suspend("suspended"), 200);
    assert_eq!(site.get(&acme.key, "/v1/usage").status, 401);
    assert_eq!(suspend("active"), 200);
    // A tenant's key at the operator's socket.
    let mut socket = std::os::unix::net::UnixStream::connect(site.data().join("admin.sock")).unwrap();
    let bearer = format!("Bearer {}", acme.key);
    let request = crate::web::request("GET /admin/v1/tenants", &[("Authorization", &bearer)], "");
    assert_eq!(problem(&crate::web::exchange(&mut socket, &request)), (403, "forbidden".to_owned()));
    // A key that is valid has no line, whether its role has the action or not.
    assert_eq!(site.get(&site.key("acme", "caller"), "/v1/audit").status, 403);
    let line = |why: &str, key: Option<&str>, tenant: Option<&str>, path: &str| json!([why, key, tenant, path, 0]);
    let members = ["why", "key", "tenant", "path", "left_out"];
    let owner = id(&acme.key);
    assert_eq!(
        of(&entries(&site, &[]), "refused", &members),
        [
            line("malformed", None, None, "/v1/tools"),
            line("unknown", Some(&"0".repeat(16)), None, "/v1/tools"),
            line("secret", Some(&owner), Some("acme"), "/v1/tools"),
            line("expired", Some(&id(&expired)), Some("acme"), "/v1/tools"),
            line("suspended", Some(&owner), Some("acme"), "/v1/usage"),
            line("role", Some(&owner), Some("acme"), "/admin/v1/tenants"),
        ]
    );
    for _ in 0..400 {
        assert_eq!(site.get(&unknown, "/v1/tools").status, 401);
    }
    let all = entries(&site, &[]);
    let lines = of(&all, "refused", &members).len();
    // A hundred, and one for each six seconds that the test takes.
    assert!((100..200).contains(&lines), "{lines}");
    assert!(!json!(all).to_string().contains("a-password"), "{all:?}");
    // The operator is not kept out by that.
    assert_eq!(suspend("active"), 200);
}

#[test]
fn a_change_that_cannot_be_recorded_is_not_made() {
    let site = Site::open();
    let made = |id: &str| site.admin("POST /admin/v1/tenants", &json!({"id": id}));
    assert_eq!(made("first").status, 201);
    let (file, aside) = (site.data().join("audit/000001.jsonl"), site.data().join("aside"));
    std::fs::rename(&file, &aside).unwrap();
    let refused = made("second");
    assert_eq!(problem(&refused), (500, "audit".to_owned()));
    let ids = || site.admin("GET /admin/v1/tenants", &Json::Null).json()["tenants"].as_array().unwrap().len();
    assert_eq!(ids(), 1);
    // A log that was changed is not shown as if it was whole.
    let (code, out, err) = site.harness(&["admin", "audit", "--data", "data"], "");
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert!(err.contains("the audit log is not whole"), "{err}");
    std::fs::rename(&aside, &file).unwrap();
    assert_eq!((made("second").status, ids()), (201, 2));
}
