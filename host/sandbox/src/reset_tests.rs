//! The guest of the attack corpus that looks for what an earlier call has left: what it finds where nothing is reset
//! between two calls. Without this, that it finds nothing elsewhere would say nothing.

use std::sync::Arc;
use std::time::Instant;

use wasmtime::Store;

use super::engine::{Sandbox, Settings};
use super::imports::Role;
use super::occupant::Occupant;
use super::outcome::{Failure, Outcome};
use super::scheduling::quota::Standing;
use super::state::{Context, Session, State};
use harness_capability::fs::Workspace;
use harness_policy::grant::Grant;
use harness_policy::limits::Limits;

#[path = "../../../tests/attacks/compose.rs"]
pub(crate) mod compose;

const CANARY: &str = include_str!("../../../tests/attacks/guests/canary.wat");

#[tokio::test]
async fn without_a_reset_the_canary_is_seen() {
    let sandbox = Sandbox::new(Settings { instances: 1, ..Settings::default() }).unwrap();
    let image = sandbox.foreign(&compose::component(&[], CANARY), Role::Tool, "canary.wasm").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let context = Context {
        grant: Arc::new(Grant::new(Vec::new())),
        workspace: Arc::new(Workspace::open(folder.path()).unwrap()),
        session: Arc::new(Session::default()),
        turn: Arc::default(),
        namespace: None,
        system: Arc::default(),
        http: Arc::default(),
        listener: None,
        depth: 0,
        reentry: None,
        secrets: Arc::default(),
    };
    // As every call is: an instance of its own.
    for _ in 0..3 {
        let report = sandbox.run(&image, context.clone(), Limits::default(), "{}").await;
        assert_eq!(report.outcome, Outcome::Completed("passed".to_owned()));
    }
    // As no call is: two in one instance.
    let limits = Limits::default();
    let state = State::new(context, limits, Instant::now() + limits.timeout, Standing::default());
    let mut store = Store::new(sandbox.engine(), Occupant::Call(Box::new(state)));
    store.limiter(|occupant| occupant);
    store.set_fuel(limits.fuel).unwrap();
    store.set_epoch_deadline(u64::MAX / 2);
    let instance = sandbox.ready(&image, Role::Tool, false).unwrap().instantiate_async(&mut store).await.unwrap();
    let mut said = Vec::new();
    for _ in 0..2 {
        let run = &image.exports().run;
        let run = instance.get_typed_func::<_, (Result<String, Failure>,)>(&mut store, run).unwrap();
        let (result,) = run.call_async(&mut store, ("{}",)).await.unwrap();
        said.push(result.unwrap());
    }
    assert_eq!(said, ["passed", "errors"]);
}
