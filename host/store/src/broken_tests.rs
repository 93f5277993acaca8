//! Stores that break a promise each, to show that the suite notices.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::suite::{CHECKS, Opener};
use crate::tests::runtime;
use crate::{Expected, Lease, Line, Memory, Pending, Store, StoreError, Timer, Versioned};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    ForgetsEverything,
    AppendExpectsAnything,
    AppendsLineByLine,
    ChecksBeforeItAppends,
    RemovesNoLog,
    WakesEarly,
    PutExpectsAnything,
    ChecksBeforeItPuts,
    DeleteExpectsAnything,
    ListsEveryPrefix,
    ListsAfterWithIt,
    ListsTooMany,
    ListsBackwards,
    WritesBeforeItIsPolled,
    LeaseRunsOutEarly,
    LeaseNeverRunsOut,
    RenewsWhatRanOut,
    ReleasesForOthers,
    TimersByName,
    TimersEndByThemselves,
    CancelsForAll,
    RemovesNoBlob,
    TakesAnySize,
}

#[derive(Debug)]
struct Broken(Memory, Fault);

impl Broken {
    fn has(&self, fault: Fault) -> bool {
        self.1 == fault
    }
}

fn split(lines: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    lines.iter().map(|line| vec![line.clone()]).collect()
}

impl Store for Broken {
    fn append(&self, log: &str, expected: u64, lines: Vec<Vec<u8>>) -> Pending<u64> {
        let (memory, log) = (self.0.clone(), log.to_owned());
        if self.has(Fault::AppendExpectsAnything) || self.has(Fault::ChecksBeforeItAppends) {
            let checks = self.has(Fault::ChecksBeforeItAppends);
            return Box::pin(async move {
                let length = async || memory.lines(&log, 0, usize::MAX).await.map(|lines| lines.len() as u64);
                let at = length().await?;
                if checks && at != expected {
                    return Err(StoreError::Conflict { expected, at });
                }
                tokio::task::yield_now().await;
                memory.append(&log, length().await?, lines).await
            });
        }
        if self.has(Fault::AppendsLineByLine) && lines.len() > 1 {
            return Box::pin(async move {
                let mut length = expected;
                for line in split(&lines) {
                    length = memory.append(&log, length, line).await?;
                    tokio::task::yield_now().await;
                }
                Ok(length)
            });
        }
        self.0.append(&log, expected, lines)
    }

    fn lines(&self, log: &str, after: u64, most: usize) -> Pending<Vec<Line>> {
        self.0.lines(log, after, most)
    }

    fn longer(&self, log: &str, after: u64) -> Pending<u64> {
        let early = u64::from(self.has(Fault::WakesEarly));
        self.0.longer(log, after.saturating_sub(early))
    }

    fn remove_log(&self, log: &str) -> Pending<()> {
        if self.has(Fault::RemovesNoLog) { Box::pin(async { Ok(()) }) } else { self.0.remove_log(log) }
    }

    fn get(&self, bucket: &'static str, key: &str) -> Pending<Option<Versioned>> {
        self.0.get(bucket, key)
    }

    fn put(&self, bucket: &'static str, key: &str, expected: Expected, value: Vec<u8>) -> Pending<u64> {
        if self.has(Fault::TakesAnySize) {
            return self.0.put(bucket, key, expected, value.into_iter().take(crate::MAX_VALUE_BYTES).collect());
        }
        if self.has(Fault::WritesBeforeItIsPolled) {
            let mut put = self.0.put(bucket, key, expected, value);
            let Poll::Ready(result) = put.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
                panic!("pending")
            };
            return Box::pin(async { result });
        }
        if self.has(Fault::ChecksBeforeItPuts) {
            let (memory, key) = (self.0.clone(), key.to_owned());
            return Box::pin(async move {
                let at = memory.get(bucket, &key).await?.map_or(0, |value| value.version);
                expected.check(at)?;
                tokio::task::yield_now().await;
                memory.put(bucket, &key, Expected::Anything, value).await
            });
        }
        let expected = if self.has(Fault::PutExpectsAnything) { Expected::Anything } else { expected };
        self.0.put(bucket, key, expected, value)
    }

    fn delete(&self, bucket: &'static str, key: &str, expected: Expected) -> Pending<()> {
        let expected = if self.has(Fault::DeleteExpectsAnything) { Expected::Anything } else { expected };
        self.0.delete(bucket, key, expected)
    }

    fn list(
        &self,
        bucket: &'static str,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Pending<Vec<(String, Versioned)>> {
        let prefix = if self.has(Fault::ListsEveryPrefix) { "" } else { prefix };
        let most = if self.has(Fault::ListsTooMany) { most.saturating_add(1) } else { most };
        let listed = self.0.list(bucket, prefix, after, most);
        if self.has(Fault::ListsBackwards) {
            return Box::pin(async move { Ok(listed.await?.into_iter().rev().collect()) });
        }
        if let (true, Some(after)) = (self.has(Fault::ListsAfterWithIt), after) {
            let (it, after) = (self.0.get(bucket, after), after.to_owned());
            let is_within = after.starts_with(prefix);
            return Box::pin(async move {
                let it = it.await?.filter(|_| is_within).map(|value| (after, value));
                Ok(it.into_iter().chain(listed.await?).take(most).collect())
            });
        }
        listed
    }

    fn put_blob(&self, bytes: Vec<u8>) -> Pending<String> {
        self.0.put_blob(bytes)
    }

    fn blob(&self, digest: &str) -> Pending<Option<Vec<u8>>> {
        self.0.blob(digest)
    }

    fn remove_blob(&self, digest: &str) -> Pending<()> {
        if self.has(Fault::RemovesNoBlob) { Box::pin(async { Ok(()) }) } else { self.0.remove_blob(digest) }
    }

    fn lease(&self, name: &str, holder: &str, now: u64, ms: u64) -> Pending<Option<Lease>> {
        match self.1 {
            Fault::LeaseRunsOutEarly => self.0.lease(name, holder, now.saturating_add(1), ms.saturating_sub(1)),
            Fault::LeaseNeverRunsOut => self.0.lease(name, holder, now, u64::MAX),
            _ => self.0.lease(name, holder, now, ms),
        }
    }

    fn renew(&self, lease: &Lease, now: u64, ms: u64) -> Pending<bool> {
        let now = if self.has(Fault::RenewsWhatRanOut) { 0 } else { now };
        self.0.renew(lease, now, ms)
    }

    fn release(&self, lease: &Lease) -> Pending<()> {
        if self.has(Fault::ReleasesForOthers) {
            let (memory, lease) = (self.0.clone(), lease.clone());
            return Box::pin(async move {
                for holder in ["a", "b", "c"] {
                    for epoch in 0..9 {
                        memory.release(&Lease { name: lease.name.clone(), holder: holder.to_owned(), epoch }).await?;
                    }
                }
                Ok(())
            });
        }
        self.0.release(lease)
    }

    fn set_timer(&self, name: &str, due: u64, payload: Vec<u8>) -> Pending<()> {
        self.0.set_timer(name, due, payload)
    }

    fn cancel_timer(&self, name: &str) -> Pending<bool> {
        let cancelled = self.0.cancel_timer(name);
        if self.has(Fault::CancelsForAll) {
            return Box::pin(async move { cancelled.await.map(|_| true) });
        }
        cancelled
    }

    fn due(&self, now: u64, most: usize) -> Pending<Vec<Timer>> {
        let (memory, by_name, ends) =
            (self.0.clone(), self.has(Fault::TimersByName), self.has(Fault::TimersEndByThemselves));
        Box::pin(async move {
            let mut due = memory.due(now, most).await?;
            if by_name {
                due.sort_by(|a, b| a.name.cmp(&b.name));
            }
            for timer in due.iter().filter(|_| ends) {
                memory.cancel_timer(&timer.name).await?;
            }
            Ok(due)
        })
    }

    fn backup(&self, to: &Path) -> Pending<()> {
        self.0.backup(to)
    }

    fn is_writable(&self) -> Pending<()> {
        self.0.is_writable()
    }
}

/// The checks that fail with a store of this fault.
fn noticed(fault: Fault) -> BTreeSet<&'static str> {
    let failed = |check: crate::suite::Check| {
        let memory = Memory::new();
        let open: Opener = Box::new(move || {
            let memory = if fault == Fault::ForgetsEverything { Memory::new() } else { memory.clone() };
            Arc::new(Broken(memory, fault))
        });
        catch_unwind(AssertUnwindSafe(|| runtime().block_on(check(open)))).is_err()
    };
    CHECKS.iter().filter(|(_, check)| failed(*check)).map(|(name, _)| *name).collect()
}

#[test]
fn the_suite_notices_each_fault() {
    use Fault::*;
    let faults = [
        (ForgetsEverything, "everything_is_there_when_it_is_opened_again"),
        (AppendExpectsAnything, "conflicts_leave_a_log_alone"),
        (AppendsLineByLine, "appends_are_whole"),
        (ChecksBeforeItAppends, "rivals_for_a_log_have_one_winner"),
        (RemovesNoLog, "removed_logs_begin_anew"),
        (WakesEarly, "waiters_wake_when_their_line_is_there"),
        (PutExpectsAnything, "conflicts_leave_a_value_alone"),
        (ChecksBeforeItPuts, "rivals_lose_no_change"),
        (DeleteExpectsAnything, "versions_grow_and_are_never_used_again"),
        (ListsEveryPrefix, "keys_are_in_the_order_of_bytes"),
        (ListsAfterWithIt, "keys_are_in_the_order_of_bytes"),
        (ListsTooMany, "pages_have_each_key_once"),
        (ListsBackwards, "keys_are_in_the_order_of_bytes"),
        (WritesBeforeItIsPolled, "dropped_writes_are_whole"),
        (LeaseRunsOutEarly, "leases_have_one_holder"),
        (LeaseNeverRunsOut, "leases_have_one_holder"),
        (RenewsWhatRanOut, "leases_have_one_holder"),
        (ReleasesForOthers, "leases_have_one_holder"),
        (TimersByName, "timers_come_in_order"),
        (TimersEndByThemselves, "timers_come_in_order"),
        (CancelsForAll, "timers_come_in_order"),
        (RemovesNoBlob, "blobs_are_kept_once"),
        (TakesAnySize, "values_are_bounded"),
    ];
    for (fault, check) in faults {
        let noticed = noticed(fault);
        assert!(noticed.contains(check), "{fault:?} is noticed only by {noticed:?}");
    }
    // The control.
    assert_eq!(noticed(Fault::None), BTreeSet::new());
}
