//! JSON that is given as the text itself, as `@FILE`, or on standard input.

use std::io::Read;

use harness_artifact::json;
use serde_json::Value as Json;

/// Bytes that are read from a file or standard input.
const MAX_BYTES: u64 = 16 << 20;

/// The text that an argument stands for. An error is one line.
pub(crate) fn text(given: &str) -> Result<String, String> {
    match given {
        "-" => bounded(std::io::stdin().lock(), "standard input"),
        text => match text.strip_prefix('@') {
            Some(path) => {
                let file = std::fs::File::open(path).map_err(|error| format!("cannot read `{path}`: {error}"))?;
                bounded(file, path)
            }
            None => Ok(text.to_owned()),
        },
    }
}

/// The value that an argument stands for; `what` begins a message of it, such as "the payload is". In no object is a key
/// twice, and each number is one that scripts can have.
pub(crate) fn json(given: &str, what: &str) -> Result<Json, String> {
    let text = text(given)?;
    json::parse(&text, what)
}

fn bounded(source: impl Read, name: &str) -> Result<String, String> {
    let mut text = String::new();
    let read = source.take(MAX_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| format!("cannot read `{name}`: {error}"))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("`{name}` holds more than {MAX_BYTES} bytes"));
    }
    Ok(text)
}
