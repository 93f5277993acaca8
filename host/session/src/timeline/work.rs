//! What scripts did, as spans: calls, events, hooks.

use super::{Kind, Span, Status, added};
use crate::record::{Called, Decided, HookRan, Started, Verified, Work};
use harness_dispatch::builtin::{DELEGATE, DELEGATE_ASYNC};

/// An event that has been decided on, its hooks one after another.
pub(super) fn event(decided: &Decided, start: u64) -> Span {
    let mut at = start;
    let inside: Vec<Span> = decided
        .hooks
        .iter()
        .map(|ran| {
            let span = hook(ran, at);
            at = span.end;
            span
        })
        .collect();
    Span {
        kind: Kind::Event,
        name: decided.event.clone(),
        start,
        end: at,
        status: if decided.blocked.is_some() { Status::Refused } else { Status::Fine },
        word: if decided.blocked.is_some() { "blocked" } else { "passed" }.to_owned(),
        why: decided.blocked.clone(),
        inside,
        ..Span::default()
    }
}

fn hook(ran: &HookRan, start: u64) -> Span {
    let status = match ran.verdict.as_str() {
        "block" => Status::Refused,
        "error" => Status::Failed,
        _ => Status::Fine,
    };
    let mut span = Span {
        kind: Kind::Hook,
        name: ran.hook.clone(),
        start,
        end: start,
        status,
        word: ran.verdict.clone(),
        why: ran.reason.clone().or_else(|| ran.warnings.first().cloned()),
        ..Span::default()
    };
    of_work(&mut span, &ran.work);
    span
}

/// What a script did, in the span that it is.
fn of_work(span: &mut Span, work: &Work) {
    span.end = span.start.saturating_add(work.wall_us);
    span.fuel = span.fuel.max(work.fuel);
    (span.memory, span.host_calls) = (work.peak_memory, work.host_calls);
    span.host.clone_from(&work.host);
    span.log.clone_from(&work.log);
    let mut at = span.start;
    for started in &work.started {
        let inner = match started {
            Started::Event(decided) => event(decided, at),
            // It has a span of its own, where it began.
            Started::Call(called) if called.ends.is_some() => continue,
            Started::Call(called) => {
                let mut inner = Span { kind: Kind::Tool, name: called.tool.clone(), start: at, ..Span::default() };
                close(&mut inner, called, at.saturating_add(called.took_us));
                if span.name == DELEGATE_ASYNC && inner.name == DELEGATE {
                    // No call of its own: beside its task there is only what hooks said of it.
                    at = inner.end;
                    span.inside.append(&mut inner.inside);
                    continue;
                }
                inner
            }
            // Its turns are lines of their own.
            Started::Agent(_) => continue,
            Started::Rest(rest) => Span {
                kind: Kind::Note,
                name: "more".to_owned(),
                start: at,
                end: at,
                word: format!("{} more, which are not kept", rest.count),
                fuel: rest.fuel,
                ..Span::default()
            },
        };
        at = inner.end;
        span.inside.push(inner);
    }
}

/// The judgement of a tool's `verify`.
fn verified(judged: &Verified, start: u64) -> Span {
    let refused = judged.refused.is_some();
    let mut span = Span {
        kind: Kind::Judge,
        name: "verify".to_owned(),
        start,
        end: start,
        status: if refused { Status::Refused } else { Status::Fine },
        word: if refused { "not accepted" } else { "accepted" }.to_owned(),
        why: judged.refused.clone(),
        ..Span::default()
    };
    of_work(&mut span, &judged.work);
    span
}

/// A call that has ended.
pub(super) fn close(span: &mut Span, called: &Called, at: u64) {
    let (start, end) = (span.start, at);
    let mut inside = Vec::new();
    let mut own = start;
    if let Some(pre) = &called.pre {
        let span = event(pre, start);
        own = span.end;
        inside.push(span);
    }
    span.start = own;
    of_work(span, &called.work);
    inside.append(&mut span.inside);
    if let Some(judged) = &called.verify {
        inside.push(verified(judged, span.end));
    }
    if let Some(post) = &called.post {
        let wall = added(post.hooks.iter().map(|hook| hook.work.wall_us));
        inside.push(event(post, end.saturating_sub(wall)));
    }
    let own = called.fuel.saturating_sub(of_tasks(called));
    (span.start, span.end, span.inside, span.fuel) = (start, end, inside, own);
    (span.status, span.word, span.why) = (Status::of(&called.outcome), called.outcome.clone(), called.why.clone());
}

/// What the tasks have used whose end a call has learned of: that is reported where they are.
fn of_tasks(called: &Called) -> u64 {
    let hooks = called.pre.iter().chain(&called.post).flat_map(|decided| &decided.hooks).map(|hook| &hook.work);
    let judge = called.verify.iter().map(|judged| &judged.work);
    let works = std::iter::once(&called.work).chain(judge).chain(hooks);
    works.map(tasks_in).fold(0, u64::saturating_add)
}

fn tasks_in(work: &Work) -> u64 {
    let used = work.started.iter().map(|started| match started {
        Started::Call(called) if called.ends.is_some() => called.fuel,
        Started::Call(called) => of_tasks(called),
        Started::Event(decided) => decided.hooks.iter().map(|hook| tasks_in(&hook.work)).fold(0, u64::saturating_add),
        Started::Agent(_) | Started::Rest(_) => 0,
    });
    used.fold(0, u64::saturating_add)
}
