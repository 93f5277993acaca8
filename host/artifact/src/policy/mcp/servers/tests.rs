use harness_policy::command::CommandReach;
use harness_policy::command::network::connection;

use super::*;
use crate::policy::ProjectPolicy;
use crate::policy::mcp::Piece;
use harness_policy::grant::Grant;

fn parse(policy: &str) -> (Option<ProjectPolicy>, Vec<String>) {
    let (policy, found) = ProjectPolicy::parse(".harness/harness.md", &format!("---\n{policy}---\n"));
    let shown = found.iter().map(|one| {
        let (line, hint) = (one.position.as_ref().map_or(0, |at| at.line), one.hint.as_deref());
        format!("{line} {}{}", one.message, hint.map(|hint| format!(" ({hint})")).unwrap_or_default())
    });
    (policy, shown.collect())
}

const WHOLE: &str = "sandbox: { secrets: { GITHUB: { env: G } } }
mcp:
  servers:
    github: { command: [npx, -y, 'a@1.2.3'], env: { TOKEN: 'Bearer {secret:GITHUB}', HOME: '{env:HOME}/x' }, keep: call }
    files: { command: [mcp-files], fs: { read: [docs] }, folders: [/opt/node], limits: { processes: 8 }, tools: ['read_*'] }
";

#[test]
fn servers_are_read_in_the_order_of_the_file() {
    let (policy, wrong) = parse(WHOLE);
    assert_eq!(wrong, Vec::<String>::new());
    let policy = policy.unwrap();
    let [github, files] = policy.mcp.servers.as_slice() else { panic!("{:?}", policy.mcp.servers) };
    assert_eq!((github.name.as_str(), github.keep, &github.tools), ("github", Keep::Call, &None));
    let Endpoint::Command(command) = &github.endpoint else { panic!("{:?}", github.endpoint) };
    assert_eq!(command.words(), ["npx", "-y", "a@1.2.3"]);
    let env: Vec<String> = command.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(env, ["TOKEN=Bearer {secret:GITHUB}", "HOME={env:HOME}/x"]);
    assert_eq!(github.secrets().collect::<Vec<_>>(), ["GITHUB"]);
    assert_eq!((files.keep, files.position.to_string().as_str()), (Keep::Run, ".harness/harness.md:6:5"));
    assert!(files.offers("read_file") && !files.offers("write_file") && github.offers("write_file"));
}

/// What a server does not name it does not have, and what it names the layers around it have to grant too.
#[test]
fn a_server_has_what_its_entry_and_the_project_grant() {
    let of = |policy: &str| {
        let (policy, wrong) = parse(policy);
        let policy = policy.unwrap_or_else(|| panic!("{wrong:?}"));
        policy.grant_for_server(&policy.mcp.servers[0])
    };
    let reads = |grant: &Grant, path: &str| {
        let path = harness_policy::path::WorkspacePath::parse(path, "").unwrap();
        grant.decide_path(&path, harness_policy::path::Access::Read).is_ok()
    };
    let nothing = of("mcp: { servers: { a: { command: [b, c] } } }\n");
    assert!(!reads(&nothing, "docs/x") && nothing.exec_network() == CommandReach::None && !nothing.exec_unconfined());
    assert!(nothing.decide_command("b", &["c".to_owned()]).is_ok());
    assert!(nothing.decide_command("b", &[]).is_err());
    let docs = "mcp: { servers: { a: { command: [b], fs: { read: [docs] } } } }\n";
    assert!(reads(&of(docs), "docs/x") && !reads(&of(docs), "src/x"));
    assert!(!reads(&of(&format!("sandbox: {{ fs: {{ read: [src] }} }}\n{docs}")), "docs/x"));
    // Commands of scripts are another matter.
    let other = of(
        "sandbox: { exec: { allow: [git], network: true, unconfined: true } }\nmcp: { servers: { a: { command: [b] } } }\n",
    );
    assert!(other.decide_command("b", &[]).is_ok() && !other.exec_unconfined());
    assert_eq!(other.exec_network(), CommandReach::None);
    // Nor are hosts of scripts those of servers.
    let hosts = of(
        "network: { allowed_domains: [a.example] }\nmcp: { servers: { a: { command: [b], network: { allowed_domains: [b.example] } } } }\n",
    );
    assert_eq!(hosts.exec_network(), CommandReach::Hosts);
    let reached: Vec<String> =
        hosts.command_hosts().iter().map(|target| format!("{}:{}", target.host(), target.port())).collect();
    assert_eq!(reached, ["b.example:443", "b.example:80"]);
    let refusal = hosts.decide_command_host(&connection("a.example", 443).unwrap()).unwrap_err();
    assert_eq!(
        refusal.hint,
        "add `\"a.example:443\"` to `mcp.servers.a.network.allowed_domains` in `.harness/harness.md`"
    );
}

/// A URL grants its host to the host's own requests, and nothing else.
#[test]
fn a_server_at_a_url_reaches_its_host_alone() {
    use harness_policy::network::{Method, Target};
    let policy = "sandbox: { secrets: { KEY: { env: K } }, exec: { allow: [git] } }
network: { allowed_domains: [b.example] }
mcp: { servers: { a: { url: 'https://a.example/mcp', headers: { Authorization: 'Bearer {secret:KEY}' }, tools: ['search_*'] } } }
";
    let (policy, wrong) = parse(policy);
    assert_eq!(wrong, Vec::<String>::new());
    let policy = policy.unwrap();
    let server = &policy.mcp.servers[0];
    let Endpoint::Url(remote) = &server.endpoint else { panic!("{:?}", server.endpoint) };
    assert_eq!((remote.url.as_str(), server.transport().name()), ("https://a.example/mcp", "http"));
    assert_eq!(server.secrets().collect::<Vec<_>>(), ["KEY"]);
    assert!(server.offers("search_x") && !server.offers("drop"));
    let grant = policy.grant_for_server(server);
    let target = |url: &str| Target::of(&url.parse().unwrap()).unwrap().by(Method::Post);
    assert_eq!(grant.decide_target(&target("https://a.example/other")), Ok(()));
    for url in ["https://b.example/", "http://a.example/", "https://a.example:8443/", "https://x.a.example/"] {
        assert!(grant.decide_target(&target(url)).is_err(), "{url}");
    }
    assert!(grant.decide_command("git", &[]).is_err());
    let path = harness_policy::path::WorkspacePath::parse("docs", "").unwrap();
    assert!(grant.decide_path(&path, harness_policy::path::Access::Read).is_err());
    let inside = "127.0.0.1".parse().unwrap();
    let hint = grant.decide_address(&target("https://a.example/"), inside).unwrap_err().hint;
    assert_eq!(hint, "add `private: true` to `mcp.servers.a` in `.harness/harness.md:4:19`");
}

#[test]
fn what_is_wrong_is_said() {
    let one = |entry: &str| parse(&format!("mcp:\n  servers:\n    a: {entry}\n")).1;
    for (entry, want) in [
        ("{}", "4 `mcp.servers.a` has neither `command` nor `url`"),
        (
            "{ command: [b], url: 'https://a.example/mcp' }",
            "4 `mcp.servers.a` has both `command` and `url`: it is one of them",
        ),
        ("{ command: [b], headers: { A: b } }", "4 `mcp.servers.a.headers` is for a server with `url`"),
        (
            "{ url: 'https://a.example/mcp', fs: { read: [docs] } }",
            "4 `mcp.servers.a.fs` is for a server with `command`",
        ),
        ("{ url: 'https://a.example/mcp', headers: { Mcp-Name: b } }", "4 the header `Mcp-Name` is set by the host"),
        (
            "{ url: 'https://a.example/mcp', headers: { A: '{secret:X}' } }",
            "4 the server `a` names no secret `X` (secrets are named in `sandbox.secrets`)",
        ),
        (
            "{ url: 'http://a.example/mcp' }",
            "4 `mcp.servers.a.url`: `http` shows everything on the way: use `https`, or `private: true` for a host of \
             your own network",
        ),
        ("{ command: [] }", "4 `mcp.servers.a.command`: it is empty: the program comes first"),
        (
            "{ command: mcp-files }",
            "4 parse harness.md: yaml: line 4: `mcp.servers.a.command` must be a list, found a string (write a list of one in square brackets)",
        ),
        (
            "{ command: [npx, -y, a] }",
            "4 `mcp.servers.a.command`: `npx` starts `a` without an exact version (name the exact version, or write \
             `floating: true` to run whatever is the newest)",
        ),
        ("{ command: [b], keep: never }", "4 mcp.servers.a.keep \"never\" must be run|call"),
        (
            "{ command: [b], env: { A: '{secret:X}' } }",
            "4 the server `a` names no secret `X` (secrets are named in `sandbox.secrets`)",
        ),
        ("{ command: [b], env: { A: '{secret:X' } }", "4 `mcp.servers.a.env.A`: `{secret:X` has no `}`"),
        ("{ command: [b], env: { TMPDIR: x } }", "4 `TMPDIR` is set by the host"),
        ("{ command: [b], env: { 'A B': x } }", "4 `A B` is not the name of a variable"),
        (
            "{ command: [b], network: { allowed_domains: [{ host: a.example, methods: [GET] }] } }",
            "4 `mcp.servers.a.network`: `methods` and `scheme` of `a.example` cannot be enforced: commands encrypt what they send",
        ),
    ] {
        let wrong = one(entry);
        assert_eq!(wrong, [want], "{entry}");
    }
    assert_eq!(one("{ command: [npx, -y, a], floating: true }"), Vec::<String>::new());
    assert_eq!(one("{ command: [b], network: { allowed_domains: [] } }"), Vec::<String>::new());
    for (name, right) in
        [("a", true), ("a_1", true), ("A", false), ("1a", false), ("a-b", false), (&*"a".repeat(21), false)]
    {
        assert_eq!(is_name(name), right, "{name}");
    }
    assert_eq!(
        parse("mcp: { servers: { A-B: { command: [b] } } }\n").1,
        ["2 `A-B` is not the name of a server (1 to 20 characters of a-z, 0-9 and _, a letter first)"]
    );
    assert!(one("{ commands: [b] }").iter().any(|one| one.starts_with("4 unknown key `mcp.servers.a.commands`")));
}

#[test]
fn plugins_call_the_servers_that_the_policy_names() {
    let policy = "sandbox: { sources: { plugins/acme: { mcp: [a] }, plugins/acme/tools: { mcp: [] } } }\nmcp: { servers: { a: { command: [b] } } }\n";
    let policy = parse(policy).0.unwrap();
    for (source, lent) in [
        ("tools/x", true),
        ("", true),
        ("plugins/acme/agents/x", true),
        ("plugins/acme/tools/x", false),
        ("plugins/other/tools/x", false),
    ] {
        assert_eq!(policy.lends_server(source, "a"), lent, "{source}");
        assert_eq!(policy.lends_server(source, "b"), source.is_empty() || source == "tools/x", "{source}");
    }
    assert_eq!(
        parse("sandbox: { sources: { plugins/acme: { mcp: [a] } } }\n").1,
        ["2 there is no server `a` (servers are named in `mcp.servers`)"]
    );
}

#[test]
fn templates_name_secrets_and_variables() {
    for (text, pieces) in [
        ("", vec![]),
        ("{a} {", vec![Piece::Text("{a} {".to_owned())]),
        (
            "x{secret:A}{env:B}y",
            vec![
                Piece::Text("x".to_owned()),
                Piece::Secret("A".to_owned()),
                Piece::Variable("B".to_owned()),
                Piece::Text("y".to_owned()),
            ],
        ),
    ] {
        let template = VariableText::parse(text).unwrap();
        assert_eq!((template.pieces(), template.to_string().as_str()), (&*pieces, text));
    }
    for wrong in ["{secret:}", "{secret:a b}", "{env:A", "\0"] {
        assert!(VariableText::parse(wrong).is_err(), "{wrong}");
    }
}
