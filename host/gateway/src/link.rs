//! What requests to a server go through: the streams of its process, or HTTP.

use serde_json::{Value as Json, json};

use crate::connection::{Answer, Connection};
use crate::elicit::Answerer;
use crate::era::params;
use crate::failure::Failure;
use crate::limits::{PROBE, PROBE_REMOTE};
use crate::message::MODERN;
use crate::remote::Remote;
use harness_artifact::definition::Definition;

/// A process or a session of a server.
#[derive(Debug)]
pub(crate) enum Link {
    Process(Connection),
    Remote(Remote),
}

impl Link {
    /// Asks, and waits for the answer. A request whose future is dropped is canceled.
    ///
    /// # Errors
    ///
    /// Why there will be no answer.
    pub(crate) async fn request(&self, method: &str, params: &Json) -> Result<Answer, Failure> {
        match self {
            Self::Process(process) => process.request(method, params).await,
            Self::Remote(remote) => remote.request(method, params).await,
        }
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
        match self {
            Self::Process(process) => process.call(method, params, answerer).await,
            Self::Remote(remote) => remote.call(method, params, answerer).await,
        }
    }

    /// Whether the server may ask by requests, which it is told when it begins.
    pub(crate) fn can_ask(&self) -> bool {
        match self {
            Self::Process(process) => process.can_ask(),
            Self::Remote(remote) => remote.can_ask(),
        }
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, method: &str, params: &Json) {
        match self {
            Self::Process(process) => process.notify(method, params).await,
            Self::Remote(remote) => remote.notify(method, params).await,
        }
    }

    /// Asks a server that has just begun to notify of changes of its tools.
    ///
    /// # Errors
    ///
    /// Why it cannot be asked.
    pub(crate) async fn subscribe(&self, version: &str) -> Result<(), Failure> {
        match self {
            Self::Process(process) if version == MODERN => {
                let asked = json!({"notifications": {"toolsListChanged": true}});
                process.begin("subscriptions/listen", &params(MODERN, asked)).await
            }
            // An older one notifies without being asked.
            Self::Process(_) => Ok(()),
            Self::Remote(remote) => {
                remote.listen(version).await;
                Ok(())
            }
        }
    }

    /// Asks again where the last answer to [`subscribe`](Self::subscribe) has ended.
    pub(crate) async fn subscribe_again(&self, version: &str) {
        if let Self::Remote(remote) = self {
            remote.listen(version).await;
        }
    }

    /// Hears what an older server at a URL asks outside of the streams of its answers. A process has one stream for all.
    pub(crate) async fn attend(&self, version: &str) {
        if let Self::Remote(remote) = self {
            remote.attend(version).await;
        }
    }

    /// Keeps what definitions say of how their tools are called.
    pub(crate) fn learn(&self, tools: &[Definition]) {
        if let Self::Remote(remote) = self {
            remote.learn(tools);
        }
    }

    /// Whether the server may have other tools since this was last asked: it has said so, or could not say so.
    pub(crate) fn take_changed(&self) -> bool {
        match self {
            Self::Process(process) => process.take_changed(),
            Self::Remote(remote) => remote.take_changed(),
        }
    }

    /// Why it is over, where it is.
    pub(crate) fn over(&self) -> Option<String> {
        match self {
            Self::Process(process) => process.over(),
            Self::Remote(remote) => remote.over(),
        }
    }

    /// Whether a canceled request was the last one that its process served.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Process(process) => process.in_flight() == 0,
            // Each request is canceled by itself.
            Self::Remote(_) => false,
        }
    }

    /// Ends it at once.
    pub(crate) fn kill(&self, why: &str) {
        match self {
            Self::Process(process) => process.kill(why),
            Self::Remote(remote) => remote.kill(why),
        }
    }

    /// Ends it, and waits until it has.
    pub(crate) async fn close(self) {
        match self {
            Self::Process(process) => process.close().await,
            Self::Remote(remote) => remote.close().await,
        }
    }

    /// Ends what served one call alone. Nobody waits for the end of a process.
    pub(crate) async fn end(self) {
        if let Self::Remote(remote) = self {
            remote.close().await;
        }
    }

    /// Waits until the server has been silent for as long as it may be when it is asked for its revisions. A process that
    /// has not read the question yet is not silent: it starts.
    pub(crate) async fn silence(&self) {
        match self {
            Self::Process(process) => {
                process.has_read().await;
                tokio::time::sleep(PROBE).await;
            }
            Self::Remote(_) => tokio::time::sleep(PROBE_REMOTE).await,
        }
    }
}
