//! `harness policy diff`: whether one policy allows anything that another one does not.

use std::path::Path;

use harness_agent::compare;
use harness_artifact::escape;
use harness_artifact::policy::ProjectPolicy;
use harness_registry::{Machine, Registry};
use serde_json::json;

use super::super::args::{Diff, ProjectArgs};
use super::super::exit::Exit;
use super::super::printer::Printer;
use super::super::project;

/// One of the two.
enum Side {
    /// Everything that is in a folder.
    Project(Box<Registry>),
    /// One `harness.md`.
    File(Box<ProjectPolicy>),
}

pub(super) fn run(command: &Diff, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let (old, new) = (side(&command.old, place, printer)?, side(&command.new, place, printer)?);
    let news = match (&old, &new) {
        (Side::Project(old), Side::Project(new)) => compare::projects(old, new).ok_or(Exit::Usage)?,
        (old, new) => compare::policies(policy(old)?, policy(new)?),
    };
    if command.json {
        printer.json(&json!({"wider": !news.is_empty(), "news": compare::as_json(&news)}));
    } else if news.is_empty() {
        printer.data("the new policy allows nothing more than the old one");
    } else {
        printer.data("the new policy allows more than the old one:");
        for ((key, told), of) in &news {
            let what = match told {
                Some((what, refused)) => format!("{what}\n      before: {refused}"),
                None => "possibly more; this cannot be determined".to_owned(),
            };
            let of = if of.is_empty() { String::new() } else { format!(" for {}", of.join(", ")) };
            printer.data(&format!("  {key}{}: {}", escape::line(&of), escape::text(&what)));
        }
    }
    Ok(if news.is_empty() { Exit::Completed } else { Exit::Failed })
}

/// Reads one of the two, or says what is wrong with it.
fn side(path: &Path, place: &ProjectArgs, printer: Printer) -> Result<Side, Exit> {
    let registry = |registry: Registry| {
        project::report(&registry, printer);
        // What is missing because it is broken would be reported as removed.
        let whole = registry.policy().is_some() && !registry.diagnostics().has_errors();
        whole.then(|| Side::Project(Box::new(registry))).ok_or(Exit::Usage)
    };
    let shown = path.display().to_string();
    if !path.exists() {
        let hint = "each is a project folder, a `harness.md`, or a host policy";
        printer.error(&format!("there is no `{shown}`"), &[], Some(hint));
        return Err(Exit::Usage);
    }
    if path.is_dir() {
        return registry(Registry::load_within(path, project::host(&Machine::None)));
    }
    if path.extension().is_none_or(|extension| extension != "md") {
        return registry(Registry::load_within(&project::root(place), project::host(&Machine::File(path.to_owned()))));
    }
    let text = super::super::input::text(&format!("@{shown}")).map_err(|message| {
        printer.error(&message, &[], None);
        Exit::Usage
    })?;
    let (policy, diagnostics) = ProjectPolicy::parse(&shown, &text);
    for diagnostic in &diagnostics {
        printer.problem(diagnostic, &diagnostic.render(Some(&text), printer.color()));
    }
    policy.map(|policy| Side::File(Box::new(policy))).ok_or(Exit::Usage)
}

fn policy(side: &Side) -> Result<&ProjectPolicy, Exit> {
    match side {
        Side::Project(registry) => registry.policy().ok_or(Exit::Usage),
        Side::File(policy) => Ok(policy),
    }
}
