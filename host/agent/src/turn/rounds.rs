//! How many rounds of calls a turn has, and what comes instead of one more.

use super::super::error::TurnError;
use super::super::ledger::Entry;
use super::Work;
use harness_artifact::policy::exit::OnMaxIterations;

/// What comes after a reply that calls something.
pub(super) enum Next {
    /// Its calls.
    Round,
    /// The end of the turn, with this answer.
    Answer(String),
    /// One more reply, in words.
    Words,
}

impl Work<'_> {
    /// Counts a round. Where there may be no more, the policy says what comes instead.
    pub(super) fn next_round(&mut self) -> Result<Next, TurnError> {
        let allowed = self.runtime.crew.settings.rounds(self.runtime.depth());
        if u64::from(self.rounds) < allowed {
            self.purse.take(Entry::Round)?;
            self.rounds = self.rounds.saturating_add(1);
            return Ok(Next::Round);
        }
        let key = self.runtime.crew.settings.rounds_key(self.runtime.depth());
        let limit = TurnError::Limit { what: "max tool rounds", allowed, key };
        match self.runtime.crew.settings.on_max {
            OnMaxIterations::Error => Err(limit),
            OnMaxIterations::WarnAndExit | OnMaxIterations::ContinueWithWarning => {
                let warning = limit.to_string();
                self.warning = Some(warning.clone());
                Ok(Next::Answer(format!("warning: {warning}")))
            }
            OnMaxIterations::Summarize => {
                self.warning = Some(format!("{limit}; the agent summed up"));
                self.in_words = Some(limit);
                Ok(Next::Words)
            }
        }
    }
}
