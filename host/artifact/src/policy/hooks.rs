//! `sandbox.hooks`: what becomes of an event whose hook fails.

use serde_json::{Value as Json, json};

use crate::decode::{Decoder, Field};
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use crate::shape::{self, Named, Read, Schema, Shape, Shown};

/// What becomes of an event that can still be stopped when a hook on it fails: it throws, runs out of a limit, or has
/// no `handle`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookFailure {
    /// For every hook that `named` does not hold.
    pub on_error: OnError,
    /// For hooks by name, in the order of the file.
    pub named: Vec<(Located<String>, OnError)>,
    /// Whether a wrong return value and a failing `when` are failures instead of warnings.
    pub strict: bool,
    /// The machine's say, which a project cannot soften.
    pub(super) outer: Option<Box<Self>>,
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

impl OnError {
    /// Both, in the order of messages.
    const ALL: [Self; 2] = [Self::Block, Self::Allow];

    fn word(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Allow => "allow",
        }
    }
}

keys! {
    /// The keys of `sandbox.hooks`.
    HookKeys: Unknown::Refuse;
    /// Whether a failing hook blocks its event, if the event can be blocked.
    given on_error: OnError = OnError::default();
    /// Whether a wrong return value and a failing `when` are failures instead of warnings.
    given strict: bool = false;
    /// The same for single hooks, by name.
    given named: Named<OnError>;
}

impl HookFailure {
    /// What holds for one hook.
    pub fn for_hook(&self, name: &str) -> OnError {
        if self.outer.as_ref().is_some_and(|outer| outer.for_hook(name) == OnError::Block) {
            return OnError::Block;
        }
        self.named.iter().find(|(hook, _)| hook.value == name).map_or(self.on_error, |(_, answer)| *answer)
    }

    /// The same within another one: the stricter of both.
    #[must_use]
    pub fn narrowed_by(self, outer: Self) -> Self {
        Self { strict: self.strict || outer.strict, outer: Some(Box::new(outer)), ..self }
    }
}

impl Shape for HookFailure {
    fn schema() -> Schema {
        keys::schema::<HookKeys<'_>>()
    }
}

impl Read for HookFailure {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: HookKeys<'_> = decoder.keys(field)?;
        let named = keys.named.read(decoder).unwrap_or_default().0;
        Some(Self {
            on_error: keys.on_error.read(decoder),
            named: named.into_iter().map(|hook| (Located::new(hook.name, hook.position), hook.value)).collect(),
            strict: keys.strict.read(decoder),
            outer: None,
        })
    }
}

impl Shape for OnError {
    fn schema() -> Schema {
        shape::words(Self::ALL.map(Self::word))
    }
}

impl Read for OnError {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, |text| {
            let known = Self::ALL.into_iter().find(|answer| answer.word() == text);
            known.ok_or_else(|| "write `block` or `allow`".to_owned())
        })
    }
}

impl Shown for OnError {
    fn shown(&self) -> Json {
        json!(self.word())
    }
}
