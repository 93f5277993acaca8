//! Leases and timers, writes whose futures are dropped, and what is there when a store is opened again.

use std::sync::Arc;
use std::task::{Context, Waker};

use super::{Opener, all_lines, rivals};
use crate::{Expected, Lease, MAX_TIME, Pending, Store, Timer};

pub(super) async fn leases_have_one_holder(open: Opener) {
    let mut store = open();
    let a = store.lease("name", "a", 1_000, 50).await.unwrap().unwrap();
    assert_eq!((a.name.as_str(), a.holder.as_str()), ("name", "a"));
    // Another one gets it when it has run out, and not a moment earlier.
    assert_eq!(store.lease("name", "b", 1_049, 50).await, Ok(None));
    assert_eq!(store.renew(&a, 1_049, 50).await, Ok(true));
    drop(store);
    store = open();
    assert_eq!(store.lease("name", "b", 1_098, 50).await, Ok(None));
    let b = store.lease("name", "b", 1_099, 50).await.unwrap().unwrap();
    assert!(b.epoch > a.epoch);
    // What was lost is not renewed, and does not release what another holds.
    assert_eq!(store.renew(&a, 1_099, 50).await, Ok(false));
    assert_eq!(store.release(&a).await, Ok(()));
    assert_eq!(store.lease("name", "a", 1_100, 50).await, Ok(None));
    // What has run out is not renewed, also if nobody took it.
    assert_eq!(store.renew(&b, 1_149, 50).await, Ok(false));
    assert_eq!(store.renew(&b, 1_148, 50).await, Ok(true));
    // The same holder takes it again: its earlier one is lost.
    let again = store.lease("name", "b", 1_150, 50).await.unwrap().unwrap();
    assert!(again.epoch > b.epoch);
    assert_eq!(store.renew(&b, 1_150, 50).await, Ok(false));
    assert_eq!(store.renew(&again, 1_150, 50).await, Ok(true));
    let forged = Lease { holder: "a".to_owned(), ..again.clone() };
    assert_eq!(store.renew(&forged, 1_150, 50).await, Ok(false));
    assert_eq!(store.release(&forged).await, Ok(()));
    assert_eq!(store.lease("name", "a", 1_150, 50).await, Ok(None));
    // Released: free at once, and its epochs stay used.
    assert_eq!(store.release(&again).await, Ok(()));
    assert_eq!(store.renew(&again, 1_150, 50).await, Ok(false));
    drop(store);
    store = open();
    let c = store.lease("name", "c", 1_150, 50).await.unwrap().unwrap();
    assert!(c.epoch > again.epoch);
    // Another name is another lease.
    assert!(store.lease("Name", "d", 0, 50).await.unwrap().is_some());
    // One without an end, and one of no time.
    assert!(store.lease("long", "a", 5, u64::MAX).await.unwrap().is_some());
    assert_eq!(store.lease("long", "b", MAX_TIME - 1, 1).await, Ok(None));
    assert!(store.lease("short", "a", 5, 0).await.unwrap().is_some());
    assert!(store.lease("short", "b", 5, 0).await.unwrap().is_some());
}

pub(super) async fn rivals_for_a_lease_have_one_winner(open: Opener) {
    let store = open();
    let mut last = 0;
    for round in 0..50 {
        let taken = rivals(|rival| store.lease("name", &rival.to_string(), round * 10, 10)).await;
        let won: Vec<Lease> = taken.into_iter().filter_map(|taken| taken.unwrap()).collect();
        assert_eq!(won.len(), 1, "{won:?}");
        assert!(won[0].epoch > last);
        last = won[0].epoch;
    }
}

pub(super) async fn timers_come_in_order(open: Opener) {
    let mut store = open();
    let timer = |name: &str, due, payload: &str| Timer { name: name.to_owned(), due, payload: payload.into() };
    for (name, due) in [("b", 20), ("late", 31), ("a", 20), ("first", 10), ("%", 20), ("moved", 5), ("first", 15)] {
        assert_eq!(store.set_timer(name, due, due.to_string().into_bytes()).await, Ok(()));
    }
    assert_eq!(store.set_timer("moved", 30, b"later".to_vec()).await, Ok(()));
    drop(store);
    store = open();
    let all = [
        timer("first", 15, "15"),
        timer("%", 20, "20"),
        timer("a", 20, "20"),
        timer("b", 20, "20"),
        timer("moved", 30, "later"),
        timer("late", 31, "31"),
    ];
    for (now, count) in [(0, 0), (14, 0), (15, 1), (19, 1), (20, 4), (30, 5), (31, 6), (u64::MAX, 6)] {
        for most in 0..8 {
            assert_eq!(store.due(now, most).await, Ok(all[..count.min(most)].to_vec()), "at {now}, at most {most}");
        }
    }
    // They stay until they are cancelled, by one alone.
    assert_eq!(store.due(15, 9).await, Ok(all[..1].to_vec()));
    let cancelled = rivals(|_| store.cancel_timer("first")).await;
    assert_eq!(cancelled.iter().filter(|cancelled| **cancelled == Ok(true)).count(), 1, "{cancelled:?}");
    assert_eq!(store.cancel_timer("first").await, Ok(false));
    assert_eq!(store.cancel_timer("late").await, Ok(true));
    assert_eq!(store.due(u64::MAX, 9).await, Ok(all[1..5].to_vec()));
    assert_eq!(store.set_timer("never", u64::MAX, Vec::new()).await, Ok(()));
    assert_eq!(store.due(MAX_TIME - 1, 9).await, Ok(all[1..5].to_vec()));
    assert_eq!(store.due(u64::MAX, 9).await.unwrap().len(), 5);
}

/// Polls an operation once or not at all, and drops it.
fn begin<T>(mut operation: Pending<T>, polls: bool) {
    if polls {
        let _ = operation.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

pub(super) async fn dropped_writes_are_whole(open: Opener) {
    let mut store = open();
    let before = store.put("bucket", "deleted", Expected::Anything, vec![1]).await.unwrap();
    for n in 0..60_usize {
        let (name, polls) = (n.to_string(), n % 3 > 0);
        begin(store.append(&name, 0, vec![vec![7; n]; 5]), polls);
        begin(store.put("bucket", &name, Expected::Absent, vec![7; n]), polls);
        begin(store.set_timer(&name, 1, vec![7; n]), polls);
        begin(store.put_blob(vec![n as u8; 1_000]), polls);
    }
    begin(store.delete("bucket", "deleted", Expected::Anything), false);
    // The store works, and is in order.
    assert_eq!(store.append("log", 0, vec![vec![1]]).await, Ok(1));
    drop(store);
    store = open();
    let timers = store.due(1, 100).await.unwrap();
    for n in 0..60_usize {
        let (name, polls) = (n.to_string(), n % 3 > 0);
        let lines = all_lines(&store, &name).await;
        assert!(lines.is_empty() || polls && lines == vec![vec![7; n]; 5], "{n}: {lines:?}");
        let value = store.get("bucket", &name).await.unwrap();
        assert!(value.is_none_or(|value| polls && value.value == vec![7; n]));
        let timer = timers.iter().find(|timer| timer.name == name);
        assert!(timer.is_none_or(|timer| polls && timer.payload == vec![7; n]));
    }
    let value = store.get("bucket", "deleted").await.unwrap().unwrap();
    assert_eq!((value.version, value.value), (before, vec![1]));
}

/// What there is, as far as it can be read.
async fn everything(store: &Arc<dyn Store>, blob: &str) -> String {
    let mut text = format!("{:?}", store.list("bucket", "", None, 99).await);
    text += &format!("{:?}", all_lines(store, "log").await);
    text += &format!("{:?}", store.blob(blob).await);
    text += &format!("{:?}", store.due(9, 9).await);
    text
}

pub(super) async fn everything_is_there_when_it_is_opened_again(open: Opener) {
    let mut store = open();
    let blob = store.put_blob(vec![3; 3]).await.unwrap();
    let mut lease = store.lease("name", "a", 0, 100).await.unwrap().unwrap();
    for n in 0..5_u64 {
        store.append("log", n, vec![vec![n as u8; 9]]).await.unwrap();
        store.put("bucket", &n.to_string(), Expected::Absent, vec![n as u8]).await.unwrap();
        store.set_timer(&n.to_string(), n, vec![n as u8]).await.unwrap();
        assert_eq!(store.is_writable().await, Ok(()));
        let before = everything(&store, &blob).await;
        drop(store);
        store = open();
        assert_eq!(everything(&store, &blob).await, before);
        assert_eq!(store.lease("name", "b", 99, 1).await, Ok(None));
        assert_eq!(store.renew(&lease, 1, 100).await, Ok(true));
        lease = store.lease("name", "a", 0, 100).await.unwrap().unwrap();
    }
}
