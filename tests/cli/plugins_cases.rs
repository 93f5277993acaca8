//! The cases of a plugin: run for its author, and before a person consents to what it asks for.

use serde_json::json;

use crate::project::{FINE, Project, Ran};

const PLUGIN: &str = "---\nname: acme\nversion: 1.0.0\ndescription: Reads and sends.\nasks:\n  - reason: Reads pages.\n    fs: { read: [docs, notes] }\n  - reason: Sends queries.\n    network: [api.acme.example]\n    secrets: [ACME_KEY]\n  - reason: Runs git.\n    exec: { allow: [\"git status\"] }\n  - reason: Watches calls.\n    events: [tool.pre]\n---\n";
const READS: &str = "---\nscript: |\n  def run(args):\n      return fs.read('docs/a.md')\ntests:\n  - name: reads a page\n    given: { files: { docs/a.md: one } }\n    expect: { result: one }\n  - name: reads another\n    given: { files: { docs/a.md: two } }\n    expect: { result: three }\n---\nReads a page.\n";
const SENDS: &str = "---\nparameters:\n  q: { type: string, description: What is searched. }\nscript: |\n  def run(args):\n      key = secret('ACME_KEY')\n      return http.get('https://api.acme.example/x', headers={'authorization': key})['body']\ntests:\n  - name: sends a query\n    args: { q: x }\n    given: { http: [{ url: https://api.acme.example/x, body: found }] }\n    expect: { result: found }\n---\nSends a query.\n";
const GUARDS: &str = "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      return block('no') if payload['args'].get('bad') else allow()\ntests:\n  - name: blocks\n    payload: { args: { bad: true } }\n    expect: { decision: block }\n  - name: lets pass\n    payload: { args: {} }\n    expect: { decision: allow }\n---\n";

fn place() -> Project {
    Project::new()
        .tool("it", "", FINE)
        .policy("network: { allowed_domains: [api.acme.example] }\nsandbox:\n  secrets: { ACME_KEY: { env: ACME_KEY, hosts: [api.acme.example] } }\n  exec: { allow: [git] }\n")
        .file("acme/plugin.md", PLUGIN)
        .file("acme/tools/reads.md", READS)
        .file("acme/tools/sends.md", SENDS)
        .file("acme/hooks/guards.md", GUARDS)
        .file("cache/x", "")
}

fn run(project: &Project, arguments: &[&str]) -> Ran {
    let cache = tempfile::tempdir().unwrap();
    let mut command = project.command(arguments);
    command.env("XDG_CACHE_HOME", cache.path()).stdin(std::process::Stdio::null());
    project.ran(&command.output().unwrap())
}

/// A report without the time that it took.
fn timeless(text: &str) -> String {
    text.rsplit_once(", ").map_or(text, |(rest, _)| rest).to_owned()
}

#[test]
fn an_author_runs_the_cases_of_a_folder() {
    let project = place();
    let ran = run(&project, &["plugin", "test", "acme"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{ran}");
    assert_eq!(
        timeless(&ran.out),
        "ok   tool reads: reads a page\n\
         FAIL tool reads: reads another\n     at acme/tools/reads.md:9:11\n     `result` is not as expected on line 11:\n     - three\n     + two\n\
         ok   tool sends: sends a query\n\
         ok   hook guards: blocks\n\
         ok   hook guards: lets pass\n     \
         tool reads: 2 of 2 lines reached\n     \
         tool sends: 3 of 3 lines reached\n     \
         hook guards: 2 of 2 lines reached\n\
         5 cases, 4 passed, 1 failed"
    );
    let report = run(&project, &["plugin", "test", "acme", "guards", "--json"]).json();
    assert_eq!((&report["passed"], &report["cases"][0]["file"]), (&json!(true), &json!("acme/hooks/guards.md")));
    assert_eq!(report["cases"].as_array().unwrap().len(), 2);
    // Where no project is.
    let outside = Project::new().file("new/x", "");
    std::fs::remove_dir_all(outside.path(".harness")).ok();
    let ran = run(&outside, &["plugin", "new", "fresh"]);
    assert_eq!(ran.code, 0, "{ran}");
    let ran = run(&outside, &["plugin", "test", "fresh"]);
    assert!(ran.code == 0 && ran.out.contains("\n1 case, 1 passed, 0 failed, "), "{ran}");
    run(&project, &["plugin", "test", "other"]).says(2, "`harness.lock` has no plugin `other`");
    run(&project, &["plugin", "test", "./other"]).says(2, "cannot fetch `./other`: ");
}

#[test]
fn nothing_is_granted_to_a_case_that_the_plugin_does_not_ask_for() {
    let project = place();
    project.write("acme/plugin.md", &PLUGIN.replace("docs, notes", "notes"));
    let ran = run(&project, &["plugin", "test", "acme", "reads"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert_eq!(ran.out.matches("     it failed: fs.read: reading `docs/a.md` is not granted").count(), 2, "{ran}");
}

#[test]
fn a_person_reads_what_the_cases_use_before_they_consent() {
    let project = place();
    let shown = run(&project, &["plugin", "show", "./acme"]);
    assert_eq!(shown.code, 0, "{shown}");
    let asks = shown.out.split_once("asks for:\n").unwrap().1;
    assert_eq!(
        asks,
        "  1. read files that match `docs`\n     reason: Reads pages.\n     here: 0 files\n     used by 2 of its 5 cases\n  \
         2. read files that match `notes`\n     reason: Reads pages.\n     here: 0 files\n     no case uses this\n  \
         3. send requests to `api.acme.example`\n     reason: Sends queries.\n     used by 1 of its 5 cases\n  \
         4. use the secret `ACME_KEY`\n     reason: Sends queries.\n     used by 1 of its 5 cases\n  \
         5. run commands that match `git status`\n     reason: Runs git.\n     no case uses this\n  \
         6. receive the event `tool.pre` of the whole project\n     reason: Watches calls.\n     used by 2 of its 5 cases\n  \
         5 cases, 1 failed:\n    failed: tool reads: reads another\n"
    );
    let json = run(&project, &["plugin", "show", "./acme", "--json"]).json();
    assert_eq!(json["cases"], json!({"count": 5, "failed": ["tool reads: reads another"], "unrun": null}));
    let used: Vec<_> = json["asks"].as_array().unwrap().iter().map(|rule| rule["used_by"].clone()).collect();
    assert_eq!(json!(used), json!([2, 0, 1, 1, 0, 2]));
    assert_eq!(
        json["tools"][1],
        json!({"name": "sends", "description": "Sends a query.", "confirm": false, "parameters": [{"name": "q", "type": "string", "required": false, "description": "What is searched."}]})
    );
    let added = run(&project, &["plugin", "add", "./acme", "--grant", "none"]);
    added.says(2, "the hook \"guards\" of `plugins/acme` is for `tool.pre`");
    assert!(added.out.contains("     used by 2 of its 5 cases\n"), "{added}");
    assert!(!project.path("harness.lock").exists());
}

#[test]
fn what_cannot_be_run_alone_is_said() {
    let project = place();
    project.write("acme/plugin.md", &PLUGIN.replace("asks:", "requires: { plugins: { units: ^1 } }\nasks:"));
    let shown = run(&project, &["plugin", "show", "./acme"]);
    assert!(
        shown.out.contains("its cases cannot be run: `plugins/acme` needs the plugin `units` ^1, which is not there\n"),
        "{shown}"
    );
    let project = place();
    for file in ["tools/reads.md", "tools/sends.md", "hooks/guards.md"] {
        let path = project.path(&format!("acme/{file}"));
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once("tests:\n").unwrap();
        std::fs::write(&path, format!("{before}---\n{}", rest.split_once("---\n").unwrap().1)).unwrap();
    }
    let shown = run(&project, &["plugin", "show", "./acme"]);
    assert!(shown.out.ends_with("  it has no cases: nothing shows what it uses\n"), "{shown}");
    assert!(!shown.out.contains("no case uses this"), "{shown}");
}
