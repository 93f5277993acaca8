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
    let converted = convert(&files, None, None).unwrap();
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
    assert_eq!(convert(&files, None, None), Ok(converted));
    let other = convert(&files, Some("other"), None).unwrap();
    assert!(file(&other, FILE).starts_with("---\nname: \"other\"\n"));
}

#[test]
fn folders_of_skills() {
    let skill = "---\nname: pdf\ndescription: Fills forms.\n---\nDo it.\n";
    let one = [("SKILL.md", skill), ("references/a.md", "x"), ("LICENSE", "MIT")];
    let one = of(&one);
    let converted = convert(&one, None, None).unwrap();
    let paths: Vec<&str> = converted.files.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["plugin.md", "skills/pdf/LICENSE", "skills/pdf/SKILL.md", "skills/pdf/references/a.md"]);
    let front = "---\nname: \"pdf\"\nversion: \"0.0.0\"\ndescription: \"Fills forms.\"\n";
    assert!(file(&converted, FILE).starts_with(front));
    assert_eq!((converted.form, converted.left_out.len()), ("a folder of Agent Skills", 0));
    let several = of(&[("skills/a/SKILL.md", "A.\n"), ("skills/b/SKILL.md", "B.\n"), ("README.md", "x")]);
    assert!(convert(&several, None, None).unwrap_err().starts_with("it says no name: "));
    assert_eq!(convert(&several, Some("both"), None).unwrap().left_out, ["README.md"]);
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
        let told = convert(&of(files), None, None).unwrap_err();
        assert!(told.starts_with(why), "{told}");
    }
}

/// What a marketplace lists of one folder, as the skills of one repository are picked by several plugins.
#[test]
fn parts_that_an_entry_picks() {
    let skill = "---\ndescription: Fills forms.\n---\nDo it.\n";
    let all = [
        ("document-skills/pdf/SKILL.md", skill),
        ("document-skills/pdf/forms.md", "x"),
        ("document-skills/docx/SKILL.md", skill),
        ("other/pdf/SKILL.md", "Other.\n"),
        ("skills/default/SKILL.md", "Default.\n"),
        ("agents/default.md", "Default.\n"),
        ("team/reviewer.md", "You review.\n"),
        ("team/notes.txt", "x"),
        ("cmd/fix.md", "Fix it.\n"),
        ("conf/servers.json", r#"{"mcpServers":{"db":{"command":"db"},"two":{"command":"a"}}}"#),
        (SERVERS, r#"{"mcpServers":{"own":{"command":"own"}}}"#),
    ];
    let files = of(&all);
    let picked = |entry: Json| {
        let listing = Listing::of_entry(entry.as_object().unwrap()).unwrap();
        let converted = convert(&files, Some("picked"), listing.as_ref())?;
        let paths: Vec<String> =
            converted.files.iter().map(|(path, _)| path.clone()).filter(|path| path != FILE).collect();
        Ok::<_, String>((paths, converted))
    };
    let (paths, converted) = picked(json!({
        "strict": false, "version": "1.2.0", "description": "Documents.", "author": {"name": "Ada"},
        "skills": ["./document-skills/pdf", "./document-skills/docx/"],
    }))
    .unwrap();
    assert_eq!(paths, ["skills/docx/SKILL.md", "skills/pdf/SKILL.md", "skills/pdf/forms.md"]);
    let front = "---\nname: \"picked\"\nversion: \"1.2.0\"\ndescription: \"Documents.\"\nauthors: [\"Ada\"]\nasks: ";
    assert!(file(&converted, FILE).starts_with(front), "{}", file(&converted, FILE));
    assert_eq!(converted.form, "a Claude plugin");
    // A folder of skills, and all of the plugin's own.
    let (paths, converted) = picked(json!({"skills": "./document-skills/"})).unwrap();
    let own = [".mcp.json", "agents/default.md", "skills/default/SKILL.md", "skills/docx/SKILL.md"];
    assert_eq!(paths[..4], own);
    assert!(converted.left_out.contains(&"other/pdf/SKILL.md".to_owned()), "{:?}", converted.left_out);
    // Agents and commands replace the default folders; of two skills with one name, the first counts.
    let (paths, converted) = picked(json!({
        "skills": ["./document-skills/pdf", "./other/pdf", "./none"],
        "agents": ["./team/"], "commands": "./cmd/fix.md",
    }))
    .unwrap();
    assert_eq!(
        paths,
        [
            ".mcp.json",
            "agents/reviewer.md",
            "skills/default/SKILL.md",
            "skills/fix.md",
            "skills/pdf/SKILL.md",
            "skills/pdf/forms.md"
        ]
    );
    let left = [
        "agents/default.md",
        "conf/servers.json",
        "document-skills/docx/SKILL.md",
        "other/pdf/SKILL.md: a skill has its name",
        "team/notes.txt",
        "./none: it is listed in `skills`, and has no skill",
    ];
    assert_eq!(converted.left_out, left);
    // Servers: in a file, themselves, and one that is named in two ways.
    let (_, converted) = picked(json!({
        "skills": "./document-skills/pdf",
        "mcpServers": ["./conf/servers.json", {"web": {"url": "https://a.example/mcp"}, "two": {"command": "b"}}, "./x.mcpb", "./gone.json"],
    }))
    .unwrap();
    let servers = servers(Some(file(&converted, SERVERS).as_bytes()));
    let all: Vec<(&str, Option<&str>)> =
        servers.iter().map(|one| (one.name.as_str(), one.entry.as_ref().err().map(String::as_str))).collect();
    let twice = "is named twice, with different contents";
    assert_eq!(all, [("db", None), ("own", None), ("two", Some(twice)), ("web", None)]);
    let asked = r#"{"reason":"It lists these servers.","mcp":["db","own","web"]}"#;
    assert!(file(&converted, FILE).contains(asked), "{}", file(&converted, FILE));
    for left in
        ["./gone.json: it is listed in `mcpServers`, and has no servers", "`mcpServers: ./x.mcpb` of its manifest"]
    {
        assert!(converted.left_out.iter().any(|one| one == left), "{:?}", converted.left_out);
    }
    // With `strict: false` nothing but what is listed.
    let (paths, _) = picked(json!({"strict": false, "agents": "./team/reviewer.md"})).unwrap();
    assert_eq!(paths, ["agents/reviewer.md"]);
    let nothing = picked(json!({"strict": false, "mcpServers": {"db": {"command": "db"}}})).unwrap_err();
    assert_eq!(nothing, "it has no skill, agent or command that comes along");
}

#[test]
fn parts_that_a_manifest_picks() {
    let manifest = |keys: &str| format!("{{\"name\":\"acme\",{keys}}}");
    let inline = manifest("\"hooks\":{\"Stop\":[]},\"lspServers\":\"./lsp.json\"");
    let inline = convert(&of(&[(MANIFEST, inline.as_str()), ("agents/b.md", "B.\n")]), None, None).unwrap();
    assert_eq!(inline.left_out, ["`hooks` of its manifest"]);
    let paths = |keys: &str, entry: Option<Json>| {
        let text = manifest(keys);
        let files = [
            (MANIFEST, text.as_str()),
            ("SKILL.md", "---\nname: root\ndescription: x\n---\nDo.\n"),
            ("notes.md", "x"),
            ("bin/run", "x"),
            ("skills/a/SKILL.md", "A.\n"),
            ("agents/b.md", "B.\n"),
            ("more/c.md", "C.\n"),
        ];
        let listing = entry.and_then(|entry| Listing::of_entry(entry.as_object().unwrap()).unwrap());
        let converted = convert(&of(&files), None, listing.as_ref())?;
        Ok::<Vec<String>, String>(
            converted.files.into_iter().map(|(path, _)| path).filter(|path| path != FILE).collect(),
        )
    };
    let own = |more: &[&str]| Ok(more.iter().map(|path| (*path).to_owned()).collect());
    assert_eq!(paths("\"x\":1", None), own(&["agents/b.md", "skills/a/SKILL.md"]));
    assert_eq!(paths("\"agents\":\"./more/c.md\"", None), own(&["agents/c.md", "skills/a/SKILL.md"]));
    // The skill at the root, with what is beside it and is no other part.
    assert_eq!(
        paths("\"skills\":[\"./\"]", None),
        own(&[
            "agents/b.md",
            "skills/a/SKILL.md",
            "skills/root/SKILL.md",
            "skills/root/more/c.md",
            "skills/root/notes.md"
        ])
    );
    let more = Some(json!({"agents": ["./more"]}));
    assert_eq!(
        paths("\"agents\":\"./agents/b.md\"", more.clone()),
        own(&["agents/b.md", "agents/c.md", "skills/a/SKILL.md"])
    );
    let all = Some(json!({"strict": false, "agents": ["./more"]}));
    assert_eq!(paths("\"x\":1", all.clone()), own(&["agents/c.md"]));
    let both = "its `plugin.json` picks parts, and so does the catalogue, with `strict: false`";
    assert_eq!(paths("\"skills\":\"./\"", all), Err(both.to_owned()));
    for key in ["skills", "agents", "commands", "mcpServers"] {
        let outside = format!(
            "its `.claude-plugin/plugin.json` has `{key}` with `../x`, which is not a path `./...` inside the plugin"
        );
        assert_eq!(paths(&format!("\"{key}\":\"../x\""), None), Err(outside), "{key}");
    }
}
