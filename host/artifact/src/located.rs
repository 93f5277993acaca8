//! A value that knows where it was written.

use std::ops::Deref;

use super::diagnostic::Position;

/// A value and its place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub position: Position,
}

impl<T> Located<T> {
    /// A value at a place.
    pub fn new(value: T, position: Position) -> Self {
        Self { value, position }
    }

    /// What is made of the value, at the same place.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Located<U> {
        Located { value: make(self.value), position: self.position }
    }
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
