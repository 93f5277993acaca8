//! `clock`: time, as the host gives it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lower};

use super::denial::Denial;
use harness_sys as sys;

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// The grant does not hold the clock.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
}

/// A moment, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(record)]
pub struct Moment {
    /// Since 1970.
    pub seconds: i64,
    /// Below 1,000,000,000.
    pub nanoseconds: u32,
}

/// Where time comes from.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The system's.
    #[default]
    System,
    /// Always the same moment, and sleeping takes no time: for a test or a replay.
    Fixed(Moment),
}

impl Clock {
    /// The moment of the call.
    pub fn now(&self) -> Moment {
        match self {
            Self::Fixed(moment) => *moment,
            Self::System => {
                let since = sys::since_epoch();
                Moment {
                    seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                    nanoseconds: since.subsec_nanos(),
                }
            }
        }
    }

    /// Waits.
    pub async fn sleep(self: Arc<Self>, milliseconds: u32) {
        if matches!(*self, Self::System) {
            tokio::time::sleep(Duration::from_millis(milliseconds.into())).await;
        }
    }
}
