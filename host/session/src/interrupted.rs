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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::read::read;
    use super::*;

    const HEADER: &str = r#"{"at":0,"kind":"session","version":1,"id":"a","started":"2026-01-01T00:00:00Z","harness":"0.1.0","interpreter":"x","command":"run","artifacts":{}}"#;
    const TURN: &str = r#"{"at":1,"by":"root","kind":"turn","depth":0,"text":"hi"}"#;
    const REPLY: &str = r#"{"at":2,"by":"root","kind":"reply","model":"m","text":"","calls":[{"id":"a","name":"t","arguments":"{}"},{"id":"b","name":"t","arguments":"{}"}],"finish":"tool_calls","tokens":{"input":7,"output":2},"took_us":5}"#;
    const SAID: &str = r#"{"at":3,"by":"root","kind":"said","place":1}"#;
    const CALLING: &str = r#"{"at":4,"by":"root","kind":"calling","call":"a","tool":"t"}"#;
    const QUESTION: &str = r#"{"at":5,"by":"root","kind":"question","call":"a","tool":"t"}"#;

    fn user(place: u64, text: &str) -> String {
        json!({"at": 2, "by": "root", "kind": "said", "place": place, "message": {"role": "user", "content": text}})
            .to_string()
    }

    fn interrupted(lines: &[&str]) -> Option<(usize, Interrupted)> {
        let folder = tempfile::tempdir().unwrap();
        let text: String = [HEADER].iter().chain(lines).map(|line| format!("{line}\n")).collect();
        std::fs::write(folder.path().join("a.jsonl"), text).unwrap();
        let found = read(folder.path(), "a").unwrap().interrupted().unwrap();
        found.map(|(history, turn)| (history.len(), turn))
    }

    fn turn(rounds: u32, calls: u64, tokens: u64, begun: &[&str]) -> Interrupted {
        let begun = begun.iter().map(|id| (*id).to_owned()).collect();
        Interrupted { text: "hi".to_owned(), began: 0, rounds, calls, tokens, begun }
    }

    #[test]
    fn a_session_says_how_far_its_last_turn_came() {
        let hi = user(0, "hi");
        assert_eq!(interrupted(&[]), None);
        assert_eq!(interrupted(&[TURN]), Some((0, turn(0, 0, 0, &[]))));
        assert_eq!(interrupted(&[TURN, &hi]), Some((1, turn(0, 0, 0, &[]))));
        // A reply that took no place yet is asked for again; its tokens were used.
        assert_eq!(interrupted(&[TURN, &hi, REPLY]), Some((1, turn(0, 0, 9, &[]))));
        assert_eq!(interrupted(&[TURN, &hi, REPLY, SAID]), Some((2, turn(1, 0, 9, &[]))));
        assert_eq!(interrupted(&[TURN, &hi, REPLY, SAID, CALLING]), Some((2, turn(1, 1, 9, &["a"]))));
        // One that ended, and whose result took no place yet, is not made again.
        let called = r#"{"at":6,"by":"root","kind":"called","call":"a","tool":"t","outcome":"completed","is_error":false,"content":"sha256:1","fuel":0,"took_us":1}"#;
        assert_eq!(interrupted(&[TURN, &hi, REPLY, SAID, CALLING, called]), Some((2, turn(1, 1, 9, &["a"]))));
        let ended = r#"{"at":9,"by":"root","kind":"turned","answer":"x","rounds":1,"tokens":{"input":7,"output":2}}"#;
        for end in [ended, r#"{"at":9,"by":"root","kind":"stopped"}"#] {
            assert_eq!(interrupted(&[TURN, &hi, REPLY, SAID, CALLING, end]), None);
            let (next, again) = (TURN.replace("hi", "more"), user(4, "more"));
            let more = Interrupted { text: "more".to_owned(), began: 4, ..Interrupted::default() };
            let (places, found) = interrupted(&[TURN, &hi, REPLY, SAID, CALLING, end, &next]).unwrap();
            assert_eq!((places, &found), (4, &more), "what is open is closed");
            assert_eq!(interrupted(&[TURN, &hi, REPLY, SAID, CALLING, end, &next, &again]), Some((5, more)));
        }
        // What a sub-agent does counts for budgets, and begins no call of the root.
        let inner = CALLING.replace("root", "delegation_1").replace("\"a\"", "\"b\"");
        assert_eq!(interrupted(&[TURN, &hi, REPLY, SAID, CALLING, &inner]), Some((2, turn(1, 2, 9, &["a"]))));
    }

    #[test]
    fn a_call_that_waits_for_a_person_has_not_begun() {
        let hi = user(0, "hi");
        let begun = |more: &[&str]| {
            let lines = [&[TURN, &hi, REPLY, SAID, CALLING], more].concat();
            interrupted(&lines).unwrap().1.begun
        };
        let answered = |answer: &str| {
            format!(r#"{{"at":6,"by":"root","kind":"confirmation","call":"a","tool":"t","answer":"{answer}"}}"#)
        };
        assert_eq!(begun(&[QUESTION]), Vec::<String>::new());
        assert_eq!(begun(&[QUESTION, &answered("yes")]), ["a"]);
        assert_eq!(begun(&[QUESTION, &answered("no")]), Vec::<String>::new());
        // A call that it makes itself is not the one that waits.
        assert_eq!(begun(&[&QUESTION.replace("\"a\"", "\"a.1\"")]), ["a"]);
        assert_eq!(begun(&[&QUESTION.replace("root", "delegation_1")]), ["a"]);
    }

    #[test]
    fn a_turn_that_was_continued_is_continued_again() {
        let (hi, asks) = (
            user(0, "hi"),
            json!({"role": "assistant", "content": "", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"}},
            ]}),
        );
        let said = json!({"at": 2, "by": "root", "kind": "said", "place": 1, "message": asks}).to_string();
        let continued = r#"{"at":3,"by":"root","kind":"continued","text":"hi","began":0,"rounds":1,"calls":2,"tokens":13,"begun":["a"]}"#;
        assert_eq!(interrupted(&[&hi, &said, continued]), Some((2, turn(1, 2, 13, &["a"]))));
        let more = [hi.as_str(), &said, continued, CALLING, QUESTION];
        assert_eq!(interrupted(&more), Some((2, turn(1, 3, 13, &[]))));
    }
}
