//! What a program learns of what was not done, and a person of folders that are not there.

use insta::assert_snapshot;
use serde_json::{Value as Json, json};

use crate::project::{FINE, Project, Ran};

const NUMBER: &str = "parameters:\n  n: { type: number, required: true }\n";

fn project() -> Project {
    Project::new().policy("tools_policy: { deny: [shut] }\n").tool("shut", "", FINE).tool(
        "it",
        NUMBER,
        "def run(args):\n    return args\n",
    )
}

/// The object of a call that was not made, without its error, and the error.
fn apart(ran: &Ran) -> (Json, Json) {
    let mut object = ran.json();
    let error = object["error"].take();
    (object, error)
}

#[test]
fn a_call_that_is_not_made_has_an_object() {
    let fine = project();
    let empty = tempfile::tempdir().unwrap();
    let empty = empty.path().to_str().unwrap();
    let broken = Project::new().policy("network: 7\nsandbox: 8\n");
    let usage = "harness call it n=NUMBER";
    let form = "give the arguments as a JSON object, or as `key=value`";
    let unfit = |what: &str| format!("the arguments of `it` do not fit its parameters: {what}");
    let bare = |message: &str, hint: &str| (message.to_owned(), hint.to_owned());
    let cases: [(&Project, &[&str], (String, String)); 8] = [
        (&fine, &["call", "--json", "ti"], bare("there is no tool `ti`", "`harness tools` lists the tools")),
        (&fine, &["call", "--json", "it"], bare(&unfit("the argument `n` (number) is missing"), usage)),
        (
            &fine,
            &["call", "--json", "it", "--args", r#"{"n": "x"}"#],
            bare(&unfit("the argument `n` must be of type number, found string"), usage),
        ),
        (
            &fine,
            &["call", "--json", "it", "n=x", "n=1"],
            bare(
                &unfit(
                    "the argument `n` must be a number such as `15` or `-0.5`, found `x`; the argument `n` is given twice",
                ),
                usage,
            ),
        ),
        (
            &fine,
            &["call", "--json", "it", "--args", "{"],
            bare("the arguments are not JSON: EOF while parsing an object at line 1 column 1", form),
        ),
        (
            &fine,
            &["call", "--json", "it", "n=1", "--within", "fs: 7"],
            bare("--within:1:5: parse --within: yaml: line 1: `fs` must be a mapping, found an integer", ""),
        ),
        (
            &fine,
            &["call", "--json", "it", "-C", empty],
            bare("there is not a folder `.harness` here", "make one with `harness init`"),
        ),
        (
            &fine,
            &["call", "--json", "it", "-C", "none"],
            bare("`none` does not exist", "`-C` names the folder that holds `.harness`"),
        ),
    ];
    for (project, arguments, (message, hint)) in cases {
        let ran = project.run(arguments);
        let (object, error) = apart(&ran);
        let usage = object["usage"].as_object().unwrap();
        assert!(ran.code == 2 && usage["fuel"] == 0 && ran.err.starts_with("error: "), "{arguments:?}: {ran}");
        let wanted = json!({
            "outcome": "rejected", "result": null, "content": null, "truncated": false, "is_error": true, "usage": usage,
            "log": [], "error": null,
        });
        assert_eq!(object, wanted, "{ran}");
        assert_eq!((&error["message"], &error["hint"]), (&json!(message), &json!(hint)), "{arguments:?}: {ran}");
        let keys: Vec<&String> = error.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["kind", "message", "file", "line", "column", "stack", "hint"]);
        assert_eq!((&error["kind"], &error["stack"]), (&json!("usage"), &json!([])));
    }
    // The place is that of the first.
    let ran = broken.run(&["call", "--json", "it"]);
    assert_eq!(
        apart(&ran).1,
        json!({
            "kind": "usage",
            "message": ".harness/harness.md:2:10: parse harness.md: yaml: line 2: `network` must be a mapping, found an integer\n\
                        .harness/harness.md:3:10: parse harness.md: yaml: line 3: `sandbox` must be a mapping, found an integer",
            "file": ".harness/harness.md", "line": 2, "column": 10, "stack": [], "hint": "",
        }),
        "{ran}"
    );
    // What the policy denies is no mistake of anyone who asks.
    let ran = fine.run(&["call", "--json", "shut"]);
    let (object, error) = apart(&ran);
    assert_eq!((ran.code, &object["outcome"], &error["kind"]), (3, &json!("denied"), &json!("denied")), "{ran}");
    assert_eq!(error["message"], "the tool `shut` is denied by `shut`");
    // A person gets no object.
    assert_eq!(fine.run(&["call", "it"]).out, "");
}

#[test]
fn an_event_that_is_not_dispatched_has_an_object() {
    let fine = project();
    let form = "give the payload as JSON, `@FILE` or `-`";
    for (arguments, message, hint) in [
        (&["--payload", "{"][..], "the payload is not JSON: EOF while parsing an object at line 1 column 1", form),
        (&["--payload", r#"{"a": {"b": 1, "b": 2}}"#], "the key `b` is given twice at line 1 column 18", form),
        (&["-C", "none"], "`none` does not exist", "`-C` names the folder that holds `.harness`"),
    ] {
        let ran = fine.run(&[&["fire", "custom.it", "--json"], arguments].concat());
        let wanted = json!({
            "event": "custom.it", "decision": null, "hook": null, "reason": null, "payload": null, "hooks": [],
            "outcome": "rejected",
            "error": {
                "kind": "usage", "message": message, "file": null, "line": null, "column": null, "stack": [], "hint": hint,
            },
        });
        assert_eq!((ran.code, ran.json()), (2, wanted), "{ran}");
        let ran = fine.run(&[&["fire", "custom.it"], arguments].concat());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran}");
    }
    let ran = fine.run(&["fire", "tool.prae", "--json"]);
    assert_eq!((ran.code, &ran.json()["error"]["message"]), (2, &json!("there is no event `tool.prae`")), "{ran}");
    // Where it is, the object is the same with and without.
    let fire = |more: &[&str]| fine.run(&[&["fire", "custom.it"], more].concat());
    assert_eq!(fire(&["--json"]), fire(&[]));
}

#[test]
fn a_key_is_given_once_and_numbers_are_numbers() {
    let project = project();
    for (given, why) in [
        (r#"{"n": 1, "n": 2}"#, "the key `n` is given twice at line 1 column 12"),
        (r#"{"n": 1, "m": [{"a": 1, "a": 1}]}"#, "the key `a` is given twice at line 1 column 27"),
        (r#"{"n": 1e309}"#, "the number `1e+309` is out of range: it has to be below 1.8e308"),
        (r#"{"n": 1, "m": [-1.5e400]}"#, "the number `-1.5e+400` is out of range: it has to be below 1.8e308"),
    ] {
        let ran = project.run(&["call", "it", "--args", given]);
        let wanted = format!("error: {why}\n\nhint: give the arguments as a JSON object, or as `key=value`\n");
        assert_eq!((ran.code, ran.out.as_str(), ran.err), (2, "", wanted));
        project.run(&["audit", "digest", given]).says(2, why);
        project.run(&["policy", "learn", "--", "call", "it", "--args", given]).says(2, why);
    }
    project.run(&["call", "it", "n=1e309"]).says(2, "error: the number `1e+309` is out of range");
    // Keys of other objects may be the same, and whole numbers of any size.
    let large = format!("1{}", "0".repeat(320));
    let given = format!("{{\"n\":{large}}}");
    project.run(&["call", "it", "--args", &given]).gives(&given);
    let given = r#"{"n":1,"a":{"n":2},"b":[{"n":3},{"n":4}]}"#;
    let ran = project.run(&["call", "it", "--args", given]);
    let undeclared =
        "warning: `it` does not declare the argument `a`\nwarning: `it` does not declare the argument `b`\n";
    assert_eq!((ran.code, ran.out, ran.err.as_str()), (0, format!("{given}\n"), undeclared));
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let project = project().file("file", "");
    let hint = "hint: `-C` names the folder that holds `.harness`";
    for command in [
        &["tools"][..],
        &["validate"],
        &["run", "Go"],
        &["sessions", "list"],
        &["sessions", "resume", "latest"],
        &["audit", "verify"],
        &["doctor"],
        &["schema", "tool"],
        &["test"],
        &["lock"],
        &["policy", "show", "it"],
        &["completions", "bash"],
    ] {
        for (folder, why) in [("none", "does not exist"), ("file", "is not a folder")] {
            let ran = project.run(&[&["-C", folder], command].concat());
            let wanted = Ran { code: 2, out: String::new(), err: format!("error: `{folder}` {why}\n\n{hint}\n") };
            assert_eq!(ran, wanted, "{command:?}");
        }
    }
    assert!(!project.path("none").exists());
}

#[test]
fn a_project_is_made_in_the_folder_that_is_named() {
    let project = Project::new().file("file", "");
    std::fs::remove_dir(project.path(".harness")).unwrap();
    for (arguments, folder) in [
        (&["-C", "one", "init"][..], "one"),
        (&["init", "-C", "two/deep"], "two/deep"),
        (&["-C", "one", "init", "three"], "three"),
    ] {
        let ran = project.run(arguments);
        assert!(ran.code == 0 && ran.err.contains(&format!("harness -C {folder} validate\n")), "{ran}");
        project.run(&["-C", folder, "call", "word_count", "path=.harness/harness.md"]).says(0, "");
    }
    assert!(!project.path(".harness").exists());
    project.run(&["-C", "one", "init"]).says(2, "error: `one/.harness` is there already");
    project.run(&["init", "file/sub"]).says(5, "error: cannot write `file/sub/.harness/harness.md`: Not a directory");
}

#[test]
fn what_is_to_be_compared_and_is_not_there_is_named() {
    let project = project();
    for (old, new) in [("nofile", "."), (".", "nofile"), (".", "nofile.md"), ("nofolder/", "nofile")] {
        let ran = project.run(&["policy", "diff", old, new]);
        let first = if old == "." { new } else { old };
        let wanted = format!(
            "error: there is no `{first}`\n\nhint: each is a project folder, a `harness.md`, or a host policy\n"
        );
        assert_eq!((ran.code, ran.out.as_str(), ran.err), (2, "", wanted));
    }
}

#[test]
fn a_record_that_is_not_there_is_not_whole() {
    let project = Project::with_script(FINE);
    let ran = project.run(&["audit", "verify"]);
    assert_snapshot!(ran.to_string(), @"
    exit 2
    --- stdout
    --- stderr
    error: there is no audit log here

    hint: calls and decided events are logged, unless `sandbox.audit` is false
    ");
    assert_eq!(project.run(&["audit", "show"]), ran);
    assert_eq!(project.run(&["audit", "show", "--json"]), ran);
    let as_json = project.run(&["audit", "verify", "--json"]);
    let wanted = json!({"whole": false, "file": null, "line": null, "why": "there is no audit log here"});
    assert_eq!((as_json.code, as_json.json(), &as_json.err), (2, wanted, &ran.err));
    project.run(&["audit", "digest", "{}"]).says(2, "hint: the first logged call creates it");
    // A broken project has its record all the same.
    project.run(&["call", "it"]).gives("fine");
    let project = project.policy("network: 7\n");
    let ran = project.run(&["audit", "verify"]);
    assert!(ran.code == 0 && ran.out.starts_with("audit log intact: 1 entry, ") && ran.err.is_empty(), "{ran}");

    std::fs::remove_dir_all(project.path(".harness")).unwrap();
    let other = project.run(&["tools"]);
    other.says(2, "error: there is not a folder `.harness` here");
    for arguments in [&["verify"][..], &["show"], &["show", "--json"], &["digest", "{}"]] {
        assert_eq!(project.run(&[&["audit"], arguments].concat()), other);
    }
    let as_json = project.run(&["audit", "verify", "--json"]);
    let wanted = json!({"whole": false, "file": null, "line": null, "why": "there is not a folder `.harness` here"});
    assert_eq!((as_json.code, as_json.json(), as_json.err), (2, wanted, other.err));
}
