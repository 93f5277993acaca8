//! `harness audit`: the record of what was called and decided.

use harness_artifact::escape;
use harness_audit::{Broken, Key};
use serde_json::{Value as Json, json};

use super::args::{Audit, Digest, Listing, ProjectArgs, Show};
use super::exit::Exit;
use super::input;
use super::printer::{Printer, Reported};
use super::project;

pub(crate) fn run(command: &Audit, place: &ProjectArgs, printer: &Printer) -> Result<Exit, Exit> {
    let folder = project::there(place, *printer)?.join(harness_audit::FOLDER);
    match command {
        Audit::Verify(Listing { json }) => verify(&folder, *json, *printer),
        Audit::Show(command) => show(&folder, command, *printer),
        Audit::Digest(command) => digest(&folder, command, *printer),
    }
}

/// Reports that there is no audit log.
fn none(printer: Printer) -> Exit {
    let hint = "calls and decided events are logged, unless `sandbox.audit` is false";
    printer.error("there is no audit log here", &[], Some(hint));
    Exit::Usage
}

/// The object for programs if the audit log cannot be read.
pub(crate) fn rejected(told: &Reported) -> Json {
    broken_as_json(None, None, &told.message)
}

fn broken_as_json(file: Option<&str>, line: Option<u64>, why: &str) -> Json {
    json!({"whole": false, "file": file, "line": line, "why": why})
}

fn verify(folder: &std::path::Path, as_json: bool, printer: Printer) -> Result<Exit, Exit> {
    let found = harness_audit::verify(folder);
    if found.as_ref().is_ok_and(|summary| summary.lines == 0) {
        return Err(none(printer));
    }
    if as_json {
        printer.json(&match &found {
            Ok(summary) => {
                json!({
                    "whole": true, "lines": summary.lines, "files": summary.files, "hash": summary.hash,
                    "half_a_line": summary.half_a_line, "removed": summary.removed, "start": summary.start,
                })
            }
            Err(Broken { file, line, why, .. }) => broken_as_json(Some(file), *line, why),
        });
    }
    match found {
        Ok(summary) => {
            if summary.half_a_line {
                printer.say(
                    "note: an incomplete line follows: a process ended while it wrote; the next entry replaces it",
                );
            }
            if !as_json {
                let entries = if summary.lines == 1 { "entry" } else { "entries" };
                printer.data(&format!("audit log intact: {} {entries}, last hash {}", summary.lines, summary.hash));
                if summary.removed > 0 {
                    let (removed, start) = (summary.removed, summary.start);
                    printer.data(&format!(
                        "the first {removed} are kept no longer; the last of them had the hash {start}"
                    ));
                }
            }
            Ok(Exit::Completed)
        }
        Err(broken) => {
            if !as_json {
                report(&broken, printer);
            }
            Ok(exit_of(&broken))
        }
    }
}

fn report(broken: &Broken, printer: Printer) {
    let what = if broken.held { "the audit log cannot be read" } else { "the audit log is damaged" };
    let hint = broken.held.then(|| format!("`fuser {}/{}` finds that process", harness_audit::FOLDER, broken.file));
    printer.error(&format!("{what}: {}/{broken}", harness_audit::FOLDER), &[], hint.as_deref());
}

/// That a log cannot be read now says nothing of what is in it.
fn exit_of(broken: &Broken) -> Exit {
    if broken.held { Exit::Fault } else { Exit::Failed }
}

fn show(folder: &std::path::Path, command: &Show, printer: Printer) -> Result<Exit, Exit> {
    let lines = match harness_audit::last_lines(folder, command.last.max(1)) {
        Ok(lines) => lines,
        Err(broken) => {
            report(&broken, printer);
            return Ok(exit_of(&broken));
        }
    };
    if lines.is_empty() {
        return Err(none(printer));
    }
    for line in lines.iter().skip(lines.len().saturating_sub(command.last)) {
        if command.json {
            printer.data(&escape::json(line));
        } else {
            printer.data(&shown(line));
        }
    }
    Ok(Exit::Completed)
}

fn digest(folder: &std::path::Path, command: &Digest, printer: Printer) -> Result<Exit, Exit> {
    let arguments = input::json(&command.arguments, "the arguments are").map_err(|why| {
        printer.error(&why, &[], None);
        Exit::Usage
    })?;
    let key = Key::read(folder).map_err(|error| {
        let message = format!("the key of the audit log cannot be read: {error}");
        printer.error(&message, &[], Some("the first logged call creates it"));
        Exit::Usage
    })?;
    printer.data(&key.digest(arguments.to_string().as_bytes()));
    Ok(Exit::Completed)
}

/// Renders an entry for people.
fn shown(line: &str) -> String {
    let entry: Json = serde_json::from_str(line).unwrap_or_default();
    let text = |key: &str| escape::line(entry.get(key).and_then(Json::as_str).unwrap_or_default()).into_owned();
    let what = match text("kind").as_str() {
        "call" => text("tool"),
        _ if entry.get("artifact").is_some() => format!("{} of {}", text("event"), text("artifact")),
        _ => text("event"),
    };
    let time = text("time");
    // To the second: the entry is more exact.
    let time = time.split_once('.').map_or(time.clone(), |(second, _)| format!("{second}Z"));
    let mut shown = format!("{time}  {} {what}: {}", text("kind"), text("outcome"));
    for (key, before) in [("caller", "by "), ("why", "")] {
        if entry.get(key).is_some() && text(key) != "program" {
            shown.push_str(&format!(", {before}{}", text(key)));
        }
    }
    if let Some(fuel) = entry.get("usage").and_then(|usage| usage.get("fuel")) {
        shown.push_str(&format!(", fuel {fuel}"));
    }
    let list = |key: &str| entry.get(key).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    for hook in list("hooks") {
        let word = |key: &str| escape::line(hook.get(key).and_then(Json::as_str).unwrap_or_default()).into_owned();
        let reason = if word("reason").is_empty() { String::new() } else { format!(", {}", word("reason")) };
        shown.push_str(&format!("\n    {} hook {}: {}{reason}", word("event"), word("hook"), word("verdict")));
    }
    for refusal in list("refusals") {
        let word = |key: &str| escape::line(refusal.get(key).and_then(Json::as_str).unwrap_or_default()).into_owned();
        shown.push_str(&format!("\n    denied {} {}: {}", word("call"), word("subject"), word("why")));
    }
    let inner = list("hooks").iter().chain(list("refusals")).chain(entry.get("grant"));
    let cuts = inner.chain([&entry]).filter_map(|one| one.get("cut").and_then(Json::as_array)).flatten();
    for cut in cuts {
        let word = |key: &str| escape::line(cut.get(key).and_then(Json::as_str).unwrap_or_default()).into_owned();
        let bytes = cut.get("bytes").and_then(Json::as_u64).unwrap_or_default();
        let what = match cut.get("rows").and_then(Json::as_u64) {
            Some(rows) => format!("{rows} more of `{}` left out", word("field")),
            None => format!("`{}` cut", word("field")),
        };
        shown.push_str(&format!("\n    {what}: {bytes} bytes, {}", word("digest")));
    }
    shown
}
