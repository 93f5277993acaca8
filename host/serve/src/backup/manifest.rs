//! The list of what a backup has: JSON Lines, a first one about the whole, one for each file, folder and link, and a last one
//! with the digest of all before it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Error, Read as _, Result, Write as _};
use std::path::Path;

use harness_sys as sys;
use harness_sys::copy::Item;
use harness_sys::digest::Running;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::MANIFEST;

/// The newest form of the list that this program reads, and the one that it writes.
const FORMAT: u32 = 1;
/// Bytes of a line: a path, and what a link leads to, with each byte written as three.
const MAX_LINE: u64 = 64 << 10;
/// What is written otherwise in paths, which may have any bytes.
const ODD: &AsciiSet = &CONTROLS.add(b'%').add(b'"').add(b'\\');

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    /// The form of the list.
    pub(super) format: u32,
    /// The version of the program that wrote it.
    pub(super) harness: String,
    /// When the copy of the store was begun.
    pub(super) created: String,
    /// The version of the store's schema.
    pub(super) schema: i32,
}

/// A line about what is at a path. A folder has the path alone.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    executable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tail {
    entries: u64,
    digest: String,
}

/// A list that is written.
pub(super) struct Writer {
    file: BufWriter<File>,
    digest: Running,
    entries: u64,
}

impl Writer {
    /// Begins the list of a backup.
    pub(super) fn new(folder: &Path, schema: i32) -> Result<Self> {
        let created = OffsetDateTime::now_utc().format(&Rfc3339).map_err(Error::other)?;
        let head = Head { format: FORMAT, harness: env!("CARGO_PKG_VERSION").to_owned(), created, schema };
        let file = BufWriter::new(sys::copy::new_file(&folder.join(MANIFEST))?);
        let mut this = Self { file, digest: Running::default(), entries: 0 };
        this.line(&head)?;
        Ok(this)
    }

    fn line(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(line).map_err(Error::other)?;
        text.push(b'\n');
        self.digest.update(&text);
        self.file.write_all(&text)
    }

    /// Adds what is at a path.
    pub(super) fn put(&mut self, path: &[u8], item: Item) -> Result<()> {
        let path = percent_encode(path, ODD).to_string();
        let mut row = Row { path, bytes: None, digest: None, executable: false, link: None, left_out: None };
        match item {
            Item::Folder => {}
            Item::File { bytes, digest, is_executable } => {
                (row.bytes, row.digest, row.executable) = (Some(bytes), Some(digest), is_executable);
            }
            Item::Link(target) => row.link = Some(percent_encode(&target, ODD).to_string()),
            Item::Other(why) => row.left_out = Some(why),
        }
        self.entries = self.entries.saturating_add(1);
        self.line(&row)
    }

    /// Ends it.
    pub(super) fn finish(mut self) -> Result<()> {
        let digest = std::mem::take(&mut self.digest).finish();
        self.line(&Tail { entries: self.entries, digest })?;
        self.file.flush()
    }
}

/// A list that was read, whole.
#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) head: Head,
    /// What there is, by path.
    pub(super) items: BTreeMap<Vec<u8>, Item>,
}

impl Manifest {
    /// Reads the list of a backup. The error is what is wrong with it.
    pub(super) fn read(folder: &Path) -> std::result::Result<Self, String> {
        let file = sys::open_file(&folder.join(MANIFEST)).map_err(|error| error.to_string())?;
        let mut reader = BufReader::new(file);
        let (mut digest, mut line, mut number) = (Running::default(), Vec::new(), 0_u64);
        let mut next = |line: &mut Vec<u8>| {
            line.clear();
            reader.by_ref().take(MAX_LINE).read_until(b'\n', line).map_err(|error| error.to_string())
        };
        next(&mut line)?;
        let wrong = |number: u64| format!("line {number} is not what was written");
        let head: Head = serde_json::from_slice(&line).map_err(|_| wrong(1))?;
        if head.format > FORMAT {
            return Err(format!("it has form {}, and this program reads forms up to {FORMAT}", head.format));
        }
        let mut items = BTreeMap::new();
        loop {
            digest.update(&line);
            number = number.saturating_add(1);
            if next(&mut line)? == 0 {
                return Err(format!("it ends at line {number}, without its digest"));
            }
            let at = number.saturating_add(1);
            if let Ok(tail) = serde_json::from_slice::<Tail>(&line) {
                if u64::try_from(items.len()) != Ok(tail.entries) {
                    return Err(format!("it has {} entries, and its end counts {}", items.len(), tail.entries));
                }
                if tail.digest != std::mem::take(&mut digest).finish() {
                    return Err("its digest is another".to_owned());
                }
                if !line.ends_with(b"\n") || next(&mut line)? != 0 {
                    return Err(format!("line {at} is not the end of it"));
                }
                return Ok(Self { head, items });
            }
            let row: Row = serde_json::from_slice(&line).map_err(|_| wrong(at))?;
            let path: Vec<u8> = percent_decode_str(&row.path).collect();
            if path.split(|byte| *byte == b'/').any(|part| matches!(part, b"" | b"." | b"..")) || path.contains(&0) {
                return Err(wrong(at));
            }
            let item = match row {
                Row { bytes: Some(bytes), digest: Some(digest), executable, link: None, left_out: None, .. } => {
                    Item::File { bytes, digest, is_executable: executable }
                }
                Row { link: Some(link), bytes: None, digest: None, executable: false, left_out: None, .. } => {
                    Item::Link(percent_decode_str(&link).collect())
                }
                Row { left_out: Some(why), bytes: None, digest: None, executable: false, link: None, .. } => {
                    Item::Other(why)
                }
                Row { bytes: None, digest: None, executable: false, .. } => Item::Folder,
                Row { .. } => return Err(wrong(at)),
            };
            if items.insert(path, item).is_some() {
                return Err(wrong(at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(folder.path(), 1).unwrap();
        let digest = "sha256:0".to_owned();
        writer.put(b"a", Item::Folder).unwrap();
        writer.put(b"a/\xff %\"\n", Item::File { bytes: 3, digest, is_executable: true }).unwrap();
        writer.put(b"a/l", Item::Link(b"../\xfe".to_vec())).unwrap();
        writer.put(b"p", Item::Other("why".to_owned())).unwrap();
        writer.finish().unwrap();
        folder
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = written();
        let read = Manifest::read(folder.path()).unwrap();
        assert_eq!((read.head.format, read.head.schema), (1, 1));
        let file = Item::File { bytes: 3, digest: "sha256:0".to_owned(), is_executable: true };
        let expected = [
            (b"a".to_vec(), Item::Folder),
            (b"a/\xff %\"\n".to_vec(), file),
            (b"a/l".to_vec(), Item::Link(b"../\xfe".to_vec())),
            (b"p".to_vec(), Item::Other("why".to_owned())),
        ];
        assert_eq!(read.items, expected.into_iter().collect());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests")]
    fn a_bit_that_turned_or_a_line_that_is_missing_is_found() {
        let folder = written();
        let path = folder.path().join(MANIFEST);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() * 8 {
            let mut turned = whole.clone();
            turned[at / 8] ^= 1 << (at % 8);
            std::fs::write(&path, &turned).unwrap();
            assert!(Manifest::read(folder.path()).is_err(), "bit {at}");
        }
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(Manifest::read(folder.path()).is_err(), "{length} bytes");
        }
        let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
        for without in 0..lines.len() {
            let rest: Vec<&[u8]> = lines.iter().enumerate().filter(|(at, _)| *at != without).map(|(_, l)| *l).collect();
            std::fs::write(&path, rest.concat()).unwrap();
            assert!(Manifest::read(folder.path()).is_err(), "without line {without}");
        }
        std::fs::write(&path, &whole).unwrap();
        Manifest::read(folder.path()).unwrap();
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests")]
    fn a_path_that_leads_out_and_a_newer_form_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(MANIFEST);
        for odd in ["../a", "a//b", "/a", "", "a/%2e%2e/b", "a%00"] {
            let mut writer = Writer::new(folder.path(), 1).unwrap();
            writer.line(&serde_json::json!({"path": odd})).unwrap();
            writer.finish().unwrap();
            assert_eq!(Manifest::read(folder.path()).unwrap_err(), "line 2 is not what was written", "{odd}");
            std::fs::remove_file(&path).unwrap();
        }
        let head = Head { format: 2, harness: String::new(), created: String::new(), schema: 1 };
        std::fs::write(&path, serde_json::to_vec(&head).unwrap()).unwrap();
        let why = Manifest::read(folder.path()).unwrap_err();
        assert_eq!(why, "it has form 2, and this program reads forms up to 1");
    }
}
