//! A run of the past that is run again: what it said of tasks and of time is said again, and not found out again.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::run::Added;
use harness_capability::progress::Step;
use harness_sandbox::tape::Script;

/// What a run of the past knows. Each is asked in the strand that it is about.
pub trait Past: fmt::Debug + Send + Sync {
    /// How the task began whose strand has this name; nothing where the past knows none.
    fn began(&self, strand: &str) -> Option<Began>;

    /// What was seen of tasks the next time that the strand asked for some; nothing where that is where it was cut.
    fn looked(&self) -> Option<Looked>;

    /// What the strand saw of what was added to the run when it looked for the `look`th time.
    fn saw(&self, look: u64) -> Seen;

    /// What was added after so many additions, once it is; nothing where nobody makes them any more.
    fn state(&self, additions: u64) -> Pin<Box<dyn Future<Output = Option<Arc<Added>>> + Send + '_>>;

    /// Such a state is here.
    fn keep(&self, added: &Arc<Added>);

    /// A task has ended, or never will.
    fn over(&self, task: &str);

    /// Waits for the tasks that this strand has begun, and those that they have begun, as far as they ended.
    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// The milliseconds that a task had, where they were over before it was.
    fn late_task(&self, task: &str) -> Option<u64>;

    /// Whether the time of a delegation was over before it was done.
    fn late_delegation(&self, id: &str) -> bool;

    /// How the next load of this script ended that nobody got an image of; nothing where the past knows none.
    fn load(&self, script: &Script) -> Option<LoadEnd>;

    /// What the last turn of the root had shown of an answer that it does not have; nothing where the conversation does not
    /// keep it.
    fn unfinished(&self) -> Option<String>;

    /// How the next turn of an agent at work went.
    fn turn(&self, by: &str) -> Went;
}

/// How a turn went, as far as that is not found out again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Went {
    /// Whether its time was over before it was done.
    pub late: bool,
    /// What budgets refused it, where who takes the last of one is a matter of luck: several agents were at work at one
    /// time.
    pub refused: Option<Option<Refused>>,
}

/// A budget had no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// `round`, `token` or `call`.
    pub what: String,
    /// How much of it was used.
    pub used: u64,
    /// How much is allowed.
    pub allowed: u64,
    /// What says so.
    pub set_by: String,
    /// How often the turn had been given something before.
    pub after: u64,
}

/// How a load ended that its caller got no image of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadEnd {
    /// The time of its caller was over.
    Late {
        /// The error that the caller got.
        why: String,
        /// The milliseconds that it had.
        allowed: u64,
        /// Fuel that the load had used.
        fuel: u64,
    },
    /// The caller was ended while it waited.
    Abandoned,
}

/// How a task began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Began {
    /// With this identifier.
    As(String),
    /// Not at all: why.
    Refused(String),
}

/// What was seen of tasks that were asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looked {
    /// Those that were asked for.
    pub asked: Vec<String>,
    /// Those of them that had ended.
    pub ended: Vec<String>,
    /// Those of them whose end nobody had been told of before.
    pub news: Vec<String>,
    /// One that was asked for and is not there: nobody learned of any then.
    pub missing: Option<String>,
}

/// What a strand saw of what was added to its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The past does not say: what there is now.
    Anew,
    /// What it saw before and what it has added itself.
    Same,
    /// The state after some additions.
    Other {
        /// How many.
        additions: u64,
        /// Whether it made another one then.
        adds: bool,
    },
}

/// A strand saw what another one had added to their run, or added something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saw {
    /// How often it had looked: one that is no task, since its turn began.
    pub look: u64,
    /// How many additions it saw.
    pub additions: u64,
    /// The name of what it added then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adds: Option<String>,
}

/// Something that happened to a call of an agent, beside what its report says.
#[derive(Debug)]
pub enum Happened<'a> {
    /// Someone is asked whether it may be made: nothing of it was done so far, but what hooks on `tool.pre` did. Not of calls
    /// that scripts make.
    Asks {
        /// Identifier of the call.
        call: &'a str,
        /// Name of the tool.
        tool: &'a str,
    },
    /// Someone was asked whether it may be made.
    Confirmed {
        /// Identifier of the call.
        call: &'a str,
        /// Name of the tool.
        tool: &'a str,
        /// What was answered.
        answer: super::confirm::Answer,
    },
    /// It continues as a task, in a strand of this name, or cannot.
    Began {
        /// Identifier of the call.
        call: &'a str,
        /// Name of the tool.
        tool: &'a str,
        /// Name of the strand.
        strand: &'a str,
        /// Identifier of the task, or why there is none.
        task: Result<&'a str, &'a str>,
    },
    /// A task has ended.
    Ended {
        /// Identifier of the task.
        task: &'a str,
        /// How its call ended.
        report: &'a super::CallReport,
        /// Its time in milliseconds, if that was over before.
        late: Option<u64>,
    },
    /// A task was ended with whom it belongs to.
    Abandoned {
        /// Identifier of the task.
        task: &'a str,
        /// Name of its tool.
        tool: &'a str,
    },
    /// A tool reported how far it is.
    Step {
        /// Name of the tool.
        tool: &'a str,
        /// What it reported.
        step: &'a Step,
    },
    /// Tasks were asked for.
    Looked(&'a Looked),
    /// What is added to the run was seen, or added to.
    Saw(&'a Saw),
}
