//! `harness plugin publish`: a packed plugin and its signatures, put into a registry.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use harness_fetch::registry::Publication;
use harness_plugin::archive;
use harness_plugin::source::Source;

use super::catalogue::Chosen;
use super::fetched::{Fetched, fetching};
use super::state::State;
use crate::args::ProjectArgs;
use crate::exit::Exit;
use crate::printer::Printer;

#[derive(Debug, Args)]
#[command(after_help = "The login at the registry is the secret that `credentials` names in the entry of \
                        `trusted_sources` for it.\n\nExamples:\n  harness plugin publish oci://ghcr.io/acme/units:1.2.0\n  \
                        harness plugin publish oci://ghcr.io/acme/units:1.2.0 units-1.2.0.tar")]
pub(crate) struct Publish {
    /// Where it goes: `oci://HOST/NAME:TAG`.
    pub(crate) target: String,

    /// Folder of the plugin, or the packed plugin. Signatures beside it are published too.
    #[arg(default_value = ".")]
    pub(crate) plugin: PathBuf,
}

pub(super) fn publish(command: &Publish, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let state = State::open(place, printer)?;
    let target = Chosen::of(&command.target, &state, printer)?.source;
    let Source::Registry(registry) = &target else {
        let hint = "it is `oci://HOST/NAME:TAG`";
        printer.error(&format!("`{target}` is no place in a registry"), &[], Some(hint));
        return Err(Exit::Usage);
    };
    let fetched = Fetched::at(&command.plugin, &command.plugin.display().to_string(), printer)?;
    let failed = |why: &str, hint: Option<&str>| {
        printer.error(&format!("cannot publish to `{target}`: {why}"), &[], hint);
        Exit::Failed
    };
    let packed = archive::pack(&fetched.content).map_err(|why| failed(&why.to_string(), None))?;
    let (name, version) = (fetched.name().to_owned(), fetched.plugin.version.to_string());
    let annotations = [("title", name.clone()), ("version", version.clone())];
    let annotations = annotations.map(|(key, value)| (format!("org.opencontainers.image.{key}"), value));
    let signatures = fetched.signatures.named();
    let done = fetching(&target, &state, format!("publishing {target}"), printer, async |place| {
        let annotations = BTreeMap::from(annotations);
        let publication = Publication { packed: &packed, signatures: &signatures, annotations };
        harness_fetch::registry::publish(registry, publication, place).await
    })?;
    let published = done.map_err(|failure| failed(&failure.why, failure.hint.as_deref()))?;
    printer.data(&format!("published `{name}` {version} at {target}: {}", published.digest));
    Ok(Exit::Completed)
}
