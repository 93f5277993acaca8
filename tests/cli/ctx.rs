//! `ctx`: values of one turn of one agent.

use crate::agent_turns::agent;
use crate::project::Project;
use crate::pty::Person;

/// Counts its calls in the turn and in the run, and returns what the turn holds.
const COUNT: &str = "def run(args):\n    ctx.set('calls', ctx.get('calls', 0) + 1)\n    cache.set('calls', cache.get('calls', 0) + 1)\n    return [ctx.snapshot(), cache.get('calls')]\n";

/// Each turn begins with nothing but its number, the hooks and tools of a turn share the rest, and a sub-agent has turns
/// of its own.
#[test]
fn values_last_for_a_turn() {
    let turn = "- tool_calls: [{ name: count }, { name: count }, { name: delegate, args: { agent: worker, task: Go. } }]\n- text: Done.\n";
    let worker = "- { agent: worker, tool_calls: [{ name: count }] }\n- { agent: worker, text: Fine. }\n";
    let project = agent("", &[turn, turn, worker, worker].concat())
        .tool("count", "", COUNT)
        .file(".harness/agents/worker.md", "---\ndescription: Works.\n---\nYou work.\n")
        .with_handle("begins", "turn.start", "", "ctx.set('said', payload)\nreturn allow()")
        .with_handle("hears", "tool.post", "", "log.info(payload['content'])\nreturn allow()")
        .with_handle("ends", "turn.end", "", "log.info(json.encode(ctx.snapshot()))\nreturn allow()");
    let errors = project.path("errors");
    let mut person = Person::tells(&project, &["run"], &errors);
    for text in ["One", "Two"] {
        person.sees("> ");
        person.types(&format!("{text}\r"));
        person.sees("Done.");
    }
    person.sees("> ");
    person.types("\u{4}");
    assert_eq!(person.leaves(), 0);
    let told = std::fs::read_to_string(errors).unwrap();
    let found: Vec<_> = told.lines().filter_map(|line| line.strip_prefix("[info] ")).collect();
    let of_turn = |number: usize, text: &str| {
        let count =
            |n: usize, all: usize| format!("hears: [{{\"calls\":{n},\"said\":\"{text}\",\"turn\":{number}}},{all}]");
        let before = 3 * (number - 1);
        [
            count(1, before + 1),
            count(2, before + 2),
            format!("hears: [{{\"calls\":1,\"said\":\"Go.\",\"turn\":1}},{}]", before + 3),
            "ends: {\"calls\":1,\"said\":\"Go.\",\"turn\":1}".to_owned(),
            format!("ends: {{\"calls\":2,\"said\":\"{text}\",\"turn\":{number}}}"),
        ]
    };
    let found: Vec<_> = found.into_iter().filter(|line| !line.contains("\"agent\"")).collect();
    assert_eq!(found, [of_turn(1, "One"), of_turn(2, "Two")].concat(), "{told}");
}

/// Outside of any turn the values are those of the run. The number is the host's.
#[test]
fn the_number_of_the_turn_is_the_hosts() {
    let project = Project::with_script(
        "def run(args):\n    first = ctx.snapshot()\n    ctx.set('a', [1])\n    had = [ctx.has('a'), ctx.has('turn'), ctx.delete('a'), ctx.delete('a')]\n    ctx.set('b', None)\n    ctx.clear()\n    cache.set('b', 1)\n    return [first, had, ctx.get('turn'), ctx.snapshot(), ctx.get('b', 7), ctx.has('b')]\n",
    );
    let ran = project.run(&["call", "it"]);
    ran.gives(r#"[{"turn":0},[true,true,true,false],0,{"turn":0},7,false]"#);
    for call in ["ctx.set('turn', 9)", "ctx.delete('turn')"] {
        let name = call.split('(').next().unwrap();
        let ran = Project::with_script(&format!("def run(args):\n    {call}\n")).run(&["call", "it"]);
        ran.says(1, &format!("{name}: the host sets this key: use another"));
    }
    // What a hook set before is there; the next command has nothing of it.
    let project = Project::with_script("def run(args):\n    return ctx.snapshot()\n").with_handle(
        "sets",
        "tool.pre",
        "",
        "ctx.set('by', 'hook')\nreturn allow()",
    );
    for _ in 0..2 {
        project.run(&["call", "it"]).gives(r#"{"by":"hook","turn":0}"#);
    }
}

/// A turn keeps less than a run, and what has no `cache` has no `ctx`.
#[test]
fn what_a_turn_keeps_is_bounded_and_granted() {
    let fills = Project::with_script("def run(args):\n    for n in range(2000):\n        ctx.set(str(n), 1)\n");
    fills.run(&["call", "it"]).says(1, "ctx.set: the values of this turn are full, at 2097152 bytes");
    let script = "def run(args):\n    return ctx.get('turn')\n";
    let denied = Project::with_script(script).policy("sandbox: { services: [clock] }\n");
    denied.run(&["call", "it"]).says(3, "ctx.get: `cache` is not granted");
    Project::with_script(script).policy("sandbox: { services: [cache] }\n").run(&["call", "it"]).gives("0");
}

/// A case says what its turn holds, and looks at it afterwards.
#[test]
fn cases_give_it_and_look_at_it() {
    let tests = |expected: u32| {
        let tests = format!(
            "tests:\n  - name: one\n    given: {{ ctx: {{ turn: 3, step: 1 }} }}\n    expect: {{ result: 3, ctx: {{ turn: 3, step: {expected} }} }}\n"
        );
        let script = "def run(args):\n    ctx.set('step', ctx.get('step') + 1)\n    return ctx.get('turn')\n";
        Project::new().tool("it", &tests, script).run(&["test"])
    };
    assert_eq!(tests(2).code, 0);
    tests(1).says(1, "");
    let report = Project::new()
        .tool("it", "tests:\n  - name: one\n    given: { ctx: { turn: soon } }\n    expect: { result: 3 }\n", COUNT)
        .run(&["test"]);
    assert!(report.out.contains("     `given.ctx.turn` is not the number of a turn\n"), "{report}");
}
