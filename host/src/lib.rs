//! Runs untrusted tools and policy hooks for AI agents, each call in a WebAssembly instance of its own.
//!
//! [`dispatch`] is the door: open a project, call a tool, read how it ended and what it used.

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make the files and programs that they need"))]

pub mod ambient;
pub mod artifact;
pub mod capability;
pub mod dispatch;
pub mod policy;
pub mod registry;
pub mod sandbox;
