//! `harness --server URL run` and `deploy`: a turn of the tenant's agent, and its events as they happen.

use std::io::IsTerminal;
use std::time::Duration;

use harness_artifact::escape;
use harness_serve::remote::events::{Ended, Events};
use harness_serve::remote::{Ask, Lost, Remote, in_path};
use serde_json::{Value as Json, json};

use super::super::args::{Deploy, OutputForm, Talk};
use super::super::exit::Exit;
use super::super::input;
use super::super::printer::Printer;
use super::super::signals::{Heard, Signals};
use super::watch::Watch;
use super::{ask_json, block_on, list, problem, sessions, text, without, without_shared};

/// How long the end of a run is waited for that is stopped.
const FAREWELL: Duration = Duration::from_secs(10);
/// Events that are the server's own, and no agent's.
const OWN: &[&str] = &["began", "resumed", "waiting", "answered", "end"];

/// Gives the agent one message.
pub(super) fn talk(command: &Talk, remote: &Remote, printer: Printer) -> Result<Exit, Exit> {
    without_shared(command.workspace.as_ref(), &command.confirm, &command.confine, printer)?;
    let hint = "the server records each turn, and continues turns itself that it was interrupted in";
    without(&[("--no-record", command.no_record), ("--continue", command.unfinished.is_some())], hint, printer)?;
    let prompt = match &command.prompt {
        Some(prompt) => prompt.clone(),
        None if !std::io::stdin().is_terminal() => read("-", printer)?,
        None => {
            let hint = "give it: `harness --server URL run \"...\"`";
            printer.error("with `--server` there is no conversation, only one prompt", &[], Some(hint));
            return Err(Exit::Usage);
        }
    };
    let session = command.resume.as_deref();
    one(&prompt, session, command.output.form(), command.explain, remote, printer)
}

/// Gives it one task.
pub(super) fn deploy(command: &Deploy, remote: &Remote, printer: Printer) -> Result<Exit, Exit> {
    without_shared(command.workspace.as_ref(), &command.confirm, &command.confine, printer)?;
    without(&[("--no-record", command.no_record)], "the server records each turn", printer)?;
    let prompt = read(command.input.as_deref().unwrap_or("-"), printer)?;
    one(&prompt, None, command.output.form(), command.explain, remote, printer)
}

/// One turn, in a session of its own or in one that is resumed.
pub(super) fn one(
    prompt: &str,
    session: Option<&str>,
    form: OutputForm,
    explain: bool,
    remote: &Remote,
    printer: Printer,
) -> Result<Exit, Exit> {
    if prompt.trim().is_empty() {
        printer.error("the prompt is empty", &[], Some("give a prompt: `harness run \"...\"`"));
        return Err(Exit::Usage);
    }
    block_on(turn(prompt, session, form, explain, remote, printer), printer)
}

fn read(given: &str, printer: Printer) -> Result<String, Exit> {
    input::text(given).map_err(|message| {
        printer.error(&message, &[], Some("give the text itself, `@FILE`, or `-` for standard input"));
        Exit::Usage
    })
}

async fn turn(
    prompt: &str,
    session: Option<&str>,
    form: OutputForm,
    explain: bool,
    remote: &Remote,
    printer: Printer,
) -> Result<Exit, Exit> {
    let (path, body) = match session {
        None => ("/v1/runs".to_owned(), json!({"input": prompt})),
        Some(wanted) => {
            let name = sessions::find(wanted, remote, printer).await?;
            (format!("/v1/sessions/{}/turns", in_path(&name)), json!({"input": prompt}))
        }
    };
    let mut watch = Watch::new(printer, form == OutputForm::Text, explain);
    let mut seen = |event: &Json| {
        if form == OutputForm::StreamJson && !OWN.contains(&text(event, "type")) {
            printer.data(&escape::json(&event.to_string()));
        }
        watch.notify(event);
    };
    let followed = follow(remote, &path, &body, false, &mut seen, printer).await?;
    let was_shown = watch.end();
    Ok(match followed {
        Followed::Ended(end) => came(end, form, was_shown, remote, printer),
        Followed::Interrupted(heard) => {
            let why = format!("interrupted by {}", heard.name());
            let error = json!({"kind": "interrupted", "message": why});
            let empty = json!({"input_tokens": 0, "output_tokens": 0});
            form.print(
                printer,
                json!({"outcome": "interrupted", "error": error, "rounds": 0, "calls": [], "usage": empty, "log": []}),
            );
            printer.error(&why, &[], None);
            heard.exit()
        }
    })
}

/// How a run was left.
pub(super) enum Followed {
    /// It has ended: its last event.
    Ended(Json),
    /// A signal came, and it was stopped.
    Interrupted(Heard),
}

/// Begins a run and follows it to its end. A signal stops it.
pub(super) async fn follow(
    remote: &Remote,
    path: &str,
    body: &Json,
    is_call: bool,
    seen: &mut dyn FnMut(&Json),
    printer: Printer,
) -> Result<Followed, Exit> {
    let ask = Ask::post(path, body).once();
    let ask = if is_call { ask.asynchronous() } else { ask };
    let mut signals = Signals::new();
    let begun = match signals.unless(ask_json(remote, &ask, printer)).await {
        Ok(begun) => begun?,
        Err(heard) => {
            // It may have begun: asked once more, the server says which run that is.
            let again = async {
                if let Ok(answer) = remote.ask(&ask).await
                    && let Some(begun) = answer.json()
                {
                    stop(remote, text(&begun, "id")).await;
                }
            };
            let _ = tokio::time::timeout(FAREWELL, again).await;
            return Ok(Followed::Interrupted(heard));
        }
    };
    let run = text(&begun, "id");
    let mut events = Events::of(remote, run);
    let followed = async {
        loop {
            match events.next().await {
                Ok(Some(event)) if text(&event, "type") == "end" => return ended(event, run, remote, printer).await,
                Ok(Some(event)) => {
                    seen(&event);
                    asked(&event, remote, printer).await;
                }
                Ok(None) => {
                    printer.error(&format!("the run `{run}` has no end"), &[], None);
                    return Err(Exit::Fault);
                }
                Err(why) => return Err(lost(why, run, remote, printer)),
            }
        }
    };
    match signals.unless(followed).await {
        Ok(end) => Ok(Followed::Ended(end?)),
        Err(heard) => {
            let _ = tokio::time::timeout(FAREWELL, stop(remote, run)).await;
            Ok(Followed::Interrupted(heard))
        }
    }
}

async fn stop(remote: &Remote, run: &str) {
    if !run.is_empty() {
        let _ = remote.ask(&Ask::delete(&format!("/v1/runs/{}", in_path(run)))).await;
    }
}

/// The last event of a run, whole.
async fn ended(event: Json, run: &str, remote: &Remote, printer: Printer) -> Result<Json, Exit> {
    if event.get("too_long").is_none() {
        return Ok(event);
    }
    printer.error(&format!("the result of the run `{run}` is longer than the server keeps"), &[], None);
    let shown = format!("`{}` has what is kept of it", remote.url(&format!("/dashboard/runs/{}", in_path(run))));
    printer.say(&escape::line(&format!("note: {shown}")));
    Err(Exit::Limited)
}

fn lost(why: Ended, run: &str, remote: &Remote, printer: Printer) -> Exit {
    let exit = match why {
        Ended::Refused(answer) => problem::report(&answer, remote, printer),
        Ended::Lost(Lost(why)) => {
            printer.error(&why, &[], None);
            Exit::Fault
        }
    };
    printer.say(&escape::line(&format!("note: the run `{run}` may still be under way")));
    exit
}

/// Says that a call waits for an answer, and who gives it.
async fn asked(event: &Json, remote: &Remote, printer: Printer) {
    if text(event, "type") != "waiting" {
        return;
    }
    let (tool, id) = (text(event, "tool"), text(event, "approval"));
    let url = remote.url("");
    let answer = format!(
        "note: the call of `{tool}` waits until another key answers: `harness --server {url} approvals approve {id}`"
    );
    printer.say(&escape::line(&answer));
}

/// Prints what came of a turn.
fn came(mut end: Json, form: OutputForm, was_shown: bool, remote: &Remote, printer: Printer) -> Exit {
    if let Some(members) = end.as_object_mut() {
        members.shift_remove("type");
    }
    log(&end, printer);
    let outcome = text(&end, "outcome").to_owned();
    if outcome == "completed" {
        if let Some(warning) = end.get("warning").and_then(Json::as_str) {
            printer.warning(&escape::line(warning));
        }
        form.print(printer, end.clone());
        if form == OutputForm::Text && !was_shown {
            printer.data(text(&end, "answer"));
        }
        return Exit::Completed;
    }
    let error = end.get("error").cloned().unwrap_or_default();
    // What did not come to its work has the error of a request.
    if error.get("detail").is_some() {
        let status = error.get("status").and_then(Json::as_u64).and_then(|status| u16::try_from(status).ok());
        form.print(printer, end);
        return problem::report_json(&error, status.unwrap_or(500), None, remote, printer);
    }
    let message = match (text(&error, "message"), outcome.as_str()) {
        ("", "stopped") => "the run was stopped".to_owned(),
        ("", outcome) => format!("the run ended as `{outcome}`"),
        (message, _) => remote.redact(message),
    };
    let said = text(&end, "said").to_owned();
    form.print(printer, end);
    if !said.is_empty() && form == OutputForm::Text && !was_shown {
        printer.say(&format!("the reply until then:\n{}", escape::text(&said).trim_end()));
    }
    printer.error(&message, &[], None);
    match outcome.as_str() {
        "denied" => Exit::Denied,
        "rejected" => Exit::Usage,
        "limited" => Exit::Limited,
        "failed" | "stopped" => Exit::Failed,
        _ => Exit::Fault,
    }
}

/// What scripts logged, which the server gives at the end.
fn log(end: &Json, printer: Printer) {
    let calls = list(end, "calls");
    for line in list(end, "log") {
        let source = text(line, "source");
        let is_tool = calls.iter().any(|call| text(call, "name") == source);
        let who = if is_tool { String::new() } else { format!("{}: ", escape::line(source)) };
        printer.say(&format!("[{}] {who}{}", escape::line(text(line, "level")), escape::text(text(line, "message"))));
    }
}
