//! Who computes next, and who may begin at all: the shares of projects in one process.
//!
//! - [`quota`]: what one project may have, and its use of it
//! - `fair`: the order of those who wait, as a pure data structure
//! - `gate`: the slots in which guests compute
//! - `slices`: a call that computes only while it has a slot
//! - `guests`: the threads of guests that compute for long
//! - `cores`: clocks, so that these threads are in nobody's way
//! - [`admission`]: the instances

pub mod admission;
mod busy;
pub(crate) mod cores;
pub(crate) mod fair;
pub(crate) mod gate;
pub(crate) mod guests;
pub mod quota;
pub(crate) mod slices;
