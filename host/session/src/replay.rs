//! Runs a recorded session again: the same artifacts' scripts, in the same sandbox, on the same turns, with the replies
//! of the record instead of the models and its answers instead of everything that host calls would reach.
//!
//! No server, no file of the workspace, no command, no clock and no variable is asked. What scripts make of it is
//! recorded again, in memory, and compared line by line.

mod compare;
mod past;
mod replies;

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde_json::{Value as Json, json};

use super::read::{Recording, Step};
use super::record::{ROOT, What};
use super::recorder::Recorder;
use harness_agent::{Interrupted, Listener, Session, Silent};
use harness_capability::clock::{Clock, Moment};
use harness_capability::env::Variables;
use harness_capability::exec::Runner;
use harness_capability::http::Client;
use harness_capability::random::Random;
use harness_dispatch::{DigestKey, Project, Run};
use harness_sandbox::{state, strand};

pub use compare::{Compared, Difference, Field};
use past::Rewound;
use replies::Replies;

/// What the root is to do next.
enum Task<'a> {
    Message(&'a str),
    Rest(Interrupted),
}

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
    replay_to(root, project, recording, Arc::new(Silent)).await
}

/// The same, with a listener to what happens in the replay.
///
/// # Errors
///
/// As for [`replay`].
pub async fn replay_to(
    root: &Path,
    project: &Project,
    recording: &Recording,
    listener: Arc<dyn Listener>,
) -> Result<Replayed, String> {
    let loaded = project.loaded();
    let recorder = Arc::new(Recorder::to_memory(loaded.secrets().clone(), listener));
    let rewound = Arc::new(Rewound::new(recording, recorder.clone()));
    let run = Run::with_session(state::Session {
        // What the record answers is never asked of these; they have nothing to answer with, if it were.
        overrides: state::Overrides {
            http: Some(Client::answering(Vec::new())),
            exec: Runner::Canned(Vec::new()),
            variables: Some(Variables::default()),
            clock: Some(Arc::new(Clock::Fixed(Moment { seconds: 0, nanoseconds: 0 }))),
            random: Some(Random::Seeded(AtomicU64::new(0))),
        },
        tape: Some(rewound.clone()),
        ..state::Session::default()
    });
    let models = Arc::new(Replies::new(root, &loaded.policy().models, recording));
    if let Some(key) = &recording.header.digest_key {
        run.set_digest_key(DigestKey::new(key));
    }
    run.set_past(rewound.clone());
    run.set_confirmer(rewound);
    let before = recording.before()?;
    let session = async {
        let Ok(session) = Session::start(project, &run, models, recorder.clone()).await else { return };
        let mut session = session.after(before);
        for step in recording.steps() {
            let task = match step {
                Step::Turn(prompt) => Task::Message(prompt),
                Step::Continue(turn) => Task::Rest(turn.interrupted()),
                Step::Forget(before) => {
                    session.forget(before);
                    continue;
                }
                Step::Switch(model) => {
                    // Where the project does not have it now, its requests differ.
                    let _ = session.use_model(model);
                    continue;
                }
            };
            // Its end is reported to the recorder. Where it was stopped then, it is stopped now.
            let turn = async {
                match &task {
                    Task::Message(prompt) => session.turn(prompt).await,
                    Task::Rest(turn) => session.continue_turn(turn).await,
                }
            };
            let mut turn = pin!(turn);
            if strand::until_cut(turn.as_mut()).await.is_none() {
                run.settled().await;
            }
        }
        if recording.is_ended() {
            session.end().await;
        }
    };
    strand::in_strand(run.strand(), session).await;
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
