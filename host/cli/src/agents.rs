//! `harness agents`: the sub-agents, and what each has.

use harness_artifact::agent::{Agent, Use};
use harness_artifact::escape;
use serde_json::{Value as Json, json};

use super::args::{Listing, ProjectArgs};
use super::exit::Exit;
use super::printer::Printer;
use super::project;

pub(crate) fn run(command: &Listing, place: &ProjectArgs, printer: &Printer) -> Exit {
    let registry = project::registry(place);
    project::report(&registry, *printer);
    if command.json {
        printer.json(&json!(registry.agents().iter().map(|agent| as_json(agent)).collect::<Vec<_>>()));
    } else {
        let mut text = String::new();
        for agent in registry.agents() {
            text.push_str(&format!("{}  {}\n", escape::line(&agent.name), escape::line(&agent.source.file)));
            if let Some(description) = &agent.description {
                text.push_str(&format!("    {}\n", escape::line(description)));
            }
            let model = agent.model.as_ref().map_or("the caller's", |model| &**model);
            text.push_str(&format!("    model: {}\n", escape::line(model)));
            for (what, names) in [("tools", tools(agent)), ("hooks", hooks(agent))] {
                if !names.is_empty() {
                    text.push_str(&format!("    {what}: {}\n", escape::line(&names.join(", "))));
                }
            }
        }
        match text.is_empty() {
            true => printer.say("no agents: write one in `.harness/agents/`"),
            false => printer.data(&text),
        }
    }
    if registry.diagnostics().has_errors() { Exit::Usage } else { Exit::Completed }
}

/// Names of an agent's tools, its own marked.
fn tools(agent: &Agent) -> Vec<String> {
    agent.tools.iter().map(|one| shown(one, |tool| &tool.name)).collect()
}

fn hooks(agent: &Agent) -> Vec<String> {
    agent.hooks.iter().map(|one| shown(one, |hook| &hook.name)).collect()
}

fn shown<T>(one: &Use<T>, name: impl Fn(&T) -> &String) -> String {
    match one {
        Use::Reference(reference) => reference.value.clone(),
        Use::Inline(own) => format!("{} (its own)", name(own)),
    }
}

pub(crate) fn as_json(agent: &Agent) -> Json {
    json!({
        "name": agent.name,
        "description": agent.description.as_ref().map(|text| &text.value),
        "model": agent.model.as_ref().map(|text| &text.value),
        "tools": tools(agent),
        "hooks": hooks(agent),
        "file": &*agent.source.file,
        "line": agent.source.line,
        "source": agent.source_name,
    })
}
