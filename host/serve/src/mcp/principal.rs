//! What a key adds to the calls of its clients: its rules, its name in the audit log, budgets, and who confirms.

use std::sync::Arc;

use harness_dispatch::CallReport;
use harness_dispatch::confirm::{Answer, Confirmer, Question};
use harness_mcp::{Admission, NotAdmitted, Principal};
use harness_policy::layer::Layer;

use crate::api::{Caller, calls};
use crate::problem::Problem;
use crate::role::Action;
use crate::server::Server;
use crate::tenants::now;

/// A key of a tenant.
#[derive(Debug)]
pub(super) struct OfKey {
    pub(super) server: Arc<Server>,
    pub(super) caller: Caller,
    /// The workspace that its calls are in, where it is not the usual one.
    pub(super) workspace: Option<String>,
}

impl OfKey {
    async fn admitted(&self) -> Result<(), Problem> {
        self.server.accepts_work().await?;
        let ledger = &self.caller.tenant()?.ledger;
        ledger.admit(now()).await.map_err(|refused| Problem::refused(&refused, now()))
    }
}

impl Principal for OfKey {
    fn layers(&self) -> Vec<Layer> {
        // Without a tenant, nobody gets here.
        self.caller.tenant().map(|tenant| tenant.layers(&self.caller.key)).unwrap_or_default()
    }

    fn client(&self, name: &str) -> String {
        format!("{}: {name}", calls::name_of(&self.caller))
    }

    fn workspace(&self) -> Option<String> {
        self.workspace.clone()
    }

    fn admit(&self) -> Admission<'_> {
        Box::pin(async move {
            self.admitted()
                .await
                .map_err(|problem| NotAdmitted { why: problem.detail().to_owned(), data: Some(problem.as_json()) })
        })
    }

    fn spend(&self, report: &CallReport) {
        let _ = calls::spend(&self.server, &self.caller, report);
    }

    /// A key that could answer the question as an approval. One that could not would answer for those who may.
    fn may_confirm(&self) -> bool {
        self.caller.key.record.may(Action::Approve)
    }
}

/// Confirms nothing by itself: people do, at the client or as an approval.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByApprovers;

impl Confirmer for ByApprovers {
    fn confirm<'a>(&'a self, _: &'a Question<'a>) -> std::pin::Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        Box::pin(std::future::ready(Answer::Nobody))
    }

    fn without(&self, tool: &str) -> String {
        format!(
            "send the call to `/v1/tools/{tool}/calls` with `Prefer: respond-async`, and let a key with the role `approver` answer; \
             or use a key of an `owner` in a client with elicitation"
        )
    }
}
