//! What a client hears of a call while it runs: how far it is, and lines of its log. Both only where the client asked.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use harness_capability::log::Level;
use harness_capability::progress::Step;
use harness_dispatch::progress::{Progress, ProgressListener};
use hyper::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{CustomNotification, ErrorData, ProtocolVersion, ServerNotification};
use rmcp::service::{Peer, RequestContext};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};

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

/// Whether a request is of the era in which each says what it wants.
pub(crate) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
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
#[derive(Debug, Default)]
pub(crate) struct Notices(Mutex<State>);

#[derive(Debug)]
struct State {
    token: Option<Json>,
    from: u8,
    /// None while no request waits for the call.
    out: Option<Sender<ServerNotification>>,
    /// What was reported last.
    done: Option<f64>,
}

impl Default for State {
    fn default() -> Self {
        Self { token: None, from: NOTHING, out: None, done: None }
    }
}

impl Notices {
    /// Begins with one request. Returns what is to be sent to its client.
    ///
    /// # Errors
    ///
    /// That the request names no level of the protocol.
    pub(crate) fn begin(
        &self,
        threshold: &Threshold,
        context: &RequestContext<RoleServer>,
    ) -> Result<Receiver<ServerNotification>, ErrorData> {
        let token = context.meta.get_progress_token().and_then(|token| serde_json::to_value(token).ok());
        let (out, notices) = channel(WAITING);
        *self.state() = State { token, from: threshold.of(context)?, out: Some(out), done: None };
        Ok(notices)
    }

    /// The request is answered: nothing more is sent.
    pub(crate) fn end(&self) {
        self.state().out = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, step: &Step) {
        let mut state = self.state();
        let Some(token) = &state.token else { return };
        // The protocol has it rise.
        if state.done.is_some_and(|done| step.done <= done) {
            return;
        }
        let mut params = json!({"progressToken": token, "progress": number(step.done)});
        if let Some(object) = params.as_object_mut() {
            object.extend(step.total.map(|total| ("total".to_owned(), number(total))));
            object.extend(step.message.as_ref().map(|message| ("message".to_owned(), json!(message))));
        }
        if state.send("notifications/progress", params) {
            state.done = Some(step.done);
        }
    }

    fn line(&self, script: &str, level: Level, message: &str) {
        let (rank, state) = (of_line(level), self.state());
        if rank < state.from {
            return;
        }
        let name = LEVELS.get(usize::from(rank)).copied().unwrap_or_default();
        let params = json!({"level": name, "logger": script, "data": message});
        state.send("notifications/message", params);
    }
}

impl State {
    fn send(&self, method: &str, params: Json) -> bool {
        let notice = ServerNotification::CustomNotification(CustomNotification::new(method, Some(params)));
        self.out.as_ref().is_some_and(|out| out.try_send(notice).is_ok())
    }
}

impl ProgressListener for Notices {
    fn on_progress(&self, what: &Progress<'_>) {
        match what {
            // Of a tool that a script calls, the script hears.
            Progress::Step { depth: 0, step, .. } => self.step(step),
            Progress::Log { script, level, message } => self.line(script, *level, message),
            _ => {}
        }
    }
}

/// Sends notices until there are no more.
pub(crate) async fn send(peer: &Peer<RoleServer>, mut notices: Receiver<ServerNotification>) {
    while let Some(notice) = notices.recv().await {
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

    fn notices(token: Option<Json>, from: u8) -> (Notices, Receiver<ServerNotification>) {
        let (out, received) = channel(4);
        (Notices(Mutex::new(State { token, from, out: Some(out), done: None })), received)
    }

    fn sent(received: &mut Receiver<ServerNotification>) -> Vec<Json> {
        std::iter::from_fn(|| received.try_recv().ok()).map(|one| serde_json::to_value(one).unwrap()).collect()
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
        let done: Vec<Json> = sent(&mut received).iter().map(|one| one["params"].clone()).collect();
        let of = |done: Json| json!({"progressToken": "t", "progress": done, "total": 2.5});
        assert_eq!(done, [of(json!(0)), of(json!(1)), of(json!(1.5))]);
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
        let levels: Vec<Json> = sent(&mut received).iter().map(|one| one["params"]["level"].clone()).collect();
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
