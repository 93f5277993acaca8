//! What a value of front matter may be: how it is read, and what an editor learns of it, side by side.

use serde_json::{Map, Value as Json, json};

use super::decode::{Decoder, Field};
use super::diagnostic::Position;
use super::located::Located;
use super::script::Script;

/// A JSON Schema that is a mapping, as all here are.
pub(crate) type Schema = Map<String, Json>;

/// A value with a schema for editors.
pub(crate) trait Shape {
    /// What fits, without a description: that is the key's.
    fn schema() -> Schema;
}

/// A value that is read without knowing more than its place.
pub(crate) trait Read: Shape + Sized {
    /// The value; `None` after it was said what is wrong with it.
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self>;
}

/// A value that a schema can show as the default of its key.
pub(crate) trait Shown: Read {
    /// As it is in JSON.
    fn shown(&self) -> Json;
}

/// The mapping that a JSON text is.
pub(crate) fn schema(of: Json) -> Schema {
    match of {
        Json::Object(schema) => schema,
        _ => Schema::new(),
    }
}

/// One of these words.
pub(crate) fn words(words: impl IntoIterator<Item = impl Into<Json>>) -> Schema {
    schema(json!({"enum": words.into_iter().map(Into::into).collect::<Vec<Json>>()}))
}

/// Reads the value that one of these words stands for.
pub(crate) fn word<T: Copy>(decoder: &mut Decoder, field: &Field<'_>, words: &[(&str, T)]) -> Option<T> {
    let text = decoder.string(field)?;
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    if found.is_none() {
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        decoder.error(field, format!("{} {text:?} must be {}", field.path, all.join("|")));
    }
    found
}

/// The word that stands for a value.
pub(crate) fn word_of<T: PartialEq>(value: T, words: &[(&str, T)]) -> Json {
    words.iter().find(|(_, other)| *other == value).map_or(Json::Null, |(word, _)| json!(word))
}

/// Lets types be chosen in front matter by the words of their `WORDS`, each with its value.
macro_rules! chosen_by_word {
    ($($choice:ty),+) => {$(
        impl $crate::shape::Shape for $choice {
            fn schema() -> $crate::shape::Schema {
                $crate::shape::words(Self::WORDS.map(|(word, _)| word))
            }
        }

        impl $crate::shape::Read for $choice {
            fn read(decoder: &mut $crate::decode::Decoder, field: &$crate::decode::Field<'_>) -> Option<Self> {
                $crate::shape::word(decoder, field, &Self::WORDS)
            }
        }

        impl $crate::shape::Shown for $choice {
            fn shown(&self) -> serde_json::Value {
                $crate::shape::word_of(*self, &Self::WORDS)
            }
        }
    )+};
}

pub(crate) use chosen_by_word;

/// The same, or nothing after the key.
pub(crate) fn or_nothing(mut schema: Schema) -> Schema {
    match schema.get_mut("type") {
        Some(Json::Array(kinds)) => kinds.push("null".into()),
        Some(kind) => *kind = json!([kind.take(), "null"]),
        None => {}
    }
    if let Some(Json::Array(words)) = schema.get_mut("enum") {
        words.push(Json::Null);
    }
    if let Some(Json::Array(ways)) = schema.get_mut("anyOf") {
        ways.push(json!({"type": "null"}));
    }
    schema
}

impl Shape for String {
    fn schema() -> Schema {
        schema(json!({"type": "string"}))
    }
}

impl Read for String {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.string(field).map(str::to_owned)
    }
}

impl Shown for String {
    fn shown(&self) -> Json {
        json!(self)
    }
}

/// A text that must hold something. What is said of an empty one is for who asks.
pub(crate) struct Name(pub(crate) String);

impl Shape for Name {
    fn schema() -> Schema {
        schema(json!({"type": "string", "minLength": 1}))
    }
}

impl Read for Name {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        String::read(decoder, field).map(Self)
    }
}

impl Shape for Script {
    fn schema() -> Schema {
        String::schema()
    }
}

impl Read for Script {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.script(field)
    }
}

impl Shape for bool {
    fn schema() -> Schema {
        schema(json!({"type": "boolean"}))
    }
}

impl Read for bool {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.boolean(field)
    }
}

impl Shown for bool {
    fn shown(&self) -> Json {
        json!(self)
    }
}

/// A whole number within bounds, both of which are in.
pub(crate) struct Between<const LEAST: u64, const MOST: u64>(pub(crate) u64);

impl<const LEAST: u64, const MOST: u64> Shape for Between<LEAST, MOST> {
    fn schema() -> Schema {
        schema(json!({"type": "integer", "minimum": LEAST, "maximum": MOST}))
    }
}

impl<const LEAST: u64, const MOST: u64> Read for Between<LEAST, MOST> {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.integer_in(field, LEAST..=MOST).map(Self)
    }
}

impl<const LEAST: u64, const MOST: u64> Shown for Between<LEAST, MOST> {
    fn shown(&self) -> Json {
        json!(self.0)
    }
}

/// A number within bounds, both of which are in.
pub(crate) struct Within<const LEAST: u32, const MOST: u32>(pub(crate) f64);

impl<const LEAST: u32, const MOST: u32> Shape for Within<LEAST, MOST> {
    fn schema() -> Schema {
        schema(json!({"type": "number", "minimum": LEAST, "maximum": MOST}))
    }
}

impl<const LEAST: u32, const MOST: u32> Read for Within<LEAST, MOST> {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.number_in(field, f64::from(LEAST)..=f64::from(MOST)).map(Self)
    }
}

impl<const LEAST: u32, const MOST: u32> Shown for Within<LEAST, MOST> {
    fn shown(&self) -> Json {
        json!(self.0)
    }
}

/// A key that is known and not looked into.
pub(crate) struct Anything;

impl Shape for Anything {
    fn schema() -> Schema {
        Schema::new()
    }
}

impl<T: Shape> Shape for Located<T> {
    fn schema() -> Schema {
        T::schema()
    }
}

impl<T: Read> Read for Located<T> {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        Some(Self::new(T::read(decoder, field)?, decoder.position(field.span())))
    }
}

impl<T: Shape> Shape for Vec<T> {
    fn schema() -> Schema {
        schema(json!({"type": "array", "items": T::schema()}))
    }
}

/// A list with a bad item is no list; every bad item is reported.
impl<T: Read> Read for Vec<T> {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let items = decoder.list(field)?;
        let read: Vec<Option<T>> = items.iter().map(|item| T::read(decoder, item)).collect();
        read.into_iter().collect()
    }
}

/// A mapping whose keys are names, in the order of the file.
pub(crate) struct Named<T>(pub(crate) Vec<Entry<T>>);

/// One of [`Named`].
pub(crate) struct Entry<T> {
    pub name: String,
    /// Where its name stands.
    pub position: Position,
    pub value: T,
}

impl<T> Named<T> {
    /// Names and values alone.
    pub(crate) fn pairs(self) -> Vec<(String, T)> {
        self.0.into_iter().map(|entry| (entry.name, entry.value)).collect()
    }
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Shape> Shape for Named<T> {
    fn schema() -> Schema {
        schema(json!({"type": "object", "additionalProperties": T::schema()}))
    }
}

/// What cannot be read is reported and left out.
impl<T: Read> Read for Named<T> {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let mut read = Vec::new();
        for (key, field) in decoder.entries(field)? {
            let position = decoder.position(key.span);
            read.extend(T::read(decoder, &field).map(|value| Entry { name: key.text.clone(), position, value }));
        }
        Some(Self(read))
    }
}
