//! Forms that other sites send in the name of someone who is signed in. Each is refused and changes nothing, and the same
//! form of a page of the server is the control.

use serde_json::{Value as Json, json};

use crate::site::Site;
use crate::visitor::{Visitor, agent, refused};

const OWN: [(&str, &str); 2] = [("Origin", "http://localhost"), ("Sec-Fetch-Site", "same-origin")];

/// Where a form is sent to, its fields, and the answer where it is in order.
type Form<'a> = (String, Vec<(&'a str, &'a str)>, u16);

#[test]
fn no_form_of_another_site_or_session_does_anything() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    site.tenant("other", &agent("", "done"));
    assert_eq!(site.ask(&acme.key, "PUT /v1/secrets/STAYS", &json!({"value": "x"})).status, 200);
    assert_eq!(site.call(&acme.key, "reads", json!({"path": "secret.txt"})).json()["outcome"], "denied");
    let caller = site.key("acme", "caller");
    let run = site.ask_with(&caller, "POST /v1/tools/asks/calls", &[("Prefer", "respond-async")], &json!({})).json();
    let run = run["id"].as_str().unwrap().to_owned();
    let approval = site.event(&caller, &run, "waiting")["approval"].as_str().unwrap().to_owned();
    let digest =
        site.get(&acme.key, "/v1/approvals").json()["approvals"][0]["args_digest"].as_str().unwrap().to_owned();
    let mut owner = Visitor::with(&site, &acme.key);
    let key_id = &caller[3..19];
    let state = |site: &Site| {
        let keys = site.get(&acme.key, "/v1/keys").json()["keys"].as_array().unwrap().len();
        let (secrets, open) = (site.get(&acme.key, "/v1/secrets").json(), site.get(&acme.key, "/v1/approvals").json());
        let open = open["approvals"].as_array().unwrap().len();
        (keys, secrets, open, site.get(&acme.key, &format!("/v1/runs/{run}")).json()["state"].clone())
    };
    let new_key = [("label", "evil"), ("role", "owner"), ("days", ""), ("policy", "")];
    // The last ones change what those before need.
    let forms: Vec<Form<'_>> = vec![
        ("/dashboard/audit/1/try".to_owned(), vec![("refusal", "0")], 200),
        ("/dashboard/keys".to_owned(), new_key.to_vec(), 200),
        ("/dashboard/secrets".to_owned(), vec![("name", "NEW"), ("value", "x")], 303),
        ("/dashboard/secrets/STAYS/remove".to_owned(), vec![], 303),
        (format!("/dashboard/approvals/{approval}"), vec![("answer", "yes"), ("args_digest", &digest)], 303),
        (format!("/dashboard/runs/{run}/stop"), vec![], 303),
        (format!("/dashboard/keys/{key_id}/remove"), vec![], 303),
        ("/dashboard/sign-out".to_owned(), vec![], 303),
    ];
    let token = owner.token("/dashboard");
    let strangers = Visitor::with(&site, &site.key("other", "owner")).token("/dashboard");
    let second = Visitor::with(&site, &acme.key).token("/dashboard");
    let session = owner.cookie("harness-session").unwrap().to_owned();
    let before = state(&site);
    let mut tried = 0;
    for (to, fields, _) in &forms {
        let not_own = "the form is not of this session";
        for wrong in ["", "x", &strangers, &second, &session, &token.to_uppercase(), &token[1..]] {
            assert_eq!(refused(&owner.post(to, &OWN, wrong, fields)), (403, not_own.to_owned()), "{to} {wrong}");
            tried += 1;
        }
        let twice = [fields.clone(), vec![("form", token.as_str())]].concat();
        assert_eq!(owner.post(to, &OWN, &token, &twice).status, 403, "{to}");
        let cross = "the form was sent by ";
        for headers in [
            &[][..],
            &[("Origin", "http://evil.example")],
            &[("Origin", "null")],
            &[("Origin", "null"), ("Sec-Fetch-Site", "cross-site")],
            &[("Origin", "")],
            &[("Origin", "http://localhost:1")],
            &[("Origin", "http://localhost.evil.example")],
            &[("Origin", "http://evil.example"), ("Sec-Fetch-Site", "same-origin")],
            &[("Origin", "http://localhost"), ("Sec-Fetch-Site", "same-site")],
            &[("Origin", "http://localhost"), ("Sec-Fetch-Site", "cross-site")],
            &[("Sec-Fetch-Site", "none")],
            &[("Origin", "http://localhost"), ("Origin", "http://evil.example")],
            &[("Origin", "http://localhost"), ("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "cross-site")],
        ] {
            let (status, why) = refused(&owner.post(to, headers, &token, fields));
            assert!(status == 403 && why.starts_with(cross), "{to} {headers:?}: {status} {why}");
            tried += 1;
        }
        for kind in ["text/plain", "multipart/form-data; boundary=x", "application/json", ""] {
            let body = format!("form={token}");
            let headers = [OWN[0], OWN[1], ("Content-Type", kind)];
            assert_eq!(owner.ask(&format!("POST {to}"), &headers, &body).status, 415, "{to} {kind}");
            tried += 1;
        }
        // By the address alone nothing happens, whatever is in it.
        if !to.ends_with("keys") && !to.ends_with("secrets") {
            let status = owner.get(&format!("{to}?form={token}&answer=yes&args_digest={digest}")).status;
            assert_eq!(status, 404, "{to}");
        }
        // Without the cookie the token is worth nothing.
        let reply = Visitor::new(&site).post(to, &OWN, &token, fields);
        assert_eq!((reply.status, reply.header("location").as_str()), (303, "/dashboard/sign-in"), "{to}");
        tried += 2;
    }
    assert!(tried > 150, "{tried}");
    assert_eq!(state(&site), before);
    for (to, fields, status) in &forms {
        let reply = owner.post(to, &OWN, &token, fields);
        assert_eq!(reply.status, *status, "{to} {reply:?}");
    }
    let (keys, secrets, open, run) = state(&site);
    assert_eq!((keys, secrets, open), (before.0, json!({"secrets": ["NEW"]}), 0));
    assert_ne!(run, Json::from("running"));
    assert_eq!(owner.get("/dashboard").status, 303);
}

/// A site that signs someone in with its own key would see what is entered then.
#[test]
fn no_other_site_signs_anyone_in() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let mut victim = Visitor::new(&site);
    let token = victim.token("/dashboard/sign-in");
    let attackers = Visitor::new(&site).token("/dashboard/sign-in");
    for (headers, token) in [
        (&[("Origin", "http://evil.example")][..], token.as_str()),
        (&[("Origin", "http://localhost"), ("Sec-Fetch-Site", "cross-site")][..], &token),
        (&[][..], &token),
        (&OWN[..], ""),
        (&OWN[..], &attackers),
    ] {
        let reply = victim.post("/dashboard/sign-in", headers, token, &[("key", &acme.key)]);
        assert_eq!((reply.status, victim.cookie("harness-session")), (403, None), "{headers:?}");
    }
    // As browsers send it from a page without a referrer.
    let hidden = [("Origin", "null"), ("Sec-Fetch-Site", "same-origin")];
    assert_eq!(victim.post("/dashboard/sign-in", &hidden, &token, &[("key", &acme.key)]).status, 303);
    assert_eq!(victim.get("/dashboard").status, 200);
}

#[test]
fn a_form_is_not_too_large() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let mut owner = Visitor::with(&site, &acme.key);
    let [fits, large] = [16 << 10, 70 << 10].map(|length| "x".repeat(length));
    let set = |owner: &mut Visitor, value: &str| {
        owner.send("/dashboard/secrets", "/dashboard/secrets", &[("name", "A"), ("value", value)]).status
    };
    assert_eq!([set(&mut owner, &fits), set(&mut owner, &large)], [303, 413]);
}
