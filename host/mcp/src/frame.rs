//! Lines of a stream, bounded. Of a line that is too long only the identifier of its request is kept, so that it can be
//! answered.

use serde_json::Value as Json;

/// A line of the stream, without its end.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame {
    Line(Vec<u8>),
    /// It was longer than a line may be. With the `id` of the object in it, where that was found.
    TooLong(Option<Json>),
}

/// Splits a stream into lines.
#[derive(Debug)]
pub(crate) struct Framer {
    /// Bytes of a line.
    most: usize,
    line: Vec<u8>,
    /// Reads on in a line that is too long.
    long: Option<IdScanner>,
}

impl Framer {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, line: Vec::new(), long: None }
    }

    /// Takes the next bytes of the stream, and returns the lines that end in them.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            self.extend(piece);
            if pieces.peek().is_some() {
                frames.extend(self.end());
            }
        }
        frames
    }

    /// Ends the line. Nothing if it is blank.
    pub(crate) fn end(&mut self) -> Option<Frame> {
        let line = std::mem::take(&mut self.line);
        match self.long.take() {
            Some(scanner) => Some(Frame::TooLong(scanner.id())),
            None => (!line.trim_ascii().is_empty()).then_some(Frame::Line(line)),
        }
    }

    fn extend(&mut self, piece: &[u8]) {
        match &mut self.long {
            Some(scanner) => scanner.feed(piece),
            None if self.line.len().saturating_add(piece.len()) > self.most => {
                let mut scanner = IdScanner::default();
                scanner.feed(&std::mem::take(&mut self.line));
                scanner.feed(piece);
                self.long = Some(scanner);
            }
            None => self.line.extend_from_slice(piece),
        }
    }
}

/// Bytes of an identifier, and of a key.
const MAX_TOKEN: usize = 256;

/// Finds the value of `id` in the outermost object of a JSON text, in memory that does not grow with the text.
#[derive(Debug, Default)]
struct IdScanner {
    depth: u64,
    in_string: bool,
    escaped: bool,
    /// Whether the next string at depth 1 is a key.
    at_key: bool,
    /// The key or the value of `id`, as it is read.
    token: Vec<u8>,
    /// The key that was read last at depth 1 is `id`, and this is its value.
    in_id: bool,
    /// It has more bytes than are kept.
    is_cut: bool,
    found: Option<Vec<u8>>,
}

impl IdScanner {
    fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.next(*byte);
        }
    }

    /// What was found, if it is an identifier of a request.
    fn id(self) -> Option<Json> {
        let value: Json = serde_json::from_slice(&self.found?).ok()?;
        (value.is_i64() || value.is_string()).then_some(value)
    }

    fn next(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                if self.depth == 1 && self.at_key {
                    self.token.clear();
                    self.is_cut = false;
                }
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                self.at_key = self.depth == 1 && byte == b'{';
                // An identifier is neither an object nor a list.
                self.in_id = false;
            }
            b':' if self.depth == 1 && self.at_key => {
                self.at_key = false;
                self.in_id = self.token.trim_ascii() == b"\"id\"";
                self.token.clear();
                self.is_cut = false;
                if self.in_id {
                    // The last one counts, as for every reader of JSON here.
                    self.found = None;
                }
            }
            b',' | b'}' | b']' => {
                if self.depth == 1 {
                    if self.in_id && !self.is_cut {
                        self.found = Some(std::mem::take(&mut self.token));
                    }
                    (self.in_id, self.at_key) = (false, byte == b',');
                }
                if byte != b',' {
                    self.depth = self.depth.saturating_sub(1);
                }
            }
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth != 1 || !(self.at_key || self.in_id) {
            return;
        }
        // Half a number is another number.
        self.is_cut |= self.token.len() >= MAX_TOKEN;
        if !self.is_cut {
            self.token.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(text: &str) -> Frame {
        Frame::Line(text.as_bytes().to_vec())
    }

    fn all(most: usize, chunks: &[&str]) -> Vec<Frame> {
        let mut framer = Framer::new(most);
        let mut frames: Vec<Frame> = chunks.iter().flat_map(|chunk| framer.feed(chunk.as_bytes())).collect();
        frames.extend(framer.end());
        frames
    }

    #[test]
    fn lines_are_found_wherever_the_chunks_end() {
        let text = "{\"a\":1}\n\n  \n{\"b\":2}\r\n{\"c\"";
        let want = [line("{\"a\":1}"), line("{\"b\":2}\r"), line("{\"c\"")];
        assert_eq!(all(100, &[text]), want);
        let each: Vec<&str> = text.split_inclusive(|_| true).collect();
        assert_eq!(all(100, &each), want);
    }

    #[test]
    fn a_line_of_the_most_bytes_is_one_and_a_longer_one_is_not() {
        assert_eq!(all(7, &["{\"a\":1}\n"]), [line("{\"a\":1}")]);
        assert_eq!(all(6, &["{\"a\":1}\n{}\n"]), [Frame::TooLong(None), line("{}")]);
    }

    #[test]
    fn the_identifier_of_a_long_line_is_found_at_both_ends() {
        let filler = "x".repeat(100);
        let cases = [
            (format!("{{\"id\":7,\"params\":{{\"a\":\"{filler}\"}}}}"), Some(json!(7))),
            (
                format!("{{\"params\":{{\"id\":1,\"a\":[\"{filler}\\\"}}\",{{\"id\":2}}]}},\"id\":\"a,}}\\\"b\"}}"),
                Some(json!("a,}\"b")),
            ),
            (format!("{{\"a\":\"id\",\"b\":\"{filler}\", \"id\" : 9 }}"), Some(json!(9))),
            (format!("{{\"method\":\"{filler}\"}}"), None),
            (format!("{{\"id\":null,\"a\":\"{filler}\"}}"), None),
            (format!("{{\"id\":{{\"id\":3}},\"a\":\"{filler}\"}}"), None),
            (format!("[{{\"id\":3,\"a\":\"{filler}\"}}]"), None),
            (format!("{{\"id\":\"{}\"}}", "y".repeat(300)), None),
            // What is kept of it would be another number.
            (format!("{{\"id\":{}17}}", " ".repeat(255)), None),
            (format!("{{\"id\":1,\"a\":\"{filler}\",\"id\":{{}}}}"), None),
            (format!("{{\"id\":1,\"a\":\"{filler}\",\"id\":2}}"), Some(json!(2))),
            (filler, None),
        ];
        for (text, want) in cases {
            let each: Vec<&str> = text.split_inclusive(|_| true).collect();
            assert_eq!(all(20, &[&text]), [Frame::TooLong(want.clone())], "{text}");
            assert_eq!(all(20, &each), [Frame::TooLong(want)], "{text}");
        }
    }

    #[test]
    fn a_long_line_does_not_grow_the_memory() {
        let mut framer = Framer::new(1 << 10);
        for _ in 0..1_000 {
            assert!(framer.feed(&[b'['; 4096]).is_empty());
            assert!(framer.line.capacity() < 8 << 10);
        }
        assert_eq!(framer.end(), Some(Frame::TooLong(None)));
    }
}
