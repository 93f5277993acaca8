//! The removal of what a log keeps no longer: whole files, from the beginning of the log on.
//!
//! A line is appended that says what is removed, then the file `start` says where the log begins now, and then the files go.
//! Whatever ends this between two of these steps leaves a log that is whole, and the next removal does the rest. What is left is
//! verified from the hash in `start`, which some line that is kept has to name: a `start` that somebody else has written is found.
//!
//! So that there are files to remove, one whose first line is old enough is closed: the line that says so is its last. Other
//! processes that append see by its length that they have to look where the log goes on.

use std::io::{BufReader, ErrorKind, Read as _};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::chain::{Head, Link};
use super::entry::Entry;
use super::files::{self, Location, ROTATE, START, name};
use super::snapshot::{self, Snapshot};
use super::verify::Broken;
use harness_sys as sys;
use harness_sys::private;

/// What the lines about removals have as `kind`, as it is written.
const KIND: &str = "\"kind\":\"retention\"";

/// What is kept, and for how long.
pub struct Retention<'t> {
    /// When a line was written, since 1970, by its text. A line without a time is kept.
    pub time_of: &'t dyn Fn(&str) -> Option<Duration>,
    /// Files whose lines are all from this moment or before are removed.
    pub before: Duration,
    /// A file whose first line is from this moment or before is closed.
    pub due: Duration,
    /// This moment, as lines have it.
    pub now: &'t str,
}

impl std::fmt::Debug for Retention<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retention").field("before", &self.before).field("due", &self.due).finish_non_exhaustive()
    }
}

/// What was done to a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Files that were removed.
    pub files: u32,
    /// Lines that they had.
    pub lines: u64,
    /// Whether a file was closed.
    pub closed: bool,
}

/// What a line about a removal says of it.
#[derive(Deserialize)]
struct Removed {
    kind: String,
    through: u64,
    removed: String,
}

/// Whether a line records that the log was removed up to there.
pub(super) fn records(line: &str, link: &Link) -> bool {
    let is_of = |removed: Removed| {
        removed.kind == "retention" && removed.through == link.number && removed.removed == link.hash
    };
    line.contains(KIND) && serde_json::from_str(line).is_ok_and(is_of)
}

/// Removes the files of a log that are kept no longer. Calls continue meanwhile. Nothing is done while somebody reads the log, or
/// if there is none.
///
/// # Errors
///
/// What is wrong with a line that would be removed; a file cannot be read, written or removed.
pub fn trim(folder: &Path, rule: &Retention<'_>) -> Result<Trimmed, Broken> {
    let failed = |error: std::io::Error| Broken {
        file: START.to_owned(),
        line: None,
        why: error.to_string(),
        held: error.kind() == ErrorKind::WouldBlock,
    };
    if sys::is_gone(&folder.join(files::HEAD)) {
        return Ok(Trimmed::default());
    }
    let Some(_alone) = snapshot::without_readers(folder).map_err(failed)? else { return Ok(Trimmed::default()) };
    let mut snapshot = Snapshot::unlocked(folder)?;
    let (start, head) = (snapshot.start.clone(), snapshot.head.clone());
    clear(folder, &start).map_err(failed)?;
    let (mut next, mut link) = (start.file, start.link.clone());
    while next < head.file {
        let Some(after) = passed(folder, next, &link, rule)? else { break };
        (next, link) = (next.saturating_add(1), after);
    }
    let is_due = snapshot.take(head.file).map(|part| part.is_due(rule)).transpose()?.unwrap_or_default();
    if next == start.file && !is_due {
        return Ok(Trimmed::default());
    }
    let done = Trimmed {
        files: next.saturating_sub(start.file),
        lines: link.number.saturating_sub(start.link.number),
        closed: is_due,
    };
    let new = Head { link, file: next, length: 0 };
    let line = |entry: &mut Entry| {
        entry.put("time", rule.now);
        entry.put("kind", "retention");
        if done.files > 0 {
            entry.put("event", "audit.removed");
            entry.put("through", &new.link.number);
            entry.put("removed", &new.link.hash);
            entry.put("files", &done.files);
        } else {
            entry.put("event", "audit.closed");
        }
        entry.put("outcome", "completed");
    };
    let at = Location { folder, rotate: ROTATE, root: None };
    let closes = is_due.then_some(head.file);
    files::append_alone(at, line, closes, || {
        if done.files > 0 { private::write(&folder.join(START), &new.to_string()) } else { Ok(()) }
    })
    .map_err(failed)?;
    clear(folder, &new).map_err(failed)?;
    Ok(done)
}

/// Where the chain is after a file, if all of its lines are old enough.
fn passed(folder: &Path, number: u32, before: &Link, rule: &Retention<'_>) -> Result<Option<Link>, Broken> {
    // Looked at first, because it is cheap: a file is changed after the moments of its lines.
    if sys::changed_at(&folder.join(name(number))).is_ok_and(|at| at > rule.before) {
        return Ok(None);
    }
    let Some(part) = snapshot::whole(folder, number)? else { return Ok(None) };
    let (mut link, mut is_old) = (before.clone(), true);
    let half = part.read(&mut |file, at, line| {
        let broken = |why| Broken { file: file.to_owned(), line: Some(at), why, held: false };
        link = link.follow(line).map_err(broken)?;
        is_old &= (rule.time_of)(line).is_some_and(|time| time <= rule.before);
        Ok(())
    })?;
    match half {
        Some(broken) => Err(broken),
        None => Ok(is_old.then_some(link)),
    }
}

impl snapshot::Part {
    /// Whether the file is to be closed. One that has nothing but lines about removals stays open: a log that nobody uses does
    /// not grow.
    fn is_due(self, rule: &Retention<'_>) -> Result<bool, Broken> {
        let (mut first, mut has_other) = (None, false);
        self.read(&mut |_, _, line| {
            first.get_or_insert_with(|| (rule.time_of)(line));
            has_other |= !line.contains(KIND);
            Ok(())
        })?;
        Ok(has_other && first.flatten().is_some_and(|time| time <= rule.due))
    }
}

/// Removes the files before the start of a log.
fn clear(folder: &Path, start: &Head) -> std::io::Result<()> {
    if start.file <= 1 {
        return Ok(());
    }
    let is_before = |path: &&std::path::PathBuf| {
        let number = path.file_name().and_then(std::ffi::OsStr::to_str).and_then(|name| name.strip_suffix(".jsonl"));
        number.and_then(|number| number.parse::<u32>().ok()).is_some_and(|number| number < start.file)
    };
    sys::entries(folder)?.iter().filter(is_before).try_for_each(|path| private::remove(path).map(drop))
}

/// Where a log begins.
pub(super) fn start(folder: &Path) -> Result<Head, Broken> {
    let wrong = |why: String| Broken { file: START.to_owned(), line: None, why, held: false };
    let mut text = String::new();
    match sys::open_file(&folder.join(START)) {
        Ok(file) => {
            let read = BufReader::new(file).take(1024).read_to_string(&mut text);
            read.map_err(|error| wrong(error.to_string()))?;
            text.parse().map_err(|()| wrong("it is not what was written".to_owned()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Head::start()),
        Err(error) => Err(wrong(error.to_string())),
    }
}
