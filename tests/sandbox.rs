//! The sandbox as a program that embeds the library has it: what is linked, roles, limits, isolation, many calls at
//! once, and what is left of a call when it is over.
//!
//! - `kit`: a sandbox with a workspace, scripts and calls in one line each
//! - `roles`: what a tool, a hook and a `when` may do
//! - `limits`: what ends a call, and what it has used by then
//! - `order`: what depends on the order of hooks
//! - `crowd`: many scripts, many calls, calls that are given up
//! - `turns`: very many turns of an agent

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test ends where something is not as expected"
)]

use std::collections::BTreeSet;
use std::path::Path;

use harness_sandbox::wasi;

use kit::Kit;

#[path = "sandbox/crowd.rs"]
mod crowd;
#[path = "sandbox/isolation.rs"]
mod isolation;
#[path = "sandbox/kit.rs"]
mod kit;
#[path = "sandbox/limits.rs"]
mod limits;
#[path = "sandbox/order.rs"]
mod order;
#[path = "sandbox/roles.rs"]
mod roles;
#[path = "sandbox/turns.rs"]
mod turns;

/// The interpreter can ask for what the contract says, for the part of WASI that is linked to nothing, and for its own
/// memory. Whatever else turns up here is a hole that someone has to look at first.
#[test]
fn the_imports_of_the_interpreter_are_these_and_no_others() {
    let mut resolve = wit_parser::Resolve::default();
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit");
    let (package, _) = resolve.push_dir(&wit).unwrap();
    let world = &resolve.worlds[resolve.packages[package].worlds["interpreter"]];
    let contract = world.imports.values().map(|item| {
        let wit_parser::WorldItem::Interface { id, .. } = item else { panic!("only interfaces are imported") };
        let interface = &resolve.interfaces[*id];
        let package = &resolve.packages[interface.package.unwrap()].name;
        format!("{}:{}/{}", package.namespace, package.name, interface.name.as_ref().unwrap())
    });
    let contract: BTreeSet<String> = contract.collect();
    let wasi: Vec<&str> = contract.iter().map(String::as_str).filter(|name| name.starts_with("wasi:")).collect();
    assert_eq!(wasi, wasi::INTERFACES);
    let wanted: BTreeSet<String> = contract.into_iter().chain(["image".to_owned()]).collect();
    let found = Kit::new().sandbox.component_imports();
    let found: BTreeSet<String> = found.iter().map(|name| name.split('@').next().unwrap().to_owned()).collect();
    assert_eq!(found, wanted);
}
