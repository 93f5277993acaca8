//! What a client gets of a call while it runs: how far it is, and lines of its log. Both only where the client asked. A call
//! that has become a task shows how far it is as the message of the task.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use harness_capability::log::Level;
use harness_capability::progress::Step;
use harness_dispatch::progress::{Progress, ProgressListener};
use hyper::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{CustomNotification, ErrorData, ServerNotification};
use rmcp::service::{Peer, RequestContext};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::server::is_modern;
use crate::tasks::Slot;

/// Where a request of 2026-07-28 says which lines it wants.
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Levels of the protocol, the least important first.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
/// More than any level: nothing is sent.
const NOTHING: u8 = LEVELS.len() as u8;
/// Notices that wait to be sent. What finds no room is dropped: a call does not wait for a client that reads slowly.
const WAITING: usize = 1_024;
/// Below this, every whole number is exactly one float: 2^53.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// From which level on the client of a connection wants lines, where it said so with `logging/setLevel`.
#[derive(Debug)]
pub(crate) struct Threshold(AtomicU8);

impl Default for Threshold {
    fn default() -> Self {
        Self(AtomicU8::new(NOTHING))
    }
}

impl Threshold {
    pub(crate) fn set(&self, level: &str) {
        self.0.store(rank(level).unwrap_or(NOTHING), Ordering::Relaxed);
    }

    /// For one request.
    ///
    /// # Errors
    ///
    /// That the request names no level of the protocol.
    fn of(&self, context: &RequestContext<RoleServer>) -> Result<u8, ErrorData> {
        if is_modern(context) {
            return match context.meta.get(LOG_LEVEL) {
                None => Ok(NOTHING),
                Some(level) => level.as_str().and_then(rank).ok_or_else(|| {
                    ErrorData::invalid_params(format!("`{LOG_LEVEL}` is none of {}", LEVELS.join(", ")), None)
                }),
            };
        }
        // Over HTTP nothing is kept of one request for another: lines from `info` on, which the protocol leaves to a server.
        let over_http = context.extensions.get::<Parts>().is_some();
        Ok(if over_http { of_line(Level::Info) } else { self.0.load(Ordering::Relaxed) })
    }
}

fn rank(level: &str) -> Option<u8> {
    LEVELS.iter().position(|name| *name == level).and_then(|rank| u8::try_from(rank).ok())
}

fn of_line(level: Level) -> u8 {
    let name = match level {
        Level::Debug => "debug",
        Level::Info => "info",
        Level::Warn => "warning",
        Level::Error => "error",
    };
    rank(name).unwrap_or(NOTHING)
}

/// The notices of one call. Each request that it runs for says anew what is sent.
#[derive(Debug)]
pub(crate) struct Notices {
    /// Whether its steps are [reported](Self::report), and not those that a script has.
    are_reported: bool,
    state: Mutex<State>,
}

/// What waits to be sent.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A step: the parameters of `notifications/progress` where the client wants them, and the message.
    Step(Option<Json>, Option<String>),
    /// A line, as the parameters of `notifications/message`.
    Line(Json),
}

#[derive(Debug)]
struct State {
    token: Option<Json>,
    /// Whether the call can become a task.
    can_be_task: bool,
    from: u8,
    /// None while no request waits for the call.
    out: Option<Sender<Notice>>,
    /// What was reported last.
    done: Option<f64>,
}

impl Default for State {
    fn default() -> Self {
        Self { token: None, can_be_task: false, from: NOTHING, out: None, done: None }
    }
}

impl Notices {
    /// Those of a call whose steps the host reports, or its script.
    pub(crate) fn new(are_reported: bool) -> Self {
        Self { are_reported, state: Mutex::default() }
    }

    /// Begins with one request, whose call can become a task or cannot. Returns what is to be sent to its client.
    ///
    /// # Errors
    ///
    /// That the request names no level of the protocol.
    pub(crate) fn begin(
        &self,
        threshold: &Threshold,
        context: &RequestContext<RoleServer>,
        can_be_task: bool,
    ) -> Result<Receiver<Notice>, ErrorData> {
        let token = context.meta.get_progress_token().and_then(|token| serde_json::to_value(token).ok());
        let (out, notices) = channel(WAITING);
        *self.state() = State { token, can_be_task, from: threshold.of(context)?, out: Some(out), done: None };
        Ok(notices)
    }

    /// The request is answered: nothing more is sent.
    pub(crate) fn end(&self) {
        self.state().out = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a client gets steps.
    pub(crate) fn are_wanted(&self) -> bool {
        self.state().wants_steps()
    }

    /// Reports a step of the host's, the next one. Never waits.
    pub(crate) fn report(&self, message: String) {
        let mut state = self.state();
        let done = state.done.unwrap_or(0.0) + 1.0;
        state.step(&Step { done, total: None, message: Some(message) });
    }

    fn step(&self, step: &Step) {
        self.state().step(step);
    }

    fn line(&self, script: &str, level: Level, message: &str) {
        let (rank, state) = (of_line(level), self.state());
        if rank < state.from {
            return;
        }
        let name = LEVELS.get(usize::from(rank)).copied().unwrap_or_default();
        state.send(Notice::Line(json!({"level": name, "logger": script, "data": message})));
    }
}

impl State {
    fn wants_steps(&self) -> bool {
        self.token.is_some() || self.can_be_task
    }

    fn step(&mut self, step: &Step) {
        // The protocol has it rise.
        if !self.wants_steps() || self.done.is_some_and(|done| step.done <= done) {
            return;
        }
        let params = self.token.as_ref().map(|token| {
            let mut params = json!({"progressToken": token, "progress": number(step.done)});
            if let Some(object) = params.as_object_mut() {
                object.extend(step.total.map(|total| ("total".to_owned(), number(total))));
                object.extend(step.message.as_ref().map(|message| ("message".to_owned(), json!(message))));
            }
            params
        });
        if self.send(Notice::Step(params, step.message.clone())) {
            self.done = Some(step.done);
        }
    }

    fn send(&self, notice: Notice) -> bool {
        self.out.as_ref().is_some_and(|out| out.try_send(notice).is_ok())
    }
}

impl ProgressListener for Notices {
    fn on_progress(&self, what: &Progress<'_>) {
        match what {
            // Those of a tool that a script calls are the script's.
            Progress::Step { depth: 0, step, .. } if !self.are_reported => self.step(step),
            Progress::Log { script, level, message } => self.line(script, *level, message),
            _ => {}
        }
    }
}

/// Sends notices until there are no more. Those of a call that has become a task are the task's.
pub(crate) async fn send(peer: &Peer<RoleServer>, mut notices: Receiver<Notice>, slot: &Slot) {
    while let Some(notice) = notices.recv().await {
        // Held while one is sent: none follows the answer that there is a task.
        let task = slot.get().await;
        let (method, params) = match (&*task, notice) {
            (Some(task), Notice::Step(_, Some(message))) => {
                task.report(message);
                continue;
            }
            (None, Notice::Step(Some(params), _)) => ("notifications/progress", params),
            (None, Notice::Line(params)) => ("notifications/message", params),
            _ => continue,
        };
        let notice = ServerNotification::CustomNotification(CustomNotification::new(method, Some(params)));
        // A client that is gone gets no answer either.
        if peer.send_notification(notice).await.is_err() {
            return;
        }
    }
}

/// A number as short as JSON has it.
fn number(number: f64) -> Json {
    if number.fract() == 0.0 && number < EXACT {
        return json!(number as u64);
    }
    json!(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices(token: Option<Json>, from: u8) -> (Notices, Receiver<Notice>) {
        let (out, received) = channel(4);
        let state = State { token, from, out: Some(out), ..State::default() };
        (Notices { are_reported: false, state: Mutex::new(state) }, received)
    }

    fn sent(received: &mut Receiver<Notice>) -> Vec<Json> {
        let params = |notice| match notice {
            Notice::Step(params, _) => params.unwrap_or_default(),
            Notice::Line(params) => params,
        };
        std::iter::from_fn(|| received.try_recv().ok()).map(params).collect()
    }

    fn step(done: f64) -> Step {
        Step { done, total: Some(2.5), message: None }
    }

    #[test]
    fn progress_rises_and_ends_with_the_call() {
        let (notices, mut received) = notices(Some(json!("t")), NOTHING);
        for done in [0.0, 1.0, 1.0, 0.5, 1.5] {
            notices.step(&step(done));
        }
        notices.end();
        notices.step(&step(2.0));
        let done = sent(&mut received);
        let of = |done: Json| json!({"progressToken": "t", "progress": done, "total": 2.5});
        assert_eq!(done, [of(json!(0)), of(json!(1)), of(json!(1.5))]);
    }

    #[test]
    fn steps_that_the_host_reports_are_numbered() {
        let (notices, mut received) = notices(Some(json!("t")), NOTHING);
        ["a", "b"].into_iter().for_each(|step| notices.report(step.to_owned()));
        let of = |done: u32, step: &str| json!({"progressToken": "t", "progress": done, "message": step});
        assert_eq!(sent(&mut received), [of(1, "a"), of(2, "b")]);
    }

    /// It may become a task, whose message it is.
    #[test]
    fn a_step_without_a_token_has_its_message() {
        let (notices, mut received) = notices(None, NOTHING);
        notices.state().can_be_task = true;
        notices.report("a".to_owned());
        assert!(matches!(received.try_recv(), Ok(Notice::Step(None, Some(message))) if message == "a"));
    }

    #[test]
    fn without_a_token_nothing_is_sent() {
        let (notices, mut received) = notices(None, NOTHING);
        notices.step(&step(1.0));
        notices.line("tool a", Level::Error, "x");
        assert_eq!(sent(&mut received), Vec::<Json>::new());
    }

    #[test]
    fn lines_from_a_level_on() {
        let (notices, mut received) = notices(None, rank("notice").unwrap());
        for level in [Level::Debug, Level::Info, Level::Warn, Level::Error] {
            notices.line("tool a", level, "x");
        }
        let levels: Vec<Json> = sent(&mut received).iter().map(|one| one["level"].clone()).collect();
        assert_eq!(levels, ["warning", "error"]);
    }

    #[test]
    fn what_finds_no_room_is_dropped_and_progress_still_rises() {
        let (notices, mut received) = notices(Some(json!(7)), 0);
        (0..6).for_each(|_| notices.line("tool a", Level::Debug, "x"));
        notices.step(&step(5.0));
        assert_eq!(sent(&mut received).len(), 4);
        notices.step(&step(1.0));
        assert_eq!(sent(&mut received).len(), 1);
    }
}
