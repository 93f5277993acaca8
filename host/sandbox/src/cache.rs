//! Loaded scripts, shared by all projects of a host, and which of them are kept ready to be called.
//!
//! A script is known by its content: its text, its `when`, and where both are in their file, which error messages name.
//! Two projects that have the same plugin have one image of it, and one memory file.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use wasmtime::component::{Component, InstancePre};

use super::engine::Exports;
use super::image::Changes;
use super::imports::Role;
use super::loader::{Budget, Kept};
use super::occupant::Occupant;
use super::outcome::{Entry, Source};
use super::scheduling::quota::Share;
use harness_sys::digest::digest;

/// A loaded script, ready to be called in a fresh instance each time. Cheap to clone.
///
/// Until it is first called it holds only what loading changed of the interpreter's memory, which is little: of a
/// thousand tools most are never called.
#[derive(Clone)]
pub struct Image {
    parts: Arc<Parts>,
}

struct Parts {
    /// What it is linked as.
    role: Role,
    changes: Changes,
    ready: Slot,
    /// The same with hooks that listen to what it calls.
    observed: Slot,
    /// When it was last called, in calls of the host.
    used: AtomicU64,
    /// When it was last called, in milliseconds, and how many calls came soon after the one before them.
    last: AtomicU64,
    streak: AtomicU32,
    /// A component that is no interpreter.
    foreign: Option<Component>,
    /// Where its functions are.
    exports: Exports,
    file: Arc<str>,
    /// The digest of its text.
    code: String,
}

/// A call that comes at most so many milliseconds after the one before it comes soon.
const HOT: u64 = 100;
/// A script is called again and again when so many calls of it came soon.
const STREAK: u32 = 3;

/// Linked with its memory, while that is kept. Calls that began with it have it until they end.
type Slot = Mutex<Option<Arc<InstancePre<Occupant>>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("file", &self.file()).finish_non_exhaustive()
    }
}

impl Image {
    pub(crate) fn new(role: Role, changes: Changes, exports: Exports, file: &str, code: String) -> Self {
        Self::of(role, changes, None, exports, file, code)
    }

    pub(crate) fn foreign(role: Role, component: Component, exports: Exports, file: &str) -> Self {
        let nothing = Changes::between(&[], Kept { start: 0, bytes: &[] });
        Self::of(role, nothing, Some(component), exports, file, String::new())
    }

    fn of(
        role: Role,
        changes: Changes,
        foreign: Option<Component>,
        exports: Exports,
        file: &str,
        code: String,
    ) -> Self {
        let (ready, observed, used, file) = (Slot::default(), Slot::default(), AtomicU64::new(0), file.into());
        let (last, streak) = (AtomicU64::new(0), AtomicU32::new(0));
        let parts = Parts { role, changes, ready, observed, used, last, streak, foreign, exports, file, code };
        Self { parts: Arc::new(parts) }
    }

    /// The artifact's file, for messages.
    pub fn file(&self) -> &str {
        &self.parts.file
    }

    /// Bytes of memory that loading changed, and that are kept.
    pub fn size(&self) -> u64 {
        self.parts.changes.size()
    }

    /// The digest of the script's text, its `when` included.
    pub fn code(&self) -> &str {
        &self.parts.code
    }

    pub(crate) fn exports(&self) -> &Exports {
        &self.parts.exports
    }

    /// Whether both are one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.parts, &other.parts)
    }

    /// Notes a call at this moment, in milliseconds of some clock. Whether the script is called again and again.
    pub(crate) fn is_hot(&self, now: u64) -> bool {
        let Parts { last, streak, .. } = &*self.parts;
        let before = last.swap(now, Ordering::Relaxed);
        if now.saturating_sub(before) > HOT {
            streak.store(0, Ordering::Relaxed);
            return false;
        }
        // Past the bound it does not matter how many there were.
        streak.load(Ordering::Relaxed) >= STREAK || streak.fetch_add(1, Ordering::Relaxed).saturating_add(1) >= STREAK
    }

    pub(crate) fn role(&self) -> Role {
        self.parts.role
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.parts.changes
    }

    pub(crate) fn component(&self) -> Option<&Component> {
        self.parts.foreign.as_ref()
    }

    /// Linked with its memory, where that is kept.
    pub(crate) fn ready(&self, observed: bool) -> Option<Arc<InstancePre<Occupant>>> {
        static CALLS: AtomicU64 = AtomicU64::new(1);
        let ready = lock(self.parts.slot(observed)).clone();
        self.parts.used.store(CALLS.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        ready
    }
}

impl Parts {
    fn slot(&self, observed: bool) -> &Slot {
        if observed { &self.observed } else { &self.ready }
    }

    fn is_ready(&self) -> bool {
        lock(&self.ready).is_some() || lock(&self.observed).is_some()
    }
}

/// The images of a host.
pub(crate) struct Cache {
    /// Bytes of those that are kept ready.
    most: u64,
    known: Mutex<HashMap<String, Known>>,
    ready: Mutex<Vec<Ready>>,
}

/// An image that is kept ready, and for whom: the project that called it first.
struct Ready {
    parts: Weak<Parts>,
    project: u64,
}

impl Ready {
    fn held(&self) -> Option<Arc<Parts>> {
        self.parts.upgrade().filter(|parts| parts.is_ready())
    }
}

/// A script that was loaded, while anyone has its image.
struct Known {
    image: Weak<Parts>,
    /// What loading it took.
    fuel: u64,
    /// What loading it was enough.
    memory: u64,
}

/// What a script is known by.
pub(crate) fn key(source: &Source) -> String {
    let Source { file, text, first_line, indent, entry, predicate, coverage } = source;
    let when = predicate.as_ref().map(|when| (&when.text, when.line, when.column));
    let entry = match entry {
        Entry::Tool => "tool",
        Entry::Hook => "hook",
    };
    // As Rust writes them, texts end where they end.
    digest(&format!("{file:?} {first_line} {indent} {entry} {coverage} {when:?} {text}"))
}

impl Cache {
    pub(crate) fn new(most: u64) -> Self {
        Self { most, known: Mutex::default(), ready: Mutex::default() }
    }

    /// The image of a script that is loaded, and the fuel that it took, where the budget would have been enough.
    pub(crate) fn loaded(&self, key: &str, budget: &Budget) -> Option<(Image, u64)> {
        let known = lock(&self.known);
        let known = known.get(key).filter(|known| known.fuel <= budget.fuel && known.memory <= budget.memory)?;
        Some((Image { parts: known.image.upgrade()? }, known.fuel))
    }

    pub(crate) fn keep(&self, key: String, image: &Image, fuel: u64, budget: &Budget) {
        let mut known = lock(&self.known);
        // Now and then, so that what is gone is never more than what is there.
        if known.len() == known.capacity() {
            known.retain(|_, known| known.image.strong_count() > 0);
        }
        known.insert(key, Known { image: Arc::downgrade(&image.parts), fuel, memory: budget.memory });
    }

    /// Keeps an image ready for a project, and gives up others for it: the project's own where it has too many bytes of
    /// them, then anyone's where the host has. Returns what is kept.
    pub(crate) fn ready(
        &self,
        image: &Image,
        observed: bool,
        made: InstancePre<Occupant>,
        share: &Share,
    ) -> Arc<InstancePre<Occupant>> {
        let mut all = lock(&self.ready);
        let was_ready = image.parts.is_ready();
        let kept = lock(image.parts.slot(observed)).get_or_insert_with(|| Arc::new(made)).clone();
        if !was_ready {
            all.retain(|other| other.held().is_some());
            all.push(Ready { parts: Arc::downgrade(&image.parts), project: share.id() });
            let own = all.iter().filter(|other| other.project == share.id());
            give_up(own, share.quota().image_bytes, image);
            give_up(all.iter(), self.most, image);
            all.retain(|other| other.held().is_some());
        }
        kept
    }

    /// How many are kept ready, and their bytes.
    pub(crate) fn held(&self) -> (usize, u64) {
        let all = lock(&self.ready);
        let kept = all.iter().filter_map(Ready::held);
        kept.fold((0, 0), |(count, bytes), parts| (count + 1, bytes + parts.changes.length()))
    }
}

/// Gives up those that were used least recently, until the others are as many bytes as may be.
fn give_up<'a>(all: impl Iterator<Item = &'a Ready>, most: u64, but: &Image) {
    let mut kept: Vec<Arc<Parts>> = all.filter_map(Ready::held).collect();
    let mut bytes: u64 = kept.iter().map(|parts| parts.changes.length()).sum();
    if bytes <= most {
        return;
    }
    kept.sort_by_key(|parts| parts.used.load(Ordering::Relaxed));
    // To a little less, so that not every new one has all of them sorted.
    let goal = most / 8 * 7;
    for parts in &kept {
        if bytes <= goal {
            break;
        }
        if !Arc::ptr_eq(parts, &but.parts) {
            *lock(&parts.ready) = None;
            *lock(&parts.observed) = None;
            bytes = bytes.saturating_sub(parts.changes.length());
        }
    }
}
