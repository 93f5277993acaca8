//! Runs that were under way when the process ended: they are continued by the next one, as far as that repeats nothing that
//! must not be repeated.
//!
//! What is needed is in the store before the run does anything: the work, its key, and the session that it is recorded in. A
//! turn is continued from its record: calls with a result are not made again, calls that had not begun are made, and of one
//! that was under way the tool says whether it may be (`effect`). Where nobody can know, the model gets an error that says
//! so.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use harness_agent::Interrupted;
use harness_provider::{Message, Usage};
use harness_session as session;
use harness_session::read::Recording;
use harness_session::record::{ROOT, Turned, What};
use harness_store::{Expected, Store, StoreError, Versioned};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::asks::Approval;
use super::events::LogWriter;
use super::job::Job;
use super::{APPROVALS, BUCKET, Live, OPEN, RunRecord, Runs, Work, end_of, log, log_of, place};
use crate::api::Caller;
use crate::server::Server;
use crate::tenants::now;
use crate::webhooks::Webhooks;
use crate::webhooks::event::Event;

/// How many processes a run may end with, until it is believed to be the cause.
const ATTEMPTS: u32 = 3;

/// Bytes of the first line of a session, at most, for one whose file has half of it.
const MAX_HEADER: u64 = 16 << 20;

/// What the store has of a run that is under way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Begun {
    /// What it does.
    pub(super) work: Work,
    /// The digest of the artifacts that it runs: what was approved of others is not.
    pub(super) artifacts: String,
    /// The session that it is recorded in, once there is one.
    pub(super) session: Option<String>,
    /// How many processes have begun or continued it.
    pub(super) attempts: u32,
}

/// A run that is to be continued.
#[derive(Debug)]
pub(super) struct Resumed {
    tenant: String,
    record: RunRecord,
    version: u64,
    begun: Begun,
    /// The questions that it has asked.
    asked: Vec<Approval>,
}

/// Where a turn continues.
pub(super) enum Rest {
    /// At its beginning: nothing of it is recorded.
    Begin,
    /// Where it was interrupted, in its conversation.
    Continue(Vec<Message>, Interrupted),
    /// It has ended.
    Ended(Turned),
}

impl Rest {
    /// Of the turn that a session was made for.
    ///
    /// # Errors
    ///
    /// Why it cannot be continued, in one sentence.
    pub(super) fn of(root: &Path, name: &str) -> Result<Self, String> {
        let folder = root.join(session::FOLDER);
        let recording = match session::read::read(&folder, name) {
            Ok(recording) => recording,
            Err(_) if has_no_line(&folder, name) => return Ok(Self::Begin),
            // What it did is not known.
            Err(_) => return Err("its session cannot be read".to_owned()),
        };
        if let Some((history, turn)) = recording.interrupted()? {
            return Ok(Self::Continue(history, turn));
        }
        let begins = |what: &What| matches!(what, What::Turn(_) | What::Continued(_));
        match last_turn(&recording) {
            Some(turned) => Ok(Self::Ended(turned)),
            None if recording.lines.iter().any(|line| begins(&line.what)) => Err("it was being stopped".to_owned()),
            None => Ok(Self::Begin),
        }
    }
}

/// Whether the file of a session is there without a whole line: a turn that has done nothing leaves it so when it is killed.
fn has_no_line(folder: &Path, name: &str) -> bool {
    let file = folder.join(format!("{name}.jsonl"));
    harness_sys::read_at_most(&file, MAX_HEADER).is_ok_and(|text| !text.contains('\n'))
}

fn last_turn(recording: &Recording) -> Option<Turned> {
    let of_root = recording.lines.iter().rev().filter(|line| line.by == ROOT);
    of_root.into_iter().find_map(|line| if let What::Turned(turned) = &line.what { Some(turned.clone()) } else { None })
}

/// What came of a turn that has ended, as far as its record says it.
pub(super) fn outcome_of(turned: &Turned) -> Json {
    let usage = Usage { input_tokens: turned.tokens.input, output_tokens: turned.tokens.output };
    let usage = json!({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens});
    match (&turned.answer, &turned.error) {
        (Some(answer), _) => {
            json!({"outcome": "completed", "answer": answer, "rounds": turned.rounds, "usage": usage})
        }
        (None, error) => json!({
            "outcome": "failed", "error": {"kind": turned.error_kind, "message": error}, "usage": usage,
        }),
    }
}

impl Runs {
    /// Finds what was under way when the process ended. What cannot be continued is ended in the store: everything, if the store
    /// was restored, since nobody knows what the runs have done after the backup.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub(crate) async fn recover(
        &self,
        (store, webhooks): (&Arc<dyn Store>, &Webhooks),
        is_restored: bool,
    ) -> Result<usize, StoreError> {
        let (mut count, mut after) = (0, None::<String>);
        // Before anybody can answer: what is answered from here on, is answered in time.
        let mut asked = Asked::default();
        loop {
            let page = store.list(OPEN, "", after.as_deref(), 500).await?;
            let Some((last, _)) = page.last() else { return Ok(count) };
            after = Some(last.clone());
            for (key, open) in &page {
                count += 1;
                if is_restored {
                    interrupt((store, webhooks), key, "it is of a backup, and what it did after that is unknown")
                        .await?;
                    continue;
                }
                match resumed(store, key, open, &mut asked).await? {
                    Ok(resumed) => {
                        self.resuming().insert(resumed.record.id.clone());
                        self.found.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(resumed);
                    }
                    Err(why) => interrupt((store, webhooks), key, &why).await?,
                }
            }
        }
    }

    /// Continues what [`recover`](Self::recover) has found.
    pub(crate) fn resume(&self, server: &Arc<Server>) {
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        for resumed in found {
            let server = server.clone();
            tokio::spawn(async move {
                let (tenant, run) = (resumed.tenant.clone(), resumed.record.id.clone());
                if let Err(why) = resume(&server, resumed).await {
                    // What the store does not take now is mended at the next start.
                    let _ = interrupt((&server.tenants.store, &server.webhooks), &place(&tenant, &run), &why).await;
                    server.runs.resuming().remove(&run);
                }
            });
        }
    }
}

/// A run as the store has it, or why it cannot be continued.
async fn resumed(
    store: &Arc<dyn Store>,
    key: &str,
    open: &Versioned,
    asked: &mut Asked,
) -> Result<Result<Resumed, String>, StoreError> {
    let unknown = || Err("whether its last step took effect is unknown".to_owned());
    let Some(Versioned { version, value }) = store.get(BUCKET, key).await? else { return Ok(unknown()) };
    let Ok(record) = serde_json::from_slice::<RunRecord>(&value) else { return Ok(unknown()) };
    let Ok(mut begun) = serde_json::from_slice::<Begun>(&open.value) else { return Ok(unknown()) };
    let Some((tenant, _)) = key.split_once('/') else { return Ok(unknown()) };
    if record.state != "running" {
        return Ok(unknown());
    }
    if begun.attempts >= ATTEMPTS {
        return Ok(Err(format!("{ATTEMPTS} servers ended while it was under way")));
    }
    begun.attempts = begun.attempts.saturating_add(1);
    let text = serde_json::to_vec(&begun).map_err(|error| StoreError::Failed(error.to_string()))?;
    store.put(OPEN, key, Expected::Anything, text).await?;
    let asked = asked.by(store, tenant, &record.id).await?;
    Ok(Ok(Resumed { tenant: tenant.to_owned(), record, version, begun, asked }))
}

/// Ends a run in the store that is not continued.
async fn interrupt((store, webhooks): (&Arc<dyn Store>, &Webhooks), key: &str, why: &str) -> Result<(), StoreError> {
    if let Some(Versioned { version, value }) = store.get(BUCKET, key).await?
        && let Ok(mut record) = serde_json::from_slice::<RunRecord>(&value)
    {
        if record.state == "running" {
            let why = format!("the server ended while the run was under way, and it is not continued: {why}");
            let result = json!({"outcome": "interrupted", "error": {"kind": "interrupted", "message": why}});
            (record.state, record.ended, record.result) = ("interrupted".to_owned(), Some(now()), Some(result));
            let text = serde_json::to_vec(&record).map_err(|error| StoreError::Failed(error.to_string()))?;
            store.put(BUCKET, key, Expected::Version(version), text).await?;
        }
        if let Some((tenant, _)) = key.split_once('/')
            && webhooks.emit(&**store, tenant, &Event::ended(&record)).await.is_err()
        {
            return Err(StoreError::Failed("the end of a run cannot be kept to be sent".to_owned()));
        }
        let mut writer = LogWriter::resume(store.clone(), log_of(key)).await?;
        if !writer.has_end().await? {
            let result = record.result.unwrap_or_else(|| json!({"outcome": record.state}));
            writer.write(vec![end_of(&result)]).await?;
        }
    }
    store.delete(OPEN, key, Expected::Anything).await?;
    Ok(())
}

/// Continues a run, as its key may now.
async fn resume(server: &Arc<Server>, resumed: Resumed) -> Result<(), String> {
    let Resumed { tenant: id, record, version, begun, asked } = resumed;
    let tenant = server.tenants.tenant(&id).ok_or("its tenant was removed")?;
    // Before the project is opened: however many there are, as many are open as may run.
    let room = tenant.runs.clone().acquire_owned().await.map_err(|_| "its tenant was removed")?;
    // Its tenant may be suspended, too.
    let key = server.tenants.key_in_force(&record.key, now());
    let (key, _) = key.ok_or("its key is not valid any more")?;
    let opened = server.tenants.opened_in(&tenant, &record.workspace).await;
    let opened = opened.map_err(|problem| problem.as_json().to_string())?;
    if session::digest_of_artifacts(&opened.project) != begun.artifacts {
        return Err("the project was changed since the run began".to_owned());
    }
    let store = &server.tenants.store;
    if let Work::Call { tool, .. } = &begun.work {
        // Whether a call waits for its answer is known: nothing of it was done.
        let waits = asked.iter().any(|one| one.call.as_ref() == Some(&record.id) && one.answer.is_none());
        let loaded = opened.project.loaded();
        let repeats = loaded.registry().tool(tool).is_ok_and(|tool| tool.effect.can_repeat());
        if !waits && !repeats {
            return Err(
                "whether the call took effect is unknown, and its tool does not say that it may be made again \
                        (`effect: none` or `effect: idempotent`)"
                    .to_owned(),
            );
        }
    }
    let writer = LogWriter::resume(store.clone(), log(&id, &record.id)).await.map_err(|error| error.to_string())?;
    let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
    let live = Live { tenant: id.clone(), stop: stop.clone(), ended: ended.clone() };
    server.runs.live().insert(record.id.clone(), live);
    let caller = Caller::new(key, Some(tenant));
    let mut job = Job::new(server.clone(), caller, opened, id, record, version);
    (job.artifacts, job.session) = (begun.artifacts, begun.session);
    (job.asked, job.attempts) = (Arc::new(asked), begun.attempts);
    job.run(begun.work, writer, stop, ended, room).await;
    Ok(())
}

/// Questions of tenants with runs that are continued.
#[derive(Debug, Default)]
struct Asked(HashMap<String, Vec<Approval>>);

impl Asked {
    /// Those of a run.
    async fn by(&mut self, store: &Arc<dyn Store>, tenant: &str, run: &str) -> Result<Vec<Approval>, StoreError> {
        if !self.0.contains_key(tenant) {
            self.0.insert(tenant.to_owned(), approvals_of(store, tenant).await?);
        }
        let all = self.0.get(tenant).into_iter().flatten();
        Ok(all.filter(|one| one.run == run).cloned().collect())
    }
}

async fn approvals_of(store: &Arc<dyn Store>, tenant: &str) -> Result<Vec<Approval>, StoreError> {
    let (mut all, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = store.list(APPROVALS, &place(tenant, ""), after.as_deref(), 500).await?;
        let Some((last, _)) = page.last() else { return Ok(all) };
        after = Some(last.clone());
        all.extend(page.iter().filter_map(|(_, found)| serde_json::from_slice::<Approval>(&found.value).ok()));
    }
}
