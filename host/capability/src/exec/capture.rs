//! What a child prints, read as it comes and kept up to a cap.

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::secrets::Vault;

/// Bytes of text that are given from each of the two streams.
pub(super) const MAX_TEXT: usize = 1 << 20;

/// Bytes that are read from each stream before the child is stopped. A child that prints this much is not going to say
/// anything else, and reading costs the host time.
pub(super) const MAX_READ: usize = 256 << 20;

/// One stream of a child.
#[derive(Debug, Default)]
pub(super) struct Capture {
    kept: Vec<u8>,
    read: usize,
    /// Bytes that are kept beyond the cap, to see whether a secret begins before it.
    room: usize,
}

/// More than [`MAX_READ`] bytes came.
#[derive(Debug)]
pub(super) struct Flood;

impl Capture {
    /// A stream in which secrets may be this long, in bytes.
    pub(super) fn with_room_for(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    /// Reads to the end. What was read stays here when the future is dropped.
    pub(super) async fn fill(&mut self, mut from: impl AsyncRead + Unpin) -> Result<(), Flood> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            // An error is an end: there is nothing more to be had.
            let count = from.read(&mut buffer).await.unwrap_or(0);
            if count == 0 {
                return Ok(());
            }
            self.read += count;
            let room = MAX_TEXT.saturating_add(self.room).saturating_sub(self.kept.len());
            self.kept.extend(buffer.iter().take(count.min(room)));
            if self.read > MAX_READ {
                return Err(Flood);
            }
        }
    }

    /// The text, at most [`MAX_TEXT`] bytes, and whether there was more. Bytes that are not UTF-8 become U+FFFD; a
    /// character that the cap cuts in two is left out, and instead of secrets are notes.
    pub(super) fn text(self, vault: &Vault) -> (String, bool) {
        let cut = self.read > self.kept.len();
        let mut text = String::with_capacity(self.kept.len());
        let mut chunks = self.kept.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let at_the_cut = cut && chunks.peek().is_none();
            if !chunk.invalid().is_empty() && !at_the_cut {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        // U+FFFD takes three bytes where there was one.
        let mut fits = text.len() <= MAX_TEXT;
        vault.redact_within(&mut text, MAX_TEXT);
        // A note may be longer than what it stands for.
        fits &= text.len() <= MAX_TEXT;
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        (text, cut || !fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::Given;
    use harness_artifact::policy::ProjectPolicy;
    use proptest::prelude::*;

    async fn captured(bytes: &[u8]) -> (String, bool) {
        let mut capture = Capture::default();
        capture.fill(bytes).await.unwrap();
        capture.text(&Vault::default())
    }

    #[tokio::test]
    async fn text_is_kept_up_to_the_cap() {
        assert_eq!(captured(b"").await, (String::new(), false));
        assert_eq!(captured(b"a\xffb\xf0\x9f").await, ("a\u{fffd}b\u{fffd}".to_owned(), false));
        let fits = vec![b'x'; MAX_TEXT];
        assert_eq!(captured(&fits).await, ("x".repeat(MAX_TEXT), false));
        assert_eq!(captured(&[fits, vec![b'y']].concat()).await, ("x".repeat(MAX_TEXT), true));
    }

    #[tokio::test]
    async fn no_character_is_cut_in_two() {
        let text = format!("x{}", "é".repeat(MAX_TEXT / 2));
        assert_eq!(captured(text.as_bytes()).await, (text[..MAX_TEXT - 1].to_owned(), true));
        let (text, cut) = captured(&vec![0xff; MAX_TEXT]).await;
        assert_eq!((text.len(), cut), (MAX_TEXT - 1, true));
    }

    /// Each is longer than what it stands for.
    #[tokio::test]
    async fn notes_in_the_place_of_secrets_are_within_the_cap() {
        let policy = "---\nsandbox: { secrets: { A_LONG_NAME: { env: A } } }\n---\n";
        let mut policy = ProjectPolicy::parse(".harness/harness.md", policy).0.unwrap();
        let vault = Vault::of(vec![(policy.secrets.remove(0).value, Given::text("12345678"))]);
        let mut capture = Capture::with_room_for(vault.longest());
        capture.fill("12345678".repeat(MAX_TEXT / 8).as_bytes()).await.unwrap();
        let note = "[redacted:A_LONG_NAME]";
        let notes = note.repeat(MAX_TEXT / note.len() + 1);
        assert!(capture.text(&vault) == (notes[..MAX_TEXT].to_owned(), true));
    }

    #[tokio::test]
    async fn a_flood_is_told() {
        let mut capture = Capture::default();
        assert!(capture.fill(tokio::io::repeat(b'x')).await.is_err());
        assert_eq!(capture.kept.len(), MAX_TEXT);
        assert_eq!(capture.text(&Vault::default()), ("x".repeat(MAX_TEXT), true));
    }

    proptest! {
        #[test]
        fn short_output_is_what_the_standard_library_makes_of_it(bytes: Vec<u8>) {
            let capture = Capture { read: bytes.len(), kept: bytes.clone(), room: 0 };
            prop_assert_eq!(capture.text(&Vault::default()), (String::from_utf8_lossy(&bytes).into_owned(), false));
        }
    }
}
