//! Finds a compiler with a standard library for `wasm32-wasip1`, and builds the guest's core module with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// The target. Its system interface, WASI 0.1, is adapted to components by [`encode`](crate::encode).
pub const TARGET: &str = "wasm32-wasip1";

/// What the compiler is told beyond the profile `guest`.
///
/// The features are those that every WebAssembly 2.0 engine has. The stack in linear memory is larger than any that
/// the engine's own stack limit lets a program reach, so that too deep a recursion always ends there, as a stack
/// overflow that can be told from other traps. What it is above four megabytes is what calls use of it: the host looks
/// for changed pages in blocks of two megabytes, and skips those that were never touched.
pub const FLAGS: &str = "-Ctarget-feature=+simd128,+bulk-memory,+sign-ext,+nontrapping-fptoint,+multivalue \
                         -Clink-arg=-zstack-size=4456448";

/// A core module and the compiler that made it.
#[derive(Debug)]
pub struct Built {
    /// The module.
    pub module: Vec<u8>,
    /// The compiler's own name and version.
    pub compiler: String,
}

/// A way to build, found on this machine.
#[derive(Debug)]
enum Toolchain {
    /// The compiler that is running this build has the library.
    Rustup { cargo: PathBuf, rustc: PathBuf },
    /// A compiler that brings its library's source: Debian's, unpacked below this folder by `guest/toolchain`.
    Unpacked { root: PathBuf },
}

/// Builds the guest with the first toolchain that this machine offers: the running one, else the one that
/// `guest/toolchain` unpacked into the project.
///
/// # Errors
///
/// Where there is none, where a crate cannot be patched, and where the compiler fails.
pub fn build(root: &Path, scratch: &Path) -> Result<Built> {
    let toolchain = find(root)?;
    let cargo = || {
        let mut command = toolchain.cargo();
        command.current_dir(root);
        command
    };
    let manifest = workspace::make(root, scratch, cargo)?;
    let mut command = cargo();
    command
        .args(["rustc", "--locked", "--package", "harness-guest", "--profile", "guest", "--target", TARGET])
        .arg("--manifest-path")
        .arg(manifest)
        // Only here: on the machine's own target, where the tests run, there is nothing that could link it.
        .args(["--lib", "--crate-type", "cdylib"])
        .arg("--target-dir")
        .arg(scratch)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(root, scratch))
        // Build scripts and procedural macros run once; optimizing them would take longer than they do.
        .env("CARGO_PROFILE_RELEASE_BUILD_OVERRIDE_OPT_LEVEL", "0");
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("building the guest failed: {status}");
    }
    let module = scratch.join(TARGET).join("guest/harness_guest.wasm");
    let module = std::fs::read(&module).with_context(|| module.display().to_string())?;
    Ok(Built { module, compiler: toolchain.compiler()? })
}

/// [`FLAGS`] and names for the folders of this machine, so that the same sources give the same bytes anywhere. Separated
/// as cargo wants it, for paths with spaces.
fn flags(root: &Path, scratch: &Path) -> String {
    let cargo_home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")))
        .unwrap_or_default();
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let flags = FLAGS.split_whitespace().map(str::to_owned);
    // The last that fits is taken.
    let folders = [(root, "/harness"), (&cargo_home, "/cargo"), (&scratch.join("workspace"), "/harness")];
    flags.chain(folders.map(|(from, to)| remap(from, to))).collect::<Vec<_>>().join("\u{1f}")
}

fn find(root: &Path) -> Result<Toolchain> {
    let rustc = std::env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from);
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let libraries = Command::new(&rustc).args(["--print", "target-libdir", "--target", TARGET]).output();
    if let Ok(output) = libraries {
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let has_std = std::fs::read_dir(folder).is_ok_and(|mut entries| {
            entries.any(|entry| entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("libstd-")))
        });
        if has_std {
            return Ok(Toolchain::Rustup { cargo, rustc: itself(rustc) });
        }
    }
    let unpacked = root.join(".toolchain");
    if unpacked.join("ready").exists() {
        return Ok(Toolchain::Unpacked { root: unpacked.join("usr") });
    }
    bail!(
        "the guest's sources differ from those of the prebuilt component, and this machine has no standard library \
         for {TARGET} to build them with; run `rustup target add {TARGET}`, or on Debian `guest/toolchain`, and build \
         again"
    )
}

/// The compiler that `rustc` starts: rustup's `rustc` chooses one by the folder it is started in, and cargo starts it in
/// the folder of each crate, where a crate's own `rust-toolchain.toml` would ask for another.
fn itself(rustc: PathBuf) -> PathBuf {
    let output = Command::new(&rustc).args(["--print", "sysroot"]).output();
    let sysroot = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let compiler = Path::new(&sysroot).join("bin/rustc");
    if compiler.is_absolute() && compiler.is_file() { compiler } else { rustc }
}

impl Toolchain {
    fn cargo(&self) -> Command {
        match self {
            Self::Rustup { cargo, rustc } => {
                let mut command = clean(cargo);
                command.env("RUSTC", rustc);
                command
            }
            Self::Unpacked { root } => {
                let mut command = clean(&root.join("bin/cargo"));
                command
                    .env("RUSTC", root.join("bin/rustc"))
                    // Building the standard library is an unstable flag of a compiler that is otherwise stable.
                    .env("RUSTC_BOOTSTRAP", "1")
                    .env("CARGO_UNSTABLE_BUILD_STD", "std,panic_abort")
                    .env("CARGO_TARGET_WASM32_WASIP1_LINKER", root.join("bin/wasm-ld-22"))
                    .env("LD_LIBRARY_PATH", libraries(root));
                command
            }
        }
    }

    fn compiler(&self) -> Result<String> {
        let mut command = match self {
            Self::Rustup { rustc, .. } => clean(rustc),
            Self::Unpacked { root } => {
                let mut command = clean(&root.join("bin/rustc"));
                command.env("LD_LIBRARY_PATH", libraries(root));
                command
            }
        };
        let output = command.arg("--version").output().with_context(|| format!("cannot start {command:?}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// A command without what the surrounding cargo set for its own build.
fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let kept = ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_TERM_COLOR"].contains(&&*text);
        let cargos = ["CARGO", "RUSTC", "RUSTDOC", "RUSTFLAGS", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"];
        if !kept && cargos.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

fn libraries(root: &Path) -> String {
    let folders = ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib/llvm-22/lib"];
    folders.map(|folder| root.join(folder).display().to_string()).join(":")
}
