//! What the record says of calls and events: who, which artifact, which grant, what came of it. No arguments and no
//! results: of arguments their digest, of results whether there was one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::Serialize;
use serde_json::Value as Json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::chain::{Dispatch, HookRun, Place};
use super::pipeline::{CallError, CallReport};
use crate::ambient;
use crate::artifact::event::Event;
use crate::audit::{self, Entry, Log};
use crate::policy::grant::Grant;
use crate::policy::layer::Scope;
use crate::sandbox::outcome::{HostCall, Outcome, Usage};

/// Refusals of one call that are told one by one; the others are counted.
const MAX_REFUSALS: usize = 100;
/// Bytes of each text that is recorded.
const MAX_TEXT: usize = 1000;

/// Writes a project's record.
#[derive(Debug)]
pub(crate) struct Recorder {
    folder: PathBuf,
    /// Who runs this process, and which it is.
    user: u32,
    process: u32,
    log: OnceLock<Log>,
    /// Of the files of artifacts, by name: they do not change while they are in force.
    digests: Mutex<HashMap<String, Arc<str>>>,
}

impl Recorder {
    /// For the project in a folder. Nothing is written yet.
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            folder: root.join(audit::FOLDER),
            user: ambient::user(),
            process: std::process::id(),
            log: OnceLock::new(),
            digests: Mutex::default(),
        }
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

    fn append(&self, entry: Entry) -> Result<(), String> {
        self.log()?.append_to_checked(&entry).map_err(|error| self.told(&error))
    }

    /// Records a call of which this is known already.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) fn call(
        &self,
        place: &Place,
        mut entry: Entry,
        called: &Result<CallReport, CallError>,
    ) -> Result<(), String> {
        match called {
            Ok(report) => return self.ended(place, entry, report),
            Err(error) => {
                let outcome = if matches!(error, CallError::NotAllowed(_)) { "denied" } else { "rejected" };
                entry.put("outcome", outcome);
                // What is wrong with arguments may say what is in them.
                if !matches!(error, CallError::Arguments { .. }) {
                    entry.put("why", cut(&error.to_string()));
                }
                if let CallError::Arguments { pre: Some(pre), .. } = error {
                    entry.put("hooks", &hooks(pre).collect::<Vec<_>>());
                    refusals(&mut entry, pre.hooks.iter().flat_map(|hook| &hook.calls));
                }
            }
        }
        self.append(entry)
    }

    /// Records a call that was made.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) fn ended(&self, place: &Place, mut entry: Entry, report: &CallReport) -> Result<(), String> {
        entry.put("id", &report.id);
        entry.put("grant", &self.grant(place, &report.grant));
        entry.put("outcome", if report.task.is_some() { "started" } else { report.outcome.name() });
        report.task.iter().for_each(|task| entry.put("task", task));
        report.confirmed.iter().for_each(|answer| entry.put("confirmed", answer.name()));
        match &report.outcome {
            Outcome::Denied { refusal, .. } => entry.put("why", &refusal.reason),
            Outcome::Limited(limit) => entry.put("why", cut(&limit.to_string())),
            Outcome::Fault(why) => entry.put("why", cut(why)),
            // What a script said may hold anything.
            Outcome::Completed(_) | Outcome::Failed(_) => {}
        }
        entry.put("usage", &told(&report.usage));
        entry.put("hooks", &report.dispatches().flat_map(hooks).collect::<Vec<_>>());
        let hooks = report.dispatches().flat_map(|dispatch| &dispatch.hooks).flat_map(|hook| &hook.calls);
        refusals(&mut entry, report.calls.iter().chain(hooks));
        self.append(entry)
    }

    /// Records a call or an event that came to no end: its caller was ended, or did not wait.
    pub(crate) fn abandoned(&self, mut entry: Entry) {
        entry.put("outcome", "abandoned");
        // Nobody is left to be told.
        let _ = self.append(entry);
    }

    /// What is known of a call before it is made.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) fn called(&self, place: &Place, name: &str, arguments: &Json) -> Result<Entry, String> {
        let mut entry = self.begun("call", place);
        entry.put("tool", cut(name));
        let registry = &place.loaded.registry;
        let tool = place.added_tool(name).map(|added| &added.tool).or_else(|| registry.tool(name).ok());
        if let Some(tool) = tool {
            entry.put("file", &*tool.source.file);
            entry.put("digest", &*self.digest(place, &tool.source.file, tool.script.as_ref().map(|s| &*s.text)));
        }
        let arguments = serde_json::to_vec(arguments).unwrap_or_default();
        entry.put("arguments", &self.log()?.key().digest(&arguments));
        Ok(entry)
    }

    /// The same of one that goes on as a task.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) fn task(&self, place: &Place, name: &str, arguments: &Json, id: &str) -> Result<Entry, String> {
        let mut entry = self.called(place, name, arguments)?;
        entry.put("task", id);
        Ok(entry)
    }

    /// What is known of an event before its hooks are asked.
    pub(crate) fn fired(&self, place: &Place, event: &Event) -> Entry {
        let mut entry = self.begun("event", place);
        entry.put("event", cut(&event.to_string()));
        entry
    }

    /// Records what the hooks of an event decided, of which this is known already.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) fn event(&self, mut entry: Entry, dispatch: &Dispatch) -> Result<(), String> {
        let outcome = if dispatch.decision.blocked().is_some() { "denied" } else { "completed" };
        entry.put("outcome", outcome);
        entry.put("usage", &told(&dispatch.usage()));
        entry.put("hooks", &hooks(dispatch).collect::<Vec<_>>());
        refusals(&mut entry, dispatch.hooks.iter().flat_map(|hook| &hook.calls));
        self.append(entry)
    }

    /// The digest of the file that an artifact is in; of one that a script has added, of its text.
    fn digest(&self, place: &Place, file: &str, text: Option<&str>) -> Arc<str> {
        let mut known = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(digest) = known.get(file) {
            return digest.clone();
        }
        match place.loaded.registry.sources().get(file) {
            Some(text) => {
                let digest: Arc<str> = audit::digest(text).into();
                known.insert(file.to_owned(), digest.clone());
                digest
            }
            None => audit::digest(text.unwrap_or_default()).into(),
        }
    }

    /// What made the grant: the policy's text, and of that and of others the places that each narrowed it.
    fn grant(&self, place: &Place, grant: &Grant) -> GrantTold {
        let policy = &place.loaded.policy.project.origin.file;
        let layers = grant.layers().iter().map(|layer| match &layer.origin.scope {
            Scope::Machine => format!("sandbox in {}", layer.origin.file).into(),
            Scope::Call => format!("call: {}", layer.origin.file).into(),
            Scope::Source(name) if layer.origin.file != *policy => {
                format!("sandbox.sources.{name} in {}", layer.origin.file).into()
            }
            Scope::Default => Cow::Borrowed("default"),
            Scope::Project => Cow::Borrowed("sandbox"),
            Scope::Source(name) => format!("sandbox.sources.{name}").into(),
            Scope::Artifact => format!("capabilities of {}", layer.origin.file).into(),
        });
        let machine = place.loaded.policy.machine.as_ref();
        GrantTold {
            policy: self.digest(place, policy, None),
            machine: machine.map(|machine| self.digest(place, &machine.layer.origin.file, None)),
            layers: layers.collect(),
        }
    }

    /// What is known of anything.
    fn begun(&self, kind: &str, place: &Place) -> Entry {
        let now = OffsetDateTime::UNIX_EPOCH + ambient::since_epoch();
        let mut entry = Entry::new();
        entry.put("time", &now.format(&Rfc3339).unwrap_or_default());
        entry.put("kind", kind);
        entry.put("user", &self.user);
        entry.put("process", &self.process);
        entry.put("caller", place.caller.as_deref().unwrap_or("program"));
        entry
    }
}

/// What made a grant.
#[derive(Serialize)]
struct GrantTold {
    #[serde(serialize_with = "text")]
    policy: Arc<str>,
    #[serde(serialize_with = "perhaps_text", skip_serializing_if = "Option::is_none")]
    machine: Option<Arc<str>>,
    layers: Vec<Cow<'static, str>>,
}

fn text<S: serde::Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

fn perhaps_text<S: serde::Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text.as_deref().unwrap_or_default())
}

/// What was used, wall time in microseconds.
#[derive(Serialize)]
struct UsageTold {
    fuel: u64,
    wall_us: u64,
    peak_memory: u64,
    host_calls: u64,
    bytes_in: u64,
    bytes_out: u64,
    bytes_copied: u64,
    files: u64,
    peak_host_memory: u64,
    tier: &'static str,
}

fn told(usage: &Usage) -> UsageTold {
    let wall_us = u64::try_from(usage.wall.as_micros()).unwrap_or(u64::MAX);
    UsageTold {
        fuel: usage.fuel,
        wall_us,
        peak_memory: usage.peak_memory,
        host_calls: usage.host_calls,
        bytes_in: usage.bytes_in,
        bytes_out: usage.bytes_out,
        bytes_copied: usage.bytes_copied,
        files: usage.files,
        peak_host_memory: usage.peak_host_memory,
        tier: usage.tier.name(),
    }
}

/// What a hook decided.
#[derive(Serialize)]
struct HookTold<'a> {
    event: String,
    hook: &'a str,
    file: &'a str,
    verdict: &'static str,
    fuel: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// A host call that was refused.
#[derive(Serialize)]
struct RefusalTold<'a> {
    call: String,
    subject: &'a str,
    why: Option<&'a str>,
}

/// A text that a script may have a say in, as far as it is recorded.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default()
}

/// Those that were called.
fn hooks(dispatch: &Dispatch) -> impl Iterator<Item = HookTold<'_>> {
    let event = dispatch.event.to_string();
    dispatch.hooks.iter().filter(|hook| hook.verdict.ran()).map(move |hook| {
        let HookRun { name: hook, file, verdict, reason, usage, .. } = hook;
        let (event, reason) = (event.clone(), reason.as_deref().map(cut));
        HookTold { event, hook, file, verdict: verdict.name(), fuel: usage.fuel, reason }
    })
}

/// The host calls that were refused.
fn refusals<'a>(entry: &mut Entry, calls: impl Iterator<Item = &'a HostCall>) {
    let refused: Vec<&HostCall> = calls.filter(|call| call.refused.is_some()).collect();
    if refused.is_empty() {
        return;
    }
    let told = refused.iter().take(MAX_REFUSALS).map(|call| {
        let (interface, function) = call.import.path();
        let why = call.refused.as_deref().map(cut);
        RefusalTold { call: format!("{interface}.{function}"), subject: &call.subject, why }
    });
    entry.put("refusals", &told.collect::<Vec<_>>());
    if refused.len() > MAX_REFUSALS {
        entry.put("more_refusals", &refused.len().saturating_sub(MAX_REFUSALS));
    }
}

/// Something that has begun: recorded as abandoned, unless it is told to have ended.
pub(crate) struct Unfinished<'a> {
    recorder: &'a Recorder,
    entry: Option<Entry>,
}

impl<'a> Unfinished<'a> {
    pub(crate) fn new(recorder: &'a Recorder, entry: Entry) -> Self {
        Self { recorder, entry: Some(entry) }
    }

    /// What was known of it.
    pub(crate) fn ended(mut self) -> Entry {
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
