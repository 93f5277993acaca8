//! Tasks: calls that go on while who made them does something else.
//!
//! Each agent at work has its own, and the scripts that it calls share them; nobody else sees them. A run bounds how
//! many are under way. They end with whom they belong to.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value as Json, json};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::pipeline::CallReport;
use crate::sandbox::outcome::Outcome;

/// Calls of tools that may go on at one time in a run.
pub(crate) const MAX_TOOLS: u64 = 16;
/// Sub-agents that may work at one time in a run without being waited for, where the policy does not say.
pub(crate) const MAX_AGENTS: u64 = 5;
/// Tasks that are waited for at once.
pub(crate) const MAX_WAITED: usize = 16;
/// Ended ones that are kept for whoever asks.
const MAX_KEPT: usize = 64;
/// Bytes of a result that is kept whole.
const MAX_RESULT: usize = 256 << 10;
/// Bytes of the text that is kept in its place.
const MAX_TEXT: usize = 32 << 10;

/// What goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A call of a tool with `async: true`.
    Tool,
    /// A sub-agent.
    Agent,
}

/// The tasks of one agent at work, or of a run without one.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    state: Mutex<State>,
    /// Told whenever one has ended.
    ended: Notify,
    counts: Arc<Counts>,
}

/// How many are under way in a run.
#[derive(Debug, Default)]
struct Counts {
    tools: AtomicU64,
    agents: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// In the order in which they were started.
    tasks: Vec<Task>,
    /// Whether who they belong to is gone: nothing is started any more.
    over: bool,
}

#[derive(Debug)]
struct Task {
    id: String,
    tool: String,
    work: AbortHandle,
    /// What came of it, once it has ended.
    ended: Option<Ended>,
}

#[derive(Debug)]
struct Ended {
    told: Json,
    /// Until somebody has been told.
    report: Option<Box<CallReport>>,
}

/// What became of some tasks.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// One for each that was asked for, in that order.
    pub(crate) told: Vec<Json>,
    /// The calls of those whose end was not told before.
    pub(crate) reports: Vec<CallReport>,
}

impl Tasks {
    /// Those of another agent of the same run.
    pub(crate) fn beside(&self) -> Arc<Self> {
        Arc::new(Self { counts: self.counts.clone(), ..Self::default() })
    }

    /// Starts one that is called `id`.
    ///
    /// # Errors
    ///
    /// Why it cannot be started.
    pub(crate) fn start<F>(self: &Arc<Self>, kind: Kind, most: u64, id: &str, tool: &str, work: F) -> Result<(), String>
    where
        F: Future<Output = CallReport> + Send + 'static,
    {
        let runtime = Handle::try_current().map_err(|_| "nothing here runs tasks".to_owned())?;
        let slot = Slot::take(&self.counts, kind, most)?;
        let mut state = self.state();
        if state.over {
            return Err("what this would belong to has ended".to_owned());
        }
        let (tasks, named) = (self.clone(), id.to_owned());
        // It cannot end before it is in the list: that takes the same lock.
        let work = runtime.spawn(async move {
            let report = work.await;
            drop(slot);
            tasks.end(&named, report);
        });
        state.tasks.push(Task { id: id.to_owned(), tool: tool.to_owned(), work: work.abort_handle(), ended: None });
        Ok(())
    }

    /// What became of all of these, once all have ended or the time is over.
    ///
    /// # Errors
    ///
    /// One that is not there.
    pub(crate) async fn wait(&self, ids: &[String], until: Option<Instant>) -> Result<Found, String> {
        loop {
            let more = self.ended.notified();
            tokio::pin!(more);
            // From here on nothing is missed.
            more.as_mut().enable();
            if self.all_ended(ids)? {
                break;
            }
            match until {
                None => more.await,
                Some(until) => {
                    if tokio::time::timeout_at(until.into(), more).await.is_err() {
                        break;
                    }
                }
            }
        }
        self.find(ids)
    }

    /// What has become of these by now.
    ///
    /// # Errors
    ///
    /// One that is not there.
    pub(crate) fn find(&self, ids: &[String]) -> Result<Found, String> {
        let mut state = self.state();
        let mut found = Found::default();
        for id in ids {
            let task = state.tasks.iter_mut().find(|task| task.id == *id).ok_or_else(|| unknown(id))?;
            match &mut task.ended {
                Some(ended) => {
                    found.told.push(ended.told.clone());
                    found.reports.extend(ended.report.take().map(|report| *report));
                }
                None => found.told.push(json!({"task_id": task.id, "tool": task.tool, "status": "running"})),
            }
        }
        Ok(found)
    }

    fn all_ended(&self, ids: &[String]) -> Result<bool, String> {
        let state = self.state();
        let mut all = true;
        for id in ids {
            let task = state.tasks.iter().find(|task| task.id == *id).ok_or_else(|| unknown(id))?;
            all &= task.ended.is_some();
        }
        Ok(all)
    }

    /// Those that are under way or whose end was told to nobody, as many as are waited for at once.
    pub(crate) fn open(&self) -> Vec<String> {
        let state = self.state();
        let open = state.tasks.iter().filter(|task| task.ended.as_ref().is_none_or(|ended| ended.report.is_some()));
        open.take(MAX_WAITED).map(|task| task.id.clone()).collect()
    }

    /// The calls whose end was told to nobody.
    pub(crate) fn untold(&self) -> Vec<CallReport> {
        let mut state = self.state();
        let ended = state.tasks.iter_mut().filter_map(|task| task.ended.as_mut());
        ended.filter_map(|ended| ended.report.take().map(|report| *report)).collect()
    }

    /// Ends those that are under way, and forgets all of them.
    pub(crate) fn cancel(&self) {
        let tasks = std::mem::take(&mut self.state().tasks);
        tasks.iter().for_each(|task| task.work.abort());
        self.ended.notify_waiters();
    }

    /// The same, and no more are started. It is done when what is returned is dropped.
    pub(crate) fn owner(self: &Arc<Self>) -> Owner {
        Owner(self.clone())
    }

    fn end(&self, id: &str, report: CallReport) {
        let mut state = self.state();
        if let Some(task) = state.tasks.iter_mut().find(|task| task.id == id) {
            let told = told(&task.id, &task.tool, &report);
            task.ended = Some(Ended { told, report: Some(Box::new(report)) });
        }
        let kept = state.tasks.iter().filter(|task| task.ended.is_some()).count();
        if kept > MAX_KEPT
            && let Some(oldest) = state.tasks.iter().position(|task| task.ended.is_some())
        {
            state.tasks.remove(oldest);
        }
        drop(state);
        self.ended.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(id: &str) -> String {
    let shown = id.get(..id.floor_char_boundary(100)).unwrap_or_default();
    format!("there is no task {shown:?} here")
}

/// What is told of a task that has ended.
fn told(id: &str, tool: &str, report: &CallReport) -> Json {
    let status = match (&report.outcome, report.is_error) {
        // A hook may say of what a tool gave that it is an error.
        (Outcome::Completed(_), true) => "failed",
        (outcome, _) => outcome.name(),
    };
    let (key, mut value) =
        if report.is_error { ("error", report.content.clone().into()) } else { ("result", report.result.clone()) };
    // Not the tool's own cap for what a model gets, which is taken from all of this: what is kept until then.
    if value.to_string().len() > MAX_RESULT {
        let (text, _) = super::content::cut(report.content.clone(), MAX_TEXT as u64);
        value = text.into();
    }
    let mut told = json!({"task_id": id, "tool": tool, "status": status});
    if let Some(object) = told.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
    told
}

/// Ends the tasks of an agent with it.
#[derive(Debug)]
pub(crate) struct Owner(Arc<Tasks>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.state().over = true;
        self.0.cancel();
    }
}

/// One of those that may be under way.
struct Slot {
    counts: Arc<Counts>,
    kind: Kind,
}

impl Counts {
    fn of(&self, kind: Kind) -> &AtomicU64 {
        match kind {
            Kind::Tool => &self.tools,
            Kind::Agent => &self.agents,
        }
    }
}

impl Slot {
    fn take(counts: &Arc<Counts>, kind: Kind, most: u64) -> Result<Self, String> {
        let taken = counts.of(kind).try_update(Ordering::SeqCst, Ordering::SeqCst, |under_way| {
            (under_way < most).then(|| under_way.saturating_add(1))
        });
        match (taken, kind) {
            (Ok(_), _) => Ok(Self { counts: counts.clone(), kind }),
            (Err(_), Kind::Tool) => {
                Err(format!("{most} tasks are under way, the most there may be: wait for one with `task_await`"))
            }
            (Err(_), Kind::Agent) => Err(format!(
                "{most} agents are under way, the most that `delegation.max_concurrent` in `harness.md` allows: wait for \
                 one with `delegate_await`"
            )),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.counts.of(self.kind).fetch_sub(1, Ordering::SeqCst);
    }
}
