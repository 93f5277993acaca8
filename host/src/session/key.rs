//! The keys of models, to keep them out of what is written.
//!
//! No key is given to a model or to a script, so that none should ever come by here; a person may still paste one.

use serde_json::Value as Json;

use crate::ambient;
use crate::artifact::policy::ProjectPolicy;

/// What stands where a key was.
const HIDDEN: &str = "[key]";
/// A shorter one may well be a word that is not meant.
const MIN: usize = 8;

/// The keys that a project's models are asked with.
#[derive(Clone, Default)]
pub(super) struct Keys(Vec<String>);

/// Without what they are.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

impl Keys {
    /// Those that the environment holds now.
    pub(super) fn of(policy: &ProjectPolicy) -> Self {
        Self::from(policy.models.key_variables().into_iter().filter_map(ambient::variable))
    }

    fn from(keys: impl Iterator<Item = String>) -> Self {
        let mut keys: Vec<String> = keys.map(|key| key.trim().to_owned()).filter(|key| key.len() >= MIN).collect();
        // One may be part of another.
        keys.sort_by_key(|key| std::cmp::Reverse(key.len()));
        Self(keys)
    }

    /// Takes them out of every text of a value.
    pub(super) fn redact(&self, value: &mut Json) {
        if self.0.is_empty() {
            return;
        }
        match value {
            Json::String(text) => self.redact_text(text),
            Json::Array(items) => items.iter_mut().for_each(|item| self.redact(item)),
            Json::Object(fields) => {
                let held = |key: &String| self.0.iter().any(|one| key.contains(one.as_str()));
                if fields.keys().any(held) {
                    *fields = std::mem::take(fields)
                        .into_iter()
                        .map(|(mut name, value)| {
                            self.redact_text(&mut name);
                            (name, value)
                        })
                        .collect();
                }
                fields.values_mut().for_each(|value| self.redact(value));
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }

    fn redact_text(&self, text: &mut String) {
        for key in &self.0 {
            if text.contains(key.as_str()) {
                *text = text.replace(key.as_str(), HIDDEN);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_is_nowhere() {
        let keys = Keys::from(["sk-1234567890", " sk-1234567890-long\n", "short"].into_iter().map(str::to_owned));
        let mut value = json!({"a": ["x sk-1234567890-long y", {"sk-1234567890": "short"}], "n": 12});
        keys.redact(&mut value);
        assert_eq!(value, json!({"a": ["x [key] y", {"[key]": "short"}], "n": 12}));
        assert_eq!(format!("{keys:?}"), "Keys(2)");
    }
}
