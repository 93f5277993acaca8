//! What a second call of a tool does, for runs that are interrupted.

use crate::shape::chosen_by_word;

/// What it means to make a call again whose result is unknown, because the process ended while it was under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing outside of its run: it may be made again.
    None,
    /// Made twice, it leaves what it leaves made once: it may be made again.
    Idempotent,
    /// It must not be made again.
    #[default]
    Once,
}

impl Effect {
    const WORDS: [(&'static str, Self); 3] =
        [("none", Self::None), ("idempotent", Self::Idempotent), ("once", Self::Once)];

    /// Whether a call may be made again whose result is unknown.
    pub fn can_repeat(self) -> bool {
        self != Self::Once
    }
}

chosen_by_word!(Effect);
