//! A project's tools, resources and prompts for clients of the Model Context Protocol, over standard input and HTTP.
//!
//! A [`Server`] answers requests of both eras of the protocol: revisions up to 2025-11-25, which begin with
//! `initialize`, and 2026-07-28, in which each request names its version. [`stdio::serve`] serves the client at the other
//! end of standard input and output, and [`http::serve`] clients that connect. Each `tools/call` is an ordinary call of the project: hooks, policy, limits and the
//! audit log apply to it.
//!
//! - `search`: `search_tools`
//! - `server`: what each request comes to
//! - `acts`: acts of clients that call no tool, as calls
//! - `agents`: agents as tools
//! - `call`: `tools/call`
//! - `catalog`: definitions of tools as clients see them
//! - `changes`: what clients are notified of
//! - `files`: files of resources that clients have subscribed to
//! - `listening`: notifications of changes
//! - `content`: results that are more than a value
//! - `notices`: progress and log of a call
//! - `parked`: calls that wait for their clients between two requests
//! - `questions`: questions of tools to the client
//! - `names`: names of tools that every client accepts
//! - `elicit`: confirmation of calls by the person at the client
//! - `frame`: lines of a stream, bounded
//! - `fuzzing`: what fuzz targets reach
//! - `http`: the transport over HTTP
//! - `message`: messages, and answers to those that are not handled
//! - `mime`: media types of files
//! - `page`: pages of listings
//! - `principal`: whose requests a server answers
//! - `prompting`: the methods of prompts
//! - `prompts`: agents and skills as prompts
//! - `reading`: the methods of resources
//! - `resources`: what is offered to be read, and its content
//! - `stdio`: the transport over standard input and output
//! - `tasks`: calls that last

mod acts;
mod agents;
mod call;
mod catalog;
mod changes;
mod content;
mod elicit;
mod files;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
mod listening;
mod message;
mod mime;
mod names;
mod notices;
mod page;
mod parked;
mod principal;
mod prompting;
mod prompts;
mod questions;
mod reading;
mod resources;
mod search;
mod server;
pub mod stdio;
mod tasks;

pub use acts::ACTS;
pub use catalog::Catalog;
pub use message::{MAX_IN_FLIGHT, MAX_LISTENING, MAX_MESSAGE};
pub use names::{MAX_NAME, Names};
pub use principal::{Admission, NotAdmitted, Operator, Principal};
pub use server::{Server, Settings};
