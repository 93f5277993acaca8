//! The rules about commands, as a specification.

use super::*;
use crate::layer::{Layer, Origin, Scope};
use crate::limits::LimitRules;
use proptest::prelude::*;

fn rules(allow: &[&str], env: &[&str]) -> ExecRules {
    ExecRules {
        allow: allow.iter().map(|text| CommandRule::parse(text).unwrap_or_else(|error| panic!("{error}"))).collect(),
        env: env.iter().map(|&name| name.to_owned()).collect(),
        network: CommandNetwork::None,
        unconfined: false,
        folders: Vec::new(),
    }
}

fn layer(scope: Scope, exec: Option<ExecRules>) -> Layer {
    Layer {
        origin: Origin::new(".harness/harness.md", scope),
        fs: None,
        network: None,
        exec,
        env: None,
        services: None,
        secrets: None,
        limits: LimitRules::default(),
    }
}

fn grant(allow: &[&str], env: &[&str]) -> Grant {
    Grant::new(vec![layer(Scope::Project, Some(rules(allow, env)))])
}

fn owned(args: &[&str]) -> Vec<String> {
    args.iter().map(|&arg| arg.to_owned()).collect()
}

/// The first word is the program.
fn covers(rule: &str, command: &[&str]) -> bool {
    let (program, args) = command.split_first().unwrap();
    grant(&[rule], &[]).decide_command(program, &owned(args)).is_ok()
}

#[test]
fn a_program_alone_is_that_program_with_any_arguments() {
    assert!(covers("git", &["git"]));
    assert!(covers("git", &["git", "push", "--force"]));
    assert!(covers(" git ", &["git", "push"]));
    for command in [&["gitk"][..], &["Git"], &["/usr/bin/git"], &["./git"], &["git "], &[""], &["*"]] {
        assert!(!covers("git", command), "{command:?}");
    }
}

#[test]
fn words_are_arguments_and_their_number_counts() {
    assert!(covers("cargo test", &["cargo", "test"]));
    for command in
        [&["cargo"][..], &["cargo", "test", "--release"], &["cargo", "tests"], &["cargo", "Test"], &["cargo", "test "]]
    {
        assert!(!covers("cargo test", command), "{command:?}");
    }
}

#[test]
fn a_star_at_the_end_is_any_further_arguments() {
    for command in [&["cargo", "test"][..], &["cargo", "test", "a"], &["cargo", "test", "--", "--nocapture"]] {
        assert!(covers("cargo test *", command), "{command:?}");
    }
    for command in [&["cargo"][..], &["cargo", "run"], &["cargo", "--config", "x", "test"], &["cargo", "testing", "x"]]
    {
        assert!(!covers("cargo test *", command), "{command:?}");
    }
    assert!(covers("git *", &["git"]));
    assert!(covers("git *", &["git", "a", "b"]));
}

#[test]
fn a_star_or_question_mark_inside_is_within_one_argument() {
    for (rule, arg, want) in [
        ("lint src/*.rs", "src/a.rs", true),
        ("lint src/*.rs", "src/a/b.rs", true),
        ("lint src/*.rs", "src/.rs", true),
        ("lint src/*.rs", "src/a.rs.bak", false),
        ("lint src/*.rs", "out/a.rs", false),
        ("lint *a*b*c", "xxaxxbxxbc", true),
        ("lint *a*b*c", "xxaxxcxxb", false),
        ("lint v?.?", "v1.2", true),
        ("lint v?.?", "v1.22", false),
        ("lint v?.?", "v1.", false),
        ("lint ?", "é", true),
        ("lint a**b", "ab", true),
    ] {
        assert_eq!(covers(rule, &["lint", arg]), want, "{rule} {arg}");
    }
    assert!(covers("git * status", &["git", "x", "status"]));
    assert!(!covers("git * status", &["git", "x", "y", "status"]));
    assert!(!covers("lint src/*.rs", &["lint", "src/a.rs", "src/b.rs"]));
}

#[test]
fn a_word_that_starts_with_a_star_matches_no_option() {
    assert!(covers("rustfmt *.rs", &["rustfmt", "a.rs"]));
    assert!(!covers("rustfmt *.rs", &["rustfmt", "--config-path=evil.rs"]));
    assert!(!covers("lint ?x", &["lint", "-x"]));
    assert!(covers("lint -*", &["lint", "-x"]));
    assert!(covers("lint *", &["lint", "-x"]), "a last `*` is any arguments");
}

#[test]
fn quotes_keep_spaces_and_take_the_meaning_of_a_star() {
    assert!(covers("echo \"a b\"", &["echo", "a b"]));
    assert!(!covers("echo \"a b\"", &["echo", "a", "b"]));
    assert!(covers("echo --x=\"a b\"", &["echo", "--x=a b"]));
    assert!(covers("echo \"\"", &["echo", ""]));
    assert!(!covers("echo \"\"", &["echo"]));
    assert!(covers("echo \"*\"", &["echo", "*"]));
    assert!(!covers("echo \"*\"", &["echo", "x"]));
    assert!(!covers("echo \"*\"", &["echo"]));
    assert!(covers("\"my tool\" x", &["my tool", "x"]));
    assert!(covers("echo a\\b", &["echo", "a\\b"]));
}

#[test]
fn a_path_is_that_path_only() {
    assert!(covers("/usr/bin/git status", &["/usr/bin/git", "status"]));
    for command in [
        &["git", "status"][..],
        &["/usr/bin/../bin/git", "status"],
        &["//usr/bin/git", "status"],
        &["/bin/git", "status"],
    ] {
        assert!(!covers("/usr/bin/git status", command), "{command:?}");
    }
}

#[test]
fn what_is_not_a_command_is_no_rule() {
    for text in [
        "",
        "   ",
        "\"\"",
        "\"unclosed",
        "git \"x",
        "*",
        "gi*",
        "g?t x",
        "./git",
        "bin/git",
        "../git",
        ".",
        "..",
        "/",
        "/usr//bin/git",
        "/usr/./git",
        "/usr/../git",
        "/usr/bin/",
        "git\nstatus",
        "git\tstatus",
        "git\0",
    ] {
        let error = CommandRule::parse(text).expect_err(text);
        assert!(error.starts_with('`') && !error.contains('\n') && !error.ends_with('.'), "{error}");
    }
    assert!(CommandRule::parse(&"x".repeat(1024)).is_ok());
    assert!(CommandRule::parse(&"x".repeat(1025)).is_err());
}

#[test]
fn an_empty_list_and_no_list_are_nothing() {
    let args = owned(&["push", "a b"]);
    let refusal = Refusal::new(
        "the command `git push a b` is not allowed",
        "add `git push \"a b\"` to `sandbox.exec.allow` in `.harness/harness.md`",
    );
    assert_eq!(grant(&["git push \"a b\""], &[]).decide_command("git", &args), Ok(()));
    assert_eq!(grant(&[], &[]).decide_command("git", &args), Err(refusal.clone()));
    assert_eq!(Grant::new(vec![layer(Scope::Project, None)]).decide_command("git", &args), Err(refusal.clone()));
    assert_eq!(Grant::new(vec![]).decide_command("git", &args), Err(refusal));
}

#[test]
fn every_layer_must_agree() {
    let both = Grant::new(vec![
        layer(Scope::Project, Some(rules(&["git"], &["CI", "LANG"]))),
        layer(Scope::Source("tools/deploy".to_owned()), None),
        layer(Scope::Artifact, Some(rules(&["git status"], &["LANG", "HOME"]))),
    ]);
    assert_eq!(both.decide_command("git", &owned(&["status"])), Ok(()));
    assert_eq!(
        both.decide_command("ls -l", &[]),
        Err(Refusal::new(
            "the command `ls -l` is not allowed",
            "a program is named alone, and its arguments are a list: `exec.run(\"ls\", [\"-l\"])`",
        ))
    );
    assert_eq!(
        both.decide_command("git", &owned(&["push"])),
        Err(Refusal::new(
            "the command `git push` is not allowed",
            "add `git push` to `capabilities.exec.allow` in `.harness/harness.md`",
        ))
    );
    assert_eq!(both.exec_env(), ["LANG"]);
    assert_eq!(both.decide_child_env("LANG"), Ok(()));
    assert!(both.decide_child_env("HOME").is_err());
    assert_eq!(Grant::new(vec![]).exec_env(), [""; 0]);
}

#[test]
fn folders_are_those_that_every_layer_covers() {
    let layer_of = |folders: &[&str]| {
        let folders = folders.iter().map(|text| FolderRule::parse(text).unwrap()).collect();
        layer(Scope::Project, Some(ExecRules { folders, ..rules(&["git"], &[]) }))
    };
    let of = |layers: Vec<Layer>| Grant::new(layers).exec_folders().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(of(vec![layer_of(&["/opt", "~/.cargo"])]), ["/opt", "~/.cargo"]);
    assert_eq!(of(vec![layer_of(&["/opt", "~/.cargo"]), layer_of(&["/opt/go", "/srv"])]), ["/opt/go"]);
    assert_eq!(of(vec![layer_of(&["/opt"]), layer_of(&[])]), [""; 0]);
    assert_eq!(of(vec![layer_of(&["/opt"]), layer(Scope::Artifact, None)]), ["/opt"]);
    assert_eq!(of(vec![]), [""; 0]);
}

#[test]
fn network_and_unconfined_need_every_layer() {
    let open = ExecRules { network: CommandNetwork::All, unconfined: true, ..rules(&["git"], &[]) };
    let wide = Grant::new(vec![layer(Scope::Project, Some(open.clone())), layer(Scope::Artifact, None)]);
    let narrowed =
        Grant::new(vec![layer(Scope::Project, Some(open)), layer(Scope::Artifact, Some(rules(&["git"], &[])))]);
    assert_eq!((wide.exec_network(), wide.exec_unconfined()), (CommandReach::All, true));
    assert_eq!((narrowed.exec_network(), narrowed.exec_unconfined()), (CommandReach::None, false));
    let silent = Grant::new(vec![]);
    assert_eq!((silent.exec_network(), silent.exec_unconfined()), (CommandReach::None, false));
}

#[test]
fn a_command_that_no_line_can_spell_gets_a_list_or_no_rule() {
    let refusal = grant(&[], &[]).decide_command("sh", &owned(&["-c", "echo \"`id`\"\n\u{202e}"])).unwrap_err();
    assert_eq!(
        refusal,
        Refusal::new(
            "the command `sh -c echo \"'id'\"\\n\\u{202e}` is not allowed",
            "add `{ argv: [sh, \"-c\", \"echo \\\"\\U00000060id\\U00000060\\\"\\n\\U0000202e\"] }` to `sandbox.exec.allow` in \
             `.harness/harness.md`",
        )
    );
    let alone = grant(&[], &[]).decide_command("ls", &[]).unwrap_err();
    assert_eq!(alone.hint, "add `{ argv: [ls] }` to `sandbox.exec.allow` in `.harness/harness.md`");
    let longer = grant(&[], &[]).decide_command("sh", &owned(&["-c", &"x".repeat(700)])).unwrap_err();
    assert_eq!(
        longer.hint,
        "the rule for it is too long to show: write the program and each argument as `{ argv: [...] }` in \
         `sandbox.exec.allow`"
    );
    let long = grant(&[], &[]).decide_command("sh", &vec!["x".repeat(1000); 1000]).unwrap_err();
    assert!(long.reason.chars().count() < 200 && long.hint.is_empty(), "{long:?}");
    assert_eq!(grant(&[], &[]).decide_command("./a", &[]).unwrap_err().hint, "");
}

#[test]
fn a_variable_of_a_script_needs_a_grant() {
    let granted = grant(&[], &["CI", "RUST_LOG"]);
    assert_eq!(granted.decide_child_env("CI"), Ok(()));
    assert_eq!(granted.decide_child_env("RUST_LOG"), Ok(()));
    assert_eq!(
        granted.decide_child_env("LANG"),
        Err(Refusal::new(
            "the variable `LANG` is not granted to commands",
            "add `LANG` to `sandbox.exec.env` in `.harness/harness.md`",
        ))
    );
}

#[test]
fn no_policy_lets_a_script_set_what_changes_programs() {
    for name in [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_X",
        "ld_preload",
        "DYLD_INSERT_LIBRARIES",
        "GIT_SSH_COMMAND",
        "GIT_DIR",
        "PAGER",
        "MANPAGER",
        "EDITOR",
        "VISUAL",
        "BASH_ENV",
        "ENV",
        "IFS",
        "SHELLOPTS",
        "PS4",
        "PERL5OPT",
        "PERL5LIB",
        "PERLLIB",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "RUBYOPT",
        "RUBYLIB",
        "NODE_OPTIONS",
        "JAVA_TOOL_OPTIONS",
        "HTTP_PROXY",
        "https_proxy",
        "NO_PROXY",
        "all_proxy",
        "PATH",
        "HOME",
        "RUSTC_WRAPPER",
        "CARGO_BUILD_RUSTC",
    ] {
        let refusal = grant(&[], &[name]).decide_child_env(name);
        let want = Err(Refusal::always(format!("the variable `{name}` changes how programs load or run")));
        assert_eq!(refusal, want, "{name}");
        // The operator's own value is another matter.
        assert_eq!(grant(&[], &[name]).exec_env(), [name]);
    }
}

#[test]
fn a_variable_has_a_plain_name() {
    for name in ["", "A=B", "A B", "1A", "A-B", "BASH_FUNC_x%%", "É", "A\0", "A\n", &"A".repeat(256)] {
        let refusal = grant(&[], &[name]).decide_child_env(name).unwrap_err();
        assert_eq!(refusal.hint, "", "{name}");
        assert!(refusal.reason.ends_with("is not the name of a variable"), "{}", refusal.reason);
    }
    assert_eq!(grant(&[], &["_x1"]).decide_child_env("_x1"), Ok(()));
}

proptest! {
    #[test]
    fn no_rule_panics(text in "\\PC{0,40}", program in "\\PC{0,10}", args in prop::collection::vec("\\PC{0,10}", 0..4)) {
        if let Ok(rule) = CommandRule::parse(&text) {
            rule.covers(&program, &args);
            prop_assert_eq!(CommandRule::parse(&rule.to_string()), Ok(rule));
        }
    }

    #[test]
    fn a_pattern_agrees_with_the_obvious_recursion(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
        fn obvious(pattern: &str, text: &str) -> bool {
            let (Some(first), rest) = (pattern.chars().next(), pattern.get(1..).unwrap_or("")) else { return text.is_empty() };
            match first {
                '*' => (0..=text.len()).any(|from| obvious(rest, &text[from..])),
                '?' => !text.is_empty() && obvious(rest, &text[1..]),
                c => text.starts_with(c) && obvious(rest, &text[1..]),
            }
        }
        // A word in the middle, where a lone `*` is one argument, and never an empty word.
        let rule = format!("x \"\"{pattern} end");
        prop_assert_eq!(covers(&rule, &["x", &text, "end"]), obvious(&pattern, &text));
    }
}
