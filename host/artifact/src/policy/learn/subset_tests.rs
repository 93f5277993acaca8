//! What is learned allows nothing that the policy in force does not.

use std::net::IpAddr;

use super::*;
use crate::diagnostic::Position;
use crate::policy::sources::SourceRules;
use crate::policy::{ProjectPolicy, layer as keys, with_defaults};
use crate::random::{self as testing, Dice};
use harness_policy::command::CommandReach;
use harness_policy::compare::wider;
use harness_policy::network::{Method, Target};

/// Calls that are tried; without optimization a tenth of them.
const CALLS: usize = if cfg!(debug_assertions) { 200 } else { 2_000 };
/// Calls that are tried once in a while.
const MORE: usize = 1_000_000;

const SOURCES: [&str; 5] = ["tools/a", "tools/b", "hooks/h", "plugins/p/tools/x", "plugins/p/hooks/y"];
const ENTRIES: [&str; 7] = ["tools", "tools/a", "tools/b", "hooks/h", "plugins/p", "plugins/p/tools/x", "plugins/q"];

/// Layers with what is hard to write: quotes, wildcards that are meant, ports, folders that hold what is protected.
const ODD: [&str; 5] = [
    "fs: { read: ['.'], write: ['[[]x[]]', a], protect: ['a/b', '[*]'] }\nexec: { allow: ['p *', { argv: [q] }], env: [U], network: true }",
    "exec: { allow: [{ argv: [p] }, { argv: [p, 'a\"b'] }, { argv: [q, \"a\\nb\", '`'] }, 'p \"a`b\"'], env: [V, W] }",
    "network: ['a.x:443', '*.x', { host: x, methods: [GET, POST], private: true }]\nfs: { read: [a], protect: ['a/?'] }",
    "exec: { allow: [p, q], unconfined: true }\nfs: { read: ['a*', '[[]x[]]'], write: ['a?b'] }\nlimits: { timeout_ms: 2000, fuel: 5 }",
    "env: [U, HOME]\nservices: [cache, meta]\nlimits: { files: 0, fuel: 20000000000, processes: 70 }",
];
const NAMES: [&str; 9] = ["[x]", "a*b", "a?b", "axb", "*", "a", "b", "a#b", ".env"];
const ARGUMENTS: [&str; 9] = ["a\"b", "`", "a`b", "a\nb", "\u{202e}", "", "*", "-a", "a b"];

fn layer(dice: &mut Dice) -> Layer {
    if dice.below(2) == 0 {
        return testing::layer(dice);
    }
    let yaml: &str = dice.one::<&str>(&ODD);
    keys::parse("odd", yaml).0.unwrap()
}

fn policy(dice: &mut Dice) -> ProjectPolicy {
    let mut policy = ProjectPolicy::absent("harness.md");
    policy.project = with_defaults(layer(dice));
    let mut names: Vec<&str> = (0..dice.below(4)).map(|_| *dice.one(&ENTRIES)).collect();
    names.sort_unstable();
    names.dedup();
    policy.sources = names
        .into_iter()
        .map(|name| {
            let position = Position { file: "harness.md".into(), line: 1, column: 1, length: 1 };
            let (tools, servers, events, shared, written) = (None, None, None, None, serde_json::Value::Null);
            SourceRules { name: name.to_owned(), layer: layer(dice), tools, servers, events, shared, written, position }
        })
        .collect();
    policy
}

fn request(dice: &mut Dice) -> Option<Request> {
    Some(match dice.below(6) {
        0 | 1 => {
            let names: Vec<&str> = (0..=dice.below(2)).map(|_| *dice.one(&NAMES)).collect();
            let path = WorkspacePath::parse(&names.join("/"), "/w").ok()?;
            let access = if dice.below(2) == 0 { Access::Read } else { Access::Write };
            if dice.below(4) == 0 { Request::Shown(path, access) } else { Request::Path(path, access) }
        }
        2 | 3 => {
            let args = (0..dice.below(3)).map(|_| (*dice.one(&ARGUMENTS)).to_owned()).collect::<Vec<_>>();
            let args = if dice.below(20) == 0 { vec!["long".repeat(2000); dice.below(4)] } else { args };
            Request::Command((*dice.one(&["p", "q"])).to_owned(), args)
        }
        4 => {
            let url = dice.one(&["https://a.x/", "http://a.x/", "https://a.x:80/", "http://x/", "https://x/"]);
            let target = Target::of(&url::Url::parse(url).unwrap()).unwrap().by(*dice.one(&Method::ALL));
            Request::Host(target, *dice.one(&[IpAddr::from([1, 1, 1, 1]), IpAddr::from([10, 0, 0, 1])]))
        }
        _ => match testing::request(dice) {
            testing::Request::Path(path, access) => Request::Path(path, access),
            testing::Request::Host(target, address) => Request::Host(target, address),
            testing::Request::Command(program, args) => Request::Command(program, args),
            testing::Request::ChildVariable(name) => Request::ChildVariable(name),
            testing::Request::Variable(name) => Request::Variable(name),
            testing::Request::Service(service) => Request::Service(service),
            _ => return None,
        },
    })
}

/// What the call had that observing does not show, as `harness policy learn` keeps it.
fn kept(dice: &mut Dice, grant: &Grant) -> Kept {
    let above = |key: &LimitKey| {
        let (granted, default) = (grant.limit(*key).0, key.facts().default);
        (granted > default).then(|| (*key, default + 1 + (granted - default - 1) / 2))
    };
    let limits = if dice.below(2) == 0 { LimitKey::ALL.iter().filter_map(above).collect() } else { Vec::new() };
    Kept {
        variables: grant.exec_env(),
        folders: grant.exec_folders().iter().map(ToString::to_string).collect(),
        network: grant.exec_network() == CommandReach::All,
        unconfined: grant.exec_unconfined(),
        limits,
        secrets: Vec::new(),
    }
}

/// Makes some random calls. How many requests were written, and how many had no rule.
fn try_calls(seed: u64, calls: usize) -> (usize, usize) {
    let mut dice = Dice::new(seed);
    let (mut written, mut unwritten) = (0, 0);
    let requests: Vec<Request> = (0..600).filter_map(|_| request(&mut dice)).collect();
    for round in 0..calls {
        let policy = policy(&mut dice);
        let mut asked = Asked::default();
        for _ in 0..dice.below(8) {
            let (source, request) = (*dice.one(&SOURCES), dice.one(&requests).clone());
            if request.allowed(&policy.grant_for(source, None)) {
                asked.requests.push((source.to_owned(), request));
            }
        }
        let kept = kept(&mut dice, &policy.grant_for("tools/a", None));
        let draft = Draft::of(asked.clone(), kept);
        let text = draft.text_within(&policy);
        let learned = super::tests::policy(&text).unwrap_or_else(|| panic!("{text}"));
        unwritten += draft.without_rule().count();
        for (source, request) in asked.requests.iter().filter(|(_, request)| rule(request).is_some()) {
            written += 1;
            assert!(request.allowed(&learned.grant_for(source, None)), "{source} {request:?}\n{text}\n{policy:#?}");
        }
        for source in SOURCES.iter().chain(&ENTRIES).chain(&["builtins/z", "plugins/q/tools/z"]) {
            let (before, now) = (policy.grant_for(source, None), learned.grant_for(source, None));
            for _ in 0..6 {
                let other = dice.one(&requests);
                let opens = other.allowed(&now) && !other.allowed(&before);
                assert!(!opens, "{source}: {other:?}\n{text}\n{policy:#?}");
            }
            // All that there is, which takes longer.
            if round % 16 == 0 {
                assert_eq!(wider(&before, &now), [], "{source}\n{text}\n{policy:#?}");
            }
        }
    }
    (written, unwritten)
}

fn in_threads(calls: usize) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let tried: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let begun: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || try_calls(77 + thread as u64, calls / threads))).collect();
        begun.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (written, unwritten) = tried.iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert!(written > calls / 4 && unwritten > 0, "{written} {unwritten}");
}

#[test]
fn what_is_learned_allows_nothing_more() {
    in_threads(CALLS);
}

#[test]
#[ignore = "takes minutes"]
fn a_million_calls() {
    in_threads(MORE);
}
