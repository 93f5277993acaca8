//! What a call leaves, looked for by very many later ones.

use std::sync::Arc;
use std::time::Duration;

use harness_agent::{Configured, Silent, attach};
use harness_capability::env::Variables;
use harness_capability::fs::Workspace;
use harness_dispatch::{Host, HostOptions, Options, Project, Run};
use harness_policy::limits::Limits;
use harness_provider::Message;
use harness_sandbox::engine::{Image, Sandbox, Settings};
use harness_sandbox::imports::Role;
use harness_sandbox::outcome::{Outcome, Report};
use harness_sandbox::state::{Context, Session};
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

use crate::compose::component;
use crate::corpus::{Coded, folder};
use crate::guests::grant;
use crate::process::CANARY;
use crate::races::project;
use crate::world::{Servers, World};

/// Calls that look for what those before them have left.
const CALLS: usize = 1_000;

pub(crate) const CASES: &[Coded] = &[
    Coded {
        id: "state-101",
        tried: "leaves a canary in memory, globals and tables for 1,000 later calls",
        run: |runtime, servers| {
            let guest = Guest::alone(&World::new(servers));
            for call in 0..CALLS {
                let said = runtime.block_on(guest.look());
                if said != "passed" {
                    return Err(format!("call {call}: {said}"));
                }
            }
            Ok("clean".to_owned())
        },
        // The same guest finds what it has left itself, so that it would have found what another had.
        control: |runtime, servers| match runtime.block_on(Guest::alone(&World::new(servers)).finds_its_own()).as_str()
        {
            "errors" => Ok("seen".to_owned()),
            other => Err(format!("it did not find its own canary: {other}")),
        },
    },
    Coded {
        id: "state-102",
        tried: "leaves a canary in the cache and the metrics of a run for 1,000 later runs",
        run: |runtime, servers| kept_apart(runtime, servers, CALLS),
        control: cached,
    },
    Coded {
        id: "state-103",
        tried: "leaves a canary in the interpreter's own memory, by scripts that take turns in one slot",
        run: taking_turns,
        control: |runtime, servers| {
            let world = World::new(servers);
            let project = project(&world, "sandbox: { audit: false }", "def run(args):\n    return args['x']\n");
            let report = runtime.block_on(project.call("it", json!({"x": CANARY}), &Run::new())).unwrap();
            if report.content == CANARY { Ok("seen".to_owned()) } else { Err(report.content) }
        },
    },
    Coded {
        id: "state-104",
        tried: "gives up calls half-way, to have the next one find what they held",
        run: |runtime, servers| given_up(runtime, servers, true),
        control: |runtime, servers| given_up(runtime, servers, false),
    },
    Coded {
        id: "state-106",
        tried: "leaves files in every temporary folder of a command for 100 later commands",
        run: |runtime, servers| found_by_commands(runtime, servers, 100),
        control: |runtime, servers| {
            let world = World::new(servers);
            let script =
                format!("def run(args):\n    return exec.run('sh', ['-c', {LEAVE} + ';' + {LOOK}])['stdout']\n");
            let project = project(&world, "sandbox: { audit: false, exec: { allow: [sh] } }", &script);
            let seen = result(runtime, &project, "it", json!({}), &Run::new());
            if seen.contains("left") { Ok("seen".to_owned()) } else { Err(seen) }
        },
    },
    Coded {
        id: "state-107",
        tried: "has a run that sets agents to work stay in memory when it is over",
        run: |runtime, servers| {
            let run = with_agents(runtime, servers)?;
            let left = Arc::downgrade(&run);
            drop(run);
            if left.strong_count() == 0 { Ok("gone".to_owned()) } else { Err("the run is still there".to_owned()) }
        },
        control: |runtime, servers| with_agents(runtime, servers).map(|_| "worked".to_owned()),
    },
    Coded {
        id: "state-108",
        tried: "leaves a canary in the values of a turn for the next turns of the conversation",
        run: |runtime, servers| in_turns(runtime, servers, 1),
        control: |runtime, servers| in_turns(runtime, servers, 2),
    },
    Coded {
        id: "state-109",
        tried: "pushes the result of an earlier task out of what is kept, by calls that run at the same time",
        run: |runtime, servers| pushed_out(runtime, servers, "nothing", "kept"),
        // Tasks that it has begun itself do so.
        control: |runtime, servers| pushed_out(runtime, servers, "begin", "pushed out"),
    },
    Coded {
        id: "state-105",
        tried: "leaves tools, hooks and identifiers of its run to 200 later runs",
        run: |runtime, servers| added(runtime, servers, false),
        control: |runtime, servers| added(runtime, servers, true),
    },
];

/// What the guest looks for, as a script can leave it too.
pub(crate) const LEFT: &str = "ZZZZZZZZ";

/// The guest that looks for what it leaves.
pub(crate) struct Guest {
    sandbox: Sandbox,
    tool: Image,
    hook: Image,
    context: Context,
}

impl Guest {
    /// In a sandbox with room for one call.
    fn alone(world: &World) -> Self {
        let sandbox = Sandbox::new(Settings { instances: 1, ..Settings::default() }).unwrap();
        Self::new(sandbox, world)
    }

    /// In a sandbox where others run too.
    pub(crate) fn new(sandbox: Sandbox, world: &World) -> Self {
        sandbox.pooling().unwrap();
        let inside = std::fs::read_to_string(folder().join("guests/canary.wat")).unwrap();
        let component = component(&[], &inside);
        let image = |role| sandbox.foreign(&component, role, "canary.wasm").unwrap();
        let context = Context {
            grant: Arc::new(grant("")),
            workspace: Arc::new(Workspace::open(&world.work()).unwrap()),
            session: Arc::new(Session::default()),
            turn: Arc::default(),
            namespace: None,
            system: Arc::default(),
            http: Arc::default(),
            listener: None,
            depth: 0,
            reentry: None,
            secrets: Arc::default(),
        };
        Self { tool: image(Role::Tool), hook: image(Role::Hook), sandbox, context }
    }

    /// What it says; or how else it ended.
    async fn call(&self, role: Role) -> String {
        let (context, limits) = (self.context.clone(), Limits::default());
        said(match role {
            Role::Tool => self.sandbox.run(&self.tool, context, limits, "{}").await,
            _ => self.sandbox.handle(&self.hook, context, limits, "tool.pre", "{}").await,
        })
    }

    /// Looks for what others have left, and leaves it: `passed` where there was nothing.
    pub(crate) async fn look(&self) -> String {
        self.call(Role::Tool).await
    }

    /// The same twice in one memory: `errors` where it finds what it has left itself.
    pub(crate) async fn finds_its_own(&self) -> String {
        self.call(Role::Hook).await
    }

    /// Leaves it, and continues until it is ended.
    pub(crate) async fn leave(&self, limits: Limits) -> String {
        said(self.sandbox.run(&self.tool, self.context.clone(), limits, "{\"leave\":true}").await)
    }
}

fn said(report: Report<String>) -> String {
    match report.outcome {
        Outcome::Completed(said) => said,
        Outcome::Limited(limit) => limit.kind.name().to_owned(),
        other => format!("{other:?}"),
    }
}

fn result(runtime: &Runtime, project: &Project, name: &str, args: Json, run: &Arc<Run>) -> String {
    runtime.block_on(project.call(name, args, run)).map_or_else(|error| error.to_string(), |report| report.content)
}

const KEEPS: &str = "def run(args):\n    if args['leave']:\n        cache.set('k', args['leave'])\n        metrics.set('m', 7)\n    return str(cache.get('k', '')) + str(metrics.get('m')) + str(len(metrics.snapshot()))\n";

/// What a run leaves in the cache and the metrics, and whether any of so many later runs finds it.
pub(crate) fn kept_apart(runtime: &Runtime, servers: &Servers, runs: usize) -> Result<String, String> {
    let world = World::new(servers);
    let project = project(&world, "sandbox: { audit: false }", KEEPS);
    let first = Run::new();
    result(runtime, &project, "it", json!({"leave": CANARY}), &first);
    for call in 0..runs {
        let seen = result(runtime, &project, "it", json!({"leave": ""}), &Run::new());
        if seen != "0.00" && seen != "00" {
            return Err(format!("call {call}: {seen}"));
        }
    }
    Ok("clean".to_owned())
}

/// A later call of the same run finds it.
fn cached(runtime: &Runtime, servers: &Servers) -> Result<String, String> {
    let world = World::new(servers);
    let project = project(&world, "sandbox: { audit: false }", KEEPS);
    let run = Run::new();
    result(runtime, &project, "it", json!({"leave": CANARY}), &run);
    let seen = result(runtime, &project, "it", json!({"leave": ""}), &run);
    if seen.contains(CANARY) { Ok("seen".to_owned()) } else { Err(seen) }
}

/// A run in which an agent was started.
fn with_agents(runtime: &Runtime, servers: &Servers) -> Result<Arc<Run>, String> {
    let world = World::new(servers);
    let agents = world.work().join(".harness/agents");
    std::fs::create_dir_all(&agents).unwrap();
    std::fs::write(agents.join("worker.md"), "---\ndescription: Works.\n---\n# Worker\n").unwrap();
    std::fs::write(world.work().join("r.yaml"), "- { agent: worker, text: done }\n").unwrap();
    let policy = "model: { provider: script, script: r.yaml }\nsandbox: { audit: false }";
    let project = project(&world, policy, "def run(args):\n    return delegate('worker', 'Work.')['response']\n");
    let run = Run::new();
    attach(
        &project,
        &run,
        Arc::new(Configured::new(&world.work(), &project.loaded().policy().models, &Variables::Host)),
    );
    let told = result(runtime, &project, "it", json!({}), &run);
    if told == "done" { Ok(run) } else { Err(told) }
}

/// What the agent got for its calls in so many turns of a conversation.
fn results_of(runtime: &Runtime, world: &World, project: &Project, turns: usize) -> Vec<String> {
    let models = Arc::new(Configured::new(&world.work(), &project.loaded().policy().models, &Variables::Host));
    runtime.block_on(async {
        let mut session = harness_agent::Session::start(project, &Run::new(), models, Arc::new(Silent)).await.unwrap();
        for _ in 0..turns {
            session.turn("Go.").await.unwrap();
        }
        let results = session.history().iter().filter_map(|message| match message {
            Message::Tool { content, .. } => Some(content.clone()),
            _ => None,
        });
        let results = results.collect();
        session.end().await;
        results
    })
}

/// What so many calls in each turn of a conversation find of those before them.
fn in_turns(runtime: &Runtime, servers: &Servers, calls: usize) -> Result<String, String> {
    const TURNS: usize = 3;
    let world = World::new(servers);
    let turn = ["- tool_calls: [{ name: it }]\n".repeat(calls), "- text: done\n".to_owned()].concat();
    std::fs::write(world.work().join("r.yaml"), turn.repeat(TURNS)).unwrap();
    let policy = "model: { provider: script, script: r.yaml }\nsandbox: { audit: false }";
    let script = format!(
        "def run(args):\n    found = ctx.get('left', 'nothing')\n    ctx.set('left', '{CANARY}')\n    return found\n"
    );
    let told = results_of(runtime, &world, &project(&world, policy, &script), TURNS);
    let found = told.iter().filter(|text| *text == CANARY).count();
    match (told.len(), found, calls) {
        (TURNS, 0, 1) => Ok("clean".to_owned()),
        // Within a turn it is found.
        (6, TURNS, 2) => Ok("seen".to_owned()),
        _ => Err(format!("{told:?}")),
    }
}

/// Whether the result of a task is still there after more calls, at the same time, than ended tasks are kept.
fn pushed_out(runtime: &Runtime, servers: &Servers, what: &str, expected: &str) -> Result<String, String> {
    /// More than the 64 that are kept.
    const GROUPS: usize = 9;
    let world = World::new(servers);
    let call = format!("{{ name: it, args: {{ what: {what} }} }}");
    let beside = format!("- tool_calls: [{}]\n", vec![call; 8].join(", "));
    let first = "- tool_calls: [{ name: it, args: { what: first } }]\n";
    let last = "- tool_calls: [{ name: it, args: { what: look } }]\n- text: done\n";
    std::fs::write(world.work().join("r.yaml"), [first, &beside.repeat(GROUPS), last].concat()).unwrap();
    let tools = world.work().join(".harness/tools");
    std::fs::create_dir_all(&tools).unwrap();
    let slow = "---\nasync: true\nscript: |\n  def run(args):\n      return 'kept'\n---\n# slow\n";
    std::fs::write(tools.join("slow.md"), slow).unwrap();
    let policy = "model: { provider: script, script: r.yaml }\ntools_policy: { concurrency: 8 }\nexit_policy: { max_iterations: 20 }\nsandbox: { audit: false, async_tools: true }\nmeta: { enabled: true }";
    let script = "def run(args):\n    if args['what'] == 'look':\n        return task.poll(ctx.get('first'))['result']\n    if args['what'] == 'nothing':\n        return 'nothing'\n    id = json.decode(meta.call_tool('slow'))['task_id']\n    if args['what'] == 'first':\n        ctx.set('first', id)\n    return task.await(id)['result']\n";
    let told = results_of(runtime, &world, &project(&world, policy, script), 1);
    let found = match told.as_slice() {
        [first, .., last] if told.len() == GROUPS * 8 + 2 && first == "kept" && last == "kept" => "kept",
        [first, .., last] if first == "kept" && last.contains("there is no task") => "pushed out",
        _ => "",
    };
    if found == expected { Ok(found.to_owned()) } else { Err(format!("{told:?}")) }
}

/// Lines for a shell, as a script has them: one leaves a file in each folder that is there for that, one looks.
const LEAVE: &str =
    r#"'for d in "$TMPDIR" /tmp /var/tmp /dev/shm "$HOME"; do echo left > "$d/left-of-attacks"; done 2>/dev/null'"#;
const LOOK: &str = r#"'for d in "$TMPDIR" /tmp /var/tmp /dev/shm "$HOME"; do cat "$d/left-of-attacks"; done 2>/dev/null; ls -A "$TMPDIR"'"#;

/// Commands that each look for what those before have left, and leave it.
pub(crate) fn found_by_commands(runtime: &Runtime, servers: &Servers, commands: usize) -> Result<String, String> {
    let world = World::new(servers);
    let script = format!("def run(args):\n    return exec.run('sh', ['-c', {LOOK} + ';' + {LEAVE}])['stdout']\n");
    let project = project(&world, "sandbox: { audit: false, exec: { allow: [sh] } }", &script);
    for command in 0..commands {
        let seen = result(runtime, &project, "it", json!({}), &Run::new());
        if !seen.is_empty() {
            return Err(format!("command {command}: {seen}"));
        }
    }
    Ok("clean".to_owned())
}

/// A script that fills its memory, and one that uses as much fuel and memory each time as if nobody had been there.
fn taking_turns(runtime: &Runtime, servers: &Servers) -> Result<String, String> {
    let world = World::new(servers);
    let fills = "def run(args):\n    x = args['x'] * 20000\n    return len(x) + len([x + str(i) for i in range(3)])\n";
    drop(project(&world, "sandbox: { audit: false }", fills));
    let looks =
        "---\nscript: |\n  def run(args):\n      return len(dir(args)) + len([str(i) for i in range(200)])\n---\n";
    std::fs::write(world.work().join(".harness/tools/looks.md"), looks).unwrap();
    let project =
        Host::new(HostOptions::default().instances(1)).unwrap().open(&world.work(), Options::default()).unwrap();
    let run = Run::new();
    let look = || runtime.block_on(project.call("looks", json!({}), &run)).unwrap();
    let clean = look();
    for call in 0..300 {
        result(runtime, &project, "it", json!({"x": CANARY}), &run);
        let again = look();
        let differs = (again.usage.fuel, again.usage.peak_memory) != (clean.usage.fuel, clean.usage.peak_memory);
        if differs || again.content != clean.content || format!("{again:?}").contains(CANARY) {
            return Err(format!("call {call}: {again:?}"));
        }
    }
    Ok("clean".to_owned())
}

fn given_up(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    let world = World::new(servers);
    let script =
        "def run(args):\n    x = args['x'] * 100000\n    sleep(60000 if args['wait'] else 1)\n    return 'done'\n";
    let project = project(&world, "sandbox: { audit: false }", script);
    // In the pools that the calls come from.
    let guest = Guest::new(project.loaded().sandbox().clone(), &world);
    let run = Run::new();
    for call in 0..100 {
        let under_way = project.call("it", json!({"x": LEFT, "wait": attack}), &run);
        let ended = runtime.block_on(async {
            tokio::time::timeout(Duration::from_millis(if attack { 2 } else { 20_000 }), under_way).await
        });
        if ended.is_ok() == attack {
            return Err(format!("call {call}: {ended:?}"));
        }
        let said = runtime.block_on(guest.look());
        if said != "passed" {
            return Err(format!("call {call}: {said}"));
        }
        // The same slot and the same module, which nothing but a reset stands between.
        let left = runtime
            .block_on(async { tokio::time::timeout(Duration::from_millis(2), guest.leave(Limits::default())).await });
        if let Ok(left) = left {
            return Err(format!("call {call}: it was not given up: {left}"));
        }
        let said = runtime.block_on(guest.look());
        if said != "passed" {
            return Err(format!("call {call}, after a guest: {said}"));
        }
    }
    Ok("clean".to_owned())
}

fn added(runtime: &Runtime, servers: &Servers, same_run: bool) -> Result<String, String> {
    let script = "def run(args):\n    if args['add']:\n        meta.register_tool('added', 'x', script = 'def run(args):\\n    return 1\\n')\n        meta.register_hook('hook', 'custom.x', 'def handle(event, payload):\\n    return modify({\"by\": \"hook\"})\\n')\n    return [len(meta.list_tools()), events.emit('custom.x', {})]\n";
    let world = World::new(servers);
    let project = project(&world, "meta: { enabled: true }\nsandbox: { audit: false }", script);
    let first = Run::new();
    result(runtime, &project, "it", json!({"add": true}), &first);
    if same_run {
        let seen = result(runtime, &project, "it", json!({"add": false}), &first);
        return if seen == "[2,{\"by\":\"hook\"}]" { Ok("seen".to_owned()) } else { Err(seen) };
    }
    for call in 0..200 {
        let run = Run::new();
        let report = runtime.block_on(project.call("it", json!({"add": false}), &run)).unwrap();
        if (report.content.as_str(), report.id.as_str()) != ("[1,{}]", "call_1") {
            return Err(format!("call {call}: {report:?}"));
        }
    }
    Ok("clean".to_owned())
}
