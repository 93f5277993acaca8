//! What artifacts and the policy name: references of agents, and rules for artifacts that are not there.

use super::Registry;
use crate::artifact::agent::Use;
use crate::artifact::diagnostic::Diagnostic;
use crate::artifact::located::Located;
use crate::artifact::suggest::{closest, quoted};
use crate::artifact::tool::{DONE, RESERVED};

/// Names that the host's own tools have.
pub(super) fn reserved(registry: &mut Registry) {
    let own = registry.agents.iter().flat_map(|agent| &agent.tools).filter_map(Use::inline);
    let tools = registry.tools.iter().chain(own).filter(|tool| RESERVED.contains(&tool.name.as_str()));
    let found: Vec<Diagnostic> = tools
        .map(|tool| {
            let message = format!("tool {:?} has the name of a built-in tool", tool.name);
            Diagnostic::error(message).at(tool.source.clone()).hint("give it another name")
        })
        .collect();
    found.into_iter().for_each(|diagnostic| registry.diagnostics.push(diagnostic));
}

/// Resolves the references of agents. Done when everything is loaded, so that the order of files does not matter.
pub(super) fn references(registry: &mut Registry) {
    let tools: Vec<&str> = registry.tools.iter().map(|tool| tool.name.as_str()).collect();
    let hooks: Vec<&str> = registry.hooks.iter().map(|hook| hook.name.as_str()).collect();
    let mut found = Vec::new();
    for agent in &registry.agents {
        for one in &agent.tools {
            match one {
                Use::Reference(name) => found.extend(unresolved(&agent.name, "tool", name, &tools)),
                Use::Inline(tool) if tools.contains(&tool.name.as_str()) => {
                    let message =
                        format!("agent {:?}: its own tool {:?} hides the tool of that name", agent.name, tool.name);
                    found.push(Diagnostic::warning(message).at(tool.source.clone()).hint("give it another name"));
                }
                Use::Inline(_) => {}
            }
        }
        for one in &agent.hooks {
            if let Use::Reference(name) = one {
                found.extend(unresolved(&agent.name, "hook", name, &hooks));
            }
        }
    }
    found.into_iter().for_each(|diagnostic| registry.diagnostics.push(diagnostic));
}

fn unresolved(agent: &str, kind: &str, name: &Located<String>, known: &[&str]) -> Option<Diagnostic> {
    if known.contains(&name.value.as_str()) {
        return None;
    }
    let message = format!("agent {agent:?} refers to the {kind} {:?}, which no artifact defines", name.value);
    let error = Diagnostic::error(message).at(name.position.clone());
    Some(match closest(name, known.iter().copied()) {
        Some(word) => error.hint(format!("did you mean `{word}`?")),
        None => error.hint(format!("define it as `.harness/{kind}s/{}.md`, or here", name.value)),
    })
}

/// Tools that skills name and nobody defines: a skill brings none.
pub(super) fn tools_of_skills(registry: &mut Registry) {
    let mut found = Vec::new();
    for skill in &registry.skills {
        let missing =
            |tool: &&Located<String>| registry.tool(tool).is_err() && !RESERVED.contains(&tool.value.as_str());
        let Some(first) = skill.tools.iter().find(missing) else { continue };
        let mut names: Vec<String> = skill.tools.iter().filter(missing).map(|tool| quoted(tool)).collect();
        names.dedup();
        let message = format!("the skill {:?} names tools that are not there: {}", skill.name, names.join(", "));
        let known = registry.tools.iter().map(|tool| tool.name.as_str());
        let hint = match closest(first, known) {
            Some(name) => format!("did you mean `{name}`? A skill brings no tools"),
            None => {
                "a skill brings no tools: write them as artifacts, or say in its prose which tools to use".to_owned()
            }
        };
        found.push(Diagnostic::warning(message).at(first.position.clone()).hint(hint));
    }
    found.into_iter().for_each(|warning| registry.diagnostics.push(warning));
}

/// Names in the policy that no artifact has: a rule for them does nothing, which its author should know. `found` are
/// the names of all sources, those with errors too.
pub(super) fn rules(registry: &mut Registry, found: &[String]) {
    let Some(policy) = &registry.policy else { return };
    let mut warnings = Vec::new();
    for source in &policy.sources {
        // A rule for a folder may well be there before what it is for.
        let exact = source.name.contains('/');
        if exact && !found.iter().any(|found| source.covers(found)) {
            let what = format!("`sandbox.sources` names {}, which is not there", quoted(&source.name));
            let folder = source.name.split('/').next().unwrap_or_default();
            let known = found.iter().map(String::as_str).filter(|found| found.starts_with(folder));
            let warning = Diagnostic::warning(what).at(source.position.clone());
            warnings.push(match closest(&source.name, known) {
                Some(name) => warning.hint(format!("did you mean `{name}`?")),
                None => warning,
            });
        }
    }
    for (hook, _) in &policy.hooks.named {
        if registry.hook(&hook.value).is_none() {
            let what = format!("`sandbox.hooks.named` names the hook {}, which is not there", quoted(hook));
            let warning = Diagnostic::warning(what).at(hook.position.clone());
            let known = registry.hooks.iter().map(|hook| hook.name.as_str());
            warnings.push(match closest(hook, known) {
                Some(name) => warning.hint(format!("did you mean `{name}`?")),
                None => warning,
            });
        }
    }
    let own = registry.agents.iter().flat_map(|agent| &agent.tools).filter_map(Use::inline);
    let names = registry.tools.iter().chain(own).map(|tool| tool.name.as_str());
    let names: Vec<&str> = names.chain(RESERVED).chain([DONE]).collect();
    for pattern in policy.tools.patterns() {
        if !names.iter().any(|name| pattern.matches(name)) {
            let what = format!("`tools_policy`: no tool is named like `{}`", pattern.value);
            warnings.push(Diagnostic::warning(what).at(pattern.position.clone()));
        }
    }
    warnings.into_iter().for_each(|warning| registry.diagnostics.push(warning));
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
