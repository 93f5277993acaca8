//! `harness plugin grant`: what a plugin of the lock asks for and is not granted yet, by consent, and the way back.

use clap::Args;
use harness_artifact::plugin::Rule;
use harness_registry::lock::LockedPlugin;

use super::cases::Cases;
use super::consent::{self, Consent, Granting};
use super::fetched::Fetched;
use super::review::{Review, plural};
use super::signers::{self, Expected};
use super::state::{PolicyText, State, with_rules};
use super::{add, installed};
use crate::args::ProjectArgs;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 granted, or there is nothing to grant; 2 it cannot be used; 3 nobody consented, or not \
                        to this content.\n\nExamples:\n  harness plugin grant acme\n  harness plugin grant acme --grant none"
)]
pub(crate) struct Grant {
    /// The plugin.
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) granting: Granting,
}

pub(super) fn run(command: &Grant, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let state = State::open(place, printer)?;
    let plugin = state.locked(&command.name)?;
    let fetched = installed::installed(&state, plugin, printer)?;
    let (policy, source) = (state.policy()?, fetched.source_name());
    let asked: Vec<Rule> = fetched.plugin.rules().cloned().collect();
    if command.granting.is_none() {
        let granted = granted(&policy, &source, &asked);
        let taken = policy.regranting(&source, (&[], &asked), printer)?.unwrap_or_else(|| policy.clone());
        let changed = taken.unserving(plugin, (&fetched.servers(), &granted), printer)?;
        let changed = (changed.text != policy.text).then_some(changed);
        state.write(plugin.clone(), &fetched.content, changed.as_ref())?;
        printer.data(&format!("`{}`: nothing of what it asks for is granted", plugin.name));
        return Ok(Exit::Completed);
    }
    let granted = granted(&policy, &source, &asked);
    let missing: Vec<Rule> = asked.iter().filter(|rule| !granted.contains(rule)).cloned().collect();
    if missing.is_empty() && state.is_granted_as_locked(plugin) {
        printer.data(&format!("`{}`: all that it asks for is granted", plugin.name));
        return Ok(Exit::Completed);
    }
    let review = show(&state, plugin, (&fetched, &asked, granted), printer)?;
    let rules = match command.granting.decide(&review, &missing, "Grant this?", printer)? {
        Consent::Given(rules) => rules,
        Consent::Refused => {
            printer.say("nothing is changed");
            return Ok(Exit::Denied);
        }
        Consent::Nobody => return Err(consent::nobody(&review, printer)),
    };
    let policy = add::granting(&policy, &fetched, &rules, printer)?;
    state.write(plugin.clone(), &fetched.content, policy.as_ref())?;
    printer.data(&match missing.len() {
        0 => format!("accepted what `{}` is granted", plugin.name),
        count => format!("granted `{}`: {} of {}", plugin.name, rules.len(), plural(count, "rule")),
    });
    Ok(Exit::Completed)
}

/// Those of the rules that the entry of a source grants as they are asked for.
pub(super) fn granted(policy: &PolicyText, source: &str, asked: &[Rule]) -> Vec<Rule> {
    let entry = policy.entry(source);
    let is_there = |rule: &&Rule| entry.as_ref() == Some(&with_rules(entry.clone(), std::slice::from_ref(*rule)));
    asked.iter().filter(is_there).cloned().collect()
}

/// Prints the plugin as it would be with all that it asks for. Returns the digest of that review.
fn show(
    state: &State,
    plugin: &LockedPlugin,
    (fetched, asked, granted): (&Fetched, &[Rule], Vec<Rule>),
    printer: Printer,
) -> Result<String, Exit> {
    let signers = signers::of_lock(&Expected::default(), plugin, fetched, state, printer)?;
    let policy = state.policy()?;
    let whole = add::granting(&policy, fetched, asked, printer)?;
    let registry = state.proposed(plugin.clone(), whole.as_ref().map(|policy| policy.text.as_str()));
    if registry.policy().is_none() || registry.diagnostics().has_errors() {
        project::report(&registry, printer);
        printer.error("the project would not load with all that it asks for: nothing is changed", &[], None);
        return Err(Exit::Usage);
    }
    let review = Review {
        fetched,
        signers: &signers,
        alike: Vec::new(),
        from: plugin.source.to_string(),
        registry: &registry,
        granted: Some(granted),
        root: &state.root,
        cases: &Cases::of(fetched, state.limits(), printer),
        policy: &policy,
    };
    printer.data(&review.text());
    Ok(signers.review(&fetched.digest))
}
