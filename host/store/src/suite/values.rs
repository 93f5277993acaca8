//! Values and blobs: versions, rivals, order, pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Opener, conflict, rivals};
use crate::{Expected, MAX_BLOB_BYTES, MAX_NAME_BYTES, MAX_READ_BYTES, MAX_VALUE_BYTES, Store, StoreError, Versioned};

/// Keys in the order of their bytes, some of which mean something to a database.
const KEYS: [&str; 20] = [
    "",
    "\0",
    "\0\0",
    " ",
    "%",
    "'; DROP TABLE entries; --",
    "*",
    "A",
    "Z",
    "_",
    "a",
    "a\0b",
    "a%",
    "a%b",
    "a_b",
    "ab",
    "b",
    "ä",
    "日本",
    "\u{10ffff}",
];

pub(super) async fn versions_grow_and_are_never_used_again(open: Opener) {
    let mut store = open();
    let mut last = 0;
    for round in 0..4_u8 {
        for step in 0..3_u8 {
            let expected = if step == 0 { Expected::Absent } else { Expected::Version(last) };
            let value = vec![round, step];
            let version = store.put("bucket", "key", expected, value.clone()).await.unwrap();
            assert!(version > last, "version {version} after {last}");
            last = version;
            assert_eq!(store.get("bucket", "key").await, Ok(Some(Versioned { version, value })));
            if step == 1 {
                drop(store);
                store = open();
            }
        }
        let version = store.put("bucket", "key", Expected::Anything, Vec::new()).await.unwrap();
        assert!(version > last);
        assert_eq!(store.delete("bucket", "key", Expected::Version(last)).await, conflict(last, version));
        assert_eq!(store.delete("bucket", "key", Expected::Version(version)).await, Ok(()));
        last = version;
        assert_eq!(store.get("bucket", "key").await, Ok(None));
        // What is deleted does not come back, and another key is another key.
        assert_eq!(store.put("bucket", "key", Expected::Version(last), Vec::new()).await, conflict(last, 0));
        let other = store.put("bucket", "other", Expected::Anything, vec![round]).await.unwrap();
        assert_eq!(store.delete("bucket", "other", Expected::Version(other)).await, Ok(()));
        drop(store);
        store = open();
    }
}

pub(super) async fn conflicts_leave_a_value_alone(open: Opener) {
    let store = open();
    let put = |expected| store.put("bucket", "key", expected, b"no".to_vec());
    assert_eq!(put(Expected::Version(1)).await, conflict(1, 0));
    assert_eq!(store.delete("bucket", "key", Expected::Version(1)).await, conflict(1, 0));
    assert_eq!(store.delete("bucket", "key", Expected::Anything).await, Ok(()));
    assert_eq!(store.delete("bucket", "key", Expected::Absent).await, Ok(()));
    assert_eq!(store.get("bucket", "key").await, Ok(None));
    let at = store.put("bucket", "key", Expected::Version(0), b"yes".to_vec()).await.unwrap();
    for (expected, number) in [
        (Expected::Absent, 0),
        (Expected::Version(0), 0),
        (Expected::Version(at + 1), at + 1),
        (Expected::Version(u64::MAX), u64::MAX),
    ] {
        assert_eq!(put(expected).await, conflict(number, at));
        assert_eq!(store.delete("bucket", "key", expected).await, conflict(number, at));
    }
    assert_eq!(store.get("bucket", "key").await, Ok(Some(Versioned { version: at, value: b"yes".to_vec() })));
    assert_eq!(store.get("another", "key").await, Ok(None));
    assert_eq!(store.get("bucket", "Key").await, Ok(None));
}

/// Each rival tries to create each of 400 keys.
pub(super) async fn rivals_for_a_key_have_one_winner(open: Opener) {
    const COUNT: usize = 400;
    let store = open();
    let won = rivals(|rival| {
        let store = store.clone();
        async move {
            let mut won = Vec::new();
            for key in 0..COUNT {
                match store.put("bucket", &key.to_string(), Expected::Absent, vec![rival as u8]).await {
                    Ok(version) => won.push((key, rival as u8, version)),
                    Err(StoreError::Conflict { expected: 0, at }) => assert!(at > 0),
                    Err(error) => panic!("{error}"),
                }
            }
            won
        }
    })
    .await;
    let won: Vec<_> = won.into_iter().flatten().collect();
    assert_eq!(won.len(), COUNT);
    for (key, rival, version) in won {
        let value = store.get("bucket", &key.to_string()).await.unwrap();
        assert_eq!(value, Some(Versioned { version, value: vec![rival] }), "{key}");
    }
}

/// Each rival adds 1 to a number, 100 times, and tries again when another was faster.
pub(super) async fn rivals_lose_no_change(open: Opener) {
    const TIMES: u64 = 100;
    let store = open();
    let number = |value: &[u8]| u64::from_be_bytes(value.try_into().unwrap());
    let versions = rivals(|_| {
        let store = store.clone();
        async move {
            let mut versions = Vec::new();
            while (versions.len() as u64) < TIMES {
                let (expected, before) = match store.get("bucket", "number").await.unwrap() {
                    None => (Expected::Absent, 0),
                    Some(value) => (Expected::Version(value.version), number(&value.value)),
                };
                match store.put("bucket", "number", expected, (before + 1).to_be_bytes().to_vec()).await {
                    Ok(version) => versions.push(version),
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            versions
        }
    })
    .await;
    let last = store.get("bucket", "number").await.unwrap().unwrap();
    let mut versions: Vec<_> = versions.into_iter().flatten().collect();
    versions.sort_unstable();
    assert_eq!(number(&last.value), versions.len() as u64);
    assert_eq!(last.version, versions[versions.len() - 1]);
    versions.dedup();
    assert_eq!(number(&last.value), versions.len() as u64, "a version was used twice");
}

async fn filled(store: &Arc<dyn Store>) -> BTreeMap<&'static str, Versioned> {
    let mut all = BTreeMap::new();
    // In another order than that of the bytes.
    for n in 0..KEYS.len() {
        let key = KEYS[n * 7 % KEYS.len()];
        let value = format!("value of {key}").into_bytes();
        let version = store.put("bucket", key, Expected::Absent, value.clone()).await.unwrap();
        all.insert(key, Versioned { version, value });
        store.put("other", &format!("{key}x"), Expected::Absent, Vec::new()).await.unwrap();
    }
    assert_eq!(all.len(), KEYS.len());
    all
}

pub(super) async fn keys_are_in_the_order_of_bytes(open: Opener) {
    let store = open();
    let all = filled(&store).await;
    let found = |prefix: &str, after: Option<&str>, most: usize| -> Vec<(String, Versioned)> {
        let within = all.iter().filter(|(key, _)| key.starts_with(prefix) && after.is_none_or(|after| ***key > *after));
        within.take(most).map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
    };
    let others = ["a%bc", "ab\0", "c", "\u{10fffe}", "B"];
    for prefix in KEYS.into_iter().chain(others) {
        for after in [None].into_iter().chain(KEYS.into_iter().chain(others).map(Some)) {
            for most in [0, 1, 3, usize::MAX] {
                let expected = found(prefix, after, most);
                let keys = store.list("bucket", prefix, after, most).await;
                assert_eq!(keys, Ok(expected), "prefix {prefix:?}, after {after:?}, at most {most}");
            }
        }
    }
    assert_eq!(store.list("none", "", None, 9).await, Ok(Vec::new()));
}

/// Also while other keys come and go.
pub(super) async fn pages_have_each_key_once(open: Opener) {
    let store = open();
    filled(&store).await;
    for most in 1..4 {
        let mut keys: Vec<String> = Vec::new();
        loop {
            let page = store.list("bucket", "", keys.last().map(String::as_str), most).await.unwrap();
            if page.is_empty() {
                break;
            }
            assert!(page.len() <= most && keys.len() < 2 * KEYS.len(), "pages do not end");
            keys.extend(page.into_iter().map(|(key, _)| key));
            let passing = format!("passing {}", keys.len() % 2);
            store.put("bucket", &passing, Expected::Anything, Vec::new()).await.unwrap();
            store.delete("bucket", &format!("passing {}", (keys.len() + 1) % 2), Expected::Anything).await.unwrap();
        }
        keys.retain(|key| !key.starts_with("passing"));
        assert_eq!(keys, KEYS);
        for passing in ["passing 0", "passing 1"] {
            store.delete("bucket", passing, Expected::Anything).await.unwrap();
        }
    }
}

pub(super) async fn values_are_bounded(open: Opener) {
    let store = open();
    let large = |what, bytes, most| Err(StoreError::TooLarge { what, bytes, most });
    let longest = "ä".repeat(MAX_NAME_BYTES / 2);
    let longer = format!("{longest}n");
    let put = |key: &str, bytes| store.put("bucket", key, Expected::Anything, vec![7; bytes]);
    let too_long = large("a name", MAX_NAME_BYTES + 1, MAX_NAME_BYTES);
    assert_eq!(put(&longer, 1).await, too_long);
    assert_eq!(store.get("bucket", &longer).await.unwrap_err(), too_long.unwrap_err());
    let too_large = large("a value", MAX_VALUE_BYTES + 1, MAX_VALUE_BYTES);
    assert_eq!(put(&longest, MAX_VALUE_BYTES + 1).await, too_large);
    assert_eq!(store.set_timer("timer", 1, vec![7; MAX_VALUE_BYTES + 1]).await.unwrap_err(), too_large.unwrap_err());
    assert_eq!(store.list("bucket", "", None, 9).await, Ok(Vec::new()));
    put(&longest, MAX_VALUE_BYTES).await.unwrap();
    for n in 0..20 {
        put(&format!("a{n:02}"), MAX_VALUE_BYTES).await.unwrap();
    }
    // A page ends before it has more bytes than it may. Keys count.
    let first = store.list("bucket", "", None, usize::MAX).await.unwrap();
    assert_eq!(first.len(), MAX_READ_BYTES / MAX_VALUE_BYTES - 1);
    let after = first.last().map(|(key, _)| key.as_str());
    assert_eq!(store.list("bucket", "", after, usize::MAX).await.unwrap().len(), 6);
    let bytes = vec![7; MAX_BLOB_BYTES + 1];
    assert_eq!(
        store.put_blob(bytes).await.unwrap_err(),
        StoreError::TooLarge { what: "a blob", bytes: MAX_BLOB_BYTES + 1, most: MAX_BLOB_BYTES }
    );
}

pub(super) async fn blobs_are_kept_once(open: Opener) {
    const OF_NOTHING: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const OF_ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let mut store = open();
    assert_eq!(store.blob(OF_ABC).await, Ok(None));
    assert_eq!(store.remove_blob(OF_ABC).await, Ok(()));
    let put = rivals(|_| store.put_blob(b"abc".to_vec())).await;
    assert!(put.iter().all(|digest| digest.as_deref() == Ok(OF_ABC)), "{put:?}");
    assert_eq!(store.put_blob(Vec::new()).await.as_deref(), Ok(OF_NOTHING));
    let large = vec![b'l'; 3 << 20];
    let of_large = store.put_blob(large.clone()).await.unwrap();
    drop(store);
    store = open();
    assert_eq!(store.blob(OF_ABC).await, Ok(Some(b"abc".to_vec())));
    assert_eq!(store.blob(OF_NOTHING).await, Ok(Some(Vec::new())));
    assert_eq!(store.blob(&of_large).await, Ok(Some(large)));
    for none in ["", "sha256:", "abc", "ba7816bf", &OF_ABC.to_uppercase()] {
        assert_eq!(store.blob(none).await, Ok(None), "{none}");
    }
    // Kept once, however often it was put: removed once.
    assert_eq!(store.put_blob(b"abc".to_vec()).await.as_deref(), Ok(OF_ABC));
    assert_eq!(store.remove_blob(OF_ABC).await, Ok(()));
    assert_eq!(store.blob(OF_ABC).await, Ok(None));
    assert_eq!(store.put_blob(b"abc".to_vec()).await.as_deref(), Ok(OF_ABC));
    assert_eq!(store.blob(OF_ABC).await, Ok(Some(b"abc".to_vec())));
}
