//! `harness tools`: what a model would see.

use harness_artifact::escape;
use harness_artifact::tool::Parameter;
use serde_json::json;

use super::args::{ProjectArgs, Tools};
use super::exit::Exit;
use super::printer::Printer;
use super::project;

pub(crate) fn run(command: &Tools, place: &ProjectArgs, printer: &Printer) -> Exit {
    let registry = project::registry(place);
    project::report(&registry, *printer);
    let Some(policy) = registry.policy() else { return Exit::Usage };
    let tools = registry.tools().iter().filter(|tool| policy.tools.decide(&tool.name).is_ok());
    let refused = || registry.refused().iter().filter(|one| one.kind == "tool");
    if command.json {
        let definitions: Vec<_> = tools
            .map(|tool| {
                let (description, parameters) = tool.offered();
                let mut shown = json!({"name": tool.name, "description": description, "parameters": parameters});
                if let (Some(shown), Some(returns)) = (shown.as_object_mut(), &tool.returns) {
                    shown.insert("returns".to_owned(), returns.json().clone());
                }
                shown
            })
            .chain(refused().map(|one| json!({"name": one.name, "refused": {"by": one.by, "reason": one.reason}})))
            .collect();
        printer.json(&json!(definitions));
    } else {
        let mut text = String::new();
        for tool in tools {
            text.push_str(&as_line(&tool.name, &tool.parameters.list, &tool.source.file, &tool.description));
        }
        for one in refused() {
            let (name, by, reason) = (escape::line(&one.name), escape::line(&one.by), escape::line(&one.reason));
            text.push_str(&format!("{name}  {}\n    rejected by hook `{by}`: {reason}\n", escape::line(&one.at)));
        }
        print_text(&text, *printer);
    }
    if registry.diagnostics().has_errors() { Exit::Usage } else { Exit::Completed }
}

/// A tool for a person: its name and parameters, its file, and the first line of its description.
pub(crate) fn as_line(name: &str, parameters: &[Parameter], file: &str, description: &str) -> String {
    let parameters = parameters.iter().map(|parameter| {
        let mark = if *parameter.required { "" } else { "?" };
        format!("{}{mark}: {}", parameter.name, parameter.kind.word())
    });
    let parameters = parameters.collect::<Vec<_>>().join(", ");
    let mut text = format!("{}({})  {}\n", escape::line(name), escape::line(&parameters), escape::line(file));
    // The first line of prose; a heading only repeats the name.
    let mut prose = description.lines().map(str::trim).filter(|line| !line.is_empty());
    if let Some(line) = prose.clone().find(|line| !line.starts_with('#')).or_else(|| prose.next()) {
        text.push_str(&format!("    {}\n", escape::line(line)));
    }
    text
}

/// Prints the lines of tools.
pub(crate) fn print_text(lines: &str, printer: Printer) {
    if lines.is_empty() {
        printer.say("no tools: write one in `.harness/tools/`, or run `harness init`");
    } else {
        printer.data(lines);
    }
}
