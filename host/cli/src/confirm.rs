//! Asks the person at the terminal whether a call may be made that needs confirmation.

use std::collections::BTreeSet;
use std::future::Future;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use harness_artifact::escape;
use harness_dispatch::confirm::{Answer, Confirmer, Question};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush};

use super::args::Confirm;
use super::printer::{Printer, Typing};
use super::progress;
use crate::modes::Unechoed;

/// Bytes of arguments that are shown.
const SHOWN: usize = 16 << 10;
/// Bytes of an answer.
const LONGEST: usize = 4 << 10;
/// How long it takes at most to see that nobody waits for the answer any more.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// What was confirmed on the command line, and the person where there is one.
#[derive(Debug)]
pub(crate) struct AtTerminal {
    printer: Printer,
    /// Whether everything was confirmed beforehand, else the tools that were.
    all: bool,
    named: Vec<String>,
    /// What the person has confirmed for the rest of the session.
    lasting: Mutex<BTreeSet<String>>,
    /// There is one person, who answers one question at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl AtTerminal {
    pub(crate) fn new(given: &Confirm, printer: Printer) -> Arc<Self> {
        let (lasting, turn) = (Mutex::default(), Arc::default());
        Arc::new(Self { printer, all: given.yes, named: given.confirm.clone(), lasting, turn })
    }

    /// The person types something else until this is dropped: questions wait.
    pub(crate) fn typing(&self) -> (tokio::sync::MutexGuard<'_, ()>, Typing) {
        (self.turn.blocking_lock(), self.printer.typing())
    }

    /// Waits until no question is on the terminal: one that nobody waits for any more takes a moment to see that.
    pub(crate) async fn over(&self) {
        drop(self.turn.lock().await);
    }

    /// The terminal, when no other question is on it.
    pub(crate) async fn turn(&self) -> tokio::sync::OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }

    fn is_known(&self, key: &str) -> bool {
        self.lasting.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }
}

impl Confirmer for AtTerminal {
    fn confirm<'a>(&'a self, question: &'a Question<'a>) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        Box::pin(async move {
            if self.all || self.named.iter().any(|name| name == question.tool) {
                return Answer::Yes;
            }
            if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
                return Answer::Nobody;
            }
            let turn = self.turn().await;
            let key = format!("{} {}", question.artifact, question.tool);
            if question.lasting && self.is_known(&key) {
                return Answer::Yes;
            }
            let (printer, text, lasting) = (self.printer, render(question), question.lasting);
            let given_up = GivenUp::default();
            let seen = given_up.seen();
            let asked = tokio::task::spawn_blocking(move || {
                // The terminal is the question's until it is over, whether or not someone waits for the answer.
                let _turn = turn;
                ask(printer, &text, lasting, &seen)
            });
            let said = asked.await;
            match said.unwrap_or(Said::No) {
                Said::Yes => Answer::Yes,
                Said::Always => {
                    self.lasting.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
                    Answer::Yes
                }
                Said::No => Answer::No,
            }
        })
    }
}

/// Lets go of the terminal where the call is given up before there is an answer.
#[derive(Debug, Default)]
pub(crate) struct GivenUp(Arc<AtomicBool>);

impl GivenUp {
    /// Whether it was, for the thread that asks.
    pub(crate) fn seen(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What a person said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Yes,
    /// And for the rest of the session.
    Always,
    No,
}

/// The question, with nothing in it that acts on a terminal.
fn render(question: &Question<'_>) -> String {
    let who = match question.caller {
        None => String::new(),
        Some("agent") => "the agent ".to_owned(),
        Some(caller) => format!("{} ", escape::line(caller)),
    };
    let tool = escape::line(question.tool);
    let rule = escape::line(question.rule);
    let (verb, who) = if who.is_empty() { ("this calls", who) } else { ("calls", who) };
    let arguments = format!("{:#}", question.arguments);
    let shown = arguments.get(..arguments.floor_char_boundary(SHOWN)).unwrap_or_default();
    let hidden = arguments.len().saturating_sub(shown.len());
    let more = if hidden > 0 { format!("\n(and {hidden} more bytes, which are not shown)") } else { String::new() };
    let artifact = escape::line(question.artifact);
    format!(
        "{who}{verb} `{tool}` of {artifact}, which needs confirmation ({rule}), with\n{}{more}",
        escape::text(shown)
    )
}

/// Asks until there is an answer or nobody waits for it. On another thread: it waits for a person.
fn ask(printer: Printer, text: &str, lasting: bool, given_up: &AtomicBool) -> Said {
    if given_up.load(Ordering::SeqCst) {
        return Said::No;
    }
    let _typing = printer.typing();
    let _quiet = progress::quiet();
    let _shown = forget_typed();
    printer.ask(&format!("{text}\n"));
    let choices = if lasting { "[y]es, [a]lways in this session, [N]o" } else { "[y]es, [N]o" };
    printer.ask(&format!("{} {choices}: ", printer.paint("Call it?", "1")));
    match line(printer, given_up) {
        Line::Typed(text) => said(&text, lasting),
        Line::None => Said::No,
    }
}

/// A line that a person was to type.
#[derive(Debug)]
pub(crate) enum Line {
    /// As it was typed.
    Typed(String),
    /// The end of input, or nobody waits for it any more.
    None,
}

/// Forgets what was typed before a question: it is no answer to it. From now on the terminal shows what is typed, which a
/// conversation otherwise keeps it from, a line at a time, until this is dropped.
#[must_use]
pub(crate) fn forget_typed() -> Unechoed {
    // In this order: a key that is pressed before the question is seen in these modes is forgotten too.
    let shown = Unechoed::pause();
    let _ = tcflush(std::io::stdin().as_fd(), QueueSelector::IFlush);
    shown
}

/// Waits for a line of the person at the terminal.
pub(crate) fn line(printer: Printer, given_up: &AtomicBool) -> Line {
    let stdin = std::io::stdin();
    let mut line = Vec::new();
    loop {
        if given_up.load(Ordering::SeqCst) {
            printer.ask("\n");
            return Line::None;
        }
        let mut waited = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut waited, Some(&PATIENCE)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return Line::None,
        }
        let mut some = [0_u8; LONGEST];
        match rustix::io::read(stdin.as_fd(), &mut some) {
            Err(rustix::io::Errno::INTR) => {}
            // The end of input is no answer, whatever came before it.
            Ok(0) | Err(_) => {
                printer.ask("\n");
                return Line::None;
            }
            Ok(read) => {
                line.extend_from_slice(some.get(..read).unwrap_or_default());
                if line.contains(&b'\n') || line.len() >= LONGEST {
                    return Line::Typed(String::from_utf8_lossy(&line).into_owned());
                }
            }
        }
    }
}

/// What a line says. Whatever is no yes is a no.
fn said(line: &str, lasting: bool) -> Said {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Said::Yes,
        "a" | "always" if lasting => Said::Always,
        _ => Said::No,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        for (line, lasting, expected) in [
            ("y\n", true, Said::Yes),
            (" YES \r\n", false, Said::Yes),
            ("a\n", true, Said::Always),
            ("always\n", true, Said::Always),
            ("a\n", false, Said::No),
            ("\n", true, Said::No),
            ("n\n", true, Said::No),
            ("yes please\n", true, Said::No),
            ("y\nn\n", true, Said::No),
            ("ÿ\n", true, Said::No),
        ] {
            assert_eq!(said(line, lasting), expected, "{line:?}");
        }
    }

    #[test]
    fn a_question_shows_what_will_run_and_acts_on_no_terminal() {
        let arguments = json!({"path": "a\u{1b}[2Jb\u{202e}c"});
        let question = Question {
            call: Some("call_1"),
            tool: "drop\u{1b}[0m",
            artifact: ".harness/tools/drop.md",
            rule: "`confirm: true` in `.harness/tools/drop.md:2:10`",
            arguments: &arguments,
            caller: Some("agent cleaner"),
            lasting: true,
        };
        assert_eq!(
            render(&question),
            "agent cleaner calls `drop\\u{1b}[0m` of .harness/tools/drop.md, which needs confirmation (`confirm: true` in \
             `.harness/tools/drop.md:2:10`), with\n{\n  \"path\": \"a\\u001b[2Jb\\u{202e}c\"\n}"
        );
        let long = json!({"path": "x".repeat(20_000)});
        let shown = render(&Question { arguments: &long, caller: None, ..question });
        assert!(shown.starts_with("this calls `drop"), "{shown}");
        assert!(shown.ends_with("(and 3632 more bytes, which are not shown)"), "{shown}");
    }
}
