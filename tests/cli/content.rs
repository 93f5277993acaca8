//! Results that are more than a value, and progress, at the command line and in agents.

use insta::assert_snapshot;
use serde_json::json;

use crate::agent_turns::agent;
use crate::project::Project;

const BOTH: &str =
    "def run(args):\n    return [content.text('a'), content.image(fs.read_base64('a.png'), 'image/png')]\n";
/// The first bytes of an image, which are no text.
const PNG: [u8; 8] = [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a];

fn project() -> Project {
    let project = Project::new().tool("it", "", BOTH);
    std::fs::write(project.path("a.png"), PNG).unwrap();
    project
}

#[test]
fn blocks_are_printed_as_text_and_lines() {
    let project = project();
    project.run(&["call", "it"]).gives("a\n[image: image/png, 8 bytes]");
    let json = project.run(&["call", "it", "--json"]).json();
    let blocks = json!([
        {"type": "text", "text": "a"},
        {"type": "image", "mime": "image/png", "data": "iVBORw0KGgo="},
    ]);
    assert_eq!((&json["blocks"], &json["content"]), (&blocks, &json!("a\n[image: image/png, 8 bytes]")));
    let plain = Project::with_script("def run(args):\n    return 1\n").run(&["call", "it", "--json"]).json();
    assert_eq!(plain.get("blocks"), None);
}

#[test]
fn steps_are_printed_as_they_come() {
    let script = "def run(args):\n    progress(1, 2, 'half')\n    progress(2, 2)\n    return 'done'\n";
    assert_snapshot!(Project::with_script(script).run(&["call", "it"]), @"
    exit 0
    --- stdout
    done
    --- stderr
    it: 1 of 2, half
    it: 2 of 2
    ");
}

#[test]
fn a_case_checks_blocks_and_gives_answers() {
    let script = "def run(args):\n    name = ask.user('Who?', {'type': 'object', 'properties': {'name': {'type': 'string'}}})\n    return content.text(name['content']['name'] + ' ' + ask.model('hi')['text'])\n";
    let script: String = script.lines().map(|line| format!("  {line}\n")).collect();
    let case = |name: &str, answers: &str, expect: &str| {
        format!(
            "  - name: {name}\n    given: {{ granted: {{ services: [ask_user, ask_model] }}, answers: {answers} }}\n    {expect}\n"
        )
    };
    let user = "user: [{ action: accept, content: { name: Ada } }]";
    let cases = [
        case(
            "answers",
            &format!("{{ {user}, model: [{{ text: yes, model: m, stop_reason: x }}] }}").replace("yes", "'yes'"),
            "expect: { blocks: [{ type: text, text: Ada yes }], content: Ada yes, result: Ada yes }",
        ),
        case("has no model", &format!("{{ {user} }}"), "contains: { error: 'the case gives no `answers.model`' }"),
        case(
            "runs out",
            &format!("{{ {user}, model: [] }}"),
            "contains: { error: 'the case gives no further `answers.model`' }",
        ),
    ]
    .concat();
    let project =
        Project::new().file(".harness/tools/it.md", &format!("---\nscript: |\n{script}tests:\n{cases}---\n# it\n"));
    let ran = project.run(&["test"]);
    assert!(ran.code == 0 && ran.out.contains("3 cases, 3 passed, 0 failed"), "{ran}");
}

#[test]
fn a_model_gets_texts_and_a_replay_finds_the_same() {
    let replies = "- tool_calls: [{ name: it }]\n- expect: \"a\\n[image: image/png, 8 bytes]\"\n  text: Seen.\n";
    let script = BOTH.replace("    return", "    progress(1, 2)\n    return");
    let project = agent("", replies).tool("it", "", &script);
    std::fs::write(project.path("a.png"), PNG).unwrap();
    project.run(&["run", "Look."]).gives("Seen.");
    let same = |project: &Project| {
        let ran = project.run(&["sessions", "replay"]);
        assert!(ran.out.contains(": replay matches: "), "{ran}");
    };
    same(&project);
    // The image is in the record, not read again; another one of the same size would differ.
    std::fs::remove_file(project.path("a.png")).unwrap();
    same(&project);
    let project = project.tool("it", "", &script.replace("fs.read_base64('a.png')", "'AAAAAAAAAAA='"));
    project.run(&["sessions", "replay"]).says(1, "");
}
