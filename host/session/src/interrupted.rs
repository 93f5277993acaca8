//! How far the last turn of a session came that ended with its process, so that another process continues it.

use std::collections::HashSet;

use super::read::{Recording, conversation};
use super::record::{Continued, Line, ROOT, What};
use harness_agent::Interrupted;
use harness_dispatch::confirm::Answer;
use harness_provider::Message;

impl Continued {
    /// The same for a session that continues it.
    #[must_use]
    pub fn interrupted(&self) -> Interrupted {
        let Self { text, began, rounds, calls, tokens, begun } = self.clone();
        Interrupted { text, began: usize::try_from(began).unwrap_or(usize::MAX), rounds, calls, tokens, begun }
    }
}

/// The open turn of the root so far.
#[derive(Debug, Default)]
struct Open {
    text: String,
    /// The line that it began with.
    line: usize,
    /// Where it began in the conversation, if that is said: else after all that came before.
    began: Option<usize>,
    calls: u64,
    tokens: u64,
    /// Calls of the root that have begun, but for those that wait for a person's answer.
    begun: HashSet<String>,
    /// Those that wait for one.
    waiting: HashSet<String>,
}

impl Recording {
    /// The conversation with the turn that the session ended in, and how far that came; nothing where it ended between two
    /// turns. Calls that have no result are left open.
    ///
    /// # Errors
    ///
    /// As for [`history`](Self::history).
    pub fn interrupted(&self) -> Result<Option<(Vec<Message>, Interrupted)>, String> {
        let mut open: Option<Open> = None;
        for (number, line) in self.lines.iter().enumerate() {
            match (&line.what, &mut open) {
                (What::Turn(turn), _) if line.by == ROOT => {
                    open = Some(Open { text: turn.text.clone(), line: number, ..Open::default() });
                }
                (What::Continued(turn), _) => {
                    open = Some(Open {
                        text: turn.text.clone(),
                        line: number,
                        began: usize::try_from(turn.began).ok(),
                        calls: turn.calls,
                        tokens: turn.tokens,
                        begun: turn.begun.iter().cloned().collect(),
                        ..Open::default()
                    });
                }
                (What::Turned(_) | What::Stopped { .. }, _) if line.by == ROOT => open = None,
                (_, Some(open)) => open.take(line),
                (_, None) => {}
            }
        }
        let Some(open) = open else { return Ok(None) };
        let history = conversation(self.lines.iter())?;
        let began = match open.began {
            Some(began) => began,
            // The turn closes what was open, before its own message.
            None => conversation(self.lines.iter().take(open.line.saturating_add(1)))?.len(),
        };
        let own = history.iter().skip(began);
        let rounds = own.filter(|message| matches!(message, Message::Assistant { calls, .. } if !calls.is_empty()));
        let rounds = u32::try_from(rounds.count()).unwrap_or(u32::MAX);
        let mut begun: Vec<String> = open.begun.into_iter().collect();
        begun.sort();
        let turn = Interrupted { text: open.text, began, rounds, calls: open.calls, tokens: open.tokens, begun };
        Ok(Some((history, turn)))
    }
}

impl Open {
    fn take(&mut self, line: &Line) {
        match &line.what {
            What::Calling(calling) => {
                self.calls = self.calls.saturating_add(1);
                if line.by == ROOT {
                    self.begun.insert(calling.call.clone());
                }
            }
            What::Question(question) if line.by == ROOT => {
                self.waiting.extend(self.begun.take(&question.call));
            }
            What::Confirmation(said) if line.by == ROOT && said.answer == Answer::Yes.name() => {
                self.begun.extend(self.waiting.take(&said.call));
            }
            What::Reply(reply) => {
                let tokens = reply.tokens.map_or(0, |t| t.input.saturating_add(t.output));
                self.tokens = self.tokens.saturating_add(tokens);
            }
            _ => {}
        }
    }
}
