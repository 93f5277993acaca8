//! `exit_policy`: when a turn is over.

use crate::decode::{Decoder, Field};
use crate::diagnostic::Position;
use crate::keys::{self, Unknown, keys};
use crate::shape::{Between, Read, Schema, Shape, chosen_by_word};

/// Rules for the end of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExitPolicy {
    /// What ends it.
    pub mode: ExitMode,
    /// Where that is said.
    pub mode_at: Option<Position>,
    /// Most rounds with tools at the root; the default of the room that runs it where there is none.
    pub max_iterations: Option<u64>,
    /// What becomes of a turn that reaches that.
    pub on_max_iterations: OnMaxIterations,
    /// Whether an agent whose tools keep failing answers without them; true where nothing is said.
    pub in_words: Option<bool>,
}

/// What ends a turn. Hooks on `agent.stop` are asked in every mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExitMode {
    /// The first reply without calls.
    #[default]
    Natural,
    /// The tool `done`.
    DoneTool,
    /// The first reply without calls that hooks on `agent.stop` let pass.
    Hook,
    /// The tool `done`, and hooks that allow it.
    Hybrid,
}

impl ExitMode {
    const WORDS: [(&'static str, Self); 4] =
        [("natural", Self::Natural), ("done_tool", Self::DoneTool), ("hook", Self::Hook), ("hybrid", Self::Hybrid)];

    /// Whether the model has to call `done`.
    pub fn wants_done(self) -> bool {
        matches!(self, Self::DoneTool | Self::Hybrid)
    }
}

/// What becomes of a turn with too many rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnMaxIterations {
    /// It ends with an error.
    #[default]
    Error,
    /// It ends with what there is and a warning.
    WarnAndExit,
    /// The same by another name.
    ContinueWithWarning,
    /// The model answers once more, in words, and a warning follows.
    Summarize,
}

impl OnMaxIterations {
    const WORDS: [(&'static str, Self); 4] = [
        ("error", Self::Error),
        ("warn_and_exit", Self::WarnAndExit),
        ("continue_with_warning", Self::ContinueWithWarning),
        ("summarize", Self::Summarize),
    ];
}

keys! {
    /// The keys of `exit_policy`. A limit must not be misspelled and leave its default standing.
    ExitKeys: Unknown::RefuseLike(&["mode", "max_iterations", "on_max_iterations"]);
    /// How a turn ends: by a reply without calls, by the tool `done`, by hooks on `agent.stop`, or by the last two
    /// together.
    optional mode: ExitMode = ExitMode::default();
    /// Maximum rounds with tools at the root; 0: as in `delegation.iterations_per_depth`.
    optional max_iterations: Between<0, 1000>;
    /// The result of a turn that reaches the maximum: an error, a warning, or an answer in words without further calls.
    /// `warn_and_exit` and `continue_with_warning` mean the same.
    optional on_max_iterations: OnMaxIterations = OnMaxIterations::default();
    /// Whether an agent whose tools keep failing answers in words, without tools.
    optional fallback_to_natural_language: bool = true;
}

impl Shape for ExitPolicy {
    fn schema() -> Schema {
        keys::schema::<ExitKeys<'_>>()
    }
}

impl Read for ExitPolicy {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: ExitKeys<'_> = decoder.keys(field)?;
        Some(Self {
            mode_at: keys.mode.field().map(|field| decoder.position(field.span())),
            mode: keys.mode.read(decoder),
            max_iterations: keys.max_iterations.read(decoder).map(|most| most.0).filter(|most| *most > 0),
            on_max_iterations: keys.on_max_iterations.read(decoder),
            in_words: Some(keys.fallback_to_natural_language.read(decoder)),
        })
    }
}

chosen_by_word!(ExitMode, OnMaxIterations);
