//! A service's key, which nothing shows: no output, no record, no page, whatever the service does with it.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::agent_services::{ASKED, SAID, project};
use crate::project::Project;
use crate::pty::Person;
use crate::services::{Answer, KEY, Service, WIRES, Wire};

/// As much of a key in a row is a part of it.
const PART: usize = 8;

fn part_of_key(at: usize, length: usize) -> &'static str {
    KEY.get(at..at + length).unwrap()
}

#[track_caller]
fn without_key(text: &str, what: &str) {
    for at in 0..=KEY.len() - PART {
        let part = part_of_key(at, PART);
        assert!(!text.contains(part), "{what} has {part}: {text}");
    }
}

/// All files below a folder.
fn files(folder: &Path, read: &mut impl FnMut(&Path, String)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, read);
        } else {
            let bytes = std::fs::read(&path).unwrap();
            read(&path, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}

/// Everything that a run prints and leaves, and everything that is reported of it later.
#[track_caller]
fn looked_through(project: &Project, what: &str) {
    let commands: [&[&str]; 12] = [
        &["run", ASKED],
        &["run", "--explain", "--json", ASKED],
        &["deploy", "--input", ASKED],
        &["run", "--resume", "latest", "And now?"],
        &["sessions", "list", "--json"],
        &["sessions", "show"],
        &["sessions", "show", "--html", "page.html"],
        &["sessions", "replay"],
        &["audit", "show", "--json"],
        &["context", "--full", ASKED],
        &["policy", "show"],
        &["validate", "--json"],
    ];
    for arguments in commands {
        let mut command = project.command(arguments);
        command.env("HARNESS_TEST_KEY", KEY).env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full");
        let output = command.output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!err.contains("unexpected argument") && !err.contains("unrecognized"), "{arguments:?}: {err}");
        without_key(&out, &format!("{what}: {arguments:?}"));
        without_key(&err, &format!("{what}: {arguments:?}"));
    }
    let mut seen = Vec::new();
    files(project.root(), &mut |path, text| {
        without_key(&text, &format!("{what}: {}", path.display()));
        seen.push(path.strip_prefix(project.root()).unwrap().display().to_string());
    });
    for part in [".harness/sessions/", "page.html"] {
        assert!(seen.iter().any(|path| path.starts_with(part)), "{what}: there is no {part} in {seen:?}");
    }
}

/// What a service may do with the key that it was sent.
fn answers(wire: Wire) -> Vec<(&'static str, Vec<Answer>)> {
    let refusal = |status: &'static str, body: &str| vec![Answer::new(status, "application/json", body)];
    let error = json!({"error": {"type": "authentication_error", "message": format!("the key {KEY} is not known")}});
    let ends = format!("the key {}********{} is not known", part_of_key(0, 10), part_of_key(KEY.len() - 8, 8));
    let mut redirect = Answer::new("307 Temporary Redirect", "text/plain", KEY);
    redirect.headers.push_str(&format!("location: http://127.0.0.1:9/{KEY}?key={KEY}#{}\r\n", part_of_key(4, 12)));
    let mut header = Answer::new("500 Oops", "text/plain", "no");
    header.headers.push_str(&format!("x-key: {KEY}\r\nretry-after: {KEY}\r\n"));
    let call = [("read_file", json!({"path": "config.yaml", "note": KEY}))];
    let said = format!("Your key is {KEY}, {KEY}.");
    let named = json!({"path": KEY});
    let stream = |text: &str| wire.reply(true, text, &[]);
    let mut cut = stream(&said);
    let length = cut.pieces.concat().len();
    cut = cut.cut(length * 4 / 5);
    vec![
        ("refuses in JSON", refusal("401 Unauthorized", &error.to_string())),
        ("refuses in text", refusal("403 Forbidden", &format!("wrong: {KEY}{KEY}\n{KEY}"))),
        ("refuses with a part", refusal("400 Bad Request", &format!("wrong: {}", part_of_key(3, 11)))),
        ("refuses with the ends", refusal("401 Unauthorized", &ends)),
        ("redirects", vec![redirect]),
        ("has it in a header", vec![header]),
        ("is no service", refusal("200 OK", &format!("<html>{KEY}</html>"))),
        ("is no JSON", refusal("200 OK", KEY)),
        ("fails in the stream", vec![Answer::new("200 OK", "text/event-stream", &format!("data: {error}\n\n"))]),
        ("says it", vec![stream(&said).split()]),
        ("says it in one piece", vec![wire.reply(false, &said, &[])]),
        ("says it and is cut", vec![cut]),
        ("calls with it", vec![wire.reply(true, &said, &call), stream(SAID)]),
        ("calls for a file of that name", vec![wire.reply(true, "", &[("read_file", named.clone())]), stream(SAID)]),
        ("calls a tool of that name", vec![wire.reply(true, "", &[(KEY, named)]), stream(SAID)]),
    ]
}

/// Chat completions in each way that a service may say the key back.
#[test]
fn whatever_a_service_does_with_it() {
    for (what, answers) in answers(Wire::Chat) {
        let service = Service::new(answers);
        let project = project("openai", &service, "");
        looked_through(&project, what);
        assert_eq!(project.path(".harness/audit").exists(), what.starts_with("calls "), "{what}");
        assert!(service.chats()[0].head.contains(KEY), "{what}: the service gets it");
    }
}

/// The other formats in the ways that are the formats' own.
#[test]
fn in_the_other_formats() {
    for (wire, name) in [WIRES[1], WIRES[2]] {
        for (what, answers) in answers(wire) {
            if !["refuses in JSON", "says it", "calls with it"].contains(&what) {
                continue;
            }
            let service = Service::new(answers);
            looked_through(&project(name, &service, ""), &format!("{name} {what}"));
            assert!(service.chats()[0].head.contains(KEY), "{name} {what}: the service gets it");
        }
    }
}

/// At a terminal text is shown as it comes, and the key in it is not, in whatever pieces it comes.
#[test]
fn at_a_terminal() {
    for (wire, name) in WIRES {
        // The text comes in two halves, with the key across them.
        let said = format!("{KEY} a {KEY} b {KEY} c");
        let service = Service::new(vec![wire.reply(true, &said, &[]).split()]);
        let project = project(name, &service, "");
        let mut person = Person::with(&project, &["run", ASKED], &[("HARNESS_TEST_KEY", KEY)]);
        person.sees("[key] a [key] b [key] c");
        assert_eq!(person.leaves(), 0, "{name}: {}", person.seen);
        without_key(&person.seen, name);
        // Nor is it in base64, cut in two as well.
        let encoded = STANDARD.encode(format!("token {KEY}"));
        let service = Service::new(vec![wire.reply(true, &format!("{encoded} a {encoded} b {encoded}"), &[]).split()]);
        let project = crate::agent_services::project(name, &service, "");
        let mut person = Person::with(&project, &["run", ASKED], &[("HARNESS_TEST_KEY", KEY)]);
        person.sees("dG9rZW4g[redacted:HARNESS_TEST_KEY] a dG9rZW4g[redacted:HARNESS_TEST_KEY] b dG9rZW4g[redacted:HARNESS_TEST_KEY]");
        assert_eq!(person.leaves(), 0, "{name}: {}", person.seen);
        assert!(!person.seen.contains(encoded.get(10..).unwrap()), "{}", person.seen);
    }
}

/// Scripts and commands do not get it, whatever the policy opens, and what holds it is written nowhere.
#[test]
fn scripts_do_not_see_it() {
    let opens = "sandbox: { env: [HARNESS_TEST_KEY, OTHER], exec: { allow: [env], env: [HARNESS_TEST_KEY, OTHER], unconfined: true } }";
    let model = "model: { name: m, provider: openai, api_key_env: HARNESS_TEST_KEY }";
    let project = Project::new()
        .file(".harness/harness.md", &format!("---\n{model}\n{opens}\n---\n"))
        .tool("get", "parameters: { name: { type: string } }\n", "def run(args):\n    return env(args['name'])\n")
        .tool("child", "", "def run(args):\n    return exec.run('env')['stdout']\n")
        .tool(
            "tells",
            "",
            "def run(args):\n    text = fs.read('holds')\n    log.info(text)\n    fs.write('copy', text)\n    fail(text)\n",
        )
        .file("holds", &format!("It is {KEY}."));
    let call = |arguments: &[&str]| {
        let mut command = project.command(&[&["call"], arguments].concat());
        let output = command.env("HARNESS_TEST_KEY", KEY).env("OTHER", "other").output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, out, err) = call(&["get", "name=HARNESS_TEST_KEY"]);
    assert_eq!((code, out.as_str()), (Some(3), ""), "{err}");
    assert!(err.contains("the variable `HARNESS_TEST_KEY` holds the key of a model, which no script sees"), "{err}");
    assert_eq!(call(&["get", "name=OTHER"]).1, "other\n");
    let (code, out, err) = call(&["child"]);
    assert!(code == Some(0) && out.contains("OTHER=other") && !out.contains("HARNESS_TEST_KEY"), "{out}{err}");
    let (code, out, err) = call(&["tells", "--explain"]);
    assert!(code == Some(1) && err.contains("It is [redacted:HARNESS_TEST_KEY]."), "{out}{err}");
    without_key(&format!("{out}{err}"), "the call");
    std::fs::remove_file(project.path("holds")).unwrap();
    files(&project.path("."), &mut |path, text| without_key(&text, &path.display().to_string()));
}

/// One that no header can hold, and one that is not there: the message has its variable and nothing of it.
#[test]
fn one_that_cannot_be_used() {
    let service = Service::new(vec![Wire::Chat.reply(true, SAID, &[])]);
    let project = project("openai", &service, "");
    for key in [format!("{KEY}\n{KEY}"), format!("{KEY} {KEY}"), format!("{KEY}é"), " \n".to_owned()] {
        let output = project.command(&["run", ASKED]).env("HARNESS_TEST_KEY", &key).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{err}");
        assert!(err.contains("the variable `HARNESS_TEST_KEY`"), "{err}");
        without_key(&err, "an unusable key");
    }
    let output = project.command(&["run", ASKED]).env_remove("HARNESS_TEST_KEY").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("`HARNESS_TEST_KEY` is not set"));
    assert!(service.chats().is_empty());
}
