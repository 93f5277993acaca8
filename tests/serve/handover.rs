//! A service manager in front of a server: the socket that it gives, and what it hears.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::project::{FINE, HARNESS, Project};
use crate::site::Site;
use crate::web::{exchange, request};

/// A tool that says that it has begun, and ends when there is another file.
const WAITS: &str = "def run(args):\n    fs.write(\"begun\", \"\")\n    for _ in range(1 << 30):\n        if fs.exists(\"go\"):\n            return \"gone\"\n";
/// Restarts while clients call.
const RESTARTS: usize = 4;
const CLIENTS: usize = 4;

/// A server with this socket at descriptor 3, as a service manager starts it. `of` is the process that the socket is said
/// to be for, `count` how many there are said to be.
fn command(folder: &Path, socket: impl Into<OwnedFd>, (of, count): (&str, usize), more: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let line = format!("LISTEN_PID={of} LISTEN_FDS={count} exec \"$0\" \"$@\" 3<&0 4<&0 </dev/null");
    command.args(["-c", &line, HARNESS, "serve", "--data", "data", "--listen", "127.0.0.1:0"]).args(more);
    command.current_dir(folder).stdin(Stdio::from(socket.into())).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a server hears and says whose start fails.
fn refused(socket: impl Into<OwnedFd>, count: usize, more: &[&str]) -> (i32, String) {
    let folder = TempDir::new().unwrap();
    let ended = command(folder.path(), socket, ("$$", count), more).output().unwrap();
    assert_eq!(String::from_utf8(ended.stdout).unwrap(), "");
    (ended.status.code().unwrap(), String::from_utf8(ended.stderr).unwrap())
}

/// What the manager hears next.
fn heard(manager: &UnixDatagram) -> String {
    let mut bytes = [0; 200];
    let length = manager.recv(&mut bytes).unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

/// A call on a connection of its own.
fn call(address: SocketAddr, key: &str, tool: &str) -> (u16, String) {
    let bearer = format!("Bearer {key}");
    let request = request(&format!("POST /v1/tools/{tool}/calls"), &[("Authorization", &bearer)], "{}");
    let reply = exchange(&mut TcpStream::connect(address).unwrap(), &request);
    (reply.status, reply.body)
}

#[test]
fn no_request_is_lost_while_servers_take_turns() {
    let folder = Arc::new(TempDir::new().unwrap());
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let manager = UnixDatagram::bind(folder.path().join("manager")).unwrap();
    let start = || {
        let mut command = command(folder.path(), socket.try_clone().unwrap(), ("$$", 1), &[]);
        command.env("NOTIFY_SOCKET", folder.path().join("manager"));
        let site = Site::of(&mut command, folder.clone());
        assert_eq!(heard(&manager), "READY=1\nSTATUS=serving");
        assert_eq!(site.address(), address.to_string());
        site
    };
    let mut site = start();
    let tools =
        Project::with_script(FINE).tool("waits", "timeout_ms: 600000\nlimits: { fuel: 100000000000000 }\n", WAITS);
    let acme = site.tenant("acme", &tools);
    let [begun, go] = ["begun", "go"].map(|name| site.data().join("tenants/acme/workspace").join(name));
    let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    while !stop.load(Ordering::SeqCst) {
                        let (status, body) = call(address, &acme.key, "it");
                        assert_eq!(status, 200, "{body}");
                        assert!(body.contains(r#""result":"fine""#), "{body}");
                        made.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        for _ in 0..RESTARTS {
            // One that is under way when the server is asked to end, and ends after that.
            let mut long = site.stream(&acme.key, "POST /v1/tools/waits/calls", "", "{}");
            while std::fs::remove_file(&begun).is_err() {
                std::thread::yield_now();
            }
            site.signal(Signal::TERM);
            assert_eq!(heard(&manager), "STOPPING=1\nSTATUS=answering what was asked");
            std::fs::write(&go, "").unwrap();
            let mut answer = String::new();
            long.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.0 200") && answer.contains(r#""result":"gone""#), "{answer}");
            let (code, err) = site.end();
            assert!(code == Some(143) && !err.contains("error"), "{code:?} {err}");
            std::fs::remove_file(&go).unwrap();
            site = start();
        }
        stop.store(true, Ordering::SeqCst);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    // Each has exactly one entry in the record.
    let audit = site.get(&acme.key, "/v1/audit").body;
    let count = |tool: &str| audit.lines().filter(|line| line.contains(&format!("\"tool\":\"{tool}\""))).count();
    assert_eq!((count("it"), count("waits")), (made.load(Ordering::SeqCst), RESTARTS));
}

#[test]
fn a_socket_that_is_not_one_for_tenants_is_refused() {
    let folder = Arc::new(TempDir::new().unwrap());
    let local = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, err) = refused(UdpSocket::bind("127.0.0.1:0").unwrap(), 1, &[]);
    let start = "error: the socket that the service manager gives is not a listening TCP socket: ";
    assert!(code == 2 && err.starts_with(start), "{code} {err}");
    let two = (2, "error: the service manager gives 2 sockets, and the server takes one\n".to_owned());
    assert_eq!(refused(local(), 2, &[]), two);
    let open = TcpListener::bind("0.0.0.0:0").unwrap();
    let at = open.local_addr().unwrap();
    let (code, err) = refused(open.try_clone().unwrap(), 1, &[]);
    let why = format!("error: cannot listen at `{at}`: it is not a loopback address\n");
    assert!(code == 2 && err.starts_with(&why) && err.contains("`--behind-proxy`"), "{code} {err}");
    // The same socket with what it needs, and one that is for another process.
    let site = Site::of(&mut command(folder.path(), open, ("$$", 1), &["--behind-proxy"]), folder.clone());
    assert_eq!(site.address(), at.to_string());
    drop(site);
    let socket = local();
    let other = socket.local_addr().unwrap().to_string();
    let site = Site::of(&mut command(folder.path(), socket, ("1", 1), &[]), folder.clone());
    assert_ne!(site.address(), other);
    assert_eq!(site.get("", "/healthz").status, 200);
}

#[test]
fn a_manager_that_is_not_there_is_said() {
    let folder = TempDir::new().unwrap();
    let mut command = command(folder.path(), TcpListener::bind("127.0.0.1:0").unwrap(), ("$$", 1), &[]);
    let ended = command.env("NOTIFY_SOCKET", folder.path().join("none")).output().unwrap();
    let place = folder.path().join("none");
    let why = format!(
        "error: the service manager cannot be reached at `{}`: No such file or directory (os error 2)\n",
        place.display()
    );
    assert_eq!((ended.status.code(), String::from_utf8(ended.stderr).unwrap()), (Some(2), why));
}
