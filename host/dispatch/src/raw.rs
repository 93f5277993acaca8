//! The call of a script's built-in in the place of a tool, such as `exec.run`: a model may try that, and no decision of a
//! hook makes it run. Hooks see it as they see any call, so that a guard can say what to call instead.

use std::sync::Arc;

use serde_json::Value as Json;

use super::chain::Place;
use super::pipeline::CallReport;
use harness_policy::grant::Grant;
use harness_policy::refusal::Refusal;
use harness_sandbox::outcome::{Failure, FailureKind, Outcome};

/// What a script calls a built-in of, before the dot.
const NAMESPACES: [&str; 26] = [
    "base64", "cache", "crypto", "ctx", "events", "exec", "fs", "hash", "http", "json", "log", "math", "meta",
    "metrics", "os", "parallel", "random", "re", "set", "string", "task", "template", "time", "url", "uuid",
    "validate",
];

/// Whether this is the name of a built-in, as scripts write it.
pub(super) fn is_built_in(name: &str) -> bool {
    name.split_once('.').is_some_and(|(namespace, function)| {
        let is_word = !function.is_empty() && function.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_word && NAMESPACES.contains(&namespace)
    })
}

/// Asks the hooks on `tool.pre`, and rejects the call whatever they decide.
pub(super) async fn reject(place: &Place, id: String, name: &str, arguments: &Json) -> CallReport {
    let pre = place.before(&id, name, arguments).await;
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
        for name in ["exec.run", "fs.read", "http.get", "meta.call_tool"] {
            assert!(is_built_in(name), "{name}");
        }
        for name in ["exec", "exec.", "exec_run", "run.exec", "fs.read.x", "my.tool", ".run", "fs.re ad"] {
            assert!(!is_built_in(name), "{name}");
        }
    }
}
