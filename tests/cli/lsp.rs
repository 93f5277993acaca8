//! `harness lsp`: a session of an editor for each of its features.

use serde_json::{Value as Json, json};

use crate::editor::{Editor, marked};
use crate::project::Project;

const GREET: &str = "---\nparameters:\n  name: { type: string, required: true, description: Whom to greet. }\nscript: |\n  def run(args):\n      return \"Hello, \" + args[\"name\"]\ntests:\n  - name: greets\n    args: { name: Ada }\n    expect: { result: \"Hello, Ada\" }\n  - name: greets nobody\n    args: { name: \"\" }\n    expect: { result: \"Hello!\" }\n---\n# greet\n\nGreet a person.\n";

fn greeting() -> Project {
    Project::new().file(".harness/tools/greet.md", GREET)
}

/// The labels of what may be written at the mark in a file. The files are called `new` themselves, and have artifacts or not.
#[track_caller]
fn offered(editor: &mut Editor<'_>, file: &str, version: i64, text: &str) -> Vec<String> {
    let (text, at) = marked(text);
    editor.change(file, version, &text);
    let found = editor.at("textDocument/completion", file, at);
    assert_eq!(found["isIncomplete"], false, "{found}");
    let labels = found["items"].as_array().unwrap().iter().map(|item| item["label"].as_str().unwrap().to_owned());
    labels.filter(|label| label != "new").collect()
}

/// The text with edits of one file.
fn edited(text: &str, edits: &Json) -> String {
    let mut new = text.to_owned();
    for edit in edits.as_array().unwrap().iter().rev() {
        let byte = |at: &Json| {
            let lines: Vec<&str> = text.split_inclusive('\n').collect();
            let (line, character) = (at["line"].as_u64().unwrap(), at["character"].as_u64().unwrap());
            let line = usize::try_from(line).unwrap();
            let before: usize = lines[..line].iter().map(|line| line.len()).sum();
            let units = usize::try_from(character).unwrap();
            let rest: Vec<u16> = lines.get(line).unwrap_or(&"").encode_utf16().take(units).collect();
            before + String::from_utf16(&rest).unwrap().len()
        };
        let range = byte(&edit["range"]["start"])..byte(&edit["range"]["end"]);
        new.replace_range(range, edit["newText"].as_str().unwrap());
    }
    new
}

#[test]
fn problems_appear_and_disappear_as_one_types() {
    let project = greeting();
    let mut editor = Editor::new(&project);
    let file = ".harness/tools/greet.md";
    editor.open(file, GREET);
    assert_eq!(editor.lines(file, 1), [""; 0]);
    editor.change(file, 2, &GREET.replacen("---\n", "---\ntimout_ms: 5\n", 1));
    assert_eq!(
        editor.lines(file, 2),
        ["1:0-9 warning unknown key `timout_ms`, it is ignored\nhint: did you mean `timeout_ms`?"]
    );
    editor.change(file, 3, &GREET.replace("return \"Hello, \"", "return \"ä😀\", undefined_name"));
    assert_eq!(
        editor.lines(file, 3),
        ["5:20-21 error the script cannot be loaded: Variable `undefined_name` not found"]
    );
    editor.change(file, 4, &GREET.replace("return ", "return \"😀\" + fs.raed(\"a\") + "));
    assert_eq!(editor.lines(file, 4), ["5:20-27 error there is no built-in `fs.raed`\nhint: did you mean `fs.read`?"]);
    editor.change(file, 5, GREET);
    assert_eq!(editor.lines(file, 5), [""; 0]);
    editor.quit();
    // Nothing of it was written.
    assert_eq!(std::fs::read_to_string(project.path(file)).unwrap(), GREET);
}

#[test]
fn problems_are_those_of_validate() {
    let broken = "---\nparameters: 5\ntimout_ms: 1\nscript: |\n  def run(args):\n      return json.dump(1)\n---\n";
    let project = greeting()
        .file(".harness/hooks/guard.md", "---\nevent: tool.pre\nwhen: paylod == 1\nscript: |\n  def handle(event, payload):\n      fs.write('a', 'b')\n---\n")
        .file(".harness/agents/helper.md", "---\ndescription: Helps.\ntools: [gard]\n---\nYou help.\n")
        .file(".harness/tools/other.md", broken);
    let expected: Vec<(String, String, u64)> = project.run(&["validate", "--json"]).json()["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let hint = one["hint"].as_str().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
            let message = format!("{}{hint}", one["message"].as_str().unwrap());
            (one["file"].as_str().unwrap().to_owned(), message, one["line"].as_u64().unwrap() - 1)
        })
        .collect();
    assert_eq!(expected.len(), 5, "{expected:?}");
    let mut editor = Editor::new(&project);
    editor.open(".harness/tools/other.md", broken);
    let mut found: Vec<(String, String, u64)> = Vec::new();
    for file in [".harness/agents/helper.md", ".harness/hooks/guard.md", ".harness/tools/other.md"] {
        let uri = editor.uri(file);
        let problems = editor.hear("textDocument/publishDiagnostics", |params| params["uri"] == uri.as_str());
        for one in problems["diagnostics"].as_array().unwrap() {
            let line = one["range"]["start"]["line"].as_u64().unwrap();
            found.push((file.to_owned(), one["message"].as_str().unwrap().to_owned(), line));
        }
    }
    let sorted = |mut all: Vec<(String, String, u64)>| {
        all.sort();
        all
    };
    assert_eq!(sorted(found), sorted(expected));
    editor.quit();
}

#[test]
fn the_project_is_as_it_is_in_the_editor() {
    let project =
        greeting().file(".harness/agents/helper.md", "---\ndescription: Helps.\ntools: [greet]\n---\nYou help.\n");
    let mut editor = Editor::new(&project);
    let helper = ".harness/agents/helper.md";
    editor.open(helper, "---\ndescription: Helps.\ntools: [wave]\n---\nYou help.\n");
    let unknown = "2:8-12 error agent \"helper\" refers to the tool \"wave\", which no artifact defines\nhint: define it as `.harness/tools/wave.md`, or here";
    assert_eq!(editor.lines(helper, 1), [unknown]);
    // A file that does not exist yet.
    editor.open(".harness/tools/wave.md", "---\nscript: |\n  def run(args):\n      return 1\n---\nWave.\n");
    assert_eq!(editor.lines(helper, 1), [""; 0]);
    let uri = editor.uri(".harness/tools/wave.md");
    editor.notify("textDocument/didClose", json!({"textDocument": {"uri": uri}}));
    assert_eq!(editor.lines(helper, 1), [unknown]);
    project.write(".harness/tools/wave.md", "---\nscript: |\n  def run(args):\n      return 1\n---\nWave.\n");
    editor.notify("workspace/didChangeWatchedFiles", json!({"changes": []}));
    assert_eq!(editor.lines(helper, 1), [""; 0]);
    editor.quit();
}

#[test]
fn completion_of_front_matter() {
    let project = greeting().file(".harness/agents/helper.md", "---\ndescription: Helps.\n---\nYou help.\n");
    let mut editor = Editor::new(&project);
    let (tool, hook, agent, policy) =
        (".harness/tools/new.md", ".harness/hooks/new.md", ".harness/agents/new.md", ".harness/harness.md");
    for file in [tool, hook, agent, policy] {
        editor.open(file, "");
    }
    let keys = offered(&mut editor, tool, 2, "---\nscript: x\nt¦\n---\n");
    assert!(keys.contains(&"timeout_ms".to_owned()) && !keys.contains(&"script".to_owned()), "{keys:?}");
    assert_eq!(offered(&mut editor, tool, 3, "---\nasync: ¦\n---\n"), ["true", "false"]);
    assert_eq!(offered(&mut editor, tool, 4, "---\nexpose: ¦\n---\n"), ["both", "script"]);
    let events = offered(&mut editor, hook, 2, "---\nevent: tool.¦\n---\n");
    assert_eq!(events[..2], ["session.start", "session.end"]);
    assert_eq!(offered(&mut editor, agent, 2, "---\ntools: [¦]\n---\n"), ["greet"]);
    let items = offered(&mut editor, agent, 3, "---\ntools:\n  - ¦\n---\n");
    assert!(items.contains(&"greet".to_owned()) && items.contains(&"script".to_owned()), "{items:?}");
    assert_eq!(offered(&mut editor, policy, 2, "---\nsandbox:\n  fs:\n    ¦\n---\n"), ["read", "write", "protect"]);
    assert_eq!(offered(&mut editor, policy, 3, "---\nsandbox: { hooks: { on_error: b¦"), ["block", "allow"]);
    assert_eq!(offered(&mut editor, policy, 4, "---\ntools_policy:\n  allow: [¦]\n---\n"), ["greet"]);
    assert_eq!(offered(&mut editor, policy, 5, "---\n---\n¦prose"), [""; 0]);
    // What is written: the word is replaced, and a colon follows.
    let (text, at) = marked("---\n😀: 1\ntimeo¦\n---\n");
    editor.change(tool, 5, &text);
    let found = editor.at("textDocument/completion", tool, at);
    let item = found["items"].as_array().unwrap().iter().find(|item| item["label"] == "timeout_ms").unwrap();
    let range = json!({"start": {"line": 2, "character": 0}, "end": {"line": 2, "character": 5}});
    assert_eq!(item["textEdit"], json!({"range": range, "newText": "timeout_ms: "}));
    editor.quit();
}

/// A comment names the schema where the path of a file does not.
#[test]
fn completion_by_a_comment() {
    let project = greeting();
    let mut editor = Editor::new(&project);
    editor.open("drafts/new.md", "");
    let hook = "---\n# yaml-language-server: $schema=../schemas/hook.json\npri¦\n---\n";
    let keys = offered(&mut editor, "drafts/new.md", 2, hook);
    assert!(keys.contains(&"priority".to_owned()), "{keys:?}");
    assert_eq!(offered(&mut editor, "drafts/new.md", 3, &hook.replace("$schema", "schema")), [""; 0]);
    // It is a comment for all else.
    let text = GREET.replacen("---\n", "---\n# yaml-language-server: $schema=../schemas/tool.json\n", 1);
    editor.open(".harness/tools/greet.md", &text);
    assert_eq!(editor.lines(".harness/tools/greet.md", 1), [""; 0]);
    editor.quit();
}

#[test]
fn completion_of_scripts() {
    let project = greeting().file(".harness/agents/helper.md", "---\ndescription: Helps.\n---\nYou help.\n");
    let mut editor = Editor::new(&project);
    let (tool, hook) = (".harness/tools/new.md", ".harness/hooks/new.md");
    editor.open(tool, "");
    editor.open(hook, "");
    let mut version = 1;
    let mut in_tool = |line: &str| {
        version += 1;
        let front =
            "---\nparameters:\n  path: { type: string }\n  limit: { type: number }\nscript: |\n  def run(args):\n";
        offered(&mut editor, tool, version, &format!("{front}      {line}\n---\n"))
    };
    assert_eq!(in_tool("os.¦"), ["hostname", "platform", "arch"]);
    assert_eq!(in_tool("return log.¦"), ["debug", "info", "warn", "error"]);
    assert_eq!(in_tool("x = fs.stat(\"a\").¦"), ["name", "size", "is_dir", "mode", "mod_time"]);
    assert_eq!(in_tool("r = http.get(\"u\")\n      r[\"¦"), ["status", "ok", "url", "body", "headers"]);
    assert_eq!(in_tool("args[\"¦"), ["path", "limit"]);
    assert_eq!(in_tool("meta.call_tool(\"¦"), ["greet"]);
    assert_eq!(in_tool("delegate(\"¦"), ["helper"]);
    let names = in_tool("¦");
    assert!(["fs", "sleep", "len"].iter().all(|name| names.contains(&(*name).to_owned())), "{names:?}");
    assert_eq!((in_tool("# fs.¦"), in_tool("x = \"fs.¦")), (vec![], vec![]));
    let of_hook = "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      ";
    assert_eq!(
        offered(&mut editor, hook, 2, &format!("{of_hook}payload[\"¦\n---\n")),
        ["id", "name", "arguments", "args", "agent"]
    );
    // Hooks cannot call the others.
    assert_eq!(
        offered(&mut editor, hook, 3, &format!("{of_hook}fs.¦\n---\n")),
        ["read", "read_base64", "exists", "stat", "list", "glob", "read_lines", "line_count", "find", "diff"]
    );
    let when = offered(&mut editor, hook, 4, "---\nevent: tool.pre\nwhen: pay¦\n---\n");
    assert!(when.contains(&"payload".to_owned()) && !when.contains(&"fs".to_owned()), "{when:?}");
    editor.quit();
}

#[test]
fn hover_shows_keys_built_ins_and_artifacts() {
    let project = greeting();
    let mut editor = Editor::new(&project);
    let file = ".harness/tools/new.md";
    editor.open(file, "");
    let mut version = 1;
    let mut hover = |text: &str| {
        let (text, at) = marked(text);
        version += 1;
        editor.change(file, version, &text);
        let found = editor.at("textDocument/hover", file, at);
        let shown = found["contents"]["value"].as_str().unwrap_or("nothing").to_owned();
        (shown, found["range"]["start"]["character"].as_u64(), found["range"]["end"]["character"].as_u64())
    };
    let (shown, from, to) = hover("---\ntime¦out_ms: 5\n---\n");
    assert_eq!((from, to), (Some(0), Some(10)));
    assert!(shown.contains("milliseconds") && shown.contains("integer"), "{shown}");
    let script = |line: &str| format!("---\nscript: |\n  def run(args):\n      {line}\n---\n");
    let (shown, from, to) = hover(&script("return fs.li¦ne_count(\"a\")"));
    assert_eq!((from, to), (Some(13), Some(26)));
    assert_eq!(
        shown,
        "```python\nfs.line_count(path)\n```\n\nReturns the number of line breaks, plus 1.\n\nGranted by `sandbox.fs` (`read`, `write`). A path is relative to the workspace, or absolute and inside it. Texts are\nUTF-8. Lines count from 1. In the table, PATH is an absolute path, and NAME is the last part of one.\n\n```python\nfs.line_count(\"notes/a.md\")  # 4\n```"
    );
    assert_eq!(hover(&script("return meta.call_tool(\"gr¦eet\", {})")).0, "tool `greet`\n\n# greet\n\nGreet a person.");
    assert_eq!(hover(&script("return l¦en(\"a\")")).0, "A function of the language.");
    assert_eq!(hover(&script("return no¦thing")).0, "nothing");
    assert_eq!(hover("---\nzz¦z: 1\n---\n").0, "nothing");
    editor.quit();
}

#[test]
fn definitions_of_what_others_name() {
    let caller = "---\nscript: |\n  def run(args):\n      x = meta.call_tool(\"gr¦eet\", {})\n      return delegate(\"helper\", \"x\")\n---\nCall.\n";
    let project = greeting()
        .file(".harness/hooks/guard.md", "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      return allow()\n---\n")
        .file(".harness/agents/helper.md", "---\ndescription: Helps.\n---\nYou help.\n")
        .file(".harness/plugins/kit.md", "---\ntools:\n  - name: cut\n    description: Cut.\n    script: |\n      def run(args):\n          return 1\n---\n");
    let mut editor = Editor::new(&project);
    let mut goes = |file: &str, text: &str| {
        let (text, at) = marked(text);
        editor.open(file, &text);
        let found = editor.at("textDocument/definition", file, at);
        let one = |one: &Json| {
            let uri = one["uri"].as_str().unwrap();
            format!("{}:{}", uri.rsplit_once(".harness/").unwrap().1, one["range"]["start"]["line"])
        };
        found.as_array().map(|all| all.iter().map(one).collect::<Vec<_>>()).unwrap_or_default()
    };
    let (tool, agent, policy) = (".harness/tools/caller.md", ".harness/agents/boss.md", ".harness/harness.md");
    assert_eq!(goes(tool, caller), ["tools/greet.md:0"]);
    assert_eq!(goes(tool, &caller.replace('¦', "").replace("\"helper", "\"¦helper")), ["agents/helper.md:0"]);
    assert_eq!(goes(agent, "---\ntools: [greet, cu¦t]\n---\n"), ["plugins/kit.md:2"]);
    assert_eq!(goes(agent, "---\nhooks:\n  - gua¦rd\n---\n"), ["hooks/guard.md:0"]);
    assert_eq!(goes(policy, "---\ntools_policy: { mode: denylist, deny: [\"gre¦et\"] }\n---\n"), ["tools/greet.md:0"]);
    assert_eq!(
        goes(policy, "---\nsandbox:\n  hooks:\n    named:\n      gua¦rd: { on_error: allow }\n---\n"),
        ["hooks/guard.md:0"]
    );
    assert_eq!(goes(policy, "---\nsandbox:\n  sources:\n    tools/gr¦eet: {}\n---\n"), ["tools/greet.md:0"]);
    assert_eq!(goes(agent, "---\ntools: [unkno¦wn]\n---\n"), [""; 0]);
    assert_eq!(goes(agent, "---\ndescription: gre¦et\n---\n"), [""; 0]);
    editor.quit();
}

#[test]
fn cases_run_from_their_lens() {
    let project = greeting();
    let mut editor = Editor::new(&project);
    let file = ".harness/tools/greet.md";
    editor.open(file, GREET);
    let uri = editor.uri(file);
    let lenses = editor.request("textDocument/codeLens", json!({"textDocument": {"uri": uri}}))["result"].clone();
    let shown: Vec<String> = lenses
        .as_array()
        .unwrap()
        .iter()
        .map(|lens| format!("{} {}", lens["range"]["start"]["line"], lens["command"]["title"].as_str().unwrap()))
        .collect();
    assert_eq!(shown, ["0 run 2 cases", "7 run this case", "10 run this case"]);
    let run = |editor: &mut Editor<'_>, lens: usize| {
        let command = &lenses[lens]["command"];
        let params = json!({"command": command["command"], "arguments": command["arguments"]});
        let answer = editor.request("workspace/executeCommand", params);
        let shown = editor.hear("window/showMessage", |_| true);
        (answer["result"].clone(), shown)
    };
    let passed = json!({"case": "greets", "differences": []});
    assert_eq!(
        run(&mut editor, 1),
        (json!({"passed": true, "cases": [passed]}), json!({"type": 3, "message": "tool `greet`: 1 case passed"}))
    );
    let difference = "     `result` is not as expected on line 13:\n     - Hello!\n     + Hello, ";
    let failed = json!({"case": "greets nobody", "differences": [difference.trim_end()]});
    let message = format!("tool `greet`: 1 of 2 cases failed\ngreets nobody:\n{}", difference.trim_end());
    assert_eq!(
        run(&mut editor, 0),
        (json!({"passed": false, "cases": [passed, failed]}), json!({"type": 1, "message": message}))
    );
    // What is not saved counts.
    editor.change(file, 2, &GREET.replace("\"Hello!\"", "\"Hello, \""));
    assert_eq!(run(&mut editor, 0).0["passed"], true);
    for (arguments, message) in [
        (json!([uri, {"kind": "tool", "name": "none"}]), "there is no tool `none`"),
        (json!([uri, {"kind": "tool", "name": "greet", "case": "none"}]), "tool `greet` has no case `none`"),
    ] {
        let params = json!({"command": "harness.runCases", "arguments": arguments});
        let answer = editor.request("workspace/executeCommand", params);
        assert_eq!(answer["error"], json!({"code": -32803, "message": message}));
    }
    editor.quit();
}

#[test]
fn quick_fixes_of_hints() {
    let project = greeting();
    let mut editor = Editor::new(&project);
    let mut fixes = |file: &str, text: &str| {
        editor.open(file, text);
        let problems = editor.problems(file, 1);
        let range = problems[0]["range"].clone();
        let uri = editor.uri(file);
        let context = json!({"diagnostics": problems});
        let answer = editor.request(
            "textDocument/codeAction",
            json!({"textDocument": {"uri": uri}, "range": range, "context": context}),
        );
        answer["result"]
            .as_array()
            .unwrap()
            .iter()
            .map(|action| {
                assert_eq!((&action["kind"], &action["isPreferred"]), (&json!("quickfix"), &json!(true)));
                assert!(problems.as_array().unwrap().contains(&action["diagnostics"][0]), "{action}");
                (action["title"].as_str().unwrap().to_owned(), edited(text, &action["edit"]["changes"][&uri]))
            })
            .collect::<Vec<_>>()
    };
    let fix = |title: &str, text: &str| vec![(title.to_owned(), text.to_owned())];
    let script = "script: |\n  def run(args):\n      return ";
    assert_eq!(
        fixes(".harness/tools/a.md", &format!("---\ntimout_ms: 5\n{script}1\n---\nA.\n")),
        fix("Change to `timeout_ms`", &format!("---\ntimeout_ms: 5\n{script}1\n---\nA.\n"))
    );
    assert_eq!(
        fixes(".harness/tools/b.md", &format!("---\n{script}\"😀\", fs.raed(\"a\")\n---\nB.\n")),
        fix("Change to `fs.read`", &format!("---\n{script}\"😀\", fs.read(\"a\")\n---\nB.\n"))
    );
    assert_eq!(
        fixes(".harness/tools/c.md", &format!("---\ntags: a\n{script}1\n---\nC.\n")),
        fix("Make it a list", &format!("---\ntags: [a]\n{script}1\n---\nC.\n"))
    );
    // A hint that asks for a decision has none.
    assert_eq!(fixes(".harness/tools/d.md", &format!("---\nzzzzzz: a\n{script}1\n---\nD.\n")), []);
    editor.quit();
}

const PAGE: &str = include_str!("../../docs/editors.md");

/// A block of the page, by the heading above it and its language.
fn shown(heading: &str, language: &str) -> &'static str {
    let section = PAGE.split(&format!("# {heading}\n")).nth(1).unwrap().split("\n##").next().unwrap();
    section.split(&format!("```{language}\n")).nth(1).unwrap().split("```").next().unwrap()
}

/// The settings on the page start the server that the other tests talk to.
#[test]
fn the_settings_on_the_page() {
    let code: Json = serde_json::from_str(shown("VS Code", "json")).unwrap();
    let of_code = (code["glspc.server.command"].clone(), code["glspc.server.commandArguments"].clone());
    assert_eq!(of_code, (json!("harness"), json!(["lsp"])));
    let helix: toml::Table = toml::from_str(shown("Helix", "toml")).unwrap();
    let server = &helix["language-server"]["harness"];
    assert_eq!((server["command"].as_str(), server["args"].as_array().map(Vec::len)), (Some("harness"), Some(1)));
    assert_eq!(server["args"][0].as_str(), Some("lsp"));
    assert_eq!(helix["language"][0]["language-servers"][0].as_str(), Some("harness"));
    assert!(shown("Neovim", "lua").contains("cmd = { \"harness\", \"lsp\" },"));
    let zed: toml::Table = toml::from_str(shown("Zed", "toml")).unwrap();
    assert_eq!(zed["language_servers"]["harness"]["languages"][0].as_str(), Some("Markdown"));
    assert!(shown("Zed", "rust").contains("args: vec![\"lsp\".into()]"));
    // What the page says of schemas.
    let project = greeting();
    for kind in ["tool", "hook", "agent", "skill", "bundle", "plugin", "harness"] {
        assert_eq!(project.run(&["schema", kind]).json()["$schema"], "https://json-schema.org/draft/2020-12/schema");
    }
    let front = shown("Schemas in other tools", "yaml");
    project.write(".harness/tools/slow.md", &format!("{front}Slow.\n"));
    assert_eq!(project.run(&["validate"]).code, 0);
    assert_eq!(project.run(&["tools", "--json"]).json()[1]["description"], "Slow.");
}
