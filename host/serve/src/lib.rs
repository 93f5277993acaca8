//! `harness serve`: one process for many tenants, each with its own project, keys, budgets and audit log.
//!
//! - [`server`]: start, end, and what the interfaces share
//! - [`data`]: the folder that everything is kept in
//! - [`tenants`], [`tenant`]: all of them, and one
//! - [`record`], [`key`], [`role`]: what is kept of them, and who may ask for what
//! - [`seal`]: secrets at rest
//! - [`archive`]: the upload of a project
//! - [`rate`], [`budget`], [`prices`]: how often, how much, and for how much
//! - `metered`: models whose tokens are counted and priced
//! - `runs`: turns of agents and asynchronous calls, which continue after the response
//! - `api`: the HTTP interface
//! - `workspaces`: the folders that tools of a tenant work in
//! - `mcp`: the Model Context Protocol
//! - `webhooks`: what happens, sent to addresses that tenants name
//! - `dashboard`: pages for people
//! - [`problem`]: its errors
//! - `journal`: the audit log of the server itself
//! - [`backup`]: copies of everything, what is wrong with one, and a data folder that is made of one
//! - [`metrics`]: what is counted
//! - [`client`], [`remote`]: clients of the interfaces of the operator and of tenants
//!
//! What a call may do is decided below: the class's host policy, the project's policy and the rules of tenant, key and call
//! are layers of one grant. What is here decides who asks, how often, and what for.

#![cfg_attr(test, expect(clippy::string_slice, reason = "tests cut texts they know"))]

mod api;
pub mod archive;
pub mod backup;
pub mod budget;
mod changing;
pub mod class;
pub mod client;
mod dashboard;
pub mod data;
pub mod egress;
mod journal;
pub mod key;
mod mcp;
mod metered;
pub mod metrics;
pub mod prices;
pub mod problem;
pub mod rate;
pub mod record;
pub mod remote;
pub mod role;
mod runs;
pub mod seal;
pub mod server;
pub mod tenant;
pub mod tenants;
mod trail;
mod webhooks;
mod workspaces;

pub use runs::ANSWERED_LATER;
pub use server::{CONNECTIONS, Doors, FirstKey, Server, Settings};
