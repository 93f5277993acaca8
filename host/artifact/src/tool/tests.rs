use super::*;

const FILE: &str = ".harness/tools/run_command.md";

fn parse(text: &str) -> (Option<Tool>, Diagnostics) {
    Tool::parse(FILE, "run_command", text)
}

/// Everything wrong with a file, as a person sees it.
fn shown(text: &str) -> String {
    let (tool, diagnostics) = parse(text);
    assert_eq!(tool.is_none(), diagnostics.has_errors());
    diagnostics.iter().map(|d| d.render(Some(text), false)).collect::<Vec<_>>().join("\n")
}

fn good(text: &str) -> Tool {
    let (tool, diagnostics) = parse(text);
    assert_eq!(diagnostics, Diagnostics::new());
    tool.unwrap()
}

fn at(line: u32, column: u32, length: u32) -> Position {
    Position { file: FILE.into(), line, column, length }
}

#[test]
fn a_whole_tool() {
    let tool = good(
        "---\nparameters:\n  command: { type: string, required: true }\n  timeout_ms:\n    type: number\n    \
         description: In milliseconds.\nscript: |\n  def run(args):\n      return 1\ntimeout_ms: 30000\nasync: true\n\
         ---\n# run_command\n\nRuns a command.\n",
    );
    let expect = Tool {
        name: "run_command".to_owned(),
        description: "# run_command\n\nRuns a command.".to_owned(),
        parameters: Parameters::of(vec![
            Parameter {
                name: "command".to_owned(),
                kind: Located::new(ParameterType::String, at(3, 20, 6)),
                description: None,
                required: Located::new(true, at(3, 38, 4)),
                keywords: Map::new(),
                position: at(3, 3, 7),
            },
            Parameter {
                name: "timeout_ms".to_owned(),
                kind: Located::new(ParameterType::Number, at(5, 11, 6)),
                description: Some(Located::new("In milliseconds.".to_owned(), at(6, 18, 16))),
                required: Located::new(false, at(4, 3, 10)),
                keywords: Map::new(),
                position: at(4, 3, 10),
            },
        ]),
        returns: None,
        script: Some(Script {
            text: "def run(args):\n    return 1\n".to_owned(),
            first_line: 8,
            indent: 2,
            last_line: 9,
        }),
        verify: None,
        timeout_ms: Some(Located::new(30000, at(10, 13, 5))),
        asynchronous: Located::new(true, at(11, 8, 4)),
        parallel: false,
        effect: Effect::Once,
        confirm: Located::new(false, tool.source.clone()),
        expose: crate::policy::mcp::ToolExpose::Both,
        capabilities: None,
        cases: Vec::new(),
        tags: Vec::new(),
        served: None,
        source: at(1, 1, 3),
        source_name: "tools/run_command".to_owned(),
    };
    assert_eq!(tool, expect);
    let schema = r#"{"type":"object","properties":{"command":{"type":"string"},"timeout_ms":{"type":"number","description":"In milliseconds."}},"required":["command"]}"#;
    assert_eq!(tool.json_schema().to_string(), schema);
}

#[test]
fn the_least_tool() {
    let tool = good("---\n---\n");
    assert_eq!((tool.description.as_str(), tool.script, tool.timeout_ms), ("run_command", None, None));
    assert_eq!(good("---\ntimeout_ms: 0\nparameters:\nscript:\n---\n").timeout_ms, None);
}

#[test]
fn capabilities_are_a_layer() {
    let tool = good("---\ncapabilities: { limits: { fuel: 5 }, env: [] }\n---\n");
    let layer = tool.capabilities.unwrap();
    assert_eq!(
        (layer.limits.get(harness_policy::limits::LimitKey::Fuel), layer.env, layer.fs),
        (Some(5), Some(Vec::new()), None)
    );
}

#[test]
fn all_errors_at_once() {
    insta::assert_snapshot!(shown(
        "---\nparameters:\n  path: { type: int, required: yes }\n  size: { description: [x] }\n  deep: string\n\
         script: 5\ntimeout_ms: -1\nasync: maybe\ntimout_ms: 5\ncapabilities: { netwrk: [] }\n---\n"
    ), @r#"
    error: tool "run_command" parameter `path` has the type `int`, must be one of string, number, boolean, object, array
     --> .harness/tools/run_command.md:3:17
      |
    3 |   path: { type: int, required: yes }
      |                 ^^^
      |
      = hint: did you mean `number`?
    error: parse tool run_command.md: yaml: line 3: `parameters.path.required` must be true or false, found a string
     --> .harness/tools/run_command.md:3:32
      |
    3 |   path: { type: int, required: yes }
      |                                ^^^
      |
      = hint: `yes`, `no`, `on` and `off` are text in YAML 1.2
    error: tool "run_command" parameter `size` has no type
     --> .harness/tools/run_command.md:4:9
      |
    4 |   size: { description: [x] }
      |         ^^^^^^^^^^^^^^^^^^^^
      |
      = hint: add `type:` with one of string, number, boolean, object, array
    error: parse tool run_command.md: yaml: line 4: `parameters.size.description` must be a string, found a list
     --> .harness/tools/run_command.md:4:24
      |
    4 |   size: { description: [x] }
      |                        ^^^^
    error: parse tool run_command.md: yaml: line 5: `parameters.deep` must be a mapping, found a string
     --> .harness/tools/run_command.md:5:9
      |
    5 |   deep: string
      |         ^^^^^^
    error: parse tool run_command.md: yaml: line 6: `script` must be a string, found an integer
     --> .harness/tools/run_command.md:6:9
      |
    6 | script: 5
      |         ^
      |
      = hint: put it in quotes
    error: tool "run_command" timeout_ms must be >= 0
     --> .harness/tools/run_command.md:7:13
      |
    7 | timeout_ms: -1
      |             ^^
    error: parse tool run_command.md: yaml: line 8: `async` must be true or false, found a string
     --> .harness/tools/run_command.md:8:8
      |
    8 | async: maybe
      |        ^^^^^
    warning: unknown key `timout_ms`, it is ignored
     --> .harness/tools/run_command.md:9:1
      |
    9 | timout_ms: 5
      | ^^^^^^^^^
      |
      = hint: did you mean `timeout_ms`?
    error: unknown key `capabilities.netwrk`
      --> .harness/tools/run_command.md:10:17
       |
    10 | capabilities: { netwrk: [] }
       |                 ^^^^^^
       |
       = hint: did you mean `network`?
    "#);
}

#[test]
fn scripts_whose_lines_yaml_moves() {
    insta::assert_snapshot!(shown("---\nscript: \"def run(args):\\n  return 1\"\n---\n"), @r#"
    warning: `script` has several lines in quotes: errors may name a nearby line
     --> .harness/tools/run_command.md:2:9
      |
    2 | script: "def run(args):\n  return 1"
      |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = hint: write it as a block after `|`
    "#);
    insta::assert_snapshot!(shown("---\nscript: >\n  a = 1\n\n  b = 1\n---\n"), @"
    warning: `script` is folded: YAML joins its lines
     --> .harness/tools/run_command.md:2:1
      |
    2 | script: >
      | ^^^^^^
      |
      = hint: write `|` instead of `>`
    ");
    for text in ["|\n  a = 1\n  b = 1", "\"a = 1\\n\"", "'a = 1'", ">\n  a = 1"] {
        assert_eq!(shown(&format!("---\nscript: {text}\n---\n")), "", "{text}");
    }
}

#[test]
fn the_form_of_the_file() {
    insta::assert_snapshot!(shown("# run_command\n"), @r#"
    error: parse tool run_command.md: the first line is not `---`
     --> .harness/tools/run_command.md:1:1
      |
    1 | # run_command
      | ^^^^^^^^^^^^^
      |
      = hint: begin the file with a line `---`, then the YAML, then a second line `---`
    "#);
    insta::assert_snapshot!(shown("---\na: 1\n"), @r#"
    error: parse tool run_command.md: the front matter is not closed: no second line is exactly `---`
     --> .harness/tools/run_command.md:1:1
      |
    1 | ---
      | ^^^
      |
      = hint: add a line `---` between the YAML and the prose
    "#);
    insta::assert_snapshot!(shown("---\nscript: |\n  x\nparameters: {\n---\n"), @r#"
    error: parse tool run_command.md: yaml: line 5: while parsing a node, did not find expected node content
     --> .harness/tools/run_command.md:5:1
      |
    5 | ---
      | ^
    "#);
    insta::assert_snapshot!(shown("---\n- a\n---\n"), @r#"
    error: parse tool run_command.md: yaml: line 2: the front matter must be a mapping, found a list
     --> .harness/tools/run_command.md:2:1
      |
    2 | - a
      | ^
    "#);
    insta::assert_snapshot!(shown("---\nparameters: [a]\n---\n"), @r#"
    error: parse tool run_command.md: yaml: line 2: `parameters` must be a mapping, found a list
     --> .harness/tools/run_command.md:2:13
      |
    2 | parameters: [a]
      |             ^^^
    "#);
}

#[test]
fn names() {
    for (name, expect) in [
        ("", Some("the name of a tool cannot be empty, found ``")),
        ("a/b", Some("the name of a tool must not contain `/`, found `a/b`")),
        ("a\nb", Some("the name of a tool must not contain control characters, found `a\nb`")),
        ("Ünï code.v2", None),
    ] {
        let (tool, diagnostics) = Tool::parse("x.md", name, "---\n---\n");
        assert_eq!(diagnostics.first().map(|d| d.message.as_str()), expect);
        assert_eq!(tool.map(|t| t.name), expect.is_none().then(|| name.to_owned()));
    }
}
