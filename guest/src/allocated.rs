//! The allocator: the system's, counted, with two pieces of memory that are set aside before the first load.
//!
//! - It counts what is allocated, so that garbage is collected in time: dicts and sets hold what is in them outside of the
//!   heap that the interpreter knows the size of.
//! - The evaluator's stack, which is allocated whenever an evaluator is made, has memory of its own. It is then there in
//!   every call: growing the memory by that, and shrinking it again after the call, is more work for the host than a small
//!   script is.
//! - What a call allocates first lies side by side in the *arena*. The host resets each page that a call wrote, and free
//!   memory of the system's allocator lies scattered over what the load has left.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use starlark::eval::ALLOCATED;

/// Bytes of the evaluator's stack: `INITIAL_SIZE` of starlark's `collections::alloca`.
const STACK: usize = 1_000_000;
/// Bytes of the arena: what a call of a small script allocates, several times over.
const ARENA: usize = 256 << 10;
/// The most that one allocation takes of the arena, in bytes.
const MOST: usize = 16 << 10;
/// How both are aligned: a page of the machine, so that neither shares one with anything else.
const PAGE: usize = 4096;

/// The system's allocator, counted, and what is set aside.
struct Counted {
    /// The address of the evaluator's stack; 0 until it is set aside.
    stack: AtomicUsize,
    is_stack_taken: AtomicBool,
    /// Whether allocations come from the arena.
    is_calling: AtomicBool,
    /// Where the arena begins, where its next allocation does, and where it ends.
    begin: AtomicUsize,
    next: AtomicUsize,
    end: AtomicUsize,
}

#[global_allocator]
static ALLOCATOR: Counted = Counted {
    stack: AtomicUsize::new(0),
    is_stack_taken: AtomicBool::new(false),
    is_calling: AtomicBool::new(false),
    begin: AtomicUsize::new(0),
    next: AtomicUsize::new(0),
    end: AtomicUsize::new(0),
};

/// Sets the memory aside. For once, before anything is loaded.
pub(crate) fn set_aside() {
    let stack = STACK.next_multiple_of(PAGE);
    let Ok(layout) = Layout::from_size_align(stack + ARENA, PAGE) else { return };
    // SAFETY: the layout is not empty.
    let at = unsafe { System.alloc(layout) }.addr();
    if at == 0 {
        return;
    }
    ALLOCATOR.stack.store(at, Ordering::Relaxed);
    ALLOCATOR.begin.store(at + stack, Ordering::Relaxed);
    ALLOCATOR.next.store(at + stack, Ordering::Relaxed);
    ALLOCATOR.end.store(at + stack + ARENA, Ordering::Relaxed);
}

/// Sets whether allocations come from the arena: in calls. What a load leaves behind would fill it for every call.
pub(crate) fn use_arena(calling: bool) {
    ALLOCATOR.is_calling.store(calling, Ordering::Relaxed);
}

impl Counted {
    /// Memory that is set aside for this, where it is.
    fn aside(&self, layout: Layout) -> Option<usize> {
        let (size, align) = (layout.size(), layout.align());
        if size <= MOST {
            if !self.is_calling.load(Ordering::Relaxed) || align > PAGE {
                return None;
            }
            let at = self.next.load(Ordering::Relaxed).next_multiple_of(align);
            let after = at + size;
            if after > self.end.load(Ordering::Relaxed) {
                return None;
            }
            self.next.store(after, Ordering::Relaxed);
            return Some(at);
        }
        if size == STACK && align <= PAGE && !self.is_stack_taken.load(Ordering::Relaxed) {
            let stack = self.stack.load(Ordering::Relaxed);
            self.is_stack_taken.store(stack != 0, Ordering::Relaxed);
            return (stack != 0).then_some(stack);
        }
        None
    }

    fn is_in_arena(&self, at: usize) -> bool {
        at >= self.begin.load(Ordering::Relaxed) && at < self.end.load(Ordering::Relaxed)
    }

    /// Whether this allocation is the newest of the arena.
    fn is_last(&self, at: usize, size: usize) -> bool {
        at + size == self.next.load(Ordering::Relaxed)
    }

    /// Returns memory that was set aside. Of the arena only the newest allocation can be used again.
    fn release(&self, at: usize, size: usize) -> bool {
        if self.is_in_arena(at) {
            if self.is_last(at, size) {
                self.next.store(at, Ordering::Relaxed);
            }
            return true;
        }
        let is_stack = at == self.stack.load(Ordering::Relaxed);
        if is_stack {
            self.is_stack_taken.store(false, Ordering::Relaxed);
        }
        is_stack
    }
}

// SAFETY: memory is the system allocator's, or of the piece that was set aside, which is never given back: the stack to one
// at a time, the arena in pieces that do not overlap. An address is found to be of either by where it lies. There is one
// thread.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        match self.aside(layout) {
            Some(at) => std::ptr::with_exposed_provenance_mut(at),
            // SAFETY: as the caller promises.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        match self.aside(layout) {
            Some(at) => {
                let at: *mut u8 = std::ptr::with_exposed_provenance_mut(at);
                // SAFETY: so many bytes were allocated there just now.
                unsafe { at.write_bytes(0, layout.size()) };
                at
            }
            // SAFETY: as the caller promises.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        if !self.release(at.addr(), layout.size()) {
            // SAFETY: as the caller promises; it is none of what was set aside.
            unsafe { System.dealloc(at, layout) }
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let address = at.addr();
        if !self.is_in_arena(address) && address != self.stack.load(Ordering::Relaxed) {
            ALLOCATED.fetch_add(size.wrapping_sub(layout.size()), Ordering::Relaxed);
            // SAFETY: as the caller promises; it is none of what was set aside.
            return unsafe { System.realloc(at, layout, size) };
        }
        let grows_in_place = size <= MOST && self.is_last(address, layout.size());
        if grows_in_place && address + size <= self.end.load(Ordering::Relaxed) {
            ALLOCATED.fetch_add(size.wrapping_sub(layout.size()), Ordering::Relaxed);
            self.next.store(address + size, Ordering::Relaxed);
            return at;
        }
        // SAFETY: the size is not 0, as the caller promises, and the alignment is that of an allocation.
        let layout_after = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: as the caller promises.
        let moved = unsafe { self.alloc(layout_after) };
        if !moved.is_null() {
            // SAFETY: both are allocated, at least so long, and none lies in the other.
            unsafe {
                std::ptr::copy_nonoverlapping(at, moved, layout.size().min(size));
                self.dealloc(at, layout);
            }
        }
        moved
    }
}
