//! One turn of an agent, round by round: ask the model, make its calls in order, give their results back, until it has
//! nothing more to call and the hooks let it stop.

mod calls;
mod request;
mod rest;
mod rounds;

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value as Json;

pub use self::rest::Interrupted;
use self::rounds::Next;
use super::activity::{Activity, RecentCalls};
use super::boxed::boxed;
use super::conversation::Conversation;
use super::error::TurnError;
use super::exchange::{answer, change, completion_post, completion_pre, tokens};
use super::ledger::Purse;
use super::listener::AgentEvent;
use super::logged;
use super::models::Model;
use super::replies::only_words;
use super::runtime::Runtime;
use super::sentences::{CALL_DONE, CONTINUE, IN_WORDS, NOT_YET, NOT_YET_SAYS_A_PLUGIN, SUM_UP};
use super::spans;
use super::window;
use harness_artifact::event::Event;
use harness_capability::reentry::Allowance;
use harness_capability::turn::Turn as TurnState;
use harness_dispatch::Nested;
use harness_dispatch::chain::{Block, CallContext};
use harness_dispatch::decision::NO_REASON;
use harness_dispatch::payload::{AgentStop, ErrorEnvelope, LogLine, ToolUse, TurnEnd};
use harness_dispatch::trail::Trail;
use harness_provider::{Delta, Finish, Message, Reply, Usage};
use harness_sandbox::outcome::Usage as CallUsage;
use tracing::Instrument as _;

/// How often in a row a reply that is cut at its length is continued.
const MAX_CONTINUED: u32 = 2;
/// How often in a row hooks may keep an agent from stopping.
const MAX_KEPT: u32 = 8;

/// What a turn gave.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The agent's answer.
    pub text: String,
    /// The calls that its model asked for, in order.
    pub calls: Vec<ToolUse>,
    /// What its model's service counted for its own requests; not for those of agents that it started.
    pub usage: Usage,
    /// Rounds with calls.
    pub rounds: u32,
    /// What its scripts logged.
    pub log: Vec<LogLine>,
    /// Why it was ended early, where the policy makes a warning of that.
    pub warning: Option<String>,
    /// The last of the calls, with what they gave.
    pub(super) recent: RecentCalls,
}

/// One turn. It takes its place in `history`, as far as it comes.
pub(super) async fn turn(
    runtime: &Arc<Runtime>,
    place: &CallContext,
    history: &mut Conversation,
    text: &str,
) -> Result<Turn, TurnError> {
    let place = in_turn(place, history);
    Work::new(runtime, &place).run(history, Task::Message(text)).await
}

/// The rest of one that was interrupted.
pub(super) async fn rest(
    runtime: &Arc<Runtime>,
    place: &CallContext,
    history: &mut Conversation,
    turn: &Interrupted,
) -> Result<Turn, TurnError> {
    let place = in_turn(place, history);
    Work::new(runtime, &place).run(history, Task::Rest(turn)).await
}

/// The same with what it started, whether it ended or not.
pub(super) async fn turn_with_nested(
    runtime: &Arc<Runtime>,
    place: &CallContext,
    history: &mut Conversation,
    text: &str,
) -> (Result<Turn, TurnError>, Vec<Nested>) {
    let place = in_turn(place, history);
    let mut work = Work::new(runtime, &place);
    let ended = work.run(history, Task::Message(text)).await;
    (ended, std::mem::take(&mut work.nested).into_nested())
}

/// A place in the next turn of a conversation, which shares nothing with the turns before.
fn in_turn(place: &CallContext, history: &mut Conversation) -> CallContext {
    CallContext { turn: Arc::new(TurnState::new(history.count_turn())), ..place.clone() }
}

/// What a turn is to do.
#[derive(Debug, Clone, Copy)]
enum Task<'a> {
    /// Answer a message.
    Message(&'a str),
    /// Continue where it was interrupted.
    Rest(&'a Interrupted),
}

/// A turn in progress.
struct Work<'a> {
    runtime: &'a Arc<Runtime>,
    place: &'a CallContext,
    /// What is left to the script that set the agent to work, where one did.
    left: Option<Allowance>,
    nested: Trail,
    calls: Vec<ToolUse>,
    recent: RecentCalls,
    usage: Usage,
    rounds: u32,
    asked: u32,
    /// Whether `done` was called.
    done: bool,
    /// The limit for which it is to answer without tools, where that is so.
    in_words: Option<TurnError>,
    warning: Option<String>,
    /// Where the part of the conversation began that the model got last.
    start: window::Start,
    /// Messages of the conversation that the listener has got.
    told: usize,
    /// What it takes of its budgets.
    purse: Purse,
}

/// A turn that has begun. It is reported as canceled unless it ends.
struct Unfinished {
    runtime: Arc<Runtime>,
    ended: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.ended {
            let said = self.runtime.partial.get();
            self.runtime.notify(&AgentEvent::GivenUp { agent: self.runtime.name(), said: said.as_deref() });
        }
    }
}

/// What was done is known however a turn ends, where it is given up, too.
impl Drop for Work<'_> {
    fn drop(&mut self) {
        if self.runtime.depth() == 0 {
            let (calls, log) = (std::mem::take(&mut self.calls), self.log());
            self.runtime.crew.keep(Activity { calls, rounds: self.rounds, log });
        }
    }
}

/// How a round ended.
enum Round {
    /// With this answer.
    Answer(String),
    /// The model is to be asked again.
    Again,
}

impl<'a> Work<'a> {
    fn new(runtime: &'a Arc<Runtime>, place: &'a CallContext) -> Self {
        Self {
            runtime,
            place,
            left: place.left,
            nested: Trail::default(),
            calls: Vec::new(),
            recent: RecentCalls::default(),
            usage: Usage::default(),
            rounds: 0,
            asked: 0,
            done: false,
            in_words: None,
            warning: None,
            start: window::Start::default(),
            told: 0,
            purse: Purse::new(runtime.ledger()),
        }
    }

    fn notify(&self, what: &AgentEvent<'_>) {
        self.runtime.notify(what);
    }

    /// Reports the messages since the last report.
    fn tell_said(&mut self, history: &Conversation) {
        for (at, message) in history.since(self.told) {
            self.notify(&AgentEvent::Said { agent: self.runtime.name(), at, message });
        }
        self.told = history.len();
    }

    /// Where the next thing is done.
    async fn here(&self) -> CallContext {
        self.place.now(self.left).await
    }

    fn spend(&mut self, usage: CallUsage) {
        self.left = self.left.map(|left| left.after(usage.fuel).after_host_calls(usage.host_calls));
    }

    /// Fires an event of the loop. Gives back the payload where there were hooks.
    ///
    /// # Errors
    ///
    /// Why a hook blocked it.
    async fn fire(&mut self, event: &Event, payload: impl FnOnce() -> Json) -> Result<Option<Json>, Block> {
        let here = self.here().await;
        if !here.hears(event) {
            return Ok(None);
        }
        let mut dispatch = boxed(here.fire(event, payload())).await;
        self.notify(&AgentEvent::Event { agent: self.runtime.name(), dispatch: &dispatch });
        self.spend(dispatch.usage());
        // A conversation is not kept once for each hook that has seen it.
        let payload = std::mem::take(&mut dispatch.payload);
        let blocked = dispatch.decision.block().cloned();
        self.nested.push(Nested::Event(dispatch));
        blocked.map_or(Ok(Some(payload)), Err)
    }

    async fn run(&mut self, history: &mut Conversation, task: Task<'_>) -> Result<Turn, TurnError> {
        let span = spans::turn(self.runtime.name(), self.runtime.depth());
        let turn = self.whole(history, task).instrument(span.clone()).await;
        spans::turned(&span, &turn);
        turn
    }

    async fn whole(&mut self, history: &mut Conversation, task: Task<'_>) -> Result<Turn, TurnError> {
        let depth = self.runtime.depth();
        self.told = history.len();
        match task {
            Task::Message(text) => self.notify(&AgentEvent::Turn { agent: self.runtime.name(), depth, text }),
            Task::Rest(turn) => self.notify(&AgentEvent::Continued { turn }),
        }
        let mut unfinished = Unfinished { runtime: self.runtime.clone(), ended: false };
        let (time, refusals) = self.place.run.schedule().begin_turn(&self.runtime.id, self.purse.ledger.deadline());
        self.purse.refusals = refusals;
        let steps = async {
            match task {
                Task::Message(text) => self.steps(history, text).await,
                Task::Rest(turn) => self.rest(history, turn).await,
            }
        };
        let ended = time.limit(boxed(steps)).await.unwrap_or_else(|| Err(self.too_late()));
        self.tell_said(history);
        if let Err(error) = &ended
            && !matches!(error, TurnError::Blocked { .. })
        {
            let source = match self.runtime.name() {
                "" => "agent".to_owned(),
                name => format!("agent {name}"),
            };
            let envelope = ErrorEnvelope { kind: error.kind().to_owned(), message: error.to_string(), source };
            // Nothing is left that could be stopped.
            let _ = self.fire(&Event::Error, || self.place.agent.payload(&envelope)).await;
        }
        let turn = ended.map(|(text, log)| {
            let (warning, recent) = (self.warning.take(), std::mem::take(&mut self.recent));
            Turn { text, calls: self.calls.clone(), usage: self.usage, rounds: self.rounds, log, warning, recent }
        });
        unfinished.ended = true;
        let partial = &self.runtime.partial;
        let said = if turn.is_ok() { partial.take().and(None) } else { partial.get() };
        let (agent, given) = (self.runtime.name(), self.purse.given);
        self.notify(&AgentEvent::Turned { agent, turn: turn.as_ref(), given, said: said.as_deref() });
        turn
    }

    /// The time of a budget is over.
    fn too_late(&self) -> TurnError {
        self.purse.ledger.too_late().unwrap_or(TurnError::Config("the time is over".to_owned()))
    }

    async fn steps(&mut self, history: &mut Conversation, text: &str) -> Result<(String, Vec<LogLine>), TurnError> {
        let blocked = |block: Block| TurnError::Blocked { what: "turn", reason: block.to_string() };
        let text = match self.fire(&Event::TurnStart, || text.into()).await.map_err(blocked)? {
            Some(Json::String(text)) => text,
            _ => text.to_owned(),
        };
        history.begin_turn(self.runtime.crew.settings.max_history);
        let pinned = history.messages().len();
        self.told = history.len();
        history.push(Message::User(text));
        self.runtime.partial.begin();
        let answer = self.rounds(history, pinned).await?;
        self.finish(history, answer).await
    }

    /// Ends a turn with its answer, as its hooks let it be.
    async fn finish(
        &mut self,
        history: &mut Conversation,
        answer: String,
    ) -> Result<(String, Vec<LogLine>), TurnError> {
        let blocked = |block: Block| TurnError::Blocked { what: "turn", reason: block.to_string() };
        self.take_news().await;
        let log = self.log();
        let end = || {
            let usage = tokens(self.usage);
            self.place.agent.payload(&TurnEnd {
                text: answer.clone(),
                tool_calls: self.calls.clone(),
                usage,
                log: log.clone(),
            })
        };
        let ended = end();
        let answer = match self.fire(&Event::TurnEnd, || ended).await.map_err(blocked)? {
            Some(payload) => match payload.get("text") {
                Some(Json::String(text)) => text.clone(),
                _ => return Err(modified(Event::TurnEnd, "`text` must be a string")),
            },
            None => answer,
        };
        // What hooks made of the answer is what was said.
        if let Some(Message::Assistant { text, .. }) = history.last_mut() {
            text.clone_from(&answer);
        }
        Ok((answer, log))
    }

    async fn rounds(&mut self, history: &mut Conversation, pinned: usize) -> Result<String, TurnError> {
        let model = self.runtime.model().map_err(TurnError::Config)?;
        let abilities = model.provider.abilities(&model.name).await;
        let context = model.context_tokens.or(abilities.context_tokens);
        let most = self.runtime.crew.settings.max_tokens;
        let room = context.map_or(most, |context| most.min(context));
        let (mut continued, mut kept) = (0, 0);
        let mut said = String::new();
        loop {
            if continued == 0 {
                self.start = window::Start::default();
            }
            let mut reply = self.ask(&model, history, pinned, room).await?;
            if let Some(limit) = &self.in_words {
                only_words(&mut reply, limit)?;
            }
            // What a filter stopped is no reply, whatever it calls.
            if reply.calls.is_empty() || reply.finish == Finish::ContentFilter {
                said.push_str(&reply.text);
                match self.without_calls(history, reply, &mut said, &mut continued, &mut kept).await? {
                    Round::Answer(answer) => return Ok(answer),
                    Round::Again => continue,
                }
            }
            (continued, kept) = (0, 0);
            said.clear();
            match self.next_round()? {
                Next::Round => self.make(history, reply).await?,
                Next::Answer(answer) => return Ok(answer),
                Next::Words => {
                    // What it said beside its calls was shown.
                    let says = Some(reply.text).filter(|text| !text.is_empty());
                    let says = says.map(|text| Message::Assistant { text, calls: Vec::new() });
                    history.extend(says.into_iter().chain([Message::User(SUM_UP.to_owned())]));
                    continue;
                }
            }
            if let Some(failed) = self.runtime.failures.nothing_works().filter(|_| self.may_give_up()) {
                let key = "`delegation.max_tool_failures` in `harness.md`";
                self.in_words = Some(TurnError::Limit { what: "tool failures in a row", allowed: failed, key });
                self.warning = Some(format!("{failed} tool calls in a row failed: the agent answered without tools"));
                history.push(Message::User(IN_WORDS.to_owned()));
            }
        }
    }

    /// Whether it may answer in words once tools keep failing: the policy says so, and nothing is to be called at the end.
    fn may_give_up(&self) -> bool {
        let settings = &self.runtime.crew.settings;
        settings.in_words && self.in_words.is_none() && !settings.exit.wants_done()
    }

    /// Asks the model once, with the hooks before and after.
    async fn ask(
        &mut self,
        model: &Model,
        history: &Conversation,
        pinned: usize,
        room: u64,
    ) -> Result<Reply, TurnError> {
        self.purse.may_ask()?;
        self.asked = self.asked.saturating_add(1);
        self.tell_said(history);
        let mut model = model.clone();
        let here = self.here().await;
        let mut request = self.request(&model, &here, history.messages(), pinned, room).await;
        let blocked = |block: Block| TurnError::Blocked { what: "completion", reason: block.to_string() };
        let before = || self.place.agent.payload(&completion_pre(&request));
        let before = here.hears(&Event::CompletionPre).then(before);
        if let Some(before) = before
            && let Some(payload) = self.fire(&Event::CompletionPre, || before.clone()).await.map_err(blocked)?
            && payload != before
        {
            let asked = request.model.clone();
            let why = |why| TurnError::Modified { event: Event::CompletionPre, why };
            change(&mut request, &payload).map_err(why)?;
            if request.model != asked {
                let models = &self.runtime.crew.models;
                model = model.named(&request.model, models.as_ref()).map_err(TurnError::Config)?;
                request.model.clone_from(&model.name);
            }
        }
        request.messages.iter_mut().for_each(|message| message.redact(self.runtime.loaded.secrets()));
        let agent = self.runtime.name();
        self.notify(&AgentEvent::Asked { agent, round: self.asked, request: &request, room });
        let (listener, secrets) = (&self.runtime, self.runtime.loaded.secrets());
        // What a hook may still change or keep back is not shown before it has.
        let here = self.here().await;
        let open = ![Event::CompletionPost, Event::AgentStop, Event::TurnEnd].iter().any(|event| here.hears(event));
        let mut held = String::new();
        let mut heard = |delta: Delta<'_>| match delta {
            Delta::Text(text) if open => {
                held.push_str(text);
                let text = secrets.take_shown(&mut held);
                if !text.is_empty() {
                    listener.partial.add(&text);
                    listener.notify(&AgentEvent::Text { agent, text: &text });
                }
            }
            Delta::Text(_) => {}
            Delta::Retry { error, pause, attempt, of } => {
                held.clear();
                listener.partial.clear();
                listener.notify(&AgentEvent::Retry { agent, error: &error.to_string(), pause, attempt, of });
            }
            Delta::Silent { since } => listener.notify(&AgentEvent::Silent { agent, since }),
        };
        let started = Instant::now();
        let span = spans::request(&request.model);
        let asked = model.provider.complete(&request, &mut heard).instrument(span.clone()).await;
        spans::answered(&span, &asked);
        let took = started.elapsed();
        let mut reply = asked.inspect_err(|error| {
            self.notify(&AgentEvent::Unanswered { agent, error: &error.to_string(), took });
        })?;
        if !held.is_empty() {
            self.notify(&AgentEvent::Text { agent, text: &held });
        }
        reply.redact(secrets);
        self.count(&request, &reply);
        self.runtime.partial.clear();
        self.notify(&AgentEvent::Answered { agent, reply: &reply, took });
        let after =
            self.here().await.hears(&Event::CompletionPost).then(|| self.place.agent.payload(&completion_post(&reply)));
        if let Some(after) = after
            && let Some(payload) = self.fire(&Event::CompletionPost, || after.clone()).await.map_err(blocked)?
            && payload != after
        {
            let why = |why| TurnError::Modified { event: Event::CompletionPost, why };
            answer(&mut reply, &after, &payload).map_err(why)?;
        }
        history.tell_apart(&mut reply.calls);
        Ok(reply)
    }

    /// A reply that calls nothing: its end decides whether that is the answer.
    async fn without_calls(
        &mut self,
        history: &mut Conversation,
        reply: Reply,
        said: &mut String,
        continued: &mut u32,
        kept: &mut u32,
    ) -> Result<Round, TurnError> {
        let says = |text: &str| Message::Assistant { text: text.to_owned(), calls: Vec::new() };
        match &reply.finish {
            Finish::Stop => {}
            Finish::ContentFilter => return Err(TurnError::ContentFilter),
            Finish::Length if *continued >= MAX_CONTINUED => {
                // It was shown, and closes the turn.
                self.runtime.partial.add(&reply.text);
                return Err(TurnError::Length(continued.saturating_add(1)));
            }
            Finish::Length => {
                *continued = continued.saturating_add(1);
                history.extend([says(&reply.text), Message::User(CONTINUE.to_owned())]);
                return Ok(Round::Again);
            }
            finish @ (Finish::ToolCalls | Finish::Other(_)) => {
                return Err(TurnError::Finish(finish.as_str().to_owned()));
            }
        }
        *continued = 0;
        if self.runtime.crew.settings.exit.wants_done() && !self.done && self.in_words.is_none() {
            match self.next_round()? {
                Next::Round => {}
                Next::Answer(answer) => return Ok(Round::Answer(answer)),
                // It has just said so.
                Next::Words => {
                    history.push(says(said));
                    return Ok(Round::Answer(std::mem::take(said)));
                }
            }
            history.extend([says(said), Message::User(CALL_DONE.to_owned())]);
            said.clear();
            return Ok(Round::Again);
        }
        let stop = self.stop(&reply, said);
        match self.fire(&Event::AgentStop, || stop).await {
            Ok(None) => {}
            Ok(Some(payload)) => match payload.get("text") {
                Some(Json::String(text)) => said.clone_from(text),
                _ => return Err(modified(Event::AgentStop, "`text` must be a string")),
            },
            // Asking the model again mends no hook.
            Err(block) if block.failed => {
                return Err(TurnError::Blocked { what: "turn", reason: block.to_string() });
            }
            Err(block) if *kept >= MAX_KEPT => return Err(TurnError::NeverStops(*kept, block.to_string())),
            Err(block) => {
                *kept = kept.saturating_add(1);
                let reason = match block.reason == NO_REASON {
                    true => NOT_YET.to_owned(),
                    false => block.to_prompt(NOT_YET_SAYS_A_PLUGIN),
                };
                history.extend([says(said), Message::User(reason)]);
                said.clear();
                return Ok(Round::Again);
            }
        }
        history.push(says(said));
        Ok(Round::Answer(std::mem::take(said)))
    }

    /// What hooks on `agent.stop` judge.
    fn stop(&self, reply: &Reply, said: &str) -> Json {
        self.place.agent.payload(&AgentStop {
            id: self.runtime.id.clone(),
            parent_id: self.runtime.parent.clone(),
            finish_reason: reply.finish.as_str().to_owned(),
            iteration: self.rounds,
            text: said.to_owned(),
            response: said.to_owned(),
            tool_calls: self.recent.calls(),
            tool_results: self.recent.results(),
            usage: tokens(self.usage),
        })
    }

    /// What continued by itself and has ended, and nobody asked for.
    async fn take_news(&mut self) {
        for report in self.place.news().await {
            self.spend(report.total());
            self.nested.push(Nested::Call(Box::new(report)));
        }
    }

    /// What the turn's scripts logged, in order.
    fn log(&self) -> Vec<LogLine> {
        logged::lines(self.nested.as_slice())
    }
}

fn modified(event: Event, why: &str) -> TurnError {
    TurnError::Modified { event, why: why.to_owned() }
}
