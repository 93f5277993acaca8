//! Runs untrusted tools and policy hooks for AI agents, each call in a WebAssembly instance of its own.
//!
//! This crate is the facade for programs that embed Harness. The crates below it (`harness-dispatch`, `harness-sandbox`
//! and so on) are its parts: their items are not public API and change without notice.
//!
//! Three programs in `host/examples` show the parts together: `call_tool`, `agent` with a model and a confirmer of its
//! own, and `hundred_projects` in one process. `cargo run --release --example NAME` runs one.
//!
//! # Call a tool
//!
//! A [`Project`] is opened once and shared by all threads. Calls belong to a [`Run`], which holds what they share and may
//! narrow what they are granted. How a call ended is the [`Outcome`] in its [`CallReport`]; a call that was not made at
//! all is a [`CallError`].
//!
//! ```no_run
//! use std::path::Path;
//!
//! use harness::{Options, Project, Run, layer};
//! use serde_json::json;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let project = Project::open(Path::new("."), Options::default())?;
//!
//! // A caller that may read `docs` and nothing else, whatever the project's policy grants.
//! let (own, _) = layer::parse("caller", "fs: { read: [docs] }");
//! let run = Run::narrowed(own.into_iter().collect());
//!
//! let report = project.call("word_count", json!({"path": "docs/guide.md"}), &run).await?;
//! println!("{}: {}", report.outcome.name(), report.content);
//! println!("{} units of fuel, its hooks included", report.total().fuel);
//! # Ok(())
//! # }
//! ```
//!
//! # Ask the hooks
//!
//! [`Project::fire`] dispatches an [`Event`] to the project's hooks and returns their [`Decision`], with a record of each
//! hook that ran. Calls fire their own events.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use harness::{Event, Options, Project, Run};
//! use serde_json::json;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let project = Project::open(Path::new("."), Options::default())?;
//! let run = Run::new();
//! let fired = project.fire(&Event::SessionEnd, json!(null), &run).await;
//! println!("{:?}", fired.decision);
//! # Ok(())
//! # }
//! ```
//!
//! # Serve many projects
//!
//! A [`Host`] owns what exists once in a process, and opens projects that share it. Each has a [`Quota`] of it. A call for
//! which there is no room within its deadline ends as [`Outcome::Busy`].
//!
//! ```no_run
//! use std::path::Path;
//!
//! use harness::{Host, HostOptions, Options, Quota, Run};
//! use serde_json::json;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::new(HostOptions::default().instances(256))?;
//! let quota = Quota::default().weight(200).concurrent_calls(8).queued_calls(100);
//! let project = host.open(Path::new("tenants/one"), Options { quota, ..Options::default() })?;
//! let report = project.call("word_count", json!({"path": "a.md"}), &Run::new()).await?;
//! println!("{}", report.outcome.name());
//! # Ok(())
//! # }
//! ```
//!
//! # Take changed files in force
//!
//! [`Project::reload`] reads the folder again. If anything in it cannot be used, it returns the error and the project
//! keeps what it had; calls that are running keep what they began with in any case.
//!
//! [`Project::watch`] does that after each change of a file, until its [`FileWatch`] is dropped. The listener hears how each
//! reload ended.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use harness::{OpenError, Options, Project, WatchError};
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let project = Project::open(Path::new("."), Options::default())?;
//! let watch = project.watch(|reloaded| match reloaded {
//!     Ok(()) => println!("the new version is in force"),
//!     Err(WatchError::Load(OpenError::Artifacts(registry))) => {
//!         for diagnostic in registry.diagnostics().iter() {
//!             eprintln!("{}", registry.render(diagnostic, false));
//!         }
//!     }
//!     Err(error) => eprintln!("{error}"),
//! })?;
//! // Calls go by the version that is in force when they begin.
//! drop(watch);
//! # Ok(())
//! # }
//! ```
//!
//! # Run an agent
//!
//! A [`Session`] is a conversation with the project's agent. [`Configured`] connects the models that `harness.md` names;
//! a program that brings its own implements [`Models`] and [`Provider`]. A [`Listener`] hears of all that happens.
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use harness::{Configured, Options, Project, Run, Session, Silent, System, Variables};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let root = Path::new(".");
//! // Nothing of the process's environment is there that is not given: here the keys of models are.
//! let options = Options { system: System::default().with_environment(), ..Options::default() };
//! let project = Project::open(root, options)?;
//! let models = Configured::new(root, &project.loaded().policy().models, &Variables::Host);
//! let run = Run::new();
//! let mut session = Session::start(&project, &run, Arc::new(models), Arc::new(Silent)).await?;
//! let turn = session.turn("What is in docs?").await?;
//! println!("{}", turn.text);
//! # Ok(())
//! # }
//! ```

// A project, its calls and its events.
pub use harness_artifact::event::Event;
pub use harness_artifact::policy::layer;
pub use harness_capability::ask;
pub use harness_capability::env::Variables;
pub use harness_capability::progress::Step;
pub use harness_capability::system::System;
pub use harness_dispatch::ask::{Respondent, Unanswered};
pub use harness_dispatch::blocks;
pub use harness_dispatch::confirm::{Answer, Confirmer, Question};
pub use harness_dispatch::progress::{Progress, ProgressListener};
pub use harness_dispatch::{
    Block, Call, CallError, CallReport, Content, Decision, Dispatch, FileWatch, HookRun, Host, HostOptions, NativeTool,
    OpenError, Options, Project, Run, ToolOutput, Verdict, WatchError,
};
pub use harness_policy::layer::Layer;
pub use harness_registry::{Machine, Registry, Unsaved};

// How a call ended.
pub use harness_sandbox::outcome::{Failure, FailureKind, Frame, Limit, LimitKind, Outcome, Usage};

// What a project may have of its host, and a workspace hold.
pub use harness_capability::fs::{Space, SpaceQuota};
pub use harness_sandbox::scheduling::admission::{Busy, BusyLimit};
pub use harness_sandbox::scheduling::quota::{Quota, Share};

// An agent and its models.
pub use harness_agent::{
    AgentEvent, Configured, EventSource, Listener, Model, Models, Session, Silent, Turn, TurnError,
};
pub use harness_provider::{
    Abilities, Delta, Finish, Form, Message, Pending, Provider, ProviderError, Reply, Request, ToolCall, ToolSchema,
    Usage as TokenUsage,
};

// For the process of an embedder.
pub use harness_dispatch::confinement;
pub use harness_sys::memory::give_back as give_back_memory;
pub use harness_sys::slices::ask_for_short_slices;
pub use harness_wall::confine;
