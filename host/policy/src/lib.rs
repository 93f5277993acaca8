//! What may be done: parsed rules, and the decisions on them as pure functions. No files, no clock, no sandbox.
//!
//! A [`Grant`](grant::Grant) is computed before an instance exists and never changes. It is a list of
//! [layers](layer::Layer) (machine, project, source, artifact, call); something is allowed only where every layer allows it, so
//! that adding a layer can never widen.

#![cfg_attr(test, expect(clippy::string_slice, reason = "tests cut texts they know"))]

pub mod command;
pub mod compare;
pub mod deadline;
pub mod grant;
pub mod item;
pub mod language;
pub mod layer;
pub mod limits;
pub mod network;
pub mod path;
pub mod positions;
pub mod refusal;
pub mod resource;
pub mod secret;
pub mod shared;
pub mod signer;
pub mod text;
pub mod trust;
pub mod watch;
