//! What a client gets of a project that is not open.

use axum::http::StatusCode;
use harness_dispatch::OpenError;
use harness_registry::Registry;

use crate::problem::Problem;
use crate::tenant::Unopened;
use crate::workspaces;

/// Errors of a project that are reported.
const MAX_ERRORS: usize = 20;

/// What a client gets of a project that is not open.
pub(crate) fn problem(error: &Unopened) -> Problem {
    match error {
        Unopened::None => Problem::new(StatusCode::CONFLICT, "no_project", "the tenant has no project yet")
            .hint("upload one: `PUT /v1/project` with a tar archive"),
        Unopened::NoWorkspace(name) => workspaces::unknown(name),
        Unopened::Project(OpenError::Artifacts(registry)) => rejected(registry),
        Unopened::Store(error) => error.clone().into(),
        Unopened::Project(_) | Unopened::Host(_) => Problem::fault(),
    }
}

/// What is wrong with the artifacts of a project.
fn rejected(registry: &Registry) -> Problem {
    let errors: Vec<_> = registry
        .diagnostics()
        .iter()
        .take(MAX_ERRORS)
        .map(|one| {
            let at = one.position.as_ref();
            serde_json::json!({
                "message": one.message,
                "hint": one.hint,
                "file": at.map(|at| &*at.file),
                "line": at.map(|at| at.line),
                "column": at.map(|at| at.column),
            })
        })
        .collect();
    let count = registry.diagnostics().errors();
    let detail = format!("{count} of the project's artifacts cannot be used");
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "project", detail).with("errors", errors)
}
