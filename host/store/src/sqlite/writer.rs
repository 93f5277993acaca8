//! The one writer of a store: a thread that commits what waits for it in groups, so that all share one sync of the disk.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::error::{Fault, describe, is_full, is_unchanged};
use super::open::Database;
use super::rows;
use crate::StoreError;

/// The most operations of one commit.
const GROUP: usize = 256;
/// No further operation joins a commit that has as many bytes.
const GROUP_BYTES: usize = 8 << 20;
/// A disk that has less room is full, for failures that do not say so, and for who asks beforehand.
pub(super) const LITTLE: u64 = 1 << 20;

/// A write that waits for its commit.
pub(super) trait Operation: Send {
    fn bytes(&self) -> usize;
    /// Does it in a transaction. May be called again after that was rolled back. Refusing is no error.
    fn execute(&mut self, connection: &Connection) -> rusqlite::Result<()>;
    /// Answers with the result of the last execution, or with why there is none.
    fn answer(self: Box<Self>, failed: Option<StoreError>);
}

/// The write of a closure.
pub(super) struct Write<T, W, A> {
    pub(super) work: W,
    /// What happens after the commit, before the answer.
    pub(super) after: A,
    pub(super) result: Option<Result<T, StoreError>>,
    pub(super) answer: oneshot::Sender<Result<T, StoreError>>,
    /// Its part of the queue, until it is answered.
    pub(super) room: OwnedSemaphorePermit,
    pub(super) bytes: usize,
}

impl<T, W, A> Operation for Write<T, W, A>
where
    T: Send,
    W: Fn(&Connection) -> Result<T, Fault> + Send,
    A: FnOnce(&T) + Send,
{
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn execute(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.result = match (self.work)(connection) {
            Ok(result) => Some(Ok(result)),
            Err(Fault::Refused(error)) => Some(Err(error)),
            Err(Fault::Database(error)) => return Err(error),
        };
        Ok(())
    }

    fn answer(self: Box<Self>, failed: Option<StoreError>) {
        let result = match (failed, self.result) {
            (Some(error), _) => Err(error),
            (None, Some(result)) => result,
            (None, None) => Err(StoreError::Failed("the operation was not executed".to_owned())),
        };
        if let Ok(result) = &result {
            (self.after)(result);
        }
        drop(self.room);
        // Nobody may wait for it any more.
        let _ = self.answer.send(result);
    }
}

/// How a transaction ended that was not committed.
enum Ended {
    /// Nothing was changed.
    RolledBack(StoreError),
    /// It may have been.
    Unknown(StoreError),
}

type Group = Vec<Box<dyn Operation>>;

pub(super) struct Writer {
    connection: Connection,
    database: Arc<Database>,
    queue: Receiver<Box<dyn Operation>>,
    /// Whether lines of removed logs may be left.
    sweeps: bool,
    /// Why nothing is written any more.
    broken: Option<String>,
}

impl Writer {
    pub(super) fn new(connection: Connection, database: Arc<Database>, queue: Receiver<Box<dyn Operation>>) -> Self {
        Self { connection, database, queue, sweeps: true, broken: None }
    }

    /// Commits what comes, until no more can come and nothing is left.
    pub(super) fn run(mut self) {
        while let Some(group) = self.next() {
            self.commit(group);
        }
    }

    /// What waits now, at least one. Lines of removed logs are deleted while nothing does.
    fn next(&mut self) -> Option<Group> {
        let first = loop {
            match self.queue.try_recv() {
                Ok(operation) => break operation,
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) if self.sweeps => self.sweep(),
                Err(TryRecvError::Empty) => break self.queue.recv().ok()?,
            }
        };
        let mut bytes = first.bytes();
        let mut group = vec![first];
        while group.len() < GROUP && bytes < GROUP_BYTES {
            let Ok(operation) = self.queue.try_recv() else { break };
            bytes = bytes.saturating_add(operation.bytes());
            group.push(operation);
        }
        Some(group)
    }

    fn commit(&mut self, mut group: Group) {
        let failed = match self.transaction(&mut group) {
            Ok(()) => None,
            // One of them is at fault, or all are too much together: each for itself.
            Err(Ended::RolledBack(_)) if group.len() > 1 => {
                return group.into_iter().for_each(|operation| self.commit(vec![operation]));
            }
            Err(Ended::RolledBack(error) | Ended::Unknown(error)) => Some(error),
        };
        // A removed log has left lines.
        self.sweeps = true;
        group.into_iter().for_each(|operation| operation.answer(failed.clone()));
    }

    fn transaction(&mut self, group: &mut Group) -> Result<(), Ended> {
        if let Some(broken) = &self.broken {
            return Err(Ended::RolledBack(StoreError::Failed(broken.clone())));
        }
        let begun = self.connection.execute_batch("BEGIN IMMEDIATE");
        begun.map_err(|error| Ended::RolledBack(self.error(error)))?;
        for operation in group {
            if let Err(error) = operation.execute(&self.connection) {
                self.roll_back();
                return Err(Ended::RolledBack(self.error(error)));
            }
        }
        let Err(error) = self.connection.execute_batch("COMMIT") else { return Ok(()) };
        self.roll_back();
        if is_unchanged(&error) {
            return Err(Ended::RolledBack(self.error(error)));
        }
        // After a failed sync nobody knows what the disk has. What it has is read again when the store is opened.
        let reason = describe(&error);
        self.broken = Some(format!("a commit failed, and the store has to be opened again: {reason}"));
        Err(Ended::Unknown(StoreError::Unknown(reason)))
    }

    fn roll_back(&mut self) {
        // SQLite rolls back by itself after some errors.
        if self.connection.is_autocommit() {
            return;
        }
        if let Err(error) = self.connection.execute_batch("ROLLBACK") {
            let reason = describe(&error);
            self.broken = Some(format!("a transaction could not end, and the store has to be opened again: {reason}"));
        }
    }

    fn error(&self, error: rusqlite::Error) -> StoreError {
        let is_of_disk = error.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure);
        if is_full(&error) || is_of_disk && self.database.room().is_ok_and(|room| room < LITTLE) {
            return StoreError::Full;
        }
        Fault::from(error).into()
    }

    /// Deletes some lines of a removed log.
    fn sweep(&mut self) {
        // If it fails, the next write tries again.
        self.sweeps = self.broken.is_none() && rows::sweep(&self.connection).unwrap_or(false);
        self.roll_back();
    }
}
