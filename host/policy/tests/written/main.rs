//! Decisions on rules as policies write them: what needs the reader of policies beside the rules.

#![expect(clippy::panic, clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod comparisons;
mod deadlines;
mod hints;
mod items;
#[path = "../../../../tests/random.rs"]
mod random;
mod secrets;
mod stacks;
