use super::*;
use crate::agent::Agent;
use crate::plugin::Plugin;
use crate::skill::Skill;

fn of<'f>(files: &'f [(&'f str, &'f str)]) -> Files<'f> {
    files.iter().map(|(path, text)| (*path, text.as_bytes())).collect()
}

fn file<'c>(converted: &'c Converted, path: &str) -> &'c str {
    let all: Vec<&String> = converted.files.iter().map(|(path, _)| path).collect();
    let found = converted.files.iter().find(|(other, _)| other == path);
    std::str::from_utf8(&found.unwrap_or_else(|| panic!("{all:?}")).1).unwrap()
}

const MANIFEST_TEXT: &str = r#"{"name":"acme","version":"1.2.0","description":"Helps.","author":{"name":"Ada","email":"a@b.c"},"homepage":"https://a.example","license":"MIT","hooks":"./x.json","new":1}"#;

#[test]
fn a_claude_plugin() {
    let files = of(&[
        (".claude-plugin/plugin.json", MANIFEST_TEXT),
        (
            "skills/pdf/SKILL.md",
            "---\nname: other\ndescription: Fills forms.\nallowed-tools: Bash\nhooks: { a: b }\n---\nDo it.\n",
        ),
        ("skills/pdf/scripts/run.py", "print()"),
        ("skills/pdf/.env", "KEY=1"),
        ("skills/Bad_Name/SKILL.md", "---\ndescription: x\n---\n"),
        (
            "agents/reviewer.md",
            "---\nname: reviewer\ndescription: Reviews.\ntools: Read, Bash\nmodel: opus\n---\nYou review.\n",
        ),
        ("agents/broken.md", "---\ndescription: [\n---\nx\n"),
        (
            "commands/fix.md",
            "---\ndescription: Fixes.\nargument-hint: an issue\nallowed-tools: Bash(git:*)\n---\nFix $ARGUMENTS now.\n",
        ),
        ("commands/pdf.md", "Other.\n"),
        ("hooks/hooks.json", "{}"),
        ("bin/tool", "#!/bin/sh"),
        (
            SERVERS,
            r#"{"mcpServers":{"db":{"command":"npx","args":["-y","db"],"env":{"TOKEN":"x"}},"web":{"type":"http","url":"https://a.example/mcp"}}}"#,
        ),
    ]);
    assert!(is_foreign(&files));
    let converted = convert(&files, None).unwrap();
    assert_eq!(converted.form, "a Claude plugin");
    assert_eq!(
        converted.left_out,
        [
            "agents/broken.md: its front matter cannot be read",
            "bin/tool",
            "commands/pdf.md: a skill has its name",
            "hooks/hooks.json",
            "skills/Bad_Name/SKILL.md: `Bad_Name` is not a name of small letters, digits and single hyphens",
            "skills/pdf/.env",
        ]
    );
    let servers: Vec<_> =
        servers(files.get(SERVERS).copied()).into_iter().map(|one| (one.name, one.entry.is_ok())).collect();
    assert_eq!(servers, [("db".to_owned(), false), ("web".to_owned(), true)]);
    let paths: Vec<&str> = converted.files.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        [
            ".mcp.json",
            "agents/reviewer.md",
            "plugin.md",
            "skills/fix.md",
            "skills/pdf/SKILL.md",
            "skills/pdf/scripts/run.py"
        ]
    );
    let (plugin, wrong) = Plugin::parse(FILE, Some("plugins/acme"), file(&converted, FILE));
    assert_eq!(wrong.iter().count(), 0);
    let plugin = plugin.unwrap();
    assert_eq!((plugin.version.to_string(), plugin.authors), ("1.2.0".to_owned(), vec!["Ada <a@b.c>".to_owned()]));
    let rules: Vec<String> = plugin.asks.iter().flat_map(|ask| ask.rules.iter().map(ToString::to_string)).collect();
    let asked = [
        "use the service `prompt`: put its prose into the prompts of models",
        "call the tools of the MCP server `web`",
    ];
    assert_eq!(rules, asked);
    let (skill, wrong) =
        Skill::parse_at("x", "plugins/acme/skills/pdf", "pdf", file(&converted, "skills/pdf/SKILL.md"));
    assert_eq!(wrong.iter().count(), 0);
    let skill = skill.unwrap();
    assert_eq!(
        (skill.description.value.as_str(), skill.body.as_str(), skill.tools.len()),
        ("Fills forms.", "Do it.", 0)
    );
    let (command, wrong) = Skill::parse_at("x", "plugins/acme/skills/fix", "fix", file(&converted, "skills/fix.md"));
    assert_eq!(wrong.iter().count(), 0);
    assert_eq!(command.unwrap().body, "Fix {{arguments}} now.");
    let (agent, wrong) =
        Agent::parse_at("x", "plugins/acme/agents/reviewer", "reviewer", file(&converted, "agents/reviewer.md"));
    assert_eq!(wrong.iter().count(), 0);
    let agent = agent.unwrap();
    assert_eq!((agent.system_prompt.trim(), agent.tools.len()), ("You review.", 0));
    // The same files are the same plugin, and a catalogue's name counts before its own.
    assert_eq!(convert(&files, None), Ok(converted));
    let other = convert(&files, Some("other")).unwrap();
    assert!(file(&other, FILE).starts_with("---\nname: \"other\"\n"));
}

#[test]
fn folders_of_skills() {
    let skill = "---\nname: pdf\ndescription: Fills forms.\n---\nDo it.\n";
    let one = [("SKILL.md", skill), ("references/a.md", "x"), ("LICENSE", "MIT")];
    let one = of(&one);
    let converted = convert(&one, None).unwrap();
    let paths: Vec<&str> = converted.files.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["plugin.md", "skills/pdf/LICENSE", "skills/pdf/SKILL.md", "skills/pdf/references/a.md"]);
    let front = "---\nname: \"pdf\"\nversion: \"0.0.0\"\ndescription: \"Fills forms.\"\n";
    assert!(file(&converted, FILE).starts_with(front));
    assert_eq!((converted.form, converted.left_out.len()), ("a folder of Agent Skills", 0));
    let several = of(&[("skills/a/SKILL.md", "A.\n"), ("skills/b/SKILL.md", "B.\n"), ("README.md", "x")]);
    assert!(convert(&several, None).unwrap_err().starts_with("it says no name: "));
    assert_eq!(convert(&several, Some("both")).unwrap().left_out, ["README.md"]);
}

#[test]
fn what_is_none_of_these() {
    let native = of(&[("plugin.md", "---\n---\n"), (".claude-plugin/plugin.json", MANIFEST_TEXT), ("SKILL.md", "x")]);
    assert!(!is_foreign(&native) && !is_foreign(&of(&[("tools/a.md", "x")])) && !is_foreign(&of(&[])));
    for (files, why) in [
        (&[(".claude-plugin/plugin.json", "[]")][..], "`.claude-plugin/plugin.json` is no mapping"),
        (&[(".claude-plugin/plugin.json", "{")], "`.claude-plugin/plugin.json` is not JSON: "),
        (&[(".claude-plugin/plugin.json", MANIFEST_TEXT)], "it has no skill, agent or command that comes along"),
        (&[(".claude-plugin/plugin.json", r#"{"name":"Acme"}"#), ("agents/a.md", "x")], "`Acme` is not a name: "),
        (&[("SKILL.md", "---\ndescription: x\n---\n")], "`SKILL.md` says no `name` that a skill can have"),
        (&[("SKILL.md", "---\nname: ../x\n---\n")], "`SKILL.md` says no `name` that a skill can have"),
    ] {
        let told = convert(&of(files), None).unwrap_err();
        assert!(told.starts_with(why), "{told}");
    }
}
