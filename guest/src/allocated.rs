//! Counts what is allocated, so that garbage is collected in time: dicts and sets hold what is in them outside of the heap
//! that the interpreter knows the size of. And ends the program where there is no more memory: not all that ask for it
//! look at the answer, and an address of zero is one that a program here can write to.

use std::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use std::sync::atomic::Ordering;

use starlark::eval::ALLOCATED;

/// The system's allocator, counted.
struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Memory that is there. Where there is none, the program ends with the size that was asked for.
#[inline(always)]
fn found(at: *mut u8, layout: Layout) -> *mut u8 {
    if at.is_null() {
        handle_alloc_error(layout);
    }
    at
}

// SAFETY: all is the system's allocator's, and a count beside it.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        found(unsafe { System.alloc(layout) }, layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        found(unsafe { System.alloc_zeroed(layout) }, layout)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATED.fetch_add(size.wrapping_sub(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        let at = unsafe { System.realloc(at, layout, size) };
        if at.is_null() {
            // What the error says is the size.
            handle_alloc_error(Layout::from_size_align(size, layout.align()).unwrap_or(layout));
        }
        at
    }
}
