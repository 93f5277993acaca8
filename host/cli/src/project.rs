//! Finds and opens the project that a command is about.

use std::path::{Path, PathBuf};

use harness_artifact::diagnostic::{Diagnostic, Severity};
use harness_artifact::event::Event;
use harness_artifact::lint;
use harness_artifact::tool::Parameter;
use harness_capability::env::Variables;
use harness_capability::system::System;
use harness_dispatch::confinement;
use harness_dispatch::{self as dispatch, CallError, OpenError, Options, Project};
use harness_policy::limits::LimitKey;
use harness_registry::{Host, Machine, Registry};
use harness_sandbox::outcome::Failure;
use harness_wall::confine;

use super::args::{Confine, ProjectArgs};
use super::exit::Exit;
use super::printer::Printer;

/// The folder that holds `.harness`, or a policy beside it: the one that was named, else the current one or the nearest
/// above it.
pub(crate) fn root(place: &ProjectArgs) -> PathBuf {
    if let Some(named) = &place.project {
        return named.clone();
    }
    let current = harness_sys::current_folder();
    let found = current.ancestors().find(|folder| Registry::is_in(folder));
    found.unwrap_or(&current).to_owned()
}

/// That the folder is there, where one was named; else says that it is not.
pub(crate) fn named(place: &ProjectArgs, printer: Printer) -> Result<(), Exit> {
    let Some(named) = place.project.as_deref().filter(|named| !named.is_dir()) else { return Ok(()) };
    let what = if named.exists() { "is not a folder" } else { "does not exist" };
    printer.error(&format!("`{}` {what}", named.display()), &[], Some("`-C` names the folder that holds `.harness`"));
    Err(Exit::Usage)
}

/// The folder of a project that is there, broken or not; else says that there is none.
pub(crate) fn there(place: &ProjectArgs, printer: Printer) -> Result<PathBuf, Exit> {
    let root = root(place);
    if Registry::is_in(&root) {
        return Ok(root);
    }
    report(&registry(place), printer);
    Err(Exit::Usage)
}

/// Where the host policy is.
pub(crate) fn machine(place: &ProjectArgs) -> Machine {
    place.policy.clone().map_or(Machine::Installed, Machine::File)
}

/// The host policy, and the plugins of this machine.
pub(crate) fn host(machine: &Machine) -> Host<'_> {
    Host::new(machine, dispatch::plugins(&Variables::Host))
}

/// Reads the project.
pub(crate) fn registry(place: &ProjectArgs) -> Registry {
    let root = root(place);
    let registry = Registry::load_within(&root, host(&machine(place)));
    // Where its hooks cannot run, opening the project says why.
    dispatch::admitted(&root, registry.clone()).unwrap_or(registry)
}

/// Opens the project, or says why not.
pub(crate) fn open(place: &ProjectArgs, options: Options, printer: Printer) -> Result<Project, Exit> {
    let project = opened(place, options, printer)?;
    report(project.loaded().registry(), printer);
    Ok(project)
}

/// The same for one call or event, in which these files have a part. Warnings about others belong to `validate`, and to
/// what opens the project for longer.
pub(crate) fn open_for(
    place: &ProjectArgs,
    options: Options,
    printer: Printer,
    files: impl Fn(&Registry) -> Vec<&str>,
) -> Result<Project, Exit> {
    let project = opened(place, options, printer)?;
    let loaded = project.loaded();
    let registry = loaded.registry();
    let files = files(registry);
    let machine = registry.machine().map(|file| file.display().to_string());
    let has_part =
        |file: &str| file == registry.policy_file() || machine.as_deref() == Some(file) || files.contains(&file);
    for one in registry.diagnostics() {
        if !one.is_about_all && one.position.as_ref().is_some_and(|at| has_part(&at.file)) {
            printer.problem(one, &registry.render(one, printer.color()));
        }
    }
    Ok(project)
}

/// The files that have a part in each call of a tool: its own, and those of the hooks around it.
pub(crate) fn files_of<'r>(registry: &'r Registry, tool: &str) -> Vec<&'r str> {
    let tool = registry.tool(tool).ok().or_else(|| registry.tool_of_agent(tool));
    let hooks = [Event::ToolPre, Event::ToolPost];
    let hooks = hooks.iter().flat_map(|event| registry.chain(event)).map(|hook| &*hook.source.file);
    tool.map(|tool| &*tool.source.file).into_iter().chain(hooks).collect()
}

fn opened(place: &ProjectArgs, options: Options, printer: Printer) -> Result<Project, Exit> {
    // A command has the environment of the user who runs it.
    let options = Options { machine: machine(place), system: System::default().with_environment(), ..options };
    Project::open(&root(place), options).map_err(|error| unopened(&error, printer))
}

/// Says why a project cannot be opened.
pub(crate) fn unopened(error: &OpenError, printer: Printer) -> Exit {
    match error {
        OpenError::Artifacts(registry) => {
            report(registry, printer);
            Exit::Usage
        }
        OpenError::Workspace { .. } | OpenError::Outside { .. } => {
            printer.error(&error.to_string(), &[], Some("name a folder with `--workspace`"));
            Exit::Usage
        }
        OpenError::Sandbox(_) => {
            printer.error(&error.to_string(), &[], Some("`harness doctor` shows what this machine supports"));
            Exit::Fault
        }
    }
}

/// What a process keeps that calls tools of a project.
pub(crate) fn plan(project: &Project, place: &ProjectArgs, workspace: Option<&Path>) -> confine::Plan {
    confine::Plan::of(&confinement::needs(project.loaded().registry(), &root(place), workspace, None, &Variables::Host))
}

/// Gives up what this process needs no more, as it was asked to. To be called when everything is read that the arguments
/// name.
///
/// # Errors
///
/// Where it must, and the machine does not let it; that was reported.
pub(crate) fn confine(plan: &confine::Plan, asked: &Confine, printer: Printer) -> Result<(), Exit> {
    if asked.no_self_confine {
        return Ok(());
    }
    let whole = if asked.self_confine { plan.whole() } else { Ok(()) };
    match whole.and_then(|()| plan.apply()) {
        Err(why) if asked.self_confine => {
            let hint = "without `--self-confine`, the process drops the privileges that the machine lets it drop";
            printer.error(&format!("this process cannot drop its privileges: {why}"), &[], Some(hint));
            Err(Exit::Fault)
        }
        Err(why) => {
            printer.say(&format!("note: this process keeps privileges that it does not need: {why}"));
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// What calls are made on.
pub(crate) fn runtime(printer: Printer) -> Result<tokio::runtime::Runtime, Exit> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        printer.error(&format!("cannot start: {error}"), &[], None);
        Exit::Fault
    })
}

/// Bytes of stack of a thread that makes calls, as the main one has: agents may be sixteen deep there too.
const STACK: usize = 8 << 20;

/// The same with so many threads beside the main one.
pub(crate) fn runtime_of(threads: usize, printer: Printer) -> Result<tokio::runtime::Runtime, Exit> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // Guests may compute on all cores.
    runtime.on_thread_start(harness_sys::slices::ask_for_short_slices);
    runtime.worker_threads(threads).thread_stack_size(STACK).enable_all().build().map_err(|error| {
        printer.error(&format!("cannot start: {error}"), &[], None);
        Exit::Fault
    })
}

/// Runs calls to their end, on one thread. What a disk or a name server still keeps then runs in the background.
pub(crate) fn block_on<T>(work: impl Future<Output = T>, printer: Printer) -> Result<T, Exit> {
    let runtime = runtime(printer)?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    Ok(done)
}

/// Reports all that is wrong with the artifacts, warnings too.
pub(crate) fn report(registry: &Registry, printer: Printer) {
    for diagnostic in registry.diagnostics() {
        printer.problem(diagnostic, &registry.render(diagnostic, printer.color()));
    }
    for severity in [Severity::Error, Severity::Warning] {
        let hidden = registry.diagnostics().hidden(severity);
        if hidden > 0 {
            printer.say(&format!("... and {hidden} more of the same kind"));
        }
    }
}

/// A script's error as a diagnostic of its artifact, so that both look the same.
pub(crate) fn diagnostic(failure: &Failure, what: &str) -> Diagnostic {
    let diagnostic = Diagnostic::error(format!("{what}: {}", failure.message));
    let diagnostic = match lint::script_hint(&failure.message) {
        Some(hint) => diagnostic.hint(hint),
        None => diagnostic,
    };
    if failure.file.is_empty() {
        return diagnostic;
    }
    // What has no place in the script is about the file as a whole.
    diagnostic.at(harness_artifact::diagnostic::Position {
        file: failure.file.as_str().into(),
        line: failure.line.max(1),
        column: failure.column.max(1),
        length: 1,
    })
}

/// The exit of a command that ended so, unless the audit log misses something of what it did: says what, then.
pub(crate) fn audited(project: &Project, exit: Exit, printer: Printer) -> Exit {
    match project.audited() {
        Ok(()) => exit,
        Err(why) => {
            printer.error(&why, &[], None);
            Exit::Fault
        }
    }
}

/// Says why a call was not made.
pub(crate) fn refuse(error: &CallError, registry: &Registry, printer: Printer) -> Exit {
    match error {
        CallError::Unknown(unknown) => {
            let hint = unknown.hint().unwrap_or_else(|| "`harness tools` lists the tools".to_owned());
            printer.error(&unknown.to_string(), &[], Some(&hint));
            Exit::Usage
        }
        CallError::NotAllowed(refusal) => {
            printer.error(&refusal.reason, &[], Some(&refusal.hint));
            Exit::Denied
        }
        CallError::NoScript(_) => {
            printer.error(&error.to_string(), &[], Some("give its file a `script:` that defines `run(args)`"));
            Exit::Usage
        }
        CallError::Arguments { tool, errors, pre, .. } => {
            pre.iter().for_each(|dispatch| super::call::report::dispatch(dispatch, printer));
            let causes: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let parameters = registry.tool(tool).map(|tool| tool.parameters.list.as_slice()).unwrap_or_default();
            printer.error(&error.to_string(), &causes, Some(&usage(tool, parameters)));
            Exit::Usage
        }
        CallError::Script(failure) => {
            let diagnostic = diagnostic(failure, "the script cannot be loaded");
            printer.problem(&diagnostic, &registry.render(&diagnostic, printer.color()));
            Exit::Usage
        }
        CallError::Late(tool, limit) => {
            let raises = registry.policy().map(|policy| {
                let tool = registry.tool(tool).ok();
                let own = tool.and_then(|tool| tool.timeout_ms.as_ref()).filter(|own| own.value == limit.allowed);
                let grant = tool.map(|tool| policy.grant_of(tool));
                match (own, grant) {
                    (Some(own), _) => format!("`timeout_ms` in `{}` raises it", own.position),
                    (None, Some(grant)) => grant.raises(LimitKey::Timeout),
                    (None, None) => "move work into functions".to_owned(),
                }
            });
            printer.error(&error.to_string(), &[], raises.as_deref());
            Exit::Limited
        }
        CallError::Host(_) | CallError::Cut(_) | CallError::Failing(..) | CallError::Interrupted(_) => {
            printer.error(&error.to_string(), &[], None);
            Exit::Fault
        }
    }
}

/// How to call a tool, in one line.
pub(crate) fn usage(name: &str, parameters: &[Parameter]) -> String {
    let words = parameters.iter().map(|parameter| {
        let pair = format!("{}={}", parameter.name, parameter.kind.word().to_uppercase());
        if *parameter.required { pair } else { format!("[{pair}]") }
    });
    std::iter::once(format!("harness call {name}")).chain(words).collect::<Vec<_>>().join(" ")
}
