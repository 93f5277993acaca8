//! The commands beside `call`, and help.

use insta::assert_snapshot;
use serde_json::json;

use harness_testing::skip::{Need, skipped};

use crate::project::{FINE, Project};

const PARAMETERS: &str = "\
parameters:
  path: { type: string, required: true, description: Which file. }
  depth: { type: number }
";

#[test]
fn tools() {
    let project = Project::new().tool("read_it", PARAMETERS, FINE).tool("it", "", FINE);
    assert_snapshot!(project.run(&["tools"]), @"
    exit 0
    --- stdout
    it()  .harness/tools/it.md
        A tool.
    read_it(path: string, depth?: number)  .harness/tools/read_it.md
        A tool.
    --- stderr
    ");
    assert_snapshot!(project.run(&["tools", "--json"]), @r##"
    exit 0
    --- stdout
    [
      {
        "name": "it",
        "description": "# it\n\nA tool.",
        "parameters": {
          "type": "object",
          "properties": {},
          "required": []
        }
      },
      {
        "name": "read_it",
        "description": "# read_it\n\nA tool.",
        "parameters": {
          "type": "object",
          "properties": {
            "path": {
              "type": "string",
              "description": "Which file."
            },
            "depth": {
              "type": "number"
            }
          },
          "required": [
            "path"
          ]
        }
      }
    ]
    --- stderr
    "##);
    // What may not be called is not told of.
    let narrowed = project.policy("tools_policy: { deny: [read_it] }\n");
    assert_snapshot!(narrowed.run(&["tools"]), @"
    exit 0
    --- stdout
    it()  .harness/tools/it.md
        A tool.
    --- stderr
    ");
    assert_snapshot!(Project::new().run(&["tools"]), @"
    exit 0
    --- stdout
    --- stderr
    no tools: write one in `.harness/tools/`, or run `harness init`
    ");
    assert_eq!(Project::new().run(&["tools", "--json"]).json(), json!([]));
}

#[test]
fn validate() {
    let good = Project::with_script(FINE)
        .file(".harness/hooks/h.md", "---\nevent: tool.pre\nwhen: payload[\"x\"] == 1\n---\n");
    assert_snapshot!(good.run(&["validate"]), @r#"
    exit 0
    --- stdout
    tools: it
    hooks: h
    valid: 1 tool, 1 hook, 0 agents; 0 errors, 1 warning
    --- stderr
    warning: the payload of `tool.pre` has no key `x`
     --> .harness/hooks/h.md:3:7
      |
    3 | when: payload["x"] == 1
      |       ^^^^^^^^
      |
      = hint: it has id, name, arguments, args, agent
    "#);
    assert_snapshot!(good.run(&["validate", "--strict"]), @r#"
    exit 2
    --- stdout
    tools: it
    hooks: h
    invalid: 1 tool, 1 hook, 0 agents; 0 errors, 1 warning
    --- stderr
    warning: the payload of `tool.pre` has no key `x`
     --> .harness/hooks/h.md:3:7
      |
    3 | when: payload["x"] == 1
      |       ^^^^^^^^
      |
      = hint: it has id, name, arguments, args, agent
    "#);
    assert_snapshot!(good.run(&["validate", "--json"]), @r#"
    exit 0
    --- stdout
    {
      "valid": true,
      "tools": [
        "it"
      ],
      "hooks": [
        "h"
      ],
      "agents": [],
      "skills": [],
      "replaced": [],
      "problems": [
        {
          "severity": "warning",
          "message": "the payload of `tool.pre` has no key `x`",
          "file": ".harness/hooks/h.md",
          "line": 3,
          "column": 7,
          "hint": "it has id, name, arguments, args, agent"
        }
      ]
    }
    --- stderr
    "#);

    let warned = Project::new().tool("it", "timeout: 5\n", FINE);
    assert_snapshot!(warned.run(&["validate"]), @"
    exit 0
    --- stdout
    tools: it
    valid: 1 tool, 0 hooks, 0 agents; 0 errors, 1 warning
    --- stderr
    warning: unknown key `timeout`, it is ignored
     --> .harness/tools/it.md:2:1
      |
    2 | timeout: 5
      | ^^^^^^^
      |
      = hint: did you mean `timeout_ms`?
    ");
    assert_snapshot!(warned.run(&["validate", "--strict"]), @"
    exit 2
    --- stdout
    tools: it
    invalid: 1 tool, 0 hooks, 0 agents; 0 errors, 1 warning
    --- stderr
    warning: unknown key `timeout`, it is ignored
     --> .harness/tools/it.md:2:1
      |
    2 | timeout: 5
      | ^^^^^^^
      |
      = hint: did you mean `timeout_ms`?
    ");
    assert_snapshot!(warned.run(&["validate", "--strict", "--json"]), @r#"
    exit 2
    --- stdout
    {
      "valid": false,
      "tools": [
        "it"
      ],
      "hooks": [],
      "agents": [],
      "skills": [],
      "replaced": [],
      "problems": [
        {
          "severity": "warning",
          "message": "unknown key `timeout`, it is ignored",
          "file": ".harness/tools/it.md",
          "line": 2,
          "column": 1,
          "hint": "did you mean `timeout_ms`?"
        }
      ]
    }
    --- stderr
    "#);
}

/// Files, policy, and every script: nothing is found out only after the first error is mended.
#[test]
fn validate_tells_everything_at_once() {
    let project = Project::new()
        .policy("sandbox: { fss: {} }\n")
        .tool("a", "", "def run(args):\n    return 1 +\n")
        .tool("b", "parameters: { p: { type: text } }\n", FINE)
        .tool("c", "", "def go(args):\n    pass\n")
        .file(".harness/hooks/h.md", "---\nevent: tool.pre\nwhen: payload[\n---\n")
        .file(".harness/hooks/i.md", "---\nevent: tool.per\n---\n");
    assert_snapshot!(project.run(&["validate"]), @r#"
    exit 2
    --- stdout
    tools: a, c
    hooks: h
    invalid: 2 tools, 1 hook, 0 agents; 6 errors, 0 warnings
    --- stderr
    error: unknown key `sandbox.fss`
     --> .harness/harness.md:2:12
      |
    2 | sandbox: { fss: {} }
      |            ^^^
      |
      = hint: did you mean `fs`?
    error: tool "b" parameter `p` has the type `text`, must be one of string, number, boolean, object, array
     --> .harness/tools/b.md:2:26
      |
    2 | parameters: { p: { type: text } }
      |                          ^^^^
      |
      = hint: did you mean `string`?
    error: hooks[1].event "tool.per" is invalid
     --> .harness/hooks/i.md:2:8
      |
    2 | event: tool.per
      |        ^^^^^^^^
      |
      = hint: did you mean `tool.pre`?
    error: the script cannot be loaded: Parse error: unexpected new line, expected expression
     --> .harness/tools/a.md:4:17
      |
    4 |       return 1 +
      |                 ^
    error: the script cannot be loaded: the script must define a function `run(args)`
     --> .harness/tools/c.md:3:3
      |
    3 |   def go(args):
      |   ^
    error: the script cannot be loaded: Parse error: unexpected new line, expected expression
     --> .harness/hooks/h.md:3:15
      |
    3 | when: payload[
      |               ^
    "#);
    let ran = project.run(&["validate", "--json"]);
    let problems = ran.json()["problems"].as_array().unwrap().clone();
    assert_eq!((ran.code, ran.err.as_str(), problems.len()), (2, "", 6));
    assert!(
        problems.iter().all(|p| p["line"].is_u64() && p["column"].is_u64() && p["file"].is_string()),
        "{problems:?}"
    );
}

#[test]
fn doctor() {
    let project = Project::with_script(FINE);
    let ran = project.run(&["doctor"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.starts_with("ok    engine        wasmtime 48\nok    interpreter   "), "{ran}");
    let ran = project.run(&["doctor", "--json"]);
    let found = ran.json();
    assert_eq!((ran.code, &found["works"]), (0, &json!(true)));
    let names: Vec<&str> = found["findings"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "engine",
            "interpreter",
            "system",
            "pooling",
            "memory reset",
            "namespaces",
            "landlock",
            "filters",
            "second wall",
            "host",
            "commands"
        ]
    );
    // Room for instances, but not for the pools.
    let ran = project.shell("ulimit -v 30000000; exec \"$HARNESS\" doctor");
    assert!(ran.out.contains("\nnote  pooling       no pools, each instance is mapped separately: "), "{ran}");
    assert_eq!(ran.code, 0, "{ran}");
    // A machine on which nothing can run is told as such.
    let ran = project.shell("ulimit -v 1000000; exec \"$HARNESS\" doctor");
    assert!(ran.out.contains("\nnote  sandbox       does not start: "), "{ran}");
    assert_eq!(ran.code, 5, "{ran}");
}

#[test]
fn init_writes_a_project_that_is_valid_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let outer = Project::new();
    let named = folder.path().join("new");
    let dir = named.to_str().unwrap();
    let ran = outer.run(&["init", dir]);
    assert_snapshot!(ran.to_string().replace(dir, "[dir]"), @"
    exit 0
    --- stdout
    .harness/harness.md
    .harness/tools/word_count.md
    .harness/tools/add_note.md
    .harness/hooks/guard_notes.md
    --- stderr

    next:
      harness -C [dir] validate
      harness -C [dir] call word_count path=.harness/harness.md
    ");
    assert_snapshot!(outer.run(&["-C", dir, "validate", "--strict"]), @r#"
    exit 0
    --- stdout
    tools: add_note, word_count
    hooks: guard_notes
    valid: 2 tools, 1 hook, 0 agents; 0 errors, 0 warnings
    --- stderr
    "#);
    assert_snapshot!(outer.run(&["-C", dir, "call", "word_count", "path=.harness/harness.md"]), @r#"
    exit 0
    --- stdout
    {"lines":14,"words":73,"bytes":492}
    --- stderr
    "#);
    assert_snapshot!(outer.run(&["-C", dir, "call", "add_note", "name=a", "text=b"]), @r#"
    exit 0
    --- stdout
    {"ok":true,"path":"notes/a.md"}
    --- stderr
    "#);
    assert_eq!(std::fs::read_to_string(named.join("notes/a.md")).unwrap(), "b\n");
    // What is there stays as it is.
    std::fs::write(named.join(".harness/harness.md"), "mine").unwrap();
    let again = outer.run(&["init", dir]);
    assert_snapshot!(again.to_string().replace(dir, "[dir]"), @"
    exit 2
    --- stdout
    --- stderr
    error: `[dir]/.harness` is there already

    hint: name another folder: `harness init DIR`
    ");
    assert_eq!(std::fs::read_to_string(named.join(".harness/harness.md")).unwrap(), "mine");
}

#[test]
fn completions() {
    let project = Project::new();
    for (shell, sign) in
        [("bash", "complete -F _harness"), ("zsh", "#compdef harness"), ("fish", "complete -c harness")]
    {
        let ran = project.run(&["completions", shell]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{shell}");
        assert!(ran.out.contains(sign) && ran.out.contains("validate"), "{shell}: {}", ran.out);
    }
    assert_eq!(project.run(&["completions", "cmd"]).code, 2);
    // The shell itself takes it.
    project.shell("\"$HARNESS\" completions bash | bash -n && echo taken").gives("taken");
}

#[test]
fn help() {
    let project = Project::new();
    assert_snapshot!(project.run(&["--help"]), @"
    exit 0
    --- stdout
    Run untrusted tools and hooks for AI agents, each call in its own WebAssembly sandbox

    Usage: harness [OPTIONS] <COMMAND>

    Commands:
      call         Call a tool and print its result as a model would get it
      run          Run the project's agent: with one prompt, or in a conversation at the terminal
      deploy       Run the project's agent on one task from a file or standard input, and print its
                   answer
      context      Show what the agent's model would see, with the tokens of each part
      sessions     List, show, resume and replay recorded sessions
      fire         Dispatch an event to its hooks and print their decision
      test         Run the test cases of tools and hooks in the sandbox, with fakes for files, hosts and
                   commands
      tools        List the tools with their parameters
      hooks        List the hooks of each event, in the order in which they run
      agents       List the sub-agents
      skills       List the skills, and which of them agents see
      inspect      Show the source, the grant and the replaced version of each artifact
      schema       Print the JSON Schema of an artifact's front matter
      validate     Parse and compile everything, and report every error
      lsp          Serve an editor over standard input and output: the Language Server Protocol for
                   artifacts
      serve        Serve many tenants over HTTP, each with its own project, policy, secrets, budgets and
                   record
      admin        Administer a server: tenants, their projects, keys and secrets, and backups
      approvals    List, show, approve and deny calls that wait for confirmation on a server
      usage        Print what a tenant of a server has used of its budgets
      lock         Write `harness.lock`. Artifacts and MCP servers that differ from it are rejected
      plugin       Add, review, pin and update plugins from elsewhere, and write your own
      policy       Print the grant of a tool, compare two policies, or find the least policy for a call
      audit        Print and verify the audit log
      mcp          Serve the tools to clients of the Model Context Protocol, and manage servers whose
                   tools the project has
      doctor       Check which isolation features this machine supports
      init         Write a small project that works
      new          Write a tool, hook, agent, skill or plugin to begin with
      completions  Print a completion script for a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
      -C, --project <DIR>    Use the project in this folder, which holds `.harness`. Default: the
                             current folder, or the nearest folder above it that holds `.harness`
          --policy <FILE>    Use this host policy, which narrows the project's policy. Default:
                             `/etc/harness/policy.yaml`, if it exists
          --server <URL>     Let this server execute the command, with the project of the key's tenant.
                             The key is read from `HARNESS_API_KEY`
          --key-file <FILE>  Read the key for `--server` from this file
          --color <WHEN>     Choose when to print in color [default: auto] [possible values: auto,
                             always, never]
      -h, --help             Print help
      -V, --version          Print version

    Exit codes: 0 completed, 1 the script or a check failed, 2 invalid arguments, artifact or policy, 3
    denied, 4 over a limit, 5 host fault.
    --- stderr
    ");
    assert_snapshot!(project.run(&["call", "--help"]), @r#"
    exit 0
    --- stdout
    Call a tool and print its result as a model would get it

    Usage: harness call [OPTIONS] <TOOL> [KEY=VALUE]...

    Arguments:
      <TOOL>          Name of the tool: the name of its file without `.md`
      [KEY=VALUE]...  Arguments as `key=value`. Each value is parsed as the type of the parameter

    Options:
          --args <JSON>      Arguments as a JSON object: literal, `@FILE`, or `-` for standard input
      -C, --project <DIR>    Use the project in this folder, which holds `.harness`. Default: the
                             current folder, or the nearest folder above it that holds `.harness`
          --policy <FILE>    Use this host policy, which narrows the project's policy. Default:
                             `/etc/harness/policy.yaml`, if it exists
          --workspace <DIR>  Folder that the tool works in. Default: the folder that holds `.harness`
          --server <URL>     Let this server execute the command, with the project of the key's tenant.
                             The key is read from `HARNESS_API_KEY`
          --within <RULES>   Narrow the call by these rules, written like `capabilities:` in YAML:
                             literal, `@FILE`, or `-` for standard input. Keys that are not given stay
                             as in the policy
          --json             Print outcome, result, content, usage and error as one JSON object
          --key-file <FILE>  Read the key for `--server` from this file
          --color <WHEN>     Choose when to print in color [default: auto] [possible values: auto,
                             always, never]
          --explain          Print the grant, the usage and the cost of each host call to standard error
          --confirm <TOOL>   Confirm all calls of this tool in advance; may be repeated. Without it,
                             calls that need confirmation are confirmed at the terminal, and denied if
                             there is none
          --yes              Confirm in advance all calls that need confirmation
          --self-confine     Fail if the process cannot drop its privileges once the project is loaded.
                             Default: print a note
          --no-self-confine  Keep the privileges of the process, for example to attach a debugger
      -h, --help             Print help

    Examples:
      harness call word_count path=README.md
      harness call search_files --args '{"pattern": "fn main"}'
      echo '{"path": "src"}' | harness call list_files --args -
    --- stderr
    "#);
    assert_snapshot!(project.run(&["frobnicate"]), @"
    exit 2
    --- stdout
    --- stderr
    error: unrecognized subcommand 'frobnicate'

    Usage: harness [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    let bare = project.run(&[]);
    assert_eq!((bare.code, bare.out.as_str()), (2, ""));
    project.run(&["-V"]).gives("harness 0.1.0");
    let record: toml::Table = toml::from_str(include_str!("../../guest/prebuilt/record.toml")).unwrap();
    let interpreter = match std::env::var_os("HARNESS_GUEST_COMPONENT") {
        Some(_) => project.run(&["--version"]).out.lines().nth(1).unwrap().replace("interpreter ", ""),
        None => record["component"].as_str().unwrap().to_owned(),
    };
    project.run(&["--version"]).gives(&format!("harness 0.1.0\ninterpreter {interpreter}\nengine wasmtime 48"));
}

/// What looks at something says by its exit code what it found, and its help says by which.
#[test]
fn checks_tell_their_exit_codes() {
    let project = Project::new();
    for (command, codes) in [
        (&["audit", "verify"][..], "0 intact, 1 not intact, 2 no audit log."),
        (&["policy", "diff"], "0 the new policy allows nothing more, 1 it allows more or may, 2 a policy is invalid."),
        (&["sessions", "replay"], "0 no difference, 1 a difference, 2 the session file cannot be used."),
        (
            &["lock"],
            "0 written, or no difference, 1 a difference with `--check`, or a server that cannot be read and stays as \
             it was locked, 2 no lock file to check, or an invalid artifact or policy.",
        ),
        (&["validate"], "0 no errors, 2 an error, or a warning with `--strict`."),
        (&["fire"], "0 allowed, 2 not dispatched, 3 blocked by a hook. With `--format`: 0 allowed, 2 blocked."),
    ] {
        let ran = project.run(&[command, &["--help"]].concat());
        let help = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(ran.code == 0 && help.ends_with(&format!("Exit codes: {codes}")), "{ran}");
    }
}

/// In bash, completion offers the names of the project; a name that a shell would expand is none.
#[test]
fn completion_knows_the_names_of_the_project() {
    let project = Project::with_script("def run(args):\n    return 1\n")
        .with_handle("guard", "tool.pre", "", "return allow()")
        .file(".harness/tools/$(touch planted).md", "---\nscript: |\n  def run(args):\n      return 1\n---\n# x\n");
    let complete = |words: &str| {
        let line = format!(
            "source <(\"$HARNESS\" completions bash); COMP_WORDS=(\"$HARNESS\" {words}); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _harness_with_names \"$HARNESS\" \"${{COMP_WORDS[COMP_CWORD]}}\" \
             \"${{COMP_WORDS[COMP_CWORD-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let ran = project.shell(&format!("bash -c '{}'", line.replace('\'', "'\\''")));
        assert!(ran.code == 0 && ran.err.is_empty(), "{ran}");
        ran.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let has = |words: &str, name: &str| complete(words).iter().any(|offered| offered == name);
    assert!(has("call \"\"", "it") && has("--policy x call i", "it") && !has("call \"\"", "guard"));
    assert!(has("test \"\"", "guard") && has("policy show gu", "guard") && !has("policy \"\"", "guard"));
    assert!(has("call --", "--explain") && !has("call --", "it"));
    assert!(!project.path("planted").exists());
    project.run(&["names", "sessions"]).gives_nothing();
}

/// The same in zsh, whose own completion calls the function for the arguments that are names.
#[test]
fn completion_for_zsh_knows_the_names_of_the_project() {
    let project = Project::with_script("def run(args):\n    return 1\n")
        .with_handle("guard", "tool.pre", "", "return allow()")
        .file(".harness/tools/$(touch planted).md", "---\nscript: |\n  def run(args):\n      return 1\n---\n# x\n")
        .file("a b/.harness/tools/far.md", "---\nscript: |\n  def run(args):\n      return 1\n---\n# x\n");
    let script = project.run(&["completions", "zsh"]).out;
    let uses = |kind: &str| script.matches(&format!(":_harness_names {kind}' \\\n")).count();
    // `call`; `test`; `inspect` and `policy show`; `run` with two options, `context`, and `sessions show`, `resume` and `replay`.
    assert_eq!(["tools", "tested", "all", "sessions"].map(uses), [1, 1, 2, 6]);
    let call = script.split("\n(call)\n").nth(1).unwrap().split(";;").next().unwrap();
    assert!(
        call.contains("':tool -- Name of the tool\\: the name of its file without `.md`:_harness_names tools' \\\n"),
        "{call}"
    );
    assert!(!script.contains(":_users'") && !script.contains(":_urls'") && !script.contains(":_hosts'"), "{script}");

    if skipped(Need::Zsh, std::process::Command::new("zsh").args(["-c", "true"]).status().is_ok()) {
        return;
    }
    project.shell("\"$HARNESS\" completions zsh | zsh -n && echo taken").gives("taken");
    // What zsh's own functions do, as far as names need it.
    let complete = |typed: &str, kind: &str| {
        let line = format!(
            "compdef() {{ }}; _call_program() {{ shift; eval \"$@\" }}; compadd() {{ print -l -- ${{(P)@[-1]}} }}; \
             harness() {{ \"$HARNESS\" \"$@\" }}; source <(harness completions zsh); LBUFFER={typed}; _harness_names -J it {kind}"
        );
        let ran = project.shell(&format!("zsh -f -c '{}'", line.replace('\'', "'\\''")));
        assert!(ran.code == 0 && ran.err.is_empty(), "{ran}");
        ran.out.lines().filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete("'harness call '", "tools"), ["it"]);
    assert_eq!(complete("'harness test g'", "tested"), ["it", "guard"]);
    assert_eq!(complete("'harness --color never -C \"a b\" call '", "tools"), ["far"]);
    assert_eq!(complete("'harness --project=a\\ b call '", "tools"), ["far"]);
    assert_eq!(complete("'harness -C \"\\$(touch planted)\" call '", "tools"), [""; 0]);
    assert!(!project.path("planted").exists());
}

/// Manual pages have what `--help` says, and are the same text each time.
#[test]
fn manual_pages() {
    let project = Project::new();
    let pages = project.run(&["manual"]).out;
    let pages: Vec<&str> = pages.lines().collect();
    assert_eq!(pages[..4], ["harness", "harness-call", "harness-run", "harness-deploy"]);
    assert!(pages.contains(&"harness-policy-show") && pages.contains(&"harness-mcp-serve"), "{pages:?}");
    assert!(!pages.iter().any(|page| page.contains("names") || page.contains("manual")), "{pages:?}");
    for page in &pages {
        let ran = project.run(&["manual", page]);
        let head = format!(".TH {page} 1  \"Harness {}\" Harness\n", env!("CARGO_PKG_VERSION"));
        assert!(ran.code == 0 && ran.err.is_empty() && ran.out.contains(&head), "{ran}");
        assert_eq!(project.run(&["manual", page]).out, ran.out);
    }
    let call = project.run(&["manual", "harness-call"]).out;
    for part in ["Call a tool and print its result", "\\fB\\-\\-explain\\fR", "harness call word_count path=README.md"]
    {
        assert!(call.contains(part), "{part}: {call}");
    }
    let nothing = project.run(&["manual", "harness-fly"]);
    nothing.says(2, "error: no manual page `harness-fly`\n\nhint: `harness manual` lists the pages");
}
