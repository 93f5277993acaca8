//! Hosts and commands that a secret is for.

use harness_artifact::policy::ProjectPolicy;
use harness_policy::grant::Grant;
use harness_policy::network::Target;
use harness_policy::refusal::Refusal;

const POLICY: &str = "---\nsandbox:\n  secrets:\n    A: { env: A, hosts: [a.test, \"*.b.test:8443\", \"127.0.0.1:80\", \"8.8.8.8\", { host: c.test, private: true }], exec: [\"git push *\", gh] }\n    B: { file: b }\n  sources: { plugins/acme: { secrets: [A] }, plugins/acme/tools/x: { secrets: [] } }\n---\n";

fn policy() -> ProjectPolicy {
    let (policy, diagnostics) = ProjectPolicy::parse(".harness/harness.md", POLICY);
    policy.unwrap_or_else(|| panic!("{diagnostics:?}"))
}

fn message(decided: Result<(), Refusal>) -> String {
    decided.map_or_else(|refusal| format!("{} ({})", refusal.reason, refusal.hint), |()| "yes".to_owned())
}

#[test]
fn hosts() {
    let policy = policy();
    let to = |url: &str| message(policy.secrets[0].decide_target(&Target::of(&url.parse().unwrap()).unwrap()));
    for good in [
        "https://a.test/x",
        "https://A.test./x",
        "https://x.b.test:8443/",
        "http://127.0.0.1/",
        "http://c.test/",
        "https://8.8.8.8/",
    ] {
        assert_eq!(to(good), "yes", "{good}");
    }
    insta::assert_snapshot!(to("https://evil.test/"), @r#"the secret `A` is not for the host `evil.test` (add `{ host: "evil.test:443", methods: [GET], scheme: https }` to `sandbox.secrets.A.hosts` in `.harness/harness.md:4:25`)"#);
    insta::assert_snapshot!(to("https://a.test.evil.test/"), @r#"the secret `A` is not for the host `a.test.evil.test` (add `{ host: "a.test.evil.test:443", methods: [GET], scheme: https }` to `sandbox.secrets.A.hosts` in `.harness/harness.md:4:25`)"#);
    insta::assert_snapshot!(to("https://a.test:8443/"), @r#"the secret `A` is not for the host `a.test:8443` (add `{ host: "a.test:8443", methods: [GET], scheme: https }` to `sandbox.secrets.A.hosts` in `.harness/harness.md:4:25`)"#);
    insta::assert_snapshot!(to("http://a.test/"), @"the secret `A` would go to `a.test` in the clear (ask with `https`)");
    insta::assert_snapshot!(to("http://8.8.8.8/"), @"the secret `A` would go to `8.8.8.8` in the clear (ask with `https`)");
    let none = &policy.secrets[1];
    insta::assert_snapshot!(message(none.decide_target(&Target::of(&"https://a.test/".parse().unwrap()).unwrap())), @r#"the secret `B` is not for the host `a.test` (add `{ host: "a.test:443", methods: [GET], scheme: https }` to `sandbox.secrets.B.hosts` in `.harness/harness.md:5:5`)"#);
}

#[test]
fn commands() {
    let policy = policy();
    let to = |program: &str, args: &[&str]| {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        message(policy.secrets[0].decide_command(program, &args))
    };
    assert_eq!(to("gh", &["pr", "list"]), "yes");
    assert_eq!(to("git", &["push", "origin"]), "yes");
    insta::assert_snapshot!(to("git", &["log"]), @"the secret `A` is not for the command `git` (add `git log` to `sandbox.secrets.A.exec` in `.harness/harness.md:4:118`)");
    insta::assert_snapshot!(to("env", &[]), @"the secret `A` is not for the command `env` (add `{ argv: [env] }` to `sandbox.secrets.A.exec` in `.harness/harness.md:4:118`)");
    insta::assert_snapshot!(message(policy.secrets[1].decide_command("gh", &[])), @"the secret `B` is not for the command `gh` (add `{ argv: [gh] }` to `sandbox.secrets.B.exec` in `.harness/harness.md:5:5`)");
}

#[test]
fn names() {
    let policy = policy();
    let of = |source: &str, name: &str| message(policy.grant_for(source, None).decide_secret(name));
    assert_eq!((of("tools/x", "A"), of("tools/x", "B")), ("yes".to_owned(), "yes".to_owned()));
    assert_eq!(of("plugins/acme/tools/y", "A"), "yes");
    insta::assert_snapshot!(of("tools/x", "C`"), @"there is no secret `C'` ()");
    insta::assert_snapshot!(of("plugins/acme/tools/y", "B"), @"the secret `B` is not granted (add `B` to `sandbox.sources.plugins/acme.secrets` in `.harness/harness.md:6:39`)");
    insta::assert_snapshot!(of("plugins/acme/tools/x", "A"), @"the secret `A` is not granted (add `A` to `sandbox.sources.plugins/acme/tools/x.secrets` in `.harness/harness.md:6:79`)");
    insta::assert_snapshot!(of("plugins/other/tools/x", "A"), @"the secret `A` is not granted (add `A` to `sandbox.sources.plugins/other.secrets` in `.harness/harness.md`)");
    insta::assert_snapshot!(message(Grant::new(Vec::new()).decide_secret("A")), @"there is no secret `A` (name it in `.harness/harness.md`: `A: { env: VARIABLE, hosts: [HOST] }` in `sandbox.secrets`)");
}
