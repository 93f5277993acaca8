//! A store that keeps everything in memory, for tests: the simplest one that keeps the promises, but for durability.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use harness_sys::digest::digest_of;

use crate::waiters::Waiters;
use crate::{Expected, Lease, Line, MAX_READ_BYTES, MAX_TIME, Pending, Store, StoreError, Timer, Versioned, sizes};

/// A store in memory, for tests. Its clones are the same store. What it keeps is lost with the last of them.
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    kept: Mutex<Kept>,
    waiters: Waiters,
}

#[derive(Debug, Default)]
struct Kept {
    logs: HashMap<String, Vec<Vec<u8>>>,
    buckets: HashMap<&'static str, Bucket>,
    blobs: HashMap<String, Vec<u8>>,
    leases: HashMap<String, Held>,
    /// The greatest epoch of a lease that was released.
    used_epoch: u64,
    timers: BTreeMap<String, (u64, Vec<u8>)>,
}

#[derive(Debug, Default)]
struct Bucket {
    values: BTreeMap<String, Versioned>,
    /// The greatest version of a value that was deleted.
    used: u64,
}

#[derive(Debug)]
struct Held {
    holder: String,
    epoch: u64,
    end: u64,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn operation<T: 'static>(
        &self,
        work: impl FnOnce(&mut Kept, &Waiters) -> Result<T, StoreError> + Send + 'static,
    ) -> Pending<T> {
        let inner = self.0.clone();
        Box::pin(async move { work(&mut inner.kept(), &inner.waiters) })
    }
}

impl Inner {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first items that are within the bounds of one read.
fn read<T>(items: impl Iterator<Item = T>, most: usize, bytes: impl Fn(&T) -> usize) -> Vec<T> {
    let mut sum = 0_usize;
    let within = |(n, item): &(usize, T)| {
        sum = sum.saturating_add(bytes(item));
        *n == 0 || sum <= MAX_READ_BYTES
    };
    items.take(most).enumerate().take_while(within).map(|(_, item)| item).collect()
}

impl Bucket {
    fn version(&self, key: &str) -> u64 {
        self.values.get(key).map_or(0, |value| value.version)
    }
}

impl Held {
    fn is_of(&self, lease: &Lease) -> bool {
        self.epoch == lease.epoch && self.holder == lease.holder
    }
}

impl Store for Memory {
    fn append(&self, log: &str, expected: u64, lines: Vec<Vec<u8>>) -> Pending<u64> {
        let log = log.to_owned();
        self.operation(move |kept, waiters| {
            sizes::name(&log)?;
            sizes::lines(&lines)?;
            let at = kept.logs.get(&log).map_or(0, |kept| count(kept.len()));
            Expected::Version(expected).check(at)?;
            if lines.is_empty() {
                return Ok(at);
            }
            let kept = kept.logs.entry(log.clone()).or_default();
            kept.extend(lines);
            let length = count(kept.len());
            waiters.announce(&log, length);
            Ok(length)
        })
    }

    fn lines(&self, log: &str, after: u64, most: usize) -> Pending<Vec<Line>> {
        let log = log.to_owned();
        self.operation(move |kept, _| {
            sizes::name(&log)?;
            let skipped = usize::try_from(after).unwrap_or(usize::MAX);
            let all = kept.logs.get(&log).map(Vec::as_slice).unwrap_or_default().iter().enumerate().skip(skipped);
            let lines = all.map(|(n, bytes)| Line { position: count(n).saturating_add(1), bytes: bytes.clone() });
            Ok(read(lines, most, |line| line.bytes.len()))
        })
    }

    fn longer(&self, log: &str, after: u64) -> Pending<u64> {
        let (inner, log) = (self.0.clone(), log.to_owned());
        Box::pin(async move {
            sizes::name(&log)?;
            let length = async { Ok(inner.kept().logs.get(&log).map_or(0, |lines| count(lines.len()))) };
            inner.waiters.longer(&log, after, length).await
        })
    }

    fn remove_log(&self, log: &str) -> Pending<()> {
        let log = log.to_owned();
        self.operation(move |kept, waiters| {
            sizes::name(&log)?;
            kept.logs.remove(&log);
            waiters.announce(&log, 0);
            Ok(())
        })
    }

    fn get(&self, bucket: &'static str, key: &str) -> Pending<Option<Versioned>> {
        let key = key.to_owned();
        self.operation(move |kept, _| {
            sizes::name(bucket)?;
            sizes::name(&key)?;
            Ok(kept.buckets.get(bucket).and_then(|bucket| bucket.values.get(&key)).cloned())
        })
    }

    fn put(&self, bucket: &'static str, key: &str, expected: Expected, value: Vec<u8>) -> Pending<u64> {
        let key = key.to_owned();
        self.operation(move |kept, _| {
            sizes::name(bucket)?;
            sizes::name(&key)?;
            sizes::value(&value)?;
            let bucket = kept.buckets.entry(bucket).or_default();
            let at = bucket.version(&key);
            expected.check(at)?;
            let before = if at == 0 { bucket.used } else { at };
            let version = before.saturating_add(1);
            bucket.values.insert(key, Versioned { version, value });
            Ok(version)
        })
    }

    fn delete(&self, bucket: &'static str, key: &str, expected: Expected) -> Pending<()> {
        let key = key.to_owned();
        self.operation(move |kept, _| {
            sizes::name(bucket)?;
            sizes::name(&key)?;
            let bucket = kept.buckets.entry(bucket).or_default();
            let at = bucket.version(&key);
            expected.check(at)?;
            bucket.values.remove(&key);
            bucket.used = bucket.used.max(at);
            Ok(())
        })
    }

    fn list(
        &self,
        bucket: &'static str,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Pending<Vec<(String, Versioned)>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.operation(move |kept, _| {
            sizes::name(bucket)?;
            sizes::name(&prefix)?;
            let Some(bucket) = kept.buckets.get(bucket) else { return Ok(Vec::new()) };
            let from = match &after {
                Some(after) if *after >= prefix => Bound::Excluded(after),
                _ => Bound::Included(&prefix),
            };
            let all = bucket.values.range::<String, _>((from, Bound::Unbounded));
            let found = all.take_while(|(key, _)| key.starts_with(&prefix));
            let found = found.map(|(key, value)| (key.clone(), value.clone()));
            Ok(read(found, most, |(key, value)| key.len().saturating_add(value.value.len())))
        })
    }

    fn put_blob(&self, bytes: Vec<u8>) -> Pending<String> {
        self.operation(move |kept, _| {
            sizes::blob(&bytes)?;
            let digest = digest_of(&bytes);
            kept.blobs.insert(digest.clone(), bytes);
            Ok(digest)
        })
    }

    fn blob(&self, digest: &str) -> Pending<Option<Vec<u8>>> {
        let digest = digest.to_owned();
        self.operation(move |kept, _| Ok(kept.blobs.get(&digest).cloned()))
    }

    fn remove_blob(&self, digest: &str) -> Pending<()> {
        let digest = digest.to_owned();
        self.operation(move |kept, _| {
            kept.blobs.remove(&digest);
            Ok(())
        })
    }

    fn lease(&self, name: &str, holder: &str, now: u64, ms: u64) -> Pending<Option<Lease>> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        self.operation(move |kept, _| {
            sizes::name(&name)?;
            sizes::name(&holder)?;
            let (now, end) = times(now, ms);
            let before = kept.leases.get(&name);
            if before.is_some_and(|held| held.holder != holder && held.end > now) {
                return Ok(None);
            }
            let epoch = before.map_or(kept.used_epoch, |held| held.epoch).saturating_add(1);
            kept.leases.insert(name.clone(), Held { holder: holder.clone(), epoch, end });
            Ok(Some(Lease { name, holder, epoch }))
        })
    }

    fn renew(&self, lease: &Lease, now: u64, ms: u64) -> Pending<bool> {
        let lease = lease.clone();
        self.operation(move |kept, _| {
            let (now, end) = times(now, ms);
            let held = kept.leases.get_mut(&lease.name).filter(|held| held.is_of(&lease) && held.end > now);
            Ok(held.map(|held| held.end = end).is_some())
        })
    }

    fn release(&self, lease: &Lease) -> Pending<()> {
        let lease = lease.clone();
        self.operation(move |kept, _| {
            if kept.leases.get(&lease.name).is_some_and(|held| held.is_of(&lease)) {
                kept.leases.remove(&lease.name);
                kept.used_epoch = kept.used_epoch.max(lease.epoch);
            }
            Ok(())
        })
    }

    fn set_timer(&self, name: &str, due: u64, payload: Vec<u8>) -> Pending<()> {
        let name = name.to_owned();
        self.operation(move |kept, _| {
            sizes::name(&name)?;
            sizes::value(&payload)?;
            kept.timers.insert(name, (due.min(MAX_TIME), payload));
            Ok(())
        })
    }

    fn cancel_timer(&self, name: &str) -> Pending<bool> {
        let name = name.to_owned();
        self.operation(move |kept, _| {
            sizes::name(&name)?;
            Ok(kept.timers.remove(&name).is_some())
        })
    }

    fn due(&self, now: u64, most: usize) -> Pending<Vec<Timer>> {
        self.operation(move |kept, _| {
            let mut due: Vec<_> = kept.timers.iter().filter(|(_, (due, _))| *due <= now).collect();
            due.sort_by_key(|(name, (due, _))| (*due, *name));
            let timers = due.into_iter().map(|(name, (due, payload))| Timer {
                name: name.clone(),
                due: *due,
                payload: payload.clone(),
            });
            Ok(read(timers, most, |timer| timer.payload.len()))
        })
    }

    fn backup(&self, _to: &Path) -> Pending<()> {
        self.operation(|_, _| Err(StoreError::Failed("a store in memory has no backup".to_owned())))
    }

    fn is_writable(&self) -> Pending<()> {
        self.operation(|_, _| Ok(()))
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// A moment, and the end of a lease that begins then.
fn times(now: u64, ms: u64) -> (u64, u64) {
    let now = now.min(MAX_TIME);
    (now, now.saturating_add(ms).min(MAX_TIME))
}
