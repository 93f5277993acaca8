//! The host is killed in the middle of what it does to files: what it makes is whole or not there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::project::Project;

/// Bytes of a file: long enough to be caught in the middle.
const LENGTH: usize = 15 << 20;
/// Stages of the work at which it is tried.
const PARTS: u64 = 4;
/// Kills in the middle that are wanted, and tries to get them.
const KILLS: usize = 12;
const TRIES: usize = 200;

const SCRIPT: &str = "def run(args):
    if args['what'] == 'write':
        fs.write('out/file', 'n' * int(args['length']))
    elif args['what'] == 'append':
        fs.append('out/file', 'n' * int(args['length']))
    elif args['what'] == 'file':
        fs.copy('from/0', 'out/file')
    else:
        fs.copy('from', 'out/folder')
";

/// What a host that was killed has left beside the place.
fn unfinished(project: &Project) -> Option<PathBuf> {
    let mut paths = fs::read_dir(project.path("out")).unwrap().map(|entry| entry.unwrap().path());
    paths.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(".harness-tmp-"))
}

/// What grows may have gone away in the meantime.
fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn growing(project: &Project) -> u64 {
    unfinished(project).map_or(0, |path| length(&path))
}

/// Calls the tool and kills the host when so many bytes were written: a few, then more, at last all, as `progress`
/// reports what is not finished; and again, until that was [`KILLS`] times before the end. After each, `whole` looks at
/// what is there, and at last the same call succeeds.
fn killed(what: &str, prepare: impl Fn(&Project), progress: impl Fn(&Project) -> u64, whole: impl Fn(&Project)) {
    let project = Project::with_script(SCRIPT);
    fs::create_dir_all(project.path("out")).unwrap();
    fs::create_dir_all(project.path("from")).unwrap();
    for name in 0..4 {
        fs::write(project.path(&format!("from/{name}")), "n".repeat(LENGTH)).unwrap();
    }
    let arguments = ["call", "it", &format!("what={what}"), &format!("length={LENGTH}")];
    let mut kills = 0;
    for part in (0..=PARTS).cycle().take(TRIES) {
        let wanted = (LENGTH as u64 * part / PARTS).max(1);
        prepare(&project);
        let mut host = project.command(&arguments).stdout(Stdio::null()).spawn().unwrap();
        while progress(&project) < wanted && host.try_wait().unwrap().is_none() {}
        host.kill().unwrap();
        host.wait().unwrap();
        whole(&project);
        kills += usize::from(progress(&project) > 0);
        if kills == KILLS {
            break;
        }
    }
    assert_eq!(kills, KILLS, "it was not caught in the middle");
    prepare(&project);
    project.run(&arguments).gives("null");
    whole(&project);
}

/// Leaves in `out/` the old file and nothing else.
fn old_file(project: &Project) {
    fs::remove_dir_all(project.path("out")).unwrap();
    fs::create_dir(project.path("out")).unwrap();
    fs::write(project.path("out/file"), "old").unwrap();
}

#[test]
fn a_file_that_is_written_is_the_old_one_or_the_new() {
    killed("write", old_file, growing, |project| {
        let content = fs::read(project.path("out/file")).unwrap();
        assert!(content == b"old" || content == vec![b'n'; LENGTH], "{} bytes are there", content.len());
    });
}

#[test]
fn a_file_that_is_copied_is_whole_or_not_there() {
    let nothing = |project: &Project| {
        old_file(project);
        fs::remove_file(project.path("out/file")).unwrap();
    };
    killed("file", nothing, growing, |project| {
        let path = project.path("out/file");
        assert!(!path.exists() || length(&path) == LENGTH as u64, "{} bytes are there", length(&path));
    });
}

#[test]
fn a_folder_that_is_copied_is_whole_or_not_there() {
    let growing = |project: &Project| unfinished(project).map_or(0, |folder| length(&folder.join("2")));
    killed("folder", old_file, growing, |project| {
        let folder = project.path("out/folder");
        let whole = |name: u32| length(&folder.join(name.to_string())) == LENGTH as u64;
        assert!(!folder.exists() || (0..4).all(whole));
        assert_eq!(fs::read_to_string(project.path("out/file")).unwrap(), "old");
    });
}

/// To a file that is there is added in place, so that several may add to one: what was there stays, and of what is added
/// the beginning is there.
#[test]
fn a_file_that_is_added_to_keeps_what_it_had() {
    let added = |project: &Project| length(&project.path("out/file")).saturating_sub(3);
    killed("append", old_file, added, |project| {
        let content = fs::read(project.path("out/file")).unwrap();
        let (old, new) = content.split_at(3);
        assert!(old == b"old" && new.len() <= LENGTH && new.iter().all(|byte| *byte == b'n'));
    });
}
