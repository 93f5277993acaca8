//! Runs untrusted tools and policy hooks for AI agents, each call in a WebAssembly instance of its own.
//!
//! [`dispatch`] is the door: open a project, call a tool, read how it ended and what it used.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        clippy::string_slice,
        reason = "tests make files and programs, and cut texts they know"
    )
)]

pub mod agent;
pub mod ambient;
pub mod artifact;
pub mod audit;
pub mod capability;
pub mod confine;
pub mod dispatch;
pub mod memory;
pub mod policy;
pub mod provider;
pub mod registry;
pub mod sandbox;
pub mod session;
