//! `harness --server URL`: each command prints what it prints on the own machine, and ends with the same code.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};

use crate::project::{FINE, Project, Ran};
use crate::runs::agent;
use crate::site::{Site, Tenant};

/// Runs a command with a key of a server, in a folder without a project.
pub(crate) fn remote(site: &Site, key: &str, arguments: &[&str]) -> Ran {
    let elsewhere = Project::new();
    elsewhere.ran(&command(&elsewhere, &format!("http://{}", site.address()), key, arguments).output().unwrap())
}

pub(crate) fn command(project: &Project, url: &str, key: &str, arguments: &[&str]) -> std::process::Command {
    let mut command = project.command(&[&["--server", url], arguments].concat());
    command.env("HARNESS_API_KEY", key);
    command
}

/// A message without the lines of scripts, which are the server's, and the signs around them.
fn without_script(err: &str) -> String {
    let digits =
        |line: &str| line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().to_owned();
    let is_script = |line: &&str| digits(line).starts_with('|');
    let lines = err.lines().filter(|line| !is_script(line));
    let lines = lines.map(|line| match line.trim_start() {
        sign if sign.starts_with("--> ") || sign.starts_with("= hint: ") => sign.to_owned(),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<String>>().join("\n")
}

/// A report without what differs from call to call.
fn steady(out: &str) -> String {
    let Ok(mut json) = serde_json::from_str::<Json>(out) else { return out.to_owned() };
    clean(&mut json);
    json.to_string()
}

fn clean(json: &mut Json) {
    match json {
        Json::Object(members) => {
            for (key, value) in members.iter_mut() {
                match key.as_str() {
                    "usage" if value.get("fuel").is_some() => *value = json!("..."),
                    "fuel" | "wall_us" | "loading_us" => *value = json!("..."),
                    _ => clean(value),
                }
            }
        }
        Json::Array(entries) => entries.iter_mut().for_each(clean),
        _ => {}
    }
}

fn project() -> Project {
    Project::new()
        .policy("tools_policy: { deny: [hidden] }\nsandbox: { limits: { fuel: 5000000 } }\n")
        .tool("it", "", FINE)
        .tool("hidden", "", FINE)
        .tool("fails", "", "def helper():\n    fail('not today')\ndef run(args):\n    helper()\n")
        .tool("denied", "capabilities: { fs: { read: [docs] } }\n", "def run(args):\n    return fs.read('x')\n")
        .tool("limited", "", "def run(args):\n    for _ in range(1 << 24):\n        pass\n")
        .tool(
            "adds",
            "parameters:\n  a: { type: integer, required: true }\n  b: { type: number, default: 1 }\n",
            "def run(args):\n    log.info('adds ' + str(args['a']))\n    return args['a'] + args['b']\n",
        )
        .tool("says", "", "def run(args):\n    log.warn('one')\n    log.info('two\\nthree')\n    return {'args': args}\n")
        .tool("escapes", "", "def run(args):\n    return 'a\\x1b[2Jb'\n")
        .tool("reads", "", FINE)
        .file(
            ".harness/hooks/marks.md",
            "---\nevent: tool.post\nscript: |\n  def handle(event, payload):\n      log.info('saw ' + payload['name'])\n      \
             return block('kept back') if payload['name'] == 'reads' else None\n---\n",
        )
}

#[test]
fn a_call_on_a_server_prints_what_one_here_prints() {
    let project = project();
    let site = Site::open();
    let acme = site.tenant("acme", &project);
    let cases: &[(&[&str], i32)] = &[
        (&["call", "it"], 0),
        (&["call", "it", "--json"], 0),
        (&["call", "fails"], 1),
        (&["call", "fails", "--json"], 1),
        (&["call", "denied"], 3),
        (&["call", "denied", "--json"], 3),
        (&["call", "limited"], 4),
        (&["call", "limited", "--json"], 4),
        (&["call", "adds", "a=2"], 0),
        (&["call", "adds", "a=2", "b=0.5", "--json"], 0),
        (&["call", "adds", "--args", "{\"a\": 2}"], 0),
        (&["call", "adds"], 2),
        (&["call", "adds", "--json"], 2),
        (&["call", "adds", "a=x"], 2),
        (&["call", "adds", "a=2", "--args", "{}"], 2),
        (&["call", "adds", "--args", "{\"a\": \"x\"}"], 2),
        (&["call", "adds", "--args", "{"], 2),
        (&["call", "adds", "a=2", "bb=3"], 0),
        (&["call", "says", "x=1"], 0),
        (&["call", "says", "--json"], 0),
        (&["call", "escapes"], 0),
        (&["call", "hidden"], 3),
        (&["call", "its"], 2),
        (&["call", "none", "--json"], 2),
        (&["call", "it", "--within", "fs: { read: [docs] }"], 0),
        (&["call", "it", "--within", "fs: { rad: [docs] }"], 2),
        (&["call", "reads"], 3),
        (&["call", "reads", "--json"], 3),
        (&["tools"], 0),
        (&["tools", "--json"], 0),
    ];
    for (arguments, code) in cases {
        let (here, there) = (project.run_loaded(arguments), remote(&site, &acme.key, arguments));
        assert_eq!((here.code, there.code), (*code, *code), "{arguments:?}: here {here}\nthere {there}");
        assert_eq!(steady(&here.out), steady(&there.out), "{arguments:?}");
        // A server has no `--explain`.
        let here = without_script(&here.err).replace("`--explain` shows each", "`--json` shows each");
        assert_eq!(here, without_script(&there.err), "{arguments:?}");
    }
}

#[test]
fn a_run_on_a_server_prints_what_one_here_prints() {
    let log = "def run(args):\n    log.info('from it')\n    return 'fine'\n";
    let replies = "- tool_calls: [{ name: it, args: { a: 1 } }, { name: denied, args: {} }]\n- text: all done\n";
    let project = || {
        Project::new()
            .policy("model: { provider: script, script: replies.yaml }\n")
            .tool("it", "", log)
            .tool("denied", "", "def run(args):\n    return http.get('https://example.com')\n")
            .file("replies.yaml", replies)
    };
    let site = Site::open();
    // Replies are given once, however many runs ask for them.
    let there = |name: &str, arguments: &[&str]| remote(&site, &site.tenant(name, &project()).key, arguments);
    let cases: &[&[&str]] = &[
        &["run", "do it"],
        &["run", "do it", "--json"],
        &["run", "do it", "--output", "stream-json"],
        &["deploy", "--input", "do it"],
        &["run", " "],
        &["run", " ", "--json"],
    ];
    let lines = |out: &str| out.lines().map(steady).collect::<Vec<String>>();
    for (n, arguments) in cases.iter().enumerate() {
        let (here, there) = (project().run(arguments), there(&format!("t{n}"), arguments));
        assert_eq!(here.code, there.code, "{arguments:?}: here {here}\nthere {there}");
        assert_eq!(lines(&here.out), lines(&there.out), "{arguments:?}");
        // What scripts log comes at the end, because the server keeps it with the result.
        let sorted = |err: &str| {
            let mut lines: Vec<String> = err.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&here.err), sorted(&there.err), "{arguments:?}");
    }
    // Each step, as a person sees it: only times differ.
    let explained = ["run", "do it", "--explain"];
    let (here, there) = (project().run(&explained), there("explained", &explained));
    let steps = |ran: &Ran| -> Vec<String> {
        let lines = ran.err.lines().filter(|line| !line.starts_with('['));
        lines.map(|line| line.rsplit_once(" (").map_or(line, |(line, _)| line).to_owned()).collect()
    };
    assert_eq!(steps(&here), steps(&there));
    assert_eq!(steps(&there)[0], "calls it {\"a\":1}");
}

#[test]
fn sessions_of_a_server_are_shown_resumed_and_replayed() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent(""));
    let run = |arguments: &[&str]| remote(&site, &acme.key, arguments);
    assert_eq!(run(&["sessions", "list"]).err, "no session is recorded here\n");
    run(&["sessions", "show"]).says(2, "no session is recorded here");
    run(&["run", "do it"]).gives("all done");
    run(&["sessions", "resume", "latest", "again"]).gives("and again");
    let listed = run(&["sessions", "list", "--json"]).json();
    let listed = listed.as_array().unwrap();
    assert_eq!((listed.len(), &listed[0]["prompt"], &listed[1]["prompt"]), (2, &json!("again"), &json!("do it")));
    assert_eq!(listed[0]["resumes"], listed[1]["id"]);
    let id = listed[1]["id"].as_str().unwrap();
    // The same session on this machine.
    let local = agent("");
    let file = run_raw(&site, &acme, id);
    let local = local.file(&format!(".harness/sessions/{id}.jsonl"), &file);
    for arguments in [
        vec!["sessions", "show", id],
        vec!["sessions", "show", id, "--json"],
        vec!["sessions", "show", id, "--html"],
        vec!["sessions", "replay", id],
        vec!["sessions", "replay", id, "--json"],
        vec!["sessions", "show", "x"],
    ] {
        let (mut here, there) = (local.run(&arguments), run(&arguments));
        // Here is another host policy than there.
        here.err = here.err.replace("warning: `default-policy.yaml` was removed since\n", "");
        if arguments[1] == "replay" && arguments.len() == 4 {
            let mut replayed = here.json();
            replayed["artifacts"] = json!([]);
            here.out = format!("{replayed:#}\n");
        }
        assert_eq!(here, there, "{arguments:?}");
    }
    let shown = run(&["sessions", "list", "--last", "1"]);
    assert!(shown.code == 0 && shown.out.ends_with("1 turn, answered  again\n"), "{shown}");
}

fn run_raw(site: &Site, acme: &Tenant, id: &str) -> String {
    site.get(&acme.key, &format!("/v1/sessions/{id}.jsonl")).body
}

/// A command that is under way, and what it says.
struct UnderWay {
    child: Child,
    err: BufReader<std::process::ChildStderr>,
}

impl UnderWay {
    fn start(site: &Site, key: &str, arguments: &[&str]) -> Self {
        let project = Project::new();
        let url = format!("http://{}", site.address());
        let mut child = command(&project, &url, key, arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .current_dir("/")
            .spawn()
            .unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        Self { child, err }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.err.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn end(mut self) -> (i32, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.err.read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code().unwrap(), out, err)
    }
}

#[test]
fn a_call_that_waits_is_shown_and_answered_by_another_key() {
    let site = Site::open();
    let replies = "- tool_calls: [{ name: it, args: {} }]\n- text: all done\n";
    let acme = site.tenant("acme", &agent("confirm: true\n").file("replies.yaml", &replies.repeat(2)));
    let approver = site.key("acme", "approver");
    assert_eq!(remote(&site, &approver, &["approvals", "list"]).err, "nothing waits for an answer\n");
    let mut run = UnderWay::start(&site, &acme.key, &["run", "do it"]);
    let note = run.line();
    let id = note.rsplit_once("approvals approve ").unwrap().1.trim_end_matches('`').to_owned();
    let url = format!("http://{}", site.address());
    let said = format!(
        "note: the call of `it` waits until another key answers: `harness --server {url} approvals approve {id}`"
    );
    assert_eq!(note, said);
    let one = remote(&site, &approver, &["approvals", "show", &id, "--json"]).json();
    let digest = one["args_digest"].as_str().unwrap();
    assert_eq!(remote(&site, &approver, &["approvals", "list", "--json"]).json(), json!([one]));
    let shown = remote(&site, &approver, &["approvals", "show", &id]);
    let expected = format!(
        "approval: {id}\ntool: it\nfile: .harness/tools/it.md\nwhy: `confirm: true` in `.harness/tools/it.md:2:10`\nrun: {}\n\
         asked by: {}\ndigest: {digest}\n",
        one["run"].as_str().unwrap(),
        acme.key.split('_').nth(1).unwrap(),
    );
    assert!(shown.out.starts_with(&expected), "{shown}");
    assert!(shown.out.ends_with(&format!("page: {url}/dashboard/approvals\narguments:\n{{}}\n")), "{shown}");
    // Nobody has seen it, it is about something else, or it is a call of the own key.
    let approve = |key: &str, more: &[&str]| remote(&site, key, &[&["approvals", "approve", &id], more].concat());
    approve(&approver, &[]).says(2, "nobody has seen what will run");
    approve(&approver, &["--digest", "sha256:0"]).says(2, "the answer is to other arguments than those that will run");
    approve(&acme.key, &["--digest", digest]).says(3, "nobody approves a call of their own");
    approve(&site.key("acme", "caller"), &["--digest", digest]).says(3, "may not ask for this");
    approve(&approver, &["--digest", digest]).gives(&format!("approved {id} of {}", one["run"].as_str().unwrap()));
    approve(&approver, &["--digest", digest]).says(2, "it was answered already");
    assert_eq!(run.end(), (0, "all done\n".to_owned(), String::new()));

    let mut run = UnderWay::start(&site, &acme.key, &["run", "do it"]);
    let id = run.line().rsplit_once("approvals approve ").unwrap().1.trim_end_matches('`').to_owned();
    assert_eq!(remote(&site, &approver, &["approvals", "deny", &id]).code, 0);
    let denied = "denied: it: tool denied: the call of `it` was not confirmed (`confirm: true` in `.harness/tools/it.md:2:10`)\n";
    assert_eq!(run.end(), (0, "all done\n".to_owned(), denied.to_owned()));
    remote(&site, &approver, &["approvals", "show", &id]).says(2, "no call waits for an answer");
    // A call that nobody waits for is denied, as it is here without a terminal.
    remote(&site, &acme.key, &["call", "it"]).says(3, "needs confirmation");
}

#[test]
fn a_signal_stops_the_run_on_the_server() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("confirm: true\n"));
    let mut run = UnderWay::start(&site, &acme.key, &["run", "do it", "--json"]);
    assert!(run.line().contains("waits until another key answers"));
    kill_process(Pid::from_child(&run.child), Signal::INT).unwrap();
    let (code, out, err) = run.end();
    assert_eq!((code, err.as_str()), (130, "error: interrupted by SIGINT\n"), "{out}");
    assert_eq!(serde_json::from_str::<Json>(&out).unwrap()["outcome"], "interrupted");
    let runs = site.get(&acme.key, "/v1/runs").json();
    assert_eq!(runs["runs"][0]["state"], "stopped", "{runs}");
}

#[test]
fn usage_and_rules_of_a_tenant_are_printed() {
    let site = Site::with_config(
        "classes: { default: { budgets: { calls_per_day: 5, cost_per_day: 2.5, egress_per_day: 9 } } }\n",
    );
    let acme =
        site.tenant("acme", &Project::with_script(FINE).policy("sandbox: { fs: { read: [docs], write: [] } }\n"));
    remote(&site, &acme.key, &["call", "it"]).gives("fine");
    let usage = remote(&site, &acme.key, &["usage"]);
    let lines: Vec<&str> = usage.out.lines().collect();
    assert_eq!((usage.code, lines[0]), (0, "tenant acme, class default"), "{usage}");
    for start in
        ["calls_per_day: 1 of 5, until 20", "cost_per_day: $0 of $2.5, until 20", "egress_per_day: 0 of 9, until 20"]
    {
        assert!(lines.iter().any(|line| line.starts_with(start)), "{start}: {usage}");
    }
    assert!(lines.contains(&"requests: 6000 in a minute, bursts of 600"), "{usage}");
    assert!(lines.contains(&"runs: 0 of 8 under way"), "{usage}");
    assert_eq!(remote(&site, &acme.key, &["usage", "--json"]).json(), site.get(&acme.key, "/v1/usage").json());
    for _ in 0..4 {
        remote(&site, &acme.key, &["call", "it"]).gives("fine");
    }
    remote(&site, &acme.key, &["call", "it"]).says(4, "error: the budget `calls_per_day` of 5 is used up");
    let shown = remote(&site, &acme.key, &["policy", "show", "it"]);
    assert!(
        shown.out.starts_with("tool it\nallowed by all its layers:\n") && shown.out.contains("  fs.read: docs"),
        "{shown}"
    );
    let json = remote(&site, &acme.key, &["policy", "show", "it", "--json"]).json();
    assert_eq!(json["grant"]["fs.read"], json!({"rules": ["docs"], "whole": true}), "{json}");
    remote(&site, &acme.key, &["policy", "show", "none"]).says(2, "there is no tool `none`");
}

#[test]
fn what_a_server_does_not_execute_is_refused_before_it_is_asked() {
    let nowhere = Project::new();
    let run = |arguments: &[&str]| {
        nowhere.ran(&command(&nowhere, "http://127.0.0.1:9", "hk_a_b", arguments).output().unwrap())
    };
    let works = "hint: with `--server` these work: `call`, `tools`, `run`, `deploy`, `sessions`, `policy show`, \
                 `approvals` and `usage`";
    for arguments in [
        &["validate"] as &[&str],
        &["inspect"],
        &["test"],
        &["fire", "custom.x"],
        &["fire", "--format", "claude-code"],
        &["policy", "diff", "a", "b"],
        &["context"],
        &["init"],
        &["serve", "--data", "x"],
        &["audit", "verify"],
    ] {
        run(arguments).says(2, works);
    }
    for (option, arguments) in [
        ("--workspace", &["call", "it", "--workspace", "."] as &[&str]),
        ("--explain", &["call", "it", "--explain"]),
        ("--yes", &["call", "it", "--yes"]),
        ("--confirm", &["run", "x", "--confirm", "it"]),
        ("--self-confine", &["call", "it", "--self-confine"]),
        ("--no-record", &["run", "x", "--no-record"]),
        ("--continue", &["run", "--continue", "latest"]),
        ("-C", &["-C", ".", "call", "it"]),
        ("--policy", &["--policy", "x", "call", "it"]),
        ("--within", &["policy", "show", "it", "--within", "{}"]),
    ] {
        run(arguments).says(2, &format!("error: `{option}` does not work with `--server`"));
    }
    // Without a server nothing is asked either.
    for arguments in [&["usage"] as &[&str], &["approvals", "list"]] {
        nowhere.run(arguments).says(2, "this command is about a server, and none is named");
    }
}
