//! Tools whose implementation is part of the program that embeds the host.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use serde_json::Value as Json;

use harness_policy::limits::Limits;
use harness_sandbox::outcome::{Failure, FailureKind, Limit, LimitKind, Outcome};

/// An implementation for a tool that is declared without a script. It is found, described, checked and governed by
/// hooks like any other, but it is the embedder's own code and runs outside of the sandbox.
pub trait NativeTool: fmt::Debug + Send + Sync {
    /// Runs on arguments that fit the tool's parameters. The deadline of the call's policy holds: the future is dropped
    /// when it has passed. An error is the failed call's message.
    fn call(&self, arguments: Json) -> Pin<Box<dyn Future<Output = Result<Json, String>> + Send + '_>>;
}

/// Runs one within its time.
pub(super) async fn native_outcome(native: &dyn NativeTool, arguments: &Json, limits: &Limits) -> Outcome<String> {
    match tokio::time::timeout(limits.timeout, native.call(arguments.clone())).await {
        Ok(Ok(result)) => Outcome::Completed(result.to_string()),
        Ok(Err(message)) => Outcome::Failed(Failure::without_place(FailureKind::Script, "", message)),
        Err(_) => {
            let allowed = u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX);
            Outcome::Limited(Limit::of(LimitKind::Deadline, allowed))
        }
    }
}
