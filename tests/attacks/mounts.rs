//! Folders that someone has mounted in the workspace: what a link does without being one.

use std::fs;
use std::path::Path;
use std::process::Command;

use harness_capability::fs::{Error, Workspace};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::corpus::Coded;
use crate::guests::grant;
use crate::process::CANARY;
use crate::world::{Servers, World};

pub(crate) const CASES: &[Coded] = &[Coded {
    id: "links-107",
    tried: "goes through a folder that is mounted in the workspace to what is not",
    run: |_, servers| beside(servers, |workspace| through(workspace)),
    // What is mounted there is in the workspace, by the name that it has there.
    control: |_, servers| {
        beside(servers, |workspace| {
            let open = grant("");
            let read = workspace.read(&open, "mounted/open.txt").map_err(|error| format!("{error:?}"))?;
            workspace.write(&open, "mounted/new.txt", "new").map_err(|error| format!("{error:?}"))?;
            let listed = workspace.list(&open, "mounted").map_err(|error| format!("{error:?}"))?;
            if (read.as_str(), listed.join(" ").as_str()) != ("open", "new.txt open.txt up way") {
                return Err(format!("{read:?} {listed:?}"));
            }
            Ok("read".to_owned())
        })
    },
}];

/// A workspace in which a folder from elsewhere is mounted, as `mounted`, for as long as this takes. The mount is there
/// for one thread alone, and goes with it.
fn beside(servers: &Servers, work: fn(&Workspace) -> Result<String, String>) -> Result<String, String> {
    let mut world = World::new(servers);
    let elsewhere = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = elsewhere.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("shown/open.txt", "open");
    put("shown/.env", CANARY);
    put("secret.txt", CANARY);
    for (name, target) in [("up", "../secret.txt"), ("way", "../../outside/canary.txt")] {
        std::os::unix::fs::symlink(target, elsewhere.path().join("shown").join(name)).unwrap();
    }
    world.add(&["folder".to_owned(), "mounted".to_owned()]);
    world.seal();
    let (from, to) = (elsewhere.path().join("shown"), world.work().join("mounted"));
    let told = std::thread::scope(|scope| {
        let there = scope.spawn(|| match mounted(&from, &to) {
            Ok(()) => work(&Workspace::open(&world.work()).unwrap()),
            Err(why) => as_root_of_a_namespace().unwrap_or_else(|| {
                println!("    links-107 was NOT tried: nothing can be mounted here ({why})");
                Ok("not tried".to_owned())
            }),
        });
        there.join().unwrap()
    })?;
    let broken = world.broken();
    let kept = fs::read_to_string(elsewhere.path().join("secret.txt")).unwrap() == CANARY;
    if broken.is_empty() && kept { Ok(told) } else { Err(broken.join("; ")) }
}

#[expect(unsafe_code, reason = "mounts that only this thread sees")]
fn mounted(from: &Path, to: &Path) -> Result<(), Errno> {
    // SAFETY: of what this thread shares with others, it only stops sharing its mounts and its current folder.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount_bind(from, to)
}

/// How the whole case ends for this user as the root of a user namespace, which a process with threads cannot enter; nothing
/// where none can be made, or nothing can be mounted in it.
fn as_root_of_a_namespace() -> Option<Result<String, String>> {
    const INSIDE: &str = "HARNESS_ATTACKS_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return None;
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount"]).arg(std::env::current_exe().ok()?);
    let ran = unshare.arg("links-107").env(INSIDE, "yes").output().ok()?;
    let told = String::from_utf8_lossy(&ran.stdout).into_owned();
    let tried = told.contains("\nlinks-107 ") && !told.contains("NOT tried");
    tried.then(|| if ran.status.success() { Ok("denied".to_owned()) } else { Err(told) })
}

fn through(workspace: &Workspace) -> Result<String, String> {
    let open = grant("");
    // Names are protected there as everywhere, and the way up leads to where it is mounted and not to where it comes from.
    for path in
        ["mounted/.env", "mounted/../../outside/canary.txt", "mounted/../../secret.txt", "mounted/up", "mounted/way"]
    {
        let cached = workspace.read_cached(&open, path).map(Ok);
        for told in cached.into_iter().chain([workspace.read(&open, path)]) {
            match told {
                Err(Error::AccessDenied(_) | Error::NotFound(_)) => {}
                other => return Err(format!("{path}: {other:?}")),
            }
        }
    }
    // A grant of something else is none of what is mounted.
    match workspace.read(&grant("sandbox: { fs: { read: [src] } }"), "mounted/open.txt") {
        Err(Error::AccessDenied(_)) => {}
        other => return Err(format!("without a grant: {other:?}")),
    }
    match workspace.read(&open, "mounted/../inside.txt").as_deref() {
        Ok("inside") => {}
        other => return Err(format!("the way up: {other:?}")),
    }
    // A mount is neither removed nor moved by whoever works in it.
    for done in [workspace.remove(&open, "mounted"), workspace.rename(&open, "mounted", "moved")] {
        if done.is_ok() {
            return Err(format!("the mount itself: {done:?}"));
        }
    }
    Ok("denied".to_owned())
}
