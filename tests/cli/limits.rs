//! What ends a call, and what a hostile script can do at most. After each, the project is as before.

use std::time::{Duration, Instant};

use crate::project::{FINE, Project, Ran};

/// Far more than anything here takes, and far less than what it guards against.
const LONG: Duration = Duration::from_secs(20);

/// A project with the script as the tool `it`, and one that always works.
fn project(script: &str, limits: &str) -> Project {
    Project::with_script(script)
        .tool("fine", "", FINE)
        .policy(&format!("sandbox:\n  exec: {{ allow: [\"sleep *\"] }}\n  limits: {{ {limits} }}\n"))
}

/// Runs a script that must come to an end by itself, and then another one of the same project.
#[track_caller]
fn run(script: &str, limits: &str) -> Ran {
    let project = project(script, limits);
    let started = Instant::now();
    let ran = project.run(&["call", "it"]);
    assert!(started.elapsed() < LONG, "took {:?}: {ran}", started.elapsed());
    project.run(&["call", "fine"]).gives("fine");
    ran
}

/// A script that must be ended by a limit, whose words are given.
#[track_caller]
fn ended(script: &str, limits: &str, words: &str) {
    let ran = run(script, limits);
    let first = ran.err.lines().next().unwrap_or_default();
    let wanted = format!("error: tool `it` was ended: over the limit {words}");
    assert_eq!((ran.code, ran.out.as_str(), first), (4, "", wanted.as_str()), "{ran}");
}

const ENDLESS: &str =
    "def run(args):\n    for i in range(1 << 30):\n        for j in range(1 << 30):\n            pass\n";

#[test]
fn an_endless_loop_uses_up_its_fuel() {
    ended(ENDLESS, "fuel: 100000000", "`fuel` of 100000000 units");
}

#[test]
fn an_endless_loop_with_fuel_meets_its_deadline() {
    ended(ENDLESS, "fuel: 1000000000000000, timeout_ms: 300", "`deadline` of 300 ms");
}

/// One built-in that takes long by itself is ended in the middle.
#[test]
fn a_long_built_in_meets_its_deadline() {
    let script = "def run(args):\n    return sorted(range(3000000), key = lambda x: -x)[0]\n";
    ended(script, "fuel: 1000000000000000, timeout_ms: 50, memory_mb: 1024", "`deadline` of 50 ms");
}

#[test]
fn a_memory_bomb() {
    let script = "def run(args):\n    x = [0] * 1000\n    for i in range(100):\n        x = x + x\n    return len(x)\n";
    ended(script, "memory_mb: 32", "`memory` of 33554432 bytes");
}

#[test]
fn recursion_through_values() {
    ended(
        "def f(g):\n    x = [g]\n    return g(g)\n\ndef run(args):\n    return f(f)\n",
        "fuel: 10000000000",
        "`call depth` of 100 levels",
    );
    ended(
        "def run(args):\n    f = lambda g: [h(g) for h in [g]]\n    return f(f)\n",
        "fuel: 10000000000",
        "`call depth` of 100 levels",
    );
}

#[test]
fn a_value_nested_deeply_as_text() {
    let script = "def run(args):\n    x = []\n    for i in range(100000):\n        x = [x]\n    return len(str(x))\n";
    ended(script, "memory_mb: 64", "`stack` of 1048576 bytes");
}

#[test]
fn values_nested_deeply_compared() {
    let script = "\
def nested():
    x = []
    for i in range(100000):
        x = [x]
    return x

def run(args):
    return nested() == nested()
";
    let ran = run(script, "memory_mb: 64");
    assert!(ran.code == 1 || ran.code == 4, "{ran}");
}

#[test]
fn a_huge_result() {
    ended("def run(args):\n    return 'x' * (5 << 20)\n", "output_bytes: 256", "`output` of 4194304 bytes");
    // Just within is a result, of which the model gets what the policy says.
    let ran = run("def run(args):\n    return 'x' * (4 << 20 - 2)\n", "output_bytes: 256");
    assert_eq!((ran.code, ran.out.len()), (0, 257), "{}", ran.code);
}

#[test]
fn a_sleep_past_the_deadline() {
    ended("def run(args):\n    sleep(600000)\n", "timeout_ms: 100", "`deadline` of 100 ms");
    // The tool's own time is shorter than the policy's.
    let own = Project::new().tool("it", "timeout_ms: 70\n", "def run(args):\n    sleep(600000)\n");
    own.run(&["call", "it"]).says(4, "over the limit `deadline` of 70 ms");
}

#[test]
fn a_command_past_the_deadline() {
    ended(
        "def run(args):\n    exec.run('sleep', ['600'], timeout_ms = 600000)\n",
        "timeout_ms: 200",
        "`deadline` of 200 ms",
    );
}

/// A command that has less time than the call is a result with an ending of its own.
#[test]
fn a_command_past_its_own_time() {
    let ran = run(
        "def run(args):\n    r = exec.run('sleep', ['600'], timeout_ms = 100)\n    return [r['ok'], r['timed_out']]\n",
        "timeout_ms: 30000",
    );
    ran.gives("[false,true]");
}

// What is known to have broken interpreters like this one.

#[test]
fn a_number_beyond_all_numbers() {
    run("def run(args):\n    return json.decode('1e999')\n", "memory_mb: 64")
        .says(1, "json.decode: number `1e+999` is out of range");
    run("def run(args):\n    return args\n", "memory_mb: 64").gives("{}");
}

#[test]
fn arguments_beyond_all_numbers() {
    let project = project("def run(args):\n    return args['x']\n", "memory_mb: 64");
    let ran = project.run(&["call", "it", "--args", "{\"x\": 1e999}"]);
    assert!(matches!(ran.code, 1 | 2) && ran.err.contains("out of range"), "{ran}");
    project.run(&["call", "it", "--args", "{\"x\": 1e300}"]).gives("1e+300");
    let deep = format!("{{\"x\": {}{}}}", "[".repeat(1000), "]".repeat(1000));
    project.run(&["call", "it", "--args", &deep]).says(2, "recursion limit exceeded");
}

#[test]
fn json_of_a_value_nested_deeply() {
    let script =
        "def run(args):\n    x = []\n    for i in range(100000):\n        x = [x]\n    return json.encode(x)\n";
    let ran = run(script, "memory_mb: 64");
    assert!(ran.code == 1 && ran.err.contains("json.encode: "), "{ran}");
}

/// The product is more bytes than 32 bits count: it must not wrap around to a small one.
#[test]
fn a_string_of_three_terabytes() {
    for script in [
        "def run(args):\n    return 'abc' * 1000000 * 1000000\n",
        "def run(args):\n    n = 1000000 + len(args)\n    return len('abc' * n * n)\n",
        "def run(args):\n    n = 1431655766 + len(args)\n    return len('abc' * n)\n",
        "def run(args):\n    n = 1431655766 + len(args)\n    return len([1, 2, 3] * n)\n",
        "def run(args):\n    n = 1431655766 + len(args)\n    return len((1, 2, 3) * n)\n",
    ] {
        let ran = run(script, "memory_mb: 64");
        assert!((ran.code == 1 || ran.code == 4) && ran.out.is_empty(), "{script}{ran}");
    }
    // Where it is worked out when the script is loaded, the script cannot be used.
    let ran = run("x = 'abc' * 1000000 * 1000000\n\ndef run(args):\n    return len(x)\n", "memory_mb: 64");
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran}");
}

#[test]
fn powers_of_a_big_integer() {
    let script = "def run(args):\n    x = 3\n    for i in range(60):\n        x = x * x\n    return 1\n";
    let ran = run(script, "fuel: 1000000000");
    assert_eq!(ran.code, 4, "{ran}");
    let shift = run("def run(args):\n    return len(str(1 << (len(args) + 1000000000)))\n", "fuel: 1000000000");
    assert!(shift.code == 1 || shift.code == 4, "{shift}");
    // The text of a number takes the square of its digits.
    let text = run(
        "def run(args):\n    x = 3\n    for i in range(22):\n        x = x * x\n    return len(str(x))\n",
        "fuel: 1000000000000, timeout_ms: 500",
    );
    assert!(text.code == 0 || text.code == 4, "{text}");
}

/// The pattern that takes a backtracking engine longer than the universe has been there.
#[test]
fn a_pattern_that_blows_up_elsewhere() {
    run("def run(args):\n    return re.match('^(a+)+$', 'a' * 50000 + 'b')['matched']\n", "memory_mb: 64")
        .gives("false");
    run("def run(args):\n    return re.match('^(a+)+$', 'a' * 50000)['matched']\n", "memory_mb: 64").gives("true");
    let ran = run("def run(args):\n    return re.match('((a{1000}){1000}){1000}', 'a')['matched']\n", "memory_mb: 64");
    assert!(ran.code == 1 || ran.code == 4, "{ran}");
}

#[test]
fn an_expression_nested_deeply() {
    for (open, close) in [("(", ")"), ("[", "]"), ("-", ""), ("not ", "")] {
        let expression = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        for script in [
            format!("x = {expression}\n\ndef run(args):\n    return 1\n"),
            format!("def run(args):\n    return {expression}\n"),
        ] {
            let ran = run(&script, "memory_mb: 64");
            assert_eq!(
                (ran.code, ran.out.as_str()),
                (2, ""),
                "{open}: {}",
                ran.err.chars().take(300).collect::<String>()
            );
        }
    }
}

#[test]
fn an_endless_top_level() {
    let started = Instant::now();
    let ran = Project::with_script("def f():\n    for i in range(1 << 30):\n        for j in range(1 << 30):\n            pass\n\nf()\n\ndef run(args):\n    return 1\n")
        .run(&["call", "it"]);
    ran.says(2, "loading the script takes too long");
    assert!(started.elapsed() < LONG);
}
