//! What was typed in conversations of a project: a file beside its sessions, one entry on each line, as JSON.

use std::fs::File;
use std::io::{Read as _, Result, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use harness_session::FOLDER;
use harness_sys::own;
use rustix::fs::{OFlags, fcntl_setfl};

/// The name of the file.
const NAME: &str = "history";
/// Entries that are kept.
pub(super) const MAX_ENTRIES: usize = 1000;
/// Bytes of the file that are read; an entry that is longer than its part is not kept.
const MAX_BYTES: u64 = 4 << 20;
const MAX_ENTRY_BYTES: usize = 4 << 10;

/// The file, open: the process may not be able to open it later.
#[derive(Debug)]
pub(super) struct History(File);

impl History {
    /// Opens that of a project, and makes it if it is not there.
    pub(super) fn open(root: &Path) -> Result<Self> {
        let file = own::file(&own::folder(&root.join(FOLDER))?, NAME)?;
        // Conversations that are held at the same time add lines to it, each whole.
        fcntl_setfl(&file, OFlags::APPEND)?;
        Ok(Self(file))
    }

    /// The entries, the oldest first. Lines that are none are passed over.
    pub(super) fn entries(&mut self) -> Vec<String> {
        let mut bytes = Vec::new();
        let read = self.0.seek(SeekFrom::Start(0)).and_then(|_| (&self.0).take(MAX_BYTES).read_to_end(&mut bytes));
        if read.is_err() {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(&bytes);
        let mut entries: Vec<String> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if entries.len() > MAX_ENTRIES {
            entries.drain(..entries.len().saturating_sub(MAX_ENTRIES));
            let _ = self.0.set_len(0);
            entries.iter().for_each(|entry| self.add(entry));
        }
        entries
    }

    /// Adds an entry. One that cannot be kept is no reason to stop a conversation.
    pub(super) fn add(&mut self, entry: &str) {
        if entry.len() <= MAX_ENTRY_BYTES {
            let _ = self.0.write_all(format!("{}\n", serde_json::Value::from(entry)).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_entries_stay() {
        let root = tempfile::tempdir().unwrap();
        let mut history = History::open(root.path()).unwrap();
        assert_eq!(history.entries(), Vec::<String>::new());
        history.add("one\ntwo");
        history.add(&"x".repeat(MAX_ENTRY_BYTES + 1));
        assert_eq!(history.entries(), ["one\ntwo"]);
        (0..MAX_ENTRIES).for_each(|at| history.add(&at.to_string()));
        let expected: Vec<String> = (0..MAX_ENTRIES).map(|at| at.to_string()).collect();
        assert_eq!(history.entries(), expected);
        history.add("last");
        assert_eq!(History::open(root.path()).unwrap().entries(), [&expected[1..], &["last".to_owned()]].concat());
    }
}
