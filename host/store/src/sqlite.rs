//! The store that is built in: one SQLite database in a folder, for one process.
//!
//! - One thread writes. What waits while it commits shares the next commit, and so the sync of the disk (`writer`).
//! - Single rows are read with the caller's thread, the rest by two more threads (`readers`). No read waits for a write.
//! - The database is in WAL mode with `synchronous=FULL`: a write is on the disk before it is visible, and before its
//!   caller learns of it.

mod backup;
mod copied;
mod error;
mod open;
mod readers;
mod rows;
mod writer;

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{Semaphore, oneshot};

pub use self::copied::Backup;
use self::error::Fault;
use self::open::Database;
pub use self::open::{OpenError, SCHEMA, user_of, version_of};
use self::readers::Readers;
use self::writer::{LITTLE, Operation, Write, Writer};
use crate::waiters::Waiters;
use crate::{Expected, Lease, Line, Pending, Store, StoreError, Timer, Versioned, sizes};

/// The version of the SQLite that is compiled in.
pub const VERSION_OF_SQLITE: i32 = rusqlite::ffi::SQLITE_VERSION_NUMBER;

/// Bytes of writes that wait, at most. Further ones wait in their callers.
const QUEUE_BYTES: usize = 128 << 20;
/// What a write counts for at least, so that no more than 4,096 wait.
const LEAST_BYTES: usize = 32 << 10;
/// The queue is counted in pieces of so many bytes.
const PIECE: usize = 1 << 10;

/// A store in a folder: the file `store.db`, its write-ahead log, and a lock file. The folder belongs to one process at a
/// time; make it one that only its owner opens.
///
/// Dropping it waits for the writes that are under way, executes those that were queued, and ends the wait of all others
/// with [`StoreError::Closed`]. Then the folder can be opened again.
#[derive(Debug)]
pub struct Sqlite {
    inner: Arc<Inner>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    /// None, after the store is closed.
    database: Mutex<Option<Arc<Database>>>,
    queue: Mutex<Option<Sender<Box<dyn Operation>>>>,
    room: Arc<Semaphore>,
    readers: Readers,
    waiters: Arc<Waiters>,
}

impl Sqlite {
    /// Opens the store of a folder, which must exist. A store that is not there is created, an older one is upgraded.
    ///
    /// Starts three threads.
    ///
    /// # Errors
    ///
    /// Another process has the store open, a newer version of Harness wrote it, it is not one of Harness, or it cannot be
    /// read or written.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, OpenError> {
        let folder = folder.as_ref();
        let (database, connection) = Database::open(folder)?;
        let database = Arc::new(database);
        let failed = |reason| OpenError::Database { path: folder.to_owned(), reason };
        let readers = Readers::start(&database).map_err(failed)?;
        let (sender, receiver) = channel();
        let writer = Writer::new(connection, database.clone(), receiver);
        let named = std::thread::Builder::new().name("store-write".to_owned());
        let writer = named.spawn(move || writer.run()).map_err(|error| failed(error.to_string()))?;
        let inner = Inner {
            database: Mutex::new(Some(database)),
            queue: Mutex::new(Some(sender)),
            room: Arc::new(Semaphore::new(QUEUE_BYTES / PIECE)),
            readers,
            waiters: Arc::default(),
        };
        Ok(Self { inner: Arc::new(inner), writer: Some(writer) })
    }

    fn write<T: Send + 'static>(
        &self,
        checked: Result<(), StoreError>,
        bytes: usize,
        work: impl Fn(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Pending<T> {
        let inner = self.inner.clone();
        Box::pin(async move {
            checked?;
            inner.write(bytes, work, |_| ()).await
        })
    }

    fn direct<T: 'static>(
        &self,
        checked: Result<(), StoreError>,
        read: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Pending<T> {
        let inner = self.inner.clone();
        Box::pin(async move {
            checked?;
            inner.readers.direct(read)
        })
    }

    fn read<T: Send + 'static>(
        &self,
        checked: Result<(), StoreError>,
        read: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Pending<T> {
        let inner = self.inner.clone();
        Box::pin(async move {
            checked?;
            inner.readers.read(read).await
        })
    }
}

impl Inner {
    /// Queues a write, and waits for its commit. After it, and before the answer, `after` gets the result.
    async fn write<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl Fn(&Connection) -> Result<T, Fault> + Send + 'static,
        after: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, StoreError> {
        let pieces = bytes.clamp(LEAST_BYTES, QUEUE_BYTES) / PIECE;
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(pieces).await.map_err(|_| StoreError::Closed)?;
        let (answer, answered) = oneshot::channel();
        self.send(Box::new(Write { work, after, result: None, answer, room, bytes }))?;
        let unknown = || StoreError::Unknown("the thread that writes has ended".to_owned());
        answered.await.unwrap_or_else(|_| Err(unknown()))
    }

    fn send(&self, operation: Box<dyn Operation>) -> Result<(), StoreError> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queue.as_ref().ok_or(StoreError::Closed)?;
        queue.send(operation).map_err(|_| StoreError::Closed)
    }

    fn database(&self) -> Result<Arc<Database>, StoreError> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(StoreError::Closed)
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        let inner = &self.inner;
        inner.room.close();
        inner.waiters.close();
        inner.readers.close();
        drop(inner.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        // The last connection is the writer's: it moves what the write-ahead log has to the database.
        let _ = self.writer.take().map(JoinHandle::join);
        drop(inner.database.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// The first refusal of several checks.
fn all<const N: usize>(checks: [Result<(), StoreError>; N]) -> Result<(), StoreError> {
    checks.into_iter().collect()
}

impl Store for Sqlite {
    fn append(&self, log: &str, expected: u64, lines: Vec<Vec<u8>>) -> Pending<u64> {
        let (inner, log) = (self.inner.clone(), log.to_owned());
        Box::pin(async move {
            all([sizes::name(&log), sizes::lines(&lines)])?;
            let bytes = lines.iter().map(Vec::len).sum();
            let (waiters, name) = (inner.waiters.clone(), log.clone());
            let work = move |connection: &Connection| rows::append(connection, &log, expected, &lines);
            inner.write(bytes, work, move |length| waiters.announce(&name, *length)).await
        })
    }

    fn lines(&self, log: &str, after: u64, most: usize) -> Pending<Vec<Line>> {
        let log = log.to_owned();
        self.read(sizes::name(&log), move |connection| rows::lines(connection, &log, after, most))
    }

    fn longer(&self, log: &str, after: u64) -> Pending<u64> {
        let (inner, log) = (self.inner.clone(), log.to_owned());
        Box::pin(async move {
            sizes::name(&log)?;
            let length = async { inner.readers.direct(|connection| rows::length(connection, &log)) };
            inner.waiters.longer(&log, after, length).await
        })
    }

    fn remove_log(&self, log: &str) -> Pending<()> {
        let (inner, log) = (self.inner.clone(), log.to_owned());
        Box::pin(async move {
            sizes::name(&log)?;
            let (waiters, name) = (inner.waiters.clone(), log.clone());
            let work = move |connection: &Connection| rows::remove_log(connection, &log);
            inner.write(0, work, move |()| waiters.announce(&name, 0)).await
        })
    }

    fn get(&self, bucket: &'static str, key: &str) -> Pending<Option<Versioned>> {
        let key = key.to_owned();
        let checked = all([sizes::name(bucket), sizes::name(&key)]);
        self.direct(checked, move |connection| rows::get(connection, bucket, &key))
    }

    fn put(&self, bucket: &'static str, key: &str, expected: Expected, value: Vec<u8>) -> Pending<u64> {
        let key = key.to_owned();
        let checked = all([sizes::name(bucket), sizes::name(&key), sizes::value(&value)]);
        self.write(checked, value.len(), move |connection| rows::put(connection, bucket, &key, expected, &value))
    }

    fn delete(&self, bucket: &'static str, key: &str, expected: Expected) -> Pending<()> {
        let key = key.to_owned();
        let checked = all([sizes::name(bucket), sizes::name(&key)]);
        self.write(checked, 0, move |connection| rows::delete(connection, bucket, &key, expected))
    }

    fn list(
        &self,
        bucket: &'static str,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Pending<Vec<(String, Versioned)>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        let checked = all([sizes::name(bucket), sizes::name(&prefix)]);
        self.read(checked, move |connection| rows::list(connection, bucket, &prefix, after.as_deref(), most))
    }

    fn put_blob(&self, bytes: Vec<u8>) -> Pending<String> {
        let inner = self.inner.clone();
        Box::pin(async move {
            sizes::blob(&bytes)?;
            // The digest of a large blob takes some time: not with the caller's thread.
            let (digest, bytes, has) = inner
                .readers
                .read(move |connection| {
                    let digest = harness_sys::digest::digest_of(&bytes);
                    let has = rows::has_blob(connection, &digest)?;
                    Ok((digest, bytes, has))
                })
                .await?;
            if !has {
                let (key, size) = (digest.clone(), bytes.len());
                let work = move |connection: &Connection| rows::put_blob(connection, &key, &bytes);
                inner.write(size, work, |()| ()).await?;
            }
            Ok(digest)
        })
    }

    fn blob(&self, digest: &str) -> Pending<Option<Vec<u8>>> {
        let digest = digest.to_owned();
        self.read(Ok(()), move |connection| rows::blob(connection, &digest))
    }

    fn remove_blob(&self, digest: &str) -> Pending<()> {
        let digest = digest.to_owned();
        self.write(Ok(()), 0, move |connection| rows::remove_blob(connection, &digest))
    }

    fn lease(&self, name: &str, holder: &str, now: u64, ms: u64) -> Pending<Option<Lease>> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        let checked = all([sizes::name(&name), sizes::name(&holder)]);
        self.write(checked, 0, move |connection| rows::lease(connection, &name, &holder, now, ms))
    }

    fn renew(&self, lease: &Lease, now: u64, ms: u64) -> Pending<bool> {
        let lease = lease.clone();
        self.write(Ok(()), 0, move |connection| rows::renew(connection, &lease, now, ms))
    }

    fn release(&self, lease: &Lease) -> Pending<()> {
        let lease = lease.clone();
        self.write(Ok(()), 0, move |connection| rows::release(connection, &lease))
    }

    fn set_timer(&self, name: &str, due: u64, payload: Vec<u8>) -> Pending<()> {
        let name = name.to_owned();
        let checked = all([sizes::name(&name), sizes::value(&payload)]);
        self.write(checked, payload.len(), move |connection| rows::set_timer(connection, &name, due, &payload))
    }

    fn cancel_timer(&self, name: &str) -> Pending<bool> {
        let name = name.to_owned();
        self.write(sizes::name(&name), 0, move |connection| rows::cancel_timer(connection, &name))
    }

    fn due(&self, now: u64, most: usize) -> Pending<Vec<Timer>> {
        self.read(Ok(()), move |connection| rows::due(connection, now, most))
    }

    fn backup(&self, to: &Path) -> Pending<()> {
        let (inner, to) = (self.inner.clone(), to.to_owned());
        Box::pin(async move {
            let database = inner.database()?;
            inner.readers.read(move |_| database.copy(&to)).await
        })
    }

    fn is_writable(&self) -> Pending<()> {
        let inner = self.inner.clone();
        Box::pin(async move {
            let room = inner.database()?.room().map_err(|error| StoreError::Failed(error.to_string()))?;
            if room < LITTLE {
                return Err(StoreError::Full);
            }
            inner.write(0, rows::probe, |()| ()).await
        })
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests")]
mod tests;
