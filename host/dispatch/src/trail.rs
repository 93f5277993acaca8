//! What a script or a turn has started, in order, as far as the host has room for it: what it starts may be much, and each
//! piece may say much. Of what is more, what it used is kept in one sum.

use serde_json::Value as Json;

use super::blocks;
use super::chain::{Dispatch, HookRun};
use super::pipeline::CallReport;
use super::reentry::{self, Nested};
use harness_capability::log::Log;
use harness_sandbox::outcome::HostCall;

/// Bytes of what one script or turn has started, and of what the hooks of one event have done: as much as the fullest
/// log has, which is reported of whole.
pub const MAX_BYTES: u64 = 16 << 20;

/// What was started. It only grows.
#[derive(Debug, Default)]
pub struct Trail {
    nested: Vec<Nested>,
    bytes: u64,
}

impl Trail {
    /// Adds something that has ended.
    pub fn push(&mut self, nested: Nested) {
        if let Some(Nested::Rest { count, usage }) = self.nested.last_mut() {
            (*count, *usage) = (count.saturating_add(1), usage.and(nested.usage()));
            return;
        }
        self.bytes = self.bytes.saturating_add(of_nested(&nested));
        let fits = self.bytes <= MAX_BYTES;
        self.nested.push(if fits { nested } else { Nested::Rest { count: 1, usage: nested.usage() } });
    }

    /// What was kept, in order.
    pub fn as_slice(&self) -> &[Nested] {
        &self.nested
    }

    /// What was kept, in order.
    pub fn into_nested(self) -> Vec<Nested> {
        self.nested
    }
}

impl FromIterator<Nested> for Trail {
    fn from_iter<I: IntoIterator<Item = Nested>>(all: I) -> Self {
        let mut trail = Self::default();
        all.into_iter().for_each(|nested| trail.push(nested));
        trail
    }
}

/// Room for what the hooks of one event have done.
#[derive(Debug)]
pub(super) struct Room(u64);

impl Default for Room {
    fn default() -> Self {
        Self(MAX_BYTES)
    }
}

impl Room {
    /// Takes the room for a hook. Where there is none for what it said and started, that is counted and left out; what it
    /// decided and used stays.
    pub(super) fn take(&mut self, run: &mut HookRun) {
        match self.0.checked_sub(of_hook(run)) {
            Some(left) => self.0 = left,
            None => {
                let lines = u64::try_from(run.log.lines.len()).unwrap_or(u64::MAX);
                run.log = Log { lines: Vec::new(), dropped: run.log.dropped.saturating_add(lines) };
                run.calls = Vec::new();
                let (count, usage) = (run.nested.len(), reentry::started(&run.nested));
                run.nested = Vec::new();
                if let Ok(count @ 1..) = u64::try_from(count) {
                    run.nested.push(Nested::Rest { count, usage });
                }
            }
        }
    }
}

/// Bytes that something takes, roughly: all that may be much is counted.
fn of_nested(nested: &Nested) -> u64 {
    match nested {
        Nested::Event(dispatch) => of_dispatch(dispatch),
        Nested::Call(report) => of_report(report),
        Nested::Agent { name, nested } => sum([of_text(name), sum(nested.iter().map(of_nested))]),
        Nested::Rest { .. } => of_size::<Nested>(0),
    }
}

fn of_dispatch(dispatch: &Dispatch) -> u64 {
    sum([of_size::<Dispatch>(0), sum(dispatch.hooks.iter().map(of_hook)), of_json(&dispatch.payload)])
}

fn of_hook(run: &HookRun) -> u64 {
    let texts = [&run.name, &run.file].into_iter().chain(&run.reason).chain(&run.warnings);
    sum([
        of_size::<HookRun>(0),
        sum(texts.map(|text| of_text(text))),
        of_log(&run.log),
        sum(run.calls.iter().map(of_call)),
        sum(run.nested.iter().map(of_nested)),
    ])
}

fn of_report(report: &CallReport) -> u64 {
    sum([
        of_size::<CallReport>(0),
        of_text(&report.content),
        of_json(&report.result),
        of_size::<Json>(report.rich.as_ref().map_or(0, |rich| blocks::size(&rich.blocks))),
        of_log(&report.log),
        sum(report.calls.iter().map(of_call)),
        sum(report.dispatches().map(of_dispatch)),
        sum(report.nested.iter().map(of_nested)),
    ])
}

fn of_log(log: &Log) -> u64 {
    sum(log.lines.iter().map(|line| of_text(&line.message)))
}

fn of_call(call: &HostCall) -> u64 {
    of_size::<HostCall>(call.subject.len().saturating_add(call.refused.as_ref().map_or(0, String::len)))
}

fn of_json(json: &Json) -> u64 {
    match json {
        Json::String(text) => of_text(text),
        Json::Array(list) => sum(list.iter().map(of_json)),
        Json::Object(entries) => sum(entries.iter().map(|(key, value)| sum([of_text(key), of_json(value)]))),
        Json::Null | Json::Bool(_) | Json::Number(_) => of_size::<Json>(0),
    }
}

fn of_text(text: &str) -> u64 {
    of_size::<Json>(text.len())
}

fn of_size<T>(more: usize) -> u64 {
    u64::try_from(size_of::<T>().saturating_add(more)).unwrap_or(u64::MAX)
}

fn sum(all: impl IntoIterator<Item = u64>) -> u64 {
    all.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Decision;
    use harness_artifact::event::Event;

    fn event(bytes: usize) -> Nested {
        let payload = Json::String("x".repeat(bytes));
        Nested::Event(Dispatch { event: Event::TurnStart, hooks: Vec::new(), decision: Decision::Allow, payload })
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let most = usize::try_from(MAX_BYTES).unwrap();
        let told = |all: &[usize]| {
            let trail: Trail = all.iter().map(|bytes| event(*bytes)).collect();
            let kept = trail.as_slice().iter().map(|one| match one {
                Nested::Rest { count, .. } => format!("rest {count}"),
                _ => "whole".to_owned(),
            });
            kept.collect::<Vec<_>>()
        };
        assert_eq!(told(&[1, 1]), ["whole", "whole"]);
        assert_eq!(told(&[most / 2, most / 3]), ["whole", "whole"]);
        assert_eq!(told(&[most / 2, most / 2, 1, most]), ["whole", "rest 3"]);
        assert_eq!(told(&[most, 1]), ["rest 2"]);
        // What has no text takes room too.
        assert!(told(&vec![0; 200_000]).last().is_some_and(|last| last.starts_with("rest ")));
    }
}
