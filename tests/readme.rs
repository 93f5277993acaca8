//! The README's commands, run as a reader would, with the output that it shows.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, clippy::panic, reason = "tests")]

#[path = "readme/builtins.rs"]
mod builtins;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::Value as Json;

const README: &str = include_str!("../README.md");
/// The section that is toured in a project of its own.
const PLUGINS: &str = "## A third tour: a plugin\n";
/// The section whose server is at a free port here.
const SERVER: &str = "## Serve many tenants\n";
const HARNESS: &str = env!("CARGO_BIN_EXE_harness");

/// Where plugins are kept: no folder of a project.
static CACHE: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

fn run(folder: &Path, command: &str) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    assert_eq!(words[0], "harness", "{command}");
    let mut command = Command::new(HARNESS);
    // The secret that the policy names is there.
    command.args(&words[1..]).current_dir(folder).env("API_TOKEN", "of-the-operator");
    command.env("XDG_CACHE_HOME", CACHE.path());
    let output = command.output().unwrap();
    // An agent shows what it does before it answers.
    let talk_first = words.contains(&"run");
    let text = if talk_first { [output.stderr, output.stdout] } else { [output.stdout, output.stderr] }.concat();
    String::from_utf8(text).unwrap()
}

/// Every block that begins with a command of `harness`: what stands below it is what it prints.
#[test]
fn the_tour_is_true() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "harness init");
    // The first tool that is shown is one that `init` writes.
    let report = README.split("```markdown\n").nth(2).unwrap().split("```").next().unwrap();
    std::fs::write(folder.path().join(".harness/tools/report.md"), report).unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples"), &folder.path().join("examples"));
    let (before, rest) = README.split_once(PLUGINS).unwrap();
    let (_, after) = rest.split_once("\n## ").unwrap();
    let (between, rest) = after.split_once(SERVER).unwrap();
    let (_, after) = rest.split_once("\n## ").unwrap();
    let mut blocks = 0;
    for block in [before, between, after].iter().flat_map(|part| part.split("```\n$ harness ").skip(1)) {
        // One block may hold several.
        for command in block.split("\n```").next().unwrap().split("\n$ harness ") {
            shows(folder.path(), command);
        }
        blocks += 1;
    }
    assert_eq!(blocks, 10);
    let page = std::fs::read_to_string(folder.path().join("timeline.html")).unwrap();
    assert!(page.contains("On 12 May (notes/launch.md).") && page.ends_with("</html>\n"), "{page}");
}

/// The section on a server: it is started as shown, at a free port, and the requests of `curl` are sent.
#[test]
fn the_section_on_a_server_is_true() {
    let section = README.split_once(SERVER).unwrap().1.split("\n## ").next().unwrap();
    assert!(section.contains("\n$ harness serve --data ./data --demo\ntenant acme: hk_...\ntenant globex: hk_...\n"));
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(HARNESS);
    command.args(["serve", "--data", "./data", "--demo", "--listen", "127.0.0.1:0"]).current_dir(folder.path());
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let url = lines.next().unwrap().unwrap();
    let said: Vec<String> = BufReader::new(server.stderr.take().unwrap()).lines().take(3).map(Result::unwrap).collect();
    let key = said[1].strip_prefix("tenant acme: ").unwrap();
    assert!(said[2].starts_with("tenant globex: hk_"), "{said:?}");
    let mut requests = 0;
    for request in section.split("\n$ curl -H \"Authorization: Bearer $KEY\" ").skip(1) {
        let mut lines = request.lines();
        let (asked, shown) = (lines.next().unwrap(), lines.next().unwrap());
        let (option, path) = asked.split_once(" http://127.0.0.1:8080").unwrap();
        let (method, body) = match option.split_once(' ').unwrap() {
            ("-T", "notes.md") => ("PUT", "one two three"),
            ("-d", text) => ("POST", text.trim_matches('\'')),
            other => panic!("{other:?}"),
        };
        let address = url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let answer = answer.split_once("\r\n\r\n").unwrap().1;
        match shown.strip_suffix(", ...}") {
            Some(beginning) => assert!(answer.starts_with(beginning), "{answer}"),
            None => assert_eq!(answer, shown),
        }
        requests += 1;
    }
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(requests, 2);
}

/// The tour of a plugin, in a project of its own.
#[test]
fn the_tour_of_a_plugin_is_true() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "harness init");
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    std::fs::write(folder.path().join("docs/launch.md"), "On 12 May.\n").unwrap();
    let section = README.split_once(PLUGINS).unwrap().1.split("\n## ").next().unwrap();
    let mut commands = 0;
    for block in section.split("```\n$ harness ").skip(1) {
        if block.starts_with("plugin update ") {
            changes(&folder.path().join("acme/plugin.md"));
        }
        for command in block.split("\n```").next().unwrap().split("\n$ harness ") {
            shows(folder.path(), command);
            commands += 1;
        }
    }
    assert_eq!(commands, 9);
}

/// Changes a file as the README's difference says.
fn changes(path: &Path) {
    let mut text = std::fs::read_to_string(path).unwrap();
    let mut lines = README.split("```diff\n").nth(1).unwrap().split("```").next().unwrap().lines();
    while let (Some(old), Some(new)) = (lines.next(), lines.next()) {
        let (old, new) = (old.strip_prefix('-').unwrap(), new.strip_prefix('+').unwrap());
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    std::fs::write(path, text).unwrap();
}

/// A command without its first word, and below it what it prints.
fn shows(folder: &Path, text: &str) {
    let (command, shown) = text.split_once('\n').unwrap_or((text, ""));
    let printed = run(folder, &format!("harness {command}"));
    assert_eq!(without_times(&printed), without_times(shown), "{command}");
}

/// The section on Claude Code: what it says is written, its hook, and its commands as the client's shell runs them.
#[test]
fn the_section_on_claude_code_is_true() {
    let section = README.split("## Use with Claude Code\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let shown = |kind: &str| section.split(&format!("```{kind}\n")).nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "harness init");
    std::fs::write(folder.path().join(".harness/hooks/no_publish.md"), shown("markdown")).unwrap();
    assert!(run(folder.path(), "harness validate --strict").ends_with("0 errors, 0 warnings\n"));
    let bin = Path::new(HARNESS).parent().unwrap();
    let path = std::env::join_paths([bin, Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(folder.path()).env("PATH", &path);
        let output = command.env("CLAUDE_PROJECT_DIR", folder.path()).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let mut commands = 0;
    for block in section.split("```\n$ ").skip(1) {
        let (command, wanted) = block.split("```").next().unwrap().split_once('\n').unwrap();
        assert_eq!(shell(command).1, wanted, "{command}");
        commands += 1;
    }
    assert_eq!(commands, 2);
    // The server that was written is one that serves the tool which is named.
    let file: Json = read(&folder.path().join(".mcp.json"));
    let words: Vec<&str> =
        file["mcpServers"]["harness"]["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let list = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/clientCapabilities\":{}}}}";
    let (code, listed) = shell(&format!("echo '{list}' | harness {}", words.join(" ")));
    assert!(code == Some(0) && listed.contains("\"name\":\"word_count\""), "{listed}");
    // The line of the settings blocks what the hook blocks, and lets pass what it lets pass.
    let settings: Json = serde_json::from_str(shown("json")).unwrap();
    let line = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"].as_str().unwrap();
    for (command, code) in [("npm publish", 2), ("npm test", 0)] {
        let input = serde_json::json!({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": command}});
        assert_eq!(shell(&format!("echo '{input}' | ({line})")).0, Some(code), "{command}");
    }
}

fn read(path: &Path) -> Json {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The page on secrets: its policy, its tool, and the commands.
#[test]
fn the_page_on_secrets_is_true() {
    const PAGE: &str = include_str!("../docs/secrets.md");
    let shown = |kind: &str| PAGE.split(&format!("```{kind}\n")).nth(1).unwrap().split("\n```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(".harness/harness.md", &format!("---\n{}\n---\n", shown("yaml")));
    write(".harness/tools/deploy.md", shown("markdown"));
    write("keys/deploy", "not-to-be-seen-anyhow!\n");
    assert!(run(folder.path(), "harness validate --strict").ends_with("0 errors, 0 warnings\n"));
    let blocks: Vec<&str> = PAGE.split("```\n$ harness ").skip(1).collect();
    assert_eq!(blocks.len(), 2);
    blocks.iter().for_each(|block| shows(folder.path(), block.split("\n```").next().unwrap()));
}

/// A folder with all that is in it, but for what an earlier run has recorded.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true if entry.file_name() == "audit" => {}
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// A text without how long cases took, when calls were made and what sessions are called, which differ from run to run.
fn without_times(text: &str) -> String {
    let line = |line: &str| match line.split_once(" failed, ") {
        Some((before, time)) if time.ends_with(" s") => format!("{before} failed\n"),
        _ if line.ends_with(" ms)") => format!("{} (TIME)\n", line.rsplit_once(" (").unwrap().0),
        _ => match line.split_once("Z  ") {
            Some((time, rest)) if time.starts_with("20") => format!("TIME  {rest}\n"),
            _ => match line.split_once(": replay matches: ") {
                Some((_, counts)) => format!("SESSION: replay matches: {counts}\n"),
                None => format!("{line}\n"),
            },
        },
    };
    text.trim_end().lines().map(line).collect()
}

/// The hook that the tour shows is the one that `init` writes.
#[test]
fn the_hook_that_is_shown_is_the_one_that_is_written() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "harness init");
    let written = std::fs::read_to_string(folder.path().join(".harness/hooks/guard_notes.md")).unwrap();
    let shown = README.split("```yaml\nevent: tool.pre\n").nth(1).unwrap().split("\n```").next().unwrap();
    assert!(written.starts_with(&format!("---\nevent: tool.pre\n{shown}\ntests:\n")), "{written}");
}

/// The tool that the tour shows is the one that `init` writes.
#[test]
fn the_tool_that_is_shown_is_the_one_that_is_written() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "harness init");
    let written = std::fs::read_to_string(folder.path().join(".harness/tools/word_count.md")).unwrap();
    let shown = README.split("```markdown\n").nth(1).unwrap().split("\n```").next().unwrap();
    assert_eq!(shown.trim_end(), written.trim_end());
}

/// The policy that is shown is one that is accepted.
#[test]
fn the_policy_that_is_shown_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "harness init");
    let shown = README.split("```yaml\nnetwork:\n").nth(1).unwrap().split("\n```").next().unwrap();
    // The tools that it names have to be there.
    let tools = folder.path().join(".harness/tools");
    for name in ["deploy", "read_file", "run_command"] {
        let tool = std::fs::read_to_string(tools.join("word_count.md")).unwrap();
        // One asks for no more time than the policy leaves it, or `validate` says which line wins.
        let tool = tool.replace("timeout_ms: 5000\n", "timeout_ms: 2000\n");
        std::fs::write(tools.join(format!("{name}.md")), tool).unwrap();
    }
    std::fs::write(folder.path().join(".harness/harness.md"), format!("---\nnetwork:\n{shown}\n---\n")).unwrap();
    let said = run(folder.path(), "harness validate --strict");
    assert!(said.ends_with("valid: 5 tools, 1 hook, 0 agents; 0 errors, 0 warnings\n"), "{said}");
}

/// The first command of the README, as far as a test can go: the tool on the repository itself.
#[test]
fn the_first_command_works() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let command = README.split("<!-- command: run -->\n```\n$ ").nth(1).unwrap().lines().next().unwrap();
    let arguments = command.split_once(" -- ").unwrap().1;
    let output = Command::new(HARNESS).args(arguments.split_whitespace()).current_dir(root).output().unwrap();
    assert!(output.status.success());
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["bytes"], README.len(), "{result}");
}

/// The agent that the tour shows: its artifacts are valid, and its own cases pass.
#[test]
fn the_agent_that_is_shown_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/agent"), folder.path());
    let said = run(folder.path(), "harness validate --strict");
    assert!(said.ends_with("valid: 2 tools, 2 hooks, 2 agents; 0 errors, 0 warnings\n"), "{said}");
    let said = run(folder.path(), "harness test");
    assert!(said.contains("7 cases, 7 passed, 0 failed"), "{said}");
}
