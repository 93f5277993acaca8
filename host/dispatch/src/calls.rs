//! Calls of tools that a script makes: `meta.call-tool`, which gives the content that a model would get, and
//! `meta.call-all`, which gives values and runs several at one time.
//!
//! Several calls run in groups, each call in a strand of its own. The calls of a group share the fuel that is left, a part
//! each, so that together they use no more than the script has; what one does not use is there for the next group. What
//! comes of it does not depend on which is faster.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::chain::CallContext;
use super::code;
use super::payload;
use super::pipeline::{self, Call, CallError, CallReport};
use super::reentry::{Inner, Nested, describe, started};
use harness_artifact::event::Event;
use harness_artifact::policy::meta::MAX_CALL_DEPTH;
use harness_capability::meta::Error;
use harness_capability::reentry::Allowance;
use harness_policy::grant::Grant;
use harness_policy::refusal::Refusal;
use harness_sandbox::engine::NESTING;
use harness_sandbox::outcome::Outcome;
use harness_sandbox::strand;

/// Calls of one `meta.call-all`.
const MAX_CALLS: usize = 100;
/// Calls that run at one time.
const MAX_LIMIT: usize = 16;
/// Fuel for each call beside the first one, which the import is the price of.
const CALL: u64 = 500_000;
/// Bytes of all values of one `meta.call-all` as JSON: what the import may answer, without the keys around them.
const MAX_VALUES: usize = 11 << 20;

/// What is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Calls {
    calls: Vec<Wanted>,
    limit: i64,
}

/// One of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    name: String,
    arguments: Json,
}

/// A call that has ended.
struct Made {
    /// Or why no call can be made here.
    answer: Result<Answer, Error>,
    used: u64,
    nested: Vec<Nested>,
}

/// What a script gets of it.
struct Answer {
    /// What a model would get.
    content: String,
    /// The line that would allow what was denied.
    hint: String,
    /// None of one that failed.
    value: Option<Json>,
}

impl Answer {
    fn refused(content: String) -> Self {
        Self { content, hint: String::new(), value: None }
    }

    fn of(report: &CallReport) -> Self {
        let hint = match &report.outcome {
            Outcome::Denied { refusal, .. } => refusal.hint.clone(),
            _ => String::new(),
        };
        let value = (!report.is_error).then(|| report.result.clone());
        Self { content: report.content.clone(), hint, value }
    }

    fn is_error(&self) -> bool {
        self.value.is_none()
    }
}

impl Inner {
    /// `meta.call-tool`, and the fuel that it took.
    pub(super) async fn content_of(
        &self,
        name: String,
        arguments: String,
        left: Allowance,
    ) -> (Result<String, Error>, u64) {
        if let Err(error) = self.may_call() {
            return (Err(error), 0);
        }
        let Ok(arguments) = serde_json::from_str::<Json>(&arguments) else {
            return (Err(Error::Invalid("the arguments are not JSON".to_owned())), 0);
        };
        let made = self.make(&self.place, Wanted { name, arguments }, left).await;
        made.nested.into_iter().for_each(|nested| self.record(nested));
        let content = |answer: Answer| match answer.is_error() {
            true => format!("error: {}", answer.content),
            false => answer.content,
        };
        (made.answer.map(content), made.used)
    }

    /// `meta.call-all`, and the fuel that it took.
    pub(super) async fn values_of(&self, calls: String, left: Allowance) -> (Result<String, Error>, u64) {
        let read = self.may_call().and_then(|()| read(&calls));
        let (calls, limit) = match read {
            Ok(read) => read,
            Err(error) => return (Err(error), 0),
        };
        let (mut used, mut answers, mut room) = (0_u64, Vec::with_capacity(calls.len()), MAX_VALUES);
        let mut host_calls = 0_u64;
        let mut calls = calls.into_iter();
        loop {
            let group: Vec<Wanted> = calls.by_ref().take(limit).collect();
            if group.is_empty() {
                break;
            }
            let price = if answers.is_empty() { group.len() - 1 } else { group.len() };
            used = used.saturating_add(CALL.saturating_mul(price as u64));
            for made in self.group(group, left.after(used).after_host_calls(host_calls)).await {
                used = used.saturating_add(made.used);
                host_calls = host_calls.saturating_add(started(&made.nested).host_calls);
                made.nested.into_iter().for_each(|nested| self.record(nested));
                match made.answer {
                    Ok(answer) => answers.push(shown(answer, &mut room)),
                    Err(error) => return (Err(error), used),
                }
            }
        }
        (Ok(Json::Array(answers).to_string()), used)
    }

    /// Calls that run at one time, in their order. A single one is as if the script had made no other.
    async fn group(&self, mut calls: Vec<Wanted>, left: Allowance) -> Vec<Made> {
        if calls.len() == 1 {
            return match calls.pop() {
                Some(call) => vec![self.make(&self.place, call, left).await],
                None => Vec::new(),
            };
        }
        let part = left.part(calls.len() as u64);
        let here = self.place.run.strand();
        let work = calls.into_iter().map(|call| {
            let place = CallContext { view: self.place.view.concurrent(), ..self.place.clone() };
            strand::in_strand(
                here.next_task(),
                strand::until_cut(Box::pin(async move { self.make(&place, call, part).await })),
            )
        });
        let ended: Option<Vec<Made>> = futures_util::future::join_all(work).await.into_iter().collect();
        match ended {
            Some(ended) => ended,
            // One of them was cut in the past, and so was what waits for all.
            None => strand::cut().await,
        }
    }

    /// Whether this script may call tools, and how deep it is.
    fn may_call(&self) -> Result<(), Error> {
        self.meta_enabled()?;
        let most = self.place.loaded.parts.policy.meta.max_call_depth.unwrap_or(MAX_CALL_DEPTH);
        let most = u32::try_from(most).unwrap_or(u32::MAX).min(NESTING);
        if self.calls >= most || self.place.depth > NESTING {
            return Err(Error::TooDeep(most));
        }
        Ok(())
    }

    /// What a call of a tool gets no more than.
    fn caller(&self) -> Option<&Arc<Grant>> {
        self.code.as_ref().map_or(Some(&self.grant), Option::as_ref)
    }

    /// Why a script does not call this. The three tools of code mode are for models and clients; so are, for a script of
    /// theirs, the host's own tools of an agent, and for a client's the tools of `mcp.only_as_tasks`.
    fn only_direct(&self, name: &str) -> Option<String> {
        let is_code = code::tool(&self.place.loaded, name).is_some();
        let built_ins = self.place.built_ins.iter().filter(|_| self.code.is_some());
        let is_own = || built_ins.flat_map(|all| all.tools()).any(|tool| tool.name == name);
        if is_code || is_own() {
            return Some(format!("`{name}` is called by a model or a client, and not by a script"));
        }
        // A client that follows no task gets no further by a script.
        let is_client = self.code.is_some() && self.place.run.client_request().is_some();
        let wants_task = is_client && self.place.loaded.parts.policy.mcp.wants_task(name);
        wants_task.then(|| format!("`{name}` is only called as a task, and not by a script of a client"))
    }

    /// One call, from the hooks on `meta.call_tool` on.
    async fn make(&self, here: &CallContext, call: Wanted, left: Allowance) -> Made {
        let Wanted { name, arguments: args } = call;
        if let Some(why) = self.only_direct(&name) {
            return Made { answer: Ok(Answer::refused(why)), used: 0, nested: Vec::new() };
        }
        let event = payload::MetaCallTool { name: name.clone(), arguments: args.to_string(), args };
        let place = here.now(Some(left)).await;
        let dispatch = place.fire(&Event::Meta("call_tool".to_owned()), here.agent.payload(&event)).await;
        let fired = dispatch.usage().fuel;
        let mut made = Made { answer: Err(Error::TooDeep(NESTING)), used: fired, nested: Vec::new() };
        let (blocked, args) = (dispatch.decision.blocked(), dispatch.payload.get("args").cloned().unwrap_or_default());
        made.nested.push(Nested::Event(dispatch));
        if let Some(reason) = blocked {
            // A caller looks at a text, whatever kept the tool from running.
            made.answer = Ok(Answer::refused(Refusal::always(reason).reason));
            return made;
        }
        let left = left.after(fired).after_host_calls(started(&made.nested).host_calls);
        let now = here.now(Some(left)).await;
        // A script that a model wrote is no tool that calls another.
        let calls = if self.code.is_some() { self.calls } else { self.calls.saturating_add(1) };
        let place = CallContext { calls, ..now };
        let call = Call { id: None, name, arguments: args };
        match pipeline::call(&place, call, self.caller()).await {
            Ok(report) => {
                made.used = fired.saturating_add(report.total().fuel);
                made.answer = Ok(Answer::of(&report));
                made.nested.push(Nested::Call(Box::new(report)));
            }
            Err(error) => {
                let hint = match &error {
                    CallError::NotAllowed(refusal) => refusal.hint.clone(),
                    _ => String::new(),
                };
                made.answer = Ok(Answer { hint, ..Answer::refused(describe(&error)) });
                if let CallError::Arguments { pre: Some(pre), .. } = error {
                    made.used = fired.saturating_add(pre.usage().fuel);
                    made.nested.push(Nested::Event(*pre));
                }
            }
        }
        made
    }
}

/// Reads what is asked for.
fn read(calls: &str) -> Result<(Vec<Wanted>, usize), Error> {
    let Calls { calls, limit } = serde_json::from_str(calls)
        .map_err(|error| Error::Invalid(format!("the calls are not `{{\"calls\": [...], \"limit\": n}}`: {error}")))?;
    if calls.len() > MAX_CALLS {
        return Err(Error::Invalid(format!("{} calls are more than {MAX_CALLS}, the most at once", calls.len())));
    }
    let limit = usize::try_from(limit).ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    let limit = limit.ok_or_else(|| Error::Invalid(format!("the limit must be between 1 and {MAX_LIMIT}")))?;
    Ok((calls, limit))
}

/// What a call gave, as far as there is room for it.
fn shown(answer: Answer, room: &mut usize) -> Json {
    let Answer { content, hint, value } = answer;
    let Some(value) = value else {
        let hint = if hint.is_empty() { hint } else { format!(" ({hint})") };
        return json!({ "error": format!("{content}{hint}") });
    };
    let shown = json!({ "value": value });
    let bytes = shown.to_string().len();
    match room.checked_sub(bytes) {
        Some(left) => {
            *room = left;
            shown
        }
        None => json!({
            "error": format!("the result of {bytes} bytes does not fit: all results of these calls have {MAX_VALUES} bytes together")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_has_its_form() {
        let asked = |calls: usize, limit: i64| {
            let call = json!({"name": "a", "arguments": {}});
            read(&json!({"calls": vec![call; calls], "limit": limit}).to_string())
                .map(|(calls, limit)| (calls.len(), limit))
        };
        assert_eq!(asked(100, 16), Ok((100, 16)));
        assert_eq!(asked(0, 1), Ok((0, 1)));
        let invalid = |why: &str| Err(Error::Invalid(why.to_owned()));
        assert_eq!(asked(101, 1), invalid("101 calls are more than 100, the most at once"));
        for limit in [0, 17, -1, i64::MAX] {
            assert_eq!(asked(1, limit), invalid("the limit must be between 1 and 16"));
        }
        for wrong in ["", "[]", "{\"calls\":[]}", "{\"calls\":[{\"name\":\"a\"}],\"limit\":1}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn results_have_room_together() {
        let mut room = MAX_VALUES;
        let answer = |bytes: usize| Answer { value: Some("x".repeat(bytes).into()), ..Answer::refused(String::new()) };
        assert!(shown(answer(MAX_VALUES - 40), &mut room).get("value").is_some());
        let why = "the result of 112 bytes does not fit: all results of these calls have 11534336 bytes together";
        assert_eq!(shown(answer(100), &mut room), json!({"error": why}));
        assert_eq!(shown(answer(1), &mut room), json!({"value": "x"}));
        let denied = Answer { hint: "add it".to_owned(), ..Answer::refused("denied".to_owned()) };
        assert_eq!(shown(denied, &mut room), json!({"error": "denied (add it)"}));
    }
}
