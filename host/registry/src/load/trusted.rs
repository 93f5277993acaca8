//! Plugins are from where `trusted_sources` lets them come from: in the host policy, and in the project's.

use super::Load;
use crate::BundleFile;
use crate::lock::Lock;
use harness_artifact::diagnostic::Diagnostic;
use harness_artifact::policy::sources::{bundle_of, covers, name_of};
use harness_artifact::policy::trusted::{Bound, TrustedSource, decide};
use harness_policy::trust::Provenance;

impl Load {
    /// Refuses plugins that a list refuses, and notes the most that the others may do.
    pub(super) fn trusted(&mut self, lock: Option<&Lock>) {
        let Some(policy) = &self.registry.policy else { return };
        let machine = policy.machine.as_ref().map(|machine| machine.trusted.as_slice()).unwrap_or_default();
        let lists = [(machine, true), (policy.trusted.as_slice(), false)];
        let (mut bounds, mut refused) = (Vec::new(), Vec::new());
        let plugins = self.registry.bundles.iter().filter(|bundle| bundle_of(&bundle.name) == Some(&bundle.name));
        for bundle in plugins {
            let locked = lock.and_then(|lock| lock.plugin(bundle.name.strip_prefix("plugins/")?));
            let signers = locked.map(|plugin| plugin.signers()).unwrap_or_default();
            let of = self.repositories.iter().find(|(name, _)| covers(&name_of(Some(name), ""), &bundle.name));
            let source = locked.map(|plugin| plugin.source.to_string()).or_else(|| Some(of?.1.clone()));
            let plugin = match &source {
                Some(source) => Provenance::Pinned(source, &signers),
                None => Provenance::Unpinned(&bundle.path),
            };
            for (list, of_machine) in lists {
                match decide(list, plugin) {
                    Ok(entry) => bounds.extend(entry.and_then(|entry| {
                        Some(Bound { source: bundle.name.clone(), layer: entry.max.clone()?, of_machine })
                    })),
                    Err((why, entry)) => refused.push(refusal(bundle, &why, entry, list)),
                }
            }
        }
        if let Some(policy) = &mut self.registry.policy {
            policy.bounds = bounds;
        }
        self.guard_lost |= !refused.is_empty();
        refused.into_iter().for_each(|one| self.registry.diagnostics.push(one));
    }
}

fn refusal(bundle: &BundleFile, why: &str, entry: Option<&TrustedSource>, list: &[TrustedSource]) -> Diagnostic {
    let refused = Diagnostic::error(format!("`trusted_sources` refuses `{}`: it {why}", bundle.name));
    let place = entry.or(list.first()).map(|entry| entry.position.clone());
    let hint = match entry {
        Some(_) => "the first entry whose `source` matches decides",
        None => "add an entry such as `{ source: ./plugins/* }`, or remove the plugin",
    };
    match place {
        Some(place) => refused.at(place).hint(hint),
        None => refused.hint(hint),
    }
}
