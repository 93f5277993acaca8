//! Where a script is, for an interpreter that ends without being able to give an error: by a panic, or where there is no
//! more memory. What Rust's library writes then is preceded by it.

use std::cell::RefCell;

use crate::diagnostic::Place;

thread_local! {
    static RUNNING: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// While it is there, a script of a place runs.
pub(crate) struct Running(());

impl Running {
    pub(crate) fn begin(place: &Place) -> Self {
        forget();
        RUNNING.set(Some(place.clone()));
        Self(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(None);
        forget();
    }
}

// The machine's own interpreter, for tests, may be the one that was not changed; nothing asks it.

#[cfg(not(target_family = "wasm"))]
fn forget() {}

#[cfg(target_family = "wasm")]
use told::forget;
#[cfg(target_family = "wasm")]
pub(crate) use told::told;

#[cfg(target_family = "wasm")]
mod told {
    use std::cell::Cell;

    thread_local! {
        static TOLD: Cell<bool> = const { Cell::new(false) };
    }

    /// Where the running script is and what its values took when they were last counted, as the host reads it. Once: an
    /// end within the end has nothing to add.
    pub(crate) fn told() -> Option<String> {
        if TOLD.replace(true) {
            return None;
        }
        // SAFETY: a program is forgotten before it is gone.
        let span = unsafe { starlark::eval::last_place() }?;
        let (line, column) =
            super::RUNNING.with(|running| running.try_borrow().ok()?.as_ref().map(|place| place.position(&span)))?;
        Some(format!("at {line}:{column} live {}\n", starlark::eval::last_live_bytes()))
    }

    pub(super) fn forget() {
        starlark::eval::forget_place();
    }
}
