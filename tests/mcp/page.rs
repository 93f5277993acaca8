//! The page on the protocol: its commands, and the configurations that it shows.

use serde_json::Value as Json;

use crate::client::Client;
use crate::project::{FINE, HARNESS, Project};
use crate::web::{TOKEN, Web};

const PAGE: &str = include_str!("../../docs/mcp.md");

fn blocks(kind: &str) -> Vec<&'static str> {
    PAGE.split(&format!("```{kind}\n")).skip(1).map(|block| block.split("\n```").next().unwrap()).collect()
}

#[test]
fn the_commands_print_what_is_shown() {
    let project = Project::with_script(FINE);
    let shown: Vec<&str> = PAGE.split("```\n$ ").skip(1).map(|block| block.split("\n```").next().unwrap()).collect();
    assert_eq!(shown.len(), 1);
    for block in shown {
        let (line, out) = block.split_once('\n').unwrap();
        project.shell(&line.replace("| harness ", "| $HARNESS ")).gives(out);
    }
}

#[test]
fn the_page_is_read_in_an_editor_too() {
    let long: Vec<&str> = PAGE.lines().filter(|line| line.chars().count() > 120).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn the_commands_serve() {
    let lines: Vec<&str> = blocks("sh").into_iter().flat_map(str::lines).collect();
    assert_eq!(lines.len(), 2);
    for line in lines {
        // Any free port: the one that is shown may be taken.
        let line = line.strip_prefix("harness mcp serve ").unwrap().replace(":8787", ":0");
        let project = Project::with_script(FINE);
        let web = Web::start(&project, &line.split(' ').collect::<Vec<_>>());
        if web.place.starts_with("http") {
            assert!(web.lists(&[("Authorization", &format!("Bearer {TOKEN}"))]), "{line}");
        } else {
            assert!(project.path("harness.sock").exists(), "{line}");
        }
    }
}

#[test]
fn the_configurations_start_a_server() {
    let json = blocks("json").into_iter().map(|block| serde_json::from_str::<Json>(block).unwrap());
    let toml = blocks("toml")
        .into_iter()
        .map(|block| serde_json::to_value(toml::from_str::<toml::Table>(block).unwrap()).unwrap());
    let mut count = 0;
    for configuration in json.chain(toml) {
        let server = &configuration.as_object().unwrap().values().next().unwrap()["harness"];
        assert_eq!(server["command"], "harness");
        let project = Project::with_script(FINE);
        let arguments: Vec<String> = server["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|word| word.as_str().unwrap().replace("/path/to/project", project.root().to_str().unwrap()))
            .collect();
        let mut command = std::process::Command::new(HARNESS);
        command.args(&arguments).current_dir("/");
        let tools = Client::spawn(command).tools();
        assert_eq!(tools.len(), 1, "{configuration}");
        count += 1;
    }
    assert_eq!(count, 5);
}
