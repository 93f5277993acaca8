//! Parameters and results as JSON Schema: what is checked, by whom, and what it says.

use insta::assert_snapshot;
use serde_json::json;

use crate::project::Project;

const SEARCH: &str = "\
parameters:
  mode: { type: string, enum: [fast, full], default: fast }
  limit: { type: integer, minimum: 1, maximum: 100 }
  tags: { type: array, items: { type: string, minLength: 1 }, uniqueItems: true }
  range:
    type: object
    properties:
      from: { type: string, format: date }
      to: { type: string, format: date }
    required: [from]
    additionalProperties: false
  who: { anyOf: [{ type: string, pattern: '^[a-z]+$' }, { type: integer }] }
  list: { type: array }
";

const ECHO: &str = "def run(args):\n    return args\n";

fn search() -> Project {
    Project::new().tool("it", SEARCH, ECHO)
}

#[test]
fn keywords_are_checked_for_every_caller() {
    let project = search();
    for (args, told) in [
        (r#"{"mode": "slow"}"#, "the argument `mode` must be one of \"fast\", \"full\", found another string"),
        (r#"{"mode": 1}"#, "the argument `mode` must be of type string, found number"),
        (r#"{"limit": 0}"#, "the argument `limit` must be at least 1"),
        (r#"{"limit": 1.5}"#, "the argument `limit` must be of type integer, found a fraction"),
        (r#"{"limit": "5"}"#, "the argument `limit` must be of type integer, found string"),
        (r#"{"limit": 123456789012345678901234567890}"#, "the argument `limit` must be at most 100"),
        (r#"{"tags": ["a", ""]}"#, "the argument `tags[1]` must have at least 1 character"),
        (r#"{"tags": ["a", "a"]}"#, "the argument `tags` must not have an item twice"),
        (r#"{"range": {"to": "2026-01-01"}}"#, "the argument `range` must have the key \"from\""),
        (r#"{"range": {"from": "soon"}}"#, "the argument `range.from` must have the format `date`"),
        (
            r#"{"range": {"from": "2026-01-01", "x": 1}}"#,
            "the argument `range` must not have undeclared keys, found `x`",
        ),
        (r#"{"who": "ME"}"#, "the argument `who` must fit a schema of `anyOf`, found string"),
    ] {
        let ran = project.run(&["call", "it", "--args", args]);
        ran.says(2, told);
        // A tool that calls it gets a text that says the same.
        let by = format!("def run(args):\n    return meta.call_tool('it', json.decode({args:?}))\n");
        let project = search().policy("meta: { enabled: true }\n").tool("by", "", &by);
        let ran = project.run(&["call", "by"]);
        let text = format!("error: the arguments of `it` do not fit its parameters: {told}");
        assert!(ran.code == 0 && ran.out.starts_with(&text) && ran.err.is_empty(), "{told}: {ran}");
    }
    let good = r#"{"mode":"full","limit":7,"tags":["a"],"range":{"from":"2026-01-01"},"who":5,"list":[1]}"#;
    project.run(&["call", "it", "--args", good]).gives(good);
}

#[test]
fn pairs_are_read_by_the_schema() {
    let project = search();
    project
        .run(&["call", "it", "limit=7", "tags=[\"a\"]", "who=me"])
        .gives(r#"{"limit":7,"tags":["a"],"who":"me","mode":"fast"}"#);
    project.run(&["call", "it", "who=5"]).gives(r#"{"who":5,"mode":"fast"}"#);
    project
        .run(&["call", "it", "limit=x"])
        .says(2, "the argument `limit` must be a whole number such as `15`, found `x`");
    project.run(&["call", "it", "limit=1.5"]).says(2, "the argument `limit` must be of type integer, found a fraction");
}

#[test]
fn a_model_sees_what_is_written_and_items_of_every_array() {
    assert_snapshot!(search().run(&["tools", "--json"]).json()[0]["parameters"].to_string(), @r#"{"type":"object","properties":{"mode":{"type":"string","default":"fast","enum":["fast","full"]},"limit":{"type":"integer","minimum":1,"maximum":100},"tags":{"type":"array","items":{"type":"string","minLength":1},"uniqueItems":true},"range":{"type":"object","properties":{"from":{"type":"string","format":"date"},"to":{"type":"string","format":"date"}},"additionalProperties":false,"required":["from"]},"who":{"anyOf":[{"type":"string","pattern":"^[a-z]+$"},{"type":"integer"}]},"list":{"type":"array","items":{}}},"required":[]}"#);
}

/// What a model is shown beside what is written is not checked.
#[test]
fn what_is_written_is_what_is_checked() {
    let list = "{ type: array, prefixItems: [{ type: string }], unevaluatedItems: false }";
    let script = "def run(args):\n    return args['list']\n";
    let project = Project::new().tool("it", &format!("parameters:\n  list: {list}\n"), script);
    project.run(&["call", "it", "list=[\"a\"]"]).gives(r#"["a"]"#);
    let ran = project.run(&["call", "it", "list=[\"a\", \"b\"]"]);
    ran.says(2, "the argument `list` must not have more items than are declared");
    assert_eq!(project.run(&["tools", "--json"]).json()[0]["parameters"]["properties"]["list"]["items"], json!({}));
    let project =
        Project::new().tool("it", &format!("parameters: {{ list: {{ type: array }} }}\nreturns: {list}\n"), script);
    project.run(&["call", "it", "list=[\"a\"]"]).gives(r#"["a"]"#);
    let ran = project.run(&["call", "it", "list=[\"a\", \"b\"]"]);
    ran.says(1, "the result does not fit `returns`: the value must not have more items than are declared");
    let returns = project.run(&["tools", "--json"]).json()[0]["returns"].clone();
    assert_eq!(returns, json!({"type": "array", "prefixItems": [{"type": "string"}], "unevaluatedItems": false}));
}

#[test]
fn one_schema_of_an_object_is_the_same() {
    let front = "\
parameters:
  type: object
  properties:
    n: { $ref: '#/$defs/count' }
    s: { type: string }
  required: [n]
  additionalProperties: false
  $defs: { count: { type: integer, minimum: 1 } }
";
    let project = Project::new().tool("it", front, ECHO);
    project.run(&["call", "it", "n=2", "s=x"]).gives(r#"{"n":2,"s":"x"}"#);
    project.run(&["call", "it", "n=0"]).says(2, "the argument `n` must be at least 1");
    project.run(&["call", "it", "s=x"]).says(2, "the argument `n` is missing");
    project.run(&["call", "it", "n=1", "x=1"]).says(2, "the arguments must not have undeclared keys, found `x`");
    let seen = project.run(&["tools", "--json"]).json()[0]["parameters"].clone();
    assert_eq!(
        seen,
        json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/count"}, "s": {"type": "string"}}, "required": ["n"],
            "additionalProperties": false, "$defs": {"count": {"type": "integer", "minimum": 1}}})
    );
}

#[test]
fn undeclared_arguments_pass_with_a_warning_unless_none_may() {
    let project = Project::new().tool("it", "parameters:\n  text: { type: string }\n", ECHO);
    let ran = project.run(&["call", "it", "text=a", "txt=b", "x=c"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "{\"text\":\"a\",\"txt\":\"b\",\"x\":\"c\"}\n"), "{ran}");
    assert_eq!(
        ran.err,
        "warning: `it` does not declare the argument `txt`, did you mean `text`?\nwarning: `it` does not declare the argument `x`\n"
    );
    let closed =
        Project::new().tool("it", "parameters:\n  text: { type: string }\n  additionalProperties: false\n", ECHO);
    closed.run(&["call", "it", "text=a"]).gives(r#"{"text":"a"}"#);
    assert_snapshot!(closed.run(&["call", "it", "txt=b"]), @"
    exit 2
    --- stdout
    --- stderr
    error: the arguments of `it` do not fit its parameters
      the arguments must not have undeclared keys, found `txt`

    hint: harness call it [text=STRING]
    ");
}

#[test]
fn a_result_is_checked_after_the_hooks() {
    let front = "returns: { type: object, properties: { n: { type: integer } }, required: [n] }\n";
    let project = Project::new().tool("it", front, "def run(args):\n    return {'n': args.get('n', 1)}\n");
    project.run(&["call", "it", "--args", "{}"]).gives(r#"{"n":1}"#);
    let ran = project.run(&["call", "it", "--args", r#"{"n": "x"}"#]);
    ran.says(1, "the result does not fit `returns`: `n` must be of type integer, found string");
    // A hook that mends the result, and one that breaks it.
    let hook = |result: &str| {
        project.write(
            ".harness/hooks/post.md",
            &format!("---\nevent: tool.post\nscript: |\n  def handle(event, payload):\n      return modify({{'result': {result}}})\n---\n"),
        );
    };
    hook("{'n': 5}");
    let ran = project.run(&["call", "it", "--args", r#"{"n": "x"}"#]);
    assert!(ran.code == 0, "{ran}");
    hook("{'m': 5}");
    project.run(&["call", "it"]).says(1, "the result does not fit `returns`: the value must have the key \"n\"");
}

#[test]
fn what_a_hook_makes_of_arguments_is_checked_too() {
    let project = search().file(
        ".harness/hooks/pre.md",
        "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      return modify({'args': {'limit': payload['args']['limit'] * 100}})\n---\n",
    );
    project.run(&["call", "it", "limit=1"]).gives(r#"{"limit":100,"mode":"fast"}"#);
    project.run(&["call", "it", "limit=2"]).says(2, "the argument `limit` must be at most 100");
}

#[test]
fn tools_that_are_written_elsewhere_are_the_same() {
    let inline = Project::new().policy(
        "tools:\n  - name: it\n    parameters: { n: { type: integer, minimum: 1 } }\n    returns: { type: string }\n    script: |\n      def run(args):\n          return args['n']\n",
    );
    inline.run(&["call", "it", "n=0"]).says(2, "the argument `n` must be at least 1");
    inline.run(&["call", "it", "n=1"]).says(1, "the value must be of type string, found number");
    let added = |parameters: &str, args: &str| {
        let script = format!(
            "def run(args):\n    meta.register_tool('t', 'd', {parameters}, 'def run(args):\\n    return args\\n')\n    return meta.call_tool('t', {args})\n"
        );
        Project::with_script(&script).policy("meta: { enabled: true }\n").run(&["call", "it"])
    };
    added("{'n': {'type': 'integer', 'minimum': 1}}", "{'n': 1}").gives(r#"{"n":1}"#);
    let ran = added("{'n': {'type': 'integer', 'minimum': 1}}", "{'n': 0}");
    ran.gives("error: the arguments of `t` do not fit its parameters: the argument `n` must be at least 1");
    let ran = added("{'n': {'type': 'string', 'pattern': '(?=a)'}}", "{}");
    assert!(ran.code == 1 && ran.err.contains("meta.register_tool: "), "{ran}");
}

#[test]
fn what_is_no_schema_is_told_with_its_place() {
    let check = |front: &str| Project::new().tool("it", front, ECHO).run(&["validate"]).err;
    for (front, told) in [
        (
            "parameters:\n  n: { type: integer, minimum: x }\n",
            "tool \"it\" parameters: `n.minimum` must be of type number, found string",
        ),
        (
            "parameters:\n  n: { $ref: 'https://example.com/' }\n",
            "tool \"it\" parameters: the reference `https://example.com/` leaves the schema: references are local, such as `#/$defs/name`",
        ),
        (
            "parameters:\n  n: { type: integer, default: x }\n",
            "tool \"it\" parameters: the default of `n` must be of type integer, found string",
        ),
        ("parameters:\n  type: string\n", "`parameters.type` must be `object`, found `string`"),
        ("returns: { type: [x] }\n", "tool \"it\" returns: `type` "),
        ("returns: text\n", "`returns` must be a JSON Schema, found "),
    ] {
        let err = check(front);
        assert!(err.contains(told) && err.contains(".harness/tools/it.md:"), "{front}: {err}");
    }
}

/// A tree, a list, names: local references of every kind, checked as any other.
#[test]
fn references_within_the_schema_are_followed() {
    let front = "\
parameters:
  tree: { $ref: '#/$defs/node', required: true }
  at: { $ref: '#place' }
  $defs:
    node:
      type: object
      properties: { name: { type: string }, children: { type: array, items: { $ref: '#/$defs/node' } } }
      required: [name]
      additionalProperties: false
    place: { $anchor: place, type: integer, minimum: 1 }
returns: { anyOf: [{ type: 'null' }, { type: object, properties: { tree: { $ref: '#' } } }] }
";
    let project = Project::new().tool("it", front, ECHO.replace("return args", "return {'tree': None}").as_str());
    let call = |args: &str| project.run(&["call", "it", "--args", args]);
    call(r#"{"tree": {"name": "a", "children": [{"name": "b", "children": []}]}, "at": 1}"#).gives("{\"tree\":null}");
    call(r#"{"tree": {"name": "a", "children": [{"children": []}]}}"#)
        .says(2, "the argument `tree.children[0]` must have the key \"name\"");
    call(r#"{"tree": {"name": "a"}, "at": 0}"#).says(2, "the argument `at` must be at least 1");
    let deep =
        (0..40).fold("{\"name\":\"a\"}".to_owned(), |inner, _| format!("{{\"name\":\"a\",\"children\":[{inner}]}}"));
    call(&format!("{{\"tree\":{deep}}}")).gives("{\"tree\":null}");
    // A model and a person are shown what is written.
    let listed = project.run(&["tools", "--json"]).json();
    assert_eq!(listed[0]["parameters"]["properties"]["tree"], json!({"$ref": "#/$defs/node"}));
    let returns = json!({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"tree": {"$ref": "#"}}}]});
    assert_eq!(listed[0]["returns"], returns);
    assert_eq!(project.run(&["inspect", "it", "--json"]).json()["tools"][0]["returns"], returns);
    let shown = project.run(&["inspect", "it"]).out;
    assert!(
        shown.contains(&format!("  returns: {returns}\n")) && shown.contains("  parameters: {\"type\":\"object\""),
        "{shown}"
    );
    // What it returns is locked as what it takes.
    project.run(&["lock"]).says(0, "");
    let text = std::fs::read_to_string(project.path(".harness/tools/it.md")).unwrap();
    project.write(".harness/tools/it.md", &text.replace("{ type: 'null' }", "{ type: string }"));
    let ran = project.run(&["validate"]);
    ran.says(2, "its parameters or `returns` changed");
    ran.says(2, "- {\"anyOf\":[{\"type\":\"null\"}");
}

#[test]
fn references_that_lead_away_are_errors_with_their_place() {
    for (schema, why) in [
        (
            "$ref: 'https://example.com/s'",
            "the reference `https://example.com/s` leaves the schema: references are local",
        ),
        ("$ref: '#/$defs/none'", "the reference `#/$defs/none` leads nowhere"),
        ("$dynamicRef: '#none'", "the reference `#none` leads nowhere"),
        ("$ref: '#/properties/x'", "the reference `#/properties/x` leads back to itself, without an end"),
    ] {
        let front = format!("parameters:\n  x: {{ {schema} }}\n");
        let ran = Project::new().tool("it", &front, ECHO).run(&["validate"]);
        ran.says(2, why);
        ran.says(2, " --> .harness/tools/it.md:");
    }
}
