//! Requests to a server at a URL, over Streamable HTTP in both eras of the protocol.
//!
//! Each message is a request of its own, answered by JSON or by a stream of events. What is read is held against what was
//! asked, as for a process: an answer to something else or a flood of messages ends the session.

mod exchange;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value as Json, json};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;
use url::Url;

use crate::askers::Askers;
use crate::connection::Answer;
use crate::elicit::Answerer;
use crate::failure::Failure;
use crate::limits::{ATTEND, END, IN_FLIGHT};
use crate::message::MODERN;
use crate::oauth::Login;
use harness_artifact::definition::{Definition, ParamHeader};
use harness_capability::http::Client;
use harness_capability::secrets::Vault;
use harness_policy::grant::Grant;

pub(crate) use exchange::failure;

/// Why a session is over that the server does not know any more. Another one may be begun.
pub(crate) const LOST: &str = "the server has ended its session";

/// A session with a server, or what takes the place of one where the protocol has none. Dropping it ends what it hears.
#[derive(Debug)]
pub(crate) struct Remote {
    shared: Arc<Shared>,
    room: Semaphore,
    next: AtomicU64,
    listener: Mutex<Option<JoinHandle<()>>>,
}

/// How a server is reached.
pub(crate) struct Reach {
    /// Where each message is posted to.
    pub(crate) url: Url,
    /// Headers of each request, with secrets in their values.
    pub(crate) sealed: Vec<(String, String)>,
    pub(crate) http: Client,
    pub(crate) grant: Grant,
    pub(crate) vault: Arc<Vault>,
    /// The login there, where there is one.
    pub(crate) login: Option<Login>,
    /// Whether the server may ask a person, which it is told when it begins.
    pub(crate) can_ask: bool,
}

struct Shared {
    reach: Reach,
    session: Mutex<Session>,
    /// The calls that answer what the server asks.
    askers: Askers,
    over: watch::Sender<Option<String>>,
    /// Whether the server has said that its tools are others.
    changed: AtomicBool,
    /// Whether it was asked to notify of that.
    listens: AtomicBool,
    /// Whether it has no stream for that.
    is_mute: AtomicBool,
}

/// Without the headers, which hold secrets.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("url", &self.reach.url.as_str()).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Session {
    /// The revision that was agreed on, of those that begin with `initialize`.
    version: Option<String>,
    id: Option<String>,
    /// Arguments that are headers too, by the name of the tool.
    mirrored: HashMap<String, Vec<ParamHeader>>,
}

impl Shared {
    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all requests, for this reason; the first one counts.
    fn end(&self, why: &str) {
        self.over.send_if_modified(|over| {
            let is_first = over.is_none();
            over.get_or_insert_with(|| why.to_owned());
            is_first
        });
    }

    fn broken(&self) -> Failure {
        Failure::Broken(self.over.borrow().clone().unwrap_or_else(|| "it was ended".to_owned()))
    }
}

impl Remote {
    /// Sends nothing yet.
    pub(crate) fn new(reach: Reach) -> Self {
        let shared = Shared {
            reach,
            session: Mutex::default(),
            askers: Askers::default(),
            over: watch::Sender::new(None),
            changed: AtomicBool::new(false),
            listens: AtomicBool::new(false),
            is_mute: AtomicBool::new(false),
        };
        let (room, next) = (Semaphore::new(IN_FLIGHT), AtomicU64::new(1));
        Self { shared: Arc::new(shared), room, next, listener: Mutex::default() }
    }

    /// Asks, and waits for the answer. A request whose future is dropped is canceled.
    ///
    /// # Errors
    ///
    /// Why there will be no answer.
    pub(crate) async fn request(&self, method: &str, params: &Json) -> Result<Answer, Failure> {
        self.call(method, params, None).await
    }

    /// The same for a call, during which the server may ask a person.
    ///
    /// # Errors
    ///
    /// As for [`request`](Self::request).
    pub(crate) async fn call(
        &self,
        method: &str,
        params: &Json,
        answerer: Option<&dyn Answerer>,
    ) -> Result<Answer, Failure> {
        let _room = self.room.acquire().await;
        let mut over = self.shared.over.subscribe();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut sent = Sent { shared: &self.shared, id, is_canceled: method != "initialize" };
        let asked = async {
            let answer = self.shared.ask(id, method, params);
            match answerer {
                Some(answerer) => {
                    let asking = self.shared.askers.enter(id);
                    asking.until(answer, answerer, &*self.shared).await
                }
                None => answer.await,
            }
        };
        let answer = tokio::select! {
            biased;
            () = ended(&mut over) => Err(self.shared.broken()),
            answer = asked => answer,
        };
        sent.is_canceled = false;
        // What others say in an error may hold a token too.
        answer.map_err(|failure| match &self.shared.reach.login {
            Some(login) => login.redact_failure(failure),
            None => failure,
        })
    }

    /// Whether the server may ask a person.
    pub(crate) fn can_ask(&self) -> bool {
        self.shared.reach.can_ask
    }

    /// Sends a notification. Whether it was taken shows with the next request.
    pub(crate) async fn notify(&self, method: &str, params: &Json) {
        self.shared.notify(method, params).await;
    }

    /// Listens for changes of the server's tools, unless it does already. Returns when the server has heard of that.
    pub(crate) async fn listen(&self, version: &str) {
        self.shared.listens.store(true, Ordering::Release);
        self.hear(version).await;
    }

    /// Hears what an older server asks outside of the streams of its answers, unless it does already. One that does not
    /// begin to say something is not waited for.
    pub(crate) async fn attend(&self, version: &str) {
        if self.can_ask() && version != MODERN {
            let _ = tokio::time::timeout(ATTEND, self.hear(version)).await;
        }
    }

    async fn hear(&self, version: &str) {
        if self.shared.is_mute.load(Ordering::Acquire) {
            return;
        }
        let (ready, begun) = oneshot::channel();
        {
            let mut listener = self.listener();
            if listener.as_ref().is_some_and(|task| !task.is_finished()) {
                return;
            }
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let (shared, is_modern) = (self.shared.clone(), version == MODERN);
            *listener = Some(tokio::spawn(async move { shared.hear(id, is_modern, ready).await }));
        }
        let _ = begun.await;
    }

    /// Keeps which arguments are headers too.
    pub(crate) fn learn(&self, tools: &[Definition]) {
        let mirrored = tools.iter().map(|tool| (tool.name().to_owned(), tool.mirrored().unwrap_or_default()));
        self.shared.session().mirrored = mirrored.filter(|(_, headers)| !headers.is_empty()).collect();
    }

    /// Whether the server may have other tools since this was last asked: it has said so, or nobody was listening.
    pub(crate) fn take_changed(&self) -> bool {
        let is_deaf = self.shared.listens.load(Ordering::Acquire)
            && !self.shared.is_mute.load(Ordering::Acquire)
            && self.listener().as_ref().is_none_or(JoinHandle::is_finished);
        self.shared.changed.swap(false, Ordering::AcqRel) || is_deaf
    }

    /// Why it is over, where it is.
    pub(crate) fn over(&self) -> Option<String> {
        self.shared.over.borrow().clone()
    }

    /// Ends it at once.
    pub(crate) fn kill(&self, why: &str) {
        self.shared.end(why);
        self.deafen();
    }

    /// Ends it, at the server too where that has a session.
    pub(crate) async fn close(self) {
        self.deafen();
        if self.shared.session().id.is_some() && self.over().is_none() {
            let _ = tokio::time::timeout(END, self.shared.end_session()).await;
        }
    }

    fn listener(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deafen(&self) {
        if let Some(task) = self.listener().take() {
            task.abort();
        }
    }
}

/// Waits until a session is over.
async fn ended(over: &mut watch::Receiver<Option<String>>) {
    let _ = over.wait_for(Option::is_some).await;
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.deafen();
    }
}

/// A request that was sent. Dropped before the answer is there, it is canceled: by the end of its connection, and at an
/// older server by a notification too.
struct Sent<'r> {
    shared: &'r Arc<Shared>,
    id: u64,
    is_canceled: bool,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if !self.is_canceled || self.shared.session().version.is_none() {
            return;
        }
        let (shared, id) = (self.shared.clone(), self.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let params = json!({"requestId": id});
                let _ = tokio::time::timeout(END, shared.notify("notifications/cancelled", &params)).await;
            });
        }
    }
}
