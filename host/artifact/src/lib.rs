//! Text into typed artifacts, with the place of everything that is wrong. Pure: no files, no clock, no sandbox.
//!
//! An artifact is one Markdown file: YAML between two `---` lines, then prose. Reading one goes through four steps,
//! each its own module:
//!
//! 1. [`frontmatter`] finds the YAML and the prose;
//! 2. [`yaml`] makes a tree of the YAML in which every value knows its line and column;
//! 3. `decode` turns nodes into typed values and collects a [`diagnostic`] for each that does not fit, so that a
//!    file's errors come all at once;
//! 4. [`tool`], [`hook`], [`agent`], [`skill`], [`bundle`], [`mod@plugin`], [`policy`] and [`model`] declare which keys there are, and [`cases`] those
//!    of `tests:`; `keys` and `shape` make of a declaration both what is read and the [`schema`] that editors get.
//!
//! [`definition`] makes tools of what servers of other programs say of theirs, and [`pinned`] compares that with what it was.
//!
//! [`catalogue`] reads the indexes in which others name plugins.
//!
//! [`foreign`] makes plugins of those of other programs.
//!
//! [`parameters`] are what a tool declares, [`arguments`] checks a call against them, and [`value_schema`] against JSON
//! Schema. [`builtins`] are what scripts call. [`escape`] makes any text fit for a terminal.

pub mod agent;
pub mod alike;
pub mod arguments;
pub mod builtins;
pub mod bundle;
pub mod cases;
pub mod catalogue;
mod data;
pub mod decode;
pub mod definition;
pub mod diagnostic;
pub mod difference;
pub mod escape;
pub mod event;
pub mod foreign;
pub mod frontmatter;
pub mod hook;
pub mod json;
mod keys;
pub mod lint;
pub mod located;
pub mod model;
mod param_headers;
pub mod parameters;
pub mod pinned;
pub mod plugin;
pub mod policy;
pub mod replies;
pub mod schema;
pub mod script;
pub mod server;
mod shape;
pub mod skill;
pub mod suggest;
pub mod third_party;
pub mod tool;
mod upstream;
pub mod value_schema;
pub mod when;
pub mod yaml;

#[cfg(test)]
mod proptests;

#[cfg(test)]
extern crate self as harness_artifact;
#[cfg(test)]
#[path = "../../../tests/random.rs"]
#[expect(dead_code, reason = "tests of other crates use the rest")]
mod random;
