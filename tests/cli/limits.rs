//! What ends a call, and what a hostile script can do at most. After each, the project is as before.

use crate::grants::server;
use crate::project::{FINE, Project, Ran};

/// A project with the script as the tool `it`, which has limits, and one that always works.
fn project(script: &str, limits: &str) -> Project {
    Project::with_script(script).tool("fine", "", FINE).policy(&format!(
        "sandbox:\n  exec: {{ allow: [\"sleep *\"] }}\n  sources: {{ tools/it: {{ limits: {{ {limits} }} }} }}\n"
    ))
}

/// Runs a script that must end by itself, and then another one of the same project.
#[track_caller]
fn run(script: &str, limits: &str) -> Ran {
    let project = project(script, limits);
    let ran = project.run_loaded(&["call", "it"]);
    project.run(&["call", "fine"]).gives("fine");
    ran
}

/// A script that must be ended by a limit, whose words are given.
#[track_caller]
fn ended(script: &str, limits: &str, words: &str) {
    let ran = run(script, limits);
    let first = ran.err.lines().next().unwrap_or_default();
    let wanted = format!("error: tool `it` was ended: over the limit {words}");
    // Where the interpreter can show the line, it does.
    let told = first.split_once(" at .harness/tools/it.md:").map_or(first, |(told, _)| told);
    assert_eq!((ran.code, ran.out.as_str(), told), (4, "", wanted.as_str()), "{ran}");
}

const ENDLESS: &str =
    "def run(args):\n    for i in range(1 << 30):\n        for j in range(1 << 30):\n            pass\n";

#[test]
fn an_endless_loop_uses_up_its_fuel() {
    ended(ENDLESS, "fuel: 100000000", "`fuel` of 100000000 units");
}

#[test]
fn an_endless_loop_with_fuel_meets_its_deadline() {
    ended(ENDLESS, "fuel: 1000000000000000, timeout_ms: 300", "`timeout_ms` of 300 ms");
}

/// One built-in that takes long by itself is ended in the middle.
#[test]
fn a_long_built_in_meets_its_deadline() {
    let script = "def run(args):\n    return sorted(range(3000000), key = lambda x: -x)[0]\n";
    ended(script, "fuel: 1000000000000000, timeout_ms: 50, memory_mb: 1024", "`timeout_ms` of 50 ms");
}

/// What looks through files is ended as anything else is.
#[test]
fn a_search_meets_its_deadline() {
    for search in ["glob('**/none')", "list('.')", "find('a.txt', 'none')"] {
        let script = format!(
            "def run(args):\n    fs.write('a.txt', 'x\\n' * 1000)\n    for i in range(1 << 30):\n        fs.{search}\n"
        );
        let limits = "fuel: 1000000000000000, timeout_ms: 200, host_calls: 1000000000, io_bytes: 1099511627776";
        ended(&script, limits, "`timeout_ms` of 200 ms");
    }
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

/// Each count that the host keeps, one below what the script does; at the count it completes.
#[test]
fn what_the_host_does_for_a_call_is_counted() {
    let setup = "fs.mkdir('d'); fs.write('d/a', 'aaaa'); fs.write('d/b', 'bbbb')";
    for (script, limit, enough, words) in [
        ("return [cache.has('k') for i in range(20)][0]", "host_calls", 20, "`host calls` of 19 calls"),
        // The key and the value with its quotes, both ways.
        ("cache.set('k', 'x' * 100); cache.get('k')", "io_bytes", 206, "`bytes of host calls` of 205 bytes"),
        ("fs.write('a', ''); fs.append('a', ''); fs.remove('a'); fs.mkdir('b')", "files", 4, "`files` of 3 files"),
        ("fs.write('a', 'x' * 100)", "file_bytes", 100, "`file size` of 99 bytes"),
        ("fs.write('a', ''); fs.append('a', 'x' * 100)", "file_bytes", 100, "`file size` of 99 bytes"),
        ("return 'x' * 298", "result_bytes", 300, "`output` of 299 bytes"),
    ] {
        let script = format!("def run(args):\n    {script}\n");
        let ran = run(&script, &format!("{limit}: {enough}"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{limit}: {ran}");
        ended(&script, &format!("{limit}: {}", enough - 1), words);
    }
    // What `fs.copy` copies goes through no call, and counts: two files of four bytes, three entries.
    let copies = |limits: &str| run(&format!("def run(args):\n    {setup}; fs.copy('d', 'e')\n"), limits);
    for (limit, enough) in [("files", 6), ("file_bytes", 4)] {
        assert_eq!(copies(&format!("{limit}: {enough}")).code, 0, "{limit}");
        copies(&format!("{limit}: {}", enough - 1)).says(4, "error: tool `it` was ended: over the limit `file");
    }
    let given = copies("io_bytes: 100000").code;
    assert_eq!(given, 0);
    let big = Project::with_script("def run(args):\n    fs.copy('a', 'b')\n").file("a", &"x".repeat(5000));
    let limited = |most: &str| big.run(&["call", "it", "--within", &format!("limits: {{ io_bytes: {most} }}")]);
    limited("4999").says(4, "over the limit `bytes of host calls` of 4999 bytes");
    assert!(!big.path("b").exists());
    assert_eq!(limited("6000").code, 0);
}

#[test]
fn a_file_that_is_too_large_to_read_or_copy() {
    for expression in ["fs.read('a')", "fs.copy('a', 'b')"] {
        let project = Project::with_script(&format!("def run(args):\n    return len({expression}) > 0\n"));
        let project = project.file("a", &"x".repeat(100)).policy("sandbox: { limits: { file_bytes: 99 } }\n");
        project.run(&["call", "it"]).says(4, "error: tool `it` was ended: over the limit `file size` of 99 bytes");
        project.write(".harness/harness.md", "---\nsandbox: { limits: { file_bytes: 100 } }\n---\n");
        project.run(&["call", "it"]).gives("true");
    }
}

#[test]
fn an_http_body_that_is_too_large() {
    let (address, _) = server();
    let script = format!("def run(args):\n    return http.post('http://{address}/', 'ping!')['body']\n");
    let project = Project::with_script(&script);
    let policy = |most: u64| {
        let network = format!("network: {{ allowed_domains: ['{address}'] }}\n");
        project.write(
            ".harness/harness.md",
            &format!("---\n{network}sandbox: {{ limits: {{ body_bytes: {most} }} }}\n---\n"),
        );
        project.run(&["call", "it"])
    };
    policy(5).gives("pong");
    policy(4).says(4, "over the limit `body size` of 4 bytes");
    // The answer: nothing is sent, four bytes come back.
    let script = script.replace("post(", "get(").replace(", 'ping!'", "");
    let project = project.tool("it", "", &script);
    let policy = |most: u64| project.run(&["call", "it", "--within", &format!("limits: {{ body_bytes: {most} }}")]);
    project.write(".harness/harness.md", &format!("---\nnetwork: {{ allowed_domains: ['{address}'] }}\n---\n"));
    policy(4).gives("pong");
    policy(3).says(4, "over the limit `body size` of 3 bytes");
}

/// Forty classes of Unicode: some 1.6 MB when compiled. What was compiled while the script was loaded is no way around.
#[test]
fn a_pattern_that_is_too_large() {
    let script = "words = re.search('(?:\\\\w{10}){2}', 'x')\ndef run(args):\n    return re.search('(?:\\\\w{10}){2}', 'a' * 20)['end']\n";
    let told = "re.search: the pattern needs more than 100000 bytes when compiled (`limits.regex_bytes`); \
                in `{n}`, [0-9A-Za-z_] is smaller than \\w";
    run(script, "regex_bytes: 100000").says(1, told);
    run(script, "regex_bytes: 2000000").gives("20");
}

/// A log that is kept is memory of the host.
#[test]
fn a_log_that_fills_the_host() {
    let script = "def run(args):\n    for i in range(200):\n        log('x' * 16000)\n    return 1\n";
    let ran = run(script, "host_memory_mb: 1");
    let told = ran.err.contains("\nerror: tool `it` was ended: over the limit `host memory` of 1048576 bytes\n");
    assert!(told && ran.code == 4, "{}", ran.code);
    let ran = run(script, "host_memory_mb: 4");
    assert_eq!((ran.code, ran.out.as_str()), (0, "1\n"), "{}", ran.code);
}

#[test]
fn more_lines_of_log_than_are_kept() {
    let script = "def run(args):\n    for i in range(5):\n        log(str(i))\n    return 1\n";
    let ran = run(script, "log_lines: 3");
    ran.says(0, "[info] 2\nwarning: over the limit `log_lines`: 2 more log lines were dropped");
    assert!(!ran.err.contains("[info] 3"), "{ran}");
    let json = project(script, "log_lines: 3").run(&["call", "it", "--json"]).json();
    assert_eq!((&json["log_dropped"], json["log"].as_array().map(Vec::len)), (&serde_json::json!(2), Some(3)));
    assert!(!run(script, "log_lines: 5").err.contains("dropped"));
}

/// The hint names the line that set the limit, in whichever layer.
#[test]
fn a_limit_is_set_for_a_source_an_artifact_and_a_call() {
    let hint = |project: &Project, more: &[&str], hint: &str| {
        project.run(&[&["call", "it"], more].concat()).says(4, &format!("\nhint: {hint} raises it"));
    };
    let wide = "sandbox: { limits: { fuel: 200000000 }, sources: { tools: { limits: { fuel: 150000000 } } } }\n";
    let own = Project::with_script(ENDLESS).policy(wide);
    hint(&own, &[], "`sandbox.sources.tools.limits.fuel` in `.harness/harness.md:2:77`");
    hint(&own, &["--within", "limits: { fuel: 140000000 }"], "`limits.fuel` in `--within:1:17`");
    hint(
        &own,
        &["--within", "limits: { fuel: 160000000 }"],
        "`sandbox.sources.tools.limits.fuel` in `.harness/harness.md:2:77`",
    );
    let artifact = Project::new().tool("it", "capabilities: { limits: { fuel: 100000000 } }\n", ENDLESS).policy(wide);
    hint(&artifact, &[], "`capabilities.limits.fuel` in `.harness/tools/it.md:2:33`");
    hint(&Project::with_script(ENDLESS), &[], "`sandbox.limits.fuel` in `.harness/harness.md`");
}

/// So does that of the time that a tool gives itself.
#[test]
fn the_time_is_the_shortest_of_all() {
    let endings = |own: &str, policy: &str, hint: &str| {
        let project = Project::new().tool("it", own, "def run(args):\n    sleep(600000)\n");
        let project = project.policy(&format!("sandbox: {{ limits: {{ timeout_ms: {policy} }} }}\n"));
        project.run(&["call", "it"]).says(4, &format!("\nhint: {hint} raises it"));
    };
    endings("timeout_ms: 50\n", "60", "`timeout_ms` in `.harness/tools/it.md:2:13`");
    endings("timeout_ms: 60\n", "50", "`sandbox.limits.timeout_ms` in `.harness/harness.md:2:34`");
    endings("timeout_ms: 600000\n", "50", "`sandbox.limits.timeout_ms` in `.harness/harness.md:2:34`");
    endings("", "50", "`sandbox.limits.timeout_ms` in `.harness/harness.md:2:34`");
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
    ended("def run(args):\n    sleep(600000)\n", "timeout_ms: 100", "`timeout_ms` of 100 ms");
    // The tool's own time is shorter than the policy's.
    let own = Project::new().tool("it", "timeout_ms: 70\n", "def run(args):\n    sleep(600000)\n");
    own.run(&["call", "it"]).says(4, "over the limit `timeout_ms` of 70 ms");
}

#[test]
fn a_command_past_the_deadline() {
    ended(
        "def run(args):\n    exec.run('sleep', ['600'], timeout_ms = 600000)\n",
        "timeout_ms: 200",
        "`timeout_ms` of 200 ms",
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
    let ran = Project::with_script("def f():\n    for i in range(1 << 30):\n        for j in range(1 << 30):\n            pass\n\nf()\n\ndef run(args):\n    return 1\n")
        .run(&["call", "it"]);
    let hint = "move work into a function";
    ran.says(2, &format!("loading the script is over the limit `fuel` of 10000000000 units: {hint}"));
}
