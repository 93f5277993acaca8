//! The body of an answer: counted as it comes, decompressed, and counted again.
//!
//! Both counts have the same limit. Without the first, what decompresses to nothing could be sent for as long as the
//! deadline allows; without the second, a kilobyte could become a gigabyte.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder};
use bytes::{Buf as _, Bytes};
use http_body::Body as _;
use reqwest::header::HeaderValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio::task::coop;

use super::super::resources::Bodies;

/// The encodings that servers may use.
pub(super) const ACCEPTED: &str = "gzip,br";

/// Bytes that are decompressed, or come out of that, before others have their turn: some kilobytes can hold megabytes,
/// and each twenty bytes of them a whole gzip file.
const PIECE: usize = 8 << 10;

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    Brotli,
}

impl Coding {
    /// By the value of `content-encoding`. A body with another one is given as it comes.
    pub(super) fn of(value: &HeaderValue) -> Option<Self> {
        let codings = [("gzip", Self::Gzip), ("br", Self::Brotli)];
        codings
            .into_iter()
            .find_map(|(name, coding)| value.as_bytes().eq_ignore_ascii_case(name.as_bytes()).then_some(coding))
    }
}

/// Why there is no body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It has more bytes than it may have, before or after decompression.
    TooLarge,
    /// The project has no room for it now. Carries which limit that is.
    Busy(String),
    /// It breaks off, or is not compressed as it was said to be.
    Broken,
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Self {
        if error.get_ref().is_some_and(|inner| inner.is::<Over>()) { Self::TooLarge } else { Self::Broken }
    }
}

/// The whole body.
pub(super) async fn whole(
    body: reqwest::Body,
    coding: Option<Coding>,
    most: usize,
    bodies: &mut Bodies,
) -> Result<Vec<u8>, Wrong> {
    let mut wire = Wire { body, chunk: Bytes::new(), left: most, rested: true };
    // What answers HEAD says how a body would be compressed, and has none.
    if wire.fill_buf().await?.is_empty() {
        return Ok(Vec::new());
    }
    let bytes = match coding {
        None => all(&mut wire, most, bodies).await?,
        Some(Coding::Gzip) => {
            let mut decoder = GzipDecoder::new(&mut wire);
            // A gzip file is one or more of them, one after the other (RFC 1952).
            decoder.multiple_members(true);
            all(decoder, most, bodies).await?
        }
        Some(Coding::Brotli) => all(BrotliDecoder::new(&mut wire), most, bodies).await?,
    };
    // What comes after the end of what was compressed is part of nothing.
    if wire.fill_buf().await?.is_empty() { Ok(bytes) } else { Err(Wrong::Broken) }
}

/// Everything there is to read, if that is not too much.
async fn all(mut from: impl AsyncRead + Unpin, most: usize, bodies: &mut Bodies) -> Result<Vec<u8>, Wrong> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; PIECE];
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return Ok(bytes);
        }
        if count > most.saturating_sub(bytes.len()) {
            return Err(Wrong::TooLarge);
        }
        bodies.take(count).map_err(Wrong::Busy)?;
        bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
        coop::consume_budget().await;
    }
}

/// More bytes came than may come.
#[derive(Debug, thiserror::Error)]
#[error("too many bytes")]
struct Over;

/// A body as it comes over the wire.
struct Wire {
    body: reqwest::Body,
    /// What has come and was not taken yet.
    chunk: Bytes,
    /// How many bytes may still come.
    left: usize,
    /// Whether others had their turn since something was taken.
    rested: bool,
}

impl AsyncBufRead for Wire {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let Self { body, chunk, left, rested } = self.get_mut();
        while chunk.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(context)) else { return Poll::Ready(Ok(&[])) };
            // What is no data is a trailer, which nobody asked for.
            let Ok(data) = frame.map_err(io::Error::other)?.into_data() else { continue };
            if data.len() > *left {
                return Poll::Ready(Err(io::Error::other(Over)));
            }
            *left = left.saturating_sub(data.len());
            *chunk = data;
        }
        if !*rested {
            *rested = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(chunk.get(..PIECE).unwrap_or(chunk)))
    }

    fn consume(self: Pin<&mut Self>, count: usize) {
        let wire = self.get_mut();
        wire.chunk.advance(count.min(wire.chunk.len()));
        wire.rested = count == 0;
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let piece = ready!(self.as_mut().poll_fill_buf(context))?;
        let count = piece.len().min(out.remaining());
        out.put_slice(piece.get(..count).unwrap_or_default());
        self.consume(count);
        Poll::Ready(Ok(()))
    }
}
