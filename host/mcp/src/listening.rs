//! Notifications of changes: to requests that listen for them, and up to 2025-11-25 to the client at the other end of
//! standard input.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use harness_dispatch::Servers;
use rmcp::model::{ErrorCode, ErrorData, SubscriptionFilter};
use rmcp::service::{SubscriptionContext, SubscriptionSendError};
use serde_json::{Value as Json, json};
use tokio::sync::watch;

use crate::changes::{Change, Follower, MAX_SUBSCRIBED, Subscription};
use crate::message::BUSY;
use crate::server::Server;
use crate::stdio::Outlet;

/// What of a request to listen is accepted.
pub(crate) fn accept(server: &Server, requested: &SubscriptionFilter) -> SubscriptionFilter {
    let loaded = server.project().loaded();
    server.changes().accept(&loaded, &server.grant(&loaded), requested)
}

/// Notifies the client of a request to listen, until that or the server ends.
pub(crate) async fn listen(server: &Server, context: &SubscriptionContext) {
    let mut follower = server.changes().begin(context.accepted());
    loop {
        let changes = tokio::select! {
            biased;
            () = context.cancelled() => return,
            () = server.closing().cancelled() => return,
            changes = follower.next() => changes,
        };
        for change in changes.into_iter().flatten() {
            let sink = context.sink();
            let sent = match change {
                Change::Tools => sink.notify_tool_list_changed().await,
                Change::Prompts => sink.notify_prompt_list_changed().await,
                Change::Resources => sink.notify_resource_list_changed().await,
                Change::Updated(uri) => sink.notify_resource_updated(uri).await,
            };
            match sent {
                // It did not ask for this.
                Ok(()) | Err(SubscriptionSendError::NotificationNotAccepted(_)) => {}
                Err(_) => return,
            }
        }
    }
}

/// What is kept of the client at the other end of standard input, for revisions in which it need not ask again.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    subscribed: Mutex<BTreeMap<String, Subscription>>,
    /// Follows changes from when the client has said that it is initialized.
    follower: Mutex<Option<Follower>>,
    begun: watch::Sender<bool>,
    /// Processes of servers that answer its calls: one run for it.
    pub(crate) servers: Arc<Servers>,
}

impl Connection {
    fn subscribed(&self) -> MutexGuard<'_, BTreeMap<String, Subscription>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client is initialized.
    pub(crate) fn begin(&self, server: &Server) {
        if !self.begun.send_replace(true) {
            *self.follower.lock().unwrap_or_else(PoisonError::into_inner) = Some(server.changes().follow());
            // Again, for who waits: the follower is there now.
            self.begun.send_replace(true);
        }
    }

    /// Notifies the client from then on, until nothing can be written to it any more.
    pub(crate) async fn notify(self: Arc<Self>, out: Outlet) {
        let mut begun = self.begun.subscribe();
        let mut follower = loop {
            let found = self.follower.lock().unwrap_or_else(PoisonError::into_inner).take();
            match found {
                Some(follower) => break follower,
                None if begun.changed().await.is_err() => return,
                None => {}
            }
        };
        while let Some(changes) = follower.next().await {
            for change in changes {
                let Some(message) = self.message(change) else { continue };
                let line = format!("{message}\n").into_bytes();
                if out.send(line).await.is_err() {
                    return;
                }
            }
        }
    }

    fn message(&self, change: Change) -> Option<Json> {
        let list = |of: &str| json!({"jsonrpc": "2.0", "method": format!("notifications/{of}/list_changed")});
        Some(match change {
            Change::Tools => list("tools"),
            Change::Prompts => list("prompts"),
            Change::Resources => list("resources"),
            Change::Updated(uri) if self.subscribed().contains_key(&uri) => {
                json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})
            }
            Change::Updated(_) => return None,
        })
    }
}

/// Subscribes to a resource. Over HTTP nothing is kept of a client, and nothing could be sent to it: `connection` is none.
///
/// # Errors
///
/// That no such resource is offered, or that there are too many.
pub(crate) fn subscribe(server: &Server, connection: Option<&Connection>, uri: &str) -> Result<(), ErrorData> {
    let loaded = server.project().loaded();
    let subscription = server.changes().subscribe(&loaded, &server.grant(&loaded), uri).ok_or_else(|| {
        ErrorData::resource_not_found(
            "no resource that can be read is offered under this URI",
            Some(json!({"uri": uri})),
        )
    })?;
    let Some(connection) = connection else { return Ok(()) };
    let mut subscribed = connection.subscribed();
    if subscribed.len() >= MAX_SUBSCRIBED && !subscribed.contains_key(uri) {
        let why = format!("{MAX_SUBSCRIBED} resources are subscribed to: unsubscribe from one first");
        return Err(ErrorData::new(ErrorCode(BUSY.0), why, None));
    }
    subscribed.insert(uri.to_owned(), subscription);
    Ok(())
}

/// Ends a subscription, where there is one.
pub(crate) fn unsubscribe(connection: Option<&Connection>, uri: &str) {
    let ended = connection.and_then(|connection| connection.subscribed().remove(uri));
    drop(ended);
}
