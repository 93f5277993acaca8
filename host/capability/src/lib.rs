//! What a script can reach, one file for each WIT interface. Each file has the types of its interface and functions
//! that do the work under a grant; none knows the store or the linker.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        clippy::string_slice,
        reason = "tests make files and programs, and cut texts they know"
    )
)]

pub mod agents;
pub mod ask;
pub mod cache;
pub mod clock;
pub mod coverage;
pub mod denial;
pub mod env;
pub mod events;
pub mod exec;
pub mod fs;
pub mod http;
pub mod log;
pub mod meta;
pub mod metrics;
pub mod observe;
pub mod outbound;
pub mod progress;
pub mod random;
pub mod reentry;
pub mod resources;
pub mod secrets;
pub mod spaces;
pub mod spans;
pub mod system;
pub mod tasks;
pub mod turn;
