//! What the record says of calls and events: who, which artifact, which grant, what came of it. No arguments and no
//! results: of arguments their digest, of results whether there was one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value as Json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::chain::{CallContext, Dispatch, HookRun, Verdict};
use super::code;
use super::pipeline::{CallError, CallReport};
use harness_artifact::event::Event;
use harness_artifact::policy::hearing::Shows;
use harness_audit::{AuditWriter, Backlog, Cut, Entry, Key, Log, MAX_NAME, MAX_TEXT, Room, Row, Wait, kept, kept_list};
use harness_policy::grant::Grant;
use harness_policy::layer::Scope;
use harness_registry::Refused;
use harness_sandbox::outcome::{HostCall, Outcome, Usage};
use harness_sys as sys;
use harness_sys::digest::digest;

/// Hooks of one call that are recorded one by one. Those that decided something come first where there are more.
const HOOKS: Room = Room { rows: 2000, bytes: 512 << 10 };
/// Refused host calls of one call that are recorded one by one.
const REFUSALS: Room = Room { rows: 100, bytes: 200 << 10 };
/// Layers of a grant that are recorded.
const LAYERS: usize = 100;
/// How long the end of a command waits for entries that are still to be written.
const SETTLE: Duration = Duration::from_secs(5);

/// Writes a project's record.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// The file that can turn it off.
    policy: String,
    /// Who runs this process, and which it is.
    user: u32,
    process: u32,
    log: Log,
    /// Of the files of artifacts, by name: they do not change while they are in force.
    digests: Mutex<HashMap<String, Arc<str>>>,
}

impl Recorder {
    /// For the project in a folder, after one that it had before, which has the same log. Nothing is written yet.
    pub(crate) fn new(root: &Path, policy: &str, before: Option<&Self>, writer: &AuditWriter) -> Self {
        // A log that is incomplete stays so, unless it was moved away, as its error asks for.
        let kept = |before: &&Self| before.incomplete().is_ok() || sys::real_path(before.log.folder()).is_ok();
        // Who reloads a project whose folder was replaced means the folder that is there now.
        let before = before.filter(kept).map(|before| before.log.clone()).filter(Log::is_in_place);
        Self {
            policy: policy.to_owned(),
            user: sys::user(),
            process: std::process::id(),
            log: before.unwrap_or_else(|| writer.log_of(root)),
            digests: Mutex::default(),
        }
    }

    /// Opens the audit log if it is not open, and waits until it can be written. What begins after this can be recorded.
    ///
    /// # Errors
    ///
    /// Why nothing can be recorded, and what to do.
    pub(crate) async fn ready(&self, place: &CallContext) -> Result<(), String> {
        self.incomplete()?;
        let timeout = place.loaded.timeout;
        let left = place.left.map_or(timeout, |left| left.deadline.saturating_duration_since(Instant::now()));
        self.answer(self.log.ready(), timeout.min(left)).await?
    }

    /// Whether all entries so far were written. From one that was not, nothing is called or fired.
    ///
    /// # Errors
    ///
    /// Why one is missing.
    pub(crate) fn incomplete(&self) -> Result<(), String> {
        self.log.lost().map_or(Ok(()), |error| Err(incomplete(&self.unwritable(&error))))
    }

    /// The same, after waiting for what is still to be written.
    ///
    /// # Errors
    ///
    /// Why an entry is missing.
    pub(crate) fn settled(&self) -> Result<(), String> {
        let Backlog { entries, held } = self.log.settle(Instant::now() + SETTLE);
        self.incomplete()?;
        if entries > 0 { Err(incomplete(&self.waiting(SETTLE, Backlog { entries, held }))) } else { Ok(()) }
    }

    /// What the log answers; an error of its own if that takes longer.
    async fn answer(&self, wait: Wait, time: Duration) -> Result<Result<(), String>, String> {
        let written = match wait.done() {
            Ok(written) => written,
            Err(wait) => match tokio::time::timeout(time, wait).await {
                Ok(written) => written,
                Err(_) => return Err(self.waiting(time, self.log.backlog())),
            },
        };
        Ok(written.map_err(|error| self.unwritable(&error)))
    }

    fn unwritable(&self, error: &impl std::fmt::Display) -> String {
        format!(
            "nothing can be recorded in `{0}`: {error}; move `{0}` away to begin a new record, or write `sandbox: {{ audit: false }}` in `{1}`",
            harness_audit::FOLDER,
            self.policy
        )
    }

    fn waiting(&self, time: Duration, backlog: Backlog) -> String {
        let (folder, time) = (harness_audit::FOLDER, time.as_millis());
        match backlog.held {
            Some(_) => format!(
                "nothing could be recorded in `{folder}` for {time} ms: another process holds the lock of `{folder}/head`; end that process (`fuser {folder}/head` finds it)"
            ),
            None => format!(
                "nothing could be recorded in `{folder}` for {time} ms: {} entries wait to be written; try again later",
                backlog.entries
            ),
        }
    }

    async fn append(&self, place: &CallContext, entry: Entry) -> Result<(), String> {
        // What else was done on a log that misses an entry must not look complete.
        self.incomplete()?;
        // The time of the call may be over, and that is recorded too.
        match self.answer(self.log.append(entry), place.loaded.timeout).await {
            Ok(written) => written.map_err(|why| incomplete(&why)),
            Err(waiting) => Err(format!("what ran is not in the audit log yet, so its result is withheld: {waiting}")),
        }
    }

    /// Records a call of which this is known already.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) async fn call(
        &self,
        place: &CallContext,
        mut entry: Entry,
        called: &Result<CallReport, CallError>,
    ) -> Result<(), String> {
        match called {
            Ok(report) => return self.ended(place, entry, report).await,
            Err(error) => {
                entry.put("outcome", error.outcome());
                // What is wrong with arguments may say what is in them.
                if !matches!(error, CallError::Arguments { .. }) {
                    entry.put_text("why", &error.to_string(), MAX_TEXT);
                }
                if let CallError::Arguments { pre: Some(pre), .. } = error {
                    hooks(&mut entry, [&**pre].into_iter());
                    refusals(&mut entry, pre.hooks.iter().flat_map(|hook| &hook.calls));
                }
            }
        }
        self.append(place, entry).await
    }

    /// Records a call that was made.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) async fn ended(&self, place: &CallContext, mut entry: Entry, report: &CallReport) -> Result<(), String> {
        let grant = self.grant(place, &report.grant, entry.key());
        describe(&mut entry, report, &grant);
        self.append(place, entry).await
    }

    /// Records a call or an event that came to no end: its caller was ended, or did not wait.
    pub(crate) fn abandoned(&self, mut entry: Entry) {
        entry.put("outcome", "abandoned");
        // Its caller is gone: anyone who asks next is told, and so is who ends the run.
        self.log.leave(entry);
    }

    /// What is known of a call before it is made.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) fn called(&self, place: &CallContext, name: &str, arguments: &Json) -> Result<Entry, String> {
        let mut entry = self.begun("call", place)?;
        entry.put_text("tool", name, MAX_NAME);
        let registry = &place.loaded.parts.registry;
        let tool = place.added_tool(name).map(|added| &added.tool).or_else(|| registry.tool(name).ok());
        if let Some(tool) = tool {
            entry.put_text("file", &tool.source.file, MAX_NAME);
            entry.put("digest", &*self.digest(place, &tool.source.file, tool.script.as_ref().map(|s| &*s.text)));
        }
        if let Some(script) = code::script_of(&place.loaded, name, arguments) {
            // The caller of what it calls has the same digest.
            entry.put("digest", &digest(script));
        }
        let arguments = serde_json::to_vec(arguments).unwrap_or_default();
        let digest = entry.key().digest(&arguments);
        entry.put("arguments", &digest);
        Ok(entry)
    }

    /// The same of one that continues as a task.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) fn task(&self, place: &CallContext, name: &str, arguments: &Json, id: &str) -> Result<Entry, String> {
        let mut entry = self.called(place, name, arguments)?;
        entry.put_text("task", id, MAX_NAME);
        Ok(entry)
    }

    /// What is known of an event before its hooks are asked.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) fn fired(&self, place: &CallContext, event: &Event) -> Result<Entry, String> {
        let mut entry = self.begun("event", place)?;
        entry.put_text("event", &event.to_string(), MAX_NAME);
        Ok(entry)
    }

    /// Records what the hooks of an event decided, of which this is known already.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) async fn event(&self, place: &CallContext, mut entry: Entry, dispatch: &Dispatch) -> Result<(), String> {
        let outcome = if dispatch.decision.blocked().is_some() { "denied" } else { "completed" };
        entry.put("outcome", outcome);
        entry.put("usage", &usage_entry(&dispatch.usage()));
        hooks(&mut entry, [dispatch].into_iter());
        refusals(&mut entry, dispatch.hooks.iter().flat_map(|hook| &hook.calls));
        self.append(place, entry).await
    }

    /// Records an event whose hooks have decided, if there is an audit log.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) async fn decided(
        log: Option<&Self>,
        place: &CallContext,
        event: &Event,
        dispatch: &Dispatch,
    ) -> Result<(), String> {
        match log {
            Some(log) => log.event(place, log.fired(place, event)?, dispatch).await,
            None => Ok(()),
        }
    }

    /// Records what hooks decided of an artifact that is to be loaded.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) async fn loaded(
        &self,
        place: &CallContext,
        artifact: &Refused,
        dispatch: &Dispatch,
    ) -> Result<(), String> {
        let entry = self.loading(place, artifact).await?;
        self.event(place, entry, dispatch).await
    }

    /// Records an artifact that is refused without having been asked for.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub(crate) async fn refused(&self, place: &CallContext, artifact: &Refused) -> Result<(), String> {
        let mut entry = self.loading(place, artifact).await?;
        entry.put("outcome", "denied");
        entry.put_text("why", &artifact.reason, MAX_TEXT);
        self.append(place, entry).await
    }

    async fn loading(&self, place: &CallContext, artifact: &Refused) -> Result<Entry, String> {
        self.ready(place).await?;
        let mut entry = self.fired(place, &Event::ArtifactLoad)?;
        entry.put_text("artifact", &format!("{} {}", artifact.kind, artifact.name), MAX_NAME);
        entry.put_text("file", &artifact.at, MAX_NAME);
        Ok(entry)
    }

    /// The digest of the file that an artifact is in; of one that a script has added, of its text.
    fn digest(&self, place: &CallContext, file: &str, text: Option<&str>) -> Arc<str> {
        let mut known = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(digest) = known.get(file) {
            return digest.clone();
        }
        match place.loaded.parts.registry.sources().get(file) {
            Some(text) => {
                let digest: Arc<str> = digest(text).into();
                known.insert(file.to_owned(), digest.clone());
                digest
            }
            None => digest(text.unwrap_or_default()).into(),
        }
    }

    /// What made the grant: the policy's text, and of that and of others the places that each narrowed it.
    fn grant(&self, place: &CallContext, grant: &Grant, key: &Key) -> GrantEntry {
        let policy = &place.loaded.parts.policy.project.origin.file;
        let layers = grant.layers().iter().map(|layer| match &layer.origin.scope {
            Scope::Machine => format!("sandbox in {}", layer.origin.file).into(),
            Scope::Call => format!("call: {}", layer.origin.file).into(),
            Scope::Source(name) if layer.origin.file != *policy => {
                format!("sandbox.sources.{name} in {}", layer.origin.file).into()
            }
            Scope::Default => Cow::Borrowed("default"),
            Scope::Project => Cow::Borrowed("sandbox"),
            Scope::Source(name) => format!("sandbox.sources.{name}").into(),
            Scope::Server(name) => format!("mcp.servers.{name}").into(),
            Scope::Artifact => format!("capabilities of {}", layer.origin.file).into(),
            Scope::Trusted(number) => format!("trusted_sources[{number}].max in {}", layer.origin.file).into(),
            Scope::Asked => format!("asks of {}", layer.origin.file).into(),
        });
        let machine = place.loaded.parts.policy.machine.as_ref();
        let (layers, cut) = kept_list(key, "layers", &layers.collect::<Vec<_>>(), LAYERS);
        GrantEntry {
            policy: self.digest(place, policy, None),
            machine: machine.map(|machine| self.digest(place, &machine.layer.origin.file, None)),
            layers,
            cut,
        }
    }

    /// What is known of anything.
    fn begun(&self, kind: &str, place: &CallContext) -> Result<Entry, String> {
        let now = OffsetDateTime::UNIX_EPOCH + sys::since_epoch();
        let mut entry = self.log.entry().map_err(|error| self.unwritable(&error))?;
        entry.put("time", &now.format(&Rfc3339).unwrap_or_default());
        entry.put("kind", kind);
        entry.put("user", &self.user);
        entry.put("process", &self.process);
        entry.put_text("caller", place.caller.as_deref().unwrap_or("program"), MAX_NAME);
        if let Some(request) = place.run.client_request() {
            for (key, text) in [("client", &request.client), ("protocol", &request.protocol), ("request", &request.id)]
            {
                let mut shown = text.clone();
                place.loaded.parts.secrets.redact(&mut shown);
                entry.put_text(key, &shown, MAX_NAME);
            }
            if let Some(workspace) = &request.workspace {
                entry.put_text("workspace", workspace, MAX_NAME);
            }
        }
        Ok(entry)
    }
}

fn incomplete(why: &str) -> String {
    format!("the audit log is incomplete: what ran is not in it: {why}")
}

/// What is said of a call that was made.
fn describe(entry: &mut Entry, report: &CallReport, grant: &GrantEntry) {
    entry.put_text("id", &report.id, MAX_NAME);
    entry.put("grant", grant);
    entry.put("outcome", if report.task.is_some() { "started" } else { report.outcome.name() });
    report.task.iter().for_each(|task| entry.put_text("task", task, MAX_NAME));
    report.confirmed.iter().for_each(|answer| entry.put("confirmed", answer.name()));
    match &report.outcome {
        Outcome::Denied { refusal, .. } => entry.put_text("why", &refusal.reason, MAX_TEXT),
        Outcome::Limited(limit) => entry.put_text("why", &limit.to_string(), MAX_TEXT),
        Outcome::Busy(busy) => entry.put_text("why", &busy.to_string(), MAX_TEXT),
        Outcome::Fault(why) => entry.put_text("why", why, MAX_TEXT),
        // What a script said may hold anything.
        Outcome::Completed(_) | Outcome::Failed(_) => {}
    }
    entry.put("usage", &usage_entry(&report.usage));
    if let Some(judged) = &report.verify {
        // Why is in what its caller got, and may hold anything.
        let verdict = if judged.refused.is_some() { "refused" } else { "accepted" };
        entry.put("verify", &VerifyEntry { verdict, usage: usage_entry(&judged.usage) });
    }
    hooks(entry, report.dispatches());
    let hooks = report.dispatches().flat_map(|dispatch| &dispatch.hooks).flat_map(|hook| &hook.calls);
    let judge = report.verify.iter().flat_map(|judged| &judged.calls);
    refusals(entry, report.calls.iter().chain(judge).chain(hooks));
}

/// What made a grant.
#[derive(Serialize)]
struct GrantEntry {
    #[serde(serialize_with = "text")]
    policy: Arc<str>,
    #[serde(serialize_with = "perhaps_text", skip_serializing_if = "Option::is_none")]
    machine: Option<Arc<str>>,
    layers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cut: Vec<Cut>,
}

fn text<S: serde::Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

fn perhaps_text<S: serde::Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text.as_deref().unwrap_or_default())
}

/// What was used, wall time in microseconds.
#[derive(Serialize)]
struct UsageEntry {
    fuel: u64,
    wall_us: u64,
    loading_us: u64,
    peak_memory: u64,
    host_calls: u64,
    bytes_in: u64,
    bytes_out: u64,
    bytes_copied: u64,
    files: u64,
    peak_host_memory: u64,
    tier: &'static str,
}

fn usage_entry(usage: &Usage) -> UsageEntry {
    let wall_us = u64::try_from(usage.wall.as_micros()).unwrap_or(u64::MAX);
    UsageEntry {
        fuel: usage.fuel,
        wall_us,
        loading_us: u64::try_from(usage.loading.as_micros()).unwrap_or(u64::MAX),
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

/// How a tool's `verify` judged a call.
#[derive(Serialize)]
struct VerifyEntry {
    verdict: &'static str,
    usage: UsageEntry,
}

/// What a hook decided.
#[derive(Serialize)]
struct HookEntry<'a> {
    event: &'a str,
    hook: &'a str,
    file: &'a str,
    verdict: &'static str,
    /// What it saw of the payload, where that was not all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    shows: Option<&'static str>,
    fuel: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cut: Vec<Cut>,
}

/// A host call that was refused.
#[derive(Serialize)]
struct DenialEntry<'a> {
    call: String,
    subject: &'a str,
    why: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cut: Vec<Cut>,
}

/// Texts of a row, cut to their bounds.
struct Bounded<'k> {
    key: &'k Key,
    cut: Vec<Cut>,
}

impl Bounded<'_> {
    fn text<'t>(&mut self, field: &'static str, text: &'t str, most: usize) -> &'t str {
        let (kept, cut) = kept(self.key, field, text, most);
        self.cut.extend(cut);
        kept
    }
}

/// The hooks that were called. Those that decided something are left out last: nobody crowds a decision out of the log.
fn hooks<'a>(entry: &mut Entry, dispatches: impl Iterator<Item = &'a Dispatch>) {
    let mut rows = Vec::new();
    for dispatch in dispatches {
        let event = dispatch.event.to_string();
        for hook in dispatch.hooks.iter().filter(|hook| hook.verdict.ran()) {
            let HookRun { name, file, verdict, reason, usage, shows, .. } = hook;
            let mut bounded = Bounded { key: entry.key(), cut: Vec::new() };
            let row = HookEntry {
                event: bounded.text("event", &event, MAX_NAME),
                hook: bounded.text("hook", name, MAX_NAME),
                file: bounded.text("file", file, MAX_NAME),
                verdict: verdict.name(),
                shows: (*shows < Shows::All).then(|| shows.name()),
                fuel: usage.fuel,
                reason: reason.as_deref().map(|reason| bounded.text("reason", reason, MAX_TEXT)),
                cut: bounded.cut,
            };
            let rank = match verdict {
                Verdict::Block | Verdict::Error => 0,
                Verdict::Modify => 1,
                Verdict::Allow | Verdict::Skip | Verdict::NotReached => 2,
            };
            rows.push(Row::new(rank, &row));
        }
    }
    entry.put_rows("hooks", rows, HOOKS);
}

/// The host calls that were refused.
fn refusals<'a>(entry: &mut Entry, calls: impl Iterator<Item = &'a HostCall>) {
    let refused = calls.filter(|call| call.refused.is_some());
    let row = |call: &HostCall| {
        let (interface, function) = call.import.path();
        let mut bounded = Bounded { key: entry.key(), cut: Vec::new() };
        let row = DenialEntry {
            call: format!("{interface}.{function}"),
            subject: bounded.text("subject", &call.subject, MAX_NAME),
            why: call.refused.as_deref().map(|why| bounded.text("why", why, MAX_TEXT)),
            cut: bounded.cut,
        };
        Row::new(0, &row)
    };
    let rows: Vec<Row> = refused.map(row).collect();
    if !rows.is_empty() {
        entry.put_rows("refusals", rows, REFUSALS);
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

    /// It has ended: records how, with what was known of it.
    ///
    /// # Errors
    ///
    /// Those of recording it.
    pub(crate) async fn ended<F>(mut self, record: impl FnOnce(Entry) -> F) -> Result<(), String>
    where
        F: Future<Output = Result<(), String>>,
    {
        match self.entry.take() {
            Some(entry) => record(entry).await,
            None => Ok(()),
        }
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.recorder.abandoned(entry);
        }
    }
}

#[cfg(test)]
mod tests;
