//! Catalogues: a plugin is looked up by name in one that the policy names, and in no other.

use std::time::Duration;

use harness_artifact::alike::looks;
use harness_artifact::catalogue::{Catalogue, Entry};
use harness_artifact::foreign::Listing;
use harness_artifact::plugin::check_name;
use harness_artifact::policy::catalogues::NamedCatalogue;
use harness_artifact::suggest;
use harness_fetch::catalogue::Index;
use harness_plugin::archive::ENDING;
use harness_plugin::source::Source;
use harness_policy::text::quoted;
use harness_registry::lock::LockedPlugin;
use harness_sys as sys;

use super::fetched::fetching_within;
use super::indexes::{Indexes, words};
use super::state::State;
use crate::exit::Exit;
use crate::printer::Printer;

/// A source as a person named it, or as a catalogue does for them.
#[derive(Debug, Clone)]
pub(super) struct Chosen {
    pub(super) source: Source,
    /// The entry that names it.
    pub(super) looked_up: Option<LookedUp>,
}

/// An entry of a catalogue that names a source.
#[derive(Debug, Clone)]
pub(super) struct LookedUp {
    pub(super) name: String,
    pub(super) catalogue: String,
    /// The parts of the folder that the entry picks.
    pub(super) parts: Option<Listing>,
}

/// A catalogue that was fetched.
pub(super) struct Opened {
    /// Its name in the policy.
    pub(super) name: String,
    pub(super) index: Index,
    pub(super) catalogue: Catalogue,
}

impl Chosen {
    /// Reads an argument: a source, from the folder where it is named, or `NAME@CATALOGUE`.
    pub(super) fn of(text: &str, state: &State, printer: Printer) -> Result<Self, Exit> {
        if let Some((name, catalogue)) = parts(text) {
            return Self::looked_up(name, catalogue, state, printer);
        }
        let source = Source::parse(text).map_err(|why| {
            let folder = sys::current_folder().join(text);
            let hint = match sys::is_folder(&folder) || text.ends_with(ENDING) && sys::is_there(&folder) {
                true if !text.is_empty() => Some(format!("write it as a path: `./{text}`")),
                _ => check_name(text).is_ok().then(|| format!("a plugin of a catalogue is `{text}@CATALOGUE`")),
            };
            printer.error(&why.to_string(), &[], hint.as_deref());
            Exit::Usage
        })?;
        Ok(Self { source: source.from_project(&sys::current_folder(), &state.root), looked_up: None })
    }

    /// The source that a catalogue names for a plugin now.
    pub(super) fn looked_up(name: &str, catalogue: &str, state: &State, printer: Printer) -> Result<Self, Exit> {
        let all = state.catalogues()?;
        let Some(named) = all.iter().find(|one| one.name == catalogue) else {
            let hint = format!("name it in the policy: `catalogues: {{ {catalogue}: git+https://HOST/REPOSITORY }}`");
            printer.error(&format!("the policy has no catalogue `{catalogue}`"), &[], Some(&hint));
            return Err(Exit::Usage);
        };
        let opened = Opened::of(named, state, printer)?;
        let Some(entry) = opened.catalogue.entry(name) else {
            let names = opened.catalogue.entries.iter().map(|entry| entry.name.as_str());
            let hint = match suggest::closest(name, names) {
                Some(other) => format!("it has `{other}`"),
                None => "`harness plugin search` lists what it has".to_owned(),
            };
            printer.error(&format!("the catalogue `{catalogue}` has no plugin `{name}`"), &[], Some(&hint));
            return Err(Exit::Usage);
        };
        let source = opened.index.resolve(entry).map_err(|why| {
            printer.error(
                &format!("the catalogue `{catalogue}` is of no use for `{name}`: the plugin {why}"),
                &[],
                None,
            );
            Exit::Usage
        })?;
        let looked_up =
            LookedUp { name: name.to_owned(), catalogue: catalogue.to_owned(), parts: entry.listing.clone() };
        Ok(Self { source, looked_up: Some(looked_up) })
    }

    /// Where a plugin of the lock is from.
    pub(super) fn locked(plugin: &LockedPlugin) -> Self {
        let entry = |catalogue| LookedUp { name: plugin.name.clone(), catalogue, parts: plugin.parts.clone() };
        let looked_up = plugin.catalogue.clone().map(entry);
        Self { source: plugin.source.clone(), looked_up }
    }

    /// Whether a plugin is from elsewhere than before: from another source, or by another catalogue. A catalogue may name
    /// other versions of the same source.
    pub(super) fn is_elsewhere(&self, before: &LockedPlugin) -> bool {
        let is_same = match self.looked_up {
            Some(_) => self.source.is_version_of(&before.source),
            None => self.source == before.source,
        };
        !is_same || self.catalogue() != before.catalogue
    }

    /// The name of the catalogue.
    pub(super) fn catalogue(&self) -> Option<String> {
        self.looked_up.as_ref().map(|entry| entry.catalogue.clone())
    }

    /// The parts of the folder that the entry of the catalogue picks.
    pub(super) fn parts(&self) -> Option<&Listing> {
        self.looked_up.as_ref()?.parts.as_ref()
    }

    /// What messages call it.
    pub(super) fn shown(&self) -> String {
        match &self.looked_up {
            Some(LookedUp { catalogue, .. }) => format!("{}, by the catalogue `{catalogue}`", self.source),
            None => self.source.to_string(),
        }
    }
}

/// The name of a plugin and that of a catalogue.
fn parts(text: &str) -> Option<(&str, &str)> {
    let (name, catalogue) = text.split_once('@')?;
    [name, catalogue].iter().all(|part| check_name(part).is_ok()).then_some((name, catalogue))
}

impl Opened {
    /// Fetches a catalogue. What is wrong with it was reported.
    pub(super) fn of(named: &NamedCatalogue, state: &State, printer: Printer) -> Result<Self, Exit> {
        Self::within(named, Duration::ZERO, state, printer)
    }

    /// The same, or its index as it is kept on this machine, if that is not older than `most`. An older one is used where
    /// `most` is not zero and the catalogue cannot be fetched.
    pub(super) fn within(
        named: &NamedCatalogue,
        most: Duration,
        state: &State,
        printer: Printer,
    ) -> Result<Self, Exit> {
        let failed = |why: &str, hint: Option<&str>| {
            let what = format!("the catalogue `{}` at {} cannot be read: {why}", named.name, quoted(&named.source));
            printer.error(&what, &[], hint);
            Exit::Usage
        };
        let source = Source::parse(&named.source).map_err(|why| failed(&why.to_string(), None))?;
        let is_here = matches!(source, Source::Path(_));
        let indexes = if is_here { None } else { Indexes::beside(state.cache()?.folder()) };
        let kept = indexes.as_ref().filter(|_| !most.is_zero()).and_then(|indexes| indexes.find(&source));
        let (kept, old) = match kept {
            Some(kept) if kept.age <= most => (Some(kept), None),
            other => (None, other),
        };
        if let Some(kept) = kept {
            printer.say(&format!("the index of `{}` is {} old: `--refresh` fetches it", named.name, words(kept.age)));
            return Self::read(named, kept.index, printer);
        }
        let reach = state.reach_of_catalogue(&named.source)?;
        let what = format!("fetching the catalogue {}", named.name);
        let fetched = fetching_within(&reach, state, what, printer, async |place| {
            harness_fetch::catalogue::index(&source, &state.root, place).await
        })?;
        let index = match (fetched, old) {
            (Ok(index), _) => {
                // A search can do without it.
                if let Some(why) = indexes.and_then(|indexes| indexes.keep(&source, &index).err()) {
                    printer.warning(&format!("the index of `{}` is not kept on this machine: {why}", named.name));
                }
                index
            }
            (Err(failure), Some(old)) => {
                let (name, age) = (&named.name, words(old.age));
                printer
                    .warning(&format!("the catalogue `{name}` cannot be fetched: {failure}; its index is {age} old"));
                old.index
            }
            (Err(failure), None) => return Err(failed(&failure.why, failure.hint.as_deref())),
        };
        Self::read(named, index, printer)
    }

    /// Reads an index, which must not have expired.
    fn read(named: &NamedCatalogue, index: Index, printer: Printer) -> Result<Self, Exit> {
        let (catalogue, diagnostics) = index.parse(&format!("{}/{}", named.source, index.file));
        for diagnostic in &diagnostics {
            printer.problem(diagnostic, &diagnostic.render(Some(&index.text), printer.color()));
        }
        let catalogue = catalogue.ok_or(Exit::Usage)?;
        if let Some(end) = catalogue.expires.as_ref().filter(|end| end.seconds <= sys::since_epoch().as_secs()) {
            let what = format!("the index of the catalogue `{}` expired at {}", named.name, end.text);
            printer.error(&what, &[], Some("who publishes the catalogue has to publish a new one"));
            return Err(Exit::Denied);
        }
        Ok(Self { name: named.name.clone(), index, catalogue })
    }

    /// What an entry says, and where it leads.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Entry, Result<Source, String>)> {
        self.catalogue.entries.iter().map(|entry| (entry, self.index.resolve(entry)))
    }
}

/// The names that look like another one, each with those.
pub(super) fn alike<'n>(names: impl IntoIterator<Item = &'n str>) -> impl Fn(&str) -> Vec<String> {
    let mut all = std::collections::BTreeMap::<String, std::collections::BTreeSet<String>>::new();
    for name in names {
        all.entry(looks(name)).or_default().insert(name.to_owned());
    }
    move |name| all.get(&looks(name)).into_iter().flatten().filter(|other| *other != name).cloned().collect()
}
