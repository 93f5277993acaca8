//! What is loaded and from where: names of sources, bounds of loading, where the policy may be, files that nobody reads.

use serde_json::{Value as Json, json};

use crate::artifacts::{artifact, bundle, with_root};
use crate::project::{FINE, Project};

const READS: &str = "def run(args):\n    return fs.read('a.txt')\n";

/// A tool of a bundle in one file.
fn steals() -> String {
    bundle(&format!("tools:\n  - name: steals\n    script: |\n{}", indented(READS)))
}

fn indented(script: &str) -> String {
    script.lines().map(|line| format!("      {line}\n")).collect()
}

#[test]
fn no_plugin_takes_the_name_of_another() {
    let project = Project::new()
        .file("a.txt", "text")
        .policy("sandbox: { sources: { plugins/acme: { fs: { read: [a.txt] } } } }\n")
        .file(".harness/plugins/acme.md.md", &steals());
    let ran = project.run(&["validate"]);
    ran.says(2, "error: the name of a bundle cannot end in `.md`: `.harness/plugins/acme.md.md`");
    project.run(&["call", "steals"]).says(2, "the name of a bundle cannot end in `.md`");
    std::fs::remove_file(project.path(".harness/plugins/acme.md.md")).unwrap();
    project.write(".harness/plugins/acme .md", &steals());
    project.run(&["call", "steals"]).says(2, "the name of a bundle must not begin or end with a space");
    std::fs::remove_file(project.path(".harness/plugins/acme .md")).unwrap();
    for (path, kind) in [("tools/x.md.md", "tool"), ("hooks/x.Md.md", "hook"), ("agents/x.md.md", "agent")] {
        let path = format!(".harness/{path}");
        project.write(&path, "---\nevent: tool.pre\n---\n");
        project.run(&["validate"]).says(2, &format!("error: the name of a {kind} cannot end in `.md`"));
        std::fs::remove_file(project.path(&path)).unwrap();
    }
}

#[test]
fn a_further_root_has_sources_of_its_own() {
    let policy = |key: &str| {
        let rule = format!("sandbox: {{ sources: {{ \"{key}\": {{ fs: {{ read: [a.txt] }} }} }} }}\n");
        format!("artifact_sources:\n  - {{ type: local, path: ./shared/ }}\n{rule}")
    };
    let project = with_root("shared").policy(&policy("plugins/acme"));
    let ran = project.run(&["call", "plugged"]);
    ran.says(3, "fs.read: reading `a.txt` is not granted");
    ran.says(3, "`sandbox.sources.shared//plugins/acme.fs.read` in `.harness/harness.md`");
    project.run(&["validate"]).says(0, "= hint: did you mean `shared//plugins/acme`?");
    let project = project.policy(&policy("shared//plugins/acme"));
    project.run(&["call", "plugged"]).gives("text");
    assert_eq!(
        project.run(&["inspect", "plugged", "--json"]).json()["tools"][0]["source"],
        "shared//plugins/acme/tools/plugged"
    );
    // A bundle of the same name in `.harness/` is another one, and each is in the lock.
    project.write(".harness/plugins/acme/tools/other.md", &artifact("", READS));
    project.run(&["call", "other"]).says(3, "`sandbox.sources.plugins/acme.fs.read`");
    let locked = project.run(&["lock"]);
    assert!(locked.code == 0 && locked.out.contains("2 bundles"), "{locked}");
    let project = project.policy(&policy("nowhere//plugins/acme"));
    project.run(&["validate"]).says(0, "warning: `sandbox.sources` names `nowhere//plugins/acme`, which is not there");
}

#[test]
fn a_folder_is_read_once() {
    let project = with_root("shared")
        .policy("artifact_sources:\n  - { type: local, path: shared }\n  - { type: local, path: shared/../shared }\n");
    let ran = project.run(&["call", "far"]);
    ran.says(
        2,
        "error: `shared/../shared` is the folder `shared`, which is read already\n --> .harness/harness.md:4:26",
    );
}

/// The part of a name's path says nothing of what is in it.
#[test]
fn guards_that_cannot_be_read_stop_the_project_under_any_root() {
    for root in ["tools", "agents", "lib/tools", "shared"] {
        let project = Project::with_script(FINE)
            .policy(&format!("artifact_sources:\n  - {{ type: local, path: {root} }}\n"))
            .file(&format!("{root}/tools/far.md"), &artifact("", FINE));
        project.run(&["call", "it"]).gives("fine");
        for folder in ["hooks", "plugins", "overrides"] {
            let path = project.path(&format!("{root}/{folder}"));
            std::os::unix::fs::symlink(folder, &path).unwrap();
            let ran = project.run(&["call", "it"]);
            ran.says(2, &format!("error: cannot read `{root}/{folder}`: Too many levels of symbolic links"));
            std::fs::remove_file(&path).unwrap();
        }
        project.run(&["call", "it"]).gives("fine");
    }
}

#[test]
fn names_that_look_alike_are_told_with_both_places() {
    let tool = artifact("", FINE);
    let project = Project::new()
        .file(".harness/tools/copy.md", &tool)
        .file(".harness/tools/\u{441}\u{43e}\u{440}\u{443}.md", &tool);
    let ran = project.run(&["validate"]);
    ran.says(2, "error: tool `\u{441}\u{43e}\u{440}\u{443}` looks like the tool `copy`");
    ran.says(2, "--> .harness/tools/\u{441}\u{43e}\u{440}\u{443}.md:1:1");
    ran.says(2, "hint: the other is at .harness/tools/copy.md:1:1; one of them holds U+0441, U+043E, U+0440, U+0443: rename one of them");
    project.run(&["call", "copy"]).says(2, "looks like the tool");
    let ran = Project::new().file(".harness/plugins/p/tools/deIegate.md", &tool).run(&["validate"]);
    ran.says(2, "error: tool `deIegate` looks like the tool `delegate`");
    ran.says(2, "hint: the other is one of the host's own tools: rename one of them");
    let hook = "---\nevent: tool.pre\n---\n";
    for (one, other, text, kind) in [
        ("hooks/guard1", "plugins/p/hooks/guardl", hook, "hook"),
        ("agents/modern", "overrides/o/agents/modem", "---\ndescription: x\n---\n", "agent"),
        ("plugins/acme/tools/x", "plugins/\u{430}\u{441}\u{3bf}/tools/y", &tool, ""),
    ] {
        let project =
            Project::new().file(&format!(".harness/{one}.md"), text).file(&format!(".harness/{other}.md"), text);
        let ran = project.run(&["validate"]);
        let what = if kind.is_empty() {
            "the name of a bundle must not mix letters of Cyrillic and Greek".to_owned()
        } else {
            format!("looks like the {kind} ")
        };
        assert!(ran.code == 2 && ran.err.contains(&what), "{one}: {ran}");
    }
    let skill = |name: &str| format!("---\nname: {name}\ndescription: Does it.\n---\nDo it.\n");
    let project = Project::new()
        .file(".harness/skills/modern.md", &skill("modern"))
        .file(".harness/plugins/p/skills/modem.md", &skill("modem"));
    project.run(&["validate"]).says(2, "looks like the skill `");
    let project = Project::new().file(".harness/tools/a\u{200b}b.md", &tool);
    project.run(&["validate"]).says(2, "the name of a tool must not contain what is not seen, such as U+200B");
}

#[test]
fn a_source_has_bounds_and_its_error_names_it() {
    let many = |count: usize| format!("---\n{}---\n", (0..count).map(|n| format!("k{n}: 1\n")).collect::<String>());
    let project = Project::with_script(FINE).file(".harness/plugins/loud/tools/x.md", &many(1_001));
    for command in [&["call", "it"][..], &["validate"], &["test"], &["lock"], &["tools", "--json"]] {
        let ran = project.run(command);
        ran.says(2, "error: `plugins/loud` is not loaded: it has more than 1000 errors and warnings");
        assert!(ran.err.matches("unknown key").count() <= 100, "{ran}");
    }
    let project = Project::with_script(FINE);
    let large = format!("---\nscript: |\n  # {}\n---\n", "x".repeat(1_000_000));
    project.write(".harness/plugins/big/large.txt", &large);
    std::fs::create_dir(project.path(".harness/plugins/big/tools")).unwrap();
    for n in 0..3_000 {
        let link = project.path(&format!(".harness/plugins/big/tools/t{n}.md"));
        std::os::unix::fs::symlink("../large.txt", link).unwrap();
    }
    for command in [&["call", "it"][..], &["validate"], &["lock"], &["tools", "--json"]] {
        project.run(command).says(2, "error: `plugins/big` is not loaded: it has more than 8388608 bytes in its files");
    }
    let values = |rows: usize| {
        format!(
            "---\ntests:\n  - name: x\n    args: {{ a: [{}] }}\n    expect: {{ result: 1 }}\n---\n",
            "1,".repeat(rows)
        )
    };
    let project = Project::with_script(FINE);
    for n in 0..3 {
        project.write(&format!(".harness/plugins/wide/tools/t{n}.md"), &values(90_000));
    }
    project
        .run(&["call", "it"])
        .says(2, "error: `plugins/wide` is not loaded: it has more than 200000 keys and values");
    let project = Project::with_script(FINE);
    for n in 0..6 {
        project.write(&format!(".harness/plugins/w{n}/tools/t{n}.md"), &values(90_000));
    }
    project
        .run(&["call", "it"])
        .says(2, "error: the project with `plugins/w5` is not loaded: it has more than 500000 keys and values");
}

/// What is read and then refused takes as long as what is kept.
#[test]
fn what_is_read_in_vain_counts_too() {
    let skilled = |skills: usize, beside: &dyn Fn(&Project, &str)| {
        let project = Project::with_script(FINE);
        for n in 0..skills {
            let folder = format!(".harness/plugins/acme/skills/s{n}");
            project.write(&format!("{folder}/SKILL.md"), &format!("---\nname: s{n}\ndescription: d\n---\nx\n"));
            beside(&project, &folder);
        }
        project
    };
    let large = |project: &Project, folder: &str| {
        let file = std::fs::File::create(project.path(&format!("{folder}/large"))).unwrap();
        file.set_len(17 << 20).unwrap();
    };
    let ran = skilled(4, &large).run(&["validate"]);
    let told = |skill: usize| {
        let before = format!("error: cannot read what is in `.harness/plugins/acme/skills/s{skill}/`: ");
        ran.err.split(&before).nth(1).and_then(|rest| rest.lines().next()).unwrap_or_else(|| panic!("{ran}")).to_owned()
    };
    let bytes = |told: String| told.split(' ').nth(2).unwrap().parse::<u64>().unwrap();
    // The bytes of the four files of prose count as well.
    assert_eq!(told(0), "more than 16777216 bytes");
    assert!(told(1).ends_with(" bytes, with those of all other skills 33554432"), "{ran}");
    assert!((16_777_100..16_777_216).contains(&bytes(told(1))), "{ran}");
    assert_eq!([2, 3].map(|skill| bytes(told(skill))), [0, 0], "{ran}");
    let hidden = |project: &Project, folder: &str| {
        (0..900).for_each(|n| project.write(&format!("{folder}/.hidden{n}"), ""));
    };
    skilled(5, &hidden).run(&["call", "it"]).gives("fine");
    let over = "error: `plugins/acme` is not loaded: it has more than 5000 files and folders";
    skilled(6, &hidden).run(&["call", "it"]).says(2, over);
}

/// Folders that nobody reads are looked into, for guards that their author believes in.
#[test]
fn what_nobody_reads_is_looked_at_within_bounds() {
    use std::os::unix::fs::symlink;
    let project = Project::with_script(FINE).file(".harness/plugins/acme/tools/x.md", &artifact("", FINE));
    for n in 0..600 {
        project.write(&format!(".harness/plugins/acme/tools/s0/{n}.json"), "");
    }
    let link = |n: usize| symlink("s0", project.path(&format!(".harness/plugins/acme/tools/s{n}"))).unwrap();
    (1..9).for_each(link);
    project.run(&["call", "it"]).gives("fine");
    (9..12).for_each(link);
    let over = "error: `plugins/acme` is not loaded: it has more than 5000 files and folders";
    project.run(&["call", "it"]).says(2, over);
    // What is outside is not looked at.
    let project = Project::with_script(FINE);
    std::fs::create_dir_all(project.path(".harness/hooks")).unwrap();
    for n in 0..600 {
        project.write(&format!("elsewhere/{n}.json"), "");
    }
    for n in 0..12 {
        symlink("../../elsewhere", project.path(&format!(".harness/hooks/s{n}"))).unwrap();
    }
    project.run(&["call", "it"]).gives("fine");
}

#[test]
fn validate_looks_for_as_much_as_anybody_reads() {
    let script = |wrong: usize| {
        let lines: String = (0..wrong).map(|n| format!("    fs.raed('{n}')\n")).collect();
        artifact("event: tool.pre\n", &format!("def handle(event, payload):\n{lines}    return allow()\n"))
    };
    let project = Project::with_script(FINE);
    for n in 10..30 {
        project.write(&format!(".harness/hooks/h{n}.md"), &script(50));
    }
    let ran = project.run(&["validate", "--json"]).json();
    let has = |ran: &Json, what: &str| {
        ran["problems"].as_array().unwrap().iter().any(|one| one["message"].as_str().unwrap().starts_with(what))
    };
    let over = "more than 1000 findings: not all artifacts were checked";
    assert!(has(&ran, "there is no built-in `fs.raed`") && !has(&ran, over), "{ran}");
    project.write(".harness/hooks/h30.md", &script(1));
    let ran = project.run(&["validate", "--json"]).json();
    assert!(has(&ran, over) && ran["valid"] == json!(false), "{ran}");
}

#[test]
fn the_policy_may_be_beside_the_artifacts() {
    let policy = "---\nsandbox: { env: [HARNESS_TEST_VARIABLE] }\n---\nYou help.\n";
    let script = "def run(args):\n    return env('HARNESS_TEST_VARIABLE')\n";
    let project = Project::with_script(script).file("harness.md", policy);
    project.run(&["call", "it"]).gives("a value");
    let ran = Project::with_script("def run(args):\n    return env('OTHER')\n")
        .file("harness.yaml", "sandbox: { env: [] }\n")
        .run(&["call", "it"]);
    ran.says(3, "hint: add `OTHER` to `sandbox.env` in `harness.yaml:1:17`");
    // Two are none.
    project.write("harness.yaml", "sandbox: {}\n");
    let ran = project.run(&["call", "it"]);
    ran.says(2, "error: the project has 2 policies: `harness.md` and `harness.yaml`");
    ran.says(2, "hint: keep one of them, and delete or rename the other");
    std::fs::remove_file(project.path("harness.yaml")).unwrap();
    project.write(".harness/harness.md", "---\n---\n");
    project.run(&["call", "it"]).says(2, "error: the project has 2 policies: `.harness/harness.md` and `harness.md`");
    // A file alone is a project; where it is empty it is none.
    let project = Project::new()
        .file("harness.yaml", "tools:\n  - name: it\n    script: |\n      def run(args):\n          return 'alone'\n");
    std::fs::remove_dir(project.path(".harness")).unwrap();
    project.run(&["init"]).says(2, "`./harness.yaml` is there already");
    project.run(&["tools"]).says(0, "");
    project.run(&["call", "it"]).gives("alone");
    project.write("harness.yaml", "");
    project.run(&["tools"]).says(2, "error: `harness.yaml` is empty");
}

/// A bundle's list, with a guard in it.
const GUARDS: &str = "---\nname: acme\nhooks:\n  - name: guard\n    event: tool.pre\n---\n";

#[test]
fn policies_and_artifacts_that_nobody_reads_are_errors() {
    for (path, text) in [
        ("harness.yml", "sandbox: { env: [] }\n"),
        ("HARNESS.md", "---\nnetwork: {}\n---\n"),
        (".harness/harness.yaml", "sandbox: {}\n"),
        (".harness/guard.md", "---\nevent: tool.pre\n---\n"),
        (".harness/hooks/guard", "---\nevent: tool.pre\n---\n"),
        (".harness/hooks/guard.md.txt", "---\nevent: tool.pre\n---\n"),
        (".harness/hooks/README.md", "---\nevent: tool.pre\n---\n"),
        (".harness/guards/deep/guard.md", "---\nscript: |\n  x = 1\n---\n"),
        // Lists of artifacts are artifacts.
        (".harness/guards.md", GUARDS),
        (".harness/plugins/acme/index.md", GUARDS),
        (".harness/tools/guards.yaml", GUARDS),
    ] {
        let ran = Project::with_script(FINE).file(path, text).run(&["call", "it"]);
        ran.says(2, &format!("error: `{path}` is not read, but holds an artifact or a policy"));
    }
    // Nor is a list where a plugin describes itself.
    let ran = Project::with_script(FINE).file(".harness/plugins/acme/plugin.md", GUARDS).run(&["call", "it"]);
    ran.says(2, "error: unknown key `");
    let ran =
        Project::with_script(FINE).file(".harness/plugins/p/bundle.md", "---\nsandbox: {}\n---\n").run(&["call", "it"]);
    ran.says(2, "error: unknown key `sandbox`\n --> .harness/plugins/p/bundle.md:2:1");
    ran.says(2, "hint: a policy is not read here: it belongs in the project's `harness.md`");
    let ran = Project::with_script(FINE)
        .file(".harness/plugins/acme/tools/one.md", "---\n---\nOne.\n")
        .file(".harness/plugins/acme/acme.md", "---\nname: acme\n---\nProse.\n")
        .run(&["validate"]);
    ran.says(0, "warning: `.harness/plugins/acme/acme.md` is not read\n |\n = hint: the file of a bundle in its folder is `bundle.md`\n");
    // The folders of others, and what is for people.
    let project = Project::with_script(FINE)
        .file(".harness/context/python.md", "---\nevent: x\nscript: y\n---\n")
        .file(".harness/extensions/e.md", "---\nscript: y\n---\n")
        .file(".harness/hooks/README.md", "# Hooks\nevent: what it is\n")
        .file(".harness/tools/readme.txt", "none")
        .file(".harness/notes/n.md", "---\ntitle: x\n---\n");
    project.run(&["call", "it"]).gives("fine");
    let ran = project.run(&["validate", "--json"]);
    let told: Vec<_> = ran.json()["problems"].as_array().unwrap().iter().map(|one| one["message"].clone()).collect();
    assert_eq!(
        told,
        [
            json!("`.harness/context/` is not read"),
            json!("`.harness/extensions/` is not read"),
            json!("`.harness/tools/readme.txt` is not read"),
            json!("`.harness/hooks/README.md` is not read"),
        ]
    );
    let ran = project.file(".harness/identity.md", "# Who I am\n").run(&["validate"]);
    for (path, hint) in [
        (
            "context/",
            "prose that always counts belongs in `harness.md` or in a bundle under `builtins/`, other prose in `skills/`",
        ),
        ("extensions/", "tools and hooks belong in `plugins/`"),
        ("identity.md", "its prose belongs in `.harness/harness.md`"),
    ] {
        ran.says(0, &format!("warning: `.harness/{path}` is not read\n |\n = hint: {hint}\n"));
    }
}

#[test]
fn what_is_no_text_is_told_at_its_place() {
    let project = Project::new();
    std::fs::create_dir_all(project.path(".harness/hooks")).unwrap();
    for (path, bytes, place) in [
        (".harness/harness.md", &b"---\n# \xc3\xa4\xe9\n---\n"[..], "2:4"),
        (".harness/hooks/h.md", b"---\nevent: tool.pre\nwhen: '\xff'\n---\n", "3:8"),
        (".harness/hooks/wide.md", b"\xff\xfe-\0-\0-\0", "1:1"),
    ] {
        std::fs::write(project.path(path), bytes).unwrap();
        let ran = project.run(&["validate"]);
        ran.says(
            2,
            &format!(
                "error: cannot read `{path}`: not UTF-8 text\n--> {path}:{place}\n = hint: save the file as UTF-8"
            ),
        );
        std::fs::remove_file(project.path(path)).unwrap();
    }
}

#[test]
fn a_timeout_that_nothing_can_hold_is_an_error() {
    let tool = |ms: &str| Project::new().tool("it", &format!("timeout_ms: {ms}\n"), FINE);
    tool("18446744073709551615").run(&["call", "it"]).gives("fine");
    for ms in ["18446744073709551616", "99999999999999999999999999999999999999999999"] {
        let ran = tool(ms).run(&["validate"]);
        ran.says(
            2,
            "error: tool \"it\" timeout_ms must be at most 18446744073709551615\n --> .harness/tools/it.md:2:13",
        );
    }
}

/// Warnings belong to `validate`, and to the artifact that is called.
#[test]
fn a_call_warns_of_what_has_a_part_in_it() {
    let project = Project::new()
        .tool("it", "timeuot_ms: 1\n", FINE)
        .tool("other", "", FINE)
        .file(".harness/agents/a.md", "---\nmodle: x\n---\n");
    let told = |ran: &crate::project::Ran| ran.err.matches("warning: unknown key").count();
    let ran = project.run(&["call", "it"]);
    assert_eq!((ran.code, told(&ran)), (0, 1), "{ran}");
    ran.says(0, "warning: unknown key `timeuot_ms`, it is ignored\n --> .harness/tools/it.md:2:1");
    project.run(&["call", "other"]).gives("fine");
    assert_eq!(told(&project.run(&["validate"])), 2);
    let project = project.policy("modell: x\n");
    assert_eq!(told(&project.run(&["call", "other"])), 1);
    // Rules for what is not there say nothing about this call.
    let unused = "tools_policy: { deny: [fs.remove] }\nsandbox: { sources: { tools/none: { env: [] } } }\n";
    let project = project.policy(unused);
    let ran = project.run(&["call", "other"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "fine\n", ""), "{ran}");
    let ran = project.run(&["validate"]);
    for part in ["no tool is named like `fs.remove`", "`sandbox.sources` names `tools/none`, which is not there"] {
        assert!(ran.err.contains(part), "{part}: {ran}");
    }
}

#[test]
fn names_that_nothing_has_are_found() {
    let project = Project::new()
        .tool("it", "", "def run(args):\n    if args.get('x'):\n        return fs.raed('a')\n    return 'fine'\n")
        .file(".harness/tools/bare.md", "---\n---\n")
        .file(".harness/agents/a.md", "---\n---\nYou help.\n")
        .file(".harness/hooks/when.md", "---\nevent: tool.pre\nwhen: paylod[\"name\"] == \"it\"\n---\n")
        .file(
            ".harness/hooks/role.md",
            "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      if payload[\"arguments\"][\"x\"]:\n          fs.write('a', 'b')\n      return allow()\n---\n",
        )
        .file(".harness/hooks/alias.md", "---\nevent: meta.register_tool\n---\n")
        .file(".harness/hooks/meta.md", "---\nevent: meta.nothing\n---\n");
    let ran = project.run(&["validate"]);
    assert_eq!(ran.code, 2, "{ran}");
    for part in [
        "there is no built-in `fs.raed`\n --> .harness/tools/it.md:5:18",
        "hint: did you mean `fs.read`?",
        "warning: tool `bare` has no description\n --> .harness/tools/bare.md:1:1",
        "warning: agent `a` has no description\n --> .harness/agents/a.md:1:1",
        "warning: `payload[\"arguments\"]` is JSON as a text, and no dict\n --> .harness/hooks/role.md:5:10",
        "error: a hook may not call `fs.write`: the call is denied each time\n --> .harness/hooks/role.md:6:11",
        "warning: nothing fires `meta.nothing`: the hook is never called\n --> .harness/hooks/meta.md:2:8",
    ] {
        assert!(ran.err.contains(part), "{part}: {ran}");
    }
    assert_eq!(ran.err.matches("--> .harness/hooks/when.md:3:").count(), 1, "{ran}");
    assert!(!ran.err.contains("hooks/alias.md"), "{ran}");
    let listed = project.run(&["hooks", "--json"]).json();
    let alias = listed.as_array().unwrap().iter().find(|hook| hook["name"] == "alias");
    assert_eq!(alias.unwrap()["event"], json!("meta.tool_register"));
}

/// A hook on `artifact.load`, and the project that it governs.
fn governed(hook: &str) -> Project {
    Project::with_script(FINE)
        .tool("tagged", "tags: [reviewed]\n", FINE)
        .file(".harness/hooks/gate.md", &artifact("event: artifact.load\n", hook))
}

#[test]
fn a_hook_refuses_to_load_a_tool() {
    let project = governed(
        "def handle(event, payload):\n    if payload['kind'] == 'tool' and 'reviewed' not in payload['tags']:\n        return block('no tag')\n    return allow()\n",
    );
    project.run(&["call", "tagged"]).gives("fine");
    project.run(&["call", "it"]).says(2, "there is no tool `it`");
    let ran = project.run(&["validate"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.out.contains("tools: tagged\n"), "{ran}");
    assert!(ran.out.contains("rejected: tool `it` of .harness/tools/it.md:1:1 by hook `gate`: "), "{ran}");
    assert!(ran.out.contains("no tag"), "{ran}");
    let listed = project.run(&["tools", "--json"]).json();
    let names: Vec<&Json> = listed.as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["tagged", "it"], "{listed}");
    assert_eq!(listed[1]["refused"]["by"], json!("gate"));
    assert_eq!(project.run(&["validate", "--json"]).json()["refused"][0]["name"], json!("it"));
}

#[test]
fn a_script_is_looked_at_before_it_is_loaded() {
    let project = governed(
        "def handle(event, payload):\n    return block('it runs commands') if 'exec.run' in payload['script'] else allow()\n",
    )
    .tool("runs", "", "def run(args):\n    return exec.run('true')\n");
    project.run(&["call", "it"]).gives("fine");
    project.run(&["call", "runs"]).says(2, "there is no tool `runs`");
}

#[test]
fn a_hook_that_is_refused_stops_the_project() {
    let project = governed(
        "def handle(event, payload):\n    return block('no hooks') if payload['kind'] == 'hook' else allow()\n",
    );
    project.run(&["call", "it"]).gives("fine");
    project.write(".harness/hooks/guard.md", "---\nevent: tool.pre\n---\n");
    for command in [["call", "it"], ["call", "tagged"]] {
        project.run(&command).says(2, "error: the hook \"guard\" is rejected, and without it nothing runs");
    }
    project.run(&["validate"]).says(2, "error: the hook \"guard\" is rejected");
    // One that fails lets nothing in.
    let broken = governed("def handle(event, payload):\n    fail('broken')\n");
    broken.run(&["call", "it"]).says(2, "there is no tool `it`");
}

#[test]
fn a_plugin_governs_only_its_own_bundle() {
    let refuses = artifact("event: artifact.load\n", "def handle(event, payload):\n    return block('mine alone')\n");
    let project = Project::with_script(FINE)
        .file(".harness/plugins/acme/hooks/gate.md", &refuses)
        .file(".harness/plugins/acme/tools/theirs.md", &artifact("", FINE))
        .file(".harness/plugins/other/tools/others.md", &artifact("", FINE));
    project.run(&["call", "it"]).gives("fine");
    project.run(&["call", "others"]).gives("fine");
    project.run(&["call", "theirs"]).says(2, "there is no tool `theirs`");
}

#[test]
fn tags_are_a_list_of_texts() {
    let ran = Project::new().tool("it", "tags: reviewed\n", FINE).run(&["validate"]);
    ran.says(2, "`tags` must be a list, found a string");
}

/// A call whose time is over before its script is loaded is limited, in JSON too; one with enough time shows how long it
/// waited for the script.
#[test]
fn a_call_waits_for_its_script_until_its_deadline() {
    let script = "def f():\n    for i in range(2500000):\n        pass\n\nf()\n\ndef run(args):\n    return 1\n";
    let ran =
        |ms: u32| Project::new().tool("it", &format!("timeout_ms: {ms}\n"), script).run(&["call", "it", "--json"]);
    let late = ran(1);
    let report = late.json();
    let error = &report["error"];
    let told = "tool `it` was ended while its script was loaded: over the limit `timeout_ms` of 1 ms; the next call may find it loaded";
    assert_eq!(
        (late.code, &report["outcome"], &error["kind"], &error["message"], &error["hint"]),
        (
            4,
            &"limited".into(),
            &"timeout_ms".into(),
            &told.into(),
            &"`timeout_ms` in `.harness/tools/it.md:2:13` raises it".into()
        )
    );
    let report = ran(600_000).json();
    assert_eq!(report["outcome"], "completed");
    assert!(report["usage"]["loading_us"].as_u64() > Some(0), "{report}");
}

/// An error of loading shows the line that was being evaluated. Where nothing runs yet it shows the script, and not the start
/// of the file.
#[test]
fn an_error_of_loading_is_in_the_script() {
    let says = |script: &str, words: &str, place: &str| {
        let ran = Project::with_script(script).run(&["validate"]);
        ran.says(2, words);
        ran.says(2, &format!("--> .harness/tools/it.md:{place}\n"));
    };
    let endless = "def f():\n    for i in range(1 << 30):\n        for j in range(1 << 30):\n            pass\n\nf()\n\ndef run(args):\n    return 1\n";
    says(endless, "loading the script is over the limit `fuel`", "5:11");
    // The text alone is too much.
    let nested = format!("X = 1\n\ndef run(args):\n    return {}1{}\n", "args in [".repeat(700), "]".repeat(700));
    says(&nested, "loading the script is over the limit `memory`", "6:7");
    let nested = format!("X = 1\n\ndef run(args):\n    return {}1\n", "~".repeat(2000));
    says(&nested, "the script is nested too deeply", "6:7");
}
