//! `harness mcp serve` from outside: the binary, and clients that speak the protocol as their programs do.
//!
//! - `client`: a client at the other end of standard input and output
//! - `calls`: results of calls, and what governs them
//! - `eras`: both eras of the protocol on one process
//! - `listings`: definitions of tools
//! - `page`: what docs/mcp.md shows
//! - `streams`: lines, identifiers, cancellation and the end of a stream

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    dead_code,
    reason = "tests, and helpers of other tests"
)]

#[path = "mcp/calls.rs"]
mod calls;
#[path = "mcp/client.rs"]
mod client;
#[path = "mcp/eras.rs"]
mod eras;
#[path = "mcp/listings.rs"]
mod listings;
#[path = "mcp/page.rs"]
mod page;
#[path = "cli/project.rs"]
mod project;
#[path = "mcp/streams.rs"]
mod streams;
