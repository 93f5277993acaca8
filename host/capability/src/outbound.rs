//! Bytes that leave the machine for a project: who counts them, and whether more may be sent.
//!
//! A request over HTTP counts by its method, its URL, its headers and its body, as they are set here; each redirect and each
//! attempt is a request of its own. A connection of a command counts by the bytes that the command sends over it. What TLS,
//! TCP and lookups of names add is not counted.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use harness_policy::refusal::Refusal;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a connection that are sent after one admission.
const PIECE: usize = 64 << 10;

/// The answer to whether more may be sent.
pub type Admission<'a> = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send + 'a>>;

/// Counts what leaves the machine.
pub trait Meter: fmt::Debug + Send + Sync {
    /// Whether something may be sent now.
    fn admit(&self) -> Admission<'_>;

    /// Counts bytes that are being sent.
    fn sent(&self, bytes: u64);

    /// Whether there is a bound at all.
    fn is_bounded(&self) -> bool;
}

/// The meter of a project. Without one, everything may be sent. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Outbound(Option<Arc<dyn Meter>>);

impl Outbound {
    /// What counts by this meter.
    pub fn new(meter: Arc<dyn Meter>) -> Self {
        Self(Some(meter))
    }

    /// Whether something bounds what is sent.
    pub fn is_bounded(&self) -> bool {
        self.0.as_ref().is_some_and(|meter| meter.is_bounded())
    }

    /// Whether something may be sent now.
    ///
    /// # Errors
    ///
    /// Why not.
    pub async fn admit(&self) -> Result<(), Refusal> {
        match &self.0 {
            Some(meter) => meter.admit().await,
            None => Ok(()),
        }
    }

    /// Admits and counts a request, just before it is sent. One that then fails or is canceled has counted.
    ///
    /// # Errors
    ///
    /// Why it may not be sent.
    pub async fn send(&self, request: &reqwest::Request) -> Result<(), Refusal> {
        let Some(meter) = &self.0 else { return Ok(()) };
        meter.admit().await?;
        meter.sent(size(request));
        Ok(())
    }

    /// A connection whose sent bytes count.
    pub(crate) fn counted<S>(&self, stream: S) -> Counted<S> {
        Counted { stream, meter: self.0.clone(), asked: None, is_admitted: false }
    }
}

/// Bytes of a request: method, URL, names and values of headers, body.
fn size(request: &reqwest::Request) -> u64 {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len().saturating_add(value.len()));
    let body = request.body().and_then(reqwest::Body::as_bytes).map_or(0, <[u8]>::len);
    let parts = [request.method().as_str().len(), request.url().as_str().len(), body];
    let all = headers.chain(parts).fold(0_usize, usize::saturating_add);
    u64::try_from(all).unwrap_or(u64::MAX)
}

/// A connection whose sent bytes count, and which fails once no more may be sent.
pub(crate) struct Counted<S> {
    stream: S,
    meter: Option<Arc<dyn Meter>>,
    /// The question whether the next piece may be sent.
    asked: Option<Admission<'static>>,
    /// Whether a piece was admitted that was not sent yet.
    is_admitted: bool,
}

impl<S> Counted<S> {
    /// Waits until the next piece may be sent.
    fn poll_admitted(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(meter) = self.meter.as_ref().filter(|_| !self.is_admitted) else { return Poll::Ready(Ok(())) };
        let asked = self.asked.get_or_insert_with(|| {
            let meter = meter.clone();
            Box::pin(async move { meter.admit().await })
        });
        let admitted = ready!(asked.as_mut().poll(cx));
        self.asked = None;
        self.is_admitted = admitted.is_ok();
        Poll::Ready(admitted.map_err(|refusal| io::Error::other(refusal.reason)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, to)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_admitted(cx))?;
        let piece = bytes.get(..bytes.len().min(PIECE)).unwrap_or(bytes);
        let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, piece))?;
        self.is_admitted = false;
        if let Some(meter) = &self.meter {
            meter.sent(u64::try_from(sent).unwrap_or(u64::MAX));
        }
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Lets something be sent while fewer bytes than this were.
    #[derive(Debug)]
    struct UpTo(u64, AtomicU64);

    impl Meter for UpTo {
        fn admit(&self) -> Admission<'_> {
            Box::pin(async {
                tokio::task::yield_now().await;
                let is_left = self.1.load(Ordering::Relaxed) < self.0;
                is_left.then_some(()).ok_or_else(|| Refusal::always("used up"))
            })
        }

        fn sent(&self, bytes: u64) {
            self.1.fetch_add(bytes, Ordering::Relaxed);
        }

        fn is_bounded(&self) -> bool {
            true
        }
    }

    fn up_to(most: u64) -> (Arc<UpTo>, Outbound) {
        let meter = Arc::new(UpTo(most, AtomicU64::new(0)));
        (meter.clone(), Outbound::new(meter))
    }

    #[tokio::test]
    async fn a_request_counts_by_its_parts_and_is_the_last_that_goes_over() {
        let (meter, outbound) = up_to(30);
        let mut request = reqwest::Request::new(reqwest::Method::POST, "http://a.test/x".parse().unwrap());
        request.headers_mut().insert("a", "bc".parse().unwrap());
        *request.body_mut() = Some("four".into());
        // POST, 15 of the URL, 3 of the header, 4 of the body.
        for all in [26, 52] {
            assert_eq!((outbound.send(&request).await, meter.1.load(Ordering::Relaxed)), (Ok(()), all));
        }
        assert_eq!(outbound.send(&request).await, Err(Refusal::always("used up")));
        assert_eq!(meter.1.load(Ordering::Relaxed), 52);
        assert_eq!(Outbound::default().send(&request).await, Ok(()));
    }

    #[tokio::test]
    async fn a_connection_ends_where_no_more_may_be_sent() {
        for (most, sent) in [(u64::MAX, 4 * PIECE), (PIECE as u64 + 1, 2 * PIECE), (0, 0)] {
            let (meter, outbound) = up_to(most);
            let (near, mut far) = tokio::io::duplex(8 * PIECE);
            let mut counted = outbound.counted(near);
            far.write_all(b"back").await.unwrap();
            let all = counted.write_all(&vec![1; 4 * PIECE]).await;
            let why = (sent < 4 * PIECE).then(|| "used up".to_owned());
            assert_eq!(all.err().map(|error| error.to_string()), why);
            // What comes is not counted, and comes all the same.
            let mut back = [0; 4];
            counted.read_exact(&mut back).await.unwrap();
            drop(counted);
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.unwrap();
            assert_eq!((all.len(), meter.1.load(Ordering::Relaxed), &back), (sent, sent as u64, b"back"));
        }
    }
}
