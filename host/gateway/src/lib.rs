//! Tools of other programs: clients of their servers of the Model Context Protocol, over standard input and output, and over
//! HTTP.
//!
//! What a server says is data from a third party: each line, number and text of it has a bound, and nothing of it decides
//! anything that the policy and the lock have not decided before. The client is our own, and not that of `rmcp`, because
//! definitions are compared as they came, with all their keys, and because each bound of [`limits`] ends a server that
//! exceeds it instead of being handled by another layer.
//!
//! - `frame`: lines of a stream, bounded
//! - `message`: what a line is
//! - `results`: what a call gave
//! - `connection`: requests and answers of one process
//! - `askers`: the calls during which a server may ask a person
//! - `elicit`: forms of servers for the person at the host
//! - `era`: which revision of the protocol a server speaks
//! - `listing`: the definitions of a server's tools
//! - `process`: a server's process, behind its wall
//! - `packages`: what is fetched for a server whose command is a package runner
//! - `sse`: server-sent events, bounded
//! - `headers`: what a request over HTTP says in its headers too
//! - `remote`: requests to a server at a URL
//! - `oauth`: logins at servers
//! - `own`: folders of the operator's own
//! - `link`: a process or a remote server, as what is above them sees it
//! - `relay`: a process for a client of its own
//! - `pool`: the processes of a run, and the calls that they answer

mod askers;
mod connection;
mod elicit;
mod era;
mod failure;
mod frame;
mod headers;
pub mod limits;
mod link;
mod listing;
mod message;
mod oauth;
mod own;
mod packages;
mod pool;
mod process;
mod relay;
mod remote;
mod results;
pub mod sse;

pub use elicit::{Answerer, Answering, Form};
pub use failure::Failure;
pub use oauth::{LoggedIn, Prompt, folder as logins, login, logout};
pub use packages::{Fetch, fetch, folder as packages};
pub use pool::{Call, Servers};
pub use process::{Host, Reading, read};
pub use relay::{Streams, relay};
pub use results::ToolResult;
