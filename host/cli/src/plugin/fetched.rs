//! A plugin as its source has it: its files, its digest, and its `plugin.md`.

use std::path::Path;

use harness_artifact::foreign::{self, Files, Listing, Server, convert, is_foreign};
use harness_artifact::plugin::{FILE, Plugin};
use harness_capability::env::Variables;
use harness_capability::http::Client;
use harness_fetch::{Failure, FetchContext, Found};
use harness_plugin::Rejected;
use harness_plugin::archive::{self, MAX_PACKED};
use harness_plugin::content::Content;
use harness_plugin::signature::Signatures;
use harness_plugin::source::Source;
use harness_registry::lock::LockedPlugin;
use harness_sys as sys;

use super::catalogue::Chosen;
use super::state::{Reach, State};
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
    /// What it was made from; none where it is a plugin of this program.
    pub(super) made_from: Option<MadeFrom>,
}

/// The plugin of another program that a plugin was made from.
#[derive(Debug)]
pub(super) struct MadeFrom {
    /// What it was, in words that follow "from".
    pub(super) form: &'static str,
    /// What of it stays behind.
    pub(super) left_out: Vec<String>,
}

/// What a source has to be.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Wanted<'w> {
    /// The commit, or the digest of a manifest.
    pub(super) resolved: Option<&'w str>,
    /// The name of the plugin.
    pub(super) name: Option<&'w str>,
    /// The parts of the folder that a catalogue picks.
    pub(super) parts: Option<&'w Listing>,
}

impl<'w> Wanted<'w> {
    /// What a person chose: where a catalogue was asked for a name, the plugin has it.
    pub(super) fn chosen(chosen: &'w Chosen) -> Self {
        let Some(entry) = &chosen.looked_up else { return Self::default() };
        Self { resolved: None, name: Some(&entry.name), parts: entry.parts.as_ref() }
    }

    /// What the lock has.
    pub(super) fn locked(plugin: &'w LockedPlugin) -> Self {
        Self { resolved: plugin.resolved.as_deref(), name: Some(&plugin.name), parts: plugin.parts.as_ref() }
    }
}

impl Fetched {
    /// Fetches what is at a source, and is what is wanted. What is wrong with it was reported.
    pub(super) fn from(source: &Source, wanted: Wanted<'_>, state: &State, printer: Printer) -> Result<Self, Exit> {
        let found = elsewhere(source, wanted.resolved, state, printer)?;
        let place = match (source, &found) {
            (_, Some(found)) => found.folder.clone(),
            (Source::Path(path), None) => state.root.join(path),
            (_, None) => return Err(Exit::Fault),
        };
        let fetched = Self::read(&place, &source.to_string(), wanted, printer)?;
        if let Some(name) = wanted.name.filter(|name| *name != fetched.name()) {
            printer.error(&format!("`{source}` is the plugin `{}`, and not `{name}`", fetched.name()), &[], None);
            return Err(Exit::Usage);
        }
        Ok(Self { resolved: found.map(|found| found.resolved), ..fetched })
    }

    /// Reads a folder, or a packed plugin. What is wrong with it was reported.
    pub(super) fn at(place: &Path, shown: &str, printer: Printer) -> Result<Self, Exit> {
        Self::read(place, shown, Wanted::default(), printer)
    }

    fn read(place: &Path, shown: &str, wanted: Wanted<'_>, printer: Printer) -> Result<Self, Exit> {
        let content = if sys::is_folder(place) {
            if sys::is_gone(&place.join(FILE)) { Content::read_foreign(place) } else { Content::read(place) }
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
        let files: Files<'_> = content.files().collect();
        if files.contains_key(FILE) && wanted.parts.is_some() {
            let why = format!("the catalogue picks parts of `{shown}`, which has a `{FILE}` of its own");
            printer.error(&why, &[], None);
            return Err(Exit::Usage);
        }
        if !is_foreign(&files) && wanted.parts.is_none() {
            return Ok(Self { signatures, ..Self::of(content, shown, printer)? });
        }
        let made = convert(&files, wanted.name, wanted.parts).and_then(|made| {
            let content = Content::new(made.files).map_err(|why| why.to_string())?;
            Ok((content, MadeFrom { form: made.form, left_out: made.left_out }))
        });
        let (content, made_from) = made.map_err(|why| {
            printer.error(&format!("`{shown}` is no plugin: {why}"), &[], None);
            Exit::Usage
        })?;
        Ok(Self { signatures, made_from: Some(made_from), ..Self::of(content, shown, printer)? })
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
        Ok(Self { plugin, content, digest, resolved: None, signatures: Signatures::default(), made_from: None })
    }

    pub(super) fn name(&self) -> &str {
        &self.plugin.name.value
    }

    /// The servers that it brings. None is started: a policy names those that are.
    pub(super) fn servers(&self) -> Vec<Server> {
        foreign::servers(self.content.text(foreign::SERVERS).map(str::as_bytes))
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
    fetching_within(&state.reach(&source.to_string())?, state, what, printer, work)
}

/// The same within what was decided before.
pub(super) fn fetching_within<T>(
    reach: &Reach,
    state: &State,
    what: String,
    printer: Printer,
    work: impl AsyncFnOnce(FetchContext<'_>) -> Result<T, Failure>,
) -> Result<Result<T, Failure>, Exit> {
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
