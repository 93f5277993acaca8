//! How a call is given its arguments, its project and its workspace.

use insta::assert_snapshot;

use crate::project::{HARNESS, Project};

const ALL_TYPES: &str = "\
parameters:
  s: { type: string, required: true }
  n: { type: number }
  b: { type: boolean }
  o: { type: object }
  a: { type: array }
";

fn typed() -> Project {
    Project::new().tool("it", ALL_TYPES, "def run(args):\n    return {k: [type(v), v] for k, v in args.items()}\n")
}

#[test]
fn pairs_are_read_by_the_declared_type() {
    let project = typed();
    let ran = project.run(&["call", "it", "s=12", "n=-0.5", "b=true", "o={\"k\": 1}", "a=[1]", "other=12"]);
    let out = r#"{"s":["string","12"],"n":["float",-0.5],"b":["bool",true],"o":["dict",{"k":1}],"a":["list",[1]],"other":["string","12"]}"#;
    let err = "warning: `it` does not declare the argument `other`\n";
    assert_eq!((ran.code, ran.out.trim_end(), ran.err.as_str()), (0, out, err));
    project.run(&["call", "it", "s=a=b", "n=3"]).gives(r#"{"s":["string","a=b"],"n":["int",3]}"#);
    assert_snapshot!(project.run(&["call", "it", "n=ten", "b=yes", "o=[]", "a", "n=1"]), @r#"
    exit 2
    --- stdout
    --- stderr
    error: the arguments of `it` do not fit its parameters
      the argument `n` must be a number such as `15` or `-0.5`, found `ten`
      the argument `b` must be `true` or `false`, found `yes`
      the argument `o` must be a JSON object such as `{"a": 1}`, found `[]`
      an argument must be written `key=value`, found `a`
      the argument `n` is given twice

    hint: harness call it s=STRING [n=NUMBER] [b=BOOLEAN] [o=OBJECT] [a=ARRAY]
    "#);
}

#[test]
fn arguments_as_json() {
    let project = typed().file("arguments.json", "{\"s\": \"from a file\"}");
    let given = |text: &str| format!(r#"{{"s":["string","{text}"]}}"#);
    project.run(&["call", "it", "--args", r#"{"s": "here"}"#]).gives(&given("here"));
    project.run(&["call", "it", "--args", "@arguments.json"]).gives(&given("from a file"));
    project.run_with_input(&["call", "it", "--args", "-"], r#"{"s": "piped"}"#).gives(&given("piped"));
    assert_snapshot!(project.run(&["call", "it", "--args", "@nothing.json"]), @"
    exit 2
    --- stdout
    --- stderr
    error: cannot read `nothing.json`: No such file or directory (os error 2)

    hint: give the arguments as a JSON object, or as `key=value`
    ");
    assert_snapshot!(project.run(&["call", "it", "--args", "{}", "s=a"]), @"
    exit 2
    --- stdout
    --- stderr
    error: the argument '--args <JSON>' cannot be used with '[KEY=VALUE]...'

    Usage: harness call --args <JSON> <TOOL> [KEY=VALUE]...

    For more information, try '--help'.
    ");
}

#[test]
fn the_workspace_is_where_the_project_is_or_where_it_is_told() {
    let project = Project::with_script("def run(args):\n    return fs.read('a.txt')\n")
        .file("a.txt", "of the project")
        .file("elsewhere/a.txt", "of another folder");
    project.run(&["call", "it"]).gives("of the project");
    project.run(&["call", "it", "--workspace", "elsewhere"]).gives("of another folder");
    assert_snapshot!(project.run(&["call", "it", "--workspace", "nowhere"]), @"
    exit 2
    --- stdout
    --- stderr
    error: cannot open the workspace `nowhere`: No such file or directory (os error 2)

    hint: name a folder with `--workspace`
    ");
}

#[test]
fn the_project_is_found_from_a_folder_below() {
    let project = Project::with_script("def run(args):\n    return fs.list('.')\n").file("a/b/c.txt", "");
    let below = |arguments: &[&str]| project.command(arguments).current_dir(project.path("a/b")).output().unwrap();
    let found = below(&["call", "it"]);
    assert_eq!(
        (found.status.code(), String::from_utf8(found.stdout).unwrap()),
        (Some(0), "[\".harness\",\"a\"]\n".to_owned())
    );
    // A folder that is named is taken as it is.
    assert_eq!(below(&["-C", ".", "call", "it"]).status.code(), Some(2));
    assert_eq!(below(&["-C", "../..", "call", "it"]).status.code(), Some(0));
    let nowhere = tempfile::tempdir().unwrap();
    let ran = std::process::Command::new(HARNESS).args(["call", "it"]).current_dir(nowhere.path()).output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert_snapshot!(String::from_utf8(ran.stderr).unwrap(), @"
    error: there is not a folder `.harness` here
     |
     = hint: make one with `harness init`
    ");
}
