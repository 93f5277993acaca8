//! A value that every request reads and that few replace.

use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, RwLock};

use tokio::sync::{Mutex, MutexGuard};

/// Read at once. Whoever changes it has it alone: until then others find nothing, and wait if they want to.
#[derive(Debug)]
pub(crate) struct Changing<T> {
    there: RwLock<Option<T>>,
    one: Mutex<()>,
}

impl<T> Default for Changing<T> {
    fn default() -> Self {
        Self { there: RwLock::default(), one: Mutex::default() }
    }
}

impl<T: Clone> Changing<T> {
    /// What is there, while nobody changes it.
    pub(crate) fn now(&self) -> Option<T> {
        self.there.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It alone, once nobody else has it.
    pub(crate) async fn change(&self) -> Change<'_, T> {
        let one = self.one.lock().await;
        let held = self.there.write().unwrap_or_else(PoisonError::into_inner).take();
        Change { all: self, held, _one: one }
    }
}

/// A value that nobody else has. It is there for all again when this is dropped.
#[derive(Debug)]
pub(crate) struct Change<'a, T> {
    all: &'a Changing<T>,
    held: Option<T>,
    // Let go of after the value is back.
    _one: MutexGuard<'a, ()>,
}

impl<T> Deref for Change<'_, T> {
    type Target = Option<T>;

    fn deref(&self) -> &Option<T> {
        &self.held
    }
}

impl<T> DerefMut for Change<'_, T> {
    fn deref_mut(&mut self) -> &mut Option<T> {
        &mut self.held
    }
}

impl<T> Drop for Change<'_, T> {
    fn drop(&mut self) {
        *self.all.there.write().unwrap_or_else(PoisonError::into_inner) = self.held.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_changes_it_has_it_alone() {
        let value = Changing::default();
        *value.change().await = Some(1);
        assert_eq!(value.now(), Some(1));
        let mut change = value.change().await;
        assert_eq!((*change, value.now()), (Some(1), None));
        let mut waits = Box::pin(value.change());
        assert!(futures_util::poll!(&mut waits).is_pending());
        *change = Some(2);
        drop(change);
        assert_eq!(*waits.await, Some(2));
        assert_eq!(value.now(), Some(2));
        // One that is given up on the way gives it back.
        drop(value.change().await);
        assert_eq!(value.now(), Some(2));
    }
}
