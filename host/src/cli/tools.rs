//! `harness tools`: what a model would see.

use harness::artifact::escape;
use serde_json::json;

use super::args::{Place, Tools};
use super::exit::Exit;
use super::printer::Printer;
use super::project;

pub(crate) fn run(command: &Tools, place: &Place, printer: &Printer) -> Exit {
    let registry = project::registry(place);
    project::report(&registry, *printer);
    let Some(policy) = registry.policy() else { return Exit::Usage };
    let tools = registry.tools().iter().filter(|tool| policy.tools.decide(&tool.name).is_ok());
    if command.json {
        let definitions: Vec<_> = tools
            .map(|tool| json!({"name": tool.name, "description": tool.description, "parameters": tool.json_schema()}))
            .collect();
        printer.json(&json!(definitions));
    } else {
        let mut text = String::new();
        for tool in tools {
            let parameters = tool.parameters.list.iter().map(|parameter| {
                let mark = if *parameter.required { "" } else { "?" };
                format!("{}{mark}: {}", parameter.name, parameter.kind.word())
            });
            let parameters: Vec<String> = parameters.collect();
            let (name, parameters) = (escape::line(&tool.name), parameters.join(", "));
            text.push_str(&format!("{name}({})  {}\n", escape::line(&parameters), escape::line(&tool.source.file)));
            // The first line of prose; a heading only repeats the name.
            let mut prose = tool.description.lines().map(str::trim).filter(|line| !line.is_empty());
            if let Some(line) = prose.clone().find(|line| !line.starts_with('#')).or_else(|| prose.next()) {
                text.push_str(&format!("    {}\n", escape::line(line)));
            }
        }
        if text.is_empty() {
            printer.say("no tools: write one in `.harness/tools/`, or run `harness init`");
        } else {
            printer.data(&text);
        }
    }
    if registry.diagnostics().has_errors() { Exit::Usage } else { Exit::Completed }
}
