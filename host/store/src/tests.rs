use std::sync::Arc;

use tokio::runtime::Runtime;

use crate::suite::{CHECKS, Opener};
use crate::{Memory, Sqlite};

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap()
}

pub(crate) fn new_memory() -> Opener {
    let memory = Memory::new();
    Box::new(move || Arc::new(memory.clone()))
}

fn new_sqlite() -> Opener {
    let folder = tempfile::tempdir().unwrap();
    Box::new(move || Arc::new(Sqlite::open(folder.path()).unwrap()))
}

#[test]
fn a_store_in_memory_keeps_the_promises() {
    CHECKS.iter().for_each(|(_, check)| runtime().block_on(check(new_memory())));
}

#[test]
fn sqlite_keeps_the_promises() {
    CHECKS.iter().for_each(|(_, check)| runtime().block_on(check(new_sqlite())));
}
