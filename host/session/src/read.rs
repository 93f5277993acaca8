//! Reads records back, and the conversation in one.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use super::record::{Called, Continued, Header, Line, ROOT, Reply, Started, Turned, VERSION, What};
use super::writer::{ENDING, MAX_BYTES};
use harness_agent::{Ending, closing};
use harness_policy::text::quoted;
use harness_provider::message::{self, without_orphans};
use harness_provider::{Message, ToolCall};
use harness_sys as sys;

/// What a call is answered with that was in progress when a session was ended.
pub const UNANSWERED: &str = "error: the session was ended before this call had a result; whether it took effect is not \
                              known";

/// A record as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// What the session ran on.
    pub header: Header,
    /// What happened, in order, without the header.
    pub lines: Vec<Line>,
    /// Whether half a line came after them: of a process that was ended while it wrote.
    pub cut: bool,
}

/// Why there is no record to read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No session has this name.
    #[error("there is no session {}", quoted(.0))]
    Unknown(String),
    /// Several have a name that begins so.
    #[error("{} begins the names of several sessions: {}", quoted(.0), some(.1))]
    Ambiguous(String, Vec<String>),
    /// Nothing was recorded yet.
    #[error("no session is recorded here")]
    None,
    /// What the system says.
    #[error("{file}: {source}")]
    File {
        /// The file, below the project.
        file: String,
        /// Why not.
        source: Error,
    },
    /// It is not what was written.
    #[error("{file}{}: {why}", .line.map(|line| format!(":{line}")).unwrap_or_default())]
    Broken {
        /// The file, below the project.
        file: String,
        /// The line, from 1.
        line: Option<usize>,
        /// What is wrong.
        why: String,
    },
}

/// The newest of many names, and how many more there are.
fn some(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names.get(..SHOWN.min(names.len())).unwrap_or_default().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The names of the sessions in a folder, the newest first.
///
/// # Errors
///
/// What the system says. A folder that is not there holds none.
pub fn names(folder: &Path) -> Result<Vec<String>, ReadError> {
    let mut names: Vec<String> = match sys::entries(folder) {
        Ok(entries) => entries.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(ReadError::File { file: super::FOLDER.to_owned(), source }),
    };
    names.sort_by(|one, other| other.cmp(one));
    let names = names.iter().filter_map(|name| name.strip_suffix(ENDING));
    // One in which nothing happened yet has nothing to show.
    let filled = |name: &&str| sys::length(&path(folder, name)).is_ok_and(|length| length > 0);
    Ok(names.filter(filled).map(str::to_owned).collect())
}

/// The session of a name, of the beginning of one, or of `latest`.
///
/// # Errors
///
/// Where it is none's, or several ones'.
pub fn find(folder: &Path, wanted: &str) -> Result<String, ReadError> {
    choose(names(folder)?, wanted)
}

/// The same among names, the newest first.
///
/// # Errors
///
/// As for [`find`].
pub fn choose(mut names: Vec<String>, wanted: &str) -> Result<String, ReadError> {
    if wanted == "latest" {
        return names.into_iter().next().ok_or(ReadError::None);
    }
    if names.iter().any(|name| name == wanted) {
        return Ok(wanted.to_owned());
    }
    names.retain(|name| !wanted.is_empty() && name.starts_with(wanted));
    match (names.pop(), names.is_empty()) {
        (Some(name), true) => Ok(name),
        (Some(name), false) => {
            names.push(name);
            Err(ReadError::Ambiguous(wanted.to_owned(), names))
        }
        (None, _) => Err(ReadError::Unknown(wanted.to_owned())),
    }
}

/// Reads the record of a session.
///
/// # Errors
///
/// What the system says, or the first line that is not what was written.
pub fn read(folder: &Path, name: &str) -> Result<Recording, ReadError> {
    let file = format!("{}/{name}{ENDING}", super::FOLDER);
    let bytes = sys::read_bytes(&path(folder, name), MAX_BYTES)
        .map_err(|source| ReadError::File { file: file.clone(), source })?;
    parse(&bytes).map_err(|(line, why)| ReadError::Broken { file, line, why })
}

fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}{ENDING}"))
}

/// Reads a record.
///
/// # Errors
///
/// The line that is wrong, and what is wrong with it. Half a line at the end is not wrong.
pub fn parse(bytes: &[u8]) -> Result<Recording, (Option<usize>, String)> {
    let mut header = None;
    let mut lines = Vec::new();
    let mut cut = false;
    for (number, raw) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let number = number.saturating_add(1);
        let (text, whole) = raw.strip_suffix(b"\n").map_or((raw, false), |text| (text, true));
        let line = line(text);
        match (line, &header) {
            (Err(_), Some(_)) if !whole => cut = true,
            (Err(why), _) => return Err((Some(number), why)),
            (Ok(Line { what: What::Session(found), .. }), None) => {
                if found.version != VERSION {
                    let (found, known) = (found.version, VERSION);
                    return Err((Some(number), format!("it has the version {found}, and this program reads {known}")));
                }
                header = Some(found);
            }
            (Ok(_), None) => return Err((Some(number), "it is not the first line of a session".to_owned())),
            (Ok(Line { what: What::Session(_), .. }), Some(_)) => {
                return Err((Some(number), "another session begins".to_owned()));
            }
            (Ok(line), Some(_)) => lines.push(line),
        }
    }
    let header = header.ok_or((None, "it is empty".to_owned()))?;
    Ok(Recording { header, lines, cut })
}

fn line(text: &[u8]) -> Result<Line, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    Line::from_json(value)
}

impl Recording {
    /// The root's conversation as it was when the record ends. Calls that have no result are answered with
    /// [`UNANSWERED`]: a service refuses a conversation with open ones.
    ///
    /// # Errors
    ///
    /// Where a line does not fit those before it.
    pub fn history(&self) -> Result<Vec<Message>, String> {
        conversation(self.lines.iter()).map(closed)
    }

    /// What was said before the first turn, in the session that this one resumes.
    ///
    /// # Errors
    ///
    /// As for [`history`](Self::history).
    pub fn before(&self) -> Result<Vec<Message>, String> {
        conversation(self.lines.iter().take_while(|line| !matches!(line.what, What::Turn(_) | What::Continued(_))))
    }

    /// What was done with the root, in order.
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        self.lines.iter().filter(|line| line.by == ROOT).filter_map(|line| match &line.what {
            What::Turn(turn) => Some(Step::Turn(&turn.text)),
            What::Continued(turn) => Some(Step::Continue(turn)),
            What::Forgot(forgot) => Some(Step::Forget(place(forgot.before))),
            What::Switched(to) => Some(Step::Switch(&to.model)),
            _ => None,
        })
    }

    /// The messages to the root, turn by turn.
    pub fn prompts(&self) -> impl Iterator<Item = &str> {
        self.steps().filter_map(|step| match step {
            Step::Turn(text) => Some(text),
            Step::Continue(turn) => Some(turn.text.as_str()),
            Step::Forget(_) | Step::Switch(_) => None,
        })
    }

    /// What the session had that whoever resumes it does not: only what it said is kept.
    pub fn left_behind(&self) -> Vec<&'static str> {
        let answered = |calls: &[&str]| {
            let one = |what: &What| match what {
                What::Script(ran) => ran.answers.iter().any(|answer| calls.contains(&answer.call.as_str())),
                _ => false,
            };
            self.lines.iter().any(|line| one(&line.what))
        };
        let added = |what: &What| match what {
            What::Called(called) => adds(called),
            What::Task(task) => task.called.as_deref().is_some_and(adds),
            _ => false,
        };
        let abandoned = |what: &What| matches!(what, What::Task(task) if task.state == "abandoned");
        let any = |wanted: &dyn Fn(&What) -> bool| self.lines.iter().any(|line| wanted(&line.what));
        let all = [
            ("the cache", answered(&["cache.set"])),
            ("the metrics", answered(&["metrics.incr", "metrics.set"])),
            ("the tools and hooks that its scripts added", any(&added)),
            ("tasks that had not ended", any(&abandoned)),
        ];
        all.into_iter().filter(|(_, had)| *had).map(|(what, _)| what).collect()
    }

    /// Whether the session was ended in order.
    pub fn is_ended(&self) -> bool {
        self.lines.iter().any(|line| line.what == What::Ended {})
    }
}

/// Something that was done with the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// It got this message.
    Turn(&'a str),
    /// It continued a turn that was interrupted.
    Continue(&'a Continued),
    /// The messages before this place of its conversation were dropped.
    Forget(usize),
    /// It runs on this model from there on.
    Switch(&'a str),
}

fn place(place: u64) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

/// Whether a call, or one that it made, added something to the run.
fn adds(called: &Called) -> bool {
    let own = called.work.host.iter().any(|call| call.call.starts_with("meta.register-") && call.refused.is_none());
    let inner = |started: &Started| matches!(started, Started::Call(called) if adds(called));
    own || called.work.started.iter().any(inner)
}

/// The root's conversation in some lines.
pub(super) fn conversation<'a>(lines: impl Iterator<Item = &'a Line>) -> Result<Vec<Message>, String> {
    let mut history = Vec::new();
    // Messages that came before these.
    let mut gone = 0_usize;
    let mut reply = None;
    for line in lines.filter(|line| line.by == ROOT) {
        match &line.what {
            // As the loop itself does before a turn.
            What::Turn(_) => history = without_orphans(message::closed(history)),
            What::Stopped { said: Some(said) } => history = ended(history, said, Ending::Stopped),
            What::Turned(Turned { error: Some(_), said: Some(said), .. }) => {
                history = ended(history, said, Ending::Failed);
            }
            What::Forgot(forgot) => {
                let dropped = place(forgot.before).saturating_sub(gone).min(history.len());
                history.drain(..dropped);
                gone = gone.saturating_add(dropped);
            }
            What::Reply(said) => reply = Some(said),
            What::Said(said) => {
                let (place, held) = (place(said.place), gone.saturating_add(history.len()));
                if !(gone..=held).contains(&place) {
                    return Err(format!("message {place} of a conversation that has {held} is said"));
                }
                history.truncate(place.saturating_sub(gone));
                history.push(match (&said.message, reply) {
                    (Some(message), _) => Message::from_json(message)?,
                    (None, Some(reply)) => message_of(reply),
                    (None, None) => return Err("a reply is repeated that was never given".to_owned()),
                });
            }
            _ => {}
        }
    }
    Ok(history)
}

/// As the loop closes a turn that has no answer.
fn ended(history: Vec<Message>, said: &str, ending: Ending) -> Vec<Message> {
    let mut history = without_orphans(message::closed(history));
    history.push(closing(said, ending));
    history
}

fn message_of(reply: &Reply) -> Message {
    Message::Assistant { text: reply.text.clone(), calls: calls_of(reply) }
}

pub(super) fn calls_of(reply: &Reply) -> Vec<ToolCall> {
    let call = |call: &super::record::ToolCall| ToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    };
    reply.calls.iter().map(call).collect()
}

/// The same without open calls at its end.
fn closed(mut history: Vec<Message>) -> Vec<Message> {
    let last = history.iter().rposition(|message| !matches!(message, Message::Tool { .. }));
    let Some((last, Some(Message::Assistant { calls, .. }))) = last.map(|last| (last, history.get(last))) else {
        return history;
    };
    let answered = |id: &str| {
        let mut answers = history.iter().skip(last);
        answers.any(|message| matches!(message, Message::Tool { call_id, .. } if call_id == id))
    };
    let open = calls.iter().filter(|call| !answered(&call.id)).map(|call| Message::Tool {
        call_id: call.id.clone(),
        name: call.name.clone(),
        content: UNANSWERED.to_owned(),
    });
    let open: Vec<Message> = open.collect();
    history.extend(open);
    history
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::{html, text, timeline::Timeline};
    use super::*;

    const HEADER: &str = r#"{"at":0,"kind":"session","version":1,"id":"20260101-000000-abcdef","started":"2026-01-01T00:00:00Z","harness":"0.1.0","interpreter":"x","command":"run","artifacts":{}}"#;

    fn recording(lines: &[&str]) -> Recording {
        let text: String = [HEADER].iter().chain(lines).map(|line| format!("{line}\n")).collect();
        parse(text.as_bytes()).unwrap()
    }

    fn wrong(text: &str) -> String {
        let (line, why) = parse(text.as_bytes()).unwrap_err();
        format!("{}: {why}", line.unwrap_or_default())
    }

    const TURN: &str = r#"{"at":1,"by":"root","kind":"turn","depth":0,"text":"hi"}"#;
    const ASKS: &str = r#"{"at":2,"by":"root","kind":"reply","model":"m","text":"","calls":[{"id":"a","name":"t","arguments":"{}"},{"id":"b","name":"t","arguments":"{}"}],"finish":"tool_calls","took_us":5}"#;

    /// A forged record: neither reading it nor what comes after takes a stack as deep.
    #[test]
    fn what_is_nested_too_deep_is_refused() {
        const DEEP: usize = 100_000;
        for (open, close) in [("[", "]"), ("{\"started\":[{\"call\":", "}]}")] {
            let text = format!("{}0{}", open.repeat(DEEP), close.repeat(DEEP));
            let line = format!(r#"{{"at":1,"by":"root","kind":"called","work":{text}}}"#);
            let why = wrong(&format!("{HEADER}\n{line}\n"));
            assert!(why.starts_with("2: it is not JSON: recursion limit exceeded"), "{why}");
        }
        let turn = |n: usize| {
            format!(r#"{{"at":{n},"by":"a{n}","kind":"turn","depth":{n},"parent":"a{}","text":"hi"}}"#, n - 1)
        };
        let turns: Vec<String> = (1..1_000).map(turn).collect();
        let turns: Vec<&str> = turns.iter().map(String::as_str).collect();
        let timeline = Timeline::of(&recording(&turns));
        assert_eq!(timeline.to_json()["totals"]["agents"], 999);
    }

    #[test]
    fn half_a_line_at_the_end_is_passed_over_and_nothing_else() {
        let whole = format!("{HEADER}\n{TURN}\n");
        assert!(!parse(whole.as_bytes()).unwrap().cut);
        let cut = parse(format!("{whole}{{\"at\":2,\"by\":\"ro").as_bytes()).unwrap();
        assert_eq!((cut.lines.len(), cut.cut), (1, true));
        // Cut inside of a character.
        let mut bytes = whole.clone().into_bytes();
        bytes.extend(b"{\"at\":2,\"text\":\"\xc3");
        assert!(parse(&bytes).unwrap().cut);
        insta::assert_snapshot!(
            [
                wrong(""),
                wrong("hello\n"),
                wrong(TURN),
                wrong(&HEADER.replace("\"version\":1", "\"version\":2")),
                wrong(&format!("{whole}oops\n{TURN}\n")),
                wrong(&format!("{whole}[]\n")),
                wrong(&format!("{whole}{HEADER}\n")),
                wrong(&format!("{HEADER}\n{{\"at\":1,\"kind\":\"party\"}}\n")),
                wrong(&format!("{HEADER}\n{}\n", TURN.replace("\"depth\":0,", ""))),
            ]
            .join("\n"),
            @r#"
        0: it is empty
        1: it is not JSON: expected value at line 1 column 1
        1: it is not the first line of a session
        1: it has the version 2, and this program reads 1
        3: it is not JSON: expected value at line 1 column 1
        3: it is not a JSON object
        3: another session begins
        2: it is not a line of the kind "party": unknown variant `party`, expected one of `session`, `turn`, `continued`, `said`, `asked`, `retry`, `reply`, `unanswered`, `unmade`, `event`, `calling`, `called`, `delegated`, `judged`, `returned`, `task`, `looked`, `saw`, `question`, `confirmation`, `script`, `turned`, `stopped`, `forgot`, `switched`, `full`, `ended`
        2: it is not a line of the kind "turn": missing field `depth`
        "#
        );
    }

    #[test]
    fn open_calls_are_closed() {
        let said = |place: u64, message: serde_json::Value| {
            json!({"at": 3, "by": "root", "kind": "said", "place": place, "message": message}).to_string()
        };
        let user = said(0, json!({"role": "user", "content": "hi"}));
        let asks = r#"{"at":3,"by":"root","kind":"said","place":1}"#;
        let gave = said(2, json!({"role": "tool", "tool_call_id": "a", "name": "t", "content": "one"}));
        let roles = |lines: &[&str]| {
            let history = recording(lines).history().unwrap();
            let shown = history.iter().map(|message| message.to_json());
            shown.map(|message| format!("{} {}", message["role"], message["content"])).collect::<Vec<_>>().join("\n")
        };
        insta::assert_snapshot!(roles(&[TURN, &user, ASKS, asks, &gave]), @r#"
        "user" "hi"
        "assistant" ""
        "tool" "one"
        "tool" "error: the session was ended before this call had a result; whether it took effect is not known"
        "#);
        // Where the loop continued itself, it has left them out.
        let again = said(1, json!({"role": "user", "content": "again"}));
        insta::assert_snapshot!(roles(&[TURN, &user, ASKS, asks, &gave, TURN, &again]), @r#"
        "user" "hi"
        "user" "again"
        "#);
        let late = said(7, json!({"role": "user", "content": "x"}));
        assert_eq!(recording(&[TURN, &late]).history().unwrap_err(), "message 7 of a conversation that has 0 is said");
        assert_eq!(
            recording(&[TURN, r#"{"at":3,"by":"root","kind":"said","place":0}"#]).history().unwrap_err(),
            "a reply is repeated that was never given"
        );
    }

    #[test]
    fn sessions_are_found_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let find = |name: &str| find(folder.path(), name).map_err(|error| error.to_string());
        assert_eq!(names(&folder.path().join("none")).unwrap(), Vec::<String>::new());
        assert_eq!(find("latest").unwrap_err(), "no session is recorded here");
        for name in ["20260101-000000-aa", "20260102-000000-bb", "20260102-000000-cc"] {
            std::fs::write(folder.path().join(format!("{name}.jsonl")), HEADER).unwrap();
        }
        std::fs::write(folder.path().join("20270101-000000-dd.jsonl"), "").unwrap();
        std::fs::write(folder.path().join("notes.txt"), "x").unwrap();
        assert_eq!(find("latest").unwrap(), "20260102-000000-cc");
        assert_eq!(find("20260101").unwrap(), "20260101-000000-aa");
        assert_eq!(find("20260102-000000-bb").unwrap(), "20260102-000000-bb");
        assert_eq!(find("x").unwrap_err(), "there is no session `x`");
        assert_eq!(find("../20260101").unwrap_err(), "there is no session `../20260101`");
        assert_eq!(
            find("20260102").unwrap_err(),
            "`20260102` begins the names of several sessions: 20260102-000000-cc, 20260102-000000-bb"
        );
        for second in 10..15 {
            std::fs::write(folder.path().join(format!("20260202-0000{second}-ee.jsonl")), HEADER).unwrap();
        }
        let five = "20260202-000014-ee, 20260202-000013-ee, 20260202-000012-ee, 20260202-000011-ee, 20260202-000010-ee";
        let told = |more: &str| format!("`2026` begins the names of several sessions: {five}{more}");
        assert_eq!(find("2026").unwrap_err(), told(" and 3 more"));
        assert_eq!(find("20260202").unwrap_err(), told("").replace("`2026`", "`20260202`"));
    }

    /// Anything that can be read can be shown.
    fn looked_at(bytes: &[u8]) {
        if let Ok(recording) = parse(bytes) {
            let _ = recording.history();
            let timeline = Timeline::of(&recording);
            let _ = (text::render(&timeline, false), html::render(&timeline), timeline.to_json().to_string());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            looked_at(&bytes);
        }

        /// Lines of a real record in any order, with pieces missing.
        #[test]
        fn any_mix_of_lines_is_read_or_refused(
            picked in proptest::collection::vec((0_usize..64, 0_usize..400), 0..40),
        ) {
            let real = include_str!("../../../tests/cli/sessions/agent.jsonl");
            let lines: Vec<&str> = real.lines().collect();
            let mut text = format!("{HEADER}\n");
            for (at, cut) in picked {
                let line = lines[1 + at % (lines.len() - 1)];
                let end = if cut < 20 { line.floor_char_boundary(cut.min(line.len())) } else { line.len() };
                text.push_str(&line[..end]);
                text.push('\n');
            }
            looked_at(text.as_bytes());
        }
    }
}
