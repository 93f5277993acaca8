//! Decides what depends on clocks, on free slots, or on which of several tasks is faster.
//!
//! A run that happens now goes by the clock and by what is there (`Live`). A run that replays a recording does what that
//! says (`Replay`): nothing of it may depend on how fast this machine is now. All other code asks, and is the same for
//! both.

mod live;
mod replay;

use std::fmt::Debug;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::chain::CallContext;
use super::past::{LoadEnd, Refused};
use super::run::{Added, Run};
use super::tasks::{Found, Wanted};
use harness_capability::reentry::Patience;
use harness_sandbox::strand::{self, Strand};
use harness_sandbox::tape::Script;

pub(super) use live::Live;
pub(super) use replay::Replay;

/// A decision that may have to be waited for.
pub type Decided<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Changes what was added to a run; whether it did.
pub type Change<'a> = dyn FnMut(&mut Added) -> bool + Send + 'a;

/// The schedule of a run. Each decision is asked for in the strand that it is about.
pub trait Schedule: Debug + Send + Sync {
    /// How a task begins in this strand: its identifier, and how many of its kind may be in progress. The policy allows
    /// `most`.
    ///
    /// # Errors
    ///
    /// Why it does not begin.
    fn begin_task(&self, run: &Run, strand: &Strand, most: u64) -> Result<(String, u64), String>;

    /// The time of a task, and its milliseconds, for a report that it is over. `left` is the time that is left to the
    /// script that began it, if one did.
    fn task_time(&self, task: &str, left: Option<Duration>) -> (Time, u64);

    /// A task has ended, or never will.
    fn end_task(&self, task: &str);

    /// Whether tasks that have ended are kept, however many there are.
    fn keeps_all_tasks(&self) -> bool;

    /// What has become of tasks.
    ///
    /// # Errors
    ///
    /// One that is not there.
    fn look<'a>(
        &'a self,
        place: &'a CallContext,
        wanted: Wanted<'a>,
        patience: Patience,
    ) -> Decided<'a, Result<Found, String>>;

    /// What a strand sees of what was added to its run when it looks for the `look`th time.
    fn see<'a>(&'a self, place: &'a CallContext, look: u64) -> Decided<'a, Arc<Added>>;

    /// Adds something of this name in the same way. Returns what was seen before, and what there is after it; nothing
    /// where the change was not made.
    fn add<'a>(
        &'a self,
        place: &'a CallContext,
        look: u64,
        name: &'a str,
        change: &'a mut Change<'_>,
    ) -> Decided<'a, (Arc<Added>, Option<Arc<Added>>)>;

    /// The time of an agent's next turn, and what its budgets refuse it. `deadline` is that of the budgets.
    fn begin_turn(&self, agent: &str, deadline: Option<Instant>) -> (Time, Refusals);

    /// What the last turn of the root had shown of an answer that it does not have, as the conversation keeps it; nothing
    /// where it keeps none. `said` is what this run has shown.
    fn unfinished(&self, said: String) -> Option<String>;

    /// The time of a delegation that may take this long.
    fn delegation_time(&self, id: &str, limit: Duration) -> Time;

    /// How the load of a script ends that is waited for; nothing where that is found out.
    fn load(&self, script: &Script) -> Option<LoadEnd>;

    /// Waits for the tasks of this strand that had ended by now in the recording. A run that happens now waits for none.
    fn settled(&self) -> Decided<'_, ()>;

    /// Whether loads of scripts, waits for them, and events end by the clock.
    fn has_clock(&self) -> bool;
}

/// What the budgets of a turn refuse.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Refusals {
    /// What they do not have any more.
    #[default]
    Counted,
    /// What was recorded: one refusal, or none.
    Recorded(Option<Refused>),
}

/// How long some work has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// As long as it takes.
    Unlimited,
    /// So long from now on.
    Within(Duration),
    /// Until then.
    Until(Instant),
    /// Up to the point at which it was over in the recording.
    Recorded,
}

impl Time {
    /// What the work returns; nothing where its time is over before.
    pub async fn limit<T>(self, work: impl Future<Output = T>) -> Option<T> {
        let work = pin!(work);
        match self {
            Self::Unlimited => Some(work.await),
            Self::Within(time) => tokio::time::timeout(time, work).await.ok(),
            Self::Until(deadline) => tokio::time::timeout_at(deadline.into(), work).await.ok(),
            Self::Recorded => strand::until_cut(work).await,
        }
    }
}
