//! The keys of a mapping, declared once: how the decoder takes them and what an editor learns of them.
//!
//! [`keys!`] makes of a table a struct with a [`Slot`] for each key. There is no other way to ask a mapping for a key by name,
//! so that none can be read and missing in the schema; and as a slot that nobody reads is dead code, which the
//! compiler reports, none can be in the schema without being read.
//!
//! ```ignore
//! keys! {
//!     /// The keys of one parameter.
//!     ParameterKeys: Unknown::Warn;
//!     /// What the argument must be in JSON.
//!     required kind("type"): ParameterType;
//!     /// Whether a call without it is refused.
//!     optional required: bool = false;
//! }
//! ```
//!
//! A line is the description, how the key may be missing ([`Presence`]), the name of the slot with the key in brackets
//! where that is another one, the [`Shape`] of the value, and the default where it is of use to show one.

use std::marker::PhantomData;

use serde_json::{Value as Json, json};

use super::decode::{Decoder, Field};
use super::diagnostic::{Diagnostic, Position, Severity};
use super::located::Located;
use super::shape::{self, Read, Schema, Shape, Shown};
use super::suggest::closest;
use super::upstream;
use super::yaml::{Key, Node, Value};
use harness_policy::text::quoted;

/// What to do with keys that no table declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The format ignores them; a warning says so.
    Warn,
    /// In a policy, a rule that is not understood must not be skipped.
    Refuse,
    /// As `Warn`, but a key that seems to mean one of these is an error: `sandbx` must not leave the defaults standing.
    RefuseLike(&'static [&'static str]),
    /// As `Warn`, but these are errors: they mean something elsewhere, and anyone who wrote one relies on it.
    RefuseThese(&'static [&'static str]),
}

/// Keys of a policy. In a file that is none, nobody would read what they say.
pub(super) const POLICY_ONLY: [&str; 3] = ["network", "sandbox", "tools_policy"];

/// How a key may be missing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It may be left out, or be there without a value.
    Optional,
    /// It may be left out; standing there without a value, it has a wrong one.
    Given,
    /// It must be there with a value. What is said where it is not is for who reads the slot.
    Required,
}

/// A table of keys.
pub trait Keys<'n>: Sized {
    /// What to do with other keys.
    const UNKNOWN: Unknown;

    /// Asks a mapping for all of them.
    fn take(fields: &mut Fields<'n>) -> Self;

    /// Reports all of them.
    fn describe(properties: &mut Properties);
}

/// The entries of a mapping, and the keys that it was asked for.
#[derive(Debug)]
pub struct Fields<'n> {
    prefix: String,
    entries: Vec<(&'n Key, &'n Node)>,
    asked: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    pub(super) fn new(prefix: &str, entries: &'n [(Key, Node)]) -> Self {
        Self { prefix: prefix.to_owned(), entries: entries.iter().map(|(k, n)| (k, n)).collect(), asked: Vec::new() }
    }

    pub(super) fn take(&mut self, name: &'static str) -> Option<Field<'n>> {
        self.asked.push(name);
        let (key, node) = *self.entries.iter().find(|(key, _)| key.text == name)?;
        Some(self.field(key, node))
    }

    /// All entries, for mappings whose keys are names.
    pub(super) fn all(&self) -> Vec<(&'n Key, Field<'n>)> {
        self.entries.iter().map(|(key, node)| (*key, self.field(key, node))).collect()
    }

    fn field(&self, key: &'n Key, node: &'n Node) -> Field<'n> {
        let path = if self.prefix.is_empty() { key.text.clone() } else { format!("{}.{}", self.prefix, key.text) };
        Field { path, key: Some(key), node }
    }
}

/// The value of a key, if it is there, and what it has to be.
pub(crate) struct Slot<'n, T> {
    field: Option<Field<'n>>,
    shape: PhantomData<fn() -> T>,
}

impl<'n, T> Slot<'n, T> {
    /// For tables: asks for a key.
    pub(super) fn take(fields: &mut Fields<'n>, name: &'static str, presence: Presence) -> Self {
        let field = fields.take(name);
        let field = field.filter(|field| presence == Presence::Given || field.node.value != Value::Null);
        Self { field, shape: PhantomData }
    }

    /// The value as it is there, for those whose meaning depends on more than their place.
    pub(crate) fn field(&self) -> Option<&Field<'n>> {
        self.field.as_ref()
    }
}

impl<T: Read> Slot<'_, T> {
    /// The value; `None` where the key is missing, and where it was said what is wrong with it.
    pub(crate) fn read(&self, decoder: &mut Decoder) -> Option<T> {
        T::read(decoder, self.field()?)
    }

    /// The value with its place.
    pub(crate) fn located(&self, decoder: &mut Decoder) -> Option<Located<T>> {
        Located::read(decoder, self.field()?)
    }
}

/// A slot whose key has a default.
pub(crate) struct Defaulted<'n, T> {
    slot: Slot<'n, T>,
    default: T,
}

impl<'n, T: Read> Defaulted<'n, T> {
    /// For tables: asks for a key.
    pub(super) fn take(fields: &mut Fields<'n>, name: &'static str, presence: Presence, default: T) -> Self {
        Self { slot: Slot::take(fields, name, presence), default }
    }

    /// The value as it is there.
    pub(crate) fn field(&self) -> Option<&Field<'n>> {
        self.slot.field()
    }

    /// The value, or the default. After a wrong value too: the file is of no use then.
    pub(crate) fn read(self, decoder: &mut Decoder) -> T {
        self.slot.read(decoder).unwrap_or(self.default)
    }

    /// The value with its place, or the default at the place of what says nothing.
    pub(crate) fn located(self, decoder: &mut Decoder, otherwise: &Position) -> Located<T> {
        self.slot.located(decoder).unwrap_or_else(|| Located::new(self.default, otherwise.clone()))
    }
}

/// The properties of a mapping, for its schema.
#[derive(Debug, Default)]
pub struct Properties {
    of: Schema,
    required: Vec<&'static str>,
}

impl Properties {
    /// For tables: one more key.
    pub(super) fn key<T: Shape>(&mut self, name: &'static str, presence: Presence, about: &str, default: Option<Json>) {
        let mut schema = match presence {
            Presence::Optional => shape::or_nothing(T::schema()),
            Presence::Given | Presence::Required => T::schema(),
        };
        if presence == Presence::Required {
            self.required.push(name);
        }
        // A line of the table is a line of its source: to a reader it is one sentence.
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
        schema.insert("description".to_owned(), about.into());
        if let Some(default) = default {
            schema.insert("default".to_owned(), default);
        }
        self.of.insert(name.to_owned(), schema.into());
    }
}

/// The default of a key as its schema shows it.
pub(super) fn shown<T: Shown>(default: T) -> Option<Json> {
    Some(default.shown())
}

/// Any name but these.
pub(super) fn but(words: &[&str]) -> Json {
    json!({ "not": { "enum": words } })
}

/// The schema of a mapping with these keys.
pub(crate) fn schema<'n, K: Keys<'n>>() -> Schema {
    let mut properties = Properties::default();
    K::describe(&mut properties);
    let mut schema = shape::schema(json!({"type": "object", "properties": properties.of}));
    if !properties.required.is_empty() {
        schema.insert("required".to_owned(), json!(properties.required));
    }
    if K::UNKNOWN == Unknown::Refuse {
        schema.insert("additionalProperties".to_owned(), json!(false));
    }
    if let Unknown::RefuseThese(words) = K::UNKNOWN {
        schema.insert("propertyNames".to_owned(), but(words));
    }
    schema
}

impl Decoder {
    /// The keys of the outermost mapping; nothing at all is an empty one.
    pub fn root<'n, K: Keys<'n>>(&mut self, root: &'n Node) -> Option<K> {
        let entries = match &root.value {
            Value::Null => &[],
            Value::Map(entries) => entries.as_slice(),
            other => {
                let message = format!("the front matter must be a mapping, found {}", other.kind());
                self.malformed(root.span, &message, None);
                return None;
            }
        };
        Some(self.take(Fields::new("", entries)))
    }

    /// The keys of a mapping. Others are reported.
    pub fn keys<'n, K: Keys<'n>>(&mut self, field: &Field<'n>) -> Option<K> {
        let fields = self.mapping(field)?;
        Some(self.take(fields))
    }

    /// The keys of a mapping of which others may be reported later, with `finish`, or not at all.
    pub fn open<'n, K: Keys<'n>>(&mut self, field: &Field<'n>) -> Option<(K, Fields<'n>)> {
        let mut fields = self.mapping(field)?;
        Some((K::take(&mut fields), fields))
    }

    /// A mapping whose keys are the words of something, each with a value of one kind. Others are reported as errors.
    pub fn words<'n>(
        &mut self,
        field: &Field<'n>,
        words: impl IntoIterator<Item = &'static str>,
    ) -> Option<Vec<(&'static str, Field<'n>)>> {
        let mut fields = self.mapping(field)?;
        let found = words.into_iter().filter_map(|word| Some((word, fields.take(word)?))).collect();
        self.finish(&fields, Unknown::Refuse);
        Some(found)
    }

    /// The entries of a mapping whose keys are names.
    pub fn entries<'n>(&mut self, field: &Field<'n>) -> Option<Vec<(&'n Key, Field<'n>)>> {
        Some(self.mapping(field)?.all())
    }

    fn take<'n, K: Keys<'n>>(&mut self, mut fields: Fields<'n>) -> K {
        let keys = K::take(&mut fields);
        self.finish(&fields, K::UNKNOWN);
        keys
    }

    /// Says something of every key that was not asked for.
    pub(super) fn finish(&mut self, fields: &Fields<'_>, unknown: Unknown) {
        let Fields { prefix, entries, asked } = fields;
        for (key, _) in entries.iter().filter(|(key, _)| !asked.contains(&key.text.as_str())) {
            let is_policy = unknown != Unknown::Refuse && prefix.is_empty() && POLICY_ONLY.contains(&key.text.as_str());
            let meant = || closest(&key.text, asked.iter().copied());
            let refuse = is_policy
                || match unknown {
                    Unknown::Warn => false,
                    Unknown::Refuse => true,
                    // The first look is the cheaper one, and most keys do not get past it.
                    Unknown::RefuseLike(words) => {
                        closest(&key.text, words.iter().copied()).is_some()
                            && meant().is_some_and(|word| words.contains(&word) && is_near(&key.text, word))
                    }
                    Unknown::RefuseThese(words) => words.contains(&key.text.as_str()),
                };
            let severity = if refuse { Severity::Error } else { Severity::Warning };
            let position = self.position(key.span);
            self.diagnostics.push_with(severity, || {
                let name =
                    if prefix.is_empty() { quoted(&key.text) } else { quoted(&format!("{prefix}.{}", key.text)) };
                let diagnostic = match refuse {
                    false => Diagnostic::warning(format!("unknown key {name}, it is ignored")),
                    true => Diagnostic::error(format!("unknown key {name}")),
                };
                let hint = match meant() {
                    _ if is_policy => "a policy is not read here: it belongs in the project's `harness.md`".to_owned(),
                    _ if upstream::key(&key.text).is_some() => upstream::key(&key.text).unwrap_or_default().to_owned(),
                    Some(word) => format!("did you mean `{word}`?"),
                    None => format!("known here: {}", asked.join(", ")),
                };
                diagnostic.at(position).hint(hint)
            });
        }
    }
}

/// Whether a key has more than a third of the letters of a word: `tests` is no slip of the pen for `trusted_sources`.
fn is_near(key: &str, word: &str) -> bool {
    key.len().saturating_mul(3) > word.len()
}

/// The keys of both, those of the first before; it says what is done with others.
impl<'n, A: Keys<'n>, B: Keys<'n>> Keys<'n> for (A, B) {
    const UNKNOWN: Unknown = A::UNKNOWN;

    fn take(fields: &mut Fields<'n>) -> Self {
        (A::take(fields), B::take(fields))
    }

    fn describe(properties: &mut Properties) {
        A::describe(properties);
        B::describe(properties);
    }
}

/// Declares the keys of a mapping; see the [module](self).
macro_rules! keys {
    (@name $key:ident) => { stringify!($key) };
    (@name $key:ident $text:literal) => { $text };
    (@presence optional) => { $crate::keys::Presence::Optional };
    (@presence given) => { $crate::keys::Presence::Given };
    (@presence required) => { $crate::keys::Presence::Required };
    (@slot $life:lifetime $shape:ty) => { $crate::keys::Slot<$life, $shape> };
    (@slot $life:lifetime $shape:ty = $default:expr) => { $crate::keys::Defaulted<$life, $shape> };
    (@default $shape:ty) => { None };
    (@default $shape:ty = $default:expr) => { $crate::keys::shown::<$shape>($default) };
    (@take $fields:ident $name:expr, $presence:expr;) => { $crate::keys::Slot::take($fields, $name, $presence) };
    (@take $fields:ident $name:expr, $presence:expr; $default:expr) => {
        $crate::keys::Defaulted::take($fields, $name, $presence, $default)
    };
    (
        $(#[$about:meta])*
        $visible:vis $table:ident: $unknown:expr;
        $(
            $(#[doc = $doc:literal])+
            $presence:ident $key:ident $(($text:literal))?: $shape:ty $(= $default:expr)?;
        )*
    ) => {
        $(#[$about])*
        $visible struct $table<'n> {
            $( $(#[doc = $doc])+ $key: keys!(@slot 'n $shape $(= $default)?), )*
        }

        impl<'n> $crate::keys::Keys<'n> for $table<'n> {
            const UNKNOWN: $crate::keys::Unknown = $unknown;

            fn take(fields: &mut $crate::keys::Fields<'n>) -> Self {
                Self {
                    $( $key: keys!(@take fields keys!(@name $key $($text)?), keys!(@presence $presence); $($default)?), )*
                }
            }

            fn describe(properties: &mut $crate::keys::Properties) {
                $( properties.key::<$shape>(
                    keys!(@name $key $($text)?),
                    keys!(@presence $presence),
                    concat!($($doc),+),
                    keys!(@default $shape $(= $default)?),
                ); )*
            }
        }
    };
}

pub(crate) use keys;
