//! A turn that was interrupted when its process was killed, and `harness run --continue`.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

use crate::agent_turns::agent;
use crate::project::Project;
use crate::sessions::{last, lines};

/// Marks that it was called; where it is called slow, it ends once there is a file `go`.
const ACTS: &str = "def run(args):\n    fs.append('marks', args['name'] + '\\n')\n    for _ in range(20000):\n        if args['name'] != 'slow' or fs.exists('go'):\n            return args['name']\n        sleep(5)\n    return 'late'\n";
const CALLS: &str = "- tool_calls: [{ name: acts, args: { name: first } }, { name: acts, args: { name: slow } }, { name: acts, args: { name: last } }]\n";

fn acting(front: &str) -> Project {
    let front = format!("timeout_ms: 600000\nparameters: {{ name: {{ type: string }} }}\n{front}");
    agent("sandbox: { fs: { read: [go], write: [marks] } }\n", &format!("{CALLS}- text: early\n"))
        .tool("acts", &front, ACTS)
}

fn marks(project: &Project) -> String {
    std::fs::read_to_string(project.path("marks")).unwrap_or_default()
}

/// Runs the agent, and kills the process when its tool has left these marks.
fn killed(project: &Project, arguments: &[&str], wanted: &str) {
    let mut child = project.command(arguments).spawn().unwrap();
    while marks(project) != wanted {
        assert!(child.try_wait().unwrap().is_none(), "{}", marks(project));
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
}

/// What the model got for its calls.
fn results(record: &str) -> Vec<String> {
    let said = lines(record, "said");
    let tools = said.iter().filter(|line| line["message"]["role"] == "tool");
    tools.map(|line| line["message"]["content"].as_str().unwrap().to_owned()).collect()
}

fn same(project: &Project) {
    let ran = project.run(&["sessions", "replay"]);
    assert!(ran.code == 0 && ran.out.contains(": replay matches: "), "{ran}\n{}", last(project));
}

#[test]
fn a_turn_is_finished_after_its_process_was_killed() {
    for (front, repeated) in [("", false), ("effect: once\n", false), ("effect: idempotent\n", true)] {
        let project = acting(front);
        killed(&project, &["run", "Act."], "first\nslow\n");
        project.write("go", "");
        project.write("replies.yaml", "- text: All done.\n");
        let ran = project.run(&["run", "--continue", "latest"]);
        ran.gives("All done.");
        assert_eq!(marks(&project), if repeated { "first\nslow\nslow\nlast\n" } else { "first\nslow\nlast\n" });
        let unknown = "error: the host ended while this call of `acts` was under way, and whether it took effect is unknown; \
                       it was not made again, because the tool does not say `effect: none` or `effect: idempotent`";
        let record = last(&project);
        assert_eq!(results(&record), ["first", if repeated { "slow" } else { unknown }, "last"]);
        let continued: Vec<Json> = lines(&record, "continued");
        assert_eq!((continued.len(), &continued[0]["text"]), (1, &Json::from("Act.")), "{record}");
        assert_eq!(lines(&record, "turned")[0]["rounds"], 1);
        same(&project);
        let shown = project.run(&["sessions", "show"]).out;
        assert!(shown.contains("continued after the process had ended"), "{shown}");
        // Its conversation is whole, and nothing is left to continue.
        let ran = project.run(&["run", "--continue", "latest"]);
        assert!(ran.code == 2 && ran.err.contains("was not interrupted in a turn"), "{ran}");
        project.run(&["run", "--resume", "latest", "Well?"]).gives("All done.");
        same(&project);
    }
}

#[test]
fn a_turn_is_continued_as_often_as_it_takes() {
    let project = acting("effect: none\n");
    killed(&project, &["run", "Act."], "first\nslow\n");
    killed(&project, &["run", "--continue", "latest"], "first\nslow\nslow\n");
    project.write("go", "");
    project.write("replies.yaml", "- text: All done.\n");
    assert_eq!(project.run(&["run", "--continue", "latest", "--json"]).json()["answer"], "All done.");
    assert_eq!(marks(&project), "first\nslow\nslow\nslow\nlast\n");
    same(&project);
}

/// What was used before counts: a turn gets no more by being interrupted.
#[test]
fn budgets_and_rounds_count_what_was_used_before() {
    for (policy, why) in [
        ("exit_policy: { max_iterations: 1, on_max_iterations: error }\n", "max tool rounds"),
        ("delegation: { tree_budget: { calls: 3 } }\n", "call budget used up (3 of 3)"),
    ] {
        let project = agent(
            &format!("sandbox: {{ fs: {{ read: [go], write: [marks] }} }}\n{policy}"),
            &format!("{CALLS}- text: early\n"),
        )
        .tool("acts", "timeout_ms: 600000\nparameters: { name: { type: string } }\n", ACTS);
        killed(&project, &["run", "Act."], "first\nslow\n");
        project.write("go", "");
        project.write("replies.yaml", &format!("{CALLS}- text: All done.\n"));
        let ran = project.run(&["run", "--continue", "latest"]);
        assert!(ran.code != 0 && ran.err.contains(why), "{ran}");
        same(&project);
    }
}
