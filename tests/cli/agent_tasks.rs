//! What runs in the background: tools with `async: true`, agents that work while others do, and what becomes of both.

use serde_json::{Value as Json, json};

use crate::agent_turns::{agent, spied, told};
use crate::project::{Project, Ran};
use crate::pty::Person;

const ON: &str = "sandbox: { async_tools: true }\nmeta: { enabled: true }\n";
/// Starts `slow` and says what it got.
const START: &str = "def run(args):\n    return json.decode(meta.call_tool('slow', args))\n";

/// What the model of an agent with this prompt got for its calls, in order.
fn results(ran: &Ran, prompt: &str) -> Vec<String> {
    let asked = told(ran, "completion.pre");
    let of =
        asked.iter().rfind(|request| request["messages"][0]["content"] == prompt).unwrap_or_else(|| panic!("{ran}"));
    let messages = of["messages"].as_array().unwrap().iter();
    let tools = messages.filter(|message| message["role"] == "tool");
    tools.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A reply that calls these.
fn calls(names: &str) -> String {
    let calls: Vec<String> = names.split(' ').map(|name| format!("{{ name: {name} }}")).collect();
    format!("- tool_calls: [{}]\n", calls.join(", "))
}

fn entries(project: &Project) -> Vec<Json> {
    project.run(&["audit", "show", "--json", "--last", "1000"]).out.lines().map(json).collect()
}

/// The page reserves the field: without the policy's word it changes nothing, for models and scripts too.
#[test]
fn without_the_policy_s_word_it_has_no_effect() {
    let replies = format!("{}- text: Done.\n", calls("slow start"));
    let with = |policy: &str| {
        let project =
            agent(policy, &replies).tool("slow", "async: true\n", "def run(args):\n    return {'is': 'slow'}\n");
        spied(project.tool("start", "", START), &["completion.pre"]).run(&["run", "Go"])
    };
    let off = with("meta: { enabled: true }\n");
    assert_eq!(results(&off, "You help."), ["{\"is\":\"slow\"}", "{\"is\":\"slow\"}"]);
    let tools = told(&off, "completion.pre")[0]["tools"].to_string();
    assert!(!tools.contains("task_"), "{tools}");
    let on = with(ON);
    for result in results(&on, "You help.") {
        let result = json(&result);
        assert_eq!(result["status"], "running");
        let id = result["task_id"].as_str().unwrap();
        assert!(id.starts_with("task_") && id.len() == 37, "{id}");
    }
    // A hook could not ask later: it waits.
    let hook = "log.info('got ' + meta.call_tool('slow', {}))\nreturn allow()";
    let project =
        agent(ON, &format!("{}- text: Done.\n", calls("start"))).tool("start", "", "def run(args):\n    return 1\n");
    let project = project.tool("slow", "async: true\n", "def run(args):\n    return 'slow'\n");
    project
        .with_handle("h", "tool.pre", "when: payload['name'] == 'start'\n", hook)
        .run(&["run", "Go"])
        .says(0, "got slow\n");
    // The caller from a command line could not ask later: it waits.
    let project = Project::new().policy(ON).tool("slow", "async: true\n", "def run(args):\n    return 'slow'\n");
    project.run(&["call", "slow"]).gives("slow");
}

/// Each waits for what the other does, so that they end only if both continue at once; and the model continues as well.
#[test]
fn tasks_go_on_together_and_their_results_are_there_when_they_are_asked_for() {
    let meets =
        "parameters:\n  me: { type: string, required: true }\n  other: { type: string, required: true }\nasync: true\n";
    let script = "def run(args):\n    cache.set(args['me'], True)\n    for i in range(2000):\n        if cache.has(args['other']) and cache.has('model'):\n            return args['me'] + ' met ' + args['other']\n        sleep(10)\n    fail('alone')\n";
    let replies = "- tool_calls: [{ name: meets, args: { me: a, other: b } }, { name: meets, args: { me: b, other: a } }, { name: mark }]\n\
                   - tool_calls: [{ name: task_await }]\n- text: Done.\n";
    let project = agent(ON, replies).tool("meets", meets, script).tool(
        "mark",
        "",
        "def run(args):\n    cache.set('model', True)\n",
    );
    let project = spied(project, &["completion.pre", "tool.post"]);
    let ran = project.run(&["run", "Go"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{ran}");
    let results = results(&ran, "You help.");
    let ended = json(&results[3]);
    for (at, who) in [(0, "a met b"), (1, "b met a")] {
        let id = json(&results[at])["task_id"].clone();
        assert_eq!(ended[at], json!({"task_id": id, "tool": "meets", "status": "completed", "result": who}));
    }
    // `tool.post` is for what they gave, once each, and not for the identifiers.
    let posts = told(&ran, "tool.post");
    let contents: Vec<&str> =
        posts.iter().filter(|post| post["name"] == "meets").map(|post| post["content"].as_str().unwrap()).collect();
    assert_eq!(contents.len(), 2, "{contents:?}");
    assert!(contents.contains(&"a met b") && contents.contains(&"b met a"), "{contents:?}");
    // Both are recorded when they begin and when they end, under one identifier.
    let id = json(&results[0])["task_id"].clone();
    let of_task: Vec<Json> = entries(&project).into_iter().filter(|entry| entry["task"] == id).collect();
    let outcomes: Vec<&Json> = of_task.iter().map(|entry| &entry["outcome"]).collect();
    assert_eq!(outcomes, ["started", "completed"]);
}

/// What hooks and policy say of a call they say before it continues.
#[test]
fn hooks_and_checks_come_before_the_task() {
    let slow = "parameters:\n  path: { type: string, required: true }\nasync: true\n";
    let script = "def run(args):\n    fs.write(args['path'], 'x')\n    return args['path']\n";
    let replies = "- tool_calls: [{ name: slow }, { name: slow, args: { path: no } }, { name: slow, args: { path: was } }, { name: task_await }]\n- text: Done.\n";
    let body =
        "if payload['args']['path'] == 'no':\n    return block('not this')\nreturn modify({'args': {'path': 'now'}})";
    let project = agent(ON, replies).tool("slow", slow, script);
    let project =
        spied(project.with_handle("guard", "tool.pre", "when: payload['name'] == 'slow'\n", body), &["completion.pre"]);
    let ran = project.run(&["run", "Go"]);
    let results = results(&ran, "You help.");
    assert!(results[0].starts_with("error: the arguments of `slow` do not fit"), "{results:?}");
    assert_eq!(results[1], "tool blocked: blocked by hook \"guard\": not this");
    assert_eq!(json(&results[3])[0]["result"], "now");
    assert!(project.path("now").exists() && !project.path("no").exists() && !project.path("was").exists());
    // A result that `tool.post` keeps back is kept back.
    let kept = agent(ON, &format!("{}- text: Done.\n", calls("slow task_await"))).tool(
        "slow",
        "async: true\n",
        "def run(args):\n    return 'secret'\n",
    );
    let kept = kept.with_handle("keeps", "tool.post", "when: payload['name'] == 'slow'\n", "return block('kept')");
    let ran = spied(kept, &["completion.pre"]).run(&["run", "Go"]);
    let told = json(&self::results(&ran, "You help.")[1]);
    assert_eq!(
        (&told[0]["status"], &told[0]["error"]),
        (&json!("denied"), &json!("tool result blocked: blocked by hook \"keeps\": kept"))
    );
    assert!(!self::results(&ran, "You help.")[1].contains("secret"));
    // What needs confirmation is asked for before, too.
    let asked = agent(ON, &format!("{}- text: Done.\n", calls("slow"))).tool(
        "slow",
        "async: true\nconfirm: true\n",
        "def run(args):\n    return 1\n",
    );
    let ran = spied(asked, &["completion.pre"]).run(&["run", "Go"]);
    assert!(self::results(&ran, "You help.")[0].contains("no confirmer is available"), "{ran}");
}

/// A script starts, polls and waits, by the names of the format.
#[test]
fn a_script_polls_and_awaits() {
    let script = "def run(args):\n    id = json.decode(meta.call_tool('slow', {}))['task_id']\n    before = task.poll(id)['status']\n    early = task.await(id, timeout_ms = 1)\n    cache.set('go', True)\n    after = task.await(id)\n    both = task.wait([id, id])\n    return {'before': before, 'early': early['status'], 'after': after, 'both': both, 'last': task.poll(id)['result'], 'ids': after['task_id'] == id}\n";
    let slow = "def run(args):\n    for i in range(2000):\n        if cache.has('go'):\n            return {'done': True}\n        sleep(5)\n";
    let project = agent(ON, "- text: unused\n").tool("slow", "async: true\n", slow).tool("asks", "", script);
    let mut result = project.run(&["call", "asks", "--json"]).json()["result"].take();
    let id = result["after"]["task_id"].clone();
    let ended = json!({"task_id": id, "tool": "slow", "status": "completed", "result": {"done": true}});
    assert_eq!(result["after"].take(), ended);
    assert_eq!(result["both"].take(), json!([ended, ended]));
    assert_eq!(
        result,
        json!({"before": "running", "early": "running", "after": null, "both": null, "last": {"done": true}, "ids": true})
    );
}

#[test]
fn what_a_script_asks_wrongly() {
    let project =
        |body: &str| Project::new().policy(ON).tool("it", "", &format!("def run(args):\n    return {body}\n"));
    project("task.poll('task_1')").run(&["call", "it"]).says(1, "task.poll: there is no task \"task_1\" here");
    project("task.await([])")
        .run(&["call", "it"])
        .says(1, "task.await: between 1 and 16 tasks can be awaited at once, not 0");
    project("task.wait(['x'] * 17)")
        .run(&["call", "it"])
        .says(1, "task.wait: between 1 and 16 tasks can be awaited at once, not 17");
    project("delegate_await(['x'])").run(&["call", "it"]).says(1, "delegate_await: there is no task \"x\" here");
    // Who may start none may not ask for any.
    let without = |services: &str| {
        let front = format!("capabilities: {{ services: [{services}] }}\n");
        Project::new()
            .policy(ON)
            .tool("it", &front, "def run(args):\n    return task.poll('task_1')\n")
            .run(&["call", "it"])
    };
    without("cache").says(3, "`delegate` is not granted");
    without("meta").says(1, "there is no task");
    without("delegate").says(1, "there is no task");
    // An error has the place where it is written, however the name is spelled.
    project("1 + task.await('x')").run(&["call", "it"]).says(1, "--> .harness/tools/it.md:4:18");
    project("1 + task.await('x')").run(&["call", "it"]).says(1, ".harness/tools/it.md:4:18 in task.await\n");
}

/// A task has the grant of who started it, and no more time than that has left.
#[test]
fn a_task_of_a_script_has_no_more_than_the_script() {
    let reads = "def run(args):\n    return fs.read('data.txt')\n";
    let script = "def run(args):\n    return task.await(json.decode(meta.call_tool('slow', {}))['task_id'])\n";
    let told = |front: &str| {
        let project = Project::new().policy(ON).file("data.txt", "the data");
        project.tool("slow", "async: true\n", reads).tool("asks", front, script).run(&["call", "asks", "--json"]).json()
            ["result"]
            .clone()
    };
    assert_eq!(told("")["result"], "the data");
    let denied = told("capabilities: { fs: { read: [] }, services: [meta] }\n");
    assert_eq!(denied["status"], "denied");
    assert!(denied["error"].as_str().unwrap().starts_with("tool denied: fs.read"), "{denied}");
    // Its own limit is one of seconds; the script's is less.
    let replies = format!("{}{}- text: Done.\n", calls("start"), calls("task_await"));
    let ended = |timeout: u32, sleeps: u32| {
        let slow = format!("def run(args):\n    sleep({sleeps})\n    return 'slept'\n");
        let project = agent(ON, &replies).tool("slow", "async: true\n", &slow);
        let project = project.tool("start", &format!("timeout_ms: {timeout}\n"), START);
        let ran = spied(project, &["completion.pre"]).run(&["run", "Go"]);
        json(&results(&ran, "You help.")[1])[0].clone()
    };
    let late = ended(2000, 600_000);
    assert_eq!(late["status"], "limited", "{late}");
    assert_eq!(ended(20_000, 1)["result"], "slept");
    // Nor more fuel: what it used is taken from the script that waits for it.
    let burns = "def run(args):\n    x = 0\n    for i in range(20000):\n        x += i\n    return x\n";
    let used = |ran: &Ran| ran.json()["usage"]["fuel"].as_u64().unwrap();
    let fuel = |waits: &str| {
        let script = format!(
            "def run(args):\n    id = json.decode(meta.call_tool('slow', {{}}))['task_id']\n    sleep(300)\n    {waits}\n    return 1\n"
        );
        let project = Project::new().policy(ON).tool("slow", "async: true\n", burns).tool("asks", "", &script);
        (used(&project.run(&["call", "asks", "--json"])), used(&project.run(&["call", "slow", "--json"])))
    };
    let ((alone, task), (waits, _)) = (fuel("pass"), fuel("task.await(id)"));
    assert!(task > 500_000 && waits > alone + task, "{alone} {task} {waits}");
    // Once: who asks again is told again, and pays no more than for asking.
    let (twice, _) = fuel("task.await(id)\n    task.await(id)");
    assert!(twice < waits + task, "{waits} {twice}");
}

#[test]
fn a_task_keeps_to_the_limits_of_its_tool() {
    let replies = format!("{}- text: Done.\n", calls("slow task_await"));
    let project =
        agent(ON, &replies).tool("slow", "async: true\ntimeout_ms: 1000\n", "def run(args):\n    sleep(20000)\n");
    let ran = spied(project, &["completion.pre"]).run(&["run", "Go"]);
    let told = json(&results(&ran, "You help.")[1]);
    assert_eq!(told[0]["status"], "limited");
    assert_eq!(told[0]["error"], "tool error: over the limit `timeout_ms` of 1000 ms");
    let fails = agent(ON, &replies).tool("slow", "async: true\n", "def run(args):\n    fail('no')\n");
    let ran = spied(fails, &["completion.pre"]).run(&["run", "Go"]);
    let told = json(&results(&ran, "You help.")[1]);
    assert_eq!(
        (&told[0]["status"], &told[0]["error"]),
        (&json!("failed"), &json!("tool error: no (.harness/tools/slow.md:5:7)"))
    );
}

#[test]
fn no_more_than_so_many_go_on() {
    let waits = "def run(args):\n    for i in range(4000):\n        if cache.has('go'):\n            return 1\n        sleep(5)\n";
    let starts = "def run(args):\n    ids = []\n    for i in range(16):\n        ids.append(json.decode(meta.call_tool('slow', {}))['task_id'])\n    more = meta.call_tool('slow', {})\n    cache.set('go', True)\n    task.await(ids)\n    return [more, len([1 for id in ids if task.poll(id)['status'] == 'completed']), json.decode(meta.call_tool('slow', {}))['status']]\n";
    let project = Project::new().policy(ON).tool("slow", "async: true\n", waits).tool("starts", "", starts);
    let result = project.run(&["call", "starts", "--json"]).json()["result"].clone();
    let full = "error: tool error: 16 tasks are running, which is the limit: wait for one with `task_await`";
    assert_eq!(result, json!([full, 16, "running"]));
}

/// What is still continuing when a session ends is ended with it, and recorded as that.
#[test]
fn tasks_end_with_the_session() {
    let slow = "def run(args):\n    fs.write('begun', '')\n    sleep(25000)\n    fs.write('late', '')\n";
    let replies = format!("{}{}- text: Done.\n", calls("slow"), calls("begun"));
    let begun = "def run(args):\n    for i in range(2000):\n        if fs.exists('begun'):\n            return True\n        sleep(5)\n";
    let project = agent(ON, &replies).tool("slow", "async: true\n", slow).tool("begun", "", begun);
    project.run(&["run", "Go"]).gives("Done.");
    assert!(!project.path("late").exists(), "it waited for the task");
    let outcomes: Vec<Json> = entries(&project)
        .into_iter()
        .filter(|entry| !entry["task"].is_null())
        .map(|entry| entry["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["started", "abandoned"]);
    assert!(project.path("begun").exists() && !project.path("late").exists());
}

const WORKER: &str = "---\ndescription: Works.\n---\nYou work.\n";

fn delegates(policy: &str, replies: &str) -> Project {
    agent(policy, replies)
        .file(".harness/agents/worker.md", WORKER)
        .file(".harness/agents/other.md", &WORKER.replace("You work", "You do the other thing"))
}

const BOTH: &str = "- tool_calls: [{ name: delegate_async, args: { agent: worker, task: One. } }, { name: delegate_async, args: { agent: other, task: Two. } }]\n\
                    - tool_calls: [{ name: delegate_await }]\n- text: Done.\n";

/// Two agents, each waiting for the other: they end only if both work at once.
#[test]
fn agents_work_at_the_same_time() {
    let meets = "parameters:\n  me: { type: string, required: true }\n  other: { type: string, required: true }\n";
    let script = "def run(args):\n    cache.set(args['me'], True)\n    for i in range(2000):\n        if cache.has(args['other']):\n            return 'met'\n        sleep(10)\n    fail('alone')\n";
    let replies = format!(
        "{BOTH}- {{ agent: worker, tool_calls: [{{ name: meets, args: {{ me: a, other: b }} }}] }}\n- {{ agent: worker, expect: met, text: I met b. }}\n\
         - {{ agent: other, tool_calls: [{{ name: meets, args: {{ me: b, other: a }} }}] }}\n- {{ agent: other, expect: met, text: I met a. }}\n"
    );
    let project =
        spied(delegates("", &replies).tool("meets", meets, script), &["completion.pre", "delegation.post", "tool.pre"]);
    let ran = project.run(&["run", "Go"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{ran}");
    let ended = json(&results(&ran, "You help.")[2]);
    let responses: Vec<&Json> = ended.as_array().unwrap().iter().map(|task| &task["result"]["response"]).collect();
    assert_eq!(responses, ["I met b.", "I met a."]);
    assert_eq!(told(&ran, "delegation.post").len(), 2);
    // Each goes through the hooks of `delegate` as well as through its own.
    let pre = told(&ran, "tool.pre");
    let count = |name: &str| pre.iter().filter(|call| call["name"] == name).count();
    assert_eq!((count("delegate_async"), count("delegate")), (2, 2));
}

/// Whatever governs `delegate` governs this: hooks on the tool and on the delegation, the policy, depth.
#[test]
fn what_governs_a_delegation_governs_one_that_is_not_waited_for() {
    let replies = format!("{BOTH}- {{ agent: worker, text: Fine. }}\n- {{ agent: other, text: Fine. }}\n");
    let got = |project: Project| {
        let ran = spied(project, &["completion.pre"]).run(&["run", "Go"]);
        results(&ran, "You help.")
    };
    let fine = json(&got(delegates("", &replies))[2]);
    assert_eq!((&fine[0]["status"], &fine[1]["result"]["response"]), (&json!("completed"), &json!("Fine.")));
    let guard = "return block('no agents') if payload['name'] == 'delegate' else allow()";
    let blocked = got(delegates("", &replies).with_handle("guard", "tool.pre", "", guard));
    assert_eq!(blocked[0], "tool denied: blocked by hook \"guard\": no agents");
    let blocked = got(delegates("", &replies).with_handle("guard", "delegation.pre", "", "return block('not now')"));
    let told = json(&blocked[2]);
    assert_eq!(
        (&told[0]["status"], &told[0]["error"]),
        (&json!("denied"), &json!("tool denied: delegation blocked: blocked by hook \"guard\": not now"))
    );
    let denied = got(delegates("tools_policy: { deny: [delegate] }\n", &replies));
    assert!(denied[0].contains("the tool `delegate` is denied by `delegate`"), "{denied:?}");
    let confirmed = got(delegates("tools_policy: { confirm: [delegate] }\n", &replies));
    assert!(confirmed[0].contains("each call of `delegate` needs confirmation"), "{confirmed:?}");
}

/// One at a time, if the policy says so; each works until the root says that it may end.
#[test]
fn no_more_agents_than_the_policy_allows() {
    let hold = "def run(args):\n    for i in range(4000):\n        if cache.has('go'):\n            return 1\n        sleep(5)\n";
    let mark = "def run(args):\n    cache.set('go', True)\n";
    let replies = "- tool_calls: [{ name: delegate_async, args: { agent: worker, task: One. } }, { name: delegate_async, args: { agent: other, task: Two. } }, { name: mark }]\n\
                   - tool_calls: [{ name: delegate_await }]\n- text: Done.\n\
                   - { agent: worker, tool_calls: [{ name: hold }] }\n- { agent: worker, text: Fine. }\n\
                   - { agent: other, tool_calls: [{ name: hold }] }\n- { agent: other, text: Fine. }\n";
    let got = |most: u32| {
        let project = delegates(&format!("delegation: {{ max_concurrent: {most} }}\n"), replies);
        let project = spied(project.tool("hold", "", hold).tool("mark", "", mark), &["completion.pre"]);
        results(&project.run(&["run", "Go"]), "You help.")
    };
    let one = got(1);
    assert_eq!(json(&one[0])["status"], "running");
    assert_eq!(
        one[1],
        "tool error: 1 agents are running, which is the limit of `delegation.max_concurrent` in `harness.md`: wait for one with `delegate_await`"
    );
    assert_eq!(json(&one[3]).as_array().unwrap().len(), 1);
    let two = got(2);
    assert_eq!(json(&two[1])["status"], "running");
    assert_eq!(json(&two[3]).as_array().unwrap().len(), 2);
}

/// What a sub-agent leaves going ends with it, and what belongs to another it cannot ask for.
#[test]
fn tasks_belong_to_who_started_them() {
    let slow = "def run(args):\n    fs.write('begun', '')\n    sleep(25000)\n    fs.write('late', '')\n";
    let begun = "def run(args):\n    for i in range(2000):\n        if fs.exists('begun'):\n            return True\n        sleep(5)\n";
    let replies = "- tool_calls: [{ name: delegate, args: { agent: worker, task: Go. } }]\n- text: Done.\n\
                   - { agent: worker, tool_calls: [{ name: slow }, { name: begun }] }\n- { agent: worker, text: Left. }\n";
    let project = delegates(ON, replies).tool("slow", "async: true\n", slow).tool("begun", "", begun);
    project.run(&["run", "Go"]).gives("Done.");
    let outcomes: Vec<Json> = entries(&project)
        .into_iter()
        .filter(|entry| !entry["task"].is_null())
        .map(|entry| entry["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["started", "abandoned"]);
    assert!(!project.path("late").exists());

    // The root's task, which a worker has the identifier of; the root's own script may ask.
    let start = "def run(args):\n    cache.set('id', json.decode(meta.call_tool('quick', {}))['task_id'])\n";
    let ask = "def run(args):\n    return task.await(cache.get('id'))\n";
    let replies = "- tool_calls: [{ name: start }, { name: delegate, args: { agent: worker, task: Go. } }, { name: ask }]\n- text: Done.\n\
                   - { agent: worker, tool_calls: [{ name: ask }] }\n- { agent: worker, text: Asked. }\n";
    let project = delegates(ON, replies).tool("quick", "async: true\n", "def run(args):\n    return 'quick'\n");
    let project = spied(project.tool("start", "", start).tool("ask", "", ask), &["completion.pre"]);
    let ran = project.run(&["run", "Go"]);
    assert!(results(&ran, "You work.\n")[0].contains("task.await: there is no task \"task_"), "{ran}");
    assert_eq!(json(&results(&ran, "You help.")[2])["result"], "quick");
}

/// Scripts set agents to work without waiting by the same names.
#[test]
fn a_script_delegates_without_waiting() {
    let script = "def run(args):\n    begun = delegate_async('worker', 'Go.')\n    ended = delegate_await([begun['task_id']])\n    return [begun['status'], ended[0]['result']['response'], delegate_status(begun['task_id'])['status']]\n";
    let project = delegates("", "- { agent: worker, text: Fine. }\n").tool("asks", "", script);
    assert_eq!(project.run(&["call", "asks", "--json"]).json()["result"], json!(["running", "Fine.", "completed"]));
    let denied = delegates("", "- { agent: worker, text: Fine. }\n").tool(
        "asks",
        "capabilities: { services: [meta] }\n",
        script,
    );
    denied.run(&["call", "asks"]).says(3, "`delegate` is not granted");
    let unknown = "def run(args):\n    return delegate_await(delegate_async('nobody', 'Go.')['task_id'])['error']\n";
    let ran = delegates("", "- text: x\n").tool("asks", "", unknown).run(&["call", "asks"]);
    assert!(ran.out.contains("agent \"nobody\" not found (available: other, worker)"), "{ran}");
}

/// What is logged by what nobody asked for is in the turn in which it ended.
#[test]
fn what_tasks_log_is_not_lost() {
    let slow = "def run(args):\n    for i in range(4000):\n        if cache.has('go'):\n            break\n        sleep(5)\n    log.info('from the task')\n";
    // With 15 more there are as many as there may be: there is room for the next one once the first has ended.
    let ended = "def run(args):\n    for i in range(15):\n        meta.call_tool('waits', {})\n    cache.set('go', True)\n    for i in range(4000):\n        if meta.call_tool('waits', {}).startswith('{'):\n            return True\n        sleep(5)\n    fail('it goes on')\n";
    let replies = format!("{}- {{ expect: 'true', text: Done. }}\n", calls("slow ended"));
    let project = agent(ON, &replies).tool("slow", "async: true\n", slow).tool("ended", "", ended);
    let project = project.tool("waits", "async: true\n", "def run(args):\n    sleep(600000)\n");
    let told = project.run(&["run", "Go", "--json"]).json();
    assert_eq!(told["log"], json!([{"source": "slow", "level": "info", "message": "from the task"}]));
}

/// The names are the host's.
#[test]
fn no_artifact_has_these_names() {
    for name in ["delegate_async", "delegate_status", "delegate_await", "task_poll", "task_await"] {
        let ran = Project::new().tool(name, "", "def run(args):\n    return 1\n").run(&["validate"]);
        assert!(ran.code == 2 && ran.err.contains("has the name of a built-in tool"), "{ran}");
    }
}

/// At a terminal a task continues while the person types, and Ctrl-C ends what the turn has started.
#[test]
fn in_a_conversation() {
    let slow = "def run(args):\n    for i in range(4000):\n        if fs.exists('go'):\n            fs.write('late', '')\n            return 1\n        sleep(5)\n";
    let replies = format!("{}- text: One.\n{}{}- text: Three.\n", calls("slow"), calls("slow"), calls("task_await"));
    let project = agent(ON, &replies).tool("slow", "async: true\n", slow);
    let mut person = Person::starts(&project, &["run"]);
    person.sees("> ");
    person.types("Go\r");
    person.sees("One.");
    person.sees("> ");
    project.write("go", "");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    // Its end is in the log: what is interrupted later is the other one.
    let is_over = || entries(&project).iter().any(|entry| !entry["task"].is_null() && entry["outcome"] == "completed");
    while !(project.path("late").exists() && is_over()) {
        assert!(std::time::Instant::now() < end, "the task stands still: {}", person.seen);
        std::thread::yield_now();
    }
    std::fs::remove_file(project.path("go")).unwrap();
    std::fs::remove_file(project.path("late")).unwrap();
    person.types("Again\r");
    person.sees("calls task_await");
    person.interrupts();
    person.sees("stopped");
    person.sees("> ");
    project.write("go", "");
    person.types("Once more\r");
    person.sees("Three.");
    person.sees("> ");
    person.types("/quit\r");
    assert_eq!(person.leaves(), 0, "{}", person.seen);
    assert!(!project.path("late").exists());
    let of_tasks = entries(&project).into_iter().filter(|entry| !entry["task"].is_null());
    let mut outcomes: Vec<String> = of_tasks.map(|entry| entry["outcome"].as_str().unwrap().to_owned()).collect();
    outcomes.sort();
    assert_eq!(outcomes, ["abandoned", "completed", "started", "started"]);
}
