//! `harness policy learn`: what a call needs, as a policy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use harness_artifact::escape;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::policy::learn::{Draft, Kept};
use harness_capability::env::Variables;
use harness_dispatch::confinement;
use harness_dispatch::{CallReport, Loaded, Nested, Options, Project, Run};
use harness_policy::command::CommandReach;
use harness_policy::layer::Layer;
use harness_policy::limits::{LimitKey, Limits};
use harness_policy::path::{Access, PathPattern};
use harness_policy::watch::{Asked, Request, Watch};
use harness_sandbox::outcome::Outcome;
use harness_sandbox::price::Import;
use harness_sys as sys;
use harness_wall::ClosedNames;
use harness_wall::confine::Plan;

use super::super::args::{Arguments, Call, Command, Learn, ProjectArgs};
use super::super::confirm::AtTerminal;
use super::super::exit::Exit;
use super::super::printer::Printer;
use super::super::{call, project};
use super::learn_server;

pub(super) fn run(command: &Learn, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    if command.call.first().is_some_and(|word| word == "mcp") {
        return learn_server::run(command, place, printer);
    }
    let asked = read(command.call.iter().map(String::as_str), printer)?;
    let granting = command.granting.as_deref().map(|rules| call::narrowing(rules, printer)).transpose()?;
    let watch = Arc::new(Watch::default());
    let instead = granting.clone();
    let options = Options {
        workspace: asked.workspace.clone(),
        watch: Some(watch.clone()),
        granting: granting.map(|layer| (asked.tool.clone(), layer)),
        ..Options::default()
    };
    let project = project::open_for(place, options, printer, |all| project::files_of(all, &asked.tool))?;
    let call = Repeatable::new(&asked, &project, printer)?;
    let loaded = project.loaded();
    let root = project::root(place);
    let needs =
        confinement::needs(loaded.registry(), &root, asked.workspace.as_deref(), instead.as_ref(), &Variables::Host);
    let plan = Plan::of(&needs);
    project::confine(&plan, &asked.confine, printer)?;
    let workspace = asked.workspace.clone().unwrap_or_else(|| project::root(place));
    // Else each command creates and removes them, and the workspace would seem to be written.
    let root = project::root(place);
    let below = [&workspace, &root].into_iter().take(if root.starts_with(&workspace) { 2 } else { 1 });
    let held: Vec<_> = below.filter(|_| plan.gives_views()).map(|folder| ClosedNames::hold(folder).ok()).collect();
    let began = sys::next_moment_of_files();
    let (exit, report) = make_and_report(&asked, &project, &call, printer)?;
    let mut asked = watch.asked();
    asked.requests.extend(written(&asked, &workspace, began));
    drop(held);
    for one in refused(&report) {
        printer.say(&format!("denied: {}", escape::line(&one)));
    }
    let ran = asked.requests.iter().any(|(_, request)| matches!(request, Request::Command(..)));
    let watched = asked.clone();
    let secrets = loaded.policy().secrets.iter().map(|secret| secret.value.clone()).collect();
    let draft = Draft::of(asked, Kept { secrets, ..kept(&report, ran) });
    let draft = match (command.once, command.again) {
        (true, _) => keep_untried(draft, "the call was made once", printer),
        (_, true) => thin_by_calls(draft, &call, &report, printer)?,
        _ => thinned_without_harm(draft, &call, &report, printer)?,
    };
    for request in draft.without_rule() {
        let what = request.to_string();
        printer.say(&format!("no rule is offered for {}: it is over the bounds of a rule", escape::line(&what)));
    }
    for (key, pattern, count) in siblings(&watched) {
        let pattern = escape::line(&pattern).into_owned();
        printer.say(&format!(
            "{count} items of `{key}` fit `{pattern}`: write that instead, if files like them are to be allowed too"
        ));
    }
    printer.data(&draft.text_within(&in_force(&loaded)));
    Ok(exit)
}

/// Reads the words of a call.
pub(super) fn read<'w>(words: impl Iterator<Item = &'w str>, printer: Printer) -> Result<Call, Exit> {
    match Arguments::try_parse_from(std::iter::once("harness").chain(words)) {
        Ok(Arguments { command: Command::Call(call), .. }) => Ok(call),
        Ok(_) => {
            printer.error("only a call can be observed", &[], Some("harness policy learn -- call TOOL ..."));
            Err(Exit::Usage)
        }
        Err(error) => {
            let _ = error.print();
            Err(Exit::Usage)
        }
    }
}

/// The policy that the call was made under, as it is written: what the host closes by itself needs no line.
fn in_force(loaded: &Loaded) -> ProjectPolicy {
    let mut policy = loaded.policy().clone();
    if let (Some(written), Some(fs)) = (loaded.registry().policy(), &mut policy.project.fs) {
        fs.protect = written.project.fs.as_ref().map(|fs| fs.protect.clone()).unwrap_or_default();
        fs.repository.clear();
    }
    policy
}

/// What commands may write and someone has written since then: that they need.
fn written(asked: &Asked, workspace: &Path, since: Duration) -> Vec<(String, Request)> {
    let written = asked.requests.iter().filter_map(|(source, request)| match request {
        Request::Shown(path, Access::Write) => {
            let changed = sys::changed_since(&workspace.join(path.to_string()), since);
            changed.then(|| (source.clone(), Request::Path(path.clone(), Access::Write)))
        }
        _ => None,
    });
    written.collect()
}

/// Siblings of which that many were asked for are offered as one pattern.
const SIBLINGS: usize = 3;

/// Patterns for files of one folder with one ending, with the key of the rules and how many files fit.
fn siblings(asked: &Asked) -> Vec<(&'static str, String, usize)> {
    let mut groups: BTreeMap<(&'static str, String), BTreeSet<String>> = BTreeMap::new();
    for (_, request) in &asked.requests {
        let Request::Path(path, access) = request else { continue };
        let (Some(folder), Some(name)) = (path.parent(), path.parts().last()) else { continue };
        let Some((_, ending)) = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()) else { continue };
        let folder = if folder.parts().is_empty() { String::new() } else { format!("{folder}/") };
        let pattern = format!("{folder}*.{ending}");
        if PathPattern::parse(&pattern).is_ok_and(|pattern| pattern.matches(path)) {
            groups.entry((access.key(), pattern)).or_default().insert(path.to_string());
        }
    }
    let many = groups.into_iter().filter(|(_, paths)| paths.len() >= SIBLINGS);
    many.map(|((key, pattern), paths)| (key, pattern, paths.len())).collect()
}

/// A call that can be made more than once.
pub(super) struct Repeatable<'a> {
    project: &'a Project,
    call: call::Asked,
    within: Option<Layer>,
    confirmer: Arc<AtTerminal>,
    printer: Printer,
}

impl<'a> Repeatable<'a> {
    pub(super) fn new(asked: &Call, project: &'a Project, printer: Printer) -> Result<Self, Exit> {
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

/// Lines up to which each is tried without.
const MOST_TRIED: usize = 64;

/// What is left of a policy when each line that looking does not judge was tried without, by calls that can change nothing
/// that lasts. Where there can be none, the lines that were not tried are listed.
fn thinned_without_harm(
    draft: Draft,
    call: &Repeatable<'_>,
    first: &CallReport,
    printer: Printer,
) -> Result<Draft, Exit> {
    if draft.doubts().is_empty() {
        return Ok(draft);
    }
    let Some(harmless) = draft.harmless() else {
        return Ok(keep_untried(draft, "the call writes or uses a network", printer));
    };
    if is_confirmed(first) {
        return Ok(keep_untried(draft, "the call needs confirmation each time", printer));
    }
    if result(&call.make(harmless.layer())?) != result(first) {
        let why = "the call had another result when its commands could neither write nor use the network";
        return Ok(keep_untried(draft, why, printer));
    }
    without_each(harmless, call, first, printer)
}

/// The same by calls that do whatever the call does.
fn thin_by_calls(draft: Draft, call: &Repeatable<'_>, first: &CallReport, printer: Printer) -> Result<Draft, Exit> {
    if result(&call.make(draft.layer())?) != result(first) {
        return Ok(keep_untried(draft, "the same call did not give the same result again", printer));
    }
    without_each(draft, call, first, printer)
}

fn without_each(draft: Draft, call: &Repeatable<'_>, first: &CallReport, printer: Printer) -> Result<Draft, Exit> {
    if draft.doubts().len() > MOST_TRIED {
        return Ok(keep_untried(draft, &format!("they are over {MOST_TRIED}"), printer));
    }
    let (mut draft, mut tried) = (draft, Vec::new());
    // What is left out may have covered another, which has a line of its own then.
    while let Some(doubt) = draft.doubts().into_iter().find(|doubt| !tried.contains(doubt) && draft.has_line_for(doubt))
    {
        let less = draft.without(&doubt);
        if result(&call.make(less.layer())?) == result(first) {
            draft = less;
        }
        tried.push(doubt);
    }
    let calls = tried.len().saturating_add(1);
    printer.say(&format!("{calls} further calls showed which of the other lines are needed"));
    Ok(draft)
}

/// Reports which lines are kept as they were.
fn keep_untried(draft: Draft, why: &str, printer: Printer) -> Draft {
    let doubts = draft.doubts();
    let told = doubts.iter().take(MOST_TRIED).filter(|doubt| draft.has_line_for(doubt));
    let lines: Vec<String> = told.map(|doubt| format!("  {}", escape::line(&doubt.to_string()))).collect();
    if !lines.is_empty() {
        printer.say(&format!("it is not known whether the call needs these, because {why}:"));
        lines.iter().for_each(|line| printer.say(line));
        if doubts.len() > MOST_TRIED {
            printer.say("  and more");
        }
    }
    draft
}

/// Whether a person was asked on the way.
fn is_confirmed(report: &CallReport) -> bool {
    let nested = |nested: &Nested| matches!(nested, Nested::Call(report) if is_confirmed(report));
    report.confirmed.is_some() || report.nested.iter().any(nested)
}

/// What makes two calls the same: how they ended, what they gave, what they were refused, and how much their commands said.
fn result(report: &CallReport) -> (&'static str, Option<&str>, bool, Vec<String>, Vec<u64>) {
    let content = match &report.outcome {
        Outcome::Completed(output) => Some(output.content.as_str()),
        _ => None,
    };
    let commands = report.calls.iter().filter(|call| call.import == Import::ExecRun);
    let said = commands.map(|call| call.bytes.1).collect();
    (report.outcome.name(), content, report.is_error, refused(report), said)
}

/// Makes the call, and says how it ended.
pub(super) fn make_and_report(
    asked: &Call,
    project: &Project,
    call: &Repeatable<'_>,
    printer: Printer,
) -> Result<(Exit, CallReport), Exit> {
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
    let exit = super::super::call::print_outcome(&report, project, asked, printer);
    printer.say(&format!("the call ended early and may need more; it used {used}"));
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
    // Where half of the default was enough, or less than it, observing shows that nothing else is needed.
    let unless = |enough: bool, key: LimitKey| if enough { 0 } else { limits.get(key) };
    let needs = |key: LimitKey| match key {
        LimitKey::Fuel => usage.fuel,
        LimitKey::Memory => mebibytes(usage.peak_memory),
        LimitKey::HostMemory => mebibytes(usage.peak_host_memory),
        LimitKey::HostCalls => usage.host_calls,
        LimitKey::Io => usage.io_bytes(),
        LimitKey::Files => usage.files,
        LimitKey::Timeout => unless(usage.wall <= defaults.timeout / 2, key),
        LimitKey::Output => unless(report.content.len() as u64 <= defaults.get(key), key),
        LimitKey::LogLines => unless(report.log.lines.len() as u64 <= defaults.get(key), key),
        // Not counted: what was granted.
        LimitKey::Regex
        | LimitKey::Result
        | LimitKey::FileBytes
        | LimitKey::Body
        | LimitKey::Processes
        | LimitKey::CommandMemory => limits.get(key),
    };
    let above = LimitKey::ALL.iter().map(|key| (*key, needs(*key))).filter(|(key, value)| *value > defaults.get(*key));
    let mut variables = if ran { report.grant.exec_env() } else { Vec::new() };
    variables.retain(|name| sys::variable(name).is_some());
    Kept {
        variables,
        folders: if ran { report.grant.exec_folders().iter().map(ToString::to_string).collect() } else { Vec::new() },
        network: ran && report.grant.exec_network() == CommandReach::All,
        unconfined: ran && report.grant.exec_unconfined(),
        limits: above.collect(),
        secrets: Vec::new(),
    }
}
