//! What a command reaches that is granted some hosts, each with real servers and the real network of the kernel's.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use harness_policy::command::{CommandNetwork, CommandRule, ExecRules};
use harness_policy::network::HostRule;
use harness_testing::skip::{Need, skipped};

use super::tests::{LONG, Workspace, command, granted};
use super::*;
use crate::http::Connector;
use crate::resources::{Amounts, MAX_CONNECTIONS, Resources};
use crate::system::System;

fn rules(network: CommandNetwork, unconfined: bool) -> Grant {
    let allow = ["bash", "perl"].iter().map(|program| CommandRule::parse(program).unwrap()).collect();
    granted(ExecRules { allow, env: Vec::new(), folders: Vec::new(), network, unconfined })
}

/// Granted these hosts; those that begin with `!` at private addresses too.
fn hosts(hosts: &[String]) -> Grant {
    let rule = |text: &String| match text.strip_prefix('!') {
        Some(host) => HostRule::parse(host).unwrap().private(true).unwrap(),
        None => HostRule::parse(text).unwrap(),
    };
    rules(CommandNetwork::hosts(hosts.iter().map(rule).collect()).unwrap(), false)
}

/// Every name ends up here.
fn names() -> Client {
    Client::resolving(|_| vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
}

async fn bash(grant: &Grant, script: &str) -> Output {
    let ran = Workspace::new().run_with(grant, &names(), LONG, command("bash", &["-c", script])).await;
    ran.map(|output| Output { duration_ms: 0, ..output }).unwrap()
}

/// Whether this machine gives commands a network of their own.
fn none_here() -> bool {
    let own = Offers::get().wall().is_ok_and(|wall| wall.network && wall.namespaces.is_some());
    skipped(Need::Namespaces, own)
}

/// A server that answers each connection, after a line came, with `answer`; and what it was sent, up to the end of a head.
fn server(answer: &'static str) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (seen, received) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, seen) = (stream.unwrap(), seen.clone());
            thread::spawn(move || {
                let (mut text, mut byte) = (Vec::new(), [0]);
                while !text.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                    text.push(byte[0]);
                }
                let _ = stream.write_all(answer.as_bytes());
                let _ = seen.send(String::from_utf8(text).unwrap());
            });
        }
    });
    (port, received)
}

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";

/// Asks a place with a head, and prints all that comes back.
fn ask(place: &str, head: &str) -> String {
    format!("exec 3<>/dev/tcp/{place} && printf '{head}\\r\\n\\r\\n' >&3 && cat <&3")
}

#[tokio::test]
async fn a_granted_host_is_reached_by_its_name() {
    if none_here() {
        return;
    }
    let (port, seen) = server(ANSWER);
    let grant = hosts(&[format!("!api.test:{port}")]);
    let output = bash(&grant, &ask(&format!("api.test/{port}"), "plain")).await;
    assert_eq!((output.stdout.as_str(), output.exit_code), (ANSWER, 0), "{output:?}");
    assert_eq!(seen.recv().unwrap(), "plain\r\n\r\n");
}

#[tokio::test]
async fn nothing_else_is_reached() {
    if none_here() {
        return;
    }
    let (port, seen) = server(ANSWER);
    let grant = hosts(&[format!("!api.test:{port}")]);
    // The machine's own services, by address and by name; another name; another port; an address outside; datagrams.
    for place in [
        format!("/dev/tcp/127.0.0.1/{port}"),
        format!("/dev/tcp/localhost/{port}"),
        format!("/dev/tcp/other.test/{port}"),
        "/dev/tcp/api.test/80".to_owned(),
        "/dev/tcp/93.184.216.34/80".to_owned(),
        "/dev/udp/93.184.216.34/53".to_owned(),
        "/dev/tcp/::1/80".to_owned(),
    ] {
        let output = bash(&grant, &format!("exec 3<>{place} && echo x >&3 && echo through")).await;
        assert_eq!(output.stdout, "", "{place}: {output:?}");
        assert!(output.exit_code != 0, "{place}");
    }
    assert!(seen.try_recv().is_err());
    let unix = "use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) or die \"$!\\n\"; print 'open'";
    let ran = Workspace::new().run_with(&grant, &names(), LONG, command("perl", &["-e", unix])).await.unwrap();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", "Permission denied\n"));
}

#[tokio::test]
async fn a_name_that_leads_inside_needs_a_rule_that_says_so() {
    if none_here() {
        return;
    }
    let (port, seen) = server(ANSWER);
    let grant = hosts(&[format!("api.test:{port}")]);
    let output = bash(&grant, &format!("{}; exit 3", ask(&format!("api.test/{port}"), "plain"))).await;
    // What comes before it is the program's own complaint.
    assert_eq!(
        output.stderr.lines().last().unwrap(),
        format!(
            "harness: the host `api.test:{port}` leads to a loopback address, which needs a rule with `private: true`; add \
             `{{ host: \"api.test:{port}\", private: true }}` to `sandbox.exec.network` in `.harness/harness.md`"
        )
    );
    assert!(output.stdout.is_empty() && output.exit_code != 0, "{output:?}");
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn the_proxy_makes_tunnels_to_granted_hosts_alone() {
    if none_here() {
        return;
    }
    let (port, seen) = server(ANSWER);
    let grant = hosts(&[format!("!*.example.test:{port}")]);
    let tunnel = |to: &str| {
        format!(
            "p=${{HTTPS_PROXY#http://}}; exec 3<>/dev/tcp/${{p%:*}}/${{p#*:}}; printf 'CONNECT {to} HTTP/1.1\\r\\nhost: {to}\\r\\n\\r\\n' >&3; \
             read -r line <&3; echo \"$line\"; while read -r head <&3 && [ \"$head\" != $'\\r' ]; do :; done; \
             printf 'through\\r\\n\\r\\n' >&3; cat <&3"
        )
    };
    let output = bash(&grant, &tunnel(&format!("a.example.test:{port}"))).await;
    assert_eq!(output.stdout, format!("HTTP/1.1 200 OK\r\n{ANSWER}"), "{output:?}");
    assert_eq!(seen.recv().unwrap(), "through\r\n\r\n");
    for (to, status, why) in [
        (
            format!("example.test:{port}"),
            "403 Forbidden",
            format!(
                "commands may not connect to `example.test:{port}`; add `\"example.test:{port}\"` to `sandbox.exec.network` \
                 in `.harness/harness.md`"
            ),
        ),
        ("a.example.test".to_owned(), "400 Bad Request", "CONNECT needs a port".to_owned()),
    ] {
        let output = bash(&grant, &tunnel(&to).replace("; cat <&3", "; head -c 9999 <&3")).await;
        assert!(output.stdout.starts_with(&format!("HTTP/1.1 {status}\r\nharness: {why}\n")), "{to}: {output:?}");
    }
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn the_proxy_sends_requests_on_to_granted_hosts_alone() {
    if none_here() {
        return;
    }
    let (port, seen) = server(ANSWER);
    let grant = hosts(&[format!("!api.test:{port}")]);
    let ask = |url: &str| {
        format!(
            "p=${{http_proxy#http://}}; exec 3<>/dev/tcp/${{p%:*}}/${{p#*:}}; printf 'GET {url} HTTP/1.1\\r\\nhost: other.test\\r\\n\
             x-kept: 1\\r\\nx-own: 2\\r\\nproxy-authorization: Basic eA==\\r\\nconnection: close, x-own\\r\\n\\r\\n' >&3; cat <&3"
        )
    };
    let output = bash(&grant, &ask(&format!("http://api.test:{port}/a?b"))).await;
    assert!(output.stdout.starts_with("HTTP/1.1 200 OK\r\n") && output.stdout.ends_with("\r\n\r\nhello"), "{output:?}");
    assert_eq!(seen.recv().unwrap(), format!("GET /a?b HTTP/1.1\r\nhost: api.test:{port}\r\nx-kept: 1\r\n\r\n"));
    for (url, status) in [
        (format!("http://other.test:{port}/"), "403 Forbidden"),
        (format!("http://user@api.test:{port}/"), "400 Bad Request"),
        ("https://api.test/".to_owned(), "400 Bad Request"),
        ("/".to_owned(), "400 Bad Request"),
    ] {
        let output = bash(&grant, &ask(&url)).await;
        assert!(output.stdout.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{url}: {output:?}");
    }
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn the_machine_itself_is_reached_where_a_rule_names_it() {
    if none_here() {
        return;
    }
    let (port, seen) = server(ANSWER);
    for (rule, place) in [(format!("127.0.0.1:{port}"), "127.0.0.1"), (format!("!localhost:{port}"), "localhost")] {
        let output = bash(&hosts(&[rule]), &ask(&format!("{place}/{port}"), "plain")).await;
        assert_eq!(output.stdout, ANSWER, "{place}: {output:?}");
        assert_eq!(seen.recv().unwrap(), "plain\r\n\r\n");
    }
}

#[tokio::test]
async fn connections_end_with_the_command() {
    if none_here() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let grant = hosts(&[format!("!api.test:{port}")]);
    // What holds it open is a process that the command leaves behind.
    let script = format!("exec 3<>/dev/tcp/api.test/{port}; sleep 300 & echo x >&3; read -r line <&3");
    let talk = thread::spawn(move || {
        let (mut stream, mut all) = (listener.accept().unwrap().0, String::new());
        stream.write_all(b"go on\n").unwrap();
        stream.read_to_string(&mut all).map(|_| all)
    });
    assert_eq!(bash(&grant, &script).await.exit_code, 0);
    // Not on this thread: the runtime's own ends the connections.
    let said = tokio::task::spawn_blocking(move || talk.join()).await.unwrap();
    assert_eq!(said.unwrap().unwrap(), "x\n");
}

#[tokio::test]
async fn a_command_has_no_more_than_so_many_connections() {
    if none_here() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let streams: Vec<_> = listener
            .incoming()
            .map(|stream| stream.map(|mut stream| stream.write_all(b"x").map(|()| stream)))
            .collect();
        drop(streams);
    });
    let grant = hosts(&[format!("!api.test:{port}")]);
    // Each that is open was answered with a byte, and each that is not, with an end.
    let script = format!(
        "use IO::Socket::INET; my ($open, $closed) = (0, 0); my @all; for (1..68) {{ \
         my $s = IO::Socket::INET->new(PeerAddr => 'api.test', PeerPort => {port}) or die; push @all, $s; \
         if (sysread($s, my $b, 1)) {{ $open++ }} else {{ $closed++ }} }} print \"$open $closed\""
    );
    let ran = Workspace::new().run_with(&grant, &names(), LONG, command("perl", &["-e", &script])).await.unwrap();
    assert_eq!(ran.stdout, "64 4", "{ran:?}");
    // Of the others, a note is on standard error of a command that fails.
    let script = format!("{script}; exit 1");
    let ran = Workspace::new().run_with(&grant, &names(), LONG, command("perl", &["-e", &script])).await.unwrap();
    assert_eq!(ran.stderr, "harness: the command had 64 connections at one time, which are all\n");
}

#[tokio::test]
async fn where_nothing_holds_a_command_it_does_not_run() {
    let rule = || CommandNetwork::hosts(vec![HostRule::parse("example.com").unwrap()]).unwrap();
    let ran =
        Workspace::new().run_with(&rules(rule(), true), &names(), LONG, command("bash", &["-c", "echo ran"])).await;
    let Err(Error::Start(why)) = ran else { panic!("{ran:?}") };
    assert_eq!(
        why,
        "it cannot be confined: `exec.network` names hosts, and nothing holds a command to them that runs with \
         `exec.unconfined: true`; remove one of the two in `.harness/harness.md`"
    );
}

/// What one command may have is not what all of them may have.
#[tokio::test]
async fn the_commands_of_a_project_and_of_a_host_share_connections() {
    let client = |connector: &Arc<Connector>, connections: u32| {
        let resources = Arc::new(Resources::new(Amounts { connections, ..Amounts::default() }));
        Client::of(connector, &System::default(), &resources).dialer().unwrap()
    };
    let connector = Arc::<Connector>::default();
    let (small, large) = (client(&connector, 2), client(&connector, u32::MAX));
    let held: Vec<_> = (0..2).map(|_| small.place().unwrap()).collect();
    let why = small.place().unwrap_err();
    assert_eq!(
        why,
        "busy: the project's commands have 2 connections (`connections`, set by the project's quota); retry later"
    );
    let others: Vec<_> = (0..MAX_CONNECTIONS - 2).map(|_| large.place().unwrap()).collect();
    assert_eq!(large.place().unwrap_err(), "busy: the commands of the host have 512 connections; retry later");
    drop(held);
    assert!(small.place().is_ok() && large.place().is_ok());
    drop(others);
    // By default no project has all of them.
    let plain = Client::of(&connector, &System::default(), &Arc::default()).dialer().unwrap();
    let all = std::iter::from_fn(|| plain.place().ok()).collect::<Vec<_>>();
    assert_eq!(all.len(), 128);
}

/// A server takes a place among the commands of its project, for as long as it runs.
#[tokio::test]
async fn what_serves_counts_among_the_commands_of_a_project() {
    let workspace = Workspace::new();
    let grant = rules(CommandNetwork::None, false);
    let resources = Resources::new(Amounts { commands: 1, ..Amounts::default() });
    let start = || workspace.serve(&grant, &resources, command("bash", &["-c", "read -r line"]));
    let first = start().await.unwrap();
    let Err(Error::Start(why)) = start().await else { panic!("two at one time") };
    assert!(why.starts_with("busy: the command waited") && why.contains("`commands`"), "{why}");
    first.running.finish().await;
    assert!(start().await.is_ok());
}
