use super::*;
use std::fs;
use tempfile::TempDir;

/// A project of these files.
fn project(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn shown(registry: &Registry) -> String {
    registry.diagnostics().iter().map(|d| registry.render(d, false)).collect::<Vec<_>>().join("\n")
}

const EMPTY: &str = "---\n---\n";
const HOOK: &str = "---\nevent: tool.pre\n---\n";

#[test]
fn in_the_order_of_paths() {
    let root = project(&[
        (".harness/harness.md", "---\nsandbox: { env: [A] }\n---\n"),
        (".harness/tools/b.md", EMPTY),
        (".harness/tools/a.md", EMPTY),
        (".harness/tools/B.md", EMPTY),
        (".harness/tools/notes.txt", "no artifact"),
        (".harness/tools/.hidden.md", "no artifact"),
        (".harness/hooks/y.md", HOOK),
        (".harness/hooks/x.md", HOOK),
    ]);
    let registry = Registry::load(root.path());
    assert_eq!(shown(&registry), "");
    assert_eq!(registry.tools().iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["B", "a", "b"]);
    assert_eq!(registry.hooks().iter().map(|h| h.name.as_str()).collect::<Vec<_>>(), ["x", "y"]);
    assert_eq!(registry.tools()[0].source_name, "tools/B");
    let grant = registry.policy().unwrap().grant_for("tools/a", None);
    assert!(grant.decide_env("A").is_ok() && grant.decide_env("B").is_err());
    let files: Vec<&str> = registry.sources().keys().map(String::as_str).collect();
    assert_eq!(
        files,
        [
            ".harness/harness.md",
            ".harness/hooks/x.md",
            ".harness/hooks/y.md",
            ".harness/tools/B.md",
            ".harness/tools/a.md",
            ".harness/tools/b.md"
        ]
    );
}

#[test]
fn what_is_not_read_is_told() {
    let root = project(&[
        (".harness/hook/guard.md", HOOK),
        (".harness/Tools/a.md", EMPTY),
        (".harness/hooks/a.markdown", HOOK),
        (".harness/hooks/deep/b.md", HOOK),
        (".harness/hooks/data/words.txt", ""),
        (".harness/plugins/acme.MD", EMPTY),
        (".harness/plugins/x/hook/guard.md", HOOK),
        (".harness/plugins/x/tools/a.md", EMPTY),
        (".harness/plugins/x/README.md", ""),
        (".harness/audit/key", ""),
        (".harness/toolz", "no folder"),
        (".harness/notes/n.md", ""),
    ]);
    insta::assert_snapshot!(shown(&Registry::load(root.path())), @"
    warning: `.harness/Tools/` is not read
     |
     = hint: did you mean `tools/`?
    error: `.harness/hook/guard.md` is not read, but holds an artifact or a policy
     |
     = hint: did you mean `hooks/`?
    error: `.harness/hooks/deep/b.md` is not read, but holds an artifact or a policy
     |
     = hint: an artifact is a file `NAME.md` in `.harness/hooks/` itself
    error: `.harness/hooks/a.markdown` is not read, but holds an artifact or a policy
     |
     = hint: an artifact is a file `NAME.md` in `.harness/hooks/` itself
    warning: `.harness/plugins/acme.MD` is not read
     |
     = hint: a bundle is a file `NAME.md`, or a folder
    error: `.harness/plugins/x/hook/guard.md` is not read, but holds an artifact or a policy
     |
     = hint: did you mean `hooks/`?
    ");
}

/// Its author believes that it guards, wherever in the folder it is and whatever hides it.
#[test]
fn what_is_hidden_is_no_guard() {
    let root = project(&[
        (".harness/.guard.md", HOOK),
        (".harness/.harness.md", "---\nsandbox: {}\n---\n"),
        (".harness/.hooks/guard.md", HOOK),
        (".harness/hooks/.guard.md", HOOK),
        (".harness/plugins/.acme/hooks/.g.md", HOOK),
        (".harness/sessions/g.md", HOOK),
        (".harness/audit/g.md", HOOK),
        (".harness/stray.md", "---\nhooks: [{name: a, event: tool.pre, script: x}]\n---\n"),
        (".harness/README.md", "# For people\n"),
        // Nothing is said of these.
        (".harness/.gitignore", "sessions/\n"),
        (".harness/.git/hooks/x.md", HOOK),
        (".harness/tools/.a.md.swp", "b0VIM"),
        (".harness/tools/._a.md", ""),
        (".harness/tools/a.md", EMPTY),
    ]);
    let registry = Registry::load(root.path());
    let said: Vec<String> = registry.diagnostics().iter().map(|one| one.message.clone()).collect();
    let holds = |name: &str| format!("`.harness/{name}` is not read, but holds an artifact or a policy");
    assert_eq!(
        said,
        [
            holds(".guard.md"),
            holds(".harness.md"),
            holds(".hooks/guard.md"),
            "`.harness/README.md` is not read".to_owned(),
            holds("stray.md"),
            holds("audit/g.md"),
            holds("sessions/g.md"),
            holds("hooks/.guard.md"),
            holds("plugins/.acme/hooks/.g.md"),
        ]
    );
    assert!(registry.policy().is_none());
}

#[test]
fn without_a_policy_file_the_defaults_hold() {
    let registry = Registry::load(project(&[(".harness/tools/a.md", EMPTY)]).path());
    assert_eq!(registry.policy(), Some(&ProjectPolicy::absent(".harness/harness.md")));
}

#[test]
fn a_bad_policy_is_no_policy() {
    let root = project(&[(".harness/harness.md", "---\nsandbox: { evn: [A] }\n---\n"), (".harness/tools/a.md", EMPTY)]);
    let registry = Registry::load(root.path());
    assert_eq!(registry.policy(), None);
    assert_eq!(registry.tools().len(), 1);
    insta::assert_snapshot!(shown(&registry), @r#"
    error: unknown key `sandbox.evn`
     --> .harness/harness.md:2:12
      |
    2 | sandbox: { evn: [A] }
      |            ^^^
      |
      = hint: did you mean `env`?
    "#);
}

#[test]
fn a_broken_tool_stops_only_itself() {
    let broken = (".harness/tools/broken.md", "");
    let good = (".harness/tools/good.md", EMPTY);
    let registry = Registry::load(project(&[broken, good, (".harness/hooks/good.md", HOOK)]).path());
    assert_eq!((registry.tools().len(), registry.diagnostics().errors(), registry.policy().is_some()), (1, 1, true));
    let registry = Registry::load(project(&[good, (".harness/hooks/broken.md", "")]).path());
    assert_eq!((registry.tools().len(), registry.diagnostics().errors(), registry.policy().is_some()), (1, 1, false));
}

#[test]
fn no_folder() {
    let registry = Registry::load(project(&[]).path());
    assert_eq!(registry.policy(), None);
    insta::assert_snapshot!(shown(&registry), @r#"
    error: there is not a folder `.harness` here
     |
     = hint: make one with `harness init`
    "#);
}

#[test]
fn every_file_with_its_errors() {
    let root = project(&[
        (
            ".harness/harness.md",
            "---\nmodell: x\ntools: []\nhooks: []\nsandbox: { sources: { tools/goood: {}, plugins/x: {} } }\n---\n",
        ),
        (".harness/tools/bad.md", "---\ntimeout_ms: -1\n---\n"),
        (".harness/tools/good.md", EMPTY),
        (".harness/hooks/bad.md", "---\nevent: x\n---\n"),
        (".harness/hooks/worse.md", "no front matter"),
    ]);
    fs::write(root.path().join(".harness/tools/latin1.md"), b"---\n\xe9\n---\n").unwrap();
    fs::write(root.path().join(".harness/tools/large.md"), vec![b'a'; (1 << 20) + 1]).unwrap();
    fs::create_dir(root.path().join(".harness/tools/folder.md")).unwrap();
    let registry = Registry::load(root.path());
    assert_eq!(registry.tools().iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["good"]);
    // A broken hook may be the one that guards.
    assert_eq!(registry.policy(), None);
    insta::assert_snapshot!(shown(&registry), @r#"
    warning: unknown key `modell`, it is ignored
     --> .harness/harness.md:2:1
      |
    2 | modell: x
      | ^^^^^^
      |
      = hint: did you mean `model`?
    error: tool "bad" timeout_ms must be >= 0
     --> .harness/tools/bad.md:2:13
      |
    2 | timeout_ms: -1
      |             ^^
    error: cannot read `.harness/tools/folder.md`: not a regular file
    error: cannot read `.harness/tools/large.md`: larger than 1048576 bytes
    error: cannot read `.harness/tools/latin1.md`: not UTF-8 text
    --> .harness/tools/latin1.md:2:1
     = hint: save the file as UTF-8
    error: hooks[0].event "x" is invalid
     --> .harness/hooks/bad.md:2:8
      |
    2 | event: x
      |        ^
      |
      = hint: events are session.start, session.end, turn.start, turn.end, tool.pre, tool.post, completion.pre, completion.post, delegation.pre, delegation.post, delegation.post_verify, agent.stop, builtin.pre, builtin.post, artifact.load, mcp.list, error, `custom.NAME` and `meta.NAME`
    error: parse hook worse.md: the first line is not `---`
     --> .harness/hooks/worse.md:1:1
      |
    1 | no front matter
      | ^^^^^^^^^^^^^^^
      |
      = hint: begin the file with a line `---`, then the YAML, then a second line `---`
    warning: `sandbox.sources` names `tools/goood`, which is not there
     --> .harness/harness.md:5:23
      |
    5 | sandbox: { sources: { tools/goood: {}, plugins/x: {} } }
      |                       ^^^^^^^^^^^
      |
      = hint: did you mean `tools/good`?
    warning: `sandbox.sources` names `plugins/x`, which is not there
     --> .harness/harness.md:5:40
      |
    5 | sandbox: { sources: { tools/goood: {}, plugins/x: {} } }
      |                                        ^^^^^^^^^
    "#);
}

#[cfg(unix)]
#[test]
fn links_may_not_lead_out() {
    use std::os::unix::fs::symlink;
    let root =
        project(&[(".harness/tools/real.md", EMPTY), ("outside/tool.md", EMPTY), ("outside/hooks/guard.md", HOOK)]);
    let harness = root.path().join(".harness");
    symlink("real.md", harness.join("tools/inside.md")).unwrap();
    symlink("../../outside/tool.md", harness.join("tools/out.md")).unwrap();
    symlink("nowhere", harness.join("tools/dangling.md")).unwrap();
    symlink("../outside/hooks", harness.join("hooks")).unwrap();
    symlink("nowhere", harness.join("harness.md")).unwrap();
    let registry = Registry::load(root.path());
    assert_eq!(registry.tools().iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["inside", "real"]);
    assert_eq!(registry.hooks().len(), 0);
    assert_eq!(registry.policy(), None);
    insta::assert_snapshot!(shown(&registry), @r#"
    error: cannot read `.harness/harness.md`: No such file or directory (os error 2)
    error: cannot read `.harness/tools/dangling.md`: No such file or directory (os error 2)
    error: cannot read `.harness/tools/out.md`: a link leads out of the folder
    error: cannot read `.harness/hooks`: a link leads out of the folder
    "#);
}

#[test]
fn a_name_has_one_owner() {
    let root = project(&[
        (".harness/tools/x.md", EMPTY),
        (".harness/hooks/x.md", HOOK),
        (".harness/plugins/p/tools/x.md", EMPTY),
        (".harness/plugins/p/hooks/x.md", HOOK),
    ]);
    let registry = Registry::load(root.path());
    assert_eq!((registry.tools().len(), registry.hooks().len(), registry.policy()), (1, 1, None));
    assert_eq!(&*registry.tools()[0].source.file, ".harness/plugins/p/tools/x.md");
    insta::assert_snapshot!(shown(&registry), @r#"
    error: tool "x" is defined more than once
     --> .harness/tools/x.md:1:1
      |
    1 | ---
      | ^^^
      |
      = hint: it is first defined at .harness/plugins/p/tools/x.md:1:1; to replace it on purpose, put this one in `overrides/`
    error: hook "x" is defined more than once
     --> .harness/plugins/p/hooks/x.md:1:1
      |
    1 | ---
      | ^^^
      |
      = hint: it is first defined at .harness/hooks/x.md:1:1; to replace it on purpose, put this one in `overrides/`
    "#);
}

#[test]
fn an_unknown_tool_has_close_names() {
    let root = project(&[
        (".harness/tools/read_file.md", EMPTY),
        (".harness/tools/read_lines.md", EMPTY),
        (".harness/tools/deploy.md", EMPTY),
    ]);
    let registry = Registry::load(root.path());
    assert_eq!(registry.tool("deploy").map(|t| t.name.as_str()), Ok("deploy"));
    let unknown = registry.tool("read_fil").unwrap_err();
    assert_eq!(unknown.to_string(), "there is no tool `read_fil`");
    assert_eq!(unknown.hint().as_deref(), Some("did you mean `read_file` or `read_lines`?"));
    assert_eq!(registry.tool("zzz").unwrap_err().hint(), None);
}

/// Suggestions are for what is shown: a skill may name a hundred tools, and there may be thousands.
#[test]
fn one_suggestion_for_each_skill_that_names_what_is_not_there() {
    let skill = |n: usize| {
        let names: Vec<String> = (0..100).map(|tool| format!("nothing_{tool}")).collect();
        format!("---\nname: s{n}\ndescription: d\nallowed-tools: {}\n---\nx\n", names.join(" "))
    };
    let mut files: Vec<(String, String)> =
        (0..40).map(|n| (format!(".harness/tools/tool{n}.md"), EMPTY.to_owned())).collect();
    files.extend((0..120).map(|n| (format!(".harness/skills/s{n}.md"), skill(n))));
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let root = project(&files);
    let before = suggest::compared();
    let registry = Registry::load(root.path());
    assert_eq!((registry.diagnostics().warnings(), registry.diagnostics().len()), (120, 100));
    assert_eq!(suggest::compared() - before, 100 * 40);
}
