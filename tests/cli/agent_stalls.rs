//! A service that says nothing for a while, in each wire format: a person reads of it within seconds, and the turn continues
//! once the service does.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::agent_services::project;
use crate::project::Ran;
use crate::services::{KEY, Service, WIRES, Wire};

/// Runs a turn whose reply stops before one of two pieces, and continues once the report of that is printed.
fn stalled(wire: Wire, name: &str, before: usize) -> Ran {
    let mut answer = wire.reply(true, "Port 8080.", &[]);
    let whole = answer.pieces.concat();
    let middle = whole.len() / 2;
    answer.pieces = vec![whole[..middle].to_vec(), whole[middle..].to_vec()];
    let (answer, resume) = answer.stalling(before);
    let service = Service::new(vec![answer]);
    let project = project(name, &service, "");
    let started = Instant::now();
    let mut command = project.command(&["run", "What port?"]);
    let child = command.env("HARNESS_TEST_KEY", KEY).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    let mut printed = BufReader::new(child.stderr.take().unwrap());
    let mut err = String::new();
    while !err.contains("silent") && printed.read_line(&mut err).unwrap() > 0 {}
    assert!(started.elapsed() >= Duration::from_secs(10), "{err}");
    resume();
    printed.read_to_string(&mut err).unwrap();
    let ended = child.wait_with_output().unwrap();
    Ran { code: ended.status.code().unwrap(), out: String::from_utf8(ended.stdout).unwrap(), err }
}

#[test]
fn silence_is_reported_and_waited_for() {
    thread::scope(|scope| {
        // Before the head of an answer, and in the middle of a reply.
        for before in [0, 1] {
            for (wire, name) in WIRES {
                scope.spawn(move || {
                    let ran = stalled(wire, name, before);
                    let said = "the model's service is silent for 10 s; still waiting\n";
                    let seen = (ran.code, ran.out.as_str(), ran.err.as_str());
                    assert_eq!(seen, (0, "Port 8080.\n", said), "{name}, before piece {before}");
                });
            }
        }
    });
}
