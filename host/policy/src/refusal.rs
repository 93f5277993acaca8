//! Why something was refused, in words for the person who could allow it.

/// A request that a rule does not cover, or that no rule may cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What was tried and which rule refused it. One line, lower case, no final period, what the script sent in
    /// backticks. Holds no path outside the workspace.
    pub reason: String,
    /// The smallest change that would allow it and where that goes; empty where nothing would.
    pub hint: String,
}

impl Refusal {
    /// A refusal that a line in the policy would lift.
    pub fn new(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { reason: reason.into(), hint: hint.into() }
    }

    /// A refusal that no policy lifts.
    pub fn always(reason: impl Into<String>) -> Self {
        Self::new(reason, "")
    }
}
