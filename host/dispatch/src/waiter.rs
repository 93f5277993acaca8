//! Who waits for a script to be loaded, in a run that may be recorded or replayed.
//!
//! A recording keeps each load that its caller got no image of, because its time was over or because it was ended. A
//! replay ends such a load there again without loading anything. Loads that came to an image are not kept: they do so
//! again, however long it takes.

use std::sync::Arc;
use std::time::Instant;

use super::chain::CallContext;
use super::loaded::Unloadable;
use super::past::LoadEnd;
use super::run::Run;
use harness_sandbox::engine::Image;
use harness_sandbox::outcome::{Failure, FailureKind, Source, Usage};
use harness_sandbox::strand;
use harness_sandbox::tape::{Ran, Script, Tape};

/// Who waits for a script to be loaded.
#[derive(Debug, Clone, Copy)]
pub struct Waiter<'a> {
    /// The run that it belongs to.
    pub run: &'a Run,
    /// What it wants to call the script with, or another text that differs between callers of one script.
    pub input: &'a str,
}

impl CallContext {
    /// Who waits here with this input.
    pub(super) fn waiter<'a>(&'a self, input: &'a str) -> Waiter<'a> {
        Waiter { run: &self.run, input }
    }
}

impl<'a> Waiter<'a> {
    /// Whether it waits by the clock.
    pub(super) fn has_clock(self) -> bool {
        self.run.schedule().has_clock()
    }

    /// A load that it waits for.
    pub(super) fn begin(self, source: &Source) -> Wait<'a> {
        let tape = self.run.session().tape.clone();
        Wait { run: self.run, taped: tape.map(|tape| Taped::new(tape, Script::load(source, self.input))) }
    }
}

/// A load that is waited for.
pub(super) struct Wait<'a> {
    run: &'a Run,
    taped: Option<Taped>,
}

impl Wait<'_> {
    /// What comes of it, with the fuel that it took: what the schedule says, else what `load` returns.
    pub(super) async fn ended(
        self,
        load: impl Future<Output = (Result<Image, Unloadable>, u64)>,
    ) -> (Result<Image, Unloadable>, u64) {
        let Some(taped) = self.taped else { return load.await };
        let (image, fuel) = match self.run.schedule().load(&taped.script) {
            Some(LoadEnd::Late { why, allowed, fuel }) => {
                let failure = Failure::without_place(FailureKind::Script, &taped.script.file, why);
                (Err(Unloadable::Late(failure, allowed)), fuel)
            }
            Some(LoadEnd::Abandoned) => strand::cut().await,
            None => load.await,
        };
        taped.end(&image, fuel);
        (image, fuel)
    }
}

/// A load that a tape keeps if its caller gets no image of it in time.
struct Taped {
    tape: Arc<dyn Tape>,
    script: Script,
    started: Instant,
    is_ended: bool,
}

impl Taped {
    fn new(tape: Arc<dyn Tape>, script: Script) -> Self {
        Self { tape, script, started: Instant::now(), is_ended: false }
    }

    fn end(mut self, image: &Result<Image, Unloadable>, fuel: u64) {
        self.is_ended = true;
        if let Err(late @ Unloadable::Late(..)) = image {
            self.tell("limited", late.message(), fuel);
        }
    }

    fn tell(&self, outcome: &'static str, result: String, fuel: u64) {
        let usage = Usage { fuel, wall: self.started.elapsed(), ..Usage::default() };
        let script = self.script.clone();
        self.tape.end(Ran { script, outcome, result, usage, waited: None, answers: Vec::new(), busy: None });
    }
}

impl Drop for Taped {
    fn drop(&mut self) {
        if !self.is_ended {
            self.tell("abandoned", String::new(), 0);
        }
    }
}
