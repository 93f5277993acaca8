//! One call, from a name to an outcome: the only way in, for every caller.
//!
//! Resolve the name, check the arguments, run the tool in an instance of its own with its own grant, give back the
//! result as a model gets it.
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use harness::dispatch::{Options, Project};
//! use harness::sandbox::outcome::Outcome;
//! use harness::sandbox::state::Session;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let project = Project::open(Path::new("."), &Options::default())?;
//! let session = Arc::new(Session::default());
//! let report = project.call("word_count", serde_json::json!({"path": "README.md"}), &session).await?;
//! match report.outcome {
//!     Outcome::Completed(output) => println!("{}", output.content),
//!     other => println!("{}", other.name()),
//! }
//! println!("{} units of fuel", report.usage.fuel);
//! # Ok(())
//! # }
//! ```

mod content;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value as Json;

pub use content::ToolOutput;

use crate::artifact::arguments::ArgumentError;
use crate::artifact::hook::Hook;
use crate::artifact::policy::ProjectPolicy;
use crate::artifact::tool::Tool;
use crate::capability::fs::Workspace;
use crate::policy::grant::Grant;
use crate::policy::limits::Limits;
use crate::policy::refusal::Refusal;
use crate::registry::{Registry, UnknownTool};
use crate::sandbox::engine::{Image, Sandbox, ScriptError, Settings};
use crate::sandbox::outcome::{Entry, Failure, Outcome, Predicate, Report, Source};
use crate::sandbox::state::{Context, Session};

/// How to open a project.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder that tools work in; the one that holds `.harness/` where there is none.
    pub workspace: Option<PathBuf>,
    /// Calls at one time. The pools are sized by it; more is a host fault.
    pub concurrency: u32,
}

impl Default for Options {
    /// The project's own folder, and 16 calls at one time.
    fn default() -> Self {
        Self { workspace: None, concurrency: 16 }
    }
}

/// A project whose tools can be called. Shared by as many threads and callers as there are.
#[derive(Debug)]
pub struct Project {
    registry: Registry,
    policy: ProjectPolicy,
    workspace: Arc<Workspace>,
    sandbox: Sandbox,
    /// Scripts that were loaded, by the name of their tool.
    images: Mutex<HashMap<String, Image>>,
}

/// Why a project cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Something is wrong with its artifacts; the registry tells all of it. Nothing runs until it is mended: what is
    /// broken may be what was to guard the rest.
    #[error("{} of the project's artifacts cannot be used", .0.diagnostics().errors())]
    Artifacts(Box<Registry>),
    /// The folder that tools were to work in.
    #[error("cannot open the workspace `{}`: {source}", path.display())]
    Workspace {
        /// What was named.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The machine.
    #[error("cannot start the sandbox: {0:#}")]
    Sandbox(wasmtime::Error),
}

/// Why a call was not made.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no such tool.
    #[error(transparent)]
    Unknown(#[from] UnknownTool),
    /// The policy does not allow this tool to be called.
    #[error("{}", .0.reason)]
    NotAllowed(Refusal),
    /// The tool has no script.
    #[error("tool `{0}` has no implementation: its file has no `script`")]
    NoScript(String),
    /// The arguments do not fit its parameters. All that is wrong with them.
    #[error("the arguments of `{tool}` do not fit its parameters")]
    Arguments {
        /// Which tool.
        tool: String,
        /// What is wrong.
        errors: Vec<ArgumentError>,
    },
    /// Its script cannot be loaded.
    #[error("{}", .0.message)]
    Script(Failure),
    /// The host could not load it.
    #[error("{0}")]
    Host(String),
}

impl Project {
    /// Opens the project in a folder: the one that holds `.harness/`.
    ///
    /// # Errors
    ///
    /// Where any artifact cannot be used, the workspace is no folder, or the sandbox cannot be made.
    pub fn open(root: &Path, options: &Options) -> Result<Self, OpenError> {
        let registry = Registry::load(root);
        let policy = match registry.policy() {
            Some(policy) if !registry.diagnostics().has_errors() => policy.clone(),
            _ => return Err(OpenError::Artifacts(Box::new(registry))),
        };
        let folder = options.workspace.as_deref().unwrap_or(root);
        let workspace =
            Workspace::open(folder).map_err(|source| OpenError::Workspace { path: folder.to_owned(), source })?;
        let max_memory = Grant::new(vec![policy.project.clone()]).limits().memory_bytes;
        let settings = Settings { concurrency: options.concurrency, max_memory };
        let sandbox = Sandbox::new(settings).map_err(OpenError::Sandbox)?;
        Ok(Self { registry, policy, workspace: Arc::new(workspace), sandbox, images: Mutex::default() })
    }

    /// The project's artifacts.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The sandbox that its tools run in.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The folder that its tools work in.
    pub fn workspace(&self) -> &Arc<Workspace> {
        &self.workspace
    }

    /// What a tool may do: the project's policy, narrowed by its source's and by its own `capabilities:`.
    pub fn grant(&self, tool: &Tool) -> Grant {
        self.policy.grant_for(tool.source_name(), tool.capabilities.as_ref())
    }

    /// The limits of a call of this tool: its grant's, and its own `timeout_ms` where that is shorter.
    pub fn limits(&self, tool: &Tool) -> Limits {
        let mut limits = self.grant(tool).limits();
        if let Some(own) = tool.timeout_ms {
            limits.timeout = limits.timeout.min(Duration::from_millis(own));
        }
        limits
    }

    /// Calls a tool with a JSON object of arguments.
    ///
    /// # Errors
    ///
    /// Where the call was not made at all; how a call that was made ended is in its report.
    pub async fn call(
        &self,
        name: &str,
        arguments: Json,
        session: &Arc<Session>,
    ) -> Result<Report<ToolOutput>, CallError> {
        let tool = self.tool(name)?;
        tool.check_arguments(&arguments).map_err(|errors| CallError::Arguments { tool: tool.name.clone(), errors })?;
        let image = self.image(tool)?;
        let limits = self.limits(tool);
        let context =
            Context { grant: Arc::new(self.grant(tool)), workspace: self.workspace.clone(), session: session.clone() };
        let report = self.sandbox.run(&image, context, limits, &arguments.to_string()).await;
        let Report { outcome, usage, log, calls } = report;
        let outcome = match outcome {
            Outcome::Completed(json) => match content::output(&json, limits.output_bytes) {
                Ok(output) => Outcome::Completed(output),
                Err(error) => Outcome::Fault(format!("the interpreter gave no JSON: {error}")),
            },
            other => other.map(|_| ToolOutput::default()),
        };
        Ok(Report { outcome, usage, log, calls })
    }

    /// A tool that the policy allows to be called.
    ///
    /// # Errors
    ///
    /// Where there is none of this name or it may not be called.
    pub fn tool(&self, name: &str) -> Result<&Tool, CallError> {
        let tool = self.registry.tool(name)?;
        self.policy.tools.decide(name).map_err(CallError::NotAllowed)?;
        Ok(tool)
    }

    /// The tool's script, loaded. Done once, when the tool is first called or checked.
    ///
    /// # Errors
    ///
    /// Where it has no script, or one that cannot be loaded.
    pub fn image(&self, tool: &Tool) -> Result<Image, CallError> {
        let loaded = |images: &Mutex<HashMap<String, Image>>| {
            images.lock().unwrap_or_else(PoisonError::into_inner).get(&tool.name).cloned()
        };
        if let Some(image) = loaded(&self.images) {
            return Ok(image);
        }
        let source = source(tool).ok_or_else(|| CallError::NoScript(tool.name.clone()))?;
        // Not under the lock: loading takes milliseconds, and loading twice does no harm.
        let image = self.sandbox.load(&source).map_err(|error| match error {
            ScriptError::Script(failure) => CallError::Script(failure),
            error @ ScriptError::Host(_) => CallError::Host(error.to_string()),
        })?;
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(images.entry(tool.name.clone()).or_insert(image).clone())
    }
}

/// A tool's script as the interpreter takes it.
pub(crate) fn source(tool: &Tool) -> Option<Source> {
    let script = tool.script.as_ref()?;
    Some(Source {
        file: tool.source.file.to_string(),
        text: script.text.clone(),
        first_line: script.first_line,
        indent: script.indent,
        entry: Entry::Tool,
        predicate: None,
    })
}

/// Loads every script of a project, tools and hooks, and gives back what is wrong with them; nothing is called.
///
/// # Errors
///
/// Where the sandbox cannot be made.
pub fn check_scripts(registry: &Registry) -> wasmtime::Result<Vec<Failure>> {
    let sandbox = Sandbox::new(Settings { concurrency: 1, max_memory: Limits::default().memory_bytes })?;
    let tools = registry.tools().iter().filter_map(source);
    let hooks = registry.hooks().iter().filter_map(hook_source);
    let mut failures = Vec::new();
    for source in tools.chain(hooks) {
        match sandbox.load(&source) {
            Ok(_) => {}
            Err(ScriptError::Script(failure)) => failures.push(failure),
            Err(ScriptError::Host(error)) => return Err(error),
        }
    }
    Ok(failures)
}

/// A hook's script and its `when` as the interpreter takes them; none where it has neither.
fn hook_source(hook: &Hook) -> Option<Source> {
    if hook.script.is_none() && hook.when.is_none() {
        return None;
    }
    let (text, first_line, indent) = hook
        .script
        .as_ref()
        .map_or((String::new(), 1, 0), |script| (script.text.clone(), script.first_line, script.indent));
    let predicate = hook.when.as_ref().map(|when| Predicate {
        text: when.text.clone(),
        line: when.first_line,
        column: when.indent.saturating_add(1),
    });
    Some(Source { file: hook.source.file.to_string(), text, first_line, indent, entry: Entry::Hook, predicate })
}
