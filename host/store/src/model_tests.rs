use std::path::Path;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::tests::runtime;
use crate::{Expected, Lease, Memory, Sqlite, Store};

/// One operation on few names, so that they meet. Numbers of versions and lengths are near those that there are.
#[derive(Debug, Clone)]
enum Step {
    Append { log: usize, off: i64, lines: Vec<Vec<u8>> },
    Lines { log: usize, after: u64, most: usize },
    Length { log: usize },
    RemoveLog { log: usize },
    Put { key: usize, expected: Near, value: Vec<u8> },
    Delete { key: usize, expected: Near },
    List { prefix: usize, after: Option<usize>, most: usize },
    PutBlob { bytes: Vec<u8> },
    RemoveBlob { bytes: Vec<u8> },
    Blob { bytes: Vec<u8> },
    Lease { name: usize, holder: usize, now: u64, ms: u64 },
    Renew { now: u64, ms: u64 },
    Release,
    SetTimer { name: usize, due: u64, payload: Vec<u8> },
    CancelTimer { name: usize },
    Due { now: u64, most: usize },
    Reopen,
}

/// What is expected of a value, from its version.
#[derive(Debug, Clone, Copy)]
enum Near {
    Anything,
    Absent,
    Off(i64),
}

const NAMES: [&str; 8] = ["", "a", "a%", "a\0", "aa", "b_", "ä", "\u{10ffff}"];

fn name(n: usize) -> &'static str {
    NAMES[n % NAMES.len()]
}

fn off(number: u64, off: i64) -> u64 {
    number.wrapping_add_signed(off)
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop_oneof![8 => vec(any::<u8>(), 0..12), 1 => vec(any::<u8>(), 3_000..9_000)];
    let near =
        || prop_oneof![Just(Near::Anything), Just(Near::Absent), Just(Near::Off(0)), (-2..3_i64).prop_map(Near::Off)];
    let offset = || prop_oneof![4 => Just(0), 1 => -2..3_i64];
    let n = || 0..NAMES.len();
    prop_oneof![
        4 => (0..3_usize, offset(), vec(bytes(), 0..4)).prop_map(|(log, off, lines)| Step::Append { log, off, lines }),
        2 => (0..3_usize, 0..9_u64, 0..9_usize).prop_map(|(log, after, most)| Step::Lines { log, after, most }),
        1 => (0..3_usize).prop_map(|log| Step::Length { log }),
        1 => (0..3_usize).prop_map(|log| Step::RemoveLog { log }),
        4 => (n(), near(), bytes()).prop_map(|(key, expected, value)| Step::Put { key, expected, value }),
        2 => (n(), near()).prop_map(|(key, expected)| Step::Delete { key, expected }),
        2 => (n(), proptest::option::of(n()), 0..9_usize).prop_map(|(prefix, after, most)| Step::List { prefix, after, most }),
        1 => vec(0..2_u8, 0..3).prop_map(|bytes| Step::PutBlob { bytes }),
        1 => vec(0..2_u8, 0..3).prop_map(|bytes| Step::RemoveBlob { bytes }),
        1 => vec(0..2_u8, 0..3).prop_map(|bytes| Step::Blob { bytes }),
        2 => (0..2_usize, 0..3_usize, 0..60_u64, 0..30_u64)
            .prop_map(|(name, holder, now, ms)| Step::Lease { name, holder, now, ms }),
        1 => (0..60_u64, 0..30_u64).prop_map(|(now, ms)| Step::Renew { now, ms }),
        1 => Just(Step::Release),
        2 => (n(), prop_oneof![0..9_u64, Just(u64::MAX)], bytes())
            .prop_map(|(name, due, payload)| Step::SetTimer { name, due, payload }),
        1 => n().prop_map(|name| Step::CancelTimer { name }),
        2 => (0..10_u64, 0..9_usize).prop_map(|(now, most)| Step::Due { now, most }),
        1 => Just(Step::Reopen),
    ]
}

/// What a step returns, as text. `version` and `length` are those of the model, and so is `lease`, the last one that was
/// granted.
async fn take(store: &dyn Store, model: &Memory, step: &Step, lease: Option<&Lease>) -> String {
    let expected = |key: usize, near: Near| async move {
        match near {
            Near::Anything => Expected::Anything,
            Near::Absent => Expected::Absent,
            Near::Off(by) => {
                let value = model.get("bucket", name(key)).await.unwrap();
                Expected::Version(off(value.map_or(0, |value| value.version), by))
            }
        }
    };
    let digest = |bytes: &[u8]| harness_sys::digest::digest_of(bytes);
    match step.clone() {
        Step::Append { log, off: by, lines } => {
            let length = model.lines(name(log), 0, usize::MAX).await.unwrap().len() as u64;
            format!("{:?}", store.append(name(log), off(length, by), lines).await)
        }
        Step::Lines { log, after, most } => format!("{:?}", store.lines(name(log), after, most).await),
        Step::Length { log } => {
            let length = model.lines(name(log), 0, usize::MAX).await.unwrap().len() as u64;
            if length == 0 { String::new() } else { format!("{:?}", store.longer(name(log), length - 1).await) }
        }
        Step::RemoveLog { log } => format!("{:?}", store.remove_log(name(log)).await),
        Step::Put { key, expected: near, value } => {
            let expected = expected(key, near).await;
            format!("{:?}", store.put("bucket", name(key), expected, value).await)
        }
        Step::Delete { key, expected: near } => {
            let expected = expected(key, near).await;
            format!("{:?}", store.delete("bucket", name(key), expected).await)
        }
        Step::List { prefix, after, most } => {
            format!("{:?}", store.list("bucket", name(prefix), after.map(name), most).await)
        }
        Step::PutBlob { bytes } => format!("{:?}", store.put_blob(bytes).await),
        Step::RemoveBlob { bytes } => format!("{:?}", store.remove_blob(&digest(&bytes)).await),
        Step::Blob { bytes } => format!("{:?}", store.blob(&digest(&bytes)).await),
        Step::Lease { name: lease, holder, now, ms } => {
            format!("{:?}", store.lease(name(lease), name(holder), now, ms).await)
        }
        Step::Renew { now, ms } => match lease {
            Some(lease) => format!("{:?}", store.renew(lease, now, ms).await),
            None => String::new(),
        },
        Step::Release => match lease {
            Some(lease) => format!("{:?}", store.release(lease).await),
            None => String::new(),
        },
        Step::SetTimer { name: timer, due, payload } => {
            format!("{:?}", store.set_timer(name(timer), due, payload).await)
        }
        Step::CancelTimer { name: timer } => format!("{:?}", store.cancel_timer(name(timer)).await),
        Step::Due { now, most } => format!("{:?}", store.due(now, most).await),
        Step::Reopen => String::new(),
    }
}

async fn everything(store: &dyn Store) -> String {
    let mut text = format!("{:?}{:?}", store.list("bucket", "", None, 99).await, store.due(u64::MAX, 99).await);
    for log in NAMES {
        text += &format!("{:?}", store.lines(log, 0, 99).await);
    }
    text
}

async fn compare(folder: &Path, steps: Vec<Step>) {
    let model = Memory::new();
    let mut store: Arc<dyn Store> = Arc::new(Sqlite::open(folder).unwrap());
    let mut leases: Vec<Lease> = Vec::new();
    for step in &steps {
        if matches!(step, Step::Reopen) {
            drop(store);
            store = Arc::new(Sqlite::open(folder).unwrap());
        }
        let lease = leases.last().cloned();
        // The store first: the step looks at the model as it is before.
        let real = take(&*store, &model, step, lease.as_ref()).await;
        let expected = take(&model, &model, step, lease.as_ref()).await;
        assert_eq!(real, expected, "{step:?}");
        if let (Step::Lease { name: lease, holder, .. }, Some(epoch)) = (step, epoch(&real)) {
            leases.push(Lease { name: name(*lease).to_owned(), holder: name(*holder).to_owned(), epoch });
        }
        assert_eq!(everything(&*store).await, everything(&model).await, "after {step:?}");
    }
}

/// The epoch in what a lease returned, if it was granted.
fn epoch(text: &str) -> Option<u64> {
    text.split("epoch: ").nth(1)?.split(' ').next()?.parse().ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_does_what_the_model_does(steps in vec(step(), 1..50)) {
        let folder = tempfile::tempdir().unwrap();
        runtime().block_on(compare(folder.path(), steps));
    }
}
