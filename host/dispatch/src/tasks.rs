//! Tasks: calls that continue while who made them does something else.
//!
//! Each agent at work has its own, and the scripts that it calls share them; nobody else sees them. A run bounds how
//! many are in progress. They end with whom they belong to.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::chain::CallContext;
use super::past::{Happened, Looked};
use super::pipeline::CallReport;
use super::run::Run;
use harness_capability::reentry::Patience;
use harness_sandbox::outcome::Outcome;
use harness_sandbox::strand::{self, Strand};

/// Calls of tools that may continue at one time in a run.
pub const MAX_TOOLS: u64 = 16;
/// Sub-agents that may work at one time in a run without being waited for, where the policy does not say.
pub const MAX_AGENTS: u64 = 5;
/// Tasks that are waited for at once.
pub const MAX_WAITED: usize = 16;
/// Ended ones that are kept for anyone who asks.
const MAX_KEPT: usize = 64;
/// Bytes of a result that is kept whole.
const MAX_RESULT: usize = 256 << 10;
/// For how long a replay waits for a task that ended then, and has taken another way now.
const MAX_AGAIN: Duration = Duration::from_secs(600);
/// For how long the end of tasks is waited for that are ended.
const MAX_GONE: Duration = Duration::from_secs(1);
/// Bytes of the text that is kept in its place.
const MAX_TEXT: usize = 32 << 10;

/// What continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A call of a tool with `async: true`.
    Tool,
    /// A sub-agent.
    Agent,
}

/// The tasks of one agent at work, or of a run without one.
#[derive(Debug, Default)]
pub struct Tasks {
    state: Mutex<State>,
    /// Told whenever one has ended.
    ended: Notify,
    counts: Arc<Counts>,
}

/// How many are in progress in a run.
#[derive(Debug, Default)]
struct Counts {
    tools: AtomicU64,
    agents: AtomicU64,
    /// Told whenever there is one less.
    left: Notify,
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
    /// Once it has ended.
    end: Option<End>,
}

#[derive(Debug)]
enum End {
    /// What came of it.
    Known {
        told: Json,
        /// Until someone has been told.
        report: Option<Box<CallReport>>,
    },
    /// It is one of the past, which came to no end there.
    Never,
}

/// Tasks that a script has begun, and whose they are. What they use is taken from who learns of their end: as many as
/// may be in progress may be begun without that.
#[derive(Debug, Default)]
pub struct Begun(Mutex<Vec<(Kind, Arc<Tasks>, String)>>);

/// A task that begins.
#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    pub(crate) kind: Kind,
    /// How many of its kind may be in progress.
    pub most: u64,
    pub(crate) id: &'a str,
    pub(crate) tool: &'a str,
}

/// Which tasks are asked for.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    /// Those of these identifiers.
    These(&'a [String]),
    /// Those that are in progress or whose end was told to nobody.
    Open,
    /// Those whose end was told to nobody.
    News,
}

/// What became of some tasks.
#[derive(Debug, Default)]
pub struct Found {
    /// One for each that was asked for, in that order.
    pub told: Vec<Json>,
    /// The calls of those whose end was not told before.
    pub reports: Vec<CallReport>,
}

impl Tasks {
    /// Those of another agent of the same run.
    pub fn concurrent(&self) -> Arc<Self> {
        Arc::new(Self { counts: self.counts.clone(), ..Self::default() })
    }

    /// What became of these, once all have ended or nobody waits any longer.
    pub(crate) async fn look(&self, wanted: Wanted<'_>, patience: Patience) -> (Result<Found, String>, Looked) {
        let asked = match wanted {
            Wanted::These(ids) => ids.to_vec(),
            Wanted::Open => self.open(),
            Wanted::News => self.news(),
        };
        if let Patience::Until(until) = patience {
            let all = self.all_ended(&asked);
            match until {
                None => all.await,
                // Too late is an answer, too.
                Some(until) => drop(tokio::time::timeout_at(until.into(), all).await),
            }
        }
        let mut looked = Looked { asked, ..Looked::default() };
        let mut state = self.state();
        let mut found = Found::default();
        for id in &looked.asked {
            let Some(task) = state.tasks.iter_mut().find(|task| task.id == *id) else {
                looked.missing = Some(id.clone());
                break;
            };
            found.told.push(task.report());
            if let Some(End::Known { report, .. }) = &mut task.end {
                looked.ended.push(id.clone());
                if let Some(report) = report.take() {
                    looked.news.push(id.clone());
                    found.reports.push(*report);
                }
            }
        }
        if let Some(missing) = &looked.missing {
            // Anyone who learns of none has learned of no end.
            for report in found.reports {
                state.give_back(report);
            }
            looked.news.clear();
            return (Err(unknown(missing)), looked);
        }
        (Ok(found), looked)
    }

    /// The same as it was in the past.
    pub(crate) async fn look_again(&self, wanted: Wanted<'_>, looked: &Looked) -> Result<Found, String> {
        if let Some(missing) = &looked.missing {
            return Err(unknown(missing));
        }
        let asked = if let Wanted::These(ids) = wanted { ids } else { &looked.asked };
        let ended: Vec<String> = asked.iter().filter(|id| looked.ended.contains(id)).cloned().collect();
        let all = tokio::time::timeout(MAX_AGAIN, self.all_ended(&ended)).await;
        match self.seen(asked, looked).map(|found| found.filter(|_| all.is_ok()))? {
            Some(found) => Ok(found),
            // What waits for one that does not end now goes no further either.
            None => strand::cut().await,
        }
    }

    /// What was seen of tasks in the past; nothing where one that had ended then does not end now.
    fn seen(&self, asked: &[String], looked: &Looked) -> Result<Option<Found>, String> {
        let mut state = self.state();
        let mut found = Found::default();
        for id in asked {
            let task = state.tasks.iter_mut().find(|task| task.id == *id).ok_or_else(|| unknown(id))?;
            if !looked.ended.contains(id) {
                found.told.push(task.running());
                continue;
            }
            found.told.push(task.report());
            match &mut task.end {
                Some(End::Known { report, .. }) if looked.news.contains(id) => {
                    found.reports.extend(report.take().map(|report| *report));
                }
                Some(End::Known { .. }) => {}
                Some(End::Never) | None => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// Waits until all of these have ended, or are not there.
    async fn all_ended(&self, ids: &[String]) {
        loop {
            let more = self.ended.notified();
            tokio::pin!(more);
            // From here on nothing is missed.
            more.as_mut().enable();
            let open = |task: &Task| task.end.is_none() && ids.contains(&task.id);
            if !self.state().tasks.iter().any(open) {
                return;
            }
            more.await;
        }
    }

    /// Those that are in progress or whose end was told to nobody, as many as are waited for at once.
    fn open(&self) -> Vec<String> {
        let state = self.state();
        let open = state.tasks.iter().filter(|task| task.end.is_none() || task.is_news());
        open.take(MAX_WAITED).map(|task| task.id.clone()).collect()
    }

    /// Whether one is in progress, or its end was told to nobody.
    fn is_open(&self, id: &str) -> bool {
        self.state().tasks.iter().any(|task| task.id == id && (task.end.is_none() || task.is_news()))
    }

    /// Those whose end was told to nobody.
    fn news(&self) -> Vec<String> {
        self.state().tasks.iter().filter(|task| task.is_news()).map(|task| task.id.clone()).collect()
    }

    /// Ends those that are in progress, and forgets all of them.
    pub fn cancel(&self) {
        let tasks = std::mem::take(&mut self.state().tasks);
        tasks.iter().for_each(|task| task.work.abort());
        self.ended.notify_waiters();
    }

    /// Ends those of them that are in progress, and forgets them.
    pub fn give_up(&self, ids: &[String]) {
        self.state().tasks.retain(|task| {
            let stays = !ids.contains(&task.id);
            if !stays {
                task.work.abort();
            }
            stays
        });
    }

    /// Waits until nothing of the run is in progress any more, after all was cancelled; not for long.
    pub async fn gone(&self) {
        let gone = async {
            loop {
                let left = self.counts.left.notified();
                tokio::pin!(left);
                left.as_mut().enable();
                if [&self.counts.tools, &self.counts.agents].iter().all(|count| count.load(Ordering::SeqCst) == 0) {
                    return;
                }
                left.await;
            }
        };
        let _ = tokio::time::timeout(MAX_GONE, gone).await;
    }

    /// The same, and no more are started. It is done when what is returned is dropped.
    pub fn owner(self: &Arc<Self>) -> Owner {
        Owner(self.clone())
    }

    /// One has ended, or is where its past was cut. In that case all are kept: which are the oldest was said then.
    fn end(&self, id: &str, report: Option<CallReport>, all_kept: bool) {
        let mut state = self.state();
        if let Some(task) = state.tasks.iter_mut().find(|task| task.id == id) {
            task.end = Some(match report {
                Some(report) => {
                    End::Known { told: final_report(&task.id, &task.tool, &report), report: Some(Box::new(report)) }
                }
                None => End::Never,
            });
        }
        let kept = state.tasks.iter().filter(|task| task.end.is_some()).count();
        if kept > MAX_KEPT
            && !all_kept
            && let Some(oldest) = state.tasks.iter().position(|task| task.end.is_some())
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

impl CallContext {
    /// Starts one in a strand of its own. `begins` is told before anything of it happens.
    ///
    /// # Errors
    ///
    /// Why it cannot be started.
    pub fn start<F>(&self, task: New<'_>, strand: Arc<Strand>, begins: impl FnOnce(), work: F) -> Result<(), String>
    where
        F: Future<Output = CallReport> + Send + 'static,
    {
        let New { kind, most, id, tool } = task;
        let runtime = Handle::try_current().map_err(|_| "nothing here runs tasks".to_owned())?;
        let slot = Slot::take(&self.tasks.counts, kind, most)?;
        let mut open = self.begun.as_ref().map(|begun| begun.0.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(open) = &mut open {
            open.retain(|(_, tasks, id)| tasks.is_open(id));
            if open.iter().filter(|(other, ..)| *other == kind).count() as u64 >= most {
                return Err(format!("{most} tasks were started and never awaited: call `task.await`"));
            }
        }
        let mut state = self.tasks.state();
        if state.over {
            return Err("its caller has ended".to_owned());
        }
        begins();
        let (tasks, over) = (self.tasks.clone(), Over { run: self.run.clone(), id: id.to_owned() });
        // It cannot end before it is in the list: that takes the same lock.
        let work = runtime.spawn(strand::in_strand(strand, async move {
            // Gone when all that it did is.
            let _slot = slot;
            let report = strand::until_cut(Box::pin(work)).await;
            tasks.end(&over.id, report, over.run.schedule().keeps_all_tasks());
        }));
        state.tasks.push(Task { id: id.to_owned(), tool: tool.to_owned(), work: work.abort_handle(), end: None });
        open.into_iter().for_each(|mut open| open.push((kind, self.tasks.clone(), id.to_owned())));
        Ok(())
    }

    /// What has become of tasks of the caller that this place is for.
    ///
    /// # Errors
    ///
    /// One that is not there.
    pub async fn look(&self, wanted: Wanted<'_>, patience: Patience) -> Result<Found, String> {
        self.run.schedule().look(self, wanted, patience).await
    }

    /// The calls whose end was told to nobody.
    pub async fn news(&self) -> Vec<CallReport> {
        if self.tasks.state().tasks.is_empty() {
            return Vec::new();
        }
        self.look(Wanted::News, Patience::None).await.map(|found| found.reports).unwrap_or_default()
    }

    /// Tells whoever watches the agent that calls are made for here.
    pub fn tell(&self, what: &Happened<'_>) {
        if let Some(built_ins) = &self.built_ins {
            built_ins.happened(what);
        }
    }
}

/// Reports to the schedule that a task has ended, or is ended.
struct Over {
    run: Arc<Run>,
    id: String,
}

impl Drop for Over {
    fn drop(&mut self) {
        self.run.schedule().end_task(&self.id);
    }
}

impl State {
    /// Nobody learned of this end after all.
    fn give_back(&mut self, report: CallReport) {
        let of = |task: &&mut Task| Some(&task.id) == report.ends.as_ref();
        if let Some(Task { end: Some(End::Known { report: place, .. }), .. }) = self.tasks.iter_mut().find(of) {
            *place = Some(Box::new(report));
        }
    }
}

impl Task {
    /// Whether nobody was told that it has ended.
    fn is_news(&self) -> bool {
        matches!(self.end, Some(End::Known { report: Some(_), .. }))
    }

    fn report(&self) -> Json {
        match &self.end {
            Some(End::Known { told, .. }) => told.clone(),
            Some(End::Never) | None => self.running(),
        }
    }

    fn running(&self) -> Json {
        json!({"task_id": self.id, "tool": self.tool, "status": "running"})
    }
}

fn unknown(id: &str) -> String {
    let shown = id.get(..id.floor_char_boundary(100)).unwrap_or_default();
    format!("there is no task {shown:?} here")
}

/// The report of a task that has ended.
fn final_report(id: &str, tool: &str, report: &CallReport) -> Json {
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
pub struct Owner(Arc<Tasks>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.state().over = true;
        self.0.cancel();
    }
}

/// One of those that may be in progress.
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
                Err(format!("{most} tasks are running, which is the limit: wait for one with `task_await`"))
            }
            (Err(_), Kind::Agent) => Err(format!(
                "{most} agents are running, which is the limit of `delegation.max_concurrent` in `harness.md`: wait for one with `delegate_await`"
            )),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.counts.of(self.kind).fetch_sub(1, Ordering::SeqCst);
        self.counts.left.notify_waiters();
    }
}
