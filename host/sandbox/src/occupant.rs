//! What a store holds: the state of a call while a call has the instance, and nothing of any before and after that.

use wasmtime::{ResourceLimiter, Result, Store, StoreContextMut};

use super::state::{State, instances_of_one, table_fits};
use super::stop::Stop;

/// The data of a store.
#[expect(missing_debug_implementations, reason = "it holds what the engine gives no debug form")]
pub enum Occupant {
    /// No call has the instance. It can do nothing: a host call ends it.
    Vacant {
        /// Bytes of linear memory that it was made with. No project has them on its account.
        memory: u64,
    },
    /// A call has it.
    Call(Box<State>),
}

impl Occupant {
    /// The state of the call, which is gone from here after that.
    pub(crate) fn leave(&mut self) -> Option<Box<State>> {
        match std::mem::replace(self, Self::Vacant { memory: 0 }) {
            Self::Call(state) => Some(state),
            Self::Vacant { .. } => None,
        }
    }
}

/// A store whose instance a call may have.
pub(crate) trait Occupied {
    /// What it holds.
    fn occupant(&mut self) -> &mut Occupant;

    /// The same to look at.
    fn peek(&self) -> &Occupant;

    /// The call that has the instance.
    ///
    /// # Errors
    ///
    /// None has.
    fn state(&self) -> Result<&State> {
        match self.peek() {
            Occupant::Call(state) => Ok(state),
            Occupant::Vacant { .. } => Err(Stop::Vacant.into()),
        }
    }

    /// The same to change.
    ///
    /// # Errors
    ///
    /// None has.
    fn state_mut(&mut self) -> Result<&mut State> {
        match self.occupant() {
            Occupant::Call(state) => Ok(state),
            Occupant::Vacant { .. } => Err(Stop::Vacant.into()),
        }
    }
}

impl Occupied for Store<Occupant> {
    fn occupant(&mut self) -> &mut Occupant {
        self.data_mut()
    }

    fn peek(&self) -> &Occupant {
        self.data()
    }
}

impl Occupied for StoreContextMut<'_, Occupant> {
    fn occupant(&mut self) -> &mut Occupant {
        self.data_mut()
    }

    fn peek(&self) -> &Occupant {
        self.data()
    }
}

impl ResourceLimiter for Occupant {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        match self {
            Self::Call(state) => Ok(state.memory_growing(current, desired)),
            // It is made, and does not run.
            Self::Vacant { memory } => {
                *memory = memory.saturating_add(desired.saturating_sub(current) as u64);
                Ok(true)
            }
        }
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        Ok(table_fits(desired))
    }

    fn instances(&self) -> usize {
        instances_of_one()
    }

    fn tables(&self) -> usize {
        instances_of_one()
    }

    fn memories(&self) -> usize {
        instances_of_one()
    }
}
