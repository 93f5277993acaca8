//! Logs: positions, rivals, whole appends, and waiting for a line.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Opener, RIVALS, all_lines, conflict, rivals};
use crate::{Line, MAX_APPEND_BYTES, MAX_LINE_BYTES, MAX_LINES, MAX_NAME_BYTES, MAX_READ_BYTES, StoreError};

fn text(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

pub(super) async fn positions_have_no_gaps(open: Opener) {
    let mut store = open();
    assert_eq!(store.lines("log", 0, 10).await, Ok(Vec::new()));
    assert_eq!(store.append("log", 0, text(&["one"])).await, Ok(1));
    assert_eq!(store.append("log", 1, vec![Vec::new(), vec![0, 255, 10], b"four".to_vec()]).await, Ok(4));
    assert_eq!(store.append("log", 4, Vec::new()).await, Ok(4));
    assert_eq!(store.append("other", 0, Vec::new()).await, Ok(0));
    assert_eq!(store.append("other", 0, text(&["x"])).await, Ok(1));
    drop(store);
    store = open();
    assert_eq!(store.append("log", 4, text(&["five"])).await, Ok(5));
    let line = |position, bytes: &[u8]| Line { position, bytes: bytes.to_vec() };
    let all = [line(1, b"one"), line(2, b""), line(3, &[0, 255, 10]), line(4, b"four"), line(5, b"five")];
    for after in 0..=6_u64 {
        for most in 0..=6_usize {
            let expected: Vec<_> = all.iter().skip(after as usize).take(most).cloned().collect();
            assert_eq!(store.lines("log", after, most).await, Ok(expected), "after {after}, at most {most}");
        }
    }
    assert_eq!(store.lines("log", u64::MAX, usize::MAX).await, Ok(Vec::new()));
    assert_eq!(store.lines("log", 0, usize::MAX).await, Ok(all.to_vec()));
    assert_eq!(store.lines("other", 0, 9).await, Ok(vec![line(1, b"x")]));
}

pub(super) async fn conflicts_leave_a_log_alone(open: Opener) {
    let store = open();
    assert_eq!(store.append("log", 1, text(&["no"])).await, conflict(1, 0));
    assert_eq!(store.append("log", u64::MAX, Vec::new()).await, conflict(u64::MAX, 0));
    assert_eq!(store.append("log", 0, text(&["one", "two"])).await, Ok(2));
    for expected in [0, 1, 3, u64::MAX] {
        assert_eq!(store.append("log", expected, text(&["no", "no"])).await, conflict(expected, 2));
        assert_eq!(store.append("log", expected, Vec::new()).await, conflict(expected, 2));
    }
    drop(store);
    let store = open();
    assert_eq!(all_lines(&store, "log").await, text(&["one", "two"]));
}

/// Each rival tries to append each line of 400. Nobody skips one, as a conflict means that another was faster.
pub(super) async fn rivals_for_a_log_have_one_winner(open: Opener) {
    const LINES: u64 = 400;
    let store = open();
    let won = rivals(|rival| {
        let store = store.clone();
        async move {
            let mut won = Vec::new();
            for at in 0..LINES {
                match store.append("log", at, vec![rival.to_be_bytes().to_vec()]).await {
                    Ok(length) => {
                        assert_eq!(length, at + 1);
                        won.push(length);
                    }
                    Err(StoreError::Conflict { expected, at: length }) => {
                        assert!(expected == at && length > at, "{length} instead of {at}");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            won
        }
    })
    .await;
    let mut winners = HashMap::new();
    for (rival, won) in (0..RIVALS).zip(won) {
        for position in won {
            assert_eq!(winners.insert(position, rival), None, "two have won line {position}");
        }
    }
    let lines = all_lines(&store, "log").await;
    assert_eq!(lines.len() as u64, LINES);
    for (position, line) in (1..).zip(lines) {
        assert_eq!(line, winners[&position].to_be_bytes(), "line {position} is not that of its winner");
    }
}

/// Who reads while others append sees all lines of an append or none.
pub(super) async fn appends_are_whole(open: Opener) {
    const EACH: u64 = 7;
    let store = open();
    let appends = rivals(|rival| {
        let store = store.clone();
        async move {
            let log = format!("log {rival}");
            for at in 0..40 {
                assert_eq!(
                    store.append(&log, at * EACH, vec![b"x".to_vec(); EACH as usize]).await,
                    Ok((at + 1) * EACH)
                );
            }
        }
    });
    let reads = rivals(|rival| {
        let store = store.clone();
        async move {
            let log = format!("log {rival}");
            let mut seen = 0;
            while seen < 40 * EACH {
                let length = all_lines(&store, &log).await.len() as u64;
                assert!(length >= seen && length.is_multiple_of(EACH), "{length} lines after {seen}");
                seen = length;
                tokio::task::yield_now().await;
            }
        }
    });
    tokio::join!(appends, reads);
}

pub(super) async fn removed_logs_begin_anew(open: Opener) {
    let mut store = open();
    assert_eq!(store.remove_log("log").await, Ok(()));
    for round in 0..3_u8 {
        for at in 0..3_u64 {
            let length = store.append("log", at * 700, vec![vec![round]; 700]).await;
            assert_eq!(length, Ok((at + 1) * 700));
        }
        assert_eq!(store.append("kept", u64::from(round), vec![vec![round]]).await, Ok(u64::from(round) + 1));
        assert_eq!(store.remove_log("log").await, Ok(()));
        assert_eq!(store.lines("log", 0, 9).await, Ok(Vec::new()));
        if round == 1 {
            drop(store);
            store = open();
        }
        assert_eq!(store.append("log", 1, text(&["no"])).await, conflict(1, 0));
        assert_eq!(store.append("log", 0, text(&["new"])).await, Ok(1));
        assert_eq!(all_lines(&store, "log").await, text(&["new"]));
        assert_eq!(store.remove_log("log").await, Ok(()));
    }
    assert_eq!(all_lines(&store, "kept").await, [[0], [1], [2]]);
}

pub(super) async fn waiters_wake_when_their_line_is_there(open: Opener) {
    let store = open();
    // It waits for its own line, and for no earlier one.
    let mut third = store.longer("log", 2);
    for at in 0..2 {
        tokio::select! {
            biased;
            length = &mut third => panic!("woken at {length:?}"),
            length = store.append("log", at, text(&["x"])) => assert_eq!(length, Ok(at + 1)),
        }
    }
    let (length, appended) = tokio::join!(third, store.append("log", 2, text(&["x", "x"])));
    assert_eq!((length, appended), (Ok(4), Ok(4)));
    // At once, if it is there.
    assert_eq!(store.longer("log", 0).await, Ok(4));
    assert_eq!(store.longer("log", 3).await, Ok(4));
    // Another log is another log, and a log that is removed counts from 0.
    let mut again = store.longer("log", 4);
    tokio::select! {
        biased;
        length = &mut again => panic!("woken at {length:?}"),
        length = store.append("other", 0, vec![b"x".to_vec(); 9]) => assert_eq!(length, Ok(9)),
    }
    for step in [store.remove_log("log"), store.remove_log("other")] {
        tokio::select! {
            biased;
            length = &mut again => panic!("woken at {length:?}"),
            removed = step => assert_eq!(removed, Ok(())),
        }
    }
    tokio::select! {
        biased;
        length = &mut again => panic!("woken at {length:?}"),
        length = store.append("log", 0, vec![b"x".to_vec(); 4]) => assert_eq!(length, Ok(4)),
    }
    let (length, appended) = tokio::join!(again, store.append("log", 4, text(&["x"])));
    assert_eq!((length, appended), (Ok(5), Ok(5)));
}

/// Followers of a log see each line once, whenever it comes. Some waiters end early.
pub(super) async fn waiters_are_many_and_may_go(open: Opener) {
    const LINES: u64 = 60;
    let store = open();
    let followers: Vec<_> = (0..50_u64)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut seen = 0;
                while seen < LINES {
                    if n % 2 == 0 {
                        // One that is dropped after its first poll.
                        let mut early = store.longer("log", u64::MAX);
                        tokio::select! {
                            biased;
                            length = &mut early => panic!("woken at {length:?}"),
                            () = std::future::ready(()) => {}
                        }
                    }
                    let length = store.longer("log", seen).await.unwrap();
                    assert!(length > seen, "woken at {length}, after {seen}");
                    let lines = store.lines("log", seen, 1_000).await.unwrap();
                    assert_eq!(lines[0].position, seen + 1);
                    seen = lines[lines.len() - 1].position;
                }
                seen
            })
        })
        .collect();
    for at in 0..LINES {
        assert_eq!(store.append("log", at, text(&["x"])).await, Ok(at + 1));
    }
    for follower in followers {
        assert_eq!(follower.await.unwrap(), LINES);
    }
}

pub(super) async fn lines_are_bounded(open: Opener) {
    let store = open();
    let large = |what, bytes, most| Err(StoreError::TooLarge { what, bytes, most });
    let longest = "n".repeat(MAX_NAME_BYTES);
    assert_eq!(store.append(&longest, 0, vec![vec![7; MAX_LINE_BYTES]]).await, Ok(1));
    let longer = format!("{longest}n");
    let too_long = large("a name", MAX_NAME_BYTES + 1, MAX_NAME_BYTES);
    assert_eq!(store.append(&longer, 0, text(&["x"])).await, too_long);
    assert_eq!(store.longer(&longer, 0).await, too_long);
    assert_eq!(
        store.append("log", 0, vec![b"x".to_vec(), vec![7; MAX_LINE_BYTES + 1]]).await,
        large("a line", MAX_LINE_BYTES + 1, MAX_LINE_BYTES)
    );
    let many = StoreError::TooMany { what: "lines", count: MAX_LINES + 1, most: MAX_LINES };
    assert_eq!(store.append("log", 0, vec![Vec::new(); MAX_LINES + 1]).await, Err(many));
    let mut heavy = vec![vec![7; MAX_LINE_BYTES]; MAX_APPEND_BYTES / MAX_LINE_BYTES];
    heavy.push(vec![7]);
    let too_heavy = large("an append", MAX_APPEND_BYTES + 1, MAX_APPEND_BYTES);
    assert_eq!(store.append("log", 0, heavy.clone()).await, too_heavy);
    assert_eq!(store.lines("log", 0, 9).await, Ok(Vec::new()));
    // The most that there may be.
    heavy.pop();
    let half = heavy.len() as u64;
    assert_eq!(store.append("log", 0, heavy.clone()).await, Ok(half));
    assert_eq!(store.append("log", half, vec![Vec::new(); MAX_LINES]).await, Ok(half + 1_000));
    assert_eq!(store.append("log", half + 1_000, heavy).await, Ok(half * 2 + 1_000));
    // A read ends before it has more bytes than it may.
    let first = store.lines("log", 0, usize::MAX).await.unwrap();
    assert_eq!((first.len(), first.iter().map(|line| line.bytes.len()).sum()), (16 + 1_000, MAX_READ_BYTES));
    assert_eq!(all_lines(&store, "log").await.len(), 16 + 1_000 + 16);
    drop(Arc::clone(&store));
}
