//! The schedule of a run that replays a recording.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Change, Decided, Live, Refusals, Schedule, Time};
use crate::chain::CallContext;
use crate::past::{Began, LoadEnd, Past, Seen, Went};
use crate::run::{Added, Run};
use crate::tasks::{Found, Wanted};
use harness_capability::reentry::Patience;
use harness_sandbox::strand::{self, Strand};
use harness_sandbox::tape::Script;

/// Does what the recording says. Where it does not say, it goes by what there is now.
#[derive(Debug)]
pub(crate) struct Replay(pub(crate) Arc<dyn Past>);

impl Replay {
    /// What was seen by this look, and whether it was added to then; nothing where the recording does not say.
    async fn recorded(&self, place: &CallContext, look: u64) -> Option<(Arc<Added>, bool)> {
        match self.0.saw(look) {
            Seen::Anew => None,
            Seen::Same => Some((place.view.seen().clone(), false)),
            Seen::Other { additions, adds } => match self.0.state(additions).await {
                Some(added) => Some((added, adds)),
                // What waits for an addition that nobody makes now goes no further.
                None => strand::cut().await,
            },
        }
    }
}

impl Schedule for Replay {
    /// There were others at the same time then, or not: there are as many slots as it takes.
    fn begin_task(&self, run: &Run, strand: &Strand, most: u64) -> Result<(String, u64), String> {
        match self.0.began(strand.name()) {
            Some(Began::As(id)) => Ok((id, u64::MAX)),
            Some(Began::Refused(why)) => Err(why),
            None => Live.begin_task(run, strand, most),
        }
    }

    fn task_time(&self, task: &str, _: Option<Duration>) -> (Time, u64) {
        self.0.late_task(task).map_or((Time::Unlimited, 0), |allowed| (Time::Recorded, allowed))
    }

    fn end_task(&self, task: &str) {
        self.0.over(task);
    }

    /// Which are the oldest was decided then.
    fn keeps_all_tasks(&self) -> bool {
        true
    }

    fn look<'a>(
        &'a self,
        place: &'a CallContext,
        wanted: Wanted<'a>,
        _: Patience,
    ) -> Decided<'a, Result<Found, String>> {
        Box::pin(async move {
            match self.0.looked() {
                Some(looked) => place.tasks.look_again(wanted, &looked).await,
                None => strand::cut().await,
            }
        })
    }

    fn see<'a>(&'a self, place: &'a CallContext, look: u64) -> Decided<'a, Arc<Added>> {
        Box::pin(async move {
            match self.recorded(place, look).await {
                Some((added, _)) => added,
                None => Live.see(place, look).await,
            }
        })
    }

    fn add<'a>(
        &'a self,
        place: &'a CallContext,
        look: u64,
        name: &'a str,
        change: &'a mut Change<'_>,
    ) -> Decided<'a, (Arc<Added>, Option<Arc<Added>>)> {
        Box::pin(async move {
            let Some((seen, is_kept)) = self.recorded(place, look).await else {
                return Live.add(place, look, name, change).await;
            };
            let next = seen.changed(|added| change(added).then_some(()).ok_or(())).ok();
            // Else nobody else saw it then, or nothing was added there.
            if let (true, Some(next)) = (is_kept, &next) {
                self.0.keep(next);
            }
            (seen, next)
        })
    }

    fn begin_turn(&self, agent: &str, _: Option<Instant>) -> (Time, Refusals) {
        let Went { late, refused } = self.0.turn(agent);
        let time = if late { Time::Recorded } else { Time::Unlimited };
        (time, refused.map_or(Refusals::Counted, Refusals::Recorded))
    }

    fn unfinished(&self, _: String) -> Option<String> {
        self.0.unfinished()
    }

    fn delegation_time(&self, id: &str, _: Duration) -> Time {
        if self.0.late_delegation(id) { Time::Recorded } else { Time::Unlimited }
    }

    fn load(&self, script: &Script) -> Option<LoadEnd> {
        self.0.load(script)
    }

    fn settled(&self) -> Decided<'_, ()> {
        self.0.settled()
    }

    /// It waits as long as it takes: what was late then is recorded.
    fn has_clock(&self) -> bool {
        false
    }
}
