//! Artifacts of git repositories, which `artifact_sources` names: trusted, fetched, pinned, and of a third party.

use crate::artifacts::artifact;
use crate::plugins_git::Place;
use crate::project::{FINE, Project};

const GREETS: &str = "def run(args):\n    return 'hello'\n";
const READS: &str = "def run(args):\n    return fs.read('a.txt')\n";

/// A repository that is laid out as `.harness/` is.
fn place() -> Place {
    let place = Place::new();
    place.write("kit/tools/greet.md", &artifact("", GREETS));
    place.write("kit/tools/reads.md", &artifact("", READS));
    place.commit("v2");
    place
}

fn url(place: &Place) -> String {
    format!("file://{}", place.repository.path().to_str().unwrap())
}

/// The name of the repository in policies.
fn name(place: &Place) -> String {
    format!("git:{}/kit", place.repository.path().to_str().unwrap())
}

/// The policy that names the repository, with more keys of its entry and of the policy.
fn policy(place: &Place, entry: &str, more: &str) {
    let url = url(place);
    let sources = format!("artifact_sources:\n  - {{ type: git, url: \"{url}\", {entry} }}\n");
    place.project.write(".harness/harness.md", &format!("---\n{sources}{more}---\n"));
}

fn trusted(place: &Place) -> String {
    format!("trusted_sources: [\"{}\"]\n", url(place))
}

#[test]
fn a_repository_is_pinned_and_loads_without_a_network() {
    let place = place();
    policy(&place, "ref: v2, path: kit", &trusted(&place));
    // Nothing is fetched unless a person says so.
    let miss = place.run(&["call", "greet"]);
    miss.says(2, "error: offline mode: cache miss for source \"file:///repository\" @ \"v2\"\n");
    miss.says(2, "hint: `harness plugin sync` fetches it, and pins it in `harness.lock`");
    let commit = place.git(&["rev-parse", "v2"]);
    let synced = place.run(&["plugin", "sync"]);
    assert_eq!(
        (synced.code, synced.out),
        (0, format!("git:/repository/kit v2: fetched and pinned at {commit}\n")),
        "{}",
        synced.err
    );
    assert_eq!(place.left(), Vec::<std::path::PathBuf>::new());
    place.run(&["call", "greet"]).gives("hello");
    assert_eq!(place.run(&["plugin", "sync"]).out, "git:/repository/kit v2: there\n");

    // A tag that moves changes nothing: another machine fetches what the lock has.
    place.write("kit/tools/greet.md", &artifact("", &GREETS.replace("hello", "other")));
    place.git(&["tag", "--delete", "v2"]);
    place.commit("v2");
    place.run(&["call", "greet"]).gives("hello");
    std::fs::remove_dir_all(place.cache.path().join("harness")).unwrap();
    place.run(&["call", "greet"]).says(2, "cache miss for source");
    let again = place.run(&["plugin", "sync"]);
    assert_eq!(again.out, format!("git:/repository/kit v2: fetched at {commit}\n"), "{again}");
    place.run(&["call", "greet"]).gives("hello");

    // Another commit is another source.
    let other = place.git(&["rev-parse", "v2"]);
    for reference in [other.as_str(), other.get(..7).unwrap()] {
        policy(&place, &format!("ref: '{reference}', path: kit"), &trusted(&place));
        place.run(&["call", "greet"]).says(2, "cache miss for source");
        let synced = place.run(&["plugin", "sync"]);
        let line = format!("git:/repository/kit {reference}: fetched and pinned at {other}\n");
        assert_eq!(synced.out, line, "{synced}");
        place.run(&["call", "greet"]).gives("other");
    }
    assert_eq!(place.lock().matches("[[repository]]").count(), 1);
    // One that is named no more is pinned no more.
    place.project.write(".harness/harness.md", "---\n---\n");
    assert_eq!(place.run(&["plugin", "sync"]).code, 0);
    assert!(!place.project.path("harness.lock").exists());
}

#[test]
fn only_what_the_list_names_is_fetched_and_loaded() {
    let place = place();
    let whole = url(&place);
    let untrusted = |list: &str, why: &str| {
        policy(&place, "ref: v2, path: kit", list);
        for command in [&["plugin", "sync"][..], &["call", "it"]] {
            let ran = place.run(command);
            assert!(ran.code == 2 && ran.err.contains(why), "{list} {command:?}: {ran}");
        }
        assert!(!place.project.path("harness.lock").exists());
    };
    let why = "error: artifact source \"file:///repository\" is not trusted; add it to trusted_sources\n";
    untrusted("", why);
    untrusted(&format!("trusted_sources: [\"{whole}x\", \"{}\"]\n", whole.strip_suffix(|_: char| true).unwrap()), why);
    untrusted("trusted_sources: [{ source: ./* }]\n", why);
    let signed = "RWQyUHrYd0ab27mjqZ75GRgdSpqXHVuKKq/eWWvtG2VlNaj3bNCz0hLz";
    let signature = format!("{{ source: \"git+{whole}@*\", require: signature, signers: [{signed}] }}");
    let refused = "`trusted_sources` refuses the artifact source \"file:///repository\": it is not signed\n";
    untrusted(&format!("trusted_sources: [{signature}]\n"), refused);
    // The first that matches counts, a text or a mapping.
    untrusted(&format!("trusted_sources: [{signature}, \"{whole}\"]\n"), refused);
    policy(&place, "ref: v2, path: kit", &format!("trusted_sources: [\"{whole}\", {signature}]\n"));
    assert_eq!(place.run(&["plugin", "sync"]).code, 0);
    place.run(&["call", "greet"]).gives("hello");
    // The list of the host policy has to name it too.
    let host = place.project.path("host.yaml");
    std::fs::write(&host, "trusted_sources: [https://example.org/other]\n").unwrap();
    let ran = place.run(&["--policy", "host.yaml", "call", "greet"]);
    ran.says(2, "`trusted_sources` refuses the artifact source \"file:///repository\": it comes from ");
    std::fs::write(&host, format!("trusted_sources: [\"{whole}\"]\n")).unwrap();
    place.run(&["--policy", "host.yaml", "call", "greet"]).gives("hello");
    // Plugins of a repository are trusted by its address, too.
    let add = |place: &Place| place.run(&["plugin", "add", &format!("git+{whole}@v1#acme"), "--grant", "none"]);
    assert_eq!(add(&place).code, 0);
    place.run(&["call", "theirs"]).gives("hello");
    place.project.write(".harness/harness.md", "---\ntrusted_sources: [https://example.org/other]\n---\n");
    place.run(&["call", "it"]).says(2, "`trusted_sources` refuses `plugins/acme`: it comes from ");
}

#[test]
fn what_is_in_a_repository_is_a_third_party_s() {
    let place = place();
    place.project.write("a.txt", "text");
    let synced = |more: &str| {
        policy(&place, "ref: v2, path: kit", &format!("{}{more}", trusted(&place)));
        let ran = place.run(&["plugin", "sync"]);
        assert_eq!(ran.code, 0, "{ran}");
    };
    synced("");
    let denied = place.run(&["call", "reads"]);
    denied.says(3, "fs.read: reading `a.txt` is not granted");
    denied.says(3, "`sandbox.sources.git:/repository/kit//.fs.read` in `.harness/harness.md`");
    let granted = format!("sandbox: {{ sources: {{ \"{}//\": {{ fs: {{ read: [a.txt] }} }} }} }}\n", name(&place));
    synced(&granted);
    place.run(&["call", "reads"]).gives("text");
    let of_one = granted.replace("//\"", "//tools/greet\"");
    synced(&of_one);
    place.run(&["call", "reads"]).says(3, "is not granted");
    // `max` of its entry bounds it.
    let entry = format!("git+{}@*", url(&place));
    let bounded = |max: &str| format!("trusted_sources: [{{ source: \"{entry}\", max: {{ {max} }} }}]\n{granted}");
    policy(&place, "ref: v2, path: kit", &bounded("fs: { read: [b.txt] }"));
    place.run(&["call", "reads"]).says(3, "`trusted_sources[0].max.fs.read`");
    policy(&place, "ref: v2, path: kit", &bounded("fs: { read: [a.txt] }"));
    place.run(&["call", "reads"]).gives("text");

    // A hook of it stops the project until its events are consented to, and then guards.
    let hook = artifact("event: tool.pre\n", "def handle(event, payload):\n    return block('no')\n");
    place.write("kit/hooks/guards.md", &hook);
    place.commit("v3");
    let with_hook = |more: &str| {
        policy(&place, "ref: v3, path: kit", &format!("{}{more}", trusted(&place)));
        assert_eq!(place.run(&["plugin", "sync"]).code, 0);
        place.run(&["call", "it"])
    };
    with_hook("").says(2, &format!("add `tool.pre` to `sandbox.sources.{}//.events`", "git:/repository/kit"));
    let consented = format!("sandbox: {{ sources: {{ \"{}//\": {{ events: [tool.pre] }} }} }}\n", name(&place));
    with_hook(&consented).says(3, "blocked by hook \"guards\"");

    // It replaces nothing of the project.
    place.git(&["rm", "--quiet", "kit/hooks/guards.md"]);
    place.write("kit/overrides/mine/tools/it.md", &artifact("", GREETS));
    place.commit("v4");
    policy(&place, "ref: v4, path: kit", &trusted(&place));
    assert_eq!(place.run(&["plugin", "sync"]).code, 0);
    place.run(&["call", "it"]).says(2, "error: `git:/repository/kit/overrides/` is not read: it is a third party's\n");
}

#[test]
fn a_cache_and_a_lock_that_were_changed_are_refused() {
    let place = place();
    policy(&place, "ref: v2, path: kit", &trusted(&place));
    assert_eq!(place.run(&["plugin", "sync"]).code, 0);
    place.run(&["call", "greet"]).gives("hello");
    let plugins = place.cache.path().join("harness/plugins");
    let kept = std::fs::read_dir(&plugins).unwrap().next().unwrap().unwrap().path().join("tools/greet.md");
    let kept = match kept.exists() {
        true => kept,
        false => walk(&plugins, "greet.md"),
    };
    let text = std::fs::read_to_string(&kept).unwrap();
    std::fs::write(&kept, text.replace("hello", "hullo")).unwrap();
    let changed = place.run(&["call", "greet"]);
    changed.says(2, "error: the artifact source \"file:///repository\" differs from `harness.lock`: ");
    changed.says(2, "was changed: its digest is another one");
    std::fs::write(&kept, text).unwrap();
    place.run(&["call", "greet"]).gives("hello");
    let lock = place.lock();
    for (from, to) in [("resolved = \"", "resolved = \"0"), ("@refs/tags/v2", "@refs/tags/v9"), ("\n\n", "\n\n\n")] {
        place.project.write("harness.lock", &lock.replacen(from, to, 1));
        assert_eq!(place.run(&["call", "greet"]).code, 2, "{from}");
    }
    place.project.write("harness.lock", &lock);
    place.run(&["call", "greet"]).gives("hello");
    // `harness lock` keeps what it pins.
    assert_eq!(place.run(&["lock"]).code, 0);
    assert!(place.lock().contains("[[repository]]") && !place.lock().contains("tools/greet"), "{}", place.lock());
    place.run(&["call", "greet"]).gives("hello");
}

fn walk(folder: &std::path::Path, name: &str) -> std::path::PathBuf {
    let mut waiting = vec![folder.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().is_some_and(|found| found == name) {
                return path;
            }
            if path.is_dir() {
                waiting.push(path);
            }
        }
    }
    panic!("{name} is not there")
}

#[test]
fn a_checksum_is_of_all_files() {
    // `printf 'NAME\nTEXT\n...' | sha256sum`, over all files of the repository and over those of a folder.
    let sum = |files: &[(&str, &str)]| {
        let all: String = files.iter().map(|(path, text)| format!("{path}\n{text}\n")).collect();
        harness_sys::digest::digest(&all).trim_start_matches("sha256:").to_owned()
    };
    let place = place();
    place.write(".gitignore", "x\n");
    place.commit("v3");
    let (greet, reads) = (artifact("", GREETS), artifact("", READS));
    let read = |path: &str| std::fs::read_to_string(place.at(path)).unwrap();
    let (plugin, theirs) = (read("acme/plugin.md"), read("acme/tools/theirs.md"));
    let whole = sum(&[
        ("acme/plugin.md", &plugin),
        ("acme/tools/theirs.md", &theirs),
        ("kit/tools/greet.md", &greet),
        ("kit/tools/reads.md", &reads),
    ]);
    let entry = |sum: &str| format!("ref: v3, path: kit, checksum: 'sha256:{sum}'");
    policy(&place, &entry(&whole.to_uppercase()), &trusted(&place));
    assert_eq!(place.run(&["plugin", "sync"]).code, 0);
    place.run(&["call", "greet"]).gives("hello");
    let wrong = "0".repeat(64);
    policy(&place, &entry(&wrong), &trusted(&place));
    let why = format!("error: checksum mismatch for \"file:///repository\": want sha256:{wrong} got sha256:{whole}\n");
    place.run(&["call", "greet"]).says(2, &why);
    place.run(&["plugin", "sync"]).says(2, &why);

    let folder = |sum: &str| {
        let entry = format!("artifact_sources: [{{ type: local, path: kit, checksum: 'sha256:{sum}' }}]\n");
        Project::new().tool("it", "", FINE).policy(&entry).file("kit/tools/greet.md", &greet)
    };
    let of_folder = sum(&[("tools/greet.md", &greet)]);
    let project = folder(&of_folder);
    project.run(&["call", "greet"]).gives("hello");
    project.write("kit/tools/more.md", &greet);
    project.run(&["call", "greet"]).says(2, "error: checksum mismatch for \"kit\": want sha256:");
}

#[test]
fn the_project_s_own_folder_is_read_with_other_sources_and_without_being_named() {
    for own in ["", "  - { type: local, path: .harness }\n"] {
        let project = Project::new()
            .tool("it", "", FINE)
            .policy(&format!("artifact_sources:\n{own}  - {{ type: local, path: kit }}\n"))
            .file("kit/tools/greet.md", &artifact("", GREETS));
        project.run(&["call", "it"]).gives("fine");
        project.run(&["call", "greet"]).gives("hello");
    }
}
