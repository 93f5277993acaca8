//! A child can never do what its parent cannot: for random grants, and for random trees of agents in a real project.

use std::fmt::Write;
use std::sync::Arc;

use proptest::prelude::*;

use super::runtime::Runtime;
use super::{Configured, Silent, root};
use crate::artifact::agent::Use;
use crate::artifact::policy::layer;
use crate::dispatch::{Options, Project, Run};
use crate::policy::grant::Grant;
use crate::policy::layer::Service;
use crate::policy::limits::LimitKey;
use crate::policy::network::Target;
use crate::policy::path::{Access, WorkspacePath};
use crate::registry::Machine;

/// What a layer may say, each with a few values that overlap. The outermost layer of a real grant speaks of everything, so
/// that no other can grant what it does not.
fn rules(speaks_of_all: bool) -> impl Strategy<Value = String> {
    let some = |all: &'static [&'static str]| proptest::sample::subsequence(all, 0..=all.len());
    let list = move |all| some(all).prop_map(|some| format!("[{}]", some.join(", ")));
    let paths = &["src", "src/a", "docs", "\"**/*.md\"", "."];
    let fs = (list(paths), list(paths)).prop_map(|(read, write)| format!("fs: {{ read: {read}, write: {write} }}\n"));
    let network = list(&["a.com", "\"*.a.com\"", "b.org", "\"*\""]).prop_map(|hosts| format!("network: {hosts}\n"));
    let exec = list(&["git", "\"git status\"", "ls"]).prop_map(|commands| format!("exec: {{ allow: {commands} }}\n"));
    let env = list(&["A", "B", "C"]).prop_map(|names| format!("env: {names}\n"));
    let services = list(&["cache", "meta", "delegate", "clock"]).prop_map(|names| format!("services: {names}\n"));
    let limits =
        (1_u64..50, 1_u64..50).prop_map(|(fuel, time)| format!("limits: {{ fuel: {fuel}, timeout_ms: {time} }}\n"));
    let maybe = move |rule: BoxedStrategy<String>| {
        let said = move |(rule, said): (String, bool)| if said || speaks_of_all { rule } else { String::new() };
        (rule, any::<bool>()).prop_map(said)
    };
    let all = (
        maybe(fs.boxed()),
        maybe(network.boxed()),
        maybe(exec.boxed()),
        maybe(env.boxed()),
        maybe(services.boxed()),
        maybe(limits.boxed()),
    );
    all.prop_map(|(a, b, c, d, e, f)| format!("{a}{b}{c}{d}{e}{f}"))
}

/// Everything that is asked of both. Each: what it is, and whether it is allowed.
fn answers(grant: &Grant) -> Vec<(String, bool)> {
    let mut answers = Vec::new();
    for path in ["src", "src/a", "src/a/x.rs", "docs/guide.md", "other/b.md", "README.md"] {
        let path = WorkspacePath::parse(path, "/w").unwrap();
        for access in [Access::Read, Access::Write] {
            answers.push((format!("{access:?} {path}"), grant.decide_path(&path, access).is_ok()));
        }
    }
    for url in ["https://a.com/", "https://x.a.com/", "http://b.org/", "https://b.org:8443/", "https://c.net/"] {
        let target = Target::of(&url::Url::parse(url).unwrap()).unwrap();
        answers.push((url.to_owned(), grant.decide_target(&target).is_ok()));
    }
    for command in ["git status", "git push", "ls", "rm x"] {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        answers.push((command.to_owned(), grant.decide_command(&words[0], &words[1..]).is_ok()));
    }
    answers.extend(["A", "B", "C"].map(|name| (name.to_owned(), grant.decide_env(name).is_ok())));
    answers.extend(Service::ALL.map(|service| (service.name().to_owned(), grant.decide_service(service).is_ok())));
    answers
}

fn no_more(child: &Grant, parent: &Grant) -> Result<(), TestCaseError> {
    for ((what, child), (_, parent)) in answers(child).into_iter().zip(answers(parent)) {
        prop_assert!(parent || !child, "the child may {}", what);
    }
    for key in LimitKey::ALL {
        prop_assert!(child.limit(*key).0 <= parent.limit(*key).0, "{}", key.facts().name);
    }
    Ok(())
}

/// A project of agents that have tools and hooks of their own, some by names that the project has too.
fn project(own: &[(Vec<u8>, Vec<u8>)], rules: &[String]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: String, text: String| {
        let path = folder.path().join(".harness").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("harness.md".into(), "---\nmodel: { provider: script, script: r.yaml }\ndelegation: { allow_recursive: true, max_depth: 4 }\ntools_policy: { deny: [tool3] }\n---\n".into());
    std::fs::write(folder.path().join("r.yaml"), "- text: x\n").unwrap();
    for at in 0..4 {
        write(format!("tools/tool{at}.md"), "---\nscript: |\n  def run(args):\n      return 1\n---\n".into());
        write(
            format!("hooks/guard{at}.md"),
            "---\nevent: tool.pre\npriority: 1\nscript: |\n  def handle(event, payload):\n      return allow()\n---\n"
                .into(),
        );
    }
    for (at, (tools, hooks)) in own.iter().enumerate() {
        let mut text = "---\ntools:\n".to_owned();
        for tool in tools {
            let rules: String = rules
                .get(at % rules.len().max(1))
                .into_iter()
                .flat_map(|r| r.lines())
                .map(|line| format!("        {line}\n"))
                .collect();
            let capabilities = if rules.is_empty() { String::new() } else { format!("    capabilities:\n{rules}") };
            write!(
                text,
                "  - name: tool{tool}\n    script: |\n      def run(args):\n          return {at}\n{capabilities}"
            )
            .unwrap();
        }
        text.push_str("hooks:\n");
        for hook in hooks {
            write!(text, "  - handler: guard{hook}\n    event: tool.pre\n    script: |\n      def handle(event, payload):\n          return allow()\n").unwrap();
        }
        write(format!("agents/agent{at}.md"), format!("{text}---\nYou are {at}.\n"));
    }
    folder
}

/// The tools that a model sees, by name and where each is from.
fn tools(runtime: &Arc<Runtime>) -> Vec<(String, String)> {
    let shown = runtime.tools(&runtime.place());
    let loaded = &runtime.loaded;
    shown
        .into_iter()
        .map(|tool| {
            let source = loaded.registry().tool(&tool.name).map(|tool| tool.source.to_string()).unwrap_or_default();
            (tool.name, source)
        })
        .collect()
}

proptest! {
    #[test]
    fn whoever_calls_whom_none_gets_more_than_one_above(outermost in rules(true),
        layers in proptest::collection::vec(rules(false), 0..5)) {
        let layers = std::iter::once(&outermost).chain(&layers).map(|text| layer::parse("x", text).0.unwrap());
        let mut above: Vec<Grant> = Vec::new();
        for layer in layers {
            let own = Grant::new(vec![layer]);
            let grant = above.last().map_or_else(|| own.clone(), |parent| own.meet(parent));
            for parent in &above {
                no_more(&grant, parent)?;
            }
            above.push(grant);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_of_agents(
        own in proptest::collection::vec((proptest::collection::btree_set(0_u8..8, 0..3), proptest::collection::btree_set(0_u8..8, 0..3)), 1..4),
        rules in proptest::collection::vec(rules(false), 0..3),
        path in proptest::collection::vec(0_usize..4, 1..5),
    ) {
        let own: Vec<(Vec<u8>, Vec<u8>)> = own.into_iter().map(|(tools, hooks)| (tools.into_iter().collect(), hooks.into_iter().collect())).collect();
        let folder = project(&own, &rules);
        let options = Options { machine: Machine::None, audit: false, ..Options::default() };
        let opened = Project::open(folder.path(), options).unwrap();
        let models = Arc::new(Configured::new(folder.path(), &opened.loaded().policy().models));
        let top = root(&opened, &Run::new(), models, Arc::new(Silent));
        let model = top.model().unwrap();
        let all = Grant::new(vec![opened.loaded().policy().project.clone()]);
        let mut parent = top;
        for step in path {
            let agents = parent.loaded.registry().agents();
            let agent = agents[step % agents.len()].clone();
            let child = Arc::new(parent.child("delegation_1".to_owned(), &agent, model.clone(), None));
            // Its tools are its parent's and its own, and its own are nobody else's.
            let inline: Vec<String> = agent.tools.iter().filter_map(Use::inline).map(|tool| tool.source.to_string()).collect();
            let above = tools(&parent);
            for (name, source) in tools(&child) {
                prop_assert!(inline.contains(&source) || above.contains(&(name.clone(), source)), "{}", name);
                prop_assert!(child.loaded.policy().tools.decide(&name).is_ok() && name != "tool3");
                if let Ok(tool) = child.loaded.registry().tool(&name) {
                    no_more(&child.loaded.grant(tool), &all)?;
                }
            }
            // Whatever its own hooks are called, none of its parent's is missing, and their order is theirs.
            let chain = |runtime: &Runtime| runtime.loaded.registry().chain(&crate::artifact::event::Event::ToolPre).to_vec();
            let (theirs, its) = (chain(&parent), chain(&child));
            let kept: Vec<_> = its.iter().filter(|hook| theirs.iter().any(|other| Arc::ptr_eq(hook, other))).collect();
            prop_assert_eq!(kept.len(), theirs.len());
            prop_assert!(kept.iter().zip(&theirs).all(|(hook, other)| Arc::ptr_eq(hook, other)));
            prop_assert_eq!(&child.loaded.policy().tools, &parent.loaded.policy().tools);
            parent = child;
        }
        prop_assert!(parent.depth() < 5 || tools(&parent).iter().all(|(name, _)| name != "delegate"));
    }
}
