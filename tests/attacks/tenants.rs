//! Two projects that are open in one host: one is an attacker's, with a policy as wide as its operator could give it, the
//! other holds what that one may never see and makes calls that must go on completing.
//!
//! - `house`: the host, the two projects, and what may not be seen or changed
//! - `files`: workspaces beside, within and in the place of each other
//! - `runs`: what runs hold: values, additions, tasks, agents, time and chance
//! - `images`: scripts that both have, and what must not come along with them
//! - `audit`: the logs of both, which one writer writes
//! - `secrets`: secrets, what is redacted, variables, requests
//! - `commands`: processes of both at one time
//! - `texts`: what errors, hints and debug texts say
//! - `room`: instances, memory and the processor
//! - `policy`: what is in force, after which reload, and the host policy above both

use crate::corpus::Coded;

#[path = "tenants/audit.rs"]
mod audit;
#[path = "tenants/commands.rs"]
mod commands;
#[path = "tenants/files.rs"]
mod files;
#[path = "tenants/house.rs"]
mod house;
#[path = "tenants/images.rs"]
mod images;
#[path = "tenants/policy.rs"]
mod policy;
#[path = "tenants/room.rs"]
mod room;
#[path = "tenants/runs.rs"]
mod runs;
#[path = "tenants/secrets.rs"]
mod secrets;
#[path = "tenants/texts.rs"]
mod texts;

pub(crate) const CASES: &[&[Coded]] = &[
    files::CASES,
    runs::CASES,
    images::CASES,
    audit::CASES,
    secrets::CASES,
    commands::CASES,
    texts::CASES,
    room::CASES,
    policy::CASES,
];
