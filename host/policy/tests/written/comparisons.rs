//! Examples of what one policy allows and another does not.

use super::random::{Dice, grant, request, stack};
use harness_artifact::policy::ProjectPolicy;
use harness_policy::compare::{Agreed, Example, Wider, agreed, wider, wider_secrets};
use harness_policy::grant::Grant;
use harness_policy::secret::Secret;

/// The report of two policies, one a line.
fn report(old: &str, new: &str) -> String {
    lines(wider(&grant(&[old]), &grant(&[new])))
}

fn lines(found: Vec<Wider>) -> String {
    let lines = found.into_iter().map(|wider| match wider.example {
        Example::Certain { what, refused } => format!("{}: {what} ({refused})", wider.key),
        Example::Perhaps => format!("{}: perhaps", wider.key),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The key and example alone.
fn examples(old: &str, new: &str) -> Vec<String> {
    let found = wider(&grant(&[old]), &grant(&[new])).into_iter();
    found
        .map(|wider| match wider.example {
            Example::Certain { what, .. } => format!("{}: {what}", wider.key),
            Example::Perhaps => format!("{}: perhaps", wider.key),
        })
        .collect()
}

#[test]
fn an_example_says_what_is_new_and_what_refused_it() {
    insta::assert_snapshot!(
        report(
            "fs: { read: [src], write: [out], protect: [src/keys] }\nnetwork: [a.example]\nexec: { allow: [git status], env: [PATH] }\nlimits: { fuel: 5 }\nsecrets: [A]\nservices: [cache]",
            "fs: { read: [src, docs], write: [out/tmp] }\nnetwork: ['*.example']\nexec: { allow: ['git *'], env: [PATH, HOME], folders: [/opt/go], network: true }\nenv: [CI]\nlimits: { fuel: 6 }\nsecrets: [A, B]\nservices: [cache, clock]",
        ),
        @"
    fs.read: reading `docs` (reading `docs` is not granted: nothing in `fs.read` in `test:1:13` covers it)
    network: the host `a.a.example` (the host `a.a.example` is not allowed)
    exec.allow: the command `git` (the command `git` is not allowed)
    exec.env: the variable `HOME` for commands (commands do not get it)
    exec.network: commands that use the network (commands have no network)
    exec.folders: the folder `/opt/go` for commands (commands do not see it)
    env: the variable `CI` (the variable `CI` is not granted)
    secrets: the secret `B` (the secret `B` is not granted)
    services: `clock` (`clock` is not granted)
    limits.fuel: 6 units (the limit is 5 units)
    "
    );
}

#[test]
fn secrets() {
    let secrets = |rules: &str| -> Vec<Secret> {
        let text = format!("---\nsandbox: {{ secrets: {{ A: {{ {rules} }} }} }}\n---\n");
        let policy = ProjectPolicy::parse(".harness/harness.md", &text).0.unwrap();
        policy.secrets.into_iter().map(|secret| secret.value).collect()
    };
    for (old, new, told) in [
        ("env: A, hosts: [a.test], exec: ['gh *']", "env: A, hosts: [a.test], exec: [gh pr]", ""),
        (
            "env: A, hosts: [a.test]",
            "env: B, hosts: [a.test]",
            "secrets.A: using what the variable `B` holds (it is what the variable `A` holds)",
        ),
        (
            "env: A, hosts: [a.test]",
            "env: A, hosts: [a.test, b.test]",
            "secrets.A.hosts: giving it to the host `b.test` (the secret `A` is not for it)",
        ),
        (
            "env: A, exec: [gh]",
            "env: A, exec: [gh, git]",
            "secrets.A.exec: giving it to the command `git` (the secret `A` is not for it)",
        ),
    ] {
        assert_eq!(lines(wider_secrets(secrets(old).iter(), secrets(new).iter())), told, "{old} | {new}");
    }
}

#[test]
fn what_is_agreed_is_what_all_layers_allow() {
    let of = |layers: &[&str]| agreed(&grant(layers)).into_iter().find(|one| one.key == "fs.read").unwrap();
    let rules = |rules: &[&str]| rules.iter().map(|&rule| rule.to_owned()).collect();
    let (wide, narrow) = ("fs: { read: [src, docs] }", "fs: { read: [src] }");
    assert_eq!(of(&[wide]), Agreed { key: "fs.read", rules: rules(&["src", "docs"]), whole: true });
    assert_eq!(of(&[wide, narrow]), Agreed { key: "fs.read", rules: rules(&["src"]), whole: true });
}

/// Rules that are the same, and so many states apart that it would take for ever to see that.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes ten seconds without optimization")]
fn what_takes_too_long_to_compare_is_told() {
    let rule = format!("exec: {{ allow: ['x *a{}'] }}", "?".repeat(20));
    assert_eq!(report(&rule, &rule), "exec.allow: perhaps");
}

#[test]
fn paths() {
    let fs = |read: &str| format!("fs: {{ read: [{read}] }}");
    for (old, new, example) in [
        ("'.'", "src, '**/x'", None),
        ("src", "src/**, src/a, './src/*'", None),
        ("'a*', '*b'", "'a*b', 'ab'", None),
        ("'**/*.rs'", "'src/*.rs', '*.rs/x'", None),
        ("'?', '??'", "'a?', 'b'", None),
        ("src", "'.'", Some("`.`")),
        ("'src/*'", "src", Some("`src`")),
        ("'*.rs'", "'**/*.rs'", Some("`r/.rs`")),
        ("'a?c'", "'a*c'", Some("`ac`")),
        ("", "'.env*', a", Some("`a`")),
        ("'**/a/**/b'", "'**/a/**'", Some("`a`")),
        // What is never opened is no example.
        ("", "'.env*', '**/*.pem', agents", None),
        ("'a.rs'", "'*.key', 'a.rs/id_x'", None),
    ] {
        let wanted: Vec<String> = example.iter().map(|path| format!("fs.read: reading {path}")).collect();
        assert_eq!(examples(&fs(old), &fs(new)), wanted, "{old} -> {new}");
    }
    let protecting = |protect: &str| format!("fs: {{ read: [a, B], protect: [{protect}] }}");
    assert_eq!(examples(&protecting("A"), &protecting("")), ["fs.read: reading `a`"]);
    assert_eq!(examples(&protecting("A, b"), &protecting("a")), ["fs.read: reading `B`"]);
    assert_eq!(examples(&protecting("'?'"), &protecting("a, b")), Vec::<String>::new());
    // What is protected is so in other spellings, whether a rule names them or not.
    for (protect, read) in [("ab", "a\u{200B}b"), ("ab", "ab. ."), ("ab", "a?b"), ("assb", "a?b")] {
        let old = format!("fs: {{ read: ['.'], protect: [{protect}] }}");
        assert_eq!(examples(&old, &fs(&format!("'{read}'"))).len(), 1, "{protect} {read:?}");
    }
    // A longer name than any file has is no example.
    assert_eq!(examples(&fs("a"), &fs(&"x".repeat(300))), ["fs.read: perhaps"]);
}

#[test]
fn commands() {
    let exec = |allow: &str| format!("exec: {{ allow: [{allow}] }}");
    for (old, new, example) in [
        ("git", "git status, 'git *', 'git log *'", None),
        ("'git *'", "'git'", None),
        ("'git a*'", "'git ab', 'git a?'", None),
        ("'git s*', 'git l*'", "git status, git log", None),
        ("'git status *'", "'git status'", None),
        ("'git *'", "'git \"\"'", None),
        ("'git ?*'", "'git a', 'git *b'", None),
        ("git status", "git", Some("`git`")),
        ("git status", "'git status *'", Some("`git status \"\"`")),
        ("'git \"*\"'", "'git ?'", Some("`git z`")),
        // A wildcard in front takes no option.
        ("'git *a *'", "'git -a'", Some("`git -a`")),
        ("git", "cargo", Some("`cargo`")),
        ("git", "/bin/git", Some("`/bin/git`")),
    ] {
        let wanted: Vec<String> = example.iter().map(|line| format!("exec.allow: the command {line}")).collect();
        assert_eq!(examples(&exec(old), &exec(new)), wanted, "{old} -> {new}");
    }
}

#[test]
fn hosts() {
    let network = |hosts: &str| format!("network: [{hosts}]");
    for (old, new, example) in [
        ("'*'", "a.example, '*.b.example', 'x:443'", None),
        ("'*.example'", "a.example, '*.a.example'", None),
        ("{ host: a, private: true }", "a", None),
        ("a", "'a:80', 'a:443'", None),
        ("'a:80', 'a:443'", "a", None),
        ("a", "{ host: a, private: true }", Some("`a` at a private address")),
        ("a", "'a:8443'", Some("`a:8443`")),
        ("'*.a'", "a", Some("`a`")),
        ("a", "'*.a'", Some("`a.a`")),
        ("'*'", "127.0.0.1", Some("`127.0.0.1`")),
        ("127.0.0.1", "'127.0.0.1:81', '*'", Some("`a.example`")),
        ("'*.a', '*.b'", "'*'", Some("`a`")),
        ("a", "{ host: a, methods: [GET], scheme: https }", None),
        ("{ host: a, methods: [GET] }, { host: a, methods: [POST] }", "{ host: a, methods: [POST, GET] }", None),
        ("{ host: a, methods: [GET] }", "a", Some("`a`, HEAD over http")),
        ("{ host: a, scheme: https }", "{ host: a, scheme: http }", Some("`a`, GET over http")),
        ("a", "{ host: b, methods: [] }", None),
    ] {
        let wanted: Vec<String> = example.iter().map(|host| format!("network: the host {host}")).collect();
        assert_eq!(examples(&network(old), &network(new)), wanted, "{old} -> {new}");
    }
}

/// What one layer takes away the others cannot bring into the comparison.
#[test]
fn layers_agree_before_they_are_compared() {
    let both = |layers: &[&str], others: &[&str]| wider(&grant(layers), &grant(others));
    let (wide, left, right) = ("fs: { read: ['.'] }", "fs: { read: ['a*'] }", "fs: { read: ['*b'] }");
    assert_eq!(both(&["fs: { read: ['a*b'] }"], &[wide, left, right]), []);
    assert_eq!(both(&[left, right], &["fs: { read: ['a*b', ab] }"]), []);
    assert_eq!(both(&[left, right], &[left]).len(), 1);
    assert_eq!(both(&[wide, "env: []"], &[wide]), []);
    assert_eq!(both(&[], &[wide]).len(), 1);
    assert_eq!(both(&[wide], &[]), []);
}

/// Pairs of stacks that are tried; without optimization a fifth of them.
const PAIRS: usize = if cfg!(debug_assertions) { 300 } else { 1_500 };

/// The answer for random pairs is that of the functions that enforce: nothing that is asked of both of them is allowed
/// by the new one alone where nothing was found.
#[test]
fn random_pairs() {
    let mut dice = Dice::new(7);
    let (mut same, mut more) = (0, 0);
    for _ in 0..PAIRS {
        let (old, new) = (Grant::new(stack(&mut dice, 2)), Grant::new(stack(&mut dice, 2)));
        let found = wider(&old, &new);
        assert!(found.iter().all(|one| one.example != Example::Perhaps), "{found:?}\n{old:#?}\n{new:#?}");
        for _ in 0..100 {
            let request = request(&mut dice);
            if request.allowed(&new) && !request.allowed(&old) {
                let key = request.key();
                // What commands get is distinguished only where the old one allows a command.
                let told = |one: &Wider| one.key == key || (key.starts_with("exec.") && one.key == "exec.allow");
                assert!(found.iter().any(told), "{request:?}: {found:?}\n{old:#?}\n{new:#?}");
            }
        }
        let keys = found.iter().filter(|one| !one.key.starts_with("limits")).count();
        same += usize::from(keys == 0);
        more += usize::from(keys > 0);
    }
    assert!(same > PAIRS / 75 && more > PAIRS / 5, "{same} {more}");
}
