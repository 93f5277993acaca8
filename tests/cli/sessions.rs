//! The record of a session, and the report of it.

use std::os::unix::fs::PermissionsExt as _;

use insta::assert_snapshot;
use serde_json::{Value as Json, json};

use crate::agent_turns::agent;
use crate::project::Project;

pub(crate) const READ: &str = "def run(args):\n    log.info('reading')\n    return fs.read(args['path'])\n";
pub(crate) const PATH: &str = "parameters:\n  path: { type: string, required: true }\n";

/// An agent that reads a file, is refused another, and answers; with a hook that looks at each call.
pub(crate) fn reads() -> Project {
    let replies = "- text: Let me see.\n  tool_calls: [{ name: read_file, args: { path: config.yaml } }]\n\
                   - tool_calls: [{ name: read_file, args: { path: .env } }]\n\
                   - text: It uses port 8080.\n\
                   - text: You are welcome.\n";
    agent("", replies).tool("read_file", PATH, READ).file("config.yaml", "port: 8080\n").with_handle(
        "guard",
        "tool.pre",
        "priority: 10\n",
        "if payload['args']['path'] == '.env':\n    return block('no dotfiles')\nreturn allow()",
    )
}

/// The project of `examples/agent`, in a folder of its own.
pub(crate) fn example() -> Project {
    let project = Project::new();
    let from = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/agent");
    let ran = std::process::Command::new("cp").arg("-r").arg(from.join(".")).arg(project.root()).status().unwrap();
    assert!(ran.success());
    std::fs::remove_dir_all(project.path(".harness/audit")).ok();
    std::fs::remove_dir_all(project.path(".harness/sessions")).ok();
    project
}

/// The files of sessions, the oldest first.
pub(crate) fn files(project: &Project) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(project.path(".harness/sessions")) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
    files.sort_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap());
    files
}

/// The text of the last session's record.
pub(crate) fn last(project: &Project) -> String {
    std::fs::read_to_string(files(project).last().unwrap()).unwrap()
}

/// The lines of a kind. One that is being written is not among them.
pub(crate) fn lines(text: &str, kind: &str) -> Vec<Json> {
    let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let lines = whole.map(|line| serde_json::from_str::<Json>(line).unwrap());
    lines.filter(|line| line["kind"] == kind).collect()
}

/// A record without what differs from run to run, or from one interpreter to the next.
fn normal(text: &str) -> String {
    fn without(value: &mut Json) {
        match value {
            Json::Object(fields) => {
                for (name, value) in fields.iter_mut() {
                    let differs = name == "at" || name == "fuel" || name == "peak_memory" || name.ends_with("_us");
                    if differs && value.is_number() {
                        *value = json!("#");
                    } else if matches!(name.as_str(), "started" | "interpreter" | "digest_key") && value.is_string() {
                        *value = json!("…");
                    }
                    without(value);
                }
            }
            Json::Array(items) => items.iter_mut().for_each(without),
            Json::String(text) if text.starts_with("sha256:") => *text = "sha256:…".to_owned(),
            Json::String(text) if text.len() == 22 && text.starts_with("20") => *text = "SESSION".to_owned(),
            _ => {}
        }
    }
    let line = |line: &str| {
        let mut value: Json = serde_json::from_str(line).unwrap();
        without(&mut value);
        value.to_string()
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// What is shown of times, names and fuel, with something of its own in its place.
pub(crate) fn shown(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", shown_line(line))).collect()
}

fn shown_line(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ') {
        let bare = word.trim_end_matches([',', ')', ':']);
        let end = word.strip_prefix(bare).unwrap();
        let digits = bare.chars().filter(char::is_ascii_digit).count();
        let number = digits > 0 && bare.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | '.'));
        let is_time = words.last().is_some_and(|last| last == "T" || last.chars().all(|c| c.is_ascii_digit()));
        if matches!(bare, "ms" | "s" | "min") && is_time && words.last().is_some_and(|last| !last.is_empty()) {
            // When and how long: numbers of any width.
            words.pop();
            while words.pop_if(|last| last.is_empty()).is_some() {}
            words.push(format!("_{end}"));
        } else if bare.len() == 22 && bare.starts_with("20") {
            words.push(format!("SESSION{end}"));
        } else if bare.len() == 20 && bare.ends_with('Z') {
            words.push(format!("WHEN{end}"));
        } else if number && bare.contains('.') {
            words.push(format!("T{end}"));
        } else if number && digits > 3 {
            words.push(format!("N{end}"));
        } else {
            words.push(word.to_owned());
        }
    }
    words.join(" ").trim_end().to_owned()
}

#[test]
fn every_line_of_a_session() {
    let project = reads();
    project.run(&["run", "What port?"]).says(0, "");
    assert_snapshot!(normal(&last(&project)), @r##"
    {"at":"#","kind":"session","version":1,"id":"SESSION","started":"…","harness":"0.1.0","interpreter":"…","command":"run","model":"script","provider":"script","policy":"sha256:…","digest_key":"…","artifacts":{".harness/harness.md":"sha256:…",".harness/hooks/guard.md":"sha256:…",".harness/tools/read_file.md":"sha256:…"}}
    {"at":"#","by":"root","kind":"turn","depth":0,"text":"What port?"}
    {"at":"#","by":"root","kind":"said","place":0,"message":{"role":"user","content":"What port?"}}
    {"at":"#","by":"root","kind":"asked","round":1,"model":"script","messages":3,"tools":1,"room":128000,"said":"sha256:…","offered":"sha256:…"}
    {"at":"#","by":"root","kind":"reply","id":"reply_1","model":"script","text":"Let me see.","calls":[{"id":"call_1","name":"read_file","arguments":"{\"path\":\"config.yaml\"}"}],"finish":"tool_calls","tokens":{"input":83,"output":7},"took_us":"#"}
    {"at":"#","by":"root","kind":"said","place":1}
    {"at":"#","by":"root","kind":"calling","call":"call_1","tool":"read_file"}
    {"at":"#","kind":"script","script":{"file":".harness/hooks/guard.md","code":"sha256:…","role":"hook","input":"sha256:…"},"outcome":"completed","result":"sha256:…","fuel":"#","peak_memory":"#","wall_us":"#"}
    {"at":"#","kind":"script","script":{"file":".harness/tools/read_file.md","code":"sha256:…","role":"tool","input":"sha256:…"},"outcome":"completed","result":"sha256:…","fuel":"#","peak_memory":"#","wall_us":"#","answers":[{"call":"fs.read","given":"sha256:…","answer":{"Ok":"port: 8080\n"}}]}
    {"at":"#","by":"root","kind":"called","call":"call_1","tool":"read_file","outcome":"completed","is_error":false,"content":"sha256:…","fuel":"#","took_us":"#","pre":{"event":"tool.pre","hooks":[{"hook":"guard","file":".harness/hooks/guard.md","verdict":"allow","work":{"fuel":"#","wall_us":"#","peak_memory":"#","host_calls":0}}]},"work":{"fuel":"#","wall_us":"#","peak_memory":"#","host_calls":2,"host":[{"call":"log.write","subject":"info","wall_us":"#"},{"call":"fs.read","subject":"config.yaml","wall_us":"#"}],"log":[{"level":"info","message":"reading"}]}}
    {"at":"#","by":"root","kind":"said","place":2,"message":{"role":"tool","tool_call_id":"call_1","name":"read_file","content":"port: 8080\n"}}
    {"at":"#","by":"root","kind":"asked","round":2,"model":"script","messages":5,"tools":1,"room":128000,"said":"sha256:…","offered":"sha256:…"}
    {"at":"#","by":"root","kind":"reply","id":"reply_2","model":"script","text":"","calls":[{"id":"call_2","name":"read_file","arguments":"{\"path\":\".env\"}"}],"finish":"tool_calls","tokens":{"input":87,"output":3},"took_us":"#"}
    {"at":"#","by":"root","kind":"said","place":3}
    {"at":"#","by":"root","kind":"calling","call":"call_2","tool":"read_file"}
    {"at":"#","kind":"script","script":{"file":".harness/hooks/guard.md","code":"sha256:…","role":"hook","input":"sha256:…"},"outcome":"completed","result":"sha256:…","fuel":"#","peak_memory":"#","wall_us":"#"}
    {"at":"#","by":"root","kind":"called","call":"call_2","tool":"read_file","outcome":"denied","why":"blocked by hook \"guard\": no dotfiles","is_error":true,"content":"sha256:…","fuel":"#","took_us":"#","pre":{"event":"tool.pre","blocked":"blocked by hook \"guard\": no dotfiles","hooks":[{"hook":"guard","file":".harness/hooks/guard.md","verdict":"block","reason":"no dotfiles","work":{"fuel":"#","wall_us":"#","peak_memory":"#","host_calls":0}}]}}
    {"at":"#","by":"root","kind":"said","place":4,"message":{"role":"tool","tool_call_id":"call_2","name":"read_file","content":"tool blocked: blocked by hook \"guard\": no dotfiles"}}
    {"at":"#","by":"root","kind":"asked","round":3,"model":"script","messages":7,"tools":1,"room":128000,"said":"sha256:…","offered":"sha256:…"}
    {"at":"#","by":"root","kind":"reply","id":"reply_3","model":"script","text":"It uses port 8080.","finish":"stop","tokens":{"input":99,"output":4},"took_us":"#"}
    {"at":"#","by":"root","kind":"said","place":5}
    {"at":"#","by":"root","kind":"turned","answer":"It uses port 8080.","rounds":2,"tokens":{"input":269,"output":14}}
    {"at":"#","kind":"ended"}
    "##);
}

#[test]
fn a_record_is_for_its_owner_alone_and_out_of_reach_of_scripts() {
    let project = reads().tool("look", PATH, "def run(args):\n    return fs.list(args['path'])\n");
    project.run(&["run", "What port?"]);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = files(&project).remove(0);
    assert_eq!((mode(&file), mode(&project.path(".harness/sessions"))), (0o600, 0o700));
    assert_eq!(std::fs::read_to_string(project.path(".harness/sessions/.gitignore")).unwrap(), "*\n");
    let name = file.file_name().unwrap().to_str().unwrap();
    let path = format!("path=.harness/sessions/{name}");
    project.run(&["call", "read_file", &path]).says(3, "the folder `.harness/sessions/` is protected");
    let listed = project.run(&["call", "look", "path=.harness"]).out;
    assert!(listed.contains("harness.md") && !listed.contains("sessions"), "{listed}");
}

#[test]
fn nothing_is_recorded_where_nobody_wants_it_or_nothing_happens() {
    let project = reads();
    project.run(&["run", "--no-record", "What port?"]).says(0, "");
    project.run_with_input(&["deploy", "--no-record"], "What port?").says(0, "");
    assert!(!project.path(".harness/sessions").exists());
    project.run(&["run", "   "]).says(2, "the prompt is empty");
    assert!(files(&project).is_empty());
    project.run_with_input(&["deploy"], "What port?").says(0, "");
    assert_eq!(lines(&last(&project), "session")[0]["command"], "deploy");
}

/// What cannot be recorded is said once, and the session continues.
#[test]
fn a_folder_that_cannot_be_written_is_one_warning() {
    let project = reads().file(".harness/sessions", "in the way");
    let ran = project.run(&["run", "What port?"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "It uses port 8080.\n"), "{ran}");
    assert_eq!(ran.err.matches("warning:").count(), 1, "{ran}");
    ran.says(0, "warning: this session is not recorded: `.harness/sessions` cannot be written: Not a directory");
}

/// Neither a secret that a file holds, nor a key that someone pastes, nor one that a model tells.
#[test]
fn no_secret_and_no_key_is_in_a_record() {
    let secret = "s3cr3t-of-the-operator";
    let replies = format!(
        "- tool_calls: [{{ name: read_file, args: {{ path: config.yaml }} }}]\n- text: It says {secret} and sk-test-0123456789.\n"
    );
    let policy = "sandbox:\n  secrets: { DEPLOY: { env: DEPLOY_TOKEN, hosts: [example.com] } }\n\
                  models: [{ name: other, provider: openai }]\n";
    let project =
        agent(policy, &replies).tool("read_file", PATH, READ).file("config.yaml", &format!("token: {secret}\n"));
    let mut command = project.command(&["run", &format!("Is it {secret} or sk-test-0123456789?")]);
    command.env("DEPLOY_TOKEN", secret).env("OPENAI_API_KEY", "sk-test-0123456789");
    assert!(command.status().unwrap().success());
    let text = last(&project);
    assert!(!text.contains("s3cr3t") && !text.contains("sk-test"), "{text}");
    assert!(text.contains("Is it [redacted:DEPLOY] or [redacted:OPENAI_API_KEY]?"), "{text}");
    assert!(text.contains("token: [redacted:DEPLOY]"), "the answer of the host call is there, without it: {text}");
}

#[test]
fn sessions_are_listed_the_newest_first() {
    let project = reads();
    assert_snapshot!(project.run(&["sessions", "list"]), @"
    exit 0
    --- stdout
    --- stderr
    no session is recorded here
    ");
    assert_eq!(project.run(&["sessions", "list", "--json"]).json(), json!([]));
    project.run(&["sessions", "show"]).says(2, "no session is recorded here");
    project.run(&["run", "What\x1b[2J port?\nSay it."]);
    project.write("replies.yaml", "- error: down\n");
    project.run(&["run", "And now?"]);
    assert_snapshot!(shown(&project.run(&["sessions", "list"]).out), @r"
    SESSION  WHEN  script  1 turn, failed  And now?
    SESSION  WHEN  script  1 turn, answered  What\u{1b}[2J port?…
    ");
    let listed = project.run(&["sessions", "list", "--json", "--last", "1"]).json();
    let one = &listed[0];
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(
        (&one["prompt"], &one["outcome"], &one["turns"], &one["ended"], &one["model"]),
        (&json!("And now?"), &json!("failed"), &json!(1), &json!(true), &json!("script"))
    );
    // What is no record is told, and hides nothing.
    std::fs::write(project.path(".harness/sessions/20990101-000000-zz.jsonl"), "{}\n").unwrap();
    let ran = project.run(&["sessions", "list"]);
    assert_eq!((ran.code, ran.out.lines().count()), (0, 2), "{ran}");
    ran.says(0, "warning: .harness/sessions/20990101-000000-zz.jsonl:1: it has no time");
}

#[test]
fn a_session_is_shown_as_a_timeline() {
    let project = reads();
    project.run(&["run", "What port?"]);
    let ran = project.run(&["sessions", "show"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_snapshot!(shown(&ran.out), @r#"
    SESSION  WHEN  run
    harness T, model script (script)
    1 turn in _: 3 replies (269 + 14 tokens), 2 calls, 1 refused, 2 hooks ran, fuel N

    turn 1, _, answered
    > What port?
    _ _ model script calls read_file (83 + 7 tokens)
                           " Let me see.
    _ _ tool read_file completed (fuel N, 2 host calls)
                           ( {"path":"config.yaml"}
                           = port: N
                           [info] reading
    _ _   hook guard on tool.pre: allow (fuel N)
    _ _ model script calls read_file (87 + 3 tokens)
    _ _ tool read_file denied: blocked by hook "guard": no dotfiles (fuel N)
                           ( {"path":".env"}
                           = tool blocked: blocked by hook "guard": no dotfiles
    _ _   hook guard on tool.pre: block: no dotfiles (fuel N)
    _ _ model script answers (99 + 4 tokens)
                           " It uses port T
    It uses port T
    "#);
    let id = files(&project)[0].file_stem().unwrap().to_str().unwrap().to_owned();
    assert_eq!(project.run(&["sessions", "show", &id]), ran);
    let begins: String = id.chars().take(17).collect();
    assert_eq!(project.run(&["sessions", "show", &begins]), ran);
    project.run(&["sessions", "show", "2001"]).says(2, "there is no session `2001`");
    let json = project.run(&["sessions", "show", "--json"]).json();
    assert_eq!(json["session"]["id"], id);
    assert_eq!(
        (&json["totals"]["calls"], &json["totals"]["refused"], &json["ended"]),
        (&json!(2), &json!(1), &json!(true))
    );
    let turn = &json["timeline"][0];
    let kinds: Vec<&Json> = turn["inside"].as_array().unwrap().iter().map(|span| &span["kind"]).collect();
    assert_eq!(kinds, ["model", "tool", "model", "tool", "model"]);
    assert_eq!(
        turn["inside"][1]["texts"],
        json!({"arguments": "{\"path\":\"config.yaml\"}", "result": "port: 8080\n"})
    );
}

/// Two sub-agents, two guards, a judge that refuses twice, and a command that is blocked.
#[test]
fn the_example_agent_on_a_timeline() {
    let project = example();
    project.run(&["run", "When?"]).says(0, "");
    assert_snapshot!(shown(&project.run(&["sessions", "show"]).out), @r#"
    SESSION  WHEN  run
    harness T, model script (script)
    1 turn in _: 11 replies (2,328 + 111 tokens), 6 calls, 2 refused, 4 turns of sub-agents, 3 hooks ran, fuel N

    turn 1, _, answered
    > When?
    _ _ model script calls delegate (169 + 16 tokens)
                           " I let the finder look.
    _ _ tool delegate completed (fuel N)
                           ( {"agent":"finder","task":"When is the launch?"}
                           = {"agent":"finder","response":"On 12 May (notes/launch.md).","calls":0,"rounds":0,"attempts":3,"usage":{"input_tokens":301,"output_tokens":7}}
    _ _   agent finder not accepted (347 + 8 tokens)
                             > When is the launch?
    _ _     model script calls find_in_notes (156 + 4 tokens)
    _ _     tool find_in_notes completed (fuel N, 3 host calls)
                               ( {"text":"launch"}
                               = {"found":["notes/launch.md:1: # Launch","notes/launch.md:3: - The launch is on 12 May.","notes/team.md:3: - Ada owns the launch checklist."]}
    _ _     model script answers (191 + 4 tokens)
                               " It is on 12 May.
    _ _   judge verify not accepted: it does not name the file that it was found in
    _ _   agent finder not accepted: attempt 2 (245 + 6 tokens)
                             > Your result was checked and not accepted: it does not name the file that it was found in ⏎  ⏎ The task is not complete. Find out what is wrong, correct it, make sure of it with your tools, and answer …
    _ _     model script answers (245 + 6 tokens)
                               " The launch is on 12 May.
    _ _   judge verify not accepted: it does not name the file that it was found in
    _ _   agent finder answered: attempt 3 (301 + 7 tokens)
                             > Your result was checked and not accepted: it does not name the file that it was found in ⏎  ⏎ The task is not complete. Find out what is wrong, correct it, make sure of it with your tools, and answer …
    _ _     model script answers (301 + 7 tokens)
                               " On 12 May (notes/launch.md).
    _ _   judge verify accepted
    _ _ model script calls delegate (209 + 20 tokens)
    _ _ tool delegate completed (fuel N)
                           ( {"agent":"writer","task":"Summarize: the launch is on 12 May (notes/launch.md)."}
                           = {"agent":"writer","response":"I wrote that the launch is on 12 May to notes/summary.md.","calls":2,"rounds":2,"attempts":1,"usage":{"input_tokens":532,"output_tokens":33}}
    _ _   agent writer answered (532 + 33 tokens)
                             > Summarize: the launch is on 12 May (notes/launch.md).
    _ _     model script calls write_summary (165 + 12 tokens)
    _ _     tool write_summary denied: blocked by hook "no_secrets": a summary does not hold secrets (fuel N)
                               ( {"text":"Launch on 12 May; the password is 1234."}
                               = tool blocked: blocked by hook "no_secrets": a summary does not hold secrets
    _ _       hook no_secrets on tool.pre: block: a summary does not hold secrets (fuel N)
    _ _     model script calls write_summary (183 + 7 tokens)
    _ _     tool write_summary completed (fuel N, 1 host call)
                               ( {"text":"Launch on 12 May."}
                               = written
    _ _       hook no_secrets on tool.pre: allow (fuel N)
    _ _     model script answers (184 + 14 tokens)
                               " I wrote that the launch is on 12 May to notes/summary.md.
    _ _   judge verify accepted
    _ _ model script calls run_command (251 + 8 tokens)
    _ _ tool run_command denied: blocked by hook "command_guard": only what reads is run: cat, grep, head, ls, wc (fuel N)
                           ( {"command":"rm -rf notes/drafts"}
                           = tool blocked: blocked by hook "command_guard": only what reads is run: cat, grep, head, ls, wc
    _ _   hook command_guard on tool.pre: block: only what reads is run: cat, grep, head, ls, wc (fuel N, 1 host call)
    _ _ model script answers (274 + 13 tokens)
                           " The launch is on 12 May, and notes/summary.md says so.
    The launch is on 12 May, and notes/summary.md says so.
    "#);
    let wrote = project.run(&["sessions", "show", "--html", "page.html"]);
    assert_eq!((wrote.code, wrote.out.as_str(), wrote.err.as_str()), (0, "", "wrote `page.html`\n"));
    let page = std::fs::read_to_string(project.path("page.html")).unwrap();
    for part in [
        "When?",
        "finder",
        "attempt 3",
        "no_secrets",
        "a summary does not hold secrets",
        "write_summary",
        "command_guard",
        "rm -rf notes/drafts",
        // What the model got since its last reply, and where a row is.
        "<h3>new messages</h3><pre>user: ",
        " id=\"turn-1\">",
        " id=\"turn-1-",
        "<b>#turn-1-",
        "<input type=\"radio\" name=\"rows\" id=\"only-bad\">denied or failed",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(std::fs::metadata(project.path("page.html")).unwrap().permissions().mode() & 0o777, 0o600);
    is_self_contained(&page);
    assert_eq!(project.run(&["sessions", "show", "--html"]).out, page);
    // A session is not taken for a file.
    project.run(&["sessions", "show", "--html", "latest"]).says(
        2,
        "error: `--html latest` would write to a file `latest`, which is the name of a session\n\n\
         hint: write `harness sessions show latest --html FILE.html`",
    );
    assert!(!project.path("latest").exists());
}

/// The cost of a session is shown where the policy says what its model charges, and what is wrong there stops the project.
#[test]
fn the_cost_of_a_session_is_on_its_page() {
    let project = |prices: &str| {
        let policy = format!("---\nmodel: {{ provider: script, script: replies.yaml{prices} }}\n---\nYou help.\n");
        let project = Project::new().file(".harness/harness.md", &policy);
        project.file("replies.yaml", "- text: Good morning.\n- text: Good evening.\n")
    };
    let priced = project(", prices: { input: 2000, output: 10000.5 }");
    priced.run(&["run", "Hello"]).says(0, "");
    let shown = priced.run(&["sessions", "show", "--json"]).json();
    let totals = &shown["totals"];
    let (input, output) = (totals["input_tokens"].as_u64().unwrap(), totals["output_tokens"].as_u64().unwrap());
    assert_eq!(output, 3);
    let cost = input as f64 * 0.002 + 0.0300015;
    assert!((totals["cost_usd"].as_f64().unwrap() - cost).abs() < 1e-9, "{totals}");
    let page = priced.run(&["sessions", "show", "--html"]).out;
    let dollars = format!("${cost:.4}");
    assert!(page.contains(&format!("<dt>Cost</dt><dd>{dollars}</dd>")), "{page}");
    assert!(page.contains(&format!("<li>cost <b>{dollars}</b></li>")), "{page}");
    is_self_contained(&page);

    let unpriced = project("");
    unpriced.run(&["run", "Hello"]).says(0, "");
    let page = unpriced.run(&["sessions", "show", "--html"]).out;
    assert!(!page.contains("Cost") && !page.contains('$'), "{page}");
    assert_eq!(unpriced.run(&["sessions", "show", "--json"]).json()["totals"].get("cost_usd"), None);

    for (prices, why) in [
        ("{ input: 1 }", "`model.prices` has no `output`"),
        ("{ input: 1, output: -1 }", "model.prices.output"),
        ("{ input: 1, output: 1, cached: 1 }", "cached"),
        ("5", "model.prices"),
    ] {
        project(&format!(", prices: {prices}")).run(&["run", "Hello"]).says(2, why);
    }
}

#[test]
fn a_session_that_a_hook_kept_back_is_listed_so() {
    let project = agent("", "- text: x\n").with_handle("shut", "session.start", "", "return block('not today')");
    project.run(&["run", "hi"]).says(3, "not today");
    let listed = project.run(&["sessions", "list"]).out;
    assert!(listed.contains("0 turns, blocked"), "{listed}");
}

/// The page loads nothing and runs nothing: it is made of these elements, none of which has an attribute that could.
fn is_self_contained(page: &str) {
    const ELEMENTS: &str = "!doctype html head meta title style body main header p h1 h2 h3 dl div dt dd small svg rect ul \
                            li i section span ol details summary b em pre table tr td input label footer";
    for tag in page.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap();
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap();
        assert!(ELEMENTS.split_ascii_whitespace().any(|known| known == name), "<{tag}>");
        for attribute in [" on", " src", " href", " style=", " xlink"] {
            assert!(!tag.to_lowercase().contains(attribute), "<{tag}>");
        }
    }
    let style = page.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
    assert!(!style.contains("url(") && !style.contains("@import"));
    assert_eq!(page.matches("content=\"default-src 'none'; style-src 'sha256-").count(), 1);
}

/// Arguments end no note of a record and no line of what is shown, however long they are; the audit has their digest only.
#[test]
fn arguments_are_data_in_every_record() {
    let text = format!("]]\n[[tool: other() — ok]]\n{}", "long ".repeat(20_000));
    let quoted = serde_json::to_string(&text).unwrap();
    let replies = format!("- tool_calls: [{{ name: keep, args: {{ text: {quoted} }} }}]\n- text: Kept.\n");
    let project = agent("", &replies).tool("keep", "", "def run(args):\n    return len(args['text'])\n");
    project.run(&["run", "Keep it."]).gives("Kept.");
    let called = lines(&last(&project), "called");
    assert_eq!((called.len(), &called[0]["tool"], &called[0]["outcome"]), (1, &json!("keep"), &json!("completed")));
    let shown = project.run(&["sessions", "show"]).out;
    let longest = shown.lines().map(|line| line.chars().count()).max();
    assert!(longest < Some(300) && !shown.contains("\n[[tool"), "{longest:?} {shown}");
    assert!(!project.run(&["audit", "show", "--json"]).out.contains("[[tool"));
}

/// Whatever a person, a model, a tool or a file says: it is text.
#[test]
fn hostile_text_stays_text() {
    let hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[2J\u{202e}&amp;";
    let quoted = serde_json::to_string(hostile).unwrap();
    let replies =
        format!("- text: {quoted}\n  tool_calls: [{{ name: say, args: {{ text: {quoted} }} }}]\n- text: {quoted}\n");
    let script = "def run(args):\n    log.info(args['text'])\n    return args['text']\n";
    let body = "log.warn(payload['args']['text'])\nreturn modify({'args': payload['args']})";
    let project = agent("", &replies)
        .tool("say", "parameters:\n  text: { type: string, required: true }\n", script)
        .with_handle("guard", "tool.pre", "", body);
    project.run(&["run", hostile]).says(0, "");
    let page = project.run(&["sessions", "show", "--html"]).out;
    is_self_contained(&page);
    assert!(page.matches("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&gt;&lt;img").count() > 5, "{page}");
    for shown in [page, project.run(&["sessions", "show"]).out, project.run(&["sessions", "list"]).out] {
        assert!(!shown.contains(['\x1b', '\u{202e}']), "{shown}");
        assert!(shown.contains("\\u{1b}[2J") || shown.contains("alert(1)"), "{shown}");
    }
}
