//! The interface `progress`: how far a call is, for its caller.

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift};

/// Bytes of a message; the rest is dropped.
pub const MAX_MESSAGE: usize = 1 << 10;
/// Steps of a call that are passed on.
pub const MAX_STEPS: u64 = 1_000;

/// The record `step` of the interface.
#[derive(Debug, Clone, PartialEq, ComponentType, Lift, Serialize, Deserialize)]
#[component(record)]
pub struct Step {
    /// How much is done, in the unit of `total`.
    pub done: f64,
    /// How much there is to do, where that is known.
    pub total: Option<f64>,
    /// What is being done.
    pub message: Option<String>,
}

/// Counts the steps of a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Steps(u64);

impl Steps {
    /// The step as it is passed on, with its message cut; none where there were too many, or a number is none.
    pub fn pass(&mut self, mut step: Step) -> Option<Step> {
        let is_number = |number: f64| number.is_finite() && number >= 0.0;
        if self.0 >= MAX_STEPS || !is_number(step.done) || !step.total.is_none_or(is_number) {
            return None;
        }
        self.0 += 1;
        if let Some(message) = &mut step.message {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        }
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(done: f64, total: Option<f64>) -> Step {
        Step { done, total, message: None }
    }

    #[test]
    fn what_is_no_step_is_dropped() {
        let mut steps = Steps::default();
        for wrong in [step(f64::NAN, None), step(-1.0, None), step(f64::INFINITY, None), step(1.0, Some(f64::NAN))] {
            assert_eq!(steps.pass(wrong), None);
        }
        for _ in 0..MAX_STEPS {
            assert_eq!(steps.pass(step(0.0, Some(0.0))), Some(step(0.0, Some(0.0))));
        }
        assert_eq!(steps.pass(step(1.0, None)), None);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let message = Some(format!("x{}", "ü".repeat(MAX_MESSAGE)));
        let passed = Steps::default().pass(Step { message, ..step(1.0, None) }).unwrap();
        assert_eq!(passed.message.unwrap().len(), MAX_MESSAGE - 1);
    }
}
