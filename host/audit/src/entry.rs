//! An entry on its way into the audit log: the fields of a JSON object, written down as they become known.
//!
//! Callers, scripts and models have a say in some of these texts, and in how many rows a list has. Each text and each list
//! has a bound, so that every entry fits in a line. A text or a list that was cut is reported in the field `cut`, with its
//! length and its digest.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;

use super::key::Key;

/// Bytes of a name, a path or an identifier, as JSON without its quotes.
pub const MAX_NAME: usize = 256;
/// Bytes of any other text, as JSON without its quotes.
pub const MAX_TEXT: usize = 1000;

/// What is recorded of something that happened. Fields stay in the order they were put in.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Each field with a comma before it.
    fields: Vec<u8>,
    key: Key,
    cut: Vec<Cut>,
    /// Keeps the files of the log open that it is for.
    _pin: Option<Arc<()>>,
}

/// A text or a list that is in an entry only in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cut {
    field: Cow<'static, str>,
    /// Of a list, its rows that are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<u64>,
    /// The length of the whole text, or of the rows that are left out.
    bytes: u64,
    /// Of the same, made with the key of the log.
    digest: String,
}

/// A row of a list.
#[derive(Debug)]
pub struct Row {
    /// Rows with a lower rank are left out last.
    pub rank: u8,
    json: Vec<u8>,
}

impl Row {
    /// A row as JSON.
    pub fn new(rank: u8, row: &impl Serialize) -> Self {
        Self { rank, json: serde_json::to_vec(row).unwrap_or_default() }
    }
}

/// How much of a list is kept.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Rows at most.
    pub rows: usize,
    /// Bytes of JSON at most.
    pub bytes: usize,
}

impl Entry {
    /// An empty one. `key` makes the digests of what is cut.
    pub fn new(key: Key) -> Self {
        // Most have less.
        Self { fields: Vec::with_capacity(1024), key, cut: Vec::new(), _pin: None }
    }

    pub(super) fn pinned(self, pin: Arc<()>) -> Self {
        Self { _pin: Some(pin), ..self }
    }

    /// Roughly how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.fields.len()
    }

    /// Adds a field whose length is bounded. `name` has nothing in it that JSON would escape.
    pub fn put(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) {
        let before = self.fields.len();
        self.begin(name);
        if serde_json::to_writer(&mut self.fields, value).is_err() {
            // A map with keys that are no texts: of those there are none.
            self.fields.truncate(before);
        }
    }

    /// Adds a text, the first `most` bytes of it.
    pub fn put_text(&mut self, name: &'static str, text: &str, most: usize) {
        let kept = self.kept(name, text, most);
        self.put(name, kept);
    }

    /// The part of a text that is recorded. What is cut is reported as that of `field`.
    pub fn kept<'t>(&mut self, field: impl Into<Cow<'static, str>>, text: &'t str, most: usize) -> &'t str {
        let (kept, cut) = kept(&self.key, field, text, most);
        self.cut.extend(cut);
        kept
    }

    /// Adds a list as far as there is room: rows of the lowest rank first, each as long as it is, in the order given.
    pub fn put_rows(&mut self, name: &'static str, rows: Vec<Row>, room: Room) {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|at| rows.get(*at).map(|row| row.rank));
        let mut kept = vec![false; rows.len()];
        let (mut count, mut bytes) = (0_usize, 0_usize);
        for at in order {
            let (Some(row), Some(kept)) = (rows.get(at), kept.get_mut(at)) else { continue };
            let after = bytes.saturating_add(row.json.len()).saturating_add(1);
            if count < room.rows && after <= room.bytes {
                (*kept, count, bytes) = (true, count.saturating_add(1), after);
            }
        }
        self.begin(name);
        self.fields.push(b'[');
        let mut first = true;
        let mut left_out = Vec::new();
        let mut missing = 0_u64;
        for (row, kept) in rows.iter().zip(kept) {
            let target = if kept { &mut self.fields } else { &mut left_out };
            if kept && !first {
                target.push(b',');
            }
            first &= !kept;
            target.extend_from_slice(&row.json);
            missing = missing.saturating_add(u64::from(!kept));
        }
        self.fields.push(b']');
        if missing > 0 {
            let (bytes, digest) = (left_out.len() as u64, self.key.digest(&left_out));
            self.cut.push(Cut { field: name.into(), rows: Some(missing), bytes, digest });
        }
    }

    /// What the digests of this entry are made with.
    pub fn key(&self) -> &Key {
        &self.key
    }

    fn begin(&mut self, name: &'static str) {
        self.fields.extend_from_slice(b",\"");
        self.fields.extend_from_slice(name.as_bytes());
        self.fields.extend_from_slice(b"\":");
    }

    /// All of it, what was cut last.
    pub(super) fn fields(&self) -> Cow<'_, [u8]> {
        if self.cut.is_empty() {
            return Cow::Borrowed(&self.fields);
        }
        let mut whole = self.clone();
        whole.put("cut", &self.cut);
        Cow::Owned(whole.fields)
    }
}

/// The part of a text that is recorded, and what to say where that is not all.
pub fn kept<'t>(key: &Key, field: impl Into<Cow<'static, str>>, text: &'t str, most: usize) -> (&'t str, Option<Cut>) {
    let mut room = most;
    let end = text.char_indices().find(|(_, c)| match room.checked_sub(escaped(*c)) {
        Some(left) => {
            room = left;
            false
        }
        None => true,
    });
    let Some((end, _)) = end else { return (text, None) };
    let cut = Cut { field: field.into(), rows: None, bytes: text.len() as u64, digest: key.digest(text.as_bytes()) };
    (text.get(..end).unwrap_or_default(), Some(cut))
}

/// The texts of a list that are recorded, the first `rows` of them, and what to say of the others.
pub fn kept_list(key: &Key, field: &'static str, texts: &[Cow<'_, str>], rows: usize) -> (Vec<String>, Vec<Cut>) {
    let (told, left_out) = texts.split_at_checked(rows).unwrap_or((texts, &[]));
    let (told, cut): (Vec<_>, Vec<_>) = told.iter().map(|text| kept(key, field, text, MAX_NAME)).unzip();
    let mut cut: Vec<Cut> = cut.into_iter().flatten().collect();
    if !left_out.is_empty() {
        let all = left_out.join("\n");
        let (rows, bytes) = (Some(left_out.len() as u64), all.len() as u64);
        cut.push(Cut { field: field.into(), rows, bytes, digest: key.digest(all.as_bytes()) });
    }
    (told.into_iter().map(str::to_owned).collect(), cut)
}

/// Bytes that JSON takes for a character in a text.
fn escaped(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}
