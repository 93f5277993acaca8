//! Runs untrusted tools and policy hooks for AI agents, each call in a WebAssembly instance of its own.

pub mod ambient;
pub mod artifact;
pub mod capability;
pub mod policy;
pub mod registry;
pub mod dispatch;
pub mod sandbox;
