//! `verify` of a tool: a script of its author that judges what a call did, before the hooks on `tool.post` do.
//!
//! It runs in an instance of its own, under the tool's grant, with what the tool has left of its fuel and time. What it
//! does not accept is a failed call.

use serde_json::{Value as Json, json};

use super::chain::CallContext;
use super::payload::{CallMade, CallResult};
use super::pipeline::CallReport;
use super::reentry::{self, Nested};
use super::scripted::{self, Of};
use harness_capability::log::Log;
use harness_policy::limits::Limits;
use harness_sandbox::engine::Image;
use harness_sandbox::outcome::{Failure, FailureKind, HostCall, Outcome, Report, Usage};

/// How a tool's `verify` judged one of its calls.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// Why the call is not accepted, or why that could not be judged; nothing where it is accepted.
    pub refused: Option<String>,
    /// What the script used.
    pub usage: Usage,
    /// What it logged.
    pub log: Log,
    /// Its host calls in order.
    pub calls: Vec<HostCall>,
    /// What it started in turn.
    pub nested: Vec<Nested>,
}

impl Judgement {
    /// What the script and what it started used together.
    pub fn total(&self) -> Usage {
        self.usage.around(reentry::started(&self.nested))
    }
}

/// Runs the script on a call that has completed. What it does not accept has failed.
pub(super) async fn judge(
    place: &CallContext,
    (of, image): (Of<'_>, &Image),
    limits: Limits,
    arguments: &Json,
    report: &mut CallReport,
) {
    let given = given(report, arguments);
    let left = rest(limits, report.usage);
    let (ran, nested) = scripted::run(place, of, (image, "verify"), left, &given.to_string()).await;
    let Report { mut outcome, usage, log, calls, coverage: _ } = ran;
    outcome.redact(&place.loaded.parts.secrets);
    let named = |failure: Failure| Failure { message: format!("verify: {}", failure.message), ..failure };
    let ended = match outcome {
        Outcome::Completed(text) => {
            let verdict = serde_json::from_str(&text).unwrap_or_default();
            let why = match verdict_of(&verdict) {
                Ok(Ok(())) => None,
                Ok(Err(reason)) => Some(format!("not verified: {reason}")),
                Err(why) => Some(format!("verify: {why}")),
            };
            why.map(|mut why| {
                place.loaded.parts.secrets.redact(&mut why);
                Outcome::Failed(Failure::without_place(FailureKind::Script, "", why))
            })
        }
        Outcome::Failed(failure) => Some(Outcome::Failed(named(failure))),
        Outcome::Denied { failure, refusal } => Some(Outcome::Denied { failure: named(failure), refusal }),
        Outcome::Limited(limit) => Some(Outcome::Limited(limit)),
        Outcome::Busy(busy) => Some(Outcome::Busy(busy)),
        Outcome::Fault(why) => Some(Outcome::Fault(why)),
    };
    if let Some(outcome) = ended {
        report.end(outcome);
    }
    let refused = report.is_error.then(|| report.content.clone());
    report.verify = Some(Judgement { refused, usage, log, calls, nested });
}

/// What the script is given: the call as who judges a delegation sees it, and its arguments and result by themselves.
fn given(report: &CallReport, arguments: &Json) -> Json {
    let (id, name) = (report.id.clone(), report.tool.clone());
    let made = CallMade { id: id.clone(), name: name.clone(), args: arguments.clone() };
    let mut made = json!(made);
    if let Json::Object(made) = &mut made {
        made.insert("arguments".to_owned(), arguments.to_string().into());
    }
    let content = report.content.clone();
    let result = CallResult { call_id: id, name, content: content.clone(), is_error: false };
    json!({
        "args": arguments,
        "result": report.result,
        "response": content,
        "tool_calls": [made],
        "tool_results": [result],
    })
}

/// What is left of a call's limits when its tool has used this.
fn rest(limits: Limits, used: Usage) -> Limits {
    let timeout = limits.timeout.saturating_sub(limits.waited).saturating_sub(used.wall);
    Limits { fuel: limits.fuel.saturating_sub(used.fuel), timeout, waited: std::time::Duration::ZERO, ..limits }
}

/// What a script says of a result: `True`, `False`, or `{"verified": ..., "reason": ...}`, also as JSON text.
pub fn verdict_of(verdict: &Json) -> Result<Result<(), String>, String> {
    match verdict {
        Json::Bool(true) => Ok(Ok(())),
        Json::Bool(false) => Ok(Err("the verifier returned False".to_owned())),
        Json::Object(object) => {
            let reason = object.get("reason").and_then(Json::as_str).filter(|reason| !reason.is_empty());
            match object.get("verified") {
                Some(Json::Bool(true)) => Ok(Ok(())),
                Some(Json::Bool(false)) => {
                    Ok(Err(reason.unwrap_or("the verifier returned verified=False with no reason").to_owned()))
                }
                _ => Err("its result must have `verified`, True or False".to_owned()),
            }
        }
        Json::String(text) => match serde_json::from_str::<Json>(text) {
            Ok(inner @ (Json::Bool(_) | Json::Object(_))) => verdict_of(&inner),
            _ => Err("its result must be True, False or a dict with `verified`".to_owned()),
        },
        _ => Err("its result must be True, False or a dict with `verified`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let cases = [
            (json!(true), Ok(Ok(()))),
            (json!({"verified": true, "reason": "fine"}), Ok(Ok(()))),
            (json!("{\"verified\": true}"), Ok(Ok(()))),
            (json!(false), Ok(Err("the verifier returned False".to_owned()))),
            (json!({"verified": false, "reason": "no sources"}), Ok(Err("no sources".to_owned()))),
            (
                json!({"verified": false, "reason": ""}),
                Ok(Err("the verifier returned verified=False with no reason".to_owned())),
            ),
            (json!({"verified": 1}), Err("its result must have `verified`, True or False".to_owned())),
            (json!("yes"), Err("its result must be True, False or a dict with `verified`".to_owned())),
            (json!(null), Err("its result must be True, False or a dict with `verified`".to_owned())),
        ];
        for (verdict, expected) in cases {
            assert_eq!(verdict_of(&verdict), expected, "{verdict}");
        }
    }
}
