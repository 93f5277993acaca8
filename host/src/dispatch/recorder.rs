//! What the record says of calls and events: who, which artifact, which grant, what came of it. No arguments and no
//! results: of arguments their digest, of results whether there was one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::{Map, Value as Json, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::chain::{Dispatch, HookRun, Place};
use super::pipeline::{CallError, CallReport};
use crate::ambient;
use crate::artifact::event::Event;
use crate::audit::{self, Log};
use crate::policy::grant::Grant;
use crate::policy::layer::Scope;
use crate::sandbox::outcome::{HostCall, Outcome};

/// Refusals of one call that are told one by one; the others are counted.
const MAX_REFUSALS: usize = 100;
/// Bytes of each text that is recorded.
const MAX_TEXT: usize = 1000;

/// Writes a project's record.
#[derive(Debug)]
pub(crate) struct Recorder {
    folder: PathBuf,
    log: OnceLock<Log>,
    /// Of the files of artifacts, by name: they do not change while they are in force.
    digests: Mutex<HashMap<String, Arc<str>>>,
}

impl Recorder {
    /// For the project in a folder. Nothing is written yet.
    pub(crate) fn new(root: &Path) -> Self {
        Self { folder: root.join(audit::FOLDER), log: OnceLock::new(), digests: Mutex::default() }
    }

    /// Opens the record, where it is not open.
    ///
    /// # Errors
    ///
    /// Why nothing can be recorded, and what to do.
    pub(crate) fn ready(&self) -> Result<(), String> {
        self.log()?.check().map_err(|error| self.told(&error))
    }

    fn log(&self) -> Result<&Log, String> {
        if let Some(log) = self.log.get() {
            return Ok(log);
        }
        let log = Log::open(&self.folder).map_err(|error| self.told(&error))?;
        Ok(self.log.get_or_init(|| log))
    }

    fn told(&self, error: &std::io::Error) -> String {
        format!(
            "nothing can be recorded in `{0}`: {error}; move `{0}` away to begin a new record, or write `sandbox: {{ audit: false }}` in `.harness/harness.md`",
            audit::FOLDER
        )
    }

    fn append(&self, entry: Map<String, Json>) -> Result<(), String> {
        self.log()?.append(entry).map_err(|error| self.told(&error))
    }

    /// Records a call of which this is known already.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) fn call(
        &self,
        place: &Place,
        mut entry: Map<String, Json>,
        called: &Result<CallReport, CallError>,
    ) -> Result<(), String> {
        match called {
            Ok(report) => {
                entry.insert("id".to_owned(), report.id.as_str().into());
                entry.insert("grant".to_owned(), self.grant(place, &report.grant));
                entry.insert("outcome".to_owned(), report.outcome.name().into());
                match &report.outcome {
                    Outcome::Denied { refusal, .. } => {
                        drop(entry.insert("why".to_owned(), refusal.reason.as_str().into()))
                    }
                    Outcome::Limited(limit) => drop(entry.insert("why".to_owned(), cut(&limit.to_string()))),
                    Outcome::Fault(why) => drop(entry.insert("why".to_owned(), cut(why))),
                    // What a script said may hold anything.
                    Outcome::Completed(_) | Outcome::Failed(_) => {}
                }
                entry.insert("usage".to_owned(), report.usage.as_json());
                entry.insert("hooks".to_owned(), report.dispatches().flat_map(hooks).collect());
                let hooks = report.dispatches().flat_map(|dispatch| &dispatch.hooks).flat_map(|hook| &hook.calls);
                refusals(&mut entry, report.calls.iter().chain(hooks));
            }
            Err(error) => {
                let outcome = if matches!(error, CallError::NotAllowed(_)) { "denied" } else { "rejected" };
                entry.insert("outcome".to_owned(), outcome.into());
                // What is wrong with arguments may say what is in them.
                if !matches!(error, CallError::Arguments { .. }) {
                    entry.insert("why".to_owned(), cut(&error.to_string()));
                }
                if let CallError::Arguments { pre: Some(pre), .. } = error {
                    entry.insert("hooks".to_owned(), hooks(pre).collect());
                    refusals(&mut entry, pre.hooks.iter().flat_map(|hook| &hook.calls));
                }
            }
        }
        self.append(entry)
    }

    /// Records a call or an event that came to no end: its caller was ended, or did not wait.
    pub(crate) fn abandoned(&self, mut entry: Map<String, Json>) {
        entry.insert("outcome".to_owned(), "abandoned".into());
        // Nobody is left to be told.
        let _ = self.append(entry);
    }

    /// What is known of a call before it is made. `arguments` is their digest.
    pub(crate) fn called(&self, place: &Place, name: &str, arguments: String) -> Map<String, Json> {
        let mut entry = begun("call", place);
        entry.insert("tool".to_owned(), cut(name));
        let registry = &place.loaded.registry;
        let tool = place.added.tool(name).map(|added| &added.tool).or_else(|| registry.tool(name).ok());
        if let Some(tool) = tool {
            entry.insert("file".to_owned(), (*tool.source.file).into());
            entry.insert(
                "digest".to_owned(),
                self.digest(place, &tool.source.file, tool.script.as_ref().map(|s| &*s.text)),
            );
        }
        entry.insert("arguments".to_owned(), arguments.into());
        entry
    }

    /// What is known of an event before its hooks are asked.
    pub(crate) fn fired(&self, place: &Place, event: &Event) -> Map<String, Json> {
        let mut entry = begun("event", place);
        entry.insert("event".to_owned(), cut(&event.to_string()));
        entry
    }

    /// Records what the hooks of an event decided, of which this is known already.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) fn event(&self, mut entry: Map<String, Json>, dispatch: &Dispatch) -> Result<(), String> {
        let outcome = if dispatch.decision.blocked().is_some() { "denied" } else { "completed" };
        entry.insert("outcome".to_owned(), outcome.into());
        entry.insert("usage".to_owned(), dispatch.usage().as_json());
        entry.insert("hooks".to_owned(), hooks(dispatch).collect());
        refusals(&mut entry, dispatch.hooks.iter().flat_map(|hook| &hook.calls));
        self.append(entry)
    }

    /// The digest of the file that an artifact is in; of one that a script has added, of its text.
    fn digest(&self, place: &Place, file: &str, text: Option<&str>) -> Json {
        let mut known = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(digest) = known.get(file) {
            return (**digest).into();
        }
        match place.loaded.registry.sources().get(file) {
            Some(text) => {
                let digest = audit::digest(text);
                known.insert(file.to_owned(), digest.as_str().into());
                digest.into()
            }
            None => audit::digest(text.unwrap_or_default()).into(),
        }
    }

    /// What made the grant: the policy's text, and of that and of others the places that each narrowed it.
    fn grant(&self, place: &Place, grant: &Grant) -> Json {
        let policy = &place.loaded.policy.project.origin.file;
        let layers = grant.layers().iter().map(|layer| match &layer.origin.scope {
            Scope::Default => "default".to_owned(),
            Scope::Project => "sandbox".to_owned(),
            Scope::Source(name) => format!("sandbox.sources.{name}"),
            Scope::Artifact => format!("capabilities of {}", layer.origin.file),
        });
        json!({"policy": self.digest(place, policy, None), "layers": layers.collect::<Vec<_>>()})
    }
}

/// A text that a script may have a say in, as far as it is recorded.
fn cut(text: &str) -> Json {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default().into()
}

fn begun(kind: &str, place: &Place) -> Map<String, Json> {
    let now = ambient::since_epoch();
    let now = OffsetDateTime::UNIX_EPOCH + now;
    let mut entry = Map::new();
    entry.insert("time".to_owned(), now.format(&Rfc3339).unwrap_or_default().into());
    entry.insert("kind".to_owned(), kind.into());
    entry.insert("user".to_owned(), ambient::user().into());
    entry.insert("process".to_owned(), std::process::id().into());
    entry.insert("caller".to_owned(), place.caller.as_deref().unwrap_or("program").into());
    entry
}

/// Those that were called.
fn hooks(dispatch: &Dispatch) -> impl Iterator<Item = Json> {
    let event = dispatch.event.to_string();
    dispatch.hooks.iter().filter(|hook| hook.verdict.ran()).map(move |hook| {
        let HookRun { name, file, verdict, reason, usage, .. } = hook;
        let mut told =
            json!({"event": event, "hook": name, "file": file, "verdict": verdict.name(), "fuel": usage.fuel});
        if let (Some(told), Some(reason)) = (told.as_object_mut(), reason) {
            told.insert("reason".to_owned(), cut(reason));
        }
        told
    })
}

/// The host calls that were refused.
fn refusals<'a>(entry: &mut Map<String, Json>, calls: impl Iterator<Item = &'a HostCall>) {
    let refused: Vec<&HostCall> = calls.filter(|call| call.refused.is_some()).collect();
    if refused.is_empty() {
        return;
    }
    let told = refused.iter().take(MAX_REFUSALS).map(|call| {
        let (interface, function) = call.import.path();
        json!({"call": format!("{interface}.{function}"), "subject": call.subject, "why": call.refused.as_deref().map(cut)})
    });
    entry.insert("refusals".to_owned(), told.collect());
    if refused.len() > MAX_REFUSALS {
        entry.insert("more_refusals".to_owned(), refused.len().saturating_sub(MAX_REFUSALS).into());
    }
}

/// Something that has begun: recorded as abandoned, unless it is told to have ended.
pub(crate) struct Unfinished<'a> {
    recorder: &'a Recorder,
    entry: Option<Map<String, Json>>,
}

impl<'a> Unfinished<'a> {
    pub(crate) fn new(recorder: &'a Recorder, entry: Map<String, Json>) -> Self {
        Self { recorder, entry: Some(entry) }
    }

    /// What was known of it.
    pub(crate) fn ended(mut self) -> Map<String, Json> {
        self.entry.take().unwrap_or_default()
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.recorder.abandoned(entry);
        }
    }
}
