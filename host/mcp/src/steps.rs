//! Steps of a call that runs, as `notifications/progress`, and as the message of a task.
//!
//! Their numbers rise by one, none is sent without a token of the client, and none after the answer.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::tasks::Slot;

/// Steps that wait to be sent. Of a client that reads slowly, later ones are dropped: each says all there is to know.
const WAITING: usize = 64;

/// Takes the steps of one call. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Reporter(mpsc::Sender<String>);

impl Reporter {
    /// Reports a step. Never waits.
    pub(crate) fn report(&self, message: String) {
        let _ = self.0.try_send(message);
    }
}

/// Sends the steps of one call.
pub(crate) struct Steps {
    waiting: mpsc::Receiver<String>,
    to: Option<(ProgressToken, Peer<RoleServer>)>,
    slot: Arc<Slot>,
}

impl Steps {
    /// For a request whose client wants to know of its progress, or can follow a task.
    pub(crate) fn of(context: &RequestContext<RoleServer>, slot: &Arc<Slot>) -> Option<(Reporter, Self)> {
        let to = context.meta.get_progress_token().map(|token| (token, context.peer.clone()));
        if to.is_none() && !slot.can_be() {
            return None;
        }
        let (reporter, waiting) = mpsc::channel(WAITING);
        Some((Reporter(reporter), Self { waiting, to, slot: slot.clone() }))
    }

    /// Sends steps while this work lasts. The last ones are sent before it is over.
    pub(crate) async fn during<T>(mut self, work: impl Future<Output = T>) -> T {
        let over = CancellationToken::new();
        let done = async {
            let done = work.await;
            over.cancel();
            done
        };
        let send = async {
            let mut number = 0_u32;
            loop {
                let message = tokio::select! {
                    biased;
                    message = self.waiting.recv() => message,
                    () = over.cancelled() => None,
                };
                let Some(message) = message else { break };
                // Held while a step is sent: none follows the answer that there is a task.
                let task = self.slot.get().await;
                if let Some(task) = &*task {
                    task.report(message);
                } else if let Some((token, peer)) = &self.to {
                    number = number.saturating_add(1);
                    let step = ProgressNotificationParam::new(token.clone(), f64::from(number));
                    // A client that is gone ends the call by other means.
                    let _ = peer.notify_progress(step.with_message(message)).await;
                }
            }
        };
        let (done, ()) = tokio::join!(done, send);
        done
    }
}
