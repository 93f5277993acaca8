//! A child can never do what its parent cannot: for random grants, for random trees of agents in a real project, and for
//! agents that really set each other to work, in each way that there is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::runtime::Runtime;
use super::{AgentEvent, Configured, Listener, Session, Silent, root};
use harness_artifact::agent::Use;
use harness_artifact::policy::layer;
use harness_capability::env::Variables;
use harness_dispatch::{Options, Project, Run};
use harness_policy::grant::Grant;
use harness_policy::layer::Service;
use harness_policy::limits::LimitKey;
use harness_policy::network::Target;
use harness_policy::path::{Access, WorkspacePath};
use harness_registry::Machine;
use harness_sandbox::outcome::Outcome;

/// What a layer may say, each with a few values that overlap. The outermost layer of a real grant speaks of everything, so
/// that no other can grant what it does not.
fn rules(speaks_of_all: bool) -> impl Strategy<Value = String> {
    rules_from(speaks_of_all, (0, 0), "")
}

/// The same where scripts may run and set agents to work.
fn working_rules(speaks_of_all: bool) -> impl Strategy<Value = String> {
    rules_from(speaks_of_all, (400_000_000, 60_000), "delegate, ")
}

fn rules_from(
    speaks_of_all: bool,
    (least_fuel, least_time): (u64, u64),
    always: &'static str,
) -> impl Strategy<Value = String> {
    let some = |all: &'static [&'static str]| proptest::sample::subsequence(all, 0..=all.len());
    let list = move |all| some(all).prop_map(|some| format!("[{}]", some.join(", ")));
    let paths = &["src", "src/a", "docs", "\"**/*.md\"", "."];
    let fs = (list(paths), list(paths)).prop_map(|(read, write)| format!("fs: {{ read: {read}, write: {write} }}\n"));
    let network = list(&["a.com", "\"*.a.com\"", "b.org", "\"*\""]).prop_map(|hosts| format!("network: {hosts}\n"));
    let exec = list(&["git", "\"git status\"", "ls"]).prop_map(|commands| format!("exec: {{ allow: {commands} }}\n"));
    let env = list(&["A", "B", "C"]).prop_map(|names| format!("env: {names}\n"));
    let services =
        list(if always.is_empty() { &["cache", "meta", "delegate", "clock"] } else { &["cache", "meta", "clock"] });
    let services =
        services.prop_map(move |names| format!("services: {}\n", names.replacen('[', &format!("[{always}"), 1)));
    let limits = (1_u64..50, 1_u64..50).prop_map(move |(fuel, time)| {
        format!("limits: {{ fuel: {}, timeout_ms: {} }}\n", least_fuel + fuel, least_time + time)
    });
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
    let shown = runtime.tools(&runtime.place(&Run::new()));
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
        let models = Arc::new(Configured::new(folder.path(), &opened.loaded().policy().models, &Variables::default()));
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
            let chain = |runtime: &Runtime| runtime.loaded.registry().chain(&harness_artifact::event::Event::ToolPre).to_vec();
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

/// How an agent sets the next one to work.
#[derive(Debug, Clone, Copy)]
enum How {
    /// Its model calls a tool whose script does it, which may be one that runs in the background.
    Script { later: bool },
    /// Its model does it.
    Model { later: bool },
}

impl How {
    fn all() -> impl Strategy<Value = Self> {
        (any::<bool>(), any::<bool>())
            .prop_map(|(script, later)| if script { Self::Script { later } } else { Self::Model { later } })
    }

    /// The call by which agent `at` is started.
    fn call(self, at: usize) -> String {
        let tool = match self {
            Self::Script { .. } => return format!("{{ name: starts{at} }}"),
            Self::Model { later: false } => "delegate",
            Self::Model { later: true } => "delegate_async",
        };
        format!("{{ name: {tool}, args: {{ agent: agent{at}, task: Go. }} }}")
    }

    /// The one that waits for its end.
    fn waits(self) -> Option<&'static str> {
        match self {
            Self::Script { later: true } => Some("{ name: task_await }"),
            Self::Model { later: true } => Some("{ name: delegate_await }"),
            _ => None,
        }
    }
}

/// EventSource may do what in a run of agents. All of it is text of layers.
#[derive(Debug)]
struct Rules {
    machine: String,
    project: String,
    /// Of the tool that everybody calls, by its source.
    source: String,
    /// Of each tool that sets an agent to work.
    starts: Vec<String>,
    /// Of each agent's own tool.
    own: Vec<String>,
    denied: Vec<&'static str>,
    confirmed: Vec<&'static str>,
}

fn indented(by: &str, text: &str) -> String {
    text.lines().map(|line| format!("{by}{line}\n")).collect()
}

/// A layer as `harness.md` and the host policy have it, with more of its `sandbox`.
fn policy(rules: &str, more: &str) -> String {
    let (network, sandbox): (Vec<&str>, Vec<&str>) = rules.lines().partition(|line| line.starts_with("network: "));
    let network = network.into_iter().filter_map(|line| line.strip_prefix("network: "));
    let network: String = network.map(|hosts| format!("network: {{ allowed_domains: {hosts} }}\n")).collect();
    format!("{network}sandbox:\n{more}{}", indented("  ", &sandbox.join("\n")))
}

/// A project in which the root sets `agent0` to work, that `agent1`, and so on; each makes some calls before.
fn chain(rules: &Rules, how: &[How]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: String| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let script = |body: &str| format!("script: |\n  def run(args):\n      {body}\n");
    let more = match rules.source.as_str() {
        "" => "  async_tools: true\n".to_owned(),
        source => format!("  async_tools: true\n  sources:\n    tools/probe:\n{}", indented("      ", source)),
    };
    let names = |names: &[&str]| format!("[{}]", names.join(", "));
    write(
        ".harness/harness.md",
        format!(
            "---\nmodel: {{ provider: script, script: r.yaml }}\ndelegation: {{ max_depth: 4 }}\n\
             tools_policy: {{ deny: {}, confirm: {} }}\n{}---\n",
            names(&rules.denied),
            names(&rules.confirmed),
            policy(&rules.project, &more)
        ),
    );
    write("machine.yaml", policy(&rules.machine, "  audit: false\n"));
    let guard = "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      return allow()\n---\n";
    write(".harness/hooks/guard.md", guard.to_owned());
    for tool in ["probe", "other"] {
        write(&format!(".harness/tools/{tool}.md"), format!("---\n{}---\n", script("return 1")));
    }
    let mut replies = String::new();
    for at in 0..=how.len() {
        let agent = at.checked_sub(1).map_or(String::new(), |at| format!("agent: agent{at}, "));
        let mut calls = vec!["{ name: probe }".to_owned(), "{ name: other }".to_owned()];
        calls.extend((0..how.len()).map(|own| format!("{{ name: own{own} }}")));
        let next = how.get(at);
        calls.extend(next.map(|how| how.call(at)));
        writeln!(replies, "- {{ {agent}tool_calls: [{}] }}", calls.join(", ")).unwrap();
        if let Some(waits) = next.and_then(|how| how.waits()) {
            writeln!(replies, "- {{ {agent}tool_calls: [{waits}] }}").unwrap();
        }
        writeln!(replies, "- {{ {agent}text: Done. }}").unwrap();
    }
    write("r.yaml", replies);
    let capabilities = |by: &str, text: &str| match text {
        "" => String::new(),
        text => format!("capabilities:\n{}", indented(by, text)),
    };
    for (at, how) in how.iter().enumerate() {
        let later = matches!(how, How::Script { later: true });
        let starts = script(&format!("return delegate('agent{at}', 'Go.')"));
        let own = capabilities("  ", &rules.starts[at]);
        write(&format!(".harness/tools/starts{at}.md"), format!("---\nasync: {later}\n{own}{starts}---\n"));
        let own = format!("name: own{at}\n{}{}", script("return 1"), capabilities("  ", &rules.own[at]));
        let own = indented("    ", &own).replacen("    ", "  - ", 1);
        write(&format!(".harness/agents/agent{at}.md"), format!("---\ntools:\n{own}---\nYou are {at}.\n"));
    }
    folder
}

/// A call that was made: the grant that it had, whether it ended, and whether the guard was asked.
#[derive(Debug, Clone)]
struct Made {
    grant: Arc<Grant>,
    done: bool,
    guarded: bool,
}

/// What agents did, by their names; the root has none.
#[derive(Debug, Default)]
struct Seen {
    offered: Mutex<BTreeMap<String, BTreeSet<String>>>,
    made: Mutex<BTreeMap<(String, String), Made>>,
}

impl Listener for Seen {
    fn notify(&self, what: &AgentEvent<'_>) {
        match what {
            AgentEvent::Asked { agent, request, .. } => {
                let tools = request.tools.iter().map(|tool| tool.name.clone());
                self.offered.lock().unwrap().entry((*agent).to_owned()).or_default().extend(tools);
            }
            AgentEvent::Called { agent, call, report: Ok(report), .. } => {
                let asked = |pre: &harness_dispatch::Dispatch| {
                    pre.hooks.iter().any(|hook| hook.name == "guard" && hook.verdict.ran())
                };
                let made = Made {
                    grant: report.grant.clone(),
                    done: matches!(report.outcome, Outcome::Completed(_)),
                    guarded: report.pre.as_ref().is_some_and(asked),
                };
                self.made.lock().unwrap().insert(((*agent).to_owned(), call.name.clone()), made);
            }
            _ => {}
        }
    }
}

impl Rules {
    fn all() -> impl Strategy<Value = Self> {
        let some = |names: &'static [&'static str]| proptest::sample::subsequence(names, 0..=1);
        let three = |rules: BoxedStrategy<String>| proptest::collection::vec(rules, 3);
        let layers = (working_rules(false), working_rules(true), rules(false));
        let tools = (three(working_rules(false).boxed()), three(rules(false).boxed()));
        (layers, tools, some(&["other", "own1"]), some(&["other", "own0"])).prop_map(
            |((machine, project, source), (starts, own), denied, confirmed)| Self {
                machine,
                project,
                source,
                starts,
                own,
                denied,
                confirmed,
            },
        )
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 64, ..ProptestConfig::default() })]

    #[test]
    fn agents_that_set_each_other_to_work(
        rules in Rules::all(),
        caller in working_rules(true),
        how in proptest::collection::vec(How::all(), 1..4),
    ) {
        let folder = chain(&rules, &how);
        let machine = Machine::File(folder.path().join("machine.yaml"));
        let options = Options { machine, ..Options::default() };
        let opened = Arc::new(Project::open(folder.path(), options).unwrap());
        let models = Arc::new(Configured::new(folder.path(), &opened.loaded().policy().models, &Variables::default()));
        let caller = layer::parse("caller", &caller).0.unwrap();
        let (run, seen) = (Run::narrowed(vec![caller.clone()]), Arc::new(Seen::default()));
        // Unoptimized, agents within agents take more stack than a thread has.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_stack_size(64 << 20)
            .enable_all()
            .build()
            .unwrap();
        let (project, listener) = (opened.clone(), seen.clone());
        let session = async move {
            let mut session = Session::start(&project, &run, models, listener).await.unwrap();
            session.turn("Go.").await.unwrap();
            session.end().await;
        };
        runtime.block_on(runtime.spawn(session)).unwrap();
        let (offered, made) = (seen.offered.lock().unwrap(), seen.made.lock().unwrap());
        // What everybody is within, and with each agent what those above it were granted.
        let mut bounds = vec![Arc::new(Grant::new(vec![caller])), Arc::new(opened.loaded().policy().grant_for("", None))];
        let mut above: BTreeSet<String> = offered[""].clone();
        let mut parent = String::new();
        for (at, how) in how.iter().enumerate() {
            if matches!(how, How::Script { .. }) {
                bounds.push(made[&(parent, format!("starts{at}"))].grant.clone());
            }
            parent = format!("agent{at}");
            let tools = offered.get(&parent).expect("it was set to work");
            above.insert(format!("own{at}"));
            prop_assert!(tools.is_subset(&above), "{:?} and {:?}", tools, above);
            prop_assert!(rules.denied.iter().all(|name| !tools.contains(*name)));
            for ((by, tool), made) in made.iter().filter(|((by, _), _)| *by == parent) {
                prop_assert!(made.guarded, "{} of {}", tool, by);
                prop_assert!(!made.done || !rules.confirmed.contains(&tool.as_str()), "{} of {}", tool, by);
                for bound in &bounds {
                    no_more(&made.grant, bound)?;
                }
            }
            // Its own are not its children's.
            above.clone_from(tools);
            above.remove(&format!("own{at}"));
        }
    }
}
