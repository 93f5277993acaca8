//! `harness --server URL tools`, and `policy show`.

use harness_artifact::definition::{Definition, Transport};
use harness_artifact::diagnostic::Position;
use harness_artifact::escape;
use harness_artifact::tool::Tool;
use harness_serve::remote::{Ask, Remote};
use serde_json::{Map, Value as Json, json};

use super::super::args::{Granted, Tools};
use super::super::exit::Exit;
use super::super::printer::Printer;
use super::super::tools::{as_line, print_text};
use super::{ask_json, block_on, list, text, without};

/// A tool as the server describes it: its parameters.
///
/// # Errors
///
/// What is wrong with them.
pub(super) fn tool(given: &Json) -> Result<Tool, String> {
    let definition = json!({"name": text(given, "name"), "inputSchema": given.get("parameters")});
    let position = Position { file: "server".into(), line: 1, column: 1, length: 1 };
    let tool = Definition::read(definition)?.tool("server", Transport::Http, &position)?;
    Ok(Tool { name: text(given, "name").to_owned(), served: None, ..tool })
}

/// Lists the tools.
pub(super) fn run(command: &Tools, remote: &Remote, printer: Printer) -> Result<Exit, Exit> {
    let answer = block_on(ask_json(remote, &Ask::get("/v1/tools"), printer), printer)?;
    let (tools, refused) = (list(&answer, "tools"), list(&answer, "refused"));
    if command.json {
        let tools = tools.iter().map(|tool| {
            let mut tool = tool.clone();
            tool.as_object_mut().map(|tool| tool.shift_remove("file"));
            tool
        });
        let refused = refused
            .iter()
            .map(|one| json!({"name": one.get("name"), "refused": {"by": one.get("by"), "reason": one.get("reason")}}));
        printer.json(&json!(tools.chain(refused).collect::<Vec<Json>>()));
        return Ok(Exit::Completed);
    }
    let mut lines = String::new();
    for given in tools {
        let parameters = tool(given).map(|tool| tool.parameters.list).unwrap_or_default();
        lines.push_str(&as_line(text(given, "name"), &parameters, text(given, "file"), text(given, "description")));
    }
    for one in refused {
        let [name, by, reason, at] = ["name", "by", "reason", "file"].map(|key| escape::line(text(one, key)));
        lines.push_str(&format!("{name}  {at}\n    rejected by hook `{by}`: {reason}\n"));
    }
    print_text(&lines, printer);
    Ok(Exit::Completed)
}

/// Prints what all layers allow a tool together.
pub(super) fn policy(command: &Granted, remote: &Remote, printer: Printer) -> Result<Exit, Exit> {
    let hint = "`harness call --within` narrows a call";
    without(&[("--within", command.within.is_some())], hint, printer)?;
    let answer = block_on(ask_json(remote, &Ask::get("/v1/policy"), printer), printer)?;
    let Some(tool) = list(&answer, "tools").iter().find(|tool| text(tool, "tool") == command.name) else {
        let hint = "`harness tools` lists the tools";
        printer.error(&format!("there is no tool `{}`", command.name), &[], Some(hint));
        return Err(Exit::Usage);
    };
    let rules = list(tool, "rules");
    let is_allowed = tool.get("allowed").and_then(Json::as_bool).unwrap_or(false);
    if command.json {
        let grant: Map<String, Json> = rules
            .iter()
            .map(|one| (text(one, "key").to_owned(), json!({"rules": one.get("rules"), "whole": one.get("whole")})))
            .collect();
        printer.json(&json!({"kind": "tool", "name": command.name, "allowed": is_allowed, "grant": grant}));
        return Ok(Exit::Completed);
    }
    let mut lines = format!("tool {}\n", escape::line(&command.name));
    if !is_allowed {
        lines.push_str("not callable: the policy of the project does not allow its name\n");
    }
    lines.push_str("allowed by all its layers:\n");
    for one in rules {
        let all: Vec<&str> = list(one, "rules").iter().filter_map(Json::as_str).collect();
        let is_whole = one.get("whole").and_then(Json::as_bool).unwrap_or(false);
        lines.push_str(&format!(
            "  {}: {}\n",
            escape::line(text(one, "key")),
            super::super::grant::rules_line(&all, is_whole)
        ));
    }
    printer.data(&lines);
    Ok(Exit::Completed)
}
