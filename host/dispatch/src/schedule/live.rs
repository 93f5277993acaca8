//! The schedule of a run that happens now.

use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Change, Decided, Refusals, Schedule, Time};
use crate::chain::CallContext;
use crate::past::{Happened, LoadEnd};
use crate::run::{Added, Run};
use crate::tasks::{Found, Wanted};
use harness_capability::reentry::Patience;
use harness_sandbox::strand::Strand;
use harness_sandbox::tape::Script;

/// Goes by the clock and by what there is. It reports what a replay cannot find out again.
#[derive(Debug)]
pub(crate) struct Live;

impl Schedule for Live {
    fn begin_task(&self, run: &Run, _: &Strand, most: u64) -> Result<(String, u64), String> {
        Ok((run.task_id(), most))
    }

    fn task_time(&self, _: &str, left: Option<Duration>) -> (Time, u64) {
        match left {
            Some(left) => (Time::Within(left), u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            None => (Time::Unlimited, 0),
        }
    }

    fn end_task(&self, _: &str) {}

    fn keeps_all_tasks(&self) -> bool {
        false
    }

    fn look<'a>(
        &'a self,
        place: &'a CallContext,
        wanted: Wanted<'a>,
        patience: Patience,
    ) -> Decided<'a, Result<Found, String>> {
        Box::pin(async move {
            let (found, looked) = place.tasks.look(wanted, patience).await;
            place.tell(&Happened::Looked(&looked));
            found
        })
    }

    fn see<'a>(&'a self, place: &'a CallContext, look: u64) -> Decided<'a, Arc<Added>> {
        let added = place.run.added();
        place.tell_seen(look, &added, None);
        Box::pin(ready(added))
    }

    fn add<'a>(
        &'a self,
        place: &'a CallContext,
        look: u64,
        name: &'a str,
        change: &'a mut Change<'_>,
    ) -> Decided<'a, (Arc<Added>, Option<Arc<Added>>)> {
        let (seen, next) = place.run.change(|added| change(added).then_some(()).ok_or(()));
        place.tell_seen(look, &seen, next.is_ok().then_some(name));
        Box::pin(ready((seen, next.ok())))
    }

    fn begin_turn(&self, _: &str, deadline: Option<Instant>) -> (Time, Refusals) {
        (deadline.map_or(Time::Unlimited, Time::Until), Refusals::Counted)
    }

    fn unfinished(&self, said: String) -> Option<String> {
        Some(said)
    }

    fn delegation_time(&self, _: &str, limit: Duration) -> Time {
        Time::Within(limit)
    }

    fn load(&self, _: &Script) -> Option<LoadEnd> {
        None
    }

    fn settled(&self) -> Decided<'_, ()> {
        Box::pin(ready(()))
    }

    fn has_clock(&self) -> bool {
        true
    }
}
