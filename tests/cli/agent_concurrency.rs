//! `tools_policy.concurrency`: calls of one reply that run at the same time.

use serde_json::{Value as Json, json};

use crate::agent_turns::{agent, order, spied, told};
use crate::project::{Project, Ran};
use crate::sessions::last;

/// Waits until as many as it was given are at work.
const MEETS: &str = "def run(args):\n    metrics.incr('here')\n    for i in range(4000):\n        if metrics.get('here') >= args['all']:\n            return args['n']\n        sleep(5)\n    fail('alone')\n";
const NUMBERS: &str = "parallel: true\nparameters:\n  n: { type: integer }\n  all: { type: integer }\n";

fn calls(tool: &str, count: usize, all: usize) -> String {
    let calls: Vec<String> =
        (0..count).map(|n| format!("{{ name: {tool}, args: {{ n: {n}, all: {all} }} }}")).collect();
    format!("- tool_calls: [{}]\n- text: Done.\n", calls.join(", "))
}

/// What the model got for its calls, in order.
fn results(ran: &Ran) -> Vec<String> {
    let asked = told(ran, "completion.pre");
    let messages = asked.last().unwrap()["messages"].as_array().unwrap();
    let tools = messages.iter().filter(|message| message["role"] == "tool");
    tools.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

fn concurrent(most: u32, replies: &str) -> Project {
    agent(&format!("tools_policy: {{ concurrency: {most} }}\n"), replies).tool("meets", NUMBERS, MEETS)
}

/// As many run at the same time as the policy says, each of them with its hooks; the results have the order of the calls.
#[test]
fn calls_of_a_reply_run_at_the_same_time() {
    let project = concurrent(3, &calls("meets", 3, 3));
    let ran = spied(project, &["completion.pre", "tool.pre", "tool.post"]).run(&["run", "Go"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{ran}");
    assert_eq!(results(&ran), ["0", "1", "2"]);
    let numbers = |event: &str, key: &str| told(&ran, event).iter().map(|one| one[key].clone()).collect::<Vec<_>>();
    assert_eq!(numbers("tool.post", "result"), [json!(0), json!(1), json!(2)]);
    assert_eq!(numbers("tool.pre", "args").iter().map(|args| args["n"].clone()).collect::<Vec<_>>(), [0, 1, 2]);
    // Each call is told with what its hooks said, in the order of the calls.
    let hooks = ["completion.pre", "tool.pre", "tool.post", "tool.pre", "tool.post", "tool.pre", "tool.post"];
    assert_eq!(order(&ran), [&hooks[..], &["completion.pre"]].concat());
}

/// Without the key each call begins when the one before has ended; with it, more than it allows wait.
#[test]
fn no_more_run_than_the_policy_says() {
    let most = "def run(args):\n    now = metrics.incr('now')\n    metrics.set('most', max(metrics.get('most'), now))\n    for i in range(20):\n        sleep(1)\n        metrics.set('most', max(metrics.get('most'), metrics.get('now')))\n    metrics.incr('now', -1)\n    return int(metrics.get('most'))\n";
    let project = |policy: &str| {
        let project = agent(policy, &calls("most", 5, 0)).tool("most", NUMBERS, most);
        spied(project, &["completion.pre"])
    };
    let most = |policy: &str| {
        let results = results(&project(policy).run(&["run", "Go"]));
        assert_eq!(results.len(), 5);
        results.iter().map(|most| most.parse::<u32>().unwrap()).max().unwrap()
    };
    assert_eq!(most(""), 1);
    assert_eq!(most("tools_policy: { concurrency: 1 }\n"), 1);
    assert!(most("tools_policy: { concurrency: 2 }\n") <= 2);
    for (given, why) in [("0", "between 1 and 16"), ("17", "between 1 and 16"), ("many", "an integer, found a string")]
    {
        let why = format!("`tools_policy.concurrency` must be {why}");
        project(&format!("tools_policy: {{ concurrency: {given} }}\n")).run(&["run", "Go"]).says(2, &why);
    }
}

/// An agent's own policy takes away: it may say less than the project, and not more.
#[test]
fn an_agent_may_have_fewer() {
    let run = |project: &str, own: &str| {
        let replies = "- tool_calls: [{ name: delegate, args: { agent: worker, task: Go. } }]\n- text: Done.\n\
                       - { agent: worker, tool_calls: [{ name: meets, args: { n: 1, all: 2 } }, { name: meets, args: { n: 2, all: 2 } }] }\n\
                       - { agent: worker, text: Fine. }\n";
        let script = MEETS.replace("range(4000)", "range(20)");
        let file = format!("---\ndescription: Works.\n{own}---\nYou work.\n");
        let project = agent(project, replies).tool("meets", NUMBERS, &script).file(".harness/agents/worker.md", &file);
        let ran = project.run(&["run", "--explain", "Go"]);
        assert_eq!(ran.code, 0, "{ran}");
        ran.err.matches("alone").count()
    };
    assert_eq!(run("tools_policy: { concurrency: 2 }\n", ""), 0);
    assert_eq!(run("tools_policy: { concurrency: 2 }\n", "tools_policy: { concurrency: 1 }\n"), 1);
    assert_eq!(run("", "tools_policy: { concurrency: 2 }\n"), 1);
}

/// Denials, failures, wrong arguments, unknown tools and the host's own tools keep their places among the others.
#[test]
fn each_call_is_governed_as_if_it_were_alone() {
    let replies = "- tool_calls: [{ name: meets, args: { n: 0, all: 1 } }, { name: nothing }, { name: meets, args: { n: x } }, { name: blocked }, { name: fails }, { name: delegate, args: { agent: worker, task: Go. } }, { name: meets, args: { n: 6, all: 1 } }]\n- text: Done.\n- { agent: worker, text: Fine. }\n";
    let project = |policy: &str| {
        let project = agent(policy, replies)
            .tool("meets", NUMBERS, MEETS)
            .tool("blocked", "", "def run(args):\n    return 1\n")
            .tool("fails", "", "def run(args):\n    fail('so')\n")
            .file(".harness/agents/worker.md", "---\ndescription: Works.\n---\nYou work.\n")
            .with_handle("guard", "tool.pre", "when: payload['name'] == 'blocked'\n", "return block('no')");
        results(&spied(project, &["completion.pre"]).run(&["run", "Go"]))
    };
    let one_by_one = project("");
    assert_eq!(project("tools_policy: { concurrency: 8 }\n"), one_by_one);
    assert_eq!(one_by_one.len(), 7);
    assert_eq!((&*one_by_one[0], &*one_by_one[6]), ("0", "6"));
    assert!(one_by_one[3].contains("blocked by hook \"guard\": no"), "{one_by_one:?}");
    let fine: Json = serde_json::from_str(&one_by_one[5]).unwrap();
    assert_eq!(fine["response"], "Fine.");
}

/// A budget that is used up ends the turn after those that had begun.
#[test]
fn a_budget_ends_the_turn() {
    let policy = "tools_policy: { concurrency: 4 }\ndelegation: { tree_budget: { calls: 2 } }\n";
    let project = agent(policy, &calls("meets", 3, 1)).tool("meets", NUMBERS, MEETS);
    let ran = spied(project, &["tool.post"]).run(&["run", "Go"]);
    ran.says(4, "call budget");
    assert_eq!(told(&ran, "tool.post").len(), 2, "{ran}");
}

/// A session of such calls is recorded once each, and runs again the same, whoever was faster.
#[test]
fn a_session_is_run_again() {
    let asks = "def run(args):\n    for i in range(args['n']):\n        sleep(3)\n    return [metrics.incr('n'), time.now()]\n";
    let project = agent("tools_policy: { concurrency: 4 }\n", &calls("asks", 6, 0))
        .tool("asks", NUMBERS, asks)
        .with_handle("guard", "tool.post", "", "log.info(payload['content'])\nreturn allow()");
    project.run(&["run", "Go"]).says(0, "");
    for _ in 0..3 {
        let ran = project.run(&["sessions", "replay"]);
        assert!(ran.code == 0 && ran.out.contains(": replay matches: "), "{ran}\n{}", last(&project));
    }
    let totals = project.run(&["sessions", "show", "--json"]).json()["totals"].clone();
    assert_eq!((&totals["calls"], &totals["hooks"], &totals["failed"]), (&json!(6), &json!(6), &json!(0)));
    let sum = |project: &Project| -> u64 {
        let lines = crate::sessions::lines(&last(project), "script");
        lines.iter().map(|line| line["fuel"].as_u64().unwrap()).sum()
    };
    assert_eq!(totals["fuel"], sum(&project));
}

/// How many of two calls waited in vain for the other: none where they overlap, the first where they do not.
fn alone(policy: &str, front: &str) -> usize {
    let front = format!("{front}{}", NUMBERS.replace("parallel: true\n", ""));
    let project = agent(&format!("tools_policy: {{ concurrency: 4 }}\n{policy}"), &calls("meets", 2, 2));
    let project = project.tool("meets", &front, &MEETS.replace("range(4000)", "range(20)"));
    let results = results(&spied(project, &["completion.pre"]).run(&["run", "Go"]));
    assert_eq!(results.len(), 2);
    results.iter().filter(|result| result.contains("alone")).count()
}

/// Calls overlap where their grants cannot write, and where the tool says that it does not matter.
#[test]
fn calls_overlap_only_where_they_cannot_write() {
    // A tool that may call others reaches what the server may do.
    const SERVER: &str = "mcp: { servers: { far: { command: [\"no-such-program\"] } } }\n";
    const READS: &str = "capabilities: { fs: { read: [.], write: [] } }\n";
    let domain = |rule: &str| format!("network: {{ allowed_domains: [{rule}] }}\n");
    for (policy, front, overlaps) in [
        ("", "", false),
        ("", "parallel: false\n", false),
        ("", "parallel: true\n", true),
        ("", READS, true),
        ("sandbox: { fs: { read: [.], write: [] } }\n", "", true),
        ("sandbox: { sources: { tools/meets: { fs: { read: [.], write: [] } } } }\n", "", true),
        ("sandbox: { exec: { allow: [ls] } }\n", READS, false),
        ("sandbox: { exec: { allow: [ls] } }\n", "capabilities: { fs: { write: [] }, exec: { allow: [] } }\n", true),
        (&domain("a.example"), READS, false),
        (&domain("{ host: a.example, methods: [GET, POST] }"), READS, false),
        (&domain("{ host: a.example, methods: [GET] }"), READS, true),
        (&domain("a.example"), "capabilities: { fs: { write: [] }, network: [] }\n", true),
        (SERVER, READS, false),
        (SERVER, "capabilities: { fs: { read: [.], write: [] }, services: [metrics, clock] }\n", true),
    ] {
        assert_eq!(alone(policy, front), usize::from(!overlaps), "{policy}{front}");
    }
}

/// The same of delegations: what counts is what the agent may do at all, or what its file says.
#[test]
fn delegations_overlap_only_where_the_agents_cannot_write() {
    let alone = |own: &str| {
        let replies = "- tool_calls: [{ name: delegate, args: { agent: a, task: Go. } }, { name: delegate, args: { agent: b, task: Go. } }]\n- text: Done.\n\
                       - { agent: a, tool_calls: [{ name: meets, args: { n: 1, all: 2 } }] }\n- { agent: a, text: Fine. }\n\
                       - { agent: b, tool_calls: [{ name: meets, args: { n: 2, all: 2 } }] }\n- { agent: b, text: Fine. }\n";
        let file = format!("---\ndescription: Works.\n{own}---\nYou work.\n");
        let project = agent("tools_policy: { concurrency: 4 }\n", replies)
            .tool("meets", NUMBERS, &MEETS.replace("range(4000)", "range(20)"))
            .file(".harness/agents/a.md", &file)
            .file(".harness/agents/b.md", &file);
        let ran = project.run(&["run", "--explain", "Go"]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{ran}");
        ran.err.matches("alone").count()
    };
    assert_eq!(alone(""), 1);
    assert_eq!(alone("parallel: true\n"), 0);
    assert_eq!(alone("capabilities: { fs: { read: [.], write: [] } }\n"), 0);
}
