//! What a broken-out guest would do in the host's own process, once that has given up what it does not need.
//!
//! Each is tried in a process of its own: this program, started again in the workspace, which gives up what its policy says
//! and tries it then, in every kind of thread that a host has. The control has given up nothing. What threads there are
//! before is an error of the library's; the test of `confine` shows it, and that of the command line that there are none.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use harness_capability::env::Variables;
use harness_dispatch::confinement::{Granted, needs, needs_below};
use harness_dispatch::{Host, HostOptions, OpenError, Options, Project, Run};
use harness_registry::{Machine, Registry};
use harness_sandbox::outcome::Outcome;
use harness_sys as sys;
use harness_wall::confine::Plan;
use serde_json::{Value as Json, json};

use crate::corpus::Coded;
use crate::world::{Servers, World};

pub(crate) const CASES: &[Coded] = &[
    Coded {
        id: "host-001",
        tried: "reads and writes outside of the project, in the host's own process",
        run: |_, servers| held(servers, NOTHING, "files", OWN_FILES),
        control: |_, servers| free(servers, NOTHING, "files"),
    },
    Coded {
        id: "host-002",
        tried: "reads what the machine keeps for root, where the host is root",
        run: |_, servers| held(servers, NOTHING, "settings", &["reads the settings of all"]),
        control: |_, servers| free(servers, NOTHING, "settings"),
    },
    Coded {
        id: "host-003",
        tried: "makes sockets of any kind, where no host is granted",
        run: |_, servers| held(servers, NOTHING, "sockets", &[]),
        control: |_, servers| free(servers, NOTHING, "sockets"),
    },
    Coded {
        id: "host-004",
        tried: "makes sockets that requests have no use for, where a host is granted",
        run: |_, servers| held(servers, A_HOST, "sockets", &["datagrams", "streams"]),
        control: |_, servers| free(servers, A_HOST, "sockets"),
    },
    Coded {
        id: "host-005",
        tried: "starts a program, signals other processes, looks into them and asks the kernel for more",
        run: |_, servers| held(servers, NOTHING, "processes", &[]),
        control: |_, servers| free(servers, NOTHING, "processes"),
    },
    Coded {
        id: "host-006",
        tried: "uses the privileges of root: gives files away, makes devices",
        run: |_, servers| held(servers, NOTHING, "privileges", &[]),
        control: |_, servers| free(servers, NOTHING, "privileges"),
    },
    Coded {
        id: "host-007",
        tried: "looks into other processes, makes sockets, and reads outside of the project where no view is made, where a command is granted",
        run: |_, servers| {
            held(servers, A_COMMAND, "sockets", &[])?;
            // Where no view is made, Landlock holds the host too: its files, and whom it signals.
            if crate::corpus::alone() && !rustix::process::getuid().is_root() {
                held(servers, A_COMMAND, "processes", &["starts a program"])?;
                return held(servers, A_COMMAND, "files", OWN_FILES);
            }
            held(servers, A_COMMAND, "processes", &["signals another process", "starts a program"])
        },
        control: |_, servers| free(servers, A_COMMAND, "processes"),
    },
    Coded {
        id: "host-008",
        tried: "reads outside by a command that it is granted, from a process that has given up what it does not need",
        run: |_, servers| called(servers, "cat ../outside/canary.txt .env", ""),
        control: |_, servers| called(servers, "cat inside.txt; echo x > src/made; cat < src/a.txt", "insidea"),
    },
    Coded {
        id: "host-009",
        tried: "signals its group, and others by every other call that there is for it",
        run: |_, servers| held(servers, NOTHING, "signals", &[]),
        control: |_, servers| free(servers, NOTHING, "signals"),
    },
    Coded {
        id: "host-010",
        tried: "makes mounts and namespaces, and processes by a call that no filter looks into",
        run: |_, servers| held(servers, NOTHING, "walls", &[]),
        control: |_, servers| free(servers, NOTHING, "walls"),
    },
    Coded {
        id: "host-011",
        tried: "opens projects outside of the folders of a confined host: by name, by `..`, by a link, by its workspace",
        run: |_, servers| roots(servers, "held outside", ROOTS_HOLD),
        control: |_, servers| roots(servers, "free outside", ROOTS_FREE),
    },
    Coded {
        id: "host-012",
        tried: "needs a new right of a confined host for a project that is added below its folder",
        run: |_, servers| roots(servers, "held below", r#"["made","made again"]"#),
        control: |_, servers| roots(servers, "free below", r#"["made","made again"]"#),
    },
];

/// What each of the four is answered.
const ROOTS_HOLD: &str = r#"["outside","outside","outside","outside"]"#;
const ROOTS_FREE: &str = r#"["opened","opened","opened","opened"]"#;

const OWN_FILES: &[&str] = &["reads the workspace", "writes the workspace"];
const NOTHING: &str = "sandbox: {}";
const A_HOST: &str = "network: { allowed_domains: [example.com] }";
const A_COMMAND: &str = "sandbox: { exec: { allow: [sh] } }";

/// What tells this program that it is such a process, and what to try.
const INSIDE: &str = "HARNESS_ATTACKS_INSIDE";

/// What is tried, by name.
type Try = (&'static str, fn(&Inside) -> bool);

/// What a process knows that tries it.
struct Inside {
    outside: PathBuf,
    /// Another process of this user, which the kernel lets it look into.
    other: Child,
}

const FILES: &[Try] = &[
    ("reads the workspace", |_| std::fs::read("inside.txt").is_ok()),
    ("writes the workspace", |_| std::fs::write("src/own.txt", "x").is_ok()),
    ("reads outside", |inside| std::fs::read(inside.outside.join("canary.txt")).is_ok()),
    ("lists outside", |inside| std::fs::read_dir(&inside.outside).is_ok()),
    ("makes a name for what is outside", |inside| {
        let made = std::fs::hard_link(inside.outside.join("canary.txt"), "src/linked").is_ok();
        made && std::fs::remove_file("src/linked").is_ok()
    }),
    ("writes outside", |inside| {
        let path = inside.outside.join("made");
        std::fs::write(&path, "x").is_ok() && std::fs::remove_file(path).is_ok()
    }),
];

const SETTINGS: &[Try] = &[
    ("reads the settings of all", |_| std::fs::read("/etc/passwd").is_ok()),
    ("reads the settings of root", |_| std::fs::read(SHADOW).is_ok()),
];
const SHADOW: &str = "/etc/shadow";

const SOCKETS: &[Try] = &[
    ("streams", |_| socket(libc::AF_INET, libc::SOCK_STREAM)),
    ("datagrams", |_| socket(libc::AF_INET, libc::SOCK_DGRAM)),
    ("sockets that are files", |_| socket(libc::AF_UNIX, libc::SOCK_STREAM)),
    ("the kernel's own", |_| socket(libc::AF_NETLINK, libc::SOCK_RAW)),
    ("pairs that can be pointed elsewhere", |_| std::os::unix::net::UnixDatagram::pair().is_ok()),
];

const PROCESSES: &[Try] = &[
    ("starts a program", |_| Command::new("true").status().is_ok()),
    ("signals another process", |inside| {
        let other = rustix::process::Pid::from_child(&inside.other);
        rustix::process::test_kill_process(other).is_ok()
    }),
    ("looks into another process", |inside| allowed(libc::SYS_process_vm_readv, inside.other.id().into())),
    ("asks for keys", |_| allowed(libc::SYS_keyctl, 0x7fff)),
    ("asks for a view into the kernel", |_| allowed(libc::SYS_userfaultfd, 0x7fff_ffff)),
];

const SIGNALS: &[Try] = &[
    ("its group", |_| allowed(libc::SYS_kill, 0)),
    ("a thread", |inside| allowed(libc::SYS_tkill, inside.other.id().into())),
    ("a thread of a process", |inside| allowed(libc::SYS_tgkill, inside.other.id().into())),
    ("with a value", |inside| allowed(libc::SYS_rt_sigqueueinfo, inside.other.id().into())),
    ("a thread with a value", |inside| allowed(libc::SYS_rt_tgsigqueueinfo, inside.other.id().into())),
    ("by a handle", |inside| allowed(libc::SYS_pidfd_send_signal, inside.other.id().into())),
];

const WALLS: &[Try] = &[
    ("mounts", |_| allowed(libc::SYS_mount, 0)),
    ("leaves its namespaces", |_| allowed(libc::SYS_unshare, 0)),
    ("makes processes", |_| refusal(libc::SYS_clone3, 0) != Some(libc::ENOSYS)),
];

const PRIVILEGES: &[Try] = &[
    ("gives a file away", |_| {
        let own = std::fs::metadata("inside.txt").unwrap().uid();
        chown("inside.txt", Some(own + 1), None).is_ok() && chown("inside.txt", Some(own), None).is_ok()
    }),
    ("makes a device", |_| {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let device = rustix::fs::makedev(1, 3);
        let made = mknodat(CWD, "device", FileType::CharacterDevice, Mode::from(0o600), device).is_ok();
        made && std::fs::remove_file("device").is_ok()
    }),
];

fn tries(name: &str) -> &'static [Try] {
    match name {
        "files" => FILES,
        "settings" => SETTINGS,
        "sockets" => SOCKETS,
        "processes" => PROCESSES,
        "privileges" => PRIVILEGES,
        "signals" => SIGNALS,
        "walls" => WALLS,
        other => panic!("{other:?} is nothing to try"),
    }
}

#[expect(unsafe_code, reason = "any family and kind, as a broken-out guest would ask for it")]
fn socket(family: i32, kind: i32) -> bool {
    // SAFETY: it takes numbers, and what is made goes with this process.
    let made = unsafe { libc::socket(family, kind, 0) };
    made >= 0
}

/// Whether the kernel continues to look at the arguments of a call, which are bad ones.
fn allowed(call: i64, first: i64) -> bool {
    refusal(call, first) != Some(libc::EPERM)
}

/// What the kernel says against a call with one argument.
#[expect(unsafe_code, reason = "calls that nothing here has a use for")]
fn refusal(call: i64, first: i64) -> Option<i32> {
    // SAFETY: where they take pointers, these are null, and of what they lead to there is nothing.
    let done = unsafe { libc::syscall(call, first, 0_usize, 0_usize, 0_usize, 0_usize, 0_usize) };
    if done >= 0 { None } else { std::io::Error::last_os_error().raw_os_error() }
}

/// Where this program was started to be such a process, it tries what it was told to.
pub(crate) fn inside() -> bool {
    let Some(told) = sys::variable(INSIDE) else { return false };
    let words: Vec<&str> = told.split(' ').collect();
    let root = std::env::current_dir().unwrap();
    let project = Project::open(&root, Options { machine: Machine::None, ..Options::default() }).unwrap();
    let other = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let inside = Inside { outside: root.join("../outside").canonicalize().unwrap(), other };
    if matches!(words[1], "outside" | "below") {
        println!("{}", below(&root, words[0] == "held", words[1]));
        return true;
    }
    if words[0] == "held" {
        Plan::of(&needs(project.loaded().registry(), &root, None, None, &Variables::Host)).apply().unwrap();
    }
    if words[1] == "call" {
        println!("{}", call(&project));
    } else {
        everywhere(inside, tries(words[1]));
    }
    true
}

/// Gives up what a host does not need whose commands are granted the network: the corpus runs them all.
pub(crate) fn confine() {
    let folder = crate::world::folder();
    std::fs::create_dir(folder.path().join(".harness")).unwrap();
    let policy = "---\nsandbox: { exec: { allow: [sh], network: true } }\n---\n";
    std::fs::write(folder.path().join(".harness/harness.md"), policy).unwrap();
    let registry = Registry::load_within(folder.path(), &Machine::None);
    let plan = Plan::of(&needs(&registry, folder.path(), None, None, &Variables::Host));
    // The worlds of the cases are elsewhere.
    let plan = plan.with_all_files();
    plan.apply().unwrap();
    println!("this process has given up {plan}");
}

/// Tries all of it in each kind of thread, one after the other.
fn everywhere(inside: Inside, tries: &'static [Try]) {
    let inside = std::sync::Arc::new(inside);
    let all = |kind: &'static str| {
        let inside = inside.clone();
        move || {
            let done = tries.iter().filter(|(_, attempt)| attempt(&inside)).map(|(what, _)| *what);
            println!("{}", json!([kind, done.collect::<Vec<_>>()]));
        }
    };
    all("main")();
    std::thread::spawn(all("own")).join().unwrap();
    let runtime = crate::process::runtime();
    let (worker, blocking) = (all("worker"), all("blocking"));
    runtime.block_on(async {
        tokio::spawn(async move { worker() }).await.unwrap();
        tokio::task::spawn_blocking(blocking).await.unwrap();
    });
}

/// What a host with one folder for its projects makes of others. It gives up what it does not need for that one.
fn below(root: &Path, held: bool, which: &str) -> Json {
    let host = Host::new(HostOptions::default()).unwrap();
    let home = root.join("projects");
    let host = if held { host.with_roots(std::slice::from_ref(&home)).unwrap() } else { host };
    if held {
        Plan::of(&needs_below(std::slice::from_ref(&home), Granted::default())).apply().unwrap();
    }
    let options = || Options { machine: Machine::None, audit: false, ..Options::default() };
    if which == "outside" {
        let other = root.join("../outside/project");
        let tries = [
            host.open(&other, options()),
            host.open(&home.join("../../outside/project"), options()),
            host.open(&home.join("link"), options()),
            host.open(&home.join("own"), Options { workspace: Some(other), ..options() }),
        ];
        let told = |opened: Result<Project, OpenError>| match opened {
            Ok(_) => "opened".to_owned(),
            Err(OpenError::Outside { .. } | OpenError::Workspace { .. }) => "outside".to_owned(),
            Err(other) => other.to_string(),
        };
        return json!(tries.map(told));
    }
    let added = ["added", "added/again"].map(|name| {
        let folder = home.join(name);
        std::fs::create_dir_all(folder.join(".harness/tools")).unwrap();
        let script = "def run(args):\n      fs.write('made', 'made')\n      return fs.read('made')";
        let tool = format!("---\nscript: |\n  {script}\n---\n");
        std::fs::write(folder.join(".harness/tools/it.md"), tool).unwrap();
        serde_json::from_str::<Json>(&call(&host.open(&folder, options()).unwrap())).unwrap()
    });
    let [first, second] = added;
    json!([first, format!("{} again", second.as_str().unwrap())])
}

/// A host with a folder for its projects says this.
fn roots(servers: &Servers, words: &str, wanted: &str) -> Result<String, String> {
    let found = told_by(servers, NOTHING, "1", words, |world| {
        let project = world.work().join("../outside/project");
        for folder in [project.join(".harness"), world.work().join("projects/own/.harness")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::os::unix::fs::symlink(project, world.work().join("projects/link")).unwrap();
    })?;
    if found.trim() == wanted { Ok("refused".to_owned()) } else { Err(format!("{found} and not {wanted}")) }
}

fn call(project: &Project) -> String {
    let called = crate::process::runtime().block_on(project.call("it", json!({}), &Run::new())).unwrap();
    match called.outcome {
        Outcome::Completed(output) => output.result.to_string(),
        other => format!("{other:?}"),
    }
}

/// What such a process prints, in a workspace with this policy and this tool.
fn told(servers: &Servers, policy: &str, script: &str, words: &str) -> Result<String, String> {
    told_by(servers, policy, script, words, |_| {})
}

/// The same where this is done before.
fn told_by(
    servers: &Servers,
    policy: &str,
    script: &str,
    words: &str,
    before: impl FnOnce(&World),
) -> Result<String, String> {
    let mut world = World::new(servers);
    before(&world);
    let put = |path: &str, text: String| {
        let path = world.work().join(".harness").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("harness.md", format!("---\n{policy}\n---\n"));
    put("tools/it.md", format!("---\nscript: |\n  def run(args):\n      return {script}\n---\n# it\n"));
    world.seal();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let ran = command.current_dir(world.work()).env(INSIDE, words).stdin(Stdio::null()).output().unwrap();
    let (out, err) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    let broken = world.broken();
    if ran.status.success() && broken.is_empty() { Ok(out) } else { Err(format!("{} {broken:?} {err}", ran.status)) }
}

/// What each kind of thread of such a process can do.
fn done(servers: &Servers, policy: &str, words: &str) -> Result<BTreeMap<String, Vec<String>>, String> {
    let lines = told(servers, policy, "1", words)?;
    Ok(lines.lines().map(|line| serde_json::from_str::<(String, Vec<String>)>(line).unwrap()).collect())
}

/// Why something cannot be tried here: no control would show that it can be done.
fn untried(what: &str) -> Option<&'static str> {
    let root = rustix::process::getuid().is_root();
    match what {
        "files" if sys::landlock_version().is_none() => Some("there is no Landlock"),
        "settings" if sys::landlock_version().is_none() => Some("there is no Landlock"),
        "settings" if !root || std::fs::read(SHADOW).is_err() => Some("nothing is kept from this user"),
        "privileges" if !makes_devices() => Some("this user has no privileges"),
        _ => None,
    }
}

/// Not every root may.
fn makes_devices() -> bool {
    let folder = crate::world::folder();
    let at = folder.path().join("device");
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    mknodat(CWD, at, FileType::CharacterDevice, Mode::from(0o600), makedev(1, 3)).is_ok()
}

/// Whether every thread of a process that has given up what it does not need can do this, and no more.
fn held(servers: &Servers, policy: &str, what: &str, may: &[&str]) -> Result<String, String> {
    if let Some(why) = untried(what) {
        println!("    {what} were NOT tried in the host's own process: {why}");
        return Ok("not tried".to_owned());
    }
    let done = done(servers, policy, &format!("held {what}"))?;
    let mut may: Vec<&str> = may.to_vec();
    may.sort_by_key(|name| tries(what).iter().position(|(other, _)| other == name));
    match done.len() == 4 && done.values().all(|done| *done == may) {
        true => Ok("refused".to_owned()),
        false => Err(format!("ESCAPE: {done:?}")),
    }
}

/// The control: a process that has given up nothing can do all of it.
fn free(servers: &Servers, policy: &str, what: &str) -> Result<String, String> {
    if untried(what).is_some() {
        return Ok("not tried".to_owned());
    }
    let done = done(servers, policy, &format!("free {what}"))?;
    match done.len() == 4 && done.values().all(|done| done.len() == tries(what).len()) {
        true => Ok("done".to_owned()),
        false => Err(format!("{done:?}")),
    }
}

/// A command that the policy grants, from a process that has given up what it does not need.
fn called(servers: &Servers, command: &str, want: &str) -> Result<String, String> {
    let script = format!("exec.run('sh', ['-c', {}])['stdout']", json!(format!("({command}) 2>/dev/null")));
    let told = told(servers, A_COMMAND, &script, "held call")?;
    if serde_json::from_str::<Json>(&told).is_ok_and(|told| told == json!(want)) {
        Ok("gives".to_owned())
    } else {
        Err(told)
    }
}
