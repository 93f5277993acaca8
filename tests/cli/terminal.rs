//! Colors, and what a terminal gets instead of what would act on it.

use crate::project::Project;

/// Returns, and fails with, text that moves a cursor, recolors, and turns the reading order.
const HOSTILE: &str = "\
def run(args):
    text = 'a\\x1b[2Jb\\u202ec\\td'
    if args.get('fail'):
        fail(text)
    return text
";

#[test]
fn color_is_for_terminals_or_whoever_asks_for_it() {
    let project = Project::with_script("def run(args):\n    fail('no')\n");
    let colored = |text: &str| text.contains("\x1b[");
    let plain = project.run(&["call", "it"]);
    assert!(!colored(&plain.err));
    assert!(colored(&project.run(&["--color", "always", "call", "it"]).err));
    assert!(colored(&project.run(&["call", "it", "--color", "always"]).err));
    // Asked for is asked for; the variable is about the default.
    assert!(colored(&project.shell("NO_COLOR=1 \"$HARNESS\" call it --color always").err));

    assert!(colored(&project.on_terminal("\"$HARNESS\" call it").out));
    assert!(!colored(&project.on_terminal("NO_COLOR=1 \"$HARNESS\" call it").out));
    assert!(!colored(&project.on_terminal("\"$HARNESS\" call it --color never").out));
    assert!(colored(&project.on_terminal("NO_COLOR= \"$HARNESS\" call it").out), "an empty NO_COLOR means nothing");
}

#[test]
fn a_result_is_escaped_for_a_terminal_and_for_nothing_else() {
    let project = Project::with_script(HOSTILE);
    project.run(&["call", "it"]).gives("a\x1b[2Jb\u{202e}c\td");
    let seen = project.on_terminal("\"$HARNESS\" call it");
    assert_eq!((seen.code, seen.out.as_str()), (0, "a\\u{1b}[2Jb\\u{202e}c\td\r\n"));
}

/// An error is talk: it is escaped wherever it goes, as a file that it is kept in may end on a terminal too.
#[test]
fn an_error_never_holds_control_characters() {
    let project = Project::with_script(HOSTILE);
    let ran = project.run(&["call", "it", "fail=1"]);
    ran.says(1, "a\\u{1b}[2Jb\\u{202e}c\\td");
    assert!(!ran.err.contains(['\x1b', '\u{202e}']), "{ran:?}");
    let seen = project.on_terminal("\"$HARNESS\" call it fail=1 --color never");
    assert!(seen.out.contains("a\\u{1b}[2Jb\\u{202e}c\\td") && !seen.out.contains('\x1b'), "{seen:?}");
    let logged = Project::with_script("def run(args):\n    log('\\x1b[2J')\n").run(&["call", "it"]);
    assert_eq!(logged.err, "[info] \\u{1b}[2J\n");
    let unknown = project.run(&["call", "\x1b[2J"]);
    assert!(unknown.code == 2 && !unknown.err.contains('\x1b'), "{unknown:?}");
}

/// No command shows the sequences of its own colors as text, and `test` colors what it prints.
#[test]
fn every_command_colors_what_it_prints() {
    let cases = "tests:\n  - { name: fails, expect: { result: 2 } }\n  - { name: passes, expect: { result: 1 } }\n";
    let project = Project::with_script("def run(args):\n    return 1\n")
        .tool("checked", cases, "def run(args):\n    return 1\n")
        .with_handle("guard", "tool.pre", "", "return allow()")
        .file(".harness/agents/helper.md", "---\ndescription: Helps.\n---\nYou help.\n")
        .file("replies.yaml", "- text: Hi.\n")
        .policy("model: { provider: script, script: replies.yaml }\n");
    assert_eq!(project.run(&["run", "Hello."]).code, 0);
    let commands = [
        "test",
        "test -q",
        "call it --explain",
        "call none",
        "run Hello.",
        "inspect",
        "tools",
        "hooks",
        "agents",
        "skills",
        "context",
        "validate",
        "policy show it",
        "lock",
        "sessions list",
        "sessions show",
        "sessions replay",
        "audit list",
        "doctor",
        "fire tool.pre '{}' --explain",
        "policy learn -- call it",
        "plugin list",
        "mcp list",
        "schema tool",
    ];
    for command in commands {
        let seen = project.on_terminal(&format!("\"$HARNESS\" {command}"));
        assert!(!seen.out.contains("\\u{1b}"), "{command}: {seen}");
        let plain = project.on_terminal(&format!("NO_COLOR=1 \"$HARNESS\" {command}"));
        assert!(!plain.out.contains("\x1b[3"), "{command}: {plain}");
    }
    let seen = project.on_terminal("\"$HARNESS\" test checked").out;
    for part in ["\x1b[1;31mFAIL\x1b[0m tool checked: fails\r\n", "\x1b[32mok  \x1b[0m tool checked: passes\r\n"] {
        assert!(seen.contains(part), "{seen:?}");
    }
    assert!(seen.contains("\x1b[31m     - 2\x1b[0m\r\n\x1b[32m     + 1\x1b[0m\r\n"), "{seen:?}");
}
