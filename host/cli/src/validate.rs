//! `harness validate`: parses and compiles everything, and reports every error.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use harness_agent::{self as agent, RepliesFile};
use harness_artifact::agent::Use;
use harness_artifact::diagnostic::{Diagnostic, Diagnostics, Severity};
use harness_artifact::hook::Hook;
use harness_artifact::{escape, lint};
use harness_capability::env::Variables;
use harness_capability::secrets::Vault;
use harness_dispatch::confinement;
use harness_dispatch::{self as dispatch, OpenError, Unloadable};
use harness_policy::deadline::{Author, Decides};
use harness_policy::limits::LimitKey;
use harness_policy::path::Access;
use harness_policy::resource::Resource;
use harness_registry::{Refused, Registry, Replaced};
use harness_wall::confine::Plan;
use serde_json::{Value as Json, json};

use super::args::{ProjectArgs, Validate};
use super::exit::Exit;
use super::printer::Printer;
use super::progress::Progress;
use super::{inspect, project};

pub(crate) fn run(command: &Validate, place: &ProjectArgs, printer: &Printer) -> Exit {
    let root = project::root(place);
    let registry = project::registry(place);
    // Their files may be anywhere: looked at while all files are still to be had.
    let elsewhere = Elsewhere::of(&registry, &root);
    let plan = Plan::without_programs(&confinement::folders(&registry, &root), &[]);
    if let Err(exit) = project::confine(&plan, &command.confine, *printer) {
        return exit;
    }
    let progress = Progress::start("compiling scripts".to_owned());
    let found = problems(&root, &registry, &elsewhere, command.strict);
    drop(progress);
    let all = match found {
        Ok(all) => all,
        Err(Untried::Project(error)) => return project::unopened(&error, *printer),
        Err(Untried::Script(message)) => {
            printer.error(&message, &[], Some("see `harness doctor`"));
            return Exit::Fault;
        }
    };
    let valid = all.errors() == 0 && (all.warnings() == 0 || !command.strict);
    if command.json {
        printer.json(&to_json(&registry, &all, valid));
    } else {
        print_diagnostics(&registry, &all, &elsewhere.replies, printer);
        print_artifacts(&registry, printer);
        print_summary(&registry, &all, valid, printer);
    }
    if valid { Exit::Completed } else { Exit::Usage }
}

/// What is read outside of a project's artifacts.
pub(crate) struct Elsewhere {
    secrets: Vec<Diagnostic>,
    replies: Vec<RepliesFile>,
}

impl Elsewhere {
    pub(crate) fn of(registry: &Registry, root: &Path) -> Self {
        Self { secrets: secrets(registry, root), replies: replies(registry, root) }
    }
}

/// Why a project could not be checked: the host could not try.
pub(crate) enum Untried {
    Project(OpenError),
    Script(String),
}

/// Everything that is wrong with a project, what loading found too.
pub(crate) fn problems(
    root: &Path,
    registry: &Registry,
    elsewhere: &Elsewhere,
    strict: bool,
) -> Result<Diagnostics, Untried> {
    let mut found = unloadable(root, registry)?;
    found.extend(likely(registry, &found, strict));
    found.extend(api_keys(registry));
    found.extend(elsewhere.secrets.iter().cloned());
    found.extend(elsewhere.replies.iter().flat_map(|file| file.problems.iter().cloned()));
    found.extend(unconfined(registry));
    found.extend(cut_short(registry));
    found.extend(unread(registry));
    // As many as anyone reads, of each severity; the others are counted.
    let mut all = registry.diagnostics().clone();
    found.into_iter().for_each(|one| all.push(one));
    Ok(all)
}

/// The scripts that cannot be loaded, each as an error.
fn unloadable(root: &Path, registry: &Registry) -> Result<Vec<Diagnostic>, Untried> {
    let unloadable = dispatch::for_checking(root, registry).map_err(Untried::Project)?.load_all();
    let mut found = Vec::new();
    for one in unloadable {
        match one {
            Unloadable::Script(failure) | Unloadable::Late(failure, _) => {
                found.push(project::diagnostic(&failure, "the script cannot be loaded"))
            }
            Unloadable::Host(message) => return Err(Untried::Script(message)),
        }
    }
    Ok(found)
}

/// For a program.
fn to_json(registry: &Registry, all: &Diagnostics, valid: bool) -> Json {
    let mut report = json!({
        "valid": valid,
        "tools": registry.tools().iter().map(|tool| &tool.name).collect::<Vec<_>>(),
        "hooks": registry.hooks().iter().map(|hook| &hook.name).collect::<Vec<_>>(),
        "agents": registry.agents().iter().map(|agent| &agent.name).collect::<Vec<_>>(),
        "skills": registry.skills().iter().map(|skill| &skill.name).collect::<Vec<_>>(),
        "replaced": registry.replaced().iter().map(replaced).collect::<Vec<_>>(),
        "problems": all.iter().map(|diagnostic| as_json(diagnostic)).collect::<Vec<_>>(),
    });
    if let (Some(report), false) = (report.as_object_mut(), registry.refused().is_empty()) {
        report.insert("refused".to_owned(), registry.refused().iter().map(refused).collect());
    }
    report
}

fn print_diagnostics(registry: &Registry, all: &Diagnostics, replies: &[RepliesFile], printer: &Printer) {
    for diagnostic in all.iter() {
        let file = diagnostic.position.as_ref().map(|position| &*position.file);
        let rendered = match replies.iter().find(|replies| Some(&*replies.file) == file) {
            Some(replies) => diagnostic.render(Some(&replies.text), printer.color()),
            None => registry.render(diagnostic, printer.color()),
        };
        printer.say(rendered.trim_end());
    }
}

/// The names of all artifacts, and what became of those that are not used.
fn print_artifacts(registry: &Registry, printer: &Printer) {
    for (kind, names) in [
        ("tools", registry.tools().iter().map(|tool| &tool.name).collect::<Vec<_>>()),
        ("hooks", registry.hooks().iter().map(|hook| &hook.name).collect()),
        ("agents", registry.agents().iter().map(|agent| &agent.name).collect()),
        ("skills", registry.skills().iter().map(|skill| &skill.name).collect()),
    ] {
        if !names.is_empty() {
            let names: Vec<String> = names.into_iter().map(|name| escape::line(name).into_owned()).collect();
            printer.data(&format!("{kind}: {}", names.join(", ")));
        }
    }
    for one in registry.replaced() {
        printer.data(&inspect::replaced(one));
    }
    for one in registry.refused() {
        let Refused { kind, name, at, by, reason, .. } = one;
        printer.data(&escape::line(&format!("rejected: {kind} `{name}` of {at} by hook `{by}`: {reason}")));
    }
}

fn print_summary(registry: &Registry, all: &Diagnostics, valid: bool, printer: &Printer) {
    let plural = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    printer.data(&format!(
        "{}: {}, {}, {}; {}, {}",
        if valid { "valid" } else { "invalid" },
        plural(registry.tools().len(), "tool"),
        plural(registry.hooks().len(), "hook"),
        plural(registry.agents().len(), "agent"),
        plural(all.errors(), "error"),
        plural(all.warnings(), "warning"),
    ));
}

/// Findings about artifacts up to which more of them are checked: for each, words are compared.
const MOST_LIKELY: usize = 1_000;

/// Probable mistakes in all artifacts, except those in `told`.
fn likely(registry: &Registry, told: &[Diagnostic], strict: bool) -> Vec<Diagnostic> {
    let at = |one: &Diagnostic| one.position.as_ref().map(|at| (at.file.clone(), at.line));
    let told: HashSet<_> = told.iter().filter(|one| one.severity == Severity::Error).map(at).collect();
    let own_tools = registry.agents().iter().flat_map(|agent| &agent.tools).filter_map(Use::inline);
    let own_hooks = registry.agents().iter().flat_map(|agent| &agent.hooks).filter_map(Use::inline);
    let of_hook = |hook: &Arc<Hook>| {
        let mut found = lint::names(hook);
        found.retain(|one| !told.contains(&at(one)));
        found.extend(lint::payload_keys(hook));
        found.extend(lint::handler(hook));
        found.extend(strict.then(|| lint::untested(hook)).flatten());
        found
    };
    let mut all = registry
        .tools()
        .iter()
        .chain(own_tools)
        .map(|tool| lint::tool(tool))
        .chain(registry.tools().iter().map(|tool| lint::described(tool).into_iter().collect()))
        .chain(registry.agents().iter().map(|agent| lint::agent(agent).into_iter().collect()))
        .chain(registry.hooks().iter().chain(own_hooks).map(of_hook));
    let mut found: Vec<Diagnostic> = Vec::new();
    while found.len() < MOST_LIKELY {
        let Some(more) = all.next() else { return found };
        found.extend(more);
    }
    if all.next().is_some() {
        let error = Diagnostic::error(format!("more than {MOST_LIKELY} findings: not all artifacts were checked"));
        // Of so many, the last are not shown.
        found.insert(0, error.hint("fix these, and validate again"));
    }
    found
}

/// A warning where commands run without a wall.
fn unconfined(registry: &Registry) -> Option<Diagnostic> {
    let project = &registry.policy()?.project;
    let exec = project.exec.as_ref().filter(|exec| exec.unconfined && !exec.allow.is_empty())?;
    let commands = exec.allow.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let (key, file) = (project.origin.key("exec.unconfined"), &project.origin.file);
    let warning = Diagnostic::warning(format!("`{key}` in `{file}`: no kernel wall surrounds {commands}"));
    Some(warning.hint("`harness doctor` shows the wall of this machine; `exec.folders` opens it for what is installed"))
}

/// Resources that no client can read, because nothing grants it.
fn unread(registry: &Registry) -> Vec<Diagnostic> {
    let Some(policy) = registry.policy() else { return Vec::new() };
    let grant = policy.grant_for("", None);
    let refused = policy.mcp.resources.iter().filter_map(|one| {
        let Resource::File { path, uri, .. } = &one.value else { return None };
        let refusal = grant.decide_path(path, Access::Read).err()?;
        let warning = Diagnostic::warning(format!("no client can read `{uri}`: {}", refusal.reason));
        Some(warning.at(one.position.clone()).hint(refusal.hint))
    });
    refused.collect()
}

/// Tools that ask for more time than they get.
fn cut_short(registry: &Registry) -> Vec<Diagnostic> {
    let Some(policy) = registry.policy() else { return Vec::new() };
    let own = registry.agents().iter().flat_map(|agent| &agent.tools).filter_map(Use::inline);
    let cut = registry.tools().iter().chain(own).filter_map(|tool| {
        let asked = tool.timeout_ms.as_ref()?;
        let grant = policy.grant_for(&tool.source_name, tool.capabilities.as_ref());
        let deadline = grant.deadline(Some(asked.value), tool.author());
        if !deadline.cuts(Some(asked.value)) {
            return None;
        }
        let line = match (deadline.by, tool.author()) {
            (Decides::Layer(origin), _) => {
                format!("`{}` in `{}` wins", origin.key("limits.timeout_ms"), origin.of("limits.timeout_ms"))
            }
            (_, Author::Plugin) => "this is the limit for `plugins/`".to_owned(),
            (_, Author::Project) => "this is the default limit".to_owned(),
        };
        let what = format!("tool {:?} asks for {} ms and gets {} ms: {line}", tool.name, asked.value, deadline.ms);
        let hint = format!("ask for {} ms or less; {}", deadline.ms, grant.raises(LimitKey::Timeout));
        Some(Diagnostic::warning(what).at(asked.position.clone()).hint(hint))
    });
    cut.collect()
}

fn refused(one: &Refused) -> Json {
    let Refused { kind, name, source, at, by, reason } = one;
    json!({"kind": kind, "name": name, "source": source, "at": at, "by": by, "reason": reason})
}

fn replaced(one: &Replaced) -> Json {
    json!({"kind": one.kind, "name": one.name, "by": one.by.to_string(), "what": one.what.to_string()})
}

/// The replies of scripted models.
fn replies(registry: &Registry, root: &Path) -> Vec<RepliesFile> {
    let agents: Vec<&str> = registry.agents().iter().map(|agent| &*agent.name).collect();
    registry.policy().map(|policy| agent::replies_files(root, &policy.models, &agents)).unwrap_or_default()
}

/// Secrets without a value on this machine: no fault of the artifacts, but who uses one is refused.
fn secrets(registry: &Registry, root: &Path) -> Vec<Diagnostic> {
    let Some(policy) = registry.policy() else { return Vec::new() };
    let vault = Vault::open(policy.secrets.iter().map(|secret| &secret.value), [], root, &Variables::Host);
    let missing = vault.missing().filter_map(|(name, why)| {
        let secret = policy.secrets.iter().find(|secret| secret.name == name)?;
        let warning = Diagnostic::warning(format!("the secret `{name}` has no value: {why}"));
        Some(warning.at(secret.position.clone()).hint("requests that use it are denied until it has one"))
    });
    missing.collect()
}

/// The keys of models that are not in the environment: no fault of the artifacts, but no model will answer.
fn api_keys(registry: &Registry) -> Vec<Diagnostic> {
    let models = registry.policy().into_iter().flat_map(|policy| policy.models.all());
    let mut asked: Vec<&str> = Vec::new();
    let mut missing = Vec::new();
    for model in models {
        let Some(name) = model.key_variable().filter(|name| !asked.contains(name)) else { continue };
        asked.push(name);
        if harness_sys::variable(name).is_some_and(|value| !value.is_empty()) {
            continue;
        }
        let position = model.api_key_env.as_ref().map_or(&model.position, |named| &named.position);
        let warning = Diagnostic::warning(format!("API key env {name:?} is not set")).at(position.clone());
        missing.push(warning.hint("set it in the environment of the agent, never in a file"));
    }
    missing
}

fn as_json(diagnostic: &Diagnostic) -> Json {
    let position = diagnostic.position.as_ref();
    let mut told = json!({
        "severity": if diagnostic.severity == Severity::Error { "error" } else { "warning" },
        "message": diagnostic.message,
        "file": position.map(|position| &*position.file),
        "line": position.map(|position| position.line),
        "column": position.map(|position| position.column),
        "hint": diagnostic.hint,
    });
    if let (Some(told), Some(note)) = (told.as_object_mut(), &diagnostic.note) {
        told.insert("note".to_owned(), note.as_str().into());
    }
    told
}
