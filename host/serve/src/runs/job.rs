//! One run that is under way: its work, its events and its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use axum::http::StatusCode;
use harness_agent::{AgentEvent, EventSource, Interrupted, Listener, Session, TurnError, event_as_json};
use harness_dispatch::confirm::Confirmer;
use harness_dispatch::{Call, Run, as_json};
use harness_provider::{Message, ProviderError, Usage};
use harness_sandbox::outcome::Outcome;
use harness_session as session;
use harness_session::recorder::Recorder;
use harness_store::Expected;
use serde_json::{Value as Json, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::activity;
use super::asks::{Approval, Asks};
use super::events::{LogWriter, MAX_EVENT};
use super::resume::{Begun, Rest, outcome_of};
use super::sessions::BegunBy;
use super::{BUCKET, OPEN, RunRecord, SESSIONS, Work, bytes, end_of, place};
use crate::api::{Caller, calls};
use crate::budget::Resource;
use crate::problem::Problem;
use crate::server::Server;
use crate::tenant::Opened;
use crate::tenants::now;
use crate::webhooks::event::Event;

/// Events of the agent in the log of a run. A script decides how often it reports progress, and the log is kept.
const MAX_EVENTS: u64 = 10_000;

/// One run that is under way.
pub(super) struct Job {
    pub(super) server: Arc<Server>,
    pub(super) caller: Caller,
    pub(super) opened: Arc<Opened>,
    pub(super) tenant: String,
    pub(super) record: RunRecord,
    /// The version of the record in the store.
    pub(super) version: u64,
    /// The digest of the artifacts that it runs.
    pub(super) artifacts: String,
    /// The session that an earlier process recorded it in.
    pub(super) session: Option<String>,
    /// What it asked in an earlier process.
    pub(super) asked: Arc<Vec<Approval>>,
    /// How many processes have begun or continued it.
    pub(super) attempts: u32,
    /// What its turn is recorded with, once it is. Weak: the recorder holds the sender of events, whose end is waited for.
    recorder: Arc<OnceLock<Weak<Recorder>>>,
}

impl Job {
    /// One that begins now.
    pub(super) fn new(
        server: Arc<Server>,
        caller: Caller,
        opened: Arc<Opened>,
        tenant: String,
        record: RunRecord,
        version: u64,
    ) -> Self {
        let (asked, recorder) = (Arc::default(), Arc::default());
        let (artifacts, session) = (String::new(), None);
        Self { server, caller, opened, tenant, record, version, artifacts, session, asked, attempts: 1, recorder }
    }

    pub(super) async fn run(
        mut self,
        work: Work,
        writer: LogWriter,
        stop: CancellationToken,
        ended: CancellationToken,
        room: OwnedSemaphorePermit,
    ) {
        let (sender, receiver) = unbounded_channel();
        let begins = if writer.length == 0 { "began" } else { "resumed" };
        let written = tokio::spawn(writer.follow(receiver));
        let _ = sender
            .send(json!({"type": begins, "run": self.record.id, "kind": self.record.kind, "tool": self.record.tool}));
        let (release, recorder) = (self.server.release.clone(), self.recorder.clone());
        // What is dropped from there on is not recorded as stopped: the next process continues it.
        let released = async {
            release.cancelled().await;
            if let Some(recorder) = recorder.get().and_then(Weak::upgrade) {
                recorder.leave();
            }
        };
        let can_wait = matches!(work, Work::Turn { .. });
        let result = tokio::select! {
            biased;
            () = released, if can_wait => json!({"outcome": "released"}),
            () = stop.cancelled() => json!({"outcome": "stopped"}),
            result = self.work(work, &sender) => result,
        };
        // It asks nothing any more: nobody answers after its end is seen.
        self.server.runs.resuming().remove(&self.record.id);
        let end = end_of(&result);
        drop(sender);
        let writer = written.await;
        if result.get("outcome").and_then(Json::as_str) == Some("released") {
            self.over(room, &ended);
            return;
        }
        let outcome = result.get("outcome").and_then(Json::as_str).unwrap_or("failed").to_owned();
        (self.record.state, self.record.ended, self.record.result) = (outcome, Some(now()), Some(result));
        if bytes(&self.record).is_ok_and(|bytes| bytes.len() > MAX_EVENT) {
            self.record.result = None;
        }
        if let Ok(text) = bytes(&self.record) {
            let place = place(&self.tenant, &self.record.id);
            let _ = self.server.tenants.store.put(BUCKET, &place, Expected::Version(self.version), text).await;
        }
        let store = &*self.server.tenants.store;
        let sent = self.server.webhooks.emit(store, &self.tenant, &Event::ended(&self.record)).await;
        // Who hears the end finds it in the record. What cannot be written now is mended at the next start.
        if let Ok(Some(mut writer)) = writer
            && writer.write(vec![end]).await.is_ok()
            // What is not kept to be sent now is so by the next process, which finds the run among the open ones.
            && sent.is_ok()
        {
            let place = place(&self.tenant, &self.record.id);
            let _ = self.server.tenants.store.delete(OPEN, &place, Expected::Anything).await;
        }
        self.over(room, &ended);
    }

    /// Nothing of it is under way any more.
    fn over(&self, room: OwnedSemaphorePermit, ended: &CancellationToken) {
        self.server.runs.live().remove(&self.record.id);
        drop(room);
        ended.cancel();
    }

    async fn work(&mut self, work: Work, events: &UnboundedSender<Json>) -> Json {
        match work {
            Work::Call { tool, arguments, within } => self.call(tool, arguments, within, events).await,
            Work::Turn { .. } => self.turn(work, events).await,
        }
    }

    fn confirmer(&self, events: &UnboundedSender<Json>) -> Arc<dyn Confirmer> {
        Arc::new(Asks {
            server: self.server.clone(),
            tenant: self.tenant.clone(),
            run: self.record.id.clone(),
            workspace: self.record.workspace.clone(),
            asked_by: self.caller.key.record.id.clone(),
            events: events.clone(),
            earlier: self.asked.clone(),
        })
    }

    async fn call(&self, tool: String, arguments: Json, within: Option<Json>, events: &UnboundedSender<Json>) -> Json {
        let within = match within.as_ref().map(calls::narrowed).transpose() {
            Ok(within) => within,
            Err(problem) => return failed(&problem),
        };
        let run = match calls::run(&self.caller, &self.opened, within, &self.record.id) {
            Ok(run) => run,
            Err(problem) => return failed(&problem),
        };
        run.set_confirmer(self.confirmer(events));
        let call = Call { id: Some(self.record.id.clone()), name: tool, arguments };
        let abandoned = self.caller.tenant().ok().map(calls::Abandoned::unless);
        let made = self.opened.project.make(call, &run).await;
        if let Some(abandoned) = abandoned {
            abandoned.not();
        }
        run.end_servers().await;
        match made {
            Ok(report) => {
                let _ = calls::spend(&self.server, &self.caller, &report);
                let loaded = self.opened.project.loaded();
                let own = loaded.registry().tool(&report.tool).ok().and_then(|tool| tool.timeout_ms.clone());
                match &report.outcome {
                    // Its text is of the machine, and for who runs it.
                    Outcome::Fault(_) => json!({"outcome": "fault", "error": Problem::fault().as_json()}),
                    _ => as_json::call(&report, own.as_ref()),
                }
            }
            Err(error) => failed(&Problem::of_call(&error)),
        }
    }

    async fn turn(&mut self, work: Work, events: &UnboundedSender<Json>) -> Json {
        match self.begin_turn(&work, events).await {
            Ok(Prepared::Ended(result)) => result,
            Ok(Prepared::Turn(turn)) => self.work_on(*turn).await,
            Err(problem) => failed(&problem),
        }
    }

    /// Prepares the turn: what was said before, the record, and what the next process would need.
    async fn begin_turn(&mut self, work: &Work, events: &UnboundedSender<Json>) -> Result<Prepared, Problem> {
        let Work::Turn { input, session: resumes, within } = work else { return Err(Problem::fault()) };
        let within = within.as_ref().map(calls::narrowed).transpose()?;
        let tenant = self.caller.tenant()?.clone();
        let root = tenant.project_folder();
        let rest = match &self.session {
            None => Rest::Begin,
            Some(name) => match Rest::of(&root, name) {
                Ok(rest) => rest,
                Err(why) => return Ok(Prepared::Ended(interrupted(&why))),
            },
        };
        let (history, task, resumes) = match rest {
            Rest::Ended(turned) => {
                self.record.session.clone_from(&self.session);
                return Ok(Prepared::Ended(outcome_of(&turned)));
            }
            Rest::Continue(history, turn) => (history, Task::Rest(turn), self.session.clone()),
            Rest::Begin => {
                let history = resumes.as_ref().map(|name| read_history(&root, name)).transpose()?;
                (history.unwrap_or_default(), Task::Message(input.clone()), resumes.clone())
            }
        };
        let writer = session::create(&root).map_err(|_| Problem::fault())?;
        let store = &self.server.tenants.store;
        let begun = BegunBy { by: self.caller.key.record.id.clone(), workspace: self.record.workspace.clone() };
        store.put(SESSIONS, &place(&self.tenant, writer.id()), Expected::Anything, begun.write()).await?;
        let name = Some(writer.id().to_owned());
        let (artifacts, attempts) = (self.artifacts.clone(), self.attempts);
        let begun = Begun { work: work.clone(), artifacts, session: name.clone(), attempts };
        store.put(OPEN, &place(&self.tenant, &self.record.id), Expected::Anything, bytes(&begun)?).await?;
        self.record.session = name;
        let counted = Arc::new(Counted { events: events.clone(), fuel: Mutex::default(), count: AtomicU64::new(0) });
        let recorder = session::begin(writer, &self.opened.project, "serve", resumes.as_deref(), counted.clone());
        let _ = self.recorder.set(Arc::downgrade(&recorder));
        let run: Arc<Run> = recorder.run_within(tenant.layers(&self.caller.key).into_iter().chain(within).collect());
        run.set_client_request(calls::client(&self.caller, &self.opened, &self.record.id));
        run.set_confirmer(self.confirmer(events));
        Ok(Prepared::Turn(Box::new(Ready { history, task, counted, recorder, run })))
    }

    /// Works on a turn as long as it can be recorded: of one that is not, the next process would not know what it did.
    async fn work_on(&self, ready: Ready) -> Json {
        let recorder = ready.recorder.clone();
        tokio::select! {
            biased;
            () = recorder.lost() => {
                let why = "the run was ended, because its session cannot be written";
                json!({"outcome": "fault", "error": {"kind": "record", "message": why}})
            }
            result = self.recorded(ready) => result,
        }
    }

    async fn recorded(&self, ready: Ready) -> Json {
        let Ready { history, task, counted, recorder, run } = ready;
        let Ok(tenant) = self.caller.tenant() else { return failed(&Problem::fault()) };
        let started = Session::start(&self.opened.project, &run, self.opened.models.clone(), recorder.clone()).await;
        let result = match started {
            Ok(session) => {
                let mut session = session.after(history);
                let turn = match &task {
                    Task::Message(input) => session.turn(input).await,
                    Task::Rest(turn) => session.continue_turn(turn).await,
                };
                let usage = session.usage();
                let warning = turn.as_ref().ok().and_then(|turn| turn.warning.clone());
                let result = outcome(&turn.map(|turn| (turn.text, turn.rounds)), usage);
                let result = activity::with(result, &session, warning.as_deref());
                let ended = session.end().await;
                drop(ended);
                result
            }
            Err(error) => outcome(&Err(error), Usage::default()),
        };
        run.end_servers().await;
        recorder.end();
        let (calls, fuel) = *counted.fuel.lock().unwrap_or_else(PoisonError::into_inner);
        tenant.ledger.spend(now(), Resource::Calls, calls);
        tenant.ledger.spend(now(), Resource::Fuel, fuel);
        result
    }
}

/// What the agent is to do.
enum Task {
    /// Answer a message.
    Message(String),
    /// Continue a turn.
    Rest(Interrupted),
}

/// A turn that can be worked on.
struct Ready {
    history: Vec<Message>,
    task: Task,
    counted: Arc<Counted>,
    recorder: Arc<Recorder>,
    run: Arc<Run>,
}

/// What there is to do.
enum Prepared {
    Turn(Box<Ready>),
    /// Nothing: this came of it.
    Ended(Json),
}

/// A turn that is not continued.
fn interrupted(why: &str) -> Json {
    let why = format!("the server ended while the run was under way, and it is not continued: {why}");
    json!({"outcome": "interrupted", "error": {"kind": "interrupted", "message": why}})
}

/// What was said in a session of the project.
fn read_history(root: &std::path::Path, name: &str) -> Result<Vec<harness_provider::Message>, Problem> {
    let folder = root.join(session::FOLDER);
    let unknown = || Problem::not_found("there is no such session");
    if session::read::find(&folder, name).map_err(|_| unknown())? != name {
        return Err(unknown());
    }
    let recording = session::read::read(&folder, name).map_err(|_| unknown())?;
    recording.history().map_err(|why| Problem::new(StatusCode::CONFLICT, "session", why))
}

/// A run that did not come to its work.
fn failed(problem: &Problem) -> Json {
    json!({"outcome": "rejected", "error": problem.as_json()})
}

/// What came of a turn.
fn outcome(turn: &Result<(String, u32), TurnError>, usage: Usage) -> Json {
    let usage = json!({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens});
    match turn {
        Ok((text, rounds)) => json!({"outcome": "completed", "answer": text, "rounds": rounds, "usage": usage}),
        Err(error) => {
            let outcome = match error {
                TurnError::Blocked { .. } => "denied",
                TurnError::Config(_) => "rejected",
                TurnError::Limit { .. }
                | TurnError::Budget { .. }
                | TurnError::NeverStops(..)
                | TurnError::Length(_)
                | TurnError::Completion(ProviderError::NotAdmitted(_)) => "limited",
                TurnError::Modified { .. } => "failed",
                TurnError::Completion(_) | TurnError::ContentFilter | TurnError::Finish(_) => "fault",
            };
            json!({"outcome": outcome, "error": {"kind": error.kind(), "message": error.to_string()}, "usage": usage})
        }
    }
}

/// Hears the events of an agent: each goes to the log, and what its calls use is counted.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) events: UnboundedSender<Json>,
    /// Calls, and their fuel.
    pub(super) fuel: Mutex<(u64, u64)>,
    /// Events so far.
    pub(super) count: AtomicU64,
}

impl Listener for Counted {
    fn notify(&self, what: &AgentEvent<'_>) {
        if let AgentEvent::Called { report: Ok(report), .. } = what {
            let mut counted = self.fuel.lock().unwrap_or_else(PoisonError::into_inner);
            *counted = (counted.0.saturating_add(1), counted.1.saturating_add(report.total().fuel));
        }
        let Some(event) = event_as_json(what) else { return };
        match self.count.fetch_add(1, Ordering::Relaxed) {
            ..MAX_EVENTS => drop(self.events.send(event)),
            MAX_EVENTS => drop(self.events.send(json!({"type": "truncated", "events": MAX_EVENTS}))),
            _ => {}
        }
    }

    fn notify_from(&self, _: &EventSource<'_>, what: &AgentEvent<'_>) {
        self.notify(what);
    }
}
