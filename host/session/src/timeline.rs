//! What began and ended when: the lines of a record as a tree.

mod growing;
mod totals;
mod work;

use serde_json::{Value as Json, json};

use super::read::Recording;
use super::record::{Header, HostCalled, Logged, Tokens};
use growing::Growing;

pub use totals::Totals;

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
    /// What a model's service charges for them, in billionths of a US dollar, where its prices are known.
    pub cost: Option<u64>,
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

    /// The same with the cost of each reply, of what a million tokens cost that a model reads and writes, in US dollars.
    #[must_use]
    pub fn with_prices(mut self, prices: &dyn Fn(&str) -> Option<(f64, f64)>) -> Self {
        for span in &mut self.spans {
            span.price(prices);
            self.totals.add_cost(span);
        }
        self
    }

    /// For a program.
    pub fn to_json(&self) -> Json {
        let Totals { took, turns, replies, asking, tokens, calls, refused, failed, agents, hooks, fuel, .. } =
            self.totals;
        let mut json = json!({
            "session": self.header,
            "ended": self.ended,
            "cut": self.cut,
            "totals": {
                "took_us": took, "turns": turns, "replies": replies, "asking_us": asking,
                "input_tokens": tokens.input, "output_tokens": tokens.output, "calls": calls, "refused": refused,
                "failed": failed, "agents": agents, "hooks": hooks, "fuel": fuel,
            },
            "timeline": self.spans.iter().map(Span::to_json).collect::<Vec<_>>(),
        });
        if let (Some(cost), Some(Json::Object(totals))) = (self.totals.cost, json.get_mut("totals")) {
            totals.insert("cost_usd".to_owned(), dollars(cost));
        }
        json
    }
}

impl Span {
    fn price(&mut self, prices: &dyn Fn(&str) -> Option<(f64, f64)>) {
        if let (Kind::Model, Some(tokens), Some((input, output))) = (self.kind, self.tokens, prices(&self.name)) {
            // Dollars for a million tokens are thousands of billionths for one. A sum that is too large stays the largest.
            let cost = (tokens.input as f64).mul_add(input, tokens.output as f64 * output) * 1000.0;
            self.cost = Some(cost.round() as u64);
        }
        self.inside.iter_mut().for_each(|inner| inner.price(prices));
    }

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
            if let Some(cost) = self.cost {
                fields.insert("cost_usd".to_owned(), dollars(cost));
            }
            fields.insert("inside".to_owned(), Json::Array(inside));
        }
        span
    }
}

/// Billionths of a dollar as dollars.
fn dollars(cost: u64) -> Json {
    json!(cost as f64 / 1e9)
}

/// Times together. A file may say that anything took any time.
pub(super) fn added(times: impl Iterator<Item = u64>) -> u64 {
    times.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
