//! The log of a run: its events, in order, with `end` as the last.

use std::sync::Arc;

use harness_store::{Store, StoreError};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc::UnboundedReceiver;

/// Events that are written at once.
const GROUP: usize = 64;
/// Bytes of an event; a longer one says only that it was.
pub(super) const MAX_EVENT: usize = 512 << 10;

/// Writes the log of one run.
pub(super) struct LogWriter {
    pub(super) store: Arc<dyn Store>,
    /// The name of the log.
    pub(super) log: String,
    /// Its lines so far.
    pub(super) length: u64,
}

impl LogWriter {
    /// Of a log that has lines already.
    pub(super) async fn resume(store: Arc<dyn Store>, log: String) -> Result<Self, StoreError> {
        let length = match store.append(&log, u64::MAX, Vec::new()).await {
            Err(StoreError::Conflict { at, .. }) => at,
            Ok(length) => length,
            Err(error) => return Err(error),
        };
        Ok(Self { store, log, length })
    }

    pub(super) async fn write(&mut self, events: Vec<Json>) -> Result<(), StoreError> {
        let lines = events
            .into_iter()
            .map(|event| {
                let line = event.to_string().into_bytes();
                if line.len() <= MAX_EVENT {
                    return line;
                }
                json!({"type": event.get("type"), "too_long": line.len()}).to_string().into_bytes()
            })
            .collect();
        self.length = self.store.append(&self.log, self.length, lines).await?;
        Ok(())
    }

    /// Whether its last line says that the run has ended.
    pub(super) async fn has_end(&self) -> Result<bool, StoreError> {
        let last = self.store.lines(&self.log, self.length.saturating_sub(1), 1).await?;
        let last = last.first().and_then(|line| serde_json::from_slice::<Json>(&line.bytes).ok());
        Ok(last.is_some_and(|last| last.get("type").and_then(Json::as_str) == Some("end")))
    }

    /// Writes events as they come: those that come while others are written follow together. None: one was not written.
    pub(super) async fn follow(mut self, mut events: UnboundedReceiver<Json>) -> Option<Self> {
        let mut group = Vec::new();
        while events.recv_many(&mut group, GROUP).await > 0 {
            self.write(std::mem::take(&mut group)).await.ok()?;
        }
        Some(self)
    }
}
