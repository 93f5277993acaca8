//! What was in the folders of a workspace when they were last looked through, so that the next command need not list them
//! again.
//!
//! A listing is kept of a folder whose every ordinary file is as the folder itself: its subfolders, and the names that may
//! be protected or govern the project. Such a name only comes, goes, or becomes one of another kind with the folder's time
//! of change (`ctime`), which no program can set. So a listing holds while that is what it was. Nothing of the files
//! themselves is kept: how many names one has, and which one it is, changes without its folder, and is looked at before
//! each command, as is everything about the folders.
//!
//! Not kept is what that would not be certain of:
//!
//! - A folder that was changed lately. The kernel's clock is only so fine, and an old file system counts in seconds: a change
//!   just after the look might leave the same time.
//! - Anything, when the system's clock was set: a change could get a time that has been.
//! - A file system that others change without this kernel, or that is a program's: there, times are what they are said to
//!   be.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use harness_policy::path::protected;
use rustix::fs::{Dir, FileType, Stat, fstat, fstatfs};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::hard_links::Identity;

/// Bytes of listings of one project.
const MOST: usize = 4 << 20;
/// What a folder costs beside its names, about.
const OVERHEAD: usize = 160;
/// Age in nanoseconds from which a folder's time of change is certain: the coarsest file system counts in two seconds.
const CERTAIN: i128 = 2_100_000_000;
/// The most by which the clocks may differ from what they were, in nanoseconds. They drift a little; twice this is less
/// than [`CERTAIN`].
const SET: i128 = 500_000_000;
/// File systems of this kernel alone, which keep the times of folders.
const KEEP_TIMES: [i64; 4] =
    [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC, libc::BTRFS_SUPER_MAGIC, libc::TMPFS_MAGIC];

/// Listings of the folders of a project's workspace, in at most 4 MiB, each of which holds while its folder is unchanged.
#[derive(Debug)]
pub struct Listings {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    folders: HashMap<Identity, Known>,
    bytes: usize,
    /// Walks that have begun.
    walks: u64,
    /// How far the system's clock was ahead of the time since the start, in nanoseconds, when the first of these was kept.
    ahead: Option<i128>,
}

#[derive(Debug)]
struct Known {
    times: [i128; 2],
    listing: Arc<Listing>,
    /// The walk that last came by.
    walk: u64,
}

/// What matters of a folder's entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// How many entries there are in all.
    pub(super) entries: u64,
    /// Those that need a look.
    pub(super) notable: Vec<(Box<[u8]>, FileType)>,
}

/// What the clocks say, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    real: i128,
    since_start: i128,
}

/// One walk through a workspace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk<'a> {
    listings: &'a Listings,
    now: Now,
    number: u64,
}

impl Default for Listings {
    fn default() -> Self {
        Self::bounded(MOST)
    }
}

impl Now {
    pub(super) fn get() -> Self {
        let of = |clock| {
            let time = clock_gettime(clock);
            nanoseconds(time.tv_sec, time.tv_nsec)
        };
        Self { real: of(ClockId::Realtime), since_start: of(ClockId::Boottime) }
    }
}

fn nanoseconds(seconds: impl Into<i128>, rest: impl Into<i128>) -> i128 {
    seconds.into() * 1_000_000_000 + rest.into()
}

/// When a folder was changed: what can be set first, then what cannot.
fn times(stat: &Stat) -> [i128; 2] {
    [nanoseconds(stat.st_mtime, stat.st_mtime_nsec), nanoseconds(stat.st_ctime, stat.st_ctime_nsec)]
}

impl Listing {
    /// Reads a folder of at most so many entries; nothing where it has more.
    pub(super) fn read(folder: &OwnedFd, most: u64) -> Result<Option<Self>, Errno> {
        let mut listing = Self::default();
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if listing.entries >= most {
                return Ok(None);
            }
            listing.entries += 1;
            if is_notable(OsStr::from_bytes(name), entry.file_type()) {
                listing.notable.push((name.into(), entry.file_type()));
            }
        }
        Ok(Some(listing))
    }

    fn bytes(&self) -> usize {
        let names: usize = self.notable.iter().map(|(name, _)| name.len()).sum();
        OVERHEAD + names + self.notable.capacity() * size_of::<(Box<[u8]>, FileType)>()
    }
}

/// Whether an entry may be something else than its folder: an ordinary name is as its folder is, and a link leads to what
/// has a name of its own, unless the project is governed by its name.
fn is_notable(name: &OsStr, kind: FileType) -> bool {
    match kind {
        FileType::Directory | FileType::Unknown => true,
        FileType::Symlink => name.to_str().is_some_and(protected::is_closed_at_root),
        _ => name.to_str().is_none_or(protected::could_be_protected),
    }
}

impl Listings {
    fn bounded(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    /// Begins a walk. What was kept before the clock was set is not used any more.
    pub(super) fn walk(&self, now: Now) -> Walk<'_> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = now.real - now.since_start;
        if kept.ahead.is_some_and(|before| (before - ahead).abs() > SET) {
            (kept.folders, kept.bytes, kept.ahead) = (HashMap::new(), 0, None);
        }
        kept.ahead.get_or_insert(ahead);
        kept.walks += 1;
        Walk { listings: self, now, number: kept.walks }
    }
}

impl Walk<'_> {
    /// What is in a folder, of at most so many entries; nothing where it has more.
    pub(super) fn listing(&self, folder: &OwnedFd, most: u64) -> Result<Option<Arc<Listing>>, Errno> {
        // Before the look: a change after this leaves another time.
        let stat = fstat(folder)?;
        let keeps = fstatfs(folder).is_ok_and(|about| KEEP_TIMES.contains(&about.f_type));
        if !keeps {
            return Ok(Listing::read(folder, most)?.map(Arc::new));
        }
        if let Some(listing) = self.known(&stat) {
            return Ok((listing.entries <= most).then_some(listing));
        }
        let listing = Listing::read(folder, most)?.map(Arc::new);
        if let Some(listing) = listing.as_ref().filter(|_| self.is_certain(&stat)) {
            self.keep(&stat, listing.clone());
        }
        Ok(listing)
    }

    fn known(&self, stat: &Stat) -> Option<Arc<Listing>> {
        let mut kept = self.listings.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.folders.get_mut(&Identity::of(stat)).filter(|known| known.times == times(stat))?;
        known.walk = self.number;
        Some(known.listing.clone())
    }

    /// Whether a change from now on leaves another time.
    fn is_certain(&self, stat: &Stat) -> bool {
        let [_, changed] = times(stat);
        self.now.real - changed >= CERTAIN
    }

    fn keep(&self, stat: &Stat, listing: Arc<Listing>) {
        let mut kept = self.listings.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (identity, bytes) = (Identity::of(stat), listing.bytes());
        if let Some(before) = kept.folders.remove(&identity) {
            kept.bytes -= before.listing.bytes();
        }
        if kept.bytes + bytes > self.listings.most {
            // Of folders that are gone, or that no command reaches any more.
            kept.folders.retain(|_, known| known.walk + 1 >= self.number);
            kept.bytes = kept.folders.values().map(|known| known.listing.bytes()).sum();
        }
        if kept.bytes + bytes <= self.listings.most {
            kept.bytes += bytes;
            kept.folders.insert(identity, Known { times: times(stat), listing, walk: self.number });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hard_links::FOLDER;
    use crate::reach::places;
    use harness_policy::grant::Grant;
    use harness_policy::layer::{Layer, Origin, Scope};
    use harness_policy::limits::LimitRules;
    use harness_policy::path::{FsRules, PathPattern};
    use rustix::fs::{CWD, Mode, Timespec, Timestamps, utimensat};
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    /// Moves a moment, in nanoseconds.
    fn later(now: Now, by: i128) -> Now {
        Now { real: now.real + by, since_start: now.since_start + by }
    }

    /// When everything that was done is long ago.
    fn much_later() -> Now {
        later(Now::get(), 60_000_000_000)
    }

    fn grant() -> Grant {
        let all = || vec![PathPattern::parse(".").unwrap()];
        let fs = FsRules { read: all(), write: all(), ..FsRules::default() };
        let origin = Origin::new(".harness/harness.md", Scope::Project);
        let limits = LimitRules::default();
        Grant::new(vec![Layer {
            origin,
            fs: Some(fs),
            network: None,
            exec: None,
            env: None,
            services: None,
            secrets: None,
            limits,
        }])
    }

    /// A folder on a file system of which listings are kept.
    fn temporary() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").unwrap()
    }

    fn workspace() -> (tempfile::TempDir, PathBuf) {
        let root = temporary();
        let path = root.path().canonicalize().unwrap();
        for file in ["a/plain", "a/b/plain", "c/plain", "c/.env"] {
            let file = path.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        (root, path)
    }

    /// Where a command may do something else than in the folder around it, with what is known of the folders.
    fn seen(listings: &Listings, workspace: &Path, now: Now) -> Vec<String> {
        let mut seen: Vec<String> = places(&grant(), workspace, listings.walk(now))
            .unwrap()
            .iter()
            .map(|place| format!("{} {:?}", place.path.strip_prefix(workspace).unwrap().display(), place.reach))
            .collect();
        seen.sort();
        seen
    }

    fn known(listings: &Listings) -> usize {
        listings.kept.lock().unwrap().folders.len()
    }

    fn changed(folder: &Path) -> i128 {
        times(&rustix::fs::stat(folder).unwrap())[1]
    }

    /// Waits until the clock of the kernel's file systems shows another time than that of a folder.
    fn until_another_time(folder: &Path) {
        let now = || {
            let time = clock_gettime(ClockId::RealtimeCoarse);
            nanoseconds(time.tv_sec, time.tv_nsec)
        };
        while now() <= changed(folder) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn each_change_of_a_folder_is_seen() {
        type Change = fn(&Path);
        let changes: [(&str, Change, &[&str]); 9] = [
            ("a protected file", |at| std::fs::write(at.join("a/.env"), "").unwrap(), &["a/.env Closed"]),
            ("a folder", |at| std::fs::create_dir_all(at.join("a/n/.git")).unwrap(), &["a/n/.git Read"]),
            ("a name", |at| std::fs::rename(at.join("a/plain"), at.join("a/x.pem")).unwrap(), &["a/x.pem Closed"]),
            ("two names", |at| exchange(&at.join("a/plain"), &at.join("c/.env")), &[]),
            ("another kind", |at| replace_by_folder(&at.join("a/plain")), &["a/plain/.env Closed"]),
            ("a name of a protected file", |at| link(&at.join("c/.env"), &at.join("a/same")), &["a/same Closed"]),
            (
                "a folder from elsewhere",
                |at| std::fs::rename(at.join("c"), at.join("a/c")).unwrap(),
                &["a/c/.env Closed"],
            ),
            ("a file, and the time as it was", |at| keeping_time(&at.join("a"), "x.key"), &["a/x.key Closed"]),
            ("a link that governs nothing", |at| symlink("x", at.join("a/harness.md")).unwrap(), &[]),
        ];
        for (what, change, more) in changes {
            let (_root, workspace) = workspace();
            let listings = Listings::default();
            let before = seen(&listings, &workspace, much_later());
            assert_eq!(before, [" Write", "c/.env Closed"], "{what}");
            assert_eq!(known(&listings), 4, "{what}");
            // As much as is there is known now.
            assert_eq!(seen(&listings, &workspace, much_later()), before, "{what}");
            ["a", "a/b", "c", ""].iter().for_each(|folder| until_another_time(&workspace.join(folder)));
            change(&workspace);
            let after = seen(&listings, &workspace, much_later());
            assert_eq!(after, seen(&Listings::default(), &workspace, much_later()), "{what}");
            more.iter().for_each(|place| assert!(after.iter().any(|seen| seen == place), "{what}: {after:?}"));
        }
    }

    fn exchange(one: &Path, other: &Path) {
        rustix::fs::renameat_with(CWD, one, CWD, other, rustix::fs::RenameFlags::EXCHANGE).unwrap();
    }

    fn link(from: &Path, to: &Path) {
        std::fs::hard_link(from, to).unwrap();
    }

    fn replace_by_folder(file: &Path) {
        std::fs::remove_file(file).unwrap();
        std::fs::create_dir(file).unwrap();
        std::fs::write(file.join(".env"), "").unwrap();
    }

    fn keeping_time(folder: &Path, name: &str) {
        let stat = rustix::fs::stat(folder).unwrap();
        std::fs::write(folder.join(name), "").unwrap();
        let time = |seconds, rest: i64| Timespec { tv_sec: seconds, tv_nsec: rest };
        let rest = i64::try_from(stat.st_mtime_nsec).unwrap();
        let times = Timestamps { last_access: time(stat.st_mtime, rest), last_modification: time(stat.st_mtime, rest) };
        utimensat(CWD, folder, &times, rustix::fs::AtFlags::empty()).unwrap();
        assert_eq!(self::times(&rustix::fs::stat(folder).unwrap())[0], self::times(&stat)[0]);
    }

    /// Its folder does not change with it, so nothing of it is kept.
    #[test]
    fn a_file_that_gets_another_name_outside_of_its_folder_is_seen() {
        let (_root, workspace) = workspace();
        let listings = Listings::default();
        seen(&listings, &workspace, much_later());
        until_another_time(&workspace.join("a"));
        let before = changed(&workspace.join("c"));
        link(&workspace.join("c/.env"), &workspace.join("a/same"));
        assert_eq!(changed(&workspace.join("c")), before);
        assert_eq!(seen(&listings, &workspace, much_later()), [" Write", "a/same Closed", "c/.env Closed"]);
    }

    #[test]
    fn a_folder_that_was_changed_lately_is_not_kept() {
        let (_root, workspace) = workspace();
        let newest = ["", "a", "a/b", "c"].iter().map(|folder| changed(&workspace.join(folder))).max().unwrap();
        let at = |by| later(Now { real: newest, since_start: 0 }, by);
        let listings = Listings::default();
        seen(&listings, &workspace, at(0));
        assert_eq!(known(&listings), 0);
        // Made one after the other, the last of them is too new.
        seen(&listings, &workspace, at(CERTAIN - 1));
        assert!(known(&listings) < 4);
        seen(&listings, &workspace, at(CERTAIN));
        assert_eq!(known(&listings), 4);
    }

    #[test]
    fn nothing_is_kept_when_the_clock_is_set() {
        let (_root, workspace) = workspace();
        let listings = Listings::default();
        seen(&listings, &workspace, much_later());
        let drifted = |by| Now { real: much_later().real + by, ..much_later() };
        for (by, kept) in [(SET / 2, 4), (-SET / 2, 4), (SET * 2, 0), (-SET * 2, 0)] {
            _ = listings.walk(much_later());
            seen(&listings, &workspace, much_later());
            _ = listings.walk(drifted(by));
            assert_eq!(known(&listings), kept, "{by}");
            // Back to where it was.
            _ = listings.walk(much_later());
        }
    }

    #[test]
    fn listings_take_so_many_bytes() {
        let root = temporary();
        let workspace = root.path().canonicalize().unwrap();
        for number in 0..100 {
            let folder = workspace.join(number.to_string());
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join(".env"), "").unwrap();
        }
        let most = 10 * OVERHEAD;
        let listings = Listings::bounded(most);
        let all = seen(&Listings::default(), &workspace, much_later());
        assert_eq!(all.len(), 101);
        for _ in 0..3 {
            assert_eq!(seen(&listings, &workspace, much_later()), all);
            let kept = listings.kept.lock().unwrap();
            assert_eq!(kept.bytes, kept.folders.values().map(|known| known.listing.bytes()).sum::<usize>());
            assert!(kept.bytes <= most && !kept.folders.is_empty());
        }
        // Those that are gone make room.
        (0..50).for_each(|number| std::fs::remove_dir_all(workspace.join(number.to_string())).unwrap());
        (0..3).for_each(|_| drop(seen(&listings, &workspace, much_later())));
        assert!(known(&listings) > 0);
    }

    #[test]
    fn a_folder_has_so_many_entries() {
        let (_root, workspace) = workspace();
        let folder = rustix::fs::open(&workspace, FOLDER, Mode::empty()).unwrap();
        let listings = Listings::default();
        for _ in 0..2 {
            let walk = listings.walk(much_later());
            assert_eq!(walk.listing(&folder, 1).unwrap(), None);
            assert_eq!(walk.listing(&folder, 2).unwrap().unwrap().entries, 2);
        }
    }

    /// What is kept is used: the look at a folder is not repeated.
    #[test]
    fn what_is_known_is_not_read_again() {
        let (_root, workspace) = workspace();
        let folder = rustix::fs::open(&workspace, FOLDER, Mode::empty()).unwrap();
        let listings = Listings::default();
        let read = |now| listings.walk(now).listing(&folder, 10).unwrap().unwrap();
        let first = read(much_later());
        assert!(Arc::ptr_eq(&first, &read(much_later())));
    }
}
