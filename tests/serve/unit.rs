//! The unit of systemd that packages have.

use std::process::{Command, Stdio};

use crate::project::HARNESS;

fn unit() -> String {
    file("harness-serve.service")
}

fn file(name: &str) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::read_to_string(root.join("release").join(name)).unwrap()
}

/// The values of a setting, in order.
fn values<'u>(unit: &'u str, name: &str) -> Vec<&'u str> {
    unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

#[test]
fn what_the_unit_starts_is_a_server() {
    let unit = unit();
    let [start] = values(&unit, "ExecStart")[..] else { panic!("{unit}") };
    let mut words = start.split(' ');
    assert_eq!(words.next(), Some("/usr/bin/harness"));
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("harness").to_str().unwrap().to_owned();
    let [state] = values(&unit, "StateDirectory")[..] else { panic!("{unit}") };
    let words: Vec<String> =
        words.map(|word| word.replace(&format!("/var/lib/{state}"), &data).replace(":8080", ":0")).collect();
    assert!(words.contains(&data), "{words:?}");
    let mut command = Command::new(HARNESS);
    command.args(&words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut url = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut url).unwrap();
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    let code = child.wait().unwrap().code().unwrap().to_string();
    // What is an end in order to systemd.
    assert_eq!(values(&unit, "SuccessExitStatus"), [code.as_str()]);
}

/// Commands of tenants need namespaces and a `/proc` without masks, and the server makes their control groups.
#[test]
fn nothing_in_the_unit_takes_away_what_walls_need() {
    let unit = unit();
    assert_eq!(values(&unit, "Delegate"), ["yes"]);
    for name in [
        "RestrictNamespaces",
        "ProtectProc",
        "ProcSubset",
        "ProtectKernelTunables",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "MemoryDenyWriteExecute",
        "SystemCallFilter",
        "PrivateUsers",
    ] {
        assert_eq!(values(&unit, name), Vec::<&str>::new(), "{name}");
    }
}

/// What the server says to its manager and takes of it is tested where it is started with a socket (`handover`).
#[test]
fn the_socket_is_where_the_server_listens_without_it() {
    let (unit, socket) = (unit(), file("harness-serve.socket"));
    let [start] = values(&unit, "ExecStart")[..] else { panic!("{unit}") };
    let [address] = values(&socket, "ListenStream")[..] else { panic!("{socket}") };
    assert!(start.ends_with(&format!(" --listen {address}")), "{start} {address}");
    assert_eq!(values(&unit, "Type"), ["notify"]);
}
