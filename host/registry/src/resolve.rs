//! What artifacts and the policy name: references of agents, and rules for artifacts that are not there.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::Registry;
use harness_artifact::agent::Use;
use harness_artifact::alike;
use harness_artifact::diagnostic::{Diagnostic, Diagnostics, Position, Severity};
use harness_artifact::lint::is_built_in;
use harness_artifact::located::Located;
use harness_artifact::suggest::closest;
use harness_artifact::tool::{CODE_TOOLS, DONE, RESERVED};
use harness_policy::text::quoted;

/// Names of the host's own tools under this policy, which no artifact may have.
fn hosts_names(registry: &Registry) -> impl Iterator<Item = &'static str> + use<> {
    let has_code = registry.policy.as_ref().is_some_and(|policy| policy.mcp.expose.has_code());
    RESERVED.into_iter().chain(CODE_TOOLS.into_iter().filter(move |_| has_code))
}

/// Names that the host's own tools have.
pub(super) fn reserved(registry: &mut Registry) {
    let names: BTreeSet<&str> = hosts_names(registry).collect();
    let own = registry.agents.iter().flat_map(|agent| &agent.tools).filter_map(Use::inline);
    let tools = registry.tools.iter().chain(own).filter(|tool| names.contains(tool.name.as_str()));
    let found: Vec<Diagnostic> = tools
        .map(|tool| {
            let message = format!("tool {:?} has the name of a built-in tool", tool.name);
            Diagnostic::error(message).at(tool.source.clone()).hint("give it another name")
        })
        .collect();
    found.into_iter().for_each(|diagnostic| registry.diagnostics.push(diagnostic));
}

/// Where the host's own tools are, for a person.
const HOSTS_OWN: &str = "one of the host's own tools";

/// Names that look like others of their kind. One of the two may be there to be taken for the other.
pub(super) fn look_alikes(registry: &mut Registry) {
    let own = registry.agents.iter().flat_map(|agent| &agent.tools).filter_map(Use::inline);
    let tools = registry.tools.iter().chain(own).map(|one| (one.name.as_str(), shown(&one.source)));
    let tools: Vec<_> = hosts_names(registry).map(|name| (name, (HOSTS_OWN.to_owned(), None))).chain(tools).collect();
    let own = registry.agents.iter().flat_map(|agent| &agent.hooks).filter_map(Use::inline);
    let hooks: Vec<_> = registry.hooks.iter().chain(own).map(|one| (one.name.as_str(), shown(&one.source))).collect();
    let agents: Vec<_> = registry.agents.iter().map(|one| (one.name.as_str(), shown(&one.source))).collect();
    let skills: Vec<_> = registry.skills.iter().map(|one| (one.name.as_str(), shown(&one.source))).collect();
    let bundles: Vec<_> = registry.bundles.iter().map(|one| (one.name.as_str(), (one.path.clone(), None))).collect();
    let all = [("tool", tools), ("hook", hooks), ("agent", agents), ("skill", skills), ("bundle", bundles)];
    let mut found = Vec::new();
    for (kind, names) in all {
        let mut first: HashMap<String, (&str, String)> = HashMap::new();
        for (name, (place, position)) in names {
            let (other, at) = first.entry(alike::looks(name)).or_insert_with(|| (name, place.clone()));
            if *other == name {
                continue;
            }
            let message = format!("{kind} {} looks like the {kind} {}", quoted(name), quoted(other));
            let unusual = [name, *other].map(alike::unusual).into_iter().find(|unusual| !unusual.is_empty());
            let holds = unusual.map(|unusual| format!("; one of them holds {unusual}")).unwrap_or_default();
            let which = if at == HOSTS_OWN { HOSTS_OWN } else { &format!("at {at}") };
            let error = Diagnostic::error(message).hint(format!("the other is {which}{holds}: rename one of them"));
            found.push(match position {
                Some(position) => error.at(position),
                None => error.note(format!("it is at {place}")),
            });
        }
    }
    found.into_iter().for_each(|one| registry.diagnostics.push(one));
}

/// A place as text, and as it is.
fn shown(position: &Position) -> (String, Option<Position>) {
    (position.to_string(), Some(position.clone()))
}

/// Resolves the references of agents. Done when everything is loaded, so that the order of files does not matter.
pub(super) fn references(registry: &mut Registry) {
    let tools: Vec<&str> = registry.tools.iter().map(|tool| tool.name.as_str()).collect();
    let hooks: Vec<&str> = registry.hooks.iter().map(|hook| hook.name.as_str()).collect();
    let (tools, hooks) = (Known::new(&tools), Known::new(&hooks));
    let mut found = Diagnostics::new();
    for agent in &registry.agents {
        for one in &agent.tools {
            match one {
                Use::Reference(name) => unresolved(&mut found, &agent.name, "tool", name, &tools),
                Use::Inline(tool) if tools.names.contains(tool.name.as_str()) => {
                    found.push_with(Severity::Warning, || {
                        let message =
                            format!("agent {:?}: its own tool {:?} hides the tool of that name", agent.name, tool.name);
                        Diagnostic::warning(message).at(tool.source.clone()).hint("give it another name")
                    });
                }
                Use::Inline(_) => {}
            }
        }
        for one in &agent.hooks {
            if let Use::Reference(name) = one {
                unresolved(&mut found, &agent.name, "hook", name, &hooks);
            }
        }
    }
    registry.diagnostics.append(found);
}

/// Names that there are: to be asked for one, and to suggest one.
struct Known<'a> {
    names: HashSet<&'a str>,
    in_order: &'a [&'a str],
}

/// Tools that skills name and nobody defines: a skill brings none.
pub(super) fn tools_of_skills(registry: &mut Registry) {
    let mut found = Diagnostics::new();
    for skill in &registry.skills {
        // Not by `Registry::tool`, which looks for what is like a name each time.
        let missing = |tool: &&Located<String>| {
            !registry.tools_by_name.contains_key(&tool.value) && !RESERVED.contains(&tool.value.as_str())
        };
        let Some(first) = skill.tools.iter().find(missing) else { continue };
        found.push_with(Severity::Warning, || {
            let mut names: Vec<String> = skill.tools.iter().filter(missing).map(|tool| quoted(tool)).collect();
            names.dedup();
            let message = format!("the skill {:?} names tools that are not there: {}", skill.name, names.join(", "));
            let known = registry.tools.iter().map(|tool| tool.name.as_str());
            let hint = match closest(first, known) {
                Some(name) => format!("did you mean `{name}`? A skill brings no tools"),
                None => "a skill brings no tools: write them as artifacts, or say in its prose which tools to use"
                    .to_owned(),
            };
            Diagnostic::warning(message).at(first.position.clone()).hint(hint)
        });
    }
    registry.diagnostics.append(found);
}

impl<'a> Known<'a> {
    fn new(in_order: &'a [&'a str]) -> Self {
        Self { names: in_order.iter().copied().collect(), in_order }
    }
}

fn unresolved(found: &mut Diagnostics, agent: &str, kind: &str, name: &Located<String>, known: &Known<'_>) {
    if known.names.contains(name.value.as_str()) {
        return;
    }
    found.push_with(Severity::Error, || {
        let message = format!("agent {agent:?} refers to the {kind} {:?}, which no artifact defines", name.value);
        let error = Diagnostic::error(message).at(name.position.clone());
        match closest(name, known.in_order.iter().copied()) {
            Some(word) => error.hint(format!("did you mean `{word}`?")),
            None => error.hint(format!("define it as `.harness/{kind}s/{}.md`, or here", name.value)),
        }
    });
}

/// Names that are compared with rules at most. Beyond that nothing is said of rules that are for nothing.
const MOST_COMPARED: usize = 2_000_000;

/// Names in the policy that no artifact has: a rule for them does nothing, which its author should know. `found` are
/// the names of all sources, those with errors too.
pub(super) fn rules(registry: &mut Registry, found: Vec<String>) {
    let Some(policy) = &registry.policy else { return };
    let found: BTreeSet<String> = found.into_iter().collect();
    let mut warnings = Diagnostics::new();
    let mut warn = |at: &Position, what: String, meant: &dyn Fn() -> Option<String>| {
        warnings.push_with(Severity::Warning, || {
            let warning = Diagnostic::warning(what).at(at.clone()).about_all();
            match meant() {
                Some(name) => warning.hint(format!("did you mean `{name}`?")),
                None => warning,
            }
        });
    };
    for source in &policy.sources {
        let what = || format!("`sandbox.sources` names {}, which is not there", quoted(&source.name));
        let roots: Vec<String> = policy.roots.iter().map(|root| root.value.name()).collect();
        if let Some(root) = source.root().filter(|root| roots.iter().all(|known| known != root)) {
            let known = || roots.iter().map(String::as_str);
            warn(&source.position, what(), &|| closest(root, known()).map(|root| format!("{root}//")));
            continue;
        }
        // A rule for a folder may well be there before what it is for.
        let exact = source.place().contains('/');
        if exact && !is_covered(&source.name, &found) {
            warn(&source.position, what(), &|| {
                // The same in another folder with artifacts is another source.
                let elsewhere = found.iter().find(|found| found.ends_with(&format!("//{}", source.place())));
                let folder = source.place().split('/').next().unwrap_or_default();
                let known = found.iter().map(String::as_str).filter(|found| found.starts_with(folder));
                elsewhere.map(String::as_str).or_else(|| closest(&source.name, known)).map(str::to_owned)
            });
        }
    }
    let hooks: HashSet<&str> = registry.hooks.iter().map(|hook| hook.name.as_str()).collect();
    for (hook, _) in &policy.hooks.named {
        if !hooks.contains(hook.value.as_str()) {
            let what = format!("`sandbox.hooks.named` names the hook {}, which is not there", quoted(hook));
            let known = || registry.hooks.iter().map(|hook| hook.name.as_str());
            warn(&hook.position, what, &|| closest(hook, known()).map(str::to_owned));
        }
    }
    let own = registry.agents.iter().flat_map(|agent| &agent.tools).filter_map(Use::inline);
    let names = registry.tools.iter().chain(own).map(|tool| tool.name.as_str());
    let mut names: Vec<&str> = names.collect();
    hosts_names(registry).chain([DONE]).for_each(|name| names.push(name));
    let mut left = MOST_COMPARED;
    for pattern in policy.tools.patterns() {
        left = left.saturating_sub(names.len());
        if left > 0 && !names.iter().any(|name| pattern.matches(name)) {
            let why = if is_built_in(&pattern.value.to_string()) {
                ": it is a built-in of scripts, and models call artifacts"
            } else {
                ""
            };
            let what = format!("`tools_policy`: no tool is named like `{}`{why}", pattern.value);
            warn(&pattern.position, what, &|| None);
        }
    }
    let agents: Vec<&str> = registry.agents.iter().map(|agent| agent.name.as_str()).collect();
    let tools: Vec<&str> = registry.tools.iter().map(|tool| tool.name.as_str()).collect();
    let mcp = &policy.mcp;
    for (key, kind, patterns, names) in [
        ("agents", "agent", &mcp.agents, &agents),
        ("only_as_tasks", "tool", &mcp.only_as_tasks, &tools),
        ("only_in_scripts", "tool", &mcp.only_in_scripts, &tools),
    ] {
        for pattern in patterns {
            left = left.saturating_sub(names.len());
            if left > 0 && !names.iter().any(|name| pattern.matches(name)) {
                let what = format!("`mcp.{key}`: no {kind} is named like `{}`", pattern.value);
                let meant = || closest(&pattern.value.to_string(), names.iter().copied()).map(str::to_owned);
                warn(&pattern.position, what, &meant);
            }
        }
    }
    registry.diagnostics.append(warnings);
}

/// Whether a source of this name is there, or one in it.
fn is_covered(name: &str, found: &BTreeSet<String>) -> bool {
    found.contains(name)
        || found.range(format!("{name}/")..).next().is_some_and(|next| next.starts_with(&format!("{name}/")))
}

/// Where a turn ends with a call of `done`, that must be allowed: else no agent could end one.
pub(super) fn done(registry: &mut Registry) {
    let Some(policy) = &registry.policy else { return };
    let refused = policy.tools.decide(DONE).err().filter(|_| policy.exit.mode.wants_done());
    if let (Some(refusal), Some(at)) = (refused, policy.exit.mode_at.clone()) {
        let message = format!("with this `exit_policy.mode` no agent could end a turn: {}", refusal.reason);
        registry.diagnostics.push(Diagnostic::error(message).at(at).hint(refusal.hint));
    }
}
