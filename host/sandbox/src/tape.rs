//! What host calls answered: kept while scripts run, or given again instead of what would answer.
//!
//! A run may have a [`Tape`]. It is told of each script that is called, with what, and of how that ended. Either it is
//! handed what each host call from outside of the instance answered, or it says beforehand what they are to answer, and
//! then nothing else is asked: no file, no server, no command, no clock.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::engine::Image;
use super::imports::Role;
use super::outcome::{LimitKind, Outcome, Source, Usage};
use super::price::Import;
use super::scheduling::admission::Busy;
use super::state::Session;
use super::stop::Stop;
use harness_sys::digest::digest;

/// Bytes of an answer that are kept whole, as JSON; of a longer one its length.
pub const MAX_ANSWER: usize = 1 << 20;
/// Bytes of all answers of one script that are kept whole.
pub const MAX_ANSWERS: usize = 8 << 20;

/// Who keeps answers, or gives them.
pub trait Tape: fmt::Debug + Send + Sync {
    /// A script is called. What its host calls are to answer, where they are not to be asked.
    fn begin(&self, script: &Script) -> Option<Given>;
    /// It has ended.
    fn end(&self, ran: Ran);
}

/// A script that is called, and what with.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Script {
    /// The artifact's file.
    pub file: String,
    /// The digest of its text.
    pub code: String,
    /// `tool`, `hook`, `when`, or `load` of one that is loaded.
    pub role: String,
    /// The digest of its arguments, or of an event and its payload.
    pub input: String,
}

/// How a script ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// Which.
    pub script: Script,
    /// `completed`, `failed`, `denied`, `limited`, `busy`, `fault`, or `abandoned` where nobody waited for its end.
    pub outcome: &'static str,
    /// The digest of what it gave, or why it gave nothing.
    pub result: String,
    /// What it used.
    pub usage: Usage,
    /// Which of its host calls, from 1, it waited for when its time was over.
    pub waited: Option<u64>,
    /// What its host calls answered, in order; nothing where that was given.
    pub answers: Vec<Answered>,
    /// Where it was refused because the host was busy.
    pub busy: Option<Busy>,
}

/// What host calls are to answer.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// In order.
    pub answers: VecDeque<Answered>,
    /// Where its time was over.
    pub late: Option<Late>,
    /// Whether nobody waited for its end any more: it comes to none.
    pub abandoned: bool,
    /// Where it was refused because the host was busy.
    pub busy: Option<Busy>,
}

/// A script whose time was over: it is ended at the same place again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late {
    /// The milliseconds that it had.
    pub allowed: u64,
    /// Where it was.
    pub place: LatePoint,
}

/// Where a script was when its time was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatePoint {
    /// It waited for this host call, from 1.
    Waiting(u64),
    /// It had used this much fuel.
    Computing(u64),
}

/// What a host call answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// Interface and function, such as `fs.read`.
    pub call: String,
    /// The digest of what it was given.
    pub given: String,
    /// The answer; none where it is too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Json>,
    /// Bytes of one that is too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u64>,
    /// Files that it changed beyond the one that each call counts for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub files: u64,
    /// Bytes that it copied.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub copied: u64,
    /// The limit that it told of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
}

impl Script {
    /// The load of a script that something with this input waits for.
    pub fn load(source: &Source, input: &str) -> Self {
        Self { file: source.file.clone(), code: source.code(), role: LOAD_ROLE.to_owned(), input: digest(input) }
    }

    /// Whether it is only loaded.
    pub fn is_load(&self) -> bool {
        self.role == LOAD_ROLE
    }
}

/// The role of a script that is loaded.
const LOAD_ROLE: &str = "load";
/// The role of a tool of another program.
const CALL_ROLE: &str = "mcp";
/// What is kept of a call of one.
const CALL: &str = "mcp.call";

/// How serde asks whether to leave a number out.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What work on the disk took beside its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Spent {
    pub(super) files: u64,
    pub(super) copied: u64,
    pub(super) over: Option<LimitKind>,
}

/// The tape of one script that runs.
pub struct Taping {
    tape: Arc<dyn Tape>,
    script: Script,
    started: Instant,
    given: Option<Given>,
    answers: Vec<Answered>,
    /// Bytes of answers that are kept.
    kept: usize,
    ended: bool,
}

impl Import {
    fn name(self) -> String {
        let (interface, function) = self.path();
        format!("{interface}.{function}")
    }
}

impl Taping {
    /// For a script that is about to be called in a run, where that has a tape.
    pub(super) fn begin(session: &Session, image: &Image, role: Role, input: &[&str]) -> Option<Box<Self>> {
        let tape = session.tape.clone()?;
        let role = if role == Role::Predicate { "when" } else { role.name() };
        // A length before each part: two parts are not one that looks like both.
        let input: String = input.iter().map(|part| format!("{} {part}", part.len())).collect();
        let script = Script {
            file: image.file().to_owned(),
            code: image.code().to_owned(),
            role: role.to_owned(),
            input: digest(&input),
        };
        let given = tape.begin(&script);
        let started = Instant::now();
        Some(Box::new(Self { tape, script, started, given, answers: Vec::new(), kept: 0, ended: false }))
    }

    /// For a call of a tool of another program, in a run that has a tape. `file` is what the tool is of, `code` what it was
    /// when it was locked, and `input` what it is called with.
    pub fn begin_call(session: &Session, file: &str, code: &str, input: &str) -> Option<Box<Self>> {
        let tape = session.tape.clone()?;
        let script =
            Script { file: file.to_owned(), code: digest(code), role: CALL_ROLE.to_owned(), input: digest(input) };
        let given = tape.begin(&script);
        Some(Box::new(Self {
            tape,
            script,
            started: Instant::now(),
            given,
            answers: Vec::new(),
            kept: 0,
            ended: false,
        }))
    }

    /// What such a call came to, where that is given: none in it where it was not kept.
    pub fn call_given(&mut self) -> Option<Option<Json>> {
        let given = self.given.as_mut()?;
        Some(given.answers.pop_front().and_then(|one| one.answer))
    }

    /// Whether nobody waited for the end of such a call any more: it comes to none.
    pub fn is_call_abandoned(&self) -> bool {
        self.is_abandoned()
    }

    /// Keeps what such a call came to.
    pub fn keep_call(&mut self, answer: Json) {
        self.keep(CALL.to_owned(), self.script.input.clone(), answer, Spent::default());
    }

    /// Reports how such a call ended.
    pub fn end_call(self: Box<Self>, outcome: &Outcome<String>) {
        self.end(outcome, Usage::default(), false);
    }

    /// The digest of what a host call is given, and what it answers, where that is said.
    pub(super) fn asked<A: DeserializeOwned>(
        &mut self,
        import: Import,
        params: &impl Serialize,
    ) -> Result<(String, Option<(A, Spent)>), Stop> {
        let text = serde_json::to_string(params).unwrap_or_default();
        let asked = digest(&text);
        let Some(given) = &mut self.given else { return Ok((asked, None)) };
        let name = import.name();
        // A script that has changed may leave out some of what it asked.
        let found = given.answers.iter().position(|one| one.call == name && one.given == asked);
        let Some(found) = found else {
            let late = given.late.is_some_and(|late| matches!(late.place, LatePoint::Waiting(_)));
            return Err(if late { Stop::Deadline } else { Stop::NotKept { import, too_long: false } });
        };
        let one = given.answers.drain(..=found).next_back();
        let spent = one.as_ref().map(Answered::spent).unwrap_or_default();
        let answer = one.and_then(|one| one.answer);
        // Nothing that was written is mended: an answer that cannot be read is none.
        let answer = answer.and_then(|answer| serde_json::from_value(answer).ok());
        let answer = answer.ok_or(Stop::NotKept { import, too_long: true })?;
        Ok((asked, Some((answer, spent))))
    }

    /// Keeps what a host call answered.
    pub(super) fn answered(&mut self, import: Import, given: String, answer: &impl Serialize, spent: Spent) {
        if self.given.is_some() {
            return;
        }
        self.keep(import.name(), given, serde_json::to_value(answer).unwrap_or_default(), spent);
    }

    fn keep(&mut self, call: String, given: String, answer: Json, spent: Spent) {
        let bytes = answer.to_string().len();
        let fits = bytes <= MAX_ANSWER && self.kept.saturating_add(bytes) <= MAX_ANSWERS;
        if fits {
            self.kept = self.kept.saturating_add(bytes);
        }
        self.answers.push(Answered {
            call,
            given,
            answer: fits.then_some(answer),
            omitted: (!fits).then_some(bytes as u64),
            files: spent.files,
            copied: spent.copied,
            over: spent.over.map(|kind| kind.name().to_owned()),
        });
    }

    /// Whether what its host calls answer is given.
    pub(super) fn is_given(&self) -> bool {
        self.given.is_some()
    }

    /// The time that it had, where that is given as over.
    pub(super) fn late(&self) -> Option<Late> {
        self.given.as_ref().and_then(|given| given.late)
    }

    /// Whether it does not end, as it is given.
    pub(super) fn is_abandoned(&self) -> bool {
        self.given.as_ref().is_some_and(|given| given.abandoned)
    }

    /// How it was refused, where the host was busy.
    pub(super) fn busy(&self) -> Option<Busy> {
        self.given.as_ref().and_then(|given| given.busy)
    }

    /// Reports how it ended.
    pub(super) fn end<R: Serialize>(mut self: Box<Self>, outcome: &Outcome<R>, usage: Usage, waits: bool) {
        let result = match outcome {
            Outcome::Completed(value) => digest(&serde_json::to_string(value).unwrap_or_default()),
            Outcome::Failed(failure) | Outcome::Denied { failure, .. } => match failure.line {
                0 => failure.message.clone(),
                line => format!("{} (line {line})", failure.message),
            },
            Outcome::Limited(limit) => limit.to_string(),
            Outcome::Busy(busy) => busy.to_string(),
            Outcome::Fault(why) => why.clone(),
        };
        let busy = if let Outcome::Busy(busy) = outcome { Some(*busy) } else { None };
        let late = matches!(outcome, Outcome::Limited(limit) if limit.kind == LimitKind::Deadline);
        let waited = (late && waits).then_some(usage.host_calls);
        self.tell(outcome.name(), result, usage, waited, busy);
    }

    fn tell(&mut self, outcome: &'static str, result: String, usage: Usage, waited: Option<u64>, busy: Option<Busy>) {
        self.ended = true;
        let usage = Usage { wall: self.started.elapsed(), ..usage };
        let (script, answers) = (self.script.clone(), std::mem::take(&mut self.answers));
        self.tape.end(Ran { script, outcome, result, usage, waited, answers, busy });
    }
}

impl Drop for Taping {
    fn drop(&mut self) {
        if !self.ended {
            self.tell("abandoned", String::new(), Usage::default(), None, None);
        }
    }
}

impl fmt::Debug for Taping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taping").field("script", &self.script).finish_non_exhaustive()
    }
}

impl Answered {
    fn spent(&self) -> Spent {
        let over = self.over.as_deref();
        let over = LimitKind::ALL.into_iter().find(|kind| Some(kind.name()) == over);
        Spent { files: self.files, copied: self.copied, over }
    }
}
