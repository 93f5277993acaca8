//! Claude plugins and Agent Skills: the prose comes along, and what another program would run does not.

use std::os::unix::fs::PermissionsExt as _;

use crate::plugins_catalogues::Place;

const MANIFEST: &str = r#"{"name": "helper", "version": "1.2.0", "description": "Helps.", "author": {"name": "Ada"}}"#;
const SKILL: &str = "---\nname: pdf\ndescription: Fills forms.\nallowed-tools: Bash\n---\nList the fields first.\n";
const AGENT: &str = "---\nname: reviewer\ndescription: Reviews.\ntools: Read, Bash\nmodel: opus\n---\nYou review.\n";
const SERVERS: &str = r#"{"mcpServers": {"db": {"command": "touch", "args": ["started"], "env": {"TOKEN": "x"}}}}"#;

/// A repository with a marketplace that has one plugin.
fn marketplace() -> Place {
    let place = Place::empty();
    let index = r#"{"name": "m", "owner": {"name": "o"}, "new": 1, "plugins": [{"name": "helper", "source": "./helper", "version": "1.2.0", "description": "Helps.", "category": "x"}]}"#;
    place.write(".claude-plugin/marketplace.json", index);
    place.write("helper/.claude-plugin/plugin.json", MANIFEST);
    place.write("helper/skills/pdf/SKILL.md", SKILL);
    place.write("helper/skills/pdf/scripts/fill.py", "print(1)\n");
    place.write("helper/agents/reviewer.md", AGENT);
    place.write("helper/commands/fix.md", "---\ndescription: Fixes.\n---\nFix $ARGUMENTS.\n");
    place.write(
        "helper/hooks/hooks.json",
        r#"{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch hooked"}]}]}}"#,
    );
    place.write("helper/bin/run", "#!/bin/sh\ntouch ran\n");
    place.write("helper/.mcp.json", SERVERS);
    for path in ["helper/bin/run", "helper/skills/pdf/scripts/fill.py"] {
        std::fs::set_permissions(place.at(path), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    place.policy(&format!("sandbox: {{}}\ncatalogues: {{ claude: '{}' }}\n", place.source("")));
    place.commit();
    place
}

#[test]
fn a_claude_plugin_comes_along_as_prose() {
    let place = marketplace();
    let shown = place.run(&["plugin", "show", "helper@claude"]);
    let review = "  not signed
  made from a Claude plugin, of which the prose comes along
  left behind, and never run:
  | bin/run
  | hooks/hooks.json
agent reviewer
skill fix: Fixes.
skill pdf: Fills forms.
server db runs [\"touch\",\"started\"], with TOKEN=\"x\"
asks for:
  1. use the service `prompt`: put its prose into the prompts of models
     reason: Puts its skills and agents into the prompts of models.
  2. call the tools of the MCP server `db`
     reason: Its `.mcp.json` names these servers.
     here: the server is added to `mcp.servers`: it runs [\"touch\",\"started\"], with TOKEN=\"x\"
  it has no cases: nothing shows what it uses
";
    assert!(shown.code == 0 && shown.out.ends_with(review), "{shown}");
    let digest =
        place.run(&["plugin", "show", "helper@claude", "--json"]).json()["digest"].as_str().unwrap().to_owned();
    let added = place.run(&["plugin", "add", "helper@claude", "--grant-digest", &digest]);
    assert_eq!(added.code, 0, "{added}");
    let skills = place.run(&["skills", "--json"]).json();
    let names: Vec<&str> = skills.as_array().unwrap().iter().map(|skill| skill["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["fix", "pdf"], "{skills}");
    // Nothing was run.
    let called = place.run(&["call", "it"]);
    assert_eq!((called.code, called.out.as_str()), (0, "fine\n"), "{called}");
    for path in ["started", "hooked", "ran"] {
        assert!(!place.project.path(path).exists() && !place.at(path).exists(), "{path}");
    }
    // Another machine makes the same of the same commit.
    place.forget();
    let synced = place.run(&["plugin", "sync"]);
    assert_eq!((synced.code, synced.out.as_str()), (0, "helper 1.2.0: fetched\n"), "{synced}");
    assert_eq!(place.run(&["plugin", "verify"]).code, 0);
}

#[test]
fn without_consent_models_are_shown_nothing_of_it() {
    let place = marketplace();
    assert_eq!(place.add("helper@claude").code, 0);
    let skills = place.run(&["skills"]);
    assert!(skills.out.contains("pdf") && skills.out.contains("prompt"), "{skills}");
    let policy = std::fs::read_to_string(place.project.path(".harness/harness.md")).unwrap();
    assert!(!policy.contains("plugins/helper"), "{policy}");
}

/// A server of a plugin is an entry of the policy once a person consented to it, and is started once it is locked.
#[test]
fn a_server_is_added_with_consent_and_overrides_none() {
    let place = marketplace();
    let digest = || {
        let shown = place.run(&["plugin", "show", "helper@claude", "--json"]).json();
        shown["digest"].as_str().unwrap().to_owned()
    };
    let policy = || std::fs::read_to_string(place.project.path(".harness/harness.md")).unwrap();
    let before = policy();
    assert_eq!(place.add("helper@claude").code, 0);
    assert_eq!(policy(), before);
    assert_eq!(place.run(&["plugin", "remove", "helper"]).code, 0);

    let add = || place.run(&["plugin", "add", "helper@claude", "--grant-digest", &digest()]);
    let added = add();
    assert_eq!(added.code, 0, "{added}");
    let entry = "mcp:\n  servers:\n    db: { command: [touch, started], env: { TOKEN: x } }\n";
    let grant = "plugins/helper: { services: [prompt], mcp: [db] }";
    assert!(policy().contains(entry) && policy().contains(grant), "{}", policy());
    let called = place.run(&["call", "it"]);
    assert!(called.code == 0 && !place.project.path("started").exists(), "{called}");
    assert!(place.run(&["validate"]).err.contains("the server \"db\" is not locked, so it is not started"));
    // What came with the plugin goes with it.
    assert_eq!(place.run(&["plugin", "remove", "helper"]).code, 0);
    assert!(!policy().contains("touch") && !policy().contains("plugins/helper"), "{}", policy());

    // A server of the project stays as it is, with and without the plugin.
    let own = "    db: { command: [\"true\"] }\n";
    place.policy(&format!("sandbox: {{}}\ncatalogues: {{ claude: '{}' }}\nmcp:\n  servers:\n{own}", place.source("")));
    let added = add();
    assert_eq!(added.code, 0, "{added}");
    assert!(added.out.contains("here: `mcp.servers` has another server of this name, which stays\n"), "{added}");
    assert!(policy().contains(own) && policy().contains(grant) && !policy().contains("touch"), "{}", policy());
    assert_eq!(place.run(&["plugin", "remove", "helper"]).code, 0);
    assert!(policy().contains(own), "{}", policy());
}

#[test]
fn a_server_that_no_policy_can_have_is_shown_and_not_asked_for() {
    let place = marketplace();
    for (server, why) in [
        (r#"{"command": "${CLAUDE_PLUGIN_ROOT}/bin/run"}"#, "it runs a file of the plugin, which stays behind"),
        (r#"{"command": "npx", "args": ["-y", "db"]}"#, "without an exact version"),
        (r#"{"command": "db", "env": {"A": "{secret:TOKEN}"}}"#, "with braces that are not `${NAME}`"),
        (r#"{"url": "http://127.0.0.1:9/mcp"}"#, "it is asked at `http://127.0.0.1:9/mcp`, and not over https"),
    ] {
        place.write("helper/.mcp.json", &format!("{{\"mcpServers\": {{\"db\": {server}}}}}"));
        place.commit();
        let shown = place.run(&["plugin", "show", "helper@claude"]);
        assert!(
            shown.code == 0 && shown.out.contains("; it is not started, because ") && shown.out.contains(why),
            "{shown}"
        );
        assert!(!shown.out.contains("call the tools of the MCP server"), "{shown}");
    }
    place.write("helper/.mcp.json", SERVERS);
    place.commit();
    let control = place.run(&["plugin", "show", "helper@claude"]);
    assert!(control.out.contains("call the tools of the MCP server `db`"), "{control}");
}

#[test]
fn changed_prose_of_the_same_version_needs_consent() {
    let place = marketplace();
    assert_eq!(place.add("helper@claude").code, 0);
    place.write("helper/bin/run", "#!/bin/sh\ntouch other\n");
    place.commit();
    // What stays behind is no part of the plugin.
    assert_eq!(place.run(&["plugin", "update"]).out, "helper 1.2.0: up to date\n");
    place.write("helper/skills/pdf/SKILL.md", &SKILL.replace("List", "Send me"));
    place.commit();
    let staged = place.run(&["plugin", "update"]);
    assert!(staged.code == 1 && staged.out.contains("skills/pdf/SKILL.md"), "{staged}");
}

#[test]
fn a_repository_with_one_skill_is_a_plugin() {
    let place = Place::empty();
    place.write("SKILL.md", SKILL);
    place.write("references/a.md", "More.\n");
    place.commit();
    let added = place.add(&place.source(""));
    assert_eq!(added.code, 0, "{added}");
    assert!(
        added.out.contains("plugin pdf 0.0.0 from ") && added.out.contains("made from a folder of Agent Skills"),
        "{added}"
    );
    assert!(place.run(&["skills"]).out.contains("pdf"));
    // The control: a folder that is neither this nor a plugin.
    place.write("SKILL.md", "---\ndescription: x\n---\n");
    place.commit();
    assert_eq!(place.run(&["plugin", "remove", "pdf"]).code, 0);
    let refused = place.add(&place.source(""));
    assert!(refused.code == 2 && refused.err.contains("`SKILL.md` says no `name` that a skill can have"), "{refused}");
}

/// A plugin of this program has no executable file, whatever else is beside it.
#[test]
fn a_plugin_of_this_program_is_not_read_as_another() {
    let place = Place::empty();
    place.write("plugin.md", "---\nname: acme\nversion: 1.0.0\ndescription: x\n---\n");
    place.write(".claude-plugin/plugin.json", MANIFEST);
    place.write("bin/run", "#!/bin/sh\n");
    place.commit();
    let good = place.add(&place.source(""));
    assert!(good.out.contains("plugin acme 1.0.0 from ") && !good.out.contains("made from"), "{good}");
    place.run(&["plugin", "remove", "acme"]);
    std::fs::set_permissions(place.at("bin/run"), std::fs::Permissions::from_mode(0o755)).unwrap();
    place.commit();
    let refused = place.add(&place.source(""));
    assert!(refused.code == 2 && refused.err.contains("`bin/run` is executable"), "{refused}");
}

#[test]
fn sources_of_a_marketplace_that_are_not_fetched_are_shown_with_the_reason() {
    let place = marketplace();
    let entries = [
        ("npm", r#"{"source": "npm", "package": "x"}"#),
        ("sha", r#"{"source": "github", "repo": "a/b", "sha": "v1"}"#),
        ("up", r#""../../etc""#),
        (
            "here",
            r#"{"source": "url", "url": "https://127.0.0.1:9/x.git", "sha": "0123456789abcdef0123456789abcdef01234567"}"#,
        ),
        ("moves", r#"{"source": "github", "repo": "a/b", "ref": "v1"}"#),
        ("helper", r#""./helper""#),
    ];
    let entries: Vec<String> =
        entries.iter().map(|(name, source)| format!("{{\"name\": \"{name}\", \"source\": {source}}}")).collect();
    place.write(".claude-plugin/marketplace.json", &format!("{{\"plugins\": [{}]}}", entries.join(", ")));
    let commit = place.commit();
    let expected = format!(
        "npm@claude
  it cannot be added: it has a source of the kind `npm`, which is not fetched
sha@claude
  it cannot be added: it has a `sha` that is not the whole name of a commit
up@claude
  it cannot be added: it has the source `../../etc`, which is not a folder inside the catalogue
here@claude
  source: git+https://127.0.0.1:9/x.git@0123456789abcdef0123456789abcdef01234567
moves@claude
  source: git+https://github.com/a/b@v1, which may move
helper@claude
  source: git+file:///repository@{commit}#helper
"
    );
    let searched = place.run(&["plugin", "search"]);
    assert_eq!((searched.code, searched.out), (0, expected));
    for (name, why) in [
        ("npm", "the plugin has a source of the kind `npm`, which is not fetched"),
        ("sha", "the plugin has a `sha` that is not the whole name of a commit"),
        ("up", "which is not a folder inside the catalogue"),
        ("here", "not public"),
    ] {
        let ran = place.add(&format!("{name}@claude"));
        assert!(ran.code == 2 && ran.err.contains(why), "{name}: {ran}");
    }
    assert_eq!(place.add("helper@claude").code, 0);
}
