//! Whom a script talks to over TLS: a server whose certificate this machine trusts, for the name that was asked for; and
//! where a redirect leads that goes into TLS or out of it.

use insta::assert_snapshot;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::project::{Project, Ran};
use crate::server::{Server, identity};

/// What a script prints of what `http.get` answers in a project with this rule, on a machine that trusts the server or
/// not. `SERVER` is its address.
fn asked(server: &Server, rules: &str, call: &str, trusted: bool) -> Ran {
    let filled = |text: &str| text.replace("SERVER", &server.address.to_string());
    let project = Project::with_script(&filled(&format!("def run(args):\n    return {call}\n")))
        .policy(&filled(&format!("network: {{ allowed_domains: [{rules}] }}\n")));
    let mut command = project.command(&["call", "it"]);
    command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
    if trusted {
        command.env("SSL_CERT_FILE", identity("certificate.pem"));
    }
    let ran = project.ran(&command.output().unwrap());
    let shown = |text: &str| text.replace(&server.address.to_string(), "[server]");
    Ran { out: shown(&ran.out), err: shown(&ran.err).replace(&server.address.port().to_string(), "[port]"), ..ran }
}

#[test]
fn a_certificate_is_verified() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(Server::start());
    let rules = "{ host: SERVER, scheme: https }";
    assert_snapshot!(asked(&server, rules, "http.get('https://SERVER/')['status']", false), @r"
    exit 1
    --- stdout
    --- stderr
    error: tool `it` failed: http.get: no trusted connection: invalid peer certificate: UnknownIssuer
     --> .harness/tools/it.md:4:14
      |
    4 |       return http.get('https://[server]/')['status']
      |              ^

    calls, outermost first:
      .harness/tools/it.md:4:14 in run
      .harness/tools/it.md:4:14 in http.get
    ");
    asked(&server, rules, "http.get('https://SERVER/')['status']", true).gives("200");

    // By a name that the certificate is not for.
    let name = format!("localhost:{}", server.address.port());
    let (rules, call) =
        (format!("{{ host: '{name}', private: true }}"), format!("http.get('https://{name}/')['status']"));
    assert_snapshot!(asked(&server, &rules, &call, true), @r#"
    exit 1
    --- stdout
    --- stderr
    error: tool `it` failed: http.get: no trusted connection: invalid peer certificate: certificate not valid for name "localhost"; certificate is only valid for IpAddress(127.0.0.1), DnsName("secure.example") or DnsName("second.example")
     --> .harness/tools/it.md:4:14
      |
    4 |       return http.get('https://localhost:[port]/')['status']
      |              ^

    calls, outermost first:
      .harness/tools/it.md:4:14 in run
      .harness/tools/it.md:4:14 in http.get
    "#);
    asked(&server, &rules, &call.replace("https", "http"), true).gives("200");
}

/// A redirect into TLS, or out of it, is a request of its own: a rule for one scheme does not cover it.
#[test]
fn a_redirect_to_another_scheme_is_decided_like_a_request() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(Server::start());
    let secure = "{ host: SERVER, scheme: https }";
    let call = |from: &str, to: &str| format!("http.get('{from}://SERVER/to/302/{to}://SERVER/ok')['url']");
    assert_snapshot!(asked(&server, secure, &call("https", "http"), true), @r#"
    exit 3
    --- stdout
    --- stderr
    error: tool `it` was denied: http.get: GET over http is not allowed for the host `[server]`
     --> .harness/tools/it.md:4:14
      |
    4 |       return http.get('https://[server]/to/302/http://[server]/ok')['url']
      |              ^
      |
      = hint: add `{ host: "[server]", methods: [GET], scheme: http }` to `network.allowed_domains` in `.harness/harness.md:2:29`

    calls, outermost first:
      .harness/tools/it.md:4:14 in run
      .harness/tools/it.md:4:14 in http.get
    "#);
    assert_snapshot!(asked(&server, "{ host: SERVER, scheme: http }", &call("http", "https"), true), @r#"
    exit 3
    --- stdout
    --- stderr
    error: tool `it` was denied: http.get: GET over https is not allowed for the host `[server]`
     --> .harness/tools/it.md:4:14
      |
    4 |       return http.get('http://[server]/to/302/https://[server]/ok')['url']
      |              ^
      |
      = hint: add `{ host: "[server]", methods: [GET], scheme: https }` to `network.allowed_domains` in `.harness/harness.md:2:29`

    calls, outermost first:
      .harness/tools/it.md:4:14 in run
      .harness/tools/it.md:4:14 in http.get
    "#);
    // A rule for both, and the same redirects; and one that stays where it is.
    asked(&server, "SERVER", &call("https", "http"), true).gives("http://[server]/ok");
    asked(&server, "SERVER", &call("http", "https"), true).gives("https://[server]/ok");
    asked(&server, secure, &call("https", "https"), true).gives("https://[server]/ok");
    // A server that nobody trusts is not asked, wherever the redirect to it came from.
    asked(&server, "SERVER", &call("http", "https"), false).says(1, "no trusted connection");
    assert_eq!(server.connected(), 10);
}

/// What a request says of who asks stays with the origin that it was for, and another scheme is another origin.
#[test]
fn credentials_do_not_cross_schemes() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(Server::start());
    let got = |from: &str, to: &str| {
        let url = format!("{from}://SERVER/to/307/{to}://SERVER/echo");
        let headers = "{'Authorization': 'mine', 'Cookie': 'mine', 'X-Api-Key': 'mine', 'Accept': 'text/plain'}";
        let call = format!(
            "[line for line in http.get('{url}', headers={headers})['body'].split('\\r\\n') if ': mine' in line or 'plain' in line]"
        );
        let ran = asked(&server, "SERVER", &call, true);
        assert_eq!(ran.code, 0, "{ran}");
        let mut lines: Vec<String> = serde_json::from_value(ran.json()).unwrap();
        lines.sort_unstable();
        json!(lines)
    };
    let anybody = json!(["accept: text/plain"]);
    assert_eq!((got("https", "http"), got("http", "https")), (anybody.clone(), anybody));
    let all = json!(["accept: text/plain", "authorization: mine", "cookie: mine", "x-api-key: mine"]);
    assert_eq!((got("https", "https"), got("http", "http")), (all.clone(), all));
}
