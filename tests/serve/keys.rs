//! Keys and their roles.

use serde_json::{Value as Json, json};

use crate::project::{FINE, Project};
use crate::site::{Site, problem};

/// A request for each thing that a role may ask for.
const REQUESTS: [(&str, &str); 13] = [
    ("GET /v1/tools", ""),
    ("POST /v1/tools/it/calls", "{}"),
    ("POST /v1/runs", "{\"input\":\"hello\"}"),
    ("GET /v1/runs", ""),
    ("GET /v1/approvals", ""),
    ("GET /v1/audit", ""),
    ("GET /v1/usage", ""),
    ("GET /v1/policy", ""),
    ("GET /v1/files", ""),
    ("PUT /v1/files/a", "x"),
    ("PUT /v1/project", "x"),
    ("GET /v1/secrets", ""),
    ("GET /v1/keys", ""),
];

#[test]
fn each_role_gets_as_far_as_its_table_says() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let mut table = Vec::new();
    for role in ["owner", "developer", "approver", "auditor", "caller"] {
        let key = if role == "owner" { acme.key.clone() } else { site.key("acme", role) };
        let may = REQUESTS.map(|(line, body)| {
            let bearer = format!("Bearer {key}");
            let request = crate::web::request(line, &[("Authorization", &bearer)], body);
            let reply = crate::web::exchange(&mut site.connect(), &request);
            match reply.status {
                403 => '.',
                401 => panic!("{reply:?}"),
                _ => 'x',
            }
        });
        table.push(format!("{role:<9} {}", may.iter().collect::<String>()));
    }
    assert_eq!(
        table,
        [
            "owner     xxxxxxxxxxxxx",
            "developer xxxx..xxxxxx.",
            "approver  x..xx........",
            "auditor   x..x.xxx.....",
            "caller    xxxx..x......",
        ]
    );
}

#[test]
fn no_key_no_answer() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let other = acme.key.replace(&acme.key[acme.key.len() - 4..], "0000");
    let operator = site.operator();
    for key in ["", "x", "hk_", &other, &acme.key[..40], &format!("{}0", acme.key)] {
        for (line, _) in REQUESTS {
            let reply = site.ask(key, line, &Json::Null);
            assert_eq!(problem(&reply), (401, "unauthorized".to_owned()), "{key} {line}");
            assert_eq!(reply.header("www-authenticate"), "Bearer");
        }
    }
    // The operator's key is none of a tenant's, and a tenant's none of the operator's.
    for (line, _) in REQUESTS {
        assert_eq!(problem(&site.ask(&operator, line, &Json::Null)), (403, "forbidden".to_owned()), "{line}");
    }
    let mut socket = std::os::unix::net::UnixStream::connect(site.data().join("admin.sock")).unwrap();
    let bearer = format!("Bearer {}", acme.key);
    let request = crate::web::request("GET /admin/v1/tenants", &[("Authorization", &bearer)], "");
    assert_eq!(problem(&crate::web::exchange(&mut socket, &request)), (403, "forbidden".to_owned()));
    // The operator's interface is at its socket alone.
    assert_eq!(problem(&site.get(&operator, "/admin/v1/tenants")), (404, "not_found".to_owned()));
    assert_eq!(problem(&site.get(&operator, "/metrics")), (404, "not_found".to_owned()));
    assert_eq!(site.admin("GET /admin/v1/tenants", &Json::Null).status, 200);
    assert_eq!(site.result(&acme.key, "it", json!({})), "fine");
}

#[test]
fn two_keys_count_at_one_time_and_one_that_is_removed_no_more() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let made = site.ask(&acme.key, "POST /v1/keys", &json!({"role": "caller", "label": "new"})).json();
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    assert!(key.starts_with(&format!("hk_{id}_")));
    assert_eq!(site.result(key, "it", json!({})), "fine");
    let listed = site.get(&acme.key, "/v1/keys").json();
    let listed = listed["keys"].as_array().unwrap();
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|one| one["used"].is_u64()), "{listed:?}");
    assert!(!json!(listed).to_string().contains(&key[20..]));
    assert_eq!(site.ask(&acme.key, &format!("DELETE /v1/keys/{id}"), &Json::Null).status, 200);
    assert_eq!(problem(&site.call(key, "it", json!({}))), (401, "unauthorized".to_owned()));
    let expired = json!({"role": "caller", "label": "old", "expires": 1});
    let expired = site.ask(&acme.key, "POST /v1/keys", &expired).json();
    let refused = site.call(expired["key"].as_str().unwrap(), "it", json!({}));
    assert_eq!(problem(&refused), (401, "unauthorized".to_owned()));
    // A tenant makes no key of the operator.
    let mighty = site.ask(&acme.key, "POST /v1/keys", &json!({"role": "operator", "label": "x"}));
    assert_eq!(problem(&mighty), (400, "invalid".to_owned()));
}

#[test]
fn rules_of_tenant_key_and_call_narrow_each_other() {
    let write = "def run(args):\n    fs.write(args['path'], 'x')\n    return 'written'\n";
    let site = Site::open();
    let project = Project::new().policy("sandbox: { fs: { write: [.] } }\n").tool(
        "it",
        "parameters: { path: { type: string, required: true } }\n",
        write,
    );
    let acme = site.tenant("acme", &project);
    let made = json!({"role": "caller", "label": "narrow", "policy": "fs: { write: [a, b] }"});
    let key = site.ask(&acme.key, "POST /v1/keys", &made).json()["key"].as_str().unwrap().to_owned();
    // Its owner's sister, as mighty in words: what it makes would not be narrowed.
    let owner = json!({"role": "owner", "label": "narrow owner", "policy": "fs: { write: [a] }"});
    let owner = site.ask(&acme.key, "POST /v1/keys", &owner).json()["key"].as_str().unwrap().to_owned();
    assert_eq!(
        problem(&site.ask(&owner, "POST /v1/keys", &json!({"role": "owner", "label": "x"}))),
        (403, "forbidden".to_owned())
    );
    let outcome = |key: &str, path: &str, within: Json| {
        let body = json!({"arguments": {"path": path}, "within": within});
        site.ask(key, "POST /v1/tools/it/calls", &body).json()["outcome"].as_str().unwrap().to_owned()
    };
    assert_eq!(outcome(&acme.key, "c/x", Json::Null), "completed");
    assert_eq!(["a/x", "b/x", "c/x"].map(|path| outcome(&key, path, Json::Null)), ["completed", "completed", "denied"]);
    let within = || json!({"fs": {"write": ["b", "c"]}});
    assert_eq!(["a/x", "b/x", "c/x"].map(|path| outcome(&key, path, within())), ["denied", "completed", "denied"]);
    let changed = site.admin("PATCH /admin/v1/tenants/acme", &json!({"policy": "fs: { write: [a] }"}));
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_eq!(["a/x", "b/x"].map(|path| outcome(&key, path, Json::Null)), ["completed", "denied"]);
    // Who is refused learns which layer it was.
    let denied = site.ask(&key, "POST /v1/tools/it/calls", &json!({"arguments": {"path": "b/x"}})).json();
    let hint = denied["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("tenant acme"), "{hint}");
    let wrong = site.ask(&key, "POST /v1/tools/it/calls", &json!({"within": {"fs": {"writes": []}}}));
    assert_eq!(problem(&wrong), (400, "invalid".to_owned()));
}
