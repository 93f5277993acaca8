//! `sandbox.hooks`: what becomes of an event whose hook fails.

use crate::artifact::decode::{Decoder, Field, Unknown};
use crate::artifact::located::Located;

/// What becomes of an event that can still be stopped when a hook on it fails: it throws, runs out of a limit, or has
/// no `handle`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookFailure {
    /// For every hook that `named` does not hold.
    pub on_error: OnError,
    /// For hooks by name, in the order of the file.
    pub named: Vec<(Located<String>, OnError)>,
    /// Whether a wrong return value and a failing `when` are failures too, and not only warnings.
    pub strict: bool,
}

/// The answer to a failing hook.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnError {
    /// What the event announces does not happen.
    #[default]
    Block,
    /// It happens, with a warning.
    Allow,
}

impl HookFailure {
    /// What holds for one hook.
    pub fn for_hook(&self, name: &str) -> OnError {
        self.named.iter().find(|(hook, _)| hook.value == name).map_or(self.on_error, |(_, answer)| *answer)
    }

    pub(super) fn decode(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let mut fields = decoder.mapping(field)?;
        let on_error = fields.take("on_error").and_then(|f| answer(decoder, &f)).unwrap_or_default();
        let strict = fields.take("strict").and_then(|f| decoder.boolean(&f)).unwrap_or(false);
        let mut named = Vec::new();
        if let Some(hooks) = fields.take("named").and_then(|f| decoder.mapping(&f)) {
            for (key, field) in hooks.all() {
                let hook = Located::new(key.text.clone(), decoder.position(key.span));
                named.extend(answer(decoder, &field).map(|answer| (hook, answer)));
            }
        }
        decoder.finish(fields, Unknown::Refuse);
        Some(Self { on_error, named, strict })
    }
}

fn answer(decoder: &mut Decoder, field: &Field<'_>) -> Option<OnError> {
    decoder.parse_one(field, |word| match word {
        "block" => Ok(OnError::Block),
        "allow" => Ok(OnError::Allow),
        _ => Err("write `block` or `allow`".to_owned()),
    })
}
