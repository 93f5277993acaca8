//! What the interpreter itself calls, and what it reports of a script.

use wasmtime::Result;

use super::super::loader::keep_last_words;
use super::super::price::Import;
use super::super::wasi;
use super::{Target, misplaced, sync};
use harness_capability::coverage::Coverage;
use harness_capability::{log, progress};

pub(super) fn define(it: &mut Target<'_>, import: Import) -> Result<()> {
    match import {
        Import::MonotonicNow => sync(it, import, |state, (): ()| wasi::now(state)),
        Import::InsecureSeed => sync(it, import, |state, (): ()| wasi::seed(state)),
        Import::LastWordsWrite => sync(it, import, |state, (bytes,): (Vec<u8>,)| {
            keep_last_words(&mut state.last_words, &bytes);
        }),
        Import::LimitsRegexBytes => sync(it, import, |state, (): ()| state.limits.regex_bytes),
        Import::CoverageRecord => sync(it, import, |s, (statements, reached): (Vec<u32>, Vec<u32>)| {
            s.coverage = Some(Coverage::of(statements, reached));
        }),
        Import::LogWrite => sync(it, import, |state, (level, message): (log::Level, String)| {
            let kept = state.log.write(level, message, state.limits.log_lines);
            state.kept += kept;
            if let (Some(listener), Some(line)) = (&state.context.listener, state.log.lines.last().filter(|_| kept > 0))
            {
                listener.line(line.level, &line.message);
            }
        }),
        Import::ProgressReport => sync(it, import, |state, (step,): (progress::Step,)| {
            if let (Some(step), Some(listener)) = (state.steps.pass(step), &state.context.listener) {
                listener.step(&step);
            }
        }),
        other => misplaced(other),
    }
}
