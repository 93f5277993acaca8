//! The calls of a reply: one after another, or as many at the same time as the policy allows.

use std::sync::Arc;
use std::time::Instant;

use super::super::boxed::boxed;
use super::super::conversation::Conversation;
use super::super::error::TurnError;
use super::super::exchange::{arguments, has_arguments};
use super::super::ledger::Entry;
use super::super::listener::AgentEvent;
use super::super::replies::refused;
use super::super::runtime::only_in_scripts;
use super::Work;
use harness_artifact::third_party;
use harness_capability::reentry::Patience;
use harness_dispatch::builtin::{DELEGATE, DONE};
use harness_dispatch::payload::ToolUse;
use harness_dispatch::tasks::{Tasks, Wanted};
use harness_dispatch::{Call, CallError, CallReport, Nested, overlap, pipeline};
use harness_policy::limits::{LimitKey, Limits};
use harness_provider::{Finish, Message, Reply, ToolCall};

/// Bytes of a frame around a result, beside the marks of its lines.
const FRAME: usize = 1024;

/// Calls that run at the same time. They end with the turn that waits for them, and nobody else hears of them.
struct Concurrent {
    tasks: Arc<Tasks>,
    ids: Vec<String>,
}

impl Drop for Concurrent {
    fn drop(&mut self) {
        self.tasks.give_up(&self.ids);
    }
}

impl Work<'_> {
    /// Makes the calls of a reply, in order, and as many at a time as the policy allows. Their results have that order too.
    ///
    /// # Errors
    ///
    /// Where a budget has no call left.
    pub(super) async fn make(&mut self, history: &mut Conversation, reply: Reply) -> Result<(), TurnError> {
        let calls = reply.calls.clone();
        let cut = (reply.finish == Finish::Length).then(|| calls.last().filter(|call| !has_arguments(call)).cloned());
        let cut = cut.flatten();
        // All results follow; of a turn that is given up here, the next one leaves out what is not whole.
        history.push(Message::Assistant { text: reply.text, calls: reply.calls });
        self.tell_said(history);
        for calls in self.at_a_time(&calls) {
            let (mut made, mut refused) = (Vec::new(), None);
            let mut concurrent = Concurrent { tasks: self.place.tasks.clone(), ids: Vec::new() };
            for call in calls {
                if let Err(over) = self.purse.take(Entry::Call) {
                    refused = Some(over);
                    break;
                }
                self.notify(&AgentEvent::Calls { agent: self.runtime.name(), call });
                let started = Instant::now();
                let called = match cut.as_ref() == Some(call) {
                    true => Err(CallError::Cut(call.name.clone())),
                    false => self.call(call, calls.len()).await,
                };
                if calls.len() > 1 {
                    concurrent.ids.extend(called.iter().filter_map(|begun| begun.task.clone()));
                }
                made.push((call, started, called));
            }
            for (call, started, called) in made {
                let called = match called {
                    Ok(begun) if calls.len() > 1 => self.ended(begun).await,
                    called => called,
                };
                self.take_result(history, call, started, called);
            }
            if let Some(over) = refused {
                return Err(over);
            }
        }
        Ok(())
    }

    /// The calls of a reply, in groups: those of one run at the same time.
    fn at_a_time<'c>(&self, calls: &'c [ToolCall]) -> Vec<&'c [ToolCall]> {
        let (settings, own) = (&self.runtime.crew.settings, self.runtime.loaded.policy().tools.concurrency());
        let most = usize::try_from(lowered(settings.concurrency, own));
        let agents = usize::try_from(settings.max_concurrent).unwrap_or(usize::MAX);
        let can_join = |call: &ToolCall| overlap::can_run_concurrently(self.place, &call.name, &call.arguments);
        groups(calls, (most.unwrap_or(usize::MAX), agents), can_join)
    }

    /// Waits for the end of a call that runs concurrently with others.
    async fn ended(&mut self, begun: CallReport) -> Result<CallReport, CallError> {
        let Some(task) = begun.task.clone() else { return Ok(begun) };
        let found = self.place.look(Wanted::These(&[task]), Patience::Until(None)).await.map_err(CallError::Host)?;
        let ended = found.reports.into_iter().next();
        let ended = ended.ok_or_else(|| CallError::Host("the end of the call is not known".to_owned()))?;
        Ok(CallReport { pre: begun.pre, confirmed: begun.confirmed, ..ended })
    }

    /// Gives the model what came of a call.
    pub(super) fn take_result(
        &mut self,
        history: &mut Conversation,
        call: &ToolCall,
        started: Instant,
        called: Result<CallReport, CallError>,
    ) {
        let limits = &self.runtime.loaded.policy().project.limits;
        let most = limits.get(LimitKey::Output).unwrap_or(Limits::default().output_bytes);
        let content = match &called {
            Ok(report) => self.framed(report, most),
            Err(error) => refused(error, most),
        };
        let (agent, took) = (self.runtime.name(), started.elapsed());
        self.notify(&AgentEvent::Called { agent, call, report: called.as_ref(), content: &content, took });
        let is_error = called.as_ref().map_or(true, |report| report.is_error);
        self.runtime.failures.enter(&call.name, is_error);
        self.recent.push(&call.id, &call.name, arguments(call), content.clone(), is_error);
        if let Ok(report) = called {
            self.done |= call.name == DONE && !report.is_error;
            self.spend(report.total());
            self.nested.push(Nested::Call(Box::new(report)));
        } else if let Err(CallError::Arguments { pre: Some(pre), .. }) = called {
            self.spend(pre.usage());
            self.nested.push(Nested::Event(*pre));
        }
        history.push(Message::Tool { call_id: call.id.clone(), name: call.name.clone(), content });
        self.tell_said(history);
    }

    /// What a model gets of a call. What a server says is quoted, as all of a third party is.
    fn framed(&self, report: &CallReport, most: u64) -> String {
        let tool = self.runtime.loaded.registry().tool(&report.tool).ok();
        let Some(tool) = tool.filter(|tool| tool.served.is_some() && report.task.is_none()) else {
            return report.content.clone();
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut cap = most;
        loop {
            let quoted = third_party::quoted(&tool.source_name, &report.content, cap);
            // Quotation marks before each line take room too.
            if quoted.len() <= most.saturating_add(FRAME) || cap == 0 {
                return quoted;
            }
            cap /= 2;
        }
    }

    /// Makes a call, or begins it where it is one of several.
    pub(super) async fn call(&mut self, call: &ToolCall, of: usize) -> Result<CallReport, CallError> {
        let arguments = arguments(call);
        self.calls.push(ToolUse { name: call.name.clone(), args: arguments.clone() });
        let requested = Call { id: Some(call.id.clone()), name: call.name.clone(), arguments };
        // What a script has left is shared by those that run at the same time.
        let shares = u64::try_from(of).unwrap_or(u64::MAX).max(1);
        let left = self.left.map(|left| left.part(shares));
        let here = self.place.now(left).await;
        // Without `done` no turn could end that has to.
        let ends = call.name == DONE && self.runtime.crew.settings.exit.wants_done();
        let caller = self.runtime.caller.as_ref();
        let failing = || self.runtime.failures.refuse(&call.name).filter(|_| !ends);
        match only_in_scripts(&here, &call.name).or_else(failing) {
            Some(why) => boxed(pipeline::refuse(&here, requested, why)).await,
            None if of > 1 => boxed(pipeline::start(&here, requested, caller)).await,
            None => boxed(pipeline::call(&here, requested, caller)).await,
        }
    }
}

/// How many calls run at the same time: an agent's own policy only lowers it.
fn lowered(most: u64, own: Option<u64>) -> u64 {
    own.map_or(most, |own| own.min(most))
}

/// Calls in groups of those that run at the same time: at most so many, and at most so many of agents. One that cannot
/// run concurrently is a group of its own.
fn groups(
    mut calls: &[ToolCall],
    (most, most_agents): (usize, usize),
    can_join: impl Fn(&ToolCall) -> bool,
) -> Vec<&[ToolCall]> {
    let mut groups = Vec::new();
    while !calls.is_empty() {
        let mut agents = 0;
        let mut fits = |call: &&ToolCall| {
            agents += usize::from(call.name == DELEGATE);
            agents <= most_agents && can_join(call)
        };
        let count = if most > 1 { calls.iter().take(most).take_while(&mut fits).count() } else { 1 };
        let (group, rest) = calls.split_at(count.max(1));
        groups.push(group);
        calls = rest;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_own_policy_only_lowers() {
        let all = [None, Some(1), Some(4), Some(9)].map(|own| lowered(4, own));
        assert_eq!(all, [4, 1, 4, 4]);
    }
}
