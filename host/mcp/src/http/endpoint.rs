//! A server of the protocol behind the routes of another HTTP server, which knows who asks.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Bytes};
use hyper::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::guard::Names;
use super::{Access, BoxError, Handler, Limits};
use crate::server::Server;

/// Answers the requests of one principal. Whether a request is one of it is for its caller to know; names and origins,
/// bodies, headers and bounds are checked here.
#[derive(Clone)]
pub struct Endpoint(Arc<Handler>);

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Endpoint")
    }
}

impl Endpoint {
    /// An endpoint with bounds of its own, and some that it shares with others.
    pub fn new(server: Server, names: Names, own: Bounds, shared: Bounds) -> Self {
        let handler = Handler::new(server, Access::Open, names, Limits::default());
        Self(Arc::new(Handler { bounds: own, shared: Some(shared), ..handler }))
    }

    /// Answers a request.
    pub async fn answer<B: Body<Data = Bytes, Error: Into<BoxError>>>(
        &self,
        request: Request<B>,
    ) -> Response<BoxBody<Bytes, Infallible>> {
        self.0.answer(request).await
    }
}

/// How many requests are answered at one time. All clones are one.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Whose bounds they are, for messages.
    of: &'static str,
    in_flight: Bound,
    /// For requests to listen, which last.
    listening: Bound,
}

#[derive(Debug, Clone)]
struct Bound {
    most: usize,
    free: Arc<Semaphore>,
}

impl Bound {
    fn new(most: usize) -> Self {
        Self { most, free: Arc::new(Semaphore::new(most)) }
    }
}

impl Bounds {
    /// Bounds on requests that are answered, and on those that listen. `of` is whose they are, as ` of this key`, or empty.
    pub fn new(of: &'static str, in_flight: usize, listening: usize) -> Self {
        Self { of, in_flight: Bound::new(in_flight), listening: Bound::new(listening) }
    }

    /// A place for a request, until it is dropped.
    ///
    /// # Errors
    ///
    /// The bound, and whose it is.
    pub fn take(&self, listens: bool) -> Result<OwnedSemaphorePermit, String> {
        let bound = if listens { &self.listening } else { &self.in_flight };
        bound.free.clone().try_acquire_owned().map_err(|_| {
            let (most, of) = (bound.most, self.of);
            if listens {
                format!("{most} requests{of} listen already: end one of them first")
            } else {
                format!("{most} requests{of} are being answered: send this one again later")
            }
        })
    }

    /// Whether no request is being answered, and none listens.
    pub fn is_idle(&self) -> bool {
        [&self.in_flight, &self.listening].iter().all(|bound| bound.free.available_permits() == bound.most)
    }
}
