//! The principal of a client: whose requests a server answers, what narrows them, and where they are counted.
//!
//! A program that serves its own operator has [`Operator`]. One that serves many keys makes a [`Server`](crate::Server) for
//! each of them, so that nothing which one has begun can be named by another.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use harness_dispatch::{CallReport, Loaded};
use harness_policy::grant::Grant;
use harness_policy::layer::Layer;
use rmcp::model::{ErrorCode, ErrorData};
use serde_json::Value as Json;

use crate::message::BUSY;

/// What an admission comes to.
pub type Admission<'a> = Pin<Box<dyn Future<Output = Result<(), NotAdmitted>> + Send + 'a>>;

/// Whose requests a server answers.
pub trait Principal: Debug + Send + Sync {
    /// Returns the layers that narrow each of its calls, as they are now.
    fn layers(&self) -> Vec<Layer>;

    /// Returns what the audit log calls a client that gives itself this name.
    fn client(&self, name: &str) -> String;

    /// Returns the workspace that its calls are in, where the audit log has to say it.
    fn workspace(&self) -> Option<String> {
        None
    }

    /// Admits one call, before anything of it runs.
    fn admit(&self) -> Admission<'_>;

    /// Counts what a call used that was made.
    fn spend(&self, report: &CallReport);

    /// Whether the person at the client may confirm calls of this principal.
    fn may_confirm(&self) -> bool;
}

/// Why a call is not admitted.
#[derive(Debug, Clone, PartialEq)]
pub struct NotAdmitted {
    /// The reason, as a sentence without a full stop.
    pub why: String,
    /// What programs can read of it: the limit, who set it, and when it ends.
    pub data: Option<Json>,
}

impl From<NotAdmitted> for ErrorData {
    fn from(NotAdmitted { why, data }: NotAdmitted) -> Self {
        Self::new(ErrorCode(BUSY.0), why, data)
    }
}

/// The operator of this process: nothing narrows or counts what its clients do.
#[derive(Debug, Clone, Copy)]
pub struct Operator;

impl Principal for Operator {
    fn layers(&self) -> Vec<Layer> {
        Vec::new()
    }

    fn client(&self, name: &str) -> String {
        name.to_owned()
    }

    fn admit(&self) -> Admission<'_> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn spend(&self, _: &CallReport) {}

    fn may_confirm(&self) -> bool {
        true
    }
}

/// What a client may do with files, where no artifact acts for it: what the project may, within these layers.
pub(crate) fn grant(loaded: &Loaded, layers: &[Layer]) -> Grant {
    let grant = loaded.policy().grant_for("", None);
    if layers.is_empty() { grant } else { grant.meet(&Grant::new(layers.to_vec())) }
}
