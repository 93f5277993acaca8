//! The call of a script's built-in instead of a tool, such as `exec.run` or `exec`: a model may try that, and no
//! decision of a hook makes it run. Hooks see it as they see any call, so that a guard can say what to call instead.

use std::sync::Arc;

use serde_json::Value as Json;

use super::chain::CallContext;
use super::pipeline::CallReport;
use harness_artifact::lint;
use harness_policy::grant::Grant;
use harness_policy::refusal::Refusal;
use harness_sandbox::outcome::{Failure, FailureKind, Outcome};

/// Whether a model means a built-in by this name: `exec.run`, as scripts write it, or `exec` alone. Those that delegate are
/// tools of the host as well, where there are agents.
pub(super) fn is_built_in(name: &str) -> bool {
    let (first, function) = name.split_once('.').unwrap_or((name, "run"));
    let is_word = !function.is_empty() && function.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_word && !first.starts_with("delegate") && lint::is_built_in(first)
}

/// Asks the hooks on `tool.pre`, and rejects the call whatever they decide.
pub(super) async fn reject(place: &CallContext, id: String, name: &str, arguments: &Json) -> CallReport {
    let pre = place.before(&id, (name, None), arguments).await;
    let blocked = pre.as_ref().and_then(|pre| pre.decision.blocked());
    let grant = Arc::new(Grant::new(Vec::new()));
    let mut report = CallReport::begun(id, name.to_owned(), grant, pre);
    match blocked {
        Some(reason) => report.block("tool blocked", &reason),
        None => {
            let reason = format!("`{name}` is a built-in of scripts, not a tool");
            let refusal = Refusal::new(reason.clone(), "call a tool whose script uses it");
            report.end(Outcome::Denied { failure: Failure::without_place(FailureKind::Denied, "", reason), refusal });
        }
    }
    let most = report.grant.limits().output_bytes;
    report.cut(most);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_built_ins() {
        for name in ["exec.run", "exec", "fs.read", "fs", "http.get", "meta.call_tool", "ctx", "env", "secret", "sleep"]
        {
            assert!(is_built_in(name), "{name}");
        }
        for name in ["", "len", "delegate", "exec.", "exec_run", "run.exec", "fs.read.x", "my.tool", ".run", "fs.re ad"]
        {
            assert!(!is_built_in(name), "{name}");
        }
    }
}
