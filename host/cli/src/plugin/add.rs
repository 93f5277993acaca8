//! `harness plugin add`.

use clap::Args;
use harness_artifact::plugin::{Rule, canonical};
use harness_registry::lock::LockedPlugin;
use harness_sys as sys;
use harness_sys::digest::digest;

use super::cases::Cases;
use super::catalogue::Chosen;
use super::consent::{self, Consent, Granting};
use super::fetched::{Fetched, Wanted};
use super::review::{Review, plural};
use super::signers::{Expected, Signers};
use super::state::{PolicyText, State, with_rules};
use crate::args::ProjectArgs;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 added, 2 it cannot be used, 3 nobody consented, or not to this content.\n\n\
                        Examples:\n  harness plugin add ./acme\n  harness plugin add ../acme-1.2.0.tar --vendor\n  \
                        harness plugin add git+https://example.org/tools@v1.2#acme\n  \
                        harness plugin add units@acme\n  \
                        harness plugin add ./acme --grant-digest sha256:0123...")]
pub(crate) struct Add {
    /// Source of the plugin: the path of a folder or of a packed file, which begins with `./`, `../` or `/`, or a folder of
    /// a git repository: `git+https://HOST/REPOSITORY@TAG#FOLDER`. Or a plugin of a catalogue of the policy:
    /// `NAME@CATALOGUE`.
    pub(crate) source: String,

    #[command(flatten)]
    pub(crate) expected: Expected,

    #[command(flatten)]
    pub(crate) granting: Granting,

    /// Keep the files of the plugin in `.harness/plugins/NAME`, to be committed with the project. Default: in the cache of
    /// the machine.
    #[arg(long)]
    pub(crate) vendor: bool,
}

/// The entry of a fetched plugin in the lock, as long as nothing is granted to it.
pub(super) fn entry(fetched: &Fetched, signers: &Signers, chosen: &Chosen, vendored: bool) -> LockedPlugin {
    LockedPlugin {
        name: fetched.name().to_owned(),
        version: fetched.plugin.version.clone(),
        source: chosen.source.clone(),
        resolved: fetched.resolved.clone(),
        catalogue: chosen.catalogue(),
        parts: chosen.parts().cloned(),
        servers: Vec::new(),
        digest: fetched.digest.clone(),
        asked: digest(&canonical(fetched.plugin.rules())),
        granted: digest(""),
        vendored,
        staged: None,
        signed: signers.signed().map(Into::into).collect(),
        position: LockedPlugin::unwritten(),
    }
}

/// The policy with rules that a plugin is granted beside those that it has, and with the servers of its own that these are
/// about; none where nothing changes.
pub(super) fn granting(
    policy: &PolicyText,
    fetched: &Fetched,
    rules: &[Rule],
    printer: Printer,
) -> Result<Option<PolicyText>, Exit> {
    if rules.is_empty() {
        return Ok(None);
    }
    let source = fetched.source_name();
    let served = policy.serving(&fetched.servers(), rules, printer)?;
    let granted = served.granting(&source, &with_rules(served.entry(&source), rules), printer)?.unwrap_or(served);
    Ok((granted.text != policy.text).then_some(granted))
}

pub(super) fn run(command: &Add, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let state = State::open(place, printer)?;
    let chosen = Chosen::of(&command.source, &state, printer)?;
    let from = chosen.source.to_string();
    let fetched = Fetched::from(&chosen.source, Wanted::chosen(&chosen), &state, printer)?;
    let (name, source) = (fetched.name(), fetched.source_name());
    if state.lock.plugin(name).is_some() {
        let hint = format!(
            "`harness plugin update {name}` brings it to another version, and `harness plugin grant {name}` grants more of \
             what it asks for"
        );
        printer.error(&format!("the plugin `{name}` is there already"), &[], Some(&hint));
        return Err(Exit::Usage);
    }
    for copy in [state.vendored(name), state.vendored(&format!("{name}.md"))] {
        if !sys::is_gone(&copy) {
            let hint = "remove it first: it is not pinned, and would be a second plugin of this name";
            printer.error(&format!("`{}` is there already", copy.display()), &[], Some(hint));
            return Err(Exit::Usage);
        }
    }
    let signers = command.expected.verified(&fetched, (&from, None), &state, printer)?;
    state.keep(&fetched.content)?;
    let locked = entry(&fetched, &signers, &chosen, command.vendor);
    let policy = state.policy()?;
    if let Some(entry) = state.entry_about(&source) {
        let hint = "remove the entry first: it was written for another plugin";
        printer.error(&format!("`{}` grants to `{entry}` already", policy.file), &[], Some(hint));
        return Err(Exit::Usage);
    }
    let asked: Vec<Rule> = fetched.plugin.rules().cloned().collect();
    let whole = granting(&policy, &fetched, &asked, printer)?;
    let registry = state.proposed(locked.clone(), whole.as_ref().map(|policy| policy.text.as_str()));
    if registry.policy().is_none() || registry.diagnostics().has_errors() {
        project::report(&registry, printer);
        printer.error("the project would not load with all that it asks for: nothing is changed", &[], None);
        return Err(Exit::Usage);
    }
    let alike = state.alike(name);
    let review = Review {
        fetched: &fetched,
        signers: &signers,
        alike,
        from: chosen.shown(),
        registry: &registry,
        granted: None,
        root: &state.root,
        cases: &Cases::of(&fetched, state.limits(), printer),
        policy: &policy,
    };
    printer.data(&review.text());
    let rules = match command.granting.decide(&signers.review(&fetched.digest), &asked, consent::USE, printer)? {
        Consent::Given(rules) => rules,
        Consent::Refused => {
            printer.say("nothing is added");
            return Ok(Exit::Denied);
        }
        Consent::Nobody => return Err(consent::nobody(&signers.review(&fetched.digest), printer)),
    };
    let policy = granting(&policy, &fetched, &rules, printer)?;
    state.write(locked, &fetched.content, policy.as_ref())?;
    let version = &fetched.plugin.version;
    printer.data(&format!("added `{name}` {version}: {} of {} granted", rules.len(), plural(asked.len(), "rule")));
    Ok(Exit::Completed)
}
