//! Lines of a stream, bounded: a line that is too long ends the stream, as nothing after it could be trusted to be whole.

/// A line was longer than a line may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Splits a stream into lines.
#[derive(Debug)]
pub(crate) struct Lines {
    most: usize,
    line: Vec<u8>,
}

impl Lines {
    /// Lines of so many bytes at most.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, line: Vec::new() }
    }

    /// Takes the next bytes of the stream, and returns the lines that end in them. Blank ones are left out.
    ///
    /// # Errors
    ///
    /// That the line is too long which they are in. The lines before it are lost too.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut lines = Vec::new();
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            if self.line.len().saturating_add(piece.len()) > self.most {
                return Err(TooLong);
            }
            self.line.extend_from_slice(piece);
            if pieces.peek().is_some() {
                let line = std::mem::take(&mut self.line);
                if !line.trim_ascii().is_empty() {
                    lines.push(line);
                }
            }
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fed(most: usize, chunks: &[&[u8]]) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut lines = Lines::new(most);
        let fed: Result<Vec<_>, _> = chunks.iter().map(|chunk| lines.feed(chunk)).collect();
        fed.map(|all| all.concat())
    }

    #[test]
    fn a_line_has_a_bound() {
        assert_eq!(fed(3, &[b"abc\n\n \nde", b"f\n"]), Ok(vec![b"abc".to_vec(), b"def".to_vec()]));
        assert_eq!(fed(2, &[b"ab\n"]), Ok(vec![b"ab".to_vec()]));
        assert_eq!(fed(2, &[b"abc\n"]), Err(TooLong));
        // One that never ends takes no more memory than the longest that may be.
        assert_eq!(fed(2, &[b"a", b"b", b"c"]), Err(TooLong));
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_text(text in "[ab\n]{0,60}", cuts in prop::collection::vec(0_usize..60, 0..6)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let mut want: Vec<Vec<u8>> = text.split('\n').map(|line| line.as_bytes().to_vec()).collect();
            want.pop();
            want.retain(|line| !line.is_empty());
            prop_assert_eq!(fed(100, &chunks), Ok(want));
        }
    }
}
