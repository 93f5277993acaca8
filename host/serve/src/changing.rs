//! A value that every request reads and that few change.

use std::mem::take;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, RwLock};

use tokio::sync::{Mutex, MutexGuard};

/// Read at once. Whoever changes it has it alone: until then others find nothing, and wait if they want to.
#[derive(Debug)]
pub(crate) struct Changing<T> {
    /// None while somebody changes it.
    there: RwLock<Option<T>>,
    one: Mutex<()>,
}

impl<T: Default> Default for Changing<T> {
    fn default() -> Self {
        Self { there: RwLock::new(Some(T::default())), one: Mutex::default() }
    }
}

impl<T: Default> Changing<T> {
    /// What is seen in it, unless somebody changes it.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.there.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(look)
    }

    /// It alone, once nobody else has it.
    pub(crate) async fn change(&self) -> Change<'_, T> {
        let one = self.one.lock().await;
        let held = self.there.write().unwrap_or_else(PoisonError::into_inner).take();
        Change { all: self, held: held.unwrap_or_default(), _one: one }
    }
}

/// A value that nobody else has. It is there for all again when this is dropped.
#[derive(Debug)]
pub(crate) struct Change<'a, T: Default> {
    all: &'a Changing<T>,
    held: T,
    // Let go of after the value is back.
    _one: MutexGuard<'a, ()>,
}

impl<T: Default> Deref for Change<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T: Default> DerefMut for Change<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

impl<T: Default> Drop for Change<'_, T> {
    fn drop(&mut self) {
        *self.all.there.write().unwrap_or_else(PoisonError::into_inner) = Some(take(&mut self.held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_changes_it_has_it_alone() {
        let value = Changing::default();
        let now = |value: &Changing<i32>| value.look(|number| *number);
        assert_eq!(now(&value), Some(0));
        *value.change().await = 1;
        assert_eq!(now(&value), Some(1));
        let mut change = value.change().await;
        assert_eq!((*change, now(&value)), (1, None));
        let mut waits = Box::pin(value.change());
        assert!(futures_util::poll!(&mut waits).is_pending());
        *change = 2;
        drop(change);
        assert_eq!(*waits.await, 2);
        assert_eq!(now(&value), Some(2));
        // One that is given up on the way gives it back.
        drop(value.change().await);
        assert_eq!(now(&value), Some(2));
    }
}
