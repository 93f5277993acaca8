//! The agent loop: a model, the tools that it calls, the hooks around everything, and sub-agents.
//!
//! A [`Session`] is a conversation with a project's agent. Each turn asks the model, makes the calls that it wants
//! through [`dispatch`](harness_dispatch) as any other caller would, gives their results back, and continues until the
//! model has nothing more to call. What one agent sets another to do is a turn of that one, one level deeper.
//!
//! - `turn`: one turn, round by round, and the rest of one that was interrupted
//! - `runtime`: an agent at work: its artifacts, its model, its depth
//! - `delegation`: the tool `delegate`, and what judges its result
//! - `context`: what a model would see
//! - `background`: agents and tools that run in the background
//! - `exchange`: what hooks see of a request and a reply, and may change
//! - `window`: how much of a conversation a model gets
//! - `ledger`: what agents have used of their budgets
//! - `partial`: what was said in a turn that has no answer
//! - `failures`: how often in a row each tool has failed it
//! - `activity`: the calls and results of a turn
//! - `models`: which model answers whom
//! - [`compare`]: what one policy allows that another one does not

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make files and programs"))]

mod activity;
mod as_json;
mod background;
mod boxed;
pub mod compare;
mod configured;
mod context;
mod conversation;
mod delegation;
mod error;
mod exchange;
mod failures;
mod ledger;
mod listener;
mod logged;
mod models;
mod partial;
mod prose;
mod replies;
mod runtime;
mod sentences;
mod settings;
mod skills;
mod spans;
#[cfg(test)]
mod subset_tests;
mod turn;
mod window;

use std::sync::Arc;

use serde_json::Value as Json;

pub use activity::Activity;
pub use as_json::event_as_json;
pub use configured::{Configured, RepliesFile, replies_files};
pub use context::{Context, Section, context};
pub use error::TurnError;
pub use listener::{AgentEvent, EventSource, Listener, Silent};
pub use models::{Model, Models};
pub use partial::{Ending, closing};
pub use settings::{allowances, bounds};
pub use turn::{Interrupted, Turn};

use self::boxed::boxed;
use self::conversation::Conversation;
use self::models::Watched;
use self::runtime::{Crew, Runtime};
use self::sentences::COMPACT;
use self::settings::Settings;
use harness_artifact::event::Event;
use harness_dispatch::tasks::{Owner, Tasks};
use harness_dispatch::{Dispatch, Project, Run};
use harness_policy::text::quoted;
use harness_provider::{Message, ToolSchema, Usage};

/// A conversation with a project's agent. It uses the artifacts and the policy that were in force when it began.
#[derive(Debug)]
pub struct Session {
    runtime: Arc<Runtime>,
    /// What its calls belong to.
    run: Arc<Run>,
    history: Conversation,
    /// How the last turn ended, if it has no answer.
    ending: Ending,
    /// What continues by itself ends with the session.
    _tasks: Owner,
}

impl Session {
    /// Starts a session and fires `session.start`. A run has at most one session.
    ///
    /// # Errors
    ///
    /// Returns an error if a hook blocks the session.
    pub async fn start(
        project: &Project,
        run: &Arc<Run>,
        models: Arc<dyn Models>,
        listener: Arc<dyn Listener>,
    ) -> Result<Self, TurnError> {
        let runtime = root(project, run, models, listener);
        let here = runtime.place(run);
        let dispatch = boxed(here.fire(&Event::SessionStart, Json::Null)).await;
        runtime.notify(&AgentEvent::Event { agent: "", dispatch: &dispatch });
        match dispatch.decision.blocked() {
            Some(reason) => Err(TurnError::Blocked { what: "session", reason }),
            None => {
                let tasks = run.tasks().owner();
                Ok(Self {
                    runtime,
                    run: run.clone(),
                    history: Conversation::default(),
                    ending: Ending::Stopped,
                    _tasks: tasks,
                })
            }
        }
    }

    /// Returns the session with the conversation of another one, which it resumes.
    #[must_use]
    pub fn after(mut self, history: Vec<Message>) -> Self {
        for (at, message) in history.iter().enumerate() {
            self.runtime.notify(&AgentEvent::Said { agent: "", at, message });
        }
        self.history = history.into();
        self
    }

    /// Sends a message to the agent and returns its answer. A turn that is canceled (its future dropped) or fails leaves a
    /// conversation that can continue: the next turn finds what was said in it, marked as stopped or failed.
    ///
    /// # Errors
    ///
    /// Returns what ended the turn without an answer. Hooks on `error` have run by then.
    pub async fn turn(&mut self, text: &str) -> Result<Turn, TurnError> {
        self.close_last_turn();
        self.runtime.begin();
        self.run.view().restart();
        let given_up = GivenUp(Some(self.runtime.tasks.clone()));
        let place = self.runtime.place(&self.run);
        let turn = boxed(turn::turn(&self.runtime, &place, &mut self.history, text)).await;
        given_up.not();
        if turn.is_err() {
            self.ending = Ending::Failed;
        }
        turn
    }

    /// Continues a turn that was interrupted with its process, in the conversation that the session was given. Calls of its
    /// last reply that had not begun are made. Of one that had, the result is unknown: it is made again if its tool says
    /// `effect: none` or `effect: idempotent`, and else the model gets an error that says so.
    ///
    /// # Errors
    ///
    /// As for [`turn`](Self::turn).
    pub async fn continue_turn(&mut self, turn: &Interrupted) -> Result<Turn, TurnError> {
        // Nothing of it was said.
        if turn.began >= self.history.len() {
            return self.turn(&turn.text).await;
        }
        self.runtime.begin();
        self.run.view().restart();
        let given_up = GivenUp(Some(self.runtime.tasks.clone()));
        let place = self.runtime.place(&self.run);
        let ended = boxed(turn::rest(&self.runtime, &place, &mut self.history, turn)).await;
        given_up.not();
        if ended.is_err() {
            self.ending = Ending::Failed;
        }
        ended
    }

    /// Drops all messages of the conversation.
    pub fn clear(&mut self) {
        self.close_last_turn();
        self.forget(self.history.len());
    }

    /// Drops the messages before a place of the conversation, which is counted from its beginning.
    pub fn forget(&mut self, before: usize) {
        self.close_last_turn();
        self.history.forget(before);
        self.runtime.notify(&AgentEvent::Forgot { agent: "", before });
    }

    /// Asks the agent for a summary in a turn of its own, which replaces the conversation.
    ///
    /// # Errors
    ///
    /// Returns what ended the turn; the conversation stays as it is then.
    pub async fn compact(&mut self) -> Result<Turn, TurnError> {
        let turn = self.turn(COMPACT).await?;
        self.forget(self.history.began());
        Ok(turn)
    }

    /// Runs the agent on another model of the project from the next turn on.
    ///
    /// # Errors
    ///
    /// Returns the reason if the project has no such model, or if it is unavailable.
    pub fn use_model(&mut self, name: &str) -> Result<(), String> {
        let found = self.runtime.crew.models.profile(name);
        let model = found.ok_or_else(|| format!("no model of the project has the name {}", quoted(name)))??;
        self.runtime.choose(model);
        self.runtime.notify(&AgentEvent::Switched { agent: "", model: name });
        Ok(())
    }

    /// Returns the name of the model that the agent runs on.
    ///
    /// # Errors
    ///
    /// Returns the reason if there is none.
    pub fn model(&self) -> Result<String, String> {
        self.runtime.model().map(|model| model.name)
    }

    /// Closes a turn that has no answer by what was said in it and a mark.
    fn close_last_turn(&mut self) {
        let ending = std::mem::replace(&mut self.ending, Ending::Stopped);
        let said = self.runtime.partial.take().and_then(|said| self.run.schedule().unfinished(said));
        if let Some(said) = said {
            self.history.close_turn(closing(&said, ending));
        }
    }

    /// Ends the session: cancels its background tasks, and fires `session.end`, which nothing can block.
    pub async fn end(self) -> Dispatch {
        self.run.settled().await;
        self.runtime.tasks.cancel();
        self.runtime.tasks.gone().await;
        let place = self.runtime.place(&self.run).now(None).await;
        let dispatch = boxed(place.fire(&Event::SessionEnd, Json::Null)).await;
        self.runtime.notify(&AgentEvent::Event { agent: "", dispatch: &dispatch });
        dispatch
    }

    /// Returns the conversation without the system prompt: the last turn, and the earlier messages that a model may still
    /// get.
    pub fn history(&self) -> &[Message] {
        self.history.messages()
    }

    /// Returns the tools that the model is offered now: those of the project, those that the run has added, and the built-in
    /// ones, except those that the policy denies.
    pub fn tools(&self) -> Vec<ToolSchema> {
        self.runtime.tools(&self.runtime.place(&self.run))
    }

    /// Returns the names of the hooks in force: those of the project, and those that the run has added.
    pub fn hooks(&self) -> Vec<String> {
        let added = self.run.added();
        let all = self.runtime.loaded.registry().hooks().iter().chain(added.hooks.iter().map(|one| &one.hook));
        all.map(|hook| hook.name.clone()).collect()
    }

    /// Returns the tokens that the services of the models have counted so far, for every request that was answered, also in
    /// failed and canceled turns and by sub-agents.
    pub fn usage(&self) -> Usage {
        self.runtime.crew.counted.usage()
    }

    /// Returns what the last turn had shown of an answer that it does not have.
    pub fn unfinished(&self) -> Option<String> {
        self.runtime.partial.get()
    }

    /// Returns the calls of the last turn, also if it failed or was canceled.
    pub fn activity(&self) -> Activity {
        self.runtime.crew.activity()
    }
}

/// Cancels the background tasks when a turn is canceled.
struct GivenUp(Option<Arc<Tasks>>);

impl GivenUp {
    fn not(mut self) {
        self.0 = None;
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.iter().for_each(|tasks| tasks.cancel());
    }
}

/// Gives the calls of a run the sub-agents of its project, without a conversation: a script's `delegate(...)` works
/// then.
pub fn attach(project: &Project, run: &Arc<Run>, models: Arc<dyn Models>) {
    attach_with(project, run, models, Arc::new(Silent));
}

/// The same with a listener, which receives the events of all agents that the calls start.
pub fn attach_with(project: &Project, run: &Arc<Run>, models: Arc<dyn Models>, listener: Arc<dyn Listener>) {
    root(project, run, models, listener);
}

fn root(project: &Project, run: &Arc<Run>, models: Arc<dyn Models>, listener: Arc<dyn Listener>) -> Arc<Runtime> {
    let loaded = project.loaded();
    let settings = Settings::of(loaded.policy());
    let crew = Arc::new(Crew::new(Arc::new(Watched::new(models, listener.clone())), listener, settings));
    let runtime = Arc::new(Runtime::root(crew, loaded, run.tasks().clone()));
    run.set_built_ins(runtime.clone());
    runtime
}
