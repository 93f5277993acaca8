//! Connections of clients: let in, bounded in number and in time, and ended in order.
//!
//! Any service may answer their requests; what is here knows nothing of the protocol.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness_sys::socket::Socket;
use hyper::Response;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutWriter;
use tokio_util::sync::CancellationToken;

use super::Limits;
use super::listener::{ClientCertificate, Identity, Listener, Listening};
use super::threads::Threads;

/// Bytes of the head of a request.
const MAX_HEAD: usize = 64 << 10;
/// How long nobody is let in after the system had no room for another connection.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a client that has just connected has for its first request, once the server ends.
const FIRST: Duration = Duration::from_secs(5);

/// What answers the requests of connections: a service whose answers have a body, and that does not fail.
pub trait Answers:
    HttpService<Incoming, ResBody = Self::Answer, Error = Infallible, Future: Send> + Clone + Send + 'static
{
    /// The body of an answer.
    type Answer: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static;
}

impl<S, B> Answers for S
where
    S: hyper::service::Service<hyper::Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    type Answer = B;
}

/// Lets clients in and answers their requests until `end` is there. Then nobody is let in any more, `at_end` is called, what
/// was asked is answered, for `limits.drain` at most, and the socket in the file system is removed. Connections are given to
/// `threads`.
///
/// # Errors
///
/// That nobody can be let in, or that the socket cannot be removed.
pub async fn serve_connections<T>(
    listener: Listener,
    limits: Limits,
    threads: &Threads,
    service: impl Answers,
    end: impl Future<Output = T>,
    at_end: impl FnOnce(),
) -> io::Result<T> {
    let acceptor = Acceptor::new(listener)?;
    let room = Arc::new(Semaphore::new(limits.connections));
    let ending = CancellationToken::new();
    let mut connections = JoinSet::new();
    let ended = {
        let mut end = std::pin::pin!(end);
        loop {
            tokio::select! {
                biased;
                ended = &mut end => break ended,
                _ = connections.join_next(), if !connections.is_empty() => {}
                stream = acceptor.next() => match (stream, room.clone().try_acquire_owned()) {
                    (Ok(stream), Ok(place)) => {
                        let work = acceptor.clone().connection(stream, service.clone(), limits.clone(), ending.clone());
                        let (thread, work) = threads.one_more(async move {
                            work.await;
                            drop(place);
                        });
                        match thread {
                            Some(thread) => connections.spawn_on(work, thread),
                            None => connections.spawn(work),
                        };
                    }
                    (Ok(_), Err(_)) => {}
                    (Err(_), _) => tokio::time::sleep(PAUSE).await,
                }
            }
        }
    };
    let socket = acceptor.close();
    at_end();
    ending.cancel();
    let _ = timeout(limits.drain, async { while connections.join_next().await.is_some() {} }).await;
    connections.shutdown().await;
    socket.map_or(Ok(()), |socket| socket.remove())?;
    Ok(ended)
}

/// Lets connections in.
#[derive(Clone)]
enum Acceptor {
    Tcp(Arc<tokio::net::TcpListener>, Option<tokio_rustls::TlsAcceptor>),
    Local(Arc<tokio::net::UnixListener>, Arc<Socket>),
}

/// A connection that no runtime has yet: it is to be that of the thread that answers.
enum Socketed {
    Tcp(std::net::TcpStream),
    Local(std::os::unix::net::UnixStream),
}

impl Acceptor {
    fn new(listener: Listener) -> io::Result<Self> {
        Ok(match listener.socket {
            Listening::Tcp { listener, identity, .. } => {
                let listener = Arc::new(tokio::net::TcpListener::from_std(listener)?);
                Self::Tcp(listener, identity.map(Identity::into_acceptor))
            }
            Listening::Local { listener, socket } => {
                let listener = Arc::new(tokio::net::UnixListener::from_std(listener)?);
                Self::Local(listener, Arc::new(socket))
            }
        })
    }

    async fn next(&self) -> io::Result<Socketed> {
        Ok(match self {
            Self::Tcp(listener, _) => Socketed::Tcp(listener.accept().await?.0.into_std()?),
            Self::Local(listener, _) => Socketed::Local(listener.accept().await?.0.into_std()?),
        })
    }

    async fn connection(self, stream: Socketed, service: impl Answers, limits: Limits, ending: CancellationToken) {
        match (stream, self) {
            (Socketed::Tcp(stream), Self::Tcp(_, None)) => {
                let Ok(stream) = tcp(stream) else { return };
                requests(stream, service, &limits, ending, None).await;
            }
            (Socketed::Tcp(stream), Self::Tcp(_, Some(tls))) => {
                let Ok(stream) = tcp(stream) else { return };
                if let Ok(Ok(stream)) = timeout(limits.head, tls.accept(stream)).await {
                    let certificate = ClientCertificate::of(stream.get_ref().1);
                    requests(stream, service, &limits, ending, certificate).await;
                }
            }
            (Socketed::Local(stream), _) => {
                let Ok(stream) = tokio::net::UnixStream::from_std(stream) else { return };
                requests(stream, service, &limits, ending, None).await;
            }
            // There is no such pair.
            (Socketed::Tcp(_), Self::Local(..)) => {}
        }
    }

    /// Lets nobody in any more. What is left is to be removed.
    fn close(self) -> Option<Arc<Socket>> {
        match self {
            Self::Tcp(..) => None,
            Self::Local(_, socket) => Some(socket),
        }
    }
}

/// A connection of the runtime of this thread, whose answers are sent at once.
fn tcp(stream: std::net::TcpStream) -> io::Result<tokio::net::TcpStream> {
    stream.set_nodelay(true)?;
    tokio::net::TcpStream::from_std(stream)
}

/// A stream whose writes fail if the other end takes nothing of them for this long.
pub(super) fn with_write_timeout<S: AsyncRead + AsyncWrite>(stream: S, most: Duration) -> Pin<Box<TimeoutWriter<S>>> {
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(most));
    Box::pin(stream)
}

/// Answers the requests of one connection, whose client has shown this certificate.
pub(crate) async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    service: impl Answers,
    limits: &Limits,
    ending: CancellationToken,
    certificate: Option<ClientCertificate>,
) {
    let stream = TokioIo::new(with_write_timeout(stream, limits.answer));
    let asked = Arc::new(AtomicBool::new(false));
    let service = Asked { service, asked: asked.clone(), ending: ending.clone(), certificate };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_header_size(MAX_HEAD)
        .max_buf_size(2 * MAX_HEAD)
        .serve_connection(stream, service);
    let mut connection = std::pin::pin!(connection);
    // What goes wrong with a connection concerns nobody but its client, which has noticed.
    let is_ending = tokio::select! {
        _ = connection.as_mut() => false,
        () = ending.cancelled() => true,
    };
    if !is_ending {
        return;
    }
    // A connection that nothing was read of would be closed at once, with the request that is on its way.
    if !asked.load(Ordering::Relaxed) && timeout(FIRST, connection.as_mut()).await.is_ok() {
        return;
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// A service that knows whether it was asked anything. Once the server ends, each answer is the last one of its connection.
#[derive(Clone)]
struct Asked<S> {
    service: S,
    asked: Arc<AtomicBool>,
    ending: CancellationToken,
    certificate: Option<ClientCertificate>,
}

impl<S: Answers> hyper::service::Service<hyper::Request<Incoming>> for Asked<S> {
    type Response = Response<S::Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        self.asked.store(true, Ordering::Relaxed);
        if let Some(certificate) = &self.certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        // A box of its own: the types of services are deep already.
        let answer: Self::Future = Box::pin(self.service.clone().call(request));
        let ending = self.ending.clone();
        Box::pin(async move {
            let mut response = answer.await?;
            if ending.is_cancelled() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}
