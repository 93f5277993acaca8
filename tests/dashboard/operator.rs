//! The operator's pages, at an address of their own.

use std::process::Stdio;
use std::sync::Arc;

use serde_json::json;
use tempfile::TempDir;

use crate::site::Site;
use crate::visitor::{Visitor, agent, between, refused};

/// A server with a dashboard for its operator, and where that is.
fn open() -> (Site, String) {
    let folder = Arc::new(TempDir::new().unwrap());
    std::fs::write(folder.path().join("serve.yaml"), "").unwrap();
    let mut site = Site::start(folder, &["--operator-dashboard", "127.0.0.1:0"]);
    let url = site.said("the operator's dashboard: ");
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/dashboard").unwrap().to_owned();
    (site, address)
}

#[test]
fn the_operator_sees_tenants_and_how_they_wait_and_nothing_of_what_they_do() {
    let (site, address) = open();
    let acme = site.tenant("acme", &agent("", "mark-answer"));
    site.tenant("idle", &agent("", "done"));
    assert_eq!(site.ask(&acme.key, "PUT /v1/secrets/MARK", &json!({"value": "x"})).status, 200);
    let run = site.begin(&acme.key, "mark-input");
    site.ended(&acme.key, &run);
    assert_eq!(site.admin("PATCH /admin/v1/tenants/idle", &json!({"state": "suspended"})).status, 200);
    let mut operator = Visitor::at(&address);
    assert_eq!(operator.sign_in(&site.operator()).status, 303);
    let page = operator.get("/dashboard").body;
    assert_eq!(between(&page, "<span><b>", "</span>"), "the server</b> as operator · first key");
    let row = |id: &str| between(&page, &format!("<a href=\"/dashboard/tenants/{id}\">"), "</tr>").to_owned();
    assert!(row("acme").contains("badge fine\">active") && row("idle").contains("badge wrong\">suspended"), "{page}");
    let tenant = operator.get("/dashboard/tenants/acme").body;
    assert!(tenant.contains("<h3>calls per day</h3><p class=\"amount\">1</p>"), "{tenant}");
    let neighbours = operator.get("/dashboard/neighbours").body;
    assert!(
        neighbours.contains("<a href=\"/dashboard/tenants/acme\">") && !neighbours.contains("tenants/idle"),
        "{neighbours}"
    );
    for page in [page, tenant, neighbours] {
        for mark in ["mark-", "MARK", &run] {
            assert!(!page.contains(mark), "{mark} {page}");
        }
    }
    assert_eq!(operator.get("/dashboard/tenants/nobody").status, 404);
    for path in ["/dashboard/runs", "/dashboard/audit", "/dashboard/keys", "/v1/tools", "/admin/v1/tenants"] {
        assert_eq!(operator.get(path).status, 404, "{path}");
    }
}

/// A tenant whose calls wait for each other is first among the neighbours.
#[test]
fn waits_are_counted_for_the_tenant_that_waits() {
    let folder = Arc::new(TempDir::new().unwrap());
    std::fs::write(folder.path().join("serve.yaml"), "classes:\n  default: { concurrent_calls: 1 }\n").unwrap();
    let mut site = Site::start(folder, &["--operator-dashboard", "127.0.0.1:0"]);
    let url = site.said("the operator's dashboard: ");
    let busy = "def run(args):\n    n = 0\n    for i in range(3000000):\n        n += i\n    return n\n";
    let limits = "timeout_ms: 60000\n";
    let acme = site.tenant("acme", &agent("", "done").tool("busy", limits, busy));
    let quiet = site.tenant("quiet", &agent("", "done"));
    site.result(&quiet.key, "it", json!({}));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| site.call(&acme.key, "busy", json!({})));
        }
    });
    let mut operator = Visitor::at(url.strip_prefix("http://").unwrap().strip_suffix("/dashboard").unwrap());
    operator.sign_in(&site.operator());
    let page = operator.get("/dashboard/neighbours").body;
    let row = |id: &str| between(&page, &format!("<a href=\"/dashboard/tenants/{id}\">"), "</tr>").to_owned();
    let cells =
        |id: &str| row(id).split("</td>").map(|cell| cell.rsplit('>').next().unwrap().to_owned()).collect::<Vec<_>>();
    assert!(cells("acme")[2].contains(" times, ") && cells("acme")[2].contains(", the longest "), "{page}");
    assert_eq!(cells("quiet")[2], "none", "{page}");
    let at = |id: &str| page.find(&format!("/dashboard/tenants/{id}")).unwrap();
    assert!(at("acme") < at("quiet"), "{page}");
}

#[test]
fn keys_and_cookies_of_one_address_open_nothing_at_the_other() {
    let (site, address) = open();
    let acme = site.tenant("acme", &agent("", "done"));
    let mut wrong = Visitor::at(&address);
    assert_eq!(refused(&wrong.sign_in(&acme.key)).0, 403);
    let mut operator = Visitor::at(&address);
    assert_eq!(operator.sign_in(&site.operator()).status, 303);
    let value = operator.cookie("harness-operator-session").unwrap().to_owned();
    let mut owner = Visitor::with(&site, &acme.key);
    let own = owner.cookie("harness-session").unwrap().to_owned();
    // By the name of either.
    for name in ["harness-session", "harness-operator-session"] {
        let mut there = Visitor::new(&site);
        there.cookies.push((name.to_owned(), value.clone()));
        assert_eq!(there.get("/dashboard").status, 303, "{name}");
        let mut here = Visitor::at(&address);
        here.cookies.push((name.to_owned(), own.clone()));
        assert_eq!(here.get("/dashboard").status, 303, "{name}");
    }
    // One that was shown at the wrong address is over.
    assert_eq!((operator.get("/dashboard").status, owner.get("/dashboard").status), (303, 303));
    let mut again = Visitor::at(&address);
    again.sign_in(&site.operator());
    assert_eq!((again.get("/dashboard").status, Visitor::with(&site, &acme.key).get("/dashboard").status), (200, 200));
}

#[test]
fn the_operators_dashboard_is_for_the_machine_itself() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("serve.yaml"), "").unwrap();
    for more in [&["--operator-dashboard", "0.0.0.0:0"][..], &["--operator-dashboard", "0.0.0.0:0", "--behind-proxy"]] {
        let mut command = Site::command(folder.path(), more);
        let ran = command.stdout(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains("cannot listen at `0.0.0.0:0`: it is not a loopback address"), "{said}");
    }
}
