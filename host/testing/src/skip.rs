//! Tests that the machine cannot run: each says so in one way, which the gate counts.

use std::io::Write as _;

/// The variable that names a file for a line of each skipped test. The gate sets it, because the test runner keeps the
/// output of tests that pass.
const FILE: &str = "HARNESS_SKIPPED_TESTS";

/// What a test may need that not every machine has. `.ci/expected-skips` has these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The user root.
    Root,
    /// Namespaces of its own for a process.
    Namespaces,
    /// A version of Landlock that the test needs.
    Landlock,
    /// A file or folder of the system that the test needs.
    SystemFile,
    /// The shell zsh.
    Zsh,
}

impl Need {
    fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Namespaces => "namespaces",
            Self::Landlock => "landlock",
            Self::SystemFile => "system-file",
            Self::Zsh => "zsh",
        }
    }
}

/// Returns whether the current test has to be skipped, and reports it if so: as `skipped: TEST: REASON`.
///
/// ```ignore
/// if skipped(Need::Namespaces, Offers::get().namespaces.is_ok()) {
///     return;
/// }
/// ```
#[must_use]
pub fn skipped(need: Need, met: bool) -> bool {
    if !met {
        // The runner names the thread of a test after it.
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        let line = format!("skipped: {test}: needs {}", need.name());
        eprintln!("{line}");
        if let Some(file) = std::env::var_os(FILE) {
            let mut file = std::fs::File::options().create(true).append(true).open(file).unwrap();
            file.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
    }
    !met
}

/// As [`skipped`], for a test that only root can run.
#[must_use]
pub fn skipped_unless_root() -> bool {
    skipped(Need::Root, rustix::process::geteuid().is_root())
}
