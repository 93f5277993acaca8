//! What a session comes to.

use super::{Kind, Span, Status};
use crate::record::Tokens;

/// What a session comes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Microseconds from the first line to the last.
    pub took: u64,
    /// Of the root.
    pub turns: u64,
    /// Replies of models.
    pub replies: u64,
    /// Microseconds that those took.
    pub asking: u64,
    /// What the services counted.
    pub tokens: Tokens,
    /// What the services charge for them, in billionths of a US dollar, of the models whose prices are known.
    pub cost: Option<u64>,
    /// Replies with tokens whose cost is not known.
    pub unpriced: u64,
    /// Calls of tools by models.
    pub calls: u64,
    /// Of those, and of events and replies, what was refused.
    pub refused: u64,
    /// What failed.
    pub failed: u64,
    /// Turns of sub-agents.
    pub agents: u64,
    /// Hooks that were called.
    pub hooks: u64,
    /// Units of fuel.
    pub fuel: u64,
}

impl Totals {
    /// Counts what a span and what is in it cost.
    pub(super) fn add_cost(&mut self, span: &Span) {
        if span.kind == Kind::Model && span.tokens.is_some() {
            match span.cost {
                Some(cost) => self.cost = Some(self.cost.unwrap_or_default().saturating_add(cost)),
                None => self.unpriced = self.unpriced.saturating_add(1),
            }
        }
        span.inside.iter().for_each(|inner| self.add_cost(inner));
    }

    /// Counts a span and what is in it; `outer` where no call counts its fuel already, `decided` where it is shown by the
    /// call that it is about.
    pub(super) fn add(&mut self, span: &Span, outer: bool, decided: bool) {
        match span.kind {
            Kind::Turn => self.turns = self.turns.saturating_add(1),
            Kind::Agent => self.agents = self.agents.saturating_add(1),
            Kind::Model => {
                self.replies = self.replies.saturating_add(u64::from(span.status != Status::Open));
                self.asking = self.asking.saturating_add(span.took());
                let tokens = span.tokens.unwrap_or_default();
                self.tokens.input = self.tokens.input.saturating_add(tokens.input);
                self.tokens.output = self.tokens.output.saturating_add(tokens.output);
            }
            Kind::Tool => self.calls = self.calls.saturating_add(1),
            Kind::Hook if !matches!(span.word.as_str(), "skip" | "not reached") => {
                self.hooks = self.hooks.saturating_add(1);
            }
            Kind::Hook | Kind::Event | Kind::Task | Kind::Judge | Kind::Note => {}
        }
        // What a hook blocks is shown by the call or event that it blocks.
        if matches!(span.kind, Kind::Model | Kind::Tool | Kind::Task) || (span.kind == Kind::Event && !decided) {
            self.refused = self.refused.saturating_add(u64::from(span.status == Status::Refused));
            self.failed = self.failed.saturating_add(u64::from(span.status == Status::Failed));
        }
        let counts = outer && span.fuel > 0;
        if counts {
            self.fuel = self.fuel.saturating_add(span.fuel);
        }
        let decided = matches!(span.kind, Kind::Tool | Kind::Task | Kind::Event);
        // What a task used is not in what the call has used that began it.
        span.inside.iter().for_each(|inner| self.add(inner, outer && (!counts || inner.kind == Kind::Task), decided));
    }
}
