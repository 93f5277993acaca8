use serde_json::json;

use super::*;
use crate::policy::ProjectPolicy;
use harness_policy::compare::wider;
use harness_policy::grant::Grant;
use harness_policy::layer::Service;
use harness_policy::network::Target;
use harness_policy::path::{Access, WorkspacePath};
use harness_policy::watch::Request;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

fn parse(front: &str) -> (Option<Plugin>, Vec<String>) {
    let text = format!("---\n{front}---\n\n# Acme\n\nSearches.\n");
    let (plugin, diagnostics) = Plugin::parse("plugin.md", Some("plugins/acme"), &text);
    let shown = diagnostics.iter().map(|one| {
        let line = one.position.as_ref().map_or(0, |at| at.line);
        format!("{line} {}", one.message)
    });
    (plugin, shown.collect())
}

const HEAD: &str = "name: acme\nversion: 1.2.0\ndescription: Searches.\n";

#[test]
fn a_whole_plugin() {
    let front = format!(
        "{HEAD}license: MIT\nauthors: [Ada]\nhomepage: https://acme.example\nrequires: {{ harness: '>=0.1', plugins: {{ other: ^1 }} }}\nasks:\n  - reason: Reads pages.\n    fs: {{ read: [docs] }}\n    exec: {{ allow: [git, {{ argv: [ls, -l] }}], network: true, unconfined: false }}\n  - {{ reason: Asks., network: [{{ host: a.com, private: true }}], events: [tool.pre], services: [prompt] }}\n"
    );
    let (plugin, wrong) = parse(&front);
    assert_eq!(wrong, Vec::<String>::new());
    let plugin = plugin.unwrap();
    assert_eq!((plugin.version.to_string().as_str(), plugin.prose.as_str()), ("1.2.0", "# Acme\n\nSearches."));
    let words: Vec<String> = plugin.rules().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "read files that match `docs`",
            "run commands that match `git`",
            "run exactly the command `[\"ls\",\"-l\"]`",
            "let its commands use the whole network",
            "send requests to `a.com (private: true)`",
            "use the service `prompt`: put its prose into the prompts of models",
            "receive the event `tool.pre` of the whole project",
        ]
    );
    let rules: Vec<&Rule> = plugin.rules().collect();
    assert_eq!(
        entry(rules.iter().copied()),
        json!({
            "fs": {"read": ["docs"]},
            "network": [{"host": "a.com", "private": true}],
            "exec": {"allow": ["git", {"argv": ["ls", "-l"]}], "network": true},
            "services": ["prompt"],
            "events": ["tool.pre"],
        })
    );
    let sorted = canonical(rules.iter().copied());
    assert!(sorted.starts_with("[\"events\",\"tool.pre\"]\n[\"exec.allow\",\"git\"]\n"), "{sorted}");
    assert_eq!(canonical(rules.iter().rev().copied()), sorted);
}

#[test]
fn what_is_wrong() {
    for (front, expect) in [
        ("".to_owned(), "1 a plugin needs `name`"),
        (HEAD.replace("acme", "other"), "2 `name` is `other`, and the folder is `acme`"),
        (HEAD.replace("acme", "Acme"), "2 `name`: `Acme` is not a name"),
        (HEAD.replace("1.2.0", "'1.2'"), "3 `version`: `1.2` is not a version such as `1.2.0`"),
        (HEAD.replace("Searches.", "''"), "4 `description` has 1 to 1024 characters"),
        (format!("{HEAD}tools: []\n"), "5 unknown key `tools`"),
        (format!("{HEAD}homepage: ftp://a\n"), "5 `homepage`: `ftp://a` is not an address"),
        (format!("{HEAD}requires: {{ harness: one }}\n"), "5 `requires.harness`: `one` is not a range of versions"),
        (format!("{HEAD}requires: {{ plugins: {{ A: '1' }} }}\n"), "5 `requires.plugins`: `A` is not a name"),
        (format!("{HEAD}asks:\n  - env: [A]\n"), "6 `asks[0]` has no `reason`"),
        (format!("{HEAD}asks:\n  - reason: x\n"), "6 this ask names nothing"),
        (format!("{HEAD}asks: [{{ reason: x, env: [A] }}, {{ reason: y, env: [A] }}]\n"), "5 `read the variable"),
        (
            format!("{HEAD}asks: [{{ reason: x, limits: {{ fuel: 5 }} }}]\n"),
            "5 `asks[0]` narrows, and asks for nothing",
        ),
        (format!("{HEAD}asks: [{{ reason: x, fs: {{ protect: [a] }} }}]\n"), "5 `asks[0]` narrows"),
        (format!("{HEAD}asks: [{{ reason: x, env: [B], evn: [A] }}]\n"), "5 unknown key `asks[0].evn`"),
        (
            format!("{HEAD}asks: [{{ reason: x, events: [tool.per] }}]\n"),
            "5 `asks[0].events[0]`: `tool.per` is not an event, did you mean `tool.pre`?",
        ),
    ] {
        let (plugin, wrong) = parse(&front);
        assert!(plugin.is_none(), "{front}");
        assert!(wrong.first().is_some_and(|first| first.starts_with(expect)), "{front}: {wrong:?}");
    }
    let many: Vec<String> = (0..=MAX_RULES).map(|n| format!("A{n}")).collect();
    let (_, wrong) = parse(&format!("{HEAD}asks: [{{ reason: x, env: [{}] }}]\n", many.join(", ")));
    assert_eq!(wrong, ["5 a plugin asks for at most 256 rules"]);
}

fn rule() -> impl Strategy<Value = Rule> {
    let text = |key: &'static str, items: &'static [&'static str]| {
        proptest::sample::select(items).prop_map(move |item| Rule { key, item: json!(item) })
    };
    prop_oneof![
        text("fs.read", &["docs", "src/**", ".", "docs/a", "*.md"]),
        text("fs.write", &["out", "docs", "*.txt"]),
        text("network", &["a.com", "*.a.com", "b.org:8080"]),
        text("exec.allow", &["git", "git status", "ls *"]),
        text("exec.env", &["PATH", "HOME"]),
        text("exec.network", &["a.com"]),
        proptest::sample::select(&["exec.network", "exec.unconfined"]).prop_map(|key| Rule { key, item: json!(true) }),
        text("env", &["A", "B"]),
        text("services", &["cache", "clock", "modify"]),
        text("secrets", &["K"]),
    ]
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    proptest::collection::vec(rule(), 0..6)
}

/// A policy whose entry for the plugin has these rules, with a plugin that asks for those.
fn granted(consented: &[Rule], asked: &[Rule]) -> Grant {
    let mut policy = granting(consented);
    policy.plugins = vec![asks(asked)];
    policy.grant_for("plugins/acme/tools/x", None)
}

/// What the project of these pairs has beside the entry of the plugin.
const PROJECT: &str = "network: { allowed_domains: [a.com, '*.a.com', 'b.org:8080', other.net] }\nsandbox:\n  exec: { allow: ['git *', git, 'ls *'], env: [PATH, HOME], network: true, unconfined: true }\n  env: [A, B, C]\n  secrets: { K: { env: K, hosts: [a.com] } }\n";
/// What a plugin asks for, as a policy keeps to it.
fn asks(rules: &[Rule]) -> Asked {
    Asked::of(rules, "plugins/acme/plugin.md", "plugins/acme")
}

/// What is active beyond a bound.
fn beyond(bound: &Grant, active: &Grant) -> Vec<String> {
    let more = wider(bound, active).into_iter().filter(|one| !one.key.starts_with("limits"));
    more.map(|one| format!("{one:?}")).collect()
}

fn bound(rules: &[Rule]) -> Grant {
    Grant::new(layer(rules, "").into_iter().collect())
}

/// Pairs of asks and consents that are tried; without optimization a twentieth of them.
const PAIRS: usize = if cfg!(debug_assertions) { 5_000 } else { 100_000 };

/// Pairs that are read as text each.
const TEXTS: u32 = if cfg!(debug_assertions) { 100 } else { 1_000 };

/// How many pairs are tried; `PLUGIN_PAIRS` is another number.
#[expect(clippy::disallowed_methods, reason = "a setting of the test")]
fn pairs() -> usize {
    std::env::var("PLUGIN_PAIRS").ok().and_then(|text| text.parse().ok()).unwrap_or(PAIRS)
}

/// How many sets of rules the pairs are made of, at most.
const SETS: usize = 3_000;

/// Requests that the rules above tell apart: of each at least one that it allows, and one beside it.
fn requests() -> Vec<Request> {
    let paths =
        ["docs", "docs/a", "docs/b/c", "docsx", "src/x.rs", "src", "a.md", "docs/a.md", "out", "out/x", "a.txt", "x/y"];
    let path = |path: &&str| WorkspacePath::parse(path, "").unwrap();
    let both = [Access::Read, Access::Write];
    let paths = paths.iter().flat_map(|one| both.map(|access| Request::Path(path(one), access)));
    let address = "93.184.216.34".parse().unwrap();
    let urls = [
        "https://a.com/",
        "https://x.a.com/",
        "http://a.com/",
        "https://b.org:8080/",
        "https://b.org/",
        "https://other.net/",
    ];
    let target = |url: &str| Target::of(&url.parse().unwrap()).unwrap();
    let hosts =
        urls.iter().flat_map(|url| [Request::Host(target(url), address), Request::CommandHost(target(url), address)]);
    let lines: [&[&str]; 6] = [&["git"], &["git", "status"], &["git", "push"], &["ls"], &["ls", "-l"], &["rm"]];
    let commands = lines
        .iter()
        .map(|line| Request::Command(line[0].to_owned(), line[1..].iter().map(|word| (*word).to_owned()).collect()));
    let children = ["PATH", "HOME", "A"].map(|name| Request::ChildVariable(name.to_owned()));
    let variables = ["A", "B", "C", "PATH"].map(|name| Request::Variable(name.to_owned()));
    let secrets = ["K", "L"].map(|name| Request::Secret(name.to_owned()));
    let services = Service::ALL.into_iter().map(Request::Service);
    paths.chain(hosts).chain(commands).chain(children).chain(variables).chain(secrets).chain(services).collect()
}

/// Which of the requests a grant allows, a bit each, and whether commands are unconfined.
fn allowed(requests: &[Request], grant: &Grant) -> u128 {
    assert!(requests.len() < 127);
    let bits = requests.iter().enumerate().map(|(at, request)| u128::from(request.allowed(grant)) << at);
    bits.fold(u128::from(grant.exec_unconfined()) << 127, |all, bit| all | bit)
}

/// Whatever a plugin asks for and whatever was consented to: it has nothing beyond either of them. Each set of rules is read
/// once, as an entry of a policy and as asks; the pairs are decided on what was read, request by request.
#[test]
fn no_pair_of_asks_and_consents_has_more_than_either() {
    let mut runner = proptest::test_runner::TestRunner::default();
    let (count, requests) = (pairs(), requests());
    let most = SETS.min(count.isqrt().saturating_mul(2));
    let sets: Vec<Vec<Rule>> = (0..most).map(|_| rules().new_tree(&mut runner).unwrap().current()).collect();
    let read: Vec<_> = sets.iter().map(|set| (granting(set), asks(set), allowed(&requests, &bound(set)))).collect();
    let mut active = granting(&[]);
    let (mut some, mut seen) = (0_usize, 0_u128);
    for _ in 0..count {
        let (consented, asked) = (0..most, 0..most).new_tree(&mut runner).unwrap().current();
        active.sources.clone_from(&read[consented].0.sources);
        active.plugins.clear();
        active.plugins.push(read[asked].1.clone());
        let has = allowed(&requests, &active.grant_for("plugins/acme/tools/x", None));
        for bound in [read[consented].2, read[asked].2] {
            let more = requests.iter().enumerate().find(|(at, _)| (has & !bound) >> at & 1 == 1);
            assert!(has & !bound == 0, "{more:?}: {:?} consented to, {:?} asked for", sets[consented], sets[asked]);
        }
        some += usize::from(has != 0);
        seen |= has;
    }
    // The control: many of them have something, and most requests are allowed by some.
    assert!(some > count / 20, "{some} of {count}");
    assert!(seen.count_ones() > 30, "{seen:b}");
}

/// A policy whose entry for the plugin has these rules.
fn granting(consented: &[Rule]) -> ProjectPolicy {
    let text = format!("---\n{PROJECT}  sources:\n    plugins/acme: {}\n---\n", entry(consented));
    let (policy, wrong) = ProjectPolicy::parse("harness.md", &text);
    policy.unwrap_or_else(|| panic!("{text}: {wrong:?}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: TEXTS, ..ProptestConfig::default() })]

    /// The same of pairs that are read as text each, as a project is.
    #[test]
    fn what_is_active_is_asked_for_and_consented_to(consented in rules(), asked in rules()) {
        let active = granted(&consented, &asked);
        for rules in [&consented, &asked] {
            let more = beyond(&bound(rules), &active);
            prop_assert!(more.is_empty(), "{:?}", more);
        }
    }

    /// What is written into a policy and read again is the same rules.
    #[test]
    fn an_entry_has_the_rules_it_was_made_of(rules in rules()) {
        let text = entry(&rules);
        let again = asks::rules(&text);
        let has_all = |list: &[Rule]| list.iter().any(|rule| rule.key == "exec.network" && rule.item.is_boolean());
        let kept = rules.iter().filter(|rule| !(has_all(&rules) && rule.key == "exec.network" && !rule.item.is_boolean()));
        prop_assert_eq!(canonical(&again), canonical(kept));
    }
}

/// An entry for all plugins consents to nothing that one of them asks for: a later version would get it unseen.
#[test]
fn an_entry_for_all_plugins_only_narrows() {
    let asked = [Rule { key: "env", item: json!("A") }, Rule { key: "events", item: json!("tool.pre") }];
    let policy = |entries: &str, has_asks: bool| {
        let text = format!("---\nsandbox:\n  env: [A]\n  sources: {entries}\n---\n");
        let mut policy = ProjectPolicy::parse("harness.md", &text).0.unwrap();
        policy.plugins = if has_asks { vec![Asked::of(&asked, "plugin.md", "plugins/acme")] } else { Vec::new() };
        let hears = policy.shows("plugins/acme/hooks/x", &crate::event::Event::ToolPre, true).is_ok();
        (policy.grant_for("plugins/acme/tools/x", None).decide_env("A").is_ok(), hears)
    };
    let (all, own) = ("plugins: { env: [A], events: [tool.pre] }", "plugins/acme: { env: [A], events: [tool.pre] }");
    assert_eq!(policy(&format!("{{ {all} }}"), true), (false, false));
    assert_eq!(policy(&format!("{{ {all} }}"), false), (true, true));
    assert_eq!(policy(&format!("{{ {all}, {own} }}"), true), (true, true));
    assert_eq!(policy(&format!("{{ plugins: {{ env: [], events: [] }}, {own} }}"), true), (false, false));
}

/// The control: what was asked for and consented to is granted.
#[test]
fn what_is_consented_to_is_granted() {
    let asked = [
        Rule { key: "network", item: json!("a.com") },
        Rule { key: "env", item: json!("A") },
        Rule { key: "services", item: json!("clock") },
    ];
    let [network, env, _] = &asked;
    let grant = granted(&asked, &asked);
    assert!(grant.decide_env("A").is_ok() && wider(&grant, &granted(&asked[..1], &asked)).is_empty());
    for (consented, allowed) in [(vec![env.clone()], true), (vec![network.clone()], false), (Vec::new(), false)] {
        assert_eq!(granted(&consented, &asked).decide_env("A").is_ok(), allowed, "{consented:?}");
    }
    let refusal = granted(&asked, &asked[..1]).decide_env("A").unwrap_err();
    assert_eq!(
        (refusal.reason.as_str(), refusal.hint.as_str()),
        ("the variable `A` is not granted", "add `A` to `asks.env` in `plugins/acme/plugin.md`")
    );
}
