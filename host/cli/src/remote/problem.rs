//! Errors of a server, as the command line prints those of its own.

use harness_serve::remote::{Answer, Remote};
use serde_json::Value as Json;

use super::super::exit::Exit;
use super::super::printer::Printer;
use super::{list, text};

/// What the server advises who cannot send a request by hand, and what to do here instead.
const HINTS: &[(&str, &str)] = &[
    ("`GET /v1/tools` lists the tools", "`harness tools` lists the tools"),
    (
        "send a key of this server as `Authorization: Bearer hk_...`",
        "set `HARNESS_API_KEY` to a key of a tenant of this server",
    ),
];

/// Prints why a request was refused.
pub(super) fn report(answer: &Answer, remote: &Remote, printer: Printer) -> Exit {
    let json = answer.json().filter(Json::is_object);
    let Some(json) = json else {
        printer.error(&format!("the server at `{}` answers {}", remote.url(""), answer.status), &[], None);
        return of_status(answer.status);
    };
    report_json(&json, answer.status, None, remote, printer)
}

/// The same for an error as JSON. `usage` is the hint for wrong arguments.
pub(super) fn report_json(json: &Json, status: u16, usage: Option<&str>, remote: &Remote, printer: Printer) -> Exit {
    let kind = text(json, "type").strip_prefix("urn:harness:problem:").unwrap_or_default();
    let detail = match text(json, "detail") {
        "" => format!("the server at `{}` answers {status}", remote.url("")),
        detail => remote.redact(detail),
    };
    let causes: Vec<String> =
        list(json, "errors").iter().filter_map(Json::as_str).map(|one| remote.redact(one)).collect();
    let mut hint = hint(text(json, "hint"));
    if hint.is_empty() && !text(json, "set_by").is_empty() {
        hint = format!("it is set by {}", text(json, "set_by"));
    }
    let hint = usage.filter(|_| kind == "arguments").map_or(hint, str::to_owned);
    printer.error(&detail, &causes, Some(&remote.redact(&hint)));
    match kind {
        "busy" => Exit::Busy,
        "limited" | "budget_exceeded" | "too_many_requests" | "quota" | "full" => Exit::Limited,
        "denied" | "forbidden" | "unauthorized" | "own_call" => Exit::Denied,
        _ => of_status(status),
    }
}

/// A hint of the server as it is of use here.
fn hint(given: &str) -> String {
    HINTS.iter().find(|(theirs, _)| *theirs == given).map_or(given, |(_, ours)| ours).to_owned()
}

fn of_status(status: u16) -> Exit {
    match status {
        401 | 403 => Exit::Denied,
        429 | 507 => Exit::Limited,
        400..500 => Exit::Usage,
        _ => Exit::Fault,
    }
}
