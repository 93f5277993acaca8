//! Spans for operators: what happened, how it ended, and how long it took.
//!
//! Nothing of what a call is about is in them: no argument, result, payload, path or secret. Names are those of artifacts
//! that are in force, never what a caller asked for. Without a subscriber they cost a comparison each.

use tracing::field::Empty;
use tracing::{Span, debug_span, info_span};

use super::chain::{CallContext, Dispatch};
use super::decision::Decision;
use super::loaded::{Loaded, Unloadable};
use super::pipeline::{CallError, CallReport};
use super::{OpenError, Options};
use harness_artifact::event::Event;
use harness_sandbox::engine::Image;
use harness_sandbox::spans::TARGET;

/// A project is opened or reloaded.
pub(super) fn load(options: &Options, is_reload: bool) -> Span {
    let what = if is_reload { "reload" } else { "open" };
    info_span!(target: TARGET, "load", what, audit = options.audit, outcome = Empty, tools = Empty, hooks = Empty, errors = Empty)
}

/// How that ended.
pub(super) fn loaded(span: &Span, loaded: &Result<Loaded, OpenError>) {
    match loaded {
        Ok(loaded) => {
            span.record("outcome", "in force");
            span.record("tools", loaded.registry().tools().len());
            span.record("hooks", loaded.registry().hooks().len());
        }
        Err(error) => {
            span.record("outcome", "refused");
            if let OpenError::Artifacts(registry) = error {
                span.record("errors", registry.diagnostics().errors());
            }
        }
    }
}

/// A call of a tool. Its name and source are recorded if there is such a tool.
pub(super) fn call(place: &CallContext, name: &str) -> Span {
    let span = info_span!(
        target: TARGET, "call", tool = Empty, source = Empty, outcome = Empty, fuel = Empty, wall_us = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    let built_in = || place.built_ins.iter().flat_map(|all| all.tools()).find(|tool| tool.name == name);
    let added = place.added_tool(name).map(|added| &added.tool).or_else(built_in);
    if let Some(tool) = added.or_else(|| place.loaded.registry().tool(name).ok()) {
        span.record("tool", tool.name.as_str());
        span.record("source", tool.source_name.as_str());
    }
    span
}

/// How that ended.
pub(super) fn called(span: &Span, called: &Result<CallReport, CallError>) {
    match called {
        Ok(report) if report.task.is_some() => drop(span.record("outcome", "started")),
        Ok(report) => reported(span, report),
        Err(error) => drop(span.record("outcome", error.outcome())),
    }
}

/// The same of a call that was made.
pub(super) fn reported(span: &Span, report: &CallReport) {
    if !span.is_disabled() {
        span.record("outcome", report.outcome.name());
        span.record("fuel", report.total().fuel);
        span.record("wall_us", u64::try_from(report.usage.wall.as_micros()).unwrap_or(u64::MAX));
    }
}

/// An event that has hooks.
pub(super) fn hooks(event: &Event, hooks: usize) -> Span {
    if hooks == 0 {
        return Span::none();
    }
    debug_span!(target: TARGET, "hooks", %event, hooks, decision = Empty)
}

/// What they decided.
pub(super) fn decided(span: &Span, dispatch: &Dispatch) {
    span.record(
        "decision",
        match dispatch.decision {
            Decision::Allow => "allow",
            Decision::Block(_) => "block",
        },
    );
}

/// A script is loaded into an image.
pub(super) fn image(source: &str) -> Span {
    debug_span!(target: TARGET, "image", source, outcome = Empty, bytes = Empty)
}

/// How that ended.
pub(super) fn made(span: &Span, image: &Result<Image, Unloadable>) {
    match image {
        Ok(image) => {
            span.record("outcome", "loaded");
            span.record("bytes", image.size());
        }
        Err(_) => drop(span.record("outcome", "failed")),
    }
}
