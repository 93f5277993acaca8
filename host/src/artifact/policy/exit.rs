//! `exit_policy`: when a turn is over.

use crate::artifact::decode::{Decoder, Field, Unknown};

/// When a turn is over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExitPolicy {
    /// What ends it.
    pub mode: ExitMode,
    /// Most rounds with tools at the root; the default of the room that runs it where there is none.
    pub max_iterations: Option<u64>,
    /// What becomes of a turn that reaches that.
    pub on_max_iterations: OnMaxIterations,
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
    /// The tool `done`, and hooks that let it pass.
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
}

impl OnMaxIterations {
    const WORDS: [(&'static str, Self); 3] = [
        ("error", Self::Error),
        ("warn_and_exit", Self::WarnAndExit),
        ("continue_with_warning", Self::ContinueWithWarning),
    ];
}

impl ExitPolicy {
    pub(super) fn decode(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let mut fields = decoder.mapping(field)?;
        let mode = fields.optional("mode").and_then(|f| word(decoder, &f, &ExitMode::WORDS));
        let max_iterations = fields.optional("max_iterations").and_then(|f| decoder.integer_in(&f, 0..=1000));
        let on_max = fields.optional("on_max_iterations").and_then(|f| word(decoder, &f, &OnMaxIterations::WORDS));
        decoder.finish(fields, Unknown::Warn);
        Some(Self {
            mode: mode.unwrap_or_default(),
            max_iterations: max_iterations.filter(|most| *most > 0),
            on_max_iterations: on_max.unwrap_or_default(),
        })
    }
}

/// One of several words.
fn word<T: Copy>(decoder: &mut Decoder, field: &Field<'_>, words: &[(&str, T)]) -> Option<T> {
    let text = decoder.string(field)?;
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    if found.is_none() {
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        decoder.error(field, format!("{} {text:?} must be {}", field.path, all.join("|")));
    }
    found
}
