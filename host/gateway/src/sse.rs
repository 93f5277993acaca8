//! Server-sent events, out of bytes that come in any pieces.
//!
//! Written here, because no library for it bounds what it holds: a line or an event without end is what a hostile server
//! sends.

use std::time::Duration;

use crate::limits::ID_BYTES;

/// A line or an event was longer than it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// Takes bytes, and gives the data of events.
#[derive(Debug)]
pub struct Events {
    most: usize,
    line: Vec<u8>,
    /// Whether the last byte was a carriage return: a line feed after it ends no further line.
    after_return: bool,
    /// Whether a line was read: a byte order mark may be before the first alone.
    began: bool,
    data: Option<String>,
    id: Option<String>,
    /// The identifier of the last event that was ended.
    last_id: Option<String>,
    retry: Option<Duration>,
}

impl Events {
    /// Events with so many bytes of data, and lines of so many bytes, at most.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            line: Vec::new(),
            after_return: false,
            began: false,
            data: None,
            id: None,
            last_id: None,
            retry: None,
        }
    }

    /// Takes the next bytes of the stream, and returns the data of the events that end in them.
    ///
    /// # Errors
    ///
    /// That a line or an event is too long. Nothing of the stream after that is to be used.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, TooLong> {
        let mut events = Vec::new();
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, end) = match piece.split_last() {
                Some((end @ (b'\n' | b'\r'), line)) => (line, Some(*end)),
                _ => (piece, None),
            };
            let continues = std::mem::replace(&mut self.after_return, end == Some(b'\r'));
            if continues && line.is_empty() && end == Some(b'\n') {
                continue;
            }
            if line.len() > self.most.saturating_sub(self.line.len()) {
                return Err(TooLong);
            }
            self.line.extend_from_slice(line);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                events.extend(self.line(&line)?);
            }
        }
        Ok(events)
    }

    /// The identifier from which the stream can be continued.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref().filter(|id| !id.is_empty())
    }

    /// The pause before that, where the server names one.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// The same server's next stream: what was begun is dropped, the identifier and the pause stay.
    pub(crate) fn again(self) -> Self {
        let Self { most, last_id, retry, .. } = self;
        Self { id: last_id.clone(), last_id, retry, ..Self::new(most) }
    }

    fn line(&mut self, line: &[u8]) -> Result<Option<String>, TooLong> {
        let first = !std::mem::replace(&mut self.began, true);
        let line = if first { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        if line.is_empty() {
            self.last_id.clone_from(&self.id);
            return Ok(self.data.take());
        }
        let line = String::from_utf8_lossy(line);
        // A comment has an empty name.
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => match &mut self.data {
                None => self.data = Some(value.to_owned()),
                Some(data) if value.len() >= self.most.saturating_sub(data.len()) => return Err(TooLong),
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
            },
            // One that could not be sent back is none.
            "id" if value.len() <= ID_BYTES && value.chars().all(|c| c.is_ascii() && !c.is_ascii_control()) => {
                self.id = Some(value.to_owned());
            }
            "id" => self.id = None,
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis);
            }
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fed(most: usize, pieces: &[&[u8]]) -> (Result<Vec<String>, TooLong>, Events) {
        let mut events = Events::new(most);
        let given: Result<Vec<_>, _> = pieces.iter().map(|piece| events.feed(piece)).collect();
        (given.map(|all| all.concat()), events)
    }

    const ODD: &str = "\u{feff}: hello\r\n\r\nevent: x\r\ndata: one\r\nid: 7\r\n\r\ndata:two\ndata:  lines\ndata\n\n\
        retry: 30\nid: 8\ndata:\n\nnothing\n\ndata: é\r\rid: 9\ndata: not ended";

    #[test]
    fn what_a_stream_says() {
        let (given, events) = fed(100, &[ODD.as_bytes()]);
        assert_eq!(given.unwrap(), ["one", "two\n lines\n", "", "é"]);
        assert_eq!((events.last_id(), events.retry()), (Some("8"), Some(Duration::from_millis(30))));
        let events = events.again();
        assert_eq!((events.last_id(), events.retry()), (Some("8"), Some(Duration::from_millis(30))));
    }

    #[test]
    fn a_mark_is_passed_over_at_the_beginning_alone() {
        assert_eq!(fed(100, &[b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n"]).0.unwrap(), ["a"]);
    }

    #[test]
    fn identifiers_that_cannot_be_sent_back_are_none() {
        for id in ["a\u{e4}", "\u{7}", &*"x".repeat(ID_BYTES + 1), ""] {
            assert_eq!(fed(5000, &[format!("id: 1\n\nid: {id}\n\n").as_bytes()]).1.last_id(), None, "{id}");
        }
        assert_eq!(fed(5000, &[b"id: 1\n\nretry: x\n\nretry: -1\n\n"]).1.retry(), None);
        // A pause that no number holds is none.
        assert_eq!(fed(5000, &[b"retry: 99999999999999999999999\n\n"]).1.retry(), None);
    }

    #[test]
    fn lines_and_events_have_a_bound() {
        assert_eq!(fed(8, &[b"data: ab\n\n"]).0.unwrap(), ["ab"]);
        assert_eq!(fed(8, &[b"data: abc\n\n"]).0, Err(TooLong));
        assert_eq!(fed(8, &[b"data:abc\ndata:def\n\n"]).0.unwrap(), ["abc\ndef"]);
        assert_eq!(fed(8, &[b"data:abc\ndata:defg\ndata:h\n\n"]).0, Err(TooLong));
        // One that never ends takes no more memory than the longest that may be.
        assert_eq!(fed(4, &[b"aa", b"aa", b"a"]).0, Err(TooLong));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(text in "(data|id|retry|:|: |a|1|\r|\n|\r\n){0,40}", cuts in prop::collection::vec(0_usize..100, 0..6)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let (whole, at_once) = fed(1000, &[bytes]);
            let (cut, in_pieces) = fed(1000, &pieces);
            prop_assert_eq!(whole, cut);
            prop_assert_eq!((at_once.last_id(), at_once.retry()), (in_pieces.last_id(), in_pieces.retry()));
        }

        #[test]
        fn what_is_written_is_read(texts in prop::collection::vec("[a-z :\n]{0,20}", 0..5)) {
            let event = |text: &String| format!("{}\n\n", text.split('\n').map(|line| format!("data: {line}")).collect::<Vec<_>>().join("\n"));
            let stream: String = texts.iter().map(event).collect();
            prop_assert_eq!(fed(1000, &[stream.as_bytes()]).0, Ok(texts));
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Events::new(50).feed(&bytes);
        }
    }
}
