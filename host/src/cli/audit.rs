//! `harness audit`: the record of what was called and decided.

use harness::artifact::escape;
use harness::audit::{self, Broken, Key};
use serde_json::{Value as Json, json};

use super::args::{Audit, Digest, Listing, Place, Show};
use super::exit::Exit;
use super::input;
use super::printer::Printer;
use super::project;

pub(crate) fn run(command: &Audit, place: &Place, printer: &Printer) -> Exit {
    let folder = project::root(place).join(audit::FOLDER);
    match command {
        Audit::Verify(Listing { json }) => verify(&folder, *json, *printer),
        Audit::Show(command) => show(&folder, command, *printer),
        Audit::Digest(command) => digest(&folder, command, *printer),
    }
}

fn verify(folder: &std::path::Path, as_json: bool, printer: Printer) -> Exit {
    let found = audit::verify(folder);
    if as_json {
        printer.json(&match &found {
            Ok(summary) => {
                json!({
                    "whole": true, "lines": summary.lines, "files": summary.files, "hash": summary.hash,
                    "half_a_line": summary.half_a_line,
                })
            }
            Err(Broken { file, line, why }) => json!({"whole": false, "file": file, "line": line, "why": why}),
        });
    }
    match found {
        Ok(summary) => {
            if summary.half_a_line {
                printer.say(
                    "note: half a line follows: a process was ended while it wrote; the next line takes its place",
                );
            }
            if !as_json {
                let plural = if summary.lines == 1 { "" } else { "s" };
                printer.data(&format!("whole: {} line{plural}, the last has the hash {}", summary.lines, summary.hash));
            }
            Exit::Completed
        }
        Err(broken) => {
            if !as_json {
                told(&broken, printer);
            }
            Exit::Failed
        }
    }
}

fn told(broken: &Broken, printer: Printer) {
    printer.error(&format!("the record is not as it was written: {}/{broken}", audit::FOLDER), &[], None);
}

fn show(folder: &std::path::Path, command: &Show, printer: Printer) -> Exit {
    let lines = match audit::lines(folder) {
        Ok(lines) => lines,
        Err(broken) => {
            told(&broken, printer);
            return Exit::Failed;
        }
    };
    for line in lines.iter().skip(lines.len().saturating_sub(command.last)) {
        if command.json {
            printer.data(&escape::line(line));
        } else {
            printer.data(&shown(line));
        }
    }
    Exit::Completed
}

fn digest(folder: &std::path::Path, command: &Digest, printer: Printer) -> Exit {
    let text = input::text(&command.arguments);
    let arguments = text.and_then(|text| {
        serde_json::from_str::<Json>(&text).map_err(|error| format!("the arguments are not JSON: {error}"))
    });
    let arguments = match arguments {
        Ok(arguments) => arguments.to_string(),
        Err(why) => {
            printer.error(&why, &[], None);
            return Exit::Usage;
        }
    };
    match Key::read(folder) {
        Ok(key) => {
            printer.data(&key.digest(arguments.as_bytes()));
            Exit::Completed
        }
        Err(error) => {
            let message = format!("the key of the record cannot be read: {error}");
            printer.error(&message, &[], Some("it is made when the first call is recorded"));
            Exit::Failed
        }
    }
}

/// A line of the record for a person.
fn shown(line: &str) -> String {
    let entry: Json = serde_json::from_str(line).unwrap_or_default();
    let text = |key: &str| escape::line(entry.get(key).and_then(Json::as_str).unwrap_or_default()).into_owned();
    let what = if text("kind") == "call" { text("tool") } else { text("event") };
    let time = text("time");
    // To the second; the record has more of it.
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
        shown.push_str(&format!("\n    refused {} {}: {}", word("call"), word("subject"), word("why")));
    }
    shown
}
