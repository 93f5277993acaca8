//! What began and ended when: the lines of a record as a tree.

mod totals;
mod work;

use std::collections::HashMap;

use serde_json::{Value as Json, json};

use super::read::{Recording, calls_of};
use super::record::{Asked, Header, HostCalled, Line, Logged, ROOT, Reply, Task, Tokens, Turned, What};

pub use totals::Totals;
use work::{close, event};

/// A session as a tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// What the session ran on.
    pub header: Header,
    /// Turns of the root, and what happened between them.
    pub spans: Vec<Span>,
    /// What all of it comes to.
    pub totals: Totals,
    /// Whether it was ended in order.
    pub ended: bool,
    /// Whether half a line comes after what was read.
    pub cut: bool,
}

/// Something that took its time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Span {
    /// What it is.
    pub kind: Kind,
    /// The tool, the model, the hook, the sub-agent, the event.
    pub name: String,
    /// Microseconds since the session began.
    pub start: u64,
    /// The same.
    pub end: u64,
    /// How it ended.
    pub status: Status,
    /// A word for that, such as `completed`.
    pub word: String,
    /// Why, where there is something to say.
    pub why: Option<String>,
    /// Tokens that a model's service counted.
    pub tokens: Option<Tokens>,
    /// Units of fuel, with what it started.
    pub fuel: u64,
    /// Most linear memory, in bytes.
    pub memory: u64,
    /// What went in and came out, with a word for each.
    pub texts: Vec<(&'static str, String)>,
    /// Its host calls.
    pub host: Vec<HostCalled>,
    /// How many there were.
    pub host_calls: u64,
    /// What its script logged.
    pub log: Vec<Logged>,
    /// What it started.
    pub inside: Vec<Span>,
}

/// What took its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// A turn of the root.
    #[default]
    Turn,
    /// A sub-agent's.
    Agent,
    /// A model's answer.
    Model,
    /// A call of a tool.
    Tool,
    /// An event, with its hooks.
    Event,
    /// A hook.
    Hook,
    /// A call that continued by itself, from its beginning to its end.
    Task,
    /// The policy's script, on the result of a sub-agent.
    Judge,
    /// Something that happened at one moment.
    Note,
}

impl Kind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Agent => "agent",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Event => "event",
            Self::Hook => "hook",
            Self::Task => "task",
            Self::Judge => "judge",
            Self::Note => "note",
        }
    }
}

/// How something ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    /// As it should.
    #[default]
    Fine,
    /// A hook or the policy said no.
    Refused,
    /// It failed, or was over a limit.
    Failed,
    /// Not at all: the session was ended before, or nobody waited.
    Open,
}

impl Status {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Open => "open",
        }
    }

    fn of(outcome: &str) -> Self {
        match outcome {
            "completed" => Self::Fine,
            "denied" => Self::Refused,
            _ => Self::Failed,
        }
    }
}

impl Span {
    /// How long it took, in microseconds.
    pub fn took(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// A tree that grows: spans by number, each with the number of the one that it is in.
#[derive(Default)]
struct Growing {
    spans: Vec<(Nesting, Span)>,
    /// What each agent at work is about, in each strand.
    at_work: HashMap<(String, String), AtWork>,
    /// The tasks that are in progress.
    tasks: HashMap<String, usize>,
}

/// Where a span is: in which, and how deep.
#[derive(Clone, Copy)]
struct Nesting {
    parent: Option<usize>,
    depth: u32,
}

/// How deep spans are in spans. What a file says is deeper stays there.
const MAX_DEPTH: u32 = 64;

/// An agent at work, and the strand.
type Who<'a> = (&'a str, &'a str);

/// What an agent at work is about.
#[derive(Default, Clone)]
struct AtWork {
    turn: Option<usize>,
    asking: Option<usize>,
    call: Option<usize>,
    /// Of its conversation: arguments of calls, and the calls of its last reply.
    arguments: HashMap<String, String>,
    calls: HashMap<String, usize>,
    attempt: u32,
    /// The last turn of a sub-agent that it started.
    child: Option<usize>,
}

impl Timeline {
    /// Of a record.
    pub fn of(recording: &Recording) -> Self {
        let mut growing = Growing::default();
        for line in &recording.lines {
            growing.line(line);
        }
        let last = recording.lines.last().map_or(0, |line| line.at);
        let spans = growing.grown(last);
        let mut totals = Totals { took: last, ..Totals::default() };
        spans.iter().for_each(|span| totals.add(span, true, false));
        Self { header: recording.header.clone(), spans, totals, ended: recording.is_ended(), cut: recording.cut }
    }

    /// For a program.
    pub fn to_json(&self) -> Json {
        let Totals { took, turns, replies, asking, tokens, calls, refused, failed, agents, hooks, fuel } = self.totals;
        json!({
            "session": self.header,
            "ended": self.ended,
            "cut": self.cut,
            "totals": {
                "took_us": took, "turns": turns, "replies": replies, "asking_us": asking,
                "input_tokens": tokens.input, "output_tokens": tokens.output, "calls": calls, "refused": refused,
                "failed": failed, "agents": agents, "hooks": hooks, "fuel": fuel,
            },
            "timeline": self.spans.iter().map(Span::to_json).collect::<Vec<_>>(),
        })
    }
}

impl Span {
    fn to_json(&self) -> Json {
        let texts: serde_json::Map<String, Json> =
            self.texts.iter().map(|(word, text)| ((*word).to_owned(), text.clone().into())).collect();
        let mut span = json!({
            "kind": self.kind.name(), "name": self.name, "start_us": self.start, "took_us": self.took(),
            "status": self.status.name(), "word": self.word, "why": self.why,
            "tokens": self.tokens, "fuel": self.fuel, "peak_memory": self.memory, "texts": texts,
            "host_calls": self.host_calls, "host": self.host, "log": self.log,
        });
        // Not with the rest, which would copy everything inside once for each level.
        let inside = self.inside.iter().map(Self::to_json).collect();
        if let Json::Object(fields) = &mut span {
            fields.insert("inside".to_owned(), Json::Array(inside));
        }
        span
    }
}

impl Growing {
    fn add(&mut self, parent: Option<usize>, span: Span) -> usize {
        let outer = parent.and_then(|parent| Some((parent, self.spans.get(parent)?.0)));
        let place = match outer {
            None => Nesting { parent: None, depth: 0 },
            Some((_, outer)) if outer.depth >= MAX_DEPTH => outer,
            Some((parent, outer)) => Nesting { parent: Some(parent), depth: outer.depth.saturating_add(1) },
        };
        self.spans.push((place, span));
        self.spans.len().saturating_sub(1)
    }

    fn span(&mut self, at: Option<usize>) -> Option<&mut Span> {
        at.and_then(|at| self.spans.get_mut(at)).map(|(_, span)| span)
    }

    fn agent(&mut self, by: Who<'_>) -> &mut AtWork {
        self.at_work.entry((by.0.to_owned(), by.1.to_owned())).or_default()
    }

    /// Where something is that an agent at work does now.
    fn place(&self, by: Who<'_>) -> Option<usize> {
        self.at_work.get(&(by.0.to_owned(), by.1.to_owned())).and_then(|agent| agent.call.or(agent.turn))
    }

    /// Something that begins, and is open until it ends.
    fn begin(&mut self, parent: Option<usize>, kind: Kind, name: &str, at: u64) -> usize {
        let span = Span { kind, name: name.to_owned(), start: at, status: Status::Open, ..Span::default() };
        self.add(parent, span)
    }

    fn line(&mut self, line: &Line) {
        let (at, by) = (line.at, (line.by.as_str(), line.strand.as_str()));
        match &line.what {
            What::Turn(turn) => {
                let above = turn.parent.as_deref().map(|parent| (parent, by.1));
                let parent = above.and_then(|above| self.place(above));
                let kind = if by.0 == ROOT { Kind::Turn } else { Kind::Agent };
                let span = self.begin(parent, kind, &turn.agent, at);
                let attempt = above.map_or(1, |above| self.agent(above).attempt);
                if let Some(span) = self.span(Some(span)) {
                    span.texts.push((if kind == Kind::Turn { "asked" } else { "task" }, turn.text.clone()));
                    if attempt > 1 {
                        span.why = Some(format!("attempt {attempt}"));
                    }
                }
                if let Some(above) = above {
                    self.agent(above).child = Some(span);
                }
                *self.agent(by) = AtWork { turn: Some(span), ..AtWork::default() };
            }
            What::Asked(asked) => self.asked(by, at, asked),
            What::Retry(retry) => {
                let asking = self.agent(by).asking;
                if let Some(span) = self.span(asking) {
                    let pause = retry.pause_us / 1000;
                    span.texts.push(("again", format!("{}; asked again after {pause} ms", retry.error)));
                }
            }
            What::Reply(reply) => self.reply(by, at, reply),
            What::Unanswered(failed) => {
                let asking = self.agent(by).asking.take();
                if let Some(span) = self.span(asking) {
                    (span.end, span.status, span.word) = (at, Status::Failed, "failed".to_owned());
                    span.why = Some(failed.error.clone());
                }
            }
            What::Said(said) => self.said(by, said.message.as_ref()),
            What::Event(decided) => {
                let parent = self.place(by);
                let wall = added(decided.hooks.iter().map(|hook| hook.work.wall_us));
                let span = event(decided, at.saturating_sub(wall));
                self.add(parent, span);
            }
            What::Calling(calling) => {
                let parent = self.agent(by).turn;
                let span = self.begin(parent, Kind::Tool, &calling.tool, at);
                let agent = self.agent(by);
                agent.call = Some(span);
                agent.calls.insert(calling.call.clone(), span);
                let arguments = agent.arguments.get(&calling.call).cloned();
                if let (Some(arguments), Some(span)) = (arguments, self.span(Some(span))) {
                    span.texts.push(("arguments", arguments));
                }
            }
            What::Called(called) => {
                let open = self.agent(by).call.take();
                if let Some((_, span)) = open.and_then(|open| self.spans.get_mut(open)) {
                    close(span, called, at);
                }
            }
            What::Delegated(delegated) => {
                let agent = self.agent(by);
                agent.attempt = delegated.attempt;
                let before = agent.child.take().filter(|_| delegated.attempt > 1);
                self.refuse(before);
            }
            What::Judged(judged) => {
                let parent = self.place(by);
                let refused = judged.refused.is_some();
                let word = if refused { "not accepted" } else { "accepted" };
                let span = Span {
                    kind: Kind::Judge,
                    name: "verify".to_owned(),
                    start: at.saturating_sub(judged.took_us),
                    end: at,
                    status: if refused { Status::Refused } else { Status::Fine },
                    word: word.to_owned(),
                    why: judged.refused.clone(),
                    ..Span::default()
                };
                self.add(parent, span);
            }
            What::Returned(returned) => {
                let last = self.agent(by).child.take();
                if let Some(error) = &returned.error {
                    self.refuse(last);
                    self.note(by, at, &returned.from, error, Status::Failed);
                }
            }
            What::Task(task) => self.task(by, at, task),
            What::Confirmation(asked) => {
                let status = if asked.answer == "yes" { Status::Fine } else { Status::Refused };
                let said = match asked.answer.as_str() {
                    "yes" => "confirmed",
                    "no" => "not confirmed",
                    _ => "needs confirmation, and no confirmer is available",
                };
                self.note(by, at, &asked.tool, said, status);
            }
            What::Turned(turned) => self.turned(by, at, turned),
            What::Stopped {} => {
                let AtWork { turn, asking, call, .. } = std::mem::take(self.agent(by));
                for open in [turn, asking, call] {
                    if let Some(span) = self.span(open) {
                        (span.end, span.word) = (at, "stopped".to_owned());
                    }
                }
            }
            What::Session(_)
            | What::Unmade(_)
            | What::Script(_)
            | What::Looked(_)
            | What::Saw(_)
            | What::Full {}
            | What::Ended {} => {}
        }
    }

    /// A task has begun, in the call that it resumes, or has ended.
    fn task(&mut self, by: Who<'_>, at: u64, task: &Task) {
        let id = task.task.as_deref().unwrap_or_default();
        let Some(opens) = task.opens.as_deref() else {
            let ended = self.tasks.remove(id);
            let Some((_, span)) = ended.and_then(|ended| self.spans.get_mut(ended)) else { return };
            match &task.called {
                Some(called) => close(span, called, at),
                None => (span.end, span.word) = (at, task.state.clone()),
            }
            return;
        };
        if task.why.is_some() {
            // The call says so.
            return;
        }
        let parent = self.place(by);
        let span = self.begin(parent, Kind::Task, &task.tool, at);
        self.tasks.insert(id.to_owned(), span);
        self.agent((by.0, opens)).turn = Some(span);
    }

    /// A sub-agent's answer was not accepted.
    fn refuse(&mut self, turn: Option<usize>) {
        if let Some(span) = self.span(turn).filter(|span| span.status == Status::Fine) {
            (span.status, span.word) = (Status::Refused, "not accepted".to_owned());
        }
    }

    fn note(&mut self, by: Who<'_>, at: u64, name: &str, why: &str, status: Status) {
        let parent = self.place(by);
        let (name, why) = (name.to_owned(), Some(why.to_owned()));
        self.add(parent, Span { kind: Kind::Note, name, start: at, end: at, status, why, ..Span::default() });
    }

    fn asked(&mut self, by: Who<'_>, at: u64, asked: &Asked) {
        let parent = self.agent(by).turn;
        let span = self.begin(parent, Kind::Model, &asked.model, at);
        self.agent(by).asking = Some(span);
        if let Some(span) = self.span(Some(span)) {
            let text = format!("round {}, {} messages, {} tools", asked.round, asked.messages, asked.tools);
            span.texts.push(("given", text));
        }
    }

    fn reply(&mut self, by: Who<'_>, at: u64, reply: &Reply) {
        let agent = self.agent(by);
        for call in calls_of(reply) {
            agent.arguments.insert(call.id, call.arguments);
        }
        let asking = agent.asking.take();
        if let Some(span) = self.span(asking) {
            (span.end, span.status, span.tokens) = (at, Status::Fine, reply.tokens);
            let names: Vec<&str> = reply.calls.iter().map(|call| call.name.as_str()).collect();
            span.word = if names.is_empty() { "answers".to_owned() } else { format!("calls {}", names.join(", ")) };
            if !matches!(reply.finish.as_str(), "stop" | "tool_calls") {
                span.why = Some(format!("ended with {:?}", reply.finish));
            }
            if !reply.text.is_empty() {
                span.texts.push(("says", reply.text.clone()));
            }
        }
    }

    /// What a conversation says beside the report elsewhere: arguments after hooks, and results.
    fn said(&mut self, by: Who<'_>, message: Option<&Json>) {
        let Some(message) = message else { return };
        let text = |value: &Json, key: &str| value.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
        for call in message.get("tool_calls").and_then(Json::as_array).into_iter().flatten() {
            if let Some(function) = call.get("function") {
                self.agent(by).arguments.insert(text(call, "id"), text(function, "arguments"));
            }
        }
        if text(message, "role") == "tool" {
            let call = self.agent(by).calls.remove(&text(message, "tool_call_id"));
            if let Some(span) = self.span(call) {
                span.texts.push(("result", text(message, "content")));
            }
        }
    }

    fn turned(&mut self, by: Who<'_>, at: u64, turned: &Turned) {
        let turn = self.agent(by).turn.take();
        let Some(span) = self.span(turn) else { return };
        span.end = at;
        (span.status, span.word) = match (&turned.error_kind, &turned.answer) {
            (_, Some(_)) => (Status::Fine, "answered".to_owned()),
            (Some(kind), _) if kind == "hook" => (Status::Refused, "blocked".to_owned()),
            _ => (Status::Failed, "failed".to_owned()),
        };
        span.texts.extend(turned.answer.clone().map(|answer| ("answer", answer)));
        let why = turned.error.clone().or_else(|| turned.warning.clone());
        span.why = match (span.why.take(), why) {
            (Some(one), Some(other)) => Some(format!("{one}; {other}")),
            (one, other) => one.or(other),
        };
        span.tokens = Some(turned.tokens).filter(|tokens| *tokens != Tokens::default());
    }

    /// The tree. What is still open ends with the record.
    fn grown(mut self, last: u64) -> Vec<Span> {
        let mut roots = Vec::new();
        let mut inside: HashMap<usize, Vec<Span>> = HashMap::new();
        // From the newest on: what is in a span came after it.
        while let Some((Nesting { parent, .. }, mut span)) = self.spans.pop() {
            if span.status == Status::Open {
                span.end = if span.end == 0 { last } else { span.end };
                if span.word.is_empty() {
                    span.word = "not ended".to_owned();
                }
            }
            span.end = span.end.max(span.start);
            span.inside.extend(inside.remove(&self.spans.len()).into_iter().flatten().rev());
            span.inside.sort_by_key(|inner| inner.start);
            match parent {
                Some(parent) => inside.entry(parent).or_default().push(span),
                None => roots.push(span),
            }
        }
        roots.reverse();
        roots
    }
}

/// Times together. A file may say that anything took any time.
pub(super) fn added(times: impl Iterator<Item = u64>) -> u64 {
    times.fold(0, u64::saturating_add)
}
#[cfg(test)]
mod tests;
