//! What a hook said.

/// What one hook decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its `when` did not match.
    Skip,
    /// Pass.
    Allow,
    /// Pass, with another payload.
    Modify,
    /// Stop.
    Block,
    /// It failed; whether that blocks is the event's and the policy's to say.
    Error,
    /// A hook before it blocked.
    NotReached,
}

impl Verdict {
    /// The word for it in JSON and in cases.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Allow => "allow",
            Self::Modify => "modify",
            Self::Block => "block",
            Self::Error => "error",
            Self::NotReached => "not reached",
        }
    }

    /// Whether `handle` was called.
    pub fn ran(self) -> bool {
        !matches!(self, Self::Skip | Self::NotReached)
    }
}
