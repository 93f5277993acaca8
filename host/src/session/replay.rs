//! Runs a recorded session again: the same artifacts' scripts, in the same sandbox, on the same turns, with the replies
//! of the record in the place of the models and its answers in the place of everything that host calls would reach.
//!
//! No server, no file of the workspace, no command, no clock and no variable is asked. What scripts make of it is
//! recorded anew, in memory, and compared line by line.

mod compare;
mod replies;

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value as Json, json};

use super::key::Keys;
use super::read::Recording;
use super::record::{ROOT, ScriptRan, What};
use super::recorder::Recorder;
use crate::agent::{Session, Silent};
use crate::capability::clock::{Clock, Moment};
use crate::capability::env::Variables;
use crate::capability::exec::Runner;
use crate::capability::http::Client;
use crate::capability::random::Random;
use crate::dispatch::{Project, Run};
use crate::sandbox::state;
use crate::sandbox::tape::{Given, Ran, Script, Tape};

pub use compare::{Compared, Difference, Field};
use replies::Replies;

/// What a replay showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// What was compared.
    pub compared: Compared,
    /// What is not the same. Empty: everything is.
    pub differences: Vec<Difference>,
    /// Files of artifacts that are others now, with what became of each: `changed`, `added` or `removed`.
    pub artifacts: Vec<(String, &'static str)>,
    /// Whether the interpreter is another one.
    pub interpreter: bool,
    /// Turns of the record that came to no end, which are compared as far as they go.
    pub unfinished: u64,
}

impl Replayed {
    /// For a program.
    pub fn to_json(&self) -> Json {
        let Compared { turns, calls, events, scripts, replies } = self.compared;
        let differences: Vec<Json> = self.differences.iter().map(Difference::to_json).collect();
        let artifacts: Vec<Json> =
            self.artifacts.iter().map(|(file, change)| json!({"file": file, "change": change})).collect();
        json!({
            "same": self.differences.is_empty(),
            "compared": {
                "turns": turns, "calls": calls, "events": events, "scripts": scripts, "replies": replies,
            },
            "unfinished_turns": self.unfinished,
            "differences": differences,
            "artifacts": artifacts,
            "other_interpreter": self.interpreter,
        })
    }
}

/// Replays a session on the artifacts of a project as it is now. The project is best opened without a record of its own.
///
/// # Errors
///
/// Where a line of the record does not fit those before it.
pub async fn replay(root: &Path, project: &Project, recording: &Recording) -> Result<Replayed, String> {
    let loaded = project.loaded();
    let keys = Keys::of(loaded.policy());
    let recorder = Arc::new(Recorder::to_memory(loaded.secrets.clone(), keys, Arc::new(Silent)));
    let tape = Arc::new(Rewound::new(recording, recorder.clone()));
    let run = Run::with_session(state::Session {
        // What the record answers is never asked of these; they have nothing to answer with, if it were.
        http: Client::answering(Vec::new()),
        exec: Runner::Canned(Vec::new()),
        env: Variables::Given(std::collections::BTreeMap::new()),
        clock: Arc::new(Clock::Fixed(Moment { seconds: 0, nanoseconds: 0 })),
        random: Random::Seeded(AtomicU64::new(0)),
        tape: Some(tape),
        ..state::Session::default()
    });
    let models = Arc::new(Replies::new(root, &loaded.policy().models, recording));
    let before = recording.before()?;
    if let Ok(session) = Session::start(project, &run, models, recorder.clone()).await {
        let mut session = session.after(before);
        for prompt in recording.prompts() {
            // How it ends is told to the recorder.
            let _ = session.turn(prompt).await;
        }
        if recording.is_ended() {
            session.end().await;
        }
    }
    let now = super::header(&loaded);
    let then = &recording.header;
    let mut artifacts = Vec::new();
    for (file, digest) in &then.artifacts {
        match now.artifacts.get(file) {
            Some(same) if same == digest => {}
            Some(_) => artifacts.push((file.clone(), "changed")),
            None => artifacts.push((file.clone(), "removed")),
        }
    }
    let added = now.artifacts.keys().filter(|file| !then.artifacts.contains_key(*file));
    artifacts.extend(added.map(|file| (file.clone(), "added")));
    artifacts.sort();
    let (compared, differences) = compare::compare(&recording.lines, &recorder.take());
    let ended = |what: &What| matches!(what, What::Turned(_));
    let of_root = || recording.lines.iter().filter(|line| line.by == ROOT);
    let unfinished = recording.prompts().count().saturating_sub(of_root().filter(|line| ended(&line.what)).count());
    let interpreter = now.interpreter != then.interpreter;
    Ok(Replayed { compared, differences, artifacts, interpreter, unfinished: unfinished as u64 })
}

/// The answers of a record, for the scripts that run again.
#[derive(Debug)]
struct Rewound {
    scripts: Mutex<HashMap<Key, VecDeque<ScriptRan>>>,
    recorder: Arc<Recorder>,
}

impl Rewound {
    fn new(recording: &Recording, recorder: Arc<Recorder>) -> Self {
        let mut scripts: HashMap<_, VecDeque<ScriptRan>> = HashMap::new();
        for line in &recording.lines {
            if let What::Script(ran) = &line.what {
                scripts.entry(key(&ran.script)).or_default().push_back(ran.clone());
            }
        }
        Self { scripts: Mutex::new(scripts), recorder }
    }
}

/// File, role and input of a script.
type Key = (String, String, String);

fn key(script: &Script) -> Key {
    (script.file.clone(), script.role.clone(), script.input.clone())
}

impl Tape for Rewound {
    fn begin(&self, script: &Script) -> Option<Given> {
        let mut scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        let ran = scripts.get_mut(&key(script)).and_then(|kept| {
            // Several scripts of one file may be called with the same arguments.
            let same = kept.iter().position(|ran| ran.script.code == script.code);
            kept.remove(same.unwrap_or(0))
        });
        // One that the record knows nothing of gets no answer at all.
        let Some(ran) = ran else { return Some(Given::default()) };
        let late = ran.outcome == "limited" && ran.result.contains("`deadline`");
        Some(Given { answers: ran.answers.into(), late })
    }

    fn end(&self, ran: Ran) {
        Tape::end(self.recorder.as_ref(), ran);
    }
}
