//! `harness hooks`: the hooks of each event in the order they are called.

use harness_artifact::escape;
use harness_artifact::event::Event;
use harness_artifact::hook::Hook;
use harness_artifact::policy::hearing::Shows;
use harness_artifact::policy::{ProjectPolicy, sources};
use harness_registry::Registry;
use serde_json::{Value as Json, json};

use super::args::{Listing, ProjectArgs};
use super::exit::Exit;
use super::printer::Printer;
use super::project;

pub(crate) fn run(command: &Listing, place: &ProjectArgs, printer: &Printer) -> Exit {
    let registry = project::registry(place);
    project::report(&registry, *printer);
    let chains = events(&registry);
    if command.json {
        let hooks: Vec<Json> = chains
            .iter()
            .flat_map(|event| registry.chain(event))
            .map(|hook| as_json(hook, registry.policy()))
            .collect();
        printer.json(&json!(hooks));
    } else {
        let mut text = String::new();
        for event in &chains {
            text.push_str(&format!("{event}\n"));
            for hook in registry.chain(event) {
                let when = hook.when.as_ref().map(|when| format!("  when {}", escape::line(when.text.trim())));
                let none = if hook.script.is_none() { "  (no script: does nothing)" } else { "" };
                text.push_str(&format!(
                    "  {:>4}  {}  {}{}{none}{}\n",
                    *hook.priority,
                    escape::line(&hook.name),
                    escape::line(&hook.source.file),
                    when.unwrap_or_default(),
                    received(hook, registry.policy())
                        .filter(|shows| *shows < Shows::All)
                        .map(|shows| format!("  (receives those {})", shows.describe()))
                        .unwrap_or_default()
                ));
            }
        }
        match text.is_empty() {
            true => printer.say("no hooks: write one in `.harness/hooks/`"),
            false => printer.data(&text),
        }
    }
    if registry.diagnostics().has_errors() { Exit::Usage } else { Exit::Completed }
}

/// The events that have hooks: those with a fixed name in their own order, then the others by name.
fn events(registry: &Registry) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for hook in registry.hooks() {
        if !events.contains(&hook.event.value) {
            events.push(hook.event.value.clone());
        }
    }
    let place = |event: &Event| Event::FIXED.iter().position(|fixed| fixed == event).unwrap_or(Event::FIXED.len());
    events.sort_by_key(|event| (place(event), event.to_string()));
    events
}

/// What a plugin's hook receives of its event; none of a hook that is of no plugin, which receives all of it.
pub(crate) fn received(hook: &Hook, policy: Option<&ProjectPolicy>) -> Option<Shows> {
    sources::bundle_of(&hook.source_name)?;
    policy?.shows(&hook.source_name, &hook.event, true).ok()
}

pub(crate) fn as_json(hook: &Hook, policy: Option<&ProjectPolicy>) -> Json {
    let mut shown = json!({
        "name": hook.name,
        "event": hook.event.to_string(),
        "priority": *hook.priority,
        "when": hook.when.as_ref().map(|when| when.text.trim()),
        "file": &*hook.source.file,
        "line": hook.source.line,
        "source": hook.source_name,
        "script": hook.script.is_some(),
        "cases": hook.cases.len(),
    });
    if let (Some(object), Some(shows)) = (shown.as_object_mut(), received(hook, policy)) {
        object.insert("receives".to_owned(), shows.name().into());
    }
    shown
}
