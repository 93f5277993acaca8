//! A plugin as its source has it: its files, its digest, and its `plugin.md`.

use std::path::Path;

use harness_artifact::plugin::{FILE, Plugin};
use harness_capability::env::Variables;
use harness_capability::http::Client;
use harness_fetch::{Failure, FetchContext, Found};
use harness_plugin::Rejected;
use harness_plugin::archive::{self, MAX_PACKED};
use harness_plugin::content::Content;
use harness_plugin::signature::Signatures;
use harness_plugin::source::Source;
use harness_sys as sys;

use super::state::State;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::project;

/// A plugin that was read and is one.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) plugin: Plugin,
    pub(super) content: Content,
    /// The digest of the content.
    pub(super) digest: String,
    /// What its source was then, where it may be something else later.
    pub(super) resolved: Option<String>,
    /// Its signatures, not verified yet.
    pub(super) signatures: Signatures,
}

impl Fetched {
    /// Fetches what is at a source, or what it was, where exactly that is wanted. What is wrong with it was reported.
    pub(super) fn from(source: &Source, resolved: Option<&str>, state: &State, printer: Printer) -> Result<Self, Exit> {
        let found = elsewhere(source, resolved, state, printer)?;
        let place = match (source, &found) {
            (_, Some(found)) => found.folder.clone(),
            (Source::Path(path), None) => state.root.join(path),
            (_, None) => return Err(Exit::Fault),
        };
        let fetched = Self::at(&place, &source.to_string(), printer)?;
        Ok(Self { resolved: found.map(|found| found.resolved), ..fetched })
    }

    /// Reads a folder, or a packed plugin. What is wrong with it was reported.
    pub(super) fn at(place: &Path, shown: &str, printer: Printer) -> Result<Self, Exit> {
        let content = if sys::is_folder(place) {
            Content::read(place)
        } else {
            let most = u64::try_from(MAX_PACKED).unwrap_or(u64::MAX);
            sys::read_bytes(place, most).map_err(Rejected::from).and_then(|packed| archive::unpack(&packed))
        };
        let content = content.map_err(|why| {
            printer.error(&format!("cannot fetch `{shown}`: {why}"), &[], None);
            Exit::Usage
        })?;
        let signatures = Signatures::beside(place).map_err(|why| {
            printer.error(&format!("`{shown}` is refused: {why}"), &[], None);
            Exit::Denied
        })?;
        Ok(Self { signatures, ..Self::of(content, shown, printer)? })
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
        Ok(Self { plugin, content, digest, resolved: None, signatures: Signatures::default() })
    }

    pub(super) fn name(&self) -> &str {
        &self.plugin.name.value
    }

    /// Its name in policies.
    pub(super) fn source_name(&self) -> String {
        format!("plugins/{}", self.name())
    }
}

/// The files of a source that is not on this machine, whatever they are, and what the source was then.
pub(super) fn files(
    source: &Source,
    resolved: Option<&str>,
    state: &State,
    printer: Printer,
) -> Result<(Content, String), Exit> {
    let found = elsewhere(source, resolved, state, printer)?.ok_or(Exit::Fault)?;
    let content = Content::read(&found.folder).map_err(|why| {
        printer.error(&format!("cannot fetch `{source}`: {why}"), &[], None);
        Exit::Usage
    })?;
    Ok((content, found.resolved.clone()))
}

/// What a source gives that is not on this machine; none where it is a path.
fn elsewhere(source: &Source, resolved: Option<&str>, state: &State, printer: Printer) -> Result<Option<Found>, Exit> {
    if matches!(source, Source::Path(_)) {
        return Ok(None);
    }
    let fetch = async |place: FetchContext<'_>| harness_fetch::fetch(source, resolved, place).await;
    fetching(source, state, format!("fetching {source}"), printer, fetch)?.map_err(|failure| {
        printer.error(&format!("cannot fetch `{source}`: {failure}"), &[], failure.hint.as_deref());
        Exit::Usage
    })
}

/// Does something with a source that is not on this machine, within what the policies say of it. That they refuse it was
/// reported.
pub(super) fn fetching<T>(
    source: &Source,
    state: &State,
    what: String,
    printer: Printer,
    work: impl AsyncFnOnce(FetchContext<'_>) -> Result<T, Failure>,
) -> Result<Result<T, Failure>, Exit> {
    let reach = state.reach(&source.to_string())?;
    let cache = state.cache()?;
    let program = sys::real_path("/proc/self/exe".as_ref()).map_err(|error| {
        printer.error(&format!("the file of this program cannot be found: {error}"), &[], None);
        Exit::Fault
    })?;
    let place = FetchContext {
        machine: &reach.machine,
        cache: cache.folder(),
        program: &program,
        variables: &Variables::Host,
        http: &Client::default(),
        credentials: reach.credentials.as_ref(),
        is_private: reach.is_private,
    };
    let progress = Progress::start(what);
    let done = project::block_on(work(place), printer)?;
    drop(progress);
    Ok(done)
}
