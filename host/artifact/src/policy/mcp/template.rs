//! Texts of a server's entry that name secrets and variables of the host: values of variables and of headers.

use std::fmt;

use super::super::layer;
use crate::decode::{Decoder, Field};
use crate::shape::{Read, Schema, Shape};
use harness_policy::text::quoted;

/// The value of a variable, with secrets and variables of the host by name: `Bearer {secret:TOKEN}`, `{env:HOME}/x`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableText(Vec<Piece>);

/// A part of a [`VariableText`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// As it is written.
    Text(String),
    /// The value of a secret.
    Secret(String),
    /// The value of a variable of the host's environment.
    Variable(String),
}

impl VariableText {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// What is wrong with a part in braces.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            plain.push_str(before);
            let kind = [("secret:", Piece::Secret as fn(String) -> Piece), ("env:", Piece::Variable)];
            let Some((name, make)) =
                kind.into_iter().find_map(|(start, make)| Some((after.strip_prefix(start)?, make)))
            else {
                plain.push('{');
                rest = after;
                continue;
            };
            let Some((name, after)) = name.split_once('}') else {
                return Err(format!("{} has no `}}`", quoted(&format!("{{{after}"))));
            };
            let name = layer::variable(name)?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(make(name));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        if text.contains('\0') {
            return Err("there is a NUL in it".to_owned());
        }
        Ok(Self(pieces))
    }

    /// Its parts in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// The secrets that it names.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Secret(name) => Some(name.as_str()),
            Piece::Text(_) | Piece::Variable(_) => None,
        })
    }
}

/// As it is written in a policy.
impl fmt::Display for VariableText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Secret(name) => write!(f, "{{secret:{name}}}"),
            Piece::Variable(name) => write!(f, "{{env:{name}}}"),
        })
    }
}

impl Shape for VariableText {
    fn schema() -> Schema {
        String::schema()
    }
}

impl Read for VariableText {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, Self::parse)
    }
}
