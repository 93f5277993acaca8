//! What happens to a tenant, and what is sent of it: identifiers and states, and never arguments, results or secrets.

use harness_sys::digest::digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::budget::Exceeded;
use crate::runs::{Approval, RunRecord};
use crate::tenants::now;

/// What a webhook may be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// A run has completed.
    #[serde(rename = "run.finished")]
    RunFinished,
    /// A run has ended otherwise.
    #[serde(rename = "run.failed")]
    RunFailed,
    /// A call waits for confirmation.
    #[serde(rename = "approval.requested")]
    ApprovalRequested,
    /// A question was answered.
    #[serde(rename = "approval.answered")]
    ApprovalAnswered,
    /// A request was refused, because a budget is used up. Once in its period.
    #[serde(rename = "budget.exhausted")]
    BudgetExhausted,
    /// A client has asked for it.
    #[serde(rename = "webhook.test")]
    Test,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    /// When, in milliseconds since 1970.
    at: u64,
    /// What it is about: two events of one kind about the same are one.
    about: String,
    data: Json,
}

impl Event {
    /// The end of a run.
    pub(crate) fn ended(run: &RunRecord) -> Self {
        let kind = if run.state == "completed" { Kind::RunFinished } else { Kind::RunFailed };
        let at = run.ended.unwrap_or(run.created);
        let data = json!({
            "run": run.id, "kind": run.kind, "tool": run.tool, "state": run.state, "session": run.session,
            "created": run.created, "ended": run.ended,
        });
        Self { kind, at, about: run.id.clone(), data }
    }

    /// A call waits.
    pub(crate) fn requested(approval: &Approval) -> Self {
        let data = json!({
            "approval": approval.id, "run": approval.run, "tool": approval.tool, "expires": approval.expires,
        });
        Self { kind: Kind::ApprovalRequested, at: approval.asked(), about: approval.id.clone(), data }
    }

    /// It was answered.
    pub(crate) fn answered(approval: &Approval) -> Self {
        let answer = approval.answer.as_ref().map(|(answer, _)| answer);
        let data = json!({
            "approval": approval.id, "run": approval.run, "tool": approval.tool, "answer": answer,
        });
        Self { kind: Kind::ApprovalAnswered, at: approval.asked(), about: approval.id.clone(), data }
    }

    /// A budget is used up.
    pub(super) fn budget(exceeded: &Exceeded) -> Self {
        let Exceeded { budget, resource, limit, resets } = exceeded;
        let data = json!({
            "budget": budget, "unit": resource.unit(), "limit": resource.shown(*limit), "resets": resets,
        });
        Self { kind: Kind::BudgetExhausted, at: *resets, about: format!("{budget} {resets}"), data }
    }

    /// One that a client has asked for.
    pub(super) fn test(about: &str) -> Self {
        Self { kind: Kind::Test, at: now(), about: about.to_owned(), data: json!({}) }
    }

    /// The identifier of what a webhook gets of it: always the same, and in the order of time.
    pub(super) fn id_for(&self, tenant: &str, webhook: &str) -> String {
        let kind = json!(self.kind);
        let whole = digest(&format!("{tenant} {webhook} {kind} {}", self.about));
        let short: String = whole.chars().skip("sha256:".len()).take(20).collect();
        format!("msg_{:011x}{short}", self.at)
    }

    /// What is sent.
    pub(super) fn body(&self, id: &str) -> String {
        let moment = OffsetDateTime::from_unix_timestamp(i64::try_from(now() / 1000).unwrap_or_default()).ok();
        let moment = moment.and_then(|moment| moment.format(&Rfc3339).ok());
        json!({"id": id, "type": self.kind, "timestamp": moment, "data": self.data}).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunRecord {
        RunRecord {
            id: "run_1".to_owned(),
            key: "k".to_owned(),
            workspace: "default".to_owned(),
            kind: "turn".to_owned(),
            tool: None,
            state: "completed".to_owned(),
            created: 1,
            ended: Some(2),
            session: None,
            result: Some(json!({"answer": "the secret of the house"})),
        }
    }

    #[test]
    fn an_event_has_one_identifier_for_each_webhook_and_nothing_of_a_result() {
        let event = Event::ended(&run());
        let id = event.id_for("acme", "wh_1");
        assert_eq!(id, Event::ended(&run()).id_for("acme", "wh_1"));
        let failed = Event::ended(&RunRecord { state: "denied".to_owned(), ..run() });
        assert_eq!((event.kind, failed.kind), (Kind::RunFinished, Kind::RunFailed));
        let others = [event.id_for("acme", "wh_2"), event.id_for("globex", "wh_1"), failed.id_for("acme", "wh_1")];
        assert!(!others.contains(&id) && id.len() == 35, "{id}");
        let body = event.body(&id);
        assert!(body.contains("\"type\":\"run.finished\"") && !body.contains("the secret"), "{body}");
    }
}
