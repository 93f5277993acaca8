//! The format of artifacts: files, lists and folders of bundles, further folders, and what each of them is granted.

use harness_artifact::hook::Hook;
use harness_artifact::tool::Tool;
use harness_policy::layer::Layer;
use harness_registry::Registry;
use serde_json::{Value as Json, json};

use crate::project::{FINE, Project, Ran};

/// A hook that stops everything.
pub(crate) const BLOCKS: &str = "def handle(event, payload):\n    return block('no')\n";

/// An artifact's file: lines of front matter, then the script.
pub(crate) fn artifact(front: &str, script: &str) -> String {
    let script: String = script.lines().map(|line| format!("  {line}\n")).collect();
    format!("---\n{front}script: |\n{script}---\n")
}

/// An entry of a list: its first line, further lines of it, then the script.
pub(crate) fn entry(first: &str, front: &str, script: &str) -> String {
    let front: String = front.lines().map(|line| format!("    {line}\n")).collect();
    let script: String = script.lines().map(|line| format!("      {line}\n")).collect();
    format!("  - {first}\n{front}    script: |\n{script}")
}

/// A bundle's file.
pub(crate) fn bundle(lists: &str) -> String {
    format!("---\n{lists}---\n")
}

/// A tool's script that gives a value.
pub(crate) fn gives(value: &str) -> String {
    format!("def run(args):\n    return {value}\n")
}

/// What `validate --json` found: place, severity and message of each. Artifacts of tests are bare: that they have no
/// description is not told.
pub(crate) fn problems(ran: &Ran) -> Vec<String> {
    let one = |p: &Json| {
        let place = match &p["file"] {
            Json::Null => "-".to_owned(),
            file => format!("{}:{}:{}", file.as_str().unwrap(), p["line"], p["column"]),
        };
        format!("{place} {}: {}", p["severity"].as_str().unwrap(), p["message"].as_str().unwrap())
    };
    let all = ran.json();
    let told = |p: &&Json| !p["message"].as_str().unwrap().ends_with("has no description");
    all["problems"].as_array().unwrap().iter().filter(told).map(one).collect()
}

/// The strings under a key of each object of a list.
pub(crate) fn each(list: &Json, key: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|one| one[key].as_str().unwrap().to_owned()).collect()
}

/// The names of the tools that a model sees.
#[track_caller]
fn tools(project: &Project) -> Vec<String> {
    let ran = project.run(&["tools", "--json"]);
    assert_eq!(ran.code, 0, "{ran}");
    each(&ran.json(), "name")
}

/// That a call of `it` is blocked by the hook of this name.
#[track_caller]
fn blocked(project: &Project, hook: &str) {
    project.run(&["call", "it"]).says(3, &format!("error: tool `it` was denied: blocked by hook \"{hook}\": no"));
}

#[test]
fn a_file_has_no_keys_for_name_and_description() {
    let project = Project::new()
        .tool("x", "name: other\ndescription: d\n", FINE)
        .file(".harness/hooks/guard.md", &artifact("event: error\nhandler: y\nname: z\n", BLOCKS))
        .file(".harness/agents/researcher.md", "---\nname: y\n---\nYou look.\n");
    let found = project.run(&["validate", "--json"]);
    assert_eq!(
        (found.code, &found.json()["tools"], &found.json()["hooks"], &found.json()["agents"]),
        (0, &json!(["x"]), &json!(["guard"]), &json!(["researcher"]))
    );
    assert_eq!(
        problems(&found),
        [
            ".harness/tools/x.md:2:1 warning: unknown key `name`, it is ignored",
            ".harness/tools/x.md:3:1 warning: unknown key `description`, it is ignored",
            ".harness/hooks/guard.md:3:1 warning: unknown key `handler`, it is ignored",
            ".harness/hooks/guard.md:4:1 warning: unknown key `name`, it is ignored",
            ".harness/agents/researcher.md:2:1 warning: unknown key `name`, it is ignored",
        ]
    );
    let tools = project.run(&["tools", "--json"]).json();
    assert_eq!((&tools[0]["name"], &tools[0]["description"]), (&json!("x"), &json!("# x\n\nA tool.")));
}

#[test]
fn code_in_prose_is_never_run() {
    let prose = "\n```\nscript: |\n  def run(args):\n      return 'prose'\n```\n\n```python\ndef run(args):\n    return 'prose'\n\ndef handle(event, payload):\n    return block('prose')\n```\n";
    let fenced = |front: &str| format!("{front}{prose}");
    let project = Project::new()
        .file(".harness/tools/without.md", &fenced("---\n---\n"))
        .file(".harness/tools/it.md", &fenced(&artifact("", FINE)))
        .file(".harness/hooks/guard.md", &fenced("---\nevent: tool.pre\n---\n"))
        .file(".harness/agents/a.md", "---\n---\n```yaml\ntools:\n  - name: own\nhooks:\n  - event: tool.pre\n```\n");
    project.run(&["call", "without"]).says(2, "tool `without` has no implementation: its file has no `script`");
    project.run(&["call", "it"]).gives("fine");
    let agents = project.run(&["agents", "--json"]).json();
    assert_eq!((&agents[0]["tools"], &agents[0]["hooks"]), (&json!([]), &json!([])));
    // The same hook in front matter does block.
    project.write(".harness/hooks/guard.md", &artifact("event: tool.pre\n", BLOCKS));
    blocked(&project, "guard");
}

#[test]
fn tools_and_hooks_in_harness_md() {
    let with_hook = |event: &str| {
        let tools = entry("name: it", "description: Inline.\nparameters: { s: { type: string } }", &gives("args['s']"));
        let hooks = entry("handler: guard", &format!("event: {event}"), BLOCKS);
        Project::new().policy(&format!("tools:\n{tools}hooks:\n{hooks}"))
    };
    let project = with_hook("error");
    project.run(&["call", "it", "s=here"]).gives("here");
    let parameters = json!({"type": "object", "properties": {"s": {"type": "string"}}, "required": []});
    assert_eq!(
        project.run(&["tools", "--json"]).json(),
        json!([{"name": "it", "description": "Inline.", "parameters": parameters}])
    );
    let listed = project.run(&["hooks", "--json"]).json();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["source"], &listed[0]["file"], &listed[0]["line"]),
        (&json!("guard"), &json!("hooks/guard"), &json!(".harness/harness.md"), &json!(10))
    );
    let blocking = with_hook("tool.pre");
    blocked(&blocking, "guard");
    // One without a name is called by its place.
    let unnamed = Project::with_script(FINE).policy(&format!("hooks:\n{}", entry("event: tool.pre", "", BLOCKS)));
    blocked(&unnamed, "hooks[0]");
}

#[test]
fn bundles_of_each_folder_hold_tools_and_hooks() {
    let of = |folder: &str, priority: usize| {
        let tools = entry(&format!("name: {folder}_a"), "", FINE) + &entry(&format!("name: {folder}_b"), "", FINE);
        let logs = format!("def handle(event, payload):\n    log('{folder}')\n    return allow()\n");
        let hooks = entry(&format!("handler: {folder}"), &format!("event: tool.pre\npriority: {priority}"), &logs);
        bundle(&format!("tools:\n{tools}hooks:\n{hooks}"))
    };
    let project = Project::new()
        .tool("own", "", FINE)
        .file(".harness/plugins/p.md", &of("plugins", 3))
        .file(".harness/builtins/p.md", &of("builtins", 2))
        .file(".harness/overrides/p.md", &of("overrides", 1))
        .policy("sandbox: { sources: { plugins/p: { events: [tool.pre] } } }\n");
    // In the order of their files.
    assert_eq!(
        tools(&project),
        ["builtins_a", "builtins_b", "overrides_a", "overrides_b", "plugins_a", "plugins_b", "own"]
    );
    let ran = project.run(&["call", "plugins_b"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "fine\n"), "{ran}");
    assert_eq!(ran.err, "[info] overrides: overrides\n[info] builtins: builtins\n[info] plugins: plugins\n");
}

/// Everything that a tool says, without where it says it.
fn facts_of_tool(tool: &Tool) -> String {
    let parameters = tool.parameters.list.iter().map(|p| (&p.name, *p.kind, p.description.as_deref(), *p.required));
    let parameters: Vec<_> = parameters.collect();
    let cases: Vec<_> = tool.cases.iter().map(|c| (&c.name, &c.input, &c.given, c.expect.len())).collect();
    let script = tool.script.as_ref().map(|script| &script.text);
    let timeout = tool.timeout_ms.as_ref().map(|timeout| timeout.value);
    let layer = facts_of_layer(tool.capabilities.as_ref());
    let Tool { name, description, asynchronous, .. } = tool;
    format!("{name} {description} {parameters:?} {script:?} {timeout:?} {} {layer} {cases:?}", **asynchronous)
}

fn facts_of_hook(hook: &Hook) -> String {
    let cases: Vec<_> = hook.cases.iter().map(|c| (&c.name, &c.event, &c.input, &c.given, c.expect.len())).collect();
    let text = |script: &Option<harness_artifact::script::Script>| script.as_ref().map(|script| script.text.clone());
    let (when, script) = (text(&hook.when), text(&hook.script));
    let layer = facts_of_layer(hook.capabilities.as_ref());
    let Hook { name, event, filter, priority, .. } = hook;
    format!("{name} {} {when:?} {filter:?} {script:?} {} {layer} {cases:?}", **event, **priority)
}

fn facts_of_layer(layer: Option<&Layer>) -> String {
    layer.map_or_else(String::new, |l| format!("{:?}", (&l.fs, &l.network, &l.exec, &l.env, &l.services, l.limits)))
}

/// A list in each place that can hold one.
fn places(list: &str) -> Vec<(&'static str, Project)> {
    [".harness/harness.md", ".harness/plugins/p.md", ".harness/plugins/p/bundle.md", ".harness/builtins/p.md"]
        .map(|place| {
            let project = Project::new().file(place, &bundle(list));
            // A copied bundle's hooks need consent.
            let consents = "sandbox: { sources: { plugins/p: { events: [tool.pre, tool.post, error, custom.x] } } }\n";
            (place, if place.contains("plugins") { project.policy(consents) } else { project })
        })
        .into()
}

#[test]
fn a_tool_is_the_same_wherever_it_is_written() {
    let front = "parameters:\n  a: { type: string, required: true, description: One. }\n  b: { type: array }\ntimeout_ms: 70\nasync: true\ncapabilities: { fs: { read: [docs] }, env: [CI] }\ntests:\n  - name: works\n    args: { a: x }\n    expect: { result: fine }\n";
    let text = artifact(front, FINE).replace("---\n", "---\n\n");
    let text = format!("{}\nDoes it.\n", text.replacen("---\n\n", "---\n", 1));
    let load = |project: &Project| {
        let registry = Registry::load(project.root());
        assert_eq!(registry.diagnostics().len(), 0, "{:?}", registry.diagnostics());
        facts_of_tool(registry.tool("it").unwrap())
    };
    let file = load(&Project::new().file(".harness/tools/it.md", &text));
    assert!(
        file.starts_with("it Does it. [(\"a\", String, Some(\"One.\"), true), (\"b\", Array, None, false)]"),
        "{file}"
    );
    let folder = Project::new().file(".harness/plugins/p/tools/it.md", &text);
    assert_eq!(load(&folder), file);
    for (place, project) in
        places(&format!("tools:\n{}", entry("name: it", &format!("description: Does it.\n{front}"), FINE)))
    {
        assert_eq!(load(&project), file, "{place}");
    }
    // One that says nothing has the same defaults.
    let least = load(&Project::new().file(".harness/tools/it.md", "---\n---\n"));
    for (place, project) in places("tools:\n  - name: it\n") {
        assert_eq!(load(&project), least, "{place}");
    }
}

#[test]
fn a_hook_is_the_same_wherever_it_is_written() {
    let front = "event: tool.post\nwhen: payload[\"is_error\"] == True\npriority: -7\ncapabilities: { network: [a.example] }\ntests:\n  - name: blocks\n    payload: { is_error: true }\n    expect: { decision: block }\n";
    let load = |project: &Project| {
        let registry = Registry::load(project.root());
        assert_eq!(registry.diagnostics().len(), 0, "{:?}", registry.diagnostics());
        facts_of_hook(registry.hook("it").unwrap())
    };
    let file = load(&Project::new().file(".harness/hooks/it.md", &artifact(front, BLOCKS)));
    assert!(file.starts_with("it tool.post Some(\"payload"), "{file}");
    for (place, project) in places(&format!("hooks:\n{}", entry("handler: it", front, BLOCKS))) {
        assert_eq!(load(&project), file, "{place}");
    }
    let least = load(&Project::new().file(".harness/hooks/it.md", "---\nevent: error\n---\n"));
    for (place, project) in places("hooks:\n  - handler: it\n    event: error\n") {
        assert_eq!(load(&project), least, "{place}");
    }
}

/// The same mistake is told in the same words, each time in its own place.
#[test]
fn a_mistake_is_the_same_wherever_it_is_made() {
    let mistakes = "timeout_ms: -1\nparameters: { p: { type: text } }\ntimeuot_ms: 1\n";
    let told = |project: &Project| {
        let found = project.run(&["validate", "--json"]);
        assert_eq!(found.code, 2, "{found}");
        problems(&found)
    };
    let wanted = |place: &str, line: u32, column: u32| {
        let types = "the type `text`, must be one of string, number, boolean, object, array";
        let list = if column > 1 { "tools[0]." } else { "" };
        [
            format!("{place}:{line}:{} error: tool \"it\" timeout_ms must be >= 0", column + 12),
            format!("{place}:{}:{} error: tool \"it\" parameter `p` has {types}", line + 1, column + 25),
            format!("{place}:{}:{column} warning: unknown key `{list}timeuot_ms`, it is ignored", line + 2),
        ]
    };
    let file = Project::new().file(".harness/tools/it.md", &artifact(mistakes, FINE));
    assert_eq!(told(&file), wanted(".harness/tools/it.md", 2, 1));
    for (place, project) in places(&format!("tools:\n{}", entry("name: it", mistakes, FINE))) {
        assert_eq!(told(&project), wanted(place, 4, 5), "{place}");
    }
    let hook = "priority: 1\nevent: tool.per\n";
    let file = Project::new().file(".harness/hooks/it.md", &artifact(hook, BLOCKS));
    assert_eq!(told(&file), [".harness/hooks/it.md:3:8 error: hooks[0].event \"tool.per\" is invalid"]);
    for (place, project) in places(&format!("hooks:\n{}", entry("handler: it", hook, BLOCKS))) {
        assert_eq!(told(&project), [format!("{place}:5:12 error: hooks[0].event \"tool.per\" is invalid")], "{place}");
    }
}

#[test]
fn async_changes_nothing() {
    let script = gives("{'is': args, 'type': type(args)}");
    let report = |front: &str| {
        let project = Project::new().tool("it", front, &script);
        project.run(&["call", "it", "--args", "{\"a\": 1}", "--json"]).report()
    };
    let blocking = report("async: false\n");
    assert_eq!(blocking["result"], json!({"is": {"a": 1}, "type": "dict"}));
    assert_eq!(report("async: true\n"), blocking);
    let inspected = Project::new().tool("it", "async: true\n", FINE).run(&["inspect", "it", "--json"]).json();
    assert_eq!(inspected["tools"][0]["async"], json!(true));
}

/// What is of another language is not there: reported where it stands, before anything runs.
#[test]
fn names_that_scripts_do_not_have() {
    for name in ["open", "subprocess", "sys", "isinstance", "eval", "exec_file", "__import__"] {
        let project = Project::with_script(&format!("def run(args):\n    x = 1\n    return {name}\n"));
        let wanted = format!("error: the script cannot be loaded: Variable `{name}` not found");
        for arguments in [&["call", "it"][..], &["validate"]] {
            let ran = project.run(arguments);
            assert!(ran.code == 2 && ran.err.starts_with(&wanted), "{name}: {ran}");
            assert!(ran.err.contains("--> .harness/tools/it.md:5:14"), "{name}: {ran}");
        }
    }
    for name in ["os.system", "os.open", "os.environ"] {
        let project = Project::with_script(&format!("def run(args):\n    return {name}\n"));
        project
            .run(&["validate"])
            .says(2, &format!("error: there is no built-in `{name}`\n --> .harness/tools/it.md:4:14"));
        assert_eq!(project.run(&["call", "it"]).code, 1, "{name}");
    }
}

#[test]
fn types_are_told_by_name() {
    let project = Project::with_script(&gives(
        "[type(x) for x in ['', 1, 1.5, True, None, [], {}, ()]] + [type(args['s']) == 'string']",
    ))
    .file(
        ".harness/hooks/h.md",
        &artifact(
            "event: tool.pre\nwhen: type(payload[\"args\"]) == \"dict\"\n",
            "def handle(event, payload):\n    return block(type(payload['args']['s']))\n",
        ),
    );
    let called = ["call", "it", "--args", "{\"s\": \"\"}"];
    project.run(&called).says(3, "blocked by hook \"h\": string");
    std::fs::remove_file(project.path(".harness/hooks/h.md")).unwrap();
    project.run(&called).gives(r#"["string","int","float","bool","NoneType","list","dict","tuple",true]"#);
}

#[test]
fn the_five_types_of_parameters_and_what_is_in_them() {
    let kinds = ["string", "number", "boolean", "object", "array"];
    let lines: String = kinds.map(|kind| format!("  a_{kind}: {{ type: {kind} }}\n")).concat();
    let nested = "  deep: { type: object, properties: { a: { type: string } } }\n  long: { type: array, items: { type: string } }\n";
    let project = Project::new().tool("it", &format!("parameters:\n{lines}{nested}"), FINE);
    let schema = "{\"type\":\"object\",\"properties\":{\"a_string\":{\"type\":\"string\"},\"a_number\":{\"type\":\"number\"},\"a_boolean\":{\"type\":\"boolean\"},\"a_object\":{\"type\":\"object\"},\"a_array\":{\"type\":\"array\",\"items\":{}},\"deep\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}}},\"long\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},\"required\":[]}";
    let definitions = project.run(&["tools", "--json"]).json();
    // As text: the order is that of the file.
    assert_eq!(definitions[0]["parameters"].to_string(), schema);
    let found = project.run(&["validate", "--json"]);
    assert_eq!(problems(&found), [""; 0]);
}

#[test]
fn a_file_comes_or_goes_and_with_it_the_tool() {
    let project = Project::new().tool("a", "", FINE);
    assert_eq!(tools(&project), ["a"]);
    project.write(".harness/tools/t.md", &artifact("", FINE));
    assert_eq!(tools(&project), ["a", "t"]);
    project.run(&["call", "t"]).gives("fine");
    std::fs::rename(project.path(".harness/tools/t.md"), project.path(".harness/tools/u.md")).unwrap();
    assert_eq!(tools(&project), ["a", "u"]);
    project.run(&["call", "t"]).says(2, "there is no tool `t`");
    std::fs::remove_file(project.path(".harness/tools/u.md")).unwrap();
    assert_eq!(tools(&project), ["a"]);
}

/// Prose, and files that are none of the format's: they add nothing, whatever they hold.
#[test]
fn what_adds_no_capability() {
    let text = artifact("name: skill\ntools:\n  - name: inner\n", FINE);
    let project = Project::new().tool("it", "", FINE).file(".harness/plugins/acme/tools/own.md", &artifact("", FINE));
    for path in [
        // A skill teaches and does nothing.
        ".harness/SKILL.md",
        ".harness/skills/deploy/SKILL.md",
        ".harness/skills/deploy.md",
        ".harness/plugins/acme/SKILL.md",
        ".harness/plugins/acme/README.md",
        ".harness/plugins/acme/skills/SKILL.md",
        // Hidden.
        ".harness/tools/.hidden.md",
        ".harness/plugins/.hidden.md",
        ".harness/plugins/.hidden/tools/x.md",
        ".harness/plugins/acme/.bundle.md",
        ".harness/plugins/acme/tools/.hidden.md",
        // No Markdown, or further down than artifacts are.
        ".harness/tools/notes.txt",
        ".harness/tools/UPPER.MD",
        ".harness/tools/more/x.md",
    ] {
        project.write(path, &text);
    }
    let found = project.run(&["validate", "--json"]);
    // Someone may think that these are read.
    let unread = ["more/x.md", "UPPER.MD", "notes.txt"];
    let not_read = |path: &str| format!("- error: `.harness/{path}` is not read, but holds an artifact or a policy");
    // What is instead of a skill is read as one, which has neither tools nor a script.
    let as_skill = |path: &str, name: &str| {
        let at = |line: u32, column: u32| format!(".harness/{path}:{line}:{column} error: ");
        [
            format!("{}skill \"{name}\": `description` cannot be empty", at(1, 1)),
            format!("{}skill \"{name}\": `name` is `skill`", at(2, 7)),
            format!("{}unknown key `tools`", at(3, 1)),
            format!("{}unknown key `script`", at(5, 1)),
        ]
    };
    let unnamed = ".harness/plugins/acme/skills/SKILL.md:1:1 error: the name of a skill has only lower-case letters, digits \
                   and hyphens, found `SKILL`";
    let mut told = vec![not_read("SKILL.md"), not_read("tools/.hidden.md")];
    told.extend(unread.map(|name| not_read(&format!("tools/{name}"))));
    told.extend(["skills/deploy.md", "skills/deploy/SKILL.md"].map(|path| as_skill(path, "deploy")).concat());
    let in_plugins = [
        ".hidden/tools/x.md",
        ".hidden.md",
        "acme/.bundle.md",
        "acme/README.md",
        "acme/SKILL.md",
        "acme/tools/.hidden.md",
    ];
    told.extend(in_plugins.map(|name| not_read(&format!("plugins/{name}"))));
    told.push(unnamed.to_owned());
    told.extend(as_skill("plugins/acme/skills/SKILL.md", "SKILL"));
    assert_eq!((found.code, problems(&found)), (2, told), "{found}");
    assert_eq!(project.run(&["validate", "--strict"]).code, 2);
    assert_eq!(
        ["tools", "hooks", "agents", "skills"].map(|kind| found.json()[kind].clone()),
        [json!(["own", "it"]), json!([]), json!([]), json!([])]
    );
}

/// How what a hook of the plugin says is told.
const GUARD_SAYS: &str = "blocked by hook \"guard\" of plugins/acme, a third party, which says: ";

#[test]
fn a_plugin_in_one_file_or_in_a_folder() {
    let (tool, hook) = (gives("'of the plugin'"), BLOCKS);
    let lists = format!(
        "name: acme\nversion: 1.0.0\ntools:\n{}hooks:\n{}agents:\n  - name: helper\n    system_prompt: You help.\n",
        entry("name: it", "", &tool),
        entry("handler: guard", "event: tool.pre\nwhen: payload[\"args\"].get(\"s\") == \"x\"", hook)
    );
    let file = Project::new().file(".harness/plugins/acme.md", &format!("{}\n# Acme\n\nHow to.\n", bundle(&lists)));
    let folder = Project::new()
        .file(".harness/plugins/acme/bundle.md", "---\nname: acme\n---\n# Acme\n\nHow to.\n")
        .file(".harness/plugins/acme/tools/it.md", &artifact("", &tool))
        .file(
            ".harness/plugins/acme/hooks/guard.md",
            &artifact("event: tool.pre\nwhen: payload[\"args\"].get(\"s\") == \"x\"\n", hook),
        )
        .file(".harness/plugins/acme/agents/helper.md", "---\n---\nYou help.");
    for project in [file, folder] {
        let project = project.policy("sandbox: { sources: { plugins/acme: { events: [tool.pre] } } }\n");
        let found = project.run(&["validate", "--json"]);
        assert_eq!((found.code, problems(&found)), (0, Vec::new()), "{found}");
        let found = project.run(&["inspect", "--json"]).json();
        let sources = ["tools", "hooks", "agents"].map(|kind| found[kind][0]["source"].clone());
        assert_eq!(sources, ["plugins/acme/tools/it", "plugins/acme/hooks/guard", "plugins/acme/agents/helper"]);
        assert_eq!(found["bundles"], json!(["plugins/acme"]));
        project.run(&["call", "it"]).gives("of the plugin");
        project.run(&["call", "it", "s=x"]).says(3, &format!("{GUARD_SAYS}\"no\""));
        let registry = Registry::load(project.root());
        let prose: Vec<_> = registry.bundles().iter().map(|b| (b.name.as_str(), b.prose.as_str())).collect();
        assert_eq!(prose, [("plugins/acme", "# Acme\n\nHow to.")]);
        assert_eq!(registry.agents()[0].system_prompt, "You help.");
    }
}

#[test]
fn folders_that_cannot_be_bundles() {
    let twice = Project::with_script(FINE)
        .file(".harness/plugins/acme.md", "---\n---\n")
        .file(".harness/plugins/acme/tools/x.md", &artifact("", FINE));
    twice.run(&["call", "it"]).says(2, "`.harness/plugins/acme.md` and `.harness/plugins/acme/` are one bundle twice");
    // The artifacts of a folder, one level too far up.
    for kind in ["tools", "hooks", "agents"] {
        let named = Project::with_script(FINE)
            .file(&format!(".harness/plugins/{kind}/x.md"), &artifact("event: error\n", FINE));
        let wanted = format!("`.harness/plugins/{kind}/` is not read: a bundle cannot be named `{kind}`");
        named.run(&["call", "it"]).says(2, &wanted);
        named.run(&["validate"]).says(2, &wanted);
    }
    let empty = Project::with_script(FINE).file(".harness/plugins/acme/tool/x.md", &artifact("", FINE));
    let found = empty.run(&["validate", "--json"]);
    assert_eq!(
        (found.code, problems(&found)),
        (
            2,
            vec![
                "- warning: `.harness/plugins/acme/` holds no artifacts".to_owned(),
                "- error: `.harness/plugins/acme/tool/x.md` is not read, but holds an artifact or a policy".to_owned()
            ]
        )
    );
    assert_eq!(found.json()["tools"], json!(["it"]));
}

/// One script for each thing that a plugin has to be granted.
const GRANTED: [(&str, &str); 8] = [
    ("fs.read('a.txt')", "fs: { read: [a.txt] }"),
    ("fs.write('b.txt', 'x')", "fs: { write: [b.txt] }"),
    ("exec.run('true').get('ok')", "exec: { allow: [\"true\"] }, fs: { read: [\".\"] }"),
    ("cache.get('k')", "services: [cache]"),
    ("metrics.incr('k')", "services: [metrics]"),
    ("events.emit('custom.x', {})", "services: [events]"),
    ("meta.list_tools()", "services: [meta]"),
    ("env('HARNESS_TEST_VARIABLE')", "env: [HARNESS_TEST_VARIABLE]"),
];

#[test]
fn a_plugin_has_only_what_its_source_is_granted() {
    let wide =
        "  fs: { read: [\".\"], write: [\".\"] }\n  exec: { allow: [\"true\"] }\n  env: [HARNESS_TEST_VARIABLE]\n";
    let policy = |rules: &str| bundle(&format!("meta: {{ enabled: true }}\nsandbox:\n{rules}"));
    for (call, grant) in GRANTED {
        let text = artifact("", &format!("def run(args):\n    {call}\n    return 'did'\n"));
        let project = Project::new()
            .file("a.txt", "secret")
            .file(".harness/tools/own.md", &text)
            .file(".harness/builtins/b/tools/built.md", &text)
            .file(".harness/plugins/acme/tools/it.md", &text)
            .file(".harness/plugins/other/tools/that.md", &text)
            .file(".harness/harness.md", &policy(wide));
        let denied = |tool: &str| {
            let ran = project.run(&["call", tool]);
            let wanted = format!("error: tool `{tool}` was denied: ");
            assert!(ran.code == 3 && ran.out.is_empty() && ran.err.contains(&wanted), "{call}: {ran}");
        };
        // What the project's own artifacts may do is not what a plugin may.
        project.run(&["call", "own"]).gives("did");
        project.run(&["call", "built"]).gives("did");
        denied("it");
        for source in ["plugins/acme", "plugins/acme/tools/it"] {
            project.write(".harness/harness.md", &policy(&format!("{wide}  sources:\n    {source}: {{ {grant} }}\n")));
            project.run(&["call", "it"]).gives("did");
            denied("that");
        }
        // Nothing is granted to it that the project itself has not.
        let nothing = "  fs: {}\n  services: []\n  sources:\n    plugins/acme: ";
        project.write(".harness/harness.md", &policy(&format!("{nothing}{{ {grant} }}\n")));
        denied("it");
    }
}

#[test]
fn a_plugin_computes_and_logs_without_being_asked() {
    let script = "def run(args):\n    log('said')\n    return [json.encode({}), hash.sha256('')[:4], re.findall('a', 'aba'), string.truncate('abc', 2)]\n";
    let project = Project::new().file(".harness/plugins/acme/tools/it.md", &artifact("", script));
    let ran = project.run(&["call", "it"]);
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (0, "[\"{}\",\"e3b0\",[\"a\",\"a\"],\"ab\"]\n", "[info] said\n"),
        "{ran}"
    );
}

/// A guard that cannot look is a guard that stops everything.
#[test]
fn a_hook_of_a_plugin_has_only_what_its_source_is_granted() {
    let script = "def handle(event, payload):\n    return block(fs.read('a.txt'))\n";
    let project = Project::with_script(FINE).file("a.txt", "what the file says").file(
        ".harness/plugins/acme.md",
        &bundle(&format!("hooks:\n{}", entry("handler: guard", "event: tool.pre", script))),
    );
    let project = project.policy("sandbox: { sources: { plugins/acme: { events: [tool.pre] } } }\n");
    project
        .run(&["call", "it"])
        .says(3, &format!("{GUARD_SAYS}\"the hook failed: fs.read: reading `a.txt` is not granted: nothing in"));
    let granted =
        project.policy("sandbox: { sources: { plugins/acme: { fs: { read: [a.txt] }, events: [tool.pre] } } }\n");
    granted.run(&["call", "it"]).says(3, &format!("{GUARD_SAYS}\"what the file says\""));
}

pub(crate) fn with_root(path: &str) -> Project {
    Project::with_script("def run(args):\n    fs.write(args['path'], 'mine')\n    return 'written'\n")
        .tool("reads", "", "def run(args):\n    return fs.read(args['path'])\n")
        .tool("lists", "", "def run(args):\n    return [entry['name'] for entry in fs.list('.')]\n")
        .policy(&format!("artifact_sources:\n  - {{ type: local, path: {path} }}\n"))
        .file("shared/tools/far.md", &artifact("", FINE))
        .file("shared/hooks/watch.md", "---\nevent: error\n---\n")
        .file("shared/agents/helper.md", "---\n---\nYou help.")
        .file("shared/plugins/acme/tools/plugged.md", &artifact("", "def run(args):\n    return fs.read('a.txt')\n"))
        .file("shared/harness.md", "never read")
        .file("a.txt", "text")
}

#[test]
fn a_further_root_is_read_like_the_first() {
    let project = with_root("shared");
    let found = project.run(&["validate", "--json"]);
    assert_eq!((found.code, problems(&found)), (0, Vec::new()), "{found}");
    assert_eq!(
        (&found.json()["tools"], &found.json()["hooks"], &found.json()["agents"]),
        (&json!(["it", "lists", "reads", "plugged", "far"]), &json!(["watch"]), &json!(["helper"]))
    );
    project.run(&["call", "far"]).gives("fine");
    assert_eq!(project.run(&["inspect", "far", "--json"]).json()["tools"][0]["file"], "shared/tools/far.md");
    project.run(&["call", "plugged"]).says(3, "fs.read: reading `a.txt` is not granted");
    project.write("shared/tools/it.md", &artifact("", FINE));
    let ran = project.run(&["call", "far"]);
    ran.says(2, "tool \"it\" is defined more than once");
    ran.says(2, "it is first defined at .harness/tools/it.md:1:1");
}

/// What scripts may write must not become an artifact, however the policy spells the folder and the script the file.
#[test]
fn scripts_reach_no_further_root() {
    for path in ["shared", "shared/", "./shared", "././shared", "shared/.", "\"shared//\""] {
        out_of_reach(path, &[]);
    }
}

/// The same folder under a name from which it does not follow where it is.
#[test]
fn scripts_reach_no_further_root_behind_dots_and_links() {
    for path in ["lib/../shared", "link", "./link"] {
        out_of_reach(path, &[]);
    }
}

#[test]
fn scripts_reach_no_further_root_in_a_wider_workspace() {
    out_of_reach("inner/shared", &["--workspace", "."]);
}

/// With a path that is `inner/shared`, the project is in `inner`.
#[track_caller]
fn out_of_reach(path: &str, more: &[&str]) {
    let inner = path.strip_prefix("inner/");
    let project = with_root(inner.unwrap_or(path)).file("lib/x", "");
    let (dir, folder) = if inner.is_some() { ("inner", "inner/shared") } else { (".", "shared") };
    std::os::unix::fs::symlink(folder, project.path("link")).unwrap();
    if inner.is_some() {
        std::fs::create_dir(project.path("inner")).unwrap();
        for name in [".harness", "shared"] {
            std::fs::rename(project.path(name), project.path(&format!("inner/{name}"))).unwrap();
        }
    }
    let call = |tool: &str, argument: &str| {
        project.run(&[&["-C", dir, "call", tool], more, &[&format!("path={argument}")]].concat())
    };
    if project.run(&["-C", dir, "validate"]).code == 2 {
        // A spelling that is refused, at its place, does no harm.
        return call("far", "").says(2, "--> .harness/harness.md:3:");
    }
    call("far", "").gives("fine");
    call("it", "elsewhere.md").gives("written");
    call("reads", "a.txt").gives("text");
    let far = format!("{folder}/tools/far.md");
    let others = ["tools/new.md", "new.md"].map(|file| format!("{folder}/{file}"));
    let own = format!("{dir}/.harness/tools/new.md");
    for file in [&far, &others[0], &others[1], &own, &far.to_uppercase(), "link/tools/new.md"] {
        let ran = call("it", file);
        assert!(ran.code == 3 && ran.out.is_empty(), "{path}, writing {file}: {ran}");
    }
    assert_eq!(std::fs::read_to_string(project.path(&far)).unwrap(), artifact("", FINE), "{path}");
    assert!(!project.path(&others[0]).exists() && !project.path(&own).exists(), "{path}");
    call("reads", &far).says(3, &format!("`{far}`"));
    assert!(inner.is_some() || !call("lists", "").out.contains("shared"), "{path}");
}

/// A workspace in the middle of the artifacts would make every file that a script writes one of them.
#[test]
fn no_workspace_inside_artifacts() {
    let project = with_root("shared");
    for workspace in [".harness", ".harness/tools", "shared", "shared/tools"] {
        let ran = project.run(&["call", "it", "--workspace", workspace, "path=new.md"]);
        ran.says(2, "it is inside the project's artifacts");
        assert!(ran.out.is_empty() && !project.path(workspace).join("new.md").exists(), "{workspace}: {ran}");
    }
    project.run(&["call", "it", "--workspace", ".", "path=new.md"]).gives("written");
}
