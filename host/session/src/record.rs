//! The lines of a session's record, typed.
//!
//! A line is a JSON object: `at`, microseconds since the session began; `by`, the agent at work that it is about, where
//! it is about one; `kind`; and what that kind has. The first is the [`Header`].

mod turns;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

pub use turns::{Continued, Forgot, Switched, Turn, Turned};

use harness_dispatch::Saw;
use harness_sandbox::scheduling::admission::Busy;
use harness_sandbox::tape::{Answered, Script};

/// The form of a record. Another one is another program's.
pub const VERSION: u32 = 1;

/// The root agent's name in `by`.
pub const ROOT: &str = "root";

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Microseconds since the session began.
    pub at: u64,
    /// The agent at work that it is about: `root`, or the delegation that it works for. Empty where it is about none.
    pub by: String,
    /// The strand that it happened in: empty, or that of a task.
    pub strand: String,
    /// What happened.
    pub what: What,
}

/// What happened. The name of the variant, in lower case, is the `kind` of its line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum What {
    /// The first line.
    Session(Header),
    /// An agent begins a turn.
    Turn(Turn),
    /// The root continues a turn of the session that this one resumes, which was interrupted.
    Continued(Continued),
    /// A message took its place in an agent's conversation.
    Said(Said),
    /// A model was asked.
    Asked(Asked),
    /// It failed to answer and is asked again.
    Retry(Retry),
    /// It answered.
    Reply(Reply),
    /// It failed to answer.
    Unanswered(Unanswered),
    /// A model could not be had.
    Unmade(Unmade),
    /// Hooks decided on an event of the loop.
    Event(Decided),
    /// A call begins.
    Calling(Calling),
    /// It has ended.
    Called(Box<Called>),
    /// A sub-agent was started.
    Delegated(Delegated),
    /// Its result was judged.
    Judged(Judged),
    /// It is done.
    Returned(Returned),
    /// A task that continues beside the turn began, or ended.
    Task(Task),
    /// Tasks were asked for.
    Looked(Looked),
    /// What scripts have added to the run was seen again, or added to.
    Saw(Saw),
    /// A person is asked whether a call may be made.
    Question(Question),
    /// What was answered, or that nobody was asked.
    Confirmation(Confirmation),
    /// A script ran: what a replay needs of it.
    Script(ScriptRan),
    /// A turn ended.
    Turned(Turned),
    /// Nobody waits for the end of a turn any more: it was stopped, or took too long.
    Stopped {
        /// What was shown of the answer, which the conversation keeps with a mark. None: it keeps none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        said: Option<String>,
    },
    /// Messages of the conversation were dropped.
    Forgot(Forgot),
    /// The agent runs on another model from here on.
    Switched(Switched),
    /// From here on, answers of host calls are not kept: there are too many.
    Full {},
    /// The session was ended in order.
    Ended {},
}

/// What a session ran on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Of this format.
    pub version: u32,
    /// The session's name, which is its file's.
    pub id: String,
    /// When it began, UTC.
    pub started: String,
    /// The version of this program.
    pub harness: String,
    /// The digest of the interpreter that scripts run in.
    pub interpreter: String,
    /// `run` or `deploy`.
    pub command: String,
    /// The session that it resumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<String>,
    /// The model of the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The digest of `harness.md`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The key of the digests that hooks saw, which a replay needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest_key: Option<String>,
    /// The digests of all files of artifacts, and of the policies.
    pub artifacts: BTreeMap<String, String>,
}

/// A message took its place in a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// Its place, from 0. What the conversation held from there on is void.
    pub place: u64,
    /// The message as chat completions have it. None: the agent's last reply, as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Json>,
}

/// A model was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Which time in this turn, from 1.
    pub round: u32,
    /// The model.
    pub model: String,
    /// How many messages it got.
    pub messages: u64,
    /// How many tools it got.
    pub tools: u64,
    /// Most tokens of what it is sent.
    pub room: u64,
    /// The digest of the messages.
    pub said: String,
    /// The digest of the tools, and of what else was asked for.
    pub offered: String,
}

/// A model is asked again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Why.
    pub error: String,
    /// After how long.
    pub pause_us: u64,
}

/// A model's reply, as it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// What the service calls it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The model that answered.
    pub model: String,
    /// What it says.
    pub text: String,
    /// What it calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// Why it ended.
    pub finish: String,
    /// What the service counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// How long that took, pauses included.
    pub took_us: u64,
}

/// What a model calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as chat completions have them")]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub arguments: String,
}

/// Tokens that a service counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Of the request.
    pub input: u64,
    /// Of the reply.
    pub output: u64,
}

/// A model failed to answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// Why.
    pub error: String,
    /// How long that took.
    pub took_us: u64,
}

/// A model could not be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmade {
    /// Its name; none: that of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Why.
    pub error: String,
}

/// What hooks decided on an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The event.
    pub event: String,
    /// Which hook blocked it, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// Its hooks in the order they are called.
    pub hooks: Vec<HookRan>,
}

/// One hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookRan {
    /// Its name.
    pub hook: String,
    /// Its file.
    pub file: String,
    /// `allow`, `modify`, `block`, `error`, `skip` or `not reached`.
    pub verdict: String,
    /// Why it blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What went wrong without ending anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What it and its host calls did.
    #[serde(default, skip_serializing_if = "Work::is_none")]
    pub work: Work,
}

/// What a script did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Units of fuel.
    pub fuel: u64,
    /// From its start to its end.
    pub wall_us: u64,
    /// The most linear memory at one time, in bytes.
    pub peak_memory: u64,
    /// How many host calls it made.
    pub host_calls: u64,
    /// The first of them, and the refused ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostCalled>,
    /// The first lines that it logged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<Logged>,
    /// What it started in turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub started: Vec<Started>,
}

impl Work {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// A host call, without what it answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCalled {
    /// Interface and function.
    pub call: String,
    /// What it was about: a path, a URL, a command.
    pub subject: String,
    /// How long it took.
    pub wall_us: u64,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A line that a script logged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the words are the interface's")]
pub struct Logged {
    pub level: String,
    pub message: String,
}

/// What a script started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Started {
    /// An event.
    Event(Decided),
    /// A call of a tool.
    Call(Box<Called>),
    /// A sub-agent, whose lines are its own.
    Agent(String),
    /// What there was no room for, all after those before it.
    Rest(Rest),
}

/// What scripts started of which no more is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// How many events and calls.
    pub count: u64,
    /// The fuel that they used.
    pub fuel: u64,
}

/// A call begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calling {
    /// What the model calls it by: the call of that identifier in its conversation has the arguments.
    pub call: String,
    /// The tool.
    pub tool: String,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Called {
    /// As in [`Calling`].
    pub call: String,
    /// The tool.
    pub tool: String,
    /// The task that it is the end of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<String>,
    /// `completed`, `failed`, `denied`, `limited`, `fault`, or `rejected` where it was not made.
    pub outcome: String,
    /// Why it did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether its caller got an error.
    pub is_error: bool,
    /// The digest of what its caller got.
    pub content: String,
    /// Fuel of the call, its hooks and what they started.
    pub fuel: u64,
    /// From its start to its end, hooks included.
    pub took_us: u64,
    /// The hooks before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre: Option<Decided>,
    /// The tool itself.
    #[serde(default, skip_serializing_if = "Work::is_none")]
    pub work: Work,
    /// How its `verify` judged that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verified>,
    /// The hooks after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<Decided>,
}

/// How the `verify` of a tool judged one of its calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Why the call is not accepted; nothing where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What it did.
    #[serde(default, skip_serializing_if = "Work::is_none")]
    pub work: Work,
}

/// A sub-agent was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegated {
    /// The sub-agent.
    pub to: String,
    /// Which time, from 1.
    pub attempt: u32,
}

/// The policy's script has judged a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The sub-agent's.
    pub of: String,
    /// Why it is not accepted; nothing where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// How long that took.
    pub took_us: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// The delegation.
    #[serde(default)]
    pub id: String,
    /// The sub-agent.
    pub from: String,
    /// The digest of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether its time was over before it was done.
    #[serde(default, skip_serializing_if = "is_false")]
    pub late: bool,
}

/// How serde asks whether to leave something out.
fn is_false(value: &bool) -> bool {
    !value
}

/// Work that continues beside a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// `began`; `refused` where it could not; how it ended, as of a call, or `abandoned` where it was ended with whom it
    /// belongs to.
    pub state: String,
    /// The tool.
    pub tool: String,
    /// Its identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Of one that began, the call that it resumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Of one that began, the strand that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens: Option<String>,
    /// Why it could not begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Milliseconds that it had, where they were over before it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<u64>,
    /// What it did and what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<Box<Called>>,
}

/// Tasks were asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// Which.
    pub asked: Vec<String>,
    /// Those of them that had ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<String>,
    /// Those of them whose end was not reported before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<String>,
    /// One that is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// A person is asked whether a call may be made, of which nothing was done so far but its hooks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The call.
    pub call: String,
    /// The tool.
    pub tool: String,
}

/// A person was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmation {
    /// The call that it is about.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// `yes`, `no`, or `nobody` where there was nobody to ask.
    pub answer: String,
}

/// A script ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScriptRan {
    /// Which, and with what.
    pub script: Script,
    /// As of a call, or `abandoned`.
    pub outcome: String,
    /// The digest of what it gave, or why it gave nothing.
    pub result: String,
    /// Units of fuel.
    pub fuel: u64,
    /// The most linear memory at one time, in bytes.
    pub peak_memory: u64,
    /// From its start to its end.
    pub wall_us: u64,
    /// Which of its host calls, from 1, it waited for when its time was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<u64>,
    /// What its host calls answered, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Answered>,
    /// Why it was refused, where the host was busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Busy>,
}

impl Line {
    /// As it is written.
    pub fn to_json(&self) -> Json {
        let mut object = Map::new();
        object.insert("at".to_owned(), self.at.into());
        if !self.by.is_empty() {
            object.insert("by".to_owned(), self.by.clone().into());
        }
        if !self.strand.is_empty() {
            object.insert("strand".to_owned(), self.strand.clone().into());
        }
        // A kind and its fields, by the way that serde shows an enum.
        if let Ok(Json::Object(tagged)) = serde_json::to_value(&self.what) {
            for (kind, fields) in tagged {
                object.insert("kind".to_owned(), kind.into());
                if let Json::Object(fields) = fields {
                    object.extend(fields);
                }
            }
        }
        Json::Object(object)
    }

    /// Reads what [`to_json`](Self::to_json) gives.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in a few words.
    pub fn from_json(value: Json) -> Result<Self, String> {
        let Json::Object(mut fields) = value else { return Err("it is not a JSON object".to_owned()) };
        let at = fields.shift_remove("at").and_then(|at| at.as_u64()).ok_or("it has no time")?;
        let mut text = |key: &str| match fields.shift_remove(key) {
            None => Ok(String::new()),
            Some(Json::String(text)) => Ok(text),
            Some(_) => Err(format!("`{key}` is not text")),
        };
        let (by, strand) = (text("by")?, text("strand")?);
        let Some(Json::String(kind)) = fields.shift_remove("kind") else { return Err("it has no kind".to_owned()) };
        let tagged = Map::from_iter([(kind.clone(), Json::Object(fields))]);
        let what = serde_json::from_value(Json::Object(tagged));
        Ok(Self {
            at,
            by,
            strand,
            what: what.map_err(|error| format!("it is not a line of the kind {kind:?}: {error}"))?,
        })
    }
}
