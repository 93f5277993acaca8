//! Reading a record back, and finding what is not as it was written.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use super::chain::Link;
use super::files::{GROUP_LINES, HEAD, START, name};
use super::key::FILE as KEY;
use super::snapshot::{End, Snapshot};
use super::trim;

/// Bytes of the key's file that are copied: several times as many as it has.
const MAX_KEY: usize = 1024;

/// A record that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The lines that it has.
    pub lines: u64,
    /// The lines before them that are kept no longer.
    pub removed: u64,
    /// The hash of the last of those, from which the rest is verified; zeros where nothing was removed.
    pub start: String,
    /// Its files.
    pub files: u32,
    /// The hash of its last line, which stands for all of it.
    pub hash: String,
    /// Whether half a line comes after it: of a process that was ended while it wrote. It was never part of the record,
    /// and the next line takes its place.
    pub half_a_line: bool,
}

/// What is wrong with a record, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {why}", .line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct Broken {
    /// The file, by its name in the folder.
    pub file: String,
    /// The line in it, from 1.
    pub line: Option<u64>,
    /// What is wrong.
    pub why: String,
    /// Whether the log could not be read because another process has locked it: nothing is known of it then.
    pub held: bool,
}

/// Reads a whole log, as it was at one moment. Calls continue meanwhile.
///
/// # Errors
///
/// The first thing that is wrong. A group of lines after the one that `head` names is not: a process may have been killed
/// between the two.
pub fn verify(folder: &Path) -> Result<Summary, Broken> {
    let snapshot = Snapshot::of(folder)?;
    let (head, most) = (snapshot.head.link.clone(), if snapshot.begun { GROUP_LINES } else { 1 });
    let most = head.number.saturating_add(u64::try_from(most).unwrap_or(u64::MAX));
    let start = snapshot.start.clone();
    let (mut link, mut place) = (start.link.clone(), (name(start.file), None));
    let mut seen = head == link;
    let mut recorded = start.link == Link::start();
    let End { files, half_a_line } = snapshot.each(folder, |file, number, line| {
        let broken = |why| Broken { file: file.to_owned(), line: Some(number), why, held: false };
        link = link.follow(line).map_err(broken)?;
        seen |= head == link;
        recorded |= trim::records(line, &start.link);
        if link.number > most {
            return Err(broken(format!("`{HEAD}` ends the log at line {}, but there are more", head.number)));
        }
        file.clone_into(&mut place.0);
        place.1 = Some(number);
        Ok(())
    })?;
    if !seen {
        let (file, line) = place;
        let half = if half_a_line { ", and half a one" } else { "" };
        let why = format!("it ends at line {} of the log{half}, but there were {}", link.number, head.number);
        return Err(Broken { file, line, why, held: false });
    }
    if !recorded {
        let why = format!(
            "it begins the log after line {}, and no line records that what was before was removed",
            start.link.number
        );
        return Err(Broken { file: START.to_owned(), line: None, why, held: false });
    }
    let Link { number: removed, hash: start } = start.link;
    Ok(Summary { lines: link.number.saturating_sub(removed), removed, start, files, hash: link.hash, half_a_line })
}

/// Copies a log into another folder, which must exist, as the log was at one moment: with the key of its digests, and not
/// verified. Calls continue meanwhile. Returns whether there is a log.
///
/// # Errors
///
/// A file cannot be read or written.
pub fn copy(folder: &Path, to: &Path) -> Result<bool, Broken> {
    let broken =
        |error: std::io::Error| Broken { file: KEY.to_owned(), line: None, why: error.to_string(), held: false };
    // Before it, there are no lines.
    let key = match harness_sys::read_secret(&folder.join(KEY), MAX_KEY) {
        Ok(key) => key,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(broken(error)),
    };
    let written = harness_sys::copy::new_file(&to.join(KEY)).and_then(|mut file| file.write_all(key.as_bytes()));
    written.map_err(broken)?;
    Snapshot::of(folder)?.copy(folder, to)?;
    Ok(true)
}

/// The lines of a log that are kept, as they were at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The lines before them that are kept no longer.
    pub removed: u64,
    /// The hash of the last of those; zeros where nothing was removed.
    pub start: String,
    /// The lines.
    pub lines: Vec<String>,
}

/// All lines of the log in a folder that are kept, and where they begin, not looked into.
///
/// # Errors
///
/// A file cannot be read.
pub fn kept_lines(folder: &Path) -> Result<Kept, Broken> {
    let snapshot = Snapshot::of(folder)?;
    let Link { number: removed, hash: start } = snapshot.start.link.clone();
    let mut lines = Vec::new();
    snapshot.each(folder, |_, _, line| {
        lines.push(line.to_owned());
        Ok(())
    })?;
    Ok(Kept { removed, start, lines })
}

/// The last lines of the log in a folder, as they were at one moment, not looked into.
///
/// # Errors
///
/// A file cannot be read.
pub fn last_lines(folder: &Path, count: usize) -> Result<Vec<String>, Broken> {
    let mut last = VecDeque::new();
    Snapshot::of(folder)?.each(folder, |_, _, line| {
        last.push_back(line.to_owned());
        if last.len() > count {
            last.pop_front();
        }
        Ok(())
    })?;
    Ok(last.into())
}

/// All lines of the log in a folder, from the first that is kept on, as they were at one moment, not looked into.
///
/// # Errors
///
/// A file cannot be read.
pub fn lines(folder: &Path) -> Result<Vec<String>, Broken> {
    last_lines(folder, usize::MAX)
}
