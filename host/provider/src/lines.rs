//! Lines out of bytes that come in any pieces.

use super::reading::Wrong;

/// Bytes of one line. A whole call may stand on one.
pub(super) const MAX_LINE_BYTES: usize = 4 << 20;

/// Takes bytes, gives lines. LF, CR and both end one; bytes that are not UTF-8 become U+FFFD.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    /// The last byte was a CR, so that an LF now is not another end.
    after_cr: bool,
    /// A line was given.
    begun: bool,
}

impl Lines {
    /// Gives every line that these bytes end.
    pub(super) fn feed(&mut self, bytes: &[u8], give: &mut dyn FnMut(&str) -> Result<(), Wrong>) -> Result<(), Wrong> {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = match piece.split_last() {
                Some((end @ (b'\n' | b'\r'), text)) => (text, Some(*end)),
                _ => (piece, None),
            };
            let second_half = std::mem::take(&mut self.after_cr) && text.is_empty() && end == Some(b'\n');
            self.after_cr = end == Some(b'\r');
            if second_half {
                continue;
            }
            if text.len() > MAX_LINE_BYTES.saturating_sub(self.line.len()) {
                return Err(Wrong::Malformed(format!("a line is longer than {MAX_LINE_BYTES} bytes")));
            }
            self.line.extend_from_slice(text);
            if end.is_some() {
                give(&self.take())?;
            }
        }
        Ok(())
    }

    /// What stands after the last end of a line, if anything does.
    pub(super) fn rest(&mut self) -> Option<String> {
        if self.line.is_empty() { None } else { Some(self.take()) }
    }

    fn take(&mut self) -> String {
        let line = String::from_utf8(std::mem::take(&mut self.line))
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        match line.strip_prefix('\u{feff}') {
            Some(rest) if !std::mem::replace(&mut self.begun, true) => rest.to_owned(),
            _ => {
                self.begun = true;
                line
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, Option<String>) {
        let (mut lines, mut given) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines
                .feed(piece, &mut |line| {
                    given.push(line.to_owned());
                    Ok(())
                })
                .unwrap();
        }
        (given, lines.rest())
    }

    #[test]
    fn each_end_of_a_line_ends_one() {
        let (given, rest) = lines(["\u{feff}a\nb\r\nc\rd\n\r\n\re\n\u{feff}f".as_bytes()]);
        assert_eq!(given, ["a", "b", "c", "d", "", "", "e"]);
        assert_eq!(rest.as_deref(), Some("\u{feff}f"));
        assert_eq!(lines([&b"\xff\n"[..]]), (vec!["\u{fffd}".to_owned()], None));
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_is_held() {
        let mut lines = Lines::default();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..4 {
            lines.feed(&piece, &mut |_| Ok(())).unwrap();
        }
        let wrong = lines.feed(b"x", &mut |_| Ok(()));
        assert_eq!(wrong, Err(Wrong::Malformed("a line is longer than 4194304 bytes".to_owned())));
        let mut lines = Lines::default();
        for _ in 0..5 {
            lines.feed(&piece, &mut |_| Ok(())).unwrap();
            lines.feed(b"\n", &mut |_| Ok(())).unwrap();
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..60),
            size in 1_usize..9,
        ) {
            prop_assert_eq!(lines(bytes.chunks(size)), lines([&*bytes]));
        }
    }
}
