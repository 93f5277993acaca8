//! Texts that would be markup or a script if they got out of their field, in every field that a tenant, a client, a script
//! or a model can write.

use serde_json::json;

use crate::project::Project;
use crate::site::Site;
use crate::visitor::{Visitor, agent};

const MARKUP: &str = "<img src=x onerror=alert(1)>";
const ATTRIBUTE: &str = "\" autofocus onfocus=alert(1) x=\"";
const SCRIPT: &str = "</pre></script><script>alert(1)</script>";
/// Hidden characters, and one that turns the direction of text.
const HIDDEN: &str = "a\u{202e}b\u{200b}c";

/// The page has the text as text: its form without what would be markup is there, and nothing that is markup.
fn is_text(page: &str, what: &str) {
    for raw in ["<img", "<script>alert", " onfocus=alert(1) x=\"", "</script><script", "\u{202e}", "\u{200b}"] {
        assert!(!page.contains(raw), "{what}: {raw}: {page}");
    }
}

#[test]
fn no_text_becomes_markup_in_any_field() {
    let site = Site::open();
    let all = [MARKUP, ATTRIBUTE, SCRIPT, HIDDEN].join(" ");
    let quoted = serde_json::to_string(&all).unwrap();
    let replies = format!("- tool_calls: [{{ name: fails, args: {{ text: {quoted} }} }}]\n- text: {quoted}\n");
    let project = Project::new()
        .policy("model: { provider: script, script: replies.yaml }\nsandbox: { fs: { read: [docs], write: [] } }\n")
        .tool(
            "fails",
            "parameters:\n  text: { type: string }\n",
            "def run(args):\n    log.info(args[\"text\"])\n    fail(args[\"text\"])\n",
        )
        .tool(
            "reads",
            "parameters:\n  path: { type: string }\n",
            "def run(args):\n    return fs.read(args[\"path\"])\n",
        )
        .tool(
            "asks",
            "confirm: true\nparameters:\n  text: { type: string }\n",
            "def run(args):\n    return args[\"text\"]\n",
        )
        .file("replies.yaml", &replies);
    let acme = site.tenant("acme", &project);
    // Labels of keys, which are ASCII, and their rules.
    let label = format!("{MARKUP} {}", &ATTRIBUTE[..18]);
    let rules = format!("fs: {{ read: [docs] }} # {MARKUP}");
    let body = json!({"role": "owner", "label": label, "policy": rules});
    let key = site.ask(&acme.key, "POST /v1/keys", &body).json()["key"].as_str().unwrap().to_owned();
    // A turn: what was asked, the arguments of a call, its error and its log, and the answer.
    let run = site.begin(&key, &all);
    site.ended(&key, &run);
    // Arguments that wait for an answer, and the value that comes of them.
    let call = |tool: &str| {
        let body = json!({"arguments": {"text": all}});
        let run =
            site.ask_with(&key, &format!("POST /v1/tools/{tool}/calls"), &[("Prefer", "respond-async")], &body).json();
        run["id"].as_str().unwrap().to_owned()
    };
    let waiting = call("asks");
    let event = site.event(&key, &waiting, "waiting");
    // Paths that are refused, and a tool that there is not.
    site.call(&key, "reads", json!({"path": format!("notes/{}", MARKUP.replace('/', "_"))}));
    site.call(&key, "%3Cimg%20src=x%3E", json!({}));
    let mut owner = Visitor::with(&site, &acme.key);
    let mut narrow = Visitor::with(&site, &key);
    // What is hidden in a field stays as it is: it is sent again from there.
    let asked = [MARKUP, ATTRIBUTE, SCRIPT].join(" ");
    let query: String = url::form_urlencoded::byte_serialize(asked.as_bytes()).collect();
    let lines = site.get(&acme.key, "/v1/audit").body.lines().count();
    let mut paths = vec![
        "/dashboard".to_owned(),
        "/dashboard/runs".to_owned(),
        format!("/dashboard/runs?tool={query}&state={query}&since={query}"),
        format!("/dashboard/runs/{run}"),
        format!("/dashboard/runs/{waiting}"),
        "/dashboard/approvals".to_owned(),
        "/dashboard/audit".to_owned(),
        format!("/dashboard/audit?tool={query}&outcome={query}&from={query}&to={query}&before={query}"),
        "/dashboard/project".to_owned(),
        "/dashboard/keys".to_owned(),
        "/dashboard/secrets".to_owned(),
    ];
    paths.extend((1..=lines).map(|at| format!("/dashboard/audit/{at}")));
    for path in &paths {
        for visitor in [&mut owner, &mut narrow] {
            let reply = visitor.get(path);
            assert_eq!(reply.status, 200, "{path} {reply:?}");
            is_text(&reply.body, path);
        }
    }
    // The controls: each field is on its page, as text.
    let escaped = "&lt;img src=x onerror=alert(1)&gt;";
    for (path, times) in [
        ("/dashboard/runs".to_owned(), 1),
        (format!("/dashboard/runs/{run}"), 6),
        (format!("/dashboard/runs?tool={query}"), 1),
        ("/dashboard/approvals".to_owned(), 2),
        ("/dashboard/audit".to_owned(), 3),
        ("/dashboard/keys".to_owned(), 3),
    ] {
        let page = owner.get(&path).body;
        assert!(page.matches(escaped).count() >= times, "{path}: {page}");
    }
    assert!(owner.get(&format!("/dashboard/runs/{run}")).body.contains("\\u{202e}"));
    // What a form says comes back as text too.
    for (page, to, fields) in [
        (
            "/dashboard/keys",
            "/dashboard/keys",
            vec![("label", "x"), ("role", "caller"), ("days", ""), ("policy", all.as_str())],
        ),
        (
            "/dashboard/keys",
            "/dashboard/keys",
            vec![("label", all.as_str()), ("role", all.as_str()), ("days", all.as_str()), ("policy", "")],
        ),
        ("/dashboard/secrets", "/dashboard/secrets", vec![("name", all.as_str()), ("value", "x")]),
    ] {
        let reply = owner.send(page, to, &fields);
        assert!(reply.status >= 400, "{reply:?}");
        is_text(&reply.body, to);
    }
    // And what is made of it once it runs.
    let id = event["approval"].as_str().unwrap();
    let fields = [("answer", "yes"), ("args_digest", event["args_digest"].as_str().unwrap())];
    assert_eq!(owner.send("/dashboard/approvals", &format!("/dashboard/approvals/{id}"), &fields).status, 303);
    site.ended(&key, &waiting);
    let page = owner.get(&format!("/dashboard/runs/{waiting}")).body;
    is_text(&page, "a result");
    assert!(page.matches(escaped).count() >= 2, "{page}");
}

#[test]
fn addresses_that_are_made_to_do_harm_are_no_pages() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let mut visitor = Visitor::with(&site, &acme.key);
    for path in [
        "/dashboard/%3Cscript%3Ealert(1)%3C/script%3E",
        "/dashboard/runs/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/dashboard/runs/%0d%0aSet-Cookie:%20a=b",
        "/dashboard/audit/%3Cscript%3E",
        "/dashboard/link/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/dashboard/../v1/runs",
        "/dashboard/..%2f..%2fetc%2fpasswd",
        "/dashboard//evil.example/",
        "/dashboard/style.css/x",
    ] {
        let reply = visitor.get(path);
        assert!([400, 401, 404].contains(&reply.status), "{path} {reply:?}");
        assert!(!reply.body.contains("<script>alert") && !reply.head.contains("\r\nset-cookie"), "{path} {reply:?}");
    }
}
