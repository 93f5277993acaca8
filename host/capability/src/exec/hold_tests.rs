//! What a command is held to as a whole: its memory, its processes, its end, and the repository that it is in. Each
//! beside the same command with more.

use crate::env::Variables;
use std::sync::Arc;

use super::tests::{LONG, Workspace, command, granted, mark, marked, ran, sh, with_files};
use super::*;
use harness_policy::command::{CommandNetwork, CommandRule, ExecRules, FolderRule};
use harness_policy::layer::{Layer, Origin, Scope};
use harness_policy::limits::LimitKey;
use harness_policy::path::{FsRules, PathPattern};
use harness_policy::secret::{Holder, Secret};
use harness_testing::skip::{Need, skipped, skipped_unless_root};
use harness_wall::{Memory, Offers};

fn exec(unconfined: bool) -> ExecRules {
    let allow = ["sh", "bash", "perl", "git", "true"].map(|program| CommandRule::parse(program).unwrap());
    ExecRules { allow: allow.into(), env: Vec::new(), folders: Vec::new(), network: CommandNetwork::None, unconfined }
}

fn grant(unconfined: bool, limits: &[(LimitKey, u64)]) -> Grant {
    let mut layers: Vec<Layer> = granted(exec(unconfined)).layers().iter().map(|layer| Layer::clone(layer)).collect();
    for (key, most) in limits {
        layers[0].limits = layers[0].limits.with(*key, Some(*most));
    }
    Grant::new(layers)
}

fn confined() -> Grant {
    grant(false, &[])
}

/// A process that makes so many megabytes its own, and keeps them until all are there that are started with it.
fn taking(megabytes: u32) -> String {
    format!("perl -e '$x = chr(1) x ({megabytes} << 20); $y = \"ready\\n\"; syswrite STDOUT, $y; sleep 60'")
}

/// A folder that the policy opens to commands may hold more than programs.
#[tokio::test]
async fn what_is_secret_beside_the_workspace_stays_closed() {
    let beside = tempfile::tempdir_in("/var").or_else(|_| tempfile::tempdir()).unwrap();
    let folder = beside.path().canonicalize().unwrap();
    let files = [("bin/open", "open"), ("id_rsa", "SECRET"), ("conf/x.pem", "SECRET"), ("token", "canary-of-a-token")];
    for (path, text) in files {
        std::fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
        std::fs::write(folder.join(path), text).unwrap();
    }
    // The same file under a name that promises nothing.
    std::fs::hard_link(folder.join("token"), folder.join("bin/linked")).unwrap();
    let secret = Secret {
        name: "D".to_owned(),
        holder: Holder::File(folder.join("token").to_str().unwrap().to_owned()),
        hosts: Vec::new(),
        exec: Vec::new(),
        origin: Origin::new(".harness/harness.md", Scope::Project),
    };
    let handles = Handles::new(Arc::new(Vault::open([&secret], [], &folder, &Variables::Host)));
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open_ambient_dir(root.path(), cap_std::ambient_authority()).unwrap();
    let script = format!("cd {} && cat {} bin/linked", folder.display(), files.map(|(path, _)| path).join(" "));
    let (http, listings) = (Client::default(), Arc::default());
    let said = |unconfined: bool| {
        let allow = vec![CommandRule::parse("sh").unwrap()];
        let folders = vec![FolderRule::parse(folder.to_str().unwrap()).unwrap()];
        let grant = granted(ExecRules { allow, env: Vec::new(), folders, network: CommandNetwork::None, unconfined });
        let place = ExecContext {
            dir: &dir,
            workspace: root.path(),
            listings: &listings,
            handles: &handles,
            variables: &Variables::Host,
            http: &http,
        };
        let script = sh(&script);
        async move { run(&grant, place, LONG, script).await.unwrap().stdout }
    };
    assert_eq!(said(false).await, "open");
    assert_eq!(said(true).await, "openSECRETSECRET[redacted:D][redacted:D]");
}

#[tokio::test]
async fn one_process_has_no_more_memory_than_a_command_may() {
    let take = || command("perl", &["-e", "$x = chr(1) x (96 << 20); print 'done'"]);
    let output = ran(&grant(false, &[(LimitKey::CommandMemory, 64)]), take()).await.unwrap();
    assert!(output.exit_code != 0 && output.stdout.is_empty(), "{output:?}");
    assert_eq!(ran(&grant(false, &[(LimitKey::CommandMemory, 512)]), take()).await.unwrap().stdout, "done");
}

/// Where a control group holds them. Elsewhere each process has as much, and the control alone is what there is to see.
#[tokio::test]
async fn all_processes_of_a_command_share_its_memory() {
    let one = taking(48);
    // It ends when one of them has, or when all are there.
    let script = format!(
        "for i in 1 2 3; do ({one} || echo gone) & done > said; while [ $(grep -c ready said) -lt 3 ]; do \
         grep -q gone said && exit 9; sleep 0.02; done; echo all"
    );
    let ended = |most| {
        let (grant, script) = (grant(false, &[(LimitKey::CommandMemory, most)]), sh(&script));
        async move { ran(&grant, Command { timeout_ms: 20_000, ..script }).await.unwrap() }
    };
    if Offers::get().wall().unwrap().memory == Memory::Command {
        let output = ended(100).await;
        assert!(!output.stdout.contains("all") && output.exit_code != 0, "{output:?}");
        let note = "harness: the command took more memory than `limits.command_memory_mb`, which is 100\n";
        assert!(output.stderr.ends_with(note), "{output:?}");
    }
    let output = ended(1024).await;
    assert_eq!((output.stdout.as_str(), output.exit_code, output.stderr.as_str()), ("all\n", 0, ""));
}

/// One that never stops making processes, and one that needs a few.
#[tokio::test]
async fn a_bomb_of_processes_is_told_and_ends_with_the_command() {
    let mark = mark();
    let bomb = format!("for i in $(seq 200); do (exec sleep {mark}) & done; wait");
    let output = ran(
        &grant(false, &[(LimitKey::Processes, 20)]),
        Command { timeout_ms: 3_000, ..command("bash", &["-c", &bomb]) },
    )
    .await
    .unwrap();
    assert!(output.exit_code != 0, "{output:?}");
    assert!(output.stderr.contains("Resource temporarily unavailable"), "{output:?}");
    assert_eq!(marked(&mark), 0);
    if rustix::process::geteuid().is_root() {
        assert!(output.stderr.ends_with("no more processes: `limits.processes` is 20\n"), "{output:?}");
    }
    let few = "for i in $(seq 10); do sleep 0.01 & done; wait; echo done";
    let output = ran(&grant(false, &[(LimitKey::Processes, 20)]), command("bash", &["-c", few])).await.unwrap();
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("done\n", ""));
}

/// What the host makes for itself alone, a command does too.
#[tokio::test]
async fn what_it_makes_is_for_others_as_what_the_host_makes() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = status.lines().find_map(|line| line.strip_prefix("Umask:\t")).unwrap();
    assert_eq!(ran(&confined(), sh("umask")).await.unwrap().stdout, format!("{own}\n"));
}

/// Each folder of its view: what gives a program another user's powers does nothing there, devices are none but those that
/// are shown by name, and what may be written is the workspace and its temporary folders.
#[tokio::test]
async fn its_folders_are_plain() {
    if skipped(Need::Namespaces, Offers::get().namespaces.is_ok()) {
        return;
    }
    let workspace = Workspace::new();
    let root = workspace.root.path().canonicalize().unwrap();
    let output = workspace.run_in(&confined(), LONG, sh("cat /proc/self/mounts")).await.unwrap();
    let without = |option: &str| -> Vec<&str> {
        let lines = output.stdout.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        lines.filter(|line| !line[3].split(',').any(|has| has == option)).map(|line| line[1]).collect()
    };
    assert_eq!(without("nosuid"), [""; 0]);
    let mut devices = without("nodev");
    devices.sort_unstable();
    assert_eq!(devices, ["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"]);
    let home = std::env::var("HOME").unwrap_or_default();
    let mut written = without("ro");
    written.retain(|path| !path.starts_with("/dev/") && *path != home);
    written.sort_unstable();
    assert_eq!(written, ["/tmp", root.to_str().unwrap()]);
}

/// What someone mounted in a folder is as that folder is.
#[test]
#[expect(unsafe_code, reason = "mounts that only this thread and those that it starts see")]
fn what_is_mounted_in_what_is_read_is_not_written() {
    if skipped(Need::Namespaces, Offers::get().namespaces.is_ok()) || skipped_unless_root() {
        return;
    }
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    let written = |rules: FsRules| {
        // SAFETY: of what this thread shares with others, it only stops sharing its mounts and its current folder.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        let (workspace, elsewhere) = (Workspace::new(), tempfile::tempdir().unwrap());
        let at = workspace.root.path().join("mounted");
        std::fs::create_dir(&at).unwrap();
        mount_bind(elsewhere.path(), &at).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let grant = with_files(exec(false), rules);
        runtime.block_on(workspace.run_in(&grant, LONG, sh("echo x > mounted/new"))).unwrap();
        drop(runtime);
        rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH).unwrap();
        elsewhere.path().join("new").exists()
    };
    let open = || vec![PathPattern::parse(".").unwrap()];
    let both = [Vec::new(), open()].map(|write| {
        let rules = FsRules { read: open(), write, ..FsRules::default() };
        std::thread::scope(|scope| scope.spawn(|| written(rules)).join().unwrap())
    });
    assert_eq!(both, [false, true]);
}

/// Beside a command is its keeper, which the command may look into as far as the system lets it.
#[tokio::test]
async fn its_keeper_holds_nothing_of_the_hosts() {
    if skipped_unless_root() {
        return;
    }
    let file = tempfile::tempfile().unwrap();
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    let mark = mark();
    let held = async {
        super::tests::until_marked(&mark, 2).await;
        let read = |pid: &str, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let pids = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let marked = pids.filter(|pid| read(pid, "cmdline").contains(&mark));
        let above =
            |pid: String| read(&pid, "status").lines().find_map(|line| line.strip_prefix("PPid:\t").map(str::to_owned));
        let keeper = marked.filter_map(above).find(|pid| read(pid, "cmdline").starts_with("keeper\0")).unwrap();
        let files = std::fs::read_dir(format!("/proc/{keeper}/fd")).unwrap();
        let numbers = files.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<u32>().unwrap());
        // Three that it begins with, and its handle of the command.
        numbers.filter(|number| *number > 3).collect::<Vec<_>>()
    };
    let (workspace, grant) = (Workspace::new(), confined());
    tokio::select! {
        output = workspace.run_in(&grant, LONG, sh(&format!("sleep {mark}; true"))) => panic!("{output:?}"),
        others = held => assert_eq!(others, [0; 0]),
    }
}

/// Started again by itself, as its limits are those of a whole process.
#[tokio::test]
async fn a_limit_of_the_hosts_own_is_not_raised() {
    let told = |most: u64| async move {
        let output = ran(&grant(false, &[(LimitKey::FileBytes, most)]), command("bash", &["-c", "ulimit -Hf"])).await;
        output.unwrap().stdout
    };
    if std::env::var_os("HARNESS_TEST_LIMIT").is_some() {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let most = Some(2 << 20);
        setrlimit(Resource::Fsize, Rlimit { current: most, maximum: most }).unwrap();
        assert_eq!([told(1 << 20).await, told(4 << 20).await], ["1024\n", "2048\n"]);
        return;
    }
    assert_eq!(told(4 << 20).await, "4096\n");
    let name = "exec::hold_tests::a_limit_of_the_hosts_own_is_not_raised";
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    let output = again.args([name, "--exact"]).env("HARNESS_TEST_LIMIT", "yes").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// In a session of its own, without a parent, with streams of its own: a daemon as they are written.
const DAEMON: &str = "use POSIX; exit if fork; POSIX::setsid(); exit if fork; chdir q(/); \
    open STDIN, q(/dev/null); open STDOUT, q(>/dev/null); open STDERR, q(>/dev/null); exec q(sleep), $ARGV[0]";

#[tokio::test]
async fn a_daemon_is_gone_after_the_command() {
    for grant in [confined(), grant(true, &[])] {
        let mark = mark();
        // It is there while the command is.
        let seen =
            "for i in $(seq 500); do grep -aqs $1 /proc/[0-9]*/cmdline --exclude-dir=$$ && break; done; echo seen";
        let script = format!("perl -e '{}' $1; {seen}", DAEMON.replace('\'', ""));
        let output = ran(&grant, command("bash", &["-c", &script, "bash", &mark])).await.unwrap();
        assert_eq!((output.stdout.as_str(), output.exit_code), ("seen\n", 0), "{output:?}");
        assert_eq!(marked(&mark), 0);
    }
}

/// Who holds the streams open keeps nobody waiting: neither past the end of the command nor past its time.
#[tokio::test]
async fn an_orphan_that_holds_the_streams_is_not_waited_for() {
    for grant in [confined(), grant(true, &[])] {
        let mark = mark();
        let script = format!("(setsid sleep {mark} &) ; echo said");
        let output = ran(&grant, Command { timeout_ms: 60_000, ..sh(&script) }).await.unwrap();
        assert_eq!((output.stdout.as_str(), output.timed_out), ("said\n", false));
        assert_eq!(marked(&mark), 0);

        let script = format!("(setsid sleep {mark} &) ; echo said; exec sleep {mark}");
        let started = std::time::Instant::now();
        let output = ran(&grant, Command { timeout_ms: 3000, ..sh(&script) }).await.unwrap();
        assert_eq!((output.stdout.as_str(), output.timed_out), ("said\n", true));
        assert!(started.elapsed() < Duration::from_secs(300), "{:?}", started.elapsed());
        assert_eq!(marked(&mark), 0);
    }
}

/// Processes that end in the background are taken away while the command continues, and leave room for others.
#[tokio::test]
async fn orphans_that_end_make_room() {
    let script = "for i in $(seq 60); do (true &); done; sleep 0.3; for i in $(seq 60); do (true &); done; echo done";
    for unconfined in [false, true] {
        let grant = grant(unconfined, &[(LimitKey::Processes, 40)]);
        let output = ran(&grant, command("bash", &["-c", script])).await.unwrap();
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("done\n", ""));
    }
}

#[tokio::test]
async fn a_login_shell_works() {
    let output =
        ran(&confined(), command("bash", &["-lc", "printf '%s' \"$((6 * 7))\" | cat; cd / && pwd"])).await.unwrap();
    assert_eq!((output.stdout.as_str(), output.exit_code), ("42/\n", 0), "{output:?}");
}

/// A repository is read by commands and written by people: what git would do to it is refused by the kernel, whoever
/// starts git, and the denial is reported as one of the host.
#[tokio::test]
async fn a_repository_is_read_and_not_written() {
    let workspace = Workspace::new();
    let at = |path: &str| workspace.root.path().join(path);
    let all = "git init -q . && git config user.name a && git config user.email a@b && echo one > a && git add a && \
        git commit -qm first";
    let run = |grant: Grant, command: Command| {
        let workspace = &workspace;
        async move { workspace.run_in(&grant, LONG, command).await.unwrap() }
    };
    // The control: without a wall the same commands do it.
    let output = run(grant(true, &[]), sh(all)).await;
    assert_eq!(output.exit_code, 0, "{output:?}");
    std::fs::write(at("a"), "two\n").unwrap();
    let head =
        || std::fs::read(at(".git/refs/heads/master")).or_else(|_| std::fs::read(at(".git/refs/heads/main"))).unwrap();
    let before = (head(), std::fs::read(at(".git/index")).unwrap());

    let output = run(confined(), command("git", &["status", "--short"])).await;
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), (" M a\n", ""));
    let note = "harness: commands can read `.git/` but never write it, whatever the policy grants: only people change a repository\n";
    for refused in [
        command("git", &["commit", "-qam", "second"]),
        command("git", &["add", "a"]),
        sh("git add a && git commit -qm second"),
        sh("git add a 2>&1"),
    ] {
        let output = run(confined(), refused).await;
        assert!(output.exit_code != 0 && output.stderr.ends_with(note), "{output:?}");
    }
    assert_eq!((head(), std::fs::read(at(".git/index")).unwrap()), before);
    // A git that the host starts runs no hook, wall or no wall.
    let hook = at(".git/hooks/pre-commit");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, "#!/bin/sh\necho sprung >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = run(grant(true, &[]), command("git", &["commit", "-qam", "second"])).await;
    assert_eq!((output.exit_code, output.stderr.as_str()), (0, ""), "{output:?}");
    assert_ne!(head(), before.0);
    std::fs::write(at("a"), "three\n").unwrap();
    let output = run(grant(true, &[]), sh("git commit -qam third")).await;
    assert_eq!((output.exit_code, output.stderr.as_str()), (1, "sprung\n"));
}

/// Nothing of a command stays with the host: no process, no file, no thread that waits.
#[tokio::test]
async fn a_command_leaves_nothing_with_the_host() {
    let children = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).ok());
        lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    // Other tests have children too: only what is left as a zombie of a keeper counts.
    let zombies = || {
        let comm = |pid: &String| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        children().iter().map(comm).filter(|status| status.contains("State:\tZ")).count()
    };
    for grant in [confined(), grant(true, &[])] {
        for _ in 0..3 {
            assert_eq!(ran(&grant, command("true", &[])).await.unwrap().exit_code, 0);
            let mark = mark();
            let workspace = Workspace::new();
            tokio::select! {
                output = workspace.run_in(&grant, LONG, sh(&format!("sleep {mark}; true"))) => panic!("{output:?}"),
                () = super::tests::until_marked(&mark, 2) => {}
            }
            super::tests::until_marked(&mark, 0).await;
        }
    }
    for _ in 0..600 {
        if zombies() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} were not taken away", zombies());
}
