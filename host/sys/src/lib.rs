//! The only door to the operating system: files outside a workspace's handle, processes, sockets, clock, randomness,
//! environment. Clippy's `disallowed-methods` keeps the other rooms from going around it.

#![expect(clippy::disallowed_methods, reason = "this is the door that the lint points to")]

pub mod changes;
pub mod copy;
pub mod digest;
pub mod memory;
pub mod nowait;
pub mod output;
pub mod own;
pub mod private;
pub mod program;
pub mod slices;
pub mod socket;
pub mod store;
pub mod tree;

/// Time since 1970, UTC; zero where the clock stands before that.
pub fn since_epoch() -> std::time::Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// Fills a buffer from the system's random generator.
pub fn fill_random(mut buffer: &mut [u8]) {
    while !buffer.is_empty() {
        match rustix::rand::getrandom(&mut *buffer, rustix::rand::GetRandomFlags::empty()) {
            Ok(filled) => buffer = buffer.get_mut(filled..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            // Not on any kernel that runs this: the call is there since Linux 3.17.
            Err(_) => return,
        }
    }
}

/// Bytes that were written to a pipe and that nobody has read yet.
///
/// # Errors
///
/// What the system says; what is no pipe.
pub fn unread(pipe: impl std::os::fd::AsFd) -> std::io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(pipe)?)
}

/// The user that the process runs as, by number.
pub fn user() -> u32 {
    rustix::process::getuid().as_raw()
}

/// A variable of the host's environment, if it is set to text.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The most that a file of the project's own configuration may hold, in bytes.
pub const MAX_TEXT_BYTES: u64 = 1 << 20;
/// The most entries that a folder of the project's own configuration may have.
pub const MAX_ENTRIES: usize = 10_000;

/// A file of the project's own configuration, as text. Errors: what the system says, not a regular file, over
/// [`MAX_TEXT_BYTES`], not UTF-8.
pub fn read_text(path: &std::path::Path) -> std::io::Result<String> {
    read_at_most(path, MAX_TEXT_BYTES)
}

/// A file that holds a secret, as text. Errors: what the system says, not a regular file, over `max` bytes, not UTF-8.
pub fn read_secret(path: &std::path::Path, max: usize) -> std::io::Result<String> {
    // Room for the end of its line.
    read_at_most(path, u64::try_from(max).unwrap_or(u64::MAX).saturating_add(2))
}

/// A file as text. Errors: what the system says, not a regular file, over `max` bytes, not UTF-8.
pub fn read_at_most(path: &std::path::Path, max: u64) -> std::io::Result<String> {
    as_text(read_bytes(path, max)?)
}

/// What was read of a file of the project's own configuration before, as text. Errors: over [`MAX_TEXT_BYTES`], not UTF-8.
pub fn text_of(bytes: Vec<u8>) -> std::io::Result<String> {
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_TEXT_BYTES {
        return Err(too_large(MAX_TEXT_BYTES));
    }
    as_text(bytes)
}

fn as_text(bytes: Vec<u8>) -> std::io::Result<String> {
    use std::io::{Error, ErrorKind};
    String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        Error::new(ErrorKind::InvalidData, NotText::after(&String::from_utf8_lossy(before)))
    })
}

/// A file is not text: the place of the first byte that is none, from 1, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotText {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

impl NotText {
    fn after(text: &str) -> Self {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).saturating_add(1);
        let line = text.rsplit('\n').next().unwrap_or_default();
        Self { line: count(text.matches('\n').count()), column: count(line.chars().count()) }
    }
}

impl std::fmt::Display for NotText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not UTF-8 text")
    }
}

impl std::error::Error for NotText {}

/// The first bytes of a file that may be anything, as well as they are text. Errors: what the system says, not a regular
/// file.
pub fn read_beginning(path: &std::path::Path, most: usize) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    open_file(path)?.take(u64::try_from(most).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether a path leads to nothing, not even to a link. What cannot be looked at may be there.
pub fn is_gone(path: &std::path::Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Whose a file or folder is, and what its mode lets whom do: `0o600`. Links are followed. Errors: what the system says.
pub fn owner_and_mode(path: &std::path::Path) -> std::io::Result<(u32, u32)> {
    use std::os::unix::fs::MetadataExt as _;
    let facts = std::fs::metadata(path)?;
    Ok((facts.uid(), facts.mode() & 0o7777))
}

/// When a file was last changed, since 1970; zero where that is before. Errors: what the system says.
pub fn changed_at(path: &std::path::Path) -> std::io::Result<std::time::Duration> {
    let at = std::fs::metadata(path)?.modified()?;
    Ok(at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default())
}

/// The bytes and the files that the disk of a path has room for, for this user. Errors: what the system says.
pub fn room(path: &std::path::Path) -> std::io::Result<(u64, u64)> {
    let facts = rustix::fs::statvfs(path)?;
    // A file system that counts no files says 0 of 0.
    let files = if facts.f_files == 0 { u64::MAX } else { facts.f_favail };
    Ok((facts.f_bavail.saturating_mul(facts.f_frsize), files))
}

/// How many files this process may open: now, and as much as it could ask for.
pub fn open_files() -> (u64, u64) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX))
}

/// Whether there is a file of this name, or anything else that is not a folder: a link that leads nowhere too.
pub fn is_there(path: &std::path::Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|facts| !facts.is_dir())
}

/// A file of the host's own, as it is. Errors: what the system says, not a regular file, over `max` bytes.
pub fn read_bytes(path: &std::path::Path, max: u64) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    open_file(path)?.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > max {
        return Err(too_large(max));
    }
    Ok(bytes)
}

fn too_large(max: u64) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::FileTooLarge, format!("larger than {max} bytes"))
}

/// The length of a file in bytes. Errors: what the system says, not a regular file.
pub fn length(path: &std::path::Path) -> std::io::Result<u64> {
    let facts = std::fs::metadata(path)?;
    if facts.is_file() { Ok(facts.len()) } else { Err(std::io::ErrorKind::InvalidInput.into()) }
}

/// Writes a file of the project's own as a whole: anyone who reads it sees the old text or the new one. A link of that
/// name is replaced: who wrote it is not who is to say what is written over. Errors: what the system says.
pub fn write_whole(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    // For all to read, as files of a project are; a temporary one is for its owner alone.
    replace(path, text, Some(0o644))
}

/// Puts a new file instead of what has the name. A temporary file is for its owner alone, and stays so without a mode.
fn replace(path: &std::path::Path, text: &str, mode: Option<u32>) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(std::path::Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    if let Some(mode) = mode {
        file.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
    }
    file.persist(path)?;
    Ok(())
}

/// Links that are followed one after another, as by the kernel.
const MAX_LINKS: usize = 40;

/// What the last name of a path leads to, after all links, whether it is there or not. Of links that lead in a circle
/// it is one of them.
pub fn end_of_links(path: &std::path::Path) -> std::path::PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Some(next) = link_target(&path) else { break };
        path.pop();
        path.push(next);
    }
    path
}

/// A file that the kernel makes up as it is read, as text.
pub fn read_text_whole(path: &std::path::Path) -> std::io::Result<String> {
    std::fs::read_to_string(path)
}

/// How many tasks a user has, threads counted; those that end meanwhile may be in it or not.
pub fn tasks_of(user: u32) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut tasks: u64 = 0;
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let is_process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        if is_process && entry.metadata().is_ok_and(|facts| facts.uid() == user) {
            let count = std::fs::read_dir(entry.path().join("task")).map_or(0, |tasks| tasks.count());
            tasks = tasks.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        }
    }
    Ok(tasks)
}

/// A file of the project's own, to be read. Never waits, as opening a FIFO would. Errors: what the system says, not a
/// regular file.
pub fn open_file(path: &std::path::Path) -> std::io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let regular = |facts: std::fs::Metadata| {
        let wrong = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file");
        if facts.is_file() { Ok(()) } else { Err(wrong()) }
    };
    // Asked before: opening a device may do something. And after: another file may have the name by then.
    regular(std::fs::metadata(path)?)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    regular(file.metadata()?)?;
    Ok(file)
}

/// Mode of the empty folders that hold a closed name of the workspace while a command runs.
pub const PLACEHOLDER: u32 = 0o1555;

/// Whether a folder has the mode of a placeholder; one that its folder gave its group has a further bit.
pub fn is_marked(mode: u32) -> bool {
    mode & 0o1777 == PLACEHOLDER
}

/// Whether a path is an empty folder that only holds a closed name while a command runs: as if nothing was there. Of a
/// file's name that is any empty folder, as not every file system keeps modes.
pub fn is_placeholder(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let marked = |facts: &std::fs::Metadata| !folder || is_marked(facts.permissions().mode());
    std::fs::symlink_metadata(path).is_ok_and(|facts| facts.is_dir() && marked(&facts))
        && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// The names in a folder of the project's own configuration, sorted. Errors: what the system says, over
/// [`MAX_ENTRIES`].
pub fn list_folder(path: &std::path::Path) -> std::io::Result<Vec<std::ffi::OsString>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path)? {
        if names.len() >= MAX_ENTRIES {
            return Err(std::io::Error::other(format!("more than {MAX_ENTRIES} entries")));
        }
        names.push(entry?.file_name());
    }
    names.sort();
    Ok(names)
}

/// What is in a folder, as paths, in no order.
pub fn entries(path: &std::path::Path) -> std::io::Result<Vec<std::path::PathBuf>> {
    std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect()
}

/// Where a path of the project's own configuration really leads, after all links.
pub fn real_path(path: &std::path::Path) -> std::io::Result<std::path::PathBuf> {
    std::fs::canonicalize(path)
}

/// Whether a path of the project's own configuration is a folder, links followed.
pub fn is_folder(path: &std::path::Path) -> bool {
    std::fs::metadata(path).is_ok_and(|facts| facts.is_dir())
}

/// Where a link leads, as it says itself; nothing where there is no link.
pub fn link_target(path: &std::path::Path) -> Option<std::path::PathBuf> {
    std::fs::read_link(path).ok()
}

/// What is in a folder, at any depth, that not every user may read, and whether it is a folder, sorted; not what is in
/// such a folder in turn. Links are not followed. Errors: what the system says, over `most` entries.
pub fn closed_to_others(folder: &std::path::Path, most: usize) -> std::io::Result<Vec<(std::path::PathBuf, bool)>> {
    use std::os::unix::fs::PermissionsExt as _;
    let (mut closed, mut folders, mut left) = (Vec::new(), vec![folder.to_owned()], most);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            left = left.checked_sub(1).ok_or_else(|| std::io::Error::other(format!("more than {most} entries")))?;
            let entry = entry?;
            let facts = match entry.metadata() {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                facts => facts?,
            };
            let needed = if facts.is_dir() { 0o005 } else { 0o004 };
            if facts.is_symlink() {
                continue;
            }
            if facts.permissions().mode() & needed != needed {
                closed.push((entry.path(), facts.is_dir()));
            } else if facts.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    closed.sort();
    Ok(closed)
}

/// Whether a path, links followed, is a file that this process may execute.
pub fn is_executable(path: &std::path::Path) -> bool {
    std::fs::metadata(path).is_ok_and(|facts| facts.is_file())
        && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// The folder that the process was started in; `.` where it is gone.
pub fn current_folder() -> std::path::PathBuf {
    std::env::current_dir().unwrap_or_else(|_| std::path::PathBuf::from("."))
}

/// The operating system and its version, such as `Linux 6.12.0 x86_64`.
pub fn system() -> String {
    let name = rustix::system::uname();
    [name.sysname(), name.release(), name.machine()].map(|part| part.to_string_lossy().into_owned()).join(" ")
}

/// The version of Landlock's interface, where the kernel has it and it is on.
pub fn landlock_version() -> Option<u32> {
    // Asked so, it makes nothing and gives the version.
    const VERSION: u32 = 1;
    // SAFETY: with this flag it takes no pointer and no size.
    #[expect(unsafe_code, reason = "the one way to ask the kernel")]
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0, VERSION) };
    u32::try_from(version).ok().filter(|version| *version > 0)
}

/// Now, as the times of files have it: by the kernel's last tick, so that what changes from here on has no earlier one.
fn now_of_files() -> std::time::Duration {
    now_by(libc::CLOCK_REALTIME_COARSE)
}

/// What a clock of the kernel shows; zero where it cannot be read.
fn now_by(clock: libc::clockid_t) -> std::time::Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to the one place that the pointer leads to.
    #[expect(unsafe_code, reason = "there is no function for this clock")]
    let told = unsafe { libc::clock_gettime(clock, &raw mut now) } == 0;
    if told { moment(now.tv_sec, now.tv_nsec) } else { std::time::Duration::ZERO }
}

/// The same from the kernel's next tick on: what was changed before has an earlier time, and what changes from here on has not.
pub fn next_moment_of_files() -> std::time::Duration {
    // Newer kernels also give files times between two ticks, and a tick may come late: what the clock of the files shows
    // must be past the exact time.
    let before = now_by(libc::CLOCK_REALTIME);
    loop {
        let now = now_of_files();
        // A clock that cannot be read stands still.
        if now > before || now.is_zero() {
            return now;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn moment(seconds: i64, nanoseconds: i64) -> std::time::Duration {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    std::time::Duration::new(seconds, u32::try_from(nanoseconds).unwrap_or_default())
}

/// Whether something at or below a path was made, written, renamed, removed or given other facts since then, but for what
/// no command changes: `.harness/` and `.git/`. True where that is not known.
pub fn changed_since(path: &std::path::Path, since: std::time::Duration) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let (mut waiting, mut left) = (vec![path.to_owned()], MAX_LOOKED_AT);
    while let Some(path) = waiting.pop() {
        left -= 1;
        let Ok(facts) = std::fs::symlink_metadata(&path) else { return true };
        if left == 0 || moment(facts.ctime(), facts.ctime_nsec()) >= since {
            return true;
        }
        if facts.is_dir() {
            let Ok(entries) = std::fs::read_dir(&path) else { return true };
            let names =
                entries.flatten().filter(|entry| entry.file_name() != ".harness" && entry.file_name() != ".git");
            waiting.extend(names.map(|entry| entry.path()));
        }
    }
    false
}

/// Files and folders that are checked for a change.
const MAX_LOOKED_AT: u32 = 200_000;

/// Whether the process was started to outlive its terminal, as by `nohup`.
pub fn ignores_hangup() -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is set, and what there is is written to a place that is large enough; all zeros are a value of it.
    #[expect(unsafe_code, reason = "the one way to ask the kernel")]
    let now = unsafe {
        libc::sigaction(libc::SIGHUP, std::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.sa_sigaction == libc::SIG_IGN
}

/// Where the machine has its temporary files.
pub fn temporary_folder() -> std::path::PathBuf {
    std::env::temp_dir()
}

/// A folder of its own that goes away with everything in it.
#[derive(Debug)]
pub struct Scratch {
    folder: tempfile::TempDir,
    inside: cap_std::fs::Dir,
}

/// Files that are read back of a scratch folder at most.
const MAX_SCRATCH_FILES: usize = 1_000;

impl Scratch {
    /// A folder with these files, by path below it. A path cannot lead out of it.
    pub fn new(files: &[(String, String)]) -> std::io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let inside = cap_std::fs::Dir::open_ambient_dir(folder.path(), cap_std::ambient_authority())?;
        for (path, text) in files {
            if let Some(parent) = std::path::Path::new(path).parent()
                && !parent.as_os_str().is_empty()
            {
                inside.create_dir_all(parent)?;
            }
            inside.write(path, text)?;
        }
        Ok(Self { folder, inside })
    }

    /// Where it is.
    pub fn path(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Its files by path, sorted; those that are not text are shown as such. Links are not followed.
    pub fn files(&self) -> std::io::Result<std::collections::BTreeMap<String, String>> {
        let mut files = std::collections::BTreeMap::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let shown = if folder.is_empty() { "." } else { folder.as_str() };
            for entry in self.inside.read_dir(shown)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() && files.len() < MAX_SCRATCH_FILES {
                    let text = self.inside.read(&path)?;
                    files.insert(path, String::from_utf8(text).unwrap_or_else(|_| "(not text)".to_owned()));
                }
            }
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However little time is between the changes.
    #[test]
    fn what_was_changed_before_is_told_from_what_comes_after() {
        let root = tempfile::tempdir().unwrap();
        for name in 0..20 {
            std::fs::create_dir(root.path().join(name.to_string())).unwrap();
            let began = next_moment_of_files();
            assert!(!changed_since(root.path(), began));
            std::fs::write(root.path().join(format!("{name}/file")), "").unwrap();
            assert!(changed_since(root.path(), began));
        }
    }
}
