//! What runs in the background and what a person is asked, in records of sessions: told, shown, and the same when it is
//! run again, whoever was faster; and what someone stopped waiting for.

use insta::assert_snapshot;
use serde_json::{Value as Json, json};

use crate::agent_turns::agent;
use crate::project::Project;
use crate::pty::Person;
use crate::sessions::{PATH, READ, last, lines, shown};

const ON: &str = "sandbox: { async_tools: true }\nmeta: { enabled: true }\n";
/// Goes on until `go` was called.
const SLOW: &str = "def run(args):\n    for i in range(4000):\n        if cache.has('go'):\n            cache.delete('go')\n            return {'i': 'slow'}\n        sleep(5)\n";
const GO: &str = "def run(args):\n    cache.set('go', True)\n";
const WORKER: &str = "---\ndescription: Works.\n---\nYou work.\n";
/// Begins two, of which the second ends first, and looks at the first before it ends.
const ASKS: &str = "def run(args):\n    slow = json.decode(meta.call_tool('slow', {}))['task_id']\n    quick = json.decode(meta.call_tool('quick', {}))['task_id']\n    first = task.await(quick)['result']\n    before = [task.poll(slow)['status'], task.await(slow, timeout_ms = 1)['status']]\n    cache.set('go', True)\n    both = task.await([slow, quick])\n    return [first, before, [one['status'] for one in both], time.now()]\n";

/// Two tasks that a script waits for, one that the model waits for, and two agents that work while it does.
fn tasks() -> Project {
    let replies = "- tool_calls: [{ name: asks }]\n\
                   - tool_calls: [{ name: slow }, { name: delegate_async, args: { agent: worker, task: Look. } }, { name: delegate_async, args: { agent: worker, task: Look. } }, { name: go }]\n\
                   - tool_calls: [{ name: task_await }]\n- tool_calls: [{ name: delegate_await }]\n- text: Done.\n\
                   - { agent: worker, tool_calls: [{ name: count }] }\n- { agent: worker, tool_calls: [{ name: count }] }\n\
                   - { agent: worker, text: One. }\n- { agent: worker, text: Two. }\n";
    let quick = "def run(args):\n    log.info('quickly')\n    return 'quick'\n";
    agent(ON, replies)
        .tool("slow", "async: true\n", SLOW)
        .tool("quick", "async: true\n", quick)
        .tool("asks", "", ASKS)
        .tool("go", "", GO)
        .tool("count", "", "def run(args):\n    return metrics.incr('n')\n")
        .file(".harness/agents/worker.md", WORKER)
        .with_handle("guard", "tool.post", "", "log.info(payload['call_id'])\nreturn allow()")
        .with_handle("judges", "delegation.post", "", "return allow()")
}

fn same(project: &Project) {
    let ran = project.run(&["sessions", "replay"]);
    assert!(ran.code == 0 && ran.out.contains(": replay matches: "), "{ran}\n{}", last(project));
}

/// The line, as it is where a task was given up when its script had ended by its limit and was not heard yet.
fn by_the_task(line: &str) -> String {
    let mut line: Json = serde_json::from_str(line).unwrap();
    if line["kind"] == "task" && line["state"] == "limited" {
        let why = line["called"]["why"].as_str().unwrap();
        let allowed: u64 = why.split(' ').find_map(|word| word.parse().ok()).unwrap();
        line["late"] = json!(allowed);
        forget_work(&mut line["called"]);
    } else if line["kind"] == "called" && line["tool"] == "task_await" {
        line["fuel"] = json!(0);
        forget_work(&mut line["work"]["started"][0]["call"]);
    }
    format!("{line}\n")
}

fn forget_work(call: &mut Json) {
    call["fuel"] = json!(0);
    call.as_object_mut().unwrap().remove("work");
}

/// The tools and states of tasks, as the record has them.
fn states(record: &str) -> Vec<(String, String)> {
    let text = |line: &Json, key: &str| line[key].as_str().unwrap().to_owned();
    lines(record, "task").iter().map(|line| (text(line, "tool"), text(line, "state"))).collect()
}

/// The result that the last message of the model's tools has.
fn told(record: &str, at: usize) -> Json {
    let said = lines(record, "said");
    let tools: Vec<&Json> = said.iter().filter(|line| line["message"]["role"] == "tool").collect();
    serde_json::from_str(tools[at]["message"]["content"].as_str().unwrap()).unwrap()
}

#[test]
fn tasks_are_run_again_whoever_is_faster() {
    let project = tasks();
    let ran = project.run(&["run", "Go."]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{ran}");
    let record = last(&project);
    assert_eq!(
        told(&record, 0),
        json!(["quick", ["running", "running"], ["completed", "completed"], told(&record, 0)[3]])
    );
    let of_script: Vec<_> = states(&record).into_iter().take(4).collect();
    let state = |tool: &str, state: &str| (tool.to_owned(), state.to_owned());
    assert_eq!(
        of_script,
        [state("slow", "began"), state("quick", "began"), state("quick", "completed"), state("slow", "completed")]
    );
    assert_eq!(states(&record).len(), 10, "{record}");
    // In a replay nothing takes its time, so that all that is the same is the same by the record.
    for _ in 0..3 {
        same(&project);
    }
    let report = project.run(&["sessions", "replay", "--json"]).json();
    assert_eq!(
        (&report["same"], &report["compared"]["turns"], &report["compared"]["replies"]),
        (&json!(true), &json!(3), &json!(9))
    );
    // What a task does is compared, and so is what it gives.
    let other = project.tool("quick", "async: true\n", "def run(args):\n    return 'quicker'\n");
    let ran = other.run(&["sessions", "replay"]);
    ran.says(1, "`.harness/tools/quick.md` was changed since");
    assert!(ran.out.contains("root in task 2, around the turns: end of the task of quick"), "{ran}");
    assert!(ran.out.contains("root, turn 1: call call_1 of asks"), "{ran}");
}

/// What begins an agent that runs in the background is one call, whether it begins or cannot; a hook that looks at what
/// it begins is told.
#[test]
fn what_is_begun_is_counted_once() {
    let begins = "{ name: delegate_async, args: { agent: worker, task: Look. } }";
    let replies = format!(
        "- tool_calls: [{begins}, {begins}]\n- tool_calls: [{{ name: go }}, {{ name: delegate_await }}]\n- text: Done.\n\
         - {{ agent: worker, tool_calls: [{{ name: slow }}] }}\n- {{ agent: worker, text: Looked. }}\n"
    );
    // The first is at work until the second was refused.
    let slow = SLOW.replace("return {'i': 'slow'}", "fail('no')");
    let project = agent("delegation: { max_concurrent: 1 }\n", &replies)
        .tool("slow", "", &slow)
        .tool("go", "", GO)
        .file(".harness/agents/worker.md", WORKER)
        .with_handle("guard", "tool.pre", "when: payload['name'] == 'delegate'\n", "return allow()");
    project.run(&["run", "Go."]).says(0, "");
    let shown = project.run(&["sessions", "show", "--json"]).json();
    let totals = &shown["totals"];
    // Both beginnings, what lets the first end, the waiting, and what the agent calls; the second beginning failed, and
    // so did that.
    assert_eq!((&totals["calls"], &totals["failed"], &totals["hooks"]), (&json!(5), &json!(2), &json!(2)), "{shown:#}");
}

/// A task is told in the call that began it, from its beginning to its end, with the agent that works in it.
#[test]
fn tasks_and_confirmations_are_on_the_timeline() {
    let replies = "- tool_calls: [{ name: slow }, { name: delegate_async, args: { agent: worker, task: Look. } }, { name: drop }, { name: go }]\n\
                   - tool_calls: [{ name: task_await }]\n- text: Done.\n- { agent: worker, tool_calls: [{ name: drop }] }\n- { agent: worker, text: Not. }\n";
    let project = agent(ON, replies)
        .tool("slow", "async: true\n", SLOW)
        .tool("drop", "confirm: true\n", "def run(args):\n    return 'dropped'\n")
        .tool("go", "", GO)
        .file(".harness/agents/worker.md", WORKER)
        .with_handle("guard", "tool.post", "when: payload['name'] == 'slow'\n", "return allow()");
    project.run(&["run", "Go."]).says(0, "");
    let record = last(&project);
    let said: Vec<(Json, Json)> =
        lines(&record, "confirmation").iter().map(|line| (line["tool"].clone(), line["answer"].clone())).collect();
    assert_eq!(said, [(json!("drop"), json!("nobody")), (json!("drop"), json!("nobody"))]);
    let strands: Vec<Json> = lines(&record, "task").iter().map(|line| line["strand"].clone()).collect();
    assert!(strands.contains(&json!("1")) && strands.contains(&json!("2")), "{strands:?}");
    let ids = |text: &str| {
        let mut parts = text.split("task_");
        let first = parts.next().unwrap().to_owned();
        let rest = parts.map(|part| match part.get(..32) {
            Some(id) if id.chars().all(|c| c.is_ascii_hexdigit()) => format!("task_ID{}", part.get(32..).unwrap()),
            _ => format!("task_{part}"),
        });
        // How often it looks whether it may continue is a matter of time.
        let text = std::iter::once(first).chain(rest).collect::<String>();
        (2..100).fold(text, |text, looks| text.replace(&format!("fuel N, {looks} host calls"), "fuel N, _ host calls"))
    };
    assert_snapshot!(ids(&shown(&project.run(&["sessions", "show"]).out)), @r#"
    SESSION  WHEN  run
    harness T, model script (script)
    1 turn in _: 5 replies (823 + 10 tokens), 6 calls, 2 refused, 1 turn of a sub-agent, 1 hook ran, fuel N

    turn 1, _, answered
    > Go.
    _ _ model script calls slow, delegate_async, drop, go (114 + 8 tokens)
    _ _ tool slow completed
                           ( {}
                           = {"task_id":"task_ID","status":"running"}
    _ _   task slow completed (fuel N, _ host calls)
    _ _     hook guard on tool.post: allow (fuel N)
    _ _ tool delegate_async completed
                           ( {"agent":"worker","task":"Look."}
                           = {"task_id":"task_ID","status":"running"}
    _ _   task delegate completed
    _ _     agent worker answered (263 + 1 tokens)
                               > Look.
    _ _       model script calls drop (115 + 0 tokens)
    _ _       tool drop denied: each call of `drop` needs confirmation (`confirm: true` in `.harness/tools/drop.md:2:10`), and no confirmer is available
                                 ( {}
                                 = tool denied: each call of `drop` needs confirmation (`confirm: true` in `.harness/tools/drop.md:2:10`), and no confirmer is available
    _                   drop: needs confirmation, and no confirmer is available
    _ _       model script answers (148 + 1 tokens)
                                 " Not.
    _ _ tool drop denied: each call of `drop` needs confirmation (`confirm: true` in `.harness/tools/drop.md:2:10`), and no confirmer is available
                           ( {}
                           = tool denied: each call of `drop` needs confirmation (`confirm: true` in `.harness/tools/drop.md:2:10`), and no confirmer is available
    _             drop: needs confirmation, and no confirmer is available
    _ _ tool go completed (fuel N, 1 host call)
                           ( {}
                           = null
    _ _ model script calls task_await (182 + 0 tokens)
    _ _ tool task_await completed
                           ( {}
                           = [{"task_id":"task_ID","tool":"slow","status":"completed","result":{"i":"slow"}},{"task_id":"task_ID","tool":"delegate","status":"completed",…
    _ _ model script answers (264 + 1 tokens)
                           " Done.
    Done.
    "#);
    let page = project.run(&["sessions", "show", "--html"]).out;
    for part in ["<details class=\"task \" id=\"turn-1-2-1\">", "no confirmer is available", "<b>slow</b>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    same(&project);
    // A person's answer is given again, and nobody is asked.
    let project = agent("", "- tool_calls: [{ name: drop }, { name: drop }]\n- text: Done.\n").tool(
        "drop",
        "confirm: true\n",
        "def run(args):\n    return 'dropped'\n",
    );
    let mut person = Person::starts(&project, &["run", "Go."]);
    for answer in ["y\n", "n\n"] {
        person.sees("[N]o: ");
        person.types(answer);
    }
    assert_eq!(person.leaves(), 0, "{}", person.seen);
    let text = last(&project);
    let answers: Vec<Json> = lines(&text, "confirmation").iter().map(|line| line["answer"].clone()).collect();
    assert_eq!(answers, ["yes", "no"]);
    same(&project);
    let shown = project.run(&["sessions", "show"]).out;
    assert!(shown.contains("drop: confirmed\n") && shown.contains("drop: not confirmed\n"), "{shown}");
}

/// A file, a server, a hook, fuel and time say no, each in one call of a session.
#[test]
fn a_session_of_refusals_is_run_again() {
    let calls = ["read", "fetch", "guarded", "spin", "nap", "none"].map(|name| format!("{{ name: {name} }}"));
    let replies = format!("- tool_calls: [{}]\n- text: Done.\n", calls.join(", "));
    let project = agent("sandbox: { fs: { read: [docs] }, limits: { fuel: 30000000 } }\n", &replies)
        .tool("read", "", "def run(args):\n    return fs.read('config.yaml')\n")
        .tool("fetch", "", "def run(args):\n    return http.get('https://example.com/')\n")
        .tool("guarded", "", "def run(args):\n    return 1\n")
        .tool("spin", "", "def run(args):\n    for i in range(1000000000):\n        pass\n")
        .tool("nap", "timeout_ms: 1000\n", "def run(args):\n    log.info('before')\n    sleep(20000)\n")
        .file("config.yaml", "port: 8080\n")
        .with_handle("guard", "tool.pre", "when: payload['name'] == 'guarded'\n", "return block('not this one')");
    project.run(&["run", "Try."]).says(0, "");
    let text = last(&project);
    let outcomes: Vec<Json> = lines(&text, "called").iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["denied", "denied", "denied", "limited", "limited", "rejected"]);
    let why: Vec<String> =
        lines(&text, "called").iter().map(|line| line["why"].as_str().unwrap_or_default().to_owned()).collect();
    assert!(why[3].contains("`fuel`") && why[4].contains("`timeout_ms`"), "{why:?}");
    let refused: Vec<Json> =
        lines(&text, "called").iter().map(|line| line["work"]["host"][0]["call"].clone()).collect();
    assert_eq!(refused[..2], [json!("fs.read"), json!("http.send")]);
    same(&project);
    // What is refused is found in the record, whatever is there now; what is allowed by a change of the tool is told.
    project.write("docs/x", "");
    same(&project);
    let other = project.tool("spin", "", "def run(args):\n    return 'done'\n");
    let ran = other.run(&["sessions", "replay"]);
    assert!(ran.code == 1 && ran.out.contains("outcome: limited\n      now  completed"), "{ran}");
}

/// A reply of the record that was changed is another session.
#[test]
fn a_reply_that_was_changed_differs() {
    let project = agent("", "- tool_calls: [{ name: read_file, args: { path: a } }]\n- text: Done.\n")
        .tool("read_file", PATH, READ)
        .file("a", "x")
        .file("b", "x");
    project.run(&["run", "Read."]).says(0, "");
    same(&project);
    let file = crate::sessions::files(&project).remove(0);
    let text = std::fs::read_to_string(&file).unwrap();
    let other = text.replacen("{\\\"path\\\":\\\"a\\\"}", "{\\\"path\\\":\\\"b\\\"}", 1);
    assert_ne!(other, text);
    std::fs::write(&file, other).unwrap();
    let ran = project.run(&["sessions", "replay"]);
    assert!(ran.code == 1 && ran.out.contains("root, turn 1: call call_1 of read_file"), "{ran}");
    assert!(ran.out.contains("now  the recording has no answer of `fs.read` to this"), "{ran}");
}

/// What was given up because its time was over is given up there again, though nothing takes any time now.
#[test]
fn what_was_too_late_is_too_late_again() {
    let waits = "def run(args):\n    log.info('begins')\n    sleep(20000)\n    return 'slept'\n";
    let worker =
        "- { agent: worker, tool_calls: [{ name: quick }, { name: wait }] }\n- { agent: worker, text: Slept. }\n";
    // A delegation.
    let replies = format!(
        "- tool_calls: [{{ name: delegate, args: {{ agent: worker, task: Wait. }} }}]\n- text: Too late.\n{worker}"
    );
    let project = |policy: &str, replies: &str| {
        agent(policy, replies)
            .tool("wait", "", waits)
            .tool("quick", "", "def run(args):\n    return 'quick'\n")
            .file(".harness/agents/worker.md", WORKER)
    };
    let late = project("delegation: { timeout_ms: 1500 }\n", &replies);
    late.run(&["run", "Go."]).says(0, "");
    let text = last(&late);
    assert!(lines(&text, "returned")[0]["error"].as_str().unwrap().contains("took longer than 1500 ms"), "{text}");
    assert_eq!(lines(&text, "returned")[0]["late"], true);
    same(&late);
    let shown = late.run(&["sessions", "show"]).out;
    assert!(shown.contains("the delegation took longer than 1500 ms"), "{shown}");
    // The time of a budget, of a sub-agent that runs in the background, and of a task that a script began.
    let budget = "delegation: { budget: { time_ms: 1500 } }\n";
    let replies = replies.replace("name: delegate,", "name: delegate_async,").replacen(
        "- text: Too late.",
        "- tool_calls: [{ name: delegate_await }]\n- text: Too late.",
        1,
    );
    let late = project(budget, &replies);
    late.run(&["run", "Go."]).says(0, "");
    let text = last(&late);
    assert!(text.contains("time budget used up (1500 of 1500)"), "{text}");
    same(&late);
    let replies = "- tool_calls: [{ name: start }]\n- tool_calls: [{ name: task_await }]\n- text: Too late.\n";
    let late = agent(ON, replies).tool("slow", "async: true\n", waits).tool(
        "start",
        "timeout_ms: 1500\n",
        "def run(args):\n    return meta.call_tool('slow', args)\n",
    );
    late.run(&["run", "Go."]).says(0, "");
    assert!(told(&last(&late), 1)[0]["error"].as_str().unwrap().contains("over the limit `timeout_ms` of "));
    same(&late);
    // Its script and it have the same time: either may be the first that finds it over.
    let file = crate::sessions::files(&late).remove(0);
    let both = last(&late).lines().map(by_the_task).collect::<String>();
    std::fs::write(&file, both).unwrap();
    same(&late);
    // A script, in the middle of what it has called.
    let late = agent("meta: { enabled: true }\n", "- tool_calls: [{ name: outer }]\n- text: Too late.\n")
        .tool("wait", "", waits)
        .tool("outer", "timeout_ms: 1500\n", "def run(args):\n    return meta.call_tool('wait', {})\n");
    late.run(&["run", "Go."]).says(0, "");
    same(&late);
}

/// A script that waits for nothing ends where it was when its time was over, by the fuel that it had used there.
#[test]
fn what_was_too_slow_ends_at_the_same_place() {
    let spins = "def run(args):\n    fs.exists('a')\n    for i in range(1000000000):\n        pass\n";
    let outer = "def run(args):\n    fs.read('a')\n    return meta.call_tool('spin', {})\n";
    let replies = "- tool_calls: [{ name: spin }, { name: outer }, { name: quick }]\n- text: Too late.\n";
    let project = agent("meta: { enabled: true }\n", replies)
        .tool("spin", "timeout_ms: 400\n", spins)
        .tool("outer", "", outer)
        .tool("quick", "", "def run(args):\n    return 'quick'\n")
        .file("a", "x");
    project.run(&["run", "Go."]).says(0, "");
    let record = last(&project);
    let late = |line: &&Json| line["result"] == "over the limit `timeout_ms` of 400 ms" && line["waited"].is_null();
    let scripts = lines(&record, "script");
    let spun: Vec<_> = scripts.iter().filter(late).collect();
    assert_eq!(spun.len(), 2);
    for _ in 0..2 {
        same(&project);
    }
    // Of a script that has changed it is told.
    let less = spins.replace("1000000000", "10");
    let project = project.tool("spin", "timeout_ms: 400\n", &less);
    let ran = project.run(&["sessions", "replay"]);
    assert!(ran.code == 1 && ran.err.contains("spin.md` was changed since"), "{ran}");
}

/// A call whose time was over while a script was loaded ends there again, and loads nothing: a tool's script, its `verify`,
/// a hook, what a script adds to its run, and a script of a model.
#[test]
fn what_was_too_late_to_load_is_too_late_again() {
    let works =
        |times: u32, then: &str| format!("def f():\n    for i in range({times}):\n        pass\n\nf()\n\n{then}");
    let (heavy, quick) = (works(2_500_000, "def run(args):\n    return 'ran'\n"), "def run(args):\n    return 'ran'\n");
    let replies = |calls: &str| format!("- tool_calls: [{calls}]\n- text: Too late.\n");
    let late = |project: &Project, outcome: &str| {
        project.run(&["run", "Go."]).says(0, "");
        let text = last(project);
        assert_eq!(lines(&text, "called")[0]["outcome"], outcome, "{text}");
        let is_load = |line: &&Json| line["script"]["role"] == "load";
        assert!(lines(&text, "script").iter().any(|line| is_load(&line)), "{text}");
        same(project);
        same(project);
        text
    };
    let tool = agent("", &replies("{ name: heavy }")).tool("heavy", "timeout_ms: 1\n", &heavy);
    let text = late(&tool, "limited");
    assert!(lines(&text, "called")[0]["why"].as_str().unwrap().contains("while its script was loaded"), "{text}");
    // A recording without that line is one of an older version: its replay loads the script and runs it.
    let file = crate::sessions::files(&tool).remove(0);
    let older: String =
        text.lines().filter(|line| !line.contains("\"role\":\"load\"")).map(|l| format!("{l}\n")).collect();
    assert_ne!(older, text);
    std::fs::write(&file, older).unwrap();
    let ran = tool.run(&["sessions", "replay"]);
    assert!(ran.code == 1 && ran.out.contains("outcome: limited\n      now  completed"), "{ran}");
    let verify: String = heavy.lines().map(|line| format!("  {line}\n")).collect();
    let front = format!("timeout_ms: 1\nverify: |\n{verify}");
    late(&agent("", &replies("{ name: judged }")).tool("judged", &front, quick), "limited");
    let body = works(2_500_000, "").replace('\n', "\n  ");
    let hook = format!(
        "---\nevent: tool.pre\nscript: |\n  {body}\n  def handle(event, payload):\n      return allow()\n---\n"
    );
    late(
        &agent("sandbox: { limits: { timeout_ms: 100 } }\n", &replies("{ name: quick }"))
            .tool("quick", "", quick)
            .file(".harness/hooks/heavy.md", &hook.replace("2500000", "100000000")),
        "denied",
    );
    let adds = format!(
        "def run(args):\n    meta.register_tool('new', 'New.', {{}}, {})\n    return 'added'\n",
        json!(heavy.replace("2500000", "100000000"))
    );
    let adding =
        agent("meta: { enabled: true }\n", &replies("{ name: adds }")).tool("adds", "timeout_ms: 300\n", &adds);
    adding.run(&["run", "Go."]).says(0, "");
    assert!(last(&adding).contains("\"role\":\"load\""), "{}", last(&adding));
    same(&adding);
    let script = json!({ "script": heavy.replace("2500000", "100000000") });
    late(
        &agent(
            "mcp: { expose: code }\nsandbox: { limits: { timeout_ms: 300 } }\n",
            &replies(&format!("{{ name: run_script, args: {script} }}")),
        )
        .tool("quick", "", quick),
        "limited",
    );
}

/// Who takes the last of a budget that agents at one time share is a matter of luck, and is the same again.
#[test]
fn the_last_of_a_budget_is_taken_by_the_same() {
    let replies = "- tool_calls: [{ name: delegate_async, args: { agent: slowly, task: Go. } }, { name: delegate_async, args: { agent: quickly, task: Go. } }]\n\
                   - tool_calls: [{ name: delegate_await }]\n- text: Done.\n\
                   - { agent: slowly, tool_calls: [{ name: wait }, { name: wait }, { name: wait }] }\n- { agent: slowly, text: Slowly. }\n\
                   - { agent: quickly, tool_calls: [{ name: quick }, { name: quick }, { name: quick }] }\n- { agent: quickly, text: Quickly. }\n";
    for calls in [5, 6, 7] {
        let project = agent(&format!("delegation: {{ tree_budget: {{ calls: {calls} }} }}\n"), replies)
            .tool("wait", "", "def run(args):\n    sleep(60)\n")
            .tool("quick", "", "def run(args):\n    return 'quick'\n")
            .file(".harness/agents/slowly.md", WORKER)
            .file(".harness/agents/quickly.md", WORKER);
        let _ = project.run(&["run", "Go."]);
        let record = last(&project);
        assert!(record.contains(&format!("call budget used up ({calls} of {calls})")), "{record}");
        for _ in 0..3 {
            same(&project);
        }
    }
}

/// What a task adds to the run is seen where it was seen then: by scripts, by hooks' events and in what the model is
/// offered. In a replay nobody waits, so that whoever computes less is there first: once the one, once the other.
#[test]
fn what_a_task_adds_is_seen_by_the_same() {
    let spin = |turns: u32| format!("    for i in range({turns}):\n        pass\n");
    let until = |what: &str| {
        format!("    for i in range(4000):\n        if cache.has('{what}'):\n            break\n        sleep(5)\n")
    };
    let adds = |turns: u32| {
        let tool = "meta.register_tool('extra', 'Added.', {}, \"def run(args):\\n    return 'extra'\\n\")";
        let hook = "meta.register_hook('late', 'tool.pre', \"def handle(event, payload):\\n    return block('late')\\n\", when = \"payload['name'] == 'probe'\")";
        let (go, spin) = (until("go"), spin(turns));
        format!("def run(args):\n{go}{spin}    {tool}\n    {hook}\n    cache.set('added', True)\n    return 'added'\n")
    };
    let looks = |turns: u32| {
        let look = "[[tool['name'] for tool in meta.list_tools('extra')], meta.call_tool('probe')]";
        let (spin, added) = (spin(turns), until("added"));
        format!(
            "def run(args):\n{spin}    before = {look}\n    cache.set('go', True)\n{added}    return [before, {look}]\n"
        )
    };
    let replies = "- tool_calls: [{ name: adds }]\n- tool_calls: [{ name: looks }]\n\
                   - tool_calls: [{ name: extra }, { name: task_await }]\n- text: Done.\n";
    for (adding, looking) in [(0, 400_000), (400_000, 0)] {
        let project = agent(ON, replies)
            .tool("adds", "async: true\n", &adds(adding))
            .tool("looks", "", &looks(looking))
            .tool("probe", "", "def run(args):\n    return 'probed'\n");
        project.run(&["run", "Go."]).says(0, "");
        let record = last(&project);
        assert_eq!(
            told(&record, 1),
            json!([[[], "probed"], [["extra"], "error: tool blocked: blocked by hook \"late\": late"]])
        );
        same(&project);
        let seen: Vec<Json> = lines(&record, "saw").iter().map(|line| line["adds"].clone()).collect();
        assert!(
            seen.contains(&json!("extra")) && seen.contains(&json!("late")) && seen.contains(&Json::Null),
            "{seen:?}"
        );
        // What nobody adds now is waited for by nobody.
        let other = project.tool("adds", "async: true\n", "def run(args):\n    return 'nothing'\n");
        let ran = other.run(&["sessions", "replay"]);
        assert!(
            ran.code == 1 && ran.out.contains("root in task 1, around the turns: end of the task of adds"),
            "{ran}"
        );
    }
}

/// A record of before it was kept who saw what: that is found out again.
#[test]
fn an_older_record_of_additions_is_run_again() {
    let adds =
        "def run(args):\n    meta.register_tool('extra', 'Added.', {}, \"def run(args):\\n    return 'extra'\\n\")\n";
    let replies = "- tool_calls: [{ name: adds }]\n- tool_calls: [{ name: extra }]\n- text: Done.\n";
    let project = agent(ON, replies).tool("adds", "", adds);
    project.run(&["run", "Go."]).says(0, "");
    let record = last(&project);
    assert_eq!(lines(&record, "saw").len(), 1, "{record}");
    let older: String =
        record.lines().filter(|line| !line.contains("\"kind\":\"saw\"")).map(|line| format!("{line}\n")).collect();
    std::fs::write(crate::sessions::files(&project).remove(0), older).unwrap();
    same(&project);
}

/// A turn that a person has stopped does not keep those after it from being run again.
#[test]
fn a_conversation_goes_on_after_a_turn_that_was_stopped() {
    let waits = "def run(args):\n    fs.write('began', 'x')\n    sleep(20000)\n    return 'slept'\n";
    let replies = "- tool_calls: [{ name: quick }, { name: slow }, { name: wait }]\n- text: Then not.\n- text: Bye.\n";
    let project = agent(ON, replies).tool("wait", "", waits).tool("slow", "async: true\n", SLOW).tool(
        "quick",
        "",
        "def run(args):\n    return 'quick'\n",
    );
    let mut person = Person::starts(&project, &["run"]);
    person.sees("> ");
    person.types("Wait.\r");
    person.sees("calls wait");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !project.path("began").exists() {
        assert!(std::time::Instant::now() < end, "{}", person.seen);
        std::thread::yield_now();
    }
    person.interrupts();
    person.sees("stopped");
    person.types("Do not wait.\r");
    person.sees("Then not.");
    person.types("Well.\r");
    person.sees("Bye.");
    person.types("/quit\r");
    assert_eq!(person.leaves(), 0, "{}", person.seen);
    assert_eq!(lines(&last(&project), "stopped").len(), 1);
    let ran = project.run(&["sessions", "replay"]);
    ran.says(0, "1 turn did not end in the recording");
    assert!(ran.out.contains(": replay matches: 3 turns, 3 requests, 2 calls"), "{ran}");
}

/// A process that is ended at once leaves a record that is run again as far as it goes.
#[test]
fn a_session_that_was_killed_is_run_again() {
    let waits = "def run(args):\n    fs.write('began', 'x')\n    sleep(20000)\n    return 'slept'\n";
    let replies = "- tool_calls: [{ name: slow }, { name: wait }]\n- text: Done.\n";
    let project = agent(ON, replies).tool("wait", "", waits).tool("slow", "async: true\n", SLOW);
    let line = "\"$HARNESS\" run Wait. & pid=$!; for i in $(seq 400); do [ -e began ] && break; sleep 0.05; done; \
                kill -KILL $pid; wait $pid; echo $?";
    let ran = project.shell(line);
    assert!(ran.out.contains("137"), "{ran}");
    let ran = project.run(&["sessions", "replay"]);
    ran.says(0, "1 turn did not end in the recording");
}
