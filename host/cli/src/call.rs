//! `harness call TOOL`: one call, from the command line.

use std::sync::Arc;

use harness_artifact::located::Located;
use harness_artifact::policy::layer;
use harness_artifact::tool::Tool;
use harness_artifact::{escape, json};
use harness_dispatch::{self as dispatch, CallError, CallReport, Options, Project, Run, Verdict, as_json};
use harness_policy::layer::Layer;
use harness_policy::text::quoted;
use harness_registry::Registry;
use harness_sandbox::outcome::{Failure, Outcome};
use serde_json::{Value as Json, json};

use super::args::{Call, ProjectArgs};
use super::confirm::AtTerminal;
use super::exit::Exit;
use super::forms::Forms;
use super::printer::Printer;
use super::progress::Progress;
use super::steps::Steps;
use super::{input, project};

pub(crate) mod explain;
pub(crate) mod report;

/// Undeclared arguments that are reported.
const MAX_TOLD: usize = 10;

/// Makes the call. An error is that it was not made, which was reported.
pub(crate) fn run(command: &Call, place: &ProjectArgs, printer: &Printer) -> Result<Exit, Exit> {
    let options = Options { workspace: command.workspace.clone(), ..Options::default() };
    let project = project::open_for(place, options, *printer, |all| project::files_of(all, &command.tool))?;
    let asked = Asked::read(command, &project).map_err(|message| {
        printer.error(&message, &[], Some("give the arguments as a JSON object, or as `key=value`"));
        Exit::Usage
    })?;
    asked.tell_undeclared(&project, *printer);
    let within = command.within.as_deref().map(|rules| narrowing(rules, *printer)).transpose()?;
    let run = Run::narrowed(within.into_iter().collect());
    let terminal = AtTerminal::new(&command.confirm, *printer);
    run.set_confirmer(terminal.clone());
    run.set_respondent(Forms::new(terminal, *printer));
    run.set_progress(Arc::new(Steps(*printer)));
    harness_agent::attach(&project, &run, super::run::models(&project, place));
    let plan = project::plan(&project, place, command.workspace.as_deref());
    project::confine(&plan, &command.confine, *printer)?;
    let progress = Progress::start(format!("running {}", command.tool));
    let made = async {
        let made = asked.make(&project, &run).await;
        // What answered it may have something to finish.
        run.end_servers().await;
        made
    };
    let called = project::block_on(made, *printer);
    drop(progress);
    let report = match called? {
        Ok(report) => report,
        Err(error) => {
            if let (true, CallError::Arguments { pre: Some(pre), .. }) = (command.explain, &error) {
                explain::dispatch(pre, "", *printer);
            }
            return Err(project::refuse(&error, project.loaded().registry(), *printer));
        }
    };
    report::call(&report, *printer);
    if command.explain {
        explain::print(&project, &command.tool, &report, *printer);
    }
    if command.json {
        printer.json(&as_json::call(&report, timeout(project.loaded().registry(), command)));
    }
    Ok(print_outcome(&report, &project, command, *printer))
}

/// Rules as `--within` takes them.
pub(crate) fn narrowing(given: &str, printer: Printer) -> Result<Layer, Exit> {
    rules(given, printer).map(|(layer, _)| layer)
}

/// The same with their text.
pub(crate) fn rules(given: &str, printer: Printer) -> Result<(Layer, String), Exit> {
    let text = input::text(given).map_err(|message| {
        printer.error(&message, &[], Some("give rules as in `capabilities:`, such as `fs: { read: [docs] }`"));
        Exit::Usage
    })?;
    let (layer, diagnostics) = layer::parse("--within", &text);
    for diagnostic in &diagnostics {
        printer.problem(diagnostic, &diagnostic.render(Some(&text), printer.color()));
    }
    layer.map(|layer| (layer, text)).ok_or(Exit::Usage)
}

/// Prints the result, or why there is none.
pub(crate) fn print_outcome(report: &CallReport, project: &Project, command: &Call, printer: Printer) -> Exit {
    let loaded = project.loaded();
    let registry = loaded.registry();
    match &report.outcome {
        Outcome::Completed(output) => {
            if !command.json {
                printer.data(&output.content);
            }
            // A hook may say of what a tool gave that it is an error.
            if report.is_error { Exit::Failed } else { Exit::Completed }
        }
        Outcome::Failed(failure) => {
            let diagnostic = project::diagnostic(failure, &format!("tool `{}` failed", command.tool));
            printer.rendered(&diagnostic, &registry.render(&diagnostic, printer.color()));
            stack(failure, printer);
            Exit::Failed
        }
        Outcome::Denied { failure, refusal } => {
            let mut diagnostic = project::diagnostic(failure, &format!("tool `{}` was denied", command.tool));
            diagnostic.hint = (!refusal.hint.is_empty()).then(|| refusal.hint.clone()).or_else(|| blocked_by(report));
            printer.rendered(&diagnostic, &registry.render(&diagnostic, printer.color()));
            stack(failure, printer);
            Exit::Denied
        }
        Outcome::Limited(limit) => {
            printer.error(
                &format!("tool `{}` was ended: {limit}", command.tool),
                &[],
                Some(&as_json::raise(limit, &report.grant, timeout(registry, command))),
            );
            Exit::Limited
        }
        Outcome::Busy(busy) => {
            printer.error(&format!("tool `{}` was not called: {busy}", command.tool), &[], None);
            Exit::Busy
        }
        Outcome::Fault(message) => {
            printer.error(
                &format!("the host failed: {message}"),
                &[],
                Some("`harness doctor` shows what this machine supports"),
            );
            Exit::Fault
        }
    }
}

/// The time that the tool itself says it has.
fn timeout<'r>(registry: &'r Registry, command: &Call) -> Option<&'r Located<u64>> {
    registry.tool(&command.tool).ok()?.timeout_ms.as_ref()
}

/// Where the hook is that blocked.
fn blocked_by(report: &CallReport) -> Option<String> {
    let hooks = report.dispatches().flat_map(|dispatch| &dispatch.hooks);
    let hook =
        hooks.rev().find(|hook| hook.reason.is_some() && matches!(hook.verdict, Verdict::Block | Verdict::Error))?;
    Some(format!("the hook is `{}`; `--explain` shows each hook's decision", hook.file))
}

/// The calls that led to an error, where there is more than one.
pub(crate) fn stack(failure: &Failure, printer: Printer) {
    if failure.stack.len() < 2 {
        return;
    }
    printer.say("\ncalls, outermost first:");
    for frame in &failure.stack {
        printer.say(&format!(
            "  {}:{}:{} in {}",
            escape::line(&frame.file),
            frame.line,
            frame.column,
            escape::line(&frame.name)
        ));
    }
}

/// A call as it was asked for.
pub(crate) struct Asked {
    call: dispatch::Call,
    /// Why it is not made, where that is known before anyone is asked.
    refused: Option<CallError>,
}

impl Asked {
    /// Reads it from the arguments of the command line.
    ///
    /// # Errors
    ///
    /// Why there are no arguments of a call at all.
    pub(crate) fn read(command: &Call, project: &Project) -> Result<Self, String> {
        let (arguments, refused) = match command.args.as_deref() {
            Some(given) => (input::json(given, "the arguments are")?, None),
            None => match pairs(command, project) {
                Ok(arguments) => (json::finite(arguments)?, None),
                Err(why) => (json!(command.pairs), Some(why)),
            },
        };
        let call = dispatch::Call { id: None, name: command.tool.clone(), arguments };
        Ok(Self { call, refused })
    }

    /// Reports which arguments pass that the tool does not declare.
    fn tell_undeclared(&self, project: &Project, printer: Printer) {
        let (None, Ok(tool)) = (&self.refused, project.tool(&self.call.name)) else { return };
        tell_undeclared(&tool, &self.call.arguments, printer);
    }

    /// Makes it, or has it recorded that it is not made.
    pub(crate) async fn make(&self, project: &Project, run: &Arc<Run>) -> Result<CallReport, CallError> {
        match self.refused.clone() {
            Some(why) => project.refuse(self.call.clone(), why, run).await,
            None => project.make(self.call.clone(), run).await,
        }
    }
}

/// Reports which arguments pass that a tool does not declare.
pub(crate) fn tell_undeclared(tool: &Tool, arguments: &Json, printer: Printer) {
    for (name, meant) in tool.undeclared(arguments).into_iter().take(MAX_TOLD) {
        let (name, tool) = (quoted(name), quoted(&tool.name));
        let hint = meant.map(|meant| format!(", did you mean {}?", quoted(meant))).unwrap_or_default();
        printer.warning(&escape::line(&format!("{tool} does not declare the argument {name}{hint}")));
    }
}

/// Arguments given as `key=value`, as the tool's parameters have them.
fn pairs(command: &Call, project: &Project) -> Result<Json, CallError> {
    let tool = project.tool(&command.tool)?;
    tool.read_arguments(&command.pairs).map(Json::Object).map_err(|errors| CallError::Arguments {
        tool: tool.name.clone(),
        errors,
        changed_by: Vec::new(),
        pre: None,
    })
}
