//! A plugin as its source has it: its files, its digest, and its `plugin.md`.

use std::path::Path;

use harness_artifact::plugin::{FILE, Plugin};
use harness_plugin::Rejected;
use harness_plugin::archive::{self, MAX_PACKED};
use harness_plugin::content::Content;
use harness_plugin::signature::Signatures;
use harness_plugin::source::Source;
use harness_sys as sys;

use crate::exit::Exit;
use crate::printer::Printer;

/// A plugin that was read and is one.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) plugin: Plugin,
    pub(super) content: Content,
    /// The digest of the content.
    pub(super) digest: String,
    /// Its signatures, not verified yet.
    pub(super) signatures: Signatures,
}

impl Fetched {
    /// Reads what is at a source. What is wrong with it was reported.
    pub(super) fn from(source: &Source, root: &Path, printer: Printer) -> Result<Self, Exit> {
        let place = source.place(root);
        let content = if sys::is_folder(&place) {
            Content::read(&place)
        } else {
            let most = u64::try_from(MAX_PACKED).unwrap_or(u64::MAX);
            sys::read_bytes(&place, most).map_err(Rejected::from).and_then(|packed| archive::unpack(&packed))
        };
        let content = content.map_err(|why| {
            printer.error(&format!("cannot fetch `{source}`: {why}"), &[], None);
            Exit::Usage
        })?;
        let signatures = Signatures::beside(&place).map_err(|why| {
            printer.error(&format!("`{source}` is refused: {why}"), &[], None);
            Exit::Denied
        })?;
        Ok(Self { signatures, ..Self::of(content, &source.to_string(), printer)? })
    }

    /// The plugin that a content is.
    pub(super) fn of(content: Content, shown: &str, printer: Printer) -> Result<Self, Exit> {
        let Some(text) = content.text(FILE) else {
            let hint = "`harness plugin new NAME` writes one";
            printer.error(&format!("`{shown}` is no plugin: it has no `{FILE}`"), &[], Some(hint));
            return Err(Exit::Usage);
        };
        let (plugin, diagnostics) = Plugin::parse(FILE, None, text);
        for diagnostic in &diagnostics {
            printer.problem(diagnostic, &diagnostic.render(Some(text), printer.color()));
        }
        let plugin = plugin.ok_or(Exit::Usage)?;
        let digest = content.digest();
        Ok(Self { plugin, content, digest, signatures: Signatures::default() })
    }

    pub(super) fn name(&self) -> &str {
        &self.plugin.name.value
    }

    /// Its name in policies.
    pub(super) fn source_name(&self) -> String {
        format!("plugins/{}", self.name())
    }
}
