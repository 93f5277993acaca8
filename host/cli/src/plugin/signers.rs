//! Who signed a plugin, and what is known of the key. A signature that is there has to verify.

use std::collections::BTreeSet;

use clap::Args;
use harness_artifact::escape;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::policy::trusted::TrustedSource;
use harness_plugin::archive::pack;
use harness_plugin::signature::Signed;
use harness_policy::signer::Signer;
use harness_registry::lock::LockedPlugin;
use harness_sys::digest::digest;
use serde_json::{Value as Json, json};

use super::fetched::Fetched;
use super::state::State;
use crate::exit::Exit;
use crate::printer::Printer;

/// The key that a person expects.
#[derive(Debug, Default, Args)]
pub(crate) struct Expected {
    /// Public key of the signer, without whose signature the plugin is refused: `RWQ...` of minisign, `ssh-ed25519
    /// AAAA...`, or a public key in PEM of sigstore.
    // A key in PEM begins with hyphens.
    #[arg(long, value_name = "KEY", value_parser = Signer::parse, allow_hyphen_values = true)]
    pub(crate) signer: Option<Signer>,
}

/// The verified signatures of a plugin, each with what is known of its key.
#[derive(Debug, Default)]
pub(super) struct Signers(Vec<(Signed, Known)>);

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    /// The entry of `trusted_sources` that the plugin is under names it. The place of that.
    Trusted(String),
    /// The version before was signed with it.
    Kept,
    /// The person named it.
    Expected,
    /// An entry about other sources names it.
    Elsewhere,
    /// Nobody named it.
    Unknown,
}

/// The entries of both lists, the host policy's first.
fn lists(policy: Option<&ProjectPolicy>) -> [&[TrustedSource]; 2] {
    let machine = policy.and_then(|policy| policy.machine.as_ref());
    [
        machine.map(|machine| machine.trusted.as_slice()).unwrap_or_default(),
        policy.map(|policy| policy.trusted.as_slice()).unwrap_or_default(),
    ]
}

impl Expected {
    /// Verifies the signatures of a plugin that was fetched from `from`, and reports what is wrong with one. `before` is the
    /// version that is in use.
    pub(super) fn verified(
        &self,
        fetched: &Fetched,
        (from, before): (&str, Option<&LockedPlugin>),
        state: &State,
        printer: Printer,
    ) -> Result<Signers, Exit> {
        let registry = state.unlocked();
        let policy = registry.policy();
        let mut keys: Vec<Signer> = self.signer.iter().cloned().collect();
        keys.extend(lists(policy).into_iter().flatten().flat_map(|entry| entry.rule.signers.iter().cloned()));
        keys.extend(before.iter().flat_map(|before| before.signers()));
        let verified = pack(&fetched.content).and_then(|packed| fetched.signatures.verify(&packed, &keys));
        let signed = verified.map_err(|why| {
            printer.error(&format!("`{from}` is refused: {why}"), &[], None);
            Exit::Denied
        })?;
        self.check(from, &signed, printer)?;
        let known = |signed: Signed| {
            let known = self.known(&signed.signer, (from, before), policy);
            (signed, known)
        };
        Ok(Signers(signed.into_iter().map(known).collect()))
    }

    /// Refuses what the expected key did not sign.
    pub(super) fn check(&self, from: &str, signed: &[Signed], printer: Printer) -> Result<(), Exit> {
        let Some(expected) = self.signer.as_ref().filter(|key| !signed.iter().any(|one| one.signer == **key)) else {
            return Ok(());
        };
        let by: Vec<String> = signed.iter().map(|one| format!("`{}`", one.signer)).collect();
        let by = if by.is_empty() { "nobody".to_owned() } else { by.join(" and ") };
        let why = format!("`{from}` is refused: it is signed by {by}, and not by `{expected}`");
        printer.error(&why, &[], None);
        Err(Exit::Denied)
    }

    fn known(
        &self,
        key: &Signer,
        (from, before): (&str, Option<&LockedPlugin>),
        policy: Option<&ProjectPolicy>,
    ) -> Known {
        let names = |entry: &&TrustedSource| entry.rule.signers.contains(key);
        let under = lists(policy).map(|list| list.iter().find(|entry| entry.rule.source.matches(from)));
        if let Some(entry) = under.into_iter().flatten().find(names) {
            return Known::Trusted(format!("{}:{}", entry.position.file, entry.position.line));
        }
        if before.is_some_and(|before| before.signers().contains(key)) {
            return Known::Kept;
        }
        if self.signer.as_ref() == Some(key) {
            return Known::Expected;
        }
        match lists(policy).into_iter().flatten().any(|entry| names(&entry)) {
            true => Known::Elsewhere,
            false => Known::Unknown,
        }
    }
}

/// The signers that the lock has of a plugin, for programs. Each load verifies their signatures.
pub(super) fn listed(plugin: &LockedPlugin, policy: Option<&ProjectPolicy>) -> Json {
    let from = plugin.source.to_string();
    let one = |key: &Signer| {
        let known = Expected::default().known(key, (&from, Some(plugin)), policy);
        json!({"signer": key.as_str(), "known": known.word()})
    };
    plugin.signers().iter().map(one).collect()
}

/// The signatures of a plugin of the lock.
pub(super) fn of_lock(
    expected: &Expected,
    plugin: &LockedPlugin,
    fetched: &Fetched,
    state: &State,
    printer: Printer,
) -> Result<Signers, Exit> {
    let signed = plugin.verify(&fetched.content).map_err(|why| {
        printer.error(&format!("the plugin `{}` differs from `harness.lock`: {why}", plugin.name), &[], None);
        Exit::Usage
    })?;
    let registry = state.unlocked();
    let from = plugin.source.to_string();
    expected.check(&from, &signed, printer)?;
    let known = |signed: Signed| {
        let known = expected.known(&signed.signer, (&from, Some(plugin)), registry.policy());
        (signed, known)
    };
    Ok(Signers(signed.into_iter().map(known).collect()))
}

impl Signers {
    pub(super) fn signed(&self) -> impl Iterator<Item = &Signed> {
        self.0.iter().map(|(signed, _)| signed)
    }

    /// A line for each, without its beginning.
    pub(super) fn lines(&self) -> Vec<String> {
        if self.0.is_empty() {
            return vec!["not signed".to_owned()];
        }
        let mut lines = Vec::new();
        for (signed, known) in &self.0 {
            lines.push(format!("signed by {}: {}", signed.signer, known.words()));
            let comment = signed.comment.as_ref().map(|comment| comment.replace('\t', " "));
            lines.extend(comment.map(|comment| format!("  comment of the signer: {}", escape::line(&comment))));
        }
        lines
    }

    /// Whether others signed than the version before, and the lines that say so.
    pub(super) fn changes(&self, before: &LockedPlugin) -> Vec<String> {
        let old = before.signers();
        let is_new = |(signed, _): &&(Signed, Known)| !old.contains(&signed.signer);
        let added = self.0.iter().filter(is_new);
        let mut lines: Vec<String> =
            added.map(|(signed, known)| format!("signed by: + {}: {}", signed.signer, known.words())).collect();
        let gone = old.iter().filter(|key| !self.signed().any(|signed| signed.signer == **key));
        lines.extend(gone.map(|key| format!("signed by: - {key}")));
        lines
    }

    /// The digest of what a person reviews: the content, and the keys of those who signed it. Of a plugin that is not signed,
    /// it is the digest of the content.
    pub(super) fn review(&self, content: &str) -> String {
        if self.0.is_empty() {
            return content.to_owned();
        }
        let signers: BTreeSet<&str> = self.signed().map(|signed| signed.signer.as_str()).collect();
        digest(&json!([content, signers]).to_string())
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Json {
        let one = |(signed, known): &(Signed, Known)| json!({"signer": signed.signer.as_str(), "known": known.word(), "comment": signed.comment});
        self.0.iter().map(one).collect()
    }
}

impl Known {
    fn words(&self) -> String {
        match self {
            Self::Trusted(place) => format!("a signer of `trusted_sources` ({})", escape::line(place)),
            Self::Kept => "the signer of the version in use".to_owned(),
            Self::Expected => "the key of `--signer`".to_owned(),
            Self::Elsewhere => "an unknown key for this source: `trusted_sources` names it for others alone".to_owned(),
            Self::Unknown => "an unknown key: anybody can make one".to_owned(),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Trusted(_) => "trusted_sources",
            Self::Kept => "lock",
            Self::Expected => "argument",
            Self::Elsewhere | Self::Unknown => "unknown",
        }
    }
}
