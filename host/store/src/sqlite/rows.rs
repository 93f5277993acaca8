//! The statements: each function is one operation, inside a transaction of its caller if it writes.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Params, Row, params};

use super::error::Fault;
use crate::{Expected, Lease, Line, MAX_READ_BYTES, MAX_TIME, StoreError, Timer, Versioned};

type Result<T> = std::result::Result<T, Fault>;

/// Lines of removed logs that are deleted at one time.
const SWEPT: i64 = 1_000;

/// A number as SQLite has it. Lengths, versions and epochs never get so large; [`MAX_TIME`] is the greatest.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(unsigned)
}

fn execute(connection: &Connection, sql: &str, values: impl Params) -> rusqlite::Result<usize> {
    connection.prepare_cached(sql)?.execute(values)
}

/// The first row, if there is one.
fn first<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    connection.prepare_cached(sql)?.query_row(values, read).optional()
}

/// Rows until `read` has nothing more, or until they are more than one and over the bytes of a read.
fn within<T>(
    mut statement: CachedStatement<'_>,
    values: impl Params,
    mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<Option<(T, usize)>>,
) -> Result<Vec<T>> {
    let (mut rows, mut found, mut sum) = (statement.query(values)?, Vec::new(), 0_usize);
    while let Some(row) = rows.next()? {
        let Some((item, bytes)) = read(row)? else { break };
        sum = sum.saturating_add(bytes);
        if !found.is_empty() && sum > MAX_READ_BYTES {
            break;
        }
        found.push(item);
    }
    Ok(found)
}

/// The number of a log, and its length.
fn log_of(connection: &Connection, log: &str) -> rusqlite::Result<Option<(i64, u64)>> {
    first(connection, "SELECT id, length FROM logs WHERE name = ?1", [log], |row| Ok((row.get(0)?, number(row, 1)?)))
}

pub(super) fn length(connection: &Connection, log: &str) -> Result<u64> {
    Ok(log_of(connection, log)?.map_or(0, |(_, length)| length))
}

pub(super) fn append(connection: &Connection, log: &str, expected: u64, lines: &[Vec<u8>]) -> Result<u64> {
    let found = log_of(connection, log)?;
    let mut length = found.map_or(0, |(_, length)| length);
    Expected::Version(expected).check(length)?;
    if lines.is_empty() {
        return Ok(length);
    }
    let id = match found {
        Some((id, _)) => id,
        None => {
            execute(connection, "INSERT INTO logs (name, length) VALUES (?1, 0)", [log])?;
            connection.last_insert_rowid()
        }
    };
    let mut insert = connection.prepare_cached("INSERT INTO lines (log, position, bytes) VALUES (?1, ?2, ?3)")?;
    for line in lines {
        length = length.saturating_add(1);
        insert.execute(params![id, signed(length), line])?;
    }
    execute(connection, "UPDATE logs SET length = ?2 WHERE id = ?1", params![id, signed(length)])?;
    Ok(length)
}

pub(super) fn lines(connection: &Connection, log: &str, after: u64, most: usize) -> Result<Vec<Line>> {
    let sql = "SELECT position, bytes FROM lines WHERE log = (SELECT id FROM logs WHERE name = ?1) AND position > ?2 \
               ORDER BY position LIMIT ?3";
    within(connection.prepare_cached(sql)?, params![log, signed(after), limit(most)], |row| {
        let line = Line { position: number(row, 0)?, bytes: row.get(1)? };
        let bytes = line.bytes.len();
        Ok(Some((line, bytes)))
    })
}

/// Its lines are deleted later: a log may have a million, and others wait.
pub(super) fn remove_log(connection: &Connection, log: &str) -> Result<()> {
    if let Some((id, _)) = log_of(connection, log)? {
        execute(connection, "DELETE FROM logs WHERE id = ?1", [id])?;
        execute(connection, "INSERT INTO removed (log) VALUES (?1)", [id])?;
    }
    Ok(())
}

/// Deletes some lines of a removed log. Returns whether there may be more.
pub(super) fn sweep(connection: &Connection) -> rusqlite::Result<bool> {
    let Some(log) = first(connection, "SELECT log FROM removed LIMIT 1", [], |row| row.get::<_, i64>(0))? else {
        return Ok(false);
    };
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let sql = "DELETE FROM lines WHERE log = ?1 AND position <= (SELECT min(position) FROM lines WHERE log = ?1) + ?2";
    if execute(connection, sql, [log, SWEPT])? == 0 {
        execute(connection, "DELETE FROM removed WHERE log = ?1", [log])?;
    }
    connection.execute_batch("COMMIT")?;
    Ok(true)
}

pub(super) fn get(connection: &Connection, bucket: &str, key: &str) -> Result<Option<Versioned>> {
    let sql = "SELECT version, value FROM entries WHERE bucket = ?1 AND key = ?2";
    let read = |row: &Row<'_>| Ok(Versioned { version: number(row, 0)?, value: row.get(1)? });
    Ok(first(connection, sql, [bucket, key], read)?)
}

/// The version of a value, 0 for none.
fn version(connection: &Connection, bucket: &str, key: &str) -> rusqlite::Result<u64> {
    let sql = "SELECT version FROM entries WHERE bucket = ?1 AND key = ?2";
    Ok(first(connection, sql, [bucket, key], |row| number(row, 0))?.unwrap_or(0))
}

pub(super) fn put(connection: &Connection, bucket: &str, key: &str, expected: Expected, value: &[u8]) -> Result<u64> {
    let at = version(connection, bucket, key)?;
    expected.check(at)?;
    let sql = "SELECT version FROM used_versions WHERE bucket = ?1";
    let before = match at {
        0 => first(connection, sql, [bucket], |row| number(row, 0))?.unwrap_or(0),
        at => at,
    };
    let version = before.saturating_add(1);
    let sql = "INSERT INTO entries (bucket, key, version, value) VALUES (?1, ?2, ?3, ?4) \
               ON CONFLICT DO UPDATE SET version = excluded.version, value = excluded.value";
    execute(connection, sql, params![bucket, key, signed(version), value])?;
    Ok(version)
}

pub(super) fn delete(connection: &Connection, bucket: &str, key: &str, expected: Expected) -> Result<()> {
    let at = version(connection, bucket, key)?;
    expected.check(at)?;
    if at > 0 {
        execute(connection, "DELETE FROM entries WHERE bucket = ?1 AND key = ?2", [bucket, key])?;
        let sql = "INSERT INTO used_versions (bucket, version) VALUES (?1, ?2) \
                   ON CONFLICT DO UPDATE SET version = max(version, excluded.version)";
        execute(connection, sql, params![bucket, signed(at)])?;
    }
    Ok(())
}

pub(super) fn list(
    connection: &Connection,
    bucket: &str,
    prefix: &str,
    after: Option<&str>,
    most: usize,
) -> Result<Vec<(String, Versioned)>> {
    // Keys with the prefix are neighbours in the order of bytes, and begin with the prefix itself.
    let (from, sql) = match after {
        Some(after) if after >= prefix => {
            (after, "SELECT key, version, value FROM entries WHERE bucket = ?1 AND key > ?2 ORDER BY key LIMIT ?3")
        }
        _ => (prefix, "SELECT key, version, value FROM entries WHERE bucket = ?1 AND key >= ?2 ORDER BY key LIMIT ?3"),
    };
    within(connection.prepare_cached(sql)?, params![bucket, from, limit(most)], |row| {
        let key: String = row.get(0)?;
        if !key.starts_with(prefix) {
            return Ok(None);
        }
        let value = Versioned { version: number(row, 1)?, value: row.get(2)? };
        let bytes = key.len().saturating_add(value.value.len());
        Ok(Some(((key, value), bytes)))
    })
}

pub(super) fn has_blob(connection: &Connection, digest: &str) -> Result<bool> {
    Ok(first(connection, "SELECT 1 FROM blobs WHERE digest = ?1", [digest], |_| Ok(()))?.is_some())
}

pub(super) fn put_blob(connection: &Connection, digest: &str, bytes: &[u8]) -> Result<()> {
    execute(
        connection,
        "INSERT INTO blobs (digest, bytes) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        params![digest, bytes],
    )?;
    Ok(())
}

pub(super) fn blob(connection: &Connection, digest: &str) -> Result<Option<Vec<u8>>> {
    let bytes =
        first(connection, "SELECT bytes FROM blobs WHERE digest = ?1", [digest], |row| row.get::<_, Vec<u8>>(0))?;
    if bytes.as_ref().is_some_and(|bytes| harness_sys::digest::digest_of(bytes) != digest) {
        return Err(StoreError::Failed(format!("the blob `{digest}` is damaged")).into());
    }
    Ok(bytes)
}

pub(super) fn remove_blob(connection: &Connection, digest: &str) -> Result<()> {
    execute(connection, "DELETE FROM blobs WHERE digest = ?1", [digest])?;
    Ok(())
}

/// A moment, and the end of a lease that begins then.
fn times(now: u64, ms: u64) -> (u64, u64) {
    let now = now.min(MAX_TIME);
    (now, now.saturating_add(ms).min(MAX_TIME))
}

pub(super) fn lease(connection: &Connection, name: &str, holder: &str, now: u64, ms: u64) -> Result<Option<Lease>> {
    let (now, until) = times(now, ms);
    let sql = "SELECT holder, epoch, until FROM leases WHERE name = ?1";
    let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, number(row, 1)?, number(row, 2)?));
    let used = match first(connection, sql, [name], read)? {
        Some((other, _, until)) if other != holder && until > now => return Ok(None),
        Some((_, epoch, _)) => epoch,
        None => first(connection, "SELECT epoch FROM used_epochs", [], |row| number(row, 0))?.unwrap_or(0),
    };
    let epoch = used.saturating_add(1);
    let sql = "INSERT INTO leases (name, holder, epoch, until) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE \
               SET holder = excluded.holder, epoch = excluded.epoch, until = excluded.until";
    execute(connection, sql, params![name, holder, signed(epoch), signed(until)])?;
    Ok(Some(Lease { name: name.to_owned(), holder: holder.to_owned(), epoch }))
}

pub(super) fn renew(connection: &Connection, lease: &Lease, now: u64, ms: u64) -> Result<bool> {
    let (now, until) = times(now, ms);
    let sql = "UPDATE leases SET until = ?5 WHERE name = ?1 AND holder = ?2 AND epoch = ?3 AND until > ?4";
    let values = params![lease.name, lease.holder, signed(lease.epoch), signed(now), signed(until)];
    Ok(execute(connection, sql, values)? > 0)
}

pub(super) fn release(connection: &Connection, lease: &Lease) -> Result<()> {
    let sql = "DELETE FROM leases WHERE name = ?1 AND holder = ?2 AND epoch = ?3";
    if execute(connection, sql, params![lease.name, lease.holder, signed(lease.epoch)])? > 0 {
        let sql = "INSERT INTO used_epochs (id, epoch) VALUES (1, ?1) \
                   ON CONFLICT DO UPDATE SET epoch = max(epoch, excluded.epoch)";
        execute(connection, sql, [signed(lease.epoch)])?;
    }
    Ok(())
}

pub(super) fn set_timer(connection: &Connection, name: &str, due: u64, payload: &[u8]) -> Result<()> {
    let sql = "INSERT INTO timers (name, due, payload) VALUES (?1, ?2, ?3) \
               ON CONFLICT DO UPDATE SET due = excluded.due, payload = excluded.payload";
    execute(connection, sql, params![name, signed(due), payload])?;
    Ok(())
}

pub(super) fn cancel_timer(connection: &Connection, name: &str) -> Result<bool> {
    Ok(execute(connection, "DELETE FROM timers WHERE name = ?1", [name])? > 0)
}

pub(super) fn due(connection: &Connection, now: u64, most: usize) -> Result<Vec<Timer>> {
    let sql = "SELECT name, due, payload FROM timers WHERE due <= ?1 ORDER BY due, name LIMIT ?2";
    within(connection.prepare_cached(sql)?, params![signed(now), limit(most)], |row| {
        let timer = Timer { name: row.get(0)?, due: number(row, 1)?, payload: row.get(2)? };
        let bytes = timer.payload.len();
        Ok(Some((timer, bytes)))
    })
}

/// Writes a page that was not there before.
pub(super) fn probe(connection: &Connection) -> Result<()> {
    execute(connection, "DELETE FROM probe", [])?;
    execute(connection, "INSERT INTO probe (id, bytes) VALUES (1, randomblob(8192))", [])?;
    Ok(())
}
