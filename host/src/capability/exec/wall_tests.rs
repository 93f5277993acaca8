//! What the wall around a child stops, each beside the same child without it.

use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};

use super::tests::{command, granted, ran, sh};
use super::*;
use crate::policy::command::{CommandRule, ExecRules};

const PROGRAMS: [&str; 4] = ["sh", "bash", "perl", "unshare"];

fn rules(network: bool, unconfined: bool) -> ExecRules {
    let allow = PROGRAMS.iter().map(|program| CommandRule::parse(program).unwrap()).collect();
    ExecRules { allow, env: Vec::new(), network, unconfined }
}

fn confined() -> Grant {
    granted(rules(false, false))
}

fn with_network() -> Grant {
    granted(rules(true, false))
}

fn unconfined() -> Grant {
    granted(rules(false, true))
}

/// What it printed, the last line of its complaint, and its code.
async fn told(grant: &Grant, command: Command) -> (String, String, i32) {
    let output = ran(grant, command).await.unwrap();
    let complaint = output.stderr.lines().last().unwrap_or_default().to_owned();
    (output.stdout, complaint, output.exit_code)
}

#[tokio::test]
async fn there_is_no_network_unless_it_is_granted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let talk = || command("bash", &["-c", &format!("exec 3<>/dev/tcp/127.0.0.1/{port} && printf hello >&3")]);
    let (_, complaint, code) = told(&confined(), talk()).await;
    assert!(code != 0 && complaint.ends_with("Permission denied"), "{complaint}");
    for grant in [with_network(), unconfined()] {
        assert_eq!(told(&grant, talk()).await, (String::new(), String::new(), 0));
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
    let (_, complaint, code) = told(&confined(), send()).await;
    assert!(code != 0 && complaint.ends_with("Permission denied"), "{complaint}");
    assert_eq!(told(&with_network(), send()).await.2, 0);
    let mut heard = [0; 16];
    assert_eq!(socket.recv(&mut heard).unwrap(), 5);

    let unix =
        || command("perl", &["-MSocket", "-e", "socket(S, AF_UNIX, SOCK_STREAM, 0) or die \"$!\\n\"; print 'open'"]);
    assert_eq!(told(&confined(), unix()).await, (String::new(), "Permission denied".to_owned(), 13));
    assert_eq!(told(&with_network(), unix()).await.0, "open");
}

/// A pair of datagram sockets could be pointed at any other; a pair of streams is only for the two.
#[tokio::test]
async fn pairs_of_sockets_lead_nowhere() {
    let pair = |kind: &str| {
        let script = format!("socketpair(A, B, AF_UNIX, {kind}, 0) or die \"$!\\n\"; print 'open'");
        command("perl", &["-MSocket", "-e", &script])
    };
    assert_eq!(told(&confined(), pair("SOCK_DGRAM")).await.1, "Permission denied");
    assert_eq!(told(&confined(), pair("SOCK_RAW")).await.1, "Permission denied");
    assert_eq!(told(&with_network(), pair("SOCK_DGRAM")).await.0, "open");
    assert_eq!(told(&confined(), pair("SOCK_STREAM")).await.0, "open");
}

#[tokio::test]
async fn it_gains_no_privileges_and_leaves_no_core() {
    let status = || sh("grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'; ulimit -c");
    assert_eq!(told(&confined(), status()).await.0, "NoNewPrivs:1\nSeccomp:2\n0\n");
    assert_eq!(told(&with_network(), status()).await.0, "NoNewPrivs:1\nSeccomp:2\n0\n");
    let free = told(&unconfined(), status()).await.0;
    assert!(
        !free.contains("Seccomp:2") || std::fs::read_to_string("/proc/self/status").unwrap().contains("Seccomp:\t2")
    );
}

#[tokio::test]
async fn it_types_on_no_terminal() {
    // There is none: the system says so where the wall does not stand before it.
    let typing = || command("perl", &["-e", "my $x = 'x'; ioctl(STDIN, 0x5412, $x) or die \"$!\\n\""]);
    assert_eq!(told(&confined(), typing()).await.1, "Operation not permitted");
    assert_eq!(told(&unconfined(), typing()).await.1, "Inappropriate ioctl for device");
}

#[tokio::test]
async fn it_reaches_into_no_other_process_and_makes_no_namespace() {
    // ptrace(PTRACE_TRACEME), which any process may ask for itself; on x86-64 and on ARM.
    let number = if cfg!(target_arch = "x86_64") { 101 } else { 117 };
    let trace =
        || command("perl", &["-e", &format!("syscall({number}, 0, 0, 0, 0) == 0 or die \"$!\\n\"; print 'traced'")]);
    assert_eq!(told(&confined(), trace()).await.1, "Operation not permitted");
    assert_eq!(told(&unconfined(), trace()).await.0, "traced");
    let namespace = || command("unshare", &["--ipc", "true"]);
    let (_, complaint, code) = told(&with_network(), namespace()).await;
    assert!(code != 0 && complaint.ends_with("Operation not permitted"), "{complaint}");
    if rustix::process::geteuid().is_root() {
        assert_eq!(told(&unconfined(), namespace()).await, (String::new(), String::new(), 0));
    }
}

/// What ordinary programs do goes on: pipes, jobs, threads.
#[tokio::test]
async fn ordinary_work_is_not_in_its_way() {
    let work = sh("(seq 1000 | sort -rn --parallel=4 | head -n 1) & wait; echo done");
    assert_eq!(told(&confined(), work).await, ("1000\ndone\n".to_owned(), String::new(), 0));
}
