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

#[cfg(not(target_family = "wasm"))]
pub(crate) fn report() {}

#[cfg(target_family = "wasm")]
use told::forget;
#[cfg(target_family = "wasm")]
pub(crate) use told::report;

#[cfg(target_family = "wasm")]
mod told {
    use std::cell::Cell;
    use std::fmt::{self, Write};

    use crate::bindings::harness::sandbox::last_words;

    thread_local! {
        static TOLD: Cell<bool> = const { Cell::new(false) };
    }

    /// A short text. There may be no memory for a longer one.
    struct Words {
        bytes: [u8; 64],
        length: usize,
    }

    impl Words {
        fn as_bytes(&self) -> &[u8] {
            self.bytes.get(..self.length).unwrap_or_default()
        }
    }

    impl Write for Words {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let end = self.length.saturating_add(text.len());
            self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
            self.length = end;
            Ok(())
        }
    }

    /// Where the running script is and what its values took when they were last counted, as the host reads it. Once: an
    /// end within the end has nothing to add.
    fn told() -> Option<Words> {
        if TOLD.replace(true) {
            return None;
        }
        let span = starlark::eval::last_place()?;
        let (line, column) =
            super::RUNNING.with(|running| running.try_borrow().ok()?.as_ref().map(|place| place.position(&span)))?;
        let mut words = Words { bytes: [0; 64], length: 0 };
        writeln!(words, "at {line}:{column} live {}", starlark::eval::last_live_bytes()).ok()?;
        Some(words)
    }

    /// Writes where the running script is, for a host that stopped it.
    pub(crate) fn report() {
        if let Some(words) = told() {
            last_words::write(words.as_bytes());
        }
    }

    pub(super) fn forget() {
        starlark::eval::forget_place();
    }
}
