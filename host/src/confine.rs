//! What a process gives up of itself once its project is loaded, so that who gets out of WebAssembly is in a process that
//! holds little. The command line does this; a program that embeds the library may, where all that it does itself is
//! within it.
//!
//! - Its memory and its environment are not to be looked into by other processes of the same user.
//! - It makes no system call that reaches into the system or into other processes. Where the policy grants no command,
//!   it starts no program either, and makes no namespace.
//! - Where no command needs a view of its own, Landlock holds it to the project, the workspace and the machine's own
//!   folders. (Around a process that mounts, Landlock cannot be.)

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::ambient;
use crate::audit;
use crate::capability::exec::wall::{Offers, Standing, host};
use crate::policy::layer::Layer;
use crate::registry::Registry;

/// What is given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Whether programs are started, and how their wall is made.
    programs: Programs,
    /// Which files stay open.
    open: Open,
}

/// What starting programs needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Programs {
    /// None is started.
    None,
    /// They are started, and no namespace is made for them.
    Plain,
    /// They are started in namespaces, with mounts of their own.
    InNamespaces,
    /// They are started without a wall, as the policy says: what is taken from the host would be taken from them.
    Unconfined,
}

/// Which files stay open.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Open {
    /// Those that Landlock leaves.
    Only(Files),
    /// All, as they may be needed: what mounts cannot be held to some.
    All,
    /// All, as there is no Landlock on this machine.
    Unheld,
}

/// Folders that stay open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Files {
    read: BTreeSet<PathBuf>,
    write: BTreeSet<PathBuf>,
}

impl Open {
    /// The project, to be read, and these folders, where Landlock is there.
    fn of(registry: &Registry, root: &Path, write: &[&Path]) -> Self {
        if ambient::landlock_version().is_none() {
            return Self::Unheld;
        }
        let real = |path: &Path| ambient::real_path(path).ok();
        let read = registry.roots().iter().cloned().chain(real(root)).chain(real(&root.join(".harness")));
        // Where the machine's certificates were said to be.
        let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().filter_map(ambient::variable);
        let write = write.iter().filter_map(|path| real(path)).collect();
        Self::Only(Files { read: read.chain(named.map(PathBuf::from)).collect(), write })
    }
}

impl Plan {
    /// For calls in a project: its folder, where its tools work, if that is elsewhere, and what stands in the place of its
    /// policy for one of them.
    pub fn of(registry: &Registry, root: &Path, workspace: Option<&Path>, instead: Option<&Layer>) -> Self {
        let project = registry.policy().map(|policy| &policy.project);
        let exec = || project.into_iter().chain(instead).filter_map(|layer| layer.exec.as_ref());
        let granted = exec().any(|exec| !exec.allow.is_empty());
        let unconfined = exec().any(|exec| exec.unconfined);
        // What this machine offers is tried with processes, which take their time: only where it matters.
        let wall = if granted && !unconfined { Offers::get().wall() } else { Err(Vec::new()) };
        let programs = programs(granted, unconfined, &wall);
        let open = match programs {
            Programs::None => Open::of(registry, root, &[workspace.unwrap_or(root), &root.join(audit::FOLDER)]),
            _ => Open::All,
        };
        Self { programs, open }
    }

    /// For what loads scripts, or runs them with fakes behind their imports: no program is started, whatever the policy
    /// grants, and nothing but these folders is written.
    pub fn without_programs(registry: &Registry, root: &Path, write: &[&Path]) -> Self {
        Self { programs: Programs::None, open: Open::of(registry, root, write) }
    }

    /// The same, where it is not known yet which files will be read.
    #[must_use]
    pub fn with_all_files(self) -> Self {
        Self { open: Open::All, ..self }
    }

    /// What is not in the plan because this machine has nothing to hold it with, for who wants all of it or nothing.
    ///
    /// # Errors
    ///
    /// What it is, for the operator.
    pub fn whole(&self) -> Result<(), String> {
        match self.open {
            Open::Unheld => Err("files stay open, as there is no Landlock".to_owned()),
            Open::Only(_) | Open::All => Ok(()),
        }
    }

    /// Gives it up, for good, for all threads of the process as far as the kernel does that. What cannot be given up does
    /// not keep the rest.
    ///
    /// # Errors
    ///
    /// What could not be given up, for the operator.
    pub fn apply(&self) -> Result<(), String> {
        let memory = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let memory = memory.map_err(|error| std::io::Error::from(error).to_string());
        let files = match &self.open {
            Open::Only(files) => host::hold_files(&files.read, &files.write),
            Open::All | Open::Unheld => Ok(()),
        };
        let calls = if self.programs == Programs::Unconfined { Ok(()) } else { host::hold_calls(self.programs) };
        memory.and(files).and(calls)
    }
}

fn programs(granted: bool, unconfined: bool, wall: &Result<Standing, Vec<String>>) -> Programs {
    match wall {
        _ if !granted => Programs::None,
        _ if unconfined => Programs::Unconfined,
        Ok(standing) if standing.namespaces.is_some() => Programs::InNamespaces,
        Ok(_) => Programs::Plain,
        Err(_) => Programs::None,
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.programs == Programs::Unconfined {
            return f.write_str("being looked into by others; no more, as commands run unconfined");
        }
        f.write_str("system calls into the kernel and other processes")?;
        if self.programs == Programs::None {
            f.write_str(", starting programs")?;
        }
        f.write_str(match self.open {
            Open::Only(_) => ", files outside of the project (Landlock)",
            Open::Unheld => "; files stay open, as there is no Landlock",
            Open::All => "; files stay open, as commands get a view of them",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::exec::wall::{Count, Files, Memory, Namespaces};

    #[test]
    fn what_commands_need_is_kept_and_nothing_else() {
        let standing =
            |namespaces| Ok(Standing { files: Files::Rules, namespaces, count: Count::User, memory: Memory::Process });
        let missing = || Err(vec!["something".to_owned()]);
        for (granted, unconfined, wall, want) in [
            (false, false, standing(Some(Namespaces::Own)), Programs::None),
            (false, true, missing(), Programs::None),
            (true, false, standing(Some(Namespaces::Own)), Programs::InNamespaces),
            (true, false, standing(Some(Namespaces::User)), Programs::InNamespaces),
            (true, false, standing(None), Programs::Plain),
            (true, false, missing(), Programs::None),
            (true, true, standing(None), Programs::Unconfined),
            (true, true, missing(), Programs::Unconfined),
        ] {
            assert_eq!(programs(granted, unconfined, &wall), want, "{granted} {unconfined} {wall:?}");
        }
    }

    /// What a process can still do, tried in one that is only there for it.
    fn tried(plan: &str, folder: &Path) -> String {
        let name = "confine::tests::a_process_gives_up_what_it_does_not_need";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact", "--nocapture"]).env("HARNESS_TEST_CONFINE", plan).current_dir(folder);
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        output.lines().filter_map(|line| line.strip_prefix("can ")).collect::<Vec<_>>().join(", ")
    }

    fn plan(name: &str, folder: &Path) -> Plan {
        let files = || super::Files {
            read: BTreeSet::from([folder.join("read")]),
            write: BTreeSet::from([folder.join("write")]),
        };
        let held = ambient::landlock_version().is_some() && name == "none";
        let open = if held { Open::Only(files()) } else { Open::All };
        let programs = match name {
            "none" => Programs::None,
            "plain" => Programs::Plain,
            "namespaces" => Programs::InNamespaces,
            _ => Programs::Unconfined,
        };
        Plan { programs, open }
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "told to the test that started this")]
    fn a_process_gives_up_what_it_does_not_need() {
        if let Ok(name) = std::env::var("HARNESS_TEST_CONFINE") {
            let folder = std::env::current_dir().unwrap();
            plan(&name, &folder).apply().unwrap();
            let can = |what: &str, done: bool| {
                if done {
                    println!("can {what}")
                }
            };
            let fork = |flags: i32| crate::capability::exec::wall::host::ends(flags).is_ok();
            can("read what is open", std::fs::read(folder.join("read/file")).is_ok());
            can("read what is not", std::fs::read(folder.join("other/file")).is_ok());
            can("write what is open", std::fs::write(folder.join("write/new"), "").is_ok());
            can("write what is not", std::fs::write(folder.join("read/new"), "").is_ok());
            can("start a program", std::process::Command::new("/bin/true").status().is_ok());
            can("make a thread", std::thread::Builder::new().spawn(|| ()).is_ok());
            can("make a process", fork(0));
            can("make a namespace", fork(libc::CLONE_NEWUSER));
            can("use keys", rustix::io::Errno::PERM != crate::capability::exec::wall::host::keys());
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        for name in ["read", "write", "other"] {
            std::fs::create_dir(folder.join(name)).unwrap();
            std::fs::write(folder.join(name).join("file"), "text").unwrap();
        }
        let open = "read what is open, read what is not, write what is open, write what is not";
        let files = if ambient::landlock_version().is_some() { "read what is open, write what is open" } else { open };
        assert_eq!(tried("none", &folder), format!("{files}, make a thread, make a process"));
        assert_eq!(tried("plain", &folder), format!("{open}, start a program, make a thread, make a process"));
        let all = tried("namespaces", &folder);
        assert!(all.starts_with(&format!("{open}, start a program, make a thread, make a process")), "{all}");
        assert!(!all.contains("use keys"), "{all}");
        // The control. Namespaces are made where the machine lets anybody make them.
        let free = tried("unconfined", &folder);
        assert_eq!(free.strip_suffix(", use keys"), Some(all.as_str()));
    }
}
