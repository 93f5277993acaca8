//! How the processes of servers end: by the end of their input, by SIGTERM, or by being killed.

use serde_json::json;

use crate::project::Project;

/// A server that is a shell script, and what it does when its input has ended.
fn ended(at_end: &str) -> (i32, String) {
    let script = "\
answer() { printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\\n' \"$id\" \"$1\"; }
out() { echo \"$1\" >>\"$HARNESS_WORKSPACE/out/ended\"; }
while IFS= read -r line; do
  id=${line#*'\"id\":'}
  id=${id%%,*}
  case $line in
    *server/discover*) answer '{\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{\"tools\":{}}}' ;;
    *tools/list*) answer '{\"tools\":[{\"name\":\"a\",\"inputSchema\":{\"type\":\"object\"}}]}' ;;
    *tools/call*) answer '{\"content\":[]}' ;;
  esac
done
out eof
";
    let project = Project::new().file("docs/server.sh", &format!("{script}{at_end}")).file("out/kept", "");
    let command = json!(["sh", project.root().canonicalize().unwrap().join("docs/server.sh")]);
    let files = "fs: { read: [docs, out], write: [out] }";
    let project = project.policy(&format!(
        "sandbox: {{ fs: {{ read: [\"**\"], write: [\"**\"] }} }}\nmcp:\n  servers:\n    s: {{ command: {command}, {files} }}\n"
    ));
    assert_eq!(project.run(&["lock"]).code, 0);
    std::fs::remove_file(project.path("out/ended")).unwrap();
    let ran = project.run(&["call", "s_a"]);
    (ran.code, std::fs::read_to_string(project.path("out/ended")).unwrap())
}

/// Tries again where the server was late: on a busy machine it may not come to anything before it is killed.
fn ended_in_order(at_end: &str) -> (i32, String) {
    let wanted = (0, "eof\nterm\n".to_owned());
    (0..9).map(|_| ended(at_end)).find(|ended| *ended == wanted).unwrap_or_else(|| ended(at_end))
}

#[test]
fn a_server_that_ends_with_its_input_gets_no_signal() {
    assert_eq!(ended("trap 'out term' TERM\nexit 0\n"), (0, "eof\n".to_owned()));
}

#[test]
fn a_server_that_stays_gets_sigterm_and_can_end_in_order() {
    let stays = "trap 'out term; exit 0' TERM\nwhile :; do sleep 1; done\n";
    assert_eq!(ended_in_order(stays), (0, "eof\nterm\n".to_owned()));
}

/// All of its processes get it, and who ignores it is killed: the call ends all the same.
#[test]
fn a_server_that_ignores_sigterm_is_killed() {
    let ignores =
        "trap 'out term' TERM\nsh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' &\nwhile :; do sleep 1; done\n";
    assert_eq!(ended_in_order(ignores), (0, "eof\nterm\n".to_owned()));
}
