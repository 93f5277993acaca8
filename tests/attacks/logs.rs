//! What someone tries who wants calls to be missing from the audit log, or the log to stop calls.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use harness_audit::{AuditWriter, FOLDER, verify};
use harness_dispatch::{Project, Run};
use rustix::fs::{FlockOperation, flock};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::corpus::Coded;
use crate::races::project;
use crate::world::{Servers, World};

pub(crate) const CASES: &[Coded] = &[
    Coded {
        id: "resources-101",
        tried: "holds the lock of the audit log, to stop all calls for good",
        run: |runtime, servers| locked(runtime, servers, Some(FlockOperation::LockExclusive)),
        control: |runtime, servers| locked(runtime, servers, None),
    },
    Coded {
        id: "resources-102",
        tried: "holds the lock of the audit log as those do who read it, to stop all calls for good",
        run: |runtime, servers| locked(runtime, servers, Some(FlockOperation::LockShared)),
        control: |runtime, servers| locked(runtime, servers, None),
    },
    Coded {
        id: "resources-103",
        tried: "takes the lock while a call runs, so that its result is handed out without an entry",
        run: |runtime, servers| locked_meanwhile(runtime, servers, true),
        control: |runtime, servers| locked_meanwhile(runtime, servers, false),
    },
    Coded {
        id: "resources-104",
        tried: "locks and floods the audit log of one project, to stop the calls of another",
        run: |_, servers| flooded(servers, true),
        control: |_, servers| flooded(servers, false),
    },
    Coded {
        id: "resources-105",
        tried: "puts another file, a link, a pipe or nothing in the place of the log while calls are made",
        run: |runtime, servers| replaced(runtime, servers, true),
        control: |runtime, servers| replaced(runtime, servers, false),
    },
    Coded {
        id: "resources-106",
        tried: "puts the log back to what it was some calls before",
        run: |runtime, servers| put_back(runtime, servers, true),
        control: |runtime, servers| put_back(runtime, servers, false),
    },
    Coded {
        id: "resources-107",
        tried: "verifies the audit log without pause, to hold up calls",
        run: |runtime, servers| verified(runtime, servers, true),
        control: |runtime, servers| verified(runtime, servers, false),
    },
];

/// The time that a call has, in milliseconds: much for what it does, on a busy machine too.
const TIME: u64 = 2_500;
const POLICY: &str = "sandbox: { audit: true, limits: { timeout_ms: 2500 } }";
const SCRIPT: &str = "def run(args):\n    return 1\n";
/// What a call says that cannot be recorded in time.
const WAITED: &str = "nothing could be recorded in `.harness/audit` for 2500 ms: another process holds the lock of \
                      `.harness/audit/head`; end that process (`fuser .harness/audit/head` finds it)";

fn open(servers: &Servers, script: &str) -> (World, Project) {
    opened(servers, POLICY, script)
}

fn opened(servers: &Servers, policy: &str, script: &str) -> (World, Project) {
    let world = World::new(servers);
    let project = project(&world, policy, script);
    // What a world has there is no log.
    fs::remove_dir_all(world.work().join(FOLDER)).unwrap();
    (world, project)
}

/// The result of a call, or why there is none.
fn call(runtime: &Runtime, project: &Project) -> Result<String, String> {
    let report = runtime.block_on(project.call("it", json!({}), &Run::new())).map_err(|error| error.to_string())?;
    if report.is_error { Err(report.content) } else { Ok(report.content) }
}

fn same<T: PartialEq + std::fmt::Debug>(found: T, wanted: T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{found:?} and not {wanted:?}")) }
}

fn lines(world: &World) -> Result<u64, String> {
    verify(&world.work().join(FOLDER)).map(|summary| summary.lines).map_err(|broken| broken.to_string())
}

fn locked(runtime: &Runtime, servers: &Servers, operation: Option<FlockOperation>) -> Result<String, String> {
    let (world, project) = open(servers, SCRIPT);
    same(call(runtime, &project), Ok("1".to_owned()))?;
    let lock = File::open(world.work().join(FOLDER).join("head")).unwrap();
    if let Some(operation) = operation {
        flock(&lock, operation).unwrap();
        // The first call finds out when it is over; those after it are not made.
        let withheld = format!("what ran is not in the audit log yet, so its result is withheld: {WAITED}");
        for why in [&withheld, WAITED, WAITED] {
            let begun = Instant::now();
            same(call(runtime, &project), Err(why.to_owned()))?;
            // That it ends at all is what the case is about; the text says after what time.
            if begun.elapsed() < Duration::from_millis(TIME) {
                return Err("it did not wait for its time".to_owned());
            }
        }
        drop(lock);
    }
    // When the lock is free again, so is the project.
    let mut called = call(runtime, &project);
    while called == Err(WAITED.to_owned()) {
        called = call(runtime, &project);
    }
    same(called, Ok("1".to_owned()))?;
    same(call(runtime, &project), Ok("1".to_owned()))?;
    same(project.audited(), Ok(()))?;
    // The one that was withheld is there too.
    same(lines(&world), Ok(if operation.is_some() { 4 } else { 3 }))?;
    Ok("written later".to_owned())
}

fn locked_meanwhile(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    let (world, project) = open(servers, "def run(args):\n    fs.write('ran', 'x')\n    sleep(150)\n    return 1\n");
    same(call(runtime, &project), Ok("1".to_owned()))?;
    let ran = world.work().join("ran");
    fs::remove_file(&ran).unwrap();
    let head = world.work().join(FOLDER).join("head");
    let ended = std::thread::scope(|scope| {
        let locks = scope.spawn(|| {
            while !ran.exists() {
                std::thread::yield_now();
            }
            let lock = File::open(&head).unwrap();
            if attack {
                flock(&lock, FlockOperation::LockExclusive).unwrap();
            }
            lock
        });
        (call(runtime, &project), locks.join().unwrap())
    });
    let (called, lock) = ended;
    if attack {
        let why = format!("what ran is not in the audit log yet, so its result is withheld: {WAITED}");
        same(called, Err(why))?;
        // The entry is not lost: it is written when the lock is free.
        same(lines_of(&head), 1)?;
    } else {
        same(called, Ok("1".to_owned()))?;
    }
    drop(lock);
    same(project.audited(), Ok(()))?;
    same(lines(&world), Ok(2))?;
    Ok("2 lines".to_owned())
}

fn lines_of(head: &std::path::Path) -> usize {
    fs::read_to_string(head.with_file_name("000001.jsonl")).unwrap().lines().count()
}

fn flooded(servers: &Servers, attack: bool) -> Result<String, String> {
    let world = World::new(servers);
    let writer = AuditWriter::new();
    let [flooded, other] = ["flooded", "other"].map(|name| writer.log(&world.work().join(name)));
    let append = |log: &harness_audit::Log| {
        log.ready().block().map_err(|error| error.to_string())?;
        log.append(log.entry().unwrap()).block().map_err(|error| error.to_string())
    };
    append(&flooded)?;
    let lock = File::open(flooded.folder().join("head")).unwrap();
    if attack {
        flock(&lock, FlockOperation::LockExclusive).unwrap();
    }
    for _ in 0..20_000 {
        flooded.leave(flooded.entry().unwrap());
    }
    for _ in 0..100 {
        append(&other)?;
    }
    drop(lock);
    // The flood is written too, all of it.
    flooded.settle(Instant::now() + Duration::from_secs(60));
    let lines = [&flooded, &other].map(|log| verify(log.folder()).map(|summary| summary.lines));
    same(lines, [Ok(20_001), Ok(100)])?;
    Ok("100 beside 20,000".to_owned())
}

fn replaced(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    type Replace = fn(&PathBuf);
    let pipe: Replace = |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let link: Replace = |path| std::os::unix::fs::symlink("key", path).unwrap();
    let other: Replace = |path| fs::write(path, "other").unwrap();
    let nothing: Replace = |_| {};
    let (world, project) = open(servers, SCRIPT);
    same(call(runtime, &project), Ok("1".to_owned()))?;
    same(call(runtime, &project), Ok("1".to_owned()))?;
    let mut lines_before = 2;
    for file in ["head", "000001.jsonl"] {
        for replace in [pipe, link, other, nothing] {
            let path = world.work().join(FOLDER).join(file);
            let moved = world.work().join("moved");
            if attack {
                fs::rename(&path, &moved).unwrap();
                replace(&path);
                let Err(why) = call(runtime, &project) else { return Err(format!("a call was made without {file}")) };
                if !why.starts_with("nothing can be recorded in `.harness/audit`: ") {
                    return Err(why);
                }
                let _ = fs::remove_file(&path);
                fs::rename(&moved, &path).unwrap();
            }
            same(call(runtime, &project), Ok("1".to_owned()))?;
            lines_before += 1;
            same(lines(&world), Ok(lines_before))?;
        }
    }
    Ok(format!("{lines_before} lines"))
}

fn put_back(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    let (world, project) = open(servers, SCRIPT);
    same(call(runtime, &project), Ok("1".to_owned()))?;
    let files = ["head", "000001.jsonl"].map(|file| world.work().join(FOLDER).join(file));
    let before = files.each_ref().map(|file| fs::read(file).unwrap());
    same(call(runtime, &project), Ok("1".to_owned()))?;
    if attack {
        files.iter().zip(before).for_each(|(file, text)| fs::write(file, text).unwrap());
        let Err(why) = call(runtime, &project) else {
            return Err("a call was made on a log that goes back".to_owned());
        };
        let told =
            "nothing can be recorded in `.harness/audit`: `head` ends the audit log at line 1, and line 2 was there; ";
        return if why.starts_with(told) { Ok("noticed".to_owned()) } else { Err(why) };
    }
    same(call(runtime, &project), Ok("1".to_owned()))?;
    lines(&world).map(|lines| format!("{lines} lines"))
}

/// No bound in time: that every call gets through while readers never stop is what counts.
fn verified(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    const CALLS: u64 = 200;
    let policy = "sandbox: { audit: true, limits: { timeout_ms: 60000 } }";
    let (world, project) = opened(servers, policy, SCRIPT);
    same(call(runtime, &project), Ok("1".to_owned()))?;
    let over = std::sync::atomic::AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        let reads = || {
            let mut reads = 0;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                lines(&world)?;
                reads += 1;
            }
            Ok::<u64, String>(reads)
        };
        let readers: Vec<_> = (0..if attack { 4 } else { 0 }).map(|_| scope.spawn(reads)).collect();
        let called: Result<Vec<()>, String> =
            (0..CALLS).map(|_| same(call(runtime, &project), Ok("1".to_owned()))).collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        let reads: Result<Vec<u64>, String> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        called.and(reads)
    })?;
    same(lines(&world), Ok(CALLS + 1))?;
    Ok(format!("{CALLS} calls beside {} reads", reads.iter().sum::<u64>()))
}
