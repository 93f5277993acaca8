//! A connection whose other end has to read what is sent to it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream that fails when nothing of what is written is taken for some time.
#[derive(Debug)]
pub(super) struct Patient<S> {
    stream: S,
    most: Duration,
    /// Runs while the other end takes nothing.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Patient<S> {
    pub(super) fn new(stream: S, most: Duration) -> Self {
        Self { stream, most, waiting: None }
    }

    /// The same end of a write, unless it has taken too long.
    fn bounded<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let most = self.most;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(most)));
        waiting.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.bounded(written, context)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_flush(context);
        this.bounded(written, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_shutdown(context);
        this.bounded(written, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_is_waited_for_a_bounded_time() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = Patient::new(near, Duration::from_secs(5));
        near.write_all(b"1234").await.unwrap();
        assert_eq!(near.write_all(b"5678").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // Who reads gets on.
        let mut read = [0; 4];
        far.read_exact(&mut read).await.unwrap();
        near.write_all(b"9").await.unwrap();
    }
}
