//! `harness serve` from outside: the binary, its operator at the socket, and tenants over HTTP.
//!
//! - `apart`: what one tenant tries on another, each with a control
//! - `backups`: backups, and what is restored of one
//! - `budgets`: what a tenant may use, and what happens then
//! - `calls`: calls of tools, and requests that are repeated
//! - `chat`: the agent as a model
//! - `described`: answers as the description of the interface has them
//! - `files`: the files of a workspace
//! - `handover`: a service manager in front of a server
//! - `hostile`: uploads and requests that are made to do harm
//! - `journal`: the audit log of the server
//! - `keys`: keys and their roles
//! - `mcp`: the Model Context Protocol for the keys of a tenant
//! - `mcp_apart`: what its clients try with what is another key's
//! - `openapi`: the description of the interface for programs
//! - `page`: what docs/serve.md and docs/api.md show
//! - `policy`: dry runs of a policy, and plugins
//! - `remote`: commands that a server executes, beside those of the own machine
//! - `remote_hostile`: the same with servers that do harm
//! - `retention`: what is kept no longer
//! - `runs`: runs of agents, their events, and questions to people
//! - `sessions`: sessions, further turns and replays
//! - `site`: a server with its data folder
//! - `space`: what a workspace may hold
//! - `workspaces`: the workspaces of a tenant
//! - `doctor`: `harness serve doctor`
//! - `kills`: a server that is killed under load
//! - `unit`: the unit of systemd that packages have
//! - `webhooks`: what is sent to receivers of tenants, and what they try
//! - `start`: start, end and the death of the process

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::panic,
    dead_code,
    reason = "tests, and helpers of other tests"
)]

#[path = "serve/apart.rs"]
mod apart;
#[path = "serve/backups.rs"]
mod backups;
#[path = "serve/budgets.rs"]
mod budgets;
#[path = "serve/calls.rs"]
mod calls;
#[path = "serve/certificates.rs"]
mod certificates;
#[path = "serve/chat.rs"]
mod chat;
#[path = "mcp/client.rs"]
mod client;
#[path = "serve/continued.rs"]
mod continued;
#[path = "serve/described.rs"]
mod described;
#[path = "serve/doctor.rs"]
mod doctor;
#[path = "serve/egress.rs"]
mod egress;
#[path = "serve/files.rs"]
mod files;
#[path = "serve/handover.rs"]
mod handover;
#[path = "serve/hostile.rs"]
mod hostile;
#[path = "serve/journal.rs"]
mod journal;
#[path = "serve/keys.rs"]
mod keys;
#[path = "serve/kills.rs"]
mod kills;
#[path = "serve/mcp.rs"]
mod mcp;
#[path = "serve/mcp_apart.rs"]
mod mcp_apart;
#[path = "serve/openapi.rs"]
mod openapi;
#[path = "serve/page.rs"]
mod page;
#[path = "serve/policy.rs"]
mod policy;
#[path = "cli/project.rs"]
mod project;
#[path = "serve/remote.rs"]
mod remote;
#[path = "serve/remote_hostile.rs"]
mod remote_hostile;
#[path = "serve/retention.rs"]
mod retention;
#[path = "serve/runs.rs"]
mod runs;
#[path = "serve/sessions.rs"]
mod sessions;
#[path = "serve/site.rs"]
mod site;
#[path = "serve/space.rs"]
mod space;
#[path = "serve/start.rs"]
mod start;
#[path = "serve/unit.rs"]
mod unit;
#[path = "mcp/web.rs"]
mod web;
#[path = "serve/webhooks.rs"]
mod webhooks;
#[path = "serve/workspaces.rs"]
mod workspaces;
