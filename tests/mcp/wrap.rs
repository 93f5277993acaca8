//! `harness mcp wrap`: a server behind its wall for the client that starts the command.

use std::process::Stdio;

use serde_json::{Value as Json, json};

use crate::client::Client;
use crate::project::{Project, Ran};

/// A server that is a shell script. A call runs its argument as commands, and returns what these print.
const SERVER: &str = r#"cd "$HARNESS_WORKSPACE" || exit 1
while IFS= read -r line; do
  id=${line#*'"id":'}
  id=${id%%,*}
  run=${line#*'"run":"'}
  run=${run%%'"'*}
  case $line in
    *tools/call*)
      said=$(eval "$run" 2>&1 | tr -c 'A-Za-z0-9 ._/:=-' ' ')
      printf '{"jsonrpc":"2.0","id":%s,"result":{"text":"%s"}}\n' "$id" "$said" ;;
    *end*) echo 'last words' >&2; exit 7 ;;
    *long*) head -c 5000000 /dev/zero | tr '\0' x ;;
    *) printf '{"jsonrpc":"2.0","id":%s,"result":"other"}\n' "$id" ;;
  esac
done
if [ -e docs/stays ]; then
  trap 'echo term >>out/ended; exit 0' TERM
  sh -c 'trap "" TERM HUP; while :; do sleep 1; done' &
  while :; do sleep 1; done
fi
"#;

fn project(policy: &str) -> (Project, String) {
    let project = Project::new().file("docs/server.sh", SERVER).file("docs/a.md", "one").file("src/b.md", "two");
    let script = project.root().canonicalize().unwrap().join("docs/server.sh").display().to_string();
    let project = project.policy(&policy.replace("SCRIPT", &script)).file("out/ended", "");
    (project, script)
}

fn wrapped(project: &Project, script: &str, options: &[&str]) -> Client {
    let arguments = [&["mcp", "wrap"], options, &["--", "sh", script]].concat();
    Client::spawn(project.command(&arguments))
}

/// What the server prints when it runs these commands.
fn said(client: &mut Client, commands: &str) -> String {
    let answer = client.request("tools/call", json!({ "run": commands }));
    answer["result"]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

const BOTH: &str = "cat docs/a.md src/b.md; cd src; : >new";

#[test]
fn a_profile_and_options_open_the_wall() {
    let denied = "cat: src/b.md: ";
    for (options, docs, src) in [
        (&["--read", "docs"][..], true, false),
        (&["--profile", "strict", "--read", "docs"], true, false),
        (&["--profile", "read-workspace"], true, true),
        (&["--profile", "write-workspace"], true, true),
    ] {
        let (project, script) = project("");
        let mut client = wrapped(&project, &script, options);
        let said = said(&mut client, BOTH);
        assert_eq!((said.contains("one"), said.contains("two")), (docs, src), "{options:?}: {said}");
        assert_eq!(said.contains(denied), !src, "{options:?}: {said}");
        let (rest, code, err) = client.end();
        assert_eq!((rest, code, err.as_str()), (Vec::new(), 0, ""), "{options:?}");
        assert_eq!(project.path("src/new").exists(), options == ["--profile", "write-workspace"], "{options:?}");
    }
}

#[test]
fn an_entry_of_the_policy_opens_the_wall() {
    let entry = "mcp:\n  servers:\n    s: { command: [sh, \"SCRIPT\"], fs: { read: [docs] }, env: { MINE: xy } }\n";
    let (project, script) = project(entry);
    let mut client = wrapped(&project, &script, &[]);
    assert_eq!(said(&mut client, "cat docs/a.md; printf %s :$MINE:; cat src/b.md 2>/dev/null"), "one:xy:");
    assert_eq!(client.request("anything/else", json!({})), json!({"result": "other"}));
    drop(client);
    // Another command is described by no entry, and options replace the entry.
    let ran = project.run(&["mcp", "wrap", "--", "sh", &script, "--more"]);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(
        ran.err.contains("no server of the policy has the command `sh ") && ran.err.contains("--profile strict"),
        "{ran}"
    );
    let mut client = wrapped(&project, &script, &["--read", "docs", "--env", "MINE={env:HARNESS_TEST_VARIABLE}"]);
    assert_eq!(said(&mut client, "printf %s :$MINE:$HARNESS_TEST_VARIABLE:"), ":avalue::");
}

#[test]
fn the_policy_narrows_what_options_open() {
    let (project, script) = project("sandbox: { fs: { read: [docs], write: [] } }\n");
    let mut client = wrapped(&project, &script, &["--profile", "write-workspace"]);
    let said = said(&mut client, BOTH);
    assert!(said.contains("one") && !said.contains("two") && !project.path("src/new").exists(), "{said}");
}

#[test]
fn options_that_are_no_server_are_refused() {
    let (project, _) = project("");
    let ran = project.run(&["mcp", "wrap", "--profile", "strict", "--", "uvx", "mcp-server-git"]);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.err.contains("`uvx` starts `mcp-server-git` without an exact version"), "{ran}");
    let ran = project.run(&["mcp", "wrap", "--profile", "strict", "--", "no-such-program"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran}");
    assert!(ran.err.contains("the server: there is no program `no-such-program`"), "{ran}");
}

/// Where there is no project, a profile is all.
#[test]
fn a_server_is_wrapped_in_any_folder() {
    let (project, script) = project("");
    std::fs::remove_dir_all(project.path(".harness")).unwrap();
    let mut client = wrapped(&project, &script, &["--profile", "read-workspace"]);
    assert_eq!(said(&mut client, "cat src/b.md"), "two");
    assert_eq!(project.run(&["mcp", "wrap", "--", "sh", &script]).code, 2);
}

#[test]
fn a_server_that_ends_ends_the_command() {
    let (project, script) = project("");
    let mut client = wrapped(&project, &script, &["--read", "docs"]);
    client.line("end");
    let (rest, code, err) = client.end();
    assert_eq!((rest.len(), code), (0, 1), "{err}");
    assert!(err.starts_with("last words\n") && err.contains("the server ended with the code 7"), "{err}");
}

#[test]
fn a_line_that_is_too_long_ends_the_server() {
    let (project, script) = project("");
    let mut client = wrapped(&project, &script, &["--read", "docs"]);
    client.line("long");
    let (rest, code, err) = client.end();
    assert_eq!((rest.len(), code), (0, 1), "{err}");
    assert!(err.contains("the server: it sent a line of more than 4194304 bytes"), "{err}");
}

#[test]
fn a_client_that_closes_ends_the_server_and_all_that_it_started() {
    let (project, script) = project("");
    project.write("docs/stays", "");
    let client = wrapped(&project, &script, &["--read", "docs", "--read", "out", "--write", "out"]);
    let (rest, code, _) = client.end();
    assert_eq!((rest, code), (Vec::<Json>::new(), 0));
    assert_eq!(std::fs::read_to_string(project.path("out/ended")).unwrap(), "term\n");
}

/// One line in a client's configuration is a command without a shell.
#[test]
fn it_is_one_command_in_any_folder_of_the_project() {
    let (project, script) = project("");
    let mut command = project.command(&["mcp", "wrap", "--read", "docs", "--", "sh", &script]);
    command.current_dir(project.path("src")).stdin(Stdio::null());
    let ran: Ran = project.ran(&command.output().unwrap());
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""), "{ran}");
}

const UNSEEN: &str = "variables, folders outside of the workspace and limits are not observed: they are as they were";

/// What a session used becomes an entry of the policy, under which the same session takes the same course.
#[test]
fn the_least_policy_of_a_session_is_learned() {
    let (project, script) = project("");
    let uses = "cat docs/a.md; ls src; echo more >>out/ended; cat out/ended";
    let mut client = wrapped(&project, &script, &["--profile", "write-workspace", "--env", "MINE=xy", "--learn"]);
    assert_eq!(said(&mut client, uses), "oneb.md more ");
    let (rest, code, err) = client.end();
    let fs = json!({"read": ["docs/a.md", "docs/server.sh", "out/ended", "src"], "write": ["out/ended"]});
    let policy = format!(
        "mcp:\n  servers:\n    wrapped:\n      command: [\"sh\",\"{script}\"]\n      env: {{\"MINE\":\"xy\"}}\n      fs: {fs}\n"
    );
    assert_eq!((rest, code, err), (Vec::new(), 0, format!("{UNSEEN}\n{policy}")));
    // Under it the same is done again, and nothing else.
    let project = project.policy(&policy).file("out/ended", "");
    let mut client = wrapped(&project, &script, &[]);
    assert_eq!(said(&mut client, uses), "oneb.md more ");
    assert_eq!(
        said(&mut client, "cat docs/b.md out/other; : >out/new; : >docs/a.md").matches("No such file").count(),
        2
    );
    drop(client);
    assert!(!project.path("out/new").exists());
    assert_eq!(std::fs::read_to_string(project.path("docs/a.md")).unwrap(), "one");
}

/// A file that appears needs its folder. What the server may not use was used by somebody else.
#[test]
fn what_appears_is_learned_and_what_others_use_is_not() {
    let entry = "mcp:\n  servers:\n    s:\n      command: [sh, SCRIPT]\n      fs: { read: [docs, out], write: [out], protect: [docs/p] }\n";
    let (project, script) = project(entry);
    let mut client = wrapped(&project, &script, &["--learn"]);
    assert_eq!(said(&mut client, ": >out/new; mv out/new out/ended"), "");
    std::fs::read(project.path("src/b.md")).unwrap();
    let (_, code, err) = client.end();
    let fs = json!({"read": ["docs/server.sh", "out"], "write": ["out"], "protect": ["docs/p"]});
    let policy = format!("mcp:\n  servers:\n    s:\n      command: [\"sh\",\"{script}\"]\n      fs: {fs}\n");
    assert_eq!((code, err), (0, format!("{UNSEEN}\n{policy}")));
}
