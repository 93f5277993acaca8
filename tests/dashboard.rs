//! The dashboard of `harness serve` over plain HTTP: the binary, and a client that does what a browser does with cookies
//! and forms. `tests/browser` opens the same pages in a real one.
//!
//! - `apart`: what one tenant tries on another
//! - `approvals`: questions, and their answers
//! - `audit`: search, explanation and dry run
//! - `forms`: forms that other sites send
//! - `hostile`: texts that would be markup
//! - `operator`: the operator's pages
//! - `pages`: each page for each role, and the headers of all answers
//! - `sign_in`: sessions, links, and their ends
//! - `visitor`: the client

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::panic,
    dead_code,
    reason = "tests, and helpers of other tests"
)]

#[path = "dashboard/apart.rs"]
mod apart;
#[path = "dashboard/approvals.rs"]
mod approvals;
#[path = "dashboard/audit.rs"]
mod audit;
#[path = "mcp/client.rs"]
mod client;
#[path = "serve/described.rs"]
mod described;
#[path = "dashboard/forms.rs"]
mod forms;
#[path = "dashboard/hostile.rs"]
mod hostile;
#[path = "dashboard/operator.rs"]
mod operator;
#[path = "dashboard/pages.rs"]
mod pages;
#[path = "cli/project.rs"]
mod project;
#[path = "dashboard/sign_in.rs"]
mod sign_in;
#[path = "serve/site.rs"]
mod site;
#[path = "dashboard/visitor.rs"]
mod visitor;
#[path = "mcp/web.rs"]
mod web;
