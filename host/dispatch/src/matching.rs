//! Whether a hook is called: its `when` holds for the payload as it was fired, or as it stands at its turn. So no hook can
//! change a payload to keep a later one from looking at it, and a change that brings a payload to a hook does so.

use std::sync::Arc;

use serde_json::Value as Json;

use harness_artifact::hook::Hook;
use harness_policy::limits::Limits;
use harness_sandbox::engine::{Image, Sandbox};
use harness_sandbox::outcome::{Answer, Outcome, Report, Usage};
use harness_sandbox::state::Context;

/// What a hook without a script decides where its `when` holds.
const ALLOWS: &str = r#"{"action":"allow"}"#;

/// The payload of an event on its way through its hooks.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) now: Json,
    /// The same as text, since it was last changed.
    text: Option<Arc<str>>,
    /// As it was fired, once a hook has changed it.
    fired: Option<(Json, Arc<str>)>,
}

/// Whether a `when` holds, as far as that is certain without running it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    Yes,
    No,
    /// The interpreter is asked, for one or both of the payloads.
    Ask {
        now: bool,
        fired: bool,
    },
}

impl Payload {
    pub(super) fn new(fired: Json) -> Self {
        Self { now: fired, text: None, fired: None }
    }

    /// The same with something else in the place of both.
    pub(super) fn map(&self, change: impl Fn(&Json) -> Json) -> Self {
        let mut mapped = Self::new(change(self.fired.as_ref().map_or(&self.now, |(fired, _)| fired)));
        if self.fired.is_some() {
            mapped.change(change(&self.now));
        }
        mapped
    }

    /// As text, as scripts get it.
    pub(super) fn text(&mut self) -> Arc<str> {
        self.text.get_or_insert_with(|| self.now.to_string().into()).clone()
    }

    /// It is now this one.
    pub(super) fn change(&mut self, new: Json) {
        let old = std::mem::replace(&mut self.now, new);
        let text = self.text.take();
        if self.fired.is_none() {
            let text = text.unwrap_or_else(|| old.to_string().into());
            self.fired = Some((old, text));
        }
    }

    /// As text, as it was fired; nothing where it is still that.
    pub(super) fn fired(&self) -> Option<&str> {
        self.fired.as_ref().map(|(_, text)| &**text)
    }

    /// Whether the `when` of a hook holds for one of the two.
    pub(super) fn holds(&self, hook: &Hook, event: &str) -> Holds {
        let decided = |payload: &Json| match &hook.when {
            None => Some(true),
            // An expression over texts is decided here; the rest, and what is uncertain, by the interpreter.
            Some(_) => hook.filter.as_ref().and_then(|filter| filter.decide(event, payload)),
        };
        let now = decided(&self.now);
        let fired = self.fired.as_ref().map_or(Some(false), |(fired, _)| decided(fired));
        match (now, fired) {
            (Some(true), _) | (_, Some(true)) => Holds::Yes,
            (Some(false), Some(false)) => Holds::No,
            (now, fired) => Holds::Ask { now: now.is_none(), fired: fired.is_none() },
        }
    }
}

/// What is needed to ask a hook.
pub(super) struct Asking<'a> {
    pub(super) sandbox: &'a Sandbox,
    pub(super) image: &'a Image,
    pub(super) context: Context,
    pub(super) limits: Limits,
    pub(super) event: &'a str,
    /// Whether there is something to call.
    pub(super) has_script: bool,
}

impl Asking<'_> {
    /// Evaluates its `when` as far as that is not certain, and calls `handle` where it holds. All of it is within the
    /// limits of one call.
    pub(super) async fn ask(mut self, holds: Holds, now: &str, fired: Option<&str>) -> Report<Answer> {
        let (ask_now, ask_fired) = match holds {
            Holds::Yes => (false, false),
            Holds::No => return self.answer(Answer::Unmatched, Usage::default()),
            Holds::Ask { now, fired } => (now, fired),
        };
        if ask_now && !ask_fired && self.has_script {
            return self.sandbox.decide(self.image, self.context, self.limits, self.event, now).await;
        }
        let questions = [ask_now.then_some(now), fired.filter(|_| ask_fired)];
        let mut holds = !ask_now && !ask_fired;
        let mut used = Usage::default();
        let mut failure = None;
        for payload in questions.into_iter().flatten() {
            let context = self.context.clone();
            let report = self.sandbox.matches(self.image, context, self.limits, self.event, payload).await;
            used = used.and(report.usage);
            self.spend(report.usage);
            match report.outcome {
                Outcome::Completed(true) => {
                    holds = true;
                    break;
                }
                Outcome::Completed(false) => {}
                Outcome::Failed(why) => failure = failure.or(Some(why)),
                Outcome::Denied { .. } | Outcome::Limited(_) | Outcome::Busy(_) | Outcome::Fault(_) => {
                    let outcome = report.outcome.map(|_| Answer::Unmatched);
                    return Report { outcome, usage: used, log: report.log, calls: report.calls, coverage: None };
                }
            }
        }
        match failure {
            _ if holds && self.has_script => {
                let report = self.sandbox.handle(self.image, self.context, self.limits, self.event, now).await;
                let usage = used.and(report.usage);
                Report { usage, ..report.map(|outcome| outcome.map(Answer::Decided)) }
            }
            _ if holds => self.answer(Answer::Decided(ALLOWS.to_owned()), used),
            Some(failure) => self.answer(Answer::WhenFailed(failure), used),
            None => self.answer(Answer::Unmatched, used),
        }
    }

    fn answer(self, answer: Answer, usage: Usage) -> Report<Answer> {
        let outcome = Outcome::Completed(answer);
        Report { outcome, usage, log: Default::default(), calls: Vec::new(), coverage: None }
    }

    fn spend(&mut self, used: Usage) {
        self.limits.fuel = self.limits.fuel.saturating_sub(used.fuel);
        self.limits.timeout = self.limits.timeout.saturating_sub(used.wall);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use harness_artifact::hook::Hook;

    fn hook(when: &str) -> Hook {
        let text = format!("---\nevent: tool.pre\n{when}---\n");
        Hook::parse(".harness/hooks/it.md", "it", 0, &text).0.unwrap()
    }

    /// As it was fired, or as it stands: either is enough, and what cannot be told of either is asked.
    #[test]
    fn either_payload_is_enough() {
        let ask = |now, fired| Holds::Ask { now, fired };
        let cases = [
            ("", json!("x"), None, Holds::Yes),
            ("when: payload[\"to\"] == \"a\"\n", json!({"to": "a"}), None, Holds::Yes),
            ("when: payload[\"to\"] == \"a\"\n", json!({"to": "b"}), None, Holds::No),
            ("when: payload[\"to\"] == \"a\"\n", json!({"to": "a"}), Some(json!({"to": "b"})), Holds::Yes),
            ("when: payload[\"to\"] == \"a\"\n", json!({"to": "b"}), Some(json!({"to": "a"})), Holds::Yes),
            ("when: payload[\"to\"] == \"a\"\n", json!({"to": "b"}), Some(json!({"to": "c"})), Holds::No),
            ("when: payload[\"to\"] == \"a\"\n", json!({}), Some(json!({"to": "a"})), Holds::Yes),
            ("when: payload[\"to\"] == \"a\"\n", json!({}), Some(json!({"to": "b"})), ask(false, true)),
            ("when: payload[\"to\"] == \"a\"\n", json!({"to": "b"}), Some(json!({})), ask(true, false)),
            ("when: len(payload) > 1\n", json!({}), None, ask(true, false)),
            ("when: len(payload) > 1\n", json!({}), Some(json!({"a": 1})), ask(true, true)),
        ];
        for (when, fired, changed, expected) in cases {
            let mut payload = Payload::new(fired);
            assert_eq!(payload.fired(), None);
            changed.into_iter().for_each(|new| payload.change(new));
            assert_eq!(payload.holds(&hook(when), "tool.pre"), expected, "{when}{payload:?}");
        }
    }

    #[test]
    fn what_was_fired_is_the_first_of_all() {
        let mut payload = Payload::new(json!(1));
        payload.change(json!(2));
        payload.change(json!(3));
        assert_eq!((&*payload.text(), payload.fired()), ("3", Some("1")));
    }
}
