//! Each page for each role, and the headers of all answers.

use serde_json::json;

use crate::site::Site;
use crate::visitor::{Visitor, agent, lines, refused};

const ROLES: [&str; 5] = ["owner", "developer", "approver", "auditor", "caller"];
/// Each page, and for which of the roles it is.
const PAGES: [(&str, [bool; 5]); 7] = [
    ("/dashboard", [true, true, true, true, true]),
    ("/dashboard/runs", [true, true, true, true, true]),
    ("/dashboard/approvals", [true, false, true, false, false]),
    ("/dashboard/audit", [true, false, false, true, false]),
    ("/dashboard/project", [true, true, false, true, false]),
    ("/dashboard/keys", [true, false, false, false, false]),
    ("/dashboard/secrets", [true, true, false, false, false]),
];

#[test]
fn each_role_has_its_pages_and_sees_no_way_to_others() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    site.call(&acme.key, "it", json!({}));
    for (at, role) in ROLES.iter().enumerate() {
        let mut visitor = Visitor::with(&site, &site.key("acme", role));
        let home = visitor.get("/dashboard");
        for (page, roles) in PAGES {
            let reply = visitor.get(page);
            let way = home.body.contains(&format!("<a href=\"{page}\""));
            if roles[at] {
                assert_eq!((reply.status, way), (200, true), "{role} {page}");
                assert!(reply.body.contains("aria-current=\"page\""), "{role} {page}");
            } else {
                let why = format!("a key with the role `{role}` may not ask for this");
                assert_eq!((refused(&reply), way), ((403, why), false), "{role} {page}");
            }
        }
        for (page, may) in
            [("/dashboard/audit/1", PAGES[3].1[at]), ("/dashboard/runs/run_0", false), ("/dashboard/nothing", false)]
        {
            let status = visitor.get(page).status;
            assert_eq!(status == 200, may, "{role} {page}: {status}");
        }
    }
}

#[test]
fn without_a_session_every_page_is_the_way_to_sign_in() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let run = site.begin(&acme.key, "do it");
    site.ended(&acme.key, &run);
    let more =
        [format!("/dashboard/runs/{run}"), format!("/dashboard/runs/{run}/events"), "/dashboard/audit/1".to_owned()];
    let paths = PAGES.iter().map(|(page, _)| (*page).to_owned()).chain(more);
    let mut signed_in = Visitor::with(&site, &acme.key);
    for path in paths {
        let reply = Visitor::new(&site).get(&path);
        assert_eq!(
            (reply.status, reply.header("location").as_str(), reply.body.as_str()),
            (303, "/dashboard/sign-in", ""),
            "{path}"
        );
        // A key is for programs, and opens no page.
        let bearer = format!("Bearer {}", acme.key);
        let reply = Visitor::new(&site).ask(&format!("GET {path}"), &[("Authorization", &bearer)], "");
        assert_eq!(reply.status, 303, "{path}");
        if !path.ends_with("/events") {
            assert_eq!(signed_in.get(&path).status, 200, "{path}");
        }
    }
    // And a cookie opens no request of the API.
    assert_eq!(signed_in.get("/v1/runs").status, 401);
}

/// All headers that a browser needs, on everything that it can get.
#[test]
fn every_answer_keeps_other_sites_out() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let mut visitor = Visitor::with(&site, &acme.key);
    let headers = [
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-embedder-policy", "require-corp"),
        ("cross-origin-resource-policy", "same-origin"),
    ];
    let script = visitor.get("/dashboard/live.js").body;
    let digest = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        sha2::Digest::finalize(sha2::Digest::chain_update(<sha2::Sha256 as sha2::Digest>::new(), script.as_bytes())),
    );
    let policy = format!(
        "default-src 'none'; style-src 'self'; script-src 'sha256-{digest}'; connect-src 'self'; img-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    let mut stranger = Visitor::new(&site);
    let answers = [
        visitor.get("/dashboard"),
        visitor.get("/dashboard/keys"),
        visitor.get("/dashboard/style.css"),
        visitor.get("/dashboard/live.js"),
        visitor.get("/dashboard/icon.svg"),
        visitor.get("/dashboard/nothing"),
        visitor.get("/dashboard/runs/run_0"),
        visitor.get("/dashboard/runs?state[]=x&state=y&state=z"),
        visitor.ask("DELETE /dashboard/keys", &[], ""),
        visitor.post("/dashboard/keys", &[], "", &[]),
        stranger.get("/dashboard"),
        stranger.get("/dashboard/sign-in"),
        stranger.get("/dashboard/link/0"),
    ];
    for reply in answers {
        for (name, value) in headers {
            assert_eq!(lines(&reply, name), [value], "{name} {reply:?}");
        }
        assert_eq!(lines(&reply, "content-security-policy"), [policy.as_str()], "{reply:?}");
        // Nothing inline, which the policy would refuse.
        for inline in ["<style", "style=\"", "<script>", " onclick=", "javascript:"] {
            assert!(!reply.body.contains(inline) || reply.head.contains("text/css"), "{inline} {}", reply.body);
        }
    }
}

#[test]
fn usage_and_health_are_on_the_overview() {
    let config = "classes:\n  default:\n    budgets: { calls_per_day: 10, egress_per_day: 1000 }\n";
    let site = Site::with_config(config);
    let acme = site.tenant("acme", &agent("", "done"));
    for _ in 0..8 {
        site.call(&acme.key, "it", json!({}));
    }
    let page = Visitor::with(&site, &acme.key).get("/dashboard").body;
    assert!(page.contains("<p class=\"amount\">8 of 10</p>"), "{page}");
    assert!(page.contains("aria-label=\"calls per day: 80.0 % used\""), "{page}");
    assert!(page.contains("<h3>egress per day</h3><p class=\"amount\">0 of 1,000</p>"), "{page}");
    assert!(page.contains("<span class=\"badge fine\">ready</span>"), "{page}");
    assert!(page.contains("0 of 8</a>") && page.contains("<a href=\"/dashboard/approvals\">0</a>"), "{page}");
    // Who may not read the usage sees none.
    let page = Visitor::with(&site, &site.key("acme", "approver")).get("/dashboard").body;
    assert!(page.contains("badge fine") && !page.contains("8 of 10"), "{page}");
}

#[test]
fn keys_and_secrets_are_made_and_removed() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let mut owner = Visitor::with(&site, &acme.key);
    let fields = [("label", "ci"), ("role", "caller"), ("days", "7"), ("policy", "fs: { read: [docs] }")];
    let made = owner.send("/dashboard/keys", "/dashboard/keys", &fields);
    assert_eq!(made.status, 200, "{made:?}");
    let text = crate::visitor::between(&made.body, "<code>hk_", "</code>");
    let key = format!("hk_{text}");
    assert_eq!(site.call(&key, "it", json!({})).status, 200);
    // It is shown once.
    assert!(!owner.get("/dashboard/keys").body.contains(text));
    let id = &text[..16];
    let listed = site.get(&acme.key, "/v1/keys").json();
    let listed = listed["keys"].as_array().unwrap().iter().find(|one| one["id"] == id).unwrap().clone();
    assert_eq!(
        (&listed["label"], &listed["role"], &listed["policy"]),
        (&json!("ci"), &json!("caller"), &json!("fs: { read: [docs] }"))
    );
    assert!(listed["expires"].as_u64().unwrap() - listed["created"].as_u64().unwrap() - 7 * 86_400_000 < 60_000);
    for wrong in [("role", "operator"), ("role", "x"), ("days", "-1"), ("policy", "nonsense: 1")] {
        let fields: Vec<_> = fields.iter().map(|one| if one.0 == wrong.0 { wrong } else { *one }).collect();
        assert_eq!(owner.send("/dashboard/keys", "/dashboard/keys", &fields).status, 400, "{wrong:?}");
    }
    assert_eq!(owner.send("/dashboard/keys", &format!("/dashboard/keys/{id}/remove"), &[]).status, 303);
    assert_eq!(site.call(&key, "it", json!({})).status, 401);
    // Secrets: by name alone.
    let set = owner.send("/dashboard/secrets", "/dashboard/secrets", &[("name", "TOKEN"), ("value", "s3cret-value")]);
    assert_eq!(set.status, 303, "{set:?}");
    let page = owner.get("/dashboard/secrets").body;
    assert!(page.contains("<code>TOKEN</code>") && !page.contains("s3cret-value"), "{page}");
    assert_eq!(site.get(&acme.key, "/v1/secrets").json(), json!({"secrets": ["TOKEN"]}));
    assert_eq!(owner.send("/dashboard/secrets", "/dashboard/secrets", &[("name", "HOME"), ("value", "x")]).status, 400);
    assert_eq!(owner.send("/dashboard/secrets", "/dashboard/secrets/TOKEN/remove", &[]).status, 303);
    assert_eq!(site.get(&acme.key, "/v1/secrets").json(), json!({"secrets": []}));
}

/// A key whose calls are narrowed would make itself wider with another key, by this way as by the API.
#[test]
fn a_narrowed_key_makes_no_keys() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let body = json!({"role": "owner", "label": "narrow", "policy": "fs: { read: [] }"});
    let narrow = site.ask(&acme.key, "POST /v1/keys", &body).json()["key"].as_str().unwrap().to_owned();
    let mut visitor = Visitor::with(&site, &narrow);
    let reply = visitor.send(
        "/dashboard/keys",
        "/dashboard/keys",
        &[("label", "wide"), ("role", "owner"), ("days", ""), ("policy", "")],
    );
    assert_eq!(refused(&reply), (403, "a key whose calls are narrowed makes no keys: they would not be".to_owned()));
    let made = Visitor::with(&site, &acme.key).send(
        "/dashboard/keys",
        "/dashboard/keys",
        &[("label", "wide"), ("role", "owner"), ("days", ""), ("policy", "")],
    );
    assert_eq!(made.status, 200);
}

#[test]
fn runs_are_listed_shown_and_stopped() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "all is done"));
    let run = site.begin(&acme.key, "do it");
    site.ended(&acme.key, &run);
    let caller = site.key("acme", "caller");
    let waiting =
        site.ask_with(&caller, "POST /v1/tools/asks/calls", &[("Prefer", "respond-async")], &json!({})).json();
    let waiting = waiting["id"].as_str().unwrap();
    site.event(&caller, waiting, "waiting");
    let mut owner = Visitor::with(&site, &acme.key);
    let way = |run: &str| format!("<a href=\"/dashboard/runs/{run}\">");
    for (query, wanted) in [
        ("", [true, true]),
        ("?state=completed", [true, false]),
        ("?state=running&tool=asks&since=hour", [false, true]),
        ("?tool=agent", [true, false]),
        ("?tool=nothing", [false, false]),
    ] {
        let page = owner.get(&format!("/dashboard/runs{query}")).body;
        assert_eq!([page.contains(&way(&run)), page.contains(&way(waiting))], wanted, "{query}");
    }
    // A caller sees its own runs.
    let mut visitor = Visitor::with(&site, &caller);
    let page = visitor.get("/dashboard/runs").body;
    assert_eq!([page.contains(&way(&run)), page.contains(&way(waiting))], [false, true]);
    assert_eq!(visitor.get(&format!("/dashboard/runs/{run}")).status, 404);
    // One that has ended has its timeline, and nothing to hear of.
    let page = owner.get(&format!("/dashboard/runs/{run}")).body;
    for part in ["all is done", "<h2>Timeline</h2>", "<section class=\"turn\" id=\"turn-1\">", "<h2>Events</h2>"] {
        assert!(page.contains(part), "{part} {page}");
    }
    assert!(!page.contains("data-events") && !page.contains("Stop this run"), "{page}");
    // One that is under way is heard of, and can be stopped by those who may begin one.
    let path = format!("/dashboard/runs/{waiting}");
    let page = owner.get(&path).body;
    assert!(page.contains(&format!("data-events=\"{path}/events\"")) && page.contains("Stop this run"), "{page}");
    let mut auditor = Visitor::with(&site, &site.key("acme", "auditor"));
    assert!(!auditor.get(&path).body.contains("Stop this run"));
    let token = auditor.token(&path);
    let own = [("Origin", "http://localhost")];
    assert_eq!(auditor.post(&format!("{path}/stop"), &own, &token, &[]).status, 403);
    assert_eq!(site.get(&acme.key, &format!("/v1/runs/{waiting}")).json()["state"], "running");
    assert_eq!(owner.send(&path, &format!("{path}/stop"), &[]).status, 303);
    assert_eq!(site.get(&acme.key, &format!("/v1/runs/{waiting}")).json()["state"], "stopped");
    // A run that has ended asks nobody any more.
    assert!(owner.get("/dashboard/approvals").body.contains("Nothing waits for an answer."));
    assert_eq!(site.get(&acme.key, "/v1/approvals").json(), json!({"approvals": []}));
}

#[test]
fn plugins_show_what_they_asked_for() {
    let site = Site::open();
    let plugin = "---\nname: acme\nversion: 1.2.0\ndescription: Reads <b>documents</b>.\nlicense: MIT\nasks:\n  - reason: to read them\n    fs: { read: [docs] }\n---\nProse.\n";
    let project = agent("", "done")
        .file(".harness/plugins/acme/plugin.md", plugin)
        .file(".harness/plugins/acme/tools/peek.md", "---\nscript: |\n  def run(args):\n      return 1\n---\nPeeks.\n");
    let acme = site.tenant("acme", &project);
    let page = Visitor::with(&site, &acme.key).get("/dashboard/project").body;
    for part in ["plugins/acme", "1.2.0", "Reads &lt;b&gt;documents&lt;/b&gt;.", "fs.read: docs", "to read them"] {
        assert!(page.contains(part), "{part} {page}");
    }
    assert!(page.contains("<b>reads</b>") && page.contains("asks a person"), "{page}");
}
