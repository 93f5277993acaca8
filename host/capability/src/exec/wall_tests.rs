//! What the wall around a child stops, each beside the same child without it.

use crate::env::Variables;
use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::sync::LazyLock;

use super::tests::{LONG, Workspace, command, granted, mark, marked, ran, sh, until_marked, with_files};
use super::*;
use harness_policy::command::{CommandNetwork, CommandRule, ExecRules, FolderRule};
use harness_policy::layer::Layer;
use harness_policy::limits::{LimitKey, Limits};
use harness_policy::path::{FsRules, PathPattern};
use harness_testing::skip::{Need, skipped};

const PROGRAMS: [&str; 6] = ["sh", "bash", "perl", "unshare", "git", "setsid"];

fn rules(network: bool, unconfined: bool) -> ExecRules {
    let network = if network { CommandNetwork::All } else { CommandNetwork::None };
    let allow = PROGRAMS.iter().map(|program| CommandRule::parse(program).unwrap()).collect();
    ExecRules { allow, env: Vec::new(), folders: Vec::new(), network, unconfined }
}

/// What is wanted of a wall around `sh`, without secrets.
fn wanted<'a>(grant: &'a Grant, dir: &'a Dir, workspace: &'a Path, program: &'a Path) -> For<'a> {
    static LISTINGS: LazyLock<Listings> = LazyLock::new(Listings::default);
    let (listings, home, network, installed) = (&*LISTINGS, None, None, None);
    For { grant, dir, workspace, listings, secrets: &[], home, program, name: "sh", time: LONG, network, installed }
}

pub(super) fn confined() -> Grant {
    granted(rules(false, false))
}

fn with_network() -> Grant {
    granted(rules(true, false))
}

pub(super) fn unconfined() -> Grant {
    granted(rules(false, true))
}

/// What it printed, the last line of its complaint, and its code.
async fn output_of(grant: &Grant, command: Command) -> (String, String, i32) {
    let output = ran(grant, command).await.unwrap();
    let complaint = output.stderr.lines().last().unwrap_or_default().to_owned();
    (output.stdout, complaint, output.exit_code)
}

#[tokio::test]
async fn there_is_no_network_unless_it_is_granted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let talk = || command("bash", &["-c", &format!("exec 3<>/dev/tcp/127.0.0.1/{port} && printf hello >&3")]);
    let (_, complaint, code) = output_of(&confined(), talk()).await;
    assert!(code != 0 && complaint.ends_with("Permission denied"), "{complaint}");
    for grant in [with_network(), unconfined()] {
        assert_eq!(output_of(&grant, talk()).await, (String::new(), String::new(), 0));
        let mut heard = String::new();
        listener.accept().unwrap().0.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "hello");
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "the confined child got through");
}

#[tokio::test]
async fn nor_datagrams_or_the_machines_own_sockets() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let send = || command("bash", &["-c", &format!("printf hello >/dev/udp/127.0.0.1/{port}")]);
    let (_, complaint, code) = output_of(&confined(), send()).await;
    assert!(code != 0 && complaint.ends_with("Permission denied"), "{complaint}");
    assert_eq!(output_of(&with_network(), send()).await.2, 0);
    let mut heard = [0; 16];
    assert_eq!(socket.recv(&mut heard).unwrap(), 5);

    let unix =
        || command("perl", &["-MSocket", "-e", "socket(S, AF_UNIX, SOCK_STREAM, 0) or die \"$!\\n\"; print 'open'"]);
    assert_eq!(output_of(&confined(), unix()).await, (String::new(), "Permission denied".to_owned(), 13));
    assert_eq!(output_of(&with_network(), unix()).await.0, "open");
}

/// Sockets without a file are the machine's, whatever a command sees of the files.
#[tokio::test]
async fn with_a_network_it_reaches_no_socket_of_another_without_a_file() {
    // Older ones cannot hold this, and nothing else does.
    if skipped(Need::Landlock, Offers::get().landlock.is_some_and(|version| version >= 6)) {
        return;
    }
    let name = format!("harness-{}", std::process::id());
    let address =
        <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(&name).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let script = format!(
        "socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, pack('S a*', AF_UNIX, qq(\\0{name}))) or die qq($!\\n); print 'open'"
    );
    let connect = || command("perl", &["-MSocket", "-e", &script]);
    assert_eq!(output_of(&with_network(), connect()).await.1, "Operation not permitted");
    assert_eq!(output_of(&unconfined(), connect()).await.0, "open");
}

/// A pair of datagram sockets could be pointed at any other; a pair of streams is only for the two.
#[tokio::test]
async fn pairs_of_sockets_lead_nowhere() {
    let pair = |kind: &str| {
        let script = format!("socketpair(A, B, AF_UNIX, {kind}, 0) or die \"$!\\n\"; print 'open'");
        command("perl", &["-MSocket", "-e", &script])
    };
    assert_eq!(output_of(&confined(), pair("SOCK_DGRAM")).await.1, "Permission denied");
    assert_eq!(output_of(&confined(), pair("SOCK_RAW")).await.1, "Permission denied");
    assert_eq!(output_of(&with_network(), pair("SOCK_DGRAM")).await.0, "open");
    assert_eq!(output_of(&confined(), pair("SOCK_STREAM")).await.0, "open");
}

#[tokio::test]
async fn it_gains_no_privileges_and_leaves_no_core() {
    let status = || sh("grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'; ulimit -c");
    assert_eq!(output_of(&confined(), status()).await.0, "NoNewPrivs:1\nSeccomp:2\n0\n");
    assert_eq!(output_of(&with_network(), status()).await.0, "NoNewPrivs:1\nSeccomp:2\n0\n");
    let free = output_of(&unconfined(), status()).await.0;
    assert!(
        !free.contains("Seccomp:2") || std::fs::read_to_string("/proc/self/status").unwrap().contains("Seccomp:\t2")
    );
}

#[tokio::test]
async fn it_types_on_no_terminal() {
    // There is none: the system says so where the wall does not stand before it.
    let typing = || command("perl", &["-e", "my $x = 'x'; ioctl(STDIN, 0x5412, $x) or die \"$!\\n\""]);
    assert_eq!(output_of(&confined(), typing()).await.1, "Operation not permitted");
    assert_eq!(output_of(&unconfined(), typing()).await.1, "Inappropriate ioctl for device");
}

#[tokio::test]
async fn it_reaches_into_no_other_process_and_makes_no_namespace() {
    // ptrace(PTRACE_TRACEME), which any process may ask for itself; on x86-64 and on ARM.
    let number = if cfg!(target_arch = "x86_64") { 101 } else { 117 };
    let trace =
        || command("perl", &["-e", &format!("syscall({number}, 0, 0, 0, 0) == 0 or die \"$!\\n\"; print 'traced'")]);
    assert_eq!(output_of(&confined(), trace()).await.1, "Operation not permitted");
    assert_eq!(output_of(&unconfined(), trace()).await.0, "traced");
    let namespace = || command("unshare", &["--ipc", "true"]);
    let (_, complaint, code) = output_of(&with_network(), namespace()).await;
    assert!(code != 0 && complaint.ends_with("Operation not permitted"), "{complaint}");
    if rustix::process::geteuid().is_root() {
        assert_eq!(output_of(&unconfined(), namespace()).await, (String::new(), String::new(), 0));
    }
}

#[tokio::test]
async fn it_makes_no_namespace_with_a_process() {
    let number = if cfg!(target_arch = "x86_64") { 56 } else { 220 };
    let made = |flags: libc::c_int| {
        let script = format!(
            "my $p = syscall({number}, {}, 0, 0, 0, 0); exit 0 if $p == 0; die qq($!\n) if $p < 0; waitpid($p, 0); print 'made'",
            flags | libc::SIGCHLD
        );
        command("perl", &["-e", &script])
    };
    assert_eq!(output_of(&with_network(), made(libc::CLONE_NEWUSER)).await.1, "Operation not permitted");
    assert_eq!(output_of(&with_network(), made(0)).await.0, "made");
}

/// `io_uring_setup`, `clone3` and `openat2`: what they are given is in memory, where a filter does not look.
#[tokio::test]
async fn calls_that_no_filter_sees_into_are_not_there() {
    let call = |number: u32| command("perl", &["-e", &format!("syscall({number}, 0, 0, 0, 0) < 0 and print $!")]);
    for number in [425, 435, 437] {
        assert_eq!(output_of(&with_network(), call(number)).await.0, "Function not implemented", "{number}");
    }
    assert_eq!(output_of(&unconfined(), call(437)).await.0, "Invalid argument");
}

#[tokio::test]
async fn its_namespaces_are_its_own() {
    if skipped(Need::Namespaces, Offers::get().namespaces.is_ok()) {
        return;
    }
    for kind in ["cgroup", "ipc", "mnt", "pid"] {
        let link = format!("/proc/self/ns/{kind}");
        let of_host = format!("{}\n", std::fs::read_link(&link).unwrap().display());
        let read = || sh(&format!("readlink {link}"));
        assert_ne!(output_of(&confined(), read()).await.0, of_host, "{kind}");
        assert_eq!(output_of(&unconfined(), read()).await.0, of_host, "{kind}");
    }
    if Offers::get().network {
        let of_host = format!("{}\n", std::fs::read_link("/proc/self/ns/net").unwrap().display());
        let read = || sh("readlink /proc/self/ns/net");
        assert_ne!(output_of(&confined(), read()).await.0, of_host);
        assert_eq!(output_of(&with_network(), read()).await.0, of_host);
    }
}

/// Others put another folder instead of one that was checked, and it does not start.
#[tokio::test]
async fn its_folders_are_those_that_were_looked_at() {
    if skipped(Need::Namespaces, Offers::get().namespaces.is_ok()) {
        return;
    }
    for (swapped, step) in [("", "its view of the files"), ("inner", "the folder to start in")] {
        let around = Workspace::new();
        let root = around.root.path().canonicalize().unwrap().join("work");
        std::fs::create_dir_all(root.join("inner")).unwrap();
        let dir = Dir::open_ambient_dir(root.join("inner"), cap_std::ambient_authority()).unwrap();
        let (grant, program) = (confined(), Path::new("/bin/sh"));
        let wall = Wall::new(&wanted(&grant, &dir, &root, program)).unwrap();
        std::fs::rename(root.join(swapped), around.root.path().join("moved")).unwrap();
        std::fs::create_dir_all(root.join("inner")).unwrap();
        let env = BTreeMap::new();
        let start = Start { program, name: "sh", args: &[], env: &env, dir: &dir, stdin: false, wall };
        let stale = std::io::Error::from(rustix::io::Errno::STALE);
        assert_eq!(Running::start(start).map(drop), Err(format!("it cannot be confined: {step}: {stale}")));
    }
}

/// A folder that holds something closed is mounted so that it stays where it is: not what a link leads to that others put
/// there in between.
#[tokio::test]
async fn its_view_is_made_through_no_link() {
    if skipped(Need::Namespaces, Offers::get().namespaces.is_ok()) {
        return;
    }
    let around = Workspace::new();
    let root = around.root.path().canonicalize().unwrap().join("work");
    for folder in [root.join("inner"), around.root.path().join("outside")] {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(".env"), "").unwrap();
    }
    let dir = Dir::open_ambient_dir(&root, cap_std::ambient_authority()).unwrap();
    let (grant, program) = (confined(), Path::new("/bin/sh"));
    let wall = || Wall::new(&wanted(&grant, &dir, &root, program)).unwrap();
    let (first, second) = (wall(), wall());
    let env = BTreeMap::new();
    let start =
        |wall| Running::start(Start { program, name: "sh", args: &[], env: &env, dir: &dir, stdin: false, wall });
    assert_eq!(start(first).map(drop), Ok(()));
    std::fs::rename(root.join("inner"), around.root.path().join("moved")).unwrap();
    std::os::unix::fs::symlink("../outside", root.join("inner")).unwrap();
    let a_link = std::io::Error::from(rustix::io::Errno::LOOP);
    assert_eq!(start(second).map(drop), Err(format!("it cannot be confined: its view of the files: {a_link}")));
}

/// What ordinary programs do continues: pipes, jobs, threads.
#[tokio::test]
async fn ordinary_work_is_not_in_its_way() {
    let work = sh("(seq 1000 | sort -rn --parallel=4 | head -n 1) & wait; echo done");
    assert_eq!(output_of(&confined(), work).await, ("1000\ndone\n".to_owned(), String::new(), 0));
}

/// A command's output and complaint, in a workspace with these files.
pub(super) async fn in_workspace(grant: &Grant, files: &[(&str, &str)], script: &str) -> (Workspace, String) {
    let workspace = Workspace::new();
    for (path, text) in files {
        let path = workspace.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let output = workspace.run_in(grant, LONG, sh(script)).await.unwrap();
    let said = output.stdout + &output.stderr;
    (workspace, said)
}

const FILES: [(&str, &str); 8] = [
    ("open.txt", "open"),
    (".env", "SECRET"),
    ("keys/server.pem", "SECRET"),
    ("agents/a.md", "SECRET"),
    (".harness/harness.md", "policy"),
    (".harness/audit/log", "SECRET"),
    (".git/config", "config"),
    ("out/old.txt", "old"),
];

fn patterns(texts: &[&str]) -> Vec<PathPattern> {
    texts.iter().map(|text| PathPattern::parse(text).unwrap()).collect()
}

#[tokio::test]
async fn what_is_closed_to_scripts_is_closed_to_commands() {
    let script = "cat open.txt .harness/harness.md .git/config; \
        cat .env keys/server.pem agents/a.md .harness/audit/log; \
        for f in .env keys/server.pem agents/new .harness/new .harness/harness.md .git/config .git/hooks; do \
            (echo x > $f) 2>/dev/null && echo wrote $f; done; \
        mv .git .git2; mv .harness h2; rm -rf agents .env; echo ok > out/new.txt; cat out/new.txt";
    let (workspace, said) = in_workspace(&confined(), &FILES, script).await;
    assert!(said.contains("openpolicyconfig") && said.contains("ok\n"), "{said}");
    assert!(!said.contains("SECRET") && !said.contains("wrote"), "{said}");
    for (path, text) in FILES {
        assert_eq!(std::fs::read_to_string(workspace.root.path().join(path)).unwrap(), text, "{path}");
    }
    assert_eq!(std::fs::read_to_string(workspace.root.path().join("out/new.txt")).unwrap(), "ok\n");
    // The control: without a wall all of it works.
    let (_, said) = in_workspace(&unconfined(), &FILES, script).await;
    assert_eq!((said.matches("SECRET").count(), said.matches("wrote").count()), (4, 7), "{said}");
}

#[tokio::test]
async fn files_are_those_of_the_grant() {
    let script = "for f in open.txt out/old.txt keys/server.pem; do grep -q . $f 2>/dev/null && echo read $f; done; \
        for f in open.txt out/old.txt new.txt out/new.txt; do (echo x > $f) 2>/dev/null && echo wrote $f; done";
    let fs = FsRules { read: patterns(&["."]), write: patterns(&["out"]), ..FsRules::default() };
    let (workspace, said) = in_workspace(&with_files(rules(false, false), fs.clone()), &FILES, script).await;
    // What it writes beside the grant is not the workspace's.
    assert!(!workspace.root.path().join("new.txt").exists());
    assert_eq!(said, "read open.txt\nread out/old.txt\nwrote out/old.txt\nwrote out/new.txt\n");
    let closed = FsRules { protect: patterns(&["out/old.txt"]), ..fs };
    let (_, said) = in_workspace(&with_files(rules(false, false), closed), &FILES, script).await;
    // Where only rules hold files, nothing new is made beside what is closed.
    assert_eq!(said.strip_suffix("wrote out/new.txt\n").unwrap_or(&said), "read open.txt\n");
    let (_, said) = in_workspace(&unconfined(), &FILES, script).await;
    assert_eq!(said.lines().count(), 7, "{said}");
}

#[tokio::test]
async fn nothing_of_the_machine_is_written_and_nothing_of_a_users_is_read() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "SECRET").unwrap();
    let at = outside.path().display();
    // Through a link and through the folder above too.
    let script = format!(
        "ln -s {at} link; cat {at}/secret link/secret ../../{at}/secret; echo x > {at}/new; echo x > link/new; ls -A {at}; \
         cat /etc/shadow; for f in /etc/passwd /usr/bin/env; do [ -e $f ] && (: >> $f) && echo wrote $f; done; \
         head -n 1 /etc/passwd"
    );
    let (_, said) = in_workspace(&confined(), &[], &script).await;
    assert!(!said.contains("SECRET") && !said.contains("\nsecret"), "{said}");
    assert!(said.contains("root:x:0:0") && !said.contains("root:$") && !said.contains("root:*"), "{said}");
    assert!(!said.contains("wrote"), "{said}");
    assert!(!outside.path().join("new").exists());
    let script = format!("ln -s {at} link; cat {at}/secret link/secret; echo x > link/new; ls -A {at}");
    let (_, said) = in_workspace(&unconfined(), &[], &script).await;
    assert_eq!(said, "SECRETSECRETnew\nsecret\n");
}

#[tokio::test]
async fn folders_beside_the_workspace_are_those_that_the_policy_names() {
    let tools = tempfile::tempdir_in("/var").or_else(|_| tempfile::tempdir()).unwrap();
    let folder = tools.path().canonicalize().unwrap();
    let program = folder.join("tool");
    std::fs::write(&program, "#!/bin/sh\necho works; echo x > \"$0\" || echo read-only\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = program.to_str().unwrap();
    let allow = vec![CommandRule::parse(program).unwrap()];
    let without = granted(ExecRules { allow, ..rules(false, false) });
    let why = ran(&without, command(program, &[])).await.unwrap_err();
    let Error::Start(why) = why else { panic!("{why:?}") };
    assert!(
        why.ends_with("add the folder that it is installed in to `sandbox.exec.folders` in `.harness/harness.md`"),
        "{why}"
    );
    let folders = vec![FolderRule::parse(folder.to_str().unwrap()).unwrap()];
    let allow = vec![CommandRule::parse(program).unwrap()];
    let with = granted(ExecRules { allow, folders, ..rules(false, false) });
    assert_eq!(ran(&with, command(program, &[])).await.unwrap().stdout, "works\nread-only\n");
}

/// The folder would show what of the workspace is closed.
#[tokio::test]
async fn a_folder_beside_the_workspace_does_not_hold_it() {
    let workspace = Workspace::new();
    let around = workspace.root.path().canonicalize().unwrap().parent().unwrap().to_owned();
    let folders = vec![FolderRule::parse(around.to_str().unwrap()).unwrap()];
    let ran = workspace.run_in(&granted(ExecRules { folders, ..rules(false, false) }), LONG, sh("true")).await;
    let why = "it cannot be confined: the workspace is inside of a folder that `exec.folders` opens";
    assert_eq!(ran, Err(Error::Start(why.to_owned())));
}

/// Modes are given as they are, so that nothing is changed where the wall is open.
#[tokio::test]
async fn what_it_sees_of_the_machine_is_fixed() {
    if skipped(Need::Namespaces, Offers::get().namespaces.is_ok()) {
        return;
    }
    let script = "for f in / /usr /dev /proc; do chmod --reference=$f $f 2>/dev/null && echo changed $f; done; \
                  ls / | grep -x old; echo $(($(stat -f -c '%b * %S' $TMPDIR)))";
    assert_eq!(in_workspace(&confined(), &[], script).await.1, "536870912\n");
}

#[tokio::test]
async fn the_temporary_folder_is_its_own_and_goes_away() {
    let (_, said) = in_workspace(&confined(), &[], "echo x > $TMPDIR/file && ls $TMPDIR && echo $TMPDIR").await;
    let folder = said.strip_prefix("file\n").unwrap().trim();
    assert!(!std::path::Path::new(folder).join("file").exists(), "{folder}");
    let (_, said) = in_workspace(&confined(), &[], "ls -A $TMPDIR").await;
    let ws_only = said.lines().all(|name| name.starts_with(".tmp"));
    assert!(ws_only, "{said}");
}

/// `/proc` shows the command's own processes; where it shows others, nothing of them can be read or ended.
#[tokio::test]
async fn the_host_is_neither_looked_into_nor_signalled() {
    let host = std::process::id();
    let script = format!(
        "for f in environ mem maps; do (head -c 1 /proc/{host}/$f) >/dev/null 2>&1 && echo read $f; done; \
         kill -0 {host} 2>/dev/null && echo found; kill -9 {host}; echo alive"
    );
    let (_, said) = in_workspace(&confined(), &[], &script).await;
    assert!(!said.contains("read") && !said.contains("found"), "{said}");
    // The control, without what would end the test.
    let script = format!("head -c 1 /proc/{host}/environ >/dev/null && echo read; kill -0 {host} && echo found");
    assert_eq!(in_workspace(&unconfined(), &[], &script).await.1, "read\nfound\n");
}

#[tokio::test]
async fn who_leaves_the_group_is_ended_too() {
    for grant in [confined(), unconfined()] {
        let mark = mark();
        let script =
            format!("setsid sh -c 'sleep {mark} & setsid sleep {mark} & wait' >/dev/null 2>&1 & sleep 0.3; echo done");
        assert_eq!(in_workspace(&grant, &[], &script).await.1, "done\n");
        assert_eq!(marked(&mark), 0);
    }
}

/// What is granted to a command behind walls, with a limit of its own.
fn with_limit(key: LimitKey, most: u64) -> Grant {
    let mut layers: Vec<Layer> = confined().layers().iter().map(|layer| Layer::clone(layer)).collect();
    layers[0].limits = layers[0].limits.with(key, Some(most));
    Grant::new(layers)
}

#[tokio::test]
async fn a_fork_bomb_ends_at_the_limit() {
    let grant = with_limit(LimitKey::Processes, 12);
    let script = "for i in $(seq 30); do sleep 5 & done; jobs -p | wc -l";
    let output = ran(&grant, command("bash", &["-c", script])).await.unwrap();
    assert!(
        output.stderr.contains("fork: ") && output.exit_code != 0 || output.stdout.trim().parse::<u32>().unwrap() < 12,
        "{output:?}"
    );
    // The control: the default is enough.
    let output =
        ran(&confined(), command("bash", &["-c", "for i in $(seq 30); do sleep 0.1 & done; jobs -p | wc -l"])).await;
    assert_eq!(output.unwrap().stdout, "30\n");
}

#[tokio::test]
async fn files_and_memory_have_limits() {
    let grant = with_limit(LimitKey::FileBytes, 100_000);
    let script =
        "head -c 200000 /dev/zero > big 2>/dev/null; wc -c < big; ulimit -d; ulimit -c; ulimit -t | grep -c unlimited";
    let (_, said) = in_workspace(&grant, &[], script).await;
    let memory = (Limits::default().command_memory_bytes >> 10).to_string();
    assert_eq!(said.lines().take(4).collect::<Vec<_>>(), ["100000", &memory, "0", "0"], "{said}");
    let (_, said) = in_workspace(&confined(), &[], "head -c 200000 /dev/zero > big; wc -c < big").await;
    assert_eq!(said, "200000\n");
}

#[tokio::test]
async fn root_keeps_no_privileges_but_over_files() {
    let (_, said) =
        in_workspace(&confined(), &[], "grep -E '^Cap(Eff|Prm|Bnd|Inh|Amb)' /proc/self/status | tr -d '\t'").await;
    let is_root = rustix::process::geteuid().is_root();
    let kept = if is_root { "000000000000000b" } else { "0000000000000000" };
    // Who has none may not give up what it could be given.
    let sets = if is_root { &["CapEff", "CapPrm", "CapBnd"][..] } else { &["CapEff", "CapPrm"] };
    for set in sets {
        assert!(said.contains(&format!("{set}:{kept}")), "{said}");
    }
    let (_, said) =
        in_workspace(&confined(), &[], "mknod disk b 254 0 || echo refused; chown 1:1 . 2>/dev/null; echo").await;
    assert!(said.contains("refused"), "{said}");
}

/// A host that is killed takes its commands with it: here a process that is only there to be killed.
#[tokio::test]
async fn a_host_that_is_killed_takes_its_commands_with_it() {
    if let Ok(mark) = std::env::var("HARNESS_TEST_HOST") {
        for grant in [confined(), unconfined()] {
            let script = format!("setsid sleep {mark} & wait");
            tokio::spawn(async move { ran(&grant, sh(&script)).await });
        }
        std::future::pending::<()>().await;
    }
    let mark = mark();
    let name = "exec::wall_tests::a_host_that_is_killed_takes_its_commands_with_it";
    let mut host = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact"])
        .env("HARNESS_TEST_HOST", &mark)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // Two shells and what they wait for.
    until_marked(&mark, 4).await;
    host.kill().unwrap();
    host.wait().unwrap();
    until_marked(&mark, 0).await;
}

#[tokio::test]
async fn no_configuration_makes_git_start_a_program() {
    let trap = "#!/bin/sh\necho sprung >&2\n";
    let config = "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = ./trap\n\thooksPath = .\n\
        [alias]\n\tfoo = !./trap\n[diff \"x\"]\n\ttextconv = ./trap\n[filter \"x\"]\n\tclean = ./trap\n[include]\n\tpath = more\n";
    let workspace = Workspace::new();
    let at = |path: &str| workspace.root.path().join(path);
    let git = |grant: &Grant, args: &[&str]| {
        let (grant, command) = (grant.clone(), command("git", args));
        let workspace = &workspace;
        async move {
            let output = workspace.run_in(&grant, LONG, command).await.unwrap();
            (output.exit_code, output.stdout, output.stderr)
        }
    };
    assert_eq!(git(&unconfined(), &["init", "--quiet"]).await.0, 0);
    std::fs::write(at("a.txt"), "one\n").unwrap();
    assert_eq!(git(&unconfined(), &["add", "a.txt"]).await.0, 0);
    std::fs::write(at("trap"), trap).unwrap();
    std::fs::set_permissions(at("trap"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(at("a.txt"), "two\n").unwrap();
    std::fs::write(at(".gitattributes"), "* diff=x filter=x\n").unwrap();
    std::fs::write(at(".git/more"), "[diff]\n\texternal = ./trap\n").unwrap();
    std::fs::write(at(".git/config"), config).unwrap();
    for args in [&["status", "--short"][..], &["diff"], &["foo"], &["stash", "list"], &["--no-pager", "diff", "--stat"]]
    {
        let (_, stdout, stderr) = git(&confined(), args).await;
        assert!(!stdout.contains("sprung") && !stderr.contains("sprung"), "{args:?}: {stdout}{stderr}");
    }
    assert!(git(&confined(), &["diff"]).await.1.contains("+two"));
    // The control: a git that the host does not start itself goes by the configuration.
    let shell = command("sh", &["-c", "git diff; git foo"]);
    let output = workspace.run_in(&confined(), LONG, shell).await.unwrap();
    assert!(output.stderr.contains("sprung"), "{output:?}");
}

/// Names that there is no room for may be those of programs.
#[tokio::test]
async fn git_is_not_run_with_settings_that_were_not_all_read() {
    let workspace = Workspace::new();
    assert_eq!(workspace.run_in(&unconfined(), LONG, command("git", &["init", "--quiet"])).await.unwrap().exit_code, 0);
    let settings: String = (0..30_000).map(|number| format!("\tname{number:032} = 1\n")).collect();
    std::fs::write(workspace.root.path().join(".git/config"), format!("[all]\n{settings}")).unwrap();
    let ran = workspace.run_in(&confined(), LONG, command("git", &["status"])).await;
    assert_eq!(ran, Err(Error::Start("the repository's configuration cannot be read".to_owned())));
}

#[tokio::test]
async fn no_file_is_left_that_others_run_as_its_owner() {
    let script = "cp /bin/true a; for m in 4755 2755 u+s g+s; do chmod $m a 2>/dev/null && echo set $m; done; \
        perl -MFcntl -e 'umask 0; sysopen(F, q(b), O_CREAT | O_WRONLY, 06755) and print qq(made\\n)'; \
        chmod 755 a && chmod 1777 . && perl -MFcntl -e 'sysopen(F, q(c), O_CREAT | O_WRONLY, 0755) and print qq(plain\\n)'";
    assert_eq!(in_workspace(&confined(), &[], script).await.1, "plain\n");
    let free = in_workspace(&unconfined(), &[], script).await.1;
    assert_eq!(free, "set 4755\nset 2755\nset u+s\nset g+s\nmade\nplain\n");
}

#[tokio::test]
async fn it_sets_limits_of_its_own_alone() {
    let host = std::process::id();
    // Its own children are others, too: those it sees.
    let script = format!(
        "sleep 9 >/dev/null & for p in {host} $!; do prlimit --pid $p --core >/dev/null 2>&1 && echo set; done; \
         kill $!; ulimit -n 100 && ulimit -n"
    );
    assert_eq!(in_workspace(&confined(), &[], &script).await.1, "100\n");
    assert_eq!(in_workspace(&unconfined(), &[], &script).await.1, "set\nset\n100\n");
}

/// A workspace in a folder that every command sees is no more open than another. Only root can make one.
#[tokio::test]
async fn a_workspace_among_the_systems_folders_is_held_too() {
    let root = tempfile::tempdir_in("/usr/local");
    if skipped(Need::Root, root.is_ok()) {
        return;
    }
    let root = root.unwrap();
    let path = root.path().canonicalize().unwrap();
    for (name, text) in [("open/a", "open"), ("closed/b", "SECRET"), ("agents/c", "SECRET")] {
        std::fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
        std::fs::write(path.join(name), text).unwrap();
    }
    let fs = FsRules { read: patterns(&["open"]), ..FsRules::default() };
    let dir = Dir::open_ambient_dir(path.join("open"), cap_std::ambient_authority()).unwrap();
    let said = |grant: Grant| {
        let (dir, path) = (&dir, &path);
        async move {
            let http = Client::default();
            let place = ExecContext {
                dir,
                workspace: path,
                listings: &Arc::default(),
                handles: &Handles::default(),
                variables: &Variables::Host,
                http: &http,
            };
            run(&grant, place, LONG, sh("cat a ../closed/b ../agents/c")).await.map(|output| output.stdout)
        }
    };
    match said(with_files(rules(false, false), fs)).await {
        Ok(said) => assert_eq!(said, "open"),
        // Where only rules hold files, that is refused.
        Err(error) => assert!(matches!(&error, Error::Start(why) if why.contains("only namespaces")), "{error:?}"),
    }
    assert_eq!(said(unconfined()).await.unwrap(), "openSECRETSECRET");
}
