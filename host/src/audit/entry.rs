//! An entry on its way into the record: the fields of a JSON object, written down as they become known.

use serde::Serialize;

/// What is recorded of something that happened. Fields stay in the order they were put in.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Each field with a comma before it.
    fields: Vec<u8>,
}

impl Entry {
    /// None yet.
    pub fn new() -> Self {
        // Most have less.
        Self { fields: Vec::with_capacity(1024) }
    }

    /// Adds a field. `name` has nothing in it that JSON would escape.
    pub fn put(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) {
        let before = self.fields.len();
        self.fields.extend_from_slice(b",\"");
        self.fields.extend_from_slice(name.as_bytes());
        self.fields.extend_from_slice(b"\":");
        if serde_json::to_writer(&mut self.fields, value).is_err() {
            // A map with keys that are no texts: of those there are none.
            self.fields.truncate(before);
        }
    }

    pub(super) fn fields(&self) -> &[u8] {
        &self.fields
    }
}
