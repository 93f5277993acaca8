//! Questions whether calls of runs may be made, and their answers by people.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use harness_dispatch::confirm::{Answer, Confirmer, Question};
use harness_store::{Expected, Store, Versioned};
use harness_sys::digest::digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::{Runs, bytes, fresh, place};
use crate::api::Caller;
use crate::problem::Problem;
use crate::server::Server;
use crate::tenants::now;
use crate::webhooks::event::Event;

/// Where it has questions whether calls may be made: `TENANT/APPROVAL`.
pub(crate) const APPROVALS: &str = "approvals";
/// How long a question waits for an answer, in milliseconds: a day.
const PATIENCE: u64 = 86_400_000;

/// A question whether a call may be made, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Approval {
    pub(crate) id: String,
    pub(crate) run: String,
    /// The call that it is about, by its identifier in the run. None: a script makes it, whose calls have the same identifiers.
    #[serde(default)]
    pub(crate) call: Option<String>,
    /// The key whose run asks.
    pub(crate) asked_by: String,
    /// The workspace that the run works in.
    #[serde(default = "super::usual")]
    pub(crate) workspace: String,
    pub(crate) tool: String,
    /// The file of the tool.
    pub(crate) artifact: String,
    /// Why it is asked.
    pub(crate) rule: String,
    /// The arguments that will run.
    pub(crate) arguments: Json,
    /// Their digest: an answer names it.
    pub(crate) args_digest: String,
    /// Until when it may be answered, in milliseconds since 1970.
    pub(crate) expires: u64,
    /// The answer, `yes` or `no`, with the key that gave it. None: it waits, expired, or its run has ended.
    pub(crate) answer: Option<(String, String)>,
}

impl Approval {
    /// When it was asked. An answer comes within a day of it.
    pub(crate) fn asked(&self) -> u64 {
        self.expires.saturating_sub(PATIENCE)
    }
}

impl Runs {
    /// Questions that wait for an answer and that a key sees, the oldest first.
    pub(crate) async fn approvals(&self, store: &dyn Store, caller: &Caller) -> Result<Vec<Approval>, Problem> {
        let (tenant, key) = (&caller.tenant()?.id(), &caller.key.record);
        let mut open: Vec<Approval> = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = store.list(APPROVALS, &place(tenant, ""), after.as_deref(), 500).await?;
            let Some((last, _)) = page.last() else { return Ok(open) };
            after = Some(last.clone());
            for (_, found) in &page {
                let approval: Approval = serde_json::from_slice(&found.value).map_err(|_| Problem::fault())?;
                // That of a run that has ended cannot be answered any more.
                let waits = self.waits(&approval);
                if waits
                    && key.has_workspace(&approval.workspace)
                    && approval.answer.is_none()
                    && approval.expires > now()
                {
                    open.push(approval);
                }
            }
        }
    }

    /// Whether its run waits for the answer, or will ask again since another process began it.
    fn waits(&self, approval: &Approval) -> bool {
        self.waiting().contains_key(&approval.id) || self.resuming().contains(&approval.run)
    }

    /// Answers a question. The first answer counts.
    ///
    /// # Errors
    ///
    /// There is no such question, it is about other arguments, it was answered, its time is over, or who answers has asked.
    pub(crate) async fn answer(
        &self,
        store: &dyn Store,
        caller: &Caller,
        id: &str,
        is_yes: bool,
        args_digest: &str,
    ) -> Result<Approval, Problem> {
        let (tenant, by) = (&caller.tenant()?.id(), &caller.key.record.id);
        let gone = |why: &str| Problem::new(StatusCode::CONFLICT, "answered", why);
        let found = store.get(APPROVALS, &place(tenant, id)).await?;
        let Versioned { version, value } = found.ok_or_else(|| Problem::not_found("there is no such question"))?;
        let mut approval: Approval = serde_json::from_slice(&value).map_err(|_| Problem::fault())?;
        if !caller.key.record.has_workspace(&approval.workspace) {
            return Err(Problem::not_found("there is no such question"));
        }
        if approval.asked_by == *by {
            return Err(Problem::new(StatusCode::FORBIDDEN, "own_call", "nobody approves a call of their own"));
        }
        if approval.args_digest != args_digest {
            let why = "the answer is to other arguments than those that will run";
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "other_arguments", why));
        }
        if approval.answer.is_some() {
            return Err(gone("it was answered already"));
        }
        if approval.expires <= now() {
            return Err(gone("its time is over"));
        }
        // Only a run that waits is asked about: of a process that was ended, nothing waits.
        if !self.waits(&approval) {
            return Err(gone("the run that asked has ended"));
        }
        approval.answer = Some((if is_yes { "yes" } else { "no" }.to_owned(), by.clone()));
        store.put(APPROVALS, &place(tenant, id), Expected::Version(version), bytes(&approval)?).await?;
        if let Some(waits) = self.waiting().remove(id) {
            let _ = waits.send(if is_yes { Answer::Yes } else { Answer::No });
        }
        Ok(approval)
    }
}

/// Asks people whether calls of a run may be made.
#[derive(Debug)]
pub(super) struct Asks {
    pub(super) server: Arc<Server>,
    pub(super) tenant: String,
    pub(super) run: String,
    pub(super) workspace: String,
    pub(super) asked_by: String,
    pub(super) events: UnboundedSender<Json>,
    /// What the run asked in an earlier process.
    pub(super) earlier: Arc<Vec<Approval>>,
}

impl Asks {
    /// The same question, where an earlier process asked it: about this call, of this artifact with these arguments.
    fn asked_before(&self, new: &Approval) -> Option<Approval> {
        let is_same = |one: &&Approval| {
            (&one.call, &one.tool, &one.artifact, &one.rule, &one.args_digest)
                == (&new.call, &new.tool, &new.artifact, &new.rule, &new.args_digest)
        };
        // Of a call that a script makes nobody knows whether it is the one that was asked about.
        new.call.as_ref()?;
        self.earlier.iter().find(is_same).cloned()
    }

    async fn ask(&self, question: &Question<'_>) -> Result<Answer, Problem> {
        let approval = Approval {
            id: fresh("apr"),
            run: self.run.clone(),
            call: question.call.map(str::to_owned),
            asked_by: self.asked_by.clone(),
            workspace: self.workspace.clone(),
            tool: question.tool.to_owned(),
            artifact: question.artifact.to_owned(),
            rule: question.rule.to_owned(),
            arguments: question.arguments.clone(),
            args_digest: digest(&question.arguments.to_string()),
            expires: now().saturating_add(PATIENCE),
            answer: None,
        };
        let approval = self.asked_before(&approval).unwrap_or(approval);
        let events = (&self.server.webhooks, &*self.server.tenants.store);
        let (sender, receiver) = oneshot::channel();
        self.server.runs.waiting().insert(approval.id.clone(), sender);
        let _waits = Waits { runs: &self.server.runs, id: approval.id.clone() };
        let store = &self.server.tenants.store;
        let here = place(&self.tenant, &approval.id);
        match store.get(APPROVALS, &here).await? {
            None => drop(store.put(APPROVALS, &here, Expected::Absent, bytes(&approval)?).await?),
            Some(found) => {
                let found: Approval = serde_json::from_slice(&found.value).map_err(|_| Problem::fault())?;
                if let Some((answer, _)) = &found.answer {
                    // The process may have ended before that was kept to be sent.
                    let _ = events.0.emit(events.1, &self.tenant, &Event::answered(&found)).await;
                    return Ok(if answer == Answer::Yes.name() { Answer::Yes } else { Answer::No });
                }
            }
        }
        // It can be answered, whether or not that can be sent.
        let _ = events.0.emit(events.1, &self.tenant, &Event::requested(&approval)).await;
        let _ = self.events.send(json!({
            "type": "waiting", "approval": approval.id, "tool": approval.tool, "args_digest": approval.args_digest,
        }));
        let left = Duration::from_millis(approval.expires.saturating_sub(now()));
        let answer = match tokio::time::timeout(left, receiver).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Answer::No,
        };
        let _ = self.events.send(json!({"type": "answered", "approval": approval.id, "answer": answer.name()}));
        Ok(answer)
    }
}

/// A question that waits. When it does so no more, nobody can answer it.
struct Waits<'r> {
    runs: &'r Runs,
    id: String,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.runs.waiting().remove(&self.id);
    }
}

impl Confirmer for Asks {
    fn confirm<'a>(
        &'a self,
        question: &'a Question<'a>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        // What cannot be asked is not allowed.
        Box::pin(async move { self.ask(question).await.unwrap_or(Answer::No) })
    }
}

/// What a client can do whose call needs confirmation, and that waits for its answer.
pub const ANSWERED_LATER: &str =
    "send the call with `Prefer: respond-async`, and let a key with the role `approver` answer";

/// Confirms nothing: a request that waits for its answer has nobody to ask.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NobodyWaits;

impl Confirmer for NobodyWaits {
    fn confirm<'a>(&'a self, _: &'a Question<'a>) -> std::pin::Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        Box::pin(std::future::ready(Answer::Nobody))
    }

    fn without(&self, _: &str) -> String {
        ANSWERED_LATER.to_owned()
    }
}
