//! Events of dispatch and the loop, as lines.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::Value as Json;

use super::record::{
    Asked, Called, Calling, Confirmation, Continued, Decided, Delegated, HookRan, HostCalled, Judged, Logged, Looked,
    Reply, Rest, Retry, Returned, Started, Task, Tokens, ToolCall, Turn, Turned, Unanswered, Unmade, Verified, Work,
};
use harness_agent::{Interrupted, TurnError};
use harness_capability::log::Log;
use harness_dispatch::builtin::DELEGATE;
use harness_dispatch::confirm::Answer;
use harness_dispatch::past::Refused;
use harness_dispatch::{CallError, CallReport, Dispatch, HookRun, Judgement, Nested, blocks, reentry};
use harness_provider::{Message, Request, Usage};
use harness_sandbox::outcome::{HostCall, Outcome, Usage as Used};
use harness_sys::digest::digest;

/// Host calls of one script that are reported; of refused ones as many again.
const MAX_HOST: usize = 100;
/// Lines of a script's log that are reported.
const MAX_LOG: usize = 100;
/// Bytes of a text that a script has a say in and no model gets.
const MAX_TEXT: usize = 4000;

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A text as far as it is recorded. One that is cut says so, with its length and its digest.
fn cut(text: &str) -> String {
    let kept = text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default();
    if kept.len() == text.len() {
        return kept.to_owned();
    }
    format!("{kept}… [cut: {} bytes, {}]", text.len(), digest(text))
}

pub(super) fn tokens(usage: Usage) -> Tokens {
    Tokens { input: usage.input_tokens, output: usage.output_tokens }
}

/// A turn that begins. `parent` is the agent at work that set its agent to work.
pub(super) fn turn(parent: Option<&str>, agent: &str, depth: u32, text: &str) -> Turn {
    Turn { agent: agent.to_owned(), parent: parent.map(str::to_owned), depth, text: text.to_owned() }
}

/// A turn that is continued.
pub(super) fn continued(turn: &Interrupted) -> Continued {
    let Interrupted { text, began, rounds, calls, tokens, begun } = turn.clone();
    Continued { text, began: began as u64, rounds, calls, tokens, begun }
}

/// What a model is asked, by digests: all of it can be made again from what was said.
pub(super) fn asked(round: u32, request: &Request, room: u64) -> Asked {
    let messages: Vec<Json> = request.messages.iter().map(Message::to_json).collect();
    let tool = |tool: &harness_provider::ToolSchema| serde_json::json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters});
    let tools: Vec<Json> = request.tools.iter().map(tool).collect();
    let offered = serde_json::json!([request.model, request.max_tokens, request.temperature, tools]);
    Asked {
        round,
        model: request.model.clone(),
        messages: messages.len() as u64,
        tools: tools.len() as u64,
        room,
        said: digest(&Json::from(messages).to_string()),
        offered: digest(&offered.to_string()),
    }
}

pub(super) fn reply(reply: &harness_provider::Reply, took: Duration) -> Reply {
    let call = |call: &harness_provider::ToolCall| ToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    };
    Reply {
        id: reply.id.clone(),
        model: reply.model.clone(),
        text: reply.text.clone(),
        calls: reply.calls.iter().map(call).collect(),
        finish: reply.finish.as_str().to_owned(),
        tokens: reply.usage.map(tokens),
        took_us: micros(took),
    }
}

pub(super) fn retry(error: &str, pause: Duration) -> Retry {
    Retry { error: error.to_owned(), pause_us: micros(pause) }
}

pub(super) fn no_model(model: Option<&str>, error: &str) -> Unmade {
    Unmade { model: model.map(str::to_owned), error: error.to_owned() }
}

pub(super) fn unanswered(error: &str, took: Duration) -> Unanswered {
    Unanswered { error: error.to_owned(), took_us: micros(took) }
}

pub(super) fn turned(turn: Result<&harness_agent::Turn, &TurnError>, given: u64, said: Option<&str>) -> Turned {
    match turn {
        Ok(turn) => Turned {
            answer: Some(turn.text.clone()),
            error: None,
            error_kind: None,
            warning: turn.warning.clone(),
            rounds: turn.rounds,
            tokens: tokens(turn.usage),
            late: false,
            refused: None,
            said: None,
        },
        Err(error) => Turned {
            answer: None,
            error: Some(error.to_string()),
            error_kind: Some(error.kind().to_owned()),
            warning: None,
            rounds: 0,
            tokens: Tokens::default(),
            late: matches!(error, TurnError::Budget { what: "time", .. }),
            refused: refused(error, given),
            said: said.map(str::to_owned),
        },
    }
}

fn refused(error: &TurnError, after: u64) -> Option<Refused> {
    match error {
        TurnError::Budget { what, used, allowed, set_by } if *what != "time" => {
            let (what, set_by) = ((*what).to_owned(), set_by.clone());
            Some(Refused { what, used: *used, allowed: *allowed, set_by, after })
        }
        _ => None,
    }
}

pub(super) fn decided(dispatch: &Dispatch) -> Decided {
    Decided {
        event: dispatch.event.to_string(),
        blocked: dispatch.decision.blocked().map(|why| cut(&why)),
        hooks: dispatch.hooks.iter().map(hook).collect(),
    }
}

fn hook(run: &HookRun) -> HookRan {
    HookRan {
        hook: cut(&run.name),
        file: cut(&run.file),
        verdict: run.verdict.name().to_owned(),
        reason: run.reason.as_deref().map(cut),
        warnings: run.warnings.iter().map(|warning| cut(warning)).collect(),
        work: work(&run.usage, &run.calls, &run.log, &run.nested),
    }
}

pub(super) fn calling(call: &harness_provider::ToolCall) -> Calling {
    Calling { call: call.id.clone(), tool: call.name.clone() }
}

pub(super) fn confirmation(call: &str, tool: &str, answer: Answer) -> Confirmation {
    Confirmation { call: call.to_owned(), tool: tool.to_owned(), answer: answer.name().to_owned() }
}

/// How a call ended; `content` is what its caller got.
pub(super) fn called(
    call: &harness_provider::ToolCall,
    report: Result<&CallReport, &CallError>,
    content: &str,
    took: Duration,
) -> Called {
    match report {
        Ok(report) if report.ends.is_some() => of_report(&without_its_task(report), content, took),
        Ok(report) => of_report(report, content, took),
        Err(error) => {
            let pre = if let CallError::Arguments { pre: Some(pre), .. } = error { Some(decided(pre)) } else { None };
            Called {
                call: call.id.clone(),
                tool: call.name.clone(),
                ends: None,
                outcome: error.outcome().to_owned(),
                why: Some(cut(&reentry::describe(error))),
                is_error: true,
                content: digest(content),
                fuel: if let CallError::Arguments { pre: Some(pre), .. } = error { pre.usage().fuel } else { 0 },
                took_us: micros(took),
                pre,
                work: Work::default(),
                verify: None,
                post: None,
            }
        }
    }
}

fn of_report(report: &CallReport, content: &str, took: Duration) -> Called {
    let why = match &report.outcome {
        Outcome::Completed(_) => None,
        Outcome::Failed(failure) | Outcome::Denied { failure, .. } => Some(cut(&failure.message)),
        Outcome::Limited(limit) => Some(limit.to_string()),
        Outcome::Busy(busy) => Some(busy.to_string()),
        Outcome::Fault(why) => Some(cut(why)),
    };
    // What a sub-agent does, and the events around it, have lines of their own.
    let nested: &[Nested] = if report.tool == DELEGATE { &[] } else { &report.nested };
    Called {
        call: report.id.clone(),
        tool: report.tool.clone(),
        ends: report.ends.clone(),
        outcome: report.outcome.name().to_owned(),
        why,
        is_error: report.is_error,
        content: digest(&whole(report, content)),
        fuel: report.total().fuel,
        took_us: micros(took),
        pre: report.pre.as_ref().map(decided),
        work: work(&report.usage, &report.calls, &report.log, nested),
        verify: report.verify.as_ref().map(verified),
        post: report.post.as_ref().map(decided),
    }
}

/// What a call gave: its text, and the blocks of content, which may be more than their text shows.
fn whole<'a>(report: &CallReport, content: &'a str) -> Cow<'a, str> {
    match &report.rich {
        Some(rich) => Cow::Owned(format!("{content}\n{}", blocks::as_json(&rich.blocks))),
        None => Cow::Borrowed(content),
    }
}

/// A call that ran as a task beside others, as far as its own line reports it: the line of the task's end has the rest.
fn without_its_task(report: &CallReport) -> CallReport {
    CallReport {
        usage: Used::default(),
        log: Log::default(),
        calls: Vec::new(),
        verify: None,
        post: None,
        nested: Vec::new(),
        ends: None,
        ..report.clone()
    }
}

fn verified(judged: &Judgement) -> Verified {
    Verified {
        refused: judged.refused.as_deref().map(cut),
        work: work(&judged.usage, &judged.calls, &judged.log, &judged.nested),
    }
}

/// A call whose beginning and end were not reported.
fn by_itself(report: &CallReport) -> Called {
    let hooks = report.dispatches().map(|dispatch| dispatch.usage().wall).sum::<Duration>();
    let judged = report.verify.iter().map(|judged| judged.usage.wall).sum::<Duration>();
    of_report(report, &report.content, report.usage.wall.saturating_add(judged).saturating_add(hooks))
}

pub(super) fn delegated(to: &str, attempt: u32) -> Delegated {
    Delegated { to: to.to_owned(), attempt }
}

/// What `delegation.verify` said of a result.
pub(super) fn judged(of: &str, refused: Option<&str>, took: Duration) -> Judged {
    Judged { of: of.to_owned(), refused: refused.map(str::to_owned), took_us: micros(took) }
}

pub(super) fn returned(id: &str, from: &str, result: Result<&Json, &str>, late: bool) -> Returned {
    Returned {
        id: id.to_owned(),
        from: from.to_owned(),
        result: result.ok().map(|result| digest(&result.to_string())),
        error: result.err().map(str::to_owned),
        late,
    }
}

/// A task that has ended.
pub(super) fn ended(task: &str, report: &CallReport, late: Option<u64>) -> Task {
    Task {
        state: report.outcome.name().to_owned(),
        tool: report.tool.clone(),
        task: Some(task.to_owned()),
        late,
        called: Some(Box::new(by_itself(report))),
        ..Task::default()
    }
}

/// A task that has begun, or cannot.
pub(super) fn began(call: &str, tool: &str, strand: &str, task: Result<&str, &str>) -> Task {
    Task {
        state: if task.is_ok() { "began" } else { "refused" }.to_owned(),
        tool: tool.to_owned(),
        task: task.ok().map(str::to_owned),
        call: Some(call.to_owned()),
        opens: Some(strand.to_owned()),
        why: task.err().map(cut),
        ..Task::default()
    }
}

/// A task that was ended with its owner.
pub(super) fn abandoned(task: &str, tool: &str) -> Task {
    Task { state: "abandoned".to_owned(), tool: tool.to_owned(), task: Some(task.to_owned()), ..Task::default() }
}

/// What was seen of tasks that were asked for.
pub(super) fn looked(looked: &harness_dispatch::Looked) -> Looked {
    Looked {
        asked: looked.asked.clone(),
        ended: looked.ended.clone(),
        news: looked.news.clone(),
        missing: looked.missing.clone(),
    }
}

fn work(usage: &Used, calls: &[HostCall], log: &Log, nested: &[Nested]) -> Work {
    let mut refused = 0_usize;
    let told = calls.iter().enumerate().filter(|(at, call)| {
        refused = refused.saturating_add(usize::from(call.refused.is_some()));
        *at < MAX_HOST || (call.refused.is_some() && refused <= MAX_HOST)
    });
    let host = told.map(|(_, call)| {
        let (interface, function) = call.import.path();
        HostCalled {
            call: format!("{interface}.{function}"),
            subject: call.subject.clone(),
            wall_us: micros(call.wall),
            refused: call.refused.as_deref().map(cut),
        }
    });
    let logged = log
        .lines
        .iter()
        .take(MAX_LOG)
        .map(|line| Logged { level: line.level.name().to_owned(), message: cut(&line.message) });
    Work {
        fuel: usage.fuel,
        wall_us: micros(usage.wall),
        peak_memory: usage.peak_memory,
        host_calls: usage.host_calls,
        host: host.collect(),
        log: logged.collect(),
        started: nested.iter().map(started).collect(),
    }
}

fn started(nested: &Nested) -> Started {
    match nested {
        Nested::Event(dispatch) => Started::Event(decided(dispatch)),
        Nested::Call(report) => Started::Call(Box::new(by_itself(report))),
        Nested::Agent { name, .. } => Started::Agent(name.clone()),
        Nested::Rest { count, usage } => Started::Rest(Rest { count: *count, fuel: usage.fuel }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What there was no room to keep is in the record by its count and its fuel, as a line that reads back.
    #[test]
    fn what_is_not_kept_is_counted() {
        let rest = Nested::Rest { count: 3, usage: Used { fuel: 7, ..Used::default() } };
        let work = work(&Used::default(), &[], &Log::default(), &[rest]);
        assert_eq!(work.started, [Started::Rest(Rest { count: 3, fuel: 7 })]);
        let line = serde_json::to_value(&work).unwrap();
        assert_eq!(line["started"], serde_json::json!([{"rest": {"count": 3, "fuel": 7}}]));
        assert_eq!(serde_json::from_value::<Work>(line).unwrap(), work);
    }
}
