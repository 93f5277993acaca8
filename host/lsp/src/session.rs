//! Documents and projects of a client, and what it gets to see of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use harness_artifact::diagnostic::{Diagnostic, Severity};
use harness_registry::{Registry, Unsaved};
use harness_sys as sys;
use lsp_types::{
    DiagnosticSeverity, DidChangeTextDocumentParams, DidCloseTextDocumentParams, DidOpenTextDocumentParams, Range, Uri,
};
use serde_json::{Value as Json, json};

use crate::check::{Checked, Ran, Snapshot, Work};
use crate::message::{self, Code, Failure, Id};
use crate::{CaseResult, Cases, Checks, document, frame, lens, uri};

/// Documents that are open at one time.
const MAX_DOCUMENTS: usize = 1_000;

/// A document that the client has open.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub(crate) uri: Uri,
    pub(crate) text: Arc<str>,
    pub(crate) version: i32,
    /// The folder of its project; none if it is in none.
    pub(crate) root: Option<PathBuf>,
}

/// A project that documents are of.
#[derive(Debug, Default)]
pub(crate) struct Project {
    registry: Option<Arc<Registry>>,
    /// How many changes there had been when it was loaded.
    loaded_at: u64,
    /// The problems that were published last, with the versions of documents that they are about.
    pub(crate) problems: Vec<Diagnostic>,
    pub(crate) versions: BTreeMap<PathBuf, i32>,
    /// The files that have problems.
    published: BTreeSet<PathBuf>,
}

/// A client.
pub(crate) struct Session<'c, W> {
    output: W,
    checks: &'c dyn Checks,
    work: &'c Work,
    documents: BTreeMap<PathBuf, Document>,
    projects: BTreeMap<PathBuf, Project>,
    /// Requests that run cases.
    running: Vec<Id>,
    /// Changes of documents and files so far.
    changes: u64,
    /// Whether the client reports changed files if it is asked to.
    pub(crate) watches_files: bool,
}

impl<'c, W: Write> Session<'c, W> {
    pub(crate) fn new(output: W, checks: &'c dyn Checks, work: &'c Work) -> Self {
        Self {
            output,
            checks,
            work,
            documents: BTreeMap::new(),
            projects: BTreeMap::new(),
            running: Vec::new(),
            changes: 0,
            watches_files: false,
        }
    }

    pub(crate) fn send(&mut self, message: &Json) -> io::Result<()> {
        frame::write(&mut self.output, message)
    }

    fn notify(&mut self, method: &str, params: &Json) -> io::Result<()> {
        self.send(&message::notification(method, params))
    }

    /// A line in the log of the client.
    pub(crate) fn log(&mut self, line: &str) -> io::Result<()> {
        self.notify("window/logMessage", &json!({"type": 2, "message": line}))
    }

    /// Asks the client to report changes of artifacts and locks.
    pub(crate) fn watch_files(&mut self) -> Result<io::Result<()>, Failure> {
        if !self.watches_files {
            return Ok(Ok(()));
        }
        let globs = ["**/.harness/**", "**/harness.{md,yaml,lock}"];
        let watchers: Vec<Json> = globs.iter().map(|glob| json!({"globPattern": glob})).collect();
        let method = "workspace/didChangeWatchedFiles";
        let registration = json!({"id": "files", "method": method, "registerOptions": {"watchers": watchers}});
        let params = json!({"registrations": [registration]});
        let request = json!({"jsonrpc": "2.0", "id": "files", "method": "client/registerCapability", "params": params});
        Ok(self.send(&request))
    }

    /// An open document, with its path.
    pub(crate) fn document(&self, uri: &Uri) -> Option<(PathBuf, &Document)> {
        let path = uri::to_path(uri)?;
        let document = self.documents.get(&path)?;
        Some((path, document))
    }

    pub(crate) fn open(&mut self, params: DidOpenTextDocumentParams) -> io::Result<()> {
        let opened = params.text_document;
        let Some(path) = uri::to_path(&opened.uri).filter(|path| is_text(path)) else { return Ok(()) };
        if self.documents.len() >= MAX_DOCUMENTS && !self.documents.contains_key(&path) {
            return self.log(&format!("`{}` is not checked: {MAX_DOCUMENTS} documents are open", path.display()));
        }
        let root = root_of(&path);
        let (text, version) = (opened.text.into(), opened.version);
        self.documents.insert(path.clone(), Document { uri: opened.uri, text, version, root });
        self.changed(&path);
        Ok(())
    }

    pub(crate) fn change(&mut self, params: DidChangeTextDocumentParams) -> io::Result<()> {
        let Some(path) = uri::to_path(&params.text_document.uri) else { return Ok(()) };
        let Some(document) = self.documents.get_mut(&path) else { return Ok(()) };
        // The client sends whole texts, as the server asks it to.
        let Some(last) = params.content_changes.into_iter().rfind(|change| change.range.is_none()) else {
            return self.log("`textDocument/didChange` has no whole text");
        };
        (document.text, document.version) = (last.text.into(), params.text_document.version);
        self.changed(&path);
        Ok(())
    }

    pub(crate) fn close(&mut self, params: DidCloseTextDocumentParams) -> io::Result<()> {
        let Some(path) = uri::to_path(&params.text_document.uri) else { return Ok(()) };
        let Some(document) = self.documents.remove(&path) else { return Ok(()) };
        self.changes = self.changes.wrapping_add(1);
        let Some(root) = document.root else { return Ok(()) };
        if self.documents.values().any(|other| other.root.as_ref() == Some(&root)) {
            self.work.check(&root, self.snapshot());
            return Ok(());
        }
        // Nobody looks at the project any more.
        let published = self.projects.remove(&root).map(|project| project.published).unwrap_or_default();
        published.iter().try_for_each(|path| self.publish(path, Vec::new()))
    }

    /// Files changed that are not open, or were saved.
    pub(crate) fn changed_on_disk(&mut self) -> io::Result<()> {
        self.changes = self.changes.wrapping_add(1);
        let snapshot = self.snapshot();
        let roots: BTreeSet<&PathBuf> = self.documents.values().filter_map(|document| document.root.as_ref()).collect();
        roots.into_iter().for_each(|root| self.work.check(root, snapshot.clone()));
        Ok(())
    }

    fn changed(&mut self, path: &Path) {
        self.changes = self.changes.wrapping_add(1);
        if let Some(root) = self.documents.get(path).and_then(|document| document.root.clone()) {
            self.projects.entry(root.clone()).or_default();
            self.work.check(&root, self.snapshot());
        }
    }

    fn snapshot(&self) -> Snapshot {
        let versions = self.documents.iter().map(|(path, document)| (path.clone(), document.version)).collect();
        Snapshot { unsaved: self.unsaved(), versions, changes: self.changes }
    }

    fn unsaved(&self) -> Unsaved {
        let mut unsaved = Unsaved::default();
        self.documents.iter().for_each(|(path, document)| unsaved.insert(path, Arc::clone(&document.text)));
        unsaved
    }

    /// The project of a document as it was last loaded, or as it is now if it must be.
    pub(crate) fn registry(&mut self, root: &Path, must_be_fresh: bool) -> Arc<Registry> {
        let known = self.projects.get(root).and_then(|project| {
            let is_fresh = project.loaded_at == self.changes;
            project.registry.clone().filter(|_| is_fresh || !must_be_fresh)
        });
        known.unwrap_or_else(|| {
            let registry = Arc::new(self.checks.load(root, &self.unsaved()));
            let project = self.projects.entry(root.to_owned()).or_default();
            (project.registry, project.loaded_at) = (Some(Arc::clone(&registry)), self.changes);
            registry
        })
    }

    pub(crate) fn project(&self, root: &Path) -> Option<&Project> {
        self.projects.get(root)
    }

    /// The text of a file of a project: what the client has open, or what was read.
    pub(crate) fn text_of<'s>(&'s self, root: &Path, file: &str, registry: &'s Registry) -> Option<&'s str> {
        let open = self.documents.get(&root.join(file)).map(|document| &*document.text);
        open.or_else(|| registry.sources().get(file).map(String::as_str))
    }

    /// The URI of a file: that of the client, where it has it open.
    pub(crate) fn uri_of(&self, path: &Path) -> Option<Uri> {
        let open = self.documents.get(path).map(|document| document.uri.clone());
        open.or_else(|| uri::of_path(path))
    }

    /// Publishes the problems of a project.
    pub(crate) fn checked(&mut self, checked: Checked) -> io::Result<()> {
        let Checked { root, registry, versions, changes, problems } = checked;
        if !self.projects.contains_key(&root) {
            return Ok(());
        }
        let problems = match problems {
            Ok(problems) => problems,
            Err(why) => {
                self.log(&format!("`{}` cannot be checked: {why}", root.display()))?;
                registry.diagnostics().clone()
            }
        };
        let problems: Vec<Diagnostic> = problems.iter().cloned().collect();
        let mut files: BTreeMap<PathBuf, Vec<Json>> = BTreeMap::new();
        // Also those that have none: a client sees that they were checked.
        let open = self.documents.iter().filter(|(_, document)| document.root.as_ref() == Some(&root));
        files.extend(open.map(|(path, _)| (path.clone(), Vec::new())));
        for problem in &problems {
            let (path, range) = self.location_of(&root, problem, &registry);
            files.entry(path).or_default().push(shown(problem, range));
        }
        let before = match self.projects.get_mut(&root) {
            Some(project) => {
                if project.loaded_at <= changes {
                    (project.registry, project.loaded_at) = (Some(registry), changes);
                }
                (project.problems, project.versions) = (problems, versions);
                std::mem::replace(&mut project.published, files.keys().cloned().collect())
            }
            None => BTreeSet::new(),
        };
        for gone in before {
            files.entry(gone).or_default();
        }
        files.into_iter().try_for_each(|(path, problems)| self.publish(&path, problems))
    }

    /// The file and the range of a problem. One that is about no place is shown at the policy.
    fn location_of(&self, root: &Path, problem: &Diagnostic, registry: &Registry) -> (PathBuf, Range) {
        let Some(at) = &problem.position else {
            let policy = Some(registry.policy_file()).filter(|file| !file.is_empty());
            return (root.join(policy.unwrap_or(".harness/harness.md")), Range::default());
        };
        let path = root.join(&*at.file);
        let read;
        let text = match self.text_of(root, &at.file, registry) {
            Some(text) => text,
            None => {
                read = sys::read_text(&path).unwrap_or_default();
                &read
            }
        };
        (path, document::range_of(text, at))
    }

    fn publish(&mut self, path: &Path, problems: Vec<Json>) -> io::Result<()> {
        let Some(uri) = self.uri_of(path) else { return Ok(()) };
        let root = self.documents.get(path).and_then(|document| document.root.as_ref());
        let version = root.and_then(|root| self.projects.get(root)).and_then(|project| project.versions.get(path));
        let params = match version {
            Some(version) => json!({"uri": uri, "version": version, "diagnostics": problems}),
            None => json!({"uri": uri, "diagnostics": problems}),
        };
        self.notify("textDocument/publishDiagnostics", &params)
    }

    /// Begins to run cases for a request.
    pub(crate) fn execute(&mut self, id: &Id, params: Json) -> Result<(), Failure> {
        let params: lsp_types::ExecuteCommandParams = message::params(params)?;
        if params.command != lens::RUN {
            return Err(Failure::new(Code::InvalidParams, format!("there is no command {:?}", params.command)));
        }
        let (uri, wanted): (Uri, Cases) = message::params(Json::Array(params.arguments))?;
        let path = uri::to_path(&uri);
        let root = path.as_deref().and_then(root_of);
        let root =
            root.ok_or_else(|| Failure::new(Code::InvalidParams, format!("`{}` is in no project", uri.as_str())))?;
        if !self.work.run(id.clone(), &root, self.unsaved(), wanted) {
            return Err(Failure::new(Code::Failed, "too many runs of cases wait: try again when they have ended"));
        }
        self.running.push(id.clone());
        Ok(())
    }

    /// Answers a request that is cancelled, where that is not done yet.
    pub(crate) fn cancel(&mut self, id: &Id) -> io::Result<()> {
        let Some(at) = self.running.iter().position(|running| running == id) else { return Ok(()) };
        self.running.remove(at);
        self.work.cancel(id);
        self.send(&message::answer(id, Err(Failure::new(Code::Cancelled, "the run was cancelled"))))
    }

    /// Answers a request whose cases have run, and shows how they ended.
    pub(crate) fn ran(&mut self, ran: Ran) -> io::Result<()> {
        let Ran { id, wanted, results } = ran;
        let Some(at) = self.running.iter().position(|running| *running == id) else { return Ok(()) };
        self.running.remove(at);
        match results {
            Ok(results) => {
                let passed = results.iter().all(|one| one.differences.is_empty());
                let kind = if passed { 3 } else { 1 };
                self.notify("window/showMessage", &json!({"type": kind, "message": summary(&wanted, &results)}))?;
                self.send(&message::answer(&id, Ok(json!({"passed": passed, "cases": results}))))
            }
            Err(why) => self.send(&message::answer(&id, Err(Failure::new(Code::Failed, why)))),
        }
    }
}

/// How cases ended, for a person.
fn summary(wanted: &Cases, results: &[CaseResult]) -> String {
    let failed: Vec<&CaseResult> = results.iter().filter(|one| !one.differences.is_empty()).collect();
    let (all, plural) = (results.len(), if results.len() == 1 { "" } else { "s" });
    let Cases { kind, name, .. } = wanted;
    if failed.is_empty() {
        return format!("{kind} `{name}`: {all} case{plural} passed");
    }
    let shown = failed.iter().map(|one| format!("\n{}:\n{}", one.case, one.differences.join("\n")));
    format!("{kind} `{name}`: {} of {all} case{plural} failed{}", failed.len(), shown.collect::<String>())
}

/// A problem as the client gets it.
pub(crate) fn shown(problem: &Diagnostic, range: Range) -> Json {
    let severity = match problem.severity {
        Severity::Error => DiagnosticSeverity::ERROR,
        Severity::Warning => DiagnosticSeverity::WARNING,
    };
    let note = problem.note.as_ref().map(|note| format!("\n{note}")).unwrap_or_default();
    let hint = problem.hint.as_ref().filter(|hint| !hint.is_empty());
    let hint = hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    let message = format!("{}{note}{hint}", problem.message);
    json!({"range": range, "severity": severity, "source": "harness", "message": message})
}

/// Whether a file may be an artifact.
fn is_text(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "md" || ending == "yaml")
}

/// The folder of the project that a file is in: what holds the `.harness` that it is below, or the nearest folder above
/// it that holds a project.
pub(crate) fn root_of(path: &Path) -> Option<PathBuf> {
    let below = path.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == ".harness"));
    if let Some(home) = below {
        return home.parent().map(Path::to_owned);
    }
    path.ancestors().skip(1).find(|folder| Registry::is_in(folder)).map(Path::to_owned)
}
