//! The sandbox: each call of a script in a WebAssembly instance of its own.
//!
//! - [`engine`]: made once in a process; loads scripts into images
//! - [`cache`]: the images, shared by all projects of a host
//! - [`call`]: one call, from a fresh instance to a report of how it ended
//! - [`outcome`]: how calls end and what they use
//! - [`price`]: what each host call costs
//! - [`imports`]: what each role may call
//! - [`tape`]: what host calls answered, kept or given again
//! - [`ends`]: the end of a call's time
//! - `strand`: what happens one thing after the other
//! - `occupant`: the call that has an instance, or none
//! - `spare`: instances that have ended, and those that are made ahead
//! - [`scheduling`]: who computes next, and who may begin
//! - [`state`]: what belongs to one call, and what the calls of a run share
//!
//! The only room that knows wasmtime's engine, modules and stores.

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make files and programs"))]

pub mod cache;
pub mod call;
mod compile;
#[cfg(test)]
mod deadline_tests;
mod deepest;
pub mod ends;
pub mod engine;
mod image;
pub mod imports;
mod in_place;
mod last_words;
#[cfg(test)]
mod load_tests;
mod loader;
mod measure;
mod meter;
mod occupant;
pub mod outcome;
pub mod price;
#[cfg(test)]
mod reset_tests;
pub mod scheduling;
pub mod spans;
mod spare;
#[cfg(test)]
mod spare_tests;
pub mod state;
mod stop;
pub mod strand;
pub mod tape;
mod texts;
mod ticker;
pub mod wasi;
