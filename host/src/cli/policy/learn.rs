//! `harness policy learn`: what a call needs, as a policy.

use std::sync::Arc;

use clap::Parser;
use harness::ambient;
use harness::artifact::escape;
use harness::artifact::policy::learn::{Draft, Kept};
use harness::confine::Plan;
use harness::dispatch::{CallReport, Options, Project, Run};
use harness::policy::layer::Layer;
use harness::policy::limits::{LimitKey, Limits};
use harness::policy::watch::{Request, Watch};
use harness::sandbox::outcome::Outcome;

use super::super::args::{Arguments, Call, Command, Learn, Place};
use super::super::confirm::AtTerminal;
use super::super::exit::Exit;
use super::super::printer::Printer;
use super::super::{call, project};

pub(super) fn run(command: &Learn, place: &Place, printer: Printer) -> Result<Exit, Exit> {
    let command_line = std::iter::once("harness").chain(command.call.iter().map(String::as_str));
    let asked = match Arguments::try_parse_from(command_line) {
        Ok(Arguments { command: Command::Call(call), .. }) => call,
        Ok(_) => {
            printer.error("only a call can be looked at", &[], Some("harness policy learn -- call TOOL ..."));
            return Err(Exit::Usage);
        }
        Err(error) => {
            let _ = error.print();
            return Err(Exit::Usage);
        }
    };
    let granting = command.granting.as_deref().map(|rules| call::narrowing(rules, printer)).transpose()?;
    let watch = Arc::new(Watch::default());
    let instead = granting.clone();
    let options = Options {
        workspace: asked.workspace.clone(),
        concurrency: 1,
        watch: Some(watch.clone()),
        granting: granting.map(|layer| (asked.tool.clone(), layer)),
        ..Options::default()
    };
    let project = project::open(place, options, printer)?;
    let call = Repeatable::new(&asked, &project, printer)?;
    let loaded = project.loaded();
    let plan = Plan::of(loaded.registry(), &project::root(place), asked.workspace.as_deref(), instead.as_ref());
    project::confine(&plan, &asked.confine, printer)?;
    let (exit, report) = made(&asked, &project, &call, printer)?;
    let asked = watch.asked();
    for one in refused(&report) {
        printer.say(&format!("refused: {}", escape::line(&one)));
    }
    let ran = asked.requests.iter().any(|(_, request)| matches!(request, Request::Command(..)));
    let kept = kept(&report, ran);
    if ran && !command.again && (!kept.variables.is_empty() || kept.network || kept.unconfined) {
        printer.say("what its commands got of `exec.env`, `exec.network` and `exec.unconfined` is kept: `--again` finds out whether they need it, by further calls");
    }
    for (_, request) in &asked.requests {
        if let Request::Secret(name) = request {
            printer.say(&format!(
                "the secret `{}` was used: keep its definition in `sandbox.secrets`",
                escape::line(name)
            ));
        }
    }
    let mut draft = Draft::of(&asked, &kept);
    if command.again {
        draft = thinned(draft, &call, &report, printer)?;
    }
    printer.data(&draft.text());
    Ok(exit)
}

/// A call that can be made more than once.
struct Repeatable<'a> {
    project: &'a Project,
    call: call::Asked,
    within: Option<Layer>,
    confirmer: Arc<AtTerminal>,
    printer: Printer,
}

impl<'a> Repeatable<'a> {
    fn new(asked: &Call, project: &'a Project, printer: Printer) -> Result<Self, Exit> {
        let call = call::Asked::read(asked, project).map_err(|message| {
            printer.error(&message, &[], None);
            Exit::Usage
        })?;
        let within = asked.within.as_deref().map(|rules| call::narrowing(rules, printer)).transpose()?;
        let confirmer = AtTerminal::new(&asked.confirm, printer);
        Ok(Self { project, call, within, confirmer, printer })
    }

    /// Makes it, within a policy.
    fn make(&self, policy: Option<Layer>) -> Result<CallReport, Exit> {
        let run = Run::narrowed(self.within.iter().cloned().chain(policy).collect());
        run.set_confirmer(self.confirmer.clone());
        project::block_on(self.call.make(self.project, &run), self.printer)?
            .map_err(|error| project::refuse(&error, self.project.loaded().registry(), self.printer))
    }
}

/// What is left of a policy when each rule that looking does not judge was tried without.
fn thinned(draft: Draft, call: &Repeatable<'_>, first: &CallReport, printer: Printer) -> Result<Draft, Exit> {
    let wanted = result(first);
    if result(&call.make(draft.layer())?) != wanted {
        printer.say("the same call did not give the same result again, so that nothing can be left out");
        return Ok(draft);
    }
    let mut draft = draft;
    for doubt in draft.doubts() {
        let less = draft.without(&doubt);
        if result(&call.make(less.layer())?) == wanted {
            draft = less;
        }
    }
    Ok(draft)
}

/// What makes two calls the same.
fn result(report: &CallReport) -> (String, Option<&str>, bool, Vec<String>) {
    let content = match &report.outcome {
        Outcome::Completed(output) => Some(output.content.as_str()),
        _ => None,
    };
    (report.outcome.name().to_owned(), content, report.is_error, refused(report))
}

/// Makes the call, and says how it ended.
fn made(asked: &Call, project: &Project, call: &Repeatable<'_>, printer: Printer) -> Result<(Exit, CallReport), Exit> {
    let report = call.make(None)?;
    super::super::call::report::call(&report, printer);
    let usage = report.total();
    let used = format!(
        "fuel {}, {} host calls, {} bytes, {} files",
        usage.fuel,
        usage.host_calls,
        usage.io_bytes(),
        usage.files
    );
    if let Outcome::Completed(_) = report.outcome {
        printer.say(&format!("the call completed; with its hooks it used {used}"));
        return Ok((if report.is_error { Exit::Failed } else { Exit::Completed }, report));
    }
    let exit = super::super::call::tell(&report, project, asked, printer);
    printer.say(&format!("the call ended early, so that this may not be all it needs; it used {used}"));
    Ok((exit, report))
}

/// What the call and its hooks were refused.
fn refused(report: &CallReport) -> Vec<String> {
    let hooks = report.dispatches().flat_map(|dispatch| &dispatch.hooks).flat_map(|hook| &hook.calls);
    report.calls.iter().chain(hooks).filter_map(|call| call.refused.clone()).collect()
}

/// What is above its default or cannot be seen.
fn kept(report: &CallReport, ran: bool) -> Kept {
    let (limits, defaults, usage) = (report.grant.limits(), Limits::default(), &report.usage);
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let needs = |key: LimitKey| match key {
        LimitKey::Fuel => usage.fuel,
        LimitKey::Memory => mebibytes(usage.peak_memory),
        LimitKey::HostMemory => mebibytes(usage.peak_host_memory),
        LimitKey::HostCalls => usage.host_calls,
        LimitKey::Io => usage.io_bytes(),
        LimitKey::Files => usage.files,
        // Not counted: what was granted.
        LimitKey::Timeout
        | LimitKey::Regex
        | LimitKey::Output
        | LimitKey::Result
        | LimitKey::FileBytes
        | LimitKey::Body
        | LimitKey::LogLines
        | LimitKey::Processes
        | LimitKey::CommandMemory => limits.get(key),
    };
    let above = LimitKey::ALL.iter().map(|key| (*key, needs(*key))).filter(|(key, value)| *value > defaults.get(*key));
    let mut variables = if ran { report.grant.exec_env() } else { Vec::new() };
    variables.retain(|name| ambient::variable(name).is_some());
    Kept {
        variables,
        folders: if ran { report.grant.exec_folders().iter().map(ToString::to_string).collect() } else { Vec::new() },
        network: ran && report.grant.exec_network(),
        unconfined: ran && report.grant.exec_unconfined(),
        limits: above.collect(),
    }
}
