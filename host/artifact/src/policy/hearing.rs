//! What the hooks of a plugin receive of events: those of its own tools and agents, and of others what it asks for and the
//! policy consents to, whole or narrowed.

use serde_json::json;

use crate::decode::{Decoder, Field};
use crate::event::Event;
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use crate::shape::{self, Read, Schema, Shape};
use crate::yaml::Value;
use harness_policy::shared::Shared;
use harness_policy::text::quoted;

/// What a hook receives of an event of others. Of two the lesser one holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Shows {
    /// Nothing: it receives the events of the plugin's own tools and agents alone.
    Own,
    /// The names in the payload.
    Names,
    /// The names, and a digest of everything else.
    Digests,
    /// The whole payload.
    #[default]
    All,
}

impl Shows {
    /// All of them, the least first.
    pub const ALL: [Self; 4] = [Self::Own, Self::Names, Self::Digests, Self::All];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Names => "names",
            Self::Digests => "digests",
            Self::All => "all",
        }
    }

    /// What a hook receives, in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Own => "of its own tools and agents",
            Self::Names => "of its own tools and agents, and the names in those of others",
            Self::Digests => "of its own tools and agents, and names and digests in those of others",
            Self::All => "of the whole project",
        }
    }
}

impl Shape for Shows {
    fn schema() -> Schema {
        shape::words(Self::ALL.map(Self::name))
    }
}

impl Read for Shows {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, |text| {
            let found = Self::ALL.into_iter().find(|shows| shows.name() == text);
            found.ok_or_else(|| format!("{} is none of {}", quoted(text), Self::ALL.map(Self::name).join(", ")))
        })
    }
}

/// An item of `events`: an event by its name, or with what is shown of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The event.
    pub event: Event,
    /// What hooks receive of it.
    pub shows: Shows,
}

keys! {
    /// An event with what is shown of it.
    HeardKeys: Unknown::Refuse;
    /// The name of the event.
    required event: Event;
    /// What the hooks receive of the events of others: `own` nothing, `names` the names in the payload, `digests` the
    /// names and a SHA-256 of each other value, `all` the whole payload. Default: `all`.
    given shows: Shows;
}

impl Shape for Heard {
    fn schema() -> Schema {
        shape::schema(json!({"anyOf": [Event::schema(), keys::schema::<HeardKeys<'_>>()]}))
    }
}

impl Read for Heard {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        if !matches!(field.node.value, Value::Map(_)) {
            return Event::read(decoder, field).map(|event| Self { event, shows: Shows::All });
        }
        let keys: HeardKeys<'_> = decoder.keys(field)?;
        if keys.event.field().is_none() {
            decoder.error(field, format!("{} has no `event`", quoted(&field.path)));
        }
        let (event, shows) = (keys.event.read(decoder), keys.shows.read(decoder));
        Some(Self { event: event?, shows: shows.unwrap_or_default() })
    }
}

impl Shape for Shared {
    fn schema() -> Schema {
        shape::schema(json!({"type": "string", "pattern": "^(custom|cache|ctx|metrics)\\.([^*]+[*]?|[*])$"}))
    }
}

impl Read for Shared {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, Self::parse)
    }
}

/// What a list of events shows of one; none where it does not name it.
pub(crate) fn shown(events: &[Heard], event: &Event) -> Option<Shows> {
    events.iter().filter(|one| one.event == *event).map(|one| one.shows).min()
}

/// The same of a list with positions.
pub(super) fn shown_at(events: &[Located<Heard>], event: &Event) -> Option<Shows> {
    events.iter().filter(|one| one.event == *event).map(|one| one.shows).min()
}

/// Why a hook of a plugin may not receive an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unheard {
    /// The plugin does not ask for it, and it is never an event of the plugin's own tools and agents.
    Unasked,
    /// No entry of `sandbox.sources` consents to it.
    Unconsented,
}

/// What hooks receive of an event: `asked` is what the plugin asks for, none where it has a `plugin.md` that does not name
/// the event; `consented` is what the policy lets it receive, none where it does not. `can_be_own` is whether the event
/// may be one of the plugin's own tools and agents.
///
/// # Errors
///
/// Why its hook stops the project.
pub fn decide(
    event: &Event,
    asked: Option<Shows>,
    consented: Option<Shows>,
    can_be_own: bool,
) -> Result<Shows, Unheard> {
    // Nobody receives these of others.
    if event.is_own() {
        return Ok(Shows::Own);
    }
    match (asked, consented) {
        (Some(asked), Some(consented)) => Ok(asked.min(consented)),
        (Some(_), None) => Err(Unheard::Unconsented),
        (None, _) if can_be_own => Ok(Shows::Own),
        (None, _) => Err(Unheard::Unasked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked for and what is consented to bound each other, and no guard falls silent.
    #[test]
    fn the_lesser_of_two_holds() {
        let (pre, start) = (Event::ToolPre, Event::SessionStart);
        for asked in Shows::ALL {
            for consented in Shows::ALL {
                assert_eq!(decide(&pre, Some(asked), Some(consented), true), Ok(asked.min(consented)));
            }
            assert_eq!(decide(&pre, Some(asked), None, true), Err(Unheard::Unconsented));
        }
        for consented in [None, Some(Shows::All)] {
            assert_eq!(decide(&pre, None, consented, true), Ok(Shows::Own));
            assert_eq!(decide(&start, None, consented, false), Err(Unheard::Unasked));
        }
        for own in [Event::BuiltinPre, Event::BuiltinPost, Event::ArtifactLoad] {
            assert_eq!(decide(&own, Some(Shows::All), Some(Shows::All), true), Ok(Shows::Own));
            assert_eq!(decide(&own, Some(Shows::All), None, true), Ok(Shows::Own));
        }
    }
}
