//! A reply out of bytes that come in any pieces. Pure: the connection is elsewhere.

use serde_json::Value as Json;

use super::draft::Draft;
use super::lines::Lines;
use super::sse::Events;
use super::{Delta, Reply, Request};

/// Bytes of a stream. A token is some 300 of them in the wordiest format.
pub(super) const MAX_STREAM_BYTES: u64 = 128 << 20;

/// The receiver of what arrives before the end.
pub(super) type Heard<'a> = dyn FnMut(Delta<'_>) + Send + 'a;

/// Why bytes are no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// They end before the reply does, or the service gave it up. Carries where.
    Cut(String),
    /// They are something else. Carries what is wrong.
    Malformed(String),
    /// The service refuses after it began to answer.
    Refused {
        /// That HTTP would have for it.
        status: u16,
        /// What the service says.
        message: String,
    },
}

/// How far a reply has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is more to come.
    Begun,
    /// It is whole; what it used may follow.
    Whole,
    /// Nothing follows.
    Done,
}

/// How a stream is cut into documents of JSON.
#[derive(Debug)]
pub(super) enum Frames {
    /// Server-sent events.
    Events(Events),
    /// One on each line.
    Lines(Lines),
}

/// One wire format's view of a reply: takes documents, and builds a draft of them.
pub(super) trait Parts: Send {
    /// Takes the next document of a stream.
    fn take(&mut self, document: &str, heard: &mut Heard<'_>) -> Result<(), Wrong>;

    /// Takes a reply that came in one piece.
    fn take_whole(&mut self, document: &str, heard: &mut Heard<'_>) -> Result<(), Wrong>;

    /// Whether a stream of this format is one of events.
    fn is_events(&self) -> bool;

    /// How far the reply has come.
    fn progress(&self) -> Progress;

    /// What was built.
    fn draft(self: Box<Self>) -> Draft;
}

/// A reply that is being read.
pub(super) struct Reading {
    /// None where the reply comes in one piece.
    frames: Option<Frames>,
    /// Something came, and what it is was seen.
    seen: bool,
    whole: Vec<u8>,
    parts: Box<dyn Parts>,
    bytes: u64,
}

impl Reading {
    /// A reply that is streamed.
    pub(super) fn streamed(frames: Frames, parts: Box<dyn Parts>) -> Self {
        Self { frames: Some(frames), seen: false, whole: Vec::new(), parts, bytes: 0 }
    }

    /// A reply in one piece.
    pub(super) fn whole(parts: Box<dyn Parts>) -> Self {
        Self { frames: None, seen: false, whole: Vec::new(), parts, bytes: 0 }
    }

    /// Takes the next bytes, and says how far the reply has come.
    pub(super) fn feed(&mut self, bytes: &[u8], heard: &mut Heard<'_>) -> Result<Progress, Wrong> {
        self.see(bytes)?;
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let most = if self.frames.is_some() { MAX_STREAM_BYTES } else { super::draft::MAX_REPLY_BYTES as u64 };
        if self.bytes > most {
            return Err(Wrong::Malformed(format!("it is longer than {most} bytes")));
        }
        let parts = &mut self.parts;
        let mut take = |document: &str| match parts.progress() {
            Progress::Done => Ok(()),
            _ if document.trim().is_empty() => Ok(()),
            _ => parts.take(document, heard),
        };
        match &mut self.frames {
            Some(Frames::Events(events)) => events.feed(bytes, &mut take)?,
            Some(Frames::Lines(lines)) => lines.feed(bytes, &mut take)?,
            None => self.whole.extend_from_slice(bytes),
        }
        Ok(self.parts.progress())
    }

    /// Services answer in one piece where a stream was asked for, and the other way round, whatever their answer says of
    /// its type. The first byte decides: no event begins as a value of JSON does.
    fn see(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        let Some(first) = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) else { return Ok(()) };
        if std::mem::replace(&mut self.seen, true) {
            return Ok(());
        }
        match (first, &self.frames) {
            (b'<', _) => {
                return Err(Wrong::Malformed("it is a web page and not a reply: is `base_url` right?".to_owned()));
            }
            (b'{' | b'[', Some(Frames::Events(_))) => self.frames = None,
            (b'{' | b'[', _) => {}
            (_, None) if self.parts.is_events() => self.frames = Some(Frames::Events(Events::default())),
            _ => {}
        }
        Ok(())
    }

    /// The reply, where nothing more comes.
    pub(super) fn end(mut self, request: &Request, heard: &mut Heard<'_>) -> Result<Reply, Wrong> {
        let rest = match &mut self.frames {
            Some(Frames::Events(events)) => events.rest(),
            Some(Frames::Lines(lines)) => lines.rest(),
            None => {
                let text = String::from_utf8_lossy(&self.whole);
                // What stood before it may have come on its own and is gone: places in messages count from its start.
                let text = text.trim_start();
                if text.is_empty() {
                    return Err(Wrong::Cut("it is empty".to_owned()));
                }
                self.parts.take_whole(text, heard)?;
                None
            }
        };
        if let Some(rest) = rest.filter(|rest| !rest.trim().is_empty())
            && self.parts.progress() == Progress::Begun
        {
            // Without the end of its line it may be half of a document, which is no malformed one.
            self.parts.take(&rest, heard).map_err(|wrong| match wrong {
                Wrong::Malformed(_) => Wrong::Cut("it ended in the middle of a line".to_owned()),
                other => other,
            })?;
        }
        self.parts.draft().finish(request)
    }
}

/// Reads a document, or says where it is none.
pub(super) fn parse<'a, T: serde::Deserialize<'a>>(document: &'a str) -> Result<T, Wrong> {
    serde_json::from_str(document).map_err(|error| unreadable(&error))
}

/// Why a document cannot be read.
pub(super) fn unreadable(error: &serde_json::Error) -> Wrong {
    if error.is_eof() {
        return Wrong::Cut("it ended in the middle of a value".to_owned());
    }
    Wrong::Malformed(format!("it does not match the format: {error}"))
}

/// Arguments of a call as JSON text, where a service gives the text or the object itself.
pub(super) fn json_text(arguments: Option<Json>) -> String {
    match arguments {
        None | Some(Json::Null) => String::new(),
        Some(Json::String(text)) => text,
        Some(other) => other.to_string(),
    }
}

/// What a service says of an error, in any of the forms that services have: an object with a `message`, text, or else
/// the JSON of it.
pub(super) fn message_of(error: &Json) -> String {
    let text = error.get("message").unwrap_or(error);
    text.as_str().map_or_else(|| text.to_string(), str::to_owned)
}
