use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use super::*;
use crate::Registry;

type Failed = (PathBuf, Error);

/// What is watched below a folder, each as a line, sorted; what is watched above it is left out.
fn watched(folder: &Path, machine: &Machine, roots: &[&str]) -> Vec<String> {
    let roots: Vec<PathBuf> = roots.iter().map(|name| folder.join("project").join(name)).collect();
    let mut lines = BTreeSet::new();
    let real = folder.canonicalize().unwrap();
    let project = Project { root: &folder.join("project"), machine, roots: &roots, files: &[] };
    visit::<Failed>(project, &mut |path, what| {
        let Ok(path) = path.strip_prefix(&real) else { return Ok(()) };
        let path = path.display();
        lines.extend(match what {
            // These are the same in all projects.
            Watched::Folder | Watched::Name(_, Named::File) => None,
            Watched::Name(name, of) => Some(format!("{path}: {} ({of:?})", name.to_string_lossy())),
            Watched::File => Some(format!("{path}: content")),
            Watched::Artifacts { is_top: true } => Some(format!("{path}: artifacts")),
            Watched::Artifacts { is_top: false } => Some(format!("{path}: part")),
        });
        Ok(())
    })
    .unwrap();
    lines.into_iter().collect()
}

fn folder(folders: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in folders {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    folder
}

#[test]
fn folders_of_artifacts_and_no_others() {
    let folder = folder(&[
        "project/.harness/skills/one/deep",
        "project/.harness/audit/old",
        "project/.harness/sessions",
        "project/.harness/.git/objects",
        "project/src/deep",
        "project/shared/tools",
        "project/shared/plugin/a/hooks",
        "project/shared/src/deep",
        "project/shared/audit",
    ]);
    std::fs::write(folder.path().join("project/harness.md"), "").unwrap();
    assert_eq!(
        watched(folder.path(), &Machine::File(folder.path().join("policies/host.yaml")), &["shared"]),
        [
            ": policies (Any)",
            "project/.harness/skills/one/deep: part",
            "project/.harness/skills/one: part",
            "project/.harness/skills: part",
            "project/.harness: artifacts",
            "project/harness.md: content",
            "project/shared/plugin/a/hooks: part",
            "project/shared/plugin/a: part",
            "project/shared/plugin: part",
            "project/shared/tools: part",
            "project/shared: artifacts",
            "project: .harness (Home)",
            "project: harness.md (Any)",
        ]
    );
}

/// A link is followed within the folder of artifacts, however it is hidden there, and nothing outside is watched.
#[test]
fn links_are_followed_as_far_as_loading_follows_them() {
    let folder = folder(&["project/.harness/.data_1/tools", "project/.harness/tools", "outside/tools"]);
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("outside/secret.md"), "").unwrap();
    std::fs::write(at("project/.harness/.data_1/tools/a.md"), "").unwrap();
    symlink(".data_1", at("project/.harness/.data")).unwrap();
    symlink("../.data/tools/a.md", at("project/.harness/tools/a.md")).unwrap();
    symlink("../.data/tools", at("project/.harness/tools/more")).unwrap();
    symlink("..", at("project/.harness/tools/round")).unwrap();
    symlink("round", at("project/.harness/tools/circle")).unwrap();
    symlink("circle", at("project/.harness/tools/.circle")).unwrap();
    symlink(at("outside"), at("project/.harness/plugins")).unwrap();
    symlink(at("outside/secret.md"), at("project/.harness/tools/secret.md")).unwrap();
    assert_eq!(
        watched(folder.path(), &Machine::None, &[]),
        [
            "project/.harness/.data_1/tools/a.md: content",
            "project/.harness/.data_1/tools: a.md (Any)",
            "project/.harness/.data_1/tools: part",
            "project/.harness/tools: a.md (Any)",
            "project/.harness/tools: circle (Any)",
            "project/.harness/tools: more (Any)",
            "project/.harness/tools: part",
            "project/.harness/tools: round (Any)",
            "project/.harness/tools: secret.md (Any)",
            "project/.harness: .data (Any)",
            "project/.harness: artifacts",
            "project/.harness: plugins (Any)",
            "project: .harness (Home)",
        ]
    );
}

/// What is not there is watched where it would come to be, and a link on the way where it is.
#[test]
fn paths_are_followed_from_the_top() {
    let folder = folder(&["releases/one/.harness"]);
    let at = |name: &str| folder.path().join(name);
    symlink("releases/one", at("project")).unwrap();
    symlink("nowhere/host.yaml", at("host.yaml")).unwrap();
    assert_eq!(
        watched(folder.path(), &Machine::File(at("host.yaml")), &["../../missing/folder"]),
        [
            ": host.yaml (Any)",
            ": missing (Any)",
            ": nowhere (Any)",
            ": project (Any)",
            "releases/one/.harness: artifacts",
            "releases/one: .harness (Home)",
        ]
    );
    std::fs::remove_dir_all(at("releases/one")).unwrap();
    assert_eq!(watched(folder.path(), &Machine::None, &[]), [": project (Any)", "releases: one (Any)"]);
}

/// A FIFO is nothing to wait for, and more than loading reads is an error.
#[test]
fn fifos_and_floods() {
    let folder = folder(&["project/.harness/tools"]);
    let tools = folder.path().join("project/.harness/tools");
    let made = std::process::Command::new("mkfifo").arg(tools.join("pipe.md")).status().unwrap();
    assert!(made.success());
    let lines = watched(folder.path(), &Machine::None, &[]);
    assert_eq!(lines, ["project/.harness/tools: part", "project/.harness: artifacts", "project: .harness (Home)"]);
    for n in 0..MOST {
        std::fs::write(tools.join(n.to_string()), "").unwrap();
    }
    let root = folder.path().join("project");
    let project = Project { root: &root, machine: &Machine::None, roots: &[], files: &[] };
    let (path, error) = visit::<Failed>(project, &mut |_, _| Ok(())).unwrap_err();
    let why = "more than 19999 files and folders; move those that are not artifacts elsewhere";
    assert_eq!((path, error.to_string()), (root.canonicalize().unwrap().join(".harness"), why.to_owned()));
}

/// Each file that loading reads is in a folder of artifacts that is watched, or is watched by its name.
#[test]
fn whatever_loading_reads_is_watched() {
    let folder = folder(&["project/shared/tools", "project/.harness/hooks", "project/.harness/plugins/a/tools"]);
    let root = folder.path().join("project");
    let write = |name: &str, text: &str| std::fs::write(root.join(name), text).unwrap();
    let host = folder.path().join("host.yaml");
    std::fs::write(&host, "sandbox: {}\n").unwrap();
    write("harness.yaml", "artifact_sources: [{ type: local, path: shared }]\n");
    write(".harness/hooks/h.md", "---\nevent: error\n---\n");
    write(".harness/plugins/a/bundle.md", "---\n---\n");
    write(".harness/plugins/b.md", "---\n---\n");
    write(".harness/plugins/a/tools/t.md", "---\n---\n");
    write("shared/tools/s.md", "---\n---\n");
    let machine = Machine::File(host);
    let registry = Registry::load_within(&root, &machine);
    let read: Vec<&String> = registry.sources().keys().collect();
    assert_eq!(read.len(), 7, "{read:?}");
    let mut all = Vec::new();
    let project = Project { root: &root, machine: &machine, roots: registry.named_roots(), files: &[] };
    visit::<Failed>(project, &mut |path, what| {
        all.push((path.to_owned(), what));
        Ok(())
    })
    .unwrap();
    for file in read {
        let path = root.join(file).canonicalize().unwrap();
        let (parent, name) = (path.parent().unwrap(), path.file_name().unwrap());
        let covers = |(at, what): &(PathBuf, Watched)| match what {
            Watched::Artifacts { .. } => at == parent,
            Watched::Name(named, _) => at == parent && named == name,
            _ => false,
        };
        assert!(all.iter().any(covers), "{file}: {all:?}");
    }
}
