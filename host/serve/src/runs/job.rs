//! One run that is under way: its work, its events and its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use harness_agent::{AgentEvent, EventSource, Listener, Session, TurnError, event_as_json};
use harness_dispatch::confirm::Confirmer;
use harness_dispatch::{Call, Run, as_json};
use harness_policy::layer::Layer;
use harness_provider::Usage;
use harness_sandbox::outcome::Outcome;
use harness_session as session;
use harness_store::Expected;
use serde_json::{Value as Json, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::asks::Asks;
use super::events::{LogWriter, MAX_EVENT};
use super::{BUCKET, OPEN, RunRecord, SESSIONS, Work, bytes, end_of, log, place};
use crate::api::{Caller, calls};
use crate::budget::Resource;
use crate::problem::Problem;
use crate::server::Server;
use crate::tenant::Opened;
use crate::tenants::now;

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
}

impl Job {
    pub(super) async fn run(
        mut self,
        work: Work,
        stop: CancellationToken,
        ended: CancellationToken,
        room: OwnedSemaphorePermit,
    ) {
        let (sender, receiver) = unbounded_channel();
        let writer =
            LogWriter { store: self.server.tenants.store.clone(), log: log(&self.tenant, &self.record.id), length: 0 };
        let written = tokio::spawn(writer.follow(receiver));
        let _ = sender
            .send(json!({"type": "began", "run": self.record.id, "kind": self.record.kind, "tool": self.record.tool}));
        let result = tokio::select! {
            biased;
            () = stop.cancelled() => json!({"outcome": "stopped"}),
            result = self.work(work, &sender) => result,
        };
        let end = end_of(&result);
        drop(sender);
        let writer = written.await;
        let outcome = result.get("outcome").and_then(Json::as_str).unwrap_or("failed").to_owned();
        (self.record.state, self.record.ended, self.record.result) = (outcome, Some(now()), Some(result));
        if bytes(&self.record).is_ok_and(|bytes| bytes.len() > MAX_EVENT) {
            self.record.result = None;
        }
        if let Ok(text) = bytes(&self.record) {
            let place = place(&self.tenant, &self.record.id);
            let _ = self.server.tenants.store.put(BUCKET, &place, Expected::Version(self.version), text).await;
        }
        // Who hears the end finds it in the record. What cannot be written now is mended at the next start.
        if let Ok(Some(mut writer)) = writer
            && writer.write(vec![end]).await.is_ok()
        {
            let place = place(&self.tenant, &self.record.id);
            let _ = self.server.tenants.store.delete(OPEN, &place, Expected::Anything).await;
        }
        self.server.runs.live().remove(&self.record.id);
        drop(room);
        ended.cancel();
    }

    async fn work(&mut self, work: Work, events: &UnboundedSender<Json>) -> Json {
        match work {
            Work::Call { tool, arguments, within } => self.call(tool, arguments, within, events).await,
            Work::Turn { input, session, within } => self.turn(&input, session, within, events).await,
        }
    }

    fn confirmer(&self, events: &UnboundedSender<Json>) -> Arc<dyn Confirmer> {
        Arc::new(Asks {
            server: self.server.clone(),
            tenant: self.tenant.clone(),
            run: self.record.id.clone(),
            asked_by: self.caller.key.record.id.clone(),
            events: events.clone(),
        })
    }

    async fn call(&self, tool: String, arguments: Json, within: Option<Layer>, events: &UnboundedSender<Json>) -> Json {
        let run = match calls::run(&self.caller, &self.opened, within, &self.record.id) {
            Ok(run) => run,
            Err(problem) => return failed(&problem),
        };
        run.set_confirmer(self.confirmer(events));
        let call = Call { id: Some(self.record.id.clone()), name: tool, arguments };
        let made = self.opened.project.make(call, &run).await;
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

    async fn turn(
        &mut self,
        input: &str,
        resumes: Option<String>,
        within: Option<Layer>,
        events: &UnboundedSender<Json>,
    ) -> Json {
        let Ok(tenant) = self.caller.tenant().cloned() else { return failed(&Problem::fault()) };
        let root = tenant.project_folder();
        let history = match &resumes {
            Some(name) => match read_history(&root, name) {
                Ok(history) => history,
                Err(problem) => return failed(&problem),
            },
            None => Vec::new(),
        };
        let writer = match session::create(&root) {
            Ok(writer) => writer,
            Err(_) => return failed(&Problem::fault()),
        };
        let by = self.caller.key.record.id.clone().into_bytes();
        let here = place(&self.tenant, writer.id());
        if self.server.tenants.store.put(SESSIONS, &here, Expected::Anything, by).await.is_err() {
            return failed(&Problem::fault());
        }
        self.record.session = Some(writer.id().to_owned());
        let counted = Arc::new(Counted { events: events.clone(), fuel: Mutex::default(), count: AtomicU64::new(0) });
        let recorder = session::begin(writer, &self.opened.project, "serve", resumes.as_deref(), counted.clone());
        let run: Arc<Run> = recorder.run_within(tenant.layers(&self.caller.key).into_iter().chain(within).collect());
        run.set_client_request(calls::client(&self.caller, &self.record.id));
        run.set_confirmer(self.confirmer(events));
        let started = Session::start(&self.opened.project, &run, self.opened.models.clone(), recorder.clone()).await;
        let result = match started {
            Ok(session) => {
                let mut session = session.after(history);
                let turn = session.turn(input).await;
                let usage = session.usage();
                let ended = session.end().await;
                drop(ended);
                tenant.ledger.spend(now(), Resource::Tokens, usage.input_tokens.saturating_add(usage.output_tokens));
                outcome(&turn.map(|turn| (turn.text, turn.rounds)), usage)
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
                | TurnError::Length(_) => "limited",
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
