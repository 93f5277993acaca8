//! Server-sent events: the data of each, out of bytes that come in any pieces.
//!
//! What names an event is in its data too in every format here, so that `event`, `id` and `retry` are passed over.
//! Written here, because no library for it bounds what it holds, and a line without end is what a hostile server sends.

use super::lines::{Lines, MAX_LINE_BYTES};
use super::reading::Wrong;

/// Takes bytes, gives the data of events.
#[derive(Debug, Default)]
pub(super) struct Events {
    lines: Lines,
    data: Data,
}

impl Events {
    /// Gives the data of every event that these bytes end.
    pub(super) fn feed(&mut self, bytes: &[u8], give: &mut dyn FnMut(&str) -> Result<(), Wrong>) -> Result<(), Wrong> {
        let data = &mut self.data;
        self.lines.feed(bytes, &mut |line| match data.line(line)? {
            Some(whole) => give(&whole),
            None => Ok(()),
        })
    }

    /// The data of an event that nothing ended.
    pub(super) fn rest(&mut self) -> Option<String> {
        if let Some(line) = self.lines.rest() {
            self.data.line(&line).ok()?;
        }
        self.data.0.take()
    }
}

/// The data of an event, as far as it came.
#[derive(Debug, Default)]
struct Data(Option<String>);

impl Data {
    /// Takes a line; gives the data where the line is the empty one that ends an event.
    fn line(&mut self, line: &str) -> Result<Option<String>, Wrong> {
        if line.is_empty() {
            return Ok(self.0.take());
        }
        // A comment has an empty name.
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        if name == "data" {
            let value = value.strip_prefix(' ').unwrap_or(value);
            match &mut self.0 {
                None => self.0 = Some(value.to_owned()),
                Some(data) if value.len() >= MAX_LINE_BYTES.saturating_sub(data.len()) => {
                    return Err(Wrong::Malformed(format!("an event is longer than {MAX_LINE_BYTES} bytes")));
                }
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, Option<String>) {
        let (mut events, mut given) = (Events::default(), Vec::new());
        for piece in pieces {
            events
                .feed(piece, &mut |data| {
                    given.push(data.to_owned());
                    Ok(())
                })
                .unwrap();
        }
        (given, events.rest())
    }

    const ODD: &str = "\u{feff}: hello\r\n\r\nevent: x\r\ndata: one\r\nid: 7\r\n\r\ndata:two\ndata:  lines\ndata\n\n\
        retry: 3\n\nnothing\n\ndata: é\r\rdata: not ended";

    #[test]
    fn comments_names_and_empty_events_are_passed_over() {
        let (given, rest) = events([ODD.as_bytes()]);
        assert_eq!(given, ["one", "two\n lines\n", "é"]);
        assert_eq!(rest.as_deref(), Some("not ended"));
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut events = Events::default();
        let line = format!("data: {}\n", "x".repeat(1 << 20));
        let mut all = || (0..5).try_for_each(|_| events.feed(line.as_bytes(), &mut |_| Ok(())));
        assert_eq!(all(), Err(Wrong::Malformed("an event is longer than 4194304 bytes".to_owned())));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(size in 1_usize..20) {
            prop_assert_eq!(events(ODD.as_bytes().chunks(size)), events([ODD.as_bytes()]));
        }
    }
}
