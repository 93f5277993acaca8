//! `harness plugin search`: the plugins that the catalogues of the policy name.

use std::time::Duration;

use clap::Args;
use harness_artifact::catalogue::Entry;
use harness_artifact::{escape, third_party};
use harness_fetch::catalogue::is_pinned;
use harness_plugin::source::Source;
use serde_json::{Value as Json, json};

use super::catalogue::{Opened, alike};
use super::state::State;
use crate::args::ProjectArgs;
use crate::exit::Exit;
use crate::printer::Printer;

/// Names of one catalogue that cannot be used and are reported.
const MAX_LEFT_OUT: usize = 5;

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 all catalogues were read, 1 one of them was not, 2 the policy has an error.\n\n\
                        Examples:\n  harness plugin search\n  harness plugin search units --json\n  \
                        harness plugin add units@acme")]
pub(crate) struct Search {
    /// Words that the name or the description has. Default: all plugins.
    pub(crate) words: Vec<String>,

    /// Fetch the indexes of all catalogues, whatever is kept on this machine.
    #[arg(long)]
    pub(crate) refresh: bool,

    /// Use an index that is kept on this machine if it is not older than this.
    #[arg(long, value_name = "MINUTES", default_value_t = 60, conflicts_with = "refresh")]
    pub(crate) max_age: u32,

    /// Print the plugins as one JSON array.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A plugin that was found.
struct Hit<'o> {
    catalogue: &'o str,
    entry: &'o Entry,
    source: Result<Source, String>,
    /// Names of other plugins that look like its own.
    alike: Vec<String>,
}

pub(super) fn run(command: &Search, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let state = State::open(place, printer)?;
    let named = state.catalogues()?;
    if named.is_empty() {
        printer.say(
            "no catalogues: name one in the policy under `catalogues`, such as `catalogues: { acme: ./catalogue }`",
        );
    }
    let minutes = if command.refresh { 0 } else { command.max_age };
    let most = Duration::from_secs(u64::from(minutes).saturating_mul(60));
    let opened: Vec<Opened> = named.iter().filter_map(|one| Opened::within(one, most, &state, printer).ok()).collect();
    for one in &opened {
        left_out(one, printer);
    }
    let locked = state.lock.plugins().map(|plugin| plugin.name.as_str());
    let listed = opened.iter().flat_map(|one| one.catalogue.entries.iter().map(|entry| entry.name.as_str()));
    let alike = alike(locked.chain(listed));
    let words: Vec<String> = command.words.iter().map(|word| word.to_lowercase()).collect();
    let hits = opened.iter().flat_map(|one| one.entries().map(move |(entry, source)| (one, entry, source)));
    let hits = hits.filter(|(_, entry, _)| has(entry, &words)).map(|(one, entry, source)| Hit {
        catalogue: &one.name,
        entry,
        source,
        alike: alike(&entry.name),
    });
    match command.json {
        true => printer.json(&hits.map(|hit| hit.json()).collect()),
        false => match hits.map(|hit| hit.text()).collect::<String>() {
            text if text.is_empty() => printer.say("no plugin was found"),
            text => printer.data(&text),
        },
    }
    Ok(if opened.len() == named.len() { Exit::Completed } else { Exit::Failed })
}

/// Names what a catalogue has and nobody can add.
fn left_out(opened: &Opened, printer: Printer) {
    let all = &opened.catalogue.left_out;
    for why in all.iter().take(MAX_LEFT_OUT) {
        printer.warning(&format!("the catalogue `{}` has what is left out: {}", opened.name, third_party::line(why)));
    }
    let more = all.len().saturating_sub(MAX_LEFT_OUT);
    if more > 0 {
        printer.warning(&format!("the catalogue `{}` has {more} more that are left out", opened.name));
    }
}

/// Whether an entry has all words.
fn has(entry: &Entry, words: &[String]) -> bool {
    let text = format!("{} {}", entry.name, entry.description.as_deref().unwrap_or_default()).to_lowercase();
    words.iter().all(|word| text.contains(word))
}

impl Hit<'_> {
    fn text(&self) -> String {
        let Self { catalogue, entry, source, alike } = self;
        let version = entry.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
        let mut lines = vec![format!("{}@{catalogue}{version}", entry.name)];
        lines.extend(entry.description.as_ref().map(|text| format!("  {}", third_party::line(text))));
        lines.push(match source {
            Ok(source) if is_pinned(source) => format!("  source: {}", escape::line(&source.to_string())),
            Ok(source) => format!("  source: {}, which may move", escape::line(&source.to_string())),
            Err(why) => format!("  it cannot be added: it {}", third_party::line(why)),
        });
        lines.extend(alike.iter().map(|other| format!("  its name looks like that of `{other}`")));
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    fn json(&self) -> Json {
        let Self { catalogue, entry, source, alike } = self;
        json!({
            "name": entry.name,
            "catalogue": catalogue,
            "version": entry.version.as_ref().map(ToString::to_string),
            "description": entry.description,
            "source": source.as_ref().ok().map(ToString::to_string),
            "pinned": source.as_ref().ok().map(is_pinned),
            "problem": source.as_ref().err(),
            "alike": alike,
        })
    }
}
