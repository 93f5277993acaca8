use super::*;
use crate::policy::hooks::OnError;
use harness_policy::command::CommandNetwork;
use harness_policy::limits::Limits;
use std::time::Duration;

const FILE: &str = ".harness/harness.md";

fn parse(yaml: &str) -> ProjectPolicy {
    let (policy, diagnostics) = ProjectPolicy::parse(FILE, &format!("---\n{yaml}---\nprose\n"));
    assert_eq!(diagnostics, Diagnostics::new());
    policy.unwrap()
}

/// Everything wrong, one thing a line: place, message, hint.
fn wrong(yaml: &str) -> String {
    let (policy, diagnostics) = ProjectPolicy::parse(FILE, &format!("---\n{yaml}---\n"));
    assert_eq!(policy.is_none(), diagnostics.has_errors());
    let line = |d: &crate::diagnostic::Diagnostic| {
        let position = d.position.as_ref().unwrap();
        let place = format!("{}:{}+{}", position.line, position.column, position.length);
        format!("{:?} {place} {} ({})", d.severity, d.message, d.hint.as_deref().unwrap_or("-"))
    };
    diagnostics.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn paths(texts: &[&str]) -> Vec<PathPattern> {
    texts.iter().map(|text| PathPattern::parse(text).unwrap()).collect()
}

const WHOLE: &str = "\
network:
  allowed_domains: [api.example.org, \"*.example.net\", \"127.0.0.1:8080\", { host: build.example.net, private: true }]
sandbox:
  fs: { read: [\".\"], write: [src, out], protect: [\"secrets/**\"] }
  exec: { allow: [git, \"cargo test *\"], env: [PATH, HOME], folders: [~/.cargo], network: true, unconfined: false }
  env: [CI, LANG]
  services: [cache, clock]
  secrets: { API: { env: API_TOKEN, hosts: [api.example.org] } }
  limits: { fuel: 2000000000, timeout_ms: 30000, memory_mb: 64, output_bytes: 65536, processes: 64, file_bytes: 16777216 }
  hooks: { on_error: allow, strict: true, named: { guard: block } }
  sources:
    plugins/acme: { network: [api.acme.example.com], fs: { read: [docs] }, limits: { timeout_ms: 2000 } }
    tools/deploy: { exec: { allow: [kubectl] } }
tools_policy: { mode: allowlist, allow: [\"read_*\", run_command], deny: [] }
meta: { enabled: true, max_tools: 5 }
delegation: { max_depth: 2, iterations_per_depth: [12, 6] }
model: { name: x }
context: { max_history: 5 }
";

#[test]
fn a_whole_policy() {
    let policy = parse(WHOLE);
    let project = &policy.project;
    assert_eq!(
        project.fs,
        Some(FsRules {
            read: paths(&["."]),
            write: paths(&["src", "out"]),
            protect: paths(&["secrets/**"]),
            ..FsRules::default()
        })
    );
    let hosts: Vec<String> = project.network.iter().flat_map(|n| &n.allow).map(ToString::to_string).collect();
    assert_eq!(hosts, ["api.example.org", "*.example.net", "127.0.0.1:8080", "build.example.net"]);
    let exec = project.exec.as_ref().unwrap();
    assert_eq!(exec.allow.iter().map(ToString::to_string).collect::<Vec<_>>(), ["git", "cargo test *"]);
    assert_eq!(
        (exec.env.join(" "), &exec.network, exec.unconfined),
        ("PATH HOME".to_owned(), &CommandNetwork::All, false)
    );
    assert_eq!(project.env, Some(vec!["CI".to_owned(), "LANG".to_owned()]));
    assert_eq!(project.services, Some(vec![Service::Cache, Service::Clock]));
    assert_eq!(Grant::new(vec![project.clone()]).limits(), Limits { fuel: 2_000_000_000, ..Limits::default() });
    assert_eq!(
        (policy.hooks.for_hook("x"), policy.hooks.for_hook("guard"), policy.hooks.strict),
        (OnError::Allow, OnError::Block, true)
    );
    assert_eq!(
        policy.secrets.iter().map(|s| format!("{} {:?} {:?}", s.name, s.holder, s.position.line)).collect::<Vec<_>>(),
        ["API Variable(\"API_TOKEN\") 9"]
    );
    assert_eq!(policy.sources.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["plugins/acme", "tools/deploy"]);
    assert!(policy.tools.decide("read_file").is_ok() && policy.tools.decide("write_file").is_err());
    assert_eq!(policy.meta, MetaPolicy { enabled: true, max_tools: Some(5), ..MetaPolicy::default() });
    assert_eq!(policy.delegation.iterations_per_depth, Some(vec![12, 6]));
    assert_eq!(policy.models.main.map(|model| model.name.value), Some("x".to_owned()));
    assert_eq!((policy.context.max_history, policy.rest.len()), (Some(5), 0));
    assert_eq!(policy.body, "prose");
}

/// Each rule, each list and each layer knows its line and column.
#[test]
fn where_each_rule_is() {
    let policy = parse(
        "network:\n  allowed_domains:\n    - api.example.org\n    - { host: build.example.net, private: true }\nsandbox:\n  fs:\n    read: [docs, src]\n  exec: { allow: [git], network: true }\n  services:\n    - cache\n  limits: { fuel: 5 }\n  sources:\n    tools/x:\n      env: [A]\n",
    );
    let shown = |places: &harness_policy::positions::RulePositions| {
        let spot = |(key, spot): (&str, &harness_policy::positions::Spot)| {
            let rules: Vec<String> = spot.rules.iter().map(ToString::to_string).collect();
            format!("{key} {} [{}]", spot.value, rules.join(" "))
        };
        places.keys().map(spot).collect::<Vec<_>>().join("\n")
    };
    let places = &policy.project.origin.places;
    insta::assert_snapshot!(shown(places), @"
    exec 9:9 []
    exec.allow 9:18 [9:19]
    exec.network 9:34 []
    fs 7:3 []
    fs.read 8:11 [8:12 8:18]
    limits 12:11 []
    limits.fuel 12:19 []
    network 3:3 [4:7 5:7]
    services 10:3 [11:7]
    ");
    assert_eq!(places.own(), None);
    let text = |place: Option<harness_policy::positions::RulePosition>| place.map(|place| place.to_string());
    assert_eq!(text(places.rule("fs.read", 1)), Some("8:18".to_owned()));
    // A key that is not there is looked for in what would hold it.
    assert_eq!((text(places.key("fs.write")), text(places.key("env"))), (Some("7:3".to_owned()), None));
    let source = &policy.sources[0].layer.origin.places;
    assert_eq!((text(source.own()), shown(source).as_str()), (Some("14:5".to_owned()), "env 15:12 [15:13]"));
    assert_eq!(ProjectPolicy::absent(FILE).project.origin.places, Default::default());
    // A refusal names the rule, or the list that lacks one.
    let grant = parse("sandbox: { fs: { read: [docs], protect: [a, docs/x] } }\n").grant_for("tools/y", None);
    let refused = |path: &str| {
        let path = harness_policy::path::WorkspacePath::parse(path, "/w").unwrap();
        grant.decide_path(&path, harness_policy::path::Access::Read).unwrap_err()
    };
    assert_eq!(
        (refused("docs/x").reason.as_str(), refused("b").hint.as_str()),
        (
            "reading `docs/x` is not allowed: `docs/x` is in `sandbox.fs.protect` in `.harness/harness.md:2:45`",
            "add `b` to `sandbox.fs.read` in `.harness/harness.md:2:24`"
        )
    );
    let hint = |name: &str| policy.grant_for(name, None).decide_env("B").unwrap_err().hint;
    assert_eq!(hint("tools/y"), "add `B` to `sandbox.env` in `.harness/harness.md`");
}

#[test]
fn what_is_not_said_has_its_default() {
    let scope = |policy: &ProjectPolicy| policy.project.origin.scope.clone();
    let absent = ProjectPolicy::absent(FILE);
    let empty = parse("");
    assert_eq!((scope(&absent), scope(&empty)), (Scope::Default, Scope::Project));
    for policy in [absent, empty] {
        let Layer { fs, network, exec, env, services, .. } = policy.project;
        assert_eq!(fs, Some(FsRules { read: paths(&["."]), write: paths(&["."]), ..FsRules::default() }));
        assert_eq!((network, exec, env), (Some(Default::default()), Some(Default::default()), Some(vec![])));
        assert_eq!(services, Some(Service::DEFAULT.to_vec()));
        assert_eq!((policy.tools, policy.hooks), (ToolsPolicy::default(), HookFailure::default()));
    }
    // A side that is not named is not granted.
    assert_eq!(parse("sandbox: { fs: { read: [a] } }\n").project.fs.unwrap().write, []);
}

#[test]
fn whatever_is_not_understood_is_an_error() {
    insta::assert_snapshot!(wrong("sandbx: {}\n"), @"Error 2:1+6 unknown key `sandbx` (did you mean `sandbox`?)");
    insta::assert_snapshot!(wrong("modell: {}\n"), @"Warning 2:1+6 unknown key `modell`, it is ignored (did you mean `model`?)");
    insta::assert_snapshot!(wrong("sandbox: { fss: {}, fs: { raed: [] }, exec: { allow: git }, limits: { fuel: 1, ful: 2 } }\n"), @r#"
    Error 2:12+3 unknown key `sandbox.fss` (did you mean `fs`?)
    Error 2:27+4 unknown key `sandbox.fs.raed` (did you mean `read`?)
    Error 2:54+3 parse harness.md: yaml: line 2: `sandbox.exec.allow` must be a list, found a string (write a list of one in square brackets)
    Error 2:80+3 unknown key `sandbox.limits.ful` (did you mean `fuel`?)
    "#);
    insta::assert_snapshot!(wrong("network: { allowed_domain: [a.com] }\n"), @"Error 2:12+14 unknown key `network.allowed_domain` (did you mean `allowed_domains`?)");
    insta::assert_snapshot!(wrong("network:\nsandbox: { exec: , env: [A, \"*\", 5] }\n"), @r#"
    Error 2:1+7 parse harness.md: yaml: line 2: `network` must be a mapping, found nothing (-)
    Error 3:12+4 parse harness.md: yaml: line 3: `sandbox.exec` must be a mapping, found nothing (-)
    Error 3:29+3 `sandbox.env[1]`: `*` is not the name of a variable (-)
    Error 3:34+1 parse harness.md: yaml: line 3: `sandbox.env[2]` must be a string, found an integer (put it in quotes)
    "#);
    insta::assert_snapshot!(wrong("sandbox: { env: [A], env: [B] }\n"), @"Error 2:22+3 parse harness.md: yaml: line 2: `env` is given twice, first on line 2 (-)");
    insta::assert_snapshot!(wrong("sandbox: { fs: { read: [../x, \"a[b]\"] }, services: [cach] }\n"), @r#"
    Error 2:25+4 `sandbox.fs.read[0]`: a pattern may not hold `..` (-)
    Error 2:31+6 `sandbox.fs.read[1]`: `[` means nothing in a pattern, `[[]` is the character and `?` any one (-)
    Error 2:53+4 `sandbox.services[0]`: `cach` is not a built-in that needs a grant, did you mean `cache`? (-)
    "#);
    insta::assert_snapshot!(wrong("network: { allowed_domains: [\"http://a\", { host: \"*\", private: true }, { hst: a }, 5] }\n"), @r#"
    Error 2:30+10 `network.allowed_domains[0]`: `http://a` is not a host: leave out the scheme (-)
    Error 2:50+3 `network.allowed_domains[1].host`: `*` stands for public hosts: name the private ones (-)
    Error 2:72+10 `network.allowed_domains[2]` has no `host` (-)
    Error 2:74+3 unknown key `network.allowed_domains[2].hst` (did you mean `host`?)
    Error 2:84+1 parse harness.md: yaml: line 2: `network.allowed_domains[3]` must be a string, found an integer (put it in quotes)
    "#);
    insta::assert_snapshot!(wrong("sandbox: { sources: { tool/x: {}, tools/y: { allowed_domains: [] } } }\n"), @r#"
    Error 2:31+2 `tool/x` is not the name of a source (did you mean `tools`?)
    Error 2:46+15 unknown key `sandbox.sources.tools/y.allowed_domains` (known here: network, secrets, fs, exec, env, services, limits, tools, mcp, events, shared)
    "#);
    insta::assert_snapshot!(wrong("tools_policy: { mode: alowlist, allow: [\"\", \"[x]\"], dny: [] }\n"), @r#"
    Error 2:23+8 tools_policy.mode "alowlist" must be allowlist|denylist (-)
    Error 2:41+2 tools_policy.allow[0] is empty (-)
    Error 2:45+5 `tools_policy.allow[1]`: `[` means nothing in a pattern, `?` stands for any one character (-)
    Error 2:53+3 unknown key `tools_policy.dny` (did you mean `deny`?)
    "#);
    insta::assert_snapshot!(wrong("tools_policy: { mode: denylist, allow: [x] }\n"), @"Warning 2:40+4 `tools_policy.allow` is ignored with `mode: denylist` (remove it, or write `mode: allowlist`)");
    insta::assert_snapshot!(wrong("meta: { enable: true }\ndelegation: { max_depth: -1, iterations_per_depth: [] }\n"), @r#"
    Error 2:9+6 unknown key `meta.enable` (did you mean `enabled`?)
    Error 3:26+2 parse harness.md: yaml: line 3: `delegation.max_depth` must be between 0 and 16 (-)
    Error 3:52+3 `delegation.iterations_per_depth` is empty (-)
    "#);
    insta::assert_snapshot!(wrong("sandbox: { hooks: { on_error: ignore }, secrets: { a-b: { hosts: [x] } } }\n"), @r#"
    Error 2:31+6 `sandbox.hooks.on_error`: write `block` or `allow` (-)
    Error 2:57+15 a secret is named like a variable: `a-b` is not the name of a variable (-)
    Error 2:57+15 `sandbox.secrets.a-b` has neither `env` nor `file` (-)
    "#);
}

#[test]
fn what_has_no_effect_is_told() {
    insta::assert_snapshot!(wrong(
        "sandbox:\n  fs:\n    read: [., agents/x, \"**/*.pem\", .git, \"a/*\"]\n    write: [src, .Git/hooks, \"id_*\", harness.lock]\n    protect: [.git]\n"
    ), @"
    Warning 4:15+8 `agents/x` opens nothing: the folder `agents/` is protected (no policy opens it)
    Warning 4:25+10 `**/*.pem` opens nothing: `*.pem` is a sensitive name (no policy opens it)
    Warning 5:18+10 `.Git/hooks` opens nothing: the folder `.git/` is protected (no policy opens it)
    Warning 5:30+6 `id_*` opens nothing: `id_*` is a sensitive name (no policy opens it)
    Warning 5:38+12 `harness.lock` opens nothing: the file `harness.lock` is protected (no policy opens it)
    ");
    insta::assert_snapshot!(wrong("serve: { x: 1 }\ntrusted_sources: [a]\nverify_policy: { mode: strict }\n"), @"
    Warning 2:8+8 `serve` is for other hosts and is ignored here (leave it for them, or remove it)
    Warning 3:19+1 `trusted_sources[0]` is an address that nothing is fetched from (write that of a git repository, `https://HOST/REPOSITORY`, or `{ source: ... }`)
    Warning 4:16+16 `verify_policy` is for other hosts and is ignored here (leave it for them, or remove it)
    ");
}

#[test]
fn limits_have_bounds() {
    for (key, least, most) in [
        ("fuel", 1_u64, 1_000_000_000_000_000_u64),
        ("timeout_ms", 1, 86_400_000),
        ("memory_mb", 16, 4096),
        ("output_bytes", 256, 16 << 20),
        ("processes", 1, 4096),
        ("command_memory_mb", 16, 1 << 20),
        ("file_bytes", 1, 1 << 30),
    ] {
        for good in [least, most] {
            parse(&format!("sandbox: {{ limits: {{ {key}: {good} }} }}\n"));
        }
        for bad in [(least - 1).to_string(), (most + 1).to_string(), "-5".to_owned(), "9".repeat(60)] {
            let message = format!("`sandbox.limits.{key}` must be between {least} and {most} (-)");
            let all = wrong(&format!("sandbox: {{ limits: {{ {key}: {bad} }} }}\n"));
            assert!(all.ends_with(&message) && all.lines().count() == 1, "{all}");
        }
    }
    let limits = Grant::new(vec![parse("sandbox: { limits: { memory_mb: 16, timeout_ms: 5 } }\n").project]).limits();
    assert_eq!(limits, Limits { memory_bytes: 16 << 20, timeout: Duration::from_millis(5), ..Limits::default() });
}

/// The scopes of a grant's layers, and what they say of the environment.
fn layers(grant: &Grant) -> Vec<String> {
    let show = |layer: &Layer| format!("{:?} {:?}", layer.origin.scope, layer.env);
    grant.layers().iter().map(|layer| show(layer)).collect()
}

#[test]
fn layers_of_the_projects_own_artifacts() {
    let policy =
        parse("sandbox: { env: [A, B], sources: { tools/x: { env: [A] }, tools: { env: [B] }, tools/y: {} } }\n");
    assert_eq!(layers(&policy.grant_for("hooks/x", None)), [r#"Project Some(["A", "B"])"#]);
    assert_eq!(
        layers(&policy.grant_for("tools/xy", None)),
        [r#"Project Some(["A", "B"])"#, r#"Source("tools") Some(["B"])"#]
    );
    assert_eq!(
        layers(&policy.grant_for("tools/x", None)),
        [r#"Project Some(["A", "B"])"#, r#"Source("tools") Some(["B"])"#, r#"Source("tools/x") Some(["A"])"#]
    );
    // A missing key says nothing.
    let y = policy.grant_for("tools/y", None);
    assert_eq!((y.decide_env("A").is_ok(), y.decide_env("B").is_ok()), (false, true));
}

#[test]
fn a_bundle_has_only_what_is_granted_to_it() {
    let policy = parse(
        "sandbox: { env: [A], sources: { plugins/acme: { services: [cache] }, plugins/acme/tools/x: { env: [A] } } }\n",
    );
    let bare = policy.grant_for("plugins/other/tools/x", None);
    assert!(bare.decide_env("A").is_err() && bare.decide_service(Service::Cache).is_err());
    assert_eq!(
        bare.decide_env("A").unwrap_err().hint,
        "add `A` to `sandbox.sources.plugins/other.env` in `.harness/harness.md`"
    );
    let x = policy.grant_for("plugins/acme/tools/x", None);
    assert!(x.decide_env("A").is_ok() && x.decide_service(Service::Cache).is_ok());
    assert!(x.decide_service(Service::Clock).is_err());
    assert!(policy.grant_for("plugins/acme/tools/y", None).decide_env("A").is_err());
    // The project's own artifact, for comparison.
    assert!(policy.grant_for("tools/x", None).decide_service(Service::Clock).is_ok());
}

#[test]
fn an_artifact_cannot_ask_for_more() {
    let asks =
        Layer { env: Some(vec!["A".to_owned()]), ..Layer::silent(Origin::new(".harness/tools/x.md", Scope::Artifact)) };
    assert!(ProjectPolicy::absent(FILE).grant_for("tools/x", Some(&asks)).decide_env("A").is_err());
    let policy = parse("sandbox: { env: [A, B] }\n");
    let grant = policy.grant_for("tools/x", Some(&asks));
    assert_eq!((grant.decide_env("A").is_ok(), grant.decide_env("B").is_ok()), (true, false));
}
