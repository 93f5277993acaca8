//! Writes the events of an agent, and the answers that its scripts got, as lines.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::convert::{self, micros};
use super::record::{Forgot, Header, Line, Question, ROOT, Said, ScriptRan, Switched, What};
use super::writer::Writer;
use harness_agent::{AgentEvent, EventSource, Listener};
use harness_capability::secrets::Vault;
use harness_dispatch::{DigestKey, Run};
use harness_policy::layer::Layer;
use harness_provider::{Message, Reply};
use harness_sandbox::state::Session;
use harness_sandbox::strand;
use harness_sandbox::tape::{Answered, Given, Ran, Script, Tape};

/// Bytes of answers of host calls that are kept of one session.
const MAX_ANSWERS: usize = 64 << 20;

/// Records one session, and passes each event on.
#[derive(Debug)]
pub struct Recorder {
    began: Instant,
    secrets: Arc<Vault>,
    listener: Arc<dyn Listener>,
    /// What makes the digests that the hooks of its run see.
    digest_key: Option<DigestKey>,
    state: Mutex<State>,
    /// Notified when a line could not be written.
    lost: Notify,
}

/// Where lines go.
#[derive(Debug)]
enum Sink {
    File(Writer),
    Memory(Vec<Line>),
    /// Nowhere any more.
    Gone,
}

#[derive(Debug)]
struct State {
    sink: Sink,
    /// Until it is written.
    header: Option<Box<Header>>,
    /// What each agent at work got last from its model.
    replies: HashMap<String, Message>,
    /// Bytes of answers that may still be kept.
    room: usize,
    trouble: Option<String>,
}

impl Recorder {
    /// Of a session whose lines go to a file.
    pub(super) fn to_file(writer: Writer, header: Header, secrets: Arc<Vault>, listener: Arc<dyn Listener>) -> Self {
        Self::new(Sink::File(writer), Some(Box::new(header)), secrets, listener)
    }

    /// Of a session whose lines are only looked at.
    pub(super) fn to_memory(secrets: Arc<Vault>, listener: Arc<dyn Listener>) -> Self {
        Self::new(Sink::Memory(Vec::new()), None, secrets, listener)
    }

    fn new(sink: Sink, header: Option<Box<Header>>, secrets: Arc<Vault>, listener: Arc<dyn Listener>) -> Self {
        let digest_key = header.as_ref().and_then(|header| header.digest_key.as_deref()).map(DigestKey::new);
        let state = State { sink, header, replies: HashMap::new(), room: MAX_ANSWERS, trouble: None };
        Self { began: Instant::now(), secrets, listener, digest_key, state: Mutex::new(state), lost: Notify::new() }
    }

    /// Records that something happened now. `by` is the agent at work that it is about, if it is about one.
    pub fn add(&self, by: &str, what: What) {
        self.alone(|state| self.put(state, by, what));
    }

    /// A run whose scripts are recorded, too, with what their host calls answer.
    pub fn run(self: &Arc<Self>) -> Arc<Run> {
        self.run_within(Vec::new())
    }

    /// The same, with what narrows each of its calls.
    pub fn run_within(self: &Arc<Self>, layers: Vec<Layer>) -> Arc<Run> {
        let session = Session { tape: Some(self.clone()), ..Session::default() };
        let run = Run::narrowed_with_session(layers, session);
        if let Some(key) = &self.digest_key {
            run.set_digest_key(key.clone());
        }
        run
    }

    /// Ends the record in order.
    pub fn end(&self) {
        self.alone(|state| {
            // A session in which nothing happened leaves no file.
            if state.header.is_none() {
                self.put(state, "", What::Ended {});
            }
            if matches!(state.sink, Sink::File(_)) {
                state.sink = Sink::Gone;
            }
        });
    }

    /// Records nothing from here on, as if the process had ended: another one continues.
    pub fn leave(&self) {
        self.alone(|state| state.sink = Sink::Gone);
    }

    /// The session's name, once something has happened in it.
    pub fn id(&self) -> Option<String> {
        self.alone(|state| match (&state.sink, &state.header) {
            (Sink::File(writer), None) => Some(writer.id().to_owned()),
            _ => None,
        })
    }

    /// Waits until a line could not be written. From then on, nothing is recorded. For one that waits.
    pub async fn lost(&self) {
        self.lost.notified().await;
    }

    /// Why nothing is recorded any more; reported once.
    pub fn trouble(&self) -> Option<String> {
        self.alone(|state| state.trouble.take())
    }

    /// The lines so far, of a record that is only looked at.
    pub(super) fn take(&self) -> Vec<Line> {
        self.alone(|state| if let Sink::Memory(lines) = &mut state.sink { std::mem::take(lines) } else { Vec::new() })
    }

    fn alone<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, state: &mut State, by: &str, what: What) {
        if matches!(state.sink, Sink::Gone) {
            return;
        }
        if let Some(header) = state.header.take() {
            let what = What::Session(*header);
            let line = Line { at: 0, by: String::new(), strand: String::new(), what };
            self.write(state, &line);
        }
        let line = Line { at: micros(self.began.elapsed()), by: by.to_owned(), strand: strand::name(), what };
        self.write(state, &line);
    }

    fn write(&self, state: &mut State, line: &Line) {
        let mut json = line.to_json();
        self.secrets.redact_json(&mut json);
        let written = match &mut state.sink {
            Sink::File(writer) => writer.append(&json.to_string()),
            Sink::Memory(lines) => {
                lines.extend(Line::from_json(json));
                Ok(())
            }
            Sink::Gone => Ok(()),
        };
        if let Err(error) = written {
            state.sink = Sink::Gone;
            state.trouble = Some(format!("the rest of this session is not recorded: {error}"));
            self.lost.notify_one();
        }
    }

    /// A message of a conversation. What a model has just said is there already.
    fn said(&self, by: &str, place: usize, message: &Message) {
        self.alone(|state| {
            let known = state.replies.get(by).is_some_and(|reply| reply == message);
            let message = (!known).then(|| message.to_json());
            self.put(state, by, What::Said(Said { place: place as u64, message }));
        });
    }

    fn reply(&self, by: &str, reply: &Reply, took: Duration) {
        self.alone(|state| {
            let message = Message::Assistant { text: reply.text.clone(), calls: reply.calls.clone() };
            state.replies.insert(by.to_owned(), message);
            self.put(state, by, What::Reply(convert::reply(reply, took)));
        });
    }

    /// Drops what an agent at work said last. One that is started again says something new first.
    fn forget(&self, by: &str) {
        self.alone(|state| drop(state.replies.remove(by)));
    }

    fn record(&self, who: &EventSource<'_>, what: &AgentEvent<'_>) {
        let by = who.id;
        let line = match what {
            AgentEvent::Text { .. } | AgentEvent::Step { .. } | AgentEvent::Silent { .. } => return,
            AgentEvent::Event { dispatch, .. } if dispatch.hooks.is_empty() => return,
            AgentEvent::Said { at, message, .. } => return self.said(by, *at, message),
            AgentEvent::Answered { reply, took, .. } => return self.reply(by, reply, *took),
            AgentEvent::Turn { agent, depth, text } => What::Turn(convert::turn(who.parent, agent, *depth, text)),
            AgentEvent::Continued { turn } => What::Continued(convert::continued(turn)),
            AgentEvent::Asked { round, request, room, .. } => What::Asked(convert::asked(*round, request, *room)),
            AgentEvent::Retry { error, pause, .. } => What::Retry(convert::retry(error, *pause)),
            AgentEvent::NoModel { model, error } => What::Unmade(convert::no_model(*model, error)),
            AgentEvent::Unanswered { error, took, .. } => What::Unanswered(convert::unanswered(error, *took)),
            AgentEvent::Event { dispatch, .. } => What::Event(convert::decided(dispatch)),
            AgentEvent::Calls { call, .. } => What::Calling(convert::calling(call)),
            AgentEvent::Called { call, report, content, took, .. } => {
                What::Called(Box::new(convert::called(call, *report, content, *took)))
            }
            AgentEvent::Asks { call, tool, .. } => {
                What::Question(Question { call: (*call).to_owned(), tool: (*tool).to_owned() })
            }
            AgentEvent::Confirmed { call, tool, answer, .. } => {
                What::Confirmation(convert::confirmation(call, tool, *answer))
            }
            AgentEvent::Delegated { to, attempt, .. } => What::Delegated(convert::delegated(to, *attempt)),
            AgentEvent::Judged { of, refused, took, .. } => What::Judged(convert::judged(of, *refused, *took)),
            AgentEvent::Returned { id, from, result, late, .. } => {
                What::Returned(convert::returned(id, from, *result, *late))
            }
            AgentEvent::Began { call, tool, strand, task, .. } => What::Task(convert::began(call, tool, strand, *task)),
            AgentEvent::Ended { task, report, late, .. } => What::Task(convert::ended(task, report, *late)),
            AgentEvent::Abandoned { task, tool, .. } => What::Task(convert::abandoned(task, tool)),
            AgentEvent::Looked { looked, .. } => What::Looked(convert::looked(looked)),
            AgentEvent::Saw { saw, .. } => What::Saw((*saw).clone()),
            AgentEvent::Forgot { before, .. } => What::Forgot(Forgot { before: *before as u64 }),
            AgentEvent::Switched { model, .. } => What::Switched(Switched { model: (*model).to_owned() }),
            AgentEvent::Turned { turn, given, said, .. } => {
                self.forget(by);
                What::Turned(convert::turned(*turn, *given, *said))
            }
            AgentEvent::GivenUp { said, .. } => {
                self.forget(by);
                What::Stopped { said: said.map(str::to_owned) }
            }
        };
        self.add(by, line);
    }
}

impl Listener for Recorder {
    fn notify(&self, what: &AgentEvent<'_>) {
        self.notify_from(&EventSource { id: ROOT, parent: None }, what);
    }

    fn notify_from(&self, who: &EventSource<'_>, what: &AgentEvent<'_>) {
        self.record(who, what);
        self.listener.notify_from(who, what);
    }
}

impl Tape for Recorder {
    fn begin(&self, _: &Script) -> Option<Given> {
        None
    }

    fn end(&self, ran: Ran) {
        self.alone(|state| self.ran(state, ran));
    }
}

impl Recorder {
    fn ran(&self, state: &mut State, ran: Ran) {
        let Ran { script, outcome, result, usage, waited, mut answers, busy } = ran;
        if state.room > 0 {
            let bytes: usize = answers.iter().map(bytes).sum();
            state.room = state.room.saturating_sub(bytes);
            if state.room == 0 {
                self.put(state, "", What::Full {});
            }
        }
        if state.room == 0 {
            answers.iter_mut().for_each(omit);
        }
        let line = ScriptRan {
            script,
            outcome: outcome.to_owned(),
            result,
            fuel: usage.fuel,
            peak_memory: usage.peak_memory,
            wall_us: micros(usage.wall),
            waited,
            answers,
            busy,
        };
        self.put(state, "", What::Script(line));
    }
}

fn bytes(answered: &Answered) -> usize {
    answered.answer.as_ref().map_or(0, |answer| answer.to_string().len())
}

fn omit(answered: &mut Answered) {
    if let Some(answer) = answered.answer.take() {
        answered.omitted = Some(answer.to_string().len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn recorder(writer: Writer) -> Recorder {
        let header = json!({
            "version": 1, "id": "a", "started": "2026-01-01T00:00:00Z", "harness": "0.1.0", "interpreter": "x",
            "command": "run", "artifacts": {},
        });
        let header = serde_json::from_value(header).unwrap();
        Recorder::to_file(writer, header, Arc::default(), Arc::new(harness_agent::Silent))
    }

    #[tokio::test]
    async fn who_waits_for_it_learns_that_a_line_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let now = time::OffsetDateTime::UNIX_EPOCH;
        let is_lost = async |recorder: &Recorder| {
            tokio::select! {
                biased;
                () = recorder.lost() => true,
                () = std::future::ready(()) => false,
            }
        };
        let fine = recorder(Writer::create(folder.path(), now).unwrap());
        fine.add(ROOT, What::Full {});
        assert!(!is_lost(&fine).await && fine.trouble().is_none());
        let full = recorder(Writer::create(folder.path(), now).unwrap().to_full_disk());
        assert!(!is_lost(&full).await);
        full.add(ROOT, What::Full {});
        assert!(is_lost(&full).await);
        let why = full.trouble().unwrap();
        assert!(why.starts_with("the rest of this session is not recorded: No space left on device"), "{why}");
    }
}
