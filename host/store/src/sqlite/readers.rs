//! Reads: of single rows at once, on a connection that is free, and longer ones on threads of their own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{Semaphore, oneshot};

use super::error::Fault;
use super::open::Database;
use crate::StoreError;

/// Connections for single rows. A row takes some microseconds, less than a thread needs to wake up.
const DIRECT: usize = 4;
/// Threads for the rest.
const THREADS: usize = 2;
/// Reads that wait for a thread, at most.
const QUEUE: usize = 256;

type Job = Box<dyn FnOnce(&Connection) + Send>;

#[derive(Debug)]
pub(super) struct Readers {
    /// None, after the store is closed.
    direct: Vec<Mutex<Option<Connection>>>,
    jobs: Mutex<Option<Sender<Job>>>,
    room: Arc<Semaphore>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Readers {
    /// Errors: the connections, or the threads.
    pub(super) fn start(database: &Database) -> Result<Self, String> {
        let connection = || database.reader().map_err(|error| super::error::describe(&error));
        let direct = (0..DIRECT).map(|_| Ok(Mutex::new(Some(connection()?)))).collect::<Result<_, String>>()?;
        let (sender, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let threads = (0..THREADS).map(|n| {
            let (connection, receiver) = (connection()?, receiver.clone());
            let named = std::thread::Builder::new().name(format!("store-read-{n}"));
            named.spawn(move || work(&connection, &receiver)).map_err(|error| error.to_string())
        });
        let threads = Mutex::new(threads.collect::<Result<_, String>>()?);
        Ok(Self { direct, jobs: Mutex::new(Some(sender)), room: Arc::new(Semaphore::new(QUEUE)), threads })
    }

    /// Reads single rows, with the caller's thread.
    pub(super) fn direct<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, StoreError> {
        let slot = self.slot().ok_or(StoreError::Closed)?;
        let connection = slot.as_ref().ok_or(StoreError::Closed)?;
        Ok(read(connection)?)
    }

    /// A connection that is free, or the first one as soon as it is.
    fn slot(&self) -> Option<MutexGuard<'_, Option<Connection>>> {
        for slot in &self.direct {
            match slot.try_lock() {
                Ok(slot) => return Some(slot),
                Err(TryLockError::Poisoned(slot)) => return Some(slot.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.direct.first().map(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads on a thread.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let room = self.room.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (sender, receiver) = oneshot::channel();
        let job = Box::new(move |connection: &Connection| {
            // Nobody waits for it any more: no reason to read.
            if !sender.is_closed() {
                let _ = sender.send(read(connection));
            }
            drop(room);
        });
        let sent = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|jobs| jobs.send(job));
        match sent {
            Some(Ok(())) => Ok(receiver.await.map_err(|_| StoreError::Closed)??),
            _ => Err(StoreError::Closed),
        }
    }

    /// Ends the threads after what waits, and closes the connections.
    pub(super) fn close(&self) {
        self.room.close();
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
        for slot in &self.direct {
            drop(slot.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

fn work(connection: &Connection, jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // One read that panics must not take the thread from all others. Its caller sees a closed store.
        let _ = catch_unwind(AssertUnwindSafe(|| job(connection)));
    }
}
