//! The tools by which a model sets agents to work without waiting, and asks for what continues.

use serde_json::Value as Json;

use harness_capability::reentry::Patience;
use harness_dispatch::builtin::{Answered, BuiltInCall, DELEGATE};
use harness_dispatch::chain::CallContext;
use harness_dispatch::tasks::{Found, MAX_WAITED, Wanted};
use harness_dispatch::trail::Trail;
use harness_dispatch::{Call, Nested, pipeline, reentry};
use harness_sandbox::outcome::{Failure, FailureKind, Outcome};

/// `delegate_async`: a call of `delegate`, with all that governs one, which is begun and not waited for.
pub(super) async fn begin(place: &CallContext, call: &BuiltInCall<'_>) -> Answered {
    let delegate = Call { id: None, name: DELEGATE.to_owned(), arguments: call.arguments.clone() };
    match pipeline::start(place, delegate, call.caller).await {
        Ok(report) => {
            let outcome = match &report.outcome {
                Outcome::Completed(output) => Outcome::Completed(output.result.to_string()),
                other => other.clone().map(|_| String::new()),
            };
            Answered { outcome, nested: vec![Nested::Call(Box::new(report))] }
        }
        Err(error) => failed(reentry::describe(&error)),
    }
}

/// `delegate_status`, `task_poll`: what has become of one.
pub(super) async fn poll(place: &CallContext, call: &BuiltInCall<'_>) -> Answered {
    let id = call.arguments.get("task_id").and_then(Json::as_str).unwrap_or_default().to_owned();
    answered(place.look(Wanted::These(&[id]), Patience::None).await, |mut told| told.pop().unwrap_or_default())
}

/// `delegate_await`, `task_await`: what becomes of several.
pub(super) async fn wait(place: &CallContext, call: &BuiltInCall<'_>) -> Answered {
    let ids;
    let wanted = match call.arguments.get("task_ids").and_then(Json::as_array) {
        None => Wanted::Open,
        Some(given) => {
            ids = given.iter().filter_map(|id| id.as_str().map(str::to_owned)).collect::<Vec<_>>();
            if ids.len() != given.len() || ids.is_empty() || ids.len() > MAX_WAITED {
                let wanted = format!("`task_ids` must be a list of 1 to {MAX_WAITED} texts, each a `task_id`");
                return failed(wanted);
            }
            Wanted::These(&ids)
        }
    };
    answered(place.look(wanted, Patience::Until(None)).await, Json::Array)
}

fn answered(found: Result<Found, String>, told: impl FnOnce(Vec<Json>) -> Json) -> Answered {
    match found {
        Ok(found) => {
            let nested: Trail = found.reports.into_iter().map(|report| Nested::Call(Box::new(report))).collect();
            Answered { outcome: Outcome::Completed(told(found.told).to_string()), nested: nested.into_nested() }
        }
        Err(why) => failed(why),
    }
}

fn failed(why: String) -> Answered {
    Answered { outcome: Outcome::Failed(Failure::without_place(FailureKind::Script, "", why)), nested: Vec::new() }
}
