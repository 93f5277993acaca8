//! `harness mcp serve` from outside: the binary, and clients that speak the protocol as their programs do.
//!
//! - `changes`: files that change while the server runs
//! - `client`: a client at the other end of standard input and output
//! - `access`: who may connect over HTTP
//! - `agents`: agents as tools
//! - `calls`: results of calls, and what governs them
//! - `code`: code mode for clients
//! - `configs`: configurations of clients
//! - `content`: results that are more than a value
//! - `confirm`: calls that the person at the client confirms
//! - `elicits`: forms of servers for the person
//! - `ends`: processes of calls that have ended
//! - `eras`: both eras of the protocol on one process
//! - `gateway`: servers of other programs whose tools the project has
//! - `http`: messages over HTTP
//! - `listings`: definitions of tools
//! - `logins`: logins at servers
//! - `mock`: such a server
//! - `notices`: progress and log of a call
//! - `openings`: how clients begin, as they were recorded
//! - `page`: what docs/mcp.md shows
//! - `prompts`: agents and skills as prompts
//! - `recorded`: tools of servers in tests and replays
//! - `remote`: servers at URLs whose tools the project has
//! - `resources`: what clients read
//! - `questions`: questions of tools to the client
//! - `site`: such a server at a URL
//! - `stops`: how processes of servers end
//! - `streams`: lines, identifiers, cancellation and the end of a stream
//! - `tasks`: calls that last
//! - `web`: a client that connects over HTTP
//! - `wrap`: a server behind its wall for a client of its own

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::panic,
    dead_code,
    reason = "tests, and helpers of other tests"
)]

#[path = "mcp/access.rs"]
mod access;
#[path = "mcp/agents.rs"]
mod agents;
#[path = "mcp/calls.rs"]
mod calls;
#[path = "mcp/changes.rs"]
mod changes;
#[path = "mcp/client.rs"]
mod client;
#[path = "mcp/code.rs"]
mod code;
#[path = "mcp/configs.rs"]
mod configs;
#[path = "mcp/confirm.rs"]
mod confirm;
#[path = "mcp/content.rs"]
mod content;
#[path = "mcp/elicits.rs"]
mod elicits;
#[path = "mcp/ends.rs"]
mod ends;
#[path = "mcp/eras.rs"]
mod eras;
#[path = "mcp/gateway.rs"]
mod gateway;
#[path = "mcp/http.rs"]
mod http;
#[path = "mcp/listings.rs"]
mod listings;
#[path = "mcp/logins.rs"]
mod logins;
#[path = "mcp/mock.rs"]
mod mock;
#[path = "mcp/notices.rs"]
mod notices;
#[path = "mcp/openings.rs"]
mod openings;
#[path = "mcp/packages.rs"]
mod packages;
#[path = "mcp/page.rs"]
mod page;
#[path = "cli/project.rs"]
mod project;
#[path = "mcp/prompts.rs"]
mod prompts;
#[path = "cli/pty.rs"]
mod pty;
#[path = "mcp/questions.rs"]
mod questions;
#[path = "mcp/recorded.rs"]
mod recorded;
#[path = "mcp/remote.rs"]
mod remote;
#[path = "mcp/resources.rs"]
mod resources;
#[path = "mcp/site.rs"]
mod site;
#[path = "mcp/stops.rs"]
mod stops;
#[path = "mcp/streams.rs"]
mod streams;
#[path = "mcp/tasks.rs"]
mod tasks;
#[path = "mcp/web.rs"]
mod web;
#[path = "mcp/wrap.rs"]
mod wrap;
