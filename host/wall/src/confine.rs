//! What a process gives up of itself once its project is loaded, so that who gets out of WebAssembly is in a process that
//! holds little. The command line does this; a program that embeds the library may, where all that it does itself is
//! within it.
//!
//! - Its memory and its environment are not to be looked into by other processes of the same user.
//! - It makes no system call that reaches into the system or into other processes, and the sockets that its policy has a
//!   use for.
//! - Where the policy grants no command, it starts no program either, makes no namespace, signals no other process and
//!   keeps of root's privileges those over files.
//! - Where no command needs a view of its own, Landlock holds it to the project, the workspace and the machine's own
//!   folders. (Around a process that mounts, Landlock cannot be.)
//!
//! The kernel takes files and privileges from the thread that asks, and from those that it starts later. So the process must not
//! have others yet: a project that is open has none, and a runtime is to be started after this.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::{Offers, Standing, host};
use harness_sys as sys;

/// What the process still needs: everything else is given up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Folders that are read: projects and further folders of artifacts.
    pub read: Vec<PathBuf>,
    /// Folders that are written: workspaces and logs.
    pub write: Vec<PathBuf>,
    /// What commands need, where a policy grants any.
    pub commands: Option<CommandNeeds>,
    /// Whether hosts or models are asked.
    pub hosts: bool,
}

/// What the commands of all projects need, together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandNeeds {
    /// Whether a policy says that commands run without a wall.
    pub unconfined: bool,
    /// Whether commands are granted the network.
    pub network: bool,
    /// Folders that are opened to commands, absolute.
    pub folders: Vec<PathBuf>,
}

/// What is given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Whether programs are started, and how their wall is made.
    programs: Programs,
    sockets: Sockets,
    /// Which files stay open.
    open: Open,
}

/// What starting programs needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Programs {
    /// None is started.
    None,
    /// They are started, and no namespace is made for them.
    Plain,
    /// They are started in namespaces, with mounts of their own.
    InNamespaces,
    /// They are started without a wall, as the policy says: what is taken from the host would be taken from them.
    Unconfined,
}

/// Which sockets are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sockets {
    /// None: no host is granted, and no model is asked.
    None,
    /// Those of the internet, for requests and for names.
    Internet,
    /// All but raw ones: they are those of commands that are granted the network.
    Commands,
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
    /// These folders, where Landlock is there.
    fn of<'a>(read: impl Iterator<Item = &'a PathBuf>, write: impl Iterator<Item = &'a PathBuf>) -> Self {
        if sys::landlock_version().is_none() {
            return Self::Unheld;
        }
        let real = |path: &Path| sys::real_path(path).ok();
        // Where the machine's certificates were said to be.
        let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().filter_map(sys::variable);
        let named = named.filter_map(|path| real(Path::new(&path)));
        let read = read.filter_map(|path| real(path)).chain(named).collect();
        Self::Only(Files { read, write: write.filter_map(|path| real(path)).collect() })
    }
}

impl Plan {
    /// For a process that needs these things and no others.
    pub fn of(needs: &Needs) -> Self {
        let none = CommandNeeds::default();
        let commands = needs.commands.as_ref().unwrap_or(&none);
        let granted = needs.commands.is_some();
        // What this machine offers is tried with processes, which take their time: only where it matters.
        let wall = if granted && !commands.unconfined { Offers::get().wall() } else { Err(Vec::new()) };
        let programs = programs(granted, commands.unconfined, &wall);
        let open = match programs {
            Programs::None => Open::of(needs.read.iter(), needs.write.iter()),
            // Root's commands need their control group.
            Programs::Plain if sys::user() != 0 => {
                let temporary = sys::temporary_folder();
                // A host cannot give its commands what it has not got.
                let read = needs.read.iter().chain(&commands.folders);
                Open::of(read, needs.write.iter().chain([&temporary]))
            }
            Programs::Plain | Programs::InNamespaces | Programs::Unconfined => Open::All,
        };
        Self { programs, sockets: sockets(granted && commands.network, needs.hosts), open }
    }

    /// For what loads scripts, or runs them with fakes behind their imports: no program is started, whatever the policy
    /// grants, and nothing but these folders is written.
    pub fn without_programs(read: &[PathBuf], write: &[PathBuf]) -> Self {
        Self { programs: Programs::None, sockets: Sockets::None, open: Open::of(read.iter(), write.iter()) }
    }

    /// The same, where it is not known yet which files will be read.
    #[must_use]
    pub fn with_all_files(self) -> Self {
        Self { open: Open::All, ..self }
    }

    /// The same, where one more folder is written in.
    #[must_use]
    pub fn with_folder(mut self, folder: &Path) -> Self {
        if let Open::Only(files) = &mut self.open {
            files.write.extend(sys::real_path(folder));
        }
        self
    }

    /// Whether commands get a view of the files.
    pub fn gives_views(&self) -> bool {
        self.programs == Programs::InNamespaces
    }

    /// What is not in the plan because this machine has nothing to hold it with, for who wants all of it or nothing.
    ///
    /// # Errors
    ///
    /// What it is, for the operator.
    pub fn whole(&self) -> Result<(), String> {
        match self.open {
            Open::Unheld => Err("files stay accessible, because there is no Landlock".to_owned()),
            Open::Only(_) | Open::All => Ok(()),
        }
    }

    /// Gives it up, for good, for all threads of the process What cannot be given up does not keep the rest.
    ///
    /// # Errors
    ///
    /// What could not be given up, for the operator.
    pub fn apply(&self) -> Result<(), String> {
        let memory = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let memory = memory.map_err(|error| std::io::Error::from(error).to_string());
        if self.programs == Programs::Unconfined {
            return memory;
        }
        let files = match &self.open {
            Open::Only(files) => host::hold_files(&files.read, &files.write),
            Open::All | Open::Unheld => Ok(()),
        };
        let privileges = if self.programs == Programs::None { host::hold_privileges() } else { Ok(()) };
        let calls = host::hold_calls(self.programs, self.sockets);
        memory.and(files).and(privileges).and(calls)
    }
}

fn sockets(by_commands: bool, by_host: bool) -> Sockets {
    match (by_commands, by_host) {
        (true, _) => Sockets::Commands,
        (false, true) => Sockets::Internet,
        (false, false) => Sockets::None,
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
            return f.write_str("access by debuggers; nothing else, because commands run unconfined");
        }
        f.write_str("system calls into the kernel and other processes")?;
        if self.programs == Programs::None {
            f.write_str(", starting programs, signals to other processes, privileges except those over files")?;
        }
        f.write_str(match self.sockets {
            Sockets::None => ", sockets",
            Sockets::Internet => ", sockets except internet sockets",
            Sockets::Commands => ", raw sockets",
        })?;
        f.write_str(match self.open {
            Open::Only(_) => ", files outside of the project (Landlock)",
            Open::Unheld => "; files stay accessible, because there is no Landlock",
            Open::All if self.programs == Programs::InNamespaces => {
                "; files stay accessible, because commands get a view of them"
            }
            Open::All => "; files stay accessible, because they may be needed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Count, Files, Memory, Namespaces};
    use rustix::process::dumpable_behavior;

    #[test]
    fn what_commands_need_is_kept_and_nothing_else() {
        let standing = |namespaces| {
            Ok(Standing {
                files: Files::Rules,
                namespaces,
                network: false,
                count: Count::User,
                memory: Memory::Process,
            })
        };
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

    /// Whether commands can be held by rules alone.
    fn landlock() -> bool {
        sys::landlock_version().is_some_and(|version| version >= 6)
    }

    #[test]
    fn sockets_are_for_who_has_a_use_for_them() {
        let all = [(false, false), (false, true), (true, false), (true, true)];
        let want = [Sockets::None, Sockets::Internet, Sockets::Commands, Sockets::Commands];
        assert_eq!(all.map(|(by_commands, by_host)| sockets(by_commands, by_host)), want);
    }

    /// What a process can still do, tried in one that is only there for it.
    fn tried(plan: &str, folder: &Path) -> String {
        let name = "confine::tests::a_process_gives_up_what_it_does_not_need";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact", "--nocapture"]).env("HARNESS_TEST_CONFINE", plan).current_dir(folder);
        // With one, a test runs in the thread of its process.
        command.env("RUST_TEST_THREADS", "2");
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        output.lines().filter_map(|line| line.strip_prefix("can ")).collect::<Vec<_>>().join(", ")
    }

    fn plan(name: &str) -> Plan {
        let (programs, sockets) = match name {
            "none" => (Programs::None, Sockets::None),
            "asking" => (Programs::None, Sockets::Internet),
            "plain" | "files" => (Programs::Plain, Sockets::None),
            "namespaces" => (Programs::InNamespaces, Sockets::Commands),
            _ => (Programs::Unconfined, Sockets::Commands),
        };
        let open = if name == "files" { Open::Only(super::Files::default()) } else { Open::All };
        Plan { programs, sockets, open }
    }

    #[test]
    fn what_runs_with_fakes_starts_nothing_and_asks_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let read = [folder.path().to_owned()];
        let Plan { programs, sockets, open } = Plan::without_programs(&read, &[]);
        assert_eq!((programs, sockets), (Programs::None, Sockets::None));
        let read_only = matches!(&open, Open::Only(files) if files.write.is_empty());
        assert!(read_only || sys::landlock_version().is_none(), "{open:?}");
        // The control: a process that asks hosts.
        let asking = Needs { read: read.to_vec(), hosts: true, ..Needs::default() };
        assert_eq!(Plan::of(&asking).sockets, Sockets::Internet);
    }

    #[test]
    fn who_wants_all_of_it_is_told_what_is_missing() {
        let whole = |open| Plan { open, ..plan("none") }.whole();
        assert_eq!(whole(Open::Unheld), Err("files stay accessible, because there is no Landlock".to_owned()));
        assert_eq!([whole(Open::All), whole(Open::Only(super::Files::default()))], [Ok(()), Ok(())]);
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "told to the test that started this")]
    fn a_process_gives_up_what_it_does_not_need() {
        if let Ok(name) = std::env::var("HARNESS_TEST_CONFINE") {
            let folder = std::env::current_dir().unwrap();
            assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::Dumpable));
            let applied = plan(&name).apply();
            let can = |what: &str, done: bool| {
                if done {
                    println!("can {what}")
                }
            };
            let fork = |flags: i32| host::ends(flags).is_ok();
            let signal = |pid| rustix::process::test_kill_process(pid).is_ok();
            can("not have given it all up", applied.is_err());
            can("start a program", std::process::Command::new("/bin/true").status().is_ok());
            can("make rules", !landlock() || host::makes_rules(&folder).is_ok());
            can("make a thread", std::thread::Builder::new().spawn(|| ()).is_ok());
            can("make a process", fork(0));
            can("signal itself", signal(rustix::process::getpid()));
            can("signal others", signal(rustix::process::getppid().unwrap()));
            can("make pairs", std::os::unix::net::UnixStream::pair().is_ok());
            can("ask names", host::socket(libc::AF_INET, libc::SOCK_DGRAM));
            can("connect", host::socket(libc::AF_INET, libc::SOCK_STREAM));
            can("use local sockets", host::socket(libc::AF_UNIX, libc::SOCK_STREAM));
            can("see packets", host::socket(libc::AF_PACKET, libc::SOCK_DGRAM));
            can("make packets", host::socket(libc::AF_INET, libc::SOCK_RAW));
            can("make a namespace", fork(libc::CLONE_NEWUSER));
            can("be looked into", dumpable_behavior() != Ok(DumpableBehavior::NotDumpable));
            can("use keys", rustix::io::Errno::PERM != host::keys());
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let tried = |plan| tried(plan, folder.path());
        let threads = "make rules, make a thread, make a process, signal itself";
        // The test has a thread beside that of its process, and files and privileges would be taken from one of them.
        assert_eq!(tried("none"), format!("not have given it all up, {threads}, make pairs"));
        assert_eq!(tried("asking"), format!("not have given it all up, {threads}, make pairs, ask names, connect"));
        let plain = format!("start a program, {threads}, signal others, make pairs");
        assert_eq!(tried("plain"), plain);
        assert_eq!(tried("files"), format!("not have given it all up, {plain}"));
        let all = tried("namespaces");
        let network = "make pairs, ask names, connect, use local sockets";
        assert!(all.starts_with(&format!("start a program, {threads}, signal others, {network}")), "{all}");
        assert!(!all.contains("use keys") && !all.contains("packets"), "{all}");
        // The control. Namespaces are made where the machine lets anyone make them, packets by root.
        let free = tried("unconfined");
        let few: Vec<&str> =
            free.split(", ").filter(|what| !what.ends_with(" packets") && *what != "use keys").collect();
        assert_eq!(few.join(", "), all);
        assert!(
            free.ends_with(", use keys") && (sys::user() != 0 || free.contains("see packets, make packets")),
            "{free}"
        );
    }
}
