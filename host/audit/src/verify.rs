//! Reading a record back, and finding what is not as it was written.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use super::chain::Link;
use super::log::{HEAD, head_of, locked, name};
use harness_sys as sys;

/// A record that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its lines.
    pub lines: u64,
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
}

/// Reads the whole record in a folder.
///
/// # Errors
///
/// The first thing that is wrong. One line after the one that `head` names is not: a process may have been ended between
/// the two.
pub fn verify(folder: &Path) -> Result<Summary, Broken> {
    locked(folder, || verify_alone(folder))
}

fn verify_alone(folder: &Path) -> Result<Summary, Broken> {
    let head = head(folder)?;
    let (mut link, mut place) = (Link::start(), (name(1), None));
    let mut seen = head == link;
    let (files, half_a_line) = each(folder, |file, number, line| {
        let broken = |why| Broken { file: file.to_owned(), line: Some(number), why };
        link = link.follow(line).map_err(broken)?;
        seen |= head == link;
        if link.number > head.number.saturating_add(1) {
            return Err(broken(format!("`{HEAD}` ends the record at line {}, and there are more", head.number)));
        }
        place = (file.to_owned(), Some(number));
        Ok(())
    })?;
    if !seen {
        let (file, line) = place;
        let half = if half_a_line { ", and half a one" } else { "" };
        let why = format!("it ends at line {} of the record{half}, and there were {}", link.number, head.number);
        return Err(Broken { file, line, why });
    }
    Ok(Summary { lines: link.number, files, hash: link.hash, half_a_line })
}

/// All lines of the record in a folder, from the first on, not looked into.
///
/// # Errors
///
/// Where a file cannot be read.
pub fn lines(folder: &Path) -> Result<Vec<String>, Broken> {
    let mut all = Vec::new();
    let line = |_: &str, _, line: &str| {
        all.push(line.to_owned());
        Ok(())
    };
    locked(folder, || each(folder, line))?;
    Ok(all)
}

/// Where the record ends. Where there is no file, before its first line.
fn head(folder: &Path) -> Result<Link, Broken> {
    let broken = |why: String| Broken { file: HEAD.to_owned(), line: None, why };
    match sys::read_text(&folder.join(HEAD)) {
        Ok(text) if text.is_empty() => Ok(Link::start()),
        Ok(text) => head_of(&text).ok_or_else(|| broken("it is not what was written".to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Link::start()),
        Err(error) => Err(broken(error.to_string())),
    }
}

/// Bytes of a line that is checked: several times as many as any that is written has.
const MAX_LINE_BYTES: u64 = 4 << 20;

/// Goes through the lines; returns how many files there are, and whether there is half a line at the end of the last.
fn each(folder: &Path, mut line: impl FnMut(&str, u64, &str) -> Result<(), Broken>) -> Result<(u32, bool), Broken> {
    let mut half = None;
    for number in 1..=u32::MAX {
        let file = name(number);
        let broken = |line, why: String| Broken { file: file.clone(), line, why };
        let opened = match sys::open_file(&folder.join(&file)) {
            Ok(opened) => opened,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok((number.saturating_sub(1), half.is_some()));
            }
            Err(error) => return Err(broken(None, error.to_string())),
        };
        // Nothing comes after the end, in whichever file.
        if let Some(before) = half {
            return Err(before);
        }
        let mut reader = BufReader::new(opened);
        for at in 1.. {
            let mut bytes = Vec::new();
            match reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes) {
                Ok(0) => break,
                Ok(count) if u64::try_from(count).unwrap_or(u64::MAX) >= MAX_LINE_BYTES => {
                    return Err(broken(Some(at), "the line is longer than any that is written".to_owned()));
                }
                Ok(_) => match bytes.strip_suffix(b"\n").map(std::str::from_utf8) {
                    Some(Ok(text)) => line(&file, at, text)?,
                    Some(Err(_)) => return Err(broken(Some(at), "it is not UTF-8 text".to_owned())),
                    None => half = Some(broken(Some(at), "it is cut short".to_owned())),
                },
                Err(error) => return Err(broken(Some(at), error.to_string())),
            }
        }
    }
    Ok((u32::MAX, half.is_some()))
}
