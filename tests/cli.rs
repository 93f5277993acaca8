//! The command line from outside: the binary on projects that each test writes for itself.
//!
//! - `project`: writes a project and runs the binary on it
//! - `call`: how a call ends, and what it prints
//! - `arguments`: how it is given arguments, project and workspace
//! - `commands`: the other commands, and help
//! - `terminal`: colors, and what is escaped
//! - `wrong`: input that cannot be used
//! - `limits`: what ends a call, and what must not
//! - `grants`: each capability granted, not granted, and granted for something else

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends where something is not as expected"
)]

#[path = "cli/arguments.rs"]
mod arguments;
#[path = "cli/call.rs"]
mod call;
#[path = "cli/commands.rs"]
mod commands;
#[path = "cli/grants.rs"]
mod grants;
#[path = "cli/limits.rs"]
mod limits;
#[path = "cli/project.rs"]
mod project;
#[path = "cli/terminal.rs"]
mod terminal;
#[path = "cli/wrong.rs"]
mod wrong;
