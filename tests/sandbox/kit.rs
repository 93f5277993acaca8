//! A sandbox with a workspace of its own, and calls in one line each.

use std::path::Path;
use std::sync::Arc;

use harness_artifact::policy::ProjectPolicy;
use harness_capability::fs::Workspace;
use harness_capability::system::System;
use harness_policy::grant::Grant;
use harness_policy::limits::Limits;
use harness_sandbox::engine::{Image, Sandbox, ScriptError, Settings};
use harness_sandbox::outcome::{Entry, Failure, FailureKind, Outcome, Predicate, Report, Source};
use harness_sandbox::state::{Context, Session};
use tempfile::TempDir;

/// What everything may be done with, for tests that are about something else.
pub(crate) const EVERYTHING: &str = "sandbox: { exec: { allow: [sh, sleep, echo] }, env: [HOME] }\n";

pub(crate) struct Kit {
    pub(crate) sandbox: Sandbox,
    pub(crate) folder: TempDir,
    pub(crate) session: Arc<Session>,
    workspace: Arc<Workspace>,
}

impl Kit {
    pub(crate) fn new() -> Self {
        Self::with_room_for(8)
    }

    /// A sandbox for this many calls at one time.
    pub(crate) fn with_room_for(concurrency: u32) -> Self {
        let settings = Settings { instances: concurrency, ..Settings::default() };
        let sandbox = Sandbox::new(settings).unwrap();
        // Without pools, what the tests say about them would be about something else.
        sandbox.pooling().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let workspace = Arc::new(Workspace::open(folder.path()).unwrap());
        Self { sandbox, folder, session: Arc::new(Session::default()), workspace }
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    #[track_caller]
    pub(crate) fn tool(&self, text: &str) -> Image {
        self.load(text, Entry::Tool, None).unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    #[track_caller]
    pub(crate) fn hook(&self, text: &str) -> Image {
        self.load(text, Entry::Hook, None).unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    /// A script as if it began at line 3 of its file, two columns in.
    #[track_caller]
    pub(crate) fn load(&self, text: &str, entry: Entry, when: Option<&str>) -> Result<Image, Failure> {
        let predicate = when.map(|text| Predicate { text: text.to_owned(), line: 2, column: 7 });
        let (file, text) = ("it.md".to_owned(), text.to_owned());
        let source = Source { file, text, first_line: 3, indent: 2, entry, predicate, coverage: false };
        self.sandbox.load(&source).map_err(|error| match error {
            ScriptError::Script(failure) => failure,
            over @ ScriptError::Over(_) => {
                let (kind, message, file) = (FailureKind::Script, over.to_string(), source.file.clone());
                Failure { kind, message, file, line: 0, column: 0, stack: Vec::new() }
            }
            ScriptError::Host(error) => panic!("{error:?}"),
        })
    }

    /// What a call may touch under a policy.
    #[track_caller]
    pub(crate) fn context(&self, policy: &str) -> Context {
        Context {
            grant: Arc::new(grant(policy)),
            workspace: self.workspace.clone(),
            session: self.session.clone(),
            turn: Arc::default(),
            namespace: None,
            system: Arc::new(System::default().with_environment()),
            http: Arc::default(),
            listener: None,
            secrets: Arc::default(),
            depth: 0,
            reentry: None,
        }
    }

    pub(crate) async fn run(&self, image: &Image, limits: Limits, args: &str) -> Report<String> {
        self.sandbox.run(image, self.context(EVERYTHING), limits, args).await
    }

    /// The result of a tool that must complete.
    #[track_caller]
    pub(crate) fn completes(&self, image: &Image, args: &str) -> impl Future<Output = String> {
        let call = self.sandbox.run(image, self.context(EVERYTHING), Limits::default(), args);
        async move {
            match call.await.outcome {
                Outcome::Completed(result) => result,
                other => panic!("{other:?}"),
            }
        }
    }
}

#[track_caller]
pub(crate) fn grant(policy: &str) -> Grant {
    let (policy, diagnostics) = ProjectPolicy::parse(".harness/harness.md", &format!("---\n{policy}---\n"));
    policy.unwrap_or_else(|| panic!("{diagnostics:?}")).grant_for("tools/it", None)
}

/// The message of a script that must have failed.
#[track_caller]
pub(crate) fn failure<R: std::fmt::Debug>(report: Report<R>) -> String {
    match report.outcome {
        Outcome::Failed(failure) => failure.message,
        other => panic!("{other:?}"),
    }
}
