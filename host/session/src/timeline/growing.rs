//! The tree of a timeline while it grows, line by line: each line begins a span, ends one, or says something of one.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::work::{close, event};
use super::{Kind, Span, Status, added};
use crate::read::calls_of;
use crate::record::{
    Asked, Called, Calling, Confirmation, Continued, Decided, Delegated, Judged, Line, ROOT, Reply, Retry, Returned,
    Task, Tokens, Turn, Turned, Unanswered, What,
};

/// A tree that grows: spans by number, each with the number of the one that it is in.
#[derive(Default)]
pub(super) struct Growing {
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
pub(super) const MAX_DEPTH: u32 = 64;

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
    /// What came to its conversation since its model was asked last.
    fresh: Vec<String>,
    /// The last turn of a sub-agent that it started.
    child: Option<usize>,
}

impl Growing {
    /// Takes the next line of the record.
    pub(super) fn line(&mut self, line: &Line) {
        let (at, by) = (line.at, (line.by.as_str(), line.strand.as_str()));
        match &line.what {
            What::Turn(turn) => self.turn(by, at, turn),
            What::Continued(turn) => self.continued(by, at, turn),
            What::Asked(asked) => self.asked(by, at, asked),
            What::Retry(retry) => self.retried(by, retry),
            What::Reply(reply) => self.reply(by, at, reply),
            What::Unanswered(failed) => self.unanswered(by, at, failed),
            What::Said(said) => self.said(by, said.message.as_ref()),
            What::Event(decided) => self.event(by, at, decided),
            What::Calling(calling) => self.calling(by, at, calling),
            What::Called(called) => self.called(by, at, called),
            What::Delegated(delegated) => self.delegated(by, delegated),
            What::Judged(judged) => self.judged(by, at, judged),
            What::Returned(returned) => self.returned(by, at, returned),
            What::Task(task) => self.task(by, at, task),
            What::Confirmation(asked) => self.confirmation(by, at, asked),
            What::Turned(turned) => self.turned(by, at, turned),
            What::Stopped { said } => self.stopped(by, at, said.as_deref()),
            What::Forgot(_) => self.note(by, at, "conversation", "shortened", Status::Fine),
            What::Switched(to) => self.note(by, at, "model", &to.model, Status::Fine),
            What::Session(_)
            | What::Unmade(_)
            | What::Script(_)
            | What::Looked(_)
            | What::Saw(_)
            | What::Question(_)
            | What::Full {}
            | What::Ended {} => {}
        }
    }

    /// The tree. What is still open ends with the record.
    pub(super) fn grown(mut self, last: u64) -> Vec<Span> {
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

    /// A turn begins: of the root, or of a sub-agent in the call that delegates to it.
    fn turn(&mut self, by: Who<'_>, at: u64, turn: &Turn) {
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

    fn continued(&mut self, by: Who<'_>, at: u64, turn: &Continued) {
        let text = turn.text.clone();
        self.turn(by, at, &Turn { agent: String::new(), parent: None, depth: 0, text });
        let span = self.agent(by).turn;
        if let Some(span) = self.span(span) {
            span.why = Some("continued after the process had ended".to_owned());
        }
    }

    fn asked(&mut self, by: Who<'_>, at: u64, asked: &Asked) {
        let parent = self.agent(by).turn;
        let fresh = std::mem::take(&mut self.agent(by).fresh);
        let span = self.begin(parent, Kind::Model, &asked.model, at);
        self.agent(by).asking = Some(span);
        if let Some(span) = self.span(Some(span)) {
            let text = format!("round {}, {} messages, {} tools", asked.round, asked.messages, asked.tools);
            span.texts.push(("given", text));
            if !fresh.is_empty() {
                span.texts.push(("new messages", fresh.join("\n\n")));
            }
        }
    }

    fn retried(&mut self, by: Who<'_>, retry: &Retry) {
        let asking = self.agent(by).asking;
        if let Some(span) = self.span(asking) {
            let pause = retry.pause_us / 1000;
            span.texts.push(("again", format!("{}; asked again after {pause} ms", retry.error)));
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

    fn unanswered(&mut self, by: Who<'_>, at: u64, failed: &Unanswered) {
        let asking = self.agent(by).asking.take();
        if let Some(span) = self.span(asking) {
            (span.end, span.status, span.word) = (at, Status::Failed, "failed".to_owned());
            span.why = Some(failed.error.clone());
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
        let (role, content) = (text(message, "role"), text(message, "content"));
        if !content.is_empty() {
            self.agent(by).fresh.push(format!("{role}: {content}"));
        }
        if role == "tool" {
            let call = self.agent(by).calls.remove(&text(message, "tool_call_id"));
            if let Some(span) = self.span(call) {
                span.texts.push(("result", content));
            }
        }
    }

    /// An event with its hooks, where any ran: it ends now.
    fn event(&mut self, by: Who<'_>, at: u64, decided: &Decided) {
        let parent = self.place(by);
        let wall = added(decided.hooks.iter().map(|hook| hook.work.wall_us));
        let span = event(decided, at.saturating_sub(wall));
        self.add(parent, span);
    }

    fn calling(&mut self, by: Who<'_>, at: u64, calling: &Calling) {
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

    fn called(&mut self, by: Who<'_>, at: u64, called: &Called) {
        let open = self.agent(by).call.take();
        if let Some(span) = self.span(open) {
            close(span, called, at);
        }
    }

    fn confirmation(&mut self, by: Who<'_>, at: u64, asked: &Confirmation) {
        let status = if asked.answer == "yes" { Status::Fine } else { Status::Refused };
        let said = match asked.answer.as_str() {
            "yes" => "confirmed",
            "no" => "not confirmed",
            _ => "needs confirmation, and no confirmer is available",
        };
        self.note(by, at, &asked.tool, said, status);
    }

    /// An agent sets a sub-agent to work. A further attempt means that the answer before was not accepted.
    fn delegated(&mut self, by: Who<'_>, delegated: &Delegated) {
        let agent = self.agent(by);
        agent.attempt = delegated.attempt;
        let before = agent.child.take().filter(|_| delegated.attempt > 1);
        self.refuse(before);
    }

    fn judged(&mut self, by: Who<'_>, at: u64, judged: &Judged) {
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

    fn returned(&mut self, by: Who<'_>, at: u64, returned: &Returned) {
        let last = self.agent(by).child.take();
        if let Some(error) = &returned.error {
            self.refuse(last);
            self.note(by, at, &returned.from, error, Status::Failed);
        }
    }

    /// A sub-agent's answer was not accepted.
    fn refuse(&mut self, turn: Option<usize>) {
        if let Some(span) = self.span(turn).filter(|span| span.status == Status::Fine) {
            (span.status, span.word) = (Status::Refused, "not accepted".to_owned());
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
        let said = turned.said.clone().filter(|said| !said.is_empty());
        span.texts.extend(said.map(|said| ("until then", said)));
        let why = turned.error.clone().or_else(|| turned.warning.clone());
        span.why = match (span.why.take(), why) {
            (Some(one), Some(other)) => Some(format!("{one}; {other}")),
            (one, other) => one.or(other),
        };
        span.tokens = Some(turned.tokens).filter(|tokens| *tokens != Tokens::default());
    }

    /// A turn was stopped, with everything that it had begun.
    fn stopped(&mut self, by: Who<'_>, at: u64, said: Option<&str>) {
        let AtWork { turn, asking, call, .. } = std::mem::take(self.agent(by));
        for open in [turn, asking, call] {
            if let Some(span) = self.span(open) {
                (span.end, span.word) = (at, "stopped".to_owned());
            }
        }
        if let (Some(said), Some(span)) = (said.filter(|said| !said.is_empty()), self.span(turn)) {
            span.texts.push(("until then", said.to_owned()));
        }
    }

    fn note(&mut self, by: Who<'_>, at: u64, name: &str, why: &str, status: Status) {
        let parent = self.place(by);
        let (name, why) = (name.to_owned(), Some(why.to_owned()));
        self.add(parent, Span { kind: Kind::Note, name, start: at, end: at, status, why, ..Span::default() });
    }
}
