//! Messages as bytes: headers, an empty line, and a body of the length that a header says.

use std::io::{self, BufRead, Read as _, Write};

use serde_json::Value as Json;

/// Bytes of all headers of a message.
const MAX_HEADERS: u64 = 4096;
/// Bytes of a body that is read.
pub(crate) const MAX_BODY: u64 = 16 << 20;

/// One message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Body(Vec<u8>),
    /// It has more bytes than are read, and was skipped.
    TooLong(u64),
}

/// Reads the next message; none at the end.
///
/// # Errors
///
/// What cannot be followed: nothing after it can be read.
pub(crate) fn read(input: &mut impl BufRead) -> Result<Option<Frame>, String> {
    let Some(length) = length(input)? else { return Ok(None) };
    let failed = |error: io::Error| format!("the input cannot be read: {error}");
    if length > MAX_BODY {
        let skipped = io::copy(&mut input.take(length), &mut io::sink()).map_err(failed)?;
        return if skipped == length { Ok(Some(Frame::TooLong(length))) } else { Err(cut_off(skipped, length)) };
    }
    // Grows with what comes, not with what a header claims.
    let mut body = Vec::new();
    input.take(length).read_to_end(&mut body).map_err(failed)?;
    let came = u64::try_from(body.len()).unwrap_or(u64::MAX);
    if came == length { Ok(Some(Frame::Body(body))) } else { Err(cut_off(came, length)) }
}

fn cut_off(came: u64, length: u64) -> String {
    format!("the input ended after {came} of {length} bytes of a message")
}

/// Reads the headers of a message; none at the end of the input.
fn length(input: &mut impl BufRead) -> Result<Option<u64>, String> {
    let mut headers = input.take(MAX_HEADERS);
    let mut length = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        headers.read_until(b'\n', &mut line).map_err(|error| format!("the input cannot be read: {error}"))?;
        if !line.ends_with(b"\n") {
            return match line.is_empty() && length.is_none() && headers.limit() == MAX_HEADERS {
                true => Ok(None),
                false if headers.limit() == 0 => Err(format!("the headers of a message have over {MAX_HEADERS} bytes")),
                false => Err("the input ended in the headers of a message".to_owned()),
            };
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if text.is_empty() {
            return length.map(Some).ok_or_else(|| "a message has no header `Content-Length`".to_owned());
        }
        let Some((name, value)) = text.split_once(':') else {
            return Err(format!("{text:?} is no header of a message"));
        };
        if name.trim().eq_ignore_ascii_case("Content-Length") {
            let digits = value.trim();
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_number.then(|| digits.parse().ok()).flatten();
            length =
                Some(number.ok_or_else(|| format!("`Content-Length` is {digits:?}, which is no number of bytes"))?);
        }
    }
}

/// Writes a message.
pub(crate) fn write(output: &mut impl Write, message: &Json) -> io::Result<()> {
    let body = message.to_string();
    write!(output, "Content-Length: {}\r\n\r\n{body}", body.len())?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Result<Vec<Frame>, String> {
        let mut input = io::BufReader::with_capacity(7, bytes);
        let mut found = Vec::new();
        while let Some(frame) = read(&mut input)? {
            found.push(frame);
        }
        Ok(found)
    }

    #[test]
    fn messages_one_after_the_other() {
        let bytes = b"Content-Length: 2\r\n\r\n{}content-length:3\r\nContent-Type: x\r\n\r\n[1]Content-Length: 0\n\n";
        let body = |text: &str| Frame::Body(text.as_bytes().to_vec());
        assert_eq!(of(bytes), Ok(vec![body("{}"), body("[1]"), body("")]));
        assert_eq!(of(b""), Ok(vec![]));
        let mut long = format!("Content-Length: {}\r\n\r\n", MAX_BODY + 1).into_bytes();
        long.resize(long.len() + usize::try_from(MAX_BODY).unwrap() + 1, b' ');
        long.extend(b"Content-Length: 2\r\n\r\n{}");
        assert_eq!(of(&long), Ok(vec![Frame::TooLong(MAX_BODY + 1), body("{}")]));
    }

    #[test]
    fn what_cannot_be_followed() {
        for (bytes, why) in [
            (&b"Content-Length: 5\r\n\r\n{}"[..], "the input ended after 2 of 5 bytes of a message"),
            (b"Content-Length: 99999999999\r\n\r\n{}", "the input ended after 2 of 99999999999 bytes of a message"),
            (
                b"Content-Length: 99999999999999999999\r\n\r\n",
                "`Content-Length` is \"99999999999999999999\", which is no number of bytes",
            ),
            (b"Content-Length: -1\r\n\r\n", "`Content-Length` is \"-1\", which is no number of bytes"),
            (b"Content-Length: +1\r\n\r\n", "`Content-Length` is \"+1\", which is no number of bytes"),
            (b"X: 1\r\n\r\n", "a message has no header `Content-Length`"),
            (b"\r\n", "a message has no header `Content-Length`"),
            (b"{}\r\n", "\"{}\" is no header of a message"),
            (b"Content-Length: 2\r\n", "the input ended in the headers of a message"),
            (b"Content", "the input ended in the headers of a message"),
        ] {
            assert_eq!(of(bytes), Err(why.to_owned()));
        }
        let endless = vec![b'x'; 10_000];
        assert_eq!(of(&endless), Err("the headers of a message have over 4096 bytes".to_owned()));
    }
}
