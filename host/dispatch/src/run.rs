//! A run: what its calls share, and what they have added to it.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::ask::Respondent;
use super::builtin::BuiltIns;
use super::confirm::Confirmer;
use super::digest_key::DigestKey;
use super::past::Past;
use super::progress::{Progress, ProgressListener, ScriptLog};
use super::schedule::{Live, Replay, Schedule};
use super::tasks::Tasks;
use super::view::View;
use harness_artifact::cases::McpResult;
use harness_artifact::event::Event;
use harness_artifact::hook::Hook;
use harness_artifact::tool::Tool;
use harness_capability::log::LogListener;
use harness_capability::random::Random;
use harness_capability::turn::Turn;
use harness_gateway::Servers;
use harness_policy::grant::Grant;
use harness_policy::layer::Layer;
use harness_sandbox::engine::Image;
use harness_sandbox::state::Session;
use harness_sandbox::strand::{self, Strand};

/// One command of the command line, or one session of an agent, or one tenant's. Its calls share a cache, metrics, a
/// clock and what they add to the run; runs share nothing.
#[derive(Debug, Default)]
pub struct Run {
    session: Arc<Session>,
    /// What narrows every call of this run.
    layers: Vec<Layer>,
    added: RwLock<Arc<Added>>,
    /// What its scripts share outside of any turn of an agent.
    turn: Arc<Turn>,
    /// What is seen of that in none of its tasks.
    view: Arc<View>,
    /// The tools of the agent that its calls are for, where agents run.
    built_ins: OnceLock<Arc<dyn BuiltIns>>,
    /// Who is asked whether a call may be made that needs confirmation.
    confirmer: OnceLock<Arc<dyn Confirmer>>,
    /// Who answers the questions of its scripts.
    respondent: OnceLock<Arc<dyn Respondent>>,
    /// What its scripts have started and not waited for; its sub-agents have their own.
    tasks: Arc<Tasks>,
    /// What happens in none of them.
    strand: Arc<Strand>,
    /// Receives the progress of its calls.
    progress: OnceLock<Arc<dyn ProgressListener>>,
    /// The request of a client that it answers, where it does.
    request: OnceLock<ClientRequest>,
    /// What makes the digests that its hooks see.
    digest_key: OnceLock<DigestKey>,
    /// Where it replays a recording.
    schedule: OnceLock<Arc<dyn Schedule>>,
    /// The processes of servers that answer its calls.
    servers: OnceLock<Arc<Servers>>,
    /// Results of their tools, instead of the servers.
    fakes: OnceLock<Vec<McpResult>>,
}

/// The request of a client of another program that the calls of a run answer. The audit log has it with each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRequest {
    /// The name of the client, as it calls itself.
    pub client: String,
    /// The protocol of the request and its version, such as `mcp/2026-07-28`.
    pub protocol: String,
    /// The identifier that the client gave the request.
    pub id: String,
    /// The workspace that it is for, where its project has several and it is not the usual one.
    pub workspace: Option<String>,
}

/// What scripts have added to a run. Each call sees one state of it.
#[derive(Debug, Clone, Default)]
pub struct Added {
    /// How many additions have led here.
    pub additions: u64,
    pub(crate) tools: Vec<AddedTool>,
    /// Hooks, in the order in which they were added.
    pub hooks: Vec<AddedHook>,
}

/// A tool that a script has added.
#[derive(Debug, Clone)]
pub struct AddedTool {
    pub tool: Arc<Tool>,
    /// The grant of who added it.
    pub grant: Arc<Grant>,
    pub image: Image,
}

/// A hook that a script has added.
#[derive(Debug, Clone)]
pub struct AddedHook {
    pub hook: Arc<Hook>,
    /// The grant of who added it.
    pub grant: Arc<Grant>,
    pub image: Image,
}

impl Run {
    /// A run of its own.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A run with the host's side given: a fixed clock, canned answers, a seed.
    pub fn with_session(session: Session) -> Arc<Self> {
        Self::narrowed_with_session(Vec::new(), session)
    }

    /// The same, whose calls may do no more than these layers allow.
    pub fn narrowed_with_session(layers: Vec<Layer>, session: Session) -> Arc<Self> {
        Arc::new(Self { layers, session: Arc::new(session), ..Self::default() })
    }

    /// The key of the digests that its hooks see.
    pub fn digest_key(&self) -> &DigestKey {
        self.digest_key.get_or_init(DigestKey::random)
    }

    /// Sets the key of the digests that its hooks see: that of the run that it replays. Only the first one counts, and only
    /// before a hook has seen one.
    pub fn set_digest_key(&self, key: DigestKey) {
        let _first_counts = self.digest_key.set(key);
    }

    /// A run whose calls may do no more than these layers allow, whatever the project's policy grants: a caller with its
    /// own grant. Layers come from [`layer::parse`](harness_artifact::policy::layer::parse).
    pub fn narrowed(layers: Vec<Layer>) -> Arc<Self> {
        Arc::new(Self { layers, ..Self::default() })
    }

    /// What its calls share on the host's side.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The processes of servers that answer its calls. They end with the last run that has them.
    pub fn servers(&self) -> &Arc<Servers> {
        self.servers.get_or_init(Arc::default)
    }

    /// Gives results of tools of servers, none of which is called then; the first time counts.
    pub(crate) fn set_fakes(&self, fakes: Vec<McpResult>) {
        let _ = self.fakes.set(fakes);
    }

    pub(crate) fn fakes(&self) -> Option<&[McpResult]> {
        self.fakes.get().map(Vec::as_slice)
    }

    /// Lets it share the processes of servers with other runs of one caller, before its first call; the first time counts.
    pub fn set_servers(&self, servers: Arc<Servers>) {
        let _ = self.servers.set(servers);
    }

    /// Ends the processes of servers that it has, and waits for that.
    pub async fn end_servers(&self) {
        if let Some(servers) = self.servers.get() {
            servers.close().await;
        }
    }

    /// What its scripts share outside of any turn of an agent.
    pub fn turn(&self) -> &Arc<Turn> {
        &self.turn
    }

    /// The layers that narrow its calls.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The state of what was added, as it is now.
    pub fn added(&self) -> Arc<Added> {
        self.added.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what was added. Gives back the state before, and the one after or why it stays as it is.
    pub fn change<E>(&self, change: impl FnOnce(&mut Added) -> Result<(), E>) -> (Arc<Added>, Result<Arc<Added>, E>) {
        let mut current = self.added.write().unwrap_or_else(PoisonError::into_inner);
        let (seen, next) = (current.clone(), current.changed(change));
        if let Ok(next) = &next {
            current.clone_from(next);
        }
        (seen, next)
    }

    /// What strands of the run see of what it has added.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The built-in tools of calls that are made for no agent in particular.
    pub fn built_ins(&self) -> Option<Arc<dyn BuiltIns>> {
        self.built_ins.get().cloned()
    }

    /// Gives the run its agents; the first time counts.
    pub fn set_built_ins(&self, built_ins: Arc<dyn BuiltIns>) {
        let _ = self.built_ins.set(built_ins);
    }

    /// Says who is asked whether calls may be made that need confirmation; the first time counts. Without it they are
    /// denied.
    pub fn set_confirmer(&self, confirmer: Arc<dyn Confirmer>) {
        let _ = self.confirmer.set(confirmer);
    }

    pub(crate) fn confirmer(&self) -> Option<&dyn Confirmer> {
        self.confirmer.get().map(|confirmer| &**confirmer)
    }

    /// Sets who answers the questions of its scripts; the first one counts. Without one, a script that asks fails.
    pub fn set_respondent(&self, respondent: Arc<dyn Respondent>) {
        let _ = self.respondent.set(respondent);
    }

    pub(crate) fn respondent(&self) -> Option<&dyn Respondent> {
        self.respondent.get().map(|respondent| &**respondent)
    }

    /// Sets the listener that receives the progress of its calls; the first one counts.
    pub fn set_progress(&self, progress: Arc<dyn ProgressListener>) {
        let _ = self.progress.set(progress);
    }

    pub(crate) fn progress(&self, what: &Progress<'_>) {
        if let Some(progress) = self.progress.get() {
            progress.on_progress(what);
        }
    }

    /// Sets the request of a client that its calls answer; the first one counts.
    pub fn set_client_request(&self, request: ClientRequest) {
        let _ = self.request.set(request);
    }

    /// The request of a client that its calls answer.
    pub fn client_request(&self) -> Option<&ClientRequest> {
        self.request.get()
    }

    /// The listener of the log of a script, such as `tool deploy`, where the run has one.
    pub fn log_listener(&self, script: impl FnOnce() -> String) -> Option<Arc<dyn LogListener>> {
        let progress = self.progress.get()?.clone();
        Some(Arc::new(ScriptLog { progress, script: script() }))
    }

    /// The tasks of the run.
    pub fn tasks(&self) -> &Arc<Tasks> {
        &self.tasks
    }

    /// The identifier of a task: not to be guessed, unless the run's random numbers are.
    pub fn task_id(&self) -> String {
        let bytes = self.session.overrides.random.as_ref().unwrap_or(&Random::System).bytes(16);
        format!("task_{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    /// The strand that this is in: that of a task, else the run's own.
    pub fn strand(&self) -> Arc<Strand> {
        strand::current().unwrap_or_else(|| self.strand.clone())
    }

    /// Makes it the replay of a recording; the first time counts.
    pub fn set_past(&self, past: Arc<dyn Past>) {
        let _ = self.schedule.set(Arc::new(Replay(past)));
    }

    /// What decides when something of it happens.
    pub fn schedule(&self) -> &dyn Schedule {
        self.schedule.get().map_or(&Live, |schedule| &**schedule)
    }

    /// Waits for the tasks that had ended by now in the recording, where it replays one.
    pub async fn settled(&self) {
        self.schedule().settled().await;
    }
}

impl Added {
    /// The state after a change.
    ///
    /// # Errors
    ///
    /// Those of the change.
    pub fn changed<E>(&self, change: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<Arc<Self>, E> {
        let mut next = Self { additions: self.additions.saturating_add(1), ..self.clone() };
        change(&mut next)?;
        Ok(Arc::new(next))
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&AddedTool> {
        self.tools.iter().find(|added| added.tool.name == name)
    }

    pub(crate) fn hooks_of(&self, event: &Event) -> impl Iterator<Item = &AddedHook> {
        self.hooks.iter().filter(move |added| added.hook.event.value == *event)
    }
}
