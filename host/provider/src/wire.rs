//! The wire formats without a wire: bytes to replies, and requests to what is sent.

use serde_json::Value as Json;
use url::Url;

use super::anthropic::Anthropic;
use super::client::Format;
use super::ollama::Ollama;
use super::openai::OpenAi;
use super::reading::Reading;
use super::{Delta, Reply, Request};

pub use super::reading::Wrong;

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Chat completions.
    Chat,
    /// Anthropic's messages.
    Messages,
    /// Ollama's own chat.
    Ollama,
}

impl Wire {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Messages, Self::Ollama];

    /// What is sent.
    pub fn body(self, request: &Request, stream: bool) -> Json {
        self.format().map_or(Json::Null, |format| format.body(request, stream))
    }

    /// The reply to a request, out of bytes in any pieces; streamed, or in one piece.
    ///
    /// # Errors
    ///
    /// Where they are no whole reply.
    pub fn read<'a>(
        self,
        request: &Request,
        streamed: bool,
        pieces: impl IntoIterator<Item = &'a [u8]>,
        heard: &mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Result<Reply, Wrong> {
        let format = self.format().map_err(|error| Wrong::Malformed(error.to_string()))?;
        let (frames, parts) = format.parts();
        let mut reading = if streamed { Reading::streamed(frames, parts) } else { Reading::whole(parts) };
        for piece in pieces {
            reading.feed(piece, heard)?;
        }
        reading.end(request, heard)
    }

    fn format(self) -> Result<Box<dyn Format>, url::ParseError> {
        let url = Url::parse("http://localhost/")?;
        Ok(match self {
            Self::Chat => Box::new(OpenAi::new(&url, false)),
            Self::Messages => Box::new(Anthropic::new(&url)),
            Self::Ollama => Box::new(Ollama::new(&url, None)),
        })
    }
}
