//! `harness --server URL usage`: what a tenant has used.

use clap::Args;
use harness_artifact::escape;
use harness_serve::remote::{Ask, Remote};
use serde_json::Value as Json;

use super::super::exit::Exit;
use super::super::printer::Printer;
use super::approvals::moment;
use super::{ask_json, block_on, list, text};

#[derive(Debug, Args)]
pub(crate) struct Usage {
    /// Print the answer of the server as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints budgets, rates and runs.
pub(super) fn run(command: &Usage, remote: &Remote, printer: Printer) -> Result<Exit, Exit> {
    let usage = block_on(ask_json(remote, &Ask::get("/v1/usage"), printer), printer)?;
    if command.json {
        printer.json(&usage);
        return Ok(Exit::Completed);
    }
    let number = |of: &Json, name: &str| of.get(name).and_then(Json::as_u64).unwrap_or_default();
    // Of dollars there is an exact text.
    let amount = |of: &Json, name: &str| match of.get(name) {
        Some(Json::String(dollars)) => Some(format!("${}", escape::line(dollars))),
        other => other.and_then(Json::as_u64).map(|number| number.to_string()),
    };
    let mut lines =
        format!("tenant {}, class {}\n", escape::line(text(&usage, "tenant")), escape::line(text(&usage, "class")));
    for budget in list(&usage, "budgets") {
        let limit = amount(budget, "limit").map(|limit| format!(" of {limit}")).unwrap_or_default();
        let name = escape::line(text(budget, "budget"));
        let used = amount(budget, "used").unwrap_or_default();
        lines.push_str(&format!("{name}: {used}{limit}, until {}\n", moment(number(budget, "resets"))));
    }
    if let Some(requests) = usage.get("requests") {
        let (rate, burst) = (number(requests, "per_minute"), number(requests, "burst"));
        lines.push_str(&format!("requests: {rate} in a minute, bursts of {burst}\n"));
    }
    if let Some(runs) = usage.get("runs") {
        lines.push_str(&format!("runs: {} of {} under way\n", number(runs, "under_way"), number(runs, "limit")));
    }
    printer.data(&lines);
    Ok(Exit::Completed)
}
