//! Configurations of clients: each starts the server, and is added to a file without a change of anything else.

use std::process::Command;

use serde_json::{Value as Json, json};

use crate::client::Client;
use crate::project::{FINE, HARNESS, Project};

/// Clients with their files, and the key of servers there.
const CLIENTS: [(&str, &str, &str); 5] = [
    ("claude-code", ".mcp.json", "mcpServers"),
    ("codex", ".codex/config.toml", "mcp_servers"),
    ("vscode", ".vscode/mcp.json", "servers"),
    ("cursor", ".cursor/mcp.json", "mcpServers"),
    ("zed", ".zed/settings.json", "context_servers"),
];

/// The text as JSON, without lines that are comments.
fn read(text: &str, path: &str) -> Json {
    if path.ends_with(".toml") {
        return serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap();
    }
    let lines: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    serde_json::from_str(&lines).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn starts(server: &Json) {
    assert_eq!(server["command"], "harness");
    let arguments = server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    let mut command = Command::new(HARNESS);
    command.args(arguments).current_dir("/");
    assert_eq!(Client::spawn(command).tools()[0]["name"], "it");
}

#[test]
fn each_configuration_starts_the_server() {
    let project = Project::with_script(FINE);
    for (client, path, section) in CLIENTS {
        let printed = project.run(&["mcp", "config", client]);
        assert!(printed.code == 0 && printed.err.is_empty(), "{printed}");
        let out = printed.out.replace("[project]", project.root().canonicalize().unwrap().to_str().unwrap());
        let server = read(&out, path)[section]["harness"].clone();
        starts(&server);
        assert!(!project.path(path).exists(), "{path} was written");
        project.run(&["mcp", "config", client, "--write"]).gives(&format!("wrote {path}"));
        assert_eq!(std::fs::read_to_string(project.path(path)).unwrap(), out, "{client}");
    }
    let remote = read(&project.run(&["mcp", "config", "claude-code", "--name", "mine"]).out, ".mcp.json");
    assert_eq!(remote["mcpServers"]["mine"]["type"], "stdio");
    for name in ["", "A", "a b", &"x".repeat(21)] {
        project.run(&["mcp", "config", "zed", "--name", name]).says(2, "--name");
    }
    project.run(&["mcp", "config", "nothing"]).says(2, "possible values");
}

#[test]
fn goose_has_no_file_of_a_project() {
    let project = Project::with_script(FINE);
    let printed = project.run(&["mcp", "config", "goose"]);
    let want = "extensions:\n  harness:\n    enabled: true\n    type: \"stdio\"\n    name: \"harness\"\n    description: \"Tools of a \
         project\"\n    cmd: \"harness\"\n    args: [\"-C\",\"[project]\",\"mcp\",\"serve\"]\n    timeout: 300\n";
    assert_eq!(printed.out, want);
    project.run(&["mcp", "config", "goose", "--write"]).says(2, "add the server to `~/.config/goose/config.yaml`");
}

#[test]
fn a_server_is_added_to_what_is_there() {
    let own = |section: &str| {
        format!("{{\n    \"{section}\": {{\n        \"mine\": {{\"command\": \"x\"}}\n    }},\n    \"b\": [1]\n}}\n")
    };
    let commented = |section: &str| {
        format!(
            "// of mine\n{{\n  // and here\n  \"b\": 1,\n  \"{section}\": {{\n    \"mine\": {{\"command\": \"x\"}}\n    // last\n  }}\n}}\n"
        )
    };
    for (client, path, section) in CLIENTS {
        let mut texts = vec![own(section), commented(section), "{\n  // nothing yet\n}\n".to_owned()];
        match client {
            "claude-code" => texts.truncate(1),
            "codex" => texts = vec!["model = \"x\" # mine\n\n[mcp_servers.mine]\ncommand = \"x\"\n".to_owned()],
            _ => {}
        }
        for text in texts {
            let project = Project::with_script(FINE).file(path, &text);
            project.run(&["mcp", "config", client, "--write"]).gives(&format!("wrote {path}"));
            let after = std::fs::read_to_string(project.path(path)).unwrap();
            let mut now = read(&after, path);
            starts(&now[section]["harness"].take());
            now[section].as_object_mut().unwrap().remove("harness");
            let mut before = read(&text, path);
            if before.get(section).is_none() {
                before[section] = json!({});
            }
            assert_eq!(now, before, "{after}");
            // Each line that was there still is, but for a comma at its end.
            let mut lines = after.lines();
            for line in text.lines() {
                assert!(lines.any(|there| there.strip_suffix(',').unwrap_or(there) == line.strip_suffix(',').unwrap_or(line)), "{line:?} in {after}");
            }
            // Once more changes nothing.
            project.run(&["mcp", "config", client, "--write"]).gives(&format!("{path} has it already"));
            assert_eq!(std::fs::read_to_string(project.path(path)).unwrap(), after);
        }
    }
}

#[test]
fn a_file_that_cannot_be_kept_stays_as_it_is() {
    for (client, path, text, why) in [
        ("claude-code", ".mcp.json", "{ /* mine */ }", "it is not JSON"),
        ("claude-code", ".mcp.json", "{\"mcpServers\": {\"harness\": {\"url\": \"x\"}}}", "set up otherwise"),
        ("codex", ".codex/config.toml", "mcp_servers = { mine = { command = \"x\" } }", "written as one value"),
        ("vscode", ".vscode/mcp.json", "{\"servers\": []}", "`servers` is not an object"),
        ("zed", ".zed/settings.json", "[1]", "it is not a JSON object"),
    ] {
        let project = Project::with_script(FINE).file(path, text);
        let ran = project.run(&["mcp", "config", client, "--write"]);
        ran.says(2, &format!("`{path}` stays as it is"));
        assert!(ran.err.contains(why), "{ran}");
        assert_eq!(std::fs::read_to_string(project.path(path)).unwrap(), text);
    }
    // A link may lead to a file of somebody else.
    let project = Project::with_script(FINE);
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), project.path(".vscode")).unwrap();
    project.run(&["mcp", "config", "vscode", "--write"]).says(2, "cannot be written");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}
