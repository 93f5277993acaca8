//! The interpreter's machine code, where it lies in this binary: pages of the file, which the system reads when they are
//! needed and shares between processes, instead of a copy of eighteen megabytes at each start.

use std::ptr::{NonNull, slice_from_raw_parts_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{MprotectFlags, mprotect};
use rustix::param::page_size;
use wasmtime::component::Component;
use wasmtime::{Config, CustomCodeMemory, Engine, Result};

/// The pages that code is aligned to in the file. Where the system has larger ones, code is copied.
const PAGE: usize = 4096;

#[repr(C, align(4096))]
struct Pages<T: ?Sized>(T);

static SHELL: &Pages<[u8]> = &Pages(*include_bytes!(concat!(env!("OUT_DIR"), "/shell.cwasm")));

/// Whether an engine has the code already: it knows code by its address, and so only one in a process can have it in place.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// How an engine comes to the interpreter's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// In this binary.
    Here,
    /// In a copy.
    Copied,
}

impl Placed {
    /// For the engine that is made next.
    pub(super) fn next() -> Self {
        if page_size() == PAGE && !TAKEN.swap(true, Ordering::Relaxed) { Self::Here } else { Self::Copied }
    }

    /// What the engine has to know of it.
    pub(super) fn configure(self, config: &mut Config) {
        if self == Self::Here {
            config.with_custom_code_memory(Some(Arc::new(Executable)));
        }
    }

    /// The interpreter, for an engine that was configured so.
    pub(super) fn shell(self, engine: &Engine) -> Result<Component> {
        let Pages(bytes) = SHELL;
        match self {
            Self::Here => {
                let memory = NonNull::new(slice_from_raw_parts_mut(bytes.as_ptr().cast_mut(), bytes.len()));
                let memory = memory.ok_or_else(|| wasmtime::format_err!("the interpreter lies nowhere"))?;
                // SAFETY: these are the bytes that the build script serialized, in read-only memory of this very binary,
                // which is there as long as the process. They are never written: the engine only reads them.
                #[expect(unsafe_code, reason = "machine code that is part of this binary")]
                unsafe {
                    Component::deserialize_raw(engine, memory)
                }
            }
            // SAFETY: the same bytes; the engine copies them.
            #[expect(unsafe_code, reason = "machine code that is part of this binary")]
            Self::Copied => unsafe { Component::deserialize(engine, bytes) },
        }
    }
}

/// Makes pages that hold machine code executable, and nothing writable.
struct Executable;

impl CustomCodeMemory for Executable {
    fn required_alignment(&self) -> usize {
        PAGE
    }

    fn publish_executable(&self, code: *const u8, length: usize) -> Result<()> {
        // SAFETY: the engine names whole pages that hold its code, which nothing writes any more, and the range is within
        // one mapping: that of this binary's constants, or one of the engine's own.
        #[expect(unsafe_code, reason = "the one way to make memory executable")]
        unsafe {
            mprotect(code.cast_mut().cast(), length, MprotectFlags::READ | MprotectFlags::EXEC)?;
        }
        Ok(())
    }

    /// Code in the binary is never written, and other code goes away with its mapping.
    fn unpublish_executable(&self, _: *const u8, _: usize) -> Result<()> {
        Ok(())
    }
}
