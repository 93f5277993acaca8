//! The file of a store: whose it is, which version it has, and that only one process uses it.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fsync, open};
use rustix::io::Errno;

use super::error::describe;

/// The file of the database.
const DATABASE: &str = "store.db";
/// The file that a process locks while it uses the database. It holds the number of that process.
const LOCK: &str = "store.lock";
/// Marks a database as one of Harness: `Hrns`.
const APPLICATION: i32 = 0x4872_6e73;
/// The steps from each version of the schema to the next one. An empty database has version 0.
const STEPS: [&str; 1] = [include_str!("schema.sql")];
/// The version of the schema that this program writes, and the newest that it reads.
#[expect(clippy::cast_possible_wrap, clippy::cast_possible_truncation, reason = "there are few steps")]
pub const SCHEMA: i32 = STEPS.len() as i32;
/// The shortest page of a database.
const HEADER_BYTES: u64 = 512;
/// How long a connection waits while another program, such as the shell of SQLite, has the database locked.
const BUSY: Duration = Duration::from_secs(5);
/// What is left of the write-ahead log after a checkpoint, at most.
const LOG_BYTES: i64 = 16 << 20;
/// Pages in the write-ahead log before a checkpoint, which takes some milliseconds: as many bytes.
const LOG_PAGES: i64 = LOG_BYTES / 4_096;
/// Memory for pages of the connection that writes, in KiB.
const CACHE: i64 = 16 << 10;
/// Statements that a connection keeps compiled.
const STATEMENTS: usize = 48;

/// Why a store could not be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another [`Sqlite`](super::Sqlite) of this one, has it open.
    #[error("the store in `{}` is in use by process {process}", folder.display())]
    InUse {
        /// The folder of the store.
        folder: PathBuf,
        /// The number of the process, or `?`.
        process: String,
    },
    /// A newer version of Harness wrote it.
    #[error("the store in `{}` has version {found}, and this program supports versions up to {supported}", folder.display())]
    Newer {
        /// The folder of the store.
        folder: PathBuf,
        /// The version of its schema.
        found: i32,
        /// The newest version that this program can use.
        supported: i32,
    },
    /// The file is no database of Harness.
    #[error("`{}` is not a store of Harness", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A file or folder could not be opened.
    #[error("cannot open `{}`: {error}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The database could not be opened or upgraded.
    #[error("cannot open `{}`: {reason}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// A database that this process has locked.
#[derive(Debug)]
pub(super) struct Database {
    folder: PathBuf,
    /// Unlocked when it is closed.
    lock: File,
}

impl Database {
    /// Locks the database of a folder, creates it if there is none, and upgrades an older one. Gives the connection for
    /// writes too.
    pub(super) fn open(folder: &Path) -> Result<(Self, Connection), OpenError> {
        Self::open_with(folder, &STEPS)
    }

    fn open_with(folder: &Path, steps: &[&str]) -> Result<(Self, Connection), OpenError> {
        let cannot = |path: &Path| {
            let path = path.to_owned();
            move |error: std::io::Error| OpenError::File { path, error }
        };
        // A path without links: SQLite follows none.
        let folder = harness_sys::real_path(folder).map_err(cannot(folder))?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = open(&folder, flags, Mode::empty()).map_err(|error| cannot(&folder)(error.into()))?;
        let lock = harness_sys::own::file(&handle, LOCK).map_err(cannot(&folder.join(LOCK)))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(OpenError::InUse { process: holder(&lock), folder }),
            Err(error) => return Err(cannot(&folder.join(LOCK))(error.into())),
        }
        let path = folder.join(DATABASE);
        // SQLite gives its other files the mode of this one.
        let file = harness_sys::own::file(&handle, DATABASE).map_err(cannot(&path))?;
        fsync(&handle).map_err(|error| cannot(&folder)(error.into()))?;
        let length = file.metadata().map_err(cannot(&path))?.len();
        // SQLite would take so short a file for an empty one, and write over it.
        if (1..HEADER_BYTES).contains(&length) {
            return Err(OpenError::Foreign { path });
        }
        drop(file);
        let this = Self { folder, lock: lock };
        let connection = this.checked(&path, steps)?;
        // It is only for people to read.
        let _ = this.note_holder();
        Ok((this, connection))
    }

    fn note_holder(&self) -> std::io::Result<()> {
        self.lock.set_len(0)?;
        self.lock.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0)?;
        (&self.lock).flush()
    }

    /// The connection for writes, to a database that is one of Harness, in the newest version.
    fn checked(&self, path: &Path, steps: &[&str]) -> Result<Connection, OpenError> {
        let failed = |error: rusqlite::Error| unusable(path, &error);
        let mut connection = connect(path).map_err(failed)?;
        let number = |connection: &Connection, name: &str| connection.pragma_query_value(None, name, |row| row.get(0));
        let application: i32 = number(&connection, "application_id").map_err(failed)?;
        let found: i32 = number(&connection, "user_version").map_err(failed)?;
        let count = "SELECT count(*) FROM sqlite_schema";
        let items: i64 = connection.query_row(count, [], |row| row.get(0)).map_err(failed)?;
        let is_new = application == 0 && found == 0 && items == 0;
        if application != APPLICATION && !is_new {
            return Err(OpenError::Foreign { path: path.to_owned() });
        }
        let supported = i32::try_from(steps.len()).unwrap_or(i32::MAX);
        if found > supported {
            return Err(OpenError::Newer { folder: self.folder.clone(), found, supported });
        }
        connection.pragma_update(None, "cache_size", -CACHE).map_err(failed)?;
        let pages = connection.pragma_update_and_check(None, "wal_autocheckpoint", LOG_PAGES, |_| Ok(()));
        pages.map_err(failed)?;
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(failed)?;
        if mode != "wal" {
            let reason = "this file system has no shared memory, which a write-ahead log needs".to_owned();
            return Err(OpenError::Database { path: path.to_owned(), reason });
        }
        let skipped = usize::try_from(found).unwrap_or(0);
        if skipped < steps.len() {
            upgrade(&mut connection, steps.get(skipped..).unwrap_or_default(), supported).map_err(failed)?;
        }
        Ok(connection)
    }

    /// A further connection, which can only read.
    pub(super) fn reader(&self) -> rusqlite::Result<Connection> {
        let connection = connect(&self.folder.join(DATABASE))?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    }

    /// A further connection, for a backup.
    pub(super) fn copier(&self) -> rusqlite::Result<Connection> {
        connect(&self.folder.join(DATABASE))
    }

    /// Bytes that are free on its disk.
    pub(super) fn room(&self) -> std::io::Result<u64> {
        let facts = rustix::fs::statvfs(&self.folder)?;
        Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
    }
}

/// Returns the version of the schema of the store in a folder. Nothing is locked, created or upgraded; a server may run.
///
/// # Errors
///
/// There is no store, it is not one of Harness, a newer version of Harness wrote it, or it cannot be read.
pub fn version_of(folder: &Path) -> Result<i32, OpenError> {
    let cannot = |error| OpenError::File { path: folder.to_owned(), error };
    let folder = harness_sys::real_path(folder).map_err(cannot)?;
    let path = folder.join(DATABASE);
    harness_sys::length(&path).map_err(|error| OpenError::File { path: path.clone(), error })?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(&path, flags).map_err(|error| unusable(&path, &error))?;
    connection.busy_timeout(BUSY).map_err(|error| unusable(&path, &error))?;
    schema_of(&connection, &path)
}

/// Returns the process that has the store of a folder open, if one has: its number, or `?`. Nothing is created.
///
/// # Errors
///
/// What the system says.
pub fn user_of(folder: &Path) -> std::io::Result<Option<String>> {
    let lock = match harness_sys::open_file(&folder.join(LOCK)) {
        Ok(lock) => lock,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // For a moment only: a server that starts just then is refused.
    match flock(&lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(Errno::WOULDBLOCK) => Ok(Some(holder(&lock))),
        Err(error) => Err(error.into()),
    }
}

/// The version of a database, which is one of Harness and not a newer one.
pub(super) fn schema_of(connection: &Connection, path: &Path) -> Result<i32, OpenError> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let application = number("application_id").map_err(|error| unusable(path, &error))?;
    let found = number("user_version").map_err(|error| unusable(path, &error))?;
    if application != APPLICATION {
        return Err(OpenError::Foreign { path: path.to_owned() });
    }
    if found > SCHEMA {
        let folder = path.parent().unwrap_or(path).to_owned();
        return Err(OpenError::Newer { folder, found, supported: SCHEMA });
    }
    Ok(found)
}

pub(super) fn unusable(path: &Path, error: &rusqlite::Error) -> OpenError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => OpenError::Foreign { path: path.to_owned() },
        _ => OpenError::Database { path: path.to_owned(), reason: describe(error) },
    }
}

/// The process that has the lock, as it noted itself.
fn holder(lock: &File) -> String {
    let mut text = [0; 16];
    let length = lock.read_at(&mut text, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default()).trim().to_owned();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) { "?".to_owned() } else { text }
}

/// All steps or none.
fn upgrade(connection: &mut Connection, steps: &[&str], version: i32) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    steps.iter().try_for_each(|step| transaction.execute_batch(step))?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", version)?;
    transaction.commit()
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Each commit is synced before it is visible.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    Ok(connection)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests")]
#[path = "open_tests.rs"]
mod tests;
