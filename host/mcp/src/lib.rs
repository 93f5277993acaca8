//! A project's tools for clients of the Model Context Protocol, over standard input and HTTP.
//!
//! A [`Server`] answers requests of both eras of the protocol: revisions up to 2025-11-25, which begin with
//! `initialize`, and 2026-07-28, in which each request names its version. [`stdio::serve`] serves the client at the other
//! end of standard input and output, and [`http::serve`] clients that connect. Each `tools/call` is an ordinary call of the project: hooks, policy, limits and the
//! audit log apply to it.
//!
//! - `server`: what each request comes to
//! - `call`: `tools/call`
//! - `catalog`: definitions of tools as clients see them
//! - `content`: results that are more than a value
//! - `notices`: progress and log of a call
//! - `parked`: calls that wait for their clients between two requests
//! - `questions`: questions of tools to the client
//! - `names`: names of tools that every client accepts
//! - `elicit`: confirmation of calls by the person at the client
//! - `frame`: lines of a stream, bounded
//! - `http`: the transport over HTTP
//! - `message`: messages, and answers to those that are not handled
//! - `stdio`: the transport over standard input and output

mod call;
mod catalog;
mod content;
mod elicit;
mod frame;
pub mod http;
mod message;
mod names;
mod notices;
mod parked;
mod questions;
mod server;
pub mod stdio;

pub use catalog::Catalog;
pub use message::{MAX_IN_FLIGHT, MAX_MESSAGE};
pub use names::{MAX_NAME, Names};
pub use server::{Server, Settings};
