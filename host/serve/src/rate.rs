//! How often something may happen: the generic cell rate algorithm (ITU-T I.371), one number for each limit.
//!
//! It counts exactly: over any time, no more than the rate's share of it and one burst.

use std::sync::atomic::{AtomicU64, Ordering};

use harness_artifact::server::Rate;

/// Nanoseconds of a minute.
const MINUTE: u64 = 60_000_000_000;

/// A rate, and when the next event is due if all came evenly.
#[derive(Debug)]
pub struct Meter {
    rate: Rate,
    due: AtomicU64,
}

/// What was found at an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// How many more may follow at once.
    pub left: u64,
    /// Nanoseconds until one more may; 0 where one may now.
    pub again: u64,
}

impl Meter {
    /// A meter that nothing has come by yet.
    pub fn new(rate: Rate) -> Self {
        Self { rate, due: AtomicU64::new(0) }
    }

    /// What it measures by.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes one event at this moment, in nanoseconds of any clock that does not go back.
    ///
    /// # Errors
    ///
    /// There may be none now; nothing is taken.
    pub fn take(&self, now: u64) -> Result<Standing, Standing> {
        let period = MINUTE / u64::from(self.rate.per_minute).max(1);
        let room = period.saturating_mul(u64::from(self.rate.burst).max(1));
        let taken = self.due.try_update(Ordering::AcqRel, Ordering::Acquire, |due| {
            let next = due.max(now).saturating_add(period);
            (next.saturating_sub(now) <= room).then_some(next)
        });
        match taken {
            Ok(before) => {
                let used = before.max(now).saturating_add(period).saturating_sub(now);
                Ok(Standing { left: room.saturating_sub(used) / period, again: 0 })
            }
            Err(due) => {
                Err(Standing { left: 0, again: due.saturating_add(period).saturating_sub(now.saturating_add(room)) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn meter(per_minute: u32, burst: u32) -> Meter {
        Meter::new(Rate { per_minute, burst })
    }

    #[test]
    fn a_burst_and_then_one_at_a_time() {
        let meter = meter(60, 3);
        let second = 1_000_000_000;
        let left = |left| Ok(Standing { left, again: 0 });
        assert_eq!([(); 3].map(|()| meter.take(0)), [left(2), left(1), left(0)]);
        assert_eq!(meter.take(0), Err(Standing { left: 0, again: second }));
        assert_eq!(meter.take(second - 1), Err(Standing { left: 0, again: 1 }));
        assert_eq!(meter.take(second), left(0));
        // What was refused has taken nothing.
        assert_eq!(meter.take(2 * second), left(0));
        assert_eq!(meter.take(60 * second), left(2));
    }

    proptest! {
        /// Never more than the rate's share of the elapsed time and one burst; a caller that waits for `again` is admitted.
        #[test]
        fn no_more_than_the_share_and_a_burst(
            per_minute in 1u32..100_000, burst in 1u32..1_000, steps in prop::collection::vec(0u64..2_000_000_000, 1..400),
        ) {
            let meter = meter(per_minute, burst);
            let (mut now, mut taken) = (5, 0u64);
            for step in steps {
                now += step;
                match meter.take(now) {
                    Ok(_) => taken += 1,
                    Err(standing) => {
                        prop_assert!(standing.again > 0);
                        prop_assert!(meter.take(now + standing.again - 1).is_err());
                        now += standing.again;
                        prop_assert!(meter.take(now).is_ok());
                        taken += 1;
                    }
                }
                let share = u128::from(now) * u128::from(per_minute) / u128::from(MINUTE);
                // A period is cut to whole nanoseconds: a rate is right to one in a million and more.
                let most = share + share / 10_000 + u128::from(burst) + 1;
                prop_assert!(u128::from(taken) <= most, "{taken} of {most}");
            }
        }
    }
}
