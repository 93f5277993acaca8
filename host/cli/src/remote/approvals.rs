//! `harness --server URL approvals`: calls that wait until a key confirms them, with exactly what will run.

use std::io::IsTerminal;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand};
use harness_artifact::escape;
use harness_serve::remote::{Ask, Remote, in_path};
use serde_json::{Value as Json, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::super::confirm::{Line, forget_typed, line};
use super::super::exit::Exit;
use super::super::printer::Printer;
use super::{ask_json, block_on, list, text};

#[derive(Debug, Subcommand)]
pub(crate) enum Approvals {
    /// List the calls that wait for an answer.
    List(ListApprovals),
    /// Show one: the tool, why it is asked, and the arguments that will run.
    Show(ShowApproval),
    /// Confirm a call. At a terminal you see it and are asked, unless `--digest` is given.
    Approve(AnswerApproval),
    /// Deny a call.
    Deny(AnswerApproval),
}

#[derive(Debug, Args)]
pub(crate) struct ListApprovals {
    /// Print a JSON list.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowApproval {
    /// Its identifier.
    pub(crate) id: String,

    /// Print it as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerApproval {
    /// Its identifier.
    pub(crate) id: String,

    /// Answer only if the arguments have this digest: the one that `show` has printed.
    #[arg(long, value_name = "DIGEST")]
    pub(crate) digest: Option<String>,
}

/// Executes one of the commands.
pub(super) fn run(command: &Approvals, remote: &Remote, printer: Printer) -> Result<Exit, Exit> {
    block_on(
        async {
            match command {
                Approvals::List(command) => print_list(command, remote, printer).await,
                Approvals::Show(ShowApproval { id, json }) => {
                    let one = find(id, remote, printer).await?;
                    match json {
                        true => printer.json(&one),
                        false => printer.data(&shown(&one, remote)),
                    }
                    Ok(Exit::Completed)
                }
                Approvals::Approve(answer) => give(answer, true, remote, printer).await,
                Approvals::Deny(answer) => give(answer, false, remote, printer).await,
            }
        },
        printer,
    )
}

async fn all(remote: &Remote, printer: Printer) -> Result<Vec<Json>, Exit> {
    let answer = ask_json(remote, &Ask::get("/v1/approvals"), printer).await?;
    Ok(list(&answer, "approvals").to_vec())
}

async fn find(id: &str, remote: &Remote, printer: Printer) -> Result<Json, Exit> {
    let found = all(remote, printer).await?.into_iter().find(|one| text(one, "id") == id);
    found.ok_or_else(|| {
        let hint =
            "`harness approvals list` lists them; one that was answered, or whose run has ended, is none of them";
        printer.error(&format!("no call waits for an answer with the identifier `{id}`"), &[], Some(hint));
        Exit::Usage
    })
}

async fn print_list(command: &ListApprovals, remote: &Remote, printer: Printer) -> Result<Exit, Exit> {
    let all = all(remote, printer).await?;
    if command.json {
        printer.json(&Json::Array(all));
        return Ok(Exit::Completed);
    }
    if all.is_empty() {
        printer.say("nothing waits for an answer");
        return Ok(Exit::Completed);
    }
    for one in &all {
        let [id, tool, rule] = ["id", "tool", "rule"].map(|name| escape::line(text(one, name)));
        printer.data(&format!("{id}  {tool}  until {}  {rule}", moment(expires(one))));
    }
    Ok(Exit::Completed)
}

fn expires(one: &Json) -> u64 {
    one.get("expires").and_then(Json::as_u64).unwrap_or_default()
}

/// A moment in milliseconds since 1970, as RFC 3339 has it.
pub(super) fn moment(ms: u64) -> String {
    let seconds = i64::try_from(ms / 1000).ok();
    let at = seconds.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    at.and_then(|at| at.format(&Rfc3339).ok()).unwrap_or_else(|| "-".to_owned())
}

/// What will run, and why it is asked.
fn shown(one: &Json, remote: &Remote) -> String {
    let mut lines = String::new();
    let facts = [("approval", "id"), ("tool", "tool"), ("file", "artifact"), ("why", "rule"), ("run", "run")];
    for (name, key) in facts.into_iter().chain([("asked by", "asked_by"), ("digest", "args_digest")]) {
        lines.push_str(&format!("{name}: {}\n", escape::line(text(one, key))));
    }
    lines.push_str(&format!("until: {}\n", moment(expires(one))));
    lines.push_str(&format!("page: {}\n", escape::line(&remote.url("/dashboard/approvals"))));
    let arguments = format!("{:#}", one.get("arguments").unwrap_or(&Json::Null));
    lines.push_str(&format!("arguments:\n{}\n", escape::text(&arguments)));
    lines
}

/// Answers a question. The digest is of the arguments that were seen, so that no others run.
async fn give(
    AnswerApproval { id, digest }: &AnswerApproval,
    is_yes: bool,
    remote: &Remote,
    printer: Printer,
) -> Result<Exit, Exit> {
    let digest = match digest {
        Some(digest) => digest.clone(),
        None => {
            let one = find(id, remote, printer).await?;
            if is_yes && !seen(&shown(&one, remote), printer)? {
                printer.say("not answered");
                return Ok(Exit::Failed);
            }
            text(&one, "args_digest").to_owned()
        }
    };
    let body = json!({"answer": if is_yes { "yes" } else { "no" }, "args_digest": digest});
    let path = format!("/v1/approvals/{}", in_path(id));
    let answered = ask_json(remote, &Ask::post(&path, &body), printer).await?;
    let word = if is_yes { "approved" } else { "denied" };
    printer.data(&format!("{word} {} of {}", escape::line(id), escape::line(text(&answered, "run"))));
    Ok(Exit::Completed)
}

/// Shows a person what will run. Whether they want it to.
fn seen(shown: &str, printer: Printer) -> Result<bool, Exit> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let hint = "see what will run with `harness approvals show ID`, and give its digest with `--digest`";
        printer.error("nobody has seen what will run", &[], Some(hint));
        return Err(Exit::Usage);
    }
    let _typing = printer.typing();
    let _shown = forget_typed();
    printer.ask(shown);
    printer.ask(&format!("{} [y]es, [N]o: ", printer.paint("Run it with these arguments?", "1")));
    Ok(match line(printer, &AtomicBool::new(false)) {
        Line::Typed(typed) => matches!(typed.trim().to_ascii_lowercase().as_str(), "y" | "yes"),
        Line::None => false,
    })
}
