//! Parts of a folder that a marketplace or a `plugin.json` lists, servers that these have inline, and what another version
//! changes of servers.

use crate::plugins_catalogues::Place;

const SKILL: &str = "---\ndescription: Fills forms.\n---\nList the fields first.\n";

/// A repository whose marketplace has these entries, with two skills, an agent and a command in folders of their own.
fn marketplace(entries: &str) -> Place {
    let place = Place::empty();
    place.write("document-skills/pdf/SKILL.md", SKILL);
    place.write("document-skills/docx/SKILL.md", SKILL);
    place.write("team/reviewer.md", "---\ndescription: Reviews.\n---\nYou review.\n");
    place.write("cmd/fix.md", "---\ndescription: Fixes.\n---\nFix $ARGUMENTS.\n");
    place.write("bin/run", "#!/bin/sh\n");
    place.policy(&format!("sandbox: {{}}\ncatalogues: {{ claude: '{}' }}\n", place.source("")));
    relist(&place, entries);
    place
}

fn relist(place: &Place, entries: &str) {
    place.write(".claude-plugin/marketplace.json", &format!("{{\"name\": \"m\", \"plugins\": [{entries}]}}"));
    place.commit();
}

/// An entry of the whole repository.
fn entry(keys: &str) -> String {
    format!("{{\"name\": \"helper\", \"source\": \"./\", \"version\": \"1.2.0\", \"description\": \"Helps.\", {keys}}}")
}

fn digest(place: &Place) -> String {
    place.run(&["plugin", "show", "helper@claude", "--json"]).json()["digest"].as_str().unwrap().to_owned()
}

fn policy(place: &Place) -> String {
    std::fs::read_to_string(place.project.path(".harness/harness.md")).unwrap()
}

#[test]
fn listed_parts_come_along_and_no_others() {
    let both = [
        entry(
            r#""strict": false, "skills": ["./document-skills/pdf"], "agents": ["./team/reviewer.md"], "commands": "./cmd/""#,
        ),
        entry(r#""strict": false, "skills": ["./document-skills/docx"]"#).replace("helper", "other"),
    ];
    let place = marketplace(&both.join(", "));
    let shown = place.run(&["plugin", "show", "helper@claude"]);
    let review = "  made from a Claude plugin, of which the prose comes along
  left behind, and never run:
  | .claude-plugin/marketplace.json
  | bin/run
  | document-skills/docx/SKILL.md
agent reviewer
skill fix: Fixes.
skill pdf: Fills forms.
asks for:
  1. use the service `prompt`: put its prose into the prompts of models
     reason: Puts its skills and agents into the prompts of models.
  it has no cases: nothing shows what it uses
";
    assert!(shown.code == 0 && shown.out.ends_with(review), "{shown}");
    assert!(shown.out.starts_with("plugin helper 1.2.0 from "), "{shown}");
    for name in ["helper@claude", "other@claude"] {
        let added = place.add(name);
        assert_eq!(added.code, 0, "{added}");
    }
    let skills = place.run(&["skills", "--json"]).json();
    let names: Vec<&str> = skills.as_array().unwrap().iter().map(|skill| skill["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["fix", "pdf", "docx"], "{skills}");
    // The lock has what was listed: another machine makes the same, whatever the catalogue lists now.
    let parts = "parts = '{\"skills\":[\"./document-skills/docx\"],\"version\":\"1.2.0\",\"description\":\"Helps.\",\"strict\":false}'";
    assert!(place.lock().contains(parts), "{}", place.lock());
    relist(&place, &both[0].replace("./document-skills/pdf", "./document-skills/docx"));
    place.forget();
    let synced = place.run(&["plugin", "sync"]);
    assert_eq!((synced.code, synced.out.as_str()), (0, "helper 1.2.0: fetched\nother 1.2.0: fetched\n"), "{synced}");
    // An update takes what is listed now.
    assert_eq!(place.run(&["plugin", "remove", "other"]).code, 0);
    let staged = place.run(&["plugin", "update", "helper"]);
    assert!(staged.code == 1 && staged.out.contains("  - skills/pdf/SKILL.md\n"), "{staged}");
    assert!(staged.out.contains("  + skills/docx/SKILL.md\n"), "{staged}");
}

#[test]
fn what_is_listed_and_is_outside_is_refused() {
    let place = marketplace("");
    for key in ["skills", "agents", "commands", "mcpServers"] {
        for path in ["../team", "/etc", "./../team", "./a/../../team", "team", "./a//b", "~/x", ".\\\\x"] {
            relist(&place, &entry(&format!("\"{key}\": [\"{path}\"]")));
            let refused = place.add("helper@claude");
            let why = format!("the plugin has `{key}` with ");
            assert!(refused.code == 2 && refused.err.contains(&why), "{key} {path}: {refused}");
        }
    }
    // A link inside leads outside.
    std::os::unix::fs::symlink("/etc", place.at("team/etc")).unwrap();
    relist(&place, &entry("\"agents\": [\"./team/\"]"));
    let refused = place.add("helper@claude");
    assert!(refused.code == 2 && refused.err.contains("`team/etc` is a link"), "{refused}");
    std::fs::remove_file(place.at("team/etc")).unwrap();
    // The same of a `plugin.json`.
    place.write(".claude-plugin/plugin.json", "{\"name\": \"helper\", \"agents\": \"./team/../../x\"}");
    relist(&place, "{\"name\": \"helper\", \"source\": \"./\"}");
    let refused = place.add("helper@claude");
    let why = "its `.claude-plugin/plugin.json` has `agents` with `./team/../../x`, which is not a path `./...` inside the plugin";
    assert!(refused.code == 2 && refused.err.contains(why), "{refused}");
    place.write(".claude-plugin/plugin.json", "{\"name\": \"helper\", \"agents\": \"./team\"}");
    place.commit();
    let control = place.add("helper@claude");
    assert!(control.code == 0 && control.out.contains("agent reviewer\n"), "{control}");
    // With parts of its own, and an entry that is all of it.
    place.run(&["plugin", "remove", "helper"]);
    relist(&place, &entry("\"strict\": false, \"skills\": \"./document-skills/\""));
    let refused = place.add("helper@claude");
    assert!(
        refused.code == 2 && refused.err.contains("its `plugin.json` picks parts, and so does the catalogue"),
        "{refused}"
    );
    // A plugin of this program is not picked from.
    place.write("plugin.md", "---\nname: helper\nversion: 1.0.0\ndescription: x\n---\n");
    place.commit();
    let refused = place.add("helper@claude");
    assert!(refused.code == 2 && refused.err.contains("which has a `plugin.md` of its own"), "{refused}");
}

/// Servers of the entry itself, of a file that it lists and of `.mcp.json` are one list, which a person consents to.
#[test]
fn servers_of_an_entry_are_consented_to() {
    let place = marketplace(&entry(
        r#""strict": false, "skills": "./document-skills/", "mcpServers": {"db": {"command": "touch", "args": ["started"]}, "Web-Site": {"type": "http", "url": "https://a.example/mcp"}}"#,
    ));
    let before = policy(&place);
    assert_eq!(place.add("helper@claude").code, 0);
    assert_eq!(policy(&place), before);
    assert_eq!(place.run(&["plugin", "remove", "helper"]).code, 0);
    let shown = place.run(&["plugin", "show", "helper@claude"]);
    let asked = "  2. call the tools of the MCP server `db`
     reason: It lists these servers.
     here: the server is added to `mcp.servers`: it runs [\"touch\",\"started\"]
  3. call the tools of the MCP server `web_site`
     reason: It lists these servers.
     here: the server is added to `mcp.servers`: it is asked at \"https://a.example/mcp\"
";
    assert!(shown.out.contains(asked), "{shown}");
    let added = place.run(&["plugin", "add", "helper@claude", "--grant-digest", &digest(&place)]);
    assert_eq!(added.code, 0, "{added}");
    let entries = "    web_site: { url: \"https://a.example/mcp\" }\n    db: { command: [touch, started] }\n";
    assert!(policy(&place).contains(entries), "{}", policy(&place));
    assert!(place.lock().contains("servers = [\n    \"db\",\n    \"web_site\",\n]"), "{}", place.lock());
    let called = place.run(&["call", "it"]);
    assert!(called.code == 0 && !place.project.path("started").exists(), "{called}");
    assert_eq!(place.run(&["plugin", "verify"]).code, 0);
    assert_eq!(place.run(&["plugin", "remove", "helper"]).code, 0);
    assert!(!policy(&place).contains("touch") && !policy(&place).contains("a.example"), "{}", policy(&place));
}

const SERVERS: &str = r#"{"mcpServers": {"db": {"command": "touch", "args": ["started"]}, "old": {"command": "x"}}}"#;

/// A plugin with `.mcp.json`, all of which was granted.
fn served() -> Place {
    let place = marketplace("{\"name\": \"helper\", \"source\": \"./helper\"}");
    place.write("helper/.claude-plugin/plugin.json", "{\"name\": \"helper\", \"version\": \"1.2.0\"}");
    place.write("helper/agents/a.md", "You review.\n");
    place.write("helper/.mcp.json", SERVERS);
    place.commit();
    let added = place.run(&["plugin", "add", "helper@claude", "--grant-digest", &digest(&place)]);
    assert_eq!(added.code, 0, "{added}");
    assert!(policy(&place).contains("db: { command: [touch, started] }"), "{}", policy(&place));
    place
}

#[test]
fn a_changed_server_is_shown_as_what_it_does_and_needs_consent() {
    let place = served();
    let before = policy(&place);
    let changed = r#"{"mcpServers": {"db": {"command": "touch", "args": ["other"], "env": {"TOKEN": "${GITHUB_TOKEN}"}}, "new": {"url": "https://a.example/mcp"}}}"#;
    place.write("helper/.claude-plugin/plugin.json", "{\"name\": \"helper\", \"version\": \"1.3.0\"}");
    place.write("helper/.mcp.json", changed);
    place.commit();
    let difference = "  server db changes
      - it runs [\"touch\",\"started\"]
      + it runs [\"touch\",\"other\"], with TOKEN=\"${GITHUB_TOKEN}\", and gets from this machine's environment `GITHUB_TOKEN`
  server new is new
      + it is asked at \"https://a.example/mcp\"
  server old is removed
      - it runs [\"x\"]
  asks: + call the tools of the MCP server `new`
  asks: - call the tools of the MCP server `old`
";
    let dry = place.run(&["plugin", "update", "--dry-run"]);
    assert!(dry.code == 1 && dry.out.contains(difference), "{dry}");
    let staged = place.run(&["plugin", "update"]);
    assert!(staged.code == 1 && staged.out.contains(difference) && staged.err.contains("is staged"), "{staged}");
    assert_eq!(policy(&place), before);
    // With consent, its servers are those of the new version.
    let updated = place.run(&["plugin", "update", "helper", "--grant-digest", &digest(&place)]);
    assert_eq!(updated.code, 0, "{updated}");
    let now = policy(&place);
    assert!(now.contains("db: { command: [touch, other], env: { TOKEN: \"{env:GITHUB_TOKEN}\" } }"), "{now}");
    assert!(now.contains("new: { url: \"https://a.example/mcp\" }") && !now.contains("old:"), "{now}");
    assert!(now.contains("plugins/helper: { services: [prompt], mcp: [db, new] }"), "{now}");
    assert!(place.lock().contains("servers = [\n    \"db\",\n    \"new\",\n]"), "{}", place.lock());
    assert_eq!(place.run(&["plugin", "verify"]).code, 0);
}

/// A server that changes and nothing else: it asks for no new rule, and needs consent all the same.
#[test]
fn a_server_that_changes_alone_needs_consent() {
    let place = served();
    let before = policy(&place);
    let version = |number: &str| {
        let manifest = format!("{{\"name\": \"helper\", \"version\": \"{number}\"}}");
        place.write("helper/.claude-plugin/plugin.json", &manifest);
    };
    version("1.3.0");
    place.write("helper/.mcp.json", &SERVERS.replace("started", "other"));
    place.commit();
    let staged = place.run(&["plugin", "update"]);
    assert!(staged.code == 1 && staged.err.contains("is staged") && !staged.out.contains("asks:"), "{staged}");
    assert_eq!(policy(&place), before);
    // With nothing granted, the server that nobody consented to is gone; the one that is the same stays.
    let updated = place.run(&["plugin", "update", "--grant", "none"]);
    assert_eq!(updated.code, 0, "{updated}");
    let now = policy(&place);
    assert!(!now.contains("touch") && now.contains("old: { command: [x] }"), "{now}");
    assert!(now.contains("plugins/helper: { services: [prompt], mcp: [old] }"), "{now}");
    // The control: where no server changes, a new version of the same prose needs none.
    version("1.4.0");
    place.commit();
    assert_eq!(place.run(&["plugin", "update"]).code, 0);
}

/// An entry of the project itself, which is the very one that a plugin brings, is the project's.
#[test]
fn a_server_of_the_project_outlives_the_plugin() {
    let place = served();
    assert_eq!(place.run(&["plugin", "remove", "helper"]).code, 0);
    let own = "mcp:\n  servers:\n    db: { command: [touch, started] }\n";
    let sources = format!("sandbox: {{}}\ncatalogues: {{ claude: '{}' }}\n", place.source(""));
    place.policy(&format!("{sources}{own}"));
    let added = place.run(&["plugin", "add", "helper@claude", "--grant-digest", &digest(&place)]);
    assert!(added.code == 0 && added.out.contains("here: `mcp.servers` has this server: it runs"), "{added}");
    assert!(place.lock().contains("servers = [\"old\"]"), "{}", place.lock());
    assert_eq!(place.run(&["plugin", "remove", "helper"]).code, 0);
    let left = policy(&place);
    assert!(left.contains("db: { command: [touch, started] }") && !left.contains("old:"), "{left}");
    assert_eq!(place.run(&["plugin", "add", "helper@claude", "--grant-digest", &digest(&place)]).code, 0);
    // It stays as it is with another version, too.
    place.write("helper/.claude-plugin/plugin.json", "{\"name\": \"helper\", \"version\": \"1.3.0\"}");
    place.write("helper/.mcp.json", &SERVERS.replace("started", "other"));
    place.commit();
    let updated = place.run(&["plugin", "update", "helper", "--grant-digest", &digest(&place)]);
    assert_eq!(updated.code, 0, "{updated}");
    assert!(policy(&place).contains("db: { command: [touch, started] }"), "{}", policy(&place));
    assert_eq!(place.run(&["plugin", "grant", "helper", "--grant", "none"]).code, 0);
    assert_eq!(place.run(&["plugin", "remove", "helper"]).code, 0);
    let left = policy(&place);
    assert!(left.contains("db: { command: [touch, started] }") && !left.contains("old:"), "{left}");
}

/// Two plugins that bring the same server: it goes with the last one.
#[test]
fn a_server_of_two_plugins_goes_with_the_last() {
    let place = served();
    place.write("second/.claude-plugin/plugin.json", "{\"name\": \"second\", \"version\": \"1.0.0\"}");
    place.write("second/agents/b.md", "You write.\n");
    place.write("second/.mcp.json", SERVERS);
    relist(
        &place,
        "{\"name\": \"helper\", \"source\": \"./helper\"}, {\"name\": \"second\", \"source\": \"./second\"}",
    );
    let shown = place.run(&["plugin", "show", "second@claude", "--json"]).json();
    let review = shown["digest"].as_str().unwrap();
    assert_eq!(place.run(&["plugin", "add", "second@claude", "--grant-digest", review]).code, 0);
    assert_eq!(place.run(&["plugin", "remove", "helper"]).code, 0);
    assert!(policy(&place).contains("touch"), "{}", policy(&place));
    assert_eq!(place.run(&["plugin", "remove", "second"]).code, 0);
    assert!(!policy(&place).contains("touch") && !policy(&place).contains("old:"), "{}", policy(&place));
}

#[test]
fn a_folder_without_its_beginning_is_suggested() {
    let place = Place::empty();
    place.project.write("plugins/acme/plugin.md", "---\nname: acme\nversion: 1.0.0\ndescription: x\n---\n");
    for (text, hint) in [
        ("plugins/acme", "hint: write it as a path: `./plugins/acme`\n"),
        ("plugins", "hint: write it as a path: `./plugins`\n"),
        ("acme", "hint: a plugin of a catalogue is `acme@CATALOGUE`\n"),
    ] {
        let refused = place.add(text);
        assert!(refused.code == 2 && refused.err.ends_with(hint), "{refused}");
    }
    let none = place.add("plugins/other");
    assert!(none.code == 2 && !none.err.contains("hint:"), "{none}");
    assert_eq!(place.add("./plugins/acme").code, 0);
}
